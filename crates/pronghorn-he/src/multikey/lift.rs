//! Exact conversion from many primes to as many others.

use std::ops::Range;

use pronghorn_ring::{
    Prime, SimdLevel, Word,
    rns::{Conversion, RnsBasis},
    vector,
};

use crate::rns::simd;

/// Words that are converted at a time: the factors of all targets stay in the second cache.
const RUN: usize = 512;

/// Takes the centred residue modulo the product `P` of some primes of a basis to others, exactly, as
/// [`Conversion`] does, with fewer reductions: `x + (P - 1) / 2` has digits from zero on in mixed
/// radix, so the number at a target is one sum of products, reduced once, less a constant.
pub(super) struct Lift<W: Word> {
    sources: Range<usize>,
    targets: Range<usize>,
    /// For digit `i` the factors of the digits before it and of residue `i`; for targets those of
    /// all digits. And what is added to the sum.
    digits: Vec<Sum<W>>,
    images: Vec<Sum<W>>,
    /// In place of these where sums of products might not fit.
    plain: Option<Conversion<W>>,
}

/// A weighted sum modulo a prime.
struct Sum<W> {
    q: Prime<W>,
    /// `RUN` times each factor.
    factors: Vec<Vec<W>>,
    shift: W,
}

impl<W: Word> Lift<W> {
    /// Between these primes of a basis.
    ///
    /// # Panics
    /// When there are no such primes.
    pub fn new(basis: &RnsBasis<W>, sources: Range<usize>, targets: Range<usize>) -> Self {
        let primes: Vec<Prime<W>> = sources.clone().map(|i| *basis.prime(i)).collect();
        let product = |q: &Prime<W>, count: usize| {
            let primes = primes[..count].iter();
            primes.fold(W::from_u64(1), |product, p| {
                q.mul(product, W::from_u64(p.value() % q.value()))
            })
        };
        // (P - 1) / 2.
        let half = |q: &Prime<W>| {
            let two = q.inverse(W::from_u64(2)).unwrap_or_default();
            q.mul(q.sub(product(q, primes.len()), W::from_u64(1)), two)
        };
        let digit = |i: usize| {
            let q = primes[i];
            let inverse = q.inverse(product(&q, i)).unwrap_or_default();
            let factor = |m: usize| q.neg(q.mul(product(&q, m), inverse));
            let factors = (0..i).map(factor).chain([inverse]);
            Sum::new(q, factors, q.mul(half(&q), inverse))
        };
        let image = |limb: usize| {
            let q = *basis.prime(limb);
            let factors = (0..primes.len()).map(|m| product(&q, m));
            Sum::new(q, factors, q.neg(half(&q)))
        };
        let fits = sums_fit(basis, &sources, &targets);
        let plain = (!fits).then(|| Conversion::new(basis, &sources.clone().collect::<Vec<_>>()));
        Self {
            digits: (0..primes.len()).map(digit).collect(),
            images: targets.clone().map(image).collect(),
            sources,
            targets,
            plain,
        }
    }

    /// `out` = the numbers of `x` modulo the targets, `[limb][n]` both, in coefficients. `x` is used
    /// up.
    ///
    /// # Panics
    /// Unless `x` and `out` are the limbs of sources and targets.
    pub fn convert(&self, basis: &RnsBasis<W>, x: &mut [W], out: &mut [W]) {
        let n = basis.n();
        assert!(
            x.len() == self.sources.len() * n && out.len() == self.targets.len() * n,
            "a limb for each source and target"
        );
        let mut room = vec![W::default(); n];
        if let Some(plain) = &self.plain {
            plain.digits(x, &mut room);
            for (limb, out) in self.targets.clone().zip(out.chunks_exact_mut(n)) {
                plain.apply(basis, limb, x, out, &mut room);
            }
            return;
        }
        let length = RUN.min(n);
        let room = &mut room[..length];
        for start in (0..n).step_by(length) {
            for (i, sum) in self.digits.iter().enumerate() {
                let terms = x.chunks_exact(n).take(i + 1);
                sum.of(terms.map(|x| &x[start..][..length]), room);
                x[i * n + start..][..length].copy_from_slice(room);
            }
            for (sum, out) in self.images.iter().zip(out.chunks_exact_mut(n)) {
                let terms = x.chunks_exact(n);
                let out = &mut out[start..][..length];
                sum.of(terms.map(|x| &x[start..][..length]), out);
            }
        }
    }
}

