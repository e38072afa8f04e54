//! What `pronghorn bench` measures of the core. Suites, references and what is compared with what are in
//! `python/pronghorn/_bench`; here is the work, and the clock around it.

pub mod activations;
pub mod ckks;
pub mod cryptonets;
mod kernels;
pub mod ntt;
pub mod parties;
pub mod rotation_free;
pub mod slot;

pub use kernels::{Figure, batch};
