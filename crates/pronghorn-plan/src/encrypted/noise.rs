//! How large errors of CKKS ciphertexts are: standard deviations in a slot, in units of the ring (before division by the
//! scale).
//!
//! Average-case analysis in the canonical embedding (Costache, Curtis, Hales, Murphy, Ogilvie, Player, "On the precision
//! loss in approximate homomorphic encryption", ePrint 2022/162): coefficients of errors are independent of each other
//! and of the message, so an error with coefficients of variance `v` has variance `N v` in a slot. Where errors of
//! several ciphertexts depend on each other, standard deviations are added (Minkowski), not variances.

use pronghorn_he::noise::ERROR_VARIANCE;

/// Variance of rounding to integers.
const ROUNDING: f64 = 1.0 / 12.0;

/// Variance of a coefficient of a ternary secret.
const TERNARY: f64 = 2.0 / 3.0;

/// A fresh ciphertext by the secret key, encoding included.
pub fn fresh(degree: usize) -> f64 {
    (degree as f64 * (ERROR_VARIANCE + ROUNDING)).sqrt()
}

/// Rounding all coefficients of a ciphertext of `polys` polynomials, as rescaling does: sum over `i` of `r_i s^i`, with
/// `E |s|^2i = i! (N * 2/3)^i` in a slot.
pub fn rounding(degree: usize, polys: usize) -> f64 {
    let n = degree as f64;
    let (mut sum, mut power) = (0.0, 1.0);
    for i in 0..polys {
        sum += power;
        power *= (i + 1) as f64 * n * TERNARY;
    }
    (n * ROUNDING * sum).sqrt()
}

/// Re-randomising a ciphertext of `polys` polynomials: for each `i >= 1` an encryption of zero by the public key, `v e +
/// e_0 + e_1 s`, times `s^(i-1)`.
pub fn rerandomisation(degree: usize, polys: usize) -> f64 {
    let n = degree as f64;
    let zero = n * ERROR_VARIANCE * (1.0 + 2.0 * n * TERNARY);
    let (mut sum, mut power) = (0.0, 1.0);
    for i in 1..polys {
        sum += power;
        power *= i as f64 * n * TERNARY;
    }
    (zero * sum).sqrt()
}

/// A uniform summand within `+-width` in each coefficient.
pub fn flood(degree: usize, width: f64) -> f64 {
    (degree as f64 / 3.0).sqrt() * width
}

/// The width of a uniform summand that hides an error of standard deviation `slot` in a slot: two answers whose errors
/// differ by `e` in a coefficient are `e / (2 width)` apart there, and errors of a coefficient have standard deviation
/// `slot / sqrt(N)`, which bounds the mean of `|e|`.
pub fn flood_width(degree: usize, slot: f64, bits: i32) -> f64 {
    2f64.powi(bits - 1) * slot / (degree as f64).sqrt()
}
