//! Places of values in slots, and the products and rotations that follow from them, from sizes
//! alone.
//!
//! Slots are two rows that rotate alike. A row is `blocks` blocks of `block` slots; a block holds
//! positions of one channel, in both inputs and outputs. Positions that do not fit a block are
//! split into bands, each with ciphertexts of its own; where the server rotates along the height,
//! bands of inputs overlap (halos).
//!
//! Which channels lie in block `g` of a row decides how many rotations there are. Inputs take the
//! low bits of `g`, `g mod c_i`, outputs the high ones, `g / (blocks / c_o)`. With
//! `c_i c_o = blocks` one product is of all pairs of them, and none needs a rotation: the extended
//! diagonals of Gazelle's hybrid method (section V-F) with the partial sums beside each other. With
//! more of them, bits overlap, and `c_i c_o / blocks` rotations by multiples of `blocks / c_o`
//! blocks bring each pair together once: the diagonal method, and diagonal grouping of convolutions
//! (section VI-D), where `c_i = c_o = blocks`. Partial sums stay where they are: both parties add
//! up their shares of them. Gazelle rotates and adds ([`Variant::fold`]), which reveals no less, as
//! every slot is masked.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Range,
};

use pronghorn_graph::geometry::ConvGeometry;
use serde::{Deserialize, Serialize};

use super::{
    SlotError,
    axis::{Axis, Taps},
};

/// Most products of a layer in a variant.
const MOST_PRODUCTS: u64 = 1 << 21;
/// Most pairs of blocks that are looked at to find them.
const MOST_LOOKS: u64 = 1 << 30;
/// Most values of a channel along an axis, copies counted.
const MOST_LINES: u64 = 1 << 22;

/// The use of the two rows: rotations leave them apart, and only [`Rows::Swap`] swaps them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Rows {
    /// Inputs are in both rows; each row has outputs of its own.
    Outputs,
    /// Each row has inputs of its own; both have a partial sum of every output.
    Inputs,
    /// Each row has inputs and outputs of its own; half of the products are in the other row, and
    /// are swapped, once an output ciphertext.
    Swap,
}

/// One way of computing a layer.
#[derive(Clone, PartialEq, Eq, Debug, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Variant {
    /// Slots of a block, a power of two of at most a row.
    pub block: usize,
    /// Down and right.
    pub taps: [Taps; 2],
    /// Distinct input channels in the blocks of a row, phases and copies counted: a power of two.
    pub inputs: usize,
    /// Distinct output channels in the blocks of a row: a power of two.
    pub outputs: usize,
    /// The rows.
    pub rows: Rows,
    /// The number of consecutive diagonals that are rotations of inputs (baby steps); the others
    /// are rotations of sums (giant steps). A power of two: one for no input rotations, as many as
    /// there are for no output rotations.
    pub baby: usize,
    /// True if the server adds partial sums up, by rotations.
    pub fold: bool,
}

/// A product of an input's rotation with weights.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Product {
    pub input: usize,
    /// Slots to the left, in `0 .. row`.
    pub step: i64,
    /// Taps and diagonals that this rotation serves, seldom more than one; no slot is of two.
    pub parts: Vec<Part>,
}

/// A tap of a diagonal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Part {
    /// By how many blocks inputs are to the right of outputs.
    pub blocks: usize,
    /// Which shift of each axis.
    pub shifts: [usize; 2],
}

/// A sum of products, which is then rotated.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Sum {
    /// Slots to the left.
    pub giant: i64,
    pub products: Vec<Product>,
}

/// An output ciphertext of a band.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Chain {
    /// Where slot 0 of the outputs comes to lie.
    pub base: i64,
    /// By giant step, ascending; then those that are swapped.
    pub sums: [Vec<Sum>; 2],
}

/// A channel in a block of an input.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct InputChannel {
    pub channel: usize,
    pub virtuals: [usize; 2],
}

