//! Outputs that stay additive shares.

use super::{Bit, Builder, Modulus};

/// `weight * bit`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Term {
    /// The bit.
    pub bit: Bit,
    /// Its weight, reduced.
    pub weight: u64,
}

impl Term {
    /// The terms of `scale * word`, a word without sign.
    pub fn unsigned(modulus: Modulus, word: &[Bit], scale: i64) -> Vec<Self> {
        let mut weight = modulus.from_i64(scale);
        let term = |&bit: &Bit| {
            let term = Self { bit, weight };
            weight = modulus.add(weight, weight);
            term
        };
        word.iter().map(term).collect()
    }

    /// The terms of `scale * word`, a word in two's complement.
    pub fn signed(modulus: Modulus, word: &[Bit], scale: i64) -> Vec<Self> {
        let mut terms = Self::unsigned(modulus, word, scale);
        if let Some(top) = terms.last_mut() {
            top.weight = modulus.neg(top.weight);
        }
        terms
    }
}

/// A sum of weighted bits and of products of a bit with such a sum, in a modulus. The parties leave
/// with additive shares of it; nobody learns anything else.
#[derive(Clone, Debug)]
pub struct Sum {
    pub(super) modulus: Modulus,
    pub(super) terms: Vec<Term>,
    pub(super) products: Vec<Product>,
}

/// `select * (sum of terms)`.
#[derive(Clone, Debug)]
pub(super) struct Product {
    pub select: Bit,
    pub terms: Vec<Term>,
}

impl Sum {
    /// The empty sum.
    pub fn new(modulus: Modulus) -> Self {
        Self {
            modulus,
            terms: Vec::new(),
            products: Vec::new(),
        }
    }

    /// Its modulus.
    pub fn modulus(&self) -> Modulus {
        self.modulus
    }

    /// Adds terms. A bit known to the garbler, or an input bit of the evaluator, costs nothing;
    /// another one costs the bits of the modulus that its weight can change (`k - i` of them modulo
    /// `2^k` for a multiple of `2^i`).
    pub fn add_terms(&mut self, terms: impl IntoIterator<Item = Term>) {
        let zero = |term: &Term| term.weight == 0 || term.bit == Bit::ZERO;
        self.terms
            .extend(terms.into_iter().filter(|term| !zero(term)));
    }

    /// Adds `select * (sum of terms)` without an AND gate for each bit.
    ///
    /// With `L = g + e` the shares of the sum of terms and `select = u + b`, `b` the garbler's,
    /// `select * L = select * g + u * e + b * (L - g)`: the first is a projection of `select` with
    /// the secret weight `g`, `u * e` is the evaluator's, and `b * L` projects the bits of `L` with
    /// weights that are `b` times as large (Gilboa's multiplication, CRYPTO 1999, with labels for
    /// the oblivious transfers). Costs the projections of the terms, those of all but known bits
    /// again, and two of `select`.
    pub fn add_product(&mut self, select: Bit, terms: impl IntoIterator<Item = Term>) {
        let mut sum = Self::new(self.modulus);
        sum.add_terms(terms);
        if sum.terms.is_empty() || select == Bit::ZERO {
            return;
        }
        self.products.push(Product {
            select,
            terms: sum.terms,
        });
    }
}

impl Builder {
    /// Turns products by bits known to the garbler into AND gates: half ones for wires, none for
    /// known bits.
    pub(super) fn lower_known_products(&mut self) {
        let mut outputs = std::mem::take(&mut self.outputs);
        for output in &mut outputs {
            let super::Output::Sum(sum) = output else {
                continue;
            };
            for product in std::mem::take(&mut sum.products) {
                if !product.select.is_known() {
                    sum.products.push(product);
                    continue;
                }
                let gated = product.terms.iter().map(|term| Term {
                    bit: self.and(product.select, term.bit),
                    weight: term.weight,
                });
                sum.add_terms(gated.collect::<Vec<_>>());
            }
        }
        self.outputs = outputs;
    }
}
