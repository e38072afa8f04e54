//! Arithmetic modulo a power of two.

use super::ModulusError;
use crate::Word;

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
