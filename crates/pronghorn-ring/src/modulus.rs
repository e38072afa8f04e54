//! Arithmetic modulo a prime and modulo a power of two.
//!
//! Operations are constant time in their operands (not in the modulus or an exponent, which are
//! public). Inputs of every operation are reduced unless it says otherwise, and so are outputs.

use thiserror::Error;

use crate::Word;

/// Why a number cannot be a modulus.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum ModulusError {
    /// Even, one, zero or composite.
    #[error(
        "modulus {value} is not an odd prime; take one from largest_ntt_prime or another odd prime"
    )]
    NotAnOddPrime {
        /// What was given.
        value: u64,
    },
    /// Too large for the word.
    #[error(
        "modulus {value} has {bits} bits, primes in {word_bits}-bit words have at most {limit}; \
         use wider words or a smaller prime"
    )]
    TooWide {
        /// What was given.
        value: u64,
        /// Its bits.
        bits: u32,
        /// Bits of the word.
        word_bits: u32,
        /// Most bits a prime may have.
        limit: u32,
    },
    /// A power of two that no word holds.
    #[error("modulus 2^{bits} does not fit {word_bits}-bit words; use 1 to {word_bits} bits")]
    Exponent {
        /// The exponent given.
        bits: u32,
        /// Bits of the word.
        word_bits: u32,
    },
}

/// What [`Prime`] and [`PowerOfTwo`] have in common.
pub trait Modulus<W: Word>: Copy {
    /// Bits a residue takes.
    fn bits(&self) -> u32;
    /// `x + y`.
    fn add(&self, x: W, y: W) -> W;
    /// `x - y`.
    fn sub(&self, x: W, y: W) -> W;
    /// `-x`.
    fn neg(&self, x: W) -> W;
    /// `x * y`.
    fn mul(&self, x: W, y: W) -> W;
    /// `x^exponent`; variable time in the exponent only.
    fn pow(&self, x: W, exponent: u64) -> W;
    /// `1 / x`, or `None` where `x` is not invertible.
    fn inverse(&self, x: W) -> Option<W>;
    /// The residue of any signed integer.
    #[expect(clippy::wrong_self_convention, reason = "the modulus is what converts")]
    fn from_i64(&self, value: i64) -> W;
    /// The representative of least absolute value.
    fn centre(&self, x: W) -> i64;
}

/// An odd prime `q < 2^MAX_PRIME_BITS` (31 bits in `u32`, 62 in `u64`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Prime<W> {
    q: W,
    /// `floor(2^(2 BITS) / q)`.
    reciprocal: u128,
    bits: u32,
}

impl<W: Word> Prime<W> {
    /// Checks that `q` is an odd prime that fits.
    ///
    /// # Errors
    /// [`ModulusError::TooWide`] or [`ModulusError::NotAnOddPrime`].
    pub fn new(q: u64) -> Result<Self, ModulusError> {
        let bits = u64::BITS - q.leading_zeros();
        if bits > W::MAX_PRIME_BITS {
            let (word_bits, limit) = (W::BITS, W::MAX_PRIME_BITS);
            return Err(ModulusError::TooWide {
                value: q,
                bits,
                word_bits,
                limit,
            });
        }
        if q == 2 || !is_prime(q) {
            return Err(ModulusError::NotAnOddPrime { value: q });
        }
        // q is odd, so it does not divide the power of two and the quotient of 2^(2 BITS) - 1 is the same.
        let reciprocal = (u128::MAX >> (128 - 2 * W::BITS)) / u128::from(q);
        Ok(Self {
            q: W::from_u64(q),
            reciprocal,
            bits,
        })
    }

    /// The prime.
    #[inline(always)]
    pub fn value(&self) -> u64 {
        self.q.to_u64()
    }

    /// The prime as a word.
    #[inline(always)]
    pub fn word(&self) -> W {
        self.q
    }

    /// Bits a residue takes: `q < 2^bits`.
    #[inline(always)]
    pub fn bits(&self) -> u32 {
        self.bits
    }

    /// Whether words are of 64 bits but residues below `4q` fit the multiplier of AVX-512 IFMA, of 52 bits.
    #[inline(always)]
    pub(crate) fn fits_short_multiplier(&self) -> bool {
        W::BITS == 64 && self.bits <= 50
    }

    /// `floor(2^(BITS + bits) / q)`.
    pub(crate) fn scaled_reciprocal(&self) -> u128 {
        self.reciprocal >> (W::BITS - self.bits)
    }

