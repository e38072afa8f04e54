//! The columns of one strip.

use pronghorn_ring::SimdLevel;
use zeroize::{Zeroize, ZeroizeOnDrop};

use super::Chunk;
use crate::{
    Block,
    aes::{Aes128, BATCH},
    ot::{base::Key, simd},
};

/// Leaves that are summed up at a time.
const GROUP: usize = 16;

/// The pseudorandom columns of one strip.
pub(super) struct Strip {
    /// Its bits.
    pub columns: std::ops::Range<usize>,
    /// AES keys of its leaves, in order.
    leaves: Vec<Aes128>,
    /// Leaves before the first one in `leaves`: 1 where leaf 0 is the one that is missing.
    pub missing: usize,
}

impl Strip {
    pub fn new(
        columns: std::ops::Range<usize>,
        leaves: &[Key],
        missing: usize,
        connection: &[u8; 32],
    ) -> Self {
        let leaves = leaves[missing..].iter().map(|leaf| {
            let mut hash = blake3::keyed_hash(leaf, connection);
            let (key, _) = hash.as_bytes().split_at(Block::BYTES);
            let mut key = Block::from_bytes(key.try_into().expect("16 bytes"));
            let cipher = Aes128::new(key);
            key.zeroize();
            hash.zeroize();
            cipher
        });
        Self {
            columns,
            leaves: leaves.collect(),
            missing,
        }
    }

    /// For the blocks whose numbers are encrypted as `counters`: `bits[b]` = the sum of the leaves
    /// with bit `b`, `total` = the sum of all of them.
    pub fn expand(&self, level: SimdLevel, counters: &Chunk, scratch: &mut Scratch) {
        let width = self.columns.len();
        let low = width.min(GROUP.ilog2() as usize);
        let Scratch {
            leaves,
            groups,
            bits,
            total,
        } = scratch;
        let bits = &mut bits[..width];
        bits.as_flattened_mut().fill(Block::ZERO);
        let (bits_low, bits_high) = bits.split_at_mut(low);
        let groups = &mut groups[..1 << (width - low)];
        for (group, sum) in groups.iter_mut().enumerate() {
            let leaves = &mut leaves[..1 << low];
            for (leaf, out) in leaves.iter_mut().enumerate() {
                match ((group << low) + leaf).checked_sub(self.missing) {
                    Some(index) => self.leaves[index].encrypt_to(counters, out),
                    None => out.fill(Block::ZERO),
                }
            }
            simd::fold(level, leaves, bits_low, sum);
        }
        simd::fold(level, groups, bits_high, total);
    }
}

/// Chunks of a strip while it is made; wiped on drop.
#[derive(Zeroize, ZeroizeOnDrop)]
pub(super) struct Scratch {
    leaves: Vec<Chunk>,
    groups: Vec<Chunk>,
    pub bits: Vec<Chunk>,
    pub total: Chunk,
}

impl Scratch {
    pub fn new() -> Self {
        let chunk = [Block::ZERO; BATCH];
        Self {
            leaves: vec![chunk; GROUP],
            groups: vec![chunk; GROUP],
            bits: vec![chunk; 8],
            total: chunk,
        }
    }
}
