//! A layer with its weights, and its evaluation.

use std::sync::Arc;

use pronghorn_he::bfv::{
    Ciphertext, EvaluationKeys, Factor, Multiplier, Products, Rotation, rotated_products,
};
use rayon::prelude::*;

use super::{
    Packing, SlotError,
    axis::Row,
    cost::Counts,
    layout::{Chain, InputChannel, Product, Sum},
    packing::count,
};

/// A layer whose weights are prepared for products.
pub struct Layer {
    packing: Arc<Packing>,
    /// `[band][output]`.
    weights: Vec<Vec<Weights>>,
}

/// Of an output: `[sum][product]`, those that are swapped last.
enum Weights {
    /// Of inputs as they are.
    Still(Products<u64>),
    /// Of rotations of inputs.
    Rotated(Vec<Vec<Multiplier<u64>>>),
}

/// The operations of an evaluation.
type Done = Counts;

impl Layer {
    /// Encodes and transforms weights `[out channel][channel of the group][kernel
    /// height][kernel width]`: once a model, whoever its users are.
    ///
    /// # Errors
    /// When there are more or fewer weights.
    pub fn prepare<W: Copy + Into<i64>>(
        packing: Arc<Packing>,
        weights: &[W],
    ) -> Result<Self, SlotError> {
        let expected = packing.geometry().weights_len();
        count("weights", weights.len(), expected)?;
        let residues: Vec<u64> = weights
            .iter()
            .map(|&weight| packing.t.from_i64(weight.into()))
            .collect();
        let every: Vec<(usize, usize)> = (0..packing.layout.bands.len())
            .flat_map(|band| (0..packing.chains.len()).map(move |output| (band, output)))
            .collect();
        let prepared: Vec<_> = every
            .into_par_iter()
            .map(|(band, output)| packing.weights(band, output, &residues))
            .collect::<Result<_, _>>()?;
        let mut prepared = prepared.into_iter();
        let weights = packing
            .layout
            .bands
            .iter()
            .map(|_| prepared.by_ref().take(packing.chains.len()).collect())
            .collect();
        Ok(Self { packing, weights })
    }

    /// The layer without its weights.
    pub fn packing(&self) -> &Arc<Packing> {
        &self.packing
    }

    /// Bytes that prepared weights take.
    pub fn bytes(&self) -> usize {
        let parameters = self.packing.parameters();
        let limbs = match self.packing.rotates_inputs() {
            true => parameters.ring().basis().limbs(),
            false => parameters.limbs(),
        };
        let words = limbs * parameters.n();
        self.packing.counts().products * words * size_of::<u64>()
    }

    /// Output ciphertexts, to be hidden before they are sent. On rayon's current threads. Time
    /// depends on sizes alone.
    ///
    /// # Errors
    /// When there are more or fewer inputs, they are of other parameters, or a key is not there.
    pub fn evaluate(
        &self,
        inputs: &[Ciphertext<u64>],
        keys: Option<&EvaluationKeys<u64>>,
    ) -> Result<Vec<Ciphertext<u64>>, SlotError> {
        Ok(self.evaluate_counted(inputs, keys)?.0)
    }

    /// [`evaluate`](Self::evaluate), and what it did.
    ///
    /// # Errors
    /// As there.
    pub fn evaluate_counted(
        &self,
        inputs: &[Ciphertext<u64>],
        keys: Option<&EvaluationKeys<u64>>,
    ) -> Result<(Vec<Ciphertext<u64>>, Counts), SlotError> {
        count("input ciphertexts", inputs.len(), self.packing.inputs())?;
        let bands = inputs
            .chunks_exact(self.packing.layout.inputs)
            .zip(&self.weights);
        let bands: Vec<_> = bands.collect();
        let done: Vec<(Vec<Ciphertext<u64>>, Done)> = bands
            .into_par_iter()
            .map(|(inputs, weights)| self.band(inputs, weights, keys))
            .collect::<Result<_, _>>()?;
        let mut counts = Counts::default();
        let mut outputs = Vec::with_capacity(self.packing.outputs());
        for (band, done) in done {
            counts.inputs += self.packing.layout.inputs;
            counts.outputs += band.len();
            counts.add(&done);
            outputs.extend(band);
        }
        Ok((outputs, counts))
    }

