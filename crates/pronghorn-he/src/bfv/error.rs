//! Refusals of operations.

use pronghorn_ring::random::RandomError;
use thiserror::Error;

use crate::rns::RingError;

/// Why an operation is refused; nothing was computed.
#[derive(Debug, Error)]
pub enum BfvError {
    /// Too many values.
    #[error("{values} values do not fit {slots} slots; split them over several plaintexts")]
    Slots {
        /// Values given.
        values: usize,
        /// Slots there are.
        slots: usize,
    },
    /// A rotation of an input that does not exist, a row of factors of another length, or an
    /// invalid format of an answer.
    #[error(
        "{field} is {found}, which does not go with {limit}; give a factor for each rotation of each output, rotations of inputs that \
         exist, and formats of the same parameters"
    )]
    Shape {
        /// What does not fit.
        field: &'static str,
        /// Its value.
        found: usize,
        /// The number there is.
        limit: usize,
    },
    /// No room for the noise.
    #[error(
        "noise of 2^{log_noise:.1} does not fit the room of 2^{log_room:.1} that the modulus leaves beside t and a mask; take more or larger primes, a smaller t, smaller digits of the key switch, or fewer rotations"
    )]
    NoRoom {
        /// Bits of its standard deviation.
        log_noise: f64,
        /// Bits of the largest that fits.
        log_room: f64,
    },
    /// An answer's number was taken before.
    #[error("answer {row} does not exist: one hider hides 2^32 answers")]
    Row {
        /// The number.
        row: u64,
    },
    /// Refused by the ring: other parameters, or a key that is not there.
    #[error(transparent)]
    Ring(#[from] RingError),
    /// No randomness.
    #[error(transparent)]
    Random(#[from] RandomError),
}
