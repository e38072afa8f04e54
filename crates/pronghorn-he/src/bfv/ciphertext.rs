//! Ciphertexts and their arithmetic.

use pronghorn_ring::{Word, vector};

use super::{
    BfvError, EvaluationKeys, Factor, Multiplier, Parameters, Plaintext, Rotation, rotated_products,
};
use crate::{
    rns::{self, slices},
    wipe::wipe,
};

/// Two polynomials `(b, a)` with `b + a s = (Q / t) m + e` modulo `Q`.
#[derive(Clone)]
pub struct Ciphertext<W: Word> {
    parameters: Parameters<W>,
    inner: rns::Ciphertext<W>,
}

impl<W: Word> Ciphertext<W> {
    /// Of words `[poly][limb][N]`.
    pub(super) fn from_words(parameters: &Parameters<W>, words: Vec<W>) -> Self {
        let inner = rns::Ciphertext::from_words(parameters.ring(), parameters.limbs(), words)
            .expect("two polynomials of all limbs are a ciphertext");
        Self::of(parameters, inner)
    }

    pub(super) fn of(parameters: &Parameters<W>, inner: rns::Ciphertext<W>) -> Self {
        let parameters = parameters.clone();
        Self { parameters, inner }
    }

    /// Its parameters.
    pub fn parameters(&self) -> &Parameters<W> {
        &self.parameters
    }

    /// All words, `[poly][limb][N]` in the NTT domain.
    pub fn words(&self) -> &[W] {
        self.inner.data()
    }

    pub(super) fn words_mut(&mut self) -> &mut [W] {
        self.inner.data_mut()
    }

    pub(super) fn inner(&self) -> &rns::Ciphertext<W> {
        &self.inner
    }

    /// Adds `other`, slot by slot.
    ///
    /// # Errors
    /// When parameters differ.
    pub fn add_assign(&mut self, other: &Self) -> Result<(), BfvError> {
        Ok(self.inner.add_assign(&other.inner)?)
    }

    /// The sum, slot by slot.
    ///
    /// # Errors
    /// When parameters differ.
    pub fn add(&self, other: &Self) -> Result<Self, BfvError> {
        let mut sum = self.clone();
        sum.add_assign(other)?;
        Ok(sum)
    }

    /// Subtracts `other`, slot by slot.
    ///
    /// # Errors
    /// When parameters differ.
    pub fn sub_assign(&mut self, other: &Self) -> Result<(), BfvError> {
        Ok(self.inner.sub_assign(&other.inner)?)
    }

    /// The difference, slot by slot.
    ///
    /// # Errors
    /// When parameters differ.
    pub fn sub(&self, other: &Self) -> Result<Self, BfvError> {
        let mut difference = self.clone();
        difference.sub_assign(other)?;
        Ok(difference)
    }

    /// The negation.
    #[must_use]
    pub fn neg(&self) -> Self {
        Self::of(&self.parameters, self.inner.neg())
    }

    /// Adds a plaintext. An NTT a limb.
    ///
    /// # Errors
    /// When parameters differ.
    pub fn add_plain(&self, plain: &Plaintext<W>) -> Result<Self, BfvError> {
        let mut sum = self.clone();
        sum.add_plain_assign(plain)?;
        Ok(sum)
    }

    /// [`add_plain`](Self::add_plain) in place.
    ///
    /// # Errors
    /// When parameters differ.
    pub fn add_plain_assign(&mut self, plain: &Plaintext<W>) -> Result<(), BfvError> {
        self.with_plain(plain, vector::add_assign)
    }

    /// Subtracts a plaintext. An NTT a limb.
    ///
    /// # Errors
    /// When parameters differ.
    pub fn sub_plain(&self, plain: &Plaintext<W>) -> Result<Self, BfvError> {
        let mut difference = self.clone();
        difference.with_plain(plain, vector::sub_assign)?;
        Ok(difference)
    }

    /// The product with a plaintext, slot by slot. No NTT.
    ///
    /// # Errors
    /// When parameters differ.
    pub fn mul_plain(&self, plain: &Multiplier<W>) -> Result<Self, BfvError> {
        self.parameters.ring().same(plain.parameters().ring())?;
        let mut product = self.clone();
        let limbs = self.parameters.limbs();
        slices::mul_plain_assign(
            self.parameters.ring(),
            limbs,
            product.words_mut(),
            plain.chain(),
        );
        Ok(product)
    }

    /// Slots of both rows moved to the left by `steps`, around the end of each row; negative steps
    /// go right.
    ///
    /// # Errors
    /// When parameters differ, or there is no key for these steps.
    pub fn rotate(&self, steps: i64, keys: &EvaluationKeys<W>) -> Result<Self, BfvError> {
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
    ) -> Result<Vec<Self>, BfvError> {
        if self.parameters.ring().special_limbs() > 0 {
            let rotated = self.inner.rotate_many(steps, &keys.keys)?;
            let of = |inner| Self::of(&self.parameters, inner);
            return Ok(rotated.into_iter().map(of).collect());
        }
        let rotations: Vec<_> = steps
            .iter()
            .map(|&steps| Rotation::left(0, steps))
            .collect();
        self.each(&rotations, keys)
    }

    /// The two rows in each other's place.
    ///
    /// # Errors
    /// When parameters differ, or there is no key for that.
    pub fn swap_rows(&self, keys: &EvaluationKeys<W>) -> Result<Self, BfvError> {
        let mut swapped = self.each(&[Rotation::Swap { input: 0 }], keys)?;
        Ok(swapped.swap_remove(0))
    }

    /// An output for each of these.
    fn each(
        &self,
        rotations: &[Rotation],
        keys: &EvaluationKeys<W>,
    ) -> Result<Vec<Self>, BfvError> {
        let row = |place: usize| {
            let mut row = vec![Factor::Zero; rotations.len()];
            row[place] = Factor::One;
            row
        };
        let outputs: Vec<_> = (0..rotations.len()).map(row).collect();
        rotated_products(&[self], rotations, &outputs, keys)
    }

    fn with_plain(
        &mut self,
        plain: &Plaintext<W>,
        operation: impl Fn(&pronghorn_ring::Prime<W>, &mut [W], &[W]),
    ) -> Result<(), BfvError> {
        let parameters = self.parameters.clone();
        parameters.ring().same(plain.parameters().ring())?;
        let (basis, n, limbs) = (
            parameters.ring().basis(),
            parameters.n(),
            parameters.limbs(),
        );
        let (mut lifted, mut scaled) = (plain.lifted(), vec![W::default(); n]);
        let b = self.words_mut().chunks_exact_mut(n).take(limbs);
        for (limb, b) in b.enumerate() {
            Plaintext::scaled(&parameters, limb, &lifted, &mut scaled);
            basis.ntt(limb).forward(&mut scaled);
            operation(basis.prime(limb), b, &scaled);
        }
        wipe(&mut lifted);
        wipe(&mut scaled);
        Ok(())
    }
}
