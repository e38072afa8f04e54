//! Linear steps on slots, both parties (Gazelle, section IV; the algebra is [`pronghorn_slot`]'s).
//!
//! Values are shares modulo the plan's prime, residues in `0..t`. Messages of one step, in order:
//! 1. client: its packed and encrypted share, a ciphertext in each message, image by image;
//! 2. server: the answers, re-randomised, masked uniformly modulo `t` in every slot, and flooded ([`pronghorn_he::bfv::Hider`]), likewise.
//!
//! The client's [keys] come before its first batch.
//!
//! What is revealed: to the server nothing but shapes (RLWE). To the client nothing: masks hide values, the flood what noise tells of the weights, with a
//! statistical distance of `2^-40` for each coefficient.

pub mod client;
pub mod keys;
pub mod server;

use std::sync::Arc;

use pronghorn_plan::{Plan, StepKind, slots};
use pronghorn_slot::{Packing, SlotError};
use zeroize::Zeroizing;

use crate::{error::EngineError, machine::Progress, share::Batch};

/// The sizes both parties' machines share.
#[derive(Clone)]
pub(crate) struct Shape {
    /// Name of the step, for messages.
    pub step: String,
    /// The step.
    pub packing: Arc<Packing>,
    /// Which of the plan's keys it takes.
    pub scheme: slots::SlotScheme,
    /// Bytes of a message up, and of one down.
    pub bytes: [usize; 2],
    /// Images.
    pub batch: usize,
}

impl Shape {
    /// The shape of step `index`; `None` when that step is none on slots.
    pub fn of(plan: &Plan, index: usize, batch: usize) -> Option<Result<Self, EngineError>> {
        let step = &plan.steps[index];
        let StepKind::Slots(slots) = &step.kind else {
            return None;
        };
        let shape = || {
            let packing = slots.packing()?;
            Ok(Self {
                step: step.name.clone(),
                scheme: slots.scheme,
                bytes: slots::message_bytes(&packing)?,
                packing: Arc::new(packing),
                batch,
            })
        };
        Some(shape().map_err(|source| refused(&step.name, source)))
    }

    /// Messages up, and down.
    fn messages(&self) -> [usize; 2] {
        [
            self.batch * self.packing.inputs(),
            self.batch * self.packing.outputs(),
        ]
    }

    /// The step's share of the progress.
    pub fn rows(&self) -> u64 {
        self.progress(0).total
    }

    fn progress(&self, done: usize) -> Progress {
        let [up, down] = self.messages();
        Progress {
            done: done as u64,
            total: (up + down) as u64,
        }
    }

    fn length(
        &self,
        message: &'static str,
        found: usize,
        expected: usize,
    ) -> Result<(), EngineError> {
        if found == expected {
            return Ok(());
        }
        let step = self.step.clone();
        Err(EngineError::Length {
            step,
            message,
            found,
            expected,
        })
    }

    /// Slot vectors of a party's share of an image.
    fn pack(&self, share: &Batch, image: usize) -> Result<Vec<Zeroizing<Vec<i32>>>, EngineError> {
        let elements = (0..share.elements()).map(|element| share.row(element)[image]);
        let values = Zeroizing::new(elements.collect::<Vec<i32>>());
        self.packing
            .pack(&values)
            .map_err(|source| refused(&self.step, source))
    }

    /// A party's share of an image's result, as residues, from its slots; `addend` has what is added to each channel.
    fn unpack<S: AsRef<[i32]>>(
        &self,
        slots: &[S],
        addend: Option<&[i32]>,
        image: usize,
        output: &mut Batch,
    ) -> Result<(), EngineError> {
        let values = self
            .packing
            .unpack(slots)
            .map_err(|source| refused(&self.step, source))?;
        let t = self.packing.parameters().t() as i64;
        let positions = values.len() / self.packing.geometry().out_channels;
        for (element, &value) in values.iter().enumerate() {
            let addend = addend.map_or(0, |addend| addend[element / positions]);
            let sum = (i64::from(value) + i64::from(addend)).rem_euclid(t);
            output.words_mut()[element * self.batch + image] = sum as i32;
        }
        Ok(())
    }
}

fn refused(step: &str, source: SlotError) -> EngineError {
    EngineError::Slots {
        step: step.to_owned(),
        source,
    }
}

const REQUEST: &str = "the encrypted input";
const ANSWER: &str = "the encrypted answer";
