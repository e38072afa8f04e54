//! The number-theoretic transform of one limb, at each level of SIMD.

use std::time::Instant;

use pronghorn_ring::{
    Aligned, Ntt, Prime, SimdLevel, Word,
    modulus::largest_ntt_prime,
    security::{self, SecurityLevel},
};

use crate::ckks::CkksBenchError;

/// Primes of up to so many bits use the multiplier of AVX-512 IFMA, in 64-bit words.
const SHORT_BITS: u32 = 50;

/// The transform with the largest prime of some size.
pub trait NttBench: Send + Sync {
    /// The prime.
    fn prime(&self) -> u64;

    /// The level of the security table of ciphertexts with this prime alone, if it gives them one.
    fn security(&self) -> Option<SecurityLevel>;

    /// The levels of this CPU that differ for this word and prime, slowest first.
    fn levels(&self) -> Vec<SimdLevel>;

    /// Seconds of one transform in place: the mean of `iterations`, after one to warm up.
    ///
    /// # Errors
    /// Without iterations.
    fn seconds(
        &self,
        inverse: bool,
        level: SimdLevel,
        iterations: usize,
    ) -> Result<f64, CkksBenchError>;
}

/// The transform of degree `n` with the largest prime of `bits` bits, in words of `word_bits` bits.
///
/// # Errors
/// When there is no such transform.
pub fn new(word_bits: u32, n: usize, bits: u32) -> Result<Box<dyn NttBench>, CkksBenchError> {
    match word_bits {
        32 => Ok(Box::new(transform::<u32>(n, bits)?)),
        64 => Ok(Box::new(transform::<u64>(n, bits)?)),
        other => Err(CkksBenchError::WordBits(other)),
    }
}

fn transform<W: Word>(n: usize, bits: u32) -> Result<Ntt<W>, CkksBenchError> {
    let none = || CkksBenchError::Transform {
        n,
        bits,
        word_bits: W::BITS,
    };
    let q = largest_ntt_prime(bits, n).ok_or_else(none)?;
    let q = Prime::new(q).map_err(|_| none())?;
    Ntt::new(n, q).map_err(|_| none())
}

impl<W: Word> NttBench for Ntt<W> {
    fn prime(&self) -> u64 {
        self.modulus().value()
    }

    fn security(&self) -> Option<SecurityLevel> {
        security::check(self.n(), bits(self.prime())).ok()
    }

    fn levels(&self) -> Vec<SimdLevel> {
        let short = W::BITS == 64 && bits(self.prime()) <= SHORT_BITS;
        let mut levels = SimdLevel::available();
        levels.retain(|&level| level != SimdLevel::Avx512Ifma || short);
        levels
    }

    fn seconds(
        &self,
        inverse: bool,
        level: SimdLevel,
        iterations: usize,
    ) -> Result<f64, CkksBenchError> {
        if iterations == 0 {
            return Err(CkksBenchError::Nothing);
        }
        let mut x: Aligned<W> = (0..self.n() as u64)
            .map(|i| W::from_u64(i.wrapping_mul(0x9e37_79b9_7f4a_7c15) % self.prime()))
            .collect();
        let mut transform = || {
            if inverse {
                self.inverse_at(level, &mut x);
            } else {
                self.forward_at(level, &mut x);
            }
            std::hint::black_box(&mut x);
        };
        transform();
        let started = Instant::now();
        (0..iterations).for_each(|_| transform());
        Ok(started.elapsed().as_secs_f64() / iterations as f64)
    }
}

fn bits(prime: u64) -> u32 {
    u64::BITS - prime.leading_zeros()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_level_is_measured() {
        for (word_bits, bits) in [(32, 30), (64, 30), (64, 50), (64, 60)] {
            let bench = new(word_bits, 1024, bits).unwrap();
            assert_eq!(64 - bench.prime().leading_zeros(), bits);
            assert_eq!(bench.levels()[0], SimdLevel::Portable);
            let short = word_bits == 64 && bits <= 50;
            let ifma = SimdLevel::Avx512Ifma;
            let has_ifma = SimdLevel::available().contains(&ifma);
            assert_eq!(bench.levels().contains(&ifma), short && has_ifma);
            for level in bench.levels() {
                for inverse in [false, true] {
                    assert!(bench.seconds(inverse, level, 2).unwrap() > 0.0);
                }
            }
            assert!(bench.seconds(false, SimdLevel::Portable, 0).is_err());
        }
        assert_eq!(
            new(64, 2048, 50).unwrap().security(),
            Some(SecurityLevel::Bits128)
        );
        assert_eq!(new(64, 2048, 60).unwrap().security(), None);
    }

    #[test]
    fn what_is_missing_is_said() {
        let refused = |word_bits, n, bits| match new(word_bits, n, bits) {
            Ok(_) => panic!("there is no such transform"),
            Err(error) => error.to_string(),
        };
        assert!(refused(16, 1024, 14).contains("32 or 64 bits"));
        assert!(refused(32, 1024, 40).contains("40 bits"));
        assert!(refused(64, 1000, 40).contains("degree 1000"));
        assert!(refused(64, 1024, 9).contains("no transform"));
    }
}
