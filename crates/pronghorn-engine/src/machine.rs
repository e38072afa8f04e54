//! Protocols as state machines: messages in, messages out, no sockets.

use std::any::Any;

pub use pronghorn_mpc::machine::{Machine, Progress, Want};
use zeroize::Zeroizing;

use crate::{error::EngineError, share::Share};

/// An exchange of a connection, outside the steps of a plan.
pub type Exchanging = Box<dyn Machine<Error = EngineError> + Send>;

/// One party's half of one plan step: shares in at construction, a share out at the end.
pub trait StepMachine: Machine<Error = EngineError> + Send {
    /// What this party has, once [`Machine::want`] says [`Want::Done`].
    ///
    /// # Errors
    /// It is not done, or a check at the end fails.
    fn into_made(self: Box<Self>) -> Result<Made, EngineError>;
}

/// What a step made for one party. Secret: no Debug.
pub struct Made {
    /// Its share of the value.
    pub share: Share,
    /// Its half of what was prepared, by the offline part of a step.
    pub prepared: Option<Prepared>,
    /// Values that were beyond the range of the plan, and were brought to its border.
    pub saturated: u64,
    /// What the next band of the step needs of this one.
    pub carry: Option<Carry>,
    /// A check of decrypted values that failed. The peer must not see that it did, since the values
    /// may be the client's secret: the batch goes on with values within their range.
    pub doubt: Option<EngineError>,
}

impl Made {
    /// A share alone.
    pub fn share(share: Share) -> Self {
        Self {
            share,
            prepared: None,
            saturated: 0,
            carry: None,
            doubt: None,
        }
    }

    /// The same with what the next band of the step needs.
    pub fn carrying<T: Any + Send>(self, carry: T) -> Self {
        Self {
            carry: Some(Box::new(carry)),
            ..self
        }
    }

    /// The same with a failed check, where one did fail.
    pub fn doubting(self, doubt: Option<EngineError>) -> Self {
        Self { doubt, ..self }
    }
}

/// What one band of a step leaves to the next, in plans that go by bands. Wiped on drop.
pub type Carry = Box<dyn Any + Send>;

/// A step's half of a prepared batch. Wiped on drop; no Debug.
pub trait PreparedStep: Any + Send {
    /// For a store that hands it out once.
    fn to_bytes(&self) -> Zeroizing<Vec<u8>>;
}

/// A step's half of a prepared batch, of any protocol.
pub type Prepared = Box<dyn PreparedStep>;

/// The half of type `T`, if there is one and it is of this type.
pub(crate) fn prepared_as<T: PreparedStep>(prepared: Option<Prepared>) -> Option<T> {
    let prepared: Box<dyn Any> = prepared?;
    prepared.downcast().ok().map(|prepared| *prepared)
}
