//! Linear layers: of the coefficient engine, of the rotation-free paper, and on slots.

use pronghorn_bench::{
    parties::Phase,
    rotation_free::{
        self, Network, Work,
        paper::{self, Protocol},
    },
    slot::{self, METHODS},
};
use pronghorn_bindings::{machine::pool, model::Compiled, native};
use pronghorn_graph::geometry::{ConvGeometry, Window};
use pyo3::{prelude::*, types::PyDict};

use crate::phase;

/// The linear steps of a plan in the coefficient engine, published.
#[pyclass(frozen)]
pub struct RotationFreeBench(Network);

#[pymethods]
impl RotationFreeBench {
    #[new]
    fn new(py: Python<'_>, compiled: &Compiled, threads: usize) -> PyResult<Self> {
        let (built, pool) = (compiled.built(), pool(Some(threads))?);
        py.detach(|| pool.install(|| Network::new(&built)))
            .map(Self)
            .map_err(native)
    }

    #[getter]
    fn publication<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        phase(py, &self.0.publication)
    }

    /// One image, a dictionary for each step.
    fn run<'py>(
        &self,
        py: Python<'py>,
        threads: usize,
        checked: bool,
    ) -> PyResult<Vec<Bound<'py, PyDict>>> {
        let pool = pool(Some(threads))?;
        let costs = py
            .detach(|| pool.install(|| self.0.run(checked)))
            .map_err(native)?;
        let of = |cost: &rotation_free::Cost| {
            let found = layer_cost(py, &cost.online, [cost.client, cost.server])?;
            found.set_item("name", &cost.name)?;
            found.set_item("published", cost.published)?;
            found.set_item("coefficients", cost.outputs)?;
            found.set_item("degree", cost.degree)?;
            found.set_item("modulus_bits", cost.modulus_bits)?;
            Ok(found)
        };
        costs.iter().map(of).collect()
    }

    /// What a client sees of the first output channel of a step, and the weights it is not to find
    /// there.
    fn sample<'py>(&self, py: Python<'py>, step: usize) -> PyResult<Bound<'py, PyDict>> {
        let sample = self.0.sample(step).map_err(native)?;
        let found = PyDict::new(py);
        found.set_item("degree", sample.degree)?;
        found.set_item("modulus", sample.modulus)?;
        found.set_item("a", sample.a)?;
        found.set_item("published", sample.published)?;
        found.set_item("dropped_bits", sample.dropped_bits)?;
        found.set_item("weights", sample.weights)?;
        Ok(found)
    }
}

/// A layer in the rotation-free paper's protocol, or in that with masking coefficients: what one
/// image costs, the least of `rounds`. `sizes` are input and output channels, width, kernel and
/// stride of a convolution, or inputs and outputs of a dense layer.
#[pyfunction]
pub fn bench_rotation_free_paper(
    py: Python<'_>,
    insecure: bool,
    sizes: Vec<usize>,
    degree: usize,
    rounds: usize,
) -> PyResult<Bound<'_, PyDict>> {
    let protocol = match insecure {
        true => Protocol::Paper,
        false => Protocol::Hardened,
    };
    let layer = match *sizes.as_slice() {
        [ins, outs, width, kernel, stride] => paper::Layer::Conv {
            channels: [ins, outs],
            width,
            kernel,
            stride,
        },
        [ins, outs] => paper::Layer::Dense { sizes: [ins, outs] },
        _ => return Err(native("a layer has five sizes or two")),
    };
    let pool = pool(Some(1))?;
    let work = || {
        let run = paper::Run::new(protocol, &layer, degree)?;
        let mut best = run.run(true)?;
        for _ in 1..rounds {
            let next = run.run(false)?;
            best.online.client = best.online.client.min(next.online.client);
            best.online.server = best.online.server.min(next.online.server);
        }
        Ok::<_, pronghorn_engine::EngineError>(best)
    };
    let cost = py.detach(|| pool.install(work)).map_err(native)?;
    let found = layer_cost(py, &cost.online, [cost.client, cost.server])?;
    found.set_item("published", cost.published)?;
    found.set_item("coefficients", cost.outputs)?;
    found.set_item("error", cost.error)?;
    Ok(found)
}

/// An image's exchange, and multiplications of client and server.
fn layer_cost<'py>(
    py: Python<'py>,
    online: &Phase,
    [client, server]: [Work; 2],
) -> PyResult<Bound<'py, PyDict>> {
    let found = phase(py, online)?;
    found.set_item("client_products", client.residues)?;
    found.set_item("server_products", server.residues)?;
    found.set_item("server_small_products", server.weights)?;
    Ok(found)
}

/// A linear layer on slots, both parties in this process: what each step took, bytes, operations,
/// and what was run.
#[pyfunction]
#[allow(clippy::too_many_arguments)]
pub fn bench_slot_layer<'py>(
    py: Python<'py>,
    channels: (usize, usize),
    input: [usize; 2],
    kernel: [usize; 2],
    stride: [usize; 2],
    padding: [usize; 4],
    method: &str,
    bits: u32,
    rounds: usize,
    threads: usize,
) -> PyResult<Bound<'py, PyDict>> {
    let geometry = ConvGeometry {
        in_channels: channels.0,
        out_channels: channels.1,
        input,
        window: Window {
            stride,
            padding,
            ..Window::plain(kernel)
        },
        groups: 1,
    };
    let known = METHODS.iter().find(|(name, _)| *name == method);
    let (_, method) = known.ok_or_else(|| native(format!("there is no method {method:?} here")))?;
    let pool = pool(Some(threads))?;
    let run = py
        .detach(|| pool.install(|| slot::run(&geometry, *method, bits, rounds)))
        .map_err(native)?;
    let found = PyDict::new(py);
    let times = [
        ("setup", run.setup),
        ("key generation", run.key_generation),
        ("encrypt", run.encrypt),
        ("expand", run.expand),
        ("evaluate", run.evaluate),
        ("hide", run.hide),
        ("decrypt", run.decrypt),
    ];
    for (name, time) in times {
        found.set_item(name, time.as_secs_f64())?;
    }
    let counts = [
        ("up", run.up),
        ("down", run.down),
        ("keys", run.keys),
        ("weights", run.weights),
        ("input rotations", run.input_rotations),
        ("output rotations", run.output_rotations),
        ("products", run.products),
    ];
    for (name, count) in counts {
        found.set_item(name, count)?;
    }
    found.set_item("predicted", run.predicted / 1e6)?;
    found.set_item("described", run.described)?;
    found.set_item("security_bits", run.security.map(crate::bits))?;
    Ok(found)
}
