//! The cloud: listens, and a thread for each connection.

use std::{
    collections::BTreeSet,
    fs,
    io::Write,
    net::{IpAddr, SocketAddr, TcpListener, TcpStream},
    panic::{AssertUnwindSafe, catch_unwind},
    path::Path,
    sync::{
        Arc, Mutex, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread::{self, Scope},
    time::Duration,
};

use pronghorn_he::multikey::Party;
use pronghorn_multikey::roles::Service;

use super::{
    attended::Attended,
    error::{CloudError, Refusal},
    files::Directory,
    limits::{CONNECTIONS, CloudLimits, Guest},
    message::{Role, What},
    peer::Peer,
};
use crate::{
    channel::{Acceptor, Admission, Secured, ServerChannel},
    error::{ErrorCode, SessionError},
    frame::FrameError,
    limits::table::{Caps, Key, Resource},
    link::Link,
    lock::lock,
    log::{Entry, Level},
    partings::Partings,
    quota::{Counted, Denied, Fair, Share},
    server::{ACCEPT_PAUSE, acceptor, contained, listen, reachable},
    store::file::Party as End,
    text::hex,
    transport::{Ends, Timeouts},
    usage::{Usage, Whose, over},
};

/// The publication, after its name.
const PUBLICATION: &str = "publication";
/// The name in the certificate or token of who published first.
const PUBLISHER: &str = "publisher";
/// Public keys of a client, before its name.
pub(super) const KEYS: &str = "client-";
/// The key of the model owner and a client, before the client's name.
pub(super) const PAIRS: &str = "pair-";
/// The name in the certificate or token of the client of a name, before that name.
const IDENTITY: &str = "name-";
/// Bytes of a publication's name.
const NAME: usize = 16;
/// Connections that are refused and not closed yet, at most.
const MOST_PARTING: usize = 64;

/// How a cloud is run.
#[derive(Clone, Debug, Default)]
pub struct CloudOptions {
    /// The only model owner that may publish; where none is named, the first that does. Over TLS
    /// with names of clients its place is that of the name that published first.
    pub owner: Option<Party>,
    /// How connections are protected.
    pub channel: ServerChannel,
    /// Limits.
    pub limits: CloudLimits,
}

/// A cloud for one model, which it cannot read, and its clients.
pub struct CloudServer {
    /// Taken by [`CloudServer::run`], which closes it.
    listener: Mutex<Option<TcpListener>>,
    address: SocketAddr,
    acceptor: Option<Acceptor>,
    pub(super) options: CloudOptions,
    pub(super) directory: Directory,
    service: RwLock<Option<Published>>,
    /// One publication at a time.
    publishing: Mutex<()>,
    /// One expansion of keys or models at a time.
    pub(super) expansion: Mutex<()>,
    /// Clients whose keys are in memory, those that asked last at the end. Taken after `service`
    /// where both are.
    pub(super) recent: Mutex<Vec<Party>>,
    /// Clients whose keys are on their way.
    pub(super) joining: Mutex<BTreeSet<Party>>,
    /// One look at, and change of, who has which name.
    naming: Mutex<()>,
    pub(super) attended: Attended,
    pub(super) usage: Usage,
    pub(super) places: Fair,
    pub(super) turns: Fair,
    partings: Partings,
    pub(super) stopping: Arc<AtomicBool>,
    next: AtomicU64,
    log: Box<dyn Fn(&Entry) + Send + Sync>,
}

/// A publication under its name.
pub(super) struct Published {
    pub name: [u8; NAME],
    pub service: Service<u32>,
}

impl CloudServer {
    /// Listens on `address`, and keeps the publication and public keys in a directory. What is in
    /// it from an earlier run is served again.
    ///
    /// # Errors
    /// When the address is wrong or taken, plain TCP goes beyond loopback, or the directory has
    /// something else.
    pub fn bind(
        address: &str,
        directory: &Path,
        options: CloudOptions,
    ) -> Result<Self, CloudError> {
        let directory = Directory::open(directory)?;
        let published = match directory.read(PUBLICATION)? {
            Some(bytes) => Some(read_publication(&bytes)?),
            None => None,
        };
        let (listener, local) = listen(address)?;
        let acceptor = acceptor(options.channel.clone(), local).map_err(SessionError::from)?;
        let limits = &options.limits;
        let mut usage = Usage::new(limits.caps.clone())?;
        usage.keep_in(directory.path())?;
        Ok(Self {
            listener: Mutex::new(Some(listener)),
            address: local,
            acceptor,
            directory,
            service: RwLock::new(published),
            publishing: Mutex::new(()),
            expansion: Mutex::new(()),
            recent: Mutex::default(),
            joining: Mutex::default(),
            naming: Mutex::new(()),
            attended: Attended::default(),
            usage,
            places: Fair::new(limits.caps.places()),
            turns: Fair::new(limits.evaluations),
            partings: Partings::new(MOST_PARTING),
            options,
            stopping: Arc::default(),
            next: AtomicU64::new(1),
            log: Box::new(|_| {}),
        })
    }

    /// Calls `log` with an entry when a party comes, is refused and leaves.
    #[must_use]
    pub fn with_log(mut self, log: impl Fn(&Entry) + Send + Sync + 'static) -> Self {
        self.log = Box::new(log);
        self
    }

    /// The address it listens on.
    pub fn local_addr(&self) -> SocketAddr {
        self.address
    }

    /// The SHA-256 of its certificate, in hexadecimal; none on plain TCP.
    pub fn fingerprint(&self) -> Option<String> {
        self.acceptor.as_ref().map(Acceptor::fingerprint)
    }

    /// Serves until [`CloudServer::stop`], and returns once all connections have ended. A second
    /// call returns at once.
    pub fn run(&self) {
        let Some(listener) = lock(&self.listener).take() else {
            return;
        };
        thread::scope(|scope| {
            let seen_off = || self.partings.see_off(&self.stopping);
            let parting = thread::Builder::new().name("pronghorn refusals".into());
            if let Err(error) = parting.spawn_scoped(scope, seen_off) {
                let text = format!("refused peers may not hear why: no thread: {error}");
                self.log(Entry::new(Level::Error, "system", &text));
            }
            while !self.is_stopping() {
                match listener.accept() {
                    Ok((stream, address)) => self.admit(scope, stream, address),
                    Err(error) => {
                        let text = format!("cannot accept connections: {error}");
                        self.log(Entry::new(Level::Error, "accept", &text));
                        thread::sleep(ACCEPT_PAUSE);
                    }
                }
            }
        });
    }

    /// Makes [`CloudServer::run`] return, for good.
    pub fn stop(&self) {
        self.stopping.store(true, Ordering::SeqCst);
        self.places.close();
        self.turns.close();
        // Wakes the accept loop. Should this fail, then because connections are waiting, which wake
        // it too.
        let _ = TcpStream::connect_timeout(&reachable(self.address), Duration::from_secs(1));
    }

    pub(super) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::SeqCst)
    }

    pub(super) fn log(&self, entry: Entry) {
        (self.log)(&entry);
    }

    /// Starts a connection's thread, or refuses.
    fn admit<'scope>(
        &'scope self,
        scope: &'scope Scope<'scope, '_>,
        stream: TcpStream,
        address: SocketAddr,
    ) {
        // Small messages must not wait for more; where the option is missing they do.
        let _ = stream.set_nodelay(true);
        let address = SocketAddr::new(address.ip().to_canonical(), address.port());
        let counted = match self.count_connection(address.ip()) {
            Ok(counted) => counted,
            Err(error) => {
                let text = format!("{address}: refused: {error}");
                let entry = Entry::new(Level::Warning, "refused", &text);
                self.log(
                    entry
                        .text("address", address)
                        .text("reason", error.reason()),
                );
                return self.partings.refuse(stream, &error);
            }
        };
        let thread = thread::Builder::new().name("pronghorn role".into());
        let started = thread.spawn_scoped(scope, move || {
            let _counted = counted;
            contained(|| self.connection(stream, address));
        });
        if let Err(error) = started {
            let text = format!("{address}: refused: no thread: {error}");
            self.log(Entry::new(Level::Error, "system", &text));
        }
    }

    /// One connection from its first byte to its end.
    fn connection(&self, stream: TcpStream, address: SocketAddr) {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let (mut line, mut guest) = (None, None);
        let session = AssertUnwindSafe(|| {
            let (link, admission) = self.channel(stream)?;
            let peer = line.insert(Peer::new(link));
            let may_prove = admission.binding().is_some();
            let mut identity = None;
            let admit = |proof: Option<&[u8]>| {
                identity = admission.client(proof).map_err(SessionError::from)?;
                Ok(())
            };
            let hello = peer.hello(self.options.limits.hello, may_prove, admit)?;
            let whose = Whose::new(address.ip(), identity.clone());
            let _counted = self.count_hello(&whose)?;
            match hello.role {
                Role::Client => {
                    let guest = guest.insert(Guest::new(whose));
                    self.client((peer, guest), Party(hello.owner), identity.as_deref(), id)
                }
                Role::Owner(name) => {
                    let owner = Party(hello.owner);
                    if !self.is_published(owner, &name) {
                        self.check_publisher(identity.as_deref())?;
                    }
                    self.owner(&mut line, (owner, identity), name, id)
                }
            }
        });
        let bug = |_| Err(SessionError::Bug.into());
        let outcome = catch_unwind(session).unwrap_or_else(bug);
        let bytes = line.as_ref().map_or([0; 2], Peer::bytes);
        let uncounted = guest.map(|mut guest| self.count_bytes(&mut guest, bytes));
        if let Some(Err(error)) = uncounted {
            let text = format!("connection {id} ({address}): its bytes are not counted: {error}");
            self.log(Entry::new(Level::Error, "system", &text).number("session", id));
        }
        if let Some(peer) = &mut line {
            let told = outcome.as_ref().err().and_then(|error| self.told(error));
            if let Some((refusal, text)) = told {
                // The peer may have gone.
                let _ = peer.refuse(refusal, &text);
            }
            peer.close(outcome.as_ref().err());
        }
        let [sent, received] = bytes;
        let (level, ending) = match &outcome {
            Ok(()) => (Level::Info, String::new()),
            Err(_) if self.is_stopping() => (Level::Info, ": the cloud stops".into()),
            Err(CloudError::Session(SessionError::Frame(FrameError::Closed))) => {
                (Level::Info, ": it closed the connection".into())
            }
            Err(error) => (Level::Warning, format!(": {error}")),
        };
        let text = format!(
            "connection {id} ({address}) left: {received} bytes received, {sent} bytes sent{ending}"
        );
        let entry = Entry::new(level, "left", &text).number("session", id);
        self.log(
            entry
                .number("bytes_received", received)
                .number("bytes_sent", sent),
        );
    }

    /// What a peer is told of an error that ends its connection, in the messages of roles.
    fn told(&self, error: &CloudError) -> Option<(Refusal, String)> {
        match error {
            CloudError::Refused { refusal, text } => Some((*refusal, text.clone())),
            CloudError::Role(error) => Some((Refusal::Message, error.to_string())),
            CloudError::Message { .. } => Some((Refusal::Message, error.to_string())),
            CloudError::File { .. } | CloudError::Store(_) | CloudError::Random(_) => Some((
                Refusal::Internal,
                "the cloud failed; its log says more".into(),
            )),
            _ => None,
        }
    }

    /// The channel of a connection.
    fn channel(&self, stream: TcpStream) -> Result<(Link, Admission), SessionError> {
        let ends = Ends::alone(self.stopping.clone());
        let secured = match &self.acceptor {
            None => Secured::plain(stream),
            Some(acceptor) => {
                let log = |level, line: &str| self.log(Entry::new(level, "tls", line));
                acceptor.secure(stream, &ends, self.options.limits.hello, &log)?
            }
        };
        let (transport, admission) = Admission::split(secured);
        let idle = self.options.limits.idle;
        let timeouts = Timeouts {
            idle,
            message: idle,
        };
        let link = Link::new(End::Server, transport, admission.binding(), timeouts, ends)?;
        Ok((link, admission))
    }

    /// The publication, where there is one.
    pub(super) fn published(&self) -> RwLockReadGuard<'_, Option<Published>> {
        self.service.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn published_mut(&self) -> RwLockWriteGuard<'_, Option<Published>> {
        self.service.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether an owner's publication of this name is here. The name is random, and the owner, its
    /// delegate and the cloud alone have it: so who knows it may attend.
    fn is_published(&self, owner: Party, name: &[u8; NAME]) -> bool {
        let published = self.published();
        let published = published.as_ref();
        published.is_some_and(|x| {
            let differs = x.name.iter().zip(name).fold(0, |all, (x, y)| all | x ^ y);
            x.service.owner() == owner && differs == 0
        })
    }

    /// Refuses the owner's place to others than who published first, by the name in a certificate
    /// or token. Anybody could know the owner's key and claim its name. Where nobody has such a name
    /// nothing tells them apart.
    pub(super) fn check_publisher(&self, identity: Option<&str>) -> Result<(), CloudError> {
        self.check_name(PUBLISHER, identity, |first| {
            format!(
                "the model here is {first}'s: publish with that certificate or token, or to another cloud"
            )
        })
    }

    /// Binds a client's name to the name in its certificate or token when it comes first, and
    /// refuses others from then on: a client's introduction is no secret.
    pub(super) fn bind_client(
        &self,
        client: Party,
        identity: Option<&str>,
    ) -> Result<(), CloudError> {
        let _one = lock(&self.naming);
        let file = format!("{IDENTITY}{}", hex(&client.0));
        self.check_name(&file, identity, |first| {
            format!("client {client} is {first}: come with that certificate or token")
        })?;
        self.bind_name(&file, identity)
    }

    /// Refuses others than whose name is in a file.
    fn check_name(
        &self,
        file: &str,
        identity: Option<&str>,
        text: impl FnOnce(&str) -> String,
    ) -> Result<(), CloudError> {
        match self.directory.read(file)? {
            Some(first) if identity.map(str::as_bytes) != Some(first.as_slice()) => {
                let text = text(&String::from_utf8_lossy(&first));
                let refusal = Refusal::OtherOwner;
                Err(CloudError::Refused { refusal, text })
            }
            _ => Ok(()),
        }
    }

    /// Keeps a name, where there is one.
    fn bind_name(&self, file: &str, identity: Option<&str>) -> Result<(), CloudError> {
        let Some(identity) = identity else {
            return Ok(());
        };
        let kept = self.directory.replace(file, identity.as_bytes());
        kept.map_err(CloudError::file(&self.directory.file(file)))
    }

    /// Takes a publication from its owner, in place of an earlier one of that owner, and binds the
    /// owner's place to who brought it.
    pub(super) fn publish(
        &self,
        peer: &mut Peer,
        (owner, identity): (Party, Option<&str>),
        name: [u8; NAME],
    ) -> Result<(), CloudError> {
        let limits = &self.options.limits;
        let header = peer.begin(limits.idle, &[(What::Publication, limits.upload)])?;
        let Ok(_alone) = self.publishing.try_lock() else {
            let text = "another publication is on its way".into();
            let refusal = Refusal::Busy;
            return Err(CloudError::Refused { refusal, text });
        };
        // Another may have published since this connection began.
        self.check_publisher(identity)?;
        let failed = CloudError::file(&self.directory.file(PUBLICATION));
        let mut file = self.directory.part(PUBLICATION).map_err(&failed)?;
        file.write_all(&name).map_err(&failed)?;
        let received = peer.body_to(header, &mut file);
        let published = received.and_then(|()| {
            let _one = lock(&self.expansion);
            let published = read_publication(&self.directory.read_part(PUBLICATION)?)?;
            if published.service.owner() == owner {
                return Ok(published);
            }
            let text = format!("the publication is not that of {owner}");
            let refusal = Refusal::Message;
            Err(CloudError::Refused { refusal, text })
        });
        let published = published.inspect_err(|_| self.directory.remove_part(PUBLICATION))?;
        // Public keys serve on where the description is the same.
        let description = &published.service.terms().description;
        let serve_on = |x: &Published| x.service.terms().description == *description;
        if !self.published().as_ref().is_some_and(serve_on) {
            let kept = [KEYS, PAIRS, IDENTITY].map(|start| self.kept(start));
            for name in kept.into_iter().collect::<Result<Vec<_>, _>>()?.concat() {
                let path = self.directory.file(&name);
                self.directory
                    .remove(&name)
                    .map_err(CloudError::file(&path))?;
            }
        }
        self.directory
            .complete(PUBLICATION, file)
            .map_err(&failed)?;
        self.bind_name(PUBLISHER, identity)?;
        // In one step: keys that are loaded meanwhile belong to the one service or the other.
        let mut service = self.published_mut();
        lock(&self.recent).clear();
        *service = Some(published);
        Ok(())
    }

    /// Files of clients whose names begin so.
    pub(super) fn kept(&self, start: &str) -> Result<Vec<String>, CloudError> {
        let listed = fs::read_dir(self.directory.path());
        let listed = listed.map_err(CloudError::file(self.directory.path()))?;
        let names = listed.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        Ok(names.filter(|name| name.starts_with(start)).collect())
    }
}

