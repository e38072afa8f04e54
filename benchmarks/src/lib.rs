//! Python bindings of the benchmarks. `_core.pyi` in `python/pronghorn_bench` documents them.

use numpy::{IntoPyArray, PyArray1, PyReadonlyArray1, PyReadonlyArrayDyn};
use pronghorn_bench::{
    Figure, activations,
    ckks::{self, OPERATIONS},
    cryptonets::{self, Activation, Packing},
    ntt,
    parties::{Batch, Connection, Phase},
    rotation_free::{
        self, Network, Work,
        paper::{self, Protocol},
    },
    slot::{self, METHODS, SLOT_OPERATIONS},
};
use pronghorn_graph::geometry::{ConvGeometry, Window};
use pronghorn_ring::{
    SimdLevel,
    security::{self, SecurityLevel},
};
use pyo3::{prelude::*, types::PyDict};

use pronghorn_bindings::{
    NativeError, array,
    machine::pool,
    model::{Compiled, Model},
    native,
};

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

fn bits(level: SecurityLevel) -> u32 {
    match level {
        SecurityLevel::Bits128 => 128,
        SecurityLevel::Bits192 => 192,
        SecurityLevel::Bits256 => 256,
    }
}

type Words<'py> = Bound<'py, PyArray1<u64>>;
type Reals<'py> = Bound<'py, PyArray1<f64>>;

/// CKKS with parameters made for a measurement or a check; protects nothing.
#[pyclass(frozen)]
pub struct CkksBench(Box<dyn ckks::CkksBench>);

#[pymethods]
impl CkksBench {
    #[new]
    fn new(
        py: Python<'_>,
        word_bits: u32,
        degree: usize,
        bits: Vec<u32>,
        special_bits: Vec<u32>,
    ) -> PyResult<Self> {
        let made = py.detach(|| ckks::new(word_bits, degree, &bits, &special_bits));
        made.map(Self).map_err(native)
    }

    #[getter]
    fn primes(&self) -> Vec<u64> {
        self.0.primes()
    }

    #[getter]
    fn special_primes(&self) -> Vec<u64> {
        self.0.special_primes()
    }

    #[getter]
    fn roots(&self) -> Vec<u64> {
        self.0.roots()
    }

    #[getter]
    fn security_bits(&self) -> Option<u32> {
        self.0.security().map(bits)
    }

    #[getter]
    fn plain_bytes(&self) -> [usize; 2] {
        self.0.plain_bytes()
    }

    #[pyo3(signature = (operation, iterations, threads=1))]
    fn seconds(
        &self,
        py: Python<'_>,
        operation: &str,
        iterations: usize,
        threads: usize,
    ) -> PyResult<f64> {
        let known = OPERATIONS.iter().find(|(name, _)| *name == operation);
        let (_, timed) = known
            .ok_or_else(|| ckks::CkksBenchError::Operation(operation.to_owned()))
            .map_err(native)?;
        py.detach(|| self.0.seconds(*timed, iterations, threads))
            .map_err(native)
    }

    fn encode<'py>(
        &self,
        py: Python<'py>,
        re: PyReadonlyArray1<'py, f64>,
        im: PyReadonlyArray1<'py, f64>,
        scale: f64,
    ) -> PyResult<Words<'py>> {
        let words = self.0.encode(re.as_slice()?, im.as_slice()?, scale);
        Ok(words.map_err(native)?.into_pyarray(py))
    }

    fn decode<'py>(
        &self,
        py: Python<'py>,
        words: PyReadonlyArray1<'py, u64>,
        scale: f64,
    ) -> PyResult<(Reals<'py>, Reals<'py>)> {
        let [re, im] = self.0.decode(words.as_slice()?, scale).map_err(native)?;
        Ok((re.into_pyarray(py), im.into_pyarray(py)))
    }

    fn encrypt<'py>(
        &self,
        py: Python<'py>,
        re: PyReadonlyArray1<'py, f64>,
        im: PyReadonlyArray1<'py, f64>,
        scale: f64,
    ) -> PyResult<Words<'py>> {
        let words = self.0.encrypt(re.as_slice()?, im.as_slice()?, scale);
        Ok(words.map_err(native)?.into_pyarray(py))
    }

    fn decrypt<'py>(
        &self,
        py: Python<'py>,
        words: PyReadonlyArray1<'py, u64>,
    ) -> PyResult<Words<'py>> {
        let words = self.0.decrypt(words.as_slice()?).map_err(native)?;
        Ok(words.into_pyarray(py))
    }

    fn ntt<'py>(
        &self,
        py: Python<'py>,
        words: PyReadonlyArray1<'py, u64>,
        inverse: bool,
    ) -> PyResult<Words<'py>> {
        let words = self.0.ntt(words.as_slice()?, inverse).map_err(native)?;
        Ok(words.into_pyarray(py))
    }
}

/// As in `PRONGHORN_SIMD`.
fn level_name(level: SimdLevel) -> String {
    format!("{level:?}").to_lowercase()
}

/// The transform of one limb.
#[pyclass(frozen)]
pub struct NttBench(Box<dyn ntt::NttBench>);

#[pymethods]
impl NttBench {
    #[new]
    fn new(word_bits: u32, degree: usize, bits: u32) -> PyResult<Self> {
        ntt::new(word_bits, degree, bits).map(Self).map_err(native)
    }

    #[getter]
    fn prime(&self) -> u64 {
        self.0.prime()
    }

    #[getter]
    fn security_bits(&self) -> Option<u32> {
        self.0.security().map(bits)
    }

