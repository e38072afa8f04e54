//! The oracle: the fixed-point graph evaluated plainly, written to be read.
//!
//! Every secure run must give exactly these integers, with its own addends where rounding is
//! dithered. Each operator is a loop over its definition, and every value is checked against its
//! proven range. Some images go through a node together: its weights are made ready once for all of
//! them.

use std::{borrow::Cow, mem};

use rayon::prelude::*;
use thiserror::Error;

use crate::{
    convolution::{Convolution, Longs, Numbers, Shorts, Words},
    finish::Finish,
    fixed::{
        ActivationOp, FixedError, FixedGraph, FixedNode, FixedOp, Linear, LocalOp, ValueSpec,
        dither::{self, Dither, Place},
        scalar,
    },
    geometry::Window,
    matrices::Matrices,
    rearrange,
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
    /// A run's shares of a value that is rounded by a dither stand for another value.
    #[error("the run's shares of node {node} stand for other values than the oracle's")]
    Shares {
        /// Name of the node.
        node: String,
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
    let mut integers = vec![0; values.len()];
    let clamped = quantise_into(spec, values, &mut integers);
    Ok((integers, clamped))
}

/// The same of finite values, into as many integers; how many were clamped.
pub fn quantise_into(spec: &ValueSpec, values: &[f32], integers: &mut [i32]) -> usize {
    let scale = f64::from(spec.fraction_bits).exp2();
    let mut total = 0;
    for (integers, values) in integers.chunks_mut(1 << 16).zip(values.chunks(1 << 16)) {
        let mut clamped = 0u32;
        for (integer, &value) in integers.iter_mut().zip(values) {
            let (nearest, moved) = nearest_integer(spec, f64::from(value) * scale);
            clamped += u32::from(moved);
            *integer = nearest;
        }
        total += clamped as usize;
    }
    total
}

/// # Errors
/// When a value of some images is infinite or NaN.
pub fn check_finite(spec: &ValueSpec, values: &[f32]) -> Result<(), OracleError> {
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
    evaluate_with(graph, inputs, batch, &dither::Alike)
}

/// The same with the addends of a run, of a graph with dithered rounding.
///
/// # Errors
/// As [`evaluate`], or that the run has other values than these.
pub fn evaluate_with(
    graph: &FixedGraph,
    inputs: &[i32],
    batch: usize,
    dither: &dyn Dither,
) -> Result<Vec<i32>, OracleError> {
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
    let together = match evaluator.is_small() {
        true => SMALL_TOGETHER,
        false => evaluator.together(),
    };
    let of_images =
        |(at, images): (usize, &[i32])| evaluator.images(images, at * together, dither, |_, _| ());
    let results: Vec<Vec<i32>> = match evaluator.is_small() {
        true => inputs
            .par_chunks(together * spec.len())
            .enumerate()
            .map(of_images)
            .collect::<Result<_, _>>()?,
        false => inputs
            .chunks(together * spec.len())
            .enumerate()
            .map(of_images)
            .collect::<Result<_, _>>()?,
    };
    Ok(results.concat())
}

/// The values of all nodes, image after image of each; `observe` sees them with their node's index.
///
/// # Errors
/// As [`evaluate`].
pub(crate) fn observe(
    graph: &FixedGraph,
    inputs: &[i32],
    mut observe: impl FnMut(usize, &[i32]),
) -> Result<(), OracleError> {
    graph.validate()?;
    let evaluator = Evaluator::new(graph);
    let together = evaluator.together() * graph.input().len();
    for (at, images) in inputs.chunks(together).enumerate() {
        let first = at * evaluator.together();
        evaluator.images(images, first, &dither::Alike, |index, values| {
            values.iter().for_each(|value| observe(index, value));
        })?;
    }
    Ok(())
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
        finish.iter().fold(decoded, |value, op| op.apply(&value))
    };
    integers
        .chunks(integers.len().div_ceil(batch))
        .flat_map(image)
        .collect()
}

/// Elements of the largest value of images that go through a node together, about.
const ELEMENTS_TOGETHER: usize = 1 << 23;

