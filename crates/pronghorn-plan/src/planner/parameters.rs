//! Parameters of linear layers from their actual integer weights.

use pronghorn_graph::fixed::{Digit, FixedNode, Linear, ValueSpec};
use rayon::prelude::*;

use super::{BuildError, Engine, draft::Layer, precision::Demand};
use crate::{
    rlwe::{ShareBits, WordSize},
    steps::{
        StepKind,
        linear::{
            clear::{ClearLinear, MAX_LOW_BITS, MAX_PARTS, Part, positions},
            clear_coefficient::ClearCoefficient,
            coefficient::{self, CoefficientLinear},
            shared::{self, SharedLinear},
        },
    },
};

/// A layer on shares in the engine that was asked for, or in the coefficient engine where it fits.
pub(super) fn on_shares(
    layer: &Layer<'_>,
    input: &ValueSpec,
    value: &ValueSpec,
    shares: ShareBits,
    engine: Option<Engine>,
) -> Result<StepKind, BuildError> {
    let (node, linear) = (layer.node, layer.linear);
    let demand = demand(linear, input, &Part::whole(value));
    let sizes = (input.len(), node.value.len());
    let geometry = || linear.geometry.clone();
    if engine != Some(Engine::Batch) {
        let secrets = coefficient::secrets(node.value.len());
        let carrier = demand.share_carrier((shares, true), secrets, sizes);
        let step = carrier.map(|rlwe| CoefficientLinear {
            geometry: geometry(),
            rlwe,
            shares,
        });
        let has_modulus = step.is_some();
        if let Some(step) = step.filter(|step| step.layout().is_some()) {
            return Ok(StepKind::CoefficientLinear(step));
        }
        if engine.is_some() {
            let layer = node.name.clone();
            let reason = "the inputs of one output do not fit a polynomial, or its values no \
                          modulus: use --engine batch"
                .into();
            return Err(match has_modulus {
                true => BuildError::Layer { layer, reason },
                false => BuildError::Bits { layer, reason },
            });
        }
    }
    let rlwe = demand
        .share_carrier((shares, true), shared::secrets(node.value.len()), sizes)
        .ok_or_else(|| BuildError::Modulus {
            layer: node.name.clone(),
            width: f64::from(shares.value_bits + shares.guard_bits).exp2(),
            noise: demand.noise(),
        })?;
    Ok(StepKind::SharedLinear(SharedLinear {
        geometry: geometry(),
        rlwe,
        shares,
    }))
}

/// A layer whose answer the client decrypts, in the batch engine.
pub(super) fn clear(
    node: &FixedNode,
    linear: &Linear,
    input: &ValueSpec,
) -> Result<StepKind, BuildError> {
    clear_batch(node, linear, input).map(StepKind::ClearLinear)
}

/// The same in the coefficient engine, or in the batch engine where it does not fit.
pub(super) fn clear_coefficient(
    node: &FixedNode,
    linear: &Linear,
    input: &ValueSpec,
) -> Result<StepKind, BuildError> {
    let value = &node.value;
    let demand = demand(linear, input, &Part::whole(value));
    let (shares, secrets) = (
        ClearCoefficient::shares(value),
        coefficient::secrets(value.len()),
    );
    let sizes = (input.len(), value.len());
    let carrier = demand.share_carrier((shares, false), secrets, sizes);
    let step = carrier.map(|rlwe| ClearCoefficient::new(linear.geometry.clone(), rlwe, value));
    match step.filter(|step| step.layer.layout().is_some()) {
        Some(step) => Ok(StepKind::ClearCoefficient(step)),
        None => clear(node, linear, input),
    }
}

/// A layer whose answer the client decrypts: in one part if 32-bit words carry it, else in the
/// fewest digits that they carry, else in one part in 64-bit words.
fn clear_batch(
    node: &FixedNode,
    linear: &Linear,
    input: &ValueSpec,
) -> Result<ClearLinear, BuildError> {
    let step = |digits: &[Digit]| in_parts(node, linear, input, digits);
    let is_narrow = |step: &ClearLinear| step.rlwe.word == WordSize::U32;
    let whole = step(&[Digit::Whole]);
    if whole.as_ref().is_ok_and(is_narrow) {
        return whole;
    }
    let narrow = |count: usize| {
        let digits = |bits: u32| Digit::cut(count, bits).collect::<Vec<_>>();
        (1..MAX_LOW_BITS)
            .filter_map(|bits| step(&digits(bits)).ok())
            .filter(is_narrow)
            .min_by_key(|step| step.rlwe.modulus_bits())
    };
    (2..=MAX_PARTS).find_map(narrow).map_or(whole, Ok)
}

/// Parameters when the answer has these parts.
fn in_parts(
    node: &FixedNode,
    linear: &Linear,
    input: &ValueSpec,
    digits: &[Digit],
) -> Result<ClearLinear, BuildError> {
    let (mut parts, mut demands) = (Vec::new(), Vec::new());
    for &digit in digits {
        let layer = linear.digit(digit);
        let error = |reason: String| BuildError::Bits {
            layer: node.name.clone(),
            reason,
        };
        let bounds = layer
            .bounds(input, &node.value.shape)
            .map_err(|source| error(source.to_string()))?;
        let range = match digit {
            Digit::Whole => Some((node.value.low, node.value.high)),
            _ => bounds.fit(),
        };
        let (low, high) = range.ok_or_else(|| error("a part exceeds 32 bits".into()))?;
        let part = Part {
            left_shift: digit.left_shift(),
            low,
            high,
        };
        demands.push(demand(&layer, input, &part));
        parts.push(part);
    }
    let demand = Demand::all(&demands);
    let sizes = (input.len(), digits.len() * node.value.len());
    let (rlwe, scale_log) = demand
        .carrier(sizes, positions(&linear.geometry))
        .ok_or_else(|| BuildError::Modulus {
            layer: node.name.clone(),
            width: demand.width,
            noise: demand.noise(),
        })?;
    Ok(ClearLinear {
        geometry: linear.geometry.clone(),
        rlwe,
        scale_log,
        parts,
    })
}

/// What one part asks of the modulus.
fn demand(layer: &Linear, input: &ValueSpec, part: &Part) -> Demand {
    let rows = layer.weights.par_chunks(layer.geometry.row_len());
    // Sums of integers do not depend on their order, so all machines find the same ones.
    let norms = rows.map(|row| {
        let sum = |f: fn(i64) -> i64| row.iter().map(|&w| f(i64::from(w))).sum::<i64>() as f64;
        (sum(i64::abs), sum(|w| w * w).sqrt())
    });
    let most = |one: (f64, f64), other: (f64, f64)| (one.0.max(other.0), one.1.max(other.1));
    let (norm1, norm2) = norms.reduce(|| (0.0, 0.0), most);
    let reach = (i64::from(part.high) - part.centre()).max(part.centre() - i64::from(part.low));
    let input = f64::from(input.low.unsigned_abs().max(input.high.unsigned_abs()));
    Demand {
        width: 2.0 * reach as f64,
        input,
        norm1,
        norm2,
    }
}
