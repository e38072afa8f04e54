//! Smooth functions in fixed point: their tables are close to them, and small.

use crate::common::Net;
use pronghorn_graph::{
    fixed::{ActivationOp, FixedGraph, FixedOp, Table},
    float,
    function::Function,
    graph::Op,
    oracle,
    quantise::{FixedPrecision, QuantiseOptions, quantise},
};

const ELU: Function = Function::Elu {
    scale: 1.0,
    width: 1.0,
};
const SELU: Function = Function::Elu {
    scale: 1.758_099,
    width: 1.050_701,
};
const FUNCTIONS: [Function; 13] = [
    Function::Erf,
    Function::HardSwish,
    Function::Swish { beta: 1.0 },
    Function::Swish { beta: 1.702 },
    Function::Gelu,
    Function::GeluTanh,
    Function::Mish,
    Function::Softplus,
    ELU,
    SELU,
    Function::Sigmoid,
    Function::Tanh,
    Function::Softsign,
];

/// Arguments of one image.
const VALUES: usize = 512;

/// A function behind a layer of weights 1, whose argument is in `low..=high`, and those arguments.
fn network(
    function: Function,
    low: f32,
    high: f32,
    bits: u32,
    costly: bool,
) -> (FixedGraph, Vec<f32>, Net) {
    let mut net = Net::new(&[VALUES], 1);
    let one = net.tensor(&[1], vec![1.0]);
    let layer = Op::Affine {
        mul: Some(one),
        add: None,
    };
    let layer = net.same(layer, 0);
    net.same(Op::Function { function }, layer);
    let step = (high - low) / (VALUES - 1) as f32;
    let x: Vec<f32> = (0..VALUES).map(|i| low + step * i as f32).collect();
    let profile = float::profile(&net.graph, &x, 1).unwrap();
    let options = QuantiseOptions {
        costly_requantisation: costly,
        plain_input_bits: bits,
        ..QuantiseOptions::default()
    };
    let fixed = quantise(&net.graph, &profile, &FixedPrecision(4, 16), &options).unwrap();
    (fixed, x, net)
}

fn table(fixed: &FixedGraph) -> &Table {
    let tables = fixed.nodes.iter().filter_map(|node| match &node.op {
        FixedOp::Activation(ActivationOp::Table(table)) => Some(table),
        _ => None,
    });
    let tables: Vec<_> = tables.collect();
    assert_eq!(tables.len(), 1);
    tables[0]
}

/// The largest and the root mean square error, in units of the result.
fn errors(fixed: &FixedGraph, net: &Net, x: &[f32]) -> [f64; 2] {
    let (integers, _) = oracle::quantise_input(fixed.input(), x).unwrap();
    let found = oracle::evaluate(fixed, &integers, 1).unwrap();
    let wanted = float::evaluate(&net.graph, x, 1).unwrap();
    let scale = f64::from(fixed.result().fraction_bits).exp2();
    let errors = found.iter().zip(&wanted);
    let errors: Vec<f64> = errors
        .map(|(&found, &wanted)| (f64::from(found) - f64::from(wanted) * scale).abs())
        .collect();
    let squares: f64 = errors.iter().map(|error| error * error).sum();
    let most = errors.iter().copied().fold(0.0, f64::max);
    [most, (squares / errors.len() as f64).sqrt()]
}

#[test]
fn tables_are_close() {
    for costly in [false, true] {
        for bits in [4, 6, 8] {
            for function in FUNCTIONS {
                for (low, high) in [(-8.0, 8.0), (-3.0, 5.0), (0.5, 2.0), (-20.0, 30.0)] {
                    let (fixed, x, net) = network(function, low, high, bits, costly);
                    // Where tables cost nothing, values have two bits more than asked for.
                    let unit = if costly { 1.0 } else { 4.0 };
                    let [most, rms] = errors(&fixed, &net, &x).map(|error| error / unit);
                    // Softsign nears its limits so slowly that its last entries are coarse.
                    let slow = function == Function::Softsign;
                    let (most_allowed, rms_allowed) = if slow { (7.5, 0.7) } else { (3.0, 0.65) };
                    assert!(
                        most < most_allowed && rms < rms_allowed,
                        "{function:?} of {low}..{high} in {bits} bits, {costly}: {most} {rms}"
                    );
                }
            }
        }
    }
}

