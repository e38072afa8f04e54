//! Division by some of the primes: rescaling, and the way back from the special primes of a key
//! switch.

use super::{Conversion, RnsBasis, inverse_of_product, product_modulo};
use crate::{Word, vector};

/// Divides by the product `P` of some primes of a basis and rounds to the nearest integer, exactly:
/// `round(x / P) = (x - [x]_P) / P` with the centred `[x]_P` (Cheon, Han, Kim, Kim, Song, ePrint
/// 2018/931, section 3, with one rounding for all of `P` instead of one a prime).
pub struct Division<W> {
    conversion: Conversion<W>,
    /// `1 / P` modulo each prime of the basis, zero at the sources.
    inverses: Vec<W>,
}

impl<W: Word> Division<W> {
    /// By the product of these primes of `basis`.
    ///
    /// # Panics
    /// When there is no such prime.
    pub fn new(basis: &RnsBasis<W>, sources: &[usize]) -> Self {
        let inverse = |target: usize| {
            if sources.contains(&target) {
                return W::default();
            }
            let q = basis.prime(target);
            let product = product_modulo(q, sources.iter().map(|&source| basis.prime(source)));
            inverse_of_product(q, product)
        };
        Self {
            conversion: Conversion::new(basis, sources),
            inverses: (0..basis.limbs()).map(inverse).collect(),
        }
    }

    /// `1 / P` modulo prime `target` of the basis; zero at the sources.
    ///
    /// # Panics
    /// When there is no such prime.
    pub fn inverse(&self, target: usize) -> W {
        self.inverses[target]
    }

    /// The number of primes that it divides by.
    pub fn sources(&self) -> usize {
        self.conversion.sources()
    }

    /// From the limbs of the sources, `[source][n]` in coefficients, to the digits that
    /// [`apply`](Self::apply) reads.
    ///
    /// # Panics
    /// As [`MixedRadix::digits`](super::MixedRadix::digits).
    pub fn digits(&self, x: &mut [W], room: &mut [W]) {
        self.conversion.digits(x, room);
    }

    /// What is to be subtracted before the division modulo prime `target` of `basis`: `out = [x]_P`
    /// in the NTT domain, from the digits of the source limbs of `x`. One NTT.
    /// [`finish`](Self::finish) does the rest.
    ///
    /// # Panics
    /// Unless `out` and `room` have the length of a limb and `digits` is as many of them as there
    /// are sources.
    pub fn remainder(
        &self,
        basis: &RnsBasis<W>,
        target: usize,
        digits: &[W],
        out: &mut [W],
        room: &mut [W],
    ) {
        self.conversion
            .apply_forward(basis, target, digits, out, room);
    }

    /// `out = round(x / P) (+ add)` modulo prime `target` of `basis`, where `out` is the
    /// [`remainder`](Self::remainder) of `x`; or any piece of these. `x`, `add` and `out` are
    /// values (NTT domain).
    ///
    /// # Panics
    /// Unless all have one length.
    pub fn finish(
        &self,
        basis: &RnsBasis<W>,
        target: usize,
        x: &[W],
        add: Option<&[W]>,
        out: &mut [W],
    ) {
        let (q, inverse) = (basis.prime(target), self.inverses[target]);
        match add {
            None => vector::divide(q, x, out, inverse),
            Some(add) => vector::divide_add(q, x, add, out, inverse),
        }
    }

    /// [`remainder`](Self::remainder) and [`finish`](Self::finish): `out = round(x / P)` modulo
    /// prime `target` of `basis`.
    ///
    /// # Panics
    /// Unless `x`, `out` and `room` have one length and `digits` is as many of them as there are
    /// sources.
    pub fn apply(
        &self,
        basis: &RnsBasis<W>,
        target: usize,
        digits: &[W],
        x: &[W],
        out: &mut [W],
        room: &mut [W],
    ) {
        self.remainder(basis, target, digits, out, room);
        self.finish(basis, target, x, None, out);
    }
}

/// Words that several operations go over together, while they are in the first cache.
pub const CHUNK: usize = 1024;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::rns::{Integers, primes};

    /// `x / P` for the product `P` of `sources`, and `x mod P` in the other primes, against
    /// integers.
    fn check<W: Word>(bits: &[u32], sources: &[usize], seeds: &[i128]) {
        let n = seeds.len();
        let basis = RnsBasis::<W>::new(n, &primes(n, bits).unwrap()).unwrap();
        let product = |limbs: &[usize]| -> i128 {
            limbs
                .iter()
                .map(|&limb| i128::from(basis.prime(limb).value()))
                .product()
        };
        let (p, q) = (
            product(sources),
            product(&(0..bits.len()).collect::<Vec<_>>()),
        );
        let values: Vec<i128> = seeds
            .iter()
            .map(|seed| seed.rem_euclid(q) - q / 2)
            .collect();
        let remainders: Vec<i128> = values
            .iter()
            .map(|value| (value + p / 2).rem_euclid(p) - p / 2)
            .collect();
        let quotients: Vec<i128> = values
            .iter()
            .zip(&remainders)
            .map(|(x, r)| (x - r) / p)
            .collect();
        let mut room = vec![W::default(); n];
        let mut limb_of = |values: &[i128], limb: usize| {
            let mut out = vec![W::default(); n];
            Integers::from_i128(&basis, values).residues(basis.prime(limb), &mut out, &mut room);
            out
        };
        let source_limbs: Vec<W> = sources
            .iter()
            .flat_map(|&limb| limb_of(&values, limb))
            .collect();
        let targets = (0..bits.len()).filter(|limb| !sources.contains(limb));
        let expected: Vec<_> = targets
            .map(|limb| {
                (
                    limb,
                    limb_of(&values, limb),
                    limb_of(&remainders, limb),
                    limb_of(&quotients, limb),
                )
            })
            .collect();
        let (conversion, division) = (
            Conversion::new(&basis, sources),
            Division::new(&basis, sources),
        );
        let mut digits = source_limbs;
        division.digits(&mut digits, &mut room);
        for (limb, mut x, remainder, quotient) in expected {
            let mut out = vec![W::default(); n];
            conversion.apply(&basis, limb, &digits, &mut out, &mut room);
            assert_eq!(out, remainder);
            basis.ntt(limb).forward(&mut x);
            division.apply(&basis, limb, &digits, &x, &mut out, &mut room);
            basis.ntt(limb).inverse(&mut out);
            assert_eq!(out, quotient);
        }
    }

    proptest! {
        #[test]
        fn quotients_and_remainders_are_exact(seeds in prop::array::uniform16(any::<i128>())) {
            check::<u32>(&[31, 18, 25, 31], &[3], &seeds);
            check::<u32>(&[31, 18, 25, 20], &[1, 3], &seeds);
            check::<u32>(&[20, 31, 25, 20], &[0, 1, 2], &seeds);
            check::<u64>(&[60, 60], &[1], &seeds);
            check::<u64>(&[25, 60, 40], &[2, 0], &seeds);
        }
    }
}
