//! The code that runs at a chosen [`SimdLevel`], and the choice.
//!
//! Two kinds: routines written over [`Lanes`] (the NTT, Shoup products), and plain loops
//! that [`vectorised!`] has the compiler build once for each level.
#![allow(unsafe_code)] // CPU intrinsics, unchecked vector loads and stores, calls of code for detected CPU features

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod bits;
mod counters;
mod lanes;
mod ntt;
pub(crate) mod vector;

pub(crate) use counters::{GROUP, PLANES, centred_sums};

use crate::{Prime, SimdLevel};
use lanes::Scalar;
pub(crate) use ntt::Twiddles;
pub(crate) use vector::mask_and_largest;

/// Defines a function whose plain body is compiled for every level and run at the one its first
/// argument names (or the best below it that the CPU has). The body is ordinary safe code; use it in
/// modules named `simd`, since the choice expands to calls that need `unsafe`.
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
                    $crate::SimdLevel::Avx512 => return unsafe { avx512 $(::<$generic $(, $constant)?>)? ($($arg),*) },
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

/// What a [`Word`] must bring to run at every level. Sealed: this module is private.
pub trait Kernels: Sized {
    /// Forward NTT of `x`, `x.len()` being the degree of `twiddles`.
    #[doc(hidden)]
    fn ntt_forward(level: SimdLevel, q: &Prime<Self>, twiddles: &Twiddles<Self>, x: &mut [Self]);
    /// Inverse NTT of `x`, scaled by `1/n`.
    #[doc(hidden)]
    fn ntt_inverse(level: SimdLevel, q: &Prime<Self>, twiddles: &Twiddles<Self>, x: &mut [Self]);
    /// `out = x * y mod q`; slices of one length.
    #[doc(hidden)]
    fn mul_shoup(
        level: SimdLevel,
        q: &Prime<Self>,
        x: &[Self],
        y: &[Self],
        y_shoup: &[Self],
        out: &mut [Self],
    );
    /// Packs 512 words into `width * 64` bytes.
    #[doc(hidden)]
    fn pack_block(level: SimdLevel, words: &[Self], width: u32, bytes: &mut [u8]);
    /// Unpacks `width * 64` bytes into 512 words.
    #[doc(hidden)]
    fn unpack_block(level: SimdLevel, bytes: &[u8], width: u32, words: &mut [Self]);
}

macro_rules! kernels {
    ($word:ty $(, $level:ident => $lanes:path)*) => {
        impl Kernels for $word {
            fn ntt_forward(level: SimdLevel, q: &Prime<Self>, twiddles: &Twiddles<Self>, x: &mut [Self]) {
                match level.or_best() {
                    // A vector pair is the least the vector code handles; smaller degrees are scalar.
                    $(#[cfg(target_arch = "x86_64")]
                    // SAFETY: `or_best` returns only levels this CPU has.
                    SimdLevel::$level if x.len() >= <$lanes>::LEAST => unsafe { <$lanes>::ntt_forward(q, twiddles, x) },)*
                    _ => ntt::forward(Scalar::<$word>::NEW, q, twiddles, x),
                }
            }

            fn ntt_inverse(level: SimdLevel, q: &Prime<Self>, twiddles: &Twiddles<Self>, x: &mut [Self]) {
                match level.or_best() {
                    $(#[cfg(target_arch = "x86_64")]
                    // SAFETY: `or_best` returns only levels this CPU has.
                    SimdLevel::$level if x.len() >= <$lanes>::LEAST => unsafe { <$lanes>::ntt_inverse(q, twiddles, x) },)*
                    _ => ntt::inverse(Scalar::<$word>::NEW, q, twiddles, x),
                }
            }

            fn mul_shoup(level: SimdLevel, q: &Prime<Self>, x: &[Self], y: &[Self], y_shoup: &[Self], out: &mut [Self]) {
                match level.or_best() {
                    $(#[cfg(target_arch = "x86_64")]
                    // SAFETY: `or_best` returns only levels this CPU has.
                    SimdLevel::$level => unsafe { <$lanes>::mul_shoup(q, x, y, y_shoup, out) },)*
                    _ => vector::mul_shoup_lanes(Scalar::<$word>::NEW, q, x, y, y_shoup, out),
                }
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

kernels!(u32, Avx512 => avx512::Avx512<u32>, Avx2 => avx2::Avx2);
kernels!(u64, Avx512 => avx512::Avx512<u64>);

/// Entry points of a [`Lanes`] type: the generic routines compiled with its CPU features.
#[cfg(target_arch = "x86_64")]
macro_rules! entry_points {
    ($lanes:ty, $word:ty, $features:literal) => {
        impl $lanes {
            /// Shortest polynomial the vector NTT handles.
            pub(super) const LEAST: usize = 2 * <Self as Lanes>::COUNT;

            /// # Safety
            /// The CPU must have the features of this type.
            pub(super) unsafe fn ntt_forward(
                q: &Prime<$word>,
                twiddles: &Twiddles<$word>,
                x: &mut [$word],
            ) {
                #[target_feature(enable = $features)]
                fn run(q: &Prime<$word>, twiddles: &Twiddles<$word>, x: &mut [$word]) {
                    // SAFETY: this function runs with the features of the token.
                    let lanes = unsafe { <$lanes>::new() };
                    crate::simd::ntt::forward(lanes, q, twiddles, x)
                }
                // SAFETY: the CPU has the features by contract.
                unsafe { run(q, twiddles, x) }
            }

            /// # Safety
            /// The CPU must have the features of this type.
            pub(super) unsafe fn ntt_inverse(
                q: &Prime<$word>,
                twiddles: &Twiddles<$word>,
                x: &mut [$word],
            ) {
                #[target_feature(enable = $features)]
                fn run(q: &Prime<$word>, twiddles: &Twiddles<$word>, x: &mut [$word]) {
                    // SAFETY: this function runs with the features of the token.
                    let lanes = unsafe { <$lanes>::new() };
                    crate::simd::ntt::inverse(lanes, q, twiddles, x)
                }
                // SAFETY: the CPU has the features by contract.
                unsafe { run(q, twiddles, x) }
            }

            /// # Safety
            /// The CPU must have the features of this type.
            pub(super) unsafe fn mul_shoup(
                q: &Prime<$word>,
                x: &[$word],
                y: &[$word],
                y_shoup: &[$word],
                out: &mut [$word],
            ) {
                #[target_feature(enable = $features)]
                fn run(
                    q: &Prime<$word>,
                    x: &[$word],
                    y: &[$word],
                    y_shoup: &[$word],
                    out: &mut [$word],
                ) {
                    // SAFETY: this function runs with the features of the token.
                    let lanes = unsafe { <$lanes>::new() };
                    crate::simd::vector::mul_shoup_lanes(lanes, q, x, y, y_shoup, out)
                }
                // SAFETY: the CPU has the features by contract.
                unsafe { run(q, x, y, y_shoup, out) }
            }
        }
    };
}
#[cfg(target_arch = "x86_64")]
use entry_points;
