//! Distributed decryption that tells the result and nothing else.
//!
//! In three rounds:
//! 1. [`Decryptor::contribute`]: each party makes a fresh encryption of zero under the keys of all
//!    parties of a result.
//! 2. [`Decryptor::decrypt`]: each party adds all contributions to the result, checks that its own
//!    is among them, and publishes `c_i s_i` plus a flood, once a result.
//! 3. [`merge`]: anyone adds these to `c_0`.
//!
//! # What the parties protect, and against whom
//!
//! * **The noise** of a result depends on everything that was encrypted and on the secrets; with
//!   CKKS it is part of the result (B. Li, D. Micciancio, EUROCRYPT 2021), and `c_i s_i` alone
//!   gives `s_i`. Each party adds a [flood](crate::flood) to each coefficient: then its message is
//!   near one made from the result, the ciphertext and the others' secrets. [`Rule::new`] takes
//!   floods so large that the statistical distance of all results of a key is below `2^-LAMBDA`.
//! * **Inputs**, where a result is a sum of fresh ciphertexts: its `c_i` is that of a party's
//!   input, so who has that input's `c_0` (the evaluator) adds it to `c_i s_i` and reads the input
//!   (arXiv 2506.20101). A flood does not stop that. The contributions change every
//!   `c_i` by a mask `a v + e`, and every share by `b_i v`, of which only the sum over all parties
//!   is known. A party's own contribution suffices for it if the others' are encryptions of zero
//!   made without regard to it, so each party makes one, and checks that it is used.
//! * **Averaging**: two partial decryptions of one result have independent floods. The [`Ledger`]
//!   refuses a second one, also after a restart. A related result (with a known difference) is
//!   another one: the budget of results counts it.
//!
//! Parties of these three rounds are semi-honest. Nothing shows that a contribution is an encryption
//! of zero. A party that contributes anything else chooses what the others decrypt: an input, or
//! their secrets. It need not see their contributions first, so commitments alone would not stop it
//! (`attacks.rs`). Proofs that each party knows the randomness of its own would. Where one of two
//! parties alone learns the result, [`Decryptor::answer`] takes no contribution of that party. A
//! party that publishes a wrong partial decryption spoils the result, and nobody notices. An
//! evaluator that asks for something else than it should gets that decrypted: the parties must know
//! what they decrypt, in an answer too.

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
};

use pronghorn_ring::{
    Word,
    random::{Prg, Seed, Stream},
    rns::Integers,
    vector,
};

use super::{Common, EncryptionKeys, Extended, MultiKeyError, Party, SecretKey};
use crate::{flood, rns::slices, wipe::wipe};

/// Statistical security of all partial decryptions of a key together, in bits.
pub const LAMBDA: u32 = 40;

/// The results that parties agree to decrypt.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Limits {
    /// Limbs of every result.
    pub limbs: usize,
    /// Most parties of a result.
    pub parties: usize,
    /// `log2` of the largest coefficient of a result's message, its scale included.
    pub log_message: f64,
    /// `log2` of a bound on every coefficient of a result's noise.
    pub log_noise: f64,
    /// `log2` of a bound on the expected sum of the squares of the noise's coefficients, where one
    /// is known. Otherwise it is that of `N` coefficients of `log_noise`. Floods need no more than
    /// that sum ([`flood`](crate::flood), equation 2).
    pub log_power: Option<f64>,
    /// Most results of a key.
    pub results: u64,
}

/// [`Limits`] with the flood that they ask for. A cheap handle.
#[derive(Clone)]
pub struct Rule<W: Word> {
    common: Common<W>,
    limits: Limits,
    log_flood: u32,
}

