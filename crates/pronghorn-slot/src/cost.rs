//! Costs of variants, from sizes alone, and the choice among them.

pub(crate) mod choice;

use std::collections::BTreeSet;

use pronghorn_graph::geometry::ConvGeometry;
use pronghorn_he::bfv::{Answer, AnswerFormat, Parameters, Workload};

pub use choice::{Choice, DEGREES, choose, choose_modulo, common_modulus, parameters};

use super::{
    SlotError,
    layout::{Chain, Layout, Variant},
};

/// Operations of one evaluation.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Counts {
    /// Input ciphertexts.
    pub inputs: usize,
    /// Output ciphertexts.
    pub outputs: usize,
    /// Inputs that are rotated before products: their digits are raised once each.
    pub hoistings: usize,
    /// Rotations of inputs.
    pub input_rotations: usize,
    /// Rotations and swaps of sums, each with a raising of its own.
    pub output_rotations: usize,
    /// Products with plaintexts.
    pub products: usize,
    /// Sums of products.
    pub sums: usize,
    /// Additions of ciphertexts, those within sums of products included.
    pub additions: usize,
    /// Rotations to the left that need keys, in `1 .. N / 2`.
    pub steps: BTreeSet<i64>,
    /// True if the swap of rows needs a key.
    pub swaps: bool,
}

/// The most that happens to one output.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Depth {
    products: usize,
    input_rotations: bool,
    output_rotations: usize,
    doublings: u32,
}

impl Counts {
    pub(super) fn of(layout: &Layout, chains: &[Chain]) -> Self {
        let mut band = Self::default();
        let mut rotations = Vec::new();
        for chain in chains {
            for product in chain.sums.iter().flatten().flat_map(|sum| &sum.products) {
                rotations.push((product.input, product.step));
            }
            band.chain(layout, chain);
        }
        rotations.sort_unstable();
        rotations.dedup();
        band.rotate_inputs(&rotations);
        let bands = layout.bands.len();
        Self {
            inputs: bands * layout.inputs,
            outputs: bands * layout.outputs,
            hoistings: bands * band.hoistings,
            input_rotations: bands * band.input_rotations,
            output_rotations: bands * band.output_rotations,
            products: bands * band.products,
            sums: bands * band.sums,
            additions: bands * band.additions,
            ..band
        }
    }

    fn chain(&mut self, layout: &Layout, chain: &Chain) {
        let row = layout.row as i64;
        let mut parts = 0;
        for (swapped, sums) in chain.sums.iter().enumerate() {
            sums.iter().for_each(|sum| self.sum(sum.products.len()));
            let giants: Vec<i64> = sums.iter().map(|sum| sum.giant).collect();
            let steps = giants.windows(2).map(|pair| pair[1] - pair[0]);
            let last = giants.first().map(|first| first - chain.base);
            for step in steps.chain(last).map(|step| step.rem_euclid(row)) {
                if step > 0 {
                    self.rotate_output(step);
                }
            }
            self.additions += giants.len().saturating_sub(1);
            parts += usize::from(!giants.is_empty());
            if swapped == 1 && !giants.is_empty() {
                self.swap();
            }
        }
        self.additions += usize::from(parts == 2);
        let (folds, swap) = layout.folds();
        for step in folds {
            self.rotate_output(step);
            self.additions += 1;
        }
        if swap {
            self.swap();
            self.additions += 1;
        }
    }

    pub(super) fn sum(&mut self, products: usize) {
        self.products += products;
        self.sums += 1;
        self.additions += products.saturating_sub(1);
    }

    /// All rotations of inputs of a band, ascending.
    pub(super) fn rotate_inputs(&mut self, rotations: &[(usize, i64)]) {
        let moved: Vec<_> = rotations.iter().filter(|&&(_, step)| step > 0).collect();
        let inputs: BTreeSet<usize> = moved.iter().map(|&&(input, _)| input).collect();
        self.hoistings += inputs.len();
        self.input_rotations += moved.len();
        self.steps.extend(moved.iter().map(|&&(_, step)| step));
    }

    pub(super) fn rotate_output(&mut self, step: i64) {
        self.output_rotations += 1;
        self.steps.insert(step);
    }

    pub(super) fn swap(&mut self) {
        self.output_rotations += 1;
        self.swaps = true;
    }

