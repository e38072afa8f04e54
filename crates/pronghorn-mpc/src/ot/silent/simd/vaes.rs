//! A level of a tree with VAES on AVX-512, nodes being hashed in registers, and the sums of secrets
//! with their indices.

use std::arch::x86_64::*;

use super::{Level, gather};
use crate::{
    Block,
    aes::simd::{Counter, LANES, Vaes, rounds},
    ot::silent::code::{PER_BLOCK, WEIGHT},
};

/// As [`grow_in_steps`](super::grow_in_steps), for a multiple of [`LANES`] parents.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,aes,vaes")]
pub fn grow(cipher: &Vaes, level: Level, lefts: &mut [Block], rights: &mut [Block]) -> [Block; 2] {
    let (lefts, rights) = (
        bytemuck::cast_slice_mut(lefts),
        bytemuck::cast_slice_mut(rights),
    );
    // Which party this is is no secret.
    match level.is_whole() {
        true => Growth::<false>::new(cipher, level).run(lefts, rights),
        false => Growth::<true>::new(cipher, level).run(lefts, rights),
    }
}

/// Words of a vector.
type Words = [u64; 2 * LANES];

/// A level while it grows. Without `PUNCTURED` there is nothing to patch and nothing missing.
struct Growth<const PUNCTURED: bool> {
    keys: [__m512i; 11],
    patched: __m512i,
    patch: __m512i,
    missing: __m512i,
    /// The number of each word's parent.
    index: __m512i,
    sums: [__m512i; 2],
}

impl<const PUNCTURED: bool> Growth<PUNCTURED> {
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,aes,vaes")]
    fn new(cipher: &Vaes, level: Level) -> Self {
        Self {
            keys: cipher.keys(),
            patched: _mm512_set1_epi64(level.patch.index.into()),
            patch: _mm512_broadcast_i32x4(bytemuck::cast(level.patch.block)),
            missing: _mm512_set1_epi64(level.missing.into()),
            index: _mm512_set_epi64(3, 3, 2, 2, 1, 1, 0, 0),
            sums: [_mm512_setzero_si512(); 2],
        }
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,aes,vaes")]
    fn run(mut self, lefts: &mut [Words], rights: &mut [Words]) -> [Block; 2] {
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
        self.sums.map(|sum| {
            let blocks: [Block; LANES] = bytemuck::cast(sum);
            blocks
                .into_iter()
                .fold(Block::ZERO, |sum, block| sum ^ block)
        })
    }

    /// The children of `COUNT` vectors of parents.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,aes,vaes")]
    fn vectors<const COUNT: usize>(
        &mut self,
        lefts: &mut [Words; COUNT],
        rights: &mut [Words; COUNT],
    ) {
        let (mut parents, mut present) = ([self.patch; COUNT], [!0; COUNT]);
        for ((parent, present), words) in parents.iter_mut().zip(&mut present).zip(&*lefts) {
            *parent = bytemuck::cast(*words);
            if PUNCTURED {
                let patched = _mm512_cmpeq_epi64_mask(self.index, self.patched);
                *parent = _mm512_mask_xor_epi64(*parent, patched, *parent, self.patch);
                *present = _mm512_cmpneq_epi64_mask(self.index, self.missing);
                self.index = _mm512_add_epi64(self.index, _mm512_set1_epi64(LANES as i64));
            }
        }
        let mut inputs = parents;
        for input in &mut inputs {
            // Block::sigma: the words exchanged, and the new lower one added to the upper.
            let exchanged = _mm512_shuffle_epi32::<0x4e>(*input);
            *input = _mm512_xor_si512(exchanged, _mm512_bslli_epi128::<8>(exchanged));
        }
        let mut hashes = inputs;
        rounds(&self.keys, &mut hashes);
        for i in 0..COUNT {
            let left = _mm512_maskz_xor_epi64(present[i], hashes[i], inputs[i]);
            let right = _mm512_maskz_xor_epi64(present[i], left, parents[i]);
            lefts[i] = bytemuck::cast(left);
            rights[i] = bytemuck::cast(right);
            self.sums[0] = _mm512_xor_si512(self.sums[0], left);
            if PUNCTURED {
                self.sums[1] = _mm512_xor_si512(self.sums[1], right);
            }
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
