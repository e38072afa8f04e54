//! The cloud.

use pronghorn_he::{
    ckks::wire::packed_len,
    multikey::{Ciphertext, KeyRing, Party, PublicKeys},
};
use pronghorn_ring::Word;

use super::{
    RoleError, Terms, damaged,
    messages::{self, Offer, Outcome, Publication, objects},
};
use crate::{Cloud, Model};

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
        let terms = Terms::<W>::new(description)?;
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
            description: (*self.terms.description).clone(),
            key,
        }))
    }

    /// Takes a client's public keys; its name, and its introduction to the model owner.
    ///
    /// # Errors
    /// When the keys are damaged, of other parameters, or the model owner's own.
    pub fn join(&mut self, keys: &[u8]) -> Result<(Party, Vec<u8>), RoleError> {
        let public = public_keys(&self.terms, "public keys", keys)?;
        let client = public.party();
        if client == self.owner {
            return Err(RoleError::OtherParties { client });
        }
        let mut introduction = Vec::new();
        public.encryption().encode(&mut introduction);
        self.keys.insert(public)?;
        Ok((client, introduction))
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
        Ok(messages::encode(&Outcome {
            client: client.0,
            result: objects(&result, Ciphertext::encode),
        }))
    }
}

/// Public keys, of no more bytes than those that the program asks for.
fn public_keys<W: Word>(
    terms: &Terms<W>,
    what: &'static str,
    bytes: &[u8],
) -> Result<PublicKeys<W>, RoleError> {
    let ring = terms.setting.ring();
    let vector = ring.digit_count(ring.limbs()) * packed_len(ring, ring.basis().limbs());
    let rotations = terms.program.rotations();
    let most = rotations.iter().map(Vec::len).max().unwrap_or(0);
    let limit = (most + 6) * vector;
    if bytes.len() > limit {
        let reason = format!("{} bytes are more than {limit}", bytes.len());
        return Err(RoleError::Message { what, reason });
    }
    PublicKeys::decode(terms.setting.common(), bytes).map_err(damaged(what))
}
