//! Sizes of two-dimensional windows: convolutions and poolings.

use std::ops::Range;

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// Largest size of one dimension: height, width, channels, kernel, stride, padding.
pub const MAX_SIZE: usize = 1 << 24;

/// Most elements of one value, and most weights of one layer.
pub const MAX_ELEMENTS: usize = 1 << 28;

/// Why sizes do not go together. All sizes are checked without overflow, however hostile.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum GeometryError {
    /// A size that is zero or beyond [`MAX_SIZE`].
    #[error("{field} is {value}; it must be from {least} to {MAX_SIZE}")]
    Size {
        /// The size.
        field: &'static str,
        /// Its value.
        value: usize,
        /// The smallest allowed.
        least: usize,
    },
    /// The dilated kernel does not fit into the padded input.
    #[error(
        "the kernel spans {span} of {axis}, but the input has only {padded} with its padding: \
         use a larger input or a smaller kernel"
    )]
    KernelTooLarge {
        /// `height` or `width`.
        axis: &'static str,
        /// What the dilated kernel covers.
        span: usize,
        /// Input size plus padding.
        padded: usize,
    },
    /// A window of a pooling lies in the padding altogether.
    #[error(
        "a pooling window at {axis} position {position} holds nothing but padding: pad less than \
         the kernel covers"
    )]
    EmptyWindow {
        /// `height` or `width`.
        axis: &'static str,
        /// Output position.
        position: usize,
    },
    /// Groups that do not divide the channels.
    #[error("{groups} groups do not divide {in_channels} input and {out_channels} output channels")]
    Groups {
        /// Groups.
        groups: usize,
        /// Input channels.
        in_channels: usize,
        /// Output channels.
        out_channels: usize,
    },
    /// Too many elements or weights.
    #[error("the {what} would have more than {MAX_ELEMENTS} elements")]
    TooManyElements {
        /// Input, output or weights.
        what: &'static str,
    },
}

/// Names of the two axes in messages.
const AXES: [&str; 2] = ["height", "width"];

/// A window sliding over a `(channels, height, width)` tensor.
///
/// Output height is `(height + top + bottom - (dilation_h*(kernel_h-1)+1)) / stride_h + 1`,
/// width likewise (floor division, ONNX `ceil_mode = 0`; the importer turns `ceil_mode = 1` into
/// explicit padding).
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Window {
    /// Kernel height and width.
    pub kernel: [usize; 2],
    /// Stride down and right.
    pub stride: [usize; 2],
    /// Dilation down and right.
    pub dilation: [usize; 2],
    /// Padding: top, left, bottom, right.
    pub padding: [usize; 4],
}

impl Window {
    /// A kernel with stride and dilation 1 and no padding.
    pub fn plain(kernel: [usize; 2]) -> Self {
        Self {
            kernel,
            stride: [1; 2],
            dilation: [1; 2],
            padding: [0; 4],
        }
    }

    /// True if it is 1x1 at every position: each element is its own window.
    pub fn is_point(&self) -> bool {
        *self
            == Self {
                dilation: self.dilation,
                ..Self::plain([1; 2])
            }
    }

    /// Padding before (`top` or `left`) and after of `axis` (0 down, 1 right).
    pub fn padding_of(&self, axis: usize) -> [usize; 2] {
        [self.padding[axis], self.padding[axis + 2]]
    }

    /// Output height and width over an input of that height and width.
    ///
    /// # Errors
    /// When a size is zero or too large, or the kernel exceeds the padded input.
    pub fn output(&self, input: [usize; 2]) -> Result<[usize; 2], GeometryError> {
        let mut output = [0; 2];
        for axis in 0..2 {
            check("input size", input[axis], 1)?;
            check("kernel", self.kernel[axis], 1)?;
            check("stride", self.stride[axis], 1)?;
            check("dilation", self.dilation[axis], 1)?;
            let [before, after] = self.padding_of(axis);
            let padded = input[axis] + check("padding", before, 0)? + check("padding", after, 0)?;
            let span = self.dilation[axis]
                .saturating_mul(self.kernel[axis] - 1)
                .saturating_add(1);
            let room = padded
                .checked_sub(span)
                .ok_or(GeometryError::KernelTooLarge {
                    axis: AXES[axis],
                    span,
                    padded,
                })?;
            output[axis] = room / self.stride[axis] + 1;
        }
        Ok(output)
    }