/// The sizes of a layer in a variant.
#[derive(Clone, Debug)]
pub(super) struct Layout {
    pub geometry: ConvGeometry,
    pub variant: Variant,
    pub output: [usize; 2],
    pub axes: [Axis; 2],
    /// Slots of a row.
    pub row: usize,
    /// Blocks of a row.
    pub blocks: usize,
    /// Positions of outputs in a block, by band.
    pub bands: Vec<Range<usize>>,
    /// By how many positions a band of inputs begins after that of outputs, by axis.
    leads: [i64; 2],
    /// Input ciphertexts of a band.
    pub inputs: usize,
    /// Output ciphertexts of a band.
    pub outputs: usize,
    /// Phases and copies of a channel, and room for more that is left empty.
    virtuals: usize,
}

impl Layout {
    /// # Errors
    /// When the variant does not go with the layer: [`SlotError::Variant`] names the field.
    pub fn new(
        geometry: &ConvGeometry,
        variant: &Variant,
        degree: usize,
    ) -> Result<Self, SlotError> {
        let output = geometry.output()?;
        let row = degree / 2;
        let power =
            |field, value: usize, limit: usize| match value.is_power_of_two() && value <= limit {
                true => Ok(value),
                false => Err(SlotError::Variant {
                    field,
                    value,
                    limit,
                }),
            };
        let block = power("block", variant.block, row)?;
        let blocks = row / block;
        power("inputs", variant.inputs, blocks)?;
        power("outputs", variant.outputs, blocks)?;
        let axis = |axis: usize| {
            let none = SlotError::Taps {
                axis,
                taps: variant.taps[axis],
            };
            Axis::new(geometry, output[axis], axis, variant.taps[axis]).ok_or(none)
        };
        let axes = [axis(0)?, axis(1)?];
        let (bands, leads) = bands(&axes, block).ok_or(SlotError::Variant {
            field: "block",
            value: block,
            limit: row,
        })?;
        let mut virtuals = axes[0].virtuals * axes[1].virtuals;
        if geometry.groups > 1 {
            virtuals = virtuals.next_power_of_two();
        }
        let [input_rows, output_rows] = variant.rows.each();
        let channels = geometry.in_channels * virtuals;
        let layout = Self {
            geometry: geometry.clone(),
            output,
            row,
            blocks,
            bands,
            leads,
            inputs: channels.div_ceil(variant.inputs * input_rows),
            outputs: geometry
                .out_channels
                .div_ceil(variant.outputs * output_rows),
            virtuals,
            axes,
            variant: variant.clone(),
        };
        power("baby", variant.baby, layout.diagonals())?;
        layout.check_work()?;
        Ok(layout)
    }

    /// Refuses what would take long to lay out, before it is: variants may come from a hostile
    /// peer.
    fn check_work(&self) -> Result<(), SlotError> {
        let product = |sizes: &[usize]| {
            let product = sizes.iter().map(|&size| size as u64);
            product.fold(1, u64::saturating_mul)
        };
        let shifts = self.axes[0].shifts.len() * self.axes[1].shifts.len();
        let products = product(&[self.outputs, self.inputs, self.diagonals(), shifts]);
        let looks = products.saturating_mul(product(&[shifts, 2 * self.blocks]));
        let lines = self.axes.iter().map(|axis| axis.virtuals * axis.positions);
        let checks = [
            ("products", products, MOST_PRODUCTS),
            ("looks at weights", looks, MOST_LOOKS),
            (
                "values of an axis",
                lines.max().unwrap_or(0) as u64,
                MOST_LINES,
            ),
        ];
        match checks.into_iter().find(|&(_, found, most)| found > most) {
            Some((what, found, most)) => Err(SlotError::TooLarge { what, found, most }),
            None => Ok(()),
        }
    }

    /// Rotations, none included, that bring each pair of channels together.
    pub fn diagonals(&self) -> usize {
        (self.variant.inputs * self.variant.outputs / self.blocks).max(1)
    }

    /// Blocks from a diagonal to the next.
    fn diagonal(&self) -> usize {
        self.blocks / self.variant.outputs
    }

    /// Positions of a channel.
    pub fn positions(&self) -> usize {
        self.axes[0].positions * self.axes[1].positions
    }

