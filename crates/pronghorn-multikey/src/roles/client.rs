//! The client.

use pronghorn_he::{
    ckks::{self, Encryptor, SeededCiphertext},
    multikey::{Choice, Contribution, Decryptor, MultiKeyError, Partial, Party, SecretKey},
};
use pronghorn_ring::{Word, random::Seed};

use super::{
    Described, RoleError, Terms, damaged,
    messages::{self, Answer, Offer, Outcome, objects},
};

/// A client: encrypts inputs, and alone learns results.
///
/// Its partial decryptions never leave it, so nothing of it need be kept but its seed.
pub struct Client<W: Word> {
    terms: Terms<W>,
    secret: SecretKey<W>,
    encryptor: Encryptor<W>,
    party: Party,
    owner: Party,
    decryptor: Decryptor<W>,
    /// An image is with the cloud.
    is_waiting: bool,
}

impl<W: Word> Client<W> {
    /// A client of the cloud that made this offer, for the model of `owner`. Keys follow from
    /// `seed`.
    ///
    /// # Errors
    /// When the offer is damaged, its parameters are not secure, or its model is another owner's.
    pub fn new(offer: &[u8], owner: Party, seed: &Seed) -> Result<Self, RoleError> {
        let Offer { description, key } = messages::decode("offer", offer)?;
        let described = Described::<W>::new(messages::description("offer", &description)?)?;
        let key = ckks::PublicKey::decode(described.ring(), &key);
        let found = described.name_of(key.map_err(damaged("offer"))?)?;
        if found != owner {
            let expected = owner;
            return Err(RoleError::OtherOwner { found, expected });
        }
        // A large plan takes a minute. Only the owner's own network gets it.
        let terms = described.terms()?;
        let common = terms.setting.common();
        let secret = SecretKey::generate(common, seed);
        let of_decryptor = SecretKey::generate(common, seed);
        Ok(Self {
            encryptor: secret.encryptor()?,
            decryptor: Decryptor::new(of_decryptor, &terms.rule)?,
            terms,
            party: secret.party(),
            secret,
            owner,
            is_waiting: false,
        })
    }

    /// What was agreed on.
    pub fn terms(&self) -> &Terms<W> {
        &self.terms
    }

    /// The client's name, which the model owner must get by a way that the cloud does not control.
    pub fn party(&self) -> Party {
        self.party
    }

    /// The introduction to the cloud and the model owner: the encryption key.
    pub fn introduction(&self) -> Vec<u8> {
        let mut key = Vec::new();
        self.secret.encryption().encode(&mut key);
        key
    }

    /// The public keys, for the cloud, once. Hundreds of megabytes.
    ///
    /// # Errors
    /// When the system has no randomness.
    pub fn join(&self) -> Result<Vec<u8>, RoleError> {
        let [steps, _] = self.terms.program.rotations();
        let choice = Choice {
            steps: &steps,
            without_pairs: true,
            ..Choice::default()
        };
        let mut keys = Vec::new();
        self.secret.public_keys(choice)?.encode(&mut keys);
        Ok(keys)
    }

    /// The request for an image. An earlier one that was not finished is given up.
    ///
    /// # Errors
    /// When the image has another number of elements, or one out of range.
    pub fn request(&mut self, values: &[f64]) -> Result<Vec<u8>, RoleError> {
        let Terms {
            program, setting, ..
        } = &self.terms;
        let input = program.encrypt_input(setting, values, &mut self.encryptor)?;
        self.is_waiting = true;
        let encode = |x: &SeededCiphertext<W>, out: &mut Vec<u8>| x.encode(out);
        Ok(messages::encode(&objects(&input, encode)))
    }

    /// The result, from the outcome and the model owner's answer.
    ///
    /// # Errors
    /// When there was no request, or a message is damaged, another party's or of another outcome.
    /// The request is then given up.
    pub fn finish(&mut self, outcome: &[u8], answer: &[u8]) -> Result<Vec<f64>, RoleError> {
        if !std::mem::take(&mut self.is_waiting) {
            return Err(RoleError::Turn {
                what: "outcome",
                before: "request",
            });
        }
        let Outcome { client, result } = messages::decode("outcome", outcome)?;
        if Party(client) != self.party {
            let client = Party(client);
            return Err(RoleError::OtherParties { client });
        }
        let common = self.terms.setting.common();
        let result = messages::result(common, &result)?;
        self.terms.check_outcome(&result, self.owner, self.party)?;
        let Answer {
            contributions,
            partials,
        } = messages::decode("answer", answer)?;
        let party = self.owner;
        if contributions.len() != result.len() || partials.len() != result.len() {
            return Err(MultiKeyError::Partial { party }.into());
        }
        let mut slots = Vec::with_capacity(result.len());
        for (x, (contribution, partial)) in result.iter().zip(contributions.iter().zip(&partials)) {
            let contribution = Contribution::decode(common, contribution);
            let contribution = contribution.map_err(damaged("answer"))?;
            let partial = Partial::decode(common, partial).map_err(damaged("answer"))?;
            if partial.party() != party {
                return Err(MultiKeyError::Partial { party }.into());
            }
            let plain = x.complete(&mut self.decryptor, &contribution, partial)?;
            let decoded = self.terms.setting.ring().decode(&plain);
            slots.push(decoded.map_err(MultiKeyError::from)?);
        }
        Ok(self.terms.program.decode(&slots)?)
    }
}
