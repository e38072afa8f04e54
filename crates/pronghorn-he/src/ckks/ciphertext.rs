//! Ciphertexts and their arithmetic, with scales and levels checked.

use std::mem;

use pronghorn_ring::Word;

use super::{CkksError, MAX_POLYS, Parameters, Plaintext, Scalar, slices};

/// Scales that differ by less than this, relatively, are one: products come out differently rounded in another order.
/// It bounds the relative error of a sum that follows from it.
const SCALE_TOLERANCE: f64 = 1.0 / (1u64 << 45) as f64;

/// `c_0 + c_1 s + ... + c_d s^d` is the scaled message with its noise. Products without relinearisation
/// have up to [`MAX_POLYS`] polynomials.
pub struct Ciphertext<W: Word> {
    parameters: Parameters<W>,
    /// `[poly][limb][N]`, in the NTT domain.
    data: Vec<W>,
    limbs: usize,
    scale: f64,
}

impl<W: Word> Clone for Ciphertext<W> {
    fn clone(&self) -> Self {
        let mut data = self.parameters.pool().take_words(self.data.len());
        data.copy_from_slice(&self.data);
        self.like(self.limbs, self.scale, data)
    }
}

impl<W: Word> Drop for Ciphertext<W> {
    fn drop(&mut self) {
        self.parameters.pool().give(mem::take(&mut self.data));
    }
}

impl<W: Word> Ciphertext<W> {
    /// Of words `[poly][limb][N]` in the NTT domain, each below the prime of its limb.
    ///
    /// # Errors
    /// When there are no such limbs, the words are not 1 to [`MAX_POLYS`] whole polynomials, or the scale leaves no room.
    pub fn from_words(
        parameters: &Parameters<W>,
        limbs: usize,
        scale: f64,
        data: Vec<W>,
    ) -> Result<Self, CkksError> {
        parameters.check_limbs(limbs)?;
        parameters.check_scale(scale, limbs)?;
        let words = limbs * parameters.n();
        let polys = data.len() / words;
        if !data.len().is_multiple_of(words) || !(1..=MAX_POLYS).contains(&polys) {
            return Err(CkksError::Polys { polys });
        }
        debug_assert!(
            data.chunks_exact(parameters.n())
                .enumerate()
                .all(|(i, limb)| {
                    let q = parameters.basis().prime(i % limbs).word();
                    limb.iter().all(|&word| word < q)
                })
        );
        Ok(Self {
            parameters: parameters.clone(),
            data,
            limbs,
            scale,
        })
    }

    fn like(&self, limbs: usize, scale: f64, data: Vec<W>) -> Self {
        let parameters = self.parameters.clone();
        Self {
            parameters,
            data,
            limbs,
            scale,
        }
    }

    /// Its parameters.
    pub fn parameters(&self) -> &Parameters<W> {
        &self.parameters
    }

    /// Polynomials: its degree in the secret key and one.
    pub fn polys(&self) -> usize {
        self.data.len() / (self.limbs * self.parameters.n())
    }

    /// Limbs: its level and one.
    pub fn limbs(&self) -> usize {
        self.limbs
    }

    /// What the values are multiplied by.
    pub fn scale(&self) -> f64 {
        self.scale
    }

    /// All words, `[poly][limb][N]`.
    pub fn data(&self) -> &[W] {
        &self.data
    }

    /// All words, `[poly][limb][N]`; each must stay below its prime.
    pub fn data_mut(&mut self) -> &mut [W] {
        &mut self.data
    }

    /// All words, `[poly][limb][N]`.
    pub fn into_words(mut self) -> Vec<W> {
        mem::take(&mut self.data)
    }

    /// One polynomial, `[limb][N]`.
    ///
    /// # Panics
    /// When there is no such polynomial.
    pub fn poly(&self, index: usize) -> &[W] {
        let words = self.limbs * self.parameters.n();
        &self.data[index * words..][..words]
    }

