//! A TLS connection as a [`Transport`]: two threads use its two directions, which share no lock.

use std::{
    collections::VecDeque,
    io::{self, IoSlice, Read, Write},
    net::{Shutdown, TcpStream},
    ops::Range,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use rustls::{AlertDescription, Error, PeerMisbehaved};

use super::{
    error::ChannelError,
    record::{FRAGMENT, Opener, RECORD, Said, Sealer, alert_for, record_length},
};
use crate::{lock::lock, transport::Transport};

/// Bytes that are read ahead of what is asked for.
const READ: usize = 16 * RECORD;

/// Bytes that one write seals: sixteen records.
const WRITE: usize = 16 * FRAGMENT;

/// Records without data that may follow one another: new keys cost this side more than the peer.
const MOST_WITHOUT_DATA: u32 = 32;

/// A handle on a TLS connection whose handshake is over.
pub(super) struct TlsStream {
    shared: Arc<Shared>,
    socket: TcpStream,
}

struct Shared {
    incoming: Mutex<Incoming>,
    outgoing: Mutex<Outgoing>,
    /// The peer has asked for new keys of what this side sends.
    renewal: AtomicBool,
    /// This party has said goodbye. What comes then is not decrypted, as nobody wants it.
    parted: AtomicBool,
    /// The peer has heard that a record is refused.
    told: AtomicBool,
    /// The reading of an error, by the party.
    read_error: Box<dyn Fn(Error) -> ChannelError + Send + Sync>,
}

/// What came: opened data, then records that nobody has looked at yet.
struct Incoming {
    opener: Opener,
    bytes: Box<[u8]>,
    data: Range<usize>,
    sealed: Range<usize>,
    /// Records since the last with data.
    without_data: u32,
    /// Why nothing is opened any more.
    failed: Option<Error>,
    ended: bool,
}

impl Incoming {
    fn new(opener: Opener) -> Self {
        Self {
            opener,
            bytes: vec![0; READ].into(),
            data: 0..0,
            sealed: 0..0,
            without_data: 0,
            failed: None,
            ended: false,
        }
    }

    /// One read of the socket, behind the start of a record.
    fn fetch(&mut self, mut socket: &TcpStream) -> io::Result<()> {
        if self.ended {
            return Ok(());
        }
        self.bytes.copy_within(self.sealed.clone(), 0);
        self.sealed = 0..self.sealed.len();
        let read = socket.read(&mut self.bytes[self.sealed.end..])?;
        self.sealed.end += read;
        self.ended = read == 0;
        Ok(())
    }

    /// Opens the next record, if it is all there.
    fn open(&mut self) -> Result<Option<Said>, Error> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        let opened = self.open_next();
        self.failed = opened.as_ref().err().cloned();
        opened
    }

    fn open_next(&mut self) -> Result<Option<Said>, Error> {
        let there = &mut self.bytes[self.sealed.clone()];
        let record = match record_length(there)? {
            Some(length) if length <= there.len() => &mut there[..length],
            _ => return Ok(None),
        };
        let length = record.len();
        let said = self.opener.open(record)?;
        self.without_data = match &said {
            Said::Data(data) if !data.is_empty() => 0,
            _ => self.without_data + 1,
        };
        if self.without_data > MOST_WITHOUT_DATA {
            return Err(PeerMisbehaved::TooManyEmptyFragments.into());
        }
        let start = self.sealed.start;
        self.sealed.start += length;
        Ok(Some(match said {
            Said::Data(data) => Said::Data(start + data.start..start + data.end),
            other => other,
        }))
    }

    /// Moves opened data to a buffer; how much.
    fn take(&mut self, buffer: &mut [u8]) -> usize {
        let taken = self.data.len().min(buffer.len());
        let start = self.data.start;
        buffer[..taken].copy_from_slice(&self.bytes[start..start + taken]);
        self.data.start += taken;
        taken
    }
}

/// Records that the line has not taken yet.
struct Outgoing {
    sealer: Sealer,
    records: VecDeque<Vec<u8>>,
    /// Bytes of the first record that went.
    gone: usize,
}

impl Outgoing {
    fn new(sealer: Sealer) -> Self {
        Self {
            sealer,
            records: VecDeque::new(),
            gone: 0,
        }
    }

    /// One write to the socket, of what there is.
    fn send(&mut self, mut socket: &TcpStream) -> io::Result<usize> {
        let Some(first) = self.records.front() else {
            return Ok(0);
        };
        let mut slices = vec![IoSlice::new(&first[self.gone..])];
        slices.extend(
            self.records
                .iter()
                .skip(1)
                .map(|record| IoSlice::new(record)),
        );
        let written = socket.write_vectored(&slices)?;
        self.gone += written;
        while let Some(first) = self.records.front()
            && self.gone >= first.len()
        {
            self.gone -= first.len();
            self.records.pop_front();
        }
        Ok(written)
    }

