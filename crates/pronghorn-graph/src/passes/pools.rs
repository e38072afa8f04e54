//! Means of inputs go before layers that work position by position: these have fewer positions then.

use super::{moves::is_move, only_reader};
use crate::graph::{Graph, Op};

/// `mean(W x + b) = W mean(x) + b`, for windows without padding on the input, moved or not. Says
/// whether there was one.
///
/// The mean of embeddings of a text is an embedding of its words' counts: a client sends these, in
/// place of each word's indicators. Means of other values would be rounded and clamped once more.
pub(super) fn pass_layers(graph: &mut Graph) -> bool {
    (1..graph.nodes.len()).any(|pool| pass_layer(graph, pool).is_some())
}

fn pass_layer(graph: &mut Graph, pool: usize) -> Option<()> {
    let is_plain = match &graph.nodes[pool].op {
        Op::GlobalAveragePool => true,
        Op::AveragePool { window, .. } => window.padding == [0; 4],
        _ => false,
    };
    let layer = *graph.nodes[pool].inputs.first()?;
    let Op::Conv { window, .. } = &graph.nodes[layer].op else {
        return None;
    };
    if !is_plain || !window.is_point() || only_reader(graph, layer)? != pool {
        return None;
    }
    let shape = graph.nodes[pool].shape.clone();
    let source = graph.nodes[layer].inputs[0];
    if !is_input(graph, source) {
        return None;
    }
    let pooled = [&[graph.nodes[source].shape[0]], &shape[1..]].concat();
    // Both keep their inputs: it is their operators that change places.
    let [first, second] =
        [layer, pool].map(|at| (graph.nodes[at].op.clone(), graph.nodes[at].name.clone()));
    (graph.nodes[layer].op, graph.nodes[layer].name) = second;
    (graph.nodes[pool].op, graph.nodes[pool].name) = first;
    graph.nodes[layer].shape = pooled;
    Some(())
}

/// Whether a value is the input, moved or not.
fn is_input(graph: &Graph, value: usize) -> bool {
    let node = &graph.nodes[value];
    match node.op {
        Op::Input => true,
        Op::Take { .. } => is_input(graph, node.inputs[0]),
        _ => is_move(node) && is_input(graph, node.inputs[0]),
    }
}