impl<W: Word> Rule<W> {
    /// The rule of these limits: `2^log_flood >= 2^LAMBDA sqrt(FISHER results) (e + z)`, `e^2` and
    /// `z^2` being the expected sums of the squares of the coefficients of the noise and of the
    /// contributions' noise.
    ///
    /// # Errors
    /// When the floods of all parties, the message and its noise do not fit half of the modulus, or
    /// a limit has no meaning.
    pub fn new(common: &Common<W>, limits: Limits) -> Result<Self, MultiKeyError> {
        let ring = common.ring();
        ring.check_limbs(limits.limbs)?;
        let parties = limits.parties;
        if !(1..=super::MAX_PARTIES).contains(&parties) {
            return Err(MultiKeyError::Parties { parties });
        }
        let numbers = [
            ("log_message", limits.log_message),
            ("log_noise", limits.log_noise),
            ("log_power", limits.log_power.unwrap_or_default()),
            ("results - 1", limits.results as f64 - 1.0),
        ];
        if let Some(&(field, found)) = numbers.iter().find(|(_, x)| !x.is_finite() || *x < 0.0) {
            return Err(MultiKeyError::Rule { field, found });
        }
        let zeros = common.zeros(parties);
        let hidden = limits.log_noise.exp2() + zeros.coefficient_bound(ring.n());
        let every = 2.0 * limits.log_noise + (ring.n() as f64).log2();
        let power = limits.log_power.unwrap_or(every).exp2().sqrt() + zeros.mean.sqrt();
        let log_flood = flood::log_reach(limits.results as f64 * power * power, LAMBDA);
        let total = parties as f64 * f64::from(log_flood).exp2() + hidden;
        let largest = (total + limits.log_message.exp2()).log2();
        let log_modulus = ring.log_modulus(limits.limbs);
        // Not so for infinite sums.
        if largest < log_modulus - 1.0 {
            let (common, limits) = (common.clone(), limits);
            return Ok(Self {
                common,
                limits,
                log_flood,
            });
        }
        Err(MultiKeyError::NoRoom {
            parties,
            log_flood,
            log_message: limits.log_message,
            log_modulus,
        })
    }

    /// The limits.
    pub fn limits(&self) -> Limits {
        self.limits
    }

    /// `log2` of the reach of each party's flood.
    pub fn log_flood(&self) -> u32 {
        self.log_flood
    }

    /// `log2` of a bound on the error of every coefficient of a merged result: all floods, and the
    /// noise there was.
    pub fn log_error(&self) -> f64 {
        let floods = self.limits.parties as f64 * f64::from(self.log_flood).exp2();
        let zeros = self.common.zeros(self.limits.parties);
        let zeros = zeros.coefficient_bound(self.common.ring().n());
        let hidden = self.limits.log_noise.exp2() + zeros;
        (floods + hidden).log2()
    }

    /// BLAKE3 of everything: what a ledger carries.
    pub(super) fn hash(&self) -> [u8; 32] {
        let Limits {
            limbs,
            parties,
            log_message,
            log_noise,
            log_power,
            results,
        } = self.limits;
        let log_power = log_power.unwrap_or(f64::INFINITY);
        let mut hasher = blake3::Hasher::new_derive_key("pronghorn 2026 multi-key rule");
        hasher.update(self.common.id());
        let numbers = [limbs as u64, parties as u64, results];
        for number in numbers
            .into_iter()
            .chain([log_message, log_noise, log_power].map(f64::to_bits))
        {
            hasher.update(&number.to_le_bytes());
        }
        *hasher.finalize().as_bytes()
    }

    /// Refuses results that the limits do not allow.
    fn check(&self, result: &Extended<W>) -> Result<(), MultiKeyError> {
        self.common.same(result.common())?;
        let Limits { limbs, parties, .. } = self.limits;
        if result.limbs() != limbs {
            return Err(MultiKeyError::Result {
                field: "limbs",
                found: result.limbs(),
                expected: limbs,
            });
        }
        if result.parties().len() > parties {
            return Err(MultiKeyError::Result {
                field: "parties",
                found: result.parties().len(),
                expected: parties,
            });
        }
        Ok(())
    }
}

/// A party's encryption of zero under all keys of a result.
#[derive(Clone)]
pub struct Contribution<W: Word> {
    pub(super) party: Party,
    /// The digest of the result.
    pub(super) result: [u8; 32],
    pub(super) zero: Extended<W>,
}

impl<W: Word> Contribution<W> {
    /// Who made it.
    pub fn party(&self) -> Party {
        self.party
    }

    fn digest(&self) -> [u8; 32] {
        let mut bytes = Vec::new();
        self.encode(&mut bytes);
        *blake3::hash(&bytes).as_bytes()
    }
}

/// A party's partial decryption of a re-randomised result.
#[derive(Clone)]
pub struct Partial<W: Word> {
    pub(super) common: Common<W>,
    pub(super) party: Party,
    /// The digest of result and contributions.
    pub(super) session: [u8; 32],
    /// `c_i s_i` and the flood, `[limb][N]` in the NTT domain.
    pub(super) share: Vec<W>,
}

impl<W: Word> Partial<W> {
    /// Who made it.
    pub fn party(&self) -> Party {
        self.party
    }
}

/// What a party gave. Small: 64 bytes a result in progress, 32 a result that was given.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Ledger {
    /// By digest of the result, that of this party's latest contribution.
    pub(super) offered: BTreeMap<[u8; 32], [u8; 32]>,
    /// Digests of the results that were decrypted.
    pub(super) given: BTreeSet<[u8; 32]>,
}

