//! What a step costs: words on the wire, multiply-adds, memory, predicted seconds.

use pronghorn_mpc::ot::{OtParameters, extension};
use pronghorn_ring::bits::packed_len;

use crate::{
    coefficient::Layout,
    garbled,
    held::{self, Held},
    plan::{Engine, LinearPlan, Plan, Protocol, Step, StepKind, WordSize},
    slots,
    trust::TrustLevel,
};

/// Most images in one batch whatever the memory: more bring nothing, the share of `a` is gone by then.
pub const MAX_BATCH: usize = 16_384;

/// Bytes of the seed of `a` in a step's first message.
pub const SEED_BYTES: usize = 32;

/// Rates of one core from `pronghorn bench batch` on a 3 GHz Cascade Lake with AVX-512, used for
/// predictions only.
mod rate {
    /// Word multiply-adds a second, 32-bit words.
    pub const PRODUCT_U32: f64 = 55e9;
    /// Word multiply-adds a second, 64-bit words.
    pub const PRODUCT_U64: f64 = 20e9;
    /// Seconds to encrypt a value or decrypt one, 32-bit words, both sides' packing included.
    pub const VALUE_U32: f64 = 7e-9;
    /// The same for 64-bit words.
    pub const VALUE_U64: f64 = 40e-9;
    /// Seconds to expand one word of `a` and to add it up at the client.
    pub const PUBLIC: f64 = 2e-9;
    /// Multiply-adds a second of a word by a weight, without a product by `a`.
    pub const DIRECT_PRODUCT: f64 = 8e9;
    /// Seconds a word of a polynomial's product and inverse NTT, with what it is made from.
    pub const TRANSFORM_WORD: f64 = 2.5e-9;
    /// Seconds to encrypt, pack, unpack, mask or decrypt a word, both parties.
    pub const SENT_WORD: f64 = 10e-9;
    /// Seconds a butterfly of a complex FFT in double precision (`pronghorn bench ngraph-he2`, encoding).
    pub const BUTTERFLY: f64 = 0.4e-9;
    /// Seconds a byte of garbled tables, both parties: this and the next two fit `pronghorn bench gazelle`'s networks at once, through loopback on a 3 GHz Sapphire
    /// Rapids.
    pub const TABLE_BYTE: f64 = 1.3e-9;
    /// Seconds an oblivious transfer, both parties.
    pub const TRANSFER: f64 = 22e-9;
    /// Seconds that a step on shares takes however small it is: messages, wake-ups, rooms made and wiped.
    pub const ROUND: f64 = 0.35e-3;
}

/// Bytes that the parties hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    /// The server.
    pub server: u64,
    /// The client: its shares.
    pub client: u64,
}

impl Memory {
    fn most(self, other: Self) -> Self {
        Self {
            server: self.server.max(other.server),
            client: self.client.max(other.client),
        }
    }
}

/// What one step costs for one batch.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct StepCost {
    /// Bytes from client to server, frames not counted.
    pub bytes_up: u64,
    /// Bytes from server to client, frames not counted; those that are [`published`] among them.
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
    fn plus(self, other: Self) -> Self {
        Self {
            bytes_up: self.bytes_up + other.bytes_up,
            bytes_down: self.bytes_down + other.bytes_down,
            multiply_adds: self.multiply_adds.saturating_add(other.multiply_adds),
            memory: self.memory.most(other.memory),
            rounds: self.rounds + other.rounds,
            seconds: self.seconds + other.seconds,
        }
    }
}

impl LinearPlan {
    /// Bytes of one element's `b` for a batch, client to server.
    pub fn request_row_bytes(&self, batch: usize) -> usize {
        packed_len(batch, self.modulus_bits())
    }

    /// Bytes of the public key of a batch, where answers are re-randomised: whole blocks of `b`.
    pub fn public_key_bytes(&self, batch: usize) -> usize {
        if self.shares.is_none() {
            return 0;
        }
        packed_len(
            batch.div_ceil(self.degree) * self.degree,
            self.modulus_bits(),
        )
    }

    /// Bytes of one part of an element's answer for a batch: `a` and `b` without their dropped bits.
    pub fn answer_part_bytes(&self, batch: usize) -> usize {
        packed_len(self.degree, self.answer_bits_a()) + packed_len(batch, self.answer_bits())
    }

