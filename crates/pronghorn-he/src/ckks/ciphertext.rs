//! Ciphertexts and their arithmetic, with scales and levels checked.

use pronghorn_ring::Word;

use super::{CkksError, Plaintext, Scalar};
use crate::rns::{self, EvaluationKeys, Parameters, slices};

/// Scales that differ by less than this, relatively, are one: products come out differently rounded
/// in another order. It bounds the relative error of a sum that follows from it.
const SCALE_TOLERANCE: f64 = 1.0 / (1u64 << 45) as f64;

/// `c_0 + c_1 s + ... + c_d s^d` is the scaled message with its noise. Products without
/// relinearisation have up to [`MAX_POLYS`](crate::rns::MAX_POLYS) polynomials.
#[derive(Clone)]
pub struct Ciphertext<W: Word> {
    inner: rns::Ciphertext<W>,
    scale: f64,
}

impl<W: Word> Ciphertext<W> {
    /// Of words `[poly][limb][N]` in the NTT domain, each below the prime of its limb.
    ///
    /// # Errors
    /// When there are no such limbs, the words are not 1 to [`MAX_POLYS`](crate::rns::MAX_POLYS)
    /// whole polynomials, or the scale leaves no room.
    pub fn from_words(
        parameters: &Parameters<W>,
        limbs: usize,
        scale: f64,
        data: Vec<W>,
    ) -> Result<Self, CkksError> {
        let inner = rns::Ciphertext::from_words(parameters, limbs, data)?;
        parameters.check_scale(scale, limbs)?;
        Ok(Self::new(inner, scale))
    }

    pub(super) fn new(inner: rns::Ciphertext<W>, scale: f64) -> Self {
        Self { inner, scale }
    }

    /// Its parameters.
    pub fn parameters(&self) -> &Parameters<W> {
        self.inner.parameters()
    }

    /// Polynomials: its degree in the secret key and one.
    pub fn polys(&self) -> usize {
        self.inner.polys()
    }

    /// Limbs: its level and one.
    pub fn limbs(&self) -> usize {
        self.inner.limbs()
    }

    /// The scale: the factor on the values.
    pub fn scale(&self) -> f64 {
        self.scale
    }

    /// All words, `[poly][limb][N]`.
    pub fn data(&self) -> &[W] {
        self.inner.data()
    }

    /// All words, `[poly][limb][N]`; each must stay below its prime.
    pub fn data_mut(&mut self) -> &mut [W] {
        self.inner.data_mut()
    }

    /// All words, `[poly][limb][N]`.
    pub fn into_words(self) -> Vec<W> {
        self.inner.into_words()
    }

    /// One polynomial, `[limb][N]`.
    ///
    /// # Panics
    /// When there is no such polynomial.
    pub fn poly(&self, index: usize) -> &[W] {
        self.inner.poly(index)
    }

    /// Another scale for the same words, which multiplies the values by the quotient of the old and
    /// the new scale.
    ///
    /// # Errors
    /// When the scale leaves no room in the modulus.
    pub fn with_scale(mut self, scale: f64) -> Result<Self, CkksError> {
        self.parameters().check_scale(scale, self.limbs())?;
        self.scale = scale;
        Ok(self)
    }

    /// The sum, of as many polynomials as the longer operand.
    ///
    /// # Errors
    /// When parameters, limbs or scales differ.
    pub fn add(&self, other: &Self) -> Result<Self, CkksError> {
        let (long, short) = if self.polys() < other.polys() {
            (other, self)
        } else {
            (self, other)
        };
        let mut sum = long.clone();
        sum.add_assign(short)?;
        Ok(sum)
    }

    /// Adds `other`, which has no more polynomials.
    ///
    /// # Errors
    /// When parameters, limbs or scales differ, or `other` has more polynomials.
    pub fn add_assign(&mut self, other: &Self) -> Result<(), CkksError> {
        self.matches(other)?;
        Ok(self.inner.add_assign(&other.inner)?)
    }

    /// The difference, of as many polynomials as the longer operand.
    ///
    /// # Errors
    /// When parameters, limbs or scales differ.
    pub fn sub(&self, other: &Self) -> Result<Self, CkksError> {
        if self.polys() < other.polys() {
            return other.neg().add(self);
        }
        let mut difference = self.clone();
        difference.sub_assign(other)?;
        Ok(difference)
    }

    /// Subtracts `other`, which has no more polynomials.
    ///
    /// # Errors
    /// When parameters, limbs or scales differ, or `other` has more polynomials.
    pub fn sub_assign(&mut self, other: &Self) -> Result<(), CkksError> {
        self.matches(other)?;
        Ok(self.inner.sub_assign(&other.inner)?)
    }

