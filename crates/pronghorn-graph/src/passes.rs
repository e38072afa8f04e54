//! Rewrites of the float graph that keep its function and leave less to compute in secret.
//!
//! All are exact but for the rounding of folded weights to `f32`.

mod affine;
pub mod columns;
mod dead;
mod dense;
mod identity;
mod moves;
mod pad;
mod parallel;
mod pools;
mod selections;
mod steps;
mod taps;
mod together;

use crate::graph::{Graph, Node, Op, Tensor};

/// All passes, until none finds anything to do.
///
/// Nodes that are left `Affine` become layers of one factor a channel in fixed point.
pub fn run(graph: &Graph) -> Graph {
    let graph = until_done(graph, &PASSES);
    let moved = with_columns_apart(&graph, Joins::Yes);
    // A map that nothing takes up behind a selection is better before it.
    match layers(&moved) < layers(&graph) {
        true => moved,
        false => graph,
    }
}

/// All passes, with maps of a row behind the selections of its columns, also where that takes more
/// layers: each column may be on a scale of its own there.
pub fn with_columns_apart(graph: &Graph, joins: Joins) -> Graph {
    let passes = match joins {
        Joins::Yes => &PASSES[..],
        Joins::No => &PASSES[1..],
    };
    until_done(graph, &[passes, &[selections::pass]].concat())
}

/// Whether operators of one kind on parts of a row become one operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Joins {
    /// They do: thousands of products are one.
    Yes,
    /// They stay apart, as [`columns`] has cut them.
    No,
}

/// Rewrites of a graph, for each of its nodes.
const MOST_REWRITES: usize = 64;

/// The first joins operators.
const PASSES: [fn(&mut Graph) -> bool; 13] = [
    together::join,
    identity::drop,
    moves::cancel,
    moves::sink,
    pad::fuse,
    pad::drop_zeros,
    taps::trim,
    pools::pass_layers,
    affine::fold,
    dense::fold,
    selections::split,
    parallel::add,
    steps::scale_rows,
];

/// The graph after passes, each as often as it finds anything to do.
fn until_done(graph: &Graph, passes: &[fn(&mut Graph) -> bool]) -> Graph {
    let mut graph = graph.clone();
    dead::remove(&mut graph);
    // Each rewrite ends by itself. Should two undo each other, the graph is right at any time.
    for _ in 0..MOST_REWRITES * graph.nodes.len() {
        if !passes.iter().any(|pass| pass(&mut graph)) {
            break;
        }
        dead::remove(&mut graph);
    }
    graph
}

/// Layers of weights.
pub fn layers(graph: &Graph) -> usize {
    graph
        .nodes
        .iter()
        .filter(|node| node.op.is_linear())
        .count()
}

/// Makes everyone who reads value `from` read value `to`, which is made before it.
fn redirect(graph: &mut Graph, from: usize, to: usize) {
    let inputs = graph.nodes.iter_mut().flat_map(|node| &mut node.inputs);
    inputs
        .chain([&mut graph.output])
        .filter(|input| **input == from)
        .for_each(|input| *input = to);
}

/// The nodes that read `value`, each once; `None` when it is the result of the graph.
fn readers(graph: &Graph, value: usize) -> Option<Vec<usize>> {
    let reads = |node: &Node| node.inputs.contains(&value);
    let readers = (0..graph.nodes.len()).filter(|&index| reads(&graph.nodes[index]));
    (graph.output != value).then(|| readers.collect())
}

/// The first node that reads `value`: near it, mostly, so that no search of all nodes is needed.
fn first_reader(graph: &Graph, value: usize) -> Option<&Node> {
    let later = graph.nodes.get(value + 1..)?;
    later.iter().find(|node| node.inputs.contains(&value))
}

/// The one node that reads `value`, if it is only one, reads it once, and it is not the result.
fn only_reader(graph: &Graph, value: usize) -> Option<usize> {
    match readers(graph, value)?.as_slice() {
        [reader] => {
            let inputs = graph.nodes[*reader].inputs.iter();
            (inputs.filter(|&&input| input == value).count() == 1).then_some(*reader)
        }
        _ => None,
    }
}

/// True if the node is the operator `Reshape`.
fn is_reshape(node: &Node) -> bool {
    node.op == Op::Reshape
}

/// Adds a tensor under a new name.
pub(crate) fn insert(graph: &mut Graph, node: &str, what: &str, tensor: Tensor) -> String {
    let mut name = format!("{node}.folded_{what}");
    while graph.tensors.contains_key(&name) {
        name.push('\'');
    }
    graph.tensors.insert(name.clone(), tensor);
    name
}

/// Puts a node that reads value `index` behind it: all others read that node in its place.
pub(crate) fn insert_behind(graph: &mut Graph, index: usize, node: Node) {
    let inputs = graph.nodes.iter_mut().flat_map(|node| &mut node.inputs);
    let later = inputs.chain([&mut graph.output]);
    later
        .filter(|input| **input >= index)
        .for_each(|input| *input += 1);
    graph.nodes.insert(index + 1, node);
}

/// Puts nodes before node `index`. Their own places are from there on.
fn insert_before(graph: &mut Graph, index: usize, nodes: Vec<Node>) {
    let inputs = graph.nodes.iter_mut().flat_map(|node| &mut node.inputs);
    let later = inputs.chain([&mut graph.output]);
    later
        .filter(|input| **input >= index)
        .for_each(|input| *input += nodes.len());
    graph.nodes.splice(index..index, nodes);
}
