//! A server on a thread, a tiny real model, mock machines, and a hand-made client.
#![allow(dead_code, reason = "each test file uses a part")]

pub mod line;
pub mod relay;
pub mod tap;
pub mod tls;

use std::{
    collections::BTreeMap,
    fs,
    net::{SocketAddr, TcpStream},
    path::Path,
    sync::{Arc, Mutex},
    thread,
    time::Duration,
};

use pronghorn_engine::{
    Connection, EngineError, Machine, Progress, ServerModel, ServerPrepared, Want,
};
use pronghorn_graph::{
    fixed::ValueSpec,
    graph::{Graph, Tensor},
};
use pronghorn_plan::{
    BuildOptions, Built, CheckedPlan, Engine, Plan, Step, StepKind, TrustLevel, build, plan::FORMAT,
};
use pronghorn_session::{
    Client, ConnectOptions, ErrorCode, FrameError, Limits, Preparing, Server, Service,
    SessionError,
    frame::{self, Accept, Kind, MAX_HANDSHAKE},
    limits::table::Caps,
    message::{self, Begin, ClientHello, Done, ErrorMessage, Hello, ServerHello},
    store::file::Party,
    transcript::Transcript,
};

/// Limits of the table, by name.
pub fn caps(limits: &[(&str, u64)]) -> Caps {
    limits.iter().fold(Caps::default(), |caps, (name, most)| {
        caps.with(name, Some(*most)).expect("it is a limit")
    })
}

/// Limits that make tests quick.
pub fn limits() -> Limits {
    Limits {
        caps: caps(&[("max-clients", 4)]),
        max_waiting: 0,
        idle_timeout: Duration::from_millis(400),
        message_timeout: Duration::from_millis(400),
        hello_timeout: Duration::from_millis(400),
        ..Limits::default()
    }
}

/// Limits that no slow machine meets.
pub fn patient() -> Limits {
    Limits {
        idle_timeout: Duration::from_secs(100),
        message_timeout: Duration::from_secs(100),
        hello_timeout: Duration::from_secs(100),
        ..limits()
    }
}

pub fn options() -> ConnectOptions {
    ConnectOptions {
        trust: Some(TrustLevel::ClientAided),
        timeout: Duration::from_secs(100),
        ..ConnectOptions::default()
    }
}

/// A new directory that only this user may enter, as stores must be.
pub fn private_directory(path: &Path) {
    let mut builder = fs::DirBuilder::new();
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.recursive(true).create(path).expect("there is room");
}

/// A running server; stops when dropped.
pub struct Running {
    server: Arc<Server>,
    thread: Option<thread::JoinHandle<()>>,
    log: Arc<Mutex<Vec<String>>>,
}

impl Running {
    pub fn start(server: Server) -> Self {
        let log = Arc::new(Mutex::new(Vec::new()));
        let lines = log.clone();
        let server =
            Arc::new(server.with_log(move |entry| lines.lock().unwrap().push(entry.text.clone())));
        let thread = Some(thread::spawn({
            let server = server.clone();
            move || server.run()
        }));
        Self {
            server,
            thread,
            log,
        }
    }

    pub fn real(limits: Limits) -> Self {
        Self::start(Server::bind("127.0.0.1:0", model(), limits).unwrap())
    }

    pub fn mock(limits: Limits) -> Self {
        Self::start(Server::bind_service("127.0.0.1:0", Box::new(Mock::default()), limits).unwrap())
    }

    pub fn server(&self) -> &Server {
        &self.server
    }

    pub fn address(&self) -> SocketAddr {
        self.server.local_addr()
    }

    pub fn connect(&self) -> Result<Client, SessionError> {
        Client::connect(&self.address().to_string(), options())
    }

    pub fn stop(&mut self) {
        self.server.stop();
        if let Some(thread) = self.thread.take() {
            thread.join().expect("the accept loop never panics");
        }
    }

    pub fn log(&self) -> Vec<String> {
        self.log.lock().unwrap().clone()
    }

