//! Key switching: relinearisation, rotations, conjugation.
//!
//! The hybrid form of K. Han and D. Ki, "Better bootstrapping for approximate homomorphic encryption" (ePrint
//! 2019/688, section 3): limbs are taken in digits, each is raised to all primes and the special ones, multiplied with its
//! part of the key, and the sum divided by the special primes `P`. Departures: digits and the division are exact
//! and centred (see [`pronghorn_ring::rns`]), which leaves no multiples of the digit's modulus in the noise; products
//! are summed before any reduction, limb by limb, so each key word is read once and no raised digit leaves the cache; several
//! polynomials are switched into one sum with one division; rotation keys belong to the secret before the rotation, so
//! that several rotations share the raised digits of one ciphertext (S. Halevi, V. Shoup, "Faster homomorphic linear
//! transformations in HElib", CRYPTO 2018, section 5) and permute two polynomials each.
//!
//! For `l` limbs in `d` digits with `k` special primes: `l` inverse NTTs and `d (l + k) - l` forward ones to raise, `2 k` inverse and `2 l`
//! forward to divide, `2 d (l + k)` products a coefficient.

use std::collections::{BTreeMap, BTreeSet};

use pronghorn_ring::{
    Word,
    random::{Prg, Seed, Stream},
    vector,
};

use super::{
    Ciphertext, CkksError, MAX_POLYS, Parameters, SecretKey,
    automorphism::{Automorphism, conjugation_element, inverse_element, rotation_element},
    keys::{Secret, encrypt_zero, expand_uniform, uniform_generator},
    parameters::Digit,
    pool::Buffer,
    wipe::wipe,
};

/// Keys that let anyone relinearise, rotate and conjugate: encryptions of powers and images of the secret. One seed for all `a`.
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

/// For each digit an encryption of `P` times the old secret in the limbs of the digit and zero in the others, under the new secret.
pub(crate) struct SwitchingKey<W: Word> {
    /// `[digit][limb][N]`, special primes included.
    b: Vec<W>,
    /// `[digit][limb][N]`.
    a: Vec<W>,
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
    /// Keys from `s^2 ... s^max_power` to `s` (none for a `max_power` below 2), for rotations to the left by `steps`, and for
    /// conjugation. Each takes `2 d (l + k) N` words for `d` digits, `l` limbs and `k` special primes, and half of that on the wire.
    ///
    /// # Errors
    /// When there are no special primes, `max_power` exceeds 8, or the system has no randomness.
    pub fn generate(
        key: &SecretKey<W>,
        max_power: usize,
        steps: &[i64],
        conjugation: bool,
    ) -> Result<Self, CkksError> {
        Self::generate_from_seed(key, max_power, steps, conjugation, &Seed::from_os()?)
    }

