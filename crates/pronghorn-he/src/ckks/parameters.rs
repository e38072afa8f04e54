//! CKKS has no parameters besides the ring: [`Parameters`] are the ring's, made and checked here.

use pronghorn_ring::Word;

use super::CkksError;
use crate::rns::{ParameterError, Parameters, Scheme};

impl<W: Word> Parameters<W> {
    /// Degree `n`, primes of the ciphertexts, special primes (none, or together about as large as a
    /// digit of a key switch).
    ///
    /// The digits of key switching are as many consecutive limbs as have a product below that of
    /// the special primes, give or take a bit, and at least one each: more special primes make
    /// fewer and larger digits, so fewer transforms.
    ///
    /// # Errors
    /// [`ParameterError`]; in particular when ePrint 2024/463 gives `n` and the product of all
    /// primes less than 128 bits.
    pub fn new(n: usize, primes: &[u64], special: &[u64]) -> Result<Self, ParameterError> {
        Self::of_scheme(n, primes, special, &scheme::<W>(n, primes, special, false))
    }

    /// As [`new`](Self::new) without any regard to security, to reproduce the tables of papers.
    /// Encrypts nothing.
    ///
    /// # Errors
    /// [`ParameterError`] when the primes are not distinct NTT primes.
    pub fn insecure_paper_parameters(
        n: usize,
        primes: &[u64],
        special: &[u64],
    ) -> Result<Self, ParameterError> {
        Self::of_scheme(n, primes, special, &scheme::<W>(n, primes, special, true))
    }

    /// Complex values of a plaintext: half of the degree.
    pub fn slots(&self) -> usize {
        self.n() / 2
    }

    /// Refuses scales that leave no room below half of the modulus.
    pub(crate) fn check_scale(&self, scale: f64, limbs: usize) -> Result<(), CkksError> {
        let log_modulus = self.log_modulus(limbs);
        if scale > 0.0 && scale.log2() < log_modulus - 1.0 {
            Ok(())
        } else {
            Err(CkksError::Scale { scale, log_modulus })
        }
    }
}

fn scheme<W: Word>(n: usize, primes: &[u64], special: &[u64], insecure: bool) -> Scheme {
    Scheme {
        hash: hash::<W>(n, primes, special),
        digit_bits: None,
        single_limbs: false,
        insecure,
    }
}

fn hash<W: Word>(n: usize, primes: &[u64], special: &[u64]) -> [u8; 32] {
    let mut hasher = blake3::Hasher::new_derive_key("pronghorn 2026 CKKS parameters");
    let lengths = [
        u64::from(W::BITS),
        n as u64,
        primes.len() as u64,
        special.len() as u64,
    ];
    for number in lengths.iter().chain(primes).chain(special) {
        hasher.update(&number.to_le_bytes());
    }
    *hasher.finalize().as_bytes()
}
