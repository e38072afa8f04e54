//! The images that clients' keys have served: floods keep their distance for so many and no more.

use std::collections::{HashMap, VecDeque};

/// Bytes of a digest of keys.
pub(super) const DIGEST: usize = 32;

/// Most keys that are remembered. Those of the longest known make room.
const MOST_KEYS: usize = 1 << 16;

/// By digest of the keys, images that they were granted for. Outlives the keys in the cache.
#[derive(Default)]
pub(super) struct Granted {
    images: HashMap<[u8; DIGEST], u64>,
    order: VecDeque<[u8; DIGEST]>,
}

impl Granted {
    /// Counts so many images of a key, unless they are more than `most` in all then.
    pub fn grant(&mut self, digest: &[u8; DIGEST], images: u64, most: u64) -> bool {
        let before = self.images.get(digest).copied();
        let Some(after) = before.unwrap_or(0).checked_add(images) else {
            return false;
        };
        if after > most {
            return false;
        }
        if before.is_none() {
            self.remember(*digest);
        }
        self.images.insert(*digest, after);
        true
    }

    fn remember(&mut self, digest: [u8; DIGEST]) {
        self.order.push_back(digest);
        if self.order.len() > MOST_KEYS
            && let Some(oldest) = self.order.pop_front()
        {
            self.images.remove(&oldest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_granted_for_so_many_images() {
        let mut granted = Granted::default();
        let (one, other) = ([1; DIGEST], [2; DIGEST]);
        assert!(granted.grant(&one, 6, 10) && granted.grant(&other, 10, 10));
        assert!(!granted.grant(&one, 5, 10) && !granted.grant(&one, u64::MAX, 10));
        // A refusal counts nothing.
        assert!(granted.grant(&one, 4, 10));
        assert!(!granted.grant(&one, 1, 10) && !granted.grant(&other, 1, 10));
    }

    #[test]
    fn memory_is_bounded() {
        let mut granted = Granted::default();
        for key in 0..MOST_KEYS as u64 + 5 {
            let mut digest = [0; DIGEST];
            digest[..8].copy_from_slice(&key.to_le_bytes());
            assert!(granted.grant(&digest, 1, 1));
        }
        assert_eq!(
            (granted.images.len(), granted.order.len()),
            (MOST_KEYS, MOST_KEYS)
        );
    }
}
