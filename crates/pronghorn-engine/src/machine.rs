//! Protocols as state machines: messages in, messages out, no sockets.

use crate::{error::EngineError, share::Share};

/// What a machine waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Want {
    /// To be asked for its next message.
    Send,
    /// To be given the peer's next message.
    Receive,
    /// Nothing: it has finished.
    Done,
}

/// How far a batch is, in rows of ciphertext made or read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Rows done.
    pub done: u64,
    /// Rows in all.
    pub total: u64,
}

/// One party's half of a protocol.
pub trait Machine {
    /// What it waits for now.
    fn want(&self) -> Want;

    /// Appends exactly one message to `out`, which the caller cleared.
    ///
    /// # Errors
    /// When it is not this party's turn to send.
    fn send(&mut self, out: &mut Vec<u8>) -> Result<(), EngineError>;

    /// Takes the peer's next message.
    ///
    /// # Errors
    /// When the message is malformed or out of turn; the machine is then of no further use.
    fn receive(&mut self, message: &[u8]) -> Result<(), EngineError>;

    /// The longest message it would take next, in bytes: the bound before anything is allocated.
    fn max_incoming(&self) -> usize;

    /// How far it is.
    fn progress(&self) -> Progress;
}

/// One party's half of one plan step: shares in at construction, a share out at the end.
pub trait StepMachine: Machine + Send {
    /// Values so far that lay beyond the range the plan expects, and were brought to its border.
    fn saturated(&self) -> u64 {
        0
    }

    /// This party's share of the step's value, once [`Machine::want`] says [`Want::Done`].
    fn into_share(self: Box<Self>) -> Share;
}
