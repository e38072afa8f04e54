//! Products of two values: of their elements, either broadcast along dimensions where it has size
//! 1, or of matrices.
//!
//! Under `two-party` on shares, by oblivious transfer (Gilboa, CRYPTO 1999): neither party learns
//! anything. Under `client-aided` the client has both values, and multiplies them: no message.

use pronghorn_graph::{
    fixed::{Interval, ValueSpec, matrix_product_bounds, product_bounds},
    matrices::Matrices,
    shape::OperatorError,
};
use pronghorn_mpc::Block;
use pronghorn_ring::bits::packed_len;

use super::activation::garbled::ot_bytes;
use crate::{
    cost::{Cost, Memory, Seconds, StepCost, StepMemory, rate},
    description::Description,
    share_form::{Node, ShareRules, Takes},
    step::{Compiled, StepPlan},
    trust::TrustLevel,
};

/// Most oblivious transfers whose blocks the parties hold at a time.
const WINDOW: usize = 1 << 20;

/// The product of two values on exact shares modulo a power of two.
pub(crate) struct Product(pub Pairs);

/// The product of two values that the client has.
pub(crate) struct ClearProduct(pub Pairs);

/// What is multiplied with what.
#[derive(Clone, Copy, Debug)]
pub enum Pairs {
    /// An element with an element.
    Elements,
    /// Rows with columns, part by part.
    Matrices,
}

impl Pairs {
    fn range(self, inputs: &[&ValueSpec], value: &ValueSpec) -> Result<Interval, OperatorError> {
        match self {
            Self::Elements => product_bounds(inputs, &value.shape),
            Self::Matrices => matrix_product_bounds(inputs, &value.shape),
        }
    }

    /// Products of two elements.
    fn count(self, step: &Compiled<'_>, batch: usize) -> usize {
        let shapes: Vec<&[usize]> = step.place.inputs().map(|input| &input.shape[..]).collect();
        let of_image = match (self, shapes.as_slice()) {
            (Self::Matrices, &[left, right]) => {
                Matrices::of(left, right).map_or(0, |matrices| matrices.products())
            }
            _ => step.place.value().len(),
        };
        of_image.saturating_mul(batch)
    }
}

/// Words of each factor in a batch.
fn factors(step: &Compiled<'_>, batch: usize) -> impl Iterator<Item = usize> {
    let inputs = step.place.inputs();
    inputs.map(move |input| input.len().saturating_mul(batch))
}

/// For each factor an OT for each bit of its words. They come in whole bytes.
fn ots(step: &Compiled<'_>, batch: usize) -> impl Iterator<Item = usize> {
    let bits = step.place.form().bits as usize;
    factors(step, batch).map(move |words| bits.saturating_mul(words.next_multiple_of(8)))
}

impl ShareRules for Product {
    fn takes(&self) -> Takes {
        Takes::PowerOfTwo
    }

    fn input_bits(&self, bits: u32, _place: usize, _input: &Node<'_>) -> u32 {
        bits
    }
}

impl StepPlan for Product {
    fn kind(&self) -> &'static str {
        "product"
    }

    fn trust(&self) -> &'static [TrustLevel] {
        &[TrustLevel::TwoParty]
    }

    fn range(&self, inputs: &[&ValueSpec], value: &ValueSpec) -> Result<Interval, OperatorError> {
        self.0.range(inputs, value)
    }

    fn cost(&self, step: &Compiled<'_>, batch: usize) -> Cost {
        let (values, bits) = (step.place.value().len() * batch, step.place.form().bits);
        let products = self.0.count(step, batch);
        // For each factor, the products of bit `i` of its words have `i` bits less than the value.
        let corrections = (1..=bits).map(|bits| 2 * packed_len(products, bits) as u64);
        let at_once = StepCost {
            bytes_up: ots(step, batch).map(ot_bytes).sum(),
            bytes_down: corrections.sum(),
            rounds: 1,
            seconds: Seconds::transfers(
                ots(step, batch).sum::<usize>() as f64 * rate::TRANSFER
                    + (2 * products) as f64 * f64::from(bits) * rate::CORRECTION,
            ),
            ..StepCost::default()
        };
        if !step.place.inputs_ahead() {
            return Cost::online(at_once.with_waits());
        }
        let inputs: usize = factors(step, batch).sum();
        let online = StepCost {
            bytes_up: packed_len(inputs, bits) as u64,
            bytes_down: packed_len(values, bits) as u64,
            rounds: 1,
            ..StepCost::default()
        };
        let words = |words: usize| 4 * words as u64;
        let kept = Memory {
            server: words(inputs + 2 * values),
            client: words(inputs + values),
        };
        Cost {
            at_once: at_once.with_waits(),
            offline: StepCost {
                memory: kept,
                ..at_once
            },
            online: online.with_waits(),
        }
    }

    fn memory(&self, step: &Compiled<'_>, batch: usize) -> StepMemory {
        // One share of both factors, and a window's blocks.
        let inputs: usize = factors(step, batch).sum();
        let blocks = Block::BYTES * ots(step, batch).sum::<usize>().min(WINDOW);
        // The places of both factors for each value; those of matrices follow from their sizes.
        let bits = step.place.form().bits as usize;
        let places = match self.0 {
            Pairs::Elements => 4 * size_of::<u64>() * step.place.value().len(),
            Pairs::Matrices => 0,
        };
        // Of a chunk: places, strings and corrections. The products of a word are never cut.
        let products = self.0.count(step, batch);
        let of_a_word = products / factors(step, batch).min().unwrap_or(1).max(1);
        let chunk = products.min(of_a_word.max(WINDOW)) * (48 + size_of::<u64>() * bits);
        Memory::both((4 * inputs + blocks + places + chunk) as u64)
    }

    fn describe(&self, _step: &Compiled<'_>) -> Description {
        Description::of(match self.0 {
            Pairs::Elements => "product by oblivious transfer",
            Pairs::Matrices => "product of matrices by oblivious transfer",
        })
    }
}

impl ShareRules for ClearProduct {}

impl StepPlan for ClearProduct {
    fn kind(&self) -> &'static str {
        "product"
    }

    fn trust(&self) -> &'static [TrustLevel] {
        &[TrustLevel::ClientAided]
    }

    fn range(&self, inputs: &[&ValueSpec], value: &ValueSpec) -> Result<Interval, OperatorError> {
        self.0.range(inputs, value)
    }

    fn describe(&self, _step: &Compiled<'_>) -> Description {
        Description::of(match self.0 {
            Pairs::Elements => "product by the client",
            Pairs::Matrices => "product of matrices by the client",
        })
    }
}
