//! Convolutions of plain numbers: what a network is trained and checked with.
//!
//! The windows of some positions are gathered side by side once, and all rows of weights of their
//! group pass over them. Where there are few positions, as in dense layers, each window is
//! multiplied with each row. A row that is alone in its group, as in depthwise layers, passes over
//! the lines of the input.

mod simd;

use pronghorn_ring::SimdLevel;
use rayon::prelude::*;

use self::simd::{LANES, Packed, Planes, ROWS, Rows, Sums};
use crate::{geometry::ConvGeometry, layout, simd as inner};

/// Weights of each row that meet columns at a time: the columns of [`LANES`] positions stay in a
/// core's first cache.
const DEPTH: usize = 256;

/// Numbers of columns that are gathered at a time: they stay in its second cache.
const GATHERED: usize = 1 << 16;

/// With fewer positions most lanes would be empty.
const FEW: usize = LANES / 2;

/// Rows whose blocks meet these: they stay there, too.
const AT_A_TIME: usize = 20 * ROWS;

/// Rows of weights that a thread multiplies with windows at a time.
const PART: usize = 64;

/// Numbers of a network, and how their products are summed.
pub(crate) trait Numbers {
    /// Of weights and of inputs.
    type Number: Copy + Default + Send + Sync;
    type Sum: Copy + Default + Send;
    /// As many numbers of a window as one lane holds.
    type Lane: Copy + Default + Send + Sync;

    /// Numbers of a lane.
    const IN_LANE: usize;

    /// Sets one number of a lane.
    fn set(lane: &mut Self::Lane, at: usize, number: Self::Number);

    /// A lane of at most as many numbers.
    fn lane(numbers: &[Self::Number]) -> Self::Lane {
        let mut lane = Self::Lane::default();
        let places = numbers.iter().enumerate();
        places.for_each(|(at, &number)| Self::set(&mut lane, at, number));
        lane
    }

    /// Adds products of rows and columns.
    fn columns(
        rows: Rows<'_, Self::Lane>,
        columns: &[[Self::Lane; LANES]],
        sums: Sums<'_, Self::Sum>,
    );

    /// `sums[row][window] = rows[row] . windows[window]`, of `length` numbers each.
    fn windows(
        rows: &[Self::Number],
        windows: &[Self::Number],
        length: usize,
        sums: &mut [Self::Sum],
    );

    /// Adds the products of a row of weights with all windows of its group's channels `x`, in the
    /// order in which [`Numbers::columns`] adds those of one block.
    fn lines(
        planes: &Planes<'_>,
        weights: &[Self::Number],
        x: &[Self::Number],
        sums: &mut [Self::Sum],
    );
}

/// Floats.
pub(crate) struct Floats;

impl Numbers for Floats {
    type Number = f32;
    type Sum = f32;
    type Lane = f32;

    const IN_LANE: usize = 1;

    fn set(lane: &mut f32, _: usize, number: f32) {
        *lane = number;
    }

    fn columns(rows: Rows<'_, f32>, columns: &[[f32; LANES]], sums: Sums<'_, f32>) {
        simd::float_columns(SimdLevel::detect(), rows, columns, sums);
    }

    fn windows(rows: &[f32], windows: &[f32], length: usize, sums: &mut [f32]) {
        inner::float_products(SimdLevel::detect(), rows, windows, length, sums);
    }

    fn lines(planes: &Planes<'_>, weights: &[f32], x: &[f32], sums: &mut [f32]) {
        simd::float_lines(SimdLevel::detect(), planes, weights, x, sums);
    }
}

/// Integers of 16 bits, summed modulo 2^32.
pub(crate) struct Shorts;

impl Numbers for Shorts {
    type Number = i16;
    type Sum = i32;
    type Lane = [i16; 2];

    const IN_LANE: usize = 2;

    fn set(lane: &mut [i16; 2], at: usize, number: i16) {
        lane[at] = number;
    }

    fn columns(rows: Rows<'_, [i16; 2]>, columns: &[[[i16; 2]; LANES]], sums: Sums<'_, i32>) {
        simd::pair_columns(SimdLevel::detect(), rows, columns, sums);
    }

    fn windows(rows: &[i16], windows: &[i16], length: usize, sums: &mut [i32]) {
        inner::integer_products(SimdLevel::detect(), rows, windows, length, sums);
    }

    fn lines(planes: &Planes<'_>, weights: &[i16], x: &[i16], sums: &mut [i32]) {
        simd::short_lines(SimdLevel::detect(), planes, weights, x, sums);
    }
}

/// Integers of 32 bits, summed modulo 2^32.
pub(crate) struct Words;

