//! What a garbled step computes.

use std::sync::Arc;

use pronghorn_mpc::circuit::Opening;
pub use pronghorn_plan::steps::activation::garbled::{Circuits, Group, Indices, Output};

use crate::{error::EngineError, share::Share};

/// A garbled step of a batch: every element of the output is one instance of a circuit for each
/// image. Both parties have the same one, from the plan.
#[derive(Clone)]
pub struct Layout {
    /// Name of the step, for messages.
    pub step: String,
    /// Elements of the input, of one image.
    pub inputs: usize,
    /// Elements of the output, of one image.
    pub outputs: usize,
    /// Images.
    pub images: usize,
    /// The circuits, and the elements of the output that each makes.
    pub circuits: Arc<Circuits>,
}

/// Words of a batch have 32 bits.
const MOST_BITS: u32 = i32::BITS;
/// Words of a batch at most.
const MOST_WORDS: usize = isize::MAX as usize / size_of::<i32>();

impl Layout {
    /// Rows to report progress in: elements of the output.
    pub fn rows(&self) -> usize {
        self.outputs
    }

    /// Checks that everything goes together.
    pub(super) fn check(&self) -> Result<(), EngineError> {
        if let Output::Signed { bits, .. } = self.circuits.output
            && !(1..=MOST_BITS).contains(&bits)
        {
            let (found, bound) = (bits as usize, MOST_BITS as usize);
            return Err(self.error("the width of the output", found, "1 to", bound));
        }
        self.circuits
            .groups
            .iter()
            .try_for_each(|group| self.check_group(group))?;
        let alike = |pair: &[Group]| pair[0].circuit.openings().eq(pair[1].circuit.openings());
        if !self.circuits.groups.windows(2).all(alike) {
            return Err(self.unsupported("its circuits leave shares of different moduli"));
        }
        self.check_outputs()
    }

    fn check_group(&self, group: &Group) -> Result<(), EngineError> {
        let (elements, words) = (group.elements.len(), group.words());
        let expected = elements.saturating_mul(words);
        if group.sources.len() != expected {
            let found = group.sources.len();
            return Err(self.error("the number of sources", found, "exactly", expected));
        }
        if let Some(source) = group.sources.iter().find(|&source| source >= self.inputs) {
            return Err(self.error("a source", source, "below", self.inputs));
        }
        if !group.circuit.evaluator_words().eq(group.garbler_words())
            || group.circuit.labelled_words() != words
            || words == 0
        {
            return Err(self.unsupported("its circuit is not one on shares of both parties"));
        }
        if group.circuit.evaluator_words().any(|bits| bits > MOST_BITS) {
            return Err(self.unsupported("its circuit takes shares of more than 32 bits"));
        }
        let mut openings = group.circuit.openings();
        let fits = match (openings.next(), self.circuits.output) {
            (Some(Opening::Sum(modulus)), Output::Shares) => modulus.bits() <= MOST_BITS,
            (Some(Opening::Revealed), Output::Unsigned | Output::Signed { .. }) => true,
            _ => false,
        };
        match fits && openings.next().is_none() {
            true => Ok(()),
            false => Err(self.unsupported("its circuit has not the one output that the step has")),
        }
    }

    /// Every element of the output is made once.
    fn check_outputs(&self) -> Result<(), EngineError> {
        let groups = &self.circuits.groups;
        let elements = || groups.iter().flat_map(|group| group.elements.iter());
        let (found, outputs) = (elements().count(), self.outputs);
        if found != outputs {
            return Err(self.error("the number of elements made", found, "exactly", outputs));
        }
        check_shape(&self.step, &Share::Zero, outputs, self.images)?;
        let mut made = vec![false; outputs];
        for element in elements() {
            match made.get_mut(element) {
                Some(made) if !*made => *made = true,
                Some(_) => return Err(self.unsupported("an element of its output is made twice")),
                None => return Err(self.error("an element", element, "below", outputs)),
            }
        }
        Ok(())
    }

    /// Checks that a share of the input has its shape.
    pub(super) fn check_input(&self, share: &Share) -> Result<(), EngineError> {
        check_shape(&self.step, share, self.inputs, self.images)?;
        Ok(())
    }

    fn unsupported(&self, reason: &'static str) -> EngineError {
        EngineError::Unsupported {
            step: self.step.clone(),
            reason,
        }
    }

    fn error(
        &self,
        field: &'static str,
        found: usize,
        wanted: &'static str,
        bound: usize,
    ) -> EngineError {
        let step = self.step.clone();
        EngineError::Layout {
            step,
            field,
            found,
            wanted,
            bound,
        }
    }
}

/// Checks that a share has so many elements and images; zero has any number. The number of its
/// words.
pub(crate) fn check_shape(
    step: &str,
    share: &Share,
    elements: usize,
    images: usize,
) -> Result<usize, EngineError> {
    let error = |field, found, wanted, bound| EngineError::Layout {
        step: step.to_owned(),
        field,
        found,
        wanted,
        bound,
    };
    if images == 0 {
        return Err(error("the number of images", images, "at least", 1));
    }
    let words = elements
        .checked_mul(images)
        .filter(|&words| words <= MOST_WORDS);
    let Some(words) = words else {
        return Err(error(
            "the number of elements",
            elements,
            "at most",
            MOST_WORDS / images,
        ));
    };
    if let Share::Words(share) = share {
        if share.images() != images {
            let field = "the number of images of a share";
            return Err(error(field, share.images(), "exactly", images));
        }
        if share.words().len() != words {
            let field = "the number of words of a share";
            return Err(error(field, share.words().len(), "exactly", words));
        }
    }
    Ok(words)
}

/// Words of a group's circuit.
pub(super) trait Words {
    /// Words that each party puts into an instance.
    fn words(&self) -> usize;

    /// Bits of each of the garbler's words.
    fn garbler_words(&self) -> impl Iterator<Item = u32>;
}

impl Words for Group {
    fn words(&self) -> usize {
        self.circuit.garbler_words().len()
    }

    fn garbler_words(&self) -> impl Iterator<Item = u32> {
        self.circuit.garbler_words().iter().copied()
    }
}
