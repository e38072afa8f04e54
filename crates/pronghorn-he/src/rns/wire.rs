//! Bytes of polynomials and of the keys that schemes share.
//!
//! Every object starts with [`VERSION`], its kind, and the hash of its parameters; numbers are
//! little-endian. Polynomials follow limb by limb, each limb packed to the bits of its prime
//! ([`pronghorn_ring::bits`]):
//!
//! | kind | then |
//! |---|---|
//! | 3 public key | limbs (1), seed (32), `b` |
//! | 4 evaluation keys | seed (32), highest power of the secret (1), number of automorphisms (4), their elements in ascending order (4 each), `b` of every digit of every key, powers first |
//!
//! What a peer sends is hostile until decoded: lengths are checked before anything is allocated,
//! words against their primes. Secret keys have no bytes.

use pronghorn_ring::{SimdLevel, Word, bits};
use thiserror::Error;

use super::{EvaluationKeys, MAX_POLYS, Parameters, PublicKey, simd};

/// Version of the format.
pub const VERSION: u8 = 2;

const PUBLIC_KEY: u8 = 3;
const EVALUATION_KEYS: u8 = 4;

/// Why bytes are no object.
#[derive(Debug, Error)]
pub enum WireError {
    /// Too few or too many bytes.
    #[error(
        "{field} takes {expected} bytes, {found} are left; the message is cut short or damaged"
    )]
    Length {
        /// The value that was read.
        field: &'static str,
        /// Bytes it takes.
        expected: usize,
        /// Bytes there are.
        found: usize,
    },
    /// Another version.
    #[error("version {found} is not {VERSION}; use the same version of the program on both sides")]
    Version {
        /// The value that was read.
        found: u8,
    },
    /// Another kind of object.
    #[error("an object of kind {found} stands where kind {expected} is wanted")]
    Kind {
        /// The value that was read.
        found: u8,
        /// The value that was expected.
        expected: u8,
    },
    /// Other parameters.
    #[error("the object was made with other parameters; compare degree and primes on both sides")]
    Parameters,
    /// A word that is no residue.
    #[error("a word of limb {limb} is not below its prime; the message is damaged")]
    Word {
        /// The limb.
        limb: usize,
    },
    /// Keys for parameters that have none.
    #[error("these parameters have no special primes, so there are no evaluation keys")]
    NoSpecialPrimes,
    /// A number out of its range.
    #[error("{field} is {found}, which is not one of {low} to {high} that may stand there")]
    Range {
        /// The value that was read.
        field: &'static str,
        /// Its value.
        found: u64,
        /// The least it may be.
        low: u64,
        /// The most it may be.
        high: u64,
    },
    /// A scale that is not positive and finite, or too large for the modulus.
    #[error(
        "scale {scale:e} is not positive or not below half of the modulus of 2^{log_modulus:.1}; the message is damaged"
    )]
    Scale {
        /// The value that was read.
        scale: f64,
        /// Bits of the modulus.
        log_modulus: f64,
    },
    /// Padding that is not zero.
    #[error(transparent)]
    Packing(#[from] bits::PackError),
}

/// Bytes that a polynomial of `limbs` limbs takes.
///
/// # Panics
/// When there are no such limbs.
pub fn packed_len<W: Word>(parameters: &Parameters<W>, limbs: usize) -> usize {
    assert!(
        limbs <= parameters.basis().limbs(),
        "no more limbs than there are primes"
    );
    let primes = parameters.basis().primes().take(limbs);
    primes
        .map(|q| bits::packed_len(parameters.n(), q.bits()))
        .sum()
}

/// Appends whole polynomials `[poly][limb][N]`.
///
/// # Panics
/// Unless `x` is whole polynomials of `limbs` limbs.
pub fn pack<W: Word>(parameters: &Parameters<W>, limbs: usize, x: &[W], out: &mut Vec<u8>) {
    let n = parameters.n();
    assert!(
        limbs > 0 && x.len().is_multiple_of(limbs * n),
        "whole polynomials of whole limbs"
    );
    for (x, limb) in x.chunks_exact(n).zip((0..limbs).cycle()) {
        bits::pack(x, parameters.basis().prime(limb).bits(), out);
    }
}

/// Fills whole polynomials `[poly][limb][N]` from exactly their bytes, and checks every word.
///
/// # Errors
/// When the length is another, padding is not zero, or a word is not below its prime; `out` is then
/// unspecified.
///
/// # Panics
/// Unless `out` is whole polynomials of `limbs` limbs.
pub fn unpack<W: Word>(
    parameters: &Parameters<W>,
    limbs: usize,
    bytes: &[u8],
    out: &mut [W],
) -> Result<(), WireError> {
    let n = parameters.n();
    assert!(
        limbs > 0 && out.len().is_multiple_of(limbs * n),
        "whole polynomials of whole limbs"
    );
    let expected = out.len() / (limbs * n) * packed_len(parameters, limbs);
    if bytes.len() != expected {
        return Err(WireError::Length {
            field: "the polynomials",
            expected,
            found: bytes.len(),
        });
    }
    let mut rest = bytes;
    for (out, limb) in out.chunks_exact_mut(n).zip((0..limbs).cycle()) {
        let q = parameters.basis().prime(limb);
        let (packed, after) = rest.split_at(bits::packed_len(n, q.bits()));
        bits::unpack(packed, q.bits(), out)?;
        if simd::largest(SimdLevel::detect(), out) >= q.word() {
            return Err(WireError::Word { limb });
        }
        rest = after;
    }
    Ok(())
}

