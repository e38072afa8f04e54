//! Garbled circuits: half gates with free XOR, for batches of one [`circuit`](crate::circuit).
//!
//! The [`Garbler`] turns a circuit into tables, the [`Evaluator`] computes on labels with them and
//! learns what the circuit reveals to it, nothing else; both are state machines without I/O.
//! Security is against semi-honest parties.
//!
//! ```
//! use std::sync::Arc;
//!
//! use pronghorn_mpc::circuit::{Activation, Modulus};
//! use pronghorn_mpc::garble::{Delta, Evaluator, Garbler};
//! use pronghorn_mpc::machine::{Machine, Want};
//! use pronghorn_mpc::{Block, ot::*};
//! use pronghorn_ring::random::Seed;
//! use zeroize::Zeroizing;
//!
//! # fn exchange(first: &mut dyn Machine<Error = OtError>, second: &mut dyn Machine<Error = OtError>) -> Result<(), OtError> {
//! #     let (mut there, mut back) = (Vec::new(), Vec::new());
//! #     first.send(&mut there)?;
//! #     second.receive(&there)?;
//! #     second.send(&mut back)?;
//! #     first.receive(&back)
//! # }
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let mut sender = SetupSender::new(OtParameters::default(), [0; 32], &Seed::from_os()?);
//! # let mut receiver = SetupReceiver::new(OtParameters::default(), [0; 32], &Seed::from_os()?);
//! # exchange(&mut sender, &mut receiver)?;
//! # let (sender, receiver) = (sender.into_setup()?, receiver.into_setup()?);
//! # let (mut sender, mut receiver) = (sender.connect()?, receiver.connect()?);
//! # exchange(&mut sender, &mut receiver)?;
//! # let (mut sender, mut receiver) = (sender.into_sender()?, receiver.into_receiver()?);
//! // The server garbles and is the sender of the OTs, the client evaluates. Both know the circuit.
//! let modulus = Modulus::power_of_two(20)?;
//! let relu = Arc::new(Activation::RELU.circuit(modulus, -500_000, 500_000, modulus)?);
//! let values = [-7, 0, 9];
//! let server = [11, 22, 33]; // its shares, random
//! let client: Vec<_> = (0..3).map(|i| modulus.sub(modulus.from_i64(values[i]), server[i])).collect();
//!
//! let labels = relu.labelled_bits() * 3;
//! let (mut q, mut t) = (vec![Block::ZERO; labels], vec![Block::ZERO; labels]);
//! let mut message = Vec::new();
//! receiver.extend(&relu.choices(&client, 3), &mut t, &mut message)?;
//! sender.extend(&message, &mut q)?;
//!
//! let delta = Delta::new(sender.delta());
//! let start = Block::from_bytes(*Seed::from_os()?.as_bytes().first_chunk().unwrap());
//! let values = Zeroizing::new(server.to_vec());
//! let mut garbler = Garbler::new(relu.clone(), 3, &delta, start, values, Zeroizing::new(q))?;
//! let mut evaluator = Evaluator::new(relu, 3, Zeroizing::new(client), Zeroizing::new(t))?;
//! while garbler.want() == Want::Send {
//!     message.clear();
//!     garbler.send(&mut message)?;
//!     evaluator.receive(&message)?;
//! }
//! let (server, client) = (garbler.into_outputs()?, evaluator.into_outputs()?);
//! for (i, expected) in [0, 0, 9].into_iter().enumerate() {
//!     assert_eq!(modulus.add(server[i], client[i]), expected);
//! }
//! # Ok(())
//! # }
//! ```
//!
//! # Labels
//!
//! Every wire has two labels of 128 bits that differ by the garbler's [`Delta`] (free XOR:
//! Kolesnikov and Schneider, ICALP 2008), whose lowest bit is set; the lowest bit of a label is its
//! *colour*, which says nothing about the bit. The labels of the evaluator's inputs come from
//! correlated OT with the same delta: the sender's blocks are zero-labels, the receiver's are
//! active labels. Three ways:
//!
//! * Garbling when the input is there: the choices of the OT are
//!   [`Circuit::choices`](crate::circuit::Circuit::choices), and nothing else is sent.
//! * Garbling ahead: OTs with random choices, and when the input is there a bit from the evaluator
//!   and 16 bytes from the garbler for each bit ([`correct`]).
//! * Late inputs of the garbler: the labels themselves, 16 bytes a bit ([`encode`]).
//!
//! A bit that the garbler knows when it garbles needs no label. It is a wire whose active label is
//! zero and whose zero-label is the bit times delta: the evaluator has nothing to do for it, and it
//! moves other zero-labels by delta.
//!
//! # Gates
//!
//! AND gates are the half gates of Zahur, Rosulek and Evans ("Two halves make a whole", EUROCRYPT
//! 2015), two blocks each, and where the garbler knows one operand their generator half alone, one
//! block. Projections of labels to additive shares are those of Ball, Malkin and Rosulek ("Garbling
//! gadgets", CCS 2016), with nothing sent for the colour 0.
//!
//! # The hash, and its bound
//!
//! With AES-128 as `E`, `sigma` the orthomorphism [`Block::sigma`](crate::Block::sigma), and `S` a
//! random block that the garbler draws when the labels of the inputs are fixed, and sends:
//!
//! > `H(x; c, j) = E_(S xor c)(sigma(x) xor T_j) xor sigma(x)`, `T_j = E_(S xor 2^127)(j)`.
//!
//! This is the hash of Guo, Katz, Wang, Weng and Yu ("Better concrete security for half-gates
//! garbling (in the multi-instance setting)", CRYPTO 2020), `E_i(sigma(x)) xor sigma(x)`, except
//! that a key serves up to 16 labels of one gate (those of two wires in 8 instances) where theirs
//! serves one; `T_j` tells them apart. No two gates share a key. With a fixed key instead, one
//! evaluation of AES tests a guess of delta against every gate there is, and some `2^128 / gates`
//! suffice.
//!
//! Bound: take AES as an ideal cipher. Whoever evaluates it `p` times and sees, for `n` labels `x`,
//! `H(x + delta; c, j) + b delta` with `b` of its choice, or random blocks instead, tells the two
//! apart with advantage at most
//!
//! > `(4 p + n) / 2^124`.
//!
//! Proof, by H-coefficients with delta (127 random bits) shown at the end. Under a key with
//! `m <= 16` labels and `p'` evaluations, an input evaluated is some `sigma(x + delta) + T_j`, or
//! an output evaluated is some `h + b delta + sigma(x + delta)`: for each pair one value of delta,
//! since `sigma` and `sigma + 1` are permutations, so `2 m p' / 2^127`. Two of the inputs are
//! equal, `sigma(x + x') = T_j + T_j'`: for labels fixed before `S`, or that are hashes themselves,
//! `2^-128` a pair; two of the outputs are equal: the same. Together `m^2 / 2^128`. Without these
//! the answers are those of a random permutation at points not asked for. Sum over the keys:
//! `32 p / 2^127 + 8 n / 2^127`. That half gates are as secure as their hash is what Zahur, Rosulek
//! and Evans prove.
//!
//! Starts are random, so the keys of different garblings coincide (which would add up the labels
//! under a key) only by chance: with `q` keys in all the garblings of everybody, each one meets
//! another with probability `q / 2^128`.
//!
//! `n` counts all labels hashed under one delta. That is the delta of a set-up of OTs and outlives
//! connections, and it is the correlation that [`OtHash`](crate::ot::OtHash) hides, too: in all,
//! the two bounds add up, each with its own `n`, because no key of AES serves both but by chance.
//! The OTs are the larger part: someone who evaluates AES `2^80` times is told from one who learns
//! nothing with advantage `2^-36`, which is one evaluation in `2^116` for delta.
//!
//! # Messages
//!
//! The garbler's bytes are `S` (16), then for every tile of [`TILE`](crate::circuit::TILE)
//! instances, for every step of the circuit: the generator halves of the tile's instances and then
//! their evaluator halves; the generator halves alone; or the corrections of a projection, packed
//! to their bits and padded to a byte. Revealed bits follow, a bit for each instance, padded. They
//! come in messages of at most [`MESSAGE_BYTES`]; neither party holds more of them, and the bytes
//! do not depend on the level of SIMD. A batch may be split at multiples of the tile into garblings
//! of their own, with their own starts, for several cores.
//!
//! # Bytes, and the floor
//!
//! 10,000 ReLUs on 20-bit shares modulo `2^20`, for each of them (derivation of the 623 bytes in
//! [`circuit`](crate::circuit)):
//!
//! | | offline | online |
//! |---|---|---|
//! | tables: 18 AND gates and a half one, 250 projected bits | 623.25 | |
//! | OT of 20 labels, IKNP at 16 bytes | 320 | |
//! | the client's flips, the server's corrections | | 2.5 + 320 |
//! | together | 943 | 323 |
//! | Gazelle, table XI | 5,430 | 1,680 |
//!
//! 12.7 MB for 10,000, against 71.1 MB: 5.6 times less. OT extension of width `w`
//! ([`ot`](crate::ot)) divides the 320 bytes by `w`: 1,026 bytes in all at 4, 6.9 times less.
//! Garbling when the input is there needs no corrections: 946 bytes, or 706. The floors under this:
//! the carry into the top bit of a sum takes `k - 2` ANDs and one with a known bit; linear garbling
//! takes 256 bits an AND (the lower bound of Zahur, Rosulek and Evans); a label takes 128 bits.
//! Silent OT would make the 320 bytes 2.5, and leave 626 bytes offline.
//!
//! # Speed
//!
//! `cargo run --release -p pronghorn-bench --example garble_bench 20`, one core of a shared
//! Sapphire Rapids Xeon that runs one 512-bit AES round a cycle at 3.6 GHz: 287 to 300 M AND/s
//! garbled and 477 to 500 M evaluated in long chains, where AES alone, under one key and with
//! nothing else to do, would allow 379 M and 758 M. The ReLU above: 260 ns garbled, 175 ns
//! evaluated, of which the projections take two thirds. With AES-NI 90 M and 180 M AND/s.
//!
//! # Three-halves garbling
//!
//! Rosulek and Roy (CRYPTO 2021) garble an AND in 1.5 blocks and 5 bits, 24.6 bytes instead of 32,
//! for up to six hashes instead of four at the garbler and three instead of two at the evaluator,
//! on halves of labels. Half gates with a known operand have no such form, and the labels do not
//! change. For the ReLU above it saves 18 * 7.4 = 133 bytes of 1,266, a tenth. It takes about half
//! as much time again, some 30 ns at each party where a gigabit link takes 1,060 ns for 133 bytes:
//! so it would pay on any network, but little. Not built: OTs of width 4 instead of IKNP save 240
//! bytes for less time.
//!
//! # Secrets
//!
//! Time depends on the circuit and on the number of instances alone. Labels, values, delta and
//! shares are wiped on drop, and nothing here has a `Debug` but errors, which hold lengths. What a
//! gate has on the stack is left to the next one to overwrite.

mod error;
mod hash;
mod kernels;
mod labels;
mod machines;
pub mod reference;
mod residues;
mod simd;

pub use error::GarbleError;
pub use labels::{Delta, apply_corrections, correct, encode};
pub use machines::{Evaluator, Garbler, MESSAGE_BYTES};
