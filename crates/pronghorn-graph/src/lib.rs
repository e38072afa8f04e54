//! What a network computes: operators and shapes in floating point ([`graph`]), the same in
//! fixed point ([`fixed`]), the passes that lead from one to the other, and the plain
//! fixed-point evaluator every secure engine is tested against (the oracle).
//!
//! The way of a model: [`graph::Graph::from_json`], [`passes::run`], [`float::profile`] on samples,
//! [`quantise::quantise`], and then [`oracle::evaluate`] says what every secure run must give. For
//! runs on ciphertexts alone, [`polynomial::lower`] and [`polynomial::PolyGraph::evaluate`].

mod convolution;
pub mod features;
pub mod finish;
pub mod fixed;
pub mod float;
pub mod function;
pub mod geometry;
pub mod graph;
pub mod layout;
pub mod losses;
pub mod matrices;
pub mod names;
pub mod oracle;
pub mod outputs;
pub mod passes;
pub mod polynomial;
pub mod quantise;
mod rearrange;
pub mod rescale;
pub mod shape;
mod signs;
mod simd;
