//! Bytes of multi-key objects.
//!
//! All integers are little-endian. Every object begins with version and kind, a byte each, and the
//! 32 bytes of [`Common::id`]. Polynomials are as in [`rns::wire`], `|R_l|` bytes
//! for `l` limbs, `|R|` with the special primes; `d` digits, `l` limbs and `k` parties:
//!
//! | kind | then | bytes after the header of 34 |
//! |---|---|---|
//! | 16 public keys | `b` to encrypt, what follows (1: bit 0 keys for pairs, bit 1 linear ones), seed of `d_1` (32), `b`, `d_0`, `d_2`, linear `b` and `d_2`, the party's [`EvaluationKeys`] | `1 + \|R\|`, `32 + 3 d \|R\|` more with keys for pairs, `2 l \|R\|` more with linear keys, and those of kind 4: `71 + 4 g + (1 + g) d \|R\|` for `g` automorphisms |
//! | 17 ciphertext | parties (1), limbs (1), names (32 each), polynomials | `2 + 32 k + (k + 1) \|R_l\|` |
//! | 18 CKKS ciphertext | scale (8), then as 17 | 8 more |
//! | 19 contribution | party (32), digest of the result (32), then as 17 | 64 more |
//! | 20 partial decryption | party (32), digest (32), limbs (1), polynomial | `65 + \|R_l\|` |
//! | 22 key of a pair | the party that made it (32), the party that it is under (32), both halves | `64 + 2 d \|R\|` |
//! | 21 ledger | party (32), hash of the rule (32), results in progress (8) and given (8), digests | `80 + 64 p + 32 g` |

use std::collections::{BTreeMap, BTreeSet};

use pronghorn_ring::Word;

use super::{
    Ciphertext, Common, Contribution, Decryptor, Extended, Ledger, MAX_PARTIES, MultiKeyError,
    PairKey, Partial, Party, PublicKeys, Rule, SecretKey,
    keys::{LinearKeys, Pairwise, Parts},
};
pub use crate::rns::wire::{VERSION, WireError};
use crate::rns::{
    self, EvaluationKeys,
    wire::{Reader, header_of, pack},
};

const PUBLIC_KEYS: u8 = 16;
const EXTENDED: u8 = 17;
const CIPHERTEXT: u8 = 18;
const CONTRIBUTION: u8 = 19;
const PARTIAL: u8 = 20;
const LEDGER: u8 = 21;
const PAIR_KEY: u8 = 22;

impl<W: Word> PublicKeys<W> {
    /// Appends the bytes.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let ring = self.common.ring();
        let all = ring.basis().limbs();
        header_of(self.common.id(), PUBLIC_KEYS, out);
        pack(ring, all, self.encryption.b(), out);
        out.push(u8::from(self.pairwise.is_some()) + 2 * u8::from(self.linear.is_some()));
        if let Some(keys) = &self.pairwise {
            out.extend(keys.seed);
            for key in [&keys.b, &keys.d0, &keys.d2] {
                pack(ring, all, key, out);
            }
        }
        for key in self.linear.iter().flat_map(|keys| [&keys.b, &keys.d2]) {
            pack(ring, all, key, out);
        }
        self.own.encode(out);
    }

    /// The keys of exactly these bytes. What they take when expanded is about twice their length;
    /// limit that before.
    ///
    /// # Errors
    /// [`WireError`] says what is wrong with them.
    pub fn decode(common: &Common<W>, bytes: &[u8]) -> Result<Self, WireError> {
        let (ring, mut reader) = (
            common.ring(),
            Reader::with_hash(common.id(), PUBLIC_KEYS, bytes)?,
        );
        let (all, digits) = (ring.basis().limbs(), ring.pieces().len());
        let b = reader.next_polys(ring, 1, all)?;
        let encryption = rns::PublicKey::from_parts(ring, *common.seed(), b);
        let there = reader.count("the presence of keys for pairs and linear ones", 0, 3)?;
        let pairwise = match there & 1 {
            0 => None,
            _ => {
                let seed = reader.array("the seed")?;
                let mut keys = || reader.next_polys(ring, digits, all);
                let vectors = [keys()?, keys()?, keys()?];
                Some(Pairwise::new(common, seed, vectors))
            }
        };
        let mut keys = || reader.next_polys(ring, ring.limbs(), all);
        let linear = match there & 2 {
            0 => None,
            _ => Some(LinearKeys {
                b: keys()?,
                d2: keys()?,
            }),
        };
        let own = EvaluationKeys::decode(ring, reader.rest())?;
        if own.max_power() < 2 {
            return Err(WireError::Range {
                field: "the highest power",
                found: own.max_power() as u64,
                low: 2,
                high: (rns::MAX_POLYS - 1) as u64,
            });
        }
        let parts = Parts {
            encryption,
            pairwise,
            linear,
            own,
        };
        Ok(Self::from_parts(common, parts))
    }
}