    /// Bytes of one element's `a'`, all parts: no batch changes them.
    pub fn published_row_bytes(&self) -> usize {
        self.parts.len() * packed_len(self.degree, self.answer_bits_a())
    }

    /// Bytes of one element's answer for a batch, all parts.
    pub fn answer_row_bytes(&self, batch: usize) -> usize {
        self.parts.len() * self.answer_part_bytes(batch)
    }

    /// Bytes of a ciphertext word in memory.
    fn word_bytes(&self) -> u64 {
        match self.word {
            WordSize::U32 => 4,
            WordSize::U64 => 8,
        }
    }
}

impl LinearPlan {
    /// Words that a client sends for a batch in the coefficient engine: for each image a polynomial that answers are hidden with, and what is read.
    pub fn coefficient_request(&self, layout: &Layout, batch: usize) -> usize {
        batch.saturating_mul(layout.words().saturating_add(self.degree))
    }

    /// Bytes of one published polynomial.
    pub fn published_polynomial_bytes(&self) -> usize {
        packed_len(self.degree, self.answer_bits_a())
    }
}

/// Words of one message of a stream of words.
pub const WORDS_PER_MESSAGE: usize = 1 << 17;

/// Bytes of so many words of `width` bits in messages of [`WORDS_PER_MESSAGE`].
pub fn stream_bytes(words: usize, width: u32) -> u64 {
    let whole = (words / WORDS_PER_MESSAGE) as u64 * packed_len(WORDS_PER_MESSAGE, width) as u64;
    whole + packed_len(words % WORDS_PER_MESSAGE, width) as u64
}

/// Most images that one publication of the coefficient engine serves, each under a secret of its own; then there is a new one. What so many
/// cost of security is in the choice of moduli.
pub const PUBLICATION_IMAGES: usize = 1 << 20;

/// Images that a client counts for a connection when it names a publication; then it names one again.
pub const PUBLICATION_GRANT: usize = PUBLICATION_IMAGES >> 6;

/// Bytes of the polynomials that the server publishes to a client before its first batch, once for all its connections.
pub fn publication(plan: &Plan) -> u64 {
    let bytes = |(_, _, linear): (usize, &Step, &LinearPlan)| {
        let published = linear.layout().map_or(0, |layout| layout.published());
        (published as u64).saturating_mul(linear.published_polynomial_bytes() as u64)
    };
    plan.linear_steps().map(bytes).fold(0, u64::saturating_add)
}

/// Most bytes of the secrets behind published polynomials that a server keeps for a connection, ready for use; others are made for each batch.
pub const MOST_SECRETS: u64 = 64 << 20;

/// Bytes of published polynomials in memory, ready for use; the secrets behind them take as many.
fn publication_memory(plan: &Plan) -> u64 {
    let bytes = |(_, _, linear): (usize, &Step, &LinearPlan)| {
        let published = linear.layout().map_or(0, |layout| layout.published());
        (published as u64).saturating_mul(linear.degree as u64 * linear.word_bytes())
    };
    plan.linear_steps().map(bytes).fold(0, u64::saturating_add)
}

/// Most bytes of rows of `a'` that a client keeps for the batches to come.
pub const MOST_PUBLISHED: u64 = 256 << 20;

/// Most blocks of `N` images, each under a secret of its own, that one `a` of the client and one `a'` serve; then the next batch makes new
/// ones. What so many cost of security is in the choice of moduli.
pub const PUBLISHED_BLOCKS: usize = 1 << 10;

/// Bytes that the server sends with the first batch of a connection and the client keeps for the others: the rows of `a'` of all linear
/// steps on shares in the batch engine. None where they are too many, and then come with each batch.
pub fn published(plan: &Plan) -> u64 {
    if plan.trust != TrustLevel::TwoParty {
        return 0;
    }
    let rows = |(_, step, linear): (usize, &Step, &LinearPlan)| match linear.engine {
        Engine::Coefficient | Engine::Slot => 0,
        Engine::Batch => {
            (step.value.len() as u64).saturating_mul(linear.published_row_bytes() as u64)
        }
    };
    let bytes = plan.linear_steps().map(rows).fold(0, u64::saturating_add);
    if bytes <= MOST_PUBLISHED { bytes } else { 0 }
}

