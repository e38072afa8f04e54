//! The server: a thread a client, bounded, each on its own.

use std::{
    collections::HashMap,
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, Shutdown, SocketAddr, TcpListener, TcpStream},
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread::{self, Scope},
    time::{Duration, Instant},
};

use pronghorn_engine::{
    EngineError, Machine, ServerKeys, ServerModel, ServerPreparation, ServerRun,
};
use pronghorn_plan::{Plan, cost};

use crate::{
    drive::drive,
    error::SessionError,
    frame::{FrameError, Kind, MAX_HANDSHAKE},
    limits::Limits,
    link::{Link, Timeouts},
    message::{self, Begin, ClientHello, Done, ErrorMessage, Hello, ServerHello},
    quota::{ImageQuota, Pool, Taken, lock},
    text,
    transport::Transport,
};

/// Refusals under way at once; beyond these a connection is closed without a word.
const REFUSALS: u64 = 8;

/// How long sessions get to end by themselves when the server stops.
const STOP_PATIENCE: Duration = Duration::from_secs(3);

/// How long to wait after the operating system refused a connection.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// What a server serves: a plan, and the server's machine for each batch.
pub trait Service: Send + Sync {
    /// The plan both parties follow.
    fn plan(&self) -> &Plan;

    /// The server's half of a batch of `batch` images; `keys` are of its connection.
    ///
    /// # Errors
    /// When it cannot begin.
    fn start(&self, batch: usize, keys: &ServerKeys) -> Result<Box<dyn Machine>, EngineError>;

    /// The server's half of the preparation of such a batch, which leaves what it makes in `keys`.
    ///
    /// # Errors
    /// When it cannot begin, or nothing can be prepared.
    fn prepare(&self, batch: usize, keys: &ServerKeys) -> Result<Box<dyn Machine>, EngineError>;
}

struct ModelService(Arc<ServerModel>);

impl Service for ModelService {
    fn plan(&self) -> &Plan {
        self.0.plan()
    }

    fn start(&self, batch: usize, keys: &ServerKeys) -> Result<Box<dyn Machine>, EngineError> {
        let run = ServerRun::with_keys(self.0.clone(), batch, keys)?;
        Ok(Box::new(run))
    }

    fn prepare(&self, batch: usize, keys: &ServerKeys) -> Result<Box<dyn Machine>, EngineError> {
        Ok(Box::new(ServerPreparation::new(&self.0, batch, keys)?))
    }
}

type Log = Box<dyn Fn(&str) + Send + Sync>;

/// A server of one plan over TCP.
///
/// A failing session ends alone: with an `Error` frame to its client and a line in the log.
pub struct Server {
    /// Taken by [`Server::run`], which closes it.
    listener: Mutex<Option<TcpListener>>,
    address: SocketAddr,
    service: Box<dyn Service>,
    plan_bytes: Vec<u8>,
    plan_hash: [u8; 32],
    max_batch: usize,
    limits: Limits,
    places: Pool,
    refusals: Pool,
    memory: Pool,
    images: ImageQuota,
    stopping: Arc<AtomicBool>,
    next_session: AtomicU64,
    sessions: Mutex<HashMap<u64, Box<dyn Transport>>>,
    log: Log,
}

/// What one session did, for the log.
#[derive(Default)]
struct Record {
    batches: u64,
    images: u64,
}

impl Server {
    /// Listens on `address` (`HOST:PORT`, `:PORT` for all interfaces, port 0 for any) for clients of `model`.
    ///
    /// # Errors
    /// When the address is wrong or taken, or the limits let nothing through.
    pub fn bind(
        address: &str,
        model: Arc<ServerModel>,
        limits: Limits,
    ) -> Result<Self, SessionError> {
        Self::bind_service(address, Box::new(ModelService(model)), limits)
    }

    /// The same for any [`Service`].
    ///
    /// # Errors
    /// As [`Server::bind`].
    pub fn bind_service(
        address: &str,
        service: Box<dyn Service>,
        limits: Limits,
    ) -> Result<Self, SessionError> {
        let (max_batch, memory) = within_limits(service.plan(), &limits)?;
        let (listener, local) = listen(address)?;
        Ok(Self {
            listener: Mutex::new(Some(listener)),
            address: local,
            plan_bytes: service.plan().to_bytes(),
            plan_hash: service.plan().hash(),
            service,
            max_batch,
            places: Pool::new(limits.max_clients as u64),
            refusals: Pool::new(REFUSALS),
            memory: Pool::new(memory),
            images: ImageQuota::new(limits.max_images_per_client),
            limits,
            stopping: Arc::default(),
            next_session: AtomicU64::new(1),
            sessions: Mutex::default(),
            log: Box::new(|_| {}),
        })
    }

