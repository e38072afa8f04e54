//! Words packed to their width, for the wire.
//!
//! # Format
//!
//! `count` words of `width` bits, `1 <= width <= BITS` (32 or 64, the bits of the word type):
//!
//! * Every whole block of 512 words takes `64 width` bytes. It is cut into `LANES = 512 / BITS`
//!   lanes (16 or 8): lane `l` has the words `l, l + LANES, l + 2 LANES, ...` of the block, `BITS`
//!   of them. Each lane is a little-endian bit stream (the first word in the lowest bits) and so
//!   makes `width` words of `BITS` bits. These are written little-endian, word 0 of every lane,
//!   then word 1 of every lane, and so on. Shifts and masks are thus the same in all lanes, and a
//!   row of lanes is a 512-bit vector.
//! * The last `count mod 512` words are one little-endian bit stream, padded with zeros to a whole
//!   byte.
//!
//! The same words packed as `u32` and as `u64` differ. Time depends on `count` and `width` alone.

use thiserror::Error;

use crate::{SimdLevel, Word};

/// Words in a block.
pub const BLOCK: usize = 512;

/// Why bytes do not unpack.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum PackError {
    /// No such width.
    #[error("packed words of {width} bits do not exist: a word here has 1 to {limit} bits")]
    Width {
        /// The value given.
        width: u32,
        /// Bits of the word type.
        limit: u32,
    },
    /// Too few or too many bytes.
    #[error("{count} words of {width} bits take {expected} bytes, {found} were found")]
    Length {
        /// Words wanted.
        count: usize,
        /// Bits of each.
        width: u32,
        /// Bytes they take.
        expected: usize,
        /// Bytes given.
        found: usize,
    },
    /// Bits behind the last word are set.
    #[error("the padding after {count} packed words of {width} bits is not zero")]
    Padding {
        /// Words wanted.
        count: usize,
        /// Bits of each.
        width: u32,
    },
}

/// Bytes that `count` words of `width` bits take. Saturates, so an absurd count never fits
/// anything.
pub fn packed_len(count: usize, width: u32) -> usize {
    let tail = ((count % BLOCK) * width as usize).div_ceil(8);
    (count / BLOCK)
        .saturating_mul(BLOCK / 8 * width as usize)
        .saturating_add(tail)
}

/// Appends `words`, each below `2^width`, to `out`.
///
/// # Panics
/// Unless `1 <= width <= W::BITS`. A word that is too wide damages its neighbours (in debug
/// builds: panics).
pub fn pack<W: Word>(words: &[W], width: u32, out: &mut Vec<u8>) {
    pack_at(SimdLevel::detect(), words, width, out);
}

/// [`pack`] at `level`, or the best below it that the CPU has.
///
/// # Panics
/// As [`pack`].
pub fn pack_at<W: Word>(level: SimdLevel, words: &[W], width: u32, out: &mut Vec<u8>) {
    let start = out.len();
    out.resize(start + packed_len(words.len(), width), 0);
    pack_into_at(level, words, width, &mut out[start..]);
}

/// [`pack`] in place: `out` is as long as [`packed_len`] says.
///
/// # Panics
/// As [`pack`], and if `out` has another length.
pub fn pack_into<W: Word>(words: &[W], width: u32, out: &mut [u8]) {
    pack_into_at(SimdLevel::detect(), words, width, out);
}

/// [`pack_into`] at `level`, or the best below it that the CPU has.
///
/// # Panics
/// As [`pack_into`].
pub fn pack_into_at<W: Word>(level: SimdLevel, words: &[W], width: u32, out: &mut [u8]) {
    assert!(
        (1..=W::BITS).contains(&width),
        "words of {width} bits do not fit {}",
        W::BITS
    );
    assert_eq!(out.len(), packed_len(words.len(), width), "packed bytes");
    debug_assert!(
        words
            .iter()
            .all(|word| word.to_u64() <= u64::MAX >> (64 - width))
    );
    let (blocks, tail) = words.split_at(words.len() - words.len() % BLOCK);
    let (packed, packed_tail) = out.split_at_mut(packed_len(blocks.len(), width));
    for (words, bytes) in blocks
        .chunks_exact(BLOCK)
        .zip(packed.chunks_exact_mut(packed_len(BLOCK, width)))
    {
        W::pack_block(level, words, width, bytes);
    }
    pack_stream(tail, width, packed_tail);
}