/// What a client-aided plan would take with values in the slots of CKKS, two in each by complex packing (nGraph-HE2, section 4.3), in place of
/// coefficients. Both forms hold `N` values in a polynomial of degree `N`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SlotForm {
    /// Bits of the largest modulus.
    pub modulus_bits: u32,
    /// Bytes both ways, as a multiple of those of the form taken.
    pub bytes: f64,
    /// Predicted seconds on one core, both parties added, as a multiple of those of the form taken.
    pub seconds: f64,
}

/// The other form of a client-aided plan, for a batch: a slot is a sum of `N` coefficients with factors of absolute value 1, so its noise is
/// `sqrt(N)` times theirs and the modulus half of `log2 N` bits wider; each row takes an FFT at the client, in and out. None where there are no
/// linear steps whose values the client sees.
pub fn slot_form(plan: &Plan, batch: usize) -> Option<SlotForm> {
    if plan.trust != TrustLevel::ClientAided {
        return None;
    }
    let (mut bits, mut bytes, mut seconds) = (0, [0f64; 2], [0f64; 2]);
    for (index, taken, linear) in plan.linear_steps() {
        let cost = step(plan, index, batch);
        let (now, wide) = (linear.modulus_bits(), slot_bits(linear));
        bits = bits.max(wide);
        let both = (cost.bytes_up + cost.bytes_down) as f64;
        bytes[0] += both;
        bytes[1] += both * f64::from(wide) / f64::from(now);
        let rows = taken.value.len() * linear.parts.len() + plan.steps[taken.inputs[0]].value.len();
        let blocks = (rows * batch.div_ceil(linear.degree)) as f64;
        let fft = linear.degree as f64 * f64::from(linear.degree.ilog2()) * rate::BUTTERFLY;
        // Beyond 31 bits words have 64.
        let words = if now <= 31 && wide > 31 {
            rate::PRODUCT_U32 / rate::PRODUCT_U64
        } else {
            1.0
        };
        seconds[0] += cost.seconds;
        seconds[1] += cost.seconds * words + blocks * fft;
    }
    (bits > 0).then(|| SlotForm {
        modulus_bits: bits,
        bytes: bytes[1] / bytes[0],
        seconds: seconds[1] / seconds[0],
    })
}

fn slot_bits(linear: &LinearPlan) -> u32 {
    linear.modulus_bits() + linear.degree.ilog2().div_ceil(2) + 1
}

/// The cost of step `index` for a batch.
pub fn step(plan: &Plan, index: usize, batch: usize) -> StepCost {
    let cost = work(plan, index, batch);
    let waits = match plan.trust {
        TrustLevel::TwoParty => f64::from(cost.rounds) * rate::ROUND,
        _ => 0.0,
    };
    StepCost {
        seconds: cost.seconds + waits,
        ..cost
    }
}

