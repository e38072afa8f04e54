//! What a session runs over: TCP now, TLS later, anything in tests.

use std::{
    io::{self, Read, Write},
    net::{Shutdown, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

/// How long a read or a write waits before it looks whether it is still wanted.
const TICK: Duration = Duration::from_millis(50);

/// A connected byte stream whose two directions can be used from two threads.
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

/// A transport with a deadline over any number of reads and writes, so that a peer who sends a byte now and
/// then gains nothing. Waiting ends soon after `stopping` is set, with `ConnectionAborted`.
pub(crate) struct Timed {
    transport: Box<dyn Transport>,
    deadline: Instant,
    stopping: Arc<AtomicBool>,
}

impl Timed {
    pub(crate) fn new(transport: Box<dyn Transport>, stopping: Arc<AtomicBool>) -> Self {
        Self {
            transport,
            deadline: Instant::now(),
            stopping,
        }
    }

    /// Reads and writes fail once `time` has passed from now.
    pub(crate) fn allow(&mut self, time: Duration) {
        // A limit beyond the clock's range is none that anybody lives to see.
        let far = || Instant::now() + Duration::from_secs(1 << 30);
        self.deadline = Instant::now().checked_add(time).unwrap_or_else(far);
    }

    /// How long the next read or write may wait: a tick, and no longer than until the deadline.
    fn patience(&self) -> io::Result<Duration> {
        let left = self.deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            Err(io::ErrorKind::TimedOut.into())
        } else {
            Ok(left.min(TICK))
        }
    }

    /// Tries until something moves, the deadline passes, or nobody wants it any more.
    fn insist(
        &mut self,
        mut attempt: impl FnMut(&mut dyn Transport, Duration) -> io::Result<usize>,
    ) -> io::Result<usize> {
        loop {
            let patience = self.patience()?;
            match attempt(self.transport.as_mut(), patience) {
                Err(error) if is_pause(&error) => {}
                moved => return moved,
            }
            if self.stopping.load(Ordering::SeqCst) {
                return Err(io::ErrorKind::ConnectionAborted.into());
            }
        }
    }
}

/// Whether nothing moved, which may change.
fn is_pause(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
    )
}

impl Read for Timed {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.insist(|transport, patience| {
            transport.set_read_timeout(patience)?;
            transport.read(buffer)
        })
    }
}

impl Write for Timed {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        self.insist(|transport, patience| {
            transport.set_write_timeout(patience)?;
            transport.write(buffer)
        })
    }

    fn flush(&mut self) -> io::Result<()> {
        self.transport.flush()
    }
}
