//! Time limits and places: what a dead line, a silent client and a crowd cost the others.

use std::{
    net::TcpStream,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use crate::common::{
    relay::{Relay, Way},
    *,
};
use pronghorn_engine::ServerModel;
use pronghorn_plan::{TrustLevel, cost};
use pronghorn_session::{
    Client, ConnectOptions, ErrorCode, FrameError, Limits, Server, SessionError, frame::Kind,
    in_process,
};

/// In the middle of a message, of which the rate of the slowest peer alone would allow a minute.
#[test]
fn a_dead_line_is_given_up_after_the_time_limit() {
    let running = Running::mock(patient());
    let relay = Relay::new(running.address(), |passing| {
        let large = passing.way == Way::Down && passing.kind() == Kind::Data as u8;
        passing
            .bytes
            .truncate(if large { 1000 } else { usize::MAX });
        !large
    });
    let options = ConnectOptions {
        timeout: Duration::from_millis(500),
        ..options()
    };
    let mut client = Client::connect(&relay.address(), options).expect("the line is alive");
    let started = Instant::now();
    let error = client
        .run(&mut PingPong::client(FLOODS), FLOODS, &mut |_| {})
        .expect_err("the line is dead");
    assert!(
        matches!(error, SessionError::Frame(FrameError::Timeout)),
        "{error}"
    );
    // Last words take up to two seconds more.
    assert!(started.elapsed() < Duration::from_secs(5));
}

// Places.

fn is_busy(error: &SessionError) -> bool {
    matches!(
        error,
        SessionError::Peer {
            code: ErrorCode::Busy,
            ..
        }
    )
}

#[test]
fn silent_connections_take_no_places() {
    let running = Running::mock(patient());
    let _silent: Vec<Raw> = (0..40).map(|_| Raw::connect(running.address())).collect();
    let clients: Vec<Client> = (0..4)
        .map(|_| running.connect().expect("there are four places"))
        .collect();
    clients.into_iter().for_each(plays);
}

/// More than the server listens to at once: all are told, and it is over when their time is.
#[test]
fn a_crowd_of_silent_connections_is_told_and_goes() {
    let running = Running::mock(Limits {
        hello_timeout: Duration::from_secs(2),
        ..patient()
    });
    let _silent: Vec<Raw> = (0..64).map(|_| Raw::connect(running.address())).collect();
    for _ in 0..20 {
        let error = running.connect().err().expect("nobody is listened to");
        assert!(is_busy(&error), "{error}");
    }
    running.serves_a_good_client(plays);
}

#[test]
fn every_refusal_is_told() {
    let running = Running::mock(patient());
    let _clients: Vec<Client> = (0..4)
        .map(|_| running.connect().expect("there are four places"))
        .collect();
    thread::scope(|scope| {
        for _ in 0..50 {
            scope.spawn(|| {
                let error = running.connect().err().expect("no place is left");
                assert!(is_busy(&error), "{error}");
            });
        }
    });
}

#[test]
fn an_address_has_so_many_connections() {
    let running = Running::mock(Limits {
        caps: caps(&[("max-clients", 4), ("max-connections", 2)]),
        ..patient()
    });
    let first = running.connect().expect("it may have two");
    let _silent = Raw::connect(running.address());
    for _ in 0..100 {
        let mut third = Raw::connect(running.address());
        let error = third.expect_error();
        assert_eq!(error.code, ErrorCode::Busy);
        assert!(
            error.text.contains("2 connections of one address"),
            "{}",
            error.text
        );
    }
    drop(first);
    running.serves_a_good_client(plays);
}

/// It announces a batch that takes all memory, and says no more: others wait a moment, not as long
/// as it may be silent.
#[test]
fn a_silent_client_does_not_keep_the_memory() {
    let model = model();
    let limits = Limits {
        max_memory: Some(cost::memory(model.plan(), 4).server),
        contended_timeout: Duration::from_millis(300),
        ..patient()
    };
    let running =
        Running::start(Server::bind("127.0.0.1:0", model, limits).expect("the port is free"));
    let mut silent = Raw::begun(running.address(), 4);
    // Nobody waits: it may go on.
    thread::sleep(Duration::from_millis(600));
    let started = Instant::now();
    predicts(running.connect().expect("there are places"));
    assert!(started.elapsed() < Duration::from_secs(20));
    assert_eq!(silent.expect_error().code, ErrorCode::Timeout);
}

// Connections that rest.

/// A server that keeps connections for a fifth of a second, of a network with prepared batches.
fn impatient() -> (Arc<ServerModel>, Running) {
    let built = built_for(TrustLevel::TwoParty, "relu");
    let model = Arc::new(ServerModel::new(&built).expect("weights fit the plan"));
    let limits = Limits {
        keep_alive: Some(Duration::from_millis(200)),
        ..patient()
    };
    let server = Server::bind("127.0.0.1:0", model.clone(), limits).expect("a free port");
    (model, Running::start(server))
}

fn two_party() -> ConnectOptions {
    ConnectOptions {
        trust: Some(TrustLevel::TwoParty),
        ..options()
    }
}

/// Rests that are looked at, and rests so short that the server's word and the client's next batch
/// cross.
#[test]
fn a_client_that_rests_comes_back_by_itself() {
    let (model, running) = impatient();
    let address = running.address().to_string();
    let mut client = Client::connect(&address, two_party()).expect("a good client");
    let inputs = numbers(INPUTS * 2);
    let wanted = in_process(&model, &inputs, 2).expect("the run succeeds");
    for (rest, prepared) in [(300, 0), (900, 0), (300, 1), (900, 1)] {
        if prepared == 1 {
            client.prepare(2, |_| {}).expect("it is served");
        }
        running.wait_for_log(if rest == 300 { "client" } else { "rested" });
        thread::sleep(Duration::from_millis(rest));
        let found = client
            .predict(&inputs, 2, &mut |_| {})
            .expect("it connects again");
        assert_eq!(found.outputs, wanted.outputs(client.plan()));
        // What was prepared is kept, but for what was named on a connection that was already ended.
        let (used, lost) = (found.stats.prepared_batches, found.stats.lost_preparations);
        assert_eq!(used + lost, prepared);
        assert!(rest == 300 || lost == 0);
    }
    thread::sleep(Duration::from_millis(900));
    client.prepare(2, |_| {}).expect("it connects again");
    let log = running.log();
    assert!(
        log.iter()
            .filter(|line| line.contains(" connected"))
            .count()
            >= 5
    );
}

#[test]
fn a_rest_is_named_where_nobody_can_connect_again() {
    let (_, running) = impatient();
    let stream = TcpStream::connect(running.address()).expect("it listens");
    let mut client = Client::over(Box::new(stream), two_party()).expect("a good client");
    thread::sleep(Duration::from_millis(600));
    let error = client
        .predict(&numbers(INPUTS), 1, &mut |_| {})
        .expect_err("the connection is over");
    assert_eq!(error.code(), ErrorCode::Idle, "{error}");
}

/// Another model under the same address is not asked unasked.
#[test]
fn who_comes_back_insists_on_the_plan() {
    let (_, mut first) = impatient();
    let address = first.address().to_string();
    let mut client = Client::connect(&address, two_party()).expect("a good client");
    first.stop();
    let built = built_for(TrustLevel::TwoParty, "square");
    let model = Arc::new(ServerModel::new(&built).expect("weights fit the plan"));
    let _second =
        Running::start(Server::bind(&address, model, patient()).expect("the port is free"));
    thread::sleep(Duration::from_millis(600));
    let error = client
        .predict(&numbers(INPUTS), 1, &mut |_| {})
        .expect_err("it is another plan");
    assert!(
        matches!(error.code(), ErrorCode::Plan | ErrorCode::Stopping),
        "{error}"
    );
}
