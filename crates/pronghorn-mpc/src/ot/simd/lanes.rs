//! Vectors of 64-bit words behind one interface, so that each routine is written once.

use bytemuck::Pod;

use crate::Block;

/// Vectors of [`WORDS`](Self::WORDS) words. A value of a type that implements this is a token: it
/// exists only where the CPU has the instructions, which is what makes the operations safe to call.
///
/// Everything is `inline(always)` so that it ends up inside a function compiled for the
/// instructions.
pub trait Lanes: Copy {
    /// Words of a vector, a power of two.
    const WORDS: usize;
    /// They as an array.
    type Words: Pod;
    /// All lanes.
    type Vector: Copy;

    /// The vector of these words.
    fn load(self, words: &Self::Words) -> Self::Vector;
    /// The words of the vector.
    fn store(self, vector: Self::Vector, words: &mut Self::Words);
    /// The word in all lanes.
    fn splat(self, word: u64) -> Self::Vector;
    /// Bitwise sums.
    fn xor(self, x: Self::Vector, y: Self::Vector) -> Self::Vector;
    /// Bitwise products.
    fn and(self, x: Self::Vector, y: Self::Vector) -> Self::Vector;
    /// Bits of `x` where `mask` is 1, of `y` where it is 0.
    fn select(self, mask: Self::Vector, x: Self::Vector, y: Self::Vector) -> Self::Vector;
    /// Every word shifted up.
    fn shift_up<const BY: u32>(self, x: Self::Vector) -> Self::Vector;
    /// Every word shifted down.
    fn shift_down<const BY: u32>(self, x: Self::Vector) -> Self::Vector;
    /// `out[step * w]` = the block of the word `w` of `low` and that of `high`.
    fn scatter(self, low: Self::Vector, high: Self::Vector, out: &mut [Block], step: usize);
}

/// Vectors of one word: the portable code, and the plain reading of the others.
#[derive(Clone, Copy)]
pub struct Scalar;

impl Lanes for Scalar {
    const WORDS: usize = 1;
    type Words = [u64; 1];
    type Vector = u64;

    #[inline(always)]
    fn load(self, words: &[u64; 1]) -> u64 {
        u64::from_le(words[0])
    }
    #[inline(always)]
    fn store(self, vector: u64, words: &mut [u64; 1]) {
        words[0] = vector.to_le();
    }
    #[inline(always)]
    fn splat(self, word: u64) -> u64 {
        word
    }
    #[inline(always)]
    fn xor(self, x: u64, y: u64) -> u64 {
        x ^ y
    }
    #[inline(always)]
    fn and(self, x: u64, y: u64) -> u64 {
        x & y
    }
    #[inline(always)]
    fn select(self, mask: u64, x: u64, y: u64) -> u64 {
        (x ^ y) & mask ^ y
    }
    #[inline(always)]
    fn shift_up<const BY: u32>(self, x: u64) -> u64 {
        x << BY
    }
    #[inline(always)]
    fn shift_down<const BY: u32>(self, x: u64) -> u64 {
        x >> BY
    }
    #[inline(always)]
    fn scatter(self, low: u64, high: u64, out: &mut [Block], _: usize) {
        out[0] = Block::from_u128(u128::from(high) << 64 | u128::from(low));
    }
}
