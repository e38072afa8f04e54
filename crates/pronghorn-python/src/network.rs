//! Serving and predicting over TCP.

use std::{
    mem,
    path::PathBuf,
    sync::{Arc, Mutex},
    thread,
    time::{Duration, Instant},
};

use numpy::{PyArrayDyn, PyReadonlyArrayDyn};
use pronghorn_plan::{CheckedPlan, TrustLevel};
use pronghorn_session::{
    self as session, ConnectOptions, Entry, LabelError, Limits, ModelId, ModelRef, Offer, Phase,
    SessionError, TicketSource, Value,
    limits::table::{Caps, LIMITS, Limit},
    proxy::Network,
    ticket::{Signer, Tickets},
};
use pyo3::{
    prelude::*,
    types::{PyBytes, PyDict},
};

use crate::{
    array, coded,
    fork::{self, Home},
    machine,
    model::Compiled,
    native,
    tls::{ClientTls, ServerTls, TokenSource, client_channel, server_channel},
    watch::{Callback, Cancel, Watch, waited, watched},
};

/// A server of models.
#[pyclass(frozen)]
pub struct Server {
    server: Arc<session::Server>,
    running: Mutex<Option<thread::JoinHandle<()>>>,
    home: Home,
}

/// What a forked child cannot go on with.
const SERVED: &str = "serves models";
const CONNECTED: &str = "is connected to a server";

impl Drop for Server {
    fn drop(&mut self) {
        if self.home.is_left() {
            // Its threads are the parent's: nothing here may end it.
            mem::forget(self.server.clone());
        }
    }
}

#[pymethods]
impl Server {
    #[new]
    #[pyo3(signature = (models, listen, limits, idle_timeout, threads, prepare, prepare_bytes, store, log, *, hello_timeout=5.0, keep_alive=None, max_waiting=256, queue_timeout=30.0, turn=5.0, proxies=Vec::new(), tickets=None, tls=None, insecure_plain_tcp=false))]
    #[allow(clippy::too_many_arguments, reason = "they are named in Python")]
    fn new(
        py: Python<'_>,
        models: Vec<Offered>,
        listen: &str,
        limits: Vec<(String, Option<u64>)>,
        idle_timeout: f64,
        threads: Option<usize>,
        prepare: usize,
        prepare_bytes: u64,
        store: Option<PathBuf>,
        log: Option<Py<PyAny>>,
        hello_timeout: f64,
        keep_alive: Option<f64>,
        max_waiting: usize,
        queue_timeout: f64,
        turn: f64,
        proxies: Vec<String>,
        tickets: Option<(String, String)>,
        tls: Option<ServerTls>,
        insecure_plain_tcp: bool,
    ) -> PyResult<Self> {
        fork::check()?;
        machine::limit_threads(threads)?;
        let limits = Limits {
            caps: caps(limits)?,
            max_prepared: prepare,
            max_prepared_bytes: prepare_bytes,
            idle_timeout: seconds(idle_timeout)?,
            hello_timeout: seconds(hello_timeout)?,
            keep_alive: keep_alive.map(seconds).transpose()?,
            max_waiting,
            queue_timeout: seconds(queue_timeout)?,
            turn: seconds(turn)?,
            ..Limits::default()
        };
        let channel = server_channel(tls, insecure_plain_tcp)?;
        let server = session::Server::bind_over(listen, offers(py, models)?, limits, channel);
        let proxies = proxies.iter().map(|text| text.parse::<Network>());
        let proxies = proxies.collect::<Result<_, _>>().map_err(option)?;
        let mut server = server.map_err(advised)?.with_proxies(proxies);
        if let Some((public, node)) = tickets {
            let public = parse_hex("the key of an admission service", &public)?;
            server = server.with_tickets(Tickets::new(public, node).map_err(native)?);
        }
        if let Some(directory) = store {
            server = server.with_store(&directory).map_err(advised)?;
        }
        if let Some(log) = log {
            server = server.with_log(told(log));
        }
        Ok(Self {
            server: Arc::new(server),
            running: Mutex::new(None),
            home: Home::here(),
        })
    }

    #[getter]
    fn address(&self) -> String {
        self.server.local_addr().to_string()
    }

    /// The SHA-256 of its certificate; none on plain TCP.
    #[getter]
    fn fingerprint(&self) -> Option<String> {
        self.server.fingerprint()
    }