    /// Another scale for the same words, which multiplies the values by the quotient of the old and the new scale.
    ///
    /// # Errors
    /// When the scale leaves no room in the modulus.
    pub fn with_scale(mut self, scale: f64) -> Result<Self, CkksError> {
        self.parameters.check_scale(scale, self.limbs)?;
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
        slices::add_assign(&self.parameters, self.limbs, &mut self.data, &other.data);
        Ok(())
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
        slices::sub_assign(&self.parameters, self.limbs, &mut self.data, &other.data);
        Ok(())
    }

    /// The negation.
    pub fn neg(&self) -> Self {
        let mut negation = self.clone();
        slices::neg_assign(&self.parameters, self.limbs, &mut negation.data);
        negation
    }

    /// Adds a plaintext of the same limbs and scale.
    ///
    /// # Errors
    /// When parameters, limbs or scales differ.
    pub fn add_plain(&self, plain: &Plaintext<W>) -> Result<Self, CkksError> {
        self.matches_plain(plain)?;
        same_scale(self.scale, plain.scale())?;
        let mut sum = self.clone();
        slices::add_assign(&self.parameters, self.limbs, &mut sum.data, plain.data());
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
        slices::sub_assign(
            &self.parameters,
            self.limbs,
            &mut difference.data,
            plain.data(),
        );
        Ok(difference)
    }

    /// Multiplies by a plaintext of the same limbs, slot by slot. The scales multiply.
    ///
    /// # Errors
    /// When parameters or limbs differ, or the scale leaves no room.
    pub fn mul_plain(&self, plain: &Plaintext<W>) -> Result<Self, CkksError> {
        self.matches_plain(plain)?;
        let scale = self.product_scale(plain.scale())?;
        let mut data = self.clone().into_words();
        slices::mul_plain_assign(&self.parameters, self.limbs, &mut data, plain.data());
        Ok(self.like(self.limbs, scale, data))
    }

    /// Adds a real number of the same scale to every slot.
    ///
    /// # Errors
    /// When parameters or scales differ, or the scalar has fewer limbs.
    pub fn add_scalar(&self, scalar: &Scalar<W>) -> Result<Self, CkksError> {
        self.matches_scalar(scalar)?;
        same_scale(self.scale, scalar.scale())?;
        let mut sum = self.clone();
        slices::add_scalar_assign(&self.parameters, self.limbs, &mut sum.data, scalar.words());
        Ok(sum)
    }

    /// Multiplies every slot by a real number. The scales multiply.
    ///
    /// # Errors
    /// When parameters differ, the scalar has fewer limbs, or the scale leaves no room.
    pub fn mul_scalar(&self, scalar: &Scalar<W>) -> Result<Self, CkksError> {
        self.matches_scalar(scalar)?;
        let scale = self.product_scale(scalar.scale())?;
        let mut data = self.clone().into_words();
        slices::mul_scalar_assign(&self.parameters, self.limbs, &mut data, scalar.words());
        Ok(self.like(self.limbs, scale, data))
    }

    /// Multiplies every slot by a whole number, at no cost in scale.
    pub fn mul_integer(&self, factor: i64) -> Self {
        let words: Vec<W> = self
            .parameters
            .basis()
            .primes()
            .map(|q| q.from_i64(factor))
            .collect();
        let mut data = self.clone().into_words();
        slices::mul_scalar_assign(&self.parameters, self.limbs, &mut data, &words);
        self.like(self.limbs, self.scale, data)
    }

    /// The product, slot by slot: as many polynomials as both have together, less one. The scales multiply.
    ///
    /// # Errors
    /// When parameters or limbs differ, the scale leaves no room, or there are too many polynomials.
    pub fn multiply(&self, other: &Self) -> Result<Self, CkksError> {
        self.parameters.same(&other.parameters)?;
        self.same_limbs(other.limbs)?;
        let scale = self.product_scale(other.scale)?;
        let mut data = self.room_for_product(self.polys() + other.polys() - 1)?;
        slices::multiply(
            &self.parameters,
            self.limbs,
            &self.data,
            &other.data,
            &mut data,
        );
        Ok(self.like(self.limbs, scale, data))
    }