/// A publication after its name.
fn read_publication(bytes: &[u8]) -> Result<Published, CloudError> {
    let cut = || CloudError::Message {
        reason: "a publication without a name".into(),
    };
    let (name, bytes) = bytes.split_first_chunk().ok_or_else(cut)?;
    Ok(Published {
        name: *name,
        service: Service::new(bytes)?,
    })
}

pub(super) fn no_model() -> CloudError {
    CloudError::Refused {
        refusal: Refusal::NoModel,
        text: "the cloud has no model yet: its owner has to publish one first".into(),
    }
}

impl CloudServer {
    fn caps(&self) -> &Caps {
        &self.options.limits.caps
    }

    /// Counts a connection in all, and of its address.
    pub(super) fn count_connection(
        &self,
        address: IpAddr,
    ) -> Result<[Counted<'_>; 2], SessionError> {
        let most = self.caps().of(Resource::Connections, Key::All);
        let all = self
            .usage
            .connect(most.map_or(CONNECTIONS, |cap| cap.most))?;
        let most = self.caps().connections_of(Key::Address, address);
        Ok([all, self.usage.connect_from(address, most)?])
    }

    /// Counts a hello, and a connection of whoever has sent it.
    pub(super) fn count_hello(&self, whose: &Whose) -> Result<Counted<'_>, CloudError> {
        self.usage.request(whose).map_err(limited)?;
        let most = self.caps().connections_of(Key::Client, whose.ip);
        self.usage.connect_client(whose, most).map_err(limited)
    }

    /// A client's place, for which it waits.
    pub(super) fn place_for(&self, whose: &Whose) -> Result<Share<'_>, CloudError> {
        let most = |key| Some(self.caps().of(Resource::Sessions, key)?.most);
        self.share_of(&self.places, Resource::Sessions, whose, most, most)
    }

    /// A turn to evaluate, for which a request waits.
    pub(super) fn turn_for(&self, whose: &Whose) -> Result<Share<'_>, CloudError> {
        let percent = |key| self.caps().memory_share_of(key, whose.ip);
        let most = |key| Some(self.turns.total() * percent(key)? / 100);
        self.share_of(&self.turns, Resource::Memory, whose, most, percent)
    }

    /// One part of what clients share. A client and its address have `most` parts, by limits of
    /// these values.
    fn share_of<'a>(
        &self,
        shared: &'a Fair,
        resource: Resource,
        whose: &Whose,
        most: impl Fn(Key) -> Option<u64>,
        value: impl Fn(Key) -> Option<u64>,
    ) -> Result<Share<'a>, CloudError> {
        let patience = self.options.limits.queue;
        let share = shared.take(whose.claim(most), 1, patience, usize::MAX);
        share.map_err(|denied| match denied {
            _ if self.is_stopping() => SessionError::Stopping.into(),
            Denied::Over(key) => limited(over(resource, key, value(key))),
            Denied::Busy => CloudError::Refused {
                refusal: Refusal::Busy,
                text: "the cloud is busy: try again later".into(),
            },
        })
    }

    /// Counts public keys that are to come.
    pub(super) fn count_keys(&self, whose: &Whose) -> Result<(), CloudError> {
        let more = [(Resource::Setups, 1), (Resource::Bytes, 0)];
        self.usage.begin(whose, &more).map_err(limited)
    }

    /// Counts an image that was asked for.
    pub(super) fn count_request(&self, whose: &Whose) -> Result<(), CloudError> {
        self.usage.request(whose).map_err(limited)
    }

    /// Counts an image that is to be evaluated.
    pub(super) fn count_image(&self, whose: &Whose) -> Result<(), CloudError> {
        let images = [Resource::Images, Resource::DailyImages].map(|resource| (resource, 1));
        let more = [&images[..], &[(Resource::Bytes, 0)]].concat();
        self.usage.begin(whose, &more).map_err(limited)
    }

    /// Counts the bytes of a client's connection, of which there are so many.
    pub(super) fn count_bytes(&self, guest: &mut Guest, bytes: [u64; 2]) -> Result<(), CloudError> {
        let all = bytes.iter().sum();
        let more = all - guest.counted;
        guest.counted = all;
        Ok(self.usage.add_bytes(&guest.whose, more)?)
    }
}

/// A limit in the words of roles, after which the client may ask on.
fn limited(error: SessionError) -> CloudError {
    let refusal = match error.code() {
        ErrorCode::Busy => Refusal::Busy,
        ErrorCode::Limit => Refusal::Limit,
        _ => return error.into(),
    };
    let text = error.to_string();
    CloudError::Refused { refusal, text }
}
