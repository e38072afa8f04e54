//! How many bits weights and inputs of a layer get, and the modulus that then carries it.
//!
//! An answer must decrypt exactly: with `scale = 2^scale_log`, noise and dropped bits together stay
//! below `scale / 2`, and the proven range of the answer times `scale` stays below `q`. So `log2 q`
//! is about bits of the range plus bits of the noise, and both grow with every bit of precision.

use std::ops::RangeInclusive;

use pronghorn_graph::{
    fixed::Digit,
    quantise::{
        Candidate, FactorProfile, LayerProfile, LowDigits, MOST_HIGH, MOST_LOW, MOST_MIDDLE,
        Precision, PrecisionChooser,
    },
};
use pronghorn_he::{
    noise,
    shares::{ShareEncoding, zero_bound},
};
use pronghorn_ring::{
    modulus::largest_ntt_prime,
    security::{SecurityLevel, max_log_q},
};

use crate::{
    rlwe::{DEGREES, Rlwe, ShareBits, WordSize, spare_bits},
    steps::linear::clear::{MAX_LOW_BITS, MAX_PARTS, shared_positions},
};

/// Largest prime in 64-bit words: leaves room for lazy sums of three residues.
const MAX_U64_BITS: u32 = 60;

/// Bits of the modulus kept below the table's limit: up to 8 blocks share one `a`, which costs at
/// most 3 bits of security by a hybrid over them; at N = 2048 a bit of the modulus is worth 128 /
/// 53 = 2.4.
const SHARED_A_BITS: u32 = 2;

/// Bits on the wire, where there are so many words of `b` for each of `a`.
fn bits_sent(rlwe: &Rlwe, sizes: (usize, usize), ratio: usize) -> u64 {
    let (inputs, outputs, ratio) = (sizes.0 as u64, sizes.1 as u64, ratio as u64);
    let b = inputs * u64::from(rlwe.modulus_bits()) + outputs * u64::from(rlwe.answer_bits());
    ratio * b + outputs * u64::from(rlwe.answer_bits_a())
}

/// Words, the smallest degree that is secure with `spare` bits to the table's limit, and the
/// largest prime of `bits` bits.
fn secure_modulus(bits: u32, spare: u32) -> Option<(WordSize, usize, u64)> {
    let word = match bits {
        ..=31 => WordSize::U32,
        32..=MAX_U64_BITS => WordSize::U64,
        _ => return None,
    };
    let fits = |&degree: &usize| {
        max_log_q(degree, SecurityLevel::Bits128).is_some_and(|limit| bits + spare <= limit)
    };
    let degree = DEGREES.into_iter().find(fits)?;
    Some((word, degree, largest_ntt_prime(bits, degree)?))
}

/// What a layer asks of its modulus.
#[derive(Clone, Copy, Debug)]
pub struct Demand {
    /// Largest answer minus smallest.
    pub width: f64,
    /// Largest absolute input.
    pub input: f64,
    /// Sum of absolute weights, largest row.
    pub norm1: f64,
    /// Euclidean norm of the weights, largest row.
    pub norm2: f64,
}

impl Demand {
    /// What several parts ask of the modulus they share.
    pub fn all(parts: &[Self]) -> Self {
        let most = |field: fn(&Self) -> f64| parts.iter().map(field).fold(0.0, f64::max);
        Self {
            width: most(|d| d.width),
            input: most(|d| d.input),
            norm1: most(|d| d.norm1),
            norm2: most(|d| d.norm2),
        }
    }

    /// Noise of an answer's coefficient.
    pub fn noise(&self) -> u64 {
        noise::linear_bound(self.norm1, self.norm2)
    }

    /// Messages the modulus must tell apart.
    fn messages(&self) -> f64 {
        (self.width + 3.0).max(2.0 * self.input + 3.0)
    }

