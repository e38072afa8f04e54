//! Silent OT: millions of random correlated OTs from a few, at half a bit each.
//!
//! The outputs are those of the [extension](super::extension) with random choices. The sender gets
//! blocks `q`, the receiver blocks `t` with `q = t + r Delta`. The choice `r` is bit 0 of `t`; bit
//! 0 of `q` is 0, and that of `Delta` is 1.
//!
//! # Protocol
//! Ferret with regular noise (K. Yang, C. Weng, X. Lan, J. Zhang and X. Wang, CCS 2020, sections 4
//! and 5), with the half-trees of EUROCRYPT 2023. One direction of one connection runs it:
//!
//! ```text
//! SilentReceiver::begin  ->  SilentSender::begin        base OTs, by the extension
//! a round:
//!   SilentSender::round  ->  SilentReceiver::take_round  corrections, 16 bytes a level of a tree
//!   SilentSender::answer <-  SilentReceiver::challenge   48 bytes
//!   SilentSender::answer ->  SilentReceiver::verify      32 bytes
//!   take, on both sides, in any pieces, as long as `left` says
//! ```
//!
//! A round uses up `K + t depth + 128` OTs: `K` secrets `u`, one for each level of `t` trees, and
//! 128 for the check. The sender has all `2^depth` leaves of a tree. The receiver misses leaf
//! `alpha` and has it with `Delta` added. The bits of `alpha` are the complements of the tree's
//! choices. Output `x` of a tree is its leaf `x` plus ten of the `u`, whose numbers are public. So
//! the choices of the outputs are `A u + e`, with one noisy row in each tree. The first trees of a
//! round are the next one's base, and their outputs go nowhere else. [`Chain`] lists the sets of
//! the rounds.
//!
//! Departures from the paper:
//! * The check of all trees of a round is one, before any OT is used. So both parties grow every
//!   tree again when its OTs are taken. Usual implementations hand out OTs before their check.
//! * Coefficients of the check are products ([`SilentReceiver::challenge`]), so that the receiver
//!   finds those of its secret leaves without a look-up.
//! * Bit 0 carries the choice. It is cleared in every leaf after all sums of the tree, and set in
//!   leaf `alpha`.
//! * Parameters follow the attacks in [`security`], not the paper's table.
//!
//! # Security
//! *Receiver's choices.* By regular LPN with the parameters of the set, whose cost is at least
//! 2^143 bit operations by every formula of [`security`]. The assumption concerns someone who knows
//! what some of the choices mask. The key of the code is a hash of both parties' nonces, which the
//! sender sends first. The matrix of a round is never used again, and each round has fresh secrets.
//!
//! *A sender that cheats* chooses false corrections. What the receiver then has depends on `alpha`.
//! The coefficients of the check are drawn afterwards. Two different vectors of a tree have one sum
//! with probability at most `depth / 2^128`, and so any two of any tree of the round with at most
//! `t 2^(2 depth) depth / 2^129 < 2^-90`. The sums of several trees cancel for a pair of guesses
//! with probability `2^-128`. Such collisions apart, the sender passes only if it has guessed those
//! bits of the `alpha` that matter, and passing tells it that the guess was right. The paper's
//! functionality allows that. A failure ends the direction ([`OtError::FalseCorrections`]).
//!
//! *A receiver that cheats* may choose `u` and `alpha` and send a false challenge. Of a tree it
//! sees `H` of nodes that are `Delta` plus what it knows. Each tree has an AES key of its own, so
//! one evaluation tests a guess at `Delta` against at most 12 nodes: `2^123` evaluations in all,
//! whatever the number of rounds. A false challenge gets a hash of a value plus a multiple of
//! `Delta`, which tests one guess for each evaluation of the hash. What it does to the base OTs the
//! extension's check catches.
//!
//! *Uses.* Base OTs go in raw, each once, and are never hashed. Random strings come from
//! [`SilentSender::hash`] with the number of the OT as tweak, as in [`transfer`](super::transfer).
//! Its key is of this run alone, so that no tweak meets one of the extension under one key.
//!
//! # Cost
//! The sender grows every tree three times, the receiver twice. An OT takes ten reads in a table of
//! `16 K` bytes and two and a half AES blocks for their places. Those reads are most of the time,
//! so the table should fit the cache: 8 MiB for the largest set. It is in huge pages but for
//! the first round, and each read is announced a step ahead. `cargo run --release -p pronghorn-mpc --example silent_rate` prints
//! the rates. Memory is two such tables while a round ends, else one. Trees are independent, and
//! grow on all threads of the pool that calls.
//!
//! ```
//! use pronghorn_mpc::{Block, ot::{silent::Chain, *}};
//! use pronghorn_ring::random::Seed;
//!
//! fn make(sender: &mut CotSender, receiver: &mut CotReceiver) -> Result<(), OtError> {
//!     let chain = Chain::cheapest(200_000, 8);
//!     let mut message = Vec::new();
//!     let mut receiver = SilentReceiver::begin(chain, receiver, &Seed::from_os()?, &mut message)?;
//!     let mut sender = SilentSender::begin(chain, sender, &Seed::from_os()?, &message)?;
//!
//!     let (mut corrections, mut challenge, mut answer) = (Vec::new(), Vec::new(), Vec::new());
//!     sender.round(&mut corrections)?;
//!     receiver.take_round(&corrections)?;
//!     receiver.challenge(&mut challenge)?;
//!     sender.answer(&challenge, &mut answer)?;
//!     receiver.verify(&answer)?;
//!
//!     let (mut q, mut t) = (vec![Block::ZERO; 1000], vec![Block::ZERO; 1000]);
//!     assert_eq!(sender.take(&mut q)?, receiver.take(&mut t)?);
//!     for (q, t) in q.iter().zip(&t) {
//!         assert!(*q == *t ^ sender.delta().masked(t.lsb()));
//!     }
//!     Ok(())
//! }
//!
//! # fn main() -> Result<(), OtError> {
//! # use pronghorn_mpc::machine::Machine;
//! # fn exchange(
//! #     first: &mut dyn Machine<Error = OtError>,
//! #     second: &mut dyn Machine<Error = OtError>,
//! # ) -> Result<(), OtError> {
//! #     let (mut there, mut back) = (Vec::new(), Vec::new());
//! #     first.send(&mut there)?;
//! #     second.receive(&there)?;
//! #     second.send(&mut back)?;
//! #     first.receive(&back)
//! # }
//! # let parameters = OtParameters::new(BaseOt::Ristretto, 8)?;
//! # let mut sender = SetupSender::new(parameters, [0; 32], &Seed::from_os()?);
//! # let mut receiver = SetupReceiver::new(parameters, [0; 32], &Seed::from_os()?);
//! # exchange(&mut sender, &mut receiver)?;
//! # let mut sender = sender.into_setup()?.connect()?;
//! # let mut receiver = receiver.into_setup()?.connect()?;
//! # exchange(&mut sender, &mut receiver)?;
//! # make(&mut sender.into_sender()?, &mut receiver.into_receiver()?)
//! # }
//! ```

