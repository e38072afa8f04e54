//! Values of samples that are likely wrong, for refusals.

use std::fmt;

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

/// A value that is far larger than those of other samples. It says nothing of the values: logs
/// have it.
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
            "Value {place} of sample {sample} is {times:.0} times as large as all others there: \
             leave the sample out, if it is wrong"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
        assert!(far.to_string().contains("Value 0 of sample 7 is 250 times"));
    }
}