    /// Bits the modulus needs at least.
    fn modulus_bits(&self) -> u32 {
        let scale_log = u64::BITS - self.noise().leading_zeros() + 1;
        (self.messages().log2() + f64::from(scale_log)).ceil() as u32
    }

    /// The cheapest parameters on the wire and the position of messages, by words up and down
    /// (`sizes`) and the `a` of the answer, one for so many `positions`; `None` where no word is
    /// wide enough at 128 bits of security.
    pub fn carrier(&self, sizes: (usize, usize), positions: usize) -> Option<(Rlwe, u32)> {
        let least = self.modulus_bits().max(18);
        (least..least + 4)
            .filter_map(|bits| self.carrier_at(bits, positions))
            .min_by_key(|(rlwe, _)| {
                let shared = shared_positions(rlwe, positions) as u64;
                // Bits of a position, so that those of moduli with an `a` for each count alike.
                let sent = bits_sent(rlwe, sizes, shared as usize) * positions as u64 / shared;
                (rlwe.word as u8, sent)
            })
    }

    /// [`Demand::carrier`] for shares: messages modulo `2^value_bits`, noise below the unit of the
    /// guard bits, answers that are re-randomised where they are `hidden`, `secrets` secrets for
    /// one `a`.
    pub fn share_carrier(
        &self,
        (shares, hidden): (ShareBits, bool),
        secrets: usize,
        sizes: (usize, usize),
    ) -> Option<Rlwe> {
        (18..=MAX_U64_BITS - 1)
            .filter_map(|bits| self.share_carrier_at((shares, hidden), bits, secrets))
            .take(4)
            .min_by_key(|rlwe| (rlwe.word as u8, bits_sent(rlwe, sizes, 1)))
    }

    fn share_carrier_at(
        &self,
        (shares, hidden): (ShareBits, bool),
        bits: u32,
        secrets: usize,
    ) -> Option<Rlwe> {
        let (word, degree, modulus) = secure_modulus(bits, spare_bits(secrets))?;
        let encoding = ShareEncoding::new(modulus, shares.value_bits, shares.guard_bits)?;
        // Both shares are encoded with errors of a half.
        let rounding = self.norm1.ceil() as u64;
        let noise = self
            .noise()
            .saturating_add(rounding)
            .saturating_add(if hidden { zero_bound(degree) } else { 0 });
        let room = encoding.noise_room().checked_sub(noise.saturating_add(1))?;
        Some(with_room(word, degree, modulus, room, 1))
    }

    /// Parameters with a modulus of `bits` bits, and the position of messages.
    fn carrier_at(&self, bits: u32, positions: usize) -> Option<(Rlwe, u32)> {
        let (word, degree, modulus) = secure_modulus(bits, SHARED_A_BITS)?;
        let scale_log = (modulus as f64 / self.messages()).log2().floor() as u32;
        let room = (1u64 << scale_log.checked_sub(1)?).checked_sub(self.noise() + 1)?;
        let alone = with_room(word, degree, modulus, room, 1);
        let rlwe = match shared_positions(&alone, positions) {
            1 => alone,
            shared => with_room(word, degree, modulus, room, shared),
        };
        Some((rlwe, scale_log))
    }
}

/// Parameters whose dropped bits make noise of at most `room`, for so many columns of an image.
fn with_room(word: WordSize, degree: usize, modulus: u64, room: u64, positions: usize) -> Rlwe {
    let (dropped_bits_a, dropped_bits) = dropped_bits(degree, room, positions);
    Rlwe {
        word,
        degree,
        modulus,
        dropped_bits,
        dropped_bits_a,
    }
}

/// Blocks of a position that the choice of dropped bits assumes: that many words of `b` for each
/// of `a`.
const TYPICAL_BLOCKS: u64 = 2;

