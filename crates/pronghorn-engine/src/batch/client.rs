//! The data owner's half of a linear step.

use std::{ops::Range, sync::Arc};

use pronghorn_he::{
    RlweRing, SecretKey,
    rlwe::{self, KeyRoom, OutOfRange, Scratch},
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
    rooms::Rooms,
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
    /// Those of a pointwise layer that comes in several bands.
    rows: Option<PointRows<W>>,
    input: Batch,
    output: Batch,
    publication: Option<Publication>,
    workspaces: Rooms<Workspace<W>>,
    /// Whether a value was outside its range, which the server must not hear of.
    is_outside: bool,
}

/// What the bands of a layer share: the seed of `a`, and the key, as an element is encrypted once;
/// of a pointwise layer the rows, and the memory of the key.
pub(super) struct Carried<W: Word> {
    public_seed: Seed,
    key: Option<SecretKey<W>>,
    rows: Option<PointRows<W>>,
    room: KeyRoom<W>,
}

/// Rows of `a'` of a pointwise layer, in the NTT domain: one an output and part serves all columns.
struct PointRows<W: Word> {
    /// The output of the first.
    first: usize,
    words: Vec<W>,
}

impl<W: Word> PointRows<W> {
    /// Room for those of some outputs.
    fn new(shape: &Shape, ring: &RlweRing<W>, outputs: Range<usize>) -> Self {
        let rows = outputs.len() * shape.linear.parts();
        Self {
            first: outputs.start,
            words: vec![W::default(); rows * ring.n()],
        }
    }

    /// That of a part of an output.
    fn row(&self, shape: &Shape, n: usize, (output, part): (usize, usize)) -> &[W] {
        let index = (output - self.first) * shape.linear.parts() + part;
        &self.words[index * n..][..n]
    }

