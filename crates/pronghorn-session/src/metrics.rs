//! What a server counts, for those who watch it.

use std::{
    collections::BTreeMap,
    sync::{
        Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use crate::{error::SessionError, link::Traffic, lock::lock, model::ModelId, ticket::Run};

const PHASES: usize = 4;

/// What a server's clients wait for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Phase {
    /// For the channel, the hellos and a place; its bytes are those of the plan too.
    #[default]
    Opening,
    /// For memory, between a batch's beginning and its first message.
    Waiting,
    /// The offline part of batches.
    Preparing,
    /// Batches, with the network's and the client's time.
    Predicting,
}

impl Phase {
    /// All of them.
    pub const ALL: [Self; PHASES] = [
        Self::Opening,
        Self::Waiting,
        Self::Preparing,
        Self::Predicting,
    ];

    /// In a word.
    pub fn name(self) -> &'static str {
        match self {
            Self::Opening => "opening",
            Self::Waiting => "waiting",
            Self::Preparing => "preparing",
            Self::Predicting => "predicting",
        }
    }
}

/// A server's state and counters.
#[derive(Clone, Debug, PartialEq)]
pub struct Metrics {
    /// Whether it takes new clients.
    pub ready: bool,
    /// This process's name in tickets, where it takes them.
    pub run: Option<Run>,
    /// Connections, those without a hello included.
    pub connections: u64,
    /// Sessions that have a place.
    pub places_used: u64,
    /// Places.
    pub places: u64,
    /// Clients that wait for one.
    pub queued: u64,
    /// Bytes of the memory that batches share.
    pub memory: u64,
    /// Of these, bytes that batches hold.
    pub memory_used: u64,
    /// Batches that wait for memory.
    pub waiting: u64,
    /// Connections and batches that ended with an error, by [`SessionError::reason`].
    pub failures: Vec<(&'static str, u64)>,
    /// Of these, connections that got no place.
    pub refusals: Vec<(&'static str, u64)>,
    /// Each model.
    pub models: Vec<ModelMetrics>,
}

/// A model's.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelMetrics {
    /// The model.
    pub id: ModelId,
    /// Sessions now.
    pub sessions: u64,
    /// Sessions that have begun.
    pub admitted: u64,
    /// Batches that were predicted.
    pub batches: u64,
    /// Their images.
    pub images: u64,
    /// Of these batches, those that used what was prepared.
    pub prepared: u64,
    /// Bytes from clients, in each phase.
    pub bytes_received: [(Phase, u64); PHASES],
    /// Bytes to clients, likewise.
    pub bytes_sent: [(Phase, u64); PHASES],
    /// Seconds of each phase, over all sessions.
    pub seconds: [(Phase, f64); PHASES],
    /// Seconds of one core that the planner predicts for these batches, both parties together.
    pub predicted_seconds: f64,
    /// Prepared batches that are kept.
    pub stock: u64,
    /// Their bytes.
    pub stock_bytes: u64,
}

/// What is counted of a model.
#[derive(Default)]
pub(crate) struct Counters {
    pub sessions: AtomicU64,
    pub admitted: AtomicU64,
    batches: AtomicU64,
    images: AtomicU64,
    prepared: AtomicU64,
    bytes_received: [AtomicU64; PHASES],
    bytes_sent: [AtomicU64; PHASES],
    /// Microseconds.
    phases: [AtomicU64; PHASES],
    predicted: AtomicU64,
}

/// A session of a model, as long as it is there.
pub(crate) struct Active<'a>(&'a Counters);

impl Drop for Active<'_> {
    fn drop(&mut self) {
        self.0.sessions.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Counters {
    /// Counts a session.
    pub(crate) fn enter(&self) -> Active<'_> {
        self.admitted.fetch_add(1, Ordering::Relaxed);
        self.sessions.fetch_add(1, Ordering::Relaxed);
        Active(self)
    }

    pub(crate) fn add_batch(&self, images: usize, prepared: bool, predicted: f64) {
        self.batches.fetch_add(1, Ordering::Relaxed);
        self.images.fetch_add(images as u64, Ordering::Relaxed);
        self.prepared
            .fetch_add(u64::from(prepared), Ordering::Relaxed);
        self.predicted
            .fetch_add((predicted * 1e6) as u64, Ordering::Relaxed);
    }

    pub(crate) fn add_time(&self, phase: Phase, time: Duration) {
        let micros = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        self.phases[phase as usize].fetch_add(micros, Ordering::Relaxed);
    }

    pub(crate) fn add_traffic(&self, phase: Phase, more: Traffic) {
        let Traffic {
            bytes_sent,
            bytes_received,
            ..
        } = more;
        self.bytes_sent[phase as usize].fetch_add(bytes_sent, Ordering::Relaxed);
        self.bytes_received[phase as usize].fetch_add(bytes_received, Ordering::Relaxed);
    }

    /// As they are now; `stock` are prepared batches and their bytes.
    pub(crate) fn read(&self, id: ModelId, stock: (u64, u64)) -> ModelMetrics {
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let seconds = |counter: &AtomicU64| count(counter) as f64 / 1e6;
        let each = |counters: &[AtomicU64; PHASES]| {
            Phase::ALL.map(|phase| (phase, count(&counters[phase as usize])))
        };
        ModelMetrics {
            id,
            sessions: count(&self.sessions),
            admitted: count(&self.admitted),
            batches: count(&self.batches),
            images: count(&self.images),
            prepared: count(&self.prepared),
            bytes_received: each(&self.bytes_received),
            bytes_sent: each(&self.bytes_sent),
            seconds: Phase::ALL.map(|phase| (phase, seconds(&self.phases[phase as usize]))),
            predicted_seconds: seconds(&self.predicted),
            stock: stock.0,
            stock_bytes: stock.1,
        }
    }
}

/// How often each reason has ended a connection.
#[derive(Default)]
pub(crate) struct Failures(Mutex<BTreeMap<&'static str, u64>>);

impl Failures {
    pub(crate) fn add(&self, error: &SessionError) {
        *lock(&self.0).entry(error.reason()).or_default() += 1;
    }

    pub(crate) fn read(&self) -> Vec<(&'static str, u64)> {
        lock(&self.0)
            .iter()
            .map(|(&reason, &count)| (reason, count))
            .collect()
    }
}
