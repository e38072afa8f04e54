//! Memory of a batch that one step hands to the next.
//!
//! A batch of thousands in bands takes and gives back buffers of many megabytes hundreds of times.
//! New ones from the system are cleared page by page, which took a quarter of a server's time.

use std::sync::{Arc, Mutex, PoisonError};

use zeroize::Zeroize;

/// Buffers of one party's batch. Clones share them. They are wiped when the last clone goes.
pub(crate) struct Pool<W: Zeroize>(Arc<Mutex<Buffers<W>>>);

struct Buffers<W: Zeroize> {
    /// Those that nobody uses, from the one that has waited longest.
    waiting: Vec<Vec<W>>,
    /// Words of these and of those in use.
    held: usize,
    /// The most that were in use at once.
    most: usize,
}

impl<W: Zeroize> Drop for Buffers<W> {
    fn drop(&mut self) {
        self.waiting.zeroize();
    }
}

impl<W: Zeroize> Clone for Pool<W> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<W: Zeroize> Default for Pool<W> {
    fn default() -> Self {
        Self(Arc::new(Mutex::new(Buffers {
            waiting: Vec::new(),
            held: 0,
            most: 0,
        })))
    }
}

impl<W: Zeroize + Clone + Default> Pool<W> {
    /// A buffer of so many words, which mean nothing: the smallest that has room for them, unless
    /// that is twice as large. Where there is none others go until a new one takes no more memory
    /// than was in use at once.
    pub fn take(&self, words: usize) -> Vec<W> {
        let found = {
            let mut buffers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            let found = buffers.find(words);
            if found.is_none() {
                buffers.make_room(words);
            }
            found
        };
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
        if buffer.capacity() > 0 {
            let mut buffers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            buffers.waiting.push(buffer);
        }
    }
}

impl<W: Zeroize> Buffers<W> {
    /// One that waits and has room for so many words.
    fn find(&mut self, words: usize) -> Option<Vec<W>> {
        let room = |at: &usize| self.waiting[*at].capacity();
        let fits = |at: &usize| (words..=2 * words).contains(&room(at));
        let smallest = (0..self.waiting.len()).filter(fits).min_by_key(room);
        smallest.map(|at| self.waiting.remove(at))
    }

    /// Counts a new one, for which others may have to go.
    fn make_room(&mut self, words: usize) {
        while !self.waiting.is_empty() && self.held + words > self.most {
            let mut oldest = self.waiting.remove(0);
            self.held = self.held.saturating_sub(oldest.capacity());
            oldest.zeroize();
        }
        self.held += words;
        self.most = self.most.max(self.held);
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
        // What a shorter use cut off has room again.
        let mut buffer = vec![3; 8];
        buffer.truncate(6);
        pool.give(buffer);
        assert_eq!(pool.take(8), [3, 3, 3, 3, 3, 3, 0, 0]);
    }

    #[test]
    fn there_are_never_more_than_were_in_use_at_once() {
        let pool = Pool::<u32>::default();
        let held = || {
            let buffers = pool.0.lock().unwrap();
            let waiting: usize = buffers.waiting.iter().map(Vec::capacity).sum();
            (buffers.held, waiting)
        };
        let [small, large] = [pool.take(10), pool.take(100)];
        assert_eq!(held(), (110, 0));
        pool.give(large);
        pool.give(small);
        // None fits, and a third would be one too many: the one that has waited longest goes.
        let middle = pool.take(40);
        assert_eq!(held(), (50, 10));
        // There is room for another.
        let other = pool.take(25);
        assert_eq!(held(), (75, 10));
        pool.give(middle);
        pool.give(other);
        assert_eq!(pool.take(9), [0; 9], "the first, which waited all the time");
        assert_eq!(held(), (75, 65));
        assert_eq!(pool.take(80), [0; 80]);
        assert_eq!(held(), (90, 0));
    }
}
