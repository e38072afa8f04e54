//! The cloud.

use pronghorn_he::{
    ckks::{self, wire::packed_len},
    multikey::{Ciphertext, EncryptionRing, KeyRing, Party, PublicKeys},
};
use pronghorn_ring::Word;

use super::{
    RoleError, Terms, damaged,
    messages::{self, Offer, Outcome, Publication, objects},
};
use crate::{Cloud, Model};

/// A party's public keys, decoded and expanded.
pub struct PartyKeys<W: Word>(PublicKeys<W>);

impl<W: Word> PartyKeys<W> {
    /// Whose they are.
    pub fn party(&self) -> Party {
        self.0.party()
    }
}

/// The cloud: holds a model and keys of clients, none of which it can read, and computes.
pub struct Service<W: Word> {
    terms: Terms<W>,
    owner: Party,
    cloud: Cloud<W>,
    keys: KeyRing<W>,
}

impl<W: Word> Service<W> {
    /// A service of what a model owner published.
    ///
    /// # Errors
    /// When the publication is damaged, or its parameters are not secure.
    pub fn new(publication: &[u8]) -> Result<Self, RoleError> {
        let Publication {
            description,
            keys: encoded,
            model,
        } = messages::decode("publication", publication)?;
        let terms = Terms::<W>::new(messages::description("publication", &description)?)?;
        let public = public_keys(&terms, "publication", &encoded)?;
        let owner = public.party();
        let mut keys = KeyRing::new(terms.setting.common());
        keys.insert(public)?;
        let model = Model::of_encoded(&terms.setting, &model)?;
        Ok(Self {
            cloud: Cloud::new(&terms.program, &terms.setting, owner, &model)?,
            terms,
            owner,
            keys,
        })
    }

    /// What was agreed on.
    pub fn terms(&self) -> &Terms<W> {
        &self.terms
    }

    /// The model owner's name.
    pub fn owner(&self) -> Party {
        self.owner
    }

    /// The offer, for each client.
    ///
    /// # Errors
    /// Never for a service that was made.
    pub fn offer(&self) -> Result<Vec<u8>, RoleError> {
        let mut key = Vec::new();
        self.keys.get(self.owner)?.encryption().encode(&mut key);
        Ok(messages::encode(&Offer {
            description: messages::encode(&*self.terms.description),
            key,
        }))
    }

    /// The name of the client that has this encryption key, which is its introduction to the model
    /// owner.
    ///
    /// # Errors
    /// When it is damaged, of other parameters, or the model owner's own.
    pub fn name(&self, introduction: &[u8]) -> Result<Party, RoleError> {
        let key = ckks::PublicKey::decode(self.terms.setting.ring(), introduction);
        let key = key.map_err(damaged("introduction"))?;
        let client = EncryptionRing::new(self.terms.setting.common()).insert(key)?;
        self.not_the_owner(client)
    }

    /// A client's public keys. The work of [`join`](Self::join), which needs no change of the
    /// service.
    ///
    /// # Errors
    /// When the keys are damaged, of other parameters, or the model owner's own.
    pub fn decode(&self, keys: &[u8]) -> Result<PartyKeys<W>, RoleError> {
        let public = public_keys(&self.terms, "public keys", keys)?;
        self.not_the_owner(public.party())?;
        Ok(PartyKeys(public))
    }

    /// Evaluates for a client from now on, with these keys.
    ///
    /// # Errors
    /// When the keys are of another service's terms.
    pub fn insert(&mut self, keys: PartyKeys<W>) -> Result<(), RoleError> {
        Ok(self.keys.insert(keys.0)?)
    }

    /// Forgets a client's keys.
    pub fn forget(&mut self, client: Party) {
        if client != self.owner {
            self.keys.remove(client);
        }
    }

    /// Takes a client's public keys; its name, and its introduction to the model owner.
    ///
    /// # Errors
    /// When the keys are damaged, of other parameters, or the model owner's own.
    pub fn join(&mut self, keys: &[u8]) -> Result<(Party, Vec<u8>), RoleError> {
        let keys = self.decode(keys)?;
        let (client, mut introduction) = (keys.party(), Vec::new());
        keys.0.encryption().encode(&mut introduction);
        self.insert(keys)?;
        Ok((client, introduction))
    }

    fn not_the_owner(&self, client: Party) -> Result<Party, RoleError> {
        if client == self.owner {
            return Err(RoleError::OtherParties { client });
        }
        Ok(client)
    }

    /// The outcome of a client's request.
    ///
    /// # Errors
    /// When the client did not join, a key for a rotation is missing, or the request is damaged.
    pub fn evaluate(&self, client: Party, request: &[u8]) -> Result<Vec<u8>, RoleError> {
        self.keys.get(client)?;
        let input = messages::decode("request", request)?;
        let input = messages::seeded(&self.terms.setting, "request", &input)?;
        let result = self.cloud.evaluate(client, &input, &self.keys, |_, _| ())?;
        // A client with false keys and an input of its choice must not see what was computed.
        let result = result.iter().map(|one| one.rerandomised(&self.keys));
        let result = result.collect::<Result<Vec<_>, _>>()?;
        Ok(messages::encode(&Outcome {
            client: client.0,
            result: objects(&result, Ciphertext::encode),
        }))
    }
}

impl<W: Word> Terms<W> {
    /// The most bytes of a party's public keys: those that the program asks for.
    pub fn most_key_bytes(&self) -> usize {
        let ring = self.setting.ring();
        let vector = ring.digit_count(ring.limbs()) * packed_len(ring, ring.basis().limbs());
        let rotations = self.program.rotations();
        let most = rotations.iter().map(Vec::len).max().unwrap_or(0);
        (most + 6) * vector
    }
}

/// Public keys, of no more bytes than those that the program asks for.
fn public_keys<W: Word>(
    terms: &Terms<W>,
    what: &'static str,
    bytes: &[u8],
) -> Result<PublicKeys<W>, RoleError> {
    let limit = terms.most_key_bytes();
    if bytes.len() > limit {
        let reason = format!("{} bytes are more than {limit}", bytes.len());
        return Err(RoleError::Message { what, reason });
    }
    PublicKeys::decode(terms.setting.common(), bytes).map_err(damaged(what))
}
