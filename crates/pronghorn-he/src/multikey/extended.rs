//! Extended ciphertexts: a polynomial for each party, and one more.

use std::mem;

use pronghorn_ring::{Prime, Word, vector};

use super::{
    Common, KeyRing, MAX_PARTIES, MultiKeyError, Party, SecretKey,
    gadget::{Factor, Quotients, Sums, Use},
};
use crate::rns::{self, RingError, keys::GaloisKey, slices, tasks::each};

/// `c_0 + c_1 s_1 + ... + c_k s_k` is what a scheme makes of a message, with its noise, for the
/// secrets of `k` parties in ascending order of their names.
pub struct Extended<W: Word> {
    common: Common<W>,
    parties: Vec<Party>,
    limbs: usize,
    /// `[poly][limb][N]`, in the NTT domain.
    data: Vec<W>,
}

impl<W: Word> Clone for Extended<W> {
    fn clone(&self) -> Self {
        let mut data = self.common.ring().pool().take_words(self.data.len());
        data.copy_from_slice(&self.data);
        self.like(self.limbs, data)
    }
}

impl<W: Word> Drop for Extended<W> {
    fn drop(&mut self) {
        self.common.ring().pool().give(mem::take(&mut self.data));
    }
}

impl<W: Word> Extended<W> {
    /// Of words `[poly][limb][N]` in the NTT domain, each below the prime of its limb.
    ///
    /// # Errors
    /// When there are no such limbs, no or too many parties, parties out of order, or not one
    /// polynomial more than parties.
    pub fn from_words(
        common: &Common<W>,
        parties: Vec<Party>,
        limbs: usize,
        data: Vec<W>,
    ) -> Result<Self, MultiKeyError> {
        common.ring().check_limbs(limbs)?;
        if !(1..=MAX_PARTIES).contains(&parties.len()) {
            let parties = parties.len();
            return Err(MultiKeyError::Parties { parties });
        }
        if !parties.is_sorted_by(|x, y| x < y) {
            return Err(MultiKeyError::Order);
        }
        let (words, expected) = (data.len(), (parties.len() + 1) * limbs * common.ring().n());
        if words != expected {
            return Err(MultiKeyError::Components { words, expected });
        }
        Ok(Self {
            common: common.clone(),
            parties,
            limbs,
            data,
        })
    }

    /// A ciphertext of one party, of two polynomials `[poly][limb][N]`, as encryption makes it.
    ///
    /// # Errors
    /// As [`from_words`](Self::from_words).
    pub fn of_party(
        common: &Common<W>,
        party: Party,
        limbs: usize,
        data: Vec<W>,
    ) -> Result<Self, MultiKeyError> {
        Self::from_words(common, vec![party], limbs, data)
    }

    fn like(&self, limbs: usize, data: Vec<W>) -> Self {
        Self {
            common: self.common.clone(),
            parties: self.parties.clone(),
            limbs,
            data,
        }
    }

    /// The common reference string.
    pub fn common(&self) -> &Common<W> {
        &self.common
    }

    /// The parties, in ascending order.
    pub fn parties(&self) -> &[Party] {
        &self.parties
    }

    /// Limbs: its level and one.
    pub fn limbs(&self) -> usize {
        self.limbs
    }

    /// All words, `[poly][limb][N]`.
    pub fn data(&self) -> &[W] {
        &self.data
    }

    pub(super) fn data_mut(&mut self) -> &mut [W] {
        &mut self.data
    }

    /// One polynomial, `[limb][N]`: the first, then those of the parties.
    ///
    /// # Panics
    /// When there is no such polynomial.
    pub fn poly(&self, index: usize) -> &[W] {
        let words = self.poly_words();
        &self.data[index * words..][..words]
    }

    /// The polynomial of a party, if it has one.
    pub fn part(&self, party: Party) -> Option<&[W]> {
        let index = self.parties.binary_search(&party).ok()?;
        Some(self.poly(index + 1))
    }

    fn poly_words(&self) -> usize {
        self.limbs * self.common.ring().n()
    }

    /// The parties of both, in order.
    pub(super) fn union(&self, other: &Self) -> Result<Vec<Party>, MultiKeyError> {
        self.common.same(&other.common)?;
        let (left, right) = (self.limbs, other.limbs);
        if left != right {
            return Err(RingError::Limbs { left, right }.into());
        }
        let mut parties = [self.parties(), other.parties()].concat();
        parties.sort_unstable();
        parties.dedup();
        if parties.len() > MAX_PARTIES {
            let parties = parties.len();
            return Err(MultiKeyError::Parties { parties });
        }
        Ok(parties)
    }