    fn band(
        &self,
        inputs: &[Ciphertext<u64>],
        weights: &[Weights],
        keys: Option<&EvaluationKeys<u64>>,
    ) -> Result<(Vec<Ciphertext<u64>>, Done), SlotError> {
        let chains = &self.packing.chains;
        let mut done = Counts::default();
        let ahead = if self.packing.rotates_inputs() {
            let keys = keys.ok_or(SlotError::NoKeys)?;
            Some(self.rotate_inputs(inputs, weights, keys, &mut done)?)
        } else {
            None
        };
        let inputs: Vec<&Ciphertext<u64>> = inputs.iter().collect();
        let finished: Vec<(Ciphertext<u64>, Done)> = match ahead {
            Some(ahead) => {
                let outputs = chains.par_iter().zip(ahead);
                outputs
                    .map(|(chain, sums)| self.finish(chain, sums, keys))
                    .collect::<Result<_, _>>()?
            }
            None => {
                let outputs = chains.par_iter().zip(weights);
                outputs
                    .map(|(chain, weights)| {
                        let mut done = Counts::default();
                        let sums = self.multiply(&inputs, chain, weights, &mut done)?;
                        let (output, more) = self.finish(chain, sums, keys)?;
                        done.add(&more);
                        Ok((output, done))
                    })
                    .collect::<Result<_, SlotError>>()?
            }
        };
        let mut outputs = Vec::with_capacity(finished.len());
        for (output, more) in finished {
            done.add(&more);
            outputs.push(output);
        }
        Ok((outputs, done))
    }

    /// All sums of all chains, of inputs that are rotated once for all of them.
    fn rotate_inputs(
        &self,
        inputs: &[Ciphertext<u64>],
        weights: &[Weights],
        keys: &EvaluationKeys<u64>,
        done: &mut Done,
    ) -> Result<Vec<[Vec<Ciphertext<u64>>; 2]>, SlotError> {
        let chains = &self.packing.chains;
        let rotations = self.packing.rotations();
        let mut rows = Vec::new();
        for (chain, weights) in chains.iter().zip(weights) {
            let Weights::Rotated(weights) = weights else {
                continue;
            };
            for (sum, weights) in chain.sums.iter().flatten().zip(weights) {
                let mut row = vec![Factor::Zero; rotations.len()];
                for (product, weight) in sum.products.iter().zip(weights) {
                    let rotation = (product.input, product.step);
                    let place = rotations
                        .binary_search(&rotation)
                        .expect("rotations are those of all products");
                    row[place] = Factor::Times(weight);
                }
                done.sum(row.iter().filter(|f| matches!(f, Factor::Times(_))).count());
                rows.push(row);
            }
        }
        done.rotate_inputs(&rotations);
        let inputs: Vec<&Ciphertext<u64>> = inputs.iter().collect();
        let every: Vec<Rotation> = rotations
            .iter()
            .map(|&(input, step)| Rotation::left(input, step))
            .collect();
        let mut sums = rotated_products(&inputs, &every, &rows, keys)?.into_iter();
        let of_chain = |chain: &Chain| {
            let mut take = |count: usize| sums.by_ref().take(count).collect::<Vec<_>>();
            [take(chain.sums[0].len()), take(chain.sums[1].len())]
        };
        Ok(chains.iter().map(of_chain).collect())
    }

