//! One batch with its inputs, as each party runs it.

use std::{
    ops::Range,
    sync::{Arc, atomic::Ordering},
};

use pronghorn_graph::oracle;
use pronghorn_plan::CheckedPlan;

use crate::{
    connection::Connection,
    error::EngineError,
    half::Half,
    images::{Images, Part},
    machine::{Machine, Want},
    model::{ClientModel, ServerModel},
    prepared::{ClientPrepared, ServerPrepared},
    run::{Input, Phase, Run, check_batch, delegate_machine},
    share::Share,
};

/// A batch's images, which the plan takes. Secret: no Debug.
pub struct ClientInputs {
    model: Arc<ClientModel>,
    part: Part,
}

impl ClientInputs {
    /// Some of the images that were quantised for the model's plan.
    ///
    /// # Errors
    /// The plan does not take so many, or they were quantised for another one.
    ///
    /// # Panics
    /// There are not so many images.
    pub fn new(
        model: Arc<ClientModel>,
        images: Arc<Images>,
        range: Range<usize>,
    ) -> Result<Self, EngineError> {
        check_batch(model.plan(), range.len())?;
        if images.plan().hash() != model.plan().hash() {
            let state = "has images that were quantised for another plan";
            return Err(EngineError::OutOfTurn { state });
        }
        let part = Part::new(images, range)?;
        Ok(Self { model, part })
    }

    /// The client's half of the batch; see [`ClientRun::with_prepared`].
    ///
    /// # Errors
    /// It cannot begin, or was `prepared` for another batch.
    pub fn run(
        self,
        connection: &Connection,
        prepared: Option<ClientPrepared>,
    ) -> Result<ClientRun, EngineError> {
        let plan = self.model.plan();
        let batch = self.part.len();
        let prepared = Half::for_batch(prepared.map(|half| half.0), plan, batch)?;
        let task = self.model.task(connection, batch);
        Ok(ClientRun {
            clamped: self.part.clamped(),
            run: Run::new(&task, Phase::Online(Input::Images(self.part), prepared))?,
        })
    }
}

/// The data owner's half of one batch.
pub struct ClientRun {
    run: Run,
    clamped: usize,
}

impl ClientRun {
    /// Seconds that this party has computed for each step so far; preludes count as step 0.
    pub fn step_seconds(&self) -> &[f64] {
        &self.run.step_seconds
    }

    /// Quantises `batch` images, one after the other in `inputs`, for a connection of this batch
    /// alone.
    ///
    /// # Errors
    /// The inputs are not `batch` images of numbers, or the plan does not take so many.
    pub fn new(plan: CheckedPlan, inputs: &[f32], batch: usize) -> Result<Self, EngineError> {
        let model = Arc::new(ClientModel::new(plan)?);
        Self::with_prepared(model, inputs, batch, &Connection::default(), None)
    }

    /// One of several batches of a connection, one after the other. Uses up what was `prepared` for
    /// this plan and this many images. The server must use up its half of that.
    ///
    /// # Errors
    /// As [`ClientRun::new`], or it was prepared for another batch.
    pub fn with_prepared(
        model: Arc<ClientModel>,
        inputs: &[f32],
        batch: usize,
        connection: &Connection,
        prepared: Option<ClientPrepared>,
    ) -> Result<Self, EngineError> {
        check_batch(model.plan(), batch)?;
        let images = Images::new(model.plan(), inputs, batch)?;
        ClientInputs::new(model, images.into(), 0..batch)?.run(connection, prepared)
    }

    /// Keeps this party's shares of what is rounded by a dither, for
    /// [`Addends`](crate::dither::Addends).
    pub fn keep_rounded(&mut self) {
        self.run.rounded = Some(Vec::new());
    }

    pub(crate) fn take_rounded(&mut self) -> Vec<Share> {
        self.run.rounded.take().unwrap_or_default()
    }

    /// Input values outside the range of the samples, which were brought to its border.
    pub fn clamped_inputs(&self) -> usize {
        self.clamped
    }

    /// Activations so far that were beyond the range of the samples, and were brought to its
    /// border. A few are harmless. Many mean that the samples do not represent these inputs.
    pub fn clamped_activations(&self) -> u64 {
        self.run.saturated.load(Ordering::Relaxed)
    }

    /// The result as integers at the scale of the plan's result, `[image][element]`.
    ///
    /// # Errors
    /// The batch is not over, or a check of decrypted values has failed. The server has seen
    /// nothing of that, and must not: keep sending what would be sent otherwise.
    pub fn finish_integers(mut self) -> Result<Vec<i32>, EngineError> {
        if self.run.want() != Want::Done {
            return Err(EngineError::OutOfTurn {
                state: "is not over",
            });
        }
        if let Some(doubt) = self.run.doubt.take() {
            return Err(doubt);
        }
        match self.run.result() {
            Some(Share::Words(words)) => Ok(words.to_images().to_vec()),
            _ => Err(EngineError::OutOfTurn {
                state: "has no result",
            }),
        }
    }

    /// The result as users read it, after softmax and the like, `[image][element]`.
    ///
    /// # Errors
    /// As [`ClientRun::finish_integers`].
    pub fn finish(self) -> Result<Vec<f32>, EngineError> {
        let (plan, batch) = (self.run.plan.clone(), self.run.batch);
        let integers = self.finish_integers()?;
        Ok(oracle::finish(
            &plan.finish,
            plan.result(),
            &integers,
            batch,
        ))
    }
}

/// The model owner's half of one batch.
pub struct ServerRun(Run);

impl ServerRun {
    /// Seconds that this party has computed for each step so far; preludes count as step 0.
    pub fn step_seconds(&self) -> &[f64] {
        &self.0.step_seconds
    }

    /// As [`ClientRun::keep_rounded`].
    pub fn keep_rounded(&mut self) {
        self.0.rounded = Some(Vec::new());
    }

    pub(crate) fn take_rounded(&mut self) -> Vec<Share> {
        self.0.rounded.take().unwrap_or_default()
    }

    /// Makes ready to receive `batch` images, for a connection of this batch alone.
    ///
    /// # Errors
    /// The plan does not take so many.
    pub fn new(model: &ServerModel, batch: usize) -> Result<Self, EngineError> {
        Self::with_prepared(model, batch, &Connection::default(), None)
    }

    /// One of several batches of a connection, which uses up what was `prepared`; see
    /// [`ClientRun::with_prepared`].
    ///
    /// # Errors
    /// As there.
    pub fn with_prepared(
        model: &ServerModel,
        batch: usize,
        connection: &Connection,
        prepared: Option<ServerPrepared>,
    ) -> Result<Self, EngineError> {
        let prepared = Half::for_batch(prepared.map(|half| half.0), model.plan(), batch)?;
        let task = model.task(connection, batch);
        Ok(Self(Run::new(&task, Phase::Online(Input::Zero, prepared))?))
    }
}

delegate_machine!(ClientRun, run);
delegate_machine!(ServerRun, 0);
