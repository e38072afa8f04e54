//! The oracle against values computed by hand.

use pronghorn_graph::{
    finish::Finish,
    fixed::{
        ActivationOp, FixedError, FixedGraph, FixedNode, FixedOp, Linear, LocalOp, ValueSpec,
        dither::{Dither, Place},
    },
    geometry::{ConvGeometry, Window},
    oracle::{self, OracleError},
};

fn value(shape: &[usize], low: i32, high: i32) -> ValueSpec {
    ValueSpec {
        shape: shape.to_vec(),
        fraction_bits: 0,
        low,
        high,
    }
}

fn node(op: FixedOp, inputs: &[usize], value: ValueSpec) -> FixedNode {
    FixedNode {
        name: "node".into(),
        op,
        inputs: inputs.to_vec(),
        value,
    }
}

/// A graph of one operator on an input in -100..=100, whose result is in -1,000,000..=1,000,000.
fn graph(op: FixedOp, input: &[usize], reads: &[usize], output: &[usize]) -> FixedGraph {
    let input = node(FixedOp::Input, &[], value(input, -100, 100));
    let result = node(op, reads, value(output, -1_000_000, 1_000_000));
    FixedGraph {
        name: "one".into(),
        nodes: vec![input, result],
        output: 1,
        finish: vec![],
    }
}

fn run(op: FixedOp, shape: &[usize], reads: &[usize], output: &[usize], x: &[i32]) -> Vec<i32> {
    oracle::evaluate(&graph(op, shape, reads, output), x, 1).unwrap()
}

fn activation(op: ActivationOp, x: &[i32]) -> Vec<i32> {
    run(FixedOp::Activation(op), &[x.len()], &[0], &[x.len()], x)
}

const NINE: [i32; 9] = [1, 2, 3, 4, 5, 6, 7, 8, 9];

fn corner() -> Window {
    Window {
        stride: [2, 2],
        padding: [1, 1, 0, 0],
        ..Window::plain([2, 2])
    }
}

#[test]
fn linear() {
    let geometry = ConvGeometry {
        in_channels: 1,
        out_channels: 2,
        input: [3, 3],
        window: corner(),
        groups: 1,
    };
    let weights = vec![1, 10, 100, 1000, -1, 0, 0, 0];
    let layer = Linear {
        geometry,
        weights,
        bias: vec![7, 0],
    };
    let found = run(FixedOp::Linear(layer), &[1, 3, 3], &[0], &[2, 2, 2], &NINE);
    assert_eq!(found, [1007, 3207, 7047, 9872, 0, 0, 0, -5]);
    let geometry = ConvGeometry::per_channel(2, [1, 2]);
    let layer = Linear {
        geometry,
        weights: vec![2, -3],
        bias: vec![0, 1],
    };
    let found = run(
        FixedOp::Linear(layer),
        &[2, 1, 2],
        &[0],
        &[2, 1, 2],
        &[1, 2, 3, 4],
    );
    assert_eq!(found, [2, 4, -8, -11]);
}

/// Products that need the bias to fit 32 bits, and inputs of 16 bits or more.
#[test]
fn sums_are_whole_with_their_bias() {
    for most in [32_767, 40_000] {
        let dense = Linear {
            geometry: ConvGeometry::dense(3, 1),
            weights: vec![26_000; 3],
            bias: vec![-(1 << 30)],
        };
        let input = node(FixedOp::Input, &[], value(&[3], 0, most));
        let (low, high) = (-(1 << 30), 78_000i64 * i64::from(most) - (1 << 30));
        let high = i32::try_from(high).expect("it fits");
        let result = node(FixedOp::Linear(dense), &[0], value(&[1], low, high));
        let graph = FixedGraph {
            name: "one".into(),
            nodes: vec![input, result],
            output: 1,
            finish: vec![],
        };
        assert_eq!(oracle::evaluate(&graph, &[most; 3], 1), Ok(vec![high]));
    }
}

