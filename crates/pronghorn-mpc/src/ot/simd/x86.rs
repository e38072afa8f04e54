//! [`Lanes`] of x86-64, and carry-less products.

use std::arch::x86_64::*;

use super::lanes::Lanes;
use crate::Block;

/// An expression of register-only intrinsics, allowed by the token.
macro_rules! intrinsic {
    ($expression:expr) => {{
        // SAFETY: the token `self` exists only where the CPU has these instructions.
        unsafe { $expression }
    }};
}

/// Proof that the CPU has AVX2.
#[derive(Clone, Copy)]
pub struct Avx2(());

impl Avx2 {
    /// # Safety
    /// The CPU must have AVX2.
    #[inline(always)]
    pub unsafe fn new() -> Self {
        Self(())
    }
}

impl Lanes for Avx2 {
    const WORDS: usize = 4;
    type Words = [u64; 4];
    type Vector = __m256i;

    #[inline(always)]
    fn load(self, words: &[u64; 4]) -> __m256i {
        bytemuck::cast(*words)
    }
    #[inline(always)]
    fn store(self, vector: __m256i, words: &mut [u64; 4]) {
        *words = bytemuck::cast(vector);
    }
    #[inline(always)]
    fn splat(self, word: u64) -> __m256i {
        intrinsic!(_mm256_set1_epi64x(word as i64))
    }
    #[inline(always)]
    fn xor(self, x: __m256i, y: __m256i) -> __m256i {
        intrinsic!(_mm256_xor_si256(x, y))
    }
    #[inline(always)]
    fn and(self, x: __m256i, y: __m256i) -> __m256i {
        intrinsic!(_mm256_and_si256(x, y))
    }
    #[inline(always)]
    fn select(self, mask: __m256i, x: __m256i, y: __m256i) -> __m256i {
        intrinsic!(_mm256_or_si256(
            _mm256_and_si256(mask, x),
            _mm256_andnot_si256(mask, y)
        ))
    }
    #[inline(always)]
    fn shift_up<const BY: u32>(self, x: __m256i) -> __m256i {
        intrinsic!(_mm256_sll_epi64(x, _mm_cvtsi32_si128(BY as i32)))
    }
    #[inline(always)]
    fn shift_down<const BY: u32>(self, x: __m256i) -> __m256i {
        intrinsic!(_mm256_srl_epi64(x, _mm_cvtsi32_si128(BY as i32)))
    }
    #[inline(always)]
    fn add(self, x: __m256i, y: __m256i) -> __m256i {
        intrinsic!(_mm256_add_epi64(x, y))
    }
    #[inline(always)]
    fn equal(self, x: __m256i, y: __m256i) -> __m256i {
        intrinsic!(_mm256_cmpeq_epi64(x, y))
    }
    #[inline(always)]
    fn numbers(self) -> __m256i {
        intrinsic!(_mm256_set_epi64x(1, 1, 0, 0))
    }
    #[inline(always)]
    fn sigma(self, x: __m256i) -> __m256i {
        // The words exchanged, and the new lower one added to the upper.
        intrinsic!({
            let exchanged = _mm256_shuffle_epi32::<0x4e>(x);
            _mm256_xor_si256(exchanged, _mm256_bslli_epi128::<8>(exchanged))
        })
    }
    #[inline(always)]
    fn scatter(self, low: __m256i, high: __m256i, out: &mut [Block], step: usize) {
        let even: [Block; 2] = bytemuck::cast(intrinsic!(_mm256_unpacklo_epi64(low, high)));
        let odd: [Block; 2] = bytemuck::cast(intrinsic!(_mm256_unpackhi_epi64(low, high)));
        for (pair, (even, odd)) in even.into_iter().zip(odd).enumerate() {
            out[2 * pair * step] = even;
            out[(2 * pair + 1) * step] = odd;
        }
    }
}

/// Proof that the CPU has AVX-512 F and DQ.
#[derive(Clone, Copy)]
pub struct Avx512(());

impl Avx512 {
    /// # Safety
    /// The CPU must have AVX-512 F and DQ.
    #[inline(always)]
    pub unsafe fn new() -> Self {
        Self(())
    }
}

impl Lanes for Avx512 {
    const WORDS: usize = 8;
    type Words = [u64; 8];
    type Vector = __m512i;

