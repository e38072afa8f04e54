//! Activations on shares, in garbled circuits: the server garbles, the client evaluates.
//!
//! A chain of functions becomes one [`Stage`](super::chain::Stage), and that a circuit for each
//! size of window. The client's share goes in by oblivious transfer, a label a bit. Neither party
//! learns anything.

use pronghorn_graph::{
    fixed::{ActivationOp, Interval, ValueSpec},
    shape::OperatorError,
};
use pronghorn_mpc::ot::{OtParameters, extension};
use serde::{Deserialize, Serialize};

pub use super::circuits::{Circuits, Group, Indices, MAX_WINDOW, Output};
use super::{chain, names, pooled};
use crate::{
    cost::{Cost, Memory, Seconds, StepCost, rate},
    description::Description,
    share_form::{Node, Readers, ShareRules, Takes, Tolerates},
    step::{Compiled, Derived, Place, StepPlan},
    trust::TrustLevel,
};

/// Functions in a garbled circuit. Without functions: the same value, in exact shares modulo the
/// number that its readers take.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Garbled {
    /// Applied in order, each to the result of the one before.
    pub ops: Vec<ActivationOp>,
}

/// Bytes of so many correlated OTs.
pub(crate) fn ot_bytes(count: usize) -> u64 {
    extension::message_bytes(count, OtParameters::default().width()) as u64
}

/// A garbled step all at once: choices up, tables and labels down.
pub(crate) fn at_once(circuits: &Circuits, batch: usize) -> StepCost {
    let (tables, bits) = circuits.sizes(batch);
    let cost = StepCost {
        bytes_up: ot_bytes(bits),
        bytes_down: tables,
        rounds: 1,
        seconds: Seconds::garbling(tables as f64 * rate::TABLE_BYTE)
            + Seconds::transfers(bits as f64 * rate::TRANSFER),
        ..StepCost::default()
    };
    cost.with_waits()
}

impl ShareRules for Garbled {
    fn takes(&self) -> Takes {
        chain::takes(&self.ops)
    }

    fn makes_residues(&self, inputs: bool, readers: Readers) -> bool {
        chain::makes_residues(&self.ops, inputs, readers)
    }

    fn tolerates(&self) -> Tolerates {
        chain::tolerates(&self.ops)
    }

    fn input_bits(&self, _bits: u32, _place: usize, input: &Node<'_>) -> u32 {
        chain::input_bits(&self.ops, input)
    }
}

impl StepPlan for Garbled {
    fn kind(&self) -> &'static str {
        "activation"
    }

    fn trust(&self) -> &'static [TrustLevel] {
        &[TrustLevel::TwoParty]
    }

    fn range(&self, inputs: &[&ValueSpec], value: &ValueSpec) -> Result<Interval, OperatorError> {
        chain::range(&self.ops, inputs, value)
    }

    fn pooled(&self, outputs: usize) -> usize {
        pooled(&self.ops, outputs)
    }

    fn circuit_values(&self, place: &Place<'_>) -> Result<[usize; 2], String> {
        chain::circuit_values(&self.ops, place)
    }

    fn compile(&self, place: &Place<'_>) -> Result<Derived, String> {
        let stage = chain::stage(&self.ops)?;
        if stage.dithered {
            return Err("circuits round to the nearest".into());
        }
        let (input, form) = (place.input(), place.input_form());
        let offset = stage.offset(form);
        let circuit = |kind| stage.circuit(kind, (input, form), place.form());
        let groups = stage.groups(input, circuit)?;
        Ok(Derived::from(Circuits::new(groups, offset, Output::Shares)))
    }

    fn cost(&self, step: &Compiled<'_>, batch: usize) -> Cost {
        let Derived::Circuits(circuits) = step.derived else {
            return Cost::default();
        };
        let (tables, bits) = circuits.sizes(batch);
        let at_once = at_once(circuits, batch);
        if !step.place.inputs_ahead() {
            return Cost::online(at_once);
        }
        let seconds = at_once.seconds;
        // The extension sends `128 / width` bits for an OT, which is a block at either party.
        let blocks = at_once
            .bytes_up
            .saturating_mul(OtParameters::default().width() as u64);
        let offline = StepCost {
            seconds: seconds * rate::OFFLINE,
            memory: Memory {
                server: blocks,
                client: blocks + tables,
            },
            ..at_once
        };
        let online = StepCost {
            bytes_up: bits.div_ceil(8) as u64,
            bytes_down: 16 * bits as u64,
            rounds: 1,
            seconds: seconds * rate::ONLINE,
            ..StepCost::default()
        };
        Cost {
            at_once,
            offline,
            online,
        }
    }

    fn describe(&self, _step: &Compiled<'_>) -> Description {
        Description::of(format!("{} by garbled circuit", names(&self.ops)))
    }
}
