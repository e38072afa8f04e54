//! A linear layer on shares in the batch engine (`two-party`).
//!
//! One ciphertext row an element, one coefficient an image. The server's mask hides the answer, and
//! the client's share is what it decrypts. Neither learns anything ([`pronghorn_he::shares`]).

use pronghorn_graph::{
    fixed::{Interval, ValueSpec},
    geometry::ConvGeometry,
    shape::OperatorError,
};
use serde::{Deserialize, Serialize};

use super::{Rows, describe, kind, range};
use crate::{
    cost::{Cost, Once, PUBLISHED_BLOCKS, StepCost, StepMemory},
    description::Description,
    rlwe::{Rlwe, ShareBits},
    share_form::{LayerRules, LayerShares},
    step::{Compiled, Place, StepPlan},
    trust::TrustLevel,
};

/// A linear layer on shares in the batch engine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SharedLinear {
    /// Sizes of the convolution or dense layer.
    pub geometry: ConvGeometry,
    /// Ring, modulus and dropped bits.
    pub rlwe: Rlwe,
    /// The modulus of the answer's shares.
    pub shares: ShareBits,
}

/// Most secrets that one `a` serves, for a layer of so many outputs.
pub(crate) fn secrets(outputs: usize) -> usize {
    PUBLISHED_BLOCKS.max(outputs)
}

impl SharedLinear {
    fn rows(&self, place: &Place<'_>) -> Rows {
        Rows {
            inputs: place.input().len(),
            outputs: place.value().len(),
            parts: 1,
            positions: 1,
        }
    }
}

impl LayerRules for SharedLinear {
    fn layer_shares(&self) -> LayerShares {
        LayerShares::Guarded(self.shares.guard_bits)
    }
}

impl StepPlan for SharedLinear {
    fn kind(&self) -> &'static str {
        kind(&self.geometry)
    }

    fn trust(&self) -> &'static [TrustLevel] {
        &[TrustLevel::TwoParty]
    }

    fn range(&self, inputs: &[&ValueSpec], value: &ValueSpec) -> Result<Interval, OperatorError> {
        range(&self.geometry, inputs, value)
    }

    fn check(&self, place: &Place<'_>) -> Result<(), String> {
        let secrets = secrets(place.value().len());
        self.rlwe.check_shares(self.shares, place.form(), secrets)
    }

    fn cost(&self, step: &Compiled<'_>, batch: usize) -> Cost {
        let cost = self
            .rows(&step.place)
            .cost(&self.rlwe, &self.geometry, batch);
        let key = self.rlwe.public_key_bytes(batch) as u64;
        let cost = StepCost {
            bytes_up: cost.bytes_up + key,
            ..cost
        };
        Cost::online(cost.with_waits())
    }

    fn once(&self, step: &Compiled<'_>) -> Once {
        let outputs = step.place.value().len() as u64;
        Once {
            rows: outputs.saturating_mul(self.rlwe.answer_bytes_a() as u64),
            ..Once::default()
        }
    }

    fn memory(&self, step: &Compiled<'_>, batch: usize) -> StepMemory {
        self.rows(&step.place).memory(&self.rlwe, batch)
    }

    fn rlwe(&self) -> Option<&Rlwe> {
        Some(&self.rlwe)
    }

    fn describe(&self, _step: &Compiled<'_>) -> Description {
        let ShareBits {
            value_bits,
            guard_bits,
        } = self.shares;
        let rlwe = self.rlwe.describe();
        let parameters = format!("shares of {value_bits} and {guard_bits} guard bits, {rlwe}");
        Description {
            what: describe("batch engine", &self.geometry),
            ..Description::with_ring(&self.rlwe, parameters)
        }
    }

    fn block(&self) -> usize {
        self.rlwe.degree
    }
}