    /// As [`Window::output`] for a pooling, whose every window must hold at least one element.
    ///
    /// # Errors
    /// As there, or when a window lies in the padding altogether.
    pub fn pool_output(&self, input: [usize; 2]) -> Result<[usize; 2], GeometryError> {
        let output = self.output(input)?;
        for axis in 0..2 {
            let empty = (0..output[axis]).find(|&at| self.taps(axis, at, input[axis]).is_empty());
            if let Some(position) = empty {
                return Err(GeometryError::EmptyWindow {
                    axis: AXES[axis],
                    position,
                });
            }
        }
        Ok(output)
    }

    /// Kernel indices along `axis` (0 down, 1 right) that do not fall into padding, for the window
    /// of output position `at` over an input of `size`. For sizes that [`Window::output`] accepts.
    pub fn taps(&self, axis: usize, at: usize, size: usize) -> Range<usize> {
        let (start, before) = (at * self.stride[axis], self.padding[axis]);
        let first = before.saturating_sub(start).div_ceil(self.dilation[axis]);
        let end = (size + before)
            .saturating_sub(start)
            .div_ceil(self.dilation[axis]);
        first..end.min(self.kernel[axis]).max(first)
    }

    /// The input index under kernel index `tap`, one of [`Window::taps`], of output position `at`.
    pub fn index(&self, axis: usize, at: usize, tap: usize) -> usize {
        at * self.stride[axis] + tap * self.dilation[axis] - self.padding[axis]
    }

    /// The input rows from the first that output rows `rows` read to the last, of an input of
    /// `height` rows. For rows of which none reads padding alone.
    pub fn reads(&self, rows: Range<usize>, height: usize) -> Range<usize> {
        let above = self.padding[0];
        let [first, end] = self.reach(rows);
        first.saturating_sub(above)..end.saturating_sub(above).min(height)
    }

    /// Where the windows of output rows begin and end, padding above counted.
    fn reach(&self, rows: Range<usize>) -> [usize; 2] {
        let last = rows.end.saturating_sub(1).max(rows.start) * self.stride[0];
        let span = (self.kernel[0] - 1) * self.dilation[0] + 1;
        [rows.start * self.stride[0], last + span]
    }

    /// The input rows that output rows `rows` read, of an input of `height` rows, and the window
    /// over these alone; `None` where one of the rows reads padding alone. For sizes that
    /// [`Window::output`] accepts, and rows that exist. Takes time proportional to the rows.
    pub fn band(&self, rows: Range<usize>, height: usize) -> Option<(Range<usize>, Self)> {
        if rows.clone().any(|at| self.taps(0, at, height).is_empty()) {
            return None;
        }
        let [first, end] = self.reach(rows.clone());
        let (above, read) = (self.padding[0], self.reads(rows, height));
        let mut window = self.clone();
        window.padding[0] = above.saturating_sub(first);
        window.padding[2] = end.saturating_sub(above + height);
        (!read.is_empty()).then_some((read, window))
    }

    /// Output positions along `axis` whose window has an input of `size` under kernel index `tap`, of
    /// `output` positions: those that have it among their [`Window::taps`].
    pub fn places(&self, axis: usize, tap: usize, size: usize, output: usize) -> Range<usize> {
        let (offset, before) = (tap * self.dilation[axis], self.padding[axis]);
        let least = |index: usize| {
            (index + before)
                .saturating_sub(offset)
                .div_ceil(self.stride[axis])
        };
        let end = least(size).min(output);
        least(0).min(end)..end
    }

