//! One label in a vector of 128 bits: AES-NI, with the three-operand forms of AVX.

use std::arch::x86_64::*;

use super::lanes::{Lanes, RCON, ROUNDS};
use crate::Block;
use crate::circuit::TILE;

/// Proof that the CPU has AES-NI and AVX2.
#[derive(Clone, Copy)]
pub struct AesNi(());

impl AesNi {
    /// # Safety
    /// The CPU must have AES-NI and AVX2.
    #[inline(always)]
    pub unsafe fn new() -> Self {
        Self(())
    }
}

/// An empty instruction that reads and writes four registers: it makes the compiler keep chains of
/// rounds side by side, where it would rather finish one after the other to save registers.
#[inline]
#[target_feature(enable = "avx2")]
fn use_four(vectors: &mut [__m128i; 4]) {
    let [a, b, c, d] = vectors;
    // SAFETY: a comment does nothing.
    unsafe {
        std::arch::asm!(
            "/* {} {} {} {} */",
            inlateout(xmm_reg) * a,
            inlateout(xmm_reg) * b,
            inlateout(xmm_reg) * c,
            inlateout(xmm_reg) * d,
            options(nomem, nostack, preserves_flags)
        );
    }
}

/// The round key behind `key`: see the one of VAES.
#[inline]
#[target_feature(enable = "aes,avx2")]
fn next_round_key(key: __m128i, round: usize) -> __m128i {
    let last = _mm_shuffle_epi8(key, _mm_set1_epi32(0x0c0f_0e0d));
    let word = _mm_aesenclast_si128(last, _mm_set1_epi32(RCON[round]));
    let two = _mm_xor_si128(key, _mm_slli_si128::<4>(key));
    let four = _mm_xor_si128(two, _mm_slli_si128::<8>(two));
    _mm_xor_si128(four, word)
}

/// `start + counter`.
#[inline]
#[target_feature(enable = "avx2")]
fn first_round_key(start: __m128i, counter: u64) -> __m128i {
    _mm_xor_si128(start, _mm_set_epi64x(0, counter as i64))
}

impl Lanes for AesNi {
    const COUNT: usize = 1;
    type Vector = __m128i;
    /// All bits equal.
    type Mask = __m128i;
    type Keys = [__m128i; ROUNDS + 1];

    #[inline(always)]
    fn load_row(self, from: &[u8], at: usize) -> __m128i {
        let from = &from[16 * at..][..16 * Self::COUNT];
        // SAFETY: the token is proof of the instructions, and the slice has as many bytes as the
        // vector.
        unsafe { _mm_loadu_si128(from.as_ptr().cast()) }
    }

    #[inline(always)]
    fn store(self, to: &mut [Block; TILE], at: usize, vector: __m128i) {
        let to = &mut to[at..at + Self::COUNT];
        // SAFETY: the token is proof of the instructions, and the slice has as many bytes as the
        // vector.
        unsafe { _mm_storeu_si128(to.as_mut_ptr().cast(), vector) }
    }

    #[inline(always)]
    fn splat(self, block: Block) -> __m128i {
        let value = block.to_u128();
        intrinsic!(_mm_set_epi64x((value >> 64) as i64, value as i64))
    }

    #[inline(always)]
    fn xor(self, x: __m128i, y: __m128i) -> __m128i {
        intrinsic!(_mm_xor_si128(x, y))
    }

    #[inline(always)]
    fn xor3(self, x: __m128i, y: __m128i, z: __m128i) -> __m128i {
        self.xor(self.xor(x, y), z)
    }

    #[inline(always)]
    fn sigma(self, x: __m128i) -> __m128i {
        // (l, r) to (l + r, l): the halves swapped, and l added to the upper one.
        intrinsic!({
            let swapped = _mm_shuffle_epi32::<0x4e>(x);
            let upper = _mm_blend_epi32::<0b1100>(_mm_setzero_si128(), x);
            _mm_xor_si128(swapped, upper)
        })
    }

    #[inline(always)]
    fn colours(self, x: __m128i) -> __m128i {
        intrinsic!({
            let lowest = _mm_shuffle_epi32::<0>(x);
            _mm_srai_epi32::<31>(_mm_slli_epi32::<31>(lowest))
        })
    }

    #[inline(always)]
    fn mask(self, doubled: u32) -> __m128i {
        intrinsic!(_mm_set1_epi32(-((doubled & 1) as i32)))
    }

    #[inline(always)]
    fn bits(self, mask: __m128i) -> u32 {
        intrinsic!(_mm_cvtsi128_si32(mask)) as u32 & 1
    }

    #[inline(always)]
    fn xor_where(self, mask: __m128i, x: __m128i, y: __m128i) -> __m128i {
        intrinsic!(_mm_xor_si128(x, _mm_and_si128(mask, y)))
    }

    #[inline(always)]
    fn expand(self, start: Block, counter: u64) -> [__m128i; ROUNDS + 1] {
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
        keys: &[__m128i; ROUNDS + 1],
        mut blocks: [[__m128i; N]; M],
    ) -> [[__m128i; N]; M] {
        intrinsic!({
            for block in blocks.as_flattened_mut() {
                *block = _mm_xor_si128(*block, keys[0]);
            }
            for key in &keys[1..ROUNDS] {
                for block in blocks.as_flattened_mut() {
                    *block = _mm_aesenc_si128(*block, *key);
                }
                for four in blocks.as_flattened_mut().as_chunks_mut().0 {
                    use_four(four);
                }
            }
            for block in blocks.as_flattened_mut() {
                *block = _mm_aesenclast_si128(*block, keys[ROUNDS]);
            }
            blocks
        })
    }

    #[inline(always)]
    fn encrypt_expand<const N: usize, const M: usize>(
        self,
        keys: &mut [__m128i; ROUNDS + 1],
        mut blocks: [[__m128i; N]; M],
        start: Block,
        counter: u64,
    ) -> [[__m128i; N]; M] {
        let start = self.splat(start);
        intrinsic!({
            let mut next = first_round_key(start, counter);
            for block in blocks.as_flattened_mut() {
                *block = _mm_xor_si128(*block, keys[0]);
            }
            keys[0] = next;
            for (round, key) in keys[1..ROUNDS].iter_mut().enumerate() {
                for block in blocks.as_flattened_mut() {
                    *block = _mm_aesenc_si128(*block, *key);
                }
                next = next_round_key(next, round);
                *key = next;
                for four in blocks.as_flattened_mut().as_chunks_mut().0 {
                    use_four(four);
                }
            }
            for block in blocks.as_flattened_mut() {
                *block = _mm_aesenclast_si128(*block, keys[ROUNDS]);
            }
            keys[ROUNDS] = next_round_key(next, ROUNDS - 1);
            blocks
        })
    }
}
