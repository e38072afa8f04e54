//! Packing of 512 words, 512 bits a row. The format is described in [`crate::bits`].

use super::vectorised;
use crate::Word;

/// Bytes of a row of lanes.
const ROW_BYTES: usize = 64;

vectorised! {
    /// Packs 512 words below `2^width` into `width` rows; `LANES = 512 / W::BITS`.
    pub fn pack_block<W: Word, const LANES: usize>(words: &[W], width: u32, bytes: &mut [u8]) {
        // A word that is too wide is a bug of the caller; its upper bits must still not reach the
        // wire.
        let mask = W::from_u64(u64::MAX >> (64 - width));
        let mut packed = bytes.chunks_exact_mut(ROW_BYTES);
        let mut row = [W::default(); LANES];
        let mut filled = 0;
        for words in words.chunks_exact(LANES) {
            for (lane, &word) in row.iter_mut().zip(words) {
                *lane = *lane | (word & mask) << filled;
            }
            filled += width;
            if filled >= W::BITS {
                filled -= W::BITS;
                if let Some(packed) = packed.next() {
                    packed.copy_from_slice(bytemuck::cast_slice(&row.map(W::swap_little_endian)));
                }
                // The `filled` upper bits of each word are left; in two shifts, as there may be
                // none.
                for (lane, &word) in row.iter_mut().zip(words) {
                    *lane = ((word & mask) >> (width - filled - 1)) >> 1;
                }
            }
        }
    }
}

vectorised! {
    /// Unpacks `width` rows into 512 words; `LANES = 512 / W::BITS`.
    pub fn unpack_block<W: Word, const LANES: usize>(bytes: &[u8], width: u32, words: &mut [W]) {
        let mask = W::from_u64(u64::MAX >> (64 - width));
        let mut packed = bytes.chunks_exact(ROW_BYTES);
        let mut row = [W::default(); LANES];
        let mut taken = W::BITS;
        for words in words.chunks_exact_mut(LANES) {
            if taken + width <= W::BITS {
                for (word, &lane) in words.iter_mut().zip(&row) {
                    *word = (lane >> taken) & mask;
                }
                taken += width;
                continue;
            }
            let mut next = [W::default(); LANES];
            if let Some(packed) = packed.next() {
                bytemuck::cast_slice_mut(&mut next).copy_from_slice(packed);
                next = next.map(W::swap_little_endian);
            }
            // The row holds the lower `held < width` bits of each word, the next row the others.
            let held = W::BITS - taken;
            for ((word, &lane), &next) in words.iter_mut().zip(&row).zip(&next) {
                *word = ((lane >> (taken - 1) >> 1) | next << held) & mask;
            }
            row = next;
            taken = width - held;
        }
    }
}
