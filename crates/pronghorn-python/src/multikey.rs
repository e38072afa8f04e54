//! The roles of `multi-key`: cloud, model owner, client.

use std::{
    path::PathBuf,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use numpy::{PyArrayDyn, PyReadonlyArrayDyn};
use pronghorn_graph::{finish::Finish, polynomial::PolyGraph};
use pronghorn_he::multikey::Party;
use pronghorn_multikey::{
    Aim,
    roles::{Local, Terms},
};
use pronghorn_plan::planner;
use pronghorn_session::multikey::{
    self, CloudError, CloudLimits, CloudOptions, CloudServer, OwnerKeys,
};
use pyo3::{prelude::*, types::PyDict};

use crate::{
    array, coded, fork,
    model::Model,
    native,
    network::{advised, caps, hex, parse_hex, timed, told},
    options::PlanOptions,
    tls::{ClientTls, ServerTls, TokenSource, client_channel, server_channel},
    watch::{Callback, Watch, abandonable, waited, watched},
};

/// A model as a polynomial network, and what `make` makes of that.
fn with_polynomial<T: Send + 'static>(
    py: Python<'_>,
    model: &Py<Model>,
    options: PlanOptions<'_>,
    make: impl FnOnce(&PolyGraph) -> PyResult<T> + Send + 'static,
) -> PyResult<(PolyGraph, T)> {
    let graph = model.get().graph().clone();
    let options = options.read(&graph.nodes[0].shape)?;
    abandonable(py, move || {
        let graph = planner::polynomial(&graph, &options).map_err(native)?;
        let made = make(&graph)?;
        Ok((graph, made))
    })
}

/// A network under `multi-key`: what it costs, and what it computes.
#[pyclass(frozen, name = "MultiKeyPlan")]
pub struct Plan {
    graph: Arc<PolyGraph>,
    terms: Terms<u32>,
    watch: Arc<Watch>,
}

#[pymethods]
impl Plan {
    #[new]
    fn new(
        py: Python<'_>,
        model: Py<Model>,
        options: PlanOptions<'_>,
        error: f64,
        results: u64,
    ) -> PyResult<Self> {
        let aim = Aim { error, results };
        let (graph, terms) = with_polynomial(py, &model, options, move |graph| {
            // Nobody's keys: a plan and a check in one process.
            Terms::choose(graph, aim, [0; 32]).map_err(native)
        })?;
        Ok(Self {
            graph: Arc::new(graph),
            terms,
            watch: Arc::default(),
        })
    }

    /// Counts, bytes and bounds.
    fn summary<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let summary = self.terms.summary().map_err(native)?;
        let found = terms_dict(py, &self.terms)?;
        let numbers = [
            ("degree", summary.degree),
            ("levels", summary.levels),
            ("primes", summary.primes[0]),
            ("special_primes", summary.primes[1]),
            ("security_bits", summary.security_bits()),
            ("inputs", summary.counts.inputs),
            ("weights", summary.counts.weights),
            ("hoisted_rotations", summary.counts.hoisted),
            ("rotations", summary.counts.folds),
            ("products", summary.counts.products),
            ("relinearisations", summary.counts.relinearisations),
            ("client_key_bytes", summary.keys[0]),
            ("owner_key_bytes", summary.keys[1]),
            ("pair_key_bytes", summary.pair),
            ("model_bytes", summary.model),
            ("image_bytes", summary.image),
            ("outcome_bytes", summary.outcome),
            ("answer_bytes", summary.answer),
            ("log_flood", summary.log_flood as usize),
        ];
        for (name, number) in numbers {
            found.set_item(name, number)?;
        }
        let [fresh, all] = summary.log_moduli;
        found.set_item("log_modulus", fresh)?;
        found.set_item("log_modulus_with_special", all)?;
        Ok(found)
    }

    /// The oracle: the polynomial network in doubles, before the client's operations.
    fn run_oracle<'py>(
        &self,
        py: Python<'py>,
        inputs: PyReadonlyArrayDyn<'py, f32>,
    ) -> PyResult<Bound<'py, PyArrayDyn<f64>>> {
        let face = self.terms.description.face.clone();
        let (values, images) = array::images(&inputs, &face.input)?;
        let graph = self.graph.clone();
        let found = abandonable(py, move || {
            let values: Vec<f64> = values.iter().map(|&x| x.into()).collect();
            Ok(graph.evaluate(&values))
        })?;
        array::array(py, found, images, &face.output)
    }

    /// All roles in this process: values before and after the client's operations, and seconds of
    /// keys and model, and of the images.
    #[pyo3(signature = (inputs, progress=None))]
    #[allow(clippy::type_complexity)]
    fn run_secure<'py>(
        &self,
        py: Python<'py>,
        inputs: PyReadonlyArrayDyn<'py, f32>,
        progress: Option<Py<PyAny>>,
    ) -> PyResult<(
        Bound<'py, PyArrayDyn<f64>>,
        Bound<'py, PyArrayDyn<f32>>,
        [f64; 2],
    )> {
        let face = self.terms.description.face.clone();
        let (values, images) = array::images(&inputs, &face.input)?;
        let (graph, terms, finish) = (self.graph.clone(), self.terms.clone(), face.finish.clone());
        let callback = Callback::new(progress, images);
        let (plain, finished, seconds) = watched(py, callback, &self.watch, move |watch| {
            let started = Instant::now();
            let mut local = Local::new(&terms, &graph).map_err(native)?;
            let made = started.elapsed().as_secs_f64();
            let (mut plain, mut finished) = (Vec::new(), Vec::new());
            for (index, image) in values.chunks((values.len() / images).max(1)).enumerate() {
                if watch.is_cancelled() {
                    break;
                }
                let image: Vec<f64> = image.iter().map(|&x| x.into()).collect();
                let result = local.predict(&image).map_err(native)?;
                finished.extend(finished_values(&finish, &result));
                plain.extend(result);
                watch.report((index + 1) as f64);
            }
            Ok((
                plain,
                finished,
                [made, started.elapsed().as_secs_f64() - made],
            ))
        })?;
        Ok((
            array::array(py, plain, images, &face.output)?,
            array::array(py, finished, images, &face.output_shape())?,
            seconds,
        ))
    }
}

