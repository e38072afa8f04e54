//! The model owner's half of a linear step.

use std::{ops::Range, sync::Arc};

use pronghorn_graph::{
    fixed::{Digit, Linear},
    geometry::ConvGeometry,
};
use pronghorn_he::{
    RlweRing, rlwe,
    shares::{HideScratch, ShareEncoding},
};
use pronghorn_plan::{cost::SEED_BYTES, steps::linear::clear::Part};
use pronghorn_product::{PackedWeights, Tiles};
use pronghorn_ring::{
    Word, bits,
    random::{Prg, Seed},
};
use rayon::prelude::*;
use zeroize::Zeroizing;

use super::{
    Answers, INPUT, Layer, PUBLIC_KEY, SEED, Shape,
    published::{Place, ServerPublished},
    shares::ServerShares,
};
use crate::{
    error::EngineError,
    exchange::{Exchange, Party, Protocol, StepProtocol, Turn},
    machine::Made,
    share::Share,
};

/// A layer's weights, laid out for the product; made once a model. The server's secret: no Debug.
pub struct PreparedLayer<W: Word> {
    ring: RlweRing<W>,
    weights: PackedWeights,
    /// `scale * (bias - centre)` for each row the product makes.
    addend: Vec<W>,
}

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
        let positions = shape.outputs / weights.bias.len();
        let rows = |word: W| std::iter::repeat_n(word, positions);
        let modulus = *ring.modulus();
        let (stacked, addend) = match answers {
            Answers::Shares(encoding) => {
                let bias = weights.bias.iter();
                let words = bias.map(|&bias| W::from_u64(encoding.encode(bias)));
                (weights.clone(), words.flat_map(rows).collect())
            }
            Answers::Values(clear) => {
                let stacked = stack(weights, &clear.parts);
                let scale = modulus.from_i64(1 << clear.scale_log);
                let centres = clear.parts.iter().map(Part::centre).cycle();
                let messages = stacked.bias.iter().zip(centres);
                let words = messages.map(|(&bias, centre)| {
                    modulus.mul(modulus.from_i64(i64::from(bias) - centre), scale)
                });
                let addend = words.flat_map(rows).collect();
                (stacked, addend)
            }
        };
        let weights =
            PackedWeights::new(&stacked.geometry, &stacked.weights).map_err(|source| {
                EngineError::Weights {
                    step: shape.step.clone(),
                    source,
                }
            })?;
        Ok(Self {
            ring,
            weights,
            addend,
        })
    }

    /// The ring of its ciphertexts.
    pub(crate) fn ring(&self) -> &RlweRing<W> {
        &self.ring
    }
}

/// One layer that makes all parts: output channel `o * parts + p` holds part `p` of channel `o`.
fn stack(layer: &Linear, parts: &[Part]) -> Linear {
    let Some(low_bits) = parts
        .iter()
        .map(|part| part.left_shift)
        .max()
        .filter(|&bits| bits > 0)
    else {
        return layer.clone();
    };
    let digits: Vec<Linear> = parts
        .iter()
        .map(|part| {
            layer.digit(if part.left_shift > 0 {
                Digit::High(low_bits)
            } else {
                Digit::Low(low_bits)
            })
        })
        .collect();
    let row_len = layer.geometry.row_len();
    let channels = 0..layer.geometry.out_channels;
    let rows = channels.clone().flat_map(|o| {
        digits
            .iter()
            .flat_map(move |d| &d.weights[o * row_len..][..row_len])
    });
    Linear {
        geometry: ConvGeometry {
            out_channels: layer.geometry.out_channels * parts.len(),
            ..layer.geometry.clone()
        },
        weights: rows.copied().collect(),
        bias: channels
            .flat_map(|o| digits.iter().map(move |d| d.bias[o]))
            .collect(),
    }
}

