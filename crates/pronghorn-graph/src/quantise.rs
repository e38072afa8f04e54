//! From floating point to integers: scales, precisions and proven ranges.
//!
//! Scales are powers of two. Every layer of weights gets its input at the precision a
//! [`PrecisionChooser`] picks; in front of it stands a `Requantise` that drops bits and clamps to
//! the range seen on samples. Between two of those everything is exact, and the range of every
//! value is proven by interval arithmetic with the actual integer weights, so nothing can overflow
//! when running: what would is an error here.

mod alive;
mod average;
mod bias;
mod builder;
mod centre;
mod factor;
mod function;
mod layer;
mod linear;
mod pieces;
mod precision;
mod ranges;
mod rows;
mod scale;
mod whole;

use thiserror::Error;

use builder::Scaled;
pub use factor::FactorProfile;
pub use layer::{Candidate, LayerProfile, Rows};
pub use linear::{MOST_HIGH, MOST_LOW, MOST_MIDDLE};
pub(crate) use ranges::{is_clamped, reaches};
pub(crate) use scale::nearly_power;

use crate::{
    fixed::{FixedError, FixedGraph},
    float::Profile,
    graph::{Graph, GraphError},
    oracle::{self, OracleError},
    shape::OperatorError,
};

/// The bits that a layer works with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Precision {
    /// Weights are integers of at most this many bits, sign included; 2 to 16.
    pub weight_bits: u32,
    /// Inputs are integers of at most this many bits, sign included where there can be one; 2
    /// to 24.
    pub input_bits: u32,
    /// Where set, the layer is cut: sums of the low digits of weights are rounded before they are
    /// added to those of the digits above. Each has fewer bits than one sum would have.
    pub low: Option<LowDigits>,
}

/// The low digits of a layer's weights.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LowDigits {
    /// How many; 1 or 2. There is one above them.
    pub count: u32,
    /// Bits of each; 1 to 15, and those of all together at most 15.
    pub bits: u32,
}

impl LowDigits {
    fn is_valid(self) -> bool {
        (1..=2).contains(&self.count) && (1..=15 / self.count).contains(&self.bits)
    }
}

/// Chooses the precision of each layer of weights.
pub trait PrecisionChooser {
    /// The precision of one layer.
    ///
    /// # Errors
    /// Says, for the user, why there is none and what to do.
    fn choose(&self, layer: &LayerProfile<'_>) -> Result<Precision, String>;

    /// The same where the input has so many bits, since another layer reads it, too: more than
    /// [`choose`](Self::choose) said.
    ///
    /// # Errors
    /// As those of `choose`.
    fn choose_beside(
        &self,
        layer: &LayerProfile<'_>,
        input_bits: u32,
    ) -> Result<Precision, String> {
        let _ = input_bits;
        self.choose(layer)
    }

    /// The bits of one factor of a product of two values; clamped to 2 to 24.
    fn choose_factor(&self, factor: &FactorProfile) -> u32 {
        let _ = factor;
        8
    }
}

/// The same `(weight_bits, input_bits)` for all layers; factors of products have the bits of
/// inputs.
#[derive(Clone, Copy, Debug)]
pub struct FixedPrecision(pub u32, pub u32);

impl PrecisionChooser for FixedPrecision {
    fn choose(&self, _: &LayerProfile<'_>) -> Result<Precision, String> {
        Ok(Precision {
            weight_bits: self.0,
            input_bits: self.1,
            low: None,
        })
    }

    fn choose_factor(&self, _: &FactorProfile) -> u32 {
        self.1
    }
}

/// Options of [`quantise`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct QuantiseOptions {
    /// Factor on the ranges seen on samples, at least 1; the input's own range stays. Other inputs
    /// reach farther than samples do, and most where samples are made up.
    pub margin: f32,
    /// Bits, sign included, of a value that would overflow in a `Square`, a `LeakyRelu`, an
    /// addition, a concatenation, a pooling or a product, and has to be rounded before it; 2 to 24.
    pub wide_bits: u32,
    /// Bits, sign included, that sums and means of values take at most before these are rounded; 8
    /// to 32.
    pub most_bits: u32,
    /// Bits of the model's input where no layer of weights reads it; 2 to 24.
    pub plain_input_bits: u32,
    /// All inputs are whole numbers, as indicators are: they have no fraction bits.
    pub whole_inputs: bool,
    /// Requantising costs more than precision, as in garbled circuits: a value that layers read is
    /// brought to one precision for all its readers, and is clamped at powers of two, which take
    /// fewer gates than others.
    pub costly_requantisation: bool,
}

impl Default for QuantiseOptions {
    fn default() -> Self {
        Self {
            margin: 1.0,
            wide_bits: 16,
            most_bits: 32,
            plain_input_bits: 8,
            whole_inputs: false,
            costly_requantisation: false,
        }
    }
}