    /// Serves other models from now on.
    fn offer(&self, py: Python<'_>, models: Vec<Offered>) -> PyResult<()> {
        self.home.check(SERVED)?;
        let offers = offers(py, models)?;
        py.detach(|| self.server.offer(offers).map_err(advised))
    }

    /// Serves until stopped or interrupted.
    fn run(&self, py: Python<'_>) -> PyResult<()> {
        self.start()?;
        loop {
            py.detach(|| thread::sleep(Duration::from_millis(100)));
            if let Err(interrupt) = py.check_signals() {
                self.stop(py)?;
                return Err(interrupt);
            }
            let running = self.running.lock().map_err(native)?;
            if running.as_ref().is_none_or(thread::JoinHandle::is_finished) {
                return Ok(());
            }
        }
    }

    /// Serves on a thread of its own.
    fn start(&self) -> PyResult<()> {
        self.home.check(SERVED)?;
        fork::compute()?;
        let mut running = self.running.lock().map_err(native)?;
        if running.is_none() {
            let server = self.server.clone();
            *running = Some(thread::spawn(move || server.run()));
        }
        Ok(())
    }

    /// Takes no new clients, and waits a while until sessions have ended, each after its batch;
    /// whether all have.
    fn drain(&self, py: Python<'_>, timeout: f64) -> PyResult<bool> {
        self.home.check(SERVED)?;
        let (started, patience) = (Instant::now(), seconds(timeout)?);
        loop {
            let left = patience.saturating_sub(started.elapsed()).min(DRAIN_STEP);
            if py.detach(|| self.server.drain(left)) {
                return Ok(true);
            }
            py.check_signals()?;
            if started.elapsed() >= patience {
                return Ok(false);
            }
        }
    }

    /// Its state and counters.
    fn metrics<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        metrics_dict(py, &self.server.metrics())
    }

    /// Ends all sessions and waits for them.
    fn stop(&self, py: Python<'_>) -> PyResult<()> {
        self.home.check(SERVED)?;
        py.detach(|| {
            self.server.stop();
            let thread = self
                .running
                .lock()
                .ok()
                .and_then(|mut running| running.take());
            if let Some(thread) = thread {
                // A panic of the accept loop has already been printed.
                let _ = thread.join();
            }
        });
        Ok(())
    }
}

/// The limits that a server has, with their values where they are not the default's.
pub fn caps(values: Vec<(String, Option<u64>)>) -> PyResult<Caps> {
    let caps = values
        .into_iter()
        .try_fold(Caps::default(), |caps, (name, value)| {
            caps.with(&name, value)
        });
    caps.map_err(option)
}

/// A value of an option that makes no sense.
fn option(error: impl std::fmt::Display) -> PyErr {
    coded(error.to_string(), "option", false)
}

/// A new key of an admission service.
#[pyfunction]
pub fn new_admission_key(py: Python<'_>) -> PyResult<Bound<'_, PyBytes>> {
    let key = Signer::generate().map_err(native)?;
    Ok(PyBytes::new(py, &key))
}

/// The public half of an admission service's key, as nodes know it.
#[pyfunction]
pub fn admission_public(key: &[u8]) -> PyResult<String> {
    Ok(hex(&Signer::new(key).map_err(option)?.public()))
}

/// A ticket for a client at a run of a node, for so many seconds.
#[pyfunction]
pub fn issue_ticket<'py>(
    py: Python<'py>,
    key: &[u8],
    node: &str,
    run: &str,
    client: Option<&str>,
    time: f64,
) -> PyResult<Bound<'py, PyBytes>> {
    let signer = Signer::new(key).map_err(option)?;
    let run = parse_hex("the run of a node", run)?;
    let ticket = signer.issue(node, run, client, seconds(time)?);
    let ticket = ticket.map_err(option)?;
    Ok(PyBytes::new(py, &ticket))
}