    /// The sum, under the keys of both operands' parties.
    ///
    /// # Errors
    /// When common reference strings or limbs differ, or there are too many parties.
    pub fn add(&self, other: &Self) -> Result<Self, MultiKeyError> {
        self.joined(Some(other), self.union(other)?, vector::add_assign)
    }

    /// The difference, under the keys of both operands' parties.
    ///
    /// # Errors
    /// As [`add`](Self::add).
    pub fn sub(&self, other: &Self) -> Result<Self, MultiKeyError> {
        self.joined(Some(other), self.union(other)?, vector::sub_assign)
    }

    /// The same value under the keys of these parties, too.
    ///
    /// # Errors
    /// When these are too many, or out of order, or one that it has is not among them.
    pub fn extended_to(&self, parties: &[Party]) -> Result<Self, MultiKeyError> {
        if let Some(&party) = self.parties.iter().find(|party| !parties.contains(party)) {
            return Err(MultiKeyError::NotAParty { party });
        }
        self.joined(None, parties.to_vec(), vector::add_assign)
    }

    /// Under the keys of these parties, with `apply` for another value. Zero stands for the
    /// polynomials of parties that one of them lacks.
    fn joined(
        &self,
        other: Option<&Self>,
        parties: Vec<Party>,
        apply: impl Fn(&Prime<W>, &mut [W], &[W]) + Sync,
    ) -> Result<Self, MultiKeyError> {
        let (ring, limbs, n) = (self.common.ring(), self.limbs, self.common.ring().n());
        let mut data = self.room(parties.len(), 0)?;
        let tasks = data.chunks_exact_mut(n).enumerate().collect();
        each(n, tasks, |(index, out)| {
            let (poly, limb) = (index / limbs, index % limbs);
            let [x, y] = [Some(self), other].map(|value| {
                let poly = match poly {
                    0 => value?.poly(0),
                    _ => value?.part(parties[poly - 1])?,
                };
                Some(&poly[limb * n..][..n])
            });
            match x {
                Some(x) => out.copy_from_slice(x),
                None => out.fill(W::default()),
            }
            if let Some(y) = y {
                apply(ring.basis().prime(limb), out, y);
            }
        });
        Self::from_words(&self.common, parties, limbs, data)
    }

    /// The negation.
    #[must_use]
    pub fn neg(&self) -> Self {
        let mut negation = self.clone();
        slices::neg_assign(self.common.ring(), self.limbs, &mut negation.data);
        negation
    }

    /// Divides by the last `dropped` primes with one rounding to the nearest.
    ///
    /// # Errors
    /// When no limb would be left.
    pub fn rescale(&self, dropped: usize) -> Result<Self, MultiKeyError> {
        let mut data = self.room(self.parties.len(), dropped)?;
        slices::rescale(
            self.common.ring(),
            self.limbs,
            dropped,
            &self.data,
            &mut data,
        );
        Ok(self.like(self.limbs - dropped, data))
    }

    /// Forgets the last `dropped` limbs: the same numbers modulo a smaller modulus.
    ///
    /// # Errors
    /// When no limb would be left.
    pub fn drop_limbs(&self, dropped: usize) -> Result<Self, MultiKeyError> {
        let mut data = self.room(self.parties.len(), dropped)?;
        let kept = self.limbs - dropped;
        slices::drop_limbs(self.common.ring(), self.limbs, kept, &self.data, &mut data);
        Ok(self.like(kept, data))
    }

    /// All of these rotations, `X -> X^(5^steps)`: each polynomial is switched back with its
    /// owner's key (ePrint 2019/524, section 5.1). Raising the digits is done once for all of them.
    /// Linear in the number of parties: `k` polynomials are raised, `k + 1` divided.
    ///
    /// # Errors
    /// When a party's keys are missing.
    pub fn rotate_many(
        &self,
        steps: &[i64],
        keys: &KeyRing<W>,
    ) -> Result<Vec<Self>, MultiKeyError> {
        let of_steps = |&steps: &i64| {
            let of_party = |&party: &Party| Ok(keys.get(party)?.own.rotation(steps)?);
            let galois = self.parties.iter().map(of_party);
            // All or none: a rotation by zero has no keys.
            let galois = galois.collect::<Result<Option<Vec<_>>, MultiKeyError>>()?;
            Ok(galois)
        };
        let galois = steps
            .iter()
            .map(of_steps)
            .collect::<Result<Vec<_>, MultiKeyError>>()?;
        let moving: Vec<_> = galois.iter().flatten().collect();
        let mut moved = self.apply(&moving, keys)?.into_iter();
        let rotated = galois
            .iter()
            .map(|galois| galois.as_ref().and_then(|_| moved.next()));
        Ok(rotated
            .map(|rotated| rotated.unwrap_or_else(|| self.clone()))
            .collect())
    }

