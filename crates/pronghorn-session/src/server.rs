//! The server: a thread a client, bounded, each on its own.

use std::{
    collections::HashMap,
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, Shutdown, SocketAddr, TcpListener, TcpStream},
    panic::{AssertUnwindSafe, catch_unwind},
    path::Path,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread::{self, Scope},
    time::{Duration, Instant},
};

use pronghorn_engine::{
    EngineError, KeyCache, Machine, ServerKeys, ServerModel, ServerPreparation, ServerPrepared,
    ServerRun,
};
use pronghorn_plan::{Plan, TrustLevel, cost};
use pronghorn_ring::random::Seed;

use crate::{
    drive::drive,
    error::SessionError,
    frame::{FrameError, Kind, MAX_HANDSHAKE},
    limits::Limits,
    link::{Link, Timeouts},
    message::{self, Begin, Begun, ClientHello, Done, ErrorMessage, Hello, Prepare, ServerHello},
    quota::{ImageQuota, Pool, Taken, lock, network},
    store::{
        Bounds, Name, Owner, Store,
        file::Party,
        publication::{SERVER_SECRET, secret},
    },
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

    /// The server's half of a batch of `batch` images; `keys` are of its connection, and what was `prepared` for it is used up.
    ///
    /// # Errors
    /// When it cannot begin.
    fn start(
        &self,
        batch: usize,
        keys: &ServerKeys,
        prepared: Option<ServerPrepared>,
    ) -> Result<Box<dyn Machine>, EngineError>;

    /// The server's half of the preparation of such a batch.
    ///
    /// # Errors
    /// When it cannot begin, or nothing can be prepared.
    fn prepare(&self, batch: usize, keys: &ServerKeys) -> Result<Box<dyn Preparing>, EngineError>;

    /// Takes the secret that what is published is made with, which stays the same for later runs of the server.
    fn keep_secret(&mut self, _secret: &Seed) {}
}

/// The server's half of a preparation.
pub trait Preparing: Machine {
    /// What was prepared.
    ///
    /// # Errors
    /// When the machine is not done.
    fn into_prepared(self: Box<Self>) -> Result<ServerPrepared, EngineError>;
}

impl Preparing for ServerPreparation {
    fn into_prepared(self: Box<Self>) -> Result<ServerPrepared, EngineError> {
        (*self).into_prepared()
    }
}

struct ModelService(Arc<ServerModel>);

impl Service for ModelService {
    fn plan(&self) -> &Plan {
        self.0.plan()
    }

    fn start(
        &self,
        batch: usize,
        keys: &ServerKeys,
        prepared: Option<ServerPrepared>,
    ) -> Result<Box<dyn Machine>, EngineError> {
        let run = ServerRun::with_prepared(self.0.clone(), batch, keys, prepared)?;
        Ok(Box::new(run))
    }

    fn prepare(&self, batch: usize, keys: &ServerKeys) -> Result<Box<dyn Preparing>, EngineError> {
        Ok(Box::new(ServerPreparation::new(&self.0, batch, keys)?))
    }

    fn keep_secret(&mut self, secret: &Seed) {
        self.0 = Arc::new(self.0.with_secret(secret));
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
    store: Store<ServerPrepared>,
    key_cache: KeyCache,
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
        let store = Store::in_memory(Arc::new(service.plan().clone()), bounds(&limits))?;
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
            store,
            key_cache: KeyCache::default(),
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

    /// Keeps its halves of prepared batches in a directory, for later runs of the server, and the secret of what it publishes; in memory otherwise.
    /// Several servers may share one.
    ///
    /// # Errors
    /// When the file system refuses.
    pub fn with_store(mut self, directory: &Path) -> Result<Self, SessionError> {
        let plan = Arc::new(self.service.plan().clone());
        self.store = Store::open(directory, plan, self.store.bounds())?;
        self.service.keep_secret(&secret(directory, SERVER_SECRET)?);
        Ok(self)
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
        Link::new(
            Party::Server,
            Box::new(stream),
            timeouts,
            self.stopping.clone(),
        )
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
        let mut payload = Vec::new();
        let mut connection = Connection {
            server: self,
            client,
            keys: ServerKeys::sharing(self.key_cache.clone()),
            setup: None,
        };
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
                    connection.batch(link, message::decode(Kind::Begin, &payload)?, record)?;
                }
                Kind::Prepare => {
                    connection.prepare(link, message::decode(Kind::Prepare, &payload)?)?;
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
            prepared_batches: self.limits.max_prepared.try_into().unwrap_or(u32::MAX),
            store: self.store.id(),
        };
        link.send(Kind::ServerHello, hello.encode())
    }

