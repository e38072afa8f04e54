//! A built plan as bytes, for its owner's disk. Planning takes seconds to minutes, and reading what
//! was planned a part of one.
//!
//! | bytes | contents |
//! |---|---|
//! | 8 | `"PRONGKPT"` |
//! | 2 | [`VERSION`], little-endian |
//! | 32 | BLAKE3 of what follows |
//! | | postcard: the plan's bytes, names, weights, the oracle's network, the expected error |
//!
//! The hash finds damage, and no change on purpose: who can write the file can serve any model. The
//! bytes have the weights: keep them as secret as the model.

use std::sync::Arc;

use pronghorn_graph::fixed::FixedGraph;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::{
    checked::CheckedPlan,
    names::Names,
    plan::{Plan, PlanError},
    planner::{Built, Computation, Fidelity, Weights},
    steps::StepKind,
};

const MAGIC: [u8; 8] = *b"PRONGKPT";

/// Of the bytes' layout. The plan in it has a format of its own.
const VERSION: u16 = 4;

/// Why bytes are not a kept plan.
#[derive(Debug, Error)]
pub enum KeptError {
    /// Other bytes, or of another version.
    #[error("these are no bytes of a plan kept by this version of pronghorn: plan again")]
    Format,
    /// The hash is not theirs, or they do not decode.
    #[error("the bytes of a kept plan are damaged: plan again")]
    Damaged,
    /// The plan itself.
    #[error(transparent)]
    Plan(#[from] PlanError),
}

/// What is written.
#[derive(Serialize)]
struct Written<'a> {
    plan: Vec<u8>,
    names: &'a Names,
    weights: &'a [Weights],
    fixed: Option<&'a FixedGraph>,
    fidelity: &'a Fidelity,
}

/// What is read.
#[derive(Deserialize)]
struct Read {
    plan: Vec<u8>,
    names: Names,
    weights: Vec<Weights>,
    fixed: Option<FixedGraph>,
    fidelity: Fidelity,
}

impl Built {
    /// All of it as bytes. They hold the weights.
    pub fn to_bytes(&self) -> Vec<u8> {
        let body = Written {
            plan: self.plan.to_bytes(),
            names: &self.names,
            weights: &self.weights,
            fixed: self.computation.fixed(),
            fidelity: &self.fidelity,
        };
        let body = postcard::to_stdvec(&body).expect("plain structs in memory always serialise");
        let hash = blake3::hash(&body);
        [&MAGIC[..], &VERSION.to_le_bytes(), hash.as_bytes(), &body].concat()
    }

    /// Reads what [`Built::to_bytes`] wrote.
    ///
    /// # Errors
    /// The bytes are others, of another version, or damaged.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, KeptError> {
        let rest = bytes.strip_prefix(&MAGIC).ok_or(KeptError::Format)?;
        let rest = rest.strip_prefix(&VERSION.to_le_bytes());
        let (hash, body) = rest
            .and_then(<[u8]>::split_first_chunk::<32>)
            .ok_or(KeptError::Format)?;
        if blake3::hash(body) != *hash {
            return Err(KeptError::Damaged);
        }
        let read: Read = postcard::from_bytes(body).map_err(|_| KeptError::Damaged)?;
        let plan = Plan::from_bytes(&read.plan)?;
        if !go_together(&plan, &read.weights) {
            return Err(KeptError::Damaged);
        }
        let computation = match read.fixed {
            Some(fixed) => Arc::new(fixed) as Arc<dyn Computation>,
            None => Arc::new(network(&read.weights).ok_or(KeptError::Damaged)?),
        };
        Ok(Self {
            plan,
            names: read.names,
            weights: read.weights,
            computation,
            fidelity: read.fidelity,
        })
    }
}

/// Whether each step has weights, and networks on ciphertexts are those of their steps.
fn go_together(plan: &CheckedPlan, weights: &[Weights]) -> bool {
    let mut steps = plan.steps.iter().zip(weights).enumerate();
    weights.len() == plan.steps.len()
        && steps.all(|(index, (step, weights))| match (&step.kind, weights) {
            (StepKind::Encrypted(encrypted), Weights::Network(network)) => {
                network.is_sound(&plan.place(index), encrypted)
            }
            (StepKind::Encrypted(_), _) | (_, Weights::Network(_)) => false,
            _ => true,
        })
}

/// The network on ciphertexts, which is its own oracle.
fn network(weights: &[Weights]) -> Option<impl Computation + use<>> {
    weights.iter().find_map(|weights| match weights {
        Weights::Network(network) => Some(network.clone()),
        _ => None,
    })
}
