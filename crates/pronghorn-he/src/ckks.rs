//! CKKS on an RNS: approximate arithmetic on vectors of complex numbers, under encryption.
//!
//! The scheme is that of Cheon, Kim, Kim, Song ("Homomorphic encryption for arithmetic of
//! approximate numbers", ASIACRYPT
//! 2017) in the RNS form of Cheon, Han, Kim, Kim, Song (ePrint 2018/931), with the key switching of
//!       Han and Ki (ePrint 2019/688). One code base for words of 32 and of 64 bits. The ring, the
//!       keys and their switching are those of [`rns`](crate::rns). In reading order:
//!
//! * [`Parameters`]: degree, chain of primes, special primes; at least 128 bits of security.
//! * [`Message`], [`Plaintext`], [`Scalar`]: values as polynomials.
//! * [`SecretKey`], [`Encryptor`], [`PublicKey`]: encryption, with `a` from a seed, and decryption.
//! * [`Ciphertext`]: arithmetic with scales and levels checked; [`slices`]: the same on bare words.
//! * [`PublicKey::flood`]: what makes a result safe to send to the owner of the key.
//! * [`Noise`]: bounds, before anything is encrypted. [`wire`]: bytes.
//!
//! Decrypted values are for the owner of the secret key alone: whoever sees them together with the
//! ciphertexts can compute the key (Li, Micciancio, EUROCRYPT 2021).

mod ciphertext;
mod encode;
mod error;
mod flood;
mod keys;
pub mod noise;
mod parameters;
pub mod wire;

pub use ciphertext::Ciphertext;
pub(crate) use ciphertext::same_scale;
pub use encode::{LOG_EXACT, Message, Plaintext, Scalar, Slots};
pub use error::CkksError;
pub use keys::SeededCiphertext;
pub use noise::Noise;

pub use crate::rns::{
    Encryptor, EvaluationKeys, Index, MAX_POLYS, ParameterError, Parameters, PublicKey, SecretKey,
    UNIFORM_CHUNK, WireError, expand_chunk, expand_uniform, slices, uniform_generator,
};
