//! Arithmetic modulo a prime in lanes.

use super::lanes::{HighFactor, Lanes};
use crate::{Prime, Word};

/// A prime in lanes, for a multiplier that has room for residues below `2q` at least.
#[derive(Clone, Copy)]
pub struct Residues<L: Lanes> {
    lanes: L,
    /// The prime.
    pub q: L::Vector,
    /// `2^BITS - q`, to subtract multiples of `q` with a fused multiplication and addition.
    minus_q: L::Vector,
    /// `floor(2^BITS / q)`.
    reciprocal: HighFactor<L::Vector>,
}

/// A factor `w` with Shoup's quotient, `floor(w 2^BITS / q)` or one more.
#[derive(Clone, Copy)]
pub struct Factor<V> {
    /// The factor.
    pub word: V,
    /// Its quotient.
    pub quotient: HighFactor<V>,
}

impl<L: Lanes> Residues<L> {
    #[inline(always)]
    pub fn new(lanes: L, q: &Prime<L::Word>) -> Self {
        let reciprocal = L::Word::from_u64(largest(L::BITS) / q.value());
        Self {
            lanes,
            q: lanes.splat(q.word()),
            minus_q: splat(lanes, largest(L::BITS) - q.value() + 1),
            reciprocal: lanes.splat_high(reciprocal),
        }
    }

    /// From below `2q` to below `q`: where `x < q`, `x - q` wraps and is the larger.
    #[inline(always)]
    pub fn reduce_once(&self, x: L::Vector) -> L::Vector {
        self.lanes.min(x, self.lanes.sub(x, self.q))
    }

    /// From `(-q, q)` to `[0, q)`: where `x < 0`, it is the larger as it stands.
    #[inline(always)]
    pub fn make_positive(&self, x: L::Vector) -> L::Vector {
        self.lanes.min(x, self.lanes.add(x, self.q))
    }

    /// `x + y mod q` of residues.
    #[inline(always)]
    pub fn add(&self, x: L::Vector, y: L::Vector) -> L::Vector {
        self.reduce_once(self.lanes.add(x, y))
    }

    /// `x - y mod q` of residues.
    #[inline(always)]
    pub fn sub(&self, x: L::Vector, y: L::Vector) -> L::Vector {
        self.make_positive(self.lanes.sub(x, y))
    }

    /// `x + w mod p` of residues of another prime.
    #[inline(always)]
    pub fn add_modulo(&self, x: L::Vector, w: L::Word, p: L::Word) -> L::Vector {
        let sum = self.lanes.add(x, self.lanes.splat(w));
        self.lanes
            .min(sum, self.lanes.sub(sum, self.lanes.splat(p)))
    }

    /// `x - w mod q` of residues.
    #[inline(always)]
    pub fn sub_scalar(&self, x: L::Vector, w: L::Word) -> L::Vector {
        self.sub(x, self.lanes.splat(w))
    }

    /// `y q`, or as much of it as [`subtract`](Self::subtract) does not do itself.
    #[inline(always)]
    pub fn multiple(&self, y: L::Vector) -> L::Vector {
        if L::FUSED {
            y
        } else {
            self.lanes.mul_low(y, self.q)
        }
    }

    /// `x - y q` for `multiple = self.multiple(y)`.
    #[inline(always)]
    pub fn subtract(&self, x: L::Vector, multiple: L::Vector) -> L::Vector {
        if L::FUSED {
            self.lanes.mul_add_low(x, multiple, self.minus_q)
        } else {
            self.lanes.sub(x, multiple)
        }
    }

    /// `x - y q`.
    #[inline(always)]
    pub fn subtract_multiple(&self, x: L::Vector, y: L::Vector) -> L::Vector {
        self.subtract(x, self.multiple(y))
    }

    /// `sum` and `floor(x / q)` or one less.
    #[inline(always)]
    pub fn add_quotient(&self, sum: L::Vector, x: L::Vector) -> L::Vector {
        self.lanes.mul_add_high(sum, x, self.reciprocal)
    }

