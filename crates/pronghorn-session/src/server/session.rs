//! One connection: the hellos, and batch after batch.

use std::{
    mem,
    net::{SocketAddr, TcpStream},
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, atomic::Ordering},
    time::{Duration, Instant},
};

use pronghorn_engine::{Connection as Keys, EngineError, ServerPrepared};
use pronghorn_plan::cost::{self, Speed};

use super::{Server, models::Served};
use crate::{
    channel::{Admission, ChannelError, PROOF_BYTES, Secured, bound_plan},
    drive::drive,
    error::{ErrorCode, SessionError, foreign_peer},
    frame::{FrameError, Kind, MAX_HANDSHAKE},
    limits::{
        Limits, memory_to_use,
        table::{Key, Resource},
    },
    link::{Link, Traffic},
    lock::lock,
    log::{Entry, Level},
    message::{
        self, Begin, Begun, ClientHello, Done, ErrorMessage, Hello, ListingRequest, Prepare,
        ServerHello,
    },
    metrics::Phase,
    proxy,
    quota::{Counted, Denied, Identity, Share, Taken},
    store::Name,
    text::counted,
    ticket::{MAX_TICKET, TicketError},
    transport::{Ends, Timed, Transport},
    usage::{Usage, Whose, over},
};

/// What one session did, for the log.
#[derive(Default)]
struct Record {
    batches: u64,
    images: u64,
    listed: bool,
    /// Who has a place, and the model that it asks.
    admitted: Option<(Whose, Arc<Served>)>,
    /// What was counted of its traffic.
    traffic: Traffic,
    /// Bytes of that which its limits have not been told of.
    uncounted: u64,
    /// Of what comes next.
    phase: Phase,
}

/// A client that has a place.
struct Session<'a> {
    served: Arc<Served>,
    client: Whose,
    admitted: Instant,
    _place: Share<'a>,
    _counted: Counted<'a>,
}

impl Record {
    /// Counts the traffic since it was last counted.
    fn count_traffic(&mut self, link: &Link) {
        let Some((_, served)) = &self.admitted else {
            return;
        };
        let more = link.traffic.since(self.traffic);
        served.counters.add_traffic(self.phase, more);
        self.traffic = link.traffic;
        self.uncounted += more.bytes_sent + more.bytes_received;
    }

    /// Counts the bytes since the last such count against the limits.
    fn use_bytes(&mut self, link: &Link, usage: &Usage) -> Result<(), SessionError> {
        self.count_traffic(link);
        match (&self.admitted, mem::take(&mut self.uncounted)) {
            (Some((whose, _)), bytes) if bytes > 0 => usage.add_bytes(whose, bytes),
            _ => Ok(()),
        }
    }

    /// The model's own name of the step that an error is about, for the log.
    fn node_of(&self, error: &SessionError) -> String {
        let step = match error {
            SessionError::Engine(error) => error.step(),
            _ => None,
        };
        let node = |step| self.admitted.as_ref()?.1.service.node(step);
        let named = step.and_then(|step| Some((step, node(step)?)));
        named.map_or_else(String::new, |(step, node)| {
            format!(" (step {step} is the model's {node})")
        })
    }
}

/// What came of the hellos.
enum Greeted<'a> {
    /// A place, its client, the client's count of connections, and the model that it asks.
    Admitted(Share<'a>, Whose, Counted<'a>, Arc<Served>),
    /// The client was told the models, which was all it wanted.
    Listed,
}

impl Server {
    /// One connection from its first byte to its end; `greeting` is given back once it has a place.
    pub(super) fn session_thread(
        &self,
        stream: TcpStream,
        client: SocketAddr,
        greeting: Taken<'_>,
    ) {
        let id = self.next_session.fetch_add(1, Ordering::Relaxed);
        if let Err(error) = self.registered_session(id, stream, client, greeting) {
            let level = self.count_failure(&error, false, false);
            let text = format!("client {id} ({client}) failed: {error}");
            let entry = of_session(level, "failed", &text, (id, client));
            self.log(entry.text("reason", error.reason()));
        }
    }

