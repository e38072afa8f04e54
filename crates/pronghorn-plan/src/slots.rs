//! Linear steps on slots: what a plan says of them, and the keys that all of them need.

use std::collections::{BTreeMap, BTreeSet};

use pronghorn_graph::geometry::ConvGeometry;
use pronghorn_he::bfv::{
    Answer, EvaluationKeys, Parameters, PublicKey, SeededCiphertext, workload::candidate_limbs,
};
use pronghorn_slot::{
    Objective, Packing, SlotError, Variant, choose_modulo, ciphertexts,
    cost::{DEGREES, cost},
};
use serde::{Deserialize, Serialize};

use crate::{
    cost::StepCost,
    plan::{Plan, StepKind},
};

/// A linear step by packed homomorphic encryption (Gazelle), on shares modulo a prime.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SlotPlan {
    /// Sizes of the convolution or dense layer.
    pub geometry: ConvGeometry,
    /// How it is computed.
    pub variant: Variant,
    /// With which encryption.
    pub scheme: SlotScheme,
    /// The prime that shares are taken modulo, of all steps on slots the same.
    pub t: u64,
}

/// Which of the parameters for a plaintext modulus: see [`Parameters::candidates_modulo`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SlotScheme {
    /// Degree `N` of the ring, and slots of a ciphertext.
    pub degree: usize,
    /// Number of the chain of primes.
    pub chain: u8,
}

impl SlotPlan {
    /// The cheapest for a layer whose shares are modulo `t`.
    ///
    /// # Errors
    /// When there is none.
    pub fn choose(geometry: &ConvGeometry, t: u64) -> Result<Self, SlotError> {
        let choice = choose_modulo(geometry, t, &Objective::default())?;
        let chain = Parameters::<u64>::candidates_modulo(choice.parameters.n(), t)
            .position(|found| found.is_ok_and(|found| found.hash() == choice.parameters.hash()))
            .ok_or(SlotError::NoVariant)?;
        Ok(Self {
            geometry: geometry.clone(),
            variant: choice.variant,
            scheme: SlotScheme {
                degree: choice.parameters.n(),
                chain: chain as u8,
            },
            t,
        })
    }

    /// Parameters of at least 128 bits of security.
    ///
    /// # Errors
    /// When there are none.
    pub fn parameters(&self) -> Result<Parameters<u64>, SlotError> {
        if !DEGREES.contains(&self.scheme.degree) {
            return Err(SlotError::NoVariant);
        }
        Parameters::candidate_modulo(self.scheme.degree, self.scheme.chain.into(), self.t)
            .ok_or(SlotError::NoVariant)?
            .map_err(SlotError::from)
    }

    /// Where values sit, and what is done with them.
    ///
    /// # Errors
    /// When layer, variant and parameters do not go together, or the flood does not fit.
    pub fn packing(&self) -> Result<Packing, SlotError> {
        let packing = Packing::new(&self.geometry, &self.variant, &self.parameters()?)?;
        packing.format()?;
        Ok(packing)
    }

    /// What the step costs for a batch, keys not counted; memory is left out.
    pub(crate) fn cost(&self, batch: usize) -> StepCost {
        let found = self
            .parameters()
            .and_then(|parameters| cost(&self.geometry, &self.variant, &parameters));
        let Ok(Some(found)) = found else {
            return StepCost::default();
        };
        StepCost {
            bytes_up: (batch * found.up) as u64,
            bytes_down: (batch * found.down) as u64,
            multiply_adds: (batch as u64).saturating_mul(self.geometry.multiply_adds()),
            rounds: 1,
            seconds: batch as f64 * 1e-6 * (found.server + found.client),
            ..StepCost::default()
        }
    }

    /// Words of 64 bits that the server holds for a batch: ciphertexts in and out.
    pub(crate) fn words(&self, batch: usize) -> u64 {
        let SlotScheme { degree, chain } = self.scheme;
        let sizes = ciphertexts(&self.geometry, &self.variant, degree).ok();
        let words = sizes
            .zip(candidate_limbs(degree, chain.into()))
            .map_or(0, |([inputs, outputs], limbs)| {
                (inputs + outputs) * 2 * limbs * degree
            });
        (batch as u64).saturating_mul(words as u64)
    }
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

/// The keys that a plan's steps on slots need, with the parameters, in the order of both parties; none of other plans.
///
/// # Errors
/// Of a plan that is not validated.
pub fn keys(plan: &Plan) -> Result<Vec<(SlotKeys, Parameters<u64>)>, SlotError> {
    let mut all: BTreeMap<SlotScheme, (BTreeSet<i64>, bool, Parameters<u64>)> = BTreeMap::new();
    for step in &plan.steps {
        let StepKind::Slots(slots) = &step.kind else {
            continue;
        };
        let packing = slots.packing()?;
        let parameters = packing.parameters().clone();
        let entry = all
            .entry(slots.scheme)
            .or_insert((BTreeSet::new(), false, parameters));
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
    Ok(keys.collect())
}

/// Bytes of all these keys, which a client sends before its first batch, once for all its connections.
pub fn key_bytes(plan: &Plan) -> u64 {
    keys(plan).map_or(0, |keys| {
        let bytes = keys
            .iter()
            .map(|(keys, parameters)| keys.bytes(parameters).iter().sum::<usize>() as u64);
        bytes.sum()
    })
}

/// Less than any step on slots sends and receives for so many values: the ciphertexts that hold them at degree 4096, two primes of 50 bits of `b` up, and two
/// polynomials of 25 bits down at least.
pub(crate) fn least_bytes(inputs: usize, outputs: usize) -> [u64; 2] {
    const SLOTS: usize = 4096;
    let ciphertexts = |values: usize| values.div_ceil(SLOTS) as u64;
    let words = SLOTS as u64;
    [
        ciphertexts(inputs) * words * 100 / 8,
        ciphertexts(outputs) * words * 50 / 8,
    ]
}

/// Bytes of a message that holds an encrypted input, and of one that holds an answer.
///
/// # Errors
/// When there is no room for the flood.
pub fn message_bytes(packing: &Packing) -> Result<[usize; 2], SlotError> {
    let parameters = packing.parameters();
    let answer = Answer::encoded_len(parameters, &packing.format()?);
    Ok([SeededCiphertext::encoded_len(parameters), answer])
}
