//! A level of a tree with VAES on AVX-512, nodes being hashed in registers, and the sums of secrets with
//! their indices.

use std::arch::x86_64::*;

use super::{Everywhere, Level, gather, numbers, sum_of};
use crate::{
    Block,
    aes::simd::{Counter, LANES, Vaes, rounds},
    ot::{
        silent::code::{PER_BLOCK, WEIGHT},
        simd::{Lanes, x86::Avx512},
    },
};

/// As [`grow_in_steps`](super::grow_in_steps), for a multiple of [`LANES`] parents.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,aes,vaes")]
pub fn grow(cipher: &Vaes, level: Level, lefts: &mut [Block], rights: &mut [Block]) -> [Block; 2] {
    // SAFETY: this function runs with the features of the token.
    let lanes = unsafe { Avx512::new() };
    let mut state = State {
        lanes,
        keys: cipher.keys(),
        patch: Everywhere::new(lanes, level.patch),
        missing: lanes.splat(level.missing.into()),
        index: numbers(lanes, 0),
        sums: [lanes.splat(0); 2],
    };
    let (lefts, rights) = (bytemuck::cast_slice_mut(lefts), bytemuck::cast_slice_mut(rights));
    state.run(lefts, rights);
    state.sums.map(|sum| sum_of(lanes, sum))
}

/// Words of a vector.
type Words = [u64; 2 * LANES];

struct State {
    lanes: Avx512,
    keys: [__m512i; 11],
    patch: Everywhere<Avx512>,
    missing: __m512i,
    index: __m512i,
    sums: [__m512i; 2],
}

impl State {
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,aes,vaes")]
    fn run(&mut self, lefts: &mut [Words], rights: &mut [Words]) {
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
            self.vectors(std::array::from_mut(left), std::array::from_mut(right));
        }
    }

    /// The children of `COUNT` vectors of parents.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,aes,vaes")]
    fn vectors<const COUNT: usize>(
        &mut self,
        lefts: &mut [Words; COUNT],
        rights: &mut [Words; COUNT],
    ) {
        let lanes = self.lanes;
        let zero = lanes.splat(0);
        let mut parents = [zero; COUNT];
        let mut keep = [zero; COUNT];
        for ((parent, keep), words) in parents.iter_mut().zip(&mut keep).zip(&*lefts) {
            *parent = self.patch.apply(lanes, lanes.load(words), self.index);
            *keep = lanes.equal(self.index, self.missing);
            self.index = lanes.add(self.index, lanes.splat(LANES as u64));
        }
        let inputs = parents.map(|parent| lanes.sigma(parent));
        let mut hashes = inputs;
        rounds(&self.keys, &mut hashes);
        for i in 0..COUNT {
            let hash = lanes.xor(hashes[i], inputs[i]);
            let left = lanes.select(keep[i], zero, hash);
            let right = lanes.select(keep[i], zero, lanes.xor(hash, parents[i]));
            lanes.store(left, &mut lefts[i]);
            lanes.store(right, &mut rights[i]);
            self.sums = [lanes.xor(self.sums[0], left), lanes.xor(self.sums[1], right)];
        }
    }
}

/// Outputs of a step, whose indices fill whole vectors.
pub const ROWS: usize = 8;
const INDEX_VECTORS: usize = ROWS * WEIGHT / PER_BLOCK / LANES;

/// As [`fold_in_steps`](super::fold_in_steps), for a multiple of [`ROWS`] outputs. The indices of a
/// step are encrypted while the secrets of the step before are on their way from memory.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,aes,vaes")]
pub fn fold(cipher: &Vaes, first: u64, secrets: &[Block], outputs: &mut [Block]) {
    let keys = cipher.keys();
    let mut counter = Counter::new(first);
    let mut next = counter.next::<INDEX_VECTORS>();
    rounds(&keys, &mut next);
    for outputs in outputs.as_chunks_mut::<ROWS>().0 {
        let indices: [[u32; WEIGHT]; ROWS] = bytemuck::cast(next);
        next = counter.next();
        rounds(&keys, &mut next);
        gather::gather(secrets, &indices, outputs);
    }
}
