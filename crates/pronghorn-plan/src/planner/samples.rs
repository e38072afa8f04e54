//! The inputs that ranges come from: the user's, or made-up ones.

use std::borrow::Cow;

use pronghorn_graph::fixed::ValueSpec;

use super::{BuildError, BuildOptions};
use crate::plan::deviation;

/// Without samples, ranges come from this many made-up images (noise, ramps, constants) over
/// the input range, with [`SYNTHETIC_MARGIN`] on every range.
pub const SYNTHETIC_IMAGES: usize = 48;

/// The margin on ranges that come from made-up images.
pub const SYNTHETIC_MARGIN: f32 = 2.0;

/// The user's samples, or made-up ones.
pub(super) fn samples<'a>(
    options: &'a BuildOptions,
    elements: usize,
    shape: &[usize],
) -> Result<Cow<'a, [f32]>, BuildError> {
    match &options.samples {
        Some(samples) if samples.is_empty() || samples.len() % elements.max(1) != 0 => {
            Err(BuildError::Samples {
                found: samples.len(),
                expected: elements,
                shape: shape.to_vec(),
            })
        }
        Some(samples) if samples.iter().all(|&number| number == 0.0) => Err(BuildError::Blank),
        Some(samples) => Ok(Cow::Borrowed(samples)),
        None => Ok(Cow::Owned(synthetic(elements, options.input_range))),
    }
}

/// The factor on ranges that so many samples tell, of inputs and of values between layers. Other
/// inputs reach farther, and what lies beyond is clamped. The largest of `n` values is exceeded by
/// the next one with a chance of `1 / (n + 1)`, so more samples need less room. Features of rows
/// have long tails, however many rows there are.
pub(super) fn margin(images: usize, is_row: bool) -> f32 {
    match is_row {
        true => ROW_MARGIN,
        false => (1.0 + MARGIN_OF_ONE / images as f32).min(MOST_MARGIN),
    }
}

/// With 2 in place of 1.25, errors of other rows with skewed features fell three times, for 3 % of
/// bytes.
const ROW_MARGIN: f32 = 2.0;

/// With 1.375 for 32 samples, errors of other images fell up to eight times in six networks of
/// eleven, for 1 % of bytes.
const MARGIN_OF_ONE: f32 = 12.0;
const MOST_MARGIN: f32 = 1.375;

/// The factor on the ends of inputs where values between layers are ciphertexts. Nothing is clamped
/// there, and these have room for little more.
pub(super) fn margin_of_ciphertexts(shape: &[usize]) -> f32 {
    match shape.len() {
        ..=2 => 1.25,
        _ => 1.0,
    }
}

/// The range of inputs that made-up images in a range stand for.
pub(super) fn made_up([low, high]: [f32; 2]) -> [f32; 2] {
    [low.min(0.0), high.max(0.0)].map(|end| end * SYNTHETIC_MARGIN)
}

/// The range of inputs of so many elements that samples in a range tell: wider by a margin at each
/// end that is not the inputs' own. That of indicators, and of bytes, is the end of several samples
/// that differ.
pub(super) fn told(
    [low, high]: [f32; 2],
    margin: f32,
    samples: &[f32],
    elements: usize,
) -> [f32; 2] {
    let is_own = |end: f32| {
        let mut having = samples.chunks(elements).filter(|row| row.contains(&end));
        having
            .next()
            .is_some_and(|first| having.any(|row| row != first))
    };
    let [below, above] = widened([low, high], margin);
    let end = |own: f32, wider: f32| if is_own(own) { own } else { wider };
    rounded([end(low, below), end(high, above)])
}

/// A range that holds these made rows, too: they have no margin of their own.
pub(super) fn around([low, high]: [f32; 2], made: &[f32]) -> [f32; 2] {
    let [least, most] = range(made);
    match least < low || most > high {
        true => rounded([low.min(least), high.max(most)]),
        false => [low, high],
    }
}

/// A range with a margin at each end.
pub(super) fn widened([low, high]: [f32; 2], margin: f32) -> [f32; 2] {
    let away = |end: f32, is_outward: bool| match is_outward {
        true => end * margin,
        false => end / margin,
    };
    [away(low, low < 0.0), away(high, high > 0.0)]
}

