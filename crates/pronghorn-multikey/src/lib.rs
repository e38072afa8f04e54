//! Networks on data and weights that are encrypted under different keys.
//!
//! A model owner encrypts the weights, a client encrypts an input, and a cloud that has neither key
//! computes the result under both keys, with the scheme of [`pronghorn_he::multikey`]. H. Chen, W.
//! Dai, M. Kim, Y. Song, "Efficient multi-key homomorphic encryption with packed ciphertexts" (CCS
//! 2019, ePrint 2019/524), section 6.3, runs one network so. Here any network of linear layers and
//! polynomial activations runs, one image at a time. In reading order:
//!
//! * [`Network`]: the architecture, which all parties know.
//! * [`Bounds`]: what the owner of the weights proves of values and errors, which all know too.
//! * [`Program`]: the places of all values in slots ([`layout`]) and how each layer gets from one
//!   to the other ([`packing`]), with counts of the work.
//! * [`Setting`]: primes, levels and scales; [`Aim`] chooses them with room for the floods of the
//!   decryption.
//! * [`Bound`]: how large the result and its noise can become, for any input in range.
//! * [`Model`]: the encrypted weights. [`Cloud`] evaluates the network.
//! * [`Program::encrypt_input`] and [`Program::decode`]: the client's.
//! * [`roles`]: model owner, cloud and client as state machines, with their messages.
//!
//! # What is revealed
//!
//! The architecture, the range of inputs, and a few [`Bounds`] of each layer in steps of a quarter of
//! a bit are public. The places of weights in ciphertexts follow from the
//! architecture, so they tell no more; neither a zero weight nor a repeated one shows. The result's
//! ciphertexts hold nothing but the result: programs whose last values would hold partial sums are
//! refused.
//!
//! Weights and inputs are doubles. They are encoded exactly but for the rounding to integers
//! ([`exact_message`](pronghorn_he::ckks::Parameters::exact_message)), which the bound on the noise covers. So slots that
//! should be zero are, and the result is that of a network whose weights differ from the owner's by
//! a few units in the last place of a double, once and for all images: factors between scales are
//! part of the weights. The decryption's floods hide all else.

mod aim;
mod bound;
mod bounds;
mod error;
pub mod layout;
mod model;
mod network;
pub mod packing;
pub mod roles;
mod setting;

pub use aim::{Aim, Chosen};
pub use bound::Bound;
pub use bounds::{Bounds, NodeBounds, SLACK};
pub use error::NetworkError;
pub use model::{Cloud, Layer, Model};
pub use network::{Counts, Network, Node, Op, Program, Source, Step, Work};
pub use setting::{Chain, Setting};
