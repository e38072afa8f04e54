//! Multi-key BFV: exact integers modulo `t` in slots.
//!
//! Keys, rotations and decryption are those of [`multikey`](super); here are messages and the
//! product, `round(t c_i c'_j / Q)` (ePrint 2019/524, section 3.2, and its section 5 for BFV). It is computed
//! exactly: operands are raised to more primes as centred numbers, multiplied there, and divided by
//! `Q` with one rounding. Only the quadratic relinearisation goes with it: digits of a rounded
//! product are no products of digits.

use std::sync::Arc;

use pronghorn_ring::{
    Word,
    random::Stream,
    rns::{self as ring_rns, Division, RnsBasis, RnsError},
    vector,
};

use super::{
    Common, Contribution, Extended, KeyRing, MultiKeyError, Partial, Party, PublicKeys, SecretKey,
    lift::Lift,
    merge,
    product::{Operand, Tensor, quadratic},
};
use crate::{
    bfv::{Multiplier, Noise, Parameters, Plaintext},
    noise::TERNARY_VARIANCE,
    rns::{pool::Buffer, slices},
    wipe::wipe,
};

/// BFV on a common reference string, with the primes that products take. A cheap handle.
#[derive(Clone)]
pub struct Setting<W: Word>(Arc<Tables<W>>);

struct Tables<W: Word> {
    parameters: Parameters<W>,
    common: Common<W>,
    /// The primes of ciphertexts, then more.
    wide: RnsBasis<W>,
    /// From the primes of ciphertexts to the others, division by them, and back.
    up: Lift<W>,
    division: Division<W>,
    back: Lift<W>,
}

impl<W: Word> Setting<W> {
    /// BFV with the common reference string of a seed. The further primes, of the size of the
    /// largest, have a product above `2 t N Q`, so that numbers of products fit.
    ///
    /// # Errors
    /// When there are no special primes, or not enough primes of that size.
    pub fn new(parameters: &Parameters<W>, seed: [u8; 32]) -> Result<Self, MultiKeyError> {
        let common = Common::new(parameters.ring(), seed)?;
        let (ring, n) = (parameters.ring(), parameters.n());
        let limbs = ring.limbs();
        let taken: Vec<u64> = (ring.basis().primes().map(|q| q.value()))
            .chain([parameters.t()])
            .collect();
        let bits = ring.basis().primes().map(|q| q.bits()).max().unwrap_or(0);
        let log = parameters.log_modulus() + (2.0 * parameters.t() as f64 * n as f64).log2();
        // Primes of these bits have more than one bit less than that.
        let count = (log / f64::from(bits - 1)).ceil() as usize + 1;
        let found = ring_rns::primes(n, &vec![bits; count + taken.len()]);
        let mut more = found.map_err(parameters_error)?;
        more.retain(|q| !taken.contains(q));
        let enough = (1..=count).find(|&count| {
            let logs = more[..count].iter().map(|&q| (q as f64).log2());
            logs.sum::<f64>() > log
        });
        more.truncate(enough.unwrap_or(count));
        let primes = [&taken[..limbs], &more].concat();
        let wide = RnsBasis::new(n, &primes).map_err(parameters_error)?;
        let own: Vec<usize> = (0..limbs).collect();
        Ok(Self(Arc::new(Tables {
            parameters: parameters.clone(),
            common,
            up: Lift::new(&wide, 0..limbs, limbs..primes.len()),
            division: Division::new(&wide, &own),
            back: Lift::new(&wide, limbs..primes.len(), 0..limbs),
            wide,
        })))
    }

    /// The parameters.
    pub fn parameters(&self) -> &Parameters<W> {
        &self.0.parameters
    }

    /// The common reference string.
    pub fn common(&self) -> &Common<W> {
        &self.0.common
    }

