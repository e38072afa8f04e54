//! Multi-key CKKS: extended ciphertexts with scales.

use pronghorn_ring::{Word, random::Stream};

use super::{
    Common, Contribution, Decryptor, EncryptionKeys, Extended, KeyRing, MultiKeyError, Partial,
    Party, PublicKeys, Relinearisation, SecretKey,
    decryption::{fresh_stream, rerandomise},
    merge,
};
use crate::{
    ckks::{self, CkksError, Message, Plaintext, Scalar},
    rns::{RingError, slices},
};

/// An extended ciphertext of approximate numbers: `c_0 + c_1 s_1 + ... + c_k s_k` is the scaled
/// message with its noise.
#[derive(Clone)]
pub struct Ciphertext<W: Word> {
    inner: Extended<W>,
    scale: f64,
}

impl<W: Word> PublicKeys<W> {
    /// Encrypts under this party's key, as with one key. Anyone can.
    ///
    /// # Errors
    /// When the message is of other parameters.
    pub fn encrypt(
        &self,
        message: &Message<W>,
        random: &mut Stream,
    ) -> Result<Ciphertext<W>, MultiKeyError> {
        let fresh = self.encryption().encrypt(message, random)?;
        Ciphertext::of_party(self.common(), self.party(), fresh)
    }
}

impl<W: Word> Ciphertext<W> {
    /// A ciphertext of one party, of two polynomials.
    ///
    /// # Errors
    /// When it has another number of polynomials, or is of other parameters.
    pub fn of_party(
        common: &Common<W>,
        party: Party,
        ciphertext: ckks::Ciphertext<W>,
    ) -> Result<Self, MultiKeyError> {
        common.ring().same(ciphertext.parameters())?;
        let (limbs, scale) = (ciphertext.limbs(), ciphertext.scale());
        let inner = Extended::of_party(common, party, limbs, ciphertext.into_words())?;
        Ok(Self { inner, scale })
    }

    /// An extended ciphertext with its scale.
    ///
    /// # Errors
    /// When the scale leaves no room.
    pub fn new(inner: Extended<W>, scale: f64) -> Result<Self, MultiKeyError> {
        inner.common().ring().check_scale(scale, inner.limbs())?;
        Ok(Self { inner, scale })
    }

    /// The same value with a fresh encryption of zero under the keys of all parties, as whoever
    /// computed it must do before it shows it. As computed, a ciphertext may be an exact multiple
    /// of another party's. One who chose the factor then reads that party's secret off decryptions:
    /// floods have one size, whatever the factor. The noise of an encryption of zero is added; one
    /// is counted by [`Rule::new`](super::Rule::new).
    ///
    /// # Errors
    /// When a key is missing, or the system has no randomness.
    pub fn rerandomised(&self, keys: &impl EncryptionKeys<W>) -> Result<Self, MultiKeyError> {
        let inner = rerandomise(&self.inner, keys)?;
        Ok(Self {
            inner,
            scale: self.scale,
        })
    }

    /// The same value with a polynomial of `party` that nobody knew before, from the party's
    /// encryption key: for an evaluator, before it applies keys of that party which may be false
    /// ([`PairKey`](super::PairKey) says why). Adds [`Common::refresh_noise`]. Costs 3 NTTs a limb
    /// and special prime, and the division of two polynomials.
    ///
    /// # Errors
    /// When the party's key is missing, it is no party, or the system has no randomness.
    pub fn refreshed(
        &self,
        party: Party,
        keys: &impl EncryptionKeys<W>,
    ) -> Result<Self, MultiKeyError> {
        let key = keys.encryption_key(party)?;
        let inner = self.inner.refreshed(party, key, &mut fresh_stream()?)?;
        Ok(Self { inner, ..*self })
    }

    /// The extended ciphertext.
    pub fn extended(&self) -> &Extended<W> {
        &self.inner
    }

    /// The scale: the factor on the values.
    pub fn scale(&self) -> f64 {
        self.scale
    }

    /// The parties, in ascending order.
    pub fn parties(&self) -> &[Party] {
        self.inner.parties()
    }

    /// Limbs: its level and one.
    pub fn limbs(&self) -> usize {
        self.inner.limbs()
    }

    /// Another scale for the same words, which multiplies the values by the quotient of the old and
    /// the new scale.
    ///
    /// # Errors
    /// When the scale leaves no room in the modulus.
    pub fn with_scale(self, scale: f64) -> Result<Self, MultiKeyError> {
        Self::new(self.inner, scale)
    }