/// Each limit on what clients use.
#[pyfunction]
pub fn limits(py: Python<'_>) -> PyResult<Vec<Bound<'_, PyDict>>> {
    let row = |limit: &Limit| {
        let row = PyDict::new(py);
        row.set_item("name", limit.name)?;
        row.set_item("key", limit.key.name())?;
        row.set_item("unit", limit.resource.unit())?;
        row.set_item("period", limit.resource.period().to_string())?;
        row.set_item("default", limit.default)?;
        row.set_item("retryable", limit.is_retryable())?;
        row.set_item("code", limit.code())?;
        row.set_item("help", limit.help)?;
        Ok(row)
    };
    LIMITS.iter().map(row).collect()
}

/// How long a server that drains waits before it looks for signals.
const DRAIN_STEP: Duration = Duration::from_millis(100);

/// A log that calls Python, while there is an interpreter.
pub fn told(log: Py<PyAny>) -> impl Fn(&Entry) + Send + Sync + 'static {
    move |entry: &Entry| {
        Python::try_attach(|py| {
            let told = fields_dict(py, entry).and_then(|fields| {
                let (level, text) = (entry.level.to_string(), entry.text.as_str());
                log.call1(py, (level, entry.event, text, fields))
            });
            // A logger that raises has nobody to tell: its exception is printed by Python.
            if let Err(error) = told {
                error.print(py);
            }
        });
    }
}

fn fields_dict<'py>(py: Python<'py>, entry: &Entry) -> PyResult<Bound<'py, PyDict>> {
    let fields = PyDict::new(py);
    for (name, value) in &entry.fields {
        match value {
            Value::Number(number) => fields.set_item(name, number)?,
            Value::Seconds(seconds) => fields.set_item(name, seconds)?,
            Value::Text(text) => fields.set_item(name, text)?,
        }
    }
    Ok(fields)
}

fn metrics_dict<'py>(py: Python<'py>, found: &session::Metrics) -> PyResult<Bound<'py, PyDict>> {
    let all = PyDict::new(py);
    all.set_item("ready", found.ready)?;
    all.set_item("run", found.run.map(|run| hex(&run)))?;
    all.set_item("connections", found.connections)?;
    all.set_item("places", found.places)?;
    all.set_item("places_used", found.places_used)?;
    all.set_item("queued", found.queued)?;
    all.set_item("memory", found.memory)?;
    all.set_item("memory_used", found.memory_used)?;
    all.set_item("waiting", found.waiting)?;
    all.set_item("failures", &found.failures)?;
    all.set_item("refusals", &found.refusals)?;
    let models = found.models.iter().map(|model| model_dict(py, model));
    all.set_item("models", models.collect::<PyResult<Vec<_>>>()?)?;
    Ok(all)
}

fn model_dict<'py>(py: Python<'py>, found: &session::ModelMetrics) -> PyResult<Bound<'py, PyDict>> {
    let model = PyDict::new(py);
    let ModelId { name, version } = found.id.clone();
    model.set_item("model", String::from(name))?;
    model.set_item("version", String::from(version))?;
    model.set_item("sessions", found.sessions)?;
    model.set_item("admitted", found.admitted)?;
    model.set_item("batches", found.batches)?;
    model.set_item("images", found.images)?;
    model.set_item("prepared", found.prepared)?;
    let named = |bytes: &[(Phase, u64)]| -> Vec<(&str, u64)> {
        let bytes = bytes.iter();
        bytes.map(|&(phase, bytes)| (phase.name(), bytes)).collect()
    };
    model.set_item("bytes_received", named(&found.bytes_received))?;
    model.set_item("bytes_sent", named(&found.bytes_sent))?;
    let seconds = found.seconds.map(|(phase, time)| (phase.name(), time));
    model.set_item("seconds", seconds.to_vec())?;
    model.set_item("predicted_seconds", found.predicted_seconds)?;
    model.set_item("stock", found.stock)?;
    model.set_item("stock_bytes", found.stock_bytes)?;
    Ok(model)
}

/// A model with its name, or name and version, and the names of the clients that it is for.
/// Without a name it has its plan's.
type Offered = (Option<String>, Py<Compiled>, Option<Vec<String>>);

fn offers(py: Python<'_>, models: Vec<Offered>) -> PyResult<Vec<Offer>> {
    let offer = |(name, compiled, clients): Offered| {
        let server = compiled.get().server(py)?;
        let offer = match name {
            Some(name) => Offer::new(model_named(&name)?.into(), server),
            None => server.into(),
        };
        Ok(match clients {
            Some(names) => offer.for_clients(names),
            None => offer,
        })
    };
    models.into_iter().map(offer).collect()
}

/// A name that a user gave.
fn model_named(text: &str) -> PyResult<ModelRef> {
    let parsed: Result<ModelRef, LabelError> = text.parse();
    parsed.map_err(option)
}

