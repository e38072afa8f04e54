//! Where the elements of rearranged values come from, for every evaluator: each function lists,
//! for each element of the output in row-major order, the index of the element it copies.

use serde::{Deserialize, Serialize};

use crate::{fixed::LocalOp, geometry::ConvGeometry};

/// The element of an input that an output element copies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Source {
    /// The input of the operator.
    pub input: usize,
    /// The element of that input.
    pub index: usize,
}

/// Sources of `Transpose`.
pub fn transpose(shape: &[usize], permutation: &[usize]) -> Vec<usize> {
    let strides = strides(shape);
    permutation.iter().fold(vec![0], |offsets, &d| {
        let along = |&offset: &usize| (0..shape[d]).map(move |i| (offset, i));
        offsets
            .iter()
            .flat_map(along)
            .map(|(offset, i)| offset + i * strides[d])
            .collect()
    })
}

/// The source of one element of `Transpose`.
pub fn before_transpose(shape: &[usize], permutation: &[usize], mut element: usize) -> usize {
    let (strides, mut source) = (strides(shape), 0);
    for &d in permutation.iter().rev() {
        source += element % shape[d] * strides[d];
        element /= shape[d];
    }
    source
}

/// Sources of `Pad`; `None` is a zero.
pub fn pad(shape: &[usize], before: &[usize], after: &[usize]) -> Vec<Option<usize>> {
    let strides = strides(shape);
    (0..shape.len()).fold(vec![Some(0)], |offsets, d| {
        let inside = |i: usize| i.checked_sub(before[d]).filter(|&i| i < shape[d]);
        let (padded, stride) = (before[d] + shape[d] + after[d], strides[d]);
        let along =
            |&offset: &Option<usize>| (0..padded).map(move |i| Some(offset? + inside(i)? * stride));
        offsets.iter().flat_map(along).collect()
    })
}

/// Sources of `Concat`.
pub fn concat(shapes: &[&[usize]], axis: usize) -> Vec<Source> {
    let Some(first) = shapes.first() else {
        return Vec::new();
    };
    let outer = first[..axis].iter().product::<usize>();
    let inner = first[axis + 1..].iter().product::<usize>();
    let block = |at: usize| {
        shapes.iter().enumerate().flat_map(move |(input, shape)| {
            let length = shape[axis] * inner;
            (at * length..(at + 1) * length).map(move |index| Source { input, index })
        })
    };
    (0..outer).flat_map(block).collect()
}

/// Sources of `Take`.
pub fn take(shape: &[usize], axis: usize, indices: &[usize]) -> Vec<usize> {
    let outer = shape[..axis].iter().product::<usize>();
    let inner = shape[axis + 1..].iter().product::<usize>();
    let along = |at: usize| {
        indices.iter().flat_map(move |&index| {
            let start = (at * shape[axis] + index) * inner;
            start..start + inner
        })
    };
    (0..outer).flat_map(along).collect()
}

/// Sources of an input of this shape that is broadcast to the shape `output`
/// ([`crate::shape::broadcast`]).
pub fn broadcast(shape: &[usize], output: &[usize]) -> Vec<usize> {
    let strides = strides(shape);
    (0..shape.len()).fold(vec![0], |offsets, d| {
        let stride = if shape[d] == 1 { 0 } else { strides[d] };
        let along = |&offset: &usize| (0..output[d]).map(move |i| offset + i * stride);
        offsets.iter().flat_map(along).collect()
    })
}

/// The inputs that a convolution's output at position `at` multiplies with one row of weights of
/// `group`: writes the window of every channel of the group into `patch`, in the order of the
/// weights, with zeros for padding. For a valid geometry.
pub fn patch<T: Copy + Default>(
    geometry: &ConvGeometry,
    group: usize,
    at: [usize; 2],
    x: &[T],
    patch: &mut [T],
) {
    let ConvGeometry {
        window,
        input: [height, width],
        ..
    } = geometry;
    let [rows, columns] =
        [(0, height), (1, width)].map(|(axis, &size)| window.taps(axis, at[axis], size));
    let channels = geometry.in_channels / geometry.groups;
    let planes = x.chunks_exact(height * width).skip(group * channels);
    patch.fill(T::default());
    for (plane, patch) in planes.zip(patch.chunks_exact_mut(window.kernel[0] * window.kernel[1])) {
        for row in rows.clone() {
            let y = window.index(0, at[0], row);
            for column in columns.clone() {
                let index = y * width + window.index(1, at[1], column);
                patch[row * window.kernel[1] + column] = plane[index];
            }
        }
    }
}

