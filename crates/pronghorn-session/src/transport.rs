//! What a session runs over: TCP, TLS over it, anything in tests.

use std::{
    io::{self, Read, Write},
    net::{Shutdown, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

/// Bytes of the writer's buffer: short frames go together.
pub(crate) const BUFFER: usize = 256 << 10;

/// Bytes of the reader's buffer. What comes with a frame's header is copied out of it.
pub(crate) const AHEAD: usize = 32 << 10;

/// The slowest peer: a message may take a second more for each this many bytes.
const SLOWEST: usize = 64 << 10;

/// Time limits of one side.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Timeouts {
    /// Until a message begins to come, and while none of its bytes can be sent.
    pub idle: Duration,
    /// Within a message that comes: between two bytes, and over all with a second more for each
    /// [`SLOWEST`] bytes.
    pub message: Duration,
}

/// The time for `length` bytes.
pub(crate) fn with_length(timeout: Duration, length: usize) -> Duration {
    timeout.saturating_add(Duration::from_secs((length / SLOWEST) as u64))
}

/// How long a read or a write waits before it looks whether it is still wanted.
pub(crate) const TICK: Duration = Duration::from_millis(50);

/// A connected byte stream whose two directions can be used from two threads.
///
/// A `read` or `write` may fail with `Interrupted`: bytes moved on the line, and no whole record
/// has come or gone yet. It is then called again.
pub trait Transport: Read + Write + Send {
    /// A second handle on the same stream.
    ///
    /// # Errors
    /// When the operating system has none left.
    fn try_clone(&self) -> io::Result<Box<dyn Transport>>;

    /// The longest one `read` may take; it then fails with `TimedOut` or `WouldBlock`. Never zero.
    ///
    /// # Errors
    /// When the stream is gone.
    fn set_read_timeout(&self, timeout: Duration) -> io::Result<()>;

    /// The longest one `write` may take; it then fails with `TimedOut` or `WouldBlock`. Never zero.
    ///
    /// # Errors
    /// When the stream is gone.
    fn set_write_timeout(&self, timeout: Duration) -> io::Result<()>;

    /// Ends one direction or both, for all handles; reads and writes in progress return.
    ///
    /// # Errors
    /// When the stream is gone.
    fn shutdown(&self, how: Shutdown) -> io::Result<()>;
}

impl Transport for TcpStream {
    fn try_clone(&self) -> io::Result<Box<dyn Transport>> {
        Ok(Box::new(TcpStream::try_clone(self)?))
    }

    fn set_read_timeout(&self, timeout: Duration) -> io::Result<()> {
        TcpStream::set_read_timeout(self, Some(timeout))
    }

    fn set_write_timeout(&self, timeout: Duration) -> io::Result<()> {
        TcpStream::set_write_timeout(self, Some(timeout))
    }

    fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        TcpStream::shutdown(self, how)
    }
}

/// What ends waiting on a transport beside its time limits.
#[derive(Clone, Default)]
pub(crate) struct Ends {
    stopping: Arc<AtomicBool>,
    /// Set while this session holds what others may wait for.
    holding: Arc<AtomicBool>,
    /// How many wait.
    waiting: Arc<AtomicUsize>,
    /// How long they wait for a peer that is silent.
    contended: Duration,
    /// Times that something was read.
    heard: Arc<AtomicUsize>,
    /// Set while this side computes.
    computing: Arc<AtomicBool>,
    /// Set while nobody wants to read on.
    refusing: Arc<AtomicBool>,
}

impl Ends {
    /// For a session that shares nothing.
    pub(crate) fn alone(stopping: Arc<AtomicBool>) -> Self {
        Self {
            stopping,
            ..Self::default()
        }
    }

    /// For one of several that share what `waiting` others wait for.
    pub(crate) fn sharing(
        stopping: Arc<AtomicBool>,
        waiting: Arc<AtomicUsize>,
        contended: Duration,
    ) -> Self {
        Self {
            stopping,
            waiting,
            contended,
            ..Self::default()
        }
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::SeqCst)
    }

    /// Says that the session holds what others may wait for, until the result is dropped.
    pub(crate) fn hold(&self) -> Holding {
        self.holding.store(true, Ordering::SeqCst);
        Holding(self.holding.clone())
    }

    /// Computes something, for which the peer must wait.
    pub(crate) fn compute<T>(&self, work: impl FnOnce() -> T) -> T {
        self.computing.store(true, Ordering::Relaxed);
        let _computing = Holding(self.computing.clone());
        work()
    }

    /// Ends a read under way, and those that begin before the result is dropped.
    pub(crate) fn refuse(&self) -> Holding {
        self.refusing.store(true, Ordering::SeqCst);
        Holding(self.refusing.clone())
    }

    fn is_contended(&self) -> bool {
        self.holding.load(Ordering::SeqCst) && self.waiting.load(Ordering::SeqCst) > 0
    }
}

