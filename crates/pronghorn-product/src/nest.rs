//! The loops over one tile of columns: pack a band of image rows, walk the output positions,
//! call the micro-kernel, reduce.

use std::ops::Range;

use pronghorn_ring::Word;

use crate::TILE;
use crate::kernel::{Kernel, Offsets, SUMS, Steps, Sums};
use crate::lanes::{self, Modulus};
use crate::simd::TileScratch;
use crate::weights::{Block, PackedWeights, split};

/// Weights beyond this many words are walked once for each row of output positions instead of
/// once for each position: they would not stay in the cache in between.
const CACHED_WEIGHTS: usize = 128 * 1024;

/// How many pair rows before they are packed their input is asked for: rows are far apart in
/// memory, each on a page of its own, so that the CPU foresees nothing.
const FETCH_AHEAD: usize = 4;

/// What all tiles of one product share.
pub(crate) struct Job<'a, W> {
    pub(crate) weights: &'a PackedWeights,
    pub(crate) modulus: Modulus,
    pub(crate) input: &'a [W],
    pub(crate) columns: usize,
    pub(crate) addend: Option<&'a [W]>,
}

/// Memory for one tile, reused by the next.
#[derive(Default)]
pub struct Scratch {
    parts: Vec<Part>,
    /// `[block of columns][image row of the band][pixel][pair row][vector][lane]`.
    packed: Vec<u32>,
    interior: Offsets,
    border: Offsets,
    /// For each output column where its offsets begin in `border`, none in the interior.
    borders: Vec<Option<usize>>,
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
    let shape = &job.weights.shape;
    let most = job
        .weights
        .blocks
        .iter()
        .map(|block| block.size)
        .max()
        .unwrap_or(1);
    // Few outputs: more vectors of columns keep the multipliers busy.
    let wide = if L == 2 && kernel.most_rows(2 * L) >= most {
        2
    } else {
        1
    };
    let nest = Nest::<W, K, L, N> {
        kernel,
        job,
        tile,
        wide,
        pair_words: wide * L * N,
        column_blocks: TILE / (wide * N),
        block_words: shape.band_pixels() * shape.pixel_pairs.len() * wide * L * N,
    };
    nest.run(output, scratch);
}

struct Nest<'a, W, K, const L: usize, const N: usize> {
    kernel: K,
    job: &'a Job<'a, W>,
    tile: usize,
    /// Vectors of columns in a block of columns; each has `L` vectors of limbs.
    wide: usize,
    /// Packed words of a pair row.
    pair_words: usize,
    /// Packed words of a block of columns.
    block_words: usize,
    /// Blocks of columns in a tile.
    column_blocks: usize,
}

