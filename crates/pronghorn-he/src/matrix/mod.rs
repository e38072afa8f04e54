//! Products of two shared matrices: one party's share of a factor encrypted, the other's in the
//! clear, in coefficients.
//!
//! With `X = X_0 + X_1` and `Y = Y_0 + Y_1` modulo `2^bits`, shares of a server and a client, `X Y =
//! X_0 Y_0 + X_1 Y_1 + X_1 Y_0 + X_0 Y_1`. Each party multiplies its own shares. The client sends
//! `X_1` and `Y_1` encrypted, and the server multiplies them with `Y_0` and `X_0`. So the client
//! gets an additive share of the sum, and the server has the other.
//!
//! * A share `m` is in a coefficient as `round(Q m / 2^bits)`, for `Q` of two primes, so that what
//!   wraps around `2^bits` wraps around `Q`. [`Layout`] says in which coefficient.
//! * Numbers in the clear have up to `bits` bits, so noise grows by as much, and `Q` has about
//!   `2 bits` more than noise needs. An answer is divided by one of the primes before it is sent,
//!   and most of the noise goes. So an answer's coefficient is little longer than a share.
//! * To an answer the server adds an encryption of zero under the client's public key. So its `a`
//!   is a sample of RLWE under a secret that the client does not have. To each coefficient of `b`
//!   that it sends it adds a uniform mask. So the client sees nothing but its share
//!   ([`bfv::hide`](crate::bfv::hide) says so in detail; a false public key is dealt with there).
//! * Both answers are added up before they become shares: an error of at most one unit in the last
//!   of the `guard` bits below the unit of values, as in [`shares`](crate::shares).
//!
//! Source: "Iron" (Hao et al., NeurIPS 2022), section 4.1, for the blocks. There matrices in the
//! clear are weights, and noise is flooded.

mod client;
mod layout;
mod parameters;
mod server;
#[cfg(test)]
mod tests;

use thiserror::Error;

pub use client::MatrixClient;
pub use layout::{Layout, Side, Sizes, Widths};
pub use parameters::{Dropped, MOST_ANSWERS, Parameters, Setting};
pub use server::{MatrixMasks, MatrixServer};

use crate::rns;

/// Why there is no such product.
#[derive(Debug, Error)]
pub enum MatrixError {
    /// Words that are too long or too short.
    #[error("shares of {bits} bits with {guard} guard bits: take 1 to 32 bits in all")]
    Bits {
        /// Of factors.
        bits: u32,
        /// Of answers, below the unit.
        guard: u32,
    },
    /// Sizes without parameters.
    #[error(
        "no parameters have room for products of {sizes:?} on shares of {bits} bits: take fewer bits"
    )]
    Room {
        /// Of the matrices.
        sizes: Sizes,
        /// Of shares of factors.
        bits: u32,
    },
    /// Parameters that the ring refuses.
    #[error(transparent)]
    Ring(#[from] rns::ParameterError),
}
