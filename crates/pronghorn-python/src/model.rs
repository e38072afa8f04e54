//! Models: import, plan, oracle, and a secure run within the process.

use std::{
    collections::BTreeMap,
    sync::{Arc, OnceLock},
    time::Instant,
};

use numpy::{PyArrayDyn, PyReadonlyArrayDyn, PyUntypedArrayMethods};
use pronghorn_engine::ServerModel;
use pronghorn_graph::{
    features, float,
    graph::{Graph, Op, Tensor},
    oracle,
};
use pronghorn_plan::{
    Built, Fidelity, Plan, TrustLevel, build, cost, planner::schedule::Passes, summary::Summary,
};
use pronghorn_session::{ImagesDone, SessionError, in_process_dithered, in_process_watched};
use pyo3::{prelude::*, types::PyDict};

use crate::{
    array,
    machine::{Speed, pool},
    native,
    network::clamped_activations,
    options::{self, PlanOptions},
    watch::{Callback, Watch, abandonable, watched},
};

/// Images the float model takes at once: progress is reported and an end heard in between.
const FLOAT_CHUNK: usize = 64;

/// The oracle takes as many images at once as need this many multiply-adds, likewise.
const ORACLE_WORK: u64 = 1 << 31;

/// A float model.
#[pyclass(frozen)]
pub struct Model {
    graph: Arc<Graph>,
}

impl Model {
    /// The graph.
    pub fn graph(&self) -> &Arc<Graph> {
        &self.graph
    }
}

#[pymethods]
impl Model {
    #[new]
    fn new(
        graph_json: &str,
        tensors: BTreeMap<String, PyReadonlyArrayDyn<'_, f32>>,
    ) -> PyResult<Self> {
        let tensors = tensors.into_iter().map(|(name, array)| {
            let data = array
                .as_slice()
                .map_err(|_| native(format!("weights {name} are not C-contiguous")))?;
            Ok((name, Tensor::new(array.shape(), data.to_vec())))
        });
        let graph =
            Graph::from_json(graph_json, tensors.collect::<PyResult<_>>()?).map_err(native)?;
        Ok(Self {
            graph: Arc::new(graph),
        })
    }

    #[getter]
    fn input_shape(&self) -> Vec<usize> {
        self.graph.nodes[0].shape.clone()
    }

    #[getter]
    fn output_shape(&self) -> Vec<usize> {
        let output = &self.graph.nodes[self.graph.output];
        if output.op == Op::ArgMax {
            vec![1]
        } else {
            output.shape.clone()
        }
    }

    #[pyo3(signature = (inputs, progress=None))]
    fn run_float<'py>(
        &self,
        py: Python<'py>,
        inputs: PyReadonlyArrayDyn<'py, f32>,
        progress: Option<Py<PyAny>>,
    ) -> PyResult<Bound<'py, PyArrayDyn<f32>>> {
        let (values, images) = array::images(&inputs, &self.input_shape())?;
        let graph = self.graph.clone();
        let callback = Callback::new(progress, images);
        let result = watched(py, callback, &Arc::default(), move |watch| {
            in_chunks(watch, &values, images, FLOAT_CHUNK, |chunk, count| {
                float::evaluate(&graph, chunk, count).map_err(native)
            })
        })?;
        array::array(py, result, images, &self.output_shape())
    }

    /// The features of a row that products, squares and functions read before any layer.
    fn features_in_products(&self) -> Vec<usize> {
        features::in_products(&self.graph)
    }

    /// The model whose result is the class.
    fn with_class(&self) -> PyResult<Self> {
        let graph = self.graph.with_class().map_err(native)?;
        Ok(Self {
            graph: Arc::new(graph),
        })
    }

    fn compile(&self, py: Python<'_>, options: PlanOptions<'_>) -> PyResult<Compiled> {
        let options = options.read(&self.input_shape())?;
        let graph = self.graph.clone();
        abandonable(py, move || {
            Ok(Compiled {
                built: Arc::new(build(&graph, &options).map_err(native)?),
                server: OnceLock::new(),
                passes: options.passes,
            })
        })
    }
}

/// A plan with the server's half.
#[pyclass(frozen)]
pub struct Compiled {
    built: Arc<Built>,
    /// Made where it is first asked for: to lay out large weights takes seconds.
    server: OnceLock<Arc<ServerModel>>,
    passes: Passes,
}

