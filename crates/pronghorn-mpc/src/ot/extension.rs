//! Correlated OT extension: from 128 base OTs, any number of pairs `q = t + r Delta`.
//!
//! The sender ends with `Delta` and a block `q_j` for each OT, the receiver with
//! `t_j = q_j + r_j Delta` for its choice bits `r_j`. One message, from the receiver: `128 / k`
//! bits an OT, where one message of IKNP has 128.
//!
//! # Protocol
//! SoftSpokenOT (L. Roy, CRYPTO 2022, sections 3.1 and 3.2, with the repetition code over GF(2^k));
//! for `k = 1` it is IKNP (Ishai, Kilian, Nissim and Petrank, CRYPTO 2003). The 128 columns of the
//! matrix of rows `t_j` are cut into strips of `k` (the last may be narrower). A strip has `2^k`
//! pseudorandom columns `R_x`; the receiver knows them all, the sender all but `R_alpha`, `alpha`
//! being the strip's bits of `Delta`. Then
//!
//! > `u = sum_x R_x`, `v_b = sum_x x_b R_x`; `w_b = sum_x (x + alpha)_b R_x = v_b + alpha_b u`
//!
//! for the bits `b` of the strip, where the sum `w_b` does not contain `R_alpha`. The receiver
//! sends `d = u + r` for each strip; with `q_b = w_b + alpha_b d` the sender has
//! `q_b = v_b + alpha_b r`. Work grows as `2^k / k`, traffic falls as `1 / k`.
//!
//! # Security
//! *Sender.* `d` is masked by `R_alpha`, which the sender misses: it learns nothing about `r`,
//! however it behaves, by AES in counter mode as a pseudorandom generator. The blocks that are
//! encrypted differ from connection to connection (a random block plus the counter), so that a
//! guess at a key is tested against the `128 / k` keys of one connection and not of all: `2^123`
//! evaluations of AES with the default width. A connection makes at most `2^34` blocks a column,
//! which are within `2^68 / 2^129` of random ones for each of the `128 / k` strips.
//!
//! *Receiver.* One who sends other corrections for one strip than for another would learn bits of
//! `Delta` from what is later done with `q`. So each batch carries a check (the form of KOS after
//! its correction, Keller, Orsini and Scholl, ePrint 2015/546 as of 2022, section 4, for strips
//! wider than one column): with random coefficients `chi` in GF(2^128), taken from a hash of all
//! corrections of the batch, the receiver sends the linear hashes of `r` and of every column of
//! `v`,
//!
//! > `x = sum_j chi_j r_j`, `y_c = sum_j chi_j v_(c, j)` (`r_j`, `v_(c, j)`: the `j`-th 128 bits),
//!
//! and the sender checks `sum_j chi_j q_(c, j) = y_c + Delta_c x` for every column `c`. 128 more
//! OTs with random choices and `chi = 1` mask `x`, and `y_c` then follows from what the sender has.
//!
//! *Bound.* What columns `w + alpha d` the sender has for each strip and each value of `alpha` is
//! fixed before `chi` is known, and one strip's depend on no other strip's `alpha`; false keys in
//! the set-up change nothing about that. Fix `Delta`, which `chi` is independent of, and let `G` be
//! the values with which a strip passes. For `a` in `G` the columns of bit `b` for `a` and for the
//! strip's own `alpha`, if that passes too, differ by a vector whose hash is `x` where
//! `a_b != alpha_b`, and 0 where `a_b = alpha_b`. All strips together have at most
//! `N = 128 (2^k - 1)` such vectors. Unless two of them that are not equal have one hash, or one
//! that is not zero the hash 0, all of those with hash `x` are one vector `r'`, and the sender's
//! columns are `v' + a r'` for all `a` in `G`: the batch is an honest one with choices `r'`, and
//! the receiver has learnt that each strip of `Delta` is in its `G`, at the price of being caught
//! otherwise. What it gains by that on the guessing of `Delta` it pays in probability of being
//! caught. Two vectors collide with probability `2^-128` (those that differ in the last block
//! alone, where `chi` is 1, never do). So one that tries `Q` corrections with the random oracle
//! gains at most `Q N (N + 2) / 2^129`, which is below `Q 2^(2k - 115)`: 2^-113 for each try with
//! `k = 1`, 2^-105 with the 5 of [`OtParameters::default`](super::OtParameters), 2^-99 with 8.
//!
//! Every failed attempt on one `Delta` tells the receiver about a bit of it, and one that fails
//! half of the time has it after some 250. So with the first failure the sender forgets `Delta`,
//! the set-up makes no more connections, and those it has made stop ([`OtError::Burnt`]). Copies of
//! the set-up are for their owner to destroy ([`OtError::Inconsistent`]).
//!
//! `Delta` has bit 0 set (it is the offset of garbled circuits), so 127 bits of it are secret.

