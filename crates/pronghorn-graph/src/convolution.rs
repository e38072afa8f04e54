//! Convolutions of plain numbers: what a network is trained and checked with.
//!
//! Patches of some positions are gathered once, and all rows of weights of their group pass over
//! them.

use crate::{geometry::ConvGeometry, layout};

/// Numbers of patches that are gathered at a time: they stay in a core's cache.
const GATHERED: usize = 1 << 16;

/// `out[o][position] = weights[o] . patch(position)`, by `products(rows, patches, length, sums)`
/// with `sums[row][patch]`. The geometry is valid.
pub(crate) fn convolve<W, T: Copy + Default, S: Copy + Default>(
    geometry: &ConvGeometry,
    weights: &[W],
    x: &[T],
    products: impl Fn(&[W], &[T], usize, &mut [S]),
) -> Vec<S> {
    let Ok([height, width]) = geometry.output() else {
        unreachable!("the graph was validated")
    };
    let (positions, length) = (height * width, geometry.row_len());
    let rows = geometry.out_channels / geometry.groups;
    let most = (GATHERED / length).clamp(1, positions.max(1));
    let mut out = vec![S::default(); geometry.out_channels * positions];
    let mut patches = vec![T::default(); most * length];
    let mut sums = vec![S::default(); most * rows];
    let groups = weights
        .chunks_exact(rows * length)
        .zip(out.chunks_exact_mut(rows * positions));
    for (group, (weights, out)) in groups.enumerate() {
        for start in (0..positions).step_by(most) {
            let count = most.min(positions - start);
            let patches = &mut patches[..count * length];
            for (at, patch) in patches.chunks_exact_mut(length).enumerate() {
                let position = start + at;
                let place = [position / width, position % width];
                layout::patch(geometry, group, place, x, patch);
            }
            let sums = &mut sums[..count * rows];
            products(weights, patches, length, sums);
            for (out, sums) in out
                .chunks_exact_mut(positions)
                .zip(sums.chunks_exact(count))
            {
                out[start..start + count].copy_from_slice(sums);
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::geometry::Window;

    /// Against the definition: one output after the other.
    #[test]
    fn convolutions_are_what_they_are_defined_as() {
        let window = |kernel, stride, dilation, padding| Window {
            kernel,
            stride,
            dilation,
            padding,
        };
        let cases = [
            (1, 1, 1, [1, 1], Window::plain([1, 1])),
            (
                6,
                4,
                2,
                [5, 7],
                window([3, 2], [2, 1], [1, 2], [1, 0, 2, 1]),
            ),
            (
                8,
                8,
                8,
                [9, 9],
                window([3, 3], [1, 1], [1, 1], [1, 1, 1, 1]),
            ),
            (
                3,
                5,
                1,
                [40, 33],
                window([5, 5], [2, 2], [1, 1], [2, 2, 2, 2]),
            ),
            (300, 3, 1, [1, 1], Window::plain([1, 1])),
            (2, 2, 1, [300, 200], Window::plain([2, 2])),
        ];
        for (in_channels, out_channels, groups, input, window) in cases {
            let geometry = ConvGeometry {
                in_channels,
                out_channels,
                input,
                window,
                groups,
            };
            let [height, width] = geometry.output().expect("it is valid");
            let length = geometry.row_len();
            let number = |at: usize| (at * 40_503 % 257) as i64 - 128;
            let weights: Vec<i64> = (0..out_channels * length).map(number).collect();
            let x: Vec<i64> = (0..in_channels * input[0] * input[1])
                .map(|at| number(at + 3))
                .collect();
            let found = convolve(
                &geometry,
                &weights,
                &x,
                |rows, patches, length, sums: &mut [i64]| {
                    let pairs = rows.chunks(length).flat_map(|row| {
                        patches.chunks(length).map(move |patch| {
                            std::iter::zip(row, patch).map(|(w, x)| w * x).sum::<i64>()
                        })
                    });
                    sums.iter_mut()
                        .zip(pairs)
                        .for_each(|(sum, product)| *sum = product);
                },
            );
            let mut wanted: Vec<i64> = Vec::new();
            let mut patch = vec![0; length];
            for o in 0..out_channels {
                for position in 0..height * width {
                    let at = [position / width, position % width];
                    let group = o / (out_channels / groups);
                    layout::patch(&geometry, group, at, &x, &mut patch);
                    let row = &weights[o * length..][..length];
                    wanted.push(std::iter::zip(row, &patch).map(|(w, x)| w * x).sum());
                }
            }
            assert_eq!(found, wanted, "{geometry:?}");
        }
    }
}
