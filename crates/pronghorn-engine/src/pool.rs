//! Memory of a batch that one step hands to the next.
//!
//! A batch of thousands in bands takes and gives back buffers of many megabytes hundreds of times.
//! New ones from the system are cleared page by page, which took a quarter of a server's time.

use std::sync::{Arc, Mutex, PoisonError};

use zeroize::Zeroize;

/// Buffers of one party's batch. Clones share them. They are wiped when the last clone goes.
pub(crate) struct Pool<W: Zeroize>(Arc<Mutex<Buffers<W>>>);

struct Buffers<W: Zeroize>(Vec<Vec<W>>);

impl<W: Zeroize> Drop for Buffers<W> {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

impl<W: Zeroize> Clone for Pool<W> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<W: Zeroize> Default for Pool<W> {
    fn default() -> Self {
        Self(Arc::new(Mutex::new(Buffers(Vec::new()))))
    }
}

impl<W: Zeroize + Clone + Default> Pool<W> {
    /// A buffer of so many words, which mean nothing: the smallest that has room for them, unless
    /// that is twice as large. Where there is none the largest that waits goes, so that there are
    /// never more than were in use at once.
    pub fn take(&self, words: usize) -> Vec<W> {
        let mut buffers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let places = 0..buffers.0.len();
        let room = |at: &usize| buffers.0[*at].capacity();
        let fits = |at: &usize| (words..=2 * words).contains(&room(at));
        let smallest = places.clone().filter(fits).min_by_key(room);
        let found = smallest.map(|at| buffers.0.swap_remove(at));
        if found.is_none()
            && let Some(largest) = places.max_by_key(|at| buffers.0[*at].capacity())
        {
            buffers.0.swap_remove(largest).zeroize();
        }
        drop(buffers);
        match found {
            Some(mut buffer) => {
                buffer.resize(words, W::default());
                buffer
            }
            None => vec![W::default(); words],
        }
    }

    /// Takes a buffer back.
    pub fn give(&self, buffer: Vec<W>) {
        let mut buffers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        buffers.0.push(buffer);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_are_used_again() {
        let pool = Pool::<u32>::default();
        let mut buffer = pool.take(5);
        assert_eq!(buffer, [0; 5]);
        buffer.fill(7);
        pool.give(buffer);
        assert_eq!(pool.clone().take(3), [7; 3]);
        pool.give(vec![1; 2]);
        pool.give(vec![2; 9]);
        assert_eq!(pool.take(1), [1]);
        assert_eq!(pool.take(20), [0; 20]);
        assert_eq!(pool.take(4), [0; 4], "the largest made room");
        // What a shorter use cut off has room again.
        let mut buffer = vec![3; 8];
        buffer.truncate(6);
        pool.give(buffer);
        assert_eq!(pool.take(8), [3, 3, 3, 3, 3, 3, 0, 0]);
    }
}
