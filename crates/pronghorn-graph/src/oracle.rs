//! The oracle: the fixed-point graph evaluated plainly, written to be read.
//!
//! Every secure run must give exactly these integers. Each operator is a loop over its definition
//! in 64 bits, and every value is checked against its proven range. Only images run in parallel.

use rayon::prelude::*;
use thiserror::Error;

use crate::{
    convolution::{Longs, Shorts, Words, convolve},
    fixed::{
        ActivationOp, Finish, FixedError, FixedGraph, FixedNode, FixedOp, Linear, LocalOp,
        ValueSpec, scalar,
    },
    float,
    geometry::Window,
    layout::{self, Source},
};

/// Why the oracle has no answer.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum OracleError {
    /// An input value that is no number.
    #[error("input value {position} (image {image}) is {value}: inputs must be finite numbers")]
    NotFinite {
        /// Position among all values.
        position: usize,
        /// The image it belongs to.
        image: usize,
        /// Its value, as text.
        value: String,
    },
    /// The inputs are not a whole batch.
    #[error(
        "{found} input values given; {images} images of shape {shape:?} need {}",
        images.saturating_mul(shape.iter().product())
    )]
    Inputs {
        /// Values given.
        found: usize,
        /// Images.
        images: usize,
        /// Shape of one image.
        shape: Vec<usize>,
    },
    /// The graph is not one.
    #[error(transparent)]
    Graph(#[from] FixedError),
    /// A value outside its proven range: an error in Pronghorn, or inputs that were not clamped.
    #[error(
        "node {node} computes {value}, outside its proven range {low}..={high}; if inputs come from \
         quantise_input, please report this model"
    )]
    Range {
        /// Name of the node.
        node: String,
        /// What it computed.
        value: i64,
        /// The range's end.
        low: i32,
        /// The range's other end.
        high: i32,
    },
}

impl OracleError {
    /// The same of values that stand behind `images` images of `elements` values.
    #[must_use]
    pub fn behind(self, images: usize, elements: usize) -> Self {
        match self {
            Self::NotFinite {
                position,
                image,
                value,
            } => Self::NotFinite {
                position: position + images * elements,
                image: image + images,
                value,
            },
            other => other,
        }
    }
}

/// The input's integers, `floor(x * 2^f + 1/2)` clamped to the input's range, and how many had to
/// be clamped; for any number of images.
///
/// # Errors
/// When a value is infinite or NaN.
pub fn quantise_input(spec: &ValueSpec, values: &[f32]) -> Result<(Vec<i32>, usize), OracleError> {
    check_finite(spec, values)?;
    let scale = f64::from(spec.fraction_bits).exp2();
    let mut clamped = 0u32;
    let mut total = 0;
    let mut integers = vec![0; values.len()];
    for (integers, values) in integers.chunks_mut(1 << 16).zip(values.chunks(1 << 16)) {
        for (integer, &value) in integers.iter_mut().zip(values) {
            let (nearest, moved) = nearest_integer(spec, f64::from(value) * scale);
            clamped += u32::from(moved);
            *integer = nearest;
        }
        total += std::mem::take(&mut clamped) as usize;
    }
    Ok((integers, total))
}

/// # Errors
/// When a value of some images is infinite or NaN.
pub(crate) fn check_finite(spec: &ValueSpec, values: &[f32]) -> Result<(), OracleError> {
    // Without an early end, which compilers turn into vector code.
    let finite = |all, value: &f32| all & value.is_finite();
    if values.iter().fold(true, finite) {
        return Ok(());
    }
    let position = values.iter().position(|value| !value.is_finite());
    let position = position.unwrap_or(0);
    Err(OracleError::NotFinite {
        position,
        image: position / spec.len().max(1),
        value: values[position].to_string(),
    })
}

/// The nearest integer to a number, the upper of two, clamped to the range; and whether it had to
/// be clamped.
#[inline]
pub(crate) fn nearest_integer(spec: &ValueSpec, number: f64) -> (i32, bool) {
    let (low, high) = (f64::from(spec.low), f64::from(spec.high));
    let moved = number + 0.5;
    let clamped = (moved < low) | (moved >= high + 1.0);
    let integer = spec.low.wrapping_add(floor(moved.max(low).min(high) - low));
    (integer, clamped)
}

