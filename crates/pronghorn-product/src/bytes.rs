//! Layers of small weights, laid out for a unit that multiplies matrices of bytes.
//!
//! A residue below 2^31 is four unsigned bytes and a weight a signed one, so that
//! `sum w x = sum_j 2^(8 j) sum w x_j` takes four products of byte matrices. Such a unit multiplies
//! tiles: 16 outputs by 64 inputs by 16 columns. Inputs go in *quads*, one byte of each of four in
//! a 32-bit lane, and 16 quads under each other are a tile of inputs.
//!
//! A convolution fills a tile with several positions of an output row at once, a *group*: its
//! weights are those of one position repeated, each shifted by the stride. What a group reads of an
//! image row is a *run* of quads; a group has its own copies of its runs,
//! `[group][image row][quad]`, so that all groups have the same weights and the runs under a kernel
//! stand in sequence.
//!
//! Where weights are few, packed quads are, too, and stay in a cache near the unit: those of as
//! many image rows as a kernel has. A new row takes the *slot* of the oldest. So rows under a
//! kernel are in another order for each row of outputs, and there are weights for each order.

#![cfg_attr(not(target_arch = "x86_64"), allow(dead_code))] // Only there is such a unit known.

use std::ops::Range;

use crate::TILE;
use crate::weights::{CHUNK, Shape, common_divisor};

/// Outputs, quads and columns of a tile.
pub(crate) const SIDE: usize = 16;

/// No input row, but zeros: padding.
pub(crate) const NONE: u32 = u32::MAX;

/// Most bytes of weights, in all orders of rows, beside which quads stay in a near cache.
const NEAR_WEIGHTS: usize = 256 * 1024;

/// Lines of a packed quad: one for each tile of columns and byte, and one that keeps quads from
/// meeting in the cache.
pub(crate) const QUAD_LINES: usize = TILE / SIDE * 4 + 1;

/// Most bytes of packed quads: they are to stay in a cache.
const MOST_PACKED: usize = 8 << 20;

/// Most quads of a layer: each is listed.
const MOST_QUADS: usize = 1 << 16;

/// Most positions in a group.
const MOST_POSITIONS: usize = 16;

/// A row of a tile.
#[derive(Clone, Copy)]
#[repr(align(64))]
pub(crate) struct Line(pub(crate) [i8; 64]);

/// Weights of a layer as tiles of bytes.
pub(crate) struct ByteWeights {
    /// The input rows of each quad, `[group][image row][quad of a run]`.
    quads: Vec<[u32; 4]>,
    /// Quads of a run.
    run: usize,
    /// Image rows that are read, padding included.
    image_rows: usize,
    /// Groups in an output row.
    pub(crate) groups: usize,
    /// Positions in a group.
    positions: usize,
    /// The outputs of a group.
    pub(crate) places: Vec<Place>,
    /// Tiles of quads under a kernel.
    pub(crate) depth: usize,
    /// `[order of rows][tile of outputs][tile of quads][output]`.
    tiles: Vec<Line>,
    /// Image rows of which packed quads are kept.
    slots: usize,
    /// Slots from one order of rows to the next; all of them where there is one order.
    order_slots: usize,
    /// Lines of all packed quads.
    pub(crate) packed_lines: usize,
    /// Image rows under a kernel.
    kernel_rows: usize,
    /// The largest sum of an output's absolute weights.
    pub(crate) norm: u32,
    stride: usize,
    output: [usize; 2],
}

/// An output of a group.
#[derive(Clone, Copy)]
pub(crate) struct Place {
    /// Its output row, if the group is the first of the first row of positions.
    row: usize,
    /// Its position in the group.
    position: usize,
}

/// How the positions of an output row are put together.
#[derive(Clone, Copy)]
struct Grouping {
    positions: usize,
    groups: usize,
    run: usize,
    tiles: [usize; 2],
}

impl Grouping {
    fn new(shape: &Shape, positions: usize) -> Self {
        let (geometry, window) = (&shape.geometry, &shape.geometry.window);
        let pixels = (positions - 1) * window.stride[1] + window.kernel[1];
        let run = (pixels * geometry.in_channels).div_ceil(4);
        let outputs = positions * geometry.out_channels;
        Self {
            positions,
            groups: shape.output[1].div_ceil(positions),
            run,
            tiles: [
                outputs.div_ceil(SIDE),
                (run * window.kernel[0]).div_ceil(SIDE),
            ],
        }
    }

