//! Hostile, broken and slow clients: each ends its own session with an error that names the cause,
//! and the same server serves the next good client.

use std::{io::Write, net::Shutdown, thread, time::Duration};

use crate::common::*;
use pronghorn_plan::TrustLevel;
use pronghorn_session::{
    ErrorCode, Limits, SessionError,
    frame::{Kind, MAX_HANDSHAKE},
    message::{ClientHello, Hello},
};

/// The server's error, and then a good client.
fn refused(running: &Running, mut raw: Raw, code: ErrorCode, text: &str) {
    let error = raw.expect_error();
    assert_eq!(error.code, code, "{}", error.text);
    assert!(error.text.contains(text), "{}", error.text);
    drop(raw);
    running.wait_for_log(text);
    running.serves_a_good_client(predicts);
}

fn sent(running: &Running, bytes: &[u8]) -> Raw {
    let mut raw = Raw::connect(running.address());
    raw.send_bytes(bytes);
    raw
}

#[test]
fn other_protocols_are_turned_away() {
    let running = Running::real(patient());
    for bytes in [
        &b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"[..],
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03",
        &[0; 64],
        &[0xff; 64],
    ] {
        let raw = sent(&running, bytes);
        refused(
            &running,
            raw,
            ErrorCode::Protocol,
            "does not speak Pronghorn's protocol",
        );
    }
}

#[test]
fn wrong_magic_is_refused() {
    let running = Running::real(patient());
    let mut payload = hello().encode();
    payload[0] ^= 1;
    let mut raw = Raw::connect(running.address());
    raw.send(Kind::ClientHello, &payload);
    refused(
        &running,
        raw,
        ErrorCode::Protocol,
        "does not speak Pronghorn's protocol",
    );
}

#[test]
fn another_version_is_refused_by_both_names() {
    let running = Running::real(patient());
    let mut payload = hello().encode();
    payload[8..10].copy_from_slice(&0x1234u16.to_le_bytes());
    payload.extend(b"whatever that version adds");
    let mut raw = Raw::connect(running.address());
    raw.send(Kind::ClientHello, &payload);
    refused(
        &running,
        raw,
        ErrorCode::Version,
        "version 7 of the protocol, the peer version 4660",
    );
}

#[test]
fn another_trust_level_is_refused() {
    let running = Running::real(patient());
    for trust in TrustLevel::ALL
        .into_iter()
        .filter(|&level| level != TrustLevel::ClientAided)
    {
        let mut raw = Raw::connect(running.address());
        raw.send(
            Kind::ClientHello,
            &ClientHello {
                trust,
                expected_plan_hash: None,
                model: None,
            }
            .encode(),
        );
        refused(
            &running,
            raw,
            ErrorCode::Trust,
            &format!("asked for trust level {trust}"),
        );
    }
}

#[test]
fn another_plan_is_refused_in_the_hello_and_in_begin() {
    let running = Running::real(patient());
    let mut raw = Raw::connect(running.address());
    let hello = ClientHello {
        expected_plan_hash: Some([3; 32]),
        ..hello()
    };
    raw.send(Kind::ClientHello, &hello.encode());
    refused(&running, raw, ErrorCode::Plan, "expected was 0303");
    let (mut raw, _) = Raw::greeted(running.address());
    raw.begin([4; 32], 1);
    refused(&running, raw, ErrorCode::Plan, "the plan is 0404");
}

/// What both keep of a connection does not fit together then: results would be wrong.
#[test]
fn another_count_of_runs_is_refused() {
    let running = Running::real(patient());
    let (mut raw, hello) = Raw::greeted(running.address());
    raw.2 = 1;
    raw.begin(hello.plan_hash, 1);
    refused(
        &running,
        raw,
        ErrorCode::Protocol,
        "and the server counts 0",
    );
}

