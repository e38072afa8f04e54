//! The client: connects, checks, predicts.

use std::{
    io, iter,
    net::{TcpStream, ToSocketAddrs},
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use pronghorn_engine::{
    ClientInputs, ClientKeys, ClientPreparation, ClientPrepared, EngineError, Machine, Progress,
};
use pronghorn_plan::{Plan, TrustLevel, cost, plan::MAX_BYTES, slots, trust};

use crate::{
    drive::drive,
    error::SessionError,
    frame::{Kind, MAX_HANDSHAKE},
    link::{Link, Timeouts, Traffic},
    message::{self, Begin, Begun, ClientHello, Done, ErrorMessage, Hello, Prepare, ServerHello},
    refill::Refill,
    server::foreign_peer,
    store::{
        Bounds, Name, Owner, Store,
        publication::{PublicationFile, secret},
    },
    text::hex,
    transport::Transport,
};

/// What a client asks for.
#[derive(Clone, Debug)]
pub struct ConnectOptions {
    /// What this connection may reveal; none: [`TrustLevel::TwoParty`].
    pub trust: Option<TrustLevel>,
    /// The hash of the plan, where the user knows it; any other plan is refused.
    pub expected_plan_hash: Option<[u8; 32]>,
    /// A plan the client already holds; it is not sent again if the server still serves it.
    pub plan: Option<Arc<Plan>>,
    /// Bytes the client's values may take; batches are made small enough, and a plan with which not even one image
    /// fits is refused.
    pub max_memory: u64,
    /// The directory where the client's halves of prepared batches are kept for later connections; in memory where none is named.
    pub store: Option<PathBuf>,
    /// Bytes they may take there; in memory `max_memory` holds for them.
    pub max_store: u64,
    /// How long to wait for a connection.
    pub connect_timeout: Duration,
    /// How long the server may be silent, which includes its computing between two messages.
    pub timeout: Duration,
    /// Set from another thread, it ends what the client is doing with [`SessionError::Cancelled`], and with that the
    /// session: within a fraction of a second, or when the computing of one message is over.
    pub cancel: Arc<AtomicBool>,
}

impl Default for ConnectOptions {
    fn default() -> Self {
        Self {
            trust: None,
            expected_plan_hash: None,
            plan: None,
            max_memory: 8 << 30,
            store: None,
            max_store: 16 << 30,
            connect_timeout: Duration::from_secs(10),
            timeout: Duration::from_secs(600),
            cancel: Arc::default(),
        }
    }
}

/// A connection to a server, for any number of predictions one after another.
pub struct Client {
    link: Link,
    plan: Arc<Plan>,
    plan_hash: [u8; 32],
    max_batch: usize,
    max_memory: u64,
    images_left: Option<u64>,
    cancel: Arc<AtomicBool>,
    over: bool,
    /// Of this connection, for plans whose keys serve all its batches.
    keys: ClientKeys,
    store: Arc<Store<ClientPrepared>>,
    /// Where what the server publishes is kept.
    published: Option<PublicationFile>,
    /// The server's store, and the batches it keeps for this client.
    server: Owner,
    prepared_batches: usize,
    /// The set-up of OTs that batches were prepared with.
    setup: Option<[u8; 32]>,
    /// How to connect again, where that is known.
    again: Option<(String, ConnectOptions)>,
    refill: Option<Refill>,
    /// Batches that it keeps prepared.
    kept: usize,
}

/// How far a run is, in images.
#[derive(Clone, Copy, Debug, Default, PartialEq, PartialOrd)]
pub struct ImagesDone {
    /// Images done. All images of a batch go through a layer together: those of the batch under way count in
    /// proportion to what is done of it.
    pub done: f64,
    /// Images in all.
    pub total: usize,
}

impl ImagesDone {
    /// `before` images are done, and of a batch of `batch` as much as its machine says.
    pub(crate) fn within(now: Progress, before: usize, batch: usize, total: usize) -> Self {
        let share = now.done as f64 / now.total.max(1) as f64;
        Self {
            done: before as f64 + share.min(1.0) * batch as f64,
            total,
        }
    }
}

/// Results and what they cost.
#[derive(Clone, Debug, PartialEq)]
pub struct Prediction {
    /// `[image][element]`, [`Plan::output_len`] elements each.
    pub outputs: Vec<f32>,
    /// What they cost.
    pub stats: Stats,
}

/// What a prediction cost.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Stats {
    /// Bytes to the server, frame headers included.
    pub bytes_sent: u64,
    /// Bytes from the server, frame headers included.
    pub bytes_received: u64,
    /// Frames, both ways.
    pub messages: u64,
    /// Batches the images were split into.
    pub batches: u64,
    /// Wall-clock seconds.
    pub seconds: f64,
    /// Input values outside the range the model was calibrated for, which were brought to its border.
    pub clamped_inputs: usize,
    /// Activations outside the calibrated ranges, likewise.
    pub clamped_activations: u64,
    /// Batches that used what was prepared.
    pub prepared_batches: u64,
    /// Preparations that were of no use: damaged, or the server had its half no more.
    pub lost_preparations: u64,
}

