//! The coefficient engine: layers of one image or a few, without rotations and without keys
//! (rotation-free convolution; design: one polynomial each way).
//!
//! A linear step is a product of polynomials whose wanted coefficients are the layer's outputs
//! ([`pronghorn_plan::steps::linear::coefficient`] says where values sit). With published `p =
//! sum_i f_i a_i + u a_0 + e` for each output channel and tile, and a fresh secret `s` of the
//! client for each image, the messages of a step are, both as one stream of words cut into messages
//! of [`WORDS_PER_MESSAGE`]:
//!
//! | message | from | words |
//! |---|---|---|
//! | the encrypted input, image by image | client | `b_0 = e_0 - a_0 s` and, in the coefficients that are read, `b_i = m_i + e_i - a_i s` |
//! | the encrypted answer, `[output][image]` | server | in the coefficients that are outputs, `sum_i f_i b_i + u b_0`, plus its share's part, the bias and a uniform mask |
//!
//! The client adds `p s` there, and has its share. What the server publishes comes before
//! ([`publication`]).
//!
//! The server's sum is over `b` where it stands, a convolution of words by small weights
//! ([`product`]); it transforms nothing but `u b_0`. All polynomials `a` and the published ones are
//! the same for all images ([`publication`]).
//!
//! What is revealed: nothing but shapes, to either. To the server, `b` are samples of RLWE. To the
//! client, `p` is a sample of RLWE with secret `u`, which is a full ternary polynomial whatever the
//! filter is, and the answer is uniform. The rotation-free paper publishes `f a + e` (section
//! III-C), which gives small filters away ([`pronghorn_he::shares`] has the argument, SECURITY.md
//! the attack).
//!
//! Under `client-aided` the client is to have the value (`Answer::Value`), and with it the weights.
//! Then `u`, `b_0`, `e` and the mask are left out, and the server's share is zero.
//!
//! Cost for an image: the server an NTT product a published polynomial, the layer's multiply-adds;
//! the client an NTT product each for those and for its input's.

pub mod client;
pub mod product;
pub mod publication;
pub mod server;
mod sides;
mod simd;
#[cfg(test)]
mod tests;

use std::{ops::Range, sync::Arc};

use pronghorn_he::shares::ShareEncoding;
use pronghorn_plan::{
    Derived,
    cost::WORDS_PER_MESSAGE,
    rlwe::stream_bytes,
    step::Compiled,
    steps::linear::coefficient::{CoefficientLinear, Layout},
};
use pronghorn_ring::{Word, bits};
use rayon::prelude::*;

use crate::{
    error::EngineError,
    exchange::{Message, Messages, Parts, Party, Turn},
    packed::PackedRow,
};

const REQUEST: &str = "the encrypted input";
const ANSWER: &str = "the encrypted answer";

/// What the client has of the value at the end.
#[derive(Clone, Copy)]
pub(crate) enum Answer {
    /// A share, since the server hides its answer behind `u b_0` and a mask.
    Share,
    /// The value itself, within a range: nothing is hidden, and the server's share is zero.
    Value {
        /// Smallest.
        low: i32,
        /// Largest.
        high: i32,
    },
}

/// The sizes both parties' machines share.
#[derive(Clone)]
pub(crate) struct Shape {
    /// Name of the step, for messages.
    pub step: String,
    /// Engine parameters.
    pub linear: CoefficientLinear,
    /// What the client has of the value at the end.
    pub answer: Answer,
    /// Where values sit.
    pub layout: Arc<Layout>,
    /// Output elements.
    pub outputs: usize,
    /// Images.
    pub batch: usize,
}

impl Shape {
    /// The shape of a layer in its plan, for batches of one image.
    pub fn new(
        linear: &CoefficientLinear,
        answer: Answer,
        step: &Compiled<'_>,
    ) -> Result<Self, EngineError> {
        let (Derived::Polynomials(layout), place) = (step.derived, &step.place) else {
            return Err(EngineError::Unsupported {
                step: step.place.name(),
                reason: "it has no layout of polynomials",
            });
        };
        Ok(Self {
            step: place.name(),
            linear: linear.clone(),
            answer,
            layout: layout.clone(),
            outputs: place.value().len(),
            batch: 1,
        })
    }

    /// The same for a batch.
    pub fn for_batch(&self, batch: usize) -> Self {
        Self {
            batch,
            ..self.clone()
        }
    }

    /// How shares sit in words.
    fn encoding(&self) -> Result<ShareEncoding, EngineError> {
        let encoding = self.linear.rlwe.share_encoding(self.linear.shares);
        encoding.ok_or_else(|| EngineError::Unsupported {
            step: self.step.clone(),
            reason: "its modulus does not hold its shares",
        })
    }

    /// Outputs of a channel.
    fn positions(&self) -> usize {
        self.outputs / self.layout.geometry().out_channels
    }