    /// Virtual channels of all inputs.
    pub fn virtual_channels(&self) -> usize {
        self.geometry.in_channels * self.axes[0].virtuals * self.axes[1].virtuals
    }

    /// What is in a block of an input.
    pub fn input_channel(&self, input: usize, row: usize, block: usize) -> Option<InputChannel> {
        let [rows, _] = self.variant.rows.each();
        let index = (input * rows + row % rows) * self.variant.inputs + block % self.variant.inputs;
        let (channel, virtual_) = (index / self.virtuals, index % self.virtuals);
        let across = self.axes[1].virtuals;
        let exists =
            channel < self.geometry.in_channels && virtual_ < self.axes[0].virtuals * across;
        exists.then_some(InputChannel {
            channel,
            virtuals: [virtual_ / across, virtual_ % across],
        })
    }

    /// What is in a block of an output, a partial sum of it at least.
    pub fn output_channel(&self, output: usize, row: usize, block: usize) -> Option<usize> {
        let [_, rows] = self.variant.rows.each();
        let wide = self.diagonal();
        // Blocks of which neither inputs nor outputs take the bits would count twice.
        let counts = block % wide < self.variant.inputs;
        let channel = (output * rows + row % rows) * self.variant.outputs + block / wide;
        (counts && channel < self.geometry.out_channels).then_some(channel)
    }

    /// True if the output channel in a block is complete there after [`Variant::fold`].
    pub fn folded(&self, row: usize, block: usize) -> bool {
        let whole = self.variant.rows != Rows::Inputs || row == 0;
        whole && block.is_multiple_of(self.diagonal())
    }

    /// How far a fold rotates, in turn, and whether it swaps.
    pub fn folds(&self) -> (Vec<i64>, bool) {
        if !self.variant.fold {
            return (Vec::new(), false);
        }
        let parts = self.diagonal().min(self.variant.inputs);
        let steps = (0..parts.ilog2()).map(|bit| (self.variant.block << bit) as i64);
        (steps.collect(), self.variant.rows == Rows::Inputs)
    }

    /// What position a slot of a block holds in a band of the inputs.
    pub fn input_position(&self, band: usize, slot: usize) -> Option<usize> {
        let position = (self.bands[band].start + slot) as i64 + self.leads.iter().sum::<i64>();
        (0..self.positions() as i64)
            .contains(&position)
            .then_some(position as usize)
    }

    /// The chains of all outputs; those of all bands are alike.
    pub fn chains(&self) -> Vec<Chain> {
        let width = self.axes[1].positions as i64;
        let diagonals = self.diagonals();
        let baby = self.variant.baby;
        let apart = (self.diagonal() * self.variant.block) as i64;
        let mut shifts = Vec::new();
        for down in 0..self.axes[0].shifts.len() {
            for right in 0..self.axes[1].shifts.len() {
                let slots = [
                    self.axes[0].shifts[down] * width - self.leads[0],
                    self.axes[1].shifts[right] - self.leads[1],
                ];
                let part = |after: bool| {
                    let axes = self.axes.iter().zip(slots);
                    let of = axes.filter(|(axis, _)| axis.after() == after);
                    of.map(|(_, slots)| slots).sum::<i64>()
                };
                shifts.push((part(true), part(false), [down, right]));
            }
        }
        // Sums differ by their giant step; products within a sum by the baby step.
        let mut giants: Vec<(i64, usize, i64)> = Vec::new();
        for first in (0..diagonals).step_by(baby) {
            let after: BTreeSet<i64> = shifts.iter().map(|shift| shift.0).collect();
            giants.extend(
                after
                    .into_iter()
                    .map(|slots| (first as i64 * apart + slots, first, slots)),
            );
        }
        giants.sort_unstable();
        let lists = (self.geometry.groups == 1).then(|| Blocks::new(self));
        let chain = |output: usize| {
            let sums = |swapped: bool| -> Vec<Sum> {
                let sum = |&(giant, first, after): &(i64, usize, i64)| {
                    let mut products: Vec<Product> = Vec::new();
                    for input in 0..self.inputs {
                        let mut steps = BTreeMap::new();
                        for diagonal in first..first + baby {
                            let blocks = diagonal * self.diagonal();
                            for &(_, before, shifts) in shifts.iter().filter(|s| s.0 == after) {
                                let part = Part { blocks, shifts };
                                let meets = match &lists {
                                    Some(lists) => lists.meet(output, swapped, (input, part)),
                                    None => self.meets(output, swapped, input, part),
                                };
                                if meets {
                                    let step = (diagonal - first) as i64 * apart + before;
                                    let step = step.rem_euclid(self.row as i64);
                                    steps.entry(step).or_insert_with(Vec::new).push(part);
                                }
                            }
                        }
                        let product = |(step, parts)| Product { input, step, parts };
                        products.extend(steps.into_iter().map(product));
                    }
                    Sum { giant, products }
                };
                let sums = giants.iter().map(sum);
                sums.filter(|sum| !sum.products.is_empty()).collect()
            };
            let swap = self.variant.rows == Rows::Swap;
            let sums = [sums(false), if swap { sums(true) } else { Vec::new() }];
            let base = sums.iter().flatten().map(|sum| sum.giant).min();
            Chain {
                base: base.unwrap_or(0),
                sums,
            }
        };
        (0..self.outputs).map(chain).collect()
    }

