//! Secret and public keys, encryption and decryption.

use std::sync::Arc;

use pronghorn_ring::{
    Word,
    random::{Prg, RandomError, Seed, Stream},
    rns::{CHUNK, Integers},
    sample, vector,
};

use super::{
    Ciphertext, CkksError, Message, Parameters, Plaintext, automorphism::Automorphism, noise,
    slices, wipe::wipe,
};

/// A uniform ternary secret, conditioned on its canonical embedding being no larger than usual; wiped on drop.
///
/// Of all ternary polynomials the 1 in 20 with some `|s(zeta)|^2` above [`noise::secret_bound`] are drawn again. Noise bounds then hold
/// for every key, and no attack on uniform ternary secrets succeeds more
/// often than by that share: 0.1 bits of security.
pub struct SecretKey<W: Word> {
    secret: Arc<Secret<W>>,
}

pub(crate) struct Secret<W: Word> {
    pub parameters: Parameters<W>,
    /// In the NTT domain, `[limb][N]`, special primes included.
    pub words: Vec<W>,
    /// Shoup quotients of `words`.
    pub quotients: Vec<W>,
}

impl<W: Word> Drop for Secret<W> {
    fn drop(&mut self) {
        wipe(&mut self.words);
        wipe(&mut self.quotients);
    }
}

impl<W: Word> SecretKey<W> {
    /// The key that follows from `seed`. Take a fresh one from the system.
    pub fn generate(parameters: &Parameters<W>, seed: &Seed) -> Self {
        let n = parameters.n();
        let prg = Prg::new(seed, "pronghorn 2026 CKKS ternary secret");
        let mut ternary = vec![0i8; n];
        let mut attempt = 0;
        loop {
            sample::ternary(&mut prg.stream(attempt), &mut ternary);
            attempt += 1;
            if largest_slot(parameters, &ternary) <= noise::secret_bound(n) {
                break;
            }
        }
        let words = small(parameters, 0..parameters.basis().limbs(), &ternary);
        wipe(&mut ternary);
        let quotients = words
            .chunks_exact(n)
            .zip(parameters.basis().primes())
            .flat_map(|(limb, q)| limb.iter().map(|&word| q.shoup(word)))
            .collect();
        let parameters = parameters.clone();
        Self {
            secret: Arc::new(Secret {
                parameters,
                words,
                quotients,
            }),
        }
    }

    /// Its parameters.
    pub fn parameters(&self) -> &Parameters<W> {
        &self.secret.parameters
    }

    pub(crate) fn secret(&self) -> &Secret<W> {
        &self.secret
    }

    /// An encryptor with randomness from the system.
    ///
    /// # Errors
    /// When the system has none.
    pub fn encryptor(&self) -> Result<Encryptor<W>, RandomError> {
        Ok(self.encryptor_from_seed(&Seed::from_os()?))
    }

    /// An encryptor with everything random from `seed`, for reproducible tests: two encryptors from one seed give plaintexts
    /// away, and so does one whose seed is known.
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

    /// `c_0 + c_1 s + ... + c_d s^d`, by Horner's rule: `d` products and sums a word, no NTT.
    ///
    /// # Errors
    /// When the ciphertext is of other parameters.
    pub fn decrypt(&self, ciphertext: &Ciphertext<W>) -> Result<Plaintext<W>, CkksError> {
        let parameters = self.parameters();
        parameters.same(ciphertext.parameters())?;
        let limbs = ciphertext.limbs();
        let mut data = vec![W::default(); limbs * parameters.n()];
        self.secret.decrypt(limbs, ciphertext.data(), &mut data);
        Ok(Plaintext::new(parameters, data, ciphertext.scale()))
    }

    /// [`decrypt`](Self::decrypt) on words: `x` is `[poly][limb][N]`, `out` the plaintext `[limb][N]`, to be wiped by the caller.
    ///
    /// # Panics
    /// Unless `out` has `limbs` limbs and `x` is whole polynomials of these.
    pub fn decrypt_words(&self, limbs: usize, x: &[W], out: &mut [W]) {
        self.secret.decrypt(limbs, x, out);
    }
}