impl<W: Word> PublicKey<W> {
    /// Appends the bytes.
    pub fn encode(&self, out: &mut Vec<u8>) {
        header(self.parameters(), PUBLIC_KEY, out);
        out.push(self.limbs() as u8);
        out.extend(self.seed());
        pack(self.parameters(), self.limbs(), self.b(), out);
    }

    /// The key of exactly these bytes.
    ///
    /// # Errors
    /// [`WireError`] says what is wrong with them.
    pub fn decode(parameters: &Parameters<W>, bytes: &[u8]) -> Result<Self, WireError> {
        let mut reader = Reader::new(parameters, PUBLIC_KEY, bytes)?;
        let limbs = reader.count("the number of limbs", 1, parameters.basis().limbs())?;
        let seed = reader.array("the seed")?;
        let b = reader.polys(parameters, 1, limbs)?;
        Ok(Self::from_parts(parameters, seed, b))
    }
}

impl<W: Word> EvaluationKeys<W> {
    /// Appends the bytes.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let (parameters, limbs) = (self.parameters(), self.parameters().basis().limbs());
        let (seed, powers, galois) = self.parts();
        let galois: Vec<_> = galois.collect();
        let elements = galois.iter().map(|(element, _)| element);
        header_of_keys(parameters, seed, self.max_power(), elements, out);
        for b in powers.chain(galois.iter().map(|(_, b)| *b)) {
            pack(parameters, limbs, b, out);
        }
    }

    /// The keys of exactly these bytes. What they take when expanded is about twice their length;
    /// limit that before.
    ///
    /// # Errors
    /// [`WireError`] says what is wrong with them.
    pub fn decode(parameters: &Parameters<W>, bytes: &[u8]) -> Result<Self, WireError> {
        let mut reader = Reader::new(parameters, EVALUATION_KEYS, bytes)?;
        let (limbs, digits) = (parameters.basis().limbs(), parameters.pieces().len());
        if digits == 0 {
            return Err(WireError::NoSpecialPrimes);
        }
        let seed = reader.array("the seed")?;
        let max_power = reader.count("the highest power", 1, MAX_POLYS - 1)?;
        let elements = reader.elements(parameters.n())?;
        let keys = max_power - 1 + elements.len();
        let mut polys = reader.polys(parameters, keys * digits, limbs)?;
        let words = digits * limbs * parameters.n();
        let galois_words = polys.split_off((max_power - 1) * words);
        let powers = polys.chunks_exact(words).map(<[W]>::to_vec).collect();
        let galois = elements
            .into_iter()
            .zip(galois_words.chunks_exact(words).map(<[W]>::to_vec))
            .collect();
        Ok(Self::from_parts(parameters, seed, powers, galois))
    }
}

/// Appends the bytes of evaluation keys before their `b`.
pub(super) fn header_of_keys<'a, W: Word>(
    parameters: &Parameters<W>,
    seed: &[u8; 32],
    max_power: usize,
    elements: impl ExactSizeIterator<Item = &'a u32>,
    out: &mut Vec<u8>,
) {
    header(parameters, EVALUATION_KEYS, out);
    out.extend(seed);
    out.push(max_power as u8);
    out.extend((elements.len() as u32).to_le_bytes());
    out.extend(elements.flat_map(|element| element.to_le_bytes()));
}

/// Version, kind and parameters.
pub(crate) fn header<W: Word>(parameters: &Parameters<W>, kind: u8, out: &mut Vec<u8>) {
    header_of(parameters.hash(), kind, out);
}

/// Bytes in front of the polynomial of a public key: the header, limbs, and the seed of `a`.
pub(crate) const PUBLIC_KEY_HEAD: usize = 2 + 32 + 1 + 32;

/// Version, kind and a hash of what both parties agree on.
pub(crate) fn header_of(hash: &[u8; 32], kind: u8, out: &mut Vec<u8>) {
    out.extend([VERSION, kind]);
    out.extend(hash);
}