/// A result after the client's operations.
fn finished_values(finish: &[Finish], result: &[f64]) -> Vec<f32> {
    let value = result.iter().map(|&x| x as f32).collect();
    (finish.iter()).fold(value, |value: Vec<f32>, op| op.apply(&value))
}

/// A cloud for one model that it cannot read.
#[pyclass(frozen, name = "MultiKeyCloud")]
pub struct Cloud {
    server: Arc<CloudServer>,
    running: Mutex<Option<thread::JoinHandle<()>>>,
}

#[pymethods]
impl Cloud {
    #[new]
    #[pyo3(signature = (listen, directory, *, owner=None, clients=4, max_upload=2 << 30, limits=Vec::new(), log=None, tls=None, insecure_plain_tcp=false))]
    #[allow(clippy::too_many_arguments, reason = "they are named in Python")]
    fn new(
        py: Python<'_>,
        listen: String,
        directory: PathBuf,
        owner: Option<&str>,
        clients: usize,
        max_upload: u64,
        limits: Vec<(String, Option<u64>)>,
        log: Option<Py<PyAny>>,
        tls: Option<ServerTls>,
        insecure_plain_tcp: bool,
    ) -> PyResult<Self> {
        let options = CloudOptions {
            owner: owner.map(party).transpose()?,
            channel: server_channel(tls, insecure_plain_tcp)?,
            limits: CloudLimits {
                caps: caps(limits)?,
                clients,
                upload: max_upload,
                ..CloudLimits::default()
            },
        };
        let mut server = abandonable(py, move || {
            CloudServer::bind(&listen, &directory, options).map_err(refused)
        })?;
        if let Some(log) = log {
            server = server.with_log(told(log));
        }
        Ok(Self {
            server: Arc::new(server),
            running: Mutex::new(None),
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

    /// Serves until stopped or interrupted.
    fn run(&self, py: Python<'_>) -> PyResult<()> {
        self.start()?;
        loop {
            py.detach(|| thread::sleep(Duration::from_millis(100)));
            if let Err(interrupt) = py.check_signals() {
                self.stop(py);
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
        fork::compute()?;
        let mut running = self.running.lock().map_err(native)?;
        if running.is_none() {
            let server = self.server.clone();
            *running = Some(thread::spawn(move || server.run()));
        }
        Ok(())
    }

    /// Ends all connections and waits for them.
    fn stop(&self, py: Python<'_>) {
        py.detach(|| {
            self.server.stop();
            let running = self.running.lock();
            let thread = running.ok().and_then(|mut running| running.take());
            if let Some(thread) = thread {
                // A panic of the accept loop has already been printed.
                let _ = thread.join();
            }
        });
    }
}

/// A model owner's keys in a directory, with its network; or without it, of a delegate.
#[pyclass(frozen, name = "MultiKeyOwner")]
pub struct Owner {
    graph: Option<Arc<PolyGraph>>,
    /// Locked while the owner attends.
    keys: Arc<Mutex<OwnerKeys>>,
    party: Party,
    terms: Terms<u32>,
    left: Arc<AtomicU64>,
    watch: Arc<Watch>,
}

#[pymethods]
impl Owner {
    #[new]
    fn new(
        py: Python<'_>,
        model: Py<Model>,
        options: PlanOptions<'_>,
        directory: PathBuf,
        error: f64,
        results: u64,
    ) -> PyResult<Self> {
        let aim = Aim { error, results };
        let (graph, keys) = with_polynomial(py, &model, options, move |graph| {
            OwnerKeys::open(&directory, graph, aim).map_err(refused)
        })?;
        Ok(Self::with(Some(Arc::new(graph)), keys))
    }

    /// The keys that an owner has handed over, without a network.
    #[staticmethod]
    fn delegate(py: Python<'_>, directory: PathBuf) -> PyResult<Self> {
        let keys = abandonable(py, move || OwnerKeys::delegate(&directory).map_err(refused))?;
        Ok(Self::with(None, keys))
    }

    /// Moves a key with its ledger and clients to another directory.
    #[staticmethod]
    fn hand_over(directory: PathBuf, to: PathBuf) -> PyResult<()> {
        OwnerKeys::hand_over(&directory, &to).map_err(refused)
    }

    /// Its name, 64 hexadecimal digits.
    #[getter]
    fn name(&self) -> String {
        hex(&self.party.0)
    }

    #[getter]
    fn results_left(&self) -> u64 {
        self.left.load(Ordering::Relaxed)
    }

    /// Sizes and bounds that all parties agree on.
    fn terms<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        terms_dict(py, &self.terms)
    }

    /// Publishes the model where the cloud lacks it, and takes part in decryptions until
    /// interrupted.
    #[pyo3(signature = (address, timeout, log, *, tls=None, token=None, insecure_plain_tcp=false))]
    #[allow(clippy::too_many_arguments, reason = "they are named in Python")]
    fn attend(
        &self,
        py: Python<'_>,
        address: String,
        timeout: f64,
        log: Py<PyAny>,
        tls: Option<ClientTls>,
        token: Option<TokenSource>,
        insecure_plain_tcp: bool,
    ) -> PyResult<()> {
        let options = pronghorn_session::ConnectOptions {
            channel: client_channel(tls, token, insecure_plain_tcp)?,
            cancel: self.watch.cancel.clone(),
            ..timed(timeout)?
        };
        let (keys, graph, log) = (self.keys.clone(), self.graph.clone(), told(log));
        watched(py, Callback::none(), &self.watch, move |_| {
            let mut keys = keys.lock().map_err(native)?;
            let attended = match &graph {
                Some(graph) => keys.attend(graph, &address, &options, &log),
                None => keys.attend_published(&address, &options, &log),
            };
            attended.map_err(refused)
        })
    }

    /// Ends `attend` on another thread.
    fn stop(&self) {
        self.watch.cancel.store(true, Ordering::SeqCst);
    }
}

impl Owner {
    fn with(graph: Option<Arc<PolyGraph>>, keys: OwnerKeys) -> Self {
        Self {
            graph,
            party: keys.party(),
            terms: keys.terms().clone(),
            left: keys.left(),
            keys: Arc::new(Mutex::new(keys)),
            watch: Arc::default(),
        }
    }
}

/// A client of a cloud.
#[pyclass(frozen, name = "MultiKeyClient")]
pub struct CloudClient {
    client: Arc<Mutex<multikey::CloudClient>>,
    terms: Terms<u32>,
    party: Party,
    watch: Arc<Watch>,
}

#[pymethods]
impl CloudClient {
    #[new]
    #[pyo3(signature = (address, owner, directory, timeout, *, tls=None, token=None, insecure_plain_tcp=false))]
    #[allow(clippy::too_many_arguments, reason = "they are named in Python")]
    fn new(
        py: Python<'_>,
        address: String,
        owner: &str,
        directory: PathBuf,
        timeout: f64,
        tls: Option<ClientTls>,
        token: Option<TokenSource>,
        insecure_plain_tcp: bool,
    ) -> PyResult<Self> {
        let (watch, owner) = (Arc::<Watch>::default(), party(owner)?);
        let options = pronghorn_session::ConnectOptions {
            channel: client_channel(tls, token, insecure_plain_tcp)?,
            cancel: watch.cancel.clone(),
            ..timed(timeout)?
        };
        fork::compute()?;
        let client = waited(py, &watch, move |_| {
            let seed = multikey::client_seed(&directory).map_err(refused)?;
            multikey::CloudClient::meet(&address, owner, &seed, options).map_err(refused)
        })?;
        Ok(Self {
            terms: client.terms().clone(),
            party: client.party(),
            client: Arc::new(Mutex::new(client)),
            watch,
        })
    }

    /// Its name, 64 hexadecimal digits.
    #[getter]
    fn name(&self) -> String {
        hex(&self.party.0)
    }

    #[getter]
    fn input_shape(&self) -> Vec<usize> {
        self.terms.description.face.input.clone()
    }

    #[getter]
    fn output_shape(&self) -> Vec<usize> {
        self.terms.description.face.output_shape()
    }

    /// The client's operations on results, such as `softmax`.
    #[getter]
    fn finish(&self) -> Vec<&'static str> {
        let finish = self.terms.description.face.finish.iter();
        finish.map(|finish| finish.name()).collect()
    }

    /// The model's names of its classes.
    #[getter]
    fn class_names(&self) -> Vec<String> {
        self.terms.description.face.class_names.clone()
    }

    /// Sizes and bounds that all parties agree on.
    fn terms<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        terms_dict(py, &self.terms)
    }

    /// Introduces itself to the model owner, and sends the public keys unless the cloud has them;
    /// their bytes.
    fn join(&self, py: Python<'_>) -> PyResult<Option<u64>> {
        let client = self.client.clone();
        watched(py, Callback::none(), &self.watch, move |_| {
            let mut client = client.lock().map_err(native)?;
            client.join(|_| ()).map_err(refused)?;
            Ok(client.keys_sent())
        })
    }

    /// Leaves the cloud; where a prediction goes on in another thread, with that.
    fn close(&self, py: Python<'_>) {
        py.detach(|| {
            if let Ok(mut client) = self.client.try_lock() {
                client.leave();
            }
        });
    }

    /// The values before and after the client's operations, and costs.
    #[pyo3(signature = (inputs, progress=None))]
    #[allow(clippy::type_complexity)]
    fn predict<'py>(
        &self,
        py: Python<'py>,
        inputs: PyReadonlyArrayDyn<'py, f32>,
        progress: Option<Py<PyAny>>,
    ) -> PyResult<(
        Bound<'py, PyArrayDyn<f64>>,
        Bound<'py, PyArrayDyn<f32>>,
        Bound<'py, PyDict>,
    )> {
        let (values, images) = array::images(&inputs, &self.input_shape())?;
        let elements = (values.len() / images.max(1)).max(1);
        let client = self.client.clone();
        let face = self.terms.description.face.clone();
        let finish = face.finish.clone();
        let (started, callback) = (Instant::now(), Callback::new(progress, images));
        let found = watched(py, callback, &self.watch, move |watch| {
            let mut client = client.lock().map_err(native)?;
            let before = client.bytes();
            let (mut plain, mut finished) = (Vec::new(), Vec::new());
            for (index, image) in values.chunks(elements).enumerate() {
                let image: Vec<f64> = image.iter().map(|&x| x.into()).collect();
                let result = client.predict(&image).map_err(refused)?;
                let value: Vec<f32> = result.iter().map(|&x| x as f32).collect();
                finished.extend((finish.iter()).fold(value, |value, op| op.apply(&value)));
                plain.extend(result);
                watch.report((index + 1) as f64);
            }
            let after = client.bytes();
            Ok((plain, finished, [0, 1].map(|way| after[way] - before[way])))
        })?;
        let (plain, finished, [sent, received]) = found;
        let stats = PyDict::new(py);
        stats.set_item("seconds", started.elapsed().as_secs_f64())?;
        stats.set_item("bytes_sent", sent)?;
        stats.set_item("bytes_received", received)?;
        Ok((
            array::array(py, plain, images, &face.output)?,
            array::array(py, finished, images, &face.output_shape())?,
            stats,
        ))
    }
}

fn terms_dict<'py>(py: Python<'py>, terms: &Terms<u32>) -> PyResult<Bound<'py, PyDict>> {
    let found = PyDict::new(py);
    found.set_item("error", terms.error().map_err(native)?)?;
    let [low, high] = terms.range();
    found.set_item("input_range", (low, high))?;
    found.set_item("results", terms.description.results)?;
    found.set_item("key_bytes", terms.most_key_bytes())?;
    Ok(found)
}

/// A name that a user gave.
fn party(digits: &str) -> PyResult<Party> {
    Ok(Party(parse_hex("a party's name", digits)?))
}

/// A role's error as Python's.
fn refused(error: CloudError) -> PyErr {
    match error {
        CloudError::Session(error) => advised(error),
        error => coded(error.to_string(), error.reason(), error.is_retryable()),
    }
}
