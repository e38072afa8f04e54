//! Trust levels: who learns what.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// What each party may learn. Named the same in the API, the command line, the docs and on the
/// wire.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TrustLevel {
    /// Activations on additive shares. The default.
    #[default]
    TwoParty,
    /// Polynomial activations on ciphertexts.
    Encrypted,
    /// The client decrypts, applies the activation and encrypts again.
    ClientAided,
    /// Data and model under different keys.
    MultiKey,
}

impl TrustLevel {
    /// All levels, the safest first.
    pub const ALL: [Self; 4] = [
        Self::TwoParty,
        Self::Encrypted,
        Self::ClientAided,
        Self::MultiKey,
    ];

    /// Whether it is one of two parties, which plans and sessions have.
    pub fn is_available(self) -> bool {
        !matches!(self, Self::MultiKey)
    }

    /// Whether values are shared between the parties: the server has shares that are not zero.
    pub fn shares(self) -> bool {
        self == Self::TwoParty
    }

    /// The name users type.
    pub fn name(self) -> &'static str {
        match self {
            Self::TwoParty => "two-party",
            Self::Encrypted => "encrypted",
            Self::ClientAided => "client-aided",
            Self::MultiKey => "multi-key",
        }
    }

    /// The server's knowledge after a run, as README.md and SECURITY.md have it.
    pub fn server_learns(self) -> &'static str {
        match self {
            Self::MultiKey => "the architecture, counts and timing",
            _ => "shapes, counts and timing",
        }
    }

    /// The client's knowledge after a run.
    pub fn client_learns(self) -> String {
        self.client_learns_with("its output")
    }

    /// The client's knowledge after a run whose result it is told in these words.
    pub(crate) fn client_learns_with(self, output: &str) -> String {
        let more = match self {
            Self::TwoParty => ", shapes and ranges of the layers",
            Self::Encrypted => ", size and depth of the network (polynomial activations only)",
            Self::ClientAided => {
                " AND EVERY WEIGHT of the model: for secret data, not for secret models"
            }
            Self::MultiKey => ", if both parties consent, and the architecture",
        };
        format!("{output}{more}")
    }

    /// In one line, the knowledge of each party.
    pub fn reveals(self) -> String {
        let (server, client) = (self.server_learns(), self.client_learns());
        format!("server learns {server}; client learns {client}")
    }

    /// The table of all levels, a line each, as errors and help print it.
    pub fn table() -> String {
        let line = |level: Self| {
            let state = match level.is_available() {
                true => "",
                false => " (three parties: pronghorn multikey)",
            };
            format!("  {:<13}{}{state}", level.name(), level.reveals())
        };
        Self::ALL.map(line).join("\n")
    }
}

impl fmt::Display for TrustLevel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A trust level does not exist, or is not one of two parties.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum TrustError {
    /// Not a level.
    #[error(
        "there is no trust level {name:?}; the levels are:\n{}",
        TrustLevel::table()
    )]
    Unknown {
        /// What was asked for.
        name: String,
    },
    /// A level of three parties.
    #[error(
        "trust level {level} has three parties, not two; the levels are:\n{}",
        TrustLevel::table()
    )]
    Unavailable {
        /// What was asked for.
        level: TrustLevel,
    },
}

impl FromStr for TrustLevel {
    type Err = TrustError;

    fn from_str(name: &str) -> Result<Self, TrustError> {
        Self::ALL
            .into_iter()
            .find(|level| level.name() == name)
            .ok_or_else(|| TrustError::Unknown {
                name: name.to_owned(),
            })
    }
}

/// The level a user asked for, if this version has it; [`TrustLevel::TwoParty`] where none was
/// named.
///
/// # Errors
/// When it is one of a later version; the message lists all levels.
pub fn require(level: Option<TrustLevel>) -> Result<TrustLevel, TrustError> {
    let level = level.unwrap_or_default();
    if level.is_available() {
        Ok(level)
    } else {
        Err(TrustError::Unavailable { level })
    }
}
