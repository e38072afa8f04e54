//! The model owner.

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
};

use pronghorn_graph::polynomial::PolyGraph;
use pronghorn_he::{
    ckks,
    multikey::{
        Choice, Ciphertext, Contribution, Decryptor, EncryptionRing, MultiKeyError, Party,
        SecretKey,
    },
};
use pronghorn_ring::{Word, random::Seed};

use super::{
    RoleError, Terms, damaged,
    messages::{self, Objects, Outcome, Publication, objects},
};

/// Results whose decryption has begun.
const MOST_PENDING: usize = 64;

/// The model owner: encrypts the model once, then takes part in each decryption once.
pub struct Owner<W: Word> {
    terms: Terms<W>,
    party: Party,
    /// For the encryption of the model.
    seed: Seed,
    decryptor: Decryptor<W>,
    admitted: BTreeSet<Party>,
    clients: EncryptionRing<W>,
    introduced: BTreeSet<Party>,
    pending: BTreeMap<OutcomeName, Pending<W>>,
}

/// The name of an outcome: the hash of its bytes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct OutcomeName(pub [u8; 32]);

impl OutcomeName {
    /// Of these bytes.
    pub fn of(outcome: &[u8]) -> Self {
        Self(*blake3::hash(outcome).as_bytes())
    }
}

/// A result whose decryption has begun.
struct Pending<W: Word> {
    result: Vec<Ciphertext<W>>,
    own: Vec<Contribution<W>>,
}

impl<W: Word> Owner<W> {
    /// An owner whose keys follow from `seed`, and never decrypted anything. The seed is kept for
    /// [`resume`](Self::resume).
    ///
    /// # Errors
    /// When the rule is of other terms.
    pub fn new(terms: &Terms<W>, seed: &Seed) -> Result<Self, RoleError> {
        let secret = SecretKey::generate(terms.setting.common(), seed);
        let decryptor = Decryptor::new(secret, &terms.rule)?;
        Self::with(terms, seed, decryptor)
    }

    /// An owner that decrypted before, with the ledger that was kept last.
    ///
    /// # Errors
    /// When the ledger is not that of this seed and these terms.
    pub fn resume(terms: &Terms<W>, seed: &Seed, ledger: &[u8]) -> Result<Self, RoleError> {
        let secret = SecretKey::generate(terms.setting.common(), seed);
        let decryptor = Decryptor::resume(secret, &terms.rule, ledger)?;
        Self::with(terms, seed, decryptor)
    }

    fn with(terms: &Terms<W>, seed: &Seed, decryptor: Decryptor<W>) -> Result<Self, RoleError> {
        let secret = SecretKey::generate(terms.setting.common(), seed);
        let mut clients = EncryptionRing::new(terms.setting.common());
        let party = clients.insert(secret.encryption().clone())?;
        Ok(Self {
            terms: terms.clone(),
            party,
            seed: Seed::from_bytes(*seed.as_bytes()),
            decryptor,
            admitted: BTreeSet::new(),
            clients,
            introduced: BTreeSet::new(),
            pending: BTreeMap::new(),
        })
    }

    /// The owner's name, which clients must get by a way that the cloud does not control.
    pub fn party(&self) -> Party {
        self.party
    }

    /// Results that may still be decrypted.
    pub fn results_left(&self) -> u64 {
        self.decryptor.results_left()
    }

    /// The ledger as it is now, for [`resume`](Self::resume).
    pub fn ledger(&self) -> Vec<u8> {
        self.decryptor.ledger()
    }

    /// The publication: for the cloud, once. Public keys and encrypted weights.
    ///
    /// # Errors
    /// When `graph` is not the network of the terms.
    pub fn publish(&self, graph: &PolyGraph) -> Result<Vec<u8>, RoleError> {
        let Terms {
            program,
            setting,
            description,
            ..
        } = &self.terms;
        let secret = SecretKey::generate(setting.common(), &self.seed);
        let [_, steps] = program.rotations();
        let choice = Choice {
            steps: &steps,
            ..Choice::default()
        };
        let mut keys = Vec::new();
        secret.public_keys(choice)?.encode(&mut keys);
        let model = program.encrypt_model(setting, graph, &mut secret.encryptor()?)?;
        Ok(messages::encode(&Publication {
            description: (**description).clone(),
            keys,
            model: model.encoded(),
        }))
    }

    /// Takes part in decryptions for this client from now on. Its name must come by a way that the
    /// cloud does not control: the cloud could be its own client.
    pub fn admit(&mut self, client: Party) {
        self.admitted.insert(client);
    }

