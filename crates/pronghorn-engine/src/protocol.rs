//! A step's protocol: one object a step for each party, compiled from the checked plan.
//!
//! [`Side`] is what a party does for a step, in any batch. [`Compile`] makes both parties' sides.
//! Word sizes are erased there, so nothing after it knows of them. Protocols build on this file,
//! which names none of them; [`sides`](crate::sides) names them all.

use std::sync::{Arc, atomic::AtomicU64};

use pronghorn_plan::{CheckedPlan, Weights, bands::Band, step::Compiled};

use crate::{
    connection::{Connection, Shelf},
    error::EngineError,
    machine::{Carry, Exchanging, Made, Prepared, StepMachine},
    share::Share,
};

/// Makes both parties' sides of a step.
pub(crate) trait Compile {
    /// The data owner's side.
    ///
    /// # Errors
    /// The step is not one to follow.
    fn client(&self, step: &Compiled<'_>) -> Result<Box<dyn Side>, EngineError>;

    /// The model owner's side. What the model's preludes need of it goes on the `shelf`.
    ///
    /// # Errors
    /// The weights are of another step, or missing.
    fn server(
        &self,
        step: &Compiled<'_>,
        weights: &Weights,
        shelf: &Shelf,
    ) -> Result<Box<dyn Side>, EngineError>;
}

/// One party's side of a step. It serves all batches.
pub(crate) trait Side: Send + Sync {
    /// Rows of progress of a batch.
    fn rows(&self, batch: usize) -> u64 {
        let _ = batch;
        0
    }

    /// The step with this party's shares of its inputs, and with what was prepared for it.
    ///
    /// # Errors
    /// A share or a key is missing, or memory for the step.
    fn online(
        &self,
        at: &At<'_>,
        inputs: Vec<Share>,
        prepared: Option<Prepared>,
    ) -> Result<Next, EngineError>;

    /// The step for a band of its value, in plans that go by bands: with this party's shares of the
    /// rows that it reads, and with what the band before left. A step that makes its value whole
    /// has one band, of all rows.
    ///
    /// # Errors
    /// As [`Side::online`].
    fn band(
        &self,
        at: &At<'_>,
        _band: &Band,
        inputs: Vec<Share>,
        _carry: Option<Carry>,
    ) -> Result<Next, EngineError> {
        self.online(at, inputs, None)
    }

    /// Whether this party begins the messages of a band by waiting for the peer's. Then it begins no
    /// band before its turn: that would take memory and gain nothing.
    fn waits(&self) -> bool {
        false
    }

    /// The part of the step that needs no input of the client's. Gives this party's share of the
    /// value, as far as it depends on nothing else.
    ///
    /// # Errors
    /// As [`Side::online`].
    fn offline(&self, at: &At<'_>, inputs: Vec<Share>) -> Result<Next, EngineError> {
        let _ = at;
        Ok(Next::Made(Made::share(
            inputs.into_iter().next().unwrap_or(Share::Zero),
        )))
    }

    /// Whether the offline part has messages: rows of progress then count.
    fn has_offline(&self) -> bool {
        false
    }

    /// Reads what [`PreparedStep::to_bytes`](crate::machine::PreparedStep::to_bytes) wrote; `None`
    /// for a step that has nothing to prepare.
    ///
    /// # Errors
    /// The bytes are not of this step.
    fn read_prepared(&self, batch: usize, bytes: &[u8]) -> Result<Option<Prepared>, EngineError> {
        let _ = (batch, bytes);
        Ok(None)
    }
}

/// The server's side of a step that the client does alone, under `client-aided`: its share is zero,
/// before and after.
pub(crate) struct ZeroSide;

impl Side for ZeroSide {
    fn online(
        &self,
        _at: &At<'_>,
        _inputs: Vec<Share>,
        _prepared: Option<Prepared>,
    ) -> Result<Next, EngineError> {
        Ok(Next::Made(Made::share(Share::Zero)))
    }
}

/// What a party does for a step: an exchange with the peer, or its share at once.
pub(crate) enum Next {
    Machine(Box<dyn StepMachine>),
    Made(Made),
}

/// A batch of a connection.
pub(crate) struct At<'a> {
    pub plan: &'a CheckedPlan,
    pub connection: &'a Connection,
    /// What the steps of the batch share, by type, such as memory.
    pub shelf: &'a Shelf,
    /// Images.
    pub batch: usize,
    /// Counts values that were brought to the border of their range.
    pub saturated: &'a AtomicU64,
}

/// An exchange before the first step, for what a connection keeps.
pub(crate) trait Prelude: Send + Sync {
    /// Which exchange.
    fn kind(&self) -> PreludeKind;

    /// The exchange, unless the connection has it already and it serves `batch` more images.
    ///
    /// # Errors
    /// The system gives no randomness, or memory.
    fn start(
        &self,
        connection: &Connection,
        batch: usize,
    ) -> Result<Option<Exchanging>, EngineError>;

    /// Whether the offline part needs it, too.
    fn is_offline(&self) -> bool {
        false
    }
}

/// The exchanges before the first step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PreludeKind {
    /// The set-up of oblivious transfers ([`crate::ots`]).
    OtSetup,
    /// The set-up of those of lean steps, in both directions.
    LeanOtSetup,
    /// The set-up of silent oblivious transfers, for lean steps that use them.
    SilentOtSetup,
    /// The publication of the coefficient engine ([`crate::coefficient::publication`]).
    Publication,
    /// The client's keys, with their check ([`crate::keys`]).
    ClientKeys,
}

/// All sides of a plan's steps.
pub(crate) type Sides = Arc<[Box<dyn Side>]>;

/// A step that a party cannot follow, which both parties know without asking the other.
pub(crate) fn unsupported(step: &str, reason: &'static str) -> EngineError {
    EngineError::Unsupported {
        step: step.to_owned(),
        reason,
    }
}

/// The first share that a step reads.
pub(crate) fn first(inputs: Vec<Share>) -> Share {
    inputs.into_iter().next().unwrap_or(Share::Zero)
}

/// Runs an expression with the word type of a plan.
macro_rules! with_word {
    ($word:expr, $W:ident => $body:expr) => {
        match $word {
            pronghorn_plan::WordSize::U32 => {
                type $W = u32;
                $body
            }
            pronghorn_plan::WordSize::U64 => {
                type $W = u64;
                $body
            }
        }
    };
}
pub(crate) use with_word;
