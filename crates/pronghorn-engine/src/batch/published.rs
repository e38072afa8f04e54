//! What of the linear steps on shares serves all batches of a connection: the client's `a`, and the rows `a'` that the server
//! publishes with the first batch (see [`pronghorn_he::shares`]). Later batches exchange `b` alone.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
};

use pronghorn_plan::cost::SEED_BYTES;
use pronghorn_ring::random::Seed;

/// What one party keeps of each linear step. Clones share it.
pub struct Published<T>(Arc<Mutex<BTreeMap<usize, Arc<T>>>>);

impl<T> Clone for Published<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<T> Default for Published<T> {
    fn default() -> Self {
        Self(Arc::default())
    }
}

impl<T> Published<T> {
    /// The place of a step.
    pub fn at(&self, step: usize) -> Place<T> {
        Place {
            all: self.clone(),
            step,
        }
    }
}

/// Where what was published of one step is kept.
pub struct Place<T> {
    all: Published<T>,
    step: usize,
}

impl<T> Place<T> {
    /// What an earlier batch left.
    pub fn get(&self) -> Option<Arc<T>> {
        let all = self.all.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.get(&self.step).cloned()
    }

    /// For later batches.
    pub fn put(&self, published: T) {
        let mut all = self.all.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.insert(self.step, Arc::new(published));
    }
}

/// The client's.
pub struct ClientPublished {
    /// Of its `a`.
    pub seed: [u8; SEED_BYTES],
    /// Rows of `a'` as they came, one after the other.
    pub rows: Vec<u8>,
}

/// The server's. Secret: no Debug.
pub struct ServerPublished {
    /// Of the client's `a`.
    pub seed: [u8; SEED_BYTES],
    /// Of what hides the layer in the rows of `a'`.
    pub rerandomiser: Seed,
}