    /// As [`generate`](Self::generate) with randomness from a secret seed that nothing else uses, for reproducible tests.
    ///
    /// # Errors
    /// When there are no special primes, or `max_power` exceeds 8.
    pub fn generate_from_seed(
        key: &SecretKey<W>,
        max_power: usize,
        steps: &[i64],
        conjugation: bool,
        seed: &Seed,
    ) -> Result<Self, CkksError> {
        let parameters = key.parameters();
        if parameters.pieces().is_empty() {
            return Err(CkksError::NoSpecialPrimes);
        }
        if max_power >= MAX_POLYS {
            return Err(CkksError::Polys {
                polys: max_power + 1,
            });
        }
        let mut public = [0; 32];
        Prg::new(
            seed,
            "pronghorn 2026 CKKS choice of the evaluation keys' seed",
        )
        .stream(0)
        .fill(&mut public);
        let (uniform, mut errors) = (
            uniform_generator(&public),
            Prg::new(seed, "pronghorn 2026 CKKS key errors").stream(0),
        );
        let secret = key.secret();
        let mut power = secret.clone_words();
        let powers = (2..=max_power).map(|exponent| {
            secret.multiply_all(&mut power);
            SwitchingKey::generate(
                secret,
                &power,
                Purpose::Power(exponent),
                &uniform,
                &mut errors,
            )
        });
        let powers = powers.collect();
        wipe(&mut power);
        let rotations = steps
            .iter()
            .map(|&steps| rotation_element(parameters.n(), steps));
        let conjugation = conjugation.then(|| conjugation_element(parameters.n()));
        let elements: BTreeSet<u32> = rotations
            .chain(conjugation)
            .filter(|&element| element != IDENTITY)
            .collect();
        let galois = elements.into_iter().map(|element| {
            let inverse =
                Automorphism::new(parameters.n(), inverse_element(parameters.n(), element));
            let image = secret.image(&inverse);
            let purpose = Purpose::Galois(element);
            let key = SwitchingKey::generate(&image, &secret.words, purpose, &uniform, &mut errors);
            (element, GaloisKey::new(parameters, element, key))
        });
        let galois = galois.collect();
        Ok(Self {
            parameters: parameters.clone(),
            seed: public,
            powers,
            galois,
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

    /// [`Ciphertext::relinearise_and_rescale`] on words: `x` is `[poly][limb][N]` of at least three polynomials, `out` gets two of
    /// `limbs - dropped` limbs.
    ///
    /// # Errors
    /// When there is no key for one of the powers.
    ///
    /// # Panics
    /// Unless the lengths are these and `dropped < limbs`.
    pub fn relinearise_words(
        &self,
        limbs: usize,
        dropped: usize,
        x: &[W],
        out: &mut [W],
    ) -> Result<(), CkksError> {
        let (parameters, words) = (&self.parameters, limbs * self.parameters.n());
        assert!(
            x.len().is_multiple_of(words) && x.len() > 2 * words,
            "at least three whole polynomials"
        );
        assert!(
            dropped < limbs && out.len() == 2 * (limbs - dropped) * parameters.n(),
            "two polynomials of what is left"
        );
        let polys: Vec<&[W]> = x.chunks_exact(words).collect();
        let powers = (2..polys.len())
            .map(|power| self.power(power))
            .collect::<Result<Vec<_>, _>>()?;
        let (low, high) = polys.split_at(2);
        let keys = [powers];
        let switch = Switch {
            parameters,
            limbs,
            dropped,
            low,
            high,
            keys: &keys,
        };
        switch.run(out);
        Ok(())
    }

    /// What the wire needs: the seed, the `b` of the powers in order and those of the automorphisms by element.
    pub(super) fn parts(
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

    fn power(&self, power: usize) -> Result<&SwitchingKey<W>, CkksError> {
        self.powers
            .get(power - 2)
            .ok_or(CkksError::NoPowerKey { power })
    }

    /// Nothing for a rotation that moves nothing.
    pub(crate) fn rotation(&self, steps: i64) -> Result<Option<&GaloisKey<W>>, CkksError> {
        match rotation_element(self.parameters.n(), steps) {
            IDENTITY => Ok(None),
            element => self
                .galois
                .get(&element)
                .map(Some)
                .ok_or(CkksError::NoRotationKey { steps }),
        }
    }

    pub(crate) fn conjugation(&self) -> Result<&GaloisKey<W>, CkksError> {
        let element = conjugation_element(self.parameters.n());
        self.galois.get(&element).ok_or(CkksError::NoConjugationKey)
    }
}

impl<W: Word> GaloisKey<W> {
    fn new(parameters: &Parameters<W>, element: u32, key: SwitchingKey<W>) -> Self {
        let automorphism = Automorphism::new(parameters.n(), element);
        Self { automorphism, key }
    }
}

impl<W: Word> SwitchingKey<W> {
    /// From `old` (`[limb][N]`) to `secret`.
    fn generate(
        secret: &Secret<W>,
        old: &[W],
        purpose: Purpose,
        uniform: &Prg,
        errors: &mut Stream,
    ) -> Self {
        let (parameters, n) = (&secret.parameters, secret.parameters.n());
        let basis = parameters.basis();
        let mut b = Vec::with_capacity(parameters.pieces().len() * basis.limbs() * n);
        for (digit, piece) in parameters.pieces().iter().enumerate() {
            let mut part = encrypt_zero(
                secret,
                0..basis.limbs(),
                uniform,
                purpose.number(digit),
                errors,
            );
            for limb in piece.limbs.clone() {
                let q = basis.prime(limb);
                let power = q.pow(W::from_u64(2), piece.shift.into());
                let factor = q.mul(special_product(parameters, limb), power);
                let place = limb * n..(limb + 1) * n;
                vector::mul_scalar_add_assign(q, &mut part[place.clone()], &old[place], factor);
            }
            b.append(&mut part);
        }
        Self::from_b(parameters, purpose, uniform, b)
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
    pub(crate) fn limb(&self, parameters: &Parameters<W>, digit: usize, limb: usize) -> [&[W]; 2] {
        let n = parameters.n();
        let place = (digit * parameters.basis().limbs() + limb) * n;
        [&self.b[place..][..n], &self.a[place..][..n]]
    }
}

impl<W: Word> Ciphertext<W> {
    /// The same values in two polynomials: all powers of the secret above the first are switched in one go. Nothing happens to
    /// a ciphertext of two polynomials or less.
    ///
    /// # Errors
    /// When parameters differ, or there is no key for one of the powers.
    pub fn relinearise(&self, keys: &EvaluationKeys<W>) -> Result<Self, CkksError> {
        self.relinearise_and_rescale(keys, 0)
    }

    /// [`relinearise`](Self::relinearise), then [`rescale`](Self::rescale) by `dropped` limbs, with one division for both: fewer
    /// transforms and less noise.
    ///
    /// # Errors
    /// When parameters differ, there is no key for one of the powers, or no limb would be left.
    pub fn relinearise_and_rescale(
        &self,
        keys: &EvaluationKeys<W>,
        dropped: usize,
    ) -> Result<Self, CkksError> {
        let parameters = self.parameters();
        parameters.same(&keys.parameters)?;
        if self.polys() <= 2 {
            return if dropped == 0 {
                Ok(self.clone())
            } else {
                self.rescale(dropped)
            };
        }
        let scale = self.rescaled_scale(dropped)?;
        let kept = self.limbs() - dropped;
        let mut data = parameters.pool().take_words(2 * kept * parameters.n());
        keys.relinearise_words(self.limbs(), dropped, self.data(), &mut data)?;
        Self::from_words(parameters, kept, scale, data)
    }

    /// Slots moved to the left by `steps`, around the end: slot `j` gets the value of slot `j + steps`. Negative steps go right.
    ///
    /// # Errors
    /// When parameters differ, there are more than two polynomials, or there is no key for these steps.
    pub fn rotate(&self, steps: i64, keys: &EvaluationKeys<W>) -> Result<Self, CkksError> {
        let mut rotated = self.rotate_many(&[steps], keys)?;
        Ok(rotated.swap_remove(0))
    }

    /// All of these rotations. Raising the digits, most of the work, is done once for all of them.
    ///
    /// # Errors
    /// As [`rotate`](Self::rotate).
    pub fn rotate_many(
        &self,
        steps: &[i64],
        keys: &EvaluationKeys<W>,
    ) -> Result<Vec<Self>, CkksError> {
        let galois = steps
            .iter()
            .map(|&steps| keys.rotation(steps))
            .collect::<Result<Vec<_>, _>>()?;
        let moving: Vec<_> = galois.iter().copied().flatten().collect();
        let mut moved = self.apply(&moving, keys)?.into_iter();
        let rotated = galois
            .iter()
            .map(|galois| galois.and_then(|_| moved.next()));
        Ok(rotated
            .map(|rotated| rotated.unwrap_or_else(|| self.clone()))
            .collect())
    }

    /// The complex conjugate of every slot.
    ///
    /// # Errors
    /// When parameters differ, there are more than two polynomials, or there is no conjugation key.
    pub fn conjugate(&self, keys: &EvaluationKeys<W>) -> Result<Self, CkksError> {
        let mut conjugate = self.apply(&[keys.conjugation()?], keys)?;
        Ok(conjugate.swap_remove(0))
    }

    fn apply(
        &self,
        galois: &[&GaloisKey<W>],
        keys: &EvaluationKeys<W>,
    ) -> Result<Vec<Self>, CkksError> {
        let (parameters, limbs, n) = (self.parameters(), self.limbs(), self.parameters().n());
        parameters.same(&keys.parameters)?;
        if self.polys() != 2 {
            return Err(CkksError::Polys {
                polys: self.polys(),
            });
        }
        let outputs: Vec<_> = galois.iter().map(|galois| vec![&galois.key]).collect();
        let mut switched = parameters.pool().take(galois.len() * 2 * limbs * n);
        let switch = Switch {
            parameters,
            limbs,
            dropped: 0,
            low: &[self.poly(0)],
            high: &[self.poly(1)],
            keys: &outputs,
        };
        switch.run(&mut switched);
        let images = switched
            .chunks_exact(2 * limbs * n)
            .zip(galois)
            .map(|(switched, galois)| {
                let mut data = parameters.pool().take_words(switched.len());
                for (x, out) in switched.chunks_exact(n).zip(data.chunks_exact_mut(n)) {
                    galois.automorphism.apply(x, out);
                }
                Self::from_words(parameters, limbs, self.scale(), data)
            });
        images.collect()
    }
}

/// A key switch of several polynomials under several sets of keys.
struct Switch<'a, W: Word> {
    parameters: &'a Parameters<W>,
    /// Limbs of the ciphertext, and how many of them the division takes with the special primes.
    limbs: usize,
    dropped: usize,
    /// `[limb][N]` each: what stays, at places 0 and 1 of the result, and what is switched.
    low: &'a [&'a [W]],
    high: &'a [&'a [W]],
    /// `[output][switched polynomial]`.
    keys: &'a [Vec<&'a SwitchingKey<W>>],
}

impl<W: Word> Switch<'_, W> {
    /// `out[output][poly][limb][N] = round((sum_c P c s_c + P low) / (P q_(l-k) ... q_(l-1)))` under the new secret, `s_c` being
    /// the secret that the key of `c` switches from, `l = limbs`, `k = dropped`, two polynomials an output.
    ///
    /// First come the limbs to divide by, then limb by limb the others, each of which is done when it is left.
    fn run(&self, out: &mut [W]) {
        let (parameters, n) = (self.parameters, self.parameters.n());
        let (basis, pool) = (parameters.basis(), parameters.pool());
        let kept = self.limbs - self.dropped;
        let special = parameters.limbs()..basis.limbs();
        let sources: Vec<usize> = (kept..self.limbs).chain(special).collect();
        let polys = 2 * self.keys.len();
        assert_eq!(out.len(), polys * kept * n, "two polynomials an output");
        let mut room = pool.take(n);
        let mut raised = pool.take(self.high.len() * parameters.digit_count(self.limbs) * n);
        let mut digits = pool.take(polys * sources.len() * n);
        let mut sums = pool.take(2 * n);
        let coefficients = self.coefficients(&mut room);

        let pairs = digits.chunks_exact_mut(2 * sources.len() * n);
        let mut pairs: Vec<_> = pairs.collect();
        for (place, &limb) in sources.iter().enumerate() {
            let factors = self.raise(limb, &coefficients, &mut raised, &mut room);
            for (pair, keys) in pairs.iter_mut().zip(self.keys) {
                let (b, a) = pair.split_at_mut(sources.len() * n);
                let mut sums = [b, a].map(|digits| &mut digits[place * n..][..n]);
                self.multiply(
                    limb,
                    &factors,
                    keys,
                    sums.each_mut().map(|sums| &mut **sums),
                );
                for (poly, sums) in sums.into_iter().enumerate() {
                    if limb < self.limbs
                        && let Some(low) = self.low.get(poly)
                    {
                        let special = special_product(parameters, limb);
                        let low = &low[limb * n..][..n];
                        vector::mul_scalar_add_assign(basis.prime(limb), sums, low, special);
                    }
                    basis.ntt(limb).inverse(sums);
                }
            }
        }
        let division = parameters.leaving(self.limbs, self.dropped);
        for digits in digits.chunks_exact_mut(sources.len() * n) {
            division.digits(digits, &mut room);
        }
        for limb in 0..kept {
            let factors = self.raise(limb, &coefficients, &mut raised, &mut room);
            for (output, keys) in self.keys.iter().enumerate() {
                let (b, a) = sums.split_at_mut(n);
                self.multiply(limb, &factors, keys, [b, a]);
                for (poly, sums) in sums.chunks_exact(n).enumerate() {
                    let place = output * 2 + poly;
                    let digits = &digits[place * sources.len() * n..][..sources.len() * n];
                    let out = &mut out[(place * kept + limb) * n..][..n];
                    division.remainder(basis, limb, digits, out, &mut room);
                    self.finish(limb, sums, self.low.get(poly).copied(), out);
                }
            }
        }
    }

