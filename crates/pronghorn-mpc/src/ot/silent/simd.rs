//! The loops of silent OT, for each SIMD level.
#![allow(unsafe_code)] // CPU intrinsics, calls of code for detected CPU features

#[cfg(target_arch = "x86_64")]
mod gather;
#[cfg(target_arch = "x86_64")]
mod vaes;

use pronghorn_ring::SimdLevel;

use super::{
    code::{PER_BLOCK, WEIGHT},
    tree::{Patch, Scratch},
};
#[cfg(target_arch = "x86_64")]
use crate::ot::simd::x86;
use crate::{
    Block,
    aes::{Aes128, BATCH},
    ot::simd::{Lanes, Scalar, WIDEST, at_every_level},
};

/// `level`, or the portable one for slices that are shorter than a vector.
fn fitting(level: SimdLevel, count: usize) -> SimdLevel {
    match count % WIDEST {
        0 => level,
        _ => SimdLevel::Portable,
    }
}

/// Vectors of blocks.
fn vectors<L: Lanes>(blocks: &[Block]) -> &[L::Words] {
    bytemuck::cast_slice(blocks)
}

fn vectors_mut<L: Lanes>(blocks: &mut [Block]) -> &mut [L::Words] {
    bytemuck::cast_slice_mut(blocks)
}

/// Numbers of the blocks of a vector, the first being `first`.
#[inline(always)]
fn numbers<L: Lanes>(lanes: L, first: u32) -> L::Vector {
    lanes.add(lanes.numbers(), lanes.splat(first.into()))
}

/// A patch in every place of a vector.
#[derive(Clone, Copy)]
struct Everywhere<L: Lanes> {
    index: L::Vector,
    block: L::Vector,
}

impl<L: Lanes> Everywhere<L> {
    #[inline(always)]
    fn new(lanes: L, patch: Patch) -> Self {
        Self {
            index: lanes.splat(patch.index.into()),
            block: lanes.splat_block(patch.block),
        }
    }

    /// `x` with the patch added to the block that has its number.
    #[inline(always)]
    fn apply(&self, lanes: L, x: L::Vector, numbers: L::Vector) -> L::Vector {
        let mask = lanes.equal(numbers, self.index);
        lanes.xor(x, lanes.and(self.block, mask))
    }
}

/// What is done to a level of a tree besides hashing.
#[derive(Clone, Copy)]
pub struct Level {
    /// Added to the parents.
    pub patch: Patch,
    /// The parent whose children are to be zero.
    pub missing: u32,
}

impl Level {
    /// Nothing, for the party that has all nodes.
    pub const WHOLE: Self = Self {
        patch: Patch::NONE,
        missing: Patch::NOWHERE,
    };

    fn is_whole(&self) -> bool {
        self.missing == Patch::NOWHERE
    }
}

/// One level of a tree: `nodes` has the parents in its lower half, and the left and the right
/// children in its halves afterwards. The sums of the left and of the right ones, the second of no
/// meaning for [`Level::WHOLE`].
pub fn grow(
    simd: SimdLevel,
    cipher: &Aes128,
    level: Level,
    nodes: &mut [Block],
    scratch: &mut Scratch,
) -> [Block; 2] {
    let (lefts, rights) = nodes.split_at_mut(nodes.len() / 2);
    #[cfg(target_arch = "x86_64")]
    if let Some(cipher) = cipher.vaes()
        && lefts.len().is_multiple_of(WIDEST)
    {
        return vaes::grow(cipher, level, lefts, rights);
    }
    grow_in_steps(simd, cipher, level, lefts, rights, scratch)
}

