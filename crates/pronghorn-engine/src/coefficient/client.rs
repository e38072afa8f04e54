//! The data owner's half of a linear step.

use std::sync::Arc;

use pronghorn_he::{
    RlweRing, SecretKey, rlwe,
    rlwe::{OutOfRange, Scratch},
    shares::ShareEncoding,
};
use pronghorn_plan::ShareBits;
use pronghorn_ring::{
    Word,
    random::{Prg, Seed},
};
use rayon::prelude::*;
use zeroize::Zeroizing;

use super::{Answer, PADDING, Polynomial, Shape, Sites, publication};
use crate::{
    error::EngineError,
    exchange::{Exchange, Party, Protocol, StepProtocol, Turn},
    machine::Made,
    share::{Batch, Share},
};

/// Words that a thread rounds at once.
const ROUNDED_AT_ONCE: usize = 1 << 14;

/// Sends the encrypted share, receives hidden sums, and has its share of them.
pub struct CoefficientClient<W: Word> {
    shape: Shape,
    ring: RlweRing<W>,
    encoding: ShareEncoding,
    /// Dropped when the answer is read.
    key: Option<SecretKey<W>>,
    generator: Prg,
    published: Arc<Vec<W>>,
    input: Option<Batch>,
    /// What is to be sent, then what came.
    words: Vec<W>,
    output: Batch,
    /// Whether a value was outside its range, which the server must not hear of.
    is_outside: bool,
}

impl<W: Word> CoefficientClient<W> {
    /// Draws a fresh secret for each image; `seed` is the publication's, and `published` its
    /// polynomials of step `step`.
    pub(crate) fn new(
        shape: Shape,
        step: usize,
        seed: &[u8; 32],
        published: Arc<Vec<W>>,
        input: Batch,
    ) -> Result<Exchange<Self>, EngineError> {
        let refused = |reason| EngineError::Unsupported {
            step: shape.step.clone(),
            reason,
        };
        if published.len() != shape.layout.published() * shape.linear.rlwe.degree {
            return Err(refused("the published polynomials are of another plan"));
        }
        let encoding = shape.encoding()?;
        let ring = publication::ring(&shape.linear.rlwe, &shape.step)?;
        let key = SecretKey::generate(&ring, shape.batch, &Seed::from_os()?);
        let client = Self {
            output: Batch::zeros(shape.outputs, shape.batch),
            shape,
            ring,
            encoding,
            key: Some(key),
            generator: publication::generator(seed, step),
            published,
            input: Some(input),
            words: Vec::new(),
            is_outside: false,
        };
        Ok(Exchange::new(client.shape.messages(), client))
    }

    /// All words of the request, image by image.
    fn encrypt(&mut self) {
        let (Some(key), Some(input)) = (&self.key, self.input.take()) else {
            return;
        };
        let (shape, ring, encoding) = (&self.shape, &self.ring, &self.encoding);
        let (images, degree, image_words) =
            (shape.batch, shape.linear.rlwe.degree, shape.image_words());
        let mut words = vec![W::default(); images * image_words];
        let mut place = |start: usize, made: &[W]| {
            let count = made.len() / images;
            for (image, made) in words.chunks_exact_mut(image_words).zip(made.chunks(count)) {
                image[start..start + count].copy_from_slice(made);
            }
        };
        let a = |row: u64, a: &mut [W]| rlwe::expand_a(&self.generator, row, ring.modulus(), a);
        let room = || (vec![W::default(); degree], Scratch::new(ring));

        if let Answer::Share = shape.answer {
            let (mut a_0, mut scratch) = room();
            let mut zeros = vec![W::default(); images * degree];
            let row = shape.hiding_row();
            a(row, &mut a_0);
            key.encrypt_zeros(row, &a_0, &mut scratch, &mut zeros);
            place(0, &zeros);
        }

        let (polynomials, sites) = (shape.polynomials(), Sites::new(&shape.layout));
        let encrypt = |(poly_a, scratch): &mut (Vec<W>, Scratch<W>),
                       (row, polynomial): (usize, &Polynomial)| {
            let (positions, elements) = sites.of(polynomial);
            let input = &input.words()[polynomial.first * images..];
            let mut shares = Zeroizing::new(vec![0; elements.len() * images]);
            for (image, shares) in shares.chunks_exact_mut(elements.len()).enumerate() {
                for (share, &element) in shares.iter_mut().zip(elements) {
                    if element != PADDING {
                        *share = input[element as usize * images + image];
                    }
                }
            }
            let mut made = vec![W::default(); shares.len()];
            a(row as u64, poly_a);
            key.encrypt_shares_at(
                row as u64, poly_a, positions, &shares, encoding, scratch, &mut made,
            );
            made
        };
        let made: Vec<Vec<W>> = polynomials
            .par_iter()
            .enumerate()
            .map_init(room, encrypt)
            .collect();
        for (polynomial, made) in polynomials.iter().zip(&made) {
            place(polynomial.start, made);
        }
        self.words = words;
    }