    /// True if any weight is in a product.
    fn meets(&self, output: usize, swapped: bool, input: usize, part: Part) -> bool {
        let mut places = (0..2).flat_map(|row| (0..self.blocks).map(move |block| (row, block)));
        places.any(|(row, block)| {
            self.pair(output, (row, block), swapped, (input, part))
                .is_some_and(|(_, input)| {
                    (0..2)
                        .all(|axis| self.axes[axis].reads(input.virtuals[axis], part.shifts[axis]))
                })
        })
    }

    /// The output channel in a block of an output, and what a product brings there, where a weight
    /// is between them.
    pub fn pair(
        &self,
        output: usize,
        (row, block): (usize, usize),
        swapped: bool,
        (input, part): (usize, Part),
    ) -> Option<(usize, InputChannel)> {
        let out = self.output_channel(output, row, block)?;
        let from = (block + part.blocks) % self.blocks;
        let input = self.input_channel(input, row ^ usize::from(swapped), from)?;
        let ConvGeometry {
            in_channels,
            out_channels,
            groups,
            ..
        } = self.geometry;
        let same = out / (out_channels / groups) == input.channel / (in_channels / groups);
        same.then_some((out, input))
    }
}

/// The blocks of each row that have a channel, of a layer of one group: then any input channel has
/// a weight for any output channel, and two lists tell whether they meet. Looking at each pair of
/// blocks takes half a minute where a layer leaves most of its blocks empty.
///
/// Inputs repeat after [`Variant::inputs`] blocks, and lists have so many places.
struct Blocks {
    /// By output and row: whether any block at a place has a channel.
    outputs: Vec<[Vec<bool>; 2]>,
    /// By input, shift down, shift to the right, and row: those whose channels the shift reads.
    inputs: Vec<[Vec<bool>; 2]>,
    shifts: [usize; 2],
}

impl Blocks {
    fn new(layout: &Layout) -> Self {
        let (places, blocks) = (layout.variant.inputs, layout.blocks);
        let shifts = [0, 1].map(|axis| layout.axes[axis].shifts.len());
        let of_output = |output: usize| {
            let has = |row, block| layout.output_channel(output, row, block).is_some();
            let any = |row, place| {
                let mut all = (place..blocks).step_by(places);
                all.any(|block| has(row, block))
            };
            [0, 1].map(|row| (0..places).map(|place| any(row, place)).collect())
        };
        let of_input = |at: usize| {
            let (input, down) = (at / shifts[1] / shifts[0], at / shifts[1] % shifts[0]);
            let shift = [down, at % shifts[1]];
            let reads = |channel: InputChannel| {
                let axes = layout.axes.iter().zip(channel.virtuals).zip(shift);
                let mut each = axes.map(|((axis, virtual_), shift)| axis.reads(virtual_, shift));
                each.all(|reads| reads)
            };
            let has = |row, place| layout.input_channel(input, row, place).is_some_and(reads);
            [0, 1].map(|row| (0..places).map(|place| has(row, place)).collect())
        };
        Self {
            outputs: (0..layout.outputs).map(of_output).collect(),
            inputs: (0..layout.inputs * shifts[0] * shifts[1])
                .map(of_input)
                .collect(),
            shifts,
        }
    }

