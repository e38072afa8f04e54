//! Operators of one kind on elements of the same values become one operator, where a concatenation
//! of rows puts their results together.
//!
//! Exporters write polynomial features as a product of two columns each: thousands of nodes.

use super::{insert_before, insert_behind};
use crate::graph::{Graph, Node, Op};

/// Operators one after the other that are looked at.
const MOST_DEEP: usize = 16;

/// Replaces parts of one concatenation by one part of each kind. Says whether there were any.
pub(super) fn join(graph: &mut Graph) -> bool {
    let is_row = |&at: &usize| {
        let node = &graph.nodes[at];
        node.op == Op::Concat { axis: 0 } && node.shape.len() == 1
    };
    let rows: Vec<usize> = (1..graph.nodes.len()).filter(is_row).collect();
    if rows.is_empty() {
        return false;
    }
    let uses = graph.uses();
    rows.into_iter()
        .any(|concat| join_parts(graph, &uses, concat).is_some())
}

fn join_parts(graph: &mut Graph, uses: &[usize], concat: usize) -> Option<()> {
    let inputs = &graph.nodes[concat].inputs;
    let finder = Finder { graph, uses };
    let parts: Vec<Part> = inputs.iter().map(|&input| finder.whole(input)).collect();
    let kinds = kinds(&parts);
    if kinds.len() == parts.len() {
        return None;
    }
    let mut made = Made {
        graph,
        first: concat,
        nodes: Vec::new(),
    };
    let input_of = |kind: &Vec<usize>| match kind.as_slice() {
        &[alone] => inputs[alone],
        several => made.node_of(&several.iter().map(|&at| &parts[at]).collect::<Vec<_>>()),
    };
    let new_inputs = kinds.iter().map(input_of).collect();
    let (nodes, order) = (made.nodes, order(&kinds, &parts));
    let concat = concat + nodes.len();
    insert_before(graph, concat - nodes.len(), nodes);
    graph.nodes[concat].inputs = new_inputs;
    if !order.is_sorted() {
        let back = Node {
            name: format!("{}/ordered", graph.nodes[concat].name),
            op: Op::Take {
                axis: 0,
                indices: order,
            },
            inputs: vec![concat],
            shape: graph.nodes[concat].shape.clone(),
        };
        insert_behind(graph, concat, back);
    }
    Some(())
}

/// Elements of a value, in some order, with the operators that make them of elements of others.
struct Part<'a> {
    value: usize,
    elements: Vec<usize>,
    /// Where nothing else reads the value, and it is made element by element.
    made: Option<(&'a Op, Vec<Part<'a>>)>,
}

impl Part<'_> {
    /// Whether both are elements of one value, or made alike of such.
    fn is_like(&self, other: &Self) -> bool {
        match (&self.made, &other.made) {
            (None, None) => self.value == other.value,
            (Some((op, parts)), Some((other_op, others))) => {
                let pairs = parts.iter().zip(others);
                op == other_op && pairs.into_iter().all(|(part, other)| part.is_like(other))
            }
            _ => false,
        }
    }
}

struct Finder<'a> {
    graph: &'a Graph,
    uses: &'a [usize],
}

