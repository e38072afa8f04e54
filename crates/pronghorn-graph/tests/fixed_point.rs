//! The fixed-point form against the float network, and its proven ranges.

use crate::common::{
    Net, Random, difference,
    quantised::{IMAGES, Quantised, padded, quantised, run, try_quantise},
    random_network, size,
};
use pronghorn_graph::{
    finish::Finish,
    fixed::{ActivationOp, FixedGraph, FixedOp, LocalOp},
    float::{self, Roles},
    geometry::Window,
    graph::Op,
    oracle,
    quantise::{
        FixedPrecision, LayerProfile, LowDigits, Precision, PrecisionChooser, QuantiseError,
        QuantiseOptions, Rows, quantise, quantise_corrected,
    },
};
use proptest::prelude::*;

/// A network in fixed point with its own biases, and with corrected ones.
fn with_corrected_biases(net: &mut Net, chooser: &dyn PrecisionChooser) -> [FixedGraph; 2] {
    let (plain, samples) = try_quantise(net, chooser, 0.0).unwrap();
    let profile = float::profile(&net.graph, &samples, IMAGES).unwrap();
    let roles = Roles {
        means: &(0..IMAGES).collect::<Vec<_>>(),
        ..Roles::default()
    };
    let survey = float::survey(&net.graph, &samples, IMAGES, roles).unwrap();
    let images = (samples.as_slice(), survey.means.as_slice());
    let options = QuantiseOptions::default();
    let corrected = quantise_corrected(&net.graph, &profile, chooser, &options, images).unwrap();
    [plain, corrected]
}

#[test]
fn a_classifier() {
    let mut net = Net::new(&[1, 8, 8], 5);
    let conv = net.conv(0, 3, padded(2), 1);
    let relu = net.same(Op::Relu, conv);
    let flat = net.flatten(relu);
    let dense = net.dense(flat, 5);
    let soft = net.same(Op::Softmax, dense);
    net.push(Op::ArgMax, &[soft], vec![]);
    let fixed = quantised(net, 8, 0.0);
    // Rounding follows the activation, before the reshape; the input needs none.
    assert_eq!(
        fixed.operators(),
        ["input", "conv", "relu", "requantise", "reshape", "dense"]
    );
    assert_eq!(fixed.fixed.finish, [Finish::Softmax, Finish::ArgMax]);
    assert_eq!(fixed.fixed.multiply_adds(), 9 * 48 + 48 * 5);
    assert_eq!(fixed.fixed.input().fraction_bits, 8);
    assert_eq!(fixed.fixed.to_string().lines().count(), 1 + 6 + 1);
    let wanted = float::evaluate(&fixed.net.graph, &fixed.samples, IMAGES).unwrap();
    let agree = run(&fixed.fixed, &fixed.samples)
        .iter()
        .zip(&wanted)
        .filter(|(a, b)| a == b)
        .count();
    assert!(agree >= IMAGES - 1, "{agree} of {IMAGES} labels agree");
}

#[test]
fn residual_blocks() {
    let mut net = Net::new(&[3, 8, 8], 6);
    let mut value = net.conv(0, 4, padded(1), 1);
    value = net.same(Op::Relu, value);
    for _ in 0..3 {
        let first = net.conv(value, 4, padded(1), 1);
        let first = net.same(Op::Relu, first);
        let second = net.conv(first, 4, padded(1), 1);
        let sum = net.add(second, value);
        value = net.same(Op::Relu, sum);
    }
    // The identity with a stride and twice the channels, as in the first ResNets.
    let conv = net.conv(value, 8, padded(2), 1);
    let subsample = Window {
        stride: [2, 2],
        ..Window::plain([1, 1])
    };
    let identity = net.pool(value, |window| Op::MaxPool { window }, subsample);
    let identity = net.pad(identity, [2, 0, 0], [2, 0, 0]);
    let sum = net.add(conv, identity);
    let relu = net.same(Op::Relu, sum);
    net.push(Op::GlobalAveragePool, &[relu], vec![8, 1, 1]);
    let fixed = quantised(net, 10, -1.0);
    assert!(fixed.error() < 0.02, "{}", fixed.error());
}

