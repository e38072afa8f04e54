//! From a floating-point graph to an encrypted plan and the server's program.

use std::sync::Arc;

use pronghorn_graph::{
    fixed::ValueSpec,
    names::printable,
    oracle,
    polynomial::{self, PolyGraph, PolyNode},
};

use super::{
    BuildError, BuildOptions, Built, Encrypted, Weights,
    built::evaluate,
    fidelity::Fidelity,
    method::{Method, Source},
    schedule::{self, HEADROOM, Schedule},
};
use crate::{
    checked::CheckedPlan,
    names::Names,
    plan::{BAND_BYTES, FORMAT, Plan, Step},
    rlwe::WordSize,
    steps::{
        StepKind,
        encrypted::{EncryptedPlan, KEY_BATCHES},
    },
    trust::TrustLevel,
};

/// How much of the error that is small enough may come from rounding weights, and how much from
/// noise and flood.
const WEIGHT_SHARE: f64 = 0.6;
const NOISE_SHARE: f64 = 0.4;

/// Integers of the input have this many bits.
const INPUT_BITS: i32 = 20;

/// Integers of the result have this many bits, sign included.
const RESULT_BITS: i32 = 30;

/// The plan, the server's half, and the relative error of the result without noise.
pub(super) fn build(
    source: &Source<'_>,
    method: &Method,
    options: &BuildOptions,
) -> Result<Built, BuildError> {
    let aim = options.error.unwrap_or(method.aim);
    let samples: Vec<f64> = source.tested.iter().map(|&x| x.into()).collect();
    let (graph, fidelity) = precise_enough(source, aim, options)?;
    let most_error = NOISE_SHARE * aim * source.target.rms();
    let (passes, flood_bits) = (options.passes, options.flood_bits);
    let schedule = schedule::schedule(&graph, &samples, most_error, passes, flood_bits);
    let schedule = schedule.ok_or_else(|| BuildError::TooDeep {
        products: schedule::products(&graph),
        flood_bits: options.flood_bits,
    })?;
    if schedule.program.nodes.len() < 2 {
        return Err(BuildError::Layer {
            layer: "the network".into(),
            reason:
                "there is nothing to compute on ciphertexts: the client can do without a server"
                    .into(),
        });
    }
    let encrypted = step(&graph, &schedule);
    let needed = encrypted.server_memory;
    if needed > options.memory {
        return Err(BuildError::Memory {
            step: "the encrypted network".into(),
            needed,
            allowed: options.memory,
        });
    }
    let names = Names {
        model: printable(&graph.name),
        steps: [&graph.nodes[0], graph.result()]
            .map(|node| printable(&node.name))
            .into(),
    };
    // Rounded up where the owner's memory allows: it tells how many ciphertexts there are at once.
    let rounded = needed.checked_next_power_of_two().unwrap_or(needed);
    let encrypted = EncryptedPlan {
        server_memory: rounded.min(options.memory),
        ..encrypted
    };
    let plan = plan(&graph, encrypted, options);
    let plan = CheckedPlan::new(plan).map_err(|error| BuildError::refused(error, &names))?;
    fidelity.judge(&plan.finish)?;
    let network = Encrypted {
        graph,
        program: schedule.program,
    };
    Ok(Built {
        plan,
        names,
        weights: vec![Weights::None, Weights::Network(network.clone())],
        computation: Arc::new(network),
        fidelity,
    })
}

/// The network with few bits of weights that keep the result's error small, or with the bits asked
/// for. First the same bits everywhere; then fewer, layer by layer, in their order: what comes
/// before a product counts twice in the scale.
fn precise_enough(
    source: &Source<'_>,
    aim: f64,
    options: &BuildOptions,
) -> Result<(PolyGraph, Fidelity), BuildError> {
    let fits = |fidelity: &Fidelity| fidelity.error <= WEIGHT_SHARE * aim;
    let with_bits = |bits: &[u32]| with_bits(source, bits, aim);
    let layers = source.graph.nodes.len();
    if let Some(bits) = options.weight_bits {
        return with_bits(&vec![bits; layers]);
    }
    let mut bits = vec![*WEIGHT_BITS.end(); layers];
    let mut best = with_bits(&bits)?;
    for fewer in WEIGHT_BITS {
        let found = with_bits(&vec![fewer; layers])?;
        if fits(&found.1) {
            (bits, best) = (vec![fewer; layers], found);
            break;
        }
    }
    for layer in 0..layers {
        while source.graph.nodes[layer].op.is_linear() && bits[layer] > *WEIGHT_BITS.start() {
            bits[layer] -= 1;
            let found = with_bits(&bits)?;
            if !fits(&found.1) {
                bits[layer] += 1;
                break;
            }
            best = found;
        }
    }
    Ok(best)
}

