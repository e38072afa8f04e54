//! The index of the largest value: shape and range.

use super::{Interval, ValueSpec};
use crate::shape::{OperatorError, elements, one};

/// The range of the index of the largest of all values of an input.
///
/// # Errors
/// There is not one input with values, or the shape is not `[1]`.
pub fn bounds(inputs: &[&ValueSpec], shape: &[usize]) -> Result<Interval, OperatorError> {
    let values = elements(&one(inputs)?.shape)?;
    if shape != [1] {
        return Err(OperatorError::OutputShape {
            expected: vec![1],
            found: shape.to_vec(),
        });
    }
    Ok(Interval {
        low: 0,
        high: values as i64 - 1,
    })
}