    /// The residue of any word.
    #[inline(always)]
    pub(crate) fn reduce_word(&self, x: W) -> W {
        let reciprocal = W::from_u64((self.reciprocal >> W::BITS) as u64);
        let quotient = x.mul_high(reciprocal);
        self.reduce_once(x.wrapping_sub(quotient.wrapping_mul(self.q)))
    }

    /// `x` or `x - q`, whichever is in `[0, q)`; for `x < 2q`.
    #[inline(always)]
    pub fn reduce_once(&self, x: W) -> W {
        // Where x < q the difference wraps to something larger than x.
        x.min(x.wrapping_sub(self.q))
    }

    /// `x + y mod q`.
    #[inline(always)]
    pub fn add(&self, x: W, y: W) -> W {
        self.reduce_once(x.wrapping_add(y))
    }

    /// `x - y mod q`.
    #[inline(always)]
    pub fn sub(&self, x: W, y: W) -> W {
        let difference = x.wrapping_sub(y);
        difference.min(difference.wrapping_add(self.q))
    }

    /// `-x mod q`.
    #[inline(always)]
    pub fn neg(&self, x: W) -> W {
        self.sub(W::default(), x)
    }

    /// `x * y mod q`. Where many products share a factor, [`mul_shoup`](Self::mul_shoup) is cheaper.
    #[inline]
    pub fn mul(&self, x: W, y: W) -> W {
        self.mul_shoup(x, y, self.shoup(y))
    }

    /// `floor(y * 2^BITS / q)`, the companion of a factor `y < q` in Shoup's multiplication.
    #[inline]
    pub fn shoup(&self, y: W) -> W {
        y.shoup_quotient(self.q, self.reciprocal)
    }

    /// `x * y mod q` for any word `x` (reduced or not), `y < q` and `y_shoup = shoup(y)` (V. Shoup; see
    /// D. Harvey, "Faster arithmetic for number-theoretic transforms", 2014, section 2).
    #[inline(always)]
    pub fn mul_shoup(&self, x: W, y: W, y_shoup: W) -> W {
        let quotient = x.mul_high(y_shoup);
        self.reduce_once(
            x.wrapping_mul(y)
                .wrapping_sub(quotient.wrapping_mul(self.q)),
        )
    }

    /// `x^exponent mod q`; variable time in the exponent only.
    pub fn pow(&self, x: W, exponent: u64) -> W {
        let mut power = W::from_u64(1);
        for bit in (0..u64::BITS - exponent.leading_zeros()).rev() {
            power = self.mul(power, power);
            if exponent >> bit & 1 == 1 {
                power = self.mul(power, x);
            }
        }
        power
    }

    /// `1 / x mod q` as `x^(q-2)`, or `None` for 0 (the one thing its timing shows).
    pub fn inverse(&self, x: W) -> Option<W> {
        (x != W::default()).then(|| self.pow(x, self.value() - 2))
    }

    /// The residue of any signed integer.
    #[inline]
    pub fn from_i64(&self, value: i64) -> W {
        let magnitude = value.unsigned_abs();
        let reciprocal = (self.reciprocal >> (2 * W::BITS - 64)) as u64; // floor(2^64 / q)
        let quotient = ((u128::from(magnitude) * u128::from(reciprocal)) >> 64) as u64;
        let lazy = magnitude - quotient * self.value(); // below 2q
        let residue = self.reduce_once(W::from_u64(lazy));
        let negative = (value >> 63) as u64;
        let (plus, minus) = (residue.to_u64(), self.neg(residue).to_u64());
        W::from_u64(plus ^ ((plus ^ minus) & negative))
    }

    /// The representative in `(-q/2, q/2]`.
    #[inline(always)]
    pub fn centre(&self, x: W) -> i64 {
        let (x, q) = (x.to_u64() as i64, self.value() as i64);
        let above_half = (q / 2 - x) >> 63;
        x - (q & above_half)
    }
}

/// The modulus `2^bits`, `1 <= bits <= W::BITS`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PowerOfTwo<W> {
    mask: W,
    bits: u32,
}

impl<W: Word> PowerOfTwo<W> {
    /// The modulus `2^bits`.
    ///
    /// # Errors
    /// [`ModulusError::Exponent`] unless `1 <= bits <= W::BITS`.
    pub fn new(bits: u32) -> Result<Self, ModulusError> {
        if !(1..=W::BITS).contains(&bits) {
            return Err(ModulusError::Exponent {
                bits,
                word_bits: W::BITS,
            });
        }
        Ok(Self {
            mask: W::from_u64(u64::MAX >> (64 - bits)),
            bits,
        })
    }

