//! Garblings made ahead, between their making and their use.
//!
//! Each is used once, by its owner's giving it away. As bytes, for a store on a disk, they can be
//! copied: the store must hand each of them out once and delete it before it is used, on both
//! sides. A second use of one with another input gives the client both labels of a wire, and with
//! them `Delta`. The server keeps them with the set-up of OTs they were made with, and destroys
//! them with it when that has failed a check: `Delta` may then be partly known.
//!
//! # Bytes
//!
//! Little-endian. Both: version (1), kind (1: 1 the client's, 2 the server's), name (16), the
//! number of OTs (8), bytes of the tables or of the share (8). The client's, for each chunk:
//! choices (a bit an OT), labels (16 bytes an OT), tables. The server's: delta (16); corrections
//! (16 an OT); the share, 4 bytes a word, none for a share of zero. Of squares (kinds 3 and 4)
//! and products (5 and 6), in place of these two numbers: products and bits; then this party's
//! random share of the factors or its share, its part of the product, and the server's share of
//! that, 4 bytes a word.

use std::{collections::VecDeque, sync::Arc};

use pronghorn_mpc::{Block, garble::Delta};
use zeroize::{ZeroizeOnDrop, Zeroizing};

use super::{
    layout::Layout,
    schedule::{Chunk, Limits},
    server::share_of,
    work::Work,
};
use crate::{error::EngineError, machine::PreparedStep, share::Share};

/// What a garbling is called by both parties: the start of its first piece, random.
pub(crate) type Name = [u8; Block::BYTES];

const VERSION: u8 = 1;
const CLIENT: u8 = 1;
const SERVER: u8 = 2;
/// The kinds of squares made ahead.
pub(super) const SQUARE_CLIENT: u8 = 3;
pub(super) const SQUARE_SERVER: u8 = 4;
/// The kinds of products of two values made ahead.
pub(super) const PRODUCT_CLIENT: u8 = 5;
pub(super) const PRODUCT_SERVER: u8 = 6;
/// Bytes before the secrets.
pub(crate) const HEADER: usize = 2 + Block::BYTES + 8 + 8;

/// The client's half of a garbling made ahead: tables, labels for random choices, and these. Wiped
/// on drop; no Debug.
///
/// Both halves are used once. Here that is by giving them away; as bytes they can be copied, so a
/// store hands each of them out once and deletes it before it is used, on both sides: a second use
/// with another input gives the client both labels of a wire, and with them `Delta`. When the
/// set-up of OTs that they were made with has failed a check, they are destroyed with it.
pub struct PreparedClient {
    pub(super) work: Work,
    pub(super) chunks: Vec<Chunk>,
    pub(super) held: VecDeque<ClientChunk>,
}

/// What the client holds of a chunk.
pub(super) struct ClientChunk {
    /// Random, packed.
    pub choices: Zeroizing<Vec<u8>>,
    /// Its blocks of the OTs.
    pub labels: Zeroizing<Vec<Block>>,
    pub tables: Vec<u8>,
}

/// The server's half: what corrects the client's labels, and its share of the output, which is
/// known ahead. Used once. Wiped on drop; no Debug.
pub struct PreparedServer {
    pub(super) layout: Arc<Layout>,
    pub(super) chunks: Vec<Chunk>,
    pub(super) name: Name,
    pub(super) delta: Delta,
    /// For each chunk, the sums of the labels of 0 and the OTs' blocks.
    pub(super) corrections: VecDeque<Zeroizing<Vec<Block>>>,
    pub(super) share: Share,
}

/// Labels and choices are in [`Zeroizing`]; tables went over the network.
impl ZeroizeOnDrop for PreparedClient {}

/// What is secret is in [`Zeroizing`], [`Delta`] and [`Share`].
impl ZeroizeOnDrop for PreparedServer {}

impl PreparedStep for PreparedClient {
    fn to_bytes(&self) -> Zeroizing<Vec<u8>> {
        self.to_bytes()
    }
}

impl PreparedStep for PreparedServer {
    fn to_bytes(&self) -> Zeroizing<Vec<u8>> {
        self.to_bytes()
    }
}