    /// A client's introduction.
    ///
    /// # Errors
    /// When it is damaged, or the client is not admitted.
    pub fn introduce(&mut self, introduction: &[u8]) -> Result<Party, RoleError> {
        let ring = self.terms.setting.ring();
        let key = ckks::PublicKey::decode(ring, introduction);
        let key = key.map_err(damaged("introduction"))?;
        // A ring of its own, so that a stranger's key is not kept.
        let party = EncryptionRing::new(self.terms.setting.common()).insert(key.clone())?;
        if !self.admitted.contains(&party) {
            return Err(RoleError::NotAdmitted { party });
        }
        self.clients.insert(key)?;
        self.introduced.insert(party);
        Ok(party)
    }

    /// This party's contribution to the decryption of an outcome.
    ///
    /// # Errors
    /// When the outcome is damaged, of another client, was decrypted before, or too many are in
    /// progress.
    pub fn contribute(&mut self, outcome: &[u8]) -> Result<Vec<u8>, RoleError> {
        let common = self.terms.setting.common();
        let Outcome { client, result } = messages::decode("outcome", outcome)?;
        let client = Party(client);
        if !self.introduced.contains(&client) {
            return Err(RoleError::NotAdmitted { party: client });
        }
        let result = messages::result(common, &result)?;
        self.terms.check_outcome(&result, self.party, client)?;
        let name = OutcomeName::of(outcome);
        if self.pending.len() >= MOST_PENDING && !self.pending.contains_key(&name) {
            let limit = MOST_PENDING;
            return Err(RoleError::Busy { limit });
        }
        let (decryptor, clients) = (&mut self.decryptor, &self.clients);
        let own = result
            .iter()
            .map(|x| decryptor.contribute(x.extended(), clients));
        let own = own.collect::<Result<Vec<_>, _>>()?;
        let message = messages::encode(&objects(&own, Contribution::encode));
        self.pending.insert(name, Pending { result, own });
        Ok(message)
    }

    /// Forgets an outcome that nobody wants decrypted any more, so that it holds no place. Nothing of
    /// it was given.
    pub fn withdraw(&mut self, outcome: &OutcomeName) {
        if let Some(Pending { result, .. }) = self.pending.remove(outcome) {
            let results = result.iter();
            results.for_each(|x| self.decryptor.withdraw(x.extended()));
        }
    }

    /// Forgets all outcomes that were not decrypted.
    pub fn withdraw_all(&mut self) {
        let names: Vec<OutcomeName> = self.pending.keys().copied().collect();
        names.iter().for_each(|name| self.withdraw(name));
    }

    /// This party's partial decryption of an outcome, once. `persist` must keep the ledger that it
    /// is given where [`resume`](Self::resume) will find it, before it returns.
    ///
    /// # Errors
    /// When this party did not contribute, the client's contribution is damaged or of another
    /// outcome, the outcome was decrypted before, or the ledger was not kept.
    pub fn decrypt(
        &mut self,
        outcome: &OutcomeName,
        contribution: &[u8],
        mut persist: impl FnMut(&[u8]) -> io::Result<()>,
    ) -> Result<Vec<u8>, RoleError> {
        let turn = RoleError::Turn {
            what: "request for a partial decryption",
            before: "contribution of the model owner",
        };
        let Pending { result, own } = self.pending.get(outcome).ok_or(turn)?;
        let theirs = contributions(&self.terms, contribution)?;
        let count = result.len();
        if theirs.len() != count {
            return Err(MultiKeyError::Contribution { party: self.party }.into());
        }
        let mut partials = Vec::with_capacity(count);
        for ((x, own), theirs) in result.iter().zip(own).zip(theirs) {
            let both = [own.clone(), theirs];
            partials.push(self.decryptor.decrypt(x.extended(), &both, &mut persist)?);
        }
        self.pending.remove(outcome);
        Ok(messages::encode(&objects(&partials, |x, out| {
            x.encode(out)
        })))
    }
}

/// The contributions of a message.
pub(super) fn contributions<W: Word>(
    terms: &Terms<W>,
    message: &[u8],
) -> Result<Vec<Contribution<W>>, RoleError> {
    let found: Objects = messages::decode("contribution", message)?;
    let one = |bytes: &Vec<u8>| Contribution::decode(terms.setting.common(), bytes);
    let found = found.iter().map(one);
    found.map(|x| x.map_err(damaged("contribution"))).collect()
}
