//! The ring on an RNS that schemes with values in slots share: primes, keys, key switching, bytes.
//!
//! A ciphertext is polynomials `c_0 ... c_d` in `Z[X] / (X^N + 1)` modulo a chain of primes, and
//! `c_0 + c_1 s + ... + c_d s^d` is what a scheme makes of a message. How it makes it, and what
//! noise means to it, is the scheme's: [`ckks`](crate::ckks) and [`bfv`](crate::bfv) stand on this.
//! In reading order:
//!
//! * [`Parameters`]: degree, chain of primes, special primes, digits of a key switch; at least 128
//!   bits of security.
//! * [`SecretKey`], [`Encryptor`], [`PublicKey`]: keys, and encryption with `a` from a seed.
//! * [`EvaluationKeys`]: relinearisation and rotations. Polynomials are cut into digits (`digits`),
//!   which are raised to all primes, multiplied with a key and divided (`switch`).
//! * [`Ciphertext`]: arithmetic with limbs checked; [`slices`]: the same on bare words.
//! * [`wire`]: bytes of polynomials and keys.
//!
//! Generators are named for CKKS, which had them first: the names are part of the format.

pub(crate) mod automorphism;
mod ciphertext;
pub(crate) mod digits;
pub(crate) mod embedding;
mod encryptor;
mod error;
pub(crate) mod keys;
pub(crate) mod parameters;
pub(crate) mod pool;
mod public;
pub(crate) mod secret;
pub(crate) mod simd;
pub mod slices;
pub(crate) mod switch;
pub(crate) mod tasks;
pub(crate) mod uniform;
pub mod wire;
pub(crate) mod zero;

pub use ciphertext::Ciphertext;
pub use encryptor::{Encryptor, Index, SeededCiphertext};
pub use error::RingError;
pub use keys::EvaluationKeys;
pub(crate) use parameters::Scheme;
pub use parameters::{ParameterError, Parameters};
pub use public::PublicKey;
pub use secret::{SecretKey, secret_bound};
pub use uniform::{UNIFORM_CHUNK, expand_chunk, expand_uniform, uniform_generator};
pub use wire::WireError;

/// Most polynomials of a ciphertext: degree 8 in the secret.
pub const MAX_POLYS: usize = 9;