    /// The images that a client has left, for the log.
    fn granted(&self, client: &Whose) -> String {
        match self.usage.images_left(client) {
            Ok(Some(left)) => format!(", has {} left", counted(left, "image", "images")),
            Ok(None) => String::new(),
            Err(error) => format!(": {error}"),
        }
    }

    /// A session that [`Server::stop`] can end. Its own errors are told and logged within.
    fn registered_session(
        &self,
        id: u64,
        stream: TcpStream,
        client: SocketAddr,
        greeting: Taken<'_>,
    ) -> Result<(), SessionError> {
        let handle = Transport::try_clone(&stream).map_err(|source| SessionError::System {
            what: "a handle",
            source,
        })?;
        let _registration = Registration::new(self, id, handle);
        let (mut record, started) = (Record::default(), Instant::now());
        let ends = self.ends();
        let (client, _counted) = match self.is_proxy(client) {
            true => self.behind_proxy(&stream, client, &ends)?,
            false => (client, None),
        };
        let (transport, admission) = Admission::split(self.secured(stream, &ends, started)?);
        let mut link = self.link(transport, admission.binding(), ends)?;
        let session = AssertUnwindSafe(|| {
            let limit = self.limits.hello_timeout.saturating_sub(started.elapsed());
            let greeted = self.greet(&mut link, (id, client), &admission, limit, greeting)?;
            let Greeted::Admitted(place, whose, connections, served) = greeted else {
                record.listed = true;
                return Ok(());
            };
            served.counters.add_time(Phase::Opening, started.elapsed());
            record.admitted = Some((whose.clone(), served.clone()));
            let counted = served.clone();
            let _active = counted.counters.enter();
            let session = Session {
                served,
                client: whose,
                admitted: Instant::now(),
                _place: place,
                _counted: connections,
            };
            self.session(&mut link, session, &admission, &mut record)
        });
        let outcome = catch_unwind(session).unwrap_or(Err(SessionError::Bug));
        let level = outcome.as_ref().err().map_or(Level::Info, |error| {
            let has_spoken = link.traffic.bytes_received > 0;
            self.count_failure(error, has_spoken, record.admitted.is_some())
        });
        let told = outcome
            .as_ref()
            .err()
            .filter(|error| error.is_worth_telling())
            .map(ErrorMessage::of_server);
        link.close(told.as_ref());
        // Of a batch that broke off too.
        if let Err(error) = record.use_bytes(&link, &self.usage) {
            let text = format!("bytes of client {id} ({client}) are not counted: {error}");
            self.log(of_session(Level::Error, "store", &text, (id, client)));
        }
        let time = started.elapsed();
        self.log_end((id, client), level, &record, link.traffic, time, outcome);
        Ok(())
    }

    /// Who connects through a load balancer, and the count of its address. Who is one too many is told.
    fn behind_proxy(
        &self,
        stream: &TcpStream,
        balancer: SocketAddr,
        ends: &Ends,
    ) -> Result<(SocketAddr, Option<Counted<'_>>), SessionError> {
        let handle = |_| stream.try_clone();
        let system = |source| SessionError::System {
            what: "a handle",
            source,
        };
        let mut line = Timed::new(Box::new(handle(()).map_err(system)?), ends.clone());
        let limit = self.limits.hello_timeout;
        line.allow(limit, limit);
        let client = proxy::read_header(&mut line)?.unwrap_or(balancer);
        let client = SocketAddr::new(client.ip().to_canonical(), client.port());
        match self.count_address(client) {
            Ok(counted) => Ok((client, Some(counted))),
            Err(error) => {
                self.partings.refuse(handle(()).map_err(system)?, &error);
                Err(error)
            }
        }
    }

    /// Counts why a connection has ended, where something is to blame; how much it matters. One on
    /// which nothing was said was a probe of the port.
    fn count_failure(&self, error: &SessionError, has_spoken: bool, was_admitted: bool) -> Level {
        let is_over = matches!(
            error,
            SessionError::Frame(FrameError::Closed | FrameError::Io(_))
        );
        let is_usual = matches!(
            error,
            SessionError::Idle
                | SessionError::Turn
                | SessionError::Peer {
                    code: ErrorCode::Cancelled,
                    ..
                }
        );
        if is_over && !has_spoken {
            return Level::Debug;
        }
        if is_usual || self.is_draining() {
            return Level::Info;
        }
        self.failures.add(error);
        if !was_admitted {
            self.refusals.add(error);
        }
        Level::Warning
    }

