//! What a server allows.

pub mod table;

use std::{fs, time::Duration};

use pronghorn_plan::{CheckedPlan, cost};

use self::table::{Caps, Key, LimitError, Resource};
use crate::{error::SessionError, store};

/// What a server allows its clients.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// What clients may use: sessions, connections, images and so on.
    pub caps: Caps,
    /// Clients that wait for a place; more are refused with an error that says so.
    pub max_waiting: usize,
    /// How long a client waits for a place before it is refused.
    pub queue_timeout: Duration,
    /// How long a client that is served keeps its place while others wait for one. It then connects
    /// again by itself, and waits as they do. A batch is never cut.
    pub turn: Duration,
    /// Images in one batch; none: what the plan says.
    pub max_images_per_batch: Option<usize>,
    /// Bytes that all batches running at once may need together by the plan's cost model; a batch
    /// waits for its share as long as `idle_timeout`. Keys for steps on slots that are kept between
    /// connections come out of it, as far as the largest batch leaves some. None: what one batch of
    /// the plan's largest size needs, with the largest preparation that is kept, and 512 MiB for
    /// such keys.
    pub max_memory: Option<u64>,
    /// Prepared batches that are kept for each client (by address, as above); further ones take the
    /// place of its oldest. 0: none are prepared.
    pub max_prepared: usize,
    /// Bytes that prepared batches of all clients may take, in memory or on the disk; further ones
    /// take the place of the oldest, and a larger one is refused.
    pub max_prepared_bytes: u64,
    /// How long a client may be silent between two messages of a batch, and read nothing of what it
    /// is sent.
    pub idle_timeout: Duration,
    /// How long a message may take from its first byte to its last, a second more for each 64 KiB;
    /// also how long none of its bytes may come.
    pub message_timeout: Duration,
    /// How long a new client may take to introduce itself. It has no place until then.
    pub hello_timeout: Duration,
    /// How long a connection may rest before its first batch and between two; none: `idle_timeout`.
    /// Clients connect again by themselves. What was prepared is kept.
    pub keep_alive: Option<Duration>,
    /// How long a client whose batch holds memory may be silent, or neither read nor send, while
    /// others wait for memory; and how long a client may have nothing to ask for while others wait
    /// for a place.
    pub contended_timeout: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            caps: Caps::default(),
            max_waiting: 256,
            queue_timeout: Duration::from_secs(30),
            turn: Duration::from_secs(5),
            max_images_per_batch: None,
            max_memory: None,
            max_prepared: 16,
            max_prepared_bytes: 1 << 30,
            idle_timeout: Duration::from_secs(300),
            message_timeout: Duration::from_secs(30),
            hello_timeout: Duration::from_secs(5),
            keep_alive: None,
            contended_timeout: Duration::from_secs(5),
        }
    }
}

impl Limits {
    /// The same with another value of a limit of the table; none: no limit.
    ///
    /// # Errors
    /// There is no such limit, or the value lets nothing through.
    pub fn with(mut self, name: &str, value: Option<u64>) -> Result<Self, LimitError> {
        self.caps = self.caps.with(name, value)?;
        Ok(self)
    }

    /// Most connections in all: as many as the process has files for.
    pub(crate) fn connections_in_all(&self) -> u64 {
        let cap = self.caps.of(Resource::Connections, Key::All);
        let allowed = cap.map_or(u64::MAX, |cap| cap.most);
        let fit = open_files().map_or(u64::MAX, |files| {
            (files - files / PARTING_PART).saturating_sub(OTHER_FILES) / FILES_OF_CONNECTION
        });
        allowed.min(fit.max(1))
    }

    /// Most connections that are refused and not closed yet.
    pub(crate) fn partings(&self) -> usize {
        let fit = open_files().map_or(MOST_PARTING, |files| files / PARTING_PART);
        fit.clamp(1, MOST_PARTING) as usize
    }

    pub(crate) fn rest(&self) -> Duration {
        self.keep_alive.unwrap_or(self.idle_timeout)
    }
}

/// Files of a connection at most: the line, two handles on it, and one to end it.
const FILES_OF_CONNECTION: u64 = 4;
/// Files for all else.
const OTHER_FILES: u64 = 48;
/// Of all files, one in so many is for connections that are refused.
const PARTING_PART: u64 = 8;
const MOST_PARTING: u64 = 256;

/// Files that this process may have open, where the system says so.
fn open_files() -> Option<u64> {
    let limits = fs::read_to_string("/proc/self/limits").ok()?;
    let line = limits
        .lines()
        .find_map(|line| line.strip_prefix("Max open files"))?;
    line.split_whitespace().next()?.parse().ok()
}

