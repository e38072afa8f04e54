//! The data owner's half.

use pronghorn_he::{
    ckks::{Ciphertext, Encryptor, Index, Parameters, PublicKey, SecretKey},
    rlwe::OutOfRange,
};
use pronghorn_ring::{Word, random::Seed};
use rayon::prelude::*;
use zeroize::Zeroize;

use super::{Shape, pack, unpack};
use crate::{
    error::EngineError,
    machine::{Machine, Progress, StepMachine, Want},
    share::{Batch, Share},
};

/// An answer of which more than this fraction lies outside its range is none.
const MOST_OUTSIDE: u64 = 8;

/// Sends the encrypted input, receives the encrypted result, and holds it in the clear.
pub struct EncryptedClient<W: Word> {
    shape: Shape,
    parameters: Parameters<W>,
    key: SecretKey<W>,
    encryptor: Encryptor<W>,
    input: Batch,
    output: Batch,
    saturated: u64,
    state: State,
}

#[derive(Clone, Copy)]
enum State {
    SendKeys,
    SendRows { done: usize },
    ReceiveRows { done: usize },
    Done,
}

impl<W: Word> EncryptedClient<W> {
    /// Draws fresh keys for this batch.
    pub(crate) fn new(shape: Shape, input: Batch) -> Result<Self, EngineError> {
        let parameters = shape.parameters()?;
        let key = SecretKey::generate(&parameters, &Seed::from_os()?);
        let encryptor = key.encryptor()?;
        let output = Batch::zeros(shape.outputs, input.images());
        Ok(Self {
            shape,
            parameters,
            key,
            encryptor,
            input,
            output,
            saturated: 0,
            state: State::SendKeys,
        })
    }

    /// The seed of every `a`, and the public key: its seed, and its first limbs, which are those the answer has when the
    /// server re-randomises it.
    fn keys(&self, out: &mut Vec<u8>) -> Result<(), EngineError> {
        let public = PublicKey::generate(&self.key)?;
        let limbs = self.shape.encrypted.flood_limbs;
        out.extend_from_slice(self.encryptor.seed());
        out.extend_from_slice(public.seed());
        pack(
            &self.parameters,
            limbs,
            &public.b()[..limbs * self.parameters.n()],
            out,
        );
        Ok(())
    }

    /// Encodes, encrypts and packs rows `done..done + rows`.
    fn encrypt(&mut self, done: usize, rows: usize, out: &mut Vec<u8>) -> Result<(), EngineError> {
        let row_bytes = self.shape.encrypted.request_row_bytes();
        out.resize(rows * row_bytes, 0);
        let indices: Vec<Index> = self.encryptor.reserve(rows).collect();
        let this = &*self;
        out.par_chunks_mut(row_bytes)
            .zip(indices)
            .enumerate()
            .try_for_each(|(row, (bytes, index))| {
                bytes.copy_from_slice(&this.encrypt_row(done + row, index)?);
                Ok(())
            })
    }

    fn encrypt_row(&self, row: usize, index: Index) -> Result<Vec<u8>, EngineError> {
        let limbs = self.parameters.limbs();
        let unit = f64::from(-self.shape.input_bits).exp2();
        let scale = f64::from(self.shape.encrypted.scale_log).exp2();
        let mut values: Vec<f64> = self
            .input
            .row(row)
            .iter()
            .map(|&x| f64::from(x) * unit)
            .collect();
        let message = self.parameters.message(&values, &[], scale, limbs);
        values.zeroize();
        let mut b = vec![W::default(); limbs * self.parameters.n()];
        let encrypted =
            self.encryptor
                .encrypt_words(index, &message.map_err(self.shape.ckks())?, &mut b);
        encrypted.map_err(self.shape.ckks())?;
        let mut packed = Vec::new();
        pack(&self.parameters, limbs, &b, &mut packed);
        Ok(packed)
    }

    /// Unpacks and decrypts the rows of one answer message.
    fn decrypt(&mut self, done: usize, rows: usize, message: &[u8]) -> Result<(), EngineError> {
        let Self {
            shape,
            parameters,
            key,
            output,
            ..
        } = self;
        let (shape, images) = (&*shape, output.images());
        let saturated = output.words_mut()[done * images..][..rows * images]
            .par_chunks_mut(images)
            .zip(message.par_chunks(shape.encrypted.answer_row_bytes()))
            .enumerate()
            .map(|(row, (integers, bytes))| {
                decrypt_row(shape, parameters, key, done + row, bytes, integers)
            })
            .try_reduce(|| 0, |sum, row| Ok(sum + row))?;
        self.saturated += saturated;
        Ok(())
    }
}

