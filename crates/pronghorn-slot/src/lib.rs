//! Linear layers of one input on slots: matrix-vector products and convolutions by a server that
//! has the weights, of values that are encrypted.
//!
//! Gazelle (Juvekar, Vaikuntanathan, Chandrakasan, USENIX Security 2018), sections V to VII, on
//! [`pronghorn_he::bfv`]. The owner of the key packs its values (or its share of them) into slots
//! ([`Packing::pack`]) and encrypts; the server evaluates ([`Layer::evaluate`]), hides
//! ([`pronghorn_he::bfv::Hider`]) and sends; each party reads its additive share modulo `t` from
//! the slots ([`Packing::unpack`]). A layer is a
//! [`ConvGeometry`](pronghorn_graph::geometry::ConvGeometry), dense layers included. In reading
//! order:
//!
//! * [`Variant`], [`Taps`], [`Rows`]: how a layer can be computed. [`matrix`], [`convolution`]:
//!   those of the paper by name.
//! * [`Packing`]: what both parties know, from sizes alone. [`Layer`]: with weights.
//! * [`cost`]: what a variant costs, and [`cost::choose`], which picks one with its parameters.
//!
//! # What is not as in the paper
//!
//! Both parties may apply any linear map to their own shares before and after, for nothing. So
//! partial sums are not rotated and added but summed as shares; a tap or a copy of an input may be
//! packed again instead of rotated; and convolutions may be products of values at points
//! ([`Taps::Points`]), which neither rotate nor multiply as often. Giant steps follow Horner's
//! rule: one rotation key serves all of them, and stays in cache.
//!
//! # What is revealed
//!
//! Nothing but the shares: every slot of an answer is masked uniformly modulo `t`, those of partial
//! sums and those that nobody reads too.

mod axis;
pub mod convolution;
pub mod cost;
mod layer;
mod layout;
pub mod matrix;
mod packing;
mod points;
#[cfg(test)]
mod tests;

pub use axis::Taps;
pub use cost::{Choice, Cost, Counts, Objective, choose, choose_modulo, common_modulus};
pub use layer::Layer;
pub use layout::{Rows, Variant};
pub use packing::{Packing, ciphertexts};
use pronghorn_graph::geometry::GeometryError;
use pronghorn_he::bfv::{BfvError, ParameterError};
use thiserror::Error;

/// Why a layer is not computed.
#[derive(Debug, Error)]
pub enum SlotError {
    /// Sizes that do not go together.
    #[error(transparent)]
    Geometry(#[from] GeometryError),
    /// Refused by the encryption.
    #[error(transparent)]
    Bfv(#[from] BfvError),
    /// There are no such parameters.
    #[error(transparent)]
    Parameters(#[from] ParameterError),
    /// A field of a variant that does not go with the layer.
    #[error(
        "{field} is {value}; take a power of two of at most {limit} that the layer has room for"
    )]
    Variant {
        /// The field.
        field: &'static str,
        /// Its value.
        value: usize,
        /// The most it may be.
        limit: usize,
    },
    /// Taps that an axis does not have.
    #[error("axis {axis} (0 down, 1 right) of this layer has no taps as {taps:?}; take others")]
    Taps {
        /// The axis.
        axis: usize,
        /// How its taps were to be dealt with.
        taps: Taps,
    },
    /// A layer that takes too long in a variant.
    #[error(
        "this layer takes {found} {what} in this variant, more than {most}; take another variant, or another engine"
    )]
    TooLarge {
        /// Of what.
        what: &'static str,
        /// The number.
        found: u64,
        /// The most there may be.
        most: u64,
    },
    /// A number of values, weights or ciphertexts that is not the layer's.
    #[error("{found} {what} were given; this layer has {expected}")]
    Count {
        /// Of what.
        what: &'static str,
        /// The number given.
        found: usize,
        /// The number there is.
        expected: usize,
    },
    /// Rotations without keys.
    #[error("this variant rotates; give it keys for the steps that its packing lists")]
    NoKeys,
    /// Values that no plaintext modulus holds.
    #[error(
        "values of up to {largest} do not fit a plaintext modulus; requantise them to 30 bits at most"
    )]
    Range {
        /// The largest absolute value.
        largest: u64,
    },
    /// Nothing fits.
    #[error(
        "no variant of this layer has room for the noise and its flood at 128 bits of security; take values or a flood of fewer bits"
    )]
    NoVariant,
}
