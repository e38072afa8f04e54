//! The steps of a plan: one protocol each, and what the planner, the checks and the costs ask of
//! it.
//!
//! [`StepKind`] is what travels: one variant a protocol, with the fields of that protocol alone.
//! [`StepPlan`] is what a protocol knows of itself. [`StepKind::as_step`] is the one place that
//! tells protocols apart; everything else in this crate goes through the trait.

use pronghorn_graph::{
    fixed::{Interval, LocalOp, ValueSpec},
    shape::OperatorError,
};
use serde::{Deserialize, Serialize};

use crate::{
    cost::{Cost, Once, StepMemory},
    plan::{Plan, Step},
    rlwe::Rlwe,
    share_form::{ShareForm, ShareRules},
    steps::{
        activation::{
            garbled::{Circuits, Garbled},
            reveal::Reveal,
            square::Square,
        },
        encrypted::EncryptedPlan,
        input::Input,
        linear::{
            clear::ClearLinear,
            coefficient::{CoefficientLinear, Layout},
            shared::SharedLinear,
            slots::{SlotLinear, SlotScheme},
        },
        open::Open,
    },
    text::Description,
    trust::TrustLevel,
};
use pronghorn_slot::Packing;
use std::sync::Arc;

/// A step's protocol. Between steps each party holds an additive share of every value.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum StepKind {
    /// The client's input: its share is the value, the server's is zero.
    Input,
    /// A linear layer in the batch engine, whose answer the client decrypts.
    ClearLinear(ClearLinear),
    /// A linear layer on shares in the batch engine: one ciphertext row an element.
    SharedLinear(SharedLinear),
    /// A linear layer on shares in the coefficient engine: one coefficient an element.
    CoefficientLinear(CoefficientLinear),
    /// A linear layer on shares in the slot engine: one slot an element.
    SlotLinear(SlotLinear),
    /// Each party works on its own share. No message.
    Local(LocalOp),
    /// Activations by the client, in the clear.
    Reveal(Reveal),
    /// Activations on shares, in garbled circuits: the server garbles, the client evaluates.
    Garbled(Garbled),
    /// The square on shares, by oblivious transfer.
    Square,
    /// The client learns the value, and no more of the shares.
    Open,
    /// A whole polynomial network on ciphertexts, from the client's input to the client's result.
    Encrypted(EncryptedPlan),
    /// A protocol that hides nothing, for tests. Last, so that others keep their bytes.
    #[cfg(feature = "toy-protocols")]
    Toy(crate::steps::toy::Toy),
}

impl From<Circuits> for Derived {
    fn from(circuits: Circuits) -> Self {
        Self::Circuits(Arc::new(circuits))
    }
}

impl StepKind {
    /// The protocol's own knowledge of the step.
    pub fn as_step(&self) -> &dyn StepPlan {
        match self {
            Self::Input => &Input,
            Self::ClearLinear(linear) => linear,
            Self::SharedLinear(linear) => linear,
            Self::CoefficientLinear(linear) => linear,
            Self::SlotLinear(linear) => linear,
            Self::Local(op) => op,
            Self::Reveal(reveal) => reveal,
            Self::Garbled(garbled) => garbled,
            Self::Square => &Square,
            Self::Open => &Open,
            Self::Encrypted(encrypted) => encrypted,
            #[cfg(feature = "toy-protocols")]
            Self::Toy(toy) => toy.as_step(),
        }
    }
}

/// What a protocol derives from the plan, once for all batches.
#[derive(Clone)]
pub enum Derived {
    /// Nothing beyond the step's fields and share forms.
    Nothing,
    /// Where values sit in the polynomials of the coefficient engine.
    Polynomials(Arc<Layout>),
    /// Where values sit in the slots of ciphertexts.
    Slots {
        /// Ring and primes.
        scheme: SlotScheme,
        /// Positions, rotations and products.
        packing: Arc<Packing>,
    },
    /// The circuits of a garbled step.
    Circuits(Arc<Circuits>),
}

/// A step within its plan.
#[derive(Clone, Copy)]
pub struct Place<'a> {
    /// The plan.
    pub plan: &'a Plan,
    /// How each step's value is shared, by step.
    pub forms: &'a [ShareForm],
    /// Number of the step.
    pub index: usize,
}

