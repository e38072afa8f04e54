//! The protocol of each activation on shares: the one that costs least by the goal.

use pronghorn_mpc::lean::Party;

use super::{
    BuildError, BuildOptions,
    method::{Planned, batched},
};
use crate::{
    checked::CheckedPlan,
    cost::{self, Seconds, StepCost},
    objective::Goal,
    plan::{Plan, Step},
    runner_up::RunnerUp,
    step::{Compiled, StepPlan},
    steps::{StepKind, activation::lean::Transfers, argmax::ArgMax},
};

/// The plan with lean steps in the place of circuits where they cost less, their OTs from where they
/// cost least, and with the rounds of
/// comparisons that cost least.
pub(super) fn choose(planned: Planned, options: &BuildOptions) -> Result<Planned, BuildError> {
    let plan = &planned.plan;
    let candidates: Vec<Option<RunnerUp>> = (0..plan.steps.len())
        .map(|index| RunnerUp::of(plan, index).filter(RunnerUp::is_lean))
        .collect();
    let transfers = transfers(plan, &candidates, options);
    // Circuits hold nothing of a batch, lean steps all of it. An eighth is for keys.
    let (others, room) = (cost::memory(plan, 1), options.memory / 8 * 7);
    let mut steps = plan.steps.clone();
    let made_exact = made_exact_to_open(plan);
    let (mut changed, mut is_lean) = (false, false);
    for (index, (step, candidate)) in steps.iter_mut().zip(candidates).enumerate() {
        let candidate = candidate.map(|lean| lean.with(transfers));
        let candidate = candidate.filter(|lean| {
            let all = lean.memory(plan, index).plus(others);
            all.server.max(all.client) <= room
        });
        // The first lean step of a connection is dear. Every result is opened, so that it is judged
        // by that here alone.
        let candidate = candidate.filter(|lean| {
            made_exact != Some(index) || is_lean || pays_set_up(plan, index, lean, transfers)
        });
        if let Some(lean) = candidate.filter(|lean| is_cheaper(plan, index, lean, options)) {
            step.kind = lean.into_kind();
            changed = true;
        }
        if let StepKind::Lean(lean) = &mut step.kind {
            lean.transfers = transfers;
            changed = true;
            is_lean = true;
        }
        if let StepKind::ArgMax(_) = step.kind {
            step.kind = StepKind::ArgMax(argmax(plan, index, transfers, options));
            changed = true;
        }
    }
    let Planned {
        plan,
        mut names,
        mut weights,
    } = planned;
    let mut output = plan.output;
    let in_a_circuit = |exact: &usize| matches!(steps[*exact].kind, StepKind::Garbled(_));
    if let Some(exact) = made_exact.filter(in_a_circuit) {
        // A circuit that opens at once is smaller, and a round shorter.
        open_at_once(&mut steps, exact);
        output -= 1;
        names.steps.remove(exact);
        weights.remove(exact);
        changed = true;
    }
    if !changed {
        return Ok(Planned {
            plan,
            weights,
            names,
        });
    }
    let changed = Plan {
        steps,
        output,
        max_batch: 1,
        ..plan.plan().clone()
    };
    Ok(Planned {
        plan: batched(changed, &names, options.memory)?,
        weights,
        names,
    })
}

/// The step that makes exact shares for the opening of the result alone, if there is one.
fn made_exact_to_open(plan: &CheckedPlan) -> Option<usize> {
    let open = &plan.steps[plan.output];
    let &[input] = open.inputs.as_slice() else {
        return None;
    };
    let readers = plan
        .steps
        .iter()
        .filter(|step| step.inputs.contains(&input));
    let (StepKind::Open, StepKind::Garbled(of)) = (&open.kind, &plan.steps[input].kind) else {
        return None;
    };
    (of.ops.is_empty() && readers.count() == 1).then_some(input)
}

