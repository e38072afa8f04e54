//! The nodes that a result depends on.

use crate::{fixed::FixedGraph, graph::Graph};

/// Which nodes the result depends on; the input always counts.
pub(super) fn needed(graph: &Graph, result: usize) -> Vec<bool> {
    let mut needed = vec![false; graph.nodes.len()];
    needed[0] = true;
    needed[result] = true;
    for index in (1..=result).rev().filter(|&index| index > 0) {
        if needed[index] {
            graph.nodes[index]
                .inputs
                .iter()
                .for_each(|&input| needed[input] = true);
        }
    }
    needed
}

/// The graph without nodes that the result does not depend on; the input stays.
pub(super) fn without_dead(mut graph: FixedGraph) -> FixedGraph {
    let mut alive = vec![false; graph.nodes.len()];
    alive[0] = true;
    alive[graph.output] = true;
    for (index, node) in graph.nodes.iter().enumerate().rev() {
        if alive[index] {
            node.inputs.iter().for_each(|&input| alive[input] = true);
        }
    }
    let mut place = vec![0; alive.len()];
    for index in 1..alive.len() {
        place[index] = place[index - 1] + usize::from(alive[index - 1]);
    }
    let mut keep = alive.iter().copied();
    graph.nodes.retain(|_| keep.next().unwrap_or(false));
    let inputs = graph.nodes.iter_mut().flat_map(|node| &mut node.inputs);
    inputs
        .chain([&mut graph.output])
        .for_each(|input| *input = place[*input]);
    graph
}