impl Numbers for Words {
    type Number = i32;
    type Sum = i32;
    type Lane = i32;

    const IN_LANE: usize = 1;

    fn set(lane: &mut i32, _: usize, number: i32) {
        *lane = number;
    }

    fn columns(rows: Rows<'_, i32>, columns: &[[i32; LANES]], sums: Sums<'_, i32>) {
        simd::word_columns(simd::level(), rows, columns, sums);
    }

    fn windows(rows: &[i32], windows: &[i32], length: usize, sums: &mut [i32]) {
        each_window(rows, windows, length, sums, |w, x| {
            let products = w.iter().zip(x).map(|(&w, &x)| w.wrapping_mul(x));
            products.fold(0, i32::wrapping_add)
        });
    }

    fn lines(planes: &Planes<'_>, weights: &[i32], x: &[i32], sums: &mut [i32]) {
        simd::word_lines(SimdLevel::detect(), planes, weights, x, sums);
    }
}

/// Integers of 32 bits, summed in 64 bits.
pub(crate) struct Longs;

impl Numbers for Longs {
    type Number = i32;
    type Sum = i64;
    type Lane = i32;

    const IN_LANE: usize = 1;

    fn set(lane: &mut i32, _: usize, number: i32) {
        *lane = number;
    }

    fn columns(rows: Rows<'_, i32>, columns: &[[i32; LANES]], sums: Sums<'_, i64>) {
        simd::long_columns(simd::level(), rows, columns, sums);
    }

    fn windows(rows: &[i32], windows: &[i32], length: usize, sums: &mut [i64]) {
        each_window(rows, windows, length, sums, |w, x| {
            let products = w.iter().zip(x);
            products.map(|(&w, &x)| i64::from(w) * i64::from(x)).sum()
        });
    }

    fn lines(planes: &Planes<'_>, weights: &[i32], x: &[i32], sums: &mut [i64]) {
        simd::long_lines(SimdLevel::detect(), planes, weights, x, sums);
    }
}

/// The product of each row and each window.
fn each_window<T, S>(
    rows: &[T],
    windows: &[T],
    length: usize,
    sums: &mut [S],
    product: impl Fn(&[T], &[T]) -> S,
) {
    let pairs = rows.chunks_exact(length).flat_map(|row| {
        windows
            .chunks_exact(length)
            .map(move |window| (row, window))
    });
    for (sum, (row, window)) in sums.iter_mut().zip(pairs) {
        *sum = product(row, window);
    }
}

/// `out[o][position] = weights[o] . window(position)`, with weights made ready for any number of
/// images.
pub(crate) struct Convolution<'a, N: Numbers> {
    geometry: ConvGeometry,
    /// Height and width of the result.
    output: [usize; 2],
    weights: &'a [N::Number],
    /// Whether each row of weights is alone in its group, and passes over lines.
    by_lines: bool,
    /// Of each group; empty where there are few positions, or lines.
    packed: Vec<Packed<N::Lane>>,
}

