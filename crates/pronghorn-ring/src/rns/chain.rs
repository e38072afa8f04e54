//! The choice of primes.

use super::RnsError;
use crate::{Prime, Word};

/// Distinct primes `1 mod 2n` of the wanted sizes, in the order asked for: each has exactly its
/// number of bits, and of those of one size the largest come first.
///
/// # Errors
/// [`RnsError::TooFewPrimes`] where there are not enough of a size.
pub fn primes(n: usize, bits: &[u32]) -> Result<Vec<u64>, RnsError> {
    let mut chosen: Vec<u64> = Vec::with_capacity(bits.len());
    for (i, &size) in bits.iter().enumerate() {
        let smallest = (0..i).rev().find(|&j| bits[j] == size);
        let prime = largest_below(smallest.map(|j| chosen[j]), size, n);
        chosen.push(prime.ok_or_else(|| RnsError::TooFewPrimes {
            n,
            bits: size,
            wanted: bits.iter().filter(|&&other| other == size).count(),
            found: bits[..i].iter().filter(|&&other| other == size).count(),
        })?);
    }
    Ok(chosen)
}

/// The largest prime of `bits` bits that is 1 modulo `2n`, and below `limit` where there is one.
fn largest_below(limit: Option<u64>, bits: u32, n: usize) -> Option<u64> {
    if !(2..=<u64 as Word>::MAX_PRIME_BITS).contains(&bits) {
        return None;
    }
    let step = u64::try_from(n)
        .ok()?
        .checked_mul(2)
        .filter(|&step| step > 0)?;
    let last = limit.unwrap_or(1 << bits) - 1;
    let candidates = (1..=last.checked_sub(1)? / step)
        .rev()
        .map(|k| k * step + 1);
    candidates
        .take_while(|candidate| candidate >> (bits - 1) == 1)
        .find(|&candidate| Prime::<u64>::new(candidate).is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::modulus::largest_ntt_prime;

    #[test]
    fn known_chains() {
        // Below 128 and 1 modulo 16: 113, 97 (81 and 65 are composite); below 64 none; below 32 17.
        assert_eq!(primes(8, &[7, 5, 7]), Ok(vec![113, 17, 97]));
        let too_few = |bits, wanted, found| {
            Err(RnsError::TooFewPrimes {
                n: 8,
                bits,
                wanted,
                found,
            })
        };
        assert_eq!(primes(8, &[7, 7, 7]), too_few(7, 3, 2));
        assert_eq!(primes(8, &[6]), too_few(6, 1, 0));
        assert_eq!(primes(8, &[63]), too_few(63, 1, 0));
        assert_eq!(primes(8, &[0]), too_few(0, 1, 0));
        assert!(primes(0, &[20]).is_err() && primes(usize::MAX, &[20]).is_err());
        assert_eq!(primes(8, &[]), Ok(vec![]));
    }

    #[test]
    fn sizes_are_exact_and_primes_distinct() {
        let bits = [60, 18, 50, 18, 50, 20, 60, 31, 31];
        let chain = primes(1024, &bits).unwrap();
        for (i, (&prime, bits)) in chain.iter().zip(bits).enumerate() {
            assert_eq!(64 - prime.leading_zeros(), bits);
            assert_eq!(prime % 2048, 1);
            assert!(!chain[..i].contains(&prime));
        }
        assert_eq!(chain[0], largest_ntt_prime(60, 1024).unwrap());
    }
}
