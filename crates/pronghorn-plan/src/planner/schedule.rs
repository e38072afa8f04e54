//! Where to rescale, and with what parameters: a search over ring degrees, sizes of primes, scales
//! and places, each judged by walking through the network once.
//!
//! Noise is kept as what arrives at the result: an error of standard deviation `e` at a value
//! counts `e` times the value's gain ([`PolyGraph::measured_gains`]). Rescaling drops as many
//! primes as it can without adding more noise than there is.

mod walk;

use pronghorn_graph::polynomial::{PolyGraph, PolyNode, PolyOp};
use pronghorn_he::ckks::Noise;
use pronghorn_ring::{
    rns,
    security::{SecurityLevel, max_log_q},
};

pub use self::walk::{HEADROOM, Schedule};
use self::walk::{NOISE_MARGIN, SPARE, Value, Walk, Work, work};
use crate::steps::encrypted::{
    DEGREES, KEY_BATCHES, MAX_LIMBS, ProgramNode, ProgramOp, modulus_bits,
};

/// Sizes tried for the primes that rescaling divides by, in bits, for 32-bit words.
const PRIME_BITS: std::ops::RangeInclusive<u32> = 20..=31;

/// Size of the primes that stay until the answer.
const LAST_PRIME_BITS: u32 = 31;

/// Scales of the input that are tried, as exponents of two.
const SCALE_LOGS: std::ops::RangeInclusive<u32> = 30..=140;

/// One result in `2^40` differs by so many standard deviations of the error.
const TAIL: f64 = 7.3;

/// Largest difference of scales that are taken to be one, relative to the result.
const MOST_MISMATCH: f64 = 1.0 / (1u64 << 20) as f64;

/// Most products of ciphertexts.
const MAX_PRODUCTS: u32 = 8;

/// Most special primes that are tried.
const MOST_SPECIAL: usize = 4;

/// Primes are smaller than their bits say by less than this many bits.
const ROUGHLY: f64 = 0.02;

/// Most products for which every combination of places is tried.
const MOST_COMBINED: u32 = 4;

/// Passes over the graph that can be switched off, to measure what they bring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Passes {
    /// Rescale as late as pays; otherwise right after each layer and each product.
    pub lazy_rescaling: bool,
    /// Relinearise where it pays only, which may be nowhere; otherwise wherever products are
    /// rescaled.
    pub lazy_relinearisation: bool,
}

impl Default for Passes {
    fn default() -> Self {
        Self {
            lazy_rescaling: true,
            lazy_relinearisation: true,
        }
    }
}

/// A network and what is known of its noise.
struct Network<'a> {
    graph: &'a PolyGraph,
    gains: Vec<f64>,
    worst_gains: Vec<f64>,
    /// Largest error of a result, as a standard deviation.
    most_error: f64,
    passes: Passes,
    flood_bits: u32,
}

/// Parameters to walk with.
#[derive(Clone, Copy, Debug)]
struct Choice<'a> {
    degree: usize,
    /// Size of the primes that rescaling before the answer divides by.
    prime_bits: u32,
    /// The actual primes, once there are any, and how many of them stay until the answer.
    primes: Option<(&'a [u64], usize)>,
    scale_log: u32,
    /// Bit `i`: rescale the result of product `i` before the next product, not at once.
    lazy: u32,
    /// Special primes; with some, what is rescaled is relinearised too.
    special: usize,
}