/// OTs, and bytes of tables.
fn totals(chunks: &[Chunk]) -> [usize; 2] {
    let ots = chunks.iter().map(|chunk| chunk.ots).sum();
    [ots, chunks.iter().map(|chunk| chunk.answer).sum()]
}

impl PreparedClient {
    /// What both parties call it.
    pub fn name(&self) -> [u8; 16] {
        let first = self.held.front();
        first
            .and_then(|chunk| chunk.tables.first_chunk().copied())
            .unwrap_or_default()
    }

    /// Bytes of memory it takes, and of [`PreparedClient::to_bytes`].
    pub fn len_bytes(&self) -> usize {
        let [ots, tables] = totals(&self.chunks);
        HEADER + ots / 8 + ots * Block::BYTES + tables
    }

    /// All of it, for a store that hands it out once: see [`PreparedClient`].
    pub fn to_bytes(&self) -> Zeroizing<Vec<u8>> {
        let mut bytes = Zeroizing::new(Vec::with_capacity(self.len_bytes()));
        write_header(CLIENT, &self.name(), totals(&self.chunks), &mut bytes);
        for chunk in &self.held {
            bytes.extend_from_slice(&chunk.choices);
            write_blocks(&chunk.labels, &mut bytes);
            bytes.extend_from_slice(&chunk.tables);
        }
        bytes
    }

    /// The inverse of [`PreparedClient::to_bytes`], for the layout it was made for.
    ///
    /// # Errors
    /// When the layout is none, or the bytes are nothing that was made for it.
    pub fn from_bytes(layout: impl Into<Arc<Layout>>, bytes: &[u8]) -> Result<Self, EngineError> {
        Self::with_limits(layout.into(), bytes, &Limits::DEFAULT)
    }

    pub(super) fn with_limits(
        layout: Arc<Layout>,
        bytes: &[u8],
        limits: &Limits,
    ) -> Result<Self, EngineError> {
        let (work, chunks) = Work::new(layout, limits)?;
        let step = &work.layout.step;
        let (name, mut bytes) = read_header(step, CLIENT, totals(&chunks), bytes)?;
        let mut held = VecDeque::with_capacity(chunks.len());
        for chunk in &chunks {
            held.push_back(ClientChunk {
                choices: Zeroizing::new(take(step, &mut bytes, chunk.ots / 8)?.to_vec()),
                labels: read_blocks(take(step, &mut bytes, chunk.ots * Block::BYTES)?),
                tables: take(step, &mut bytes, chunk.answer)?.to_vec(),
            });
        }
        at_end(step, bytes)?;
        let prepared = Self { work, chunks, held };
        if prepared.name() != name {
            let step = &prepared.work.layout.step;
            return Err(damaged(step, "has the tables of another"));
        }
        Ok(prepared)
    }
}

impl PreparedServer {
    /// What both parties call it.
    pub fn name(&self) -> [u8; 16] {
        self.name
    }

    /// The server's share of the step's output, which what follows may be prepared with.
    pub fn share(&self) -> &Share {
        &self.share
    }

    /// All of it, for a store that hands it out once: see [`PreparedClient`].
    pub fn to_bytes(&self) -> Zeroizing<Vec<u8>> {
        let words = match &self.share {
            Share::Words(share) => share.words(),
            Share::Zero => &[],
        };
        let [ots, _] = totals(&self.chunks);
        let length = HEADER + (1 + ots) * Block::BYTES + size_of_val(words);
        let mut bytes = Zeroizing::new(Vec::with_capacity(length));
        write_header(SERVER, &self.name, [ots, size_of_val(words)], &mut bytes);
        bytes.extend_from_slice(&self.delta.block().to_bytes());
        for corrections in &self.corrections {
            write_blocks(corrections, &mut bytes);
        }
        write_words(words, &mut bytes);
        bytes
    }

    /// The inverse of [`PreparedServer::to_bytes`], for the layout it was made for.
    ///
    /// # Errors
    /// When the layout is none, or the bytes are nothing that was made for it.
    pub fn from_bytes(layout: impl Into<Arc<Layout>>, bytes: &[u8]) -> Result<Self, EngineError> {
        Self::with_limits(layout.into(), bytes, &Limits::DEFAULT)
    }

