//! Buffers that operations use again and again: fresh ones cost more in page faults than a sum
//! costs in arithmetic.

use std::{
    mem,
    ops::{Deref, DerefMut},
    sync::{Mutex, PoisonError},
};

use pronghorn_ring::{Aligned, Word};

/// Bytes that may wait for use in any case.
const KEPT: usize = 64 << 20;
/// Polynomials of all limbs that may wait. An evaluation with large ciphertexts uses tens of them
/// in turn, and a fresh one costs as much in page faults as a sum costs in arithmetic.
const POLYS: usize = 64;

/// Buffers for words that are no secret (they are not wiped), shared by threads.
pub(crate) struct Pool<W> {
    free: Mutex<Free<W>>,
    /// Most bytes that wait.
    kept: usize,
}

struct Free<W> {
    buffers: Vec<Vec<W>>,
    bytes: usize,
}

/// A buffer on loan, at the start of a cache line.
pub(crate) struct Buffer<'a, W: Word> {
    words: Aligned<W>,
    pool: &'a Pool<W>,
}

impl<W: Word> Pool<W> {
    /// For polynomials of so many words, of all limbs.
    pub fn new(polynomial: usize) -> Self {
        let (buffers, bytes) = (Vec::new(), 0);
        Self {
            free: Mutex::new(Free { buffers, bytes }),
            kept: KEPT.max(POLYS * polynomial * size_of::<W>()),
        }
    }

    /// Some words, whatever they are, until the buffer is dropped.
    pub fn take(&self, length: usize) -> Buffer<'_, W> {
        let words = self.take_words(length + Aligned::<W>::PADDING);
        let words = Aligned::within(words, length);
        Buffer { words, pool: self }
    }

    /// Some words, whatever they are, to be [given](Self::give) back or not.
    pub fn take_words(&self, length: usize) -> Vec<W> {
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        let fitting = (0..free.buffers.len()).filter(|&i| free.buffers[i].capacity() >= length);
        let best = fitting.min_by_key(|&i| free.buffers[i].capacity());
        let mut words = best.map_or_else(Vec::new, |i| free.remove(i));
        drop(free);
        if words.capacity() < length {
            return vec![W::default(); length];
        }
        words.resize(length, W::default());
        words
    }

    /// Takes words that nobody needs.
    pub fn give(&self, words: Vec<W>) {
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        free.bytes += words.capacity() * size_of::<W>();
        free.buffers.push(words);
        // The oldest go first.
        while free.bytes > self.kept {
            free.remove(0);
        }
    }
}

impl<W> Free<W> {
    fn remove(&mut self, index: usize) -> Vec<W> {
        let words = self.buffers.remove(index);
        self.bytes -= words.capacity() * size_of::<W>();
        words
    }
}

impl<W: Word> Deref for Buffer<'_, W> {
    type Target = [W];

    fn deref(&self) -> &[W] {
        &self.words
    }
}

impl<W: Word> DerefMut for Buffer<'_, W> {
    fn deref_mut(&mut self) -> &mut [W] {
        &mut self.words
    }
}

impl<W: Word> Drop for Buffer<'_, W> {
    fn drop(&mut self) {
        let words = mem::replace(&mut self.words, Aligned::none());
        self.pool.give(words.into_inner());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_are_used_again() {
        let pool = Pool::<u32>::new(16);
        let (small, large) = (pool.take(10), pool.take(1000));
        let places = (small.as_ptr(), large.as_ptr());
        drop((small, large));
        // The one that fits best.
        let again = pool.take(7);
        assert_eq!((again.len(), again.as_ptr()), (7, places.0));
        assert_eq!(pool.take(100).as_ptr(), places.1);
        assert_eq!(pool.take_words(2000).len(), 2000);
    }

    #[test]
    fn few_bytes_wait() {
        let pool = Pool::<u64>::new(16);
        let most = KEPT / size_of::<u64>();
        let tenth = most / 10 - Aligned::<u64>::PADDING;
        drop((0..100).map(|_| pool.take(tenth)).collect::<Vec<_>>());
        let waiting = |pool: &Pool<u64>| {
            let free = pool.free.lock().unwrap();
            assert_eq!(
                free.bytes,
                free.buffers
                    .iter()
                    .map(|words| 8 * words.capacity())
                    .sum::<usize>()
            );
            free.buffers.len()
        };
        assert_eq!(waiting(&pool), 10);
        pool.give(vec![0; most + 1]);
        assert_eq!(waiting(&pool), 0);
    }
}
