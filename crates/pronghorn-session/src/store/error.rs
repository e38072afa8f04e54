//! Errors of stores.

use std::io;

use pronghorn_engine::EngineError;
use thiserror::Error;

use super::{file::FileError, name::Name};

/// Why a store cannot keep or hand out.
#[derive(Debug, Error)]
pub enum StoreError {
    /// The file system refused.
    #[error(
        "the store at {path} cannot be used ({source}): check that the disk has room and that you may write there"
    )]
    Disk {
        /// Where.
        path: String,
        /// Why.
        source: io::Error,
    },
    /// A directory that others on this machine may enter.
    #[error(
        "the store {path} has the mode {mode:o}, which lets others reach its secrets: chmod 700 {path}"
    )]
    Open {
        /// Which.
        path: String,
        /// Its permission bits.
        mode: u32,
    },
    /// Another connection has the secret of this one.
    #[error(
        "another connection of this store has taken the secret at {path} while this prediction waited: predict again, and give each \
         program a store of its own"
    )]
    Lost {
        /// Where it was.
        path: String,
    },
    /// A file that is not what was put there.
    #[error("the prepared batch {name} is not used: {source}")]
    File {
        /// Which.
        name: Name,
        /// What is wrong.
        source: FileError,
    },
    /// More than the store may hold.
    #[error(
        "prepared batches would take {needed} bytes, and {allowed} are allowed: prepare fewer batches, or fewer images at once, or allow more"
    )]
    TooLarge {
        /// Bytes it takes, with those that must stay.
        needed: u64,
        /// Bytes all may take.
        allowed: u64,
    },
    /// A name that was given before.
    #[error("a preparation named {name} was made before: give each a new name")]
    Known {
        /// The name.
        name: Name,
    },
    /// A half that the plan's steps do not read, or no randomness.
    #[error(transparent)]
    Engine(#[from] EngineError),
}
