//! Plans of fixed-point networks: precision layer by layer, then steps.

use std::sync::Arc;

use pronghorn_graph::{
    fixed::FixedGraph,
    graph::Op,
    oracle,
    quantise::{self, QuantiseOptions},
};

use super::{
    BuildError, BuildOptions, Built, Method, Source, Weights, judge, precision::ModulusBudget,
    relative_error,
};

/// The tolerance of a layer is divided by this until the measured error is small enough, so many
/// times at most.
const TIGHTENING: f64 = std::f64::consts::SQRT_2;
const TIGHTENINGS: u32 = 12;

/// After so many times without a smaller error it is not tried again.
const PATIENCE: u32 = 2;

/// The plan of a network on fixed-point numbers.
///
/// The tolerance of a layer is the aim over the square root of the number of layers (errors of
/// layers add up like noise), lowered until the measured error of the result is small enough or
/// stops falling.
pub(super) fn build(
    source: &Source<'_>,
    method: &Method,
    options: &BuildOptions,
) -> Result<Built, BuildError> {
    let (fixed, result_error) = precise_enough(source, method, options)?;
    judge(&fixed.finish, options, result_error)?;
    let (plan, weights) = (method.lower)(&fixed, options)?;
    Ok(Built {
        plan,
        weights: weights.into_iter().map(Weights::from).collect(),
        computation: Arc::new(fixed),
        result_error,
    })
}

/// The fixed-point network whose error on the samples is small enough, or smallest.
fn precise_enough(
    source: &Source<'_>,
    method: &Method,
    options: &BuildOptions,
) -> Result<(FixedGraph, f64), BuildError> {
    let quantise_options = QuantiseOptions {
        margin: source.margin,
        costly_requantisation: method.circuits,
        ..QuantiseOptions::default()
    };
    let is_layer = |op: &Op| matches!(op, Op::Conv { .. } | Op::Dense { .. });
    let layers = source.graph.nodes.iter().filter(|node| is_layer(&node.op));
    let aim = options.error.unwrap_or(method.aim);
    let mut tolerance = method.looseness * aim / (layers.count().max(1) as f64).sqrt();
    let mut best: Option<(FixedGraph, f64)> = None;
    let mut stalled = 0;
    for _ in 0..TIGHTENINGS {
        let budget = ModulusBudget {
            tolerance,
            weight_bits: options.weight_bits,
            input_bits: options.input_bits,
            circuits: method.circuits,
        };
        let images = (source.tested, source.means);
        let (fixed, results) = quantise::quantise_corrected(
            source.graph,
            source.profile,
            &budget,
            &quantise_options,
            images,
        )?;
        let error = result_error(&fixed, results, source)?;
        let better = best.as_ref().is_none_or(|(_, least)| error < *least);
        if better {
            best = Some((fixed, error));
        }
        stalled = if better { 0 } else { stalled + 1 };
        if stalled == PATIENCE || error <= aim {
            break;
        }
        tolerance /= TIGHTENING;
    }
    Ok(best.expect("the loop runs at least once"))
}

/// Relative rms difference between the fixed-point and the float result, before softmax and the
/// like, on the tested images. `results`: the integers, where they are known.
fn result_error(
    fixed: &FixedGraph,
    results: Option<Vec<i32>>,
    source: &Source<'_>,
) -> Result<f64, BuildError> {
    let input = fixed.input();
    let images = source.tested.len() / input.len();
    let results = match results {
        Some(results) => results,
        None => {
            let (integers, _) = oracle::quantise_input(input, source.tested)?;
            oracle::evaluate(fixed, &integers, images)?
        }
    };
    let found = oracle::finish(&fixed.finish, fixed.result(), &results, images);
    Ok(relative_error(&found, source.wanted))
}
