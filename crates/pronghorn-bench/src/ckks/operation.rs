//! What can be timed, and why something cannot.

use pronghorn_he::ckks::{CkksError, ParameterError};
use pronghorn_ring::rns::RnsError;
use thiserror::Error;

/// Why something cannot be measured.
#[derive(Debug, Error)]
pub enum CkksBenchError {
    /// No words of this size.
    #[error("words have 32 or 64 bits, not {0}")]
    WordBits(u32),
    /// No such primes.
    #[error(transparent)]
    Primes(#[from] RnsError),
    /// No such parameters.
    #[error(transparent)]
    Parameters(#[from] ParameterError),
    /// No such transform.
    #[error(
        "there is no transform of degree {n} with a prime of {bits} bits in words of {word_bits}: take a power of two from \
         8 to 65536, and a prime of 31 bits at most, 62 in 64-bit words"
    )]
    Transform {
        /// Degree.
        n: usize,
        /// Size of the prime.
        bits: u32,
        /// Size of the words.
        word_bits: u32,
    },
    /// No such operation.
    #[error("there is no operation {0:?}")]
    Operation(String),
    /// Key switching without special primes.
    #[error("operation {0:?} needs evaluation keys: give special primes")]
    NoKeys(&'static str),
    /// Squares of complex numbers.
    #[error(
        "squares mix the real and imaginary parts of a slot: take ReLU activations, or real packing"
    )]
    ComplexSquares,
    /// Squares in place of ReLU6.
    #[error("MobileNet has ReLU6: take ReLU activations")]
    MobileNetSquares,
    /// Rescaling the last prime away.
    #[error("rescaling needs two primes")]
    OneLimb,
    /// Not one measurement.
    #[error("at least one iteration on at least one thread")]
    Nothing,
    /// Words that are no whole polynomials of residues.
    #[error(
        "{words} words are not {what} of {limbs} limbs of {n} residues, each below the prime of its limb"
    )]
    Words {
        /// Words given.
        words: usize,
        /// What was wanted.
        what: &'static str,
        /// Limbs.
        limbs: usize,
        /// Degree.
        n: usize,
    },
    /// Refused by the library.
    #[error(transparent)]
    Ckks(#[from] CkksError),
}

/// What is timed. Ciphertexts have two polynomials and all limbs; those that are relinearised have
/// three.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Operation {
    /// A real vector of all slots to a polynomial in the NTT domain.
    Encode,
    /// A real number for all slots to a word a limb.
    EncodeScalar,
    /// The same, copied to all places of the NTT domain, as SEAL does it.
    EncodeScalarCopied,
    /// With the public key.
    Encrypt,
    /// With the secret key, `a` from a seed.
    EncryptSecret,
    /// To a plaintext in the NTT domain.
    Decrypt,
    /// To slots.
    Decode,
    /// Two ciphertexts.
    Add,
    /// A ciphertext and a plaintext.
    AddPlain,
    /// A ciphertext and a number.
    AddScalar,
    /// A ciphertext and a plaintext.
    MultiplyPlain,
    /// A ciphertext and a number.
    MultiplyScalar,
    /// Two ciphertexts, to three polynomials.
    Multiply,
    /// A ciphertext with itself, to three polynomials.
    Square,
    /// Three polynomials to two.
    Relinearise,
    /// By one prime.
    Rescale,
    /// By one step.
    Rotate,
    /// By [`RANDOM_STEPS`](super::RANDOM_STEPS) one after the other, each made of rotations by
    /// powers of two: the time of one of them.
    RotateRandom,
}

/// All operations with their names.
pub const OPERATIONS: [(&str, Operation); 18] = [
    ("encode", Operation::Encode),
    ("encode_scalar", Operation::EncodeScalar),
    ("encode_scalar_copied", Operation::EncodeScalarCopied),
    ("encrypt", Operation::Encrypt),
    ("encrypt_secret", Operation::EncryptSecret),
    ("decrypt", Operation::Decrypt),
    ("decode", Operation::Decode),
    ("add", Operation::Add),
    ("add_plain", Operation::AddPlain),
    ("add_scalar", Operation::AddScalar),
    ("multiply_plain", Operation::MultiplyPlain),
    ("multiply_scalar", Operation::MultiplyScalar),
    ("multiply", Operation::Multiply),
    ("square", Operation::Square),
    ("relinearise", Operation::Relinearise),
    ("rescale", Operation::Rescale),
    ("rotate", Operation::Rotate),
    ("rotate_random", Operation::RotateRandom),
];