impl Compiled {
    /// The plan with its weights.
    pub fn built(&self) -> Arc<Built> {
        self.built.clone()
    }

    /// The server's half.
    pub fn server(&self, py: Python<'_>) -> PyResult<Arc<ServerModel>> {
        if let Some(server) = self.server.get() {
            return Ok(server.clone());
        }
        let built = self.built.clone();
        let made = abandonable(py, move || ServerModel::new(&built).map_err(native))?;
        Ok(self.server.get_or_init(|| made.into()).clone())
    }

    fn oracle_integers(
        &self,
        py: Python<'_>,
        inputs: &PyReadonlyArrayDyn<'_, f32>,
        progress: Option<Py<PyAny>>,
    ) -> PyResult<(Vec<i32>, usize)> {
        let (values, images) = array::images(inputs, &self.input_shape())?;
        crate::fork::compute()?;
        let built = self.built.clone();
        let affordable = ORACLE_WORK / built.multiply_adds().max(1);
        let most = (affordable as usize).max(rayon::current_num_threads());
        let callback = Callback::new(progress, images);
        let integers = watched(py, callback, &Arc::default(), move |watch| {
            in_chunks(watch, &values, images, most, |chunk, count| {
                let (inputs, _) = built.plan.quantise(chunk).map_err(native)?;
                built.oracle(&inputs, count).map_err(native)
            })
        })?;
        Ok((integers, images))
    }

    /// Integers and what users read, as arrays.
    #[allow(clippy::type_complexity)]
    fn result<'py>(
        &self,
        py: Python<'py>,
        integers: Vec<i32>,
        images: usize,
    ) -> PyResult<(Bound<'py, PyArrayDyn<i32>>, Bound<'py, PyArrayDyn<f32>>)> {
        let decoded = self.decoded(&integers, images);
        Ok((
            array::array(py, integers, images, &self.built.plan.result().shape)?,
            array::array(py, decoded, images, &self.output_shape())?,
        ))
    }

    fn decoded(&self, integers: &[i32], images: usize) -> Vec<f32> {
        let plan = &self.built.plan;
        oracle::finish(&plan.finish, plan.result(), integers, images)
    }
}

/// `compute` on the values of at most `most` images at a time, its results one after the other.
fn in_chunks<T>(
    watch: &Watch,
    values: &[f32],
    images: usize,
    most: usize,
    mut compute: impl FnMut(&[f32], usize) -> PyResult<Vec<T>>,
) -> PyResult<Vec<T>> {
    let elements = (values.len() / images.max(1)).max(1);
    let (mut results, mut done) = (Vec::new(), 0);
    for chunk in values.chunks(most.max(1).saturating_mul(elements)) {
        if watch.is_cancelled() {
            return Err(native(SessionError::Cancelled));
        }
        let count = chunk.len() / elements;
        results.extend(compute(chunk, count)?);
        done += count;
        watch.report(done as f64);
    }
    Ok(results)
}

/// What the batches of a secure run within this process gave and cost.
#[derive(Default)]
struct SecureRun {
    integers: Vec<i32>,
    /// The oracle's, with the addends of the run; empty where rounding has none.
    oracle: Vec<i32>,
    seconds: f64,
    bytes_up: u64,
    bytes_down: u64,
    clamped_inputs: usize,
    clamped_activations: u64,
    step_seconds: Vec<f64>,
}

impl SecureRun {
    fn of(
        server: &Arc<ServerModel>,
        built: &Built,
        values: &[f32],
        images: usize,
        watch: &Watch,
    ) -> PyResult<Self> {
        let plan = server.plan();
        let is_dithered = plan.is_dithered();
        let most = match is_dithered {
            true => plan.max_batch.min(most_rounded(plan)),
            false => plan.max_batch,
        };
        let (mut all, mut done) = (Self::default(), 0);
        all.integers = in_chunks(watch, values, images, most, |batch, count| {
            let started = Instant::now();
            let mut report = |now: ImagesDone| watch.report(done as f64 + now.done);
            let (run, addends) = match is_dithered {
                true => in_process_dithered(server, batch, count, &watch.cancel, &mut report)
                    .map(|(run, addends)| (run, Some(addends))),
                false => in_process_watched(server, batch, count, &watch.cancel, &mut report)
                    .map(|run| (run, None)),
            }
            .map_err(native)?;
            all.seconds += started.elapsed().as_secs_f64();
            if let Some(addends) = addends {
                let (inputs, _) = plan.quantise(batch).map_err(native)?;
                let oracle = built.oracle_of_run(&inputs, count, &addends);
                all.oracle.extend(oracle.map_err(native)?);
            }
            all.bytes_up += run.bytes_up;
            all.bytes_down += run.bytes_down;
            all.clamped_inputs += run.clamped_inputs;
            all.clamped_activations += run.clamped_activations;
            all.step_seconds.resize(run.step_seconds.len(), 0.0);
            let steps = all.step_seconds.iter_mut().zip(run.step_seconds);
            steps.for_each(|(sum, seconds)| *sum += seconds);
            done += count;
            Ok(run.integers)
        })?;
        Ok(all)
    }
}

