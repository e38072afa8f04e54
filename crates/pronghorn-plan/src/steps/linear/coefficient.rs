//! A linear layer on shares in the coefficient engine (`two-party`): single images, no keys.
//!
//! One ciphertext for many elements of an image, one coefficient an element ([`Layout`]). The
//! server publishes polynomials that hide the weights, once a client ([`hiding`](super::hiding)).

use pronghorn_graph::{
    fixed::{Interval, ValueSpec},
    geometry::ConvGeometry,
    shape::OperatorError,
};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

pub use super::layout::{Layout, Site};
use super::{describe, hiding::Hiding, kind, range};
use crate::{
    cost::{Cost, Memory, Once, PUBLICATION_IMAGES, Seconds, StepCost, StepMemory, rate},
    description::Description,
    rlwe::{Rlwe, ShareBits, stream_bytes},
    share_form::{LayerRules, LayerShares},
    step::{Compiled, Derived, Place, StepPlan},
    trust::TrustLevel,
};

/// Most coefficients of all polynomials that one layer publishes or reads.
const MAX_PUBLISHED_WORDS: usize = 1 << 28;

/// A linear layer on shares in the coefficient engine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CoefficientLinear {
    /// Sizes of the convolution or dense layer.
    pub geometry: ConvGeometry,
    /// Ring, modulus and dropped bits.
    pub rlwe: Rlwe,
    /// The modulus of the answer's shares.
    pub shares: ShareBits,
}

/// Most secrets that one `a` serves, for a layer of so many outputs.
pub(crate) fn secrets(outputs: usize) -> usize {
    PUBLICATION_IMAGES.max(outputs)
}

/// Bytes of where in the input a coefficient is from.
const PLACE_BYTES: u64 = 4;

impl CoefficientLinear {
    /// Where values sit in polynomials; `None` where an output reads more than a polynomial holds.
    pub fn layout(&self) -> Option<Layout> {
        Layout::new(&self.geometry, self.rlwe.degree)
    }

    /// Words that a client sends for a batch: for each image the coefficients that are read, and
    /// before them a polynomial that hides the answer, if that is to be `hidden`.
    pub fn request_words(&self, layout: &Layout, batch: usize, hidden: bool) -> usize {
        let hiding = if hidden { self.rlwe.degree } else { 0 };
        batch.saturating_mul(layout.words().saturating_add(hiding))
    }

    /// The cost of a batch, with an answer that is `hidden` or not.
    pub(super) fn cost_of(&self, step: &Compiled<'_>, batch: usize, hidden: bool) -> Cost {
        let outputs = step.place.value().len();
        let work = |layout: &Arc<Layout>| self.work(layout, outputs, batch, hidden).with_waits();
        self.derived(step)
            .map_or_else(Cost::default, |layout| Cost::online(work(layout)))
    }

    /// The memory of a batch, with an answer that is `hidden` or not.
    pub(super) fn memory_of(&self, step: &Compiled<'_>, batch: usize, hidden: bool) -> StepMemory {
        let (words, places) = self.derived(step).map_or((0, 0), |layout| {
            let words = self.request_words(layout, batch, hidden);
            (words as u64, layout.places() as u64)
        });
        let answers = 2 * step.place.value().len() as u64 * batch as u64;
        let words = words.saturating_add(answers);
        let bytes = words.saturating_mul(self.rlwe.word.rates().bytes);
        Memory::both(bytes.saturating_add(places.saturating_mul(PLACE_BYTES)))
    }

    fn derived<'a>(&self, step: &'a Compiled<'_>) -> Option<&'a Arc<Layout>> {
        match step.derived {
            Derived::Polynomials(layout) => Some(layout),
            _ => None,
        }
    }

    fn work(&self, layout: &Layout, outputs: usize, batch: usize, hidden: bool) -> StepCost {
        let words = self.request_words(layout, batch, hidden);
        let answers = batch * outputs;
        let multiply_adds = self.geometry.multiply_adds().saturating_mul(batch as u64);
        // For each published polynomial the client makes a product. Where one polynomial of an
        // image hides its answers, the server makes one, too.
        let hiding = if hidden { 1 + layout.published() } else { 0 };
        let polynomials = layout.tiles() * layout.polynomials() + layout.published() + hiding;
        let transforms = (batch * polynomials * self.rlwe.degree) as f64 * rate::TRANSFORM_WORD;
        StepCost {
            bytes_up: stream_bytes(words, self.rlwe.modulus_bits()),
            bytes_down: stream_bytes(answers, self.rlwe.answer_bits()),
            multiply_adds,
            rounds: 1,
            seconds: Seconds::products(multiply_adds as f64 / rate::DIRECT_PRODUCT)
                + Seconds::encryption(transforms + (words + answers) as f64 * rate::SENT_WORD),
            ..StepCost::default()
        }
    }
}

impl LayerRules for CoefficientLinear {
    fn layer_shares(&self) -> LayerShares {
        LayerShares::Guarded(self.shares.guard_bits)
    }
}

impl StepPlan for CoefficientLinear {
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
        let secrets = secrets(place.value().len());
        self.rlwe.check_shares(self.shares, place.form(), secrets)
    }

    fn compile(&self, _place: &Place<'_>) -> Result<Derived, String> {
        let layout = self
            .layout()
            .ok_or("the inputs of one output do not fit a polynomial")?;
        let read = layout.polynomials().saturating_mul(layout.tiles());
        let published = layout.published().max(read);
        let words = published.saturating_mul(self.rlwe.degree);
        if words.max(layout.words()) > MAX_PUBLISHED_WORDS {
            return Err(format!(
                "its polynomials have {words} coefficients, more than {MAX_PUBLISHED_WORDS}"
            ));
        }
        Ok(Derived::Polynomials(Arc::new(layout)))
    }

    fn cost(&self, step: &Compiled<'_>, batch: usize) -> Cost {
        self.cost_of(step, batch, true)
    }

    fn once(&self, step: &Compiled<'_>) -> Once {
        let published = self.derived(step).map_or(0, |layout| layout.published()) as u64;
        let words = published.saturating_mul(self.rlwe.degree as u64);
        let secrets = words.saturating_mul(self.rlwe.word.rates().bytes);
        let publication = published.saturating_mul(self.rlwe.answer_bytes_a() as u64);
        Once {
            publication,
            secrets,
            polynomials: secrets,
            ..Once::default()
        }
    }

    fn memory(&self, step: &Compiled<'_>, batch: usize) -> StepMemory {
        self.memory_of(step, batch, true)
    }

    fn rlwe(&self) -> Option<&Rlwe> {
        Some(&self.rlwe)
    }

    fn describe(&self, step: &Compiled<'_>) -> Description {
        let ShareBits {
            value_bits,
            guard_bits,
        } = self.shares;
        let rlwe = self.rlwe.describe();
        let hiding = self
            .derived(step)
            .and_then(|layout| Hiding::of(&self.rlwe, layout));
        let hiding = hiding.map_or_else(String::new, |hiding| {
            format!(
                ", published filters at {:.0} bits (as in the paper: {} unknowns, {:.0} bits)",
                hiding.ours, hiding.paper_unknowns, hiding.paper
            )
        });
        let parameters =
            format!("shares of {value_bits} and {guard_bits} guard bits, {rlwe}{hiding}");
        Description {
            what: describe("coefficient engine", &self.geometry),
            ..Description::with_ring(&self.rlwe, parameters)
        }
    }
}
