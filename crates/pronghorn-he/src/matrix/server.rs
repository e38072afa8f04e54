//! The server's half.

use pronghorn_ring::{
    bits,
    random::{Prg, RandomError, Seed},
    sample, vector,
};
use rayon::prelude::*;
use zeroize::Zeroizing;

use super::{
    Layout, Parameters,
    client::{self, Keys},
};
use crate::rns::{Ciphertext, WireError, slices};

/// What a client has sent, and what answers it. Wiped on drop; no Debug.
pub struct MatrixServer {
    parameters: Parameters,
    keys: Keys,
    /// Encryptions of zero, a stream an answer.
    zeros: Prg,
    /// Ciphertexts that came, of all products.
    received: u64,
}

/// The masks of a server's answers, which determine its shares: known before anything of the
/// client's is. A product's answers take a row each, those of its first layout first. Wiped on
/// drop; no Debug.
pub struct MatrixMasks {
    masks: Prg,
}

impl MatrixMasks {
    /// From a secret seed that serves nothing else.
    pub fn new(seed: &Seed) -> Self {
        Self {
            masks: Prg::new(seed, "pronghorn 2026 products of shared matrices: masks"),
        }
    }

    fn row(&self, parameters: &Parameters, row: u64, masks: &mut [u64]) {
        let q = parameters.ring().basis().prime(0);
        sample::uniform_secret(&mut self.masks.stream(row), q, masks);
    }

    /// The server's shares of product number `product` of those of one hider, `[element]`, with
    /// their guard bits.
    pub fn shares(&self, parameters: &Parameters, product: u64, shares: &mut [i32]) {
        let mut sums = Zeroizing::new(vec![0; shares.len()]);
        let mut row = product * rows(parameters);
        for layout in parameters.setting().layouts() {
            for answer in 0..layout.answers() {
                let mut masks = Zeroizing::new(vec![0; layout.elements(answer)]);
                self.row(parameters, row, &mut masks);
                for ((_, element), &mask) in layout.answer(answer).zip(masks.iter()) {
                    sums[element] = parameters.add(sums[element], mask);
                }
                row += 1;
            }
        }
        for (share, &sum) in shares.iter_mut().zip(sums.iter()) {
            *share = parameters.setting().encoding().decode(sum).wrapping_neg();
        }
    }
}

/// Answers of a product.
fn rows(parameters: &Parameters) -> u64 {
    parameters
        .setting()
        .layouts()
        .iter()
        .map(|layout| layout.answers() as u64)
        .sum()
}

impl MatrixServer {
    /// With the client's key, as [`super::MatrixClient::encode_key`] sends it.
    ///
    /// # Errors
    /// When that is none, or the system has no randomness.
    pub fn new(
        parameters: &Parameters,
        message: &[u8],
    ) -> Result<Result<Self, WireError>, RandomError> {
        let zeros = "pronghorn 2026 products of shared matrices: encryptions of zero";
        let zeros = Prg::new(&Seed::from_os()?, zeros);
        Ok(Keys::decode(parameters, message).map(|keys| Self {
            parameters: parameters.clone(),
            keys,
            zeros,
            received: 0,
        }))
    }

    /// The client's next ciphertext. Two expansions of `a`.
    ///
    /// # Errors
    /// When that is none.
    pub fn receive(&mut self, message: &[u8]) -> Result<Ciphertext<u64>, WireError> {
        let factor = client::factor(&self.parameters, self.keys.seed, self.received, message)?;
        self.received += 1;
        Ok(factor.expand())
    }

    /// The answers of a layout of product number `product`, as they are sent: `factors` are the
    /// client's ciphertexts, `clear(element)` the server's share of the other factor, `own(element)`
    /// what else the product is to hold, modulo `2^bits`. On all threads: for each polynomial in
    /// the clear two NTTs, and for each answer nine.
    pub fn answers(
        &self,
        (product, place): (u64, usize),
        factors: &[Ciphertext<u64>],
        clear: &(impl Fn(usize) -> i32 + Sync),
        own: &(impl Fn(usize) -> i32 + Sync),
        masks: &MatrixMasks,
    ) -> Vec<Vec<u8>> {
        let layouts = self.parameters.setting().layouts();
        let layout = &layouts[place];
        let before: usize = layouts[..place].iter().map(Layout::answers).sum();
        let first = product * rows(&self.parameters) + before as u64;
        let column = |column: usize| {
            let plains = self.plains(layout, column, clear);
            let answer = |row: usize| {
                let words = self.sum(&factors[row * layout.terms()..], &plains);
                let answer = column * layout.rows() + row;
                self.hide(layout, answer, first, words, own, masks)
            };
            (0..layout.rows()).map(answer).collect::<Vec<_>>()
        };
        (0..layout.columns())
            .into_par_iter()
            .flat_map_iter(column)
            .collect()
    }

