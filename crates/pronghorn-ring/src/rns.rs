//! Residue number systems: polynomials modulo a product of NTT primes, kept as one limb a prime.
//!
//! A polynomial of `l` limbs is `l N` words, limb after limb: `[limb][N]`. Conversions between sets
//! of primes are exact: numbers are written in balanced mixed radix (H. L. Garner, "The residue
//! number system", 1959; Knuth, TAOCP 2, 4.3.2), whose digits represent every centred residue
//! exactly once. Fast base conversion (Bajard, Eynard, Hasan, Zucca, SAC 2016) adds an unknown
//! small multiple of the modulus instead; for the few primes converted at a time here the exact
//! digits cost `k (k - 1) / 2` products a coefficient more, against `k` for each target and its
//! NTT.

mod chain;
mod conversion;
mod division;
mod integers;
mod mixed_radix;
mod simd;

use std::ops::Range;

use thiserror::Error;

use crate::{ModulusError, Ntt, NttError, Prime, Word};

pub use chain::primes;
pub use conversion::Conversion;
pub use division::{CHUNK, Division};
pub use integers::Integers;
pub use mixed_radix::MixedRadix;

/// Most primes of a basis.
pub const MAX_LIMBS: usize = 128;

/// Why primes are no basis.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum RnsError {
    /// None, or too many.
    #[error("a basis of {limbs} primes: take 1 to {MAX_LIMBS}")]
    Limbs {
        /// The number given.
        limbs: usize,
    },
    /// The same prime twice.
    #[error(
        "prime {prime} occurs twice in the basis; take distinct ones, for instance from rns::primes"
    )]
    Repeated {
        /// The prime.
        prime: u64,
    },
    /// Not enough primes of a size.
    #[error(
        "there are only {found} primes of {bits} bits with an NTT of degree {n}, {wanted} are wanted; \
         take other sizes"
    )]
    TooFewPrimes {
        /// Degree.
        n: usize,
        /// Bits of the prime.
        bits: u32,
        /// The number wanted.
        wanted: usize,
        /// The number that exists.
        found: usize,
    },
    /// Not a prime that fits the word.
    #[error(transparent)]
    Modulus(#[from] ModulusError),
    /// The prime and the degree do not go together.
    #[error(transparent)]
    Ntt(#[from] NttError),
}

/// Distinct primes with their transforms of one degree.
pub struct RnsBasis<W> {
    transforms: Vec<Ntt<W>>,
}

impl<W: Word> RnsBasis<W> {
    /// The basis of `primes`, in this order, for polynomials of degree `n`; each is 1 modulo `2n`.
    ///
    /// # Errors
    /// [`RnsError`] when there are none, too many, two the same, or one without a transform.
    pub fn new(n: usize, primes: &[u64]) -> Result<Self, RnsError> {
        if !(1..=MAX_LIMBS).contains(&primes.len()) {
            let limbs = primes.len();
            return Err(RnsError::Limbs { limbs });
        }
        if let Some((_, &prime)) =
            (primes.iter().enumerate()).find(|&(i, prime)| primes[..i].contains(prime))
        {
            return Err(RnsError::Repeated { prime });
        }
        let transform = |&prime: &u64| Ok(Ntt::new(n, Prime::new(prime)?)?);
        Ok(Self {
            transforms: primes
                .iter()
                .map(transform)
                .collect::<Result<_, RnsError>>()?,
        })
    }

    /// Degree: words of a limb.
    pub fn n(&self) -> usize {
        self.transforms[0].n()
    }

    /// The number of primes.
    pub fn limbs(&self) -> usize {
        self.transforms.len()
    }

    /// The transform of a limb.
    ///
    /// # Panics
    /// When there is no such limb.
    pub fn ntt(&self, limb: usize) -> &Ntt<W> {
        &self.transforms[limb]
    }

    /// The prime of a limb.
    ///
    /// # Panics
    /// When there is no such limb.
    pub fn prime(&self, limb: usize) -> &Prime<W> {
        self.transforms[limb].modulus()
    }

    /// All primes, in order.
    pub fn primes(&self) -> impl Iterator<Item = &Prime<W>> {
        self.transforms.iter().map(Ntt::modulus)
    }

    /// Bits of the product of these limbs' primes, which is `ceil(log2 product)`: it is no power of
    /// two.
    ///
    /// # Panics
    /// When there are no such limbs.
    pub fn product_bits(&self, limbs: Range<usize>) -> u32 {
        let mut product = vec![1u64];
        for transform in &self.transforms[limbs] {
            let mut carry = 0u128;
            for digit in &mut product {
                let sum = u128::from(*digit) * u128::from(transform.modulus().value()) + carry;
                *digit = sum as u64;
                carry = sum >> 64;
            }
            if carry > 0 {
                product.push(carry as u64);
            }
        }
        let top = product[product.len() - 1];
        64 * product.len() as u32 - top.leading_zeros()
    }

    /// `log2` of the product of these limbs' primes.
    ///
    /// # Panics
    /// When there are no such limbs.
    pub fn log2_product(&self, limbs: Range<usize>) -> f64 {
        let logs = self.transforms[limbs].iter();
        logs.map(|ntt| (ntt.modulus().value() as f64).log2()).sum()
    }

    /// Coefficients to values, limb by limb; `x` holds the first `x.len() / n` limbs.
    ///
    /// # Panics
    /// Unless `x` is a whole number of limbs, no more than there are.
    pub fn forward(&self, x: &mut [W]) {
        self.each_limb(x, Ntt::forward);
    }

    /// Values to coefficients: the inverse of [`forward`](Self::forward).
    ///
    /// # Panics
    /// As [`forward`](Self::forward).
    pub fn inverse(&self, x: &mut [W]) {
        self.each_limb(x, Ntt::inverse);
    }

    fn each_limb(&self, x: &mut [W], transform: impl Fn(&Ntt<W>, &mut [W])) {
        let n = self.n();
        assert!(
            x.len().is_multiple_of(n) && x.len() / n <= self.limbs(),
            "a polynomial has whole limbs, no more than the basis has primes"
        );
        for (ntt, limb) in self.transforms.iter().zip(x.chunks_exact_mut(n)) {
            transform(ntt, limb);
        }
    }
}

/// Product of the primes of these limbs modulo `q`.
fn product_modulo<'a, W: Word>(q: &Prime<W>, primes: impl Iterator<Item = &'a Prime<W>>) -> W {
    let one = W::from_u64(1);
    primes.fold(one, |product, p| {
        q.mul(product, W::from_u64(p.value() % q.value()))
    })
}

