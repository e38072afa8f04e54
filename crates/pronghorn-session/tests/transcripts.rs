//! The frames of whole sessions equal golden files: order, sender, kind and length.
//!
//! What messages say is held still by the transcripts of `pronghorn-engine`. After a change of the
//! frames, `PRONGHORN_BLESS=1 cargo test -p pronghorn-session transcripts::` writes the files
//! anew; the commit says why.

use std::{
    env,
    fmt::Write as _,
    fs,
    io::{self, Read, Write},
    net::{Shutdown, TcpStream},
    path::PathBuf,
    sync::{Arc, Mutex},
    time::Duration,
};

use crate::common::*;
use pronghorn_engine::ServerModel;
use pronghorn_plan::{Built, Engine, TrustLevel};
use pronghorn_session::{
    Client, ConnectOptions, Limits, Server, Transport,
    frame::{HEADER_BYTES, Kind, MAX_HANDSHAKE},
    message::{Hello, ListingRequest},
};

/// Kinds of frames, for their names.
const KINDS: [Kind; 14] = [
    Kind::ClientHello,
    Kind::ServerHello,
    Kind::PlanRequest,
    Kind::PlanBytes,
    Kind::Begin,
    Kind::Data,
    Kind::Done,
    Kind::Error,
    Kind::Bye,
    Kind::Prepare,
    Kind::Begun,
    Kind::Token,
    Kind::ListingRequest,
    Kind::Listing,
];

/// The client's end of a connection, which writes down what goes over it.
struct Tapped {
    stream: TcpStream,
    tape: Arc<Mutex<Tape>>,
}

/// Frames so far, and what has come of the next frame from each party.
#[derive(Default)]
struct Tape {
    frames: String,
    client: Vec<u8>,
    server: Vec<u8>,
}

impl Tape {
    fn add(&mut self, is_client: bool, bytes: &[u8]) {
        let (party, partial) = match is_client {
            true => ("client", &mut self.client),
            false => ("server", &mut self.server),
        };
        partial.extend_from_slice(bytes);
        while let [a, b, c, d, byte, payload @ ..] = partial.as_slice() {
            let length = u32::from_le_bytes([*a, *b, *c, *d]) as usize;
            if payload.len() < length {
                break;
            }
            let kind = KINDS.into_iter().find(|&kind| kind as u8 == *byte);
            _ = match kind {
                // Errors are sentences: their lengths are no part of the format.
                Some(Kind::Error) => writeln!(self.frames, "{party} Error"),
                Some(kind) => writeln!(self.frames, "{party} {kind:?} {length}"),
                None => writeln!(self.frames, "{party} kind {byte} {length}"),
            };
            partial.drain(..HEADER_BYTES + length);
        }
    }
}

impl Read for Tapped {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.stream.read(buffer)?;
        self.tape.lock().unwrap().add(false, &buffer[..read]);
        Ok(read)
    }
}

impl Write for Tapped {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        // Held while it writes: an answer is written down after what it answers.
        let mut tape = self.tape.lock().unwrap();
        let written = self.stream.write(buffer)?;
        tape.add(true, &buffer[..written]);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}

impl Transport for Tapped {
    fn try_clone(&self) -> io::Result<Box<dyn Transport>> {
        Ok(Box::new(Self {
            stream: self.stream.try_clone()?,
            tape: self.tape.clone(),
        }))
    }

    fn set_read_timeout(&self, timeout: Duration) -> io::Result<()> {
        Transport::set_read_timeout(&self.stream, timeout)
    }

    fn set_write_timeout(&self, timeout: Duration) -> io::Result<()> {
        Transport::set_write_timeout(&self.stream, timeout)
    }

    fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        Transport::shutdown(&self.stream, how)
    }
}

/// A server of this model, which takes two images a batch.
fn serve(built: &Built) -> Running {
    let model = Arc::new(ServerModel::new(built).expect("weights fit the plan"));
    let limits = Limits {
        max_images_per_batch: Some(2),
        ..patient()
    };
    Running::start(Server::bind("127.0.0.1:0", model, limits).expect("a free port"))
}

/// Compares the frames of a session with their golden file.
fn session(case: &str, built: &Built, asked: TrustLevel, use_it: impl FnOnce(&mut Client)) {
    let running = serve(built);
    let tape = Arc::new(Mutex::new(Tape::default()));
    let stream = TcpStream::connect(running.address()).expect("the server listens");
    stream.set_nodelay(true).expect("TCP has the option");
    let tapped = Tapped {
        stream,
        tape: tape.clone(),
    };
    let options = ConnectOptions {
        trust: Some(asked),
        ..options()
    };
    if let Ok(mut client) = Client::over(Box::new(tapped), options) {
        use_it(&mut client);
    }
    let found = tape.lock().unwrap().frames.clone();
    compare(case, &found);
}

fn compare(case: &str, found: &str) {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(format!("tests/golden/{case}.txt"));
    if env::var("PRONGHORN_BLESS").is_ok_and(|value| value == "1") {
        fs::write(&path, found).expect("the golden file is written");
        return;
    }
    let golden = fs::read_to_string(&path).unwrap_or_default();
    let lines: Vec<&str> = found.lines().collect();
    assert_eq!(lines, golden.lines().collect::<Vec<_>>(), "{case}");
}

/// Predicts so many images.
fn predict(client: &mut Client, images: usize) {
    let inputs = numbers(INPUTS * images);
    let prediction = client.predict(&inputs, images, &mut |_| {});
    prediction.expect("it is served");
}

#[test]
fn client_aided() {
    let trust = TrustLevel::ClientAided;
    session("client_aided", &built_for(trust, "relu"), trust, |client| {
        predict(client, 3);
    });
}

#[test]
fn encrypted() {
    let trust = TrustLevel::Encrypted;
    session("encrypted", &built_for(trust, "square"), trust, |client| {
        predict(client, 2);
        predict(client, 1);
    });
}

/// Two batches, an offline part, and a batch that uses it.
fn shared(case: &str, engine: Engine) {
    let trust = TrustLevel::TwoParty;
    let built = built_in(trust, "relu", Some(engine));
    session(case, &built, trust, |client| {
        predict(client, 2);
        predict(client, 1);
        client.prepare(1, |_| {}).expect("it can be prepared");
        predict(client, 1);
    });
}

#[test]
fn two_party_batch() {
    shared("two_party_batch", Engine::Batch);
}

#[test]
fn two_party_coefficient() {
    shared("two_party_coefficient", Engine::Coefficient);
}

#[test]
fn two_party_slot() {
    shared("two_party_slot", Engine::Slot);
}

/// The models of a server, asked by a client that is no client otherwise.
#[test]
fn listing() {
    let running = serve(&built());
    let mut raw = Raw::connect(running.address());
    raw.send(Kind::ListingRequest, &ListingRequest.encode());
    let (kind, payload) = raw
        .receive(&[(Kind::Listing, MAX_HANDSHAKE)])
        .expect("it is told");
    let asked = ListingRequest.encode().len();
    let frames = format!(
        "client ListingRequest {asked}\nserver {kind:?} {}\n",
        payload.len()
    );
    compare("listing", &frames);
}

#[test]
fn another_trust_level() {
    let built = built_for(TrustLevel::TwoParty, "relu");
    session(
        "another_trust_level",
        &built,
        TrustLevel::ClientAided,
        |_| panic!("the server has another trust level"),
    );
}
