//! The consistency check of a batch: what is hashed, and how (see [`super::extension`] for what it
//! proves).

use pronghorn_ring::SimdLevel;
use zeroize::Zeroize;

use super::{error::OtError, simd::inner_product_with_public};
use crate::Block;

/// The receiver's message: the hash of its choices and of each of its columns.
pub(crate) struct Hashed {
    choices: Block,
    columns: [Block; Block::BITS],
}

impl Hashed {
    pub const BYTES: usize = Block::BYTES * (1 + Block::BITS);

    pub fn bytes(&self) -> Vec<u8> {
        let columns = self.columns.iter();
        let blocks = std::iter::once(&self.choices).chain(columns);
        blocks.flat_map(|block| block.to_bytes()).collect()
    }

    /// Of exactly [`Hashed::BYTES`] bytes.
    pub fn read(bytes: &[u8]) -> Self {
        let (blocks, _) = bytes.as_chunks::<{ Block::BYTES }>();
        Self {
            choices: Block::from_bytes(blocks[0]),
            columns: std::array::from_fn(|c| Block::from_bytes(blocks[c + 1])),
        }
    }
}

/// The coefficients of one batch.
pub(crate) struct Check {
    coefficients: Vec<Block>,
}

impl Check {
    /// A coefficient for each block of a column, from everything the receiver has committed itself
    /// to. The last one, for the OTs that mask the others, is 1.
    pub fn new(connection: &[u8; 32], position: u64, corrections: &[u8], blocks: usize) -> Self {
        let mut hasher = blake3::Hasher::new_derive_key("pronghorn ot consistency check");
        hasher.update(connection);
        hasher.update(&position.to_le_bytes());
        hasher.update(&(blocks as u64).to_le_bytes());
        hasher.update(corrections);
        let mut coefficients = vec![Block::ZERO; blocks];
        let (last, others) = coefficients.split_last_mut().expect("one block at least");
        hasher.finalize_xof().fill(bytemuck::cast_slice_mut(others));
        *last = Block::from_u128(1);
        Self { coefficients }
    }

    /// The hashes of the receiver's choices and columns.
    pub fn hash(
        &self,
        level: SimdLevel,
        choices: &[Block],
        columns: &[Block],
        stride: usize,
    ) -> Hashed {
        let blocks = self.coefficients.len();
        let hash = |x: &[Block]| self.hash_one(level, &x[..blocks]);
        Hashed {
            choices: hash(choices),
            columns: std::array::from_fn(|c| hash(&columns[c * stride..])),
        }
    }

    /// Compares the sender's columns with what the receiver claims.
    pub fn verify(
        &self,
        level: SimdLevel,
        columns: &[Block],
        stride: usize,
        delta: Block,
        claimed: &Hashed,
    ) -> Result<(), OtError> {
        let blocks = self.coefficients.len();
        let mut difference = Block::ZERO;
        for (c, claim) in claimed.columns.iter().enumerate() {
            let found = self.hash_one(level, &columns[c * stride..][..blocks]);
            let expected = *claim ^ claimed.choices.masked(delta.to_u128() >> c & 1 == 1);
            difference = Block::from_u128(difference.to_u128() | (found ^ expected).to_u128());
        }
        let consistent = difference == Block::ZERO;
        difference.zeroize();
        match consistent {
            true => Ok(()),
            false => Err(OtError::Inconsistent),
        }
    }

    fn hash_one(&self, level: SimdLevel, column: &[Block]) -> Block {
        linear_hash(level, column, &self.coefficients)
    }
}

/// `sum_j x[j] * y[j]` in GF(2^128), `y` public.
pub(crate) fn linear_hash(level: SimdLevel, x: &[Block], y: &[Block]) -> Block {
    let (lower, upper) = inner_product_with_public(level, x, y);
    Block::from_u128(reduce(lower, upper))
}

/// The polynomial modulo `x^128 + x^7 + x^2 + x + 1`.
fn reduce(lower: u128, upper: u128) -> u128 {
    // x^128 = x^7 + x^2 + x + 1; what that lifts above x^127 again has degree 6 at most.
    let times = |x: u128| (x << 7) ^ (x << 2) ^ (x << 1) ^ x;
    let over = (upper >> 121) ^ (upper >> 126) ^ (upper >> 127);
    lower ^ times(upper) ^ times(over)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Long division.
    fn reduce_reference(lower: u128, upper: u128) -> u128 {
        let (mut lower, mut upper) = (lower, upper);
        for bit in (0..128).rev() {
            let leading = upper >> bit & 1;
            for power in [0, 1, 2, 7] {
                match bit + power {
                    low @ 0..128 => lower ^= leading << low,
                    high => upper ^= leading << (high - 128),
                }
            }
        }
        lower
    }

    #[test]
    fn reduction_is_long_division() {
        for bit in 0..128 {
            assert_eq!(reduce(3, 1 << bit), reduce_reference(3, 1 << bit));
        }
        assert_eq!(
            reduce(0, u128::MAX),
            (0..128).fold(0, |sum, bit| sum ^ reduce(0, 1 << bit))
        );
        // GHASH's field with its bits the other way round: x^128 = 0x87.
        assert_eq!(reduce(0, 1), 0x87);
    }

    #[test]
    fn a_changed_hash_is_noticed() {
        let level = SimdLevel::detect();
        let columns: Vec<Block> = (0..256)
            .map(|i| Block::from_u128((i << 77) + i * i))
            .collect();
        let choices = [Block::from_u128(12), Block::from_u128(34)];
        let check = Check::new(&[1; 32], 0, &[2; 32], 2);
        let delta = Block::from_u128(0x55 << 100 | 1);
        let sender: Vec<Block> = (0..256)
            .map(|i| columns[i] ^ choices[i % 2].masked(delta.to_u128() >> (i / 2) & 1 == 1))
            .collect();
        let bytes = check.hash(level, &choices, &columns, 2).bytes();
        let verify = |bytes: &[u8]| check.verify(level, &sender, 2, delta, &Hashed::read(bytes));
        assert!(verify(&bytes).is_ok());
        for at in 0..Hashed::BYTES {
            let mut bytes = bytes.clone();
            bytes[at] ^= 0x10;
            assert!(matches!(verify(&bytes), Err(OtError::Inconsistent)));
        }
    }
}
