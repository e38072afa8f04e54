//! Products of shares, by oblivious transfer.
//!
//! With `x = a + b` and `y = a' + b'` modulo `2^k`, `a` and `a'` the server's shares and `b` and
//! `b'` the client's, `x y = a a' + b b' + a b' + a' b`. Each party multiplies its own, and
//!
//! > `a b' = sum_i 2^i (a b'_i mod 2^(k-i))`, for `i = 0 .. k-1`,
//!
//! is a sum of products of a number of the server's and a bit of the client's, each an OT that
//! gives them shares modulo `2^(k-i)` (Gilboa, CRYPTO 1999; [`transfer`]). `a' b` is another, with
//! the bits of `b`. In a square both are one, `2ab`, whose sum begins at `2^1`: the top bit of `b`
//! takes no part.
//!
//! # Counts
//!
//! A word that several products read makes `k` OTs for all of them: their numbers are one vector.
//! Each sum takes `k (k + 1) / 2` bits of corrections from the server for each product. So `n`
//! products of `n` words with `m` words take `k (n + m)` OTs and `n k (k + 1)` bits; a square takes
//! `k - 1` OTs and `k (k - 1) / 2` bits. With OTs of width 5:
//!
//! | products | `k` | OTs | kB up | kB down |
//! |---|---|---|---|---|
//! | 64x28x28 values times 64x1x1 | 16 | 803,840 | 2,692 | 1,706 |
//! | 64x28x28 values times 64x28x28 | 16 | 1,605,632 | 5,357 | 1,706 |
//! | one square | 20 | 19 | 0.063 | 0.024 |
//!
//! The client is the receiver of all OTs of a connection, so its bits choose in both sums. If the
//! server's bits of the 64 words chose in the second, 802,816 of the OTs would go (2.6 of 4.4 MB).
//! That needs a second set-up, of OTs in the other direction, and 200 kB each way once. All of this
//! is 88 bytes a value; a ReLU in a circuit takes hundreds.
//!
//! | message | from | bytes |
//! |---|---|---|
//! | the oblivious transfers of each chunk of a window | client | 26 bits an OT at width 5 |
//! | the corrections of products of each chunk of the window | server | `k (k + 1) / 2` bits for each product of the chunk's words |

use std::{collections::VecDeque, ops::Range};

use pronghorn_mpc::{
    Block,
    ot::{CotReceiver, CotSender, OtError, transfer},
};
use pronghorn_ring::PowerOfTwo;
use rayon::prelude::*;
use zeroize::Zeroizing;

use super::{
    factors::{Products, Sum},
    schedule::{self, Chunk, Limits},
};
use crate::{
    error::EngineError,
    exchange::{Exchange, Messages, Party, Protocol, StepProtocol, Turn},
    machine::Made,
    ots::{Ots, ReceiverOts, SenderOts},
    share::{Batch, Share},
};

impl Sum<'_> {
    /// The modulus of the products with each bit.
    fn moduli(&self) -> impl ExactSizeIterator<Item = PowerOfTwo<u64>> + use<> {
        let dropped = 0..self.bits as usize;
        let most = self.bits;
        dropped.map(move |bits| PowerOfTwo::new(most - bits as u32).expect("1 to 32 bits"))
    }

    /// Where the corrections of each bit are in the answer for so many products.
    fn answers(&self, products: usize) -> impl Iterator<Item = Range<usize>> + use<> {
        let lengths = self
            .moduli()
            .map(move |modulus| transfer::product_bytes(products, modulus));
        lengths.scan(0, |end, length| {
            let start = *end;
            *end += length;
            Some(start..*end)
        })
    }

    /// Products in the answer for so many words. Those of products are padded.
    fn answered(&self, words: usize) -> usize {
        match self.padded {
            true => words.next_multiple_of(8),
            false => words * self.run,
        }
    }

    /// Chunks that cover all words.
    fn chunks(&self, limits: &Limits) -> Vec<Chunk> {
        let Some(most) = self.words_of_chunk(limits) else {
            return Vec::new();
        };
        let firsts = self.words.clone().step_by(most);
        let chunk = |first: usize| {
            let range = first..self.words.end.min(first + most);
            let answers = self.answers(self.answered(range.len()));
            Chunk {
                ots: self.bits as usize * range.len().next_multiple_of(8),
                answer: answers.map(|range| range.len()).sum(),
                range,
            }
        };
        firsts.map(chunk).collect()
    }

    /// A multiple of 8, so that the choices of each bit are whole bytes, or one word with many
    /// products; `None` without bits.
    fn words_of_chunk(&self, limits: &Limits) -> Option<usize> {
        let eights = limits.labels / Block::BYTES / 8;
        let eights = eights.checked_div(self.bits as usize * self.run)?;
        Some(match eights {
            0 if self.run > 1 => 1,
            _ => 8 * eights.max(1),
        })
    }
}

