//! Both parties of a plan in one process, with a clock for each.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use crate::{
    ClientKeys, ClientRun, EngineError, Machine, ServerKeys, ServerModel, ServerRun, Want,
};

/// What one batch cost, and its result.
pub struct Batch {
    /// What the client computed in, without waiting.
    pub client: Duration,
    /// What the server computed in.
    pub server: Duration,
    /// Bytes of the client's messages, without what frames them.
    pub bytes_up: u64,
    /// Bytes of the server's messages.
    pub bytes_down: u64,
    /// The outputs as users read them, `[image][element]`.
    pub outputs: Vec<f32>,
}

/// The keys of a connection: the first batch of a plan that has keys sends them.
#[derive(Default)]
pub struct Connection {
    client: ClientKeys,
    server: ServerKeys,
}

impl Connection {
    /// Runs one batch of `images`, one after the other in `inputs`, on rayon's current threads.
    ///
    /// # Errors
    /// When the inputs do not fit the plan, or a machine fails.
    pub fn run(
        &self,
        model: &Arc<ServerModel>,
        inputs: &[f32],
        images: usize,
    ) -> Result<Batch, EngineError> {
        let mut clocks = [Duration::ZERO; 2];
        let mut bytes = [0, 0];
        let plan = model.plan().clone();
        let mut client = clocked(&mut clocks[0], || {
            ClientRun::with_keys(plan, inputs, images, &self.client)
        })?;
        let mut server = clocked(&mut clocks[1], || {
            ServerRun::with_keys(model.clone(), images, &self.server)
        })?;
        let mut message = Vec::new();
        loop {
            let parties: [&mut dyn Machine; 2] = [&mut client, &mut server];
            let from = match parties.each_ref().map(|party| party.want()) {
                [Want::Send, Want::Receive] => 0,
                [Want::Receive, Want::Send] => 1,
                [Want::Done, Want::Done] => break,
                _ => {
                    return Err(EngineError::OutOfTurn {
                        state: "waits on both sides",
                    });
                }
            };
            message.clear();
            clocked(&mut clocks[from], || parties[from].send(&mut message))?;
            clocked(&mut clocks[1 - from], || {
                parties[1 - from].receive(&message)
            })?;
            bytes[from] += message.len() as u64;
        }
        let outputs = clocked(&mut clocks[0], || client.finish())?;
        Ok(Batch {
            client: clocks[0],
            server: clocks[1],
            bytes_up: bytes[0],
            bytes_down: bytes[1],
            outputs,
        })
    }
}

/// Adds the time of `work` to a clock.
fn clocked<T>(clock: &mut Duration, work: impl FnOnce() -> T) -> T {
    let started = Instant::now();
    let result = work();
    *clock += started.elapsed();
    result
}
