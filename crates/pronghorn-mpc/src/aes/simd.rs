//! AES-128 with VAES on 512-bit vectors.
//!
//! The `aes` crate has this too; called for 64 blocks at a time under changing keys it takes twice
//! as long.
#![allow(unsafe_code)] // CPU intrinsics

use std::arch::x86_64::*;

use pronghorn_ring::SimdLevel;
use zeroize::ZeroizeOnDrop;

use crate::Block;

/// Blocks of a vector.
pub(crate) const LANES: usize = 4;

/// The round keys. A value exists only where the CPU has AES, VAES and AVX-512 F.
#[derive(ZeroizeOnDrop)]
pub struct Vaes {
    keys: [Block; 11],
}

impl Vaes {
    /// The cipher under `key`, where the CPU and `level` allow it.
    pub fn new(level: SimdLevel, key: Block) -> Option<Self> {
        let has = level.or_best() >= SimdLevel::Avx512
            && is_x86_feature_detected!("aes")
            && is_x86_feature_detected!("vaes");
        // SAFETY: the CPU has the features.
        has.then(|| unsafe { expand(key) })
    }

    /// Replaces every block by its encryption.
    pub fn encrypt(&self, blocks: &mut [Block]) {
        let start = blocks.as_mut_ptr();
        // SAFETY: a value of this type exists only where the CPU has the features; the borrow is
        // exclusive.
        unsafe { encrypt(&self.keys, start, start, blocks.len()) }
    }

    /// `out` = the encryptions of `blocks`.
    pub fn encrypt_to(&self, blocks: &[Block], out: &mut [Block]) {
        assert_eq!(blocks.len(), out.len());
        // SAFETY: as above, and the slices are of one length.
        unsafe { encrypt(&self.keys, blocks.as_ptr(), out.as_mut_ptr(), out.len()) }
    }

    /// `out` = the encryptions of `first`, `first + 1` and so on, modulo 2^64.
    pub fn encrypt_counters(&self, first: u64, out: &mut [Block]) {
        // SAFETY: a value of this type exists only where the CPU has the features.
        unsafe { encrypt_counters(&self.keys(), first, out) }
    }

    /// The round keys in all places of vectors, for [`rounds`].
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,aes,vaes")]
    pub(crate) fn keys(&self) -> [__m512i; 11] {
        let wide = |key: &Block| _mm512_broadcast_i32x4(bytemuck::cast(*key));
        let mut keys = [_mm512_setzero_si512(); 11];
        for (wide_key, key) in keys.iter_mut().zip(&self.keys) {
            *wide_key = wide(key);
        }
        keys
    }
}

/// Vectors of counters.
#[derive(Clone, Copy)]
pub(crate) struct Counter(__m512i);

impl Counter {
    /// From `first` on, modulo 2^64.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,aes,vaes")]
    pub fn new(first: u64) -> Self {
        let numbers = _mm512_set_epi64(0, 3, 0, 2, 0, 1, 0, 0);
        Self(_mm512_add_epi64(numbers, low(first)))
    }

