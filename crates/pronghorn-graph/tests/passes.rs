//! Passes keep the function and do what they are for.

mod common;

use common::{Net, Random, difference, random_network, size};
use pronghorn_graph::{float, geometry::Window, graph::Op, passes};
use proptest::prelude::*;

/// Operators left after the passes, which must compute the same.
fn left(net: &Net) -> Vec<&'static str> {
    net.graph.validate().unwrap();
    let after = passes::run(&net.graph);
    after.validate().unwrap();
    let inputs = Random::new(7).reals(5 * net.graph.input_len(), -1.0, 2.0);
    let wanted = float::evaluate(&net.graph, &inputs, 5).unwrap();
    let found = float::evaluate(&after, &inputs, 5).unwrap();
    let (error, size) = (difference(&wanted, &found), size(&wanted));
    assert!(error <= 1e-5 * size + 1e-6, "error {error} of {size}");
    after.nodes.iter().map(|node| node.op.name()).collect()
}

fn padded() -> Window {
    Window {
        padding: [1; 4],
        ..Window::plain([3, 3])
    }
}

#[test]
fn normalisation_after_a_layer_folds() {
    let mut net = Net::new(&[2, 4, 4], 1);
    let conv = net.conv(0, 4, padded(), 2);
    let normal = net.affine(conv, 4);
    let scaled = net.affine(normal, 1);
    net.same(Op::Relu, scaled);
    assert_eq!(left(&net), ["Input", "Conv", "Relu"]);
}

#[test]
fn normalisation_before_layers_folds_where_there_is_no_padding() {
    let mut net = Net::new(&[2, 4, 4], 1);
    let relu = net.same(Op::Relu, 0);
    let normal = net.affine(relu, 2);
    let left_branch = net.conv(normal, 3, Window::plain([3, 3]), 1);
    let right_branch = net.conv(normal, 3, Window::plain([3, 3]), 1);
    net.add(left_branch, right_branch);
    assert_eq!(left(&net), ["Input", "Relu", "Conv", "Conv", "Add"]);

    let mut net = Net::new(&[2, 4, 4], 1);
    let normal = net.affine(0, 2);
    net.conv(normal, 3, padded(), 1);
    assert_eq!(left(&net), ["Input", "Affine", "Conv"]);

    // Without a summand, padding does not matter.
    let mut net = Net::new(&[2, 4, 4], 1);
    let mul = Some(net.tensor(&[2], vec![0.5, 3.0]));
    let scaled = net.same(Op::Affine { mul, add: None }, 0);
    net.conv(scaled, 3, padded(), 1);
    assert_eq!(left(&net), ["Input", "Conv"]);
}

#[test]
fn a_value_read_elsewhere_keeps_its_normalisation() {
    let mut net = Net::new(&[2, 4, 4], 1);
    let conv = net.conv(0, 2, padded(), 1);
    let normal = net.affine(conv, 2);
    net.add(normal, conv);
    assert_eq!(left(&net), ["Input", "Conv", "Affine", "Add"]);
}

#[test]
fn normalisation_passes_a_flattening() {
    let mut net = Net::new(&[2, 4, 4], 1);
    let relu = net.same(Op::Relu, 0);
    let normal = net.affine(relu, 2);
    let flat = net.flatten(normal);
    net.dense(flat, 3);
    assert_eq!(left(&net), ["Input", "Relu", "Reshape", "Dense"]);
}

#[test]
fn zeros_go_into_windows_where_they_may() {
    let mut net = Net::new(&[2, 4, 4], 1);
    let pad = net.pad(0, [0, 1, 2], [0, 0, 1]);
    let conv = net.conv(pad, 3, padded(), 1);
    let pad = net.pad(conv, [0, 1, 1], [0, 1, 1]);
    let average = |window| Op::AveragePool {
        window,
        count_include_pad: false,
    };
    net.pool(pad, average, Window::plain([2, 2]));
    assert_eq!(left(&net), ["Input", "Conv", "AveragePool"]);

    // Not where explicit zeros differ from the window's own padding.
    for op in [average as fn(Window) -> Op, |window| Op::MaxPool { window }] {
        let mut net = Net::new(&[2, 4, 4], 1);
        let pad = net.pad(0, [0, 1, 1], [0, 1, 1]);
        net.pool(pad, op, padded());
        assert_eq!(left(&net).len(), 3);
    }
    // Nor between channels.
    let mut net = Net::new(&[2, 4, 4], 1);
    let pad = net.pad(0, [1, 0, 0], [0; 3]);
    net.conv(pad, 3, padded(), 1);
    assert_eq!(left(&net), ["Input", "Pad", "Conv"]);
}

#[test]
fn what_does_nothing_goes() {
    let mut net = Net::new(&[2, 1, 4], 1);
    let dead = net.affine(0, 2);
    net.same(Op::Relu, dead);
    let turned = Op::Transpose {
        permutation: vec![1, 0, 2],
    };
    let value = net.push(turned, &[0], vec![1, 2, 4]);
    let value = net.flatten(value);
    let value = net.same(Op::Reshape, value);
    let one = net.tensor(&[1], vec![1.0]);
    let value = net.same(
        Op::Affine {
            mul: Some(one),
            add: None,
        },
        value,
    );
    let value = net.same(
        Op::Clip {
            min: None,
            max: None,
        },
        value,
    );
    let value = net.concat(&[value], 0);
    let value = net.take(value, 0, &[0, 1, 2, 3, 4, 5, 6, 7]);
    net.dense(value, 2);
    assert_eq!(left(&net), ["Input", "Reshape", "Dense"]);
    assert_eq!(passes::run(&net.graph).tensors.len(), 2);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]
    #[test]
    fn random_networks_keep_their_function(seed: u64) {
        left(&random_network(seed, 9));
    }
}
