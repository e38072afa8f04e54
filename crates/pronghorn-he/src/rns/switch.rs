//! Key switching: relinearisation, rotations, conjugation.
//!
//! The hybrid form of K. Han and D. Ki, "Better bootstrapping for approximate homomorphic
//! encryption" (ePrint 2019/688, section 3): limbs are taken in digits, each is raised to all
//! primes and the special ones, multiplied with its part of the key, and the sum divided by the
//! special primes `P`. Departures: digits and the division are exact and centred (see
//! [`pronghorn_ring::rns`]), which leaves no multiples of the digit's modulus in the noise;
//! products are summed before any reduction, limb by limb, so each key word is read once and no
//! raised digit leaves the cache; several polynomials are switched into one sum with one division;
//! rotation keys belong to the secret before the rotation, so that several rotations share the
//! raised digits of one ciphertext (S. Halevi, V. Shoup, "Faster homomorphic linear transformations
//! in HElib", CRYPTO 2018, section 5) and permute two polynomials each.
//!
//! For `l` limbs in `d` digits with `k` special primes: `l` inverse NTTs and `d (l + k) - l`
//! forward ones to raise, `2 k` inverse and `2 l` forward to divide, `2 d (l + k)` products a
//! coefficient.

use pronghorn_ring::{Word, vector};

use super::{
    EvaluationKeys, Parameters, RingError,
    digits::Digits,
    keys::{SwitchingKey, special_product},
};

impl<W: Word> EvaluationKeys<W> {
    /// [`relinearise_and_rescale`](super::Ciphertext::relinearise_and_rescale) on words: `x` is
    /// `[poly][limb][N]` of at least three polynomials, `out` gets two of `limbs - dropped` limbs.
    ///
    /// # Errors
    /// When there is no key for one of the powers.
    ///
    /// # Panics
    /// Unless the lengths are these and `dropped < limbs`.
    pub fn relinearise_words(
        &self,
        limbs: usize,
        dropped: usize,
        x: &[W],
        out: &mut [W],
    ) -> Result<(), RingError> {
        let (parameters, words) = (self.parameters(), limbs * self.parameters().n());
        assert!(
            x.len().is_multiple_of(words) && x.len() > 2 * words,
            "at least three whole polynomials"
        );
        assert!(
            dropped < limbs && out.len() == 2 * (limbs - dropped) * parameters.n(),
            "two polynomials of what is left"
        );
        let polys: Vec<&[W]> = x.chunks_exact(words).collect();
        let powers = (2..polys.len())
            .map(|power| self.power(power))
            .collect::<Result<Vec<_>, _>>()?;
        let (low, high) = polys.split_at(2);
        let keys = [powers];
        let switch = Switch {
            parameters,
            limbs,
            dropped,
            low,
            high,
            keys: &keys,
        };
        switch.run(out);
        Ok(())
    }
}

/// A key switch of several polynomials under several sets of keys.
pub(super) struct Switch<'a, W: Word> {
    pub parameters: &'a Parameters<W>,
    /// Limbs of the ciphertext, and how many of them the division takes with the special primes.
    pub limbs: usize,
    pub dropped: usize,
    /// `[limb][N]` each: what stays, at places 0 and 1 of the result, and what is switched.
    pub low: &'a [&'a [W]],
    pub high: &'a [&'a [W]],
    /// `[output][switched polynomial]`.
    pub keys: &'a [Vec<&'a SwitchingKey<W>>],
}

impl<W: Word> Switch<'_, W> {
    /// `out[output][poly][limb][N] = round((sum_c P c s_c + P low) / (P q_(l-k) ... q_(l-1)))`
    /// under the new secret, `s_c` being the secret that the key of `c` switches from, `l = limbs`,
    /// `k = dropped`, two polynomials an output.
    ///
    /// First come the limbs to divide by, then limb by limb the others, each of which is done when
    /// it is left.
    pub fn run(&self, out: &mut [W]) {
        let (parameters, n) = (self.parameters, self.parameters.n());
        let (basis, pool) = (parameters.basis(), parameters.pool());
        let kept = self.limbs - self.dropped;
        let special = parameters.limbs()..basis.limbs();
        let sources: Vec<usize> = (kept..self.limbs).chain(special).collect();
        let polys = 2 * self.keys.len();
        assert_eq!(out.len(), polys * kept * n, "two polynomials an output");
        let mut room = pool.take(n);
        let high = Digits::new(parameters, self.limbs, self.high);
        let mut raised = pool.take(self.high.len() * high.count() * n);
        let mut digits = pool.take(polys * sources.len() * n);
        let mut sums = pool.take(2 * n);

        let pairs = digits.chunks_exact_mut(2 * sources.len() * n);
        let mut pairs: Vec<_> = pairs.collect();
        for (place, &limb) in sources.iter().enumerate() {
            let factors = high.raise(limb, &mut raised, &mut room);
            for (pair, keys) in pairs.iter_mut().zip(self.keys) {
                let (b, a) = pair.split_at_mut(sources.len() * n);
                let mut sums = [b, a].map(|digits| &mut digits[place * n..][..n]);
                let both = sums.each_mut().map(|sums| &mut **sums);
                SwitchingKey::multiply(keys, parameters, limb, &factors, both);
                for (poly, sums) in sums.into_iter().enumerate() {
                    if limb < self.limbs
                        && let Some(low) = self.low.get(poly)
                    {
                        let special = special_product(parameters, limb);
                        let low = &low[limb * n..][..n];
                        vector::mul_scalar_add_assign(basis.prime(limb), sums, low, special);
                    }
                    basis.ntt(limb).inverse(sums);
                }
            }
        }
        let division = parameters.leaving(self.limbs, self.dropped);
        for digits in digits.chunks_exact_mut(sources.len() * n) {
            division.digits(digits, &mut room);
        }
        for limb in 0..kept {
            let factors = high.raise(limb, &mut raised, &mut room);
            for (output, keys) in self.keys.iter().enumerate() {
                let (b, a) = sums.split_at_mut(n);
                SwitchingKey::multiply(keys, parameters, limb, &factors, [b, a]);
                for (poly, sums) in sums.chunks_exact(n).enumerate() {
                    let place = output * 2 + poly;
                    let digits = &digits[place * sources.len() * n..][..sources.len() * n];
                    let out = &mut out[(place * kept + limb) * n..][..n];
                    division.remainder(basis, limb, digits, out, &mut room);
                    let low = self.low.get(poly).map(|low| &low[limb * n..][..n]);
                    finish(parameters, self.limbs, self.dropped, limb, sums, low, out);
                }
            }
        }
    }
}

/// `out = (sums - out) / (P q_(l-k) ... q_(l-1)) + low / (q_(l-k) ... q_(l-1))` in one limb of a
/// polynomial, `out` being what is left of the sums modulo the divisor, `l = limbs` and
/// `k = dropped`.
pub(crate) fn finish<W: Word>(
    parameters: &Parameters<W>,
    limbs: usize,
    dropped: usize,
    limb: usize,
    sums: &[W],
    low: Option<&[W]>,
    out: &mut [W],
) {
    let basis = parameters.basis();
    let division = parameters.leaving(limbs, dropped);
    if dropped == 0 {
        return division.finish(basis, limb, sums, low, out);
    }
    division.finish(basis, limb, sums, None, out);
    if let Some(low) = low {
        let inverse = parameters.rescaling(limbs, dropped).inverse(limb);
        vector::mul_scalar_add_assign(basis.prime(limb), out, low, inverse);
    }
}
