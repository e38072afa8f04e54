//! Bounds on noise, from numbers alone: a planner needs no ciphertexts.
//!
//! Noise is measured at the slots, in units of the ciphertext's integers (divide by the scale for
//! values), by its power: the expectation of `|e(zeta)|^2`, which for a polynomial with independent
//! coefficients of variance `V` is `N V`. Powers of independent noises add, and a product with a
//! message of slots up to `M` multiplies them by `M^2`; this is the average-case analysis of
//! Costache, Curtis, Hales, Murphy, Ogilvie, Player, "On the precision loss in approximate
//! homomorphic encryption" (ePrint 2022/162). What is assumed beyond the definitions:
//!
//! * Errors, roundings and digits are independent of each other and of messages. Sums of
//!   ciphertexts that share an ancestor want [`Noise::add_dependent`], or a single multiplication
//!   by the sum of their weights.
//! * A noise is normal at each slot and in each coefficient: it is a sum of at least `N` terms,
//!   none of which stands out. Products of two unknown noises are not normal at a slot, and their
//!   tail is taken from that of a product.
//! * `|s(zeta)|^2` is at most [`secret_bound`], which key generation enforces.
//!
//! Bounds are exceeded with probability at most `2^-64` each under these assumptions.

use std::{
    f64::consts::{LN_2, SQRT_2},
    ops::Add,
};

use pronghorn_ring::Word;

pub use crate::rns::secret_bound;
use crate::{
    flood,
    noise::{ERROR_VARIANCE, FAILURE_BITS, TERNARY_VARIANCE},
    rns::{Parameters, embedding::exact},
};

/// Variance of a rounding to the nearest integer.
pub(crate) const ROUNDING_VARIANCE: f64 = 1.0 / 12.0;
/// The largest product of two normal slots against the largest normal slot of its power, squared:
/// for complex normal `x`, `y` of power 1, `Pr[|x y| > t] = 2 t K_1(2 t)`, which is `2^-64` at
/// 23.4, against `exp(-t^2)` at 6.66.
const PRODUCT_TAIL: f64 = 12.4;

/// The power of a noise at the slots: on average over them, which is what a coefficient sees, and
/// at the worst of them.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Noise {
    /// On average over the slots: `N` times the variance of a coefficient.
    pub mean: f64,
    /// At the worst slot for the worst key.
    pub peak: f64,
}

impl Noise {
    /// The same at all slots, for independent coefficients of this variance.
    pub(crate) fn flat(n: usize, variance: f64) -> Self {
        let power = n as f64 * variance;
        Self {
            mean: power,
            peak: power,
        }
    }

    /// Of rounding a message to integers. Values beyond the precision of doubles are not its
    /// business.
    pub fn of_encoding(n: usize) -> Self {
        Self::flat(n, ROUNDING_VARIANCE)
    }

    /// Of an [exact message](Parameters::exact_message): each coefficient as far from the exact one
    /// as it can be, whatever the values are.
    pub fn of_exact_encoding(n: usize) -> Self {
        Self::flat(n, exact::ERROR * exact::ERROR)
    }

    /// Of an encryption with the secret key: `e`.
    pub fn of_secret_encryption(n: usize) -> Self {
        Self::flat(n, ERROR_VARIANCE)
    }

    /// Of an encryption with the public key: `e_pk v + e_0 + e_1 s`.
    pub fn of_public_encryption(n: usize) -> Self {
        let error = Self::flat(n, ERROR_VARIANCE);
        let masked = Self::flat(n, TERNARY_VARIANCE).unknown_product(error);
        error.times_secret_powers(n, 2) + masked
    }

    /// Of a sum of noises that may be the same: amplitudes add.
    #[must_use]
    pub fn add_dependent(self, other: Self) -> Self {
        let sum = |x: f64, y: f64| (x.sqrt() + y.sqrt()).powi(2);
        Self {
            mean: sum(self.mean, other.mean),
            peak: sum(self.peak, other.peak),
        }
    }

    /// Of a product with a number; of a sum of independent noises like this one with several
    /// weights, for their Euclidean norm.
    #[must_use]
    pub fn times(self, factor: f64) -> Self {
        Self {
            mean: self.mean * factor * factor,
            peak: self.peak * factor * factor,
        }
    }

    /// Of `(m + e)(p + r)` for a plaintext `p` with its rounding `r`: slots of `m` and `p` are at
    /// most `message` and `plain`, scales included.
    #[must_use]
    pub fn times_plain(self, n: usize, message: f64, plain: f64) -> Self {
        self.multiply(Self::of_encoding(n), message, plain)
    }

