//! The code: which secrets are added to each output.

use pronghorn_ring::SimdLevel;

use super::simd;
use crate::{Block, aes::Aes128};

/// Secrets that are added to an output.
pub const WEIGHT: usize = 10;
/// Indices in a block.
pub const PER_BLOCK: usize = size_of::<Block>() / size_of::<u32>();

/// A stream of rows of [`WEIGHT`] uniform indices, from AES-128 in counter mode under a public key.
///
/// Index `e` of row `j` is word `10 j + e` of the stream, 32 bits, little-endian, modulo the number
/// of secrets. Rows are counted over all rounds, so that no two rounds use one matrix.
pub struct Code {
    cipher: Aes128,
}

impl Code {
    pub fn new(level: SimdLevel, key: Block) -> Self {
        Self {
            cipher: Aes128::new_at(level, key),
        }
    }

    /// Adds to each of `outputs` the secrets of its row, the first being row `first`. The number of
    /// secrets is a power of two, `first` and the number of outputs are even.
    pub fn fold(&self, level: SimdLevel, first: u64, secrets: &[Block], outputs: &mut [Block]) {
        let counter = first / 2 * (2 * WEIGHT / PER_BLOCK) as u64;
        simd::fold(level, &self.cipher, counter, secrets, outputs);
    }
}
