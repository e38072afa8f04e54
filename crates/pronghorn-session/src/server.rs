//! The server: a thread a client, bounded, each on its own.

mod models;
mod service;
mod session;

use std::{
    collections::HashMap,
    io,
    net::{Ipv4Addr, Ipv6Addr, Shutdown, SocketAddr, TcpListener, TcpStream},
    panic::{AssertUnwindSafe, catch_unwind},
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread::{self, Scope},
    time::{Duration, Instant},
};

use pronghorn_engine::ServerModel;
use pronghorn_plan::TrustLevel;

use self::models::{Models, Served};
pub use self::{
    models::Offer,
    service::{Preparing, Service},
};
use crate::{
    channel::{Acceptor, Binding, ChannelError, ServerChannel},
    error::SessionError,
    limits::{
        Limits,
        table::{Key, Resource},
    },
    link::Link,
    lock::lock,
    log::{Entry, Level},
    metrics::{Failures, Metrics},
    partings::Partings,
    proxy::Network,
    quota::{Counted, Fair, Pool},
    store::{barred::Barred, file::Party},
    text::counted,
    ticket::Tickets,
    transport::{Ends, Timeouts, Transport},
    usage::Usage,
};

/// Connections at once that have not introduced themselves.
const GREETINGS: u64 = 64;

/// How long sessions get to end by themselves when the server stops.
const STOP_PATIENCE: Duration = Duration::from_secs(3);

/// How often a server that ends looks whether its sessions have.
const STEP: Duration = Duration::from_millis(20);

/// How long to wait after the operating system refused a connection.
pub(crate) const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

type Log = Box<dyn Fn(&Entry) + Send + Sync>;

/// A server of models over TCP, or over TLS on it.
///
/// A failing session ends alone: with an `Error` frame to its client and a line in the log.
pub struct Server {
    /// Taken by [`Server::run`], which closes it.
    listener: Mutex<Option<TcpListener>>,
    address: SocketAddr,
    /// None: plain TCP.
    acceptor: Option<Acceptor>,
    models: Mutex<Arc<Models>>,
    limits: Limits,
    places: Fair,
    greetings: Pool,
    partings: Partings,
    memory: Fair,
    failures: Failures,
    refusals: Failures,
    usage: Usage,
    /// Most connections in all.
    most_connections: u64,
    /// What takes tickets; none: clients need none.
    tickets: Option<Tickets>,
    /// Load balancers, which say who connects through them.
    proxies: Vec<Network>,
    barred: Barred,
    /// Where it keeps what outlives it.
    directory: Option<PathBuf>,
    stopping: Arc<AtomicBool>,
    draining: AtomicBool,
    next_session: AtomicU64,
    sessions: Mutex<HashMap<u64, Box<dyn Transport>>>,
    log: Log,
}

impl Server {
    /// Listens on `address` (`HOST:PORT`, `:PORT` for all interfaces, port 0 for any) for clients
    /// of `model`, over plain TCP and for this machine alone.
    ///
    /// # Errors
    /// When the address is wrong, taken or beyond loopback, or the limits let nothing through.
    pub fn bind(
        address: &str,
        model: Arc<ServerModel>,
        limits: Limits,
    ) -> Result<Self, SessionError> {
        Self::bind_over(
            address,
            vec![model.into()],
            limits,
            ServerChannel::default(),
        )
    }

    /// The same for any number of models, with a channel.
    ///
    /// # Errors
    /// As [`Server::bind`], the models cannot be served together, or the files of the channel cannot
    /// be used.
    pub fn bind_over(
        address: &str,
        models: Vec<Offer>,
        limits: Limits,
        channel: ServerChannel,
    ) -> Result<Self, SessionError> {
        let models = Models::new(models, &limits, None, None)?;
        let (listener, local) = listen(address)?;
        let acceptor = acceptor(channel, local)?;
        Ok(Self {
            listener: Mutex::new(Some(listener)),
            address: local,
            acceptor,
            places: Fair::new(limits.caps.places()),
            greetings: Pool::new(GREETINGS),
            partings: Partings::new(limits.partings()),
            memory: Fair::new(models.memory),
            failures: Failures::default(),
            refusals: Failures::default(),
            usage: Usage::new(limits.caps.clone())?,
            most_connections: limits.connections_in_all(),
            tickets: None,
            proxies: Vec::new(),
            barred: Barred::default(),
            directory: None,
            models: Mutex::new(Arc::new(models)),
            limits,
            stopping: Arc::default(),
            draining: AtomicBool::new(false),
            next_session: AtomicU64::new(1),
            sessions: Mutex::default(),
            log: Box::new(|_| {}),
        })
    }