    /// Writes down what came of a session.
    fn log_end(
        &self,
        session: (u64, SocketAddr),
        level: Level,
        record: &Record,
        traffic: Traffic,
        time: Duration,
        outcome: Result<(), SessionError>,
    ) {
        let (id, client) = session;
        let reason = outcome.as_ref().err().map(SessionError::reason);
        let ending = match outcome {
            Ok(()) if record.listed => ": was told the models".into(),
            Ok(()) => String::new(),
            Err(
                error @ (SessionError::TooManyClients { .. }
                | SessionError::OverLimit(_)
                | SessionError::NoModel { .. }
                | SessionError::Unnamed { .. }),
            ) => format!(": refused: {error}"),
            Err(error @ (SessionError::Idle | SessionError::Turn)) => format!(": {error}"),
            Err(_) if self.is_draining() => ": the server stops".into(),
            Err(SessionError::Peer {
                code: ErrorCode::Cancelled,
                ..
            }) => ": the client's user cancelled".into(),
            Err(error) => format!(": ended by an error: {error}{}", record.node_of(&error)),
        };
        let text = format!(
            "client {id} ({client}) left: {}, {}, {} bytes received, {} bytes sent, {:.1} s{ending}",
            counted(record.batches, "batch", "batches"),
            counted(record.images, "image", "images"),
            traffic.bytes_received,
            traffic.bytes_sent,
            time.as_secs_f64(),
        );
        let mut entry = of_session(level, "left", &text, session)
            .number("batches", record.batches)
            .number("images", record.images)
            .number("bytes_received", traffic.bytes_received)
            .number("bytes_sent", traffic.bytes_sent)
            .seconds("seconds", time.as_secs_f64());
        if let Some((_, served)) = &record.admitted {
            entry = entry.text("model", &served.id);
        }
        if let Some(reason) = reason {
            entry = entry.text("reason", reason);
        }
        self.log(entry);
    }

    /// The channel with a client. Who cannot make one is told in plain words or by an alert.
    fn secured(
        &self,
        stream: TcpStream,
        ends: &Ends,
        started: Instant,
    ) -> Result<Secured, SessionError> {
        let Some(acceptor) = &self.acceptor else {
            return Ok(Secured::plain(stream));
        };
        let what = "a handle";
        let spare = stream.try_clone();
        let spare = spare.map_err(|source| SessionError::System { what, source })?;
        let limit = self.limits.hello_timeout.saturating_sub(started.elapsed());
        let log = |level, line: &str| self.log(Entry::new(level, "tls", line));
        acceptor
            .secure(stream, ends, limit, &log)
            .inspect_err(|error| match error {
                SessionError::Channel(ChannelError::PlainClient) => {
                    self.partings.refuse(spare, error);
                }
                _ => self.partings.leave(spare),
            })
    }

