//! A linear layer on shares in the slot engine (`two-party`): packed homomorphic encryption
//! (Gazelle).
//!
//! One ciphertext for many elements of an image, one slot an element. Shares are modulo one prime
//! for all such layers of a plan. The client sends rotation keys, once a client and server.

use std::sync::Arc;

use pronghorn_graph::{
    fixed::{Interval, ValueSpec},
    geometry::ConvGeometry,
    shape::OperatorError,
};
use pronghorn_he::bfv::{Answer, Parameters, SeededCiphertext, workload::candidate_limbs};
use pronghorn_slot::{
    Objective, Packing, SlotError, Variant, choose_modulo, ciphertexts,
    cost::{DEGREES, cost},
};
use serde::{Deserialize, Serialize};

pub use super::slot_keys::{SlotKeys, SlotScheme};
use super::{describe, kind, range};
use crate::{
    cost::{Cost, Memory, Seconds, StepCost, StepMemory},
    description::Description,
    share_form::{self, LayerRules, LayerShares},
    step::{Compiled, Derived, Place, StepPlan},
    trust::TrustLevel,
};

/// A linear layer on shares in the slot engine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SlotLinear {
    /// Sizes of the convolution or dense layer.
    pub geometry: ConvGeometry,
    /// How it is computed.
    pub variant: Variant,
    /// With which encryption.
    pub scheme: SlotScheme,
    /// The prime of the shares, the same for all such steps of a plan.
    pub t: u64,
}

impl SlotLinear {
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
    /// When layer, variant and parameters do not go together, or the noise does not fit.
    pub fn packing(&self) -> Result<Packing, SlotError> {
        let packing = Packing::new(&self.geometry, &self.variant, &self.parameters()?)?;
        packing.format()?;
        Ok(packing)
    }

    /// Words of 64 bits that the server holds for a batch: ciphertexts in and out.
    fn words(&self, batch: usize) -> u64 {
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

/// A lower bound on the bytes of a layer on slots, up and down: the ciphertexts that hold the
/// values at degree 4096, two primes of 50 bits of `b` up, and two polynomials of 25 bits down.
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
/// When there is no room for the noise.
pub fn message_bytes(packing: &Packing) -> Result<[usize; 2], SlotError> {
    let parameters = packing.parameters();
    let answer = Answer::encoded_len(parameters, &packing.format()?);
    Ok([SeededCiphertext::encoded_len(parameters), answer])
}

impl LayerRules for SlotLinear {
    fn layer_shares(&self) -> LayerShares {
        LayerShares::Residues(Some(self.t))
    }
}

impl StepPlan for SlotLinear {
    fn kind(&self) -> &'static str {
        kind(&self.geometry)
    }

    fn trust(&self) -> &'static [TrustLevel] {
        &[TrustLevel::TwoParty]
    }

    fn range(&self, inputs: &[&ValueSpec], value: &ValueSpec) -> Result<Interval, OperatorError> {
        range(&self.geometry, inputs, value)
    }

    fn check(&self, place: &Place<'_>) -> Result<(), String> {
        let most = share_form::reach(place.value());
        if self.t >> 31 != 0 || u64::from(most) > self.t / 2 {
            return Err(format!(
                "its values of up to {most} are not residues modulo {}, of at most 31 bits",
                self.t
            ));
        }
        let plan = place.plan;
        let mut primes = (0..plan.steps()).map(|step| plan.node(step).rules.prime());
        if primes.any(|prime| prime.is_some_and(|prime| prime != self.t)) {
            return Err("its prime is not that of the other steps on slots".into());
        }
        Ok(())
    }

    fn compile(&self, _place: &Place<'_>) -> Result<Derived, String> {
        let packing = self.packing().map_err(|error| error.to_string())?;
        Ok(Derived::Slots {
            scheme: self.scheme,
            packing: Arc::new(packing),
        })
    }

    fn cost(&self, step: &Compiled<'_>, batch: usize) -> Cost {
        let Derived::Slots { packing, .. } = step.derived else {
            return Cost::default();
        };
        let Ok(Some(found)) = cost(&self.geometry, &self.variant, packing.parameters()) else {
            return Cost::default();
        };
        let cost = StepCost {
            bytes_up: (batch * found.up) as u64,
            bytes_down: (batch * found.down) as u64,
            multiply_adds: (batch as u64).saturating_mul(self.geometry.multiply_adds()),
            rounds: 1,
            seconds: Seconds::encryption(batch as f64 * 1e-6 * (found.server + found.client)),
            ..StepCost::default()
        };
        Cost::online(cost.with_waits())
    }

    fn memory(&self, _step: &Compiled<'_>, batch: usize) -> StepMemory {
        Memory::both(8 * self.words(batch))
    }

    fn describe(&self, step: &Compiled<'_>) -> Description {
        let what = describe("slot engine", &self.geometry);
        let Derived::Slots { packing, .. } = step.derived else {
            return Description::of(what);
        };
        let (parameters, counts) = (packing.parameters(), packing.counts());
        let security = match parameters.security() {
            Some(_) => "128-bit security",
            None => "below 128-bit security",
        };
        let (n, bits) = (parameters.n(), parameters.log_modulus());
        let details = format!(
            "N {n}, q of {bits:.0} bits, t {}, {} and {} ciphertexts, {} and {} rotations of inputs \
             and outputs, {} products, {security}",
            self.t,
            counts.inputs,
            counts.outputs,
            counts.input_rotations,
            counts.output_rotations,
            counts.products,
        );
        Description {
            what,
            ring: format!("N {n}, {bits:.0} bits"),
            parameters: details,
        }
    }
}
