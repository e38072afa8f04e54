//! The activation protocol of `client-aided` (nGraph-HE2, section 4.4): the value is revealed to
//! the client, who computes in the clear.
//!
//! The linear engine already leaves the whole value with the client (the server's share is zero),
//! so no message is sent. What the client learns: every pre-activation value, and with it the
//! weights.

use std::sync::atomic::{AtomicU64, Ordering};

use pronghorn_graph::{
    fixed::{ActivationOp, ValueSpec},
    shape::channels,
};
use pronghorn_plan::{
    Weights,
    bands::{Band, order::windows},
    step::Compiled,
    steps::activation::reveal::Reveal,
};
use pronghorn_ring::SimdLevel;
use rayon::prelude::*;

use crate::{
    connection::Shelf,
    error::EngineError,
    local,
    machine::{Carry, Made, Prepared},
    pool::Pool,
    protocol::{At, Compile, Next, Side, ZeroSide, first},
    share::{Batch, Share},
    simd,
};

/// Words of a channel that a thread takes through a chain of operators.
const AT_ONCE: usize = 1 << 12;

impl Compile for Reveal {
    fn client(&self, step: &Compiled<'_>) -> Result<Box<dyn Side>, EngineError> {
        Ok(Box::new(ClientSide {
            step: step.place.name(),
            ops: self.ops.clone(),
            input: step.place.input().clone(),
        }))
    }

    fn server(
        &self,
        _step: &Compiled<'_>,
        _weights: &Weights,
        _shelf: &Shelf,
    ) -> Result<Box<dyn Side>, EngineError> {
        Ok(Box::new(ZeroSide))
    }
}

struct ClientSide {
    step: String,
    ops: Vec<ActivationOp>,
    input: ValueSpec,
}

impl Side for ClientSide {
    fn online(
        &self,
        at: &At<'_>,
        inputs: Vec<Share>,
        _prepared: Option<Prepared>,
    ) -> Result<Next, EngineError> {
        let value = first(inputs).into_words(&self.step)?;
        let value = apply(&self.ops, &self.input.shape, value, at.saturated, None);
        Ok(Next::Made(Made::share(Share::Words(value))))
    }

    fn band(
        &self,
        at: &At<'_>,
        band: &Band,
        inputs: Vec<Share>,
        _carry: Option<Carry>,
    ) -> Result<Next, EngineError> {
        let (Some(windows), [channels, _, width]) = (windows(at.plan, band), &self.input.shape[..])
        else {
            return self.online(at, inputs, None);
        };
        let mut windows = windows.into_iter();
        let of_band = |op: &ActivationOp| match op {
            ActivationOp::MaxPool { window } => ActivationOp::MaxPool {
                window: windows.next().unwrap_or_else(|| window.clone()),
            },
            other => other.clone(),
        };
        let ops: Vec<_> = self.ops.iter().map(of_band).collect();
        let value = first(inputs).into_words(&self.step)?;
        let shape = [*channels, band.window.len(), *width];
        let pool: Pool<i32> = at.shelf.at(0);
        let value = apply(&ops, &shape, value, at.saturated, Some(&pool));
        Ok(Next::Made(Made::share(Share::Words(value))))
    }
}

/// Applies `ops` in order to a value of that shape. Counts words brought to a bound that the
/// samples set.
fn apply(
    ops: &[ActivationOp],
    shape: &[usize],
    mut value: Batch,
    saturated: &AtomicU64,
    pool: Option<&Pool<i32>>,
) -> Batch {
    let mut shape = shape.to_vec();
    for chain in ops.chunk_by(|a, b| is_elementwise(a) && is_elementwise(b)) {
        if let [ActivationOp::MaxPool { window }] = chain {
            let pool = pool.cloned().unwrap_or_default();
            (value, shape) = local::max_pool(window, &shape, &value, &pool);
            continue;
        }
        let images = value.images();
        let alike = match chain.iter().any(is_by_channel) {
            true => channels(&shape).1 * images,
            false => value.words().len(),
        };
        let of_channel = |(channel, words): (usize, &mut [i32])| -> u64 {
            let pieces = words.par_chunks_mut(AT_ONCE);
            let counts = pieces.map(|piece| -> u64 {
                let counts = chain.iter().map(|op| elementwise(op, channel, piece));
                counts.map(u64::from).sum()
            });
            counts.sum()
        };
        let all = value.words_mut().par_chunks_mut(alike.max(1)).enumerate();
        saturated.fetch_add(all.map(of_channel).sum(), Ordering::Relaxed);
    }
    value
}

/// Whether an operator has numbers of its own for each channel.
fn is_by_channel(op: &ActivationOp) -> bool {
    matches!(op, ActivationOp::RequantiseChannels { .. })
}

fn is_elementwise(op: &ActivationOp) -> bool {
    !matches!(op, ActivationOp::MaxPool { .. })
}

/// One operator on words of a channel, still in cache from the one before; how many words a sampled
/// bound changed.
fn elementwise(op: &ActivationOp, channel: usize, row: &mut [i32]) -> u32 {
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
        ActivationOp::RequantiseChannels {
            ref shifts,
            low,
            high,
        } => {
            return simd::requantise(SimdLevel::detect(), row, shifts[channel], low, high);
        }
        ActivationOp::Table(ref table) => table.apply(row),
        ActivationOp::MaxPool { .. } => unreachable!("pools end a chain"),
        ActivationOp::Dither { .. } => unreachable!("the plan was checked"),
    }
    0
}
