//! The choice of primes and scales for an error.
//!
//! Every place where noise enters asks for a scale: its gain times its size, over what the result
//! may have. [`Needs`] counts them with the sizes of a ring of that degree alone. Then, for each
//! size of a level, the scales follow from the input's down: a layer chooses the scale of its
//! weights, and a square takes twice the bits it gets. The fewest transforms in a key switch win.
//! What the ring then really has is checked ([`Setting::error`]), and the target is made smaller
//! where it is not enough.

use pronghorn_graph::polynomial::PolyGraph;
use pronghorn_he::{
    ckks::{LOG_EXACT, Noise},
    flood,
    multikey::{LAMBDA, MultiKeyError, Rule},
};
use pronghorn_ring::{
    Word,
    rns::RnsError,
    security::{SecurityLevel, max_log_q},
};

use crate::{
    Bounds, Chain, Network, NetworkError, Program, SLACK, Setting, Work, network::Op,
    setting::LOG_LOWERED,
};

/// The error that results should have at most, and how many results a key decrypts.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Aim {
    /// The largest absolute error of an element of the result.
    pub error: f64,
    /// Results of a key.
    pub results: u64,
}

/// What an aim leads to.
pub struct Chosen<W: Word> {
    /// The program at the degree of the setting.
    pub program: Program,
    /// What is proven of the network there.
    pub bounds: Bounds,
    /// Primes, levels and scales.
    pub setting: Setting<W>,
    /// The rule of decryption.
    pub rule: Rule<W>,
}

/// Degrees that are tried.
const DEGREES: [usize; 4] = [1 << 13, 1 << 14, 1 << 15, 1 << 16];
/// Primes of a level that are tried.
const LEVEL: std::ops::RangeInclusive<u32> = 1..=8;
/// Bits of a prime that are tried.
const PRIME_BITS: std::ops::RangeInclusive<u32> = 22..=30;
/// Bits of a special prime.
const SPECIAL_BITS: u32 = 30;
/// Special primes that are tried.
const SPECIAL: std::ops::RangeInclusive<usize> = 1..=12;
/// Bits of the primes of a result, at most.
const MOST_BASE: f64 = 1000.0;
/// Attempts at one degree.
const ATTEMPTS: usize = 12;

/// A setting with the rule of its decryptions.
type Agreed<W> = (Setting<W>, Rule<W>);

impl Aim {
    /// The smallest degree with which results have this error, and there the primes of the least
    /// work.
    ///
    /// # Errors
    /// When no ring of 128 bits has room, or the network has no program.
    pub fn choose<W: Word>(
        &self,
        graph: &PolyGraph,
        seed: [u8; 32],
    ) -> Result<Chosen<W>, NetworkError> {
        let network = Network::of(graph);
        for degree in DEGREES {
            let program = match Program::new(network.clone(), degree / 2) {
                Err(NetworkError::TooLarge { .. }) if degree < DEGREES[3] => continue,
                program => program?,
            };
            let bounds = Bounds::of(&program, graph)?;
            let messages = Messages::of(&program, graph, &bounds);
            if let Some((setting, rule)) = self.setting(&program, &bounds, &messages, seed)? {
                return Ok(Chosen {
                    program,
                    bounds,
                    setting,
                    rule,
                });
            }
        }
        Err(NetworkError::TooDeep {
            depth: network.depth(),
            log_error: self.error.log2(),
        })
    }

    /// The setting of this degree; `None` where there is no room.
    fn setting<W: Word>(
        &self,
        program: &Program,
        bounds: &Bounds,
        messages: &Messages,
        seed: [u8; 32],
    ) -> Result<Option<Agreed<W>>, NetworkError> {
        let mut target = self.target(2 * program.slots);
        let mut least_bits = *PRIME_BITS.start();
        for _ in 0..ATTEMPTS {
            let needs = Needs::of(program, bounds, target);
            let Some(chain) = chain(program, &needs, messages, least_bits) else {
                return Ok(None);
            };
            let smallest = chain.level.iter().chain(&chain.base).min();
            let smallest = smallest.copied().unwrap_or(least_bits);
            let setting = match Setting::<W>::new(chain, seed) {
                // Small primes are few.
                Err(NetworkError::Primes(RnsError::TooFewPrimes { .. })) => {
                    least_bits = smallest + 1;
                    continue;
                }
                setting => setting?,
            };
            match setting.rule(program, bounds, self.results) {
                Ok(rule) => {
                    let error = setting.error(program, bounds, &rule)?;
                    if error <= self.error {
                        return Ok(Some((setting, rule)));
                    }
                    target -= (error / self.error).log2().max(0.25);
                }
                Err(NetworkError::MultiKey(
                    MultiKeyError::NoRoom { .. } | MultiKeyError::Rule { .. },
                )) => target -= 1.0,
                Err(error) => return Err(error),
            }
        }
        Ok(None)
    }

