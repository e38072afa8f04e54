//! The loops around the NTT, compiled at every SIMD level from one plain body.
#![allow(unsafe_code)] // calls of #[target_feature] functions after run-time detection

use pronghorn_ring::{SimdLevel, Word, vectorised};

use crate::rlwe::Encoding;

/// `b = (messages << scale_log) + errors - mask mod q`; whether all
/// `|messages| <= q / 2 >> scale_log`. Otherwise `b` may hold words that are no residues and hide
/// nothing: it must not be sent.
#[must_use]
pub fn encrypt<W: Word>(
    messages: &[i32],
    errors: &[i8],
    mask: &[W],
    scale_log: u32,
    q: u64,
    b: &mut [W],
) -> bool {
    let most = i32::try_from((q / 2) >> scale_log).unwrap_or(i32::MAX);
    if W::BITS == 32 {
        let (mask, b) = (bytemuck::cast_slice(mask), bytemuck::cast_slice_mut(b));
        encrypt_u32(
            SimdLevel::detect(),
            messages,
            errors,
            mask,
            scale_log,
            q as u32,
            most,
            b,
        )
    } else {
        let (mask, b) = (bytemuck::cast_slice(mask), bytemuck::cast_slice_mut(b));
        encrypt_u64(
            SimdLevel::detect(),
            messages,
            errors,
            mask,
            scale_log,
            q,
            most,
            b,
        )
    }
}

vectorised! {
    fn encrypt_u32(messages: &[i32], errors: &[i8], mask: &[u32], scale_log: u32, q: u32, most: i32, b: &mut [u32]) -> bool {
        let mut outside = 0u32;
        for (((b, &message), &error), &mask) in b.iter_mut().zip(messages).zip(errors).zip(mask) {
            outside |= u32::from(message > most) | u32::from(message < -most);
            let plain = message.wrapping_shl(scale_log).wrapping_add(i32::from(error));
            let plain = plain.wrapping_add(q as i32 & (plain >> 31)) as u32;
            // Both are below q < 2^31, so the smaller of the two is the residue.
            let word = plain.wrapping_sub(mask);
            *b = word.min(word.wrapping_add(q));
        }
        outside == 0
    }
}

vectorised! {
    fn encrypt_u64(messages: &[i32], errors: &[i8], mask: &[u64], scale_log: u32, q: u64, most: i32, b: &mut [u64]) -> bool {
        let mut outside = 0u32;
        for (((b, &message), &error), &mask) in b.iter_mut().zip(messages).zip(errors).zip(mask) {
            outside |= u32::from(message > most) | u32::from(message < -most);
            let plain = i64::from(message).wrapping_shl(scale_log).wrapping_add(i64::from(error));
            let plain = plain.wrapping_add(q as i64 & (plain >> 63)) as u64;
            let word = plain.wrapping_sub(mask);
            *b = word.min(word.wrapping_add(q));
        }
        outside == 0
    }
}

/// `messages = round((b << dropped + mask mod q) / scale) + centre`; whether all are in range.
pub fn decrypt<W: Word>(
    b: &[W],
    mask: &[W],
    encoding: &Encoding,
    q: u64,
    messages: &mut [i32],
) -> bool {
    if W::BITS == 32 {
        decrypt_u32(
            SimdLevel::detect(),
            bytemuck::cast_slice(b),
            bytemuck::cast_slice(mask),
            encoding,
            q as u32,
            messages,
        )
    } else {
        decrypt_u64(
            SimdLevel::detect(),
            bytemuck::cast_slice(b),
            bytemuck::cast_slice(mask),
            encoding,
            q,
            messages,
        )
    }
}

vectorised! {
    fn decrypt_u32(b: &[u32], mask: &[u32], encoding: &Encoding, q: u32, messages: &mut [i32]) -> bool {
        let Encoding { scale_log, dropped_bits, centre, low, high } = *encoding;
        let middle = (1u32 << dropped_bits) >> 1;
        let half = (1i32 << scale_log) >> 1;
        // The centre of a range within 32 bits.
        let centre = centre as i32;
        let mut outside = 0u32;
        for ((message, &b), &mask) in messages.iter_mut().zip(b).zip(mask) {
            // Below 2^31 and q: below 2^32; residues again after each sum.
            let high_bits = (b << dropped_bits).wrapping_add(middle);
            let high_bits = high_bits.min(high_bits.wrapping_sub(q));
            let phase = high_bits.wrapping_add(mask);
            let phase = phase.min(phase.wrapping_sub(q));
            // Centred: the upper half of the residues is negative.
            let phase = phase.wrapping_sub(q & ((q / 2).wrapping_sub(phase) as i32 >> 31) as u32) as i32;
            let value = (phase.wrapping_add(half) >> scale_log).wrapping_add(centre);
            outside |= u32::from(value < low) | u32::from(value > high);
            *message = value;
        }
        outside == 0
    }
}

vectorised! {
    fn decrypt_u64(b: &[u64], mask: &[u64], encoding: &Encoding, q: u64, messages: &mut [i32]) -> bool {
        let Encoding { scale_log, dropped_bits, centre, low, high } = *encoding;
        let middle = (1u64 << dropped_bits) >> 1;
        let half = (1i64 << scale_log) >> 1;
        let (low, high) = (i64::from(low), i64::from(high));
        let mut outside = 0i64;
        for ((message, &b), &mask) in messages.iter_mut().zip(b).zip(mask) {
            let high_bits = (b << dropped_bits).wrapping_add(middle);
            let high_bits = high_bits.min(high_bits.wrapping_sub(q));
            let phase = high_bits.wrapping_add(mask);
            let phase = phase.min(phase.wrapping_sub(q));
            let phase = phase.wrapping_sub(q & ((q / 2).wrapping_sub(phase) as i64 >> 63) as u64) as i64;
            let value = (phase.wrapping_add(half) >> scale_log) + centre;
            outside |= (value - low) | (high - value);
            *message = value as i32;
        }
        outside >= 0
    }
}
