//! Batches between numpy and the core.

use numpy::{IntoPyArray, PyArrayDyn, PyArrayMethods, PyReadonlyArrayDyn, PyUntypedArrayMethods};
use pyo3::prelude::*;

use crate::native;

/// Values and number of images of an array of shape `(images, *shape)`.
pub fn images(array: &PyReadonlyArrayDyn<'_, f32>, shape: &[usize]) -> PyResult<(Vec<f32>, usize)> {
    let (values, images) = values(array, shape)?;
    Ok((values.to_vec(), images))
}

/// The same, in place.
pub fn values<'a>(
    array: &'a PyReadonlyArrayDyn<'_, f32>,
    shape: &[usize],
) -> PyResult<(&'a [f32], usize)> {
    let found = array.shape();
    if found.len() != shape.len() + 1 || found[1..] != *shape {
        let wanted = shape
            .iter()
            .map(usize::to_string)
            .collect::<Vec<_>>()
            .join(", ");
        return Err(native(format!(
            "inputs have shape {found:?}; the model takes (images, {wanted})"
        )));
    }
    let values = array
        .as_slice()
        .map_err(|_| native("inputs must be C-contiguous: numpy.ascontiguousarray(x)"))?;
    Ok((values, found[0]))
}

/// An array of shape `(images, *shape)`.
pub fn array<'py, T: numpy::Element>(
    py: Python<'py>,
    values: Vec<T>,
    images: usize,
    shape: &[usize],
) -> PyResult<Bound<'py, PyArrayDyn<T>>> {
    let mut dimensions = vec![images];
    dimensions.extend(shape);
    values.into_pyarray(py).reshape(dimensions)
}
