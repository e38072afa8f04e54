//! Squares of shares, by oblivious transfer.
//!
//! With `x = a + b` modulo `2^k`, `a` the server's share and `b` the client's, `x^2 = a^2 + b^2 +
//! 2ab`. Each party squares its own, and
//!
//! > `2ab = sum_i 2^(i+1) (a b_i mod 2^(k-1-i))`, for `i = 0 .. k-2`,
//!
//! is a sum of products of a number of the server's and a bit of the client's, each an OT that
//! gives them shares modulo `2^(k-1-i)` (Gilboa, CRYPTO 1999; [`transfer`]). The top bit of `b`
//! takes no part. For each square: `k - 1` OTs, and `k (k - 1) / 2` bits of corrections from the
//! server. At `k = 20` and OTs of width 5: 63 and 24 bytes.
//!
//! | message | from | bytes |
//! |---|---|---|
//! | the oblivious transfers of each chunk of a window | client | 26 an OT at width 5 |
//! | the corrections of products of each chunk of the window | server | `k (k - 1) / 2` bits a square |

use std::{collections::VecDeque, ops::Range};

use pronghorn_mpc::{
    Block,
    ot::{CotReceiver, CotSender, OtError, transfer},
};
use pronghorn_ring::PowerOfTwo;
use rayon::prelude::*;
use zeroize::Zeroizing;

use super::{
    ClientOts, ServerOts,
    layout::check_shape,
    open::check_bits,
    ots::Ots,
    schedule::{self, Chunk, Limits},
};
use crate::{
    error::EngineError,
    exchange::{Exchange, Messages, Party, Protocol, StepProtocol, Turn},
    machine::Made,
    share::{Batch, Share},
};

/// A value to square. Both parties have the same, from the plan.
#[derive(Clone)]
pub struct Squares {
    /// Name of the step, for messages.
    pub step: String,
    /// Elements of one image.
    pub elements: usize,
    /// Images.
    pub images: usize,
    /// Shares are modulo `2^bits`, coming in and going out; 1 to 32.
    pub bits: u32,
}

impl Squares {
    /// Chunks that cover all words of the share.
    fn chunks(&self, share: &Share, limits: &Limits) -> Result<Vec<Chunk>, EngineError> {
        check_bits(&self.step, self.bits)?;
        let words = check_shape(&self.step, share, self.elements, self.images)?;
        let ots = self.moduli().len();
        let mut chunks = Vec::new();
        // Words in multiples of 8, so that the choices of each bit are whole bytes.
        if let Some(eights) = (limits.labels / Block::BYTES / 8).checked_div(ots) {
            let most = 8 * eights.max(1);
            for first in (0..words).step_by(most) {
                let range = first..words.min(first + most);
                let padded = range.len().next_multiple_of(8);
                chunks.push(Chunk {
                    ots: ots * padded,
                    answer: self.answers(padded).map(|range| range.len()).sum(),
                    range,
                });
            }
        }
        Ok(chunks)
    }

    /// What either party begins with: all messages, the chunks, and the squares of its own share. A
    /// message of `n` OTs has `bytes(n)` bytes.
    fn begin(
        &self,
        share: &Share,
        limits: &Limits,
        bytes: impl Fn(usize) -> usize,
    ) -> Result<(Messages, Vec<Chunk>, Batch), EngineError> {
        let chunks = self.chunks(share, limits)?;
        let step = (self.step.as_str(), self.elements);
        let window = limits.window / Block::BYTES;
        let messages =
            schedule::messages(step, &chunks, window, "the corrections of products", bytes);
        Ok((messages, chunks, self.own(share)))
    }

    /// The modulus of the products with each bit but the last.
    fn moduli(&self) -> impl ExactSizeIterator<Item = PowerOfTwo<u64>> {
        let bits = (1..self.bits as usize).rev();
        bits.map(|bits| PowerOfTwo::new(bits as u32).expect("1 to 31 bits"))
    }

    /// Where the corrections of each bit are in the answer for so many words.
    fn answers(&self, padded: usize) -> impl Iterator<Item = Range<usize>> {
        let lengths = self
            .moduli()
            .map(move |modulus| transfer::product_bytes(padded, modulus));
        lengths.scan(0, |end, length| {
            let start = *end;
            *end += length;
            Some(start..*end)
        })
    }

    /// The squares of a party's own share.
    fn own(&self, share: &Share) -> Batch {
        let mut squares = Batch::zeros(self.elements, self.images);
        if let Share::Words(share) = share {
            for (square, &word) in squares.words_mut().iter_mut().zip(share.words()) {
                *square = word.wrapping_mul(word);
            }
        }
        squares
    }
}

