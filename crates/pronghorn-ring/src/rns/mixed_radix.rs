//! Balanced mixed radix: numbers in the order of their size, out of residues that have none.

use super::{inverse_of_product, product_modulo, simd};
use crate::{Prime, SimdLevel, Word, vector};

/// Digits of centred residues modulo `P = p_0 ... p_{k-1}`.
///
/// Every integer `|x| < P / 2` is `t_0 + t_1 p_0 + t_2 p_0 p_1 + ...` for exactly one choice of
/// `|t_i| < p_i / 2`, as the largest sum of that form is `(P - 1) / 2`. Digits are kept as
/// residues, `t_i mod p_i`. Those of a small number are zero from some place on, so it is the same
/// number to any prefix of the primes that is large enough.
pub struct MixedRadix<W> {
    primes: Vec<Prime<W>>,
    /// For prime `i`: `1 / (p_0 ... p_{i-1})`.
    inverses: Vec<W>,
    /// For prime `i` and `m < i`: `- p_0 ... p_{m-1} / (p_0 ... p_{i-1})`.
    corrections: Vec<Vec<W>>,
}

impl<W: Word> MixedRadix<W> {
    /// For these distinct primes, least significant first.
    pub fn new(primes: &[Prime<W>]) -> Self {
        let inverse = |i: usize| {
            let q = &primes[i];
            inverse_of_product(q, product_modulo(q, primes[..i].iter()))
        };
        let correction = |i: usize, m: usize| {
            let q = &primes[i];
            q.neg(q.mul(product_modulo(q, primes[..m].iter()), inverse(i)))
        };
        Self {
            primes: primes.to_vec(),
            inverses: (0..primes.len()).map(inverse).collect(),
            corrections: (0..primes.len())
                .map(|i| (0..i).map(|m| correction(i, m)).collect())
                .collect(),
        }
    }

    /// The primes.
    pub fn primes(&self) -> &[Prime<W>] {
        &self.primes
    }

    /// From residues to digits, in place: `x` is `[limb][n]` in coefficients for the first primes,
    /// `room` has `n` words. Constant time; `l (l - 1) / 2` products a coefficient for `l` limbs.
    ///
    /// # Panics
    /// Unless `x` is a whole number of limbs of `room.len()` words, no more than there are primes.
    pub fn digits(&self, x: &mut [W], room: &mut [W]) {
        let n = room.len();
        let limbs = self.limbs(x.len(), n);
        for i in 1..limbs {
            let q = &self.primes[i];
            let (lower, rest) = x.split_at_mut(i * n);
            let digit = &mut rest[..n];
            vector::mul_scalar_assign(q, digit, self.inverses[i]);
            for (m, lower) in lower.chunks_exact(n).enumerate() {
                vector::reduce_from(q, &self.primes[m], lower, room);
                vector::mul_scalar_add_assign(q, digit, room, self.corrections[i][m]);
            }
        }
    }

    /// The numbers that `digits` (`[limb][n]`, made by [`digits`](Self::digits)) stand for, rounded
    /// to doubles: off by a few units in the last place. Infinite or not a number beyond `2^1023`.
    /// Constant time.
    ///
    /// # Panics
    /// Unless `digits` is a whole number of limbs of `out.len()` words, no more than there are
    /// primes.
    pub fn to_f64(&self, digits: &[W], out: &mut [f64]) {
        let limbs = self.limbs(digits.len(), out.len());
        out.fill(0.0);
        for (q, digits) in self.primes[..limbs]
            .iter()
            .zip(digits.chunks_exact(out.len()))
            .rev()
        {
            simd::horner_f64(SimdLevel::detect(), q, digits, out);
        }
    }