    /// Waits for a line of the log that contains `text`.
    pub fn wait_for_log(&self, text: &str) -> String {
        for _ in 0..2000 {
            if let Some(line) = self.log().into_iter().find(|line| line.contains(text)) {
                return line;
            }
            thread::sleep(Duration::from_millis(10));
        }
        panic!("{text:?} is not in the log: {:?}", self.log());
    }

    /// A good client is served, with the right answer, once a place is free.
    pub fn serves_a_good_client(&self, check: impl FnOnce(Client)) {
        for _ in 0..1000 {
            match self.connect() {
                Ok(client) => return check(client),
                Err(SessionError::Peer {
                    code: ErrorCode::Busy,
                    ..
                }) => {
                    thread::sleep(Duration::from_millis(10));
                }
                Err(error) => panic!("a good client is turned away: {error}"),
            }
        }
        panic!("no place became free");
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop();
    }
}

// The real engine.

/// Small deterministic numbers in [0, 1).
pub fn numbers(count: usize) -> Vec<f32> {
    (0..count)
        .map(|index| (index * 37 % 101) as f32 / 101.0)
        .collect()
}

pub const INPUTS: usize = 6;

/// 6 -> 5, ReLU, -> 3.
pub fn built() -> Built {
    built_for(TrustLevel::ClientAided, "relu")
}

/// The same with another activation.
pub fn built_for(trust: TrustLevel, activation: &str) -> Built {
    built_in(trust, activation, None)
}

pub fn built_in(trust: TrustLevel, activation: &str, engine: Option<Engine>) -> Built {
    built_with(
        activation,
        BuildOptions {
            trust: Some(trust),
            engine,
            ..BuildOptions::default()
        },
    )
}

/// The same with other options.
pub fn built_with(activation: &str, options: BuildOptions) -> Built {
    built_named("tiny", activation, options)
}

/// The same with a name of the model, which also begins the names of its nodes.
pub fn built_named(name: &str, activation: &str, options: BuildOptions) -> Built {
    let json = r#"{"name":"tiny","output":3,"nodes":[
        {"name":"x","op":{"kind":"input"},"inputs":[],"shape":[6]},
        {"name":"fc1","op":{"kind":"dense","weight":"w1","bias":"b1"},"inputs":[0],"shape":[5]},
        {"name":"relu","op":{"kind":"relu"},"inputs":[1],"shape":[5]},
        {"name":"fc2","op":{"kind":"dense","weight":"w2","bias":"b2"},"inputs":[2],"shape":[3]}]}"#;
    let json = &json.replace(r#""kind":"relu""#, &format!(r#""kind":"{activation}""#));
    let tensor = |name: &str, shape: &[usize]| {
        let data = numbers(shape.iter().product())
            .iter()
            .map(|value| value - 0.45)
            .collect();
        (name.to_owned(), Tensor::new(shape, data))
    };
    let tensors: BTreeMap<_, _> = [
        tensor("w1", &[5, 6]),
        tensor("b1", &[5]),
        tensor("w2", &[3, 5]),
        tensor("b2", &[3]),
    ]
    .into();
    let mut graph = Graph::from_json(json, tensors).expect("the tiny network is valid");
    graph.name = name.to_owned();
    for node in &mut graph.nodes {
        node.name = format!("{name}/{}", node.name);
    }
    let samples = Some(numbers(INPUTS * 50));
    build(&graph, &BuildOptions { samples, ..options }).expect("the tiny network has a plan")
}

pub fn model() -> Arc<ServerModel> {
    Arc::new(ServerModel::new(&built()).expect("weights fit the plan"))
}

/// A good client of the real engine gets what a run without sockets gives.
pub fn predicts(mut client: Client) {
    let inputs = numbers(INPUTS * 3);
    let found = client
        .predict(&inputs, 3, &mut |_| {})
        .expect("a good client is served");
    let wanted = pronghorn_session::in_process(&model(), &inputs, 3).expect("the run succeeds");
    assert_eq!(found.outputs, wanted.outputs(client.plan()));
}

// Mock machines.

