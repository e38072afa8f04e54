//! Keys of a party.

use std::collections::BTreeMap;

use pronghorn_ring::{
    Word,
    random::{Prg, RandomError, Seed, Stream},
    vector,
};
use zeroize::Zeroize;

use super::{Common, MultiKeyError, PairKey, Party, common::Reference};
use crate::{
    rns::{
        self, Encryptor, EvaluationKeys, expand_uniform, keys::encrypt_gadget, secret::Secret,
        uniform_generator, wire::pack, zero::encrypt_zero,
    },
    wipe::wipe,
};

/// A party's secrets: `s`, `r` and the seed that both and all errors under the common reference
/// string follow from. Wiped on drop.
///
/// The errors must follow from the seed: two keys `e - a s` and `e' - a s` with one `a` would give
/// `e - e'` away. So a party keeps its seed, and makes the same keys from it again.
pub struct SecretKey<W: Word> {
    common: Common<W>,
    seed: Seed,
    key: rns::SecretKey<W>,
    encryption: rns::PublicKey<W>,
    party: Party,
}

/// The keys beside the encryption key that a party makes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Choice<'a> {
    /// Rotations to the left.
    pub steps: &'a [i64],
    /// Complex conjugation (CKKS) or the swap of rows (BFV).
    pub conjugation: bool,
    /// The linear relinearisation too, which takes two more vectors of a polynomial a limb.
    pub linear: bool,
    /// No keys for products with another party's secret: those take a [`PairKey`] of that party's.
    pub without_pairs: bool,
}

/// Everything that others need of a party: `b = e - a s` to encrypt under its key, `(b, D)` of
/// ePrint 2019/524, section 3.3 (there `Setup`, `MKHE.KeyGen` and `UniEnc`), and keys for rotations
/// (section 5.1).
///
/// With the gadget `g` (`P` in the limbs of a digit, zero in the others), modulo all primes:
/// * `b = e - a s`, `a` being common;
/// * `d_0 = e' - d_1 s + r g`, `d_1` from a seed of the party's own;
/// * `d_2 = e'' + r a + s g`.
///
/// Beside these a key from `s^2` to `s`, as with one party: it takes squares of one secret with
/// half the work, which the paper does not use. All in the NTT domain, `[digit][limb][N]`.
///
/// The encryption key has the special primes too, for [`PairKey`]s.
pub struct PublicKeys<W: Word> {
    pub(super) common: Common<W>,
    pub(super) party: Party,
    pub(super) encryption: rns::PublicKey<W>,
    pub(super) pairwise: Option<Pairwise<W>>,
    pub(super) linear: Option<LinearKeys<W>>,
    /// `s^2`, rotations, conjugation.
    pub(super) own: EvaluationKeys<W>,
}

/// `(b, D)`.
pub(super) struct Pairwise<W: Word> {
    /// The seed of `d_1`.
    pub seed: [u8; 32],
    pub b: Vec<W>,
    pub d0: Vec<W>,
    pub d1: Vec<W>,
    pub d2: Vec<W>,
}

/// `b` and `d_2` for digits of one limb each.
pub(super) struct LinearKeys<W: Word> {
    pub b: Vec<W>,
    pub d2: Vec<W>,
}

/// Streams of a party's seed.
#[derive(Clone, Copy)]
enum Errors {
    Encryption,
    B,
    D0,
    D2,
    LinearB,
    LinearD2,
}

const ERRORS: &str = "pronghorn 2026 multi-key errors";

impl<W: Word> SecretKey<W> {
    /// The secrets that follow from `seed`, which the party takes fresh from the system, and keeps.
    ///
    /// They follow from the common reference string too: one secret with one error under two `a`
    /// would be an equation without noise.
    pub fn generate(common: &Common<W>, seed: &Seed) -> Self {
        let ring = common.ring();
        let seed = of_reference(seed, common);
        let key = rns::SecretKey::generate(ring, &derived(&seed, "pronghorn 2026 multi-key s"));
        let errors = &mut Prg::new(&seed, ERRORS).stream(Errors::Encryption as u64);
        let uniform = uniform_generator(common.seed());
        let number = Reference::Encryption.number();
        let all = 0..ring.basis().limbs();
        let b = encrypt_zero(key.secret(), all, &uniform, number, errors);
        let encryption = rns::PublicKey::from_parts(ring, *common.seed(), b);
        Self {
            party: name(common, &encryption),
            common: common.clone(),
            seed,
            key,
            encryption,
        }
    }

