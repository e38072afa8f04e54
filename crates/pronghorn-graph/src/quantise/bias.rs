//! Bias correction: what rounding does to a layer's results on average is taken off its biases.
//!
//! Layer after layer, on the same images: the mean of each channel of the float network, less that
//! of the integer network whose layers before are corrected already. Rounding errors of weights do
//! not average out, since inputs have means that are not zero.
//!
//! Source: Nagel et al., "Data-Free Quantization Through Weight Equalization and Bias Correction",
//! ICCV 2019, section 4.2, here with the actual means of both networks.

use rayon::prelude::*;

use super::{builder::Scaled, linear::Part};
use crate::{
    fixed::{FixedGraph, FixedOp, Interval},
    oracle::Evaluator,
};

/// Images of one value.
type Images = Vec<Vec<i32>>;

/// Biases of layers, by node.
type Biases = Vec<(usize, Vec<i32>)>;

/// Corrects the biases of `scaled` so that on the images in `inputs` (integers of its input) the
/// means of channels are `means`, by node of the float graph. Where a value would leave 32 bits,
/// nothing changes.
pub(super) fn correct(scaled: &mut Scaled, means: &[Vec<f64>], inputs: &[i32]) {
    let Some(biases) = corrected(scaled, means, inputs) else {
        return;
    };
    let mut graph = scaled.graph.clone();
    for (index, bias) in biases {
        if let FixedOp::Linear(linear) = &mut graph.nodes[index].op {
            linear.bias = bias;
        }
    }
    if derive_ranges(&mut graph).is_some() {
        scaled.graph = graph;
    }
}

/// All biases, corrected; `None` where one leaves 32 bits.
fn corrected(scaled: &Scaled, means: &[Vec<f64>], inputs: &[i32]) -> Option<Biases> {
    let graph = &scaled.graph;
    let evaluator = Evaluator::new(graph);
    let mut layers = scaled.layers.iter();
    let mut values: Vec<Images> = vec![Vec::new(); graph.nodes.len()];
    values[0] = inputs
        .chunks(graph.input().len())
        .map(<[i32]>::to_vec)
        .collect();
    let images = values[0].len();
    let mut biases = Vec::new();
    // Sums of the high digits, where a layer is cut in two.
    let mut high: Vec<f64> = Vec::new();
    for (index, node) in graph.nodes.iter().enumerate().skip(1) {
        let of_image = |image: usize| {
            let inputs: Vec<&[i32]> = node
                .inputs
                .iter()
                .map(|&input| values[input][image].as_slice())
                .collect();
            evaluator.node(index, &inputs)
        };
        let mut found: Vec<Vec<i64>> = (0..images).into_par_iter().map(of_image).collect();
        if let FixedOp::Linear(linear) = &node.op {
            let layer = layers.next()?;
            let channels = linear.bias.len();
            let mut found_means = channel_means(&found, channels);
            let shifts = match layer.part {
                Part::High => {
                    high = found_means;
                    vec![0; channels]
                }
                Part::Whole => shifts(&found_means, &means[layer.node], &layer.fractions),
                Part::Low(bits) => {
                    let unit = f64::from(bits).exp2();
                    let sums = found_means.iter_mut().zip(&high);
                    sums.for_each(|(low, high)| *low += high * unit);
                    shifts(&found_means, &means[layer.node], &layer.fractions)
                }
            };
            let bias = linear.bias.iter().zip(&shifts);
            let corrected = |(&bias, &shift): (&i32, &i64)| {
                let sum = i64::from(bias).checked_add(shift)?;
                i32::try_from(sum).ok()
            };
            let bias = bias.map(corrected);
            biases.push((index, bias.collect::<Option<_>>()?));
            found.par_iter_mut().for_each(|image| {
                let plane = image.len() / channels;
                let planes = image.chunks_mut(plane).zip(&shifts);
                planes.for_each(|(plane, shift)| plane.iter_mut().for_each(|x| *x += shift));
            });
        }
        let narrow = |image: Vec<i64>| {
            let words = image.into_iter().map(|x| i32::try_from(x).ok());
            words.collect::<Option<Vec<i32>>>()
        };
        values[index] = found.into_par_iter().map(narrow).collect::<Option<_>>()?;
        for read in evaluator.read_last(index) {
            values[read] = Vec::new();
        }
    }
    Some(biases)
}

/// Means over images and places.
fn channel_means(found: &[Vec<i64>], channels: usize) -> Vec<f64> {
    let count: usize = found.iter().map(|image| image.len() / channels).sum();
    let channel = |channel: usize| {
        let sums = found.iter().map(|image| {
            let plane = image.len() / channels;
            image[channel * plane..][..plane].iter().sum::<i64>()
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
