//! Convolutions of words modulo `q` by small weights, at the coefficients of a [`Layout`].
//!
//! Where there are many coefficients, what the taps read is laid out row by row and multiplied as
//! in the batch engine ([`pronghorn_product`]), in 16-bit limbs. Where there are few, as in dense
//! layers, outputs go side by side: words, which are below `2^60`, are cut into two halves of 30
//! bits, whose products with weights are added up in 64 bits, exactly, since a row of weights has
//! `sum |w| < 2^32`. One reduction a coefficient comes at the end.

use std::ops::Range;

use pronghorn_graph::{fixed::Linear, geometry::ConvGeometry};
use pronghorn_plan::steps::linear::coefficient::Layout;
use pronghorn_product::{PackedWeights, Scratch, TILE};
use pronghorn_ring::{Prime, SimdLevel, Word};
use rayon::prelude::*;

use super::simd;

/// Bits of the low half of a word.
const HALF: u32 = 30;

/// From so many columns on they are multiplied side by side.
const MANY: usize = 8;

/// Outputs of one column that a thread takes.
const OUTPUTS: usize = 256;

/// A layer's weights by tap. The server's secret: no Debug.
pub struct Weights {
    groups: usize,
    /// Output channels of a group.
    outputs: usize,
    /// Taps of an output.
    taps: usize,
    /// `[group][tap][output]`.
    words: Vec<i32>,
    /// The same of each group for the matrix product.
    packed: Vec<PackedWeights>,
    /// By `[group][tap]`: where in an image's tile the output at exponent 0 reads.
    offsets: Vec<usize>,
    /// Words from a polynomial to the next.
    extent: usize,
    /// Polynomials of a tile.
    polynomials: usize,
}

/// Columns that are written together: those of a line of the cache.
const COLUMNS: usize = 16;

/// `to` = the rows of `from`, of `columns` numbers each, as columns.
fn transpose(from: &[i16], columns: usize, to: &mut [i32]) {
    let rows = from.len() / columns;
    let pieces = to.par_chunks_mut(COLUMNS * rows).enumerate();
    pieces.for_each(|(piece, to)| {
        for (row, from) in from.chunks(columns).enumerate() {
            let from = from[piece * COLUMNS..].iter();
            for (to, &number) in to[row..].iter_mut().step_by(rows).zip(from) {
                *to = number.into();
            }
        }
    });
}

impl Weights {
    /// Lays weights out. None where they are not as many as the geometry has, one does not fit 16
    /// bits, or a row's sum of absolute values reaches 2^32.
    pub fn new(layer: &Linear, layout: &Layout) -> Option<Self> {
        let geometry = layout.geometry();
        let taps = geometry.row_len();
        if layer.geometry != *geometry || layer.weights.len() != geometry.weights_len() {
            return None;
        }
        let norm = |row: &[i16]| row.iter().map(|w| u64::from(w.unsigned_abs())).sum::<u64>();
        let rows = layer.weights.par_chunks(taps);
        if rows.any(|row| norm(row) >> 32 != 0) {
            return None;
        }
        let ([outputs, inputs], groups) = (layout.group(), geometry.groups);
        let group = outputs * taps;
        let dense = ConvGeometry::dense(taps, outputs);
        let packed = layer.weights.par_chunks(group);
        let packed = packed.map(|group| PackedWeights::new(&dense, group).ok());
        let packed = packed.collect::<Option<_>>()?;
        let mut words = vec![0; layer.weights.len()];
        let by_group = words.par_chunks_mut(group);
        by_group
            .zip(layer.weights.par_chunks(group))
            .for_each(|(words, group)| transpose(group, taps, words));
        let last = layout.sites(0).last()?.position as usize;
        let extent = last + 1;
        let kernel = geometry.window.kernel;
        let offset = |tap: usize| {
            let (channel, tap) = (tap / (kernel[0] * kernel[1]), tap % (kernel[0] * kernel[1]));
            let (polynomial, at) = layout.tap(channel, [tap / kernel[1], tap % kernel[1]]);
            polynomial * extent + at
        };
        let all = inputs * groups * kernel[0] * kernel[1];
        Some(Self {
            groups,
            outputs,
            taps,
            words,
            packed,
            offsets: (0..all).map(offset).collect(),
            extent,
            polynomials: layout.polynomials(),
        })
    }

    /// Words of a tile of an image: `[polynomial][position]`.
    pub fn tile_words(&self) -> usize {
        self.extent * self.polynomials
    }

    /// Words of a polynomial of a tile.
    pub fn extent(&self) -> usize {
        self.extent
    }

    /// The sums of all output channels at `columns`, each the place in `input` of an output's
    /// coefficient in its tile's first polynomial: `[output channel][column]`.
    pub fn multiply<W: Word>(&self, q: &Prime<W>, input: &[W], columns: &[usize]) -> Vec<W> {
        self.multiply_at(SimdLevel::detect(), q, input, columns)
    }

    /// [`Weights::multiply`] at a SIMD level.
    pub fn multiply_at<W: Word>(
        &self,
        level: SimdLevel,
        q: &Prime<W>,
        input: &[W],
        columns: &[usize],
    ) -> Vec<W> {
        let mut all = vec![W::default(); self.groups * self.outputs * columns.len()];
        if columns.len() >= MANY {
            self.multiply_columns(level, q, input, columns, &mut all);
        } else {
            let groups = all.par_chunks_exact_mut(self.outputs * columns.len());
            groups.enumerate().for_each(|(group, all)| {
                self.group_outputs(level, q, group, input, columns, all);
            });
        }
        all
    }