    /// Cycles for an output row and 16 columns: 16 for each product of tiles, 32 to pack a quad
    /// from memory, as measured.
    fn cycles(&self, shape: &Shape) -> usize {
        let products = 4 * self.tiles[0] * self.tiles[1];
        let window = &shape.geometry.window;
        let new_rows = window.stride[0].min(window.kernel[0]);
        self.groups * (products * SIDE + self.run * new_rows * 32)
    }
}

impl ByteWeights {
    /// Lays out the weights, given in ONNX order; none where they do not fit bytes or their sums 32
    /// bits, or the layer is of a form that this is not for.
    pub(crate) fn new(shape: &Shape, weights: &[i16]) -> Option<Self> {
        let (geometry, window) = (&shape.geometry, &shape.geometry.window);
        let fits = weights.iter().all(|&weight| i8::try_from(weight).is_ok());
        let per_output = weights.len() / geometry.out_channels;
        let norm = |weights: &[i16]| weights.iter().map(|w| u64::from(w.unsigned_abs())).sum();
        let norms = weights.chunks_exact(per_output).map(norm);
        let largest: u64 = norms.max().unwrap_or(0);
        if !fits || largest > u64::from(CHUNK) || geometry.groups != 1 || window.dilation != [1, 1]
        {
            return None;
        }
        let most = shape.output[1].min(MOST_POSITIONS);
        let all = (1..=most).map(|positions| Grouping::new(shape, positions));
        let best = all.min_by_key(|grouping| grouping.cycles(shape))?;
        let kernel_rows = window.kernel[0];
        let image_rows = (shape.output[0] - 1) * window.stride[0] + kernel_rows;
        let quads = image_rows
            .saturating_mul(best.groups)
            .saturating_mul(best.run);
        let tiles = best.tiles[0] * best.tiles[1] * SIDE;
        // Orders of rows repeat after as many rows as a kernel has.
        let order_slots = common_divisor(window.stride[0], kernel_rows);
        let all_orders = kernel_rows / order_slots;
        let is_near = all_orders * tiles * size_of::<Line>() <= NEAR_WEIGHTS;
        let (slots, order_slots) = match is_near {
            true => (kernel_rows, order_slots),
            false => (image_rows, image_rows),
        };
        let orders = if is_near { all_orders } else { 1 };
        let packed_quads = best.groups.saturating_mul(slots).saturating_mul(best.run);
        // The last tile of quads may reach beyond them; weights are zero there.
        let packed_lines = packed_quads.saturating_add(SIDE).saturating_mul(QUAD_LINES);
        if quads > MOST_QUADS || packed_lines > MOST_PACKED / size_of::<Line>() {
            return None;
        }
        let mut packed = Self {
            quads: Vec::with_capacity(quads),
            run: best.run,
            image_rows,
            groups: best.groups,
            positions: best.positions,
            places: (0..geometry.out_channels)
                .flat_map(|channel| (0..best.positions).map(move |position| (channel, position)))
                .map(|(channel, position)| Place {
                    row: channel * shape.output[0] * shape.output[1] + position,
                    position,
                })
                .collect(),
            depth: best.tiles[1],
            tiles: vec![Line([0; 64]); orders * tiles],
            slots,
            order_slots,
            packed_lines,
            kernel_rows,
            norm: largest as u32,
            stride: window.stride[0],
            output: shape.output,
        };
        packed.list_quads(shape);
        for order in 0..orders {
            packed.set_weights(shape, weights, order);
        }
        Some(packed)
    }

    /// True if products of tiles, some of whose weights are zero, are faster than instructions on
    /// vectors: two of those a cycle multiply 32 words. Not where few outputs share what is packed:
    /// a first convolution with 5 maps is a fifth slower.
    pub(crate) fn is_worthwhile(&self, shape: &Shape) -> bool {
        let (geometry, window) = (&shape.geometry, &shape.geometry.window);
        let per_output = window.kernel.iter().product::<usize>() * geometry.in_channels;
        let vectors = self.output[1] * geometry.out_channels * per_output / 2;
        Grouping::new(shape, self.positions).cycles(shape) < vectors * 3 / 4
    }

