//! What a server serves.

use std::sync::Arc;

use pronghorn_engine::{
    Connection, EngineError, Machine, ServerModel, ServerPreparation, ServerPrepared, ServerRun,
};
use pronghorn_plan::CheckedPlan;
use pronghorn_ring::random::Seed;

/// What a server serves: a plan, and the server's machine for each batch.
pub trait Service: Send + Sync {
    /// The plan both parties follow.
    fn plan(&self) -> &CheckedPlan;

    /// The model's own name of step `index`, for the log and for no client.
    fn node(&self, _index: usize) -> Option<&str> {
        None
    }

    /// The server's half of a batch of `batch` images; `keys` are of its connection, and what was
    /// `prepared` for it is used up.
    ///
    /// # Errors
    /// When it cannot begin.
    fn start(
        &self,
        batch: usize,
        keys: &Connection,
        prepared: Option<ServerPrepared>,
    ) -> Result<Box<dyn Machine<Error = EngineError> + Send>, EngineError>;

    /// The server's half of the preparation of such a batch.
    ///
    /// # Errors
    /// When it cannot begin, or nothing can be prepared.
    fn prepare(&self, batch: usize, keys: &Connection) -> Result<Box<dyn Preparing>, EngineError>;

    /// Reads the server's half of a prepared batch from a store.
    ///
    /// # Errors
    /// The bytes are not of this plan and batch.
    fn read_prepared(
        &self,
        batch: usize,
        setup: [u8; 32],
        bytes: &[u8],
    ) -> Result<ServerPrepared, EngineError>;

    /// Takes the secret that what is published is made with, which stays the same for later runs of
    /// the server.
    ///
    /// # Errors
    /// It cannot be used.
    fn keep_secret(&mut self, _secret: &Seed) -> Result<(), EngineError> {
        Ok(())
    }
}

/// The server's half of a preparation.
pub trait Preparing: Machine<Error = EngineError> + Send {
    /// What was prepared.
    ///
    /// # Errors
    /// When the machine is not done.
    fn into_prepared(self: Box<Self>) -> Result<ServerPrepared, EngineError>;
}

impl Preparing for ServerPreparation {
    fn into_prepared(self: Box<Self>) -> Result<ServerPrepared, EngineError> {
        (*self).into_prepared()
    }
}

/// A real model.
pub(super) struct ModelService(pub Arc<ServerModel>);

impl Service for ModelService {
    fn plan(&self) -> &CheckedPlan {
        self.0.plan()
    }

    fn node(&self, index: usize) -> Option<&str> {
        self.0.names().step(index)
    }

    fn start(
        &self,
        batch: usize,
        keys: &Connection,
        prepared: Option<ServerPrepared>,
    ) -> Result<Box<dyn Machine<Error = EngineError> + Send>, EngineError> {
        let run = ServerRun::with_prepared(&self.0, batch, keys, prepared)?;
        Ok(Box::new(run))
    }

    fn prepare(&self, batch: usize, keys: &Connection) -> Result<Box<dyn Preparing>, EngineError> {
        Ok(Box::new(ServerPreparation::new(&self.0, batch, keys)?))
    }

    fn read_prepared(
        &self,
        batch: usize,
        setup: [u8; 32],
        bytes: &[u8],
    ) -> Result<ServerPrepared, EngineError> {
        ServerPrepared::from_bytes(&self.0, batch, setup, bytes)
    }

    fn keep_secret(&mut self, secret: &Seed) -> Result<(), EngineError> {
        self.0 = Arc::new(self.0.with_secret(secret)?);
        Ok(())
    }
}
