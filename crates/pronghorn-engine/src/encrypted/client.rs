//! The data owner's half.

use std::ops::Range;

use pronghorn_he::{
    ckks::{Ciphertext, Encryptor, EvaluationKeys, Index, Parameters, PublicKey, SecretKey, wire},
    rlwe::OutOfRange,
};
use pronghorn_ring::{Word, random::Seed};
use rayon::prelude::*;
use zeroize::{Zeroize, Zeroizing};

use super::{ANSWER, EVALUATION_KEYS, INPUT, PUBLIC_KEY, Shape};
use crate::{
    connection::Kept,
    error::EngineError,
    exchange::{Exchange, Party, Protocol, StepProtocol, Turn},
    machine::Made,
    share::{Batch, Share},
};

/// An answer of which more than this fraction lies outside its range is none.
const MOST_OUTSIDE: u64 = 8;

const NO_KEYS: EngineError = EngineError::OutOfTurn {
    state: "has no keys",
};

/// The keys of a connection: one secret, and the one encryptor that counts what it used of its
/// randomness.
pub struct Keys<W: Word> {
    key: SecretKey<W>,
    encryptor: Encryptor<W>,
    sent: bool,
}

#[cfg(test)]
impl<W: Word> Keys<W> {
    /// The real parts of an answer's slots.
    pub(super) fn decrypted(&self, answer: &Ciphertext<W>) -> Vec<f64> {
        let plain = self.key.decrypt(answer).expect("the same parameters");
        let slots = self.key.parameters().decode(&plain);
        slots.expect("the same parameters").re
    }
}

/// Where the keys of a connection are kept.
pub(crate) type KeptKeys<W> = Kept<Keys<W>>;

/// Sends the encrypted input, receives the encrypted result, and holds it in the clear.
pub struct EncryptedClient<W: Word> {
    shape: Shape,
    parameters: Parameters<W>,
    keys: KeptKeys<W>,
    input: Batch,
    output: Batch,
    saturated: u64,
    /// Whether an answer was none, which the server must not hear of.
    is_outside: bool,
}

impl<W: Word> EncryptedClient<W> {
    /// Draws keys, unless the connection has some for another batch.
    pub(crate) fn new(
        shape: Shape,
        input: Batch,
        keys: KeptKeys<W>,
    ) -> Result<Exchange<Self>, EngineError> {
        let parameters = shape.parameters()?;
        if !keys.count(1) {
            let key = SecretKey::generate(&parameters, &Seed::from_os()?);
            let fresh = Keys {
                encryptor: key.encryptor()?,
                key,
                sent: false,
            };
            keys.put_for(fresh, shape.key_batches());
            keys.count(1);
        }
        let sent = keys.with(|keys| keys.sent).unwrap_or(false);
        let output = Batch::zeros(shape.outputs, input.images());
        let messages = shape.messages(sent);
        let client = Self {
            shape,
            parameters,
            keys,
            input,
            output,
            saturated: 0,
            is_outside: false,
        };
        Ok(Exchange::new(messages, client))
    }

    /// The seed of every `a`, and the public key: its seed, and its first limbs, which are those
    /// the answer has when the server re-randomises it.
    fn public_keys(&self, keys: &Keys<W>, out: &mut Vec<u8>) -> Result<(), EngineError> {
        let public = PublicKey::generate(&keys.key)?;
        let limbs = self.shape.encrypted.flood_limbs;
        let words = limbs * self.parameters.n();
        out.extend_from_slice(keys.encryptor.seed());
        out.extend_from_slice(public.seed());
        wire::pack(&self.parameters, limbs, &public.b()[..words], out);
        Ok(())
    }

    fn evaluation_keys(&self, keys: &Keys<W>, out: &mut Vec<u8>) -> Result<(), EngineError> {
        let power = self.shape.encrypted.key_power;
        let evaluation = EvaluationKeys::generate(&keys.key, power, &[], false);
        evaluation.map_err(self.shape.ckks())?.encode(out);
        Ok(())
    }

    /// Something done with the keys of the connection.
    fn with_keys<T>(
        &self,
        act: impl FnOnce(&mut Keys<W>) -> Result<T, EngineError>,
    ) -> Result<T, EngineError> {
        self.keys.with(act).unwrap_or(Err(NO_KEYS))
    }

