//! What operations refuse.

use pronghorn_ring::random::RandomError;
use thiserror::Error;

use super::MAX_POLYS;

/// Why an operation is refused; nothing was computed.
#[derive(Debug, Error)]
pub enum CkksError {
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
    /// Operands at different scales.
    #[error(
        "the operands have scales {left:e} and {right:e}; encode one at the other's scale, or bring both to one by \
         multiplying with a scalar of the quotient of the scales"
    )]
    Scales {
        /// Scale of the left operand.
        left: f64,
        /// Scale of the right operand.
        right: f64,
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
    /// Too many values.
    #[error("{values} values do not fit {slots} slots; split them over several plaintexts")]
    Slots {
        /// Values given.
        values: usize,
        /// Slots there are.
        slots: usize,
    },
    /// A scale that is not positive and finite, or leaves no room for any value.
    #[error(
        "scale {scale:e} is not positive or not below half of the modulus of 2^{log_modulus:.1}; rescale first, or \
         take a smaller scale or more limbs"
    )]
    Scale {
        /// The scale.
        scale: f64,
        /// Bits of the modulus.
        log_modulus: f64,
    },
    /// A value that does not fit.
    #[error(
        "a value is not finite, or too large for a modulus of 2^{log_modulus:.1} at scale {scale:e}; \
         take a smaller scale, more limbs or smaller values"
    )]
    Value {
        /// The scale.
        scale: f64,
        /// Bits of the modulus.
        log_modulus: f64,
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
    /// More noise than the modulus holds.
    #[error(
        "flooding noise of 2^{log_bound} does not fit a modulus of 2^{log_modulus:.1}; flood before dropping limbs, or \
         plan a larger modulus"
    )]
    Flood {
        /// Bits of the noise.
        log_bound: u32,
        /// Bits of the modulus.
        log_modulus: f64,
    },
    /// No randomness.
    #[error(transparent)]
    Random(#[from] RandomError),
}