    /// Bits a residue takes.
    #[inline(always)]
    pub fn bits(&self) -> u32 {
        self.bits
    }

    /// The residue of any word.
    #[inline(always)]
    pub fn reduce(&self, x: W) -> W {
        x & self.mask
    }

    /// `x + y mod 2^bits`.
    #[inline(always)]
    pub fn add(&self, x: W, y: W) -> W {
        self.reduce(x.wrapping_add(y))
    }

    /// `x - y mod 2^bits`.
    #[inline(always)]
    pub fn sub(&self, x: W, y: W) -> W {
        self.reduce(x.wrapping_sub(y))
    }

    /// `-x mod 2^bits`.
    #[inline(always)]
    pub fn neg(&self, x: W) -> W {
        self.sub(W::default(), x)
    }

    /// `x * y mod 2^bits`.
    #[inline(always)]
    pub fn mul(&self, x: W, y: W) -> W {
        self.reduce(x.wrapping_mul(y))
    }

    /// `x^exponent mod 2^bits`; variable time in the exponent only.
    pub fn pow(&self, x: W, exponent: u64) -> W {
        let mut power = self.reduce(W::from_u64(1));
        for bit in (0..u64::BITS - exponent.leading_zeros()).rev() {
            power = self.mul(power, power);
            if exponent >> bit & 1 == 1 {
                power = self.mul(power, x);
            }
        }
        power
    }

    /// `1 / x mod 2^bits`, or `None` for even `x` (the one thing its timing shows).
    pub fn inverse(&self, x: W) -> Option<W> {
        if x & W::from_u64(1) == W::default() {
            return None;
        }
        // Newton's iteration: x * x = 1 modulo 8, and each step doubles the bits that are right.
        let two = W::from_u64(2);
        let mut inverse = x;
        for _ in 0..5 {
            inverse = inverse.wrapping_mul(two.wrapping_sub(x.wrapping_mul(inverse)));
        }
        Some(self.reduce(inverse))
    }

    /// The residue of any signed integer.
    #[inline(always)]
    pub fn from_i64(&self, value: i64) -> W {
        W::from_u64(value as u64 & self.mask.to_u64())
    }

    /// The representative in `[-2^(bits-1), 2^(bits-1))`.
    #[inline(always)]
    pub fn centre(&self, x: W) -> i64 {
        let unused = 64 - self.bits;
        ((x.to_u64() << unused) as i64) >> unused
    }
}

macro_rules! modulus {
    ($modulus:ident) => {
        impl<W: Word> Modulus<W> for $modulus<W> {
            #[inline(always)]
            fn bits(&self) -> u32 {
                self.bits()
            }
            #[inline(always)]
            fn add(&self, x: W, y: W) -> W {
                self.add(x, y)
            }
            #[inline(always)]
            fn sub(&self, x: W, y: W) -> W {
                self.sub(x, y)
            }
            #[inline(always)]
            fn neg(&self, x: W) -> W {
                self.neg(x)
            }
            #[inline(always)]
            fn mul(&self, x: W, y: W) -> W {
                self.mul(x, y)
            }
            fn pow(&self, x: W, exponent: u64) -> W {
                self.pow(x, exponent)
            }
            fn inverse(&self, x: W) -> Option<W> {
                self.inverse(x)
            }
            #[inline(always)]
            fn from_i64(&self, value: i64) -> W {
                self.from_i64(value)
            }
            #[inline(always)]
            fn centre(&self, x: W) -> i64 {
                self.centre(x)
            }
        }
    };
}

modulus!(Prime);
modulus!(PowerOfTwo);

/// The largest prime `q < 2^bits` with `q = 1 mod 2n`, so that `Z_q[X] / (X^n + 1)` has an NTT;
/// `None` where there is none, or for more than 62 bits.
pub fn largest_ntt_prime(bits: u32, n: usize) -> Option<u64> {
    if bits > <u64 as Word>::MAX_PRIME_BITS {
        return None;
    }
    let step = u64::try_from(n)
        .ok()?
        .checked_mul(2)
        .filter(|&step| step > 0)?;
    let last = (1u64 << bits).checked_sub(2)?; // the largest candidate less one
    let mut candidate = last / step * step + 1;
    while candidate > step {
        if is_prime(candidate) {
            return Some(candidate);
        }
        candidate -= step;
    }
    None
}

