//! Multi-key encryption: computation on data of several parties, each under its own key.
//!
//! An untrusted machine adds, multiplies and rotates ciphertexts of any parties. The result
//! decrypts only with a share of each of them. The scheme is that of H. Chen, W. Dai, M. Kim, Y.
//! Song, "Efficient multi-key homomorphic encryption with packed ciphertexts" (CCS 2019, ePrint
//! 2019/524), with special primes (its section 6). It stands on the ring and the key switching of
//! [`rns`](crate::rns). In reading order:
//!
//! * [`Common`]: a ring and the public seed of the `a` that all parties share. [`Party`]: a name.
//! * [`SecretKey`], [`PublicKeys`], [`KeyRing`]: keys of a party, and of all. [`EncryptionRing`]:
//!   those that a contribution to a decryption needs. [`PairKey`]: a key of two parties that one of
//!   them makes, where the other may be false.
//! * [`Extended`]: `c_0 + c_1 s_1 + ... + c_k s_k`, its sums, rotations and conjugation, and
//!   products ([`Relinearisation`]): the paper's algorithm, quadratic in the number of parties, and
//!   the linear one of T. Kim, H. Kwak, D. Lee, J. Seo, Y. Song, "Asymptotically faster multi-key
//!   homomorphic encryption from homomorphic gadget decomposition" (ePrint 2022/347).
//! * [`Ciphertext`]: CKKS, with scales. Messages and plaintexts are those of
//!   [`ckks`](crate::ckks).
//! * [`bfv`]: exact integers, with a product of their own.
//! * [`Rule`], [`Decryptor`], [`merge`]: distributed decryption that tells the result alone.
//! * [`wire`]: bytes, with their sizes. Noise bounds are methods of [`Common`].
//!
//! # Security
//!
//! Encryptions and keys are RLWE samples: `b`, `d_0` and `d_2` of all parties under one `a` are
//! pseudorandom as long as the seed of `a` is nobody's choice. The keys from `s^2` and for
//! rotations assume circular security, as with one key, and so do `d_0` and `d_2`, which encrypt
//! `r` under `s` and `s` under `r`. Parameters are checked against the table of ePrint 2024/463
//! where [`ckks::Parameters`](crate::ckks::Parameters) and
//! [`bfv::Parameters`](crate::bfv::Parameters) are made. Parties are semi-honest.

#[cfg(test)]
mod attacks;
pub mod bfv;
mod ckks;
mod common;
mod decryption;
mod error;
mod extended;
mod gadget;
mod keys;
mod lift;
mod noise;
mod pair;
mod product;
#[cfg(test)]
mod reference;
pub mod wire;

pub use ckks::Ciphertext;
pub use common::{Common, Party};
use decryption::Ledger;
pub use decryption::{Contribution, Decryptor, LAMBDA, Limits, Partial, Rule, merge};
pub use error::MultiKeyError;
pub use extended::Extended;
pub use keys::{Choice, EncryptionKeys, EncryptionRing, KeyRing, PublicKeys, SecretKey};
pub use pair::PairKey;
pub use product::Relinearisation;

/// Most parties of a ciphertext.
pub const MAX_PARTIES: usize = 64;
