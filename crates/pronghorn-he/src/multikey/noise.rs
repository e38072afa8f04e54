//! Bounds on the noise of multi-key operations, in [`ckks::Noise`](crate::ckks::Noise).
//!
//! A secret of another party multiplies a noise as the party's own does, and so does `r`: all are
//! ternary and no larger at a slot than [`secret_bound`].

use pronghorn_ring::Word;

use super::{Common, Relinearisation};
use crate::{
    ckks::noise::{Noise, ROUNDING_VARIANCE},
    noise::{ERROR_VARIANCE, TERNARY_VARIANCE},
    rns::{Parameters, secret_bound},
};

impl<W: Word> Common<W> {
    /// Of an encryption with a public key.
    pub fn fresh_noise(&self) -> Noise {
        Noise::of_public_encryption(self.ring().n())
    }

    /// Of a noise divided by `divisor`, with a rounding of each polynomial of `parties`.
    pub fn rescaled_noise(&self, noise: Noise, parties: usize, divisor: f64) -> Noise {
        noise.times(1.0 / divisor) + self.roundings(parties)
    }

    /// What [`refreshed`](super::Ciphertext::refreshed) adds: an encryption of zero divided by the
    /// special primes, and a rounding of two polynomials.
    pub fn refresh_noise(&self) -> Noise {
        let divisor = log_special(self.ring()).exp2();
        self.rescaled_noise(self.fresh_noise(), 1, divisor)
    }

    /// What a rotation or a conjugation adds to a ciphertext of `limbs` limbs.
    ///
    /// # Panics
    /// When there are no such limbs.
    pub fn rotation_noise(&self, limbs: usize, parties: usize) -> Noise {
        self.digits(limbs).times((parties as f64).sqrt()) + self.roundings(parties)
    }

    /// What relinearising a product adds, before any rescaling. Of two parties with a
    /// [`PairKey`](super::PairKey) it is a bound: they have no `t_i`. The pair's digits meet
    /// `e' v + e_0 + e_1 s'` in place of `e r + e s`, with a ternary `v`, and the digits of `t_i` count
    /// for `e_0`.
    ///
    /// # Panics
    /// When there are no such limbs.
    pub fn relinearisation_noise(
        &self,
        limbs: usize,
        parties: usize,
        algorithm: Relinearisation,
    ) -> Noise {
        let count = parties as f64;
        let (digits, last) = (self.digits(limbs), self.roundings(parties));
        let rounding = Noise::flat(self.ring().n(), ROUNDING_VARIANCE);
        // Each `t_i` is rounded, which `r_i` multiplies, and taken in digits.
        let inner = |count: f64| (self.by_secret(rounding) + digits).times(count.sqrt());
        match algorithm {
            Relinearisation::Quadratic => {
                // The error of `b_j` is multiplied by `r_i`, that of `d_i2` by `s_j`.
                let pairs = count * (count - 1.0) / 2.0;
                let pairs = self.by_secret(digits).times((2.0 * pairs).sqrt());
                pairs + digits.times(count.sqrt()) + inner(count - 1.0) + last
            }
            Relinearisation::Linear => {
                let pairs = self.by_secret(self.products_of_digits(limbs));
                pairs.times((2.0 * count * count).sqrt()) + inner(count) + last
            }
        }
    }

    /// Of the encryptions of zero that `parties` re-randomise a result with, each under all keys.
    /// Of a result that one of two learns, the evaluator adds one and the other party one.
    pub(super) fn zeros(&self, parties: usize) -> Noise {
        Noise::of_public_encryption(self.ring().n()).times(parties as f64)
    }

    /// A rounding of each polynomial.
    fn roundings(&self, parties: usize) -> Noise {
        let rounding = Noise::flat(self.ring().n(), ROUNDING_VARIANCE);
        rounding + self.by_secret(rounding).times((parties as f64).sqrt())
    }

    /// A noise times a secret.
    fn by_secret(&self, noise: Noise) -> Noise {
        let n = self.ring().n();
        Noise {
            mean: noise.mean * TERNARY_VARIANCE * n as f64,
            peak: noise.peak * secret_bound(n),
        }
    }

    /// An error for each digit of a polynomial, divided by the special primes.
    fn digits(&self, limbs: usize) -> Noise {
        let ring = self.ring();
        let logs = ring.digit_ranges().take(ring.digit_count(limbs));
        let log = |range: std::ops::Range<usize>| {
            ring.basis().log2_product(range.start..range.end.min(limbs))
        };
        let digits: Vec<f64> = logs.map(log).collect();
        Noise::of_digits(ring.n(), &digits, log_special(ring))
    }

    /// An error for each product of two digits of one limb, divided by the special primes.
    fn products_of_digits(&self, limbs: usize) -> Noise {
        let (ring, n) = (self.ring(), self.ring().n());
        let error = Noise::flat(n, ERROR_VARIANCE);
        let product = |limb: usize| {
            let log = ring.basis().log2_product(limb..limb + 1) - log_special(ring) / 2.0;
            let digit = Noise::flat(n, (2.0 * log).exp2() * ROUNDING_VARIANCE);
            digit.unknown_product(digit).unknown_product(error)
        };
        (0..limbs).map(product).fold(Noise::default(), |x, y| x + y)
    }
}

fn log_special<W: Word>(ring: &Parameters<W>) -> f64 {
    let basis = ring.basis();
    basis.log2_product(ring.limbs()..basis.limbs())
}