    /// The numbers that `digits` stand for, modulo `2^128`: exact for all below `2^127`. Constant
    /// time.
    ///
    /// # Panics
    /// As [`to_f64`](Self::to_f64).
    pub fn to_i128(&self, digits: &[W], out: &mut [i128]) {
        let limbs = self.limbs(digits.len(), out.len());
        out.fill(0);
        for (q, digits) in self.primes[..limbs]
            .iter()
            .zip(digits.chunks_exact(out.len()))
            .rev()
        {
            let factor = i128::from(q.value());
            for (out, &digit) in out.iter_mut().zip(digits) {
                *out = out
                    .wrapping_mul(factor)
                    .wrapping_add(q.centre(digit).into());
            }
        }
    }

    fn limbs(&self, words: usize, n: usize) -> usize {
        assert!(
            n > 0 && words.is_multiple_of(n) && words / n <= self.primes.len(),
            "a polynomial has whole limbs, no more than there are primes"
        );
        words / n
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Residues of `values`, `[limb][n]`.
    fn residues<W: Word>(primes: &[Prime<W>], values: &[i128]) -> Vec<W> {
        let residue =
            |q: &Prime<W>, value: i128| W::from_u64(value.rem_euclid(i128::from(q.value())) as u64);
        primes
            .iter()
            .flat_map(|q| values.iter().map(move |&value| residue(q, value)))
            .collect()
    }

    fn round_trip<W: Word>(primes: &[u64], seeds: &[i128]) {
        let primes: Vec<Prime<W>> = primes.iter().map(|&q| Prime::new(q).unwrap()).collect();
        let product: i128 = primes.iter().map(|q| i128::from(q.value())).product();
        let half = (product - 1) / 2;
        let mut values: Vec<i128> = seeds
            .iter()
            .map(|seed| seed.rem_euclid(product) - half)
            .collect();
        values.extend([0, 1, -1, half, -half]);
        let mut digits = residues(&primes, &values);
        let radix = MixedRadix::new(&primes);
        radix.digits(&mut digits, &mut vec![W::default(); values.len()]);
        let (mut exact, mut rounded) = (vec![0; values.len()], vec![0.0; values.len()]);
        radix.to_i128(&digits, &mut exact);
        assert_eq!(exact, values);
        radix.to_f64(&digits, &mut rounded);
        for (&value, &rounded) in values.iter().zip(&rounded) {
            assert!(
                (value as f64 - rounded).abs() <= rounded.abs() * 1e-15,
                "{value} {rounded}"
            );
        }
    }

    proptest! {
        #[test]
        fn numbers_come_back(seeds in prop::collection::vec(any::<i128>(), 0..40)) {
            round_trip::<u32>(&[17], &seeds);
            round_trip::<u32>(&[12_289, 17, 2_147_483_647, 65_537], &seeds);
            round_trip::<u64>(&[(1 << 61) - 1, (1 << 62) - 57], &seeds);
            round_trip::<u64>(&[65_537, (1 << 61) - 1, 12_289], &seeds);
        }
    }

    #[test]
    fn known_digits() {
        // Modulo 5, 7, 11: 100 = 0 + 5 (-1 + 7 * 3), and -100 its negation.
        let primes = [5, 7, 11].map(|q| Prime::<u32>::new(q).unwrap());
        let mut digits = residues(&primes, &[100, -100]);
        MixedRadix::new(&primes).digits(&mut digits, &mut [0; 2]);
        assert_eq!(digits, [0, 0, 6, 1, 3, 8]);
    }

    #[test]
    fn small_numbers_need_only_the_first_digits() {
        let primes: Vec<Prime<u64>> = crate::rns::primes(8, &[40; 30])
            .unwrap()
            .into_iter()
            .map(|q| Prime::new(q).unwrap())
            .collect();
        let values = [(1i128 << 70) + 12_345, -(1 << 78), 7];
        let mut digits = residues(&primes, &values);
        let radix = MixedRadix::new(&primes);
        radix.digits(&mut digits, &mut [0; 3]);
        assert!(digits[2 * 3..].iter().all(|&digit| digit == 0));
        let mut out = [0.0; 3];
        radix.to_f64(&digits, &mut out);
        assert_eq!(out, values.map(|value| value as f64));
    }
}
