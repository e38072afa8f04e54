//! Refusals of operations on messages and ciphertexts.

use pronghorn_ring::random::RandomError;
use thiserror::Error;

use crate::rns::RingError;

/// Why an operation is refused; nothing was computed.
#[derive(Debug, Error)]
pub enum CkksError {
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
    /// More noise than the modulus holds.
    #[error(
        "flooding noise of 2^{log_reach} does not fit a modulus of 2^{log_modulus:.1}; flood before dropping limbs, or \
         plan a larger modulus"
    )]
    Flood {
        /// Bits of the noise.
        log_reach: u32,
        /// Bits of the modulus.
        log_modulus: f64,
    },
    /// Refused by the ring: other parameters or limbs, or a key that is not there.
    #[error(transparent)]
    Ring(#[from] RingError),
    /// No randomness.
    #[error(transparent)]
    Random(#[from] RandomError),
}
