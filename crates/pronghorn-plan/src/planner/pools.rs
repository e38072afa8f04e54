//! Large max pools on shares, as several of few places.
//!
//! A maximum of `k x k` places takes `k^2 - 1` comparisons. Columns first and then rows take
//! `2 (k - 1)` where the stride is 1. Along one axis, windows of 1, 2, 4 and so on double up to the
//! largest below `k`, of which two overlapping ones make `k`: `ceil(log2 k)` comparisons.
//!
//! A window over a whole image saves none so. A large one is taken apart for other reasons: each
//! size of window has a circuit or program of its own, whose length a plan bounds.

use pronghorn_graph::{
    fixed::{ActivationOp, ValueSpec},
    geometry::Window,
    shape::image,
};

use super::draft::{Draft, Op, insert_before};
use crate::steps::activation::{chain, garbled::Garbled};

/// A pool is taken apart where that saves this part of its comparisons.
const SAVED: f64 = 0.2;

/// Windows of more places are taken apart in any case.
const MOST_PLACES: usize = 512;

/// Places of the parts of a window over all of an axis.
const AT_ONCE: usize = 16;

/// Takes pools apart where that saves comparisons. Their last part stays in its chain.
pub(super) fn take_apart(drafts: &mut Vec<Draft<'_>>, output: &mut usize) {
    let mut index = 0;
    while index < drafts.len() {
        for (window, shape) in first_parts(drafts, index) {
            let before = &drafts[drafts[index].inputs[0]];
            let pool = Garbled {
                ops: vec![ActivationOp::MaxPool { window }],
            };
            let draft = Draft {
                name: drafts[index].name.clone(),
                op: Op::Chain(pool),
                inputs: drafts[index].inputs.clone(),
                value: ValueSpec {
                    shape,
                    ..before.value.clone()
                },
            };
            insert_before(drafts, output, index, draft);
            index += 1;
        }
        index += 1;
    }
}

