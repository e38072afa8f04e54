//! Evaluation keys: encryptions of powers and images of the secret.

use std::collections::{BTreeMap, BTreeSet};

use pronghorn_ring::{
    Word,
    random::{Prg, Seed, Stream},
    vector,
};

use super::{
    MAX_POLYS, Parameters, RingError, SecretKey,
    automorphism::{Automorphism, conjugation_element, inverse_element, rotation_element},
    parameters::Piece,
    secret::Secret,
    uniform::{expand_uniform, uniform_generator},
    wire,
    zero::encrypt_zero,
};
use crate::wipe::wipe;

/// Keys that let anyone relinearise, rotate and conjugate: encryptions of powers and images of the
/// secret. One seed for all `a`.
pub struct EvaluationKeys<W: Word> {
    parameters: Parameters<W>,
    seed: [u8; 32],
    /// From `s^2`, `s^3` and so on to `s`.
    powers: Vec<SwitchingKey<W>>,
    /// By the element of the automorphism.
    galois: BTreeMap<u32, GaloisKey<W>>,
}

pub(crate) struct GaloisKey<W: Word> {
    pub automorphism: Automorphism,
    pub key: SwitchingKey<W>,
}

/// For each digit an encryption of `P` times the old secret in the limbs of the digit and zero in
/// the others, under the new secret.
pub(crate) struct SwitchingKey<W: Word> {
    /// `[digit][limb][N]`, special primes included.
    b: Vec<W>,
    /// `[digit][limb][N]`.
    a: Vec<W>,
}

/// The automorphisms of these rotations and of conjugation, each once, without the one that moves
/// nothing.
fn elements(n: usize, steps: &[i64], conjugation: bool) -> BTreeSet<u32> {
    let rotations = steps.iter().map(|&steps| rotation_element(n, steps));
    let conjugation = conjugation.then(|| conjugation_element(n));
    let all = rotations.chain(conjugation);
    all.filter(|&element| element != IDENTITY).collect()
}

/// The public seed of all `a`, from the secret one.
fn public_seed(seed: &Seed) -> [u8; 32] {
    let domain = "pronghorn 2026 CKKS choice of the evaluation keys' seed";
    let mut public = [0; 32];
    Prg::new(seed, domain).stream(0).fill(&mut public);
    public
}

/// Gives the `b` of each key to `take`, `[digit][limb][N]`: powers in order, then automorphisms by
/// element.
fn each_b<W: Word>(
    key: &SecretKey<W>,
    max_power: usize,
    elements: &BTreeSet<u32>,
    seed: &Seed,
    mut take: impl FnMut(Purpose, Vec<W>),
) -> Result<(), RingError> {
    let parameters = key.parameters();
    if parameters.pieces().is_empty() {
        return Err(RingError::NoSpecialPrimes);
    }
    if max_power >= MAX_POLYS {
        return Err(RingError::Polys {
            polys: max_power + 1,
        });
    }
    let (uniform, mut errors) = (
        uniform_generator(&public_seed(seed)),
        Prg::new(seed, "pronghorn 2026 CKKS key errors").stream(0),
    );
    let secret = key.secret();
    let mut power = secret.clone_words();
    for exponent in 2..=max_power {
        secret.multiply_all(&mut power);
        let purpose = Purpose::Power(exponent);
        let b = encrypted(secret, &power, purpose, &uniform, &mut errors);
        take(purpose, b);
    }
    wipe(&mut power);
    for &element in elements {
        let inverse = Automorphism::new(parameters.n(), inverse_element(parameters.n(), element));
        let (image, purpose) = (secret.image(&inverse), Purpose::Galois(element));
        let b = encrypted(&image, &secret.words, purpose, &uniform, &mut errors);
        take(purpose, b);
    }
    Ok(())
}

/// The key from `old` (`[limb][N]`) to `secret`.
fn encrypted<W: Word>(
    secret: &Secret<W>,
    old: &[W],
    purpose: Purpose,
    uniform: &Prg,
    errors: &mut Stream,
) -> Vec<W> {
    let number = |digit| purpose.number(digit);
    encrypt_gadget(
        secret,
        &secret.parameters,
        Some(old),
        uniform,
        number,
        errors,
    )
}

/// The element that moves nothing.
const IDENTITY: u32 = 1;

/// Which `a` of the seed a key uses.
#[derive(Clone, Copy)]
enum Purpose {
    Power(usize),
    Galois(u32),
}

impl Purpose {
    fn number(self, digit: usize) -> u64 {
        let (kind, index) = match self {
            Self::Power(power) => (1, power as u64),
            Self::Galois(element) => (2, element.into()),
        };
        kind << 40 | index << 8 | digit as u64
    }
}

