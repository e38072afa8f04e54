//! Vectors of 256 bits: AVX2, 32-bit words. (64-bit words gain nothing: AVX2 lacks their products.)

use std::arch::x86_64::*;

use super::{
    Routine, entry_point,
    lanes::{HighFactor, Lanes, Registers},
};

/// Proof that the CPU has AVX2.
#[derive(Clone, Copy)]
pub struct Avx2(());

impl Avx2 {
    /// # Safety
    /// The CPU must have AVX2.
    #[inline(always)]
    unsafe fn new() -> Self {
        Self(())
    }
}

/// An expression of register-only intrinsics, allowed by the token.
macro_rules! intrinsic {
    ($expression:expr) => {{
        // SAFETY: the token `self` exists only where the CPU has these instructions.
        unsafe { $expression }
    }};
}

entry_point!(Avx2, u32, "avx2");

/// An empty instruction that reads and writes four registers. Panics on fewer vectors.
#[inline]
#[target_feature(enable = "avx2")]
fn use_four(vectors: &mut [__m256i]) {
    // SAFETY: a comment does nothing.
    unsafe {
        std::arch::asm!(
            "/* {} {} {} {} */",
            inlateout(ymm_reg) vectors[0],
            inlateout(ymm_reg) vectors[1],
            inlateout(ymm_reg) vectors[2],
            inlateout(ymm_reg) vectors[3],
            options(nomem, nostack, preserves_flags)
        );
    }
}

impl Registers for Avx2 {
    type Word = u32;
    type Vector = __m256i;
    const COUNT: usize = 8;

    #[inline(always)]
    unsafe fn load(self, from: *const u32) -> __m256i {
        // SAFETY: valid by contract; the instruction needs no alignment.
        unsafe { _mm256_loadu_si256(from.cast()) }
    }
    #[inline(always)]
    unsafe fn load_cycle<const GROUPS: usize>(self, from: *const u32) -> __m256i {
        // SAFETY: each arm reads the GROUPS words that the contract allows, aligned to 4 bytes or
        // not at all.
        unsafe {
            match GROUPS {
                1 => _mm256_set1_epi32(from.cast::<i32>().read()),
                2 => _mm256_set1_epi64x(from.cast::<i64>().read_unaligned()),
                4 => _mm256_broadcastsi128_si256(_mm_loadu_si128(from.cast())),
                _ => self.load(from),
            }
        }
    }
    #[inline(always)]
    unsafe fn store(self, to: *mut u32, vector: __m256i) {
        // SAFETY: valid by contract; the instruction needs no alignment.
        unsafe { _mm256_storeu_si256(to.cast(), vector) }
    }

    #[inline(always)]
    fn splat(self, word: u32) -> __m256i {
        intrinsic!(_mm256_set1_epi32(word as i32))
    }
    #[inline(always)]
    fn add(self, x: __m256i, y: __m256i) -> __m256i {
        intrinsic!(_mm256_add_epi32(x, y))
    }
    #[inline(always)]
    fn sub(self, x: __m256i, y: __m256i) -> __m256i {
        intrinsic!(_mm256_sub_epi32(x, y))
    }
    #[inline(always)]
    fn min(self, x: __m256i, y: __m256i) -> __m256i {
        intrinsic!(_mm256_min_epu32(x, y))
    }
    #[inline(always)]
    fn shift_left(self, x: __m256i, bits: u32) -> __m256i {
        intrinsic!(_mm256_sllv_epi32(x, _mm256_set1_epi32(bits as i32)))
    }
    #[inline(always)]
    fn shift_right(self, x: __m256i, bits: u32) -> __m256i {
        intrinsic!(_mm256_srlv_epi32(x, _mm256_set1_epi32(bits as i32)))
    }

    #[inline(always)]
    fn side_by_side<const K: usize>(self, mut vectors: [__m256i; K]) -> [__m256i; K] {
        for four in vectors.chunks_exact_mut(4) {
            intrinsic!(use_four(four));
        }
        vectors
    }

    #[inline(always)]
    fn zip(self, x: __m256i, y: __m256i) -> (__m256i, __m256i) {
        intrinsic!({
            let (low, high) = (_mm256_unpacklo_epi32(x, y), _mm256_unpackhi_epi32(x, y));
            (
                _mm256_permute2x128_si256::<0x20>(low, high),
                _mm256_permute2x128_si256::<0x31>(low, high),
            )
        })
    }
    #[inline(always)]
    fn unzip(self, x: __m256i, y: __m256i) -> (__m256i, __m256i) {
        intrinsic!({
            let low = _mm256_castsi256_ps(_mm256_permute2x128_si256::<0x20>(x, y));
            let high = _mm256_castsi256_ps(_mm256_permute2x128_si256::<0x31>(x, y));
            (
                _mm256_castps_si256(_mm256_shuffle_ps::<0b10_00_10_00>(low, high)),
                _mm256_castps_si256(_mm256_shuffle_ps::<0b11_01_11_01>(low, high)),
            )
        })
    }
}

impl Lanes for Avx2 {
    const BITS: u32 = 32;
    const FUSED: bool = false;

    #[inline(always)]
    fn mul_low(self, x: __m256i, y: __m256i) -> __m256i {
        intrinsic!(_mm256_mullo_epi32(x, y))
    }
    #[inline(always)]
    fn mul_add_low(self, sum: __m256i, x: __m256i, y: __m256i) -> __m256i {
        self.add(sum, self.mul_low(x, y))
    }
    #[inline(always)]
    fn mul_high(self, x: __m256i, y: HighFactor<__m256i>) -> __m256i {
        intrinsic!({
            let even = _mm256_mul_epu32(x, y.all);
            let odd = _mm256_mul_epu32(_mm256_srli_epi64::<32>(x), y.odd);
            // Upper halves: those of `odd` are in place, those of `even` move down a lane.
            _mm256_blend_epi32::<0b1010_1010>(_mm256_srli_epi64::<32>(even), odd)
        })
    }
    #[inline(always)]
    fn high(self, y: __m256i) -> HighFactor<__m256i> {
        let odd = intrinsic!(_mm256_srli_epi64::<32>(y));
        HighFactor { all: y, odd }
    }
    #[inline(always)]
    fn splat_high(self, word: u32) -> HighFactor<__m256i> {
        let all = self.splat(word);
        HighFactor { all, odd: all }
    }
    #[inline(always)]
    unsafe fn load_cycle_high<const GROUPS: usize>(self, from: *const u32) -> HighFactor<__m256i> {
        // SAFETY: no more than the one word more that the contract allows; the odd of one word is
        // itself.
        unsafe {
            let odd = self.load_cycle::<GROUPS>(from.add(usize::from(GROUPS > 1)));
            HighFactor {
                all: self.load_cycle::<GROUPS>(from),
                odd,
            }
        }
    }
    #[inline(always)]
    fn clean(self, x: __m256i) -> __m256i {
        x
    }

    #[inline(always)]
    fn apart<R: Routine<Self::Word>>(self, routine: R) -> R::Output {
        // SAFETY: the token `self` exists only where the CPU has these instructions.
        unsafe { Self::enter(routine) }
    }
}
