//! Arithmetic under every engine: words of 32 and 64 bits, moduli, the negacyclic NTT, samplers,
//! bit packing, the security table, and the choice of SIMD code at run time.
//!
//! * Everything is constant time in its values unless its name says `public`.
//! * Every fast routine has a plain twin to read, in a module `reference`, which the tests compare
//!   it with at each [`SimdLevel`] the machine can run. All levels give the same words.
//! * Samplers read a [`random::Stream`], and what they make of it is part of their definition: two
//!   parties with one seed expand the same values on different machines.

mod aligned;
pub mod bits;
pub mod modulus;
pub mod ntt;
pub mod random;
pub mod rns;
pub mod sample;
pub mod security;
mod simd;
mod simd_level;
#[cfg(feature = "test-seed")]
pub mod test_seed;
pub mod vector;
mod word;

pub use aligned::Aligned;
pub use modulus::{Modulus, ModulusError, PowerOfTwo, Prime};
pub use ntt::{Ntt, NttError};
pub use simd_level::SimdLevel;
pub use word::Word;
