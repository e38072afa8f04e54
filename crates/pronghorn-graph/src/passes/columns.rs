//! Cuts what works element by element on a row into groups of its columns.
//!
//! A table's columns may differ by many powers of two, and a value has one scale in fixed point. So
//! a function of several raw columns loses the small ones. Groups have scales of their own.

use std::collections::BTreeMap;

use super::{affine::tensor, insert, insert_before};
use crate::graph::{Graph, Node, Op};

/// Columns of a row that go together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// Their places in the row.
    pub columns: Vec<usize>,
    /// About the binary logarithm of their size, for each input of the node.
    pub sizes: Vec<i32>,
}

/// The graph in which some nodes go by groups of columns. They are functions, squares or products of
/// rows, and each of their columns is in one group. Products are of values about 1 in size, and get
/// their size behind all groups: a concatenation has one scale, too.
pub fn apart(graph: &Graph, groups: &BTreeMap<usize, Vec<Group>>) -> Graph {
    let mut graph = graph.clone();
    // From the last one, so that those before keep their places.
    for (&index, groups) in groups.iter().rev() {
        split(&mut graph, index, groups);
    }
    graph
}

fn split(graph: &mut Graph, index: usize, groups: &[Group]) {
    let whole = graph.nodes[index].clone();
    let is_product = matches!(whole.op, Op::Square | Op::Multiply);
    let mut made = Made {
        first: index,
        name: whole.name.clone(),
        nodes: Vec::new(),
    };
    let mut parts = Vec::new();
    for Group { columns, sizes } in groups {
        let inputs = whole.inputs.iter().zip(sizes).map(|(&input, &size)| {
            let indices = columns.clone();
            let taken = made.push(Op::Take { axis: 0, indices }, vec![input], columns.len());
            match is_product {
                true => made.scale(graph, taken, &vec![-size; columns.len()]),
                false => taken,
            }
        });
        let inputs = inputs.collect();
        parts.push(made.push(whole.op.clone(), inputs, columns.len()));
    }
    let count: usize = groups.iter().map(|group| group.columns.len()).sum();
    let mut joined = made.push(Op::Concat { axis: 0 }, parts, count);
    if is_product {
        let sizes = groups.iter().flat_map(|Group { columns, sizes }| {
            let twice = if whole.op == Op::Square { 2 } else { 1 };
            vec![twice * sizes.iter().sum::<i32>(); columns.len()]
        });
        joined = made.scale(graph, joined, &sizes.collect::<Vec<_>>());
    }
    let mut indices = vec![0; count];
    let order = groups.iter().flat_map(|group| &group.columns);
    order
        .enumerate()
        .for_each(|(place, &column)| indices[column] = place);
    let nodes = made.nodes;
    let last = index + nodes.len();
    graph.nodes[index].op = Op::Take { axis: 0, indices };
    insert_before(graph, index, nodes);
    graph.nodes[last].inputs = vec![joined];
}

/// Nodes that are to stand before one of a graph.
struct Made {
    /// The place of the first.
    first: usize,
    name: String,
    nodes: Vec<Node>,
}

impl Made {
    /// The place of a new node.
    fn push(&mut self, op: Op, inputs: Vec<usize>, columns: usize) -> usize {
        self.nodes.push(Node {
            name: self.name.clone(),
            op,
            inputs,
            shape: vec![columns],
        });
        self.first + self.nodes.len() - 1
    }

    /// The place of a value times a power of two a column.
    fn scale(&mut self, graph: &mut Graph, value: usize, exponents: &[i32]) -> usize {
        let factors = exponents.iter().map(|&exponent| f64::from(exponent).exp2());
        let Some(factors) = tensor(&[exponents.len()], factors) else {
            return value;
        };
        let mul = Some(insert(graph, &self.name, "size", factors));
        self.push(Op::Affine { mul, add: None }, vec![value], exponents.len())
    }
}