/// The floor of a number in `0..2^32`, modulo 2^32: in additions only, which compilers turn into
/// vector code where `f64::floor` and a conversion are calls and branches.
fn floor(number: f64) -> i32 {
    // Above 2^52 floating-point numbers are the integers.
    const INTEGERS: f64 = (1u64 << 52) as f64;
    let nearest = (number + INTEGERS) - INTEGERS;
    let floor = nearest - if nearest > number { 1.0 } else { 0.0 };
    (floor + INTEGERS).to_bits() as i32
}

/// The result's integers for `batch` images, one after the other in `inputs`; results likewise.
///
/// # Errors
/// When the graph is inconsistent, `inputs` does not hold `batch` images, or a value leaves its
/// proven range.
pub fn evaluate(graph: &FixedGraph, inputs: &[i32], batch: usize) -> Result<Vec<i32>, OracleError> {
    graph.validate()?;
    let spec = graph.input();
    if spec.len().checked_mul(batch) != Some(inputs.len()) {
        let (found, shape) = (inputs.len(), spec.shape.clone());
        return Err(OracleError::Inputs {
            found,
            images: batch,
            shape,
        });
    }
    let evaluator = Evaluator::new(graph);
    let images = inputs.par_chunks(spec.len());
    let results: Vec<Vec<i32>> = images
        .map(|image| evaluator.image(image))
        .collect::<Result<_, _>>()?;
    Ok(results.concat())
}

/// Results as users read them: integers decoded (`v / 2^f`), then `finish` in order, for each of
/// `batch` images.
pub fn finish(finish: &[Finish], spec: &ValueSpec, integers: &[i32], batch: usize) -> Vec<f32> {
    if batch == 0 || integers.is_empty() {
        return Vec::new();
    }
    let scale = f64::from(-spec.fraction_bits).exp2();
    let decode = |&value: &i32| (f64::from(value) * scale) as f32;
    let image = |integers: &[i32]| {
        let decoded: Vec<f32> = integers.iter().map(decode).collect();
        finish
            .iter()
            .fold(decoded, |value, &op| float::finish(op, &value))
    };
    integers
        .chunks(integers.len().div_ceil(batch))
        .flat_map(image)
        .collect()
}

/// Evaluates a valid graph, an image at a time.
pub(crate) struct Evaluator<'a> {
    graph: &'a FixedGraph,
    /// The last node that reads each value.
    last_reader: Vec<usize>,
    /// Where the elements of rearranged values come from, by node.
    sources: Vec<Option<Vec<Option<Source>>>>,
}

impl<'a> Evaluator<'a> {
    /// Makes ready; `graph` must pass [`FixedGraph::validate`].
    pub(crate) fn new(graph: &'a FixedGraph) -> Self {
        let mut last_reader: Vec<usize> = (0..graph.nodes.len()).collect();
        for (index, node) in graph.nodes.iter().enumerate() {
            node.inputs
                .iter()
                .for_each(|&input| last_reader[input] = index);
        }
        last_reader[graph.output] = usize::MAX;
        let sources = graph.nodes.iter().map(|node| {
            let FixedOp::Local(op) = &node.op else {
                return None;
            };
            let shape = |&input: &usize| graph.nodes[input].value.shape.as_slice();
            op.sources(&node.inputs.iter().map(shape).collect::<Vec<_>>())
        });
        let sources = sources.collect();
        Self {
            graph,
            last_reader,
            sources,
        }
    }

    /// The result of one image.
    fn image(&self, input: &[i32]) -> Result<Vec<i32>, OracleError> {
        let mut values: Vec<Vec<i32>> = vec![Vec::new(); self.graph.nodes.len()];
        for (index, node) in self.graph.nodes.iter().enumerate() {
            let inputs: Vec<&[i32]> = node.inputs.iter().map(|&i| values[i].as_slice()).collect();
            let value = match &node.op {
                FixedOp::Input => input.iter().map(|&x| x.into()).collect(),
                _ => self.node(index, &inputs),
            };
            values[index] = checked(node, value)?;
            for read in self.read_last(index) {
                values[read] = Vec::new();
            }
        }
        Ok(std::mem::take(&mut values[self.graph.output]))
    }

