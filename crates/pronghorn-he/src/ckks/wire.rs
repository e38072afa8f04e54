//! Bytes of ciphertexts. Keys, headers and polynomials are those of [`rns::wire`], kinds 3 and 4.
//! Beside these:
//!
//! | kind | then |
//! |---|---|
//! | 1 ciphertext | polynomials (1 byte), limbs (1), scale (8), polynomials |
//! | 2 seeded ciphertext | limbs (1), scale (8), seed (32), number (8), `b` |

use pronghorn_ring::Word;

use super::{Ciphertext, Parameters, SeededCiphertext};
pub use crate::rns::wire::{VERSION, pack, packed_len, unpack};
use crate::rns::{
    self, MAX_POLYS, WireError,
    wire::{Reader, header},
};

const CIPHERTEXT: u8 = 1;
const SEEDED_CIPHERTEXT: u8 = 2;

impl<W: Word> Ciphertext<W> {
    /// Appends the bytes.
    pub fn encode(&self, out: &mut Vec<u8>) {
        header(self.parameters(), CIPHERTEXT, out);
        out.extend([self.polys() as u8, self.limbs() as u8]);
        out.extend(self.scale().to_le_bytes());
        pack(self.parameters(), self.limbs(), self.data(), out);
    }

    /// The ciphertext of exactly these bytes.
    ///
    /// # Errors
    /// [`WireError`] says what is wrong with them.
    pub fn decode(parameters: &Parameters<W>, bytes: &[u8]) -> Result<Self, WireError> {
        let mut reader = Reader::new(parameters, CIPHERTEXT, bytes)?;
        let polys = reader.count("the number of polynomials", 1, MAX_POLYS)?;
        let limbs = reader.limbs(parameters)?;
        let scale = read_scale(&mut reader, parameters, limbs)?;
        let data = reader.polys(parameters, polys, limbs)?;
        Self::from_words(parameters, limbs, scale, data)
            .map_err(|_| scale_error(parameters, scale, limbs))
    }
}

impl<W: Word> SeededCiphertext<W> {
    /// Appends the bytes.
    pub fn encode(&self, out: &mut Vec<u8>) {
        header(self.parameters(), SEEDED_CIPHERTEXT, out);
        out.push(self.limbs() as u8);
        out.extend(self.scale().to_le_bytes());
        out.extend(self.seed());
        out.extend(self.number().to_le_bytes());
        pack(self.parameters(), self.limbs(), self.b(), out);
    }

    /// The ciphertext of exactly these bytes.
    ///
    /// # Errors
    /// [`WireError`] says what is wrong with them.
    pub fn decode(parameters: &Parameters<W>, bytes: &[u8]) -> Result<Self, WireError> {
        let mut reader = Reader::new(parameters, SEEDED_CIPHERTEXT, bytes)?;
        let limbs = reader.limbs(parameters)?;
        let scale = read_scale(&mut reader, parameters, limbs)?;
        let seed = reader.array("the seed")?;
        let number = reader.number()?;
        let b = reader.polys(parameters, 1, limbs)?;
        let seeded = rns::SeededCiphertext::new(parameters, seed, number, b);
        Ok(Self::new(seeded, scale))
    }
}

/// A scale that leaves room in the modulus.
fn read_scale<W: Word>(
    reader: &mut Reader<'_>,
    parameters: &Parameters<W>,
    limbs: usize,
) -> Result<f64, WireError> {
    let scale = f64::from_le_bytes(reader.array("the scale")?);
    match parameters.check_scale(scale, limbs) {
        Ok(()) => Ok(scale),
        Err(_) => Err(scale_error(parameters, scale, limbs)),
    }
}

fn scale_error<W: Word>(parameters: &Parameters<W>, scale: f64, limbs: usize) -> WireError {
    let log_modulus = parameters.log_modulus(limbs);
    WireError::Scale { scale, log_modulus }
}
