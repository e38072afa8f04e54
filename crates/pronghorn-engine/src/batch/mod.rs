//! The batch engine (nGraph-HE2, sections 3 and 4; design: one ciphertext row an element, one
//! coefficient an image).
//!
//! A linear step is two passes over one small-integer matrix: the server multiplies it with the
//! rows of `a`, which it expands from a seed, and with the rows of `b` that the client sends, both
//! modulo `q`: `a' = W a`, `b' = W b + scale * (bias - centre)`. The client gets the high bits of
//! both (modulus switching): of `b'` where it stands, of `a'` from its coefficients.
//!
//! Messages of one step, in order (all lengths follow from the plan and the batch):
//!
//! | message | from | bytes |
//! |---|---|---|
//! | the seed of a | client | 32 |
//! | the public key, on shares alone | client | a row of `b` in whole blocks |
//! | the encrypted input, [`rows_per_message`] in each message | client | rows of `b` |
//! | the encrypted answer, [`rows_per_message`] in each message | server | rows of `a'` and `b'` |
//!
//! A batch under `client-aided` may go through its layers in bands of rows
//! ([`pronghorn_plan::bands`]). Then a step has these messages for each band, but the seed with the
//! first alone. The client sends each row of the input once, with the first band that reads it. The
//! server keeps those that the next band reads, too.
//!
//! A layer that maps each position of an image alike and alone, a convolution with a 1x1 kernel, is
//! a dense layer whose columns are positions and images. One `a` then serves a channel, not an
//! element, under a secret of its own for each N columns. The rows of `a'` come with the first band
//! alone. A plan reserves the bits of security that so many secrets cost.
//!
//! On shares the first message and the rows of `a'` come with the first batch of a connection
//! alone, if the plan [publishes](pronghorn_plan::cost::published) them.
//!
//! Where 31 bits carry a layer only if its weights are small, they are cut into two to four digits,
//! the input is encrypted once, and every element has an answer for each, which the client adds up:
//! `W x = 2^k (W1 x) + W0 x`. That costs more answers where 64-bit words would cost more on every
//! row.
//!
//! What is revealed: to the server nothing but shapes (RLWE). To the client under `client-aided`
//! its own values times the weights, and through `a' = W a` with known `a` the weights themselves.
//! On shares (`two-party`) nothing: the server adds its share of the input, re-randomises the
//! answer and hides it behind uniform masks ([`pronghorn_he::shares`]).

pub mod client;
mod halo;
mod portion;
pub mod published;
pub mod server;
mod shares;
pub(crate) mod sides;

use pronghorn_graph::geometry::ConvGeometry;
use pronghorn_he::shares::ShareEncoding;
use pronghorn_plan::{
    Rlwe,
    bands::{Band, rows_of},
    cost::SEED_BYTES,
    step::Place,
    steps::linear::clear::ClearLinear,
};

use portion::Portion;

use crate::exchange::{Message, Messages, Parts, Party};

const SEED: &str = "the seed of a";
const PUBLIC_KEY: &str = "the public key";
const INPUT: &str = "the encrypted input";
const ANSWER: &str = "the encrypted answer";

/// Messages hold as many rows as fit in this many bytes, and at least one.
const MESSAGE_BYTES: usize = 1 << 20;

/// Blocks of a piece of a row that is worked on at a time, where rows are long.
const PIECE_BLOCKS: usize = 4;

/// Rows of `row_bytes` bytes in one message.
pub fn rows_per_message(row_bytes: usize) -> usize {
    (MESSAGE_BYTES / row_bytes).max(1)
}

/// Rows of `row_bytes` bytes cut into messages.
pub(crate) fn cut_rows(rows: usize, row_bytes: usize) -> Parts {
    Parts {
        items: rows,
        most: rows_per_message(row_bytes),
    }
}

/// A layer in the batch engine, of either protocol.
#[derive(Clone)]
pub(crate) struct Layer {
    /// Sizes of the convolution or dense layer; at one position, where positions are columns.
    pub geometry: ConvGeometry,
    /// Columns of an image.
    pub positions: usize,
    /// Ring, modulus and dropped bits.
    pub rlwe: Rlwe,
    /// What answers are.
    pub answers: Answers,
}

/// What the answers of a layer are.
#[derive(Clone)]
pub(crate) enum Answers {
    /// Values that the client decrypts, in one part or two.
    Values(ClearLinear),
    /// Shares.
    Shares(ShareEncoding),
}

impl Layer {
    /// Answers of an element.
    pub fn parts(&self) -> usize {
        match &self.answers {
            Answers::Values(clear) => clear.parts.len(),
            Answers::Shares(_) => 1,
        }
    }

    /// How shares sit in words, for answers that are shares.
    pub fn share_encoding(&self) -> Option<ShareEncoding> {
        match &self.answers {
            Answers::Values(_) => None,
            Answers::Shares(encoding) => Some(*encoding),
        }
    }

    /// Whether positions are columns, as images are.
    pub fn is_pointwise(&self) -> bool {
        self.positions > 1
    }

    /// Bytes of one element's `a'`, all parts: no batch changes them.
    pub fn published_row_bytes(&self) -> usize {
        self.parts() * self.rlwe.answer_bytes_a()
    }