impl<W: Word> Secret<W> {
    pub(crate) fn decrypt(&self, limbs: usize, x: &[W], out: &mut [W]) {
        let words = limbs * self.parameters.n();
        assert!(
            out.len() == words && !x.is_empty() && x.len().is_multiple_of(words),
            "a ciphertext has whole polynomials of the plaintext's limbs"
        );
        let n = self.parameters.n();
        let polys: Vec<&[W]> = x.chunks_exact(words).collect();
        let Some((&highest, lower)) = polys.split_last() else {
            return;
        };
        out.copy_from_slice(highest);
        for (limb, out) in out.chunks_exact_mut(n).enumerate() {
            let q = self.parameters.basis().prime(limb);
            for start in (0..n).step_by(CHUNK) {
                let place = limb * n + start..limb * n + (start + CHUNK).min(n);
                let out = &mut out[start..(start + CHUNK).min(n)];
                for poly in lower.iter().rev() {
                    vector::mul_assign(q, out, &self.words[place.clone()]);
                    vector::add_assign(q, out, &poly[place.clone()]);
                }
            }
        }
    }

    /// `x *= s` in the limbs that `x` has.
    pub fn multiply_all(&self, x: &mut [W]) {
        let n = self.parameters.n();
        let mut room = vec![W::default(); n];
        for (limb, x) in x.chunks_exact_mut(n).enumerate() {
            self.multiply(limb, x, &mut room);
            x.copy_from_slice(&room);
        }
        wipe(&mut room);
    }

    /// The words, to be wiped by the caller.
    pub fn clone_words(&self) -> Vec<W> {
        self.words.clone()
    }

    /// The image of the secret.
    pub fn image(&self, automorphism: &Automorphism) -> Self {
        let n = self.parameters.n();
        let image = |x: &[W]| {
            let mut image = vec![W::default(); x.len()];
            for (x, out) in x.chunks_exact(n).zip(image.chunks_exact_mut(n)) {
                automorphism.apply(x, out);
            }
            image
        };
        Self {
            parameters: self.parameters.clone(),
            words: image(&self.words),
            quotients: image(&self.quotients),
        }
    }

    /// `out = x * s` in one limb.
    pub fn multiply(&self, limb: usize, x: &[W], out: &mut [W]) {
        let n = self.parameters.n();
        let place = limb * n..(limb + 1) * n;
        let q = self.parameters.basis().prime(limb);
        vector::mul_shoup(
            q,
            x,
            &self.words[place.clone()],
            &self.quotients[place],
            out,
        );
    }
}

/// Which `a` of an [`Encryptor`] a ciphertext uses. There is one of each number, and encryption consumes it: two plaintexts under one `a`
/// would give their difference away.
pub struct Index {
    encryptor: [u8; 32],
    number: u64,
}

impl Index {
    /// What goes on the wire, beside the seed all share.
    pub fn number(&self) -> u64 {
        self.number
    }
}

/// Encrypts under a secret key with `a` from a public seed, which any number of ciphertexts share: on the wire a
/// ciphertext is `b` and a number.
pub struct Encryptor<W: Word> {
    secret: Arc<Secret<W>>,
    seed: [u8; 32],
    uniform: Prg,
    errors: Prg,
    next: u64,
}

impl<W: Word> Encryptor<W> {
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

    /// `b = m + e - a s` for the `a` of the next number. An NTT, a product and the expansion of `a` a limb, and `N` errors.
    ///
    /// # Errors
    /// When the message is of other parameters.
    pub fn encrypt(&mut self, message: &Message<W>) -> Result<SeededCiphertext<W>, CkksError> {
        let parameters = self.secret.parameters.clone();
        let mut b = vec![W::default(); message.limbs() * parameters.n()];
        let index = self.reserve(1).next().expect("one number was reserved");
        let (number, seed) = (index.number, self.seed);
        self.encrypt_words(index, message, &mut b)?;
        Ok(SeededCiphertext {
            parameters,
            seed,
            number,
            b,
            scale: message.scale(),
        })
    }

