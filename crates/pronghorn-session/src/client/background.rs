//! How a client keeps batches prepared: what [`Refill`] works over is a second client.

use std::{sync::Arc, time::Duration};

use pronghorn_engine::{ClientPreparation, ClientPrepared};
use pronghorn_plan::cost;

use super::{Client, ConnectOptions};
use crate::{
    error::SessionError,
    refill::{Connect, Preparer, Refill},
    store::{Owner, Store},
};

/// Most time to wait for the second connection: who ends the refill may have to wait as long.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);

impl Client {
    /// Keeps `batches` batches prepared from now on, on a second connection and in the background,
    /// as many as the server keeps for a client at most: of the sizes that a prediction of `images`
    /// images has; where that is not said, of the last prediction's. 0: no more.
    ///
    /// Both connections compute at the same time, and share the cores there are.
    ///
    /// # Errors
    /// When nothing can be prepared at this trust level, or the client was not connected by its
    /// address.
    pub fn keep_prepared(
        &mut self,
        batches: usize,
        images: Option<usize>,
    ) -> Result<(), SessionError> {
        self.refill = None;
        if batches == 0 {
            return Ok(());
        }
        ClientPreparation::check(self.plan(), 1)?;
        let most = self.prepared_batches;
        if most == 0 {
            let found = batches;
            return Err(SessionError::Prepared { found, most });
        }
        let (address, options) = self.again.clone().ok_or(SessionError::NoAddress)?;
        let options = ConnectOptions {
            plan: Some(self.plan().clone()),
            expected_plan_hash: Some(self.plan_hash),
            model: Some(self.id.clone().into()),
            connect_timeout: options.connect_timeout.min(CONNECT_TIMEOUT),
            ..options
        };
        let connect = second_connection(address, options, self.store.clone(), self.server);
        let refill = Refill::start(connect, self.store.clone(), self.server)?;
        self.refill = Some(refill);
        self.kept = batches.min(most);
        if let Some(images) = images {
            self.want_prepared(images)?;
        }
        Ok(())
    }

    /// What keeps batches prepared, where something does.
    pub fn refill(&self) -> Option<&Refill> {
        self.refill.as_ref()
    }

    /// Has batches prepared of the sizes that a prediction of `images` images has.
    pub(super) fn want_prepared(&self, images: usize) -> Result<(), SessionError> {
        if let Some(refill) = &self.refill {
            let sizes = self.batches(images)?;
            refill.want(sizes.into_iter().cycle().take(self.kept).collect());
        }
        Ok(())
    }
}

/// Connects to the server with the store `server`, and to no other.
fn second_connection(
    address: String,
    options: ConnectOptions,
    store: Arc<Store<ClientPrepared>>,
    server: Owner,
) -> Connect {
    Box::new(move |cancel| {
        let options = ConnectOptions {
            cancel,
            ..options.clone()
        };
        let client = Client::connect_sharing(&address, options, Some(store.clone()))?;
        match client.server == server {
            true => Ok(Box::new(client)),
            false => Err(SessionError::AnotherServer),
        }
    })
}

impl Preparer for Client {
    fn half_bytes(&self, batch: usize) -> u64 {
        cost::prepared(self.plan(), batch).memory.client
    }

    fn prepare(&mut self, batch: usize) -> Result<(), SessionError> {
        self.prepare_batch(batch, &mut |_| {})
    }
}