    /// The polynomials in the clear of a block of columns, `[term][limb][N]` in the NTT domain.
    fn plains(
        &self,
        layout: &Layout,
        column: usize,
        clear: &impl Fn(usize) -> i32,
    ) -> Zeroizing<Vec<u64>> {
        let (basis, n) = (
            self.parameters.ring().basis(),
            self.parameters.setting().degree(),
        );
        let shift = 32 - self.parameters.setting().bits();
        let mut words = Zeroizing::new(vec![0; layout.terms() * 2 * n]);
        for (term, words) in words.chunks_exact_mut(2 * n).enumerate() {
            for (coefficient, element) in layout.clear(term, column) {
                // Centred: noise grows with the size.
                let number = i64::from(clear(element) << shift >> shift);
                for limb in 0..2 {
                    words[limb * n + coefficient] = basis.prime(limb).from_i64(number);
                }
            }
            for (limb, words) in words.chunks_exact_mut(n).enumerate() {
                basis.ntt(limb).forward(words);
            }
        }
        words
    }

    /// The sum of the products of ciphertexts with these polynomials, `[poly][limb][N]`.
    fn sum(&self, factors: &[Ciphertext<u64>], plains: &[u64]) -> Zeroizing<Vec<u64>> {
        let (basis, n) = (
            self.parameters.ring().basis(),
            self.parameters.setting().degree(),
        );
        let mut sums = Zeroizing::new(vec![0; 4 * n]);
        for (place, sum) in sums.chunks_exact_mut(n).enumerate() {
            let limb = place % 2;
            let terms = factors.iter().zip(plains.chunks_exact(2 * n));
            let (xs, ys): (Vec<&[u64]>, Vec<&[u64]>) = terms
                .map(|(factor, plain)| (&factor.data()[place * n..][..n], &plain[limb * n..][..n]))
                .unzip();
            vector::inner_product(basis.prime(limb), &xs, &ys, sum);
        }
        sums
    }

    /// An answer as it is sent.
    fn hide(
        &self,
        layout: &Layout,
        answer: usize,
        first: u64,
        mut words: Zeroizing<Vec<u64>>,
        own: &impl Fn(usize) -> i32,
        masks: &MatrixMasks,
    ) -> Vec<u8> {
        let (ring, n) = (self.parameters.ring(), self.parameters.setting().degree());
        let row = first + answer as u64;
        self.keys
            .public
            .add_zero(2, &mut words, &mut self.zeros.stream(row));
        let mut kept = Zeroizing::new(vec![0; 2 * n]);
        slices::rescale(ring, 2, 1, &words, &mut kept);
        for words in kept.chunks_exact_mut(n) {
            ring.basis().ntt(0).inverse(words);
        }
        let (b, a) = kept.split_at_mut(n);
        let q = ring.basis().prime(0);
        let mut hidden = vec![0; layout.elements(answer)];
        masks.row(&self.parameters, row, &mut hidden);
        for ((coefficient, element), hidden) in layout.answer(answer).zip(&mut hidden) {
            let own = self.parameters.setting().encoding().encode(own(element));
            *hidden = q.add(*hidden, q.add(b[coefficient], own));
        }
        let (widths, dropped) = (
            self.parameters.setting().widths(),
            self.parameters.setting().dropped(),
        );
        vector::shift_right(a, dropped.a);
        vector::shift_right(&mut hidden, dropped.b);
        let mut message = Vec::new();
        bits::pack(a, widths.a, &mut message);
        bits::pack(&hidden, widths.b, &mut message);
        message
    }
}