/// [`step`] without what every exchange takes.
fn work(plan: &Plan, index: usize, batch: usize) -> StepCost {
    let step = &plan.steps[index];
    let values = |step: &Step| step.value.len() as u64;
    let memory = step_memory(plan, index, batch);
    let linear = match &step.kind {
        StepKind::Linear(linear) => linear,
        StepKind::Slots(slots) => {
            return StepCost {
                memory,
                ..slots.cost(batch)
            };
        }
        StepKind::Encrypted(encrypted) => {
            let inputs = values(&plan.steps[step.inputs[0]]);
            return StepCost {
                memory,
                bytes_up: (2 * SEED_BYTES + encrypted.public_key_bytes()) as u64
                    + encrypted.evaluation_key_bytes() as u64
                    + inputs * encrypted.request_row_bytes() as u64,
                bytes_down: values(step) * encrypted.answer_row_bytes() as u64,
                rounds: 1,
                seconds: encrypted.server_seconds,
                ..StepCost::default()
            };
        }
        StepKind::Input | StepKind::Local(_) => {
            return StepCost {
                memory,
                ..StepCost::default()
            };
        }
        StepKind::Activation(_) | StepKind::Open => {
            return StepCost {
                memory,
                ..on_shares(plan, index, batch)
            };
        }
    };
    if let Some(layout) = linear.layout() {
        return StepCost {
            memory,
            ..coefficient(linear, &layout, step.value.len(), batch)
        };
    }
    let answers = values(step) * linear.parts.len() as u64;
    let inputs = values(&plan.steps[step.inputs[0]]);
    let columns = (linear.degree + batch) as u64;
    let (product, value) = match linear.word {
        WordSize::U32 => (rate::PRODUCT_U32, rate::VALUE_U32),
        WordSize::U64 => (rate::PRODUCT_U64, rate::VALUE_U64),
    };
    let multiply_adds = linear
        .geometry
        .multiply_adds()
        .saturating_mul(columns * linear.parts.len() as u64);
    let seconds = multiply_adds as f64 / product
        + (inputs + answers) as f64 * (batch as f64 * value + linear.degree as f64 * rate::PUBLIC);
    StepCost {
        bytes_up: SEED_BYTES as u64
            + inputs * linear.request_row_bytes(batch) as u64
            + linear.public_key_bytes(batch) as u64,
        bytes_down: answers * linear.answer_part_bytes(batch) as u64,
        multiply_adds,
        memory,
        rounds: 1,
        seconds,
    }
}

/// A linear step in the coefficient engine, what is published not counted.
fn coefficient(linear: &LinearPlan, layout: &Layout, outputs: usize, batch: usize) -> StepCost {
    let words = linear.coefficient_request(layout, batch);
    let answers = batch * outputs;
    let multiply_adds = linear.geometry.multiply_adds().saturating_mul(batch as u64);
    // Of an image, one polynomial hides its answers; of a published one, both parties make a product.
    let polynomials = 1 + layout.tiles() * layout.polynomials() + 2 * layout.published();
    let transforms = (batch * polynomials * linear.degree) as f64 * rate::TRANSFORM_WORD;
    StepCost {
        bytes_up: stream_bytes(words, linear.modulus_bits()),
        bytes_down: stream_bytes(answers, linear.answer_bits()),
        multiply_adds,
        rounds: 1,
        seconds: multiply_adds as f64 / rate::DIRECT_PRODUCT
            + transforms
            + (words + answers) as f64 * rate::SENT_WORD,
        ..StepCost::default()
    }
}

/// What a plan is chosen for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Objective {
    /// Images a second, of full batches.
    Throughput,
    /// Seconds of one image, on a network of [`LATENCY_NETWORK`].
    #[default]
    Latency,
    /// Bytes of one image.
    Traffic,
}

/// Bits a second and seconds a round of the network that [`Objective::Latency`] is about: 1 Gbit/s and 1 ms.
pub const LATENCY_NETWORK: (f64, f64) = (1e9, 1e-3);

/// Images over which bytes that come once for a client and model are spread.
const ONCE_FOR: f64 = 100.0;

/// Images of a batch that throughput is judged by, at most.
const THROUGHPUT_BATCH: usize = 2048;

impl Objective {
    /// Engines that may be better than the coefficient engine.
    pub(crate) fn engines(self) -> &'static [Engine] {
        match self {
            Self::Throughput => &[Engine::Batch],
            Self::Latency | Self::Traffic => &[Engine::Slot],
        }
    }

    /// What is to be least.
    pub fn of(self, plan: &Plan) -> f64 {
        if self == Self::Throughput {
            let batch = plan.max_batch.min(THROUGHPUT_BATCH);
            return total(plan, batch).seconds / batch as f64;
        }
        let once = publication(plan) + published(plan) + slots::key_bytes(plan);
        self.of_one(&total(plan, 1), once as f64 / ONCE_FOR)
    }

    /// For one image.
    fn of_one(self, one: &StepCost, once: f64) -> f64 {
        let bytes = (one.bytes_up + one.bytes_down) as f64 + once;
        match self {
            Self::Traffic => bytes,
            Self::Latency | Self::Throughput => {
                let (bandwidth, round) = LATENCY_NETWORK;
                one.seconds + 8.0 * bytes / bandwidth + f64::from(one.rounds) * round
            }
        }
    }

    /// Less than a plan takes that has other engines in place of a plan's linear steps: with slots, no less than the ciphertexts that hold the values, and no
    /// time at all. Costs less to say than such a plan does to make.
    pub(crate) fn bound(self, plan: &Plan, engine: Engine) -> f64 {
        if engine != Engine::Slot || self == Self::Throughput {
            return 0.0;
        }
        let mut one = StepCost::default();
        for (index, of) in plan.steps.iter().enumerate() {
            let cost = match &of.kind {
                StepKind::Linear(_) => {
                    let values = plan.steps[of.inputs[0]].value.len();
                    let [up, down] = slots::least_bytes(values, of.value.len());
                    StepCost {
                        bytes_up: up,
                        bytes_down: down,
                        rounds: 1,
                        ..StepCost::default()
                    }
                }
                _ => step(plan, index, 1),
            };
            one = one.plus(cost);
        }
        self.of_one(&one, 0.0)
    }
}

