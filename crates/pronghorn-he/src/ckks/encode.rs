//! Values to polynomials and back.

use pronghorn_ring::{SimdLevel, Word, rns::Integers};

use super::CkksError;
use crate::{
    rns::{Parameters, RingError, embedding::exact, simd},
    wipe::wipe,
};

/// Bits that the scaled slots of an [exact message](Parameters::exact_message) may have in all:
/// `log2` of the limit on the sum of their absolute values.
pub const LOG_EXACT: f64 = exact::LOG_LIMIT;

/// Values as an integer polynomial, not yet modulo anything: what encryption takes. Wiped on drop.
pub struct Message<W: Word> {
    parameters: Parameters<W>,
    integers: Integers<W>,
    limbs: usize,
    scale: f64,
}

/// A polynomial modulo the primes of its limbs, in the NTT domain, with its scale. Wiped on drop.
pub struct Plaintext<W: Word> {
    parameters: Parameters<W>,
    /// `[limb][N]`.
    data: Vec<W>,
    scale: f64,
}

/// One real number in all slots: a constant polynomial, which is the same word at every place of
/// the NTT domain. One word a limb, and operations with it take no NTT (Boemer, Costache,
/// Cammarota, Wierzynski, "nGraph-HE2", WAHC 2019, Algorithm 2).
pub struct Scalar<W: Word> {
    parameters: Parameters<W>,
    /// One a limb.
    words: Vec<W>,
    scale: f64,
}

/// The decoded values of a plaintext, slot by slot. They are the user's, and are not wiped.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Slots {
    /// Real parts.
    pub re: Vec<f64>,
    /// Imaginary parts.
    pub im: Vec<f64>,
}

impl<W: Word> Parameters<W> {
    /// The polynomial with `re[j] + i im[j]` in slot `j`, times `scale`, rounded to integers: for a
    /// ciphertext of `limbs` limbs. Shorter inputs are filled with zeros: real values leave `im`
    /// empty, and two real values go in a slot as its two parts (complex packing, nGraph-HE2,
    /// section 3.1.2), for as long as nothing but sums and real factors follow.
    ///
    /// Values have the precision of a double, whatever the scale. Cost: one FFT of `N/2` points.
    /// Constant time but for how many digits the largest coefficient takes; floating-point units
    /// may differ in the time of unusual numbers (subnormal ones).
    ///
    /// # Errors
    /// When there are too many values, the scale leaves no room in the modulus, a value is not
    /// finite or too large.
    pub fn message(
        &self,
        re: &[f64],
        im: &[f64],
        scale: f64,
        limbs: usize,
    ) -> Result<Message<W>, CkksError> {
        self.check_limbs(limbs)?;
        self.check_scale(scale, limbs)?;
        let (values, slots) = (re.len().max(im.len()), self.slots());
        if values > slots {
            return Err(CkksError::Slots { values, slots });
        }
        let mut coefficients = vec![0.0; self.n()];
        self.embedding()
            .to_coefficients(re, im, scale, &mut coefficients);
        let integers = self.integers(&coefficients, scale, limbs);
        wipe(&mut coefficients);
        Ok(Message {
            parameters: self.clone(),
            integers: integers?,
            limbs,
            scale,
        })
    }

    /// The polynomial with these real numbers in its slots, times `scale`, rounded to integers: for
    /// a ciphertext of `limbs` limbs. Shorter inputs are filled with zeros.
    ///
    /// `re[j] * scale` is rounded to a double. From there on coefficients are exact to `0.51`, so that
    /// slots of zero hold the rounding to integers and nothing of other slots
    /// ([`Noise::of_exact_encoding`](super::Noise::of_exact_encoding)). In
    /// [`message`](Self::message) they hold `2^-50` of the largest slot.
    ///
    /// Costs `N log2 N` products of 256 with 192 bits, some 6 ms for `N = 32768`. Constant time but
    /// for how many digits the largest coefficient takes.
    ///
    /// # Errors
    /// As [`message`](Self::message), and when the slots' sum is not below `2^179`.
    pub fn exact_message(
        &self,
        re: &[f64],
        scale: f64,
        limbs: usize,
    ) -> Result<Message<W>, CkksError> {
        self.check_limbs(limbs)?;
        self.check_scale(scale, limbs)?;
        let (values, slots) = (re.len(), self.slots());
        if values > slots {
            return Err(CkksError::Slots { values, slots });
        }
        let log_modulus = self.log_modulus(limbs);
        let log_modulus = log_modulus.min(exact::LOG_LIMIT);
        let refused = CkksError::Value { scale, log_modulus };
        let largest = re.iter().fold(0.0, |most: f64, x| most.max(x.abs()));
        // No coefficient is larger than the largest slot.
        // Not so for values that are no numbers.
        let fits = largest * scale < (log_modulus - 1.0).exp2();
        if !fits {
            return Err(refused);
        }
        let coefficients = self.embedding().to_exact_coefficients(re, scale);
        let mut coefficients = coefficients.ok_or(refused)?;
        let integers = Integers::from_wide(self.basis(), &coefficients);
        wipe(&mut coefficients);
        Ok(Message {
            parameters: self.clone(),
            integers,
            limbs,
            scale,
        })
    }

