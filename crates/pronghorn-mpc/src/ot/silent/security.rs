//! Costs of the known attacks on regular LPN with a code of ten secrets a row.
//!
//! The sender, or whoever knows what some choices mask, sees outputs of `A u + e`: `N` rows of `K`
//! secrets, and one noisy row in each of `t` blocks of `2^depth`. All figures are the base 2
//! logarithm of expected bit operations over the probability of success. An exhaustive search for
//! an AES-128 key is about 2^143 of these.
//!
//! *Gauss.* Guess equations that are free of noise, as many as unknowns, and solve them by
//! Wiedemann's algorithm, which makes use of the ten entries a row. A guess costs `20 K^2`.
//!
//! *Sub-instances.* A row lies within a set `S` of `sigma K` secrets with probability `sigma^10`.
//! From `sigma = (K / N)^(1/9)` on a random `S` has as many rows as secrets, so that only `sigma K`
//! rows must be free of noise. Peeling off the secrets of least degree finds denser sets
//! ([`PEELED`]). The idea is "domain reduction" (Chen, Shu and Zhou, "Algorithms for sparse LPN and
//! LSPN against low-noise", COLT 2025), applied to a code of constant weight. It makes the ratio of
//! secrets to the leaves of a tree decide: the number of trees hardly matters.
//!
//! *Lists.* With 64 vectors of the left kernel, a few noisy rows are found by a collision of two
//! lists. [`Instance::bound_with_lists`] assumes the smallest set that the first moment allows.
//!
//! *Algebraic.* The blocks of noise give `t C(2^depth, 2)` quadratic equations (Briaud and
//! Oygarden, EUROCRYPT 2023). Guess rows free of noise until the system is linear in its monomials
//! of degree 2, or of degree 3 by the Hilbert series. "Dense" is Strassen's exponent on what is
//! left, "sparse" is Wiedemann on the system before substitution.
//!
//! These are estimates by formulas. The sub-instances are verified with toy instances by tests of
//! this crate. The lists, the sparse algebraic form and degree 3 are not verified.

use super::{code::WEIGHT, parameters::LpnParameters};

/// Sizes of an instance of regular LPN.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Instance {
    /// Secrets, `K`.
    pub secrets: f64,
    /// Blocks with one noisy row each, `t`.
    pub trees: f64,
    /// Rows of a block.
    pub leaves: f64,
}

impl From<LpnParameters> for Instance {
    fn from(set: LpnParameters) -> Self {
        Self {
            secrets: set.secrets() as f64,
            trees: set.trees() as f64,
            leaves: set.leaves() as f64,
        }
    }
}

/// Rows a secret, and the share of the secrets that peeling leaves when as many rows are left.
///
/// Measured for `K = 2^15`, smallest of three runs. For `2^17` the figures are within 0.001.
pub const PEELED: [(f64, f64); 19] = [
    (3.5, 0.7726),
    (4.5, 0.7436),
    (5.468_75, 0.7225),
    (6.25, 0.7086),
    (7.031_25, 0.6972),
    (8.0, 0.6846),
    (9.375, 0.6700),
    (11.718_75, 0.6505),
    (13.5, 0.6379),
    (15.625, 0.6265),
    (18.28, 0.6141),
    (20.7, 0.6039),
    (23.2, 0.5959),
    (26.0, 0.5869),
    (29.6875, 0.5775),
    (35.1, 0.5659),
    (45.0, 0.5489),
    (60.0, 0.5303),
    (82.1, 0.5107),
];

impl Instance {
    fn rows(&self) -> f64 {
        self.trees * self.leaves
    }

    /// Bits of the chance that a share of all rows is free of noise.
    fn clean(&self, share: f64) -> f64 {
        -self.trees * (1.0 - share).log2()
    }

    /// Plain elimination over all secrets.
    pub fn gauss(&self) -> f64 {
        self.sub_instance(1.0)
    }

    /// A random sub-instance.
    pub fn random_sub_instance(&self) -> f64 {
        self.sub_instance(self.random_share())
    }

    /// A sub-instance found by peeling.
    pub fn peeled_sub_instance(&self) -> f64 {
        self.sub_instance(self.peeled_share())
    }

    /// A sub-instance found by peeling, with lists of noisy rows.
    pub fn peeled_with_lists(&self) -> f64 {
        self.with_lists(self.peeled_share())
    }

    /// The smallest sub-instance that may exist, with lists.
    pub fn bound_with_lists(&self) -> f64 {
        self.with_lists(self.least_share())
    }

    /// The attacks above and below.
    pub fn all(&self) -> [f64; 8] {
        [
            self.gauss(),
            self.random_sub_instance(),
            self.peeled_sub_instance(),
            self.peeled_with_lists(),
            self.bound_with_lists(),
            self.algebraic_dense(),
            self.algebraic_sparse(),
            self.algebraic_cubic(),
        ]
    }

    /// Share of the secrets in a random set with as many rows as secrets.
    fn random_share(&self) -> f64 {
        (self.secrets / self.rows()).powf(1.0 / (WEIGHT - 1) as f64)
    }