    /// The values that no node after `index` reads.
    pub(crate) fn read_last(&self, index: usize) -> impl Iterator<Item = usize> {
        let inputs = self.graph.nodes[index].inputs.iter().copied();
        inputs.filter(move |&read| self.last_reader[read] == index)
    }

    /// The value of node `index`, which is not the input, for an image.
    pub(crate) fn node(&self, index: usize, inputs: &[&[i32]]) -> Vec<i64> {
        let node = &self.graph.nodes[index];
        match &node.op {
            FixedOp::Input => unreachable!("the input is not computed"),
            FixedOp::Linear(layer) => {
                let ValueSpec { low, high, .. } = self.graph.nodes[node.inputs[0]].value;
                let proven = inputs[0].iter().all(|x| (low..=high).contains(x));
                linear(layer, inputs[0], proven)
            }
            FixedOp::Local(op) => self.local(index, op, inputs),
            FixedOp::Activation(op) => {
                activation(op, &self.graph.nodes[node.inputs[0]].value.shape, inputs[0])
            }
            FixedOp::Product => {
                let shape = |input: usize| &self.graph.nodes[node.inputs[input]].value.shape;
                let sources = [0, 1].map(|i| layout::broadcast(shape(i), &node.value.shape));
                let [left, right] = sources.map(Vec::into_iter);
                let product =
                    |(l, r): (usize, usize)| i64::from(inputs[0][l]) * i64::from(inputs[1][r]);
                left.zip(right).map(product).collect()
            }
            FixedOp::ArgMax => {
                let values = inputs[0];
                let larger =
                    |best: usize, i: usize| if values[i] > values[best] { i } else { best };
                vec![(0..values.len()).fold(0, larger) as i64]
            }
        }
    }

    fn local(&self, index: usize, op: &LocalOp, inputs: &[&[i32]]) -> Vec<i64> {
        let node = &self.graph.nodes[index];
        match op {
            LocalOp::Add {
                left_shift: [left, right],
            } => {
                let pairs = inputs[0].iter().zip(inputs[1]);
                pairs
                    .map(|(&x, &y)| (i64::from(x) << left) + (i64::from(y) << right))
                    .collect()
            }
            LocalOp::SumPool {
                window,
                multipliers,
            } => {
                let shape = &self.graph.nodes[node.inputs[0]].value.shape;
                pool(window, shape, inputs[0], |position, values| {
                    let sum: i64 = values.sum();
                    sum * i64::from(multipliers[position % multipliers.len()])
                })
            }
            LocalOp::Reshape
            | LocalOp::Pad { .. }
            | LocalOp::Concat { .. }
            | LocalOp::Transpose { .. }
            | LocalOp::Take { .. } => {
                let shift = |input: usize| match op {
                    LocalOp::Concat { left_shift, .. } => left_shift[input],
                    _ => 0,
                };
                let value = |source: &Source| {
                    i64::from(inputs[source.input][source.index]) << shift(source.input)
                };
                let sources = self.sources[index].as_deref().unwrap_or_default();
                sources
                    .iter()
                    .map(|source| source.as_ref().map_or(0, value))
                    .collect()
            }
        }
    }
}

/// The value in 32 bits, if all of it is in its range.
fn checked(node: &FixedNode, value: Vec<i64>) -> Result<Vec<i32>, OracleError> {
    let ValueSpec { low, high, .. } = node.value;
    let inside = |value: &i64| (i64::from(low)..=i64::from(high)).contains(value);
    // Without an early end, which compilers turn into vector code.
    if value.iter().fold(true, |all, value| all & inside(value)) {
        return Ok(value.iter().map(|&value| value as i32).collect());
    }
    let outside = value.iter().find(|value| !inside(value));
    Err(OracleError::Range {
        node: node.name.clone(),
        value: outside.copied().unwrap_or_default(),
        low,
        high,
    })
}