impl<W: Word> PairKey<W> {
    /// Appends the bytes.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let ring = self.common().ring();
        header_of(self.common().id(), PAIR_KEY, out);
        out.extend(self.parties().iter().flat_map(|party| party.0));
        for half in self.halves() {
            pack(ring, ring.basis().limbs(), half, out);
        }
    }

    /// The key of exactly these bytes.
    ///
    /// # Errors
    /// [`WireError`] says what is wrong with them.
    pub fn decode(common: &Common<W>, bytes: &[u8]) -> Result<Self, WireError> {
        let ring = common.ring();
        let mut reader = Reader::with_hash(common.id(), PAIR_KEY, bytes)?;
        let mut party = || Ok::<_, WireError>(Party(reader.array("the name of a party")?));
        let parties = [party()?, party()?];
        let (digits, all) = (ring.pieces().len(), ring.basis().limbs());
        let mut half = reader.polys(ring, 2 * digits, all)?;
        let second = half.split_off(half.len() / 2);
        Ok(Self::from_parts(common, parties, [half, second]))
    }
}

impl<W: Word> Extended<W> {
    /// Appends the bytes.
    pub fn encode(&self, out: &mut Vec<u8>) {
        header_of(self.common().id(), EXTENDED, out);
        self.encode_body(out);
    }

    /// The ciphertext of exactly these bytes.
    ///
    /// # Errors
    /// [`WireError`] says what is wrong with them.
    pub fn decode(common: &Common<W>, bytes: &[u8]) -> Result<Self, WireError> {
        let reader = Reader::with_hash(common.id(), EXTENDED, bytes)?;
        Self::decode_body(common, reader)
    }

    /// BLAKE3 of the bytes.
    pub fn digest(&self) -> [u8; 32] {
        let mut bytes = Vec::new();
        self.encode(&mut bytes);
        *blake3::hash(&bytes).as_bytes()
    }

    fn encode_body(&self, out: &mut Vec<u8>) {
        out.extend([self.parties().len() as u8, self.limbs() as u8]);
        out.extend(self.parties().iter().flat_map(|party| party.0));
        pack(self.common().ring(), self.limbs(), self.data(), out);
    }

    fn decode_body(common: &Common<W>, mut reader: Reader<'_>) -> Result<Self, WireError> {
        let count = reader.count("the number of parties", 1, MAX_PARTIES)?;
        let limbs = reader.limbs(common.ring())?;
        let mut parties = Vec::with_capacity(count);
        for index in 0..count {
            let party = Party(reader.array("the name of a party")?);
            if parties.last().is_some_and(|last| *last >= party) {
                return Err(out_of_order("the names of parties", index));
            }
            parties.push(party);
        }
        let data = reader.polys(common.ring(), count + 1, limbs)?;
        let damaged = |error| match error {
            MultiKeyError::Components { words, expected } => WireError::Length {
                field: "the polynomials",
                expected,
                found: words,
            },
            _ => WireError::Parameters,
        };
        Self::from_words(common, parties, limbs, data).map_err(damaged)
    }
}

impl<W: Word> Ciphertext<W> {
    /// Appends the bytes.
    pub fn encode(&self, out: &mut Vec<u8>) {
        header_of(self.extended().common().id(), CIPHERTEXT, out);
        out.extend(self.scale().to_le_bytes());
        self.extended().encode_body(out);
    }

    /// The ciphertext of exactly these bytes.
    ///
    /// # Errors
    /// [`WireError`] says what is wrong with them.
    pub fn decode(common: &Common<W>, bytes: &[u8]) -> Result<Self, WireError> {
        let mut reader = Reader::with_hash(common.id(), CIPHERTEXT, bytes)?;
        let scale = f64::from_le_bytes(reader.array("the scale")?);
        let inner = Extended::decode_body(common, reader)?;
        let log_modulus = common.ring().log_modulus(inner.limbs());
        Self::new(inner, scale).map_err(|_| WireError::Scale { scale, log_modulus })
    }
}

impl<W: Word> Contribution<W> {
    /// Appends the bytes.
    pub fn encode(&self, out: &mut Vec<u8>) {
        header_of(self.zero.common().id(), CONTRIBUTION, out);
        out.extend(self.party.0);
        out.extend(self.result);
        self.zero.encode_body(out);
    }