/// Low bits of `a` and `b` to drop from an answer, so that the noise it brings is at most `room`: a
/// bit less of `b` makes room for about `log2(sqrt(N)) + 3` of `a`.
fn dropped_bits(degree: usize, room: u64, positions: usize) -> (u32, u32) {
    let ratio = TYPICAL_BLOCKS * positions as u64;
    let largest_b = |noise_a: u64| {
        let room = room.checked_sub(noise_a)?;
        // 2^(dropped - 1) <= room
        Some(if room == 0 {
            0
        } else {
            u64::BITS - room.leading_zeros()
        })
    };
    (0..u64::BITS)
        .map_while(|a| Some((a, largest_b(noise::dropped_a_bound(degree, a))?)))
        .max_by_key(|&(a, b)| u64::from(a) + ratio * u64::from(b))
        .unwrap_or((0, 0))
}

/// Chooses precisions so that rounding stays within a tolerance and the modulus small.
pub struct ModulusBudget<'a> {
    /// Relative errors of layers' and products' outputs that are small enough, by node.
    pub tolerances: &'a [f64],
    /// The user's choice of weight bits, if any.
    pub weight_bits: Option<u32>,
    /// The user's choice of input bits, if any.
    pub input_bits: Option<u32>,
    /// Whether the bits of answers are what costs most: they go to circuits, or are as many words.
    pub narrow: bool,
    /// Bits that such answers take at most, where any precision allows it.
    pub most_bits: u32,
    /// Whether answers go to circuits: there they are words of two's complement.
    pub circuits: bool,
    /// Low digits of a layer's weights, at most, where one sum does not carry the layer.
    pub low_digits: u32,
}

/// Precisions the planner tries.
const WEIGHT_BITS: RangeInclusive<u32> = 3..=15;

const INPUT_BITS: RangeInclusive<u32> = 2..=16;

/// The same where weights have three digits.
const INPUTS_OF_DIGITS: RangeInclusive<u32> = 2..=20;

/// Bits of inputs that are compared with thresholds, about as many as single precision has. A value
/// that is rounded to the other side of one takes another way. Tables often have five or six digits,
/// and most values are small where a few are large.
const COMPARED_BITS: RangeInclusive<u32> = 22..=24;

/// Bits of weights from whose error that of others follows.
const TYPICAL_BITS: u32 = 8;

/// Beyond the fewest that may suffice so many more are likely.
const LIKELY: u32 = 5;

/// The same for weights in several digits.
const WEIGHTS_IN_DIGITS: RangeInclusive<u32> = 8..=16;

/// Bits of a low digit, at least: more than are kept of its sums.
const LEAST_LOW: u32 = 5;

/// An answer that goes straight to an activation may have so many bits more.
const ALONE_BITS: u32 = 2;

/// So many times its tolerance a layer's error may be before it is cut, or cut once more.
const MOST_EXCESS: f64 = 2.0;

