//! Products of two matrices on shares, with the client's shares encrypted. The algebra is
//! [`pronghorn_he::matrix`]'s.
//!
//! Each pair of matrices, such as those of a head, is a product of its own. Messages, in order:
//!
//! | message | from | bytes |
//! |---|---|---|
//! | the client's key of an image: the public one, and the seed of the factors' `a` | client | as of RLWE on two primes |
//! | the encrypted factors of the image: a message a ciphertext, pair by pair, the first factor before the second | client | the coefficients of `b` |
//! | the answers of all images: re-randomised, and masked uniformly ([`pronghorn_he::matrix::MatrixMasks`]), likewise | server | without their dropped bits |
//!
//! What is revealed: to the server nothing but shapes (RLWE). To the client nothing: masks hide
//! values and noise, and `a` is a sample of RLWE. A false public key makes shares that do not add
//! up to the product, and whose sum, where a client learns it, tells of the server's shares
//! ([`pronghorn_he::bfv::hide`]).

pub mod client;
pub mod server;
mod sides;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use pronghorn_he::matrix::{Layout, Parameters, Setting};
use pronghorn_plan::{
    Derived, Pairs,
    step::Compiled,
    steps::matrices::{EncryptedMatrices, Product},
};

use crate::{
    error::EngineError,
    exchange::{Message, Messages},
    garbled::{Products, sides::products},
    protocol::unsupported,
    share::Batch,
};

const KEY: &str = "the client's key of an image";
const FACTOR: &str = "the encrypted factors of the image";
const ANSWER: &str = "the answers of all images";

/// The sizes both parties' machines share.
#[derive(Clone)]
pub(crate) struct Shape {
    product: Arc<Product>,
    guard: u32,
    /// The products of a party's own shares.
    own: Products,
}

/// A message of a product: which pair of which image, which of both layouts, and which in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Place {
    image: usize,
    part: usize,
    layout: usize,
    index: usize,
    /// Whether none of the layout comes after it.
    last: bool,
}

impl Shape {
    /// The shape of a step in its plan, for batches of one image.
    fn new(of: &EncryptedMatrices, step: &Compiled<'_>) -> Result<Self, EngineError> {
        let Derived::Matrices(product) = step.derived else {
            return Err(unsupported(&step.place.name(), "it has no layout"));
        };
        Ok(Self {
            product: product.clone(),
            guard: of.shares.guard_bits,
            own: products(step, Pairs::Matrices)?,
        })
    }

    fn for_batch(&self, batch: usize) -> Self {
        Self {
            own: self.own.for_batch(batch),
            ..self.clone()
        }
    }

    fn step(&self) -> &str {
        &self.own.step
    }

    fn images(&self) -> usize {
        self.own.images
    }

    fn setting(&self) -> &Setting {
        &self.product.setting
    }

    fn layouts(&self) -> &[Layout; 2] {
        self.setting().layouts()
    }

    /// The tables of the ring, for one batch.
    fn parameters(&self) -> Result<Parameters, EngineError> {
        let made = Parameters::new(self.setting());
        made.map_err(|_| unsupported(self.step(), "its ring is refused"))
    }

    /// Pairs of all images.
    fn pairs(&self) -> usize {
        self.images() * self.product.matrices.parts
    }

    /// All messages of a batch, each a row of progress.
    fn messages(&self) -> Messages {
        let (setting, parts) = (self.setting(), self.product.matrices.parts);
        let factors: usize = self.layouts().iter().map(Layout::factors).sum();
        let key = Message::client(KEY, setting.key_bytes()).rows(1);
        let factor = Message::client(FACTOR, setting.factor_bytes()).rows(1);
        let answers = self
            .layouts()
            .iter()
            .enumerate()
            .flat_map(|(place, layout)| {
                let answer = move |answer| setting.answer_bytes(place, answer);
                (0..layout.answers()).map(answer)
            });
        let answers: Vec<Message> = answers
            .map(|bytes| Message::server(ANSWER, bytes).rows(1))
            .collect();
        let of_image = |_| {
            [key]
                .into_iter()
                .chain(std::iter::repeat_n(factor, parts * factors))
        };
        let all = std::iter::repeat_n(&answers, self.pairs()).flatten();
        Messages::new(self.step())
            .with_all((0..self.images()).flat_map(of_image))
            .with_all(all.copied())
    }

    /// The step's share of the progress.
    fn rows(&self, batch: usize) -> u64 {
        let of = |layout: &Layout| layout.factors() + layout.answers();
        let each: usize = self.layouts().iter().map(of).sum();
        (batch * (1 + self.product.matrices.parts * each)) as u64
    }

    /// The place of message `index` of those that a layout has `count` of.
    fn place(&self, index: usize, count: impl Fn(&Layout) -> usize) -> Place {
        let [first, second] = [0, 1].map(|layout| count(&self.layouts()[layout]));
        let (pair, index) = (index / (first + second), index % (first + second));
        let parts = self.product.matrices.parts;
        let (layout, index) = match index.checked_sub(first) {
            Some(index) => (1, index),
            None => (0, index),
        };
        Place {
            image: pair / parts,
            part: pair % parts,
            layout,
            index,
            last: index + 1 == [first, second][layout],
        }
    }

    /// Elements of a pair's product.
    fn elements(&self) -> usize {
        self.product.matrices.rows * self.product.matrices.columns
    }

    /// The share of an element of a factor of an image's pair.
    fn share(&self, share: &Batch, factor: usize, of: Place, element: usize) -> i32 {
        let of_a_part = self.product.matrices.factors()[factor];
        let first = self.own.factors.elements(factor).start + of.part * of_a_part;
        share.words()[(first + element) * self.images() + of.image]
    }
}