    /// The sums of a chain, of inputs as they are.
    fn multiply(
        &self,
        inputs: &[&Ciphertext<u64>],
        chain: &Chain,
        weights: &Weights,
        done: &mut Done,
    ) -> Result<[Vec<Ciphertext<u64>>; 2], SlotError> {
        let Weights::Still(products) = weights else {
            return Err(SlotError::NoKeys);
        };
        let sums = chain.sums.iter().flatten();
        sums.for_each(|sum| done.sum(sum.products.len()));
        let mut sums = products.of(inputs)?;
        let swapped = sums.split_off(chain.sums[0].len());
        Ok([sums, swapped])
    }

    /// Giant steps by Horner's rule, the swap, and the fold.
    fn finish(
        &self,
        chain: &Chain,
        sums: [Vec<Ciphertext<u64>>; 2],
        keys: Option<&EvaluationKeys<u64>>,
    ) -> Result<(Ciphertext<u64>, Done), SlotError> {
        let mut done = Counts::default();
        let mut parts = Vec::new();
        for (places, sums) in chain.sums.iter().zip(sums) {
            let mut last: Option<(Ciphertext<u64>, i64)> = None;
            let places = places.iter().map(|sum| sum.giant);
            for (giant, mut sum) in places.zip(sums).rev() {
                if let Some((so_far, from)) = last {
                    sum.add_assign(&self.rotate(&so_far, from - giant, keys, &mut done)?)?;
                    done.additions += 1;
                }
                last = Some((sum, giant));
            }
            parts.push(match last {
                Some((sum, giant)) => {
                    Some(self.rotate(&sum, giant - chain.base, keys, &mut done)?)
                }
                None => None,
            });
        }
        let swapped = match parts.pop().flatten() {
            Some(part) => Some(self.swap(&part, keys, &mut done)?),
            None => None,
        };
        let mut output = match (parts.pop().flatten(), swapped) {
            (Some(mut part), Some(swapped)) => {
                part.add_assign(&swapped)?;
                done.additions += 1;
                part
            }
            (Some(part), None) | (None, Some(part)) => part,
            // No weights at all.
            (None, None) => Products::new(self.packing.parameters(), &[Vec::new()])?
                .of(&[])?
                .swap_remove(0),
        };
        let (folds, swap) = self.packing.layout.folds();
        for step in folds {
            let rotated = self.rotate(&output, step, keys, &mut done)?;
            output.add_assign(&rotated)?;
            done.additions += 1;
        }
        if swap {
            let swapped = self.swap(&output, keys, &mut done)?;
            output.add_assign(&swapped)?;
            done.additions += 1;
        }
        Ok((output, done))
    }

    fn rotate(
        &self,
        x: &Ciphertext<u64>,
        step: i64,
        keys: Option<&EvaluationKeys<u64>>,
        done: &mut Done,
    ) -> Result<Ciphertext<u64>, SlotError> {
        let step = self.packing.reduced(step);
        if step == 0 {
            return Ok(x.clone());
        }
        done.rotate_output(step);
        Ok(x.rotate(step, keys.ok_or(SlotError::NoKeys)?)?)
    }

    fn swap(
        &self,
        x: &Ciphertext<u64>,
        keys: Option<&EvaluationKeys<u64>>,
        done: &mut Done,
    ) -> Result<Ciphertext<u64>, SlotError> {
        done.swap();
        Ok(x.swap_rows(keys.ok_or(SlotError::NoKeys)?)?)
    }
}

impl Packing {
    /// Steps in `0 .. N / 2`.
    pub(super) fn reduced(&self, step: i64) -> i64 {
        step.rem_euclid(self.layout.row as i64)
    }

    /// Of each input, by input and step.
    fn rotations(&self) -> Vec<(usize, i64)> {
        let sums = self
            .chains
            .iter()
            .flat_map(|chain| chain.sums.iter().flatten());
        let products = sums.flat_map(|sum| &sum.products);
        let mut rotations: Vec<_> = products
            .map(|product| (product.input, product.step))
            .collect();
        rotations.sort_unstable();
        rotations.dedup();
        rotations
    }

