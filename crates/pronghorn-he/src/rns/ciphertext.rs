//! Ciphertexts: polynomials of one number of limbs, without a scheme's view of their values.

use std::mem;

use pronghorn_ring::Word;

use super::{
    EvaluationKeys, MAX_POLYS, Parameters, RingError, keys::GaloisKey, slices, switch::Switch,
};

/// `c_0 + c_1 s + ... + c_d s^d` is what a scheme makes of a message, with its noise. Products
/// without relinearisation have up to [`MAX_POLYS`] polynomials.
pub struct Ciphertext<W: Word> {
    parameters: Parameters<W>,
    /// `[poly][limb][N]`, in the NTT domain.
    data: Vec<W>,
    limbs: usize,
}

impl<W: Word> Clone for Ciphertext<W> {
    fn clone(&self) -> Self {
        let mut data = self.parameters.pool().take_words(self.data.len());
        data.copy_from_slice(&self.data);
        self.like(self.limbs, data)
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
    /// When there are no such limbs, or the words are not 1 to [`MAX_POLYS`] whole polynomials.
    pub fn from_words(
        parameters: &Parameters<W>,
        limbs: usize,
        data: Vec<W>,
    ) -> Result<Self, RingError> {
        parameters.check_limbs(limbs)?;
        let words = limbs * parameters.n();
        let polys = data.len() / words;
        if !data.len().is_multiple_of(words) || !(1..=MAX_POLYS).contains(&polys) {
            return Err(RingError::Polys { polys });
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
        })
    }