    /// The common reference string.
    pub fn common(&self) -> &Common<W> {
        &self.common
    }

    /// The name of its owner.
    pub fn party(&self) -> Party {
        self.party
    }

    /// The key that others encrypt with.
    pub fn encryption(&self) -> &rns::PublicKey<W> {
        &self.encryption
    }

    /// An encryptor under the secret, with `a` from a seed of its own: half of the bytes of an
    /// encryption with the public key.
    ///
    /// # Errors
    /// When the system has no randomness.
    pub fn encryptor(&self) -> Result<Encryptor<W>, RandomError> {
        self.key.encryptor()
    }

    /// The public keys, with fresh keys for rotations.
    ///
    /// # Errors
    /// When the system has no randomness.
    pub fn public_keys(&self, choice: Choice<'_>) -> Result<PublicKeys<W>, MultiKeyError> {
        self.public_keys_from_seed(choice, &Seed::from_os()?)
    }

    /// [`public_keys`](Self::public_keys) with the randomness of the keys for rotations from a
    /// secret seed that nothing else uses, for reproducible tests.
    ///
    /// # Errors
    /// When there are no such parameters.
    pub fn public_keys_from_seed(
        &self,
        choice: Choice<'_>,
        seed: &Seed,
    ) -> Result<PublicKeys<W>, MultiKeyError> {
        let common = &self.common;
        let pairwise = (!choice.without_pairs).then(|| self.pairwise());
        let linear = choice.linear.then(|| self.linear()).transpose()?;
        let Choice {
            steps, conjugation, ..
        } = choice;
        let own = EvaluationKeys::generate_from_seed(&self.key, 2, steps, conjugation, seed)?;
        let parts = Parts {
            encryption: self.encryption.clone(),
            pairwise,
            linear,
            own,
        };
        Ok(PublicKeys::from_parts(common, parts))
    }

    /// `b` and `D`.
    fn pairwise(&self) -> Pairwise<W> {
        let (common, ring, s) = (&self.common, self.common.ring(), self.key.secret());
        let r = self.second();
        let own_seed = derived(&self.seed, "pronghorn 2026 multi-key seed of d1");
        let reference = uniform_generator(common.seed());
        let gadget = |digit| Reference::Gadget(digit).number();
        let b = encrypt_gadget(
            s,
            ring,
            None,
            &reference,
            gadget,
            &mut self.errors(Errors::B),
        );
        let d0 = encrypt_gadget(
            s,
            ring,
            Some(&r.secret().words),
            &uniform_generator(own_seed.as_bytes()),
            gadget,
            &mut self.errors(Errors::D0),
        );
        let errors = self.errors(Errors::D2);
        let d2 = masked_secret(r.secret(), s, ring, &reference, gadget, errors);
        Pairwise::new(common, *own_seed.as_bytes(), [b, d0, d2])
    }

    /// `b` and `d_2` for digits of one limb.
    fn linear(&self) -> Result<LinearKeys<W>, MultiKeyError> {
        let (single, s, r) = (self.common.single()?, self.key.secret(), self.second());
        let reference = uniform_generator(self.common.seed());
        let number = |limb| Reference::Linear(limb).number();
        let errors_b = &mut self.errors(Errors::LinearB);
        let errors_d2 = self.errors(Errors::LinearD2);
        Ok(LinearKeys {
            b: encrypt_gadget(s, single, None, &reference, number, errors_b),
            d2: masked_secret(r.secret(), s, single, &reference, number, errors_d2),
        })
    }

    /// `r`.
    pub(super) fn second(&self) -> rns::SecretKey<W> {
        let seed = derived(&self.seed, "pronghorn 2026 multi-key r");
        rns::SecretKey::generate(self.common.ring(), &seed)
    }

    fn errors(&self, errors: Errors) -> Stream {
        Prg::new(&self.seed, ERRORS).stream(errors as u64)
    }

    pub(super) fn secret(&self) -> &Secret<W> {
        self.key.secret()
    }
}

