//! Shapes: what operators accept and what they make of it. Used for the float graph, the
//! fixed-point graph and for plans from a peer, so nothing here panics or overflows.

use thiserror::Error;

use crate::geometry::{GeometryError, Window, count};

/// Most dimensions of a value, without the batch.
pub const MAX_RANK: usize = 8;

/// Why an operator cannot be applied to its inputs.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum OperatorError {
    /// The wrong number of inputs.
    #[error("it has {found} inputs, but takes {expected}")]
    Inputs {
        /// The number it takes.
        expected: &'static str,
        /// The number there is.
        found: usize,
    },
    /// An input with the wrong number of dimensions.
    #[error("its input has shape {found:?}, but must be {expected}")]
    InputShape {
        /// What it takes.
        expected: String,
        /// What it was given.
        found: Vec<usize>,
    },
    /// The shape declared is not the shape computed.
    #[error(
        "its shape is declared as {found:?}, but it computes {expected:?}: \
         export the model again with fixed shapes"
    )]
    OutputShape {
        /// The operator.
        expected: Vec<usize>,
        /// What is declared.
        found: Vec<usize>,
    },
    /// A shape that is empty or too large.
    #[error(
        "shape {shape:?} is not supported: every dimension must be at least 1, at most {MAX_RANK} \
         dimensions, at most {} elements",
        crate::geometry::MAX_ELEMENTS
    )]
    Bounds {
        /// The shape.
        shape: Vec<usize>,
    },
    /// A parameter out of its bounds.
    #[error("{field} is {found}, but must be {expected}")]
    Parameter {
        /// Which.
        field: &'static str,
        /// Its value.
        found: String,
        /// The values allowed.
        expected: String,
    },
    /// Sizes of a window that do not go together.
    #[error(transparent)]
    Geometry(#[from] GeometryError),
}

impl OperatorError {
    /// A parameter that is not what it must be.
    pub(crate) fn parameter(
        field: &'static str,
        found: impl std::fmt::Debug,
        expected: impl Into<String>,
    ) -> Self {
        Self::Parameter {
            field,
            found: format!("{found:?}"),
            expected: expected.into(),
        }
    }
}

/// Elements of a shape within bounds.
///
/// # Errors
/// When a dimension is zero, or there are too many dimensions or elements.
pub fn elements(shape: &[usize]) -> Result<usize, OperatorError> {
    count("value", shape)
        .ok()
        .filter(|&elements| elements > 0 && shape.len() <= MAX_RANK)
        .ok_or_else(|| OperatorError::Bounds {
            shape: shape.to_vec(),
        })
}

/// `(channels, height, width)`.
///
/// # Errors
/// For a shape that does not have three dimensions.
pub fn image(shape: &[usize]) -> Result<(usize, [usize; 2]), OperatorError> {
    match *shape {
        [channels, height, width] => Ok((channels, [height, width])),
        _ => Err(OperatorError::InputShape {
            expected: "(channels, height, width)".into(),
            found: shape.to_vec(),
        }),
    }
}

/// Channels and the elements of each: the first dimension and the product of the others.
pub fn channels(shape: &[usize]) -> (usize, usize) {
    shape.split_first().map_or((1, 1), |(&channels, rest)| {
        (channels, rest.iter().product())
    })
}

/// Shape of a pooling over `shape`.
///
/// # Errors
/// When it is no image, sizes do not go together, or a window holds nothing but padding.
pub fn pool(shape: &[usize], window: &Window) -> Result<Vec<usize>, OperatorError> {
    let (channels, input) = image(shape)?;
    let [height, width] = window.pool_output(input)?;
    Ok(vec![channels, height, width])
}

/// Shape with zeros around.
///
/// # Errors
/// When there is not one number a dimension, or it gets too large.
pub fn pad(
    shape: &[usize],
    before: &[usize],
    after: &[usize],
) -> Result<Vec<usize>, OperatorError> {
    for (field, padding) in [("before", before), ("after", after)] {
        if padding.len() != shape.len() {
            let expected = format!("one number for each of the {} dimensions", shape.len());
            return Err(OperatorError::parameter(field, padding, expected));
        }
    }
    let sums = shape.iter().zip(before).zip(after);
    let padded: Vec<usize> = sums
        .map(|((&size, &b), &a)| size.saturating_add(b).saturating_add(a))
        .collect();
    elements(&padded)?;
    Ok(padded)
}

