//! Facts about this process and machine.

use pronghorn_engine::measure;
use pronghorn_plan::{TrustLevel, cost};
use pronghorn_ring::SimdLevel;
use pyo3::{prelude::*, types::PyDict};
use rayon::{ThreadPool, ThreadPoolBuilder};

use crate::{fork, native};

/// Most resident bytes this process ever had (Linux: VmHWM), 0 where unknown.
#[pyfunction]
pub fn peak_memory_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok())
        .map_or(0, |kib| kib * 1024)
}

/// The SIMD level in use.
#[pyfunction]
pub fn simd_level() -> String {
    format!("{:?}", SimdLevel::detect()).to_lowercase()
}

/// The fields of Python's `Speed`, which documents them.
#[derive(FromPyObject)]
pub struct Speed {
    products: f64,
    encryption: f64,
    garbling: f64,
    transfers: f64,
}

impl Speed {
    /// That of a machine, or of the nominal CPU.
    ///
    /// # Errors
    /// A factor that no machine has.
    pub fn read(found: Option<Self>) -> PyResult<cost::Speed> {
        let Some(found) = found else {
            return Ok(cost::Speed::default());
        };
        let Self {
            products,
            encryption,
            garbling,
            transfers,
        } = found;
        let speed = cost::Speed {
            products,
            encryption,
            garbling,
            transfers,
        };
        speed
            .checked()
            .ok_or_else(|| native(format!("no machine has the speed {speed:?}")))
    }
}

/// Measures one core of this machine, for about a second: the fields of Python's `Speed`.
#[pyfunction]
pub fn measure_speed(py: Python<'_>) -> PyResult<Bound<'_, PyDict>> {
    let cost::Speed {
        products,
        encryption,
        garbling,
        transfers,
    } = py.detach(measure::speed).map_err(native)?;
    let found = PyDict::new(py);
    found.set_item("products", products)?;
    found.set_item("encryption", encryption)?;
    found.set_item("garbling", garbling)?;
    found.set_item("transfers", transfers)?;
    Ok(found)
}

/// The table of trust levels, a line each.
#[pyfunction]
pub fn trust_levels() -> String {
    TrustLevel::table()
}

/// The levels of this version, each with what it reveals.
#[pyfunction]
pub fn available_trust_levels() -> Vec<(&'static str, String)> {
    let available = TrustLevel::ALL
        .into_iter()
        .filter(|level| level.is_available());
    available
        .map(|level| (level.name(), level.reveals()))
        .collect()
}

/// Most threads a user may ask for.
const MAX_THREADS: usize = 512;

fn check(threads: usize) -> PyResult<()> {
    if (1..=MAX_THREADS).contains(&threads) {
        return Ok(());
    }
    Err(native(format!(
        "threads must be 1 to {MAX_THREADS}, not {threads}"
    )))
}

/// A pool of `threads` threads; all cores where none is said.
pub fn pool(threads: Option<usize>) -> PyResult<ThreadPool> {
    threads.map_or(Ok(()), check)?;
    ThreadPoolBuilder::new()
        .num_threads(threads.unwrap_or(0))
        .build()
        .map_err(native)
}

/// Bounds the threads of this process's computations; only the first call in a process can.
pub fn limit_threads(threads: Option<usize>) -> PyResult<()> {
    let Some(threads) = threads else {
        return Ok(());
    };
    check(threads)?;
    fork::compute()?;
    if ThreadPoolBuilder::new()
        .num_threads(threads)
        .build_global()
        .is_err()
        && rayon::current_num_threads() != threads
    {
        return Err(native(format!(
            "this process already computes with {} threads; --threads is set once a process",
            rayon::current_num_threads()
        )));
    }
    Ok(())
}
