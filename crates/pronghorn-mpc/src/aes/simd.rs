//! AES-128 with VAES, on vectors of two or four blocks.
//!
//! The `aes` crate has this too, where it was compiled for it; called for 64 blocks at a time under
//! changing keys it takes twice as long.
#![allow(unsafe_code)] // CPU intrinsics

use std::arch::x86_64::*;

use pronghorn_ring::SimdLevel;
use zeroize::{Zeroize, ZeroizeOnDrop};

use crate::{
    Block,
    ot::simd::{
        Lanes,
        x86::{Avx2, Avx512},
    },
};

/// The round keys. A value exists only where the CPU has AES, VAES and the vectors.
#[derive(ZeroizeOnDrop)]
pub struct Vaes {
    keys: [Block; 11],
    /// Whether vectors have 512 bits, by AVX-512 F, BW, DQ and VL. Else they have 256, by AVX2.
    #[zeroize(skip)]
    is_wide: bool,
}

/// AES on the vectors of `L`: a token, as `L` is, where the CPU has AES and VAES beside.
#[derive(Clone, Copy)]
pub(crate) struct WithVaes<L: Lanes>(L);

impl<L: Lanes> WithVaes<L> {
    /// # Safety
    /// The CPU must have AES and VAES.
    #[inline(always)]
    pub unsafe fn new(lanes: L) -> Self {
        Self(lanes)
    }
}

/// The rounds of AES on vectors of blocks.
pub(crate) trait Rounds: Copy {
    type Lanes: Lanes;

    fn lanes(self) -> Self::Lanes;
    /// A round that is not the last.
    fn round(self, x: Vector<Self>, key: Vector<Self>) -> Vector<Self>;
    fn last_round(self, x: Vector<Self>, key: Vector<Self>) -> Vector<Self>;

    /// Blocks of a vector.
    const BLOCKS: usize = <Self::Lanes as Lanes>::WORDS / 2;
}

pub(crate) type Vector<R> = <<R as Rounds>::Lanes as Lanes>::Vector;
pub(crate) type Words<R> = <<R as Rounds>::Lanes as Lanes>::Words;

macro_rules! rounds {
    ($lanes:ty, $vector:ty, $round:ident, $last_round:ident) => {
        impl Rounds for WithVaes<$lanes> {
            type Lanes = $lanes;

            #[inline(always)]
            fn lanes(self) -> $lanes {
                self.0
            }
            #[inline(always)]
            fn round(self, x: $vector, key: $vector) -> $vector {
                // SAFETY: the token exists only where the CPU has the instruction.
                unsafe { $round(x, key) }
            }
            #[inline(always)]
            fn last_round(self, x: $vector, key: $vector) -> $vector {
                // SAFETY: as above.
                unsafe { $last_round(x, key) }
            }
        }
    };
}

rounds!(
    Avx2,
    __m256i,
    _mm256_aesenc_epi128,
    _mm256_aesenclast_epi128
);
rounds!(
    Avx512,
    __m512i,
    _mm512_aesenc_epi128,
    _mm512_aesenclast_epi128
);

