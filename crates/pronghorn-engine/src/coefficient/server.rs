//! The model owner's half of a linear step.

use std::{ops::Range, sync::Arc};

use pronghorn_graph::fixed::Linear;
use pronghorn_he::{
    RlweRing, rlwe,
    shares::{HideScratch, Hider, PublicKey, ShareEncoding},
};
use pronghorn_plan::steps::linear::coefficient::Layout;
use pronghorn_ring::{Word, random::Seed, vector};
use rayon::prelude::*;
use zeroize::Zeroizing;

use super::{
    Answer, PADDING, Shape, Sites,
    product::Weights,
    publication::{self, Secrets, ServerPublication},
};
use crate::{
    error::EngineError,
    exchange::{Exchange, Party, Protocol, StepProtocol, Turn},
    machine::Made,
    share::{Batch, Share},
};

/// A layer's weights, laid out for the product; made once a model. The server's secret: no Debug.
pub struct PreparedLayer<W: Word> {
    ring: RlweRing<W>,
    layer: Linear,
    weights: Weights,
    /// The bias of each channel, encoded.
    bias: Vec<W>,
}

impl<W: Word> PreparedLayer<W> {
    /// Prepares `layer` for the parameters of its plan step.
    ///
    /// # Errors
    /// When the weights do not go with the plan, or the parameters are refused.
    pub(crate) fn new(layer: &Linear, shape: &Shape) -> Result<Self, EngineError> {
        let encoding = shape.encoding()?;
        let weights = Weights::new(layer, &shape.layout)
            .filter(|_| layer.bias.len() == layer.geometry.out_channels)
            .ok_or_else(|| EngineError::Unsupported {
                step: shape.step.clone(),
                reason: "its weights are not as many as the plan says, or too large",
            })?;
        let bias = layer.bias.iter();
        Ok(Self {
            ring: publication::ring(&shape.linear.rlwe, &shape.step)?,
            layer: layer.clone(),
            weights,
            bias: bias
                .map(|&bias| W::from_u64(encoding.encode(bias)))
                .collect(),
        })
    }

    /// The ring of its ciphertexts.
    pub(crate) fn ring(&self) -> &RlweRing<W> {
        &self.ring
    }

    /// The input polynomials of a tile that an output channel reads.
    pub(super) fn polynomials_of(&self, layout: &Layout, output: usize) -> Range<usize> {
        let [outputs, inputs] = layout.group();
        let first = output / outputs * inputs;
        let polynomial = |channel| layout.tap(channel, [0; 2]).0;
        polynomial(first)..polynomial(first + inputs - 1) + 1
    }

    /// The part of output channel `output`'s filter that meets input polynomial `polynomial`, in
    /// the NTT domain: weights at minus the exponents they are read at. Secret.
    pub(super) fn filter(
        &self,
        layout: &Layout,
        ring: &RlweRing<W>,
        output: usize,
        polynomial: usize,
        filter: &mut [W],
    ) {
        let (q, [outputs, inputs]) = (ring.modulus(), layout.group());
        let kernel = self.layer.geometry.window.kernel;
        let row_len = self.layer.geometry.row_len();
        let row = &self.layer.weights[output * row_len..][..row_len];
        let first = output / outputs * inputs;
        filter.fill(W::default());
        for (channel, row) in row.chunks_exact(kernel[0] * kernel[1]).enumerate() {
            for (tap, &weight) in row.iter().enumerate() {
                let tap = [tap / kernel[1], tap % kernel[1]];
                let (place, at) = layout.tap(first + channel, tap);
                if place == polynomial {
                    // X^-at is -X^(N - at).
                    let (exponent, weight) = match at {
                        0 => (0, i64::from(weight)),
                        _ => (filter.len() - at, -i64::from(weight)),
                    };
                    filter[exponent] = q.add(filter[exponent], q.from_i64(weight));
                }
            }
        }
        ring.forward(filter);
    }
}

