//! One machine over one connection.

use pronghorn_engine::{EngineError, Machine, Progress, Want};

use crate::{
    error::SessionError,
    frame::{Kind, MAX_HANDSHAKE},
    link::Link,
    message::{self, Done},
};

/// Sends and receives for `machine` until it is done; calls `on_progress` after every message.
pub(crate) fn drive<M: Machine<Error = EngineError> + ?Sized>(
    machine: &mut M,
    link: &mut Link,
    on_progress: &mut dyn FnMut(Progress),
) -> Result<(), SessionError> {
    let mut incoming = Vec::new();
    loop {
        match machine.want() {
            Want::Send => {
                let mut message = link.buffer();
                machine.send(&mut message)?;
                link.send(Kind::Data, message)?;
            }
            Want::Receive => {
                // The last one is added to the transcript only now that this side has nothing to do
                // but wait.
                link.note(&incoming);
                link.receive_data(machine.max_incoming(), &mut incoming)?;
                machine.receive(&incoming)?;
            }
            Want::Done => {
                link.note(&incoming);
                return Ok(());
            }
        }
        on_progress(machine.progress());
    }
}

impl Done {
    /// What a client says, to whom images are not granted.
    pub(crate) fn of(batch: u32) -> Self {
        Self {
            batch,
            images_left: None,
            leaves: false,
        }
    }

    /// Waits for the peer's, and with that for its word that both have seen the same messages.
    pub(crate) fn receive(link: &mut Link) -> Result<Self, SessionError> {
        let mut payload = Vec::new();
        link.receive(&[(Kind::Done, MAX_HANDSHAKE)], &mut payload)?;
        message::decode(Kind::Done, &payload)
    }
}
