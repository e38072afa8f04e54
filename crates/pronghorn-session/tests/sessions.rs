//! Good sessions, over real sockets: the real engine end to end, many batches, limits.

use std::{
    net::TcpListener,
    sync::{
        Arc, Barrier,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

use crate::common::*;
use pronghorn_engine::ServerModel;
use pronghorn_graph::oracle;
use pronghorn_plan::{BuildOptions, Opening, TrustLevel, cost};
use pronghorn_session::{
    Client, ConnectOptions, ErrorCode, FrameError, ImagesDone, Limits, Server, ServerChannel,
    SessionError, in_process, in_process_watched,
};

#[test]
fn predictions_equal_a_run_without_sockets() {
    let running = Running::real(Limits {
        max_images_per_batch: Some(40),
        ..patient()
    });
    let mut client = running.connect().expect("a good client");
    assert_eq!(client.max_batch(), 40);
    let inputs = numbers(INPUTS * 100);
    let mut progress = Vec::new();
    let prediction = client
        .predict(&inputs, 100, &mut |now| progress.push(now))
        .expect("it is served");
    let wanted = in_process(&model(), &inputs, 100).expect("the run succeeds");
    assert_eq!(prediction.outputs, wanted.outputs(client.plan()));
    assert_eq!(prediction.stats.batches, 3);
    assert_eq!(prediction.stats.clamped_inputs, wanted.clamped_inputs);
    assert!(progress.is_sorted());
    // Images, of which a batch under way counts a part.
    assert!(progress.iter().any(|now| now.done.fract() > 0.0));
    assert!(progress.iter().any(|now| now.done == 40.0));
    let end = ImagesDone {
        done: 100.0,
        total: 100,
    };
    assert_eq!(progress.last(), Some(&end));
    // The same connection serves again.
    predicts(client);
    let line = running.wait_for_log("left: 4 batches, 103 images");
    assert!(!line.contains("error"), "{line}");
}

/// Ciphertexts all the way: the client's keys go over once, and its results are the oracle's but
/// for the stated error.
#[test]
fn encrypted_predictions_share_the_keys_of_a_connection() {
    let built = built_for(TrustLevel::Encrypted, "square");
    let model = Arc::new(ServerModel::new(&built).expect("weights fit the plan"));
    let running =
        Running::start(Server::bind("127.0.0.1:0", model, patient()).expect("a free port"));
    let options = ConnectOptions {
        trust: Some(TrustLevel::Encrypted),
        ..options()
    };
    let mut client =
        Client::connect(&running.address().to_string(), options).expect("a good client");
    let inputs = numbers(INPUTS * 5);
    let (integers, _) = oracle::quantise_input(built.plan.input(), &inputs).expect("numbers");
    let wanted = built.oracle(&integers, 5).expect("whole images");
    let unit = f64::from(-built.plan.result().fraction_bits).exp2() as f32;
    let mut sent = Vec::new();
    for _ in 0..2 {
        let found = client
            .predict(&inputs, 5, &mut |_| {})
            .expect("it is served");
        for (&found, &wanted) in found.outputs.iter().zip(&wanted) {
            let most = (built.tolerance() + 1) as f32 * unit;
            assert!(
                (found - wanted as f32 * unit).abs() <= most,
                "{found} {wanted}"
            );
        }
        sent.push(found.stats.bytes_sent);
    }
    assert!(sent[0] > sent[1], "{sent:?}");
}

/// The client has the class of each image, and no values: the server's share of the index is all
/// that it receives after the last layer's answer.
#[test]
fn classes_alone_are_opened() {
    let options = BuildOptions {
        trust: Some(TrustLevel::TwoParty),
        opening: Some(Opening::Class),
        ..BuildOptions::default()
    };
    let built = built_with("relu", options);
    let model = Arc::new(ServerModel::new(&built).expect("weights fit the plan"));
    let running =
        Running::start(Server::bind("127.0.0.1:0", model, patient()).expect("a free port"));
    let options = ConnectOptions {
        trust: Some(TrustLevel::TwoParty),
        ..self::options()
    };
    let mut client =
        Client::connect(&running.address().to_string(), options).expect("a good client");
    let inputs = numbers(INPUTS * 20);
    let (integers, _) = oracle::quantise_input(built.plan.input(), &inputs).expect("numbers");
    let wanted = built.oracle(&integers, 20).expect("whole images");
    for _ in 0..2 {
        let found = client.predict(&inputs, 20, &mut |_| {});
        let found = found.expect("it is served").outputs;
        let classes: Vec<i32> = found.iter().map(|class| *class as i32).collect();
        assert_eq!(classes, wanted);
    }
    assert!(wanted.iter().all(|class| (0..3).contains(class)));
    client.prepare(20, |_| {}).expect("it is prepared");
    let found = client.predict(&inputs, 20, &mut |_| {}).expect("served");
    assert_eq!(found.stats.prepared_batches, 1);
    assert_eq!(
        found.outputs,
        wanted.iter().map(|&class| class as f32).collect::<Vec<_>>()
    );
}

#[test]
fn bytes_are_counted_with_their_headers() {
    let running = Running::real(patient());
    let mut client = running.connect().expect("a good client");
    let inputs = numbers(INPUTS * 7);
    let stats = client
        .predict(&inputs, 7, &mut |_| {})
        .expect("it is served")
        .stats;
    let wanted = in_process(&model(), &inputs, 7).expect("the run succeeds");
    // Begin: 32 bytes of hash, one of count, one of runs and one for no preparation. Done: one of
    // count, one for no limit, one for going on and 32 of the transcript's digest.
    assert_eq!(stats.bytes_sent, wanted.bytes_up + 5 + 35);
    assert_eq!(stats.bytes_received, wanted.bytes_down + 5 + 35);
}

#[test]
fn clients_are_served_at_the_same_time() {
    let running = Running::mock(patient());
    let all_in = Barrier::new(4);
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let client = running.connect().expect("there are four places");
                all_in.wait();
                plays(client);
            });
        }
    });
}