impl<W: Word> Sum<W> {
    fn new(q: Prime<W>, factors: impl Iterator<Item = W>, shift: W) -> Self {
        Self {
            q,
            factors: factors.map(|factor| vec![factor; RUN]).collect(),
            shift,
        }
    }

    /// The sum of these terms times their factors, and the shift.
    fn of<'a>(&self, terms: impl Iterator<Item = &'a [W]>, out: &mut [W]) {
        let terms: Vec<&[W]> = terms.collect();
        let factors = self.factors.iter();
        let factors: Vec<&[W]> = factors.map(|factor| &factor[..out.len()]).collect();
        vector::inner_product(&self.q, &terms, &factors, out);
        simd::add_word(SimdLevel::detect(), &self.q, out, self.shift);
    }
}

/// Whether [`vector::inner_product`] takes digits of the one primes for residues of the others: it
/// reduces a sum of products once, so factors may exceed the prime as long as the sum, kept in 64,
/// 104 (with a fused multiplier, for primes of 50 bits at most) or 128 bits, has room for it.
fn sums_fit<W: Word>(basis: &RnsBasis<W>, sources: &Range<usize>, targets: &Range<usize>) -> bool {
    let largest = basis.primes().map(|q| q.value()).max().unwrap_or(0);
    let bits = 64 - largest.leading_zeros();
    let kept = match (W::BITS, bits) {
        (32, _) => 64,
        (_, 0..=50) => 104,
        _ => 128,
    };
    let terms = sources.len().max(targets.len()) as u64;
    let same = basis.primes().all(|q| q.bits() == bits);
    same && terms < 1 << (kept - 2 * bits).min(32)
}

#[cfg(test)]
mod tests {
    use pronghorn_ring::{
        random::{Prg, Seed},
        rns::primes,
        sample,
    };

    use super::*;

    /// Against [`Conversion`], on uniform residues and on the numbers around zero and `P / 2`.
    fn check<W: Word>(bits: &[u32], sources: usize, fast: bool) {
        let n = 1024;
        let basis = RnsBasis::<W>::new(n, &primes(n, bits).expect("primes")).expect("a basis");
        let targets = sources..bits.len();
        let lift = Lift::new(&basis, 0..sources, targets.clone());
        assert_eq!(lift.plain.is_none(), fast);
        let random = &mut Prg::new(&Seed::from_bytes([1; 32]), "pronghorn test lift").stream(0);
        let mut x = vec![W::default(); sources * n];
        for (limb, x) in x.chunks_exact_mut(n).enumerate() {
            let q = basis.prime(limb);
            sample::uniform_public(random, q, x);
            // 0, 1, -1, (P - 1) / 2 and (P + 1) / 2.
            let half = q.neg(q.inverse(W::from_u64(2)).expect("an odd prime"));
            let one = W::from_u64(1);
            let edges = [W::default(), one, q.neg(one), half, q.add(half, one)];
            x[..5].copy_from_slice(&edges);
        }
        let (mut digits, mut room) = (x.clone(), vec![W::default(); n]);
        let conversion = Conversion::new(&basis, &(0..sources).collect::<Vec<_>>());
        conversion.digits(&mut digits, &mut room);
        let mut found = vec![W::default(); targets.len() * n];
        lift.convert(&basis, &mut x, &mut found);
        let mut expected = vec![W::default(); n];
        for (limb, found) in targets.zip(found.chunks_exact(n)) {
            conversion.apply(&basis, limb, &digits, &mut expected, &mut room);
            assert!(found == expected, "{limb}");
        }
    }

    #[test]
    fn numbers_are_those_of_conversions() {
        check::<u32>(&[30; 11], 5, true);
        check::<u32>(&[30; 26], 12, true);
        check::<u32>(&[30; 31], 15, false);
        check::<u32>(&[28; 27], 12, true);
        check::<u32>(&[31; 9], 4, false);
        check::<u32>(&[30, 29, 30, 29], 2, false);
        check::<u64>(&[47; 15], 7, true);
        check::<u64>(&[50; 7], 3, true);
        check::<u64>(&[50; 25], 12, true);
        check::<u64>(&[50; 33], 16, false);
        check::<u64>(&[60; 9], 4, true);
        check::<u64>(&[62; 20], 9, true);
    }
}