    /// [`encrypt`](Self::encrypt) into words `[limb][N]`; from several threads at once with numbers reserved before.
    ///
    /// # Errors
    /// When the message is of other parameters.
    ///
    /// # Panics
    /// When the index is another encryptor's, or `b` has not the limbs of the message.
    pub fn encrypt_words(
        &self,
        index: Index,
        message: &Message<W>,
        b: &mut [W],
    ) -> Result<(), CkksError> {
        let parameters = &self.secret.parameters;
        parameters.same(message.parameters())?;
        assert_eq!(
            b.len(),
            message.limbs() * parameters.n(),
            "b has the limbs of the message"
        );
        self.encrypt_residues(index, b, |limb, b, room| message.residues(limb, b, room));
        Ok(())
    }

    /// Encrypts a polynomial that is known by its residues: `fill(limb, out, room)` writes its coefficients modulo the prime of a limb.
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
        let mut scratch = Scratch::new(parameters);
        let errors = scratch.draw_errors(parameters, &mut self.errors.stream(index.number));
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
    scale: f64,
}

impl<W: Word> SeededCiphertext<W> {
    pub(crate) fn new(
        parameters: &Parameters<W>,
        seed: [u8; 32],
        number: u64,
        b: Vec<W>,
        scale: f64,
    ) -> Self {
        Self {
            parameters: parameters.clone(),
            seed,
            number,
            b,
            scale,
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

    /// Which `a` of the seed.
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

    /// What the values are multiplied by.
    pub fn scale(&self) -> f64 {
        self.scale
    }

    /// The ciphertext `(b, a)`, of two polynomials.
    pub fn expand(&self) -> Ciphertext<W> {
        let mut data = self.b.clone();
        data.resize(2 * self.b.len(), W::default());
        expand_uniform(
            &self.parameters,
            &uniform_generator(&self.seed),
            self.number,
            &mut data[self.b.len()..],
        );
        Ciphertext::from_words(&self.parameters, self.limbs(), self.scale, data)
            .expect("a seeded ciphertext has valid limbs and scale")
    }
}

/// The generator of all `a` of a public seed.
pub fn uniform_generator(seed: &[u8; 32]) -> Prg {
    Prg::new(
        &Seed::from_bytes(*seed),
        "pronghorn 2026 CKKS public uniform",
    )
}

/// The `a` of a number, `[limb][N]` in the NTT domain, as many limbs as `a` has. Variable time: `a` is public.
///
/// # Panics
/// Unless `a` is whole limbs, no more than there are, and `number < 2^48`.
pub fn expand_uniform<W: Word>(
    parameters: &Parameters<W>,
    generator: &Prg,
    number: u64,
    a: &mut [W],
) {
    let n = parameters.n();
    assert!(a.len().is_multiple_of(n), "a has whole limbs");
    for (limb, a) in a.chunks_exact_mut(n).enumerate() {
        expand_limb(parameters, generator, number, limb, a);
    }
}

/// Words of [`expand_uniform`] that come from one stream: any such chunk can be expanded alone.
pub const UNIFORM_CHUNK: usize = 512;

/// Limb `limb` of [`expand_uniform`].
fn expand_limb<W: Word>(
    parameters: &Parameters<W>,
    generator: &Prg,
    number: u64,
    limb: usize,
    a: &mut [W],
) {
    for (chunk, a) in a.chunks_mut(UNIFORM_CHUNK).enumerate() {
        expand_chunk(parameters, generator, number, limb, chunk, a);
    }
}

/// Chunk `chunk` of limb `limb` of [`expand_uniform`]: stream `2^16 number + 2^8 limb + chunk` of the generator.
///
/// # Panics
/// Unless `number < 2^48`, and limb and chunk are below 256.
pub fn expand_chunk<W: Word>(
    parameters: &Parameters<W>,
    generator: &Prg,
    number: u64,
    limb: usize,
    chunk: usize,
    a: &mut [W],
) {
    assert!(
        number < 1 << 48 && limb < 256 && chunk < 256,
        "numbers have 48 bits, limbs and chunks 8"
    );
    let stream = number << 16 | (limb as u64) << 8 | chunk as u64;
    sample::uniform_public(
        &mut generator.stream(stream),
        parameters.basis().prime(limb),
        a,
    );
}

/// `(b, a) = (e - a s, a)`: anyone can encrypt with it. Kept at the chain of ciphertext primes.
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

    /// As [`generate`](Self::generate) with randomness from a secret seed that nothing else uses, for reproducible tests.
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

    /// The key of this seed and `b`, `[limb][N]` reduced words in the NTT domain; as many limbs as the ciphertexts it will
    /// encrypt have, at most.
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
    pub(crate) fn check_limbs(&self, limbs: usize) -> Result<(), CkksError> {
        let limit = self.limbs();
        if limbs <= limit {
            Ok(())
        } else {
            Err(CkksError::KeyLimbs { limbs, limit })
        }
    }

    /// `(b v + e_0 + m, a v + e_1)` with `v` ternary and errors from `random`, which is read on with every use. Three NTTs a limb.
    ///
    /// # Errors
    /// When the message is of other parameters, or has more limbs than the key.
    pub fn encrypt(
        &self,
        message: &Message<W>,
        random: &mut Stream,
    ) -> Result<Ciphertext<W>, CkksError> {
        self.parameters.same(message.parameters())?;
        self.check_limbs(message.limbs())?;
        let mut data = vec![W::default(); 2 * message.limbs() * self.parameters.n()];
        self.add_zero(message.limbs(), &mut data, random);
        slices::add_assign(
            &self.parameters,
            message.limbs(),
            &mut data,
            message.to_plaintext().data(),
        );
        Ciphertext::from_words(&self.parameters, message.limbs(), message.scale(), data)
    }

    /// Adds a fresh encryption of zero to two polynomials of `limbs` limbs, no more than the key has.
    pub(crate) fn add_zero(&self, limbs: usize, x: &mut [W], random: &mut Stream) {
        let (parameters, n) = (&self.parameters, self.parameters.n());
        let (x_b, x_a) = x.split_at_mut(limbs * n);
        assert!(
            x_b.len() == x_a.len() && limbs <= self.limbs(),
            "two polynomials of limbs that the key has"
        );
        let mut scratch = Scratch::new(parameters);
        let masks = scratch.draw_ternary(parameters, random);
        let errors = [0, 1].map(|_| scratch.draw_errors(parameters, random));
        let keys = self.b.chunks_exact(n).zip(self.a.chunks_exact(n));
        let outs = x_b.chunks_exact_mut(n).zip(x_a.chunks_exact_mut(n));
        let Scratch {
            first,
            second,
            third,
            ..
        } = &mut scratch;
        for (limb, ((b, a), (x_b, x_a))) in keys.zip(outs).enumerate() {
            let (q, ntt) = (parameters.basis().prime(limb), parameters.basis().ntt(limb));
            masks.residues(q, first, second);
            ntt.forward(first);
            for ((key, x), errors) in [(b, x_b), (a, x_a)].into_iter().zip(&errors) {
                errors.residues(q, second, third);
                ntt.forward(second);
                vector::mul_add_assign(q, second, first, key);
                vector::add_assign(q, x, second);
            }
        }
    }
}

/// `b = e - a s` in these limbs, `[limb][N]`, for the `a` of `number`.
pub(crate) fn encrypt_zero<W: Word>(
    secret: &Secret<W>,
    limbs: std::ops::Range<usize>,
    uniform: &Prg,
    number: u64,
    random: &mut Stream,
) -> Vec<W> {
    let parameters = &secret.parameters;
    let n = parameters.n();
    let mut scratch = Scratch::new(parameters);
    let errors = scratch.draw_errors(parameters, random);
    let mut b = vec![W::default(); limbs.len() * n];
    for (limb, b) in limbs.zip(b.chunks_exact_mut(n)) {
        let q = parameters.basis().prime(limb);
        errors.residues(q, b, &mut scratch.first);
        parameters.basis().ntt(limb).forward(b);
        expand_limb(parameters, uniform, number, limb, &mut scratch.first);
        secret.multiply(limb, &scratch.first, &mut scratch.second);
        vector::sub_assign(q, b, &scratch.second);
    }
    b
}

/// Room for small polynomials and their residues; wiped on drop.
struct Scratch<W: Word> {
    small: Vec<i8>,
    first: Vec<W>,
    second: Vec<W>,
    third: Vec<W>,
}

impl<W: Word> Scratch<W> {
    fn new(parameters: &Parameters<W>) -> Self {
        let n = parameters.n();
        let words = || vec![W::default(); n];
        Self {
            small: vec![0; n],
            first: words(),
            second: words(),
            third: words(),
        }
    }

