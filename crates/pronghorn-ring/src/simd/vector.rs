//! Elementwise operations on slices of residues.

use super::{lanes::Lanes, vectorised};
use crate::{Prime, Word};

/// `out = x * y mod q`; slices of one length.
#[inline(always)]
pub fn mul_shoup<L: Lanes>(
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
