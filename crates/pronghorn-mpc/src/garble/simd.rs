//! The code that runs at a chosen [`SimdLevel`](pronghorn_ring::SimdLevel), and the choice.
#![allow(unsafe_code)] // CPU intrinsics, and calls of code for detected CPU features

/// An expression of intrinsics that touch no memory, allowed by the token.
#[cfg(target_arch = "x86_64")]
macro_rules! intrinsic {
    ($expression:expr) => {{
        // SAFETY: the token `self` exists only where the CPU has these instructions.
        unsafe { $expression }
    }};
}

#[cfg(target_arch = "x86_64")]
mod aes_ni;
mod lanes;
#[cfg(target_arch = "x86_64")]
mod vaes;

pub(super) use lanes::Lanes;

use lanes::Portable;
use pronghorn_ring::SimdLevel;

use super::kernels::{self, EvaluatorTile, GarblerTile};
use crate::circuit::Op;

/// What the levels stand for here: AVX-512 needs VAES as well and AVX2 AES-NI, else the next lower
/// one runs.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Backend {
    Portable,
    #[cfg(target_arch = "x86_64")]
    AesNi,
    #[cfg(target_arch = "x86_64")]
    Vaes,
}

impl Backend {
    fn of(level: SimdLevel) -> Self {
        #[cfg(target_arch = "x86_64")]
        {
            let level = level.or_best();
            // Each macro reads a cached word.
            if level >= SimdLevel::Avx512 && is_x86_feature_detected!("vaes") {
                return Self::Vaes;
            }
            if level >= SimdLevel::Avx2 && is_x86_feature_detected!("aes") {
                return Self::AesNi;
            }
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = level;
        Self::Portable
    }
}

/// Defines a function of a tile that runs the kernel of the same name at a level.
macro_rules! dispatched {
    ($(#[$meta:meta])* $name:ident($tile:ident: $Tile:ty $(, $arg:ident: $ty:ty)*)) => {
        $(#[$meta])*
        pub(super) fn $name(level: SimdLevel, $tile: $Tile $(, $arg: $ty)*) {
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "aes,avx2,avx512f,avx512bw,avx512dq,avx512vl,vaes")]
            fn with_vaes($tile: $Tile $(, $arg: $ty)*) {
                // SAFETY: this function runs with the features of the token.
                kernels::$name(unsafe { vaes::Vaes::new() }, $tile $(, $arg)*);
            }
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "aes,avx2")]
            fn with_aes_ni($tile: $Tile $(, $arg: $ty)*) {
                // SAFETY: as above.
                kernels::$name(unsafe { aes_ni::AesNi::new() }, $tile $(, $arg)*);
            }
            match Backend::of(level) {
                // SAFETY: `Backend::of` returns only what this CPU has.
                #[cfg(target_arch = "x86_64")]
                Backend::Vaes => unsafe { with_vaes($tile $(, $arg)*) },
                // SAFETY: as above.
                #[cfg(target_arch = "x86_64")]
                Backend::AesNi => unsafe { with_aes_ni($tile $(, $arg)*) },
                Backend::Portable => kernels::$name(Portable, $tile $(, $arg)*),
            }
        }
    };
}

dispatched! {
    /// Garbles `ops` for a tile and appends what they send.
    garble(tile: &mut GarblerTile<'_>, ops: &[Op], out: &mut Vec<u8>)
}
dispatched! {
    /// Evaluates `ops` for a tile; `tables` has exactly the bytes they take.
    evaluate(tile: &mut EvaluatorTile<'_>, ops: &[Op], tables: &[u8])
}