/// Values of at most so many elements are small: threads take images of such a network each, so
/// many together.
const SMALL: usize = 1 << 12;
const SMALL_TOGETHER: usize = 16;

/// A value of some images.
pub(crate) type Images = Vec<Vec<i32>>;

/// Integers in 32 bits, or the first that has more.
type Narrow = Result<Vec<i32>, i64>;

/// Evaluates a valid graph, a node at a time.
pub(crate) struct Evaluator<'a> {
    graph: &'a FixedGraph,
    /// The last node that reads each value.
    last_reader: Vec<usize>,
    /// The nodes with dithered rounding.
    dithered: Vec<usize>,
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
        let is_dithered = |&index: &usize| match &graph.nodes[index].op {
            FixedOp::Activation(op) => op.dithered().is_some(),
            _ => false,
        };
        Self {
            dithered: (0..graph.nodes.len()).filter(is_dithered).collect(),
            graph,
            last_reader,
        }
    }

    /// Elements of the largest value.
    fn largest(&self) -> usize {
        let values = self.graph.nodes.iter().map(|node| node.value.len());
        values.max().unwrap_or(1).max(1)
    }

    fn is_small(&self) -> bool {
        self.largest() <= SMALL
    }

    /// How many images go through a node together: at least one for each thread.
    fn together(&self) -> usize {
        (ELEMENTS_TOGETHER / self.largest()).max(rayon::current_num_threads())
    }

    /// The results of images from number `first` on, which stand one after the other in `inputs`.
    /// `observe` sees the values of these images with their node's index.
    fn images(
        &self,
        inputs: &[i32],
        first: usize,
        dither: &dyn Dither,
        mut observe: impl FnMut(usize, &[Vec<i32>]),
    ) -> Result<Vec<i32>, OracleError> {
        let length = self.graph.input().len();
        let mut values: Vec<Images> = vec![Vec::new(); self.graph.nodes.len()];
        for (index, node) in self.graph.nodes.iter().enumerate() {
            let found = match &node.op {
                FixedOp::Input => Ok(inputs.chunks(length).map(<[i32]>::to_vec).collect()),
                FixedOp::Activation(ActivationOp::Dither { shifts }) => {
                    let images = self.own(index, node.inputs[0], &mut values);
                    let place = Place {
                        node: self.dithered.binary_search(&index).unwrap_or_default(),
                        image: first,
                        element: 0,
                    };
                    let rounded = add_and_drop(shifts, images, place, dither);
                    Ok(rounded.ok_or_else(|| OracleError::Shares {
                        node: node.name.clone(),
                    })?)
                }
                _ => self.node(index, &mut values),
            };
            values[index] = checked(node, found)?;
            observe(index, &values[index]);
        }
        Ok(mem::take(&mut values[self.graph.output]).concat())
    }

    /// Node `index`, which is not the input, on the `values` of some images; takes those that no
    /// later node reads.
    ///
    /// # Errors
    /// An integer of more than 32 bits: as it should be, and not modulo 2^32, only where the inputs
    /// are in their proven ranges. Dithered values are rounded to the nearest.
    pub(crate) fn node(&self, index: usize, values: &mut [Images]) -> Result<Images, i64> {
        let node = &self.graph.nodes[index];
        let input = node.inputs[0];
        let shape = &self.graph.nodes[input].value.shape;
        let found = match &node.op {
            FixedOp::Input => unreachable!("the input is not computed"),
            FixedOp::Linear(layer) | FixedOp::Constants(layer) => {
                linear(layer, &self.graph.nodes[input].value, &values[input])
            }
            FixedOp::Activation(ActivationOp::MaxPool { window }) => {
                let pool = |x: &Vec<i32>| pool(window, shape, x, i32::MIN, i32::max);
                Ok(values[input].par_iter().map(pool).collect())
            }
            FixedOp::Activation(op) => {
                let mut images = self.own(index, input, values);
                images.par_iter_mut().for_each(|x| activate(op, x));
                Ok(images)
            }
            FixedOp::Local(LocalOp::Reshape) => Ok(self.own(index, input, values)),
            FixedOp::MatMul => {
                let specs = [0, 1].map(|at| &self.graph.nodes[node.inputs[at]].value);
                let [left, right] = [0, 1].map(|at| &values[node.inputs[at]]);
                let pairs = left.par_iter().zip(right);
                pairs.map(|(x, y)| matrices(specs, [x, y])).collect()
            }
            _ => {
                let read = |image: usize| {
                    let inputs = node.inputs.iter();
                    let inputs: Vec<&[i32]> = inputs
                        .map(|&input| values[input][image].as_slice())
                        .collect();
                    self.of_image(index, &inputs)
                };
                (0..values[input].len()).into_par_iter().map(read).collect()
            }
        };
        for &read in &node.inputs {
            if self.last_reader[read] == index {
                values[read] = Vec::new();
            }
        }
        found
    }

    /// A value for node `index` to change.
    fn own(&self, index: usize, input: usize, values: &mut [Images]) -> Images {
        match self.last_reader[input] == index {
            true => mem::take(&mut values[input]),
            false => values[input].clone(),
        }
    }

    /// Node `index` on the values of one image.
    fn of_image(&self, index: usize, inputs: &[&[i32]]) -> Narrow {
        let node = &self.graph.nodes[index];
        match &node.op {
            FixedOp::Local(op) => self.local(index, op, inputs),
            FixedOp::Product => {
                let shape = |input: usize| &self.graph.nodes[node.inputs[input]].value.shape;
                let [left, right] =
                    [0, 1].map(|i| rearrange::broadcast(shape(i), &node.value.shape, inputs[i]));
                let pairs = left.iter().zip(&*right);
                narrow(pairs.map(|(&l, &r)| i64::from(l) * i64::from(r)))
            }
            FixedOp::ArgMax => {
                let values = inputs[0];
                let larger =
                    |best: usize, i: usize| if values[i] > values[best] { i } else { best };
                Ok(vec![(0..values.len()).fold(0, larger) as i32])
            }
            FixedOp::Input
            | FixedOp::Linear(_)
            | FixedOp::Constants(_)
            | FixedOp::Activation(_)
            | FixedOp::MatMul => {
                unreachable!("these take images together")
            }
        }
    }

    fn local(&self, index: usize, op: &LocalOp, inputs: &[&[i32]]) -> Narrow {
        let node = &self.graph.nodes[index];
        let shape_of = |input: usize| self.graph.nodes[node.inputs[input]].value.shape.as_slice();
        match op {
            LocalOp::Add {
                left_shift: [left, right],
            } => {
                let pairs = inputs[0].iter().zip(inputs[1]);
                narrow(pairs.map(|(&x, &y)| (i64::from(x) << left) + (i64::from(y) << right)))
            }
            LocalOp::SumPool {
                window,
                multipliers,
            } => {
                let sums = pool(window, shape_of(0), inputs[0], 0i64, |sum, x| {
                    sum + i64::from(x)
                });
                let plane = sums.len() / shape_of(0)[0];
                let of_place = |(at, sum): (usize, &i64)| {
                    sum * i64::from(multipliers[at % plane % multipliers.len()])
                };
                narrow(sums.iter().enumerate().map(of_place))
            }
            LocalOp::Reshape => Ok(inputs[0].to_vec()),
            LocalOp::Pad { before, after } => {
                Ok(rearrange::pad(shape_of(0), before, after, inputs[0]))
            }
            LocalOp::Transpose { permutation } => {
                Ok(rearrange::transpose(shape_of(0), permutation, inputs[0]))
            }
            LocalOp::Take { axis, indices } => {
                Ok(rearrange::take(shape_of(0), *axis, indices, inputs[0]))
            }
            LocalOp::Concat { axis, left_shift } => {
                let shifted = inputs.iter().zip(left_shift).map(|(x, shift)| match shift {
                    0 => Ok(Cow::Borrowed(*x)),
                    _ => narrow(x.iter().map(|&x| i64::from(x) << shift)).map(Cow::Owned),
                });
                let shifted = shifted.collect::<Result<Vec<Cow<'_, [i32]>>, i64>>()?;
                let shapes: Vec<&[usize]> = (0..inputs.len()).map(shape_of).collect();
                let inputs: Vec<&[i32]> = shifted.iter().map(|x| &**x).collect();
                Ok(rearrange::concat(&shapes, *axis, &inputs))
            }
        }
    }
}

