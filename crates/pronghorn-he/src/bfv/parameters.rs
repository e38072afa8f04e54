//! The ring, the plaintext modulus, and everything computed from them once.

use std::sync::Arc;

use pronghorn_ring::{
    Ntt, Prime, Word,
    modulus::largest_ntt_prime,
    rns::{RnsError, primes as rns_primes},
    security::SecurityLevel,
};
use thiserror::Error;

use crate::rns::{self, Scheme, automorphism::rotation_element, parameters::Piece};

/// Bits of the largest plaintext modulus.
const MAX_T_BITS: u32 = 31;
/// Most digits of a key switch.
const MAX_PIECES: u32 = 128;

/// Why there are no such parameters.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum ParameterError {
    /// Refused by the ring: below 128 bits, or no primes with transforms.
    #[error(transparent)]
    Ring(#[from] rns::ParameterError),
    /// No primes of these sizes.
    #[error(transparent)]
    Primes(#[from] RnsError),
    /// No plaintext modulus.
    #[error(
        "plaintext modulus {t} is not a prime of at most {MAX_T_BITS} bits that is 1 modulo twice the degree {n}; take one from \
         largest_ntt_prime"
    )]
    Plaintext {
        /// The modulus given.
        t: u64,
        /// The degree.
        n: usize,
    },
    /// No plaintext modulus of a size.
    #[error(
        "there is no prime of {bits} bits that is 1 modulo twice the degree {n}; take more bits, {MAX_T_BITS} at most"
    )]
    PlaintextBits {
        /// Bits wanted.
        bits: u32,
        /// The degree.
        n: usize,
    },
    /// The plaintext modulus is one of the primes.
    #[error("prime {t} is both the plaintext modulus and in the chain; take another of them")]
    Shared {
        /// The prime.
        t: u64,
    },
    /// The product of the primes is not larger than the plaintext modulus.
    #[error(
        "the modulus of ciphertexts has {log_q} bits, the plaintext modulus {log_t}; take more or larger primes"
    )]
    NoRoom {
        /// Bits of the product of the primes.
        log_q: u32,
        /// Bits of the plaintext modulus.
        log_t: u32,
    },
    /// Digits that are too small, or not smaller than the primes.
    #[error(
        "digits of {bits} bits: take 1 to {limit}, and large enough for {MAX_PIECES} digits at most"
    )]
    Digits {
        /// Bits given.
        bits: u32,
        /// The most for these primes.
        limit: u32,
    },
    /// Nothing fits.
    #[error(
        "no parameters of degree {n} have room for this workload with its flood at 128 bits of security; take a larger degree, or a smaller t"
    )]
    Workload {
        /// The degree.
        n: usize,
    },
}

/// The way of switching keys, which rotations need.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Switching<'a> {
    /// Not at all.
    None,
    /// Each digit is as many limbs as the special primes are large, and the products are divided by
    /// these: little noise and few transforms, for bits of the modulus that ciphertexts then do not
    /// have.
    SpecialPrimes(&'a [u64]),
    /// Each limb in digits of this many bits (the relinearisation window of Gazelle, section V-E),
    /// without special primes: all of the modulus is the ciphertexts', for more transforms and a
    /// noise in proportion to the digits.
    Digits(u32),
}

/// A ring `Z[X] / (X^N + 1)` modulo a chain of primes with product `Q`, a way of switching keys,
/// and a plaintext modulus `t`. A cheap handle: clones share the tables.
#[derive(Clone)]
pub struct Parameters<W: Word>(Arc<Tables<W>>);

struct Tables<W: Word> {
    ring: rns::Parameters<W>,
    plain: Ntt<W>,
    /// For slot `j`, both rows: which value of the transform it is.
    places: Vec<u32>,
    /// `Q mod t`.
    lifting: W,
    /// `-1 / t` modulo each prime.
    minus_inverse: Vec<W>,
    /// By limbs less one: how to come back from the product of the first so many primes.
    scalings: Vec<Scaling<W>>,
}

/// From `t x mod Q'` in balanced mixed radix to `round(t x / Q') mod t`.
pub(super) struct Scaling<W> {
    /// For digit `k`: `- q_0 ... q_(k-1) / Q' mod t`.
    pub weights: Vec<W>,
}

impl<W: Word> Parameters<W> {
    /// Degree `n`, primes of the ciphertexts, how keys are switched, plaintext modulus.
    ///
    /// # Errors
    /// [`ParameterError`]; in particular when ePrint 2024/463 gives `n` and the product of all
    /// primes less than 128 bits.
    pub fn new(
        n: usize,
        primes: &[u64],
        switching: Switching<'_>,
        t: u64,
    ) -> Result<Self, ParameterError> {
        Self::build(n, primes, switching, t, false)
    }

    /// As [`new`](Self::new) without any regard to security, to reproduce the tables of papers.
    /// Protects nothing.
    ///
    /// # Errors
    /// [`ParameterError`] when the primes do not go together.
    pub fn insecure_paper_parameters(
        n: usize,
        primes: &[u64],
        switching: Switching<'_>,
        t: u64,
    ) -> Result<Self, ParameterError> {
        Self::build(n, primes, switching, t, true)
    }

