//! The client.

use pronghorn_he::{
    ckks::{self, Encryptor, SeededCiphertext},
    multikey::{
        Choice, Ciphertext, Contribution, Decryptor, EncryptionRing, MultiKeyError, Partial, Party,
        SecretKey,
    },
};
use pronghorn_ring::{Word, random::Seed};

use super::{
    RoleError, Terms, damaged,
    messages::{self, Objects, Offer, Outcome, objects},
    owner::contributions,
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
    keys: EncryptionRing<W>,
    decryptor: Decryptor<W>,
    state: State<W>,
}

enum State<W: Word> {
    Idle,
    /// An image is with the cloud.
    Waiting,
    /// The result is there, and this party contributed to its decryption.
    Contributed {
        result: Vec<Ciphertext<W>>,
        own: Vec<Contribution<W>>,
    },
}

impl<W: Word> State<W> {
    /// The state, with nothing left behind if the party contributed, and as it was otherwise.
    fn take_contributed(&mut self) -> Self {
        match self {
            Self::Contributed { .. } => std::mem::replace(self, Self::Idle),
            _ => Self::Idle,
        }
    }
}

impl<W: Word> Client<W> {
    /// A client of the cloud that made this offer, for the model of `owner`. Keys follow from
    /// `seed`.
    ///
    /// # Errors
    /// When the offer is damaged, its parameters are not secure, or its model is another owner's.
    pub fn new(offer: &[u8], owner: Party, seed: &Seed) -> Result<Self, RoleError> {
        let Offer { description, key } = messages::decode("offer", offer)?;
        let terms = Terms::<W>::new(description)?;
        let common = terms.setting.common();
        let mut keys = EncryptionRing::new(common);
        let key = ckks::PublicKey::decode(terms.setting.ring(), &key);
        let found = keys.insert(key.map_err(damaged("offer"))?)?;
        if found != owner {
            let expected = owner;
            return Err(RoleError::OtherOwner { found, expected });
        }
        let secret = SecretKey::generate(common, seed);
        let party = keys.insert(secret.encryption().clone())?;
        let of_decryptor = SecretKey::generate(common, seed);
        Ok(Self {
            encryptor: secret.encryptor()?,
            decryptor: Decryptor::new(of_decryptor, &terms.rule)?,
            terms,
            secret,
            party,
            owner,
            keys,
            state: State::Idle,
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
        if let State::Contributed { result, .. } =
            std::mem::replace(&mut self.state, State::Waiting)
        {
            self.give_up(&result);
        }
        let encode = |x: &SeededCiphertext<W>, out: &mut Vec<u8>| x.encode(out);
        Ok(messages::encode(&objects(&input, encode)))
    }

    /// This party's contribution to the decryption of the outcome.
    ///
    /// # Errors
    /// When there was no request, or the outcome is damaged or another party's.
    pub fn contribute(&mut self, outcome: &[u8]) -> Result<Vec<u8>, RoleError> {
        if matches!(self.state, State::Idle) {
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
        let result = messages::result(self.terms.setting.common(), &result)?;
        self.terms.check_outcome(&result, self.owner, self.party)?;
        let (decryptor, keys) = (&mut self.decryptor, &self.keys);
        let own = result
            .iter()
            .map(|x| decryptor.contribute(x.extended(), keys));
        let own = own.collect::<Result<Vec<_>, _>>()?;
        let message = messages::encode(&objects(&own, Contribution::encode));
        self.state = State::Contributed { result, own };
        Ok(message)
    }

    /// The result, from the model owner's contribution and partial decryption.
    ///
    /// # Errors
    /// When this party did not contribute, or a message is damaged or of another outcome. The
    /// outcome is then given up.
    pub fn finish(&mut self, contribution: &[u8], partial: &[u8]) -> Result<Vec<f64>, RoleError> {
        let State::Contributed { result, own } = self.state.take_contributed() else {
            return Err(RoleError::Turn {
                what: "partial decryption",
                before: "contribution of the client",
            });
        };
        let finished = self.decrypted(&result, own, contribution, partial);
        finished.inspect_err(|_| self.give_up(&result))
    }

    /// Results that are not decrypted any more hold no place.
    fn give_up(&mut self, result: &[Ciphertext<W>]) {
        let results = result.iter();
        results.for_each(|x| self.decryptor.withdraw(x.extended()));
    }

    fn decrypted(
        &mut self,
        result: &[Ciphertext<W>],
        own: Vec<Contribution<W>>,
        contribution: &[u8],
        partial: &[u8],
    ) -> Result<Vec<f64>, RoleError> {
        let theirs = contributions(&self.terms, contribution)?;
        let common = self.terms.setting.common();
        let found: Objects = messages::decode("partial decryption", partial)?;
        let one = |bytes: &Vec<u8>| Partial::decode(common, bytes);
        let partials = found.iter().map(one);
        let partials = partials.map(|x| x.map_err(damaged("partial decryption")));
        let partials = partials.collect::<Result<Vec<_>, _>>()?;
        let party = self.owner;
        if theirs.len() != result.len() || partials.len() != result.len() {
            return Err(MultiKeyError::Partial { party }.into());
        }
        let mut slots = Vec::with_capacity(result.len());
        let given = own.into_iter().zip(theirs).zip(partials);
        for (x, ((own, theirs), partial)) in result.iter().zip(given) {
            let both = [own, theirs];
            // It stays here, so there is nothing to keep.
            let mine = self.decryptor.decrypt(x.extended(), &both, |_| Ok(()))?;
            let plain = x.merge(&both, &[mine, partial])?;
            let decoded = self.terms.setting.ring().decode(&plain);
            slots.push(decoded.map_err(MultiKeyError::from)?);
        }
        Ok(self.terms.program.decode(&slots)?)
    }
}
