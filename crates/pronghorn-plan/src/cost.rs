//! Costs: bytes on the wire, multiply-adds, memory, predicted seconds.
//!
//! Each protocol counts its own ([`StepPlan::cost`](crate::step::StepPlan::cost)). Here are the
//! types, the rates behind predictions, and the sums over a plan.

use crate::checked::CheckedPlan;

/// Most images in one batch whatever the memory: more gain nothing.
pub const MAX_BATCH: usize = 16_384;

/// Bytes of the seed of `a` in a step's first message.
pub const SEED_BYTES: usize = 32;

/// Words of one message of a stream of words.
pub const WORDS_PER_MESSAGE: usize = 1 << 17;

/// Rates of one core, for predictions only. Those of products are from `pronghorn bench batch` on a
/// 3 GHz Cascade Lake with AVX-512. Those on shares fit `pronghorn bench gazelle`'s networks
/// through loopback on a 3 GHz Sapphire Rapids.
pub(crate) mod rate {
    /// Word multiply-adds a second, 32-bit words.
    pub const PRODUCT_U32: f64 = 55e9;
    /// Word multiply-adds a second, 64-bit words.
    pub const PRODUCT_U64: f64 = 20e9;
    /// Seconds to encrypt or decrypt a value, 32-bit words, with the packing of both parties.
    pub const VALUE_U32: f64 = 7e-9;
    /// The same for 64-bit words.
    pub const VALUE_U64: f64 = 40e-9;
    /// Seconds to expand one word of `a` and to add it up at the client.
    pub const PUBLIC: f64 = 2e-9;
    /// Multiply-adds a second of a word by a weight, without a product by `a`.
    pub const DIRECT_PRODUCT: f64 = 8e9;
    /// Seconds a word of a polynomial's product and inverse NTT.
    pub const TRANSFORM_WORD: f64 = 2.5e-9;
    /// Seconds to encrypt, pack, unpack, mask or decrypt a word, both parties.
    pub const SENT_WORD: f64 = 10e-9;
    /// Seconds a butterfly of a complex FFT in double precision (`pronghorn bench ngraph-he2`).
    pub const BUTTERFLY: f64 = 0.4e-9;
    /// Seconds a byte of garbled tables, both parties.
    pub const TABLE_BYTE: f64 = 1.3e-9;
    /// Seconds an oblivious transfer, both parties.
    pub const TRANSFER: f64 = 22e-9;
    /// Seconds of a round trip of a step on shares: messages, wake-ups, memory made and wiped.
    pub const ROUND: f64 = 0.35e-3;
    /// The offline part of a garbled step's seconds (`pronghorn bench activations`).
    pub const OFFLINE: f64 = 0.92;
    /// The online part of a garbled step's seconds (`pronghorn bench activations`).
    pub const ONLINE: f64 = 0.47;
}

/// Bytes that the parties hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    /// The server.
    pub server: u64,
    /// The client.
    pub client: u64,
}

impl Memory {
    /// The same bytes on either side.
    pub fn both(bytes: u64) -> Self {
        Self {
            server: bytes,
            client: bytes,
        }
    }

    fn most(self, other: Self) -> Self {
        Self {
            server: self.server.max(other.server),
            client: self.client.max(other.client),
        }
    }

    fn plus(self, other: Self) -> Self {
        Self {
            server: self.server.saturating_add(other.server),
            client: self.client.saturating_add(other.client),
        }
    }
}

/// Bytes that a step holds while it runs, beyond shares.
pub type StepMemory = Memory;

/// One part of a step's cost, for one batch.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct StepCost {
    /// Bytes from client to server, frames not counted.
    pub bytes_up: u64,
    /// Bytes from server to client, frames not counted.
    pub bytes_down: u64,
    /// Multiply-adds of a ciphertext word by a weight, on the server.
    pub multiply_adds: u64,
    /// Bytes held while it runs.
    pub memory: Memory,
    /// Messages one way and back.
    pub rounds: u32,
    /// Predicted seconds on one core, both parties' work added.
    pub seconds: f64,
}

impl StepCost {
    /// Of one step after another.
    pub(crate) fn plus(self, other: Self) -> Self {
        Self {
            bytes_up: self.bytes_up.saturating_add(other.bytes_up),
            bytes_down: self.bytes_down.saturating_add(other.bytes_down),
            multiply_adds: self.multiply_adds.saturating_add(other.multiply_adds),
            memory: self.memory.most(other.memory),
            rounds: self.rounds.saturating_add(other.rounds),
            seconds: self.seconds + other.seconds,
        }
    }

    /// With the seconds that every exchange on shares takes.
    pub(crate) fn with_waits(self) -> Self {
        Self {
            seconds: self.seconds + f64::from(self.rounds) * rate::ROUND,
            ..self
        }
    }
}

/// A step's cost for one batch.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Cost {
    /// All at once, without preparation.
    pub at_once: StepCost,
    /// Before the inputs are known. Its memory is kept until the online part.
    pub offline: StepCost,
    /// With the inputs, after the offline part.
    pub online: StepCost,
}

