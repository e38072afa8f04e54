//! The level of SIMD instructions, decided once at run time.

use std::sync::OnceLock;

/// Environment variable that caps [`SimdLevel::detect`].
const VARIABLE: &str = "PRONGHORN_SIMD";

/// A set of instructions that the fast routines are written for; later levels are faster.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub enum SimdLevel {
    /// Plain Rust, any CPU.
    Portable,
    /// 256-bit vectors.
    Avx2,
    /// 512-bit vectors: AVX-512 F, BW, DQ and VL.
    Avx512,
    /// The same and AVX-512 IFMA, for 64-bit words with primes of up to 50 bits.
    Avx512Ifma,
}

impl SimdLevel {
    const ALL: [Self; 4] = [Self::Portable, Self::Avx2, Self::Avx512, Self::Avx512Ifma];

    /// The level to use: the best this CPU has, or less when the environment variable
    /// `PRONGHORN_SIMD` says `portable`, `avx2`, `avx512` or `avx512ifma`. Decided at the first
    /// call.
    ///
    /// Another value of the variable is reported on standard error once and otherwise ignored.
    /// AES of the random streams chooses for itself and does not look at the variable.
    pub fn detect() -> Self {
        static LEVEL: OnceLock<SimdLevel> = OnceLock::new();
        *LEVEL.get_or_init(|| match std::env::var(VARIABLE) {
            Ok(name) => Self::capped(&name),
            Err(_) => Self::best(),
        })
    }

    /// Every level this CPU can run, slowest first, whatever the environment says. For tests and
    /// benchmarks that compare levels.
    pub fn available() -> Vec<Self> {
        Self::ALL
            .into_iter()
            .filter(|&level| level <= Self::best())
            .collect()
    }

    /// This level, or the best below it that the CPU can run.
    pub fn or_best(self) -> Self {
        self.min(Self::best())
    }

    fn capped(name: &str) -> Self {
        match Self::from_name(name) {
            Some(level) => level.or_best(),
            None => {
                eprintln!(
                    "{VARIABLE}={name} is ignored: set it to portable, avx2, avx512 or avx512ifma"
                );
                Self::best()
            }
        }
    }

    fn from_name(name: &str) -> Option<Self> {
        match name {
            "portable" => Some(Self::Portable),
            "avx2" => Some(Self::Avx2),
            "avx512" => Some(Self::Avx512),
            "avx512ifma" => Some(Self::Avx512Ifma),
            _ => None,
        }
    }

    /// The best this CPU has.
    #[cfg(target_arch = "x86_64")]
    fn best() -> Self {
        // Each macro reads a cached word.
        if is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("avx512dq")
            && is_x86_feature_detected!("avx512vl")
        {
            if is_x86_feature_detected!("avx512ifma") {
                Self::Avx512Ifma
            } else {
                Self::Avx512
            }
        } else if is_x86_feature_detected!("avx2") {
            Self::Avx2
        } else {
            Self::Portable
        }
    }

    /// The best this CPU has.
    #[cfg(not(target_arch = "x86_64"))]
    fn best() -> Self {
        Self::Portable
    }
}

#[cfg(test)]
mod tests {
    use super::SimdLevel;

    #[test]
    fn portable_is_always_available_and_levels_ascend() {
        let levels = SimdLevel::available();
        assert_eq!(levels[0], SimdLevel::Portable);
        assert!(levels.is_sorted());
        assert!(levels.contains(&SimdLevel::detect()));
    }

    #[test]
    fn names_cap_the_level() {
        assert_eq!(SimdLevel::capped("portable"), SimdLevel::Portable);
        assert!(SimdLevel::capped("avx2") <= SimdLevel::Avx2);
        assert!(SimdLevel::capped("avx512") <= SimdLevel::Avx512);
        assert_eq!(SimdLevel::capped("avx512ifma"), SimdLevel::best());
        assert_eq!(SimdLevel::capped("mmx"), SimdLevel::best());
    }
}
