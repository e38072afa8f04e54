//! The loops around the NTT, compiled at every SIMD level from one plain body.
#![allow(unsafe_code)] // calls of #[target_feature] functions after run-time detection

/// Defines a function whose body is compiled for AVX-512, AVX2 and the base target, and which
/// picks at run time by [`pronghorn_ring::SimdLevel::detect`]. The body is ordinary safe code.
#[macro_export]
macro_rules! vectorised {
    ($(#[$meta:meta])* $vis:vis fn $name:ident $(<$($generic:ident : $bound:path),*>)?
        ($($arg:ident : $ty:ty),* $(,)?) $(-> $ret:ty)? $body:block) => {
        $(#[$meta])*
        #[allow(unsafe_code, clippy::too_many_arguments)]
        $vis fn $name $(<$($generic: $bound),*>)? ($($arg: $ty),*) $(-> $ret)? {
            #[inline(always)]
            fn plain $(<$($generic: $bound),*>)? ($($arg: $ty),*) $(-> $ret)? $body
            #[cfg(target_arch = "x86_64")]
            {
                #[target_feature(enable = "avx2")]
                fn avx2 $(<$($generic: $bound),*>)? ($($arg: $ty),*) $(-> $ret)? { plain($($arg),*) }
                #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2")]
                fn avx512 $(<$($generic: $bound),*>)? ($($arg: $ty),*) $(-> $ret)? { plain($($arg),*) }
                match pronghorn_ring::SimdLevel::detect() {
                    // SAFETY: `detect` names only levels this CPU has.
                    pronghorn_ring::SimdLevel::Avx512 => return unsafe { avx512($($arg),*) },
                    // SAFETY: as above.
                    pronghorn_ring::SimdLevel::Avx2 => return unsafe { avx2($($arg),*) },
                    pronghorn_ring::SimdLevel::Portable => {}
                }
            }
            plain($($arg),*)
        }
    };
}

use pronghorn_ring::Word;

use crate::rlwe::Encoding;

vectorised! {
    /// `b = (messages << scale_log) + errors - mask mod q`.
    pub fn encrypt<W: Word>(messages: &[i32], errors: &[i8], mask: &[W], scale_log: u32, q: u64, b: &mut [W]) {
        let q = q as i64;
        for (((b, &message), &error), &mask) in b.iter_mut().zip(messages).zip(errors).zip(mask) {
            // |plain| < q/2, so plain - mask lies in (-3q/2, q/2): at most two additions of q.
            let mut word = (i64::from(message) << scale_log) + i64::from(error) - mask.to_u64() as i64;
            word += (word >> 63) & q;
            word += (word >> 63) & q;
            *b = W::from_u64(word as u64);
        }
    }
}

vectorised! {
    /// `messages = round((b << dropped + mask mod q) / scale) + centre`; whether all are in range.
    pub fn decrypt<W: Word>(b: &[W], mask: &[W], encoding: &Encoding, q: u64, messages: &mut [i32]) -> bool {
        let q = q as i64;
        let Encoding { scale_log, dropped_bits, centre, low, high } = *encoding;
        let middle = (1i64 << dropped_bits) >> 1;
        let half = (1i64 << scale_log) >> 1;
        let (low, high) = (i64::from(low), i64::from(high));
        let mut outside = 0i64;
        for ((message, &b), &mask) in messages.iter_mut().zip(b).zip(mask) {
            // The sum lies in [0, 2q + 2^dropped): one q down, at most one more, at most one up.
            let mut phase = ((b.to_u64() as i64) << dropped_bits) + middle + mask.to_u64() as i64 - q;
            phase -= q & ((q / 2 - phase) >> 63);
            phase += q & ((phase + q / 2) >> 63);
            let value = ((phase + half) >> scale_log) + centre;
            outside |= (value - low) | (high - value);
            *message = value as i32;
        }
        outside >= 0
    }
}
