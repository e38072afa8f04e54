//! What the tests of plans share: networks, plans, and changes of plans.

#![allow(dead_code, reason = "each test file uses a part")]

pub mod networks;

use pronghorn_graph::{fixed::ValueSpec, geometry::Window};
use pronghorn_plan::{
    ActivationPlan, EncryptedPlan, LinearPlan, Plan, SlotPlan, Step, StepKind, TrustLevel,
    plan::FORMAT,
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

/// The first linear step's plan.
pub fn linear(plan: &mut Plan) -> &mut LinearPlan {
    first(plan, |kind| match kind {
        StepKind::Linear(of) => Some(of),
        _ => None,
    })
}

/// The plan of the first step on slots.
pub fn slots(plan: &mut Plan) -> &mut SlotPlan {
    first(plan, |kind| match kind {
        StepKind::Slots(of) => Some(of),
        _ => None,
    })
}

/// The plan of the first activation.
pub fn activation(plan: &mut Plan) -> &mut ActivationPlan {
    first(plan, |kind| match kind {
        StepKind::Activation(of) => Some(of),
        _ => None,
    })
}

/// The plan of the step on ciphertexts.
pub fn encrypted(plan: &mut Plan) -> &mut EncryptedPlan {
    first(plan, |kind| match kind {
        StepKind::Encrypted(of) => Some(of),
        _ => None,
    })
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
        name: "s".into(),
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
