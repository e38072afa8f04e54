//! Vectors of words behind one interface, so that each routine is written once.

use std::marker::PhantomData;

use super::Routine;
use crate::Word;

/// Vectors of [`COUNT`](Self::COUNT) words: how they are read, added and permuted. A value of a
/// type that implements this is a token: it exists only where the CPU has the instructions, which
/// is what makes the arithmetic safe to call.
///
/// Everything is `inline(always)` so that it ends up inside a function compiled for the
/// instructions.
pub trait Registers: Copy {
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
    /// Reads `GROUPS` words and repeats them through the lanes; `GROUPS` is a power of two up to
    /// `COUNT`.
    ///
    /// # Safety
    /// `from` must be valid for reading them.
    unsafe fn load_cycle<const GROUPS: usize>(self, from: *const Self::Word) -> Self::Vector;
    /// Writes `COUNT` words, aligned as words.
    ///
    /// # Safety
    /// `to` must be valid for writing them.
    unsafe fn store(self, to: *mut Self::Word, vector: Self::Vector);

    /// Asks for the cache line of an address, which need not be one of ours; nothing where there is
    /// no such instruction.
    #[inline(always)]
    fn prefetch(self, _from: *const Self::Word) {}

    /// The word in all lanes.
    fn splat(self, word: Self::Word) -> Self::Vector;
    /// Wrapping sums.
    fn add(self, x: Self::Vector, y: Self::Vector) -> Self::Vector;
    /// Wrapping differences.
    fn sub(self, x: Self::Vector, y: Self::Vector) -> Self::Vector;
    /// Unsigned minima.
    fn min(self, x: Self::Vector, y: Self::Vector) -> Self::Vector;
    /// Words shifted to the left, `bits` being fewer than they have.
    fn shift_left(self, x: Self::Vector, bits: u32) -> Self::Vector;
    /// Words shifted to the right, `bits` being fewer than they have.
    fn shift_right(self, x: Self::Vector, bits: u32) -> Self::Vector;
    /// Tells the compiler that all of these are needed now: it then keeps chains of operations on
    /// them side by side, where it would rather finish one after the other to save registers.
    fn side_by_side<const K: usize>(self, vectors: [Self::Vector; K]) -> [Self::Vector; K];

    /// The lanes of `x` and `y` alternating: `x0 y0 x1 y1 ...`, first half and second half.
    fn zip(self, x: Self::Vector, y: Self::Vector) -> (Self::Vector, Self::Vector);
    /// Undoes [`zip`](Self::zip).
    fn unzip(self, x: Self::Vector, y: Self::Vector) -> (Self::Vector, Self::Vector);
}

/// [`Registers`] and their multiplier, of [`BITS`](Self::BITS) bits. Where that is less than a word
/// has, it takes factors modulo `2^BITS`, but adds its products to whole words: modulo `2^BITS`,
/// what is above in results is noise, until [`clean`](Self::clean).
pub trait Lanes: Registers {
    /// Bits of the multiplier.
    const BITS: u32;
    /// True if it adds to its products at no cost.
    const FUSED: bool;

    /// `x * y mod 2^BITS`.
    fn mul_low(self, x: Self::Vector, y: Self::Vector) -> Self::Vector;
    /// `sum + (x * y mod 2^BITS)`.
    fn mul_add_low(self, sum: Self::Vector, x: Self::Vector, y: Self::Vector) -> Self::Vector;
    /// `floor(x * y / 2^BITS)`.
    fn mul_high(self, x: Self::Vector, y: HighFactor<Self::Vector>) -> Self::Vector;
    /// `sum + floor(x * y / 2^BITS)`.
    #[inline(always)]
    fn mul_add_high(
        self,
        sum: Self::Vector,
        x: Self::Vector,
        y: HighFactor<Self::Vector>,
    ) -> Self::Vector {
        self.add(sum, self.mul_high(x, y))
    }
    /// Makes a factor ready.
    fn high(self, y: Self::Vector) -> HighFactor<Self::Vector>;
    /// [`high`](Self::high) of [`splat`](Registers::splat), cheaper.
    fn splat_high(self, word: Self::Word) -> HighFactor<Self::Vector>;
    /// [`high`](Self::high) of [`load_cycle`](Registers::load_cycle), cheaper.
    ///
    /// # Safety
    /// `from` must be valid for reading one word more.
    unsafe fn load_cycle_high<const GROUPS: usize>(
        self,
        from: *const Self::Word,
    ) -> HighFactor<Self::Vector>;
    /// Without the bits from `BITS` on.
    fn clean(self, x: Self::Vector) -> Self::Vector;

    /// Runs a routine as a function of its own with the instructions of these lanes: compilers take
    /// far longer for one large function than for its parts.
    fn apart<R: Routine<Self::Word>>(self, routine: R) -> R::Output;
}

/// What [`Lanes::mul_high`] needs of a factor.
#[derive(Clone, Copy)]
pub struct HighFactor<V> {
    /// The factor.
    pub all: V,
    /// The same, 32 bits on in every 64-bit lane: the odd of 32-bit words, the upper half of a
    /// 64-bit word. Unused where the multiplier needs no halves.
    pub odd: V,
}

/// Vectors of one word: the portable code, and the plain reading of the others.
#[derive(Clone, Copy)]
pub struct Scalar<W>(PhantomData<W>);

impl<W> Scalar<W> {
    /// Needs nothing of the CPU.
    pub const NEW: Self = Self(PhantomData);
}

impl<W: Word> Registers for Scalar<W> {
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
    unsafe fn store(self, to: *mut W, vector: W) {
        // SAFETY: valid by contract.
        unsafe { to.write(vector) }
    }

    #[inline(always)]
    fn splat(self, word: W) -> W {
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
    fn shift_left(self, x: W, bits: u32) -> W {
        x << bits
    }
    #[inline(always)]
    fn shift_right(self, x: W, bits: u32) -> W {
        x >> bits
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

impl<W: Word> Lanes for Scalar<W> {
    const BITS: u32 = W::BITS;
    const FUSED: bool = false;

    #[inline(always)]
    fn mul_low(self, x: W, y: W) -> W {
        x.wrapping_mul(y)
    }
    #[inline(always)]
    fn mul_add_low(self, sum: W, x: W, y: W) -> W {
        sum.wrapping_add(x.wrapping_mul(y))
    }
    #[inline(always)]
    fn mul_high(self, x: W, y: HighFactor<W>) -> W {
        x.mul_high(y.all)
    }
    #[inline(always)]
    fn high(self, y: W) -> HighFactor<W> {
        HighFactor { all: y, odd: y }
    }
    #[inline(always)]
    fn splat_high(self, word: W) -> HighFactor<W> {
        self.high(word)
    }
    #[inline(always)]
    unsafe fn load_cycle_high<const GROUPS: usize>(self, from: *const W) -> HighFactor<W> {
        // SAFETY: valid by contract.
        self.high(unsafe { from.read() })
    }
    #[inline(always)]
    fn clean(self, x: W) -> W {
        x
    }

    // `Transform::portable`, its one user, is a function of its own.
    #[inline(always)]
    fn apart<R: Routine<W>>(self, routine: R) -> R::Output {
        routine.run(self)
    }
}
