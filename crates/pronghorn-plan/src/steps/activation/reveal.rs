//! Activations by the client, in the clear (`client-aided`; nGraph-HE2, section 4.4).
//!
//! No message: the client has the value. It learns every value before an activation, and with them
//! the weights.

use pronghorn_graph::{
    fixed::{ActivationOp, Interval, ValueSpec},
    shape::{self, OperatorError},
};
use serde::{Deserialize, Serialize};

use super::{names, pooled, range};
use crate::{
    bands::{Rows, rows_of},
    description::Description,
    share_form::ShareRules,
    step::{Compiled, Place, StepPlan},
    trust::TrustLevel,
};

/// Functions that the client computes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Reveal {
    /// Applied in order, each to the result of the one before.
    pub ops: Vec<ActivationOp>,
}

impl ShareRules for Reveal {}

impl StepPlan for Reveal {
    fn kind(&self) -> &'static str {
        "activation"
    }

    fn trust(&self) -> &'static [TrustLevel] {
        &[TrustLevel::ClientAided]
    }

    fn range(&self, inputs: &[&ValueSpec], value: &ValueSpec) -> Result<Interval, OperatorError> {
        let mut dithers = self.ops.iter().filter_map(ActivationOp::dithered);
        if let Some(shifts) = dithers.next() {
            return Err(OperatorError::Parameter {
                field: "dither",
                found: format!("{shifts:?}"),
                expected: "rounding to the nearest: the client sees the value".into(),
            });
        }
        range(&self.ops, inputs, value)
    }

    fn pooled(&self, outputs: usize) -> usize {
        pooled(&self.ops, outputs)
    }

    fn rows(&self, place: &Place<'_>) -> Option<Rows> {
        let mut shape = place.input().shape.clone();
        let mut rows = Rows::alike();
        for op in &self.ops {
            if let ActivationOp::MaxPool { window } = op {
                rows = rows.then(window, rows_of(&shape));
                shape = shape::pool(&shape, window).ok()?;
            }
        }
        Some(rows)
    }

    fn describe(&self, _step: &Compiled<'_>) -> Description {
        Description::of(format!("{} by the client", names(&self.ops)))
    }
}