    fn draw_errors(&mut self, parameters: &Parameters<W>, random: &mut Stream) -> Integers<W> {
        sample::centred_binomial(random, &mut self.small);
        Integers::from_i8(parameters.basis(), &self.small)
    }

    fn draw_ternary(&mut self, parameters: &Parameters<W>, random: &mut Stream) -> Integers<W> {
        sample::ternary(random, &mut self.small);
        Integers::from_i8(parameters.basis(), &self.small)
    }
}

impl<W: Word> Drop for Scratch<W> {
    fn drop(&mut self) {
        wipe(&mut self.small);
        wipe(&mut self.first);
        wipe(&mut self.second);
        wipe(&mut self.third);
    }
}

/// A small polynomial in the NTT domain of these limbs.
fn small<W: Word>(
    parameters: &Parameters<W>,
    limbs: std::ops::Range<usize>,
    values: &[i8],
) -> Vec<W> {
    let n = parameters.n();
    let integers = Integers::from_i8(parameters.basis(), values);
    let mut words = vec![W::default(); limbs.len() * n];
    let mut room = vec![W::default(); n];
    for (limb, words) in limbs.zip(words.chunks_exact_mut(n)) {
        integers.residues(parameters.basis().prime(limb), words, &mut room);
        parameters.basis().ntt(limb).forward(words);
    }
    wipe(&mut room);
    words
}

/// The largest `|x(zeta)|^2` over the slots.
fn largest_slot<W: Word>(parameters: &Parameters<W>, values: &[i8]) -> f64 {
    let mut coefficients: Vec<f64> = values.iter().map(|&value| value.into()).collect();
    let (mut re, mut im) = (vec![0.0; parameters.slots()], vec![0.0; parameters.slots()]);
    parameters
        .embedding()
        .to_slots(&mut coefficients, 1.0, &mut re, &mut im);
    let largest = re
        .iter()
        .zip(&im)
        .fold(0.0, |largest: f64, (re, im)| largest.max(re * re + im * im));
    wipe(&mut coefficients);
    wipe(&mut re);
    wipe(&mut im);
    largest
}

#[cfg(test)]
mod tests {
    use pronghorn_ring::rns;

