//! Layers whose values are compared with zero.

use super::insert;
use crate::graph::{Graph, Op, Tensor};

/// Divides each row of a layer that [`Op::Step`]s alone read by the power of two in its largest
/// weight, and a row of one weight by that. Says whether any changed.
///
/// A sign is that at any scale. A row of one feature, less a threshold, then has the weight 1 or
/// -1, whatever scale its owner sends the feature at: few bits hold it exactly.
pub(super) fn scale_rows(graph: &mut Graph) -> bool {
    let steps = graph.nodes.iter().filter(|node| node.op == Op::Step);
    let read: Vec<usize> = steps.map(|step| step.inputs[0]).collect();
    let mut read = read.into_iter();
    read.any(|layer| scale_rows_at(graph, layer).is_some())
}

fn scale_rows_at(graph: &mut Graph, layer: usize) -> Option<()> {
    let node = &graph.nodes[layer];
    let (Op::Conv { weight, bias, .. } | Op::Dense { weight, bias }) = &node.op else {
        return None;
    };
    if !graph.feeds_steps_alone(layer) {
        return None;
    }
    let weights = &graph.tensors[weight];
    let row_len = (weights.data.len() / weights.shape[0]).max(1);
    let factors: Vec<f64> = weights.data.chunks(row_len).map(factor).collect();
    if factors.iter().all(|&factor| factor == 1.0) {
        return None;
    }
    let rows = weights.data.chunks(row_len).zip(&factors);
    let times = |x: f32, factor: f64| (f64::from(x) * factor) as f32;
    let scaled = rows.flat_map(|(row, &factor)| row.iter().map(move |&x| times(x, factor)));
    let new_weights = Tensor::new(weights.shape.clone(), scaled.collect());
    let new_bias = bias.as_ref().map(|name| {
        let bias = &graph.tensors[name];
        let scaled = bias.data.iter().zip(&factors);
        let scaled = scaled.map(|(&x, &factor)| times(x, factor));
        Tensor::new(bias.shape.clone(), scaled.collect())
    });
    let is_finite = |tensor: &Tensor| tensor.data.iter().all(|x| x.is_finite());
    if !is_finite(&new_weights) || !new_bias.as_ref().is_none_or(is_finite) {
        return None;
    }
    let name = node.name.clone();
    let new_weight = insert(graph, &name, "weight", new_weights);
    let new_bias = new_bias.map(|bias| insert(graph, &name, "bias", bias));
    if let Op::Conv { weight, bias, .. } | Op::Dense { weight, bias } = &mut graph.nodes[layer].op {
        (*weight, *bias) = (new_weight, new_bias);
    }
    Some(())
}

/// The power of two that brings a row's largest weight to 1 or above, and below 2; what brings a
/// weight that stands alone to 1.
fn factor(row: &[f32]) -> f64 {
    let largest = row.iter().fold(0f32, |most, x| most.max(x.abs()));
    let weights = row.iter().filter(|&&x| x != 0.0).count();
    match weights {
        0 => 1.0,
        1 => 1.0 / f64::from(largest),
        _ => (-f64::from(largest).log2().floor()).exp2(),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::{float, graph::Node};

    /// Rows of one weight and of two before steps, and the same read by a ReLU, too.
    fn network(is_read: bool) -> Graph {
        let node = |op: Op, inputs: &[usize], columns: usize| Node {
            name: op.name().into(),
            op,
            inputs: inputs.to_vec(),
            shape: vec![columns],
        };
        let dense = Op::Dense {
            weight: "weight".into(),
            bias: Some("bias".into()),
        };
        let mut nodes = vec![
            node(Op::Input, &[], 2),
            node(dense, &[0], 3),
            node(Op::Step, &[1], 3),
        ];
        if is_read {
            nodes.extend([node(Op::Relu, &[1], 3), node(Op::Add, &[2, 3], 3)]);
        }
        let weights = vec![0.0, -0.3, 12.0, 40.0, 0.0, 0.0];
        Graph {
            name: "steps".into(),
            output: nodes.len() - 1,
            nodes,
            tensors: BTreeMap::from([
                ("weight".into(), Tensor::new([3, 2], weights)),
                ("bias".into(), Tensor::new([3], vec![0.6, -8.0, 1.0])),
            ]),
        }
    }

    #[test]
    fn rows_before_steps_have_weights_about_one() {
        let graph = network(false);
        let mut scaled = graph.clone();
        assert!(scale_rows(&mut scaled));
        assert!(!scale_rows(&mut scaled));
        let Op::Dense { weight, bias } = &scaled.nodes[1].op else {
            unreachable!("it is dense")
        };
        let data = |name: &String| scaled.tensors[name].data.as_slice();
        assert_eq!(data(weight), [0.0, -1.0, 0.375, 1.25, 0.0, 0.0]);
        assert_eq!(data(bias.as_ref().unwrap()), [0.6 / 0.3, -0.25, 1.0]);
        let inputs = [1.0, 1.9, 0.5, 2.1, -7.0, 0.0];
        let run = |graph: &Graph| float::evaluate(graph, &inputs, 3).unwrap();
        assert_eq!(run(&graph), run(&scaled));
        assert_eq!(run(&graph)[..3], [1.0, 1.0, 1.0]);
    }

    #[test]
    fn rows_that_others_read_keep_their_scale() {
        assert!(!scale_rows(&mut network(true)));
    }
}