/// `d_2 = r a - e + s g`, by encrypting `-s g` under `r`.
fn masked_secret<W: Word>(
    r: &Secret<W>,
    s: &Secret<W>,
    gadget: &rns::Parameters<W>,
    reference: &Prg,
    number: impl Fn(usize) -> u64,
    mut errors: Stream,
) -> Vec<W> {
    let (n, all) = (gadget.n(), gadget.basis().limbs());
    let mut minus = s.clone_words();
    let negate = |x: &mut [W]| {
        for (limb, x) in x.chunks_exact_mut(n).enumerate() {
            vector::neg_assign(gadget.basis().prime(limb % all), x);
        }
    };
    negate(&mut minus);
    let mut d2 = encrypt_gadget(r, gadget, Some(&minus), reference, number, &mut errors);
    wipe(&mut minus);
    negate(&mut d2);
    d2
}

/// A party's seed for one common reference string.
fn of_reference<W: Word>(seed: &Seed, common: &Common<W>) -> Seed {
    let mut hasher = blake3::Hasher::new_derive_key("pronghorn 2026 multi-key secrets");
    hasher.update(common.id()).update(seed.as_bytes());
    let mut hash = hasher.finalize();
    let own = Seed::from_bytes(*hash.as_bytes());
    hash.zeroize();
    hasher.zeroize();
    own
}

/// A seed for one purpose.
fn derived(seed: &Seed, domain: &'static str) -> Seed {
    let mut bytes = [0; 32];
    Prg::new(seed, domain).stream(0).fill(&mut bytes);
    let derived = Seed::from_bytes(bytes);
    wipe(&mut bytes);
    derived
}

/// The name of the owner of an encryption key.
pub(super) fn name<W: Word>(common: &Common<W>, key: &rns::PublicKey<W>) -> Party {
    let mut bytes = Vec::new();
    pack(common.ring(), key.limbs(), key.b(), &mut bytes);
    let mut hasher = blake3::Hasher::new_derive_key("pronghorn 2026 multi-key party");
    hasher.update(common.id()).update(&bytes);
    Party(*hasher.finalize().as_bytes())
}

/// What [`PublicKeys`] are made of.
pub(super) struct Parts<W: Word> {
    pub encryption: rns::PublicKey<W>,
    pub pairwise: Option<Pairwise<W>>,
    pub linear: Option<LinearKeys<W>>,
    pub own: EvaluationKeys<W>,
}

impl<W: Word> Pairwise<W> {
    /// With `d_1` from its seed.
    pub fn new(common: &Common<W>, seed: [u8; 32], [b, d0, d2]: [Vec<W>; 3]) -> Self {
        let (ring, generator) = (common.ring(), uniform_generator(&seed));
        let mut d1 = vec![W::default(); d0.len()];
        let words = ring.basis().limbs() * ring.n();
        for (digit, d1) in d1.chunks_exact_mut(words).enumerate() {
            expand_uniform(ring, &generator, Reference::Gadget(digit).number(), d1);
        }
        Self {
            seed,
            b,
            d0,
            d1,
            d2,
        }
    }
}

impl<W: Word> PublicKeys<W> {
    pub(super) fn from_parts(common: &Common<W>, parts: Parts<W>) -> Self {
        let Parts {
            encryption,
            pairwise,
            linear,
            own,
        } = parts;
        Self {
            party: name(common, &encryption),
            common: common.clone(),
            encryption,
            pairwise,
            linear,
            own,
        }
    }

    /// The common reference string.
    pub fn common(&self) -> &Common<W> {
        &self.common
    }

    /// The name of their owner.
    pub fn party(&self) -> Party {
        self.party
    }

    /// The key that anyone encrypts with.
    pub fn encryption(&self) -> &rns::PublicKey<W> {
        &self.encryption
    }

    pub(super) fn pairwise(&self) -> Result<&Pairwise<W>, MultiKeyError> {
        let party = self.party;
        let keys = self.pairwise.as_ref();
        keys.ok_or(MultiKeyError::NoPairKeys { party })
    }

    pub(super) fn linear(&self) -> Result<&LinearKeys<W>, MultiKeyError> {
        let party = self.party;
        let keys = self.linear.as_ref();
        keys.ok_or(MultiKeyError::NoLinearKeys { party })
    }
}

