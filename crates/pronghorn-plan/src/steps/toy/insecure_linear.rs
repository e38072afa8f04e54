//! A dense layer on shares, without any encryption. The server learns the layer's input.
//!
//! The client sends its share of the input in the clear. The server adds its own share, multiplies,
//! and answers with the result minus a uniform mask. The mask is the server's share of the result.
//! The client learns nothing beyond its share.

use pronghorn_graph::{
    fixed::{Interval, ValueSpec},
    geometry::ConvGeometry,
    shape::OperatorError,
};
use pronghorn_ring::bits::packed_len;
use serde::{Deserialize, Serialize};

use crate::{
    cost::{Cost, Seconds, StepCost, StepMemory, rate},
    description::Description,
    share_form::{ShareRules, Takes},
    step::{Compiled, Place, StepPlan},
    steps::linear,
    trust::TrustLevel,
};

/// A dense layer whose input the server learns.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct InsecureLinear {
    /// Sizes of the layer.
    pub geometry: ConvGeometry,
}

impl ShareRules for InsecureLinear {
    fn takes(&self) -> Takes {
        Takes::PowerOfTwo
    }
}

impl StepPlan for InsecureLinear {
    fn kind(&self) -> &'static str {
        linear::kind(&self.geometry)
    }

    fn trust(&self) -> &'static [TrustLevel] {
        &[TrustLevel::TwoParty]
    }

    fn range(&self, inputs: &[&ValueSpec], value: &ValueSpec) -> Result<Interval, OperatorError> {
        linear::range(&self.geometry, inputs, value)
    }

    fn check(&self, _place: &Place<'_>) -> Result<(), String> {
        let ConvGeometry {
            in_channels,
            out_channels,
            ..
        } = self.geometry;
        if self.geometry == ConvGeometry::dense(in_channels, out_channels) {
            return Ok(());
        }
        Err("it is a convolution, and this protocol takes dense layers alone".into())
    }

    fn cost(&self, step: &Compiled<'_>, batch: usize) -> Cost {
        let place = &step.place;
        let inputs = packed_len(place.input().len() * batch, place.input_form().bits);
        let outputs = packed_len(place.value().len() * batch, place.form().bits);
        let multiply_adds = self.geometry.multiply_adds().saturating_mul(batch as u64);
        let cost = StepCost {
            bytes_up: inputs as u64,
            bytes_down: outputs as u64,
            multiply_adds,
            rounds: 1,
            seconds: Seconds::products(multiply_adds as f64 / rate::DIRECT_PRODUCT),
            ..StepCost::default()
        };
        Cost::online(cost.with_waits())
    }

    fn memory(&self, step: &Compiled<'_>, batch: usize) -> StepMemory {
        // The answer, beside the share of the result.
        StepMemory {
            server: 4 * (step.place.value().len() * batch) as u64,
            client: 0,
        }
    }

    fn describe(&self, _step: &Compiled<'_>) -> Description {
        Description::of(linear::describe("INSECURE toy", &self.geometry))
    }
}