    /// Calls `each` with every output position of a plane and every input index in its window,
    /// padding left out. Those of one output come in row-major order of the kernel. For sizes of
    /// [`Window::output`].
    pub fn visit(&self, input: [usize; 2], output: [usize; 2], mut each: impl FnMut(usize, usize)) {
        // A kernel may be far larger than the input: taps that meet padding alone are left out.
        let met = |axis: usize| {
            let taps = (0..output[axis]).map(move |at| self.taps(axis, at, input[axis]));
            let ends = |(first, end): (usize, usize), taps: Range<usize>| {
                (first.min(taps.start), end.max(taps.end))
            };
            let (first, end) = taps
                .filter(|taps| !taps.is_empty())
                .fold((usize::MAX, 0), ends);
            first..end
        };
        let columns = met(1);
        for row in met(0) {
            for column in columns.clone() {
                let places = [(0, row), (1, column)]
                    .map(|(axis, tap)| self.places(axis, tap, input[axis], output[axis]));
                let [rows, columns] = places;
                for y in rows {
                    let (to, from) = (y * output[1], self.index(0, y, row) * input[1]);
                    for x in columns.clone() {
                        each(to + x, from + self.index(1, x, column));
                    }
                }
            }
        }
    }

    /// Input elements in the window of output `element` of a pool over `(channels, height, width)`,
    /// for a size and an `output` of [`Window::pool_output`].
    pub fn pooled(
        &self,
        input: [usize; 2],
        output: [usize; 2],
        element: usize,
    ) -> impl Iterator<Item = usize> + use<'_> {
        let positions = output[0] * output[1];
        let (channel, position) = (element / positions, element % positions);
        let at = [position / output[1], position % output[1]];
        let first = channel * input[0] * input[1];
        self.positions(input, at).map(move |index| first + index)
    }

    /// Input indices `y * width + x` in the window of output position `at`, padding left out, in
    /// row-major order of the kernel.
    pub fn positions(
        &self,
        input: [usize; 2],
        at: [usize; 2],
    ) -> impl Iterator<Item = usize> + use<'_> {
        let columns = self.taps(1, at[1], input[1]);
        self.taps(0, at[0], input[0]).flat_map(move |row| {
            let start = self.index(0, at[0], row) * input[1];
            columns
                .clone()
                .map(move |column| start + self.index(1, at[1], column))
        })
    }
}

/// A grouped convolution from `(in_channels, height, width)` to
/// `(out_channels, out_height, out_width)`, without weights. A dense layer is one with
/// `height = width = 1`; a multiplication by a constant a channel is one with a 1x1 kernel and
/// `groups = in_channels`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ConvGeometry {
    /// Input channels.
    pub in_channels: usize,
    /// Output channels.
    pub out_channels: usize,
    /// Input height and width.
    pub input: [usize; 2],
    /// The sliding window.
    pub window: Window,
    /// Groups; divides both channel counts.
    pub groups: usize,
}

impl ConvGeometry {
    /// A dense layer.
    pub fn dense(inputs: usize, outputs: usize) -> Self {
        Self {
            in_channels: inputs,
            out_channels: outputs,
            input: [1; 2],
            window: Window::plain([1; 2]),
            groups: 1,
        }
    }

    /// One factor a channel.
    pub fn per_channel(channels: usize, input: [usize; 2]) -> Self {
        let window = Window::plain([1; 2]);
        Self {
            in_channels: channels,
            out_channels: channels,
            input,
            window,
            groups: channels,
        }
    }

    /// The same map at one position, of a layer that maps each position alike and alone.
    pub fn at_a_position(&self) -> Option<Self> {
        self.window.is_point().then(|| Self {
            input: [1; 2],
            ..self.clone()
        })
    }

    /// Checks all sizes.
    ///
    /// # Errors
    /// When one is zero or too large, groups do not divide the channels, the kernel exceeds the
    /// input, or there would be too many elements or weights.
    pub fn validate(&self) -> Result<(), GeometryError> {
        self.output().map(|_| ())
    }

    /// Output height and width; checks all sizes as [`ConvGeometry::validate`] does.
    ///
    /// # Errors
    /// As there.
    pub fn output(&self) -> Result<[usize; 2], GeometryError> {
        let Self {
            in_channels,
            out_channels,
            groups,
            ..
        } = *self;
        check("in_channels", in_channels, 1)?;
        check("out_channels", out_channels, 1)?;
        check("groups", groups, 1)?;
        if in_channels % groups != 0 || out_channels % groups != 0 {
            return Err(GeometryError::Groups {
                groups,
                in_channels,
                out_channels,
            });
        }
        let output = self.window.output(self.input)?;
        let [kernel_h, kernel_w] = self.window.kernel;
        count("input", &[in_channels, self.input[0], self.input[1]])?;
        count("output", &[out_channels, output[0], output[1]])?;
        count(
            "layer's weights",
            &[out_channels, in_channels / groups, kernel_h, kernel_w],
        )?;
        Ok(output)
    }

