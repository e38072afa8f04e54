//! The parameters of an encrypted network, and the sizes that follow from them.

use pronghorn_ring::bits::packed_len;
use serde::{Deserialize, Serialize};

use crate::{cost::SEED_BYTES, rlwe::WordSize};

/// Most batches of a connection's keys: the planner's choice. Four times as many make the flood
/// larger by a bit.
pub const KEY_BATCHES: u64 = 1 << 10;

/// Degrees of the ring.
pub const DEGREES: [usize; 4] = [1 << 12, 1 << 13, 1 << 14, 1 << 15];

/// Most polynomials of a ciphertext.
pub const MAX_POLYS: usize = 9;

/// Version, kind, hash of the parameters, seed, highest power, number of automorphisms.
const KEY_HEADER_BYTES: usize = 2 + 32 + 32 + 1 + 4;

/// Most primes of the modulus.
pub const MAX_LIMBS: usize = 64;

/// The one step of an encrypted network, as both parties know it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EncryptedPlan {
    /// Words of the ciphertexts.
    pub word: WordSize,
    /// Degree `N` of the ring; a batch has up to `N / 2` images.
    pub degree: usize,
    /// Primes of the modulus, `= 1 mod 2N`; ciphertexts from the client use all.
    pub primes: Vec<u64>,
    /// Special primes of the client's evaluation keys; none where the server relinearises nothing.
    pub special_primes: Vec<u64>,
    /// Evaluation keys go from `s^2` to this power of the client's secret; 1 for none.
    pub key_power: usize,
    /// An input `x` is encoded as `x * 2^scale_log`.
    pub scale_log: u32,
    /// Primes left where the answer is re-randomised and flooded: those the client's public key
    /// needs.
    pub flood_limbs: usize,
    /// Each coefficient of the answer's first polynomial gets a flood within `+-2^flood_log`.
    pub flood_log: u32,
    /// All answers under a client's keys are within statistical distance `2^-flood_bits` of what
    /// their values say, while every value inside stays within the ranges that the arithmetic
    /// carries.
    pub flood_bits: u32,
    /// Most batches of a client's keys.
    pub key_batches: u64,
    /// Polynomials of an answer.
    pub answer_polys: usize,
    /// Primes left in an answer.
    pub answer_limbs: usize,
    /// A result `y` is `y * answer_scale` in a slot of the answer.
    pub answer_scale: f64,
    /// Bound on the error of a result, exceeded by one result in `2^40` at most; in units of the
    /// result.
    pub error: f64,
    /// Predicted seconds of one core of the server for one batch, whatever its images.
    pub server_seconds: f64,
    /// Bytes the server holds while it works on one batch.
    pub server_memory: u64,
}

impl EncryptedPlan {
    /// Images of a full batch.
    pub fn slots(&self) -> usize {
        self.degree / 2
    }

    /// Bytes of the client's public key, without the seed of its uniform half.
    pub fn public_key_bytes(&self) -> usize {
        self.polynomial_bytes(self.flood_limbs)
    }

    /// Bytes of the client's evaluation keys, without what names them; sent once a connection.
    pub fn evaluation_key_bytes(&self) -> usize {
        if self.key_power < 2 {
            return 0;
        }
        let limb = |&prime: &u64| packed_len(self.degree, u64::BITS - prime.leading_zeros());
        let special: usize = self.special_primes.iter().map(limb).sum();
        let digits = self.primes.len().div_ceil(self.special_primes.len().max(1));
        (self.key_power - 1) * digits * (self.polynomial_bytes(self.primes.len()) + special)
    }

    /// Bytes of all keys that a client sends: the seed and the other half of the public key, and
    /// evaluation keys with their header.
    pub fn key_set_bytes(&self) -> usize {
        let evaluation = match self.key_power {
            0 | 1 => 0,
            _ => KEY_HEADER_BYTES + self.evaluation_key_bytes(),
        };
        SEED_BYTES + self.public_key_bytes() + evaluation
    }

    /// Bytes that evaluation keys take at most on either side: expanded, and packed beside it.
    pub fn key_memory(&self) -> u64 {
        let words = self.degree * (self.primes.len() + self.special_primes.len());
        let digits = self.primes.len().div_ceil(self.special_primes.len().max(1));
        let expanded = self.key_power.saturating_sub(1) * digits * words * 2 * 4;
        (expanded + 2 * self.evaluation_key_bytes()) as u64
    }

    /// Bytes of one element of the input, whatever the batch: `b`, packed limb after limb.
    pub fn request_row_bytes(&self) -> usize {
        self.polynomial_bytes(self.primes.len())
    }

    /// Bytes of one element of the result, whatever the batch: its polynomials, packed limb after
    /// limb.
    pub fn answer_row_bytes(&self) -> usize {
        self.answer_polys * self.polynomial_bytes(self.answer_limbs)
    }

    fn polynomial_bytes(&self, limbs: usize) -> usize {
        let limb = |&prime: &u64| packed_len(self.degree, u64::BITS - prime.leading_zeros());
        self.primes[..limbs].iter().map(limb).sum()
    }

    /// Bits of the modulus, special primes included: the sum over its primes of `log2`, rounded up.
    pub fn modulus_bits(&self) -> u32 {
        modulus_bits(&[self.primes.as_slice(), &self.special_primes].concat())
    }
}

/// `ceil(log2(product))`.
pub fn modulus_bits(primes: &[u64]) -> u32 {
    let bits: f64 = primes.iter().map(|&prime| (prime as f64).log2()).sum();
    bits.ceil() as u32
}
