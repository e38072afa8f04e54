//! The ring, the chain of primes, how keys are switched, and everything computed from them once.

use std::sync::{Arc, OnceLock};

use pronghorn_ring::{
    Word,
    rns::{Conversion, Division, MixedRadix, RnsBasis, RnsError},
    security::{self, SecurityError, SecurityLevel},
};
use thiserror::Error;

use super::{RingError, embedding::Embedding, pool::Pool};

/// Smallest primes of a chain, in bits: errors must be small against each.
const MIN_PRIME_BITS: u32 = 8;

/// Why there are no such parameters.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum ParameterError {
    /// Fewer than 128 bits.
    #[error(transparent)]
    Security(#[from] SecurityError),
    /// Not primes with transforms, too many, or the same twice.
    #[error(transparent)]
    Rns(#[from] RnsError),
    /// No prime for ciphertexts.
    #[error("the chain has no primes for ciphertexts; give at least one")]
    NoPrimes,
    /// Too small.
    #[error("prime {prime} has fewer than {MIN_PRIME_BITS} bits; take larger primes")]
    SmallPrime {
        /// The prime.
        prime: u64,
    },
}

/// A ring `Z[X] / (X^N + 1)` modulo a chain of primes `q_0 ... q_(L-1)`, and special primes for key
/// switching. A cheap handle: clones share the tables.
///
/// A ciphertext of `l` limbs is modulo `q_0 ... q_(l-1)`; rescaling drops primes from the end.
/// Without special primes there is no key switching but by small digits, and products stay at the
/// degree they grow to.
#[derive(Clone)]
pub struct Parameters<W: Word>(Arc<Tables<W>>);

struct Tables<W: Word> {
    basis: RnsBasis<W>,
    limbs: usize,
    security: Option<SecurityLevel>,
    hash: [u8; 32],
    embedding: Embedding,
    radix: MixedRadix<W>,
    /// By limbs `l` and how many of them go, `k <= l`, at `l (l + 1) / 2 + k`: without and with the
    /// special primes.
    rescaling: Vec<OnceLock<Division<W>>>,
    leaving: Vec<OnceLock<Division<W>>>,
    digits: Vec<Digit<W>>,
    pieces: Vec<Piece>,
    pool: Pool<W>,
}

/// Consecutive limbs that a key switch raises together.
pub(crate) struct Digit<W> {
    pub start: usize,
    pub end: usize,
    pub conversion: Conversion<W>,
}

/// What one part of a switching key belongs to: `2^shift` in these limbs and zero in the others.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Piece {
    pub limbs: std::ops::Range<usize>,
    pub shift: u32,
    /// Bits of the numbers it is multiplied with; zero where these are all of the limbs.
    pub bits: u32,
}

/// What a scheme fixes besides the degree and the primes.
pub(crate) struct Scheme {
    /// Stands for everything that both parties must agree on.
    pub hash: [u8; 32],
    /// Key switching takes each limb in signed digits of this many bits, without special primes.
    pub digit_bits: Option<u32>,
    /// Digits of a key switch with special primes have one limb each, however large these primes
    /// are.
    pub single_limbs: bool,
    /// True if parameters below 128 bits are accepted.
    pub insecure: bool,
}

impl Scheme {
    /// The level of the security table that a basis meets; `None` only where the scheme accepts
    /// less than 128 bits.
    fn security<W: Word>(
        &self,
        n: usize,
        basis: &RnsBasis<W>,
    ) -> Result<Option<SecurityLevel>, SecurityError> {
        let level = security::check(n, basis.product_bits(0..basis.limbs()));
        if self.insecure {
            Ok(level.ok())
        } else {
            level.map(Some)
        }
    }
}

