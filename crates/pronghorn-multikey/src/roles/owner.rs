//! The model owner.

use std::{collections::BTreeSet, io};

use pronghorn_graph::polynomial::PolyGraph;
use pronghorn_he::{
    ckks,
    multikey::{
        Choice, Contribution, Decryptor, EncryptionKeys, EncryptionRing, MultiKeyError, Partial,
        Party, SecretKey,
    },
};
use pronghorn_ring::{Word, random::Seed};

use super::{
    RoleError, Terms, damaged,
    messages::{self, Answer, Outcome, Publication, objects},
};
use crate::{Bounds, Network};

/// The model owner: encrypts the model once, then takes part in each decryption once.
pub struct Owner<W: Word> {
    terms: Terms<W>,
    party: Party,
    /// For the encryption of the model.
    seed: Seed,
    decryptor: Decryptor<W>,
    admitted: BTreeSet<Party>,
    clients: EncryptionRing<W>,
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

    /// Counts the results of another ledger of this key and these terms as decrypted, too.
    ///
    /// # Errors
    /// When the ledger is not that of this key and these terms, or both have more results than the
    /// key decrypts.
    pub fn absorb(&mut self, ledger: &[u8]) -> Result<(), RoleError> {
        let secret = SecretKey::generate(self.terms.setting.common(), &self.seed);
        let other = Decryptor::resume(secret, &self.terms.rule, ledger)?;
        Ok(self.decryptor.absorb(&other)?)
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
        // Floods are as large as its bounds ask for.
        let is_known = Network::of(graph).without_names() == description.network;
        if !is_known || !Bounds::of(program, graph)?.within(&description.bounds) {
            return Err(RoleError::OtherNetwork);
        }
        let secret = SecretKey::generate(setting.common(), &self.seed);
        let [_, steps] = program.rotations();
        let choice = Choice {
            steps: &steps,
            without_pairs: true,
            ..Choice::default()
        };
        let mut keys = Vec::new();
        secret.public_keys(choice)?.encode(&mut keys);
        let model = program.encrypt_model(setting, graph, &mut secret.encryptor()?)?;
        Ok(messages::encode(&Publication {
            description: messages::encode(&**description),
            keys,
            model: model.encoded(),
        }))
    }

    /// Takes part in decryptions for these clients from now on, and for no others. Their names must
    /// come by a way that the cloud does not control: the cloud could be its own client.
    pub fn admit(&mut self, clients: impl IntoIterator<Item = Party>) {
        self.admitted = clients.into_iter().collect();
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
        Ok(party)
    }

    /// The key for products of this party's secret and a client's, for the cloud, once a client.
    /// The client must not see it. Another call gives another key, as good.
    ///
    /// # Errors
    /// When the client is not admitted and introduced, or the system has no randomness.
    pub fn pair(&self, client: Party) -> Result<Vec<u8>, RoleError> {
        let key = self.clients.encryption_key(client);
        let key = key.ok().filter(|_| self.admitted.contains(&client));
        let key = key.ok_or(RoleError::NotAdmitted { party: client })?;
        let secret = SecretKey::generate(self.terms.setting.common(), &self.seed);
        let mut bytes = Vec::new();
        secret.pair_key(key)?.encode(&mut bytes);
        Ok(bytes)
    }

    /// This party's contribution and partial decryption of an outcome, once. `persist` must keep
    /// the ledger that it is given where [`resume`](Self::resume) will find it, before it returns.
    ///
    /// The client contributes nothing: who could add something to the outcome after this party's
    /// contribution would take its mask off, and read the secret key.
    ///
    /// # Errors
    /// When the outcome is damaged, of a client that is not admitted, was decrypted before, the
    /// budget is used up, or the ledger was not kept.
    pub fn answer(
        &mut self,
        outcome: &[u8],
        mut persist: impl FnMut(&[u8]) -> io::Result<()>,
    ) -> Result<Vec<u8>, RoleError> {
        let common = self.terms.setting.common();
        let Outcome { client, result } = messages::decode("outcome", outcome)?;
        let party = Party(client);
        let is_introduced = self.clients.encryption_key(party).is_ok();
        if !is_introduced || !self.admitted.contains(&party) {
            return Err(RoleError::NotAdmitted { party });
        }
        let result = messages::result(common, &result)?;
        self.terms.check_outcome(&result, self.party, party)?;
        if self.results_left() < result.len() as u64 {
            let results = self.terms.description.results;
            return Err(MultiKeyError::Budget { results }.into());
        }
        let mut given = Vec::with_capacity(result.len());
        for x in &result {
            let one = self
                .decryptor
                .answer(x.extended(), &self.clients, &mut persist);
            given.push(one?);
        }
        Ok(messages::encode(&Answer {
            contributions: objects(given.iter().map(|(x, _)| x), Contribution::encode),
            partials: objects(given.iter().map(|(_, x)| x), Partial::encode),
        }))
    }
}
