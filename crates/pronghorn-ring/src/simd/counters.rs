//! Sums of many bits for many samples at once, by bit-sliced counters.

use super::vectorised;
use crate::SimdLevel;

/// Bits a sample is the sum of.
pub const PLANES: usize = 42;

/// Most samples at once: one 512-bit vector a plane.
pub const GROUP: usize = 512;

/// `u64` words in a plane of a whole group.
const COLUMNS: usize = GROUP / 64;

/// Bits that count to [`PLANES`].
const DIGITS: usize = 6;

/// `samples[j]` = the number of ones in bit `j` of the planes, less `PLANES / 2`. Plane `i` is
/// `planes[i * columns..][..columns]`, `columns` being the words that `samples.len() <= GROUP` bits
/// take. Constant time in the planes.
pub fn centred_sums(level: SimdLevel, planes: &[u64], samples: &mut [i8]) {
    let mut digits = [[0; COLUMNS]; DIGITS];
    if let Ok(whole) = samples.try_into() {
        count(level, planes, &mut digits);
        spread(level, &digits, whole);
    } else {
        let columns = samples.len().div_ceil(64);
        let mut padded = [0; PLANES * COLUMNS];
        for (padded, plane) in padded
            .chunks_exact_mut(COLUMNS)
            .zip(planes.chunks_exact(columns))
        {
            padded[..columns].copy_from_slice(plane);
        }
        let mut whole = [0; GROUP];
        count(level, &padded, &mut digits);
        spread(level, &digits, &mut whole);
        samples.copy_from_slice(&whole[..samples.len()]);
        padded.fill(0);
        whole.fill(0);
        zeroize::optimization_barrier(&padded);
        zeroize::optimization_barrier(&whole);
    }
    digits = Default::default();
    zeroize::optimization_barrier(&digits);
}

vectorised! {
    /// Bit `j` of `digits[k]` is digit `k` of the number of ones in bit `j` of the planes.
    fn count(planes: &[u64], digits: &mut [[u64; COLUMNS]; DIGITS]) {
        assert!(planes.len() == PLANES * COLUMNS);
        for column in 0..COLUMNS {
            let mut total = [0; DIGITS];
            for seven in 0..PLANES / 7 {
                let first = 7 * seven * COLUMNS + column;
                add_digits(&mut total, count_seven(std::array::from_fn(|i| planes[first + i * COLUMNS])));
            }
            for (digit, total) in digits.iter_mut().zip(total) {
                digit[column] = total;
            }
        }
    }
}

/// Sum and carry of three bits.
#[inline(always)]
fn full_adder(x: u64, y: u64, z: u64) -> (u64, u64) {
    (x ^ y ^ z, (x & y) | (z & (x | y)))
}

/// Digits of the sum of seven bits.
#[inline(always)]
fn count_seven(bits: [u64; 7]) -> [u64; 3] {
    let (sum, first) = full_adder(bits[0], bits[1], bits[2]);
    let (sum, second) = full_adder(sum, bits[3], bits[4]);
    let (ones, third) = full_adder(sum, bits[5], bits[6]);
    let (twos, fours) = full_adder(first, second, third);
    [ones, twos, fours]
}

/// `total += addend`; the sum fits.
#[inline(always)]
fn add_digits(total: &mut [u64; DIGITS], addend: [u64; 3]) {
    let mut carry = 0;
    for digit in 0..DIGITS {
        let addend = if digit < 3 { addend[digit] } else { 0 };
        (total[digit], carry) = full_adder(total[digit], addend, carry);
    }
}

/// From bit-sliced digits to one byte a sample, less `PLANES / 2`.
fn spread(level: SimdLevel, digits: &[[u64; COLUMNS]; DIGITS], samples: &mut [i8; GROUP]) {
    #[cfg(target_arch = "x86_64")]
    match level.or_best() {
        SimdLevel::Avx512 | SimdLevel::Avx512Ifma => {
            // SAFETY: `or_best` returns only levels this CPU has.
            return unsafe { spread_avx512(digits, samples) };
        }
        // SAFETY: as above.
        SimdLevel::Avx2 => return unsafe { spread_avx2(digits, samples) },
        SimdLevel::Portable => {}
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = level;
    spread_portable(digits, samples);
}

/// Eight samples at a time in the bytes of a `u64`.
fn spread_portable(digits: &[[u64; COLUMNS]; DIGITS], samples: &mut [i8; GROUP]) {
    const EVERY_BYTE: u64 = 0x0101_0101_0101_0101;
    for (group, samples) in samples.chunks_exact_mut(8).enumerate() {
        let mut sums = 0;
        for (k, digit) in digits.iter().enumerate() {
            let byte = digit[group / 8] >> (8 * (group % 8)) & 0xff;
            // Bit i of every copy of the byte survives in byte i, and is moved to its bottom:
            // adding 0x7f carries into the top bit of every byte that is not zero.
            let chosen = (byte * EVERY_BYTE) & 0x8040_2010_0804_0201;
            let bits = ((chosen + 0x7f * EVERY_BYTE) | chosen) >> 7 & EVERY_BYTE;
            sums += bits << k;
        }
        for (sample, sum) in samples.iter_mut().zip(sums.to_le_bytes()) {
            *sample = sum as i8 - (PLANES / 2) as i8;
        }
    }
}

/// A column's digit is the mask of an addition.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw")]
fn spread_avx512(digits: &[[u64; COLUMNS]; DIGITS], samples: &mut [i8; GROUP]) {
    use std::arch::x86_64::*;
    for (column, samples) in samples.chunks_exact_mut(64).enumerate() {
        let mut sums = _mm512_set1_epi8(-(PLANES as i8 / 2));
        for (k, digit) in digits.iter().enumerate() {
            sums = _mm512_mask_add_epi8(sums, digit[column], sums, _mm512_set1_epi8(1 << k));
        }
        // SAFETY: the chunk has 64 bytes; the instruction needs no alignment.
        unsafe { _mm512_storeu_epi8(samples.as_mut_ptr(), sums) }
    }
}

/// Each byte of a digit is copied to eight lanes, and each lane looks at its bit.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn spread_avx2(digits: &[[u64; COLUMNS]; DIGITS], samples: &mut [i8; GROUP]) {
    use std::arch::x86_64::*;
    let copies = _mm256_setr_epi64x(
        0,
        0x0101_0101_0101_0101,
        0x0202_0202_0202_0202,
        0x0303_0303_0303_0303,
    );
    let own_bit = _mm256_set1_epi64x(0x8040_2010_0804_0201_u64 as i64);
    for (half, samples) in samples.chunks_exact_mut(32).enumerate() {
        let mut sums = _mm256_set1_epi8(-(PLANES as i8 / 2));
        for (k, digit) in digits.iter().enumerate() {
            let bits = _mm256_set1_epi32((digit[half / 2] >> (32 * (half % 2))) as i32);
            let chosen = _mm256_and_si256(_mm256_shuffle_epi8(bits, copies), own_bit);
            let set = _mm256_cmpeq_epi8(chosen, own_bit);
            sums = _mm256_add_epi8(sums, _mm256_and_si256(set, _mm256_set1_epi8(1 << k)));
        }
        // SAFETY: the chunk has 32 bytes; the instruction needs no alignment.
        unsafe { _mm256_storeu_si256(samples.as_mut_ptr().cast(), sums) }
    }
}
