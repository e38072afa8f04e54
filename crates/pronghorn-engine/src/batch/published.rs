//! What of the linear steps on shares serves all batches of a connection: the client's `a`, and the
//! rows `a'` that the server publishes with the first batch (see [`pronghorn_he::shares`]). Later
//! batches exchange `b` alone, until `PUBLISHED_BLOCKS` are through: both parties count them
//! alike, since the batches of a connection run one after the other.

use std::sync::Arc;

use pronghorn_plan::cost::SEED_BYTES;
use pronghorn_ring::random::Seed;

use crate::connection::Kept;

/// What one party keeps of a step, for so many blocks.
pub(crate) type Rows<T> = Kept<Arc<T>>;

/// The rows of one step, for one batch.
pub struct Place<T> {
    pub(crate) rows: Rows<T>,
    /// Blocks of the batch.
    pub(crate) blocks: usize,
    /// Blocks that rows serve.
    pub(crate) most: usize,
}

impl<T> Place<T> {
    /// The rows that an earlier batch left; `None` where they do not serve the blocks of this one,
    /// and then they are forgotten.
    pub fn get(&self) -> Option<Arc<T>> {
        self.rows.spend(self.blocks)
    }

    /// For later batches.
    pub fn put(&self, published: T) {
        let left = self.most.saturating_sub(self.blocks);
        self.rows.put_for(Arc::new(published), left);
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
