//! The bytes of each message equal golden files, one a version, which `docs/wire.md` shows too.
//!
//! After a change of a message raise `VERSION`, and `PRONGHORN_BLESS=1 cargo test -p
//! pronghorn-session messages_have_the_bytes` writes the file of the new version. Earlier ones stay
//! as they are: peers that speak them must hear that the versions differ.

use std::{collections::BTreeMap, env, fmt::Debug, fs, path::PathBuf};

use crate::common::*;
use pronghorn_plan::TrustLevel;
use pronghorn_session::{
    ErrorCode, ModelId, SessionError,
    frame::{self, Kind, MAX_HANDSHAKE},
    message::{
        self, Begin, Begun, ClientHello, Done, ErrorMessage, Hello, Listed, Listing,
        ListingRequest, Prepare, ServerHello, VERSION,
    },
    store::{Name, file::Party},
    transcript::Transcript,
};

/// A message under its name: a frame with its header.
type Frames = Vec<(&'static str, Vec<u8>)>;

const HASH: [u8; 32] = [0xA1; 32];

fn client_hello(expected_plan_hash: Option<[u8; 32]>, model: Option<&str>) -> ClientHello {
    ClientHello {
        trust: TrustLevel::TwoParty,
        expected_plan_hash,
        model: model.map(|text| text.parse().expect("it is a name")),
    }
}

fn server_hello(images_left: Option<u64>) -> ServerHello {
    ServerHello {
        trust: TrustLevel::ClientAided,
        plan_hash: HASH,
        plan_length: 5,
        max_batch: 300,
        images_left,
        prepared_batches: 16,
        store: [0xB2; 16],
        model: ModelId::of_plan("digits"),
    }
}

fn begin(prepared: Option<Name>) -> Begin {
    Begin {
        plan_hash: HASH,
        batch: 300,
        runs: 2,
        prepared,
    }
}

const NAME: Name = Name([0xC3; 16]);

const PREPARE: Prepare = Prepare {
    plan_hash: HASH,
    batch: 300,
    runs: 2,
    name: NAME,
};

const DONE: Done = Done {
    batch: 300,
    images_left: Some(700),
    leaves: false,
};

fn listing() -> Listing {
    let listed = |name, trust| Listed {
        model: ModelId::of_plan(name),
        trust,
        plan_hash: HASH,
    };
    Listing {
        models: vec![
            listed("digits", TrustLevel::TwoParty),
            listed("triage", TrustLevel::Encrypted),
        ],
    }
}

fn error() -> ErrorMessage {
    ErrorMessage {
        code: ErrorCode::Busy,
        text: "try again later".into(),
    }
}

/// `Done` as it is on the line, behind one frame of the client's on plain TCP.
fn sealed_done() -> Vec<u8> {
    let mut transcript = Transcript::default();
    transcript.absorb(Party::Client, Kind::Begin, &message::encode(&begin(None)));
    let mut payload = message::encode(&DONE);
    transcript.seal(Party::Server, Kind::Done, &mut payload);
    payload
}

fn framed(kind: Kind, payload: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    frame::write_frame(&mut bytes, kind, payload).expect("memory takes all");
    bytes
}

/// A frame of each kind, with and without what may be left out.
fn frames() -> Frames {
    let small = |kind, payload: Vec<u8>| framed(kind, &payload);
    vec![
        ("Token", framed(Kind::Token, &[0xD4; 32])),
        ("Ticket", framed(Kind::Ticket, b"ticket")),
        (
            "ClientHello",
            small(Kind::ClientHello, client_hello(None, None).encode()),
        ),
        (
            "ClientHello, plan and model",
            small(
                Kind::ClientHello,
                client_hello(Some(HASH), Some("digits@2")).encode(),
            ),
        ),
        (
            "ServerHello",
            small(Kind::ServerHello, server_hello(None).encode()),
        ),
        (
            "ServerHello, limited",
            small(Kind::ServerHello, server_hello(Some(1000)).encode()),
        ),
        ("PlanRequest", framed(Kind::PlanRequest, &[])),
        ("PlanBytes", framed(Kind::PlanBytes, b"plan.")),
        ("Begin", small(Kind::Begin, message::encode(&begin(None)))),
        (
            "Begin, prepared",
            small(Kind::Begin, message::encode(&begin(Some(NAME)))),
        ),
        (
            "Begun",
            small(Kind::Begun, message::encode(&Begun { prepared: true })),
        ),
        ("Data", framed(Kind::Data, b"message")),
        ("Done", small(Kind::Done, sealed_done())),
        ("Prepare", small(Kind::Prepare, message::encode(&PREPARE))),
        ("Bye", framed(Kind::Bye, &[])),
        (
            "ListingRequest",
            small(Kind::ListingRequest, ListingRequest.encode()),
        ),
        ("Listing", small(Kind::Listing, listing().encode())),
        ("Error", small(Kind::Error, error().encode())),
    ]
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn bytes(hex: &str) -> Vec<u8> {
    let digits: Vec<u8> = hex.bytes().collect();
    let pair = |pair: &[u8]| {
        let text = std::str::from_utf8(pair).expect("they are digits");
        u8::from_str_radix(text, 16).expect("they are digits")
    };
    digits.chunks(2).map(pair).collect()
}

fn path(version: u16) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(format!("tests/golden/wire/v{version}.txt"))
}

/// The frames of a version: a line each, the name and the bytes.
fn golden(version: u16) -> BTreeMap<String, Vec<u8>> {
    let text = fs::read_to_string(path(version)).expect("the version has a golden file");
    text.lines()
        .map(|line| line.split_once(": ").expect("a line has a name and bytes"))
        .map(|(name, digits)| (name.to_owned(), bytes(digits)))
        .collect()
}

fn payload_of(golden: &BTreeMap<String, Vec<u8>>, name: &str, kind: Kind) -> Vec<u8> {
    let mut stream = golden[name].as_slice();
    let mut payload = Vec::new();
    let accept = [(kind, MAX_HANDSHAKE)];
    // An error is read as such, wherever it comes.
    if kind == Kind::Error {
        return golden[name][frame::HEADER_BYTES..].to_vec();
    }
    let found = frame::read_frame(&mut stream, &accept, &mut payload).expect("it is a frame");
    assert_eq!((found, stream.len()), (kind, 0), "{name}");
    payload
}

#[test]
fn messages_have_the_bytes_of_their_version() {
    let found = frames();
    if env::var("PRONGHORN_BLESS").is_ok_and(|value| value == "1") {
        let lines: String = found
            .iter()
            .map(|(name, frame)| format!("{name}: {}\n", hex(frame)))
            .collect();
        fs::write(path(VERSION), lines).expect("the golden file is written");
    }
    let golden = golden(VERSION);
    assert_eq!(found.len(), golden.len());
    for (name, frame) in found {
        assert_eq!(hex(&golden[name]), hex(&frame), "{name}");
    }
}

/// Golden bytes are read as what they were written from.
#[test]
fn golden_bytes_are_read() {
    fn is<T: PartialEq + Debug>(found: Result<T, SessionError>, wanted: &T) {
        assert_eq!(&found.expect("it decodes"), wanted);
    }
    let golden = golden(VERSION);
    let payload = |name, kind| payload_of(&golden, name, kind);
    is(
        ClientHello::decode(&payload("ClientHello", Kind::ClientHello)),
        &client_hello(None, None),
    );
    is(
        ClientHello::decode(&payload("ClientHello, plan and model", Kind::ClientHello)),
        &client_hello(Some(HASH), Some("digits@2")),
    );
    is(
        ServerHello::decode(&payload("ServerHello", Kind::ServerHello)),
        &server_hello(None),
    );
    is(
        ServerHello::decode(&payload("ServerHello, limited", Kind::ServerHello)),
        &server_hello(Some(1000)),
    );
    is(
        ListingRequest::decode(&payload("ListingRequest", Kind::ListingRequest)),
        &ListingRequest,
    );
    is(
        Listing::decode(&payload("Listing", Kind::Listing)),
        &listing(),
    );
    is(
        message::decode(Kind::Begin, &payload("Begin", Kind::Begin)),
        &begin(None),
    );
    is(
        message::decode(Kind::Begin, &payload("Begin, prepared", Kind::Begin)),
        &begin(Some(NAME)),
    );
    is(
        message::decode(Kind::Prepare, &payload("Prepare", Kind::Prepare)),
        &PREPARE,
    );
    is(
        message::decode(Kind::Begun, &payload("Begun", Kind::Begun)),
        &Begun { prepared: true },
    );
    is(
        ErrorMessage::decode(&payload("Error", Kind::Error)),
        &error(),
    );
    let mut done = payload("Done", Kind::Done);
    let mut transcript = Transcript::default();
    transcript.absorb(Party::Client, Kind::Begin, &payload("Begin", Kind::Begin));
    transcript
        .open(Party::Server, Kind::Done, &mut done)
        .expect("both have seen the same");
    is(message::decode(Kind::Done, &done), &DONE);
    for (name, kind, length) in [
        ("Token", Kind::Token, 32),
        ("Ticket", Kind::Ticket, 6),
        ("PlanRequest", Kind::PlanRequest, 0),
        ("PlanBytes", Kind::PlanBytes, 5),
        ("Data", Kind::Data, 7),
        ("Bye", Kind::Bye, 0),
    ] {
        assert_eq!(payload(name, kind).len(), length, "{name}");
    }
}

/// A client of any other version is told so, in a frame that every version reads.
#[test]
fn other_versions_hear_that_they_differ() {
    let running = Running::real(patient());
    for version in (1..VERSION).chain([VERSION + 1]) {
        let mut hello = match version < VERSION {
            true => golden(version)["ClientHello"].clone(),
            false => golden(VERSION)["ClientHello"].clone(),
        };
        let place = frame::HEADER_BYTES + message::MAGIC.len();
        if version > VERSION {
            hello[place..][..2].copy_from_slice(&version.to_le_bytes());
        }
        assert_eq!(hello[place..][..2], version.to_le_bytes());
        let mut raw = Raw::connect(running.address());
        raw.send(Kind::ClientHello, &hello[frame::HEADER_BYTES..]);
        let told = raw.expect_error();
        assert_eq!(told.code, ErrorCode::Version);
        assert!(
            told.text.contains(&format!("version {version}")),
            "{}",
            told.text
        );
    }
    // What a server of another version says is understood, too.
    for version in 1..VERSION {
        let golden = golden(version);
        let hello = &golden["ServerHello"][frame::HEADER_BYTES..];
        assert!(matches!(
            ServerHello::decode(hello),
            Err(SessionError::Version { theirs, .. }) if theirs == version
        ));
        let said = ErrorMessage::decode(&golden["Error"][frame::HEADER_BYTES..]);
        assert_eq!(said.expect("no version moves it").code, ErrorCode::Busy);
    }
}

/// The document has each message, its number and its golden bytes.
#[test]
fn the_document_shows_the_golden_bytes() {
    let document = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/wire.md");
    let text = fs::read_to_string(document).expect("there is one");
    for (name, frame) in golden(VERSION) {
        let kind = name.split(',').next().unwrap_or_default();
        assert!(text.contains(&format!("`{kind}` ({})", frame[4])), "{name}");
        let wanted = format!("{name}: {}", hex(&frame));
        assert!(text.contains(&wanted), "docs/wire.md lacks: {wanted}");
    }
    for code in 1..100 {
        let known = ErrorCode::from_wire(code);
        if !matches!(known, ErrorCode::Other(_)) {
            let row = format!("| {code} | `{}` |", known.name());
            assert!(text.contains(&row), "docs/wire.md lacks: {row}");
        }
    }
}
