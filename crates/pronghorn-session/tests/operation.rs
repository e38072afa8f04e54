//! A server as its operator sees it: places in turn, an end that cuts no batch, counters, entries of
//! the log.

use std::{
    net::TcpStream,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    thread,
    time::Duration,
};

use crate::common::*;
use pronghorn_engine::ServerModel;
use pronghorn_plan::TrustLevel;
use pronghorn_session::{
    Client, ConnectOptions, Entry, ErrorCode, Level, Limits, Phase, Server, SessionError, Value,
    frame::Kind, message::Hello,
};

/// One place, for which others wait.
fn one_place() -> Limits {
    Limits {
        caps: caps(&[("max-clients", 1)]),
        max_waiting: 9,
        queue_timeout: Duration::from_secs(100),
        contended_timeout: Duration::from_secs(100),
        turn: Duration::from_millis(1),
        ..patient()
    }
}

fn predicts_once(client: &mut Client) {
    let inputs = numbers(INPUTS);
    let found = client.predict(&inputs, 1, &mut |_| {});
    found.expect("it is served in its turn");
}

fn code(error: &SessionError) -> ErrorCode {
    match error {
        SessionError::Peer { code, .. } => *code,
        other => panic!("{other}"),
    }
}

/// Waits until a server's counters are so.
fn wait_until(running: &Running, so: impl Fn(&pronghorn_session::Metrics) -> bool) {
    for _ in 0..2000 {
        if so(&running.server().metrics()) {
            return;
        }
        thread::sleep(Duration::from_millis(10));
    }
    panic!("{:?}", running.server().metrics());
}

/// A client that never rests does not keep others out.
#[test]
fn clients_have_places_in_turn() {
    let running = Running::real(one_place());
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let busy = scope.spawn(|| {
            let mut client = running.connect().expect("a place is free");
            let mut predictions = 0;
            while !done.load(Ordering::SeqCst) {
                predicts_once(&mut client);
                predictions += 1;
            }
            predictions
        });
        let others: Vec<_> = (0..3)
            .map(|_| {
                scope.spawn(|| {
                    let mut client = running.connect().expect("it waits for a place");
                    (0..3).for_each(|_| predicts_once(&mut client));
                })
            })
            .collect();
        for other in others {
            other.join().expect("each is served");
        }
        done.store(true, Ordering::SeqCst);
        assert!(busy.join().expect("it is served to its end") > 0);
    });
    assert!(
        running
            .log()
            .iter()
            .any(|line| line.contains("turn is over"))
    );
}

/// A client hears with its last batch that it has to connect again, and takes no preparation for a
/// connection that is over.
#[test]
fn turns_cost_no_preparation() {
    let model = ServerModel::new(&built_for(TrustLevel::TwoParty, "relu")).expect("weights fit");
    let server = Server::bind("127.0.0.1:0", Arc::new(model), one_place()).expect("a free port");
    let running = Running::start(server);
    let connect = || {
        let options = ConnectOptions {
            trust: Some(TrustLevel::TwoParty),
            ..options()
        };
        Client::connect(&running.address().to_string(), options).expect("it waits for a place")
    };
    thread::scope(|scope| {
        let clients: Vec<_> = (0..3)
            .map(|_| {
                scope.spawn(|| {
                    let mut client = connect();
                    for _ in 0..4 {
                        client.prepare(1, |_| {}).expect("it can be prepared");
                        let found = client.predict(&numbers(INPUTS), 1, &mut |_| {});
                        let stats = found.expect("it is served").stats;
                        assert_eq!((stats.prepared_batches, stats.lost_preparations), (1, 0));
                    }
                })
            })
            .collect();
        for client in clients {
            client.join().expect("each is served");
        }
    });
    assert!(
        running
            .log()
            .iter()
            .any(|line| line.contains("turn is over"))
    );
}

#[test]
fn a_client_with_nothing_to_ask_leaves_its_place_to_others() {
    let limits = Limits {
        contended_timeout: Duration::from_millis(50),
        turn: Duration::from_secs(100),
        ..one_place()
    };
    let running = Running::real(limits);
    let mut silent = running.connect().expect("a place is free");
    predicts(running.connect().expect("it gets the place"));
    predicts_once(&mut silent);
}

