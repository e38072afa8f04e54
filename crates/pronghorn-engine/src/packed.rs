//! Packed words from the other party, and the check that they are small enough.

use pronghorn_ring::{Word, bits, vector};

use crate::error::EngineError;

/// A row of packed words in a message.
pub(crate) struct PackedRow<'a> {
    /// The step, for errors.
    pub step: &'a str,
    /// The message, for errors.
    pub message: &'static str,
    /// The row within the step, for errors.
    pub row: usize,
    /// Bits of a word.
    pub width: u32,
}

impl PackedRow<'_> {
    /// Unpacks `bytes` to `words`.
    ///
    /// # Errors
    /// The bytes are not those of so many words.
    pub fn unpack<W: Word>(&self, bytes: &[u8], words: &mut [W]) -> Result<(), EngineError> {
        bits::unpack(bytes, self.width, words).map_err(|source| EngineError::Packing {
            step: self.step.to_owned(),
            message: self.message,
            row: self.row,
            source,
        })
    }

    /// The same, where words are at most `most`.
    ///
    /// # Errors
    /// As [`PackedRow::unpack`], and if a word is larger.
    pub fn unpack_up_to<W: Word>(
        &self,
        most: u64,
        bytes: &[u8],
        words: &mut [W],
    ) -> Result<(), EngineError> {
        self.unpack(bytes, words)?;
        if vector::largest(words).to_u64() <= most {
            return Ok(());
        }
        Err(EngineError::Word {
            step: self.step.to_owned(),
            message: self.message,
            row: self.row,
            modulus: most + 1,
        })
    }
}
