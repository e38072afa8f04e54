//! The data owner's half.

use std::{
    ops::Range,
    sync::{Arc, MutexGuard, PoisonError},
};

use pronghorn_he::{
    ckks::{Ciphertext, Encryptor, Index, Parameters, SecretKey, wire},
    rlwe::OutOfRange,
};
use pronghorn_ring::Word;
use rayon::prelude::*;
use zeroize::{Zeroize, Zeroizing};

use super::{ANSWER, INPUT, SEED, Shape, keys::ClientEncryptedKeys};
use crate::{
    error::EngineError,
    exchange::{Exchange, Party, Protocol, StepProtocol, Turn},
    machine::Made,
    share::{Batch, Share},
};

/// An answer of which more than this fraction lies outside its range is none, unless as many of its
/// copies agree.
const MOST_OUTSIDE: u64 = 8;

/// Sends the encrypted input, receives the encrypted result, and holds it in the clear.
pub struct EncryptedClient<W: Word> {
    shape: Shape,
    parameters: Parameters<W>,
    keys: Arc<ClientEncryptedKeys<W>>,
    input: Batch,
    output: Batch,
    saturated: u64,
    /// Whether an answer was none, which the server must not hear of.
    is_outside: bool,
}

impl<W: Word> EncryptedClient<W> {
    /// With the keys of the connection.
    pub(crate) fn new(
        shape: Shape,
        input: Batch,
        keys: Arc<ClientEncryptedKeys<W>>,
    ) -> Result<Exchange<Self>, EngineError> {
        let parameters = shape.parameters()?;
        let sent = encryptor(&keys).is_some();
        if !sent {
            *encryptor(&keys) = Some(keys.key.encryptor()?);
        }
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

    /// Something done with the encryptor of the keys.
    fn with_encryptor<T>(
        &self,
        act: impl FnOnce(&mut Encryptor<W>) -> Result<T, EngineError>,
    ) -> Result<T, EngineError> {
        let mut encryptor = encryptor(&self.keys);
        act(encryptor.as_mut().ok_or(EngineError::OutOfTurn {
            state: "has no keys",
        })?)
    }

    /// Encodes, encrypts and packs rows.
    fn encrypt(&self, rows: Range<usize>, out: &mut Vec<u8>) -> Result<(), EngineError> {
        let row_bytes = self.shape.encrypted.request_row_bytes();
        let start = out.len();
        out.resize(start + rows.len() * row_bytes, 0);
        self.with_encryptor(|encryptor| {
            let indices: Vec<Index> = encryptor.reserve(rows.len()).collect();
            let encryptor = &*encryptor;
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
        let decrypted = words
            .par_chunks_mut(images)
            .zip(message.par_chunks(shape.encrypted.answer_row_bytes()))
            .zip(rows)
            .map(|((integers, bytes), row)| {
                decrypt_row(shape, parameters, &keys.key, row, bytes, integers)
            })
            .try_reduce(|| (0, false), |all, row| Ok((all.0 + row.0, all.1 | row.1)));
        let (saturated, is_outside) = decrypted?;
        self.saturated += saturated;
        self.is_outside |= is_outside;
        Ok(())
    }
}

/// What the keys keep of the batches before.
fn encryptor<W: Word>(keys: &ClientEncryptedKeys<W>) -> MutexGuard<'_, Option<Encryptor<W>>> {
    // Numbers are taken before they are used, so a panic elsewhere leaves it good.
    keys.encryptor
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
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
    // An image like none of the samples has results beyond the range, and all copies of it have the
    // same. Where the answer as a whole is not what was computed (another server, damage, a modulus
    // that overflowed), all slots are anything.
    let is_none = outside > all / MOST_OUTSIDE
        && !copies_agree(&slots.re, integers.len(), (high - low) / unit);
    slots.re.zeroize();
    slots.im.zeroize();
    Ok((saturated, is_none))
}

/// Whether slots beyond the first `images` repeat these, as all inputs do: no two of a result differ
/// by a [`MOST_OUTSIDE`]th of the range `width`, but for as large a part of them. Without as many
/// copies nothing agrees.
fn copies_agree(slots: &[f64], images: usize, width: f64) -> bool {
    let most = slots.len() / MOST_OUTSIDE as usize;
    let near = width / MOST_OUTSIDE as f64;
    let copies = slots.len() - images;
    let differ = (images..slots.len())
        // No number is near another.
        .filter(|&slot| !matches!((slots[slot] - slots[slot % images]).abs(), off if off <= near))
        .count();
    copies > most && differ <= most
}

impl<W: Word> Protocol for EncryptedClient<W> {
    const PARTY: Party = Party::Client;

    fn make(&mut self, turn: Turn, out: &mut Vec<u8>) -> Result<(), EngineError> {
        match turn.name {
            SEED => self.with_encryptor(|encryptor| {
                out.extend_from_slice(encryptor.seed());
                Ok(())
            }),
            INPUT => self.encrypt(self.shape.request().range(turn.index), out),
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

#[cfg(test)]
mod tests {
    use super::copies_agree;

    #[test]
    fn copies_of_unlike_images_agree_and_damage_does_not() {
        let far: Vec<f64> = (0..64).map(|slot| f64::from(slot % 3) * 100.0).collect();
        assert!(copies_agree(&far, 3, 4.0));
        let damaged: Vec<f64> = (0..64).map(|slot| f64::from(slot * slot % 61)).collect();
        assert!(!copies_agree(&damaged, 3, 4.0));
        assert!(!copies_agree(&[f64::NAN; 64], 3, 4.0));
        // Too few copies tell nothing.
        assert!(!copies_agree(&far, 60, 4.0) && !copies_agree(&far, 64, 4.0));
    }
}