    pub(super) fn with_limits(
        layout: Arc<Layout>,
        bytes: &[u8],
        limits: &Limits,
    ) -> Result<Self, EngineError> {
        let (work, chunks) = Work::new(layout, limits)?;
        let step = &work.layout.step;
        let mut share = share_of(&work.layout, work.output());
        let words = match &mut share {
            Share::Words(share) => share.words_mut(),
            Share::Zero => &mut [],
        };
        let [ots, _] = totals(&chunks);
        let (name, mut bytes) = read_header(step, SERVER, [ots, size_of_val(words)], bytes)?;
        let delta = read_blocks(take(step, &mut bytes, Block::BYTES)?)[0];
        if !delta.lsb() {
            return Err(damaged(step, "has a delta that is none"));
        }
        let mut corrections = VecDeque::with_capacity(chunks.len());
        for chunk in &chunks {
            let bytes = take(step, &mut bytes, chunk.ots * Block::BYTES)?;
            corrections.push_back(read_blocks(bytes));
        }
        read_words(take(step, &mut bytes, size_of_val(words))?, words);
        at_end(step, bytes)?;
        Ok(Self {
            name,
            delta: Delta::new(delta),
            corrections,
            share,
            chunks,
            layout: work.layout,
        })
    }
}

pub(crate) fn damaged(step: &str, reason: &'static str) -> EngineError {
    let step = step.to_owned();
    EngineError::Prepared { step, reason }
}

pub(crate) fn write_header(kind: u8, name: &Name, counts: [usize; 2], bytes: &mut Vec<u8>) {
    bytes.extend_from_slice(&[VERSION, kind]);
    bytes.extend_from_slice(name);
    for count in counts {
        bytes.extend_from_slice(&(count as u64).to_le_bytes());
    }
}

/// The name, and what follows the header.
pub(crate) fn read_header<'a>(
    step: &str,
    kind: u8,
    counts: [usize; 2],
    bytes: &'a [u8],
) -> Result<(Name, &'a [u8]), EngineError> {
    let Some((header, rest)) = bytes.split_at_checked(HEADER) else {
        return Err(damaged(step, "is cut short"));
    };
    let mut expected = Vec::with_capacity(HEADER);
    let (name, _) = header[2..]
        .split_first_chunk()
        .expect("the header has a name");
    write_header(kind, name, counts, &mut expected);
    match () {
        () if header[0] != VERSION => Err(damaged(step, "is of another version")),
        () if header[1] != kind => Err(damaged(step, "is the other party's half")),
        () if header != expected => Err(damaged(step, "is for another step")),
        () => Ok((*name, rest)),
    }
}

/// The next bytes.
pub(super) fn take<'a>(
    step: &str,
    bytes: &mut &'a [u8],
    count: usize,
) -> Result<&'a [u8], EngineError> {
    let taken = bytes.split_off(..count);
    taken.ok_or_else(|| damaged(step, "is cut short"))
}

pub(crate) fn at_end(step: &str, bytes: &[u8]) -> Result<(), EngineError> {
    match bytes.is_empty() {
        true => Ok(()),
        false => Err(damaged(step, "has something behind its end")),
    }
}

/// Appends blocks.
pub(super) fn write_blocks(blocks: &[Block], bytes: &mut Vec<u8>) {
    bytes.reserve(blocks.len() * Block::BYTES);
    for block in blocks {
        bytes.extend_from_slice(&block.to_bytes());
    }
}

/// Blocks of whole ones.
pub(super) fn read_blocks(bytes: &[u8]) -> Zeroizing<Vec<Block>> {
    let blocks = bytes.as_chunks().0.iter();
    Zeroizing::new(blocks.map(|bytes| Block::from_bytes(*bytes)).collect())
}

/// Appends words.
pub(super) fn write_words(words: &[i32], bytes: &mut Vec<u8>) {
    bytes.reserve(size_of_val(words));
    for word in words {
        bytes.extend_from_slice(&word.to_le_bytes());
    }
}

/// Words of as many bytes.
pub(super) fn read_words(bytes: &[u8], words: &mut [i32]) {
    for (word, bytes) in words.iter_mut().zip(bytes.as_chunks().0) {
        *word = i32::from_le_bytes(*bytes);
    }
}
