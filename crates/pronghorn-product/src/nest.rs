//! The loops over one tile of columns: pack a band of image rows, walk the output positions,
//! call the micro-kernel, reduce.

use std::ops::Range;
use std::sync::atomic::{Ordering, compiler_fence};

use pronghorn_ring::Word;

use crate::kernel::{Columns, Kernel, Offsets, SUMS, Steps, Sums};
use crate::lanes::{self, Modulus};
use crate::simd::TileScratch;
use crate::weights::{Block, PackedWeights, split};
use crate::{Rows, TILE};

/// Weights of a group beyond this many words are walked once for each row of output positions
/// instead of once for each position: they would not stay in the cache in between.
const CACHED_WEIGHTS: usize = 128 * 1024;

/// Packed words under a kernel that stay in the first-level cache while all outputs of a position
/// read them.
const NEAR_WORDS: usize = 6 * 1024;

/// Vectors of sums of one kernel call, at most.
const MOST_SUMS: usize = 24;

/// Words of a cache line.
const LINE: usize = 16;

/// How many pair rows before they are packed their input is asked for, where nothing asked before:
/// rows are far apart in memory, each on a page of its own, so that the CPU foresees nothing.
const FETCH_AHEAD: usize = 4;

/// How many outputs before they are written their places are asked for.
const FETCH_OUTPUTS: usize = 10;

/// So many outputs of a position, each at a place of its own, are written without asking before:
/// the CPU foresees the places of the next position.
const FEW_OUTPUTS: usize = 6;

/// What all tiles of one product share.
pub(crate) struct Job<'a, W> {
    pub(crate) weights: &'a PackedWeights,
    pub(crate) modulus: Modulus,
    pub(crate) input: Rows<'a, W>,
    pub(crate) columns: usize,
    pub(crate) addend: Option<&'a [W]>,
}

/// Memory for one tile, reused by the next.
#[derive(Default)]
pub struct Scratch {
    parts: Vec<Part>,
    /// `[block of columns][image row of the band][pixel][pair row][vector][lane]`, of one group.
    packed: Vec<u32>,
    /// The pair rows under the first position of an output row, or under each.
    offsets: Offsets,
    /// For each output of the group what its sums lack, modulo q.
    corrections: Vec<u64>,
    /// Limbs of addends and corrections, `[output column][output of the group][limb]`.
    biases: Vec<i32>,
    /// Of products of bytes.
    pub(crate) tiles: TileScratch,
}

/// Computes all output rows of one tile: `output` is `[row][TILE]`.
#[inline(always)]
pub(crate) fn run<W: Word, K: Kernel<N>, const L: usize, const N: usize>(
    kernel: K,
    job: &Job<'_, W>,
    tile: usize,
    output: &mut [W],
    scratch: &mut Scratch,
) {
    let weights = job.weights;
    let shape = &weights.shape;
    let pair_words = L * N;
    let column_blocks = TILE / N;
    let lines = (shape.band_pixels() * shape.group_pairs * pair_words).div_ceil(LINE);
    let groups = shape.geometry.groups;
    let group_out = shape.geometry.out_channels / groups;
    let nest = Nest::<W, K, L, N> {
        kernel,
        job,
        tile,
        pair_words,
        column_blocks,
        span: power_of_two(NEAR_WORDS / (shape.pairs() * pair_words)).min(column_blocks),
        // An odd number, so that blocks do not meet in the cache.
        block_words: (lines | 1) * LINE,
        group_blocks: weights.blocks.len() / groups,
        group_out,
    };
    nest.run(output, scratch);
}

/// The largest power of two of at most `count`, 1 for 0.
fn power_of_two(count: usize) -> usize {
    1 << count.checked_ilog2().unwrap_or(0)
}

struct Nest<'a, W, K, const L: usize, const N: usize> {
    kernel: K,
    job: &'a Job<'a, W>,
    tile: usize,
    /// Packed words of a pair row.
    pair_words: usize,
    /// Packed words of a block of columns.
    block_words: usize,
    /// Blocks of columns in a tile.
    column_blocks: usize,
    /// Blocks of columns that are worked on at one position before the next.
    span: usize,
    /// Blocks of outputs in a group.
    group_blocks: usize,
    /// Outputs in a group.
    group_out: usize,
}