/// A range around that of the owner's samples, which tells little of them: its ends are sixteenths
/// of the power of two above the larger one, and above 15/16 of it the power of two less `2^-i` of
/// it. No number of bits holds fewer fraction bits of it than of the samples' own range.
pub(super) fn rounded([low, high]: [f32; 2]) -> [f32; 2] {
    let reach = f64::from(low.abs().max(high.abs()));
    if !reach.is_normal() {
        return [low, high];
    }
    let top = reach.log2().ceil().exp2();
    let outwards = |part: f64| match part * SIXTEENTHS {
        sixteenths if sixteenths <= SIXTEENTHS - 1.0 => sixteenths.ceil() / SIXTEENTHS,
        _ => {
            let near = (4..=f32::MANTISSA_DIGITS).map(|bits| 1.0 - (-f64::from(bits)).exp2());
            near.into_iter().find(|&end| part <= end).unwrap_or(1.0)
        }
    };
    let inwards = |part: f64| (part * SIXTEENTHS).floor() / SIXTEENTHS;
    let end = |end: f32, is_outward: bool| {
        let part = f64::from(end.abs()) / top;
        let part = if is_outward {
            outwards(part)
        } else {
            inwards(part)
        };
        ((part * top) as f32).copysign(end)
    };
    [end(low, low < 0.0), end(high, high > 0.0)]
}

/// Results of inputs like the samples reach so many times as far from the middle of the samples'
/// results, at most.
const TYPICAL: f64 = 1.25;

/// Samples come near an end of a range by this part of how far they differ: rounding, not more.
const NEAR: i32 = 512;

/// The range of results of inputs like the samples, as integers: wider than that of the samples'
/// results, and rounded as that of inputs is. An end of the result's own range is beyond it where no
/// sample comes near it: what is there was clamped. `is_log`: clients take the logarithm, and what
/// is no number above zero has none.
pub(super) fn typical([low, high]: [f32; 2], result: &ValueSpec, is_log: bool) -> [i32; 2] {
    let (middle, reach) = (
        (f64::from(low) + f64::from(high)) / 2.0,
        (f64::from(high) - f64::from(low)) / 2.0,
    );
    let ends = [middle - TYPICAL * reach, middle + TYPICAL * reach];
    let unit = f64::from(result.fraction_bits).exp2();
    let [least, most] = rounded(ends.map(|end| end as f32)).map(|end| f64::from(end) * unit);
    // Casts saturate.
    let [least, most] = [least.floor() as i32, most.ceil() as i32];
    let [low, high] = [low, high].map(|end| (f64::from(end) * unit).round() as i32);
    let near = (high.saturating_sub(low) / NEAR).max(1);
    let least = match is_log && low > 0 {
        true => least.max(1),
        false => least,
    };
    [
        match low.saturating_sub(near) > result.low {
            true => least.max(result.low.saturating_add(1)),
            false => least,
        },
        match high.saturating_add(near) < result.high {
            true => most.min(result.high.saturating_sub(1)),
            false => most,
        },
    ]
}

/// The deviations of inputs like the samples, of `elements` values each: wider than those of the
/// samples by the same factor at both ends, and rounded as the range of inputs is.
pub(super) fn deviations(images: &[f32], elements: usize) -> [f32; 2] {
    let found = images.chunks(elements).map(deviation);
    let ends = |[low, high]: [f64; 2], found: f64| [low.min(found), high.max(found)];
    let [low, high] = found.fold([f64::INFINITY, 0.0], ends);
    rounded([low / TYPICAL, high * TYPICAL].map(|end| end as f32))
}

/// Parts of a power of two that ends of a range are rounded to.
const SIXTEENTHS: f64 = 16.0;

/// The smallest and the largest value.
pub(super) fn range(images: &[f32]) -> [f32; 2] {
    let bounds = |[low, high]: [f32; 2], &x: &f32| [low.min(x), high.max(x)];
    images
        .iter()
        .fold([f32::INFINITY, f32::NEG_INFINITY], bounds)
}

/// At most `most` of so many images, spread over all of them, which may be sorted: one of each of as
/// many parts. Its place in a part is as good as random, since kinds of images may alternate.
pub(super) fn spread(images: usize, most: usize) -> Vec<usize> {
    let count = images.min(most);
    let place = |at: usize| {
        let [first, next] = [at, at + 1].map(|at| at * images / count);
        first + scattered(at as u32) as usize % (next - first)
    };
    (0..count).map(place).collect()
}

/// The last steps of MurmurHash3: neighbours get numbers that differ in all bits.
fn scattered(number: u32) -> u32 {
    let mut mixed = number.wrapping_add(1).wrapping_mul(0x9e37_79b9);
    mixed = (mixed ^ (mixed >> 16)).wrapping_mul(0x85eb_ca6b);
    mixed = (mixed ^ (mixed >> 13)).wrapping_mul(0xc2b2_ae35);
    mixed ^ (mixed >> 16)
}