    /// The input rows that output rows `rows` read, and the convolution over these alone; `None`
    /// where one of the rows reads padding alone. For a geometry that is valid, and rows that exist.
    pub fn band(&self, rows: Range<usize>) -> Option<(Range<usize>, Self)> {
        let (read, window) = self.window.band(rows, self.input[0])?;
        let geometry = Self {
            input: [read.len(), self.input[1]],
            window,
            ..self.clone()
        };
        Some((read, geometry))
    }

    /// Weights of one output channel. For a geometry that is valid.
    pub fn row_len(&self) -> usize {
        self.in_channels / self.groups * self.window.kernel[0] * self.window.kernel[1]
    }

    /// Weights of all output channels. For a geometry that is valid.
    pub fn weights_len(&self) -> usize {
        self.row_len() * self.out_channels
    }

    /// Multiplications of one image, those by padding included; 0 for a geometry that is not valid.
    pub fn multiply_adds(&self) -> u64 {
        self.output().map_or(0, |[height, width]| {
            (height * width) as u64 * self.weights_len() as u64
        })
    }
}

/// The size if it is from `least` to [`MAX_SIZE`].
fn check(field: &'static str, value: usize, least: usize) -> Result<usize, GeometryError> {
    if (least..=MAX_SIZE).contains(&value) {
        return Ok(value);
    }
    Err(GeometryError::Size {
        field,
        value,
        least,
    })
}

