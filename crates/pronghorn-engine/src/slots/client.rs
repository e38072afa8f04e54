//! The data owner's half of a linear step on slots.

use std::sync::Arc;

use pronghorn_he::bfv::{Answer, AnswerFormat, Encryptor, SecretKey};
use zeroize::Zeroizing;

use super::{ANSWER, Shape, refused};
use crate::{
    error::EngineError,
    machine::{Machine, Progress, StepMachine, Want},
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
    done: usize,
}

impl SlotClient {
    /// With the connection's key for the step's parameters.
    pub(crate) fn new(
        shape: Shape,
        key: Arc<SecretKey<u64>>,
        input: Batch,
    ) -> Result<Self, EngineError> {
        let format = shape.packing.format();
        let format = format.map_err(|source| refused(&shape.step, source))?;
        Ok(Self {
            output: Batch::zeros(shape.packing.output_len(), shape.batch),
            encryptor: key.encryptor()?,
            key,
            format,
            input,
            slots: Vec::new(),
            shape,
            done: 0,
        })
    }

    fn bfv<T>(&self, result: Result<T, pronghorn_he::bfv::BfvError>) -> Result<T, EngineError> {
        result.map_err(|source| refused(&self.shape.step, source.into()))
    }
}

impl Machine for SlotClient {
    type Error = EngineError;

    fn want(&self) -> Want {
        let [up, down] = self.shape.messages();
        match self.done {
            done if done < up => Want::Send,
            done if done < up + down => Want::Receive,
            _ => Want::Done,
        }
    }

    fn send(&mut self, out: &mut Vec<u8>) -> Result<(), EngineError> {
        if self.want() != Want::Send {
            return Err(EngineError::OutOfTurn {
                state: "waits for the server's answer",
            });
        }
        let inputs = self.shape.packing.inputs();
        let (image, place) = (self.done / inputs, self.done % inputs);
        if place == 0 {
            self.slots = self.shape.pack(&self.input, image)?;
        }
        let plain = self.shape.packing.parameters().encode(&self.slots[place]);
        let plain = self.bfv(plain)?;
        let ciphertext = self.encryptor.encrypt(&plain);
        self.bfv(ciphertext)?.encode(out);
        self.done += 1;
        if self.want() == Want::Receive {
            self.slots.clear();
        }
        Ok(())
    }

    fn receive(&mut self, message: &[u8]) -> Result<(), EngineError> {
        if self.want() != Want::Receive {
            return Err(EngineError::OutOfTurn {
                state: "is at the client's turn",
            });
        }
        self.shape
            .length(ANSWER, message.len(), self.shape.bytes[1])?;
        let parameters = self.shape.packing.parameters();
        let row = self.done - self.shape.messages()[0];
        let answer = Answer::decode(parameters, &self.format, message).map_err(|source| {
            EngineError::Wire {
                step: self.shape.step.clone(),
                message: ANSWER,
                row,
                source,
            }
        })?;
        let slots = self.bfv(self.key.decrypt_answer(&answer))?;
        self.slots.push(Zeroizing::new(slots));
        let outputs = self.shape.packing.outputs();
        if self.slots.len() == outputs {
            let slots = std::mem::take(&mut self.slots);
            self.shape
                .unpack(&slots, None, row / outputs, &mut self.output)?;
        }
        self.done += 1;
        Ok(())
    }

    fn max_incoming(&self) -> usize {
        match self.want() {
            Want::Receive => self.shape.bytes[1],
            _ => 0,
        }
    }

    fn progress(&self) -> Progress {
        self.shape.progress(self.done)
    }
}

impl StepMachine for SlotClient {
    fn into_share(self: Box<Self>) -> Share {
        Share::Words(self.output)
    }
}
