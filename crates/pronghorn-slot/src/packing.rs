//! Values to slots and back.

use pronghorn_graph::geometry::ConvGeometry;
use pronghorn_he::bfv::{AnswerFormat, Noise, Parameters, Workload};
use pronghorn_ring::{Prime, vector};
use zeroize::Zeroizing;

use super::{
    SlotError, Variant,
    axis::{Maps, Row},
    cost::{Counts, Depth},
    layout::{Chain, Layout},
};

/// A layer in a variant without its weights: what both parties know.
pub struct Packing {
    pub(super) parameters: Parameters<u64>,
    pub(super) layout: Layout,
    pub(super) chains: Vec<Chain>,
    pub(super) maps: [Maps; 2],
    pub(super) t: Prime<u64>,
    counts: Counts,
    depth: Depth,
}

impl Packing {
    /// A layer in a variant.
    ///
    /// # Errors
    /// When the geometry is not valid, or the variant does not go with it.
    pub fn new(
        geometry: &ConvGeometry,
        variant: &Variant,
        parameters: &Parameters<u64>,
    ) -> Result<Self, SlotError> {
        let layout = Layout::new(geometry, variant, parameters.n())?;
        let t = Prime::new(parameters.t()).expect("a plaintext modulus is a prime");
        let chains = layout.chains();
        Ok(Self {
            counts: Counts::of(&layout, &chains),
            depth: Depth::of(&layout, &chains),
            maps: [0, 1].map(|axis| layout.axes[axis].maps(&t)),
            parameters: parameters.clone(),
            chains,
            layout,
            t,
        })
    }

    /// The layer.
    pub fn geometry(&self) -> &ConvGeometry {
        &self.layout.geometry
    }

    /// The variant.
    pub fn variant(&self) -> &Variant {
        &self.layout.variant
    }

    /// Of the encryption.
    pub fn parameters(&self) -> &Parameters<u64> {
        &self.parameters
    }

    /// What the slots are residues of.
    pub fn modulus(&self) -> &Prime<u64> {
        &self.t
    }

    /// Operations of one evaluation.
    pub fn counts(&self) -> &Counts {
        &self.counts
    }

    /// Rotations to the left that need keys, ascending and reduced to `1 .. N / 2`.
    pub fn steps(&self) -> Vec<i64> {
        self.counts.steps.iter().copied().collect()
    }

    /// True if the swap of rows needs a key.
    pub fn swaps(&self) -> bool {
        self.counts.swaps
    }

    /// Values of an input: channels, height, width.
    pub fn input_len(&self) -> usize {
        let ConvGeometry {
            in_channels, input, ..
        } = self.layout.geometry;
        in_channels * input[0] * input[1]
    }

    /// Values of an output.
    pub fn output_len(&self) -> usize {
        self.layout.geometry.out_channels * self.layout.output[0] * self.layout.output[1]
    }

    /// Ciphertexts of an input.
    pub fn inputs(&self) -> usize {
        self.counts.inputs
    }

    /// Ciphertexts of an output.
    pub fn outputs(&self) -> usize {
        self.counts.outputs
    }

    /// The operations on a ciphertext, for its noise.
    pub fn workload(&self) -> Workload {
        self.depth.workload(self.parameters.t().ilog2() + 1)
    }

    /// Of any output before it is hidden, whatever the weights are, when inputs are fresh.
    pub fn noise(&self) -> Noise {
        self.workload().noise(&self.parameters)
    }

    /// The shortening of answers.
    ///
    /// # Errors
    /// When the noise does not fit.
    pub fn format(&self) -> Result<AnswerFormat, SlotError> {
        let format = self.parameters.answer_format(self.noise(), self.outputs());
        Ok(format?)
    }