    fn session(
        &self,
        link: &mut Link,
        session: Session<'_>,
        admission: &Admission,
        record: &mut Record,
    ) -> Result<(), SessionError> {
        let mut payload = Vec::new();
        let (served, whose) = (session.served.clone(), session.client.clone());
        let mut connection = Connection {
            server: self,
            plan_name: bound_plan(admission.binding(), &served.plan_hash),
            is_bound: admission.binding().is_some(),
            keys: served
                .connections
                .connect()
                .bound_to(admission.binding().map(|binding| *binding.as_bytes()))
                .of_owner(whose.identity.owner()),
            whose,
            setup: None,
            is_set_up: false,
            served,
            admitted: session.admitted,
            leaves: false,
        };
        let mut accept = vec![
            (Kind::Begin, MAX_HANDSHAKE),
            (Kind::Prepare, MAX_HANDSHAKE),
            (Kind::Bye, 0),
            (Kind::PlanRequest, 0),
        ];
        // The hellos'.
        record.count_traffic(link);
        loop {
            let began = Instant::now();
            let end = || self.end_of_rest(began);
            link.rest(self.limits.rest(), &end).map_err(rested)?;
            // It may have come between two looks at that.
            if self.is_draining() {
                return Err(SessionError::Stopping);
            }
            match link.receive(&accept, &mut payload)? {
                Kind::PlanRequest => {
                    // Once a session.
                    accept.pop();
                    link.send(Kind::PlanBytes, connection.served.plan_bytes.clone())?;
                }
                Kind::Begin => {
                    record.phase = Phase::Predicting;
                    connection.batch(link, message::decode(Kind::Begin, &payload)?, record)?;
                }
                Kind::Prepare => {
                    record.phase = Phase::Preparing;
                    connection.prepare(link, message::decode(Kind::Prepare, &payload)?)?;
                }
                _ => return Ok(()),
            }
            record.use_bytes(link, &self.usage)?;
            record.phase = Phase::Opening;
            if connection.leaves {
                return Err(SessionError::Turn);
            }
        }
    }

    /// Why a client that is between two batches since `began` has to leave, if it has: the server
    /// ends, or others wait for its place and it has nothing to ask for. One that has had its turn
    /// hears of it at the end of a batch: what it sends now might cross an end, and a preparation
    /// that it names be lost.
    fn end_of_rest(&self, began: Instant) -> Option<SessionError> {
        if self.is_draining() {
            return Some(SessionError::Stopping);
        }
        let is_silent = began.elapsed() >= self.limits.contended_timeout;
        (is_silent && self.others_wait()).then_some(SessionError::Turn)
    }

