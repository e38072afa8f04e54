//! RLWE encryption for the batch engine: secret keys, ciphertexts with a seeded `a`, decryption
//! from answers whose low bits were dropped, additive shares in place of values, and noise bounds.
//!
//! One ciphertext row holds one tensor element of a whole batch of images, image `j` in
//! coefficient `j`. There is no ciphertext-ciphertext product here, so the server needs no
//! evaluation key and no NTT: every row is a vector of words it adds up with small integer weights.
//!
//! Beside it are two schemes with values in slots, which share one ring on an RNS and its keys: [`ckks`] for approximate numbers, [`bfv`]
//! for integers modulo a prime.

pub mod bfv;
pub mod ckks;
pub mod noise;
pub mod rlwe;
pub mod shares;
mod simd;

pub use rlwe::{ParameterError, RlweRing, SecretKey};
