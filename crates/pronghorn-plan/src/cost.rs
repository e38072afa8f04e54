//! Costs: bytes on the wire, multiply-adds, memory, predicted seconds.
//!
//! Each protocol counts its own ([`StepPlan::cost`](crate::step::StepPlan::cost)) in `figures`,
//! with `rate` behind predictions. Here are the sums over a plan.

mod figures;
mod limits;
pub mod rate;
mod seconds;

pub use figures::{Cost, Memory, Once, StepCost, StepMemory};
pub use limits::{
    MAX_BATCH, MOST_PUBLISHED, MOST_READY, MOST_SECRETS, PUBLICATION_GRANT, PUBLICATION_IMAGES,
    PUBLISHED_BLOCKS, SEED_BYTES, WORDS_PER_MESSAGE,
};
pub use seconds::{Seconds, Speed};

use pronghorn_mpc::ot::{OtParameters, all_but_one, silent::Chain};

use crate::{bands::order, checked::CheckedPlan};

/// Bytes each way that a connection exchanges once to set up oblivious transfers.
pub fn ot_setup(plan: &CheckedPlan) -> u64 {
    if !plan.trust.shares() {
        return 0;
    }
    let lean = match plan.is_lean() {
        true => lean_setup(plan.silent()),
        false => 0,
    };
    200_000 + lean
}

/// Those bytes for lean steps alone, with silent OTs of these sets, if any.
pub(crate) fn lean_setup(silent: Option<Chain>) -> u64 {
    let width = OtParameters::LEAST_TRAFFIC.width();
    let silent = silent.map_or(0, |chain| chain.begin_bytes(width));
    12_000 + silent as u64
}

/// Bytes up and down by which the server checks a client's keys, once for each new set. Without
/// the keys.
pub fn key_check(plan: &CheckedPlan) -> [u64; 2] {
    if !plan.checks_keys() {
        return [0; 2];
    }
    let levels = plan.key_checks.trailing_zeros() as usize;
    let up = KEYS_VERSION_BYTES + all_but_one::sender_bytes(levels) + 32 * plan.key_checks;
    // The challenge; the choice with its proof.
    let down = SEED_BYTES + all_but_one::receiver_bytes(levels) + 1 + 32;
    [up as u64, down as u64]
}

/// Bytes of the version of the way from a seed to keys.
pub const KEYS_VERSION_BYTES: usize = 2;

/// Bytes of the polynomials that the server publishes to a client, once for all connections.
pub fn publication(plan: &CheckedPlan) -> u64 {
    plan.once().publication
}

/// Bytes of rows of `a'` that come with the first batch of a connection, and that the client keeps.
/// 0 where they are too many, and come with each batch.
pub fn published(plan: &CheckedPlan) -> u64 {
    match plan.once().rows {
        rows if rows <= MOST_PUBLISHED => rows,
        _ => 0,
    }
}

/// The cost of step `index` for a batch, without preparation.
pub fn step(plan: &CheckedPlan, index: usize, batch: usize) -> StepCost {
    StepCost {
        memory: step_memory(plan, index, batch),
        ..plan.cost(index, batch).at_once
    }
}

/// The sum over all steps. Memory is the largest.
pub fn total(plan: &CheckedPlan, batch: usize) -> StepCost {
    let memory = step_memories(plan, batch).into_iter();
    let steps = memory.enumerate().map(|(index, memory)| StepCost {
        memory,
        ..plan.cost(index, batch).at_once
    });
    steps.fold(StepCost::default(), StepCost::plus)
}

/// The cost of `images` images, nothing prepared: full batches, and one with the rest. Memory is
/// that of the largest.
pub fn of_images(plan: &CheckedPlan, images: usize) -> StepCost {
    in_batches(plan, images, |batch| total(plan, batch))
}

/// The cost of step `index` for `images` images, as [`of_images`].
pub fn step_of_images(plan: &CheckedPlan, index: usize, images: usize) -> StepCost {
    in_batches(plan, images, |batch| step(plan, index, batch))
}

fn in_batches(plan: &CheckedPlan, images: usize, cost: impl Fn(usize) -> StepCost) -> StepCost {
    let (full, rest) = (images / plan.max_batch, images % plan.max_batch);
    let batches = (full > 0).then(|| cost(plan.max_batch).times(full));
    let rest = (rest > 0).then(|| cost(rest));
    let both = batches.into_iter().chain(rest);
    both.fold(StepCost::default(), StepCost::plus)
}

/// The offline part of a batch. Its memory is what each party keeps until the online part.
pub fn prepared(plan: &CheckedPlan, batch: usize) -> StepCost {
    let mut sum = StepCost::default();
    for index in 0..plan.steps.len() {
        let offline = plan.cost(index, batch).offline;
        let memory = sum.memory.plus(offline.memory);
        sum = StepCost {
            memory,
            ..sum.plus(offline)
        };
    }
    let words = |value: usize| 4 * (value as u64).saturating_mul(batch as u64);
    let shares = plan.steps.iter().map(|step| words(step.value.len()));
    let server = shares.fold(sum.memory.server, u64::saturating_add);
    sum.memory.server = server;
    sum
}

/// The online part of a batch that was prepared.
pub fn online(plan: &CheckedPlan, batch: usize) -> StepCost {
    let memory = step_memories(plan, batch).into_iter();
    let steps = memory.enumerate().map(|(index, memory)| StepCost {
        memory,
        ..plan.cost(index, batch).online
    });
    steps.fold(StepCost::default(), StepCost::plus)
}

