//! The float evaluator against values computed by hand.

mod common;

use common::Net;
use pronghorn_graph::{
    float::{self, FloatError},
    geometry::Window,
    graph::Op,
};

fn run(net: &Net, input: &[f32]) -> Vec<f32> {
    net.graph.validate().unwrap();
    float::evaluate(&net.graph, input, 1).unwrap()
}

/// A net of one operator.
fn one(op: Op, input: &[usize], output: &[usize]) -> Net {
    let mut net = Net::new(input, 1);
    net.push(op, &[0], output.to_vec());
    net
}

const NINE: [f32; 9] = [1., 2., 3., 4., 5., 6., 7., 8., 9.];

#[test]
fn convolution() {
    let mut net = Net::new(&[1, 3, 3], 1);
    let weight = Some(net.tensor(&[1, 1, 2, 2], vec![1., 10., 100., 1000.]));
    let bias = Some(net.tensor(&[1], vec![0.5]));
    let conv = |window: Window| Op::Conv {
        window,
        groups: 1,
        weight: weight.clone().unwrap(),
        bias: bias.clone(),
    };
    let graph = net.graph.clone();
    net.push(conv(Window::plain([2, 2])), &[0], vec![1, 2, 2]);
    assert_eq!(run(&net, &NINE), [5421.5, 6532.5, 8754.5, 9865.5]);
    net.graph = graph.clone();
    let strided = Window {
        stride: [2, 2],
        padding: [1, 1, 0, 0],
        ..Window::plain([2, 2])
    };
    net.push(conv(strided), &[0], vec![1, 2, 2]);
    assert_eq!(run(&net, &NINE), [1000.5, 3200.5, 7040.5, 9865.5]);
    net.graph = graph;
    let dilated = Window {
        dilation: [2, 2],
        ..Window::plain([2, 2])
    };
    net.push(conv(dilated), &[0], vec![1, 1, 1]);
    assert_eq!(run(&net, &NINE), [9731.5]);
}

#[test]
fn grouped_and_pointwise_convolutions() {
    let mut net = Net::new(&[2, 1, 3], 1);
    let weight = net.tensor(&[4, 1, 1, 1], vec![1., 2., 3., 4.]);
    let window = Window {
        stride: [1, 2],
        ..Window::plain([1, 1])
    };
    let op = Op::Conv {
        window,
        groups: 2,
        weight,
        bias: None,
    };
    net.push(op, &[0], vec![4, 1, 2]);
    assert_eq!(
        run(&net, &[1., 2., 3., 10., 20., 30.]),
        [1., 3., 2., 6., 30., 90., 40., 120.]
    );
}

#[test]
fn dense_and_affine() {
    let mut net = Net::new(&[3], 1);
    let weight = net.tensor(&[2, 3], vec![1., 2., 3., 0., -1., 0.]);
    let bias = Some(net.tensor(&[2], vec![1., 0.]));
    net.push(Op::Dense { weight, bias }, &[0], vec![2]);
    assert_eq!(run(&net, &[1., 1., 2.]), [10., -1.]);
    let mut net = Net::new(&[2, 1, 2], 1);
    let (mul, add) = (
        Some(net.tensor(&[2], vec![2., 3.])),
        Some(net.tensor(&[4], vec![0., 1., 2., 3.])),
    );
    net.same(Op::Affine { mul, add }, 0);
    assert_eq!(run(&net, &[1., 1., 1., 1.]), [2., 3., 5., 6.]);
}

#[test]
fn activations() {
    let x = [-2., 0., 0.5, 3.];
    let each = |op: Op| run(&one(op, &[4], &[4]), &x);
    assert_eq!(each(Op::Relu), [0., 0., 0.5, 3.]);
    assert_eq!(
        each(Op::Clip {
            min: Some(-1.),
            max: Some(1.)
        }),
        [-1., 0., 0.5, 1.]
    );
    assert_eq!(
        each(Op::Clip {
            min: None,
            max: Some(1.)
        }),
        [-2., 0., 0.5, 1.]
    );
    assert_eq!(each(Op::LeakyRelu { alpha: 0.5 }), [-1., 0., 0.5, 3.]);
    assert_eq!(each(Op::Square), [4., 0., 0.25, 9.]);
    assert_eq!(each(Op::Sigmoid)[1], 0.5);
    assert_eq!(run(&one(Op::ArgMax, &[4], &[1]), &[1., 7., 7., 3.]), [1.]);
    let softmax = run(&one(Op::Softmax, &[2], &[2]), &[1000., 1000. + 3f32.ln()]);
    assert!((softmax[1] - 0.75).abs() < 1e-4, "{softmax:?}");
}