    /// Slots of every input ciphertext, `N` each, of values `[channel][height][width]` modulo `t`:
    /// a linear map, so that the sum of two packed shares is the packed sum. Constant time.
    ///
    /// # Errors
    /// When there are more or fewer values.
    pub fn pack(&self, values: &[i32]) -> Result<Vec<Zeroizing<Vec<i32>>>, SlotError> {
        count("values", values.len(), self.input_len())?;
        let (layout, t) = (&self.layout, &self.t);
        let geometry = &layout.geometry;
        let (channels, [height, width]) = (geometry.in_channels, geometry.input);
        // [height][width][channel]: transforms are of whole lines.
        let mut plane = Zeroizing::new(vec![0; values.len()]);
        for (channel, values) in values.chunks_exact(height * width).enumerate() {
            for (position, &value) in values.iter().enumerate() {
                plane[position * channels + channel] = t.from_i64(value.into());
            }
        }
        let positions = layout.positions();
        let planes: Vec<Vec<Zeroizing<Vec<u64>>>> = self.maps[0]
            .input
            .iter()
            .map(|down| {
                let lines = apply(t, down, &plane, width * channels);
                let across = self.maps[1].input.iter();
                across
                    .map(|across| {
                        let of_line = |line: &[u64]| apply(t, across, line, channels);
                        let mut out = Zeroizing::new(Vec::with_capacity(positions * channels));
                        lines
                            .chunks_exact(width * channels)
                            .for_each(|line| out.extend_from_slice(&of_line(line)));
                        out
                    })
                    .collect()
            })
            .collect();
        let slots = |index: usize| {
            let (band, input) = (index / layout.inputs, index % layout.inputs);
            let mut slots = Zeroizing::new(vec![0; 2 * layout.row]);
            for (place, slots) in slots.chunks_exact_mut(layout.variant.block).enumerate() {
                let (row, block) = (place / layout.blocks, place % layout.blocks);
                let Some(found) = layout.input_channel(input, row, block) else {
                    continue;
                };
                let plane = &planes[found.virtuals[0]][found.virtuals[1]];
                for (slot, out) in slots.iter_mut().enumerate() {
                    if let Some(position) = layout.input_position(band, slot) {
                        *out = t.centre(plane[position * channels + found.channel]) as i32;
                    }
                }
            }
            slots
        };
        Ok((0..self.inputs()).map(slots).collect())
    }

    /// Values `[channel][height][width]` modulo `t`, in `-t/2 .. t/2`, of the slots of every output
    /// ciphertext: a linear map, for shares too. Constant time.
    ///
    /// # Errors
    /// When there are more or fewer ciphertexts, or slots.
    pub fn unpack<S: AsRef<[i32]>>(&self, slots: &[S]) -> Result<Zeroizing<Vec<i32>>, SlotError> {
        count("output ciphertexts", slots.len(), self.outputs())?;
        let (layout, t) = (&self.layout, &self.t);
        let (channels, [height, width]) = (layout.geometry.out_channels, layout.output);
        let across = layout.axes[1].positions;
        let mut sums = Zeroizing::new(vec![0i64; layout.positions() * channels]);
        for (index, slots) in slots.iter().enumerate() {
            let (band, output) = (index / layout.outputs, index % layout.outputs);
            let slots = slots.as_ref();
            count("slots", slots.len(), 2 * layout.row)?;
            let base = self.chains[output].base.rem_euclid(layout.row as i64) as usize;
            for place in 0..2 * layout.blocks {
                let (row, block) = (place / layout.blocks, place % layout.blocks);
                let complete = !layout.variant.fold || layout.folded(row, block);
                let Some(channel) = layout.output_channel(output, row, block) else {
                    continue;
                };
                if !complete {
                    continue;
                }
                for (slot, position) in layout.bands[band].clone().enumerate() {
                    let at = (block * layout.variant.block + slot + base) % layout.row;
                    let value = slots[row * layout.row + at];
                    sums[position * channels + channel] += i64::from(value);
                }
            }
        }
        let plane = Zeroizing::new(sums.iter().map(|&sum| t.from_i64(sum)).collect::<Vec<_>>());
        let lines = apply(t, &self.maps[0].output, &plane, across * channels);
        let mut out = Zeroizing::new(vec![0; self.output_len()]);
        for (y, line) in lines.chunks_exact(across * channels).enumerate() {
            let line = apply(t, &self.maps[1].output, line, channels);
            for (x, values) in line.chunks_exact(channels).enumerate() {
                for (channel, &value) in values.iter().enumerate() {
                    out[(channel * height + y) * width + x] = t.centre(value) as i32;
                }
            }
        }
        Ok(out)
    }
}

/// `out[r] = sum of c x[i] over row r`, lines of `length` at a time.
fn apply(t: &Prime<u64>, rows: &[Row], x: &[u64], length: usize) -> Zeroizing<Vec<u64>> {
    let mut out = Zeroizing::new(vec![0; rows.len() * length]);
    for (row, out) in rows.iter().zip(out.chunks_exact_mut(length)) {
        for &(from, c) in row {
            let x = &x[from * length..][..length];
            if c == 1 {
                vector::add_assign(t, out, x);
            } else {
                vector::mul_scalar_add_assign(t, out, x, c);
            }
        }
    }
    out
}

/// Ciphertexts of an input and of an output, from sizes alone.
///
/// # Errors
/// As [`Packing::new`].
pub fn ciphertexts(
    geometry: &ConvGeometry,
    variant: &Variant,
    degree: usize,
) -> Result<[usize; 2], SlotError> {
    let layout = Layout::new(geometry, variant, degree)?;
    Ok([layout.inputs, layout.outputs].map(|count| count * layout.bands.len()))
}

pub(super) fn count(what: &'static str, found: usize, expected: usize) -> Result<(), SlotError> {
    if found == expected {
        return Ok(());
    }
    Err(SlotError::Count {
        what,
        found,
        expected,
    })
}