#[test]
fn activations() {
    let x = [-7, -1, 0, 1, 7];
    assert_eq!(activation(ActivationOp::Relu, &x), [0, 0, 0, 1, 7]);
    assert_eq!(
        activation(ActivationOp::Clip { low: -2, high: 3 }, &x),
        [-2, -1, 0, 1, 3]
    );
    let leaky = ActivationOp::LeakyRelu { slope: 3, shift: 4 };
    assert_eq!(activation(leaky, &x), [-21, -3, 0, 16, 112]);
    assert_eq!(activation(ActivationOp::Square, &x), [49, 1, 0, 1, 49]);
    let requantise = ActivationOp::Requantise {
        shift: 1,
        low: -3,
        high: 3,
    };
    assert_eq!(activation(requantise, &x), [-3, 0, 0, 1, 3]);
    let op = FixedOp::Activation(ActivationOp::MaxPool { window: corner() });
    let negative = NINE.map(|x| -x);
    assert_eq!(
        run(op, &[1, 3, 3], &[0], &[1, 2, 2], &negative),
        [-1, -2, -4, -5]
    );
}

/// Addends of which each image and element has its own.
struct Counted;

impl Dither for Counted {
    fn addend(&self, place: Place, value: i32, shift: u32) -> Option<u32> {
        // One value is not the run's.
        let addend = (place.node * 3 + place.image + place.element) as u32 % (1 << shift);
        (value != 99).then_some(addend)
    }
}

#[test]
fn dithers_add_and_drop() {
    let dither = |shifts: &[u32]| ActivationOp::Dither {
        shifts: shifts.to_vec(),
    };
    let shape = [2, 3];
    let op = FixedOp::Activation(dither(&[1, 2]));
    let graph = graph(op, &shape, &[0], &shape);
    let x = [-7, -2, 3, 5, 6, 7, 0, 1, 2, 3, 4, 5];
    // Image 0 adds 0 1 0 and 3 0 1, image 1 adds 1 0 1 and 0 1 2.
    let found = oracle::evaluate_with(&graph, &x, 2, &Counted).unwrap();
    assert_eq!(found, [-4, -1, 1, 2, 1, 2, 0, 0, 1, 0, 1, 1]);
    let strange = oracle::evaluate_with(&graph, &[99; 6], 1, &Counted);
    assert!(matches!(strange, Err(OracleError::Shares { node }) if node == "node"));
    // Without a run, the same each time, and right on average.
    let op = FixedOp::Activation(dither(&[4]));
    let graph = self::graph(op, &[4096], &[0], &[4096]);
    let found = oracle::evaluate(&graph, &[37; 4096], 1).unwrap();
    assert_eq!(oracle::evaluate(&graph, &[37; 4096], 1).unwrap(), found);
    let mean = f64::from(found.iter().sum::<i32>()) / 4096.0;
    assert!((mean - 37.0 / 16.0).abs() < 0.03, "{mean}");
}

