//! Figures of a cost: bytes, multiply-adds, rounds, memory, predicted seconds.

use super::{rate, seconds::Seconds};

/// Bytes that the parties hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    /// The server.
    pub server: u64,
    /// The client.
    pub client: u64,
}

impl Memory {
    /// The same bytes on either side.
    pub fn both(bytes: u64) -> Self {
        Self {
            server: bytes,
            client: bytes,
        }
    }

    pub(crate) fn most(self, other: Self) -> Self {
        Self {
            server: self.server.max(other.server),
            client: self.client.max(other.client),
        }
    }

    pub(crate) fn minus(self, other: Self) -> Self {
        Self {
            server: self.server.saturating_sub(other.server),
            client: self.client.saturating_sub(other.client),
        }
    }

    pub(crate) fn plus(self, other: Self) -> Self {
        Self {
            server: self.server.saturating_add(other.server),
            client: self.client.saturating_add(other.client),
        }
    }
}

/// Bytes that a step holds while it runs, beyond shares.
pub type StepMemory = Memory;

/// One part of a step's cost, for one batch.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct StepCost {
    /// Bytes from client to server, frames not counted.
    pub bytes_up: u64,
    /// Bytes from server to client, frames not counted.
    pub bytes_down: u64,
    /// Multiply-adds of a ciphertext word by a weight, on the server.
    pub multiply_adds: u64,
    /// Bytes held while it runs.
    pub memory: Memory,
    /// Messages one way and back.
    pub rounds: u32,
    /// Predicted seconds on one core, both parties' work added.
    pub seconds: Seconds,
}

impl StepCost {
    /// Of one step after another.
    pub(crate) fn plus(self, other: Self) -> Self {
        Self {
            bytes_up: self.bytes_up.saturating_add(other.bytes_up),
            bytes_down: self.bytes_down.saturating_add(other.bytes_down),
            multiply_adds: self.multiply_adds.saturating_add(other.multiply_adds),
            memory: self.memory.most(other.memory),
            rounds: self.rounds.saturating_add(other.rounds),
            seconds: self.seconds + other.seconds,
        }
    }

    /// Of so many equal ones, one after another.
    pub(crate) fn times(self, count: usize) -> Self {
        let times = |bytes: u64| bytes.saturating_mul(count as u64);
        Self {
            bytes_up: times(self.bytes_up),
            bytes_down: times(self.bytes_down),
            multiply_adds: times(self.multiply_adds),
            memory: self.memory,
            rounds: self
                .rounds
                .saturating_mul(u32::try_from(count).unwrap_or(u32::MAX)),
            seconds: self.seconds * count as f64,
        }
    }

    /// With the seconds that every exchange on shares takes.
    pub(crate) fn with_waits(self) -> Self {
        Self {
            seconds: self.seconds + Seconds::waits(f64::from(self.rounds) * rate::ROUND),
            ..self
        }
    }
}

/// A step's cost for one batch.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Cost {
    /// All at once, without preparation.
    pub at_once: StepCost,
    /// Before the inputs are known. Its memory is kept until the online part.
    pub offline: StepCost,
    /// With the inputs, after the offline part.
    pub online: StepCost,
}

impl Cost {
    /// Of a step without an offline part.
    pub(crate) fn online(cost: StepCost) -> Self {
        Self {
            at_once: cost,
            offline: StepCost::default(),
            online: cost,
        }
    }
}

/// What a connection exchanges once for a step, and keeps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Once {
    /// Bytes of published polynomials, server to client, before the first batch.
    pub publication: u64,
    /// Bytes of rows of `a'` that come with the first batch, and that later batches leave out.
    pub rows: u64,
    /// Bytes of the secrets behind published polynomials, ready for use by the server.
    pub secrets: u64,
    /// Bytes of published polynomials, ready for use by the client.
    pub polynomials: u64,
    /// Bytes that the client's keys take while they are made, sent and kept.
    pub keys: u64,
}

impl Once {
    pub(crate) fn plus(self, other: Self) -> Self {
        Self {
            publication: self.publication.saturating_add(other.publication),
            rows: self.rows.saturating_add(other.rows),
            secrets: self.secrets.saturating_add(other.secrets),
            polynomials: self.polynomials.saturating_add(other.polynomials),
            keys: self.keys.saturating_add(other.keys),
        }
    }
}