/// Images whose shares of rounded values take so much memory at most, at both parties.
const ROUNDED_BYTES: usize = 256 << 20;

fn most_rounded(plan: &Plan) -> usize {
    let inputs = plan.dithered_steps().map(|(step, _)| {
        let input = plan.steps[step].inputs[0];
        8 * plan.steps[input].value.len()
    });
    (ROUNDED_BYTES / inputs.sum::<usize>().max(1)).max(1)
}

#[pymethods]
impl Compiled {
    /// Reads what `to_bytes` gave; `without`: the passes that were left out.
    #[staticmethod]
    fn from_bytes(py: Python<'_>, bytes: Vec<u8>, without: Vec<String>) -> PyResult<Self> {
        let passes = options::passes_without(&without)?;
        abandonable(py, move || {
            let built = Built::from_bytes(&bytes).map_err(native)?;
            let server = Arc::new(ServerModel::new(&built).map_err(native)?);
            Ok(Self {
                built: Arc::new(built),
                server: OnceLock::from(server),
                passes,
            })
        })
    }

    /// All of it as bytes, which hold the weights.
    fn to_bytes(&self) -> Vec<u8> {
        self.built.to_bytes()
    }

    #[getter]
    fn input_shape(&self) -> Vec<usize> {
        self.built.plan.input().shape.clone()
    }

    #[getter]
    fn output_shape(&self) -> Vec<usize> {
        self.built.plan.output_shape()
    }

