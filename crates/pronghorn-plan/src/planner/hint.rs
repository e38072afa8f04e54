//! What of the samples may be why a plan is refused. It says nothing of the values: logs have it.

use std::fmt;

/// The hint for samples of this shape.
pub(super) fn of(samples: &[f32], shape: &[usize]) -> Option<Hint> {
    let far = farthest(samples, shape.iter().product()).map(Hint::Far);
    far.or_else(|| apart(samples, shape).then_some(Hint::Apart))
}

/// What may be why.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Hint {
    /// A value that is likely wrong.
    Far(Far),
    /// Features of a series, or channels of an image, of very different sizes.
    Apart,
}

impl fmt::Display for Hint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Far(far) => far.fmt(f),
            Self::Apart => f.write_str(
                "Features of the input differ in size more than a hundredfold, and series and images \
                 have one scale for all: bring each feature to a like size before sending, and let \
                 the model take these",
            ),
        }
    }
}

/// Whether the first dimension of a series or an image, or the last of a series, has places whose
/// largest values differ more than [`MANY`] times. Places without a value do not count.
fn apart(samples: &[f32], shape: &[usize]) -> bool {
    let (&[first, ..], Some(&last)) = (shape, shape.last()) else {
        return false;
    };
    let elements: usize = shape.iter().product();
    let differ = |count: usize, place: &dyn Fn(usize) -> usize| {
        let mut largest = vec![0f32; count];
        for (at, value) in samples.iter().enumerate() {
            let most = &mut largest[place(at % elements)];
            *most = most.max(value.abs());
        }
        let some = || largest.iter().copied().filter(|&size| size > 0.0);
        let [low, high] = [some().fold(f32::MAX, f32::min), some().fold(0.0, f32::max)];
        f64::from(high) > MANY * f64::from(low)
    };
    let by_first = || differ(first, &|at| at / (elements / first));
    // The last dimension of an image is one of columns.
    let by_last = || differ(last, &|at| at % last);
    elements > 0
        && match shape.len() {
            2 => by_first() || by_last(),
            3.. => by_first(),
            _ => false,
        }
}

/// The value that is the most times as large as all others in its place. `None` where none is
/// [`MANY`] times as large, and with few samples.
pub(super) fn farthest(samples: &[f32], elements: usize) -> Option<Far> {
    if samples.len() / elements.max(1) < LEAST_BESIDE {
        return None;
    }
    let of_place = |place: usize| {
        let sizes = samples[place..]
            .iter()
            .step_by(elements)
            .map(|value| value.abs());
        let (mut largest, mut second) = ((0, 0f32), 0f32);
        for (sample, size) in sizes.enumerate() {
            second = second.max(size.min(largest.1));
            if size > largest.1 {
                largest = (sample, size);
            }
        }
        let times = f64::from(largest.1) / f64::from(second);
        // Where all others are zero, a rare value is none that is wrong.
        (second > 0.0 && times > MANY).then_some(Far {
            sample: largest.0,
            place,
            times,
        })
    };
    let all = (0..elements).filter_map(of_place);
    all.max_by(|a, b| a.times.total_cmp(&b.times))
}

/// A value that is so many times as large as all others is likely wrong.
const MANY: f64 = 100.0;

/// So many samples tell what others are like.
const LEAST_BESIDE: usize = 8;

/// A value that is far larger than those of other samples.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Far {
    /// Its sample.
    pub sample: usize,
    /// Its place in the sample.
    pub place: usize,
    /// How many times as large as all others there it is.
    pub times: f64,
}

impl fmt::Display for Far {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            sample,
            place,
            times,
        } = self;
        write!(
            f,
            "Value {place} of sample {sample} is more than {:.0} times as large as all others \
             there: leave the sample out, if it is wrong",
            // All digits would tell the value itself beside others that are known.
            10f64.powf(times.log10().floor())
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn features_of_a_series_are_of_very_different_sizes() {
        // Two steps of a ratio and a price, and the same with the price first in its own row.
        let series: Vec<f32> = (1..=20)
            .flat_map(|at| [0.01 * at as f32, 1e3, 0.1, 900.0])
            .collect();
        assert_eq!(of(&series, &[2, 2]), Some(Hint::Apart));
        let channels: Vec<f32> = (1..=20)
            .flat_map(|at| [1e3, 900.0, 0.01 * at as f32, 0.1])
            .collect();
        assert_eq!(of(&channels, &[2, 2]), Some(Hint::Apart));
        // A row of features has scales of its own.
        assert_eq!(of(&series, &[4]), None);
        assert_eq!(of(&[0.0, 1.0, 0.0, 2.0], &[2, 2]), None);
    }

    #[test]
    fn one_value_is_far_larger_than_all_others() {
        // Rows of a price, an indicator that is rarely set, and a ratio.
        let mut rows: Vec<f32> = (1..=20).flat_map(|at| [at as f32, 0.0, 0.1]).collect();
        rows[10] = 1.0;
        assert_eq!(farthest(&rows, 3), None);
        rows[21] = -5e3;
        let far = farthest(&rows, 3).expect("it is 250 times as large");
        assert_eq!((far.sample, far.place, far.times), (7, 0, 250.0));
        assert_eq!(farthest(&rows[..21], 3), None);
        assert!(
            far.to_string()
                .contains("Value 0 of sample 7 is more than 100 times")
        );
    }
}
