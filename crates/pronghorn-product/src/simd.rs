//! Micro-kernels on vector instructions, and the choice among them at run time.
#![allow(unsafe_code)] // Vector loads through pointers, and calls of code for a detected CPU.

use pronghorn_ring::{SimdLevel, Word};

use crate::kernel::{PORTABLE, Portable};
use crate::nest::{self, Job, Scratch};

#[cfg(target_arch = "x86_64")]
mod amx;

/// A set of instructions that this CPU was seen to have.
#[derive(Clone, Copy)]
pub(crate) enum Backend {
    /// Plain Rust.
    Portable,
    /// `pmaddwd` on 128 bits, which all x86-64 CPUs have: the portable level there.
    #[cfg(target_arch = "x86_64")]
    Sse2(x86::Sse2),
    /// `vpmaddwd` on 256 bits.
    #[cfg(target_arch = "x86_64")]
    Avx2(x86::Avx2),
    /// `vpmaddwd` on 512 bits.
    #[cfg(target_arch = "x86_64")]
    Avx512(x86::Avx512),
    /// `vpdpwssd` on 512 bits.
    #[cfg(target_arch = "x86_64")]
    Vnni(x86::Vnni),
    /// Matrices of bytes where they do, `vpdpwssd` elsewhere.
    #[cfg(target_arch = "x86_64")]
    Amx(amx::Amx),
}

/// Memory of one back end for one tile.
#[cfg(target_arch = "x86_64")]
pub(crate) type TileScratch = amx::Scratch;
/// Memory of one back end for one tile.
#[cfg(not(target_arch = "x86_64"))]
pub(crate) type TileScratch = ();

impl Backend {
    /// The fastest back end of a level, or the portable one where the CPU has less.
    pub(crate) fn new(level: SimdLevel) -> Self {
        let portable = || Self::all(SimdLevel::Portable).pop();
        Self::all(level)
            .pop()
            .or_else(portable)
            .unwrap_or(Self::Portable)
    }

    /// The back ends of a level that this CPU has, the fastest last.
    pub(crate) fn all(level: SimdLevel) -> Vec<Self> {
        #[cfg(target_arch = "x86_64")]
        return match level {
            SimdLevel::Portable => vec![Self::Portable, Self::Sse2(x86::Sse2)],
            SimdLevel::Avx2 => x86::Avx2::detect().map(Self::Avx2).into_iter().collect(),
            SimdLevel::Avx512 | SimdLevel::Avx512Ifma => {
                let plain = x86::Avx512::detect().map(Self::Avx512).into_iter();
                let with_vnni = plain.chain(x86::Vnni::detect().map(Self::Vnni));
                with_vnni.chain(amx::Amx::detect().map(Self::Amx)).collect()
            }
        };
        #[cfg(not(target_arch = "x86_64"))]
        match level {
            SimdLevel::Portable => vec![Self::Portable],
            _ => Vec::new(),
        }
    }

    /// Computes one tile of the output.
    pub(crate) fn run<W: Word>(
        self,
        job: &Job<'_, W>,
        tile: usize,
        output: &mut [W],
        scratch: &mut Scratch,
    ) {
        #[cfg(target_arch = "x86_64")]
        if let Self::Amx(cpu) = self
            && cpu.run(job, tile, output, &mut scratch.tiles)
        {
            return;
        }
        match job.modulus.limbs {
            2 => self.run_limbs::<W, 2>(job, tile, output, scratch),
            3 => self.run_limbs::<W, 3>(job, tile, output, scratch),
            _ => self.run_limbs::<W, 4>(job, tile, output, scratch),
        }
    }

    fn run_limbs<W: Word, const L: usize>(
        self,
        job: &Job<'_, W>,
        tile: usize,
        output: &mut [W],
        scratch: &mut Scratch,
    ) {
        match self {
            Self::Portable => {
                nest::run::<W, _, L, PORTABLE>(Portable, job, tile, output, scratch);
            }
            #[cfg(target_arch = "x86_64")]
            Self::Sse2(cpu) => nest::run::<W, _, L, 4>(cpu, job, tile, output, scratch),
            // SAFETY: the token says that the CPU has AVX2.
            #[cfg(target_arch = "x86_64")]
            Self::Avx2(cpu) => unsafe { x86::tile_avx2::<W, L>(cpu, job, tile, output, scratch) },
            // SAFETY: the token says that the CPU has these parts of AVX-512.
            #[cfg(target_arch = "x86_64")]
            Self::Avx512(cpu) => unsafe {
                x86::tile_avx512::<W, _, L>(cpu, job, tile, output, scratch);
            },
            // SAFETY: the token says that the CPU has these parts of AVX-512, and more.
            #[cfg(target_arch = "x86_64")]
            Self::Vnni(cpu) | Self::Amx(amx::Amx(cpu)) => unsafe {
                x86::tile_avx512::<W, _, L>(cpu, job, tile, output, scratch);
            },
        }
    }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::*;

