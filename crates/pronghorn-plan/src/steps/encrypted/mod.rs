//! Planning for trust level `encrypted`: a polynomial network on CKKS ciphertexts, in one round.
//!
//! One ciphertext holds one tensor element of up to `N / 2` images, one a slot (nGraph-HE2, section
//! 2.3.3). The server works through a [`Program`]: layers with small integer weights, products of
//! ciphertexts, and rescaling where the [`schedule`](crate::planner::schedule) puts it. What the
//! client needs to know is in [`EncryptedPlan`]: parameters and sizes, nothing of the layers in
//! between.
//!
//! * **Lazy relinearisation, to its end.** A product of ciphertexts of `i` and `j` polynomials has
//!   `i + j - 1`, and the client, who has the key, decrypts any number. A network of depth 2 needs
//!   no key switching at all: no keys on the wire, and no special prime in the modulus, which buys
//!   a smaller ring.
//! * **Lazy rescaling** (nGraph-HE2, section 3.3.1): up to the next product instead of after each
//!   layer, so that it meets 100 ciphertexts of CryptoNets and not 845; what is left between two
//!   rescalings acts on each word alone.
//! * **Function privacy.** The answer is re-randomised and flooded ([`EncryptedPlan::flood_bits`]).

mod parameters;
pub mod program;
mod validate;

use pronghorn_graph::{
    fixed::{Interval, ValueSpec},
    shape::{self, OperatorError},
};

pub use parameters::{DEGREES, EncryptedPlan, KEY_BATCHES, MAX_LIMBS, MAX_POLYS, modulus_bits};
pub use program::{Program, ProgramNode, ProgramOp};

use crate::{
    cost::{Cost, Memory, Once, SEED_BYTES, Seconds, StepCost, StepMemory},
    description::Description,
    flood::Lifetime,
    rlwe::security_of,
    share_form::ShareRules,
    step::{Compiled, Place, StepPlan},
    trust::TrustLevel,
};

impl ShareRules for EncryptedPlan {}

impl StepPlan for EncryptedPlan {
    fn kind(&self) -> &'static str {
        "network"
    }

    fn trust(&self) -> &'static [TrustLevel] {
        &[TrustLevel::Encrypted]
    }

    fn range(&self, inputs: &[&ValueSpec], value: &ValueSpec) -> Result<Interval, OperatorError> {
        shape::elements(&value.shape)?;
        shape::one(inputs)?;
        Ok(Interval::of(value))
    }

    fn check(&self, place: &Place<'_>) -> Result<(), String> {
        validate::validate(self, place)
    }

    fn cost(&self, step: &Compiled<'_>, _batch: usize) -> Cost {
        let (inputs, outputs) = (step.place.input().len(), step.place.value().len());
        let keys = SEED_BYTES + self.key_set_bytes();
        Cost::online(StepCost {
            bytes_up: (keys + inputs * self.request_row_bytes()) as u64,
            bytes_down: (outputs * self.answer_row_bytes()) as u64,
            rounds: 1,
            seconds: Seconds::products(self.server_seconds),
            ..StepCost::default()
        })
    }

    fn once(&self, _step: &Compiled<'_>) -> Once {
        Once {
            keys: self.key_memory(),
            ..Once::default()
        }
    }

    fn memory(&self, _step: &Compiled<'_>, _batch: usize) -> StepMemory {
        Memory {
            server: self.server_memory,
            client: 0,
        }
    }

    fn describe(&self, _step: &Compiled<'_>) -> Description {
        let (degree, bits) = (self.degree, self.modulus_bits());
        let parameters = format!(
            "N {degree}, {} primes ({bits} bits), scale 2^{}, answers of {} polynomials and {} \
             primes, flooded within 2^{} (2^-{} over {} batches), error {:.1e}, {}",
            self.primes.len(),
            self.scale_log,
            self.answer_polys,
            self.answer_limbs,
            self.flood_log,
            self.flood_bits,
            self.key_batches,
            self.error,
            security_of(degree, bits)
        );
        Description {
            what: "the whole network, on ciphertexts".into(),
            ring: format!("N {degree}, {bits} bits"),
            parameters,
        }
    }

    fn flood(&self) -> Option<Lifetime> {
        Some(Lifetime {
            bits: self.flood_bits,
            count: self.key_batches,
        })
    }

    fn error(&self) -> Option<f64> {
        Some(self.error)
    }

    fn charged(&self, _batch: usize) -> usize {
        self.slots()
    }
}
