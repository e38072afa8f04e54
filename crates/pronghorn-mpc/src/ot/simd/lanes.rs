//! Vectors of 64-bit words behind one interface, so that each routine is written once.

use bytemuck::Pod;

use crate::Block;

/// Blocks of a vector, at most. Slices of a multiple of it have whole vectors at every level.
pub const WIDEST: usize = 4;

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
    /// The block in all places of a vector, which has at most four.
    #[inline(always)]
    fn splat_block(self, block: Block) -> Self::Vector {
        self.load(&bytemuck::cast_slice(&[block; 4])[0])
    }
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
    /// Every word plus the other vector's.
    fn add(self, x: Self::Vector, y: Self::Vector) -> Self::Vector;
    /// All ones in the words that are equal.
    fn equal(self, x: Self::Vector, y: Self::Vector) -> Self::Vector;
    /// The number of each word's block: 0, 0, 1, 1 and so on.
    fn numbers(self) -> Self::Vector;
    /// [`Block::sigma`] of every block.
    fn sigma(self, x: Self::Vector) -> Self::Vector;
    /// `out[step * w]` = the block of the word `w` of `low` and that of `high`.
    fn scatter(self, low: Self::Vector, high: Self::Vector, out: &mut [Block], step: usize);
}

/// Vectors of one block: the portable code, and the plain reading of the others.
#[derive(Clone, Copy)]
pub struct Scalar;

impl Scalar {
    #[inline(always)]
    fn words(x: [u64; 2], y: [u64; 2], each: impl Fn(u64, u64) -> u64) -> [u64; 2] {
        [each(x[0], y[0]), each(x[1], y[1])]
    }
}

impl Lanes for Scalar {
    const WORDS: usize = 2;
    type Words = [u64; 2];
    type Vector = [u64; 2];

    #[inline(always)]
    fn load(self, words: &[u64; 2]) -> [u64; 2] {
        words.map(u64::from_le)
    }
    #[inline(always)]
    fn store(self, vector: [u64; 2], words: &mut [u64; 2]) {
        *words = vector.map(u64::to_le);
    }
    #[inline(always)]
    fn splat(self, word: u64) -> [u64; 2] {
        [word; 2]
    }
    #[inline(always)]
    fn xor(self, x: [u64; 2], y: [u64; 2]) -> [u64; 2] {
        Self::words(x, y, |x, y| x ^ y)
    }
    #[inline(always)]
    fn and(self, x: [u64; 2], y: [u64; 2]) -> [u64; 2] {
        Self::words(x, y, |x, y| x & y)
    }
    #[inline(always)]
    fn select(self, mask: [u64; 2], x: [u64; 2], y: [u64; 2]) -> [u64; 2] {
        self.xor(self.and(self.xor(x, y), mask), y)
    }
    #[inline(always)]
    fn shift_up<const BY: u32>(self, x: [u64; 2]) -> [u64; 2] {
        x.map(|x| x << BY)
    }
    #[inline(always)]
    fn shift_down<const BY: u32>(self, x: [u64; 2]) -> [u64; 2] {
        x.map(|x| x >> BY)
    }
    #[inline(always)]
    fn add(self, x: [u64; 2], y: [u64; 2]) -> [u64; 2] {
        Self::words(x, y, u64::wrapping_add)
    }
    #[inline(always)]
    fn equal(self, x: [u64; 2], y: [u64; 2]) -> [u64; 2] {
        // No comparison, so that no branch comes of it: x | -x has its top bit clear for 0 alone.
        Self::words(x, y, |x, y| {
            let difference = x ^ y;
            ((difference | difference.wrapping_neg()) >> 63).wrapping_sub(1)
        })
    }
    #[inline(always)]
    fn numbers(self) -> [u64; 2] {
        [0; 2]
    }
    #[inline(always)]
    fn sigma(self, x: [u64; 2]) -> [u64; 2] {
        [x[1], x[0] ^ x[1]]
    }
    #[inline(always)]
    fn scatter(self, low: [u64; 2], high: [u64; 2], out: &mut [Block], step: usize) {
        for word in 0..2 {
            let block = u128::from(high[word]) << 64 | u128::from(low[word]);
            out[word * step] = Block::from_u128(block);
        }
    }
}
