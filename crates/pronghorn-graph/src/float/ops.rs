//! The operators on one image in floating point.

use std::mem;

use super::Run;
use crate::{
    convolution::{Convolution, Floats},
    geometry::{ConvGeometry, Window},
    graph::{Graph, Node, Op},
    matrices::Matrices,
    rearrange, shape,
};

/// The products of a node that is a layer of weights, made ready.
pub(super) fn convolution<'a>(graph: &'a Graph, node: &Node) -> Option<Convolution<'a, Floats>> {
    let shape = |i: usize| graph.nodes[node.inputs[i]].shape.as_slice();
    let (geometry, weight) = match &node.op {
        Op::Conv {
            window,
            groups,
            weight,
            ..
        } => {
            let (in_channels, input) = image(shape(0));
            let geometry = ConvGeometry {
                in_channels,
                out_channels: node.shape[0],
                input,
                window: window.clone(),
                groups: *groups,
            };
            (geometry, weight)
        }
        Op::Dense { weight, .. } => {
            let inputs = shape(0).iter().product();
            let outputs = graph.data(weight).len() / inputs;
            (ConvGeometry::dense(inputs, outputs), weight)
        }
        _ => return None,
    };
    Some(Convolution::new(&geometry, graph.data(weight)))
}

/// The value that node `index` makes of the `values` before it. May take those that no later node
/// reads: fresh memory costs as much as an operator on each element.
pub(super) fn apply(run: &Run<'_>, index: usize, values: &mut [Vec<f32>]) -> Vec<f32> {
    let (graph, node) = (run.graph, &run.graph.nodes[index]);
    let input = |i: usize| values[node.inputs[i]].as_slice();
    let shape_of = |i: usize| graph.nodes[node.inputs[i]].shape.as_slice();
    let data = |name: &Option<String>| name.as_ref().map(|name| graph.data(name));
    let x = input(0);
    match &node.op {
        Op::Input => unreachable!("the input is not computed"),
        Op::Conv { bias, .. } | Op::Dense { bias, .. } => {
            let convolution = run.convolutions[index].as_ref();
            let mut found = convolution.map_or_else(Vec::new, |all| all.of(&[x]));
            biased(found.pop().unwrap_or_default(), data(bias))
        }
        Op::Affine { mul, add } => {
            let (mul, add) = (data(mul).unwrap_or(&[1.0]), data(add).unwrap_or(&[0.0]));
            in_place(run, index, values, |x| affine(mul, add, x))
        }
        Op::Relu => each(run, index, values, |x| x.max(0.0)),
        Op::Clip { min, max } => {
            let (min, max) = (
                min.unwrap_or(f32::NEG_INFINITY),
                max.unwrap_or(f32::INFINITY),
            );
            each(run, index, values, |x| x.max(min).min(max))
        }
        Op::LeakyRelu { alpha } => {
            each(run, index, values, |x| if x >= 0.0 { x } else { alpha * x })
        }
        Op::Step => each(run, index, values, |x| f32::from(u8::from(x > 0.0))),
        Op::Function { function } => each(run, index, values, |x| function.at(x.into()) as f32),
        Op::Square => each(run, index, values, |x| x * x),
        Op::Reshape => in_place(run, index, values, |_| ()),
        Op::Multiply => {
            let [left, right] =
                [0, 1].map(|i| rearrange::broadcast(shape_of(i), &node.shape, input(i)));
            left.iter().zip(&*right).map(|(l, r)| l * r).collect()
        }
        Op::MatMul => {
            let Ok(matrices) = Matrices::of(shape_of(0), shape_of(1)) else {
                unreachable!("the graph was validated")
            };
            let layer = Convolution::<Floats>::new(&matrices.layer(), x);
            layer.of(&[input(1)]).pop().unwrap_or_default()
        }
        Op::MaxPool { window } => pool(
            window,
            shape_of(0),
            &node.shape,
            x,
            (f32::NEG_INFINITY, f32::max),
        ),
        Op::AveragePool {
            window,
            count_include_pad,
        } => {
            let add = |sum: f32, x: f32| sum + x;
            let mut sums = pool(window, shape_of(0), &node.shape, x, (-0.0, add));
            let counts = match count_include_pad {
                true => vec![window.kernel[0] * window.kernel[1]; 1],
                false => inside(window, shape_of(0), &node.shape),
            };
            let counts = counts.iter().cycle();
            sums.iter_mut()
                .zip(counts)
                .for_each(|(sum, &count)| *sum /= count as f32);
            sums
        }
        Op::GlobalAveragePool => {
            let length = shape::channels(shape_of(0)).1;
            let mean = |plane: &[f32]| plane.iter().sum::<f32>() / length as f32;
            x.chunks(length).map(mean).collect()
        }
        Op::Add => x.iter().zip(input(1)).map(|(x, y)| x + y).collect(),
        Op::Pad { before, after } => rearrange::pad(shape_of(0), before, after, x),
        Op::Concat { axis } => {
            let inputs = 0..node.inputs.len();
            let (shapes, inputs): (Vec<&[usize]>, Vec<&[f32]>) =
                inputs.map(|i| (shape_of(i), input(i))).unzip();
            rearrange::concat(&shapes, *axis, &inputs)
        }
        Op::Transpose { permutation } => rearrange::transpose(shape_of(0), permutation, x),
        Op::Take { axis, indices } => rearrange::take(shape_of(0), *axis, indices, x),
        Op::Softmax
        | Op::ArgMax
        | Op::Sigmoid
        | Op::Along { .. }
        | Op::Exp
        | Op::ExpM1
        | Op::Probabilities
        | Op::Log
        | Op::Sqrt
        | Op::Scale { .. } => match node.op.finish(shape_of(0)) {
            Some(finish) => finish.apply(x),
            None => x.to_vec(),
        },
    }
}