    /// Those of another part of the same evaluation.
    pub(super) fn add(&mut self, other: &Self) {
        self.hoistings += other.hoistings;
        self.input_rotations += other.input_rotations;
        self.output_rotations += other.output_rotations;
        self.products += other.products;
        self.sums += other.sums;
        self.additions += other.additions;
        self.steps.extend(&other.steps);
        self.swaps |= other.swaps;
    }
}

impl Depth {
    pub(super) fn of(layout: &Layout, chains: &[Chain]) -> Self {
        let products = |chain: &Chain| -> usize {
            let sums = chain.sums.iter().flatten();
            sums.map(|sum| sum.products.len()).sum()
        };
        let rotations = |chain: &Chain| {
            let mut counts = Counts::default();
            counts.chain(layout, chain);
            counts.output_rotations
        };
        let (folds, swap) = layout.folds();
        let doublings = folds.len() + usize::from(swap);
        let every = || chains.iter().flat_map(|chain| chain.sums.iter().flatten());
        let mut moved = every().flat_map(|sum| &sum.products);
        Self {
            products: chains.iter().map(products).max().unwrap_or(0).max(1),
            input_rotations: moved.any(|product| product.step != 0),
            output_rotations: chains.iter().map(rotations).max().unwrap_or(0) - doublings,
            doublings: doublings as u32,
        }
    }

    pub(super) fn workload(&self, t_bits: u32) -> Workload {
        Workload {
            t_bits,
            products: self.products,
            input_rotations: self.input_rotations,
            output_rotations: self.output_rotations,
            doublings: self.doublings,
        }
    }
}

/// Nanoseconds on one core of what operations are made of. From
/// `cargo run --release -p pronghorn-bench --example bfv_bench` on a Xeon with AVX-512 IFMA at 2.6
/// GHz; other machines are slower or faster at all of them, and the choice is about their
/// proportions.
mod rates {
    /// Of a transform of `N` words, each of `N log2 N`.
    pub const TRANSFORM: f64 = 0.085;
    /// Of a word of a switching key: it comes from memory.
    pub const KEY: f64 = 0.7;
    /// Of a word of a product with a plaintext that comes from memory.
    pub const PRODUCT: f64 = 0.55;
    /// Of a word added.
    pub const ADD: f64 = 0.2;
    /// Of a word of an answer that is hidden, transforms included.
    pub const HIDE: f64 = 24.0;
    /// Of a word that is encrypted, encoding included.
    pub const ENCRYPT: f64 = 8.0;
    /// Of a word whose `a` comes from its seed.
    pub const EXPAND: f64 = 1.5;
    /// Of a coefficient of an answer that is decrypted.
    pub const DECRYPT: f64 = 10.0;
    /// Of a multiplication in the transforms of shares.
    pub const SHARE: f64 = 0.5;
}

/// The objective: time, with bytes in terms of time.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Objective {
    /// Nanoseconds a byte that is sent takes.
    pub byte: f64,
    /// The same for bytes of keys, which are sent once and serve many inputs.
    pub key_byte: f64,
}

impl Default for Objective {
    /// A network of 1 Gbit/s, and keys that serve a hundred inputs.
    fn default() -> Self {
        Self {
            byte: 8.0,
            key_byte: 0.08,
        }
    }
}

/// The cost of a layer.
#[derive(Clone, PartialEq, Debug)]
pub struct Cost {
    /// Operations.
    pub counts: Counts,
    /// Bytes of the inputs.
    pub up: usize,
    /// Bytes of the answers.
    pub down: usize,
    /// Bytes of the keys for its rotations, which other layers may share.
    pub keys: usize,
    /// Predicted microseconds of the evaluation on one core.
    pub evaluate: f64,
    /// Of all the server does: expansion of the inputs, hiding, shares.
    pub server: f64,
    /// Of all the client does: encoding, encryption, decryption, shares.
    pub client: f64,
}

