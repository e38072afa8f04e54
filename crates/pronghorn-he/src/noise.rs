//! Bounds on the noise of linear combinations of fresh ciphertexts.

use pronghorn_ring::sample::ERROR_ETA;

/// Variance of a fresh error: a centred binomial with parameter `eta` has variance `eta / 2`.
pub const ERROR_VARIANCE: f64 = ERROR_ETA as f64 / 2.0;

/// Variance of a coefficient that is uniform over -1, 0 and 1.
pub(crate) const TERNARY_VARIANCE: f64 = 2.0 / 3.0;

/// A coefficient decrypts wrongly with probability at most `2^-FAILURE_BITS`, so a batch of
/// `2^24` values does with probability at most `2^-40`.
pub const FAILURE_BITS: u32 = 64;

/// Bound on `|sum_i w_i e_i|` for fresh errors `e_i`, exceeded with probability at most
/// `2^-FAILURE_BITS`; `norm2` is the Euclidean norm of the weights.
///
/// A centred binomial is a sum of `2 eta` independent centred bits of range one, so by Hoeffding's
/// lemma it is sub-Gaussian with variance proxy `2 eta / 4`, which is its variance, and
/// `Pr[|sum| > t] <= 2 exp(-t^2 / (2 * ERROR_VARIANCE * norm2^2))` holds exactly, not
/// asymptotically. Errors are never larger than `eta`, which gives the second bound (`norm1`: sum
/// of `|w_i|`).
pub fn linear_bound(norm1: f64, norm2: f64) -> u64 {
    let probable = ERROR_VARIANCE.sqrt() * norm2 * tail();
    let certain = f64::from(ERROR_ETA) * norm1;
    probable.min(certain).ceil() as u64
}

/// Bound on the noise of answers whose `a` lost its `dropped` low bits (modulus switching),
/// exceeded with probability at most `2^-FAILURE_BITS`: `sum_j s_j d_j` with `n` ternary `s_j`, and
/// `|d_j| <= 2^(dropped - 1)`.
///
/// Uniform over -1, 0 and 1 is sub-Gaussian with its variance, 2/3, as proxy
/// (`(1 + 2 cosh t) / 3 <= exp(t^2 / 3)`), so the bound holds for all `d_j` that do not depend on
/// the secret, without assuming that they look random.
pub fn dropped_a_bound(n: usize, dropped: u32) -> u64 {
    if dropped == 0 {
        return 0;
    }
    let norm2 = (2.0 / 3.0 * n as f64).sqrt() * 2f64.powi(dropped as i32 - 1);
    (norm2 * tail()).ceil() as u64
}

/// `t` with `2 exp(-t^2 / 2) = 2^-FAILURE_BITS`.
fn tail() -> f64 {
    (2.0 * f64::from(FAILURE_BITS + 1) * std::f64::consts::LN_2).sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_bounds() {
        assert_eq!(linear_bound(1.0, 1.0), 21);
        // sqrt(10.5) * 1000 * sqrt(130 ln 2) = 30760.0...
        let bound = linear_bound(1e9, 1000.0);
        assert!((30_750..30_770).contains(&bound), "{bound}");
        // sqrt(2/3 * 2048) * sqrt(130 ln 2) * 2^7 = 44900.3...
        assert_eq!(dropped_a_bound(2048, 0), 0);
        let bound = dropped_a_bound(2048, 8);
        assert!((44_890..44_910).contains(&bound), "{bound}");
    }
}