impl Products {
    /// What either party begins with: all messages, the chunks, and the products of its own share.
    /// A message of `n` OTs has `bytes(n)` bytes.
    fn begin(
        &self,
        share: &Share,
        limits: &Limits,
        bytes: impl Fn(usize) -> usize,
    ) -> Result<(Messages, Vec<Chunk>, Batch), EngineError> {
        self.check(share)?;
        let sums = self.sums();
        let chunks: Vec<Chunk> = sums.iter().flat_map(|sum| sum.chunks(limits)).collect();
        let step = (self.step.as_str(), self.elements);
        let window = limits.window / Block::BYTES;
        let messages =
            schedule::messages(step, &chunks, window, "the corrections of products", bytes);
        let own = match share {
            Share::Words(share) => self.own(share),
            Share::Zero => Batch::zeros(self.elements, self.images),
        };
        Ok((messages, chunks, own))
    }

    /// The sum of a chunk of these words.
    fn sum_of(&self, words: &Range<usize>) -> Sum<'_> {
        let mut sums = self.sums();
        let index = sums.iter().position(|sum| sum.words.contains(&words.start));
        sums.swap_remove(index.unwrap_or(0))
    }
}

/// A party's shares of the products with one bit.
type Bits = Zeroizing<Vec<u64>>;

/// Adds `2^(i + shift) shares[i]` to the words of `places`, for each bit `i`.
fn add_products(products: &[Bits], shift: u32, places: &[[usize; 2]], output: &mut [i32]) {
    for (bit, products) in (shift..).zip(products) {
        for ([place, _], &product) in places.iter().zip(products.iter()) {
            output[*place] = output[*place].wrapping_add((product as i32) << bit);
        }
    }
}

/// The blocks of each bit's OTs.
fn by_bit(first: u64, padded: usize, blocks: &[Block]) -> Vec<(u64, &[Block])> {
    let firsts = (first..).step_by(padded.max(1));
    firsts.zip(blocks.chunks(padded.max(1))).collect()
}

/// The client's half: the receiver.
pub struct ProductClient {
    products: Products,
    chunks: Vec<Chunk>,
    share: Share,
    ots: ReceiverOts,
    /// Of this window, with the choices.
    held: VecDeque<(Ots, Zeroizing<Vec<u8>>)>,
    pub(super) output: Batch,
}

impl ProductClient {
    /// Multiplies with this share of all factors.
    ///
    /// # Errors
    /// When it is not of the shape.
    pub fn new(
        products: Products,
        share: Share,
        ots: ReceiverOts,
    ) -> Result<Exchange<Self>, EngineError> {
        Self::with_limits(products, share, ots, &Limits::DEFAULT)
    }

    pub(super) fn with_limits(
        products: Products,
        share: Share,
        ots: ReceiverOts,
        limits: &Limits,
    ) -> Result<Exchange<Self>, EngineError> {
        let (messages, party) = Self::with_messages(products, share, ots, limits)?;
        Ok(Exchange::new(messages, party))
    }