    /// `log2` of the root of the noise's power, in units of values, that leaves a result this error
    /// after both parties' floods.
    fn target(&self, n: usize) -> f64 {
        // A flood's slots against its reach, and the reach against the noise.
        let flood = Noise::of_flood(n, 2, 40).times(2.0);
        let slot = flood.slot_bound().log2() - 40.0;
        let reach = f64::from(LAMBDA) + 0.5 * (flood::FISHER * self.results as f64).log2();
        // A reach is a power of two.
        self.error.log2() - slot - reach - 1.0
    }
}

/// `log2` of the largest slots that are encrypted, by level of the value or product. Scaled, they
/// fit an encoding and the primes of their level.
struct Messages {
    /// Inputs and biases.
    values: Vec<f64>,
    weights: Vec<f64>,
}

impl Messages {
    fn of(program: &Program, graph: &PolyGraph, bounds: &Bounds) -> Self {
        let levels = program.steps[0].level;
        let none = || vec![f64::NEG_INFINITY; levels + 1];
        let (mut values, mut weights) = (none(), none());
        values[levels] = bounds.nodes[0].reach.log2();
        let largest = |slots: &[f64]| slots.iter().fold(0.0, |most: f64, x| most.max(x.abs()));
        for (index, (step, node)) in program.steps.iter().zip(&graph.nodes).enumerate() {
            let Some((factors, addends)) = program.weights(index, &node.op) else {
                continue;
            };
            for factor in factors.iter().flatten() {
                weights[step.level] = weights[step.level].max(largest(factor).log2());
            }
            for addend in &addends {
                values[step.level] = values[step.level].max(largest(addend).log2());
            }
        }
        Self { values, weights }
    }

    /// Whether they fit at these scales (`log2`, by level), where `base` bits are left at level 0.
    fn fit(&self, slots: usize, scales: &[f64], weights: &[f64], base: f64, divisor: f64) -> bool {
        // Every slot may be the largest.
        let exact = LOG_EXACT - (slots as f64).log2();
        let fits = |message: f64, level: usize| {
            message + 1.0 < exact.min(base + divisor * level as f64 - 1.0)
        };
        let mut values = self.values.iter().zip(scales).enumerate();
        let mut factors = self.weights.iter().zip(weights).enumerate();
        values.all(|(level, (x, scale))| fits(x + scale, level))
            && factors.all(|(level, (x, scale))| fits(x + scale, level + 1))
    }
}

/// Scales that noise asks for, as `log2`.
struct Needs {
    /// Of values, by level.
    values: Vec<f64>,
    /// Of weights, by level of the product.
    weights: Vec<f64>,
    /// True for levels that products of values lead to.
    is_product: Vec<bool>,
    /// By level: `log2` of the largest slot.
    reach: Vec<f64>,
}

impl Needs {
    fn of(program: &Program, bounds: &Bounds, target: f64) -> Self {
        let (levels, n) = (program.steps[0].level, 2 * program.slots);
        let none = || vec![f64::NEG_INFINITY; levels + 1];
        let mut needs = Self {
            values: none(),
            weights: none(),
            is_product: vec![false; levels + 1],
            reach: none(),
        };
        let log_n = (n as f64).log2();
        let fresh = Noise::of_secret_encryption(n) + Noise::of_exact_encoding(n);
        let fresh = 0.5 * fresh.mean.log2();
        // Roundings of c_0, c_1 s_1 and c_2 s_2; a key switch has as much again.
        let rounding = 0.5 * (2.0 * log_n + (2.0 * 2.0 / 3.0 / 12.0f64).log2());
        // Of fresh polynomials: c_0 and c_1 s_1.
        let refreshed = rounding - 0.5;
        let input = 0.5 * ((2.0 * fresh).exp2() + (2.0 * refreshed).exp2()).log2();
        let switched = rounding + 0.3;
        let small = -SLACK.log2() + bounds.sensitivity.log2() + 3.0;
        let mut places = 2.0;
        for (index, (node, step)) in program.network.nodes.iter().zip(&program.steps).enumerate() {
            let bounds = &bounds.nodes[index];
            let level = step.level;
            needs.reach[level] = needs.reach[level].max(bounds.reach.log2());
            let ask = |needs: &mut f64, noise: f64, gain: f64, places: &mut f64| {
                if gain > 0.0 {
                    *needs = needs.max(noise + gain.log2() - target);
                    *places += 1.0;
                }
                // Products of errors are negligible.
                *needs = needs.max(noise + small);
            };
            let above = level + 1;
            match (&node.op, &step.work) {
                (Op::Input { .. }, _) => {
                    ask(&mut needs.values[level], input, bounds.slots, &mut places);
                }
                (Op::Linear { .. } | Op::Factor, work) => {
                    ask(
                        &mut needs.weights[level],
                        fresh,
                        bounds.weights,
                        &mut places,
                    );
                    ask(
                        &mut needs.values[level],
                        switched,
                        bounds.slots,
                        &mut places,
                    );
                    if let Work::Linear(packing) = work {
                        for reads in packing.reads_of_rotations() {
                            let (noise, gain) = (rounding + 0.5, bounds.rotated);
                            let shared = program.readers(index) as f64;
                            let gain = gain * (shared * reads as f64).sqrt();
                            ask(&mut needs.values[above], noise, gain, &mut places);
                        }
                    }
                }
                (Op::Square | Op::Multiply, _) => {
                    needs.is_product[level] = true;
                    let gain = bounds.slots * (program.readers(index) as f64).sqrt();
                    ask(&mut needs.values[level], switched, gain, &mut places);
                }
                (Op::Add | Op::Rearrange(_), _) => {}
            }
        }
        // Encryptions of zero with public keys, of both parties and under both keys.
        let zeros = 0.5 * (Noise::of_public_encryption(n).mean * 4.0).log2();
        needs.values[0] = needs.values[0].max(zeros - target);
        // Powers of all places add up. Few of them are the largest.
        let share = 0.25 * f64::log2(places);
        let all = needs.values.iter_mut().chain(&mut needs.weights);
        all.for_each(|need| *need += share);
        needs
    }
}

