//! The operators on one image in floating point.

use crate::{
    convolution::{Floats, convolve},
    fixed::Finish,
    geometry::{ConvGeometry, Window},
    graph::{Graph, Node, Op},
    layout, shape,
};

/// The value `node` makes of the `values` before it.
pub(super) fn apply(graph: &Graph, node: &Node, values: &[Vec<f32>]) -> Vec<f32> {
    let input = |i: usize| values[node.inputs[i]].as_slice();
    let shape_of = |i: usize| graph.nodes[node.inputs[i]].shape.as_slice();
    let data = |name: &Option<String>| name.as_ref().map(|name| graph.data(name));
    let x = input(0);
    match &node.op {
        Op::Input => unreachable!("the input is not computed"),
        Op::Conv {
            window,
            groups,
            weight,
            bias,
        } => {
            let (in_channels, size) = image(shape_of(0));
            let geometry = ConvGeometry {
                in_channels,
                out_channels: node.shape[0],
                input: size,
                window: window.clone(),
                groups: *groups,
            };
            conv(&geometry, graph.data(weight), data(bias), x)
        }
        Op::Dense { weight, bias } => dense(graph.data(weight), data(bias), x),
        Op::Affine { mul, add } => {
            affine(data(mul).unwrap_or(&[1.0]), data(add).unwrap_or(&[0.0]), x)
        }
        Op::Relu => each(x, |x| x.max(0.0)),
        Op::Clip { min, max } => {
            let (min, max) = (
                min.unwrap_or(f32::NEG_INFINITY),
                max.unwrap_or(f32::INFINITY),
            );
            each(x, |x| x.max(min).min(max))
        }
        Op::LeakyRelu { alpha } => each(x, |x| if x >= 0.0 { x } else { alpha * x }),
        Op::Function { function } => each(x, |x| function.at(x.into()) as f32),
        Op::Square => each(x, |x| x * x),
        Op::Multiply => {
            let [left, right] = [0, 1].map(|i| layout::broadcast(shape_of(i), &node.shape));
            let pairs = left.into_iter().zip(right);
            pairs.map(|(l, r)| x[l] * input(1)[r]).collect()
        }
        Op::MaxPool { window } => pool(window, shape_of(0), &node.shape, x, |values, _| {
            values.fold(f32::NEG_INFINITY, f32::max)
        }),
        Op::AveragePool {
            window,
            count_include_pad,
        } => {
            let all = window.kernel[0] * window.kernel[1];
            pool(window, shape_of(0), &node.shape, x, |values, inside| {
                let count = if *count_include_pad { all } else { inside };
                values.sum::<f32>() / count as f32
            })
        }
        Op::GlobalAveragePool => {
            let length = shape::channels(shape_of(0)).1;
            let mean = |plane: &[f32]| plane.iter().sum::<f32>() / length as f32;
            x.chunks(length).map(mean).collect()
        }
        Op::Add => x.iter().zip(input(1)).map(|(x, y)| x + y).collect(),
        Op::Reshape => x.to_vec(),
        Op::Pad { before, after } => {
            let sources = layout::pad(shape_of(0), before, after).into_iter();
            let element = |index: Option<usize>| index.map_or(0.0, |index| x[index]);
            sources.map(element).collect()
        }
        Op::Concat { axis } => {
            let shapes: Vec<&[usize]> = (0..node.inputs.len()).map(shape_of).collect();
            let sources = layout::concat(&shapes, *axis).into_iter();
            let element = |source: layout::Source| input(source.input)[source.index];
            sources.map(element).collect()
        }
        Op::Transpose { permutation } => {
            let sources = layout::transpose(shape_of(0), permutation).into_iter();
            sources.map(|index| x[index]).collect()
        }
        Op::Take { axis, indices } => {
            let sources = layout::take(shape_of(0), *axis, indices).into_iter();
            sources.map(|index| x[index]).collect()
        }
        Op::Softmax => finish(Finish::Softmax, x),
        Op::ArgMax => finish(Finish::ArgMax, x),
        Op::Sigmoid => finish(Finish::Sigmoid, x),
    }
}

/// The client's last operation, on one image's result: the float network and the decoded secure
/// result share it.
pub fn finish(op: Finish, x: &[f32]) -> Vec<f32> {
    match op {
        Finish::Softmax => {
            let most = x.iter().copied().fold(f32::NEG_INFINITY, f32::max);
            let powers: Vec<f32> = x.iter().map(|x| (x - most).exp()).collect();
            let sum: f32 = powers.iter().sum();
            powers.iter().map(|power| power / sum).collect()
        }
        Finish::ArgMax => {
            let larger = |best: usize, i: usize| if x[i] > x[best] { i } else { best };
            vec![(0..x.len()).fold(0, larger) as f32]
        }
        Finish::Class => x.to_vec(),
        Finish::Sigmoid => x.iter().map(|x| 1.0 / (1.0 + (-x).exp())).collect(),
    }
}

/// Channels, height and width, of a shape the graph's validation has found to be an image.
fn image(shape: &[usize]) -> (usize, [usize; 2]) {
    (shape[0], [shape[1], shape[2]])
}

/// `mul x + add`, whose constants are one value, one a channel or one an element: each stands for a
/// run of elements.
fn affine(mul: &[f32], add: &[f32], x: &[f32]) -> Vec<f32> {
    let runs = mul.len().max(add.len());
    let at = |constants: &[f32], run: usize| constants[run * constants.len() / runs];
    let mut out = Vec::with_capacity(x.len());
    for (run, x) in x.chunks(x.len() / runs).enumerate() {
        let (mul, add) = (at(mul, run), at(add, run));
        out.extend(x.iter().map(|x| x * mul + add));
    }
    out
}

fn each(x: &[f32], value: impl Fn(f32) -> f32) -> Vec<f32> {
    x.iter().map(|&x| value(x)).collect()
}

/// `W x + b`.
fn dense(weights: &[f32], bias: Option<&[f32]>, x: &[f32]) -> Vec<f32> {
    conv(
        &ConvGeometry::dense(x.len(), weights.len() / x.len()),
        weights,
        bias,
        x,
    )
}

/// A grouped convolution.
fn conv(geometry: &ConvGeometry, weights: &[f32], bias: Option<&[f32]>, x: &[f32]) -> Vec<f32> {
    let mut out = convolve::<Floats>(geometry, weights, x);
    if let Some(bias) = bias {
        let plane = out.len() / bias.len();
        let planes = out.chunks_exact_mut(plane).zip(bias);
        planes.for_each(|(plane, bias)| plane.iter_mut().for_each(|x| *x += bias));
    }
    out
}

/// A pooling: `reduce` gets the values in a window and how many they are.
fn pool(
    window: &Window,
    shape: &[usize],
    output: &[usize],
    x: &[f32],
    reduce: impl Fn(&mut dyn Iterator<Item = f32>, usize) -> f32,
) -> Vec<f32> {
    let (_, size) = image(shape);
    let (_, [height, width]) = image(output);
    let mut out = Vec::with_capacity(output.iter().product());
    for plane in x.chunks_exact(size[0] * size[1]) {
        for y in 0..height {
            for x in 0..width {
                let inside = window.taps(0, y, size[0]).len() * window.taps(1, x, size[1]).len();
                let mut values = window.positions(size, [y, x]).map(|index| plane[index]);
                out.push(reduce(&mut values, inside));
            }
        }
    }
    out
}
