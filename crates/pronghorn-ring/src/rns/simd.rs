//! The loops of the number systems, compiled at every SIMD level from one plain body.
#![allow(unsafe_code)] // calls of #[target_feature] functions after run-time detection

use crate::simd::vectorised;
use crate::{Prime, Word};

vectorised! {
    /// `out` = the residues of the two's-complement words `x`, each of absolute value below `q`.
    pub fn residues<W: Word>(q: &Prime<W>, x: &[W], out: &mut [W]) {
        for (out, &x) in out.iter_mut().zip(x) {
            *out = x.wrapping_add(q.word() & mask_of_negative(x));
        }
    }
}

vectorised! {
    /// `acc = acc * p + centre(digits)`: a step of Horner's rule, from the most significant digit
    /// down.
    pub fn horner_f64<W: Word>(p: &Prime<W>, digits: &[W], acc: &mut [f64]) {
        let factor = p.value() as f64;
        for (acc, &digit) in acc.iter_mut().zip(digits) {
            *acc = *acc * factor + p.centre(digit) as f64;
        }
    }
}

vectorised! {
    /// Rounds to the nearest integer, ties to even; the largest absolute value, infinite where
    /// something is not a number.
    pub fn round_f64(values: &[f64], integers: &mut [f64]) -> f64 {
        // Bits of absolute values are in the order of their size, and above infinity stands what is
        // not a number.
        let mut largest = 0;
        for (integer, value) in integers.iter_mut().zip(values) {
            *integer = value.round_ties_even();
            largest = largest.max(integer.abs().to_bits());
        }
        let largest = f64::from_bits(largest);
        if largest.is_nan() { f64::INFINITY } else { largest }
    }
}

vectorised! {
    /// Cuts integers into digits of `bits` bits, the least significant plane first, leaving nothing
    /// of them: every digit but the last plane's is in `-2^(bits-1) ..= 2^(bits-1)`, and so is the
    /// last where the integers are small enough.
    pub fn cut_f64<W: Word>(bits: u32, integers: &mut [f64], planes: &mut [W]) {
        let n = integers.len().max(1);
        let (radix, shrink) = (2f64.powi(bits as i32), 2f64.powi(-(bits as i32)));
        for plane in planes.chunks_exact_mut(n) {
            for (integer, digit) in integers.iter_mut().zip(plane) {
                // All exact: the radix is a power of two, and remainders are multiples of the
                // integer's last bit.
                let quotient = (*integer * shrink).round_ties_even();
                *digit = word_of(((*integer - quotient * radix) as i64) as u64);
                *integer = quotient;
            }
        }
    }
}

vectorised! {
    /// Sign-extends.
    pub fn widen_i8<W: Word>(values: &[i8], out: &mut [W]) {
        for (out, &value) in out.iter_mut().zip(values) {
            *out = word_of(i64::from(value) as u64);
        }
    }
}

vectorised! {
    /// From `0 .. 2^bits` to `-2^(bits-1) .. 2^(bits-1)`.
    pub fn centre_power_of_two<W: Word>(bits: u32, x: &mut [W]) {
        let half = W::from_u64(1 << (bits - 1));
        for x in x {
            *x = x.wrapping_sub(half);
        }
    }
}

/// The lower bits of a two's-complement number.
#[inline(always)]
fn word_of<W: Word>(value: u64) -> W {
    W::from_u64(value & (u64::MAX >> (64 - W::BITS)))
}

/// All ones where the two's-complement word is negative, else zero.
#[inline(always)]
fn mask_of_negative<W: Word>(x: W) -> W {
    W::default().wrapping_sub(x >> (W::BITS - 1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SimdLevel;

    /// What `run` makes at a level, against the portable code.
    fn levels_agree<T: PartialEq + std::fmt::Debug>(run: impl Fn(SimdLevel) -> T) {
        for level in SimdLevel::available() {
            assert_eq!(run(level), run(SimdLevel::Portable), "{level:?}");
        }
    }

    fn words<W: Word>(count: u64, below: u64) -> Vec<W> {
        let words = (0..count).map(|i| i.wrapping_mul(0x9e37_79b9_7f4a_7c15) % below);
        words.map(W::from_u64).collect()
    }

    fn every_loop<W: Word>(prime: u64, bits: u32) {
        let q = Prime::<W>::new(prime).unwrap();
        for count in [0, 1, 7, 100] {
            let x = words::<W>(count, prime);
            levels_agree(|level| {
                let mut out = x.clone();
                residues(level, &q, &x, &mut out);
                out
            });
            levels_agree(|level| {
                let mut acc: Vec<f64> = (0..count).map(|i| i as f64).collect();
                horner_f64(level, &q, &x, &mut acc);
                acc
            });
            levels_agree(|level| {
                let mut x = words::<W>(count, 1 << bits);
                centre_power_of_two(level, bits, &mut x);
                x
            });
            let bytes: Vec<i8> = (0..count).map(|i| (i * 37) as i8).collect();
            levels_agree(|level| {
                let mut out = x.clone();
                widen_i8(level, &bytes, &mut out);
                out
            });
            let numbers: Vec<f64> = (0..count).map(|i| (i as f64 - 50.3) * 1e9).collect();
            levels_agree(|level| {
                let mut integers = numbers.clone();
                let largest = round_f64(level, &numbers, &mut integers);
                let mut planes = vec![W::default(); 4 * integers.len()];
                cut_f64(level, bits, &mut integers, &mut planes);
                (largest, planes)
            });
        }
    }

    #[test]
    fn levels_agree_on_every_loop() {
        every_loop::<u32>(2_147_483_647, 30);
        every_loop::<u32>(65_537, 16);
        every_loop::<u64>((1 << 61) - 1, 60);
    }

    #[test]
    fn rounding_finds_what_is_no_number() {
        let mut out = [0.0; 2];
        let largest =
            |values: [f64; 2], out: &mut [f64]| round_f64(SimdLevel::detect(), &values, out);
        assert_eq!(largest([-7.5, 2.5], &mut out), 8.0);
        assert_eq!(out, [-8.0, 2.0]);
        for bad in [f64::NAN, -f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
            assert_eq!(largest([1.0, bad], &mut out), f64::INFINITY);
            assert_eq!(largest([bad, 1.0], &mut out), f64::INFINITY);
        }
    }
}
