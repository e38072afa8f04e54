//! The reach of a flood, with its proof.
//!
//! A flood is a random integer in every coefficient, which hides noise that depends on secrets. It
//! is the sum of four independent uniform integers ([`Integers::sums_of_uniforms`]), each of `w`
//! values, so its reach is `2^log_reach = 2 w`. One uniform would do for one answer. But its
//! distances add up linearly over coefficients and answers, and those of a sum of four as a square
//! root.
//!
//! # One coefficient
//!
//! Let `p` be the flood's distribution, and `p_e` that of the flood plus a fixed integer `e`. Their
//! squared Hellinger distance is `H^2 = 1/2 sum_x (sqrt p(x) - sqrt p_e(x))^2`. The triangle
//! inequality over `e` shifts by one gives `H^2(p, p_e) <= e^2 H^2(p, p_1)`. With
//! `I_w = 8 w^2 H^2(p, p_1)`, the discrete Fisher information in units of `w^-2`,
//!
//! ```text
//! H^2(p, p_e) <= e^2 I_w / (8 w^2),   I_w <= FISHER = 3.116   for w >= 2^16.           (1)
//! ```
//!
//! For the bound on `I_w` let `c(j) = w^4 p(j)`, with `j` counted from the smallest sum. `c` is
//! symmetric, so `w^4 H^2(p, p_1)` is the sum of `(sqrt c(j) - sqrt c(j - 1))^2` over
//! `0 <= j <= 2w - 2`.
//!
//! * For `j < w`, `c(j) = (j+1)(j+2)(j+3) / 6`, so each term is
//!   `3/2 (j+1)(j+2) / (sqrt(j+3) + sqrt j)^2`. It is 1 for `j = 0`. For others the denominator is
//!   at least `4j + 5`, so the term is at most `3/8 (j + 7/4)`. The sum is below
//!   `3/16 w^2 + 0.47 w + 1`.
//! * For `j >= w` let `f(x) = (x^3 - 4(x-1)^3) / 6` and `x = (j + 3/2) / w`. Then
//!   `c(j) - c(j-1) = w^2 f'(x) + 3/8`, and `c(j) >= c(j-1) >= w^3 f(x) (1 - 2/w) (1 - 1/w^2)`. So
//!   each term, at most `(c(j) - c(j-1))^2 / 4c(j-1)`, is at most
//!   `w/4 (f'^2/f + 3.6/w^2)(1 + 3/w)`. A sum over steps of `1/w` differs from the integral over
//!   `1..2` by the function's variation, which is below 1.7, over `w`. So the sum is below
//!   `w^2/4 (M + 4.2/w + 12/w^2)` with `M = int_1^2 f'^2/f = 0.80787`.
//!
//! Together `I_w <= 1.5 + 2M + 13/w + 32/w^2 = 3.11573 + 13/w + 32/w^2`. (A normal distribution of
//! the flood's variance has 3.) The tests compute `I_w` exactly for small `w`.
//!
//! # Many coefficients and answers
//!
//! The owner of the key chooses inputs after it saw earlier answers, so we need a rule for
//! adaptive choices. `H^2` has one. Let `P` and `Q` be distributions of a sequence of views, and
//! let the views number `i`, **given any history**, be at most `h_i` apart in `H^2`. The affinity
//! `1 - H^2(P, Q) = sum sqrt(P Q)` is then at least `prod (1 - h_i)`: sum out the last view first.
//! So `H^2(P, Q) <= sum_i h_i`. (Where errors are random, `H^2` of a joint distribution with
//! something that both have in common is the expectation of `H^2` given it. So `h_i` may be an
//! expectation over the honest randomness of view `i`, in the worst case over inputs.) The
//! statistical distance is at most `sqrt(2) H`, so with (1)
//!
//! ```text
//! distance <= sqrt(FISHER * power) / 2^log_reach,                                       (2)
//! ```
//!
//! where `power` is the expected sum of the squares of all errors that floods hide under a key: of
//! every coefficient of every answer. It needs no bound on single errors, and none on the tails of
//! the noise. It does not ask whether errors of one answer depend on each other.
//!
//! # Randomness that answers share
//!
//! Errors of keys and of encrypted weights are drawn once, and meet every answer. Call them
//! `omega`. They are no randomness of view `i`: a client that chooses inputs after answers may know
//! something of
//! them. They have one law in `P` and in `Q`, and in `Q` no view depends on them.
//!
//! Let `H^2` of view `i`, given `omega` and the history, be at most `h_i(omega, x_i)` for the
//! chosen input `x_i`. Let it be at most `h` in expectation over `omega` for every fixed input, and
//! at most
//! `kappa h` for every input and every `omega` within its tails. With `A_i` the affinity of the first
//! `i` views together with `omega`,
//!
//! ```text
//! A_(i-1) - A_i = int sqrt(P_(<i) Q_(<i)) h_i <= (E_P h_i + E_Q h_i) / 2.
//! ```
//!
//! In `Q` the history is independent of `omega`, so `E_Q h_i <= h`. In `P` it is `E_P h_i <= h +
//! kappa h D` for the distance `D` of `P` and `Q`. So `H^2 <= R h + R kappa h D / 2` for `R` views.
//! From `D^2 <= 2 H^2 = 2 R h + R kappa h D` follows
//!
//! ```text
//! distance <= sqrt(2 R h) + kappa R h.                                                  (3)
//! ```
//!
//! The first term is (2). With it at `2^-40` the second is `kappa 2^-81`: no matter for a `kappa`
//! of [`MOST_SPREAD`] or less. Two things stay outside. Ciphertexts and keys show `omega`, and hide
//! it only computationally: as in the proof of their security, split `e = e' + e''`, and let the
//! adversary see
//! `m + e''` encrypted with `e'`. And tails are exceeded with the probability that bounds on noise state.
//!
//! KL divergence has a simpler chain rule, and is infinite here, since a shift leaves the range.
//!
//! [`Integers::sums_of_uniforms`]: pronghorn_ring::rns::Integers::sums_of_uniforms