#[test]
fn inverted_bottlenecks() {
    let mut net = Net::new(&[3, 8, 8], 7);
    let mut value = net.conv(0, 4, padded(2), 1);
    value = net.same(
        Op::Clip {
            min: Some(0.0),
            max: Some(6.0),
        },
        value,
    );
    for _ in 0..2 {
        let wide = net.conv(value, 12, Window::plain([1, 1]), 1);
        let wide = net.same(
            Op::Clip {
                min: Some(0.0),
                max: Some(6.0),
            },
            wide,
        );
        let deep = net.conv(wide, 12, padded(1), 12);
        let deep = net.same(
            Op::Clip {
                min: Some(0.0),
                max: Some(6.0),
            },
            deep,
        );
        let narrow = net.conv(deep, 4, Window::plain([1, 1]), 1);
        value = net.add(narrow, value);
    }
    // A layer straight on a layer: rounding is a step of its own between them.
    let value = net.conv(value, 5, Window::plain([1, 1]), 1);
    net.conv(value, 5, Window::plain([1, 1]), 1);
    let fixed = quantised(net, 10, -1.0);
    let operators = fixed.operators();
    assert_eq!(
        operators[operators.len() - 3..],
        ["conv", "requantise", "conv"]
    );
    assert!(fixed.error() < 0.02, "{}", fixed.error());
}

#[test]
fn one_dimensional_signals() {
    let mut net = Net::new(&[2, 1, 40], 8);
    let window = Window {
        stride: [1, 2],
        padding: [0, 3, 0, 3],
        ..Window::plain([1, 7])
    };
    let conv = net.conv(0, 6, window, 1);
    let leaky = net.same(Op::LeakyRelu { alpha: 0.1 }, conv);
    let average = |window| Op::AveragePool {
        window,
        count_include_pad: false,
    };
    let pool = net.pool(
        leaky,
        average,
        Window {
            stride: [1, 3],
            ..Window::plain([1, 3])
        },
    );
    let flat = net.flatten(pool);
    net.dense(flat, 2);
    let fixed = quantised(net, 10, -1.0);
    assert!(fixed.error() < 0.02, "{}", fixed.error());
}

#[test]
fn readers_who_want_the_same_share_it() {
    let mut net = Net::new(&[2, 4, 4], 9);
    let conv = net.conv(0, 3, padded(1), 1);
    let relu = net.same(Op::Relu, conv);
    let left = net.conv(relu, 3, padded(1), 1);
    let right = net.conv(relu, 3, padded(1), 1);
    net.add(left, right);
    let fixed = quantised(net, 8, 0.0);
    let count = fixed
        .operators()
        .iter()
        .filter(|name| *name == "requantise")
        .count();
    assert_eq!(count, 1);
}

/// Different precisions for the first two layers.
struct Two;

impl PrecisionChooser for Two {
    fn choose(&self, layer: &LayerProfile<'_>) -> Result<Precision, String> {
        let input_bits = if layer.name == "Conv1" { 6 } else { 9 };
        Ok(Precision {
            weight_bits: 8,
            input_bits,
            low: None,
        })
    }
}

#[test]
fn the_input_has_the_finest_precision_asked_for() {
    let mut net = Net::new(&[2, 4, 4], 9);
    let left = net.conv(0, 3, padded(1), 1);
    let right = net.conv(0, 3, padded(1), 1);
    let right = net.same(Op::Relu, right);
    net.add(left, right);
    let (fixed, _) = try_quantise(&mut net, &Two, 0.0).unwrap();
    assert_eq!(fixed.input().fraction_bits, 9);
    let rounded: Vec<_> = fixed
        .nodes
        .iter()
        .filter_map(|node| match &node.op {
            FixedOp::Activation(ActivationOp::Requantise { shift, .. }) => Some(*shift),
            _ => None,
        })
        .collect();
    assert_eq!(rounded, [4]); // 9 bits against 5: 63 / 2^6 is less than the largest input
}