    /// Reads the rows of `a'` of an answer message.
    fn read(
        &mut self,
        shape: &Shape,
        ring: &RlweRing<W>,
        rows: Range<usize>,
        message: &[u8],
    ) -> Result<(), EngineError> {
        let (n, parts) = (ring.n(), shape.linear.parts());
        let part_bytes = shape.answer_row_bytes(false) / parts;
        let length = shape.linear.rlwe.answer_bytes_a();
        let places = [rows.start, rows.end].map(|row| (row - self.first) * parts * n);
        let answers = &mut self.words[places[0]..places[1]];
        answers
            .par_chunks_exact_mut(n)
            .zip(message.par_chunks(part_bytes))
            .enumerate()
            .try_for_each(|(index, (a, bytes))| {
                read_a(shape, ring, rows.start + index / parts, &bytes[..length], a)
            })
    }
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
    /// several. Bands of a pointwise layer have keys of their own for one `a`.
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
        let (carried_seed, carried_key, rows, room) = match carried {
            Some(Carried {
                public_seed,
                key,
                rows,
                room,
            }) => (Some(public_seed), key, rows, room),
            None => (None, None, None, KeyRoom::default()),
        };
        let blocks = ring.blocks(shape.columns);
        let key = match carried_key {
            Some(key) => key,
            None => SecretKey::generate_in(&ring, blocks, &Seed::from_os()?, room),
        };
        let public_seed = match (carried_seed, &publication) {
            (Some(seed), _) => seed,
            (None, Some(Publication::Known(known))) => Seed::from_bytes(known.seed),
            (None, _) => Seed::from_os()?,
        };
        let public = rlwe::a_generator(&public_seed);
        let keeps = shape.linear.is_pointwise() && shape.portion.has_next;
        let all = 0..shape.outputs();
        let rows = rows.or_else(|| keeps.then(|| PointRows::new(&shape, &ring, all)));
        let output = Batch::of_pool(pool, shape.outputs(), shape.columns);
        let client = Self {
            input: input.with_columns(shape.columns),
            shape,
            ring,
            key,
            public_seed,
            public,
            rows,
            output,
            publication,
            workspaces: Rooms::default(),
            is_outside: false,
        };
        Ok(Exchange::new(
            client.shape.messages(client.is_known()),
            client,
        ))
    }

    /// Whether an earlier batch or band brought the rows of `a'`.
    fn is_known(&self) -> bool {
        matches!(self.publication, Some(Publication::Known(_))) || self.shape.is_continued()
    }

    /// Keeps the rows of `a'` of an answer message for later batches.
    fn keep(&mut self, message: &[u8]) {
        if let Some(Publication::Due { rows, .. }) = &mut self.publication {
            let linear = &self.shape.linear;
            let (row, a) = (
                linear.answer_row_bytes(self.shape.columns),
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
    fn encrypt(&self, rows: Range<usize>, out: &mut [u8]) -> Result<(), EngineError> {
        let Self {
            shape,
            ring,
            key,
            public,
            input,
            workspaces,
            ..
        } = self;
        let (rlwe, piece) = (&shape.linear.rlwe, shape.piece());
        let [row_bytes, piece_bytes] =
            [shape.columns, piece].map(|columns| rlwe.request_row_bytes(columns));
        let packed = out.par_chunks_mut(row_bytes).zip(rows);
        let pieces = packed.flat_map(|(bytes, index)| {
            let pieces = bytes.par_chunks_mut(piece_bytes);
            let pieces = pieces.zip(input.row(index).par_chunks(piece));
            pieces
                .enumerate()
                .map(move |(at, (bytes, messages))| (index, at, bytes, messages))
        });
        pieces.try_for_each_init(
            || workspaces.borrow(|| Workspace::new(ring, piece)),
            |work, (index, at, bytes, messages)| {
                let row = shape.portion.new.number(index);
                let Workspace { a, b, scratch, .. } = &mut **work;
                rlwe::expand_a(public, row, ring.modulus(), a);
                let b = &mut b[..messages.len()];
                match &shape.linear.answers {
                    Answers::Shares(encoding) => {
                        key.encrypt_shares(row, a, messages, encoding, scratch, b);
                    }
                    Answers::Values(clear) => key
                        .encrypt_row(
                            (row, at * ring.blocks(piece)),
                            a,
                            messages,
                            clear.scale_log,
                            scratch,
                            b,
                        )
                        .map_err(|source| EngineError::Encryption {
                            step: shape.step.clone(),
                            source,
                        })?,
                }
                bits::pack_into(b, rlwe.modulus_bits(), bytes);
                Ok(())
            },
        )
    }

    /// Packs the public key: encryptions of zero in whole blocks, under an `a` of its own, the row
    /// behind the last one.
    fn public_key(&self, out: &mut Vec<u8>) {
        let (row, blocks) = (
            self.shape.inputs() as u64,
            self.ring.blocks(self.shape.columns),
        );
        let mut work = Workspace::new(&self.ring, blocks * self.ring.n());
        rlwe::expand_a(&self.public, row, self.ring.modulus(), &mut work.a);
        self.key
            .encrypt_zeros(row, &work.a, &mut work.scratch, &mut work.b);
        bits::pack(&work.b, self.shape.linear.rlwe.modulus_bits(), out);
    }

    /// Unpacks and decrypts the elements of one answer message.
    fn decrypt(&mut self, rows: Range<usize>, message: &[u8]) -> Result<(), EngineError> {
        let known = self.is_known();
        let Self {
            shape,
            ring,
            key,
            output,
            publication,
            rows: points,
            workspaces,
            ..
        } = self;
        // Rows that no other band needs go with the message.
        let mut of_message = (points.is_none() && shape.linear.is_pointwise())
            .then(|| PointRows::new(shape, ring, rows.clone()));
        let points = points.as_mut().or(of_message.as_mut());
        let points = match points {
            Some(points) if !shape.is_continued() => {
                points.read(shape, ring, rows.clone(), message)?;
                Some(&*points)
            }
            points => points.map(|points| &*points),
        };
        let published = match publication {
            Some(Publication::Known(known)) => Some(known.rows.as_slice()),
            _ => None,
        };
        let reader = Reader {
            shape,
            ring,
            key,
            published,
            points,
        };
        let (columns, piece, row_bytes) =
            (shape.columns, shape.piece(), shape.answer_row_bytes(known));
        let elements = output.words_mut()[rows.start * columns..rows.end * columns]
            .par_chunks_mut(columns)
            .zip(message.par_chunks(row_bytes))
            .zip(rows);
        let pieces = elements.flat_map(|((element, bytes), row)| {
            let pieces = element.par_chunks_mut(piece).enumerate();
            pieces.map(move |(at, messages)| (row, at * piece, bytes, messages))
        });
        let is_within = pieces
            .map_init(
                || workspaces.borrow(|| Workspace::new(ring, piece)),
                |work, (row, first, bytes, messages)| {
                    reader.decrypt((row, first), bytes, work, messages)
                },
            )
            .try_reduce(|| true, |a, b| Ok::<_, EngineError>(a & b))?;
        self.is_outside |= !is_within;
        Ok(())
    }
}

/// What the decryption of an answer reads.
struct Reader<'a, W: Word> {
    shape: &'a Shape,
    ring: &'a RlweRing<W>,
    key: &'a SecretKey<W>,
    /// The rows of `a'` of an earlier batch.
    published: Option<&'a [u8]>,
    /// The rows of a pointwise layer.
    points: Option<&'a PointRows<W>>,
}

impl<W: Word> Reader<'_, W> {
    /// Decrypts the messages of a row from column `first` on; whether all are in their ranges.
    /// `bytes`: the row's.
    fn decrypt(
        &self,
        (row, first): (usize, usize),
        bytes: &[u8],
        work: &mut Workspace<W>,
        messages: &mut [i32],
    ) -> Result<bool, EngineError> {
        let Self { shape, ring, .. } = *self;
        match &shape.linear.answers {
            Answers::Shares(encoding) => {
                let dropped = shape.linear.rlwe.dropped_bits;
                let length = shape.linear.published_row_bytes();
                let (a, b) = match self.published {
                    Some(published) => (&published[row * length..][..length], bytes),
                    None => bytes.split_at(length),
                };
                read_a(shape, ring, row, a, &mut work.a)?;
                read_b(shape, row, b, &mut work.b)?;
                let Workspace { a, b, scratch, .. } = work;
                self.key
                    .decrypt_shares(a, b, dropped, encoding, scratch, messages);
                Ok(true)
            }
            Answers::Values(clear) => {
                self.decrypt_values(clear, (row, first), bytes, work, messages)
            }
        }
    }

    /// Decrypts the parts of values and adds them up. The sum is brought into the range of the
    /// step's value, whatever the parts' ranges are, since the next step's ciphertexts rely on it.
    fn decrypt_values(
        &self,
        clear: &ClearLinear,
        (row, first): (usize, usize),
        bytes: &[u8],
        work: &mut Workspace<W>,
        values: &mut [i32],
    ) -> Result<bool, EngineError> {
        let (shape, ring) = (self.shape, self.ring);
        let (parts, count) = (clear.parts.len(), values.len());
        let mut is_within = true;
        for (index, (part, bytes)) in clear
            .parts
            .iter()
            .zip(bytes.chunks(bytes.len() / parts))
            .enumerate()
        {
            let Workspace {
                scratch,
                a,
                b,
                part: messages,
            } = work;
            let (a, bytes) = self.a_and_b((row, index), bytes, a)?;
            let b = &mut b[..count];
            let skipped = clear.rlwe.answer_bytes_b(first);
            read_b(
                shape,
                row,
                &bytes[skipped..][..clear.rlwe.answer_bytes_b(count)],
                b,
            )?;
            let target = if index == 0 {
                &mut *values
            } else {
                &mut messages[..count]
            };
            let block = first / ring.n();
            let decrypted =
                self.key
                    .decrypt_row(block, a, b, &clear.encoding(part), scratch, target);
            is_within &= decrypted.is_ok();
            if index > 0 {
                // Sums of the higher digits have no range of their own in the plan.
                let [low, high] = match index + 1 == parts {
                    true => [shape.low, shape.high],
                    false => [i32::MIN, i32::MAX],
                };
                let shifts = [clear.digit_bits(), 0];
                let level = SimdLevel::detect();
                is_within &= simd::add_parts(level, values, &messages[..count], shifts, low, high);
            }
        }
        simd::clip(SimdLevel::detect(), values, shape.low, shape.high);
        Ok(is_within)
    }

    /// The `a'` of a part of a row, in the NTT domain, and the bytes of its `b'`.
    fn a_and_b<'b>(
        &'b self,
        (row, part): (usize, usize),
        bytes: &'b [u8],
        room: &'b mut [W],
    ) -> Result<(&'b [W], &'b [u8]), EngineError> {
        let (shape, n) = (self.shape, self.ring.n());
        let length = match shape.is_continued() {
            true => 0,
            false => shape.linear.rlwe.answer_bytes_a(),
        };
        let (a, b) = bytes.split_at(length);
        match self.points {
            Some(points) => Ok((points.row(shape, n, (row, part)), b)),
            None => {
                read_a(shape, self.ring, row, a, room)?;
                Ok((room, b))
            }
        }
    }
}

