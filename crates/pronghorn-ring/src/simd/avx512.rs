//! Vectors of 512 bits: AVX-512 F, BW, DQ and VL.

use std::arch::x86_64::*;
use std::marker::PhantomData;

use super::{entry_points, lanes::Lanes, ntt::Twiddles};
use crate::Prime;

/// Proof that the CPU has AVX-512 F, BW, DQ and VL.
#[derive(Clone, Copy)]
pub struct Avx512<W>(PhantomData<W>);

impl<W> Avx512<W> {
    /// # Safety
    /// The CPU must have AVX-512 F, BW, DQ and VL.
    #[inline(always)]
    unsafe fn new() -> Self {
        Self(PhantomData)
    }
}

/// An expression of register-only intrinsics, allowed by the token.
macro_rules! intrinsic {
    ($expression:expr) => {{
        // SAFETY: the token `self` exists only where the CPU has these instructions.
        unsafe { $expression }
    }};
}

entry_points!(Avx512<u32>, u32, "avx2,avx512f,avx512bw,avx512dq,avx512vl");
entry_points!(Avx512<u64>, u64, "avx2,avx512f,avx512bw,avx512dq,avx512vl");

/// Where the lanes of a permutation of two vectors `x`, `y` come from; lane `i` of `y` is `COUNT + i`.
mod indices {
    /// First or second half of `x0 y0 x1 y1 ...`.
    pub const fn zip<const COUNT: usize>(half: usize) -> [usize; COUNT] {
        let (mut lanes, mut i) = ([0; COUNT], 0);
        while i < COUNT {
            let lane = half * COUNT + i;
            lanes[i] = lane % 2 * COUNT + lane / 2;
            i += 1;
        }
        lanes
    }

    /// Even or odd lanes of `x` followed by `y`.
    pub const fn unzip<const COUNT: usize>(part: usize) -> [usize; COUNT] {
        let (mut lanes, mut i) = ([0; COUNT], 0);
        while i < COUNT {
            lanes[i] = 2 * i + part;
            i += 1;
        }
        lanes
    }

    /// As 32-bit lanes.
    pub const fn narrow(lanes: [usize; 16]) -> [u32; 16] {
        let (mut narrow, mut i) = ([0; 16], 0);
        while i < 16 {
            narrow[i] = lanes[i] as u32;
            i += 1;
        }
        narrow
    }
}

/// A constant vector of indices.
macro_rules! lanes32 {
    ($lanes:expr) => {{
        let lanes = const { &indices::narrow($lanes) };
        intrinsic!(_mm512_loadu_epi32(lanes.as_ptr().cast()))
    }};
}

/// A constant vector of indices.
macro_rules! lanes64 {
    ($lanes:expr) => {{
        let lanes: &[usize; 8] = const { &$lanes };
        intrinsic!(_mm512_loadu_epi64(lanes.as_ptr().cast()))
    }};
}

/// An instruction that is none, but reads and writes four registers. Panics on fewer vectors.
#[inline]
#[target_feature(enable = "avx512f")]
fn use_four(vectors: &mut [__m512i]) {
    // SAFETY: a comment does nothing.
    unsafe {
        std::arch::asm!(
            "/* {} {} {} {} */",
            inlateout(zmm_reg) vectors[0],
            inlateout(zmm_reg) vectors[1],
            inlateout(zmm_reg) vectors[2],
            inlateout(zmm_reg) vectors[3],
            options(nomem, nostack, preserves_flags)
        );
    }
}

impl Lanes for Avx512<u32> {
    type Word = u32;
    type Vector = __m512i;
    const COUNT: usize = 16;

