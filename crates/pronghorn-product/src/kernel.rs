//! The interface of a micro-kernel, and the portable one.

use std::ops::Range;

/// Words of sums of one kernel call, at most: 24 registers of 16 lanes for each block of columns,
/// of which a tile has 8.
pub(crate) const SUMS: usize = 24 * 16 * 8;

/// The 32-bit sums of one kernel call: `[block of columns][output][vector][lane]`.
#[repr(align(64))]
pub(crate) struct Sums(pub(crate) [i32; SUMS]);

/// Offsets into packed data, in words. Remembers how far they reach, so that a kernel can check
/// all of them at once.
#[derive(Default)]
pub(crate) struct Offsets {
    offsets: Vec<u32>,
    largest: u32,
}

impl Offsets {
    #[inline]
    pub(crate) fn clear(&mut self) {
        self.offsets.clear();
        self.largest = 0;
    }

    #[inline]
    pub(crate) fn push(&mut self, offset: u32) {
        self.offsets.push(offset);
        self.largest = self.largest.max(offset);
    }
}

/// The operands of one kernel call, with `N` lanes in a vector: for each step one set of
/// `vectors` vectors at an offset of `data`, and
/// `rows` pairs of weights of the `stride` that `weights` has for each step. Sums begin at `bias`,
/// one for each row and vector. `together` blocks of columns share a look at the weights.
#[derive(Clone, Copy)]
pub(crate) struct Steps<'a, const N: usize> {
    offsets: &'a [u32],
    data: &'a [u32],
    weights: &'a [u32],
    first: usize,
    rows: usize,
    stride: usize,
    vectors: usize,
    bias: &'a [i32],
    together: usize,
    columns: Columns,
}

/// Blocks of columns that one kernel call works on.
#[derive(Clone, Copy)]
pub(crate) struct Columns {
    pub(crate) blocks: usize,
    /// Words of packed data from one block to the next.
    pub(crate) apart: usize,
}

impl<'a, const N: usize> Steps<'a, N> {
    /// The steps `range` of `offsets`, with the weights `first..first + rows` of each.
    ///
    /// # Panics
    ///
    /// If an offset, taking `vectors` vectors, reaches beyond `data`, the weights or biases are
    /// too few, or the sums too many.
    #[inline(always)]
    #[allow(clippy::too_many_arguments)]
    pub(crate) fn new(
        offsets: &'a Offsets,
        range: Range<usize>,
        data: &'a [u32],
        vectors: usize,
        weights: &'a [u32],
        stride: usize,
        outputs: Range<usize>,
        bias: &'a [i32],
        (columns, together): (Columns, usize),
    ) -> Self {
        let last = columns.blocks.saturating_sub(1) * columns.apart;
        let reach = last + offsets.largest as usize + vectors * N;
        assert!(range.is_empty() || reach <= data.len(), "packed data");
        assert!(
            outputs.end <= stride && weights.len() >= range.len() * stride,
            "weights"
        );
        assert!(bias.len() >= outputs.len() * vectors, "biases");
        assert!(columns.blocks.is_multiple_of(together), "blocks of columns");
        let sums = outputs.len() * vectors * N * columns.blocks;
        assert!(sums <= SUMS, "sums");
        Self {
            offsets: &offsets.offsets[range],
            data,
            weights,
            first: outputs.start,
            rows: outputs.len(),
            stride,
            vectors,
            bias,
            together,
            columns,
        }
    }

    /// Outputs, vectors and blocks of columns: the shape of the register block.
    #[inline(always)]
    pub(crate) fn block(&self) -> (usize, usize, usize) {
        (self.rows, self.vectors, self.together)
    }

    /// Offset, data, first weights and their stride. By the checks of [`Steps::new`], all
    /// `vectors * N` words of data at each offset of each block of columns and `rows` weights at each multiple of the
    /// stride, counted from the first weights, exist.
    #[inline(always)]
    pub(crate) fn operands(&self) -> (&'a [u32], &'a [u32], &'a [u32], usize) {
        let weights = self.weights.get(self.first..).unwrap_or_default();
        (self.offsets, self.data, weights, self.stride)
    }

