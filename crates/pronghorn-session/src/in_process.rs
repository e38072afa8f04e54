//! Both parties in one process, without sockets: what `pronghorn verify` and tests run.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use pronghorn_engine::{
    ClientRun, EngineError, Machine, Progress, ServerModel, ServerRun, Want, dither::Addends,
};
use pronghorn_graph::oracle;
use pronghorn_plan::{CheckedPlan, Plan};

use crate::{
    client::ImagesDone,
    error::SessionError,
    frame::{FrameError, HEADER_BYTES, Kind},
};

/// What a run within the process gave and cost.
#[derive(Clone, Debug, PartialEq)]
pub struct InProcess {
    /// The result at the scale of [`Plan::result`], `[image][element]`.
    pub integers: Vec<i32>,
    /// Bytes from client to server, frame headers included.
    pub bytes_up: u64,
    /// Bytes from server to client, frame headers included.
    pub bytes_down: u64,
    /// Input values outside the calibrated range, brought to its border.
    pub clamped_inputs: usize,
    /// Activations outside the calibrated ranges, likewise.
    pub clamped_activations: u64,
    /// Seconds that both parties computed for each step, added; set-ups count as step 0.
    pub step_seconds: Vec<f64>,
}

impl InProcess {
    /// The result as users read it, after softmax and the like, `[image][element]`.
    pub fn outputs(&self, plan: &Plan) -> Vec<f32> {
        let images = self.integers.len() / plan.result().len().max(1);
        oracle::finish(&plan.finish, plan.result(), &self.integers, images)
    }
}

/// Runs one batch of `batch` images, one after the other in `inputs`, through both parties.
///
/// # Errors
/// When the inputs do not fit the plan, or a machine fails.
pub fn in_process(
    model: &Arc<ServerModel>,
    inputs: &[f32],
    batch: usize,
) -> Result<InProcess, SessionError> {
    in_process_watched(model, inputs, batch, &AtomicBool::new(false), &mut |_| {})
}

/// The same with a look at it: `on_progress` is called after every message, and `cancel`, set from
/// anywhere, ends it.
///
/// # Errors
/// As [`in_process`], or that it was cancelled.
pub fn in_process_watched(
    model: &Arc<ServerModel>,
    inputs: &[f32],
    batch: usize,
    cancel: &AtomicBool,
    on_progress: &mut dyn FnMut(ImagesDone),
) -> Result<InProcess, SessionError> {
    let runs = Runs::new(model, inputs, batch)?;
    Ok(runs.finish(cancel, on_progress)?.0)
}

/// The same of a plan with dithered rounding, and the addends of the run.
///
/// # Errors
/// As [`in_process_watched`].
pub fn in_process_dithered(
    model: &Arc<ServerModel>,
    inputs: &[f32],
    batch: usize,
    cancel: &AtomicBool,
    on_progress: &mut dyn FnMut(ImagesDone),
) -> Result<(InProcess, Addends), SessionError> {
    let mut runs = Runs::new(model, inputs, batch)?;
    runs.client.keep_rounded();
    runs.server.keep_rounded();
    runs.finish(cancel, on_progress)
}

/// Both parties' runs of a batch.
struct Runs {
    plan: CheckedPlan,
    batch: usize,
    client: ClientRun,
    server: ServerRun,
}

impl Runs {
    fn new(model: &Arc<ServerModel>, inputs: &[f32], batch: usize) -> Result<Self, SessionError> {
        let plan = model.plan().clone();
        Ok(Self {
            client: ClientRun::new(plan.clone(), inputs, batch)?,
            server: ServerRun::new(model, batch)?,
            plan,
            batch,
        })
    }

    fn finish(
        self,
        cancel: &AtomicBool,
        on_progress: &mut dyn FnMut(ImagesDone),
    ) -> Result<(InProcess, Addends), SessionError> {
        let Self {
            plan,
            batch,
            mut client,
            mut server,
        } = self;
        let (bytes_up, bytes_down) = exchange(&mut client, &mut server, &mut |now| {
            on_progress(ImagesDone::within(now, 0, batch, batch));
            if cancel.load(Ordering::SeqCst) {
                return Err(SessionError::Cancelled);
            }
            Ok(())
        })?;
        let clamped_inputs = client.clamped_inputs();
        let clamped_activations = client.clamped_activations();
        let parties = client.step_seconds().iter().zip(server.step_seconds());
        let step_seconds = parties.map(|(client, server)| client + server).collect();
        let addends = Addends::of(&plan, &mut client, &mut server);
        let run = InProcess {
            step_seconds,
            integers: client.finish_integers()?,
            bytes_up,
            bytes_down,
            clamped_inputs,
            clamped_activations,
        };
        Ok((run, addends))
    }
}

/// Hands messages between two machines until both are done or `after_message` fails; the bytes each
/// way.
fn exchange(
    client: &mut dyn Machine<Error = EngineError>,
    server: &mut dyn Machine<Error = EngineError>,
    after_message: &mut dyn FnMut(Progress) -> Result<(), SessionError>,
) -> Result<(u64, u64), SessionError> {
    let (mut up, mut down) = (0, 0);
    let mut message = Vec::new();
    loop {
        match (client.want(), server.want()) {
            (Want::Send, Want::Receive) => up += hand_over(client, server, &mut message)?,
            (Want::Receive, Want::Send) => down += hand_over(server, client, &mut message)?,
            (Want::Done, Want::Done) => return Ok((up, down)),
            _ => return Err(SessionError::Stuck),
        }
        after_message(client.progress())?;
    }
}

fn hand_over(
    from: &mut dyn Machine<Error = EngineError>,
    to: &mut dyn Machine<Error = EngineError>,
    message: &mut Vec<u8>,
) -> Result<u64, SessionError> {
    message.clear();
    from.send(message)?;
    let (length, most) = (message.len(), to.max_incoming());
    if length > most {
        return Err(FrameError::TooLong {
            kind: Kind::Data,
            length,
            most,
        }
        .into());
    }
    to.receive(message)?;
    Ok((HEADER_BYTES + length) as u64)
}