/// Whether the only lean step of a plan saves the bytes by which connections set it up.
fn pays_set_up(plan: &CheckedPlan, index: usize, lean: &RunnerUp, transfers: Transfers) -> bool {
    let bytes = |cost: StepCost| cost.bytes_up + cost.bytes_down;
    let [circuit, lean] = [plan.cost(index, 1).at_once, lean.cost(plan, index, 1)].map(bytes);
    circuit.saturating_sub(lean) * IMAGES > 2 * cost::lean_setup(transfers.chain())
}

/// Takes out step `exact`, whose reader opens its input in a circuit of its own.
fn open_at_once(steps: &mut Vec<Step>, exact: usize) {
    let read = steps.remove(exact).inputs[0];
    for input in steps.iter_mut().flat_map(|step| &mut step.inputs) {
        match *input {
            at if at == exact => *input = read,
            at => *input = at - usize::from(at > exact),
        }
    }
}

/// The comparisons of step `index` that cost least.
fn argmax(
    plan: &CheckedPlan,
    index: usize,
    transfers: Transfers,
    options: &BuildOptions,
) -> ArgMax {
    let place = plan.place(index);
    let cost = |at_once: u32| {
        let argmax = ArgMax { at_once, transfers };
        let derived = argmax.compile(&place).ok()?;
        let step = Compiled {
            place,
            derived: &derived,
        };
        let of_batch = |batch| argmax.cost(&step, batch).at_once;
        Some((options.goal().of_step(of_batch, plan.max_batch), argmax))
    };
    let choices = ArgMax::choices(place.input().len()).filter_map(cost);
    let best = choices.min_by(|(one, _), (other, _)| one.total_cmp(other));
    best.map_or_else(ArgMax::default, |(_, argmax)| argmax)
}

/// Where OTs come from, if all steps are lean that can be.
fn transfers(
    plan: &CheckedPlan,
    candidates: &[Option<RunnerUp>],
    options: &BuildOptions,
) -> Transfers {
    if !options.lpn {
        return Transfers::Extension;
    }
    let mut ots = [0; 2];
    let mut count = |protocol: &dyn StepPlan, step: &Compiled<'_>| {
        ots[0] += protocol.random_ots(step, Party::Server);
        ots[1] += protocol.random_ots(step, Party::Client);
    };
    for (index, candidate) in candidates.iter().enumerate() {
        match candidate {
            Some(lean) => count(lean.kind().as_step(), &lean.compiled(plan, index)),
            None => count(plan.steps[index].kind.as_step(), &plan.compiled(index)),
        }
    }
    best(ots, options.goal())
}

/// Images that OTs are chosen for: a set-up of silent OT takes some hundred kB.
pub(super) const IMAGES: u64 = 16;

/// The best source of so many OTs an image, in each direction.
fn best(ots: [u64; 2], goal: Goal) -> Transfers {
    let cost = |transfers: &Transfers| {
        let ots = ots.map(|ots| ots.saturating_mul(IMAGES));
        let bytes_up = ots.iter().map(|&ots| transfers.all_bytes(ots)).sum();
        let seconds = Seconds::transfers((ots[0] + ots[1]) as f64 * transfers.rate());
        let one = StepCost {
            bytes_up,
            seconds,
            ..StepCost::default()
        };
        goal.of_one(&one, 0.0)
    };
    let all = Transfers::ALL.into_iter();
    let best = all.min_by(|one, other| cost(one).total_cmp(&cost(other)));
    best.unwrap_or_default()
}

/// Whether a step costs less by its runner-up.
fn is_cheaper(plan: &CheckedPlan, index: usize, other: &RunnerUp, options: &BuildOptions) -> bool {
    let goal = options.goal();
    let new = goal.of_step(|batch| other.cost(plan, index, batch), plan.max_batch);
    let old = goal.of_step(|batch| plan.cost(index, batch).at_once, plan.max_batch);
    new < old
}
