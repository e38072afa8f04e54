//! Bytes of ciphertexts, keys and answers.
//!
//! As in [`rns::wire`]: version, kind, the hash of the parameters (plaintext modulus included),
//! then packed polynomials. Public keys and evaluation keys are those of that format, kinds 3 and
//! 4, without powers of the secret. Beside these:
//!
//! | kind | then |
//! |---|---|
//! | 16 ciphertext | two polynomials of all limbs |
//! | 17 seeded ciphertext | seed (32), number (8), `b` |
//! | 18 answer | primes left (1), bits dropped of `b` (1), of `a` (1), then limb by limb `b` and `a`, each packed to what is left of its bits |

use pronghorn_ring::{SimdLevel, Word, bits};

use super::{
    Answer, AnswerFormat, Ciphertext, EvaluationKeys, Parameters, PublicKey, SeededCiphertext,
};
use crate::rns::{
    self, WireError,
    wire::{Reader, header, pack},
};

/// Version, kind, hash of the parameters.
const HEADER: usize = 2 + 32;
/// An automorphism's element.
const ELEMENT: usize = 4;
const CIPHERTEXT: u8 = 16;
const SEEDED_CIPHERTEXT: u8 = 17;
const ANSWER: u8 = 18;

impl<W: Word> Ciphertext<W> {
    /// Appends the bytes.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let ring = self.parameters().ring();
        header(ring, CIPHERTEXT, out);
        pack(ring, ring.limbs(), self.words(), out);
    }

    /// The ciphertext of exactly these bytes.
    ///
    /// # Errors
    /// [`WireError`] says what is wrong with them.
    pub fn decode(parameters: &Parameters<W>, bytes: &[u8]) -> Result<Self, WireError> {
        let ring = parameters.ring();
        let words = Reader::new(ring, CIPHERTEXT, bytes)?.polys(ring, 2, ring.limbs())?;
        Ok(Self::from_words(parameters, words))
    }
}

impl<W: Word> SeededCiphertext<W> {
    /// Appends the bytes.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let ring = self.parameters.ring();
        header(ring, SEEDED_CIPHERTEXT, out);
        out.extend(self.inner.seed());
        out.extend(self.inner.number().to_le_bytes());
        pack(ring, ring.limbs(), self.inner.b(), out);
    }

    /// The ciphertext of exactly these bytes.
    ///
    /// # Errors
    /// [`WireError`] says what is wrong with them.
    pub fn decode(parameters: &Parameters<W>, bytes: &[u8]) -> Result<Self, WireError> {
        let ring = parameters.ring();
        let mut reader = Reader::new(ring, SEEDED_CIPHERTEXT, bytes)?;
        let seed = reader.array("the seed")?;
        let number = reader.number()?;
        let b = reader.polys(ring, 1, ring.limbs())?;
        let inner = rns::SeededCiphertext::new(ring, seed, number, b);
        let parameters = parameters.clone();
        Ok(Self { parameters, inner })
    }
}

impl<W: Word> SeededCiphertext<W> {
    /// Bytes of a ciphertext.
    pub fn encoded_len(parameters: &Parameters<W>) -> usize {
        let ring = parameters.ring();
        HEADER + 32 + 8 + rns::wire::packed_len(ring, ring.limbs())
    }
}

impl<W: Word> PublicKey<W> {
    /// Bytes of a key.
    pub fn encoded_len(parameters: &Parameters<W>) -> usize {
        let ring = parameters.ring();
        rns::wire::PUBLIC_KEY_HEAD + rns::wire::packed_len(ring, ring.limbs())
    }
}

impl<W: Word> EvaluationKeys<W> {
    /// Bytes of keys for so many rotations, the swap counted as one.
    pub fn encoded_len(parameters: &Parameters<W>, rotations: usize) -> usize {
        let ring = parameters.ring();
        let key = ring.pieces().len() * rns::wire::packed_len(ring, ring.basis().limbs());
        HEADER + 32 + 1 + 4 + rotations * (ELEMENT + key)
    }
}

impl<W: Word> PublicKey<W> {
    /// Appends the bytes.
    pub fn encode(&self, out: &mut Vec<u8>) {
        self.key.encode(out);
    }

