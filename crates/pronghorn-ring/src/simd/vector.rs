//! Elementwise operations on slices of residues.

use super::{lanes::Lanes, vectorised};
use crate::{Prime, SimdLevel, Word};

/// `out = x * y mod q`; slices of one length.
#[inline(always)]
pub fn mul_shoup_lanes<L: Lanes>(
    lanes: L,
    q: &Prime<L::Word>,
    x: &[L::Word],
    y: &[L::Word],
    y_shoup: &[L::Word],
    out: &mut [L::Word],
) {
    let length = out.len();
    assert!(x.len() == length && y.len() == length && y_shoup.len() == length);
    let modulus = lanes.splat(q.word());
    let whole = length - length % L::COUNT;
    for i in (0..whole).step_by(L::COUNT) {
        // SAFETY: i + COUNT <= whole <= the length of every slice.
        let (x, y, y_shoup) = unsafe {
            (
                lanes.load(x.as_ptr().add(i)),
                lanes.load(y.as_ptr().add(i)),
                lanes.load(y_shoup.as_ptr().add(i)),
            )
        };
        let quotient = lanes.mul_high(x, y_shoup, lanes.odd(y_shoup));
        let lazy = lanes.sub(lanes.mul_low(x, y), lanes.mul_low(quotient, modulus));
        let product = lanes.min(lazy, lanes.sub(lazy, modulus));
        // SAFETY: as for the loads.
        unsafe { lanes.store(out.as_mut_ptr().add(i), product) }
    }
    for i in whole..length {
        out[i] = q.mul_shoup(x[i], y[i], y_shoup[i]);
    }
}

/// `out = x * y mod q`.
pub fn mul_shoup<W: Word>(
    level: SimdLevel,
    q: &Prime<W>,
    x: &[W],
    y: &[W],
    y_shoup: &[W],
    out: &mut [W],
) {
    W::mul_shoup(level, q, x, y, y_shoup, out);
}

vectorised! {
    /// `acc += x * y mod q`.
    pub fn mul_shoup_add_assign<W: Word>(q: &Prime<W>, acc: &mut [W], x: &[W], y: &[W], y_shoup: &[W]) {
        for (((acc, &x), &y), &y_shoup) in acc.iter_mut().zip(x).zip(y).zip(y_shoup) {
            *acc = q.add(*acc, q.mul_shoup(x, y, y_shoup));
        }
    }
}

vectorised! {
    /// `out = x * y mod q`.
    pub fn mul<W: Word>(q: &Prime<W>, x: &[W], y: &[W], out: &mut [W]) {
        for ((out, &x), &y) in out.iter_mut().zip(x).zip(y) {
            *out = q.mul(x, y);
        }
    }
}

vectorised! {
    /// `x *= y mod q`.
    pub fn mul_assign<W: Word>(q: &Prime<W>, x: &mut [W], y: &[W]) {
        for (x, &y) in x.iter_mut().zip(y) {
            *x = q.mul(*x, y);
        }
    }
}

vectorised! {
    /// `acc += x * y mod q`.
    pub fn mul_add_assign<W: Word>(q: &Prime<W>, acc: &mut [W], x: &[W], y: &[W]) {
        for ((acc, &x), &y) in acc.iter_mut().zip(x).zip(y) {
            *acc = q.add(*acc, q.mul(x, y));
        }
    }
}

vectorised! {
    /// `x *= w mod q`.
    pub fn mul_scalar_assign<W: Word>(q: &Prime<W>, x: &mut [W], w: W) {
        let w_shoup = q.shoup(w);
        for x in x {
            *x = q.mul_shoup(*x, w, w_shoup);
        }
    }
}

vectorised! {
    /// `acc += x * w mod q`.
    pub fn mul_scalar_add_assign<W: Word>(q: &Prime<W>, acc: &mut [W], x: &[W], w: W) {
        let w_shoup = q.shoup(w);
        for (acc, &x) in acc.iter_mut().zip(x) {
            *acc = q.add(*acc, q.mul_shoup(x, w, w_shoup));
        }
    }
}

vectorised! {
    /// `out` = the centred residue `x` of `p` modulo `q`.
    pub fn reduce_from<W: Word>(q: &Prime<W>, p: &Prime<W>, x: &[W], out: &mut [W]) {
        for (out, &x) in out.iter_mut().zip(x) {
            *out = q.from_i64(p.centre(x));
        }
    }
}

vectorised! {
    /// `out = sum_i xs[i] * ys[i] mod q`.
    pub fn inner_product<W: Word>(q: &Prime<W>, xs: &[&[W]], ys: &[&[W]], out: &mut [W]) {
        out.fill(W::default());
        for (x, y) in xs.iter().zip(ys) {
            for ((out, &x), &y) in out.iter_mut().zip(*x).zip(*y) {
                *out = q.add(*out, q.mul(x, y));
            }
        }
    }
}

vectorised! {
    /// `out = x + y mod q`.
    pub fn add<W: Word>(q: &Prime<W>, x: &[W], y: &[W], out: &mut [W]) {
        for ((out, &x), &y) in out.iter_mut().zip(x).zip(y) {
            *out = q.add(x, y);
        }
    }
}

vectorised! {
    /// `out = x - y mod q`.
    pub fn sub<W: Word>(q: &Prime<W>, x: &[W], y: &[W], out: &mut [W]) {
        for ((out, &x), &y) in out.iter_mut().zip(x).zip(y) {
            *out = q.sub(x, y);
        }
    }
}

vectorised! {
    /// `x += y mod q`.
    pub fn add_assign<W: Word>(q: &Prime<W>, x: &mut [W], y: &[W]) {
        for (x, &y) in x.iter_mut().zip(y) {
            *x = q.add(*x, y);
        }
    }
}

vectorised! {
    /// `x -= y mod q`.
    pub fn sub_assign<W: Word>(q: &Prime<W>, x: &mut [W], y: &[W]) {
        for (x, &y) in x.iter_mut().zip(y) {
            *x = q.sub(*x, y);
        }
    }
}

vectorised! {
    /// `x = -x mod q`.
    pub fn neg_assign<W: Word>(q: &Prime<W>, x: &mut [W]) {
        for x in x {
            *x = q.neg(*x);
        }
    }
}

vectorised! {
    /// Reads the words as little-endian and clears what `mask` lacks; the largest result.
    pub fn mask_and_largest<W: Word>(words: &mut [W], mask: W) -> W {
        let mut largest = W::default();
        for word in words {
            *word = word.swap_little_endian() & mask;
            largest = largest.max(*word);
        }
        largest
    }
}
