//! What a server allows.

use std::time::Duration;

/// What a server allows its clients.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Clients at once; more are refused with an error that says so.
    pub max_clients: usize,
    /// Images in one batch; none: what the plan says.
    pub max_images_per_batch: Option<usize>,
    /// Images one client may ask for as long as the server runs; none: no limit. Without
    /// authentication a client is an IPv4 address or an IPv6 /64 network. Images count when a batch begins.
    pub max_images_per_client: Option<u64>,
    /// Bytes that all batches running at once may need together by the plan's cost model; a batch waits for
    /// its share as long as `idle_timeout`. None: what one batch of the plan's largest size needs, with the
    /// largest preparation that is kept.
    pub max_memory: Option<u64>,
    /// Prepared batches that are kept for each client (by address, as above); further ones take the place of its oldest. 0: none are
    /// prepared.
    pub max_prepared: usize,
    /// Bytes that prepared batches of all clients may take, in memory or on the disk; further ones take the place of the oldest, and a larger
    /// one is refused.
    pub max_prepared_bytes: u64,
    /// How long a client may be silent between two messages, and take to read what it is sent.
    pub idle_timeout: Duration,
    /// How long a message may take from its first byte to its last, a second more for each 64 KiB; also how
    /// long a new client may take to introduce itself.
    pub message_timeout: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            max_clients: 16,
            max_images_per_batch: None,
            max_images_per_client: None,
            max_memory: None,
            max_prepared: 16,
            max_prepared_bytes: 1 << 30,
            idle_timeout: Duration::from_secs(300),
            message_timeout: Duration::from_secs(30),
        }
    }
}