/// The models that a server has for this client: name, version, trust level and plan hash of each.
#[pyfunction]
#[pyo3(signature = (address, timeout, *, tls=None, token=None, insecure_plain_tcp=false))]
pub fn list_models(
    py: Python<'_>,
    address: String,
    timeout: f64,
    tls: Option<ClientTls>,
    token: Option<TokenSource>,
    insecure_plain_tcp: bool,
) -> PyResult<Vec<(String, String, &'static str, String)>> {
    let watch = Arc::<Watch>::default();
    let options = ConnectOptions {
        channel: client_channel(tls, token, insecure_plain_tcp)?,
        cancel: watch.cancel.clone(),
        ..timed(timeout)?
    };
    let listed = waited(py, &watch, move |_| {
        session::list_models(&address, &options).map_err(advised)
    })?;
    let told = listed.into_iter().map(|listed| {
        let (id, hash) = (listed.model, hex(&listed.plan_hash));
        (id.name.into(), id.version.into(), listed.trust.name(), hash)
    });
    Ok(told.collect())
}

/// A ticket, or a function that gives one for each connection.
#[derive(FromPyObject)]
enum Ticket {
    One(Vec<u8>),
    Asked(Py<PyAny>),
}

impl From<Ticket> for TicketSource {
    fn from(ticket: Ticket) -> Self {
        match ticket {
            Ticket::One(ticket) => ticket.into(),
            Ticket::Asked(ask) => Self::new(move || {
                Python::attach(|py| {
                    let given = ask.call0(py).and_then(|given| given.extract(py));
                    given.map_err(|error| no_ticket(py, &error))
                })
            }),
        }
    }
}

/// Why a function has given none, by the words and `retryable` of its error.
fn no_ticket(py: Python<'_>, error: &PyErr) -> SessionError {
    let value = error.value(py);
    let is_passing = value.getattr("retryable").and_then(|found| found.extract());
    SessionError::NoTicket {
        text: value.to_string(),
        is_passing: is_passing.unwrap_or(false),
    }
}

/// A connection to a server.
#[pyclass(frozen)]
pub struct Client {
    client: Arc<Mutex<session::Client>>,
    plan: CheckedPlan,
    model: ModelId,
    watch: Arc<Watch>,
    home: Home,
}

impl Drop for Client {
    fn drop(&mut self) {
        if self.home.is_left() {
            // The connection is the parent's: no goodbye may be said on it here.
            mem::forget(self.client.clone());
        }
    }
}

#[pymethods]
impl Client {
    #[new]
    #[pyo3(signature = (address, trust, expected_plan_hash, timeout, threads, store, *, model=None, tls=None, token=None, insecure_plain_tcp=false, cancel=None, ticket=None))]
    #[allow(clippy::too_many_arguments, reason = "they are named in Python")]
    fn new(
        py: Python<'_>,
        address: &str,
        trust: Option<&str>,
        expected_plan_hash: Option<&str>,
        timeout: f64,
        threads: Option<usize>,
        store: Option<PathBuf>,
        model: Option<&str>,
        tls: Option<ClientTls>,
        token: Option<TokenSource>,
        insecure_plain_tcp: bool,
        cancel: Option<Py<Cancel>>,
        ticket: Option<Ticket>,
    ) -> PyResult<Self> {
        machine::limit_threads(threads)?;
        let channel = client_channel(tls, token, insecure_plain_tcp)?;
        let trust = trust
            .map(str::parse::<TrustLevel>)
            .transpose()
            .map_err(native)?;
        let expected_plan_hash = expected_plan_hash
            .map(|digits| parse_hex("a plan hash", digits))
            .transpose()?;
        let watch = cancel.map_or_else(Arc::default, |cancel| Watch::ended_by(cancel.get().flag()));
        let options = ConnectOptions {
            trust,
            model: model.map(model_named).transpose()?,
            expected_plan_hash,
            channel,
            ticket: ticket.map(TicketSource::from),
            store,
            cancel: watch.cancel.clone(),
            ..timed(timeout)?
        };
        let address = address.to_owned();
        let client = waited(py, &watch, move |_| {
            session::Client::connect(&address, options).map_err(advised)
        })?;
        Ok(Self {
            plan: client.plan().clone(),
            model: client.model_id().clone(),
            client: Arc::new(Mutex::new(client)),
            watch,
            home: Home::here(),
        })
    }

    /// Name and version of the model.
    #[getter]
    fn model(&self) -> (String, String) {
        let ModelId { name, version } = self.model.clone();
        (name.into(), version.into())
    }

    #[pyo3(signature = (details=false))]
    fn plan_text(&self, details: bool) -> String {
        match details {
            true => format!("{:#}", self.plan),
            false => self.plan.to_string(),
        }
    }