    /// As [`Server::bind`] for any [`Service`].
    ///
    /// # Errors
    /// As [`Server::bind`].
    pub fn bind_service(
        address: &str,
        service: Box<dyn Service>,
        limits: Limits,
    ) -> Result<Self, SessionError> {
        Self::bind_over(
            address,
            vec![service.into()],
            limits,
            ServerChannel::default(),
        )
    }

    /// Serves other models from now on. One that was offered before, and is again, keeps its clients'
    /// keys and prepared batches. Connections of others go on to their end.
    ///
    /// # Errors
    /// The models cannot be served together, or the store refuses: all is as before.
    pub fn offer(&self, models: Vec<Offer>) -> Result<(), SessionError> {
        let before = self.models();
        let directory = self.directory.as_deref();
        let models = Models::new(models, &self.limits, directory, Some(&before))?;
        self.memory.grow(models.memory);
        *lock(&self.models) = Arc::new(models);
        self.warn();
        Ok(())
    }

    /// The models of now.
    fn models(&self) -> Arc<Models> {
        lock(&self.models).clone()
    }

    /// Calls `log` with an entry when a client comes, is refused and leaves. Entries hold addresses,
    /// names, counts and errors, no secrets; what a peer wrote is escaped.
    #[must_use]
    pub fn with_log(mut self, log: impl Fn(&Entry) + Send + Sync + 'static) -> Self {
        self.log = Box::new(log);
        self
    }

    /// Keeps its halves of prepared batches in a directory, for later runs of the server, the secret
    /// of what it publishes, and what clients have used; in memory otherwise. Several servers may
    /// share one.
    ///
    /// # Errors
    /// When the file system refuses, or others may enter the directory.
    pub fn with_store(mut self, directory: &Path) -> Result<Self, SessionError> {
        let models = Mutex::get_mut(&mut self.models).unwrap_or_else(PoisonError::into_inner);
        let models = Arc::get_mut(models).ok_or(SessionError::Bug)?;
        models.keep_in(directory)?;
        self.usage.keep_in(directory)?;
        self.barred = Barred::in_store(directory);
        self.directory = Some(directory.to_owned());
        Ok(self)
    }

    /// Serves clients with a ticket of an admission service alone.
    #[must_use]
    pub fn with_tickets(self, tickets: Tickets) -> Self {
        let tickets = Some(tickets);
        Self { tickets, ..self }
    }

    /// Believes load balancers at these addresses who connects through them. Each of their
    /// connections has to begin with a header of the PROXY protocol, version 1 or 2.
    #[must_use]
    pub fn with_proxies(self, proxies: Vec<Network>) -> Self {
        Self { proxies, ..self }
    }

    /// The SHA-256 of its certificate, in hexadecimal, which clients may pin; none on plain TCP.
    pub fn fingerprint(&self) -> Option<String> {
        self.acceptor.as_ref().map(Acceptor::fingerprint)
    }

    /// The address it listens on.
    pub fn local_addr(&self) -> SocketAddr {
        self.address
    }

    /// Serves until [`Server::stop`], and returns once all sessions have ended. A second call
    /// returns at once.
    pub fn run(&self) {
        let Some(listener) = lock(&self.listener).take() else {
            return;
        };
        self.warn();
        thread::scope(|scope| {
            let parting = thread::Builder::new().name("pronghorn refusals".into());
            let seen_off = || self.partings.see_off(&self.stopping);
            if let Err(error) = parting.spawn_scoped(scope, seen_off) {
                let text = format!("refused clients may not hear why: no thread: {error}");
                self.log(Entry::new(Level::Error, "system", &text));
            }
            let mut failing = false;
            while !self.stopping.load(Ordering::SeqCst) {
                match listener.accept() {
                    Ok((stream, client)) => {
                        failing = false;
                        let client = SocketAddr::new(client.ip().to_canonical(), client.port());
                        self.admit(scope, stream, client);
                    }
                    Err(error) => {
                        if !failing {
                            let text = format!("cannot accept connections: {error}");
                            self.log(Entry::new(Level::Error, "accept", &text));
                        }
                        failing = true;
                        thread::sleep(ACCEPT_PAUSE);
                    }
                }
            }
            drop(listener);
            if !self.wait_for_sessions(STOP_PATIENCE) {
                self.cut_sessions(Shutdown::Both);
            }
        });
    }