    /// Calls `log` with one printable line when a client comes, is refused and leaves. The lines hold
    /// addresses, counts and errors, no secrets; what a peer wrote is escaped.
    #[must_use]
    pub fn with_log(mut self, log: impl Fn(&str) + Send + Sync + 'static) -> Self {
        self.log = Box::new(log);
        self
    }

    /// The address it listens on.
    pub fn local_addr(&self) -> SocketAddr {
        self.address
    }

    /// Serves until [`Server::stop`], and returns once all sessions have ended. A second call returns at once.
    pub fn run(&self) {
        let Some(listener) = lock(&self.listener).take() else {
            return;
        };
        thread::scope(|scope| {
            let mut failing = false;
            while !self.stopping.load(Ordering::SeqCst) {
                match listener.accept() {
                    Ok((stream, client)) => {
                        failing = false;
                        self.admit(scope, stream, client);
                    }
                    Err(error) => {
                        if !failing {
                            self.log(&format!("cannot accept connections: {error}"));
                        }
                        failing = true;
                        thread::sleep(ACCEPT_PAUSE);
                    }
                }
            }
            drop(listener);
            // All places free: all sessions have ended.
            if self
                .places
                .take(self.places.total(), STOP_PATIENCE)
                .is_none()
            {
                self.cut_sessions(Shutdown::Both);
            }
        });
    }

    /// Makes [`Server::run`] return, for good: no new clients, and running sessions end at their next message.
    pub fn stop(&self) {
        self.stopping.store(true, Ordering::SeqCst);
        self.memory.close();
        self.cut_sessions(Shutdown::Read);
        // Wakes the accept loop. Should this fail, then because connections are waiting, which wake it too.
        let _ = TcpStream::connect_timeout(&reachable(self.address), Duration::from_secs(1));
    }

    fn cut_sessions(&self, how: Shutdown) {
        for session in lock(&self.sessions).values() {
            // A session that has just ended has no line to cut.
            let _ = session.shutdown(how);
        }
    }

    fn log(&self, line: &str) {
        (self.log)(&text::printable(line, "; "));
    }

