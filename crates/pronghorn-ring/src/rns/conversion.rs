//! From some primes to others.

use super::{MixedRadix, RnsBasis, product_modulo};
use crate::{Word, vector};

/// Takes the centred residue modulo a product of some primes of a basis to its other primes:
/// exactly.
///
/// Also for any prefix of the sources: a digit of a key switch that lost its last limbs needs no
/// tables of its own.
pub struct Conversion<W> {
    radix: MixedRadix<W>,
    /// For every prime of the basis and source `m`: the product of the sources before `m`.
    weights: Vec<Vec<W>>,
}

impl<W: Word> Conversion<W> {
    /// From these primes of `basis`, least significant first.
    ///
    /// # Panics
    /// When there is no such prime.
    pub fn new(basis: &RnsBasis<W>, sources: &[usize]) -> Self {
        let primes: Vec<_> = sources.iter().map(|&source| *basis.prime(source)).collect();
        let weights = basis
            .primes()
            .map(|q| {
                (0..primes.len())
                    .map(|m| product_modulo(q, primes[..m].iter()))
                    .collect()
            })
            .collect();
        Self {
            radix: MixedRadix::new(&primes),
            weights,
        }
    }

    /// The number of source primes.
    pub fn sources(&self) -> usize {
        self.radix.primes().len()
    }

    /// The digits that [`apply`](Self::apply) reads: see [`MixedRadix::digits`].
    ///
    /// # Panics
    /// As [`MixedRadix::digits`].
    pub fn digits(&self, x: &mut [W], room: &mut [W]) {
        self.radix.digits(x, room);
    }

    /// `out` = the number of `digits` (`[source][n]`) modulo prime `target` of `basis`, in
    /// coefficients. Constant time; one product a coefficient for each source but the first.
    ///
    /// # Panics
    /// Unless `out` and `room` have one length and `digits` is a whole number of them, no more than
    /// there are sources.
    pub fn apply(
        &self,
        basis: &RnsBasis<W>,
        target: usize,
        digits: &[W],
        out: &mut [W],
        room: &mut [W],
    ) {
        assert!(
            digits.len().is_multiple_of(out.len()) && digits.len() / out.len() <= self.sources(),
            "digits come from the sources of the conversion"
        );
        let (q, weights) = (basis.prime(target), &self.weights[target]);
        let mut sources = self
            .radix
            .primes()
            .iter()
            .zip(digits.chunks_exact(out.len()));
        match sources.next() {
            Some((p, digit)) => vector::reduce_from(q, p, digit, out),
            None => out.fill(W::default()),
        }
        for ((p, digit), &weight) in sources.zip(&weights[1..]) {
            vector::reduce_from(q, p, digit, room);
            vector::mul_scalar_add_assign(q, out, room, weight);
        }
    }

    /// [`apply`](Self::apply) and the NTT: `out` holds values.
    ///
    /// # Panics
    /// As [`apply`](Self::apply).
    pub fn apply_forward(
        &self,
        basis: &RnsBasis<W>,
        target: usize,
        digits: &[W],
        out: &mut [W],
        room: &mut [W],
    ) {
        let ntt = basis.ntt(target);
        if digits.len() == out.len() {
            // One source: its centred residues are the number.
            return ntt.forward_from(&self.radix.primes()[0], digits, out);
        }
        self.apply(basis, target, digits, out, room);
        ntt.forward(out);
    }
}
