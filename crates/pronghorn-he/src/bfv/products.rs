//! Sums of products without rotations.
//!
//! The weights of a layer are read once an evaluation and are larger than any cache, so that the time of a sum is that of reading them. They are kept in
//! the order in which they are read, piece by piece: one stream, which the CPU fetches ahead and is helped with across pages.

use pronghorn_ring::{Word, vector};

use super::{BfvError, Ciphertext, Multiplier, Parameters, rotation::check_input};
use crate::ckks::wipe::wipe;

/// Words of each factor that are read together.
const PIECE: usize = 128;

/// `outputs[o] = sum of inputs[i] p` over the pairs `(i, p)` of each output. Wiped on drop.
pub struct Products<W: Word> {
    parameters: Parameters<W>,
    /// By output, the inputs of its products.
    inputs: Vec<Vec<usize>>,
    /// `[limb][piece][output][product][PIECE]`.
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
            for start in (0..n).step_by(PIECE) {
                for (_, plain) in terms.iter().flatten() {
                    words.extend_from_slice(&plain.limb(limb)[start..n.min(start + PIECE)]);
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
        let mut out: Vec<Vec<W>> = self
            .inputs
            .iter()
            .map(|_| ring.pool().take_words(2 * limbs * n))
            .collect();
        let mut rest = self.words.as_slice();
        // Inputs lie at like places of pages, which the first cache has few of: their pieces are copied beside each other.
        let mut near = ring.pool().take(inputs.len() * 2 * PIECE);
        for limb in 0..limbs {
            let q = ring.basis().prime(limb);
            for start in (0..n).step_by(PIECE) {
                let place = limb * n + start..limb * n + n.min(start + PIECE);
                let length = place.len();
                for (input, near) in inputs.iter().zip(near.chunks_exact_mut(2 * PIECE)) {
                    for (poly, near) in near.chunks_exact_mut(PIECE).enumerate() {
                        near[..length].copy_from_slice(&input.inner().poly(poly)[place.clone()]);
                    }
                }
                let (mut plains, mut xs_b, mut xs_a) = (Vec::new(), Vec::new(), Vec::new());
                for (products, out) in self.inputs.iter().zip(&mut out) {
                    let (now, after) = rest.split_at(products.len() * length);
                    rest = after;
                    plains.clear();
                    plains.extend(now.chunks_exact(length));
                    for (poly, xs) in [&mut xs_b, &mut xs_a].into_iter().enumerate() {
                        let of = |&input: &usize| &near[(2 * input + poly) * PIECE..][..length];
                        xs.clear();
                        xs.extend(products.iter().map(of));
                    }
                    let (out_b, out_a) = out.split_at_mut(limbs * n);
                    let out = [&mut out_b[place.clone()], &mut out_a[place.clone()]];
                    vector::inner_product_pair_streamed(q, &plains, [&xs_b, &xs_a], out);
                }
            }
        }
        Ok(out
            .into_iter()
            .map(|words| Ciphertext::from_words(&self.parameters, words))
            .collect())
    }
}