/// These of the images, of so many elements each.
pub(super) fn gathered(images: &[f32], elements: usize, chosen: &[usize]) -> Vec<f32> {
    let image = |&index: &usize| &images[index * elements..][..elements];
    chosen.iter().flat_map(image).copied().collect()
}

/// Images to test on, and others to correct biases on, as many: spread over all of them, which may
/// be sorted. The same where there is but one. Of rows, whose kinds may alternate, each half is a
/// [`spread`]; of pictures and series every second one.
pub(super) fn split(images: usize, tests: usize, is_row: bool) -> [Vec<usize>; 2] {
    let places = |images: usize, count: usize| match is_row {
        true => spread(images, count),
        false => (0..count).map(|at| at * images / count).collect(),
    };
    let tested = places(images, tests);
    let others: Vec<usize> = (0..images)
        .filter(|image| !tested.contains(image))
        .collect();
    let chosen = places(others.len(), others.len().min(tests));
    match chosen.is_empty() {
        true => [tested.clone(), tested],
        false => [tested, chosen.iter().map(|&at| others[at]).collect()],
    }
}

/// How many of the images differ.
pub(super) fn distinct(images: &[f32], elements: usize) -> usize {
    let mut found: Vec<&[f32]> = Vec::new();
    for image in images.chunks(elements) {
        if !found.contains(&image) {
            found.push(image);
        }
    }
    found.len()
}