impl<W: Word, K: Kernel<N>, const L: usize, const N: usize> Nest<'_, W, K, L, N> {
    #[inline(always)]
    fn run(&self, output: &mut [W], scratch: &mut Scratch) {
        let shape = &self.job.weights.shape;
        let words = self.column_blocks * self.block_words;
        let start = scratch.reserve(words);
        self.list_parts(&mut scratch.parts);
        self.pack_padding(&mut scratch.packed[start..][..words]);
        let mut sums = CallSums {
            words: Sums([0; SUMS]),
            totals: [0; SUMS],
        };
        // Groups share nothing, so that each is finished while its rows are in the cache.
        for group in 0..shape.geometry.groups {
            let mut new_rows = shape.image_rows(0);
            let mut corrected = None;
            for out_y in 0..shape.output[0] {
                let is_fetched = self.fetches_rows() && (group, out_y) != (0, 0);
                for y in new_rows.clone() {
                    self.pack_row(
                        (group, y),
                        is_fetched,
                        &mut scratch.packed[start..][..words],
                    );
                }
                self.list_offsets(out_y, &mut scratch.offsets);
                let kernel_rows = shape.kernel_rows(out_y);
                if corrected.replace(kernel_rows.clone()) != Some(kernel_rows.clone()) {
                    self.list_corrections(group, &kernel_rows, &mut scratch.corrections);
                }
                self.list_biases(group, out_y, scratch);
                let after = self.rows_after(out_y, new_rows.end);
                let row = Row {
                    packed: &scratch.packed[start..][..words],
                    scratch,
                    group,
                    pairs: kernel_rows.start * shape.kernel_row_pairs()
                        ..kernel_rows.end * shape.kernel_row_pairs(),
                    out_y,
                    next: if out_y + 1 == shape.output[0] {
                        (group + 1, shape.image_rows(0))
                    } else {
                        (group, after.clone())
                    },
                };
                for columns in split(self.column_blocks, self.span) {
                    self.row_of_positions(&row, columns, &mut sums, output);
                }
                new_rows = after;
            }
        }
    }

    /// The image rows still to be packed for the row of positions after `out_y`, those before
    /// `packed` being packed.
    fn rows_after(&self, out_y: usize, packed: usize) -> Range<usize> {
        let shape = &self.job.weights.shape;
        if out_y + 1 == shape.output[0] {
            return packed..packed;
        }
        let rows = shape.image_rows(out_y + 1);
        rows.start.max(packed)..rows.end.max(packed)
    }

    /// Cuts a group's blocks of outputs to the kernel's size.
    fn list_parts(&self, parts: &mut Vec<Part>) {
        let most = self.kernel.most_rows(L);
        parts.clear();
        let blocks = &self.job.weights.blocks[..self.group_blocks];
        for (block, whole) in blocks.iter().enumerate() {
            parts.extend(split(whole.size, most).map(|outputs| Part {
                block,
                first: whole.first + outputs.start,
                outputs,
            }));
        }
    }

    /// Packs the pair rows of padding alone, which are the same for all groups and image rows.
    fn pack_padding(&self, packed: &mut [u32]) {
        let shape = &self.job.weights.shape;
        let zeros = [W::from_u64(0); TILE];
        for (pixel, pair) in self.row_of_pairs() {
            if shape.sources(0, 0, pixel, pair) == [None; 2] {
                for y in 0..shape.band_rows {
                    let at = self.pixel_at(y, pixel) + pair * self.pair_words;
                    self.pack_pair(&zeros, &zeros, at, packed);
                }
            }
        }
    }

    /// The pixels and pairs of a packed image row.
    #[inline(always)]
    fn row_of_pairs(&self) -> impl Iterator<Item = (usize, usize)> {
        let shape = &self.job.weights.shape;
        let pairs = shape.group_pairs;
        (0..shape.row_pixels()).flat_map(move |pixel| (0..pairs).map(move |pair| (pixel, pair)))
    }

    /// The first packed word of an image row's pixel.
    #[inline(always)]
    fn pixel_at(&self, y: usize, pixel: usize) -> usize {
        let shape = &self.job.weights.shape;
        let pixel = y % shape.band_rows * shape.row_pixels() + pixel;
        pixel * shape.group_pairs * self.pair_words
    }

    /// Packs one image row of a group for all blocks of columns.
    #[inline(always)]
    fn pack_row(&self, (group, y): (usize, usize), is_fetched: bool, packed: &mut [u32]) {
        let shape = &self.job.weights.shape;
        let mut parts = [[W::from_u64(0); TILE]; 2];
        let mut ahead = self.row_of_pairs().skip(FETCH_AHEAD);
        for (pixel, pair) in self.row_of_pairs() {
            if !is_fetched && let Some((pixel, pair)) = ahead.next() {
                let rows = shape.sources(group, y, pixel, pair).into_iter();
                rows.flatten().for_each(|row| self.fetch(row));
            }
            let sources = shape.sources(group, y, pixel, pair);
            if sources == [None; 2] {
                continue;
            }
            let [part0, part1] = &mut parts;
            let words = [
                self.tile_of_row(sources[0], part0),
                self.tile_of_row(sources[1], part1),
            ];
            let at = self.pixel_at(y, pixel) + pair * self.pair_words;
            self.pack_pair(words[0], words[1], at, packed);
        }
    }

    /// Whether image rows are asked for while those before are worked on. Under a kernel of one row
    /// there is little work, and they are asked for just before.
    #[inline(always)]
    fn fetches_rows(&self) -> bool {
        self.job.weights.shape.geometry.window.kernel[0] > 1
    }

    /// Begins to load a position's part of the image rows that are packed next, so that memory
    /// works while products are computed.
    #[inline(always)]
    fn fetch_next(&self, row: &Row<'_>, out_x: usize) {
        let shape = &self.job.weights.shape;
        let (group, rows) = &row.next;
        if *group == shape.geometry.groups {
            return;
        }
        let [height, width] = shape.geometry.input;
        let share = |x: usize| x * width / shape.output[1];
        let channels = shape.geometry.in_channels / shape.geometry.groups;
        for channel in *group * channels..(*group + 1) * channels {
            for y in rows.clone() {
                for x in share(out_x)..share(out_x + 1) {
                    self.fetch((channel * height + y) * width + x);
                }
            }
        }
    }

    /// Begins to load the places of outputs at one position: a store waits for its line.
    #[inline(always)]
    fn fetch_outputs(
        &self,
        row: &Row<'_>,
        out_x: usize,
        part: &Part,
        columns: &Range<usize>,
        output: &[W],
    ) {
        let [first, apart] = self.places(row, out_x, part, columns.start);
        for index in 0..part.outputs.len() {
            self.kernel
                .fetch(&output[first + index * apart..][..columns.len() * N]);
        }
    }

    /// The first word of a part's first output at one position, from a block of columns on, and the
    /// words from one output to the next.
    #[inline(always)]
    fn places(&self, row: &Row<'_>, out_x: usize, part: &Part, column: usize) -> [usize; 2] {
        let [out_h, out_w] = self.job.weights.shape.output;
        let channel = row.group * self.group_out + part.first;
        let first = (channel * out_h + row.out_y) * out_w + out_x;
        [first * TILE + column * N, out_h * out_w * TILE]
    }

    /// Begins to load this tile's words of an input row, if it has all of them.
    #[inline(always)]
    fn fetch(&self, row: usize) {
        let row = &self.job.input.get(row)[self.tile * TILE..];
        if let Some(words) = row.first_chunk::<TILE>() {
            self.kernel.fetch(words);
        }
    }

    /// The words of an input row in this tile; `part` holds them where the tile is not full.
    #[inline(always)]
    fn tile_of_row<'b>(&'b self, row: Option<usize>, part: &'b mut [W; TILE]) -> &'b [W; TILE] {
        let begin = self.tile * TILE;
        let row = row.map(|row| self.job.input.get(row));
        match row.and_then(|row| row[begin..].first_chunk()) {
            Some(words) => words,
            None => {
                *part = [W::from_u64(0); TILE];
                let rest = row.map_or(&[][..], |row| &row[begin..]);
                part[..rest.len()].copy_from_slice(rest);
                part
            }
        }
    }

    #[inline(always)]
    fn pack_pair(&self, first: &[W; TILE], second: &[W; TILE], at: usize, packed: &mut [u32]) {
        let (first, second) = (first.as_chunks::<N>().0, second.as_chunks::<N>().0);
        let mut vectors = first.iter().zip(second);
        for block in packed.chunks_exact_mut(self.block_words) {
            let block = block[at..][..self.pair_words].as_chunks_mut::<N>().0;
            for (limbs, (first, second)) in block.chunks_exact_mut(L).zip(&mut vectors) {
                lanes::pack::<W, L, N>(&self.job.modulus, first, second, limbs);
            }
        }
    }

    /// Lists the pair rows under the first position of an output row, or under each where these are
    /// not alike. Kernel rows in padding are left out.
    fn list_offsets(&self, out_y: usize, offsets: &mut Offsets) {
        let shape = &self.job.weights.shape;
        offsets.clear();
        let lists = match shape.window_pixels() {
            Some(_) => 1,
            None => shape.output[1],
        };
        for out_x in 0..lists {
            for tap_h in shape.kernel_rows(out_y) {
                let y = shape.geometry.window.index(0, out_y, tap_h);
                for tap_w in 0..shape.taps_w {
                    let first = self.pixel_at(y, shape.pixel(out_x, tap_w));
                    for pair in 0..shape.group_pairs {
                        offsets.push((first + pair * self.pair_words) as u32);
                    }
                }
            }
        }
    }

    /// Packed words lack the modulus's offset; sums lack it times the weights of their kernel rows,
    /// padding on the left and right counting as words of zero.
    fn list_corrections(&self, group: usize, kernel_rows: &Range<usize>, found: &mut Vec<u64>) {
        found.clear();
        for block in &self.job.weights.blocks[group * self.group_blocks..][..self.group_blocks] {
            let sums = (0..block.size).map(|output| block.sum(output, kernel_rows));
            found.extend(sums.map(|sum| self.job.modulus.correction(sum)));
        }
    }

    /// Lists the numbers at which the sums of an output row's positions begin.
    fn list_biases(&self, group: usize, out_y: usize, scratch: &mut Scratch) {
        let [out_h, out_w] = self.job.weights.shape.output;
        let modulus = &self.job.modulus;
        scratch.biases.clear();
        for out_x in 0..out_w {
            for (output, &correction) in scratch.corrections.iter().enumerate() {
                let row = ((group * self.group_out + output) * out_h + out_y) * out_w + out_x;
                let addend = self.job.addend.map_or(0, |addend| addend[row].to_u64());
                let limbs = modulus.limbs::<L>(modulus.add(correction, addend));
                scratch.biases.extend_from_slice(&limbs);
            }
        }
    }

    /// All outputs of a group at a row of positions, in these blocks of columns.
    #[inline(always)]
    fn row_of_positions(
        &self,
        row: &Row<'_>,
        columns: Range<usize>,
        sums: &mut CallSums,
        output: &mut [W],
    ) {
        let weights = self.job.weights;
        let parts = &row.scratch.parts;
        let positions = weights.shape.output[1];
        let by_position = self.group_out * weights.shape.pairs() <= CACHED_WEIGHTS;
        let (outer, inner) = if by_position {
            (positions, parts.len())
        } else {
            (parts.len(), positions)
        };
        let place = |i, j| if by_position { (i, j) } else { (j, i) };
        for i in 0..outer {
            for j in 0..inner {
                let (out_x, part) = place(i, j);
                let later = i * inner + j + FETCH_OUTPUTS.div_ceil(parts[part].outputs.len());
                if self.group_out > FEW_OUTPUTS && later < outer * inner {
                    let (out_x, part) = place(later / inner, later % inner);
                    self.fetch_outputs(row, out_x, &parts[part], &columns, output);
                }
                if part == 0 && columns.start == 0 && self.fetches_rows() {
                    self.fetch_next(row, out_x);
                }
                self.part(row, out_x, &parts[part], columns.clone(), sums, output);
            }
        }
    }

    /// Some outputs of a block at one position.
    #[inline(always)]
    fn part(
        &self,
        row: &Row<'_>,
        out_x: usize,
        part: &Part,
        columns: Range<usize>,
        sums: &mut CallSums,
        output: &mut [W],
    ) {
        let weights = self.job.weights;
        let shape = &weights.shape;
        let block = &weights.blocks[row.group * self.group_blocks + part.block];
        let (begin, pixels) = match shape.window_pixels() {
            Some(apart) => (0, out_x * apart),
            None => (out_x * row.pairs.len(), 0),
        };
        let first = pixels * shape.group_pairs * self.pair_words;
        let at = columns.start * self.block_words + first;
        let bias = (out_x * self.group_out + part.first) * L;
        let [place, apart] = self.places(row, out_x, part, columns.start);
        let call = Call {
            offsets: &row.scratch.offsets,
            begin,
            data: &row.packed[at..],
            weights: weights.block_words(block, &row.pairs),
            stride: block.size,
            outputs: part.outputs.clone(),
            bias: &row.scratch.biases[bias..][..part.outputs.len() * L],
            place,
            apart,
            columns: Columns {
                blocks: columns.len(),
                apart: self.block_words,
            },
        };
        if block.is_one_chunk() {
            self.one_chunk(&call, row.pairs.len(), sums, output);
        } else {
            self.many_chunks(&call, block, &row.pairs, sums, output);
        }
    }

    #[inline(always)]
    fn one_chunk(&self, call: &Call<'_>, pairs: usize, sums: &mut CallSums, output: &mut [W]) {
        self.multiply(call, 0..pairs, call.bias, sums);
        let vectors = sums.words.0.as_chunks::<N>().0;
        let rows = call.outputs.len();
        for row in 0..rows {
            let blocks = vectors.chunks_exact(rows * L);
            for (out, block) in self.output_words(call, row, output).iter_mut().zip(blocks) {
                one_after_the_other();
                lanes::reduce::<W, L, N>(&self.job.modulus, &block[row * L..][..L], out);
            }
        }
    }

    #[inline(always)]
    fn many_chunks(
        &self,
        call: &Call<'_>,
        block: &Block,
        pairs: &Range<usize>,
        sums: &mut CallSums,
        output: &mut [W],
    ) {
        let rows = call.outputs.len();
        let used = call.columns.blocks * rows * self.pair_words;
        let biases = call.bias.iter().cycle();
        for (totals, &bias) in sums.totals[..used].chunks_exact_mut(N).zip(biases) {
            totals.fill(i64::from(bias));
        }
        for chunk in block.chunks(pairs) {
            let steps = chunk.start - pairs.start..chunk.end - pairs.start;
            self.multiply(call, steps, &[0; MOST_SUMS], sums);
            for (total, &sum) in sums.totals[..used].iter_mut().zip(&sums.words.0) {
                *total += i64::from(sum);
            }
        }
        let vectors = sums.totals[..used].as_chunks::<N>().0;
        for row in 0..rows {
            let blocks = vectors.chunks_exact(rows * L);
            for (out, block) in self.output_words(call, row, output).iter_mut().zip(blocks) {
                one_after_the_other();
                lanes::reduce_chunks::<W, L, N>(&self.job.modulus, &block[row * L..][..L], out);
            }
        }
    }

    /// The sums of the call's outputs over `steps` of its offsets.
    #[inline(always)]
    fn multiply(&self, call: &Call<'_>, steps: Range<usize>, bias: &[i32], sums: &mut CallSums) {
        let outputs = call.outputs.clone();
        let together = self
            .kernel
            .blocks_together(outputs.len(), L, call.columns.blocks);
        let steps = Steps::<N>::new(
            call.offsets,
            call.begin + steps.start..call.begin + steps.end,
            call.data,
            L,
            &call.weights[steps.start * call.stride..steps.end * call.stride],
            call.stride,
            outputs,
            bias,
            (call.columns, together),
        );
        self.kernel.run(steps, &mut sums.words);
    }

    /// The words of an output in the call's blocks of columns.
    #[inline(always)]
    fn output_words<'b>(
        &self,
        call: &Call<'_>,
        index: usize,
        output: &'b mut [W],
    ) -> &'b mut [[W; N]] {
        let at = call.place + index * call.apart;
        output[at..][..call.columns.blocks * N].as_chunks_mut().0
    }
}