impl Client {
    /// Connects over TCP to `address` (`HOST:PORT`) and shakes hands.
    ///
    /// # Errors
    /// When no available trust level is named, nobody answers, or version, trust level or plan are not as
    /// expected; the message says which and what to do.
    pub fn connect(address: &str, options: ConnectOptions) -> Result<Self, SessionError> {
        Self::connect_sharing(address, options, None)
    }

    /// The same with the store of another connection with that server.
    pub(crate) fn connect_sharing(
        address: &str,
        options: ConnectOptions,
        store: Option<Arc<Store<ClientPrepared>>>,
    ) -> Result<Self, SessionError> {
        trust::require(options.trust)?;
        let stream = connect(address, options.connect_timeout)?;
        // Small messages must not wait for more; where the option is missing they do.
        let _ = stream.set_nodelay(true);
        let again = (address.to_owned(), options.clone());
        let mut client = Self::over_sharing(Box::new(stream), options, store)?;
        client.again = Some(again);
        Ok(client)
    }

    /// Shakes hands over a transport that is already connected.
    ///
    /// # Errors
    /// As [`Client::connect`].
    pub fn over(
        transport: Box<dyn Transport>,
        options: ConnectOptions,
    ) -> Result<Self, SessionError> {
        Self::over_sharing(transport, options, None)
    }

    fn over_sharing(
        transport: Box<dyn Transport>,
        options: ConnectOptions,
        store: Option<Arc<Store<ClientPrepared>>>,
    ) -> Result<Self, SessionError> {
        let asked = trust::require(options.trust)?;
        let timeouts = Timeouts {
            idle: options.timeout,
            message: options.timeout,
        };
        let cancel = options.cancel.clone();
        let mut link = Link::new(transport, timeouts, cancel.clone())?;
        let met = shake_hands(
            &mut link,
            asked,
            options.expected_plan_hash,
            options.plan.clone(),
        )
        .map_err(|error| unless_cancelled(&cancel, error));
        let ready = met.and_then(|(plan, hello)| {
            let fits = cost::client_batch(&plan, options.max_memory);
            let fits = fits.ok_or(SessionError::ClientMemory {
                needed: cost::memory(&plan, 1).client,
                allowed: options.max_memory,
            })?;
            let store = match store {
                Some(shared) => shared,
                None => Arc::new(open_store(options.store.as_deref(), &plan, &options)?),
            };
            let directory = options.store.as_deref();
            let published = directory.filter(|_| cost::publication(&plan) > 0);
            let published = published.map(|path| PublicationFile::new(path, &hello.plan_hash));
            let keys = ClientKeys::default();
            if let Some(path) = directory.filter(|_| slots::key_bytes(&plan) > 0) {
                let name = format!("slots-{}", hex(&hello.plan_hash));
                keys.offer_slot_seed(secret(path, &name)?);
            }
            Ok((plan, hello, fits, store, published, keys))
        });
        match ready {
            Ok((plan, hello, fits, store, published, keys)) => Ok(Self {
                link,
                max_batch: plan.max_batch().min(hello.max_batch as usize).min(fits),
                max_memory: options.max_memory,
                plan,
                plan_hash: hello.plan_hash,
                images_left: hello.images_left,
                cancel,
                over: false,
                keys,
                store,
                published,
                server: hello.store,
                prepared_batches: hello.prepared_batches as usize,
                setup: None,
                again: None,
                refill: None,
                kept: 0,
            }),
            Err(error) => {
                part(&mut link, &error);
                Err(error)
            }
        }
    }

    /// The plan both parties follow, validated.
    pub fn plan(&self) -> &Arc<Plan> {
        &self.plan
    }