    #[inline(always)]
    fn load(self, words: &[u64; 8]) -> __m512i {
        bytemuck::cast(*words)
    }
    #[inline(always)]
    fn store(self, vector: __m512i, words: &mut [u64; 8]) {
        *words = bytemuck::cast(vector);
    }
    #[inline(always)]
    fn splat(self, word: u64) -> __m512i {
        intrinsic!(_mm512_set1_epi64(word as i64))
    }
    #[inline(always)]
    fn xor(self, x: __m512i, y: __m512i) -> __m512i {
        intrinsic!(_mm512_xor_si512(x, y))
    }
    #[inline(always)]
    fn and(self, x: __m512i, y: __m512i) -> __m512i {
        intrinsic!(_mm512_and_si512(x, y))
    }
    #[inline(always)]
    fn select(self, mask: __m512i, x: __m512i, y: __m512i) -> __m512i {
        intrinsic!(_mm512_ternarylogic_epi64::<0xca>(mask, x, y))
    }
    #[inline(always)]
    fn shift_up<const BY: u32>(self, x: __m512i) -> __m512i {
        intrinsic!(_mm512_sll_epi64(x, _mm_cvtsi32_si128(BY as i32)))
    }
    #[inline(always)]
    fn shift_down<const BY: u32>(self, x: __m512i) -> __m512i {
        intrinsic!(_mm512_srl_epi64(x, _mm_cvtsi32_si128(BY as i32)))
    }
    #[inline(always)]
    fn add(self, x: __m512i, y: __m512i) -> __m512i {
        intrinsic!(_mm512_add_epi64(x, y))
    }
    #[inline(always)]
    fn equal(self, x: __m512i, y: __m512i) -> __m512i {
        intrinsic!(_mm512_movm_epi64(_mm512_cmpeq_epi64_mask(x, y)))
    }
    #[inline(always)]
    fn numbers(self) -> __m512i {
        intrinsic!(_mm512_set_epi64(3, 3, 2, 2, 1, 1, 0, 0))
    }
    #[inline(always)]
    fn sigma(self, x: __m512i) -> __m512i {
        // The words exchanged, and the new lower one added to the upper.
        intrinsic!({
            let exchanged = _mm512_shuffle_epi32::<0x4e>(x);
            _mm512_xor_si512(exchanged, _mm512_bslli_epi128::<8>(exchanged))
        })
    }
    #[inline(always)]
    fn scatter(self, low: __m512i, high: __m512i, out: &mut [Block], step: usize) {
        let even: [Block; 4] = bytemuck::cast(intrinsic!(_mm512_unpacklo_epi64(low, high)));
        let odd: [Block; 4] = bytemuck::cast(intrinsic!(_mm512_unpackhi_epi64(low, high)));
        for (pair, (even, odd)) in even.into_iter().zip(odd).enumerate() {
            out[2 * pair * step] = even;
            out[(2 * pair + 1) * step] = odd;
        }
    }
}

/// The 256-bit polynomial of its low, middle (shifted by 64) and high parts.
fn combine(low: u128, middle: u128, high: u128) -> (u128, u128) {
    (low ^ middle << 64, high ^ middle >> 64)
}

/// Defines the inner product on vectors of some blocks, by three carry-less products a block
/// (Karatsuba), the rest block by block.
macro_rules! inner_product {
    (
        $(#[$meta:meta])* $name:ident, $features:literal, $vector:ty, $zero:ident, $xor:ident,
        $exchange:ident, $multiply:ident
    ) => {
        $(#[$meta])*
        #[target_feature(enable = $features)]
        pub fn $name(x: &[Block], y: &[Block]) -> (u128, u128) {
            const BLOCKS: usize = size_of::<$vector>() / size_of::<Block>();
            let ((x, x_rest), (y, y_rest)) = (x.as_chunks::<BLOCKS>(), y.as_chunks::<BLOCKS>());
            let [mut low, mut whole, mut high] = [$zero(); 3];
            for (x, y) in x.iter().zip(y) {
                let (x, y): ($vector, $vector) = (bytemuck::cast(*x), bytemuck::cast(*y));
                low = $xor(low, $multiply::<0x00>(x, y));
                high = $xor(high, $multiply::<0x11>(x, y));
                // The sums of both words.
                let [x, y] = [x, y].map(|x| $xor(x, $exchange::<0x4e>(x)));
                whole = $xor(whole, $multiply::<0x00>(x, y));
            }
            let [low, whole, high] = [low, whole, high].map(|lanes| {
                let lanes: [u128; BLOCKS] = bytemuck::cast(lanes);
                lanes.into_iter().fold(0, |sum, lane| sum ^ lane)
            });
            let product = combine(low, whole ^ low ^ high, high);
            match x_rest {
                [] => product,
                _ => {
                    let rest = inner_product_128(x_rest, y_rest);
                    (product.0 ^ rest.0, product.1 ^ rest.1)
                }
            }
        }
    };
}

inner_product! {
    /// The inner product block by block.
    inner_product_128, "pclmulqdq,sse2", __m128i, _mm_setzero_si128, _mm_xor_si128,
    _mm_shuffle_epi32, _mm_clmulepi64_si128
}

inner_product! {
    /// The inner product with two blocks at a time.
    inner_product_256, "avx2,vpclmulqdq,pclmulqdq", __m256i, _mm256_setzero_si256,
    _mm256_xor_si256, _mm256_shuffle_epi32, _mm256_clmulepi64_epi128
}

inner_product! {
    /// The inner product with four blocks at a time.
    inner_product_512, "avx512f,vpclmulqdq,pclmulqdq", __m512i, _mm512_setzero_si512,
    _mm512_xor_si512, _mm512_shuffle_epi32, _mm512_clmulepi64_epi128
}
