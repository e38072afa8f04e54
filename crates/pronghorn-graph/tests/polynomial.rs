//! The polynomial form computes what the float network does, and its noise gains are what they say.

use crate::common::{Net, difference, size};
use pronghorn_graph::{
    float,
    geometry::Window,
    graph::{Graph, Op},
    polynomial::{PolyGraph, PolynomialError, lower},
};

/// Every operator of polynomial networks.
fn network(seed: u64) -> Net {
    let mut net = Net::new(&[2, 7, 6], seed);
    let window = Window {
        stride: [2, 1],
        padding: [1, 0, 1, 2],
        ..Window::plain([3, 3])
    };
    let conv = net.conv(0, 4, window, 2);
    let square = net.same(Op::Square, conv);
    let channels = net.shape(conv)[0];
    let affine = net.affine(conv, channels);
    let elements = net.shape(conv).iter().product();
    let affine = net.affine(affine, elements);
    let add = net.add(square, affine);
    let uneven = Window {
        padding: [1; 4],
        stride: [2, 2],
        ..Window::plain([2, 2])
    };
    let mean = |count_include_pad| {
        move |window| Op::AveragePool {
            window,
            count_include_pad,
        }
    };
    let left = net.pool(add, mean(false), uneven.clone());
    let right = net.pool(add, mean(true), uneven);
    let shape = net.shape(left);
    let product = net.push(Op::Multiply, &[left, right], shape);
    let shape = net.shape(product);
    let [rows, planes] = [vec![shape[0], 1, shape[2]], vec![shape[0], 1, 1]];
    let row = net.take(product, 1, &[0]);
    assert_eq!(net.shape(row), rows);
    let plane = net.push(Op::GlobalAveragePool, &[product], planes);
    let gate = net.push(Op::Multiply, &[plane, row], rows);
    let product = net.push(Op::Multiply, &[product, gate], shape);
    let padded = net.pad(product, [0, 1, 0], [0, 0, 1]);
    let shape = net.shape(padded);
    let turned = net.push(
        Op::Transpose {
            permutation: vec![0, 2, 1],
        },
        &[padded],
        vec![shape[0], shape[2], shape[1]],
    );
    let taken = net.take(turned, 1, &[2, 0, 2]);
    let other = net.take(turned, 1, &[1, 1, 0]);
    let joined = net.concat(&[taken, other], 0);
    let channels = net.shape(joined)[0];
    let global = net.push(Op::GlobalAveragePool, &[joined], vec![channels, 1, 1]);
    let flat = net.flatten(global);
    net.dense(flat, 3);
    let shape = vec![3];
    net.push(Op::Softmax, &[net.graph.output], shape);
    net.graph.validate().expect("the test network is valid");
    net
}

fn polynomial(graph: &Graph, inputs: &[f32], images: usize, bits: u32) -> PolyGraph {
    let profile = float::profile(graph, inputs, images).expect("numbers");
    lower(graph, &profile, &vec![bits; graph.nodes.len()], 1.0).expect("a polynomial network")
}

#[test]
fn computes_what_the_float_network_does() {
    for seed in 0..8 {
        let mut net = network(seed);
        let inputs = net.random.reals(84 * 5, -1.0, 1.0);
        // Without the softmax, which the client computes.
        net.graph.output = net.graph.nodes[net.graph.output].inputs[0];
        net.graph.nodes.pop();
        let wanted = float::evaluate(&net.graph, &inputs, 5).expect("numbers");
        let doubles: Vec<f64> = inputs.iter().map(|&x| x.into()).collect();
        let mut last = f64::INFINITY;
        for (bits, most) in [(6, 0.3), (10, 0.02), (15, 1e-3)] {
            let found = polynomial(&net.graph, &inputs, 5, bits).evaluate(&doubles);
            let found: Vec<f32> = found.iter().map(|&y| y as f32).collect();
            let error = difference(&found, &wanted) / size(&wanted);
            assert!(
                error < most && error < last,
                "seed {seed}, {bits} bits: {error}"
            );
            last = error;
        }
    }
}

#[test]
fn the_softmax_is_left_to_the_client() {
    let mut net = network(3);
    let inputs = net.random.reals(84, -1.0, 1.0);
    let graph = polynomial(&net.graph, &inputs, 1, 8);
    assert_eq!(graph.finish, [pronghorn_graph::finish::Finish::Softmax]);
    assert_eq!(graph.result().shape, [3]);
}