    /// Most images in one batch, by plan and server.
    pub fn max_batch(&self) -> usize {
        self.max_batch
    }

    /// The server's store of prepared batches.
    pub(crate) fn server(&self) -> Owner {
        self.server
    }

    /// Images the server still grants this client, where it limits them.
    pub fn images_left(&self) -> Option<u64> {
        self.images_left
    }

    /// Predicts `images` images, one after the other in `inputs`, in as few batches as the limits allow; calls
    /// `on_progress` after every message.
    ///
    /// # Errors
    /// When the inputs do not fit the plan (the session goes on), or the session fails, is cancelled, or has fewer
    /// images left (it is then over: the server's log says that it was refused).
    pub fn predict(
        &mut self,
        inputs: &[f32],
        images: usize,
        on_progress: &mut dyn FnMut(ImagesDone),
    ) -> Result<Prediction, SessionError> {
        let started = Instant::now();
        let before = self.link.traffic;
        let elements = self.plan.input_len();
        self.check(inputs, images, elements)?;
        let charged = |batch: &usize| self.plan.charged(*batch) as u64;
        let charged = self.batches(images)?.iter().map(charged).sum();
        self.within_quota(charged)?;
        let mut stats = Stats::default();
        let values = images.saturating_mul(self.plan.output_len()) as u64;
        if values.saturating_mul(4) > self.max_memory {
            let (needed, allowed) = (values.saturating_mul(4), self.max_memory);
            return Err(SessionError::ClientMemory { needed, allowed });
        }
        let mut outputs = Vec::with_capacity(images * self.plan.output_len());
        let mut done = 0;
        for chunk in inputs.chunks(self.max_batch * elements) {
            let batch = chunk.len() / elements;
            let inputs = ClientInputs::new(self.plan.clone(), chunk, batch)?;
            let (half, damaged) = self.store.take_newest(&self.server, batch)?;
            let named = half.is_some();
            let prepared = self.guarded(|client| client.begin(batch, half))?;
            stats.prepared_batches += u64::from(prepared.is_some());
            stats.lost_preparations += damaged + u64::from(named && prepared.is_none());
            self.want_prepared(images)?;
            self.offer_published()?;
            let mut run = inputs.run(&self.keys, prepared)?;
            stats.clamped_inputs += run.clamped_inputs();
            self.guarded(|client| {
                client.complete(&mut run, batch, &mut |now| {
                    on_progress(ImagesDone::within(now, done, batch, images));
                })
            })?;
            done += batch;
            self.keep_published()?;
            stats.clamped_activations += run.clamped_activations();
            outputs.extend(run.finish()?);
            stats.batches += 1;
        }
        stats.add_traffic(self.link.traffic, before);
        stats.seconds = started.elapsed().as_secs_f64();
        Ok(Prediction { outputs, stats })
    }

    /// What can be checked before anything is sent.
    fn check(&self, inputs: &[f32], images: usize, elements: usize) -> Result<(), SessionError> {
        if images == 0 {
            return Err(SessionError::Batch {
                found: 0,
                most: self.max_batch,
            });
        }
        if images.checked_mul(elements) != Some(inputs.len()) {
            return Err(SessionError::Inputs {
                found: inputs.len(),
                images,
                elements,
            });
        }
        Ok(())
    }

    /// Ends the session where it has fewer than `asked` images left; the server is told, for its log.
    fn within_quota(&mut self, asked: u64) -> Result<(), SessionError> {
        let Some(left) = self.images_left.filter(|&left| left < asked && !self.over) else {
            return Ok(());
        };
        Err(self.end(SessionError::Quota { asked, left }))
    }

    /// Ends the session because of `error`.
    fn end(&mut self, error: SessionError) -> SessionError {
        self.over = true;
        let burnt = self.setup.filter(|setup| self.keys.setup() != Some(*setup));
        if let Some(Err(error)) = burnt.map(|setup| self.store.destroy(&setup)) {
            part(&mut self.link, &error.into());
            return SessionError::Over;
        }
        part(&mut self.link, &error);
        error
    }

