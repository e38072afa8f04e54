//! Removes what the result does not depend on.

use std::collections::BTreeSet;

use crate::graph::Graph;

/// Removes nodes that do not lead to the output (the input always stays), and unused tensors.
pub(super) fn remove(graph: &mut Graph) {
    let mut alive = vec![false; graph.nodes.len()];
    alive[0] = true;
    alive[graph.output] = true;
    for index in (0..graph.nodes.len()).rev().filter(|&index| index > 0) {
        if alive[index] {
            graph.nodes[index]
                .inputs
                .iter()
                .for_each(|&input| alive[input] = true);
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
    let used: BTreeSet<&str> = graph
        .nodes
        .iter()
        .flat_map(|node| node.op.tensors())
        .collect();
    graph.tensors.retain(|name, _| used.contains(name.as_str()));
}