/// Functions without limits have tables of the arguments that samples have, of either sign.
#[test]
fn tables_of_samples_are_close() {
    let (any, positive) = (
        [[-3.0, 3.0], [-6.0, 1.0], [0.0, 5.0], [-4.0, -1.0]],
        [0.5, 1.0],
    );
    for costly in [false, true] {
        for bits in [6, 8, 10] {
            let each = [Function::Exp, Function::Sin, Function::Cos, Function::Atan];
            let any = each.iter().flat_map(|&f| any.map(|range| (f, range)));
            let each = [Function::Log, Function::Sqrt];
            let positive = each
                .iter()
                .flat_map(|&f| positive.map(|low| (f, [low, 16.0 * low])));
            // Arguments of one sign: largest exponents are next to zero.
            let decays = [
                (-0.5, [0.0, 5.0]),
                (-2.0, [0.0, 8.0]),
                (0.5, [-6.0, -0.5]),
                (1.0, [-3.0, -0.25]),
                (4.0, [-1.0, -0.0625]),
            ]
            .map(|(rate, range)| (Function::Decay { rate }, range));
            for (function, [low, high]) in any.chain(positive).chain(decays) {
                let (fixed, x, net) = network(function, low, high, bits, costly);
                let unit = if costly { 1.0 } else { 4.0 };
                let [most, rms] = errors(&fixed, &net, &x).map(|error| error / unit);
                assert!(
                    most < 4.0 && rms < 0.8,
                    "{function:?} of {low}..{high} in {bits} bits, {costly}: {most} {rms}"
                );
            }
        }
    }
}

/// As a softmax has it: the sum of exponentials, of which one is 1.
#[test]
fn reciprocals_are_close() {
    let function = Function::Reciprocal { scale: 0.125 };
    for costly in [false, true] {
        for (low, high) in [(0.125, 1.0), (0.13, 0.3), (0.02, 1.0)] {
            let (fixed, x, net) = network(function, low, high, 10, costly);
            let (integers, _) = oracle::quantise_input(fixed.input(), &x).unwrap();
            let found = oracle::evaluate(&fixed, &integers, 1).unwrap();
            let wanted = float::evaluate(&net.graph, &x, 1).unwrap();
            let scale = f64::from(fixed.result().fraction_bits).exp2();
            let square = |(&found, &wanted): (&i32, &f32)| {
                (f64::from(found) / scale / f64::from(wanted) - 1.0).powi(2)
            };
            let squares: f64 = found.iter().zip(&wanted).map(square).sum();
            let error = (squares / VALUES as f64).sqrt();
            assert!(error < 0.015, "{low}..{high}, {costly}: {error}");
        }
    }
}

/// An inverse root spans the arguments of the samples, in two tables where they differ much. Its
/// error counts over its value.
#[test]
fn inverse_roots_are_close() {
    for (costly, scale) in [(false, 1.0), (true, 1.0), (true, 0.25), (false, 0.866)] {
        let epsilon = 1e-6;
        let function = Function::InverseRoot { epsilon, scale };
        for (low, high, tables, allowed) in [
            (0.5, 2.0, 1, 0.004),
            (3e-4, 0.004, 1, 0.01),
            (90.0, 1000.0, 1, 0.01),
            (0.01, 1.0, 2, 0.01),
            (1e-3, 1.0, 2, 0.02),
            (2e-4, 2.0, 2, 0.05),
        ] {
            let (fixed, x, net) = network(function, low, high, 10, costly);
            let is_table = |op: &FixedOp| matches!(op, FixedOp::Activation(ActivationOp::Table(_)));
            let found = fixed.nodes.iter().filter(|node| is_table(&node.op)).count();
            assert_eq!(found, tables, "{low}..{high}, {scale}");
            let (integers, _) = oracle::quantise_input(fixed.input(), &x).unwrap();
            let roots = oracle::evaluate(&fixed, &integers, 1).unwrap();
            let wanted = float::evaluate(&net.graph, &x, 1).unwrap();
            let scale = f64::from(fixed.result().fraction_bits).exp2();
            let square = |(&found, &wanted): (&i32, &f32)| {
                // The layer before rounds the argument itself.
                (f64::from(found) / scale / f64::from(wanted) - 1.0).powi(2)
            };
            let squares: f64 = roots.iter().zip(&wanted).map(square).sum();
            let error = (squares / VALUES as f64).sqrt();
            assert!(error < allowed, "{low}..{high}, {costly}, {scale}: {error}");
        }
    }
}

