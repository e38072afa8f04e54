//! Moduli of shares, and values out of shares.

use pronghorn_ring::{ModulusError, PowerOfTwo, Prime};

use super::{Bit, Builder, CircuitError, Term};

/// The modulus of additive shares.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Modulus {
    /// `2^k`, up to 64 bits.
    PowerOfTwo(PowerOfTwo<u64>),
    /// An odd prime, up to 62 bits.
    Prime(Prime<u64>),
}

impl Modulus {
    /// `2^bits`.
    ///
    /// # Errors
    /// Unless `1 <= bits <= 64`.
    pub fn power_of_two(bits: u32) -> Result<Self, ModulusError> {
        PowerOfTwo::new(bits).map(Self::PowerOfTwo)
    }

    /// The prime `p`.
    ///
    /// # Errors
    /// Unless `p` is an odd prime below `2^62`.
    pub fn prime(p: u64) -> Result<Self, ModulusError> {
        Prime::new(p).map(Self::Prime)
    }

    /// Bits a residue takes.
    #[inline(always)]
    pub fn bits(self) -> u32 {
        match self {
            Self::PowerOfTwo(modulus) => modulus.bits(),
            Self::Prime(modulus) => modulus.bits(),
        }
    }

    /// `x + y`.
    #[inline(always)]
    pub fn add(self, x: u64, y: u64) -> u64 {
        match self {
            Self::PowerOfTwo(modulus) => modulus.add(x, y),
            Self::Prime(modulus) => modulus.add(x, y),
        }
    }

    /// `x - y`.
    #[inline(always)]
    pub fn sub(self, x: u64, y: u64) -> u64 {
        match self {
            Self::PowerOfTwo(modulus) => modulus.sub(x, y),
            Self::Prime(modulus) => modulus.sub(x, y),
        }
    }

    /// `-x`.
    #[inline(always)]
    pub fn neg(self, x: u64) -> u64 {
        self.sub(0, x)
    }

    /// `x * y`.
    #[inline(always)]
    pub fn mul(self, x: u64, y: u64) -> u64 {
        match self {
            Self::PowerOfTwo(modulus) => modulus.mul(x, y),
            Self::Prime(modulus) => modulus.mul(x, y),
        }
    }

    /// The residue of any signed integer.
    #[inline]
    pub fn from_i64(self, value: i64) -> u64 {
        match self {
            Self::PowerOfTwo(modulus) => modulus.from_i64(value),
            Self::Prime(modulus) => modulus.from_i64(value),
        }
    }

    /// The representative of least absolute value.
    #[inline]
    pub fn centre(self, x: u64) -> i64 {
        match self {
            Self::PowerOfTwo(modulus) => modulus.centre(x),
            Self::Prime(modulus) => modulus.centre(x),
        }
    }

    /// The largest centred value; the least is minus it, and one less modulo `2^k`.
    pub fn largest(self) -> i64 {
        match self {
            Self::PowerOfTwo(modulus) => i64::MAX >> (64 - modulus.bits()),
            Self::Prime(modulus) => (modulus.value() / 2) as i64,
        }
    }

    /// True if centred residues hold `low..=high`.
    pub fn holds(self, low: i64, high: i64) -> bool {
        let least = match self {
            Self::PowerOfTwo(_) => -self.largest() - 1,
            Self::Prime(_) => -self.largest(),
        };
        least <= low && low <= high && high <= self.largest()
    }

    /// The smallest modulus that shares of values in `low..=high` may be reduced by: a smaller
    /// power of two, of which the parties just drop bits; a prime stays.
    pub fn narrowed(self, low: i64, high: i64) -> Self {
        match self {
            Self::PowerOfTwo(modulus) => {
                let bits = signed_width(low, high).min(modulus.bits());
                PowerOfTwo::new(bits).map_or(self, Self::PowerOfTwo)
            }
            Self::Prime(_) => self,
        }
    }

    /// The error for values that it does not hold.
    pub(crate) fn range_error(self, low: i64, high: i64) -> CircuitError {
        let modulus = match self {
            Self::PowerOfTwo(modulus) => format!("2^{}", modulus.bits()),
            Self::Prime(modulus) => format!("the prime {}", modulus.value()),
        };
        CircuitError::Range { low, high, modulus }
    }