/// Made-up images: a third noise, a third ramps, a third noise around a constant.
fn synthetic(elements: usize, (low, high): (f32, f32)) -> Vec<f32> {
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    let mut noise = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 40) as f32 / (1u64 << 24) as f32
    };
    let mut images = Vec::with_capacity(SYNTHETIC_IMAGES * elements);
    for image in 0..SYNTHETIC_IMAGES {
        let level = image as f32 / (SYNTHETIC_IMAGES - 1) as f32;
        for element in 0..elements {
            let place = element as f32 / elements as f32;
            let value = match image % 3 {
                0 => noise(),
                1 => (place + level).fract(),
                _ => (0.8 * level + 0.2 * noise()).min(1.0),
            };
            images.push(low + (high - low) * value);
        }
    }
    images
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn images_are_tested_or_corrected_on() {
        assert_eq!(split(1, 1, true), [vec![0], vec![0]]);
        assert_eq!(split(2, 1, false), [vec![0], vec![1]]);
        assert_eq!(split(7, 3, false), [vec![0, 2, 4], vec![1, 3, 5]]);
        // Tables of two kinds in turn.
        for halves in [(256, 128), (32, 16), (64, 32)].map(|(all, half)| split(all, half, true)) {
            for half in halves {
                let odd = half.iter().filter(|&place| place % 2 == 1).count();
                assert!(
                    (half.len() / 4..=half.len() * 3 / 4).contains(&odd),
                    "{odd}"
                );
            }
        }
        let [tested, corrected] = split(100, 30, false);
        assert!(tested.len() == 30 && corrected.len() == 30);
        assert!(tested.iter().all(|image| !corrected.contains(image)));
        assert!(tested.is_sorted() && corrected.is_sorted() && corrected[29] > 90);
    }

    #[test]
    fn samples_are_spread_over_sorted_files() {
        assert_eq!(spread(5, 9), [0, 1, 2, 3, 4]);
        for (part, place) in spread(1000, 64).into_iter().enumerate() {
            assert!((part * 1000 / 64..(part + 1) * 1000 / 64).contains(&place));
        }
        // Made-up images of three kinds in turn, and files of two classes in turn.
        for (images, classes) in [(48, 3), (256, 2)] {
            for most in [16, 20, 32, 40, 256] {
                let kept = spread(images, most);
                let of = |class| {
                    kept.iter()
                        .filter(|&place| place % classes == class)
                        .count()
                };
                assert!((0..classes).all(|class| of(class) > 1), "{images} {most}");
            }
        }
        assert!(spread(0, 4).is_empty());
        assert_eq!(
            gathered(&[0.0, 1.0, 2.0, 3.0, 4.0, 5.0], 2, &[0, 2]),
            [0.0, 1.0, 4.0, 5.0]
        );
        assert_eq!(range(&[3.0, -1.0, 2.0]), [-1.0, 3.0]);
    }

    #[test]
    fn ends_are_sixteenths() {
        for (found, wanted) in [
            ([0.0, 1.0], [0.0, 1.0]),
            ([0.0, 255.0], [0.0, 255.0]),
            ([0.0, 0.987], [0.0, 0.9921875]),
            ([-0.424, 2.821], [-0.5, 3.0]),
            ([0.3, 1.0], [0.25, 1.0]),
            ([-1.0, -0.3], [-1.0, -0.25]),
            ([-4.0, 0.01], [-4.0, 0.25]),
            ([0.0, 0.0], [0.0, 0.0]),
        ] {
            assert_eq!(rounded(found), wanted, "{found:?}");
        }
    }

    #[test]
    fn fewer_samples_need_more_room() {
        assert_eq!(margin(1, false), MOST_MARGIN);
        assert_eq!(margin(32, false), 1.375);
        assert_eq!(margin(96, false), 1.125);
        assert_eq!(margin(96, true), ROW_MARGIN);
    }

    #[test]
    fn ends_that_are_the_inputs_own_stay() {
        // Bytes reach 1 in several images, and indicators both ends.
        let images = [0.0, 0.3, 1.0, 0.0, 1.0, 0.5];
        assert_eq!(told([0.0, 1.0], 2.0, &images, 3), [0.0, 1.0]);
        // 0.6 is the largest of one image alone.
        let images = [0.0, 0.3, 0.6, 0.0, 0.5, 0.4];
        assert_eq!(told([0.0, 0.6], 1.25, &images, 3), [0.0, 0.75]);
        assert_eq!(around([0.0, 0.75], &[]), [0.0, 0.75]);
        assert_eq!(around([0.0, 0.75], &[0.0, 0.75]), [0.0, 0.75]);
        assert_eq!(around([0.0, 0.75], &[-1.0, 0.2]), [-1.0, 0.75]);
        assert_eq!(made_up([0.5, 1.0]), [0.0, 2.0]);
        assert_eq!(made_up([-1.0, 3.0]), [-2.0, 6.0]);
    }

    #[test]
    fn results_like_the_samples_are_typical() {
        let result = |fraction_bits, low, high| ValueSpec {
            shape: vec![1],
            fraction_bits,
            low,
            high,
        };
        let wide = |bits| result(bits, i32::MIN, i32::MAX);
        assert_eq!(typical([-4.0, 4.0], &wide(3), false), [-40, 40]);
        assert_eq!(typical([100.0, 104.0], &wide(0), false), [96, 112]);
        assert_eq!(
            typical([-1e30, 1e30], &wide(8), false),
            [i32::MIN, i32::MAX]
        );
        assert_eq!(typical([0.0, 0.0], &wide(8), false), [0, 0]);
        // What rounds to zero has no logarithm, unless samples have such.
        assert_eq!(typical([0.5, 4.0], &wide(3), true)[0], 1);
        assert_eq!(typical([0.01, 4.0], &wide(3), true)[0], -4);
        assert_eq!(typical([0.05, 4.0], &result(10, 0, 5000), true)[0], 1);
        // What is at the end of the range above zero was clamped.
        assert_eq!(typical([0.75, 4.0], &result(3, 4, 35), true), [5, 34]);
        // Results at the ends of their range were clamped, unless samples come near them.
        assert_eq!(
            typical([-4.0, 4.0], &result(17, -524_390, 524_300), false),
            [-655_360, 655_360]
        );
        assert_eq!(
            typical([-4.0, 4.0], &result(7, -516, 516), false),
            [-515, 515]
        );
        assert_eq!(typical([-4.0, 4.0], &result(3, -36, 35), false), [-35, 34]);
        assert_eq!(typical([0.0, 4.0], &result(3, 0, 35), false), [-4, 34]);
    }

    proptest! {
        /// A range of so many bits has as many fraction bits as before.
        #[test]
        fn no_fraction_bit_is_lost(low in -1e3f32..1e3, width in 1e-3f32..1e3, bits in 4u32..20) {
            let [low, high] = [low, low + width];
            let [least, most] = rounded([low, high]);
            prop_assert!(least <= low && high <= most);
            let fraction = |low: f32, high: f32| {
                let reach = f64::from(low.abs().max(high.abs()));
                (((1u32 << bits) - 1) as f64 / reach).log2().floor()
            };
            prop_assert_eq!(fraction(least, most), fraction(low, high));
            // Samples with nearly these ends have the same range.
            prop_assert_eq!(rounded([least, most]), [least, most]);
        }
    }
}
