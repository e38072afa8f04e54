//! The secret key.

use std::sync::Arc;

use pronghorn_ring::{
    Word,
    random::{Prg, Seed},
    rns::{CHUNK, Integers},
    sample, vector,
};

use super::{Parameters, automorphism::Automorphism};
use crate::{noise::TERNARY_VARIANCE, wipe::wipe};

/// Most `|s(zeta)|^2` of a secret key at degree `n`: a uniform ternary secret exceeds it with
/// probability about `exp(-3)`: `|s(zeta)|^2` is close to exponential, and there are `N/2` of them.
pub fn secret_bound(n: usize) -> f64 {
    let n = n as f64;
    TERNARY_VARIANCE * n * ((n / 2.0).ln() + 3.0)
}

/// A uniform ternary secret, conditioned on its canonical embedding being no larger than usual;
/// wiped on drop.
///
/// Of all ternary polynomials the 1 in 20 with some `|s(zeta)|^2` above [`secret_bound`] are drawn
/// again. Noise bounds then hold for every key, and no attack on uniform ternary secrets succeeds
/// more often than by that share: 0.1 bits of security.
pub struct SecretKey<W: Word> {
    pub(super) secret: Arc<Secret<W>>,
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
            if largest_slot(parameters, &ternary) <= secret_bound(n) {
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

    /// `out = c_0 + c_1 s + ... + c_d s^d`, by Horner's rule: `d` products and sums a word, no NTT.
    /// `x` is `[poly][limb][N]`, `out` the plaintext `[limb][N]`, which the caller wipes.
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

/// The largest `|x(zeta)|^2` over the slots. They are compared as integers, which gives the same
/// and takes no branch: comparisons of floating-point numbers have one for what is not a number.
fn largest_slot<W: Word>(parameters: &Parameters<W>, values: &[i8]) -> f64 {
    let mut coefficients: Vec<f64> = values.iter().map(|&value| value.into()).collect();
    let slots = parameters.n() / 2;
    let (mut re, mut im) = (vec![0.0; slots], vec![0.0; slots]);
    parameters
        .embedding()
        .to_slots(&mut coefficients, 1.0, &mut re, &mut im);
    let largest = re.iter().zip(&im).fold(0, |largest, (re, im)| {
        (re * re + im * im).to_bits().max(largest)
    });
    wipe(&mut coefficients);
    wipe(&mut re);
    wipe(&mut im);
    f64::from_bits(largest)
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
            largest_slot(&parameters, &ternary) > secret_bound(n)
        });
        let large = large.count();
        assert!((20..90).contains(&large), "{large} of 1000");
    }
}
