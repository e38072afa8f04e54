//! The data owner's half.

use pronghorn_he::matrix::{Layout, MatrixClient, Parameters};
use zeroize::Zeroizing;

use super::{FACTOR, KEY, Shape};
use crate::{
    error::EngineError,
    exchange::{Exchange, Party, Protocol, StepProtocol, Turn},
    machine::Made,
    share::{Batch, Share},
};

/// Sends its encrypted shares, and decrypts its shares of the products.
pub struct EncryptedMatricesClient {
    shape: Shape,
    parameters: Parameters,
    /// Of each image, from the first message that it sends of it.
    keys: Vec<MatrixClient>,
    /// Of both factors.
    input: Batch,
    /// Of the pair that is under way.
    sums: Zeroizing<Vec<u64>>,
    output: Batch,
}

impl EncryptedMatricesClient {
    /// With its share of both factors. Each image has a key of its own.
    pub(super) fn new(shape: Shape, input: Batch) -> Result<Exchange<Self>, EngineError> {
        let mut output = shape.own.own(&input);
        let words = output.words_mut().iter_mut();
        words.for_each(|word| *word = word.wrapping_shl(shape.guard));
        let client = Self {
            parameters: shape.parameters()?,
            keys: Vec::new(),
            sums: Zeroizing::new(vec![0; shape.elements()]),
            input,
            output,
            shape,
        };
        Ok(Exchange::new(client.shape.messages(), client))
    }
}

impl Protocol for EncryptedMatricesClient {
    const PARTY: Party = Party::Client;

    fn make(&mut self, turn: Turn, out: &mut Vec<u8>) -> Result<(), EngineError> {
        match turn.name {
            KEY => {
                let key = MatrixClient::generate(&self.parameters)?;
                key.encode_key(out)?;
                self.keys.push(key);
                Ok(())
            }
            FACTOR => {
                let (shape, input) = (&self.shape, &self.input);
                let of = shape.place(turn.index, Layout::factors);
                let layout = &shape.layouts()[of.layout];
                let share = |element| shape.share(input, of.layout, of, element);
                let key = self.keys.get_mut(of.image).ok_or_else(|| turn.unknown())?;
                key.encode_factor(layout, of.index, share, out);
                Ok(())
            }
            _ => Err(turn.unknown()),
        }
    }

    fn take(&mut self, turn: Turn, message: &[u8]) -> Result<(), EngineError> {
        let shape = &self.shape;
        let of = shape.place(turn.index, Layout::answers);
        let layout = &shape.layouts()[of.layout];
        let key = self.keys.get(of.image).ok_or_else(|| turn.unknown())?;
        let (sums, parameters) = (&mut self.sums, &self.parameters);
        let add = |element: usize, word| sums[element] = parameters.add(sums[element], word);
        let added = key.add_answer(layout, of.index, message, add);
        added.map_err(|source| EngineError::Wire {
            step: shape.step().to_owned(),
            message: turn.name,
            row: turn.index,
            source,
        })?;
        if of.last && of.layout == 1 {
            let (first, images) = (of.part * shape.elements(), shape.images());
            for (element, sum) in sums.iter_mut().enumerate() {
                let word = &mut self.output.words_mut()[(first + element) * images + of.image];
                *word = word.wrapping_add(key.share(std::mem::take(sum)));
            }
        }
        Ok(())
    }
}

impl StepProtocol for EncryptedMatricesClient {
    fn into_made(self) -> Result<Made, EngineError> {
        Ok(Made::share(Share::Words(self.output)))
    }
}
