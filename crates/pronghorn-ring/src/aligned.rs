//! Words at the start of a cache line. A vector of 64 bytes that straddles two lines is loaded
//! twice: transforms of words that begin anywhere take 15 % longer.

use std::ops::{Deref, DerefMut};

use zeroize::Zeroize;

use crate::Word;

/// Bytes of a cache line, and of the longest vectors.
const LINE: usize = 64;

/// A fixed number of words, the first of which begins a cache line.
pub struct Aligned<W> {
    words: Vec<W>,
    start: usize,
    length: usize,
}

impl<W: Word> Aligned<W> {
    /// Zeros.
    pub fn zeros(length: usize) -> Self {
        Self::within(vec![W::default(); length + Self::PADDING], length)
    }
}

impl<W> Aligned<W> {
    /// Words that [`within`](Self::within) wants beyond the length.
    pub const PADDING: usize = LINE / size_of::<W>();

    /// No words, without an allocation.
    pub fn none() -> Self {
        Self {
            words: Vec::new(),
            start: 0,
            length: 0,
        }
    }

    /// Some `length` of these words.
    ///
    /// # Panics
    /// Unless there are [`PADDING`](Self::PADDING) more.
    pub fn within(words: Vec<W>, length: usize) -> Self {
        assert!(
            words.len() >= length + Self::PADDING,
            "room to move to a cache line"
        );
        // No more than the padding, but for interpreters that know no addresses.
        let start = words.as_ptr().align_offset(LINE).min(Self::PADDING);
        Self {
            words,
            start,
            length,
        }
    }

    /// All words that were given to [`within`](Self::within), or zeroed.
    pub fn into_inner(self) -> Vec<W> {
        self.words
    }
}

impl<W> Deref for Aligned<W> {
    type Target = [W];

    #[inline]
    fn deref(&self) -> &[W] {
        &self.words[self.start..][..self.length]
    }
}

impl<W> DerefMut for Aligned<W> {
    #[inline]
    fn deref_mut(&mut self) -> &mut [W] {
        &mut self.words[self.start..][..self.length]
    }
}

impl<W: Word> FromIterator<W> for Aligned<W> {
    fn from_iter<I: IntoIterator<Item = W>>(words: I) -> Self {
        let words: Vec<W> = words.into_iter().collect();
        let mut aligned = Self::zeros(words.len());
        aligned.copy_from_slice(&words);
        aligned
    }
}

impl<W: Clone> Clone for Aligned<W> {
    fn clone(&self) -> Self {
        if self.words.is_empty() {
            return Self::none();
        }
        let mut other = Self::within(self.words.clone(), self.length);
        other.words.rotate_left(self.start);
        other.words.rotate_right(other.start);
        other
    }
}

impl<W: Zeroize> Zeroize for Aligned<W> {
    /// Wipes the words, and keeps their number.
    fn zeroize(&mut self) {
        self.words.iter_mut().zeroize();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn begins_a_line() {
        for length in [0, 1, 100, 5000] {
            let mut words = Aligned::<u32>::zeros(length);
            assert_eq!((words.len(), words.as_ptr() as usize % LINE), (length, 0));
            words.iter_mut().zip(1..).for_each(|(word, i)| *word = i);
            let other = words.clone();
            assert_eq!((&*other, other.as_ptr() as usize % LINE), (&*words, 0));
            words.zeroize();
            assert!(words.iter().all(|&word| word == 0) && words.len() == length);
        }
        let words = Aligned::within(vec![7u64; 20], 12);
        assert_eq!((words.len(), words.into_inner().len()), (12, 20));
    }
}
