//! The protocols of steps, a folder or a file each, and [`StepKind`], which names them all.
//!
//! A `StepKind` is what travels: one variant a protocol, with the fields of that protocol alone.
//! [`StepKind::as_step`] is the one place that tells protocols apart; everything else in this crate
//! goes through the trait [`StepPlan`]. No protocol names `StepKind`.

pub mod activation;
pub mod argmax;
pub mod bias;
pub mod encrypted;
pub mod input;
pub mod linear;
pub mod local;
pub mod matrices;
pub mod open;
pub mod product;
pub mod toy;

use pronghorn_graph::{features::FeatureScales, fixed::LocalOp};
use serde::{Deserialize, Serialize};

use self::{
    activation::{garbled::Garbled, lean::Lean, reveal::Reveal, square::Square},
    argmax::ArgMax,
    bias::Bias,
    encrypted::EncryptedPlan,
    input::Input,
    linear::{
        clear::ClearLinear, clear_coefficient::ClearCoefficient, coefficient::CoefficientLinear,
        shared::SharedLinear, slots::SlotLinear,
    },
    matrices::EncryptedMatrices,
    open::Open,
    product::{ClearProduct, Pairs, Product},
};
use crate::step::StepPlan;

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
    /// A linear layer in the coefficient engine, whose answer the client decrypts.
    ClearCoefficient(ClearCoefficient),
    /// The client's input, a row of features, each with a scale of its own.
    Features(FeatureScales),
    /// The product of two values on shares, by oblivious transfer.
    Product,
    /// The product of two values by the client, in the clear.
    ClearProduct,
    /// Activations on shares, by products of bits.
    Lean(Lean),
    /// The index of the largest value on shares, by products of bits.
    ArgMax(ArgMax),
    /// The product of two matrices on shares, by oblivious transfer.
    MatrixProduct,
    /// The product of two matrices by the client, in the clear.
    ClearMatrixProduct,
    /// The product of two matrices on shares, under encryption.
    EncryptedMatrices(EncryptedMatrices),
    /// Constants that the server adds to its own share. No message.
    Bias(Bias),
    /// A protocol that hides nothing, for tests. Last, so that others keep their bytes.
    #[cfg(feature = "toy-protocols")]
    Toy(toy::Toy),
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
            Self::ClearCoefficient(clear) => clear,
            Self::Features(scales) => scales,
            Self::Product => &Product(Pairs::Elements),
            Self::ClearProduct => &ClearProduct(Pairs::Elements),
            Self::MatrixProduct => &Product(Pairs::Matrices),
            Self::ClearMatrixProduct => &ClearProduct(Pairs::Matrices),
            Self::EncryptedMatrices(matrices) => matrices,
            Self::Lean(lean) => lean,
            Self::ArgMax(argmax) => argmax,
            Self::Bias(bias) => bias,
            #[cfg(feature = "toy-protocols")]
            Self::Toy(toy) => toy.as_step(),
        }
    }
}