    fn like(&self, limbs: usize, data: Vec<W>) -> Self {
        let parameters = self.parameters.clone();
        Self {
            parameters,
            data,
            limbs,
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

    /// Adds `other`, which has no more polynomials.
    ///
    /// # Errors
    /// When parameters or limbs differ, or `other` has more polynomials.
    pub fn add_assign(&mut self, other: &Self) -> Result<(), RingError> {
        self.check_operand(other)?;
        slices::add_assign(&self.parameters, self.limbs, &mut self.data, &other.data);
        Ok(())
    }

    /// Subtracts `other`, which has no more polynomials.
    ///
    /// # Errors
    /// When parameters or limbs differ, or `other` has more polynomials.
    pub fn sub_assign(&mut self, other: &Self) -> Result<(), RingError> {
        self.check_operand(other)?;
        slices::sub_assign(&self.parameters, self.limbs, &mut self.data, &other.data);
        Ok(())
    }

    /// The negation.
    #[must_use]
    pub fn neg(&self) -> Self {
        let mut negation = self.clone();
        slices::neg_assign(&self.parameters, self.limbs, &mut negation.data);
        negation
    }

    /// The product as polynomials: as many as both have together, less one.
    ///
    /// # Errors
    /// When parameters or limbs differ, or there are too many polynomials.
    pub fn multiply(&self, other: &Self) -> Result<Self, RingError> {
        self.parameters.same(&other.parameters)?;
        self.check_limbs(other.limbs)?;
        let mut data = self.room_for_product(self.polys() + other.polys() - 1)?;
        slices::multiply(
            &self.parameters,
            self.limbs,
            &self.data,
            &other.data,
            &mut data,
        );
        Ok(self.like(self.limbs, data))
    }

    /// The square.
    ///
    /// # Errors
    /// When there are too many polynomials.
    pub fn square(&self) -> Result<Self, RingError> {
        let mut data = self.room_for_product(2 * self.polys() - 1)?;
        slices::square(&self.parameters, self.limbs, &self.data, &mut data);
        Ok(self.like(self.limbs, data))
    }

    /// Divides by the last `dropped` primes with one rounding to the nearest.
    ///
    /// # Errors
    /// When no limb would be left.
    pub fn rescale(&self, dropped: usize) -> Result<Self, RingError> {
        let mut data = self.room_for_limbs(self.polys(), dropped)?;
        slices::rescale(&self.parameters, self.limbs, dropped, &self.data, &mut data);
        Ok(self.like(self.limbs - dropped, data))
    }

    /// Forgets the last `dropped` limbs: the same numbers modulo a smaller modulus.
    ///
    /// # Errors
    /// When no limb would be left.
    pub fn drop_limbs(&self, dropped: usize) -> Result<Self, RingError> {
        let mut data = self.room_for_limbs(self.polys(), dropped)?;
        let kept = self.limbs - dropped;
        slices::drop_limbs(&self.parameters, self.limbs, kept, &self.data, &mut data);
        Ok(self.like(kept, data))
    }

    /// The same message in two polynomials, divided by the last `dropped` primes: all powers of the
    /// secret above the first are switched in one go, with one division for both. A ciphertext of
    /// two polynomials or less is only rescaled.
    ///
    /// # Errors
    /// When parameters differ, there is no key for one of the powers, or no limb would be left.
    pub fn relinearise_and_rescale(
        &self,
        keys: &EvaluationKeys<W>,
        dropped: usize,
    ) -> Result<Self, RingError> {
        self.parameters.same(keys.parameters())?;
        if self.polys() <= 2 {
            return self.rescale(dropped);
        }
        let mut data = self.room_for_limbs(2, dropped)?;
        keys.relinearise_words(self.limbs, dropped, &self.data, &mut data)?;
        Ok(self.like(self.limbs - dropped, data))
    }

    /// All of these rotations, `X -> X^(5^steps)`. Raising the digits, most of the work, is done
    /// once for all of them.
    ///
    /// # Errors
    /// When parameters differ, there are more than two polynomials, or there is no key for some
    /// steps.
    pub fn rotate_many(
        &self,
        steps: &[i64],
        keys: &EvaluationKeys<W>,
    ) -> Result<Vec<Self>, RingError> {
        let galois = steps
            .iter()
            .map(|&steps| keys.rotation(steps))
            .collect::<Result<Vec<_>, _>>()?;
        let moving: Vec<_> = galois.iter().copied().flatten().collect();
        let mut moved = self.apply(&moving, keys)?.into_iter();
        let rotated = galois
            .iter()
            .map(|galois| galois.and_then(|_| moved.next()));
        Ok(rotated
            .map(|rotated| rotated.unwrap_or_else(|| self.clone()))
            .collect())
    }

    /// The image under `X -> X^-1`.
    ///
    /// # Errors
    /// When parameters differ, there are more than two polynomials, or there is no conjugation key.
    pub fn conjugate(&self, keys: &EvaluationKeys<W>) -> Result<Self, RingError> {
        let mut conjugate = self.apply(&[keys.conjugation()?], keys)?;
        Ok(conjugate.swap_remove(0))
    }

    fn apply(
        &self,
        galois: &[&GaloisKey<W>],
        keys: &EvaluationKeys<W>,
    ) -> Result<Vec<Self>, RingError> {
        let (parameters, limbs, n) = (&self.parameters, self.limbs, self.parameters.n());
        parameters.same(keys.parameters())?;
        if self.polys() != 2 {
            return Err(RingError::Polys {
                polys: self.polys(),
            });
        }
        let outputs: Vec<_> = galois.iter().map(|galois| vec![&galois.key]).collect();
        let mut switched = parameters.pool().take(galois.len() * 2 * limbs * n);
        let switch = Switch {
            parameters,
            limbs,
            dropped: 0,
            low: &[self.poly(0)],
            high: &[self.poly(1)],
            keys: &outputs,
        };
        switch.run(&mut switched);
        let images = switched.chunks_exact(2 * limbs * n).zip(galois);
        let images = images.map(|(switched, galois)| {
            let mut data = parameters.pool().take_words(switched.len());
            for (x, out) in switched.chunks_exact(n).zip(data.chunks_exact_mut(n)) {
                galois.automorphism.apply(x, out);
            }
            self.like(limbs, data)
        });
        Ok(images.collect())
    }

    /// Refuses operands of other parameters or limbs, or with more polynomials.
    pub(crate) fn check_operand(&self, other: &Self) -> Result<(), RingError> {
        self.parameters.same(&other.parameters)?;
        self.check_limbs(other.limbs)?;
        let polys = other.polys();
        if polys > self.polys() {
            return Err(RingError::Polys { polys });
        }
        Ok(())
    }

    /// Refuses operands of other limbs.
    pub(crate) fn check_limbs(&self, right: usize) -> Result<(), RingError> {
        let left = self.limbs;
        if left == right {
            Ok(())
        } else {
            Err(RingError::Limbs { left, right })
        }
    }

    fn room_for_product(&self, polys: usize) -> Result<Vec<W>, RingError> {
        if polys > MAX_POLYS {
            return Err(RingError::Polys { polys });
        }
        let words = polys * self.limbs * self.parameters.n();
        Ok(self.parameters.pool().take_words(words))
    }

    fn room_for_limbs(&self, polys: usize, dropped: usize) -> Result<Vec<W>, RingError> {
        let limbs = self.limbs;
        if dropped >= limbs {
            return Err(RingError::TooFewLimbs { limbs, dropped });
        }
        let words = polys * (limbs - dropped) * self.parameters.n();
        Ok(self.parameters.pool().take_words(words))
    }
}
