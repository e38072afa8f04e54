//! Keys, encryption under the secret key, decryption.

use pronghorn_ring::{
    Word,
    random::{RandomError, Seed},
    vector,
};

use super::{BfvError, Ciphertext, Parameters, Plaintext};
use crate::{rns, wipe::wipe};

/// A uniform ternary secret: [`rns::SecretKey`] with a plaintext modulus. Wiped on drop.
pub struct SecretKey<W: Word> {
    parameters: Parameters<W>,
    key: rns::SecretKey<W>,
}

/// `(e - a s, a)`: anyone can hide answers with it.
#[derive(Clone)]
pub struct PublicKey<W: Word> {
    pub(super) parameters: Parameters<W>,
    pub(super) key: rns::PublicKey<W>,
}

/// Keys for rotations and for the swap of rows.
pub struct EvaluationKeys<W: Word> {
    pub(super) parameters: Parameters<W>,
    pub(super) keys: rns::EvaluationKeys<W>,
}

/// Encrypts under a secret key with `a` from a public seed, which any number of ciphertexts share.
pub struct Encryptor<W: Word> {
    parameters: Parameters<W>,
    encryptor: rns::Encryptor<W>,
}

/// `b` of a ciphertext, and where its `a` comes from: half of the size of a [`Ciphertext`].
#[derive(Clone)]
pub struct SeededCiphertext<W: Word> {
    pub(super) parameters: Parameters<W>,
    pub(super) inner: rns::SeededCiphertext<W>,
}

impl<W: Word> SecretKey<W> {
    /// The key that follows from `seed`. Take a fresh one from the system.
    pub fn generate(parameters: &Parameters<W>, seed: &Seed) -> Self {
        Self {
            parameters: parameters.clone(),
            key: rns::SecretKey::generate(parameters.ring(), seed),
        }
    }

    /// Its parameters.
    pub fn parameters(&self) -> &Parameters<W> {
        &self.parameters
    }

    /// An encryptor with randomness from the system.
    ///
    /// # Errors
    /// When the system has no randomness.
    pub fn encryptor(&self) -> Result<Encryptor<W>, RandomError> {
        Ok(self.encryptor_from_seed(&Seed::from_os()?))
    }

    /// An encryptor with everything random from `seed`, for reproducible tests: two encryptors from
    /// one seed give plaintexts away, and so does one whose seed is known.
    pub fn encryptor_from_seed(&self, seed: &Seed) -> Encryptor<W> {
        Encryptor {
            parameters: self.parameters.clone(),
            encryptor: self.key.encryptor_from_seed(seed),
        }
    }

    /// The values, exactly, as long as the noise is below `Q / 2t`. An inverse NTT a limb and one
    /// modulo `t`. Constant time.
    ///
    /// # Errors
    /// When the ciphertext is of other parameters.
    pub fn decrypt(&self, ciphertext: &Ciphertext<W>) -> Result<Plaintext<W>, BfvError> {
        let mut digits = self.digits(ciphertext)?;
        let plain = self.parameters.unscale(&digits);
        wipe(&mut digits);
        Ok(plain)
    }

    /// The largest coefficient of the noise: `log2` of its absolute value, at least 0; of what
    /// decrypts to something else than it should, about `Q / 2t`. For tests and planning: the noise
    /// tells of everything that was done to the ciphertext.
    ///
    /// # Errors
    /// When the ciphertext is of other parameters.
    pub fn log_noise(&self, ciphertext: &Ciphertext<W>) -> Result<f64, BfvError> {
        let noise = self.noise(ciphertext)?;
        Ok(noise
            .iter()
            .fold(1f64, |largest, x| largest.max(x.abs()))
            .log2())
    }

    /// Bits left: `log2(Q / 2t)` less [`log_noise`](Self::log_noise).
    ///
    /// # Errors
    /// When the ciphertext is of other parameters.
    pub fn budget(&self, ciphertext: &Ciphertext<W>) -> Result<f64, BfvError> {
        Ok(self.parameters.log_room() - self.log_noise(ciphertext)?)
    }

    /// The noise of every coefficient, in units of `1`, as a double. See
    /// [`log_noise`](Self::log_noise).
    ///
    /// # Errors
    /// When the ciphertext is of other parameters.
    pub fn noise(&self, ciphertext: &Ciphertext<W>) -> Result<Vec<f64>, BfvError> {
        let mut digits = self.digits(ciphertext)?;
        let noise = self.parameters.noise_of_digits(&digits);
        wipe(&mut digits);
        Ok(noise)
    }

    fn digits(&self, ciphertext: &Ciphertext<W>) -> Result<Vec<W>, BfvError> {
        let parameters = &self.parameters;
        parameters.ring().same(ciphertext.parameters().ring())?;
        let limbs = parameters.limbs();
        let mut phase = vec![W::default(); limbs * parameters.n()];
        self.key
            .decrypt_words(limbs, ciphertext.words(), &mut phase);
        parameters.ring().basis().inverse(&mut phase);
        self.parameters.scale(&mut phase);
        Ok(phase)
    }

    pub(super) fn inner(&self) -> &rns::SecretKey<W> {
        &self.key
    }
}

