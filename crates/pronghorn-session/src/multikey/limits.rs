//! Limits of a cloud. What its clients use is limited by the table of servers
//! ([`LIMITS`](crate::limits::table::LIMITS)), and counted in its directory.
//!
//! | resource | at a cloud |
//! |---|---|
//! | sessions | connections of clients after their hello |
//! | memory | evaluations at once |
//! | requests | hellos and images |
//! | set-ups | public keys that are sent |
//! | images | images that are evaluated |
//! | bytes | those of clients' connections, keys included |

use std::{thread, time::Duration};

use crate::{limits::table::Caps, usage::Whose};

/// Most connections in all where the table has no value.
pub(super) const CONNECTIONS: u64 = 64;

/// Limits of a cloud.
#[derive(Clone, Debug)]
pub struct CloudLimits {
    /// What clients may use. Most connections in all are 64 where no value is given, that of the
    /// owner included.
    pub caps: Caps,
    /// Most clients whose public keys are in memory. Those of others are read from the disk when
    /// they ask.
    pub clients: usize,
    /// Most clients whose public keys are on the disk.
    pub kept: usize,
    /// Most bytes of a publication, and of a party's public keys. Keys take about twice their bytes
    /// in memory.
    pub upload: u64,
    /// Images that are evaluated at once.
    pub evaluations: u64,
    /// How long a client waits for a place, and a request for its evaluation.
    pub queue: Duration,
    /// How long a peer may be silent within an exchange.
    pub idle: Duration,
    /// How long a client may rest between two images.
    pub rest: Duration,
    /// How long a new connection has to introduce itself.
    pub hello: Duration,
}

impl Default for CloudLimits {
    fn default() -> Self {
        Self {
            caps: Caps::default(),
            clients: 4,
            kept: 64,
            upload: 2 << 30,
            evaluations: thread::available_parallelism().map_or(1, |cores| cores.get() as u64),
            queue: Duration::from_secs(60),
            idle: Duration::from_secs(60),
            rest: Duration::from_secs(600),
            hello: Duration::from_secs(5),
        }
    }
}

/// A client, and bytes of its connection that were counted.
pub(super) struct Guest {
    pub whose: Whose,
    pub counted: u64,
}

impl Guest {
    pub fn new(whose: Whose) -> Self {
        Self { whose, counted: 0 }
    }
}