/// Defines a function whose body is compiled for both widths, and run at that of the cipher, its
/// first argument.
macro_rules! at_both_widths {
    (
        $(#[$meta:meta])*
        $vis:vis fn $name:ident($rounds:ident, $cipher:ident, $($arg:ident : $ty:ty),* $(,)?)
        $(-> $output:ty)? $body:block
    ) => {
        $(#[$meta])*
        $vis fn $name($cipher: &$crate::aes::simd::Vaes, $($arg: $ty),*) $(-> $output)? {
            use $crate::{aes::simd::{Rounds, Vaes, WithVaes}, ot::simd::x86::{Avx2, Avx512}};

            #[inline(always)]
            fn plain<R: Rounds>($rounds: R, $cipher: &Vaes, $($arg: $ty),*) $(-> $output)? $body
            #[target_feature(enable = "avx2,aes,vaes")]
            fn narrow($cipher: &Vaes, $($arg: $ty),*) $(-> $output)? {
                // SAFETY: this function runs with the features of the tokens.
                plain(unsafe { WithVaes::new(Avx2::new()) }, $cipher, $($arg),*)
            }
            #[target_feature(enable = "avx2,avx512f,avx512bw,avx512dq,avx512vl,aes,vaes")]
            fn wide($cipher: &Vaes, $($arg: $ty),*) $(-> $output)? {
                // SAFETY: this function runs with the features of the tokens.
                plain(unsafe { WithVaes::new(Avx512::new()) }, $cipher, $($arg),*)
            }
            match $cipher.is_wide() {
                // SAFETY: a cipher exists only where the CPU has the features of its width.
                true => unsafe { wide($cipher, $($arg),*) },
                // SAFETY: as above.
                false => unsafe { narrow($cipher, $($arg),*) },
            }
        }
    };
}

pub(crate) use at_both_widths;

impl Vaes {
    /// The cipher under `key`, where the CPU and `level` allow it.
    pub fn new(level: SimdLevel, key: Block) -> Option<Self> {
        let level = level.or_best();
        let has = level >= SimdLevel::Avx2
            && is_x86_feature_detected!("aes")
            && is_x86_feature_detected!("vaes");
        has.then(|| Self {
            // SAFETY: the CPU has AES.
            keys: unsafe { expand(key) },
            is_wide: level >= SimdLevel::Avx512,
        })
    }

    pub(crate) fn is_wide(&self) -> bool {
        self.is_wide
    }

    /// Replaces every block by its encryption.
    pub fn encrypt(&self, blocks: &mut [Block]) {
        let start = blocks.as_mut_ptr();
        // SAFETY: the borrow is exclusive, and both places are the same.
        encrypt(self, unsafe { Blocks::new(start, start, blocks.len()) });
    }

    /// `out` = the encryptions of `blocks`.
    pub fn encrypt_to(&self, blocks: &[Block], out: &mut [Block]) {
        assert_eq!(blocks.len(), out.len());
        // SAFETY: the slices are of one length and do not overlap.
        encrypt(self, unsafe {
            Blocks::new(blocks.as_ptr(), out.as_mut_ptr(), out.len())
        });
    }

    /// `out` = the encryptions of `first`, `first + 1` and so on, modulo 2^64.
    pub fn encrypt_counters(&self, first: u64, out: &mut [Block]) {
        encrypt_counters(self, first, out);
    }

    /// The round keys in all places of vectors, for [`rounds`].
    #[inline(always)]
    pub(crate) fn keys<R: Rounds>(&self, rounds: R) -> [Vector<R>; 11] {
        self.keys.map(|key| rounds.lanes().splat_block(key))
    }
}

/// The key schedule (FIPS 197, section 5.2).
#[target_feature(enable = "aes")]
fn expand(key: Block) -> [Block; 11] {
    let mut keys = [key; 11];
    let mut last: __m128i = bytemuck::cast(key);
    macro_rules! round {
        ($($index:literal $constant:literal),*) => {$(
            let word = _mm_shuffle_epi32::<0xff>(_mm_aeskeygenassist_si128::<$constant>(last));
            last = _mm_xor_si128(last, _mm_slli_si128::<4>(last));
            last = _mm_xor_si128(last, _mm_slli_si128::<8>(last));
            last = _mm_xor_si128(last, word);
            keys[$index] = bytemuck::cast(last);
        )*};
    }
    round!(1 0x01, 2 0x02, 3 0x04, 4 0x08, 5 0x10, 6 0x20, 7 0x40, 8 0x80, 9 0x1b, 10 0x36);
    keys
}

/// Vectors of counters.
pub(crate) struct Counter<R: Rounds> {
    rounds: R,
    next: Vector<R>,
    step: Vector<R>,
}

impl<R: Rounds> Counter<R> {
    /// From `first` on, modulo 2^64.
    #[inline(always)]
    pub fn new(rounds: R, first: u64) -> Self {
        let lanes = rounds.lanes();
        let lower = lanes.splat_block(Block::from_u128(u64::MAX.into()));
        let low = |x| lanes.and(x, lower);
        Self {
            rounds,
            next: low(lanes.add(lanes.numbers(), lanes.splat(first))),
            step: low(lanes.splat(R::BLOCKS as u64)),
        }
    }

    /// The next counters.
    #[inline(always)]
    pub fn next<const COUNT: usize>(&mut self) -> [Vector<R>; COUNT] {
        let mut x = [self.next; COUNT];
        for x in &mut x {
            *x = self.next;
            self.next = self.rounds.lanes().add(self.next, self.step);
        }
        x
    }
}

/// Vectors that go through the rounds side by side: enough for the latency of a round.
const SIDE_BY_SIDE: usize = 8;

at_both_widths! {
    fn encrypt_counters(aes, cipher, first: u64, out: &mut [Block]) {
        let (keys, mut counter) = (cipher.keys(aes), Counter::new(aes, first));
        let mut words = [bytemuck::Zeroable::zeroed(); SIDE_BY_SIDE];
        for out in out.chunks_mut(SIDE_BY_SIDE * R::BLOCKS) {
            let mut x = counter.next::<SIDE_BY_SIDE>();
            rounds(aes, &keys, &mut x);
            for (x, words) in x.into_iter().zip(&mut words) {
                aes.lanes().store(x, words);
            }
            let blocks: &[Block] = bytemuck::cast_slice(&words);
            out.copy_from_slice(&blocks[..out.len()]);
        }
    }
}

at_both_widths! {
    /// Replaces block `j` by `E(E(x) + first + j) + E(x)`, for a multiple of
    /// [`WIDEST`](crate::ot::simd::WIDEST) blocks.
    pub(crate) fn hash(aes, cipher, first: u64, blocks: &mut [Block]) {
        let (keys, mut counter) = (cipher.keys(aes), Counter::new(aes, first));
        let words: &mut [Words<R>] = bytemuck::cast_slice_mut(blocks);
        let (many, rest) = words.as_chunks_mut::<SIDE_BY_SIDE>();
        for words in many {
            hashed(aes, &keys, counter.next(), words);
        }
        for words in rest {
            hashed(aes, &keys, counter.next(), std::array::from_mut(words));
        }
    }
}

#[inline(always)]
fn hashed<R: Rounds, const COUNT: usize>(
    aes: R,
    keys: &[Vector<R>; 11],
    tweaks: [Vector<R>; COUNT],
    words: &mut [Words<R>; COUNT],
) {
    let lanes = aes.lanes();
    let mut inner = tweaks;
    for (inner, words) in inner.iter_mut().zip(&*words) {
        *inner = lanes.load(words);
    }
    rounds(aes, keys, &mut inner);
    let mut outer = tweaks;
    for (outer, inner) in outer.iter_mut().zip(inner) {
        *outer = lanes.xor(*outer, inner);
    }
    rounds(aes, keys, &mut outer);
    for ((outer, inner), words) in outer.into_iter().zip(inner).zip(words) {
        lanes.store(lanes.xor(outer, inner), words);
    }
}

/// Blocks to read, and where to write as many. They may be the same, but not overlap otherwise.
struct Blocks {
    from: *const Block,
    to: *mut Block,
    count: usize,
}

impl Blocks {
    /// # Safety
    /// The places are the same, or do not overlap. While the value lives, `from` must be valid for reads and `to` for writes of `count` blocks.
    unsafe fn new(from: *const Block, to: *mut Block, count: usize) -> Self {
        Self { from, to, count }
    }

    /// Where the next `count` vectors are read and written, if so many are left.
    #[inline(always)]
    fn take<R: Rounds>(&mut self, count: usize) -> Option<(*const Words<R>, *mut Words<R>)> {
        let blocks = count * R::BLOCKS;
        if self.count < blocks {
            return None;
        }
        let (from, to) = (self.from, self.to);
        self.count -= blocks;
        // SAFETY: that many blocks were left.
        (self.from, self.to) = unsafe { (from.add(blocks), to.add(blocks)) };
        Some((from.cast(), to.cast()))
    }
}

at_both_widths! {
    fn encrypt(aes, cipher, blocks: Blocks) {
        let (keys, mut blocks) = (cipher.keys(aes), blocks);
        // WithVaes vectors have registers for more.
        while R::BLOCKS > 2 && vectors::<R, 16>(aes, &keys, &mut blocks) {}
        while vectors::<R, SIDE_BY_SIDE>(aes, &keys, &mut blocks) {}
        while vectors::<R, 4>(aes, &keys, &mut blocks) {}
        while vectors::<R, 1>(aes, &keys, &mut blocks) {}
        if blocks.count > 0 {
            // Fewer than a vector.
            let mut some = [Block::ZERO; 4];
            // SAFETY: so many blocks are left to read.
            unsafe { some.as_mut_ptr().copy_from_nonoverlapping(blocks.from, blocks.count) };
            let words = some.as_mut_ptr();
            // SAFETY: a vector has at most four blocks.
            let mut whole = unsafe { Blocks::new(words, words, R::BLOCKS) };
            vectors::<R, 1>(aes, &keys, &mut whole);
            // SAFETY: so many blocks are left to write.
            unsafe { blocks.to.copy_from_nonoverlapping(some.as_ptr(), blocks.count) };
            some.zeroize();
        }
    }
}

/// Encrypts the next `COUNT` vectors; whether there were so many.
#[inline(always)]
fn vectors<R: Rounds, const COUNT: usize>(
    aes: R,
    keys: &[Vector<R>; 11],
    blocks: &mut Blocks,
) -> bool {
    let Some((from, to)) = blocks.take::<R>(COUNT) else {
        return false;
    };
    let mut x = [keys[0]; COUNT];
    for (i, x) in x.iter_mut().enumerate() {
        // SAFETY: within the blocks to read.
        *x = aes.lanes().load(&unsafe { from.add(i).read_unaligned() });
    }
    rounds(aes, keys, &mut x);
    for (i, x) in x.into_iter().enumerate() {
        let mut words = bytemuck::Zeroable::zeroed();
        aes.lanes().store(x, &mut words);
        // SAFETY: within the blocks to write.
        unsafe { to.add(i).write_unaligned(words) };
    }
    true
}

/// Encrypts vectors of blocks.
#[inline(always)]
pub(crate) fn rounds<R: Rounds, const COUNT: usize>(
    aes: R,
    keys: &[Vector<R>; 11],
    x: &mut [Vector<R>; COUNT],
) {
    for x in &mut *x {
        *x = aes.lanes().xor(*x, keys[0]);
    }
    for &key in &keys[1..10] {
        for x in &mut *x {
            *x = aes.round(*x, key);
        }
    }
    for x in x {
        *x = aes.last_round(*x, keys[10]);
    }
}
