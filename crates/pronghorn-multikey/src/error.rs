//! Refusals of networks under several keys.

use pronghorn_he::{
    ckks::{CkksError, ParameterError},
    multikey::MultiKeyError,
};
use pronghorn_ring::rns::RnsError;
use thiserror::Error;

/// Why a network does not run under several keys, or an operation is refused.
#[derive(Debug, Error)]
pub enum NetworkError {
    /// Nothing to compute.
    #[error("the network multiplies nothing: the client can do without a cloud")]
    NoProducts,
    /// Nothing that the model owner has.
    #[error(
        "the result depends on no weights of the network: the client can compute it without a cloud"
    )]
    NoWeights,
    /// A network whose shapes do not go together.
    #[error("node {node} does not fit its inputs; the network is damaged")]
    Shape {
        /// Name of the node.
        node: String,
    },
    /// Names of classes that nobody should print.
    #[error("a name of a class is too long, or has hidden characters: its owner must rename it")]
    Names,
    /// A node beside the way to the result.
    #[error("the result does not depend on node {node}; leave it out")]
    Unread {
        /// Name of the node.
        node: String,
    },
    /// A layer of too many ciphertexts.
    #[error(
        "node {node} has {elements} elements, which take too many ciphertexts of {slots} slots, or leave one without \
         any; use a smaller layer, or another trust level"
    )]
    TooLarge {
        /// Name of the node.
        node: String,
        /// Elements of its value.
        elements: usize,
        /// Slots of a ciphertext.
        slots: usize,
    },
    /// Operands in different places.
    #[error(
        "node {node} combines values that lie in different slots, or are padded; let both come from \
         one layer, such as a convolution whose kernel adds the shortcut, or take another trust level"
    )]
    Places {
        /// Name of the node.
        node: String,
    },
    /// A result with something else beside it.
    #[error(
        "the result of node {node} would show partial sums of a layer; end the network with a linear layer that keeps \
         all of its outputs"
    )]
    PartialSums {
        /// Name of the node.
        node: String,
    },
    /// No parameters for this depth and error.
    #[error(
        "no ring of 128 bits has room for {depth} products in a row with an error of 2^{log_error:.0}; use fewer \
         layers, a larger error or fewer results of a key"
    )]
    TooDeep {
        /// Levels of the network.
        depth: usize,
        /// `log2` of the error.
        log_error: f64,
    },
    /// A chain of primes without some of them.
    #[error("the chain has no valid {field}; take a chain that was made for this network")]
    Chain {
        /// The part that is missing or wrong.
        field: &'static str,
    },
    /// Bounds that are no numbers.
    #[error("a bound of the network is negative or not finite; take those that its owner made")]
    Bounds,
    /// Values of another number.
    #[error("{what}: {found} were given, {expected} are needed")]
    Count {
        /// What was counted.
        what: &'static str,
        /// The number given.
        found: usize,
        /// The number needed.
        expected: usize,
    },
    /// A graph that is not the program's.
    #[error("node {node} of the model is not that of the program; make both from one network")]
    OtherNetwork {
        /// Name of the node.
        node: String,
    },
    /// An input out of its range.
    #[error("input {index} is {value}; inputs must be finite, and from {low} to {high}")]
    Input {
        /// The element.
        index: usize,
        /// Its value.
        value: f64,
        /// The least that it may be.
        low: f64,
        /// The largest.
        high: f64,
    },
    /// A ciphertext that is not the one expected.
    #[error(
        "{what} of node {node} has the wrong {field}; make it from this program and its setting"
    )]
    Ciphertext {
        /// Input, weights or biases.
        what: &'static str,
        /// Name of the node.
        node: String,
        /// What differs.
        field: &'static str,
    },
    /// No such primes.
    #[error(transparent)]
    Primes(#[from] RnsError),
    /// No such parameters.
    #[error(transparent)]
    Parameters(#[from] ParameterError),
    /// Refused by CKKS.
    #[error(transparent)]
    Ckks(#[from] CkksError),
    /// Refused by the multi-key scheme.
    #[error(transparent)]
    MultiKey(#[from] MultiKeyError),
}
