//! Checked geometry, and weights laid out for the micro-kernels.

use std::ops::Range;

use pronghorn_graph::geometry::{ConvGeometry, GeometryError};
use rayon::prelude::*;

use crate::bytes::ByteWeights;

/// Outputs computed together from one list of pair rows, at most.
pub(crate) const BLOCK: usize = 12;

/// Largest `sum |w|` of a chunk: with limbs of at most 2^15, and another 2^15 for the addend's
/// limb, sums stay below 2^31. One pair of weights always fits.
pub(crate) const CHUNK: u32 = (1 << 16) - 2;

/// Most pair rows under one kernel: their offsets, times 64 words, fit 32 bits.
const MOST_PAIRS: usize = 1 << 25;

/// Why weights cannot be multiplied.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProductError {
    /// A size is zero, too large, or does not fit the others.
    #[error("convolution geometry: {0}")]
    Geometry(#[from] GeometryError),
    /// The image rows under one kernel, of all channels, are too many to be indexed.
    #[error(
        "the image rows under one kernel hold {pairs} pairs of values, more than {MOST_PAIRS}: \
         split the layer into fewer channels or a narrower image"
    )]
    BandTooLarge {
        /// Pairs of values.
        pairs: usize,
    },
    /// The number of weights is not what the geometry needs.
    #[error("convolution takes {expected} weights by its geometry, but {found} were given")]
    WeightCount {
        /// `out_channels * in_channels / groups * kernel_h * kernel_w`.
        expected: usize,
        /// Weights given.
        found: usize,
    },
    /// A weight is -2^15, whose magnitude does not fit 16 bits.
    #[error(
        "weight {index} is -32768, outside -32767..=32767: quantise the layer to fewer weight bits"
    )]
    WeightTooLarge {
        /// Its index.
        index: usize,
    },
}

/// Weights of one layer laid out for the kernels, for any modulus and instruction level.
pub struct PackedWeights {
    pub(crate) shape: Shape,
    pub(crate) blocks: Vec<Block>,
    /// For each block `[pair][output of the block]`: the pair's two weights as 16-bit numbers.
    pub(crate) words: Vec<u32>,
    /// The weights as bytes, where that is of use.
    pub(crate) bytes: Option<Box<ByteWeights>>,
}

/// Up to [`BLOCK`] outputs of one group.
pub(crate) struct Block {
    /// First output channel.
    pub(crate) first: usize,
    pub(crate) size: usize,
    /// Where its weights begin in [`PackedWeights::words`].
    start: usize,
    /// Ends of the chunks of pairs whose sums fit 32 bits; the last is the number of pairs.
    chunks: Vec<usize>,
    /// Sums of weights, `[output of the block][kernel row]`.
    sums: Vec<i64>,
}

impl PackedWeights {
    /// Checks and lays out the weights of a convolution, given in ONNX order
    /// `[out_channels][in_channels / groups][kernel_h][kernel_w]`.
    ///
    /// # Errors
    ///
    /// [`ProductError`] where the geometry is not valid or too large, the number of weights is not
    /// what it needs, or a weight is -2^15.
    pub fn new(geometry: &ConvGeometry, weights: &[i16]) -> Result<Self, ProductError> {
        let shape = Shape::new(geometry)?;
        check_weights(geometry, weights)?;
        let bytes = ByteWeights::new(&shape, weights);
        let groups = geometry.groups;
        let group_out = geometry.out_channels / groups;
        let places = (0..groups).flat_map(|group| {
            split(group_out, BLOCK).map(move |part| (group * group_out + part.start, part.len()))
        });
        let mut words = vec![0; geometry.out_channels * shape.pairs()];
        let (mut rest, mut start, mut pieces) = (&mut words[..], 0, Vec::new());
        for (first, size) in places {
            let (words, after) = rest.split_at_mut(size * shape.pairs());
            pieces.push((first, start, words));
            (rest, start) = (after, start + size * shape.pairs());
        }
        let blocks = pieces
            .into_par_iter()
            .map(|(first, start, words)| Block::new(&shape, first, start, weights, words))
            .collect();
        Ok(Self {
            blocks,
            words,
            bytes: bytes
                .filter(|bytes| bytes.is_worthwhile(&shape))
                .map(Box::new),
            shape,
        })
    }

    /// Rows of the input: `in_channels * height * width`.
    pub fn inputs(&self) -> usize {
        let geometry = &self.shape.geometry;
        geometry.in_channels * geometry.input[0] * geometry.input[1]
    }