    use super::*;

    #[test]
    fn one_secret_in_twenty_is_drawn_again() {
        let n = 1024;
        let primes = rns::primes(n, &[20]).unwrap();
        let parameters = Parameters::<u32>::insecure_paper_parameters(n, &primes, &[]).unwrap();
        let prg = Prg::new(&Seed::from_bytes([1; 32]), "pronghorn test secrets");
        let mut ternary = vec![0; n];
        let large = (0..1000).filter(|&index| {
            sample::ternary(&mut prg.stream(index), &mut ternary);
            largest_slot(&parameters, &ternary) > noise::secret_bound(n)
        });
        let large = large.count();
        assert!((20..90).contains(&large), "{large} of 1000");
    }

    #[test]
    fn chunks_are_parts_of_the_whole() {
        let n = 2048;
        let primes = rns::primes(n, &[20, 31]).unwrap();
        let parameters = Parameters::<u32>::insecure_paper_parameters(n, &primes, &[]).unwrap();
        let generator = uniform_generator(&[7; 32]);
        let mut whole = vec![0; 2 * n];
        expand_uniform(&parameters, &generator, 5, &mut whole);
        let mut chunk = vec![0; UNIFORM_CHUNK];
        for (place, expected) in whole.chunks(UNIFORM_CHUNK).enumerate() {
            let (limb, place) = (place / 4, place % 4);
            expand_chunk(&parameters, &generator, 5, limb, place, &mut chunk);
            assert_eq!(chunk, expected);
        }
    }
}
