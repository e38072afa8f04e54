//! Inner products of rows of weights with patches, compiled at every SIMD level.
#![allow(unsafe_code)] // vectors of floats, and calls of #[target_feature] functions after run-time detection
#![allow(clippy::needless_range_loop)] // indices of several arrays at once

use pronghorn_ring::{SimdLevel, vectorised};

use crate::fixed::{Digit, Table};

/// Running sums of an inner product in floating point. Their number is part of the result: plans
/// are the same on all machines.
const SUMS: usize = 16;

/// Rows, and patches, whose products are taken together.
const TILE: usize = 2;

/// `sums[row][patch] = rows[row] . patches[patch]`, of `length` numbers each, at a level or the best
/// below it that the CPU has.
pub fn float_products(
    level: SimdLevel,
    rows: &[f32],
    patches: &[f32],
    length: usize,
    sums: &mut [f32],
) {
    #[cfg(target_arch = "x86_64")]
    match level.or_best() {
        SimdLevel::Avx512 | SimdLevel::Avx512Ifma => {
            // SAFETY: `or_best` returns only levels this CPU has.
            return unsafe { avx512_products(rows, patches, length, sums) };
        }
        SimdLevel::Avx2 => {
            // SAFETY: as above.
            return unsafe { avx2_products(rows, patches, length, sums) };
        }
        SimdLevel::Portable => {}
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = level;
    tiles::<Plain>(rows, patches, length, sums);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn avx2_products(rows: &[f32], patches: &[f32], length: usize, sums: &mut [f32]) {
    tiles::<x86::Avx2>(rows, patches, length, sums);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f")]
fn avx512_products(rows: &[f32], patches: &[f32], length: usize, sums: &mut [f32]) {
    tiles::<x86::Avx512>(rows, patches, length, sums);
}

vectorised! {
    /// The same modulo 2^32.
    pub fn integer_products(rows: &[i16], patches: &[i16], length: usize, sums: &mut [i32]) {
        tiles::<Words>(rows, patches, length, sums);
    }
}

vectorised! {
    /// Adds to each sum, modulo 2^32, [`Table::step_of`] its rise for each of
    /// the low `fine` bits of its rest that is set.
    pub fn add_steps(sums: &mut [i32], rises: &[i32], rests: &[i32], fine: u32) {
        for bit in 0..fine {
            for (sum, (&rise, &rest)) in sums.iter_mut().zip(rises.iter().zip(rests)) {
                let step = Table::step_of(rise, bit, fine) as i32;
                *sum = sum.wrapping_add(step & -(rest >> bit & 1));
            }
        }
    }
}

vectorised! {
    /// Of a row of weights with so many fraction bits: for each digit of a cut the sum of the
    /// positive integers, minus that of the negative ones, and the sum of squares. Returns the sum
    /// of squares of what rounding does to the weights. `sums` begins with the highest digit.
    ///
    /// A search for precisions reads all weights many times. Numbers are kept in floats of 32 bits,
    /// in which all but the squares are exact, and the compiler keeps them in vectors.
    pub fn row_sums(weights: &[f32], fraction: i32, cut: Cut, sums: &mut [[f64; 3]]) -> f64 {
        let scale = f64::from(fraction).exp2() as f32;
        let (mut integers, mut above) = ([0f32; BLOCK], [0f32; BLOCK]);
        let mut rounding = 0.0;
        sums.fill([0.0; 3]);
        for weights in weights.chunks(BLOCK) {
            // Zeros add nothing.
            integers[weights.len()..].fill(0.0);
            let length = weights.len().next_multiple_of(LANES);
            let (integers, above) = (&mut integers[..length], &mut above[..length]);
            rounding += rounded(weights, scale, integers);
            cut.above_all(integers, above);
            for (place, sums) in cut.places().zip(&mut *sums) {
                cut.take(place, integers, above, sums);
            }
        }
        rounding * f64::from(-2 * fraction).exp2()
    }
}

/// Weights whose digits are cut out together: their integers stay in a core's first cache, and
/// running sums of 16 bits stay exact.
const BLOCK: usize = 1024;

/// Running sums, which stay in registers.
const LANES: usize = 16;

/// Scaled weights as integers, and the sum of squares of what that does to them.
#[inline(always)]
fn rounded(weights: &[f32], scale: f32, integers: &mut [f32]) -> f64 {
    let mut squares = [0f32; LANES];
    let (whole, rest) = weights.as_chunks::<LANES>();
    let mut last = [0.0; LANES];
    last[..rest.len()].copy_from_slice(rest);
    let chunks = whole.iter().chain([&last]);
    for (integers, weights) in integers.as_chunks_mut::<LANES>().0.iter_mut().zip(chunks) {
        for lane in 0..LANES {
            let scaled = weights[lane] * scale;
            integers[lane] = nearest(scaled);
            let error = integers[lane] - scaled;
            squares[lane] += error * error;
        }
    }
    total_of(&squares)
}

#[inline(always)]
fn total_of(lanes: &[f32; LANES]) -> f64 {
    lanes.iter().map(|&sum| f64::from(sum)).sum()
}

/// Digits of integers, one after the other.
#[derive(Clone, Copy)]
pub struct Cut {
    bits: u32,
    /// The place of the lowest digit, and that after the highest.
    from: u32,
    to: u32,
    /// Whether what is above the highest belongs to it.
    is_top: bool,
}

impl Cut {
    /// The digits that are made with one: those below a third or higher one, too.
    pub fn with(digit: Digit) -> Self {
        let (bits, from, to, is_top) = match digit {
            Digit::Whole => (0, 0, 1, true),
            Digit::Low(bits) => (bits, 0, 1, false),
            Digit::High(bits) => (bits, 1, 2, true),
            Digit::Middle { below, bits } => (bits, below, below + 1, false),
            Digit::Top { below, bits } => (bits, 0, below + 1, true),
        };
        Self {
            bits,
            from,
            to,
            is_top,
        }
    }

    /// Their places, the highest first.
    fn places(self) -> impl Iterator<Item = u32> {
        (self.from..self.to).rev()
    }

    /// What is above the highest.
    #[inline(always)]
    fn above_all(self, integers: &[f32], above: &mut [f32]) {
        if self.is_top {
            return above.fill(0.0);
        }
        let beyond = Above::new(self.to, self.bits);
        for (above, &integer) in above.iter_mut().zip(integers) {
            *above = beyond.of(integer);
        }
    }

    /// Adds the sums of the digit at a place. `above` has what is above it, and gets what is above
    /// the next.
    #[inline(always)]
    fn take(self, place: u32, integers: &[f32], above: &mut [f32], sums: &mut [f64; 3]) {
        let from = Above::new(place, self.bits);
        let unit = (self.bits as f32).exp2();
        match place {
            0 => add_sums(integers, above, unit, |integer| integer, sums),
            _ => add_sums(integers, above, unit, |integer| from.of(integer), sums),
        }
    }
}

/// Adds the sums of `from - unit * above`, and keeps `from`.
#[inline(always)]
fn add_sums(
    integers: &[f32],
    above: &mut [f32],
    unit: f32,
    from: impl Fn(f32) -> f32,
    all: &mut [f64; 3],
) {
    let mut sums = [[0f32; LANES]; 3];
    let (integers, above) = (integers.as_chunks().0, above.as_chunks_mut().0);
    for (integers, above) in integers.iter().zip(above) {
        let (integers, above): (&[f32; LANES], &mut [f32; LANES]) = (integers, above);
        let [up, down, squares] = &mut sums;
        for lane in 0..LANES {
            let from = from(integers[lane]);
            let part = from - unit * above[lane];
            above[lane] = from;
            up[lane] += if part > 0.0 { part } else { 0.0 };
            down[lane] += if part < 0.0 { -part } else { 0.0 };
            squares[lane] += part * part;
        }
    }
    for (all, lanes) in all.iter_mut().zip(&sums) {
        *all += total_of(lanes);
    }
}

/// All above some low digits: with `u` a digit's unit, `floor((x + u/2 + u^2/2 + ...) / u^n)`.
/// Rounding digit by digit gives the same. A closed form makes vectors.
#[derive(Clone, Copy)]
struct Above {
    halves: f32,
    inverse: f32,
}

impl Above {
    /// Above so many digits of so many bits.
    fn new(below: u32, bits: u32) -> Self {
        let units = (1..=below).map(|digits| ((digits * bits) as f32).exp2());
        Self {
            halves: units.sum::<f32>() / 2.0,
            inverse: (-((below * bits) as f32)).exp2(),
        }
    }

    #[inline(always)]
    fn of(self, integer: f32) -> f32 {
        floor((integer + self.halves) * self.inverse)
    }
}

/// Numbers below `2^22` lose their fraction when this is added: `1.5 * 2^23`.
const NO_FRACTION: f32 = 12_582_912.0;

/// The largest integer that is no larger, for `|x| < 2^22`.
#[inline(always)]
fn floor(x: f32) -> f32 {
    let near = (x + NO_FRACTION) - NO_FRACTION;
    if near > x { near - 1.0 } else { near }
}

/// `scale::round` of a scaled weight, for `|x| < 2^22`.
#[inline(always)]
pub fn nearest(x: f32) -> f32 {
    let near = (x + NO_FRACTION) - NO_FRACTION;
    // Of two that are as near, the one away from zero.
    let half = 0.5f32.copysign(x);
    if x - near == half {
        near + (half + half)
    } else {
        near
    }
}

/// Inner products of rows and patches.
trait Products {
    type Number;
    type Sum;

    /// The product of a row and a patch.
    fn one(row: &[Self::Number], patch: &[Self::Number]) -> Self::Sum;

    /// The products of two rows and two patches of one length, `[row][patch]`.
    fn four(rows: [&[Self::Number]; 2], patches: [&[Self::Number]; 2]) -> [[Self::Sum; 2]; 2];
}

/// Floats, in plain loops.
struct Plain;

impl Products for Plain {
    type Number = f32;
    type Sum = f32;

    #[inline(always)]
    fn one(row: &[f32], patch: &[f32]) -> f32 {
        let (row, patch) = (row.as_chunks::<SUMS>(), patch.as_chunks::<SUMS>());
        let mut sums = [0f32; SUMS];
        for (x, u) in row.0.iter().zip(patch.0) {
            for lane in 0..SUMS {
                sums[lane] += x[lane] * u[lane];
            }
        }
        total(&sums, row.1, patch.1)
    }

    #[inline(always)]
    fn four([x, y]: [&[f32]; 2], [u, v]: [&[f32]; 2]) -> [[f32; 2]; 2] {
        [
            [Self::one(x, u), Self::one(x, v)],
            [Self::one(y, u), Self::one(y, v)],
        ]
    }
}

/// Running sums and what is left of a row and a patch, in this order.
#[inline(always)]
fn total(sums: &[f32; SUMS], row: &[f32], patch: &[f32]) -> f32 {
    let rest: f32 = row.iter().zip(patch).map(|(a, b)| a * b).sum();
    sums.iter().sum::<f32>() + rest
}

/// Integers modulo 2^32, which the compiler keeps in vectors.
struct Words;

impl Products for Words {
    type Number = i16;
    type Sum = i32;

    #[inline(always)]
    fn one(row: &[i16], patch: &[i16]) -> i32 {
        let mut sum = 0i32;
        for (&x, &u) in row.iter().zip(patch) {
            sum = sum.wrapping_add(i32::from(x) * i32::from(u));
        }
        sum
    }

    #[inline(always)]
    fn four([x, y]: [&[i16]; 2], [u, v]: [&[i16]; 2]) -> [[i32; 2]; 2] {
        [
            [Self::one(x, u), Self::one(x, v)],
            [Self::one(y, u), Self::one(y, v)],
        ]
    }
}

/// Floats in vectors. A product is rounded before it is added, as in plain loops.
#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::{
        __m256, __m512, _mm256_add_ps, _mm256_loadu_ps, _mm256_mul_ps, _mm256_setzero_ps,
        _mm256_storeu_ps, _mm512_add_ps, _mm512_loadu_ps, _mm512_mul_ps, _mm512_setzero_ps,
        _mm512_storeu_ps,
    };

    use super::{Products, SUMS, total};

    /// Defines [`Products`] of floats on vectors of a level, of which `$vectors` hold [`SUMS`].
    macro_rules! products {
        ($name:ident, $vector:ty, $lanes:literal, $zero:ident, $load:ident, $store:ident, $add:ident, $mul:ident) => {
            /// Made only behind a check that the CPU has the level.
            pub struct $name;

            impl $name {
                const VECTORS: usize = SUMS / $lanes;

                #[inline(always)]
                fn load(numbers: &[f32; SUMS]) -> [$vector; SUMS / $lanes] {
                    let mut vectors = Self::zero();
                    for (at, vector) in vectors.iter_mut().enumerate() {
                        // SAFETY: the CPU has the level, and `numbers` has as many from there.
                        *vector = unsafe { $load(numbers.as_ptr().add(at * $lanes)) };
                    }
                    vectors
                }

                #[inline(always)]
                fn zero() -> [$vector; SUMS / $lanes] {
                    // SAFETY: the CPU has the level.
                    unsafe { [$zero(); SUMS / $lanes] }
                }

                #[inline(always)]
                fn add(
                    sums: &mut [$vector; SUMS / $lanes],
                    x: &[$vector; SUMS / $lanes],
                    u: &[$vector; SUMS / $lanes],
                ) {
                    for at in 0..Self::VECTORS {
                        // SAFETY: the CPU has the level.
                        sums[at] = unsafe { $add(sums[at], $mul(x[at], u[at])) };
                    }
                }

                #[inline(always)]
                fn sums(vectors: [$vector; SUMS / $lanes]) -> [f32; SUMS] {
                    let mut sums = [0f32; SUMS];
                    for (at, vector) in vectors.into_iter().enumerate() {
                        // SAFETY: the CPU has the level, and `sums` has as many from there.
                        unsafe { $store(sums.as_mut_ptr().add(at * $lanes), vector) };
                    }
                    sums
                }
            }

            impl Products for $name {
                type Number = f32;
                type Sum = f32;

                #[inline(always)]
                fn one(row: &[f32], patch: &[f32]) -> f32 {
                    let (row, patch) = (row.as_chunks::<SUMS>(), patch.as_chunks::<SUMS>());
                    let mut sums = Self::zero();
                    for (x, u) in row.0.iter().zip(patch.0) {
                        Self::add(&mut sums, &Self::load(x), &Self::load(u));
                    }
                    total(&Self::sums(sums), row.1, patch.1)
                }

                #[inline(always)]
                fn four(rows: [&[f32]; 2], patches: [&[f32]; 2]) -> [[f32; 2]; 2] {
                    let (first, second) =
                        (rows[0].as_chunks::<SUMS>(), rows[1].as_chunks::<SUMS>());
                    let (left, right) = (
                        patches[0].as_chunks::<SUMS>(),
                        patches[1].as_chunks::<SUMS>(),
                    );
                    let (mut a, mut b) = (Self::zero(), Self::zero());
                    let (mut c, mut d) = (Self::zero(), Self::zero());
                    let rows = first.0.iter().zip(second.0);
                    let patches = left.0.iter().zip(right.0);
                    for ((x, y), (u, v)) in rows.zip(patches) {
                        let (x, y) = (Self::load(x), Self::load(y));
                        let (u, v) = (Self::load(u), Self::load(v));
                        Self::add(&mut a, &x, &u);
                        Self::add(&mut b, &x, &v);
                        Self::add(&mut c, &y, &u);
                        Self::add(&mut d, &y, &v);
                    }
                    let [a, b, c, d] = [Self::sums(a), Self::sums(b), Self::sums(c), Self::sums(d)];
                    [
                        [total(&a, first.1, left.1), total(&b, first.1, right.1)],
                        [total(&c, second.1, left.1), total(&d, second.1, right.1)],
                    ]
                }
            }
        };
    }

    products!(
        Avx2,
        __m256,
        8,
        _mm256_setzero_ps,
        _mm256_loadu_ps,
        _mm256_storeu_ps,
        _mm256_add_ps,
        _mm256_mul_ps
    );
    products!(
        Avx512,
        __m512,
        16,
        _mm512_setzero_ps,
        _mm512_loadu_ps,
        _mm512_storeu_ps,
        _mm512_add_ps,
        _mm512_mul_ps
    );
}

/// All products, tile by tile.
#[inline(always)]
fn tiles<T: Products<Sum: Copy>>(
    rows: &[T::Number],
    patches: &[T::Number],
    length: usize,
    sums: &mut [T::Sum],
) {
    let (heights, count) = (rows.len() / length, patches.len() / length);
    let [below, right] = [heights - heights % TILE, count - count % TILE];
    for r in (0..below).step_by(TILE) {
        let (first, second) = rows[r * length..(r + TILE) * length].split_at(length);
        for p in (0..right).step_by(TILE) {
            let (left, other) = patches[p * length..(p + TILE) * length].split_at(length);
            let products = T::four([first, second], [left, other]);
            for row in 0..TILE {
                for patch in 0..TILE {
                    sums[(r + row) * count + p + patch] = products[row][patch];
                }
            }
        }
        for row in 0..TILE {
            for p in right..count {
                let row = r + row;
                sums[row * count + p] = T::one(
                    &rows[row * length..][..length],
                    &patches[p * length..][..length],
                );
            }
        }
    }
    for r in below..heights {
        for p in 0..count {
            sums[r * count + p] = T::one(
                &rows[r * length..][..length],
                &patches[p * length..][..length],
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every level gives the sums of the definition, for floats to the last bit.
    #[test]
    fn levels_agree() {
        let number = |at: usize| (at * 2_654_435_761 % 65_521) as i32 - 32_760;
        for length in [1, 9, 15, 16, 27, 64, 147] {
            for (rows, count) in [(1, 1), (2, 3), (5, 4), (4, 1)] {
                let weights: Vec<i16> = (0..rows * length).map(|at| number(at) as i16).collect();
                let patches: Vec<i16> = (0..count * length)
                    .map(|at| number(at + 7) as i16)
                    .collect();
                let floats = |integers: &[i16]| -> Vec<f32> {
                    integers.iter().map(|&x| f32::from(x) / 1234.5).collect()
                };
                let (float_weights, float_patches) = (floats(&weights), floats(&patches));
                let mut wanted = Vec::new();
                let mut float_wanted = Vec::new();
                for row in 0..rows {
                    for patch in 0..count {
                        let (a, b) = (&weights[row * length..], &patches[patch * length..]);
                        wanted.push((0..length).fold(0i32, |sum, at| {
                            sum.wrapping_add(i32::from(a[at]) * i32::from(b[at]))
                        }));
                        let a = &float_weights[row * length..][..length];
                        let b = &float_patches[patch * length..][..length];
                        let mut sums = [0f32; SUMS];
                        let whole = length - length % SUMS;
                        (0..whole).for_each(|at| sums[at % SUMS] += a[at] * b[at]);
                        let rest: f32 = (whole..length).map(|at| a[at] * b[at]).sum();
                        float_wanted.push((sums.iter().sum::<f32>() + rest).to_bits());
                    }
                }
                for level in SimdLevel::available() {
                    let mut found = vec![0; rows * count];
                    integer_products(level, &weights, &patches, length, &mut found);
                    assert_eq!(found, wanted, "{level:?} {length} {rows} {count}");
                    let mut found = vec![0.0; rows * count];
                    float_products(level, &float_weights, &float_patches, length, &mut found);
                    let found: Vec<u32> = found.iter().map(|x| x.to_bits()).collect();
                    assert_eq!(found, float_wanted, "{level:?} {length} {rows} {count}");
                }
            }
        }
    }
}
