//! Models: import, plan, oracle, and a secure run within the process.

use std::{collections::BTreeMap, sync::Arc};

use numpy::{PyArrayDyn, PyReadonlyArrayDyn, PyUntypedArrayMethods};
use pronghorn_engine::ServerModel;
use pronghorn_graph::{
    float,
    graph::{Graph, Op, Tensor},
    oracle,
};
use pronghorn_plan::{BuildOptions, Built, TrustLevel, build};
use pronghorn_session::in_process;
use pyo3::{prelude::*, types::PyDict};

use crate::{array, machine::pool, native};

/// A float model.
#[pyclass(frozen)]
pub struct Model {
    graph: Graph,
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
                .map_err(|_| native(format!("weights {name} are not C-contiguous")))?
                .to_vec();
            Ok((
                name,
                Tensor {
                    shape: array.shape().to_vec(),
                    data,
                },
            ))
        });
        let graph =
            Graph::from_json(graph_json, tensors.collect::<PyResult<_>>()?).map_err(native)?;
        Ok(Self { graph })
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

    fn run_float<'py>(
        &self,
        py: Python<'py>,
        inputs: PyReadonlyArrayDyn<'py, f32>,
    ) -> PyResult<Bound<'py, PyArrayDyn<f32>>> {
        let (values, images) = array::images(&inputs, &self.input_shape())?;
        let result = py
            .detach(|| float::evaluate(&self.graph, &values, images))
            .map_err(native)?;
        array::array(py, result, images, &self.output_shape())
    }

    #[pyo3(signature = (trust, samples, input_range, memory_bytes, weight_bits, input_bits))]
    #[allow(clippy::too_many_arguments)]
    fn compile(
        &self,
        py: Python<'_>,
        trust: Option<&str>,
        samples: Option<PyReadonlyArrayDyn<'_, f32>>,
        input_range: (f32, f32),
        memory_bytes: Option<u64>,
        weight_bits: Option<u32>,
        input_bits: Option<u32>,
    ) -> PyResult<Compiled> {
        let trust = trust
            .map(str::parse::<TrustLevel>)
            .transpose()
            .map_err(native)?;
        let samples = samples
            .map(|samples| array::images(&samples, &self.input_shape()))
            .transpose()?;
        let defaults = BuildOptions::default();
        let options = BuildOptions {
            trust,
            samples: samples.map(|(values, _)| values),
            input_range,
            memory: memory_bytes.unwrap_or(defaults.memory),
            weight_bits,
            input_bits,
            ..defaults
        };
        py.detach(|| {
            let built = build(&self.graph, &options).map_err(native)?;
            let server = Arc::new(ServerModel::new(&built).map_err(native)?);
            Ok(Compiled { built, server })
        })
    }
}

/// A plan with the server's half.
#[pyclass(frozen)]
pub struct Compiled {
    built: Built,
    server: Arc<ServerModel>,
}

impl Compiled {
    /// The server's half.
    pub fn server(&self) -> Arc<ServerModel> {
        self.server.clone()
    }

    fn oracle_integers(
        &self,
        py: Python<'_>,
        inputs: &PyReadonlyArrayDyn<'_, f32>,
    ) -> PyResult<(Vec<i32>, usize)> {
        let (values, images) = array::images(inputs, &self.input_shape())?;
        let result = py.detach(|| {
            let (integers, _) = oracle::quantise_input(self.built.plan.input(), &values)?;
            self.built.oracle(&integers, images)
        });
        Ok((result.map_err(native)?, images))
    }
}

#[pymethods]
impl Compiled {
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
        self.built.plan.trust().name()
    }

    #[getter]
    fn plan_hash(&self) -> String {
        self.built.plan.hash_hex()
    }

    #[getter]
    fn result_error(&self) -> f64 {
        self.built.result_error
    }

    #[getter]
    fn multiply_adds(&self) -> u64 {
        self.built.multiply_adds()
    }

    fn plan_text(&self) -> String {
        self.built.text()
    }

    fn plan_json(&self) -> String {
        self.built.plan.to_json()
    }

    fn plan_bytes(&self) -> Vec<u8> {
        self.built.plan.to_bytes()
    }

    fn run_fixed<'py>(
        &self,
        py: Python<'py>,
        inputs: PyReadonlyArrayDyn<'py, f32>,
    ) -> PyResult<Bound<'py, PyArrayDyn<f32>>> {
        let (integers, images) = self.oracle_integers(py, &inputs)?;
        let plan = &self.built.plan;
        array::array(
            py,
            oracle::finish(&plan.finish, plan.result(), &integers, images),
            images,
            &plan.output_shape(),
        )
    }

    fn run_fixed_integers<'py>(
        &self,
        py: Python<'py>,
        inputs: PyReadonlyArrayDyn<'py, f32>,
    ) -> PyResult<Bound<'py, PyArrayDyn<i32>>> {
        let (integers, images) = self.oracle_integers(py, &inputs)?;
        array::array(py, integers, images, &self.built.plan.result().shape)
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
        let plan = &self.built.plan;
        let (values, images) = array::images(&inputs, &self.input_shape())?;
        let pool = pool(threads)?;
        let elements = plan.input_len();
        let mut saturated = 0u64;
        let (mut integers, mut up, mut down, mut clamped, mut done) =
            (Vec::new(), 0u64, 0u64, 0usize, 0usize);
        let started = std::time::Instant::now();
        for batch in values.chunks(plan.max_batch() * elements) {
            let count = batch.len() / elements;
            let run = py
                .detach(|| pool.install(|| in_process(&self.server, batch, count)))
                .map_err(native)?;
            integers.extend(run.integers);
            up += run.bytes_up;
            down += run.bytes_down;
            clamped += run.clamped_inputs;
            saturated += run.clamped_activations;
            done += count;
            if let Some(progress) = &progress {
                progress.call1(py, (done, images))?;
            }
            py.check_signals()?;
        }
        let stats = PyDict::new(py);
        stats.set_item("seconds", started.elapsed().as_secs_f64())?;
        stats.set_item("bytes_sent", up)?;
        stats.set_item("bytes_received", down)?;
        stats.set_item("clamped_inputs", clamped)?;
        stats.set_item("clamped_activations", saturated)?;
        let decoded = oracle::finish(&plan.finish, plan.result(), &integers, images);
        Ok((
            array::array(py, integers, images, &plan.result().shape)?,
            array::array(py, decoded, images, &plan.output_shape())?,
            stats,
        ))
    }
}