    /// One write of what is left. `Interrupted` says that some went and some is left: whoever has a
    /// time limit looks at it in between.
    fn drain(&mut self, socket: &TcpStream) -> io::Result<()> {
        if self.records.is_empty() {
            return Ok(());
        }
        match self.send(socket)? {
            0 => Err(io::ErrorKind::WriteZero.into()),
            _ if self.records.is_empty() => Ok(()),
            _ => Err(io::ErrorKind::Interrupted.into()),
        }
    }

    /// Seals a part of `buffer`; how much.
    fn seal(&mut self, buffer: &[u8], renewal: &AtomicBool) -> Result<usize, Error> {
        if renewal.swap(false, Ordering::SeqCst) {
            self.records.push_back(self.sealer.renew()?);
        }
        let part = &buffer[..buffer.len().min(WRITE)];
        let records = &mut self.records;
        self.sealer
            .seal_data(part, |record| records.push_back(record))?;
        Ok(part.len())
    }
}

impl TlsStream {
    pub(super) fn new(
        socket: TcpStream,
        sealer: Sealer,
        opener: Opener,
        read_error: impl Fn(Error) -> ChannelError + Send + Sync + 'static,
    ) -> Self {
        let shared = Shared {
            incoming: Mutex::new(Incoming::new(opener)),
            outgoing: Mutex::new(Outgoing::new(sealer)),
            renewal: AtomicBool::new(false),
            parted: AtomicBool::new(false),
            told: AtomicBool::new(false),
            read_error: Box::new(read_error),
        };
        Self {
            shared: Arc::new(shared),
            socket,
        }
    }

    /// Opens records up to the first data, and as many behind it as came and fit. None where more
    /// has to come.
    fn opened(&self, incoming: &mut Incoming, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        if self.shared.parted.load(Ordering::SeqCst) {
            incoming.sealed = 0..0;
            return Ok(incoming.ended.then_some(0));
        }
        let mut taken = incoming.take(buffer);
        while taken < buffer.len() {
            match incoming.open() {
                Ok(Some(Said::Data(data))) => incoming.data = data,
                Ok(Some(Said::Renewed { asks: true })) => {
                    self.shared.renewal.store(true, Ordering::SeqCst);
                }
                Ok(Some(Said::Renewed { asks: false } | Said::Nothing)) => {}
                Ok(Some(Said::Closed)) => incoming.ended = true,
                Ok(None) => break,
                // What came before it is taken first.
                Err(_) if taken > 0 => break,
                Err(error) => return Err(self.refused(error)),
            }
            taken += incoming.take(&mut buffer[taken..]);
            if incoming.ended {
                incoming.sealed = 0..0;
            }
        }
        // The frames say whether anything is missing.
        Ok((taken > 0 || incoming.ended).then_some(taken))
    }

    /// Tells the peer of a record that is refused, once.
    fn refused(&self, error: Error) -> io::Error {
        if let Some(alert) = alert_for(&error)
            && !self.shared.told.swap(true, Ordering::SeqCst)
        {
            self.say(alert);
        }
        io::Error::new(io::ErrorKind::InvalidData, (self.shared.read_error)(error))
    }

    /// Sends an alert, as far as nobody else is sending and the line takes it.
    fn say(&self, alert: AlertDescription) {
        if let Ok(mut outgoing) = self.shared.outgoing.try_lock()
            && let Ok(record) = outgoing.sealer.seal_alert(alert)
        {
            outgoing.records.push_back(record);
            // The peer may have gone.
            let _ = outgoing.drain(&self.socket);
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
        if buffer.is_empty() {
            return Ok(0);
        }
        let shared = self.shared.clone();
        let mut incoming = lock(&shared.incoming);
        if let Some(read) = self.opened(&mut incoming, buffer)? {
            return Ok(read);
        }
        incoming.fetch(&self.socket)?;
        let read = self.opened(&mut incoming, buffer)?;
        read.ok_or_else(|| io::ErrorKind::Interrupted.into())
    }
}

impl Write for TlsStream {
    /// Seals a part of `buffer` once all before it has gone.
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        let shared = &self.shared;
        let mut outgoing = lock(&shared.outgoing);
        outgoing.drain(&self.socket)?;
        let sealed = outgoing.seal(buffer, &shared.renewal);
        let written = sealed.map_err(|error| io::Error::other((shared.read_error)(error)))?;
        match outgoing.drain(&self.socket) {
            Err(error) if !is_pause(&error) && error.kind() != io::ErrorKind::Interrupted => {
                Err(error)
            }
            _ => Ok(written),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        lock(&self.shared.outgoing).drain(&self.socket)
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
            self.shared.parted.store(true, Ordering::SeqCst);
            self.say(AlertDescription::CloseNotify);
        }
        self.socket.shutdown(how)
    }
}

#[cfg(test)]
mod tests;