/// [`grow`] on any CPU, in batches: what is encrypted, the encryption, the children.
fn grow_in_steps(
    simd: SimdLevel,
    cipher: &Aes128,
    level: Level,
    lefts: &mut [Block],
    rights: &mut [Block],
    scratch: &mut Scratch,
) -> [Block; 2] {
    let mut sums = [Block::ZERO; 2];
    let chunks = lefts.chunks_mut(BATCH).zip(rights.chunks_mut(BATCH));
    for (first, (lefts, rights)) in (0..).step_by(BATCH).zip(chunks) {
        let Scratch { inputs, outputs } = scratch;
        let (inputs, outputs) = (&mut inputs[..lefts.len()], &mut outputs[..lefts.len()]);
        let simd = fitting(simd, lefts.len());
        hash_inputs(simd, first, level.patch, lefts, inputs);
        cipher.encrypt_to(inputs, outputs);
        let parents = Parents {
            first,
            missing: level.missing,
            inputs,
            outputs,
        };
        children(simd, &parents, lefts, rights, &mut sums);
    }
    sums
}

at_every_level! {
    /// Adds `patch` to the parents, of which the first has index `first`; `inputs` =
    /// `sigma(parent)`.
    fn hash_inputs(
        lanes, first: u32, patch: Patch, parents: &mut [Block], inputs: &mut [Block],
    ) {
        let patch = Everywhere::new(lanes, patch);
        let (mut index, step) = (numbers(lanes, first), lanes.splat(L::WORDS as u64 / 2));
        for (parent, input) in vectors_mut::<L>(parents).iter_mut().zip(vectors_mut::<L>(inputs)) {
            let x = patch.apply(lanes, lanes.load(parent), index);
            lanes.store(x, parent);
            lanes.store(lanes.sigma(x), input);
            index = lanes.add(index, step);
        }
    }
}

/// Parents and what their hashes are made of.
struct Parents<'a> {
    /// Index of the first.
    first: u32,
    /// The parent whose children are to be zero.
    missing: u32,
    /// `sigma` of the parents.
    inputs: &'a [Block],
    /// Its encryption.
    outputs: &'a [Block],
}

at_every_level! {
    /// From the parents, in `lefts`: their left and right children. Adds to `sums` those of the
    /// left and of the right ones.
    fn children(
        lanes, parents: &Parents<'_>, lefts: &mut [Block], rights: &mut [Block],
        sums: &mut [Block; 2],
    ) {
        let zero = lanes.splat(0);
        let missing = lanes.splat(parents.missing.into());
        let (mut index, step) = (numbers(lanes, parents.first), lanes.splat(L::WORDS as u64 / 2));
        let (mut left_sum, mut right_sum) = (zero, zero);
        let hashed = vectors::<L>(parents.inputs).iter().zip(vectors::<L>(parents.outputs));
        let nodes = vectors_mut::<L>(lefts).iter_mut().zip(vectors_mut::<L>(rights));
        for ((input, output), (left, right)) in hashed.zip(nodes) {
            let mask = lanes.equal(index, missing);
            let hash = lanes.xor(lanes.load(input), lanes.load(output));
            let other = lanes.select(mask, zero, lanes.xor(lanes.load(left), hash));
            let hash = lanes.select(mask, zero, hash);
            lanes.store(hash, left);
            lanes.store(other, right);
            left_sum = lanes.xor(left_sum, hash);
            right_sum = lanes.xor(right_sum, other);
            index = lanes.add(index, step);
        }
        sums[0] ^= sum_of(lanes, left_sum);
        sums[1] ^= sum_of(lanes, right_sum);
    }
}

/// The sum of the blocks of a vector.
#[inline(always)]
fn sum_of<L: Lanes>(lanes: L, x: L::Vector) -> Block {
    let mut blocks = [Block::ZERO; WIDEST];
    lanes.store(x, &mut vectors_mut::<L>(&mut blocks)[0]);
    blocks
        .into_iter()
        .fold(Block::ZERO, |sum, block| sum ^ block)
}

/// Adds `sibling` to the leaves, clears bit 0 of all, and adds `missing`.
pub fn finish(level: SimdLevel, leaves: &mut [Block], sibling: Patch, missing: Patch) {
    finish_at(fitting(level, leaves.len()), leaves, sibling, missing);
}