    /// The hellos, and a place between them: whoever does not introduce himself takes none from
    /// others.
    fn greet<'a>(
        &'a self,
        link: &mut Link,
        (id, client): (u64, SocketAddr),
        admission: &Admission,
        limit: Duration,
        greeting: Taken<'_>,
    ) -> Result<Greeted<'a>, SessionError> {
        let mut payload = Vec::new();
        let started = Instant::now();
        let mut accept = vec![
            (Kind::ClientHello, MAX_HANDSHAKE),
            (Kind::ListingRequest, MAX_HANDSHAKE),
        ];
        if admission.binding().is_some() {
            accept.push((Kind::Token, PROOF_BYTES));
        }
        if self.tickets.is_some() {
            accept.push((Kind::Ticket, MAX_TICKET));
        }
        let (mut proof, mut ticket) = (None, None);
        let kind = loop {
            let left = limit.saturating_sub(started.elapsed());
            let received = link.receive_first(left, &accept, &mut payload);
            let kind = match (&proof, &ticket) {
                (None, None) => received.map_err(foreign_peer)?,
                _ => received?,
            };
            match kind {
                Kind::Token => proof = Some(payload.clone()),
                Kind::Ticket => ticket = Some(payload.clone()),
                _ => break kind,
            }
            // Each once.
            accept.retain(|(accepted, _)| *accepted != kind);
        };
        self.log_hello((id, client));
        let vouched = match (&self.tickets, ticket) {
            (Some(tickets), Some(ticket)) => tickets.take(&ticket, client.ip())?,
            (Some(_), None) => return Err(TicketError::Missing.into()),
            (None, _) => None,
        };
        let shown = admission.client(proof.as_deref());
        let name = match vouched {
            // Whoever is on the line could take a ticket, and with it a name.
            Some(_) if admission.binding().is_none() && !client.ip().is_loopback() => {
                return Err(TicketError::Plain.into());
            }
            Some(name) => {
                // The name in a certificate is barred with a ticket too.
                if let Ok(Some(other)) = shown {
                    self.check_barred(&Whose::new(client.ip(), Some(other)).identity)?;
                }
                Some(name)
            }
            None => shown?,
        };
        let whose = Whose::new(client.ip(), name);
        self.check_barred(&whose.identity)?;
        self.usage.request(&whose)?;
        let most = self.limits.caps.connections_of(Key::Client, whose.ip);
        let connections = self.usage.connect_client(&whose, most)?;
        if let Identity::Named(name) = &whose.identity {
            let granted = self.granted(&whose);
            let text = format!("client {id} ({client}) is {name}{granted}");
            let entry = of_session(Level::Info, "identified", &text, (id, client));
            self.log(entry.text("client", name));
        }
        let models = self.models();
        if kind == Kind::ListingRequest {
            ListingRequest::decode(&payload)?;
            link.send(Kind::Listing, models.listing(&whose.identity).encode())?;
            return Ok(Greeted::Listed);
        }
        let hello = ClientHello::decode(&payload)?;
        let served = models.find(hello.model.as_ref(), &whose.identity)?;
        let offered = served.plan().trust;
        if hello.trust != offered {
            return Err(SessionError::TrustMismatch {
                asked: hello.trust,
                offered,
            });
        }
        if let Some(expected) = hello
            .expected_plan_hash
            .filter(|&expected| expected != served.plan_hash)
        {
            return Err(SessionError::PlanHash {
                expected,
                found: served.plan_hash,
            });
        }
        // Who waits for a place keeps nobody from introducing himself.
        drop(greeting);
        let place = self.place_for(&whose)?;
        let hello = ServerHello {
            trust: offered,
            plan_hash: served.plan_hash,
            plan_length: served.plan_bytes.len() as u32,
            max_batch: served.max_batch as u32,
            images_left: self.usage.images_left(&whose)?,
            prepared_batches: self.limits.max_prepared.try_into().unwrap_or(u32::MAX),
            store: served.store.id(),
            model: served.id.clone(),
        };
        link.send(Kind::ServerHello, hello.encode())?;
        Ok(Greeted::Admitted(place, whose, connections, served))
    }

    /// Whether a client that was admitted then has had its turn, and others wait.
    fn is_over(&self, admitted: Instant) -> bool {
        self.others_wait() && admitted.elapsed() >= self.limits.turn
    }

    fn others_wait(&self) -> bool {
        self.places.waiting().load(Ordering::Relaxed) > 0
    }

    /// Writes down that a client has introduced itself.
    fn log_hello(&self, session: (u64, SocketAddr)) {
        let (id, client) = session;
        // Of one that is to say who it is there is nothing to tell yet.
        let granted = match &self.acceptor {
            Some(acceptor) if acceptor.knows_clients() => String::new(),
            _ => self.granted(&Whose::new(client.ip(), None)),
        };
        let text = format!("client {id} ({client}) connected{granted}");
        self.log(of_session(Level::Info, "connected", &text, session));
    }

    /// A place, for which clients wait in turn.
    fn place_for(&self, client: &Whose) -> Result<Share<'_>, SessionError> {
        let Limits {
            max_waiting,
            queue_timeout,
            ref caps,
            ..
        } = self.limits;
        let most = |key| Some(caps.of(Resource::Sessions, key)?.most);
        let claim = client.claim(most);
        let place = self.places.take(claim, 1, queue_timeout, max_waiting);
        place.map_err(|denied| match denied {
            _ if self.is_draining() => SessionError::Stopping,
            Denied::Over(key) => over(Resource::Sessions, key, most(key)),
            Denied::Busy => SessionError::TooManyClients {
                most: caps.places(),
            },
        })
    }

    /// Refuses a client whose keys were false.
    fn check_barred(&self, client: &Identity) -> Result<(), SessionError> {
        match client {
            Identity::Named(name) if self.barred.has(name)? => {
                Err(SessionError::Barred { name: name.clone() })
            }
            _ => Ok(()),
        }
    }

    /// Bars a client by its name where its keys are false. Who has shown no name may come again:
    /// others may share its address.
    fn bar(&self, client: &Identity, error: &SessionError) {
        if !matches!(error, SessionError::Engine(EngineError::FalseKeys)) {
            return;
        }
        let done = match client {
            Identity::Named(name) => match self.barred.add(name) {
                Ok(()) => format!("{name} is served no more"),
                Err(error) => format!("{name} is barred until the server ends: {error}"),
            },
            Identity::Network(address) => {
                format!("{address} may try again: only clients with a name are barred")
            }
        };
        let text = format!("ATTACK: a client has sent false keys: {done}");
        self.log(Entry::new(Level::Error, "attack", &text));
    }

    /// So many bytes of the memory that all sessions share, when they are there.
    fn memory_for(
        &self,
        served: &Served,
        client: &Whose,
        needed: u64,
    ) -> Result<Share<'_>, SessionError> {
        let (started, patience) = (Instant::now(), self.limits.idle_timeout);
        let allowed = self.memory.total();
        let percent = |share: u64| (allowed as f64 * share as f64 / 100.0) as u64;
        let most = |key| self.limits.caps.memory_share_of(key, client.ip);
        let claim = client.claim(|key| most(key).map(percent));
        let share = self.memory.take(claim, needed, patience, usize::MAX);
        served.counters.add_time(Phase::Waiting, started.elapsed());
        share.map_err(|denied| match denied {
            _ if self.stopping.load(Ordering::SeqCst) => SessionError::Stopping,
            Denied::Over(key) => over(Resource::Memory, key, most(key)),
            Denied::Busy => SessionError::Memory { needed, allowed },
        })
    }
}