    /// The largest plaintext modulus of `t_bits` bits, primes of the ciphertexts of `bits` bits
    /// each, special primes of `special_bits` (or none, and digits of `digit_bits` in place of
    /// them, unless zero).
    ///
    /// # Errors
    /// As [`new`](Self::new), and when there are no such primes.
    pub fn with_bits(
        n: usize,
        bits: &[u32],
        special_bits: &[u32],
        digit_bits: u32,
        t_bits: u32,
    ) -> Result<Self, ParameterError> {
        let none = ParameterError::PlaintextBits { bits: t_bits, n };
        let t = largest_ntt_prime(t_bits.min(MAX_T_BITS), n)
            .filter(|t| t.ilog2() + 1 == t_bits)
            .ok_or(none)?;
        Self::with_bits_modulo(n, bits, special_bits, digit_bits, t)
    }

    /// [`with_bits`](Self::with_bits) for a plaintext modulus that is known.
    ///
    /// # Errors
    /// As there.
    pub fn with_bits_modulo(
        n: usize,
        bits: &[u32],
        special_bits: &[u32],
        digit_bits: u32,
        t: u64,
    ) -> Result<Self, ParameterError> {
        let t_bits = u64::BITS - t.leading_zeros();
        // One more of the plaintext's size, in case the chain has primes of that size too.
        let all = [bits, special_bits].concat();
        let mut primes = rns_primes(n, &all)?;
        if let Some(place) = primes.iter().position(|&q| q == t) {
            let more = rns_primes(n, &[all.as_slice(), &[t_bits]].concat())?;
            primes[place] = more[all.len()];
        }
        let (chain, special) = primes.split_at(bits.len());
        let switching = match (special.is_empty(), digit_bits) {
            (false, _) => Switching::SpecialPrimes(special),
            (true, 0) => Switching::None,
            (true, bits) => Switching::Digits(bits),
        };
        Self::new(n, chain, switching, t)
    }

    /// `N = 4096`, two primes of 50 bits, digits of 17 bits, `t` of `t_bits` bits: for products and
    /// rotations after them. See [`Workload`](super::Workload) for what fits, and for chains made
    /// to measure.
    ///
    /// # Errors
    /// When there is no `t` of this size.
    pub fn small(t_bits: u32) -> Result<Self, ParameterError> {
        Self::with_bits(4096, &[50, 50], &[], 17, t_bits)
    }

    /// `N = 8192`, three primes of 50 bits and one special prime of 50 bits, `t` of `t_bits` bits:
    /// for rotations before products too.
    ///
    /// # Errors
    /// When there is no `t` of this size.
    pub fn large(t_bits: u32) -> Result<Self, ParameterError> {
        Self::with_bits(8192, &[50, 50, 50], &[50], 0, t_bits)
    }

    fn build(
        n: usize,
        primes: &[u64],
        switching: Switching<'_>,
        t: u64,
        insecure: bool,
    ) -> Result<Self, ParameterError> {
        let (special, digit_bits): (&[u64], _) = match switching {
            Switching::None => (&[], None),
            Switching::SpecialPrimes(special) => (special, None),
            Switching::Digits(bits) => (&[], Some(bits)),
        };
        check_digits(primes, digit_bits)?;
        if primes.contains(&t) || special.contains(&t) {
            return Err(ParameterError::Shared { t });
        }
        let scheme = Scheme {
            hash: hash::<W>(n, primes, special, digit_bits, t),
            digit_bits,
            single_limbs: false,
            insecure,
        };
        let ring = rns::Parameters::of_scheme(n, primes, special, &scheme)?;
        let plain = plain_transform(n, t)?;
        let (log_q, log_t) = (
            ring.basis().product_bits(0..ring.limbs()),
            plain.modulus().bits(),
        );
        if log_q < log_t + 2 {
            return Err(ParameterError::NoRoom { log_q, log_t });
        }
        let q = plain.modulus();
        let residue = |prime: u64| W::from_u64(prime % q.value());
        let product = |primes: &[u64]| {
            primes.iter().fold(W::from_u64(1), |product, &prime| {
                q.mul(product, residue(prime))
            })
        };
        let scaling = |limbs: usize| {
            let inverse = inverse(q, product(&primes[..limbs]));
            let weight = |k: usize| q.neg(q.mul(product(&primes[..k]), inverse));
            Scaling {
                weights: (0..limbs).map(weight).collect(),
            }
        };
        let minus_inverse = |q: &Prime<W>| q.neg(inverse(q, W::from_u64(t % q.value())));
        Ok(Self(Arc::new(Tables {
            places: places(n),
            lifting: product(primes),
            minus_inverse: ring
                .basis()
                .primes()
                .take(primes.len())
                .map(minus_inverse)
                .collect(),
            scalings: (1..=primes.len()).map(scaling).collect(),
            ring,
            plain,
        })))
    }

