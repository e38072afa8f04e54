//! Hostile and broken servers: a client ends with an error that says what was wrong.

use std::{
    net::{Shutdown, TcpListener, TcpStream},
    thread,
    time::Duration,
};

use crate::common::*;
use pronghorn_plan::{Plan, TrustLevel, plan::MAX_BYTES};
use pronghorn_session::{
    Client, ConnectOptions, ErrorCode, FrameError, ModelId, SessionError,
    frame::{self, Kind, MAX_HANDSHAKE},
    message::{ErrorMessage, Hello, ServerHello},
};

/// Runs `server` for one connection whose hello it has read, and a client against it.
fn against(server: impl FnOnce(&mut TcpStream) + Send, client: impl FnOnce(String)) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let address = listener.local_addr().expect("it is bound").to_string();
    thread::scope(|scope| {
        scope.spawn(move || {
            let (mut stream, _) = listener.accept().expect("the client comes");
            frame::read_frame(
                &mut stream,
                &[(Kind::ClientHello, MAX_HANDSHAKE)],
                &mut Vec::new(),
            )
            .expect("its hello");
            server(&mut stream);
            // So that the client reads all before the connection ends.
            let _ = stream.shutdown(Shutdown::Write);
            let _ = std::io::copy(&mut stream, &mut std::io::sink());
        });
        client(address);
    });
}

fn connecting_fails(server: impl FnOnce(&mut TcpStream) + Send) -> SessionError {
    let mut result = None;
    against(server, |address| {
        result = Client::connect(&address, options()).err()
    });
    result.expect("the client refuses")
}

fn hello_of(plan: &Plan) -> ServerHello {
    ServerHello {
        trust: plan.trust,
        plan_hash: plan.hash(),
        plan_length: plan.to_bytes().len() as u32,
        max_batch: 100,
        images_left: None,
        prepared_batches: 4,
        store: [5; 16],
        model: ModelId::of_plan("mock"),
    }
}

fn write(stream: &mut TcpStream, kind: Kind, payload: &[u8]) {
    // The client may be gone already.
    let _ = frame::write_frame(stream, kind, payload);
}

/// A client that gets this far as hello and these bytes as plan.
fn offered(hello: ServerHello, plan: Vec<u8>) -> SessionError {
    connecting_fails(move |stream| {
        write(stream, Kind::ServerHello, &hello.encode());
        write(stream, Kind::PlanBytes, &plan);
    })
}

#[test]
fn other_protocols_are_recognised() {
    for bytes in [
        &b"HTTP/1.1 400 Bad Request\r\n\r\n"[..],
        b"SSH-2.0-OpenSSH_9.2\r\n",
        b"220 mail ESMTP\r\n",
        b"abc",
    ] {
        let error = connecting_fails(move |stream| {
            std::io::Write::write_all(stream, bytes).expect("it is connected")
        });
        assert!(matches!(error, SessionError::NotPronghorn), "{error}");
    }
}

#[test]
fn another_version_is_named() {
    let mut payload = hello_of(&mock_plan()).encode();
    payload[8] = 9;
    let error = connecting_fails(move |stream| write(stream, Kind::ServerHello, &payload));
    assert!(matches!(
        error,
        SessionError::Version { ours: 7, theirs: 9 }
    ));
}

#[test]
fn another_trust_level_is_refused_in_hello_and_plan() {
    let plan = mock_plan();
    let hello = ServerHello {
        trust: TrustLevel::Encrypted,
        ..hello_of(&plan)
    };
    let error = offered(hello, plan.to_bytes());
    assert!(error.to_string().contains("EVERY WEIGHT"), "{error}");
    assert!(matches!(
        error,
        SessionError::TrustMismatch {
            offered: TrustLevel::Encrypted,
            ..
        }
    ));
    let other = Plan {
        trust: TrustLevel::TwoParty,
        ..plan.plan().clone()
    };
    let hello = ServerHello {
        trust: TrustLevel::ClientAided,
        ..hello_of(&other)
    };
    let error = offered(hello, other.to_bytes());
    assert!(
        matches!(
            error,
            SessionError::TrustMismatch { .. } | SessionError::Plan(_)
        ),
        "{error}"
    );
}

#[test]
fn another_plan_than_announced_is_refused() {
    let plan = mock_plan();
    let hello = ServerHello {
        plan_hash: [1; 32],
        ..hello_of(&plan)
    };
    assert!(matches!(
        offered(hello, plan.to_bytes()),
        SessionError::PlanHash { .. }
    ));
    let mut held_to = None;
    against(
        |stream| write(stream, Kind::ServerHello, &hello_of(&mock_plan()).encode()),
        |address| {
            let options = ConnectOptions {
                expected_plan_hash: Some([2; 32]),
                ..options()
            };
            held_to = Client::connect(&address, options).err();
        },
    );
    assert!(matches!(
        held_to,
        Some(SessionError::PlanHash {
            expected: [2, ..],
            ..
        })
    ));
}

