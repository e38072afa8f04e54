//! Toy protocols: the example of `docs/adding-a-protocol.md`. Insecure, and for tests alone.
//!
//! **Never enable the feature `toy-protocols` outside dev-dependencies.** Each toy sends a share in
//! the clear. Two things keep toys out of releases:
//!
//! * No crate enables the feature but in `[dev-dependencies]`, which cargo leaves out of any build
//!   without tests. Without the feature a plan with a toy does not parse.
//! * The crate does not compile with the feature in a build without debug assertions, such as
//!   `--release`.

#![cfg(feature = "toy-protocols")]

pub mod insecure_linear;
pub mod insecure_relu;

use insecure_linear::InsecureLinear;
use insecure_relu::InsecureRelu;
use serde::{Deserialize, Serialize};

use crate::step::StepPlan;

#[cfg(not(debug_assertions))]
compile_error!(
    "the feature `toy-protocols` has protocols that hide nothing: it belongs in [dev-dependencies] alone, and never in a release build"
);

/// A toy. A real protocol has a variant of [`StepKind`](crate::StepKind) of its own. The toys share
/// one, so that the feature is named once.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Toy {
    /// A dense layer. The server learns its input.
    InsecureLinear(InsecureLinear),
    /// A ReLU. The client learns its input.
    InsecureRelu(InsecureRelu),
}

impl Toy {
    /// The protocol's own knowledge of the step.
    pub fn as_step(&self) -> &dyn StepPlan {
        match self {
            Self::InsecureLinear(linear) => linear,
            Self::InsecureRelu(relu) => relu,
        }
    }
}
