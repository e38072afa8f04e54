//! What a session runs over: TCP now, TLS later, anything in tests.

use std::{
    io::{self, Read, Write},
    net::{Shutdown, TcpStream},
    time::{Duration, Instant},
};

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
/// then gains nothing.
pub(crate) struct Timed {
    transport: Box<dyn Transport>,
    deadline: Instant,
}

impl Timed {
    pub(crate) fn new(transport: Box<dyn Transport>) -> Self {
        Self {
            transport,
            deadline: Instant::now(),
        }
    }

    /// Reads and writes fail once `time` has passed from now.
    pub(crate) fn allow(&mut self, time: Duration) {
        // A limit beyond the clock's range is none that anybody lives to see.
        let far = || Instant::now() + Duration::from_secs(1 << 30);
        self.deadline = Instant::now().checked_add(time).unwrap_or_else(far);
    }

    fn left(&self) -> io::Result<Duration> {
        let left = self.deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            Err(io::ErrorKind::TimedOut.into())
        } else {
            Ok(left)
        }
    }
}

impl Read for Timed {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.transport.set_read_timeout(self.left()?)?;
        self.transport.read(buffer)
    }
}

impl Write for Timed {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        self.transport.set_write_timeout(self.left()?)?;
        self.transport.write(buffer)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.transport.flush()
    }
}
