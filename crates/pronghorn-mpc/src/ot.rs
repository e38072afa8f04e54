//! Oblivious transfer: the receiver learns one of the sender's two strings, the sender not which.
//!
//! ```text
//! SetupSender, SetupReceiver        128 base OTs, once between two parties; may be stored
//!   SenderSetup, ReceiverSetup
//! ConnectSender, ConnectReceiver    once a connection: fresh keys
//!   CotSender, CotReceiver          extend: any number of correlated OTs, one message each time
//!   SilentSender, SilentReceiver    millions of random correlated OTs at half a bit each
//! transfer                          random strings, chosen strings, shares of products
//! ```
//!
//! ```
//! use pronghorn_mpc::{Block, machine::Machine, ot::*};
//! use pronghorn_ring::random::Seed;
//!
//! type AnyMachine<'a> = &'a mut dyn Machine<Error = OtError>;
//!
//! fn exchange(first: AnyMachine, second: AnyMachine) -> Result<(), OtError> {
//!     let (mut there, mut back) = (Vec::new(), Vec::new());
//!     first.send(&mut there)?;
//!     second.receive(&there)?;
//!     second.send(&mut back)?;
//!     first.receive(&back)
//! }
//!
//! # fn main() -> Result<(), OtError> {
//! let (parameters, session) = (OtParameters::default(), [0; 32]);
//! let mut sender = SetupSender::new(parameters, session, &Seed::from_os()?);
//! let mut receiver = SetupReceiver::new(parameters, session, &Seed::from_os()?);
//! exchange(&mut sender, &mut receiver)?;
//! let (sender, receiver) = (sender.into_setup()?, receiver.into_setup()?);
//!
//! let (mut sender, mut receiver) = (sender.connect()?, receiver.connect()?);
//! exchange(&mut sender, &mut receiver)?;
//! let (mut sender, mut receiver) = (sender.into_sender()?, receiver.into_receiver()?);
//!
//! let (mut q, mut t, mut message) = ([Block::ZERO; 3], [Block::ZERO; 3], Vec::new());
//! receiver.extend(&[0b101], &mut t, &mut message)?;
//! sender.extend(&message, &mut q)?;
//! assert!(t[0] == q[0] ^ sender.delta() && t[1] == q[1]);
//! # Ok(())
//! # }
//! ```
//!
//! Correlated OTs are what garbled circuits take as they are: `q` is the label of 0 and `q + Delta`
//! that of 1.
//!
//! # Security
//! Against malicious parties, in the sense that OT has (the ideal functionality lets a corrupted
//! party choose the blocks it ends with), and up to a receiver's guesses at bits of `Delta`, of
//! which a wrong one ends the session; the bounds stand in [`base`], [`extension`] and [`OtHash`].
//! What is done with the OTs may still be secure against semi-honest parties only.

pub mod all_but_one;
pub mod base;
mod check;
mod error;
pub mod extension;
mod hash;
mod puncture;
pub mod setup;
pub mod silent;
pub(crate) mod simd;
pub mod transfer;

pub use base::BaseOt;
pub use error::OtError;
pub use extension::{CotReceiver, CotSender};
pub use hash::OtHash;
pub use setup::{
    ConnectReceiver, ConnectSender, OtParameters, ReceiverSetup, SenderSetup, SetupReceiver,
    SetupSender,
};
pub use silent::{SilentReceiver, SilentSender};
