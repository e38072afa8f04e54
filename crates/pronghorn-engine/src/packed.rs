//! Packed words from the other party, and the check that they are residues.

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
    /// The largest word that is allowed.
    pub most: u64,
}

impl PackedRow<'_> {
    /// Unpacks `bytes` to `words`.
    ///
    /// # Errors
    /// The bytes are not those of so many words, or a word is too large.
    pub fn unpack<W: Word>(&self, bytes: &[u8], words: &mut [W]) -> Result<(), EngineError> {
        bits::unpack(bytes, self.width, words).map_err(|source| EngineError::Packing {
            step: self.step.to_owned(),
            message: self.message,
            row: self.row,
            source,
        })?;
        if vector::largest(words).to_u64() <= self.most {
            return Ok(());
        }
        Err(EngineError::Word {
            step: self.step.to_owned(),
            message: self.message,
            row: self.row,
            modulus: self.most + 1,
        })
    }
}