    fn plan_json(&self) -> String {
        self.plan.to_json()
    }

    #[getter]
    fn plan_hash(&self) -> String {
        self.plan.hash_hex()
    }

    /// Images of a piece of a long work.
    fn piece(&self, py: Python<'_>) -> PyResult<usize> {
        self.with(py, |client| Ok(client.piece()))
    }

    /// Most prepared batches that the server keeps for this client.
    fn most_prepared(&self, py: Python<'_>) -> PyResult<usize> {
        self.with(py, |client| Ok(client.most_prepared()))
    }

    #[getter]
    fn input_shape(&self) -> Vec<usize> {
        self.plan.input().shape.clone()
    }

    #[getter]
    fn output_shape(&self) -> Vec<usize> {
        self.plan.output_shape()
    }

    #[pyo3(signature = (images, progress=None))]
    fn prepare<'py>(
        &self,
        py: Python<'py>,
        images: usize,
        progress: Option<Py<PyAny>>,
    ) -> PyResult<Bound<'py, PyDict>> {
        self.home.check(CONNECTED)?;
        let client = self.client.clone();
        let callback = Callback::new(progress, images);
        let stats = watched(py, callback, &self.watch, move |watch| {
            let mut client = client.lock().map_err(native)?;
            client
                .prepare(images, |now| watch.report(now.done))
                .map_err(advised)
        })?;
        stats_dict(py, &self.plan, &stats)
    }

    /// Whether predictions of so many images find a preparation for each of their batches.
    fn is_prepared(&self, py: Python<'_>, images: usize) -> PyResult<bool> {
        self.with(py, |client| client.is_prepared(images))
    }

    /// Keeps batches prepared in the background; 0: no more.
    #[pyo3(signature = (batches, images))]
    fn keep_prepared(&self, py: Python<'_>, batches: usize, images: Option<usize>) -> PyResult<()> {
        self.with(py, |client| client.keep_prepared(batches, images))
    }

    /// Ends that; where a prediction goes on in another thread, with that.
    fn end_refill(&self, py: Python<'_>) -> PyResult<()> {
        if self.home.is_left() {
            return Ok(());
        }
        py.detach(|| match self.client.try_lock() {
            Ok(mut client) => client.keep_prepared(0, None).map_err(advised),
            Err(_) => Ok(()),
        })
    }

    /// Waits until they are prepared, a while at most; whether they are.
    fn wait_prepared(&self, py: Python<'_>, timeout: f64) -> PyResult<bool> {
        let patience = seconds(timeout)?;
        self.with(py, |client| match client.refill() {
            Some(refill) => refill.wait(patience),
            None => Ok(true),
        })
    }

    /// Why they are no longer prepared; told once.
    fn refill_error(&self, py: Python<'_>) -> PyResult<Option<String>> {
        if self.home.is_left() {
            return Ok(None);
        }
        let error = self.with(py, |client| {
            Ok(client.refill().and_then(session::Refill::take_error))
        })?;
        Ok(error.map(|error| in_words(&error)))
    }

    /// Images as the plan's integers, for predictions.
    fn quantise(&self, py: Python<'_>, inputs: PyReadonlyArrayDyn<'_, f32>) -> PyResult<Quantised> {
        self.home.check(CONNECTED)?;
        let (values, images) = array::values(&inputs, &self.input_shape())?;
        fork::compute()?;
        let made = py.detach(|| session::Inputs::new(&self.plan, values, images));
        Ok(Quantised(Mutex::new(made.map_err(advised)?)))
    }

    #[pyo3(signature = (inputs, progress=None))]
    fn predict<'py>(
        &self,
        py: Python<'py>,
        inputs: &Quantised,
        progress: Option<Py<PyAny>>,
    ) -> PyResult<Predicted<'py>> {
        self.home.check(CONNECTED)?;
        fork::compute()?;
        let inputs = inputs.take()?;
        let images = inputs.count();
        let client = self.client.clone();
        let callback = Callback::new(progress, images);
        let prediction = watched(py, callback, &self.watch, move |watch| {
            let mut client = client.lock().map_err(native)?;
            client
                .predict_inputs(inputs, &mut |now| watch.report(now.done))
                .map_err(advised)
        })?;
        let stats = stats_dict(py, &self.plan, &prediction.stats)?;
        Ok((
            array::array(py, prediction.outputs, images, &self.output_shape())?,
            prediction.beyond_samples,
            stats,
            prediction.unkept,
        ))
    }
}

