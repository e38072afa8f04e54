//! The data owner's half of a linear step.

use std::{ops::Range, sync::Arc};

use pronghorn_he::{
    RlweRing, SecretKey,
    rlwe::{self, OutOfRange, Scratch},
};
use pronghorn_plan::steps::linear::clear::ClearLinear;
use pronghorn_ring::SimdLevel;
use pronghorn_ring::{
    Word, bits,
    random::{Prg, Seed},
};
use rayon::prelude::*;
use zeroize::Zeroizing;

use super::{
    ANSWER, Answers, INPUT, PUBLIC_KEY, SEED, Shape,
    published::{ClientPublished, Place},
};
use crate::{
    error::EngineError,
    exchange::{Exchange, Party, Protocol, StepProtocol, Turn},
    machine::Made,
    packed::PackedRow,
    pool::Pool,
    share::{Batch, Share},
    simd,
};

/// Sends the encrypted share, receives the encrypted result, and holds it in the clear.
pub struct LinearClient<W: Word> {
    shape: Shape,
    ring: RlweRing<W>,
    key: SecretKey<W>,
    public_seed: Seed,
    public: Prg,
    input: Batch,
    output: Batch,
    publication: Option<Publication>,
    /// Whether a value was outside its range, which the server must not hear of.
    is_outside: bool,
}

/// What the bands of a layer share: the key, and the seed of `a`. An element is encrypted once.
pub(super) struct Carried<W: Word> {
    key: SecretKey<W>,
    public_seed: Seed,
}

/// Rows of `a'` that serve several batches.
enum Publication {
    /// An earlier batch brought them.
    Known(Arc<ClientPublished>),
    /// This one does.
    Due {
        rows: Vec<u8>,
        place: Place<ClientPublished>,
    },
}

impl<W: Word> LinearClient<W> {
    /// Draws a fresh key for this step of this batch, and a fresh `a`; or takes those of the band
    /// before, or the `a` of an earlier batch, where `place` keeps the rows of `a'` that serve
    /// several.
    pub(super) fn new(
        shape: Shape,
        input: Batch,
        place: Option<Place<ClientPublished>>,
        carried: Option<Carried<W>>,
        pool: &Pool<i32>,
    ) -> Result<Exchange<Self>, EngineError> {
        let ring = RlweRing::new(shape.linear.rlwe.degree, shape.linear.rlwe.modulus).map_err(
            |source| EngineError::Parameters {
                step: shape.step.clone(),
                source,
            },
        )?;
        let publication = place.map(|place| match place.get() {
            Some(known) => Publication::Known(known),
            None => Publication::Due {
                rows: Vec::new(),
                place,
            },
        });
        let Carried { key, public_seed } = match (carried, &publication) {
            (Some(carried), _) => carried,
            (None, publication) => Carried {
                key: SecretKey::generate(&ring, ring.blocks(shape.batch), &Seed::from_os()?),
                public_seed: match publication {
                    Some(Publication::Known(known)) => Seed::from_bytes(known.seed),
                    _ => Seed::from_os()?,
                },
            },
        };
        let public = rlwe::a_generator(&public_seed);
        let output = Batch::of_pool(pool, shape.outputs(), shape.batch);
        let client = Self {
            shape,
            ring,
            key,
            public_seed,
            public,
            input,
            output,
            publication,
            is_outside: false,
        };
        Ok(Exchange::new(
            client.shape.messages(client.is_known()),
            client,
        ))
    }

    /// Whether an earlier batch brought the rows of `a'`.
    fn is_known(&self) -> bool {
        matches!(self.publication, Some(Publication::Known(_)))
    }

    /// Keeps the rows of `a'` of an answer message for later batches.
    fn keep(&mut self, message: &[u8]) {
        if let Some(Publication::Due { rows, .. }) = &mut self.publication {
            let linear = &self.shape.linear;
            let (row, a) = (
                linear.answer_row_bytes(self.shape.batch),
                linear.published_row_bytes(),
            );
            rows.reserve_exact(self.shape.outputs() * a - rows.len());
            message
                .chunks(row)
                .for_each(|row| rows.extend_from_slice(&row[..a]));
        }
    }

