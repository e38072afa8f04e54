//! Python bindings of the benchmarks. `_core.pyi` in `python/pronghorn_bench` documents them.

mod layers;
mod networks;
mod operations;

use pronghorn_bench::parties::Phase;
use pronghorn_bindings::{
    NativeError,
    model::{Compiled, Model},
};
use pronghorn_ring::security::SecurityLevel;
use pyo3::{prelude::*, types::PyDict};

fn bits(level: SecurityLevel) -> u32 {
    match level {
        SecurityLevel::Bits128 => 128,
        SecurityLevel::Bits192 => 192,
        SecurityLevel::Bits256 => 256,
    }
}

fn phase<'py>(py: Python<'py>, phase: &Phase) -> PyResult<Bound<'py, PyDict>> {
    let found = PyDict::new(py);
    found.set_item("client_seconds", phase.client.as_secs_f64())?;
    found.set_item("server_seconds", phase.server.as_secs_f64())?;
    found.set_item("bytes_up", phase.bytes_up)?;
    found.set_item("bytes_down", phase.bytes_down)?;
    Ok(found)
}

#[pymodule]
fn _core(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("NativeError", module.py().get_type::<NativeError>())?;
    module.add_class::<Model>()?;
    module.add_class::<Compiled>()?;
    module.add_class::<operations::CkksBench>()?;
    module.add_class::<operations::MultiKeyBench>()?;
    module.add_class::<operations::MultiKeyNetwork>()?;
    module.add_class::<operations::NttBench>()?;
    module.add_class::<networks::ActivationBench>()?;
    module.add_class::<operations::SlotBench>()?;
    module.add_class::<layers::RotationFreeBench>()?;
    module.add_function(wrap_pyfunction!(networks::bench_batch, module)?)?;
    module.add_function(wrap_pyfunction!(networks::bench_parties, module)?)?;
    module.add_function(wrap_pyfunction!(layers::bench_slot_layer, module)?)?;
    module.add_function(wrap_pyfunction!(networks::bench_words, module)?)?;
    module.add_function(wrap_pyfunction!(layers::bench_rotation_free_paper, module)?)?;
    Ok(())
}