/// Integers that should have 32 bits, without an early end, which compilers turn into vector code.
fn narrow(mut integers: impl Iterator<Item = i64> + Clone) -> Narrow {
    let is_wide = |integer: i64| i64::from(integer as i32) != integer;
    let mut wide = false;
    let narrow = integers.clone().map(|integer| {
        wide |= is_wide(integer);
        integer as i32
    });
    let narrow = narrow.collect();
    match wide.then(|| integers.find(|&integer| is_wide(integer))) {
        Some(Some(integer)) => Err(integer),
        _ => Ok(narrow),
    }
}

/// The images of a value, if all of it is in its range.
fn checked(node: &FixedNode, images: Result<Images, i64>) -> Result<Images, OracleError> {
    let ValueSpec { low, high, .. } = node.value;
    let outside = match images {
        Ok(images) => {
            let outside = |x: &Vec<i32>| outside(x, low, high);
            match images.par_iter().find_map_any(outside) {
                Some(value) => i64::from(value),
                None => return Ok(images),
            }
        }
        Err(value) => value,
    };
    Err(OracleError::Range {
        node: node.name.clone(),
        value: outside,
        low,
        high,
    })
}

/// The first integer outside a range.
fn outside(x: &[i32], low: i32, high: i32) -> Option<i32> {
    let inside = |x: i32| (x >= low) & (x <= high);
    // Without an early end, which compilers turn into vector code.
    match x.iter().fold(true, |all, &x| all & inside(x)) {
        true => None,
        false => x.iter().copied().find(|&x| !inside(x)),
    }
}