/// A party's part in decryptions: its secret, the rule, and what it gave.
pub struct Decryptor<W: Word> {
    pub(super) secret: SecretKey<W>,
    pub(super) rule: Rule<W>,
    pub(super) ledger: Ledger,
}

impl<W: Word> Decryptor<W> {
    /// Of a key that never decrypted anything. For one that did, [`resume`](Self::resume).
    ///
    /// # Errors
    /// When the rule is of another common reference string.
    pub fn new(secret: SecretKey<W>, rule: &Rule<W>) -> Result<Self, MultiKeyError> {
        secret.common().same(&rule.common)?;
        Ok(Self {
            secret,
            rule: rule.clone(),
            ledger: Ledger::default(),
        })
    }

    /// This party.
    pub fn party(&self) -> Party {
        self.secret.party()
    }

    /// Results that may still be decrypted.
    pub fn results_left(&self) -> u64 {
        self.rule.limits.results - self.ledger.given.len() as u64
    }

    /// Counts what another one with this key gave as given here, too.
    ///
    /// # Errors
    /// When it has another key or rule, or both gave more results than the rule allows.
    pub fn absorb(&mut self, other: &Self) -> Result<(), MultiKeyError> {
        if self.party() != other.party() || self.rule.hash() != other.rule.hash() {
            return Err(MultiKeyError::Ledger);
        }
        let given = self.ledger.given.union(&other.ledger.given).copied();
        let given: BTreeSet<[u8; 32]> = given.collect();
        let results = self.rule.limits.results;
        if given.len() as u64 > results {
            return Err(MultiKeyError::Budget { results });
        }
        self.ledger
            .offered
            .retain(|result, _| !given.contains(result));
        self.ledger.given = given;
        Ok(())
    }

    /// A fresh encryption of zero under all keys of a result. A second request gets another one,
    /// and only the latest is then accepted. `keys` are those of all parties. Costs `3 k` NTTs a
    /// limb.
    ///
    /// # Errors
    /// When the result is not what the rule says, was given before, or a key is missing.
    pub fn contribute(
        &mut self,
        result: &Extended<W>,
        keys: &impl EncryptionKeys<W>,
    ) -> Result<Contribution<W>, MultiKeyError> {
        self.rule.check(result)?;
        let party = self.party();
        if result.part(party).is_none() {
            return Err(MultiKeyError::NotAParty { party });
        }
        let digest = result.digest();
        self.check_budget(&digest)?;
        let open = self.ledger.offered.len() as u64;
        if open >= self.results_left() && !self.ledger.offered.contains_key(&digest) {
            let results = self.rule.limits.results;
            return Err(MultiKeyError::Budget { results });
        }
        let random = &mut fresh_stream()?;
        let contribution = Contribution {
            party,
            result: digest,
            zero: zero(result, keys, random)?,
        };
        let offered = contribution.digest();
        self.ledger.offered.insert(digest, offered);
        Ok(contribution)
    }

    /// `c_i s_i` plus a flood, of the result with all contributions. `persist` must keep the
    /// [ledger](Self::ledger) it is given, where [`resume`](Self::resume) will find it, before it
    /// returns: nothing leaves before that. If it fails the result counts as given.
    ///
    /// # Errors
    /// When the result is not what the rule says, was given before or not contributed to, a
    /// contribution is missing or another, the budget is used up, or the ledger was not kept.
    pub fn decrypt(
        &mut self,
        result: &Extended<W>,
        contributions: &[Contribution<W>],
        persist: impl FnOnce(&[u8]) -> io::Result<()>,
    ) -> Result<Partial<W>, MultiKeyError> {
        self.rule.check(result)?;
        let (party, digest) = (self.party(), result.digest());
        self.check_budget(&digest)?;
        let offered = self.ledger.offered.get(&digest);
        let offered = offered.ok_or(MultiKeyError::NotOffered)?;
        let (fresh, session) = rerandomised(result, contributions)?;
        let own = contributions.iter().find(|other| other.party == party);
        if own.is_none_or(|own| own.digest() != *offered) {
            return Err(MultiKeyError::Contribution { party });
        }
        self.give(&fresh, session, digest, persist)
    }

