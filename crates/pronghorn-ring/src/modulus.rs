//! Arithmetic modulo a prime and modulo a power of two.
//!
//! Operations are constant time in their operands (not in the modulus or an exponent, which are
//! public). Inputs of every operation are reduced unless it says otherwise, and so are outputs.

mod power_of_two;
mod prime;
mod search;

use thiserror::Error;

pub use power_of_two::PowerOfTwo;
pub use prime::Prime;
pub use search::largest_ntt_prime;

use crate::Word;

/// Why a number cannot be a modulus.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum ModulusError {
    /// Even, one, zero or composite.
    #[error(
        "modulus {value} is not an odd prime; take one from largest_ntt_prime or another odd prime"
    )]
    NotAnOddPrime {
        /// The value given.
        value: u64,
    },
    /// Too large for the word.
    #[error(
        "modulus {value} has {bits} bits, primes in {word_bits}-bit words have at most {limit}; \
         use wider words or a smaller prime"
    )]
    TooWide {
        /// The value given.
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

/// The operations of [`Prime`] and [`PowerOfTwo`].
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{
        search::{is_prime, mul_plain, pow_plain},
        *,
    };

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
