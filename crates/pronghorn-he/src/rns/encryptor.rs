//! Encryption under the secret key, with `a` from a seed.

use std::sync::Arc;

use pronghorn_ring::{
    Word,
    random::{Prg, RandomError, Seed},
    vector,
};

use super::{
    Ciphertext, Parameters, SecretKey,
    secret::Secret,
    slices,
    uniform::{expand_limb, expand_uniform, uniform_generator},
    zero::{self, Scratch},
};

impl<W: Word> SecretKey<W> {
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
        let mut public = [0; 32];
        Prg::new(seed, "pronghorn 2026 CKKS choice of the public seed")
            .stream(0)
            .fill(&mut public);
        Encryptor {
            secret: self.secret.clone(),
            uniform: uniform_generator(&public),
            seed: public,
            errors: Prg::new(seed, "pronghorn 2026 CKKS encryption errors"),
            next: 0,
        }
    }
}

/// The number of the `a` that a ciphertext of an [`Encryptor`] uses. There is one of each number,
/// and encryption consumes it: two plaintexts under one `a` would give their difference away.
pub struct Index {
    encryptor: [u8; 32],
    number: u64,
}

impl Index {
    /// The number as it is sent, beside the seed that all share.
    pub fn number(&self) -> u64 {
        self.number
    }
}

/// Encrypts under a secret key with `a` from a public seed, which any number of ciphertexts share:
/// on the wire a ciphertext is `b` and a number.
pub struct Encryptor<W: Word> {
    secret: Arc<Secret<W>>,
    seed: [u8; 32],
    uniform: Prg,
    errors: Prg,
    next: u64,
}

impl<W: Word> Encryptor<W> {
    /// The parameters of its key.
    pub fn parameters(&self) -> &Parameters<W> {
        &self.secret.parameters
    }

    /// The public seed of all `a`.
    pub fn seed(&self) -> &[u8; 32] {
        &self.seed
    }

    /// The next `count` numbers: consecutive, from zero on.
    pub fn reserve(&mut self, count: usize) -> impl Iterator<Item = Index> + use<W> {
        let (first, encryptor) = (self.next, self.seed);
        self.next += count as u64;
        assert!(self.next <= 1 << 48, "an encryptor has 2^48 numbers");
        (first..self.next).map(move |number| Index { encryptor, number })
    }

    /// Encrypts a polynomial of `limbs` limbs with the `a` of the next number; `fill` as in
    /// [`encrypt_residues`](Self::encrypt_residues).
    pub(crate) fn encrypt_next(
        &mut self,
        limbs: usize,
        fill: impl FnMut(usize, &mut [W], &mut [W]),
    ) -> SeededCiphertext<W> {
        let parameters = self.secret.parameters.clone();
        let mut b = vec![W::default(); limbs * parameters.n()];
        let index = self.reserve(1).next().expect("one number was reserved");
        let number = index.number;
        self.encrypt_residues(index, &mut b, fill);
        SeededCiphertext::new(&parameters, self.seed, number, b)
    }

    /// `b = m + e - a s` of a polynomial `m` that is known by its residues: `fill(limb, out, room)`
    /// writes its coefficients modulo the prime of a limb.
    ///
    /// # Panics
    /// When the index is another encryptor's, or `b` has no whole limbs.
    pub(crate) fn encrypt_residues(
        &self,
        index: Index,
        b: &mut [W],
        mut fill: impl FnMut(usize, &mut [W], &mut [W]),
    ) {
        let parameters = &self.secret.parameters;
        assert_eq!(
            index.encryptor, self.seed,
            "an index belongs to the encryptor that reserved it"
        );
        let mut scratch = Scratch::new(parameters.n());
        let errors = zero::errors(parameters, &mut self.errors.stream(index.number));
        let limbs = b.len() / parameters.n();
        for (limb, b) in slices::each_limb(parameters, limbs, b) {
            let q = parameters.basis().prime(limb);
            fill(limb, b, &mut scratch.first);
            errors.residues(q, &mut scratch.first, &mut scratch.second);
            vector::add_assign(q, b, &scratch.first);
            parameters.basis().ntt(limb).forward(b);
            expand_limb(
                parameters,
                &self.uniform,
                index.number,
                limb,
                &mut scratch.first,
            );
            self.secret
                .multiply(limb, &scratch.first, &mut scratch.second);
            vector::sub_assign(q, b, &scratch.second);
        }
    }
}

/// `b` of a ciphertext, and where its `a` comes from.
#[derive(Clone)]
pub struct SeededCiphertext<W: Word> {
    parameters: Parameters<W>,
    seed: [u8; 32],
    number: u64,
    b: Vec<W>,
}

impl<W: Word> SeededCiphertext<W> {
    pub(crate) fn new(parameters: &Parameters<W>, seed: [u8; 32], number: u64, b: Vec<W>) -> Self {
        Self {
            parameters: parameters.clone(),
            seed,
            number,
            b,
        }
    }

    /// Its parameters.
    pub fn parameters(&self) -> &Parameters<W> {
        &self.parameters
    }

    /// The public seed.
    pub fn seed(&self) -> &[u8; 32] {
        &self.seed
    }

    /// The number of its `a` under the seed.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// `b`, `[limb][N]` in the NTT domain.
    pub fn b(&self) -> &[W] {
        &self.b
    }

    /// Limbs.
    pub fn limbs(&self) -> usize {
        self.b.len() / self.parameters.n()
    }

    /// The ciphertext `(b, a)`, of two polynomials.
    pub fn expand(&self) -> Ciphertext<W> {
        let words = self.b.len();
        let mut data = self.parameters.pool().take_words(2 * words);
        let (b, a) = data.split_at_mut(words);
        b.copy_from_slice(&self.b);
        let generator = uniform_generator(&self.seed);
        expand_uniform(&self.parameters, &generator, self.number, a);
        Ciphertext::from_words(&self.parameters, self.limbs(), data)
            .expect("a seeded ciphertext has valid limbs")
    }
}