impl<W: Word> Parameters<W> {
    /// The ring of a scheme: degree `n`, primes of the ciphertexts, special primes (or an empty
    /// list).
    ///
    /// The digits of a key switch are as many consecutive limbs as have a product below that of the
    /// special primes, give or take a bit, and at least one each: more special primes make fewer
    /// and larger digits, so fewer transforms. Where a scheme takes each limb in digits of some
    /// bits there are no special primes.
    ///
    /// # Errors
    /// [`ParameterError`]; in particular when ePrint 2024/463 gives `n` and the product of all
    /// primes less than 128 bits.
    pub(crate) fn of_scheme(
        n: usize,
        primes: &[u64],
        special: &[u64],
        scheme: &Scheme,
    ) -> Result<Self, ParameterError> {
        if primes.is_empty() {
            return Err(ParameterError::NoPrimes);
        }
        let all = [primes, special].concat();
        let basis = RnsBasis::new(n, &all)?;
        if let Some(small) = basis.primes().find(|q| q.bits() < MIN_PRIME_BITS) {
            return Err(ParameterError::SmallPrime {
                prime: small.value(),
            });
        }
        let security = scheme.security(n, &basis)?;
        let limbs = primes.len();
        let chain: Vec<_> = basis.primes().take(limbs).copied().collect();
        let divisions = || {
            (0..(limbs + 1) * (limbs + 2) / 2)
                .map(|_| OnceLock::new())
                .collect()
        };
        let digits = digits(&basis, limbs, scheme.single_limbs);
        Ok(Self(Arc::new(Tables {
            security,
            hash: scheme.hash,
            embedding: Embedding::new(n),
            radix: MixedRadix::new(&chain),
            rescaling: divisions(),
            leaving: divisions(),
            pieces: match scheme.digit_bits {
                Some(bits) => small_pieces(&basis, limbs, bits),
                None => digits.iter().map(Piece::of_digit).collect(),
            },
            digits,
            pool: Pool::new(all.len() * n),
            limbs,
            basis,
        })))
    }

    /// The same ring with another gadget: digits of one limb each.
    pub(crate) fn with_single_limbs(&self) -> Result<Self, ParameterError> {
        let primes: Vec<u64> = self.basis().primes().map(|q| q.value()).collect();
        let (chain, special) = primes.split_at(self.limbs());
        let mut hasher = blake3::Hasher::new_derive_key("pronghorn 2026 single limbs");
        hasher.update(self.hash());
        let scheme = Scheme {
            hash: *hasher.finalize().as_bytes(),
            digit_bits: None,
            single_limbs: true,
            insecure: self.security().is_none(),
        };
        Self::of_scheme(self.n(), chain, special, &scheme)
    }

    /// Coefficients of a polynomial.
    pub fn n(&self) -> usize {
        self.0.basis.n()
    }

    /// Primes of a fresh ciphertext.
    pub fn limbs(&self) -> usize {
        self.0.limbs
    }

    /// Special primes.
    pub fn special_limbs(&self) -> usize {
        self.0.basis.limbs() - self.0.limbs
    }

    /// The primes of the ciphertexts, then the special ones, with their transforms.
    pub fn basis(&self) -> &RnsBasis<W> {
        &self.0.basis
    }

    /// `log2` of the modulus of a ciphertext of `limbs` limbs.
    ///
    /// # Panics
    /// When there are no such limbs.
    pub fn log_modulus(&self, limbs: usize) -> f64 {
        assert!(limbs <= self.limbs(), "no more limbs than the chain has");
        self.0.basis.log2_product(0..limbs)
    }

    /// The level of the security table these parameters meet; `None` only for insecure ones.
    pub fn security(&self) -> Option<SecurityLevel> {
        self.0.security
    }

    /// BLAKE3 of word size, degree and primes: what both parties compare, and every serialised
    /// object carries.
    pub fn hash(&self) -> &[u8; 32] {
        &self.0.hash
    }

    /// The number of digits of a ciphertext of `limbs` limbs in a key switch.
    pub fn digit_count(&self, limbs: usize) -> usize {
        self.0
            .digits
            .iter()
            .take_while(|digit| digit.start < limbs)
            .count()
    }

    /// The limbs of each digit of a key switch.
    pub fn digit_ranges(&self) -> impl Iterator<Item = std::ops::Range<usize>> {
        self.0.digits.iter().map(|digit| digit.start..digit.end)
    }

