//! Model owner, cloud and clients over sockets, and peers that vanish or lie.

use std::{
    fs,
    path::PathBuf,
    process,
    sync::{
        Arc, Condvar, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread,
    time::Duration,
};

use pronghorn_graph::{
    geometry::ConvGeometry,
    polynomial::{Layer, PolyGraph, PolyNode, PolyOp},
};
use pronghorn_he::multikey::Party;
use pronghorn_multikey::Aim;
use pronghorn_ring::random::Seed;
use pronghorn_session::{
    ConnectOptions, SessionError,
    multikey::{
        CloudClient, CloudError, CloudLimits, CloudOptions, CloudServer, OwnerKeys, Refusal,
        client_seed,
    },
};

/// A square of a dense layer of 6 inputs, and a dense layer of it.
fn graph(sign: i32) -> PolyGraph {
    let node = |op: PolyOp, inputs: Vec<usize>, elements: usize| PolyNode {
        name: "a node".into(),
        op,
        inputs,
        shape: vec![elements],
        reach: 1.0,
        rms: 1.0,
    };
    let dense = |inputs: usize, outputs: usize| {
        let weights = (0..inputs * outputs).map(|i| sign * ((i * 37 % 101) as i32 - 50));
        PolyOp::Linear(Layer {
            geometry: ConvGeometry::dense(inputs, outputs),
            weights: weights.collect(),
            divisor: 128.0,
            bias: (0..outputs).map(|o| 0.25 - 0.5 * o as f64).collect(),
        })
    };
    PolyGraph {
        name: "test".into(),
        nodes: vec![
            node(PolyOp::Input, vec![], 6),
            node(dense(6, 4), vec![0], 4),
            node(PolyOp::Square, vec![1], 4),
            node(dense(4, 2), vec![2], 2),
        ],
        output: 3,
        finish: vec![],
    }
}

const IMAGE: [f64; 6] = [0.5, -0.25, 1.0, 0.0, 0.75, -1.0];

/// A directory of its own, removed at the end.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> Self {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let own = NEXT.fetch_add(1, Ordering::SeqCst);
        let name = format!("pronghorn-multikey-{}-{own}", process::id());
        Self(std::env::temp_dir().join(name))
    }

    fn at(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Events of logs, which tests wait for.
#[derive(Default)]
struct Events {
    seen: Mutex<Vec<&'static str>>,
    changed: Condvar,
}

impl Events {
    fn add(&self, event: &'static str) {
        self.seen.lock().expect("no panic").push(event);
        self.changed.notify_all();
    }

    /// Waits until an event has come so many times.
    fn wait(&self, event: &str, times: usize) {
        let seen = self.seen.lock().expect("no panic");
        let missing = |seen: &mut Vec<&str>| seen.iter().filter(|&&x| x == event).count() < times;
        let limit = Duration::from_secs(120);
        let waited = self.changed.wait_timeout_while(seen, limit, missing);
        let (seen, waited) = waited.expect("no panic");
        assert!(!waited.timed_out(), "{event} in {seen:?}");
    }
}

/// A cloud that runs.
struct Cloud {
    server: Arc<CloudServer>,
    thread: Option<thread::JoinHandle<()>>,
    events: Arc<Events>,
}

impl Cloud {
    fn start(scratch: &Scratch, options: CloudOptions) -> Self {
        let events = Arc::<Events>::default();
        let log = events.clone();
        let server = CloudServer::bind("127.0.0.1:0", &scratch.at("cloud"), options);
        let server = server.expect("a port is free");
        let server = Arc::new(server.with_log(move |entry| log.add(entry.event)));
        let running = server.clone();
        Self {
            server,
            thread: Some(thread::spawn(move || running.run())),
            events,
        }
    }

    fn address(&self) -> String {
        self.server.local_addr().to_string()
    }
}

impl Drop for Cloud {
    fn drop(&mut self) {
        self.server.stop();
        self.thread.take().map(thread::JoinHandle::join);
    }
}

/// An owner that attends.
struct Attending {
    cancel: Arc<AtomicBool>,
    thread: Option<thread::JoinHandle<Result<(), CloudError>>>,
    party: Party,
}

impl Attending {
    fn start(scratch: &Scratch, cloud: &Cloud, results: u64, times: usize) -> Self {
        let attending = Self::without_waiting(scratch, cloud, results);
        cloud.events.wait("attended", times);
        attending
    }

    fn without_waiting(scratch: &Scratch, cloud: &Cloud, results: u64) -> Self {
        let mut keys = owner(scratch, results).expect("keys of this network");
        let (party, options) = (keys.party(), options());
        let (cancel, address) = (options.cancel.clone(), cloud.address());
        let attend = move || keys.attend(&graph(1), &address, &options, &|_| ());
        Self {
            cancel,
            thread: Some(thread::spawn(attend)),
            party,
        }
    }

    fn stop(&mut self) -> Option<Result<(), CloudError>> {
        self.cancel.store(true, Ordering::SeqCst);
        let thread = self.thread.take()?;
        Some(thread.join().expect("no panic"))
    }
}

impl Drop for Attending {
    fn drop(&mut self) {
        self.stop();
    }
}

fn options() -> ConnectOptions {
    ConnectOptions {
        timeout: Duration::from_secs(120),
        ..ConnectOptions::default()
    }
}

fn owner(scratch: &Scratch, results: u64) -> Result<OwnerKeys, CloudError> {
    let aim = Aim {
        error: 2f64.powi(-8),
        results,
    };
    OwnerKeys::open(&scratch.at("owner"), &graph(1), aim)
}

fn admit(scratch: &Scratch, client: Party) {
    let path = scratch.at("owner").join("clients");
    let mut names = fs::read_to_string(&path).unwrap_or_default();
    for byte in client.0 {
        names.push_str(&format!("{byte:02x}"));
    }
    names.push('\n');
    fs::write(path, names).expect("the owner's directory");
}

fn seed(scratch: &Scratch, name: &str) -> Seed {
    client_seed(&scratch.at(name)).expect("a directory")
}

/// A client that met the cloud.
fn meet(scratch: &Scratch, cloud: &Cloud, owner: Party, name: &str) -> CloudClient {
    let seed = seed(scratch, name);
    CloudClient::meet(&cloud.address(), owner, &seed, options()).expect("an offer")
}

/// An admitted client that may ask.
fn client(scratch: &Scratch, cloud: &Cloud, owner: Party, name: &str) -> CloudClient {
    let mut client = meet(scratch, cloud, owner, name);
    admit(scratch, client.party());
    client.join(|_| ()).expect("admitted");
    client
}

fn check(found: Result<Vec<f64>, CloudError>, image: &[f64]) {
    let (found, wanted) = (found.expect("a result"), graph(1).evaluate(image));
    assert_eq!(found.len(), wanted.len());
    for (found, wanted) in found.iter().zip(wanted) {
        assert!((found - wanted).abs() < 2f64.powi(-8), "{found} {wanted}");
    }
}

fn refusal(error: Option<CloudError>) -> Option<Refusal> {
    match error {
        Some(CloudError::Refused { refusal, .. }) => Some(refusal),
        _ => None,
    }
}

#[test]
fn clients_learn_results_and_all_go_on_after_restarts() {
    let scratch = Scratch::new();
    let cloud = Cloud::start(&scratch, CloudOptions::default());
    let mut owner = Attending::start(&scratch, &cloud, 8, 1);
    let mut first = client(&scratch, &cloud, owner.party, "first");
    assert!(first.keys_sent().is_some());
    check(first.predict(&IMAGE), &IMAGE);
    let mut second = client(&scratch, &cloud, owner.party, "second");
    check(second.predict(&[0.0; 6]), &[0.0; 6]);
    check(first.predict(&IMAGE.map(|x| -x)), &IMAGE.map(|x| -x));
    // An image out of range is the client's own matter.
    assert!(first.predict(&[9.0; 6]).is_err());
    check(first.predict(&IMAGE), &IMAGE);
    // The owner goes away: the client hears so, and goes on once it is back.
    assert!(matches!(
        owner.stop(),
        Some(Err(CloudError::Session(SessionError::Cancelled)))
    ));
    assert_eq!(refusal(first.predict(&IMAGE).err()), Some(Refusal::Away));
    let mut owner = Attending::start(&scratch, &cloud, 8, 2);
    check(first.predict(&IMAGE), &IMAGE);
    // The cloud starts anew: it has the model and the keys, and the owner publishes nothing.
    owner.stop();
    drop((first, second, cloud));
    let cloud = Cloud::start(&scratch, CloudOptions::default());
    let owner = Attending::start(&scratch, &cloud, 8, 1);
    let mut first = client(&scratch, &cloud, owner.party, "first");
    assert_eq!(first.keys_sent(), None);
    check(first.predict(&IMAGE), &IMAGE);
    let published = |event: &&&str| **event == "published";
    let seen = cloud.events.seen.lock().expect("no panic");
    assert_eq!(seen.iter().filter(published).count(), 0);
}

#[test]
fn the_ledger_outlives_the_owners_process() {
    let scratch = Scratch::new();
    let cloud = Cloud::start(&scratch, CloudOptions::default());
    let mut owner = Attending::start(&scratch, &cloud, 2, 1);
    let mut asking = client(&scratch, &cloud, owner.party, "client");
    check(asking.predict(&IMAGE), &IMAGE);
    owner.stop();
    let mut owner = Attending::start(&scratch, &cloud, 2, 2);
    check(asking.predict(&IMAGE), &IMAGE);
    owner.stop();
    let owner = Attending::start(&scratch, &cloud, 2, 3);
    // Its key has decrypted as many results as it may.
    let mut asking = client(&scratch, &cloud, owner.party, "client");
    assert_eq!(refusal(asking.predict(&IMAGE).err()), Some(Refusal::Owner));
}

#[test]
fn keys_are_one_networks_and_one_processs() {
    let scratch = Scratch::new();
    let first = owner(&scratch, 8).expect("new keys");
    let (party, left) = (first.party(), first.results_left());
    assert!(matches!(
        owner(&scratch, 8).err(),
        Some(CloudError::InUse { .. })
    ));
    drop(first);
    // What was agreed on stays.
    let again = owner(&scratch, 99).expect("the keys that are there");
    assert_eq!((again.party(), again.results_left()), (party, left));
    drop(again);
    let mut other = graph(1);
    other.nodes[3].op = PolyOp::Square;
    other.nodes[3].shape = vec![4];
    let aim = Aim {
        error: 0.01,
        results: 8,
    };
    let refused = OwnerKeys::open(&scratch.at("owner"), &other, aim).err();
    assert!(matches!(refused, Some(CloudError::OtherKeys { .. })));
    fs::remove_file(scratch.at("owner").join("ledger")).expect("it is there");
    assert!(matches!(
        owner(&scratch, 8).err(),
        Some(CloudError::NoLedger { .. })
    ));
}

#[test]
fn strangers_are_refused_before_their_keys_are_taken() {
    let scratch = Scratch::new();
    let cloud = Cloud::start(&scratch, CloudOptions::default());
    let nobody = Party([7; 32]);
    let seed = seed(&scratch, "client");
    let early = CloudClient::meet(&cloud.address(), nobody, &seed, options());
    assert_eq!(refusal(early.err()), Some(Refusal::NoModel));
    let owner = Attending::start(&scratch, &cloud, 8, 1);
    let mut stranger = meet(&scratch, &cloud, owner.party, "client");
    let refused = stranger.join(|_| panic!("no keys are wanted"));
    assert_eq!(refusal(refused.err()), Some(Refusal::NotAdmitted));
    let other = CloudClient::meet(&cloud.address(), nobody, &seed, options());
    assert_eq!(refusal(other.err()), Some(Refusal::OtherOwner));
    // Another owner does not take the place of the first.
    let thief = Scratch::new();
    let mut thief = Attending::without_waiting(&thief, &cloud, 8);
    let refused = thief.thread.take().expect("it runs").join();
    let refused = refused.expect("no panic").err();
    assert_eq!(refusal(refused), Some(Refusal::OtherOwner));
    let mut admitted = client(&scratch, &cloud, owner.party, "client");
    check(admitted.predict(&IMAGE), &IMAGE);
}

#[test]
fn few_keys_in_memory_serve_many_clients() {
    let scratch = Scratch::new();
    let limits = CloudLimits {
        clients: 1,
        ..CloudLimits::default()
    };
    let options = CloudOptions {
        limits,
        ..CloudOptions::default()
    };
    let cloud = Cloud::start(&scratch, options);
    let owner = Attending::start(&scratch, &cloud, 8, 1);
    let names = ["first", "second"];
    let mut clients = names.map(|name| client(&scratch, &cloud, owner.party, name));
    for _ in 0..2 {
        for client in &mut clients {
            check(client.predict(&IMAGE), &IMAGE);
        }
    }
}