/// The public keys of all parties of a computation.
pub struct KeyRing<W: Word> {
    common: Common<W>,
    keys: BTreeMap<Party, PublicKeys<W>>,
    /// By both parties, the lesser first.
    pairs: BTreeMap<[Party; 2], PairKey<W>>,
}

impl<W: Word> KeyRing<W> {
    /// No keys.
    pub fn new(common: &Common<W>) -> Self {
        Self {
            common: common.clone(),
            keys: BTreeMap::new(),
            pairs: BTreeMap::new(),
        }
    }

    /// Adds a party's keys, in place of those it had.
    ///
    /// # Errors
    /// When they are of another common reference string.
    pub fn insert(&mut self, keys: PublicKeys<W>) -> Result<(), MultiKeyError> {
        self.common.same(&keys.common)?;
        self.keys.insert(keys.party, keys);
        Ok(())
    }

    /// Adds a key for products of two parties' secrets, which are then made with it alone.
    ///
    /// # Errors
    /// When it is of another common reference string.
    pub fn insert_pair(&mut self, key: PairKey<W>) -> Result<(), MultiKeyError> {
        self.common.same(key.common())?;
        self.pairs.insert(sorted(key.parties()), key);
        Ok(())
    }

    /// The key of two parties, if there is one.
    pub fn pair(&self, parties: [Party; 2]) -> Option<&PairKey<W>> {
        self.pairs.get(&sorted(parties))
    }

    /// Removes a party's keys, and those of its pairs.
    pub fn remove(&mut self, party: Party) {
        self.keys.remove(&party);
        self.pairs.retain(|parties, _| !parties.contains(&party));
    }

    /// The common reference string.
    pub fn common(&self) -> &Common<W> {
        &self.common
    }

    /// The keys of a party.
    ///
    /// # Errors
    /// When there are none.
    pub fn get(&self, party: Party) -> Result<&PublicKeys<W>, MultiKeyError> {
        let keys = self.keys.get(&party);
        keys.ok_or(MultiKeyError::NoKeys { party })
    }

    /// The keys of these parties, in order.
    pub(super) fn all(&self, parties: &[Party]) -> Result<Vec<&PublicKeys<W>>, MultiKeyError> {
        parties.iter().map(|&party| self.get(party)).collect()
    }
}

fn sorted(mut parties: [Party; 2]) -> [Party; 2] {
    parties.sort_unstable();
    parties
}

/// The keys that others encrypt with, by party: all that a contribution to a decryption needs.
pub trait EncryptionKeys<W: Word> {
    /// The encryption key of a party.
    ///
    /// # Errors
    /// When there is none.
    fn encryption_key(&self, party: Party) -> Result<&rns::PublicKey<W>, MultiKeyError>;
}

impl<W: Word> EncryptionKeys<W> for KeyRing<W> {
    fn encryption_key(&self, party: Party) -> Result<&rns::PublicKey<W>, MultiKeyError> {
        Ok(self.get(party)?.encryption())
    }
}

/// Encryption keys alone: a few megabytes where evaluation keys are hundreds.
pub struct EncryptionRing<W: Word> {
    common: Common<W>,
    keys: BTreeMap<Party, rns::PublicKey<W>>,
}

impl<W: Word> EncryptionRing<W> {
    /// No keys.
    pub fn new(common: &Common<W>) -> Self {
        Self {
            common: common.clone(),
            keys: BTreeMap::new(),
        }
    }

    /// Adds a key, and tells whose it is: a name is the hash of a key, so nobody can give
    /// another's.
    ///
    /// # Errors
    /// When it is of another common reference string, or has not all limbs.
    pub fn insert(&mut self, key: rns::PublicKey<W>) -> Result<Party, MultiKeyError> {
        let ring = self.common.ring();
        ring.same(key.parameters())?;
        key.check_limbs(ring.basis().limbs())?;
        if key.seed() != self.common.seed() {
            return Err(MultiKeyError::Common);
        }
        let party = name(&self.common, &key);
        self.keys.insert(party, key);
        Ok(party)
    }
}

impl<W: Word> EncryptionKeys<W> for EncryptionRing<W> {
    fn encryption_key(&self, party: Party) -> Result<&rns::PublicKey<W>, MultiKeyError> {
        let key = self.keys.get(&party);
        key.ok_or(MultiKeyError::NoKeys { party })
    }
}