/// The only input of node `index`, changed: taken where no later node reads it.
fn in_place(
    run: &Run<'_>,
    index: usize,
    values: &mut [Vec<f32>],
    change: impl FnOnce(&mut [f32]),
) -> Vec<f32> {
    let read = run.graph.nodes[index].inputs[0];
    let mut x = match run.last_reader[read] == index {
        true => mem::take(&mut values[read]),
        false => values[read].clone(),
    };
    change(&mut x);
    x
}

/// The same, element by element.
fn each(
    run: &Run<'_>,
    index: usize,
    values: &mut [Vec<f32>],
    value: impl Fn(f32) -> f32,
) -> Vec<f32> {
    in_place(run, index, values, |x| {
        x.iter_mut().for_each(|x| *x = value(*x));
    })
}

/// Channels, height and width, of a shape the graph's validation has found to be an image.
fn image(shape: &[usize]) -> (usize, [usize; 2]) {
    (shape[0], [shape[1], shape[2]])
}

/// `mul x + add`, whose constants are one value, one a channel or one an element: each stands for a
/// run of elements.
fn affine(mul: &[f32], add: &[f32], x: &mut [f32]) {
    let runs = mul.len().max(add.len());
    let at = |constants: &[f32], run: usize| constants[run * constants.len() / runs];
    let length = x.len() / runs;
    for (run, x) in x.chunks_mut(length).enumerate() {
        let (mul, add) = (at(mul, run), at(add, run));
        x.iter_mut().for_each(|x| *x = *x * mul + add);
    }
}

/// Sums and the bias of their channel.
fn biased(mut sums: Vec<f32>, bias: Option<&[f32]>) -> Vec<f32> {
    if let Some(bias) = bias {
        let plane = sums.len() / bias.len();
        let planes = sums.chunks_exact_mut(plane).zip(bias);
        planes.for_each(|(plane, bias)| plane.iter_mut().for_each(|x| *x += bias));
    }
    sums
}

/// A pooling: `reduce` over the values in each window, from a start on.
fn pool(
    window: &Window,
    shape: &[usize],
    output: &[usize],
    x: &[f32],
    (start, reduce): (f32, impl Fn(f32, f32) -> f32),
) -> Vec<f32> {
    let ((_, size), (_, output)) = (image(shape), image(output));
    let planes = x.chunks_exact(size[0] * size[1]);
    let mut out = vec![start; planes.len() * output[0] * output[1]];
    for (plane, out) in planes.zip(out.chunks_exact_mut(output[0] * output[1])) {
        window.visit(size, output, |to, from| {
            out[to] = reduce(out[to], plane[from])
        });
    }
    out
}

/// How many values are in the window of each position of a plane.
fn inside(window: &Window, shape: &[usize], output: &[usize]) -> Vec<usize> {
    let ((_, size), (_, [height, width])) = (image(shape), image(output));
    let taps = |axis: usize, at: usize| window.taps(axis, at, size[axis]).len();
    let positions = (0..height).flat_map(|y| (0..width).map(move |x| (y, x)));
    positions.map(|(y, x)| taps(0, y) * taps(1, x)).collect()
}
