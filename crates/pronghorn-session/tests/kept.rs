//! What is exchanged once, over real sockets: published polynomials and keys, which later
//! connections do not send again.

use std::{
    fs,
    path::PathBuf,
    process,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use crate::common::*;
use pronghorn_engine::ServerModel;
use pronghorn_plan::{Built, Engine, TrustLevel, cost};
use pronghorn_session::{Client, ConnectOptions, Limits, Server, SessionError, in_process};

/// A directory of a test's own.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("pronghorn-kept-{name}-{}", process::id()));
        private_directory(&path);
        Self(path)
    }

    /// The file whose name begins so.
    fn file(&self, start: &str) -> Option<PathBuf> {
        let files = fs::read_dir(&self.0).expect("it is there");
        let mut names = files.map(|file| file.expect("it is there").path());
        names.find(|path| {
            let name = path.file_name().and_then(|name| name.to_str());
            name.is_some_and(|name| name.starts_with(start) && !name.contains('.'))
        })
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

struct Case {
    built: Built,
    ours: Scratch,
    theirs: Scratch,
}

impl Case {
    fn new(engine: Engine, name: &str) -> Self {
        Self {
            built: built_in(TrustLevel::TwoParty, "relu", Some(engine)),
            ours: Scratch::new(&format!("{name}-client")),
            theirs: Scratch::new(&format!("{name}-server")),
        }
    }

    /// A new process of the server, as far as that can be told.
    fn serve(&self, built: &Built) -> Running {
        self.serve_with(built, patient())
    }

    fn serve_with(&self, built: &Built, limits: Limits) -> Running {
        let model = Arc::new(ServerModel::new(built).expect("weights fit the plan"));
        let server = Server::bind("127.0.0.1:0", model, limits).expect("a free port");
        Running::start(server.with_store(&self.theirs.0).expect("it can be made"))
    }

    /// Connects and predicts; the bytes sent and received. What a set-up of oblivious transfer
    /// takes is among them, always the same.
    fn predicts(&self, running: &Running) -> [u64; 2] {
        let options = ConnectOptions {
            trust: Some(TrustLevel::TwoParty),
            store: Some(self.ours.0.clone()),
            ..options()
        };
        let mut client =
            Client::connect(&running.address().to_string(), options).expect("a good client");
        let inputs = numbers(INPUTS * 2);
        let found = client
            .predict(&inputs, 2, &mut |_| {})
            .expect("it is served");
        let model = Arc::new(ServerModel::new(&self.built).expect("weights fit the plan"));
        let wanted = in_process(&model, &inputs, 2).expect("the run succeeds");
        assert_eq!(found.outputs, wanted.outputs(client.plan()));
        [found.stats.bytes_sent, found.stats.bytes_received]
    }
}

#[test]
fn polynomials_are_published_once() {
    let case = Case::new(Engine::Coefficient, "published");
    let published = cost::publication(&case.built.plan);
    let running = case.serve(&case.built);
    let first = case.predicts(&running);
    let second = case.predicts(&running);
    assert!(published > 0 && first[1] > second[1] + published);
    // Another process of the server, with its store.
    drop(running);
    let running = case.serve(&case.built);
    assert_eq!(case.predicts(&running), second);
    // What is damaged comes again.
    let file = case.ours.file("publication-").expect("it was kept");
    let mut bytes = fs::read(&file).expect("it is there");
    let place = bytes.len() / 2;
    bytes[place] ^= 1;
    fs::write(&file, bytes).expect("there is room");
    assert_eq!(case.predicts(&running), first);
    assert_eq!(case.predicts(&running), second);
    // A server that has lost its secret publishes anew, and the client sees that.
    drop(running);
    fs::remove_file(case.theirs.0.join("publication.secret")).expect("it is there");
    let running = case.serve(&case.built);
    assert_eq!(case.predicts(&running), first);
    assert_eq!(case.predicts(&running), second);
}

/// A store that takes nothing costs no results.
#[test]
fn results_outlive_the_store() {
    let case = Case::new(Engine::Coefficient, "lost-store");
    let running = case.serve(&case.built);
    let options = ConnectOptions {
        trust: Some(TrustLevel::TwoParty),
        store: Some(case.ours.0.clone()),
        ..options()
    };
    let mut client =
        Client::connect(&running.address().to_string(), options).expect("a good client");
    let inputs = numbers(INPUTS);
    let hash = client.plan().hash().map(|byte| format!("{byte:02x}"));
    let in_the_way = case.ours.0.join(format!("publication-{}", hash.concat()));
    let mut block = |_| {
        let _ = fs::create_dir(&in_the_way);
    };
    let found = client
        .predict(&inputs, 1, &mut block)
        .expect("good results");
    assert!(found.unkept.is_some_and(|why| why.contains("publication")));
    // The connection goes on, and a store that has room again is used.
    fs::remove_dir(&in_the_way).expect("it is there");
    let again = client
        .predict(&inputs, 1, &mut |_| {})
        .expect("good results");
    assert_eq!((again.outputs, again.unkept), (found.outputs, None));
    assert!(case.ours.file("publication-").is_some());
}

#[test]
fn keys_for_slots_are_sent_once() {
    let case = Case::new(Engine::Slot, "keys");
    let keys = case.built.plan.slot_key_bytes();
    let running = case.serve(&case.built);
    let first = case.predicts(&running);
    let second = case.predicts(&running);
    assert!(keys > 0 && first[0] >= second[0] + keys);
    // A server that starts anew has forgotten them.
    drop(running);
    let running = case.serve(&case.built);
    assert_eq!(case.predicts(&running), first);
    assert_eq!(case.predicts(&running), second);
    // A client that has lost its seed has other keys.
    fs::remove_file(case.ours.file("slots-").expect("it was kept")).expect("it is there");
    assert_eq!(case.predicts(&running), first);
}

/// Two connections with one secret: what one has used, the other has no more, within a prediction
/// of many batches too. Both sides then begin with new keys.
#[test]
fn uses_add_up_within_a_prediction() {
    let case = Case::new(Engine::Slot, "added-uses");
    let keys = case.built.plan.slot_key_bytes();
    let limits = Limits {
        max_images_per_batch: Some(1),
        ..patient()
    };
    let running = case.serve_with(&case.built, limits);
    let connect = || {
        let options = ConnectOptions {
            trust: Some(TrustLevel::TwoParty),
            store: Some(case.ours.0.clone()),
            ..options()
        };
        Client::connect(&running.address().to_string(), options).expect("a good client")
    };
    let sent = |client: &mut Client, images: usize| {
        let found = client.predict(&numbers(INPUTS * images), images, &mut |_| {});
        let stats = found.expect("it is served").stats;
        assert_eq!(stats.batches, images as u64);
        stats.bytes_sent
    };
    let [mut one, mut other] = [connect(), connect()];
    let new = sent(&mut one, 1);
    let old = sent(&mut one, 1);
    assert!(new >= old + keys);
    // 64 batches in all: 2 so far, then 60.
    let second = sent(&mut other, 60);
    assert!(second < 59 * old + new, "{second}, {new}, {old}, {keys}");
    // By its own count the first connection has 62 left. By both 2 are.
    let third = sent(&mut one, 3);
    assert!(third >= 3 * old + keys, "{third}, {old}, {keys}");
    assert!(sent(&mut one, 1) < old + keys);
}

/// A secret is in the store between good predictions alone: one that does not end well ends it.
#[test]
fn a_failed_prediction_ends_the_secret() {
    let case = Case::new(Engine::Slot, "ended-secret");
    let running = case.serve(&case.built);
    let first = case.predicts(&running);
    let secret = || {
        case.ours
            .file("slots-")
            .map(|path| fs::read(path).expect("it is there"))
    };
    let before = secret().expect("it was kept");
    assert_ne!(case.predicts(&running), first);
    let after = secret().expect("it was kept");
    // The same seed, with a batch less.
    assert!(before != after && before[..74 + 32] == after[..74 + 32]);
    let cancel = Arc::new(AtomicBool::new(false));
    let options = ConnectOptions {
        trust: Some(TrustLevel::TwoParty),
        store: Some(case.ours.0.clone()),
        cancel: cancel.clone(),
        ..options()
    };
    let mut client =
        Client::connect(&running.address().to_string(), options).expect("a good client");
    let mut seen = Vec::new();
    let outcome = client.predict(&numbers(INPUTS * 2), 2, &mut |_| {
        seen.push(secret().is_some());
        cancel.store(true, Ordering::SeqCst);
    });
    assert!(matches!(outcome, Err(SessionError::Cancelled)));
    assert!(!seen.is_empty() && !seen.contains(&true) && secret().is_none());
    assert_eq!(case.predicts(&running), first);
    assert_ne!(secret().expect("it was kept")[..74 + 32], before[..74 + 32]);
}
