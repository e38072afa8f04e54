//! The gain of an error at one value on its way to the result.

use std::collections::BTreeSet;

use rayon::prelude::*;

use super::PolyGraph;
use crate::{layout::Source, signs::Signs};

/// Random errors an image and node are tried with.
const DRAWS: usize = 16;

/// Size of the errors tried, relative to the value: small enough for the result to be linear in
/// them, large enough for double precision.
const STEP: f64 = 1e-6;

impl PolyGraph {
    /// For each node the largest standard deviation, over elements of the result and `images` of
    /// `inputs`, that errors of standard deviation 1 in every element of the node's value,
    /// independent of each other, bring to the result. Measured by random errors, the same each
    /// time; costs `16 images` evaluations of what follows each node.
    pub fn measured_gains(&self, inputs: &[f64]) -> Vec<f64> {
        let values: Vec<Vec<Vec<f64>>> = inputs
            .par_chunks(self.input_len())
            .map(|image| self.values(image))
            .collect();
        let gain = |node: usize| {
            let gains = values.par_iter().map(|values| self.gain(node, values));
            gains.reduce(|| 0.0, f64::max)
        };
        (0..self.nodes.len()).map(gain).collect()
    }

    /// The same for any inputs whose values stay within `headroom` times their reach, by the
    /// triangle inequality: with absolute weights, and standard deviations added where errors may
    /// depend on each other.
    pub fn worst_gains(&self, headroom: f64) -> Vec<f64> {
        (0..self.nodes.len())
            .map(|node| self.worst_gain(node, headroom))
            .collect()
    }

    fn worst_gain(&self, source: usize, headroom: f64) -> f64 {
        use super::PolyOp;
        // Standard deviation of each value's errors, and whether those of its elements are
        // independent.
        let mut errors = vec![(0.0f64, true); self.nodes.len()];
        errors[source] = (1.0, true);
        for index in source + 1..self.nodes.len() {
            let node = &self.nodes[index];
            let of = |place: usize| errors[node.inputs[place]].0;
            let reach = |place: usize| headroom * self.nodes[node.inputs[place]].reach;
            let independent = node.inputs.len() == 1 && errors[node.inputs[0]].1;
            errors[index] = match &node.op {
                PolyOp::Input => (0.0, true),
                PolyOp::Linear(layer) => {
                    let (norm1, norm2) = layer.norms();
                    let norm = if independent { norm2 } else { norm1 };
                    (norm / layer.divisor * of(0), false)
                }
                PolyOp::Factor(factor) => {
                    let factors = factor.factors.iter().map(|f| f.abs());
                    let most = factors.fold(0.0, f64::max);
                    (most / factor.divisor * of(0), independent)
                }
                PolyOp::Square => (2.0 * reach(0) * of(0), independent),
                PolyOp::Multiply => (reach(0) * of(1) + reach(1) * of(0), false),
                PolyOp::Add => (of(0) + of(1), false),
                PolyOp::Rearrange(sources) => {
                    let most = (0..node.inputs.len()).map(of).fold(0.0, f64::max);
                    (most, independent && !repeats(sources))
                }
            };
        }
        errors[self.output].0
    }

    /// The largest standard deviation of an element of the result over [`DRAWS`] random errors at
    /// `source`.
    fn gain(&self, source: usize, values: &[Vec<f64>]) -> f64 {
        let wanted = &values[self.output];
        let mut squares = vec![0.0; wanted.len()];
        let mut signs = Signs::new(source as u64);
        let rms = self.nodes[source].rms.max(f64::MIN_POSITIVE);
        let step = STEP * rms;
        for _ in 0..DRAWS {
            let mut moved: Vec<Option<Vec<f64>>> = vec![None; self.nodes.len()];
            let disturbed = values[source].iter().map(|x| x + step * signs.next());
            moved[source] = Some(disturbed.collect());
            for (index, node) in self.nodes.iter().enumerate().skip(source + 1) {
                if node.inputs.iter().any(|&input| moved[input].is_some()) {
                    let read = |place: usize| {
                        let input = node.inputs[place];
                        moved[input].as_ref().unwrap_or(&values[input])
                    };
                    moved[index] = Some(node.op.apply(&[], read));
                }
            }
            let Some(found) = &moved[self.output] else {
                return 0.0;
            };
            for (square, (found, wanted)) in squares.iter_mut().zip(found.iter().zip(wanted)) {
                *square += ((found - wanted) / step).powi(2);
            }
        }
        let most = squares.into_iter().fold(0.0, f64::max);
        (most / DRAWS as f64).sqrt()
    }
}

/// True if two elements of a rearrangement of one input copy one element, and its errors.
fn repeats(sources: &[Option<Source>]) -> bool {
    let copied: BTreeSet<usize> = sources
        .iter()
        .flatten()
        .map(|source| source.index)
        .collect();
    copied.len() < sources.iter().flatten().count()
}