/// Row-major strides.
pub(crate) fn strides(shape: &[usize]) -> Vec<usize> {
    (0..shape.len())
        .map(|d| shape[d + 1..].iter().product())
        .collect()
}

impl LocalOp {
    /// For each output element the input element it copies, or `None` for a zero; for operators
    /// that rearrange (`Reshape`, `Pad`, `Concat` before its shifts, `Transpose`, `Take`). `Add`
    /// and `SumPool` compute, and have no list. For shapes that [`LocalOp::bounds`] accepts.
    pub fn sources(&self, inputs: &[&[usize]]) -> Option<Vec<Option<Source>>> {
        let first = |index: usize| Source { input: 0, index };
        let shape = *inputs.first()?;
        match self {
            Self::Add { .. } | Self::SumPool { .. } => None,
            Self::Reshape => Some(
                (0..shape.iter().product())
                    .map(|i| Some(first(i)))
                    .collect(),
            ),
            Self::Pad { before, after } => Some(
                pad(shape, before, after)
                    .into_iter()
                    .map(|index| index.map(first))
                    .collect(),
            ),
            Self::Concat { axis, .. } => {
                Some(concat(inputs, *axis).into_iter().map(Some).collect())
            }
            Self::Transpose { permutation } => {
                let indices = transpose(shape, permutation).into_iter();
                Some(indices.map(|index| Some(first(index))).collect())
            }
            Self::Take { axis, indices } => {
                let sources = take(shape, *axis, indices).into_iter();
                Some(sources.map(|index| Some(first(index))).collect())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::geometry::Window;

    #[test]
    fn transposes() {
        // [[0, 1, 2], [3, 4, 5]] turned.
        assert_eq!(transpose(&[2, 3], &[1, 0]), [0, 3, 1, 4, 2, 5]);
        assert_eq!(transpose(&[1, 2, 3], &[0, 1, 2]), [0, 1, 2, 3, 4, 5]);
        assert_eq!(transpose(&[], &[]), [0]);
        let (shape, permutation) = ([2, 3, 4, 5], [2, 0, 3, 1]);
        let one = |element| before_transpose(&shape, &permutation, element);
        let each: Vec<usize> = (0..120).map(one).collect();
        assert_eq!(each, transpose(&shape, &permutation));
    }

    #[test]
    fn broadcasts() {
        assert_eq!(broadcast(&[2, 1], &[2, 3]), [0, 0, 0, 1, 1, 1]);
        assert_eq!(broadcast(&[1, 3], &[2, 3]), [0, 1, 2, 0, 1, 2]);
        assert_eq!(broadcast(&[1, 1], &[2, 2]), [0; 4]);
        assert_eq!(
            broadcast(&[2, 1, 2], &[2, 2, 2]),
            [0, 1, 0, 1, 2, 3, 2, 3],
            "a dimension in the middle"
        );
        assert_eq!(broadcast(&[], &[]), [0]);
    }

    #[test]
    fn takes() {
        assert_eq!(take(&[2, 3], 1, &[2, 0, 2]), [2, 0, 2, 5, 3, 5]);
        assert_eq!(take(&[2, 3], 0, &[1]), [3, 4, 5]);
        assert_eq!(
            take(&[2, 2, 2], 1, &[1, 0]),
            [2, 3, 0, 1, 6, 7, 4, 5],
            "rows of two in each of two planes"
        );
    }

    #[test]
    fn pads() {
        let wanted = [
            None,
            None,
            None,
            Some(0),
            Some(1),
            None,
            Some(2),
            Some(3),
            None,
        ];
        assert_eq!(pad(&[2, 2], &[1, 0], &[0, 1]), wanted);
    }

    #[test]
    fn patches() {
        let window = Window {
            padding: [1, 0, 0, 0],
            stride: [1, 2],
            ..Window::plain([2, 1])
        };
        let geometry = ConvGeometry {
            in_channels: 4,
            out_channels: 2,
            input: [2, 3],
            window,
            groups: 2,
        };
        let x: Vec<i32> = (0..24).collect();
        let mut found = [7; 4];
        patch(&geometry, 1, [0, 1], &x, &mut found);
        assert_eq!(found, [0, 14, 0, 20]);
        patch(&geometry, 0, [1, 0], &x, &mut found);
        assert_eq!(found, [0, 3, 6, 9]);
    }

    #[test]
    fn concatenates() {
        let wanted = [(0, 0), (1, 0), (1, 1), (0, 1), (1, 2), (1, 3)];
        let found = concat(&[&[2, 1], &[2, 2]], 1);
        assert_eq!(found, wanted.map(|(input, index)| Source { input, index }));
    }
}
