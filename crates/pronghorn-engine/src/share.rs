//! Additive shares of values between steps.

use subtle::{Choice, ConditionallySelectable};
use zeroize::Zeroizing;

use crate::{error::EngineError, pool::Pool};

/// One party's additive share of a value, for a whole batch: the parties' shares add up to the
/// value.
///
/// Values are proven to fit in 32 bits, so shares live modulo 2^32. Under `client-aided` the
/// client's share is the value and the server's is zero, which needs no memory and no message.
#[derive(Clone)]
pub enum Share {
    /// Zero for every element and image.
    Zero,
    /// One word an element and image; wiped on drop.
    Words(Batch),
}

impl Share {
    /// The words of the client's share, which is never zero.
    ///
    /// # Errors
    /// It is.
    pub(crate) fn into_words(self, step: &str) -> Result<Batch, EngineError> {
        match self {
            Self::Words(words) => Ok(words),
            Self::Zero => Err(EngineError::Unsupported {
                step: step.to_owned(),
                reason: "the client's share is missing",
            }),
        }
    }
}

/// Words of a batch, `[element][image]`: a row holds one element of every image, which is also
/// how the batch engine lays it into coefficients. Wiped on drop; no Debug, it is secret.
pub struct Batch {
    images: usize,
    words: Zeroizing<Vec<i32>>,
    /// How many of these are the batch's: memory of a pool may have more.
    count: usize,
    /// Where its memory goes in place of being wiped.
    pool: Option<Pool<i32>>,
}

impl Clone for Batch {
    /// In memory of its own, which no pool has counted.
    fn clone(&self) -> Self {
        Self {
            images: self.images,
            words: Zeroizing::new(self.words().to_vec()),
            count: self.count,
            pool: None,
        }
    }
}

impl Drop for Batch {
    fn drop(&mut self) {
        if let Some(pool) = &self.pool {
            pool.give(std::mem::take(&mut *self.words));
        }
    }
}

impl Batch {
    /// Words that mean nothing, in memory of a batch that goes back to it.
    pub(crate) fn of_pool(pool: &Pool<i32>, elements: usize, images: usize) -> Self {
        Self {
            images,
            words: Zeroizing::new(pool.take(elements * images)),
            count: elements * images,
            pool: Some(pool.clone()),
        }
    }

    /// Zeros.
    pub fn zeros(elements: usize, images: usize) -> Self {
        Self {
            images,
            words: Zeroizing::new(vec![0; elements * images]),
            count: elements * images,
            pool: None,
        }
    }

    /// To images one after the other (`[image][element]`).
    pub fn to_images(&self) -> Zeroizing<Vec<i32>> {
        let mut values = Zeroizing::new(vec![0; self.count]);
        let elements = self.elements();
        transpose(self.words(), elements, self.images, &mut values);
        values
    }

    /// The same words in rows of so many columns.
    pub(crate) fn with_columns(mut self, columns: usize) -> Self {
        self.images = columns;
        self
    }

    /// Elements of one image.
    pub fn elements(&self) -> usize {
        self.count / self.images
    }

    /// Images.
    pub fn images(&self) -> usize {
        self.images
    }

    /// Row `element`: that element of every image.
    pub fn row(&self, element: usize) -> &[i32] {
        &self.words[element * self.images..][..self.images]
    }

    /// All words.
    pub fn words(&self) -> &[i32] {
        &self.words[..self.count]
    }

    /// Brings the words into `low..=high`; the first that was outside. Constant time in the words,
    /// but for whether one was.
    pub fn clamp(&mut self, low: i32, high: i32) -> Option<usize> {
        let mut first = u64::MAX;
        for (index, word) in self.words_mut().iter_mut().enumerate().rev() {
            let outside = u8::from(*word < low) | u8::from(*word > high);
            first.conditional_assign(&(index as u64), Choice::from(outside));
            *word = (*word).clamp(low, high);
        }
        (first != u64::MAX).then_some(first as usize)
    }

    /// All words.
    pub fn words_mut(&mut self) -> &mut [i32] {
        &mut self.words[..self.count]
    }
}

/// `to[column][row] = from[row][column]`, in tiles that stay in cache.
fn transpose(from: &[i32], rows: usize, columns: usize, to: &mut [i32]) {
    const TILE: usize = 32;
    for row0 in (0..rows).step_by(TILE) {
        for column0 in (0..columns).step_by(TILE) {
            for row in row0..(row0 + TILE).min(rows) {
                for column in column0..(column0 + TILE).min(columns) {
                    to[column * rows + row] = from[row * columns + column];
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn images_are_columns() {
        let mut batch = Batch::zeros(37, 5);
        let words = batch.words_mut().iter_mut();
        words.zip(0..).for_each(|(word, value)| *word = value);
        assert_eq!(batch.row(2), [10, 11, 12, 13, 14]);
        let images = batch.to_images();
        assert_eq!(images[..3], [0, 5, 10]);
        assert_eq!(images[37..40], [1, 6, 11]);
    }
}
