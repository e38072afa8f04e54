//! The two-party core: oblivious transfer and garbled circuits.
//!
//! Both parties hold additive shares after every linear layer and leave an activation with additive
//! shares, having learnt nothing. What that takes is here, bottom up:
//!
//! * [`block`]: 128 bits, the unit of labels and of OT strings.
//! * [`aes`]: AES-128 on batches of blocks.
//! * [`machine`]: what every protocol here is, a state machine without I/O.
//! * [`ot`]: oblivious transfer.
//!
//! Everything is constant time in its secrets. Secrets are wiped on drop, and no type that holds
//! one has a `Debug`.

pub mod aes;
pub mod block;
pub mod circuit;
pub mod garble;
pub mod lean;
pub mod machine;
pub mod ot;

pub use block::Block;