    /// Does ahead what of the prediction of `images` images needs no inputs: garbled circuits are made, sent and kept in the store, and
    /// predictions of as many images use them up, each once. Only plans on shares have any.
    ///
    /// # Errors
    /// When nothing can be prepared, the server keeps fewer batches, the store refuses, or the session fails.
    pub fn prepare(
        &mut self,
        images: usize,
        mut on_progress: impl FnMut(ImagesDone),
    ) -> Result<Stats, SessionError> {
        let batches = self.batches(images)?;
        let (before, started, mut stats) = (self.link.traffic, Instant::now(), Stats::default());
        let (found, most) = (batches.len(), self.prepared_batches);
        if found > most && self.plan.trust() == TrustLevel::TwoParty {
            return Err(SessionError::Prepared { found, most });
        }
        if self.store.is_in_memory() {
            self.check_memory(images)?;
        }
        let mut done = 0;
        for batch in batches {
            self.prepare_batch(batch, &mut |now| {
                on_progress(ImagesDone::within(now, done, batch, images));
            })?;
            done += batch;
            stats.batches += 1;
        }
        stats.add_traffic(self.link.traffic, before);
        stats.seconds = started.elapsed().as_secs_f64();
        Ok(stats)
    }

    /// The batches that so many images are split into.
    fn batches(&self, images: usize) -> Result<Vec<usize>, SessionError> {
        if images == 0 {
            return Err(SessionError::Batch {
                found: 0,
                most: self.max_batch,
            });
        }
        let (whole, last) = (images / self.max_batch, images % self.max_batch);
        let last = (last > 0).then_some(last);
        Ok(iter::repeat_n(self.max_batch, whole).chain(last).collect())
    }

    /// Prepares one batch and keeps this party's half.
    pub(crate) fn prepare_batch(
        &mut self,
        batch: usize,
        on_progress: &mut dyn FnMut(Progress),
    ) -> Result<(), SessionError> {
        let mut machine = ClientPreparation::new(self.plan.clone(), batch, &self.keys)?;
        let needed = self.check_memory(batch)?;
        let name = Name::random()?;
        self.store.check(&name, needed)?;
        self.guarded(|client| {
            let prepare = Prepare {
                plan_hash: client.plan_hash,
                batch: client.images(batch)?,
                name,
            };
            client.link.send(Kind::Prepare, message::encode(&prepare))?;
            client.complete(&mut machine, batch, on_progress)
        })?;
        let prepared = machine.into_prepared()?;
        self.setup = Some(prepared.setup());
        let most = self.prepared_batches;
        Ok(self.store.put(name, self.server, most, needed, prepared)?)
    }

    /// Bytes of this party's half of so many prepared images, which must fit its memory.
    fn check_memory(&self, images: usize) -> Result<u64, SessionError> {
        let needed = cost::prepared(&self.plan, images).memory.client;
        let allowed = self.max_memory;
        match needed <= allowed {
            true => Ok(needed),
            false => Err(SessionError::ClientMemory { needed, allowed }),
        }
    }

    /// Whether a prediction of `images` images finds a preparation for each of its batches in the store.
    ///
    /// # Errors
    /// When there are no images, or the store cannot be read.
    pub fn is_prepared(&self, images: usize) -> Result<bool, SessionError> {
        let batches = self.batches(images)?;
        Ok(self.store.missing(&self.server, &batches)?.is_none())
    }

    /// Keeps `batches` batches prepared from now on, on a second connection and in the background, as many as the server keeps for a client at
    /// most: of the sizes that a prediction of `images` images has; where that is not said, of the last prediction's. 0: no more.
    ///
    /// Both connections compute at the same time, and share the cores there are.
    ///
    /// # Errors
    /// When nothing can be prepared at this trust level, or the client was not connected by its address.
    pub fn keep_prepared(
        &mut self,
        batches: usize,
        images: Option<usize>,
    ) -> Result<(), SessionError> {
        self.refill = None;
        if batches == 0 {
            return Ok(());
        }
        // The engine says what can be prepared.
        ClientPreparation::new(self.plan.clone(), 1, &self.keys)?;
        let most = self.prepared_batches;
        if most == 0 {
            let found = batches;
            return Err(SessionError::Prepared { found, most });
        }
        let (address, options) = self.again.clone().ok_or(SessionError::NoAddress)?;
        let options = ConnectOptions {
            plan: Some(self.plan.clone()),
            expected_plan_hash: Some(self.plan_hash),
            ..options
        };
        let refill = Refill::start(address, options, self.store.clone(), self.server)?;
        self.refill = Some(refill);
        self.kept = batches.min(most);
        if let Some(images) = images {
            self.want_prepared(images)?;
        }
        Ok(())
    }