    /// The image under `X -> X^-1`.
    ///
    /// # Errors
    /// When a party's keys are missing.
    pub fn conjugate(&self, keys: &KeyRing<W>) -> Result<Self, MultiKeyError> {
        let of_party = |&party: &Party| Ok(keys.get(party)?.own.conjugation()?);
        let galois = self.parties.iter().map(of_party);
        let galois = galois.collect::<Result<Vec<_>, MultiKeyError>>()?;
        let mut conjugate = self.apply(&[&galois], keys)?;
        Ok(conjugate.swap_remove(0))
    }

    /// Images under automorphisms, each with a key of every party.
    fn apply(
        &self,
        galois: &[&Vec<&GaloisKey<W>>],
        keys: &KeyRing<W>,
    ) -> Result<Vec<Self>, MultiKeyError> {
        self.common.same(keys.common())?;
        if galois.is_empty() {
            return Ok(Vec::new());
        }
        let (ring, n, polys) = (
            self.common.ring(),
            self.common.ring().n(),
            self.parties.len() + 1,
        );
        let factor = |index: usize| Factor {
            poly: self.poly(index + 1),
            uses: (galois.iter().enumerate())
                .map(|(image, galois)| Use {
                    keys: galois[index].key.halves(),
                    sums: [image * polys, image * polys + index + 1],
                })
                .collect(),
        };
        let factors: Vec<_> = (0..polys - 1).map(factor).collect();
        let first = std::iter::once(Some(self.poly(0)));
        let low: Vec<_> = first.chain(vec![None; polys - 1]).collect();
        let quotients = Quotients {
            first: 0,
            dropped: 0,
            low: &low.repeat(galois.len()),
        };
        let words = polys * self.poly_words();
        let mut switched = ring.pool().take(galois.len() * words);
        let mut sums = Sums::new(ring, self.limbs, galois.len() * polys);
        sums.add_and_divide(&factors, &quotients, &mut switched);
        let images = galois.iter().zip(switched.chunks_exact(words));
        let images = images.map(|(galois, switched)| {
            let mut data = ring.pool().take_words(words);
            let limbs = switched.chunks_exact(n).zip(data.chunks_exact_mut(n));
            each(n, limbs.collect(), |(x, out)| {
                galois[0].automorphism.apply(x, out);
            });
            self.like(self.limbs, data)
        });
        Ok(images.collect())
    }

    /// The phase `c_0 + c_1 s_1 + ... + c_k s_k`, `[limb][N]`, for one who has all secrets: tests
    /// and checks. The caller wipes it.
    ///
    /// # Errors
    /// When a secret is missing.
    pub fn phase(&self, secrets: &[&SecretKey<W>]) -> Result<Vec<W>, MultiKeyError> {
        let (ring, n) = (self.common.ring(), self.common.ring().n());
        let mut phase = self.poly(0).to_vec();
        let mut product = vec![W::default(); n];
        for &party in &self.parties {
            let secret = secrets.iter().find(|secret| secret.party() == party);
            let secret = secret.ok_or(MultiKeyError::NoKeys { party })?;
            let part = self.part(party).unwrap_or_default();
            for (limb, (x, phase)) in part
                .chunks_exact(n)
                .zip(phase.chunks_exact_mut(n))
                .enumerate()
            {
                secret.secret().multiply(limb, x, &mut product);
                vector::add_assign(ring.basis().prime(limb), phase, &product);
            }
        }
        crate::wipe::wipe(&mut product);
        Ok(phase)
    }

    /// Words for `parties` and what is left of the limbs.
    pub(super) fn room(&self, parties: usize, dropped: usize) -> Result<Vec<W>, MultiKeyError> {
        let limbs = self.limbs;
        if dropped >= limbs {
            return Err(RingError::TooFewLimbs { limbs, dropped }.into());
        }
        let ring = self.common.ring();
        let words = (parties + 1) * (limbs - dropped) * ring.n();
        Ok(ring.pool().take_words(words))
    }

    /// A ciphertext of one party from a ring's, of two polynomials.
    ///
    /// # Errors
    /// As [`from_words`](Self::from_words), and when parameters differ.
    pub fn of_ciphertext(
        common: &Common<W>,
        party: Party,
        ciphertext: rns::Ciphertext<W>,
    ) -> Result<Self, MultiKeyError> {
        common.ring().same(ciphertext.parameters())?;
        let limbs = ciphertext.limbs();
        Self::of_party(common, party, limbs, ciphertext.into_words())
    }
}
