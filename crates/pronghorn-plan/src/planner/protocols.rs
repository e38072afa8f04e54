//! The protocol of each activation on shares: the one that costs least by the goal.

use super::{
    BuildError, BuildOptions,
    method::{Planned, batched},
};
use crate::{
    checked::CheckedPlan,
    plan::Plan,
    step::{Compiled, StepPlan},
    steps::{
        StepKind,
        activation::{garbled::Garbled, lean::Lean},
    },
};

/// The plan with lean steps in the place of circuits where they cost less.
pub(super) fn choose(
    (plan, weights): Planned,
    options: &BuildOptions,
) -> Result<Planned, BuildError> {
    let mut steps = plan.steps.clone();
    let mut changed = false;
    for (index, step) in steps.iter_mut().enumerate() {
        if let StepKind::Garbled(garbled) = &step.kind
            && let Some(lean) = cheaper(&plan, index, garbled, options)
        {
            step.kind = StepKind::Lean(lean);
            changed = true;
        }
    }
    match changed {
        false => Ok((plan, weights)),
        true => {
            let changed = Plan {
                steps,
                max_batch: 1,
                ..plan.plan().clone()
            };
            Ok((batched(changed, options.memory)?, weights))
        }
    }
}

/// The lean step in the place of a garbled one, if there is one and it costs less.
fn cheaper(
    plan: &CheckedPlan,
    index: usize,
    garbled: &Garbled,
    options: &BuildOptions,
) -> Option<Lean> {
    let lean = Lean {
        ops: garbled.ops.clone(),
    };
    let place = plan.place(index);
    let derived = lean.compile(&place).ok()?;
    let step = Compiled {
        place,
        derived: &derived,
    };
    let goal = options.goal();
    let new = goal.of_step(|batch| lean.cost(&step, batch).at_once, plan.max_batch);
    let old = goal.of_step(|batch| plan.cost(index, batch).at_once, plan.max_batch);
    (new < old).then_some(lean)
}