    /// What keeps batches prepared, where something does.
    pub fn refill(&self) -> Option<&Refill> {
        self.refill.as_ref()
    }

    /// Has the next batch use what the server published on an earlier connection, if it is the first of this one.
    fn offer_published(&mut self) -> Result<(), SessionError> {
        if let Some(file) = &mut self.published
            && self.keys.publication().is_none()
            && let Some((publication, images)) = file.take(&self.plan)?
        {
            self.keys.offer_publication(publication, images);
        }
        Ok(())
    }

    /// Keeps what the server has published on this connection, where the client has a store.
    fn keep_published(&mut self) -> Result<(), SessionError> {
        if let (Some(file), Some(publication)) = (&mut self.published, self.keys.publication()) {
            file.keep(&self.plan, &publication)?;
        }
        Ok(())
    }

    /// Has batches prepared of the sizes that a prediction of `images` images has.
    fn want_prepared(&self, images: usize) -> Result<(), SessionError> {
        if let Some(refill) = &self.refill {
            let sizes = self.batches(images)?;
            refill.want(sizes.into_iter().cycle().take(self.kept).collect());
        }
        Ok(())
    }

    /// Runs one batch of `batch` images with this party's `machine`.
    ///
    /// # Errors
    /// When the session fails; the server is told the category, and the client is of no further use.
    pub fn run<M: Machine<Error = EngineError> + ?Sized>(
        &mut self,
        machine: &mut M,
        batch: usize,
        on_progress: &mut dyn FnMut(Progress),
    ) -> Result<(), SessionError> {
        self.guarded(|client| {
            client.begin(batch, None)?;
            client.complete(machine, batch, on_progress)
        })
    }

    /// Does a part of the protocol; what fails ends the session.
    fn guarded<T>(
        &mut self,
        part: impl FnOnce(&mut Self) -> Result<T, SessionError>,
    ) -> Result<T, SessionError> {
        if self.over {
            return Err(SessionError::Over);
        }
        part(self).map_err(|error| {
            let error = unless_cancelled(&self.cancel, error);
            self.end(error)
        })
    }

    /// Begins a batch with this party's half of a preparation, which is taken from the store for good; what is left of it when the server has
    /// answered.
    fn begin(
        &mut self,
        batch: usize,
        half: Option<(Name, ClientPrepared)>,
    ) -> Result<Option<ClientPrepared>, SessionError> {
        let (name, half) = half.unzip();
        let begin = Begin {
            plan_hash: self.plan_hash,
            batch: self.images(batch)?,
            prepared: name,
        };
        self.link.send(Kind::Begin, message::encode(&begin))?;
        if name.is_none() {
            return Ok(None);
        }
        let mut payload = Vec::new();
        self.link
            .receive(&[(Kind::Begun, MAX_HANDSHAKE)], &mut payload)?;
        let begun: Begun = message::decode(Kind::Begun, &payload)?;
        Ok(half.filter(|_| begun.prepared))
    }

    fn images(&self, batch: usize) -> Result<u32, SessionError> {
        u32::try_from(batch).map_err(|_| SessionError::Batch {
            found: batch,
            most: self.max_batch,
        })
    }

    /// Runs a machine to its end.
    fn complete<M: Machine<Error = EngineError> + ?Sized>(
        &mut self,
        machine: &mut M,
        batch: usize,
        on_progress: &mut dyn FnMut(Progress),
    ) -> Result<(), SessionError> {
        let images = self.images(batch)?;
        drive(machine, &mut self.link, on_progress)?;
        let mut payload = Vec::new();
        self.link
            .receive(&[(Kind::Done, MAX_HANDSHAKE)], &mut payload)?;
        let done: Done = message::decode(Kind::Done, &payload)?;
        if done.batch != images {
            let (found, expected) = (
                u64::from(done.batch),
                format!("and {images} were asked for"),
            );
            return Err(SessionError::Handshake {
                field: "count of images",
                found,
                expected,
            });
        }
        self.images_left = done.images_left;
        Ok(())
    }
}

/// The client's store for a plan.
fn open_store(
    directory: Option<&Path>,
    plan: &Arc<Plan>,
    options: &ConnectOptions,
) -> Result<Store<ClientPrepared>, SessionError> {
    let bounds = |bytes| Bounds {
        batches: usize::MAX,
        bytes,
    };
    Ok(match directory {
        Some(directory) => Store::open(directory, plan.clone(), bounds(options.max_store))?,
        None => Store::in_memory(plan.clone(), bounds(options.max_memory))?,
    })
}