impl ModulusBudget<'_> {
    fn found(&self, layer: &LayerProfile, input_bits: Option<u32>) -> Result<Precision, String> {
        self.search(layer, input_bits).ok_or_else(|| {
            format!(
                "no modulus of at most {MAX_U64_BITS} bits carries this layer exactly at 128 bits of security; \
                 lower --weight-bits or --input-bits"
            )
        })
    }

    /// Bits of weights and inputs to try: the user's, or all.
    fn grid(
        &self,
        layer: &LayerProfile,
        (weights, inputs): (RangeInclusive<u32>, RangeInclusive<u32>),
        input_bits: Option<u32>,
    ) -> impl Iterator<Item = (u32, u32)> + use<> {
        let only = |bits: u32| bits..=bits;
        let weights = self.weight_bits.map_or(weights, only);
        let all = match layer.compares_inputs {
            true => COMPARED_BITS,
            false => inputs,
        };
        let inputs = input_bits.map_or(all, only);
        weights.flat_map(move |weights| inputs.clone().map(move |inputs| (weights, inputs)))
    }

    /// Bits of weights that may suffice, of answers whose bits cost: each size that is tried reads
    /// all weights. With fewer bits rounding the weights alone takes more than the tolerance, as an
    /// error halves with each. With more, the weights add bits to answers and no precision.
    fn likely(&self, layer: &LayerProfile) -> RangeInclusive<u32> {
        let (least, most) = (*WEIGHT_BITS.start(), *WEIGHT_BITS.end());
        let error = layer.at(TYPICAL_BITS, *INPUT_BITS.end()).error / self.tolerances[layer.node];
        let fewest = (f64::from(TYPICAL_BITS) + error.log2().floor()) as u32;
        let fewest = fewest.clamp(least, most - LIKELY);
        fewest..=fewest + LIKELY
    }

    /// The precision of the lowest rank, among those some modulus carries.
    fn search(&self, layer: &LayerProfile, given: Option<u32>) -> Option<Precision> {
        let likely = self
            .narrow
            .then(|| self.best(layer, self.likely(layer), given))
            .flatten();
        let within = |(_, (kind, ..)): &(Precision, Rank)| *kind == 0;
        let best = likely.filter(within);
        let best = best.or_else(|| self.best(layer, WEIGHT_BITS, given));
        let is_reached =
            |&(_, (kind, _, error)): &(Precision, Rank)| kind < LAST_RESORT && error <= MOST_EXCESS;
        // Digits of a comparison would be rounded before it.
        let is_whole = !self.narrow || layer.compares_inputs;
        if is_whole || best.as_ref().is_some_and(is_reached) {
            return best.map(|(precision, _)| precision);
        }
        let mut closest = best;
        for count in 1..=self.low_digits {
            let found = self.search_in_digits(layer, count, given);
            let both = [closest, found].into_iter().flatten();
            closest = both.min_by(|(_, (.., x)), (_, (.., y))| x.total_cmp(y));
            if closest.as_ref().is_some_and(is_reached) {
                break;
            }
        }
        closest.map(|(precision, _)| precision)
    }

    /// The precision of the lowest rank with so many bits of weights, where users chose none.
    fn best(
        &self,
        layer: &LayerProfile,
        weights: RangeInclusive<u32>,
        given: Option<u32>,
    ) -> Option<(Precision, Rank)> {
        let tolerance = self.tolerances[layer.node];
        let mut best = Best::default();
        for (weight_bits, input_bits) in self.grid(layer, (weights, INPUT_BITS), given) {
            let candidate = layer.at(weight_bits, input_bits);
            let demand = demand(&candidate, input_bits);
            let bits = demand.modulus_bits();
            let error = candidate.error / tolerance;
            let rank = if self.narrow && bits <= MAX_U64_BITS {
                let answer = demand.width.log2().ceil() as u32;
                let wide = self.most_bits + ALONE_BITS;
                let is_alone = layer.is_activated && !layer.is_compared;
                let word = if self.circuits {
                    candidate.bits
                } else {
                    answer
                };
                let fits = word <= self.most_bits || (is_alone && candidate.bits <= wide);
                match fits {
                    true => rank_by_bits(answer, error),
                    // A last resort: the narrowest.
                    false => (LAST_RESORT, answer, error),
                }
            } else if self.narrow {
                // Shares have 32 bits, and parts of a layer one modulus.
                continue;
            } else if bits <= 31 {
                rank_narrow(bits, error)
            } else if let Some((digits, bits)) = split_bits(layer, weight_bits, input_bits) {
                rank_split(digits, bits, error)
            } else if bits <= MAX_U64_BITS {
                rank_wide(bits, error)
            } else {
                continue;
            };
            let precision = Precision {
                weight_bits,
                input_bits,
                low: None,
            };
            best.offer(precision, rank);
        }
        best.0
    }

    /// The layer with so many low digits: the precision with the fewest bits of answers within the
    /// tolerance, or the least error. Statistics of digits take longer than those of whole weights,
    /// so these say in which order precisions are tried.
    fn search_in_digits(
        &self,
        layer: &LayerProfile,
        count: u32,
        given: Option<u32>,
    ) -> Option<(Precision, Rank)> {
        let tolerance = self.tolerances[layer.node];
        let of_whole = |(weight_bits, input_bits)| {
            let whole = layer.at(weight_bits, input_bits);
            let rank = rank_by_bits(whole.bits, whole.error / tolerance);
            (rank, whole.bits, weight_bits, input_bits)
        };
        let inputs = match count {
            1 => INPUT_BITS,
            _ => INPUTS_OF_DIGITS,
        };
        let mut all: Vec<_> = self
            .grid(layer, (WEIGHTS_IN_DIGITS, inputs), given)
            .map(of_whole)
            .collect();
        all.sort_by(|((a, m, x), ..), ((b, n, y), ..)| (a, m).cmp(&(b, n)).then(x.total_cmp(y)));
        all.into_iter()
            .find_map(|(rank, whole, weight_bits, input_bits)| {
                let low = low_digits(layer, whole, (weight_bits, input_bits), count)?;
                let precision = Precision {
                    weight_bits,
                    input_bits,
                    low: Some(low),
                };
                Some((precision, rank))
            })
    }
}

