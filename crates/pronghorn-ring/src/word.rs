//! The two word sizes residues are kept in.

use std::fmt::Debug;
use std::ops::{BitAnd, BitOr, Shl, Shr};

use bytemuck::Pod;
use zeroize::Zeroize;

use crate::simd::Kernels;

/// `u32` or `u64`. A modulus that fits 31 bits belongs in `u32`: twice the lanes, half the memory.
pub trait Word:
    Kernels
    + Copy
    + Eq
    + Ord
    + Send
    + Sync
    + Default
    + Debug
    + Zeroize
    + Pod
    + Shl<u32, Output = Self>
    + Shr<u32, Output = Self>
    + BitAnd<Output = Self>
    + BitOr<Output = Self>
    + 'static
{
    /// Bits of a word.
    const BITS: u32;
    /// Largest prime moduli, in bits: sums of two residues fit a word, and Shoup products below
    /// `2q`.
    const MAX_PRIME_BITS: u32;

    /// Zero-extends.
    fn to_u64(self) -> u64;
    /// The word of this value, which must fit; higher bits are lost in release builds.
    fn from_u64(value: u64) -> Self;
    /// The word whose bytes in memory are this word's in little-endian order, and back.
    fn swap_little_endian(self) -> Self;
    /// Sum modulo `2^BITS`.
    fn wrapping_add(self, other: Self) -> Self;
    /// Difference modulo `2^BITS`.
    fn wrapping_sub(self, other: Self) -> Self;
    /// Product modulo `2^BITS`.
    fn wrapping_mul(self, other: Self) -> Self;
    /// The upper word of the product.
    fn mul_high(self, other: Self) -> Self;
    /// `floor(self * 2^BITS / q)` for `self < q`, without a division;
    /// `reciprocal = floor(2^(2 BITS) / q)`, `q` odd and at least 3.
    fn shoup_quotient(self, q: Self, reciprocal: u128) -> Self;
}

macro_rules! word {
    ($word:ty, $wide:ty, $max_prime_bits:expr) => {
        impl Word for $word {
            const BITS: u32 = <$word>::BITS;
            const MAX_PRIME_BITS: u32 = $max_prime_bits;

            #[inline(always)]
            fn to_u64(self) -> u64 {
                u64::from(self)
            }

            #[inline(always)]
            fn from_u64(value: u64) -> Self {
                debug_assert!(value <= u64::from(<$word>::MAX));
                value as $word
            }

            #[inline(always)]
            fn swap_little_endian(self) -> Self {
                self.to_le()
            }

            #[inline(always)]
            fn wrapping_add(self, other: Self) -> Self {
                self.wrapping_add(other)
            }

            #[inline(always)]
            fn wrapping_sub(self, other: Self) -> Self {
                self.wrapping_sub(other)
            }

            #[inline(always)]
            fn wrapping_mul(self, other: Self) -> Self {
                self.wrapping_mul(other)
            }

            #[inline(always)]
            fn mul_high(self, other: Self) -> Self {
                ((<$wide>::from(self) * <$wide>::from(other)) >> <$word>::BITS) as $word
            }

            #[inline(always)]
            fn shoup_quotient(self, q: Self, reciprocal: u128) -> Self {
                let (value, q) = (<$wide>::from(self), <$wide>::from(q));
                // value < q, so the product fits; the estimate is the quotient or one less.
                let estimate = (value * reciprocal as $wide) >> <$word>::BITS;
                let remainder = (value << <$word>::BITS) - estimate * q;
                // The remainder is below 2q: the top bit of remainder - q is set where it is below
                // q.
                let correction = 1 - (remainder.wrapping_sub(q) >> (<$wide>::BITS - 1));
                (estimate + correction) as $word
            }
        }
    };
}

word!(u32, u64, 31);
word!(u64, u128, 62);
