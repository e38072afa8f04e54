//! A level of a tree with VAES, nodes being hashed in registers, and the sums of secrets with their
//! indices.

use std::array;

use super::{INDEX_BLOCKS, Level, ROWS, gather};
use crate::{
    Block,
    aes::simd::{Counter, Rounds, Vaes, Vector, Words, at_both_widths, rounds},
    ot::simd::Lanes,
};

at_both_widths! {
    /// As [`grow_in_steps`](super::grow_in_steps), for a multiple of [`WIDEST`](super::WIDEST)
    /// parents.
    pub fn grow(aes, cipher, level: Level, lefts: &mut [Block], rights: &mut [Block]) -> [Block; 2] {
        let (lefts, rights) = (
            bytemuck::cast_slice_mut(lefts),
            bytemuck::cast_slice_mut(rights),
        );
        // Which party this is is no secret.
        match level.is_whole() {
            true => Growth::<R, false>::new(aes, cipher, level).run(lefts, rights),
            false => Growth::<R, true>::new(aes, cipher, level).run(lefts, rights),
        }
    }
}

/// A level while it grows. Without `PUNCTURED` there is nothing to patch and nothing missing.
struct Growth<R: Rounds, const PUNCTURED: bool> {
    aes: R,
    keys: [Vector<R>; 11],
    patched: Vector<R>,
    patch: Vector<R>,
    missing: Vector<R>,
    /// The number of each word's parent.
    index: Vector<R>,
    sums: [Vector<R>; 2],
}

impl<R: Rounds, const PUNCTURED: bool> Growth<R, PUNCTURED> {
    #[inline(always)]
    fn new(aes: R, cipher: &Vaes, level: Level) -> Self {
        let lanes = aes.lanes();
        Self {
            aes,
            keys: cipher.keys(aes),
            patched: lanes.splat(level.patch.index.into()),
            patch: lanes.splat_block(level.patch.block),
            missing: lanes.splat(level.missing.into()),
            index: lanes.numbers(),
            sums: [lanes.splat(0); 2],
        }
    }

    #[inline(always)]
    fn run(mut self, lefts: &mut [Words<R>], rights: &mut [Words<R>]) -> [Block; 2] {
        let (many_lefts, lefts) = lefts.as_chunks_mut::<8>();
        let (many_rights, rights) = rights.as_chunks_mut::<8>();
        for (lefts, rights) in many_lefts.iter_mut().zip(many_rights) {
            self.vectors(lefts, rights);
        }
        let (many_lefts, lefts) = lefts.as_chunks_mut::<4>();
        let (many_rights, rights) = rights.as_chunks_mut::<4>();
        for (lefts, rights) in many_lefts.iter_mut().zip(many_rights) {
            self.vectors(lefts, rights);
        }
        for (left, right) in lefts.iter_mut().zip(rights) {
            self.vectors(array::from_mut(left), array::from_mut(right));
        }
        self.sums.map(|sum| super::sum_of(self.aes.lanes(), sum))
    }

    /// The children of `COUNT` vectors of parents.
    #[inline(always)]
    fn vectors<const COUNT: usize>(
        &mut self,
        lefts: &mut [Words<R>; COUNT],
        rights: &mut [Words<R>; COUNT],
    ) {
        let lanes = self.aes.lanes();
        let (mut parents, mut absent) = ([self.patch; COUNT], [self.patch; COUNT]);
        for ((parent, absent), words) in parents.iter_mut().zip(&mut absent).zip(&*lefts) {
            *parent = lanes.load(words);
            if PUNCTURED {
                let patched = lanes.equal(self.index, self.patched);
                *parent = lanes.xor(*parent, lanes.and(self.patch, patched));
                *absent = lanes.equal(self.index, self.missing);
                self.index = lanes.add(self.index, lanes.splat(R::BLOCKS as u64));
            }
        }
        let mut inputs = parents;
        for input in &mut inputs {
            *input = lanes.sigma(*input);
        }
        let mut hashes = inputs;
        rounds(self.aes, &self.keys, &mut hashes);
        let zero = lanes.splat(0);
        for i in 0..COUNT {
            let mut left = lanes.xor(hashes[i], inputs[i]);
            let mut right = lanes.xor(left, parents[i]);
            if PUNCTURED {
                left = lanes.select(absent[i], zero, left);
                right = lanes.select(absent[i], zero, right);
                self.sums[1] = lanes.xor(self.sums[1], right);
            }
            lanes.store(left, &mut lefts[i]);
            lanes.store(right, &mut rights[i]);
            self.sums[0] = lanes.xor(self.sums[0], left);
        }
    }
}

/// Vectors that go through the rounds side by side.
const SIDE_BY_SIDE: usize = 10;

at_both_widths! {
    /// As [`fold_in_steps`](super::fold_in_steps), for a multiple of [`ROWS`] outputs. Secrets of
    /// large tables are asked for a step ahead, while those of the step before are added.
    pub fn fold(aes, cipher, first: u64, secrets: &[Block], outputs: &mut [Block]) {
        let (keys, mut counter) = (cipher.keys(aes), Counter::new(aes, first));
        let is_far = gather::is_far(secrets);
        let mut next = indices(aes, &keys, &mut counter);
        for outputs in outputs.as_chunks_mut::<ROWS>().0 {
            let now = next;
            next = indices(aes, &keys, &mut counter);
            // SAFETY: both widths have AVX2.
            unsafe {
                if is_far {
                    gather::prefetch(secrets, bytemuck::cast_slice(&next));
                }
                gather::gather(secrets, bytemuck::cast_slice(&now), outputs);
            }
        }
    }
}

/// The indices of the outputs of the next step.
#[inline(always)]
fn indices<R: Rounds>(
    aes: R,
    keys: &[Vector<R>; 11],
    counter: &mut Counter<R>,
) -> [Block; INDEX_BLOCKS] {
    let mut blocks = [Block::ZERO; INDEX_BLOCKS];
    let words: &mut [Words<R>] = bytemuck::cast_slice_mut(&mut blocks);
    for words in words.as_chunks_mut::<SIDE_BY_SIDE>().0 {
        let mut x = counter.next::<SIDE_BY_SIDE>();
        rounds(aes, keys, &mut x);
        for (x, words) in x.into_iter().zip(words) {
            aes.lanes().store(x, words);
        }
    }
    blocks
}