/// Receives encrypted rows, multiplies, sends encrypted rows; its share of the result is zero, or
/// under `two-party` what hides the answer.
pub struct LinearServer<W: Word> {
    shape: Shape,
    layer: Arc<PreparedLayer<W>>,
    /// Rows of `b`, `[input][image]`.
    rows: Vec<W>,
    a: Tiles<W>,
    b: Tiles<W>,
    /// The expander of the client's seed, once that is here.
    generator: Option<Prg>,
    shares: Option<ServerShares<W>>,
    publication: Option<Publication>,
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
    /// serve several batches.
    pub(crate) fn new(
        shape: Shape,
        layer: Arc<PreparedLayer<W>>,
        input: Share,
        masks: Option<Seed>,
        place: Option<Place<ServerPublished>>,
    ) -> Result<Exchange<Self>, EngineError> {
        let mut server = Self {
            shape,
            layer,
            rows: Vec::new(),
            a: Tiles::new(0, 0),
            b: Tiles::new(0, 0),
            generator: None,
            shares: None,
            publication: None,
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
        let sizes = (self.shape.outputs, self.shape.batch);
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

    fn is_published(&self) -> bool {
        matches!(self.publication, Some(Publication::Sent))
    }

    /// Makes room for the client's rows, whose `a` are of this seed.
    fn expect_rows(&mut self, seed: &[u8; SEED_BYTES]) {
        self.generator = Some(rlwe::a_generator(&Seed::from_bytes(*seed)));
        self.rows = vec![W::default(); self.shape.inputs * self.shape.batch];
    }

    /// `a' = W a`, while the client is still encrypting.
    fn multiply_a(&mut self, seed: &[u8; SEED_BYTES]) {
        let generator = rlwe::a_generator(&Seed::from_bytes(*seed));
        let (n, q) = (self.shape.linear.rlwe.degree, self.layer.ring.modulus());
        let mut rows = vec![W::default(); self.shape.inputs * n];
        rows.par_chunks_mut(n)
            .enumerate()
            .for_each(|(row, a)| rlwe::expand_a(&generator, row as u64, q, a));
        self.a = Tiles::new(self.shape.answers(), n);
        pronghorn_product::multiply(&self.layer.weights, q, &rows, n, None, &mut self.a);
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
        // Wiped: the server's share is in them.
        let mut rows = Zeroizing::new(std::mem::take(&mut self.rows));
        if let Some(shares) = &mut self.shares {
            shares.add_input(&self.layer.ring, &mut rows);
        }
        let (batch, addend) = (self.shape.batch, &self.layer.addend);
        self.b = Tiles::new(self.shape.answers(), batch);
        pronghorn_product::multiply(
            &self.layer.weights,
            self.layer.ring.modulus(),
            &rows,
            batch,
            Some(addend),
            &mut self.b,
        );
    }

    /// Unpacks the rows of one request message and checks that they are residues.
    fn unpack(&mut self, rows: Range<usize>, message: &[u8]) -> Result<(), EngineError> {
        let Shape {
            step,
            linear,
            batch,
            ..
        } = &self.shape;
        let row_bytes = linear.rlwe.request_row_bytes(*batch);
        self.rows[rows.start * batch..rows.end * batch]
            .par_chunks_mut(*batch)
            .zip(message.par_chunks(row_bytes))
            .zip(rows)
            .try_for_each(|((words, bytes), row)| {
                residues(step, linear, (INPUT, row), bytes, words)
            })
    }

    /// Takes the client's public key.
    fn take_key(&mut self, message: &[u8]) -> Result<(), EngineError> {
        let Shape {
            step,
            linear,
            inputs,
            batch,
            ..
        } = &self.shape;
        let mut words = vec![W::default(); batch.next_multiple_of(linear.rlwe.degree)];
        residues(step, linear, (PUBLIC_KEY, 0), message, &mut words)?;
        if let (Some(shares), Some(generator)) = (&mut self.shares, &self.generator) {
            shares.take_key(&self.layer.ring, generator, *inputs as u64, words);
        }
        Ok(())
    }

    /// Packs rows of the answer.
    fn pack(&mut self, rows: Range<usize>, out: &mut Vec<u8>) {
        if self.shares.is_some() {
            return self.pack_hidden(rows, out);
        }
        let Shape { linear, batch, .. } = &self.shape;
        let row_bytes = linear.answer_row_bytes(*batch);
        let start = out.len();
        out.resize(start + rows.len() * row_bytes, 0);
        let places = out[start..].par_chunks_mut(row_bytes);
        places.zip(rows).for_each_init(
            || {
                (
                    vec![W::default(); linear.rlwe.degree.max(*batch)],
                    Vec::new(),
                )
            },
            |(words, packed), (bytes, row)| {
                packed.clear();
                for answer in self.shape.answers_of(row) {
                    let a = &mut words[..linear.rlwe.degree];
                    self.a.read_row(answer, a);
                    pack_a(&self.layer.ring, linear, a, packed);
                    let b = &mut words[..*batch];
                    self.b.read_row(answer, b);
                    pack_b(linear, b, packed);
                }
                bytes.copy_from_slice(packed);
            },
        );
    }

    /// The same for an answer that nobody may read, which leaves the server its shares.
    fn pack_hidden(&mut self, rows: Range<usize>, out: &mut Vec<u8>) {
        let published = self.is_published();
        let Shape { linear, batch, .. } = &self.shape;
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
                words(*batch),
                HideScratch::new(ring),
                Vec::new(),
            )
        };
        out[start..]
            .par_chunks_mut(row_bytes)
            .zip(output.words_mut()[rows.start * batch..].par_chunks_mut(*batch))
            .zip(rows)
            .for_each_init(room, |(a, b, scratch, packed), ((bytes, share), row)| {
                packed.clear();
                b_tiles.read_row(row, b);
                if published {
                    hiding.hide(row as u64, scratch, None, b, share);
                } else {
                    a_tiles.read_row(row, a);
                    hiding.hide(row as u64, scratch, Some(a), b, share);
                    pack_a(ring, linear, a, packed);
                }
                pack_b(linear, b, packed);
                bytes.copy_from_slice(packed);
            });
    }
}