mod strip;

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use pronghorn_ring::{SimdLevel, random::Stream};
use zeroize::{Zeroize, ZeroizeOnDrop, Zeroizing};

use strip::{Scratch, Strip};

use super::{
    OtHash,
    base::Key,
    check::{Check, Hashed},
    error::{OtError, check_count, check_length},
    simd,
};
use crate::{Block, aes::BATCH};

/// Blocks of a column that are made at a time.
pub(crate) type Chunk = [Block; BATCH];

/// OTs of a batch at most: with those of the check, 256 blocks a column.
pub const MOST_OF_BATCH: usize = 255 * Block::BITS;

/// OTs of a connection at most.
const MOST_OF_CONNECTION: u64 = 1 << 40;

/// Blocks of a column that a connection makes at most: enough for [`MOST_OF_CONNECTION`] in full
/// batches. (The blocks of AES in counter mode never repeat, those of a random column do.)
const MOST_BLOCKS: u64 = 1 << 34;

/// Bytes before the batches of a message: the position it is for.
const HEADER: usize = 8;

/// The strips of at most `width` columns: first column and columns of each.
pub(crate) fn strips(width: usize) -> impl Iterator<Item = std::ops::Range<usize>> {
    (0..Block::BITS)
        .step_by(width)
        .map(move |first| first..(first + width).min(Block::BITS))
}

/// Bytes of the receiver's message for `count` OTs, with strips of `width` columns.
pub fn message_bytes(count: usize, width: usize) -> usize {
    let rest = match count % MOST_OF_BATCH {
        0 => 0,
        rest => batch_bytes(rest, width),
    };
    (count / MOST_OF_BATCH)
        .saturating_mul(batch_bytes(MOST_OF_BATCH, width))
        .saturating_add(HEADER + rest)
}

/// Bytes of one batch in it.
fn batch_bytes(count: usize, width: usize) -> usize {
    blocks_of(count) * Block::BYTES * Block::BITS.div_ceil(width) + Hashed::BYTES
}

/// Blocks a column has in a batch of `count` OTs, with those of the check.
fn blocks_of(count: usize) -> usize {
    count.div_ceil(Block::BITS) + 1
}

/// Blocks a column has in all batches of a message for `count` OTs.
fn blocks_of_message(count: usize) -> u64 {
    let (whole, rest) = (count / MOST_OF_BATCH, count % MOST_OF_BATCH);
    let rest = if rest == 0 { 0 } else { blocks_of(rest) };
    whole as u64 * blocks_of(MOST_OF_BATCH) as u64 + rest as u64
}

/// The mark of a set-up, shared by its connections, whose receiver failed a check.
#[derive(Clone, Default)]
pub(crate) struct Burnt(Arc<AtomicBool>);

impl Burnt {
    pub fn set(&self) {
        self.0.store(true, Ordering::SeqCst);
    }

    /// # Errors
    /// [`OtError::Burnt`] once it is set.
    pub fn check(&self) -> Result<(), OtError> {
        match self.0.load(Ordering::SeqCst) {
            true => Err(OtError::Burnt),
            false => Ok(()),
        }
    }
}

/// What both parties keep between batches.
struct Common {
    strips: Vec<Strip>,
    connection: [u8; 32],
    width: usize,
    hash: OtHash,
    /// What the counters are added to before they are encrypted.
    nonce: Block,
    /// OTs made.
    made: u64,
    /// Blocks of every column made.
    position: u64,
    scratch: Scratch,
    /// The 128 columns of the batch.
    columns: Zeroizing<Vec<Block>>,
    counters: Vec<Block>,
}