/// As long as it is there, something is set: that a session holds what others may wait for,
/// computes, or reads nothing.
pub(crate) struct Holding(Arc<AtomicBool>);

impl Drop for Holding {
    fn drop(&mut self) {
        self.0.store(false, Ordering::SeqCst);
    }
}

/// A transport with a deadline over any number of reads or writes, so that a peer who sends or
/// reads a byte now and then gains nothing, and with a limit on how long none moves. Waiting ends
/// soon after the session is stopped, with `ConnectionAborted`, and where others have waited too
/// long for what it holds.
pub(crate) struct Timed {
    transport: Box<dyn Transport>,
    /// How long reads and writes may take, and until when.
    time: Duration,
    deadline: Instant,
    /// How long no byte may move.
    stall: Duration,
    ends: Ends,
}

impl Timed {
    pub(crate) fn new(transport: Box<dyn Transport>, ends: Ends) -> Self {
        Self {
            transport,
            time: Duration::ZERO,
            deadline: Instant::now(),
            stall: Duration::MAX,
            ends,
        }
    }

    /// Reads and writes fail once `time` has passed from now, or no byte has moved for `stall`.
    pub(crate) fn allow(&mut self, time: Duration, stall: Duration) {
        (self.time, self.stall) = (time, stall);
        self.restart();
    }

    fn restart(&mut self) {
        // A limit beyond the clock's range is none that anybody lives to see.
        let far = || Instant::now() + Duration::from_secs(1 << 30);
        self.deadline = Instant::now().checked_add(self.time).unwrap_or_else(far);
    }

    /// How long the next read or write may wait, where none has moved a byte since `moved`: a tick,
    /// and no longer than the limits.
    fn patience(&self, moved: Instant) -> io::Result<Duration> {
        let left = self.deadline.saturating_duration_since(Instant::now());
        let left = left.min(self.stall.saturating_sub(moved.elapsed()));
        if left.is_zero() {
            Err(io::ErrorKind::TimedOut.into())
        } else {
            Ok(left.min(TICK))
        }
    }

    /// Tries until something moves, the deadline passes, or nobody wants it any more.
    ///
    /// This side's own work starts the limits anew, since it may be what the peer waits for. A peer
    /// that has messages of its own to send does not read meanwhile. So what comes from it starts
    /// those of a write anew.
    fn insist(
        &mut self,
        way: Way,
        mut attempt: impl FnMut(&mut dyn Transport, Duration) -> io::Result<usize>,
    ) -> io::Result<usize> {
        let mut moved = Instant::now();
        let mut contended: Option<Instant> = None;
        let mut heard = self.ends.heard.load(Ordering::Relaxed);
        loop {
            let now = self.ends.heard.load(Ordering::Relaxed);
            let computing = self.ends.computing.load(Ordering::Relaxed);
            if computing || (way == Way::Out && now != heard) {
                (heard, moved, contended) = (now, Instant::now(), None);
                self.restart();
            }
            let patience = self.patience(moved)?;
            match attempt(self.transport.as_mut(), patience) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => moved = Instant::now(),
                Err(error) if is_pause(&error) => {}
                done => {
                    if way == Way::In && done.as_ref().is_ok_and(|&bytes| bytes > 0) {
                        self.ends.heard.fetch_add(1, Ordering::Relaxed);
                    }
                    return done;
                }
            }
            let refuses = way == Way::In && self.ends.refusing.load(Ordering::SeqCst);
            if refuses || self.ends.is_stopping() {
                return Err(io::ErrorKind::ConnectionAborted.into());
            }
            let since = contended.unwrap_or_else(Instant::now);
            contended = self.ends.is_contended().then_some(since);
            if contended.is_some_and(|since| since.elapsed() >= self.ends.contended) {
                return Err(io::ErrorKind::TimedOut.into());
            }
        }
    }
}

/// The direction of bytes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    In,
    Out,
}

/// Whether nothing moved, which may change.
fn is_pause(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock
    )
}

impl Read for Timed {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.insist(Way::In, |transport, patience| {
            transport.set_read_timeout(patience)?;
            transport.read(buffer)
        })
    }
}

impl Write for Timed {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        self.insist(Way::Out, |transport, patience| {
            transport.set_write_timeout(patience)?;
            transport.write(buffer)
        })
    }

    fn flush(&mut self) -> io::Result<()> {
        let flushed = self.insist(Way::Out, |transport, patience| {
            transport.set_write_timeout(patience)?;
            transport.flush().map(|()| 0)
        });
        flushed.map(drop)
    }
}
