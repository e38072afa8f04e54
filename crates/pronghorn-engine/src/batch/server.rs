//! The model owner's half of a linear step.

use std::{
    ops::Range,
    sync::{Arc, Mutex},
};

use pronghorn_graph::{
    fixed::{Digit, Linear},
    geometry::ConvGeometry,
};
use pronghorn_he::{
    RlweRing, rlwe,
    shares::{HideScratch, ShareEncoding},
};
use pronghorn_plan::{
    cost::SEED_BYTES,
    steps::linear::clear::{ClearLinear, Part},
};
use pronghorn_product::{PackedWeights, Rows, Tiles};
use pronghorn_ring::{
    Word, bits,
    random::{Prg, Seed},
    vector,
};
use rayon::prelude::*;
use zeroize::Zeroize;

use super::{
    ANSWER, Answers, INPUT, Layer, PUBLIC_KEY, SEED, Shape,
    halo::Halo,
    portion::Portion,
    published::{Place, ServerPublished},
    shares::ServerShares,
};
use crate::{
    error::EngineError,
    exchange::{Exchange, Party, Protocol, StepProtocol, Turn},
    machine::Made,
    packed::PackedRow,
    pool::Pool,
    protocol::unsupported,
    rooms::Rooms,
    share::Share,
};

/// A layer's weights, laid out for the product; made once a model. The server's secret: no Debug.
pub struct PreparedLayer<W: Word> {
    ring: RlweRing<W>,
    /// The weights of all parts, of a layer that may go by bands.
    stacked: Option<Linear>,
    /// Weights laid out for the whole layer, then for bands of other heights, the newest last.
    packed: Mutex<Vec<Arc<Packed>>>,
    /// `scale * (bias - centre)` for each channel the product makes.
    addend: Vec<W>,
}

/// Weights laid out for a geometry.
struct Packed {
    geometry: ConvGeometry,
    weights: PackedWeights,
}

/// Most layouts of the weights of a layer: for the first band, inner ones and the last, of batches
/// of two sizes.
const MOST_LAYOUTS: usize = 8;

/// Rows of an answer that a thread packs side by side.
const PACKED_TOGETHER: usize = 8;

impl<W: Word> PreparedLayer<W> {
    /// Prepares `layer` for the parameters of its plan step.
    ///
    /// # Errors
    /// When the weights do not go with the geometry, or the parameters are refused.
    pub(crate) fn new(weights: &Linear, shape: &Shape) -> Result<Self, EngineError> {
        let Layer { rlwe, answers, .. } = &shape.linear;
        let ring = RlweRing::<W>::new(rlwe.degree, rlwe.modulus).map_err(|source| {
            EngineError::Parameters {
                step: shape.step.clone(),
                source,
            }
        })?;
        let modulus = *ring.modulus();
        let (stacked, addend): (_, Vec<W>) = match answers {
            Answers::Shares(encoding) => {
                let bias = weights.bias.iter();
                let words = bias.map(|&bias| W::from_u64(encoding.encode(bias)));
                (weights.clone(), words.collect())
            }
            Answers::Values(clear) => {
                let stacked = stack(weights, clear);
                let scale = modulus.from_i64(1 << clear.scale_log);
                let centres = clear.parts.iter().map(Part::centre).cycle();
                let messages = stacked.bias.iter().zip(centres);
                let words = messages.map(|(&bias, centre)| {
                    modulus.mul(modulus.from_i64(i64::from(bias) - centre), scale)
                });
                let addend = words.collect();
                (stacked, addend)
            }
        };
        // One position of a pointwise layer.
        let geometry = ConvGeometry {
            out_channels: stacked.geometry.out_channels,
            ..shape.linear.geometry.clone()
        };
        let whole = Packed::new(&shape.step, &geometry, &stacked)?;
        let has_bands = matches!(answers, Answers::Values(_)) && !shape.linear.is_pointwise();
        Ok(Self {
            ring,
            stacked: has_bands.then_some(stacked),
            packed: Mutex::new(vec![Arc::new(whole)]),
            addend,
        })
    }