    /// Of `(m_1 + e_1)(m_2 + e_2)` with independent noises: slots of the messages are at most
    /// `left` and `right`, scales included.
    #[must_use]
    pub fn multiply(self, other: Self, left: f64, right: f64) -> Self {
        self.times(right) + other.times(left) + self.unknown_product(other)
    }

    /// Of `(m + e)^2`, that is `2 m e + e^2`; slots of the message are at most `message`.
    #[must_use]
    pub fn square(self, message: f64) -> Self {
        let square = self.unknown_product(self);
        self.times(2.0 * message) + square.times(SQRT_2)
    }

    /// Of a ciphertext of `polys` polynomials divided by `divisor` and rounded: `sum_i r_i s^i`
    /// more.
    #[must_use]
    pub fn rescale(self, n: usize, polys: usize, divisor: f64) -> Self {
        let rounding = Self::flat(n, ROUNDING_VARIANCE).times_secret_powers(n, polys);
        self.times(1.0 / divisor) + rounding
    }

    /// An error times each digit of a polynomial, divided by the special primes, and nothing else.
    pub(crate) fn of_digits(n: usize, digits: &[f64], log_special: f64) -> Self {
        let error = Self::flat(n, ERROR_VARIANCE);
        let digit = |log: &f64| {
            let digit = Self::flat(n, (2.0 * (log - log_special)).exp2() * ROUNDING_VARIANCE);
            digit.unknown_product(error)
        };
        digits.iter().map(digit).fold(Self::default(), Self::add)
    }

    /// The noise of switching `switched` polynomials to `s` together: `digits` are `log2` of the
    /// digits' moduli, `log_special` of the special primes' product. An error a digit, divided by
    /// the special primes, and one rounding.
    pub fn of_key_switch(n: usize, switched: usize, digits: &[f64], log_special: f64) -> Self {
        let errors = Self::of_digits(n, digits, log_special);
        errors.times((switched as f64).sqrt()).rescale(n, 2, 1.0)
    }

    /// The noise that [`flood`](super::PublicKey::flood) adds to a ciphertext of `polys`
    /// polynomials: encryptions of zero at each power of the secret but the highest, and an error
    /// of reach `2^log_reach`.
    pub fn of_flood(n: usize, polys: usize, log_reach: u32) -> Self {
        Self::flat(n, flood::variance(log_reach)) + Self::of_masks(n, polys)
    }

    /// The encryptions of zero of a flood.
    fn of_masks(n: usize, polys: usize) -> Self {
        // `(e_pk v + e_0) s^i` and `e_1 s^(i+1)`, for `i` below `polys - 1`.
        let error = Self::flat(n, ERROR_VARIANCE);
        let masked = Self::flat(n, TERNARY_VARIANCE).unknown_product(error);
        (error + masked).times_secret_powers(n, polys - 1) + error.times_secret_powers(n, polys)
    }

    /// The product of independent noises, neither of which is known: what grows is the tail at a
    /// slot.
    pub(crate) fn unknown_product(self, other: Self) -> Self {
        Self {
            mean: self.mean * other.mean,
            peak: self.peak * other.peak * PRODUCT_TAIL,
        }
    }

    /// Of `sum_(i < powers) e_i s^i` for independent noises like this one.
    pub(crate) fn times_secret_powers(self, n: usize, powers: usize) -> Self {
        let (mut mean, mut peak) = (0.0, 0.0);
        // The mean of |s|^(2i) over normal slots is i! times that of |s|^2 to the power i.
        let (mut moment, mut most) = (1.0, 1.0);
        for i in 0..powers {
            mean += self.mean * moment;
            peak += self.peak * most;
            moment *= (i + 1) as f64 * TERNARY_VARIANCE * n as f64;
            most *= secret_bound(n);
        }
        Self { mean, peak }
    }

    /// The noise at any one slot is at most this in absolute value, but for probability `2^-64`.
    pub fn slot_bound(self) -> f64 {
        (f64::from(FAILURE_BITS) * LN_2 * self.peak).sqrt()
    }

    /// Any one coefficient of the noise is at most this in absolute value, but for probability
    /// `2^-64`.
    pub fn coefficient_bound(self, n: usize) -> f64 {
        (2.0 * f64::from(FAILURE_BITS + 1) * LN_2 * self.mean / n as f64).sqrt()
    }

    /// The `log_reach` to [`flood`](super::PublicKey::flood) ciphertexts of this noise and of
    /// `polys` polynomials with. All that the owner of the key sees of so many ciphertexts is then
    /// within statistical distance `2^-bits` of what the values alone say.
    ///
    /// The mean power of a noise at the slots is the sum of the squares of its coefficients.
    pub fn flood_reach(self, n: usize, polys: usize, ciphertexts: f64, bits: u32) -> u32 {
        let hidden = self + Self::of_masks(n, polys);
        flood::log_reach(ciphertexts * hidden.mean, bits)
    }
}