    /// Encrypts under a party's key, as with one key. Anyone can.
    ///
    /// # Errors
    /// When parameters differ.
    pub fn encrypt(
        &self,
        keys: &PublicKeys<W>,
        plain: &Plaintext<W>,
        random: &mut Stream,
    ) -> Result<Ciphertext<W>, MultiKeyError> {
        let (ring, n) = (self.common().ring(), self.parameters().n());
        self.common().same(keys.common())?;
        ring.same(plain.parameters().ring())?;
        let limbs = ring.limbs();
        let mut data = vec![W::default(); 2 * limbs * n];
        keys.encryption().add_zero(limbs, &mut data, random);
        let (mut lifted, mut scaled) = (plain.lifted(), vec![W::default(); n]);
        for (limb, b) in data[..limbs * n].chunks_exact_mut(n).enumerate() {
            Plaintext::scaled(self.parameters(), limb, &lifted, &mut scaled);
            ring.basis().ntt(limb).forward(&mut scaled);
            vector::add_assign(ring.basis().prime(limb), b, &scaled);
        }
        wipe(&mut lifted);
        wipe(&mut scaled);
        self.ciphertext(Extended::of_party(
            self.common(),
            keys.party(),
            limbs,
            data,
        )?)
    }

    /// A ciphertext of these words.
    ///
    /// # Errors
    /// When the common reference strings differ, or it lost limbs.
    pub fn ciphertext(&self, inner: Extended<W>) -> Result<Ciphertext<W>, MultiKeyError> {
        self.common().same(inner.common())?;
        let (left, right) = (inner.limbs(), self.parameters().limbs());
        if left != right {
            return Err(crate::rns::RingError::Limbs { left, right }.into());
        }
        Ok(Ciphertext {
            setting: self.clone(),
            inner,
        })
    }

    /// The variance of the noise of an encryption with a public key.
    pub fn fresh_noise(&self) -> Noise {
        Noise::of_public_encryption(self.parameters().n()) + Noise::of_plaintext()
    }

    /// The noise of a product of ciphertexts with these, relinearised: with `c_0 + ... = (Q / t) m +
    /// e + Q I`, it is `e (m' + t I') + e' (m + t I) + t e e' / Q` and a rounding of every `c_ij`.
    /// `I` is a rounding of as many polynomials as there are, and so has their variance.
    pub fn product_noise(&self, left: Noise, right: Noise, parties: usize) -> Noise {
        let (n, t, count) = (
            self.parameters().n() as f64,
            self.parameters().t() as f64,
            parties as f64,
        );
        let rounding = 1.0 / 12.0;
        let secret = TERNARY_VARIANCE * n;
        let whole = rounding * (1.0 + count * secret);
        let other = t * t * (whole + rounding);
        let log_quotient = t.log2() - self.parameters().log_modulus();
        let both = left.variance * right.variance * (2.0 * log_quotient).exp2();
        // Coefficients of `s_i^2` have twice the variance of those of `s_i s_j`.
        let pairs = count * (count - 1.0) / 2.0 + 2.0 * count;
        let roundings = rounding * (1.0 + count * secret + pairs * secret * secret);
        let limbs = self.parameters().limbs();
        let kind = super::Relinearisation::Quadratic;
        let relinearised = self.common().relinearisation_noise(limbs, parties, kind);
        Noise {
            variance: n * (other * (left.variance + right.variance) + both)
                + roundings
                + relinearised.mean / n,
        }
    }

    /// The noise that a rotation or a swap of rows adds.
    pub fn rotation_noise(&self, parties: usize) -> Noise {
        let limbs = self.parameters().limbs();
        let noise = self.common().rotation_noise(limbs, parties);
        Noise {
            variance: noise.mean / self.parameters().n() as f64,
        }
    }

