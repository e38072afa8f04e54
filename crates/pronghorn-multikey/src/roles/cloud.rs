//! The cloud.

use pronghorn_he::{
    ckks::{self, wire::packed_len},
    multikey::{Ciphertext, EncryptionRing, KeyRing, MultiKeyError, PairKey, Party, PublicKeys},
};
use pronghorn_ring::Word;

use super::{
    RoleError, Terms, damaged,
    messages::{self, Offer, Outcome, Publication, objects},
};
use crate::{Cloud, Model};

/// A client's public keys and the key of the client and the model owner, decoded and expanded.
pub struct PartyKeys<W: Word> {
    own: PublicKeys<W>,
    pair: PairKey<W>,
}

impl<W: Word> PartyKeys<W> {
    /// Whose they are.
    pub fn party(&self) -> Party {
        self.own.party()
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

    /// A client's public keys, with the [key of the pair](super::Owner::pair) from the model owner.
    /// The work of [`join`](Self::join), which needs no change of the service.
    ///
    /// # Errors
    /// When the keys are damaged, of other parameters or the model owner's own, or the second is
    /// not of the owner and this client.
    pub fn decode(&self, keys: &[u8], pair: &[u8]) -> Result<PartyKeys<W>, RoleError> {
        let own = public_keys(&self.terms, "public keys", keys)?;
        let client = self.not_the_owner(own.party())?;
        let pair = self.pair(pair)?;
        if pair.parties() != [self.owner, client] {
            return Err(RoleError::OtherParties { client });
        }
        Ok(PartyKeys { own, pair })
    }

    /// The client that a key of a pair is for.
    ///
    /// # Errors
    /// When it is damaged, of other parameters, or not the model owner's.
    pub fn name_of_pair(&self, pair: &[u8]) -> Result<Party, RoleError> {
        let [owner, client] = self.pair(pair)?.parties();
        match owner == self.owner {
            true => self.not_the_owner(client),
            false => Err(RoleError::OtherParties { client }),
        }
    }

    fn pair(&self, pair: &[u8]) -> Result<PairKey<W>, RoleError> {
        let key = PairKey::decode(self.terms.setting.common(), pair);
        key.map_err(damaged("key of the pair"))
    }

    /// Evaluates for a client from now on, with these keys.
    ///
    /// # Errors
    /// When the keys are of another service's terms.
    pub fn insert(&mut self, keys: PartyKeys<W>) -> Result<(), RoleError> {
        self.keys.insert(keys.own)?;
        Ok(self.keys.insert_pair(keys.pair)?)
    }

    /// Whether it has a client's keys.
    pub fn has_keys(&self, client: Party) -> bool {
        self.keys.get(client).is_ok()
    }

    /// Forgets a client's keys.
    pub fn forget(&mut self, client: Party) {
        if client != self.owner {
            self.keys.remove(client);
        }
    }

    /// Takes a client's public keys, with the [key of the pair](super::Owner::pair) from the model
    /// owner; the client's name.
    ///
    /// # Errors
    /// As [`decode`](Self::decode).
    pub fn join(&mut self, keys: &[u8], pair: &[u8]) -> Result<Party, RoleError> {
        let keys = self.decode(keys, pair)?;
        let client = keys.party();
        self.insert(keys)?;
        Ok(client)
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
        // Without it keys of the client would meet the owner's secret.
        let party = client;
        let pair = self.keys.pair([self.owner, client]);
        pair.ok_or(MultiKeyError::NoPairKeys { party })?;
        let input = messages::decode("request", request)?;
        let input = messages::seeded(&self.terms.setting, "request", &input)?;
        let result = self.cloud.evaluate(client, &input, &self.keys, |_, _| ())?;
        // A client with an input of its choice must not see what was computed.
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
        (most + 3) * vector
    }

    /// Bytes of the key of the model owner and a client.
    pub fn pair_key_bytes(&self) -> usize {
        let ring = self.setting.ring();
        let vector = ring.digit_count(ring.limbs()) * packed_len(ring, ring.basis().limbs());
        PAIR_HEADER + 2 * vector
    }
}

/// Bytes of a key of a pair beside its polynomials.
const PAIR_HEADER: usize = 34 + 64;

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