    /// Rows of the output: `out_channels * out_height * out_width`.
    pub fn outputs(&self) -> usize {
        let Shape {
            geometry, output, ..
        } = &self.shape;
        geometry.out_channels * output[0] * output[1]
    }

    /// Multiplications of a weight by a word for each column, padding not counted. Takes time
    /// proportional to the output's height and width.
    pub fn multiply_adds(&self) -> u64 {
        let Shape {
            geometry, output, ..
        } = &self.shape;
        let taps = |axis: usize| -> u64 {
            let at = |at| geometry.window.taps(axis, at, geometry.input[axis]).len() as u64;
            (0..output[axis]).map(at).sum()
        };
        let channels = geometry.out_channels * self.shape.group_in();
        taps(0) * taps(1) * channels as u64
    }

    /// The weights of `block` for `pairs`.
    #[inline(always)]
    pub(crate) fn block_words(&self, block: &Block, pairs: &Range<usize>) -> &[u32] {
        &self.words[block.start..][pairs.start * block.size..pairs.end * block.size]
    }
}

impl Block {
    /// The outputs from `first` on whose weights fill `words`, which begin at `start` of all.
    fn new(shape: &Shape, first: usize, start: usize, weights: &[i16], words: &mut [u32]) -> Self {
        let size = words.len() / shape.pairs();
        let mut chunks = Vec::new();
        let mut norms = [0_u32; BLOCK];
        let kernel_rows = shape.geometry.window.kernel[0];
        let mut sums = vec![0; size * kernel_rows];
        for (pair, words) in words.chunks_exact_mut(size).enumerate() {
            let mut steps = [0_u32; BLOCK];
            let outputs = steps[..size].iter_mut().zip(words).enumerate();
            for (output, (step, word)) in outputs {
                let [low, high] = shape.pair_of_weights(first + output, pair, weights);
                let kernel_row = pair / shape.kernel_row_pairs();
                sums[output * kernel_rows + kernel_row] += i64::from(low) + i64::from(high);
                *step = low.unsigned_abs() + high.unsigned_abs();
                *word = (low as u32 & 0xffff) | (high as u32) << 16;
            }
            if norms
                .iter()
                .zip(steps)
                .any(|(norm, step)| norm + step > CHUNK)
            {
                chunks.push(pair);
                norms = [0; BLOCK];
            }
            norms
                .iter_mut()
                .zip(steps)
                .for_each(|(norm, step)| *norm += step);
        }
        chunks.push(shape.pairs());
        Self {
            first,
            size,
            start,
            chunks,
            sums,
        }
    }

    /// True if all sums of this block fit 32 bits.
    #[inline(always)]
    pub(crate) fn is_one_chunk(&self) -> bool {
        self.chunks.len() == 1
    }

    /// The sum of an output's weights in these kernel rows.
    pub(crate) fn sum(&self, output: usize, kernel_rows: &Range<usize>) -> i64 {
        let all = self.sums.len() / self.size;
        self.sums[output * all..][kernel_rows.clone()].iter().sum()
    }

    /// The chunks that make up `pairs`.
    pub(crate) fn chunks(&self, pairs: &Range<usize>) -> impl Iterator<Item = Range<usize>> {
        let (mut start, pairs) = (pairs.start, pairs.clone());
        self.chunks.iter().filter_map(move |&end| {
            let chunk = start..end.min(pairs.end);
            start = start.max(end);
            (!chunk.is_empty()).then_some(chunk)
        })
    }
}

fn check_weights(geometry: &ConvGeometry, weights: &[i16]) -> Result<(), ProductError> {
    if geometry.weights_len() != weights.len() {
        return Err(ProductError::WeightCount {
            expected: geometry.weights_len(),
            found: weights.len(),
        });
    }
    // A search item by item asks after each whether another thread has found one.
    let rows = weights.par_chunks(geometry.row_len()).enumerate();
    let wide = |(row, weights): (usize, &[i16])| {
        let at = weights.iter().position(|&weight| weight == i16::MIN)?;
        Some(row * geometry.row_len() + at)
    };
    match rows.find_map_first(wide) {
        Some(index) => Err(ProductError::WeightTooLarge { index }),
        None => Ok(()),
    }
}

