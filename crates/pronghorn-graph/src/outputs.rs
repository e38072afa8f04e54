//! Outputs with a power of two each.

use crate::{
    graph::{Graph, Node, Op, Tensor},
    passes,
};

/// The network that computes each channel of its output `2^exponent` times, for a client who takes
/// that back ([`Op::Scale`]). [`passes::run`] folds the factors into the layers before.
///
/// # Panics
/// Unless there is an exponent for each channel.
pub fn with_scales(graph: &Graph, exponents: &[i8]) -> Graph {
    let shape = &graph.nodes[graph.output].shape;
    assert_eq!(
        shape.first(),
        Some(&exponents.len()),
        "an exponent a channel"
    );
    let scale = Op::Scale {
        exponents: exponents.iter().map(|&e| -e).collect(),
    };
    let mut graph = graph.clone();
    let factors: Vec<f32> = exponents.iter().map(|&e| f32::from(e).exp2()).collect();
    let factors = Tensor::new([factors.len()], factors);
    let affine = Op::Affine {
        mul: Some(passes::insert(&mut graph, "outputs", "mul", factors)),
        add: None,
    };
    for op in [affine, scale] {
        let Node { name, shape, .. } = graph.nodes[graph.output].clone();
        graph.nodes.push(Node {
            name,
            op,
            inputs: vec![graph.output],
            shape,
        });
        graph.output = graph.nodes.len() - 1;
    }
    graph
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::float;

    /// Two dense heads of a row, one through a reshape, that are joined.
    fn heads() -> Graph {
        let node = |name: &str, op, inputs: &[usize], shape: &[usize]| Node {
            name: name.into(),
            op,
            inputs: inputs.to_vec(),
            shape: shape.to_vec(),
        };
        let dense = |name: &str| Op::Dense {
            weight: format!("{name}.w"),
            bias: Some(format!("{name}.b")),
        };
        let tensor = |name: &str, shape: &[usize]| {
            let count = shape.iter().product::<usize>();
            let data = (0..count).map(|i| (i as f32 * 7.3 + name.len() as f32).sin());
            (
                name.to_string(),
                Tensor::new(shape.to_vec(), data.collect()),
            )
        };
        Graph {
            name: "m".into(),
            nodes: vec![
                node("x", Op::Input, &[], &[3]),
                node("scores", dense("scores"), &[0], &[2]),
                node("price", dense("price"), &[0], &[1]),
                node("flat", Op::Reshape, &[2], &[1]),
                node("joined", Op::Concat { axis: 0 }, &[1, 3], &[3]),
            ],
            output: 4,
            tensors: BTreeMap::from([
                tensor("scores.w", &[2, 3]),
                tensor("scores.b", &[2]),
                tensor("price.w", &[1, 3]),
                tensor("price.b", &[1]),
            ]),
        }
    }

    /// The function stays, and heads take the factors up.
    #[test]
    fn layers_before_a_concatenation_take_scales_up() {
        let graph = heads();
        graph.validate().unwrap();
        let rows: Vec<f32> = (0..12).map(|i| (i as f32 * 1.7).cos()).collect();
        let wanted = float::evaluate(&graph, &rows, 4).unwrap();
        let scaled = with_scales(&graph, &[5, 3, 0]);
        scaled.validate().unwrap();
        let folded = passes::run(&scaled);
        assert_eq!(passes::layers(&folded), 2, "{folded:?}");
        let (value, _) = folded.tail();
        assert!(matches!(folded.nodes[value].op, Op::Concat { .. }));
        let found = float::evaluate(&folded, &rows, 4).unwrap();
        assert!(found.iter().zip(&wanted).all(|(f, w)| (f - w).abs() < 1e-6));
        let values = float::evaluate(&graph_to(&folded, value), &rows, 4).unwrap();
        assert!((values[0] - 32.0 * wanted[0]).abs() < 1e-4);
    }

    /// A map whose factors differ within a channel stays behind the concatenation: no layer takes it
    /// up, and passes end.
    #[test]
    fn factors_within_a_channel_stay() {
        let mut graph = heads();
        let conv = Op::Conv {
            weight: "conv.w".into(),
            bias: None,
            window: crate::geometry::Window {
                kernel: [1, 1],
                stride: [1, 1],
                padding: [0; 4],
                dilation: [1, 1],
            },
            groups: 1,
        };
        let node = |name: &str, op, inputs: &[usize], shape: &[usize]| Node {
            name: name.into(),
            op,
            inputs: inputs.to_vec(),
            shape: shape.to_vec(),
        };
        let map = Op::Affine {
            mul: Some("map.w".into()),
            add: None,
        };
        graph.nodes.extend([
            node("image", Op::Reshape, &[0], &[1, 3, 1]),
            node("conv", conv, &[5], &[1, 3, 1]),
            node("pixels", Op::Reshape, &[6], &[3]),
            node("row", Op::Concat { axis: 0 }, &[7, 4], &[6]),
            node("map", map, &[8], &[6]),
            node("twice", Op::Concat { axis: 0 }, &[9, 9], &[12]),
        ]);
        graph.output = 10;
        for (name, shape) in [("conv.w", vec![1, 1, 1, 1]), ("map.w", vec![6])] {
            let count = shape.iter().product::<usize>();
            let data = (0..count).map(|i| i as f32 + 0.5).collect();
            graph.tensors.insert(name.into(), Tensor::new(shape, data));
        }
        graph.validate().unwrap();
        let rows: Vec<f32> = (0..12).map(|i| (i as f32 * 1.7).cos()).collect();
        let wanted = float::evaluate(&graph, &rows, 4).unwrap();
        let found = float::evaluate(&passes::run(&graph), &rows, 4).unwrap();
        assert!(found.iter().zip(&wanted).all(|(f, w)| (f - w).abs() < 1e-5));
    }

    fn graph_to(graph: &Graph, output: usize) -> Graph {
        Graph {
            nodes: graph.nodes[..=output].to_vec(),
            output,
            ..graph.clone()
        }
    }
}