/// What step `index` holds for a batch. Needs no circuits, which cost far more to make than to count with.
fn step_memory(plan: &Plan, index: usize, batch: usize) -> Memory {
    let step = &plan.steps[index];
    let values = |step: &Step| step.value.len() as u64;
    let inputs: u64 = step
        .inputs
        .iter()
        .map(|&input| values(&plan.steps[input]))
        .sum();
    let client = 4 * (inputs + values(step)) * batch as u64;
    let shares = match plan.trust {
        TrustLevel::TwoParty => client,
        _ => 0,
    };
    let server = match &step.kind {
        StepKind::Slots(slots) => {
            let bytes = 8 * slots.words(batch);
            return Memory {
                server: bytes + shares,
                client: bytes + client,
            };
        }
        StepKind::Linear(linear) if linear.engine == Engine::Coefficient => {
            let words = linear
                .layout()
                .map_or(0, |layout| linear.coefficient_request(&layout, batch));
            let words = (words as u64).saturating_add(2 * values(step) * batch as u64);
            let bytes = words.saturating_mul(linear.word_bytes());
            return Memory {
                server: bytes + shares,
                client: bytes + client,
            };
        }
        StepKind::Linear(linear) => {
            let answers = values(step) * linear.parts.len() as u64;
            server_words(inputs, answers, linear.degree as u64, batch as u64) * linear.word_bytes()
        }
        StepKind::Encrypted(encrypted) => encrypted.server_memory,
        _ => 0,
    };
    Memory {
        server: server + shares,
        client,
    }
}

/// What each party holds at most while a batch runs.
pub fn memory(plan: &Plan, batch: usize) -> Memory {
    let steps = (0..plan.steps.len())
        .map(|index| step_memory(plan, index, batch))
        .fold(Memory::default(), Memory::most);
    Memory {
        server: steps.server + publication_memory(plan).min(MOST_SECRETS),
        ..steps
    }
}

/// Messages, work and rounds of an activation or an opening on shares; those of a client that has the values cost nothing here.
fn on_shares(plan: &Plan, index: usize, batch: usize) -> StepCost {
    let held = held::held(plan);
    let (step, of) = (&plan.steps[index], held[index]);
    let values = step.value.len() * batch;
    let input = step.inputs.first().map_or(of, |&input| held[input]);
    match &step.kind {
        StepKind::Activation(activation) if activation.protocol == Protocol::Reveal => {
            StepCost::default()
        }
        StepKind::Activation(activation) if activation.protocol == Protocol::Product => {
            // A bit of one factor, an OT; what bit i brings has i + 1 bits less.
            let bits = of.bits as usize;
            let ots = values * (bits - 1);
            StepCost {
                bytes_up: ot_bytes(ots),
                bytes_down: (values * bits * (bits - 1) / 2).div_ceil(8) as u64,
                rounds: 1,
                seconds: ots as f64 * rate::TRANSFER,
                ..StepCost::default()
            }
        }
        StepKind::Open if !garbled::opens(&input) => StepCost {
            bytes_down: packed_len(values, of.bits) as u64,
            rounds: 1,
            ..StepCost::default()
        },
        _ => garbled_cost(plan, index, batch, &held),
    }
}