impl<'a, N: Numbers> Convolution<'a, N> {
    /// Of weights `(out_channels, in_channels/groups * kernel)`, row-major. The geometry is valid.
    pub fn new(geometry: &ConvGeometry, weights: &'a [N::Number]) -> Self {
        let Ok(output) = geometry.output() else {
            unreachable!("the graph was validated")
        };
        let (length, rows) = (geometry.row_len(), geometry.out_channels / geometry.groups);
        let pack = |weights: &'a [N::Number]| {
            let row = |row: usize| {
                let numbers = weights[row * length..][..length].chunks(N::IN_LANE);
                numbers.map(N::lane)
            };
            Packed::new(rows, length.div_ceil(N::IN_LANE), row)
        };
        let has_many = output[0] * output[1] >= FEW;
        // Of more than a block the order of sums would be another one.
        let by_lines = has_many && rows == 1 && length.div_ceil(N::IN_LANE) <= DEPTH;
        let groups = (has_many && !by_lines).then(|| weights.chunks_exact(rows * length));
        Self {
            geometry: geometry.clone(),
            output,
            weights,
            by_lines,
            packed: groups.into_iter().flatten().map(pack).collect(),
        }
    }

    /// The results of images.
    pub fn of<X: AsRef<[N::Number]> + Sync>(&self, images: &[X]) -> Vec<Vec<N::Sum>> {
        if images.is_empty() {
            return Vec::new();
        }
        let each = images.par_iter();
        match (self.by_lines, self.packed.is_empty()) {
            (true, _) => each.map(|x| self.by_lines(x.as_ref())).collect(),
            (_, true) => self.by_windows(images),
            (_, false) => each.map(|x| self.by_columns(x.as_ref())).collect(),
        }
    }

    fn positions(&self) -> usize {
        self.output[0] * self.output[1]
    }

    /// Rows of weights of a group.
    fn rows(&self) -> usize {
        self.geometry.out_channels / self.geometry.groups
    }

    /// Weights are read once for all images.
    fn by_windows<X: AsRef<[N::Number]>>(&self, images: &[X]) -> Vec<Vec<N::Sum>> {
        let (positions, length, rows) = (self.positions(), self.geometry.row_len(), self.rows());
        let count = images.len() * positions;
        let sums = vec![N::Sum::default(); self.geometry.out_channels * positions];
        let mut out = vec![sums; images.len()];
        let mut windows = vec![N::Number::default(); count * length];
        let mut sums = vec![N::Sum::default(); rows * count];
        for (group, weights) in self.weights.chunks_exact(rows * length).enumerate() {
            for (at, window) in windows.chunks_exact_mut(length).enumerate() {
                let (x, position) = (images[at / positions].as_ref(), at % positions);
                let place = [position / self.output[1], position % self.output[1]];
                layout::patch(&self.geometry, group, place, x, window);
            }
            let parts = weights.par_chunks(PART * length);
            let parts = parts.zip(sums.par_chunks_mut(PART * count));
            parts.for_each(|(weights, sums)| N::windows(weights, &windows, length, sums));
            for (image, out) in out.iter_mut().enumerate() {
                let out = out.chunks_exact_mut(positions).skip(group * rows);
                for (out, sums) in out.zip(sums.chunks_exact(count)) {
                    out.copy_from_slice(&sums[image * positions..][..positions]);
                }
            }
        }
        out
    }

    fn by_lines(&self, x: &[N::Number]) -> Vec<N::Sum> {
        let (positions, length) = (self.positions(), self.geometry.row_len());
        let planes = Planes {
            window: &self.geometry.window,
            input: self.geometry.input,
            output: self.output,
        };
        let mut out = vec![N::Sum::default(); self.geometry.out_channels * positions];
        let groups = self.weights.chunks_exact(length);
        let inputs = x.chunks_exact(x.len() / self.geometry.groups);
        for ((weights, x), sums) in groups.zip(inputs).zip(out.chunks_exact_mut(positions)) {
            N::lines(&planes, weights, x, sums);
        }
        out
    }

    fn by_columns(&self, x: &[N::Number]) -> Vec<N::Sum> {
        let (positions, rows) = (self.positions(), self.rows());
        let deep = self.geometry.row_len().div_ceil(N::IN_LANE);
        let most = (GATHERED / deep.min(DEPTH)).next_multiple_of(LANES);
        let mut out = vec![N::Sum::default(); self.geometry.out_channels * positions];
        let mut columns = Columns::<N>::new(&self.geometry, self.output);
        let groups = self
            .packed
            .iter()
            .zip(out.chunks_exact_mut(rows * positions));
        for (group, (weights, out)) in groups.enumerate() {
            for start in (0..positions).step_by(most) {
                let count = most.min(positions - start);
                for from in (0..deep).step_by(DEPTH) {
                    let block = DEPTH.min(deep - from);
                    columns.gather(group, (from, block), (start, count), x);
                    for first in (0..rows).step_by(AT_A_TIME) {
                        let out = &mut out[first * positions + start..];
                        for (at, columns) in columns.lanes.chunks_exact(block).enumerate() {
                            let rows = weights.block((first, AT_A_TIME), (from, block));
                            let sums = Sums {
                                sums: &mut out[at * LANES..],
                                stride: positions,
                                lanes: LANES.min(count - at * LANES),
                            };
                            N::columns(rows, columns, sums);
                        }
                    }
                }
            }
        }
        out
    }
}

/// Windows of positions side by side: for each [`LANES`] of them a block of columns.
struct Columns<'a, N: Numbers> {
    geometry: &'a ConvGeometry,
    /// Height and width of the result.
    output: [usize; 2],
    lanes: Vec<[N::Lane; LANES]>,
    /// One number of the window of each position.
    line: Vec<N::Number>,
}

impl<'a, N: Numbers> Columns<'a, N> {
    fn new(geometry: &'a ConvGeometry, output: [usize; 2]) -> Self {
        Self {
            geometry,
            output,
            lanes: Vec::new(),
            line: Vec::new(),
        }
    }

