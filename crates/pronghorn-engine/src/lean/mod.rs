//! Activations on shares by products of bits, and the index of the largest value.
//!
//! Both parties run the programs of [`pronghorn_mpc::lean`] on tiles of elements, in lockstep.
//! Parts of some tiles have a message of each turn. The random OTs of both directions come first,
//! of a part each: at once with the first messages, or ahead.
//!
//! | message | from | bytes |
//! |---|---|---|
//! | the server's oblivious transfers | server | 16 bits an OT |
//! | the products of bits | server, client, in turn | those of the program's levels |
//! | the client's oblivious transfers | client, after the first turn | 16 bits an OT |
//!
//! # What is revealed
//!
//! To either party nothing: messages are masked by random OTs, each used once. This is against
//! semi-honest parties. A malicious party can add errors of its choice to any shared bit or word,
//! so that results depend on secrets. It is caught where it deviates in the OTs (their consistency
//! check).
//!
//! # Turns
//!
//! The server begins, so that its message rides with the answer of a linear step before it. Every
//! later message has the end of one level and the start of the next.

mod ots;
mod party;
mod prepared;
pub(crate) mod sides;
#[cfg(test)]
mod tests;
mod work;

pub use party::{LeanClient, LeanServer};
pub use prepared::{PrepareLeanClient, PrepareLeanServer, PreparedLean};
pub use work::Layout;
