//! Long computations on a thread of their own, so that signals and progress callbacks are served
//! meanwhile.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
        mpsc::{Receiver, RecvTimeoutError, channel},
    },
    thread,
    time::Duration,
};

use pyo3::prelude::*;

use crate::{fork, native};

/// How often a waiting thread looks for signals and reports progress.
const TICK: Duration = Duration::from_millis(50);

/// How long an interrupt waits for a computation that can be cancelled to end.
const PATIENCE: Duration = Duration::from_secs(2);

/// What a computation shares with the thread that waits for it.
#[derive(Default)]
pub struct Watch {
    /// Set when nobody wants the result any more.
    pub cancel: Arc<AtomicBool>,
    /// Images done, as the bits of an `f64`.
    done: AtomicU64,
}

impl Watch {
    /// Ends with `cancel`.
    pub fn ended_by(cancel: Arc<AtomicBool>) -> Arc<Self> {
        Arc::new(Self {
            cancel,
            done: AtomicU64::default(),
        })
    }

    /// Says how many images are done.
    pub fn report(&self, done: f64) {
        self.done.store(done.to_bits(), Ordering::Relaxed);
    }

    /// Whether the computation should end.
    pub fn is_cancelled(&self) -> bool {
        self.cancel.load(Ordering::SeqCst)
    }

    fn done(&self) -> f64 {
        f64::from_bits(self.done.load(Ordering::Relaxed))
    }
}

/// Ends what a client does, from any thread.
#[pyclass(frozen)]
pub struct Cancel(Arc<AtomicBool>);

impl Cancel {
    /// What it sets.
    pub fn flag(&self) -> Arc<AtomicBool> {
        self.0.clone()
    }
}

#[pymethods]
impl Cancel {
    #[new]
    fn new() -> Self {
        Self(Arc::default())
    }

    /// Ends it, now and for good.
    fn set(&self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// A user's callback for progress: called with images done and images in all.
pub struct Callback {
    call: Option<Py<PyAny>>,
    total: usize,
    last: Option<f64>,
}

impl Callback {
    /// Reports up to `total` images; none: nobody listens.
    pub fn new(call: Option<Py<PyAny>>, total: usize) -> Self {
        let last = None;
        Self { call, total, last }
    }

    /// For what has no progress to report.
    pub fn none() -> Self {
        Self::new(None, 0)
    }

    /// Calls it where there is something new.
    fn report(&mut self, py: Python<'_>, done: f64) -> PyResult<()> {
        match &self.call {
            Some(call) if self.last != Some(done) => {
                self.last = Some(done);
                call.call1(py, (done, self.total)).map(drop)
            }
            _ => Ok(()),
        }
    }
}

/// Runs `work`, which computes, on a thread of its own without the interpreter. An interrupt, or an
/// exception of the callback, sets [`Watch::cancel`], and is raised once the work has ended, or
/// after [`PATIENCE`].
pub fn watched<T: Send + 'static>(
    py: Python<'_>,
    callback: Callback,
    watch: &Arc<Watch>,
    work: impl FnOnce(&Watch) -> PyResult<T> + Send + 'static,
) -> PyResult<T> {
    fork::compute()?;
    run(py, callback, watch, PATIENCE, work)
}

/// The same for `work` that computes nothing.
pub fn waited<T: Send + 'static>(
    py: Python<'_>,
    watch: &Arc<Watch>,
    work: impl FnOnce(&Watch) -> PyResult<T> + Send + 'static,
) -> PyResult<T> {
    fork::check()?;
    run(py, Callback::none(), watch, PATIENCE, work)
}

/// The same for `work` that cannot be cancelled: an interrupt is raised at once, the work goes on
/// unheard, and its result is dropped.
pub fn abandonable<T: Send + 'static>(
    py: Python<'_>,
    work: impl FnOnce() -> PyResult<T> + Send + 'static,
) -> PyResult<T> {
    fork::compute()?;
    let watch = Arc::default();
    run(py, Callback::none(), &watch, Duration::ZERO, |_| work())
}

fn run<T: Send + 'static>(
    py: Python<'_>,
    mut callback: Callback,
    watch: &Arc<Watch>,
    patience: Duration,
    work: impl FnOnce(&Watch) -> PyResult<T> + Send + 'static,
) -> PyResult<T> {
    watch.report(0.0);
    callback.report(py, 0.0)?;
    let (sender, mut outcome) = channel();
    let shared = watch.clone();
    thread::Builder::new()
        .name("pronghorn work".into())
        // Nobody to send to: the work was abandoned.
        .spawn(move || drop(sender.send(work(&shared))))
        .map_err(native)?;
    let result = loop {
        match wait(py, &mut outcome, TICK) {
            Ok(result) => break result?,
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => {
                return Err(native("this is a bug in pronghorn: please report it"));
            }
        }
        let heard = py.check_signals();
        if let Err(end) = heard.and_then(|()| callback.report(py, watch.done())) {
            watch.cancel.store(true, Ordering::SeqCst);
            // Whatever came of it, it is not wanted.
            let _ = wait(py, &mut outcome, patience);
            return Err(end);
        }
    };
    let total = callback.total as f64;
    callback.report(py, total).inspect_err(|_| {
        watch.cancel.store(true, Ordering::SeqCst);
    })?;
    Ok(result)
}

fn wait<T: Send>(
    py: Python<'_>,
    outcome: &mut Receiver<T>,
    time: Duration,
) -> Result<T, RecvTimeoutError> {
    py.detach(move || outcome.recv_timeout(time))
}