    /// The polynomials of a ciphertext on all primes of products, `[poly][limb][N]` values.
    fn raise(&self, x: &Extended<W>) -> Buffer<'_, W> {
        let Tables { wide, up, .. } = &*self.0;
        let (ring, n) = (self.common().ring(), wide.n());
        let (limbs, all) = (ring.limbs(), wide.limbs());
        let mut out = ring.pool().take((x.parties().len() + 1) * all * n);
        let mut digits = ring.pool().take(limbs * n);
        for (index, out) in out.chunks_exact_mut(all * n).enumerate() {
            let (own, others) = out.split_at_mut(limbs * n);
            own.copy_from_slice(x.poly(index));
            digits.copy_from_slice(own);
            wide.inverse(&mut digits);
            up.convert(wide, &mut digits, others);
            for (limb, out) in (limbs..).zip(others.chunks_exact_mut(n)) {
                wide.ntt(limb).forward(out);
            }
        }
        out
    }

    /// `round(t x / Q)` of each polynomial, `[poly][limb][N]`, which is used up.
    fn scale(&self, x: &mut [W]) -> Buffer<'_, W> {
        let Tables {
            wide,
            up,
            division,
            back,
            parameters,
            ..
        } = &*self.0;
        let (ring, n) = (self.common().ring(), wide.n());
        let (limbs, all) = (ring.limbs(), wide.limbs());
        let mut out = ring.pool().take(x.len() / all * limbs);
        let mut quotient = ring.pool().take((all - limbs) * n);
        for (x, out) in x
            .chunks_exact_mut(all * n)
            .zip(out.chunks_exact_mut(limbs * n))
        {
            wide.inverse(x);
            for (limb, x) in x.chunks_exact_mut(n).enumerate() {
                let q = wide.prime(limb);
                vector::mul_scalar_assign(q, x, W::from_u64(parameters.t() % q.value()));
            }
            let (own, others) = x.split_at_mut(limbs * n);
            up.convert(wide, own, &mut quotient);
            let remainders = quotient.chunks_exact_mut(n).zip(others.chunks_exact(n));
            for (limb, (remainder, x)) in (limbs..).zip(remainders) {
                division.finish(wide, limb, x, None, remainder);
            }
            back.convert(wide, &mut quotient, out);
            wide.forward(out);
        }
        out
    }
}

/// No primes: an error of parameters.
fn parameters_error(error: RnsError) -> MultiKeyError {
    crate::rns::ParameterError::from(error).into()
}

/// `c_0 + c_1 s_1 + ... + c_k s_k = (Q / t) m + e` modulo `Q`.
#[derive(Clone)]
pub struct Ciphertext<W: Word> {
    setting: Setting<W>,
    inner: Extended<W>,
}

impl<W: Word> Ciphertext<W> {
    /// The extended ciphertext.
    pub fn extended(&self) -> &Extended<W> {
        &self.inner
    }

    /// The parties, in ascending order.
    pub fn parties(&self) -> &[Party] {
        self.inner.parties()
    }

    fn like(&self, inner: Extended<W>) -> Self {
        Self {
            setting: self.setting.clone(),
            inner,
        }
    }

    /// The sum, slot by slot, under the keys of both operands' parties.
    ///
    /// # Errors
    /// When common reference strings differ.
    pub fn add(&self, other: &Self) -> Result<Self, MultiKeyError> {
        Ok(self.like(self.inner.add(&other.inner)?))
    }

    /// The difference, slot by slot.
    ///
    /// # Errors
    /// When common reference strings differ.
    pub fn sub(&self, other: &Self) -> Result<Self, MultiKeyError> {
        Ok(self.like(self.inner.sub(&other.inner)?))
    }

    /// The product with a plaintext, slot by slot.
    ///
    /// # Errors
    /// When parameters differ.
    pub fn mul_plain(&self, plain: &Multiplier<W>) -> Result<Self, MultiKeyError> {
        let ring = self.setting.common().ring();
        ring.same(plain.parameters().ring())?;
        let mut inner = self.inner.clone();
        let limbs = inner.limbs();
        slices::mul_plain_assign(ring, limbs, inner.data_mut(), plain.chain());
        Ok(self.like(inner))
    }

