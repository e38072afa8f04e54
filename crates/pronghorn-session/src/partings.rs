//! How those who are not let in are told.

use std::{
    collections::VecDeque,
    io::{self, Read, Write},
    net::{Shutdown, TcpStream},
    sync::{
        Mutex,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use crate::{
    error::SessionError,
    frame::{self, Kind},
    lock::lock,
    message::ErrorMessage,
};

/// How long each is kept.
const PARTING: Duration = Duration::from_secs(1);

/// How often they are looked at.
const STEP: Duration = Duration::from_millis(20);

/// Connections that were refused without a thread of their own. Closing one at once, with its hello
/// unread, would reset it and might destroy the reason on its way.
pub(crate) struct Partings {
    kept: Mutex<VecDeque<(Instant, TcpStream)>>,
    /// Beyond these the oldest are closed.
    most: usize,
}

impl Partings {
    /// Keeps so many at once.
    pub(crate) fn new(most: usize) -> Self {
        let kept = Mutex::default();
        Self { kept, most }
    }

    /// Says why and keeps the connection a while. Never waits: the buffer of a new connection has
    /// room for the reason.
    pub(crate) fn refuse(&self, mut stream: TcpStream, error: &SessionError) {
        let mut words = Vec::new();
        let told = frame::write_frame(
            &mut words,
            Kind::Error,
            &ErrorMessage::of_server(error).encode(),
        )
        .and_then(|()| Ok(stream.set_nonblocking(true)?))
        .and_then(|()| Ok(stream.write_all(&words)?))
        .and_then(|()| Ok(stream.shutdown(Shutdown::Write)?));
        // Who has gone already need not be told.
        if told.is_ok() {
            self.add(stream);
        }
    }

    /// Keeps a connection a while whose last words are on their way.
    pub(crate) fn leave(&self, stream: TcpStream) {
        let ended = stream
            .set_nonblocking(true)
            .and_then(|()| stream.shutdown(Shutdown::Write));
        if ended.is_ok() {
            self.add(stream);
        }
    }

    fn add(&self, stream: TcpStream) {
        {
            let mut parting = lock(&self.kept);
            parting.push_back((Instant::now() + PARTING, stream));
            if parting.len() > self.most {
                parting.pop_front();
            }
        }
    }

    /// Reads what they still send until they have left, their time is over, or the server stops.
    pub(crate) fn see_off(&self, stopping: &AtomicBool) {
        while !stopping.load(Ordering::SeqCst) {
            lock(&self.kept).retain_mut(|(end, stream)| Instant::now() < *end && stays(stream));
            thread::sleep(STEP);
        }
    }
}

/// Whether the peer has not left yet.
fn stays(stream: &mut TcpStream) -> bool {
    loop {
        match stream.read(&mut [0; 4096]) {
            Ok(0) => return false,
            Ok(_) => {}
            Err(error) => return error.kind() == io::ErrorKind::WouldBlock,
        }
    }
}
