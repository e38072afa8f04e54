//! Errors of oblivious transfer.

use pronghorn_ring::{bits::PackError, random::RandomError};
use thiserror::Error;

/// Why a transfer ended early. Never holds a choice, a string or a key.
#[derive(Debug, Error)]
pub enum OtError {
    /// A message of the wrong length.
    #[error("{message} has {found} bytes, expected {expected}")]
    Length {
        /// The message.
        message: &'static str,
        /// Bytes received.
        found: usize,
        /// Bytes called for.
        expected: usize,
    },
    /// A message, or a demand for one, when it is not this party's turn.
    #[error("a message came out of turn: {state}")]
    OutOfTurn {
        /// What the machine is doing.
        state: &'static str,
    },
    /// The parties want different OTs.
    #[error(
        "{field} differs: {found} from the peer, {expected} here; both parties must ask for the same"
    )]
    Parameters {
        /// The parameter.
        field: &'static str,
        /// The peer's.
        found: u8,
        /// Ours.
        expected: u8,
    },
    /// No such parameter.
    #[error("{field} is {found}, must be {least} to {most}")]
    Range {
        /// The parameter.
        field: &'static str,
        /// The value given.
        found: u64,
        /// Least value.
        least: u64,
        /// Greatest value.
        most: u64,
    },
    /// A base OT key that is no point of the group.
    #[error("base OT {index}: {field} is not the encoding of a point other than zero")]
    Point {
        /// The base OT; 0 for what all of them share.
        index: usize,
        /// The field.
        field: &'static str,
    },
    /// A base OT key with a coefficient that is no residue.
    #[error("base OT {index}: a key has a coefficient that is not below the modulus")]
    Coefficient {
        /// The base OT.
        index: usize,
    },
    /// A batch that is not the next one.
    #[error("{message} is for position {found}, this party is at {expected}: a message was lost")]
    Position {
        /// The message.
        message: &'static str,
        /// Position in the message.
        found: u64,
        /// Position here.
        expected: u64,
    },
    /// The receiver's corrections are not those of one string of choices.
    #[error(
        "the receiver failed the consistency check: it deviates from the protocol, or the parties' set-ups \
         differ; all connections of the set-up are dead, and the set-up must be destroyed, stored copies too, because \
         its delta may be partly known"
    )]
    Inconsistent,
    /// Anything asked of a set-up, or of a connection of one, whose receiver failed a consistency
    /// check.
    #[error(
        "a consistency check failed on this set-up of OTs, so its delta may be partly known; destroy it, stored \
         copies too, and make a new one"
    )]
    Burnt,
    /// A round of silent OT whose sender failed the consistency check, or anything asked after it.
    #[error(
        "the sender of OTs failed the consistency check of silent OT: it deviates from the protocol, or the parties' \
         set-ups differ; no OT of this direction may be used, close the connection"
    )]
    FalseCorrections,
    /// More OTs than a round of silent OT has left.
    #[error("{wanted} OTs are wanted, {left} are left in this round of silent OT; make a round")]
    RoundSpent {
        /// OTs wanted.
        wanted: usize,
        /// OTs left.
        left: usize,
    },
    /// The parties resume from different set-ups.
    #[error("the peer resumes from another set-up of OTs; make a new one")]
    OtherSetup,
    /// Stored bytes that are no set-up.
    #[error("the stored set-up of OTs is damaged or of another version ({field}); make a new one")]
    Stored {
        /// The reason.
        field: &'static str,
    },
    /// As many OTs as one connection gives.
    #[error("a connection gives at most 2^40 OTs, fewer in small batches; connect anew")]
    Exhausted,
    /// Slices that do not go together.
    #[error("{field} has {found} entries for {expected} OTs")]
    Count {
        /// The argument.
        field: &'static str,
        /// Entries given.
        found: usize,
        /// Entries called for.
        expected: usize,
    },
    /// Strings that do not unpack.
    #[error("{message}: {source}")]
    Packing {
        /// The message.
        message: &'static str,
        /// The reason.
        source: PackError,
    },
    /// A string that is no residue.
    #[error("{message}: string {index} is not below the modulus")]
    Residue {
        /// The message.
        message: &'static str,
        /// The OT, counted within the message.
        index: usize,
    },
    /// The operating system gave no randomness.
    #[error(transparent)]
    Random(#[from] RandomError),
}

/// Checks the length of a message.
pub(crate) fn check_length(
    message: &'static str,
    found: &[u8],
    expected: usize,
) -> Result<(), OtError> {
    match found.len() {
        found if found == expected => Ok(()),
        found => Err(OtError::Length {
            message,
            found,
            expected,
        }),
    }
}

/// Checks the length of an argument.
pub(crate) fn check_count(
    field: &'static str,
    found: usize,
    expected: usize,
) -> Result<(), OtError> {
    match found == expected {
        true => Ok(()),
        false => Err(OtError::Count {
            field,
            found,
            expected,
        }),
    }
}
