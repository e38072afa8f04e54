//! The client's input: its share is the value, the server's is zero.

use pronghorn_graph::{
    fixed::{Interval, ValueSpec},
    shape::{self, OperatorError},
};

use crate::{
    description::Description,
    share_form::{Readers, ShareRules},
    step::{Compiled, StepPlan},
    trust::TrustLevel,
};

/// The first step of every plan.
pub(crate) struct Input;

impl ShareRules for Input {
    fn makes_residues(&self, _inputs: bool, readers: Readers) -> bool {
        readers.others > 0 || readers.powers_of_two == 0
    }
}

impl StepPlan for Input {
    fn trust(&self) -> &'static [TrustLevel] {
        &TrustLevel::ALL
    }

    fn range(&self, inputs: &[&ValueSpec], value: &ValueSpec) -> Result<Interval, OperatorError> {
        shape::elements(&value.shape)?;
        if inputs.is_empty() {
            return Ok(Interval::of(value));
        }
        Err(OperatorError::Inputs {
            expected: "0",
            found: inputs.len(),
        })
    }

    fn describe(&self, _step: &Compiled<'_>) -> Description {
        Description::of("input, client's")
    }
}
