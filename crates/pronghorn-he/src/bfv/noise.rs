//! Bounds on noise, from numbers alone: a planner needs no ciphertexts.
//!
//! Noise is `e` in `b + a s = (Q / t) m + e`, a polynomial, measured by the variance of a
//! coefficient. Variances of independent noises add, and a product with a polynomial of Euclidean
//! norm `p` multiplies them by `p^2`, exactly so for a given polynomial and independent
//! coefficients of `e`. What is assumed beyond the definitions:
//!
//! * The digits of ciphertexts are uniform and independent of errors, as ciphertexts are
//!   pseudorandom.
//! * A noise behaves as a normal one up to `2^-64`: those of fresh encryptions and their products
//!   with plaintexts are sub-Gaussian with their variance, those of key switches are sums of at
//!   least `N` products, none of which stands out.
//! * Products of rotations of one ciphertext with different plaintexts add up like independent
//!   ones: what slots become in coefficients looks random, and its signs average out. Plaintexts
//!   that are equal or the negatives of one another want [`Noise::sum_dependent`].
//!
//! Bounds are exceeded with probability at most `2^-64` each under these assumptions.

use std::ops::Add;

use pronghorn_ring::Word;

use super::Parameters;
use crate::{
    noise::{ERROR_VARIANCE, FAILURE_BITS},
    rns::parameters::Piece,
};

/// Variance of a rounding to the nearest integer, and of a uniform digit, in units of its range
/// squared.
const UNIFORM_VARIANCE: f64 = 1.0 / 12.0;

/// The noise of a ciphertext: the variance of a coefficient.
#[derive(Clone, Copy, PartialEq, PartialOrd, Debug, Default)]
pub struct Noise {
    /// The variance.
    pub variance: f64,
}

impl Noise {
    /// Of an encryption with the secret key: the error, and the rounding of `Q m / t`. Of a
    /// plaintext that is added, at most the same.
    pub fn of_secret_encryption() -> Self {
        let variance = ERROR_VARIANCE + UNIFORM_VARIANCE;
        Self { variance }
    }

    /// Of a plaintext that is added: the rounding of `Q m / t`.
    pub fn of_plaintext() -> Self {
        Self {
            variance: UNIFORM_VARIANCE,
        }
    }

    /// Of an encryption of zero with the public key: `e v + e_0 + e_1 s`, ternary `v` and `s`
    /// having norms of at most `sqrt(N)`.
    pub fn of_public_encryption(n: usize) -> Self {
        let variance = ERROR_VARIANCE * (2.0 * n as f64 + 1.0);
        Self { variance }
    }

    /// Of a product with a polynomial of this Euclidean norm
    /// ([`Multiplier::norm`](super::Multiplier::norm)).
    #[must_use]
    pub fn times(self, norm: f64) -> Self {
        let variance = self.variance * norm * norm;
        Self { variance }
    }

    /// Of a sum of so many independent noises like this one.
    #[must_use]
    pub fn sum(self, count: usize) -> Self {
        self.times((count as f64).sqrt())
    }

    /// Of a sum of so many noises like this one that may be the same: amplitudes add.
    #[must_use]
    pub fn sum_dependent(self, count: usize) -> Self {
        self.times(count as f64)
    }

    /// The standard deviation, which the mean of the absolute value is at most.
    pub fn deviation(self) -> f64 {
        self.variance.sqrt()
    }

    /// Any one coefficient is at most this in absolute value, but for probability `2^-64`.
    pub fn bound(self) -> f64 {
        (2.0 * f64::from(FAILURE_BITS + 1) * std::f64::consts::LN_2 * self.variance).sqrt()
    }
}

/// Of a sum of independent noises.
impl Add for Noise {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        let variance = self.variance + other.variance;
        Self { variance }
    }
}

impl<W: Word> Parameters<W> {
    /// The largest norm of a plaintext: coefficients of `t / 2`, where those of random values have
    /// `t / sqrt(12)`.
    pub fn largest_norm(&self) -> f64 {
        self.t() as f64 / 2.0 * (self.n() as f64).sqrt()
    }

    /// The noise of a key switch before its division: an error a digit.
    pub fn switch_noise(&self) -> Noise {
        let n = self.n() as f64;
        let ring = self.ring();
        let log_special = ring
            .basis()
            .log2_product(ring.limbs()..ring.basis().limbs());
        let log = |piece: &Piece| match piece.bits {
            0 => ring.basis().log2_product(piece.limbs.clone()),
            bits => bits.into(),
        };
        let variance = |piece: &Piece| {
            n * (2.0 * (log(piece) - log_special)).exp2() * UNIFORM_VARIANCE * ERROR_VARIANCE
        };
        let variance = self.pieces().iter().map(variance).sum();
        Noise { variance }
    }

    /// The noise of a division by the special primes: a rounding of both polynomials. Zero without
    /// special primes.
    pub fn division_noise(&self) -> Noise {
        if self.ring().special_limbs() == 0 {
            return Noise::default();
        }
        let variance = UNIFORM_VARIANCE * (self.n() as f64 + 1.0);
        Noise { variance }
    }

    /// The noise of a rotation, or of the swap of rows.
    pub fn rotation_noise(&self) -> Noise {
        self.switch_noise() + self.division_noise()
    }

    /// Of a sum of `count` products of different plaintexts and rotations of ciphertexts of noise
    /// `input`, by [`rotated_products`](super::rotated_products).
    pub fn rotated_products_noise(&self, input: Noise, count: usize) -> Noise {
        let products = (input + self.switch_noise()).times(self.largest_norm());
        products.sum(count) + self.division_noise()
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
        let fresh = Noise::of_secret_encryption();
        close(fresh.variance, 10.5 + 1.0 / 12.0);
        close(fresh.bound(), (130.0 * 2f64.ln() * fresh.variance).sqrt());
        close(fresh.times(3.0).variance, 9.0 * fresh.variance);
        close(fresh.sum(16).bound(), 4.0 * fresh.bound());
        close(fresh.sum_dependent(16).bound(), 16.0 * fresh.bound());
        close((fresh + fresh).variance, 2.0 * fresh.variance);
        // Six digits: 17, 17 and 16 bits of each limb.
        let parameters = Parameters::<u64>::small(17).unwrap();
        let digits = 2.0 * (2.0 * 34f64.exp2() + 32f64.exp2()) / 12.0;
        close(parameters.switch_noise().variance, 4096.0 * 10.5 * digits);
        assert_eq!(parameters.division_noise(), Noise::default());
        // Three digits as large as the special prime.
        let parameters = Parameters::<u64>::large(17).unwrap();
        let variance = parameters.switch_noise().variance;
        assert!((variance / (3.0 * 8192.0 * 10.5 / 12.0) - 1.0).abs() < 1e-3);
        close(parameters.division_noise().variance, 8193.0 / 12.0);
    }
}
