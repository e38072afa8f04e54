//! The activation protocol of `client-aided` (nGraph-HE2, section 4.4): the value is revealed to
//! the client, who computes in the clear.
//!
//! The linear engine already leaves the whole value with the client (the server's share is zero), so no message is
//! sent. What the client learns: every pre-activation value, and with it the weights.

use pronghorn_graph::fixed::{ActivationOp, ValueSpec};
use std::sync::atomic::{AtomicU64, Ordering};

use pronghorn_ring::SimdLevel;
use rayon::prelude::*;

use crate::{local, share::Batch, simd};

/// Applies `ops` in order to a value that `spec` describes; counts words brought to a bound that the samples set.
pub(crate) fn apply(
    ops: &[ActivationOp],
    spec: &ValueSpec,
    mut value: Batch,
    saturated: &AtomicU64,
) -> Batch {
    let mut shape = spec.shape.clone();
    for chain in ops.chunk_by(|a, b| is_elementwise(a) && is_elementwise(b)) {
        if let [ActivationOp::MaxPool { window }] = chain {
            (value, shape) = local::max_pool(window, &shape, &value);
            continue;
        }
        let images = value.images();
        value.words_mut().par_chunks_mut(images).for_each(|row| {
            let count: u64 = chain.iter().map(|op| u64::from(elementwise(op, row))).sum();
            saturated.fetch_add(count, Ordering::Relaxed);
        });
    }
    value
}

fn is_elementwise(op: &ActivationOp) -> bool {
    !matches!(op, ActivationOp::MaxPool { .. })
}

/// One operator on one row, still in cache from the one before; how many words a sampled bound changed.
fn elementwise(op: &ActivationOp, row: &mut [i32]) -> u32 {
    match *op {
        ActivationOp::Relu => simd::relu(SimdLevel::detect(), row),
        ActivationOp::Clip { low, high } => simd::clip(SimdLevel::detect(), row, low, high),
        ActivationOp::LeakyRelu { slope, shift } => {
            simd::leaky_relu(SimdLevel::detect(), row, slope, shift)
        }
        ActivationOp::Square => simd::square(SimdLevel::detect(), row),
        ActivationOp::Requantise { shift, low, high } => {
            return simd::requantise(SimdLevel::detect(), row, shift, low, high);
        }
        ActivationOp::MaxPool { .. } => unreachable!("pools end a chain"),
    }
    0
}
