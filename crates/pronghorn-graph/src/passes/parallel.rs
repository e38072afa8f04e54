//! Adds up layers that read one value: their sum is one layer.
//!
//! Source: Ding et al., "RepVGG: Making VGG-style ConvNets Great Again", CVPR 2021, section 3.3.

use super::{
    affine::{constants, replace, tensor},
    only_reader, redirect,
};
use crate::{
    geometry::Window,
    graph::{Graph, Op, Tensor},
};

/// Replaces the sum of two layers of one value, a convolution and another or an affine map, by one
/// layer. Says whether there was one.
pub(super) fn add(graph: &mut Graph) -> bool {
    let sums: Vec<usize> = (1..graph.nodes.len())
        .filter(|&index| graph.nodes[index].op == Op::Add)
        .collect();
    sums.into_iter().any(|sum| {
        let &[left, right] = graph.nodes[sum].inputs.as_slice() else {
            return false;
        };
        merge(graph, sum, [left, right]).is_some() || merge(graph, sum, [right, left]).is_some()
    })
}

/// Makes layer `first` the sum of both.
fn merge(graph: &mut Graph, sum: usize, [first, second]: [usize; 2]) -> Option<()> {
    let alone = |layer| only_reader(graph, layer) == Some(sum);
    if first == second || !alone(first) || !alone(second) {
        return None;
    }
    let inputs = [first, second].map(|layer| graph.nodes[layer].inputs.clone());
    if inputs[0] != inputs[1] {
        return None;
    }
    let (weight, bias, window) = match &graph.nodes[first].op {
        Op::Dense { .. } => summed_dense(graph, [first, second])?,
        Op::Conv { .. } => summed_convolutions(graph, [first, second])?,
        _ => return None,
    };
    replace(graph, first, weight, bias);
    if let (Op::Conv { window: old, .. }, Some(new)) = (&mut graph.nodes[first].op, window) {
        *old = new;
    }
    redirect(graph, sum, first);
    Some(())
}

/// A layer's weights, its bias, and its window if it has one.
type Layer = (Tensor, Tensor, Option<Window>);

fn summed_dense(graph: &Graph, layers: [usize; 2]) -> Option<Layer> {
    let [first, second] = layers.map(|layer| match &graph.nodes[layer].op {
        Op::Dense { weight, bias } => Some((&graph.tensors[weight], bias.as_deref())),
        _ => None,
    });
    let ((first, b1), (second, b2)) = (first?, second?);
    let pairs = first.data.iter().zip(&*second.data);
    let weight = tensor(
        &first.shape,
        pairs.map(|(&a, &b)| f64::from(a) + f64::from(b)),
    )?;
    let bias = summed_biases(graph, [b1, b2], first.shape[0])?;
    Some((weight, bias, None))
}

/// A convolution's weights about its output's place.
struct Convolution<'a> {
    window: Window,
    groups: usize,
    /// `(out_channels, in_channels / groups, kernel_h, kernel_w)`.
    shape: Vec<usize>,
    weight: std::borrow::Cow<'a, [f32]>,
    bias: Vec<f64>,
}

fn summed_convolutions(graph: &Graph, [first, second]: [usize; 2]) -> Option<Layer> {
    let a = convolution(graph, first)?;
    let b = match &graph.nodes[second].op {
        Op::Affine { .. } => scaled_identity(graph, second, &a)?,
        _ => convolution(graph, second)?,
    };
    if a.groups != b.groups || a.window.stride != b.window.stride || a.shape[..2] != b.shape[..2] {
        return None;
    }
    let axes = [0, 1].map(|axis| Axis::of(&a.window, &b.window, axis));
    let [rows, columns] = [axes[0]?, axes[1]?];
    // One layer is to be no more work than two.
    let taps = |window: &Window| window.kernel.iter().product::<usize>();
    if rows.kernel * columns.kernel > taps(&a.window) + taps(&b.window) {
        return None;
    }
    let window = Window {
        kernel: [rows.kernel, columns.kernel],
        stride: a.window.stride,
        dilation: [rows.dilation, columns.dilation],
        padding: [
            rows.padding[0],
            columns.padding[0],
            rows.padding[1],
            columns.padding[1],
        ],
    };
    let shape = [a.shape[0], a.shape[1], rows.kernel, columns.kernel];
    let mut weight = vec![0f64; shape.iter().product()];
    for (layer, which) in [(&a, 0), (&b, 1)] {
        let [height, width] = layer.window.kernel;
        let taps = layer.weight.chunks(height * width);
        for (kernel, taps) in weight.chunks_mut(rows.kernel * columns.kernel).zip(taps) {
            for (place, &tap) in taps.iter().enumerate() {
                let row = rows.start[which] + place / width;
                let column = columns.start[which] + place % width;
                kernel[row * columns.kernel + column] += f64::from(tap);
            }
        }
    }
    let bias = a.bias.iter().zip(&b.bias).map(|(a, b)| a + b);
    Some((
        tensor(&shape, weight.into_iter())?,
        tensor(&[shape[0]], bias)?,
        Some(window),
    ))
}

