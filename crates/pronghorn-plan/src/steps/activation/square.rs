//! Squares on shares, by oblivious transfer (Gilboa, CRYPTO 1999). Neither party learns anything.

use pronghorn_graph::{
    fixed::{ActivationOp, Interval, ValueSpec},
    shape::OperatorError,
};
use pronghorn_mpc::ot::OtParameters;
use pronghorn_ring::bits::packed_len;

use super::{garbled::ot_bytes, range};
use crate::{
    cost::{Cost, Memory, Seconds, StepCost, rate},
    description::Description,
    share_form::{Node, ShareRules, Takes},
    step::{Compiled, StepPlan},
    trust::TrustLevel,
};

/// The square of exact shares modulo a power of two.
pub(crate) struct Square;

impl ShareRules for Square {
    fn takes(&self) -> Takes {
        Takes::PowerOfTwo
    }

    fn input_bits(&self, bits: u32, _place: usize, _input: &Node<'_>) -> u32 {
        bits
    }
}

impl StepPlan for Square {
    fn kind(&self) -> &'static str {
        "square"
    }

    fn trust(&self) -> &'static [TrustLevel] {
        &[TrustLevel::TwoParty]
    }

    fn range(&self, inputs: &[&ValueSpec], value: &ValueSpec) -> Result<Interval, OperatorError> {
        range(&[ActivationOp::Square], inputs, value)
    }

    fn cost(&self, step: &Compiled<'_>, batch: usize) -> Cost {
        // An OT for each bit of one factor but the top one. The product of bit `i` has `i + 1` bits
        // less than the square.
        let (values, bits) = (
            step.place.value().len() * batch,
            step.place.form().bits as usize,
        );
        let ots = values * bits.saturating_sub(1);
        let at_once = StepCost {
            bytes_up: ot_bytes(ots),
            bytes_down: (values * bits * bits.saturating_sub(1) / 2).div_ceil(8) as u64,
            rounds: 1,
            seconds: Seconds::transfers(ots as f64 * rate::TRANSFER),
            ..StepCost::default()
        };
        if !step.place.inputs_ahead() {
            return Cost::online(at_once.with_waits());
        }
        let masked = packed_len(values, bits as u32) as u64;
        let online = StepCost {
            bytes_up: masked,
            bytes_down: masked,
            rounds: 1,
            ..StepCost::default()
        };
        let width = OtParameters::default().width() as u64;
        let blocks = at_once.bytes_up.saturating_mul(width);
        let kept = Memory {
            server: blocks,
            client: blocks + at_once.bytes_down,
        };
        Cost {
            at_once: at_once.with_waits(),
            offline: StepCost {
                memory: kept,
                ..at_once
            },
            online: online.with_waits(),
        }
    }

    fn describe(&self, _step: &Compiled<'_>) -> Description {
        Description::of("square by oblivious transfer")
    }
}
