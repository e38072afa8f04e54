//! Polynomial networks on CKKS ciphertexts, without interaction (nGraph-HE2, section 3; trust level `encrypted`).
//!
//! Messages, in order (all lengths follow from the plan, whatever the number of images):
//! 1. client, once a connection: the seed of every `a`, the seed of its public key's uniform half, and the public key's
//!    other half; then, where the plan relinearises, its evaluation keys;
//! 2. client: rows of `b`, one an element of the input, [`rows_per_message`] at a time;
//! 3. server: rows of the answer, one an element of the result, as many polynomials as its degree in the secret, plus one.
//!
//! What is revealed: to the server nothing but shapes (RLWE). To the client its results and what the plan says: sizes,
//! parameters, scales. The answer is an encryption of the result and noise; the noise depends on the weights, and is hidden
//! under a flood of which the plan says how wide it is, the polynomials by encryptions of zero
//! ([`pronghorn_he::ckks::PublicKey::flood_words`] has the argument). Keys are fresh for every connection, randomness for
//! every batch.
//!
//! Results stay with the client: whoever shows decrypted CKKS values to others gives the key away (Li, Micciancio,
//! EUROCRYPT 2021).

pub mod client;
mod network;
mod request;
pub mod server;
mod stage;
mod values;

pub use network::Network;

use std::sync::{Mutex, MutexGuard, PoisonError};

use pronghorn_he::ckks::{CkksError, Parameters, WireError};
use pronghorn_plan::{
    EncryptedPlan,
    cost::SEED_BYTES,
    plan::{Plan, StepKind},
};
use pronghorn_ring::Word;

use crate::{batch::rows_per_message, error::EngineError};

/// More than the header of evaluation keys.
const KEY_HEADER_BYTES: usize = 256;

/// Keys are whole between operations, so a panic elsewhere leaves them usable.
fn lock<T>(slot: &Mutex<T>) -> MutexGuard<'_, T> {
    slot.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The sizes both parties' machines share.
#[derive(Clone)]
pub(crate) struct Shape {
    /// Name of the step, for messages.
    pub step: String,
    /// Parameters.
    pub encrypted: EncryptedPlan,
    /// Rows in.
    pub inputs: usize,
    /// Fraction bits of the input.
    pub input_bits: i32,
    /// Rows out.
    pub outputs: usize,
    /// Fraction bits of the result.
    pub output_bits: i32,
    /// Smallest integer of the result.
    pub low: i32,
    /// Largest integer of the result.
    pub high: i32,
}

impl Shape {
    /// The shape of encrypted step `index`; `None` when that step is another.
    pub fn of(plan: &Plan, index: usize) -> Option<Self> {
        let step = &plan.steps[index];
        let StepKind::Encrypted(encrypted) = &step.kind else {
            return None;
        };
        let input = &plan.steps[step.inputs[0]].value;
        Some(Self {
            step: step.name.clone(),
            encrypted: encrypted.clone(),
            inputs: input.len(),
            input_bits: input.fraction_bits,
            outputs: step.value.len(),
            output_bits: step.value.fraction_bits,
            low: step.value.low,
            high: step.value.high,
        })
    }

    /// Rows in and out: the step's share of the progress.
    pub fn rows(&self) -> u64 {
        (self.inputs + self.outputs) as u64
    }

    /// Bytes of the first message.
    fn keys_bytes(&self) -> usize {
        2 * SEED_BYTES + self.encrypted.public_key_bytes()
    }

    /// Most bytes of the second message: the keys and what names them.
    fn evaluation_keys_bytes(&self) -> usize {
        self.encrypted.evaluation_key_bytes() + KEY_HEADER_BYTES
    }

    /// Rows and bytes of the request message that starts at row `done`.
    fn request(&self, done: usize) -> (usize, usize) {
        let row = self.encrypted.request_row_bytes();
        let rows = rows_per_message(row).min(self.inputs - done);
        (rows, rows * row)
    }

    /// Rows and bytes of the answer message that starts at row `done`.
    fn answer(&self, done: usize) -> (usize, usize) {
        let row = self.encrypted.answer_row_bytes();
        let rows = rows_per_message(row).min(self.outputs - done);
        (rows, rows * row)
    }

    /// The ring and the modulus.
    fn parameters<W: Word>(&self) -> Result<Parameters<W>, EngineError> {
        parameters(&self.encrypted, &self.step)
    }

    fn wire(&self, message: &'static str, row: usize) -> impl Fn(WireError) -> EngineError + '_ {
        move |source| EngineError::Wire {
            step: self.step.clone(),
            message,
            row,
            source,
        }
    }

    fn ckks(&self) -> impl Fn(CkksError) -> EngineError + '_ {
        |source| EngineError::Ckks {
            step: self.step.clone(),
            source,
        }
    }

    fn length(
        &self,
        message: &'static str,
        found: usize,
        expected: usize,
    ) -> Result<(), EngineError> {
        if found == expected {
            return Ok(());
        }
        Err(EngineError::Length {
            step: self.step.clone(),
            message,
            found,
            expected,
        })
    }
}

/// The ring and the modulus of a plan.
fn parameters<W: Word>(plan: &EncryptedPlan, step: &str) -> Result<Parameters<W>, EngineError> {
    Parameters::new(plan.degree, &plan.primes, &plan.special_primes).map_err(|source| {
        EngineError::CkksParameters {
            step: step.to_owned(),
            source,
        }
    })
}
