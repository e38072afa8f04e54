//! Linear steps on slots, both parties (Gazelle, section IV; the algebra is [`pronghorn_slot`]'s).
//!
//! Values are shares modulo the plan's prime, residues in `0..t`. Messages of one step, in order:
//!
//! | message | from | bytes |
//! |---|---|---|
//! | the encrypted input: the packed share, one message a ciphertext, image by image | client | a seeded ciphertext |
//! | the encrypted answer: re-randomised, and masked uniformly modulo `Q` ([`pronghorn_he::bfv::Hider`]), likewise | server | an answer without its dropped bits |
//!
//! The client's [keys](crate::keys) come before its first batch.
//!
//! What is revealed: to the server nothing but shapes (RLWE). To the client nothing: masks hide
//! values and noise (RLWE), also of ciphertexts that it has made up. A false public key tells
//! weights once the layer's values are opened ([`pronghorn_he::bfv::Hider`]). An image's shares add
//! up but for a probability of `2^-40` a step.

pub mod client;
pub(crate) mod keys;
pub mod server;
pub(crate) mod sides;

pub use sides::keep_keys;

use std::sync::Arc;

use pronghorn_plan::{
    Derived,
    step::Compiled,
    steps::linear::slots::{self, SlotScheme},
};
use pronghorn_slot::{Packing, SlotError};
use zeroize::Zeroizing;

use crate::{
    error::EngineError,
    exchange::{Message, Messages},
    share::Batch,
};

/// The sizes both parties' machines share.
#[derive(Clone)]
pub(crate) struct Shape {
    /// Name of the step, for messages.
    pub step: String,
    /// The step.
    pub packing: Arc<Packing>,
    /// Which of the plan's keys it takes.
    pub scheme: SlotScheme,
    /// Bytes of a message up, and of one down.
    pub bytes: [usize; 2],
    /// Images.
    pub batch: usize,
}

impl Shape {
    /// The shape of a layer in its plan, for batches of one image.
    pub fn new(step: &Compiled<'_>) -> Result<Self, EngineError> {
        let name = step.place.name();
        let Derived::Slots { scheme, packing } = step.derived else {
            return Err(EngineError::Unsupported {
                step: name,
                reason: "it has no packing in slots",
            });
        };
        Ok(Self {
            scheme: *scheme,
            bytes: slots::message_bytes(packing).map_err(|source| refused(&name, source))?,
            packing: packing.clone(),
            batch: 1,
            step: name,
        })
    }

    /// The same for a batch.
    pub fn for_batch(&self, batch: usize) -> Self {
        Self {
            batch,
            ..self.clone()
        }
    }

    fn missing(&self, reason: &'static str) -> EngineError {
        EngineError::Unsupported {
            step: self.step.clone(),
            reason,
        }
    }

    /// All messages of a batch, each a row of progress.
    fn messages(&self) -> Messages {
        let request = Message::client(REQUEST, self.bytes[0]).rows(1);
        let answer = Message::server(ANSWER, self.bytes[1]).rows(1);
        let [up, down] = self.counts();
        Messages::new(&self.step)
            .with_all(std::iter::repeat_n(request, up))
            .with_all(std::iter::repeat_n(answer, down))
    }

    /// Messages up, and down.
    fn counts(&self) -> [usize; 2] {
        [self.packing.inputs(), self.packing.outputs()].map(|count| self.batch * count)
    }

    /// The step's share of the progress.
    pub fn rows(&self) -> u64 {
        self.counts().iter().sum::<usize>() as u64
    }

    /// Slot vectors of a party's share of an image.
    fn pack(&self, share: &Batch, image: usize) -> Result<Vec<Zeroizing<Vec<i32>>>, EngineError> {
        let elements = (0..share.elements()).map(|element| share.row(element)[image]);
        let values = Zeroizing::new(elements.collect::<Vec<i32>>());
        self.packing
            .pack(&values)
            .map_err(|source| refused(&self.step, source))
    }

    /// A party's share of an image's result, as residues, from its slots; `addend` has what is
    /// added to each channel.
    fn unpack<S: AsRef<[i32]>>(
        &self,
        slots: &[S],
        addend: Option<&[i32]>,
        image: usize,
        output: &mut Batch,
    ) -> Result<(), EngineError> {
        let values = self
            .packing
            .unpack(slots)
            .map_err(|source| refused(&self.step, source))?;
        let t = self.packing.modulus();
        let positions = values.len() / self.packing.geometry().out_channels;
        for (element, &value) in values.iter().enumerate() {
            let addend = addend.map_or(0, |addend| addend[element / positions]);
            let sum = t.from_i64(i64::from(value) + i64::from(addend));
            output.words_mut()[element * self.batch + image] = sum as i32;
        }
        Ok(())
    }
}

fn refused(step: &str, source: SlotError) -> EngineError {
    EngineError::Slots {
        step: step.to_owned(),
        source,
    }
}

const REQUEST: &str = "the encrypted input";
const ANSWER: &str = "the encrypted answer";

#[cfg(test)]
mod tests {
    #[test]
    fn the_table_lists_the_messages() {
        let names = [super::REQUEST, super::ANSWER];
        crate::exchange::tests::assert_table(include_str!("mod.rs"), names);
    }
}
