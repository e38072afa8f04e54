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
    let is_alone = graph
        .readers(layer)
        .all(|(_, reader)| reader.op == Op::Step);
    if graph.output == layer || !is_alone {
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