/// Switches the modulus of an answer's `a`, and packs it.
fn pack_a<W: Word>(ring: &RlweRing<W>, linear: &Layer, a: &mut [W], packed: &mut Vec<u8>) {
    ring.drop_low_bits_public(a, linear.rlwe.dropped_bits_a);
    bits::pack(a, linear.rlwe.answer_bits_a(), packed);
}

/// The same for `b`.
fn pack_b<W: Word>(linear: &Layer, b: &mut [W], packed: &mut Vec<u8>) {
    b.iter_mut()
        .for_each(|word| *word = *word >> linear.rlwe.dropped_bits);
    bits::pack(b, linear.rlwe.answer_bits(), packed);
}

/// Unpacks row `row` of a message and checks that its words are residues.
fn residues<W: Word>(
    step: &str,
    linear: &Layer,
    (message, row): (&'static str, usize),
    bytes: &[u8],
    words: &mut [W],
) -> Result<(), EngineError> {
    bits::unpack(bytes, linear.rlwe.modulus_bits(), words).map_err(|source| {
        EngineError::Packing {
            step: step.to_owned(),
            message,
            row,
            source,
        }
    })?;
    let largest = words
        .iter()
        .fold(W::default(), |most, &word| most.max(word));
    if largest.to_u64() < linear.rlwe.modulus {
        return Ok(());
    }
    Err(EngineError::Word {
        step: step.to_owned(),
        message,
        row,
        modulus: linear.rlwe.modulus,
    })
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
        Ok(Made::share(
            self.shares.map_or(Share::Zero, ServerShares::into_share),
        ))
    }
}
