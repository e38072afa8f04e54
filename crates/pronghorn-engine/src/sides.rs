//! Both parties' sides of all steps of a plan.
//!
//! [`of`] is the one place that tells protocols apart: a new protocol is a folder with a
//! [`Compile`], and a line there.

use pronghorn_plan::{CheckedPlan, Pairs, StepKind, Weights};

use crate::{
    connection::Shelf,
    error::EngineError,
    garbled::sides::{Open, Product},
    local::Input,
    product::ClearProduct,
    protocol::{Compile, Sides},
};

/// The protocol of a step.
fn of(kind: &StepKind) -> &dyn Compile {
    match kind {
        StepKind::Input | StepKind::Features(_) => &Input,
        StepKind::ClearLinear(linear) => linear,
        StepKind::SharedLinear(linear) => linear,
        StepKind::CoefficientLinear(linear) => linear,
        StepKind::SlotLinear(linear) => linear,
        StepKind::Local(op) => op,
        StepKind::Reveal(reveal) => reveal,
        StepKind::Garbled(garbled) => garbled,
        StepKind::Square | StepKind::Product => &Product(Pairs::Elements),
        StepKind::MatrixProduct => &Product(Pairs::Matrices),
        StepKind::Open => &Open,
        StepKind::Encrypted(encrypted) => encrypted,
        StepKind::ClearCoefficient(clear) => clear,
        StepKind::ClearProduct => &ClearProduct(Pairs::Elements),
        StepKind::ClearMatrixProduct => &ClearProduct(Pairs::Matrices),
        StepKind::EncryptedMatrices(matrices) => matrices,
        StepKind::Lean(lean) => lean,
        StepKind::ArgMax(argmax) => argmax,
        StepKind::Bias(bias) => bias,
        #[cfg(feature = "toy-protocols")]
        StepKind::Toy(toy) => crate::toy::of(toy),
    }
}

/// The client's sides.
pub(crate) fn client_sides(plan: &CheckedPlan) -> Result<Sides, EngineError> {
    let side = |index: usize| of(&plan.steps[index].kind).client(&plan.compiled(index));
    (0..plan.steps.len()).map(side).collect()
}

/// The server's sides.
pub(crate) fn server_sides(
    plan: &CheckedPlan,
    weights: &[Weights],
    shelf: &Shelf,
) -> Result<Sides, EngineError> {
    let side = |index: usize| {
        let weights = weights.get(index).unwrap_or(&Weights::None);
        of(&plan.steps[index].kind).server(&plan.compiled(index), weights, shelf)
    };
    (0..plan.steps.len()).map(side).collect()
}
