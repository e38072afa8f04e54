//! The sums of secrets, on vectors of a block.

use std::arch::x86_64::*;

use crate::{Block, ot::silent::code::WEIGHT};

/// As [`gather_portable`](super::gather_portable).
#[inline]
#[target_feature(enable = "avx2")]
pub fn gather(secrets: &[Block], rows: &[[u32; WEIGHT]], outputs: &mut [Block]) {
    assert!(secrets.len().is_power_of_two());
    let mask = secrets.len() - 1;
    for (row, output) in rows.iter().zip(outputs) {
        let mut sum: __m128i = bytemuck::cast(*output);
        for index in row {
            // SAFETY: the mask is one less than the length, so the index is below the length.
            let secret = unsafe { secrets.get_unchecked(*index as usize & mask) };
            sum = _mm_xor_si128(sum, bytemuck::cast(*secret));
        }
        *output = bytemuck::cast(sum);
    }
}

/// Asks the caches for the secrets of rows that are to be gathered soon.
#[inline]
#[target_feature(enable = "avx2")]
pub fn prefetch(secrets: &[Block], rows: &[[u32; WEIGHT]]) {
    let mask = secrets.len() - 1;
    for index in rows.as_flattened() {
        let secret = secrets.as_ptr().wrapping_add(*index as usize & mask);
        _mm_prefetch::<_MM_HINT_T0>(secret.cast());
    }
}