/// So many low digits, of the fewest bits with which the sums of all digits fit, where one sum would
/// have `whole` bits.
fn low_digits(
    layer: &LayerProfile,
    whole: u32,
    precision: (u32, u32),
    count: u32,
) -> Option<LowDigits> {
    let most = MOST_HIGH - u32::from(layer.is_compared);
    // The sums of high digits have about as many bits less, and those of low ones grow.
    let least = whole.saturating_sub(most + 1).div_ceil(count);
    let least = least.max(LEAST_LOW);
    let mut all = (least..=least + 2).filter(|&bits| count * bits < precision.0);
    let fits = |&bits: &u32| {
        let most_of = |digit: Digit| match digit {
            Digit::Low(_) => (digit, MOST_LOW),
            Digit::Middle { .. } => (digit, MOST_MIDDLE),
            _ => (digit, most),
        };
        let digits: Vec<_> = Digit::cut(count as usize + 1, bits).map(most_of).collect();
        layer.digits_fit(precision, &digits)
    };
    let bits = all.find(fits)?;
    Some(LowDigits { count, bits })
}

/// The kind of precisions beyond the tolerance.
const IMPRECISE: u32 = 7;

/// The kind of precisions whose answers have too many bits.
const LAST_RESORT: u32 = 8;

/// An order of precisions, the best the lowest: its kind, bits, and the error in tolerances.
type Rank = (u32, u32, f64);

/// The precision of the lowest rank so far.
#[derive(Default)]
struct Best(Option<(Precision, Rank)>);

impl Best {
    fn offer(&mut self, precision: Precision, rank: Rank) {
        let is_lower = |(_, other): &(Precision, Rank)| {
            rank.partial_cmp(other).is_some_and(|order| order.is_lt())
        };
        if self.0.as_ref().is_none_or(is_lower) {
            self.0 = Some((precision, rank));
        }
    }
}

/// The fewest bits of an answer within the tolerance.
fn rank_by_bits(bits: u32, error: f64) -> Rank {
    match error <= 1.0 {
        true => (0, bits, error),
        false => (IMPRECISE, 0, error),
    }
}

/// In 32-bit words a smaller modulus saves traffic only: well within the tolerance it comes first,
/// then precision does.
fn rank_narrow(bits: u32, error: f64) -> Rank {
    match error {
        ..=0.2 => (0, bits, error),
        ..=0.6 => (1, 0, error),
        ..=1.0 => (3, 0, error),
        _ => (IMPRECISE, 0, error),
    }
}

/// Several answers an element instead of one, in 32-bit words.
fn rank_split(digits: usize, bits: u32, error: f64) -> Rank {
    match (digits, error) {
        (2, ..=0.4) => (2, bits, error),
        (3.., ..=0.6) => (1 + digits as u32, bits, error),
        _ => (IMPRECISE, 0, error),
    }
}

