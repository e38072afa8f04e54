//! Vectors of words behind one interface, so that each routine is written once.

use std::marker::PhantomData;

use crate::Word;

/// Vectors of [`COUNT`](Self::COUNT) words. A value of a type that implements this is a token: it exists only where
/// the CPU has the instructions, which is what makes the arithmetic safe to call.
///
/// Everything is `inline(always)` so that it ends up inside a function compiled for the instructions.
pub trait Lanes: Copy {
    /// The word in a lane.
    type Word: Word;
    /// All lanes.
    type Vector: Copy;
    /// Lanes, a power of two.
    const COUNT: usize;

    /// Reads `COUNT` words, aligned as words.
    ///
    /// # Safety
    /// `from` must be valid for reading them.
    unsafe fn load(self, from: *const Self::Word) -> Self::Vector;
    /// Reads `GROUPS` words and repeats them through the lanes; `GROUPS` is a power of two up to `COUNT`.
    ///
    /// # Safety
    /// `from` must be valid for reading them.
    unsafe fn load_cycle<const GROUPS: usize>(self, from: *const Self::Word) -> Self::Vector;
    /// [`odd`](Self::odd) of [`load_cycle`](Self::load_cycle), cheaper.
    ///
    /// # Safety
    /// `from` must be valid for reading one word more.
    unsafe fn load_cycle_odd<const GROUPS: usize>(self, from: *const Self::Word) -> Self::Vector;
    /// Writes `COUNT` words, aligned as words.
    ///
    /// # Safety
    /// `to` must be valid for writing them.
    unsafe fn store(self, to: *mut Self::Word, vector: Self::Vector);

    /// The word in all lanes.
    fn splat(self, word: Self::Word) -> Self::Vector;
    /// [`odd`](Self::odd) of [`splat`](Self::splat), cheaper.
    fn splat_odd(self, word: Self::Word) -> Self::Vector;
    /// Wrapping sums.
    fn add(self, x: Self::Vector, y: Self::Vector) -> Self::Vector;
    /// Wrapping differences.
    fn sub(self, x: Self::Vector, y: Self::Vector) -> Self::Vector;
    /// Unsigned minima.
    fn min(self, x: Self::Vector, y: Self::Vector) -> Self::Vector;
    /// Lower words of the products.
    fn mul_low(self, x: Self::Vector, y: Self::Vector) -> Self::Vector;
    /// Upper words of the products `x * y`, with `y_odd = self.odd(y)`.
    fn mul_high(self, x: Self::Vector, y: Self::Vector, y_odd: Self::Vector) -> Self::Vector;
    /// What [`mul_high`](Self::mul_high) needs of a factor besides itself: 32 bits on in every 64-bit lane (the
    /// odd of 32-bit words, the upper half of a 64-bit word).
    fn odd(self, y: Self::Vector) -> Self::Vector;
    /// Tells the compiler that all of these are needed now: it then keeps chains of operations on them
    /// side by side, where it would rather finish one after the other to save registers.
    fn side_by_side<const K: usize>(self, vectors: [Self::Vector; K]) -> [Self::Vector; K];

    /// The lanes of `x` and `y` alternating: `x0 y0 x1 y1 ...`, first half and second half.
    fn zip(self, x: Self::Vector, y: Self::Vector) -> (Self::Vector, Self::Vector);
    /// Undoes [`zip`](Self::zip).
    fn unzip(self, x: Self::Vector, y: Self::Vector) -> (Self::Vector, Self::Vector);
}

/// Vectors of one word: the portable code, and the plain reading of the others.
#[derive(Clone, Copy)]
pub struct Scalar<W>(PhantomData<W>);

impl<W> Scalar<W> {
    /// Needs nothing of the CPU.
    pub const NEW: Self = Self(PhantomData);
}

impl<W: Word> Lanes for Scalar<W> {
    type Word = W;
    type Vector = W;
    const COUNT: usize = 1;

    #[inline(always)]
    unsafe fn load(self, from: *const W) -> W {
        // SAFETY: valid by contract.
        unsafe { from.read() }
    }
    #[inline(always)]
    unsafe fn load_cycle<const GROUPS: usize>(self, from: *const W) -> W {
        // SAFETY: valid by contract.
        unsafe { from.read() }
    }
    #[inline(always)]
    unsafe fn load_cycle_odd<const GROUPS: usize>(self, from: *const W) -> W {
        // SAFETY: valid by contract.
        unsafe { from.read() }
    }
    #[inline(always)]
    unsafe fn store(self, to: *mut W, vector: W) {
        // SAFETY: valid by contract.
        unsafe { to.write(vector) }
    }

    #[inline(always)]
    fn splat(self, word: W) -> W {
        word
    }
    #[inline(always)]
    fn splat_odd(self, word: W) -> W {
        word
    }
    #[inline(always)]
    fn add(self, x: W, y: W) -> W {
        x.wrapping_add(y)
    }
    #[inline(always)]
    fn sub(self, x: W, y: W) -> W {
        x.wrapping_sub(y)
    }
    #[inline(always)]
    fn min(self, x: W, y: W) -> W {
        x.min(y)
    }
    #[inline(always)]
    fn mul_low(self, x: W, y: W) -> W {
        x.wrapping_mul(y)
    }
    #[inline(always)]
    fn mul_high(self, x: W, y: W, _: W) -> W {
        x.mul_high(y)
    }
    #[inline(always)]
    fn odd(self, y: W) -> W {
        y
    }

    #[inline(always)]
    fn side_by_side<const K: usize>(self, vectors: [W; K]) -> [W; K] {
        vectors
    }

    #[inline(always)]
    fn zip(self, x: W, y: W) -> (W, W) {
        (x, y)
    }
    #[inline(always)]
    fn unzip(self, x: W, y: W) -> (W, W) {
        (x, y)
    }
}