    /// Tiles of outputs of a group.
    pub(crate) fn output_tiles(&self) -> usize {
        self.places.len().div_ceil(SIDE)
    }

    /// The slot of the first image row under the kernel for an output row.
    fn first_slot(&self, out_y: usize) -> usize {
        out_y * self.stride % self.slots
    }

    /// The weights of a tile of outputs for an output row.
    pub(crate) fn tile_of_outputs(&self, out_y: usize, tile: usize) -> &[Line] {
        let order = self.first_slot(out_y) / self.order_slots;
        let tile = order * self.output_tiles() + tile;
        &self.tiles[tile * self.depth * SIDE..][..self.depth * SIDE]
    }

    /// The image rows that a row of outputs needs and those before it did not.
    pub(crate) fn new_rows(&self, out_y: usize) -> Range<usize> {
        let begin = out_y * self.stride;
        let known = match out_y {
            0 => 0,
            _ => begin - self.stride + self.kernel_rows,
        };
        begin.max(known)..begin + self.kernel_rows
    }

    /// The quads of a group's image row, and the place of the first among the packed ones.
    pub(crate) fn row_of_quads(&self, group: usize, y: usize) -> (&[[u32; 4]], usize) {
        let quads = &self.quads[(group * self.image_rows + y) * self.run..][..self.run];
        (quads, (group * self.slots + y % self.slots) * self.run)
    }

    /// The first packed quad under the kernel for a group of an output row.
    pub(crate) fn first_quad(&self, out_y: usize, group: usize) -> usize {
        // Slots of a kernel's rows alone are all under it, in whatever order.
        let slot = self.first_slot(out_y).min(self.slots - self.kernel_rows);
        (group * self.slots + slot) * self.run
    }

    /// The output row of an output of a group; none beyond the last position.
    #[inline(always)]
    pub(crate) fn output_row(&self, out_y: usize, group: usize, output: Place) -> Option<usize> {
        let start = group * self.positions;
        let [_, width] = self.output;
        (start + output.position < width).then_some(output.row + out_y * width + start)
    }

    /// Output rows in all positions.
    pub(crate) fn output_height(&self) -> usize {
        self.output[0]
    }

    fn list_quads(&mut self, shape: &Shape) {
        let geometry = &shape.geometry;
        let ([height, width], window) = (geometry.input, &geometry.window);
        let [top, left, ..] = window.padding;
        for group in 0..self.groups {
            let start = group * self.positions * window.stride[1];
            for y in 0..self.image_rows {
                let row = |place: usize| {
                    let (x, channel) = (place / geometry.in_channels, place % geometry.in_channels);
                    let x = (start + x).checked_sub(left).filter(|&x| x < width);
                    let y = y.checked_sub(top).filter(|&y| y < height);
                    match (x, y) {
                        (Some(x), Some(y)) => ((channel * height + y) * width + x) as u32,
                        _ => NONE,
                    }
                };
                self.quads.extend(
                    (0..self.run).map(|quad| std::array::from_fn(|part| row(4 * quad + part))),
                );
            }
        }
    }

    /// Sets the weights for one order of rows: the kernel's first row stands in a later slot.
    fn set_weights(&mut self, shape: &Shape, weights: &[i16], order: usize) {
        let (first_slot, first_tile) = (order * self.order_slots, order * self.output_tiles());
        let (geometry, window) = (&shape.geometry, &shape.geometry.window);
        let [kernel_h, kernel_w] = window.kernel;
        for (index, &weight) in weights.iter().enumerate() {
            let (index, x) = (index / kernel_w, index % kernel_w);
            let (index, y) = (index / kernel_h, index % kernel_h);
            let (channel, input) = (index / geometry.in_channels, index % geometry.in_channels);
            for position in 0..self.positions {
                let output = channel * self.positions + position;
                let place = (position * window.stride[1] + x) * geometry.in_channels + input;
                let slot = (y + first_slot) % kernel_h;
                let (quad, part) = (slot * self.run + place / 4, place % 4);
                let tile = (first_tile + output / SIDE) * self.depth + quad / SIDE;
                let Line(line) = &mut self.tiles[tile * SIDE + output % SIDE];
                line[4 * (quad % SIDE) + part] = weight as i8;
            }
        }
    }
}
