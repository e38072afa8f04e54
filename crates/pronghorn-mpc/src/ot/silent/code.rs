//! The code: which secrets are added to each output.

use pronghorn_ring::SimdLevel;

use super::simd;
use crate::{Block, aes::Aes128};

/// Secrets that are added to an output.
pub const WEIGHT: usize = 10;
/// Rows whose indices are made at a time: [`INDEX_BLOCKS`] blocks of AES.
const ROWS: usize = 64;
/// Indices in a block.
const PER_BLOCK: usize = size_of::<Block>() / size_of::<u32>();
const INDEX_BLOCKS: usize = ROWS * WEIGHT / PER_BLOCK;

/// A stream of rows of [`WEIGHT`] uniform indices, from AES-128 in counter mode under a public key.
///
/// Index `e` of row `j` is word `10 j + e` of the stream, 32 bits, little-endian, modulo the number of
/// secrets. Rows are counted over all rounds, so that no two rounds use one matrix.
pub struct Code {
    cipher: Aes128,
    indices: Vec<Block>,
}

impl Code {
    pub fn new(key: Block) -> Self {
        Self {
            cipher: Aes128::new(key),
            indices: vec![Block::ZERO; INDEX_BLOCKS],
        }
    }

    /// Adds to each of `outputs` the secrets of its row, the first being row `first`. The number of
    /// secrets is a power of two, `first` and the number of outputs are even.
    pub fn fold(
        &mut self,
        level: SimdLevel,
        first: u64,
        secrets: &[Block],
        outputs: &mut [Block],
    ) {
        let rows = (first..).step_by(ROWS);
        for (first, outputs) in rows.zip(outputs.chunks_mut(ROWS)) {
            let indices = &mut self.indices[..outputs.len() * WEIGHT / PER_BLOCK];
            let counter = first / 2 * (2 * WEIGHT / PER_BLOCK) as u64;
            self.cipher.encrypt_counters(counter, indices);
            simd::gather(level, secrets, bytemuck::cast_slice(indices), outputs);
        }
    }
}