    use pronghorn_ring::Word;

    use crate::kernel::{Kernel, Steps, Sums, with_block};
    use crate::nest::{self, Job, Scratch};

    /// SSE2 is part of x86-64.
    #[derive(Clone, Copy)]
    pub(crate) struct Sse2;

    /// Proof that the CPU has AVX2.
    #[derive(Clone, Copy)]
    pub(crate) struct Avx2(());

    /// Proof that the CPU has AVX-512 F, BW, DQ and VL.
    #[derive(Clone, Copy)]
    pub(crate) struct Avx512(());

    /// Proof that the CPU has, besides, AVX-512 VNNI.
    #[derive(Clone, Copy)]
    pub(crate) struct Vnni(());

    impl Avx2 {
        pub(crate) fn detect() -> Option<Self> {
            is_x86_feature_detected!("avx2").then_some(Self(()))
        }
    }

    impl Avx512 {
        pub(crate) fn detect() -> Option<Self> {
            let all = is_x86_feature_detected!("avx512f")
                && is_x86_feature_detected!("avx512bw")
                && is_x86_feature_detected!("avx512dq")
                && is_x86_feature_detected!("avx512vl");
            all.then_some(Self(()))
        }
    }

    impl Vnni {
        pub(crate) fn detect() -> Option<Self> {
            Avx512::detect()?;
            is_x86_feature_detected!("avx512vnni").then_some(Self(()))
        }
    }

    #[target_feature(enable = "avx2")]
    pub(crate) fn tile_avx2<W: Word, const L: usize>(
        cpu: Avx2,
        job: &Job<'_, W>,
        tile: usize,
        output: &mut [W],
        scratch: &mut Scratch,
    ) {
        nest::run::<W, _, L, 8>(cpu, job, tile, output, scratch);
    }

    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
    pub(crate) fn tile_avx512<W: Word, K: Kernel<16>, const L: usize>(
        cpu: K,
        job: &Job<'_, W>,
        tile: usize,
        output: &mut [W],
        scratch: &mut Scratch,
    ) {
        nest::run::<W, _, L, 16>(cpu, job, tile, output, scratch);
    }

    #[inline(always)]
    fn prefetch<T>(words: &[T]) {
        const LINE: usize = 64;
        for byte in (0..size_of_val(words)).step_by(LINE) {
            // SAFETY: within the slice; besides, prefetching any address is no access.
            unsafe { _mm_prefetch::<_MM_HINT_T1>(words.as_ptr().cast::<i8>().add(byte)) };
        }
    }

    /// What kernels of so many registers compute at once: outputs for each number of vectors, blocks
    /// of columns for each of both, and all shapes of these.
    macro_rules! kernels {
        ([$($cpu:ident $lanes:literal $function:ident),+], $rows:expr, $together:expr, $blocks:tt) => {
            $(impl Kernel<$lanes> for $cpu {
                fn most_rows(self, vectors: usize) -> usize {
                    $rows[vectors]
                }

                #[inline(always)]
                fn blocks_together(self, rows: usize, vectors: usize, all: usize) -> usize {
                    all.min($together(rows, vectors))
                }

                #[inline(always)]
                fn run(self, steps: Steps<'_, $lanes>, sums: &mut Sums) {
                    // SAFETY: `self` says that the CPU has what the function is compiled for.
                    unsafe { with_block!(steps.block(), $function, (steps, sums), $blocks) };
                }

                #[inline(always)]
                fn fetch<T>(self, words: &[T]) {
                    prefetch(words);
                }
            })+
        };
    }
    // 16 registers: 12 sums, up to four vectors of data, a weight.
    kernels!(
        [Sse2 4 kernel_sse2, Avx2 8 kernel_avx2],
        [0, 0, 6, 4, 3],
        |rows, vectors| match (rows, vectors) {
            (1, 2) => 4,
            (2 | 3, 2) | (1, 3) => 2,
            _ => 1,
        },
        [
            1 x 2 x 1, 2 x 2 x 1, 3 x 2 x 1, 4 x 2 x 1, 5 x 2 x 1, 6 x 2 x 1,
            1 x 2 x 2, 1 x 2 x 4, 2 x 2 x 2, 3 x 2 x 2,
            1 x 3 x 1, 2 x 3 x 1, 3 x 3 x 1, 4 x 3 x 1, 1 x 3 x 2,
            1 x 4 x 1, 2 x 4 x 1, 3 x 4 x 1
        ]
    );
    // 32 registers: 24 sums, up to four vectors of data, a weight.
    kernels!(
        [Avx512 16 kernel_avx512, Vnni 16 kernel_vnni],
        [0, 0, 12, 8, 6],
        |rows, vectors| match (rows, vectors) {
            (1, 2) => 8,
            (2, 2) | (1, 3) => 4,
            (3, 2) | (2, 3) | (1, 4) => 2,
            _ => 1,
        },
        [
            1 x 2 x 1, 2 x 2 x 1, 3 x 2 x 1, 4 x 2 x 1, 5 x 2 x 1, 6 x 2 x 1,
            7 x 2 x 1, 8 x 2 x 1, 9 x 2 x 1, 10 x 2 x 1, 11 x 2 x 1, 12 x 2 x 1,
            1 x 2 x 2, 1 x 2 x 4, 1 x 2 x 8, 2 x 2 x 2, 2 x 2 x 4, 3 x 2 x 2,
            1 x 3 x 1, 2 x 3 x 1, 3 x 3 x 1, 4 x 3 x 1, 5 x 3 x 1, 6 x 3 x 1,
            7 x 3 x 1, 8 x 3 x 1, 1 x 3 x 2, 1 x 3 x 4, 2 x 3 x 2,
            1 x 4 x 1, 2 x 4 x 1, 3 x 4 x 1, 4 x 4 x 1, 5 x 4 x 1, 6 x 4 x 1,
            1 x 4 x 2
        ]
    );