#[test]
fn truncation_at_every_byte_ends_the_session() {
    let running = Running::real(Limits {
        caps: caps(&[("max-clients", 1)]),
        ..patient()
    });
    let hello = hello().encode();
    let hello = raw_frame(hello.len() as u32, Kind::ClientHello as u8, &hello);
    for cut in 0..hello.len() {
        let raw = sent(&running, &hello[..cut]);
        raw.0.shutdown(Shutdown::Both).expect("it is connected");
        // The only place comes free at once, not after a time limit.
        running.serves_a_good_client(drop);
    }
    running.serves_a_good_client(predicts);
    let (_, server) = Raw::greeted_when_free(&running);
    let mut session = Vec::new();
    session.extend(raw_frame(
        33,
        Kind::Begin as u8,
        &[&server.plan_hash[..], &[2]].concat(),
    ));
    session.extend(raw_frame(32, Kind::Data as u8, &[7; 32]));
    for cut in 1..session.len() {
        let (mut raw, _) = Raw::greeted_when_free(&running);
        raw.send_bytes(&session[..cut]);
        raw.0.shutdown(Shutdown::Both).expect("it is connected");
    }
    running.serves_a_good_client(predicts);
}

impl Raw {
    fn greeted_when_free(running: &Running) -> (Self, pronghorn_session::message::ServerHello) {
        running.serves_a_good_client(drop);
        // The good client's place comes free a moment after it has left.
        running.wait_until_empty();
        Self::greeted(running.address())
    }
}

impl Running {
    fn wait_until_empty(&self) {
        for _ in 0..2000 {
            if self.server().metrics().connections == 0 {
                // It is counted a moment before the place is free.
                thread::sleep(Duration::from_millis(2));
                return;
            }
            thread::sleep(Duration::from_millis(1));
        }
        panic!("sessions do not end: {:?}", self.log());
    }
}

#[test]
fn oversized_lengths_are_refused_before_they_are_read() {
    let running = Running::real(patient());
    let raw = sent(
        &running,
        &raw_frame(MAX_HANDSHAKE as u32 + 1, Kind::ClientHello as u8, &[]),
    );
    refused(&running, raw, ErrorCode::Protocol, "does not speak");
    let (mut raw, _) = Raw::greeted(running.address());
    raw.send_bytes(&raw_frame(u32::MAX, Kind::Begin as u8, &[]));
    refused(
        &running,
        raw,
        ErrorCode::Protocol,
        "a frame of kind Begin announces 4294967295 bytes; at most 65536",
    );
    let mut raw = Raw::begun(running.address(), 1);
    raw.send_bytes(&raw_frame(33, Kind::Data as u8, &[]));
    refused(
        &running,
        raw,
        ErrorCode::Protocol,
        "a frame of kind Data announces 33 bytes; at most 32",
    );
    let (mut raw, _) = Raw::greeted(running.address());
    raw.send_bytes(&raw_frame(1 << 20, Kind::Error as u8, &[]));
    refused(
        &running,
        raw,
        ErrorCode::Protocol,
        "a frame of kind Error announces",
    );
}

#[test]
fn unknown_kinds_are_refused() {
    let running = Running::real(patient());
    for kind in [0u8, 17, 255] {
        let (mut raw, _) = Raw::greeted(running.address());
        raw.send_bytes(&raw_frame(0, kind, &[]));
        refused(
            &running,
            raw,
            ErrorCode::Protocol,
            &format!("unknown kind {kind}"),
        );
    }
}

#[test]
fn messages_out_of_order_are_refused() {
    let running = Running::real(patient());
    for kind in [
        Kind::ServerHello,
        Kind::PlanBytes,
        Kind::Data,
        Kind::Done,
        Kind::ClientHello,
        Kind::ListingRequest,
    ] {
        let (mut raw, _) = Raw::greeted(running.address());
        raw.send(kind, &[]);
        refused(
            &running,
            raw,
            ErrorCode::Protocol,
            &format!("a frame of kind {kind:?} came where"),
        );
    }
    let mut raw = Raw::begun(running.address(), 1);
    raw.send(Kind::PlanRequest, &[]);
    refused(
        &running,
        raw,
        ErrorCode::Protocol,
        "a frame of kind PlanRequest came where [Data]",
    );
    // Data before Begin, and nothing before the hello.
    let raw = sent(&running, &raw_frame(0, Kind::PlanRequest as u8, &[]));
    refused(&running, raw, ErrorCode::Protocol, "does not speak");
}

