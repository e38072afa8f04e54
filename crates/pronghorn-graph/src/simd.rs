//! Inner products of rows of weights with patches, compiled at every SIMD level.
#![allow(unsafe_code)] // vectors of floats, and calls of #[target_feature] functions after run-time detection
#![allow(clippy::needless_range_loop)] // indices of several arrays at once

use pronghorn_ring::{SimdLevel, vectorised};

use crate::fixed::Digit;

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
    /// Of a row of weights with so many fraction bits: the sum of the positive integers, minus that
    /// of the negative ones, the sum of squares, and the sum of squares of what rounding does to the
    /// weights.
    ///
    /// A search for precisions reads all weights many times. Numbers are kept in floats of 32 bits,
    /// in which all but the squares are exact, and the compiler keeps them in vectors.
    pub fn row_sums(weights: &[f32], fraction: i32, digit: Digit) -> [f64; 4] {
        if digit == Digit::Whole {
            return sums_of(weights, fraction, |integer| integer);
        }
        let cut = Cut::new(digit);
        sums_of(weights, fraction, |integer| cut.of(integer))
    }
}

/// How a digit is cut out of an integer.
#[derive(Clone, Copy)]
struct Cut {
    /// All from the digit up.
    from: Above,
    /// All above the digit.
    above: Above,
    /// The unit of what is above; 0 where it belongs to the digit.
    unit: f32,
}

/// All above some low digits: with `u` a digit's unit, `floor((x + u/2 + u^2/2 + ...) / u^n)`.
/// Rounding digit by digit gives the same. A closed form makes vectors.
#[derive(Clone, Copy)]
struct Above {
    halves: f32,
    inverse: f32,
}

impl Cut {
    fn new(digit: Digit) -> Self {
        let (below, bits, is_top) = match digit {
            Digit::Whole => (0, 0, true),
            Digit::Low(bits) => (0, bits, false),
            Digit::High(bits) => (1, bits, true),
            Digit::Middle { below, bits } => (below, bits, false),
            Digit::Top { below, bits } => (below, bits, true),
        };
        Self {
            from: Above::new(below, bits),
            above: Above::new(below + 1, bits),
            unit: if is_top { 0.0 } else { (bits as f32).exp2() },
        }
    }

    #[inline(always)]
    fn of(self, integer: f32) -> f32 {
        self.from.of(integer) - self.unit * self.above.of(integer)
    }
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

/// Weights that are summed in floats before sums go to doubles: sums of 16 bits stay exact.
const SUMMED: usize = 256 * LANES;

/// Running sums: enough that compilers see a loop to make vectors of.
const LANES: usize = 64;

#[inline(always)]
fn sums_of(weights: &[f32], fraction: i32, part: impl Fn(f32) -> f32) -> [f64; 4] {
    let scale = f64::from(fraction).exp2() as f32;
    let mut all = [0f64; 4];
    for weights in weights.chunks(SUMMED) {
        let mut sums = [[0f32; LANES]; 4];
        let (chunks, rest) = weights.as_chunks::<LANES>();
        let mut last = [0.0; LANES];
        last[..rest.len()].copy_from_slice(rest);
        for weights in chunks.iter().chain([&last]) {
            let [up, down, squares, rounding] = &mut sums;
            for lane in 0..LANES {
                let scaled = weights[lane] * scale;
                let integer = nearest(scaled);
                let (error, part) = (integer - scaled, part(integer));
                up[lane] += if part > 0.0 { part } else { 0.0 };
                down[lane] += if part < 0.0 { -part } else { 0.0 };
                squares[lane] += part * part;
                rounding[lane] += error * error;
            }
        }
        for (all, lanes) in all.iter_mut().zip(&sums) {
            *all += lanes.iter().map(|&sum| f64::from(sum)).sum::<f64>();
        }
    }
    all[3] *= f64::from(-2 * fraction).exp2();
    all
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