    /// The shares, from all words of the answer.
    fn decrypt(&mut self) {
        let Some(key) = self.key.take() else {
            return;
        };
        let words = std::mem::take(&mut self.words);
        let (shape, ring, encoding) = (&self.shape, &self.ring, &self.encoding);
        let (images, degree, dropped) = (
            shape.batch,
            shape.linear.rlwe.degree,
            shape.linear.rlwe.dropped_bits,
        );
        let (size, tiles) = (shape.positions() * images, shape.layout.tiles());
        let outputs: Vec<(Vec<usize>, Vec<u32>)> = (0..tiles)
            .map(|tile| shape.layout.outputs(tile).unzip())
            .collect();
        self.output
            .words_mut()
            .par_chunks_exact_mut(size)
            .zip(words.par_chunks_exact(size))
            .zip(self.published.par_chunks_exact(tiles * degree))
            .for_each_init(
                || Scratch::new(ring),
                |scratch, ((shares, words), published)| {
                    let polynomials = published.chunks_exact(degree);
                    for ((places, exponents), published) in outputs.iter().zip(polynomials) {
                        let all = |image: usize| {
                            let places = places.iter();
                            places.map(move |place| place * images + image)
                        };
                        let b: Vec<W> = (0..images)
                            .flat_map(all)
                            .map(|place| words[place])
                            .collect();
                        let mut found = Zeroizing::new(vec![0; b.len()]);
                        key.decrypt_shares_at(
                            published, exponents, &b, dropped, encoding, scratch, &mut found,
                        );
                        for (place, &share) in (0..images).flat_map(all).zip(found.iter()) {
                            shares[place] = share;
                        }
                    }
                },
            );
    }
}

impl<W: Word> CoefficientClient<W> {
    /// The values, from shares that are whole values with their guard bits and an error. Those
    /// outside their range are brought to its border.
    fn round(&mut self) {
        let Answer::Value { low, high } = self.shape.answer else {
            return;
        };
        let ShareBits {
            value_bits,
            guard_bits,
        } = self.shape.linear.shares;
        let (half, above) = (1 << guard_bits >> 1, i32::BITS - value_bits - guard_bits);
        let rows = self.output.words_mut().par_chunks_mut(ROUNDED_AT_ONCE);
        let is_within = rows.map(|words| {
            words.iter_mut().fold(true, |within, word| {
                let value = word.wrapping_add(half) << above >> (above + guard_bits);
                *word = value.clamp(low, high);
                // Whether the word has changed would be a branch in compiled code.
                within & (value >= low) & (value <= high)
            })
        });
        self.is_outside = !is_within.reduce(|| true, |a, b| a & b);
    }
}

impl<W: Word> Protocol for CoefficientClient<W> {
    const PARTY: Party = Party::Client;

    fn make(&mut self, turn: Turn, out: &mut Vec<u8>) -> Result<(), EngineError> {
        if turn.index == 0 {
            self.encrypt();
        }
        self.shape.request().pack(turn.index, &self.words, out);
        if turn.last {
            self.words = vec![W::default(); self.shape.answer().parts.items];
        }
        Ok(())
    }

    fn take(&mut self, turn: Turn, message: &[u8]) -> Result<(), EngineError> {
        let answer = self.shape.answer();
        answer.unpack(&self.shape.step, turn, message, &mut self.words)?;
        if turn.last {
            self.decrypt();
            self.round();
        }
        Ok(())
    }
}

impl<W: Word> StepProtocol for CoefficientClient<W> {
    fn into_made(self) -> Result<Made, EngineError> {
        let doubt = self.is_outside.then(|| EngineError::Decryption {
            step: self.shape.step.clone(),
            source: OutOfRange,
        });
        Ok(Made::share(Share::Words(self.output)).doubting(doubt))
    }
}
