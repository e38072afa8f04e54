//! Buffers that operations use again and again: fresh ones cost more in page faults than a sum costs in arithmetic.

use std::{
    mem,
    ops::{Deref, DerefMut},
    sync::{Mutex, PoisonError},
};

use pronghorn_ring::Word;

/// Most buffers that wait for use.
const KEPT: usize = 32;

/// Buffers for words that are no secret (they are not wiped), shared by threads.
pub(crate) struct Pool<W> {
    free: Mutex<Vec<Vec<W>>>,
}

/// A buffer on loan: some words, whatever they are.
pub(crate) struct Buffer<'a, W> {
    words: Vec<W>,
    length: usize,
    pool: &'a Pool<W>,
}

impl<W: Word> Pool<W> {
    pub fn new() -> Self {
        Self {
            free: Mutex::new(Vec::new()),
        }
    }

    pub fn take(&self, length: usize) -> Buffer<'_, W> {
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        let fitting = (0..free.len()).filter(|&i| free[i].len() >= length);
        let words = fitting
            .min_by_key(|&i| free[i].len())
            .map(|i| free.swap_remove(i));
        drop(free);
        Buffer {
            words: words.unwrap_or_else(|| vec![W::default(); length]),
            length,
            pool: self,
        }
    }
}

impl<W> Deref for Buffer<'_, W> {
    type Target = [W];

    fn deref(&self) -> &[W] {
        &self.words[..self.length]
    }
}

impl<W> DerefMut for Buffer<'_, W> {
    fn deref_mut(&mut self) -> &mut [W] {
        &mut self.words[..self.length]
    }
}

impl<W> Drop for Buffer<'_, W> {
    fn drop(&mut self) {
        let mut free = self
            .pool
            .free
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        free.push(mem::take(&mut self.words));
        if free.len() > KEPT {
            // The smallest is the cheapest to make again.
            if let Some(smallest) = (0..free.len()).min_by_key(|&i| free[i].len()) {
                free.swap_remove(smallest);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_are_used_again() {
        let pool = Pool::<u32>::new();
        let (small, large) = (pool.take(10), pool.take(1000));
        let places = (small.as_ptr(), large.as_ptr());
        drop((small, large));
        // The one that fits best.
        let again = pool.take(7);
        assert_eq!((again.len(), again.as_ptr()), (7, places.0));
        assert_eq!(pool.take(11).as_ptr(), places.1);
        assert_eq!(pool.take(2000).len(), 2000);
        let many: Vec<_> = (0..100).map(|length| pool.take(length)).collect();
        drop(many);
        assert!(pool.free.lock().unwrap().len() <= KEPT);
    }
}