/// A party's shares of the products with one bit.
type Products = Zeroizing<Vec<u64>>;

/// `output += 2^(i+1) shares[i]` for each bit `i`.
fn add_products(products: &[Products], output: &mut [i32]) {
    for (bit, products) in products.iter().enumerate() {
        for (word, &product) in output.iter_mut().zip(products.iter()) {
            *word = word.wrapping_add((product as i32) << (bit + 1));
        }
    }
}

/// The blocks of each bit's OTs.
fn by_bit(first: u64, padded: usize, blocks: &[Block]) -> Vec<(u64, &[Block])> {
    let firsts = (first..).step_by(padded.max(1));
    firsts.zip(blocks.chunks(padded.max(1))).collect()
}

/// The client's half: the receiver.
pub struct SquareClient {
    squares: Squares,
    chunks: Vec<Chunk>,
    share: Share,
    ots: ClientOts,
    /// Of this window, with the choices.
    held: VecDeque<(Ots, Zeroizing<Vec<u8>>)>,
    pub(super) output: Batch,
}

impl SquareClient {
    /// Squares with this share.
    ///
    /// # Errors
    /// When it is not of the shape.
    pub fn new(
        squares: Squares,
        share: Share,
        ots: ClientOts,
    ) -> Result<Exchange<Self>, EngineError> {
        Self::with_limits(squares, share, ots, &Limits::DEFAULT)
    }

    pub(super) fn with_limits(
        squares: Squares,
        share: Share,
        ots: ClientOts,
        limits: &Limits,
    ) -> Result<Exchange<Self>, EngineError> {
        let (messages, party) = Self::with_messages(squares, share, ots, limits)?;
        Ok(Exchange::new(messages, party))
    }

    /// The party, and its messages.
    pub(super) fn with_messages(
        squares: Squares,
        share: Share,
        ots: ClientOts,
        limits: &Limits,
    ) -> Result<(Messages, Self), EngineError> {
        let bytes = |count| ots.message_bytes(count);
        let (messages, chunks, output) = squares.begin(&share, limits, bytes)?;
        let held = VecDeque::new();
        Ok((
            messages,
            Self {
                squares,
                chunks,
                share,
                ots,
                held,
                output,
            },
        ))
    }

    /// The bits of the share's words, by bit, then by word.
    fn choices(&self, range: Range<usize>) -> Zeroizing<Vec<u8>> {
        let bytes = range.len().div_ceil(8);
        let mut choices = Zeroizing::new(vec![0; bytes * self.squares.moduli().len()]);
        if let Share::Words(share) = &self.share {
            for (bit, choices) in choices.chunks_mut(bytes).enumerate() {
                let words = share.words()[range.clone()].chunks(8);
                for (choice, words) in choices.iter_mut().zip(words) {
                    let bits = words.iter().rev();
                    *choice = bits.fold(0, |byte, word| byte << 1 | (word >> bit & 1) as u8);
                }
            }
        }
        choices
    }
}

fn receive_bits(
    receiver: &CotReceiver,
    squares: &Squares,
    ((first, blocks), choices): &(Ots, Zeroizing<Vec<u8>>),
    padded: usize,
    message: &[u8],
) -> Result<Vec<Products>, OtError> {
    let answers: Vec<_> = squares.moduli().zip(squares.answers(padded)).collect();
    by_bit(*first, padded, blocks)
        .into_par_iter()
        .zip(choices.par_chunks(padded / 8))
        .zip(answers)
        .map(|(((first, blocks), choices), (modulus, range))| {
            let mut share = Zeroizing::new(vec![0; padded]);
            let message = &message[range];
            transfer::receive_products(
                receiver, first, blocks, choices, modulus, message, &mut share,
            )?;
            Ok(share)
        })
        .collect()
}

impl Protocol for SquareClient {
    const PARTY: Party = Party::Client;

    fn make(&mut self, turn: Turn, out: &mut Vec<u8>) -> Result<(), EngineError> {
        let choices = self.choices(self.chunks[turn.index].range.clone());
        let ots = self.ots.send(&self.squares.step, &choices, out)?;
        self.held.push_back((ots, choices));
        Ok(())
    }