    /// The negation.
    pub fn neg(&self) -> Self {
        Self::new(self.inner.neg(), self.scale)
    }

    /// Adds a plaintext of the same limbs and scale.
    ///
    /// # Errors
    /// When parameters, limbs or scales differ.
    pub fn add_plain(&self, plain: &Plaintext<W>) -> Result<Self, CkksError> {
        self.matches_plain(plain)?;
        same_scale(self.scale, plain.scale())?;
        let mut sum = self.clone();
        let (parameters, limbs) = (self.parameters(), self.limbs());
        slices::add_assign(parameters, limbs, sum.data_mut(), plain.data());
        Ok(sum)
    }

    /// Subtracts a plaintext of the same limbs and scale.
    ///
    /// # Errors
    /// When parameters, limbs or scales differ.
    pub fn sub_plain(&self, plain: &Plaintext<W>) -> Result<Self, CkksError> {
        self.matches_plain(plain)?;
        same_scale(self.scale, plain.scale())?;
        let mut difference = self.clone();
        let (parameters, limbs) = (self.parameters(), self.limbs());
        slices::sub_assign(parameters, limbs, difference.data_mut(), plain.data());
        Ok(difference)
    }

    /// Multiplies by a plaintext of the same limbs, slot by slot. The scales multiply.
    ///
    /// # Errors
    /// When parameters or limbs differ, or the scale leaves no room.
    pub fn mul_plain(&self, plain: &Plaintext<W>) -> Result<Self, CkksError> {
        self.matches_plain(plain)?;
        let scale = self.product_scale(plain.scale())?;
        let mut inner = self.inner.clone();
        let (parameters, limbs) = (self.parameters(), self.limbs());
        slices::mul_plain_assign(parameters, limbs, inner.data_mut(), plain.data());
        Ok(Self::new(inner, scale))
    }

    /// Adds a real number of the same scale to every slot.
    ///
    /// # Errors
    /// When parameters or scales differ, or the scalar has fewer limbs.
    pub fn add_scalar(&self, scalar: &Scalar<W>) -> Result<Self, CkksError> {
        self.matches_scalar(scalar)?;
        same_scale(self.scale, scalar.scale())?;
        let mut sum = self.clone();
        let (parameters, limbs) = (self.parameters(), self.limbs());
        slices::add_scalar_assign(parameters, limbs, sum.data_mut(), scalar.words());
        Ok(sum)
    }

    /// Multiplies every slot by a real number. The scales multiply.
    ///
    /// # Errors
    /// When parameters differ, the scalar has fewer limbs, or the scale leaves no room.
    pub fn mul_scalar(&self, scalar: &Scalar<W>) -> Result<Self, CkksError> {
        self.matches_scalar(scalar)?;
        let scale = self.product_scale(scalar.scale())?;
        Ok(self.times(scalar.words(), scale))
    }

    /// Multiplies every slot by a whole number, at no cost in scale.
    pub fn mul_integer(&self, factor: i64) -> Self {
        let primes = self.parameters().basis().primes();
        let words: Vec<W> = primes.map(|q| q.from_i64(factor)).collect();
        self.times(&words, self.scale)
    }

    /// All polynomials times a number of one residue a limb.
    fn times(&self, words: &[W], scale: f64) -> Self {
        let mut inner = self.inner.clone();
        let (parameters, limbs) = (self.parameters(), self.limbs());
        slices::mul_scalar_assign(parameters, limbs, inner.data_mut(), words);
        Self::new(inner, scale)
    }

    /// The product, slot by slot: as many polynomials as both have together, less one. The scales
    /// multiply.
    ///
    /// # Errors
    /// When parameters or limbs differ, the scale leaves no room, or there are too many
    /// polynomials.
    pub fn multiply(&self, other: &Self) -> Result<Self, CkksError> {
        let inner = self.inner.multiply(&other.inner)?;
        Ok(Self::new(inner, self.product_scale(other.scale)?))
    }

    /// The square, slot by slot.
    ///
    /// # Errors
    /// When the scale leaves no room, or there are too many polynomials.
    pub fn square(&self) -> Result<Self, CkksError> {
        let scale = self.product_scale(self.scale)?;
        Ok(Self::new(self.inner.square()?, scale))
    }

    /// Divides by the last `dropped` primes with one rounding to the nearest, which divides the
    /// scale by their product.
    ///
    /// # Errors
    /// When no limb would be left.
    pub fn rescale(&self, dropped: usize) -> Result<Self, CkksError> {
        let inner = self.inner.rescale(dropped)?;
        Ok(Self::new(inner, self.rescaled_scale(dropped)))
    }

