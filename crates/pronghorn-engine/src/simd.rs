//! Elementwise loops over shares, compiled at every SIMD level from the scalar definitions.
#![allow(unsafe_code)] // calls of #[target_feature] functions after run-time detection

use pronghorn_graph::fixed::scalar;
use pronghorn_ring::{Prime, Word, vectorised};

vectorised! {
    /// [`scalar::relu`] on every word.
    pub fn relu(words: &mut [i32]) {
        words.iter_mut().for_each(|word| *word = scalar::relu(*word));
    }
}

vectorised! {
    /// [`scalar::clip`] on every word.
    pub fn clip(words: &mut [i32], low: i32, high: i32) {
        words.iter_mut().for_each(|word| *word = scalar::clip(*word, low, high));
    }
}

vectorised! {
    /// [`scalar::leaky_relu`] on every word.
    pub fn leaky_relu(words: &mut [i32], slope: i32, shift: u32) {
        words.iter_mut().for_each(|word| *word = scalar::leaky_relu(*word, slope, shift));
    }
}

vectorised! {
    /// [`scalar::square`] on every word.
    pub fn square(words: &mut [i32]) {
        words.iter_mut().for_each(|word| *word = scalar::square(*word));
    }
}

vectorised! {
    /// [`scalar::requantise`] on every word; how many were brought to a bound.
    pub fn requantise(words: &mut [i32], shift: u32, low: i32, high: i32) -> u32 {
        let mut saturated = 0;
        for word in words {
            let rounded = scalar::requantise(*word, shift, i32::MIN, i32::MAX);
            *word = scalar::clip(rounded, low, high);
            // Whether the word has changed would be a branch in compiled code.
            saturated += u32::from(rounded < low) | u32::from(rounded > high);
        }
        saturated
    }
}

vectorised! {
    /// `sum += words << left_shift`, wrapping.
    pub fn add_shifted(sum: &mut [i32], words: &[i32], left_shift: u32) {
        for (sum, &word) in sum.iter_mut().zip(words) {
            *sum = sum.wrapping_add(word.wrapping_shl(left_shift));
        }
    }
}

vectorised! {
    /// `sum = (sum << shifts[0]) + (words << shifts[1])`; whether all sums are in `low..=high`.
    pub fn add_parts(sum: &mut [i32], words: &[i32], shifts: [u32; 2], low: i32, high: i32) -> bool {
        let (low, high) = (i64::from(low), i64::from(high));
        let mut outside = 0i64;
        for (sum, &word) in sum.iter_mut().zip(words) {
            let exact = (i64::from(*sum) << shifts[0]) + (i64::from(word) << shifts[1]);
            outside |= (exact - low) | (high - exact);
            *sum = exact as i32;
        }
        outside >= 0
    }
}

vectorised! {
    /// `words *= factor`, wrapping.
    pub fn scale(words: &mut [i32], factor: i32) {
        words.iter_mut().for_each(|word| *word = word.wrapping_mul(factor));
    }
}

vectorised! {
    /// `most = max(most, words)`.
    pub fn maximum(most: &mut [i32], words: &[i32]) {
        for (most, &word) in most.iter_mut().zip(words) {
            *most = (*most).max(word);
        }
    }
}

vectorised! {
    /// `words *= 2 mod q`.
    pub fn double<W: Word>(words: &mut [W], q: &Prime<W>) {
        words.iter_mut().for_each(|word| *word = q.add(*word, *word));
    }
}

vectorised! {
    /// `words += addend mod q`.
    pub fn add_word<W: Word>(words: &mut [W], addend: W, q: &Prime<W>) {
        words.iter_mut().for_each(|word| *word = q.add(*word, addend));
    }
}