/// 64-bit words cost several times as much.
fn rank_wide(bits: u32, error: f64) -> Rank {
    match error <= 1.0 {
        true => (6, bits, error),
        false => (IMPRECISE, 0, error),
    }
}

/// The fewest digits of weights, two or more, that 32-bit words carry, and the bits of the modulus.
fn split_bits(layer: &LayerProfile, weight_bits: u32, input_bits: u32) -> Option<(usize, u32)> {
    (2..=MAX_PARTS).find_map(|count| {
        let bits = match count {
            2 => weight_bits / 2,
            _ => weight_bits.div_ceil(count as u32),
        };
        if !(1..MAX_LOW_BITS).contains(&bits) {
            return None;
        }
        let demand = |digit| demand(&layer.digit_at(weight_bits, input_bits, digit), input_bits);
        let demands: Vec<_> = Digit::cut(count, bits).map(demand).collect();
        let modulus_bits = Demand::all(&demands).modulus_bits();
        (modulus_bits <= 31).then_some((count, modulus_bits))
    })
}

impl PrecisionChooser for ModulusBudget<'_> {
    fn choose(&self, layer: &LayerProfile) -> Result<Precision, String> {
        self.found(layer, self.input_bits)
    }

    fn choose_beside(&self, layer: &LayerProfile, input_bits: u32) -> Result<Precision, String> {
        self.found(layer, Some(input_bits))
    }

    /// The fewest that round both factors within the tolerance, half of it each: a bit of either is
    /// a bit of the product's shares.
    fn choose_factor(&self, factor: &FactorProfile) -> u32 {
        let tolerance = self.tolerances[factor.node] * std::f64::consts::FRAC_1_SQRT_2;
        let precise = |&bits: &u32| factor.error(bits) <= tolerance;
        let fewest = INPUT_BITS.clone().find(precise);
        self.input_bits.or(fewest).unwrap_or(*INPUT_BITS.end())
    }
}

/// What a candidate precision asks of the modulus.
fn demand(candidate: &Candidate, input_bits: u32) -> Demand {
    Demand {
        width: candidate.width,
        input: (1u64 << input_bits) as f64,
        norm1: candidate.norm1,
        norm2: candidate.norm2,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pronghorn_ring::security;

    /// The inequalities that make decryption exact, and the security table, for all carriers.
    #[test]
    fn carriers_are_exact_and_secure() {
        for width in [1.0, 100.0, 5e4, 3e6, 1e9] {
            for (norm2, positions) in [
                (0.0, 1),
                (1.0, 1),
                (30.0, 4),
                (1e3, 1),
                (1e3, 2304),
                (1e5, 1),
            ] {
                let demand = Demand {
                    width,
                    input: 63.0,
                    norm1: norm2 * 20.0,
                    norm2,
                };
                let Some((carrier, scale_log)) = demand.carrier((845, 100), positions) else {
                    continue;
                };
                assert!(security::check(carrier.degree, carrier.modulus_bits()).is_ok());
                let error = demand.noise()
                    + ((1u64 << carrier.dropped_bits) >> 1)
                    + noise::dropped_a_bound(carrier.degree, carrier.dropped_bits_a);
                assert!(error < 1u64 << (scale_log - 1), "{demand:?} {carrier:?}");
                let span = (width / 2.0 + 1.0) * 2f64.powi(scale_log as i32);
                assert!(
                    span + error as f64 <= carrier.modulus as f64 / 2.0,
                    "{demand:?} {carrier:?}"
                );
            }
        }
    }

    #[test]
    fn too_wide_is_refused() {
        assert!(
            Demand {
                width: 2f64.powi(40),
                input: 1.0,
                norm1: 1e8,
                norm2: 1e7
            }
            .carrier((1, 1), 1)
            .is_none()
        );
    }
}