/// Beyond the samples it goes on a little, and then stays.
#[test]
fn inverse_roots_go_on_beyond_the_samples() {
    let function = Function::InverseRoot {
        epsilon: 1e-6,
        scale: 1.0,
    };
    for costly in [false, true] {
        let (fixed, ..) = network(function, 0.25, 1.0, 10, costly);
        let mut beyond = vec![0.2; VALUES];
        beyond[1] = 0.0;
        beyond[2] = 1e3;
        let (integers, _) = oracle::quantise_input(fixed.input(), &beyond).unwrap();
        let found = oracle::evaluate(&fixed, &integers, 1).unwrap();
        let scale = f64::from(fixed.result().fraction_bits).exp2();
        let at = |place: usize| f64::from(found[place]) / scale;
        assert!(found.iter().all(|&root| root > 0), "{costly}");
        assert!(at(0) <= at(1) && at(1) <= 4.1 && at(2) <= 1.1, "{costly}");
    }
}

/// Circuits pay for entries, so the tables of `two-party` are small.
#[test]
fn tables_are_small() {
    for (function, entries) in [
        (Function::HardSwish, 16),
        (Function::Swish { beta: 1.0 }, 8),
        (Function::Gelu, 2),
        (ELU, 4),
        (Function::Sigmoid, 32),
    ] {
        let (fixed, ..) = network(function, -8.0, 8.0, 8, true);
        assert_eq!(table(&fixed).entries.len(), entries, "{function:?}");
        // The value stays in the range that its readers take: no second change of precision.
        let value = fixed.result();
        let most = if value.low < 0 { 128 } else { 256 };
        assert!(
            value.low >= -128 && value.high < most,
            "{function:?} {value:?}"
        );
    }
}

/// At 12 fraction bits linear pieces miss by less than a unit, and take fewer bytes than the
/// largest table of constants, which misses by 3 to 4.
#[test]
fn pieces_are_precise_and_cheap() {
    for (function, bits, constants) in [
        (Function::HardSwish, 16, 3682),
        (Function::Swish { beta: 1.0 }, 16, 3969),
        (Function::Gelu, 16, 2846),
        (Function::Sigmoid, 12, 3665),
    ] {
        let (fixed, x, net) = network(function, -7.5, 7.5, bits, true);
        let (table, [_, rms]) = (table(&fixed), errors(&fixed, &net, &x));
        let bytes = table.circuit_bytes(28);
        assert_eq!(fixed.result().fraction_bits, 12, "{function:?}");
        assert!(table.fine > 0 && bytes < constants, "{function:?}: {bytes}");
        assert!(rms < 0.7, "{function:?}: {rms}");
    }
}

/// Rows keep scales of their own in front of a function, and the value is rounded once.
#[test]
fn rows_keep_their_scales() {
    let mut net = Net::new(&[2, 4, 4], 5);
    let conv = net.conv(0, 6, pronghorn_graph::geometry::Window::plain([3, 3]), 1);
    let Op::Conv { weight, .. } = net.graph.nodes[conv].op.clone() else {
        unreachable!()
    };
    let weights = net.graph.tensors.get_mut(&weight).unwrap();
    weights
        .data_mut()
        .chunks_mut(18)
        .enumerate()
        .for_each(|(row, weights)| {
            weights
                .iter_mut()
                .for_each(|w| *w *= (-(row as f32)).exp2());
        });
    let silu = net.same(
        Op::Function {
            function: Function::Swish { beta: 1.0 },
        },
        conv,
    );
    let flat = net.flatten(silu);
    net.dense(flat, 3);
    let x = net.random.reals(32 * 8, -1.0, 1.0);
    let profile = float::profile(&net.graph, &x, 8).unwrap();
    let options = QuantiseOptions {
        costly_requantisation: true,
        ..QuantiseOptions::default()
    };
    let fixed = quantise(&net.graph, &profile, &FixedPrecision(8, 8), &options).unwrap();
    let ops: Vec<_> = fixed
        .nodes
        .iter()
        .filter_map(|node| match &node.op {
            FixedOp::Activation(op) => Some(op),
            _ => None,
        })
        .collect();
    assert!(
        matches!(
            ops[..],
            [
                ActivationOp::RequantiseChannels { .. },
                ActivationOp::Table(_)
            ]
        ),
        "{fixed}"
    );
    let (integers, _) = oracle::quantise_input(fixed.input(), &x).unwrap();
    let found = oracle::evaluate(&fixed, &integers, 8).unwrap();
    let wanted = float::evaluate(&net.graph, &x, 8).unwrap();
    let scale = f64::from(fixed.result().fraction_bits).exp2();
    for (found, wanted) in found.iter().zip(&wanted) {
        let found = f64::from(*found) / scale;
        assert!(
            (found - f64::from(*wanted)).abs() < 0.05,
            "{found} {wanted}"
        );
    }
}