#[test]
fn damaged_and_truncated_plans_are_refused() {
    let plan = mock_plan();
    let bytes = plan.to_bytes();
    for cut in 0..bytes.len() {
        let error = offered(hello_of(&plan), bytes[..cut].to_vec());
        assert!(matches!(error, SessionError::Plan(_)), "{error}");
    }
    let error = offered(hello_of(&plan), [&bytes[..], &[0]].concat());
    assert!(
        matches!(
            error,
            SessionError::Frame(FrameError::TooLong {
                kind: Kind::PlanBytes,
                ..
            })
        ),
        "{error}"
    );
}

#[test]
fn impossible_promises_are_refused() {
    let plan = mock_plan();
    let hello = ServerHello {
        plan_length: MAX_BYTES as u32 + 1,
        ..hello_of(&plan)
    };
    assert!(matches!(
        offered(hello, vec![]),
        SessionError::Handshake {
            field: "plan length",
            ..
        }
    ));
    let hello = ServerHello {
        max_batch: 0,
        ..hello_of(&plan)
    };
    assert!(matches!(
        offered(hello, vec![]),
        SessionError::Handshake {
            field: "largest batch",
            ..
        }
    ));
}

#[test]
fn an_ending_at_every_byte_is_an_error() {
    let plan = mock_plan();
    let hello = hello_of(&plan).encode();
    let plan = plan.to_bytes();
    let mut session = raw_frame(hello.len() as u32, Kind::ServerHello as u8, &hello);
    session.extend(raw_frame(plan.len() as u32, Kind::PlanBytes as u8, &plan));
    for cut in 0..session.len() {
        let part = session[..cut].to_vec();
        let error = connecting_fails(move |stream| {
            std::io::Write::write_all(stream, &part).expect("it is connected")
        });
        assert!(
            matches!(error, SessionError::Frame(_) | SessionError::NotPronghorn),
            "{cut}: {error}"
        );
    }
}

#[test]
fn a_silent_server_is_given_up() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let address = listener.local_addr().expect("it is bound").to_string();
    let options = ConnectOptions {
        timeout: Duration::from_millis(200),
        ..options()
    };
    let error = Client::connect(&address, options)
        .err()
        .expect("nobody answers");
    assert!(
        matches!(error, SessionError::Frame(FrameError::Timeout)),
        "{error}"
    );
}

#[test]
fn words_of_a_server_are_escaped() {
    let error = connecting_fails(|stream| write(stream, Kind::Error, b"\x63\x00no\x1b[31m red\n"));
    match error {
        SessionError::Peer {
            code: ErrorCode::Other(0x63),
            text,
        } => assert_eq!(text, "no\\u{1b}[31m red\n"),
        other => panic!("{other:?}"),
    }
}

/// A server that vanishes, or sends something else, within a batch.
#[test]
fn a_batch_that_goes_wrong_ends_the_session() {
    for kind in [None, Some(Kind::Done), Some(Kind::Data), Some(Kind::Bye)] {
        against(
            move |stream| {
                let plan = mock_plan();
                write(stream, Kind::ServerHello, &hello_of(&plan).encode());
                write(stream, Kind::PlanBytes, &plan.to_bytes());
                if let Some(kind) = kind {
                    write(stream, kind, &[0]);
                }
            },
            |address| {
                let mut client =
                    Client::connect(&address, options()).expect("the handshake is honest");
                let mut run = || client.run(&mut PingPong::client(5), 5, &mut |_| {});
                let error = run().expect_err("the batch goes wrong");
                match kind {
                    Some(Kind::Data) => assert!(
                        matches!(error, SessionError::Frame(_) | SessionError::Engine(_)),
                        "{error}"
                    ),
                    _ => assert!(matches!(error, SessionError::Frame(_)), "{error}"),
                }
                assert!(matches!(run(), Err(SessionError::Over)));
            },
        );
    }
}

/// What a client tells a server of its own failure is the category alone.
#[test]
fn a_failing_client_tells_no_more_than_the_category() {
    against(
        |stream| {
            let plan = mock_plan();
            write(stream, Kind::ServerHello, &hello_of(&plan).encode());
            write(stream, Kind::PlanBytes, &plan.to_bytes());
            let mut payload = Vec::new();
            let accept = [
                (Kind::PlanRequest, 0),
                (Kind::Begin, 100),
                (Kind::Data, 10_000),
            ];
            for expected in [
                Kind::PlanRequest,
                Kind::Begin,
                Kind::Data,
                Kind::Data,
                Kind::Data,
            ] {
                assert_eq!(
                    frame::read_frame(stream, &accept, &mut payload).expect("an honest client"),
                    expected
                );
            }
            write(stream, Kind::Data, &[77; 3001]);
            assert_eq!(
                frame::read_frame(stream, &[], &mut payload).expect("its last words"),
                Kind::Error
            );
            let message = ErrorMessage::decode(&payload).expect("it has a code");
            let text = "the client's side of the computation failed".to_owned();
            assert_eq!(
                message,
                ErrorMessage {
                    code: ErrorCode::Engine,
                    text
                }
            );
        },
        |address| {
            let mut client = Client::connect(&address, options()).expect("the handshake is honest");
            let error = client
                .run(&mut PingPong::client(5), 5, &mut |_| {})
                .expect_err("the answer is wrong");
            assert!(matches!(error, SessionError::Engine(_)), "{error}");
        },
    );
}
