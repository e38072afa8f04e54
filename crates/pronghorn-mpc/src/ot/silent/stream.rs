//! The OTs of a run, of either party: rounds, trees, and what is taken of them.

use pronghorn_ring::SimdLevel;
use rayon::prelude::*;
use zeroize::Zeroizing;

use super::{
    code::Code,
    parameters::{Chain, LpnParameters},
    table::Table,
    tree::{Scratch, Tree},
};
use crate::{
    Block,
    ot::{OtError, OtHash},
};

/// OTs of a run at most, as of a connection of the extension.
const MOST: u64 = 1 << 40;

/// Bits of a key that number the trees of a round; the others number the rounds.
const TREE_BITS: u32 = 32;

/// Trees that a thread grows in one buffer, at least.
const LEAST_TREES: usize = 8;

/// One party's trees of a round.
pub trait Trees: Sync {
    /// Fills `leaves` with those of tree `number`.
    fn leaves(&self, tree: &Tree, number: usize, leaves: &mut [Block], scratch: &mut Scratch);
}

/// What both parties keep. Its secrets are wiped on drop.
pub struct Stream {
    pub level: SimdLevel,
    chain: Chain,
    /// A public hash of the connection and of the place of this run in it.
    pub context: [u8; 32],
    tree_key: u128,
    code: Code,
    hash: OtHash,
    /// The round under way, or the next one.
    round: u64,
    /// Rows of the code used in earlier rounds.
    first_row: u64,
    /// Correlated OTs of the round: secrets, those of the trees' levels, those of the check.
    pub base: Table,
    /// The OTs of the tree that is being taken.
    tree_buffer: Zeroizing<Vec<Block>>,
    /// OTs of the round that may be taken, and those taken.
    ready: usize,
    taken: usize,
    /// OTs taken from all rounds.
    made: u64,
}

impl Stream {
    /// The stream of a run whose `base` begins with OT `first` of a connection.
    pub fn new(
        chain: Chain,
        connection: &[u8; 32],
        first: u64,
        base: Zeroizing<Vec<Block>>,
        level: SimdLevel,
    ) -> Self {
        let mut hasher = blake3::Hasher::new_derive_key("pronghorn silent ot run");
        hasher.update(connection);
        hasher.update(&first.to_le_bytes());
        let context = *hasher.finalize().as_bytes();
        let block = |domain| {
            let [block, _] = bytemuck::cast(blake3::derive_key(domain, &context));
            Block::from_bytes(block)
        };
        Self {
            level,
            chain,
            context,
            tree_key: block("pronghorn silent ot keys of the trees").to_u128(),
            code: Code::new(level, block("pronghorn silent ot key of the indices")),
            hash: OtHash::new(block("pronghorn silent ot hash key")),
            round: 0,
            first_row: 0,
            base: base.into(),
            tree_buffer: Zeroizing::default(),
            ready: 0,
            taken: 0,
            made: 0,
        }
    }

    pub fn chain(&self) -> Chain {
        self.chain
    }