/// Fills `out` from `bytes`, which must be exactly its words.
///
/// # Errors
/// [`PackError`] when `width`, the length or the padding is wrong; `out` is then unspecified.
pub fn unpack<W: Word>(bytes: &[u8], width: u32, out: &mut [W]) -> Result<(), PackError> {
    unpack_at(SimdLevel::detect(), bytes, width, out)
}

/// [`unpack`] at `level`, or the best below it that the CPU has.
///
/// # Errors
/// As [`unpack`].
pub fn unpack_at<W: Word>(
    level: SimdLevel,
    bytes: &[u8],
    width: u32,
    out: &mut [W],
) -> Result<(), PackError> {
    let (count, limit) = (out.len(), W::BITS);
    if !(1..=limit).contains(&width) {
        return Err(PackError::Width { width, limit });
    }
    let (expected, found) = (packed_len(count, width), bytes.len());
    if found != expected {
        return Err(PackError::Length {
            count,
            width,
            expected,
            found,
        });
    }
    let (blocks, tail) = out.split_at_mut(count - count % BLOCK);
    let (packed, packed_tail) = bytes.split_at(packed_len(blocks.len(), width));
    for (words, bytes) in blocks
        .chunks_exact_mut(BLOCK)
        .zip(packed.chunks_exact(packed_len(BLOCK, width)))
    {
        W::unpack_block(level, bytes, width, words);
    }
    match unpack_stream(packed_tail, width, tail) {
        0 => Ok(()),
        _ => Err(PackError::Padding { count, width }),
    }
}

/// One little-endian bit stream, 64 bits at a time.
fn pack_stream<W: Word>(words: &[W], width: u32, bytes: &mut [u8]) {
    let mut chunks = bytes.chunks_mut(8);
    let (mut pending, mut filled) = (0u128, 0);
    let mut flush = |pending: u128| {
        if let Some(chunk) = chunks.next() {
            chunk.copy_from_slice(&(pending as u64).to_le_bytes()[..chunk.len()]);
        }
    };
    for word in words {
        pending |= u128::from(word.to_u64() & (u64::MAX >> (64 - width))) << filled;
        filled += width;
        if filled >= 64 {
            flush(pending);
            pending >>= 64;
            filled -= 64;
        }
    }
    if filled > 0 {
        flush(pending);
    }
}

/// Undoes [`pack_stream`]; the padding bits.
fn unpack_stream<W: Word>(bytes: &[u8], width: u32, words: &mut [W]) -> u128 {
    let mut chunks = bytes.chunks(8);
    let (mut pending, mut held) = (0u128, 0);
    for word in words {
        if held < width {
            let mut chunk = [0; 8];
            if let Some(bytes) = chunks.next() {
                chunk[..bytes.len()].copy_from_slice(bytes);
            }
            pending |= u128::from(u64::from_le_bytes(chunk)) << held;
            held += 64;
        }
        *word = W::from_u64(pending as u64 & (u64::MAX >> (64 - width)));
        pending >>= width;
        held -= width;
    }
    pending
}

/// The format bit by bit: to read and to test against.
pub mod reference {
    use super::BLOCK;
    use crate::Word;

    /// What [`pack`](super::pack) appends.
    pub fn pack<W: Word>(words: &[W], width: u32) -> Vec<u8> {
        let blocks = words.chunks(BLOCK);
        blocks
            .flat_map(|block| {
                if block.len() == BLOCK {
                    pack_block(block, width)
                } else {
                    stream(block, width)
                }
            })
            .collect()
    }

    /// The lanes as streams, then their words interleaved.
    fn pack_block<W: Word>(block: &[W], width: u32) -> Vec<u8> {
        let lanes = BLOCK / W::BITS as usize;
        let bytes = W::BITS as usize / 8;
        let streams: Vec<Vec<u8>> = (0..lanes)
            .map(|lane| {
                stream(
                    &block
                        .iter()
                        .copied()
                        .skip(lane)
                        .step_by(lanes)
                        .collect::<Vec<_>>(),
                    width,
                )
            })
            .collect();
        let rows = (0..width as usize).map(|row| row * bytes..(row + 1) * bytes);
        rows.flat_map(|row| {
            streams
                .iter()
                .flat_map(move |stream| stream[row.clone()].to_vec())
        })
        .collect()
    }