#[test]
fn one_client_too_many_is_told_so() {
    let running = Running::mock(patient());
    let clients: Vec<Client> = (0..4)
        .map(|_| running.connect().expect("there are four places"))
        .collect();
    for _ in 0..20 {
        match running.connect().err() {
            Some(SessionError::Peer {
                code: ErrorCode::Busy,
                text,
            }) => assert!(text.contains("at most 4 clients")),
            // More refusals at once than the server bothers with.
            Some(SessionError::Frame(_)) => {}
            other => panic!("{other:?}"),
        }
    }
    running.wait_for_log("refused: the server is busy");
    drop(clients);
    running.serves_a_good_client(plays);
}

#[test]
fn a_known_plan_is_not_sent_again() {
    let running = Running::real(patient());
    let address = running.address().to_string();
    let plan = running.connect().expect("a good client").plan().clone();
    let options = ConnectOptions {
        plan: Some(plan.clone()),
        expected_plan_hash: Some(plan.hash()),
        ..options()
    };
    let client = Client::connect(&address, options).expect("a good client");
    assert!(client.plan().is_same(&plan));
    predicts(client);
    let other = ConnectOptions {
        plan: Some(mock_plan()),
        ..crate::common::options()
    };
    predicts(Client::connect(&address, other).expect("another plan is replaced"));
}

#[test]
fn who_names_no_trust_level_gives_nothing_away() {
    let running = Running::mock(patient());
    let address = running.address().to_string();
    // The default is `two-party`, which is not what this server serves.
    let error = Client::connect(&address, ConnectOptions::default()).err();
    let text = error.expect("another level is served").to_string();
    assert!(
        text.contains("two-party") && text.contains("client-aided"),
        "{text}"
    );
    let error = Client::connect(
        &address,
        ConnectOptions {
            trust: Some(TrustLevel::MultiKey),
            ..ConnectOptions::default()
        },
    );
    let error = error.err().expect("a level of a later version");
    let text = error.to_string();
    assert!(matches!(error, SessionError::Trust(_)));
    for level in TrustLevel::ALL {
        assert!(
            text.contains(level.name()) && text.contains(&level.reveals()),
            "{text}"
        );
    }
    for trust in TrustLevel::ALL
        .into_iter()
        .filter(|level| !level.is_available())
    {
        let options = ConnectOptions {
            trust: Some(trust),
            ..ConnectOptions::default()
        };
        assert!(matches!(
            Client::connect(&address, options).err(),
            Some(SessionError::Trust(_))
        ));
    }
}

#[test]
fn another_plan_than_expected_is_refused() {
    let running = Running::mock(patient());
    let options = ConnectOptions {
        expected_plan_hash: Some([0xab; 32]),
        ..options()
    };
    match Client::connect(&running.address().to_string(), options).err() {
        Some(SessionError::Peer {
            code: ErrorCode::Plan,
            text,
        }) => assert!(text.contains("abababab"), "{text}"),
        other => panic!("{other:?}"),
    }
    running.serves_a_good_client(plays);
}