impl Cost {
    /// Of a step without an offline part.
    pub(crate) fn online(cost: StepCost) -> Self {
        Self {
            at_once: cost,
            offline: StepCost::default(),
            online: cost,
        }
    }
}

/// What a connection exchanges once for a step, and keeps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Once {
    /// Bytes of published polynomials, server to client, before the first batch.
    pub publication: u64,
    /// Bytes of rows of `a'` that come with the first batch, and that later batches leave out.
    pub rows: u64,
    /// Bytes of the secrets behind published polynomials, ready for use.
    pub secrets: u64,
    /// Bytes that the client's keys take while they are made, sent and kept.
    pub keys: u64,
}

impl Once {
    pub(crate) fn plus(self, other: Self) -> Self {
        Self {
            publication: self.publication.saturating_add(other.publication),
            rows: self.rows.saturating_add(other.rows),
            secrets: self.secrets.saturating_add(other.secrets),
            keys: self.keys.saturating_add(other.keys),
        }
    }
}

/// Most images that one publication of the coefficient engine serves, each under its own secret of
/// the client. The choice of moduli pays the bits of security that so many cost.
pub const PUBLICATION_IMAGES: usize = 1 << 20;

/// Images that a client counts for a connection when it names a publication; then it names one
/// again.
pub const PUBLICATION_GRANT: usize = PUBLICATION_IMAGES >> 6;

/// Most bytes of secrets behind published polynomials that a server keeps ready for a connection.
/// Others are made for each batch.
pub const MOST_SECRETS: u64 = 64 << 20;

/// Most bytes of rows of `a'` that a client keeps for later batches.
pub const MOST_PUBLISHED: u64 = 256 << 20;

/// Most blocks of `N` images, each under its own secret, that one `a` of the client and one `a'`
/// serve. Then the next batch makes new ones.
pub const PUBLISHED_BLOCKS: usize = 1 << 10;

/// Bytes each way that a connection exchanges once to set up oblivious transfers.
pub fn ot_setup(plan: &CheckedPlan) -> u64 {
    match plan.trust.shares() {
        true => 200_000,
        false => 0,
    }
}

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
    (0..plan.steps.len())
        .map(|index| step(plan, index, batch))
        .fold(StepCost::default(), StepCost::plus)
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
    let steps = (0..plan.steps.len()).map(|index| StepCost {
        memory: step_memory(plan, index, batch),
        ..plan.cost(index, batch).online
    });
    steps.fold(StepCost::default(), StepCost::plus)
}

/// Bytes that step `index` holds for a batch: its protocol's, and the shares that it reads and
/// makes.
fn step_memory(plan: &CheckedPlan, index: usize, batch: usize) -> Memory {
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
    let steps = (0..plan.steps.len())
        .map(|index| step_memory(plan, index, batch))
        .fold(Memory::default(), Memory::most);
    Memory {
        server: steps.server + plan.once().secrets.min(MOST_SECRETS),
        ..steps
    }
}

/// Bytes that a client's keys take while they are made and sent, and what it keeps for all batches.
fn key_memory(plan: &CheckedPlan) -> u64 {
    let once = plan.once();
    [published(plan), once.secrets, 2 * plan.slot_key_bytes()]
        .into_iter()
        .fold(once.keys, u64::saturating_add)
}

/// Most images of a client's batch whose shares and results stay within `allowed` bytes; `None`
/// where one image does not. A client asks this before it follows the plan of a server.
pub fn client_batch(plan: &CheckedPlan, allowed: u64) -> Option<usize> {
    let result = 8 * plan.output_len().max(plan.result().len()) as u64;
    let image = memory(plan, 1).client.saturating_add(result);
    usize::try_from(allowed.checked_sub(key_memory(plan))? / image.max(1))
        .ok()
        .filter(|&images| images > 0)
}

/// Most images of a batch with which the server stays within `allowed` bytes: whole blocks where
/// possible.
///
/// # Errors
/// Where one image does not fit: the step that needs most, and the bytes needed.
pub fn max_batch(plan: &CheckedPlan, allowed: u64) -> Result<usize, (usize, u64)> {
    let needed = |batch: usize| memory(plan, batch).server;
    if needed(1) > allowed {
        let most = (0..plan.steps.len())
            .max_by_key(|&index| step_memory(plan, index, 1).server)
            .unwrap_or(0);
        return Err((most, needed(1)));
    }
    let (mut fits, mut over) = (1, MAX_BATCH + 1);
    while over - fits > 1 {
        let middle = fits + (over - fits) / 2;
        if needed(middle) <= allowed {
            fits = middle
        } else {
            over = middle
        }
    }
    let blocks = plan.steps.iter().map(|step| step.kind.as_step().block());
    let block = blocks.max().unwrap_or(1);
    Ok(if fits >= block {
        fits / block * block
    } else {
        fits
    })
}