    /// Bytes of one row of the answer, all parts.
    pub fn answer_row_bytes(&self, columns: usize) -> usize {
        self.published_row_bytes() + self.parts() * self.rlwe.answer_bytes_b(columns)
    }
}

/// The sizes both parties' machines share.
#[derive(Clone)]
pub(crate) struct Shape {
    /// Name of the step, for messages.
    pub step: String,
    /// The layer.
    pub linear: Layer,
    /// The part of the layer.
    portion: Portion,
    /// Positions of each row of the part.
    positions: usize,
    /// Words of each row: images, or positions and images.
    pub columns: usize,
    /// Smallest integer of the result.
    pub low: i32,
    /// Largest integer of the result.
    pub high: i32,
}

impl Shape {
    /// The shape of a layer in its plan, for batches of one image.
    pub fn new(place: &Place<'_>, linear: Layer) -> Self {
        let (value, positions) = (place.value(), linear.positions);
        let [inputs, outputs] = [place.input(), value].map(|value| value.len() / positions);
        Self {
            step: place.name(),
            portion: Portion::whole(&linear.geometry, inputs, outputs),
            positions,
            columns: positions,
            linear,
            low: value.low,
            high: value.high,
        }
    }

    /// The same for a batch.
    pub fn for_batch(&self, batch: usize) -> Self {
        Self {
            columns: self.positions * batch,
            ..self.clone()
        }
    }

    /// The same for a band of a batch, of the layer at its place.
    pub fn for_band(&self, place: &Place<'_>, band: &Band, batch: usize) -> Self {
        let (input, value) = (place.input(), place.value());
        if self.linear.is_pointwise() {
            let rows = rows_of(&value.shape);
            let band = Self {
                portion: self
                    .portion
                    .of_columns(band.is_first(), band.rows.end < rows),
                positions: self.positions * band.rows.len() / rows,
                ..self.clone()
            };
            return band.for_batch(batch);
        }
        Self {
            portion: Portion::band(&self.linear.geometry, input, value, band),
            ..self.for_batch(batch)
        }
    }

    /// Images.
    pub fn images(&self) -> usize {
        self.columns / self.positions
    }

    /// Columns that are worked on at a time: some blocks where rows are long.
    pub fn piece(&self) -> usize {
        match self.linear.is_pointwise() {
            true => self.columns.min(PIECE_BLOCKS * self.linear.rlwe.degree),
            false => self.columns,
        }
    }

    /// Whether the band before brought the rows of `a'`.
    fn is_continued(&self) -> bool {
        self.linear.is_pointwise() && !self.portion.is_first
    }

    /// Rows that the client sends of the part.
    pub fn inputs(&self) -> usize {
        self.portion.new.count
    }

    /// Rows of the part's value.
    pub fn outputs(&self) -> usize {
        self.portion.outputs
    }

    /// Rows the product makes: one a part and element.
    pub fn answers(&self) -> usize {
        self.outputs() * self.linear.parts()
    }

    /// The product's rows for the parts of one element: parts of a channel are channels of their
    /// own, side by side.
    pub fn answers_of(&self, element: usize) -> impl Iterator<Item = usize> + use<> {
        let positions = self.outputs() / self.linear.geometry.out_channels;
        let parts = self.linear.parts();
        let (channel, position) = (element / positions, element % positions);
        (0..parts).map(move |part| (channel * parts + part) * positions + position)
    }

    /// The rows of each message of the request.
    pub fn request(&self) -> Parts {
        cut_rows(
            self.inputs(),
            self.linear.rlwe.request_row_bytes(self.columns),
        )
    }

    /// The rows of each message of the answer; `published`: their `a'` are known.
    pub fn answer(&self, published: bool) -> Parts {
        cut_rows(self.outputs(), self.answer_row_bytes(published))
    }

    /// All messages of a batch; `published`: an earlier one brought the seed and the rows of `a'`.
    pub fn messages(&self, published: bool) -> Messages {
        let seed = Message::client(SEED, SEED_BYTES);
        let key = Message::client(PUBLIC_KEY, self.linear.rlwe.public_key_bytes(self.columns));
        let bytes = [
            self.linear.rlwe.request_row_bytes(self.columns),
            self.answer_row_bytes(published),
        ];
        // Progress counts elements.
        let elements = |message: Message| message.rows(message.rows as usize * self.positions);
        let request = self.request().messages(Party::Client, INPUT, bytes[0]);
        let answer = self
            .answer(published)
            .messages(Party::Server, ANSWER, bytes[1]);
        Messages::new(&self.step)
            .with_all((!published && self.portion.is_first).then_some(seed))
            .with_all(self.linear.share_encoding().map(|_| key))
            .with_all(request.map(elements))
            .with_all(answer.map(elements))
    }

    /// Bytes of an element's answer, with or without its `a'`.
    pub fn answer_row_bytes(&self, published: bool) -> usize {
        let a = if published {
            self.linear.published_row_bytes()
        } else {
            0
        };
        self.linear.answer_row_bytes(self.columns) - a
    }

    /// Rows in and out: the step's share of the progress.
    pub fn rows(&self) -> u64 {
        ((self.inputs() + self.outputs()) * self.positions) as u64
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_table_lists_the_messages() {
        let names = [super::SEED, super::PUBLIC_KEY, super::INPUT, super::ANSWER];
        crate::exchange::tests::assert_table(include_str!("mod.rs"), names);
    }
}
