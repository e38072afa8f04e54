//! Refusals of operations on the ring.

use pronghorn_ring::random::RandomError;
use thiserror::Error;

use super::MAX_POLYS;

/// Why an operation on the ring is refused; nothing was computed.
#[derive(Debug, Error)]
pub enum RingError {
    /// Operands of different rings.
    #[error("the operands belong to different parameters; make both with one set")]
    Parameters,
    /// Operands at different levels.
    #[error("the operands have {left} and {right} limbs; drop limbs of the one that has more")]
    Limbs {
        /// Limbs of the left operand.
        left: usize,
        /// Limbs of the right operand.
        right: usize,
    },
    /// No limbs would be left.
    #[error(
        "{dropped} of {limbs} limbs cannot go: at least one must stay; plan a longer chain of primes or less depth"
    )]
    TooFewLimbs {
        /// Limbs there are.
        limbs: usize,
        /// Limbs to go.
        dropped: usize,
    },
    /// More limbs than the chain has, or none.
    #[error("{limbs} limbs are asked for; these parameters have 1 to {limit}")]
    NoSuchLimbs {
        /// Limbs asked for.
        limbs: usize,
        /// Limbs of the chain.
        limit: usize,
    },
    /// A public key that is too short.
    #[error(
        "{limbs} limbs are to be encrypted with a public key of {limit}; send a longer key, or drop limbs first"
    )]
    KeyLimbs {
        /// Limbs to be encrypted.
        limbs: usize,
        /// Limbs of the key.
        limit: usize,
    },
    /// Too many polynomials.
    #[error(
        "a ciphertext of {polys} polynomials is not supported (2 to {MAX_POLYS}); relinearise earlier"
    )]
    Polys {
        /// Polynomials asked for.
        polys: usize,
    },
    /// No special primes.
    #[error(
        "these parameters have no special primes, so there is no key switching; add primes as large as a digit"
    )]
    NoSpecialPrimes,
    /// A switching key that is not there.
    #[error("there is no key from s^{power} to s; generate relinearisation keys up to this power")]
    NoPowerKey {
        /// The power of the secret.
        power: usize,
    },
    /// A rotation key that is not there.
    #[error("there is no key for the rotation by {steps} slots; generate it with the others")]
    NoRotationKey {
        /// Slots to the left.
        steps: i64,
    },
    /// No conjugation key.
    #[error("there is no key for complex conjugation; generate it with the others")]
    NoConjugationKey,
    /// No randomness.
    #[error(transparent)]
    Random(#[from] RandomError),
}