impl<W: Word> EvaluationKeys<W> {
    /// Keys from `s^2 ... s^max_power` to `s` (none for a `max_power` below 2), for rotations to
    /// the left by `steps`, and for conjugation. Each takes `2 d (l + k) N` words for `d` digits,
    /// `l` limbs and `k` special primes, and half of that on the wire.
    ///
    /// # Errors
    /// When there are no special primes, `max_power` exceeds 8, or the system has no randomness.
    pub fn generate(
        key: &SecretKey<W>,
        max_power: usize,
        steps: &[i64],
        conjugation: bool,
    ) -> Result<Self, RingError> {
        Self::generate_from_seed(key, max_power, steps, conjugation, &Seed::from_os()?)
    }

    /// As [`generate`](Self::generate) with randomness from a secret seed that nothing else uses,
    /// for reproducible tests.
    ///
    /// # Errors
    /// When there are no special primes, or `max_power` exceeds 8.
    pub fn generate_from_seed(
        key: &SecretKey<W>,
        max_power: usize,
        steps: &[i64],
        conjugation: bool,
        seed: &Seed,
    ) -> Result<Self, RingError> {
        let parameters = key.parameters();
        let elements = elements(parameters.n(), steps, conjugation);
        let public = public_seed(seed);
        let uniform = uniform_generator(&public);
        let (mut powers, mut galois) = (Vec::new(), BTreeMap::new());
        each_b(key, max_power, &elements, seed, |purpose, b| {
            let key = SwitchingKey::from_b(parameters, purpose, &uniform, b);
            match purpose {
                Purpose::Power(_) => powers.push(key),
                Purpose::Galois(element) => {
                    galois.insert(element, GaloisKey::new(parameters, element, key));
                }
            }
        })?;
        Ok(Self {
            parameters: parameters.clone(),
            seed: public,
            powers,
            galois,
        })
    }

    /// Hands the bytes of [`generate_from_seed`](Self::generate_from_seed)'s keys to `out`, part by
    /// part: those of one key in memory at a time, and without the half that follows from a seed.
    ///
    /// # Errors
    /// As there.
    pub fn encode_from_seed(
        key: &SecretKey<W>,
        max_power: usize,
        steps: &[i64],
        conjugation: bool,
        seed: &Seed,
        out: &mut dyn FnMut(&[u8]),
    ) -> Result<(), RingError> {
        let parameters = key.parameters();
        let elements = elements(parameters.n(), steps, conjugation);
        let (public, powers) = (public_seed(seed), max_power.max(1));
        let mut bytes = Vec::new();
        wire::header_of_keys(parameters, &public, powers, elements.iter(), &mut bytes);
        out(&bytes);
        each_b(key, max_power, &elements, seed, |_, b| {
            bytes.clear();
            wire::pack(parameters, parameters.basis().limbs(), &b, &mut bytes);
            out(&bytes);
        })
    }

    /// Their parameters.
    pub fn parameters(&self) -> &Parameters<W> {
        &self.parameters
    }

    /// The highest power of the secret that can be relinearised; 1 without relinearisation keys.
    pub fn max_power(&self) -> usize {
        self.powers.len() + 1
    }

    /// What the wire needs: the seed, the `b` of the powers in order and those of the automorphisms
    /// by element.
    pub(crate) fn parts(
        &self,
    ) -> (
        &[u8; 32],
        impl Iterator<Item = &[W]>,
        impl Iterator<Item = (u32, &[W])>,
    ) {
        let powers = self.powers.iter().map(|key| key.b.as_slice());
        let galois = self
            .galois
            .iter()
            .map(|(&element, galois)| (element, galois.key.b.as_slice()));
        (&self.seed, powers, galois)
    }

    /// Undoes [`parts`](Self::parts).
    pub(super) fn from_parts(
        parameters: &Parameters<W>,
        seed: [u8; 32],
        powers: Vec<Vec<W>>,
        galois: Vec<(u32, Vec<W>)>,
    ) -> Self {
        let uniform = uniform_generator(&seed);
        let key = |purpose, b| SwitchingKey::from_b(parameters, purpose, &uniform, b);
        let powers = powers
            .into_iter()
            .zip(2..)
            .map(|(b, power)| key(Purpose::Power(power), b));
        let galois = galois.into_iter().map(|(element, b)| {
            let key = key(Purpose::Galois(element), b);
            (element, GaloisKey::new(parameters, element, key))
        });
        let (powers, galois) = (powers.collect(), galois.collect());
        Self {
            parameters: parameters.clone(),
            seed,
            powers,
            galois,
        }
    }

    pub(crate) fn power(&self, power: usize) -> Result<&SwitchingKey<W>, RingError> {
        self.powers
            .get(power - 2)
            .ok_or(RingError::NoPowerKey { power })
    }

    /// The key from `s^2`.
    ///
    /// # Panics
    /// When there is none.
    pub(crate) fn square(&self) -> &SwitchingKey<W> {
        &self.powers[0]
    }