#[test]
fn so_many_wait_and_no_more() {
    let limits = Limits {
        max_waiting: 1,
        turn: Duration::from_secs(100),
        ..one_place()
    };
    let running = Running::real(limits);
    let first = running.connect().expect("a place is free");
    thread::scope(|scope| {
        let second = scope.spawn(|| running.connect());
        wait_until(&running, |found| found.queued == 1);
        let third = running.connect().err().expect("two would wait");
        assert_eq!(code(&third), ErrorCode::Busy);
        drop(first);
        predicts(second.join().expect("no panic").expect("the place is free"));
    });
}

#[test]
fn who_waits_too_long_is_refused() {
    let limits = Limits {
        queue_timeout: Duration::from_millis(20),
        ..one_place()
    };
    let running = Running::real(limits);
    let _first = running.connect().expect("a place is free");
    let second = running.connect().err().expect("the place is not");
    assert_eq!(code(&second), ErrorCode::Busy);
    let found = running.server().metrics();
    assert_eq!(found.failures, [("busy", 1)]);
}

#[test]
fn draining_cuts_no_batch() {
    let mut running = Running::mock(patient());
    let mut resting = running.connect().expect("a place is free");
    let mut client = running.connect().expect("a place is free");
    let (begun, has_begun) = mpsc::channel();
    let (go_on, may_go_on) = mpsc::channel();
    thread::scope(|scope| {
        let batch = scope.spawn(move || {
            let mut first = true;
            let machine = &mut PingPong::client(5);
            client.run(machine, 5, &mut |now| {
                // The server has answered: it has begun too.
                if now.done > 3 && std::mem::take(&mut first) {
                    begun.send(()).expect("the test waits");
                    let patience = Duration::from_secs(30);
                    may_go_on.recv_timeout(patience).expect("the test goes on");
                }
            })
        });
        has_begun.recv().expect("the batch begins");
        assert!(running.server().is_ready());
        assert!(!running.server().drain(Duration::from_millis(20)));
        assert!(!running.server().metrics().ready);
        let refused = running.connect().err().expect("it stops");
        assert_eq!(code(&refused), ErrorCode::Stopping);
        let ended = resting.run(&mut PingPong::client(5), 5, &mut |_| {});
        assert_eq!(ended.expect_err("it stops").code(), ErrorCode::Stopping);
        go_on.send(()).expect("the batch waits");
        let done = batch.join().expect("no panic");
        done.expect("a batch that runs comes to its end");
    });
    assert!(running.server().drain(Duration::from_secs(100)));
    running.stop();
}

#[test]
fn what_is_done_is_counted() {
    let running = Running::real(patient());
    let start = running.server().metrics();
    assert_eq!((start.places, start.places_used), (4, 0));
    let mut client = running.connect().expect("a place is free");
    let inputs = numbers(INPUTS * 3);
    let found = client
        .predict(&inputs, 3, &mut |_| {})
        .expect("it is served");
    predicts_once(&mut client);
    wait_until(&running, |found| found.models[0].batches == 2);
    let now = running.server().metrics();
    assert_eq!((now.places_used, now.connections), (1, 1));
    let model = &now.models[0];
    assert_eq!((model.sessions, model.admitted), (1, 1));
    assert_eq!((model.images, model.prepared), (4, 0));
    assert!(model.predicted_seconds > 0.0);
    let [opening, waiting, preparing, predicting] = model.seconds;
    assert_eq!(
        (opening.0, waiting.0, preparing, predicting.0),
        (
            Phase::Opening,
            Phase::Waiting,
            (Phase::Preparing, 0.0),
            Phase::Predicting
        )
    );
    assert!(opening.1 > 0.0 && predicting.1 > 0.0);
    drop(client);
    wait_until(&running, |found| {
        found.places_used == 0 && found.connections == 0
    });
    let end = running.server().metrics();
    let model = &end.models[0];
    assert_eq!((model.sessions, model.admitted), (0, 1));
    let [opening, waiting, preparing, predicting] = model.bytes_received.map(|(_, bytes)| bytes);
    assert_eq!((waiting, preparing), (0, 0));
    assert!(opening > 0 && predicting >= found.stats.bytes_sent);
    let [opening, waiting, preparing, predicting] = model.bytes_sent.map(|(_, bytes)| bytes);
    assert_eq!((waiting, preparing), (0, 0));
    // The plan comes before the batch.
    let plan = crate::common::model().plan().to_bytes().len() as u64;
    assert!(opening > plan, "{opening} bytes with a plan of {plan}");
    assert!(predicting >= found.stats.bytes_received);
    assert_eq!((end.memory_used, end.failures), (0, vec![]));
}