    /// Gathers `block` lanes from lane `from` on of the windows of `count` positions from `start`
    /// on. What is beyond a window or the positions is zero.
    fn gather(
        &mut self,
        group: usize,
        (from, block): (usize, usize),
        (start, count): (usize, usize),
        x: &[N::Number],
    ) {
        let length = self.geometry.row_len();
        let panels = count.div_ceil(LANES);
        self.lanes.clear();
        let empty = [N::Lane::default(); LANES];
        self.lanes.resize(panels * block, empty);
        self.line.clear();
        self.line.resize(panels * LANES, N::Number::default());
        let numbers = from * N::IN_LANE..((from + block) * N::IN_LANE).min(length);
        for number in numbers {
            self.fill_line(group, number, (start, count), x);
            let (at, place) = (number / N::IN_LANE - from, number % N::IN_LANE);
            let panels = self.lanes.chunks_exact_mut(block);
            for (panel, numbers) in panels.zip(self.line.chunks_exact(LANES)) {
                for (lane, &number) in panel[at].iter_mut().zip(numbers) {
                    N::set(lane, place, number);
                }
            }
        }
    }

    /// One number of the window of each position, zero where it is padding.
    fn fill_line(
        &mut self,
        group: usize,
        number: usize,
        (start, count): (usize, usize),
        x: &[N::Number],
    ) {
        let ConvGeometry { window, input, .. } = self.geometry;
        let [height, width] = *input;
        let taps = window.kernel[0] * window.kernel[1];
        let channels = self.geometry.in_channels / self.geometry.groups;
        let (channel, tap) = (group * channels + number / taps, number % taps);
        let tap = [tap / window.kernel[1], tap % window.kernel[1]];
        let plane = &x[channel * height * width..][..height * width];
        let [rows, columns] =
            [0, 1].map(|axis| window.places(axis, tap[axis], input[axis], self.output[axis]));
        let mut at = start;
        while at < start + count {
            let (row, first) = (at / self.output[1], at % self.output[1]);
            let end = self.output[1].min(first + start + count - at);
            let line = &mut self.line[at - start..][..end - first];
            at += end - first;
            let inside = columns.start.clamp(first, end)..columns.end.clamp(first, end);
            if !rows.contains(&row) || inside.is_empty() {
                line.fill(N::Number::default());
                continue;
            }
            let (before, after) = (inside.start - first, inside.end - first);
            line[..before].fill(N::Number::default());
            line[after..].fill(N::Number::default());
            let source = window.index(0, row, tap[0]) * width;
            let source = &plane[source + window.index(1, inside.start, tap[1])..];
            let line = &mut line[before..after];
            match window.stride[1] {
                1 => line.copy_from_slice(&source[..line.len()]),
                stride => {
                    let source = source.iter().step_by(stride);
                    line.iter_mut().zip(source).for_each(|(x, &y)| *x = y);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::geometry::Window;

    fn convolve<N: Numbers<Sum: PartialEq>>(
        geometry: &ConvGeometry,
        weights: &[N::Number],
        x: &[N::Number],
    ) -> Vec<N::Sum> {
        // Beside another image: each has its own result.
        let none = vec![N::Number::default(); x.len()];
        let mut found = Convolution::<N>::new(geometry, weights).of(&[x, &none]);
        let second = Convolution::<N>::new(geometry, weights).of(&[&none, x]);
        assert!(found[0] == second[1] && found[1] == second[0]);
        found.swap_remove(0)
    }

    /// All sums of a convolution by its definition: one output after the other.
    fn defined(geometry: &ConvGeometry, weights: &[i64], x: &[i64]) -> Vec<i64> {
        let [height, width] = geometry.output().expect("it is valid");
        let (length, positions) = (geometry.row_len(), height * width);
        let mut patch = vec![0; length];
        let sum = |at: usize| {
            let (o, position) = (at / positions, at % positions);
            let group = o / (geometry.out_channels / geometry.groups);
            let place = [position / width, position % width];
            layout::patch(geometry, group, place, x, &mut patch);
            let row = &weights[o * length..][..length];
            std::iter::zip(row, &patch).map(|(w, x)| w * x).sum()
        };
        (0..geometry.out_channels * positions).map(sum).collect()
    }

    /// Bit for bit, at every level.
    #[test]
    fn lines_add_in_the_order_of_columns() {
        let numbers = |count: usize, factor: u32| -> Vec<f32> {
            let number = |at: u32| at.wrapping_mul(factor) as i32 as f32 / 1e9;
            (1..=count as u32).map(number).collect()
        };
        for (stride, dilation, padding) in [(1, 1, 1), (2, 1, 1), (1, 2, 3), (3, 1, 0)] {
            let geometry = ConvGeometry {
                in_channels: 6,
                out_channels: 3,
                input: [13, 11],
                window: Window {
                    kernel: [3, 3],
                    stride: [stride; 2],
                    dilation: [dilation; 2],
                    padding: [padding; 4],
                },
                groups: 3,
            };
            let weights = numbers(3 * 18, 0x9e37_79b9);
            let x = numbers(6 * 13 * 11, 0x85eb_ca6b);
            let mut convolution = Convolution::<Floats>::new(&geometry, &weights);
            assert!(convolution.by_lines);
            let lines = convolution.by_lines(&x);
            let pack = |row: &[f32]| Packed::new(1, 18, |_| row.iter().copied());
            convolution.packed = weights.chunks(18).map(pack).collect();
            assert_eq!(convolution.by_columns(&x), lines);
            let planes = Planes {
                window: &geometry.window,
                input: geometry.input,
                output: convolution.output,
            };
            let positions = convolution.positions();
            for level in SimdLevel::available() {
                let mut sums = vec![0.0; positions];
                simd::float_lines(level, &planes, &weights[..18], &x[..2 * 13 * 11], &mut sums);
                assert_eq!(sums, lines[..positions], "{level:?}");
            }
        }
    }

    /// Against the definition, for all kinds of numbers.
    #[test]
    fn convolutions_are_what_they_are_defined_as() {
        let window = |kernel, stride, dilation, padding| Window {
            kernel,
            stride,
            dilation,
            padding,
        };
        let cases = [
            (1, 1, 1, [1, 1], Window::plain([1, 1])),
            (
                6,
                4,
                2,
                [5, 7],
                window([3, 2], [2, 1], [1, 2], [1, 0, 2, 1]),
            ),
            (
                8,
                8,
                8,
                [9, 9],
                window([3, 3], [1, 1], [1, 1], [1, 1, 1, 1]),
            ),
            (
                3,
                5,
                1,
                [40, 33],
                window([5, 5], [2, 2], [1, 1], [2, 2, 2, 2]),
            ),
            (300, 3, 1, [1, 1], Window::plain([1, 1])),
            (2, 2, 1, [300, 200], Window::plain([2, 2])),
            // Several blocks of a window, the last one odd, and several of positions.
            (
                67,
                9,
                1,
                [21, 17],
                window([3, 3], [1, 1], [1, 1], [1, 1, 1, 1]),
            ),
            // More rows than meet columns at a time.
            (3, 131, 1, [5, 5], Window::plain([2, 2])),
            (2, 150, 1, [2, 2], Window::plain([1, 1])),
            // Fewer positions than lanes.
            (4, 7, 1, [3, 4], Window::plain([1, 1])),
            // A kernel larger than the image.
            (
                2,
                3,
                1,
                [3, 4],
                window([5, 7], [1, 1], [1, 1], [2, 3, 2, 3]),
            ),
        ];
        for (in_channels, out_channels, groups, input, window) in cases {
            let geometry = ConvGeometry {
                in_channels,
                out_channels,
                input,
                window,
                groups,
            };
            let number = |at: usize| (at * 40_503 % 257) as i64 - 128;
            let weights: Vec<i64> = (0..out_channels * geometry.row_len()).map(number).collect();
            let x = (0..in_channels * input[0] * input[1]).map(|at| number(at + 3));
            let x: Vec<i64> = x.collect();
            let wanted = defined(&geometry, &weights, &x);
            let convolved = convolve::<Shorts>(&geometry, &shorts(&weights), &shorts(&x));
            let found: Vec<i64> = convolved.into_iter().map(i64::from).collect();
            assert_eq!(found, wanted, "{geometry:?}");
            let words = |numbers: &[i64]| numbers.iter().map(|&x| x as i32).collect::<Vec<_>>();
            let convolved = convolve::<Words>(&geometry, &words(&weights), &words(&x));
            let found: Vec<i64> = convolved.into_iter().map(i64::from).collect();
            assert_eq!(found, wanted, "{geometry:?}");
            let found = convolve::<Longs>(&geometry, &words(&weights), &words(&x));
            assert_eq!(found, wanted, "{geometry:?}");
            // Sums of these are exact in floats.
            let floats = |numbers: &[i64]| numbers.iter().map(|&x| x as f32).collect::<Vec<_>>();
            let convolved = convolve::<Floats>(&geometry, &floats(&weights), &floats(&x));
            let found: Vec<i64> = convolved.into_iter().map(|x| x as i64).collect();
            assert_eq!(found, wanted, "{geometry:?}");
        }
    }

    fn shorts(numbers: &[i64]) -> Vec<i16> {
        numbers.iter().map(|&x| x as i16).collect()
    }
}