    /// This party's contribution and partial decryption in one, for a result that another party
    /// alone learns ([`complete`](Self::complete)). Nobody else contributes: who could would choose
    /// what is decrypted, and read `s_i` off the share. `persist` as in [`decrypt`](Self::decrypt).
    ///
    /// # Errors
    /// When the result is not what the rule says or was given before, a key is missing, the budget
    /// is used up, or the ledger was not kept.
    pub fn answer(
        &mut self,
        result: &Extended<W>,
        keys: &impl EncryptionKeys<W>,
        persist: impl FnOnce(&[u8]) -> io::Result<()>,
    ) -> Result<(Contribution<W>, Partial<W>), MultiKeyError> {
        self.rule.check(result)?;
        let (party, digest) = (self.party(), result.digest());
        if result.part(party).is_none() {
            return Err(MultiKeyError::NotAParty { party });
        }
        self.check_budget(&digest)?;
        let contribution = Contribution {
            party,
            result: digest,
            zero: zero(result, keys, &mut fresh_stream()?)?,
        };
        let (fresh, session) = with_contributions(result, &[&contribution])?;
        let partial = self.give(&fresh, session, digest, persist)?;
        Ok((contribution, partial))
    }

    /// The phase of a result of two parties, `[limb][N]` in the NTT domain, from the other party's
    /// [`answer`](Self::answer). This party's share stays here.
    ///
    /// # Errors
    /// When the result is not what the rule says or was completed before, or the answer is of
    /// another result or party.
    pub fn complete(
        &mut self,
        result: &Extended<W>,
        contribution: &Contribution<W>,
        partial: Partial<W>,
    ) -> Result<Vec<W>, MultiKeyError> {
        self.rule.check(result)?;
        let digest = result.digest();
        self.check_budget(&digest)?;
        if contribution.party != partial.party || contribution.party == self.party() {
            let party = contribution.party;
            return Err(MultiKeyError::Contribution { party });
        }
        let (fresh, session) = with_contributions(result, &[contribution])?;
        if partial.session != session {
            let party = partial.party;
            return Err(MultiKeyError::Partial { party });
        }
        let own = self.give(&fresh, session, digest, |_| Ok(()))?;
        sum_of(&fresh, session, &[own, partial])
    }

    /// `c_i s_i` plus a flood, of a re-randomised result, once.
    fn give(
        &mut self,
        fresh: &Extended<W>,
        session: [u8; 32],
        digest: [u8; 32],
        persist: impl FnOnce(&[u8]) -> io::Result<()>,
    ) -> Result<Partial<W>, MultiKeyError> {
        let party = self.party();
        let part = fresh
            .part(party)
            .ok_or(MultiKeyError::NotAParty { party })?;
        let random = &mut fresh_stream()?;
        self.ledger.offered.remove(&digest);
        self.ledger.given.insert(digest);
        persist(&self.ledger()).map_err(MultiKeyError::Persist)?;
        let ring = self.rule.common.ring();
        let log_flood = self.rule.log_flood;
        let flood = Integers::sums_of_uniforms(ring.basis(), log_flood, ring.n(), random);
        Ok(Partial {
            common: self.rule.common.clone(),
            party,
            session,
            share: share(&self.secret, part, Some(&flood)),
        })
    }

    /// Takes back the contribution to a result that is not decrypted after all, so that it does not
    /// count against the budget. Without another contribution the result is not decrypted.
    pub fn withdraw(&mut self, result: &Extended<W>) {
        self.ledger.offered.remove(&result.digest());
    }

    /// Refuses results that were given, and more than the rule allows.
    fn check_budget(&self, digest: &[u8; 32]) -> Result<(), MultiKeyError> {
        if self.ledger.given.contains(digest) {
            return Err(MultiKeyError::Given);
        }
        if self.results_left() == 0 {
            let results = self.rule.limits.results;
            return Err(MultiKeyError::Budget { results });
        }
        Ok(())
    }
}

pub(super) fn fresh_stream() -> Result<Stream, MultiKeyError> {
    let seed = Seed::from_os()?;
    Ok(Prg::new(&seed, "pronghorn 2026 multi-key decryption").stream(0))
}

/// The result with a fresh encryption of zero under the keys of all its parties.
pub(super) fn rerandomise<W: Word>(
    result: &Extended<W>,
    keys: &impl EncryptionKeys<W>,
) -> Result<Extended<W>, MultiKeyError> {
    result.add(&zero(result, keys, &mut fresh_stream()?)?)
}

