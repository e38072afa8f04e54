//! The loops of OT extension, for each SIMD level.
#![allow(unsafe_code)] // CPU intrinsics, calls of code for detected CPU features

mod lanes;
#[cfg(target_arch = "x86_64")]
pub(crate) mod x86;

use bytemuck::Zeroable;
use pronghorn_ring::SimdLevel;
use subtle::{Choice, ConditionallySelectable};
use zeroize::{Zeroize, Zeroizing};

use super::extension::Chunk;
use crate::Block;
pub(crate) use lanes::Lanes;
pub(super) use lanes::Scalar;
pub(crate) use lanes::WIDEST;

/// Columns that [`transpose`] takes must be a multiple of this many blocks.
pub const TILE: usize = 4;

/// Defines a function whose body is compiled for every level over its [`Lanes`], and run at the
/// level that its first argument names (or the best below it that the CPU has).
macro_rules! at_every_level {
    ($(#[$meta:meta])* $vis:vis fn $name:ident($lanes:ident, $($arg:ident : $ty:ty),* $(,)?) $body:block) => {
        $(#[$meta])*
        $vis fn $name(level: SimdLevel, $($arg: $ty),*) {
            #[inline(always)]
            fn plain<L: Lanes>($lanes: L, $($arg: $ty),*) $body
            #[cfg(target_arch = "x86_64")]
            {
                #[target_feature(enable = "avx2")]
                fn avx2($($arg: $ty),*) {
                    // SAFETY: this function runs with the features of the token.
                    plain(unsafe { x86::Avx2::new() }, $($arg),*)
                }
                #[target_feature(enable = "avx2,avx512f,avx512bw,avx512dq,avx512vl")]
                fn avx512($($arg: $ty),*) {
                    // SAFETY: this function runs with the features of the token.
                    plain(unsafe { x86::Avx512::new() }, $($arg),*)
                }
                match level.or_best() {
                    // SAFETY: `or_best` returns only levels this CPU has.
                    SimdLevel::Avx512 | SimdLevel::Avx512Ifma => return unsafe { avx512($($arg),*) },
                    // SAFETY: as above.
                    SimdLevel::Avx2 => return unsafe { avx2($($arg),*) },
                    SimdLevel::Portable => {}
                }
            }
            #[cfg(not(target_arch = "x86_64"))]
            let _ = level;
            plain(Scalar, $($arg),*)
        }
    };
}

pub(super) use at_every_level;

at_every_level! {
    /// Bit `c` of `rows[j]` = bit `j` of column `c`, for the 128 columns `columns[c * stride..]`. A
    /// column has the bits of all rows, and on to a multiple of [`TILE`] blocks.
    ///
    /// In every lane, 64 x 64 bits of two halves of the columns (H. S. Warren, Hacker's Delight,
    /// section 7-3), three of the six levels at a time, while 8 rows are in registers.
    pub fn transpose(lanes, columns: &[Block], stride: usize, rows: &mut [Block]) {
        let (columns, stride): (&[u64], usize) = (bytemuck::cast_slice(columns), 2 * stride);
        let mut tile = [L::Words::zeroed(); Block::BITS];
        let mut spare = [Block::ZERO; TILE * Block::BITS];
        let height = 64 * L::WORDS;
        for (index, rows) in rows.chunks_mut(height).enumerate() {
            for first in (0..8).chain(64..72) {
                let mut x = [lanes.splat(0); 8];
                for (i, x) in x.iter_mut().enumerate() {
                    let at = (first + 8 * i) * stride + index * L::WORDS;
                    *x = lanes.load(&bytemuck::cast_slice(&columns[at..at + L::WORDS])[0]);
                }
                butterflies::<L, 32, 16, 8>(lanes, &mut x);
                for (x, row) in x.into_iter().zip(tile[first..].iter_mut().step_by(8)) {
                    lanes.store(x, row);
                }
            }
            for rows in tile.as_chunks_mut::<8>().0 {
                let mut x = [lanes.splat(0); 8];
                for (x, row) in x.iter_mut().zip(&*rows) {
                    *x = lanes.load(row);
                }
                butterflies::<L, 4, 2, 1>(lanes, &mut x);
                for (x, row) in x.into_iter().zip(rows) {
                    lanes.store(x, row);
                }
            }
            let count = rows.len();
            let out = if count < height { &mut spare[..height] } else { &mut *rows };
            let (low, high) = tile.split_at(64);
            for (first, (low, high)) in low.iter().zip(high).enumerate() {
                lanes.scatter(lanes.load(low), lanes.load(high), &mut out[first..], 64);
            }
            if count < height {
                rows.copy_from_slice(&spare[..count]);
            }
        }
        spare.zeroize();
        bytemuck::cast_slice_mut::<_, u64>(&mut tile).zeroize();
    }
}

/// Three levels of the transposition of 8 rows: rows `4 BY`, `2 BY` and `BY` apart in the matrix
/// are 4, 2 and 1 apart here.
#[inline(always)]
fn butterflies<L: Lanes, const BY_4: u32, const BY_2: u32, const BY_1: u32>(
    lanes: L,
    x: &mut [L::Vector; 8],
) {
    butterfly::<L, 4, BY_4>(lanes, x);
    butterfly::<L, 2, BY_2>(lanes, x);
    butterfly::<L, 1, BY_1>(lanes, x);
}

/// One level: exchanges the upper bits of a row, those at positions with bit `BY`, for the lower
/// bits of the row `DISTANCE` on.
#[inline(always)]
fn butterfly<L: Lanes, const DISTANCE: usize, const BY: u32>(lanes: L, x: &mut [L::Vector; 8]) {
    // Ones at the lower positions.
    let mask = lanes.splat(u64::MAX / ((1 << BY) + 1));
    for i in 0..8 {
        if i & DISTANCE == 0 {
            let (first, second) = (x[i], x[i + DISTANCE]);
            x[i] = lanes.select(mask, first, lanes.shift_up::<BY>(second));
            x[i + DISTANCE] = lanes.select(mask, lanes.shift_down::<BY>(first), second);
        }
    }
}

at_every_level! {
    /// `sums[b] += ` the sum of the leaves whose index has bit `b`; `total` = the sum of all
    /// leaves. `leaves.len() = 2^sums.len()`, at most 16.
    pub fn fold(lanes, leaves: &[Chunk], sums: &mut [Chunk], total: &mut Chunk) {
        match sums.len() {
            0 => *total = leaves[0],
            1 => fold_width::<L, 1, 2>(lanes, leaves, sums, total),
            2 => fold_width::<L, 2, 4>(lanes, leaves, sums, total),
            3 => fold_width::<L, 3, 8>(lanes, leaves, sums, total),
            _ => fold_width::<L, 4, 16>(lanes, leaves, sums, total),
        }
    }
}

/// [`fold`] for `COUNT = 2^WIDTH` leaves: a tree of sums, in registers.
#[inline(always)]
fn fold_width<L: Lanes, const WIDTH: usize, const COUNT: usize>(
    lanes: L,
    leaves: &[Chunk],
    sums: &mut [Chunk],
    total: &mut Chunk,
) {
    let leaves: &[Chunk; COUNT] = leaves.try_into().expect("2^width leaves");
    let leaves = leaves.each_ref().map(words::<L>);
    let sums: &mut [Chunk; WIDTH] = sums.try_into().expect("one sum a bit");
    let mut sums = sums.each_mut().map(words_mut::<L>);
    for (at, total) in words_mut::<L>(total).iter_mut().enumerate() {
        let mut x = [lanes.splat(0); COUNT];
        for leaf in 0..COUNT {
            x[leaf] = lanes.load(&leaves[leaf][at]);
        }
        for (bit, sum) in sums.iter_mut().enumerate() {
            let mut odd = lanes.load(&sum[at]);
            for pair in 0..COUNT >> (bit + 1) {
                odd = lanes.xor(odd, x[2 * pair + 1]);
                x[pair] = lanes.xor(x[2 * pair], x[2 * pair + 1]);
            }
            lanes.store(odd, &mut sum[at]);
        }
        lanes.store(x[0], total);
    }
}

at_every_level! {
    /// `out = x + (y & mask)`.
    pub fn add_masked(lanes, x: &Chunk, y: &Chunk, mask: bool, out: &mut Chunk) {
        // A plain mask becomes a branch in compiled code.
        let mask = u64::conditional_select(&0, &u64::MAX, Choice::from(u8::from(mask)));
        let mask = lanes.splat(mask);
        for ((x, y), out) in words::<L>(x).iter().zip(words::<L>(y)).zip(words_mut::<L>(out)) {
            lanes.store(lanes.xor(lanes.load(x), lanes.and(lanes.load(y), mask)), out);
        }
    }
}

#[inline(always)]
fn words<L: Lanes>(chunk: &Chunk) -> &[L::Words] {
    bytemuck::cast_slice(chunk)
}

#[inline(always)]
fn words_mut<L: Lanes>(chunk: &mut Chunk) -> &mut [L::Words] {
    bytemuck::cast_slice_mut(chunk)
}

/// The polynomial `sum_j x[j] * y[j]` over GF(2), of degree up to 254, as (lower, upper) 128
/// coefficients. Constant time in `x`; `y` is public, and the portable code branches on it.
pub fn inner_product_with_public(level: SimdLevel, x: &[Block], y: &[Block]) -> (u128, u128) {
    assert_eq!(x.len(), y.len());
    #[cfg(target_arch = "x86_64")]
    {
        let level = level.or_best();
        let wide = is_x86_feature_detected!("vpclmulqdq") && is_x86_feature_detected!("pclmulqdq");
        if level >= SimdLevel::Avx512 && wide {
            // SAFETY: the CPU has the features.
            return unsafe { x86::inner_product_512(x, y) };
        }
        if level >= SimdLevel::Avx2 && wide {
            // SAFETY: the CPU has the features.
            return unsafe { x86::inner_product_256(x, y) };
        }
        if level > SimdLevel::Portable && is_x86_feature_detected!("pclmulqdq") {
            // SAFETY: the CPU has both features (SSE2 is part of x86-64).
            return unsafe { x86::inner_product_128(x, y) };
        }
    }
    let _ = level;
    inner_product_portable(x, y)
}

/// Blocks from which on sums by digits of `y` cost less than bit by bit.
const MANY: usize = 32;

fn inner_product_portable(x: &[Block], y: &[Block]) -> (u128, u128) {
    match x.len() {
        0..MANY => inner_product_by_bits(x, y),
        _ => inner_product_by_digits(x, y),
    }
}

fn inner_product_by_bits(x: &[Block], y: &[Block]) -> (u128, u128) {
    let (mut lower, mut upper) = (0, 0);
    for (x, y) in x.iter().zip(y) {
        let (x, mut y) = (x.to_u128(), y.to_u128());
        while y != 0 {
            let shift = y.trailing_zeros();
            add_shifted(&mut lower, &mut upper, x, shift);
            y &= y - 1;
        }
    }
    (lower, upper)
}

/// Adds up the `x` that meet one digit of four bits at one place of `y`, and shifts each sum once.
fn inner_product_by_digits(x: &[Block], y: &[Block]) -> (u128, u128) {
    let mut sums = Zeroizing::new([[Block::ZERO; 16]; 32]);
    for (x, y) in x.iter().zip(y) {
        let y = y.to_u128();
        for (place, sums) in sums.iter_mut().enumerate() {
            sums[(y >> (4 * place)) as usize & 15] ^= *x;
        }
    }
    let (mut lower, mut upper) = (0, 0);
    for (place, sums) in sums.iter().enumerate() {
        for bit in 0..4 {
            let with_bit = (0..16).filter(|digit| digit >> bit & 1 == 1);
            let sum = with_bit.fold(Block::ZERO, |sum, digit| sum ^ sums[digit]);
            add_shifted(
                &mut lower,
                &mut upper,
                sum.to_u128(),
                4 * place as u32 + bit,
            );
        }
    }
    (lower, upper)
}

fn add_shifted(lower: &mut u128, upper: &mut u128, x: u128, shift: u32) {
    *lower ^= x << shift;
    *upper ^= (x >> 1) >> (127 - shift);
}

#[cfg(test)]
mod tests {
    use super::*;
    use pronghorn_ring::random::{Prg, Seed};

    fn blocks(count: usize) -> Vec<Block> {
        let mut blocks = vec![Block::ZERO; count];
        Prg::new(&Seed::from_bytes([9; 32]), "pronghorn test")
            .stream(count as u64)
            .fill(bytemuck::cast_slice_mut(&mut blocks));
        blocks
    }

    #[test]
    fn transpose_is_the_reference_at_every_level() {
        for (stride, count) in [(4, 1), (4, 127), (8, 128), (4, 300), (4, 512), (12, 1500)] {
            let columns = blocks(128 * stride);
            let bit = |c: usize, j: usize| columns[c * stride + j / 128].to_u128() >> (j % 128) & 1;
            let expected: Vec<Block> = (0..count)
                .map(|j| Block::from_u128((0..128).map(|c| bit(c, j) << c).sum()))
                .collect();
            for level in SimdLevel::available() {
                let mut rows = vec![Block::ONES; count];
                transpose(level, &columns, stride, &mut rows);
                assert!(rows == expected, "{level:?} {stride} {count}");
            }
        }
    }

    #[test]
    fn fold_is_the_reference_at_every_level() {
        for width in 0..=4 {
            let leaves: Vec<Chunk> = (0..1 << width)
                .map(|leaf| blocks(64 * (leaf + 1))[64 * leaf..].try_into().unwrap())
                .collect();
            let sum = |included: &dyn Fn(usize) -> bool| -> Chunk {
                std::array::from_fn(|at| {
                    (0..1 << width)
                        .filter(|&leaf| included(leaf))
                        .fold(Block::ZERO, |sum, leaf| sum ^ leaves[leaf][at])
                })
            };
            for level in SimdLevel::available() {
                let before: Vec<Chunk> = vec![[Block::ONES; 64]; width];
                let (mut sums, mut total) = (before.clone(), [Block::ZERO; 64]);
                fold(level, &leaves, &mut sums, &mut total);
                assert!(total == sum(&|_| true));
                for (bit, sums) in sums.iter().enumerate() {
                    let expected = sum(&|leaf| leaf >> bit & 1 == 1).map(|x| x ^ Block::ONES);
                    assert!(*sums == expected);
                }
            }
        }
    }

    #[test]
    fn masks_take_all_or_nothing_at_every_level() {
        let all = blocks(128);
        let (x, y) = (all[..64].try_into().unwrap(), all[64..].try_into().unwrap());
        for level in SimdLevel::available() {
            for mask in [false, true] {
                let mut out = [Block::ZERO; 64];
                add_masked(level, &x, &y, mask, &mut out);
                assert!((0..64).all(|i| out[i] == x[i] ^ y[i].masked(mask)));
            }
        }
    }

    #[test]
    fn products_are_the_reference_at_every_level() {
        for count in [0, 1, 3, 4, 9, MANY, 50] {
            let (mut x, mut y) = (blocks(count), blocks(2 * count)[count..].to_vec());
            if count > 0 {
                (x[0], y[0]) = (Block::ONES, Block::ONES);
            }
            let mut expected = [0u128; 2];
            for (x, y) in x.iter().zip(&y) {
                for i in (0..128).filter(|i| x.to_u128() >> i & 1 == 1) {
                    for j in (0..128).filter(|j| y.to_u128() >> j & 1 == 1) {
                        expected[(i + j) / 128] ^= 1 << ((i + j) % 128);
                    }
                }
            }
            for level in SimdLevel::available() {
                let found = inner_product_with_public(level, &x, &y);
                assert_eq!([found.0, found.1], expected, "{level:?} {count}");
            }
            #[cfg(target_arch = "x86_64")]
            if is_x86_feature_detected!("pclmulqdq") {
                // SAFETY: the CPU has the feature.
                let found = unsafe { x86::inner_product_128(&x, &y) };
                assert_eq!([found.0, found.1], expected);
            }
        }
    }
}