    /// One micro-kernel: the same loop over different vectors and multiply-add instructions.
    /// The number of steps is a run-time value, so that the compiler keeps one copy of the sums,
    /// in registers.
    macro_rules! micro_kernel {
        ($name:ident, $features:literal, $lanes:literal, $load:ident, $store:ident,
         $broadcast:ident, $multiply_add:expr) => {
            #[target_feature(enable = $features)]
            fn $name<const ROWS: usize, const VECTORS: usize, const TOGETHER: usize>(
                steps: Steps<'_, $lanes>,
                sums: &mut Sums,
            ) {
                assert_eq!(steps.block(), (ROWS, VECTORS, TOGETHER));
                let (offsets, data, first_weights, stride) = steps.operands();
                let columns = steps.columns();
                let bias = steps.bias::<ROWS, VECTORS>();
                let mut data = data.as_ptr();
                let blocks = sums.0.chunks_exact_mut(TOGETHER * ROWS * VECTORS * $lanes);
                for sums in blocks.take(columns.blocks / TOGETHER) {
                    let mut weights = first_weights.as_ptr().cast::<i32>();
                    let totals: [[_; VECTORS]; ROWS] = std::array::from_fn(|row| {
                        std::array::from_fn(|vector| $broadcast(bias[row][vector]))
                    });
                    let mut totals = [totals; TOGETHER];
                    for &offset in offsets {
                        let words: [[_; VECTORS]; TOGETHER] = std::array::from_fn(|block| {
                            std::array::from_fn(|vector| {
                                let at = offset as usize + block * columns.apart + $lanes * vector;
                                // SAFETY: `Steps` holds VECTORS * $lanes words of data at each
                                // offset of each block.
                                unsafe { $load(data.add(at).cast()) }
                            })
                        });
                        for row in 0..ROWS {
                            // SAFETY: `Steps` holds ROWS weights for each step.
                            let weight = $broadcast(unsafe { *weights.add(row) });
                            for (totals, words) in totals.iter_mut().zip(&words) {
                                for (total, words) in totals[row].iter_mut().zip(words) {
                                    *total = $multiply_add(*total, *words, weight);
                                }
                            }
                        }
                        weights = weights.wrapping_add(stride);
                    }
                    for (total, sums) in totals
                        .as_flattened()
                        .as_flattened()
                        .iter()
                        .zip(sums.as_chunks_mut::<$lanes>().0)
                    {
                        // SAFETY: the array has $lanes words.
                        unsafe { $store(sums.as_mut_ptr().cast(), *total) };
                    }
                    data = data.wrapping_add(TOGETHER * columns.apart);
                }
            }
        };
    }
    micro_kernel!(
        kernel_sse2,
        "sse2",
        4,
        _mm_loadu_si128,
        _mm_storeu_si128,
        _mm_set1_epi32,
        |total, words, weight| _mm_add_epi32(total, _mm_madd_epi16(words, weight))
    );
    micro_kernel!(
        kernel_avx2,
        "avx2",
        8,
        _mm256_loadu_si256,
        _mm256_storeu_si256,
        _mm256_set1_epi32,
        |total, words, weight| _mm256_add_epi32(total, _mm256_madd_epi16(words, weight))
    );
    micro_kernel!(
        kernel_avx512,
        "avx512f,avx512bw",
        16,
        _mm512_loadu_si512,
        _mm512_storeu_si512,
        _mm512_set1_epi32,
        |total, words, weight| _mm512_add_epi32(total, _mm512_madd_epi16(words, weight))
    );
    micro_kernel!(
        kernel_vnni,
        "avx512f,avx512bw,avx512vnni",
        16,
        _mm512_loadu_si512,
        _mm512_storeu_si512,
        _mm512_set1_epi32,
        _mm512_dpwssd_epi32
    );
}
