//! The RLWE parameters of a linear step, and the bytes of its rows.

use pronghorn_he::{RlweRing, shares::ShareEncoding};
use pronghorn_ring::{
    bits::packed_len,
    security::{self, SecurityLevel, max_log_q},
};
use serde::{Deserialize, Serialize};

use crate::{
    cost::{WORDS_PER_MESSAGE, rate},
    share_form::ShareForm,
};

/// Degrees of linear steps, smallest first.
pub(crate) const DEGREES: [usize; 2] = [2048, 4096];

/// Bits that a modulus keeps below the table's limit where one `a` serves so many secrets: of the
/// rows of an answer, and of the blocks or images of a client. A hybrid costs log2 of their number
/// in bits, and a bit of the modulus is worth 2.4 at N = 2048.
pub(crate) fn spare_bits(secrets: usize) -> u32 {
    (secrets.ilog2() + 1) * 5 / 12 + 1
}

/// Whether a modulus of `bits` bits keeps those bits below the table's limit.
fn has_margin(degree: usize, bits: u32, secrets: usize) -> bool {
    max_log_q(degree, SecurityLevel::Bits128)
        .is_some_and(|limit| bits + spare_bits(secrets) <= limit)
}

/// The modulus of the shares of a linear step's answer, and their guard bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ShareBits {
    /// Messages live modulo `2^value_bits`.
    pub value_bits: u32,
    /// Bits below the unit that shares of the answer have.
    pub guard_bits: u32,
}

/// Words that hold ciphertext residues.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WordSize {
    /// 32 bits, primes of at most 31.
    U32,
    /// 64 bits, primes of at most 60.
    U64,
}

/// Figures of a word size.
pub(crate) struct WordRates {
    /// Bytes.
    pub bytes: u64,
    /// Multiply-adds a second, one core.
    pub product: f64,
    /// Seconds to encrypt or decrypt a value.
    pub value: f64,
}

impl WordSize {
    pub(crate) fn rates(self) -> WordRates {
        match self {
            Self::U32 => WordRates {
                bytes: 4,
                product: rate::PRODUCT_U32,
                value: rate::VALUE_U32,
            },
            Self::U64 => WordRates {
                bytes: 8,
                product: rate::PRODUCT_U64,
                value: rate::VALUE_U64,
            },
        }
    }
}

/// Ring, modulus and dropped bits of a linear step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rlwe {
    /// Words of the ciphertext.
    pub word: WordSize,
    /// Degree `N` of the ring. In the batch engine: columns of one block.
    pub degree: usize,
    /// The modulus `q`, a prime `= 1 mod 2N`.
    pub modulus: u64,
    /// Low bits the server drops from each word of `b` of its answer.
    pub dropped_bits: u32,
    /// Low bits the server drops from each coefficient of `a` of its answer.
    pub dropped_bits_a: u32,
}

impl Rlwe {
    /// Bits of the modulus: the width of a ciphertext word on the wire.
    pub fn modulus_bits(&self) -> u32 {
        u64::BITS - self.modulus.leading_zeros()
    }

    /// Bits of a coefficient of `a` in the answer.
    pub fn answer_bits_a(&self) -> u32 {
        self.modulus_bits() - self.dropped_bits_a
    }

    /// Bits of a word of `b` in the answer.
    pub fn answer_bits(&self) -> u32 {
        self.modulus_bits() - self.dropped_bits
    }

    /// Bytes of one row of `b`, client to server.
    pub fn request_row_bytes(&self, columns: usize) -> usize {
        packed_len(columns, self.modulus_bits())
    }

    /// Bytes of the public key of a batch, with which answers are re-randomised: whole blocks of
    /// `b`.
    pub fn public_key_bytes(&self, batch: usize) -> usize {
        let blocks = batch.div_ceil(self.degree);
        packed_len(blocks * self.degree, self.modulus_bits())
    }