/// A plan with nothing to do, for mock machines.
pub fn mock_plan() -> CheckedPlan {
    let value = ValueSpec {
        shape: vec![1],
        fraction_bits: 0,
        low: 0,
        high: 10,
    };
    let step = Step {
        kind: StepKind::Input,
        inputs: vec![],
        value,
    };
    let trust = TrustLevel::ClientAided;
    let plan = Plan {
        band_bytes: pronghorn_plan::plan::BAND_BYTES,
        key_checks: 1,
        format: FORMAT,
        model: "mock".into(),
        trust,
        steps: vec![step],
        output: 0,
        finish: vec![],
        max_batch: 1000,
        sampled: None,
        deviations: None,
        categories: vec![],
        class_names: vec![],
        columns: vec![],
        outputs: vec![],
    };
    CheckedPlan::new(plan).expect("it is valid")
}

/// Batches of these sizes make the mock server misbehave.
pub const PANICS: usize = 13;
pub const FAILS: usize = 14;
pub const FALSE_KEYS: usize = 16;
/// A batch whose answers are as long as [`LARGE`] says.
pub const FLOODS: usize = 15;
pub const LARGE: usize = 4 << 20;

pub struct Mock {
    plan: CheckedPlan,
}

impl Default for Mock {
    fn default() -> Self {
        Self { plan: mock_plan() }
    }
}

impl Service for Mock {
    fn plan(&self) -> &CheckedPlan {
        &self.plan
    }

    fn start(
        &self,
        batch: usize,
        _: &Connection,
        _: Option<ServerPrepared>,
    ) -> Result<Box<dyn Machine<Error = EngineError> + Send>, EngineError> {
        Ok(Box::new(PingPong::server(batch)))
    }

    fn prepare(&self, batch: usize, _: &Connection) -> Result<Box<dyn Preparing>, EngineError> {
        Ok(Box::new(PingPong::server(batch)))
    }

    fn read_prepared(
        &self,
        _: usize,
        _: [u8; 32],
        _: &[u8],
    ) -> Result<ServerPrepared, EngineError> {
        Err(EngineError::OutOfTurn {
            state: "is a game of ping-pong, which leaves nothing",
        })
    }
}

impl Preparing for PingPong {
    fn into_prepared(self: Box<Self>) -> Result<ServerPrepared, EngineError> {
        Err(EngineError::OutOfTurn {
            state: "is a game of ping-pong, which leaves nothing",
        })
    }
}

/// Rounds of three messages there and three back, each a counter and padding.
pub struct PingPong {
    batch: usize,
    server: bool,
    done: usize,
}

const ROUNDS: usize = 4;
const RUN: usize = 3;

impl PingPong {
    pub fn client(batch: usize) -> Self {
        Self {
            batch,
            server: false,
            done: 0,
        }
    }

    pub fn server(batch: usize) -> Self {
        Self {
            batch,
            server: true,
            done: 0,
        }
    }

    fn length(&self) -> usize {
        let from_server = (self.done / RUN) % 2 == 1;
        if from_server && self.batch == FLOODS {
            LARGE
        } else {
            1 + self.done * 1000
        }
    }
}

impl Machine for PingPong {
    type Error = EngineError;

    fn want(&self) -> Want {
        let from_server = (self.done / RUN) % 2 == 1;
        match self.done == 2 * ROUNDS * RUN {
            true => Want::Done,
            false if from_server == self.server => Want::Send,
            false => Want::Receive,
        }
    }

    fn send(&mut self, out: &mut Vec<u8>) -> Result<(), EngineError> {
        assert!(out.is_empty() && self.want() == Want::Send);
        assert!(
            !(self.server && self.batch == PANICS),
            "a bug, as asked for by the test"
        );
        if self.server && self.batch == FAILS {
            return Err(EngineError::OutOfTurn {
                state: "fails as the test wants",
            });
        }
        if self.server && self.batch == FALSE_KEYS {
            return Err(EngineError::FalseKeys);
        }
        out.resize(self.length(), self.done as u8);
        self.done += 1;
        Ok(())
    }

    fn receive(&mut self, message: &[u8]) -> Result<(), EngineError> {
        assert_eq!(self.want(), Want::Receive);
        if message.len() != self.length() || message.iter().any(|&byte| byte != self.done as u8) {
            return Err(EngineError::OutOfTurn {
                state: "is a game of ping-pong, and this is another message",
            });
        }
        self.done += 1;
        Ok(())
    }

