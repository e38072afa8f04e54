//! What can go wrong between the roles.

use std::{io, path::Path};

use pronghorn_multikey::{NetworkError, roles::RoleError};
use pronghorn_ring::random::RandomError;
use thiserror::Error;

use crate::{error::SessionError, frame::FrameError, store::StoreError};

/// Why a role cannot go on.
#[derive(Debug, Error)]
pub enum CloudError {
    /// The connection, or its channel.
    #[error(transparent)]
    Session(#[from] SessionError),
    /// A message was refused.
    #[error(transparent)]
    Role(#[from] RoleError),
    /// The peer refused.
    #[error("{text}")]
    Refused {
        /// The category.
        refusal: Refusal,
        /// Its words, with control characters escaped.
        text: String,
    },
    /// Bytes that are no message, or one out of turn.
    #[error(
        "the peer's message is refused: {reason}; use the same version of pronghorn on both sides"
    )]
    Message {
        /// What is wrong.
        reason: String,
    },
    /// More than the cloud takes.
    #[error(
        "{length} bytes are to be sent, and the cloud takes {most} at once: ask for a larger --max-upload there"
    )]
    TooLarge {
        /// Bytes to be sent.
        length: u64,
        /// Bytes that the cloud takes.
        most: u64,
    },
    /// Keys that do not belong to the model.
    #[error("{path} has keys of {of}: give another directory, or remove it to make new keys")]
    OtherKeys {
        /// The directory.
        path: String,
        /// What they are of.
        of: &'static str,
    },
    /// A key without the record of what it decrypted.
    #[error(
        "{path} has a key and no ledger of what it decrypted, so the key cannot be used any more: remove the directory \
         to make new keys, and publish again"
    )]
    NoLedger {
        /// The directory.
        path: String,
    },
    /// A directory whose key went to a delegate.
    #[error("{path} has handed its key over to {to}: attend there, or hand it back from there")]
    HandedOver {
        /// The directory.
        path: String,
        /// Where the key is.
        to: String,
    },
    /// A transfer of a key whose other directory is gone.
    #[error(
        "{path} is the key on its way, and {to} is not the directory that it was copied to: if that was moved, it may \
         have the key, so remove {path} by hand; if it was lost, make new keys"
    )]
    Moved {
        /// The file with the key.
        path: String,
        /// The directory.
        to: String,
    },
    /// A directory without a key.
    #[error(
        "{path} has no key of a model owner: let the owner hand one over, `pronghorn multikey hand-over`"
    )]
    NoKey {
        /// The directory.
        path: String,
    },
    /// A delegate at a cloud without the model.
    #[error(
        "the cloud has not the model that this key was handed over with, and a delegate has no weights to publish: let \
         the owner publish it, then hand the key over"
    )]
    NotPublished,
    /// Another process uses the keys.
    #[error("another process uses the keys of {path}: end it first")]
    InUse {
        /// The directory.
        path: String,
    },
    /// The file system refuses.
    #[error("{path}: {source}")]
    File {
        /// The file.
        path: String,
        /// Why not.
        source: io::Error,
    },
    /// A directory that others may enter.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// No randomness.
    #[error(transparent)]
    Random(#[from] RandomError),
}

/// Why a peer refuses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Refusal {
    /// The cloud has no model yet.
    NoModel = 1,
    /// The cloud has another owner's model, or the name is another's.
    OtherOwner = 2,
    /// The model owner does not decrypt for this client.
    NotAdmitted = 3,
    /// The model owner is not connected.
    Away = 4,
    /// The model owner refused a decryption.
    Owner = 5,
    /// The peer refused this side's message.
    Message = 6,
    /// Others use the cloud: try again later.
    Busy = 7,
    /// The cloud is being stopped.
    Stopping = 8,
    /// The cloud failed.
    Internal = 9,
    /// A limit for a day, or in all: later it is no different.
    Limit = 10,
}

impl Refusal {
    const ALL: [Self; 10] = [
        Self::NoModel,
        Self::OtherOwner,
        Self::NotAdmitted,
        Self::Away,
        Self::Owner,
        Self::Message,
        Self::Busy,
        Self::Stopping,
        Self::Internal,
        Self::Limit,
    ];

    /// The category of a byte; one of a later version is `Internal`.
    pub(super) fn of(byte: u8) -> Self {
        let known = Self::ALL.into_iter().find(|&refusal| refusal as u8 == byte);
        known.unwrap_or(Self::Internal)
    }

    /// A name for programs.
    pub fn name(self) -> &'static str {
        match self {
            Self::NoModel => "no-model",
            Self::OtherOwner => "other-owner",
            Self::NotAdmitted => "not-admitted",
            Self::Away => "owner-away",
            Self::Owner => "owner-refused",
            Self::Message => "protocol",
            Self::Busy => "busy",
            Self::Stopping => "stopping",
            Self::Internal => "internal",
            Self::Limit => "limit",
        }
    }
}

impl CloudError {
    pub(super) fn file(path: &Path) -> impl Fn(io::Error) -> Self + use<> {
        let path = path.display().to_string();
        move |source| Self::File {
            path: path.clone(),
            source,
        }
    }

    /// A name for programs.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Session(error) => error.reason(),
            Self::Refused { refusal, .. } => refusal.name(),
            Self::Role(_) | Self::Message { .. } => "protocol",
            Self::TooLarge { .. } => "limit",
            Self::OtherKeys { .. }
            | Self::NoLedger { .. }
            | Self::HandedOver { .. }
            | Self::Moved { .. }
            | Self::NoKey { .. }
            | Self::NotPublished
            | Self::InUse { .. } => "keys",
            Self::File { .. } | Self::Store(_) => "store",
            Self::Random(_) => "internal",
        }
    }

    /// Whether the same may succeed later.
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Refused { refusal, .. } => matches!(
                refusal,
                Refusal::NoModel | Refusal::Away | Refusal::Busy | Refusal::Stopping
            ),
            Self::Session(error) => error.is_retryable(),
            _ => false,
        }
    }
}

impl From<NetworkError> for CloudError {
    fn from(error: NetworkError) -> Self {
        RoleError::from(error).into()
    }
}

impl From<FrameError> for CloudError {
    fn from(error: FrameError) -> Self {
        SessionError::from(error).into()
    }
}