/// Miller and Rabin's test, exact below 2^64 with the first twelve primes as bases (Sorenson
/// and Webster, "Strong pseudoprimes to twelve prime bases", 2017). Variable time: moduli are public.
fn is_prime(q: u64) -> bool {
    const BASES: [u64; 12] = [2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37];
    if q < 2 {
        return false;
    }
    if let Some(&divisor) = BASES.iter().find(|&&base| q.is_multiple_of(base)) {
        return q == divisor;
    }
    let twos = (q - 1).trailing_zeros();
    BASES.iter().all(|&base| passes(q, base, twos))
}

/// Whether `q` is a strong probable prime to `base`; `q - 1 = odd * 2^twos`.
fn passes(q: u64, base: u64, twos: u32) -> bool {
    let mut power = pow_plain(base, (q - 1) >> twos, q);
    if power == 1 || power == q - 1 {
        return true;
    }
    for _ in 1..twos {
        power = mul_plain(power, power, q);
        if power == q - 1 {
            return true;
        }
    }
    false
}

fn mul_plain(x: u64, y: u64, q: u64) -> u64 {
    (u128::from(x) * u128::from(y) % u128::from(q)) as u64
}

fn pow_plain(base: u64, mut exponent: u64, q: u64) -> u64 {
    let (mut power, mut square) = (1, base % q);
    while exponent > 0 {
        if exponent & 1 == 1 {
            power = mul_plain(power, square, q);
        }
        square = mul_plain(square, square, q);
        exponent >>= 1;
    }
    power
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Primes at the edges of what the words hold, and small ones.
    const PRIMES_U32: [u64; 5] = [3, 17, 65_537, 1_073_741_827, 2_147_483_647];
    const PRIMES_U64: [u64; 4] = [3, 2_147_483_647, (1 << 61) - 1, (1 << 62) - 57];

    #[test]
    fn known_primes_are_found() {
        // Largest below 2^31 and congruent to 1 modulo 4096, found by trial division.
        let q = largest_ntt_prime(31, 2048).unwrap();
        assert_eq!(q % 4096, 1);
        let trial = |q: u64| (2..=q.isqrt()).all(|divisor| !q.is_multiple_of(divisor));
        assert!(trial(q));
        assert!(
            (q + 4096..1 << 31)
                .step_by(4096)
                .all(|composite| !trial(composite))
        );
        assert_eq!(largest_ntt_prime(5, 8), Some(17));
        assert_eq!(largest_ntt_prime(4, 8), None);
        assert_eq!(largest_ntt_prime(63, 8), None);
        assert_eq!(largest_ntt_prime(0, 8), None);
        assert_eq!(largest_ntt_prime(10, 0), None);
        assert_eq!(largest_ntt_prime(10, usize::MAX), None);
    }

    #[test]
    fn primality_matches_a_sieve_and_rejects_pseudoprimes() {
        let mut composite = [false; 10_000];
        for i in 2..10_000 {
            assert_eq!(is_prime(i as u64), !composite[i]);
            for multiple in (i * i..10_000).step_by(i) {
                composite[multiple] = true;
            }
        }
        assert!(!is_prime(0) && !is_prime(1));
        // Carmichael, and strong pseudoprimes to the first 1, 4 and 9 bases.
        for q in [561, 2047, 3_215_031_751, 3_825_123_056_546_413_051] {
            assert!(!is_prime(q));
        }
        assert!(is_prime((1 << 61) - 1) && is_prime(u64::MAX - 58));
    }

    #[test]
    fn bad_moduli_are_refused() {
        for value in [0, 1, 2, 15, 1 << 20] {
            assert_eq!(
                Prime::<u32>::new(value),
                Err(ModulusError::NotAnOddPrime { value })
            );
        }
        let value = (1 << 31) + 11;
        assert!(is_prime(value));
        let wide = ModulusError::TooWide {
            value,
            bits: 32,
            word_bits: 32,
            limit: 31,
        };
        assert_eq!(Prime::<u32>::new(value), Err(wide));
        assert!(Prime::<u64>::new(value).is_ok());
        assert!(Prime::<u64>::new(u64::MAX - 58).is_err());
        assert!(PowerOfTwo::<u32>::new(0).is_err());
        assert!(PowerOfTwo::<u32>::new(33).is_err());
        assert!(PowerOfTwo::<u64>::new(64).is_ok());
    }

    /// Every operation against wide integers.
    fn check_prime<W: Word>(prime: u64, x: u64, y: u64, signed: i64) {
        let q = Prime::<W>::new(prime).unwrap();
        let (x, y) = (x % prime, y % prime);
        let (wx, wy) = (W::from_u64(x), W::from_u64(y));
        let wide = u128::from(prime);
        assert_eq!(
            q.add(wx, wy).to_u64(),
            ((u128::from(x) + u128::from(y)) % wide) as u64
        );
        assert_eq!(
            q.sub(wx, wy).to_u64(),
            ((wide + u128::from(x) - u128::from(y)) % wide) as u64
        );
        assert_eq!(q.neg(wx).to_u64(), (prime - x) % prime);
        assert_eq!(q.mul(wx, wy).to_u64(), mul_plain(x, y, prime));
        assert_eq!(q.pow(wx, y).to_u64(), pow_plain(x, y, prime));
        assert_eq!(
            q.shoup(wx).to_u64(),
            ((u128::from(x) << W::BITS) / wide) as u64
        );
        assert_eq!(
            i128::from(q.from_i64(signed).to_u64()),
            i128::from(signed).rem_euclid(wide as i128)
        );
        let centred = q.centre(wx);
        assert_eq!(q.from_i64(centred), wx);
        assert!(
            2 * i128::from(centred) <= wide as i128 && 2 * i128::from(centred) > -(wide as i128)
        );
        match q.inverse(wx) {
            Some(inverse) => assert_eq!(q.mul(inverse, wx).to_u64(), 1),
            None => assert_eq!(x, 0),
        }
    }

    fn check_power_of_two<W: Word>(bits: u32, x: u64, y: u64, signed: i64) {
        let q = PowerOfTwo::<W>::new(bits).unwrap();
        let mask = u64::MAX >> (64 - bits);
        let (x, y) = (x & mask, y & mask);
        let (wx, wy) = (W::from_u64(x), W::from_u64(y));
        assert_eq!(q.add(wx, wy).to_u64(), x.wrapping_add(y) & mask);
        assert_eq!(q.sub(wx, wy).to_u64(), x.wrapping_sub(y) & mask);
        assert_eq!(q.neg(wx).to_u64(), x.wrapping_neg() & mask);
        assert_eq!(q.mul(wx, wy).to_u64(), x.wrapping_mul(y) & mask);
        assert_eq!(q.pow(wx, 5), q.mul(wx, q.mul(q.mul(wx, wx), q.mul(wx, wx))));
        assert_eq!(q.from_i64(signed).to_u64(), signed as u64 & mask);
        let centred = q.centre(wx);
        assert_eq!(q.from_i64(centred), wx);
        assert!((-(1i128 << (bits - 1))..1i128 << (bits - 1)).contains(&i128::from(centred)));
        match q.inverse(wx) {
            Some(inverse) => assert_eq!(q.mul(inverse, wx).to_u64(), 1),
            None => assert_eq!(x % 2, 0),
        }
    }

    #[test]
    fn edges_of_primes() {
        let edges = |prime: u64| [0, 1, 2, prime / 2, prime / 2 + 1, prime - 2, prime - 1];
        let signed = [0, 1, -1, i64::MAX, i64::MIN, i64::MIN + 1];
        for prime in PRIMES_U32 {
            for (x, y) in edges(prime)
                .into_iter()
                .flat_map(|x| edges(prime).map(|y| (x, y)))
            {
                signed
                    .iter()
                    .for_each(|&signed| check_prime::<u32>(prime, x, y, signed));
            }
        }
        for prime in PRIMES_U64 {
            for (x, y) in edges(prime)
                .into_iter()
                .flat_map(|x| edges(prime).map(|y| (x, y)))
            {
                signed
                    .into_iter()
                    .for_each(|signed| check_prime::<u64>(prime, x, y, signed));
            }
        }
    }

    proptest! {
        #[test]
        fn primes_agree_with_wide_integers(x: u64, y: u64, signed: i64, index in 0usize..4) {
            check_prime::<u32>(PRIMES_U32[index + 1], x, y, signed);
            check_prime::<u64>(PRIMES_U64[index], x, y, signed);
        }

        #[test]
        fn powers_of_two_agree_with_masking(x: u64, y: u64, signed: i64, bits in 1u32..=64) {
            check_power_of_two::<u64>(bits, x, y, signed);
            check_power_of_two::<u32>(bits.div_ceil(2), x, y, signed);
        }

        #[test]
        fn shoup_takes_any_word(x: u32, y: u32) {
            let q = Prime::<u32>::new(PRIMES_U32[4]).unwrap();
            let y = y % q.word();
            prop_assert_eq!(q.mul_shoup(x, y, q.shoup(y)), (u64::from(x) * u64::from(y) % q.value()) as u32);
        }
    }
}