#[test]
fn images_are_limited_by_client() {
    let running = Running::real(Limits {
        caps: caps(&[("max-clients", 4), ("max-images", 10)]),
        ..patient()
    });
    let mut client = running.connect().expect("a good client");
    assert_eq!(client.images_left(), Some(10));
    client
        .predict(&numbers(INPUTS * 7), 7, &mut |_| {})
        .expect("ten are granted");
    assert_eq!(client.images_left(), Some(3));
    let error = client
        .predict(&numbers(INPUTS * 4), 4, &mut |_| {})
        .expect_err("three are left");
    assert!(matches!(error, SessionError::Quota { asked: 4, left: 3 }));
    // The server's owner can see that.
    running.wait_for_log("the client wants more images than it is granted");
    assert!(matches!(
        client.predict(&numbers(INPUTS), 1, &mut |_| {}),
        Err(SessionError::Over)
    ));
    running.wait_for_log("connected, has 10 images left");
    // A new connection changes nothing, and a client that does not look at its limit is refused.
    let mut client = running.connect().expect("a good client");
    match client.run(&mut PingPong::client(4), 4, &mut |_| {}) {
        Err(SessionError::Peer {
            code: ErrorCode::Limit,
            text,
        }) => assert!(text.contains("3 left"), "{text}"),
        other => panic!("{other:?}"),
    }
    predicts(running.connect().expect("a good client"));
}

#[test]
fn a_cancelled_prediction_ends_the_session_and_says_so() {
    let running = Running::real(Limits {
        max_images_per_batch: Some(40),
        ..patient()
    });
    let cancel = Arc::new(AtomicBool::new(false));
    let options = ConnectOptions {
        cancel: cancel.clone(),
        ..options()
    };
    let mut client =
        Client::connect(&running.address().to_string(), options).expect("a good client");
    let inputs = numbers(INPUTS * 100);
    let mut seen = 0.0;
    let error = client.predict(&inputs, 100, &mut |now| {
        seen = now.done;
        cancel.store(seen > 40.0, Ordering::SeqCst);
    });
    assert!(matches!(error, Err(SessionError::Cancelled)), "{error:?}");
    assert!(seen < 80.0);
    let line = running.wait_for_log("left: 1 batch, 40 images");
    assert!(line.contains("the client's user cancelled"), "{line}");
    assert!(matches!(
        client.predict(&inputs, 100, &mut |_| {}),
        Err(SessionError::Over)
    ));
    running.serves_a_good_client(predicts);
}

#[test]
fn waiting_for_a_silent_server_can_be_cancelled() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let address = listener.local_addr().expect("it is bound").to_string();
    let options = options();
    let cancel = options.cancel.clone();
    thread::scope(|scope| {
        let waiting = scope.spawn(|| Client::connect(&address, options).err());
        let (_silent, _) = listener.accept().expect("the client comes");
        cancel.store(true, Ordering::SeqCst);
        let error = waiting.join().expect("no panic");
        assert!(matches!(error, Some(SessionError::Cancelled)), "{error:?}");
    });
}

#[test]
fn a_run_without_sockets_can_be_watched_and_cancelled() {
    let (model, inputs) = (model(), numbers(INPUTS * 7));
    let (run, mut last) = (AtomicBool::new(false), ImagesDone::default());
    let found = in_process_watched(&model, &inputs, 7, &run, &mut |now| last = now);
    let wanted = in_process(&model, &inputs, 7).expect("the run succeeds");
    assert_eq!(found.expect("nobody cancels").integers, wanted.integers);
    let end = ImagesDone {
        done: 7.0,
        total: 7,
    };
    assert_eq!(last, end);
    let cancel = AtomicBool::new(true);
    let found = in_process_watched(&model, &inputs, 7, &cancel, &mut |_| {});
    assert!(matches!(found, Err(SessionError::Cancelled)));
}

#[test]
fn failures_of_the_network_come_with_advice() {
    for error in [
        FrameError::Timeout,
        FrameError::Closed,
        FrameError::Io(std::io::ErrorKind::ConnectionReset.into()),
    ] {
        let advice = SessionError::Frame(error).advice();
        assert!(advice.is_some_and(|advice| advice.contains("running") || advice.contains("runs")));
    }
    let error = SessionError::Peer {
        code: ErrorCode::Timeout,
        text: String::new(),
    };
    assert!(
        error
            .advice()
            .is_some_and(|advice| advice.contains("--idle-timeout"))
    );
}