    /// The beginnings of the sums, `[row][vector]`.
    #[inline(always)]
    pub(crate) fn bias<const ROWS: usize, const VECTORS: usize>(
        &self,
    ) -> &'a [[i32; VECTORS]; ROWS] {
        let rows = self.bias.as_chunks::<VECTORS>().0;
        rows.first_chunk().expect("a bias for each sum")
    }

    /// The blocks of columns. There are at most [`SUMS`] sums for all of them.
    #[inline(always)]
    pub(crate) fn columns(&self) -> Columns {
        self.columns
    }
}

/// A micro-kernel with `N` lanes of 32 bits in a vector.
pub(crate) trait Kernel<const N: usize>: Copy {
    /// Most outputs it computes at once with so many vectors of data; at least 1 for 2, 3 and 4
    /// vectors, 0 where it has no block so wide.
    fn most_rows(self, vectors: usize) -> usize;

    /// Blocks of columns it computes at once for so many outputs and vectors of data: a divisor of
    /// `all`, which is a power of two. A sum waits for the one before, and few sums would leave the
    /// multipliers idle.
    #[inline(always)]
    fn blocks_together(self, _rows: usize, _vectors: usize, _all: usize) -> usize {
        1
    }

    /// `sums[o][v][lane] = bias[o][v] + sum_steps data[offset][v][lane] . weights[step][o]`, the
    /// product of two pairs of signed 16-bit numbers.
    fn run(self, steps: Steps<'_, N>, sums: &mut Sums);

    /// Begins to move these words into the cache, where the CPU can be asked to.
    #[inline(always)]
    fn fetch<W>(self, _words: &[W]) {}
}

/// Calls the function for a register block, whose shape is a run-time value, with constants.
macro_rules! with_block {
    ($block:expr, $function:ident, $arguments:tt,
     [$($rows:literal x $vectors:literal x $blocks:literal),+]) => {
        match $block {
            $(($rows, $vectors, $blocks) => $function::<$rows, $vectors, $blocks> $arguments,)+
            block => unreachable!("no kernel for outputs, vectors and blocks {block:?}"),
        }
    };
}
#[cfg(target_arch = "x86_64")]
pub(crate) use with_block;

/// The kernel in plain Rust, for any CPU.
#[derive(Clone, Copy)]
pub(crate) struct Portable;

/// Lanes of the portable kernel.
pub(crate) const PORTABLE: usize = 8;

impl Kernel<PORTABLE> for Portable {
    fn most_rows(self, vectors: usize) -> usize {
        [0, 0, 3, 2, 1][vectors]
    }

    #[inline(always)]
    fn run(self, steps: Steps<'_, PORTABLE>, sums: &mut Sums) {
        with_block!(
            steps.block(), portable, (steps, sums),
            [1 x 2 x 1, 2 x 2 x 1, 3 x 2 x 1, 1 x 3 x 1, 2 x 3 x 1, 1 x 4 x 1]
        );
    }
}

fn portable<const ROWS: usize, const VECTORS: usize, const TOGETHER: usize>(
    steps: Steps<'_, PORTABLE>,
    sums: &mut Sums,
) {
    assert_eq!(steps.block(), (ROWS, VECTORS, 1));
    let (offsets, data, weights, stride) = steps.operands();
    let columns = steps.columns();
    let blocks = sums.0.chunks_exact_mut(ROWS * VECTORS * PORTABLE);
    for (block, sums) in blocks.take(columns.blocks).enumerate() {
        let mut totals = steps
            .bias::<ROWS, VECTORS>()
            .map(|bias| bias.map(|bias| [bias; PORTABLE]));
        for (step, &offset) in offsets.iter().enumerate() {
            let data = &data[block * columns.apart + offset as usize..];
            let data = data.as_chunks::<PORTABLE>().0;
            let words: [_; VECTORS] = std::array::from_fn(|vector| data[vector].map(halves));
            let weights = &weights[step * stride..][..ROWS];
            for (totals, &weight) in totals.iter_mut().zip(weights) {
                let [low, high] = halves(weight).map(i32::from);
                for (totals, words) in totals.iter_mut().zip(&words) {
                    for (total, word) in totals.iter_mut().zip(words) {
                        *total += i32::from(word[0]) * low + i32::from(word[1]) * high;
                    }
                }
            }
        }
        sums.copy_from_slice(totals.as_flattened().as_flattened());
    }
}

/// The two signed 16-bit numbers of a word, low one first.
#[inline(always)]
fn halves(word: u32) -> [i16; 2] {
    [word as i16, (word >> 16) as i16]
}