/// The entries of a server's log, which has so many sessions.
fn logged(sessions: usize, use_it: impl FnOnce(&Arc<Server>)) -> Vec<Entry> {
    let entries = Arc::new(Mutex::new(Vec::new()));
    let log = entries.clone();
    let server = Server::bind("127.0.0.1:0", model(), patient()).expect("a free port");
    let server = server.with_log(move |entry| log.lock().unwrap().push(entry.clone()));
    let server = Arc::new(server);
    let running = thread::spawn({
        let server = server.clone();
        move || server.run()
    });
    use_it(&server);
    // What the server ends by draining has another entry.
    let left = || {
        let entries = entries.lock().unwrap();
        let left = entries.iter().filter(|entry| entry.event == "left");
        left.count()
    };
    while left() < sessions {
        thread::sleep(Duration::from_millis(5));
    }
    assert!(server.drain(Duration::from_secs(100)));
    server.stop();
    running.join().expect("the accept loop never panics");
    entries.lock().unwrap().clone()
}

#[test]
fn entries_have_parts_for_programs() {
    let entries = logged(1, |server| {
        let client = Client::connect(&server.local_addr().to_string(), options());
        predicts(client.expect("it is served"));
    });
    assert_eq!(entries[0].event, "connected");
    let left = entries.iter().find(|entry| entry.event == "left");
    let left = left.expect("the client has left");
    let part = |name| left.fields.iter().find(|(known, _)| *known == name);
    assert_eq!(left.level, Level::Info);
    assert_eq!(part("images"), Some(&("images", Value::Number(3))));
    assert_eq!(
        part("model"),
        Some(&("model", Value::Text("model@1".into())))
    );
    assert_eq!(part("reason"), None);
}

/// A probe of the port by a load balancer, and a client that misbehaves.
#[test]
fn probes_are_no_errors() {
    let entries = logged(2, |server| {
        drop(TcpStream::connect(server.local_addr()).expect("it listens"));
        let mut raw = Raw::connect(server.local_addr());
        raw.send(Kind::ClientHello, &hello().encode()[..9]);
        raw.expect_error();
    });
    let levels: Vec<_> = entries
        .iter()
        .filter(|entry| entry.event == "left")
        .map(|entry| entry.level)
        .collect();
    let mut sorted = levels.clone();
    sorted.sort();
    assert_eq!(sorted, [Level::Debug, Level::Warning]);
}

/// A client that breaks off in the middle, or whose batch fails, has used what went.
#[test]
fn bytes_of_a_batch_that_breaks_off_are_counted() {
    let caps = caps(&[("max-clients", 4), ("max-daily-bytes-per-client", 4000)]);
    let running = Running::mock(Limits { caps, ..patient() });
    let gone = |sessions| {
        for _ in 0..2000 {
            let log = running.log();
            if log.iter().filter(|line| line.contains(" left: ")).count() >= sessions {
                return;
            }
            thread::sleep(Duration::from_millis(10));
        }
        panic!("{:?}", running.log());
    };
    let breaks_off = || {
        let mut raw = Raw::begun(running.address(), 5);
        for done in 0..3 {
            raw.send(Kind::Data, &vec![done as u8; 1 + done * 1000]);
        }
        raw
    };
    // One that says no more than its hello and the batch's beginning uses some hundred bytes.
    drop(Raw::begun(running.address(), 5));
    gone(1);
    // 3,003 bytes and the hellos are within the limit. With the server's answers they are not.
    let mut raw = breaks_off();
    raw.receive(&[(Kind::Data, 1 << 20)])
        .expect("the game goes on");
    drop(raw);
    gone(2);
    let error = Raw::begun(running.address(), 5).expect_error();
    assert_eq!(error.code, ErrorCode::Limit);
    assert!(error.text.contains("max-daily-bytes"), "{}", error.text);
}
