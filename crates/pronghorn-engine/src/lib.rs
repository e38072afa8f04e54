//! Engines and activation protocols: both parties' halves of the steps of a plan, without I/O.
//!
//! [`ClientModel`] and [`ServerModel`] are a checked plan compiled for one party: an object a step
//! (`sides`). [`ClientRun`] and [`ServerRun`] are one batch, [`prepared`] its offline part. A
//! step is a [`machine::StepMachine`]: shares in, messages out and in, a share out. Its messages
//! are a list ([`exchange`]), which each protocol's module shows as a table. What outlives a batch
//! is in a [`Connection`]. Sessions move the bytes.

pub mod batch;
mod bias;
pub mod coefficient;
pub mod connection;
pub mod dither;
pub mod encrypted;
mod error;
pub mod exchange;
pub mod garbled;
mod half;
mod images;
pub mod keys;
pub mod lean;
mod local;
pub mod machine;
mod matrices;
pub mod measure;
mod model;
mod online;
pub mod ots;
mod packed;
pub mod persistent;
mod pool;
pub mod prepared;
mod product;
pub(crate) mod protocol;
mod reveal;
mod rooms;
mod rows;
mod run;
mod secret;
pub mod share;
mod sides;
mod simd;
pub mod slots;
mod toy;

pub use coefficient::publication::ClientPublication;
pub use connection::{Connection, Connections};
pub use error::EngineError;
pub use images::Images;
pub use machine::{Machine, Progress, Want};
pub use model::{ClientModel, ServerModel};
pub use online::{ClientInputs, ClientRun, ServerRun};
pub use prepared::{ClientPreparation, ClientPrepared, ServerPreparation, ServerPrepared};
pub use protocol::PreludeKind;
pub use run::Preludes;
