//! Finding primes.

use crate::Word;

/// The largest prime `q < 2^bits` with `q = 1 mod 2n`, so that `Z_q[X] / (X^n + 1)` has an NTT;
/// `None` where there is none, or for more than 62 bits.
pub fn largest_ntt_prime(bits: u32, n: usize) -> Option<u64> {
    if bits > <u64 as Word>::MAX_PRIME_BITS {
        return None;
    }
    let step = u64::try_from(n)
        .ok()?
        .checked_mul(2)
        .filter(|&step| step > 0)?;
    let last = (1u64 << bits).checked_sub(2)?; // the largest candidate less one
    let mut candidate = last / step * step + 1;
    while candidate > step {
        if is_prime(candidate) {
            return Some(candidate);
        }
        candidate -= step;
    }
    None
}

/// Miller and Rabin's test, exact below 2^64 with the first twelve primes as bases (Sorenson and
/// Webster, "Strong pseudoprimes to twelve prime bases", 2017). Variable time: moduli are public.
pub(super) fn is_prime(q: u64) -> bool {
    const BASES: [u64; 12] = [2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37];
    if q < 2 {
        return false;
    }
    if let Some(&divisor) = BASES.iter().find(|&&base| q.is_multiple_of(base)) {
        return q == divisor;
    }
    let twos = (q - 1).trailing_zeros();
    BASES.iter().all(|&base| passes(q, base, twos))
}

/// True if `q` is a strong probable prime to `base`; `q - 1 = odd * 2^twos`.
pub(super) fn passes(q: u64, base: u64, twos: u32) -> bool {
    let mut power = pow_plain(base, (q - 1) >> twos, q);
    if power == 1 || power == q - 1 {
        return true;
    }
    for _ in 1..twos {
        power = mul_plain(power, power, q);
        if power == q - 1 {
            return true;
        }
    }
    false
}

pub(super) fn mul_plain(x: u64, y: u64, q: u64) -> u64 {
    (u128::from(x) * u128::from(y) % u128::from(q)) as u64
}

pub(super) fn pow_plain(base: u64, mut exponent: u64, q: u64) -> u64 {
    let (mut power, mut square) = (1, base % q);
    while exponent > 0 {
        if exponent & 1 == 1 {
            power = mul_plain(power, square, q);
        }
        square = mul_plain(square, square, q);
        exponent >>= 1;
    }
    power
}