    /// What later batches need of this one, now that it has all come.
    fn publish(&mut self) {
        if let Some(Publication::Due { rows, place }) = self.publication.take() {
            let seed = *self.public_seed.as_bytes();
            place.put(ClientPublished { seed, rows });
        }
    }

    /// Encrypts and packs rows.
    fn encrypt(&self, rows: Range<usize>, out: &mut Vec<u8>) -> Result<(), EngineError> {
        let Self {
            shape,
            ring,
            key,
            public,
            input,
            ..
        } = self;
        let row_bytes = shape.linear.rlwe.request_row_bytes(shape.batch);
        let start = out.len();
        out.resize(start + rows.len() * row_bytes, 0);
        let packed = out[start..].par_chunks_mut(row_bytes);
        packed.zip(rows).try_for_each_init(
            || Workspace::new(ring, shape.batch),
            |work, (bytes, index)| {
                let row = shape.portion.new.number(index);
                rlwe::expand_a(public, row, ring.modulus(), &mut work.a);
                let messages = input.row(index);
                let Workspace { a, b, scratch, .. } = work;
                match &shape.linear.answers {
                    Answers::Shares(encoding) => {
                        key.encrypt_shares(row, a, messages, encoding, scratch, b);
                    }
                    Answers::Values(clear) => key
                        .encrypt_row(row, a, messages, clear.scale_log, scratch, b)
                        .map_err(|source| EngineError::Encryption {
                            step: shape.step.clone(),
                            source,
                        })?,
                }
                bits::pack_into(&work.b, shape.linear.rlwe.modulus_bits(), bytes);
                Ok(())
            },
        )
    }

    /// Packs the public key: encryptions of zero in whole blocks, under an `a` of its own, the row
    /// behind the last one.
    fn public_key(&self, out: &mut Vec<u8>) {
        let (row, blocks) = (
            self.shape.inputs() as u64,
            self.ring.blocks(self.shape.batch),
        );
        let mut work = Workspace::new(&self.ring, blocks * self.ring.n());
        rlwe::expand_a(&self.public, row, self.ring.modulus(), &mut work.a);
        self.key
            .encrypt_zeros(row, &work.a, &mut work.scratch, &mut work.b);
        bits::pack(&work.b, self.shape.linear.rlwe.modulus_bits(), out);
    }

    /// Unpacks and decrypts the elements of one answer message.
    fn decrypt(&mut self, rows: Range<usize>, message: &[u8]) -> Result<(), EngineError> {
        let Self {
            shape,
            ring,
            key,
            output,
            publication,
            ..
        } = self;
        let (shape, ring, key) = (&*shape, &*ring, &*key);
        let batch = shape.batch;
        let known = match publication {
            Some(Publication::Known(known)) => Some(known.rows.as_slice()),
            _ => None,
        };
        let is_within = output.words_mut()[rows.start * batch..rows.end * batch]
            .par_chunks_mut(batch)
            .zip(message.par_chunks(shape.answer_row_bytes(known.is_some())))
            .zip(rows)
            .map_init(
                || Workspace::new(ring, batch),
                |work, ((element, bytes), row)| match &shape.linear.answers {
                    Answers::Shares(encoding) => {
                        let dropped = shape.linear.rlwe.dropped_bits;
                        let length = shape.linear.published_row_bytes();
                        let parts = match known {
                            Some(known) => (&known[row * length..][..length], bytes),
                            None => bytes.split_at(length),
                        };
                        read_answer(shape, ring, row, parts, work)?;
                        let Workspace { a, b, scratch, .. } = work;
                        key.decrypt_shares(a, b, dropped, encoding, scratch, element);
                        Ok(true)
                    }
                    Answers::Values(clear) => {
                        decrypt_element((shape, clear), (ring, key), row, bytes, work, element)
                    }
                },
            )
            .try_reduce(|| true, |a, b| Ok::<_, EngineError>(a & b))?;
        self.is_outside |= !is_within;
        Ok(())
    }
}

