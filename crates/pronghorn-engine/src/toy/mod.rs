//! Toy protocols: the example of `docs/adding-a-protocol.md`. Insecure, and for tests alone.
//!
//! Their half of the plan says what keeps them out of releases
//! (`pronghorn_plan::steps::toy`).

#![cfg(feature = "toy-protocols")]

mod insecure_linear;
mod insecure_relu;

use pronghorn_graph::fixed::ValueSpec;
use pronghorn_plan::{share_form::ShareForm, step::Place, steps::toy::Toy};
use pronghorn_ring::bits;
use zeroize::Zeroizing;

use crate::{
    error::EngineError,
    exchange::{Message, Parts, Party, Turn},
    packed::PackedRow,
    protocol::Compile,
    share::{Batch, Share},
};

/// The protocol of a toy.
pub(crate) fn of(toy: &Toy) -> &dyn Compile {
    match toy {
        Toy::InsecureLinear(linear) => linear,
        Toy::InsecureRelu(relu) => relu,
    }
}

/// Words of a message: at most 4 MiB.
const MESSAGE_WORDS: usize = 1 << 20;

/// A value's sizes, and the messages of one party's share of it.
#[derive(Clone)]
struct Value {
    /// Name of the step, for messages.
    step: String,
    /// Elements of one image.
    elements: usize,
    /// Images.
    images: usize,
    /// Shares are modulo `2^bits`.
    bits: u32,
    /// Least and greatest value.
    range: [i32; 2],
}

impl Value {
    /// The value that a step reads, of one image.
    fn read(place: &Place<'_>) -> Self {
        Self::new(place, place.input(), place.input_form())
    }

    /// The value that a step makes, of one image.
    fn made(place: &Place<'_>) -> Self {
        Self::new(place, place.value(), place.form())
    }

    fn new(place: &Place<'_>, value: &ValueSpec, form: &ShareForm) -> Self {
        Self {
            step: place.name(),
            elements: value.len(),
            images: 1,
            bits: form.bits,
            range: [value.low, value.high],
        }
    }

    fn for_batch(&self, images: usize) -> Self {
        Self {
            images,
            ..self.clone()
        }
    }

    /// One party's words. A share of zero gets its words.
    fn words(&self, share: Share) -> Batch {
        match share {
            Share::Words(words) => words,
            Share::Zero => Batch::zeros(self.elements, self.images),
        }
    }

    /// The words of each message.
    fn parts(&self) -> Parts {
        Parts {
            items: self.elements * self.images,
            most: MESSAGE_WORDS,
        }
    }

    /// The messages of a share, each as many rows of progress as it has words.
    fn messages(&self, from: Party, name: &'static str) -> impl Iterator<Item = Message> {
        let bits = self.bits;
        self.parts().ranges().map(move |words| {
            let bytes = bits::packed_len(words.len(), bits);
            Message::new(from, name, bytes).rows(words.len())
        })
    }

    /// Appends message `turn` of a share.
    fn pack(&self, turn: Turn, share: &Batch, out: &mut Vec<u8>) {
        let mask = u32::MAX >> (u32::BITS - self.bits);
        let share = &share.words()[self.parts().range(turn.index)];
        let words: Vec<u32> = share.iter().map(|&word| word as u32 & mask).collect();
        bits::pack(&Zeroizing::new(words), self.bits, out);
    }

    /// Adds the words of message `turn` to `words`.
    fn add(&self, turn: Turn, message: &[u8], words: &mut Batch) -> Result<(), EngineError> {
        let range = self.parts().range(turn.index);
        let mut shares = Zeroizing::new(vec![0u32; range.len()]);
        let packed = PackedRow {
            step: &self.step,
            message: turn.name,
            row: range.start / self.images,
            width: self.bits,
        };
        packed.unpack(message, &mut shares)?;
        for (word, &share) in words.words_mut()[range].iter_mut().zip(shares.iter()) {
            *word = word.wrapping_add(share as i32);
        }
        Ok(())
    }

    /// Shares that were added up become the value.
    ///
    /// # Errors
    /// They are not of one value in its range.
    fn reveal(&self, words: &mut Batch) -> Result<(), EngineError> {
        let (unused, [low, high]) = (u32::BITS - self.bits, self.range);
        for (index, word) in words.words_mut().iter_mut().enumerate() {
            *word = *word << unused >> unused;
            if !(low..=high).contains(word) {
                return Err(EngineError::Opened {
                    step: self.step.clone(),
                    index,
                    low,
                    high,
                });
            }
        }
        Ok(())
    }
}
