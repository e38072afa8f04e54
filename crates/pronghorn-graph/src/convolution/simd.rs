//! Products of rows of weights with columns: the windows of some positions side by side, a lane
//! each, compiled at every SIMD level.
//!
//! Sums are taken in the order of the weights, in blocks whose sums are added. The order is part of
//! the result: plans are the same on all machines.
#![allow(unsafe_code)] // vectors, and calls of #[target_feature] functions after run-time detection

use pronghorn_ring::{SimdLevel, vectorised};

use crate::geometry::Window;

/// Positions whose sums are taken together.
pub const LANES: usize = 16;

/// Rows, likewise: their sums stay in the 16 registers of AVX2.
pub const ROWS: usize = 6;

/// The level for products in plain loops, AVX2 at most: for AVX-512 the compiler gathers lanes one
/// by one, and floats took 47 times as long on a Zen 4.
pub fn level() -> SimdLevel {
    SimdLevel::detect().min(SimdLevel::Avx2)
}

/// Some rows of weights in lanes, packed: tiles of [`ROWS`] rows first, then of two, then of one. A
/// tile has the first lanes of its rows side by side, then the second ones, and so on: products
/// read one stream.
pub struct Packed<W> {
    lanes: Vec<W>,
    rows: usize,
    /// Lanes of a row.
    length: usize,
}

impl<W: Copy + Default> Packed<W> {
    /// Of so many rows, whose lanes `row` iterates over: `length` of them.
    pub fn new<I: Iterator<Item = W>>(
        rows: usize,
        length: usize,
        row: impl Fn(usize) -> I,
    ) -> Self {
        let mut lanes = vec![W::default(); rows * length];
        for (first, count) in tiles_of(rows) {
            let tile = &mut lanes[first * length..][..count * length];
            for at in 0..count {
                let places = tile[at..].iter_mut().step_by(count);
                places
                    .zip(row(first + at))
                    .for_each(|(place, lane)| *place = lane);
            }
        }
        Self {
            lanes,
            rows,
            length,
        }
    }

    /// Rows from `first` on, a multiple of [`ROWS`], at most `most` of them; of each `depth` lanes
    /// from `from` on.
    pub fn block(
        &self,
        (first, most): (usize, usize),
        (from, depth): (usize, usize),
    ) -> Rows<'_, W> {
        let count = most.min(self.rows - first);
        Rows {
            lanes: &self.lanes[first * self.length..][..count * self.length],
            count,
            length: self.length,
            from,
            depth,
        }
    }
}

/// A block of each of some rows of weights.
pub struct Rows<'a, W> {
    /// As [`Packed`] has them.
    lanes: &'a [W],
    count: usize,
    length: usize,
    from: usize,
    depth: usize,
}

impl<W> Rows<'_, W> {
    /// The block of the tile that begins at a row and has `R` of them.
    #[inline(always)]
    fn tile<const R: usize>(&self, first: usize) -> &[[W; R]] {
        let lanes = &self.lanes[first * self.length..][..R * self.length];
        let (tile, _) = lanes.as_chunks::<R>();
        &tile[self.from..][..self.depth]
    }
}

/// First rows of the tiles of so many rows, and how many each has.
fn tiles_of(count: usize) -> impl Iterator<Item = (usize, usize)> {
    let mut first = 0;
    std::iter::from_fn(move || {
        let rows = [ROWS, 2, 1]
            .into_iter()
            .find(|rows| first + rows <= count)?;
        first += rows;
        Some((first - rows, rows))
    })
}

/// Where sums are added: `sums[row * stride + lane]`, for the lanes below `lanes`.
pub struct Sums<'a, S> {
    /// From the first row and lane on.
    pub sums: &'a mut [S],
    /// Between two rows.
    pub stride: usize,
    /// At most [`LANES`].
    pub lanes: usize,
}

