//! The plan: the protocol and parameters of each step, and what they cost.
//!
//! A plan is data ([`plan`]). It holds shapes, scales, ranges and parameters, never a weight. Of
//! the model's file it has names of classes, of features and of several outputs, and the categories
//! of features, alone. It
//! prints itself, travels to the client, and both parties compare its hash before anything else.
//! A [`CheckedPlan`] is a plan that was checked, with what all batches share. [`step`] says what a
//! protocol knows of its steps. [`steps`] holds the protocols, and [`StepKind`] names them all.

pub mod bands;
pub mod categories;
pub mod checked;
pub mod cost;
pub mod description;
pub mod flood;
mod kept;
pub mod names;
pub mod objective;
pub mod plan;
pub mod planner;
pub mod rlwe;
pub mod runner_up;
pub mod share_form;
pub mod slot_form;
pub mod step;
pub mod steps;
pub mod summary;
pub mod text;
pub mod trust;

pub use categories::Categories;
pub use checked::CheckedPlan;
pub use kept::KeptError;
pub use names::{NamedOutput, Names};
pub use plan::{Plan, PlanError, Step};
pub use planner::{
    BuildError, BuildOptions, Built, Computation, Encrypted, Engine, Fidelity, Opening, Rounding,
    Weights, build,
};
pub use rlwe::{Rlwe, ShareBits, WordSize};
pub use step::Derived;
pub use steps::{StepKind, encrypted::EncryptedPlan, product::Pairs};
pub use trust::TrustLevel;
