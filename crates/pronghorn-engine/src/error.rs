//! What can go wrong in a step.

use pronghorn_graph::oracle::OracleError;
use pronghorn_he::{
    ParameterError,
    ckks::{self, CkksError},
    rlwe::{OutOfRange, TooLarge},
    rns::WireError,
};
use pronghorn_mpc::{garble::GarbleError, lean::LeanError, ot::OtError};
use pronghorn_plan::step::step_number;
use pronghorn_product::ProductError;
use pronghorn_ring::{bits::PackError, random::RandomError};
use pronghorn_slot::SlotError;
use thiserror::Error;

/// Why a batch ended early. Never holds a weight, an input, a share or a key, nor a name of the
/// model's file: a peer may read it. A step is its number and kind.
#[derive(Debug, Error)]
pub enum EngineError {
    /// A message of the wrong length.
    #[error("step {step}: {message} has {found} bytes, expected {expected}")]
    Length {
        /// The step.
        step: String,
        /// Which message.
        message: &'static str,
        /// Bytes received.
        found: usize,
        /// Bytes the plan calls for.
        expected: usize,
    },
    /// A ciphertext word that is no residue.
    #[error("step {step}: row {row} of {message} holds a word that is not below {modulus}")]
    Word {
        /// The step.
        step: String,
        /// Which message.
        message: &'static str,
        /// The row within the step.
        row: usize,
        /// The modulus, or that of words without the low bits that are not sent.
        modulus: u64,
    },
    /// CKKS keys or ciphertexts that do not decode.
    #[error("step {step}: row {row} of {message}: {source}")]
    Wire {
        /// The step.
        step: String,
        /// Which message.
        message: &'static str,
        /// The row within the step.
        row: usize,
        /// What is wrong.
        source: WireError,
    },
    /// Packed words that do not unpack.
    #[error("step {step}: row {row} of {message}: {source}")]
    Packing {
        /// The step.
        step: String,
        /// Which message.
        message: &'static str,
        /// The row within the step.
        row: usize,
        /// What is wrong.
        source: PackError,
    },
    /// A message whose digest is not that of what it belongs to: the line has changed one of them.
    #[error("{message} were damaged on the way: nothing of them is used or kept")]
    Damaged {
        /// Which.
        message: &'static str,
    },
    /// A set of a client's keys does not follow from its seed.
    #[error(
        "the client's keys are false: a set of them does not follow from its seed; keys of other values tell a \
         client weights"
    )]
    FalseKeys,
    /// A message, or a demand for one, when it is not this party's turn.
    #[error("a message came out of turn: the batch {state}")]
    OutOfTurn {
        /// What the machine is doing.
        state: &'static str,
    },
    /// A share that no ciphertext of the plan can carry.
    #[error("step {step}: {source}")]
    Encryption {
        /// The step.
        step: String,
        /// What is wrong.
        source: TooLarge,
    },
    /// A decrypted value outside its range.
    #[error("step {step}: {source}")]
    Decryption {
        /// The step.
        step: String,
        /// What is wrong.
        source: OutOfRange,
    },
    /// No images, or more than the plan allows.
    #[error("a batch has {found} images; this plan takes 1 to {most}")]
    Batch {
        /// Images asked for.
        found: usize,
        /// Most the plan allows.
        most: usize,
    },
    /// The inputs are not a whole number of images.
    #[error("{found} input values given; {images} images of {elements} values need {}", images * elements)]
    Inputs {
        /// Values given.
        found: usize,
        /// Images.
        images: usize,
        /// Values an image.
        elements: usize,
    },
    /// Input values that are no numbers.
    #[error(transparent)]
    Input(#[from] OracleError),
    /// Parameters of the plan that are refused.
    #[error("step {step}: {source}")]
    Parameters {
        /// The step.
        step: String,
        /// What is wrong.
        source: ParameterError,
    },
    /// CKKS parameters of the plan that are refused.
    #[error("step {step}: {source}")]
    CkksParameters {
        /// The step.
        step: String,
        /// What is wrong.
        source: ckks::ParameterError,
    },
    /// An operation on CKKS ciphertexts that is refused.
    #[error("step {step}: {source}")]
    Ckks {
        /// The step.
        step: String,
        /// What is wrong.
        source: CkksError,
    },
    /// Weights that do not go with the plan.
    #[error("step {step}: {source}")]
    Weights {
        /// The step.
        step: String,
        /// What is wrong.
        source: ProductError,
    },
    /// A layer on slots that is refused.
    #[error("step {step}: {source}")]
    Slots {
        /// The step.
        step: String,
        /// What is wrong.
        source: SlotError,
    },
    /// Oblivious transfers that failed.
    #[error("step {step}: {source}")]
    Ot {
        /// The step.
        step: String,
        /// What is wrong.
        source: OtError,
    },
    /// A message of a lean step that is refused.
    #[error("step {step}: {source}")]
    Lean {
        /// The step.
        step: String,
        /// What is wrong.
        source: LeanError,
    },
    /// A garbling that is refused.
    #[error("step {step}: {source}")]
    Garble {
        /// The step.
        step: String,
        /// What is wrong.
        source: GarbleError,
    },
    /// A layout of a garbled step, or shares that do not go with it.
    #[error("step {step}: {field} is {found}, must be {wanted} {bound}")]
    Layout {
        /// The step.
        step: String,
        /// What was counted.
        field: &'static str,
        /// What was found.
        found: usize,
        /// How it is bounded.
        wanted: &'static str,
        /// The bound.
        bound: usize,
    },
    /// An opened value outside its range: the parties' shares are not of one value.
    #[error(
        "step {step}: opened value {index} is not in {low}..={high}; the parties' shares do not go together"
    )]
    Opened {
        /// The step.
        step: String,
        /// Which value, by element, then by image.
        index: usize,
        /// Least value.
        low: i32,
        /// Greatest value.
        high: i32,
    },
    /// Garblings made ahead that cannot be used.
    #[error("step {step}: the garbling made ahead {reason}; make a new one")]
    Prepared {
        /// The step.
        step: String,
        /// Why not.
        reason: &'static str,
    },
    /// A step of the plan that no circuit computes.
    #[error("step {step}: {reason}")]
    Circuit {
        /// The step.
        step: String,
        /// What is wrong.
        reason: String,
    },
    /// The plan has a step this engine cannot take part in.
    #[error("step {step}: {reason}")]
    Unsupported {
        /// The step.
        step: String,
        /// What is missing.
        reason: &'static str,
    },
    /// The operating system gave no randomness.
    #[error(transparent)]
    Random(#[from] RandomError),
}

impl EngineError {
    /// The number of the plan's step that it is about, if it is about one.
    pub fn step(&self) -> Option<usize> {
        match self {
            Self::Length { step, .. }
            | Self::Word { step, .. }
            | Self::Wire { step, .. }
            | Self::Packing { step, .. }
            | Self::Encryption { step, .. }
            | Self::Decryption { step, .. }
            | Self::Parameters { step, .. }
            | Self::CkksParameters { step, .. }
            | Self::Ckks { step, .. }
            | Self::Weights { step, .. }
            | Self::Slots { step, .. }
            | Self::Ot { step, .. }
            | Self::Lean { step, .. }
            | Self::Garble { step, .. }
            | Self::Layout { step, .. }
            | Self::Opened { step, .. }
            | Self::Prepared { step, .. }
            | Self::Circuit { step, .. }
            | Self::Unsupported { step, .. } => step_number(step),
            _ => None,
        }
    }
}