    /// The weights laid out for a part of the layer.
    fn packed(&self, step: &str, portion: &Portion) -> Result<Arc<Packed>, EngineError> {
        let geometry = ConvGeometry {
            out_channels: self.addend.len(),
            ..portion.geometry.clone()
        };
        let lock = || {
            self.packed
                .lock()
                .unwrap_or_else(|broken| broken.into_inner())
        };
        let found = lock()
            .iter()
            .find(|packed| packed.geometry == geometry)
            .cloned();
        if let Some(found) = found {
            return Ok(found);
        }
        let Some(stacked) = &self.stacked else {
            return Err(unsupported(step, "it has no bands"));
        };
        // Other batches go on meanwhile. Two that pack the same do it twice.
        let new = Arc::new(Packed::new(step, &geometry, stacked)?);
        let mut packed = lock();
        if packed.len() == MOST_LAYOUTS {
            packed.remove(1);
        }
        packed.push(new.clone());
        Ok(new)
    }

    /// The ring of its ciphertexts.
    pub(crate) fn ring(&self) -> &RlweRing<W> {
        &self.ring
    }
}

impl Packed {
    fn new(step: &str, geometry: &ConvGeometry, stacked: &Linear) -> Result<Self, EngineError> {
        let weights = PackedWeights::new(geometry, &stacked.weights);
        let weights = weights.map_err(|source| EngineError::Weights {
            step: step.to_owned(),
            source,
        })?;
        Ok(Self {
            geometry: geometry.clone(),
            weights,
        })
    }
}

/// One layer that makes all parts: output channel `o * parts + p` holds part `p` of channel `o`.
fn stack(layer: &Linear, clear: &ClearLinear) -> Linear {
    if clear.parts.len() == 1 {
        return layer.clone();
    }
    let parts = Digit::cut(clear.parts.len(), clear.digit_bits());
    let digits: Vec<Linear> = parts.map(|digit| layer.digit(digit)).collect();
    let row_len = layer.geometry.row_len();
    let channels = 0..layer.geometry.out_channels;
    let rows = channels.clone().flat_map(|o| {
        digits
            .iter()
            .flat_map(move |d| &d.weights[o * row_len..][..row_len])
    });
    Linear {
        geometry: ConvGeometry {
            out_channels: layer.geometry.out_channels * digits.len(),
            ..layer.geometry.clone()
        },
        weights: rows.copied().collect(),
        bias: channels
            .flat_map(|o| digits.iter().map(move |d| d.bias[o]))
            .collect(),
    }
}

/// What the bands of a layer share: the seed of `a`, and the rows of `b` that the next band reads
/// too.
pub(super) struct Carried<W: Word> {
    seed: [u8; SEED_BYTES],
    halo: Halo<W>,
}

/// Receives encrypted rows, multiplies, sends encrypted rows; its share of the result is zero, or
/// under `two-party` what hides the answer.
pub struct LinearServer<W: Word> {
    shape: Shape,
    layer: Arc<PreparedLayer<W>>,
    packed: Arc<Packed>,
    /// Rows of `b` of earlier bands.
    halo: Halo<W>,
    /// Those of this one.
    rows: Vec<W>,
    pool: Pool<W>,
    /// For the next band.
    carried: Option<Carried<W>>,
    a: Tiles<W>,
    b: Tiles<W>,
    /// The expander of the client's seed, once that is here.
    generator: Option<Prg>,
    shares: Option<ServerShares<W>>,
    publication: Option<Publication>,
    /// Of rows of `a'`.
    rooms: Rooms<Vec<W>>,
}

/// Rows of `a'` that serve several batches.
enum Publication {
    /// An earlier batch sent them.
    Sent,
    /// This one does.
    Due {
        seed: [u8; SEED_BYTES],
        rerandomiser: Seed,
        place: Place<ServerPublished>,
    },
}