    /// The contribution of exactly these bytes.
    ///
    /// # Errors
    /// [`WireError`] says what is wrong with them.
    pub fn decode(common: &Common<W>, bytes: &[u8]) -> Result<Self, WireError> {
        let mut reader = Reader::with_hash(common.id(), CONTRIBUTION, bytes)?;
        Ok(Self {
            party: Party(reader.array("the name of a party")?),
            result: reader.array("the digest of the result")?,
            zero: Extended::decode_body(common, reader)?,
        })
    }
}

impl<W: Word> Partial<W> {
    /// Appends the bytes.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let ring = self.common.ring();
        let limbs = self.share.len() / ring.n();
        header_of(self.common.id(), PARTIAL, out);
        out.extend(self.party.0);
        out.extend(self.session);
        out.push(limbs as u8);
        pack(ring, limbs, &self.share, out);
    }

    /// The partial decryption of exactly these bytes.
    ///
    /// # Errors
    /// [`WireError`] says what is wrong with them.
    pub fn decode(common: &Common<W>, bytes: &[u8]) -> Result<Self, WireError> {
        let mut reader = Reader::with_hash(common.id(), PARTIAL, bytes)?;
        let party = Party(reader.array("the name of a party")?);
        let session = reader.array("the digest of the result")?;
        let limbs = reader.limbs(common.ring())?;
        Ok(Self {
            common: common.clone(),
            party,
            session,
            share: reader.polys(common.ring(), 1, limbs)?,
        })
    }
}

impl<W: Word> Decryptor<W> {
    /// The bytes of what this party gave, to be kept for [`resume`](Self::resume).
    pub fn ledger(&self) -> Vec<u8> {
        let Ledger { offered, given } = &self.ledger;
        let mut out = Vec::new();
        header_of(self.secret.common().id(), LEDGER, &mut out);
        out.extend(self.party().0);
        out.extend(self.rule.hash());
        for count in [offered.len(), given.len()] {
            out.extend((count as u64).to_le_bytes());
        }
        out.extend(
            offered
                .iter()
                .flat_map(|(result, own)| [result, own])
                .flatten(),
        );
        out.extend(given.iter().flatten());
        out
    }

    /// A decryptor with the ledger that an earlier one kept.
    ///
    /// # Errors
    /// When the bytes are no ledger, or belong to another key or rule.
    pub fn resume(
        secret: SecretKey<W>,
        rule: &Rule<W>,
        ledger: &[u8],
    ) -> Result<Self, ResumeError> {
        let mut made = Self::new(secret, rule)?;
        let mut reader = Reader::with_hash(made.secret.common().id(), LEDGER, ledger)?;
        let own = reader.array("the name of a party")? == made.party().0
            && reader.array("the hash of the rule")? == rule.hash();
        if !own {
            return Err(MultiKeyError::Ledger.into());
        }
        let counts = [
            reader.array("the results in progress")?,
            reader.array("the results given")?,
        ];
        let [open, given] = counts.map(|count| u64::from_le_bytes(count) as usize);
        let digests = |bytes: &[u8]| -> Vec<[u8; 32]> { bytes.as_chunks().0.to_vec() };
        let pairs = digests(reader.bytes("the results in progress", open.saturating_mul(64))?);
        let results = digests(reader.bytes("the results given", given.saturating_mul(32))?);
        reader.end()?;
        let offered: BTreeMap<_, _> = pairs.chunks_exact(2).map(|x| (x[0], x[1])).collect();
        let ledger = Ledger {
            given: results.iter().copied().collect::<BTreeSet<_>>(),
            offered,
        };
        let fits = ledger.offered.len() == open
            && ledger.given.len() == given
            && ledger.given.len() as u64 <= rule.limits().results
            && ledger.offered.keys().all(|key| !ledger.given.contains(key));
        if !fits {
            return Err(out_of_order("the digests of a ledger", given).into());
        }
        made.ledger = ledger;
        Ok(made)
    }
}

/// Why a decryptor does not resume.
#[derive(Debug, thiserror::Error)]
pub enum ResumeError {
    /// The bytes are no ledger.
    #[error(transparent)]
    Wire(#[from] WireError),
    /// It belongs to another key or rule.
    #[error(transparent)]
    MultiKey(#[from] MultiKeyError),
}

/// Names or digests that are not ascending, or there twice.
fn out_of_order(field: &'static str, index: usize) -> WireError {
    WireError::Range {
        field,
        found: index as u64,
        low: 0,
        high: (MAX_PARTIES - 1) as u64,
    }
}