    /// Words of a request for so many images.
    fn request_words(&self, images: usize) -> usize {
        let hidden = matches!(self.answer, Answer::Share);
        self.linear.request_words(&self.layout, images, hidden)
    }

    /// Words of an image's request: its polynomial that hides answers, then what is read, tile by
    /// tile and polynomial by polynomial.
    fn image_words(&self) -> usize {
        self.request_words(1)
    }

    /// The input polynomials in the order of the request: tile, polynomial, and the first word in
    /// the image's request.
    fn polynomials(&self) -> Vec<Polynomial> {
        let per_tile = self.layout.polynomials();
        let mut start = self.image_words() - self.layout.words();
        let words = self.layout.sites_of_kinds();
        let mut all = Vec::with_capacity(per_tile * self.layout.tiles());
        for tile in 0..self.layout.tiles() {
            for index in 0..per_tile {
                let kind = usize::from(index + 1 == per_tile);
                all.push(Polynomial {
                    tile,
                    first: self.layout.first_element(index),
                    kind,
                    start,
                });
                start += words[kind];
            }
        }
        all
    }

    /// Number of the row of `a` that hides answers: the one behind those of inputs.
    fn hiding_row(&self) -> u64 {
        (self.layout.tiles() * self.layout.polynomials()) as u64
    }

    fn request(&self) -> Words {
        Words {
            parts: cut(self.request_words(self.batch)),
            width: self.linear.rlwe.modulus_bits(),
            most: self.linear.rlwe.modulus - 1,
        }
    }

    fn answer(&self) -> Words {
        Words {
            parts: cut(self.outputs * self.batch),
            width: self.linear.rlwe.answer_bits(),
            most: (self.linear.rlwe.modulus - 1) >> self.linear.rlwe.dropped_bits,
        }
    }

    /// All messages of a batch, each a row of progress.
    fn messages(&self) -> Messages {
        let request = self.request().messages(Party::Client, REQUEST);
        let answer = self.answer().messages(Party::Server, ANSWER);
        Messages::new(&self.step).with_all(request).with_all(answer)
    }

    /// The step's share of the progress.
    pub fn rows(&self) -> u64 {
        (self.request().parts.count() + self.answer().parts.count()) as u64
    }
}

/// The coefficients of input polynomials that are read, of each kind ([`Layout::kinds`]).
struct Sites {
    /// Their exponents.
    positions: [Vec<u32>; 2],
    /// By tile and kind the input elements, counted from the polynomial's first, or [`PADDING`].
    elements: Vec<[Vec<u32>; 2]>,
}

/// In place of an input element.
const PADDING: u32 = u32::MAX;

impl Sites {
    fn new(layout: &Layout) -> Self {
        let kinds = layout.kinds();
        let sites = |kind: Option<usize>| kind.into_iter().flat_map(|index| layout.sites(index));
        let element = |tile, site| layout.element(tile, site).map_or(PADDING, |at| at as u32);
        let of_tile =
            |tile| kinds.map(|kind| sites(kind).map(|site| element(tile, site)).collect());
        Self {
            positions: kinds.map(|kind| sites(kind).map(|site| site.position).collect()),
            elements: (0..layout.tiles()).into_par_iter().map(of_tile).collect(),
        }
    }

    /// Exponents and elements of a polynomial.
    fn of(&self, polynomial: &Polynomial) -> (&[u32], &[u32]) {
        let kind = polynomial.kind;
        (&self.positions[kind], &self.elements[polynomial.tile][kind])
    }
}

/// An input polynomial of a tile, and where its words are in an image's request.
struct Polynomial {
    tile: usize,
    /// The first input element of its channels.
    first: usize,
    /// Its place in [`Layout::kinds`].
    kind: usize,
    start: usize,
}

/// Words cut into messages.
fn cut(words: usize) -> Parts {
    Parts {
        items: words,
        most: WORDS_PER_MESSAGE,
    }
}

/// A stream of words in messages.
struct Words {
    parts: Parts,
    width: u32,
    /// The largest word that is allowed.
    most: u64,
}

impl Words {
    fn messages(self, from: Party, name: &'static str) -> impl Iterator<Item = Message> {
        let bytes = move |words: Range<usize>| stream_bytes(words.len(), self.width) as usize;
        let ranges = self.parts.ranges();
        ranges.map(move |words| Message::new(from, name, bytes(words)).rows(1))
    }

    fn pack<W: Word>(&self, index: usize, words: &[W], out: &mut Vec<u8>) {
        bits::pack(&words[self.parts.range(index)], self.width, out);
    }

    /// Unpacks a message to its place in `words`, and checks it.
    fn unpack<W: Word>(
        &self,
        step: &str,
        turn: Turn,
        bytes: &[u8],
        words: &mut [W],
    ) -> Result<(), EngineError> {
        let packed = PackedRow {
            step,
            message: turn.name,
            row: turn.index,
            width: self.width,
        };
        let words = &mut words[self.parts.range(turn.index)];
        packed.unpack_up_to(self.most, bytes, words)
    }
}
