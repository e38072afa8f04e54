//! The plan: what each step computes, with which protocol and parameters, and what it costs.
//!
//! A plan is data. It holds shapes, scales, ranges and parameters, never a weight; it prints itself,
//! travels to the client, and both parties compare its hash before anything else happens.

pub mod build;
pub mod coefficient;
pub mod cost;
mod display;
pub mod encrypted;
pub mod garbled;
pub mod held;
pub mod hiding;
mod lower;
pub mod plan;
pub mod precision;
pub mod slots;
pub mod trust;
mod validate;

pub use build::{BuildError, BuildOptions, Built, Computation, build};
pub use encrypted::EncryptedPlan;
pub use plan::{
    ActivationPlan, Engine, LinearPlan, Part, Plan, PlanError, Protocol, ShareBits, Step, StepKind,
    WordSize,
};
pub use slots::SlotPlan;
pub use trust::TrustLevel;
