//! Why there is no plan.

use pronghorn_graph::{
    float::FloatError, graph::ClassError, losses::Loss, oracle::OracleError,
    polynomial::PolynomialError, quantise::QuantiseError,
};
use thiserror::Error;

use super::hint::Hint;
use crate::{
    checked::{ELEMENTS, OWN_CIRCUITS},
    names::Names,
    plan::PlanError,
    trust::{TrustError, TrustLevel},
};

/// An error in two digits or more, rounded up: as `--error` it accepts the plan.
pub(super) fn at_most(error: f64) -> String {
    let places = (1 - error.log10().floor() as i32).clamp(2, 6) as usize;
    let scale = 10f64.powi(places as i32);
    format!("{:.places$}", (error * scale).ceil() / scale)
}

/// The largest error that `--error` takes.
const MAX_ERROR: f64 = 2.0;

/// The advice on accepting an error, if it may be accepted.
pub(super) fn accept(error: f64) -> String {
    match error <= MAX_ERROR {
        true => format!(". To accept it: --error {0} (error={0})", at_most(error)),
        false => String::new(),
    }
}

/// Why there is no plan.
#[derive(Debug, Error)]
pub enum BuildError {
    /// See there.
    #[error(transparent)]
    Trust(#[from] TrustError),
    /// The float model does not run.
    #[error(transparent)]
    Float(#[from] FloatError),
    /// Some range, scale or modulus does not work out.
    #[error(transparent)]
    Quantise(#[from] QuantiseError),
    /// The fixed-point model does not run on the samples.
    #[error(transparent)]
    Oracle(#[from] OracleError),
    /// The samples are not images of this model.
    #[error(
        "the samples have {found} values, which is no positive multiple of the {expected} that an input of shape {shape:?} has"
    )]
    Samples {
        /// Values given.
        found: usize,
        /// Elements of one input.
        expected: usize,
        /// Shape of one input.
        shape: Vec<usize>,
    },
    /// All numbers of the samples are zero.
    #[error(
        "all samples are zero, and the ranges of values follow from samples: give inputs as clients send them"
    )]
    Blank,
    /// The result is no class.
    #[error(transparent)]
    Class(#[from] ClassError),
    /// The trust level opens values alone.
    #[error(
        "no class is computed at trust level {trust}, since comparisons are no polynomials, and the client would learn \
         all values: use --trust two-party (trust='two-party'), or open the values with --opening values \
         (opening='values')"
    )]
    NoClass {
        /// The trust level.
        trust: TrustLevel,
    },
    /// Dithered rounding is a matter of shares.
    #[error(
        "only shares are rounded by a dither, and there are none at trust level {trust}: use --trust two-party (trust='two-party'), or round to the nearest (--rounding nearest, rounding='nearest')"
    )]
    NoDither {
        /// The trust level.
        trust: TrustLevel,
    },
    /// The engine is of other trust levels.
    #[error(
        "no linear layer runs on slots at trust level {trust}: choose engine batch or coefficient"
    )]
    NoEngine {
        /// The trust level.
        trust: TrustLevel,
    },
    /// Not even one image fits.
    #[error(
        "one image needs {needed} bytes on the server at step {step}, and {allowed} are allowed: raise --memory, or use a smaller input"
    )]
    Memory {
        /// The step that needs most.
        step: String,
        /// Bytes needed.
        needed: u64,
        /// Bytes allowed.
        allowed: u64,
    },
    /// The plan is longer than clients read.
    #[error("{0}: give the model fewer or larger steps, or selections of fewer elements")]
    TooLong(#[source] PlanError),
    /// The plan is one that clients would refuse.
    #[error(
        "{node}{source}: {}{}",
        cause(source),
        hint.map_or_else(String::new, |hint| format!(". {hint}"))
    )]
    Refused {
        /// What clients would say.
        source: PlanError,
        /// The node and a colon; empty where it is about no step.
        node: String,
        /// What of the samples may be why.
        hint: Option<Hint>,
    },
    /// The fixed-point model does not compute what the float model does.
    #[error(
        "the expected error is {at_most}, and {aim} was aimed at: results would be of little use. Give samples that \
         represent the inputs, and leave --weight-bits and --input-bits to the planner where you chose them{}{}{}",
        loss.as_ref().map_or_else(String::new, |loss| format!(". {loss}")),
        accept(*error),
        hint.map_or_else(String::new, |hint| format!(". {hint}")),
        at_most = at_most(*error)
    )]
    Imprecise {
        /// The expected error of the best plan, see [`super::Fidelity`].
        error: f64,
        /// What was aimed at.
        aim: f64,
        /// Where errors become large, if at one node.
        loss: Option<Box<Loss>>,
        /// What of the samples may be why.
        hint: Option<Hint>,
    },
    /// The fixed-point model's classes are not the float model's.
    #[error(
        "the class is the float model's on {alike} of {images} samples alone: results would be of little use. Classes \
         are near to one another beside the spread of their scores: scale the features before training, and leave \
         --weight-bits and --input-bits to the planner where you chose them{}",
        accept(*changed)
    )]
    Classes {
        /// Samples whose classes are equal.
        alike: usize,
        /// Samples that were compared.
        images: usize,
        /// The part of inputs whose classes differ.
        changed: f64,
    },
    /// Not a polynomial network.
    #[error(transparent)]
    Polynomial(#[from] PolynomialError),
    /// No parameters carry so many products in a row.
    #[error(
        "no parameters of this version carry this network on ciphertexts at 128 bits of security: it multiplies values \
         by values {products} times, and hides its noise up to 2^-{flood_bits}. Use fewer or wider layers, fewer \
         --weight-bits, fewer --flood-bits (flood_bits=) if there are more than 40, or another trust level"
    )]
    TooDeep {
        /// Squares and products of the network.
        products: u32,
        /// Bits of the flood.
        flood_bits: u32,
    },
    /// A flood that protects too little, or more than any parameters carry.
    #[error("{0}: choose others with --flood-bits (flood_bits=)")]
    Flood(String),
    /// A layer whose shares take more bits than there are: with fewer bits it may have a plan.
    #[error("{layer}: {reason}")]
    Bits {
        /// The node.
        layer: String,
        /// What is wrong.
        reason: String,
    },
    /// A layer whose numbers do not go together.
    #[error("{layer}: {reason}")]
    Layer {
        /// The node.
        layer: String,
        /// What is wrong.
        reason: String,
    },
    /// The layer's answer is too wide for any modulus.
    #[error(
        "{layer}: its integer result spans {width} values with noise below {noise}, which no modulus of this version carries at 128 bits of security: lower --weight-bits or --input-bits"
    )]
    Modulus {
        /// The node.
        layer: String,
        /// Largest minus smallest result.
        width: f64,
        /// Noise bound.
        noise: u64,
    },
}