/// Adds products of floats, at a level or the best below it that the CPU has. Products are not
/// rounded before they are added, at every level: fused multiply-adds take half as long. A CPU
/// without them does the same in many instructions.
pub fn float_columns(
    level: SimdLevel,
    rows: Rows<'_, f32>,
    columns: &[[f32; LANES]],
    sums: Sums<'_, f32>,
) {
    #[cfg(target_arch = "x86_64")]
    if level.or_best() >= SimdLevel::Avx512 {
        // SAFETY: `or_best` returns only levels this CPU has, and all from AVX-512 on have AVX-512F.
        return unsafe { x86::float_columns(rows, columns, sums) };
    }
    #[cfg(target_arch = "x86_64")]
    if level.or_best() >= SimdLevel::Avx2 && is_x86_feature_detected!("fma") {
        // SAFETY: `or_best` returns only levels this CPU has, all from AVX2 on have AVX2, and FMA
        // was found.
        return unsafe { x86::float_columns_avx2(rows, columns, sums) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = level;
    tiles(&Floats, rows, columns, sums);
}

vectorised! {
    /// Adds products of integers modulo 2^32.
    pub fn word_columns(rows: Rows<'_, i32>, columns: &[[i32; LANES]], sums: Sums<'_, i32>) {
        tiles(&Words, rows, columns, sums);
    }
}

vectorised! {
    /// Adds products of integers in 64 bits.
    pub fn long_columns(rows: Rows<'_, i32>, columns: &[[i32; LANES]], sums: Sums<'_, i64>) {
        tiles(&Longs, rows, columns, sums);
    }
}

/// Adds products of pairs of short integers modulo 2^32, at a level or the best below it that the
/// CPU has.
pub fn pair_columns(
    level: SimdLevel,
    rows: Rows<'_, [i16; 2]>,
    columns: &[[[i16; 2]; LANES]],
    sums: Sums<'_, i32>,
) {
    #[cfg(target_arch = "x86_64")]
    if level.or_best() >= SimdLevel::Avx512 && is_x86_feature_detected!("avx512vnni") {
        // SAFETY: the CPU has AVX-512F, as all levels from AVX-512 on, and AVX-512 VNNI.
        return unsafe { x86::pair_columns_vnni(rows, columns, sums) };
    }
    #[cfg(target_arch = "x86_64")]
    if level.or_best() >= SimdLevel::Avx2 {
        // SAFETY: `or_best` returns only levels this CPU has, and all from AVX2 on have AVX2.
        return unsafe { x86::pair_columns(rows, columns, sums) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = level;
    tiles(&Pairs, rows, columns, sums);
}

/// Sizes of the channels that one row of weights passes over.
pub struct Planes<'a> {
    pub window: &'a Window,
    /// Height and width of a channel.
    pub input: [usize; 2],
    /// Those of the result.
    pub output: [usize; 2],
}

impl Planes<'_> {
    /// Adds all products to `sums`, a weight after the other.
    #[inline(always)]
    fn add<N: Copy, S: Copy>(
        &self,
        weights: &[N],
        x: &[N],
        sums: &mut [S],
        add: impl Fn(S, N, N) -> S,
    ) {
        let (window, [height, width]) = (self.window, self.input);
        let taps = window.kernel[0] * window.kernel[1];
        for (at, &weight) in weights.iter().enumerate() {
            let plane = &x[at / taps * height * width..][..height * width];
            let tap = [at % taps / window.kernel[1], at % window.kernel[1]];
            let [rows, columns] = [0, 1]
                .map(|axis| window.places(axis, tap[axis], self.input[axis], self.output[axis]));
            if columns.is_empty() {
                continue;
            }
            let first = window.index(1, columns.start, tap[1]);
            for row in rows {
                let source = &plane[window.index(0, row, tap[0]) * width + first..];
                let sums = &mut sums[row * self.output[1]..][columns.clone()];
                match window.stride[1] {
                    1 => {
                        for (sum, &x) in sums.iter_mut().zip(source) {
                            *sum = add(*sum, weight, x);
                        }
                    }
                    stride => {
                        for (sum, &x) in sums.iter_mut().zip(source.iter().step_by(stride)) {
                            *sum = add(*sum, weight, x);
                        }
                    }
                }
            }
        }
    }
}

/// Adds the products of a row of float weights with all windows, at a level or the best below it
/// that the CPU has; fused, as those of [`float_columns`].
pub fn float_lines(
    level: SimdLevel,
    planes: &Planes<'_>,
    weights: &[f32],
    x: &[f32],
    sums: &mut [f32],
) {
    #[cfg(target_arch = "x86_64")]
    if level.or_best() >= SimdLevel::Avx512 {
        // SAFETY: `or_best` returns only levels this CPU has, and all from AVX-512 on have AVX-512F.
        return unsafe { x86::float_lines(planes, weights, x, sums) };
    }
    #[cfg(target_arch = "x86_64")]
    if level.or_best() >= SimdLevel::Avx2 && is_x86_feature_detected!("fma") {
        // SAFETY: `or_best` returns only levels this CPU has, all from AVX2 on have AVX2, and FMA
        // was found.
        return unsafe { x86::float_lines_avx2(planes, weights, x, sums) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = level;
    planes.add(weights, x, sums, |sum, w, x| w.mul_add(x, sum));
}

vectorised! {
    /// The same of short integers modulo 2^32.
    pub fn short_lines(planes: &Planes<'_>, weights: &[i16], x: &[i16], sums: &mut [i32]) {
        planes.add(weights, x, sums, |sum: i32, w, x| {
            sum.wrapping_add(i32::from(w) * i32::from(x))
        });
    }
}

vectorised! {
    /// The same of integers modulo 2^32.
    pub fn word_lines(planes: &Planes<'_>, weights: &[i32], x: &[i32], sums: &mut [i32]) {
        planes.add(weights, x, sums, |sum, w, x| sum.wrapping_add(w.wrapping_mul(x)));
    }
}

vectorised! {
    /// The same of integers in 64 bits.
    pub fn long_lines(planes: &Planes<'_>, weights: &[i32], x: &[i32], sums: &mut [i64]) {
        planes.add(weights, x, sums, |sum, w, x| sum + i64::from(w) * i64::from(x));
    }
}

/// Sums of products of weights and lanes.
trait Products {
    type Weight;
    type Lane;
    type Sum: Copy + Default;

    /// Whole tiles that are best multiplied at a time: as many as have registers for their sums.
    const AT_ONCE: usize = 1;

    /// The sums of the `R` rows of `T` tiles and all lanes. A tile has as many weights of a row as
    /// there are columns.
    fn of<const R: usize, const T: usize>(
        &self,
        tiles: [&[[Self::Weight; R]]; T],
        columns: &[[Self::Lane; LANES]],
    ) -> [[[Self::Sum; LANES]; R]; T];

    /// The sum of two sums.
    fn plus(a: Self::Sum, b: Self::Sum) -> Self::Sum;
}

/// Defines [`Products`] in plain loops, which the compiler keeps in vectors.
macro_rules! plain {
    ($name:ident, $weight:ty, $sum:ty, $add:expr, $plus:expr) => {
        struct $name;

        impl Products for $name {
            type Weight = $weight;
            type Lane = $weight;
            type Sum = $sum;

            #[inline(always)]
            fn of<const R: usize, const T: usize>(
                &self,
                tiles: [&[[$weight; R]]; T],
                columns: &[[$weight; LANES]],
            ) -> [[[$sum; LANES]; R]; T] {
                let mut sums = [[[<$sum>::default(); LANES]; R]; T];
                for (sums, tile) in sums.iter_mut().zip(tiles) {
                    for (weights, column) in tile.iter().zip(columns) {
                        for (sums, &weight) in sums.iter_mut().zip(weights) {
                            for (sum, &x) in sums.iter_mut().zip(column) {
                                *sum = $add(*sum, weight, x);
                            }
                        }
                    }
                }
                sums
            }

            #[inline(always)]
            fn plus(a: $sum, b: $sum) -> $sum {
                $plus(a, b)
            }
        }
    };
}

plain!(
    Floats,
    f32,
    f32,
    |sum: f32, w: f32, x: f32| w.mul_add(x, sum),
    |a: f32, b: f32| a + b
);
plain!(
    Words,
    i32,
    i32,
    |sum: i32, w: i32, x: i32| sum.wrapping_add(w.wrapping_mul(x)),
    i32::wrapping_add
);
plain!(
    Longs,
    i32,
    i64,
    |sum: i64, w: i32, x: i32| sum.wrapping_add(i64::from(w) * i64::from(x)),
    i64::wrapping_add
);
plain!(
    Pairs,
    [i16; 2],
    i32,
    |sum: i32, [a, b]: [i16; 2], [x, y]: [i16; 2]| {
        sum.wrapping_add(i32::from(a) * i32::from(x))
            .wrapping_add(i32::from(b) * i32::from(y))
    },
    i32::wrapping_add
);

/// All rows, tile by tile, or as many whole tiles at a time as is best.
#[inline(always)]
fn tiles<P: Products>(
    products: &P,
    rows: Rows<'_, P::Weight>,
    columns: &[[P::Lane; LANES]],
    mut sums: Sums<'_, P::Sum>,
) {
    let pairs = match P::AT_ONCE {
        2 => rows.count / (2 * ROWS),
        _ => 0,
    };
    for pair in 0..pairs {
        let tiles = [2 * pair, 2 * pair + 1].map(|tile| rows.tile::<ROWS>(tile * ROWS));
        add(products, tiles, 2 * pair * ROWS, columns, &mut sums);
    }
    for (first, count) in tiles_of(rows.count).skip(2 * pairs) {
        match count {
            ROWS => add(
                products,
                [rows.tile::<ROWS>(first)],
                first,
                columns,
                &mut sums,
            ),
            2 => add(products, [rows.tile::<2>(first)], first, columns, &mut sums),
            _ => add(products, [rows.tile::<1>(first)], first, columns, &mut sums),
        }
    }
}

/// Adds the sums of tiles of `R` rows, from row `first` on.
#[inline(always)]
fn add<P: Products, const R: usize, const T: usize>(
    products: &P,
    tiles: [&[[P::Weight; R]]; T],
    first: usize,
    columns: &[[P::Lane; LANES]],
    out: &mut Sums<'_, P::Sum>,
) {
    let sums = products.of(tiles, columns);
    for (at, sums) in sums.as_flattened().iter().enumerate() {
        let out = &mut out.sums[(first + at) * out.stride..][..out.lanes];
        for (out, &sum) in out.iter_mut().zip(sums) {
            *out = P::plus(*out, sum);
        }
    }
}

/// In vectors: the compiler does not find the instructions that multiply and add.
#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::{
        _mm256_add_epi32, _mm256_fmadd_ps, _mm256_loadu_ps, _mm256_loadu_si256, _mm256_madd_epi16,
        _mm256_set1_epi32, _mm256_set1_ps, _mm256_setzero_ps, _mm256_setzero_si256,
        _mm256_storeu_ps, _mm256_storeu_si256, _mm512_dpwssd_epi32, _mm512_fmadd_ps,
        _mm512_loadu_ps, _mm512_loadu_si512, _mm512_set1_epi32, _mm512_set1_ps, _mm512_setzero_ps,
        _mm512_setzero_si512, _mm512_storeu_ps, _mm512_storeu_si512,
    };

    use super::{LANES, Planes, Products, Rows, Sums, tiles};

    /// Both numbers of a pair, as a lane has them.
    #[inline(always)]
    fn packed([low, high]: [i16; 2]) -> i32 {
        (i32::from(high) << 16) | i32::from(low as u16)
    }

    /// Made only behind a check that the CPU has AVX2.
    struct Avx2;

    /// Made only behind a check that the CPU has AVX2 and FMA.
    struct Fma;

    /// Made only behind a check that the CPU has AVX-512F.
    struct Avx512;

    /// Made only behind a check that the CPU has AVX-512F and AVX-512 VNNI.
    struct Vnni;

    #[target_feature(enable = "avx512f")]
    pub fn float_lines(planes: &Planes<'_>, weights: &[f32], x: &[f32], sums: &mut [f32]) {
        planes.add(weights, x, sums, |sum, w, x| w.mul_add(x, sum));
    }

    #[target_feature(enable = "avx2,fma")]
    pub fn float_lines_avx2(planes: &Planes<'_>, weights: &[f32], x: &[f32], sums: &mut [f32]) {
        planes.add(weights, x, sums, |sum, w, x| w.mul_add(x, sum));
    }

    #[target_feature(enable = "avx512f")]
    pub fn float_columns(rows: Rows<'_, f32>, columns: &[[f32; LANES]], sums: Sums<'_, f32>) {
        tiles(&Avx512, rows, columns, sums);
    }

    #[target_feature(enable = "avx2,fma")]
    pub fn float_columns_avx2(rows: Rows<'_, f32>, columns: &[[f32; LANES]], sums: Sums<'_, f32>) {
        tiles(&Fma, rows, columns, sums);
    }

    #[target_feature(enable = "avx512f,avx512vnni")]
    pub fn pair_columns_vnni(
        rows: Rows<'_, [i16; 2]>,
        columns: &[[[i16; 2]; LANES]],
        sums: Sums<'_, i32>,
    ) {
        tiles(&Vnni, rows, columns, sums);
    }

    #[target_feature(enable = "avx2")]
    pub fn pair_columns(
        rows: Rows<'_, [i16; 2]>,
        columns: &[[[i16; 2]; LANES]],
        sums: Sums<'_, i32>,
    ) {
        tiles(&Avx2, rows, columns, sums);
    }

    /// Defines [`Products`] on vectors of `$width` lanes of an instruction set.
    macro_rules! vectors {
        ($name:ident, $number:ty => $sum:ty, $at_once:literal tiles, $width:literal lanes,
         $zero:ident, load($pointer:ident) = $load:expr, splat($weight:ident) = $splat:expr,
         add($to:ident, $by:ident, $x:ident) = $add:expr,
         store($place:ident, $vector:ident) = $store:expr,
         plus($a:ident, $b:ident) = $plus:expr) => {
            impl Products for $name {
                type Weight = $number;
                type Lane = $number;
                type Sum = $sum;

                const AT_ONCE: usize = $at_once;

                #[inline(always)]
                fn of<const R: usize, const T: usize>(
                    &self,
                    tiles: [&[[$number; R]]; T],
                    columns: &[[$number; LANES]],
                ) -> [[[$sum; LANES]; R]; T] {
                    // SAFETY: the CPU has the instructions, see `$name`. Loads and stores stay in
                    // arrays of as many numbers. No closures: these are compiled without them.
                    unsafe {
                        let mut sums = [[[$zero(); LANES / $width]; R]; T];
                        for (at, column) in columns.iter().enumerate() {
                            let mut vectors = [$zero(); LANES / $width];
                            for (at, vector) in vectors.iter_mut().enumerate() {
                                let $pointer = column.as_ptr().add(at * $width);
                                *vector = $load;
                            }
                            for (sums, tile) in sums.iter_mut().zip(tiles) {
                                for (sums, &$weight) in sums.iter_mut().zip(&tile[at]) {
                                    let $by = $splat;
                                    for (sum, &$x) in sums.iter_mut().zip(&vectors) {
                                        let $to = *sum;
                                        *sum = $add;
                                    }
                                }
                            }
                        }
                        let mut lanes = [[[<$sum>::default(); LANES]; R]; T];
                        let sums = sums.as_flattened().iter();
                        for (lanes, vectors) in lanes.as_flattened_mut().iter_mut().zip(sums) {
                            for (at, &$vector) in vectors.iter().enumerate() {
                                let $place = lanes.as_mut_ptr().add(at * $width);
                                $store;
                            }
                        }
                        lanes
                    }
                }

                #[inline(always)]
                fn plus($a: $sum, $b: $sum) -> $sum {
                    $plus
                }
            }
        };
    }

    vectors!(
        Avx512, f32 => f32, 2 tiles, 16 lanes,
        _mm512_setzero_ps, load(x) = _mm512_loadu_ps(x), splat(w) = _mm512_set1_ps(w),
        add(sum, w, x) = _mm512_fmadd_ps(w, x, sum), store(to, sum) = _mm512_storeu_ps(to, sum),
        plus(a, b) = a + b
    );

    vectors!(
        Vnni, [i16; 2] => i32, 2 tiles, 16 lanes,
        _mm512_setzero_si512, load(x) = _mm512_loadu_si512(x.cast()),
        splat(w) = _mm512_set1_epi32(packed(w)),
        add(sum, w, x) = _mm512_dpwssd_epi32(sum, w, x),
        store(to, sum) = _mm512_storeu_si512(to.cast(), sum),
        plus(a, b) = a.wrapping_add(b)
    );

    vectors!(
        Fma, f32 => f32, 1 tiles, 8 lanes,
        _mm256_setzero_ps, load(x) = _mm256_loadu_ps(x), splat(w) = _mm256_set1_ps(w),
        add(sum, w, x) = _mm256_fmadd_ps(w, x, sum), store(to, sum) = _mm256_storeu_ps(to, sum),
        plus(a, b) = a + b
    );

    vectors!(
        Avx2, [i16; 2] => i32, 1 tiles, 8 lanes,
        _mm256_setzero_si256, load(x) = _mm256_loadu_si256(x.cast()),
        splat(w) = _mm256_set1_epi32(packed(w)),
        add(sum, w, x) = _mm256_add_epi32(sum, _mm256_madd_epi16(w, x)),
        store(to, sum) = _mm256_storeu_si256(to.cast(), sum),
        plus(a, b) = a.wrapping_add(b)
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    const LENGTH: usize = 7;

    /// What one kind of numbers must give: sums in the order of the weights, added to what is there.
    fn wanted<W: Copy, S: Copy>(
        rows: &[W],
        columns: &[[W; LANES]],
        (stride, lanes): (usize, usize),
        (mut out, zero): (Vec<S>, S),
        (add, plus): (impl Fn(S, W, W) -> S, impl Fn(S, S) -> S),
    ) -> Vec<S> {
        for (row, weights) in rows.chunks(LENGTH).enumerate() {
            for lane in 0..lanes {
                let weights = &weights[1..][..columns.len()];
                let pairs = weights.iter().zip(columns);
                let sum = pairs.fold(zero, |sum, (&w, column)| add(sum, w, column[lane]));
                let out = &mut out[row * stride + lane];
                *out = plus(*out, sum);
            }
        }
        out
    }

    fn integer(at: usize) -> i32 {
        (at * 2_654_435_761 % 65_521) as i32 - 32_760
    }

    /// Every level gives the sums of the definition, floats to the last bit, and writes no other.
    #[test]
    fn levels_agree() {
        for (rows, depth, lanes) in [(1, 6, 16), (5, 3, 7), (15, 6, 16), (33, 6, 16), (6, 1, 1)] {
            let stride = 19;
            let count = rows * stride;
            let words: Vec<i32> = (0..rows * LENGTH).map(integer).collect();
            let columns: Vec<[i32; LANES]> = (0..depth)
                .map(|k| std::array::from_fn(|lane| integer(k * LANES + lane + 7)))
                .collect();
            let (before, longs) = (vec![integer(5); count], vec![i64::from(integer(5)); count]);
            let shape = (stride, lanes);
            let float = |x: i32| x as f32 / 1234.5;
            let [floats, float_before] =
                [&words, &before].map(|all| all.iter().map(|&x| float(x)).collect::<Vec<f32>>());
            let float_columns: Vec<_> = columns.iter().map(|column| column.map(float)).collect();
            let pair = |x: i32| [x as i16, (x >> 3) as i16];
            let pairs: Vec<_> = words.iter().map(|&x| pair(x)).collect();
            let pair_lanes: Vec<_> = columns.iter().map(|column| column.map(pair)).collect();

            let word_wanted = wanted(
                &words,
                &columns,
                shape,
                (before.clone(), 0),
                (
                    |sum: i32, w: i32, x| sum.wrapping_add(w.wrapping_mul(x)),
                    i32::wrapping_add,
                ),
            );
            let long_wanted = wanted(
                &words,
                &columns,
                shape,
                (longs.clone(), 0),
                (
                    |sum, w: i32, x: i32| sum + i64::from(w) * i64::from(x),
                    |a, b| a + b,
                ),
            );
            let float_wanted = wanted(
                &floats,
                &float_columns,
                shape,
                (float_before.clone(), 0.0),
                (|sum, w: f32, x: f32| w.mul_add(x, sum), |a, b| a + b),
            );
            let add = |sum: i32, [a, b]: [i16; 2], [x, y]: [i16; 2]| {
                let product =
                    (i32::from(a) * i32::from(x)).wrapping_add(i32::from(b) * i32::from(y));
                sum.wrapping_add(product)
            };
            let pair_wanted = wanted(
                &pairs,
                &pair_lanes,
                shape,
                (before.clone(), 0),
                (add, i32::wrapping_add),
            );
            for level in SimdLevel::available() {
                let mut found = before.clone();
                word_columns(
                    level,
                    packed(&words).block((0, rows), (1, depth)),
                    &columns,
                    to(&mut found, shape),
                );
                assert_eq!(found, word_wanted, "{level:?} {rows} {depth} {lanes}");
                let mut found = longs.clone();
                long_columns(
                    level,
                    packed(&words).block((0, rows), (1, depth)),
                    &columns,
                    to(&mut found, shape),
                );
                assert_eq!(found, long_wanted, "{level:?} {rows} {depth} {lanes}");
                let mut found = before.clone();
                pair_columns(
                    level,
                    packed(&pairs).block((0, rows), (1, depth)),
                    &pair_lanes,
                    to(&mut found, shape),
                );
                assert_eq!(found, pair_wanted, "{level:?} {rows} {depth} {lanes}");
                let mut found = float_before.clone();
                super::float_columns(
                    level,
                    packed(&floats).block((0, rows), (1, depth)),
                    &float_columns,
                    to(&mut found, shape),
                );
                let bits = |all: &[f32]| all.iter().map(|x| x.to_bits()).collect::<Vec<u32>>();
                assert_eq!(
                    bits(&found),
                    bits(&float_wanted),
                    "{level:?} {rows} {depth}"
                );
            }
        }
    }

    fn packed<W: Copy + Default>(weights: &[W]) -> Packed<W> {
        let rows = weights.len() / LENGTH;
        Packed::new(rows, LENGTH, |row| weights[row * LENGTH..].iter().copied())
    }

    fn to<S>(sums: &mut [S], (stride, lanes): (usize, usize)) -> Sums<'_, S> {
        Sums {
            sums,
            stride,
            lanes,
        }
    }
}