#[test]
fn the_plan_is_sent_once() {
    let running = Running::real(patient());
    let (mut raw, hello) = Raw::greeted(running.address());
    raw.send(Kind::PlanRequest, &[]);
    let mut plan = Vec::new();
    let accept = [(Kind::PlanBytes, hello.plan_length as usize)];
    pronghorn_session::frame::read_frame(&mut raw.0, &accept, &mut plan).expect("the plan");
    assert_eq!(plan.len(), hello.plan_length as usize);
    raw.send(Kind::PlanRequest, &[]);
    refused(
        &running,
        raw,
        ErrorCode::Protocol,
        "a frame of kind PlanRequest came where",
    );
}

#[test]
fn zero_and_too_large_batches_are_refused() {
    let running = Running::real(Limits {
        max_images_per_batch: Some(9),
        ..patient()
    });
    for batch in [0, 10, u32::MAX] {
        let raw = Raw::begun(running.address(), batch);
        refused(
            &running,
            raw,
            ErrorCode::Limit,
            &format!("a batch of {batch} images was asked for; this server takes 1 to 9"),
        );
    }
}

#[test]
fn malformed_messages_are_refused() {
    let running = Running::real(patient());
    for payload in [&[][..], &[0; 32], &[0; 40], &[0xff; 60]] {
        for kind in [Kind::Begin, Kind::Prepare] {
            let (mut raw, _) = Raw::greeted(running.address());
            raw.send(kind, payload);
            // In words of the project's own.
            let text = raw.expect_error().text;
            assert!(!text.contains("Serde") && !text.contains("usize"), "{text}");
        }
        let (mut raw, _) = Raw::greeted(running.address());
        raw.send(Kind::Begin, payload);
        refused(
            &running,
            raw,
            ErrorCode::Protocol,
            "the peer's Begin message is malformed",
        );
    }
    let mut payload = hello().encode();
    payload[10] = 200;
    let mut raw = Raw::connect(running.address());
    raw.send(Kind::ClientHello, &payload);
    refused(
        &running,
        raw,
        ErrorCode::Protocol,
        "the peer's ClientHello message is malformed",
    );
}

#[test]
fn wrong_ciphertexts_are_refused() {
    let running = Running::real(patient());
    for length in [0, 1, 31] {
        let mut raw = Raw::begun(running.address(), 1);
        raw.send(Kind::Data, &vec![0; length]);
        refused(&running, raw, ErrorCode::Engine, "the seed of a has");
    }
    let row = model()
        .plan()
        .linear_steps()
        .next()
        .expect("it has layers")
        .2
        .request_row_bytes(2);
    let mut raw = Raw::begun(running.address(), 2);
    raw.send(Kind::Data, &[9; 32]);
    raw.send(Kind::Data, &vec![0xff; INPUTS * row]);
    refused(&running, raw, ErrorCode::Engine, "step 1 (dense): row");
    let mut raw = Raw::begun(running.address(), 2);
    raw.send(Kind::Data, &[9; 32]);
    raw.send(Kind::Data, &vec![0; INPUTS * row - 1]);
    refused(&running, raw, ErrorCode::Engine, "step 1 (dense)");
}

#[test]
fn random_bytes_never_harm() {
    let running = Running::real(limits());
    let mut state = 0x2545_f491_4f6c_dd1du64;
    let mut random = |length: usize| -> Vec<u8> {
        let next = |_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 33) as u8
        };
        (0..length).map(next).collect()
    };
    for round in 0..60 {
        let bytes = random(round * 7);
        let mut raw = match round % 3 {
            0 => Raw::connect(running.address()),
            1 => Raw::greeted(running.address()).0,
            _ => Raw::begun(running.address(), 1),
        };
        raw.send_bytes(&bytes);
        drop(raw);
        running.wait_until_empty();
    }
    running.serves_a_good_client(predicts);
    assert!(
        running.log().iter().all(|line| !line.contains("bug")),
        "{:?}",
        running.log()
    );
}

