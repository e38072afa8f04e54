//! The opening of the result to the client. The server learns nothing, the client the value alone.
//!
//! Exact shares modulo `2^k` are added up. Shares with guard bits, or modulo a prime, are opened in
//! a garbled circuit: their errors, or their sum, would tell more than the value.

use pronghorn_graph::{
    fixed::{Interval, ValueSpec},
    shape::{self, OperatorError},
};
use pronghorn_mpc::circuit::{Builder, Circuit, CircuitError, signed_width};
use pronghorn_ring::bits::packed_len;

use crate::{
    cost::{Cost, StepCost},
    description::Description,
    share_form::{ShareForm, ShareRules, Tolerates},
    step::{Compiled, Derived, Place, StepPlan},
    steps::activation::{
        circuits::{Circuits, Output, groups},
        garbled,
    },
    trust::TrustLevel,
};

/// The last step of a plan on shares.
pub(crate) struct Open;

/// Whether a value is opened in a circuit: its shares may not simply be added up.
pub fn takes_circuit(form: &ShareForm) -> bool {
    form.guard > 0 || form.prime.is_some()
}

/// The circuit that opens a value with guard bits to the evaluator, rounded.
///
/// # Errors
/// Range and form do not go together.
pub fn circuit(value: &ValueSpec, form: &ShareForm) -> Result<Circuit, CircuitError> {
    let half = (1i64 << form.guard) >> 1;
    let (low, high) = form.lifted(value, 0);
    let mut builder = Builder::new();
    let shared = builder.shared_input(form.modulus()?, low, high)?;
    let word = builder.reconstruct(&shared, half);
    builder.output_revealed(&word[(form.guard as usize).min(word.len() - 1)..]);
    Ok(builder.finish())
}

/// Bits of the two's complement word that [`circuit`] opens.
pub fn opened_bits(value: &ValueSpec, form: &ShareForm) -> u32 {
    let half = (1i64 << form.guard) >> 1;
    let (low, high) = form.lifted(value, half);
    signed_width(low, high).saturating_sub(form.guard).max(1)
}

impl ShareRules for Open {
    fn tolerates(&self) -> Tolerates {
        Tolerates::Factor(1)
    }
}

impl StepPlan for Open {
    fn kind(&self) -> &'static str {
        "opening"
    }

    fn trust(&self) -> &'static [TrustLevel] {
        &[TrustLevel::TwoParty]
    }

    fn range(&self, inputs: &[&ValueSpec], value: &ValueSpec) -> Result<Interval, OperatorError> {
        let input = shape::one(inputs)?;
        shape::same(input.shape.clone(), &value.shape)?;
        Ok(Interval::of(input))
    }

    fn compile(&self, place: &Place<'_>) -> Result<Derived, String> {
        let (input, form) = (place.input(), place.input_form());
        if !takes_circuit(form) {
            return Ok(Derived::Nothing);
        }
        let output = Output::Signed {
            bits: opened_bits(input, form),
            low: input.low,
            high: input.high,
        };
        let circuit = |_| circuit(input, form);
        let groups = groups((None, &[0]), input, circuit)?;
        Ok(Derived::from(Circuits::new(groups, 0, output)))
    }

    fn cost(&self, step: &Compiled<'_>, batch: usize) -> Cost {
        let Derived::Circuits(circuits) = step.derived else {
            let values = step.place.value().len() * batch;
            return Cost::online(StepCost {
                bytes_down: packed_len(values, step.place.form().bits) as u64,
                rounds: 1,
                ..StepCost::default()
            });
        };
        // The result is opened at once: nothing of it is prepared.
        Cost::online(garbled::at_once(circuits, batch))
    }

    fn opens(&self) -> bool {
        true
    }

    fn describe(&self, _step: &Compiled<'_>) -> Description {
        Description::of("opened to the client")
    }
}
