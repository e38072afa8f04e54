//! One machine over one connection.

use pronghorn_engine::{EngineError, Machine, Progress, Want};

use crate::{error::SessionError, frame::Kind, link::Link};

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
                link.receive(&[(Kind::Data, machine.max_incoming())], &mut incoming)?;
                machine.receive(&incoming)?;
            }
            Want::Done => return Ok(()),
        }
        on_progress(machine.progress());
    }
}
