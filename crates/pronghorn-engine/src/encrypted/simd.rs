//! Asking for memory before it is read.
#![allow(unsafe_code)] // An instruction that reads nothing.

/// Begins to load these words into the cache, where the CPU can be asked to: for pieces that are
/// far apart, which it does not foresee.
#[inline(always)]
pub fn fetch<T>(words: &[T]) {
    #[cfg(target_arch = "x86_64")]
    for byte in (0..size_of_val(words)).step_by(64) {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: within the slice; besides, prefetching any address is no access.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(words.as_ptr().cast::<i8>().add(byte)) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = words;
}