    fn rotates_inputs(&self) -> bool {
        self.counts().input_rotations > 0
    }

    /// Those of an output ciphertext.
    fn weights(&self, band: usize, output: usize, weights: &[u64]) -> Result<Weights, SlotError> {
        let [still, swapped] = &self.chains[output].sums;
        let sums = still.iter().map(|sum| (false, sum));
        let sums = sums.chain(swapped.iter().map(|sum| (true, sum)));
        let multipliers = |(swapped, sum): (bool, &Sum)| {
            let products = sum.products.iter();
            let multipliers = products.map(|product| {
                let slots = self.slots(band, output, (swapped, sum.giant), product, weights);
                Ok((product.input, self.parameters.multiplier(&slots)?))
            });
            multipliers.collect::<Result<Vec<_>, SlotError>>()
        };
        let every = sums.map(multipliers).collect::<Result<Vec<_>, _>>()?;
        if !self.rotates_inputs() {
            return Ok(Weights::Still(Products::new(&self.parameters, &every)?));
        }
        let alone = |(_, multiplier)| multiplier;
        let every = every.into_iter();
        Ok(Weights::Rotated(
            every
                .map(|sum| sum.into_iter().map(alone).collect())
                .collect(),
        ))
    }

    /// What a product is multiplied with, slot by slot.
    fn slots(
        &self,
        band: usize,
        output: usize,
        (swapped, giant): (bool, i64),
        product: &Product,
        weights: &[u64],
    ) -> Vec<i32> {
        let layout = &self.layout;
        let mut slots = vec![0; 2 * layout.row];
        for &part in &product.parts {
            for place in 0..2 * layout.blocks {
                let (row, block) = (place / layout.blocks, place % layout.blocks);
                let found = layout.pair(output, (row, block), swapped, (product.input, part));
                let Some((out, input)) = found else {
                    continue;
                };
                let geometry = &layout.geometry;
                let channel = input.channel % (geometry.in_channels / geometry.groups);
                let [height, width] = geometry.window.kernel;
                let first = out * geometry.row_len() + channel * height * width;
                let kernel = &weights[first..][..height * width];
                let row = (row ^ usize::from(swapped)) * layout.row;
                let start = (block * layout.variant.block) as i64 + giant;
                self.kernel_values(band, kernel, input, part.shifts, |slot, value| {
                    slots[row + self.reduced(start + slot as i64) as usize] = value;
                });
            }
        }
        slots
    }

    /// The factors of a pair of channels, at every position of a band that has one.
    fn kernel_values(
        &self,
        band: usize,
        kernel: &[u64],
        input: InputChannel,
        shifts: [usize; 2],
        mut put: impl FnMut(usize, i32),
    ) {
        let (t, layout) = (&self.t, &self.layout);
        let [down, across] =
            [0, 1].map(|axis| &self.maps[axis].weight[input.virtuals[axis]][shifts[axis]]);
        let (positions, width) = (layout.axes[1].positions, layout.geometry.window.kernel[1]);
        let (mut line, mut of) = (vec![0; width], usize::MAX);
        for (slot, position) in layout.bands[band].clone().enumerate() {
            let (y, x) = (position / positions, position % positions);
            if down[y].is_empty() || across[x].is_empty() {
                continue;
            }
            if y != of {
                of = y;
                for (tap, out) in line.iter_mut().enumerate() {
                    *out = combine(t, &down[y], |row| kernel[row * width + tap]);
                }
            }
            put(
                slot,
                t.centre(combine(t, &across[x], |tap| line[tap])) as i32,
            );
        }
    }
}

fn combine(t: &pronghorn_ring::Prime<u64>, row: &Row, x: impl Fn(usize) -> u64) -> u64 {
    row.iter().fold(0, |sum, &(index, c)| match c {
        1 => t.add(sum, x(index)),
        c => t.add(sum, t.mul(c, x(index))),
    })
}