/// Receives encrypted words, makes the sums that are outputs, hides them and sends them.
pub struct CoefficientServer<W: Word> {
    shape: Shape,
    step: usize,
    layer: Arc<PreparedLayer<W>>,
    publication: ServerPublication,
    encoding: ShareEncoding,
    /// None where the client is to have the value.
    hider: Option<Hider>,
    input: Share,
    /// What came, then what is to be sent.
    words: Vec<W>,
    output: Batch,
}

impl<W: Word> CoefficientServer<W> {
    /// `input` is the server's share of what the layer reads; `masks` makes the masks of shares
    /// where they were made ahead, and is used once.
    pub(crate) fn new(
        shape: Shape,
        step: usize,
        layer: Arc<PreparedLayer<W>>,
        publication: ServerPublication,
        input: Share,
        masks: Option<Seed>,
    ) -> Result<Exchange<Self>, EngineError> {
        let encoding = shape.encoding()?;
        let (hider, outputs) = match shape.answer {
            Answer::Share => {
                let masks = masks.map_or_else(Seed::from_os, Ok)?;
                (Some(Hider::new(&masks)), shape.outputs)
            }
            Answer::Value { .. } => (None, 0),
        };
        let server = Self {
            output: Batch::zeros(outputs, shape.batch),
            words: vec![W::default(); shape.request().parts.items],
            hider,
            shape,
            step,
            layer,
            publication,
            encoding,
            input,
        };
        Ok(Exchange::new(server.shape.messages(), server))
    }

    /// From the client's words to the words of the answer.
    fn compute(&mut self) {
        let degree = self.shape.linear.rlwe.degree;
        let words = Zeroizing::new(std::mem::take(&mut self.words));
        let mut answers = self.products(&words);
        if let Some(hider) = &self.hider {
            self.add_zeros(&words, &mut answers);
            let shares = self.output.words_mut().par_chunks_mut(degree);
            let (ring, encoding) = (&self.layer.ring, &self.encoding);
            let rows = answers.par_chunks_mut(degree).zip(shares).enumerate();
            rows.for_each(|(row, (answers, shares))| {
                hider.mask(ring, encoding, row as u64, answers, shares);
            });
        }
        let dropped = self.shape.linear.rlwe.dropped_bits;
        let rows = answers.par_chunks_mut(degree);
        rows.for_each(|words| vector::shift_right(words, dropped));
        self.words = answers;
    }

    /// Adds `u b_0`, of which the client has the part that it needs.
    fn add_zeros(&self, words: &[W], answers: &mut [W]) {
        let (images, degree) = (self.shape.batch, self.shape.linear.rlwe.degree);
        let generator = publication::generator(&self.publication.seed, self.step);
        let (ring, layout) = (&self.layer.ring, &self.shape.layout);
        let mut a_0 = vec![W::default(); degree];
        rlwe::expand_a(
            &generator,
            self.shape.hiding_row(),
            ring.modulus(),
            &mut a_0,
        );
        let zeros = words.chunks_exact(self.shape.image_words());
        let zeros = zeros.flat_map(|image| &image[..degree]).copied().collect();
        let key = PublicKey::new(ring, a_0, zeros);
        let (rerandomiser, published) =
            (self.publication.rerandomiser(self.step), layout.published());
        let kept = self.publication.secrets(self.step, ring, published);
        let (q, positions, tiles) = (ring.modulus(), self.shape.positions(), layout.tiles());
        let room = || {
            let secrets = vec![W::default(); tiles * degree];
            (HideScratch::new(ring), Secrets(secrets))
        };
        answers
            .par_chunks_exact_mut(positions * images)
            .enumerate()
            .for_each_init(room, |(scratch, made), (output, answers)| {
                let first = output * tiles;
                let secrets = match &kept {
                    Some(kept) => kept.rows(degree, first, tiles),
                    None => {
                        rerandomiser.secrets(ring, first as u64, &mut made.0);
                        &made.0
                    }
                };
                for (tile, secret) in secrets.chunks_exact(degree).enumerate() {
                    key.zeros(secret, scratch, |image, zeros| {
                        for (position, exponent) in layout.outputs(tile) {
                            let answer = &mut answers[position * images + image];
                            *answer = q.add(*answer, zeros[exponent as usize]);
                        }
                    });
                }
            });
    }

