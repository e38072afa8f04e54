//! Encryption on rings (RLWE), for linear layers on encrypted values and for whole encrypted
//! networks.
//!
//! * [`rlwe`]: values in coefficients modulo one prime, with a seeded `a` that many secrets share.
//!   Servers only add up rows of words with small integer weights, so it needs no evaluation keys
//!   and no products of ciphertexts. [`shares`] gives answers as additive shares.
//! * [`rns`]: the ring on several primes, with its keys and key switching, that the schemes below
//!   stand on.
//! * [`ckks`]: approximate numbers in slots; sums, products, rotations.
//! * [`bfv`]: integers modulo a prime in slots; sums, products with plaintexts, rotations.
//! * [`matrix`]: shares of matrices in coefficients; products with matrices in the clear.
//! * [`multikey`]: ciphertexts under the keys of several parties, on the same ring.
//! * [`flood`]: how large a summand hides noise; for all of them.
//! * [`noise`]: bounds for [`rlwe`] and [`shares`]; each of the other schemes has its own.

pub mod bfv;
pub mod ckks;
pub mod flood;
pub mod matrix;
pub mod multikey;
pub mod noise;
pub mod rlwe;
pub mod rns;
pub mod shares;
mod simd;
mod wipe;

pub use rlwe::{ParameterError, RlweRing, SecretKey};