/// Keeps the compiler from mixing two turns of a loop: it takes lanes of several vectors apart to
/// put them together anew, at a fourth of the speed on AVX2.
#[inline(always)]
fn one_after_the_other() {
    compiler_fence(Ordering::SeqCst);
}

/// The sums of one call.
struct CallSums {
    /// Those of one chunk.
    words: Sums,
    /// Those of several, `[block of columns][output][limb][lane]`.
    totals: [i64; SUMS],
}

/// Outputs of a group that one kernel call computes.
struct Part {
    /// The block, in the group.
    block: usize,
    /// The outputs, in the block.
    outputs: Range<usize>,
    /// The first output, in the group.
    first: usize,
}

/// One row of output positions of one group.
struct Row<'a> {
    packed: &'a [u32],
    scratch: &'a Scratch,
    group: usize,
    /// The pairs of weights whose kernel rows are not in padding.
    pairs: Range<usize>,
    out_y: usize,
    /// The group and image rows that are packed next.
    next: (usize, Range<usize>),
}

/// Outputs of a block at one position, in some blocks of columns.
struct Call<'a> {
    offsets: &'a Offsets,
    begin: usize,
    data: &'a [u32],
    weights: &'a [u32],
    /// Weights of one step.
    stride: usize,
    outputs: Range<usize>,
    bias: &'a [i32],
    /// The first word of the first output.
    place: usize,
    /// Words from one output to the next.
    apart: usize,
    columns: Columns,
}

impl Scratch {
    /// Makes room for `words` packed words from the returned index on, where a cache line begins.
    fn reserve(&mut self, words: usize) -> usize {
        if self.packed.len() < words + LINE {
            self.packed = vec![0; words + LINE];
        }
        let start = self.packed.as_ptr().align_offset(LINE * size_of::<u32>());
        start.min(LINE)
    }
}