/// `1 / x mod q` for the product `x` of primes other than `q`, which is never zero.
fn inverse_of_product<W: Word>(q: &Prime<W>, product: W) -> W {
    q.pow(product, q.value() - 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bases_are_checked() {
        let check = |primes: &[u64]| RnsBasis::<u32>::new(8, primes).err();
        assert_eq!(check(&[]), Some(RnsError::Limbs { limbs: 0 }));
        assert_eq!(check(&[17; 129]), Some(RnsError::Limbs { limbs: 129 }));
        assert_eq!(check(&[17, 97, 17]), Some(RnsError::Repeated { prime: 17 }));
        assert!(matches!(check(&[17, 18]), Some(RnsError::Modulus(_))));
        assert!(matches!(check(&[17, 19]), Some(RnsError::Ntt(_))));
        assert!(check(&[17, 97]).is_none());
    }

    #[test]
    fn products_are_measured_exactly() {
        let basis = RnsBasis::<u64>::new(8, &[17, 97, 113]).unwrap();
        // 17 * 97 = 1649, 17 * 97 * 113 = 186337.
        assert_eq!(basis.product_bits(0..2), 11);
        assert_eq!(basis.product_bits(0..3), 18);
        assert_eq!(basis.product_bits(1..1), 1);
        assert!((basis.log2_product(0..3) - 186_337f64.log2()).abs() < 1e-12);
        let wide = primes(1024, &[60; 5]).unwrap();
        let basis = RnsBasis::<u64>::new(1024, &wide).unwrap();
        assert_eq!(basis.product_bits(0..5), 300);
    }
}
