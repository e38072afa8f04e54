//! The loops of silent OT, for each SIMD level.
#![allow(unsafe_code)] // CPU intrinsics, calls of code for detected CPU features

use pronghorn_ring::SimdLevel;

use super::{code::WEIGHT, tree::Patch};
use crate::{
    Block,
    ot::simd::{Lanes, Scalar, at_every_level, x86},
};

/// The words of blocks.
fn words(blocks: &[Block]) -> &[[u64; 2]] {
    bytemuck::cast_slice(blocks)
}

fn words_mut(blocks: &mut [Block]) -> &mut [[u64; 2]] {
    bytemuck::cast_slice_mut(blocks)
}

/// All ones where `x = y`, without a branch.
#[inline(always)]
fn equal(x: u32, y: u32) -> u64 {
    // x ^ y - 1 has its top bit set for zero alone, both being below 2^32.
    (((u64::from(x ^ y)).wrapping_sub(1) as i64) >> 63) as u64
}

at_every_level! {
    /// Adds `patch` to the parents, of which the first has index `first`; `inputs` = `sigma(parent)`.
    pub fn inputs(_lanes, first: u32, patch: Patch, parents: &mut [Block], inputs: &mut [Block]) {
        let [low, high]: [u64; 2] = bytemuck::cast(patch.block);
        let nodes = words_mut(parents).iter_mut().zip(words_mut(inputs));
        for (index, (parent, input)) in (first..).zip(nodes) {
            let mask = equal(index, patch.index);
            let (x, y) = (parent[0] ^ low & mask, parent[1] ^ high & mask);
            *parent = [x, y];
            *input = [y, x ^ y];
        }
    }
}

at_every_level! {
    /// From the parents, in `lefts`, and what was encrypted: their children, those of node `missing`
    /// being zero, and the sums of the left and of the right ones.
    pub fn children(
        _lanes, first: u32, missing: u32, inputs: &[Block], outputs: &[Block], lefts: &mut [Block],
        rights: &mut [Block], sums: &mut [Block; 2],
    ) {
        let mut total = [[0; 2]; 2];
        let hashed = words(inputs).iter().zip(words(outputs));
        let nodes = words_mut(lefts).iter_mut().zip(words_mut(rights));
        for (index, ((input, output), (left, right))) in (first..).zip(hashed.zip(nodes)) {
            let mask = !equal(index, missing);
            for word in 0..2 {
                let hash = input[word] ^ output[word];
                right[word] = (left[word] ^ hash) & mask;
                left[word] = hash & mask;
                total[0][word] ^= left[word];
                total[1][word] ^= right[word];
            }
        }
        for (sum, total) in sums.iter_mut().zip(total) {
            *sum ^= bytemuck::cast(total);
        }
    }
}

at_every_level! {
    /// Adds `sibling` to the leaves, clears bit 0 of all, and adds `missing`.
    pub fn finish(_lanes, leaves: &mut [Block], sibling: Patch, missing: Patch) {
        let sibling_words: [u64; 2] = bytemuck::cast(sibling.block);
        let missing_words: [u64; 2] = bytemuck::cast(missing.block);
        let keep: [u64; 2] = bytemuck::cast(Block::from_u128(!1));
        for (index, leaf) in (0..).zip(words_mut(leaves)) {
            let (by_sibling, by_missing) = (equal(index, sibling.index), equal(index, missing.index));
            for word in 0..2 {
                leaf[word] = (leaf[word] ^ sibling_words[word] & by_sibling) & keep[word]
                    ^ missing_words[word] & by_missing;
            }
        }
    }
}

/// Adds to each of `outputs` ten of `secrets`, of which there are a power of two. Their indices are
/// public: ten words for each output, of which the upper bits are dropped.
pub fn gather(_level: SimdLevel, secrets: &[Block], indices: &[u32], outputs: &mut [Block]) {
    assert!(secrets.len().is_power_of_two());
    let mask = secrets.len() - 1;
    let (rows, _) = indices.as_chunks::<WEIGHT>();
    for (row, output) in rows.iter().zip(outputs) {
        let mut sum = *output;
        for index in row {
            sum ^= secrets[u32::from_le(*index) as usize & mask];
        }
        *output = sum;
    }
}