    /// `(i, weight / 2^i, modulus / 2^i)`: multiples of `2^i` modulo `2^k` are `2^i` times residues
    /// modulo `2^(k-i)`. Modulo a prime `i` is 0.
    pub(super) fn without_twos(self, weight: u64) -> (u32, u64, Self) {
        let Self::PowerOfTwo(modulus) = self else {
            return (0, weight, self);
        };
        let twos = weight.trailing_zeros().min(modulus.bits() - 1);
        let rest = PowerOfTwo::new(modulus.bits() - twos).unwrap_or(modulus);
        (twos, weight >> twos, Self::PowerOfTwo(rest))
    }

    /// True if residues of this modulus, reduced by `other`, are residues of the integers they
    /// stood for.
    pub(crate) fn reduces_to(self, other: Self) -> bool {
        match (self, other) {
            (Self::PowerOfTwo(from), Self::PowerOfTwo(to)) => to.bits() <= from.bits(),
            (from, to) => from == to,
        }
    }
}

/// A value as additive shares on the inputs: the garbler's known when garbling, the evaluator's by
/// labels. Both parties' words must be reduced.
#[derive(Clone, Debug)]
pub struct Shared {
    modulus: Modulus,
    low: i64,
    high: i64,
    garbler: Vec<Bit>,
    evaluator: Vec<Bit>,
}

impl Shared {
    /// The modulus of the shares.
    pub fn modulus(&self) -> Modulus {
        self.modulus
    }

    /// The least and the largest value.
    pub fn range(&self) -> (i64, i64) {
        (self.low, self.high)
    }

    /// The terms of `scale * (garbler + evaluator)`, which cost nothing in a sum: each party adds
    /// up its own. Right in moduli that the shares' modulus reduces to: itself, and `2^j` for `2^k`
    /// with `j <= k`.
    pub fn terms(&self, modulus: Modulus, scale: i64) -> Vec<Term> {
        let mut terms = Term::unsigned(modulus, &self.garbler, scale);
        terms.extend(Term::unsigned(modulus, &self.evaluator, scale));
        terms
    }
}

/// Bits of a two's complement word for `low..=high`.
pub fn signed_width(low: i64, high: i64) -> u32 {
    let of = |x: i64| 65 - if x < 0 { !x } else { x }.leading_zeros();
    of(low).max(of(high))
}

impl Builder {
    /// Inputs for the shares of a value in `low..=high`.
    ///
    /// # Errors
    /// [`CircuitError::Range`] where centred values of the modulus do not reach that far.
    pub fn shared_input(
        &mut self,
        modulus: Modulus,
        low: i64,
        high: i64,
    ) -> Result<Shared, CircuitError> {
        if !modulus.holds(low, high) {
            return Err(modulus.range_error(low, high));
        }
        let bits = modulus.bits();
        Ok(Shared {
            modulus,
            low,
            high,
            garbler: self.garbler_input(bits),
            evaluator: self.evaluator_input(bits),
        })
    }

