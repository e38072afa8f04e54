//! How a client connects, and what it checks before anything secret is made.

use std::{
    io,
    net::{TcpStream, ToSocketAddrs},
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};

use pronghorn_engine::{ClientModel, ClientPrepared, Connection};
use pronghorn_plan::{CheckedPlan, Plan, TrustLevel, cost, plan::MAX_BYTES, trust};

use super::{Client, ConnectOptions, TicketSource, part, unless_cancelled};
use crate::{
    channel::{Binding, PROOF_BYTES, Secured, bound_plan},
    error::{SessionError, foreign_peer},
    frame::{Kind, MAX_HANDSHAKE},
    link::Link,
    message::{ClientHello, Hello, ServerHello},
    store::{Bounds, Store, file::Party, kept::KeptFile},
    transport::{Ends, Timeouts, Transport},
};

impl Client {
    /// Connects to `address` (`HOST:PORT`), makes the channel and shakes hands.
    ///
    /// # Errors
    /// When no available trust level is named, nobody answers, or version, trust level or plan are
    /// not as expected; the message says which and what to do.
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
        let again = (address.to_owned(), options.clone());
        // Before there is a line: on it the server has little patience.
        let ticket = options.ticket.map(|source| source.ticket()).transpose()?;
        let options = ConnectOptions {
            ticket: ticket.map(TicketSource::from),
            ..options
        };
        let secured = secured(address, &options)?;
        let mut client = Self::over_sharing(secured, options, store)?;
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
        Self::over_sharing(Secured::over(transport), options, None)
    }

    fn over_sharing(
        channel: Secured,
        options: ConnectOptions,
        store: Option<Arc<Store<ClientPrepared>>>,
    ) -> Result<Self, SessionError> {
        let asked = trust::require(options.trust)?;
        let (cancel, binding) = (options.cancel.clone(), channel.binding);
        let mut link = link(channel.transport, binding.as_ref(), &options)?;
        let met = prove(&mut link, channel.proof)
            .and_then(|()| present(&mut link, &options))
            .and_then(|()| shake_hands(&mut link, asked, &options))
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
            let model = Arc::new(ClientModel::new(plan)?);
            let file = |path: &Path, name| KeptFile::new(path, name, &hello.plan_hash);
            let kept_files = options.store.as_deref().map_or_else(Vec::new, |path| {
                let values = model.persistent().iter();
                values.map(|value| file(path, value.name())).collect()
            });
            Ok((model, hello, fits, store, kept_files))
        });
        match ready {
            Ok((model, hello, fits, store, kept_files)) => Ok(Self {
                link,
                max_batch: model
                    .plan()
                    .max_batch
                    .min(hello.max_batch as usize)
                    .min(fits),
                max_memory: options.max_memory,
                model,
                id: hello.model,
                plan_hash: hello.plan_hash,
                plan_name: bound_plan(binding.as_ref(), &hello.plan_hash),
                images_left: hello.images_left,
                cancel,
                over: false,
                leaves: false,
                last_used: Instant::now(),
                connection: Connection::default().bound_to(binding.map(|b| *b.as_bytes())),
                store,
                kept_files,
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
}

/// The client's store for a plan.
fn open_store(
    directory: Option<&Path>,
    plan: &CheckedPlan,
    options: &ConnectOptions,
) -> Result<Store<ClientPrepared>, SessionError> {
    let bounds = |bytes| Bounds {
        batches: usize::MAX,
        bytes,
    };
    Ok(match directory {
        Some(directory) => Store::open(directory, plan.hash(), bounds(options.max_store))?,
        None => Store::in_memory(plan.hash(), bounds(options.max_memory))?,
    })
}

/// A channel with the server at `address`.
pub(crate) fn secured(address: &str, options: &ConnectOptions) -> Result<Secured, SessionError> {
    let started = Instant::now();
    let stream = connect(address, options.connect_timeout)?;
    // Small messages must not wait for more; where the option is missing they do.
    let _ = stream.set_nodelay(true);
    let left = options.connect_timeout.saturating_sub(started.elapsed());
    let ends = Ends::alone(options.cancel.clone());
    let secured = options.channel.secure(stream, address, &ends, left);
    secured.map_err(|error| unless_cancelled(&options.cancel, error))
}

/// The client's end of a connection.
pub(crate) fn link(
    transport: Box<dyn Transport>,
    binding: Option<&Binding>,
    options: &ConnectOptions,
) -> Result<Link, SessionError> {
    let timeouts = Timeouts {
        idle: options.timeout,
        message: options.timeout,
    };
    let ends = Ends::alone(options.cancel.clone());
    Link::new(Party::Client, transport, binding, timeouts, ends)
}

fn connect(address: &str, timeout: Duration) -> Result<TcpStream, SessionError> {
    let wrong = |source| SessionError::Address {
        address: address.to_owned(),
        source,
    };
    let started = Instant::now();
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    for candidate in address.to_socket_addrs().map_err(wrong)? {
        let left = timeout.saturating_sub(started.elapsed());
        if left.is_zero() {
            last = io::ErrorKind::TimedOut.into();
            break;
        }
        match TcpStream::connect_timeout(&candidate, left) {
            Ok(stream) => return Ok(stream),
            Err(error) => last = error,
        }
    }
    Err(SessionError::Connect {
        address: address.to_owned(),
        source: last,
    })
}

/// Shows that this party has its token, where it has one.
pub(crate) fn prove(link: &mut Link, proof: Option<[u8; PROOF_BYTES]>) -> Result<(), SessionError> {
    proof.map_or(Ok(()), |proof| link.send(Kind::Token, proof.to_vec()))
}

/// Shows a ticket, where the client has one.
fn present(link: &mut Link, options: &ConnectOptions) -> Result<(), SessionError> {
    match &options.ticket {
        Some(source) => link.send(Kind::Ticket, source.ticket()?),
        None => Ok(()),
    }
}

fn shake_hands(
    link: &mut Link,
    asked: TrustLevel,
    options: &ConnectOptions,
) -> Result<(CheckedPlan, ServerHello), SessionError> {
    let (expected_plan_hash, held) = (options.expected_plan_hash, options.plan.clone());
    let greeting = ClientHello {
        trust: asked,
        expected_plan_hash,
        model: options.model.clone(),
    };
    link.send(Kind::ClientHello, greeting.encode())?;
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
    if let Some(asked) = greeting.model.filter(|asked| !asked.is(&hello.model)) {
        let offered = hello.model;
        return Err(SessionError::AnotherModel { asked, offered });
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
        None => fetch_plan(link, &hello)?,
    };
    if plan.trust != asked {
        return Err(SessionError::TrustMismatch {
            asked,
            offered: plan.trust,
        });
    }
    Ok((plan, hello))
}

/// Asks for the plan, and checks that it is the announced one and fit to follow.
fn fetch_plan(link: &mut Link, hello: &ServerHello) -> Result<CheckedPlan, SessionError> {
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