/// Of a sum of independent noises; see [`Noise::add_dependent`] for others.
impl Add for Noise {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            mean: self.mean + other.mean,
            peak: self.peak + other.peak,
        }
    }
}

impl<W: Word> Parameters<W> {
    /// [`Noise::of_key_switch`] for ciphertexts of `limbs` limbs. Nothing where there are no
    /// special primes.
    ///
    /// # Panics
    /// When there are no such limbs.
    pub fn key_switch_noise(&self, limbs: usize, switched: usize) -> Noise {
        assert!(limbs <= self.limbs(), "no more limbs than the chain has");
        let ranges = self.digit_ranges().take(self.digit_count(limbs));
        let log = |range: std::ops::Range<usize>| {
            self.basis().log2_product(range.start..range.end.min(limbs))
        };
        let digits: Vec<f64> = ranges.map(log).collect();
        let special = self
            .basis()
            .log2_product(self.limbs()..self.basis().limbs());
        Noise::of_key_switch(self.n(), switched, &digits, special)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn close(found: f64, expected: f64) {
        assert!((found / expected - 1.0).abs() < 1e-9, "{found} {expected}");
    }

    #[test]
    fn known_noises() {
        let n = 4096;
        let fresh = Noise::of_secret_encryption(n);
        // 10.5 a coefficient; sqrt(64 ln 2 * 4096 * 10.5) and sqrt(130 ln 2 * 10.5).
        close(fresh.mean, 43_008.0);
        close(fresh.slot_bound(), (64.0 * 2f64.ln() * 43_008.0f64).sqrt());
        close(
            fresh.coefficient_bound(n),
            (130.0 * 2f64.ln() * 10.5f64).sqrt(),
        );
        close(fresh.times(3.0).mean, 9.0 * 43_008.0);
        close((fresh + fresh).peak, 2.0 * fresh.peak);
        close(fresh.add_dependent(fresh).peak, 4.0 * fresh.peak);
        // e_pk v + e_0 + e_1 s: 10.5 (2 * 2/3 N + 1) a coefficient.
        let public = Noise::of_public_encryption(n);
        close(public.mean, 43_008.0 * (2.0 * 2.0 / 3.0 * 4096.0 + 1.0));
        // Rounding alone: (1 + 2/3 N) / 12 a coefficient.
        let rounded = Noise::default().rescale(n, 2, 1e9);
        close(rounded.mean, 4096.0 / 12.0 * (1.0 + 2.0 / 3.0 * 4096.0));
        // Powers of the secret weigh i! (2/3 N)^i.
        let rounded = Noise::default().rescale(n, 3, 1e9);
        let secret = 2.0 / 3.0 * 4096.0;
        close(
            rounded.mean,
            4096.0 / 12.0 * (1.0 + secret + 2.0 * secret * secret),
        );
    }

    #[test]
    fn products_of_messages_dominate() {
        let n = 1024;
        let fresh = Noise::of_secret_encryption(n);
        let message = 2f64.powi(40);
        close(
            fresh.square(message).mean,
            fresh.mean * 4.0 * message * message,
        );
        close(
            fresh.multiply(fresh, message, 3.0 * message).mean,
            fresh.mean * 10.0 * message * message,
        );
    }

    #[test]
    fn floods_are_wide_enough() {
        let n = 2048;
        let noise = Noise::of_secret_encryption(n).times(2f64.powi(40));
        let log_reach = noise.flood_reach(n, 2, 2f64.powi(20), 40);
        // 40 bits of distance and of noise, 10 of the ciphertexts and 5.5 of the coefficients, and
        // the root of 3.116 * 10.5.
        assert_eq!(log_reach, 40 + 40 + 10 + 9);
        close(
            Noise::of_flood(n, 2, log_reach).mean,
            n as f64 * f64::from(2 * log_reach).exp2() / 12.0,
        );
    }

    #[test]
    fn key_switches_cost_a_rounding_and_their_digits() {
        let n = 1024;
        let rounding = Noise::default().rescale(n, 2, 1.0);
        let negligible = Noise::of_key_switch(n, 1, &[30.0, 30.0], 60.0);
        close(negligible.mean, rounding.mean);
        let equal = Noise::of_key_switch(n, 3, &[30.0, 30.0], 30.0);
        let digits = 6.0 * 1024.0 * 1024.0 * 10.5 / 12.0;
        close(equal.mean, rounding.mean + digits);
    }
}