/// A bound on the Fisher information of a flood, times the squared width of its uniforms.
pub const FISHER: f64 = 3.116;

/// Most that the power of an answer's errors may be beyond its expectation, by equation (3) of the
/// [module](self): the distance is then at most `2^-40 + 2^-45`.
pub const MOST_SPREAD: f64 = (1u64 << 36) as f64;

/// Fewest bits of statistical distance for all answers under a key.
pub const LEAST_BITS: u32 = 40;

/// `log2` of the least reach, a power of two, of a flood that keeps all errors under a key within
/// statistical distance `2^-bits`, by equation (2) of the [module](self). `power` is the expected
/// sum of their squares. At least 17, where the equation holds.
pub fn log_reach(power: f64, bits: u32) -> u32 {
    let log = 0.5 * (FISHER * power).log2() + f64::from(bits);
    log.ceil().max(17.0) as u32
}

/// The variance of a coefficient of a flood: that of four uniforms.
pub fn variance(log_reach: u32) -> f64 {
    f64::from(2 * log_reach).exp2() / 12.0
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The sum of four uniforms of `w` values, from the smallest sum on.
    fn distribution(w: usize) -> Vec<f64> {
        let convolve = |p: Vec<f64>| -> Vec<f64> {
            let term = |j: usize| (j.saturating_sub(w - 1)..=j).filter_map(|i| p.get(i));
            (0..p.len() + w - 1)
                .map(|j| term(j).sum::<f64>() / w as f64)
                .collect()
        };
        (0..4).fold(vec![1.0], |p, _| convolve(p))
    }

    fn at(p: &[f64], x: i64) -> f64 {
        usize::try_from(x).map_or(0.0, |x| p.get(x).copied().unwrap_or(0.0))
    }

    /// All places where one of two shifts has mass.
    fn places(p: &[f64], shift: i64) -> std::ops::Range<i64> {
        shift.min(0)..p.len() as i64 + shift.max(0)
    }

    fn fisher(w: usize) -> f64 {
        let p = distribution(w);
        let step = |x: i64| (at(&p, x).sqrt() - at(&p, x - 1).sqrt()).powi(2);
        4.0 * (w * w) as f64 * places(&p, 1).map(step).sum::<f64>()
    }

    #[test]
    fn the_fisher_information_is_what_the_proof_says() {
        for w in [2usize, 8, 16, 64, 256, 1024] {
            let (found, width) = (fisher(w), w as f64);
            let bound = 3.11573 + 13.0 / width + 32.0 / (width * width);
            assert!(found <= bound && found > 3.1157, "{w}: {found} {bound}");
        }
        // The rest of the bound is what FISHER adds.
        let width = 2f64.powi(16);
        assert!(3.11573 + 13.0 / width + 32.0 / (width * width) <= FISHER);
        // The integral M, by Simpson's rule.
        let f = |x: f64| (x.powi(3) - 4.0 * (x - 1.0).powi(3)) / 6.0;
        let slope = |x: f64| (x * x - 4.0 * (x - 1.0).powi(2)) / 2.0;
        let (steps, mut sum, mut variation, mut last) = (1000, 0.0, 0.0, 1.5);
        for i in 0..=steps {
            let x = 1.0 + f64::from(i) / f64::from(steps);
            let value = slope(x).powi(2) / f(x);
            let weight = match i {
                0 | 1000 => 1.0,
                _ if i % 2 == 1 => 4.0,
                _ => 2.0,
            };
            sum += weight * value / (3.0 * f64::from(steps));
            variation += f64::abs(value - last);
            last = value;
        }
        assert!((sum - 0.80786).abs() < 1e-5, "{sum}");
        assert!(variation < 1.7, "{variation}");
    }

    /// Equation (2) for a width whose information is computed.
    fn bound(w: usize, power: f64) -> f64 {
        (fisher(w) * power).sqrt() / (2 * w) as f64
    }

    #[test]
    fn shifts_of_one_coefficient_are_within_the_bound() {
        for w in [4, 16, 64, 256] {
            let p = distribution(w);
            for e in [1, 2, 3, w / 4, w, 2 * w] {
                let e = e as i64;
                let gap = |x: i64| (at(&p, x) - at(&p, x - e)).abs();
                let exact = places(&p, e).map(gap).sum::<f64>() / 2.0;
                let bound = bound(w, (e * e) as f64);
                assert!(exact <= bound, "{w} {e}: {exact} {bound}");
                // The bound is not loose where it is small: one coefficient is at sqrt(2 / pi) of
                // it, less a little.
                assert!(
                    bound > 1.0 || exact > 0.65 * bound,
                    "{w} {e}: {exact} {bound}"
                );
            }
        }
    }

    /// Several coefficients with errors of their own: all outcomes, one by one.
    #[test]
    fn products_are_within_the_bound() {
        for (w, errors) in [
            (2, vec![1, 1, 1]),
            (4, vec![1, -1, 2]),
            (6, vec![1, 0, -2, 1]),
        ] {
            let p = distribution(w);
            let mut outcomes = vec![(1.0, 1.0)];
            for &e in &errors {
                let pairs: Vec<_> = places(&p, e).map(|x| (at(&p, x), at(&p, x - e))).collect();
                outcomes = outcomes
                    .iter()
                    .flat_map(|(x, y)| pairs.iter().map(move |(p, q)| (x * p, y * q)))
                    .collect();
            }
            let exact = outcomes.iter().map(|(x, y)| f64::abs(x - y)).sum::<f64>() / 2.0;
            let power = errors.iter().map(|e| e * e).sum::<i64>() as f64;
            let bound = bound(w, power);
            assert!(exact <= bound, "{w}: {exact} {bound}");
            assert!(exact > 0.6 * bound.min(1.0), "{w}: {exact} {bound}");
        }
    }

    /// Many coefficients: the distance grows as the square root of their number. By the
    /// likelihood's distribution, rounded to a fine grid.
    #[test]
    fn distances_grow_as_a_square_root() {
        let w = 64;
        let p = distribution(w);
        let affinity: f64 = places(&p, 1)
            .map(|x| (at(&p, x) * at(&p, x - 1)).sqrt())
            .sum();
        for count in [1, 16, 256] {
            // Between 1 - affinity and sqrt(1 - affinity^2), both of which grow so.
            let all = affinity.powi(count);
            let upper = (1.0 - all * all).sqrt();
            let bound = bound(w, f64::from(count));
            assert!(upper <= bound, "{count}: {upper} {bound}");
            assert!(upper > 0.98 * bound, "{count}: {upper} {bound}");
        }
    }

    /// A second error that is chosen after the first answer was seen, in the best way for the one
    /// who chooses: the bound holds with the largest errors.
    #[test]
    fn adaptive_choices_are_within_the_bound() {
        for (w, most) in [(4, 1), (8, 2), (32, 5)] {
            let p = distribution(w);
            let second = |x: f64, y: f64, e: i64| -> f64 {
                places(&p, e)
                    .map(|z| (x * at(&p, z) - y * at(&p, z - e)).abs())
                    .sum()
            };
            let gap = |x: i64| {
                let (real, ideal) = (at(&p, x), at(&p, x - most));
                (-most..=most)
                    .map(|e| second(real, ideal, e))
                    .fold(0.0, f64::max)
            };
            let exact = places(&p, most).map(gap).sum::<f64>() / 2.0;
            let bound = bound(w, (2 * most * most) as f64);
            assert!(exact <= bound, "{w}: {exact} {bound}");
            assert!(exact > 0.7 * bound, "{w}: {exact} {bound}");
        }
    }

    #[test]
    fn reaches_keep_the_distance() {
        for (power, bits) in [(1.0, 40), (1e9, 40), (3.7e30, 64)] {
            let reach = log_reach(power, bits);
            let distance = (FISHER * power).sqrt().log2() - f64::from(reach);
            let spare = -distance - f64::from(bits);
            assert!((0.0..1.0).contains(&spare), "{power}: {distance}");
        }
        // 2^40 times the root of 3.116 * 10.5 * 2^30.
        assert_eq!(log_reach(10.5 * 2f64.powi(30), LEAST_BITS), 40 + 15 + 3);
        assert_eq!(variance(20), 2f64.powi(40) / 12.0);
    }
}
