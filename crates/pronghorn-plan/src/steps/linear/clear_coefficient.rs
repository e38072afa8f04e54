//! A linear layer whose answer the client decrypts, in the coefficient engine (`client-aided`): one
//! image or a few.
//!
//! The layer is that of [`CoefficientLinear`], and nothing hides the answer. There is no mask, so
//! the client's share is the whole value with its guard bits, which the client rounds away, and the
//! server's is zero. There is no `u`, so the published polynomials are `sum_i f_i a_i`.
//! What the client learns: the layer's value and its weights. The server learns nothing.

use pronghorn_graph::{
    fixed::{Interval, ValueSpec},
    geometry::ConvGeometry,
    shape::OperatorError,
};
use pronghorn_mpc::circuit::signed_width;
use serde::{Deserialize, Serialize};

use super::{
    coefficient::{CoefficientLinear, secrets},
    describe, kind,
};
use crate::{
    cost::{Cost, Once, StepMemory},
    description::Description,
    rlwe::{Rlwe, ShareBits},
    share_form::{LEAST_GUARD, Node, ShareForm, ShareRules, Takes},
    step::{Compiled, Derived, Place, StepPlan},
    trust::TrustLevel,
};

/// A linear layer whose answer the client decrypts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClearCoefficient {
    /// Layer and parameters: those of a layer on shares with [`ClearCoefficient::shares`].
    pub layer: CoefficientLinear,
}

impl ClearCoefficient {
    /// The layer with such parameters.
    pub fn new(geometry: ConvGeometry, rlwe: Rlwe, value: &ValueSpec) -> Self {
        let shares = Self::shares(value);
        Self {
            layer: CoefficientLinear {
                geometry,
                rlwe,
                shares,
            },
        }
    }

    /// The modulus of the client's share: it holds the value and an error of one unit, with as many
    /// guard bits as that error takes.
    pub fn shares(value: &ValueSpec) -> ShareBits {
        ShareBits {
            value_bits: signed_width(i64::from(value.low) - 1, i64::from(value.high) + 1),
            guard_bits: LEAST_GUARD,
        }
    }
}

impl ShareRules for ClearCoefficient {
    fn takes(&self) -> Takes {
        Takes::PowerOfTwo
    }

    fn input_bits(&self, bits: u32, _place: usize, _input: &Node<'_>) -> u32 {
        bits
    }
}

impl StepPlan for ClearCoefficient {
    fn kind(&self) -> &'static str {
        kind(&self.layer.geometry)
    }

    fn trust(&self) -> &'static [TrustLevel] {
        &[TrustLevel::ClientAided]
    }

    fn range(&self, inputs: &[&ValueSpec], value: &ValueSpec) -> Result<Interval, OperatorError> {
        super::range(&self.layer.geometry, inputs, value)
    }

    fn check(&self, place: &Place<'_>) -> Result<(), String> {
        let (found, needed) = (self.layer.shares, Self::shares(place.value()));
        if found != needed {
            return Err(format!(
                "its values have {found:?}, and {needed:?} are needed"
            ));
        }
        let (form, secrets) = (
            ShareForm::exact(needed.value_bits),
            secrets(place.value().len()),
        );
        self.layer.rlwe.check_shares(needed, &form, secrets)
    }

    fn compile(&self, place: &Place<'_>) -> Result<Derived, String> {
        self.layer.compile(place)
    }

    fn cost(&self, step: &Compiled<'_>, batch: usize) -> Cost {
        self.layer.cost_of(step, batch, false)
    }

    fn once(&self, step: &Compiled<'_>) -> Once {
        Once {
            secrets: 0,
            ..self.layer.once(step)
        }
    }

    fn memory(&self, step: &Compiled<'_>, batch: usize) -> StepMemory {
        self.layer.memory_of(step, batch, false)
    }

    fn rlwe(&self) -> Option<&Rlwe> {
        Some(&self.layer.rlwe)
    }

    fn describe(&self, _step: &Compiled<'_>) -> Description {
        let rlwe = &self.layer.rlwe;
        let bits = self.layer.shares.value_bits;
        let parameters = format!("values of {bits} bits, {}", rlwe.describe());
        Description {
            what: describe("coefficient engine", &self.layer.geometry),
            ..Description::with_ring(rlwe, parameters)
        }
    }
}
