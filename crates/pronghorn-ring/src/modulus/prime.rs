//! Arithmetic modulo a prime.

use super::{ModulusError, search::is_prime};
use crate::Word;

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
        // q is odd, so it does not divide the power of two and the quotient of 2^(2 BITS) - 1 is
        // the same.
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

    /// True if words are of 64 bits but residues below `4q` fit the multiplier of AVX-512 IFMA, of
    /// 52 bits.
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

    /// `x * y mod q`. Where many products share a factor, [`mul_shoup`](Self::mul_shoup) is
    /// cheaper.
    #[inline]
    pub fn mul(&self, x: W, y: W) -> W {
        self.mul_shoup(x, y, self.shoup(y))
    }

    /// `floor(y * 2^BITS / q)`, the companion of a factor `y < q` in Shoup's multiplication.
    #[inline]
    pub fn shoup(&self, y: W) -> W {
        y.shoup_quotient(self.q, self.reciprocal)
    }

    /// `x * y mod q` for any word `x` (reduced or not), `y < q` and `y_shoup = shoup(y)` (V. Shoup;
    /// see D. Harvey, "Faster arithmetic for number-theoretic transforms", 2014, section 2).
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
