//! The index of the largest value: shape and range.

use super::{Interval, ValueSpec};
use crate::shape::{OperatorError, elements, one, same};

/// The range of the index of the largest of all values of an input.
///
/// # Errors
/// There is not one input with values, or the shape is not `[1]`.
pub fn bounds(inputs: &[&ValueSpec], shape: &[usize]) -> Result<Interval, OperatorError> {
    let values = elements(&one(inputs)?.shape)?;
    same(vec![1], shape)?;
    Ok(Interval {
        low: 0,
        high: values as i64 - 1,
    })
}