    /// The sum, under the keys of both operands' parties.
    ///
    /// # Errors
    /// When common reference strings, limbs or scales differ.
    pub fn add(&self, other: &Self) -> Result<Self, MultiKeyError> {
        ckks::same_scale(self.scale, other.scale)?;
        let inner = self.inner.add(&other.inner)?;
        Ok(Self { inner, ..*self })
    }

    /// The same value under the keys of these parties, too.
    ///
    /// # Errors
    /// As [`Extended::extended_to`].
    pub fn extended_to(&self, parties: &[Party]) -> Result<Self, MultiKeyError> {
        let inner = self.inner.extended_to(parties)?;
        Ok(Self { inner, ..*self })
    }

    /// The difference, under the keys of both operands' parties.
    ///
    /// # Errors
    /// As [`add`](Self::add).
    pub fn sub(&self, other: &Self) -> Result<Self, MultiKeyError> {
        ckks::same_scale(self.scale, other.scale)?;
        let inner = self.inner.sub(&other.inner)?;
        Ok(Self { inner, ..*self })
    }

    /// The negation.
    #[must_use]
    pub fn neg(&self) -> Self {
        let inner = self.inner.neg();
        Self { inner, ..*self }
    }

    /// Adds a plaintext of the same limbs and scale.
    ///
    /// # Errors
    /// When parameters, limbs or scales differ.
    pub fn add_plain(&self, plain: &Plaintext<W>) -> Result<Self, MultiKeyError> {
        self.matches(plain)?;
        ckks::same_scale(self.scale, plain.scale())?;
        let mut sum = self.clone();
        let (common, limbs) = (self.inner.common(), self.limbs());
        slices::add_assign(common.ring(), limbs, sum.inner.data_mut(), plain.data());
        Ok(sum)
    }

    /// Multiplies by a plaintext of the same limbs, slot by slot. The scales multiply.
    ///
    /// # Errors
    /// When parameters or limbs differ, or the scale leaves no room.
    pub fn mul_plain(&self, plain: &Plaintext<W>) -> Result<Self, MultiKeyError> {
        self.matches(plain)?;
        let scale = self.product_scale(plain.scale())?;
        let mut inner = self.inner.clone();
        let (common, limbs) = (self.inner.common(), self.limbs());
        slices::mul_plain_assign(common.ring(), limbs, inner.data_mut(), plain.data());
        Ok(Self { inner, scale })
    }

    /// Multiplies every slot by a real number. The scales multiply.
    ///
    /// # Errors
    /// When parameters differ, the scalar has fewer limbs, or the scale leaves no room.
    pub fn mul_scalar(&self, scalar: &Scalar<W>) -> Result<Self, MultiKeyError> {
        let (ring, left) = (self.inner.common().ring(), self.limbs());
        ring.same(scalar.parameters())?;
        let right = scalar.limbs();
        if right < left {
            return Err(RingError::Limbs { left, right }.into());
        }
        let scale = self.product_scale(scalar.scale())?;
        let mut inner = self.inner.clone();
        slices::mul_scalar_assign(ring, left, inner.data_mut(), scalar.words());
        Ok(Self { inner, scale })
    }

    /// The product, slot by slot, relinearised and divided by the last `dropped` primes. The scales
    /// multiply, and are divided.
    ///
    /// # Errors
    /// When common reference strings or limbs differ, a party's keys are missing, or the scale
    /// leaves no room.
    pub fn multiply(
        &self,
        other: &Self,
        keys: &KeyRing<W>,
        dropped: usize,
        relinearisation: Relinearisation,
    ) -> Result<Self, MultiKeyError> {
        let scale = self.product_scale(other.scale)?;
        let inner = (self.inner).multiply(&other.inner, keys, dropped, relinearisation)?;
        Self::new(inner, self.rescaled(scale, dropped))
    }

    /// The sum of products, slot by slot, relinearised once and divided by the last `dropped`
    /// primes. Raises and divides as many polynomials as one product.
    ///
    /// # Errors
    /// As [`Extended::inner_product`], and when the products differ in their scale or leave it no
    /// room.
    pub fn inner_product(
        products: &[(&Self, &Self)],
        keys: &KeyRing<W>,
        dropped: usize,
    ) -> Result<Self, MultiKeyError> {
        let &[(first, second), ..] = products else {
            return Err(MultiKeyError::NoProducts);
        };
        let scale = first.product_scale(second.scale)?;
        for (x, y) in products {
            ckks::same_scale(scale, x.product_scale(y.scale)?)?;
        }
        let factors: Vec<_> = products.iter().map(|(x, y)| (&x.inner, &y.inner)).collect();
        let inner = Extended::inner_product(&factors, keys, dropped)?;
        Self::new(inner, first.rescaled(scale, dropped))
    }