    /// The images of a batch that may begin.
    fn checked(&self, plan_hash: [u8; 32], batch: u32) -> Result<usize, SessionError> {
        if plan_hash != self.plan_hash {
            return Err(SessionError::PlanHash {
                expected: self.plan_hash,
                found: plan_hash,
            });
        }
        let batch = batch as usize;
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

    /// The preparation that a client names, from now on this batch's alone. Where there is none, or it is damaged, the batch runs without.
    fn take_prepared(&self, name: Name, batch: usize) -> Option<ServerPrepared> {
        self.store.take(&name, batch).unwrap_or_else(|error| {
            self.log(&format!("a batch runs without its preparation: {error}"));
            None
        })
    }
}

/// What a session has of its own.
struct Connection<'a> {
    server: &'a Server,
    client: IpAddr,
    keys: ServerKeys,
    /// The set-up of OTs that batches were prepared with.
    setup: Option<[u8; 32]>,
}

impl Connection<'_> {
    fn batch(
        &self,
        link: &mut Link,
        begin: Begin,
        record: &mut Record,
    ) -> Result<(), SessionError> {
        let server = self.server;
        let plan = server.service.plan();
        let batch = server.checked(begin.plan_hash, begin.batch)?;
        server
            .images
            .spend(self.client, plan.charged(batch) as u64)?;
        let (run, both) = (cost::memory(plan, batch).server, memory_to_use(plan, batch));
        // Where memory does not do for it the batch runs without.
        let named = begin.prepared.filter(|_| both <= server.memory.total());
        let _memory = server.memory_for(if named.is_some() { both } else { run })?;
        let prepared = named.and_then(|name| server.take_prepared(name, batch));
        if begin.prepared.is_some() {
            let prepared = prepared.is_some();
            link.send(Kind::Begun, message::encode(&Begun { prepared }))?;
        }
        let mut machine = server.service.start(batch, &self.keys, prepared)?;
        drive(machine.as_mut(), link, &mut |_| {})?;
        record.batches += 1;
        record.images += batch as u64;
        self.done(link, begin.batch)
    }

    /// Prepares a batch and keeps this party's half, the client hears of it only then.
    fn prepare(&mut self, link: &mut Link, asked: Prepare) -> Result<(), SessionError> {
        let server = self.server;
        let batch = server.checked(asked.plan_hash, asked.batch)?;
        let most = server.limits.max_prepared;
        if most == 0 {
            return Err(SessionError::Prepared { found: 1, most });
        }
        let plan = server.service.plan();
        let needed = cost::prepared(plan, batch).memory.server;
        server.store.check(&asked.name, needed)?;
        // What could not be used need not be made.
        let (to_use, allowed) = (memory_to_use(plan, batch), server.memory.total());
        if to_use > allowed {
            let needed = to_use;
            return Err(SessionError::Memory { needed, allowed });
        }
        let _memory = server.memory_for(needed)?;
        let mut machine = server.service.prepare(batch, &self.keys)?;
        drive(machine.as_mut(), link, &mut |_| {})?;
        // Nothing is kept of messages that the line has changed.
        Done::receive(link)?;
        let prepared = machine.into_prepared()?;
        self.setup = Some(prepared.setup());
        let owner = owner(self.client);
        server
            .store
            .put(asked.name, owner, most, needed, prepared)?;
        self.done(link, asked.batch)
    }

    fn done(&self, link: &mut Link, batch: u32) -> Result<(), SessionError> {
        let images_left = self.server.images.left(self.client);
        link.send(Kind::Done, message::encode(&Done { batch, images_left }))
    }
}

/// Destroys what was prepared on the connection where its OTs have failed a check, before the client hears of that.
impl Drop for Connection<'_> {
    fn drop(&mut self) {
        let Some(setup) = self.setup.filter(|setup| self.keys.setup() != Some(*setup)) else {
            return;
        };
        if let Err(error) = self.server.store.destroy(&setup) {
            self.server.log(&format!(
                "prepared batches whose oblivious transfers failed a check are not destroyed: {error}"
            ));
        }
    }
}

/// Whom a client's prepared batches count for: its network.
fn owner(client: IpAddr) -> Owner {
    match network(client) {
        IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
        IpAddr::V6(address) => address.octets(),
    }
}

/// Bytes that a prepared batch takes: of its run, and of the server's half while it is read.
fn memory_to_use(plan: &Plan, batch: usize) -> u64 {
    let run = cost::memory(plan, batch).server;
    run.saturating_add(halves(plan, batch))
}

/// Bytes of the server's half of a prepared batch while it is read: in the file, and laid out.
fn halves(plan: &Plan, batch: usize) -> u64 {
    match plan.trust() {
        TrustLevel::TwoParty => cost::prepared(plan, batch).memory.server.saturating_mul(2),
        _ => 0,
    }
}

/// How many prepared batches are kept.
fn bounds(limits: &Limits) -> Bounds {
    Bounds {
        batches: limits.max_prepared,
        bytes: limits.max_prepared_bytes,
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
        let run = cost::memory(plan, wanted).server;
        // Nothing larger than the store is ever read from it.
        let prepared = halves(plan, wanted).min(limits.max_prepared_bytes.saturating_mul(2));
        return Ok((wanted, run.saturating_add(prepared)));
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
