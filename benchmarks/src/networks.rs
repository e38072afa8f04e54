//! Kernels, activations, and whole networks.

use numpy::PyReadonlyArrayDyn;
use pronghorn_bench::{
    Figure, activations,
    ckks::CkksBenchError,
    parties::{Batch, Connection},
    words::{self, Activation, Network, Packing},
};
use pronghorn_bindings::{array, machine::pool, model::Compiled, native};
use pronghorn_engine::measure;
use pronghorn_ring::security;
use pyo3::{prelude::*, types::PyDict};

use crate::{bits, phase};

/// Measures the kernels on `threads` threads; a list of dictionaries, one a figure.
#[pyfunction]
pub fn bench_batch(
    py: Python<'_>,
    threads: usize,
    quick: bool,
) -> PyResult<Vec<Bound<'_, PyDict>>> {
    let pool = pool(Some(threads))?;
    let figures = py
        .detach(|| pool.install(|| pronghorn_bench::batch(quick)))
        .map_err(native)?;
    figures
        .iter()
        .map(|figure| dictionary(py, figure))
        .collect()
}

fn dictionary<'py>(py: Python<'py>, figure: &Figure) -> PyResult<Bound<'py, PyDict>> {
    let security = bits(security::check(figure.degree, figure.modulus_bits).map_err(native)?);
    let entry = PyDict::new(py);
    entry.set_item("case", &figure.case)?;
    entry.set_item("metric", figure.metric)?;
    entry.set_item("value", figure.value)?;
    entry.set_item("unit", figure.unit)?;
    entry.set_item("parameters", &figure.parameters)?;
    entry.set_item("security_bits", security)?;
    entry.set_item("ceiling", figure.ceiling)?;
    Ok(entry)
}

/// A network with an operation a weight, as HE-Transformer runs it: the seconds of each step, and
/// what was run.
#[pyfunction]
#[allow(clippy::too_many_arguments)]
pub fn bench_words<'py>(
    py: Python<'py>,
    network: &str,
    word_bits: u32,
    degree: usize,
    prime_bits: Vec<u32>,
    special_bits: Option<u32>,
    scale_log: u32,
    weight_scale_log: Option<u32>,
    complex_packing: bool,
    relu: bool,
    one_in: usize,
    threads: usize,
) -> PyResult<Bound<'py, PyDict>> {
    let network = match network {
        "CryptoNets" => Network::CryptoNets,
        "MobileNet" => Network::MobileNet,
        other => return Err(native(format!("there is no network {other:?} here"))),
    };
    let config = words::Config {
        network,
        n: degree,
        bits: prime_bits,
        special_bits,
        packing: if complex_packing {
            Packing::Complex
        } else {
            Packing::Real
        },
        activation: if relu {
            Activation::Relu
        } else {
            Activation::Square
        },
        scale_log,
        weight_scale_log,
        one_in: one_in.max(1),
    };
    let run = match word_bits {
        32 => words::run::<u32>,
        64 => words::run::<u64>,
        other => return Err(native(CkksBenchError::WordBits(other))),
    };
    let pool = pool(Some(threads))?;
    let costs = py
        .detach(|| pool.install(|| run(&config)))
        .map_err(native)?;
    let (found, client, server) = (PyDict::new(py), PyDict::new(py), PyDict::new(py));
    for step in &costs.steps {
        let party = if step.server { &server } else { &client };
        party.set_item(step.name, step.seconds)?;
    }
    found.set_item("client", client)?;
    found.set_item("server", server)?;
    found.set_item("error", costs.error)?;
    found.set_item("security_bits", costs.security.map(bits))?;
    found.set_item("modulus_bits", costs.modulus_bits)?;
    found.set_item("images", costs.images)?;
    Ok(found)
}

/// Both parties in this process, batch by batch over one connection: what each batch cost, and all
/// outputs.
#[pyfunction]
#[allow(clippy::type_complexity)]
pub fn bench_parties<'py>(
    py: Python<'py>,
    compiled: &Compiled,
    inputs: PyReadonlyArrayDyn<'py, f32>,
    threads: usize,
) -> PyResult<(Vec<Bound<'py, PyDict>>, Vec<f32>)> {
    let server = compiled.server(py)?;
    let (values, images) = array::images(&inputs, &server.plan().input().shape)?;
    let (elements, most) = (server.plan().input_len(), server.plan().max_batch);
    let pool = pool(Some(threads))?;
    let batches: Vec<(usize, Batch)> = py
        .detach(|| {
            let connection = Connection::new(server.clone())?;
            let batches = values
                .chunks(most.min(images.max(1)) * elements)
                .map(|batch| {
                    let count = batch.len() / elements;
                    Ok((count, connection.run(batch, count)?))
                });
            pool.install(|| batches.collect::<Result<_, pronghorn_engine::EngineError>>())
        })
        .map_err(native)?;
    let cost = |(images, batch): &(usize, Batch)| {
        let found = phase(py, &batch.cost)?;
        found.set_item("images", images)?;
        Ok(found)
    };
    let costs = batches.iter().map(cost).collect::<PyResult<_>>()?;
    let outputs = batches.into_iter().flat_map(|(_, batch)| batch.outputs);
    Ok((costs, outputs.collect()))
}

/// Activations on shares, both parties in this process over one connection.
#[pyclass(frozen)]
pub struct ActivationBench(activations::Connection);

#[pymethods]
impl ActivationBench {
    #[new]
    fn new(py: Python<'_>) -> PyResult<Self> {
        py.detach(activations::Connection::new)
            .map(Self)
            .map_err(native)
    }

    #[getter]
    fn setup<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        phase(py, &self.0.setup)
    }

    fn run<'py>(
        &self,
        py: Python<'py>,
        function: &str,
        outputs: usize,
        threads: usize,
    ) -> PyResult<Bound<'py, PyDict>> {
        let function = match function {
            "square" => activations::Function::Square,
            "relu" => activations::Function::Relu,
            "max pool" => activations::Function::MaxPool,
            other => return Err(native(format!("there is no activation {other:?} here"))),
        };
        let pool = pool(Some(threads))?;
        let run = py
            .detach(|| pool.install(|| self.0.run(function, outputs)))
            .map_err(native)?;
        let found = PyDict::new(py);
        found.set_item("offline", phase(py, &run.offline)?)?;
        found.set_item("online", phase(py, &run.online)?)?;
        found.set_item("at once", phase(py, &run.at_once)?)?;
        Ok(found)
    }

    /// A second on one core: AND gates garbled and evaluated, OTs at the sender and at the
    /// receiver.
    #[staticmethod]
    fn rates(py: Python<'_>, rounds: usize) -> PyResult<[f64; 4]> {
        let found = py.detach(|| measure::activations(rounds)).map_err(native)?;
        Ok([found.garbled, found.evaluated, found.sent, found.received])
    }
}