    /// The square, slot by slot, as [`multiply`](Self::multiply).
    ///
    /// # Errors
    /// As [`multiply`](Self::multiply).
    pub fn square(
        &self,
        keys: &KeyRing<W>,
        dropped: usize,
        relinearisation: Relinearisation,
    ) -> Result<Self, MultiKeyError> {
        self.multiply(self, keys, dropped, relinearisation)
    }

    /// Divides by the last `dropped` primes with one rounding to the nearest, which divides the
    /// scale by their product.
    ///
    /// # Errors
    /// When no limb would be left.
    pub fn rescale(&self, dropped: usize) -> Result<Self, MultiKeyError> {
        let inner = self.inner.rescale(dropped)?;
        let scale = self.rescaled(self.scale, dropped);
        Ok(Self { inner, scale })
    }

    /// Forgets the last `dropped` limbs: the same values and scale modulo a smaller modulus.
    ///
    /// # Errors
    /// When no limb would be left, or the scale leaves no room in what is left.
    pub fn drop_limbs(&self, dropped: usize) -> Result<Self, MultiKeyError> {
        Self::new(self.inner.drop_limbs(dropped)?, self.scale)
    }

    /// Slots moved to the left by each of `steps`, around the end; negative steps go right. Raising
    /// the digits, most of the work, is done once for all of them.
    ///
    /// # Errors
    /// When a party's keys are missing.
    pub fn rotate_many(
        &self,
        steps: &[i64],
        keys: &KeyRing<W>,
    ) -> Result<Vec<Self>, MultiKeyError> {
        let rotated = self.inner.rotate_many(steps, keys)?.into_iter();
        Ok(rotated.map(|inner| Self { inner, ..*self }).collect())
    }

    /// The complex conjugate of every slot.
    ///
    /// # Errors
    /// When a party's keys are missing.
    pub fn conjugate(&self, keys: &KeyRing<W>) -> Result<Self, MultiKeyError> {
        let inner = self.inner.conjugate(keys)?;
        Ok(Self { inner, ..*self })
    }

    /// The plaintext, for one who has all secrets: tests and checks.
    ///
    /// # Errors
    /// When a secret is missing.
    pub fn decrypt_with_all(
        &self,
        secrets: &[&SecretKey<W>],
    ) -> Result<Plaintext<W>, MultiKeyError> {
        let phase = self.inner.phase(secrets)?;
        Ok(self.plaintext(phase))
    }

    /// The plaintext of a distributed decryption of [`extended`](Self::extended).
    ///
    /// # Errors
    /// As [`merge`].
    pub fn merge(
        &self,
        contributions: &[Contribution<W>],
        partials: &[Partial<W>],
    ) -> Result<Plaintext<W>, MultiKeyError> {
        let phase = merge(&self.inner, contributions, partials)?;
        Ok(self.plaintext(phase))
    }

    /// The result of two parties, at the one that alone learns it: [`Decryptor::complete`].
    ///
    /// # Errors
    /// As there.
    pub fn complete(
        &self,
        decryptor: &mut Decryptor<W>,
        contribution: &Contribution<W>,
        partial: Partial<W>,
    ) -> Result<Plaintext<W>, MultiKeyError> {
        let phase = decryptor.complete(&self.inner, contribution, partial)?;
        Ok(self.plaintext(phase))
    }

    /// A plaintext of this scale.
    fn plaintext(&self, words: Vec<W>) -> Plaintext<W> {
        Plaintext::new(self.inner.common().ring(), words, self.scale)
    }

    fn matches(&self, plain: &Plaintext<W>) -> Result<(), MultiKeyError> {
        self.inner.common().ring().same(plain.parameters())?;
        let (left, right) = (self.limbs(), plain.limbs());
        if left == right {
            Ok(())
        } else {
            Err(RingError::Limbs { left, right }.into())
        }
    }

    fn product_scale(&self, other: f64) -> Result<f64, CkksError> {
        let scale = self.scale * other;
        let ring = self.inner.common().ring();
        ring.check_scale(scale, self.limbs())?;
        Ok(scale)
    }

    /// A scale after the last `dropped` primes went.
    fn rescaled(&self, scale: f64, dropped: usize) -> f64 {
        let limbs = self.limbs();
        let primes = self.inner.common().ring().basis().primes().take(limbs);
        let gone = primes.skip(limbs - dropped);
        gone.fold(scale, |scale, q| scale / q.value() as f64)
    }
}
