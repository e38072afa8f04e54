//! Python bindings: numpy arrays in and out, errors as text, the GIL released while computing.
//! Users meet `python/pronghorn`; `_native.pyi` there documents what is here.

pub mod array;
mod fork;
pub mod machine;
pub mod model;
mod multikey;
mod network;
mod options;
mod tls;
mod watch;

use pyo3::prelude::*;

pyo3::create_exception!(
    _native,
    NativeError,
    pyo3::exceptions::PyException,
    "An error of the compiled core."
);

/// Keeps the pages of large buffers between steps and batches; the C library gives them back each
/// time, and page faults then cost as much as the arithmetic.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Any typed error of the core, as its message.
pub fn native(error: impl std::fmt::Display) -> PyErr {
    NativeError::new_err(error.to_string())
}

/// The same with what programs read: a name, and whether to try again.
fn coded(message: String, code: &str, retryable: bool) -> PyErr {
    Python::attach(|py| {
        let error = NativeError::new_err(message);
        let value = error.value(py);
        let set = value.setattr("code", code);
        match set.and_then(|()| value.setattr("retryable", retryable)) {
            Ok(()) => error,
            Err(other) => other,
        }
    })
}

#[pymodule]
fn _native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("NativeError", module.py().get_type::<NativeError>())?;
    module.add_class::<model::Model>()?;
    module.add_class::<model::Compiled>()?;
    module.add_class::<network::Server>()?;
    module.add_class::<network::Client>()?;
    module.add_class::<network::Quantised>()?;
    module.add_class::<watch::Cancel>()?;
    module.add_class::<multikey::Plan>()?;
    module.add_class::<multikey::Cloud>()?;
    module.add_class::<multikey::Owner>()?;
    module.add_class::<multikey::CloudClient>()?;
    module.add_function(wrap_pyfunction!(network::list_models, module)?)?;
    module.add_function(wrap_pyfunction!(network::limits, module)?)?;
    module.add_function(wrap_pyfunction!(network::new_admission_key, module)?)?;
    module.add_function(wrap_pyfunction!(network::admission_public, module)?)?;
    module.add_function(wrap_pyfunction!(network::issue_ticket, module)?)?;
    module.add_function(wrap_pyfunction!(tls::check_server_tls, module)?)?;
    module.add_function(wrap_pyfunction!(tls::make_keys, module)?)?;
    module.add_function(wrap_pyfunction!(options::passes, module)?)?;
    module.add_function(wrap_pyfunction!(options::engines, module)?)?;
    module.add_function(wrap_pyfunction!(options::assumptions, module)?)?;
    module.add_function(wrap_pyfunction!(options::openings, module)?)?;
    module.add_function(wrap_pyfunction!(options::roundings, module)?)?;
    module.add_function(wrap_pyfunction!(options::network, module)?)?;
    module.add_function(wrap_pyfunction!(options::objectives, module)?)?;
    module.add_function(wrap_pyfunction!(machine::peak_memory_bytes, module)?)?;
    module.add_function(wrap_pyfunction!(machine::simd_level, module)?)?;
    module.add_function(wrap_pyfunction!(machine::measure_speed, module)?)?;
    module.add_function(wrap_pyfunction!(machine::trust_levels, module)?)?;
    module.add_function(wrap_pyfunction!(machine::available_trust_levels, module)?)?;
    Ok(())
}