/// The parts of the pool of chain `index` but the last, which takes the pool's place, each with the
/// shape of its value.
fn first_parts(drafts: &mut [Draft<'_>], index: usize) -> Vec<(Window, Vec<usize>)> {
    let Op::Chain(chain) = &drafts[index].op else {
        return vec![];
    };
    let input = &drafts[drafts[index].inputs[0]].value.shape;
    let is_pool = |op: &ActivationOp| matches!(op, ActivationOp::MaxPool { .. });
    let place = chain.ops.iter().position(is_pool);
    let (Some(place), Ok((channels, size))) = (place, image(input)) else {
        return vec![];
    };
    let ActivationOp::MaxPool { window } = &chain.ops[place] else {
        return vec![];
    };
    // A dither comes before its pool.
    if chain::is_dithered(&chain.ops) {
        return vec![];
    }
    let mut parts = parts(window, size);
    let Some(last) = parts.pop() else {
        return vec![];
    };
    let mut size = size;
    let of_part = |window: Window| {
        size = window.output(size).ok()?;
        Some((window, vec![channels, size[0], size[1]]))
    };
    let Some(parts) = parts.into_iter().map(of_part).collect() else {
        return vec![];
    };
    if let Op::Chain(chain) = &mut drafts[index].op {
        chain.ops[place] = ActivationOp::MaxPool { window: last };
    }
    parts
}

/// Windows that together pool as `window` does over an image of that height and width: itself alone
/// where others save little.
fn parts(window: &Window, size: [usize; 2]) -> Vec<Window> {
    let whole = vec![window.clone()];
    let all = [[1, 0], [0, 1]].map(|order| by_axes(window, size, order));
    let Some(best) = fewest(all, size) else {
        return whole;
    };
    let is_large = window.kernel[0].saturating_mul(window.kernel[1]) > MOST_PLACES;
    let most = comparisons(&whole, size) * (1.0 - SAVED);
    match is_large || comparisons(&best, size) <= most {
        true => best,
        false => whole,
    }
}

/// Those with the fewest comparisons.
fn fewest(all: impl IntoIterator<Item = Vec<Window>>, size: [usize; 2]) -> Option<Vec<Window>> {
    let count = |parts: &[Window]| comparisons(parts, size);
    all.into_iter()
        .filter(|parts| count(parts).is_finite())
        .min_by(|a, b| count(a).total_cmp(&count(b)))
}

/// Windows along one axis, then along the other.
fn by_axes(window: &Window, size: [usize; 2], order: [usize; 2]) -> Vec<Window> {
    let along = |axis| along(window, size[axis], axis);
    order.into_iter().flat_map(along).collect()
}

/// Windows along an axis of that size.
fn along(window: &Window, size: usize, axis: usize) -> Vec<Window> {
    let of = |kernel: usize, stride: usize, padding: [usize; 2]| Window {
        kernel: of_axis(axis, kernel, 1),
        stride: of_axis(axis, stride, 1),
        dilation: of_axis(axis, window.dilation[axis], 1),
        padding: padded(axis, padding),
    };
    let (kernel, stride) = (window.kernel[axis], window.stride[axis]);
    let [before, after] = window.padding_of(axis);
    let whole = of(kernel, stride, [before, after]);
    if whole.is_point() {
        return vec![];
    }
    let is_only = size + before + after < kernel + stride && before + size <= kernel;
    if is_only && kernel > AT_ONCE && window.dilation[axis] == 1 {
        return in_turn(size, of);
    }
    match stride {
        1 => fewest(
            [vec![whole.clone()], doubled(window, size, axis)],
            of_axis(axis, size, 1),
        )
        .unwrap_or_else(|| vec![whole]),
        _ => vec![whole],
    }
}

/// Windows over all of an axis of that size, by [`AT_ONCE`] places and then by as many results.
fn in_turn(mut size: usize, of: impl Fn(usize, usize, [usize; 2]) -> Window) -> Vec<Window> {
    let mut parts = Vec::new();
    while size > 1 {
        let kernel = size.min(AT_ONCE);
        let left = size.div_ceil(kernel);
        parts.push(of(kernel, kernel, [0, left * kernel - size]));
        size = left;
    }
    parts
}

/// Pairs of windows along an axis, of 1, 2, 4 and so on places each, and at last two of the largest
/// that overlap. `size` is the image's, whose places are counted from 0: a window is known by its
/// first place, which may be in the padding.
fn doubled(window: &Window, size: usize, axis: usize) -> Vec<Window> {
    let [kernel, dilation] = [window.kernel[axis], window.dilation[axis]];
    let [before, after] = window.padding_of(axis).map(|padding| padding as isize);
    let apart = |places: usize| (dilation * places) as isize;
    let least = -before;
    let most = size as isize - 1 + after - apart(kernel - 1);
    // Places of the windows that each pair joins, and how far these are apart.
    let mut steps: Vec<[usize; 2]> = Vec::new();
    let mut places = 1;
    while places < kernel {
        let moved = places.min(kernel - places);
        steps.push([places, moved]);
        places += moved;
    }
    // Those windows alone that later ones read, and that are not in the padding altogether.
    let mut ends = vec![most];
    for [_, moved] in steps.iter().skip(1).rev() {
        let needed = ends[ends.len() - 1] + apart(*moved);
        ends.push(needed.min(size as isize - 1));
    }
    let mut read = [0, size as isize - 1];
    let pair = |([places, moved], end): (&[usize; 2], isize)| {
        let begin = least.max(-apart(places + moved - 1));
        let around = [read[0] - begin, end + apart(*moved) - read[1]];
        read = [begin, end];
        Window {
            kernel: of_axis(axis, 2, 1),
            stride: [1; 2],
            dilation: of_axis(axis, dilation * moved, 1),
            padding: padded(axis, around.map(|places| places.max(0) as usize)),
        }
    };
    steps.iter().zip(ends.into_iter().rev()).map(pair).collect()
}

/// A number for an axis, and one for the other.
fn of_axis(axis: usize, own: usize, other: usize) -> [usize; 2] {
    [0, 1].map(|at| if at == axis { own } else { other })
}

/// Padding of one axis alone.
fn padded(axis: usize, [before, after]: [usize; 2]) -> [usize; 4] {
    let mut padding = [0; 4];
    [padding[axis], padding[axis + 2]] = [before, after];
    padding
}

/// Comparisons of pools one after another for a channel of an image, padding counted as places;
/// infinite where one does not fit.
fn comparisons(parts: &[Window], mut size: [usize; 2]) -> f64 {
    let mut all = 0.0;
    for window in parts {
        let Ok(output) = window.pool_output(size) else {
            return f64::INFINITY;
        };
        let places = (window.kernel[0] * window.kernel[1] - 1) as f64;
        all += places * (output[0] * output[1]) as f64;
        size = output;
    }
    all
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The largest of each window, places in the padding left out.
    fn pooled(window: &Window, size: [usize; 2], image: &[i32]) -> ([usize; 2], Vec<i32>) {
        let output = window.pool_output(size).unwrap();
        let mut most = vec![i32::MIN; output[0] * output[1]];
        window.visit(size, output, |to, from| {
            most[to] = most[to].max(image[from])
        });
        (output, most)
    }

    fn pair<T: Clone + core::fmt::Debug + 'static>(
        of: impl Strategy<Value = T> + Clone,
    ) -> impl Strategy<Value = [T; 2]> {
        [of.clone(), of]
    }

    fn windows() -> impl Strategy<Value = Window> {
        let padding = [0..12usize, 0..12, 0..12, 0..12];
        let (kernel, stride, dilation) = (pair(1..24usize), pair(1..3usize), pair(1..3usize));
        (kernel, stride, dilation, padding).prop_map(|(kernel, stride, dilation, padding)| Window {
            kernel,
            stride,
            dilation,
            padding: [0, 1, 2, 3].map(|at| padding[at] % kernel[at % 2]),
        })
    }

    proptest! {
        #[test]
        fn parts_pool_as_the_whole(window in windows(), size in pair(1..40usize), seed in 1..997i32) {
            prop_assume!(window.pool_output(size).is_ok());
            let image: Vec<i32> = (0..(size[0] * size[1]) as i32).map(|at| at * seed % 997).collect();
            let wanted = pooled(&window, size, &image);
            for parts in [
                parts(&window, size),
                by_axes(&window, size, [0, 1]),
                by_axes(&window, size, [1, 0]),
            ] {
                let (mut found, mut left) = (image.clone(), size);
                for part in &parts {
                    (left, found) = pooled(part, left, &found);
                }
                prop_assert_eq!(&(left, found), &wanted, "by {:?}", parts);
            }
        }
    }

    #[test]
    fn comparisons_of_usual_pools() {
        let same = |kernel: usize, stride| Window {
            stride: [stride; 2],
            padding: [kernel / 2; 4],
            ..Window::plain([kernel; 2])
        };
        let shapes = |window: &Window, size| {
            let of_part = |part: &Window| (part.kernel, part.dilation);
            parts(window, size).iter().map(of_part).collect::<Vec<_>>()
        };
        let halved = Window {
            stride: [2; 2],
            ..Window::plain([2; 2])
        };
        assert_eq!(parts(&halved, [8; 2]), [halved]);
        // Along rows 1 by 2, twice as far apart, and two that overlap; then the same down.
        let across = [([1, 2], [1, 1]), ([1, 2], [1, 2]), ([1, 2], [1, 1])];
        let down = across.map(|(kernel, [_, dilation])| ([kernel[1], kernel[0]], [dilation, 1]));
        assert_eq!(shapes(&same(5, 1), [20; 2]), [across, down].concat());
        assert_eq!(
            shapes(&same(3, 2), [112; 2]),
            [([1, 3], [1, 1]), ([3, 1], [1, 1])]
        );
        // Two comparisons for each of 13 places in place of 168.
        let size = [13; 2];
        let of = |parts: &[Window]| comparisons(parts, size);
        let ratio = of(&parts(&same(13, 1), size)) / of(&[same(13, 1)]);
        assert!(ratio < 0.06, "{ratio}");
        // All of an image: as many comparisons, of 16 places at most.
        let all = parts(&Window::plain([172, 309]), [172, 309]);
        assert!(
            all.iter()
                .all(|part| part.kernel[0] * part.kernel[1] <= AT_ONCE)
        );
        let places = comparisons(&[Window::plain([172, 309])], [172, 309]);
        assert!(comparisons(&all, [172, 309]) < 1.05 * places);
        assert_eq!(
            parts(&Window::plain([7; 2]), [7; 2]),
            [Window::plain([7; 2])]
        );
    }
}
