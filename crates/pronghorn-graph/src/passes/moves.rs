//! Brings rearrangements together, where they cancel.
//!
//! Networks that keep channels last have transpositions on both sides of each layer. Activations
//! and affine maps between them work element by element. So they go before the transpositions,
//! which then meet.

use super::{insert, is_reshape, only_reader};
use crate::{
    graph::{Graph, Node, Op, Tensor},
    layout, shape,
};

/// Elements that are looked at before all are.
const PROBES: usize = 16;

/// Replaces rearrangements in a row that bring all elements back by one reshape. Says whether there
/// were any.
pub(super) fn cancel(graph: &mut Graph) -> bool {
    let mut changed = false;
    for index in 1..graph.nodes.len() {
        if let Some(source) = equal_source(graph, index) {
            graph.nodes[index].op = Op::Reshape;
            graph.nodes[index].inputs = vec![source];
            changed = true;
        }
    }
    changed
}

/// The first value behind rearrangements before node `index` that has its elements in its order,
/// with two transpositions or more between them.
fn equal_source(graph: &Graph, index: usize) -> Option<usize> {
    let chain = chain_before(graph, index);
    let transposes = chain.iter().filter(|&&at| !is_reshape(&graph.nodes[at]));
    if transposes.count() < 2 {
        return None;
    }
    // Few elements tell of most chains that their order is another one.
    let count: usize = graph.nodes[index].shape.iter().product();
    let last = count.saturating_sub(1);
    let few = (0..PROBES).map(|at| at * last / (PROBES - 1));
    first_equal(graph, &chain, &few.chain([1.min(last)]).collect::<Vec<_>>())?;
    first_equal(graph, &chain, &(0..count).collect::<Vec<_>>())
}

/// The first value before a chain where some elements of its result have the same places.
fn first_equal(graph: &Graph, chain: &[usize], elements: &[usize]) -> Option<usize> {
    let (mut sources, mut transposed, mut found) = (elements.to_vec(), 0, None);
    for &at in chain {
        let input = graph.nodes[at].inputs[0];
        if let Op::Transpose { permutation } = &graph.nodes[at].op {
            let shape = &graph.nodes[input].shape;
            for source in &mut sources {
                *source = layout::before_transpose(shape, permutation, *source);
            }
            transposed += 1;
        }
        if transposed > 1 && sources == elements {
            found = Some(input);
        }
    }
    found
}

/// Node `index` and those before it that rearrange, from the last to the first.
fn chain_before(graph: &Graph, index: usize) -> Vec<usize> {
    let moves = |&at: &usize| is_move(&graph.nodes[at]);
    let next = |&at: &usize| graph.nodes[at].inputs.first().copied().filter(moves);
    std::iter::successors(Some(index).filter(moves), next).collect()
}

pub(super) fn is_move(node: &Node) -> bool {
    is_reshape(node) || matches!(node.op, Op::Transpose { .. })
}

/// Brings one operator that works element by element before the rearrangements before it, where
/// nothing else reads those, and some transpose or a layer is before them that takes it up. Says
/// whether it could.
pub(super) fn sink(graph: &mut Graph) -> bool {
    (1..graph.nodes.len()).any(|index| sink_below(graph, index).is_some())
}

fn sink_below(graph: &mut Graph, index: usize) -> Option<()> {
    let input = *graph.nodes[index].inputs.first()?;
    if !is_elementwise(&graph.nodes[index].op) {
        return None;
    }
    let chain = alone(graph, chain_before(graph, input));
    let first = *chain.last()?;
    let source = graph.nodes[first].inputs[0];
    let transposes = chain.iter().any(|&at| !is_reshape(&graph.nodes[at]));
    if !transposes && !is_taken_up(graph, index, source) {
        return None;
    }
    let moved = Node {
        op: before_moves(graph, index, &chain)?,
        inputs: vec![source],
        shape: graph.nodes[source].shape.clone(),
        ..graph.nodes[index].clone()
    };
    // Each node takes the place of the next one.
    let mut places: Vec<usize> = chain.iter().rev().copied().collect();
    places.push(index);
    let mut next = moved;
    for (at, &place) in places.iter().enumerate() {
        let inputs = match at {
            0 => vec![source],
            at => vec![places[at - 1]],
        };
        next = std::mem::replace(&mut graph.nodes[place], Node { inputs, ..next });
    }
    Some(())
}

/// Whether node `index` is an affine map that the layer `source` would take up next to it.
fn is_taken_up(graph: &Graph, index: usize, source: usize) -> bool {
    let is_layer = matches!(graph.nodes[source].op, Op::Conv { .. } | Op::Dense { .. });
    is_layer
        && matches!(graph.nodes[index].op, Op::Affine { .. })
        && only_reader(graph, source).is_some()
}

/// The nodes at the front of `chain` whose only reader is the one before them.
fn alone(graph: &Graph, chain: Vec<usize>) -> Vec<usize> {
    let one = |&at: &usize| only_reader(graph, at).is_some();
    chain.into_iter().take_while(one).collect()
}

fn is_elementwise(op: &Op) -> bool {
    matches!(
        op,
        Op::Relu
            | Op::Clip { .. }
            | Op::LeakyRelu { .. }
            | Op::Step
            | Op::Function { .. }
            | Op::Affine { .. }
    )
}

/// The operator of node `index` on the value before `chain`; `None` for an affine map with more
/// constants there than channels.
fn before_moves(graph: &mut Graph, index: usize, chain: &[usize]) -> Option<Op> {
    let Op::Affine { mul, add } = graph.nodes[index].op.clone() else {
        return Some(graph.nodes[index].op.clone());
    };
    let constants = [mul, add].map(|name| match name {
        Some(name) => moved_constants(graph, &name, chain).map(Some),
        None => Some(None),
    });
    let [Some(mul), Some(add)] = constants else {
        return None;
    };
    let name = graph.nodes[index].name.clone();
    let mut insert = |role, data: Option<Vec<f32>>| {
        let data = data?;
        let tensor = Tensor::new([data.len()], data);
        Some(insert(graph, &name, role, tensor))
    };
    Some(Op::Affine {
        mul: insert("mul", mul),
        add: insert("add", add),
    })
}

/// Constants of the value behind `chain` as those before it, one a channel or one in all.
fn moved_constants(graph: &Graph, name: &str, chain: &[usize]) -> Option<Vec<f32>> {
    let data = graph.data(name);
    if data.len() == 1 {
        return Some(data.to_vec());
    }
    let (&last, &first) = (chain.first()?, chain.last()?);
    let run = graph.nodes[last].shape.iter().product::<usize>() / data.len();
    let spread = data.iter().flat_map(|&x| std::iter::repeat_n(x, run));
    let mut elements: Vec<f32> = spread.collect();
    for &at in chain {
        let input = graph.nodes[at].inputs[0];
        if let Op::Transpose { permutation } = &graph.nodes[at].op {
            let sources = layout::transpose(&graph.nodes[input].shape, permutation);
            let mut back = vec![0.0; elements.len()];
            sources
                .iter()
                .zip(&elements)
                .for_each(|(&source, &x)| back[source] = x);
            elements = back;
        }
    }
    let source = &graph.nodes[graph.nodes[first].inputs[0]].shape;
    let (_, length) = shape::channels(source);
    let runs = elements.chunks(length);
    let one = |run: &[f32]| run.iter().all(|&x| x == run[0]).then_some(run[0]);
    runs.map(one).collect()
}
