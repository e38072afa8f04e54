//! Drops operators that do nothing.

use super::{is_reshape, redirect};
use crate::graph::{Graph, Node, Op};

/// Drops nodes that compute the identity, turns transpositions that move only dimensions of size 1
/// into reshapes, and makes one of two reshapes in a row. Says whether there were any.
pub(super) fn drop(graph: &mut Graph) -> bool {
    let mut changed = false;
    for index in 1..graph.nodes.len() {
        let node = &graph.nodes[index];
        let Some(&input) = node.inputs.first() else {
            continue;
        };
        let before = &graph.nodes[input];
        if is_identity(graph, node, &before.shape) {
            redirect(graph, index, input);
            changed = true;
        } else if is_reshape(node) && is_reshape(before) {
            graph.nodes[index].inputs = before.inputs.clone();
            changed = true;
        } else if let Op::Transpose { permutation } = &node.op
            && keeps_order(permutation, &before.shape)
        {
            graph.nodes[index].op = Op::Reshape;
            changed = true;
        }
    }
    changed
}

fn is_identity(graph: &Graph, node: &Node, input: &[usize]) -> bool {
    let all = |name: &Option<String>, constant: f32| {
        name.as_ref()
            .is_none_or(|name| graph.data(name).iter().all(|&value| value == constant))
    };
    match &node.op {
        Op::Reshape => node.shape == input,
        Op::Pad { before, after } => before.iter().chain(after).all(|&zeros| zeros == 0),
        Op::Affine { mul, add } => all(mul, 1.0) && all(add, 0.0),
        Op::Clip { min, max } => min.is_none() && max.is_none(),
        Op::Concat { .. } => node.inputs.len() == 1,
        Op::Transpose { permutation } => permutation.iter().enumerate().all(|(d, &from)| d == from),
        Op::Take { indices, .. } => {
            node.shape == input && indices.iter().enumerate().all(|(at, &from)| at == from)
        }
        Op::MaxPool { window } | Op::AveragePool { window, .. } => window.is_point(),
        Op::GlobalAveragePool => node.shape == input,
        _ => false,
    }
}

/// True if the dimensions of more than one element stay in order.
fn keeps_order(permutation: &[usize], shape: &[usize]) -> bool {
    let moved: Vec<usize> = permutation
        .iter()
        .copied()
        .filter(|&d| shape[d] > 1)
        .collect();
    moved.is_sorted()
}