/// The chain behind a layer begins with the dither, where another layer follows; what shares do not
/// hide stays as it is.
#[test]
fn networks_get_a_dither_behind_layers() {
    let scale = |weights: [i16; 2]| Linear {
        geometry: ConvGeometry::per_channel(2, [2, 2]),
        weights: weights.to_vec(),
        bias: vec![0, 1],
    };
    let dense = |[first, second]: [i16; 2]| Linear {
        geometry: ConvGeometry {
            groups: 1,
            ..ConvGeometry::per_channel(2, [2, 2])
        },
        weights: vec![first, 0, 0, second],
        bias: vec![0, 1],
    };
    let shape = [2, 2, 2];
    let spec = |fraction_bits, low, high| ValueSpec {
        fraction_bits,
        ..value(&shape, low, high)
    };
    let rounded = |from: usize, shift: u32, (low, high), fraction| {
        let op = FixedOp::Activation(ActivationOp::Requantise { shift, low, high });
        node(op, &[from], spec(fraction, low, high))
    };
    let activation = |op, from: usize, value| node(FixedOp::Activation(op), &[from], value);
    let clip = ActivationOp::Clip {
        low: -80,
        high: 500,
    };
    let add = FixedOp::Local(LocalOp::Add { left_shift: [1, 0] });
    let nodes = vec![
        node(FixedOp::Input, &[], spec(4, -100, 100)),
        // Of the input, which no mask of a layer hides.
        rounded(0, 1, (-50, 50), 3),
        node(
            FixedOp::Linear(dense([30, -50])),
            &[1],
            spec(8, -2499, 2501),
        ),
        activation(clip, 2, spec(8, -80, 500)),
        activation(ActivationOp::Relu, 3, spec(8, 0, 500)),
        rounded(4, 5, (0, 12), 3),
        // The layer's part is shifted up, and the other part is no layer's.
        node(add, &[2, 5], spec(9, -4998, 5014)),
        rounded(6, 6, (-60, 60), 3),
        // Too few bits for a dither.
        node(FixedOp::Linear(dense([3, 5])), &[7], spec(5, -300, 301)),
        rounded(8, 4, (-19, 19), 1),
        // Shown, but for a scale.
        node(
            FixedOp::Linear(dense([300, 500])),
            &[9],
            spec(5, -9500, 9501),
        ),
        rounded(10, 5, (-400, 400), 0),
        node(FixedOp::Linear(scale([3, 2])), &[11], spec(0, -1200, 1201)),
    ];
    let graph = FixedGraph {
        name: "three".into(),
        output: nodes.len() - 1,
        nodes,
        finish: vec![],
    };
    graph.validate().unwrap();
    let made = graph.with_dither().unwrap();
    made.validate().unwrap();
    let op = |index: usize| format!("{:?}", made.nodes[index].op);
    let dithers = (0..made.nodes.len()).filter(|&index| op(index).contains("Dither"));
    assert_eq!((made.nodes.len(), dithers.collect()), (14, vec![3]));
    assert!(op(4).contains("Clip { low: -2, high: 16 }") && op(5).contains("Relu"));
    assert!(op(6).contains("Clip { low: 0, high: 12 }"));
    assert_eq!(made.nodes[3].value, spec(3, -79, 79));
    assert_eq!(made.nodes[6].value, graph.nodes[5].value);
    // The nearest is among the roundings: without addends results are those of before.
    struct Half;
    impl Dither for Half {
        fn addend(&self, _: Place, _: i32, shift: u32) -> Option<u32> {
            Some(1 << (shift - 1))
        }
    }
    let x: Vec<i32> = (0..80).map(|at| at * 37 % 201 - 100).collect();
    let found = oracle::evaluate_with(&made, &x, 10, &Half);
    assert_eq!(found, oracle::evaluate(&graph, &x, 10));
}

#[test]
fn local_operators() {
    let local = |op, shape: &[usize], reads: &[usize], output: &[usize], x: &[i32]| {
        run(FixedOp::Local(op), shape, reads, output, x)
    };
    let add = LocalOp::Add { left_shift: [1, 2] };
    assert_eq!(local(add, &[2], &[0, 0], &[2], &[1, -5]), [6, -30]);
    let pool = |multipliers| LocalOp::SumPool {
        window: corner(),
        multipliers,
    };
    let sums = local(pool(vec![1]), &[1, 3, 3], &[0], &[1, 2, 2], &NINE);
    assert_eq!(sums, [1, 5, 11, 28]);
    let sums = local(pool(vec![4, 2, 2, 1]), &[1, 3, 3], &[0], &[1, 2, 2], &NINE);
    assert_eq!(sums, [4, 10, 22, 28]);
    assert_eq!(
        local(LocalOp::Reshape, &[2, 2], &[0], &[4], &[1, 2, 3, 4]),
        [1, 2, 3, 4]
    );
    let pad = LocalOp::Pad {
        before: vec![1, 0],
        after: vec![0, 1],
    };
    assert_eq!(
        local(pad, &[1, 2], &[0], &[2, 3], &[5, 6]),
        [0, 0, 0, 5, 6, 0]
    );
    let concat = LocalOp::Concat {
        axis: 1,
        left_shift: vec![0, 3],
    };
    let found = local(concat, &[2, 1], &[0, 0], &[2, 2], &[1, 2]);
    assert_eq!(found, [1, 8, 2, 16]);
    let transpose = LocalOp::Transpose {
        permutation: vec![1, 0],
    };
    assert_eq!(
        local(transpose, &[2, 2], &[0], &[2, 2], &[1, 2, 3, 4]),
        [1, 3, 2, 4]
    );
    let take = LocalOp::Take {
        axis: 1,
        indices: vec![1, 1, 0],
    };
    assert_eq!(
        local(take, &[2, 2], &[0], &[2, 3], &[1, 2, 3, 4]),
        [2, 2, 1, 4, 4, 3]
    );
}