impl Stats {
    /// What went over a link since `before`.
    fn add_traffic(&mut self, now: Traffic, before: Traffic) {
        self.bytes_sent = now.bytes_sent - before.bytes_sent;
        self.bytes_received = now.bytes_received - before.bytes_received;
        self.messages = now.messages - before.messages;
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        if self.over {
            return;
        }
        if self.cancel.load(Ordering::SeqCst) {
            part(&mut self.link, &SessionError::Cancelled);
        } else {
            // A server that is gone needs no goodbye.
            let _ = self.link.send(Kind::Bye, Vec::new());
        }
    }
}

fn connect(address: &str, timeout: Duration) -> Result<TcpStream, SessionError> {
    let wrong = |source| SessionError::Address {
        address: address.to_owned(),
        source,
    };
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    for candidate in address.to_socket_addrs().map_err(wrong)? {
        match TcpStream::connect_timeout(&candidate, timeout) {
            Ok(stream) => return Ok(stream),
            Err(error) => last = error,
        }
    }
    Err(SessionError::Connect {
        address: address.to_owned(),
        source: last,
    })
}

/// `error`, unless this side's user wanted an end: the link then fails with whatever it was waiting for.
fn unless_cancelled(cancel: &AtomicBool, error: SessionError) -> SessionError {
    if cancel.load(Ordering::SeqCst) {
        SessionError::Cancelled
    } else {
        error
    }
}

/// Ends a failed session. The server learns the category of the error and no more: the rest may depend on
/// decrypted values.
fn part(link: &mut Link, error: &SessionError) {
    let code = error.code();
    let message = ErrorMessage {
        code,
        text: code.words().to_owned(),
    };
    link.close(error.is_worth_telling().then_some(&message));
}

fn shake_hands(
    link: &mut Link,
    asked: TrustLevel,
    expected_plan_hash: Option<[u8; 32]>,
    held: Option<Arc<Plan>>,
) -> Result<(Arc<Plan>, ServerHello), SessionError> {
    link.send(
        Kind::ClientHello,
        ClientHello {
            trust: asked,
            expected_plan_hash,
        }
        .encode(),
    )?;
    let mut payload = Vec::new();
    link.receive(&[(Kind::ServerHello, MAX_HANDSHAKE)], &mut payload)
        .map_err(foreign_peer)?;
    let hello = ServerHello::decode(&payload)?;
    if hello.trust != asked {
        return Err(SessionError::TrustMismatch {
            asked,
            offered: hello.trust,
        });
    }
    if let Some(expected) = expected_plan_hash.filter(|&expected| expected != hello.plan_hash) {
        return Err(SessionError::PlanHash {
            expected,
            found: hello.plan_hash,
        });
    }
    if hello.max_batch == 0 {
        return Err(SessionError::Handshake {
            field: "largest batch",
            found: 0,
            expected: "and must be at least 1".into(),
        });
    }
    let plan = match held.filter(|plan| plan.hash() == hello.plan_hash) {
        Some(plan) => plan,
        None => Arc::new(fetch_plan(link, &hello)?),
    };
    if plan.trust() != asked {
        return Err(SessionError::TrustMismatch {
            asked,
            offered: plan.trust(),
        });
    }
    Ok((plan, hello))
}

/// Asks for the plan, and checks that it is the announced one and fit to follow.
fn fetch_plan(link: &mut Link, hello: &ServerHello) -> Result<Plan, SessionError> {
    let length = hello.plan_length as usize;
    if length > MAX_BYTES {
        let expected = format!("and at most {MAX_BYTES} are accepted");
        return Err(SessionError::Handshake {
            field: "plan length",
            found: length as u64,
            expected,
        });
    }
    link.send(Kind::PlanRequest, Vec::new())?;
    let mut bytes = Vec::new();
    link.receive(&[(Kind::PlanBytes, length)], &mut bytes)?;
    let plan = Plan::from_bytes(&bytes)?;
    let found = plan.hash();
    if found != hello.plan_hash {
        return Err(SessionError::PlanHash {
            expected: hello.plan_hash,
            found,
        });
    }
    Ok(plan)
}