    /// Starts a session's thread, or refuses.
    fn admit<'scope>(
        &'scope self,
        scope: &'scope Scope<'scope, '_>,
        stream: TcpStream,
        client: SocketAddr,
    ) {
        if self.stopping.load(Ordering::SeqCst) {
            return;
        }
        // Small messages must not wait for more; where the option is missing they do.
        let _ = stream.set_nodelay(true);
        let thread = thread::Builder::new().name("pronghorn session".into());
        let started = if let Some(place) = self.places.take(1, Duration::ZERO) {
            thread.spawn_scoped(scope, move || {
                let _place = place;
                contained(|| self.session_thread(stream, client));
            })
        } else if let Some(place) = self.refusals.take(1, Duration::ZERO) {
            thread.spawn_scoped(scope, move || {
                let _place = place;
                contained(|| self.refuse(stream, client));
            })
        } else {
            self.log(&format!(
                "{client}: closed without a word: {} clients are served, and {REFUSALS} more are being refused",
                self.limits.max_clients
            ));
            return;
        };
        if let Err(error) = started {
            self.log(&format!("{client}: refused: no thread: {error}"));
        }
    }

    fn refuse(&self, stream: TcpStream, client: SocketAddr) {
        let error = SessionError::TooManyClients {
            most: self.limits.max_clients,
        };
        self.log(&format!("{client}: refused: {error}"));
        if let Ok(mut link) = self.link(stream) {
            link.close(Some(&last_words(&error)));
        }
    }

    fn link(&self, stream: TcpStream) -> Result<Link, SessionError> {
        let timeouts = Timeouts {
            idle: self.limits.idle_timeout,
            message: self.limits.message_timeout,
        };
        Link::new(Box::new(stream), timeouts, self.stopping.clone())
    }

    fn session_thread(&self, stream: TcpStream, client: SocketAddr) {
        let id = self.next_session.fetch_add(1, Ordering::Relaxed);
        let left = self.images.left(client.ip());
        let granted = left.map_or_else(String::new, |left| format!(", has {left} images left"));
        self.log(&format!("client {id} ({client}) connected{granted}"));
        if let Err(error) = self.registered_session(id, stream, client) {
            self.log(&format!("client {id} ({client}) failed: {error}"));
        }
    }

    /// A session that [`Server::stop`] can end. Its own errors are told and logged within.
    fn registered_session(
        &self,
        id: u64,
        stream: TcpStream,
        client: SocketAddr,
    ) -> Result<(), SessionError> {
        let handle = Transport::try_clone(&stream).map_err(|source| SessionError::System {
            what: "a handle",
            source,
        })?;
        let _registration = Registration::new(self, id, handle);
        let mut link = self.link(stream)?;
        let (mut record, started) = (Record::default(), Instant::now());
        let session = AssertUnwindSafe(|| self.session(&mut link, client.ip(), &mut record));
        let outcome = catch_unwind(session).unwrap_or(Err(SessionError::Bug));
        let told = outcome
            .as_ref()
            .err()
            .filter(|error| error.is_worth_telling())
            .map(last_words);
        link.close(told.as_ref());
        let ending = outcome
            .err()
            .map(|error| format!(": ended by an error: {error}"))
            .unwrap_or_default();
        self.log(&format!(
            "client {id} ({client}) left: {} batches, {} images, {} bytes received, {} bytes sent, {:.1} s{ending}",
            record.batches,
            record.images,
            link.traffic.bytes_received,
            link.traffic.bytes_sent,
            started.elapsed().as_secs_f64(),
        ));
        Ok(())
    }

    fn session(
        &self,
        link: &mut Link,
        client: IpAddr,
        record: &mut Record,
    ) -> Result<(), SessionError> {
        self.greet(link, client)?;
        let (mut payload, keys) = (Vec::new(), ServerKeys::default());
        let mut prepared = PreparedBatches::new();
        let mut accept = vec![
            (Kind::Begin, MAX_HANDSHAKE),
            (Kind::Prepare, MAX_HANDSHAKE),
            (Kind::Bye, 0),
            (Kind::PlanRequest, 0),
        ];
        loop {
            match link.receive(&accept, &mut payload)? {
                Kind::PlanRequest => {
                    // Once a session.
                    accept.pop();
                    link.send(Kind::PlanBytes, self.plan_bytes.clone())?;
                }
                Kind::Begin => {
                    let begin: Begin = message::decode(Kind::Begin, &payload)?;
                    self.batch(link, client, begin, &keys, record)?;
                    let place = prepared.iter().position(|(batch, _)| *batch == begin.batch);
                    place.map(|place| prepared.remove(place));
                }
                Kind::Prepare => {
                    let begin: Begin = message::decode(Kind::Prepare, &payload)?;
                    prepared.push((begin.batch, self.prepare(link, client, begin, &keys)?));
                }
                _ => return Ok(()),
            }
        }
    }

    /// The hellos.
    fn greet(&self, link: &mut Link, client: IpAddr) -> Result<(), SessionError> {
        let mut payload = Vec::new();
        let accept = [(Kind::ClientHello, MAX_HANDSHAKE)];
        let received = link.receive_within(self.limits.message_timeout, &accept, &mut payload);
        received.map_err(foreign_peer)?;
        let hello = ClientHello::decode(&payload)?;
        let offered = self.service.plan().trust();
        if hello.trust != offered {
            return Err(SessionError::TrustMismatch {
                asked: hello.trust,
                offered,
            });
        }
        if let Some(expected) = hello
            .expected_plan_hash
            .filter(|&expected| expected != self.plan_hash)
        {
            return Err(SessionError::PlanHash {
                expected,
                found: self.plan_hash,
            });
        }
        let hello = ServerHello {
            trust: offered,
            plan_hash: self.plan_hash,
            plan_length: self.plan_bytes.len() as u32,
            max_batch: self.max_batch as u32,
            images_left: self.images.left(client),
        };
        link.send(Kind::ServerHello, hello.encode())
    }

    fn batch(
        &self,
        link: &mut Link,
        client: IpAddr,
        begin: Begin,
        keys: &ServerKeys,
        record: &mut Record,
    ) -> Result<(), SessionError> {
        let batch = self.checked(begin)?;
        let charged = self.service.plan().charged(batch);
        self.images.spend(client, charged as u64)?;
        let _memory = self.memory_for(cost::memory(self.service.plan(), batch).server)?;
        let mut machine = self.service.start(batch, keys)?;
        drive(machine.as_mut(), link, &mut |_| {})?;
        record.batches += 1;
        record.images += batch as u64;
        let done = Done {
            batch: begin.batch,
            images_left: self.images.left(client),
        };
        link.send(Kind::Done, message::encode(&done))
    }
}

/// What was prepared on a connection: images of each batch, and the memory held for it until it is used.
type PreparedBatches<'a> = Vec<(u32, Taken<'a>)>;

impl Server {
    /// The images of a batch that may begin.
    fn checked(&self, begin: Begin) -> Result<usize, SessionError> {
        if begin.plan_hash != self.plan_hash {
            return Err(SessionError::PlanHash {
                expected: self.plan_hash,
                found: begin.plan_hash,
            });
        }
        let batch = begin.batch as usize;
        if batch == 0 || batch > self.max_batch {
            return Err(SessionError::Batch {
                found: batch,
                most: self.max_batch,
            });
        }
        Ok(batch)
    }

