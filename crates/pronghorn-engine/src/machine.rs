//! Protocols as state machines: messages in, messages out, no sockets.

pub use pronghorn_mpc::machine::{Machine, Progress, Want};

use crate::{error::EngineError, share::Share};

/// One party's half of one plan step: shares in at construction, a share out at the end.
pub trait StepMachine: Machine<Error = EngineError> + Send {
    /// Values so far that lay beyond the range the plan expects, and were brought to its border.
    fn saturated(&self) -> u64 {
        0
    }

    /// This party's share of the step's value, once [`Machine::want`] says [`Want::Done`].
    fn into_share(self: Box<Self>) -> Share;
}