impl Common {
    fn new(width: usize, strips: Vec<Strip>, connection: [u8; 32]) -> Self {
        let public_block = |context| {
            let [block, _] = bytemuck::cast(blake3::derive_key(context, &connection));
            Block::from_bytes(block)
        };
        Self {
            strips,
            connection,
            width,
            hash: OtHash::new(public_block("pronghorn ot hash key")),
            nonce: public_block("pronghorn ot nonce of the counters"),
            made: 0,
            position: 0,
            scratch: Scratch::new(),
            columns: Zeroizing::default(),
            counters: Vec::new(),
        }
    }

    /// Checks that `count` more OTs can be made; the number of the first.
    fn first_of(&self, count: usize) -> Result<u64, OtError> {
        let made = self.made.saturating_add(count as u64);
        let blocks = self.position.saturating_add(blocks_of_message(count));
        match made <= MOST_OF_CONNECTION && blocks <= MOST_BLOCKS {
            true => Ok(self.made),
            false => Err(OtError::Exhausted),
        }
    }

    /// Prepares columns of `blocks` blocks; the blocks from one column to the next.
    fn start(&mut self, blocks: usize) -> usize {
        let padded = blocks.next_multiple_of(BATCH);
        // A tile more, so that the 128 columns do not meet in a few sets of the cache.
        let stride = padded + simd::TILE;
        if self.columns.len() < Block::BITS * stride {
            self.columns = Zeroizing::new(vec![Block::ZERO; Block::BITS * stride]);
        }
        let counters = (self.position..).take(padded);
        self.counters.clear();
        self.counters
            .extend(counters.map(|counter| self.nonce ^ Block::from_u128(counter.into())));
        stride
    }

    /// Makes the columns; `correct(strip, at, total)` is called with the sum of all leaves of each
    /// chunk, `at` being its first block, and leaves there what is added to the columns of the bits
    /// that `mask` has.
    fn expand(
        &mut self,
        level: SimdLevel,
        stride: usize,
        mask: Block,
        mut correct: impl FnMut(usize, usize, &mut Chunk),
    ) {
        for (index, strip) in self.strips.iter().enumerate() {
            let chunks = self.counters.as_chunks::<BATCH>().0;
            for (chunk, counters) in chunks.iter().enumerate() {
                strip.expand(level, counters, &mut self.scratch);
                let at = chunk * BATCH;
                correct(index, at, &mut self.scratch.total);
                for (column, bits) in strip.columns.clone().zip(&self.scratch.bits) {
                    let mask = mask.to_u128() >> column & 1 == 1;
                    let out = self.columns[column * stride + at..].first_chunk_mut();
                    let out = out.expect("columns are made of whole chunks");
                    simd::add_masked(level, bits, &self.scratch.total, mask, out);
                }
            }
        }
    }

    /// The check of the batch with these corrections.
    fn check(&self, corrections: &[u8], blocks: usize) -> Check {
        Check::new(&self.connection, self.position, corrections, blocks)
    }

    fn advance(&mut self, count: usize) {
        self.made += count as u64;
        self.position += blocks_of(count) as u64;
    }
}

/// The party with `Delta`. Its secrets are wiped on drop.
pub struct CotSender {
    common: Common,
    delta: Zeroizing<Block>,
    burnt: Burnt,
}

impl CotSender {
    /// The sender of one connection; `leaves[strip][y]`, `y = 0` missing.
    pub(crate) fn new(
        delta: Block,
        width: usize,
        leaves: impl Iterator<Item = Zeroizing<Vec<Key>>>,
        connection: [u8; 32],
        burnt: Burnt,
    ) -> Self {
        let strips = strips(width).zip(leaves);
        let strips = strips.map(|(columns, leaves)| Strip::new(columns, &leaves, 1, &connection));
        Self {
            common: Common::new(width, strips.collect(), connection),
            delta: Zeroizing::new(delta),
            burnt,
        }
    }

