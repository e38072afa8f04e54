//! Who is let in, and how the others are told.

use std::{
    collections::{HashMap, VecDeque},
    io::{self, Read, Write},
    net::{IpAddr, Shutdown, TcpStream},
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
    quota::network,
};

/// Refused connections that are kept open until their clients have read why; beyond these the
/// oldest are closed.
const MOST_PARTING: usize = 256;

/// How long each is kept.
const PARTING: Duration = Duration::from_secs(1);

/// How often they are looked at.
const STEP: Duration = Duration::from_millis(20);

/// Open connections of each address.
#[derive(Default)]
pub(super) struct Addresses(Mutex<HashMap<IpAddr, usize>>);

/// A connection that is counted; given back on drop.
pub(super) struct Counted<'a> {
    addresses: &'a Addresses,
    network: IpAddr,
}

impl Addresses {
    /// Counts a connection, where its address has fewer than `most`.
    pub(super) fn enter(&self, client: IpAddr, most: usize) -> Option<Counted<'_>> {
        let network = network(client);
        let mut open = lock(&self.0);
        let own = open.get(&network).copied().unwrap_or(0);
        if own >= most {
            return None;
        }
        open.insert(network, own + 1);
        Some(Counted {
            addresses: self,
            network,
        })
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        let mut open = lock(&self.addresses.0);
        if let Some(own) = open.get_mut(&self.network) {
            *own -= 1;
            if *own == 0 {
                open.remove(&self.network);
            }
        }
    }
}

/// Connections that were refused without a thread of their own. Closing one at once, with its hello
/// unread, would reset it and might destroy the reason on its way.
#[derive(Default)]
pub(super) struct Partings(Mutex<VecDeque<(Instant, TcpStream)>>);

impl Partings {
    /// Says why and keeps the connection a while. Never waits: the buffer of a new connection has
    /// room for the reason.
    pub(super) fn refuse(&self, mut stream: TcpStream, error: &SessionError) {
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
    pub(super) fn leave(&self, stream: TcpStream) {
        let ended = stream
            .set_nonblocking(true)
            .and_then(|()| stream.shutdown(Shutdown::Write));
        if ended.is_ok() {
            self.add(stream);
        }
    }

    fn add(&self, stream: TcpStream) {
        {
            let mut parting = lock(&self.0);
            parting.push_back((Instant::now() + PARTING, stream));
            if parting.len() > MOST_PARTING {
                parting.pop_front();
            }
        }
    }

    /// Reads what they still send until they have left, their time is over, or the server stops.
    pub(super) fn see_off(&self, stopping: &AtomicBool) {
        while !stopping.load(Ordering::SeqCst) {
            lock(&self.0).retain_mut(|(end, stream)| Instant::now() < *end && stays(stream));
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
