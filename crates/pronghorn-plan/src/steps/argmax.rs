//! The index of the largest value on shares, by products of bits: before the opening, so that the
//! client learns a class and no value that it is taken from.
//!
//! Values are compared in rounds of pairs, and the last few each with each
//! ([`Cascade::argmax`]). Random OTs and messages are those of a lean step. Neither party learns
//! anything.

use pronghorn_graph::{
    fixed::{Interval, ValueSpec, argmax_bounds},
    shape::OperatorError,
};
use pronghorn_mpc::{
    lean::{Cascade, MOST_AT_ONCE, MOST_CLASSES, Party, argmax_width},
    ot::silent::Chain,
};
use serde::{Deserialize, Serialize};

use super::activation::{
    circuits::{Group, Indices},
    lean::{self, Transfers},
    programs::Programs,
};
use crate::{
    cost::{Cost, StepMemory},
    description::Description,
    share_form::{Node, ShareRules, Takes, Tolerates},
    step::{Compiled, Derived, Place, StepPlan},
    trust::TrustLevel,
};

/// The index of the largest value, the smallest of equal ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ArgMax {
    /// Values of an image up to which each is compared with each.
    pub at_once: u32,
    /// Where random OTs come from.
    pub transfers: Transfers,
}

impl Default for ArgMax {
    /// Pairs alone.
    fn default() -> Self {
        Self {
            at_once: 2,
            transfers: Transfers::default(),
        }
    }
}

impl ArgMax {
    /// Choices of [`at_once`](Self::at_once) for so many values.
    pub(crate) fn choices(classes: usize) -> impl Iterator<Item = u32> {
        // With one more or less, rounds of pairs leave as many values.
        let most = classes.min(MOST_AT_ONCE);
        let halves = std::iter::successors(Some(classes), |&left| Some(left.div_ceil(2)));
        let left = halves.take_while(|&left| left > 2).chain([2]);
        left.filter(move |&left| left <= most)
            .map(|left| left as u32)
    }
}

/// At least one comparison's errors on either side: a value, and one that it is compared with.
const COMPARED: u64 = 2;

impl ShareRules for ArgMax {
    fn takes(&self) -> Takes {
        Takes::PowerOfTwo
    }

    /// Errors of both values, which must not make equal ones different.
    fn tolerates(&self) -> Tolerates {
        Tolerates::Factor(COMPARED)
    }

    fn input_bits(&self, _bits: u32, _place: usize, input: &Node<'_>) -> u32 {
        let (low, high) = input.range();
        argmax_width(low, high)
    }

    fn is_ahead(&self, _inputs: bool) -> bool {
        false
    }
}

impl StepPlan for ArgMax {
    fn kind(&self) -> &'static str {
        "argmax"
    }

    fn trust(&self) -> &'static [TrustLevel] {
        &[TrustLevel::TwoParty]
    }

    fn range(&self, inputs: &[&ValueSpec], value: &ValueSpec) -> Result<Interval, OperatorError> {
        argmax_bounds(inputs, &value.shape)
    }

    fn check(&self, place: &Place<'_>) -> Result<(), String> {
        let (classes, bits) = (place.input().len(), place.value().fraction_bits);
        if classes > MOST_CLASSES {
            return Err(format!(
                "it has {classes} classes, more than {MOST_CLASSES}"
            ));
        }
        if bits != 0 {
            return Err(format!(
                "an index has no fraction bits, and this one {bits}"
            ));
        }
        Ok(())
    }

    /// A bound on the comparisons to compile, and the values.
    fn circuit_values(&self, place: &Place<'_>) -> Result<[usize; 2], String> {
        Ok([MOST_AT_ONCE, place.input().len()])
    }

    fn compile(&self, place: &Place<'_>) -> Result<Derived, String> {
        let (value, form) = (place.input(), place.input_form());
        if form.prime.is_some() {
            return Err("its input is shared modulo a prime: it takes a power of two".into());
        }
        let modulus = place.form().modulus();
        let modulus = modulus.map_err(|error| error.to_string())?;
        let input = lean::input((value, form));
        let cascade = Cascade::argmax(value.len(), self.at_once as usize, input, modulus);
        let cascade = cascade.map_err(|error| error.to_string())?;
        Ok(Derived::from(Programs::new(vec![Group {
            circuit: cascade.into(),
            elements: Indices::All(1),
            sources: Indices::All(value.len()),
        }])))
    }

    fn cost(&self, step: &Compiled<'_>, batch: usize) -> Cost {
        let programs = step.derived.lean();
        programs.map_or_else(Cost::default, |programs| {
            self.transfers.cost(programs, batch)
        })
    }

    fn memory(&self, step: &Compiled<'_>, batch: usize) -> StepMemory {
        let programs = step.derived.lean();
        programs.map_or_else(StepMemory::default, |programs| {
            self.transfers.memory(programs, batch)
        })
    }

    fn makes_class(&self) -> bool {
        true
    }

    fn silent(&self) -> Option<Chain> {
        self.transfers.chain()
    }

    fn random_ots(&self, step: &Compiled<'_>, sender: Party) -> u64 {
        let programs = step.derived.lean();
        programs.map_or(0, |programs| programs.all_ots(1, sender))
    }

    fn describe(&self, step: &Compiled<'_>) -> Description {
        let classes = step.place.input().len();
        let Some(programs) = step.derived.lean() else {
            return Description::of(format!("argmax of {classes}"));
        };
        let [bits, ots] = programs.most();
        let source = self.transfers.source();
        Description::of(format!(
            "argmax of {classes}, {bits} bits and {ots} {source} OTs, {} messages",
            programs.turns()
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn choices_are_the_numbers_that_rounds_leave() {
        let choices = |classes| ArgMax::choices(classes).collect::<Vec<_>>();
        assert_eq!(choices(2), [2]);
        assert_eq!(choices(10), [10, 5, 3, 2]);
        assert_eq!(choices(1000), [63, 32, 16, 8, 4, 2]);
    }
}