/// The product of sizes if it is at most [`MAX_ELEMENTS`].
pub(crate) fn count(what: &'static str, sizes: &[usize]) -> Result<usize, GeometryError> {
    let product = sizes
        .iter()
        .try_fold(1usize, |product, &size| product.checked_mul(size));
    product
        .filter(|&product| product <= MAX_ELEMENTS)
        .ok_or(GeometryError::TooManyElements { what })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn known_sizes() {
        let mut window = Window {
            stride: [2, 2],
            padding: [1; 4],
            ..Window::plain([5, 5])
        };
        assert_eq!(window.output([28, 28]), Ok([13, 13]));
        window.dilation = [3, 1];
        assert_eq!(window.output([28, 28]), Ok([9, 13]));
        assert_eq!(ConvGeometry::dense(845, 100).output(), Ok([1, 1]));
        assert_eq!(ConvGeometry::dense(845, 100).multiply_adds(), 84_500);
    }

    #[test]
    fn a_window_in_the_padding_is_no_pooling() {
        let window = Window {
            padding: [2, 0, 0, 0],
            ..Window::plain([2, 1])
        };
        assert_eq!(window.output([4, 1]), Ok([5, 1]));
        let error = window.pool_output([4, 1]).unwrap_err();
        assert_eq!(
            error,
            GeometryError::EmptyWindow {
                axis: "height",
                position: 0
            }
        );
    }

    /// Taps beyond the input, 2^40 of them, take no time.
    #[test]
    fn a_huge_kernel_visits_what_is_inside() {
        let side = 1 << 20;
        let window = Window {
            padding: [side - 1, side - 1, 0, 0],
            ..Window::plain([side, side])
        };
        assert_eq!(window.pool_output([1, 1]), Ok([1, 1]));
        let mut found = Vec::new();
        window.visit([1, 1], [1, 1], |to, from| found.push((to, from)));
        assert_eq!(found, [(0, 0)]);
    }

    #[test]
    fn groups_divide_channels() {
        let geometry = ConvGeometry {
            groups: 2,
            ..ConvGeometry::dense(4, 3)
        };
        assert!(matches!(
            geometry.validate(),
            Err(GeometryError::Groups { .. })
        ));
    }

    /// A window of one column.
    fn down(kernel: usize, stride: usize, dilation: usize, [before, after]: [usize; 2]) -> Window {
        Window {
            kernel: [kernel, 1],
            stride: [stride, 1],
            dilation: [dilation, 1],
            padding: [before, 0, after, 0],
        }
    }

    fn any_size() -> impl Strategy<Value = usize> {
        prop_oneof![0..4usize, any::<usize>(), Just(MAX_SIZE)]
    }

    proptest! {
        /// However hostile the sizes: an error, never a panic or an overflow.
        #[test]
        fn hostile_sizes(s in proptest::collection::vec(any_size(), 14)) {
            let window = Window {
                kernel: [s[0], s[1]],
                stride: [s[2], s[3]],
                dilation: [s[4], s[5]],
                padding: [s[6], s[7], s[8], s[9]],
            };
            let geometry = ConvGeometry {
                in_channels: s[10],
                out_channels: s[11],
                input: [s[12], s[13]],
                window,
                groups: 1,
            };
            if let Ok([height, width]) = geometry.output() {
                prop_assert!(height * width * s[11] <= MAX_ELEMENTS);
            }
            prop_assert_eq!(geometry.validate().is_ok(), geometry.output().is_ok());
        }

        /// A band has the rows that were asked for, and each reads what it reads in the whole.
        #[test]
        fn bands_read_what_the_whole_reads(
            kernel in 1..5usize, stride in 1..4usize, dilation in 1..4usize,
            before in 0..5usize, after in 0..5usize, size in 1..12usize,
            start in 0..12usize, count in 1..5usize,
        ) {
            let window = down(kernel, stride, dilation, [before, after]);
            let Ok([output, _]) = window.output([size, 1]) else { return Ok(()) };
            let rows = start.min(output - 1)..(start + count).min(output).max(start.min(output - 1) + 1);
            let read_at = |window: &Window, at: usize, size: usize, first: usize| -> Vec<usize> {
                window.taps(0, at, size).map(|tap| first + window.index(0, at, tap)).collect()
            };
            let is_empty = |at: usize| window.taps(0, at, size).is_empty();
            let Some((read, band)) = window.band(rows.clone(), size) else {
                prop_assert!(rows.clone().any(is_empty));
                return Ok(());
            };
            prop_assert!(!rows.clone().any(is_empty));
            prop_assert_eq!(band.output([read.len(), 1]), Ok([rows.len(), 1]));
            for (at, whole) in rows.clone().enumerate() {
                prop_assert_eq!(
                    read_at(&band, at, read.len(), read.start),
                    read_at(&window, whole, size, 0)
                );
            }
        }

        /// Each output is visited with what is in its window, in the order of the kernel.
        #[test]
        fn visits_are_positions(
            kernel in 1..5usize, stride in 1..4usize, dilation in 1..4usize,
            before in 0..9usize, after in 0..9usize, size in 1..9usize,
        ) {
            let window = Window {
                kernel: [kernel, 2],
                padding: [before, 1, after, 0],
                ..down(kernel, stride, dilation, [before, after])
            };
            let input = [size, 3];
            let Ok(output) = window.output(input) else { return Ok(()) };
            let mut found = vec![Vec::new(); output[0] * output[1]];
            window.visit(input, output, |to, from| found[to].push(from));
            for (at, found) in found.iter().enumerate() {
                let wanted = window.positions(input, [at / output[1], at % output[1]]);
                prop_assert_eq!(found, &wanted.collect::<Vec<_>>());
            }
        }

        /// Taps are exactly the kernel indices that land inside.
        #[test]
        fn taps_are_those_inside(
            kernel in 1..5usize, stride in 1..4usize, dilation in 1..4usize,
            before in 0..5usize, after in 0..5usize, size in 1..9usize,
        ) {
            let window = down(kernel, stride, dilation, [before, after]);
            if let Ok([output, _]) = window.output([size, 1]) {
                for at in 0..output {
                    let inside = |&tap: &usize| {
                        let index = at * stride + tap * dilation;
                        (before..before + size).contains(&index)
                    };
                    let wanted: Vec<usize> = (0..kernel).filter(inside).collect();
                    prop_assert_eq!(window.taps(0, at, size).collect::<Vec<_>>(), wanted);
                }
                for tap in 0..kernel {
                    let has = |&at: &usize| window.taps(0, at, size).contains(&tap);
                    let wanted: Vec<usize> = (0..output).filter(has).collect();
                    prop_assert_eq!(window.places(0, tap, size, output).collect::<Vec<_>>(), wanted);
                }
            }
        }
    }
}
