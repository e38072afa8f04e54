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

#[cfg(test)]
mod tests {
    use pronghorn_ring::SimdLevel;

    use super::*;

    fn every_loop<W: Word>(prime: u64) {
        let q = Prime::<W>::new(prime).unwrap();
        for count in [0, 1, 7, 100] {
            let x: Vec<W> = (0..count)
                .map(|i: u64| W::from_u64(i.wrapping_mul(0x9e37_79b9_7f4a_7c15) % prime))
                .collect();
            let w = W::from_u64(prime - 2);
            let sums: Vec<W> = x.iter().map(|&x| q.add(x, w)).collect();
            let doubles: Vec<W> = x.iter().map(|&x| q.add(x, x)).collect();
            for level in SimdLevel::available() {
                let mut out = x.clone();
                add_word(level, &q, &mut out, w);
                assert_eq!(out, sums, "{level:?}");
                out.copy_from_slice(&x);
                double(level, &q, &mut out);
                assert_eq!(out, doubles, "{level:?}");
                assert_eq!(
                    largest(level, &x),
                    x.iter().copied().max().unwrap_or_default()
                );
            }
        }
    }

    #[test]
    fn every_level_agrees_with_scalars() {
        every_loop::<u32>(2_147_483_647);
        every_loop::<u64>((1 << 61) - 1);
    }
}
