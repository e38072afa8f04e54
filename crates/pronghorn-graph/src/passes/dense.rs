//! Folds dense layers that follow each other into one: a table of categories, or a principal
//! component analysis, before a classifier.

use super::{
    affine::{replace, tensor, weights},
    only_reader,
};
use crate::graph::{Graph, Op, Tensor};

/// A layer of so many multiply-adds costs less than another step, whatever the engine: behind a
/// narrow layer, 200 to 1 to 326, one of 65,000 took up to twice the bytes of both.
const FREE: usize = 1 << 12;

/// Multiply-adds of folding, at most.
const MOST_WORK: usize = 1 << 28;

/// `W2 (W1 x + b1) + b2 = (W2 W1) x + (W2 b1 + b2)`, unless that takes many more multiply-adds.
/// Says whether there was such a pair.
pub(super) fn fold(graph: &mut Graph) -> bool {
    (1..graph.nodes.len()).any(|index| fold_into(graph, index).is_some())
}

fn fold_into(graph: &mut Graph, second: usize) -> Option<()> {
    let is_dense = |index: usize| matches!(graph.nodes[index].op, Op::Dense { .. });
    let first = *graph.nodes[second].inputs.first()?;
    if !is_dense(second) || !is_dense(first) || only_reader(graph, first)? != second {
        return None;
    }
    let [before, after] = [first, second].map(|index| weights(&graph.nodes[index].op));
    let ((first_weight, first_bias), (second_weight, second_bias)) = (before?, after?);
    let [first_matrix, second_matrix] =
        [first_weight, second_weight].map(|name| &graph.tensors[name]);
    let (inner, outputs) = (first_matrix.shape[0], second_matrix.shape[0]);
    let inputs = first_matrix.data.len() / inner;
    let both = first_matrix.data.len() + second_matrix.data.len();
    let work = outputs.saturating_mul(inner).saturating_mul(inputs);
    if outputs * inputs > both.max(FREE) || work > MOST_WORK {
        return None;
    }
    let bias = |name: Option<&str>, row: usize| name.map_or(0.0, |name| graph.data(name)[row]);
    let mut folded = vec![0.0; outputs * inputs];
    let mut shifts = Vec::with_capacity(outputs);
    for (row, (weights, sums)) in second_matrix
        .data
        .chunks(inner)
        .zip(folded.chunks_mut(inputs))
        .enumerate()
    {
        let mut shift = f64::from(bias(second_bias, row));
        let rows = first_matrix.data.chunks(inputs);
        for (at, (&weight, values)) in weights.iter().zip(rows).enumerate() {
            let weight = f64::from(weight);
            shift += weight * f64::from(bias(first_bias, at));
            let sums = sums.iter_mut().zip(values);
            sums.for_each(|(sum, &value)| *sum += weight * f64::from(value));
        }
        shifts.push(shift);
    }
    let weight: Tensor = tensor(&[outputs, inputs], folded.into_iter())?;
    let bias = tensor(&[outputs], shifts.into_iter())?;
    let inputs = graph.nodes[first].inputs.clone();
    replace(graph, second, weight, bias);
    graph.nodes[second].inputs = inputs;
    Some(())
}
