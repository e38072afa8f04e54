//! Folds `x * mul + add` (batch normalisation, normalisation of the input) into the layers around.

use super::{first_reader, insert, is_reshape, only_reader, readers, redirect};
use crate::{
    graph::{Graph, Node, Op, Tensor},
    shape,
};

/// Folds each `Affine` into the affine map before or after it, into the layer before it, or into
/// all layers after it; or brings it next to a dense layer, past a reshape. Says whether it
/// could. Polynomial features have thousands of them: not one at a time.
pub(super) fn fold(graph: &mut Graph) -> bool {
    let affine = |&index: &usize| matches!(graph.nodes[index].op, Op::Affine { .. });
    let all: Vec<usize> = (1..graph.nodes.len()).filter(affine).collect();
    let ways = [
        merge,
        fold_back,
        fold_forward,
        fold_past_moves,
        pass_reshape,
    ];
    let count = graph.nodes.len();
    let mut is_changed = false;
    for index in all {
        // A node that was inserted has moved those behind it.
        if graph.nodes.len() != count {
            break;
        }
        is_changed |= ways.iter().any(|way| way(graph, index).is_some());
    }
    is_changed
}

/// The constants of an affine node as `f64`, one a channel (`channels`), or `None` where they
/// differ within a channel.
pub(super) fn constants(
    graph: &Graph,
    affine: usize,
    channels: usize,
) -> Option<(Vec<f64>, Vec<f64>)> {
    let Op::Affine { mul, add } = &graph.nodes[affine].op else {
        return None;
    };
    let expand = |name: &Option<String>, default: f32| {
        let data = name.as_ref().map_or(&[][..], |name| graph.data(name));
        match data.len() {
            0 => Some(vec![f64::from(default); channels]),
            length if length <= channels => {
                let run = |&x: &f32| std::iter::repeat_n(f64::from(x), channels / length);
                Some(data.iter().flat_map(run).collect())
            }
            _ => {
                let found = by_channel(data, channels)?;
                Some(found.into_iter().map(f64::from).collect())
            }
        }
    };
    Some((expand(mul, 1.0)?, expand(add, 0.0)?))
}

/// One constant for each of so many channels; `None` where they differ within one.
pub(super) fn by_channel<T: Copy + PartialEq>(all: &[T], channels: usize) -> Option<Vec<T>> {
    if channels == 0 || all.is_empty() || !all.len().is_multiple_of(channels) {
        return None;
    }
    let one = |run: &[T]| run.iter().all(|&x| x == run[0]).then_some(run[0]);
    all.chunks(all.len() / channels).map(one).collect()
}

/// `(x * m1 + a1) * m2 + a2 = x * (m1 m2) + (a1 m2 + a2)`.
fn merge(graph: &mut Graph, second: usize) -> Option<()> {
    let first = graph.nodes[second].inputs[0];
    // Looked at first: who reads a value is searched for in all nodes.
    let is_map = matches!(graph.nodes[first].op, Op::Affine { .. });
    if !is_map || only_reader(graph, first)? != second {
        return None;
    }
    let (channels, length) = shape::channels(&graph.nodes[first].shape);
    let both = |count: usize| {
        Some((
            constants(graph, first, count)?,
            constants(graph, second, count)?,
        ))
    };
    let sign = sign(graph, first).zip(sign(graph, second));
    // One number stands for the network's own sign alone, not for a product that is -1 by chance.
    let by_channel = (channels > 1 || sign.is_some()).then(|| both(channels));
    let ((m1, a1), (m2, a2)) = by_channel.flatten().or_else(|| both(channels * length))?;
    let mul = m1.iter().zip(&m2).map(|(m1, m2)| m1 * m2);
    let add = a1
        .iter()
        .zip(&m2)
        .zip(&a2)
        .map(|((a1, m2), a2)| a1 * m2 + a2);
    let (mul, add) = (tensor(&[m1.len()], mul)?, tensor(&[a1.len()], add)?);
    let name = graph.nodes[second].name.clone();
    let mul = match sign.map(|(first, second)| first * second) {
        Some(1.0) => None,
        Some(sign) => Some(Tensor::new([1], vec![sign])),
        None => Some(mul),
    };
    let mul = mul.map(|mul| insert(graph, &name, "mul", mul));
    let add = Some(insert(graph, &name, "add", add));
    let inputs = graph.nodes[first].inputs.clone();
    let node = &mut graph.nodes[second];
    *node = Node {
        op: Op::Affine { mul, add },
        inputs,
        ..node.clone()
    };
    Some(())
}