impl Cost {
    fn of(
        layout: &Layout,
        counts: Counts,
        parameters: &Parameters<u64>,
        format: &AnswerFormat,
    ) -> Self {
        let sizes = Sizes::of(parameters);
        let micro = |nanoseconds: f64| nanoseconds / 1000.0;
        let shares = rates::SHARE * transforms(layout) as f64;
        let evaluate = sizes.evaluate(&counts);
        let words = (parameters.limbs() * parameters.n()) as f64;
        let (inputs, outputs) = (counts.inputs as f64, counts.outputs as f64);
        let server = outputs * words * rates::HIDE + 2.0 * inputs * words * rates::EXPAND / 2.0;
        let decrypt = (format.limbs * parameters.n()) as f64 * rates::DECRYPT;
        let client = inputs * words * rates::ENCRYPT + outputs * decrypt;
        Self {
            up: counts.inputs * sizes.seeded,
            down: counts.outputs * Answer::encoded_len(parameters, format),
            keys: (counts.steps.len() + usize::from(counts.swaps)) * sizes.key,
            evaluate: micro(evaluate),
            server: micro(evaluate + server + shares),
            client: micro(client + shares),
            counts,
        }
    }

    /// Nanoseconds, bytes included.
    pub fn total(&self, objective: &Objective) -> f64 {
        1000.0 * (self.server + self.client)
            + objective.byte * (self.up + self.down) as f64
            + objective.key_byte * self.keys as f64
    }
}

/// Multiplications of both transforms of shares.
fn transforms(layout: &Layout) -> usize {
    let geometry = &layout.geometry;
    let [down, across] = layout.axes.each_ref().map(|axis| axis.transform());
    let (height, width) = (layout.axes[0].positions, layout.axes[1].positions);
    let inputs = layout.virtual_channels() * height * (down * geometry.input[1] + across * width);
    let outputs = geometry.out_channels * layout.output[0] * width * down
        + geometry.out_channels * layout.output[0] * layout.output[1] * across;
    inputs + outputs
}

/// Sizes that costs follow from.
struct Sizes {
    n: f64,
    limbs: f64,
    special: f64,
    digits: f64,
    transform: f64,
    seeded: usize,
    key: usize,
}

impl Sizes {
    fn of(parameters: &Parameters<u64>) -> Self {
        let (ring, n, limbs) = (parameters.ring(), parameters.n(), parameters.limbs());
        let special = ring.special_limbs();
        let bits: Vec<usize> = ring.basis().primes().map(|q| q.bits() as usize).collect();
        let digits = match parameters.digit_bits() {
            Some(width) => bits.iter().map(|bits| bits.div_ceil(width as usize)).sum(),
            None if special > 0 => limbs.div_ceil(special),
            None => 0,
        };
        let packed = |bits: &[usize]| bits.iter().map(|bits| bits * n / 8).sum::<usize>();
        Self {
            n: n as f64,
            limbs: limbs as f64,
            special: special as f64,
            digits: digits as f64,
            transform: rates::TRANSFORM * n as f64 * f64::from(n.ilog2()),
            seeded: 2 + 32 + 32 + 8 + packed(&bits[..limbs]),
            key: digits * packed(&bits),
        }
    }

    /// Nanoseconds.
    fn evaluate(&self, counts: &Counts) -> f64 {
        let all = self.limbs + self.special;
        let raise = self.transform * (self.limbs + self.digits * all);
        let switch = rates::KEY * 2.0 * self.digits * all * self.n;
        let divide = match self.special {
            0.0 => 0.0,
            special => self.transform * 2.0 * (self.limbs + special),
        };
        let limbs = if counts.hoistings > 0 {
            all
        } else {
            self.limbs
        };
        let word = 2.0 * self.n;
        let ahead = counts.hoistings as f64 * raise + counts.input_rotations as f64 * switch;
        let divisions = match counts.hoistings {
            0 => 0.0,
            _ => counts.sums as f64 * divide,
        };
        ahead
            + divisions
            + counts.products as f64 * rates::PRODUCT * word * limbs
            + counts.additions.saturating_sub(counts.products) as f64
                * rates::ADD
                * word
                * self.limbs
            + counts.output_rotations as f64 * (raise + switch + divide)
    }
}

/// The cost of a variant with parameters; `None` where there is no room for the noise.
///
/// # Errors
/// When the variant does not go with the layer.
pub fn cost(
    geometry: &ConvGeometry,
    variant: &Variant,
    parameters: &Parameters<u64>,
) -> Result<Option<Cost>, SlotError> {
    let layout = Layout::new(geometry, variant, parameters.n())?;
    let chains = layout.chains();
    let counts = Counts::of(&layout, &chains);
    let workload = Depth::of(&layout, &chains).workload(parameters.t().ilog2() + 1);
    let format = parameters
        .answer_format(workload.noise(parameters), counts.outputs)
        .ok();
    Ok(format.map(|format| Cost::of(&layout, counts, parameters, &format)))
}