    /// [`message`](Self::message), modulo its primes and transformed: what
    /// [`mul_plain`](super::Ciphertext::mul_plain) takes. One NTT a limb more.
    ///
    /// # Errors
    /// As [`message`](Self::message).
    pub fn encode(
        &self,
        re: &[f64],
        im: &[f64],
        scale: f64,
        limbs: usize,
    ) -> Result<Plaintext<W>, CkksError> {
        Ok(self.message(re, im, scale, limbs)?.to_plaintext())
    }

    /// `value` in all slots, for ciphertexts of up to `limbs` limbs. A scale of one and a whole
    /// number multiply at no cost in scale.
    ///
    /// # Errors
    /// When the scale leaves no room in the modulus, or the value is not finite or too large.
    pub fn scalar(&self, value: f64, scale: f64, limbs: usize) -> Result<Scalar<W>, CkksError> {
        self.check_limbs(limbs)?;
        self.check_scale(scale, limbs)?;
        let integer = self.integers(&[value * scale], scale, limbs)?;
        let (mut words, mut room) = (vec![W::default(); limbs], [W::default()]);
        for (q, word) in self.basis().primes().zip(words.chunks_exact_mut(1)) {
            integer.residues(q, word, &mut room);
        }
        Ok(Scalar {
            parameters: self.clone(),
            words,
            scale,
        })
    }

    /// Rounds to integers below half of the modulus.
    fn integers(
        &self,
        coefficients: &[f64],
        scale: f64,
        limbs: usize,
    ) -> Result<Integers<W>, CkksError> {
        let log_modulus = self.log_modulus(limbs);
        Integers::from_f64(self.basis(), coefficients, log_modulus - 1.0)
            .ok_or(CkksError::Value { scale, log_modulus })
    }

    /// The values of a plaintext. An inverse NTT a limb and `l (l - 1) / 2` products a coefficient
    /// for the `l` limbs that hold values up to `2^62`, and one FFT; larger values take all limbs.
    ///
    /// Nobody but the owner of the secret key may see these: they tell the key (B. Li, D.
    /// Micciancio, "On the security of homomorphic encryption on approximate numbers", EUROCRYPT
    /// 2021).
    ///
    /// # Errors
    /// When the plaintext is of other parameters.
    pub fn decode(&self, plaintext: &Plaintext<W>) -> Result<Slots, CkksError> {
        self.same(&plaintext.parameters)?;
        let mut coefficients = plaintext.to_coefficients();
        let mut slots = Slots {
            re: vec![0.0; self.slots()],
            im: vec![0.0; self.slots()],
        };
        let factor = 1.0 / plaintext.scale;
        self.embedding()
            .to_slots(&mut coefficients, factor, &mut slots.re, &mut slots.im);
        wipe(&mut coefficients);
        Ok(slots)
    }

    /// How many limbs hold coefficients up to `2^62` times the scale, and one more to tell whether
    /// they do.
    fn limbs_of_values(&self, scale: f64) -> usize {
        let wanted = scale.log2().max(0.0) + 63.0;
        let enough = |limbs: &usize| self.log_modulus(*limbs) > wanted;
        (1..self.limbs()).find(enough).unwrap_or(self.limbs()) + 1
    }
}