#[test]
fn averages_without_and_with_factors() {
    let pool = |kernel: [usize; 2], padding: [usize; 4]| {
        let mut net = Net::new(&[1, 6, 6], 9);
        let average = |window| Op::AveragePool {
            window,
            count_include_pad: false,
        };
        net.pool(
            0,
            average,
            Window {
                padding,
                ..Window::plain(kernel)
            },
        );
        let fixed = quantised(net, 8, 0.0);
        assert!(fixed.error() < 0.01, "{}", fixed.error());
        let node = &fixed.fixed.nodes[1];
        let FixedOp::Local(LocalOp::SumPool { multipliers, .. }) = &node.op else {
            panic!("{node}");
        };
        (
            multipliers.clone(),
            node.value.fraction_bits - fixed.fixed.input().fraction_bits,
        )
    };
    assert_eq!(pool([2, 4], [0; 4]), (vec![1], 3));
    assert_eq!(pool([3, 3], [0; 4]), (vec![910], 13));
    // The top row of windows holds two elements each, the others four.
    let (factors, bits) = pool([2, 2], [1, 0, 0, 0]);
    assert_eq!((factors.len(), bits), (30, 12));
    assert!(factors[..5].iter().all(|&factor| factor == 2048));
    assert!(factors[5..].iter().all(|&factor| factor == 1024));
}

#[test]
fn means_of_large_images_are_sums_of_sums() {
    for (edges, stages) in [([112, 112], 2), ([30, 45], 2), ([97, 97], 3), ([8, 8], 1)] {
        let mut net = Net::new(&[2, edges[0], edges[1]], 9);
        net.push(Op::GlobalAveragePool, &[0], vec![2, 1, 1]);
        let samples = Random::new(3).reals(IMAGES * net.graph.input_len(), 0.0, 1.0);
        let profile = float::profile(&net.graph, &samples, IMAGES).unwrap();
        let options = QuantiseOptions {
            plain_input_bits: 16,
            most_bits: 28,
            ..QuantiseOptions::default()
        };
        let fixed = quantise(&net.graph, &profile, &FixedPrecision(8, 8), &options).unwrap();
        let sums = fixed.nodes.iter();
        let sums = sums.filter(|node| matches!(node.op, FixedOp::Local(LocalOp::SumPool { .. })));
        assert_eq!(sums.count(), stages, "{edges:?}");
        // The input is rounded nowhere.
        let FixedOp::Local(LocalOp::SumPool { .. }) = &fixed.nodes[1].op else {
            panic!("{}", fixed.nodes[1]);
        };
        let wanted = float::evaluate(&net.graph, &samples, IMAGES).unwrap();
        let error = difference(&run(&fixed, &samples), &wanted) / size(&wanted);
        assert!(error < 1e-3, "{edges:?}: {error}");
    }
}

/// Layers in several digits, or in one.
struct Digits(Option<LowDigits>);

impl PrecisionChooser for Digits {
    fn choose(&self, _: &LayerProfile<'_>) -> Result<Precision, String> {
        Ok(Precision {
            weight_bits: 12,
            input_bits: 8,
            low: self.0,
        })
    }
}