    /// A group's weights `[tap][output]` and offsets.
    fn group(&self, group: usize) -> (&[i32], &[usize]) {
        let size = self.taps * self.outputs;
        (
            &self.words[group * size..][..size],
            &self.offsets[group * self.taps..][..self.taps],
        )
    }

    /// Columns side by side, in blocks of [`TILE`].
    fn multiply_columns<W: Word>(
        &self,
        level: SimdLevel,
        q: &Prime<W>,
        input: &[W],
        columns: &[usize],
        all: &mut [W],
    ) {
        let blocks: Vec<_> = columns.chunks(TILE).map(runs).collect();
        let count = blocks.len();
        let room = || (Scratch::default(), vec![W::default(); self.taps * TILE]);
        let products: Vec<Vec<W>> = (0..self.groups * count)
            .into_par_iter()
            .map_init(room, |(scratch, rows), block| {
                let (group, runs) = (block / count, &blocks[block % count]);
                let (_, offsets) = self.group(group);
                for (row, &offset) in rows.chunks_exact_mut(TILE).zip(offsets) {
                    let mut rest = &mut row[..];
                    for run in runs {
                        let (words, after) = rest.split_at_mut(run.len());
                        words.copy_from_slice(&input[run.start + offset..run.end + offset]);
                        rest = after;
                    }
                }
                let mut out = vec![W::default(); self.outputs * TILE];
                let weights = &self.packed[group];
                pronghorn_product::multiply_tile_at(
                    level, weights, q, rows, None, &mut out, scratch,
                );
                out
            })
            .collect();
        all.par_chunks_exact_mut(columns.len())
            .enumerate()
            .for_each(|(row, words)| {
                let (group, output) = (row / self.outputs, row % self.outputs);
                let products = &products[group * count..][..count];
                for (part, product) in words.chunks_mut(TILE).zip(products) {
                    let width = part.len();
                    part.copy_from_slice(&product[output * TILE..][..width]);
                }
            });
    }

    /// Outputs side by side, for a few columns.
    fn group_outputs<W: Word>(
        &self,
        level: SimdLevel,
        q: &Prime<W>,
        group: usize,
        input: &[W],
        columns: &[usize],
        all: &mut [W],
    ) {
        let (weights, offsets) = self.group(group);
        for (place, &column) in columns.iter().enumerate() {
            let halves = offsets.iter().map(|&offset| halve(input[column + offset]));
            let (low, high): (Vec<i32>, Vec<i32>) = halves.map(|[low, high]| (low, high)).unzip();
            all.par_chunks_mut(OUTPUTS * columns.len())
                .enumerate()
                .for_each(|(chunk, rows)| {
                    let count = rows.len() / columns.len();
                    let (mut sum_low, mut sum_high) = (vec![0; count], vec![0; count]);
                    let first = chunk * OUTPUTS;
                    simd::column(
                        level,
                        &low,
                        &high,
                        weights,
                        self.outputs,
                        first,
                        &mut sum_low,
                        &mut sum_high,
                    );
                    let sums = sum_low.iter().zip(&sum_high);
                    for (row, (&low, &high)) in rows.chunks_exact_mut(columns.len()).zip(sums) {
                        row[place] = reduce(q, low, high);
                    }
                });
        }
    }
}

/// Columns one after the other as ranges.
fn runs(columns: &[usize]) -> Vec<Range<usize>> {
    let mut runs: Vec<Range<usize>> = Vec::new();
    for &column in columns {
        match runs.last_mut() {
            Some(run) if run.end == column => run.end += 1,
            _ => runs.push(column..column + 1),
        }
    }
    runs
}

/// A word below `2^60` as its low and its high bits.
#[inline(always)]
fn halve<W: Word>(word: W) -> [i32; 2] {
    let word = word.to_u64();
    [(word & ((1 << HALF) - 1)) as i32, (word >> HALF) as i32]
}

/// `low + 2^HALF high mod q`.
#[inline(always)]
fn reduce<W: Word>(q: &Prime<W>, low: i64, high: i64) -> W {
    // `2^HALF` may be no residue modulo primes of 31 bits and less.
    let half = q.from_i64(1 << HALF);
    q.add(q.from_i64(low), q.mul(q.from_i64(high), half))
}

/// [`Weights::multiply`] as it is defined: tap by tap, with a reduction each.
pub fn multiply_reference<W: Word>(
    layer: &Linear,
    layout: &Layout,
    q: &Prime<W>,
    word: impl Fn(usize, usize) -> W,
    exponent: usize,
    output: usize,
) -> W {
    let [outputs, inputs] = layout.group();
    let kernel = layer.geometry.window.kernel;
    let row = &layer.weights[output * layer.geometry.row_len()..];
    let mut sum = W::default();
    for channel in 0..inputs {
        for y in 0..kernel[0] {
            for x in 0..kernel[1] {
                let (polynomial, at) = layout.tap(output / outputs * inputs + channel, [y, x]);
                let weight = row[(channel * kernel[0] + y) * kernel[1] + x];
                let product = q.mul(word(polynomial, at + exponent), q.from_i64(weight.into()));
                sum = q.add(sum, product);
            }
        }
    }
    sum
}