impl<W: Word> LinearServer<W> {
    /// `input` is the server's share of what the layer reads; `masks` makes the masks of shares
    /// where they were made ahead, and is used once; `place` is where rows of `a'` are kept that
    /// serve several batches; `carried` is what the band before left.
    pub(super) fn new(
        shape: Shape,
        layer: Arc<PreparedLayer<W>>,
        input: Share,
        masks: Option<Seed>,
        place: Option<Place<ServerPublished>>,
        carried: Option<Carried<W>>,
        pool: Pool<W>,
    ) -> Result<Exchange<Self>, EngineError> {
        let mut server = Self {
            packed: layer.packed(&shape.step, &shape.portion)?,
            shape,
            layer,
            halo: Halo::default(),
            rows: Vec::new(),
            carried: None,
            pool,
            a: Tiles::new(0, 0),
            b: Tiles::new(0, 0),
            generator: None,
            shares: None,
            publication: None,
            rooms: Rooms::default(),
        };
        match server.shape.linear.share_encoding() {
            Some(encoding) => server.share(encoding, input, masks, place)?,
            None if matches!(input, Share::Words(_)) => {
                return Err(EngineError::Unsupported {
                    step: server.shape.step,
                    reason: "client-aided leaves the server no share of its own",
                });
            }
            None => {}
        }
        match carried {
            Some(Carried { seed, .. }) if server.shape.is_continued() => server.expect_rows(&seed),
            Some(Carried { seed, halo }) => {
                server.multiply_a(&seed);
                server.halo = halo;
            }
            None => {}
        }
        Ok(Exchange::new(
            server.shape.messages(server.is_published()),
            server,
        ))
    }

    /// Makes ready for a step on shares.
    fn share(
        &mut self,
        encoding: ShareEncoding,
        input: Share,
        masks: Option<Seed>,
        place: Option<Place<ServerPublished>>,
    ) -> Result<(), EngineError> {
        let masks = masks.map_or_else(Seed::from_os, Ok)?;
        let sizes = (self.shape.outputs(), self.shape.columns);
        let shares = |seed: &Seed| ServerShares::new(encoding, input, sizes, seed, &masks);
        if let Some(sent) = place.as_ref().and_then(Place::get) {
            self.shares = Some(shares(&sent.rerandomiser));
            self.publication = Some(Publication::Sent);
            self.expect_rows(&sent.seed);
            return Ok(());
        }
        let rerandomiser = Seed::from_os()?;
        self.shares = Some(shares(&rerandomiser));
        self.publication = place.map(|place| Publication::Due {
            seed: [0; SEED_BYTES],
            rerandomiser,
            place,
        });
        Ok(())
    }

    /// Whether the client has the rows of `a'`.
    fn is_published(&self) -> bool {
        matches!(self.publication, Some(Publication::Sent)) || self.shape.is_continued()
    }

    /// Makes room for the client's rows, whose `a` are of this seed.
    fn expect_rows(&mut self, seed: &[u8; SEED_BYTES]) {
        self.generator = Some(rlwe::a_generator(&Seed::from_bytes(*seed)));
        let portion = &self.shape.portion;
        let words = portion.new.count * self.shape.columns;
        // Exactly as long where the next band reads them, too: plans count them so.
        self.rows = match portion.halo {
            0 => self.pool.take(words),
            _ => self.pool.take_exactly(words),
        };
        self.carried = self.shape.portion.has_next.then(|| Carried {
            seed: *seed,
            halo: Halo::default(),
        });
    }

    /// `a' = W a`, while the client is still encrypting.
    fn multiply_a(&mut self, seed: &[u8; SEED_BYTES]) {
        let generator = rlwe::a_generator(&Seed::from_bytes(*seed));
        let (n, q) = (self.shape.linear.rlwe.degree, self.layer.ring.modulus());
        let window = &self.shape.portion.window;
        let mut room = self.pool.take(window.count * n);
        let rows = &mut room[..window.count * n];
        rows.par_chunks_mut(n)
            .enumerate()
            .for_each(|(row, a)| rlwe::expand_a(&generator, window.number(row), q, a));
        self.a = tiles(&self.pool, self.shape.answers(), n);
        let input = Rows::Together(rows, n);
        pronghorn_product::multiply(&self.packed.weights, q, input, None, &mut self.a);
        self.pool.give(room);
        self.expect_rows(seed);
    }