/// A fresh encryption of zero under all keys of a result.
fn zero<W: Word>(
    result: &Extended<W>,
    keys: &impl EncryptionKeys<W>,
    random: &mut Stream,
) -> Result<Extended<W>, MultiKeyError> {
    let (common, limbs) = (result.common(), result.limbs());
    let (ring, words) = (common.ring(), limbs * common.ring().n());
    let parties = result.parties().iter();
    let keys = parties.map(|&party| keys.encryption_key(party));
    let keys = keys.collect::<Result<Vec<_>, _>>()?;
    let mut data = vec![W::default(); (keys.len() + 1) * words];
    let mut one = vec![W::default(); 2 * words];
    let (first, parts) = data.split_at_mut(words);
    for (keys, part) in keys.into_iter().zip(parts.chunks_exact_mut(words)) {
        keys.check_limbs(limbs)?;
        one.fill(W::default());
        keys.add_zero(limbs, &mut one, random);
        slices::add_assign(ring, limbs, first, &one[..words]);
        part.copy_from_slice(&one[words..]);
    }
    // Summands of the first polynomial would tell what the sum hides.
    wipe(&mut one);
    Extended::from_words(common, result.parties().to_vec(), limbs, data)
}

/// `c_i s_i`, and a flood.
pub(super) fn share<W: Word>(
    secret: &SecretKey<W>,
    part: &[W],
    flood: Option<&Integers<W>>,
) -> Vec<W> {
    let (ring, n) = (secret.common().ring(), secret.common().ring().n());
    let (mut noise, mut room) = (vec![W::default(); n], vec![W::default(); n]);
    let mut share = vec![W::default(); part.len()];
    for (limb, (part, share)) in part
        .chunks_exact(n)
        .zip(share.chunks_exact_mut(n))
        .enumerate()
    {
        secret.secret().multiply(limb, part, share);
        if let Some(flood) = flood {
            let q = ring.basis().prime(limb);
            flood.residues(q, &mut noise, &mut room);
            ring.basis().ntt(limb).forward(&mut noise);
            vector::add_assign(q, share, &noise);
        }
    }
    wipe(&mut noise);
    wipe(&mut room);
    share
}

/// The result with the contributions of all its parties, and the digest of all.
fn rerandomised<W: Word>(
    result: &Extended<W>,
    contributions: &[Contribution<W>],
) -> Result<(Extended<W>, [u8; 32]), MultiKeyError> {
    let of_parties = result.parties().iter().map(|&party| {
        let mut of_party = contributions.iter().filter(|other| other.party == party);
        match (of_party.next(), of_party.next()) {
            (Some(one), None) => Ok(one),
            _ => Err(MultiKeyError::Contribution { party }),
        }
    });
    with_contributions(result, &of_parties.collect::<Result<Vec<_>, _>>()?)
}

/// The result with these contributions, and the digest of all.
fn with_contributions<W: Word>(
    result: &Extended<W>,
    contributions: &[&Contribution<W>],
) -> Result<(Extended<W>, [u8; 32]), MultiKeyError> {
    let digest = result.digest();
    let mut hasher = blake3::Hasher::new_derive_key("pronghorn 2026 multi-key session");
    hasher.update(&digest);
    let mut sum = result.clone();
    for one in contributions {
        let fits = one.result == digest
            && one.zero.parties() == result.parties()
            && one.zero.limbs() == result.limbs();
        if !fits {
            let party = one.party;
            return Err(MultiKeyError::Contribution { party });
        }
        hasher.update(&one.digest());
        sum = sum.add(&one.zero)?;
    }
    Ok((sum, *hasher.finalize().as_bytes()))
}

/// The phase of a result, `[limb][N]` in the NTT domain: what a scheme decodes.
///
/// # Errors
/// When a contribution or a partial decryption is missing, there twice, or of another result.
pub fn merge<W: Word>(
    result: &Extended<W>,
    contributions: &[Contribution<W>],
    partials: &[Partial<W>],
) -> Result<Vec<W>, MultiKeyError> {
    let (fresh, session) = rerandomised(result, contributions)?;
    sum_of(&fresh, session, partials)
}

/// The first polynomial and all shares.
fn sum_of<W: Word>(
    fresh: &Extended<W>,
    session: [u8; 32],
    partials: &[Partial<W>],
) -> Result<Vec<W>, MultiKeyError> {
    let mut phase = fresh.poly(0).to_vec();
    for &party in fresh.parties() {
        let missing = MultiKeyError::Partial { party };
        let mut of_party = partials.iter().filter(|other| other.party == party);
        let (Some(partial), None) = (of_party.next(), of_party.next()) else {
            return Err(missing);
        };
        if partial.session != session || partial.share.len() != phase.len() {
            return Err(missing);
        }
        let ring = fresh.common().ring();
        slices::add_assign(ring, fresh.limbs(), &mut phase, &partial.share);
    }
    Ok(phase)
}
