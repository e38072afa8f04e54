//! Passes keep the function and do what they are for.

use crate::common::{Net, Random, difference, quantised, random_network, size};
use pronghorn_graph::{
    fixed::{ActivationOp, FixedOp},
    float::{self, Roles, Survey},
    function::Function,
    geometry::Window,
    graph::{Graph, Op},
    passes::{
        self,
        columns::{self, Group},
    },
    quantise::{FixedPrecision, QuantiseOptions, quantise},
    rescale::{equalise, fill},
};
use proptest::prelude::*;
use std::{borrow::Cow, collections::BTreeMap};

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
    let right_branch = net.same(Op::Relu, right_branch);
    net.add(left_branch, right_branch);
    assert_eq!(left(&net), ["Input", "Relu", "Conv", "Conv", "Relu", "Add"]);

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
fn layers_of_one_value_add_up_to_one() {
    let window = |kernel: [usize; 2], padding: [usize; 4], dilation: usize| Window {
        padding,
        dilation: [dilation; 2],
        ..Window::plain(kernel)
    };
    let conv3 = window([3, 3], [1; 4], 1);
    // The block of a RepVGG, in groups and not.
    for groups in [1, 2, 4] {
        let mut net = Net::new(&[4, 6, 5], 1);
        let x = net.same(Op::Relu, 0);
        let conv = net.conv(x, 4, conv3.clone(), groups);
        let small = net.conv(x, 4, Window::plain([1, 1]), groups);
        let normal = net.affine(x, 4);
        let sum = net.add(conv, small);
        net.add(normal, sum);
        assert_eq!(left(&net), ["Input", "Relu", "Conv"], "{groups}");
    }
    // Strides, dilations, windows that reach beyond each other, dense layers.
    let strided = |window: Window| Window {
        stride: [2, 2],
        ..window
    };
    let pairs = [
        (strided(conv3.clone()), strided(Window::plain([1, 1]))),
        (window([3, 3], [2; 4], 2), Window::plain([1, 1])),
        (window([3, 1], [1, 0, 1, 0], 1), window([3, 3], [1; 4], 1)),
        (
            window([2, 2], [1, 1, 0, 0], 1),
            window([2, 2], [1, 0, 0, 1], 1),
        ),
    ];
    for (first, second) in pairs {
        let mut net = Net::new(&[2, 6, 6], 2);
        let first = net.conv(0, 3, first, 1);
        let second = net.conv(0, 3, second, 1);
        net.add(second, first);
        assert_eq!(left(&net), ["Input", "Conv"]);
    }
    let mut net = Net::new(&[5], 3);
    let (first, second) = (net.dense(0, 3), net.dense(0, 3));
    net.add(first, second);
    assert_eq!(left(&net), ["Input", "Dense"]);
}

/// As a table of categories, or a principal component analysis, before a classifier.
#[test]
fn dense_layers_behind_each_other_become_one() {
    let mut net = Net::new(&[40], 3);
    let first = net.dense(0, 12);
    let second = net.dense(first, 5);
    net.dense(second, 3);
    assert_eq!(left(&net), ["Input", "Dense"]);
    // Another reader, and a function between.
    let mut net = Net::new(&[40], 3);
    let first = net.dense(0, 5);
    let second = net.dense(first, 5);
    net.add(second, first);
    assert_eq!(left(&net).len(), 4);
    let mut net = Net::new(&[40], 3);
    let first = net.dense(0, 12);
    let first = net.same(Op::Relu, first);
    net.dense(first, 5);
    assert_eq!(left(&net), ["Input", "Dense", "Relu", "Dense"]);
    // Factors of a large matrix.
    let mut net = Net::new(&[500], 3);
    let first = net.dense(0, 4);
    net.dense(first, 500);
    assert_eq!(left(&net), ["Input", "Dense", "Dense"]);
}