#[test]
fn pools() {
    let window = Window {
        padding: [1, 1, 0, 0],
        stride: [2, 2],
        ..Window::plain([2, 2])
    };
    let pool = |op: Op| run(&one(op, &[1, 3, 3], &[1, 2, 2]), &NINE.map(|x| -x));
    assert_eq!(
        pool(Op::MaxPool {
            window: window.clone()
        }),
        [-1., -2., -4., -5.]
    );
    let average = |count_include_pad| Op::AveragePool {
        window: window.clone(),
        count_include_pad,
    };
    assert_eq!(pool(average(true)), [-0.25, -1.25, -2.75, -7.]);
    assert_eq!(pool(average(false)), [-1., -2.5, -5.5, -7.]);
    assert_eq!(
        run(&one(Op::GlobalAveragePool, &[1, 3, 3], &[1, 1, 1]), &NINE),
        [5.]
    );
}

#[test]
fn rearranging() {
    let mut net = Net::new(&[2, 1, 2], 1);
    let double = net.add(0, 0);
    net.concat(&[0, double], 2);
    assert_eq!(
        run(&net, &[1., 2., 3., 4.]),
        [1., 2., 2., 4., 3., 4., 6., 8.]
    );
    let mut net = Net::new(&[1, 1, 2], 1);
    net.pad(0, [0, 1, 0], [0, 0, 1]);
    assert_eq!(run(&net, &[1., 2.]), [0., 0., 0., 1., 2., 0.]);
    let op = Op::Transpose {
        permutation: vec![1, 0],
    };
    assert_eq!(
        run(&one(op, &[2, 2], &[2, 2]), &[1., 2., 3., 4.]),
        [1., 3., 2., 4.]
    );
    let mut net = Net::new(&[2, 3], 1);
    net.take(0, 1, &[2, 0, 0, 1]);
    assert_eq!(
        run(&net, &[1., 2., 3., 4., 5., 6.]),
        [3., 1., 1., 2., 6., 4., 4., 5.]
    );
}

#[test]
fn profiles_are_exact_and_the_same_every_time() {
    let net = one(Op::Relu, &[2], &[2]);
    let samples: Vec<f32> = (0..2000).map(|i| (i as f32 - 1500.) / 10.).collect();
    let profile = float::profile(&net.graph, &samples, 1000).unwrap();
    let [input, relu] = profile.values[..] else {
        panic!("two values")
    };
    assert_eq!((input.min, input.max), (-150., 49.9));
    assert_eq!((relu.min, relu.max), (0., 49.9));
    let wanted = samples.iter().map(|&x| f64::from(x).powi(2)).sum::<f64>() / 2000.;
    assert!((input.mean_square - wanted).abs() < 1e-9 * wanted);
    assert_eq!(float::profile(&net.graph, &samples, 1000).unwrap(), profile);
}

#[test]
fn errors() {
    let net = one(Op::Square, &[2], &[2]);
    let error = float::evaluate(&net.graph, &[1.; 3], 2).unwrap_err();
    assert_eq!(
        error,
        FloatError::Inputs {
            found: 3,
            images: 2,
            shape: vec![2]
        }
    );
    assert_eq!(
        float::profile(&net.graph, &[], 0),
        Err(FloatError::NoSamples)
    );
    let error = float::profile(&net.graph, &[1., 2., 1e30, 0.], 2).unwrap_err();
    assert!(
        error.to_string().contains("Square1 (Square, shape [2])"),
        "{error}"
    );
    assert!(float::evaluate(&net.graph, &[1.], usize::MAX).is_err());
}
