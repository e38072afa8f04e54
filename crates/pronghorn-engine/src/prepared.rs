//! Prepared batches: what of a batch on shares can be done before its inputs are known.
//!
//! The server's shares of linear steps and circuits do not depend on the client's data. So circuits
//! are garbled and squares are set up offline. Lean steps get their OTs. Shares behind a lean step
//! do depend on that data: circuits and products that read them before a linear step are not
//! prepared. Online there are linear steps, a bit for each bit of a client's share, and 16 bytes
//! back.
//!
//! A prepared batch is a [`ClientPrepared`] and a [`ServerPrepared`]. Each is used up by one run,
//! on this connection or another. As bytes they can be stored, and then the store hands each out
//! once.
//!
//! # Bytes
//!
//! For each step of the plan, in order: the length of its bytes (8, little-endian), and these. They
//! are nothing, the server's seed of a linear step (32), or those of the step's protocol.

use std::sync::Arc;

use pronghorn_plan::Plan;
use zeroize::ZeroizeOnDrop;

use crate::{
    connection::Connection,
    error::EngineError,
    half::Half,
    model::{ClientModel, ServerModel},
    run::{Phase, Run, check_batch, delegate_machine},
};

/// The data owner's half of a prepared batch: tables, and labels for random choices. Used once, and
/// destroyed when the OTs that it was made with fail a check. Wiped on drop; no Debug.
pub struct ClientPrepared(pub(crate) Half);

/// The model owner's half of a prepared batch: labels, and `Delta`. As [`ClientPrepared`].
pub struct ServerPrepared(pub(crate) Half);

/// All steps wipe themselves.
impl ZeroizeOnDrop for ClientPrepared {}

/// All steps wipe themselves.
impl ZeroizeOnDrop for ServerPrepared {}

/// Checks that batches of so many images can be prepared.
pub(crate) fn check_preparable(plan: &Plan, batch: usize) -> Result<(), EngineError> {
    check_batch(plan, batch)?;
    if !plan.trust.shares() {
        return Err(EngineError::Unsupported {
            step: plan.step_name(plan.output),
            reason: "nothing can be prepared at this trust level: it has no garbled circuits",
        });
    }
    Ok(())
}

macro_rules! prepared_batch {
    ($prepared:ty, $model:ty) => {
        impl $prepared {
            /// Images of the batch.
            pub fn batch(&self) -> usize {
                self.0.batch
            }

            /// The name of the set-up of oblivious transfers that it was made with. When that fails
            /// a check, this must be destroyed.
            pub fn setup(&self) -> [u8; 32] {
                self.0.setup
            }

            /// Hands all of its bytes to `sink`, a step at a time, for a store that hands it out
            /// once.
            ///
            /// # Errors
            /// The sink's.
            pub fn write<E>(&self, mut sink: impl FnMut(&[u8]) -> Result<(), E>) -> Result<(), E> {
                self.0.write(&mut sink)
            }

            /// Reads what [`Self::write`] wrote, for the plan, the number of images and the set-up
            /// that it was made for.
            ///
            /// # Errors
            /// The plan does not take so many images, or the bytes were not made for it.
            pub fn from_bytes(
                model: &$model,
                batch: usize,
                setup: [u8; 32],
                bytes: &[u8],
            ) -> Result<Self, EngineError> {
                check_preparable(model.plan(), batch)?;
                Half::read(model.plan(), model.sides(), batch, setup, bytes).map(Self)
            }
        }
    };
}

prepared_batch!(ClientPrepared, ClientModel);
prepared_batch!(ServerPrepared, ServerModel);

/// The data owner's half of a preparation: receives tables and keeps them.
pub struct ClientPreparation(Run);

impl ClientPreparation {
    /// For a batch of `batch` images of this connection.
    ///
    /// # Errors
    /// The plan does not take so many, or nothing of it can be prepared.
    pub fn new(
        model: &Arc<ClientModel>,
        batch: usize,
        connection: &Connection,
    ) -> Result<Self, EngineError> {
        check_preparable(model.plan(), batch)?;
        Run::new(&model.task(connection, batch), Phase::Offline).map(Self)
    }

    /// Whether batches of so many images can be prepared. A preparation that is made and not run
    /// would take OTs that the server still counts on.
    ///
    /// # Errors
    /// As [`ClientPreparation::new`].
    pub fn check(plan: &Plan, batch: usize) -> Result<(), EngineError> {
        check_preparable(plan, batch)
    }

    /// The half of the prepared batch.
    ///
    /// # Errors
    /// The machine is not done.
    pub fn into_prepared(self) -> Result<ClientPrepared, EngineError> {
        self.0.into_prepared().map(ClientPrepared)
    }
}

/// The model owner's half of a preparation: garbles.
pub struct ServerPreparation(Run);

impl ServerPreparation {
    /// For a batch of `batch` images of this connection.
    ///
    /// # Errors
    /// As [`ClientPreparation::new`].
    pub fn new(
        model: &ServerModel,
        batch: usize,
        connection: &Connection,
    ) -> Result<Self, EngineError> {
        check_preparable(model.plan(), batch)?;
        Run::new(&model.task(connection, batch), Phase::Offline).map(Self)
    }

    /// The half of the prepared batch.
    ///
    /// # Errors
    /// The machine is not done.
    pub fn into_prepared(self) -> Result<ServerPrepared, EngineError> {
        self.0.into_prepared().map(ServerPrepared)
    }
}

delegate_machine!(ClientPreparation, 0);
delegate_machine!(ServerPreparation, 0);
