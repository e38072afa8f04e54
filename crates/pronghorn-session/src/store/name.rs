//! Names of prepared batches and of those whom they are made for.

use std::fmt;

use pronghorn_engine::EngineError;
use pronghorn_ring::random::Seed;
use serde::{Deserialize, Serialize};

use crate::text::hex;

/// What both parties call a preparation: random.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Name(pub [u8; 16]);

impl Name {
    /// A fresh one.
    ///
    /// # Errors
    /// The system gives no randomness.
    pub(crate) fn random() -> Result<Self, EngineError> {
        let seed = Seed::from_os()?;
        let (name, _) = seed
            .as_bytes()
            .split_first_chunk()
            .expect("a seed has more bytes");
        Ok(Self(*name))
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex(&self.0))
    }
}

/// Whom a store counts a preparation for.
pub type Owner = [u8; 16];