    /// Says what the models' owner should know.
    fn warn(&self) {
        let models = self.models();
        let of_images = models
            .served()
            .find_map(|served| self.warning_of_images(served));
        let of_keys = models.served().find_map(|served| warning_of_keys(served));
        let certificate = self.acceptor.as_ref().and_then(Acceptor::warning);
        let warnings = [of_images, of_keys, certificate.as_deref()];
        for warning in warnings.into_iter().flatten() {
            let text = format!("warning: {warning}");
            self.log(Entry::new(Level::Warning, "limits", &text));
        }
    }

    /// What the model's owner should know of the limits on its clients, if anything.
    fn warning_of_images(&self, served: &Served) -> Option<&'static str> {
        let hides = matches!(
            served.plan().trust,
            TrustLevel::TwoParty | TrustLevel::Encrypted
        );
        let knows_clients = self.acceptor.as_ref().is_some_and(Acceptor::knows_clients);
        match self.limits.caps.of(Resource::Images, Key::Client) {
            _ if !hides => None,
            None => Some(
                "clients may ask without limit, and enough answers give the model away: set a limit for each client \
                 (--max-images N)",
            ),
            Some(_) if !knows_clients => Some(
                "images are counted by address, and a client may have many: let clients show a certificate or a token \
                 (--tls)",
            ),
            Some(_) if self.directory.is_none() => {
                Some("the count of images ends with this process: keep it (--store DIR)")
            }
            Some(_) => None,
        }
    }

    /// Takes no new clients, ends sessions once their batch is done, and waits for that as long as
    /// `patience`; whether all have ended. [`Server::stop`] comes after it.
    pub fn drain(&self, patience: Duration) -> bool {
        if !self.draining.swap(true, Ordering::SeqCst) {
            let sessions = counted(lock(&self.sessions).len() as u64, "session", "sessions");
            let text = format!("no new clients: waiting for {sessions} to end");
            self.log(Entry::new(Level::Info, "draining", &text));
        }
        self.places.close();
        self.wait_for_sessions(patience)
    }

    /// Whether it takes new clients.
    pub fn is_ready(&self) -> bool {
        !self.is_draining() && lock(&self.listener).is_none()
    }

    fn is_draining(&self) -> bool {
        self.draining.load(Ordering::SeqCst) || self.stopping.load(Ordering::SeqCst)
    }

    /// Its state and counters.
    pub fn metrics(&self) -> Metrics {
        let models = self.models();
        Metrics {
            ready: self.is_ready(),
            run: self.tickets.as_ref().map(Tickets::run),
            connections: lock(&self.sessions).len() as u64,
            places: self.places.total(),
            places_used: self.places.used(),
            queued: self.places.waiting().load(Ordering::Relaxed) as u64,
            memory: self.memory.total(),
            memory_used: self.memory.used(),
            waiting: self.memory.waiting().load(Ordering::Relaxed) as u64,
            failures: self.failures.read(),
            refusals: self.refusals.read(),
            models: models.served().map(|served| served.metrics()).collect(),
        }
    }

    /// Waits as long as `patience` until all sessions have ended; whether they have.
    fn wait_for_sessions(&self, patience: Duration) -> bool {
        let deadline = Instant::now().checked_add(patience);
        while !lock(&self.sessions).is_empty() {
            if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                return false;
            }
            thread::sleep(STEP);
        }
        true
    }

    /// Makes [`Server::run`] return, for good: no new clients, and running sessions end at their
    /// next message.
    pub fn stop(&self) {
        self.stopping.store(true, Ordering::SeqCst);
        self.places.close();
        self.memory.close();
        self.cut_sessions(Shutdown::Read);
        // Wakes the accept loop. Should this fail, then because connections are waiting, which wake
        // it too.
        let _ = TcpStream::connect_timeout(&reachable(self.address), Duration::from_secs(1));
    }

    fn cut_sessions(&self, how: Shutdown) {
        for session in lock(&self.sessions).values() {
            // A session that has just ended has no line to cut.
            let _ = session.shutdown(how);
        }
    }

    fn log(&self, entry: Entry) {
        (self.log)(&entry);
    }

    /// Starts a session's thread, or refuses.
    fn admit<'scope>(
        &'scope self,
        scope: &'scope Scope<'scope, '_>,
        stream: TcpStream,
        client: SocketAddr,
    ) {
        if self.is_draining() {
            return self.partings.refuse(stream, &SessionError::Stopping);
        }
        // Small messages must not wait for more; where the option is missing they do.
        let _ = stream.set_nodelay(true);
        let counted = match self.count_connection(client) {
            Ok(counted) => counted,
            Err(error) => return self.refuse(stream, client, &error),
        };
        let Some(greeting) = self.greetings.take(1, Duration::ZERO) else {
            let most = self.limits.caps.places();
            return self.refuse(stream, client, &SessionError::TooManyClients { most });
        };
        let spare = stream.try_clone();
        let thread = thread::Builder::new().name("pronghorn session".into());
        let started = thread.spawn_scoped(scope, move || {
            let _counted = counted;
            contained(|| self.session_thread(stream, client, greeting));
        });
        if let (Err(source), Ok(stream)) = (started, spare) {
            let what = "a thread";
            self.refuse(stream, client, &SessionError::System { what, source });
        }
    }

    /// Counts a connection in all, and of its address unless that is a load balancer's.
    fn count_connection(
        &self,
        client: SocketAddr,
    ) -> Result<[Option<Counted<'_>>; 2], SessionError> {
        let all = self.usage.connect(self.most_connections)?;
        let own = match self.is_proxy(client) {
            true => None,
            false => Some(self.count_address(client)?),
        };
        Ok([Some(all), own])
    }

    fn count_address(&self, client: SocketAddr) -> Result<Counted<'_>, SessionError> {
        let most = self.limits.caps.connections_of(Key::Address, client.ip());
        self.usage.connect_from(client.ip(), most)
    }

    fn is_proxy(&self, client: SocketAddr) -> bool {
        self.proxies.iter().any(|proxy| proxy.has(client.ip()))
    }

    /// Says why, without a thread.
    fn refuse(&self, stream: TcpStream, client: SocketAddr, error: &SessionError) {
        let text = format!("{client}: refused: {error}");
        let entry = Entry::new(Level::Warning, "refused", &text);
        self.log(entry.text("address", client).text("reason", error.reason()));
        self.failures.add(error);
        self.refusals.add(error);
        self.partings.refuse(stream, error);
    }

    /// What ends a session's waiting.
    fn ends(&self) -> Ends {
        let contended = self.limits.contended_timeout;
        Ends::sharing(self.stopping.clone(), self.memory.waiting(), contended)
    }

    fn link(
        &self,
        transport: Box<dyn Transport>,
        binding: Option<&Binding>,
        ends: Ends,
    ) -> Result<Link, SessionError> {
        let timeouts = Timeouts {
            idle: self.limits.idle_timeout,
            message: self.limits.message_timeout,
        };
        Link::new(Party::Server, transport, binding, timeouts, ends)
    }
}

