//! Vectors of 512 bits: AVX-512 F, BW, DQ and VL.

use std::arch::x86_64::*;
use std::marker::PhantomData;

use super::{
    Routine, entry_point,
    lanes::{HighFactor, Lanes, Registers},
};

/// Proof that the CPU has AVX-512 F, BW, DQ and VL, and for a multiplier of 52 `BITS` also IFMA.
#[derive(Clone, Copy)]
pub struct Avx512<W, const BITS: u32>(PhantomData<W>);

impl<W, const BITS: u32> Avx512<W, BITS> {
    /// # Safety
    /// The CPU must have AVX-512 F, BW, DQ and VL, and IFMA for 52 `BITS`.
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

entry_point!(Avx512<u32, 32>, u32, "avx2,avx512f,avx512bw,avx512dq,avx512vl");
entry_point!(Avx512<u64, 64>, u64, "avx2,avx512f,avx512bw,avx512dq,avx512vl");
entry_point!(Avx512<u64, 52>, u64, "avx2,avx512f,avx512bw,avx512dq,avx512vl,avx512ifma");

/// Where the lanes of a permutation of two vectors `x`, `y` come from; lane `i` of `y` is
/// `COUNT + i`.
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

/// An empty instruction that reads and writes four registers. Panics on fewer vectors.
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

/// `vpmuludq`, which the compiler otherwise takes apart: it finds in the sums of
/// [`Lanes::mul_high`] the upper half of a 64-bit product and computes that in scalar registers,
/// and where one factor is the same all through a loop, it takes `vpmullq` at three times the cost.
#[inline]
#[target_feature(enable = "avx512f")]
fn mul_u32(x: __m512i, y: __m512i) -> __m512i {
    let product;
    // SAFETY: the instruction is of AVX-512 F, and reads and writes registers alone.
    unsafe {
        std::arch::asm!(
            "vpmuludq {}, {}, {}",
            lateout(zmm_reg) product,
            in(zmm_reg) x,
            in(zmm_reg) y,
            options(pure, nomem, nostack, preserves_flags)
        );
    }
    product
}

impl Registers for Avx512<u32, 32> {
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
        // SAFETY: each arm reads the GROUPS words that the contract allows, aligned to 4 bytes or
        // not at all.
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
    unsafe fn store(self, to: *mut u32, vector: __m512i) {
        // SAFETY: valid by contract; the instruction needs no alignment.
        unsafe { _mm512_storeu_epi32(to.cast(), vector) }
    }
    #[inline(always)]
    fn prefetch(self, from: *const u32) {
        intrinsic!(_mm_prefetch::<_MM_HINT_T0>(from.cast()))
    }