    pub fn set(&self) -> &'static LpnParameters {
        self.chain.set(self.round)
    }

    pub fn round(&self) -> u64 {
        self.round
    }

    pub fn hash(&self) -> &OtHash {
        &self.hash
    }

    pub fn made(&self) -> u64 {
        self.made
    }

    pub fn left(&self) -> usize {
        self.ready - self.taken
    }

    /// The base's OTs for the levels of the trees, one tree after the other.
    pub fn of_trees(&self) -> &[Block] {
        let set = self.set();
        &self.base[set.secrets()..][..set.trees() * set.depth()]
    }

    /// The base's OTs for the check.
    pub fn of_check(&self) -> &[Block] {
        &self.base[self.set().base() - super::check::MASKS..]
    }

    /// A tree of this round. No other tree of any run has its key, but by chance: `context` names
    /// the connection and with it the set-up and the direction.
    pub fn tree(&self, number: usize) -> Tree {
        let number = u128::from(self.round) << TREE_BITS | number as u128;
        Tree::new(self.level, Block::from_u128(self.tree_key ^ number))
    }

    /// Calls `each` with every tree of the round, its number, and a buffer for its leaves, on all
    /// threads; the results in the order of the trees.
    pub fn for_trees<T: Send>(
        &self,
        each: impl Fn(&Tree, usize, &mut [Block], &mut Scratch) -> T + Sync,
    ) -> Vec<T> {
        let buffers = || {
            let leaves = Zeroizing::new(vec![Block::ZERO; self.set().leaves()]);
            (leaves, Scratch::boxed())
        };
        let trees = (0..self.set().trees()).into_par_iter();
        trees
            .with_min_len(LEAST_TREES)
            .map_init(buffers, |(leaves, scratch), number| {
                each(&self.tree(number), number, leaves, scratch)
            })
            .collect()
    }

    /// Ends the round before, whose trees are `trees`, if there is one: its reserved OTs become the
    /// base of the next.
    ///
    /// # Errors
    /// [`OtError::Exhausted`] when the run has made all it may.
    pub fn refill(&mut self, trees: &impl Trees) -> Result<(), OtError> {
        if self
            .made
            .saturating_add(self.chain.usable(self.round) as u64)
            > MOST
        {
            return Err(OtError::Exhausted);
        }
        if self.ready == 0 {
            return Ok(());
        }
        let set = self.set();
        let mut next = Table::zeros(self.chain.set(self.round + 1).base());
        let whole = next.len() / set.leaves();
        let (all, part) = next.split_at_mut(whole * set.leaves());
        self.make(trees, 0, all);
        if !part.is_empty() {
            let mut last = Zeroizing::new(vec![Block::ZERO; set.leaves()]);
            self.make(trees, whole, &mut last);
            part.copy_from_slice(&last[..part.len()]);
        }
        self.base = next;
        self.first_row += set.outputs() as u64;
        self.round += 1;
        (self.ready, self.taken) = (0, 0);
        Ok(())
    }

    /// Lets the OTs of the round be taken.
    pub fn open(&mut self) {
        let set = self.set();
        (self.ready, self.taken) = (self.chain.usable(self.round), 0);
        if self.tree_buffer.len() != set.leaves() {
            self.tree_buffer = Zeroizing::new(vec![Block::ZERO; set.leaves()]);
        }
    }

    /// Forgets the secrets of the round.
    pub fn wipe(&mut self) {
        self.base = Table::default();
        self.tree_buffer = Zeroizing::default();
        (self.ready, self.taken) = (0, 0);
    }

    /// Fills `blocks` with the next OTs; the number of the first.
    pub fn take(&mut self, trees: &impl Trees, mut blocks: &mut [Block]) -> Result<u64, OtError> {
        if blocks.len() > self.left() {
            return Err(OtError::RoundSpent {
                wanted: blocks.len(),
                left: self.left(),
            });
        }
        let first = self.made;
        let leaves = self.set().leaves();
        while !blocks.is_empty() {
            let tree = self.chain.reserved(self.round) + self.taken / leaves;
            let within = self.taken % leaves;
            let whole = match within {
                0 => blocks.len() - blocks.len() % leaves,
                _ => 0,
            };
            let count = match whole {
                0 => blocks.len().min(leaves - within),
                whole => whole,
            };
            let (now, later) = blocks.split_at_mut(count);
            if whole > 0 {
                self.make(trees, tree, now);
            } else {
                let mut buffer = std::mem::take(&mut self.tree_buffer);
                if within == 0 {
                    self.make(trees, tree, &mut buffer);
                }
                now.copy_from_slice(&buffer[within..within + count]);
                self.tree_buffer = buffer;
            }
            self.taken += count;
            self.made += count as u64;
            blocks = later;
        }
        Ok(first)
    }

    /// Fills `outputs` with the OTs of whole trees, the first of this number, on all threads.
    fn make(&self, trees: &impl Trees, first: usize, outputs: &mut [Block]) {
        let secrets = &self.base[..self.set().secrets()];
        let pieces = outputs.par_chunks_mut(self.set().leaves()).enumerate();
        pieces.for_each_init(Scratch::boxed, |scratch, (index, outputs)| {
            let number = first + index;
            trees.leaves(&self.tree(number), number, outputs, scratch);
            let row = self.first_row + (number * outputs.len()) as u64;
            self.code.fold(self.level, row, secrets, outputs);
        });
    }
}