    pub(crate) fn digits(&self) -> &[Digit<W>] {
        &self.0.digits
    }

    /// The parts of a switching key: one for each digit, or several where digits are smaller than a
    /// limb.
    pub(crate) fn pieces(&self) -> &[Piece] {
        &self.0.pieces
    }

    pub(crate) fn pool(&self) -> &Pool<W> {
        &self.0.pool
    }

    pub(crate) fn embedding(&self) -> &Embedding {
        &self.0.embedding
    }

    /// Mixed radix of the ciphertexts' primes.
    pub(crate) fn radix(&self) -> &MixedRadix<W> {
        &self.0.radix
    }

    /// Division of `limbs` limbs by their last `dropped` primes.
    pub(crate) fn rescaling(&self, limbs: usize, dropped: usize) -> &Division<W> {
        self.division(&self.0.rescaling, limbs, dropped, 0)
    }

    /// Division of `limbs` limbs and the special ones by the special primes and the last `dropped`
    /// primes.
    pub(crate) fn leaving(&self, limbs: usize, dropped: usize) -> &Division<W> {
        self.division(&self.0.leaving, limbs, dropped, self.special_limbs())
    }

    fn division<'a>(
        &'a self,
        table: &'a [OnceLock<Division<W>>],
        limbs: usize,
        dropped: usize,
        special: usize,
    ) -> &'a Division<W> {
        table[limbs * (limbs + 1) / 2 + dropped].get_or_init(|| {
            let special = self.limbs()..self.limbs() + special;
            let sources: Vec<usize> = (limbs - dropped..limbs).chain(special).collect();
            Division::new(&self.0.basis, &sources)
        })
    }

    /// Refuses operands of other parameters.
    pub(crate) fn same(&self, other: &Self) -> Result<(), RingError> {
        if Arc::ptr_eq(&self.0, &other.0) || self.hash() == other.hash() {
            Ok(())
        } else {
            Err(RingError::Parameters)
        }
    }

    /// Refuses numbers of limbs that no ciphertext has.
    pub(crate) fn check_limbs(&self, limbs: usize) -> Result<(), RingError> {
        if (1..=self.limbs()).contains(&limbs) {
            Ok(())
        } else {
            let limit = self.limbs();
            Err(RingError::NoSuchLimbs { limbs, limit })
        }
    }
}

/// Greedily as many limbs a digit as stay below the product of the special primes, within a bit.
fn digits<W: Word>(basis: &RnsBasis<W>, limbs: usize, single_limbs: bool) -> Vec<Digit<W>> {
    if limbs == basis.limbs() {
        return Vec::new();
    }
    let most = if single_limbs {
        0.0
    } else {
        basis.log2_product(limbs..basis.limbs()) + 1.0
    };
    let mut digits = Vec::new();
    let mut start = 0;
    while start < limbs {
        let fits = |end: &usize| basis.log2_product(start..*end) <= most;
        let end = (start + 2..=limbs)
            .take_while(fits)
            .last()
            .unwrap_or(start + 1);
        let sources: Vec<usize> = (start..end).collect();
        digits.push(Digit {
            start,
            end,
            conversion: Conversion::new(basis, &sources),
        });
        start = end;
    }
    digits
}

/// Each limb in digits of `bits` bits, the last of which may be smaller.
fn small_pieces<W: Word>(basis: &RnsBasis<W>, limbs: usize, bits: u32) -> Vec<Piece> {
    let of_limb = |limb: usize| {
        let width = basis.prime(limb).bits();
        (0..width).step_by(bits as usize).map(move |shift| Piece {
            limbs: limb..limb + 1,
            shift,
            bits: bits.min(width - shift),
        })
    };
    (0..limbs).flat_map(of_limb).collect()
}

impl Piece {
    fn of_digit<W>(digit: &Digit<W>) -> Self {
        Self {
            limbs: digit.start..digit.end,
            shift: 0,
            bits: 0,
        }
    }
}
