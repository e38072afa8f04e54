//! Activations: chains of non-linear functions, computed in one go.

pub mod chain;
pub(crate) mod circuits;
pub mod garbled;
pub mod lean;
pub mod programs;
pub mod reveal;
pub mod square;

use pronghorn_graph::{
    fixed::{ActivationOp, Interval, ValueSpec, least_and_most},
    shape::{self, OperatorError},
};

/// Most functions of one activation step.
const MAX_CHAIN: usize = 16;

/// The range of a chain of functions, every value in between within 32 bits.
pub(crate) fn range(
    ops: &[ActivationOp],
    inputs: &[&ValueSpec],
    value: &ValueSpec,
) -> Result<Interval, OperatorError> {
    if ops.len() > MAX_CHAIN {
        return Err(OperatorError::Parameter {
            field: "the number of functions",
            found: ops.len().to_string(),
            expected: format!("at most {MAX_CHAIN}"),
        });
    }
    let mut spec = shape::one(inputs)?.clone();
    for op in ops {
        if let ActivationOp::MaxPool { window } = op {
            let shape = shape::pool(&spec.shape, window)?;
            spec = ValueSpec { shape, ..spec };
            continue;
        }
        let bounds = op.bounds(&spec, &spec.shape)?;
        let (low, high) = bounds.fit().ok_or_else(|| OperatorError::Parameter {
            field: "the range of an activation",
            found: format!("{}..={}", bounds.low, bounds.high),
            expected: "within 32 bits".into(),
        })?;
        spec = ValueSpec { low, high, ..spec };
    }
    let bounds = Interval::of(&spec);
    shape::same(spec.shape, &value.shape)?;
    Ok(bounds)
}

/// At most so many values go into the pools of a chain.
pub(crate) fn pooled(ops: &[ActivationOp], outputs: usize) -> usize {
    let of = |op: &ActivationOp| match op {
        ActivationOp::MaxPool { window } => window
            .kernel
            .iter()
            .fold(outputs, |values, &size| values.saturating_mul(size)),
        _ => 0,
    };
    ops.iter().map(of).fold(0, usize::saturating_add)
}

/// The functions by name, for people.
pub(crate) fn names(ops: &[ActivationOp]) -> String {
    if ops.is_empty() {
        return "exact shares".into();
    }
    let name = |op: &ActivationOp| match op {
        ActivationOp::Relu => "relu".into(),
        ActivationOp::Clip { low, high } => format!("clip {low}..{high}"),
        ActivationOp::LeakyRelu { slope, shift } => format!("leaky relu {slope}/2^{shift}"),
        ActivationOp::Square => "square".into(),
        ActivationOp::MaxPool { window } => {
            format!("max-pool {}x{}", window.kernel[0], window.kernel[1])
        }
        ActivationOp::Requantise { shift, low, high } => {
            format!("drop {shift} bits into {low}..{high}")
        }
        ActivationOp::RequantiseChannels { shifts, low, high } => {
            let (least, most) = least_and_most(shifts);
            format!("drop {least} to {most} bits by channel into {low}..{high}")
        }
        ActivationOp::Dither { shifts } => match least_and_most(shifts) {
            (least, most) if least == most => format!("drop {most} bits by a dither"),
            (least, most) => format!("drop {least} to {most} bits by channel and a dither"),
        },
        ActivationOp::Table(table) => {
            let base = if table.rectified { "relu and " } else { "" };
            let pieces = if table.fine > 0 { " pieces" } else { "" };
            format!("{base}table of {}{pieces}", table.entries.len())
        }
    };
    let names: Vec<String> = ops.iter().map(name).collect();
    names.join(", ")
}