/// Images as a plan's integers. Secret: no Debug.
#[pyclass(frozen, module = "pronghorn._native")]
pub struct Quantised(Mutex<session::Inputs>);

#[pymethods]
impl Quantised {
    /// The images of all parts, one after the other, which are of one plan.
    #[staticmethod]
    fn joined(parts: Vec<Bound<'_, Self>>) -> PyResult<Self> {
        let inputs = parts.iter().map(|part| part.get().take());
        let inputs: Vec<_> = inputs.collect::<PyResult<_>>()?;
        let joined = session::Inputs::joined(&inputs);
        let joined = joined.ok_or_else(|| native("no inputs, or those of two plans"))?;
        Ok(Self(Mutex::new(joined)))
    }
}

impl Quantised {
    /// Them, and others like them are left.
    fn take(&self) -> PyResult<session::Inputs> {
        let mut inputs = self.0.lock().map_err(native)?;
        let again = inputs.again();
        Ok(std::mem::replace(&mut *inputs, again))
    }
}

impl Client {
    /// Something done with the connection while Python goes on.
    fn with<T: Send>(
        &self,
        py: Python<'_>,
        act: impl FnOnce(&mut session::Client) -> Result<T, SessionError> + Send,
    ) -> PyResult<T> {
        self.home.check(CONNECTED)?;
        py.detach(|| {
            let mut client = self.client.lock().map_err(native)?;
            act(&mut client).map_err(advised)
        })
    }
}

/// Outputs, which images' are beyond those of samples, what they cost, and why the store did not keep what the server published.
type Predicted<'py> = (
    Bound<'py, PyArrayDyn<f32>>,
    Option<Vec<bool>>,
    Bound<'py, PyDict>,
    Option<String>,
);

/// Activations that were clamped, as far as the client sees them: not on shares.
pub fn clamped_activations(plan: &CheckedPlan, counted: u64) -> Option<u64> {
    (!plan.trust.shares()).then_some(counted)
}

fn stats_dict<'py>(
    py: Python<'py>,
    plan: &CheckedPlan,
    found: &session::Stats,
) -> PyResult<Bound<'py, PyDict>> {
    let stats = PyDict::new(py);
    stats.set_item("seconds", found.seconds)?;
    stats.set_item("bytes_sent", found.bytes_sent)?;
    stats.set_item("bytes_received", found.bytes_received)?;
    stats.set_item("messages", found.messages)?;
    stats.set_item("clamped_inputs", found.clamped_inputs)?;
    let seen = clamped_activations(plan, found.clamped_activations);
    stats.set_item("clamped_activations", seen)?;
    stats.set_item("prepared_batches", found.prepared_batches)?;
    stats.set_item("lost_preparations", found.lost_preparations)?;
    Ok(stats)
}

/// A session's error with what a client's user can do about it.
pub fn advised(error: SessionError) -> PyErr {
    coded(in_words(&error), error.reason(), error.is_retryable())
}

fn in_words(error: &SessionError) -> String {
    match error.advice() {
        Some(advice) => format!("{error}\n  what to do: {advice}"),
        None => error.to_string(),
    }
}

/// A duration users gave in seconds.
fn seconds(value: f64) -> PyResult<Duration> {
    Duration::try_from_secs_f64(value)
        .map_err(|_| native(format!("a timeout of {value} seconds makes no sense")))
}

/// The time limits of a client whose user gave this one.
pub fn timed(timeout: f64) -> PyResult<ConnectOptions> {
    let (timeout, defaults) = (seconds(timeout)?, ConnectOptions::default());
    Ok(ConnectOptions {
        timeout,
        connect_timeout: timeout.min(defaults.connect_timeout),
        ..defaults
    })
}

pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// 64 hexadecimal digits, which stand for `what`.
pub fn parse_hex<const BYTES: usize>(what: &str, text: &str) -> PyResult<[u8; BYTES]> {
    let digits = 2 * BYTES;
    let wrong = || {
        native(format!(
            "{what} has {digits} hexadecimal digits, not {text:?}"
        ))
    };
    let mut bytes = [0u8; BYTES];
    if text.len() != digits || !text.is_ascii() {
        return Err(wrong());
    }
    for (index, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&text[2 * index..][..2], 16).map_err(|_| wrong())?;
    }
    Ok(bytes)
}
