//! What a protocol knows of its steps, and what it sees of the plan around them.
//!
//! [`StepPlan`] is what the planner, the checks and the costs ask of a protocol. A [`Place`] is
//! what it gets to answer with: the plan's [`Outline`], which names no protocol. So protocols build
//! on this file, and only [`StepKind`](crate::StepKind) names them all.

use std::sync::Arc;

use pronghorn_graph::{
    fixed::{Interval, ValueSpec},
    shape::OperatorError,
};
use pronghorn_mpc::{lean::Party, ot::silent::Chain};
use pronghorn_slot::Packing;

use crate::{
    bands::{Band, Rows},
    cost::{Cost, Once, StepMemory},
    description::Description,
    flood::Lifetime,
    rlwe::Rlwe,
    share_form::{Node, ShareForm, ShareRules},
    steps::{
        activation::{circuits::Circuits, programs::Programs},
        linear::{layout::Layout, slot_keys::SlotScheme},
        matrices::product::Product as MatrixProduct,
    },
    trust::TrustLevel,
};

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
    /// The programs of a lean step.
    Lean(Arc<Programs>),
    /// Where matrices sit in polynomials.
    Matrices(Arc<MatrixProduct>),
}

impl From<Circuits> for Derived {
    fn from(circuits: Circuits) -> Self {
        Self::Circuits(Arc::new(circuits))
    }
}

/// The name of a step in messages: its number and kind, such as `7 (conv)`.
pub fn step_name(index: usize, kind: &str) -> String {
    format!("{index} ({kind})")
}

/// The number of the step that a [`step_name`] names; `None` for other text.
pub fn step_number(name: &str) -> Option<usize> {
    let (index, kind) = name.split_once(" (")?;
    kind.ends_with(')').then(|| index.parse().ok()).flatten()
}

/// A plan as protocols see it: the kinds, inputs, values and share rules of steps.
pub trait Outline {
    /// Number of steps.
    fn steps(&self) -> usize;

    /// Step `index`, which the plan has.
    fn node(&self, index: usize) -> Node<'_>;

    /// The step whose value is the result.
    fn output(&self) -> usize;

    /// Most images in one batch.
    fn max_batch(&self) -> usize;

    /// Bytes of a band of a batch, about ([`crate::bands`]).
    fn band_bytes(&self) -> u64;

    /// The kind of step `index` in a word, which the plan has.
    fn kind(&self, index: usize) -> &'static str;
}

/// A step within its plan.
#[derive(Clone, Copy)]
pub struct Place<'a> {
    /// The plan.
    pub plan: &'a dyn Outline,
    /// How each step's value is shared, by step.
    pub forms: &'a [ShareForm],
    /// Number of the step.
    pub index: usize,
}

impl<'a> Place<'a> {
    /// The step's number and kind, for messages.
    pub fn name(&self) -> String {
        step_name(self.index, self.plan.kind(self.index))
    }

    /// Shape, scale and range of the step's value.
    pub fn value(&self) -> &'a ValueSpec {
        self.plan.node(self.index).value
    }

    /// How the step's value is shared.
    pub fn form(&self) -> &'a ShareForm {
        &self.forms[self.index]
    }

    /// The values that the step reads.
    pub fn inputs(&self) -> impl ExactSizeIterator<Item = &'a ValueSpec> + use<'a> {
        let plan = self.plan;
        let inputs = plan.node(self.index).inputs.iter();
        inputs.map(move |&input| plan.node(input).value)
    }

    /// How the values that the step reads are shared.
    pub fn input_forms(&self) -> impl ExactSizeIterator<Item = &'a ShareForm> + use<'a> {
        let forms = self.forms;
        let inputs = self.plan.node(self.index).inputs.iter();
        inputs.map(move |&input| &forms[input])
    }

    /// Whether the server's shares of all inputs are known before the client's input.
    pub fn inputs_ahead(&self) -> bool {
        let mut ahead: Vec<bool> = Vec::with_capacity(self.index);
        for index in 0..self.index {
            let node = self.plan.node(index);
            let inputs = node.inputs.iter().all(|&input| ahead[input]);
            ahead.push(node.rules.is_ahead(inputs));
        }
        let inputs = self.plan.node(self.index).inputs;
        inputs.iter().all(|&input| ahead[input])
    }

    /// The first value that the step reads; its own, for a step that reads none.
    pub fn input(&self) -> &'a ValueSpec {
        self.inputs().next().unwrap_or(self.value())
    }

    /// How the first value that the step reads is shared; its own, for a step that reads none.
    pub fn input_form(&self) -> &'a ShareForm {
        self.input_forms().next().unwrap_or(self.form())
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
/// A new protocol is a folder under `steps` with an implementation. `steps/mod.rs` names it.
pub trait StepPlan: ShareRules {
    /// What the step does in a word, for messages.
    fn kind(&self) -> &'static str;

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

    /// Whether the value is the client's input.
    fn is_input(&self) -> bool {
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

    /// The rows of the inputs that rows of the value follow from, where the step can make some rows
    /// before others ([`crate::bands`]).
    fn rows(&self, _place: &Place<'_>) -> Option<Rows> {
        None
    }

    /// Whether the value, of one row, is a sum over the rows of the only input, which the step can
    /// take some at a time.
    fn folds(&self, _place: &Place<'_>) -> bool {
        false
    }

    /// Whether the protocol keeps rows of its input that it has read, for later bands.
    fn keeps_rows(&self) -> bool {
        false
    }

    /// Bytes held while the step makes a band, beyond shares, and those of them that stay for the
    /// next.
    fn band_memory(
        &self,
        _step: &Compiled<'_>,
        _batch: usize,
        _band: &Band,
    ) -> (StepMemory, StepMemory) {
        Default::default()
    }

    /// The sets of silent OT that the step uses, if any.
    fn silent(&self) -> Option<Chain> {
        None
    }

    /// Bits that the step drops of its input after an addend that no two runs share, if it does so:
    /// of all channels, or of each.
    fn dithers(&self) -> Option<&[u32]> {
        None
    }

    /// Whether the value is the index of a class, and the step that opens it tells no more.
    fn makes_class(&self) -> bool {
        false
    }

    /// Random OTs of an image whose sender is this party.
    fn random_ots(&self, _step: &Compiled<'_>, _sender: Party) -> u64 {
        0
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

    /// What the step's floods promise.
    fn flood(&self) -> Option<Lifetime> {
        None
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

#[cfg(test)]
mod tests {
    use super::{step_name, step_number};

    #[test]
    fn names_have_their_numbers() {
        for index in [0, 7, 16_383] {
            assert_eq!(step_number(&step_name(index, "conv")), Some(index));
        }
        for other in ["oblivious transfers", "7", "7 (conv", "x (conv)", ""] {
            assert_eq!(step_number(other), None, "{other}");
        }
    }
}
