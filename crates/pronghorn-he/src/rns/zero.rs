//! Encryptions of zero under the secret key: what all keys are made of.

use pronghorn_ring::{
    Word,
    random::{Prg, Stream},
    rns::Integers,
    sample, vector,
};

use super::{Parameters, secret::Secret, uniform::expand_limb};
use crate::wipe::wipe;

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
pub(crate) struct Scratch<W: Word> {
    small: Vec<i8>,
    pub first: Vec<W>,
    pub second: Vec<W>,
    pub third: Vec<W>,
}

impl<W: Word> Scratch<W> {
    pub fn new(parameters: &Parameters<W>) -> Self {
        let n = parameters.n();
        let words = || vec![W::default(); n];
        Self {
            small: vec![0; n],
            first: words(),
            second: words(),
            third: words(),
        }
    }

    pub fn draw_errors(&mut self, parameters: &Parameters<W>, random: &mut Stream) -> Integers<W> {
        sample::centred_binomial(random, &mut self.small);
        Integers::from_i8(parameters.basis(), &self.small)
    }

    pub fn draw_ternary(&mut self, parameters: &Parameters<W>, random: &mut Stream) -> Integers<W> {
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
