//! One machine over one connection.

use pronghorn_engine::{EngineError, Machine, Progress, Want};

use crate::{
    error::SessionError,
    frame::{Kind, MAX_HANDSHAKE},
    link::Link,
    message::{self, Done},
};

/// Sends and receives for `machine` until it is done; calls `on_progress` after every message.
///
/// Before it waits for the peer it sends what the machine can make already, and does what needs no
/// message. So both parties work at a time.
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
                if send_ahead(machine, link)? {
                    continue;
                }
                machine.meanwhile()?;
                if send_ahead(machine, link)? {
                    continue;
                }
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

/// Sends the machine's next message, if that can be made before the peer's have come; whether it was
/// sent. It never blocks, since the peer may be doing the same.
fn send_ahead<M: Machine<Error = EngineError> + ?Sized>(
    machine: &mut M,
    link: &mut Link,
) -> Result<bool, SessionError> {
    let Some(frames) = machine.ahead().filter(|_| link.has_room()) else {
        return Ok(false);
    };
    let mut message = link.buffer();
    machine.send_ahead(&mut message)?;
    link.send_ahead(frames, message)?;
    Ok(true)
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
