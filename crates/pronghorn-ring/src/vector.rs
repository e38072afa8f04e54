//! Elementwise arithmetic on slices of residues below `q`, constant time.
//!
//! Each function runs at the detected level; the `_at` forms take one, for tests and benchmarks.

use crate::{Prime, SimdLevel, Word, simd};

/// `out = x * y mod q`, with `y_shoup[i] = q.shoup(y[i])`. `x` may hold any words; `y` is reduced.
///
/// # Panics
/// Unless all slices have one length.
pub fn mul_shoup<W: Word>(q: &Prime<W>, x: &[W], y: &[W], y_shoup: &[W], out: &mut [W]) {
    mul_shoup_at(SimdLevel::detect(), q, x, y, y_shoup, out);
}

/// [`mul_shoup`] at `level`, or the best below it that the CPU has.
///
/// # Panics
/// Unless all slices have one length.
pub fn mul_shoup_at<W: Word>(
    level: SimdLevel,
    q: &Prime<W>,
    x: &[W],
    y: &[W],
    y_shoup: &[W],
    out: &mut [W],
) {
    assert!(
        x.len() == out.len() && y.len() == out.len() && y_shoup.len() == out.len(),
        "{UNEQUAL}"
    );
    W::mul_shoup(level, q, x, y, y_shoup, out);
}

/// `x += y mod q`.
///
/// # Panics
/// Unless both slices have one length.
pub fn add_assign<W: Word>(q: &Prime<W>, x: &mut [W], y: &[W]) {
    add_assign_at(SimdLevel::detect(), q, x, y);
}

/// [`add_assign`] at `level`, or the best below it that the CPU has.
///
/// # Panics
/// Unless both slices have one length.
pub fn add_assign_at<W: Word>(level: SimdLevel, q: &Prime<W>, x: &mut [W], y: &[W]) {
    assert!(x.len() == y.len(), "{UNEQUAL}");
    simd::add_assign(level, q, x, y);
}

/// `x -= y mod q`.
///
/// # Panics
/// Unless both slices have one length.
pub fn sub_assign<W: Word>(q: &Prime<W>, x: &mut [W], y: &[W]) {
    sub_assign_at(SimdLevel::detect(), q, x, y);
}

/// [`sub_assign`] at `level`, or the best below it that the CPU has.
///
/// # Panics
/// Unless both slices have one length.
pub fn sub_assign_at<W: Word>(level: SimdLevel, q: &Prime<W>, x: &mut [W], y: &[W]) {
    assert!(x.len() == y.len(), "{UNEQUAL}");
    simd::sub_assign(level, q, x, y);
}

/// `x = -x mod q`.
pub fn neg_assign<W: Word>(q: &Prime<W>, x: &mut [W]) {
    neg_assign_at(SimdLevel::detect(), q, x);
}

/// [`neg_assign`] at `level`, or the best below it that the CPU has.
pub fn neg_assign_at<W: Word>(level: SimdLevel, q: &Prime<W>, x: &mut [W]) {
    simd::neg_assign(level, q, x);
}

const UNEQUAL: &str = "elementwise operands have one length";

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Each operation at each level against the scalar one.
    fn check<W: Word>(prime: u64, words: &[(u64, u64)]) {
        let q = Prime::<W>::new(prime).unwrap();
        let reduce = |value: u64| W::from_u64(value % prime);
        let x: Vec<W> = words.iter().map(|pair| reduce(pair.0)).collect();
        let y: Vec<W> = words.iter().map(|pair| reduce(pair.1)).collect();
        let y_shoup: Vec<W> = y.iter().map(|&y| q.shoup(y)).collect();
        let expect = |f: &dyn Fn(W, W) -> W| -> Vec<W> {
            x.iter().zip(&y).map(|(&x, &y)| f(x, y)).collect()
        };
        for level in SimdLevel::available() {
            let mut out = vec![W::default(); x.len()];
            mul_shoup_at(level, &q, &x, &y, &y_shoup, &mut out);
            assert_eq!(out, expect(&|x, y| q.mul(x, y)), "{level:?}");
            out.copy_from_slice(&x);
            add_assign_at(level, &q, &mut out, &y);
            assert_eq!(out, expect(&|x, y| q.add(x, y)), "{level:?}");
            out.copy_from_slice(&x);
            sub_assign_at(level, &q, &mut out, &y);
            assert_eq!(out, expect(&|x, y| q.sub(x, y)), "{level:?}");
            out.copy_from_slice(&x);
            neg_assign_at(level, &q, &mut out);
            assert_eq!(out, expect(&|x, _| q.neg(x)), "{level:?}");
        }
    }

    proptest! {
        #[test]
        fn every_level_agrees_with_scalars(mut words in prop::collection::vec(any::<(u64, u64)>(), 0..70)) {
            words.extend([(0, 0), (u64::MAX, 0)]);
            check::<u32>(2_147_483_647, &words);
            check::<u32>(3, &words);
            check::<u64>((1 << 62) - 57, &words);
        }
    }

    #[test]
    #[should_panic(expected = "one length")]
    fn unequal_lengths_panic() {
        let q = Prime::<u32>::new(17).unwrap();
        mul_shoup(&q, &[1], &[1, 2], &[1, 2], &mut [0, 0]);
    }
}