#[test]
fn a_client_that_vanishes_frees_its_place() {
    let running = Running::real(Limits {
        caps: caps(&[("max-clients", 1)]),
        ..patient()
    });
    for stage in 0..3 {
        let raw = match stage {
            0 => Raw::connect(running.address()),
            1 => Raw::greeted(running.address()).0,
            _ => {
                let mut raw = Raw::begun(running.address(), 1);
                raw.send(Kind::Data, &[1; 32]);
                raw
            }
        };
        drop(raw);
        running.serves_a_good_client(predicts);
        running.wait_until_empty();
    }
    assert!(
        running
            .log()
            .iter()
            .filter(|line| line.contains("ended by an error"))
            .count()
            >= 3
    );
}

#[test]
fn silence_is_ended() {
    let running = Running::real(Limits {
        caps: caps(&[("max-clients", 1)]),
        ..limits()
    });
    for stage in 0..3 {
        let mut raw = match stage {
            0 => Raw::connect(running.address()),
            1 => Raw::greeted(running.address()).0,
            _ => Raw::begun(running.address(), 1),
        };
        // Between batches a client may come back by itself.
        let code = match stage {
            1 => ErrorCode::Idle,
            _ => ErrorCode::Timeout,
        };
        assert_eq!(raw.expect_error().code, code);
        drop(raw);
        running.serves_a_good_client(predicts);
        running.wait_until_empty();
    }
}

/// A byte now and then does not keep a session alive: the time limit is the message's, not the
/// byte's.
#[test]
fn a_slow_loris_is_ended() {
    let running = Running::real(Limits {
        caps: caps(&[("max-clients", 1)]),
        ..limits()
    });
    let hello = hello().encode();
    let hello = raw_frame(hello.len() as u32, Kind::ClientHello as u8, &hello);
    let mut raw = Raw::connect(running.address());
    let mut sent = 0;
    while sent < hello.len() - 1 && raw.0.write_all(&hello[sent..=sent]).is_ok() {
        sent += 1;
        thread::sleep(Duration::from_millis(50));
    }
    assert_eq!(raw.expect_error().code, ErrorCode::Timeout);
    running.wait_for_log("silent or too slow");
    running.serves_a_good_client(predicts);
}

/// A client that never reads what it is sent does not hold its place for ever.
#[test]
fn a_client_that_does_not_read_is_ended() {
    let running = Running::mock(Limits {
        caps: caps(&[("max-clients", 1)]),
        ..limits()
    });
    let mut raw = Raw::begun(running.address(), FLOODS as u32);
    for done in 0..3u8 {
        raw.send(Kind::Data, &vec![done; 1 + usize::from(done) * 1000]);
    }
    running.wait_for_log("silent or too slow");
    running.serves_a_good_client(plays);
    drop(raw);
}

#[test]
fn a_panic_in_a_session_ends_that_session_only() {
    let running = Running::mock(patient());
    let mut client = running.connect().expect("a good client");
    match client.run(&mut PingPong::client(PANICS), PANICS, &mut |_| {}) {
        Err(SessionError::Peer {
            code: ErrorCode::Internal,
            text,
        }) => assert!(text.contains("bug"), "{text}"),
        other => panic!("{other:?}"),
    }
    running.wait_for_log("met a bug in pronghorn");
    running.serves_a_good_client(plays);
}

#[test]
fn a_failing_machine_ends_its_session_with_its_words() {
    let running = Running::mock(patient());
    let mut client = running.connect().expect("a good client");
    match client.run(&mut PingPong::client(FAILS), FAILS, &mut |_| {}) {
        Err(SessionError::Peer {
            code: ErrorCode::Engine,
            text,
        }) => assert!(text.contains("fails as the test wants")),
        other => panic!("{other:?}"),
    }
    running.serves_a_good_client(plays);
}

#[test]
fn what_a_client_says_is_escaped_in_the_log() {
    let running = Running::real(patient());
    let (mut raw, _) = Raw::greeted(running.address());
    raw.send(
        Kind::Error,
        b"\x09\x00evil\x1b[2Jtext\nclient 1 left happily\xff",
    );
    let line = running.wait_for_log("evil");
    assert!(
        line.contains("evil\\u{1b}[2Jtext; client 1 left happily"),
        "{line}"
    );
    assert!(!line.chars().any(char::is_control));
    running.serves_a_good_client(predicts);
}
