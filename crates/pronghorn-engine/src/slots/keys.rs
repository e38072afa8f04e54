//! The client's keys for steps on slots: one secret for each set of parameters, for all batches.
//! They are sent once ([`keys`](crate::keys)), and kept by the server under their digest.

use std::{collections::BTreeMap, sync::Arc};

use pronghorn_he::{
    bfv::{EvaluationKeys, Parameters, PublicKey, SecretKey},
    rns::WireError,
};
use pronghorn_plan::{
    CheckedPlan,
    steps::linear::slots::{SlotKeys, SlotScheme},
};
use pronghorn_ring::random::Seed;

use super::refused;
use crate::{
    error::EngineError,
    keys::{KeySets, STEP, derived},
};

/// The keys of a plan on slots.
pub(crate) struct SlotKeySets(pub CheckedPlan);

/// A client's secret keys. Secret: no Debug.
pub(crate) struct ClientSlotKeys(BTreeMap<SlotScheme, Arc<SecretKey<u64>>>);

impl ClientSlotKeys {
    /// The secret key for a step's parameters.
    pub fn secret(&self, scheme: &SlotScheme) -> Option<Arc<SecretKey<u64>>> {
        self.0.get(scheme).cloned()
    }
}

/// The keys of a client for the steps with the same parameters.
pub(crate) struct ServerSchemeKeys {
    pub public: PublicKey<u64>,
    pub rotations: Option<EvaluationKeys<u64>>,
}

/// All of a client's keys.
pub(crate) struct ServerSlotKeys(BTreeMap<SlotScheme, Arc<ServerSchemeKeys>>);

impl ServerSlotKeys {
    /// The keys for a step's parameters.
    pub fn of(&self, scheme: &SlotScheme) -> Option<Arc<ServerSchemeKeys>> {
        self.0.get(scheme).cloned()
    }
}

impl SlotKeySets {
    /// The seeds of the secret, of the public key and of rotations for some parameters: of exactly
    /// these keys. A version that needs others of the same plan must not use the same randomness
    /// for them.
    fn seeds(&self, seed: &Seed, keys: &SlotKeys, parameters: &Parameters<u64>) -> [Seed; 3] {
        let steps: Vec<u8> = keys
            .steps
            .iter()
            .flat_map(|step| step.to_le_bytes())
            .collect();
        let swap = [u8::from(keys.swap)];
        let parts: [&[u8]; 3] = [parameters.hash(), &swap, &steps];
        derived(seed, &self.0, &parts)
    }
}

impl KeySets for SlotKeySets {
    type Client = ClientSlotKeys;
    type Server = ServerSlotKeys;

    const KEPT: bool = true;
    const CHECKED: bool = false;

    fn plan(&self) -> &CheckedPlan {
        &self.0
    }

    fn bytes(&self) -> usize {
        self.0.slot_key_bytes() as usize
    }

    fn encode(&self, seed: &Seed, out: &mut dyn FnMut(&[u8])) -> Result<(), EngineError> {
        for (keys, parameters) in self.0.slot_keys() {
            let [secret, public, rotations] = self.seeds(seed, keys, parameters);
            let (secret, mut bytes) = (SecretKey::generate(parameters, &secret), Vec::new());
            PublicKey::generate_from_seed(&secret, &public).encode(&mut bytes);
            out(&bytes);
            if !keys.steps.is_empty() || keys.swap {
                let (steps, swap) = (&keys.steps, keys.swap);
                EvaluationKeys::encode_from_seed(&secret, steps, swap, &rotations, out)
                    .map_err(|source| refused(STEP, source.into()))?;
            }
        }
        Ok(())
    }

    fn client(&self, seed: &Seed) -> ClientSlotKeys {
        let secrets = self.0.slot_keys().iter().map(|(keys, parameters)| {
            let [secret, ..] = self.seeds(seed, keys, parameters);
            (
                keys.scheme,
                Arc::new(SecretKey::generate(parameters, &secret)),
            )
        });
        ClientSlotKeys(secrets.collect())
    }

    fn server(&self, mut bytes: &[u8]) -> Result<ServerSlotKeys, EngineError> {
        let wire = |row| {
            move |source: WireError| EngineError::Wire {
                step: STEP.to_owned(),
                message: "the keys",
                row,
                source,
            }
        };
        let mut schemes = BTreeMap::new();
        for (row, (keys, parameters)) in self.0.slot_keys().iter().enumerate() {
            let [public, rotations] = keys.bytes(parameters);
            let expected = public + rotations;
            let Some((own, rest)) = bytes.split_at_checked(expected) else {
                return Err(EngineError::Length {
                    step: STEP.to_owned(),
                    message: "the keys",
                    found: bytes.len(),
                    expected,
                });
            };
            bytes = rest;
            let (public, rotations) = own.split_at(public);
            let scheme = ServerSchemeKeys {
                public: PublicKey::decode(parameters, public).map_err(wire(row))?,
                rotations: match rotations.is_empty() {
                    true => None,
                    false => {
                        Some(EvaluationKeys::decode(parameters, rotations).map_err(wire(row))?)
                    }
                },
            };
            schemes.insert(keys.scheme, Arc::new(scheme));
        }
        Ok(ServerSlotKeys(schemes))
    }
}
