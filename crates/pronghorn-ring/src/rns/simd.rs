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
    /// `acc = acc * p + centre(digits)`: a step of Horner's rule, from the most significant digit down.
    pub fn horner_f64<W: Word>(p: &Prime<W>, digits: &[W], acc: &mut [f64]) {
        let factor = p.value() as f64;
        for (acc, &digit) in acc.iter_mut().zip(digits) {
            *acc = *acc * factor + p.centre(digit) as f64;
        }
    }
}

vectorised! {
    /// Rounds to the nearest integer, ties to even; the largest absolute value, infinite where something is not a number.
    pub fn round_f64(values: &[f64], integers: &mut [f64]) -> f64 {
        // Bits of absolute values are in the order of their size, and above infinity stands what is not a number.
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
    /// Cuts integers into digits of `bits` bits, the least significant plane first, leaving nothing of them: every digit but
    /// the last plane's is in `-2^(bits-1) ..= 2^(bits-1)`, and so is the last where the integers are small enough.
    pub fn cut_f64<W: Word>(bits: u32, integers: &mut [f64], planes: &mut [W]) {
        let n = integers.len().max(1);
        let (radix, shrink) = (2f64.powi(bits as i32), 2f64.powi(-(bits as i32)));
        for plane in planes.chunks_exact_mut(n) {
            for (integer, digit) in integers.iter_mut().zip(plane) {
                // All exact: the radix is a power of two, and remainders are multiples of the integer's last bit.
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