impl BuildError {
    /// The same with the node where errors become large, where it says that.
    pub(super) fn with_loss(mut self, found: impl FnOnce(f64) -> Option<Loss>) -> Self {
        if let Self::Imprecise { error, loss, .. } = &mut self {
            *loss = found(*error).map(Box::new);
        }
        self
    }

    /// The same with what of the samples may be why, where it says that.
    pub(super) fn with_hint(mut self, found: impl FnOnce() -> Option<Hint>) -> Self {
        if let Self::Imprecise { hint, .. } | Self::Refused { hint, .. } = &mut self {
            *hint = found();
        }
        self
    }

    /// A plan that clients would refuse, in the names of its owner.
    pub(super) fn refused(source: PlanError, names: &Names) -> Self {
        let node = match source {
            PlanError::Step { step, .. } => names.step(step),
            _ => None,
        };
        let node = node.map_or_else(String::new, |name| format!("{name}: "));
        Self::Refused {
            source,
            node,
            hint: None,
        }
    }
}

/// What is wrong with a model whose plan clients would refuse.
fn cause(source: &PlanError) -> &'static str {
    if is_too_long(source) {
        return "the network is too long for one plan: give a recurrent network fewer steps, or split the \
                model at a value between (--output NAME, output=NAME)";
    }
    if is_too_large(source) {
        return "the network is too large for one plan: give it a smaller input, or split it at a value \
                between (--output NAME, output=NAME)";
    }
    "the model's numbers are out of proportion (weights or ranges that are too large or too small by many \
     powers of two)"
}

/// Whether a plan has too many values, however few bits these have.
pub(super) fn is_too_large(source: &PlanError) -> bool {
    source.to_string().contains(ELEMENTS)
}

/// Whether a plan has too many circuits, however few bits these take.
pub(super) fn is_too_long(source: &PlanError) -> bool {
    source.to_string().contains(OWN_CIRCUITS)
}

#[cfg(test)]
mod tests {
    use super::{accept, at_most};

    #[test]
    fn errors_are_rounded_up() {
        let cases = [
            (0.0041, "0.0041"),
            (0.00411, "0.0042"),
            (0.211, "0.22"),
            (3.321, "3.33"),
        ];
        for (error, text) in cases {
            assert_eq!(at_most(error), text);
        }
    }

    #[test]
    fn no_advice_is_refused_again() {
        assert!(accept(0.3).contains("--error 0.30"));
        assert_eq!(accept(231.8), "");
    }
}