    /// What later batches need of this one, now that it has all been sent.
    fn publish(&mut self) {
        if let Some(Publication::Due {
            seed,
            rerandomiser,
            place,
        }) = self.publication.take()
        {
            place.put(ServerPublished { seed, rerandomiser });
        }
    }

    /// `b' = W b + scale * (bias - centre)`.
    fn multiply_b(&mut self) {
        let mut rows = std::mem::take(&mut self.rows);
        if let Some(shares) = &mut self.shares {
            shares.add_input(&self.layer.ring, &mut rows);
        }
        let (columns, answers) = (self.shape.columns, self.shape.answers());
        let channels = &self.layer.addend;
        let positions = answers / channels.len();
        let addend = channels.iter();
        let addend: Vec<W> = addend
            .flat_map(|&word| std::iter::repeat_n(word, positions))
            .collect();
        self.b = tiles(&self.pool, answers, columns);
        let portion = &self.shape.portion;
        let sizes = [portion.new.plane, portion.kept(), columns];
        let window = self.halo.window(&rows, portion.channels(), sizes);
        pronghorn_product::multiply(
            &self.packed.weights,
            self.layer.ring.modulus(),
            Rows::Apart(&window),
            Some(&addend),
            &mut self.b,
        );
        let mut halo = std::mem::take(&mut self.halo);
        // The server's share may be in them: the pool wipes its memory in the end.
        halo.push(rows, portion.new.plane);
        halo.keep(portion.halo, columns, &self.pool);
        if let Some(carried) = &mut self.carried {
            carried.halo = halo;
        }
    }

    /// Unpacks the rows of one request message and checks that they are residues.
    fn unpack(&mut self, rows: Range<usize>, message: &[u8]) -> Result<(), EngineError> {
        let Shape {
            step,
            linear,
            columns,
            ..
        } = &self.shape;
        let (row_bytes, piece) = (linear.rlwe.request_row_bytes(*columns), self.shape.piece());
        let piece_bytes = linear.rlwe.request_row_bytes(piece);
        let places = self.rows[rows.start * columns..rows.end * columns].par_chunks_mut(*columns);
        let messages = rows.into_par_iter().zip(message.par_chunks(row_bytes));
        places.zip(messages).try_for_each(|(words, (row, bytes))| {
            let pieces = words
                .par_chunks_mut(piece)
                .zip(bytes.par_chunks(piece_bytes));
            pieces.try_for_each(|(words, bytes)| residues(step, linear, (INPUT, row), bytes, words))
        })
    }

    /// Takes the client's public key.
    fn take_key(&mut self, message: &[u8]) -> Result<(), EngineError> {
        let Shape {
            step,
            linear,
            columns,
            ..
        } = &self.shape;
        let inputs = self.shape.inputs() as u64;
        let mut words = vec![W::default(); columns.next_multiple_of(linear.rlwe.degree)];
        residues(step, linear, (PUBLIC_KEY, 0), message, &mut words)?;
        if let (Some(shares), Some(generator)) = (&mut self.shares, &self.generator) {
            shares.take_key(&self.layer.ring, generator, inputs, words);
        }
        Ok(())
    }