/// Bytes of clients' keys that are kept between their connections at most, ready for use.
const MOST_KEYS: u64 = 512 << 20;

/// What the clients of some plans share.
pub(crate) struct Bounds {
    /// Most images of a batch of each plan.
    pub batches: Vec<usize>,
    /// Bytes of all batches that run at once.
    pub memory: u64,
    /// Bytes of clients' keys of each plan that are kept between their connections, ready for use.
    pub keys: u64,
    /// Prepared batches of each plan that are kept.
    pub prepared: store::Bounds,
}

/// What the clients share within the limits. Kept keys take what the largest batch leaves. Plans
/// have equal parts of what is kept.
///
/// # Errors
/// When the limits let nothing through.
pub(crate) fn within_limits(
    plans: &[&CheckedPlan],
    limits: &Limits,
) -> Result<Bounds, SessionError> {
    let (mut batches, mut memory, mut largest, mut with_keys) = (Vec::new(), 0, 0, 0);
    for plan in plans {
        let (batch, needed) = batch_and_memory(plan, limits)?;
        memory = needed.max(memory);
        largest = memory_to_use(plan, batch).max(largest);
        with_keys += u64::from(cost::kept_keys(plan) > 0);
        batches.push(batch);
    }
    let most = if with_keys > 0 { MOST_KEYS } else { 0 };
    let (memory, keys) = match limits.max_memory {
        None => (memory, most),
        Some(_) => {
            let keys = memory.saturating_sub(largest).min(most);
            (memory - keys, keys)
        }
    };
    let with_halves = plans.iter().filter(|plan| plan.trust.shares()).count() as u64;
    Ok(Bounds {
        batches,
        memory,
        keys: keys / with_keys.max(1),
        prepared: store::Bounds {
            batches: limits.max_prepared,
            bytes: limits.max_prepared_bytes / with_halves.max(1),
        },
    })
}

/// Most images of a batch, and bytes that all share.
fn batch_and_memory(plan: &CheckedPlan, limits: &Limits) -> Result<(usize, u64), SessionError> {
    let refused = |field, reason: String| Err(SessionError::Limits { field, reason });
    if limits.max_images_per_batch == Some(0) {
        return refused(
            "max_images_per_batch",
            "it is 0, which lets nothing through".into(),
        );
    }
    let timeouts = [
        limits.idle_timeout,
        limits.message_timeout,
        limits.hello_timeout,
        limits.contended_timeout,
        limits.rest(),
    ];
    if timeouts.iter().any(Duration::is_zero) {
        return refused(
            "timeouts",
            "one is 0, which leaves nobody the time to answer".into(),
        );
    }
    let least = plan.charged(1) as u64;
    let caps = limits.caps.on(Resource::Images);
    let mut caps = caps.chain(limits.caps.on(Resource::DailyImages));
    if let Some(cap) = caps.find(|cap| cap.most < least) {
        let most = cap.most;
        return refused(
            cap.limit.name,
            format!(
                "it is {most}, and every batch of this plan counts as the {least} images that its ciphertexts hold: allow at least as many"
            ),
        );
    }
    let wanted = limits
        .max_images_per_batch
        .unwrap_or(usize::MAX)
        .min(plan.max_batch);
    let Some(memory) = limits.max_memory else {
        let run = cost::memory(plan, wanted).server;
        // Nothing larger than the store is ever read from it.
        let prepared = halves(plan, wanted).min(limits.max_prepared_bytes.saturating_mul(2));
        return Ok((wanted, run.saturating_add(prepared)));
    };
    match cost::max_batch(plan, memory) {
        Ok(fits) => Ok((wanted.min(fits), memory)),
        Err((_, needed)) => refused(
            "max_memory",
            format!("one image needs {needed} bytes, and {memory} are allowed"),
        ),
    }
}

/// Bytes that a prepared batch takes: of its run, and of the server's half while it is read.
pub(crate) fn memory_to_use(plan: &CheckedPlan, batch: usize) -> u64 {
    let run = cost::memory(plan, batch).server;
    run.saturating_add(halves(plan, batch))
}

/// Bytes of the server's half of a prepared batch while it is read: in the file, and laid out.
fn halves(plan: &CheckedPlan, batch: usize) -> u64 {
    if !plan.trust.shares() {
        return 0;
    }
    cost::prepared(plan, batch).memory.server.saturating_mul(2)
}
