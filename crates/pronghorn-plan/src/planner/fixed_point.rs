//! Plans of fixed-point networks: precision layer by layer, then steps.

use std::sync::Arc;

use pronghorn_graph::{
    fixed::FixedGraph,
    graph::Op,
    oracle,
    quantise::{self, QuantiseOptions},
};

use super::{
    BuildError, BuildOptions, Built, Fidelity, Weights,
    method::{Method, Planned, Source},
    precision::ModulusBudget,
};

/// Networks that are tried, at most.
const ATTEMPTS: usize = 10;

/// From one to the next the tolerance of layers falls at least by the first factor and at most by
/// the second.
const TIGHTENING: [f64; 2] = [std::f64::consts::SQRT_2, 4.0];

/// After so many times without a smaller error it is not tried again.
const PATIENCE: usize = 2;

/// Bits that answers take at most where they are shares, from one attempt to plan to the next:
/// with guard bits and errors, words of 32 bits have room for the first nearly always.
const MOST_BITS: [u32; 4] = [28, 26, 23, 20];

/// Bits of other values, where nothing bounds them but their words.
const WORD_BITS: u32 = 32;

/// A fixed-point network and its expected error.
type Attempt = (FixedGraph, Fidelity);

/// The plan of a network on fixed-point numbers: with the aim reached at the least cost, where it
/// can be, and else the most precise one.
///
/// The tolerance of a layer is the aim over the square root of the number of layers (errors of
/// layers add up like noise), lowered until the measured error of the result is small enough or
/// stops falling.
pub(super) fn build(
    source: &Source<'_>,
    method: &Method,
    options: &BuildOptions,
) -> Result<Built, BuildError> {
    let caps = match method.narrow {
        true => MOST_BITS.as_slice(),
        false => &[WORD_BITS],
    };
    let mut refused = None;
    for &most_bits in caps {
        for (fixed, fidelity) in attempts(source, method, options, most_bits)? {
            match (method.lower)(&fixed, options) {
                Ok(planned) => return built(planned, fixed, fidelity),
                // Shares too wide, for which others may have room.
                Err(error @ (BuildError::Bits { .. } | BuildError::Modulus { .. })) => {
                    refused.get_or_insert(error);
                }
                Err(error) => return Err(error),
            }
        }
    }
    Err(refused.expect("there is a cap, and an attempt for it"))
}

fn built(
    (plan, weights): Planned,
    fixed: FixedGraph,
    fidelity: Fidelity,
) -> Result<Built, BuildError> {
    fidelity.judge()?;
    Ok(Built {
        plan,
        weights: weights.into_iter().map(Weights::from).collect(),
        computation: Arc::new(fixed),
        fidelity,
    })
}

/// Fixed-point networks in the order of preference: the coarsest that reaches the aim first, and
/// then those with smaller errors before others.
fn attempts(
    source: &Source<'_>,
    method: &Method,
    options: &BuildOptions,
    most_bits: u32,
) -> Result<Vec<Attempt>, BuildError> {
    let quantise_options = QuantiseOptions {
        margin: source.margin,
        costly_requantisation: method.circuits,
        most_bits,
        ..QuantiseOptions::default()
    };
    let is_layer = |op: &Op| matches!(op, Op::Conv { .. } | Op::Dense { .. });
    let layers = source.graph.nodes.iter().filter(|node| is_layer(&node.op));
    let aim = options.error.unwrap_or(method.aim);
    let mut tolerance = method.looseness * aim / (layers.count().max(1) as f64).sqrt();
    let mut attempts: Vec<Attempt> = Vec::new();
    let (mut least, mut stalled) = (f64::INFINITY, 0);
    while attempts.len() < ATTEMPTS && stalled < PATIENCE {
        let budget = ModulusBudget {
            tolerance,
            weight_bits: options.weight_bits,
            input_bits: options.input_bits,
            narrow: method.narrow,
            most_bits,
        };
        let fixed = quantise::quantise_corrected(
            source.graph,
            source.profile,
            &budget,
            &quantise_options,
            source.corrected,
        );
        let fixed = match fixed {
            // Finer values may not fit where coarser ones did.
            Err(_) if !attempts.is_empty() => break,
            fixed => fixed?,
        };
        let fidelity = fidelity(&fixed, source, aim)?;
        let (error, is_reached) = (fidelity.error, fidelity.is_reached());
        attempts.push((fixed, fidelity));
        if is_reached {
            break;
        }
        stalled = if error < least { 0 } else { stalled + 1 };
        least = least.min(error);
        let [slow, fast] = TIGHTENING;
        tolerance /= (error / aim).clamp(slow, fast);
    }
    attempts.sort_by(|(_, a), (_, b)| a.error.total_cmp(&b.error));
    Ok(attempts)
}

/// The expected error of a network.
fn fidelity(fixed: &FixedGraph, source: &Source<'_>, aim: f64) -> Result<Fidelity, BuildError> {
    let input = fixed.input();
    let images = source.tested.len() / input.len();
    let (integers, _) = oracle::quantise_input(input, source.tested)?;
    let results = oracle::evaluate(fixed, &integers, images)?;
    Ok(source.target.fidelity(fixed.result(), &results, aim))
}
