//! Batches kept prepared in the background, over a connection of its own that is open only while
//! there is something to prepare.

use std::{
    sync::{
        Arc, Condvar, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use pronghorn_engine::ClientPrepared;

use crate::{
    error::SessionError,
    lock::lock,
    store::{Owner, Store, StoreError},
};

/// A connection over which batches are prepared.
pub(crate) trait Preparer {
    /// Bytes that this party's half of a batch of so many images takes.
    fn half_bytes(&self, batch: usize) -> u64;

    /// Prepares a batch. This party's half of it goes to the store.
    ///
    /// # Errors
    /// The session fails, or the store refuses.
    fn prepare(&mut self, batch: usize) -> Result<(), SessionError>;
}

/// Opens such a connection. The flag, once it is set, ends its work.
pub(crate) type Connect =
    Box<dyn Fn(Arc<AtomicBool>) -> Result<Box<dyn Preparer>, SessionError> + Send + Sync>;

/// A thread that keeps batches prepared. Ends with its client, within a fraction of a second or
/// when the computing of one message is over.
pub struct Refill {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    connect: Connect,
    store: Arc<Store<ClientPrepared>>,
    server: Owner,
    cancel: Arc<AtomicBool>,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// Images of each batch that should be there.
    wanted: Vec<usize>,
    /// Something was asked for, or used up, that was not looked at yet.
    asked: bool,
    /// Why it stopped at the last thing it was asked for; not told yet.
    error: Option<SessionError>,
    working: bool,
}

impl Refill {
    pub(crate) fn start(
        connect: Connect,
        store: Arc<Store<ClientPrepared>>,
        server: Owner,
    ) -> Result<Self, SessionError> {
        let shared = Arc::new(Shared {
            connect,
            store,
            server,
            cancel: Arc::default(),
            state: Mutex::default(),
            changed: Condvar::new(),
        });
        let thread = thread::Builder::new()
            .name("pronghorn refill".into())
            .spawn({
                let shared = shared.clone();
                move || shared.work()
            })
            .map_err(|source| SessionError::System {
                what: "a thread",
                source,
            })?;
        Ok(Self {
            shared,
            thread: Some(thread),
        })
    }

    /// Has batches of these sizes kept; after an error it tries again.
    pub(crate) fn want(&self, sizes: Vec<usize>) {
        let mut state = lock(&self.shared.state);
        state.wanted = sizes;
        state.asked = true;
        self.shared.changed.notify_all();
    }

    /// Why nothing is prepared any more, until the next prediction; told once.
    pub fn take_error(&self) -> Option<SessionError> {
        lock(&self.shared.state).error.take()
    }

    /// Waits until all is prepared that is wanted, it has failed, or the time is over; whether all
    /// is prepared. Tries again where an error that was told before left something missing.
    ///
    /// # Errors
    /// When it failed, or the store cannot be read.
    pub fn wait(&self, patience: Duration) -> Result<bool, SessionError> {
        let deadline = Instant::now().checked_add(patience);
        let missing = self.shared.missing()?.is_some();
        let mut state = lock(&self.shared.state);
        if missing && !state.working && state.error.is_none() {
            state.asked = true;
            self.shared.changed.notify_all();
        }
        while state.asked || state.working {
            let left = deadline.map_or(Duration::MAX, |deadline| {
                deadline.saturating_duration_since(Instant::now())
            });
            if left.is_zero() {
                return Ok(false);
            }
            state = self
                .shared
                .changed
                .wait_timeout(state, left)
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        }
        if let Some(error) = state.error.take() {
            return Err(error);
        }
        drop(state);
        Ok(self.shared.missing()?.is_none())
    }
}

impl Drop for Refill {
    fn drop(&mut self) {
        self.shared.cancel.store(true, Ordering::SeqCst);
        // Under the lock, so that the thread does not miss it between its look and its waiting.
        drop(lock(&self.shared.state));
        self.shared.changed.notify_all();
        if let Some(thread) = self.thread.take() {
            // A panic in it was printed; there is nobody else to tell.
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn work(&self) {
        while self.wait_for_work() {
            let filled = self.fill();
            let mut state = lock(&self.state);
            state.working = false;
            state.error = filled.err().or(state.error.take());
            self.changed.notify_all();
        }
    }

    /// False when it should end.
    fn wait_for_work(&self) -> bool {
        let mut state = lock(&self.state);
        loop {
            if self.cancel.load(Ordering::SeqCst) {
                return false;
            }
            if state.asked {
                state.asked = false;
                state.working = true;
                return true;
            }
            state = self
                .changed
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Prepares what is missing, if anything.
    fn fill(&self) -> Result<(), SessionError> {
        let Some(first) = self.missing()? else {
            return Ok(());
        };
        let mut connection = (self.connect)(self.cancel.clone())?;
        let mut next = Some(first);
        while let Some(batch) = next {
            // What is there must not make room, or this would never end.
            self.store.check_room(connection.half_bytes(batch))?;
            connection.prepare(batch)?;
            next = self.missing()?;
        }
        Ok(())
    }

    /// A size of which fewer batches are prepared than are wanted.
    fn missing(&self) -> Result<Option<usize>, StoreError> {
        let wanted = lock(&self.state).wanted.clone();
        self.store.missing(&self.server, &wanted)
    }
}