    /// Packs rows of the answer.
    fn pack(&self, rows: Range<usize>, out: &mut [u8]) {
        let published = self.is_published();
        let linear = &self.shape.linear;
        let row_bytes = self.shape.answer_row_bytes(published);
        let answers: Vec<usize> = rows.flat_map(|row| self.shape.answers_of(row)).collect();
        let part_bytes = row_bytes / linear.parts();
        let length = match published {
            true => 0,
            false => linear.rlwe.answer_bytes_a(),
        };
        let count = match linear.is_pointwise() {
            true => 1,
            false => PACKED_TOGETHER,
        };
        let places = out.par_chunks_mut(count * part_bytes);
        places
            .zip(answers.par_chunks(count))
            .for_each(|(bytes, answers)| {
                let parts = bytes.chunks_exact_mut(part_bytes);
                let (of_a, mut of_b): (Vec<_>, Vec<_>) =
                    parts.map(|bytes| bytes.split_at_mut(length)).unzip();
                if !published {
                    self.pack_rows_of_a(answers, of_a);
                }
                match linear.is_pointwise() {
                    true => self.pack_pieces_of_b(answers[0], of_b.remove(0)),
                    false => self.pack_rows_of_b(answers, of_b),
                }
            });
    }

    /// Packs rows of `a'`.
    fn pack_rows_of_a(&self, answers: &[usize], rows: Vec<&mut [u8]>) {
        let linear = &self.shape.linear;
        let mut room = self.rooms.borrow(|| vec![W::default(); linear.rlwe.degree]);
        for (&answer, bytes) in answers.iter().zip(rows) {
            self.a.read_row(answer, &mut room);
            pack_a(&self.layer.ring, linear, &mut room, bytes);
        }
    }

    /// Packs rows of `b'`, a block of columns of all of them before the next: rows stand beside
    /// each other there, which the CPU foresees.
    fn pack_rows_of_b(&self, answers: &[usize], mut rows: Vec<&mut [u8]>) {
        for first in (0..self.shape.columns).step_by(bits::BLOCK) {
            for (&answer, bytes) in answers.iter().zip(&mut rows) {
                let at = self.shape.linear.rlwe.answer_bytes_b(first);
                self.pack_block_of_b(answer, first, &mut bytes[at..]);
            }
        }
    }

    /// Packs a long row of `b'` on all threads.
    fn pack_pieces_of_b(&self, answer: usize, bytes: &mut [u8]) {
        let rlwe = &self.shape.linear.rlwe;
        let [piece, block] = [self.shape.piece(), bits::BLOCK];
        let [piece_bytes, block_bytes] = [piece, block].map(|count| rlwe.answer_bytes_b(count));
        let pieces = bytes.par_chunks_mut(piece_bytes).enumerate();
        pieces.for_each(|(index, bytes)| {
            let places = (index * piece..).step_by(block);
            for (first, bytes) in places.zip(bytes.chunks_mut(block_bytes)) {
                self.pack_block_of_b(answer, first, bytes);
            }
        });
    }

    /// Packs a block of columns of a row of `b'`, or the rest of the row, to the start of `bytes`.
    fn pack_block_of_b(&self, answer: usize, first: usize, bytes: &mut [u8]) {
        let Shape {
            linear, columns, ..
        } = &self.shape;
        let mut words = [W::default(); bits::BLOCK];
        let words = &mut words[..bits::BLOCK.min(columns - first)];
        self.b.read_part(answer, first, words);
        let length = linear.rlwe.answer_bytes_b(words.len());
        pack_b(linear, words, &mut bytes[..length]);
    }