impl<W: Word, K: Kernel<N>, const L: usize, const N: usize> Nest<'_, W, K, L, N> {
    #[inline(always)]
    fn run(&self, output: &mut [W], scratch: &mut Scratch) {
        let shape = &self.job.weights.shape;
        let words = self.column_blocks * self.block_words;
        let start = scratch.reserve(words);
        self.list_parts(&mut scratch.parts);
        self.clear_zero_pixel(&mut scratch.packed[start..][..words]);
        let mut sums = Sums([0; SUMS]);
        let mut new_rows = shape.image_rows(0);
        for out_y in 0..shape.output[0] {
            for y in new_rows.clone() {
                self.pack_row(y, &mut scratch.packed[start..][..words]);
            }
            self.list_offsets(out_y, scratch);
            let kernel_rows = shape.kernel_rows(out_y);
            let pairs = kernel_rows.start * shape.kernel_row_pairs()
                ..kernel_rows.end * shape.kernel_row_pairs();
            for column_block in 0..self.column_blocks {
                let packed = &scratch.packed[start + column_block * self.block_words..];
                let band = Band {
                    packed: &packed[..self.block_words],
                    scratch,
                    pairs: pairs.clone(),
                    out_y,
                    column_block,
                };
                self.row_of_positions(&band, &mut sums, output);
            }
            new_rows = self.rows_after(out_y, new_rows.end);
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

    /// Cuts the blocks of outputs to the kernel's size.
    fn list_parts(&self, parts: &mut Vec<Part>) {
        let most = self.kernel.most_rows(self.wide * L);
        parts.clear();
        for (block, whole) in self.job.weights.blocks.iter().enumerate() {
            parts.extend(split(whole.size, most).map(|outputs| Part { block, outputs }));
        }
    }

    fn clear_zero_pixel(&self, packed: &mut [u32]) {
        let shape = &self.job.weights.shape;
        if shape.has_zero_pixel() {
            let words = shape.pixel_pairs.len() * self.pair_words;
            for block in packed.chunks_exact_mut(self.block_words) {
                block[self.block_words - words..].fill(0);
            }
        }
    }

    /// The first packed word of an image row's pixel.
    #[inline(always)]
    fn pixel_at(&self, y: usize, pixel: usize) -> usize {
        let shape = &self.job.weights.shape;
        let pixel = y % shape.band_rows * shape.row_pixels + pixel;
        pixel * shape.pixel_pairs.len() * self.pair_words
    }

    /// Packs one image row of all channels for all blocks of columns.
    #[inline(always)]
    fn pack_row(&self, y: usize, packed: &mut [u32]) {
        let shape = &self.job.weights.shape;
        let mut parts = [[W::from_u64(0); TILE]; 2];
        let mut at = self.pixel_at(y, 0);
        let pairs = &shape.pixel_pairs[..];
        let mut ahead = (FETCH_AHEAD / pairs.len(), FETCH_AHEAD % pairs.len());
        for pixel in 0..shape.row_pixels {
            for &pair in pairs {
                if ahead.0 < shape.row_pixels {
                    let [first, second] = shape.sources(y, ahead.0, pairs[ahead.1]);
                    self.fetch(first);
                    self.fetch(second);
                }
                ahead.1 += 1;
                if ahead.1 == pairs.len() {
                    ahead = (ahead.0 + 1, 0);
                }
                let sources = shape.sources(y, pixel, pair);
                let [part0, part1] = &mut parts;
                let first = self.tile_of_row(sources[0], part0);
                let second = self.tile_of_row(sources[1], part1);
                self.pack_pair(first, second, at, packed);
                at += self.pair_words;
            }
        }
    }

    /// Begins to load this tile's words of an input row, if it has all of them.
    #[inline(always)]
    fn fetch(&self, row: Option<usize>) {
        let begin = self.tile * TILE;
        let row = row.map(|row| &self.job.input[row * self.job.columns..][..self.job.columns]);
        if let Some(words) = row.and_then(|row| row[begin..].first_chunk::<TILE>()) {
            self.kernel.fetch(words);
        }
    }

    /// The words of an input row in this tile; `part` holds them where the tile is not full.
    #[inline(always)]
    fn tile_of_row<'b>(&'b self, row: Option<usize>, part: &'b mut [W; TILE]) -> &'b [W; TILE] {
        let (begin, columns) = (self.tile * TILE, self.job.columns);
        let row = row.map(|row| &self.job.input[row * columns..][..columns]);
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
        for column_block in 0..self.column_blocks {
            let block = &mut packed[column_block * self.block_words..];
            let block = block[at..][..self.pair_words].as_chunks_mut::<N>().0;
            for (limbs, (first, second)) in block.chunks_exact_mut(L).zip(&mut vectors) {
                lanes::pack::<W, L, N>(&self.job.modulus, first, second, limbs);
            }
        }
    }

    /// Lists the pair rows under each position of an output row: one list for all of the
    /// interior, shifted by the position, and one list each where padding is met on the left or
    /// right. Kernel rows in padding are left out.
    fn list_offsets(&self, out_y: usize, scratch: &mut Scratch) {
        let shape = &self.job.weights.shape;
        scratch.interior.clear();
        scratch.border.clear();
        scratch.borders.clear();
        self.push_offsets(out_y, 0, &mut scratch.interior);
        for out_x in 0..shape.output[1] {
            let start = shape.start(out_x);
            let interior = shape.is_interior(start);
            scratch
                .borders
                .push((!interior).then_some(scratch.border.len()));
            if !interior {
                self.push_offsets(out_y, start, &mut scratch.border);
            }
        }
    }

    fn push_offsets(&self, out_y: usize, start: i64, offsets: &mut Offsets) {
        let shape = &self.job.weights.shape;
        let zero = self.block_words - shape.pixel_pairs.len() * self.pair_words;
        for tap_h in shape.kernel_rows(out_y) {
            let y = shape.geometry.window.index(0, out_y, tap_h);
            for tap_w in 0..shape.taps_w {
                let pixel = shape.pixel(start, tap_w);
                let first = pixel.map_or(zero, |pixel| self.pixel_at(y, pixel));
                for pair in 0..shape.group_pairs {
                    offsets.push((first + pair * self.pair_words) as u32);
                }
            }
        }
    }

    #[inline(always)]
    fn row_of_positions(&self, band: &Band<'_>, sums: &mut Sums, output: &mut [W]) {
        let weights = self.job.weights;
        let parts = &band.scratch.parts;
        let positions = weights.shape.output[1];
        let by_position = weights.words.len() <= CACHED_WEIGHTS;
        let (outer, inner) = if by_position {
            (positions, parts.len())
        } else {
            (parts.len(), positions)
        };
        for i in 0..outer {
            for j in 0..inner {
                let (out_x, part) = if by_position { (i, j) } else { (j, i) };
                self.part(band, out_x, &parts[part], sums, output);
            }
        }
    }

    /// Some outputs of a block at one position.
    #[inline(always)]
    fn part(&self, band: &Band<'_>, out_x: usize, part: &Part, sums: &mut Sums, output: &mut [W]) {
        let weights = self.job.weights;
        let shape = &weights.shape;
        let block = &weights.blocks[part.block];
        let group_at = block.group * shape.group_pairs * self.pair_words;
        let call = match band.scratch.borders[out_x] {
            Some(begin) => Call {
                offsets: &band.scratch.border,
                begin,
                data: &band.packed[group_at..],
                weights: weights.block_words(block, &band.pairs),
            },
            None => {
                let pixel = shape.start(out_x) as usize * shape.pixel_pairs.len();
                Call {
                    offsets: &band.scratch.interior,
                    begin: 0,
                    data: &band.packed[pixel * self.pair_words + group_at..],
                    weights: weights.block_words(block, &band.pairs),
                }
            }
        };
        let outputs = part.outputs.clone();
        if block.is_one_chunk() {
            self.one_chunk(band, &call, block, (outputs, out_x), sums, output);
        } else {
            self.many_chunks(band, &call, block, (outputs, out_x), sums, output);
        }
    }

    #[inline(always)]
    fn one_chunk(
        &self,
        band: &Band<'_>,
        call: &Call<'_>,
        block: &Block,
        (outputs, out_x): (Range<usize>, usize),
        sums: &mut Sums,
        output: &mut [W],
    ) {
        self.multiply(call, 0..band.pairs.len(), block, outputs.clone(), sums);
        let modulus = &self.job.modulus;
        let vectors = sums.0.as_chunks::<N>().0;
        for (index, row) in outputs.enumerate() {
            let sums = &vectors[index * self.wide * L..][..self.wide * L];
            let row = self.output_row(band, block, row, out_x);
            let addend = self.addend(row);
            let out = self.output_words(band, row, output);
            for (sums, out) in sums.chunks_exact(L).zip(out) {
                lanes::reduce::<W, L, N>(modulus, sums, &addend, out);
            }
        }
    }

    #[inline(always)]
    fn many_chunks(
        &self,
        band: &Band<'_>,
        call: &Call<'_>,
        block: &Block,
        (outputs, out_x): (Range<usize>, usize),
        sums: &mut Sums,
        output: &mut [W],
    ) {
        let mut totals = [0_i64; SUMS];
        let used = outputs.len() * self.pair_words;
        for chunk in block.chunks(&band.pairs) {
            let steps = chunk.start - band.pairs.start..chunk.end - band.pairs.start;
            self.multiply(call, steps, block, outputs.clone(), sums);
            for (total, &sum) in totals[..used].iter_mut().zip(&sums.0[..used]) {
                *total += i64::from(sum);
            }
        }
        let modulus = &self.job.modulus;
        let vectors = totals.as_chunks::<N>().0;
        for (index, row) in outputs.enumerate() {
            let totals = &vectors[index * self.wide * L..][..self.wide * L];
            let row = self.output_row(band, block, row, out_x);
            let addend = self.addend(row);
            let out = self.output_words(band, row, output);
            for (totals, out) in totals.chunks_exact(L).zip(out) {
                lanes::reduce_chunks::<W, L, N>(modulus, totals, &addend, out);
            }
        }
    }

    /// The sums of `outputs` of a block over `steps` of the call's offsets.
    #[inline(always)]
    fn multiply(
        &self,
        call: &Call<'_>,
        steps: Range<usize>,
        block: &Block,
        outputs: Range<usize>,
        sums: &mut Sums,
    ) {
        let weights = &call.weights[steps.start * block.size..steps.end * block.size];
        let steps = Steps::<N>::new(
            call.offsets,
            call.begin + steps.start..call.begin + steps.end,
            call.data,
            self.wide * L,
            weights,
            block.size,
            outputs,
        );
        self.kernel.run(steps, sums);
    }

    #[inline(always)]
    fn output_row(&self, band: &Band<'_>, block: &Block, output: usize, out_x: usize) -> usize {
        let [out_h, out_w] = self.job.weights.shape.output;
        ((block.first + output) * out_h + band.out_y) * out_w + out_x
    }

    #[inline(always)]
    fn addend(&self, row: usize) -> [i32; L] {
        let addend = self.job.addend.map_or(0, |addend| addend[row].to_u64());
        self.job.modulus.limbs(addend)
    }

    /// The words of an output row in the band's block of columns.
    #[inline(always)]
    fn output_words<'b>(
        &self,
        band: &Band<'_>,
        row: usize,
        output: &'b mut [W],
    ) -> &'b mut [[W; N]] {
        let columns = self.wide * N;
        let at = row * TILE + band.column_block * columns;
        output[at..][..columns].as_chunks_mut().0
    }
}

/// Outputs of one block that one kernel call computes.
struct Part {
    block: usize,
    outputs: Range<usize>,
}

/// One row of output positions of one block of columns.
struct Band<'a> {
    packed: &'a [u32],
    scratch: &'a Scratch,
    /// The pairs of weights whose kernel rows are not in padding.
    pairs: Range<usize>,
    out_y: usize,
    column_block: usize,
}

/// What all outputs of a block read at one position.
struct Call<'a> {
    offsets: &'a Offsets,
    begin: usize,
    data: &'a [u32],
    weights: &'a [u32],
}

impl Scratch {
    /// Makes room for `words` packed words from the returned index on, where a cache line begins.
    fn reserve(&mut self, words: usize) -> usize {
        const LINE: usize = 16;
        if self.packed.len() < words + LINE {
            self.packed = vec![0; words + LINE];
        }
        let start = self.packed.as_ptr().align_offset(LINE * size_of::<u32>());
        start.min(LINE)
    }
}