    fn take(&mut self, turn: Turn, message: &[u8]) -> Result<(), EngineError> {
        let held = self.held.pop_front().ok_or_else(|| turn.unknown())?;
        let (squares, range) = (&self.squares, self.chunks[turn.index].range.clone());
        let padded = range.len().next_multiple_of(8);
        let products = self.ots.with(&squares.step, |ots| {
            receive_bits(ots, squares, &held, padded, message)
        })?;
        add_products(&products, &mut self.output.words_mut()[range]);
        Ok(())
    }
}

impl StepProtocol for SquareClient {
    fn into_made(self) -> Result<Made, EngineError> {
        Ok(Made::share(Share::Words(self.output)))
    }
}

/// The server's half: the sender.
pub struct SquareServer {
    squares: Squares,
    chunks: Vec<Chunk>,
    share: Share,
    ots: ServerOts,
    /// Of this window.
    held: VecDeque<Ots>,
    pub(super) output: Batch,
}

impl SquareServer {
    /// Squares with this share.
    ///
    /// # Errors
    /// When it is not of the shape.
    pub fn new(
        squares: Squares,
        share: Share,
        ots: ServerOts,
    ) -> Result<Exchange<Self>, EngineError> {
        Self::with_limits(squares, share, ots, &Limits::DEFAULT)
    }

    pub(super) fn with_limits(
        squares: Squares,
        share: Share,
        ots: ServerOts,
        limits: &Limits,
    ) -> Result<Exchange<Self>, EngineError> {
        let (messages, party) = Self::with_messages(squares, share, ots, limits)?;
        Ok(Exchange::new(messages, party))
    }

    /// The party, and its messages.
    pub(super) fn with_messages(
        squares: Squares,
        share: Share,
        ots: ServerOts,
        limits: &Limits,
    ) -> Result<(Messages, Self), EngineError> {
        let bytes = |count| ots.message_bytes(count);
        let (messages, chunks, output) = squares.begin(&share, limits, bytes)?;
        let held = VecDeque::new();
        Ok((
            messages,
            Self {
                squares,
                chunks,
                share,
                ots,
                held,
                output,
            },
        ))
    }

    /// The share's words in a range, padded with zeros.
    fn factors(&self, range: Range<usize>, padded: usize) -> Zeroizing<Vec<u64>> {
        let mut factors = Zeroizing::new(vec![0; padded]);
        if let Share::Words(share) = &self.share {
            for (factor, &word) in factors.iter_mut().zip(&share.words()[range]) {
                *factor = word as u32 as u64;
            }
        }
        factors
    }
}

fn send_bits(
    sender: &CotSender,
    squares: &Squares,
    (first, blocks): &Ots,
    factors: &[u64],
) -> Result<Vec<(Products, Vec<u8>)>, OtError> {
    let padded = factors.len();
    by_bit(*first, padded, blocks)
        .into_par_iter()
        .zip(squares.moduli().collect::<Vec<_>>())
        .map(|((first, blocks), modulus)| {
            let reduced = factors.iter().map(|&factor| modulus.reduce(factor));
            let reduced = Zeroizing::new(reduced.collect::<Vec<_>>());
            let (mut share, mut message) = (Zeroizing::new(vec![0; padded]), Vec::new());
            transfer::send_products(
                sender,
                first,
                blocks,
                &reduced,
                modulus,
                &mut share,
                &mut message,
            )?;
            Ok((share, message))
        })
        .collect()
}

impl Protocol for SquareServer {
    const PARTY: Party = Party::Server;

    fn take(&mut self, turn: Turn, message: &[u8]) -> Result<(), EngineError> {
        let (step, count) = (&self.squares.step, self.chunks[turn.index].ots);
        self.held.push_back(self.ots.receive(step, message, count)?);
        Ok(())
    }

    fn make(&mut self, turn: Turn, out: &mut Vec<u8>) -> Result<(), EngineError> {
        let held = self.held.pop_front().ok_or_else(|| turn.unknown())?;
        let (squares, range) = (&self.squares, self.chunks[turn.index].range.clone());
        let factors = self.factors(range.clone(), range.len().next_multiple_of(8));
        let made = self.ots.with(&squares.step, |ots| {
            send_bits(ots, squares, &held, &factors)
        })?;
        let (products, messages): (Vec<_>, Vec<_>) = made.into_iter().unzip();
        messages
            .iter()
            .for_each(|message| out.extend_from_slice(message));
        add_products(&products, &mut self.output.words_mut()[range]);
        Ok(())
    }
}

impl StepProtocol for SquareServer {
    fn into_made(self) -> Result<Made, EngineError> {
        Ok(Made::share(Share::Words(self.output)))
    }
}