    /// Checks that no consistency check has failed on the set-up: what was made before is not to be
    /// used either then.
    ///
    /// # Errors
    /// [`OtError::Burnt`] otherwise.
    pub fn check_usable(&self) -> Result<(), OtError> {
        self.burnt.check()
    }

    /// The correlation; bit 0 is set. Zero once this sender has failed a check.
    pub fn delta(&self) -> Block {
        *self.delta
    }

    /// The name of the connection, which both parties have.
    pub fn connection(&self) -> &[u8; 32] {
        &self.common.connection
    }

    /// The hash that makes random strings of the blocks of this connection.
    pub fn hash(&self) -> &OtHash {
        &self.common.hash
    }

    /// OTs made: the number of the next one.
    pub fn made(&self) -> u64 {
        self.common.made
    }

    /// The mark of a failed check, shared by all connections of the set-up.
    pub(crate) fn burnt(&self) -> &Burnt {
        &self.burnt
    }

    /// Bytes of the message that the next `count` OTs take.
    pub fn message_bytes(&self, count: usize) -> usize {
        message_bytes(count, self.common.width)
    }

    /// Fills `q` from the receiver's message for as many OTs; the number of the first.
    ///
    /// # Errors
    /// When the message has the wrong length or position (nothing has changed then), or fails the
    /// consistency check ([`OtError::Inconsistent`]: `Delta` is wiped, and nothing more comes from
    /// any sender of the set-up, which is [`OtError::Burnt`] from then on).
    pub fn extend(&mut self, message: &[u8], q: &mut [Block]) -> Result<u64, OtError> {
        self.check_usable()?;
        let first = self.common.first_of(q.len())?;
        check_length(MESSAGE, message, self.message_bytes(q.len()))?;
        let result = self.extend_batches(message, q);
        if let Err(OtError::Inconsistent) = result {
            self.burnt.set();
            self.delta.zeroize();
            self.common.strips.clear();
            self.common.columns.zeroize();
            self.common.scratch.zeroize();
            q.iter_mut().zeroize();
        }
        result.map(|()| first)
    }

    fn extend_batches(&mut self, message: &[u8], q: &mut [Block]) -> Result<(), OtError> {
        let (header, mut batches) = message.split_at(HEADER);
        let found = u64::from_le_bytes(header.try_into().expect("8 bytes"));
        let expected = self.common.position;
        if found != expected {
            return Err(OtError::Position {
                message: MESSAGE,
                found,
                expected,
            });
        }
        for q in q.chunks_mut(MOST_OF_BATCH) {
            let (batch, later) = batches.split_at(batch_bytes(q.len(), self.common.width));
            self.extend_batch(batch, q)?;
            batches = later;
        }
        Ok(())
    }

    fn extend_batch(&mut self, batch: &[u8], q: &mut [Block]) -> Result<(), OtError> {
        let (level, blocks) = (SimdLevel::detect(), blocks_of(q.len()));
        let (corrections, hashed) = batch.split_at(batch.len() - Hashed::BYTES);
        let stride = self.common.start(blocks);
        let delta = *self.delta;
        self.common
            .expand(level, stride, delta, |strip, at, total| {
                let corrections = &corrections[(strip * blocks + at) * Block::BYTES..];
                let wanted = (blocks - at).min(BATCH) * Block::BYTES;
                let total: &mut [u8] = bytemuck::cast_slice_mut(total);
                total[..wanted].copy_from_slice(&corrections[..wanted]);
            });
        let columns = &self.common.columns;
        self.common.check(corrections, blocks).verify(
            level,
            columns,
            stride,
            delta,
            &Hashed::read(hashed),
        )?;
        simd::transpose(level, columns, stride, q);
        self.common.advance(q.len());
        Ok(())
    }
}

const MESSAGE: &str = "the message of the OT extension";

/// Its fields wipe themselves.
impl ZeroizeOnDrop for CotSender {}

/// The party with choices. Its secrets are wiped on drop.
pub struct CotReceiver {
    common: Common,
    /// Random choices of the OTs of the check.
    masks: Stream,
    choices: Zeroizing<Vec<Block>>,
}