#[test]
fn wrong_inputs_leave_the_session_intact() {
    let running = Running::real(patient());
    let mut client = running.connect().expect("a good client");
    let mut predict = |inputs: &[f32], images| {
        client
            .predict(inputs, images, &mut |_| {})
            .expect_err("wrong inputs")
    };
    assert!(matches!(
        predict(&[], 0),
        SessionError::Batch { found: 0, .. }
    ));
    assert!(matches!(
        predict(&[0.0; 7], 1),
        SessionError::Inputs {
            found: 7,
            images: 1,
            elements: 6
        }
    ));
    assert!(matches!(
        predict(&[0.0; 6], usize::MAX),
        SessionError::Inputs { .. }
    ));
    assert!(matches!(
        predict(&[f32::NAN; 6], 1),
        SessionError::Engine(_)
    ));
    predicts(client);
}

#[test]
fn memory_is_shared_by_running_batches() {
    let model = model();
    let needed = cost::memory(model.plan(), 4).server;
    let limits = Limits {
        max_memory: Some(needed),
        idle_timeout: Duration::from_millis(600),
        ..patient()
    };
    let running =
        Running::start(Server::bind("127.0.0.1:0", model, limits).expect("the port is free"));
    // One client begins and dawdles: the next waits, and gives up when the first is still there.
    let mut first = Raw::begun(running.address(), 4);
    // Its seed arrives, so the batch has begun; sending keeps it from being idle.
    first.send_bytes(&raw_frame(32, 6, &[1; 32]));
    let mut second = running.connect().expect("there are places");
    let waited = second.predict(&numbers(INPUTS), 1, &mut |_| {});
    // Either the first was cut for idling just before, or the second ran out of patience.
    if let Err(error) = waited {
        assert!(
            matches!(&error, SessionError::Peer { code: ErrorCode::Busy, text } if text.contains("bytes")),
            "{error}"
        );
    }
    first.expect_error();
    running.serves_a_good_client(predicts);
}

#[test]
fn limits_that_let_nothing_through_are_refused() {
    for (limits, field) in [
        (
            Limits {
                max_images_per_batch: Some(0),
                ..limits()
            },
            "max_images_per_batch",
        ),
        (
            Limits {
                max_memory: Some(1),
                ..limits()
            },
            "max_memory",
        ),
        (
            Limits {
                idle_timeout: Duration::ZERO,
                ..limits()
            },
            "timeouts",
        ),
    ] {
        match Server::bind("127.0.0.1:0", model(), limits).err() {
            Some(SessionError::Limits { field: found, .. }) => assert_eq!(found, field),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn addresses_are_checked() {
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let address = taken.local_addr().expect("it is bound").to_string();
    assert!(matches!(
        Server::bind(&address, model(), limits()).err(),
        Some(SessionError::Bind { .. })
    ));
    assert!(matches!(
        Server::bind("nonsense", model(), limits()).err(),
        Some(SessionError::Address { .. })
    ));
    assert!(matches!(
        Client::connect("nonsense", options()).err(),
        Some(SessionError::Address { .. })
    ));
    drop(taken);
    let error = Client::connect(&address, options())
        .err()
        .expect("nobody listens");
    assert!(
        error
            .to_string()
            .contains("is `pronghorn serve` (or `multikey cloud`) running there"),
        "{error}"
    );
}

#[test]
fn any_interface_can_be_listened_on() {
    let channel = ServerChannel::InsecurePlainTcp;
    let server = Server::bind_over(":0", vec![model().into()], patient(), channel);
    let mut running = Running::start(server.expect("a port is free"));
    let address = format!("127.0.0.1:{}", running.address().port());
    predicts(Client::connect(&address, options()).expect("a good client"));
    running.stop();
}

#[test]
fn stopping_ends_sessions_and_says_so() {
    let mut running = Running::real(patient());
    let mut idle = running.connect().expect("a good client");
    let mut busy = Raw::begun(running.address(), 1);
    running.stop();
    let log = running.log();
    assert_eq!(lines_with(&log, ": the server stops"), 2, "{log:?}");
    assert_eq!(lines_with(&log, "ended by an error"), 0, "{log:?}");
    assert_eq!(busy.expect_error().code, ErrorCode::Stopping);
    match idle.predict(&numbers(INPUTS), 1, &mut |_| {}) {
        Err(SessionError::Peer {
            code: ErrorCode::Stopping,
            ..
        }) => {}
        other => panic!("{other:?}"),
    }
    assert!(matches!(
        idle.predict(&numbers(INPUTS), 1, &mut |_| {}),
        Err(SessionError::Over)
    ));
    assert!(matches!(
        running.connect().err(),
        Some(SessionError::Connect { .. })
    ));
}

fn lines_with(log: &[String], words: &str) -> usize {
    log.iter().filter(|line| line.contains(words)).count()
}

#[test]
fn a_server_can_stop_before_it_runs() {
    let server = Server::bind("127.0.0.1:0", model(), limits()).expect("a port is free");
    server.stop();
    server.run();
}