/// What is left of an object's bytes.
pub(crate) struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    /// Checks what [`header`] writes.
    pub(crate) fn new<W: Word>(
        parameters: &Parameters<W>,
        expected: u8,
        bytes: &'a [u8],
    ) -> Result<Self, WireError> {
        Self::with_hash(parameters.hash(), expected, bytes)
    }

    /// Checks what [`header_of`] writes.
    pub(crate) fn with_hash(
        hash: &[u8; 32],
        expected: u8,
        bytes: &'a [u8],
    ) -> Result<Self, WireError> {
        let mut reader = Self { rest: bytes };
        let [found] = reader.array("the version")?;
        if found != VERSION {
            return Err(WireError::Version { found });
        }
        let [found] = reader.array("the kind")?;
        if found != expected {
            return Err(WireError::Kind { found, expected });
        }
        if reader.array::<32>("the hash of the parameters")? != *hash {
            return Err(WireError::Parameters);
        }
        Ok(reader)
    }

    /// The next bytes.
    pub(crate) fn array<const L: usize>(
        &mut self,
        field: &'static str,
    ) -> Result<[u8; L], WireError> {
        let (expected, found) = (L, self.rest.len());
        let (array, rest) = self.rest.split_first_chunk().ok_or(WireError::Length {
            field,
            expected,
            found,
        })?;
        self.rest = rest;
        Ok(*array)
    }

    /// Which `a` of a seed.
    pub(crate) fn number(&mut self) -> Result<u64, WireError> {
        let field = "the number of a";
        let found = u64::from_le_bytes(self.array(field)?);
        let (low, high) = (0, (1 << 48) - 1);
        if found <= high {
            return Ok(found);
        }
        Err(WireError::Range {
            field,
            found,
            low,
            high,
        })
    }

    /// The next so many bytes.
    pub(crate) fn bytes(
        &mut self,
        field: &'static str,
        expected: usize,
    ) -> Result<&'a [u8], WireError> {
        let found = self.rest.len();
        let (bytes, rest) = self
            .rest
            .split_at_checked(expected)
            .ok_or(WireError::Length {
                field,
                expected,
                found,
            })?;
        self.rest = rest;
        Ok(bytes)
    }

    /// The next polynomials.
    pub(crate) fn next_polys<W: Word>(
        &mut self,
        parameters: &Parameters<W>,
        polys: usize,
        limbs: usize,
    ) -> Result<Vec<W>, WireError> {
        let length = packed_len(parameters, limbs).saturating_mul(polys);
        let bytes = self.bytes("the polynomials", length)?;
        let mut data = vec![W::default(); polys * limbs * parameters.n()];
        unpack(parameters, limbs, bytes, &mut data)?;
        Ok(data)
    }

    /// Refuses bytes that are left.
    pub(crate) fn end(self) -> Result<(), WireError> {
        match self.rest.len() {
            0 => Ok(()),
            found => Err(WireError::Length {
                field: "the end of the object",
                expected: 0,
                found,
            }),
        }
    }

    /// What was not read.
    pub(crate) fn rest(self) -> &'a [u8] {
        self.rest
    }

    /// A byte in a range.
    pub(crate) fn count(
        &mut self,
        field: &'static str,
        low: usize,
        high: usize,
    ) -> Result<usize, WireError> {
        let [count] = self.array(field)?;
        let count = usize::from(count);
        if (low..=high).contains(&count) {
            Ok(count)
        } else {
            let (found, low, high) = (count as u64, low as u64, high as u64);
            Err(WireError::Range {
                field,
                found,
                low,
                high,
            })
        }
    }

    /// Elements of automorphisms: odd, ascending, between 1 and `2n`.
    fn elements(&mut self, n: usize) -> Result<Vec<u32>, WireError> {
        let field = "the number of automorphisms";
        let count = u32::from_le_bytes(self.array(field)?) as usize;
        // Every one takes bytes of its own, so this bounds what is allocated.
        let (expected, found) = (count.saturating_mul(4), self.rest.len());
        if expected > found {
            return Err(WireError::Length {
                field,
                expected,
                found,
            });
        }
        let mut elements: Vec<u32> = Vec::with_capacity(count);
        for _ in 0..count {
            let field = "the element of an automorphism";
            let element = u32::from_le_bytes(self.array(field)?);
            let (low, high) = (elements.last().map_or(3, |last| last + 2), 2 * n as u32 - 1);
            if element % 2 == 0 || !(low..=high).contains(&element) {
                let (found, low, high) = (element.into(), low.into(), high.into());
                return Err(WireError::Range {
                    field,
                    found,
                    low,
                    high,
                });
            }
            elements.push(element);
        }
        Ok(elements)
    }

    /// A number of limbs that ciphertexts have.
    pub(crate) fn limbs<W: Word>(
        &mut self,
        parameters: &Parameters<W>,
    ) -> Result<usize, WireError> {
        self.count("the number of limbs", 1, parameters.limbs())
    }

    /// All bytes that are left, as polynomials.
    pub(crate) fn polys<W: Word>(
        &mut self,
        parameters: &Parameters<W>,
        polys: usize,
        limbs: usize,
    ) -> Result<Vec<W>, WireError> {
        let expected = packed_len(parameters, limbs).saturating_mul(polys);
        let found = self.rest.len();
        if found != expected {
            return Err(WireError::Length {
                field: "the polynomials",
                expected,
                found,
            });
        }
        let mut data = vec![W::default(); polys * limbs * parameters.n()];
        unpack(parameters, limbs, std::mem::take(&mut self.rest), &mut data)?;
        Ok(data)
    }
}