    #[inline(always)]
    unsafe fn load(self, from: *const u32) -> __m512i {
        // SAFETY: valid by contract; the instruction needs no alignment.
        unsafe { _mm512_loadu_epi32(from.cast()) }
    }
    #[inline(always)]
    unsafe fn load_cycle<const GROUPS: usize>(self, from: *const u32) -> __m512i {
        // SAFETY: each arm reads the GROUPS words that the contract allows, aligned to 4 bytes or not at all.
        unsafe {
            match GROUPS {
                1 => _mm512_set1_epi32(from.cast::<i32>().read()),
                2 => _mm512_set1_epi64(from.cast::<i64>().read_unaligned()),
                4 => _mm512_broadcast_i32x4(_mm_loadu_epi32(from.cast())),
                8 => _mm512_broadcast_i32x8(_mm256_loadu_epi32(from.cast())),
                _ => self.load(from),
            }
        }
    }
    #[inline(always)]
    unsafe fn load_cycle_odd<const GROUPS: usize>(self, from: *const u32) -> __m512i {
        // SAFETY: four bytes on, and no more than the one word more that the contract allows.
        unsafe { self.load_cycle::<GROUPS>(from.byte_add(4)) }
    }
    #[inline(always)]
    unsafe fn store(self, to: *mut u32, vector: __m512i) {
        // SAFETY: valid by contract; the instruction needs no alignment.
        unsafe { _mm512_storeu_epi32(to.cast(), vector) }
    }

    #[inline(always)]
    fn splat(self, word: u32) -> __m512i {
        intrinsic!(_mm512_set1_epi32(word as i32))
    }
    #[inline(always)]
    fn splat_odd(self, word: u32) -> __m512i {
        self.splat(word)
    }
    #[inline(always)]
    fn add(self, x: __m512i, y: __m512i) -> __m512i {
        intrinsic!(_mm512_add_epi32(x, y))
    }
    #[inline(always)]
    fn sub(self, x: __m512i, y: __m512i) -> __m512i {
        intrinsic!(_mm512_sub_epi32(x, y))
    }
    #[inline(always)]
    fn min(self, x: __m512i, y: __m512i) -> __m512i {
        intrinsic!(_mm512_min_epu32(x, y))
    }
    #[inline(always)]
    fn mul_low(self, x: __m512i, y: __m512i) -> __m512i {
        intrinsic!(_mm512_mullo_epi32(x, y))
    }
    #[inline(always)]
    fn mul_high(self, x: __m512i, y: __m512i, y_odd: __m512i) -> __m512i {
        intrinsic!({
            let even = _mm512_mul_epu32(x, y);
            let odd = _mm512_mul_epu32(_mm512_srli_epi64::<32>(x), y_odd);
            // Upper halves: those of `odd` are in place, those of `even` move down a lane.
            _mm512_mask_shuffle_epi32::<0b11_11_01_01>(odd, 0x5555, even)
        })
    }
    #[inline(always)]
    fn odd(self, y: __m512i) -> __m512i {
        intrinsic!(_mm512_srli_epi64::<32>(y))
    }

    #[inline(always)]
    fn side_by_side<const K: usize>(self, mut vectors: [__m512i; K]) -> [__m512i; K] {
        for four in vectors.chunks_exact_mut(4) {
            intrinsic!(use_four(four));
        }
        vectors
    }

    #[inline(always)]
    fn zip(self, x: __m512i, y: __m512i) -> (__m512i, __m512i) {
        let (low, high) = (lanes32!(indices::zip(0)), lanes32!(indices::zip(1)));
        intrinsic!((
            _mm512_permutex2var_epi32(x, low, y),
            _mm512_permutex2var_epi32(x, high, y)
        ))
    }
    #[inline(always)]
    fn unzip(self, x: __m512i, y: __m512i) -> (__m512i, __m512i) {
        let (even, odd) = (lanes32!(indices::unzip(0)), lanes32!(indices::unzip(1)));
        intrinsic!((
            _mm512_permutex2var_epi32(x, even, y),
            _mm512_permutex2var_epi32(x, odd, y)
        ))
    }
}

impl Lanes for Avx512<u64> {
    type Word = u64;
    type Vector = __m512i;
    const COUNT: usize = 8;

