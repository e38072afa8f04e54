//! Cuts what works element by element on a row into groups of its columns.
//!
//! A table's columns may differ by many powers of two, and a value has one scale in fixed point. So
//! a function of several raw columns loses the small ones. Groups have scales of their own.

use std::{cmp::Reverse, collections::BTreeMap};

use super::{insert, insert_before, insert_behind, is_reshape, only_reader};
use crate::graph::{Graph, Node, Op, Tensor};

/// The square of two to this power is a number in single precision.
pub const MOST_SIZE: i32 = 60;

/// Columns of a row that go together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// Their places in the row.
    pub columns: Vec<usize>,
    /// About the binary logarithm of their size, for each input of the node: from -[`MOST_SIZE`] to
    /// [`MOST_SIZE`].
    pub sizes: Vec<i32>,
}

/// The graph in which some nodes go by groups of columns: functions, squares and products of
/// rows. Each of their columns is in one group. Products are of values about 1 in size, and get
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

/// The graph in which products that concatenations of rows read are about 1 in size, and get their
/// size behind these: a concatenation has one scale. `sizes`: for each concatenation the binary
/// logarithms of its parts' sizes.
pub fn alike(graph: &Graph, sizes: &BTreeMap<usize, Vec<i32>>) -> Graph {
    let mut maps: Vec<Map> = sizes
        .iter()
        .flat_map(|(&concat, sizes)| maps_of(graph, concat, sizes))
        .collect();
    // From the last one, so that places before stay what they are. A product may stand right behind
    // a concatenation: the map before it comes first.
    maps.sort_by_key(|map| (Reverse(map.place()), matches!(map, Map::Behind { .. })));
    let mut graph = graph.clone();
    for map in maps {
        map.insert(&mut graph);
    }
    graph
}

/// Those of the products among a concatenation's parts, and that behind it.
fn maps_of(graph: &Graph, concat: usize, sizes: &[i32]) -> Vec<Map> {
    let (mut maps, mut behind) = (Vec::new(), Vec::new());
    for (&part, &size) in graph.nodes[concat].inputs.iter().zip(sizes) {
        let product = product_of(graph, part).filter(|_| size != 0);
        let own = product.map_or(0, |_| size);
        behind.extend(vec![own; graph.nodes[part].shape.iter().product()]);
        maps.extend(product.map(|product| Map::Before { product, size }));
    }
    if !maps.is_empty() {
        maps.push(Map::Behind { concat, behind });
    }
    maps
}

/// A map by powers of two.
enum Map {
    /// Of the first factor of a product, which makes the product smaller by its size.
    Before { product: usize, size: i32 },
    /// Of a concatenation's elements.
    Behind { concat: usize, behind: Vec<i32> },
}

impl Map {
    /// Where it is to stand.
    fn place(&self) -> usize {
        match *self {
            Self::Before { product, .. } => product,
            Self::Behind { concat, .. } => concat + 1,
        }
    }

    fn insert(self, graph: &mut Graph) {
        match self {
            Self::Before { product, size } => {
                let first = graph.nodes[product].inputs[0];
                let Node { name, shape, .. } = graph.nodes[first].clone();
                let exponents = vec![-size; shape.iter().product()];
                let map = scaled(graph, first, name, shape, &exponents);
                insert_before(graph, product, vec![map]);
                graph.nodes[product + 1].inputs[0] = product;
            }
            Self::Behind { concat, behind } => {
                let Node { name, shape, .. } = graph.nodes[concat].clone();
                let map = scaled(graph, concat, name, shape, &behind);
                insert_behind(graph, concat, map);
            }
        }
    }
}

/// A value of this shape times a power of two an element, which [`Group::sizes`] keep within single
/// precision.
fn scaled(
    graph: &mut Graph,
    value: usize,
    name: String,
    shape: Vec<usize>,
    exponents: &[i32],
) -> Node {
    let factor = |&exponent: &i32| f64::from(exponent).exp2() as f32;
    let factors = exponents.iter().map(factor).collect();
    let factors = Tensor::new([exponents.len()], factors);
    Node {
        op: Op::Affine {
            mul: Some(insert(graph, &name, "size", factors)),
            add: None,
        },
        inputs: vec![value],
        name,
        shape,
    }
}

/// The product that makes a value, alone or before reshapes, where nothing else reads it.
fn product_of(graph: &Graph, value: usize) -> Option<usize> {
    only_reader(graph, value)?;
    match &graph.nodes[value] {
        node if node.op == Op::Multiply => Some(value),
        node if is_reshape(node) => product_of(graph, node.inputs[0]),
        _ => None,
    }
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
        self.add(Node {
            name: self.name.clone(),
            op,
            inputs,
            shape: vec![columns],
        })
    }

    fn add(&mut self, node: Node) -> usize {
        self.nodes.push(node);
        self.first + self.nodes.len() - 1
    }

    /// The place of a value times a power of two a column.
    fn scale(&mut self, graph: &mut Graph, value: usize, exponents: &[i32]) -> usize {
        let (name, shape) = (self.name.clone(), vec![exponents.len()]);
        let map = scaled(graph, value, name, shape, exponents);
        self.add(map)
    }
}