/// Cuts `0..size` into as few ranges of at most `most` as possible, as equal as possible.
pub(crate) fn split(size: usize, most: usize) -> impl Iterator<Item = Range<usize>> {
    let parts = size.div_ceil(most);
    (0..parts).map(move |part| part * size / parts..(part + 1) * size / parts)
}

/// What makes up the two halves of a pair row.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pairing {
    /// Channels `2c` and `2c + 1` of one pixel.
    Channels,
    /// Pixels `x` and `x + dilation` of one channel.
    Pixels,
    /// One pixel of one channel, and nothing.
    Single,
}

/// The pixels of a packed image row, by the columns they begin at.
enum Pixels {
    /// So many, one every `apart` columns, padding included: all windows are alike.
    Even { count: usize, apart: usize },
    /// Those with something of the image, ascending, where padding or gaps would be most of a row.
    /// After them comes one of zeros.
    Listed(Vec<usize>),
}

/// A checked geometry, and how its input is packed.
///
/// A *pixel* is all pair rows of one group at one column, counted from the left edge of the first
/// window. A packed image row has the pixels that windows read, see [`Pixels`].
pub(crate) struct Shape {
    pub(crate) geometry: ConvGeometry,
    /// Output height and width.
    pub(crate) output: [usize; 2],
    pub(crate) pairing: Pairing,
    /// Pair rows of one group at one pixel.
    pub(crate) group_pairs: usize,
    pixels: Pixels,
    /// Columns from one horizontal tap to the next.
    tap_columns: usize,
    /// Image rows that a kernel reaches over, at most.
    pub(crate) band_rows: usize,
    /// Horizontal taps, pairs of pixels counting as one.
    pub(crate) taps_w: usize,
}

impl Shape {
    fn new(geometry: &ConvGeometry) -> Result<Self, ProductError> {
        let output = geometry.output()?;
        let window = &geometry.window;
        let group_in = geometry.in_channels / geometry.groups;
        let pairing = match (group_in, window.kernel[1]) {
            (1, 1) => Pairing::Single,
            (1, _) => Pairing::Pixels,
            _ => Pairing::Channels,
        };
        let taps_of_pixel = if pairing == Pairing::Pixels { 2 } else { 1 };
        let taps_w = window.kernel[1].div_ceil(taps_of_pixel);
        // No window reads a column between multiples of the common divisor.
        let tap = match taps_w {
            1 => 0,
            _ => taps_of_pixel * window.dilation[1],
        };
        let apart = common_divisor(window.stride[1], tap);
        let last = (output[1] - 1) * window.stride[1] + (taps_w - 1) * tap;
        let count = last / apart + 1;
        let shape = Self {
            output,
            pairing,
            group_pairs: group_in.div_ceil(2),
            pixels: match count <= 2 * geometry.input[1] + taps_w {
                true => Pixels::Even { count, apart },
                false => Pixels::Listed(columns_with_image(geometry, pairing, apart)),
            },
            tap_columns: tap,
            band_rows: geometry.input[0].min((window.kernel[0] - 1) * window.dilation[0] + 1),
            taps_w,
            geometry: geometry.clone(),
        };
        let pairs = shape.band_pixels().saturating_mul(shape.group_pairs);
        if pairs > MOST_PAIRS {
            return Err(ProductError::BandTooLarge { pairs });
        }
        Ok(shape)
    }

    fn group_in(&self) -> usize {
        self.geometry.in_channels / self.geometry.groups
    }

    /// Pixels of a packed band of image rows.
    pub(crate) fn band_pixels(&self) -> usize {
        self.band_rows.saturating_mul(self.row_pixels())
    }

    /// The kernel rows that meet the image at a row of output positions.
    pub(crate) fn kernel_rows(&self, out_y: usize) -> Range<usize> {
        let taps = self.geometry.window.taps(0, out_y, self.geometry.input[0]);
        if taps.is_empty() { 0..0 } else { taps }
    }

    /// The image rows that a kernel reaches over at a row of output positions, from where its
    /// window begins.
    pub(crate) fn image_rows(&self, out_y: usize) -> Range<usize> {
        let window = &self.geometry.window;
        let begin = (out_y * window.stride[0]).saturating_sub(window.padding[0]);
        match self.kernel_rows(out_y).last() {
            Some(tap) => begin..window.index(0, out_y, tap) + 1,
            None => 0..0,
        }
    }

