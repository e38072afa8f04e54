//! Prepared batches over real sockets: used once, by whoever has the halves, across connections and
//! restarts.

use std::{
    fs,
    net::SocketAddr,
    path::{Path, PathBuf},
    process,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::Duration,
};

use crate::common::*;
use pronghorn_engine::{ClientModel, ClientPreparation, Connection, Machine, ServerModel, Want};
use pronghorn_plan::{CheckedPlan, TrustLevel, cost};
use pronghorn_session::{
    Client, ConnectOptions, ErrorCode, Limits, Prediction, Server, SessionError,
    frame::{Kind, MAX_HANDSHAKE},
    in_process,
    message::{self, Begin, Begun, ClientHello, Hello, Prepare, ServerHello},
    store::{Name, StoreError},
};

/// A directory of a test's own.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> Self {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let own = NEXT.fetch_add(1, Ordering::SeqCst);
        let path = std::env::temp_dir().join(format!("pronghorn-prepared-{}-{own}", process::id()));
        private_directory(&path);
        Self(path)
    }

    /// Prepared batches of a party.
    fn files(&self, party: &str) -> Vec<PathBuf> {
        let directory = self.0.join(party).join(plan().hash_hex());
        let files = fs::read_dir(directory).expect("it is there");
        let files = files.map(|file| file.expect("it is there").path());
        files
            .filter(|file| file.extension().is_some_and(|end| end == "prepared"))
            .collect()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn shares() -> Arc<ServerModel> {
    let built = built_for(TrustLevel::TwoParty, "relu");
    Arc::new(ServerModel::new(&built).expect("weights fit the plan"))
}

fn plan() -> CheckedPlan {
    shares().plan().clone()
}

/// With more places than any test here takes at once, those that are not free yet included.
fn serve(limits: Limits, store: Option<&Scratch>) -> Running {
    let limits = Limits {
        caps: caps(&[("max-clients", 32)]),
        ..limits
    };
    let server = Server::bind("127.0.0.1:0", shares(), limits).expect("a free port");
    Running::start(match store {
        Some(store) => server.with_store(&store.0).expect("it can be made"),
        None => server,
    })
}

fn ask(store: Option<&Scratch>) -> ConnectOptions {
    ConnectOptions {
        trust: Some(TrustLevel::TwoParty),
        store: store.map(|store| store.0.clone()),
        ..options()
    }
}

fn connect(running: &Running, store: Option<&Scratch>) -> Client {
    Client::connect(&running.address().to_string(), ask(store)).expect("a good client")
}

/// Predicts so many images, checks the results, and says how many batches used what was prepared,
/// and how many found nothing.
fn predicts_images(client: &mut Client, images: usize) -> (u64, u64) {
    let inputs = numbers(INPUTS * images);
    let found: Prediction = client
        .predict(&inputs, images, &mut |_| {})
        .expect("it is served");
    let wanted = in_process(&shares(), &inputs, images).expect("the run succeeds");
    assert_eq!(found.outputs, wanted.outputs(client.plan()));
    (found.stats.prepared_batches, found.stats.lost_preparations)
}

#[test]
fn prepared_batches_are_used_once() {
    for disk in [None, Some((Scratch::new(), Scratch::new()))] {
        let (ours, theirs) = disk.as_ref().map(|(a, b)| (a, b)).unzip();
        let running = serve(patient(), theirs);
        let mut client = connect(&running, ours);
        assert!(!client.is_prepared(3).expect("it can be read"));
        let cost = client.prepare(3, |_| {}).expect("it can be prepared");
        assert!(cost.bytes_received > 1000 && cost.batches == 1);
        assert!(client.is_prepared(3).expect("it can be read"));
        // Of another size.
        assert_eq!(predicts_images(&mut client, 2), (0, 0));
        assert_eq!(predicts_images(&mut client, 3), (1, 0));
        assert_eq!(predicts_images(&mut client, 3), (0, 0));
    }
}

/// Both parties end and start again, on another port, between each two uses.
#[test]
fn prepared_batches_outlive_processes() {
    let (ours, theirs) = (Scratch::new(), Scratch::new());
    let running = serve(patient(), Some(&theirs));
    let mut client = connect(&running, Some(&ours));
    for _ in 0..3 {
        client.prepare(3, |_| {}).expect("it can be prepared");
    }
    drop((client, running));
    for left in [2, 1, 0] {
        let running = serve(patient(), Some(&theirs));
        let mut client = connect(&running, Some(&ours));
        assert_eq!(predicts_images(&mut client, 3), (1, 0));
        assert_eq!(ours.files("client").len(), left);
        assert_eq!(theirs.files("server").len(), left);
    }
    let running = serve(patient(), Some(&theirs));
    assert_eq!(
        predicts_images(&mut connect(&running, Some(&ours)), 3),
        (0, 0)
    );
}

/// What one party has lost the other one drops: predictions go on without.
#[test]
fn halves_without_the_other_are_dropped() {
    let (ours, theirs) = (Scratch::new(), Scratch::new());
    let running = serve(patient(), Some(&theirs));
    let mut client = connect(&running, Some(&ours));
    client.prepare(3, |_| {}).expect("it can be prepared");
    client.prepare(3, |_| {}).expect("it can be prepared");
    for file in theirs.files("server") {
        fs::remove_file(file).expect("it is there");
    }
    assert_eq!(predicts_images(&mut client, 3), (0, 1));
    assert_eq!(predicts_images(&mut client, 3), (0, 1));
    assert_eq!(predicts_images(&mut client, 3), (0, 0));
    // Damaged on either side.
    let damage = |file: &Path| {
        let mut bytes = fs::read(file).expect("it is there");
        let place = bytes.len() - 40;
        bytes[place] ^= 1;
        fs::write(file, bytes).expect("there is room");
    };
    client.prepare(3, |_| {}).expect("it can be prepared");
    damage(&theirs.files("server")[0]);
    assert_eq!(predicts_images(&mut client, 3), (0, 1));
    running.wait_for_log("runs without its preparation");
    client.prepare(3, |_| {}).expect("it can be prepared");
    damage(&ours.files("client")[0]);
    assert_eq!(predicts_images(&mut client, 3), (0, 1));
    assert_eq!(predicts_images(&mut client, 3), (0, 0));
    // The server's half of what the client lost is still there, until it has to make room.
    assert_eq!(theirs.files("server").len(), 1);
    // A server without its store has no use for the client's halves, and the client does not name
    // them.
    client.prepare(3, |_| {}).expect("it can be prepared");
    drop((client, running));
    let running = serve(patient(), None);
    assert_eq!(
        predicts_images(&mut connect(&running, Some(&ours)), 3),
        (0, 0)
    );
    assert_eq!(ours.files("client").len(), 1);
}

#[test]
fn the_server_bounds_what_it_keeps() {
    let theirs = Scratch::new();
    let limits = Limits {
        max_prepared: 2,
        max_images_per_batch: Some(4),
        ..patient()
    };
    let running = serve(limits.clone(), Some(&theirs));
    let mut client = connect(&running, None);
    assert!(matches!(
        client.prepare(9, |_| {}),
        Err(SessionError::Prepared { found: 3, most: 2 })
    ));
    for _ in 0..3 {
        client.prepare(4, |_| {}).expect("it can be prepared");
    }
    assert_eq!(theirs.files("server").len(), 2);
    // The client knows, and keeps no more itself.
    assert_eq!(predicts_images(&mut client, 12), (2, 0));

    let running = serve(
        Limits {
            max_prepared: 0,
            ..limits.clone()
        },
        None,
    );
    let mut client = connect(&running, None);
    assert!(matches!(
        client.prepare(1, |_| {}),
        Err(SessionError::Prepared { found: 1, most: 0 })
    ));
    assert!(matches!(
        client.keep_prepared(1, None),
        Err(SessionError::Prepared { .. })
    ));
    assert_eq!(predicts_images(&mut client, 1), (0, 0));

    let running = serve(
        Limits {
            max_prepared_bytes: 100,
            ..limits.clone()
        },
        None,
    );
    let error = connect(&running, None)
        .prepare(1, |_| {})
        .expect_err("too much");
    let refused = matches!(
        error,
        SessionError::Peer {
            code: ErrorCode::Limit,
            ..
        }
    );
    assert!(refused, "{error}");

    // Room for a batch, and not for its preparation beside it.
    let memory = Limits {
        max_memory: Some(cost::memory(&plan(), 4).server + 1),
        ..limits
    };
    let running = serve(memory, None);
    let error = connect(&running, None)
        .prepare(4, |_| {})
        .expect_err("too much");
    let refused = matches!(
        error,
        SessionError::Peer {
            code: ErrorCode::Busy,
            ..
        }
    );
    assert!(refused, "{error}");
}

#[test]
fn batches_are_kept_prepared_in_the_background() {
    for disk in [None, Some((Scratch::new(), Scratch::new()))] {
        let (ours, theirs) = disk.as_ref().map(|(a, b)| (a, b)).unzip();
        let mut running = serve(patient(), theirs);
        let mut client = connect(&running, ours);
        let full = |client: &Client| {
            let refill = client.refill().expect("it was asked for");
            refill.wait(Duration::from_secs(100)).expect("it succeeds")
        };
        client.keep_prepared(2, Some(3)).expect("it can be kept");
        assert!(full(&client) && client.is_prepared(3).expect("it can be read"));
        for _ in 0..3 {
            assert_eq!(predicts_images(&mut client, 3), (1, 0));
            assert!(full(&client));
        }
        // Another size takes over.
        assert_eq!(predicts_images(&mut client, 2), (0, 0));
        assert!(full(&client) && client.is_prepared(2).expect("it can be read"));
        assert_eq!(predicts_images(&mut client, 2), (1, 0));
        assert!(full(&client));
        // The server is gone: what is prepared is of no use, and the reason is told.
        running.stop();
        client
            .predict(&numbers(INPUTS * 2), 2, &mut |_| {})
            .expect_err("nobody is there");
        client.keep_prepared(5, Some(4)).expect("it can be tried");
        let refill = client.refill().expect("it was asked for");
        assert!(refill.wait(Duration::from_secs(100)).is_err());
        // Who waits again is not told that all is well, nor kept waiting.
        assert!(refill.wait(Duration::from_secs(100)).is_err());
        client.keep_prepared(0, None).expect("it ends");
        assert!(client.refill().is_none());
    }
}

/// A preparation that is asked for and not run takes nothing that the server does not know of.
#[test]
fn predictions_go_on_without_what_was_to_be_prepared() {
    let running = serve(patient(), None);
    let mut client = connect(&running, None);
    for images in [3, 2] {
        assert_eq!(predicts_images(&mut client, images), (0, 0));
        client.keep_prepared(1, None).expect("it can be kept");
        client.keep_prepared(0, None).expect("it ends");
        assert_eq!(predicts_images(&mut client, images), (0, 0));
    }
}

/// In the middle of its work.
#[test]
fn refilling_ends_with_its_client() {
    let running = serve(patient(), None);
    let mut client = connect(&running, None);
    let most = client.max_batch();
    client
        .keep_prepared(16, Some(most))
        .expect("it can be kept");
    running.wait_for_log("client 2");
    drop(client);
    running.wait_for_log("client 2 (127.0.0.1");
    running.wait_for_log("left:");
}

#[test]
fn what_has_no_preparation_is_not_kept() {
    let running = Running::real(patient());
    let mut client = running.connect().expect("a good client");
    assert!(matches!(
        client.keep_prepared(1, None),
        Err(SessionError::Engine(_))
    ));
    predicts(client);
}

// Hostile clients.

/// A greeted connection, and the server's hello.
fn greeted(address: SocketAddr) -> (Raw, ServerHello) {
    let mut raw = Raw::connect(address);
    let hello = ClientHello {
        trust: TrustLevel::TwoParty,
        expected_plan_hash: None,
        model: None,
    };
    raw.send(Kind::ClientHello, &hello.encode());
    let hello = receive(&mut raw, Kind::ServerHello);
    (raw, ServerHello::decode(&hello).expect("it is one"))
}

fn receive(raw: &mut Raw, kind: Kind) -> Vec<u8> {
    let accept = [(kind, 1 << 30)];
    let (found, payload) = raw.receive(&accept).expect("a frame comes");
    assert_eq!(found, kind, "{}", String::from_utf8_lossy(&payload));
    payload
}

/// Whether the server uses the preparation of this name for a batch of `batch` images.
fn begins(raw: &mut Raw, batch: u32, name: Name) -> bool {
    let begin = Begin {
        plan_hash: plan().hash(),
        batch,
        runs: raw.2,
        prepared: Some(name),
    };
    raw.2 += 1;
    raw.send(Kind::Begin, &message::encode(&begin));
    let begun = receive(raw, Kind::Begun);
    let begun: Begun = message::decode(Kind::Begun, &begun).expect("it is one");
    begun.prepared
}

fn asks_to_prepare(raw: &mut Raw, name: Name) {
    let prepare = Prepare {
        plan_hash: plan().hash(),
        batch: 3,
        runs: raw.2,
        name,
    };
    raw.2 += 1;
    raw.send(Kind::Prepare, &message::encode(&prepare));
}

/// Prepares a batch of 3; from message `tampered` on, what the client sends is changed. Whether the
/// server went along.
fn prepares(raw: &mut Raw, keys: &Connection, name: Name, tampered: usize) -> bool {
    asks_to_prepare(raw, name);
    let model = Arc::new(ClientModel::new(plan()).expect("the plan can be followed"));
    let mut machine = ClientPreparation::new(&model, 3, keys).expect("the batch fits");
    let mut sent = 0;
    loop {
        match machine.want() {
            Want::Send => {
                let mut message = Vec::new();
                machine.send(&mut message).expect("it is its turn");
                if sent >= tampered {
                    let middle = message.len() / 2;
                    message[middle] ^= 0x40;
                }
                sent += 1;
                raw.send(Kind::Data, &message);
            }
            Want::Receive => {
                let accept = [(Kind::Data, machine.max_incoming())];
                match raw.receive(&accept) {
                    Ok((Kind::Data, payload)) => {
                        machine.receive(&payload).expect("an honest server")
                    }
                    _ => return false,
                }
            }
            Want::Done => break,
        }
    }
    raw.send_done(3);
    matches!(
        raw.receive(&[(Kind::Done, MAX_HANDSHAKE)]),
        Ok((Kind::Done, _))
    )
}

const NEVER: usize = usize::MAX;

/// The same name on one connection after the other, and on two at once: one of them gets it.
#[test]
fn a_name_is_good_for_one_batch() {
    for disk in [None, Some(Scratch::new())] {
        let running = serve(patient(), disk.as_ref());
        let address = running.address();
        let (first, second) = (Name([1; 16]), Name([2; 16]));
        let (mut raw, hello) = greeted(address);
        assert_eq!(hello.prepared_batches, 16);
        let keys = Connection::default();
        assert!(prepares(&mut raw, &keys, first, NEVER));
        assert!(prepares(&mut raw, &keys, second, NEVER));
        assert!(begins(&mut raw, 3, first));
        let (mut other, _) = greeted(address);
        assert!(!begins(&mut other, 3, first));
        drop((raw, other));
        let used: usize = std::thread::scope(|scope| {
            let attempts: Vec<_> = (0..3)
                .map(|_| scope.spawn(|| usize::from(begins(&mut greeted(address).0, 3, second))))
                .collect();
            attempts
                .into_iter()
                .map(|attempt| attempt.join().expect("no panic"))
                .sum()
        });
        assert_eq!(used, 1);
        running.wait_for_log("client 5");
        predicts_images(&mut patiently(&running), 3);
    }
}

/// A good client, once a place is free.
fn patiently(running: &Running) -> Client {
    for _ in 0..1000 {
        match Client::connect(&running.address().to_string(), ask(None)) {
            Ok(client) => return client,
            Err(_) => std::thread::sleep(Duration::from_millis(10)),
        }
    }
    panic!("no place became free");
}

/// Names nobody gave, a batch of another size, and names that were given before.
#[test]
fn other_names_are_of_no_use() {
    for disk in [None, Some(Scratch::new())] {
        let running = serve(patient(), disk.as_ref());
        let address = running.address();
        for byte in [0, 0xff, b'/', b'.'] {
            assert!(!begins(&mut greeted(address).0, 3, Name([byte; 16])));
        }
        let keys = Connection::default();
        let (mut raw, _) = greeted(address);
        assert!(prepares(&mut raw, &keys, Name([1; 16]), NEVER));
        // Of 3 images, named for 2: it is lost.
        let mut other = patiently_greeted(address);
        assert!(!begins(&mut other, 2, Name([1; 16])));
        assert!(prepares(&mut raw, &keys, Name([3; 16]), NEVER));
        asks_to_prepare(&mut raw, Name([3; 16]));
        let error = raw.expect_error();
        assert_eq!(error.code, ErrorCode::Protocol);
        assert!(error.text.contains("was made before"), "{}", error.text);
    }
}

fn patiently_greeted(address: SocketAddr) -> Raw {
    greeted(address).0
}

/// Who fails a check of the oblivious transfers has nothing left of what was prepared with them,
/// and others lose nothing.
#[test]
fn a_failed_check_destroys_what_was_prepared() {
    for disk in [None, Some(Scratch::new())] {
        let running = serve(patient(), disk.as_ref());
        let address = running.address();
        let mut good = connect(&running, None);
        good.prepare(3, |_| {}).expect("it can be prepared");
        let (mut raw, _) = greeted(address);
        let keys = Connection::default();
        assert!(prepares(&mut raw, &keys, Name([1; 16]), NEVER));
        assert!(prepares(&mut raw, &keys, Name([2; 16]), NEVER));
        // The set-up is made: the first message is of OTs.
        assert!(!prepares(&mut raw, &keys, Name([3; 16]), 0));
        running.wait_for_log("ended by an error");
        if let Some(disk) = &disk {
            assert_eq!(disk.files("server").len(), 1);
        }
        for name in [1, 2, 3] {
            assert!(!begins(&mut greeted(address).0, 3, Name([name; 16])));
        }
        assert_eq!(predicts_images(&mut good, 3), (1, 0));
    }
}

/// A client that ends while batches are prepared in the background has made no error.
#[test]
fn the_end_of_a_background_connection_is_no_error() {
    let running = serve(patient(), None);
    for pause in [0, 1, 3, 10, 30] {
        let mut client = connect(&running, None);
        client.keep_prepared(16, Some(40)).expect("it can be kept");
        thread::sleep(Duration::from_millis(pause));
    }
    let lines = |log: &[String], words: &str| {
        let found = log.iter().filter(|line| line.contains(words));
        found.count()
    };
    let mut log = running.log();
    while lines(&log, " connected") > lines(&log, " left:") {
        thread::sleep(Duration::from_millis(10));
        log = running.log();
    }
    assert_eq!(lines(&log, "ended by an error"), 0, "{log:?}");
}

#[test]
fn a_client_without_room_says_so() {
    let running = serve(patient(), None);
    let ours = Scratch::new();
    let address = running.address().to_string();
    let options = ConnectOptions {
        max_store: 10,
        ..ask(Some(&ours))
    };
    let mut client = Client::connect(&address, options).expect("a good client");
    let error = client.prepare(3, |_| {}).expect_err("no room");
    assert!(
        matches!(
            error,
            SessionError::Store(StoreError::TooLarge { allowed: 10, .. })
        ),
        "{error}"
    );
    // The session goes on.
    assert_eq!(predicts_images(&mut client, 3), (0, 0));
    fs::write(ours.0.join("file"), "").expect("there is room");
    let options = ConnectOptions {
        store: Some(ours.0.join("file")),
        ..ask(None)
    };
    assert!(matches!(
        Client::connect(&address, options),
        Err(SessionError::Store(StoreError::Disk { .. }))
    ));
}
