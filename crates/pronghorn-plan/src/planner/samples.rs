//! The inputs that ranges come from: the user's, or made-up ones.

use super::{BuildError, BuildOptions};

/// Without samples, ranges come from this many made-up images (noise, ramps, constants) over
/// the input range, with [`SYNTHETIC_MARGIN`] on every range.
pub const SYNTHETIC_IMAGES: usize = 48;

/// The margin on ranges that come from made-up images.
pub const SYNTHETIC_MARGIN: f32 = 2.0;

/// The user's samples, or made-up ones, and the margin that goes with them.
pub(super) fn samples(
    options: &BuildOptions,
    elements: usize,
    shape: &[usize],
) -> Result<(Vec<f32>, f32), BuildError> {
    match &options.samples {
        Some(samples) if samples.is_empty() || samples.len() % elements.max(1) != 0 => {
            Err(BuildError::Samples {
                found: samples.len(),
                expected: elements,
                shape: shape.to_vec(),
            })
        }
        Some(samples) => Ok((samples.clone(), 1.0)),
        None => Ok((synthetic(elements, options.input_range), SYNTHETIC_MARGIN)),
    }
}

/// Images to test on, and others to correct biases on, as many: spread over all of them, which may
/// be sorted. The same where there is but one.
pub(super) fn split(images: usize, tests: usize) -> [Vec<usize>; 2] {
    let tested: Vec<usize> = (0..tests).map(|test| test * images / tests).collect();
    let others: Vec<usize> = (0..images)
        .filter(|image| !tested.contains(image))
        .collect();
    let count = others.len().min(tests);
    let corrected = (0..count)
        .map(|other| others[other * others.len() / count])
        .collect();
    match count {
        0 => [tested.clone(), tested],
        _ => [tested, corrected],
    }
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
    use super::*;

    #[test]
    fn images_are_tested_or_corrected_on() {
        assert_eq!(split(1, 1), [vec![0], vec![0]]);
        assert_eq!(split(2, 1), [vec![0], vec![1]]);
        assert_eq!(split(7, 3), [vec![0, 2, 4], vec![1, 3, 5]]);
        let [tested, corrected] = split(100, 30);
        assert!(tested.len() == 30 && corrected.len() == 30);
        assert!(tested.iter().all(|image| !corrected.contains(image)));
        assert!(tested.is_sorted() && corrected.is_sorted() && corrected[29] > 90);
    }
}