/// Shape of inputs joined along `axis`.
///
/// # Errors
/// When they differ in another dimension, or there is no such axis.
pub fn concat(shapes: &[&[usize]], axis: usize) -> Result<Vec<usize>, OperatorError> {
    let Some(first) = shapes.first() else {
        return Err(OperatorError::Inputs {
            expected: "at least one",
            found: 0,
        });
    };
    if axis >= first.len() {
        let expected = format!("below the number of dimensions, {}", first.len());
        return Err(OperatorError::parameter("axis", axis, expected));
    }
    let mut joined = first.to_vec();
    for shape in &shapes[1..] {
        let agrees = |(d, &size): (usize, &usize)| d == axis || first[d] == size;
        if shape.len() != first.len() || !shape.iter().enumerate().all(agrees) {
            let expected = format!("{first:?} in all dimensions but {axis}");
            return Err(OperatorError::InputShape {
                expected,
                found: shape.to_vec(),
            });
        }
        joined[axis] = joined[axis].saturating_add(shape[axis]);
    }
    elements(&joined)?;
    Ok(joined)
}

/// Shape of an operator that goes over two inputs at once. Where one of them has size 1 along a
/// dimension, its one place stands for all places of the other.
///
/// # Errors
/// When they differ in the number of dimensions, or in a size where neither is 1; or the result
/// gets too large.
pub fn broadcast(left: &[usize], right: &[usize]) -> Result<Vec<usize>, OperatorError> {
    let sizes = left.iter().zip(right);
    let fits = sizes.clone().all(|(&l, &r)| l == r || l == 1 || r == 1);
    if left.len() != right.len() || !fits {
        let expected = format!("{left:?} as the other input, or 1 in dimensions where they differ");
        return Err(OperatorError::InputShape {
            expected,
            found: right.to_vec(),
        });
    }
    let joined: Vec<usize> = sizes.map(|(&l, &r)| if l == 1 { r } else { l }).collect();
    elements(&joined)?;
    Ok(joined)
}

/// Shape with its dimensions in another order.
///
/// # Errors
/// When `permutation` is not one of the dimensions.
pub fn transpose(shape: &[usize], permutation: &[usize]) -> Result<Vec<usize>, OperatorError> {
    let mut seen = vec![false; shape.len()];
    let fresh = |&d: &usize| d < shape.len() && !std::mem::replace(&mut seen[d], true);
    if permutation.len() != shape.len() || !permutation.iter().all(fresh) {
        let expected = format!("a permutation of the {} dimensions", shape.len());
        return Err(OperatorError::parameter(
            "permutation",
            permutation,
            expected,
        ));
    }
    Ok(permutation.iter().map(|&d| shape[d]).collect())
}

/// Shape with the places `indices` of one dimension.
///
/// # Errors
/// When there is no such axis, a place does not exist, or it gets empty or too large.
pub fn take(shape: &[usize], axis: usize, indices: &[usize]) -> Result<Vec<usize>, OperatorError> {
    let Some(&size) = shape.get(axis) else {
        let expected = format!("below the number of dimensions, {}", shape.len());
        return Err(OperatorError::parameter("axis", axis, expected));
    };
    if let Some(index) = indices.iter().find(|&&index| index >= size) {
        let expected = format!("below the size of dimension {axis}, {size}");
        return Err(OperatorError::parameter("an index", index, expected));
    }
    let mut taken = shape.to_vec();
    taken[axis] = indices.len();
    elements(&taken)?;
    Ok(taken)
}

/// The same elements in the shape `declared`.
///
/// # Errors
/// When there are more or fewer.
pub fn reshape(shape: &[usize], declared: &[usize]) -> Result<Vec<usize>, OperatorError> {
    if elements(declared)? != shape.iter().product::<usize>() {
        return Err(OperatorError::InputShape {
            expected: format!("as many elements as {declared:?}"),
            found: shape.to_vec(),
        });
    }
    Ok(declared.to_vec())
}

/// The one input of an operator that takes one.
///
/// # Errors
/// When there are none or several.
pub fn one<T: Copy>(inputs: &[T]) -> Result<T, OperatorError> {
    match *inputs {
        [input] => Ok(input),
        _ => Err(OperatorError::Inputs {
            expected: "1",
            found: inputs.len(),
        }),
    }
}

/// Refuses a shape that is not the expected one.
///
/// # Errors
/// It is another.
pub fn same(expected: Vec<usize>, found: &[usize]) -> Result<(), OperatorError> {
    match expected == found {
        true => Ok(()),
        false => Err(OperatorError::OutputShape {
            expected,
            found: found.to_vec(),
        }),
    }
}

/// The two inputs of an operator that takes two.
///
/// # Errors
/// When there are fewer or more.
pub fn two<T: Copy>(inputs: &[T]) -> Result<[T; 2], OperatorError> {
    inputs.try_into().map_err(|_| OperatorError::Inputs {
        expected: "2",
        found: inputs.len(),
    })
}
