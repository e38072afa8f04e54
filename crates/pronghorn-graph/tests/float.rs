//! The float evaluator against values computed by hand.

use crate::common::{Net, Random};
use pronghorn_graph::{
    float::{self, FloatError},
    function::Function,
    geometry::Window,
    graph::{Op, Tensor},
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

/// The squared error of the result that a relative error of a value brings to it, by trying it.
fn tried(net: &Net, value: usize, image: &[f32]) -> f64 {
    let mut disturbed = net.graph.clone();
    let step = 1e-3;
    let shape = disturbed.nodes[value].shape.clone();
    let count: usize = shape.iter().product();
    let (mut total, draws) = (0.0, 200);
    let wanted = float::evaluate(&net.graph, image, 1).unwrap();
    let mut up_to = net.graph.clone();
    up_to.output = value;
    up_to.nodes.truncate(value + 1);
    let clean = float::evaluate(&up_to, image, 1).unwrap();
    let mean_square = clean.iter().map(|x| f64::from(x * x)).sum::<f64>() / count as f64;
    let size = step * mean_square.sqrt() as f32;
    for draw in 0..draws {
        let noise = Random::new(draw + 1).reals(count, -1.0, 1.0);
        let noise: Vec<f32> = noise.iter().map(|x| x.signum() * size).collect();
        let noise = Tensor::new([count], noise);
        disturbed.tensors.insert("noise".into(), noise);
        let add = Some("noise".to_string());
        let mut graph = disturbed.clone();
        let mut node = graph.nodes[value].clone();
        node.op = Op::Affine { mul: None, add };
        node.inputs = vec![value];
        graph.nodes.insert(value + 1, node);
        for node in &mut graph.nodes[value + 2..] {
            for input in &mut node.inputs {
                *input += usize::from(*input >= value);
            }
        }
        graph.output += 1;
        let found = float::evaluate(&graph, image, 1).unwrap();
        let squares = found
            .iter()
            .zip(&wanted)
            .map(|(f, w)| f64::from((f - w).powi(2)));
        total += squares.sum::<f64>();
    }
    total / draws as f64 / f64::from(step).powi(2)
}

#[test]
fn gains_say_what_errors_become() {
    let mut net = Net::new(&[3, 8, 8], 5);
    let window = Window {
        padding: [1; 4],
        ..Window::plain([3, 3])
    };
    let first = net.conv(0, 8, window.clone(), 1);
    let relu = net.same(Op::Relu, first);
    let second = net.conv(relu, 8, window.clone(), 1);
    let sum = net.add(second, relu);
    let third = net.conv(sum, 6, window, 2);
    let pool = net.push(Op::GlobalAveragePool, &[third], vec![6, 1, 1]);
    let gate = net.same(Op::Sigmoid, pool);
    net.graph.nodes[gate].op = Op::Function {
        function: Function::Sigmoid,
    };
    let gated = net.push(Op::Multiply, &[third, gate], vec![6, 8, 8]);
    let flat = net.flatten(gated);
    net.dense(flat, 10);
    let image = Random::new(2).reals(net.graph.input_len(), -1.0, 1.0);
    let gains = float::gains(&net.graph, &image, 1).unwrap();
    for value in [first, relu, second, sum, third, gated, flat] {
        let ratio = gains[value] / tried(&net, value, &image);
        assert!((0.4..2.5).contains(&ratio), "value {value}: {ratio}");
    }
    let result = float::evaluate(&net.graph, &image, 1).unwrap();
    let size: f64 = result.iter().map(|x| f64::from(x * x)).sum();
    assert!((gains[net.graph.output] / size - 1.0).abs() < 1e-6);
    assert!(float::gains(&net.graph, &image[1..], 1).is_err());
}

#[test]
fn gains_of_what_does_not_matter_are_zero() {
    let mut net = Net::new(&[4], 5);
    let dead = net.tensor(&[4, 4], vec![0.0; 16]);
    let relu = net.same(Op::Relu, 0);
    let zero = net.push(
        Op::Dense {
            weight: dead,
            bias: None,
        },
        &[relu],
        vec![4],
    );
    net.add(zero, 0);
    let gains = float::gains(&net.graph, &[1.0, -2.0, 3.0, 0.5], 1).unwrap();
    assert_eq!((gains[relu], gains[zero]), (0.0, 0.0));
    assert!(gains[0] > 0.0);
}

#[test]
fn ranges_reach_beyond_samples_that_differ() {
    let reach_of = |shape: &[usize], peaks: &[f32]| {
        let mut net = Net::new(shape, 5);
        net.same(Op::Relu, 0);
        let samples: Vec<f32> = peaks.iter().flat_map(|&peak| [peak, -0.5 * peak]).collect();
        let profile = float::profile(&net.graph, &samples, peaks.len()).unwrap();
        assert_eq!(profile.values[0].reach, 1.0);
        profile.values[1].reach
    };
    let reach = |peaks: &[f32]| reach_of(&[2], peaks);
    assert_eq!(reach(&[3.0; 20]), 1.0);
    // Few say nothing. Of many the largest is far enough.
    assert_eq!(reach(&[1.0, 2.0, 4.0]), 1.0);
    let spread: Vec<f32> = (0..16).map(|i| 1.0 + i as f32 / 8.0).collect();
    let far = reach(&spread);
    assert!(far > 1.2 && far <= 2.0, "{far}");
    // Rows vary no less than pictures.
    let of_pictures = reach_of(&[2, 1, 1], &spread);
    assert!(
        of_pictures > 1.1 && of_pictures <= far,
        "{of_pictures} {far}"
    );
    let mut many = vec![1.0; 2000];
    many[7] = 1.2;
    assert_eq!(reach(&many), 1.0);
}

/// The largest of values with a long tail are far from one another, and those of others near.
#[test]
fn ranges_reach_farther_where_tails_are_long() {
    let reach = |peaks: &[f32]| {
        let mut net = Net::new(&[1], 5);
        net.same(Op::Relu, 0);
        let profile = float::profile(&net.graph, peaks, peaks.len()).unwrap();
        profile.values[1].reach
    };
    let quantiles = |value: fn(f32) -> f32| {
        let all = (0..16u8).map(|at| value((f32::from(at) + 0.5) / 16.0));
        all.collect::<Vec<f32>>()
    };
    // One in x is larger than x, than x^(1/3), and than 2 ln x.
    let heavy = reach(&quantiles(|rank| 1.0 / (1.0 - rank)));
    let light = reach(&quantiles(|rank| (1.0 - rank).powf(-1.0 / 3.0)));
    let exponential = reach(&quantiles(|rank| -2.0 * (1.0 - rank).ln()));
    let uniform = reach(&quantiles(|rank| 1.0 + rank));
    assert!(heavy > 3.0 && heavy <= 8.0, "{heavy}");
    assert!(light > 1.2 && light < 2.0, "{light}");
    assert!(exponential > 1.2 && exponential < heavy, "{exponential}");
    assert!(uniform < 1.5, "{uniform}");
}
