//! The client's keys for an encrypted network: one secret for a connection, checked by
//! [`keys`](crate::keys).
//!
//! A set has the seed of the public key's uniform half (32 bytes), its first limbs, which are those
//! that the answer has when the server re-randomises it, and evaluation keys where the plan
//! relinearises. The seed of every `a` of the inputs is no part of it: whoever encrypts has it.

use std::sync::{Mutex, MutexGuard, PoisonError};

use pronghorn_he::ckks::{
    self, Encryptor, EvaluationKeys, Parameters, PublicKey, SecretKey, WireError,
};
use pronghorn_plan::{CheckedPlan, EncryptedPlan, cost::SEED_BYTES};
use pronghorn_ring::{Word, random::Seed};

use crate::{
    error::EngineError,
    keys::{KeySets, STEP, derived},
};

/// The keys of an encrypted network.
pub(crate) struct EncryptedKeySets<W: Word> {
    plan: CheckedPlan,
    encrypted: EncryptedPlan,
    parameters: Parameters<W>,
}

/// The client's: one secret, and the one encryptor that counts what it used of its randomness.
pub(crate) struct ClientEncryptedKeys<W: Word> {
    pub key: SecretKey<W>,
    /// Made with the first batch.
    pub encryptor: Mutex<Option<Encryptor<W>>>,
}

/// The server's.
pub(crate) struct ServerEncryptedKeys<W: Word> {
    pub public: PublicKey<W>,
    pub evaluation: Option<EvaluationKeys<W>>,
    uniform: Mutex<Option<Uniform>>,
}

/// The seed of every `a`, and how many of them were used.
pub(crate) struct Uniform {
    pub seed: [u8; SEED_BYTES],
    pub used: u64,
}

impl<W: Word> ServerEncryptedKeys<W> {
    /// None before the first batch.
    pub fn uniform(&self) -> MutexGuard<'_, Option<Uniform>> {
        self.uniform.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<W: Word> EncryptedKeySets<W> {
    /// Of a network.
    pub fn new(plan: &CheckedPlan, encrypted: &EncryptedPlan) -> Result<Self, EngineError> {
        Ok(Self {
            plan: plan.clone(),
            encrypted: encrypted.clone(),
            parameters: parameters(encrypted, STEP)?,
        })
    }

    #[cfg(test)]
    pub fn parameters(&self) -> &Parameters<W> {
        &self.parameters
    }

    #[cfg(test)]
    pub fn flood_limbs(&self) -> usize {
        self.encrypted.flood_limbs
    }

    /// The seeds of the secret, of the public key and of evaluation keys.
    fn seeds(&self, seed: &Seed) -> [Seed; 3] {
        derived(seed, &self.plan, &[self.parameters.hash()])
    }
}

fn wire(source: WireError) -> EngineError {
    EngineError::Wire {
        step: STEP.to_owned(),
        message: "the keys",
        row: 0,
        source,
    }
}

impl<W: Word> KeySets for EncryptedKeySets<W> {
    type Client = ClientEncryptedKeys<W>;
    type Server = ServerEncryptedKeys<W>;

    const KEPT: bool = false;
    const CHECKED: bool = true;

    fn plan(&self) -> &CheckedPlan {
        &self.plan
    }

    fn bytes(&self) -> usize {
        self.encrypted.key_set_bytes()
    }

    fn encode(&self, seed: &Seed, out: &mut dyn FnMut(&[u8])) -> Result<(), EngineError> {
        let [secret, public, evaluation] = self.seeds(seed);
        let secret = SecretKey::generate(&self.parameters, &secret);
        let public = PublicKey::generate_from_seed(&secret, &public);
        let limbs = self.encrypted.flood_limbs;
        let words = limbs * self.parameters.n();
        let mut bytes = public.seed().to_vec();
        ckks::wire::pack(&self.parameters, limbs, &public.b()[..words], &mut bytes);
        out(&bytes);
        let power = self.encrypted.key_power;
        if power < 2 {
            return Ok(());
        }
        let made = EvaluationKeys::encode_from_seed(&secret, power, &[], false, &evaluation, out);
        made.map_err(|source| EngineError::Ckks {
            step: STEP.to_owned(),
            source: source.into(),
        })
    }

    fn client(&self, seed: &Seed) -> ClientEncryptedKeys<W> {
        let [secret, ..] = self.seeds(seed);
        ClientEncryptedKeys {
            key: SecretKey::generate(&self.parameters, &secret),
            encryptor: Mutex::default(),
        }
    }

    fn server(&self, bytes: &[u8]) -> Result<ServerEncryptedKeys<W>, EngineError> {
        let parameters = &self.parameters;
        let length = |found| WireError::Length {
            field: "the keys",
            expected: self.bytes(),
            found,
        };
        let public = SEED_BYTES + self.encrypted.public_key_bytes();
        let (own, rest) =
            (bytes.split_at_checked(public)).ok_or_else(|| wire(length(bytes.len())))?;
        let (seed, b) = own
            .split_first_chunk()
            .ok_or_else(|| wire(length(bytes.len())))?;
        let limbs = self.encrypted.flood_limbs;
        let mut words = vec![W::default(); limbs * parameters.n()];
        ckks::wire::unpack(parameters, limbs, b, &mut words).map_err(wire)?;
        let evaluation = match self.encrypted.key_power {
            0 | 1 => None,
            power => {
                let keys = EvaluationKeys::decode(parameters, rest).map_err(wire)?;
                if keys.max_power() < power {
                    return Err(EngineError::Ckks {
                        step: STEP.to_owned(),
                        source: pronghorn_he::rns::RingError::NoPowerKey { power }.into(),
                    });
                }
                Some(keys)
            }
        };
        Ok(ServerEncryptedKeys {
            public: PublicKey::from_parts(parameters, *seed, words),
            evaluation,
            uniform: Mutex::default(),
        })
    }
}

/// The ring and the modulus of a plan.
pub(super) fn parameters<W: Word>(
    plan: &EncryptedPlan,
    step: &str,
) -> Result<Parameters<W>, EngineError> {
    Parameters::new(plan.degree, &plan.primes, &plan.special_primes).map_err(|source| {
        EngineError::CkksParameters {
            step: step.to_owned(),
            source,
        }
    })
}