/// `out[o][y][x] = bias[o] + weights[o] . patch`, the patch being what the window at `(y, x)`
/// holds. `proven`: the input is in its range, and so the result in its own.
fn linear(layer: &Linear, x: &[i32], proven: bool) -> Vec<i64> {
    let narrow: Option<Vec<i16>> = x.iter().map(|&x| x.try_into().ok()).collect();
    match narrow.filter(|_| proven) {
        // Partial sums may wrap: the whole, with its bias, is in its proven range, of 32 bits.
        Some(x) => {
            // They have 16 bits, which the graph's validation has checked.
            let weights: Vec<i16> = layer
                .weights
                .par_iter()
                .map(|&weight| weight as i16)
                .collect();
            let sums = convolve::<Shorts>(&layer.geometry, &weights, &x);
            with_bias(layer, &sums, |sum, bias| sum.wrapping_add(bias).into())
        }
        None if proven => {
            let sums = convolve::<Words>(&layer.geometry, &layer.weights, x);
            with_bias(layer, &sums, |sum, bias| sum.wrapping_add(bias).into())
        }
        None => {
            let sums = convolve::<Longs>(&layer.geometry, &layer.weights, x);
            with_bias(layer, &sums, |sum, bias| sum + i64::from(bias))
        }
    }
}

/// Sums and the bias of their channel.
fn with_bias<S: Copy>(layer: &Linear, sums: &[S], add: impl Fn(S, i32) -> i64) -> Vec<i64> {
    by_channel(sums, &layer.bias, |sum, &bias| add(sum, bias))
}

/// A function of each value, and of what goes with its channel.
fn by_channel<T: Copy, C>(x: &[T], channels: &[C], value: impl Fn(T, &C) -> i64) -> Vec<i64> {
    let mut out = Vec::with_capacity(x.len());
    for (plane, channel) in x.chunks(x.len() / channels.len()).zip(channels) {
        out.extend(plane.iter().map(|&x| value(x, channel)));
    }
    out
}

fn activation(op: &ActivationOp, shape: &[usize], x: &[i32]) -> Vec<i64> {
    match *op {
        ActivationOp::Relu => each(x, scalar::relu),
        ActivationOp::Clip { low, high } => each(x, |x| scalar::clip(x, low, high)),
        ActivationOp::LeakyRelu { slope, shift } => {
            each(x, |x| scalar::leaky_relu(x, slope, shift))
        }
        ActivationOp::Square => each(x, scalar::square),
        ActivationOp::Requantise { shift, low, high } => {
            each(x, |x| scalar::requantise(x, shift, low, high))
        }
        ActivationOp::RequantiseChannels {
            ref shifts,
            low,
            high,
        } => by_channel(x, shifts, |x, &shift| {
            scalar::requantise(x, shift, low, high).into()
        }),
        ActivationOp::Table(ref table) => each(x, |x| table.at(x)),
        ActivationOp::MaxPool { ref window } => pool(window, shape, x, |_, values| {
            values.max().unwrap_or(i64::MIN)
        }),
    }
}

fn each(x: &[i32], value: impl Fn(i32) -> i32) -> Vec<i64> {
    x.iter().map(|&x| value(x).into()).collect()
}

/// `reduce(position, values in the window)` for each channel and position.
fn pool(
    window: &Window,
    shape: &[usize],
    x: &[i32],
    reduce: impl Fn(usize, &mut dyn Iterator<Item = i64>) -> i64,
) -> Vec<i64> {
    let size = [shape[1], shape[2]];
    let Ok([height, width]) = window.output(size) else {
        unreachable!("the graph was validated")
    };
    let mut out = Vec::with_capacity(shape[0] * height * width);
    for plane in x.chunks_exact(size[0] * size[1]) {
        for position in 0..height * width {
            let at = [position / width, position % width];
            let inside = window.positions(size, at);
            out.push(reduce(
                position,
                &mut inside.map(|index| plane[index].into()),
            ));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    #[test]
    fn floors() {
        for number in [
            0.0,
            0.25,
            0.5,
            0.999_999,
            1.0,
            1.5,
            2.5,
            12_345.75,
            2_147_483_647.5,
        ] {
            assert_eq!(super::floor(number), number.floor() as i32, "{number}");
        }
        assert_eq!(super::floor(4_294_967_295.9), -1);
    }
}