/// Why a graph has no fixed-point form.
#[derive(Debug, Error)]
pub enum QuantiseError {
    /// The graph itself is broken.
    #[error(transparent)]
    Graph(#[from] GraphError),
    /// An option out of its bounds.
    #[error("the option {field} is {found}, but must be {expected}")]
    Option {
        /// Which.
        field: &'static str,
        /// Its value.
        found: String,
        /// The values allowed.
        expected: &'static str,
    },
    /// The profile is one of another graph.
    #[error(
        "the profile has {found} values, but the graph has {expected} nodes: profile this graph"
    )]
    Profile {
        /// Values of the profile.
        found: usize,
        /// Nodes of the graph.
        expected: usize,
    },
    /// There is no precision for a layer.
    #[error("node {node} ({operator}, shape {shape:?}): {reason}")]
    NoPrecision {
        /// Name of the node.
        node: String,
        /// Its operator.
        operator: &'static str,
        /// Its shape.
        shape: Vec<usize>,
        /// The chooser's reason.
        reason: String,
    },
    /// A precision that integers of this size cannot have.
    #[error(
        "node {node} ({operator}): {} weight bits and {} input bits were chosen; weights take \
         2 to 16 bits, inputs 2 to 24", precision.weight_bits, precision.input_bits
    )]
    Precision {
        /// Name of the node.
        node: String,
        /// Its operator.
        operator: &'static str,
        /// The chosen precision.
        precision: Precision,
    },
    /// A value that does not fit in 32 bits.
    #[error(
        "node {node} ({operator}, shape {shape:?}): its integers range over {low}..={high}, which does \
         not fit in 32 bits: lower --weight-bits or --input-bits, or give samples that are closer to \
         the real inputs"
    )]
    Overflow {
        /// Name of the node.
        node: String,
        /// Its operator.
        operator: &'static str,
        /// Its shape.
        shape: Vec<usize>,
        /// Smallest integer it could be.
        low: i64,
        /// Largest integer it could be.
        high: i64,
    },
    /// An operator with parameters that have no integer form.
    #[error("node {node} ({operator}, shape {shape:?}): {source}")]
    Operator {
        /// Name of the node.
        node: String,
        /// Its operator.
        operator: &'static str,
        /// Its shape.
        shape: Vec<usize>,
        /// The reason.
        source: Box<OperatorError>,
    },
    /// The result did not pass its own checks.
    #[error("the fixed-point graph is inconsistent, please report this model: {0}")]
    Fixed(#[from] FixedError),
    /// The images that biases are corrected on are no inputs.
    #[error(transparent)]
    Inputs(#[from] OracleError),
}

/// The fixed-point form of `graph`, whose values look like `profile` on samples.
///
/// Run [`crate::passes::run`] before, and profile its result: normalisations that are not folded
/// cost a layer each.
///
/// # Errors
/// When an option, the chooser or a range does not allow it; names the node and what to do.
pub fn quantise(
    graph: &Graph,
    profile: &Profile,
    chooser: &dyn PrecisionChooser,
    options: &QuantiseOptions,
) -> Result<FixedGraph, QuantiseError> {
    let fixed = scaled(graph, profile, chooser, options)?.graph;
    fixed.validate()?;
    Ok(fixed)
}

/// The same with biases corrected for what rounding does on average to `images`, which the float
/// network takes to layers with channels of these `means` ([`float::Survey`]). Biases
/// stay as they are where that would leave 32 bits.
///
/// # Errors
/// As those of [`quantise`], or the images have no place in the graph.
///
/// [`float::Survey`]: crate::float::Survey
pub fn quantise_corrected(
    graph: &Graph,
    profile: &Profile,
    chooser: &dyn PrecisionChooser,
    options: &QuantiseOptions,
    (images, means): (&[f32], &[Vec<f64>]),
) -> Result<FixedGraph, QuantiseError> {
    let mut scaled = scaled(graph, profile, chooser, options)?;
    let (integers, _) = oracle::quantise_input(scaled.graph.input(), images)?;
    bias::correct(&mut scaled, means, &integers);
    scaled.graph.validate()?;
    Ok(scaled.graph)
}

fn scaled(
    graph: &Graph,
    profile: &Profile,
    chooser: &dyn PrecisionChooser,
    options: &QuantiseOptions,
) -> Result<Scaled, QuantiseError> {
    check_options(options)?;
    graph.validate()?;
    if profile.values.len() != graph.nodes.len() {
        let (found, expected) = (profile.values.len(), graph.nodes.len());
        return Err(QuantiseError::Profile { found, expected });
    }
    builder::build(graph, profile, chooser, options)
}

fn check_options(options: &QuantiseOptions) -> Result<(), QuantiseError> {
    let QuantiseOptions {
        margin,
        wide_bits,
        plain_input_bits,
        most_bits,
        whole_inputs: _,
        costly_requantisation: _,
    } = *options;
    if !(1.0..=1e6).contains(&margin) {
        let found = margin.to_string();
        return Err(QuantiseError::Option {
            field: "margin",
            found,
            expected: "from 1 to 1e6",
        });
    }
    for (field, bits, range, expected) in [
        ("wide_bits", wide_bits, 2..=24, "from 2 to 24"),
        ("plain_input_bits", plain_input_bits, 2..=24, "from 2 to 24"),
        ("most_bits", most_bits, 8..=32, "from 8 to 32"),
    ] {
        if !range.contains(&bits) {
            let found = bits.to_string();
            return Err(QuantiseError::Option {
                field,
                found,
                expected,
            });
        }
    }
    Ok(())
}
