//! Where a fixed-point network loses digits of the float network's values.

use std::{collections::HashMap, fmt};

use crate::{
    fixed::FixedGraph,
    float,
    graph::Graph,
    names::printable,
    oracle::{self, OracleError},
    shape,
};

/// Images that are compared.
const IMAGES: usize = 8;

/// Elements of each value that are compared, evenly spaced.
const ELEMENTS: usize = 1 << 12;

/// A loss has an error so many times that of what the node reads.
const LEAST_TIMES: f64 = 3.0;

/// Names are shortened to so many characters.
const MOST_NAME: usize = 80;

/// A node whose value has a larger error than those that it reads.
///
/// Errors are those about the mean over images, as parts of the spread, and up to a factor for each
/// channel: layers absorb steps of their values.
#[derive(Clone, Debug, PartialEq)]
pub struct Loss {
    /// The node's name.
    pub node: String,
    /// Its operator.
    pub operator: &'static str,
    /// The shape of its value.
    pub shape: Vec<usize>,
    /// The largest error of what it reads.
    pub before: f64,
    /// The error of its value.
    pub at: f64,
}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name: String = printable(&self.node).chars().take(MOST_NAME).collect();
        write!(
            f,
            "Errors become large at node {name} ({}, shape {:?}): its values err by {:.2} of their \
             spread, and all that it reads by {:.2}",
            self.operator, self.shape, self.at, self.before
        )
    }
}

/// The node at which the error grows most, on the first of `inputs`. `None` where it grows slowly,
/// or where no such error is a quarter of `error`, which is the result's.
///
/// # Errors
/// When `inputs` does not hold images, or a value leaves its proven range.
pub fn largest(
    graph: &Graph,
    fixed: &FixedGraph,
    inputs: &[f32],
    error: f64,
) -> Result<Option<Loss>, OracleError> {
    let inputs = &inputs[..inputs.len().min(IMAGES * graph.input_len())];
    let values = of_values(graph, fixed, inputs)?;
    let mut errors: Vec<f64> = Vec::with_capacity(graph.nodes.len());
    let mut found: Option<Loss> = None;
    for (node, own) in graph.nodes.iter().zip(values) {
        let read = node.inputs.iter().map(|&input| errors[input]);
        let before = read.fold(0.0, f64::max);
        let at = own.unwrap_or(before);
        errors.push(at);
        let grows = at > LEAST_TIMES * before && at - before > error / 4.0;
        let most = found.as_ref().map_or(0.0, |loss| loss.at - loss.before);
        if grows && at - before > most {
            found = Some(Loss {
                node: node.name.clone(),
                operator: node.op.name(),
                shape: node.shape.clone(),
                before,
                at,
            });
        }
    }
    Ok(found)
}

/// The error of each value that is in both networks.
fn of_values(
    graph: &Graph,
    fixed: &FixedGraph,
    inputs: &[f32],
) -> Result<Vec<Option<f64>>, OracleError> {
    let places = counterparts(graph, fixed);
    let (mut wanted, mut found) = (HashMap::new(), HashMap::new());
    float::observe(graph, inputs, |index, value| {
        if places[index].is_some() {
            let values: &mut Vec<f64> = wanted.entry(index).or_default();
            values.extend(some(value).map(|&value| f64::from(value)));
        }
    });
    let (integers, _) = oracle::quantise_input(fixed.input(), inputs)?;
    oracle::observe(fixed, &integers, |index, value| {
        let values: &mut Vec<f64> = found.entry(index).or_default();
        values.extend(some(value).map(|&value| f64::from(value)));
    })?;
    let of_node = |(index, place): (usize, &Option<usize>)| {
        let (wanted, found) = (wanted.get(&index)?, found.get(&(*place)?)?);
        Some(unexplained(&graph.nodes[index].shape, wanted, found))
    };
    Ok(places.iter().enumerate().map(of_node).collect())
}

/// The fixed-point value of each node: the last with its name and shape.
fn counterparts(graph: &Graph, fixed: &FixedGraph) -> Vec<Option<usize>> {
    let (mut last, mut place) = (HashMap::new(), HashMap::new());
    for (index, node) in graph.nodes.iter().enumerate() {
        last.insert(&node.name, index);
    }
    for (index, node) in fixed.nodes.iter().enumerate() {
        place.insert((&node.name, &node.value.shape), index);
    }
    let nodes = graph.nodes.iter().enumerate();
    let of_node = nodes.map(|(index, node)| match last[&node.name] == index {
        true => place.get(&(&node.name, &node.shape)).copied(),
        false => None,
    });
    of_node.collect()
}

/// The elements that are compared.
fn some<T>(value: &[T]) -> impl Iterator<Item = &T> {
    value.iter().step_by(stride(value.len()))
}

fn stride(elements: usize) -> usize {
    elements.div_ceil(ELEMENTS).max(1)
}

/// The part of a value's spread, root mean square, that is no multiple of another value. Each
/// channel has a multiple of its own.
fn unexplained(shape: &[usize], wanted: &[f64], found: &[f64]) -> f64 {
    let elements: usize = shape.iter().product();
    let (stride, (channels, length)) = (stride(elements), shape::channels(shape));
    let each = elements.div_ceil(stride).max(1);
    let images = wanted.len() / each;
    // Squares of both, and products, of each channel.
    let mut sums = vec![[0.0; 3]; channels];
    for place in 0..each {
        let of_images = |values: &[f64]| -> Vec<f64> {
            let values: Vec<f64> = (0..images)
                .map(|image| values[image * each + place])
                .collect();
            let mean = values.iter().sum::<f64>() / images as f64;
            values.iter().map(|value| value - mean).collect()
        };
        let sums = &mut sums[place * stride / length.max(1)];
        for (x, y) in of_images(wanted).into_iter().zip(of_images(found)) {
            sums[0] += x * x;
            sums[1] += y * y;
            sums[2] += x * y;
        }
    }
    let (mut all, mut left) = (0.0, 0.0);
    for [x, y, both] in sums {
        all += x;
        left += if y > 0.0 { x - both * both / y } else { x };
    }
    if all > 0.0 {
        (left / all).max(0.0).sqrt()
    } else {
        0.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn multiples_of_channels_are_no_error() {
        // Two images of two channels of two elements.
        let wanted = [1.0, 2.0, 3.0, 4.0, 2.0, 0.0, 5.0, 8.0];
        let shape = [2, 2];
        let scaled: Vec<f64> = wanted
            .iter()
            .enumerate()
            .map(|(at, x)| [2.0, -0.5][at / 2 % 2] * x + 7.0)
            .collect();
        assert!(unexplained(&shape, &wanted, &scaled) < 1e-9);
        assert_eq!(unexplained(&shape, &wanted, &[3.0; 8]), 1.0);
        assert_eq!(unexplained(&shape, &[3.0; 8], &wanted), 0.0);
        // Squares about the mean: 0.5 + 2 of the first channel, 2 + 8 of the second, which is lost.
        let lost = [1.0, 2.0, 0.0, 0.0, 2.0, 0.0, 0.0, 0.0];
        let found = unexplained(&shape, &wanted, &lost);
        assert!((found - (10.0f64 / 12.5).sqrt()).abs() < 1e-9, "{found}");
    }

    #[test]
    fn elements_are_evenly_spaced() {
        assert_eq!(
            [1, ELEMENTS, ELEMENTS + 1, 3 * ELEMENTS].map(stride),
            [1, 1, 2, 3]
        );
        let value: Vec<usize> = (0..ELEMENTS + 1).collect();
        assert_eq!(some(&value).count(), (ELEMENTS + 1).div_ceil(2));
    }
}
