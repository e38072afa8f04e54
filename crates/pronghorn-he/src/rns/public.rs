//! The public key.

use pronghorn_ring::{
    Word,
    random::{Prg, RandomError, Seed, Stream},
    vector,
};

use super::{
    Parameters, RingError, SecretKey,
    tasks::each,
    uniform::{expand_uniform, uniform_generator},
    zero::{self, Scratch, encrypt_zero},
};

/// `(b, a) = (e - a s, a)`: anyone can encrypt with it. Kept at the chain of ciphertext primes. Keys
/// of [`multikey`](crate::multikey) have the special primes too.
#[derive(Clone)]
pub struct PublicKey<W: Word> {
    parameters: Parameters<W>,
    seed: [u8; 32],
    /// `[limb][N]`.
    b: Vec<W>,
    /// `[limb][N]`.
    a: Vec<W>,
}

impl<W: Word> PublicKey<W> {
    /// An encryption of zero under `key`, by its own encryptor.
    ///
    /// # Errors
    /// When the system has no randomness.
    pub fn generate(key: &SecretKey<W>) -> Result<Self, RandomError> {
        Ok(Self::generate_from_seed(key, &Seed::from_os()?))
    }

    /// As [`generate`](Self::generate) with randomness from a secret seed that nothing else uses,
    /// for reproducible tests.
    pub fn generate_from_seed(key: &SecretKey<W>, seed: &Seed) -> Self {
        let parameters = key.parameters();
        let mut public = [0; 32];
        Prg::new(seed, "pronghorn 2026 CKKS choice of the public key's seed")
            .stream(0)
            .fill(&mut public);
        let mut errors = Prg::new(seed, "pronghorn 2026 CKKS public key errors").stream(0);
        let b = encrypt_zero(
            key.secret(),
            0..parameters.limbs(),
            &uniform_generator(&public),
            0,
            &mut errors,
        );
        Self::from_parts(parameters, public, b)
    }

    /// The key of this seed and `b`, `[limb][N]` reduced words in the NTT domain; as many limbs as
    /// the ciphertexts it will encrypt have, or all with the special ones.
    ///
    /// # Panics
    /// Unless `b` is whole limbs, no more than there are.
    pub fn from_parts(parameters: &Parameters<W>, seed: [u8; 32], b: Vec<W>) -> Self {
        let mut a = vec![W::default(); b.len()];
        expand_uniform(parameters, &uniform_generator(&seed), 0, &mut a);
        Self {
            parameters: parameters.clone(),
            seed,
            b,
            a,
        }
    }

    /// Its parameters.
    pub fn parameters(&self) -> &Parameters<W> {
        &self.parameters
    }

    /// The public seed of `a`.
    pub fn seed(&self) -> &[u8; 32] {
        &self.seed
    }

    /// `b`, `[limb][N]` in the NTT domain.
    pub fn b(&self) -> &[W] {
        &self.b
    }

    /// The most limbs of what it encrypts.
    pub fn limbs(&self) -> usize {
        self.b.len() / self.parameters.n()
    }

    /// Refuses more limbs than the key has.
    pub(crate) fn check_limbs(&self, limbs: usize) -> Result<(), RingError> {
        let limit = self.limbs();
        if limbs <= limit {
            Ok(())
        } else {
            Err(RingError::KeyLimbs { limbs, limit })
        }
    }

    /// Adds a fresh encryption of zero to two polynomials of `limbs` limbs, no more than the key
    /// has.
    pub(crate) fn add_zero(&self, limbs: usize, x: &mut [W], random: &mut Stream) {
        let limbs: Vec<usize> = (0..limbs).collect();
        self.add_zero_in(&limbs, x, random);
    }

    /// As [`add_zero`](Self::add_zero), in these limbs of the basis. On rayon's current threads
    /// where polynomials are large.
    pub(crate) fn add_zero_in(&self, limbs: &[usize], x: &mut [W], random: &mut Stream) {
        let (parameters, n) = (&self.parameters, self.parameters.n());
        let (x_b, x_a) = x.split_at_mut(limbs.len() * n);
        assert!(
            x_b.len() == x_a.len() && limbs.iter().all(|&limb| limb < self.limbs()),
            "two polynomials of limbs that the key has"
        );
        let masks = zero::ternary(parameters, random);
        let errors = [(); 2].map(|()| zero::errors(parameters, random));
        let outs = x_b.chunks_exact_mut(n).zip(x_a.chunks_exact_mut(n));
        let tasks = limbs.iter().zip(outs).collect();
        each(n, tasks, |(&limb, (x_b, x_a))| {
            let scratch = &mut Scratch::new(n);
            let Scratch {
                first,
                second,
                third,
            } = scratch;
            let [b, a] = [&self.b, &self.a].map(|key| &key[limb * n..][..n]);
            let (q, ntt) = (parameters.basis().prime(limb), parameters.basis().ntt(limb));
            masks.residues(q, first, second);
            ntt.forward(first);
            for ((key, x), errors) in [(b, x_b), (a, x_a)].into_iter().zip(&errors) {
                errors.residues(q, second, third);
                ntt.forward(second);
                vector::mul_add_assign(q, second, first, key);
                vector::add_assign(q, x, second);
            }
        });
    }
}