at_every_level! {
    fn finish_at(lanes, leaves: &mut [Block], sibling: Patch, missing: Patch) {
        let keep = lanes.splat_block(Block::from_u128(!1));
        let [sibling, missing] = [sibling, missing].map(|patch| Everywhere::new(lanes, patch));
        let (mut index, step) = (numbers(lanes, 0), lanes.splat(L::WORDS as u64 / 2));
        for leaf in vectors_mut::<L>(leaves) {
            let x = lanes.and(sibling.apply(lanes, lanes.load(leaf), index), keep);
            lanes.store(missing.apply(lanes, x, index), leaf);
            index = lanes.add(index, step);
        }
    }
}

/// Adds to each of `outputs` ten of `secrets`, of which there are a power of two. Their indices are
/// public: ten words for each output, of which the upper bits are dropped, from the encryptions of
/// `first` and so on.
pub fn fold(
    simd: SimdLevel,
    cipher: &Aes128,
    first: u64,
    secrets: &[Block],
    outputs: &mut [Block],
) {
    #[cfg(target_arch = "x86_64")]
    if let Some(cipher) = cipher.vaes()
        && outputs.len().is_multiple_of(ROWS)
    {
        return vaes::fold(cipher, first, secrets, outputs);
    }
    fold_in_steps(simd, cipher, first, secrets, outputs);
}

/// Outputs whose indices are made at a time: they fill whole vectors.
const ROWS: usize = 16;
const INDEX_BLOCKS: usize = ROWS * WEIGHT / PER_BLOCK;

/// [`fold`] on any CPU: the indices, then the sums. Secrets of large tables are asked for a step
/// ahead.
fn fold_in_steps(
    simd: SimdLevel,
    cipher: &Aes128,
    first: u64,
    secrets: &[Block],
    outputs: &mut [Block],
) {
    let mut next = [Block::ZERO; INDEX_BLOCKS];
    cipher.encrypt_counters(first, &mut next);
    let counters = (first..).step_by(INDEX_BLOCKS).skip(1);
    for (counter, outputs) in counters.zip(outputs.chunks_mut(ROWS)) {
        let now = next;
        cipher.encrypt_counters(counter, &mut next);
        #[cfg(target_arch = "x86_64")]
        if simd.or_best() > SimdLevel::Portable {
            // SAFETY: the CPU has AVX2.
            unsafe {
                if gather::is_far(secrets) {
                    gather::prefetch(secrets, bytemuck::cast_slice(&next));
                }
                gather::gather(secrets, bytemuck::cast_slice(&now), outputs);
            }
            continue;
        }
        let _ = simd;
        gather_portable(secrets, bytemuck::cast_slice(&now), outputs);
    }
}

