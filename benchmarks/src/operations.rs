//! Operations of encryption, one by one.

use numpy::{IntoPyArray, PyArray1, PyReadonlyArray1, PyReadonlyArrayDyn};
use pronghorn_bench::{
    ckks::{self, OPERATIONS},
    multikey,
    multikey_network::{self, Parameters},
    ntt,
    slot::{self, SLOT_OPERATIONS},
};
use pronghorn_bindings::{machine::pool, model::Model, native};
use pronghorn_multikey::{Aim, Chain};
use pronghorn_ring::SimdLevel;
use pyo3::{prelude::*, types::PyDict};
use rayon::ThreadPool;

use crate::bits;

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

/// Multi-key encryption with parameters made for a measurement; protects nothing.
#[pyclass(frozen)]
pub struct MultiKeyBench(Box<dyn multikey::MultiKeyBench>);

#[pymethods]
impl MultiKeyBench {
    #[new]
    fn new(
        py: Python<'_>,
        word_bits: u32,
        degree: usize,
        bits: Vec<u32>,
        special_bits: Vec<u32>,
        parties: usize,
    ) -> PyResult<Self> {
        let made = py.detach(|| multikey::new(word_bits, degree, &bits, &special_bits, parties));
        made.map(Self).map_err(native)
    }

    #[getter]
    fn log_moduli(&self) -> [f64; 2] {
        self.0.log_moduli()
    }

    #[getter]
    fn digits(&self) -> usize {
        self.0.digits()
    }

    #[getter]
    fn security_bits(&self) -> Option<u32> {
        self.0.security().map(bits)
    }

    #[getter]
    fn sizes<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let (sizes, found) = (self.0.sizes(), PyDict::new(py));
        found.set_item("public_key", sizes.public_key)?;
        found.set_item("evaluation_keys", sizes.evaluation_keys)?;
        found.set_item("linear_keys", sizes.linear_keys)?;
        found.set_item("rotation_key", sizes.rotation_key)?;
        found.set_item("seeded", sizes.seeded)?;
        found.set_item("ciphertext", sizes.ciphertext)?;
        Ok(found)
    }

    fn seconds(
        &self,
        py: Python<'_>,
        operation: &str,
        parties: usize,
        dropped: usize,
        iterations: usize,
    ) -> PyResult<f64> {
        let known = multikey::OPERATIONS
            .iter()
            .find(|(name, _)| *name == operation);
        let (_, timed) = known
            .ok_or_else(|| multikey::MultiKeyBenchError::Operation(operation.to_owned()))
            .map_err(native)?;
        py.detach(|| self.0.seconds(*timed, parties, dropped, iterations))
            .map_err(native)
    }

    fn check(&self, py: Python<'_>, parties: usize) -> PyResult<(f64, bool)> {
        py.detach(|| self.0.check(parties)).map_err(native)
    }
}

/// Degree; bits of the primes of the result and of a level; levels; bits of the special primes.
type Primes = (usize, Vec<u32>, Vec<u32>, usize, Vec<u32>);

/// A network under two keys, for a measurement.
#[pyclass]
pub struct MultiKeyNetwork {
    bench: multikey_network::NetworkBench,
    pool: ThreadPool,
}

#[pymethods]
impl MultiKeyNetwork {
    /// With floods where `aim` is given, the error and the results of a key; otherwise with the
    /// primes of `chain`: those of the result, of each level, levels, special ones. On `threads`
    /// threads.
    #[new]
    #[pyo3(signature = (model, samples, threads, aim=None, chain=None))]
    fn new(
        py: Python<'_>,
        model: &Model,
        samples: PyReadonlyArrayDyn<'_, f32>,
        threads: usize,
        aim: Option<(f64, u64)>,
        chain: Option<Primes>,
    ) -> PyResult<Self> {
        let parameters = match (aim, chain) {
            (Some((error, results)), None) => Parameters::Flooded(Aim { error, results }),
            (None, Some((degree, base, level, levels, special))) => {
                let scale_log = level.iter().sum();
                Parameters::Unflooded(Chain {
                    degree,
                    base,
                    level,
                    levels,
                    special,
                    scale_log,
                    weight_logs: Vec::new(),
                })
            }
            _ => return Err(native("give either an aim or a chain")),
        };
        let samples = samples.as_slice()?.to_vec();
        let graph = model.graph();
        let pool = pool(Some(threads))?;
        let made = || multikey_network::NetworkBench::new(graph, &samples, parameters);
        let bench = py.detach(|| pool.install(made)).map_err(native)?;
        Ok(Self { bench, pool })
    }

    /// Outputs; seconds of the encryption, of each product and of stages of the decryption; the
    /// largest error against doubles.
    fn run<'py>(
        &mut self,
        py: Python<'py>,
        image: PyReadonlyArrayDyn<'_, f32>,
    ) -> PyResult<Bound<'py, PyDict>> {
        let image = image.as_slice()?.to_vec();
        let Self { bench, pool } = self;
        let run = py.detach(|| pool.install(|| bench.run(&image)));
        let run = run.map_err(native)?;
        let found = PyDict::new(py);
        found.set_item("outputs", run.outputs)?;
        found.set_item("encryption", run.encryption)?;
        found.set_item("products", run.products)?;
        found.set_item("decryption", run.decryption)?;
        found.set_item("error", run.error)?;
        Ok(found)
    }

    #[getter]
    fn seconds(&self) -> [f64; 3] {
        self.bench.seconds()
    }

    #[getter]
    fn security_bits(&self) -> Option<u32> {
        self.bench.security().map(bits)
    }

    #[getter]
    fn stated_error(&self) -> PyResult<f64> {
        self.bench.stated_error().map_err(native)
    }

    #[getter]
    fn described<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let found = PyDict::new(py);
        let (chain, counts, bytes) = (self.bench.chain(), self.bench.counts(), self.bench.bytes());
        found.set_item("degree", chain.degree)?;
        found.set_item("primes of the result", chain.base.clone())?;
        found.set_item("primes of a level", chain.level.clone())?;
        found.set_item("levels", chain.levels)?;
        found.set_item("special primes", chain.special.clone())?;
        found.set_item("log2 of moduli", self.bench.log_moduli())?;
        found.set_item("log2 of a flood", self.bench.log_flood())?;
        found.set_item("ciphertexts of the input", counts.inputs)?;
        found.set_item("ciphertexts of the model", counts.weights)?;
        found.set_item("hoisted rotations", counts.hoisted)?;
        found.set_item("other rotations", counts.folds)?;
        found.set_item("products", counts.products)?;
        found.set_item("relinearisations", counts.relinearisations)?;
        found.set_item("rotation keys", self.bench.rotations())?;
        found.set_item("image bytes", bytes.image)?;
        found.set_item("model bytes", bytes.model)?;
        found.set_item("key bytes", bytes.keys)?;
        found.set_item("result bytes", bytes.result)?;
        Ok(found)
    }
}