    fn stream<W: Word>(words: &[W], width: u32) -> Vec<u8> {
        let mut bytes = vec![0; (words.len() * width as usize).div_ceil(8)];
        let bits = words
            .iter()
            .flat_map(|word| (0..width).map(|bit| word.to_u64() >> bit & 1 == 1));
        for (place, _) in bits.enumerate().filter(|(_, set)| *set) {
            bytes[place / 8] |= 1 << (place % 8);
        }
        bytes
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn words<W: Word>(count: usize, width: u32, mut state: u64) -> Vec<W> {
        (0..count)
            .map(|_| {
                state = state
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1_442_695_040_888_963_407);
                W::from_u64((state ^ state >> 31) >> (64 - W::BITS) & (u64::MAX >> (64 - width)))
            })
            .collect()
    }

    fn round_trip<W: Word>(count: usize, width: u32, seed: u64) {
        let words = words::<W>(count, width, seed);
        let expected = reference::pack(&words, width);
        assert_eq!(expected.len(), packed_len(count, width));
        for level in SimdLevel::available() {
            let mut bytes = vec![0xaa; 3];
            pack_at(level, &words, width, &mut bytes);
            assert!(
                bytes[..3] == [0xaa; 3] && bytes[3..] == expected,
                "pack {count} x {width}, {level:?}"
            );
            let mut back = vec![W::from_u64(1); count];
            assert_eq!(unpack_at(level, &expected, width, &mut back), Ok(()));
            assert!(back == words, "unpack {count} x {width}, {level:?}");
        }
    }

    #[test]
    fn every_width_round_trips() {
        for width in 1..=64 {
            round_trip::<u64>(1024 + 77, width, width.into());
            if width <= 32 {
                round_trip::<u32>(1024 + 77, width, width.into());
            }
        }
    }

    #[test]
    fn known_bytes() {
        let mut bytes = Vec::new();
        pack(&[0b101u32, 0b011, 0b110], 3, &mut bytes);
        assert_eq!(bytes, [0b10_011_101, 0b1]);
        // A block: word i is i mod 2; lane 1 has ones, lane 0 zeros, at width 1 a 32-bit word each.
        let block: Vec<u32> = (0..512).map(|i| i % 2).collect();
        bytes.clear();
        pack(&block, 1, &mut bytes);
        assert_eq!(bytes, [0, 0, 0, 0, 255, 255, 255, 255].repeat(8));
    }

    #[test]
    fn malformed_bytes_are_refused() {
        let mut out = [0u32; 10];
        let length = |found| PackError::Length {
            count: 10,
            width: 7,
            expected: 9,
            found,
        };
        assert_eq!(unpack(&[0; 8], 7, &mut out), Err(length(8)));
        assert_eq!(unpack(&[0; 10], 7, &mut out), Err(length(10)));
        assert_eq!(unpack(&[], 7, &mut out), Err(length(0)));
        assert_eq!(
            unpack(&[0; 9], 0, &mut out),
            Err(PackError::Width {
                width: 0,
                limit: 32
            })
        );
        assert_eq!(
            unpack(&[0; 9], 33, &mut out),
            Err(PackError::Width {
                width: 33,
                limit: 32
            })
        );
        // 70 bits: the two upper bits of the last byte are padding.
        let mut bytes = [0xff; 9];
        for padding in [0x40, 0x80, 0xc0] {
            bytes[8] = 0x3f | padding;
            assert_eq!(
                unpack(&bytes, 7, &mut out),
                Err(PackError::Padding {
                    count: 10,
                    width: 7
                })
            );
        }
        bytes[8] = 0x3f;
        assert_eq!(unpack(&bytes, 7, &mut out), Ok(()));
        assert_eq!(out, [0x7f; 10]);
        assert_eq!(packed_len(usize::MAX, 64), usize::MAX);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn any_count_and_width_round_trip(count in 0usize..1600, width in 1u32..=64, seed: u64) {
            round_trip::<u64>(count, width, seed);
            round_trip::<u32>(count, width.div_ceil(2), seed);
        }

        #[test]
        fn random_bytes_unpack_or_fail(bytes in prop::collection::vec(any::<u8>(), 0..200), width in 0u32..70, count in 0usize..100) {
            let mut out = vec![0u64; count];
            if unpack(&bytes, width, &mut out).is_ok() {
                let mut again = Vec::new();
                pack(&out, width, &mut again);
                prop_assert_eq!(again, bytes);
            }
        }
    }
}