/// The same of a garbled step.
fn garbled_cost(plan: &Plan, index: usize, batch: usize, held: &[Held]) -> StepCost {
    let circuits = garbled::circuits(plan, index, held).unwrap_or_default();
    let (mut tables, mut labels) = (0u64, 0usize);
    for (group, circuit) in &circuits {
        let instances = group.elements.len() * batch;
        tables += circuit.table_bytes(instances) as u64;
        labels += circuit.labelled_bits() * instances;
    }
    StepCost {
        bytes_up: ot_bytes(labels),
        bytes_down: tables,
        rounds: 1,
        seconds: tables as f64 * rate::TABLE_BYTE + labels as f64 * rate::TRANSFER,
        ..StepCost::default()
    }
}

/// Bytes of so many correlated OTs.
fn ot_bytes(count: usize) -> u64 {
    extension::message_bytes(count, OtParameters::default().width()) as u64
}

/// Words the server holds at most: first the rows of `a` and of `a'`, then `a'` with the rows of `b` and `b'`.
fn server_words(inputs: u64, outputs: u64, degree: u64, batch: u64) -> u64 {
    ((inputs + outputs) * degree).max(outputs * degree + (inputs + outputs) * batch)
}

/// The sum over all steps; memory is the largest.
pub fn total(plan: &Plan, batch: usize) -> StepCost {
    (0..plan.steps.len())
        .map(|index| step(plan, index, batch))
        .fold(StepCost::default(), StepCost::plus)
}

/// What the preparation of a batch costs: messages, and the bytes that each party then keeps.
pub fn prepared(plan: &Plan, batch: usize) -> StepCost {
    let activation = |index: &usize| matches!(plan.steps[*index].kind, StepKind::Activation(_));
    // The extension sends `128 / width` bits for an OT, which is a block at either party.
    let (mut sum, width) = (StepCost::default(), OtParameters::default().width() as u64);
    for index in (0..plan.steps.len()).filter(activation) {
        let cost = on_shares(plan, index, batch);
        let blocks = cost.bytes_up.saturating_mul(width);
        sum.bytes_up = sum.bytes_up.saturating_add(cost.bytes_up);
        sum.bytes_down = sum.bytes_down.saturating_add(cost.bytes_down);
        let Memory { server, client } = &mut sum.memory;
        *client = client.saturating_add(blocks + cost.bytes_down);
        *server = server.saturating_add(blocks);
        sum.seconds += cost.seconds;
    }
    let words: u64 = plan
        .steps
        .iter()
        .map(|step| 4 * step.value.len() as u64)
        .sum();
    let words = words.saturating_mul(batch as u64);
    sum.memory.server = sum.memory.server.saturating_add(words);
    sum
}

/// Bytes that a client's keys take while they are made and sent, and what it keeps for all batches.
fn key_memory(plan: &Plan) -> u64 {
    let of = |step: &Step| match &step.kind {
        StepKind::Encrypted(encrypted) => encrypted.key_memory(),
        _ => 0,
    };
    let keys = plan.steps.iter().map(of).fold(0, u64::saturating_add);
    keys.saturating_add(published(plan))
        .saturating_add(publication_memory(plan))
        .saturating_add(2 * slots::key_bytes(plan))
}

/// Most images a client's batch may have so that its shares and results stay within `allowed` bytes; none where not
/// even one image does. What a client asks before it follows a plan from a server it does not trust.
pub fn client_batch(plan: &Plan, allowed: u64) -> Option<usize> {
    let result = 8 * plan.output_len().max(plan.result().len()) as u64;
    let image = memory(plan, 1).client.saturating_add(result);
    usize::try_from(allowed.checked_sub(key_memory(plan))? / image.max(1))
        .ok()
        .filter(|&images| images > 0)
}

/// Most images a batch may have so that the server stays within `allowed` bytes: whole blocks where
/// possible. The step and its bytes for one image, when not even that fits.
pub fn max_batch(plan: &Plan, allowed: u64) -> Result<usize, (usize, u64)> {
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
    let block = plan
        .linear_steps()
        .filter(|(_, _, linear)| linear.engine == Engine::Batch)
        .map(|(_, _, linear)| linear.degree)
        .max()
        .unwrap_or(1);
    Ok(if fits >= block {
        fits / block * block
    } else {
        fits
    })
}
