//! What `pronghorn bench` measures of the core, and examples that measure one crate each.
//!
//! The Python package `pronghorn_bench` holds the suites and their published references. This crate
//! does the work and reads the clock. It also holds protocols of papers that are measured here and
//! are not safe to use ([`rotation_free::paper`]). The library depends on none of it.

pub mod activations;
pub mod ckks;
mod cryptonets;
mod kernels;
mod mobilenet;
pub mod multikey;
pub mod multikey_network;
pub mod ntt;
pub mod parties;
pub mod rotation_free;
pub mod slot;
pub mod words;

pub use kernels::{Figure, batch};
