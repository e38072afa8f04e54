//! Four labels in a vector of 512 bits: AVX-512 F, BW, DQ and VL, and VAES.

use std::arch::x86_64::*;

use super::lanes::{Lanes, RCON, ROUNDS};
use crate::Block;
use crate::circuit::TILE;

/// Proof that the CPU has AVX-512 F, BW, DQ, VL and VAES.
#[derive(Clone, Copy)]
pub struct Vaes(());

impl Vaes {
    /// # Safety
    /// The CPU must have AVX-512 F, BW, DQ, VL and VAES.
    #[inline(always)]
    pub unsafe fn new() -> Self {
        Self(())
    }
}

/// An empty instruction that reads and writes four registers: it makes the compiler keep chains of
/// rounds side by side, where it would rather finish one after the other to save registers.
#[inline]
#[target_feature(enable = "avx512f")]
fn use_four(vectors: &mut [__m512i; 4]) {
    let [a, b, c, d] = vectors;
    // SAFETY: a comment does nothing.
    unsafe {
        std::arch::asm!(
            "/* {} {} {} {} */",
            inlateout(zmm_reg) * a,
            inlateout(zmm_reg) * b,
            inlateout(zmm_reg) * c,
            inlateout(zmm_reg) * d,
            options(nomem, nostack, preserves_flags)
        );
    }
}

/// The round key behind `key` (FIPS 197, section 5.2). With the last word, rotated, in all columns,
/// ShiftRows changes nothing, and the last round of an encryption is SubWord plus the round
/// constant.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,vaes")]
fn next_round_key(key: __m512i, round: usize) -> __m512i {
    let last = _mm512_shuffle_epi8(key, _mm512_set1_epi32(0x0c0f_0e0d));
    let word = _mm512_aesenclast_epi128(last, _mm512_set1_epi32(RCON[round]));
    let two = _mm512_xor_si512(key, _mm512_bslli_epi128::<4>(key));
    let four = _mm512_bslli_epi128::<8>(two);
    _mm512_ternarylogic_epi64::<0x96>(two, four, word)
}

/// `start + counter`, `start + counter + 1`, ...
#[inline]
#[target_feature(enable = "avx512f,avx512dq")]
fn first_round_key(start: __m512i, counter: u64) -> __m512i {
    let counter = counter as i64;
    let counters = _mm512_set_epi64(0, counter + 3, 0, counter + 2, 0, counter + 1, 0, counter);
    _mm512_xor_si512(start, counters)
}

impl Lanes for Vaes {
    const COUNT: usize = 4;
    type Vector = __m512i;
    type Mask = __mmask8;
    type Keys = [__m512i; ROUNDS + 1];

    #[inline(always)]
    fn load_row(self, from: &[u8], at: usize) -> __m512i {
        let from = &from[16 * at..][..16 * Self::COUNT];
        // SAFETY: the token is proof of the instructions, and the slice has as many bytes as the
        // vector.
        unsafe { _mm512_loadu_si512(from.as_ptr().cast()) }
    }

    #[inline(always)]
    fn store(self, to: &mut [Block; TILE], at: usize, vector: __m512i) {
        let to = &mut to[at..at + Self::COUNT];
        // SAFETY: the token is proof of the instructions, and the slice has as many bytes as the
        // vector.
        unsafe { _mm512_storeu_si512(to.as_mut_ptr().cast(), vector) }
    }

    #[inline(always)]
    fn splat(self, block: Block) -> __m512i {
        let value = block.to_u128();
        intrinsic!(_mm512_broadcast_i32x4(_mm_set_epi64x(
            (value >> 64) as i64,
            value as i64
        )))
    }

    #[inline(always)]
    fn xor(self, x: __m512i, y: __m512i) -> __m512i {
        intrinsic!(_mm512_xor_si512(x, y))
    }

    #[inline(always)]
    fn xor3(self, x: __m512i, y: __m512i, z: __m512i) -> __m512i {
        intrinsic!(_mm512_ternarylogic_epi64::<0x96>(x, y, z))
    }

    #[inline(always)]
    fn sigma(self, x: __m512i) -> __m512i {
        // (l, r) to (l + r, l): the halves swapped, and l added to the upper one.
        intrinsic!({
            let swapped = _mm512_shuffle_epi32::<0x4e>(x);
            let upper = _mm512_set4_epi64(-1, 0, -1, 0);
            _mm512_ternarylogic_epi64::<0x78>(swapped, x, upper)
        })
    }

    #[inline(always)]
    fn colours(self, x: __m512i) -> __mmask8 {
        intrinsic!({
            let lower = _mm512_shuffle_epi32::<0x44>(x);
            _mm512_test_epi64_mask(lower, _mm512_set1_epi64(1))
        })
    }

    #[inline(always)]
    fn mask(self, doubled: u32) -> __mmask8 {
        doubled as __mmask8
    }

    #[inline(always)]
    fn bits(self, mask: __mmask8) -> u32 {
        let single = u32::from(mask) & 0x55;
        let pairs = (single | single >> 1) & 0x33;
        (pairs | pairs >> 2) & 0x0f
    }

    #[inline(always)]
    fn xor_where(self, mask: __mmask8, x: __m512i, y: __m512i) -> __m512i {
        intrinsic!(_mm512_mask_xor_epi64(x, mask, x, y))
    }

    #[inline(always)]
    fn expand(self, start: Block, counter: u64) -> [__m512i; ROUNDS + 1] {
        let start = self.splat(start);
        intrinsic!({
            let mut keys = [first_round_key(start, counter); ROUNDS + 1];
            for round in 0..ROUNDS {
                keys[round + 1] = next_round_key(keys[round], round);
            }
            keys
        })
    }

    #[inline(always)]
    fn encrypt<const N: usize, const M: usize>(
        self,
        keys: &[__m512i; ROUNDS + 1],
        mut blocks: [[__m512i; N]; M],
    ) -> [[__m512i; N]; M] {
        intrinsic!({
            for block in blocks.as_flattened_mut() {
                *block = _mm512_xor_si512(*block, keys[0]);
            }
            for key in &keys[1..ROUNDS] {
                for block in blocks.as_flattened_mut() {
                    *block = _mm512_aesenc_epi128(*block, *key);
                }
                for four in blocks.as_flattened_mut().as_chunks_mut().0 {
                    use_four(four);
                }
            }
            for block in blocks.as_flattened_mut() {
                *block = _mm512_aesenclast_epi128(*block, keys[ROUNDS]);
            }
            blocks
        })
    }

    #[inline(always)]
    fn encrypt_expand<const N: usize, const M: usize>(
        self,
        keys: &mut [__m512i; ROUNDS + 1],
        mut blocks: [[__m512i; N]; M],
        start: Block,
        counter: u64,
    ) -> [[__m512i; N]; M] {
        let start = self.splat(start);
        intrinsic!({
            let mut next = first_round_key(start, counter);
            for block in blocks.as_flattened_mut() {
                *block = _mm512_xor_si512(*block, keys[0]);
            }
            keys[0] = next;
            for (round, key) in keys[1..ROUNDS].iter_mut().enumerate() {
                for block in blocks.as_flattened_mut() {
                    *block = _mm512_aesenc_epi128(*block, *key);
                }
                next = next_round_key(next, round);
                *key = next;
                for four in blocks.as_flattened_mut().as_chunks_mut().0 {
                    use_four(four);
                }
            }
            for block in blocks.as_flattened_mut() {
                *block = _mm512_aesenclast_epi128(*block, keys[ROUNDS]);
            }
            keys[ROUNDS] = next_round_key(next, ROUNDS - 1);
            blocks
        })
    }
}
