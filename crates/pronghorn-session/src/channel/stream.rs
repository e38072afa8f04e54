//! A TLS connection as a [`Transport`]: two threads use its two directions.
//!
//! The connection's state is behind a lock that is held while bytes are encrypted or decrypted, and
//! never while this party waits for the line.

use std::{
    io::{self, Read, Write},
    net::{Shutdown, TcpStream},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use rustls::Connection;

use super::error::ChannelError;
use crate::{lock::lock, transport::Transport};

/// Bytes of ciphertext that one read of the socket takes.
const READ: usize = 64 << 10;

/// Bytes that one write encrypts: four records.
const WRITE: usize = 64 << 10;

/// A handle on a TLS connection whose handshake is over.
pub(super) struct TlsStream {
    shared: Arc<Shared>,
    socket: TcpStream,
}

struct Shared {
    connection: Mutex<Connection>,
    incoming: Mutex<Incoming>,
    outgoing: Mutex<Outgoing>,
    /// This party has said goodbye. What comes then is not decrypted, as nobody wants it.
    parted: AtomicBool,
    /// The reading of an error, by the party.
    read_error: Box<dyn Fn(rustls::Error) -> ChannelError + Send + Sync>,
}

/// Ciphertext that came and was not looked at yet.
struct Incoming {
    bytes: Box<[u8]>,
    from: usize,
    to: usize,
    ended: bool,
}

/// Ciphertext that the line has not taken yet.
#[derive(Default)]
struct Outgoing {
    bytes: Vec<u8>,
    from: usize,
}

impl TlsStream {
    pub(super) fn new(
        socket: TcpStream,
        connection: Connection,
        read_error: impl Fn(rustls::Error) -> ChannelError + Send + Sync + 'static,
    ) -> Self {
        let incoming = Incoming {
            bytes: vec![0; READ].into(),
            from: 0,
            to: 0,
            ended: false,
        };
        let shared = Shared {
            connection: Mutex::new(connection),
            incoming: Mutex::new(incoming),
            outgoing: Mutex::default(),
            parted: AtomicBool::new(false),
            read_error: Box::new(read_error),
        };
        Self {
            shared: Arc::new(shared),
            socket,
        }
    }

    /// Sends as much of what is encrypted as the line takes within one write's limit.
    /// `Interrupted` says that some went and some is left.
    fn drain(&self, outgoing: &mut Outgoing) -> io::Result<()> {
        let started = outgoing.from;
        while outgoing.from < outgoing.bytes.len() {
            match (&self.socket).write(&outgoing.bytes[outgoing.from..]) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => outgoing.from += written,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if outgoing.from > started && is_pause(&error) => {
                    return Err(io::ErrorKind::Interrupted.into());
                }
                Err(error) => return Err(error),
            }
        }
        outgoing.bytes.clear();
        outgoing.from = 0;
        Ok(())
    }

    /// One read of the socket, where nothing is left of the last.
    fn fetch(&self, incoming: &mut Incoming) -> io::Result<()> {
        if incoming.from == incoming.to && !incoming.ended {
            let read = (&self.socket).read(&mut incoming.bytes)?;
            (incoming.from, incoming.to, incoming.ended) = (0, read, read == 0);
        }
        Ok(())
    }

    /// Decrypts what came, up to the first plaintext.
    fn decrypt(&self, incoming: &mut Incoming, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        let mut connection = lock(&self.shared.connection);
        if self.shared.parted.load(Ordering::SeqCst) {
            incoming.from = incoming.to;
            return Ok(incoming.ended.then_some(0));
        }
        loop {
            match connection.reader().read(buffer) {
                Ok(read) => return Ok(Some(read)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                // The frames say whether anything is missing.
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(Some(0)),
                Err(error) => return Err(error),
            }
            if incoming.from == incoming.to && !incoming.ended {
                return Ok(None);
            }
            let mut rest = &incoming.bytes[incoming.from..incoming.to];
            incoming.from += connection.read_tls(&mut rest)?;
            if let Err(error) = connection.process_new_packets() {
                drop(connection);
                self.say();
                let error = (self.shared.read_error)(error);
                return Err(io::Error::new(io::ErrorKind::InvalidData, error));
            }
        }
    }

    /// Sends what TLS itself has to say, as far as nobody else is sending and the line takes it.
    fn say(&self) {
        if let Ok(mut outgoing) = self.shared.outgoing.try_lock() {
            self.shared.encrypted(&mut outgoing);
            // The peer may have gone.
            let _ = self.drain(&mut outgoing);
        }
    }
}

impl Shared {
    /// Takes what is encrypted.
    fn encrypted(&self, outgoing: &mut Outgoing) {
        let mut connection = lock(&self.connection);
        while connection.wants_write() {
            let written = connection.write_tls(&mut outgoing.bytes);
            written.expect("memory takes all that is written");
        }
    }
}

fn is_pause(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock
    )
}

impl Read for TlsStream {
    /// `Interrupted` says that bytes came that make no whole record yet.
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let shared = self.shared.clone();
        let mut incoming = lock(&shared.incoming);
        if let Some(read) = self.decrypt(&mut incoming, buffer)? {
            return Ok(read);
        }
        self.fetch(&mut incoming)?;
        let read = self.decrypt(&mut incoming, buffer)?;
        read.ok_or_else(|| io::ErrorKind::Interrupted.into())
    }
}

impl Write for TlsStream {
    /// Encrypts a part of `buffer` once all before it has gone.
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        let mut outgoing = lock(&self.shared.outgoing);
        self.drain(&mut outgoing)?;
        let part = &buffer[..buffer.len().min(WRITE)];
        let written = lock(&self.shared.connection).writer().write(part)?;
        self.shared.encrypted(&mut outgoing);
        match self.drain(&mut outgoing) {
            Err(error) if !is_pause(&error) && error.kind() != io::ErrorKind::Interrupted => {
                Err(error)
            }
            _ => Ok(written),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.drain(&mut lock(&self.shared.outgoing))
    }
}

impl Transport for TlsStream {
    fn try_clone(&self) -> io::Result<Box<dyn Transport>> {
        Ok(Box::new(Self {
            shared: self.shared.clone(),
            socket: self.socket.try_clone()?,
        }))
    }

    fn set_read_timeout(&self, timeout: Duration) -> io::Result<()> {
        self.socket.set_read_timeout(Some(timeout))
    }

    fn set_write_timeout(&self, timeout: Duration) -> io::Result<()> {
        self.socket.set_write_timeout(Some(timeout))
    }

    /// Says goodbye where it ends the sending, and nobody is sending.
    fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        if how == Shutdown::Write {
            let mut connection = lock(&self.shared.connection);
            self.shared.parted.store(true, Ordering::SeqCst);
            connection.send_close_notify();
            drop(connection);
            self.say();
        }
        self.socket.shutdown(how)
    }
}