/// One row of the answer; how many of its values were brought to the border of their range.
fn decrypt_row<W: Word>(
    shape: &Shape,
    parameters: &Parameters<W>,
    key: &SecretKey<W>,
    row: usize,
    bytes: &[u8],
    integers: &mut [i32],
) -> Result<u64, EngineError> {
    let (polys, limbs) = (shape.encrypted.answer_polys, shape.encrypted.answer_limbs);
    let mut words = vec![W::default(); polys * limbs * parameters.n()];
    unpack(
        parameters,
        limbs,
        bytes,
        &mut words,
        (shape, "the encrypted answer", row),
    )?;
    let answer = Ciphertext::from_words(parameters, limbs, shape.encrypted.answer_scale, words);
    let plain = answer.and_then(|answer| key.decrypt(&answer));
    let mut slots = plain
        .and_then(|plain| parameters.decode(&plain))
        .map_err(shape.ckks())?;
    let unit = f64::from(shape.output_bits).exp2();
    let (low, high) = (f64::from(shape.low), f64::from(shape.high));
    let scaled = |value: f64| (value * unit).round();
    let outside = |values: &[f64]| {
        let is_outside = |&&value: &&f64| !(low..=high).contains(&scaled(value));
        values.iter().filter(is_outside).count() as u64
    };
    for (integer, &value) in integers.iter_mut().zip(&slots.re) {
        *integer = scaled(value).clamp(low, high) as i32;
    }
    let (saturated, outside) = (outside(&slots.re[..integers.len()]), outside(&slots.re));
    let all = slots.re.len() as u64;
    slots.re.zeroize();
    slots.im.zeroize();
    // An image like none of the samples has results beyond the range. Where the answer as a whole is not what was computed
    // (another server, damage, a modulus that overflowed), all slots are anything.
    if outside <= all / MOST_OUTSIDE {
        return Ok(saturated);
    }
    Err(EngineError::Decryption {
        step: shape.step.clone(),
        source: OutOfRange,
    })
}

impl<W: Word> Machine for EncryptedClient<W> {
    fn want(&self) -> Want {
        match self.state {
            State::SendKeys | State::SendRows { .. } => Want::Send,
            State::ReceiveRows { .. } => Want::Receive,
            State::Done => Want::Done,
        }
    }

    fn send(&mut self, out: &mut Vec<u8>) -> Result<(), EngineError> {
        match self.state {
            State::SendKeys => {
                self.keys(out)?;
                self.state = State::SendRows { done: 0 };
            }
            State::SendRows { done } => {
                let (rows, _) = self.shape.request(done);
                self.encrypt(done, rows, out)?;
                let done = done + rows;
                self.state = if done == self.shape.inputs {
                    State::ReceiveRows { done: 0 }
                } else {
                    State::SendRows { done }
                };
            }
            State::ReceiveRows { .. } => {
                return Err(EngineError::OutOfTurn {
                    state: "waits for the server's answer",
                });
            }
            State::Done => return Err(EngineError::OutOfTurn { state: "is over" }),
        }
        Ok(())
    }

    fn receive(&mut self, message: &[u8]) -> Result<(), EngineError> {
        let State::ReceiveRows { done } = self.state else {
            return Err(EngineError::OutOfTurn {
                state: "is at the client's turn",
            });
        };
        let (rows, expected) = self.shape.answer(done);
        self.shape
            .length("the encrypted answer", message.len(), expected)?;
        self.decrypt(done, rows, message)?;
        let done = done + rows;
        self.state = if done == self.shape.outputs {
            State::Done
        } else {
            State::ReceiveRows { done }
        };
        Ok(())
    }

    fn max_incoming(&self) -> usize {
        match self.state {
            State::ReceiveRows { done } => self.shape.answer(done).1,
            _ => 0,
        }
    }

    fn progress(&self) -> Progress {
        let done = match self.state {
            State::SendKeys => 0,
            State::SendRows { done } => done,
            State::ReceiveRows { done } => self.shape.inputs + done,
            State::Done => self.shape.inputs + self.shape.outputs,
        };
        Progress {
            done: done as u64,
            total: self.shape.rows(),
        }
    }
}

impl<W: Word> StepMachine for EncryptedClient<W> {
    fn saturated(&self) -> u64 {
        self.saturated
    }

    fn into_share(self: Box<Self>) -> Share {
        Share::Words(self.output)
    }
}
