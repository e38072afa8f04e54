//! Both parties of a plan in one process, with a clock for each.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use pronghorn_engine::{
    ClientModel, ClientRun, EngineError, Machine, ServerModel, ServerRun, Want,
};

/// What an exchange cost: the parties compute in turns, so that its time, all messages in memory,
/// is the sum of both.
#[derive(Clone, Copy, Debug, Default)]
pub struct Phase {
    /// What the client computed in, without waiting.
    pub client: Duration,
    /// What the server computed in.
    pub server: Duration,
    /// Bytes of the client's messages, without what frames them.
    pub bytes_up: u64,
    /// Bytes of the server's messages.
    pub bytes_down: u64,
}

/// What one batch cost, and its result.
pub struct Batch {
    /// From the inputs to the outputs.
    pub cost: Phase,
    /// The outputs as users read them, `[image][element]`.
    pub outputs: Vec<f32>,
}

/// Both parties of a connection: the first batch of a plan that has keys sends them.
pub struct Connection {
    client: (Arc<ClientModel>, pronghorn_engine::Connection),
    server: (Arc<ServerModel>, pronghorn_engine::Connection),
}

impl Connection {
    /// Compiles the server's plan for a client, too.
    ///
    /// # Errors
    /// The plan has a step that a client cannot follow.
    pub fn new(server: Arc<ServerModel>) -> Result<Self, EngineError> {
        let client = Arc::new(ClientModel::new(server.plan().clone())?);
        Ok(Self {
            client: (client, Default::default()),
            server: (server, Default::default()),
        })
    }

    /// Runs one batch of `images`, one after the other in `inputs`, on rayon's current threads.
    ///
    /// # Errors
    /// When the inputs do not fit the plan, or a machine fails.
    pub fn run(&self, inputs: &[f32], images: usize) -> Result<Batch, EngineError> {
        let mut cost = Phase::default();
        let mut client = clocked(&mut cost.client, || {
            let (model, connection) = &self.client;
            ClientRun::with_prepared(model.clone(), inputs, images, connection, None)
        })?;
        let mut server = clocked(&mut cost.server, || {
            let (model, connection) = &self.server;
            ServerRun::with_prepared(model, images, connection, None)
        })?;
        exchange(&mut client, &mut server, &mut cost)?;
        let outputs = clocked(&mut cost.client, || client.finish())?;
        Ok(Batch { cost, outputs })
    }
}

/// Runs both machines to the end.
pub(crate) fn exchange(
    client: &mut dyn Machine<Error = EngineError>,
    server: &mut dyn Machine<Error = EngineError>,
    phase: &mut Phase,
) -> Result<(), EngineError> {
    let mut message = Vec::new();
    loop {
        message.clear();
        match [client.want(), server.want()] {
            [Want::Send, Want::Receive] => {
                clocked(&mut phase.client, || client.send(&mut message))?;
                clocked(&mut phase.server, || server.receive(&message))?;
                phase.bytes_up += message.len() as u64;
            }
            [Want::Receive, Want::Send] => {
                clocked(&mut phase.server, || server.send(&mut message))?;
                clocked(&mut phase.client, || client.receive(&message))?;
                phase.bytes_down += message.len() as u64;
            }
            [Want::Done, Want::Done] => return Ok(()),
            _ => {
                let state = "waits on both sides";
                return Err(EngineError::OutOfTurn { state });
            }
        }
    }
}

/// Adds the time of `work` to a clock.
pub(crate) fn clocked<T>(clock: &mut Duration, work: impl FnOnce() -> T) -> T {
    let started = Instant::now();
    let result = work();
    *clock += started.elapsed();
    result
}