/// `out[o][y][x] = bias[o] + weights[o] . patch`, the patch being what the window at `(y, x)`
/// holds.
fn linear(layer: &Linear, input: &ValueSpec, images: &[Vec<i32>]) -> Result<Images, i64> {
    let is_proven = |x: &Vec<i32>| outside(x, input.low, input.high).is_none();
    if !images.par_iter().all(is_proven) {
        let sums = Convolution::<Longs>::new(&layer.geometry, &words(&layer.weights)).of(images);
        let biased = |sums: Vec<i64>| {
            let plane = sums.len() / layer.bias.len();
            let each = sums.iter().enumerate();
            narrow(each.map(|(at, sum)| sum + i64::from(layer.bias[at / plane])))
        };
        return sums.into_par_iter().map(biased).collect();
    }
    // Inputs in their range give results in theirs, of 32 bits with the bias. Partial sums may
    // wrap.
    let shorts = images.par_iter().map(|x| shorts(x));
    let mut sums = match shorts.collect::<Option<Vec<_>>>() {
        Some(images) => convolved::<Shorts, _>(layer, &layer.weights, &images),
        None => convolved::<Words, _>(layer, &words(&layer.weights), images),
    };
    sums.par_iter_mut().for_each(|sums| {
        by_channel(sums, &layer.bias, |sum, &bias| sum.wrapping_add(bias));
    });
    Ok(sums)
}

/// The products of two matrices, part by part.
fn matrices(specs: [&ValueSpec; 2], [left, right]: [&[i32]; 2]) -> Narrow {
    let Ok(matrices) = Matrices::of(&specs[0].shape, &specs[1].shape) else {
        unreachable!("the graph was validated")
    };
    let pairs = specs.into_iter().zip([left, right]);
    let layer = matrices.layer();
    // Factors in their ranges give sums in theirs. Partial sums may wrap.
    match { pairs }.all(|(spec, x)| outside(x, spec.low, spec.high).is_none()) {
        true => Ok(Convolution::<Words>::new(&layer, left)
            .of(&[right])
            .concat()),
        false => narrow(
            Convolution::<Longs>::new(&layer, left)
                .of(&[right])
                .concat()
                .into_iter(),
        ),
    }
}