impl<'a> Finder<'a> {
    fn whole(&self, value: usize) -> Part<'a> {
        let elements = self.graph.nodes[value].shape.iter().product();
        self.part(value, (0..elements).collect(), MOST_DEEP)
    }

    /// The elements past selections and reshapes, and what they are made of.
    fn part(&self, mut value: usize, mut elements: Vec<usize>, deep: usize) -> Part<'a> {
        let mut is_alone = self.uses[value] == 1;
        while let Some(input) = self.moved(value, &mut elements) {
            value = input;
            is_alone &= self.uses[value] == 1;
        }
        let node = &self.graph.nodes[value];
        let is_made = is_alone && deep > 0 && self.is_elementwise(node);
        let parts = |&input: &usize| self.part(input, elements.clone(), deep - 1);
        Part {
            value,
            made: is_made.then(|| (&node.op, node.inputs.iter().map(parts).collect())),
            elements,
        }
    }

    /// The value that a selection or a reshape copies elements of, which become that value's.
    fn moved(&self, value: usize, elements: &mut [usize]) -> Option<usize> {
        let node = &self.graph.nodes[value];
        let &input = node.inputs.first()?;
        match &node.op {
            Op::Reshape => {}
            Op::Take { axis, indices } => {
                let length = self.graph.nodes[input].shape[*axis];
                let inner: usize = node.shape[axis + 1..].iter().product();
                for element in elements {
                    let (row, place) = (*element / inner, *element % inner);
                    let (outer, at) = (row / indices.len(), row % indices.len());
                    *element = (outer * length + indices[at]) * inner + place;
                }
            }
            _ => return None,
        }
        Some(input)
    }

    fn is_elementwise(&self, node: &Node) -> bool {
        let same = |&input: &usize| self.graph.nodes[input].shape == node.shape;
        let is_pool = matches!(node.op, Op::MaxPool { .. });
        let op = matches!(node.op, Op::Multiply | Op::Add) || node.op.is_activation() && !is_pool;
        op && node.inputs.iter().all(same)
    }
}

/// The places of the parts of each kind, by the first of each.
fn kinds(parts: &[Part<'_>]) -> Vec<Vec<usize>> {
    let mut kinds: Vec<Vec<usize>> = Vec::new();
    for (at, part) in parts.iter().enumerate() {
        let same = |kind: &&mut Vec<usize>| parts[kind[0]].is_like(part);
        match kinds.iter_mut().find(same) {
            Some(kind) => kind.push(at),
            None => kinds.push(vec![at]),
        }
    }
    kinds
}

/// The place of each element of the parts in their order, where they stand kind after kind.
fn order(kinds: &[Vec<usize>], parts: &[Part<'_>]) -> Vec<usize> {
    let mut starts = vec![0; parts.len()];
    let mut next = 0;
    for &part in kinds.iter().flatten() {
        starts[part] = next;
        next += parts[part].elements.len();
    }
    let places = |(start, part): (usize, &Part<'_>)| start..start + part.elements.len();
    starts.into_iter().zip(parts).flat_map(places).collect()
}

/// New nodes that stand from `first` on.
struct Made<'a> {
    graph: &'a Graph,
    first: usize,
    nodes: Vec<Node>,
}

impl Made<'_> {
    /// A row of the elements of parts that are alike.
    fn node_of(&mut self, parts: &[&Part<'_>]) -> usize {
        let count = parts.iter().map(|part| part.elements.len()).sum();
        let (op, inputs) = match &parts[0].made {
            None => self.taken(parts),
            Some((op, operands)) => {
                let operand = |at| {
                    let of_all = parts.iter().filter_map(|part| part.made.as_ref());
                    let of_all: Vec<&Part<'_>> = of_all.map(|(_, of)| &of[at]).collect();
                    self.node_of(&of_all)
                };
                let inputs = (0..operands.len()).map(operand).collect();
                ((*op).clone(), inputs)
            }
        };
        self.push(parts[0].value, op, inputs, count)
    }

    /// The selection of elements of one value.
    fn taken(&mut self, parts: &[&Part<'_>]) -> (Op, Vec<usize>) {
        let value = parts[0].value;
        let count = self.graph.nodes[value].shape.iter().product();
        let flat = self.push(value, Op::Reshape, vec![value], count);
        let elements = parts.iter().flat_map(|part| &part.elements);
        let indices = elements.copied().collect();
        (Op::Take { axis: 0, indices }, vec![flat])
    }

    fn push(&mut self, value: usize, op: Op, inputs: Vec<usize>, count: usize) -> usize {
        self.nodes.push(Node {
            name: format!("{}/together", self.graph.nodes[value].name),
            op,
            inputs,
            shape: vec![count],
        });
        self.first + self.nodes.len() - 1
    }
}
