//! What of the linear steps on shares serves all batches of a connection: the client's `a`, and the rows `a'` that the server
//! publishes with the first batch (see [`pronghorn_he::shares`]). Later batches exchange `b` alone, until [`PUBLISHED_BLOCKS`] are through:
//! both parties count them alike, since the batches of a connection run one after the other.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
};

use pronghorn_plan::cost::{PUBLISHED_BLOCKS, SEED_BYTES};
use pronghorn_ring::random::Seed;

/// What one party keeps of each linear step. Clones share it.
pub struct Published<T>(Arc<Mutex<BTreeMap<usize, Entry<T>>>>);

/// What is kept of a step, and for how many more blocks.
struct Entry<T> {
    published: Arc<T>,
    blocks: usize,
}

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
    /// The place of a step, for a batch of so many blocks.
    pub fn at(&self, step: usize, blocks: usize) -> Place<T> {
        Place {
            all: self.clone(),
            step,
            blocks,
        }
    }
}

/// Where what was published of one step is kept, for one batch.
pub struct Place<T> {
    all: Published<T>,
    step: usize,
    blocks: usize,
}

impl<T> Place<T> {
    /// What an earlier batch left; none where the blocks of this one are too many, and then it is forgotten.
    pub fn get(&self) -> Option<Arc<T>> {
        let mut all = self.all.0.lock().unwrap_or_else(PoisonError::into_inner);
        let entry = all.get_mut(&self.step)?;
        if let Some(left) = entry.blocks.checked_sub(self.blocks) {
            entry.blocks = left;
            return Some(entry.published.clone());
        }
        all.remove(&self.step);
        None
    }

    /// For later batches.
    pub fn put(&self, published: T) {
        let mut all = self.all.0.lock().unwrap_or_else(PoisonError::into_inner);
        let entry = Entry {
            published: Arc::new(published),
            blocks: PUBLISHED_BLOCKS.saturating_sub(self.blocks),
        };
        all.insert(self.step, entry);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn serves_so_many_blocks() {
        let all = Published::default();
        let place = |blocks| all.at(3, blocks);
        assert!(place(1).get().is_none());
        place(24).put("rows");
        assert!(all.at(4, 1).get().is_none());
        for _ in 0..PUBLISHED_BLOCKS / 8 - 3 {
            assert!(place(8).get().is_some());
        }
        assert!(place(8).get().is_none() && place(0).get().is_none());
    }
}
