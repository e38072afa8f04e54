//! Kernel figures for `pronghorn bench batch`.

use pronghorn_engine::bench::{self, Figure};
use pronghorn_ring::security::{self, SecurityLevel};
use pyo3::{prelude::*, types::PyDict};

use crate::{machine::pool, native};

/// Measures the kernels on `threads` threads; a list of dictionaries, one a figure.
#[pyfunction]
pub fn bench_batch(
    py: Python<'_>,
    threads: usize,
    quick: bool,
) -> PyResult<Vec<Bound<'_, PyDict>>> {
    let pool = pool(Some(threads))?;
    let figures = py
        .detach(|| pool.install(|| bench::batch(quick)))
        .map_err(native)?;
    figures
        .iter()
        .map(|figure| dictionary(py, figure))
        .collect()
}

fn dictionary<'py>(py: Python<'py>, figure: &Figure) -> PyResult<Bound<'py, PyDict>> {
    let security = match security::check(figure.degree, figure.modulus_bits).map_err(native)? {
        SecurityLevel::Bits128 => 128,
        SecurityLevel::Bits192 => 192,
        SecurityLevel::Bits256 => 256,
    };
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