/// Decrypts the parts of one element and adds them up; whether all are in their ranges. The sum is
/// brought into that of the step's value, whatever the parts' ranges are, since the next step's
/// ciphertexts rely on it.
fn decrypt_element<W: Word>(
    (shape, clear): (&Shape, &ClearLinear),
    (ring, key): (&RlweRing<W>, &SecretKey<W>),
    row: usize,
    bytes: &[u8],
    work: &mut Workspace<W>,
    element: &mut [i32],
) -> Result<bool, EngineError> {
    let mut is_within = true;
    let parts = clear.parts.iter();
    let bytes = bytes.chunks(bytes.len() / clear.parts.len());
    for (index, (part, bytes)) in parts.zip(bytes).enumerate() {
        let length = clear.rlwe.answer_bytes_a();
        read_answer(shape, ring, row, bytes.split_at(length), work)?;
        let Workspace {
            a,
            b,
            part: messages,
            scratch,
            ..
        } = work;
        let target = if index == 0 {
            &mut *element
        } else {
            messages.as_mut_slice()
        };
        is_within &= key
            .decrypt_row(a, b, &clear.encoding(part), scratch, target)
            .is_ok();
        if index > 0 {
            // Sums of the higher digits have no range of their own in the plan.
            let [low, high] = match index + 1 == clear.parts.len() {
                true => [shape.low, shape.high],
                false => [i32::MIN, i32::MAX],
            };
            let shifts = [clear.digit_bits(), 0];
            let level = SimdLevel::detect();
            is_within &= simd::add_parts(level, element, messages, shifts, low, high);
        }
    }
    let (low, high) = (shape.low, shape.high);
    element
        .iter_mut()
        .for_each(|word| *word = (*word).clamp(low, high));
    Ok(is_within)
}

/// What a thread needs for one row.
struct Workspace<W: Word> {
    scratch: Scratch<W>,
    a: Vec<W>,
    b: Vec<W>,
    /// One decrypted part of an element; wiped on drop.
    part: Zeroizing<Vec<i32>>,
}

impl<W: Word> Workspace<W> {
    fn new(ring: &RlweRing<W>, batch: usize) -> Self {
        Self {
            scratch: Scratch::new(ring),
            a: vec![W::default(); ring.n()],
            b: vec![W::default(); batch],
            part: Zeroizing::new(vec![0; batch]),
        }
    }
}

/// Unpacks `a'`, with something for its low bits, and the high bits of `b'`, and checks that they
/// are residues.
fn read_answer<W: Word>(
    shape: &Shape,
    ring: &RlweRing<W>,
    row: usize,
    (a, b): (&[u8], &[u8]),
    work: &mut Workspace<W>,
) -> Result<(), EngineError> {
    let linear = &shape.linear;
    let packed = |width: u32| PackedRow {
        step: &shape.step,
        message: ANSWER,
        row,
        width,
    };
    let most = linear.rlwe.modulus - 1;
    let [dropped_a, dropped_b] = [linear.rlwe.dropped_bits_a, linear.rlwe.dropped_bits];
    packed(linear.rlwe.answer_bits_a()).unpack_up_to(most >> dropped_a, a, &mut work.a)?;
    packed(linear.rlwe.answer_bits()).unpack_up_to(most >> dropped_b, b, &mut work.b)?;
    ring.restore_low_bits_public(&mut work.a, dropped_a);
    Ok(())
}

impl<W: Word> Protocol for LinearClient<W> {
    const PARTY: Party = Party::Client;

    fn make(&mut self, turn: Turn, out: &mut Vec<u8>) -> Result<(), EngineError> {
        match turn.name {
            SEED => out.extend_from_slice(self.public_seed.as_bytes()),
            PUBLIC_KEY => self.public_key(out),
            INPUT => self.encrypt(self.shape.request().range(turn.index), out)?,
            _ => return Err(turn.unknown()),
        }
        Ok(())
    }

    fn take(&mut self, turn: Turn, message: &[u8]) -> Result<(), EngineError> {
        let rows = self.shape.answer(self.is_known()).range(turn.index);
        self.decrypt(rows, message)?;
        self.keep(message);
        if turn.last {
            self.publish();
        }
        Ok(())
    }
}

impl<W: Word> StepProtocol for LinearClient<W> {
    fn into_made(self) -> Result<Made, EngineError> {
        let doubt = self.is_outside.then(|| EngineError::Decryption {
            step: self.shape.step.clone(),
            source: OutOfRange,
        });
        let made = Made::share(Share::Words(self.output)).doubting(doubt);
        if !self.shape.portion.has_next {
            return Ok(made);
        }
        Ok(made.carrying(Carried {
            key: self.key,
            public_seed: self.public_seed,
        }))
    }
}