    /// The same for an answer that nobody may read, which leaves the server its shares.
    fn pack_hidden(&mut self, rows: Range<usize>, out: &mut [u8]) -> Result<(), EngineError> {
        let published = self.is_published();
        let Shape {
            linear, columns, ..
        } = &self.shape;
        let (ring, a_tiles, b_tiles) = (&self.layer.ring, &self.a, &self.b);
        let Some((hiding, output)) = self.shares.as_mut().and_then(ServerShares::hiding) else {
            let state = "has no key of the client's";
            return Err(EngineError::OutOfTurn { state });
        };
        let row_bytes = self.shape.answer_row_bytes(published);
        let room = || {
            let words = |count| vec![W::default(); count];
            (
                words(linear.rlwe.degree),
                words(*columns),
                HideScratch::new(ring),
            )
        };
        out.par_chunks_mut(row_bytes)
            .zip(output.words_mut()[rows.start * columns..].par_chunks_mut(*columns))
            .zip(rows)
            .for_each_init(room, |(a, b, scratch), ((bytes, share), row)| {
                b_tiles.read_row(row, b);
                let bytes = match published {
                    true => {
                        hiding.hide(row as u64, scratch, None, b, share);
                        bytes
                    }
                    false => {
                        let (bytes_a, bytes) = bytes.split_at_mut(linear.rlwe.answer_bytes_a());
                        a_tiles.read_row(row, a);
                        hiding.hide(row as u64, scratch, Some(a), b, share);
                        pack_a(ring, linear, a, bytes_a);
                        bytes
                    }
                };
                pack_b(linear, b, bytes);
            });
        Ok(())
    }
}

/// A matrix in memory of the batch.
fn tiles<W: Word + Zeroize>(pool: &Pool<W>, rows: usize, columns: usize) -> Tiles<W> {
    let words = Tiles::<W>::words(rows, columns).unwrap_or(usize::MAX);
    Tiles::within(rows, columns, pool.take(words))
}

/// Switches the modulus of an answer's `a`, and packs it.
fn pack_a<W: Word>(ring: &RlweRing<W>, linear: &Layer, a: &mut [W], packed: &mut [u8]) {
    ring.drop_low_bits_public(a, linear.rlwe.dropped_bits_a);
    bits::pack_into(a, linear.rlwe.answer_bits_a(), packed);
}

/// The same for `b`.
fn pack_b<W: Word>(linear: &Layer, b: &mut [W], packed: &mut [u8]) {
    vector::shift_right(b, linear.rlwe.dropped_bits);
    bits::pack_into(b, linear.rlwe.answer_bits(), packed);
}

/// Unpacks row `row` of a message and checks that its words are residues.
fn residues<W: Word>(
    step: &str,
    linear: &Layer,
    (message, row): (&'static str, usize),
    bytes: &[u8],
    words: &mut [W],
) -> Result<(), EngineError> {
    let packed = PackedRow {
        step,
        message,
        row,
        width: linear.rlwe.modulus_bits(),
    };
    packed.unpack_up_to(linear.rlwe.modulus - 1, bytes, words)
}

impl<W: Word> Protocol for LinearServer<W> {
    const PARTY: Party = Party::Server;

    fn take(&mut self, turn: Turn, message: &[u8]) -> Result<(), EngineError> {
        match turn.name {
            SEED => {
                let found = message.try_into().expect("the length was checked");
                self.multiply_a(&found);
                if let Some(Publication::Due { seed, .. }) = &mut self.publication {
                    *seed = found;
                }
            }
            PUBLIC_KEY => self.take_key(message)?,
            INPUT => {
                self.unpack(self.shape.request().range(turn.index), message)?;
                if turn.last {
                    self.multiply_b();
                }
            }
            _ => return Err(turn.unknown()),
        }
        Ok(())
    }

    fn fills(&self, name: &'static str) -> bool {
        name == ANSWER
    }

    fn fill(&mut self, turn: Turn, out: &mut [u8]) -> Result<(), EngineError> {
        let rows = self.shape.answer(self.is_published()).range(turn.index);
        match self.shares.is_some() {
            true => self.pack_hidden(rows, out)?,
            false => self.pack(rows, out),
        }
        if turn.last {
            self.publish();
        }
        Ok(())
    }
}

impl<W: Word> StepProtocol for LinearServer<W> {
    fn into_made(self) -> Result<Made, EngineError> {
        self.pool.give(self.a.into_words());
        self.pool.give(self.b.into_words());
        let made = Made::share(self.shares.map_or(Share::Zero, ServerShares::into_share));
        Ok(match self.carried {
            Some(carried) => made.carrying(carried),
            None => made,
        })
    }
}