#[test]
fn products() {
    let product = |shape: &[usize], x: &[i32]| {
        // Of the input and its sums over windows of 1x2.
        let mut graph = graph(FixedOp::Product, shape, &[0, 1], shape);
        let window = Window::plain([1, 2]);
        let pool = FixedOp::Local(LocalOp::SumPool {
            window,
            multipliers: vec![1],
        });
        let sums = node(pool, &[0], value(&[2, 1, 1], -200, 200));
        graph.nodes.insert(1, sums);
        graph.output = 2;
        oracle::evaluate(&graph, x, 1).unwrap()
    };
    // Each channel times its sum: 3, and -2.
    let found = product(&[2, 1, 2], &[1, 2, 3, -5]);
    assert_eq!(found, [3, 6, -6, 10]);
    let whole = run(FixedOp::Product, &[3], &[0, 0], &[3], &[2, -3, 100]);
    assert_eq!(whole, [4, 9, 10_000]);
}

#[test]
fn images_are_independent() {
    let graph = graph(FixedOp::Activation(ActivationOp::Square), &[2], &[0], &[2]);
    let found = oracle::evaluate(&graph, &[1, 2, 3, 4, 5, 6], 3).unwrap();
    assert_eq!(found, [1, 4, 9, 16, 25, 36]);
    assert!(oracle::evaluate(&graph, &[], 0).unwrap().is_empty());
}

#[test]
fn finishing() {
    let spec = ValueSpec {
        fraction_bits: 2,
        ..value(&[2], -100, 100)
    };
    assert_eq!(oracle::finish(&[], &spec, &[6, -1], 1), [1.5, -0.25]);
    let labels = oracle::finish(&[Finish::Softmax, Finish::ArgMax], &spec, &[1, 2, 4, 4], 2);
    assert_eq!(labels, [1.0, 0.0]);
    assert_eq!(oracle::finish(&[Finish::Sigmoid], &spec, &[0], 1), [0.5]);
    assert!(oracle::finish(&[Finish::Softmax], &spec, &[], 0).is_empty());
}

#[test]
fn broken_graphs_are_errors() {
    let square = || graph(FixedOp::Activation(ActivationOp::Square), &[2], &[0], &[2]);
    let mut narrow = square();
    narrow.nodes[1].value.high = 9_999;
    let error = oracle::evaluate(&narrow, &[0, 0], 1).unwrap_err();
    assert!(matches!(
        error,
        OracleError::Graph(FixedError::Range { high: 10_000, .. })
    ));
    let mut ahead = square();
    ahead.nodes[1].inputs = vec![1];
    assert!(matches!(
        ahead.validate(),
        Err(FixedError::Order { input: 1, .. })
    ));
    let mut shape = square();
    shape.nodes[1].value.shape = vec![3];
    assert!(matches!(shape.validate(), Err(FixedError::Operator { .. })));
    let mut output = square();
    output.output = 2;
    assert!(matches!(output.validate(), Err(FixedError::Graph { .. })));
    let error = oracle::evaluate(&square(), &[101, 0], 1).unwrap_err();
    let expected = OracleError::Range {
        node: "node".into(),
        value: 101,
        low: -100,
        high: 100,
    };
    assert_eq!(error, expected);
}
