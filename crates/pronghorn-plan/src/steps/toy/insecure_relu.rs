//! A ReLU on shares, without any circuit. The client learns the ReLU's input.
//!
//! The server sends its share of the input in the clear. The client adds its own and applies the
//! ReLU. The client's share of the result is the result, and the server's is zero. The server
//! learns nothing.

use pronghorn_graph::{
    fixed::{ActivationOp, Interval, ValueSpec},
    shape::OperatorError,
};
use pronghorn_ring::bits::packed_len;
use serde::{Deserialize, Serialize};

use crate::{
    cost::{Cost, StepCost},
    description::Description,
    share_form::{ShareRules, Takes},
    step::{Compiled, StepPlan},
    steps::activation,
    trust::TrustLevel,
};

/// A ReLU whose input the client learns.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct InsecureRelu {}

impl ShareRules for InsecureRelu {
    fn takes(&self) -> Takes {
        Takes::PowerOfTwo
    }
}

impl StepPlan for InsecureRelu {
    fn kind(&self) -> &'static str {
        "activation"
    }

    fn trust(&self) -> &'static [TrustLevel] {
        &[TrustLevel::TwoParty]
    }

    fn range(&self, inputs: &[&ValueSpec], value: &ValueSpec) -> Result<Interval, OperatorError> {
        activation::range(&[ActivationOp::Relu], inputs, value)
    }

    fn cost(&self, step: &Compiled<'_>, batch: usize) -> Cost {
        let place = &step.place;
        let shares = packed_len(place.input().len() * batch, place.input_form().bits);
        let cost = StepCost {
            bytes_down: shares as u64,
            rounds: 1,
            ..StepCost::default()
        };
        Cost::online(cost.with_waits())
    }

    fn describe(&self, _step: &Compiled<'_>) -> Description {
        Description::of("INSECURE toy, relu by the client")
    }
}