    /// Coefficients of a polynomial, and slots of a plaintext, in two rows.
    pub fn n(&self) -> usize {
        self.0.ring.n()
    }

    /// Slots of a row, which rotations turn.
    pub fn row(&self) -> usize {
        self.n() / 2
    }

    /// The plaintext modulus.
    pub fn t(&self) -> u64 {
        self.0.plain.modulus().value()
    }

    /// Primes of a ciphertext.
    pub fn limbs(&self) -> usize {
        self.0.ring.limbs()
    }

    /// `log2` of the product of the ciphertexts' primes.
    pub fn log_modulus(&self) -> f64 {
        self.0.ring.log_modulus(self.limbs())
    }

    /// `log2(Q / 2t)`: noise above that decrypts wrongly.
    pub fn log_room(&self) -> f64 {
        self.log_room_of(self.limbs())
    }

    pub(super) fn log_room_of(&self, limbs: usize) -> f64 {
        self.0.ring.log_modulus(limbs) - (2.0 * self.t() as f64).log2()
    }

    /// The level of the security table these parameters meet; `None` only for insecure ones.
    pub fn security(&self) -> Option<SecurityLevel> {
        self.0.ring.security()
    }

    /// BLAKE3 of word size, degree, primes, digits and plaintext modulus: what both parties
    /// compare, and every serialised object carries.
    pub fn hash(&self) -> &[u8; 32] {
        self.0.ring.hash()
    }

    /// Bits of a digit of a key switch, where there are no special primes.
    pub fn digit_bits(&self) -> Option<u32> {
        self.pieces()
            .iter()
            .map(|piece| piece.bits)
            .max()
            .filter(|&bits| bits > 0)
    }

    /// The ring with its primes, and the parts of switching keys: what all schemes on it share.
    pub fn ring(&self) -> &rns::Parameters<W> {
        &self.0.ring
    }

    pub(super) fn pieces(&self) -> &[Piece] {
        self.0.ring.pieces()
    }

    pub(super) fn plain(&self) -> &Ntt<W> {
        &self.0.plain
    }

    pub(super) fn places(&self) -> &[u32] {
        &self.0.places
    }

    pub(super) fn lifting(&self) -> W {
        self.0.lifting
    }

    pub(super) fn minus_inverse(&self, limb: usize) -> W {
        self.0.minus_inverse[limb]
    }

    /// For ciphertexts of the first `limbs` primes.
    pub(super) fn scaling(&self, limbs: usize) -> &Scaling<W> {
        &self.0.scalings[limbs - 1]
    }
}

/// Digits must be smaller than the smallest prime, and not too many.
fn check_digits(primes: &[u64], digit_bits: Option<u32>) -> Result<(), ParameterError> {
    let Some(bits) = digit_bits else {
        return Ok(());
    };
    let widths = || primes.iter().map(|q| u64::BITS - q.leading_zeros());
    let limit = widths().min().unwrap_or(0).saturating_sub(1);
    let fits = (1..=limit).contains(&bits)
        && widths().map(|width| width.div_ceil(bits)).sum::<u32>() <= MAX_PIECES;
    if fits {
        Ok(())
    } else {
        Err(ParameterError::Digits { bits, limit })
    }
}

fn plain_transform<W: Word>(n: usize, t: u64) -> Result<Ntt<W>, ParameterError> {
    let refused = ParameterError::Plaintext { t, n };
    let prime = Prime::new(t).ok().filter(|t| t.bits() <= MAX_T_BITS);
    Ntt::new(n, prime.ok_or(refused)?).map_err(|_| refused)
}

/// `1 / x` for `x` that is no multiple of the prime, as distinct primes are none of each other.
fn inverse<W: Word>(q: &Prime<W>, x: W) -> W {
    q.inverse(x)
        .expect("distinct primes have inverses modulo each other")
}

/// Slot `j` of the first row is the value at `zeta^(5^j)`, of the second at `zeta^(-5^j)`: the
/// automorphism of `5^k` turns both by `k`, that of `-1` swaps them.
fn places(n: usize) -> Vec<u32> {
    let shift = usize::BITS - n.trailing_zeros();
    let place = |power: usize| ((power / 2).reverse_bits() >> shift) as u32;
    let five = rotation_element(n, 1) as usize;
    let powers =
        || std::iter::successors(Some(1), move |power| Some(power * five % (2 * n))).take(n / 2);
    powers()
        .chain(powers().map(|power| 2 * n - power))
        .map(place)
        .collect()
}

fn hash<W: Word>(
    n: usize,
    primes: &[u64],
    special: &[u64],
    digit_bits: Option<u32>,
    t: u64,
) -> [u8; 32] {
    let mut hasher = blake3::Hasher::new_derive_key("pronghorn 2026 BFV parameters");
    let numbers = [
        u64::from(W::BITS),
        n as u64,
        t,
        digit_bits.unwrap_or(0).into(),
        primes.len() as u64,
        special.len() as u64,
    ];
    for number in numbers.iter().chain(primes).chain(special) {
        hasher.update(&number.to_le_bytes());
    }
    *hasher.finalize().as_bytes()
}
