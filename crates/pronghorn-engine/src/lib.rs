//! Engines and activation protocols: what the steps of a plan do, both parties, without I/O.
//!
//! Each step is a [`machine::StepMachine`]: it takes one party's additive shares, turns messages into
//! messages, and leaves that party's share of the step's value. Its messages are a list
//! ([`exchange`]), which the documentation of each protocol's module shows as a table.
//! [`run::ClientRun`] and [`run::ServerRun`] string the steps of a plan together; sessions move the
//! bytes.

pub mod batch;
pub mod bench;
pub mod coefficient;
pub mod encrypted;
mod error;
pub mod exchange;
pub mod garbled;
mod local;
pub mod machine;
mod reveal;
pub mod run;
pub mod share;
mod simd;
pub mod slots;

pub use coefficient::publication::{ClientPublication, PublicationClient};
pub use error::EngineError;
pub use machine::{Machine, Progress, Want};
pub use run::{
    ClientInputs, ClientKeys, ClientPreparation, ClientPrepared, ClientRun, ServerKeys,
    ServerModel, ServerPreparation, ServerPrepared, ServerRun,
};
pub use slots::keys::KeyCache;