    /// Nothing for a rotation that moves nothing.
    pub(crate) fn rotation(&self, steps: i64) -> Result<Option<&GaloisKey<W>>, RingError> {
        match rotation_element(self.parameters.n(), steps) {
            IDENTITY => Ok(None),
            element => self
                .galois
                .get(&element)
                .map(Some)
                .ok_or(RingError::NoRotationKey { steps }),
        }
    }

    pub(crate) fn conjugation(&self) -> Result<&GaloisKey<W>, RingError> {
        let element = conjugation_element(self.parameters.n());
        self.galois.get(&element).ok_or(RingError::NoConjugationKey)
    }
}

impl<W: Word> GaloisKey<W> {
    fn new(parameters: &Parameters<W>, element: u32, key: SwitchingKey<W>) -> Self {
        let automorphism = Automorphism::new(parameters.n(), element);
        Self { automorphism, key }
    }
}

impl<W: Word> SwitchingKey<W> {
    /// Both polynomials of all digits, `[digit][limb][N]` each.
    pub(crate) fn halves(&self) -> [&[W]; 2] {
        [&self.b, &self.a]
    }

    /// Of its half that is not random.
    fn from_b(parameters: &Parameters<W>, purpose: Purpose, uniform: &Prg, b: Vec<W>) -> Self {
        let words = parameters.basis().limbs() * parameters.n();
        let mut a = vec![W::default(); b.len()];
        for (digit, a) in a.chunks_exact_mut(words).enumerate() {
            expand_uniform(parameters, uniform, purpose.number(digit), a);
        }
        Self { b, a }
    }

    /// The limb of a digit in both polynomials.
    fn limb(&self, parameters: &Parameters<W>, digit: usize, limb: usize) -> [&[W]; 2] {
        let n = parameters.n();
        let place = (digit * parameters.basis().limbs() + limb) * n;
        [&self.b[place..][..n], &self.a[place..][..n]]
    }

    /// `sums = sum_(key, digit) digits[key][digit] key[digit]` in one limb, for both polynomials of
    /// the keys: what a key switch of several polynomials at once sums up. `digits` are those of
    /// [`Digits::raise`](super::digits::Digits::raise).
    pub(crate) fn multiply(
        keys: &[&Self],
        parameters: &Parameters<W>,
        limb: usize,
        digits: &[&[W]],
        sums: [&mut [W]; 2],
    ) {
        let count = digits.len() / keys.len();
        let parts = keys
            .iter()
            .flat_map(|key| (0..count).map(move |digit| key.limb(parameters, digit, limb)));
        let (b, a): (Vec<_>, Vec<_>) = parts.map(|[b, a]| (b, a)).unzip();
        let q = parameters.basis().prime(limb);
        vector::inner_product_pair(q, digits, [&b, &a], sums);
    }
}

/// `b = e - a s` for each digit of a gadget, `[digit][limb][N]`, plus `P` times `old` in the limbs
/// of the digit; `number(digit)` says which `a`. The gadget may be another than the secret's, on
/// one basis.
pub(crate) fn encrypt_gadget<W: Word>(
    secret: &Secret<W>,
    gadget: &Parameters<W>,
    old: Option<&[W]>,
    uniform: &Prg,
    number: impl Fn(usize) -> u64,
    errors: &mut Stream,
) -> Vec<W> {
    let (basis, n) = (gadget.basis(), gadget.n());
    let mut b = Vec::with_capacity(gadget.pieces().len() * basis.limbs() * n);
    for (digit, piece) in gadget.pieces().iter().enumerate() {
        let mut part = encrypt_zero(secret, 0..basis.limbs(), uniform, number(digit), errors);
        if let Some(old) = old {
            add_gadget(gadget, piece, &mut part, old);
        }
        b.append(&mut part);
    }
    b
}

/// Adds `P` times `old` in the limbs of a digit, both `[limb][N]` with the special limbs.
pub(crate) fn add_gadget<W: Word>(
    gadget: &Parameters<W>,
    piece: &Piece,
    part: &mut [W],
    old: &[W],
) {
    let (basis, n) = (gadget.basis(), gadget.n());
    for limb in piece.limbs.clone() {
        let q = basis.prime(limb);
        let power = q.pow(W::from_u64(2), piece.shift.into());
        let factor = q.mul(special_product(gadget, limb), power);
        let place = limb * n..(limb + 1) * n;
        vector::mul_scalar_add_assign(q, &mut part[place.clone()], &old[place], factor);
    }
}

/// The product of the special primes modulo the prime of a limb.
pub(crate) fn special_product<W: Word>(parameters: &Parameters<W>, limb: usize) -> W {
    let q = parameters.basis().prime(limb);
    let special = parameters.basis().primes().skip(parameters.limbs());
    special.fold(W::from_u64(1), |product, p| {
        q.mul(product, W::from_u64(p.value() % q.value()))
    })
}
