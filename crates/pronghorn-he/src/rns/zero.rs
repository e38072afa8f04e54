//! Encryptions of zero under the secret key: what all keys are made of.

use pronghorn_ring::{
    Word,
    random::{Prg, Stream},
    rns::Integers,
    sample, vector,
};

use super::{Parameters, secret::Secret, tasks::each, uniform::expand_limb};
use crate::wipe::wipe;

/// `b = e - a s` in these limbs, `[limb][N]`, for the `a` of `number`. On rayon's current threads
/// where polynomials are large.
pub(crate) fn encrypt_zero<W: Word>(
    secret: &Secret<W>,
    limbs: std::ops::Range<usize>,
    uniform: &Prg,
    number: u64,
    random: &mut Stream,
) -> Vec<W> {
    let parameters = &secret.parameters;
    let n = parameters.n();
    let errors = errors(parameters, random);
    let mut b = vec![W::default(); limbs.len() * n];
    let tasks = limbs.zip(b.chunks_exact_mut(n)).collect();
    each(n, tasks, |(limb, b)| {
        let Scratch { first, second, .. } = &mut Scratch::new(n);
        let q = parameters.basis().prime(limb);
        errors.residues(q, b, first);
        parameters.basis().ntt(limb).forward(b);
        expand_limb(parameters, uniform, number, limb, first);
        secret.multiply(limb, first, second);
        vector::sub_assign(q, b, second);
    });
    b
}

/// A polynomial of errors.
pub(crate) fn errors<W: Word>(parameters: &Parameters<W>, random: &mut Stream) -> Integers<W> {
    small(parameters, |x| sample::centred_binomial(random, x))
}

/// A polynomial of numbers from -1 to 1.
pub(crate) fn ternary<W: Word>(parameters: &Parameters<W>, random: &mut Stream) -> Integers<W> {
    small(parameters, |x| sample::ternary(random, x))
}

fn small<W: Word>(parameters: &Parameters<W>, draw: impl FnOnce(&mut [i8])) -> Integers<W> {
    let mut small = vec![0; parameters.n()];
    draw(&mut small);
    let integers = Integers::from_i8(parameters.basis(), &small);
    wipe(&mut small);
    integers
}

/// Room for limbs of secrets; wiped on drop.
pub(crate) struct Scratch<W: Word> {
    pub first: Vec<W>,
    pub second: Vec<W>,
    pub third: Vec<W>,
}

impl<W: Word> Scratch<W> {
    /// Limbs of `n` words.
    pub fn new(n: usize) -> Self {
        let [first, second, third] = [(); 3].map(|()| vec![W::default(); n]);
        Self {
            first,
            second,
            third,
        }
    }
}

impl<W: Word> Drop for Scratch<W> {
    fn drop(&mut self) {
        wipe(&mut self.first);
        wipe(&mut self.second);
        wipe(&mut self.third);
    }
}