    /// The next counters.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,aes,vaes")]
    pub fn next<const COUNT: usize>(&mut self) -> [__m512i; COUNT] {
        let mut x = [self.0; COUNT];
        for x in &mut x {
            *x = self.0;
            self.0 = _mm512_add_epi64(self.0, low(LANES as u64));
        }
        x
    }
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,aes,vaes")]
fn encrypt_counters(keys: &[__m512i; 11], first: u64, out: &mut [Block]) {
    let mut counter = Counter::new(first);
    for out in out.chunks_mut(8 * LANES) {
        let mut x = counter.next::<8>();
        rounds(keys, &mut x);
        let blocks: &[Block] = bytemuck::cast_slice(&x);
        out.copy_from_slice(&blocks[..out.len()]);
    }
}

/// The word in the lower half of every block.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,aes,vaes")]
fn low(word: u64) -> __m512i {
    _mm512_maskz_set1_epi64(0x55, word as i64)
}

/// The key schedule (FIPS 197, section 5.2).
#[target_feature(enable = "aes")]
fn expand(key: Block) -> Vaes {
    let mut cipher = Vaes { keys: [key; 11] };
    let mut last: __m128i = bytemuck::cast(key);
    macro_rules! round {
        ($($index:literal $constant:literal),*) => {$(
            let word = _mm_shuffle_epi32::<0xff>(_mm_aeskeygenassist_si128::<$constant>(last));
            last = _mm_xor_si128(last, _mm_slli_si128::<4>(last));
            last = _mm_xor_si128(last, _mm_slli_si128::<8>(last));
            last = _mm_xor_si128(last, word);
            cipher.keys[$index] = bytemuck::cast(last);
        )*};
    }
    round!(1 0x01, 2 0x02, 3 0x04, 4 0x08, 5 0x10, 6 0x20, 7 0x40, 8 0x80, 9 0x1b, 10 0x36);
    cipher
}

/// Encrypts `count` blocks.
///
/// # Safety
/// `from` must be valid for reading them and `to` for writing them; they may be the same, but not
/// overlap otherwise.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,aes,vaes")]
unsafe fn encrypt(keys: &[Block; 11], from: *const Block, to: *mut Block, count: usize) {
    let mut wide = [_mm512_setzero_si512(); 11];
    for (wide, key) in wide.iter_mut().zip(keys) {
        *wide = _mm512_broadcast_i32x4(bytemuck::cast(*key));
    }
    let mut at = 0;
    while count - at >= 16 * LANES {
        // SAFETY: that many blocks are left.
        unsafe { vectors::<16>(&wide, from.add(at), to.add(at)) };
        at += 16 * LANES;
    }
    while count - at >= 4 * LANES {
        // SAFETY: as above.
        unsafe { vectors::<4>(&wide, from.add(at), to.add(at)) };
        at += 4 * LANES;
    }
    while count > at {
        // SAFETY: no more blocks than are left.
        unsafe { some(&wide, from.add(at), to.add(at), (count - at).min(LANES)) };
        at += LANES;
    }
}

/// Encrypts `COUNT` vectors of blocks.
///
/// # Safety
/// As [`encrypt`].
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,aes,vaes")]
unsafe fn vectors<const COUNT: usize>(keys: &[__m512i; 11], from: *const Block, to: *mut Block) {
    let mut x = [_mm512_setzero_si512(); COUNT];
    for (i, x) in x.iter_mut().enumerate() {
        // SAFETY: within the blocks to read.
        *x = unsafe { _mm512_loadu_si512(from.add(LANES * i).cast()) };
    }
    rounds(keys, &mut x);
    for (i, x) in x.into_iter().enumerate() {
        // SAFETY: within the blocks to write.
        unsafe { _mm512_storeu_si512(to.add(LANES * i).cast(), x) };
    }
}

/// Encrypts 1 to 4 blocks.
///
/// # Safety
/// As [`encrypt`].
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,aes,vaes")]
unsafe fn some(keys: &[__m512i; 11], from: *const Block, to: *mut Block, count: usize) {
    let mask = ((1u16 << (2 * count)) - 1) as __mmask8;
    // SAFETY: only the words of `count` blocks are read.
    let mut x = [unsafe { _mm512_maskz_loadu_epi64(mask, from.cast()) }];
    rounds(keys, &mut x);
    // SAFETY: only they are written.
    unsafe { _mm512_mask_storeu_epi64(to.cast(), mask, x[0]) };
}

/// Encrypts vectors of blocks.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,aes,vaes")]
pub(crate) fn rounds<const COUNT: usize>(keys: &[__m512i; 11], x: &mut [__m512i; COUNT]) {
    for x in &mut *x {
        *x = _mm512_xor_si512(*x, keys[0]);
    }
    for &key in &keys[1..10] {
        for x in &mut *x {
            *x = _mm512_aesenc_epi128(*x, key);
        }
    }
    for x in x {
        *x = _mm512_aesenclast_epi128(*x, keys[10]);
    }
}
