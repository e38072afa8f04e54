//! The sums of secrets, on vectors of a block.

use std::arch::x86_64::*;

use crate::{Block, ot::silent::code::WEIGHT};

/// As [`gather_portable`](super::gather_portable). Two indices are read at a time.
#[inline]
#[target_feature(enable = "avx2")]
pub fn gather(secrets: &[Block], rows: &[[u64; WEIGHT / 2]], outputs: &mut [Block]) {
    assert!(secrets.len().is_power_of_two());
    let mask = secrets.len() - 1;
    for (row, output) in rows.iter().zip(outputs) {
        let mut sums: [__m128i; 2] = [bytemuck::cast(*output), _mm_setzero_si128()];
        for indices in row {
            for (sum, index) in sums.iter_mut().zip([*indices, *indices >> u32::BITS]) {
                // SAFETY: the mask is one less than the length, so the index is below the length.
                let secret = unsafe { secrets.get_unchecked(index as usize & mask) };
                *sum = _mm_xor_si128(*sum, bytemuck::cast(*secret));
            }
        }
        *output = bytemuck::cast(_mm_xor_si128(sums[0], sums[1]));
    }
}

/// Whether secrets are asked for a step ahead: those of small tables come soon enough.
pub fn is_far(secrets: &[Block]) -> bool {
    secrets.len() > 1 << 17
}

/// Asks the caches for the secrets of rows that are to be gathered soon.
#[inline]
#[target_feature(enable = "avx2")]
pub fn prefetch(secrets: &[Block], rows: &[[u64; WEIGHT / 2]]) {
    let mask = secrets.len() - 1;
    for indices in rows.as_flattened() {
        for index in [*indices, *indices >> u32::BITS] {
            let secret = secrets.as_ptr().wrapping_add(index as usize & mask);
            _mm_prefetch::<_MM_HINT_T0>(secret.cast());
        }
    }
}