fn gather_portable(secrets: &[Block], rows: &[[u32; WEIGHT]], outputs: &mut [Block]) {
    let mask = secrets.len() - 1;
    for (row, output) in rows.iter().zip(outputs) {
        for index in row {
            *output ^= secrets[u32::from_le(*index) as usize & mask];
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pronghorn_ring::random::{Prg, Seed};

    fn blocks(count: usize) -> Vec<Block> {
        let mut blocks = vec![Block::ZERO; count];
        Prg::new(&Seed::from_bytes([9; 32]), "pronghorn test")
            .stream(count as u64)
            .fill(bytemuck::cast_slice_mut(&mut blocks));
        blocks
    }

    /// One level by its definition.
    fn grow_reference(cipher: &Aes128, level: Level, nodes: &mut [Block]) -> [Block; 2] {
        let (lefts, rights) = nodes.split_at_mut(nodes.len() / 2);
        let mut sums = [Block::ZERO; 2];
        for (index, (left, right)) in (0..).zip(lefts.iter_mut().zip(rights)) {
            let parent = *left ^ level.patch.block.masked(index == level.patch.index);
            let mut hash = [parent.sigma()];
            cipher.encrypt(&mut hash);
            let hash = hash[0] ^ parent.sigma();
            let present = index != level.missing;
            (*left, *right) = (hash.masked(present), (hash ^ parent).masked(present));
            sums[0] ^= *left;
            sums[1] ^= *right;
        }
        sums
    }

    #[test]
    fn growth_is_the_reference_at_every_level() {
        for log in 1..=9 {
            let parents = 1 << log;
            let nodes = blocks(2 * parents as usize);
            let block = Block::from_u128(0x5555 << 70 | 3);
            let patches = [0, 1, parents / 2 + 1, parents - 1, Patch::NOWHERE];
            for (index, missing) in patches
                .into_iter()
                .zip([1, 0, parents - 1, 2, Patch::NOWHERE])
            {
                let level = Level {
                    patch: Patch { index, block },
                    missing,
                };
                let key = Block::from_u128(0xabc);
                let mut expected = nodes.clone();
                let sums = grow_reference(&Aes128::new(key), level, &mut expected);
                for simd in SimdLevel::available() {
                    let mut found = nodes.clone();
                    let cipher = Aes128::new_at(simd, key);
                    let scratch = &mut Scratch::new();
                    let found_sums = grow(simd, &cipher, level, &mut found, scratch);
                    assert!(found == expected, "{simd:?} {parents} {index} {missing}");
                    assert!(found_sums[0] == sums[0]);
                    assert!(level.is_whole() || found_sums[1] == sums[1]);
                }
            }
        }
    }

    #[test]
    fn ends_are_the_reference_at_every_level() {
        for count in [2u32, 4, 8, 64, 256] {
            let leaves = blocks(count as usize);
            let [sibling, missing] = [0x8181, 0x7777].map(Block::from_u128);
            for (at, other) in [(0, 1), (count - 1, 0), (Patch::NOWHERE, Patch::NOWHERE)] {
                let expected: Vec<Block> = (0..)
                    .zip(&leaves)
                    .map(|(x, leaf)| {
                        let leaf = *leaf ^ sibling.masked(x == at);
                        Block::from_u128(leaf.to_u128() & !1) ^ missing.masked(x == other)
                    })
                    .collect();
                let patch = |index, block| Patch { index, block };
                for simd in SimdLevel::available() {
                    let mut found = leaves.clone();
                    finish(simd, &mut found, patch(at, sibling), patch(other, missing));
                    assert!(found == expected, "{simd:?} {count} {at}");
                }
            }
        }
    }

    #[test]
    fn sums_of_secrets_are_the_reference_at_every_level() {
        let key = Block::from_u128(0xdef);
        let cases = [(0, 2, 0), (3, 4, 5), (9, 16, 40), (12, 64, 1 << 40)];
        // The last table is large enough to be asked for ahead.
        for (log, count, first) in cases.into_iter().chain([(18, 48, 9)]) {
            let secrets = blocks(1 << log);
            let before = blocks(count + 1)[1..].to_vec();
            let mut words = vec![Block::ZERO; count * WEIGHT / PER_BLOCK];
            Aes128::new(key).encrypt_counters(first, &mut words);
            let indices: Vec<u32> = words
                .iter()
                .flat_map(|block| [0, 32, 64, 96].map(|shift| (block.to_u128() >> shift) as u32))
                .collect();
            let expected: Vec<Block> = before
                .iter()
                .zip(indices.chunks(WEIGHT))
                .map(|(before, row)| {
                    let secret = |index: &u32| secrets[*index as usize % secrets.len()];
                    row.iter()
                        .map(secret)
                        .fold(*before, |sum, secret| sum ^ secret)
                })
                .collect();
            for simd in SimdLevel::available() {
                let mut found = before.clone();
                fold(
                    simd,
                    &Aes128::new_at(simd, key),
                    first,
                    &secrets,
                    &mut found,
                );
                assert!(found == expected, "{simd:?} {log} {count}");
            }
        }
    }
}
