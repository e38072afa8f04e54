//! The client's input: its share is the value, the server's is zero.

use pronghorn_graph::{
    features::{FeatureScale, FeatureScales},
    fixed::{Interval, ValueSpec},
    shape::{self, OperatorError},
};

use crate::{
    description::Description,
    share_form::{Readers, ShareRules},
    step::{Compiled, Place, StepPlan},
    trust::TrustLevel,
};

/// The first step of a plan with one scale for all values of the input.
pub(crate) struct Input;

impl ShareRules for Input {
    fn makes_residues(&self, _inputs: bool, readers: Readers) -> bool {
        readers.others > 0 || readers.powers_of_two == 0
    }
}

impl StepPlan for Input {
    fn kind(&self) -> &'static str {
        "input"
    }

    fn trust(&self) -> &'static [TrustLevel] {
        &TrustLevel::ALL
    }

    fn is_input(&self) -> bool {
        true
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

/// The first step of a plan with a scale for each feature. All else is as for `Input`.
impl ShareRules for FeatureScales {
    fn makes_residues(&self, inputs: bool, readers: Readers) -> bool {
        Input.makes_residues(inputs, readers)
    }
}

impl StepPlan for FeatureScales {
    fn kind(&self) -> &'static str {
        Input.kind()
    }

    fn trust(&self) -> &'static [TrustLevel] {
        Input.trust()
    }

    fn is_input(&self) -> bool {
        true
    }

    fn range(&self, inputs: &[&ValueSpec], value: &ValueSpec) -> Result<Interval, OperatorError> {
        Input.range(inputs, value)
    }

    fn check(&self, place: &Place<'_>) -> Result<(), String> {
        FeatureScales::check(self, &place.value().shape)
    }

    fn describe(&self, _step: &Compiled<'_>) -> Description {
        let exponents = || self.0.iter().map(|scale| scale.exponent);
        let (least, most) = (
            exponents().min().unwrap_or(0),
            exponents().max().unwrap_or(0),
        );
        let offsets = self.0.iter().filter(|scale| scale.offset != 0.0).count();
        let scales: Vec<String> = self.0.iter().enumerate().map(phrase).collect();
        Description {
            what: format!("input, client's, features * 2^{least} to 2^{most}, {offsets} offsets"),
            ring: String::new(),
            parameters: scales.join(", "),
        }
    }
}

/// The scale of a feature, counted from 0: what the plan tells the client of the samples.
fn phrase((feature, scale): (usize, &FeatureScale)) -> String {
    let FeatureScale { exponent, offset } = scale;
    match *offset {
        0.0 => format!("feature {feature} * 2^{exponent}"),
        _ => format!("(feature {feature} - {offset}) * 2^{exponent}"),
    }
}