    /// The party, and its messages.
    pub(super) fn with_messages(
        products: Products,
        share: Share,
        ots: ReceiverOts,
        limits: &Limits,
    ) -> Result<(Messages, Self), EngineError> {
        let bytes = |count| ots.message_bytes(count);
        let (messages, chunks, output) = products.begin(&share, limits, bytes)?;
        let held = VecDeque::new();
        Ok((
            messages,
            Self {
                products,
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
        let bits = self.products.sum_of(&range).bits as usize;
        let mut choices = Zeroizing::new(vec![0; bytes * bits]);
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
    sum: &Sum<'_>,
    ((first, blocks), choices): &(Ots, Zeroizing<Vec<u8>>),
    words: usize,
    message: &[u8],
) -> Result<Vec<Bits>, OtError> {
    let padded = words.next_multiple_of(8);
    let answered = sum.answered(words);
    let answers: Vec<_> = sum.moduli().zip(sum.answers(answered)).collect();
    let used = answered / sum.run;
    by_bit(*first, padded, blocks)
        .into_par_iter()
        .zip(choices.par_chunks(padded / 8))
        .zip(answers)
        .map(|(((first, blocks), choices), (modulus, range))| {
            let mut share = Zeroizing::new(vec![0; answered]);
            let message = &message[range];
            transfer::receive_products(
                receiver,
                first,
                &blocks[..used],
                choices,
                modulus,
                message,
                &mut share,
            )?;
            Ok(share)
        })
        .collect()
}

impl Protocol for ProductClient {
    const PARTY: Party = Party::Client;

    fn make(&mut self, turn: Turn, out: &mut Vec<u8>) -> Result<(), EngineError> {
        let choices = self.choices(self.chunks[turn.index].range.clone());
        let ots = self.ots.send(&self.products.step, &choices, out)?;
        self.held.push_back((ots, choices));
        Ok(())
    }

    fn take(&mut self, turn: Turn, message: &[u8]) -> Result<(), EngineError> {
        let held = self.held.pop_front().ok_or_else(|| turn.unknown())?;
        let (products, range) = (&self.products, self.chunks[turn.index].range.clone());
        let sum = products.sum_of(&range);
        let bits = self.ots.with(&products.step, |ots| {
            receive_bits(ots, &sum, &held, range.len(), message)
        })?;
        let places = sum.places(range);
        add_products(&bits, sum.shift, &places, self.output.words_mut());
        Ok(())
    }
}

impl StepProtocol for ProductClient {
    fn into_made(self) -> Result<Made, EngineError> {
        Ok(Made::share(Share::Words(self.output)))
    }
}

/// The server's half: the sender.
pub struct ProductServer {
    products: Products,
    chunks: Vec<Chunk>,
    share: Share,
    ots: SenderOts,
    /// Of this window.
    held: VecDeque<Ots>,
    pub(super) output: Batch,
}

impl ProductServer {
    /// Multiplies with this share of all factors.
    ///
    /// # Errors
    /// When it is not of the shape.
    pub fn new(
        products: Products,
        share: Share,
        ots: SenderOts,
    ) -> Result<Exchange<Self>, EngineError> {
        Self::with_limits(products, share, ots, &Limits::DEFAULT)
    }

    pub(super) fn with_limits(
        products: Products,
        share: Share,
        ots: SenderOts,
        limits: &Limits,
    ) -> Result<Exchange<Self>, EngineError> {
        let (messages, party) = Self::with_messages(products, share, ots, limits)?;
        Ok(Exchange::new(messages, party))
    }

    /// The party, and its messages.
    pub(super) fn with_messages(
        products: Products,
        share: Share,
        ots: SenderOts,
        limits: &Limits,
    ) -> Result<(Messages, Self), EngineError> {
        let bytes = |count| ots.message_bytes(count);
        let (messages, chunks, output) = products.begin(&share, limits, bytes)?;
        let held = VecDeque::new();
        Ok((
            messages,
            Self {
                products,
                chunks,
                share,
                ots,
                held,
                output,
            },
        ))
    }

    /// The share's words at places, padded with zeros.
    fn numbers(&self, places: &[[usize; 2]], padded: usize) -> Zeroizing<Vec<u64>> {
        let mut numbers = Zeroizing::new(vec![0; padded]);
        if let Share::Words(share) = &self.share {
            for (number, [_, place]) in numbers.iter_mut().zip(places) {
                *number = share.words()[*place] as u32 as u64;
            }
        }
        numbers
    }
}

fn send_bits(
    sender: &CotSender,
    sum: &Sum<'_>,
    (first, blocks): &Ots,
    words: usize,
    numbers: &[u64],
) -> Result<Vec<(Bits, Vec<u8>)>, OtError> {
    let used = numbers.len() / sum.run;
    by_bit(*first, words.next_multiple_of(8), blocks)
        .into_par_iter()
        .zip(sum.moduli().collect::<Vec<_>>())
        .map(|((first, blocks), modulus)| {
            let reduced = numbers.iter().map(|&number| modulus.reduce(number));
            let reduced = Zeroizing::new(reduced.collect::<Vec<_>>());
            let (mut share, mut message) = (Zeroizing::new(vec![0; numbers.len()]), Vec::new());
            transfer::send_products(
                sender,
                first,
                &blocks[..used],
                &reduced,
                modulus,
                &mut share,
                &mut message,
            )?;
            Ok((share, message))
        })
        .collect()
}

impl Protocol for ProductServer {
    const PARTY: Party = Party::Server;

    fn take(&mut self, turn: Turn, message: &[u8]) -> Result<(), EngineError> {
        let (step, count) = (&self.products.step, self.chunks[turn.index].ots);
        self.held.push_back(self.ots.receive(step, message, count)?);
        Ok(())
    }

    fn make(&mut self, turn: Turn, out: &mut Vec<u8>) -> Result<(), EngineError> {
        let held = self.held.pop_front().ok_or_else(|| turn.unknown())?;
        let (products, range) = (&self.products, self.chunks[turn.index].range.clone());
        let (sum, words) = (products.sum_of(&range), range.len());
        let places = sum.places(range);
        let numbers = self.numbers(&places, sum.answered(words));
        let made = self.ots.with(&products.step, |ots| {
            send_bits(ots, &sum, &held, words, &numbers)
        })?;
        let (bits, messages): (Vec<_>, Vec<_>) = made.into_iter().unzip();
        messages
            .iter()
            .for_each(|message| out.extend_from_slice(message));
        add_products(&bits, sum.shift, &places, self.output.words_mut());
        Ok(())
    }
}

impl StepProtocol for ProductServer {
    fn into_made(self) -> Result<Made, EngineError> {
        Ok(Made::share(Share::Words(self.output)))
    }
}
