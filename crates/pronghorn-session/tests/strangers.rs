//! What a server that knows its clients tells others: a refusal, which is the same whatever it
//! serves.

use std::{
    io::{Read, Write},
    net::TcpStream,
    sync::Arc,
};

use crate::common::{
    tls::{Keys, client_config, serve_model},
    *,
};
use pronghorn_engine::ServerModel;
use pronghorn_plan::TrustLevel;
use pronghorn_session::{
    ErrorCode, Limits, ServerTls,
    frame::{self, Kind},
    message::{self, Begin, ClientHello, ErrorMessage, Hello, ListingRequest, Prepare},
    store::Name,
};
use rustls::{ClientConnection, StreamOwned, pki_types::ServerName};

/// Servers that differ in all that a plan and a hello tell.
fn servers(files: &ServerTls) -> [Running; 2] {
    let small = Limits {
        caps: caps(&[("max-clients", 4), ("max-images", 9000)]),
        max_prepared: 0,
        ..patient()
    };
    let served = [
        (built_for(TrustLevel::TwoParty, "relu"), patient()),
        (built_for(TrustLevel::Encrypted, "square"), small),
    ];
    served.map(|(built, limits)| {
        let model = Arc::new(ServerModel::new(&built).expect("weights fit the plan"));
        serve_model(model, files.clone(), limits)
    })
}

/// All that a server says to these frames, over TLS and without a certificate.
fn answer(keys: &Keys, running: &Running, frames: &[(Kind, Vec<u8>)]) -> Vec<u8> {
    let socket = TcpStream::connect(running.address()).expect("it listens");
    let name = ServerName::try_from("localhost").expect("it is a name");
    let tls = ClientConnection::new(client_config(keys), name).expect("it is valid");
    let mut line = StreamOwned::new(tls, socket);
    for (kind, payload) in frames {
        // A server that has refused the certificate reads no more.
        let _ = frame::write_frame(&mut line, *kind, payload);
    }
    let _ = line.flush();
    let mut said = Vec::new();
    let _ = line.read_to_end(&mut said);
    said
}

fn hello(trust: TrustLevel, expected_plan_hash: Option<[u8; 32]>) -> (Kind, Vec<u8>) {
    let hello = ClientHello {
        trust,
        expected_plan_hash,
        model: None,
    };
    (Kind::ClientHello, hello.encode())
}

fn named(model: &str) -> (Kind, Vec<u8>) {
    let hello = ClientHello {
        trust: TrustLevel::TwoParty,
        expected_plan_hash: None,
        model: Some(model.parse().expect("it is a name")),
    };
    (Kind::ClientHello, hello.encode())
}

/// First frames of clients that have shown nothing, or a token that no server knows.
fn attempts() -> Vec<Vec<(Kind, Vec<u8>)>> {
    let (plan_hash, batch) = ([1; 32], 1);
    let begin = Begin {
        plan_hash,
        batch,
        runs: 0,
        prepared: None,
    };
    let prepare = Prepare {
        plan_hash,
        batch,
        runs: 0,
        name: Name([3; 16]),
    };
    let mut asked: Vec<Vec<_>> = TrustLevel::ALL.map(|trust| vec![hello(trust, None)]).into();
    asked.extend([
        vec![hello(TrustLevel::TwoParty, Some([0; 32]))],
        vec![
            hello(TrustLevel::TwoParty, None),
            (Kind::PlanRequest, vec![]),
        ],
        vec![(Kind::PlanRequest, vec![])],
        vec![(Kind::Begin, message::encode(&begin))],
        vec![(Kind::Prepare, message::encode(&prepare))],
        vec![(Kind::Data, vec![0; 69])],
        vec![(Kind::ClientHello, b"PRONGHRN\x07\x00\x00\x00".to_vec())],
        vec![(Kind::ListingRequest, ListingRequest.encode())],
        vec![(Kind::ListingRequest, vec![])],
        // The first server has a model of this name.
        vec![named("model")],
        vec![named("nothing")],
    ]);
    let with_token = asked.iter().map(|frames| {
        let token = (Kind::Token, vec![5; 32]);
        std::iter::once(token)
            .chain(frames.iter().cloned())
            .collect()
    });
    let with_token: Vec<Vec<_>> = with_token.collect();
    asked.into_iter().chain(with_token).collect()
}

/// The one frame of an answer, which is an error.
fn refusal(said: &[u8]) -> ErrorMessage {
    let (header, payload) = said.split_at(frame::HEADER_BYTES);
    let length = u32::from_le_bytes(*header.first_chunk().expect("it has five bytes"));
    assert_eq!(
        (header[4], length as usize),
        (Kind::Error as u8, payload.len())
    );
    ErrorMessage::decode(payload).expect("it has a code")
}

#[test]
fn refusals_tell_nothing_of_what_is_served() {
    let keys = Keys::new();
    let both = keys.server();
    let tokens = ServerTls {
        authority: None,
        ..both.clone()
    };
    for files in [both, tokens] {
        let [one, other] = servers(&files);
        for frames in attempts() {
            let said = answer(&keys, &one, &frames);
            assert_eq!(said, answer(&keys, &other, &frames), "{frames:?}");
            let refusal = refusal(&said);
            let is_hello = frames.iter().all(|(kind, _)| {
                matches!(kind, Kind::Token | Kind::ClientHello | Kind::ListingRequest)
            });
            let wanted = match is_hello {
                true => ErrorCode::Unauthorised,
                false => refusal.code,
            };
            assert_eq!(refusal.code, wanted, "{frames:?}: {}", refusal.text);
            assert!(
                matches!(refusal.code, ErrorCode::Unauthorised | ErrorCode::Protocol),
                "{frames:?}: {}",
                refusal.text
            );
        }
    }
}

#[test]
fn who_has_no_certificate_hears_an_alert_alone() {
    let keys = Keys::new();
    let files = ServerTls {
        tokens: None,
        ..keys.server()
    };
    for running in &servers(&files) {
        for frames in attempts() {
            assert!(answer(&keys, running, &frames).is_empty(), "{frames:?}");
        }
    }
}

#[test]
fn plain_tcp_hears_that_tls_is_spoken() {
    let keys = Keys::new();
    let said = servers(&keys.server()).map(|running| {
        let mut stream = TcpStream::connect(running.address()).expect("it listens");
        let (kind, payload) = hello(TrustLevel::TwoParty, None);
        frame::write_frame(&mut stream, kind, &payload).expect("it is open");
        let mut said = Vec::new();
        let _ = stream.read_to_end(&mut said);
        said
    });
    assert_eq!(said[0], said[1]);
    assert_eq!(refusal(&said[0]).code, ErrorCode::Channel);
}