/// Bits of weights that are tried.
const WEIGHT_BITS: std::ops::RangeInclusive<u32> = 3..=15;

/// The network with so many bits for the weights of each node, and its expected error.
fn with_bits(
    source: &Source<'_>,
    bits: &[u32],
    aim: f64,
) -> Result<(PolyGraph, Fidelity), BuildError> {
    let graph = polynomial::lower(source.graph, source.profile, bits, source.margin)?;
    let (input, result) = specs(&graph);
    let (integers, _) = oracle::quantise_input(&input, source.tested)?;
    let found = evaluate(&graph, &input, &result, &integers);
    let fidelity = source
        .target
        .fidelity((&result, &found), &graph.finish, aim);
    Ok((graph, fidelity))
}

/// Shape, scale and range of the input and of the result.
pub fn specs(graph: &PolyGraph) -> (ValueSpec, ValueSpec) {
    let spec = |node: &PolyNode, bits: i32, reach: f64| {
        let reach = reach.max(f64::MIN_POSITIVE);
        let fraction_bits = (bits - 1 - reach.log2().ceil() as i32).clamp(-60, 60);
        let most = (reach * f64::from(fraction_bits).exp2()).ceil() as i32;
        ValueSpec {
            shape: node.shape.clone(),
            fraction_bits,
            low: -most,
            high: most,
        }
    };
    let (input, result) = (&graph.nodes[0], graph.result());
    // Between half and all of what the modulus leaves room for: a power of two tells less.
    let most = power_of_two_below(HEADROOM * result.reach);
    (
        spec(input, INPUT_BITS, input.reach),
        spec(result, RESULT_BITS, most),
    )
}

/// The step, with its memory.
fn step(graph: &PolyGraph, schedule: &Schedule) -> EncryptedPlan {
    let output = &schedule.program.nodes[schedule.program.output];
    let encrypted = EncryptedPlan {
        word: WordSize::U32,
        degree: schedule.degree,
        primes: schedule.primes.clone(),
        special_primes: schedule.special.clone(),
        key_power: schedule.key_power,
        scale_log: schedule.scale_log,
        flood_limbs: output.limbs,
        flood_log: schedule.flood_log,
        flood_bits: schedule.flood_bits,
        key_batches: KEY_BATCHES,
        answer_polys: output.polys,
        answer_limbs: schedule.answer_limbs,
        answer_scale: schedule.answer_scale,
        // Rounded: to all their digits these would tell one set of weights from another.
        error: power_of_two_above(schedule.error),
        server_seconds: power_of_two_above(schedule.seconds),
        server_memory: 0,
    };
    let request = (specs(graph).0.len() * encrypted.request_row_bytes()) as u64;
    let memory = schedule.program.memory(schedule.degree, request) + encrypted.key_memory();
    EncryptedPlan {
        server_memory: memory,
        ..encrypted
    }
}

fn plan(graph: &PolyGraph, encrypted: EncryptedPlan, options: &BuildOptions) -> Plan {
    let (input, result) = specs(graph);
    let max_batch = encrypted.slots();
    let step = |kind, inputs, value| Step {
        kind,
        inputs,
        value,
    };
    Plan {
        format: FORMAT,
        model: options.model_name(),
        trust: TrustLevel::Encrypted,
        steps: vec![
            step(StepKind::Input, vec![], input),
            step(StepKind::Encrypted(encrypted), vec![0], result),
        ],
        output: 1,
        finish: graph.finish.clone(),
        max_batch,
        band_bytes: BAND_BYTES,
        key_checks: 1,
        sampled: None,
        deviations: None,
        categories: vec![],
        class_names: vec![],
        columns: vec![],
        outputs: vec![],
    }
}

fn power_of_two_above(x: f64) -> f64 {
    if x > 0.0 { x.log2().ceil().exp2() } else { x }
}

fn power_of_two_below(x: f64) -> f64 {
    if x > 0.0 { x.log2().floor().exp2() } else { x }
}
