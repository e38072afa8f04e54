//! The protocol that an activation could have instead of its own.
//!
//! A chain of functions on shares is a garbled circuit or a lean program, with one result. Each is
//! the other's runner-up, where it is possible at all.

use crate::{
    checked::CheckedPlan,
    cost::{StepCost, StepMemory},
    step::{Compiled, Derived},
    steps::{
        StepKind,
        activation::{
            garbled::Garbled,
            lean::{Lean, Transfers},
        },
    },
};

/// A protocol that could take the place of a step's.
pub struct RunnerUp {
    name: &'static str,
    kind: StepKind,
    derived: Derived,
}

impl RunnerUp {
    /// The other protocol of step `index`, with silent OTs where it is lean; `None` where there is
    /// no other. Takes as long as compiling a step of that kind.
    pub fn of(plan: &CheckedPlan, index: usize) -> Option<Self> {
        let (name, kind) = match &plan.steps[index].kind {
            StepKind::Garbled(Garbled { ops }) => {
                let (ops, transfers) = (ops.clone(), Transfers::Silent);
                ("a lean program", StepKind::Lean(Lean { ops, transfers }))
            }
            StepKind::Lean(Lean { ops, .. }) => {
                let ops = ops.clone();
                ("a garbled circuit", StepKind::Garbled(Garbled { ops }))
            }
            _ => return None,
        };
        let derived = kind.as_step().compile(&plan.place(index)).ok()?;
        Some(Self {
            name,
            kind,
            derived,
        })
    }

    /// Its name.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// The cost of the step by this protocol, nothing prepared.
    pub fn cost(&self, plan: &CheckedPlan, index: usize, batch: usize) -> StepCost {
        let step = self.compiled(plan, index);
        self.kind.as_step().cost(&step, batch).at_once
    }

    /// What both parties hold for the step of one image.
    pub(crate) fn memory(&self, plan: &CheckedPlan, index: usize) -> StepMemory {
        let step = self.compiled(plan, index);
        self.kind.as_step().memory(&step, 1)
    }

    /// The step with this protocol.
    pub(crate) fn compiled<'a>(&'a self, plan: &'a CheckedPlan, index: usize) -> Compiled<'a> {
        Compiled {
            place: plan.place(index),
            derived: &self.derived,
        }
    }

    /// Whether it is lean.
    pub(crate) fn is_lean(&self) -> bool {
        self.derived.lean().is_some()
    }

    /// The protocol.
    pub(crate) fn kind(&self) -> &StepKind {
        &self.kind
    }

    /// This protocol with OTs from there, where it is lean.
    pub(crate) fn with(mut self, transfers: Transfers) -> Self {
        if let StepKind::Lean(lean) = &mut self.kind {
            lean.transfers = transfers;
        }
        self
    }

    /// What a step of this protocol is.
    pub(crate) fn into_kind(self) -> StepKind {
        self.kind
    }
}
