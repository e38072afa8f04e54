//! Constants of the server that are added to a value, such as positions before attention.
//!
//! The server adds them to its own share. No message, and the client learns the declared range of
//! the value and the shift alone. As a linear layer it would be one with all weights alike, for
//! which the client encrypts the whole value.

use pronghorn_graph::{
    fixed::{Interval, ValueSpec},
    shape::{self, OperatorError},
};
use serde::{Deserialize, Serialize};

use crate::{
    description::Description,
    share_form::{MAX_BITS, Node, ShareForm, ShareRules, Takes},
    step::{Compiled, Place, StepPlan},
    trust::TrustLevel,
};

/// `(input << left_shift) + constants`, the constants known to the server alone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Bias {
    /// Bits by which the input is shifted up.
    pub left_shift: u32,
}

impl ShareRules for Bias {
    fn takes(&self) -> Takes {
        Takes::Same
    }

    fn margin(&self) -> i64 {
        1
    }

    fn input_bits(&self, bits: u32, _place: usize, _input: &Node<'_>) -> u32 {
        bits.saturating_sub(self.left_shift)
    }

    fn form(&self, bits: u32, inputs: &[ShareForm]) -> ShareForm {
        let guard = inputs.first().map_or(0, |input| input.guard);
        let factor = 1u64.checked_shl(self.left_shift).unwrap_or(u64::MAX);
        let errors = inputs
            .iter()
            .map(|input| input.error.saturating_mul(factor));
        ShareForm::guarded(bits, guard, errors.fold(0, u64::max))
    }
}

impl StepPlan for Bias {
    fn kind(&self) -> &'static str {
        "bias"
    }

    fn trust(&self) -> &'static [TrustLevel] {
        &[TrustLevel::TwoParty]
    }

    fn range(&self, inputs: &[&ValueSpec], value: &ValueSpec) -> Result<Interval, OperatorError> {
        let input = shape::one(inputs)?;
        shape::same(input.shape.clone(), &value.shape)?;
        Ok(Interval::of(value))
    }

    fn check(&self, place: &Place<'_>) -> Result<(), String> {
        if self.left_shift >= MAX_BITS {
            return Err(format!(
                "it shifts by {} bits: less than {MAX_BITS} are possible",
                self.left_shift
            ));
        }
        match place.form().prime {
            Some(_) => Err("its shares are modulo a prime: a power of two is needed".into()),
            None => Ok(()),
        }
    }

    fn describe(&self, _step: &Compiled<'_>) -> Description {
        Description::of("shift, add constants, by the server")
    }
}
