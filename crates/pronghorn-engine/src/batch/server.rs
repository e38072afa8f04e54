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
use pronghorn_product::{PackedWeights, Tiles};
use pronghorn_ring::{
    Word, bits,
    random::{Prg, Seed},
    vector,
};
use rayon::prelude::*;
use zeroize::Zeroize;

use super::{
    Answers, INPUT, Layer, PUBLIC_KEY, SEED, Shape,
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
    rooms::{Borrowed, Rooms},
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

/// What the bands of a layer share: the seed of `a`, and the rows of `b` of the halo,
/// `[channel][element][image]`.
pub(super) struct Carried<W: Word> {
    seed: [u8; SEED_BYTES],
    halo: Vec<W>,
}

/// Receives encrypted rows, multiplies, sends encrypted rows; its share of the result is zero, or
/// under `two-party` what hides the answer.
pub struct LinearServer<W: Word> {
    shape: Shape,
    layer: Arc<PreparedLayer<W>>,
    packed: Arc<Packed>,
    /// Rows of `b` of the window.
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
    /// Of rows of an answer.
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
                server.put_halo(halo);
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
        let words = self.shape.portion.window.count * self.shape.columns;
        self.rows = self.pool.take(words);
        self.carried = self.shape.portion.has_next.then_some(Carried {
            seed: *seed,
            halo: Vec::new(),
        });
    }

    /// Puts the rows that the band before left to the beginning of each channel. Their memory is
    /// that of the next halo.
    fn put_halo(&mut self, halo: Vec<W>) {
        let (portion, columns) = (&self.shape.portion, self.shape.columns);
        let (window, kept) = (portion.window.plane * columns, portion.kept() * columns);
        if kept > 0 {
            let channels = self.rows.par_chunks_exact_mut(window);
            channels
                .zip(halo.par_chunks_exact(kept))
                .for_each(|(channel, halo)| channel[..kept].copy_from_slice(halo));
        }
        if let Some(carried) = &mut self.carried {
            carried.halo = halo;
        }
    }

    /// Keeps the rows at the end of each channel that the next band reads, too.
    fn keep_halo(&mut self) {
        let (portion, columns) = (&self.shape.portion, self.shape.columns);
        let (window, halo) = (portion.window.plane * columns, portion.halo * columns);
        if let Some(carried) = self.carried.as_mut().filter(|_| halo > 0) {
            // Exactly as long: it is kept until the next band, and counted so in plans.
            let words = portion.channels() * halo;
            if carried.halo.len() != words {
                carried.halo = vec![W::default(); words];
            }
            let channels = self.rows.par_chunks_exact(window);
            let kept = carried.halo.par_chunks_exact_mut(halo);
            kept.zip(channels)
                .for_each(|(kept, channel)| kept.copy_from_slice(&channel[window - halo..]));
        }
    }

    /// `a' = W a`, while the client is still encrypting.
    fn multiply_a(&mut self, seed: &[u8; SEED_BYTES]) {
        let generator = rlwe::a_generator(&Seed::from_bytes(*seed));
        let (n, q) = (self.shape.linear.rlwe.degree, self.layer.ring.modulus());
        let window = &self.shape.portion.window;
        let mut rows = self.pool.take(window.count * n);
        rows.par_chunks_mut(n)
            .enumerate()
            .for_each(|(row, a)| rlwe::expand_a(&generator, window.number(row), q, a));
        self.a = tiles(&self.pool, self.shape.answers(), n);
        pronghorn_product::multiply(&self.packed.weights, q, &rows, n, None, &mut self.a);
        self.pool.give(rows);
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
        self.keep_halo();
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
        pronghorn_product::multiply(
            &self.packed.weights,
            self.layer.ring.modulus(),
            &rows,
            columns,
            Some(&addend),
            &mut self.b,
        );
        // The server's share may be in them: the pool wipes its memory in the end.
        self.pool.give(rows);
    }

    /// Unpacks the rows of one request message and checks that they are residues.
    fn unpack(&mut self, rows: Range<usize>, message: &[u8]) -> Result<(), EngineError> {
        let Shape {
            step,
            linear,
            portion,
            columns,
            ..
        } = &self.shape;
        let (row_bytes, piece) = (linear.rlwe.request_row_bytes(*columns), self.shape.piece());
        let piece_bytes = linear.rlwe.request_row_bytes(piece);
        let Some(last) = rows.clone().last() else {
            return Ok(());
        };
        let (first, end) = (portion.place(rows.start), portion.place(last) + 1);
        let places = self.rows[first * columns..end * columns].par_chunks_mut(*columns);
        places.enumerate().try_for_each(|(place, words)| {
            // Rows in between may be those of a halo.
            let Some(row) = portion.new_at(first + place) else {
                return Ok(());
            };
            let bytes = &message[(row - rows.start) * row_bytes..][..row_bytes];
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
    fn pack(&mut self, rows: Range<usize>, out: &mut Vec<u8>) {
        if self.shares.is_some() {
            return self.pack_hidden(rows, out);
        }
        let published = self.is_published();
        let linear = &self.shape.linear;
        let row_bytes = self.shape.answer_row_bytes(published);
        let start = out.len();
        out.resize(start + rows.len() * row_bytes, 0);
        let places = out[start..].par_chunks_mut(row_bytes);
        places.zip(rows).for_each(|(bytes, row)| {
            let answers = self.shape.answers_of(row);
            let parts = bytes.chunks_exact_mut(row_bytes / linear.parts());
            for (answer, bytes) in answers.zip(parts) {
                let length = if published {
                    0
                } else {
                    linear.rlwe.answer_bytes_a()
                };
                let (bytes_a, bytes_b) = bytes.split_at_mut(length);
                if !published {
                    let mut room = self.room();
                    let a = &mut room[..linear.rlwe.degree];
                    self.a.read_row(answer, a);
                    pack_a(&self.layer.ring, linear, a, bytes_a);
                }
                self.pack_row_of_b(answer, bytes_b);
            }
        });
    }

    /// Packs a row of `b'`, in pieces.
    fn pack_row_of_b(&self, answer: usize, bytes: &mut [u8]) {
        let Shape {
            linear, columns, ..
        } = &self.shape;
        let piece = self.shape.piece();
        let pieces = bytes.par_chunks_mut(linear.rlwe.answer_bytes_b(piece));
        let rooms = || self.room();
        pieces
            .enumerate()
            .for_each_init(rooms, |words, (index, bytes)| {
                let first = index * piece;
                let b = &mut words[..piece.min(columns - first)];
                self.b.read_part(answer, first, b);
                pack_b(linear, b, bytes);
            });
    }

    /// Room for a row of `a'`, and for a piece of one of `b'`.
    fn room(&self) -> Borrowed<'_, Vec<W>> {
        let words = self.shape.piece().max(self.shape.linear.rlwe.degree);
        self.rooms.borrow(|| vec![W::default(); words])
    }

    /// The same for an answer that nobody may read, which leaves the server its shares.
    fn pack_hidden(&mut self, rows: Range<usize>, out: &mut Vec<u8>) {
        let published = self.is_published();
        let Shape {
            linear, columns, ..
        } = &self.shape;
        let (ring, a_tiles, b_tiles) = (&self.layer.ring, &self.a, &self.b);
        let Some((hiding, output)) = self.shares.as_mut().and_then(ServerShares::hiding) else {
            return;
        };
        let row_bytes = self.shape.answer_row_bytes(published);
        let start = out.len();
        out.resize(start + rows.len() * row_bytes, 0);
        let room = || {
            let words = |count| vec![W::default(); count];
            (
                words(linear.rlwe.degree),
                words(*columns),
                HideScratch::new(ring),
            )
        };
        out[start..]
            .par_chunks_mut(row_bytes)
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

    fn make(&mut self, turn: Turn, out: &mut Vec<u8>) -> Result<(), EngineError> {
        self.pack(
            self.shape.answer(self.is_published()).range(turn.index),
            out,
        );
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