/// What the owner should know of unchecked keys.
fn warning_of_keys(served: &Served) -> Option<&'static str> {
    let plan = served.plan();
    (plan.checks_keys() && plan.key_checks == 1).then_some(
        "clients' keys are not checked, and one answer to a false key gives the weights of a layer: leave \
         --key-checks 1 out",
    )
}

/// Runs a thread's body; a panic in it (of the log, say) ends the thread, which must not end the
/// server.
pub(crate) fn contained(body: impl FnOnce()) {
    let _ = catch_unwind(AssertUnwindSafe(body));
}

pub(crate) fn listen(address: &str) -> Result<(TcpListener, SocketAddr), SessionError> {
    // `::` takes clients of IPv4, too. A machine may have no IPv6.
    let all = |any: &str| format!("{any}{address}");
    let (full, bound) = match address.starts_with(':') {
        true => match TcpListener::bind(all("[::]")) {
            Ok(listener) => (all("[::]"), Ok(listener)),
            Err(_) => (all("0.0.0.0"), TcpListener::bind(all("0.0.0.0"))),
        },
        false => (address.to_owned(), TcpListener::bind(address)),
    };
    let bound = bound.and_then(|listener| listener.local_addr().map(|local| (listener, local)));
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

/// The TLS of a channel, which plain TCP beyond this machine must be asked for not to have.
pub(crate) fn acceptor(
    channel: ServerChannel,
    local: SocketAddr,
) -> Result<Option<Acceptor>, ChannelError> {
    match channel {
        ServerChannel::Tls(files) => Acceptor::new(files).map(Some),
        ServerChannel::Loopback if !local.ip().to_canonical().is_loopback() => {
            let address = local.to_string();
            Err(ChannelError::PlainListen { address })
        }
        ServerChannel::Loopback | ServerChannel::InsecurePlainTcp => Ok(None),
    }
}

/// An address under which this machine reaches its own listener.
pub(crate) fn reachable(mut address: SocketAddr) -> SocketAddr {
    if address.ip().is_unspecified() {
        address.set_ip(if address.is_ipv4() {
            Ipv4Addr::LOCALHOST.into()
        } else {
            Ipv6Addr::LOCALHOST.into()
        });
    }
    address
}