    /// The product, slot by slot, relinearised.
    ///
    /// For `k` parties, `l` primes and `m` further ones: `2 (k + 1)` polynomials take `l + m` NTTs to
    /// be raised, `(k + 1) (k + 2) / 2` take `2 l + m` to be divided, then as with CKKS.
    ///
    /// # Errors
    /// When common reference strings differ, or a party's keys are missing.
    pub fn multiply(&self, other: &Self, keys: &KeyRing<W>) -> Result<Self, MultiKeyError> {
        let parties = self.inner.union(&other.inner)?;
        let (setting, common) = (&self.setting, self.setting.common());
        common.same(keys.common())?;
        common.same(other.setting.common())?;
        let pool = common.ring().pool();
        let square = std::ptr::eq(self, other);
        let left = setting.raise(&self.inner);
        let right = (!square).then(|| setting.raise(&other.inner));
        let right: &[W] = right.as_ref().unwrap_or(&left);
        let operands = [
            Operand {
                parties: self.inner.parties(),
                words: &left,
            },
            Operand {
                parties: other.inner.parties(),
                words: right,
            },
        ];
        let mut wide = Tensor::new(pool, &setting.0.wide, &[operands], &parties, false);
        let tensor = Tensor {
            low: setting.scale(&mut wide.low),
            high: setting.scale(&mut wide.high),
            pairs: wide.pairs,
        };
        let mut out = self.inner.room(parties.len(), 0)?;
        let limbs = self.inner.limbs();
        quadratic(limbs, 0, keys, &parties, &tensor, &mut out)?;
        Ok(self.like(Extended::from_words(common, parties, limbs, out)?))
    }

    /// Both rows turned to the left by each of `steps`; negative steps go right.
    ///
    /// # Errors
    /// When a party's keys are missing.
    pub fn rotate_many(
        &self,
        steps: &[i64],
        keys: &KeyRing<W>,
    ) -> Result<Vec<Self>, MultiKeyError> {
        let rotated = self.inner.rotate_many(steps, keys)?.into_iter();
        Ok(rotated.map(|inner| self.like(inner)).collect())
    }

    /// The rows swapped.
    ///
    /// # Errors
    /// When a party's keys are missing.
    pub fn swap_rows(&self, keys: &KeyRing<W>) -> Result<Self, MultiKeyError> {
        Ok(self.like(self.inner.conjugate(keys)?))
    }

    /// The values, for one who has all secrets: tests and checks.
    ///
    /// # Errors
    /// When a secret is missing.
    pub fn decrypt_with_all(
        &self,
        secrets: &[&SecretKey<W>],
    ) -> Result<Plaintext<W>, MultiKeyError> {
        Ok(self.plaintext(self.inner.phase(secrets)?))
    }

    /// The noise of every coefficient, for one who has all secrets: tests and checks.
    ///
    /// # Errors
    /// When a secret is missing.
    pub fn noise_with_all(&self, secrets: &[&SecretKey<W>]) -> Result<Vec<f64>, MultiKeyError> {
        let mut digits = self.digits(self.inner.phase(secrets)?);
        let noise = self.setting.parameters().noise_of_digits(&digits);
        wipe(&mut digits);
        Ok(noise)
    }

    /// The values of a distributed decryption of [`extended`](Self::extended).
    ///
    /// # Errors
    /// As [`merge`].
    pub fn merge(
        &self,
        contributions: &[Contribution<W>],
        partials: &[Partial<W>],
    ) -> Result<Plaintext<W>, MultiKeyError> {
        Ok(self.plaintext(merge(&self.inner, contributions, partials)?))
    }

    fn plaintext(&self, phase: Vec<W>) -> Plaintext<W> {
        let mut digits = self.digits(phase);
        let plain = self.setting.parameters().unscale(&digits);
        wipe(&mut digits);
        plain
    }

    /// `t` times a phase in mixed radix.
    fn digits(&self, mut phase: Vec<W>) -> Vec<W> {
        let parameters = self.setting.parameters();
        parameters.ring().basis().inverse(&mut phase);
        parameters.scale(&mut phase);
        phase
    }
}