#[test]
fn a_relu_is_named() {
    let mut net = Net::new(&[4], 1);
    net.same(Op::Relu, 0);
    let profile = float::profile(&net.graph, &[1.0; 4], 1).expect("numbers");
    let Err(error) = lower(&net.graph, &profile, &[8; 2], 1.0) else {
        panic!("a ReLU is no polynomial")
    };
    assert!(matches!(error, PolynomialError::NotPolynomial { .. }));
    assert!(error.to_string().contains("Relu1"), "{error}");
    assert!(matches!(
        lower(&net.graph, &profile, &[16; 2], 1.0),
        Err(PolynomialError::WeightBits { weight_bits: 16 })
    ));
}

/// Errors of an element that is taken twice add up, not their squares.
#[test]
fn repeated_elements_share_their_errors() {
    let mut net = Net::new(&[2], 5);
    let taken = net.take(0, 0, &[0, 0, 1]);
    let weight = net.tensor(&[1, 3], vec![1.0, 1.0, 1.0]);
    let op = Op::Dense { weight, bias: None };
    net.push(op, &[taken], vec![1]);
    let graph = polynomial(&net.graph, &[1.0, 0.5], 1, 15);
    let worst = graph.worst_gains(1.0);
    assert!(worst[0] >= 5f64.sqrt(), "{}", worst[0]);
    assert!((worst[1] - 3f64.sqrt()).abs() < 1e-3, "{}", worst[1]);
}

/// Of a linear network the gain of the input is the largest Euclidean norm of a row, and the worst
/// gain the same.
#[test]
fn gains_of_a_layer_are_its_norms() {
    let mut net = Net::new(&[40], 5);
    net.dense(0, 6);
    let inputs = net.random.reals(40 * 30, -1.0, 1.0);
    let graph = polynomial(&net.graph, &inputs, 30, 15);
    let doubles: Vec<f64> = inputs.iter().map(|&x| x.into()).collect();
    let (measured, worst) = (graph.measured_gains(&doubles), graph.worst_gains(1.0));
    let pronghorn_graph::polynomial::PolyOp::Linear(layer) = &graph.nodes[1].op else {
        panic!("the node is a layer")
    };
    let norm = layer.norms().1 / layer.divisor;
    assert!((worst[0] - norm).abs() < 1e-9);
    // Sixteen draws: within a factor of two, for the largest of six.
    assert!(
        (0.6 * norm..2.0 * norm).contains(&measured[0]),
        "{} {norm}",
        measured[0]
    );
    assert!((measured[1] - 1.0).abs() < 1e-6 && (worst[1] - 1.0).abs() < 1e-9);
}

#[test]
fn worst_gains_are_no_smaller_than_measured_ones() {
    for seed in 0..8 {
        let mut net = network(seed);
        let inputs = net.random.reals(84 * 5, -1.0, 1.0);
        let graph = polynomial(&net.graph, &inputs, 5, 8);
        let doubles: Vec<f64> = inputs.iter().map(|&x| x.into()).collect();
        let gains = graph
            .measured_gains(&doubles)
            .into_iter()
            .zip(graph.worst_gains(1.0));
        for (node, (measured, worst)) in gains.enumerate() {
            // Sixteen draws overestimate now and then.
            assert!(
                measured <= 1.6 * worst + 1e-6,
                "seed {seed}, node {node}: {measured} {worst}"
            );
        }
    }
}

/// Products of matrices become products of values, and sums of them.
#[test]
fn matrices_are_products_and_sums() {
    let mut net = Net::new(&[2, 3, 5], 4);
    let turned = Op::Transpose {
        permutation: vec![0, 2, 1],
    };
    let turned = net.push(turned, &[0], vec![2, 5, 3]);
    net.push(Op::MatMul, &[0, turned], vec![2, 3, 3]);
    let inputs = net.random.reals(30 * 4, -1.0, 1.0);
    let wanted = float::evaluate(&net.graph, &inputs, 4).expect("numbers");
    let doubles: Vec<f64> = inputs.iter().map(|&x| x.into()).collect();
    let graph = polynomial(&net.graph, &inputs, 4, 8);
    assert!(graph.is_sound());
    let found = graph.evaluate(&doubles);
    for (found, wanted) in found.iter().zip(&wanted) {
        assert!((found - f64::from(*wanted)).abs() < 1e-5);
    }
}