    /// So many bytes of the memory that all sessions share.
    fn memory_for(&self, needed: u64) -> Result<Taken<'_>, SessionError> {
        let place = self.memory.take(needed, self.limits.idle_timeout);
        place.ok_or_else(|| {
            if self.stopping.load(Ordering::SeqCst) {
                return SessionError::Stopping;
            }
            let allowed = self.memory.total();
            SessionError::Memory { needed, allowed }
        })
    }

    /// Prepares a batch; the memory that it takes until it is used.
    fn prepare(
        &self,
        link: &mut Link,
        client: IpAddr,
        begin: Begin,
        keys: &ServerKeys,
    ) -> Result<Taken<'_>, SessionError> {
        let batch = self.checked(begin)?;
        let memory = self.memory_for(cost::prepared(self.service.plan(), batch).memory.server)?;
        let mut machine = self.service.prepare(batch, keys)?;
        drive(machine.as_mut(), link, &mut |_| {})?;
        let done = Done {
            batch: begin.batch,
            images_left: self.images.left(client),
        };
        link.send(Kind::Done, message::encode(&done))?;
        Ok(memory)
    }
}

/// A session's entry in the server's list.
struct Registration<'a> {
    server: &'a Server,
    id: u64,
}

impl<'a> Registration<'a> {
    fn new(server: &'a Server, id: u64, handle: Box<dyn Transport>) -> Self {
        lock(&server.sessions).insert(id, handle);
        Self { server, id }
    }
}

impl Drop for Registration<'_> {
    fn drop(&mut self) {
        lock(&self.server.sessions).remove(&self.id);
    }
}

/// Runs a thread's body; a panic in it (of the log, say) ends the thread, which must not end the server.
fn contained(body: impl FnOnce()) {
    let _ = catch_unwind(AssertUnwindSafe(body));
}

fn last_words(error: &SessionError) -> ErrorMessage {
    ErrorMessage {
        code: error.code(),
        text: error.to_string(),
    }
}

/// A first frame that is none means that the peer speaks another protocol.
pub(crate) fn foreign_peer(error: SessionError) -> SessionError {
    match error {
        SessionError::Frame(
            FrameError::UnknownKind { .. }
            | FrameError::Unexpected { .. }
            | FrameError::TooLong { .. }
            | FrameError::Truncated { .. },
        ) => SessionError::NotPronghorn,
        other => other,
    }
}

/// Most images a batch, and bytes all batches share.
fn within_limits(plan: &Plan, limits: &Limits) -> Result<(usize, u64), SessionError> {
    let refused = |field, reason: String| Err(SessionError::Limits { field, reason });
    if limits.max_clients == 0 {
        return refused("max_clients", "it is 0, which lets nobody in".into());
    }
    if limits.max_images_per_batch == Some(0) {
        return refused(
            "max_images_per_batch",
            "it is 0, which lets nothing through".into(),
        );
    }
    if limits.idle_timeout.is_zero() || limits.message_timeout.is_zero() {
        return refused(
            "timeouts",
            "one is 0, which leaves nobody the time to answer".into(),
        );
    }
    let least = plan.charged(1) as u64;
    if let Some(most) = limits.max_images_per_client.filter(|&most| most < least) {
        return refused(
            "max_images_per_client",
            format!(
                "it is {most}, and every batch of this plan counts as the {least} images that its ciphertexts hold: allow at least as many"
            ),
        );
    }
    let wanted = limits
        .max_images_per_batch
        .unwrap_or(usize::MAX)
        .min(plan.max_batch());
    let Some(memory) = limits.max_memory else {
        return Ok((wanted, cost::memory(plan, wanted).server));
    };
    match cost::max_batch(plan, memory) {
        Ok(fits) => Ok((wanted.min(fits), memory)),
        Err((_, needed)) => refused(
            "max_memory",
            format!("one image needs {needed} bytes, and {memory} are allowed"),
        ),
    }
}

fn listen(address: &str) -> Result<(TcpListener, SocketAddr), SessionError> {
    let full = if address.starts_with(':') {
        format!("0.0.0.0{address}")
    } else {
        address.to_owned()
    };
    let bound = TcpListener::bind(&full)
        .and_then(|listener| listener.local_addr().map(|local| (listener, local)));
    bound.map_err(|source| match source.kind() {
        io::ErrorKind::AddrInUse
        | io::ErrorKind::PermissionDenied
        | io::ErrorKind::AddrNotAvailable => SessionError::Bind {
            address: full,
            source,
        },
        _ => SessionError::Address {
            address: address.to_owned(),
            source,
        },
    })
}

/// An address under which this machine reaches its own listener.
fn reachable(mut address: SocketAddr) -> SocketAddr {
    if address.ip().is_unspecified() {
        address.set_ip(if address.is_ipv4() {
            Ipv4Addr::LOCALHOST.into()
        } else {
            Ipv6Addr::LOCALHOST.into()
        });
    }
    address
}