impl<W: Word> Message<W> {
    /// Modulo its primes, in the NTT domain.
    pub fn to_plaintext(&self) -> Plaintext<W> {
        let n = self.parameters.n();
        let (mut data, mut room) = (vec![W::default(); self.limbs * n], vec![W::default(); n]);
        for (limb, data) in data.chunks_exact_mut(n).enumerate() {
            self.residues(limb, data, &mut room);
            self.parameters.basis().ntt(limb).forward(data);
        }
        wipe(&mut room);
        Plaintext {
            parameters: self.parameters.clone(),
            data,
            scale: self.scale,
        }
    }

    /// The coefficients modulo the prime of a limb.
    pub(crate) fn residues(&self, limb: usize, out: &mut [W], room: &mut [W]) {
        self.integers
            .residues(self.parameters.basis().prime(limb), out, room);
    }

    /// Its parameters.
    pub fn parameters(&self) -> &Parameters<W> {
        &self.parameters
    }

    /// Limbs of its ciphertext.
    pub fn limbs(&self) -> usize {
        self.limbs
    }

    /// The scale: the factor on the values.
    pub fn scale(&self) -> f64 {
        self.scale
    }
}

impl<W: Word> Plaintext<W> {
    pub(crate) fn new(parameters: &Parameters<W>, data: Vec<W>, scale: f64) -> Self {
        Self {
            parameters: parameters.clone(),
            data,
            scale,
        }
    }

    /// Its parameters.
    pub fn parameters(&self) -> &Parameters<W> {
        &self.parameters
    }

    /// Limbs.
    pub fn limbs(&self) -> usize {
        self.data.len() / self.parameters.n()
    }

    /// The scale: the factor on the values.
    pub fn scale(&self) -> f64 {
        self.scale
    }

    /// The same values for a ciphertext of the first `kept` limbs.
    ///
    /// # Errors
    /// When there are not so many, or the scale leaves no room in them.
    pub fn keep_limbs(&self, kept: usize) -> Result<Self, CkksError> {
        let limit = self.limbs();
        if !(1..=limit).contains(&kept) {
            return Err(RingError::NoSuchLimbs { limbs: kept, limit }.into());
        }
        self.parameters.check_scale(self.scale, kept)?;
        let data = self.data[..kept * self.parameters.n()].to_vec();
        Ok(Self::new(&self.parameters, data, self.scale))
    }

    /// The words, `[limb][N]`, in the NTT domain.
    pub fn data(&self) -> &[W] {
        &self.data
    }

    /// The coefficients as doubles, not divided by the scale: what noise is measured in.
    pub fn to_coefficients(&self) -> Vec<f64> {
        let few = self.parameters.limbs_of_values(self.scale);
        if few < self.limbs()
            && let Some(coefficients) = self.lift(few)
        {
            return coefficients;
        }
        self.lift(self.limbs()).unwrap_or_default()
    }

    /// The centred coefficients modulo the first `limbs` limbs. `None` where these are not all and
    /// some coefficient needs the last of them.
    fn lift(&self, limbs: usize) -> Option<Vec<f64>> {
        let (n, radix) = (self.parameters.n(), self.parameters.radix());
        let mut words = self.data[..limbs * n].to_vec();
        let mut room = vec![W::default(); n];
        self.parameters.basis().inverse(&mut words);
        radix.digits(&mut words, &mut room);
        let last = &words[(limbs - 1) * n..];
        let fits =
            limbs == self.limbs() || simd::largest(SimdLevel::detect(), last) == W::default();
        let coefficients = fits.then(|| {
            let mut coefficients = vec![0.0; n];
            radix.to_f64(&words, &mut coefficients);
            coefficients
        });
        wipe(&mut words);
        wipe(&mut room);
        coefficients
    }
}

impl<W: Word> Drop for Plaintext<W> {
    fn drop(&mut self) {
        wipe(&mut self.data);
    }
}

impl<W: Word> Scalar<W> {
    /// Its parameters.
    pub fn parameters(&self) -> &Parameters<W> {
        &self.parameters
    }

    /// The most limbs of a ciphertext that it goes with.
    pub fn limbs(&self) -> usize {
        self.words.len()
    }

    /// The scale: the factor on the value.
    pub fn scale(&self) -> f64 {
        self.scale
    }

    /// The word of each limb.
    pub fn words(&self) -> &[W] {
        &self.words
    }
}

impl<W: Word> Drop for Scalar<W> {
    fn drop(&mut self) {
        wipe(&mut self.words);
    }
}