/// What a thread needs for a piece of a row.
struct Workspace<W: Word> {
    scratch: Scratch<W>,
    a: Vec<W>,
    b: Vec<W>,
    /// One decrypted part of an element; wiped on drop.
    part: Zeroizing<Vec<i32>>,
}

impl<W: Word> Workspace<W> {
    fn new(ring: &RlweRing<W>, columns: usize) -> Self {
        Self {
            scratch: Scratch::new(ring),
            a: vec![W::default(); ring.n()],
            b: vec![W::default(); columns],
            part: Zeroizing::new(vec![0; columns]),
        }
    }
}

/// Unpacks `a'`, with something for its low bits, and checks that it has residues.
fn read_a<W: Word>(
    shape: &Shape,
    ring: &RlweRing<W>,
    row: usize,
    bytes: &[u8],
    a: &mut [W],
) -> Result<(), EngineError> {
    let rlwe = &shape.linear.rlwe;
    let dropped = rlwe.dropped_bits_a;
    let most = (rlwe.modulus - 1) >> dropped;
    packed(shape, row, rlwe.answer_bits_a()).unpack_up_to(most, bytes, a)?;
    ring.restore_low_bits_public(a, dropped);
    Ok(())
}

/// Unpacks the high bits of `b'`, and checks that they are those of residues.
fn read_b<W: Word>(
    shape: &Shape,
    row: usize,
    bytes: &[u8],
    b: &mut [W],
) -> Result<(), EngineError> {
    let rlwe = &shape.linear.rlwe;
    let most = (rlwe.modulus - 1) >> rlwe.dropped_bits;
    packed(shape, row, rlwe.answer_bits()).unpack_up_to(most, bytes, b)
}