    fn max_incoming(&self) -> usize {
        self.length()
    }

    fn progress(&self) -> Progress {
        Progress {
            done: self.done as u64,
            total: (2 * ROUNDS * RUN) as u64,
        }
    }
}

pub fn plays(mut client: Client) {
    let mut last = Progress::default();
    client
        .run(&mut PingPong::client(5), 5, &mut |now| last = now)
        .expect("a good client is served");
    assert!(last.done == last.total && last.total > 0);
}

// A client made by hand.

/// A connection whose frames the test writes itself, what went over it, and the batches and
/// preparations that were begun.
pub struct Raw(pub TcpStream, pub Transcript, pub u64);

impl Raw {
    pub fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).unwrap();
        stream
            .set_read_timeout(Some(Duration::from_secs(30)))
            .unwrap();
        stream
            .set_write_timeout(Some(Duration::from_secs(30)))
            .unwrap();
        Self(stream, Transcript::default(), 0)
    }

    /// With the hellos exchanged.
    pub fn greeted(address: SocketAddr) -> (Self, ServerHello) {
        let mut raw = Self::connect(address);
        raw.send(Kind::ClientHello, &hello().encode());
        let accept = [(Kind::ServerHello, MAX_HANDSHAKE)];
        let (kind, payload) = raw.receive(&accept).unwrap();
        assert_eq!(kind, Kind::ServerHello);
        let hello = ServerHello::decode(&payload).unwrap();
        (raw, hello)
    }

    /// With a batch begun.
    pub fn begun(address: SocketAddr, batch: u32) -> Self {
        let (mut raw, hello) = Self::greeted(address);
        raw.begin(hello.plan_hash, batch);
        raw
    }

    pub fn begin(&mut self, plan_hash: [u8; 32], batch: u32) {
        let begin = Begin {
            plan_hash,
            batch,
            runs: self.2,
            prepared: None,
        };
        self.2 += 1;
        self.send(Kind::Begin, &message::encode(&begin));
    }

    /// Sends a frame; the server may already have closed.
    pub fn send(&mut self, kind: Kind, payload: &[u8]) {
        self.1.absorb(Party::Client, kind, payload);
        let _ = frame::write_frame(&mut self.0, kind, payload);
    }

    /// Says that this side is done, with the digest that an honest client has.
    pub fn send_done(&mut self, batch: u32) {
        let images_left = None;
        let done = Done {
            batch,
            images_left,
            leaves: false,
        };
        let mut payload = message::encode(&done);
        self.1.seal(Party::Client, Kind::Done, &mut payload);
        let _ = frame::write_frame(&mut self.0, Kind::Done, &payload);
    }

    /// Reads a frame of the server's, without the digest of a sealed one.
    pub fn receive(&mut self, accept: &[Accept]) -> Result<(Kind, Vec<u8>), FrameError> {
        let mut payload = Vec::new();
        let kind = frame::read_frame(&mut self.0, accept, &mut payload)?;
        match kind {
            Kind::Done => self.1.open(Party::Server, kind, &mut payload).unwrap(),
            _ => self.1.absorb(Party::Server, kind, &payload),
        }
        Ok((kind, payload))
    }

    pub fn send_bytes(&mut self, bytes: &[u8]) {
        let _ = std::io::Write::write_all(&mut self.0, bytes);
    }

    /// The server's `Error` frame, which must come next.
    pub fn expect_error(&mut self) -> ErrorMessage {
        let mut payload = Vec::new();
        let kind = frame::read_frame(&mut self.0, &[], &mut payload).expect("an error frame comes");
        assert_eq!(kind, Kind::Error);
        ErrorMessage::decode(&payload).unwrap()
    }
}

pub fn hello() -> ClientHello {
    ClientHello {
        trust: TrustLevel::ClientAided,
        expected_plan_hash: None,
        model: None,
    }
}

/// A frame's bytes, whatever the header says.
pub fn raw_frame(length: u32, kind: u8, payload: &[u8]) -> Vec<u8> {
    [&length.to_le_bytes()[..], &[kind], payload].concat()
}