#[test]
fn layers_that_do_not_make_one_stay() {
    let plain = Window::plain;
    let mut net = Net::new(&[2, 6, 6], 2);
    // 25 taps in place of 10.
    let row = Window {
        padding: [0, 2, 0, 2],
        ..plain([1, 5])
    };
    let column = Window {
        padding: [2, 0, 2, 0],
        ..plain([5, 1])
    };
    let first = net.conv(0, 2, row, 1);
    let second = net.conv(0, 2, column, 1);
    net.add(first, second);
    assert_eq!(left(&net), ["Input", "Conv", "Conv", "Add"]);
    // Other groups, another reader, another input, the value itself.
    let mut net = Net::new(&[2, 6, 6], 2);
    let first = net.conv(0, 2, plain([1, 1]), 1);
    let second = net.conv(0, 2, plain([1, 1]), 2);
    let sum = net.add(first, second);
    let third = net.conv(sum, 2, plain([1, 1]), 1);
    let sum = net.add(third, sum);
    let relu = net.same(Op::Relu, sum);
    let fourth = net.conv(relu, 2, plain([1, 1]), 1);
    let fifth = net.conv(sum, 2, plain([1, 1]), 1);
    let last = net.add(fourth, fifth);
    net.add(last, fifth);
    let operators = left(&net);
    assert_eq!(operators.iter().filter(|name| **name == "Conv").count(), 5);
    assert_eq!(operators.iter().filter(|name| **name == "Add").count(), 4);
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

/// As scikit-learn exports a scaler of some columns, behind the inverse of features' scales.
#[test]
fn scales_of_columns_go_into_the_layers_behind() {
    let mut net = Net::new(&[6], 1);
    let raw = net.affine(0, 6);
    let some = net.take(raw, 0, &[4, 0, 1]);
    let scaled = net.affine(some, 3);
    let other = net.take(raw, 0, &[5, 5]);
    let joined = net.concat(&[scaled, other], 0);
    let relu = net.dense(joined, 4);
    net.same(Op::Relu, relu);
    assert_eq!(left(&net), ["Input", "Take", "Dense", "Relu"]);
}

/// As scikit-learn exports `PolynomialFeatures` and a scaler: a constant beside columns.
#[test]
fn zeros_that_a_dense_layer_reads_are_dropped() {
    let pad = |before, after| Op::Pad {
        before: vec![before],
        after: vec![after],
    };
    for beside in [false, true] {
        let mut net = Net::new(&[6], 1);
        let mut row = net.push(pad(1, 2), &[0], vec![9]);
        if beside {
            let other = net.take(0, 0, &[5, 5]);
            row = net.concat(&[other, row], 0);
        }
        let scaled = net.affine(row, net.shape(row)[0]);
        net.dense(scaled, 4);
        let left = left(&net);
        match beside {
            true => assert!(
                !left.contains(&"Pad") && !left.contains(&"Affine"),
                "{left:?}"
            ),
            false => assert_eq!(left, ["Input", "Dense"]),
        }
    }
}

/// Where the mean is of each window's own values, and of no padding.
#[test]
fn means_go_before_layers_of_single_positions() {
    let average = |window: Window| Op::AveragePool {
        window,
        count_include_pad: false,
    };
    let halves = Window {
        stride: [2; 2],
        ..Window::plain([2; 2])
    };
    for (pool, size) in [(Op::GlobalAveragePool, 1), (average(halves.clone()), 2)] {
        let mut net = Net::new(&[6, 4, 4], 1);
        let conv = net.conv(0, 3, Window::plain([1; 2]), 1);
        let pooled = net.push(pool, &[conv], vec![3, size, size]);
        net.same(Op::Relu, pooled);
        let left = left(&net);
        assert!(
            left[1].ends_with("AveragePool") && left[2] == "Conv",
            "{left:?}"
        );
    }
    let padded = Window {
        padding: [1; 4],
        ..halves
    };
    for (pool, size, kernel) in [(average(padded), 3, 1), (Op::GlobalAveragePool, 1, 3)] {
        let mut net = Net::new(&[6, 4, 4], 1);
        let conv = net.conv(0, 3, Window::plain([kernel; 2]), 1);
        let pooled = net.push(pool, &[conv], vec![3, size, size]);
        net.same(Op::Relu, pooled);
        assert_eq!(left(&net)[1], "Conv");
    }
    // What is no input has a narrower range after a mean than before.
    let mut net = Net::new(&[6, 4, 4], 1);
    let relu = net.same(Op::Relu, 0);
    let conv = net.conv(relu, 3, Window::plain([1; 2]), 1);
    net.push(Op::GlobalAveragePool, &[conv], vec![3, 1, 1]);
    assert_eq!(left(&net)[2], "Conv");
}

/// Numbers that are standardised, and read beside indicators by several layers.
#[test]
fn scales_that_several_concatenations_read_go_into_the_layers_behind() {
    let mut net = Net::new(&[8], 1);
    let raw = net.affine(0, 8);
    let numbers = net.take(raw, 0, &[0, 1, 2, 3]);
    let numbers = net.affine(numbers, 4);
    let classes = net.take(raw, 0, &[4, 5, 6, 7]);
    let some = net.take(classes, 0, &[0, 1, 2]);
    let deep = net.concat(&[numbers, some], 0);
    let deep = net.dense(deep, 16);
    let deep = net.same(Op::Relu, deep);
    let deep = net.dense(deep, 1);
    let wide = net.concat(&[numbers, classes], 0);
    let wide = net.dense(wide, 1);
    net.add(deep, wide);
    let left = left(&net);
    assert!(!left.contains(&"Affine"), "{left:?}");
}

/// As scikit-learn exports naive Bayes: a row is compared with that of each class.
#[test]
fn scales_of_features_go_past_the_repetition_of_a_row() {
    let mut net = Net::new(&[5], 1);
    let raw = net.affine(0, 5);
    let row = net.push(Op::Reshape, &[raw], vec![1, 5]);
    let rows = net.take(row, 0, &[0, 0, 0]);
    let apart = net.affine(rows, 15);
    net.same(Op::Square, apart);
    assert_eq!(left(&net), ["Input", "Reshape", "Take", "Affine", "Square"]);
}

/// The same behind a selection of columns, and behind columns beside themselves.
#[test]
fn scales_of_features_go_past_selections_before_a_repetition() {
    for joined in [false, true] {
        let mut net = Net::new(&[6], 1);
        let raw = net.affine(0, 6);
        let mut some = net.take(raw, 0, &[4, 0, 1]);
        if joined {
            some = net.concat(&[some, raw], 0);
        }
        let count = net.shape(some)[0];
        let row = net.push(Op::Reshape, &[some], vec![1, count]);
        let rows = net.take(row, 0, &[0, 0, 0]);
        let apart = net.affine(rows, 3 * count);
        net.same(Op::Square, apart);
        let left = left(&net);
        let maps = left.iter().filter(|name| **name == "Affine").count();
        assert_eq!(maps, 1, "{left:?}");
    }
}

/// Each reader of raw features takes their scales up.
#[test]
fn several_maps_of_features_take_their_scales_up() {
    let mut net = Net::new(&[5], 1);
    let raw = net.affine(0, 5);
    let [one, other] = [net.affine(raw, 5), net.affine(raw, 5)];
    let [one, other] = [net.same(Op::Relu, one), net.same(Op::Square, other)];
    let both = net.add(one, other);
    let wide = net.dense(raw, 5);
    net.add(both, wide);
    let left = left(&net);
    let maps = left.iter().filter(|name| **name == "Affine").count();
    assert_eq!(maps, 2, "{left:?}");
}

/// Groups of columns, and products that stand together, keep their function.
#[test]
fn columns_that_are_cut_apart_keep_their_function() {
    let mut net = Net::new(&[6], 1);
    let square = net.same(Op::Square, 0);
    let some = net.take(square, 0, &[4, 1, 3]);
    let others = net.take(0, 0, &[0, 0, 5]);
    let product = net.push(Op::Multiply, &[some, others], vec![3]);
    let joined = net.concat(&[product, some], 0);
    // Right behind a concatenation, which it reads.
    let again = net.push(Op::Multiply, &[joined, joined], vec![6]);
    let last = net.concat(&[again, others], 0);
    let function = Function::Sigmoid;
    net.same(Op::Function { function }, last);
    let inputs = Random::new(3).reals(7 * 6, -2.0, 2.0);
    let results = |graph: &Graph| {
        graph.validate().unwrap();
        float::evaluate(graph, &inputs, 7).unwrap()
    };
    let wanted = results(&net.graph);
    let group = |columns: &[usize], sizes: &[i32]| Group {
        columns: columns.to_vec(),
        sizes: sizes.to_vec(),
    };
    let groups = BTreeMap::from([
        (
            square,
            vec![group(&[5, 0, 2], &[3]), group(&[1, 3, 4], &[-2])],
        ),
        (
            product,
            vec![group(&[1], &[2, 5]), group(&[2, 0], &[-1, 0])],
        ),
    ]);
    let apart = columns::apart(&net.graph, &groups);
    assert!(difference(&results(&apart), &wanted) < 1e-5);
    let sizes = BTreeMap::from([(joined, vec![4, 0]), (last, vec![-3, 1])]);
    let alike = columns::alike(&net.graph, &sizes);
    // Two products, and what stands behind each.
    assert_eq!(alike.nodes.len(), net.graph.nodes.len() + 4);
    assert!(difference(&results(&alike), &wanted) < 1e-5);
}

/// What a layer does not read behind them stays one map before them.
#[test]
fn scales_of_columns_that_nothing_takes_up_stay() {
    let mut net = Net::new(&[4], 1);
    let scaled = net.affine(0, 4);
    let relu = net.same(Op::Relu, 0);
    let joined = net.concat(&[scaled, relu], 0);
    net.same(Op::Square, joined);
    assert_eq!(left(&net), ["Input", "Affine", "Relu", "Concat", "Square"]);
}

/// As scikit-learn exports polynomial features, of the third degree.
#[test]
fn products_of_columns_are_one_product() {
    let mut net = Net::new(&[4], 1);
    let mut parts = Vec::new();
    for a in 0..4 {
        parts.push(net.take(0, 0, &[a]));
        for b in 0..=a {
            let pair = net.take(0, 0, &[a, b]);
            let factors = [0, 1].map(|at| net.take(pair, 0, &[at]));
            let square = net.push(Op::Multiply, &factors, vec![1]);
            parts.push(net.flatten(square));
            let [one, other] = [a, b].map(|at| net.take(0, 0, &[at]));
            let square = net.same(Op::Square, one);
            parts.push(net.push(Op::Multiply, &[square, other], vec![1]));
        }
    }
    let all = net.concat(&parts, 0);
    net.dense(all, 2);
    let mut found = left(&net);
    found.retain(|name| *name == "Multiply" || *name == "Concat" || *name == "Square");
    found.sort_unstable();
    assert_eq!(found, ["Concat", "Multiply", "Multiply", "Square"]);
}

/// A value that others read is not computed twice, and images keep their channels.
#[test]
fn operators_that_others_read_stay_alone() {
    let mut net = Net::new(&[4], 1);
    let columns = [0, 1].map(|at| net.take(0, 0, &[at]));
    let [one, other] = columns.map(|column| net.same(Op::Relu, column));
    let joined = net.concat(&[one, other], 0);
    let again = net.concat(&[joined, one], 0);
    net.dense(again, 2);
    let relus = |net: &Net| left(net).iter().filter(|name| **name == "Relu").count();
    assert_eq!(relus(&net), 2);
    let mut net = Net::new(&[4], 1);
    let columns = [3, 1].map(|at| net.take(0, 0, &[at, 0]));
    let each = columns.map(|column| net.same(Op::Relu, column));
    net.concat(&each, 0);
    assert_eq!(left(&net), ["Input", "Take", "Relu"]);
    let mut net = Net::new(&[4, 2, 2], 1);
    let columns = [3, 1].map(|at| net.take(0, 0, &[at, 0]));
    let each = columns.map(|column| net.same(Op::Relu, column));
    net.concat(&each, 0);
    assert_eq!(relus(&net), 2);
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

/// A layer over the channels of an image with channels last, as MatMul is lowered.
fn mix(net: &mut Net, image: usize, out: usize) -> usize {
    let [height, width, channels] = net.shape(image)[..] else {
        unreachable!("an image")
    };
    let rows = net.push(Op::Reshape, &[image], vec![height * width, channels]);
    let columns = transpose(net, rows, &[1, 0]);
    let points = vec![channels, 1, height * width];
    let points = net.push(Op::Reshape, &[columns], points);
    let mixed = net.conv(points, out, Window::plain([1, 1]), 1);
    let flat = net.push(Op::Reshape, &[mixed], vec![out, height * width]);
    let back = transpose(net, flat, &[1, 0]);
    net.push(Op::Reshape, &[back], vec![height, width, out])
}

fn transpose(net: &mut Net, value: usize, permutation: &[usize]) -> usize {
    let shape = net.shape(value);
    let permutation = permutation.to_vec();
    let moved = permutation.iter().map(|&d| shape[d]).collect();
    net.push(Op::Transpose { permutation }, &[value], moved)
}

/// Constants for the last dimension, as an importer spreads them.
fn last_affine(net: &mut Net, value: usize) -> usize {
    let shape = net.shape(value);
    let (elements, last) = (shape.iter().product::<usize>(), shape[2]);
    let mut spread = || {
        let constants = net.random.reals(last, 0.5, 1.5);
        let data = constants.repeat(elements / last);
        Some(net.tensor(&[elements], data))
    };
    let (mul, add) = (spread(), spread());
    net.same(Op::Affine { mul, add }, value)
}

/// What of a kernel meets padding alone is cut, with its padding.
#[test]
fn kernels_are_as_large_as_what_they_meet() {
    let window = |kernel, dilation, padding: [usize; 4], stride| Window {
        kernel,
        dilation,
        padding,
        stride,
    };
    for (given, wanted) in [
        (
            window([3, 3], [9, 9], [9; 4], [1, 1]),
            Window::plain([1, 1]),
        ),
        (
            window([3, 3], [9, 4], [9, 4, 9, 4], [1, 1]),
            window([1, 3], [1, 4], [0, 4, 0, 4], [1, 1]),
        ),
        (
            window([11, 5], [1, 1], [5, 2, 5, 2], [1, 1]),
            window([9, 5], [1, 1], [4, 2, 4, 2], [1, 1]),
        ),
        (
            window([4, 3], [7, 1], [7, 1, 14, 1], [2, 2]),
            window([1, 3], [1, 1], [0, 1, 0, 1], [2, 2]),
        ),
        (
            window([3, 3], [1, 1], [1; 4], [1, 1]),
            window([3, 3], [1, 1], [1; 4], [1, 1]),
        ),
    ] {
        for groups in [1, 2] {
            let mut net = Net::new(&[2, 5, 6], 4);
            net.conv(0, 4, given.clone(), groups);
            assert_eq!(left(&net), ["Input", "Conv"]);
            let Op::Conv { window, .. } = &passes::run(&net.graph).nodes[1].op else {
                panic!("it is no convolution");
            };
            assert_eq!(*window, wanted, "{given:?}");
        }
    }
}

proptest! {
    /// Any kernel, padding and stride.
    #[test]
    fn trimmed_kernels_make_the_same(
        kernel in 1..6usize, dilation in 1..9usize, stride in 1..4usize,
        before in 0..12usize, after in 0..12usize, seed in 0..99u64,
    ) {
        let window = Window {
            kernel: [kernel, 2],
            dilation: [dilation, 1],
            stride: [stride, 1],
            padding: [before, 0, after, 1],
        };
        if window.output([5, 4]).is_ok() {
            let mut net = Net::new(&[2, 5, 4], seed);
            net.conv(0, 3, window, 1);
            left(&net);
        }
    }
}

/// A network's own summands and factors of one number stay such: they tell nothing of weights.
#[test]
fn affine_maps_in_a_row_keep_what_is_none() {
    let factor = |factors: [Option<Vec<f32>>; 2]| {
        let mut net = Net::new(&[3, 4, 5], 1);
        let mut value = 0;
        for factors in factors {
            let summands = net.random.reals(60, 0.5, 1.5);
            let add = Some(net.tensor(&[60], summands));
            let mul = factors.map(|factors| net.tensor(&[factors.len()], factors));
            value = net.same(Op::Affine { mul, add }, value);
        }
        assert_eq!(left(&net), ["Input", "Affine"]);
        let graph = passes::run(&net.graph);
        match &graph.nodes[1].op {
            Op::Affine { mul, .. } => mul.as_ref().map(|mul| graph.tensors[mul].data.to_vec()),
            op => panic!("{op:?}"),
        }
    };
    assert_eq!(factor([None, None]), None);
    assert_eq!(factor([Some(vec![-1.0]), None]), Some(vec![-1.0]));
    assert_eq!(factor([Some(vec![-1.0]), Some(vec![-1.0])]), None);
    // By chance.
    let product = factor([Some(vec![-0.5]), Some(vec![2.0])]);
    assert_eq!(product, Some(vec![-1.0; 60]));
    let trained = factor([None, Some(vec![2.0, 3.0, 4.0])]);
    assert_eq!(trained.map(|factors| factors.len()), Some(60));
}

#[test]
fn transpositions_around_channels_last_cancel() {
    let mut net = Net::new(&[3, 4, 5], 1);
    let conv = net.conv(0, 6, padded(), 1);
    let last = transpose(&mut net, conv, &[1, 2, 0]);
    let normal = last_affine(&mut net, last);
    let wide = mix(&mut net, normal, 8);
    let biased = last_affine(&mut net, wide);
    let function = Function::Gelu;
    let smooth = net.same(Op::Function { function }, biased);
    let narrow = mix(&mut net, smooth, 6);
    let biased = last_affine(&mut net, narrow);
    let first = transpose(&mut net, biased, &[2, 0, 1]);
    let scaled = net.affine(first, 6);
    net.add(scaled, conv);
    let expected = [
        "Input", "Conv", "Reshape", "Conv", "Gelu", "Conv", "Reshape", "Add",
    ];
    assert_eq!(left(&net), expected);
}

#[test]
fn transpositions_that_others_read_stay() {
    let mut net = Net::new(&[3, 4, 5], 1);
    let last = transpose(&mut net, 0, &[1, 2, 0]);
    let relu = net.same(Op::Relu, last);
    net.add(relu, last);
    assert_eq!(left(&net), ["Input", "Transpose", "Relu", "Add"]);
    // A rotation is not undone by another.
    let mut net = Net::new(&[3, 4, 5], 1);
    let once = transpose(&mut net, 0, &[1, 2, 0]);
    let twice = transpose(&mut net, once, &[1, 2, 0]);
    assert_eq!(left(&net).len(), 3);
    transpose(&mut net, twice, &[1, 2, 0]);
    assert_eq!(left(&net), ["Input"]);
}

/// Multiplies rows of a network's weights by powers of two, so that channels differ.
fn unevened(mut net: Net, seed: u64) -> Net {
    let mut random = Random::new(seed);
    for tensor in net.graph.tensors.values_mut() {
        let rows = tensor.shape.first().copied().unwrap_or(1).max(1);
        let length = (tensor.data.len() / rows).max(1);
        for row in tensor.data_mut().chunks_mut(length) {
            let factor = f32::exp2(-(random.below(8) as f32));
            row.iter_mut().for_each(|x| *x *= factor);
        }
    }
    net
}

proptest! {
    /// Channels with other scales compute the same, bit for bit.
    #[test]
    fn equal_channels_change_nothing(seed in 0u64..10_000, steps in 2usize..14) {
        let graph = passes::run(&unevened(random_network(seed, steps), seed).graph);
        let inputs = Random::new(seed).reals(4 * graph.input_len(), -1.0, 2.0);
        let peaks = float::peaks(&graph, &inputs, 4).unwrap();
        let Some(equal) = equalise(&graph, &peaks) else { return Ok(()) };
        equal.validate().unwrap();
        let [wanted, found] = [&graph, &equal].map(|graph| {
            float::evaluate(graph, &inputs, 4).unwrap()
        });
        prop_assert_eq!(wanted, found);
        // Small channels have come nearer to the largest, and none has passed it.
        let after = float::peaks(&equal, &inputs, 4).unwrap();
        for (before, after) in peaks.iter().zip(&after) {
            let largest = |peaks: &[f32]| peaks.iter().copied().fold(0.0, f32::max);
            prop_assert_eq!(largest(before), largest(after));
            prop_assert!(before.iter().zip(after).all(|(before, after)| before <= after));
        }
    }
}

#[test]
fn networks_of_uneven_channels_are_equalised() {
    let is_changed = |seed: &u64| {
        let graph = passes::run(&unevened(random_network(*seed, 12), *seed).graph);
        let inputs = Random::new(*seed).reals(4 * graph.input_len(), -1.0, 2.0);
        equalise(&graph, &float::peaks(&graph, &inputs, 4).unwrap()).is_some()
    };
    assert!((0..40).filter(is_changed).count() >= 10);
}

fn surveyed(graph: &Graph, inputs: &[f32], images: usize) -> Survey {
    let all: Vec<usize> = (0..images).collect();
    let roles = Roles {
        profile: true,
        results: &all,
        means: &all,
        gains: true,
    };
    float::survey(graph, inputs, images, roles).unwrap()
}

/// Two layers with a clip between.
fn with_clip(max: f32, seed: u64) -> Net {
    let mut net = Net::new(&[3, 8, 8], seed);
    let conv = net.conv(0, 8, padded(), 1);
    let op = Op::Clip {
        min: Some(0.0),
        max: Some(max),
    };
    let clip = net.same(op, conv);
    let flat = net.flatten(clip);
    net.dense(flat, 5);
    net
}

#[test]
fn a_clip_becomes_saturation() {
    let net = with_clip(0.6, 3);
    let graph = passes::run(&net.graph);
    let inputs = Random::new(5).reals(8 * graph.input_len(), -1.0, 1.0);
    let mut survey = surveyed(&graph, &inputs, 8);
    let options = QuantiseOptions {
        costly_requantisation: true,
        ..QuantiseOptions::default()
    };
    let wanted = float::evaluate(&graph, &inputs, 8).unwrap();
    let clip_of = |graph: &Graph, survey: &Survey, bits: u32| {
        let chooser = FixedPrecision(bits, bits);
        let fixed = quantise(graph, &survey.profile, &chooser, &options).unwrap();
        let error = difference(&quantised::run(&fixed, &inputs), &wanted) / size(&wanted);
        let mut highs = fixed.nodes.iter().filter_map(|node| match node.op {
            FixedOp::Activation(ActivationOp::Clip { high, .. }) => Some(high),
            FixedOp::Activation(ActivationOp::Requantise { high, .. }) => Some(high),
            _ => None,
        });
        // Whether the upper bounds are all those of words.
        let saturates = highs.all(|high| (high + 1).count_ones() == 1);
        (saturates, error)
    };
    let before: Vec<bool> = (8..13)
        .map(|bits| clip_of(&graph, &survey, bits).0)
        .collect();
    assert!(!before.contains(&true));
    let filled = fill(Cow::Borrowed(&graph), &mut survey, 1.0);
    for bits in 4..13 {
        let (saturates, error) = clip_of(&filled, &survey, bits);
        // Saturated values are at most a unit off, which would be much of few bits.
        assert!(saturates || bits < 8, "{bits} bits");
        assert!(error < 4.0 / f64::from(1 << bits), "{bits} bits: {error}");
    }
}

proptest! {
    /// Values with other ranges compute the same, and the survey is that of the result.
    #[test]
    fn filled_ranges_change_nothing(seed in 0u64..10_000, steps in 2usize..14) {
        let graph = passes::run(&unevened(random_network(seed, steps), seed).graph);
        let inputs = Random::new(seed).reals(4 * graph.input_len(), -1.0, 2.0);
        let before = surveyed(&graph, &inputs, 4);
        let mut survey = before.clone();
        let filled = fill(Cow::Borrowed(&graph), &mut survey, 1.25);
        filled.validate().unwrap();
        let found = surveyed(&filled, &inputs, 4);
        let near = |a: f64, b: f64, size: f64| (a - b).abs() <= 1e-4 * size + 1e-6;
        let largest = before.results.iter().fold(0f32, |most, x| most.max(x.abs()));
        for (a, b) in before.results.iter().zip(&found.results) {
            prop_assert!(near((*a).into(), (*b).into(), largest.into()));
        }
        for (a, b) in survey.profile.values.iter().zip(&found.profile.values) {
            let reach = f64::from(a.max.abs().max(a.min.abs()));
            prop_assert!(near(a.min.into(), b.min.into(), reach));
            prop_assert!(near(a.max.into(), b.max.into(), reach));
            prop_assert!(near(a.mean_square, b.mean_square, reach * reach));
        }
        for (a, b) in survey.means.iter().zip(&found.means) {
            let largest = a.iter().fold(0f64, |most, x| most.max(x.abs()));
            prop_assert!(a.iter().zip(b).all(|(a, b)| near(*a, *b, largest.max(1.0))));
        }
    }
}

#[test]
fn networks_are_filled() {
    let is_changed = |seed: &u64| {
        let graph = passes::run(&random_network(*seed, 12).graph);
        let inputs = Random::new(*seed).reals(4 * graph.input_len(), -1.0, 2.0);
        let mut survey = surveyed(&graph, &inputs, 4);
        matches!(fill(Cow::Borrowed(&graph), &mut survey, 1.0), Cow::Owned(_))
    };
    assert!((0..40).filter(is_changed).count() >= 20);
}