    /// What [`raise`](Self::raise) reads: the digits of all polynomials, in coefficients.
    fn coefficients(&self, room: &mut [W]) -> Buffer<'_, W> {
        let (parameters, n) = (self.parameters, self.parameters.n());
        let words = self.limbs * n;
        let mut coefficients = parameters.pool().take(self.high.len() * words);
        for (from, poly) in self.high.iter().zip(coefficients.chunks_exact_mut(words)) {
            poly.copy_from_slice(from);
            parameters.basis().inverse(poly);
            for digit in &parameters.digits()[..parameters.digit_count(self.limbs)] {
                let place = digit.start * n..digit.end.min(self.limbs) * n;
                digit.conversion.digits(&mut poly[place], room);
            }
        }
        coefficients
    }

    /// The digits of all polynomials modulo the prime of a limb, in the NTT domain. In the limbs of a digit that is the polynomial itself.
    fn raise<'b>(
        &'b self,
        limb: usize,
        coefficients: &[W],
        raised: &'b mut [W],
        room: &mut [W],
    ) -> Vec<&'b [W]> {
        let (parameters, n) = (self.parameters, self.parameters.n());
        let digits = &parameters.digits()[..parameters.digit_count(self.limbs)];
        let parts =
            (0..self.high.len()).flat_map(|poly| digits.iter().map(move |digit| (poly, digit)));
        let raise = |((poly, digit), raised): ((usize, &Digit<W>), &'b mut [W])| {
            if (digit.start..digit.end).contains(&limb) {
                return &self.high[poly][limb * n..][..n];
            }
            let (start, end) = (digit.start, digit.end.min(self.limbs));
            let from =
                &coefficients[(poly * self.limbs + start) * n..(poly * self.limbs + end) * n];
            digit
                .conversion
                .apply_forward(parameters.basis(), limb, from, raised, room);
            &*raised
        };
        parts.zip(raised.chunks_exact_mut(n)).map(raise).collect()
    }

    /// The products of the digits and the key in one limb, of both polynomials.
    fn multiply(
        &self,
        limb: usize,
        factors: &[&[W]],
        keys: &[&SwitchingKey<W>],
        sums: [&mut [W]; 2],
    ) {
        let parameters = self.parameters;
        let digits = parameters.digit_count(self.limbs);
        let parts = keys
            .iter()
            .flat_map(|key| (0..digits).map(move |digit| key.limb(parameters, digit, limb)));
        let (b, a): (Vec<_>, Vec<_>) = parts.map(|[b, a]| (b, a)).unzip();
        let q = parameters.basis().prime(limb);
        vector::inner_product_pair(q, factors, [&b, &a], sums);
    }

    /// `out = (sums - out) / (P q_(l-k) ... q_(l-1)) + low / (q_(l-k) ... q_(l-1))` in one limb of a polynomial, `out` being what is
    /// left of the sums modulo the divisor.
    fn finish(&self, limb: usize, sums: &[W], low: Option<&[W]>, out: &mut [W]) {
        let (parameters, n) = (self.parameters, self.parameters.n());
        let basis = parameters.basis();
        let division = parameters.leaving(self.limbs, self.dropped);
        let low = low.map(|low| &low[limb * n..][..n]);
        if self.dropped == 0 {
            return division.finish(basis, limb, sums, low, out);
        }
        division.finish(basis, limb, sums, None, out);
        if let Some(low) = low {
            let rescaling = parameters.rescaling(self.limbs, self.dropped);
            vector::mul_scalar_add_assign(basis.prime(limb), out, low, rescaling.inverse(limb));
        }
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