    /// The scale after rescaling by this many limbs, fewer than there are.
    fn rescaled_scale(&self, dropped: usize) -> f64 {
        let limbs = self.limbs();
        let primes = self.parameters().basis().primes().take(limbs);
        let gone = primes.skip(limbs - dropped);
        gone.fold(self.scale, |scale, q| scale / q.value() as f64)
    }

    /// Forgets the last `dropped` limbs: the same values and scale modulo a smaller modulus.
    ///
    /// # Errors
    /// When no limb would be left, or the scale leaves no room in what is left.
    pub fn drop_limbs(&self, dropped: usize) -> Result<Self, CkksError> {
        let inner = self.inner.drop_limbs(dropped)?;
        self.parameters().check_scale(self.scale, inner.limbs())?;
        Ok(Self::new(inner, self.scale))
    }

    /// The same values in two polynomials: all powers of the secret above the first are switched in
    /// one go. Nothing happens to a ciphertext of two polynomials or less.
    ///
    /// # Errors
    /// When parameters differ, or there is no key for one of the powers.
    pub fn relinearise(&self, keys: &EvaluationKeys<W>) -> Result<Self, CkksError> {
        self.relinearise_and_rescale(keys, 0)
    }

    /// [`relinearise`](Self::relinearise), then [`rescale`](Self::rescale) by `dropped` limbs, with
    /// one division for both: fewer transforms and less noise.
    ///
    /// # Errors
    /// When parameters differ, there is no key for one of the powers, or no limb would be left.
    pub fn relinearise_and_rescale(
        &self,
        keys: &EvaluationKeys<W>,
        dropped: usize,
    ) -> Result<Self, CkksError> {
        let inner = self.inner.relinearise_and_rescale(keys, dropped)?;
        let scale = self.rescaled_scale(dropped);
        self.parameters().check_scale(scale, inner.limbs())?;
        Ok(Self::new(inner, scale))
    }

    /// Slots moved to the left by `steps`, around the end: slot `j` gets the value of slot
    /// `j + steps`. Negative steps go right.
    ///
    /// # Errors
    /// When parameters differ, there are more than two polynomials, or there is no key for these
    /// steps.
    pub fn rotate(&self, steps: i64, keys: &EvaluationKeys<W>) -> Result<Self, CkksError> {
        let mut rotated = self.rotate_many(&[steps], keys)?;
        Ok(rotated.swap_remove(0))
    }

    /// All of these rotations. Raising the digits, most of the work, is done once for all of them.
    ///
    /// # Errors
    /// As [`rotate`](Self::rotate).
    pub fn rotate_many(
        &self,
        steps: &[i64],
        keys: &EvaluationKeys<W>,
    ) -> Result<Vec<Self>, CkksError> {
        let rotated = self.inner.rotate_many(steps, keys)?.into_iter();
        Ok(rotated.map(|inner| Self::new(inner, self.scale)).collect())
    }

    /// The complex conjugate of every slot.
    ///
    /// # Errors
    /// When parameters differ, there are more than two polynomials, or there is no conjugation key.
    pub fn conjugate(&self, keys: &EvaluationKeys<W>) -> Result<Self, CkksError> {
        Ok(Self::new(self.inner.conjugate(keys)?, self.scale))
    }

    /// Refuses operands of other parameters, limbs or scales, or with more polynomials.
    fn matches(&self, other: &Self) -> Result<(), CkksError> {
        self.inner.check_operand(&other.inner)?;
        same_scale(self.scale, other.scale)
    }

    fn matches_plain(&self, plain: &Plaintext<W>) -> Result<(), CkksError> {
        self.parameters().same(plain.parameters())?;
        Ok(self.inner.check_limbs(plain.limbs())?)
    }

    fn matches_scalar(&self, scalar: &Scalar<W>) -> Result<(), CkksError> {
        self.parameters().same(scalar.parameters())?;
        if scalar.limbs() < self.limbs() {
            self.inner.check_limbs(scalar.limbs())?;
        }
        Ok(())
    }

    fn product_scale(&self, other: f64) -> Result<f64, CkksError> {
        let scale = self.scale * other;
        self.parameters().check_scale(scale, self.limbs())?;
        Ok(scale)
    }
}

pub(crate) fn same_scale(left: f64, right: f64) -> Result<(), CkksError> {
    if (left - right).abs() <= left.max(right) * SCALE_TOLERANCE {
        Ok(())
    } else {
        Err(CkksError::Scales { left, right })
    }
}