impl CotReceiver {
    /// The receiver of one connection; `leaves[strip][x]`.
    pub(crate) fn new(
        width: usize,
        leaves: impl Iterator<Item = Zeroizing<Vec<Key>>>,
        connection: [u8; 32],
        masks: Stream,
    ) -> Self {
        let strips = strips(width).zip(leaves);
        let strips = strips.map(|(columns, leaves)| Strip::new(columns, &leaves, 0, &connection));
        Self {
            common: Common::new(width, strips.collect(), connection),
            masks,
            choices: Zeroizing::default(),
        }
    }

    /// The name of the connection, which both parties have.
    pub fn connection(&self) -> &[u8; 32] {
        &self.common.connection
    }

    /// The hash that makes random strings of the blocks of this connection.
    pub fn hash(&self) -> &OtHash {
        &self.common.hash
    }

    /// OTs made: the number of the next one.
    pub fn made(&self) -> u64 {
        self.common.made
    }

    /// Bytes of the message that the next `count` OTs take.
    pub fn message_bytes(&self, count: usize) -> usize {
        message_bytes(count, self.common.width)
    }

    /// Makes as many OTs as `t` has blocks: fills `t`, and appends the message to the sender to
    /// `out`; the number of the first. `choices` are bits, the first in the lowest bit of the first
    /// byte; bits behind the last are ignored.
    ///
    /// # Errors
    /// When `choices` has not `t.len().div_ceil(8)` bytes, or the connection is exhausted.
    pub fn extend(
        &mut self,
        choices: &[u8],
        t: &mut [Block],
        out: &mut Vec<u8>,
    ) -> Result<u64, OtError> {
        check_count("choices (bytes)", choices.len(), t.len().div_ceil(8))?;
        let first = self.common.first_of(t.len())?;
        out.reserve(self.message_bytes(t.len()));
        out.extend_from_slice(&self.common.position.to_le_bytes());
        let choices = choices.chunks(MOST_OF_BATCH / 8);
        for (t, choices) in t.chunks_mut(MOST_OF_BATCH).zip(choices) {
            self.extend_batch(choices, t, out);
        }
        Ok(first)
    }

    fn extend_batch(&mut self, choices: &[u8], t: &mut [Block], out: &mut Vec<u8>) {
        let (level, blocks) = (SimdLevel::detect(), blocks_of(t.len()));
        let start = out.len();
        out.resize(start + batch_bytes(t.len(), self.common.width), 0);
        let batch = &mut out[start..];
        let (corrections, hashed) = batch.split_at_mut(batch.len() - Hashed::BYTES);
        self.set_choices(choices, blocks);
        let stride = self.common.start(blocks);
        let choices = &self.choices;
        self.common
            .expand(level, stride, Block::ZERO, |strip, at, total| {
                let choices = &choices[at..blocks.min(at + BATCH)];
                for (total, choice) in total.iter_mut().zip(choices) {
                    *total ^= *choice;
                }
                let total: &[u8] = bytemuck::cast_slice(&total[..choices.len()]);
                let start = (strip * blocks + at) * Block::BYTES;
                corrections[start..start + total.len()].copy_from_slice(total);
            });
        let check = self.common.check(corrections, blocks);
        let columns = &self.common.columns;
        hashed.copy_from_slice(&check.hash(level, &self.choices, columns, stride).bytes());
        simd::transpose(level, columns, stride, t);
        self.common.advance(t.len());
    }

    /// The choices in blocks, and behind them those of the check.
    fn set_choices(&mut self, choices: &[u8], blocks: usize) {
        if self.choices.len() < blocks {
            self.choices = Zeroizing::new(vec![Block::ZERO; blocks]);
        }
        let all: &mut [u8] = bytemuck::cast_slice_mut(&mut self.choices[..blocks]);
        let (chosen, masks) = all.split_at_mut(all.len() - Block::BYTES);
        chosen[..choices.len()].copy_from_slice(choices);
        chosen[choices.len()..].fill(0);
        self.masks.fill(masks);
    }
}

/// Its fields wipe themselves.
impl ZeroizeOnDrop for CotReceiver {}

#[cfg(test)]
pub(crate) mod tests;
