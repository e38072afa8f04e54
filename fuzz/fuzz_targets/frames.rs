//! The frame reader, the decoders of all small messages, and the header of load balancers, on any bytes.
#![no_main]

use libfuzzer_sys::fuzz_target;
use pronghorn_session::{
    SessionError,
    frame::{self, Accept, Kind, MAX_ERROR, MAX_HANDSHAKE},
    message::{
        self, Begin, Begun, ClientHello, Done, ErrorMessage, Hello, Listing, ListingRequest,
        Prepare, ServerHello,
    },
    proxy,
};

const ACCEPT: [Accept; 11] = [
    (Kind::ClientHello, MAX_HANDSHAKE),
    (Kind::ServerHello, MAX_HANDSHAKE),
    (Kind::PlanRequest, 0),
    (Kind::Begin, MAX_HANDSHAKE),
    (Kind::Data, 1000),
    (Kind::Done, MAX_HANDSHAKE),
    (Kind::Bye, 0),
    (Kind::Prepare, MAX_HANDSHAKE),
    (Kind::Begun, MAX_HANDSHAKE),
    (Kind::ListingRequest, MAX_HANDSHAKE),
    (Kind::Listing, MAX_HANDSHAKE),
];

fuzz_target!(|bytes: &[u8]| {
    let _ = proxy::read_header(&mut &*bytes);
    let mut stream = bytes;
    let mut payload = Vec::new();
    while let Ok(kind) = frame::read_frame(&mut stream, &ACCEPT, &mut payload) {
        let bound = ACCEPT
            .iter()
            .find(|(accepted, _)| *accepted == kind)
            .map_or(MAX_ERROR, |&(_, most)| most);
        assert!(payload.len() <= bound);
        decode(kind, &payload);
    }
    for kind in [
        Kind::ClientHello,
        Kind::ServerHello,
        Kind::Begin,
        Kind::Done,
        Kind::Prepare,
        Kind::Begun,
        Kind::ListingRequest,
        Kind::Listing,
        Kind::Error,
    ] {
        decode(kind, bytes);
    }
});

/// Whatever decodes also encodes, to something that decodes to the same.
fn decode(kind: Kind, payload: &[u8]) {
    match kind {
        Kind::ClientHello => again(
            ClientHello::decode(payload),
            Hello::encode,
            ClientHello::decode,
        ),
        Kind::ServerHello => again(
            ServerHello::decode(payload),
            Hello::encode,
            ServerHello::decode,
        ),
        Kind::ListingRequest => again(
            ListingRequest::decode(payload),
            Hello::encode,
            ListingRequest::decode,
        ),
        Kind::Listing => again(Listing::decode(payload), Hello::encode, Listing::decode),
        Kind::Begin => again(message::decode(kind, payload), message::encode, |p| {
            message::decode::<Begin>(kind, p)
        }),
        Kind::Done => again(message::decode(kind, payload), message::encode, |p| {
            message::decode::<Done>(kind, p)
        }),
        Kind::Prepare => again(message::decode(kind, payload), message::encode, |p| {
            message::decode::<Prepare>(kind, p)
        }),
        Kind::Begun => again(message::decode(kind, payload), message::encode, |p| {
            message::decode::<Begun>(kind, p)
        }),
        Kind::Error => {
            if let Ok(message) = ErrorMessage::decode(payload) {
                assert!(message.text.chars().all(|c| c == '\n' || !c.is_control()));
                assert!(message.encode().len() <= MAX_ERROR);
            }
        }
        _ => {}
    }
}

fn again<M: PartialEq + std::fmt::Debug>(
    first: Result<M, SessionError>,
    encode: impl Fn(&M) -> Vec<u8>,
    decode: impl Fn(&[u8]) -> Result<M, SessionError>,
) {
    if let Ok(message) = first {
        assert_eq!(
            decode(&encode(&message)).expect("it was encoded here"),
            message
        );
    }
}