mod check;
mod code;
mod parameters;
mod receiver;
pub mod security;
mod sender;
mod simd;
mod stream;
mod table;
mod tree;

pub use check::{ANSWER_BYTES, CHALLENGE_BYTES};
pub use parameters::{Chain, LpnParameters};
pub use receiver::SilentReceiver;
pub use sender::SilentSender;

use super::OtError;
use crate::Block;

/// Appends the choices of the receiver's blocks to `out`, before the blocks are hashed: bits, the
/// first in the lowest bit of the first byte.
pub fn choices(t: &[Block], out: &mut Vec<u8>) {
    out.extend(t.chunks(8).map(|t| {
        let bits = t.iter().rev();
        bits.fold(0, |byte, t| byte << 1 | u8::from(t.lsb()))
    }));
}

const CORRECTIONS: &str = "the corrections of silent OT";
const CHALLENGE: &str = "the challenge of silent OT";
const ANSWER: &str = "the answer to the challenge of silent OT";

const ROUND_TURN: OtError = OtError::OutOfTurn {
    state: "a round of silent OT starts when all OTs of the round before have been taken",
};
const ANSWER_TURN: OtError = OtError::OutOfTurn {
    state: "an answer of silent OT follows a round's challenge, once",
};
const TAKE_TURN: OtError = OtError::OutOfTurn {
    state: "silent OT gives OTs after the check of a round",
};

#[cfg(test)]
mod tests;
