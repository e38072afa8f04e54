//! Values to polynomials and back.

use pronghorn_ring::{Word, vector};

use super::{BfvError, Parameters};
use crate::wipe::wipe;

/// A polynomial modulo `t`. Wiped on drop.
pub struct Plaintext<W: Word> {
    parameters: Parameters<W>,
    /// Coefficients below `t`.
    coefficients: Vec<W>,
}

/// A plaintext prepared once for products: its centred coefficients in the NTT domain of all
/// primes, those of the key switch included. Wiped on drop.
pub struct Multiplier<W: Word> {
    parameters: Parameters<W>,
    /// `[limb][N]`, special primes included.
    words: Vec<W>,
    norm: f64,
}

impl<W: Word> Drop for Plaintext<W> {
    fn drop(&mut self) {
        wipe(&mut self.coefficients);
    }
}

impl<W: Word> Drop for Multiplier<W> {
    fn drop(&mut self) {
        wipe(&mut self.words);
    }
}

impl<W: Word> Parameters<W> {
    /// The polynomial with `values[j]` modulo `t` in slot `j`: the first row, then the second.
    /// Shorter inputs are filled with zeros. One NTT. Constant time.
    ///
    /// # Errors
    /// When there are too many values.
    pub fn encode(&self, values: &[i32]) -> Result<Plaintext<W>, BfvError> {
        let (t, slots) = (self.plain().modulus(), self.n());
        if values.len() > slots {
            let values = values.len();
            return Err(BfvError::Slots { values, slots });
        }
        let mut words = vec![W::default(); slots];
        for (&value, &place) in values.iter().zip(self.places()) {
            words[place as usize] = t.from_i64(value.into());
        }
        self.plain().inverse(&mut words);
        Ok(Plaintext::new(self, words))
    }

    /// The values of all slots, in `-t/2 .. t/2`. One NTT. Constant time.
    ///
    /// # Errors
    /// When the plaintext is of other parameters.
    pub fn decode(&self, plain: &Plaintext<W>) -> Result<Vec<i32>, BfvError> {
        self.ring().same(plain.parameters.ring())?;
        let mut words = plain.coefficients.clone();
        self.plain().forward(&mut words);
        let t = self.plain().modulus();
        let value = |&place: &u32| t.centre(words[place as usize]) as i32;
        let values = self.places().iter().map(value).collect();
        wipe(&mut words);
        Ok(values)
    }

    /// [`encode`](Self::encode), prepared for products. One NTT a prime more.
    ///
    /// # Errors
    /// When there are too many values.
    pub fn multiplier(&self, values: &[i32]) -> Result<Multiplier<W>, BfvError> {
        Ok(self.encode(values)?.to_multiplier())
    }
}

impl<W: Word> Plaintext<W> {
    pub(super) fn new(parameters: &Parameters<W>, coefficients: Vec<W>) -> Self {
        Self {
            parameters: parameters.clone(),
            coefficients,
        }
    }

    /// Its parameters.
    pub fn parameters(&self) -> &Parameters<W> {
        &self.parameters
    }

    /// Coefficients, below `t`.
    pub fn coefficients(&self) -> &[W] {
        &self.coefficients
    }

    /// Prepared for products.
    pub fn to_multiplier(&self) -> Multiplier<W> {
        let (t, n) = (self.parameters.plain().modulus(), self.parameters.n());
        let basis = self.parameters.ring().basis();
        let mut words = vec![W::default(); basis.limbs() * n];
        for (limb, words) in words.chunks_exact_mut(n).enumerate() {
            vector::reduce_from(basis.prime(limb), t, &self.coefficients, words);
            basis.ntt(limb).forward(words);
        }
        let square = |&word: &W| (t.centre(word) as f64).powi(2);
        Multiplier {
            parameters: self.parameters.clone(),
            words,
            norm: self.coefficients.iter().map(square).sum::<f64>().sqrt(),
        }
    }

    /// `(Q mod t) m mod t`, which [`scaled`](Self::scaled) reads.
    pub(crate) fn lifted(&self) -> Vec<W> {
        let mut lifted = self.coefficients.clone();
        let t = self.parameters.plain().modulus();
        vector::mul_scalar_assign(t, &mut lifted, self.parameters.lifting());
        lifted
    }

    /// `round(Q m / t)` modulo the prime of a limb, in coefficients.
    /// `t round(Q m / t) = Q m - [Q m]_t` with the centred remainder, and `Q` is zero.
    pub(crate) fn scaled(parameters: &Parameters<W>, limb: usize, lifted: &[W], out: &mut [W]) {
        let q = parameters.ring().basis().prime(limb);
        vector::reduce_from(q, parameters.plain().modulus(), lifted, out);
        vector::mul_scalar_assign(q, out, parameters.minus_inverse(limb));
    }
}

impl<W: Word> Multiplier<W> {
    /// Its parameters.
    pub fn parameters(&self) -> &Parameters<W> {
        &self.parameters
    }

    /// The Euclidean norm of the coefficients, by which noise grows: at most `t / 2 sqrt(N)`.
    pub fn norm(&self) -> f64 {
        self.norm
    }

    /// One limb.
    pub(super) fn limb(&self, limb: usize) -> &[W] {
        let n = self.parameters.n();
        &self.words[limb * n..][..n]
    }

    /// The limbs of ciphertexts.
    pub(crate) fn chain(&self) -> &[W] {
        &self.words[..self.parameters.limbs() * self.parameters.n()]
    }
}
