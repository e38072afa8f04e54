//! Zeros around a value: those of an image go into the window of the layer that reads it, and a
//! dense layer does without those of a row.

use super::{insert, only_reader, readers};
use crate::{
    geometry::Window,
    graph::{Graph, Op, Tensor},
    shape,
};

/// Fuses `Pad` into the `Conv` and `AveragePool` nodes that read it, where its zeros are all around
/// height and width. Says whether there were any.
///
/// Not into `MaxPool`: explicit zeros can be the maximum, its own padding never is. Not into an
/// `AveragePool` with padding of its own that does not count, since explicit zeros do, or whose
/// windows would come to hold nothing but padding.
pub(super) fn fuse(graph: &mut Graph) -> bool {
    let mut changed = false;
    for index in 1..graph.nodes.len() {
        let Some(zeros) = spatial(&graph.nodes[index].op) else {
            continue;
        };
        let input = graph.nodes[index].inputs[0];
        let shape = graph.nodes[input].shape.clone();
        for reader in readers(graph, index).unwrap_or_default() {
            let node = &mut graph.nodes[reader];
            let padded = |window: &Window| {
                let mut padding = window.padding;
                padding
                    .iter_mut()
                    .zip(zeros)
                    .for_each(|(padding, zeros)| *padding += zeros);
                Window {
                    padding,
                    ..window.clone()
                }
            };
            match &mut node.op {
                Op::Conv { window, .. } => *window = padded(window),
                Op::AveragePool {
                    window,
                    count_include_pad,
                } if (*count_include_pad || window.padding == [0; 4])
                    && shape::pool(&shape, &padded(window)).is_ok() =>
                {
                    *window = padded(window);
                    *count_include_pad = true;
                }
                _ => continue,
            }
            node.inputs = vec![input];
            changed = true;
        }
    }
    changed
}

/// Zeros top, left, bottom, right of a `Pad` that leaves the channels alone.
fn spatial(op: &Op) -> Option<[usize; 4]> {
    match op {
        Op::Pad { before, after } => match (before.as_slice(), after.as_slice()) {
            (&[0, top, left], &[0, bottom, right]) => Some([top, left, bottom, right]),
            _ => None,
        },
        _ => None,
    }
}

/// Drops the zeros of a row that a dense layer reads, alone or beside other rows, with the weights
/// that meet them. Says whether there were any.
///
/// A constant that is concatenated with columns, as scikit-learn's `PolynomialFeatures` has it, is
/// such a zero and a bias.
pub(super) fn drop_zeros(graph: &mut Graph) -> bool {
    (1..graph.nodes.len()).any(|layer| drop_before(graph, layer).is_some())
}

fn drop_before(graph: &mut Graph, layer: usize) -> Option<()> {
    let Op::Dense { weight, .. } = graph.nodes[layer].op.clone() else {
        return None;
    };
    let source = graph.nodes[layer].inputs[0];
    let parts = match &graph.nodes[source].op {
        Op::Concat { axis: 0 } if only_reader(graph, source) == Some(layer) => {
            graph.nodes[source].inputs.clone()
        }
        _ => vec![source],
    };
    let row = |value: usize| match graph.nodes[value].shape.as_slice() {
        &[length] => Some(length),
        _ => None,
    };
    let (mut kept, mut first) = (Vec::new(), 0);
    let mut inputs = parts.clone();
    for (&part, input) in parts.iter().zip(&mut inputs) {
        let length = row(part)?;
        let mut places = first..first + length;
        if let Op::Pad { before, after } = &graph.nodes[part].op {
            places = first + before[0]..first + length - after[0];
            *input = graph.nodes[part].inputs[0];
        }
        kept.extend(places);
        first += length;
    }
    if inputs == parts {
        return None;
    }
    let weights = &graph.tensors[&weight];
    let rows = weights.data.chunks(first);
    let data: Vec<f32> = rows
        .flat_map(|row| kept.iter().map(|&at| row[at]))
        .collect();
    let tensor = Tensor::new([weights.shape[0], kept.len()], data);
    let name = graph.nodes[layer].name.clone();
    let new_weight = insert(graph, &name, "weight", tensor);
    if let Op::Dense { weight, .. } = &mut graph.nodes[layer].op {
        *weight = new_weight;
    }
    match parts == [source] {
        true => graph.nodes[layer].inputs = inputs,
        false => {
            graph.nodes[source].inputs = inputs;
            graph.nodes[source].shape = vec![kept.len()];
        }
    }
    Some(())
}