#[test]
fn layers_in_digits_have_narrow_sums() {
    let cuts = [(1, 5), (1, 6), (1, 8), (2, 4), (2, 5)];
    for (count, bits) in cuts {
        let low = LowDigits { count, bits };
        let mut errors = Vec::new();
        let mut widths = Vec::new();
        for digits in [None, Some(low)] {
            let mut net = Net::new(&[8, 6, 6], 10);
            let conv = net.conv(0, 16, padded(1), 1);
            let relu = net.same(Op::Relu, conv);
            let flat = net.flatten(relu);
            net.dense(flat, 5);
            let [_, fixed] = with_corrected_biases(&mut net, &Digits(digits));
            let linear = fixed.nodes.iter();
            let linear = linear.filter(|node| matches!(node.op, FixedOp::Linear(_)));
            let layers = 2 * (1 + digits.map_or(0, |low| low.count as usize));
            assert_eq!(linear.clone().count(), layers);
            let widest = linear.map(|node| i64::from(node.value.high) - i64::from(node.value.low));
            widths.push(widest.max().unwrap() as f64);
            let samples = Random::new(3).reals(IMAGES * net.graph.input_len(), 0.0, 1.0);
            let wanted = float::evaluate(&net.graph, &samples, IMAGES).unwrap();
            errors.push(difference(&run(&fixed, &samples), &wanted) / size(&wanted));
        }
        assert!(errors[1] < 1.3 * errors[0] + 1e-4, "{low:?}: {errors:?}");
        let narrower = if count == 1 { 6.0 } else { 40.0 };
        assert!(widths[1] < widths[0] / narrower, "{low:?}: {widths:?}");
    }
}

/// Digits that are no digits of 16 bits are refused.
#[test]
fn digits_have_bits() {
    for (count, bits) in [(0, 5), (3, 4), (1, 0), (1, 16), (2, 0), (2, 8)] {
        let mut net = Net::new(&[4], 10);
        net.dense(0, 3);
        let low = Some(LowDigits { count, bits });
        let samples = Random::new(3).reals(IMAGES * 4, 0.0, 1.0);
        let profile = float::profile(&net.graph, &samples, IMAGES).unwrap();
        let options = QuantiseOptions::default();
        let refused = quantise(&net.graph, &profile, &Digits(low), &options);
        assert!(
            matches!(refused, Err(QuantiseError::Precision { .. })),
            "{low:?}"
        );
    }
}

#[test]
fn slopes_are_as_fine_as_they_must_be() {
    for (alpha, wanted) in [
        (0.25, (1, 2)),
        (0.5, (1, 1)),
        (0.01, (5, 9)),
        (0.2, (205, 10)),
    ] {
        let mut net = Net::new(&[4], 10);
        net.same(Op::LeakyRelu { alpha }, 0);
        let fixed = quantised(net, 8, -1.0).fixed;
        let FixedOp::Activation(ActivationOp::LeakyRelu { slope, shift }) = fixed.nodes[1].op
        else {
            panic!("{}", fixed.nodes[1]);
        };
        assert_eq!((slope, shift), wanted, "{alpha}");
    }
}

/// `c - x`: a sum with the other sign, and constants; no layer, whose weights would be encrypted
/// values' factors. A trained factor is a layer.
#[test]
fn a_change_of_sign_is_no_layer() {
    let linear = |factors: Vec<f32>, summand: bool| {
        let mut net = Net::new(&[3, 4, 5], 11);
        let mul = Some(net.tensor(&[factors.len()], factors));
        let add = summand.then(|| net.tensor(&[1], vec![1.0]));
        net.same(Op::Affine { mul, add }, 0);
        let quantised = quantised(net, 8, -1.0);
        assert!(quantised.error() < 0.01, "{}", quantised.error());
        let nodes = quantised.fixed.nodes.iter();
        nodes
            .filter(|node| matches!(node.op, FixedOp::Linear(_)))
            .count()
    };
    for summand in [false, true] {
        assert_eq!(linear(vec![-1.0], summand), 0);
        assert_eq!(linear(vec![-0.5], summand), 1);
        assert_eq!(linear(vec![-1.0; 3], summand), 1);
    }
}

#[test]
fn wide_values_are_rounded_before_they_overflow() {
    let mut net = Net::new(&[16, 5, 5], 10);
    let conv = net.conv(0, 8, padded(1), 1);
    let square = net.same(Op::Square, conv);
    let conv = net.conv(square, 8, padded(1), 1);
    let leaky = net.same(Op::LeakyRelu { alpha: 0.25 }, conv);
    net.push(Op::GlobalAveragePool, &[leaky], vec![8, 1, 1]);
    let fixed = quantised(net, 11, -1.0);
    assert!(fixed.error() < 0.05, "{}", fixed.error());
    let operators = fixed.operators();
    let at = operators.iter().position(|name| name == "square").unwrap();
    assert_eq!(operators[at - 1], "requantise");
}

