//! What the tests of plans share: networks, plans, and changes of plans.

pub mod networks;

use pronghorn_graph::{
    fixed::{ActivationOp, LocalOp, ValueSpec},
    geometry::Window,
};
use pronghorn_plan::{
    CheckedPlan, EncryptedPlan, Plan, Step, StepKind, TrustLevel,
    plan::FORMAT,
    step::Derived,
    steps::{
        activation::garbled::{Circuits, Garbled},
        linear::{
            clear::ClearLinear, coefficient::CoefficientLinear, shared::SharedLinear,
            slots::SlotLinear,
        },
    },
};

/// Why a plan is refused.
pub fn refusal(plan: &Plan) -> Option<String> {
    let read = Plan::from_bytes(&plan.to_bytes());
    read.err().map(|error| error.to_string())
}

/// What `pick` takes of the first step that has it.
fn first<'a, T>(
    plan: &'a mut Plan,
    pick: impl Fn(&'a mut StepKind) -> Option<&'a mut T>,
) -> &'a mut T {
    let mut kinds = plan.steps.iter_mut().map(|step| &mut step.kind);
    kinds.find_map(pick).expect("the plan has such a step")
}

/// The first linear step whose answer the client decrypts.
pub fn clear(plan: &mut Plan) -> &mut ClearLinear {
    first(plan, |kind| match kind {
        StepKind::ClearLinear(of) => Some(of),
        _ => None,
    })
}

/// The first linear step on shares in the batch engine.
pub fn batch(plan: &mut Plan) -> &mut SharedLinear {
    first(plan, |kind| match kind {
        StepKind::SharedLinear(of) => Some(of),
        _ => None,
    })
}

/// The first linear step in the coefficient engine.
pub fn coefficient(plan: &mut Plan) -> &mut CoefficientLinear {
    first(plan, |kind| match kind {
        StepKind::CoefficientLinear(of) => Some(of),
        _ => None,
    })
}

/// The first linear step in the coefficient engine whose answer the client decrypts.
pub fn clear_coefficient(plan: &mut Plan) -> &mut CoefficientLinear {
    first(plan, |kind| match kind {
        StepKind::ClearCoefficient(of) => Some(&mut of.layer),
        _ => None,
    })
}

/// The first linear step in the slot engine.
pub fn slots(plan: &mut Plan) -> &mut SlotLinear {
    first(plan, |kind| match kind {
        StepKind::SlotLinear(of) => Some(of),
        _ => None,
    })
}

/// The functions of the first activation, in a circuit or by the client.
pub fn ops(plan: &mut Plan) -> &mut Vec<ActivationOp> {
    first(plan, |kind| match kind {
        StepKind::Garbled(of) => Some(&mut of.ops),
        StepKind::Reveal(of) => Some(&mut of.ops),
        _ => None,
    })
}

/// The step on ciphertexts.
pub fn encrypted(plan: &mut Plan) -> &mut EncryptedPlan {
    first(plan, |kind| match kind {
        StepKind::Encrypted(of) => Some(of),
        _ => None,
    })
}

/// Whether a step computes functions, by any protocol.
pub fn is_activation(kind: &StepKind) -> bool {
    matches!(
        kind,
        StepKind::Garbled(_)
            | StepKind::Reveal(_)
            | StepKind::Square
            | StepKind::Product
            | StepKind::ClearProduct
    )
}

/// Whether a step reshapes its input.
pub fn is_reshape(kind: &StepKind) -> bool {
    matches!(kind, StepKind::Local(LocalOp::Reshape))
}

/// The circuits of a step, if it has any.
pub fn circuits(plan: &CheckedPlan, index: usize) -> Option<&Circuits> {
    match plan.derived(index) {
        Derived::Circuits(circuits) => Some(circuits),
        _ => None,
    }
}

/// The index of the first step whose kind `is` so.
pub fn find(plan: &Plan, is: impl Fn(&StepKind) -> bool) -> usize {
    let place = plan.steps.iter().position(|step| is(&step.kind));
    place.expect("the plan has such a step")
}

/// A value without a fraction.
pub fn value(shape: &[usize], low: i32, high: i32) -> ValueSpec {
    ValueSpec {
        shape: shape.to_vec(),
        fraction_bits: 0,
        low,
        high,
    }
}

/// A step named after its place.
pub fn step(kind: StepKind, inputs: &[usize], value: ValueSpec) -> Step {
    Step {
        kind,
        inputs: inputs.to_vec(),
        value,
    }
}

/// A plan of these steps, the last of which is the result.
pub fn plan_of(trust: TrustLevel, steps: Vec<Step>) -> Plan {
    Plan {
        format: FORMAT,
        model: "by hand".into(),
        trust,
        output: steps.len() - 1,
        steps,
        finish: Vec::new(),
        max_batch: 1,
        band_bytes: pronghorn_plan::plan::BAND_BYTES,
        key_checks: 1,
        sampled: None,
        deviations: None,
        categories: vec![],
        class_names: vec![],
        columns: vec![],
        outputs: vec![],
    }
}

/// A square window without dilation.
pub fn window(kernel: usize, stride: usize, padding: usize) -> Window {
    Window {
        kernel: [kernel; 2],
        stride: [stride; 2],
        dilation: [1; 2],
        padding: [padding; 4],
    }
}

/// A plan on shares of an input, functions in a circuit, and the opening of their value.
pub fn in_a_circuit(input: ValueSpec, ops: Vec<ActivationOp>, output: ValueSpec) -> Plan {
    plan_of(
        TrustLevel::TwoParty,
        vec![
            step(StepKind::Input, &[], input),
            step(StepKind::Garbled(Garbled { ops }), &[0], output.clone()),
            step(StepKind::Open, &[1], output),
        ],
    )
}
