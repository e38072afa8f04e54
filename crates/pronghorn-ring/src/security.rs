//! The largest modulus at each security level.
//!
//! From Bossuat et al., "Security Guidelines for Implementing Homomorphic Encryption", ePrint
//! 2024/463, Table 5.2: uniform ternary secret, classical attacks, errors of standard deviation
//! about 3.2. The product of ALL primes in use counts, those for key switching included.

use thiserror::Error;

/// Bits of work of the best known classical attack, at least.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub enum SecurityLevel {
    /// 128 bits.
    Bits128,
    /// 192 bits.
    Bits192,
    /// 256 bits.
    Bits256,
}

/// Parameters that the table does not give 128 bits.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum SecurityError {
    /// The modulus is too large for the degree.
    #[error(
        "degree {n} with a modulus of {log_q} bits is below 128-bit security; ePrint 2024/463 allows {limit} \
         bits at this degree: take a smaller modulus or a larger degree"
    )]
    ModulusTooLarge {
        /// Degree of the ring.
        n: usize,
        /// Bits of the modulus.
        log_q: u32,
        /// Most bits at 128-bit security.
        limit: u32,
    },
    /// The table has no such degree.
    #[error(
        "degree {n} (modulus of {log_q} bits) is not in the table of ePrint 2024/463; \
         take a power of two from 1024 to 131072"
    )]
    UnknownDegree {
        /// Degree of the ring.
        n: usize,
        /// Bits of the modulus.
        log_q: u32,
    },
}

/// Degree, then the most bits of the modulus at 128, 192 and 256 bits of security.
const TABLE: [(usize, [Option<u32>; 3]); 8] = [
    (1 << 10, [Some(26), None, None]),
    (1 << 11, [Some(53), Some(36), Some(27)]),
    (1 << 12, [Some(106), Some(73), Some(56)]),
    (1 << 13, [Some(214), Some(147), Some(114)]),
    (1 << 14, [Some(430), Some(297), Some(230)]),
    (1 << 15, [Some(868), Some(597), Some(462)]),
    (1 << 16, [Some(1747), Some(1199), Some(929)]),
    (1 << 17, [Some(3523), None, None]),
];

const LEVELS: [SecurityLevel; 3] = [
    SecurityLevel::Bits128,
    SecurityLevel::Bits192,
    SecurityLevel::Bits256,
];

/// The most bits a modulus may have at degree `n`; `None` where the table has no entry.
pub fn max_log_q(n: usize, level: SecurityLevel) -> Option<u32> {
    let (_, limits) = TABLE.iter().find(|(degree, _)| *degree == n)?;
    limits[level as usize]
}

/// The highest level that degree `n` meets with a modulus `q`, `log_q = ceil(log2 q)`.
///
/// # Errors
/// [`SecurityError`] where that is below 128 bits, or `n` is not in the table.
pub fn check(n: usize, log_q: u32) -> Result<SecurityLevel, SecurityError> {
    let limit =
        max_log_q(n, SecurityLevel::Bits128).ok_or(SecurityError::UnknownDegree { n, log_q })?;
    LEVELS
        .into_iter()
        .rev()
        .find(|&level| max_log_q(n, level).is_some_and(|limit| log_q <= limit))
        .ok_or(SecurityError::ModulusTooLarge { n, log_q, limit })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_exact() {
        for (n, limits) in TABLE {
            for (level, limit) in LEVELS.into_iter().zip(limits) {
                assert_eq!(max_log_q(n, level), limit);
                let Some(limit) = limit else { continue };
                assert_eq!(check(n, limit), Ok(level));
                assert_ne!(check(n, limit + 1), Ok(level));
            }
        }
    }

    #[test]
    fn printed_values() {
        let at_128 = [26, 53, 106, 214, 430, 868, 1747, 3523];
        for (log_n, limit) in (10..).zip(at_128) {
            assert_eq!(max_log_q(1 << log_n, SecurityLevel::Bits128), Some(limit));
        }
        assert_eq!(max_log_q(2048, SecurityLevel::Bits256), Some(27));
        assert_eq!(max_log_q(32768, SecurityLevel::Bits192), Some(597));
    }

    #[test]
    fn refusals_name_the_numbers() {
        let error = check(2048, 60).unwrap_err();
        assert_eq!(
            error,
            SecurityError::ModulusTooLarge {
                n: 2048,
                log_q: 60,
                limit: 53
            }
        );
        assert!(
            ["2048", "60", "53"]
                .iter()
                .all(|number| error.to_string().contains(number))
        );
        let error = check(2000, 20).unwrap_err();
        assert_eq!(error, SecurityError::UnknownDegree { n: 2000, log_q: 20 });
    }
}