    /// Share of the secrets after peeling, between the entries of [`PEELED`] by straight lines.
    fn peeled_share(&self) -> f64 {
        let ratio = self.rows() / self.secrets;
        let last = PEELED.len() - 1;
        let after = PEELED
            .iter()
            .position(|&(rows, _)| rows >= ratio)
            .unwrap_or(last);
        let [(x0, y0), (x1, y1)] = [PEELED[after.max(1) - 1], PEELED[after.max(1)]];
        y0 + (y1 - y0) * (ratio - x0) / (x1 - x0)
    }

    /// Least share for which sets with as many rows as secrets are expected: where the entropy of
    /// the choice meets the large deviation of the number of rows.
    fn least_share(&self) -> f64 {
        let ratio = self.rows() / self.secrets;
        let exists = |share: f64| {
            let entropy = -share * share.ln() - (1.0 - share) * (1.0 - share).ln();
            let expected = ratio * share.powi(WEIGHT as i32);
            expected >= share || entropy >= expected - share + share * (share / expected).ln()
        };
        bisect(0.01, self.random_share(), exists)
    }

    fn sub_instance(&self, share: f64) -> f64 {
        let unknowns = share * self.secrets;
        self.clean(unknowns / self.rows()) + (2.0 * WEIGHT as f64 * unknowns * unknowns).log2()
    }

    fn with_lists(&self, share: f64) -> f64 {
        let unknowns = share * self.secrets;
        let clean = self.clean(unknowns / self.rows());
        let noisy = self.trees * unknowns / self.rows();
        let kernel = (2.0 * WEIGHT as f64 * unknowns * unknowns * 64.0).log2();
        let cost = |errors: u32| {
            let half = errors / 2;
            let list = f64::from(half) * (unknowns / 2.0).log2() - factorial(half).log2();
            let both = f64::from(u8::from((kernel - list - 8.0).abs() < 1.0));
            let time = (kernel.max(list + 8.0) + both).max(2.0 * list - 64.0 + 7.0);
            // That few rows are noisy, and half of them in each list.
            let split = factorial(errors) / factorial(half).powi(2);
            let gain = f64::from(errors) * (noisy.log2() - 1.0) - factorial(errors).log2();
            clean - gain - split.log2() + time
        };
        let costs = [2, 4, 6, 8].map(cost);
        costs.into_iter().fold(self.sub_instance(share), f64::min)
    }

    /// Degree 2, Strassen's exponent.
    pub fn algebraic_dense(&self) -> f64 {
        let guessed = self.guessed_for_degree_2();
        let unknowns = self.secrets - guessed * self.rows();
        self.clean(guessed) + 2.8 * (unknowns * unknowns / 2.0).log2()
    }

    /// Degree 2, Wiedemann on sparse equations.
    pub fn algebraic_sparse(&self) -> f64 {
        let entries = 3.0 * (WEIGHT * WEIGHT) as f64;
        let monomials = self.secrets * self.secrets / 2.0;
        self.clean(self.guessed_for_degree_2()) + entries.log2() + 2.0 * monomials.log2()
    }

    /// Least share of the rows to guess so that there are as many equations as monomials.
    fn guessed_for_degree_2(&self) -> f64 {
        bisect(0.0, self.secrets / self.rows(), |guessed| {
            let rows = self.rows() * (1.0 - guessed);
            let unknowns = self.secrets - guessed * self.rows();
            unknowns * unknowns + rows <= rows * rows / self.trees
        })
    }

    /// Degree 3: the coefficient of `z^3` of `(1 + b z)^t (1 + z)^-(n - k)`, with `b` rows of a
    /// block, `n` rows and `k` secrets left, must not be positive.
    pub fn algebraic_cubic(&self) -> f64 {
        let solvable = |guessed: f64| {
            let leaves = self.leaves * (1.0 - guessed);
            let checks = self.trees * leaves - (self.secrets - guessed * self.rows());
            let blocks = |degree: u32| {
                let chosen = (0..degree).map(|i| self.trees - f64::from(i));
                chosen.product::<f64>() / factorial(degree) * leaves.powi(degree as i32)
            };
            let inverse = |degree: u32| {
                let falling = (0..degree).map(|i| -(checks + f64::from(i)));
                falling.product::<f64>() / factorial(degree)
            };
            (0..=3).map(|i| blocks(i) * inverse(3 - i)).sum::<f64>() <= 0.0
        };
        let guessed = bisect(0.0, self.secrets / self.rows(), solvable);
        let entries = 3.0 * (WEIGHT * WEIGHT) as f64;
        let monomials = self.secrets.powi(3) / 6.0;
        self.clean(guessed) + entries.log2() + 2.0 * monomials.log2()
    }
}

/// The least number between two for which something holds, if it holds for all above.
fn bisect(mut low: f64, mut high: f64, holds: impl Fn(f64) -> bool) -> f64 {
    if holds(low) {
        return low;
    }
    for _ in 0..60 {
        let middle = (low + high) / 2.0;
        match holds(middle) {
            true => high = middle,
            false => low = middle,
        }
    }
    high
}

fn factorial(n: u32) -> f64 {
    (1..=n).map(f64::from).product()
}

#[cfg(test)]
mod tests;
