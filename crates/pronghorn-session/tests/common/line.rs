//! A line between a client and a server that a test watches and changes byte by byte.

use std::{
    io::{Read, Write},
    net::{Shutdown, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread,
    time::Duration,
};

use super::{Running, tap::Tap};

/// What becomes of a byte.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fate {
    /// It passes, with these bits flipped.
    Passes(u8),
    /// The line is cut before it, both ways.
    Cuts,
    /// Nothing is read from here on, that way.
    Stops,
}

/// By the way (0 up, 1 down) and the place of a byte that way.
type Fates = dyn Fn(usize, usize) -> Fate + Send + Sync;

/// Passes bytes on; ends when dropped.
pub struct Line {
    tap: Tap,
    passed: Arc<[AtomicUsize; 2]>,
}

impl Line {
    /// Passes bytes as long as `passes` says so of a way and a place, and is then cut.
    pub fn new(
        to: &Running,
        passes: impl Fn(usize, usize) -> bool + Send + Sync + 'static,
    ) -> Self {
        Self::with(to, move |way, at| match passes(way, at) {
            true => Fate::Passes(0),
            false => Fate::Cuts,
        })
    }

    /// Flips the bits that `flips` says.
    pub fn changing(
        to: &Running,
        flips: impl Fn(usize, usize) -> Option<u8> + Send + Sync + 'static,
    ) -> Self {
        Self::with(to, move |way, at| Fate::Passes(flips(way, at).unwrap_or(0)))
    }

    /// Reads nothing more of a way from a place on.
    pub fn stopping(to: &Running, way: usize, place: usize) -> Self {
        Self::with(to, move |found, at| match found == way && at >= place {
            true => Fate::Stops,
            false => Fate::Passes(0),
        })
    }

    fn with(to: &Running, fates: impl Fn(usize, usize) -> Fate + Send + Sync + 'static) -> Self {
        let stopping = Arc::<AtomicBool>::default();
        let passed = Arc::<[AtomicUsize; 2]>::default();
        let fates: Arc<Fates> = Arc::new(fates);
        let connected = {
            let (stopping, passed) = (stopping.clone(), passed.clone());
            move |client: &TcpStream, server: &TcpStream| {
                for (way, from, to) in [(0, client, server), (1, server, client)] {
                    let (from, to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
                    let (fates, passed, stopping) =
                        (fates.clone(), passed.clone(), stopping.clone());
                    thread::spawn(move || pass(way, from, to, &*fates, &passed[way], &stopping));
                }
            }
        };
        Self {
            tap: Tap::new(to.address(), stopping, connected),
            passed,
        }
    }

    pub fn address(&self) -> String {
        self.tap.address().to_string()
    }

    /// Bytes that have passed, up and down.
    pub fn bytes(&self) -> [usize; 2] {
        [0, 1].map(|way| self.passed[way].load(Ordering::SeqCst))
    }
}

fn pass(
    way: usize,
    mut from: TcpStream,
    mut to: TcpStream,
    fates: &Fates,
    passed: &AtomicUsize,
    stopping: &AtomicBool,
) {
    let (mut buffer, mut place) = (vec![0; 1 << 14], 0);
    while let Ok(read @ 1..) = from.read(&mut buffer) {
        let mut fit = 0;
        let mut end = None;
        while fit < read && end.is_none() {
            match fates(way, place) {
                Fate::Passes(flips) => {
                    buffer[fit] ^= flips;
                    (fit, place) = (fit + 1, place + 1);
                }
                fate => end = Some(fate),
            }
        }
        if to.write_all(&buffer[..fit]).is_err() {
            break;
        }
        passed.fetch_add(fit, Ordering::SeqCst);
        match end {
            None => {}
            Some(Fate::Stops) => {
                while !stopping.load(Ordering::SeqCst) {
                    thread::sleep(Duration::from_millis(20));
                }
                break;
            }
            Some(_) => {
                let _ = from.shutdown(Shutdown::Both);
                let _ = to.shutdown(Shutdown::Both);
                return;
            }
        }
    }
    let _ = to.shutdown(Shutdown::Write);
}
