use thiserror::Error;

/// Why a garbling cannot start or go on.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum GarbleError {
    /// An input of the wrong length.
    #[error("{what}: {found} were given, the circuit and its instances take {expected}")]
    Count {
        /// What was counted.
        what: &'static str,
        /// The number it takes.
        expected: usize,
        /// The number there is.
        found: usize,
    },
    /// A number of instances that cannot be.
    #[error("{instances} instances in one garbling: make it at least 1 and split large batches")]
    Instances {
        /// What was asked for.
        instances: usize,
    },
    /// Labels of 0 and 1 that everybody can tell apart.
    #[error(
        "the offset of the labels is that of no secret: the oblivious transfers it came from have stopped at a failed check"
    )]
    Offset,
    /// A message from the peer that is empty or too long.
    #[error("a message of {found} bytes of garbled tables, where 1 to {most} can come")]
    MessageLength {
        /// Its length.
        found: usize,
        /// The most.
        most: usize,
    },
    /// A call in the wrong state.
    #[error("out of turn: the machine {state}")]
    OutOfTurn {
        /// What it does.
        state: &'static str,
    },
}

pub(super) fn check_count(
    what: &'static str,
    found: usize,
    expected: usize,
) -> Result<(), GarbleError> {
    if found == expected {
        return Ok(());
    }
    Err(GarbleError::Count {
        what,
        expected,
        found,
    })
}