    /// From any number of `BITS` bits to below `2q`.
    #[inline(always)]
    pub fn shrink(&self, x: L::Vector) -> L::Vector {
        self.subtract_multiple(x, self.lanes.mul_high(x, self.reciprocal))
    }

    /// From any number of `BITS` bits to below `q`.
    #[inline(always)]
    pub fn reduce(&self, x: L::Vector) -> L::Vector {
        self.reduce_once(self.lanes.clean(self.shrink(x)))
    }

    /// `x w mod q` for any `x` of `BITS` bits: in `(-q, q)` where the quotient of `w` was rounded
    /// up, in `[0, 2q)` where it was rounded down.
    #[inline(always)]
    pub fn mul_lazy(&self, x: L::Vector, w: Factor<L::Vector>) -> L::Vector {
        let quotient = self.lanes.mul_high(x, w.quotient);
        self.subtract_multiple(self.lanes.mul_low(x, w.word), quotient)
    }

    /// `x y mod q` of residues (P. Barrett, CRYPTO 1986; the shift by the bits of `q` in one
    /// factor).
    #[inline(always)]
    pub fn mul(&self, x: L::Vector, y: L::Vector, product: Product<L::Word>) -> L::Vector {
        let lanes = self.lanes;
        // floor(x y / 2^bits). Cutting off the rest makes the quotient too small by up to 2, the
        // two roundings in it by 1/4 and 1: the remainder is below 3.25 q.
        let upper = lanes.mul_high(lanes.shift_left(x, L::BITS - product.bits), lanes.high(y));
        let reciprocal = lanes.splat_high(product.reciprocal >> (L::Word::BITS - L::BITS));
        let quotient = lanes.mul_add_high(upper, upper, reciprocal);
        let remainder = lanes.clean(self.subtract_multiple(lanes.mul_low(x, y), quotient));
        let twice_q = lanes.add(self.q, self.q);
        self.reduce_once(lanes.min(remainder, lanes.sub(remainder, twice_q)))
    }

    /// `w` in all lanes, with the quotient for whole words.
    #[inline(always)]
    pub fn scalar(&self, w: L::Word, w_shoup: L::Word) -> Factor<L::Vector> {
        Factor {
            word: self.lanes.splat(w),
            quotient: self.lanes.splat_high(w_shoup >> (L::Word::BITS - L::BITS)),
        }
    }

    /// `w` with the quotient for whole words.
    #[inline(always)]
    pub fn factor(&self, w: L::Vector, w_shoup: L::Vector) -> Factor<L::Vector> {
        let quotient = if L::BITS < L::Word::BITS {
            self.lanes.shift_right(w_shoup, L::Word::BITS - L::BITS)
        } else {
            w_shoup
        };
        Factor {
            word: w,
            quotient: self.lanes.high(quotient),
        }
    }

    /// `x w mod q` for any `x` of `BITS` bits, the quotient of `w` rounded down.
    #[inline(always)]
    pub fn mul_factor(&self, x: L::Vector, w: Factor<L::Vector>) -> L::Vector {
        self.reduce_once(self.lanes.clean(self.mul_lazy(x, w)))
    }
}

/// What a product of two factors that vary takes of a prime.
#[derive(Clone, Copy)]
pub struct Product<W> {
    /// `q < 2^bits`.
    bits: u32,
    /// `floor(2^(BITS + bits) / q) - 2^BITS`, `BITS` being those of the word.
    reciprocal: W,
}

impl<W: Word> Product<W> {
    /// For a prime of two bits less than the word or the multiplier.
    pub fn new(q: &Prime<W>) -> Self {
        let reciprocal = q.scaled_reciprocal() & u128::from(largest(W::BITS));
        Self {
            bits: q.bits(),
            reciprocal: W::from_u64(reciprocal as u64),
        }
    }
}

/// The largest number of `bits` bits.
#[inline(always)]
pub fn largest(bits: u32) -> u64 {
    u64::MAX >> (64 - bits)
}

/// The lower word of a value, in all lanes.
#[inline(always)]
pub fn splat<L: Lanes>(lanes: L, value: u64) -> L::Vector {
    lanes.splat(L::Word::from_u64(value & largest(L::Word::BITS)))
}