    /// Encodes, encrypts and packs rows.
    fn encrypt(&self, rows: Range<usize>, out: &mut Vec<u8>) -> Result<(), EngineError> {
        let row_bytes = self.shape.encrypted.request_row_bytes();
        let start = out.len();
        out.resize(start + rows.len() * row_bytes, 0);
        self.with_keys(|keys| {
            let indices: Vec<Index> = keys.encryptor.reserve(rows.len()).collect();
            let encryptor = &keys.encryptor;
            out[start..]
                .par_chunks_mut(row_bytes)
                .zip(indices)
                .zip(rows)
                .try_for_each(|((bytes, index), row)| {
                    bytes.copy_from_slice(&self.encrypt_row(encryptor, row, index)?);
                    Ok(())
                })
        })
    }

    fn encrypt_row(
        &self,
        encryptor: &Encryptor<W>,
        row: usize,
        index: Index,
    ) -> Result<Vec<u8>, EngineError> {
        let limbs = self.parameters.limbs();
        let unit = f64::from(-self.shape.input_bits).exp2();
        let scale = f64::from(self.shape.encrypted.scale_log).exp2();
        // Images are repeated until all slots are used: what the server's network makes of nothing
        // is not for us to know.
        let row = self.input.row(row).iter().cycle();
        let values = row
            .take(self.parameters.slots())
            .map(|&x| f64::from(x) * unit);
        let values = Zeroizing::new(values.collect::<Vec<f64>>());
        let message = self.parameters.message(&values, &[], scale, limbs);
        let message = message.map_err(self.shape.ckks())?;
        let mut b = vec![W::default(); limbs * self.parameters.n()];
        encryptor
            .encrypt_words(index, &message, &mut b)
            .map_err(self.shape.ckks())?;
        let mut packed = Vec::new();
        wire::pack(&self.parameters, limbs, &b, &mut packed);
        Ok(packed)
    }

    /// Unpacks and decrypts the rows of one answer message.
    fn decrypt(&mut self, rows: Range<usize>, message: &[u8]) -> Result<(), EngineError> {
        let Self {
            shape,
            parameters,
            keys,
            output,
            ..
        } = self;
        let (shape, images) = (&*shape, output.images());
        let words = &mut output.words_mut()[rows.start * images..rows.end * images];
        let decrypted = keys.with(|keys| {
            words
                .par_chunks_mut(images)
                .zip(message.par_chunks(shape.encrypted.answer_row_bytes()))
                .zip(rows)
                .map(|((integers, bytes), row)| {
                    decrypt_row(shape, parameters, &keys.key, row, bytes, integers)
                })
                .try_reduce(|| (0, false), |all, row| Ok((all.0 + row.0, all.1 | row.1)))
        });
        let (saturated, is_outside) = decrypted.ok_or(NO_KEYS)??;
        self.saturated += saturated;
        self.is_outside |= is_outside;
        Ok(())
    }
}

/// One row of the answer; how many of its values were brought to the border of their range, and
/// whether so many that the answer is none.
fn decrypt_row<W: Word>(
    shape: &Shape,
    parameters: &Parameters<W>,
    key: &SecretKey<W>,
    row: usize,
    bytes: &[u8],
    integers: &mut [i32],
) -> Result<(u64, bool), EngineError> {
    let (polys, limbs) = (shape.encrypted.answer_polys, shape.encrypted.answer_limbs);
    let mut words = vec![W::default(); polys * limbs * parameters.n()];
    wire::unpack(parameters, limbs, bytes, &mut words).map_err(shape.wire(ANSWER, row))?;
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
    // An image like none of the samples has results beyond the range. Where the answer as a whole
    // is not what was computed (another server, damage, a modulus that overflowed), all slots are
    // anything.
    Ok((saturated, outside > all / MOST_OUTSIDE))
}

impl<W: Word> Protocol for EncryptedClient<W> {
    const PARTY: Party = Party::Client;

    fn make(&mut self, turn: Turn, out: &mut Vec<u8>) -> Result<(), EngineError> {
        match turn.name {
            PUBLIC_KEY => self.with_keys(|keys| self.public_keys(keys, out)),
            EVALUATION_KEYS => self.with_keys(|keys| self.evaluation_keys(keys, out)),
            INPUT => {
                self.encrypt(self.shape.request().range(turn.index), out)?;
                self.with_keys(|keys| {
                    keys.sent |= turn.last;
                    Ok(())
                })
            }
            _ => Err(turn.unknown()),
        }
    }

    fn take(&mut self, turn: Turn, message: &[u8]) -> Result<(), EngineError> {
        self.decrypt(self.shape.answer().range(turn.index), message)
    }
}

impl<W: Word> StepProtocol for EncryptedClient<W> {
    fn into_made(self) -> Result<Made, EngineError> {
        Ok(Made {
            saturated: self.saturated,
            doubt: self.is_outside.then(|| EngineError::Decryption {
                step: self.shape.step.clone(),
                source: OutOfRange,
            }),
            ..Made::share(Share::Words(self.output))
        })
    }
}
