//! A line between a client and a server that a test watches and changes.

use std::{
    io::{Read, Write},
    net::{Shutdown, SocketAddr, TcpStream},
    sync::{Arc, Mutex},
    thread,
};

use super::tap::Tap;

/// Where a frame goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    Up,
    Down,
}

/// A frame on its way, header included.
#[derive(Clone, Debug)]
pub struct Passing {
    pub way: Way,
    /// How many went the same way before it on this connection.
    pub index: usize,
    pub bytes: Vec<u8>,
}

impl Passing {
    pub fn kind(&self) -> u8 {
        self.bytes[4]
    }
}

type Change = dyn Fn(&mut Passing) -> bool + Send + Sync;

/// How long the payload behind a header of five bytes is.
pub type Payload = fn(&[u8; 5]) -> usize;

/// Of a frame of ours.
pub fn frame(header: &[u8; 5]) -> usize {
    u32::from_le_bytes(*header.first_chunk().expect("it has five bytes")) as usize
}

/// Of a TLS record (RFC 8446, section 5.1).
pub fn record(header: &[u8; 5]) -> usize {
    u16::from_be_bytes([header[3], header[4]]).into()
}

/// Passes frames on, each after a look at it; ends when dropped.
pub struct Relay {
    tap: Tap,
    seen: Arc<Mutex<Vec<Passing>>>,
}

impl Relay {
    /// To `server`. `change` sees every frame and may alter its bytes; where it says false the line
    /// is dead behind it, that way.
    pub fn new(
        server: SocketAddr,
        change: impl Fn(&mut Passing) -> bool + Send + Sync + 'static,
    ) -> Self {
        Self::of(frame, server, change)
    }

    /// The same for other frames than ours.
    pub fn of(
        payload: Payload,
        server: SocketAddr,
        change: impl Fn(&mut Passing) -> bool + Send + Sync + 'static,
    ) -> Self {
        let seen = Arc::<Mutex<Vec<Passing>>>::default();
        let change: Arc<Change> = Arc::new(change);
        let connected = {
            let seen = seen.clone();
            move |client: &TcpStream, server: &TcpStream| {
                for (way, from, to) in [(Way::Up, client, server), (Way::Down, server, client)] {
                    let (from, to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
                    let (change, seen) = (change.clone(), seen.clone());
                    thread::spawn(move || pass(way, payload, from, to, &*change, &seen));
                }
            }
        };
        Self {
            tap: Tap::new(server, Arc::default(), connected),
            seen,
        }
    }

    pub fn address(&self) -> String {
        self.tap.address().to_string()
    }

    /// Frames so far.
    pub fn seen(&self) -> Vec<Passing> {
        self.seen.lock().unwrap().clone()
    }
}

fn pass(
    way: Way,
    payload: Payload,
    mut from: TcpStream,
    mut to: TcpStream,
    change: &Change,
    seen: &Mutex<Vec<Passing>>,
) {
    let mut index = 0;
    while let Some(bytes) = next(payload, &mut from) {
        let mut passing = Passing { way, index, bytes };
        let alive = change(&mut passing);
        if to.write_all(&passing.bytes).is_err() {
            break;
        }
        seen.lock().unwrap().push(passing);
        if !alive {
            // Neither end hears of it.
            while matches!(from.read(&mut [0; 1 << 16]), Ok(read) if read > 0) {}
            return;
        }
        index += 1;
    }
    let _ = to.shutdown(Shutdown::Write);
}

fn next(payload: Payload, from: &mut TcpStream) -> Option<Vec<u8>> {
    let mut header = [0; 5];
    from.read_exact(&mut header).ok()?;
    let mut bytes = header.to_vec();
    bytes.resize(5 + payload(&header), 0);
    from.read_exact(&mut bytes[5..]).ok()?;
    Some(bytes)
}