/// The primes of the least work for what noise asks; `None` where 128 bits of security allow too
/// few.
fn chain(program: &Program, needs: &Needs, messages: &Messages, least_bits: u32) -> Option<Chain> {
    let sizes = LEVEL.flat_map(|count| {
        let bits = *PRIME_BITS.start().max(&least_bits)..=*PRIME_BITS.end();
        bits.map(move |bits| (count, bits))
    });
    let all = sizes
        .filter_map(|(count, bits)| of_level(program, needs, messages, count, bits, least_bits));
    let (_, chain) = all.min_by_key(|(work, _)| *work)?;
    Some(chain)
}

/// The chain of so many primes a level, with its relative work and bits.
fn of_level(
    program: &Program,
    needs: &Needs,
    messages: &Messages,
    count: u32,
    bits: u32,
    least_bits: u32,
) -> Option<((usize, u32), Chain)> {
    let (degree, levels) = (2 * program.slots, program.steps[0].level);
    let of_level = f64::from(count * bits);
    // Primes of that many bits are a little less.
    let divisor = of_level - 0.01 * f64::from(count);
    // What a product of values needs, its factors need half of.
    let mut values = needs.values.clone();
    for level in 0..levels {
        if needs.is_product[level] {
            values[level + 1] = values[level + 1].max((values[level] + of_level) / 2.0);
        }
    }
    let scale_log = values[levels].max(1.0).ceil() as u32;
    let mut weight_logs = vec![0; levels];
    let mut scale = f64::from(scale_log);
    let mut base = 0.0f64;
    let mut room = |bits: f64, level: usize| {
        base = base.max(bits + 2.0 - divisor * level as f64);
    };
    let largest = |level: usize| needs.reach[level].max(messages.values[level]).max(0.0);
    room(scale + largest(levels), levels);
    let mut scales = vec![scale; levels + 1];
    let mut factors = vec![scale; levels];
    let lowerings = program.lowerings();
    // The scale for which a factor of `LOG_LOWERED` bits brings values to a level.
    let lowered = |scales: &[f64], level: usize| {
        let to_here = lowerings.iter().filter(|(_, to)| *to == level);
        let needs = to_here.map(|&(from, _)| scales[from] + LOG_LOWERED + 1.0 - divisor);
        needs.fold(f64::NEG_INFINITY, f64::max)
    };
    for level in (0..levels).rev() {
        factors[level] = scale;
        if !needs.is_product[level] {
            let wanted = values[level].max(lowered(&scales, level));
            let log = needs.weights[level].max(wanted - scale + of_level);
            weight_logs[level] = log.max(1.0).ceil() as u32;
            factors[level] = f64::from(weight_logs[level]);
        }
        room(factors[level] + messages.weights[level], level + 1);
        scale += factors[level] - divisor;
        scales[level] = scale;
        room(scale + largest(level), level);
    }
    // Values may exceed all numbers.
    let fits = base < MOST_BASE;
    let are_exact = (0..levels).all(|level| scales[level] >= lowered(&scales, level));
    if !fits || !are_exact {
        return None;
    }
    let base = base.ceil().max(f64::from(2 * least_bits)) as u32;
    if !messages.fit(program.slots, &scales, &factors, f64::from(base), divisor) {
        return None;
    }
    let primes = base.div_ceil(*PRIME_BITS.end());
    let base = vec![base.div_ceil(primes).max(least_bits); primes as usize];
    let level = vec![bits; count as usize];
    let own = base.iter().sum::<u32>() + levels as u32 * count * bits;
    let limbs = base.len() + levels * level.len();
    let limit = max_log_q(degree, SecurityLevel::Bits128)?;
    let fits = |special: &usize| own + *special as u32 * SPECIAL_BITS <= limit;
    // Limbs that a key switch transforms.
    let work = |special: usize| limbs.div_ceil(special) * (limbs + special) + 4 * special;
    let special = SPECIAL.filter(fits).min_by_key(|&special| work(special))?;
    let chain = Chain {
        degree,
        base,
        level,
        levels,
        special: vec![SPECIAL_BITS; special],
        scale_log,
        weight_logs,
    };
    Some(((work(special), own), chain))
}
