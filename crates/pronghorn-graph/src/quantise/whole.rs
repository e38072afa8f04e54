//! Values that are whole numbers whatever the input is: flags, and what is counted of them.

use crate::graph::{Graph, Op};

/// Larger weights are none that count.
const MOST: f32 = (1u32 << 14) as f32;

/// Whether each value is whole: that of a step, and what layers of whole weights, sums, moves and
/// comparisons make of such values. They need no fraction bits, and rounding does nothing to them.
pub(super) fn all(graph: &Graph) -> Vec<bool> {
    let mut whole = Vec::with_capacity(graph.nodes.len());
    for node in &graph.nodes {
        let of_inputs = || node.inputs.iter().all(|&input| whole[input]);
        whole.push(match &node.op {
            Op::Step => true,
            Op::Relu
            | Op::MaxPool { .. }
            | Op::Add
            | Op::Concat { .. }
            | Op::Pad { .. }
            | Op::Reshape
            | Op::Transpose { .. }
            | Op::Take { .. } => of_inputs(),
            op if op.is_linear() => of_inputs() && op.tensors().all(|name| counts(graph, name)),
            _ => false,
        });
    }
    whole
}

fn counts(graph: &Graph, name: &str) -> bool {
    let mut data = graph.data(name).iter();
    data.all(|weight| weight.fract() == 0.0 && weight.abs() <= MOST)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::graph::{Node, Tensor};

    #[test]
    fn counts_of_flags_are_whole() {
        let node = |op: Op, input: usize| Node {
            name: op.name().into(),
            op,
            inputs: vec![input],
            shape: vec![2],
        };
        let dense = |weight: &str| Op::Dense {
            weight: weight.into(),
            bias: None,
        };
        let mut input = node(Op::Input, 0);
        input.inputs.clear();
        let tensor = |data: [f32; 4]| Tensor::new([2, 2], data.to_vec());
        let graph = Graph {
            name: "flags".into(),
            nodes: vec![
                input,
                node(dense("counts"), 0),
                node(Op::Step, 1),
                node(dense("counts"), 2),
                node(Op::Relu, 3),
                node(dense("halves"), 4),
                node(Op::Relu, 5),
            ],
            output: 6,
            tensors: BTreeMap::from([
                ("counts".into(), tensor([1.0, -1.0, 2.0, 0.0])),
                ("halves".into(), tensor([0.5, 1.0, 1.0, 1.0])),
            ]),
        };
        assert_eq!(all(&graph), [false, false, true, true, true, false, false]);
    }
}