fn convolved<N: Numbers<Sum = i32>, X: AsRef<[N::Number]> + Sync>(
    layer: &Linear,
    weights: &[N::Number],
    images: &[X],
) -> Images {
    Convolution::<N>::new(&layer.geometry, weights).of(images)
}

/// Weights in 32 bits.
fn words(weights: &[i16]) -> Vec<i32> {
    weights.par_iter().map(|&weight| weight.into()).collect()
}

/// Integers in 16 bits, if all have no more.
fn shorts(x: &[i32]) -> Option<Vec<i16>> {
    let fits = outside(x, i16::MIN.into(), i16::MAX.into()).is_none();
    fits.then(|| x.iter().map(|&x| x as i16).collect())
}

/// A function of each integer, and of what goes with its channel.
fn by_channel<C>(x: &mut [i32], channels: &[C], value: impl Fn(i32, &C) -> i32) {
    let plane = x.len() / channels.len();
    for (plane, channel) in x.chunks_mut(plane).zip(channels) {
        each(plane, |x| value(x, channel));
    }
}

fn each(x: &mut [i32], value: impl Fn(i32) -> i32) {
    x.iter_mut().for_each(|x| *x = value(*x));
}

/// An activation of one value each, in place.
fn activate(op: &ActivationOp, x: &mut [i32]) {
    match *op {
        ActivationOp::Relu => each(x, scalar::relu),
        ActivationOp::Clip { low, high } => each(x, |x| scalar::clip(x, low, high)),
        ActivationOp::LeakyRelu { slope, shift } => {
            each(x, |x| scalar::leaky_relu(x, slope, shift));
        }
        ActivationOp::Square => each(x, scalar::square),
        ActivationOp::Requantise { shift, low, high } => {
            each(x, |x| scalar::requantise(x, shift, low, high));
        }
        ActivationOp::RequantiseChannels {
            ref shifts,
            low,
            high,
        } => by_channel(x, shifts, |x, &shift| {
            scalar::requantise(x, shift, low, high)
        }),
        ActivationOp::Table(ref table) => table.apply(x),
        ActivationOp::Dither { ref shifts } => by_channel(x, shifts, |x, &shift| {
            scalar::requantise(x, shift, i32::MIN, i32::MAX)
        }),
        ActivationOp::MaxPool { .. } => unreachable!("it takes several values"),
    }
}

/// `(x + a) >> shift` with a run's addends, of images from a place on; `None` where the run has
/// another value.
fn add_and_drop(
    shifts: &[u32],
    mut images: Images,
    first: Place,
    dither: &dyn Dither,
) -> Option<Images> {
    let of_image = |(image, x): (usize, &mut Vec<i32>)| {
        let plane = x.len() / shifts.len();
        x.iter_mut().enumerate().try_for_each(|(element, x)| {
            let place = Place {
                image: first.image + image,
                element,
                ..first
            };
            let shift = shifts[element / plane];
            let addend = dither.addend(place, *x, shift)?;
            *x = ((i64::from(*x) + i64::from(addend)) >> shift) as i32;
            Some(())
        })
    };
    let rounded = images.par_iter_mut().enumerate().map(of_image);
    rounded.collect::<Option<()>>()?;
    Some(images)
}

/// `reduce` over the values in the window at each channel and position, from `start` on.
fn pool<T: Copy>(
    window: &Window,
    shape: &[usize],
    x: &[i32],
    start: T,
    reduce: impl Fn(T, i32) -> T,
) -> Vec<T> {
    let [height, width] = [shape[1], shape[2]];
    let Ok(output) = window.output([height, width]) else {
        unreachable!("the graph was validated")
    };
    let mut out = vec![start; shape[0] * output[0] * output[1]];
    let planes = x.chunks_exact(height * width);
    for (plane, out) in planes.zip(out.chunks_exact_mut(output[0] * output[1])) {
        window.visit([height, width], output, |to, from| {
            out[to] = reduce(out[to], plane[from]);
        });
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
