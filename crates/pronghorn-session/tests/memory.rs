//! What a client has a server hold: [`OF_CONNECTION`] bytes and twice as many as it has sent. For a
//! batch it is what the cost model says, of which the server has a pool (`Limits::max_memory`).

mod common;

use std::{net::SocketAddr, thread, time::Duration};

use common::{
    tls::{Keys, connect, serve},
    *,
};
use peak_alloc::PeakAlloc;
use pronghorn_plan::cost;
use pronghorn_session::{
    Limits,
    frame::{Kind, MAX_HANDSHAKE},
    message::Hello,
};

#[global_allocator]
static HEAP: PeakAlloc = PeakAlloc;

/// Bytes for a connection, as SECURITY.md states them: buffers of 256 KiB each way, on TLS as many
/// again for records, and the first 64 KiB of a message that is announced.
const OF_CONNECTION: usize = 5 << 18;

const CLIENTS: usize = 16;

/// Bytes that all clients in the same state add, each after `act`, which says how many it has sent.
fn added<Kept>(act: impl Fn() -> (Kept, usize)) -> (usize, usize) {
    let before = HEAP.current_usage();
    HEAP.reset_peak_usage();
    let clients: Vec<_> = (0..CLIENTS).map(|_| act()).collect();
    // Until the server has read all of it.
    thread::sleep(Duration::from_millis(300));
    let sent = clients.iter().map(|(_, sent)| sent).sum();
    (HEAP.peak_usage().saturating_sub(before), sent)
}

/// Clients that act so stay within the bound, with so many bytes for the batch of each. Those of
/// before are gone.
fn bounded<Kept>(running: &Running, name: &str, batch: usize, act: impl Fn() -> (Kept, usize)) {
    while running.server().metrics().connections > 0 {
        thread::sleep(Duration::from_millis(10));
    }
    let (peak, sent) = added(act);
    let bound = CLIENTS * (OF_CONNECTION + batch) + 2 * sent;
    println!(
        "{name}: {} bytes a client, of at most {}",
        peak / CLIENTS,
        bound / CLIENTS
    );
    assert!(
        peak <= bound,
        "{name}: {peak} bytes, and at most {bound} are for them"
    );
}

fn connected(address: SocketAddr, bytes: &[u8]) -> (Raw, usize) {
    let mut raw = Raw::connect(address);
    raw.send_bytes(bytes);
    (raw, bytes.len())
}

#[test]
fn memory_is_bounded_by_what_was_sent() {
    let limits = Limits {
        caps: caps(&[("max-clients", 2 * CLIENTS as u64)]),
        ..patient()
    };
    let running = Running::real(limits.clone());
    running.serves_a_good_client(predicts);
    let address = running.address();
    let greeted = |bytes: &[u8]| {
        let mut raw = Raw::greeted(address).0;
        raw.send_bytes(bytes);
        (raw, hello().encode().len() + bytes.len())
    };
    let hello = hello().encode();
    let announced = |kind: Kind, length: usize| raw_frame(length as u32, kind as u8, &[]);
    let half = |kind: Kind, length: usize| {
        let part = vec![7; length / 2];
        raw_frame(length as u32, kind as u8, &part)
    };
    bounded(&running, "a silent connection", 0, || {
        connected(address, &[])
    });
    let bytes = announced(Kind::ClientHello, MAX_HANDSHAKE);
    bounded(&running, "an announced hello", 0, || {
        connected(address, &bytes)
    });
    let bytes = half(Kind::ClientHello, MAX_HANDSHAKE);
    bounded(&running, "half a hello", 0, || connected(address, &bytes));
    let bytes = raw_frame(hello.len() as u32, Kind::ClientHello as u8, &hello);
    bounded(&running, "a place and silence", 0, || {
        connected(address, &bytes)
    });
    let bytes = announced(Kind::Begin, MAX_HANDSHAKE);
    bounded(&running, "an announced batch", 0, || greeted(&bytes));
    let bytes = half(Kind::Prepare, MAX_HANDSHAKE);
    bounded(&running, "half a preparation", 0, || greeted(&bytes));
    let model = model();
    let images = model.plan().max_batch.min(4096);
    let batch = cost::memory(model.plan(), images).server as usize;
    bounded(&running, "a batch and silence", batch, || {
        (Raw::begun(address, images as u32), 50)
    });
    let row = model.plan().linear_steps().next().expect("it has layers");
    let length = INPUTS * row.2.request_row_bytes(images);
    for (name, bytes) in [
        ("an announced ciphertext", announced(Kind::Data, length)),
        ("half a ciphertext", half(Kind::Data, length)),
    ] {
        bounded(&running, name, batch, || {
            let mut raw = Raw::begun(address, images as u32);
            raw.send(Kind::Data, &[9; 32]);
            raw.send_bytes(&bytes);
            (raw, 50 + 32 + bytes.len())
        });
    }
    // The client's own buffers are in this process too.
    let keys = Keys::new();
    let over_tls = serve(keys.server(), limits);
    let address = over_tls.address();
    bounded(
        &over_tls,
        "a place over TLS, with the client's own side",
        OF_CONNECTION,
        || {
            let client = connect(address, keys.client("alice")).expect("she has a certificate");
            (client, hello.len())
        },
    );
    drop(over_tls);
    // Who has left leaves nothing.
    let before = HEAP.current_usage();
    for _ in 0..20 * CLIENTS {
        drop(connected(
            running.address(),
            &announced(Kind::ClientHello, MAX_HANDSHAKE),
        ));
    }
    thread::sleep(Duration::from_millis(500));
    let kept = HEAP.current_usage().saturating_sub(before);
    assert!(
        kept < OF_CONNECTION,
        "{kept} bytes are kept of clients that have left"
    );
}