    /// Pixels in a packed image row.
    pub(crate) fn row_pixels(&self) -> usize {
        match &self.pixels {
            Pixels::Even { count, .. } => *count,
            Pixels::Listed(columns) => columns.len() + 1,
        }
    }

    /// Pixels from one window to the next, where all windows are alike.
    #[inline(always)]
    pub(crate) fn window_pixels(&self) -> Option<usize> {
        match self.pixels {
            Pixels::Even { apart, .. } => Some(self.geometry.window.stride[1] / apart),
            Pixels::Listed(_) => None,
        }
    }

    /// The pixel under a horizontal tap of a window.
    pub(crate) fn pixel(&self, out_x: usize, tap: usize) -> usize {
        let column = out_x * self.geometry.window.stride[1] + tap * self.tap_columns;
        match &self.pixels {
            Pixels::Even { apart, .. } => column / apart,
            Pixels::Listed(columns) => columns.binary_search(&column).unwrap_or(columns.len()),
        }
    }

    /// The column that a pixel begins at; none for zeros.
    #[inline(always)]
    fn column(&self, pixel: usize) -> Option<usize> {
        match &self.pixels {
            Pixels::Even { apart, .. } => Some(pixel * apart),
            Pixels::Listed(columns) => columns.get(pixel).copied(),
        }
    }

    /// Pairs of weights under one row of the kernel.
    pub(crate) fn kernel_row_pairs(&self) -> usize {
        self.taps_w * self.group_pairs
    }

    /// Pairs of weights of one output, in the order `[kernel_h][taps_w][group_pairs]`.
    pub(crate) fn pairs(&self) -> usize {
        self.geometry.window.kernel[0] * self.kernel_row_pairs()
    }

    fn pair_of_weights(&self, output: usize, pair: usize, weights: &[i16]) -> [i32; 2] {
        let [kernel_h, kernel_w] = self.geometry.window.kernel;
        let (tap, channels) = (pair / self.group_pairs, pair % self.group_pairs);
        let (row, tap) = (tap / self.taps_w, tap % self.taps_w);
        let weight = |channel: usize, column: usize| {
            let inside = channel < self.group_in() && column < kernel_w;
            let at = || ((output * self.group_in() + channel) * kernel_h + row) * kernel_w + column;
            if inside { weights[at()].into() } else { 0 }
        };
        match self.pairing {
            Pairing::Channels => [weight(2 * channels, tap), weight(2 * channels + 1, tap)],
            Pairing::Pixels => [weight(0, 2 * tap), weight(0, 2 * tap + 1)],
            Pairing::Single => [weight(0, tap), 0],
        }
    }

    /// The input rows that make up a pair row of a group's image row `y`, none for padding.
    #[inline(always)]
    pub(crate) fn sources(
        &self,
        group: usize,
        y: usize,
        pixel: usize,
        pair: usize,
    ) -> [Option<usize>; 2] {
        let [height, width] = self.geometry.input;
        let [_, left, ..] = self.geometry.window.padding;
        let Some(column) = self.column(pixel) else {
            return [None; 2];
        };
        let row = |channel: usize, right: usize| {
            let x = (column + right).checked_sub(left).filter(|&x| x < width)?;
            Some((channel * height + y) * width + x)
        };
        let channel = group * self.group_in() + 2 * pair;
        match self.pairing {
            Pairing::Channels => {
                let is_whole = 2 * pair + 1 < self.group_in();
                let second = is_whole.then(|| row(channel + 1, 0)).flatten();
                [row(channel, 0), second]
            }
            Pairing::Pixels => [
                row(channel, 0),
                row(channel, self.geometry.window.dilation[1]),
            ],
            Pairing::Single => [row(channel, 0), None],
        }
    }
}

/// The columns of pixels with something of the image, at multiples of `apart`.
fn columns_with_image(geometry: &ConvGeometry, pairing: Pairing, apart: usize) -> Vec<usize> {
    let (window, width) = (&geometry.window, geometry.input[1]);
    let left = window.padding[1];
    // The second half of a pair is a tap further right.
    let first = match pairing {
        Pairing::Pixels => left.saturating_sub(window.dilation[1]),
        _ => left,
    };
    let before_image = first..left.min(first + width);
    let columns = before_image.chain(left..left + width);
    columns.filter(|column| column % apart == 0).collect()
}

pub(crate) fn common_divisor(a: usize, b: usize) -> usize {
    if b == 0 { a } else { common_divisor(b, a % b) }
}
