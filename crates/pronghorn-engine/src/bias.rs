//! Constants that the server adds to its own share ([`pronghorn_plan::steps::bias`]).
//!
//! Shares add up modulo 2^32, so that a constant that one party adds is added to the value. No
//! message, nothing is revealed.

use pronghorn_plan::{Weights, step::Compiled, steps::bias::Bias};
use pronghorn_ring::SimdLevel;
use rayon::prelude::*;
use zeroize::Zeroizing;

use crate::{
    connection::Shelf,
    error::EngineError,
    machine::{Made, Prepared},
    protocol::{At, Compile, Next, Side, first},
    share::{Batch, Share},
    simd,
};

impl Compile for Bias {
    fn client(&self, step: &Compiled<'_>) -> Result<Box<dyn Side>, EngineError> {
        Ok(Box::new(BiasSide::new(self, step, &[])))
    }

    fn server(
        &self,
        step: &Compiled<'_>,
        weights: &Weights,
        _shelf: &Shelf,
    ) -> Result<Box<dyn Side>, EngineError> {
        let elements = step.place.value().len();
        match weights {
            Weights::Layer(layer)
                if !layer.bias.is_empty() && elements.is_multiple_of(layer.bias.len()) =>
            {
                Ok(Box::new(BiasSide::new(self, step, &layer.bias)))
            }
            _ => Err(EngineError::Unsupported {
                step: step.place.name(),
                reason: "its constants are missing",
            }),
        }
    }
}

/// A party's side. The client has no constants.
struct BiasSide {
    left_shift: u32,
    elements: usize,
    /// With guard bits, each for as many elements as come before the next.
    constants: Zeroizing<Vec<i32>>,
}

impl BiasSide {
    fn new(bias: &Bias, step: &Compiled<'_>, constants: &[i32]) -> Self {
        let guard = step.place.form().guard;
        Self {
            left_shift: bias.left_shift,
            elements: step.place.value().len(),
            constants: Zeroizing::new(constants.iter().map(|&x| x.wrapping_shl(guard)).collect()),
        }
    }

    /// On the party's share. Zeros of the client stay zeros.
    fn on(&self, share: Share, batch: usize) -> Share {
        let words = match share {
            Share::Words(words) => Some(words),
            Share::Zero => None,
        };
        if words.is_none() && self.constants.is_empty() {
            return Share::Zero;
        }
        let mut sums = Batch::zeros(self.elements, batch);
        let alike = self.elements / self.constants.len().max(1);
        let rows = sums.words_mut().par_chunks_mut(batch).enumerate();
        rows.for_each(|(element, row)| {
            row.fill(self.constants.get(element / alike).copied().unwrap_or(0));
            if let Some(words) = &words {
                let words = words.row(element);
                simd::add_shifted(SimdLevel::detect(), row, words, self.left_shift);
            }
        });
        Share::Words(sums)
    }
}

impl Side for BiasSide {
    fn online(
        &self,
        at: &At<'_>,
        inputs: Vec<Share>,
        _prepared: Option<Prepared>,
    ) -> Result<Next, EngineError> {
        Ok(Next::Made(Made::share(self.on(first(inputs), at.batch))))
    }

    fn offline(&self, at: &At<'_>, inputs: Vec<Share>) -> Result<Next, EngineError> {
        self.online(at, inputs, None)
    }
}