impl<W: Word> Parameters<W> {
    /// From a phase `x` (`[limb][N]`, coefficients) to `t x` modulo the product of these limbs,
    /// centred, in mixed radix: that is `t` times the noise, as `t x = Q m + t e`.
    pub(crate) fn scale(&self, phase: &mut [W]) {
        let n = self.n();
        for (q, phase) in self.ring().basis().primes().zip(phase.chunks_exact_mut(n)) {
            vector::mul_scalar_assign(q, phase, W::from_u64(self.t() % q.value()));
        }
        let mut room = vec![W::default(); n];
        self.ring().radix().digits(phase, &mut room);
        wipe(&mut room);
    }

    /// `round(t x / Q) = (t x - [t x]_Q) / Q`, which modulo `t` is `- [t x]_Q / Q`: exact.
    pub(crate) fn unscale(&self, digits: &[W]) -> Plaintext<W> {
        let n = self.n();
        let (t, limbs) = (self.plain().modulus(), digits.len() / n);
        let (mut sum, mut room) = (vec![W::default(); n], vec![W::default(); n]);
        let scaling = self.scaling(limbs);
        for ((q, digit), &weight) in self
            .ring()
            .basis()
            .primes()
            .zip(digits.chunks_exact(n))
            .zip(&scaling.weights)
        {
            vector::reduce_from(t, q, digit, &mut room);
            vector::mul_scalar_add_assign(t, &mut sum, &room, weight);
        }
        wipe(&mut room);
        Plaintext::new(self, sum)
    }

    pub(crate) fn noise_of_digits(&self, digits: &[W]) -> Vec<f64> {
        let mut noise = vec![0.0; self.n()];
        self.ring().radix().to_f64(digits, &mut noise);
        let t = self.t() as f64;
        noise.iter_mut().for_each(|x| *x /= t);
        noise
    }
}

impl<W: Word> Encryptor<W> {
    /// `b = round(Q m / t) + e - a s` for the `a` of the next number. An NTT, a product and the
    /// expansion of `a` a limb, and `N` errors.
    ///
    /// # Errors
    /// When the plaintext is of other parameters.
    pub fn encrypt(&mut self, plain: &Plaintext<W>) -> Result<SeededCiphertext<W>, BfvError> {
        let parameters = &self.parameters;
        parameters.ring().same(plain.parameters().ring())?;
        let mut lifted = plain.lifted();
        let inner = self
            .encryptor
            .encrypt_next(parameters.limbs(), |limb, out, _| {
                Plaintext::scaled(parameters, limb, &lifted, out);
            });
        wipe(&mut lifted);
        let parameters = parameters.clone();
        Ok(SeededCiphertext { parameters, inner })
    }
}

impl<W: Word> SeededCiphertext<W> {
    /// Its parameters.
    pub fn parameters(&self) -> &Parameters<W> {
        &self.parameters
    }

    /// The ciphertext `(b, a)`.
    pub fn expand(&self) -> Ciphertext<W> {
        Ciphertext::of(&self.parameters, self.inner.expand())
    }
}

impl<W: Word> PublicKey<W> {
    /// An encryption of zero under `key`.
    ///
    /// # Errors
    /// When the system has no randomness.
    pub fn generate(key: &SecretKey<W>) -> Result<Self, RandomError> {
        Ok(Self::generate_from_seed(key, &Seed::from_os()?))
    }

    /// As [`generate`](Self::generate) with randomness from a secret seed that nothing else uses,
    /// for reproducible tests.
    pub fn generate_from_seed(key: &SecretKey<W>, seed: &Seed) -> Self {
        Self {
            parameters: key.parameters.clone(),
            key: rns::PublicKey::generate_from_seed(&key.key, seed),
        }
    }

    /// Its parameters.
    pub fn parameters(&self) -> &Parameters<W> {
        &self.parameters
    }
}

impl<W: Word> EvaluationKeys<W> {
    /// Keys for rotations of both rows to the left by `steps`, and for the swap of rows. Each takes
    /// `2 d l N` words for `d` digits and `l` primes, special ones included, and half of that on
    /// the wire.
    ///
    /// # Errors
    /// When there is no way of switching keys, or the system has no randomness.
    pub fn generate(key: &SecretKey<W>, steps: &[i64], swap: bool) -> Result<Self, BfvError> {
        Self::generate_from_seed(key, steps, swap, &Seed::from_os()?)
    }

    /// As [`generate`](Self::generate) with randomness from a secret seed that nothing else uses,
    /// for reproducible tests.
    ///
    /// # Errors
    /// When there is no way of switching keys.
    pub fn generate_from_seed(
        key: &SecretKey<W>,
        steps: &[i64],
        swap: bool,
        seed: &Seed,
    ) -> Result<Self, BfvError> {
        let keys = rns::EvaluationKeys::generate_from_seed(&key.key, 1, steps, swap, seed)?;
        let parameters = key.parameters.clone();
        Ok(Self { parameters, keys })
    }

    /// Hands the bytes of [`generate_from_seed`](Self::generate_from_seed)'s keys to `out`, part by
    /// part, with one key in memory at a time.
    ///
    /// # Errors
    /// As there.
    pub fn encode_from_seed(
        key: &SecretKey<W>,
        steps: &[i64],
        swap: bool,
        seed: &Seed,
        out: &mut dyn FnMut(&[u8]),
    ) -> Result<(), BfvError> {
        rns::EvaluationKeys::encode_from_seed(&key.key, 1, steps, swap, seed, out)?;
        Ok(())
    }

    /// Their parameters.
    pub fn parameters(&self) -> &Parameters<W> {
        &self.parameters
    }
}
