//! The data owner's half of a linear step on slots.

use std::sync::Arc;

use pronghorn_he::bfv::{Answer, AnswerFormat, Encryptor, SecretKey};
use zeroize::Zeroizing;

use super::{Shape, refused};
use crate::{
    error::EngineError,
    exchange::{Exchange, Party, Protocol, StepProtocol, Turn},
    machine::Made,
    share::{Batch, Share},
};

/// Sends its encrypted share, and decrypts its share of the result.
pub struct SlotClient {
    shape: Shape,
    key: Arc<SecretKey<u64>>,
    encryptor: Encryptor<u64>,
    format: AnswerFormat,
    input: Batch,
    /// Of the image that is under way.
    slots: Vec<Zeroizing<Vec<i32>>>,
    output: Batch,
}

impl SlotClient {
    /// With the connection's key for the step's parameters.
    pub(crate) fn new(
        shape: Shape,
        key: Arc<SecretKey<u64>>,
        input: Batch,
    ) -> Result<Exchange<Self>, EngineError> {
        let format = shape.packing.format();
        let format = format.map_err(|source| refused(&shape.step, source))?;
        let client = Self {
            output: Batch::zeros(shape.packing.output_len(), shape.batch),
            encryptor: key.encryptor()?,
            key,
            format,
            input,
            slots: Vec::new(),
            shape,
        };
        Ok(Exchange::new(client.shape.messages(), client))
    }

    fn bfv<T>(&self, result: Result<T, pronghorn_he::bfv::BfvError>) -> Result<T, EngineError> {
        result.map_err(|source| refused(&self.shape.step, source.into()))
    }
}

impl Protocol for SlotClient {
    const PARTY: Party = Party::Client;

    fn make(&mut self, turn: Turn, out: &mut Vec<u8>) -> Result<(), EngineError> {
        let inputs = self.shape.packing.inputs();
        let (image, place) = (turn.index / inputs, turn.index % inputs);
        if place == 0 {
            self.slots = self.shape.pack(&self.input, image)?;
        }
        let plain = self.shape.packing.parameters().encode(&self.slots[place]);
        let plain = self.bfv(plain)?;
        let ciphertext = self.encryptor.encrypt(&plain);
        self.bfv(ciphertext)?.encode(out);
        if turn.last {
            self.slots.clear();
        }
        Ok(())
    }

    fn take(&mut self, turn: Turn, message: &[u8]) -> Result<(), EngineError> {
        let parameters = self.shape.packing.parameters();
        let answer = Answer::decode(parameters, &self.format, message).map_err(|source| {
            EngineError::Wire {
                step: self.shape.step.clone(),
                message: turn.name,
                row: turn.index,
                source,
            }
        })?;
        let slots = self.bfv(self.key.decrypt_answer(&answer))?;
        self.slots.push(Zeroizing::new(slots));
        let outputs = self.shape.packing.outputs();
        if self.slots.len() == outputs {
            let slots = std::mem::take(&mut self.slots);
            let image = turn.index / outputs;
            self.shape.unpack(&slots, None, image, &mut self.output)?;
        }
        Ok(())
    }
}

impl StepProtocol for SlotClient {
    fn into_made(self) -> Result<Made, EngineError> {
        Ok(Made::share(Share::Words(self.output)))
    }
}