#[test]
fn errors_say_where_and_what_to_do() {
    // 300 weights at 16 bits times inputs of 24 bits cannot fit.
    let net = || {
        let mut net = Net::new(&[300], 11);
        net.dense(0, 2);
        net
    };
    let error = try_quantise(&mut net(), &FixedPrecision(16, 24), 0.0).unwrap_err();
    assert!(matches!(error, QuantiseError::Overflow { .. }));
    let message = error.to_string();
    assert!(message.contains("Dense1 (Dense, shape [2])"), "{message}");
    assert!(message.contains("--weight-bits"), "{message}");
    let error = try_quantise(&mut net(), &FixedPrecision(17, 8), 0.0).unwrap_err();
    assert!(matches!(error, QuantiseError::Precision { .. }));
    let graph = net().graph;
    let profile = float::profile(&graph, &[0.5; 300], 1).unwrap();
    let options = QuantiseOptions {
        margin: 0.5,
        ..QuantiseOptions::default()
    };
    let error = quantise(&graph, &profile, &FixedPrecision(8, 8), &options).unwrap_err();
    assert!(error.to_string().contains("margin is 0.5"), "{error}");
    let short = float::Profile {
        values: vec![],
        rows: Rows::default(),
    };
    let error = quantise(
        &graph,
        &short,
        &FixedPrecision(8, 8),
        &QuantiseOptions::default(),
    );
    assert!(matches!(
        error,
        Err(QuantiseError::Profile {
            found: 0,
            expected: 2
        })
    ));
}

/// Checks the estimates of a layer against the layer that comes out.
struct Recorded(
    std::cell::Cell<Option<pronghorn_graph::quantise::Candidate>>,
    u32,
    u32,
);

impl PrecisionChooser for Recorded {
    fn choose(&self, layer: &LayerProfile<'_>) -> Result<Precision, String> {
        self.0.set(Some(layer.at(self.1, self.2)));
        Ok(Precision {
            weight_bits: self.1,
            input_bits: self.2,
            low: None,
        })
    }
}

#[test]
fn candidates_are_what_the_layer_becomes() {
    for (weight_bits, input_bits) in [(4, 9), (9, 4), (6, 6), (3, 2)] {
        let mut net = Net::new(&[4, 9, 9], 12);
        net.conv(0, 6, padded(1), 2);
        let recorded = Recorded(None.into(), weight_bits, input_bits);
        let (fixed, samples) = try_quantise(&mut net, &recorded, -1.0).unwrap();
        let candidate = recorded.0.get().unwrap();
        let FixedOp::Linear(linear) = &fixed.nodes[1].op else {
            panic!("{fixed}")
        };
        let value = &fixed.nodes[1].value;
        assert_eq!(
            candidate.width,
            f64::from(value.high) - f64::from(value.low)
        );
        let rows = || linear.weights.chunks(linear.geometry.row_len());
        let norm1 = rows()
            .map(|row| row.iter().map(|&w| i32::from(w).abs()).sum::<i32>())
            .max()
            .unwrap();
        assert_eq!(candidate.norm1, f64::from(norm1));
        let squares = rows()
            .map(|row| row.iter().map(|&w| i32::from(w).pow(2)).sum::<i32>())
            .max()
            .unwrap();
        assert_eq!(candidate.norm2, f64::from(squares).sqrt());
        let wanted = float::evaluate(&net.graph, &samples, IMAGES).unwrap();
        let error = difference(&run(&fixed, &samples), &wanted) / size(&wanted);
        let ratio = error / candidate.error;
        assert!(
            (0.6..1.6).contains(&ratio),
            "{error} is not about {}",
            candidate.error
        );
    }
}