    /// Bytes of a polynomial `a` of the answer.
    pub fn answer_bytes_a(&self) -> usize {
        packed_len(self.degree, self.answer_bits_a())
    }

    /// Bytes of a row of `b` of the answer.
    pub fn answer_bytes_b(&self, columns: usize) -> usize {
        packed_len(columns, self.answer_bits())
    }

    /// Checks degree and modulus against the security table.
    ///
    /// # Errors
    /// The reason for a refusal.
    pub fn check(&self) -> Result<(), String> {
        if !DEGREES.contains(&self.degree) {
            return Err(format!(
                "its degree is {}, not one of {DEGREES:?}",
                self.degree
            ));
        }
        let refused = match self.word {
            WordSize::U32 => RlweRing::<u32>::new(self.degree, self.modulus).err(),
            WordSize::U64 if self.modulus_bits() > 60 => {
                return Err("its modulus has more than 60 bits".into());
            }
            WordSize::U64 => RlweRing::<u64>::new(self.degree, self.modulus).err(),
        };
        refused.map_or(Ok(()), |error| Err(error.to_string()))
    }

    /// How shares sit in the words; `None` where the modulus does not hold them.
    pub fn share_encoding(&self, shares: ShareBits) -> Option<ShareEncoding> {
        ShareEncoding::new(self.modulus, shares.value_bits, shares.guard_bits)
    }

    /// Checks that the modulus holds shares, that it is secure for so many secrets with one `a`,
    /// and that dropped bits are some of its own.
    ///
    /// # Errors
    /// The reason for a refusal.
    pub(crate) fn check_shares(
        &self,
        shares: ShareBits,
        form: &ShareForm,
        secrets: usize,
    ) -> Result<(), String> {
        self.check()?;
        let bits = self.modulus_bits();
        if self.share_encoding(shares).is_none() {
            return Err(format!(
                "its modulus of {bits} bits does not hold its shares, {shares:?}"
            ));
        }
        if !self.serves(secrets) {
            return Err(format!(
                "its modulus of {bits} bits at degree {} leaves less than 128 bits of security for \
                 {secrets} secrets with one `a`",
                self.degree
            ));
        }
        let dropped = self.dropped_bits.max(self.dropped_bits_a);
        if dropped >= bits - 1 {
            return Err(format!("its answers lose {dropped} bits of {bits}"));
        }
        let (found, needed) = (shares.value_bits, form.value_bits());
        if found != needed {
            return Err(format!(
                "its shares have {found} bits, and {needed} are needed"
            ));
        }
        Ok(())
    }

    /// Whether one `a` may serve so many secrets.
    pub(crate) fn serves(&self, secrets: usize) -> bool {
        has_margin(self.degree, self.modulus_bits(), secrets)
    }

    /// The parameters in words and numbers.
    pub(crate) fn describe(&self) -> String {
        format!(
            "N {}, q {} ({} bits), -{} and -{} bits of a and b down, {}",
            self.degree,
            self.modulus,
            self.modulus_bits(),
            self.dropped_bits_a,
            self.dropped_bits,
            security_of(self.degree, self.modulus_bits())
        )
    }
}

/// The level that degree and modulus reach, for people.
pub(crate) fn security_of(degree: usize, modulus_bits: u32) -> &'static str {
    security::check(degree, modulus_bits).map_or("below 128-bit security", |level| match level {
        SecurityLevel::Bits128 => "128-bit security",
        SecurityLevel::Bits192 => "192-bit security",
        SecurityLevel::Bits256 => "256-bit security",
    })
}

/// Bytes of a stream of words of `width` bits in messages of [`WORDS_PER_MESSAGE`].
pub fn stream_bytes(words: usize, width: u32) -> u64 {
    let whole = (words / WORDS_PER_MESSAGE) as u64 * packed_len(WORDS_PER_MESSAGE, width) as u64;
    whole + packed_len(words % WORDS_PER_MESSAGE, width) as u64
}