/// The sign that an affine node gives all elements where that is all its factor: 1 where it has
/// none.
fn sign(graph: &Graph, affine: usize) -> Option<f32> {
    match &graph.nodes[affine].op {
        Op::Affine { mul: None, .. } => Some(1.0),
        Op::Affine { mul: Some(mul), .. } => match graph.data(mul) {
            &[factor] if factor.abs() == 1.0 => Some(factor),
            _ => None,
        },
        _ => None,
    }
}

/// `(W x + b) * m + a = (m W) x + (b m + a)`, row by row: always exact.
fn fold_back(graph: &mut Graph, affine: usize) -> Option<()> {
    let layer = graph.nodes[affine].inputs[0];
    let (weight, bias) = weights(&graph.nodes[layer].op)?;
    if only_reader(graph, layer)? != affine {
        return None;
    }
    let Tensor { shape, data } = &graph.tensors[weight];
    let rows = shape[0];
    let (mul, add) = constants(graph, affine, rows)?;
    let old_bias = |o: usize| bias.map_or(0.0, |bias| f64::from(graph.data(bias)[o]));
    let row = data.len() / rows;
    let new_weight = tensor(
        shape,
        data.iter()
            .enumerate()
            .map(|(i, &w)| f64::from(w) * mul[i / row]),
    )?;
    let new_bias = tensor(&[rows], (0..rows).map(|o| old_bias(o) * mul[o] + add[o]))?;
    replace(graph, layer, new_weight, new_bias);
    redirect(graph, affine, layer);
    Some(())
}

/// `W (x * m + a) + b = (W m) x + (b + W a)`, for all layers that read it: exact where there is no
/// padding, or `a` is zero, since padding is not shifted.
fn fold_forward(graph: &mut Graph, affine: usize) -> Option<()> {
    weights(&first_reader(graph, affine)?.op)?;
    let layers = readers(graph, affine)?;
    let channels = shape::channels(&graph.nodes[affine].shape).0;
    let (mul, add) = constants(graph, affine, channels)?;
    let folded = layers
        .iter()
        .map(|&layer| folded_layer(graph, (&mul, &add), layer));
    let folded: Vec<(Tensor, Tensor)> = folded.collect::<Option<_>>()?;
    for (&layer, (weight, bias)) in layers.iter().zip(folded) {
        replace(graph, layer, weight, bias);
        graph.nodes[layer].inputs = graph.nodes[affine].inputs.clone();
    }
    Some(())
}

/// The same past rearrangements and selections, where all elements have one factor and one summand.
fn fold_past_moves(graph: &mut Graph, affine: usize) -> Option<()> {
    let (mul, add) = constants(graph, affine, 1)?;
    let (mut open, mut layers) = (vec![affine], Vec::new());
    while let Some(value) = open.pop() {
        for reader in readers(graph, value)? {
            let node = &graph.nodes[reader];
            match node.op {
                Op::Reshape | Op::Transpose { .. } | Op::Take { .. } => open.push(reader),
                _ if weights(&node.op).is_some() => layers.push(reader),
                _ => return None,
            }
        }
    }
    layers.sort_unstable();
    layers.dedup();
    let folded = layers.iter().map(|&layer| {
        let channels = shape::channels(&graph.nodes[graph.nodes[layer].inputs[0]].shape).0;
        let [mul, add] = [&mul, &add].map(|one| vec![one[0]; channels]);
        folded_layer(graph, (&mul, &add), layer)
    });
    let folded: Vec<(Tensor, Tensor)> = folded.collect::<Option<_>>()?;
    for (&layer, (weight, bias)) in layers.iter().zip(folded) {
        replace(graph, layer, weight, bias);
    }
    let source = graph.nodes[affine].inputs[0];
    redirect(graph, affine, source);
    Some(())
}