    #[inline(always)]
    fn splat(self, word: u32) -> __m512i {
        intrinsic!(_mm512_set1_epi32(word as i32))
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
    fn shift_left(self, x: __m512i, bits: u32) -> __m512i {
        intrinsic!(_mm512_sllv_epi32(x, _mm512_set1_epi32(bits as i32)))
    }
    #[inline(always)]
    fn shift_right(self, x: __m512i, bits: u32) -> __m512i {
        intrinsic!(_mm512_srlv_epi32(x, _mm512_set1_epi32(bits as i32)))
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

impl Lanes for Avx512<u32, 32> {
    const BITS: u32 = 32;
    const FUSED: bool = false;

    #[inline(always)]
    fn mul_low(self, x: __m512i, y: __m512i) -> __m512i {
        intrinsic!(_mm512_mullo_epi32(x, y))
    }
    #[inline(always)]
    fn mul_add_low(self, sum: __m512i, x: __m512i, y: __m512i) -> __m512i {
        self.add(sum, self.mul_low(x, y))
    }
    #[inline(always)]
    fn mul_high(self, x: __m512i, y: HighFactor<__m512i>) -> __m512i {
        intrinsic!({
            let even = _mm512_mul_epu32(x, y.all);
            let odd = _mm512_mul_epu32(_mm512_srli_epi64::<32>(x), y.odd);
            // Upper halves: those of `odd` are in place, those of `even` move down a lane.
            _mm512_mask_shuffle_epi32::<0b11_11_01_01>(odd, 0x5555, even)
        })
    }
    #[inline(always)]
    fn high(self, y: __m512i) -> HighFactor<__m512i> {
        let odd = intrinsic!(_mm512_srli_epi64::<32>(y));
        HighFactor { all: y, odd }
    }
    #[inline(always)]
    fn splat_high(self, word: u32) -> HighFactor<__m512i> {
        let all = self.splat(word);
        HighFactor { all, odd: all }
    }
    #[inline(always)]
    unsafe fn load_cycle_high<const GROUPS: usize>(self, from: *const u32) -> HighFactor<__m512i> {
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
    fn clean(self, x: __m512i) -> __m512i {
        x
    }

    #[inline(always)]
    fn apart<R: Routine<Self::Word>>(self, routine: R) -> R::Output {
        // SAFETY: the token `self` exists only where the CPU has these instructions.
        unsafe { Self::enter(routine) }
    }
}

impl<const BITS: u32> Registers for Avx512<u64, BITS> {
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
        // SAFETY: each arm reads the GROUPS words that the contract allows, aligned to 4 bytes or
        // not at all.
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
    unsafe fn store(self, to: *mut u64, vector: __m512i) {
        // SAFETY: valid by contract; the instruction needs no alignment.
        unsafe { _mm512_storeu_epi64(to.cast(), vector) }
    }
    #[inline(always)]
    fn prefetch(self, from: *const u64) {
        intrinsic!(_mm_prefetch::<_MM_HINT_T0>(from.cast()))
    }

    #[inline(always)]
    fn splat(self, word: u64) -> __m512i {
        intrinsic!(_mm512_set1_epi64(word as i64))
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
    fn shift_left(self, x: __m512i, bits: u32) -> __m512i {
        intrinsic!(_mm512_sllv_epi64(x, _mm512_set1_epi64(bits as i64)))
    }
    #[inline(always)]
    fn shift_right(self, x: __m512i, bits: u32) -> __m512i {
        intrinsic!(_mm512_srlv_epi64(x, _mm512_set1_epi64(bits as i64)))
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

impl Lanes for Avx512<u64, 64> {
    const BITS: u32 = 64;
    const FUSED: bool = false;

    #[inline(always)]
    fn mul_low(self, x: __m512i, y: __m512i) -> __m512i {
        intrinsic!(_mm512_mullo_epi64(x, y))
    }
    #[inline(always)]
    fn mul_add_low(self, sum: __m512i, x: __m512i, y: __m512i) -> __m512i {
        self.add(sum, self.mul_low(x, y))
    }
    /// By halves of 32 bits: the upper word of `(x1 2^32 + x0)(y1 2^32 + y0)`, `y_odd` holding
    /// `y1`.
    #[inline(always)]
    fn mul_high(self, x: __m512i, y: HighFactor<__m512i>) -> __m512i {
        intrinsic!({
            let low_half = _mm512_set1_epi64(0xffff_ffff);
            let x_high = _mm512_srli_epi64::<32>(x);
            let carry = _mm512_srli_epi64::<32>(mul_u32(x, y.all));
            // Neither sum overflows: (2^32 - 1)^2 + 2^32 - 1 < 2^64.
            let middle = _mm512_add_epi64(mul_u32(x_high, y.all), carry);
            let other = _mm512_add_epi64(mul_u32(x, y.odd), _mm512_and_si512(middle, low_half));
            let high = _mm512_add_epi64(mul_u32(x_high, y.odd), _mm512_srli_epi64::<32>(middle));
            _mm512_add_epi64(high, _mm512_srli_epi64::<32>(other))
        })
    }
    #[inline(always)]
    fn high(self, y: __m512i) -> HighFactor<__m512i> {
        let odd = intrinsic!(_mm512_srli_epi64::<32>(y));
        HighFactor { all: y, odd }
    }
    #[inline(always)]
    fn splat_high(self, word: u64) -> HighFactor<__m512i> {
        HighFactor {
            all: self.splat(word),
            odd: self.splat(word >> 32),
        }
    }
    #[inline(always)]
    unsafe fn load_cycle_high<const GROUPS: usize>(self, from: *const u64) -> HighFactor<__m512i> {
        // SAFETY: four bytes on, and no more than the one word more that the contract allows.
        unsafe {
            let odd = self.load_cycle::<GROUPS>(from.byte_add(4));
            HighFactor {
                all: self.load_cycle::<GROUPS>(from),
                odd,
            }
        }
    }
    #[inline(always)]
    fn clean(self, x: __m512i) -> __m512i {
        x
    }

    #[inline(always)]
    fn apart<R: Routine<Self::Word>>(self, routine: R) -> R::Output {
        // SAFETY: the token `self` exists only where the CPU has these instructions.
        unsafe { Self::enter(routine) }
    }
}

/// IFMA: one instruction for a half of a product and a sum.
impl Lanes for Avx512<u64, 52> {
    const BITS: u32 = 52;
    const FUSED: bool = true;

    #[inline(always)]
    fn mul_low(self, x: __m512i, y: __m512i) -> __m512i {
        self.mul_add_low(intrinsic!(_mm512_setzero_si512()), x, y)
    }
    #[inline(always)]
    fn mul_add_low(self, sum: __m512i, x: __m512i, y: __m512i) -> __m512i {
        intrinsic!(_mm512_madd52lo_epu64(sum, x, y))
    }
    #[inline(always)]
    fn mul_high(self, x: __m512i, y: HighFactor<__m512i>) -> __m512i {
        self.mul_add_high(intrinsic!(_mm512_setzero_si512()), x, y)
    }
    #[inline(always)]
    fn mul_add_high(self, sum: __m512i, x: __m512i, y: HighFactor<__m512i>) -> __m512i {
        intrinsic!(_mm512_madd52hi_epu64(sum, x, y.all))
    }
    #[inline(always)]
    fn high(self, y: __m512i) -> HighFactor<__m512i> {
        HighFactor { all: y, odd: y }
    }
    #[inline(always)]
    fn splat_high(self, word: u64) -> HighFactor<__m512i> {
        self.high(self.splat(word))
    }
    #[inline(always)]
    unsafe fn load_cycle_high<const GROUPS: usize>(self, from: *const u64) -> HighFactor<__m512i> {
        // SAFETY: valid by contract.
        self.high(unsafe { self.load_cycle::<GROUPS>(from) })
    }
    #[inline(always)]
    fn clean(self, x: __m512i) -> __m512i {
        intrinsic!(_mm512_and_si512(x, _mm512_set1_epi64((1 << 52) - 1)))
    }

    #[inline(always)]
    fn apart<R: Routine<Self::Word>>(self, routine: R) -> R::Output {
        // SAFETY: the token `self` exists only where the CPU has these instructions.
        unsafe { Self::enter(routine) }
    }
}
