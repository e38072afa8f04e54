//! Parameters of layers on slots, and the keys that a client sends for them.

use std::collections::{BTreeMap, BTreeSet};

use pronghorn_he::bfv::{EvaluationKeys, Parameters, PublicKey};
use pronghorn_slot::Packing;
use serde::{Deserialize, Serialize};

/// Which of the parameters for a plaintext modulus: see [`Parameters::candidates_modulo`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SlotScheme {
    /// Degree `N` of the ring, and slots of a ciphertext.
    pub degree: usize,
    /// Number of the chain of primes.
    pub chain: u8,
}

/// The keys of a client for the steps with the same parameters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlotKeys {
    /// With which encryption.
    pub scheme: SlotScheme,
    /// Rotations to the left, ascending.
    pub steps: Vec<i64>,
    /// Whether rows are swapped.
    pub swap: bool,
}

impl SlotKeys {
    /// Bytes of the key that answers are hidden with, and of those of rotations.
    pub fn bytes(&self, parameters: &Parameters<u64>) -> [usize; 2] {
        let rotations = self.steps.len() + usize::from(self.swap);
        let evaluation = match rotations {
            0 => 0,
            _ => EvaluationKeys::encoded_len(parameters, rotations),
        };
        [PublicKey::encoded_len(parameters), evaluation]
    }
}

/// The keys for steps with these packings, with the parameters, in the order of both parties.
pub(crate) fn keys<'a>(
    packings: impl Iterator<Item = (SlotScheme, &'a Packing)>,
) -> Vec<(SlotKeys, Parameters<u64>)> {
    let mut all: BTreeMap<SlotScheme, (BTreeSet<i64>, bool, Parameters<u64>)> = BTreeMap::new();
    for (scheme, packing) in packings {
        let parameters = || packing.parameters().clone();
        let entry = all
            .entry(scheme)
            .or_insert_with(|| (BTreeSet::new(), false, parameters()));
        entry.0.extend(packing.steps());
        entry.1 |= packing.swaps();
    }
    let keys = all.into_iter().map(|(scheme, (steps, swap, parameters))| {
        let steps = steps.into_iter().collect();
        let keys = SlotKeys {
            scheme,
            steps,
            swap,
        };
        (keys, parameters)
    });
    keys.collect()
}
