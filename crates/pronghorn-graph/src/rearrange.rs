//! Values rearranged, in runs of elements where they stay together. [`crate::layout`] lists the
//! same element by element, for evaluators of ciphertexts.

use std::{borrow::Cow, iter};

use crate::layout::strides;

/// The result of `Transpose`.
pub fn transpose<T: Copy>(shape: &[usize], permutation: &[usize], x: &[T]) -> Vec<T> {
    let strides = strides(shape);
    walk(permutation.iter().map(|&d| (shape[d], strides[d])), x)
}

/// An input of this shape, broadcast to the shape `output` ([`crate::shape::broadcast`]).
pub fn broadcast<'x, T: Copy>(shape: &[usize], output: &[usize], x: &'x [T]) -> Cow<'x, [T]> {
    if shape == output {
        return Cow::Borrowed(x);
    }
    let strides = strides(shape);
    let axes = shape.iter().zip(strides).zip(output);
    let axes = axes.map(|((&own, stride), &count)| (count, if own == 1 { 0 } else { stride }));
    Cow::Owned(walk(axes, x))
}

/// The result of `Take`.
pub fn take<T: Copy>(shape: &[usize], axis: usize, indices: &[usize], x: &[T]) -> Vec<T> {
    let inner = shape[axis + 1..].iter().product::<usize>();
    let outer = shape[..axis].iter().product::<usize>();
    let mut taken = Vec::with_capacity(outer * indices.len() * inner);
    for block in 0..outer {
        for index in indices {
            let start = (block * shape[axis] + index) * inner;
            taken.extend_from_slice(&x[start..start + inner]);
        }
    }
    taken
}

/// The result of `Concat`.
pub fn concat<T: Copy>(shapes: &[&[usize]], axis: usize, inputs: &[&[T]]) -> Vec<T> {
    let outer = shapes
        .first()
        .map_or(1, |first| first[..axis].iter().product::<usize>());
    let mut joined = Vec::with_capacity(inputs.iter().map(|x| x.len()).sum());
    for block in 0..outer {
        for x in inputs {
            let length = x.len() / outer;
            joined.extend_from_slice(&x[block * length..][..length]);
        }
    }
    joined
}

/// The result of `Pad`.
pub fn pad<T: Copy + Default>(
    shape: &[usize],
    before: &[usize],
    after: &[usize],
    x: &[T],
) -> Vec<T> {
    let sizes = shape.iter().zip(before).zip(after);
    let padded: Vec<usize> = sizes.map(|((size, b), a)| b + size + a).collect();
    let strides = strides(&padded);
    let mut out = vec![T::default(); padded.iter().product()];
    let (Some(&width), Some(&first)) = (shape.last(), before.last()) else {
        return x.to_vec();
    };
    let outer = shape.len() - 1;
    let starts = (0..outer).fold(vec![first], |starts, d| {
        let along = |&start: &usize| (0..shape[d]).map(move |i| (start, before[d] + i));
        let places = starts.iter().flat_map(along);
        places.map(|(start, i)| start + i * strides[d]).collect()
    });
    for (start, row) in starts.into_iter().zip(x.chunks(width.max(1))) {
        out[start..start + width].copy_from_slice(row);
    }
    out
}

/// The elements of `x` along some axes, the last of which is the fastest: counts, and distances
/// in `x`.
fn walk<T: Copy>(axes: impl Iterator<Item = (usize, usize)>, x: &[T]) -> Vec<T> {
    let mut merged: Vec<(usize, usize)> = Vec::new();
    for (count, stride) in axes.filter(|&(count, _)| count != 1) {
        match merged.last_mut() {
            // Both together are one longer axis.
            Some(last) if last.1 == count * stride => *last = (last.0 * count, stride),
            _ => merged.push((count, stride)),
        }
    }
    let Some((&(count, stride), outer)) = merged.split_last() else {
        return x[..1].to_vec();
    };
    let starts = outer.iter().fold(vec![0], |starts, &(count, stride)| {
        let along = |&start: &usize| (0..count).map(move |i| start + i * stride);
        starts.iter().flat_map(along).collect()
    });
    let mut out = Vec::with_capacity(starts.len() * count);
    for start in starts {
        match stride {
            0 => out.extend(iter::repeat_n(x[start], count)),
            1 => out.extend_from_slice(&x[start..start + count]),
            _ => out.extend(x[start..].iter().step_by(stride).take(count)),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::layout::{self, Source};

    fn shape() -> impl Strategy<Value = Vec<usize>> {
        prop::collection::vec(1usize..5, 1..5)
    }

    fn numbers(shape: &[usize]) -> Vec<usize> {
        (0..shape.iter().product()).collect()
    }

    proptest! {
        /// An element is its own index, so that the lists of sources are the results.
        #[test]
        fn results_are_those_of_the_lists(shape in shape(), mix in any::<u64>()) {
            let (x, rank) = (numbers(&shape), shape.len());
            let bit = |at: usize| (mix >> at & 1) as usize;
            let mut permutation: Vec<usize> = (0..rank).collect();
            permutation.rotate_left((bit(0) + bit(1)) % rank);
            if bit(2) == 1 {
                permutation.swap(0, rank - 1);
            }
            let lists = layout::transpose(&shape, &permutation);
            prop_assert_eq!(transpose(&shape, &permutation, &x), lists);

            let own: Vec<usize> = (0..rank).map(|d| if bit(d) == 1 { 1 } else { shape[d] }).collect();
            let few = numbers(&own);
            let lists = layout::broadcast(&own, &shape);
            prop_assert_eq!(broadcast(&own, &shape, &few).into_owned(), lists);

            let axis = mix as usize % rank;
            let indices: Vec<usize> = (0..bit(3) * 3 + 2).map(|i| i * 7 % shape[axis]).collect();
            let lists = layout::take(&shape, axis, &indices);
            prop_assert_eq!(take(&shape, axis, &indices, &x), lists);

            let mut other = shape.clone();
            other[axis] += bit(4);
            let more: Vec<usize> = numbers(&other).iter().map(|at| at + 1000).collect();
            let element = |Source { input, index }| [&x, &more][input][index];
            let lists: Vec<usize> =
                layout::concat(&[&shape, &other], axis).into_iter().map(element).collect();
            prop_assert_eq!(concat(&[&shape, &other], axis, &[&x, &more]), lists);

            let [before, after] = [5, 9].map(|from| (from..from + rank).map(bit).collect::<Vec<_>>());
            let lists: Vec<usize> = layout::pad(&shape, &before, &after)
                .into_iter()
                .map(|source| source.map_or(0, |index| x[index]))
                .collect();
            prop_assert_eq!(pad(&shape, &before, &after, &x), lists);
        }
    }

    #[test]
    fn one_element_stays() {
        assert_eq!(transpose(&[1, 1], &[1, 0], &[7]), [7]);
        assert_eq!(transpose(&[], &[], &[7]), [7]);
        assert_eq!(broadcast(&[], &[], &[7]).into_owned(), [7]);
        assert_eq!(broadcast(&[1], &[3], &[7]).into_owned(), [7; 3]);
        assert_eq!(pad(&[], &[], &[], &[7]), [7]);
    }
}
