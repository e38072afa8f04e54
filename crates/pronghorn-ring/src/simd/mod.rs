//! The code that runs at a chosen [`SimdLevel`], and the choice.
//!
//! Two kinds: routines written over [`Lanes`] (the NTT, products), and plain loops
//! that [`vectorised!`] has the compiler build once for each level.
#![allow(unsafe_code)] // CPU intrinsics, unchecked loads and stores, calls of detected code.

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod bits;
mod counters;
mod lanes;
mod ntt;
mod residues;
pub(crate) mod vector;

pub(crate) use counters::{GROUP, PLANES, centred_sums};

use crate::{Prime, SimdLevel};
use lanes::{Lanes, Scalar};
pub(crate) use ntt::{Direction, Source, Transform, Twiddles};
pub(crate) use vector::{CentredFrom, InnerProducts, STREAM_BLOCK, StreamedSums, mask_and_largest};

/// Defines a function whose plain body is compiled for every level and run at the one its first
/// argument names (or the best below it that the CPU has). The body is ordinary safe code; use it
/// in modules named `simd`, since the choice expands to calls that need `unsafe`.
#[macro_export]
macro_rules! vectorised {
    ($(#[$meta:meta])* $vis:vis fn $name:ident $(<$generic:ident : $bound:path $(, const $constant:ident : usize)?>)?
        ($($arg:ident : $ty:ty),* $(,)?) $(-> $ret:ty)? $body:block) => {
        $(#[$meta])*
        #[allow(clippy::too_many_arguments)]
        $vis fn $name $(<$generic: $bound $(, const $constant: usize)?>)?
            (level: $crate::SimdLevel, $($arg: $ty),*) $(-> $ret)? {
            #[inline(always)]
            fn plain $(<$generic: $bound $(, const $constant: usize)?>)? ($($arg: $ty),*) $(-> $ret)? $body
            #[cfg(target_arch = "x86_64")]
            {
                #[target_feature(enable = "avx2")]
                fn avx2 $(<$generic: $bound $(, const $constant: usize)?>)? ($($arg: $ty),*) $(-> $ret)? {
                    plain $(::<$generic $(, $constant)?>)? ($($arg),*)
                }
                #[target_feature(enable = "avx2,avx512f,avx512bw,avx512dq,avx512vl")]
                fn avx512 $(<$generic: $bound $(, const $constant: usize)?>)? ($($arg: $ty),*) $(-> $ret)? {
                    plain $(::<$generic $(, $constant)?>)? ($($arg),*)
                }
                match level.or_best() {
                    // SAFETY: `or_best` returns only levels this CPU has.
                    $crate::SimdLevel::Avx512 | $crate::SimdLevel::Avx512Ifma => return unsafe { avx512 $(::<$generic $(, $constant)?>)? ($($arg),*) },
                    // SAFETY: as above.
                    $crate::SimdLevel::Avx2 => return unsafe { avx2 $(::<$generic $(, $constant)?>)? ($($arg),*) },
                    $crate::SimdLevel::Portable => {}
                }
            }
            #[cfg(not(target_arch = "x86_64"))]
            let _ = level;
            plain $(::<$generic $(, $constant)?>)? ($($arg),*)
        }
    };
}
pub(crate) use vectorised;

/// What runs on vectors of words of any kind.
pub trait Routine<W> {
    /// What comes of it.
    type Output;
    /// To be `inline(always)`, so that it is compiled for the instructions of `lanes`.
    fn run<L: Lanes<Word = W>>(self, lanes: L) -> Self::Output;
}

/// What a [`Word`](crate::Word) must bring to run at every level. Sealed: this module is private.
pub trait Kernels: Sized {
    /// Runs the routine on the best vectors of a level (or the best below it that the CPU has) for
    /// residues below `q`.
    #[doc(hidden)]
    fn run<R: Routine<Self>>(level: SimdLevel, q: &Prime<Self>, routine: R) -> R::Output;
    /// [`run`](Self::run) of a transform. Not generic, as what follows, so that the largest
    /// routines are compiled in this crate, once.
    #[doc(hidden)]
    fn transform(level: SimdLevel, transform: Transform<'_, Self>);
    /// The same of an inner product.
    #[doc(hidden)]
    fn inner_product(level: SimdLevel, sums: InnerProducts<'_, Self, 1>);
    /// The same of two with one factor in common.
    #[doc(hidden)]
    fn inner_product_pair(level: SimdLevel, sums: InnerProducts<'_, Self, 2>);
    /// The same of many of them.
    #[doc(hidden)]
    fn streamed_sums(level: SimdLevel, sums: StreamedSums<'_, '_, Self>);
    /// Packs 512 words into `width * 64` bytes.
    #[doc(hidden)]
    fn pack_block(level: SimdLevel, words: &[Self], width: u32, bytes: &mut [u8]);
    /// Unpacks `width * 64` bytes into 512 words.
    #[doc(hidden)]
    fn unpack_block(level: SimdLevel, bytes: &[u8], width: u32, words: &mut [Self]);
}

macro_rules! kernels {
    ($word:ty $(, $($level:ident)|+ $(if $holds:ident)? => $lanes:ty)*) => {
        impl Kernels for $word {
            fn run<R: Routine<Self>>(level: SimdLevel, q: &Prime<Self>, routine: R) -> R::Output {
                let _ = q;
                match level.or_best() {
                    $(#[cfg(target_arch = "x86_64")]
                    // SAFETY: `or_best` returns only levels this CPU has.
                    $(SimdLevel::$level)|+ $(if q.$holds())? => unsafe { <$lanes>::enter(routine) },)*
                    _ => routine.run(Scalar::NEW),
                }
            }

            fn transform(level: SimdLevel, transform: Transform<'_, Self>) {
                Self::run(level, transform.q, transform);
            }

            fn inner_product(level: SimdLevel, sums: InnerProducts<'_, Self, 1>) {
                sums.run(level);
            }

            fn inner_product_pair(level: SimdLevel, sums: InnerProducts<'_, Self, 2>) {
                sums.run(level);
            }

            fn streamed_sums(level: SimdLevel, sums: StreamedSums<'_, '_, Self>) {
                Self::run(level, sums.q, sums);
            }

            fn pack_block(level: SimdLevel, words: &[Self], width: u32, bytes: &mut [u8]) {
                bits::pack_block::<Self, { 512 / <$word>::BITS as usize }>(level, words, width, bytes)
            }

            fn unpack_block(level: SimdLevel, bytes: &[u8], width: u32, words: &mut [Self]) {
                bits::unpack_block::<Self, { 512 / <$word>::BITS as usize }>(level, bytes, width, words)
            }
        }
    };
}

kernels!(
    u32,
    Avx512 | Avx512Ifma => avx512::Avx512<u32, 32>,
    Avx2 => avx2::Avx2
);
kernels!(
    u64,
    Avx512Ifma if fits_short_multiplier => avx512::Avx512<u64, 52>,
    Avx512 | Avx512Ifma => avx512::Avx512<u64, 64>
);

/// The way into a [`Lanes`] type: a routine compiled with its CPU features.
#[cfg(target_arch = "x86_64")]
macro_rules! entry_point {
    ($lanes:ty, $word:ty, $features:literal) => {
        impl $lanes {
            /// # Safety
            /// The CPU must have the features of this type.
            pub(super) unsafe fn enter<R: Routine<$word>>(routine: R) -> R::Output {
                // Not even into a function with these features: see `Lanes::apart`.
                #[inline(never)]
                #[target_feature(enable = $features)]
                fn run<R: Routine<$word>>(routine: R) -> R::Output {
                    // SAFETY: this function runs with the features of the token.
                    routine.run(unsafe { <$lanes>::new() })
                }
                // SAFETY: the CPU has the features by contract.
                unsafe { run(routine) }
            }
        }
    };
}
#[cfg(target_arch = "x86_64")]
use entry_point;