/// The weights and the bias of `layer` with an affine map before it, of one factor and one summand
/// a channel.
fn folded_layer(
    graph: &Graph,
    (mul, add): (&[f64], &[f64]),
    layer: usize,
) -> Option<(Tensor, Tensor)> {
    let op = &graph.nodes[layer].op;
    let (weight, bias) = weights(op)?;
    let (groups, padded) = match op {
        Op::Conv { window, groups, .. } => (*groups, window.padding != [0; 4]),
        _ => (1, false),
    };
    if padded && add.iter().any(|&add| add != 0.0) {
        return None;
    }
    let Tensor { shape, data } = &graph.tensors[weight];
    let (rows, in_group) = (shape[0], shape[1]);
    let kernel = data.len() / (rows * in_group);
    let channel = |i: usize| {
        let (o, c) = (i / (in_group * kernel), i / kernel % in_group);
        o / (rows / groups) * in_group + c
    };
    let new_weight = tensor(
        shape,
        data.iter()
            .enumerate()
            .map(|(i, &w)| f64::from(w) * mul[channel(i)]),
    )?;
    let row = in_group * kernel;
    let new_bias = (0..rows).map(|o| {
        let shift = |k: usize| f64::from(data[o * row + k]) * add[channel(o * row + k)];
        let old = bias.map_or(0.0, |bias| f64::from(graph.data(bias)[o]));
        old + (0..row).map(shift).sum::<f64>()
    });
    Some((new_weight, tensor(&[rows], new_bias)?))
}

/// An affine map before a reshape that only dense layers read, or that keeps the channels and only
/// layers read, goes behind it, one constant an element or a channel.
fn pass_reshape(graph: &mut Graph, affine: usize) -> Option<()> {
    if !is_reshape(first_reader(graph, affine)?) {
        return None;
    }
    let reshape = only_reader(graph, affine)?;
    let readers = readers(graph, reshape)?;
    let all = |is: fn(&Op) -> bool| readers.iter().all(|&reader| is(&graph.nodes[reader].op));
    let channels = graph.nodes[affine].shape.first().copied()?;
    let keeps_channels = graph.nodes[reshape].shape.first() == Some(&channels);
    let elements = if all(|op| matches!(op, Op::Dense { .. })) {
        graph.nodes[affine].shape.iter().product()
    } else if keeps_channels && all(|op| matches!(op, Op::Conv { .. })) {
        channels
    } else {
        return None;
    };
    let (mul, add) = constants(graph, affine, elements)?;
    let (mul, add) = (
        tensor(&[elements], mul.into_iter())?,
        tensor(&[elements], add.into_iter())?,
    );
    let name = graph.nodes[affine].name.clone();
    let op = Op::Affine {
        mul: Some(insert(graph, &name, "mul", mul)),
        add: Some(insert(graph, &name, "add", add)),
    };
    let (before, after) = (graph.nodes[affine].clone(), graph.nodes[reshape].clone());
    graph.nodes[affine] = Node {
        inputs: before.inputs,
        ..after.clone()
    };
    graph.nodes[reshape] = Node { name, op, ..after };
    Some(())
}

/// Names of the weights and the bias of a layer.
pub(super) fn weights(op: &Op) -> Option<(&str, Option<&str>)> {
    match op {
        Op::Conv { weight, bias, .. } | Op::Dense { weight, bias } => {
            Some((weight, bias.as_deref()))
        }
        _ => None,
    }
}

/// Gives a layer new weights and a new bias. The old ones stay: another layer may share them.
pub(super) fn replace(graph: &mut Graph, layer: usize, new_weight: Tensor, new_bias: Tensor) {
    let name = graph.nodes[layer].name.clone();
    let new_weight = insert(graph, &name, "weight", new_weight);
    let new_bias = insert(graph, &name, "bias", new_bias);
    if let Op::Conv { weight, bias, .. } | Op::Dense { weight, bias } = &mut graph.nodes[layer].op {
        *weight = new_weight;
        *bias = Some(new_bias);
    }
}

/// A tensor of rounded values; `None` when one is too large for `f32`.
pub(super) fn tensor(shape: &[usize], values: impl Iterator<Item = f64>) -> Option<Tensor> {
    let data: Vec<f32> = values.map(|value| value as f32).collect();
    let finite = data.iter().all(|value| value.is_finite());
    finite.then(|| Tensor::new(shape, data))
}