impl<'a> Place<'a> {
    /// The step.
    pub fn step(&self) -> &'a Step {
        &self.plan.steps[self.index]
    }

    /// Shape, scale and range of the step's value.
    pub fn value(&self) -> &'a ValueSpec {
        &self.step().value
    }

    /// How the step's value is shared.
    pub fn form(&self) -> &'a ShareForm {
        &self.forms[self.index]
    }

    /// The values that the step reads.
    pub fn inputs(&self) -> impl ExactSizeIterator<Item = &'a ValueSpec> + use<'a> {
        let plan = self.plan;
        self.step()
            .inputs
            .iter()
            .map(move |&input| &plan.steps[input].value)
    }

    /// The first value that the step reads; its own, for a step that reads none.
    pub fn input(&self) -> &'a ValueSpec {
        self.inputs().next().unwrap_or(self.value())
    }

    /// How the first value that the step reads is shared; its own, for a step that reads none.
    pub fn input_form(&self) -> &'a ShareForm {
        let input = self.step().inputs.first();
        &self.forms[input.copied().unwrap_or(self.index)]
    }
}

/// A step within a checked plan.
#[derive(Clone, Copy)]
pub struct Compiled<'a> {
    /// The step within its plan.
    pub place: Place<'a>,
    /// What its protocol derived.
    pub derived: &'a Derived,
}

/// What a protocol knows of a step of its own.
///
/// A new protocol is a folder under `steps` with an implementation, a variant of [`StepKind`], and
/// a line of [`StepKind::as_step`].
pub trait StepPlan: ShareRules {
    /// The trust levels that the protocol belongs to.
    fn trust(&self) -> &'static [TrustLevel];

    /// The range of the step's value that inputs and fields allow. Of a linear layer the declared
    /// one, since its weights are not in the plan.
    ///
    /// # Errors
    /// Inputs, shape and fields do not go together.
    fn range(&self, inputs: &[&ValueSpec], value: &ValueSpec) -> Result<Interval, OperatorError>;

    /// Values that one image's pools take: a bound on work, from a shape that is not checked yet.
    fn pooled(&self, _outputs: usize) -> usize {
        0
    }

    /// Whether the client learns the value.
    fn opens(&self) -> bool {
        false
    }

    /// Checks the fields: parameters are secure and carry inputs and value.
    ///
    /// # Errors
    /// The reason for a refusal.
    fn check(&self, _place: &Place<'_>) -> Result<(), String> {
        Ok(())
    }

    /// Values in the step's circuits, windows of one size counted once; and in all its windows.
    ///
    /// # Errors
    /// The reason for a refusal.
    fn circuit_values(&self, _place: &Place<'_>) -> Result<[usize; 2], String> {
        Ok([0, 0])
    }

    /// Derives what all batches share.
    ///
    /// # Errors
    /// The reason for a refusal.
    fn compile(&self, _place: &Place<'_>) -> Result<Derived, String> {
        Ok(Derived::Nothing)
    }

    /// What the step costs for a batch: once, offline and online.
    fn cost(&self, _step: &Compiled<'_>, _batch: usize) -> Cost {
        Cost::default()
    }

    /// What a connection exchanges and keeps for the step, before the first batch.
    fn once(&self, _step: &Compiled<'_>) -> Once {
        Once::default()
    }

    /// Bytes held while the step runs, beyond the shares that it reads and makes.
    fn memory(&self, _step: &Compiled<'_>, _batch: usize) -> StepMemory {
        StepMemory::default()
    }

    /// The step in words and numbers, for people.
    fn describe(&self, step: &Compiled<'_>) -> Description;

    /// Ring, modulus and dropped bits, of a linear step by RLWE.
    fn rlwe(&self) -> Option<&Rlwe> {
        None
    }

    /// Images of a full block: batches of whole blocks waste nothing.
    fn block(&self) -> usize {
        1
    }

    /// Bound on the error of the value, where ciphertexts are approximate.
    fn error(&self) -> Option<f64> {
        None
    }

    /// Images that a batch counts as against a quota.
    fn charged(&self, batch: usize) -> usize {
        batch
    }
}
