//! Loops over words, compiled at every SIMD level from one plain body.
#![allow(unsafe_code)] // calls of #[target_feature] functions after run-time detection

use pronghorn_ring::{Prime, Word, vectorised};

vectorised! {
    /// `x[i] += w mod q`.
    pub fn add_word<W: Word>(q: &Prime<W>, x: &mut [W], w: W) {
        for x in x {
            *x = q.add(*x, w);
        }
    }
}

vectorised! {
    /// `x[i] += x[i] mod q`.
    pub fn double<W: Word>(q: &Prime<W>, x: &mut [W]) {
        for x in x {
            *x = q.add(*x, *x);
        }
    }
}

vectorised! {
    /// The largest word; zero for none.
    pub fn largest<W: Word>(x: &[W]) -> W {
        x.iter().fold(W::default(), |largest, &x| largest.max(x))
    }
}