    #[getter]
    fn levels(&self) -> Vec<String> {
        self.0.levels().into_iter().map(level_name).collect()
    }

    #[pyo3(signature = (inverse, iterations, level=None))]
    fn seconds(
        &self,
        py: Python<'_>,
        inverse: bool,
        iterations: usize,
        level: Option<&str>,
    ) -> PyResult<f64> {
        let level = match level {
            None => SimdLevel::detect(),
            Some(name) => {
                let mut levels = self.0.levels().into_iter();
                levels
                    .find(|&level| level_name(level) == name)
                    .ok_or_else(|| native(format!("there is no level {name:?} here")))?
            }
        };
        py.detach(|| self.0.seconds(inverse, level, iterations))
            .map_err(native)
    }
}

/// CryptoNets with an operation a weight, as HE-Transformer runs it: the seconds of each step, and what was run.
#[pyfunction]
#[allow(clippy::too_many_arguments)]
pub fn bench_cryptonets<'py>(
    py: Python<'py>,
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
    let config = cryptonets::Config {
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
        32 => cryptonets::run::<u32>,
        64 => cryptonets::run::<u64>,
        other => return Err(native(ckks::CkksBenchError::WordBits(other))),
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

/// Both parties in this process, batch by batch over one connection: what each batch cost, and all outputs.
#[pyfunction]
#[allow(clippy::type_complexity)]
pub fn bench_parties<'py>(
    py: Python<'py>,
    compiled: &Compiled,
    inputs: PyReadonlyArrayDyn<'py, f32>,
    threads: usize,
) -> PyResult<(Vec<Bound<'py, PyDict>>, Vec<f32>)> {
    let server = compiled.server();
    let (values, images) = array::images(&inputs, &server.plan().input().shape)?;
    let (elements, most) = (server.plan().input_len(), server.plan().max_batch);
    let pool = pool(Some(threads))?;
    let batches: Vec<(usize, Batch)> = py
        .detach(|| {
            let connection = Connection::default();
            let batches = values
                .chunks(most.min(images.max(1)) * elements)
                .map(|batch| {
                    let count = batch.len() / elements;
                    Ok((count, connection.run(&server, batch, count)?))
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

    /// A second on one core: AND gates garbled and evaluated, OTs at the sender and at the receiver.
    #[staticmethod]
    fn rates(py: Python<'_>, rounds: usize) -> PyResult<[f64; 4]> {
        let found = py.detach(|| activations::rates(rounds)).map_err(native)?;
        Ok([found.garbled, found.evaluated, found.sent, found.received])
    }
}

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

    /// What a client sees of the first output channel of a step, and the weights it is not to find there.
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

/// A layer in the rotation-free paper's protocol, or in that with masking coefficients: what one image costs, the least of `rounds`.
/// `sizes` are input and output channels, width, kernel and stride of a convolution, or inputs and outputs of a dense layer.
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

fn phase<'py>(py: Python<'py>, phase: &Phase) -> PyResult<Bound<'py, PyDict>> {
    let found = PyDict::new(py);
    found.set_item("client_seconds", phase.client.as_secs_f64())?;
    found.set_item("server_seconds", phase.server.as_secs_f64())?;
    found.set_item("bytes_up", phase.bytes_up)?;
    found.set_item("bytes_down", phase.bytes_down)?;
    Ok(found)
}

/// A linear layer on slots, both parties in this process: what each step took, bytes, operations, and what was run.
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
    found.set_item("security_bits", run.security.map(self::bits))?;
    Ok(found)
}

/// Operations of the encryption of slots.
#[pyclass(frozen)]
pub struct SlotBench(slot::Operations);

#[pymethods]
impl SlotBench {
    #[new]
    fn new(py: Python<'_>, insecure: bool, digit_bits: u32) -> PyResult<Self> {
        let made = py.detach(|| slot::Operations::new(insecure, digit_bits));
        made.map(Self).map_err(native)
    }

    #[getter]
    fn security_bits(&self) -> Option<u32> {
        self.0.security().map(bits)
    }

    #[getter]
    fn key_bytes(&self) -> PyResult<usize> {
        self.0.key_bytes().map_err(native)
    }

    #[getter]
    fn log_noise(&self) -> PyResult<f64> {
        self.0.log_noise().map_err(native)
    }

    fn seconds(&self, py: Python<'_>, operation: &str, iterations: usize) -> PyResult<f64> {
        let known = SLOT_OPERATIONS.iter().find(|(name, _)| *name == operation);
        let (_, timed) =
            known.ok_or_else(|| native(format!("there is no operation {operation:?} here")))?;
        py.detach(|| self.0.seconds(*timed, iterations))
            .map_err(native)
    }
}

#[pymodule]
fn _core(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("NativeError", module.py().get_type::<NativeError>())?;
    module.add_class::<Model>()?;
    module.add_class::<Compiled>()?;
    module.add_class::<CkksBench>()?;
    module.add_class::<NttBench>()?;
    module.add_class::<ActivationBench>()?;
    module.add_class::<SlotBench>()?;
    module.add_class::<RotationFreeBench>()?;
    module.add_function(wrap_pyfunction!(bench_batch, module)?)?;
    module.add_function(wrap_pyfunction!(bench_parties, module)?)?;
    module.add_function(wrap_pyfunction!(bench_slot_layer, module)?)?;
    module.add_function(wrap_pyfunction!(bench_cryptonets, module)?)?;
    module.add_function(wrap_pyfunction!(bench_rotation_free_paper, module)?)?;
    Ok(())
}
