//! BFV on an RNS: exact arithmetic modulo a prime `t` on vectors of `N` slots, under encryption;
//! sums, products with plaintexts and rotations. Products of ciphertexts are in
//! [`multikey::bfv`](crate::multikey::bfv), also for one key.
//!
//! The packed additively homomorphic encryption of Gazelle (Juvekar, Vaikuntanathan, Chandrakasan,
//! USENIX Security 2018, section III), as Fan and Vercauteren's scheme (ePrint 2012/144) with
//! `t = 1 mod 2N`. The ring, its primes, the keys and their seeds are those of [`rns`](crate::rns).
//! A message `m` sits in a ciphertext as `round(Q m / t)`, so that what wraps around `t` wraps
//! around `Q` and no term of `Q mod t` enters the noise. In reading order:
//!
//! * [`Parameters`]: degree, primes, how keys are switched, `t`; at least 128 bits of security.
//!   [`Workload`]: which fit a task.
//! * [`Plaintext`], [`Multiplier`]: values as polynomials.
//! * [`SecretKey`], [`Encryptor`], [`PublicKey`], [`EvaluationKeys`]: keys, encryption, decryption.
//! * [`Ciphertext`]: arithmetic; [`rotated_products`], [`Products`]: sums of products of rotations,
//!   which matrices are made of.
//! * [`Hider`], [`Answer`]: what makes a result safe and short to send to the owner of the key, who
//!   gets an additive share of it.
//! * [`Noise`]: bounds, before anything is encrypted. [`wire`]: bytes.
//!
//! Slots are in two rows of `N / 2`; rotations turn both rows alike, and there is one that swaps
//! them.

mod ciphertext;
mod encode;
mod error;
pub mod hide;
mod keys;
pub mod noise;
mod parameters;
mod products;
pub mod rotation;
pub mod wire;
pub mod workload;

pub use ciphertext::Ciphertext;
pub use encode::{Multiplier, Plaintext};
pub use error::BfvError;
pub use hide::{Answer, AnswerFormat, Hider};
pub use keys::{Encryptor, EvaluationKeys, PublicKey, SecretKey, SeededCiphertext};
pub use noise::Noise;
pub use parameters::{ParameterError, Parameters, Switching};
pub use products::Products;
pub use rotation::{Factor, Rotation, rotated_products};
pub use workload::Workload;