#[test]
fn a_layer_too_wide_for_32_bits_shows_as_infinite() {
    let mut net = Net::new(&[300], 11);
    net.dense(0, 2);
    let recorded = Recorded(None.into(), 16, 24);
    try_quantise(&mut net, &recorded, 0.0).unwrap_err();
    assert_eq!(recorded.0.get().unwrap().width, f64::INFINITY);
}

/// A layer with a channel for each of `sizes`, whose weights are so large; a ReLU; a layer that
/// weighs the channels alike.
fn uneven(sizes: &[f32]) -> Net {
    let channels = sizes.len();
    let mut net = Net::new(&[2, 6, 6], 17);
    let mut random = Random::new(9);
    let rows = sizes
        .iter()
        .flat_map(|&size| random.reals(18, -size, size))
        .collect();
    let weight = net.tensor(&[channels, 2, 3, 3], rows);
    let (window, bias) = (padded(1), None);
    let conv = Op::Conv {
        window,
        groups: 1,
        weight,
        bias,
    };
    let conv = net.push(conv, &[0], vec![channels, 6, 6]);
    let relu = net.same(Op::Relu, conv);
    let mut random = Random::new(10);
    let columns = (0..4).flat_map(|_| sizes.iter().map(|size| 1.0 / size).collect::<Vec<_>>());
    let columns = columns.map(|size| size * random.real(0.5, 1.0)).collect();
    let weight = net.tensor(&[4, channels, 1, 1], columns);
    let (window, bias) = (Window::plain([1, 1]), None);
    let conv = Op::Conv {
        window,
        groups: 1,
        weight,
        bias,
    };
    let conv = net.push(conv, &[relu], vec![4, 6, 6]);
    net.flatten(conv);
    net
}

/// Rows of small weights keep their bits beside rows of large ones.
#[test]
fn rows_have_scales_of_their_own() {
    let net = uneven(&[1.0, 0.5, 0.25, 0.125, 0.125, 0.25]);
    // Weights of 5 bits: with one scale for all rows the smallest had 2.
    let fixed = {
        let mut net = net;
        let chooser = FixedPrecision(5, 14);
        let (fixed, samples) = try_quantise(&mut net, &chooser, 0.0).unwrap();
        Quantised {
            net,
            fixed,
            samples,
        }
    };
    let shifts = fixed.fixed.nodes.iter().find_map(|node| match &node.op {
        FixedOp::Activation(ActivationOp::RequantiseChannels { shifts, .. }) => Some(shifts),
        _ => None,
    });
    let shifts = shifts.expect("channels drop bits of their own");
    let (least, most) = (shifts.iter().min(), shifts.iter().max());
    assert_eq!(most.unwrap() - least.unwrap(), 3, "{shifts:?}");
    assert!(fixed.error() < 0.05, "{}", fixed.error());
}

/// A value that something else reads first has one scale.
#[test]
fn rows_have_one_scale_where_sums_read_them() {
    let mut net = uneven(&[1.0, 0.125]);
    let relu = 2;
    let sum = net.add(relu, 1);
    net.flatten(sum);
    let fixed = quantised(net, 8, 0.0);
    let channels = |op: &FixedOp| {
        matches!(
            op,
            FixedOp::Activation(ActivationOp::RequantiseChannels { .. })
        )
    };
    assert!(!fixed.fixed.nodes.iter().any(|node| channels(&node.op)));
}

/// Coarse weights shift means. Corrected biases take that back, on other images, too.
#[test]
fn corrected_biases_lessen_the_error() {
    let mut net = Net::new(&[2, 6, 6], 21);
    let first = net.conv(0, 6, padded(1), 1);
    let relu = net.same(Op::Relu, first);
    let second = net.conv(relu, 6, padded(1), 1);
    let relu = net.same(Op::Relu, second);
    let flat = net.flatten(relu);
    net.dense(flat, 5);
    let both = with_corrected_biases(&mut net, &FixedPrecision(4, 10));
    let others = Random::new(77).reals(IMAGES * net.graph.input_len(), 0.0, 1.0);
    let wanted = float::evaluate(&net.graph, &others, IMAGES).unwrap();
    let [plain, corrected] = both.map(|fixed| difference(&run(&fixed, &others), &wanted));
    assert!(
        corrected < 0.8 * plain,
        "{corrected} is not much less than {plain}"
    );
}