/// The cheapest schedule whose error of a result, flood included, has a standard deviation of at
/// most `most_error`; none where no parameters of at least 128 bits of security carry the network.
/// `samples` are inputs to measure noise on, and all answers under a key are to be within
/// statistical distance `2^-flood_bits` of what their values say.
pub fn schedule(
    graph: &PolyGraph,
    samples: &[f64],
    most_error: f64,
    passes: Passes,
    flood_bits: u32,
) -> Option<Schedule> {
    let products = products(graph);
    if products > MAX_PRODUCTS {
        return None;
    }
    let network = Network {
        graph,
        gains: graph.measured_gains(samples),
        worst_gains: graph.worst_gains(HEADROOM),
        most_error,
        passes,
        flood_bits,
    };
    let all = (1u32 << products) - 1;
    let lazies = match products {
        _ if !passes.lazy_rescaling => vec![0],
        0..=MOST_COMBINED => (0..=all).collect(),
        _ => vec![0, all],
    };
    // The last product is never relinearised: it meets no other.
    let specials = match (products, passes.lazy_relinearisation) {
        (0 | 1, _) => 0..=0,
        (_, true) => 0..=MOST_SPECIAL,
        (_, false) => 1..=MOST_SPECIAL,
    };
    let mut judged: Vec<(f64, Choice<'_>)> = Vec::new();
    for (degree, prime_bits) in DEGREES
        .into_iter()
        .flat_map(|n| PRIME_BITS.map(move |p| (n, p)))
    {
        for (&lazy, special) in lazies
            .iter()
            .flat_map(|l| specials.clone().map(move |s| (l, s)))
        {
            for scale_log in SCALE_LOGS {
                let choice = Choice {
                    degree,
                    prime_bits,
                    primes: None,
                    scale_log,
                    lazy,
                    special,
                };
                if let Some(walk) = choice.walk(&network) {
                    judged.push((walk.seconds() / degree as f64, choice));
                }
            }
        }
    }
    judged.sort_by(|a, b| a.0.total_cmp(&b.0));
    // Actual primes are a little smaller than their bits say: now and then the best choice just
    // fails.
    judged
        .into_iter()
        .find_map(|(_, choice)| choice.exact(&network))
}

/// How many products of ciphertexts there are.
pub fn products(graph: &PolyGraph) -> u32 {
    graph.nodes.iter().filter(|node| is_product(node)).count() as u32
}

fn is_product(node: &PolyNode) -> bool {
    matches!(node.op, PolyOp::Square | PolyOp::Multiply)
}

impl<'a> Choice<'a> {
    /// The schedule of this choice with actual primes.
    fn exact(&self, network: &Network<'_>) -> Option<Schedule> {
        let rough = self.walk(network)?;
        (rough.last..rough.last + 2).find_map(|last| {
            let mut sizes = vec![LAST_PRIME_BITS; last];
            sizes.resize(last + rough.dropped, self.prime_bits);
            sizes.resize(sizes.len() + self.special, LAST_PRIME_BITS);
            let all = rns::primes(self.degree, &sizes).ok()?;
            let (primes, special) = all.split_at(last + rough.dropped);
            let exact = Choice {
                primes: Some((primes, last)),
                ..*self
            };
            let walk = exact.walk(network)?;
            let secure = max_log_q(self.degree, SecurityLevel::Bits128)? >= modulus_bits(&all);
            let fits = (walk.last, walk.dropped) == (last, rough.dropped);
            (fits && secure)
                .then(|| walk.schedule(self.scale_log, primes, special, network.flood_bits))
        })
    }

    /// `log2` of the prime that goes after `dropped` others, before the answer; infinite where
    /// there is none.
    fn prime_log(&self, dropped: usize) -> f64 {
        match self.primes {
            Some((primes, last)) => primes[last..]
                .iter()
                .nth_back(dropped)
                .map_or(f64::INFINITY, |&prime| (prime as f64).log2()),
            None => f64::from(self.prime_bits) - ROUGHLY,
        }
    }

    /// `log2` of prime `index` of those that stay until the answer; zero where there is none.
    fn last_prime_log(&self, index: usize) -> f64 {
        match self.primes {
            Some((primes, last)) => primes[..last]
                .get(index)
                .map_or(0.0, |&prime| (prime as f64).log2()),
            None => f64::from(LAST_PRIME_BITS) - ROUGHLY,
        }
    }

    /// Product of the `count` primes that go after `dropped` others, before the answer.
    fn divisor(&self, dropped: usize, count: usize) -> f64 {
        if let Some((primes, last)) = self.primes {
            let gone = primes[last..].iter().rev().skip(dropped);
            let product: f64 = gone
                .clone()
                .take(count)
                .map(|&prime| prime as f64)
                .product();
            return if gone.len() < count {
                f64::INFINITY
            } else {
                product
            };
        }
        let logs = (dropped..dropped + count).map(|gone| self.prime_log(gone));
        logs.sum::<f64>().exp2()
    }

    /// Walks through the network; none where precision or security is not reached.
    fn walk(&self, network: &Network<'_>) -> Option<Walk> {
        let limit = f64::from(max_log_q(self.degree, SecurityLevel::Bits128)?);
        let least = f64::from(self.prime_bits) - ROUGHLY;
        let most = ((limit / least) as usize).min(MAX_LIMBS);
        let fresh = Noise::of_secret_encryption(self.degree) + Noise::of_encoding(self.degree);
        let fresh = fresh.mean.sqrt() / f64::from(self.scale_log).exp2();
        let mut walk = Walk {
            values: Vec::new(),
            output: 0,
            degree: self.degree,
            special: self.special,
            most,
            dropped: 0,
            last: 0,
            needs: Vec::new(),
            variance: (fresh * network.gains[0]).powi(2),
            worst_variance: (fresh * network.worst_gains[0]).powi(2),
            key_power: 1,
            flood_log: 0,
            answer_limbs: 0,
            answer_scale: 0.0,
            error: 0.0,
        };
        let graph = network.graph;
        let mut place = Vec::with_capacity(graph.nodes.len());
        let mut product = 0;
        for (index, node) in graph.nodes.iter().enumerate() {
            let mut inputs: Vec<usize> = node.inputs.iter().map(|&input| place[input]).collect();
            if is_product(node) {
                for input in &mut inputs {
                    if walk.values[*input].pending {
                        *input = self.rescale(network, &mut walk, *input);
                    }
                }
            }
            if matches!(node.op, PolyOp::Add | PolyOp::Rearrange(_)) {
                self.align(network, &mut walk, &mut inputs);
            }
            let value = self.operator(index, node, &inputs, &walk.values)?;
            let mut at = walk.push(value)?;
            if is_product(node) {
                let lazily = self.lazy >> product & 1 == 1;
                product += 1;
                if !lazily && index != graph.output {
                    at = self.rescale(network, &mut walk, at);
                }
            } else if !network.passes.lazy_rescaling && matches!(node.op, PolyOp::Linear(_)) {
                at = self.rescale(network, &mut walk, at);
            }
            place.push(at);
        }
        walk.output = place[graph.output];
        walk.dropped = walk.values.iter().map(|value| value.dropped).max()?;
        walk.last = self.last_limbs(&walk)?;
        self.answer(network, &mut walk)?;
        let bits: f64 = (0..walk.dropped)
            .map(|gone| self.prime_log(gone))
            .sum::<f64>()
            + (0..walk.last)
                .map(|index| self.last_prime_log(index))
                .sum::<f64>()
            + self.special as f64 * f64::from(LAST_PRIME_BITS);
        (bits <= limit && walk.dropped + walk.last <= MAX_LIMBS).then_some(walk)
    }

    /// How many primes must stay until the answer, so that at each step there are enough bits.
    fn last_limbs(&self, walk: &Walk) -> Option<usize> {
        let enough = |last: &usize| {
            let held: f64 = (0..*last).map(|index| self.last_prime_log(index)).sum();
            walk.needs.iter().all(|&(dropped, bits)| {
                let others: f64 = (dropped..walk.dropped)
                    .map(|gone| self.prime_log(gone))
                    .sum();
                held + others >= bits
            })
        };
        (1..=MAX_LIMBS).find(enough)
    }

    /// The value of an operator.
    fn operator(
        &self,
        index: usize,
        node: &PolyNode,
        inputs: &[usize],
        values: &[Value],
    ) -> Option<Value> {
        let at = |place: usize| &values[inputs[place]].node;
        let read = || inputs.iter().map(|&input| &values[input]);
        let most_polys = read().map(|value| value.node.polys).max().unwrap_or(2);
        let (polys, scale) = match &node.op {
            PolyOp::Input => (2, f64::from(self.scale_log).exp2()),
            PolyOp::Linear(layer) => (at(0).polys, at(0).scale * layer.divisor),
            PolyOp::Factor(factor) => (at(0).polys, at(0).scale * factor.divisor),
            PolyOp::Square => (2 * at(0).polys - 1, at(0).scale * at(0).scale),
            PolyOp::Multiply => (at(0).polys + at(1).polys - 1, at(0).scale * at(1).scale),
            PolyOp::Add => {
                let scale = at(0).scale.max(at(1).scale);
                // The smaller scale is multiplied by an integer that makes it the larger, or
                // nearly.
                let mismatch = |node: &ProgramNode| {
                    let factor = (scale / node.scale).round();
                    (factor * node.scale / scale - 1.0).abs() * node.reach
                };
                if read().any(|value| mismatch(&value.node) > MOST_MISMATCH * node.reach) {
                    return None;
                }
                (most_polys, scale)
            }
            PolyOp::Rearrange(_) => {
                let scale = at(0).scale;
                let differs = |found: f64| (found / scale - 1.0).abs() > MOST_MISMATCH;
                if read().any(|value| differs(value.node.scale)) {
                    return None;
                }
                (most_polys, scale)
            }
        };
        Some(Value {
            node: ProgramNode {
                op: ProgramOp::Node(index),
                inputs: inputs.to_vec(),
                elements: node.len(),
                polys,
                limbs: 0,
                scale,
                reach: node.reach,
            },
            of: index,
            dropped: read().map(|value| value.dropped).max().unwrap_or(0),
            pending: is_product(node) || read().any(|value| value.pending),
            work: work(node, polys, inputs.first().map_or(0, |_| at(0).polys)),
        })
    }

    /// Divides by as many primes as the precision allows, and relinearises where there are special
    /// primes; the index of the value then.
    fn rescale(&self, network: &Network<'_>, walk: &mut Walk, input: usize) -> usize {
        let value = &walk.values[input];
        let most = (1..MAX_LIMBS)
            .take_while(|&limbs| {
                let scale = value.node.scale / self.divisor(value.dropped, limbs);
                let added = self.rounding(value) / scale * network.gains[value.of];
                added * added <= walk.variance
            })
            .last();
        match most {
            Some(limbs) => self.divide(network, walk, input, limbs),
            None if self.relinearises(value) => self.divide(network, walk, input, 0),
            None => input,
        }
    }

    fn relinearises(&self, value: &Value) -> bool {
        self.special > 0 && value.node.polys > 2
    }

    /// Error in a slot that a division adds, times the scale after it.
    fn rounding(&self, value: &Value) -> f64 {
        let polys = if self.relinearises(value) {
            2
        } else {
            value.node.polys
        };
        let rounding = Noise::default().rescale(self.degree, polys, 1.0);
        rounding.mean.sqrt()
    }

    /// Divides by the last `limbs` primes, and relinearises; the index of the value then.
    fn divide(&self, network: &Network<'_>, walk: &mut Walk, input: usize, limbs: usize) -> usize {
        let value = &walk.values[input];
        let scale = value.node.scale / self.divisor(value.dropped, limbs);
        let (op, polys, switching) = if self.relinearises(value) {
            // Digits are about as large as the special primes together.
            let special = self.special as f64 * f64::from(LAST_PRIME_BITS);
            let digits = vec![special; MAX_LIMBS.div_ceil(self.special)];
            let noise = Noise::of_key_switch(self.degree, value.node.polys - 2, &digits, special);
            let op = ProgramOp::Relinearise { limbs };
            (op, 2, noise.mean.sqrt() / value.node.scale)
        } else {
            (ProgramOp::Rescale { limbs }, value.node.polys, 0.0)
        };
        let rounding = if limbs == 0 {
            0.0
        } else {
            self.rounding(value) / scale
        };
        let added = rounding.hypot(switching);
        let rescaled = Value {
            node: ProgramNode {
                op,
                inputs: vec![input],
                polys,
                scale,
                ..value.node.clone()
            },
            of: value.of,
            dropped: value.dropped + limbs,
            pending: false,
            work: Work::default(),
        };
        walk.variance += (added * network.gains[value.of]).powi(2);
        walk.worst_variance += (added * network.worst_gains[value.of]).powi(2);
        walk.key_power = walk.key_power.max(if polys < value.node.polys {
            value.node.polys - 1
        } else {
            1
        });
        walk.values.push(rescaled);
        walk.values.len() - 1
    }

    /// Brings inputs of different levels to the lowest one, at the scale of the input that is
    /// there: times an integer, then rescaled.
    fn align(&self, network: &Network<'_>, walk: &mut Walk, inputs: &mut [usize]) {
        let lowest = inputs
            .iter()
            .copied()
            .max_by_key(|&input| walk.values[input].dropped);
        let Some(lowest) = lowest.map(|input| walk.values[input].clone()) else {
            return;
        };
        for input in inputs {
            let value = &walk.values[*input];
            let limbs = lowest.dropped - value.dropped;
            if limbs == 0 {
                continue;
            }
            let scale = lowest.node.scale * self.divisor(value.dropped, limbs);
            if scale < value.node.scale {
                continue;
            }
            let factor = (scale / value.node.scale).round();
            let scaled = Value {
                node: ProgramNode {
                    op: ProgramOp::Scale,
                    inputs: vec![*input],
                    scale: factor * value.node.scale,
                    ..value.node.clone()
                },
                work: Work {
                    products: (value.node.elements * value.node.polys) as f64,
                    ..Work::default()
                },
                ..value.clone()
            };
            let most = HEADROOM * scaled.node.reach * scaled.node.scale;
            walk.need(scaled.dropped, most, scaled.node.scale);
            walk.values.push(scaled);
            *input = self.divide(network, walk, walk.values.len() - 1, limbs);
        }
    }

    /// Re-randomisation, flood and last rescaling of the result.
    fn answer(&self, network: &Network<'_>, walk: &mut Walk) -> Option<()> {
        let value = walk.values[walk.output].clone();
        let ProgramNode {
            polys,
            scale,
            reach,
            ..
        } = value.node;
        let noise = NOISE_MARGIN * walk.variance.sqrt();
        // What floods have to hide over the lifetime of a key, whatever inputs
        // the client chooses while inner values stay within the headroom.
        let hidden = Noise {
            mean: walk.worst_variance * scale * scale,
            ..Noise::default()
        };
        let answers = network.graph.result().len() as f64 * KEY_BATCHES as f64;
        let flood_log = hidden.flood_reach(self.degree, polys, answers, network.flood_bits);
        let flooded = Noise::of_flood(self.degree, polys, flood_log).mean.sqrt() / scale;
        let flooded = flooded.hypot(noise);
        let reaches = (HEADROOM * reach + TAIL * flooded).max(1.0);
        if value.dropped != walk.dropped {
            return None;
        }
        let held: f64 = (0..walk.last).map(|index| self.last_prime_log(index)).sum();
        if held < (reaches * scale).log2() + 1.0 + SPARE {
            walk.last += 1;
        }
        // Divided by as many primes as add little noise and leave room. At the worst slot, not on
        // average: images of that slot have their results there every time.
        let rounding = Noise::default().rescale(self.degree, polys, 1.0);
        let rounding = rounding.peak.sqrt();
        let divided = |limbs: usize| {
            let gone = (walk.last - limbs..walk.last).map(|index| match self.primes {
                Some((primes, _)) => primes.get(index).map_or(1.0, |&prime| prime as f64),
                None => self.last_prime_log(index).exp2(),
            });
            let scale = scale / gone.product::<f64>();
            (scale, if limbs == 0 { 0.0 } else { rounding / scale })
        };
        let answered = (0..walk.last)
            .take_while(|&limbs| divided(limbs).1 <= flooded / 2.0)
            .last()?;
        let (answer_scale, rounded) = divided(answered);
        let total = flooded.hypot(rounded);
        if total > network.most_error {
            return None;
        }
        walk.flood_log = flood_log;
        walk.answer_limbs = walk.last - answered;
        walk.answer_scale = answer_scale;
        walk.error = TAIL * total;
        Some(())
    }
}