    /// The layer's sums with its bias, both shares of the input taken together: `[output][image]`.
    fn products(&mut self, words: &[W]) -> Vec<W> {
        let (shape, weights) = (&self.shape, &self.layer.weights);
        let (layout, q, images) = (&shape.layout, self.layer.ring.modulus(), shape.batch);
        let input = std::mem::replace(&mut self.input, Share::Zero);
        let tile_words = weights.tile_words();
        let mut sums = Zeroizing::new(vec![W::default(); tile_words * layout.tiles() * images]);
        let (polynomials, sites) = (shape.polynomials(), Sites::new(layout));
        sums.par_chunks_exact_mut(weights.extent())
            .enumerate()
            .for_each(|(index, sums)| {
                let image = index / polynomials.len();
                let polynomial = &polynomials[index % polynomials.len()];
                let (positions, elements) = sites.of(polynomial);
                let first = image * shape.image_words() + polynomial.start;
                for (&position, &word) in positions.iter().zip(&words[first..]) {
                    sums[position as usize] = word;
                }
                let Share::Words(input) = &input else {
                    return;
                };
                let input = &input.words()[polynomial.first * images..];
                for (&position, &element) in positions.iter().zip(elements) {
                    if element != PADDING {
                        let share = input[element as usize * images + image];
                        let share = self.encoding.encode(share);
                        let sum = &mut sums[position as usize];
                        *sum = q.add(*sum, W::from_u64(share));
                    }
                }
            });
        let outputs: Vec<Vec<(usize, u32)>> = (0..layout.tiles())
            .map(|tile| layout.outputs(tile).collect())
            .collect();
        let place = |image: usize, tile: usize| (image * layout.tiles() + tile) * tile_words;
        let all = (0..images).flat_map(|image| (0..layout.tiles()).map(move |tile| (image, tile)));
        let all = all.flat_map(|(image, tile)| {
            let outputs = outputs[tile].iter();
            outputs.map(move |&(position, exponent)| (image, tile, position, exponent))
        });
        let (mut columns, mut targets) = (Vec::new(), Vec::new());
        for (image, tile, position, exponent) in all {
            columns.push(place(image, tile) + exponent as usize);
            targets.push(position * images + image);
        }
        let products = weights.multiply(q, &sums, &columns);
        let mut answers = vec![W::default(); shape.outputs * images];
        answers
            .par_chunks_exact_mut(shape.positions() * images)
            .zip(products.par_chunks_exact(columns.len()))
            .zip(&self.layer.bias)
            .for_each(|((answers, products), &bias)| {
                for (&target, &product) in targets.iter().zip(products) {
                    answers[target] = q.add(product, bias);
                }
            });
        answers
    }
}

impl<W: Word> Protocol for CoefficientServer<W> {
    const PARTY: Party = Party::Server;

    fn take(&mut self, turn: Turn, message: &[u8]) -> Result<(), EngineError> {
        let request = self.shape.request();
        request.unpack(&self.shape.step, turn, message, &mut self.words)?;
        if turn.last {
            self.compute();
        }
        Ok(())
    }

    fn make(&mut self, turn: Turn, out: &mut Vec<u8>) -> Result<(), EngineError> {
        self.shape.answer().pack(turn.index, &self.words, out);
        Ok(())
    }
}

impl<W: Word> StepProtocol for CoefficientServer<W> {
    fn into_made(self) -> Result<Made, EngineError> {
        Ok(Made::share(match self.shape.answer {
            Answer::Share => Share::Words(self.output),
            Answer::Value { .. } => Share::Zero,
        }))
    }
}