    /// The value plus `offset`, in two's complement, of the fewest bits that hold its range.
    ///
    /// Modulo `2^k`: at most `k - 1` AND gates, one of them half. Modulo a `k`-bit prime: `2k - 3`
    /// and a half one where the value is below `2^(k-2)` in size, else up to `3k`.
    ///
    /// # Panics
    /// Where `low + offset..=high + offset` does not fit the modulus.
    pub fn reconstruct(&mut self, shared: &Shared, offset: i64) -> Vec<Bit> {
        let (low, high) = (shared.low + offset, shared.high + offset);
        let width = signed_width(low, high);
        match shared.modulus {
            Modulus::PowerOfTwo(modulus) => {
                assert!(
                    width <= modulus.bits(),
                    "the offset takes values out of the modulus"
                );
                let width = width as usize;
                // The garbler adds the offset to its share: known bits cost nothing.
                let offset = self.constant(offset, width);
                let garbler = self.add(&shared.garbler[..width], &offset);
                self.add(&garbler, &shared.evaluator[..width])
            }
            Modulus::Prime(prime) => {
                let p = prime.value();
                assert!(
                    i128::from(high) - i128::from(low) < i128::from(p),
                    "the offset takes values out of the modulus"
                );
                // z = x + lift has no sign: no centring. A power of two comes off again by flipping
                // a bit.
                let power = 1i64.checked_shl(width - 1).unwrap_or(i64::MAX);
                let fits = i128::from(high) + i128::from(power) < i128::from(p);
                let lift = if fits { power } else { -low };
                let back = self.constant(-lift, width as usize);
                let lift = shared.modulus.from_i64(offset + lift) as i64;
                let lift = self.constant(lift, shared.garbler.len());
                let garbler = self.add_mod_prime(&shared.garbler, &lift, p);
                let z = self.add_mod_prime(&shared.evaluator, &garbler, p);
                let z = self.resize(&z, width as usize);
                self.add(&z, &back)
            }
        }
    }

    /// True if the value is below zero.
    ///
    /// Modulo `2^k`: `k - 2` AND gates and a half one, fewer where the range is smaller. Modulo a
    /// `k`-bit prime `p`: `x >= 0` where the evaluator's share is in an interval that starts at
    /// minus the garbler's, modulo `p`. Where all values are below `2^(k-2)` in size, one
    /// subtraction and one gate on its top bits tell (`k` AND gates and a half one), else two
    /// comparisons with known thresholds (`2k - 2` and two half ones).
    pub fn is_negative(&mut self, shared: &Shared) -> Bit {
        match shared.modulus {
            Modulus::PowerOfTwo(_) => {
                let word = self.reconstruct(shared, 0);
                word[word.len() - 1]
            }
            Modulus::Prime(prime) => self.is_negative_mod_prime(shared, prime.value()),
        }
    }

    fn is_negative_mod_prime(&mut self, shared: &Shared, p: u64) -> Bit {
        let k = shared.evaluator.len();
        // start = -garbler mod p, so x = evaluator - start mod p.
        let zeros = vec![Bit::ZERO; k];
        let start = self.sub_mod_prime(&zeros, &shared.garbler, p);
        let largest = shared.low.unsigned_abs().max(shared.high.unsigned_abs());
        if k >= 3 && largest < 1 << (k - 2) {
            // Without a borrow w = x mod p, with one w = x - p + 2^k. As p > 2^(k-1), the top two
            // bits of w are 00 for x >= 0 and not for x < 0 in the first case, 11 for x < 0 and not
            // for x >= 0 in the second.
            let (w, borrow) = self.subtract(&shared.evaluator, &start);
            let no_borrow = self.not(borrow);
            return self.majority(w[k - 1], w[k - 2], no_borrow);
        }
        // x < half, modulo p, is: evaluator in [start, end), an interval that may wrap around p.
        let half = self.constant((p / 2 + 1) as i64, k);
        let end = self.add_mod_prime(&half, &start, p);
        let behind_start = self.at_least(&shared.evaluator, &start);
        let behind_end = self.at_least(&shared.evaluator, &end);
        let wraps = self.less_than(&end, &start);
        let outside = self.xor(behind_start, behind_end);
        let inside = self.xor(outside, wraps);
        self.not(inside)
    }

    /// The word `y - mask`, in the modulus, for an output that the evaluator learns while the
    /// garbler keeps `mask`: a fresh additive share made inside the circuit. A projection
    /// ([`Builder::output_sum`]) costs a twentieth.
    ///
    /// Modulo `2^k`: `k - 2` AND gates and a half one with a mask known to the garbler. Modulo a
    /// prime: `2k - 2` and a half one.
    ///
    /// # Panics
    /// Unless `y` and `mask` have as many bits as the modulus.
    pub fn reshare(&mut self, y: &[Bit], mask: &[Bit], modulus: Modulus) -> Vec<Bit> {
        match modulus {
            Modulus::PowerOfTwo(_) => self.sub(y, mask),
            Modulus::Prime(prime) => self.sub_mod_prime(y, mask, prime.value()),
        }
    }
}
