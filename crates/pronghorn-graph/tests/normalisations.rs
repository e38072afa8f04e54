//! Values less their means, their squares and an inverse root: few changes of precision, and close.

use crate::common::Net;
use pronghorn_graph::{
    fixed::{ActivationOp, FixedGraph, FixedOp, LocalOp},
    float,
    function::Function,
    geometry::Window,
    graph::Op,
    oracle,
    quantise::{FixedPrecision, QuantiseOptions, quantise},
};

const PLACES: usize = 9;

/// An image of 3x3 places with `channels` channels, normalised over these at each place, as the
/// importer lowers it; `factor` is that of the mean.
fn network(channels: usize, factor: f32) -> Net {
    let mut net = Net::new(&[2, 3, 3], 3);
    let image = net.conv(0, channels, Window::plain([1, 1]), 1);
    let pooled = mean(&mut net, image);
    let mul = Some(net.tensor(&[1], vec![factor]));
    let below = net.same(Op::Affine { mul, add: None }, pooled);
    let below = net.take(below, 0, &vec![0; channels]);
    let centred = net.add(image, below);
    let square = net.same(Op::Square, centred);
    let full = channels.next_power_of_two();
    let filled = net.pad(square, [0; 3], [full - channels, 0, 0]);
    let square = mean(&mut net, filled);
    let epsilon = 1e-3;
    let function = Function::InverseRoot {
        epsilon,
        scale: 1.0,
    };
    let root = net.same(Op::Function { function }, square);
    let shape = net.shape(centred);
    let product = net.push(Op::Multiply, &[centred, root], shape);
    net.conv(product, 4, Window::plain([3, 3]), 1);
    net
}

/// The mean over channels.
fn mean(net: &mut Net, image: usize) -> usize {
    let channels = net.shape(image)[0];
    let permutation = vec![1, 2, 0];
    let last = net.push(
        Op::Transpose { permutation },
        &[image],
        vec![3, 3, channels],
    );
    let rows = net.push(Op::Reshape, &[last], vec![PLACES, 1, channels]);
    let mean = net.push(Op::GlobalAveragePool, &[rows], vec![PLACES, 1, 1]);
    net.push(Op::Reshape, &[mean], vec![1, 3, 3])
}

/// The fixed-point form, and its error over the size of the result.
fn fixed(net: &mut Net, costly: bool, bits: u32) -> (FixedGraph, f64) {
    let x = net.random.reals(64 * 2 * PLACES, -1.0, 1.0);
    let profile = float::profile(&net.graph, &x, 64).unwrap();
    let options = QuantiseOptions {
        costly_requantisation: costly,
        ..QuantiseOptions::default()
    };
    let fixed = quantise(&net.graph, &profile, &FixedPrecision(10, bits), &options).unwrap();
    let (integers, _) = oracle::quantise_input(fixed.input(), &x).unwrap();
    let found = oracle::evaluate(&fixed, &integers, 64).unwrap();
    let wanted = float::evaluate(&net.graph, &x, 64).unwrap();
    let scale = f64::from(fixed.result().fraction_bits).exp2();
    let sum = |square: &dyn Fn(f64, f64) -> f64| -> f64 {
        let pairs = found.iter().zip(&wanted);
        let each = pairs.map(|(&found, &wanted)| square(f64::from(found) / scale, wanted.into()));
        each.sum()
    };
    let error = sum(&|found, wanted| (found - wanted).powi(2));
    (fixed, (error / sum(&|_, wanted| wanted * wanted)).sqrt())
}

#[test]
fn normalised_values_are_close() {
    for costly in [false, true] {
        for (channels, factor) in [(8, -1.0), (6, -1.0), (5, -1.0), (7, -0.75)] {
            let mut last = f64::INFINITY;
            for (bits, allowed) in [(8, 0.07), (11, 0.012)] {
                let (_, error) = fixed(&mut network(channels, factor), costly, bits);
                assert!(
                    error < allowed && error < last,
                    "{channels} channels, {bits} bits, {costly}: {error}"
                );
                last = error;
            }
        }
    }
}

/// All elements change their precision once before the square and the product and once after, and
/// the mean's sign takes no layer.
#[test]
fn elements_change_their_precision_once() {
    for channels in [8, 6] {
        let (fixed, _) = fixed(&mut network(channels, -1.0), true, 9);
        let count = |is: &dyn Fn(&FixedOp) -> bool, elements: usize| {
            let nodes = fixed.nodes.iter();
            let same = nodes.filter(|node| is(&node.op) && node.value.len() == elements);
            same.count()
        };
        let requantise =
            |op: &FixedOp| matches!(op, FixedOp::Activation(ActivationOp::Requantise { .. }));
        assert_eq!(count(&requantise, channels * PLACES), 2, "{fixed}");
        assert_eq!(count(&requantise, PLACES), 2, "{fixed}");
        let layer = |op: &FixedOp| matches!(op, FixedOp::Linear(_));
        assert_eq!(count(&layer, PLACES), 0, "{fixed}");
        let negative = |op: &FixedOp| matches!(op, FixedOp::Local(LocalOp::SumPool { multipliers, .. }) if multipliers[0] < 0);
        assert_eq!(count(&negative, PLACES), 1, "{fixed}");
    }
}

/// A flat value behind an image: the mean reads the image.
#[test]
fn flat_values_are_centred_without_a_layer() {
    let mut net = Net::new(&[2, 3, 3], 3);
    let image = net.conv(0, 12, Window::plain([3, 3]), 1);
    let flat = net.flatten(image);
    let row = net.push(Op::Reshape, &[image], vec![1, 1, 12]);
    let mean = net.push(Op::GlobalAveragePool, &[row], vec![1, 1, 1]);
    let mean = net.flatten(mean);
    let mul = Some(net.tensor(&[1], vec![-1.0]));
    let below = net.same(Op::Affine { mul, add: None }, mean);
    let below = net.take(below, 0, &[0; 12]);
    let centred = net.add(flat, below);
    net.same(Op::Square, centred);
    let other = net.conv(0, 12, Window::plain([3, 3]), 1);
    let other = net.flatten(other);
    let product = net.push(Op::Multiply, &[centred, other], vec![12]);
    net.dense(product, 3);
    for costly in [false, true] {
        let (fixed, error) = fixed(&mut net, costly, 10);
        let layers = fixed
            .nodes
            .iter()
            .filter(|node| matches!(node.op, FixedOp::Linear(_)));
        assert_eq!(layers.count(), 3, "{fixed}");
        assert!(error < 0.02, "{error} {fixed}");
    }
}

/// A mean that something else reads, or a difference that a layer reads, has no rounding of its
/// own, and is right.
#[test]
fn other_differences_are_right() {
    let mut net = Net::new(&[2, 3, 3], 3);
    let image = net.conv(0, 6, Window::plain([1, 1]), 1);
    let pooled = mean(&mut net, image);
    let mul = Some(net.tensor(&[1], vec![-1.0]));
    let below = net.same(Op::Affine { mul, add: None }, pooled);
    let below = net.take(below, 0, &[0; 6]);
    let centred = net.add(image, below);
    let square = net.same(Op::Square, centred);
    let both = net.add(square, below);
    let both = net.add(both, centred);
    net.conv(both, 4, Window::plain([3, 3]), 1);
    for costly in [false, true] {
        let (fixed, error) = fixed(&mut net, costly, 10);
        assert!(error < 0.02, "{error} {fixed}");
    }
}