    #[inline(always)]
    unsafe fn load(self, from: *const u64) -> __m512i {
        // SAFETY: valid by contract; the instruction needs no alignment.
        unsafe { _mm512_loadu_epi64(from.cast()) }
    }
    #[inline(always)]
    unsafe fn load_cycle<const GROUPS: usize>(self, from: *const u64) -> __m512i {
        // SAFETY: each arm reads the GROUPS words that the contract allows, aligned to 4 bytes or not at all.
        unsafe {
            match GROUPS {
                1 => _mm512_set1_epi64(from.cast::<i64>().read_unaligned()),
                2 => _mm512_broadcast_i64x2(_mm_loadu_epi64(from.cast())),
                4 => _mm512_broadcast_i64x4(_mm256_loadu_epi64(from.cast())),
                _ => self.load(from),
            }
        }
    }
    #[inline(always)]
    unsafe fn load_cycle_odd<const GROUPS: usize>(self, from: *const u64) -> __m512i {
        // SAFETY: four bytes on, and no more than the one word more that the contract allows.
        unsafe { self.load_cycle::<GROUPS>(from.byte_add(4)) }
    }
    #[inline(always)]
    unsafe fn store(self, to: *mut u64, vector: __m512i) {
        // SAFETY: valid by contract; the instruction needs no alignment.
        unsafe { _mm512_storeu_epi64(to.cast(), vector) }
    }

    #[inline(always)]
    fn splat(self, word: u64) -> __m512i {
        intrinsic!(_mm512_set1_epi64(word as i64))
    }
    #[inline(always)]
    fn splat_odd(self, word: u64) -> __m512i {
        self.splat(word >> 32)
    }
    #[inline(always)]
    fn add(self, x: __m512i, y: __m512i) -> __m512i {
        intrinsic!(_mm512_add_epi64(x, y))
    }
    #[inline(always)]
    fn sub(self, x: __m512i, y: __m512i) -> __m512i {
        intrinsic!(_mm512_sub_epi64(x, y))
    }
    #[inline(always)]
    fn min(self, x: __m512i, y: __m512i) -> __m512i {
        intrinsic!(_mm512_min_epu64(x, y))
    }
    #[inline(always)]
    fn mul_low(self, x: __m512i, y: __m512i) -> __m512i {
        intrinsic!(_mm512_mullo_epi64(x, y))
    }
    /// By halves of 32 bits: the upper word of `(x1 2^32 + x0)(y1 2^32 + y0)`, `y_odd` holding `y1`.
    #[inline(always)]
    fn mul_high(self, x: __m512i, y: __m512i, y_odd: __m512i) -> __m512i {
        intrinsic!({
            let low_half = _mm512_set1_epi64(0xffff_ffff);
            let x_high = _mm512_srli_epi64::<32>(x);
            let carry = _mm512_srli_epi64::<32>(_mm512_mul_epu32(x, y));
            // Neither sum overflows: (2^32 - 1)^2 + 2^32 - 1 < 2^64.
            let middle = _mm512_add_epi64(_mm512_mul_epu32(x_high, y), carry);
            let other = _mm512_add_epi64(
                _mm512_mul_epu32(x, y_odd),
                _mm512_and_si512(middle, low_half),
            );
            let high = _mm512_add_epi64(
                _mm512_mul_epu32(x_high, y_odd),
                _mm512_srli_epi64::<32>(middle),
            );
            _mm512_add_epi64(high, _mm512_srli_epi64::<32>(other))
        })
    }
    #[inline(always)]
    fn odd(self, y: __m512i) -> __m512i {
        intrinsic!(_mm512_srli_epi64::<32>(y))
    }

    #[inline(always)]
    fn side_by_side<const K: usize>(self, mut vectors: [__m512i; K]) -> [__m512i; K] {
        for four in vectors.chunks_exact_mut(4) {
            intrinsic!(use_four(four));
        }
        vectors
    }

    #[inline(always)]
    fn zip(self, x: __m512i, y: __m512i) -> (__m512i, __m512i) {
        let (low, high) = (lanes64!(indices::zip(0)), lanes64!(indices::zip(1)));
        intrinsic!((
            _mm512_permutex2var_epi64(x, low, y),
            _mm512_permutex2var_epi64(x, high, y)
        ))
    }
    #[inline(always)]
    fn unzip(self, x: __m512i, y: __m512i) -> (__m512i, __m512i) {
        let (even, odd) = (lanes64!(indices::unzip(0)), lanes64!(indices::unzip(1)));
        intrinsic!((
            _mm512_permutex2var_epi64(x, even, y),
            _mm512_permutex2var_epi64(x, odd, y)
        ))
    }
}