    /// The square, slot by slot.
    ///
    /// # Errors
    /// When the scale leaves no room, or there are too many polynomials.
    pub fn square(&self) -> Result<Self, CkksError> {
        let scale = self.product_scale(self.scale)?;
        let mut data = self.room_for_product(2 * self.polys() - 1)?;
        slices::square(&self.parameters, self.limbs, &self.data, &mut data);
        Ok(self.like(self.limbs, scale, data))
    }

    /// Divides by the last `dropped` primes with one rounding to the nearest, which divides the scale by their product.
    ///
    /// # Errors
    /// When no limb would be left.
    pub fn rescale(&self, dropped: usize) -> Result<Self, CkksError> {
        let mut data = self.room_for_limbs(dropped)?;
        let scale = self.rescaled_scale(dropped)?;
        slices::rescale(&self.parameters, self.limbs, dropped, &self.data, &mut data);
        Ok(self.like(self.limbs - dropped, scale, data))
    }

    /// The scale after rescaling by this many limbs.
    pub(super) fn rescaled_scale(&self, dropped: usize) -> Result<f64, CkksError> {
        let limbs = self.limbs;
        if dropped >= limbs {
            return Err(CkksError::TooFewLimbs { limbs, dropped });
        }
        let primes = self
            .parameters
            .basis()
            .primes()
            .skip(limbs - dropped)
            .take(dropped);
        Ok(primes.fold(self.scale, |scale, q| scale / q.value() as f64))
    }

    /// Forgets the last `dropped` limbs: the same values and scale modulo a smaller modulus.
    ///
    /// # Errors
    /// When no limb would be left, or the scale leaves no room in what is left.
    pub fn drop_limbs(&self, dropped: usize) -> Result<Self, CkksError> {
        let mut data = self.room_for_limbs(dropped)?;
        let kept = self.limbs - dropped;
        self.parameters.check_scale(self.scale, kept)?;
        slices::drop_limbs(&self.parameters, self.limbs, kept, &self.data, &mut data);
        Ok(self.like(kept, self.scale, data))
    }

    /// Refuses operands of other parameters, limbs or scales, or with more polynomials.
    fn matches(&self, other: &Self) -> Result<(), CkksError> {
        self.parameters.same(&other.parameters)?;
        self.same_limbs(other.limbs)?;
        if other.polys() > self.polys() {
            return Err(CkksError::Polys {
                polys: other.polys(),
            });
        }
        same_scale(self.scale, other.scale)
    }

    fn matches_plain(&self, plain: &Plaintext<W>) -> Result<(), CkksError> {
        self.parameters.same(plain.parameters())?;
        self.same_limbs(plain.limbs())
    }

    fn matches_scalar(&self, scalar: &Scalar<W>) -> Result<(), CkksError> {
        self.parameters.same(scalar.parameters())?;
        if scalar.limbs() < self.limbs {
            self.same_limbs(scalar.limbs())
        } else {
            Ok(())
        }
    }

    fn same_limbs(&self, right: usize) -> Result<(), CkksError> {
        let left = self.limbs;
        if left == right {
            Ok(())
        } else {
            Err(CkksError::Limbs { left, right })
        }
    }

    fn product_scale(&self, other: f64) -> Result<f64, CkksError> {
        let scale = self.scale * other;
        self.parameters.check_scale(scale, self.limbs)?;
        Ok(scale)
    }

    fn room_for_product(&self, polys: usize) -> Result<Vec<W>, CkksError> {
        if polys > MAX_POLYS {
            return Err(CkksError::Polys { polys });
        }
        let words = polys * self.limbs * self.parameters.n();
        Ok(self.parameters.pool().take_words(words))
    }

    fn room_for_limbs(&self, dropped: usize) -> Result<Vec<W>, CkksError> {
        let limbs = self.limbs;
        if dropped >= limbs {
            return Err(CkksError::TooFewLimbs { limbs, dropped });
        }
        let words = self.polys() * (limbs - dropped) * self.parameters.n();
        Ok(self.parameters.pool().take_words(words))
    }
}

fn same_scale(left: f64, right: f64) -> Result<(), CkksError> {
    if (left - right).abs() <= left.max(right) * SCALE_TOLERANCE {
        Ok(())
    } else {
        Err(CkksError::Scales { left, right })
    }
}