/// A row of the answer, for errors.
fn packed(shape: &Shape, row: usize, width: u32) -> PackedRow<'_> {
    PackedRow {
        step: &shape.step,
        message: ANSWER,
        row,
        width,
    }
}

impl<W: Word> Protocol for LinearClient<W> {
    const PARTY: Party = Party::Client;

    fn make(&mut self, turn: Turn, out: &mut Vec<u8>) -> Result<(), EngineError> {
        match turn.name {
            SEED => out.extend_from_slice(self.public_seed.as_bytes()),
            PUBLIC_KEY => self.public_key(out),
            _ => return Err(turn.unknown()),
        }
        Ok(())
    }

    fn fills(&self, name: &'static str) -> bool {
        name == INPUT
    }

    fn fill(&mut self, turn: Turn, out: &mut [u8]) -> Result<(), EngineError> {
        self.encrypt(self.shape.request().range(turn.index), out)
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
        let output = self.output.with_columns(self.shape.images());
        let made = Made::share(Share::Words(output)).doubting(doubt);
        if !self.shape.portion.has_next {
            return Ok(made);
        }
        let (key, room) = match self.shape.linear.is_pointwise() {
            true => (None, self.key.into_room()),
            false => (Some(self.key), KeyRoom::default()),
        };
        Ok(made.carrying(Carried {
            key,
            rows: self.rows,
            public_seed: self.public_seed,
            room,
        }))
    }
}
