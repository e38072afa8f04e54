//! The product of two matrices on shares (`two-party`), with one party's shares encrypted
//! ([`pronghorn_he::matrix`]).
//!
//! Neither party learns anything. Bytes grow with the sizes of the matrices, and not with the
//! number of products of two values, as by oblivious transfer.

pub mod product;

use std::sync::Arc;

use pronghorn_graph::{
    fixed::{Interval, ValueSpec, matrix_product_bounds},
    matrices::Matrices,
    shape::OperatorError,
};
use pronghorn_he::matrix::MOST_ANSWERS;
use serde::{Deserialize, Serialize};

use self::product::CIPHERTEXT;
pub use self::product::Product;
pub(crate) use self::product::{is_possible, pays};
use crate::{
    cost::{Cost, Memory, Seconds, StepCost, StepMemory},
    description::Description,
    rlwe::ShareBits,
    share_form::{LayerRules, LayerShares},
    step::{Compiled, Derived, Place, StepPlan},
    trust::TrustLevel,
};

/// The product of two matrices on shares, under encryption. All else follows from the shapes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EncryptedMatrices {
    /// The modulus of the answer's shares.
    pub shares: ShareBits,
}

/// Words of 64 bits that a client's key holds, a coefficient.
const KEY: usize = 4;

/// Threads whose memory is counted.
const THREADS: usize = 16;

impl LayerRules for EncryptedMatrices {
    fn layer_shares(&self) -> LayerShares {
        LayerShares::Guarded(self.shares.guard_bits)
    }
}

impl StepPlan for EncryptedMatrices {
    fn kind(&self) -> &'static str {
        "product"
    }

    fn trust(&self) -> &'static [TrustLevel] {
        &[TrustLevel::TwoParty]
    }

    fn range(&self, inputs: &[&ValueSpec], value: &ValueSpec) -> Result<Interval, OperatorError> {
        matrix_product_bounds(inputs, &value.shape)
    }

    fn check(&self, place: &Place<'_>) -> Result<(), String> {
        let (found, needed) = (self.shares.value_bits, place.form().value_bits());
        match found == needed {
            true => Ok(()),
            false => Err(format!(
                "its shares have {found} bits, and {needed} are needed"
            )),
        }
    }

    fn compile(&self, place: &Place<'_>) -> Result<Derived, String> {
        let shapes: Vec<&[usize]> = place.inputs().map(|input| input.shape.as_slice()).collect();
        let &[left, right] = shapes.as_slice() else {
            return Err("it has other than two factors".into());
        };
        let matrices = Matrices::of(left, right).map_err(|error| error.to_string())?;
        let ShareBits {
            value_bits,
            guard_bits,
        } = self.shares;
        let product = Product::new(&matrices, value_bits, guard_bits);
        match product.map_err(|error| error.to_string())? {
            Some(product) => Ok(Derived::Matrices(Arc::new(product))),
            None => Err(format!(
                "an image has more than {MOST_ANSWERS} ciphertexts of it"
            )),
        }
    }

    fn cost(&self, step: &Compiled<'_>, batch: usize) -> Cost {
        let Derived::Matrices(product) = step.derived else {
            return Cost::default();
        };
        let [up, down] = product.bytes(batch);
        let cost = StepCost {
            bytes_up: up as u64,
            bytes_down: down as u64,
            rounds: 1,
            seconds: Seconds::encryption(product.seconds(batch)),
            ..StepCost::default()
        };
        Cost::online(cost.with_waits())
    }

    fn memory(&self, step: &Compiled<'_>, batch: usize) -> StepMemory {
        let Derived::Matrices(product) = step.derived else {
            return StepMemory::default();
        };
        let (setting, degree) = (&product.setting, product.setting.degree());
        let inputs: usize = step.place.inputs().map(ValueSpec::len).sum();
        let values = step.place.value().len();
        // Of one image and part, in words of 64 bits: ciphertexts, and polynomials in the clear
        // that each thread holds.
        let of_a_part = setting.layouts().iter().map(|layout| {
            let plains = THREADS * layout.terms() * CIPHERTEXT / 2;
            (CIPHERTEXT * (layout.factors() + THREADS) + plains) * degree
        });
        let of_a_part = of_a_part.max().unwrap_or(0) as u64;
        // A share of both factors, the products of a party's own shares, and the result.
        let words = ((inputs + 2 * values) * batch) as u64;
        let answers = product.bytes(batch)[1] as u64;
        let keys = (batch * KEY * degree) as u64;
        Memory {
            server: 8 * of_a_part + answers + 4 * words,
            client: 8 * (keys + (values + 4 * degree) as u64) + 4 * words,
        }
    }

    fn describe(&self, step: &Compiled<'_>) -> Description {
        let what = "product of matrices under encryption";
        let Derived::Matrices(product) = step.derived else {
            return Description::of(what);
        };
        let ShareBits {
            value_bits,
            guard_bits,
        } = self.shares;
        let (setting, widths) = (&product.setting, product.setting.widths());
        let [first, second] = setting.layouts();
        let (n, bits) = (setting.degree(), widths.factor);
        Description {
            what: what.into(),
            ring: format!("N {n}, {bits} bits"),
            parameters: format!(
                "shares of {value_bits} and {guard_bits} guard bits, {} ciphertexts up and {} down \
                 for each part, 128-bit security",
                first.factors() + second.factors(),
                first.answers() + second.answers(),
            ),
        }
    }
}
