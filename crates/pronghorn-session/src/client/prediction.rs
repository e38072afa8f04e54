//! What a prediction takes and gives: images, results, what they cost, and how far it is.

use std::{sync::Arc, time::Instant};

use pronghorn_engine::{Images, Progress};
use pronghorn_plan::CheckedPlan;

use crate::{error::SessionError, link::Traffic};

/// Images that were found fit for a plan. Secret: no Debug.
pub struct Inputs {
    pub(super) images: Arc<Images>,
    /// Seconds that it took to make them.
    pub(super) seconds: f64,
}

impl Inputs {
    /// Quantises `images` images, one after the other in `values`.
    ///
    /// # Errors
    /// The values are not `images` images of numbers.
    pub fn new(plan: &CheckedPlan, values: &[f32], images: usize) -> Result<Self, SessionError> {
        let (started, elements) = (Instant::now(), plan.input_len());
        if images.checked_mul(elements) != Some(values.len()) {
            return Err(SessionError::Inputs {
                found: values.len(),
                images,
                elements,
            });
        }
        Ok(Self {
            images: Arc::new(Images::new(plan, values, images)?),
            seconds: started.elapsed().as_secs_f64(),
        })
    }

    /// The images of all, one after the other; none where two are of different plans, or there are
    /// none. Shares their memory.
    pub fn joined(all: &[Self]) -> Option<Self> {
        let images: Vec<&Images> = all.iter().map(|inputs| &*inputs.images).collect();
        Some(Self {
            images: Arc::new(Images::joined(&images)?),
            seconds: all.iter().map(|inputs| inputs.seconds).sum(),
        })
    }

    /// The same for predictions after the first, whose seconds have counted the making.
    pub fn again(&self) -> Self {
        Self {
            images: self.images.clone(),
            seconds: 0.0,
        }
    }

    /// How many images there are.
    pub fn count(&self) -> usize {
        self.images.count()
    }
}

/// How far a run is, in images.
#[derive(Clone, Copy, Debug, Default, PartialEq, PartialOrd)]
pub struct ImagesDone {
    /// Images done. All images of a batch go through a layer together: those of the batch under way
    /// count in proportion to what is done of it.
    pub done: f64,
    /// Images in all.
    pub total: usize,
}

impl ImagesDone {
    /// `before` images are done, and of a batch of `batch` as much as its machine says.
    pub(crate) fn within(now: Progress, before: usize, batch: usize, total: usize) -> Self {
        let share = now.done as f64 / now.total.max(1) as f64;
        Self {
            done: before as f64 + share.min(1.0) * batch as f64,
            total,
        }
    }
}

/// Results and what they cost.
#[derive(Clone, Debug, PartialEq)]
pub struct Prediction {
    /// `[image][element]`, as many elements each as the plan's `output_len`.
    pub outputs: Vec<f32>,
    /// For each image, whether its result is beyond those of the server's samples, and so likely
    /// wrong; none where the plan does not say.
    pub beyond_samples: Option<Vec<bool>>,
    /// What they cost.
    pub stats: Stats,
    /// Why the store did not keep what the server published. Later connections fetch it again.
    pub unkept: Option<String>,
}

/// What a prediction cost.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Stats {
    /// Bytes to the server, frame headers included.
    pub bytes_sent: u64,
    /// Bytes from the server, frame headers included.
    pub bytes_received: u64,
    /// Frames, both ways.
    pub messages: u64,
    /// Batches the images were split into.
    pub batches: u64,
    /// Wall-clock seconds.
    pub seconds: f64,
    /// Input values outside the range the model was calibrated for, which were brought to its
    /// border.
    pub clamped_inputs: usize,
    /// Activations outside the calibrated ranges, likewise.
    pub clamped_activations: u64,
    /// Batches that used what was prepared.
    pub prepared_batches: u64,
    /// Preparations that were of no use: damaged, or the server had its half no more.
    pub lost_preparations: u64,
}

impl Stats {
    /// What went over a link since `before`.
    pub(super) fn add_traffic(&mut self, now: Traffic, before: Traffic) {
        self.bytes_sent = now.bytes_sent - before.bytes_sent;
        self.bytes_received = now.bytes_received - before.bytes_received;
        self.messages = now.messages - before.messages;
    }
}