fn convolution(graph: &Graph, layer: usize) -> Option<Convolution<'_>> {
    let Op::Conv {
        window,
        groups,
        weight,
        bias,
    } = &graph.nodes[layer].op
    else {
        return None;
    };
    let Tensor { shape, data } = &graph.tensors[weight];
    let bias = match bias {
        Some(bias) => graph.data(bias).iter().map(|&x| x.into()).collect(),
        None => vec![0.0; shape[0]],
    };
    Some(Convolution {
        window: window.clone(),
        groups: *groups,
        shape: shape.clone(),
        weight: data.as_slice().into(),
        bias,
    })
}

/// An affine map as a convolution with the groups of another.
fn scaled_identity<'a>(
    graph: &Graph,
    affine: usize,
    other: &Convolution<'_>,
) -> Option<Convolution<'a>> {
    let (channels, in_group) = (other.shape[0], other.shape[1]);
    if graph.nodes[affine].shape[0] != channels || other.window.stride != [1, 1] {
        return None;
    }
    let (mul, add) = constants(graph, affine, channels)?;
    let mut weight = vec![0f32; channels * in_group];
    for (channel, &mul) in mul.iter().enumerate() {
        weight[channel * in_group + channel % in_group] = mul as f32;
    }
    Some(Convolution {
        window: Window::plain([1, 1]),
        groups: other.groups,
        shape: vec![channels, in_group, 1, 1],
        weight: weight.into(),
        bias: add,
    })
}

/// One axis of a window that holds the taps of two.
#[derive(Clone, Copy)]
struct Axis {
    kernel: usize,
    dilation: usize,
    /// Before and after.
    padding: [usize; 2],
    /// The place of the first tap of either.
    start: [usize; 2],
}

impl Axis {
    /// `None` where the taps of both are not on one grid.
    fn of(a: &Window, b: &Window, axis: usize) -> Option<Self> {
        let dilations = [a, b].map(|w| (w.kernel[axis] > 1).then_some(w.dilation[axis]));
        let dilation = match dilations {
            [Some(a), Some(b)] if a != b => return None,
            [a, b] => a.or(b).unwrap_or(1),
        };
        let before = [a, b].map(|w| w.padding[axis]);
        let most = before[0].max(before[1]);
        let away = before.map(|before| most - before);
        if away.iter().any(|away| !away.is_multiple_of(dilation)) {
            return None;
        }
        let start = away.map(|away| away / dilation);
        let kernels = [a.kernel[axis], b.kernel[axis]];
        let kernel = (start[0] + kernels[0]).max(start[1] + kernels[1]);
        let after = a.padding[axis + 2] + (kernel - start[0] - kernels[0]) * dilation;
        Some(Self {
            kernel,
            dilation,
            padding: [most, after],
            start,
        })
    }
}

fn summed_biases(graph: &Graph, names: [Option<&str>; 2], rows: usize) -> Option<Tensor> {
    let at =
        |name: Option<&str>, row: usize| name.map_or(0.0, |name| f64::from(graph.data(name)[row]));
    tensor(
        &[rows],
        (0..rows).map(|row| at(names[0], row) + at(names[1], row)),
    )
}
