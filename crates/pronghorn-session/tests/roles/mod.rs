//! Model owner, cloud and clients over sockets, for tests.

use std::{
    fs,
    path::{Path, PathBuf},
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
    ConnectOptions,
    multikey::{
        CloudClient, CloudError, CloudOptions, CloudServer, OwnerKeys, Refusal, client_seed,
    },
};

/// A square of a dense layer of 6 inputs, and a dense layer of it.
pub fn graph(sign: i32) -> PolyGraph {
    let node = |op: PolyOp, inputs: Vec<usize>, elements: usize| PolyNode {
        name: "a node".into(),
        op,
        inputs,
        shape: vec![elements],
        reach: 1.0,
        rms: 1.0,
    };
    let dense = |inputs: usize, outputs: usize| {
        let weights = (0..inputs * outputs).map(|i| f64::from(sign * ((i * 37 % 101) as i32 - 50)));
        PolyOp::Linear(Layer {
            geometry: ConvGeometry::dense(inputs, outputs),
            weights: weights.collect(),
            divisor: 128.0,
            bias: (0..outputs).map(|o| 0.25 - 0.5 * o as f64).collect(),
        })
    };
    PolyGraph {
        low: -1.0,
        name: "test".into(),
        nodes: vec![
            node(PolyOp::Input, vec![], 6),
            node(dense(6, 4), vec![0], 4),
            node(PolyOp::Square, vec![1], 4),
            node(dense(4, 2), vec![2], 2),
        ],
        output: 3,
        finish: vec![],
        class_names: Vec::new(),
    }
}

pub const IMAGE: [f64; 6] = [0.5, -0.25, 1.0, 0.0, 0.75, -1.0];

/// A directory of its own, removed at the end.
pub struct Scratch(PathBuf);

impl Scratch {
    pub fn new() -> Self {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let own = NEXT.fetch_add(1, Ordering::SeqCst);
        let name = format!("pronghorn-multikey-{}-{own}", process::id());
        Self(std::env::temp_dir().join(name))
    }

    pub fn at(&self, name: &str) -> PathBuf {
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
pub struct Events {
    pub seen: Mutex<Vec<&'static str>>,
    changed: Condvar,
}

impl Events {
    pub fn add(&self, event: &'static str) {
        self.seen.lock().expect("no panic").push(event);
        self.changed.notify_all();
    }

    /// Waits until an event has come so many times.
    pub fn wait(&self, event: &str, times: usize) {
        let seen = self.seen.lock().expect("no panic");
        let missing = |seen: &mut Vec<&str>| seen.iter().filter(|&&x| x == event).count() < times;
        let limit = Duration::from_secs(120);
        let waited = self.changed.wait_timeout_while(seen, limit, missing);
        let (seen, waited) = waited.expect("no panic");
        assert!(!waited.timed_out(), "{event} in {seen:?}");
    }
}

/// A cloud that runs.
pub struct Cloud {
    pub server: Arc<CloudServer>,
    thread: Option<thread::JoinHandle<()>>,
    pub events: Arc<Events>,
}

impl Cloud {
    pub fn start(scratch: &Scratch, options: CloudOptions) -> Self {
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

    pub fn address(&self) -> String {
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
pub struct Attending {
    pub cancel: Arc<AtomicBool>,
    pub thread: Option<thread::JoinHandle<Result<(), CloudError>>>,
    pub party: Party,
}

impl Attending {
    pub fn start(scratch: &Scratch, cloud: &Cloud, results: u64, times: usize) -> Self {
        let attending = Self::without_waiting(scratch, cloud, results);
        cloud.events.wait("attended", times);
        attending
    }

    pub fn without_waiting(scratch: &Scratch, cloud: &Cloud, results: u64) -> Self {
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

    pub fn stop(&mut self) -> Option<Result<(), CloudError>> {
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

pub fn options() -> ConnectOptions {
    ConnectOptions {
        timeout: Duration::from_secs(120),
        ..ConnectOptions::default()
    }
}

pub fn owner(scratch: &Scratch, results: u64) -> Result<OwnerKeys, CloudError> {
    let aim = Aim {
        error: 2f64.powi(-8),
        results,
    };
    OwnerKeys::open(&scratch.at("owner"), &graph(1), aim)
}

pub fn admit(scratch: &Scratch, client: Party) {
    admit_at(&scratch.at("owner"), client);
}

pub fn admit_at(directory: &Path, client: Party) {
    let path = directory.join("clients");
    let mut names = fs::read_to_string(&path).unwrap_or_default();
    for byte in client.0 {
        names.push_str(&format!("{byte:02x}"));
    }
    names.push('\n');
    fs::write(path, names).expect("the owner's directory");
}

pub fn seed(scratch: &Scratch, name: &str) -> Seed {
    client_seed(&scratch.at(name)).expect("a directory")
}

/// A client that met the cloud.
pub fn meet(scratch: &Scratch, cloud: &Cloud, owner: Party, name: &str) -> CloudClient {
    let seed = seed(scratch, name);
    CloudClient::meet(&cloud.address(), owner, &seed, options()).expect("an offer")
}

/// An admitted client that may ask.
pub fn client(scratch: &Scratch, cloud: &Cloud, owner: Party, name: &str) -> CloudClient {
    let mut client = meet(scratch, cloud, owner, name);
    admit(scratch, client.party());
    client.join(|_| ()).expect("admitted");
    client
}

pub fn check(found: Result<Vec<f64>, CloudError>, image: &[f64]) {
    let (found, wanted) = (found.expect("a result"), graph(1).evaluate(image));
    assert_eq!(found.len(), wanted.len());
    for (found, wanted) in found.iter().zip(wanted) {
        assert!((found - wanted).abs() < 2f64.powi(-8), "{found} {wanted}");
    }
}

pub fn refusal(error: Option<CloudError>) -> Option<Refusal> {
    match error {
        Some(CloudError::Refused { refusal, .. }) => Some(refusal),
        _ => None,
    }
}