/// An entry of the log about a session.
fn of_session(
    level: Level,
    event: &'static str,
    text: &str,
    (id, client): (u64, SocketAddr),
) -> Entry {
    Entry::new(level, event, text)
        .number("session", id)
        .text("address", client)
}

/// What a session has of its own.
struct Connection<'a> {
    server: &'a Server,
    served: Arc<Served>,
    whose: Whose,
    /// The plan's name on this channel.
    plan_name: [u8; 32],
    is_bound: bool,
    keys: Keys,
    /// The set-up of OTs that batches were prepared with.
    setup: Option<[u8; 32]>,
    /// Whether its keys or OTs are made, or are about to be.
    is_set_up: bool,
    admitted: Instant,
    /// Whether the client has been told that the connection ends.
    leaves: bool,
}

impl Connection<'_> {
    /// The images of a batch of this plan, on this channel, that may begin.
    fn checked(
        &self,
        plan_name: [u8; 32],
        (batch, runs): (u32, u64),
    ) -> Result<usize, SessionError> {
        if plan_name == self.plan_name {
            let (found, expected) = (runs, self.keys.runs());
            return match found == expected {
                true => self.served.checked(batch),
                false => Err(SessionError::OutOfStep { found, expected }),
            };
        }
        // The hellos have agreed on the plan.
        Err(match self.is_bound {
            true => ChannelError::Spliced.into(),
            false => SessionError::PlanHash {
                expected: self.plan_name,
                found: plan_name,
            },
        })
    }

    /// Counts a batch or a preparation that is about to begin against the limits, and with the first
    /// one the keys of the connection.
    fn count(&mut self, more: &[(Resource, u64)]) -> Result<(), SessionError> {
        let usage = &self.server.usage;
        usage.request(&self.whose)?;
        let mut all = vec![(Resource::Bytes, 0)];
        all.extend(more);
        if !self.is_set_up {
            all.push((Resource::Setups, 1));
        }
        usage.begin(&self.whose, &all)?;
        self.is_set_up = true;
        Ok(())
    }

    fn batch(
        &mut self,
        link: &mut Link,
        begin: Begin,
        record: &mut Record,
    ) -> Result<(), SessionError> {
        let (server, served) = (self.server, self.served.clone());
        let plan = served.plan();
        let batch = self.checked(begin.plan_hash, (begin.batch, begin.runs))?;
        // Another connection of its may have had false keys meanwhile.
        server.check_barred(&self.whose.identity)?;
        let images = plan.charged(batch) as u64;
        self.count(&[(Resource::Images, images), (Resource::DailyImages, images)])?;
        let (run, both) = (cost::memory(plan, batch).server, memory_to_use(plan, batch));
        // Where memory does not do for it the batch runs without.
        let named = begin.prepared.filter(|_| both <= server.memory.total());
        let needed = if named.is_some() { both } else { run };
        let _memory = server.memory_for(&served, &self.whose, needed)?;
        // Or while this one waited.
        server.check_barred(&self.whose.identity)?;
        let _held = link.holds_memory();
        let started = Instant::now();
        let prepared = named.and_then(|name| self.take_prepared(name, batch));
        if begin.prepared.is_some() {
            let prepared = prepared.is_some();
            link.send(Kind::Begun, message::encode(&Begun { prepared }))?;
        }
        let is_prepared = prepared.is_some();
        let mut machine = served.service.start(batch, &self.keys, prepared)?;
        let driven = drive(machine.as_mut(), link, &mut |_| {});
        served
            .counters
            .add_time(Phase::Predicting, started.elapsed());
        driven.inspect_err(|error| server.bar(&self.whose.identity, error))?;
        record.batches += 1;
        record.images += batch as u64;
        let predicted = cost::of_images(plan, batch).seconds.at(&Speed::default());
        served.counters.add_batch(batch, is_prepared, predicted);
        self.done(link, begin.batch)
    }

    /// Prepares a batch and keeps this party's half, the client hears of it only then.
    fn prepare(&mut self, link: &mut Link, asked: Prepare) -> Result<(), SessionError> {
        let (server, served) = (self.server, self.served.clone());
        let batch = self.checked(asked.plan_hash, (asked.batch, asked.runs))?;
        let most = server.limits.max_prepared;
        if most == 0 {
            return Err(SessionError::Prepared { found: 1, most });
        }
        let plan = served.plan();
        let needed = cost::prepared(plan, batch).memory.server;
        served.store.check(&asked.name, needed)?;
        // What could not be used need not be made.
        let (to_use, allowed) = (memory_to_use(plan, batch), server.memory.total());
        if to_use > allowed {
            let needed = to_use;
            return Err(SessionError::Memory { needed, allowed });
        }
        self.count(&[])?;
        let _memory = server.memory_for(&served, &self.whose, to_use)?;
        let _held = link.holds_memory();
        let started = Instant::now();
        let mut machine = served.service.prepare(batch, &self.keys)?;
        let driven = drive(machine.as_mut(), link, &mut |_| {});
        served
            .counters
            .add_time(Phase::Preparing, started.elapsed());
        driven?;
        // Nothing is kept of messages that the line has changed.
        Done::receive(link)?;
        let prepared = machine.into_prepared()?;
        self.setup = Some(prepared.setup());
        let owner = self.whose.identity.owner();
        served
            .store
            .put(asked.name, owner, most, needed, prepared)?;
        self.done(link, asked.batch)
    }

    /// The preparation that a client names, from now on this batch's alone. Where there is none, or
    /// it is damaged, the batch runs without.
    fn take_prepared(&self, name: Name, batch: usize) -> Option<ServerPrepared> {
        let read =
            |batch, setup, bytes: &[u8]| self.served.service.read_prepared(batch, setup, bytes);
        self.served
            .store
            .take(&name, batch, &read)
            .unwrap_or_else(|error| {
                let text = format!("a batch runs without its preparation: {error}");
                let entry = Entry::new(Level::Warning, "preparation", &text);
                self.server.log(entry);
                None
            })
    }

    fn done(&mut self, link: &mut Link, batch: u32) -> Result<(), SessionError> {
        self.leaves = self.server.is_over(self.admitted);
        let done = Done {
            batch,
            images_left: self.server.usage.images_left(&self.whose)?,
            leaves: self.leaves,
        };
        link.send(Kind::Done, message::encode(&done))
    }
}

/// Destroys what was prepared on the connection where its OTs have failed a check, before the
/// client hears of that.
impl Drop for Connection<'_> {
    fn drop(&mut self) {
        let Some(setup) = self.setup.filter(|setup| self.keys.setup() != Some(*setup)) else {
            return;
        };
        if let Err(error) = self.served.store.destroy(&setup) {
            let text = format!(
                "prepared batches whose oblivious transfers failed a check are not destroyed: {error}"
            );
            self.server.log(Entry::new(Level::Error, "store", &text));
        }
    }
}

/// A connection on which nothing was asked for in time.
fn rested(error: SessionError) -> SessionError {
    match error {
        SessionError::Frame(FrameError::Timeout) => SessionError::Idle,
        other => other,
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
