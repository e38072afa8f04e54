//! Sums of products without rotations.
//!
//! The weights of a layer are read once an evaluation and are larger than any cache, so that the
//! time of a sum is that of reading them. They are kept in the order in which they are read, piece
//! by piece: one stream, which the CPU fetches ahead and is helped with across pages.

use pronghorn_ring::{
    Word,
    vector::{self, STREAM_BLOCK},
};

use super::{BfvError, Ciphertext, Multiplier, Parameters, rotation::check_input};
use crate::wipe::wipe;

/// `outputs[o] = sum of inputs[i] p` over the pairs `(i, p)` of each output. Wiped on drop.
pub struct Products<W: Word> {
    parameters: Parameters<W>,
    /// By output, the inputs of its products.
    inputs: Vec<Vec<usize>>,
    /// `[limb][block][output][product][STREAM_BLOCK]`.
    words: Vec<W>,
}

impl<W: Word> Drop for Products<W> {
    fn drop(&mut self) {
        wipe(&mut self.words);
    }
}

impl<W: Word> Products<W> {
    /// Of these pairs for each output; one without pairs is zero.
    ///
    /// # Errors
    /// When parameters differ.
    pub fn new(
        parameters: &Parameters<W>,
        terms: &[Vec<(usize, Multiplier<W>)>],
    ) -> Result<Self, BfvError> {
        for (_, plain) in terms.iter().flatten() {
            parameters.ring().same(plain.parameters().ring())?;
        }
        let (n, limbs) = (parameters.n(), parameters.limbs());
        let count: usize = terms.iter().map(Vec::len).sum();
        let mut words = Vec::with_capacity(count * limbs * n);
        for limb in 0..limbs {
            for start in (0..n).step_by(STREAM_BLOCK) {
                for (_, plain) in terms.iter().flatten() {
                    words.extend_from_slice(&plain.limb(limb)[start..n.min(start + STREAM_BLOCK)]);
                }
            }
        }
        let inputs = |terms: &Vec<(usize, _)>| terms.iter().map(|&(input, _)| input).collect();
        Ok(Self {
            parameters: parameters.clone(),
            inputs: terms.iter().map(inputs).collect(),
            words,
        })
    }

    /// Bytes of the weights.
    pub fn bytes(&self) -> usize {
        size_of_val(self.words.as_slice())
    }

    fn zero(&self) -> Ciphertext<W> {
        let words = vec![W::default(); 2 * self.parameters.limbs() * self.parameters.n()];
        Ciphertext::from_words(&self.parameters, words)
    }

    /// All outputs. `2 l N` products of words a pair, one reduction a sum.
    ///
    /// # Errors
    /// When parameters differ, or an input does not exist.
    pub fn of(&self, inputs: &[&Ciphertext<W>]) -> Result<Vec<Ciphertext<W>>, BfvError> {
        for input in inputs {
            self.parameters.ring().same(input.parameters().ring())?;
        }
        for &input in self.inputs.iter().flatten() {
            check_input(input, inputs.len())?;
        }
        let (ring, n, limbs) = (
            self.parameters.ring(),
            self.parameters.n(),
            self.parameters.limbs(),
        );
        if inputs.is_empty() {
            return Ok(self.inputs.iter().map(|_| self.zero()).collect());
        }
        let mut out: Vec<Vec<W>> = self
            .inputs
            .iter()
            .map(|_| ring.pool().take_words(2 * limbs * n))
            .collect();
        let each = self.words.len() / limbs;
        for limb in 0..limbs {
            let place = limb * n..(limb + 1) * n;
            let polys: Vec<[&[W]; 2]> = inputs
                .iter()
                .map(|input| [0, 1].map(|poly| &input.inner().poly(poly)[place.clone()]))
                .collect();
            let mut out: Vec<[&mut [W]; 2]> = out
                .iter_mut()
                .map(|out| {
                    let (b, a) = out.split_at_mut(limbs * n);
                    [&mut b[place.clone()], &mut a[place.clone()]]
                })
                .collect();
            let words = &self.words[limb * each..][..each];
            let q = ring.basis().prime(limb);
            vector::streamed_sums(q, &self.inputs, words, &polys, &mut out);
        }
        Ok(out
            .into_iter()
            .map(|words| Ciphertext::from_words(&self.parameters, words))
            .collect())
    }
}
