//! Bias correction: what rounding does to a layer's results on average is taken off its biases.
//!
//! Layer after layer, on the same images: the mean of each channel of the float network, less that
//! of the integer network whose layers before are corrected already. Rounding errors of weights do
//! not average out, since inputs have means that are not zero.
//!
//! Source: Nagel et al., "Data-Free Quantization Through Weight Equalization and Bias Correction",
//! ICCV 2019, section 4.2, here with the actual means of both networks.

use std::mem;

use rayon::prelude::*;

use super::builder::Scaled;
use crate::{
    fixed::{FixedGraph, FixedOp, Interval},
    oracle::{Evaluator, Images},
};

/// Biases of layers, by node.
type Biases = Vec<(usize, Vec<i32>)>;

/// Corrects the biases of `scaled` so that on the images in `inputs` (integers of its input) the
/// means of channels are `means`, by node of the float graph. Where a value would leave 32 bits,
/// nothing changes.
pub(super) fn correct(scaled: &mut Scaled, means: &[Vec<f64>], inputs: &[i32]) {
    let Some(biases) = corrected(scaled, means, inputs) else {
        return;
    };
    let graph = &mut scaled.graph;
    let ranges: Vec<_> = graph
        .nodes
        .iter()
        .map(|node| (node.value.low, node.value.high))
        .collect();
    let replaced = with_biases(graph, biases);
    if derive_ranges(graph).is_none() {
        with_biases(graph, replaced);
        for (node, range) in graph.nodes.iter_mut().zip(ranges) {
            (node.value.low, node.value.high) = range;
        }
    }
}

/// Gives layers other biases; returns theirs.
fn with_biases(graph: &mut FixedGraph, mut biases: Biases) -> Biases {
    for (index, bias) in &mut biases {
        if let FixedOp::Linear(linear) | FixedOp::Constants(linear) = &mut graph.nodes[*index].op {
            mem::swap(&mut linear.bias, bias);
        }
    }
    biases
}

/// All biases, corrected; `None` where one leaves 32 bits, or a value does, corrected or not.
fn corrected(scaled: &Scaled, means: &[Vec<f64>], inputs: &[i32]) -> Option<Biases> {
    let graph = &scaled.graph;
    let evaluator = Evaluator::new(graph);
    let mut layers = scaled.layers.iter();
    let mut values: Vec<Images> = vec![Vec::new(); graph.nodes.len()];
    values[0] = inputs
        .chunks(graph.input().len())
        .map(<[i32]>::to_vec)
        .collect();
    let mut biases = Vec::new();
    // Means of the digits above the lowest ones, where a layer is cut. Empty elsewhere.
    let mut above: Vec<f64> = Vec::new();
    for (index, node) in graph.nodes.iter().enumerate().skip(1) {
        let mut found = evaluator.node(index, &mut values).ok()?;
        if let Some(linear) = node.op.linear() {
            let layer = layers.next()?;
            let channels = linear.bias.len();
            let mut found_means = channel_means(&found, channels);
            let shifts = match layer.left_shift {
                0 => {
                    let sums = found_means.iter_mut().zip(mem::take(&mut above));
                    sums.for_each(|(low, above)| *low += above);
                    match layer.keeps_biases {
                        true => vec![0; channels],
                        false => shifts(&found_means, &means[layer.node], &layer.fractions),
                    }
                }
                left_shift => {
                    let unit = f64::from(left_shift).exp2();
                    above.resize(channels, 0.0);
                    let sums = above.iter_mut().zip(&found_means);
                    sums.for_each(|(above, found)| *above += found * unit);
                    vec![0; channels]
                }
            };
            let bias = linear.bias.iter().zip(&shifts);
            let corrected = |(&bias, &shift): (&i32, &i64)| {
                let sum = i64::from(bias).checked_add(shift)?;
                i32::try_from(sum).ok()
            };
            let bias = bias.map(corrected);
            biases.push((index, bias.collect::<Option<_>>()?));
            let moved = found.par_iter_mut().map(|image| moved(image, &shifts));
            moved.collect::<Option<()>>()?;
        }
        values[index] = found;
    }
    Some(biases)
}

/// Adds a shift to each channel; `None` where one leaves 32 bits.
fn moved(image: &mut [i32], shifts: &[i64]) -> Option<()> {
    let plane = image.len() / shifts.len();
    for (plane, &shift) in image.chunks_mut(plane).zip(shifts) {
        let shift = i32::try_from(shift).ok()?;
        let mut overflows = false;
        for x in plane {
            let (sum, wraps) = x.overflowing_add(shift);
            (*x, overflows) = (sum, overflows | wraps);
        }
        if overflows {
            return None;
        }
    }
    Some(())
}

/// Means over images and places.
fn channel_means(found: &[Vec<i32>], channels: usize) -> Vec<f64> {
    let count: usize = found.iter().map(|image| image.len() / channels).sum();
    let channel = |channel: usize| {
        let sums = found.iter().map(|image| {
            let plane = image.len() / channels;
            let values = image[channel * plane..][..plane].iter();
            values.map(|&value| i64::from(value)).sum::<i64>()
        });
        sums.sum::<i64>() as f64 / count as f64
    };
    (0..channels).into_par_iter().map(channel).collect()
}

/// What each channel's bias lacks; nothing where the float network's means are of other channels,
/// as those of constants an element.
fn shifts(found: &[f64], wanted: &[f64], fractions: &[i32]) -> Vec<i64> {
    let shift = |((found, wanted), fraction): ((&f64, &f64), &i32)| {
        (wanted * f64::from(*fraction).exp2() - found).round() as i64
    };
    match wanted.len() == found.len() {
        true => found.iter().zip(wanted).zip(fractions).map(shift).collect(),
        false => vec![0; found.len()],
    }
}

/// Proves all ranges anew; `None` where one leaves 32 bits.
fn derive_ranges(graph: &mut FixedGraph) -> Option<()> {
    for index in 1..graph.nodes.len() {
        let (low, high) = graph
            .bounds(&graph.nodes[index])
            .ok()
            .and_then(Interval::fit)?;
        let value = &mut graph.nodes[index].value;
        (value.low, value.high) = (low, high);
    }
    Some(())
}
