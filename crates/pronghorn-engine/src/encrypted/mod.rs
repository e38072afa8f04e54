//! Polynomial networks on CKKS ciphertexts, without interaction (nGraph-HE2, section 3; trust level `encrypted`).
//!
//! Messages, in order (all lengths follow from the plan, whatever the number of images):
//! 1. client: the seed of every `a`, the seed of its public key's uniform half, and the public key's other half;
//! 2. client: rows of `b`, one an element of the input, [`rows_per_message`] at a time;
//! 3. server: rows of the answer, one an element of the result, as many polynomials as its degree in the secret, plus one.
//!
//! What is revealed: to the server nothing but shapes (RLWE). To the client its results and what the plan says: sizes,
//! parameters, scales. The answer is an encryption of the result and noise; the noise depends on the weights, and is hidden
//! under a flood of which the plan says how wide it is, the polynomials by encryptions of zero
//! ([`pronghorn_he::ckks::PublicKey::flood_words`] has the argument). Keys and randomness are fresh for every batch.
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

use pronghorn_he::ckks::{CkksError, Parameters};
use pronghorn_plan::{
    EncryptedPlan,
    cost::SEED_BYTES,
    plan::{Plan, StepKind},
};
use pronghorn_ring::{Word, bits};

use crate::{batch::rows_per_message, error::EngineError};

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
        let EncryptedPlan { degree, primes, .. } = &self.encrypted;
        Parameters::new(*degree, primes, &[]).map_err(|source| EngineError::CkksParameters {
            step: self.step.clone(),
            source,
        })
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

/// Packs whole polynomials `[poly][limb][N]` of `limbs` limbs, limb after limb to the bits of its prime.
fn pack<W: Word>(parameters: &Parameters<W>, limbs: usize, words: &[W], out: &mut Vec<u8>) {
    for (limb, words) in (0..limbs).cycle().zip(words.chunks_exact(parameters.n())) {
        bits::pack(words, parameters.basis().prime(limb).bits(), out);
    }
}

/// Undoes [`pack`], and checks that all words are residues.
fn unpack<W: Word>(
    parameters: &Parameters<W>,
    limbs: usize,
    bytes: &[u8],
    words: &mut [W],
    (shape, message, row): (&Shape, &'static str, usize),
) -> Result<(), EngineError> {
    let mut rest = bytes;
    for (limb, words) in (0..limbs)
        .cycle()
        .zip(words.chunks_exact_mut(parameters.n()))
    {
        let q = parameters.basis().prime(limb);
        let (bytes, after) = rest.split_at(bits::packed_len(words.len(), q.bits()));
        rest = after;
        bits::unpack(bytes, q.bits(), words).map_err(|source| EngineError::Packing {
            step: shape.step.clone(),
            message,
            row,
            source,
        })?;
        let most = words
            .iter()
            .fold(W::default(), |most, &word| most.max(word));
        if most >= q.word() {
            return Err(EngineError::Word {
                step: shape.step.clone(),
                message,
                row,
                modulus: q.value(),
            });
        }
    }
    Ok(())
}
