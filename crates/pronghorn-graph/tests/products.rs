//! Products of two values in fixed point.

use crate::common::{
    Net, Random,
    quantised::{IMAGES, padded, quantised},
};
use pronghorn_graph::{
    fixed::{ActivationOp, FixedNode, FixedOp},
    float,
    geometry::Window,
    graph::Op,
    passes,
    quantise::{FixedPrecision, QuantiseOptions, quantise},
};

/// A convolution whose channels a gate scales, made from their means.
fn squeeze_and_excitation() -> Net {
    let mut net = Net::new(&[3, 8, 8], 17);
    let conv = net.conv(0, 6, padded(1), 1);
    let relu = net.same(Op::Relu, conv);
    let mean = net.push(Op::GlobalAveragePool, &[relu], vec![6, 1, 1]);
    let squeezed = net.conv(mean, 3, Window::plain([1, 1]), 1);
    let squeezed = net.same(Op::Relu, squeezed);
    let excited = net.conv(squeezed, 6, Window::plain([1, 1]), 1);
    let gate = Op::Clip {
        min: Some(0.0),
        max: Some(1.0),
    };
    let gate = net.same(gate, excited);
    let gated = net.push(Op::Multiply, &[relu, gate], vec![6, 8, 8]);
    let last = net.conv(gated, 4, padded(2), 1);
    let flat = net.flatten(last);
    net.dense(flat, 5);
    net
}

#[test]
fn gates() {
    for (bits, error) in [(12, 0.005), (8, 0.06)] {
        let net = quantised(squeeze_and_excitation(), bits, -1.0);
        assert!(net.error() < error, "{bits} bits: {}", net.error());
    }
    let net = quantised(squeeze_and_excitation(), 8, -1.0);
    let product = |node: &&FixedNode| node.op == FixedOp::Product;
    let product = net.fixed.nodes.iter().find(product).expect("there is one");
    let factors = product.inputs.iter().map(|&input| &net.fixed.nodes[input]);
    let factors: Vec<&FixedNode> = factors.collect();
    for factor in &factors {
        let requantised = ActivationOp::Requantise {
            shift: 0,
            low: 0,
            high: 0,
        };
        let FixedOp::Activation(op) = &factor.op else {
            panic!("{}", factor.op)
        };
        assert_eq!(
            std::mem::discriminant(op),
            std::mem::discriminant(&requantised)
        );
        assert!((0..256).contains(&factor.value.low) && factor.value.high < 256);
    }
    let fractions = factors.iter().map(|factor| factor.value.fraction_bits);
    assert_eq!(product.value.fraction_bits, fractions.sum::<i32>());
}

/// Where circuits requantise, one does it for all readers of a factor.
#[test]
fn a_factor_is_rounded_once() {
    let mut net = squeeze_and_excitation();
    net.graph = passes::run(&net.graph);
    let samples = Random::new(3).reals(IMAGES * net.graph.input_len(), -1.0, 1.0);
    let profile = float::profile(&net.graph, &samples, IMAGES).unwrap();
    let options = QuantiseOptions {
        costly_requantisation: true,
        ..QuantiseOptions::default()
    };
    let fixed = quantise(&net.graph, &profile, &FixedPrecision(8, 8), &options).unwrap();
    let product = fixed.nodes.iter().find(|node| node.op == FixedOp::Product);
    let factor = product.expect("there is one").inputs[0];
    let readers = fixed
        .nodes
        .iter()
        .filter(|node| node.inputs.contains(&factor));
    let readers: Vec<String> = readers.map(|node| node.op.to_string()).collect();
    assert_eq!(readers, ["sum-pool 8x8", "product"]);
}

/// Factors of 24 bits would make products of 48.
#[test]
fn wide_factors_are_rounded() {
    let mut net = Net::new(&[4, 3], 5);
    let left = net.same(Op::Relu, 0);
    let right = net.push(
        Op::Take {
            axis: 1,
            indices: vec![1],
        },
        &[0],
        vec![4, 1],
    );
    net.push(Op::Multiply, &[left, right], vec![4, 3]);
    let wide = quantised(net, 24, -1.0);
    assert!(wide.error() < 2e-2, "{}", wide.error());
    let product = wide.fixed.result();
    assert!(i64::from(product.high) - i64::from(product.low) < 1 << 31);
}

/// Matrices of several heads: the definition, in floats and in integers, at several precisions.
#[test]
fn matrices() {
    let (parts, rows, inner, columns) = (3, 4, 5, 6);
    let net = || {
        let mut net = Net::new(&[parts, rows, inner], 5);
        let op = |permutation: &[usize]| Op::Transpose {
            permutation: permutation.to_vec(),
        };
        let turned = net.push(op(&[0, 2, 1]), &[0], vec![parts, inner, rows]);
        let indices = vec![0, 1, 2, 3, 3, 0];
        let taken = Op::Take { axis: 2, indices };
        let second = net.push(taken, &[turned], vec![parts, inner, columns]);
        net.push(Op::MatMul, &[0, second], vec![parts, rows, columns]);
        net
    };
    let columns_of = [0, 1, 2, 3, 3, 0];
    let x = Random::new(8).reals(parts * rows * inner, -1.0, 1.0);
    let mut expected = Vec::new();
    for part in 0..parts {
        for row in 0..rows {
            for column in columns_of {
                let at = |row: usize, step: usize| f64::from(x[(part * rows + row) * inner + step]);
                let term = |step: usize| at(row, step) * at(column, step);
                expected.push((0..inner).map(term).sum::<f64>());
            }
        }
    }
    let found = float::evaluate(&net().graph, &x, 1).unwrap();
    for (found, expected) in found.iter().zip(&expected) {
        assert!((f64::from(*found) - expected).abs() < 1e-5);
    }
    // The input has 8 bits where no layer reads it.
    for (bits, error) in [(14, 0.01), (6, 0.08)] {
        let net = quantised(net(), bits, -1.0);
        assert!(net.error() < error, "{bits} bits: {}", net.error());
        let is_product = |node: &&FixedNode| node.op == FixedOp::MatMul;
        let product = net
            .fixed
            .nodes
            .iter()
            .find(is_product)
            .expect("there is one");
        let reach = i64::from(product.value.high);
        let factors = product
            .inputs
            .iter()
            .map(|&input| &net.fixed.nodes[input].value);
        let most: i64 = factors
            .map(|factor| i64::from(factor.high.max(-factor.low)))
            .product();
        assert!(reach <= most * inner as i64);
    }
}