    /// True if any weight is in a product, as [`Layout::meets`] says.
    fn meet(&self, output: usize, swapped: bool, (input, part): (usize, Part)) -> bool {
        let [down, right] = part.shifts;
        let at = (input * self.shifts[0] + down) * self.shifts[1] + right;
        (0..2).any(|row| {
            let outputs = &self.outputs[output][row];
            let inputs = &self.inputs[at][row ^ usize::from(swapped)];
            let by = part.blocks % inputs.len();
            let turned = inputs[by..].iter().chain(&inputs[..by]);
            outputs.iter().zip(turned).any(|(&one, &other)| one & other)
        })
    }
}

impl Rows {
    /// How many rows have inputs, and outputs, of their own.
    fn each(self) -> [usize; 2] {
        match self {
            Self::Outputs => [1, 2],
            Self::Inputs => [2, 1],
            Self::Swap => [2, 2],
        }
    }
}

/// Positions of outputs by band, and by how many positions those of inputs begin later, by axis;
/// `None` where not one line of a band fits a block.
fn bands(axes: &[Axis; 2], block: usize) -> Option<(Vec<Range<usize>>, [i64; 2])> {
    let [height, width] = [axes[0].positions, axes[1].positions];
    let used = axes[0].used() * width;
    if height * width <= block {
        return Some((vec![0..used; 1], [0; 2]));
    }
    let down = axes[0].shifts[0] * width as i64;
    let (each, leads) = if axes[0].rotates() {
        let lines = (block / width).checked_sub(axes[0].span())?;
        (lines * width, [down, 0])
    } else if axes[1].rotates() {
        (block / width * width, [down, 0])
    } else {
        (block, [down, axes[1].shifts[0]])
    };
    let starts = (0..used).step_by((each > 0).then_some(each)?);
    let band = |start: usize| start..used.min(start + each);
    Some((starts.map(band).collect(), leads))
}

#[cfg(test)]
mod tests {
    use pronghorn_graph::geometry::{ConvGeometry, Window};

    use super::*;
    use crate::cost::choice::variants;

    #[test]
    fn lists_of_blocks_say_what_pairs_of_channels_say() {
        let mut strided = Window::plain([3, 3]);
        (strided.stride, strided.padding) = ([2, 2], [1, 1, 1, 1]);
        let image = |window: Window, size| ConvGeometry {
            in_channels: 3,
            out_channels: 5,
            input: size,
            window,
            groups: 1,
        };
        let layers = [
            ConvGeometry::dense(20, 7),
            ConvGeometry::dense(5, 90),
            image(strided, [8, 8]),
            image(Window::plain([3, 1]), [5, 4]),
        ];
        let mut seen = [0; 2];
        for geometry in &layers {
            for variant in variants(geometry, 256) {
                let Ok(layout) = Layout::new(geometry, &variant, 256) else {
                    continue;
                };
                let blocks = Blocks::new(&layout);
                let [down, right] = [0, 1].map(|axis| layout.axes[axis].shifts.len());
                let places = (0..layout.outputs * layout.inputs * down * right * layout.blocks)
                    .flat_map(|at| [(at, false), (at, true)]);
                for (at, swapped) in places {
                    let (at, by) = (at / layout.blocks, at % layout.blocks);
                    let (at, across) = (at / right, at % right);
                    let (at, along) = (at / down, at % down);
                    let (output, input) = (at / layout.inputs, at % layout.inputs);
                    let part = Part {
                        blocks: by,
                        shifts: [along, across],
                    };
                    let meets = blocks.meet(output, swapped, (input, part));
                    assert_eq!(meets, layout.meets(output, swapped, input, part));
                    seen[usize::from(meets)] += 1;
                }
            }
        }
        assert!(seen.iter().all(|&count| count > 1000), "{seen:?}");
    }
}
