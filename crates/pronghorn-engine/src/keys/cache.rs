//! Keys of clients, for all connections of a server.

use std::{
    collections::{HashMap, VecDeque},
    sync::{Arc, Mutex, PoisonError},
};

use super::{DIGEST, STEP};
use crate::error::EngineError;

/// Digests of keys whose uses are counted, at most: 3 MB.
const MOST_COUNTED: usize = 1 << 16;

/// Keys of clients by digest, and how often those were used that came before. Where there is no room
/// the owner with most bytes loses its oldest keys. Clones share it.
pub struct KeyCache<K>(Arc<Mutex<Cached<K>>>);

impl<K> Clone for KeyCache<K> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

struct Cached<K> {
    /// Oldest first.
    keys: VecDeque<Entry<K>>,
    most: u64,
    /// Uses, by digest.
    used: HashMap<[u8; DIGEST], usize>,
    /// In the order in which they came.
    order: VecDeque<[u8; DIGEST]>,
}

struct Entry<K> {
    owner: [u8; 16],
    digest: [u8; DIGEST],
    bytes: u64,
    keys: Arc<K>,
}

impl<K> Default for KeyCache<K> {
    /// For keys of a quarter of a gigabyte.
    fn default() -> Self {
        Self(Arc::new(Mutex::new(Cached {
            keys: VecDeque::new(),
            most: 256 << 20,
            used: HashMap::new(),
            order: VecDeque::new(),
        })))
    }
}

impl<K> KeyCache<K> {
    /// Keeps keys of so many bytes in all, as they came; in memory they take twice as many.
    pub fn keep(&self, most: u64) {
        self.with(|cached| cached.most = most);
    }

    fn with<T>(&self, act: impl FnOnce(&mut Cached<K>) -> T) -> T {
        act(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The keys of this digest.
    pub(super) fn get(&self, digest: &[u8; DIGEST]) -> Option<Arc<K>> {
        self.with(|cached| {
            let found = cached.keys.iter().find(|entry| entry.digest == *digest);
            found.map(|entry| entry.keys.clone())
        })
    }

    /// What keys of this digest have left of `most` uses, if they came before.
    pub(super) fn left(&self, digest: &[u8; DIGEST], most: usize) -> Option<usize> {
        self.with(|cached| Some(most.saturating_sub(*cached.used.get(digest)?)))
    }

    /// Counts uses of keys; what they have left of `most`.
    ///
    /// # Errors
    /// They have fewer left. Nothing is counted then.
    pub(super) fn count(
        &self,
        digest: &[u8; DIGEST],
        uses: usize,
        most: usize,
    ) -> Result<usize, EngineError> {
        self.with(|cached| {
            // Digests that made room are counted anew.
            let used = cached.used.get(digest).copied().unwrap_or(0);
            let left = most.checked_sub(used.saturating_add(uses));
            let left = left.ok_or_else(|| EngineError::Unsupported {
                step: STEP.to_owned(),
                reason: "they have served as many batches as a set of keys may: connect anew",
            })?;
            cached.used.entry(*digest).and_modify(|used| *used += uses);
            Ok(left)
        })
    }

    /// Keeps keys that have come.
    pub(super) fn put(&self, owner: [u8; 16], digest: [u8; DIGEST], bytes: u64, keys: Arc<K>) {
        self.with(|cached| {
            cached.keys.push_back(Entry {
                owner,
                digest,
                bytes,
                keys,
            });
            while cached.keys.iter().map(|entry| entry.bytes).sum::<u64>() > cached.most {
                cached.evict();
            }
            cached.used.entry(digest).or_insert_with(|| {
                cached.order.push_back(digest);
                0
            });
            if cached.order.len() > MOST_COUNTED
                && let Some(oldest) = cached.order.pop_front()
            {
                cached.used.remove(&oldest);
            }
        });
    }
}

impl<K> Cached<K> {
    /// Removes the oldest keys of the owner with most bytes.
    fn evict(&mut self) {
        let bytes = |owner: &[u8; 16]| -> u64 {
            let own = self.keys.iter().filter(|entry| entry.owner == *owner);
            own.map(|entry| entry.bytes).sum()
        };
        // Of equal ones the oldest, which comes last.
        let most = (0..self.keys.len())
            .rev()
            .max_by_key(|&place| bytes(&self.keys[place].owner));
        if let Some(place) = most {
            self.keys.remove(place);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One client with many keys evicts its own, and what was checked stays known.
    #[test]
    fn an_owner_evicts_its_own_keys() {
        let cache = KeyCache::default();
        cache.keep(10);
        let put = |owner: u8, digest: u8, bytes: u64| {
            cache.put([owner; 16], [digest; DIGEST], bytes, Arc::new(digest));
        };
        let has = |digest: u8| cache.get(&[digest; DIGEST]).is_some();
        put(1, 1, 3);
        for digest in 10..20 {
            put(2, digest, 4);
            assert!(has(1) && has(digest));
        }
        assert!(!has(10) && cache.left(&[10; DIGEST], 9) == Some(9));
        assert_eq!(cache.left(&[99; DIGEST], 9), None);
        put(3, 3, 3);
        assert!(has(1) && has(3) && has(19));
        put(3, 4, 11);
        assert!(!has(4));
    }

    #[test]
    fn uses_are_counted_by_digest() {
        let cache = KeyCache::default();
        let (one, other) = ([1; DIGEST], [2; DIGEST]);
        for digest in [one, other] {
            cache.put([0; 16], digest, 1, Arc::new(()));
        }
        assert_eq!(cache.count(&one, 6, 10).unwrap(), 4);
        assert_eq!(cache.count(&other, 10, 10).unwrap(), 0);
        for uses in [5, usize::MAX] {
            assert!(cache.count(&one, uses, 10).is_err());
        }
        // A refusal counts nothing, and keys that come again have what they had.
        cache.put([0; 16], one, 1, Arc::new(()));
        assert_eq!(cache.left(&one, 10), Some(4));
        assert_eq!(cache.count(&one, 4, 10).unwrap(), 0);
        assert!(cache.count(&one, 1, 10).is_err());
    }
}