/// Constants an element have no channels to correct.
#[test]
fn biases_of_elements_stay() {
    let mut net = Net::new(&[2, 3, 3], 4);
    let add = Some(net.tensor(&[2, 3, 3], Random::new(5).reals(18, -1.0, 1.0)));
    net.push(Op::Affine { mul: None, add }, &[0], vec![2, 3, 3]);
    net.flatten(1);
    net.dense(2, 4);
    let [plain, corrected] = with_corrected_biases(&mut net, &FixedPrecision(10, 10));
    assert_eq!(plain.nodes[1].op, corrected.nodes[1].op);
}

#[test]
fn a_large_bias_takes_bits_from_tiny_weights() {
    let mut net = Net::new(&[4], 1);
    let weight = net.tensor(&[1, 4], vec![1e-7; 4]);
    let bias = Some(net.tensor(&[1], vec![900.0]));
    net.push(Op::Dense { weight, bias }, &[0], vec![1]);
    let fixed = quantised(net, 8, 0.0);
    assert!(fixed.error() < 1e-3);
}

#[test]
fn inputs_are_checked_rounded_and_clamped() {
    let mut net = Net::new(&[2], 1);
    net.same(Op::Relu, 0);
    let fixed = quantised(net, 8, -1.0).fixed;
    let spec = fixed.input();
    let scale = f32::from(2u8).powi(spec.fraction_bits);
    let (integers, clamped) =
        oracle::quantise_input(spec, &[1.5 / scale, 9e9, -1.5 / scale, -7.0]).unwrap();
    assert_eq!(integers, [2, spec.high, -1, spec.low]);
    assert_eq!(clamped, 2);
    let error = oracle::quantise_input(spec, &[0.0, 0.0, f32::NAN])
        .unwrap_err()
        .to_string();
    assert!(error.contains("input value 2 (image 1) is NaN"), "{error}");
    assert!(oracle::evaluate(&fixed, &[0; 3], 1).is_err());
    // Integers that quantise_input would have clamped are outside a proven range.
    let error = oracle::evaluate(&fixed, &[i32::MAX, 0], 1).unwrap_err();
    assert!(matches!(error, oracle::OracleError::Range { .. }));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// Close to the float network on the samples; no value ever outside its proven range, for
    /// inputs far from them; and every pass and precision on the way.
    #[test]
    fn random_networks(seed: u64, signed: bool) {
        let network = random_network(seed, 7);
        let fixed = quantised(network, 12, if signed { -1.0 } else { 0.0 });
        let wanted = float::evaluate(&fixed.net.graph, &fixed.samples, IMAGES).unwrap();
        let error = difference(&run(&fixed.fixed, &fixed.samples), &wanted);
        prop_assert!(error < 0.03 * size(&wanted) + 3e-3, "error {error} of {}", size(&wanted));
        let elements = fixed.net.graph.input_len();
        let mut random = Random::new(seed ^ 1);
        let wild = random.reals(4 * elements, -1e4, 1e4);
        let extreme: Vec<f32> = (0..4 * elements).map(|_| [-1e9, 1e9][random.below(2)]).collect();
        for inputs in [wild, extreme] {
            prop_assert!(run(&fixed.fixed, &inputs).iter().all(|x| x.is_finite()));
        }
    }

    /// Low precisions run within their ranges too, whatever they compute.
    #[test]
    fn coarse_networks(seed: u64, weight_bits in 2..8u32, input_bits in 2..8u32) {
        let mut net = random_network(seed, 9);
        let (fixed, samples) = try_quantise(&mut net, &FixedPrecision(weight_bits, input_bits), -1.0).unwrap();
        prop_assert!(run(&fixed, &samples).iter().all(|x| x.is_finite()));
    }
}
