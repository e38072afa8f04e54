//! Activations on shares by few bits: comparisons, truncations and products of bits from random
//! oblivious transfers, in place of garbled circuits.
//!
//! A [`Program`] says what is computed, in levels. Each party runs it as an [`Evaluation`] on a
//! batch of elements, one message a level. A ReLU that drops 12 of 21 bits takes some 174 bits and
//! 36 random OTs of an element, where a garbled circuit takes 8,800 bits.
//!
//! # Turns
//! The parties take turns to speak first in a level. So each party puts the end of one level and
//! the start of the next in one message,
//!
//! > server 1, client 1 2, server 2 3, client 3 4, ...
//!
//! so that `L` levels take `L + 1` messages, and `L` half round trips where the first message rides
//! with one before it.
//!
//! # Products
//! `y w`, of a bit `y` at the one party and a residue `w` at the other, takes a random OT: `w_0`
//! and `w_1` at the sender, `r` and `w_r` at the receiver. The sender sends `e = w - (w_1 - w_0)`,
//! the receiver `f = y + r`, and shares of the product are
//!
//! > `f w - (1 - 2 f) w_0` and `(1 - 2 f) (r e + w_r)`.
//!
//! The carries of a few bits of a sum, a leaf, take a random OT of several strings: `W_v` at the
//! sender for each choice `v` of `w` bits, `r` and `W_r` at the receiver. The receiver speaks first
//! and sends `f = y + r` (bitwise), `y` being its bits. For each `v` the sender has the carry `T_v`
//! of its own bits and `v + f`. It keeps the share `T_0 + W_0` and sends `T_v + W_v + T_0 + W_0`
//! for `v` from 1 on, from which the receiver has `T_r + T_0 + W_0`, the carry of `y` and a share.
//! Three bits take 17 bits of messages with both of their carries, or 10 with one, and 3 OTs.
//!
//! Products of shared bits open them behind the masks of a triple (Beaver, CRYPTO 1991), which two
//! random OTs make, one in each direction.
//!
//! # Cascades
//! A [`Cascade`] runs programs one after the other, each on a batch of its own size, as the rounds
//! of [`Cascade::argmax`] have fewer and fewer values.
//!
//! # Security
//! Against semi-honest parties, and perfect given random OTs: whatever the values are, a party's
//! view is uniform given its own coins, and its peer's output is the result minus its own. Tests
//! show this for small widths by all coins of the peer. A malicious party can add errors of its
//! choice to any shared bit or word of the program. The second speaker of a leaf even chooses any
//! function of the few bits that its peer has there. Results then depend on secrets, as a ReLU
//! whose sign is flipped. So its peer must not show it results, or what follows from them.

mod activation;
mod argmax;
mod cascade;
mod evaluation;
mod gadgets;
mod program;
mod randoms;
mod slots;
mod table;

pub use activation::{Input, dithered_width, input_width};
pub use argmax::{MOST_AT_ONCE, MOST_CLASSES, argmax_width};
pub use cascade::{Cascade, CascadeReceived, CascadeRun, CascadeSent, deal_cascade};
pub use evaluation::{Evaluation, LeanError};
pub use program::{Party, Program};
pub use randoms::{Dealer, LANE, Received, Sent, deal};