/// Bytes that each step holds for a batch: its protocol's, and the shares that it reads and makes;
/// those of a band, of a batch that goes by bands.
fn step_memories(plan: &CheckedPlan, batch: usize) -> Vec<Memory> {
    memories(plan, batch).1
}

/// Those of one step.
fn step_memory(plan: &CheckedPlan, index: usize, batch: usize) -> Memory {
    match in_bands(plan, batch) {
        Some((_, each)) => each[index],
        None => whole_memory(plan, index, batch),
    }
}

/// What each party holds at most while the steps of a batch run, and while each does.
fn memories(plan: &CheckedPlan, batch: usize) -> (Memory, Vec<Memory>) {
    let (most, each) = in_bands(plan, batch).unwrap_or_else(|| {
        let whole = |index| whole_memory(plan, index, batch);
        let each: Vec<_> = (0..plan.steps.len()).map(whole).collect();
        let most = each.iter().copied().fold(Memory::default(), Memory::most);
        (most, each)
    });
    let inputs = Memory {
        server: 0,
        client: input_bytes(plan, batch),
    };
    (most.plus(inputs), each)
}

/// Bytes of the inputs as the client keeps them.
fn input_bytes(plan: &CheckedPlan, batch: usize) -> u64 {
    let input = plan.input();
    let image = input.len().saturating_mul(input.distance_bytes()) as u64;
    image.saturating_mul(batch as u64)
}

/// The same of a batch that goes by bands.
fn in_bands(plan: &CheckedPlan, batch: usize) -> Option<(Memory, Vec<Memory>)> {
    let bands = order::bands(plan, batch)?;
    Some(order::memory(plan, batch, &bands))
}

/// Those of a step that makes its value whole.
fn whole_memory(plan: &CheckedPlan, index: usize, batch: usize) -> Memory {
    let step = &plan.steps[index];
    let inputs = step.inputs.iter().map(|&input| &plan.steps[input].value);
    let values: usize = inputs.chain([&step.value]).map(|value| value.len()).sum();
    let shares = 4 * values as u64 * batch as u64;
    let shares = Memory {
        server: if plan.trust.shares() { shares } else { 0 },
        client: shares,
    };
    plan.protocol_memory(index, batch).plus(shares)
}

/// What each party holds at most while a batch runs.
pub fn memory(plan: &CheckedPlan, batch: usize) -> Memory {
    let (steps, _) = memories(plan, batch);
    Memory {
        server: steps.server + plan.once().secrets.min(MOST_SECRETS) + slot_keys(plan),
        ..steps
    }
}

/// Bytes that a client's keys for steps on slots take at the server: as they come, and ready for
/// use.
fn slot_keys(plan: &CheckedPlan) -> u64 {
    plan.slot_key_bytes().saturating_add(kept_keys(plan))
}

/// Bytes that these keys take ready for use, also between batches.
pub fn kept_keys(plan: &CheckedPlan) -> u64 {
    2 * plan.slot_key_bytes()
}

/// Bytes that a client's keys take while they are made and sent, and what it keeps for all batches.
fn key_memory(plan: &CheckedPlan) -> u64 {
    let once = plan.once();
    let of_step = |index: usize| {
        let step = plan.steps[index].kind.as_step();
        step.once(&plan.compiled(index)).polynomials
    };
    let ready = match once.polynomials {
        all if all <= MOST_READY => all,
        _ => (0..plan.steps.len()).map(of_step).max().unwrap_or(0),
    };
    [
        published(plan),
        once.publication,
        ready,
        2 * plan.slot_key_bytes(),
    ]
    .into_iter()
    .fold(once.keys, u64::saturating_add)
}

/// Most images of a client's batch whose shares and results stay within `allowed` bytes; `None`
/// where one image does not. A client asks this before it follows the plan of a server.
pub fn client_batch(plan: &CheckedPlan, allowed: u64) -> Option<usize> {
    let result = 8 * plan.output_len().max(plan.result().len()) as u64;
    let allowed = allowed.checked_sub(key_memory(plan))?;
    let needed = |images: usize| {
        let results = result.saturating_mul(images as u64);
        memory(plan, images).client.saturating_add(results)
    };
    Some(most(|images| needed(images) <= allowed)).filter(|&images| images > 0)
}

/// Most images of a batch, up to [`MAX_BATCH`], that fit; 0 where one does not.
fn most(fits: impl Fn(usize) -> bool) -> usize {
    let (mut least, mut over) = (0, MAX_BATCH + 1);
    while over - least > 1 {
        let middle = least + (over - least) / 2;
        if fits(middle) {
            least = middle
        } else {
            over = middle
        }
    }
    least
}

/// Most images of a batch with which the server stays within `allowed` bytes: whole blocks where
/// possible.
///
/// # Errors
/// Where one image does not fit: the step that needs most, and the bytes needed.
pub fn max_batch(plan: &CheckedPlan, allowed: u64) -> Result<usize, (usize, u64)> {
    let needed = |batch: usize| memory(plan, batch).server;
    if needed(1) > allowed {
        let each = step_memories(plan, 1);
        let most = (0..each.len()).max_by_key(|&index| each[index].server);
        let most = most.unwrap_or(0);
        return Err((most, needed(1)));
    }
    let fits = most(|batch| needed(batch) <= allowed);
    let blocks = plan.steps.iter().map(|step| step.kind.as_step().block());
    let block = blocks.max().unwrap_or(1);
    Ok(if fits >= block {
        fits / block * block
    } else {
        fits
    })
}