    #[getter]
    fn trust(&self) -> &'static str {
        self.built.plan.trust.name()
    }

    #[getter]
    fn plan_hash(&self) -> String {
        self.built.plan.hash_hex()
    }

    /// The expected error: in words, what is to be warned of, and its numbers.
    #[getter]
    fn fidelity<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let Fidelity {
            aim,
            error,
            about_mean,
            alike,
            images,
            ref outputs,
            ..
        } = self.built.fidelity;
        let found = PyDict::new(py);
        found.set_item("aim", aim)?;
        found.set_item("is_near", self.built.fidelity.is_near())?;
        found.set_item("error", error)?;
        found.set_item("about_mean", about_mean)?;
        found.set_item("alike", alike)?;
        found.set_item("images", images)?;
        let pairs: Vec<(f64, f64)> = outputs.iter().map(|of| (of.error, of.rmse)).collect();
        found.set_item("outputs", pairs)?;
        let Built { plan, fidelity, .. } = &*self.built;
        found.set_item("outputs_text", fidelity.outputs_text(&plan.outputs))?;
        found.set_item("text", fidelity.to_string())?;
        found.set_item("warnings", self.built.warnings())?;
        Ok(found)
    }

    /// Whether results differ from run to run.
    #[getter]
    fn is_dithered(&self) -> bool {
        self.built.plan.is_dithered()
    }

    #[getter]
    fn tolerance(&self) -> i32 {
        self.built.tolerance()
    }

    #[getter]
    fn multiply_adds(&self) -> u64 {
        self.built.multiply_adds()
    }

    #[pyo3(signature = (details=false, speed=None))]
    fn plan_text(&self, details: bool, speed: Option<Speed>) -> PyResult<String> {
        let text = self.built.text_at(details, &Speed::read(speed)?);
        if self.built.plan.trust == TrustLevel::Encrypted {
            return Ok(format!("{text}\n{}\n", options::describe(self.passes)));
        }
        Ok(text)
    }

    fn plan_json(&self) -> String {
        self.built.plan.to_json()
    }

    #[pyo3(signature = (speed=None))]
    fn summary_json(&self, speed: Option<Speed>) -> PyResult<String> {
        Ok(Summary::at(&self.built, &Speed::read(speed)?).to_json())
    }

    /// Predicted seconds on one core, and bytes up and down, of a run of so many images.
    #[pyo3(signature = (images, speed=None))]
    fn predicted(&self, images: usize, speed: Option<Speed>) -> PyResult<(f64, u64, u64)> {
        let cost = cost::of_images(&self.built.plan, images);
        let seconds = cost.seconds.at(&Speed::read(speed)?);
        Ok((seconds, cost.bytes_up, cost.bytes_down))
    }

    /// Predicted seconds of each step on one core, of a run of so many images.
    #[pyo3(signature = (images, speed=None))]
    fn predicted_steps(&self, images: usize, speed: Option<Speed>) -> PyResult<Vec<f64>> {
        let (plan, speed) = (&self.built.plan, Speed::read(speed)?);
        let seconds = |index| cost::step_of_images(plan, index, images).seconds.at(&speed);
        Ok((0..plan.steps.len()).map(seconds).collect())
    }

    fn plan_bytes(&self) -> Vec<u8> {
        self.built.plan.to_bytes()
    }

    /// For each image, whether its deviation or its result's integers are beyond those of the
    /// samples; none where the plan does not say.
    fn beyond_samples(
        &self,
        inputs: PyReadonlyArrayDyn<'_, f32>,
        integers: PyReadonlyArrayDyn<'_, i32>,
    ) -> PyResult<Option<Vec<bool>>> {
        let (inputs, integers) = (
            inputs.as_slice().map_err(native)?,
            integers.as_slice().map_err(native)?,
        );
        let plan = &self.built.plan;
        let images = inputs.chunks(plan.input_len().max(1));
        let deviates: Vec<bool> = images.map(|image| plan.deviates(image)).collect();
        Ok(plan.beyond_samples(&deviates, integers))
    }

    fn run_fixed<'py>(
        &self,
        py: Python<'py>,
        inputs: PyReadonlyArrayDyn<'py, f32>,
    ) -> PyResult<Bound<'py, PyArrayDyn<f32>>> {
        let (integers, images) = self.oracle_integers(py, &inputs, None)?;
        let decoded = self.decoded(&integers, images);
        array::array(py, decoded, images, &self.output_shape())
    }

    #[pyo3(signature = (inputs, progress=None))]
    #[allow(clippy::type_complexity)]
    fn run_oracle<'py>(
        &self,
        py: Python<'py>,
        inputs: PyReadonlyArrayDyn<'py, f32>,
        progress: Option<Py<PyAny>>,
    ) -> PyResult<(Bound<'py, PyArrayDyn<i32>>, Bound<'py, PyArrayDyn<f32>>)> {
        let (integers, images) = self.oracle_integers(py, &inputs, progress)?;
        self.result(py, integers, images)
    }

    #[pyo3(signature = (inputs, threads=None, progress=None))]
    #[allow(clippy::type_complexity)]
    fn run_secure<'py>(
        &self,
        py: Python<'py>,
        inputs: PyReadonlyArrayDyn<'py, f32>,
        threads: Option<usize>,
        progress: Option<Py<PyAny>>,
    ) -> PyResult<(
        Bound<'py, PyArrayDyn<i32>>,
        Bound<'py, PyArrayDyn<f32>>,
        Bound<'py, PyDict>,
    )> {
        let (values, images) = array::images(&inputs, &self.input_shape())?;
        let pool = pool(threads)?;
        let server = self.server(py)?;
        let callback = Callback::new(progress, images);
        let built = self.built.clone();
        let run = watched(py, callback, &Arc::default(), move |watch| {
            pool.install(|| SecureRun::of(&server, &built, &values, images, watch))
        })?;
        let stats = PyDict::new(py);
        stats.set_item("seconds", run.seconds)?;
        stats.set_item("bytes_sent", run.bytes_up)?;
        stats.set_item("bytes_received", run.bytes_down)?;
        stats.set_item("clamped_inputs", run.clamped_inputs)?;
        stats.set_item("step_seconds", run.step_seconds)?;
        let activations = run.clamped_activations;
        let seen = clamped_activations(&self.built.plan, activations);
        stats.set_item("clamped_activations", seen)?;
        let is_dithered = !run.oracle.is_empty();
        let oracle = is_dithered.then(|| self.result(py, run.oracle, images));
        stats.set_item("oracle", oracle.transpose()?)?;
        let (integers, decoded) = self.result(py, run.integers, images)?;
        Ok((integers, decoded, stats))
    }
}