    /// The key of exactly these bytes.
    ///
    /// # Errors
    /// [`WireError`] says what is wrong with them.
    pub fn decode(parameters: &Parameters<W>, bytes: &[u8]) -> Result<Self, WireError> {
        let key = rns::PublicKey::decode(parameters.ring(), bytes)?;
        let (found, limbs) = (key.limbs() as u64, parameters.limbs() as u64);
        if found != limbs {
            return Err(WireError::Range {
                field: "the number of limbs of the public key",
                found,
                low: limbs,
                high: limbs,
            });
        }
        let parameters = parameters.clone();
        Ok(Self { parameters, key })
    }
}

impl<W: Word> EvaluationKeys<W> {
    /// Appends the bytes.
    pub fn encode(&self, out: &mut Vec<u8>) {
        self.keys.encode(out);
    }

    /// The keys of exactly these bytes. What they take when expanded is about twice their length;
    /// limit that before.
    ///
    /// # Errors
    /// [`WireError`] says what is wrong with them.
    pub fn decode(parameters: &Parameters<W>, bytes: &[u8]) -> Result<Self, WireError> {
        let keys = rns::EvaluationKeys::decode(parameters.ring(), bytes)?;
        if keys.max_power() > 1 {
            return Err(WireError::Range {
                field: "the highest power",
                found: keys.max_power() as u64,
                low: 1,
                high: 1,
            });
        }
        let parameters = parameters.clone();
        Ok(Self { parameters, keys })
    }
}

impl<W: Word> Answer<W> {
    /// Appends the bytes.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let n = self.parameters.n();
        header(self.parameters.ring(), ANSWER, out);
        out.extend(shape(&self.format));
        let (b, a) = self.words.split_at(self.words.len() / 2);
        for (limb, polys) in b.chunks_exact(n).zip(a.chunks_exact(n)).enumerate() {
            let widths = self.format.widths(&self.parameters, limb);
            bits::pack(polys.0, widths[0], out);
            bits::pack(polys.1, widths[1], out);
        }
    }

    /// Bytes of an answer of this format.
    pub fn encoded_len(parameters: &Parameters<W>, format: &AnswerFormat) -> usize {
        let limb = |limb: usize| -> usize {
            let widths = format.widths(parameters, limb);
            widths
                .iter()
                .map(|&width| bits::packed_len(parameters.n(), width))
                .sum()
        };
        HEADER + shape(format).len() + (0..format.limbs).map(limb).sum::<usize>()
    }

    /// The answer of exactly these bytes, which must have this format.
    ///
    /// # Errors
    /// [`WireError`] says what is wrong with them, or with the format.
    pub fn decode(
        parameters: &Parameters<W>,
        format: &AnswerFormat,
        bytes: &[u8],
    ) -> Result<Self, WireError> {
        let (ring, n) = (parameters.ring(), parameters.n());
        if let Err((field, found, high)) = format.check(parameters) {
            let low = 0;
            return Err(WireError::Range {
                field,
                found,
                low,
                high,
            });
        }
        let mut reader = Reader::new(ring, ANSWER, bytes)?;
        const FIELDS: [&str; 3] = [
            "the number of primes left",
            "the bits dropped of b",
            "the bits dropped of a",
        ];
        for (field, expected) in FIELDS.into_iter().zip(shape(format)) {
            reader.count(field, expected.into(), expected.into())?;
        }
        let expected = Self::encoded_len(parameters, format);
        if bytes.len() != expected {
            return Err(WireError::Length {
                field: "the answer",
                expected,
                found: bytes.len(),
            });
        }
        let mut rest = reader.rest();
        let mut words = vec![W::default(); 2 * format.limbs * n];
        for limb in 0..format.limbs {
            let widths = format.widths(parameters, limb);
            let dropped = [format.dropped_b, format.dropped_a];
            for (poly, (width, dropped)) in widths.into_iter().zip(dropped).enumerate() {
                let (packed, after) = rest.split_at(bits::packed_len(n, width));
                let out = &mut words[(poly * format.limbs + limb) * n..][..n];
                bits::unpack(packed, width, out)?;
                let q = ring.basis().prime(limb);
                if rns::simd::largest(SimdLevel::detect(), out)
                    > (q.word().wrapping_sub(W::from_u64(1))) >> dropped
                {
                    return Err(WireError::Word { limb });
                }
                rest = after;
            }
        }
        Ok(Self {
            parameters: parameters.clone(),
            format: *format,
            words,
        })
    }
}

/// The header of an answer.
fn shape(format: &AnswerFormat) -> [u8; 3] {
    [
        format.limbs as u8,
        format.dropped_b as u8,
        format.dropped_a as u8,
    ]
}
