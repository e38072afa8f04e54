//! The end of a network, which the client computes in floating point on the opened result.
//!
//! The client learns the values that it takes the result from. Exponentials, logarithms, roots and
//! sigmoids tell them anyway, as far as floats go. A softmax tells them but for a constant.

use serde::{Deserialize, Serialize};

use crate::features::MAX_EXPONENT;

/// The client's last operation, in floating point, on the decoded result.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Finish {
    /// `exp(x) / sum(exp(x))` over the whole value.
    Softmax,
    /// Index of the largest value, the first where equal.
    ArgMax,
    /// `1 / (1 + exp(-x))`.
    Sigmoid,
    /// Nothing: the value is the index of a class already
    /// ([`FixedOp::ArgMax`](crate::fixed::FixedOp::ArgMax)).
    Class,
    /// An operation over one dimension, at each place of the others.
    Along {
        /// The operation.
        of: Along,
        /// Elements of the dimension.
        count: u32,
        /// Elements of the dimensions after it.
        inner: u32,
    },
    /// `exp(x)`.
    Exp,
    /// The natural logarithm. Values below the least positive float count as that.
    Log,
    /// The square root. Negative values count as 0.
    Sqrt,
    /// `x 2^e` with an exponent `e` for each channel of the value, its first dimension.
    Scale {
        /// From `-`[`MAX_EXPONENT`] to [`MAX_EXPONENT`].
        exponents: Vec<i8>,
    },
    /// `exp(x) - 1`.
    ExpM1,
    /// Nothing: the values are probabilities already, each from 0 to 1.
    Probabilities,
}

/// What is done over a dimension.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Along {
    /// `exp(x) / sum(exp(x))`.
    Softmax,
    /// Its natural logarithm.
    LogSoftmax,
    /// Index of the largest value, the first where equal. The dimension goes.
    ArgMax,
    /// `|x| / sum(|x|)`, equal parts where the sum is 0.
    Shares,
}

impl Finish {
    /// Its name in plans.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Softmax => "softmax",
            Self::ArgMax => "arg_max",
            Self::Sigmoid => "sigmoid",
            Self::Class => "class",
            Self::Along { of, .. } => match of {
                Along::Softmax => "softmax_along",
                Along::LogSoftmax => "log_softmax_along",
                Along::ArgMax => "arg_max_along",
                Along::Shares => "shares_along",
            },
            Self::Exp => "exp",
            Self::ExpM1 => "exp_m1",
            Self::Probabilities => "probabilities",
            Self::Log => "log",
            Self::Sqrt => "sqrt",
            Self::Scale { .. } => "scale",
        }
    }

    /// Whether it makes parts of one of values.
    pub fn is_softmax(&self) -> bool {
        match self {
            Self::Along { of, .. } => *of != Along::ArgMax,
            other => *other == Self::Softmax,
        }
    }

    /// Whether its results are from 0 to 1, and steep between.
    pub fn makes_shares(&self) -> bool {
        match self {
            Self::Along { of, .. } => matches!(of, Along::Softmax | Along::Shares),
            other => matches!(other, Self::Softmax | Self::Sigmoid),
        }
    }

    /// Whether the largest of `elements` values stays the largest.
    pub fn keeps_order(&self, elements: usize) -> bool {
        match self {
            Self::ArgMax | Self::Class | Self::Scale { .. } => false,
            Self::Along { of, count, .. } => *of != Along::ArgMax && *count as usize == elements,
            _ => true,
        }
    }

    /// Whether it is a function of each value that makes errors larger without a bound.
    pub fn is_unbounded(&self) -> bool {
        matches!(self, Self::Exp | Self::ExpM1 | Self::Log | Self::Sqrt)
    }

    /// Whether it makes indices of values.
    pub fn makes_indices(&self) -> bool {
        match self {
            Self::Along { of, .. } => *of == Along::ArgMax,
            other => matches!(other, Self::ArgMax | Self::Class),
        }
    }

    /// The operation over a dimension of a value of this shape; `None` where it has no such.
    pub fn along(of: Along, axis: usize, shape: &[usize]) -> Option<Self> {
        let count = u32::try_from(*shape.get(axis)?).ok()?;
        let inner = u32::try_from(shape[axis + 1..].iter().product::<usize>()).ok()?;
        Some(Self::Along { of, count, inner })
    }

    /// The shape that it makes of another; `None` where it does not go with that.
    pub fn shape(&self, shape: &[usize]) -> Option<Vec<usize>> {
        match *self {
            Self::ArgMax => Some(vec![1]),
            Self::Scale { ref exponents } => {
                let is_small = |e: &i8| u32::from(e.unsigned_abs()) <= MAX_EXPONENT;
                let is_each = shape.first() == Some(&exponents.len());
                (is_each && exponents.iter().all(is_small)).then(|| shape.to_vec())
            }
            Self::Along { of, count, inner } => {
                let axis = (0..shape.len()).find(|&axis| {
                    let after = shape[axis + 1..].iter().copied();
                    shape[axis] == count as usize
                        && after.fold(1, usize::saturating_mul) == inner as usize
                })?;
                let mut shape = shape.to_vec();
                if of == Along::ArgMax {
                    shape.remove(axis);
                }
                Some(shape)
            }
            _ => Some(shape.to_vec()),
        }
    }

    /// Applies it to one image's result: the float network and the decoded secure result share it.
    pub fn apply(&self, x: &[f32]) -> Vec<f32> {
        match *self {
            Self::Softmax => softmax(x),
            Self::ArgMax => vec![largest(x) as f32],
            Self::Class | Self::Probabilities => x.to_vec(),
            Self::Sigmoid => x.iter().map(|x| 1.0 / (1.0 + (-x).exp())).collect(),
            Self::Along { of, count, inner } => along(of, [count as usize, inner as usize], x),
            Self::Exp => x.iter().map(|x| x.exp()).collect(),
            Self::ExpM1 => x.iter().map(|x| x.exp_m1()).collect(),
            Self::Log => x.iter().map(|x| x.max(f32::MIN_POSITIVE).ln()).collect(),
            Self::Sqrt => x.iter().map(|x| x.max(0.0).sqrt()).collect(),
            Self::Scale { ref exponents } => {
                let plane = x.len().div_ceil(exponents.len().max(1)).max(1);
                let factors = exponents.iter().map(|&e| f32::from(e).exp2());
                let scaled = |(channel, factor): (&[f32], f32)| {
                    channel.iter().map(|x| x * factor).collect::<Vec<_>>()
                };
                x.chunks(plane).zip(factors).flat_map(scaled).collect()
            }
        }
    }
}

/// Whether operations in order give the index of the largest of so many values.
pub fn ends_in_class(finish: &[Finish], elements: usize) -> bool {
    match finish {
        [before @ .., Finish::ArgMax] => before.iter().all(|op| op.keeps_order(elements)),
        _ => false,
    }
}

/// The shape of a result after operations in order; `None` where they do not go with it.
pub fn shape_after(finish: &[Finish], shape: &[usize]) -> Option<Vec<usize>> {
    let first = Some(shape.to_vec());
    finish
        .iter()
        .fold(first, |shape, op| op.shape(shape?.as_slice()))
}

fn softmax(x: &[f32]) -> Vec<f32> {
    let most = x.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let powers: Vec<f32> = x.iter().map(|x| (x - most).exp()).collect();
    let sum: f32 = powers.iter().sum();
    powers.iter().map(|power| power / sum).collect()
}

fn log_softmax(x: &[f32]) -> Vec<f32> {
    let most = x.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let sum: f32 = x.iter().map(|x| (x - most).exp()).sum();
    x.iter().map(|x| x - most - sum.ln()).collect()
}

fn shares(x: &[f32]) -> Vec<f32> {
    let sum: f32 = x.iter().map(|x| x.abs()).sum();
    let equal = 1.0 / x.len().max(1) as f32;
    let share = |x: &f32| if sum > 0.0 { x.abs() / sum } else { equal };
    x.iter().map(share).collect()
}

fn largest(x: &[f32]) -> usize {
    let larger = |best: usize, i: usize| if x[i] > x[best] { i } else { best };
    (0..x.len()).fold(0, larger)
}

/// An operation over a dimension of so many elements, with so many after it.
fn along(of: Along, [count, inner]: [usize; 2], x: &[f32]) -> Vec<f32> {
    let mut made = Vec::with_capacity(x.len());
    for part in x.chunks((count * inner).max(1)) {
        let rows = (0..inner).map(|place| {
            let row = part.iter().skip(place).step_by(inner);
            row.copied().collect::<Vec<f32>>()
        });
        if of == Along::ArgMax {
            made.extend(rows.map(|row| largest(&row) as f32));
            continue;
        }
        let first = made.len();
        made.resize(first + part.len(), 0.0);
        for (place, row) in rows.enumerate() {
            let row = match of {
                Along::LogSoftmax => log_softmax(&row),
                Along::Shares => shares(&row),
                _ => softmax(&row),
            };
            let places = made[first..].iter_mut().skip(place).step_by(inner);
            places.zip(row).for_each(|(made, value)| *made = value);
        }
    }
    made
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two rows of three channels of two places, against the definitions.
    #[test]
    fn operations_over_a_dimension_are_those_of_its_rows() {
        let x: Vec<f32> = (0..12).map(|i| ((i * 7) % 5) as f32 - 1.5).collect();
        let shape = [2, 3, 2];
        for (of, whole) in [
            (Along::Softmax, softmax as fn(&[f32]) -> Vec<f32>),
            (Along::LogSoftmax, |x| {
                softmax(x).iter().map(|x| x.ln()).collect()
            }),
        ] {
            let finish = Finish::along(of, 1, &shape).unwrap();
            assert_eq!(finish.shape(&shape).unwrap(), shape);
            let found = finish.apply(&x);
            for row in 0..2 {
                for place in 0..2 {
                    let at = |channel: usize| (row * 3 + channel) * 2 + place;
                    let wanted = whole(&[0, 1, 2].map(|channel| x[at(channel)]));
                    for (channel, wanted) in wanted.into_iter().enumerate() {
                        assert!((found[at(channel)] - wanted).abs() < 1e-6);
                    }
                }
            }
        }
        let finish = Finish::along(Along::ArgMax, 1, &shape).unwrap();
        assert_eq!(finish.shape(&shape).unwrap(), [2, 2]);
        // -1.5 0.5 | 2.5 -0.5 | 1.5 -1.5 and 0.5 2.5 | -0.5 1.5 | -1.5 0.5.
        assert_eq!(finish.apply(&x), [1.0, 0.0, 0.0, 0.0]);
    }

    #[test]
    fn shapes_that_do_not_go_together_are_found() {
        let finish = Finish::along(Along::Softmax, 0, &[3, 4]).unwrap();
        assert_eq!(finish.shape(&[4, 3]), None);
        assert_eq!(finish.shape(&[]), None);
        assert_eq!(Finish::along(Along::Softmax, 2, &[3, 4]), None);
        let class = Finish::along(Along::ArgMax, 0, &[3, 4]).unwrap();
        assert_eq!(shape_after(&[finish, class.clone()], &[3, 4]).unwrap(), [4]);
        assert_eq!(shape_after(&[class.clone(), class], &[3, 4]), None);
    }

    #[test]
    fn scales_are_one_a_channel() {
        let finish = Finish::Scale {
            exponents: vec![-3, 0, 64],
        };
        assert_eq!(finish.apply(&[8.0, 5.0, 1.0]), [1.0, 5.0, 64f32.exp2()]);
        assert_eq!(finish.shape(&[3]).unwrap(), [3]);
        assert_eq!((finish.shape(&[4]), finish.shape(&[])), (None, None));
        assert_eq!(finish.shape(&[3, 2]).unwrap(), [3, 2]);
        let map = [8.0, 16.0, 5.0, 6.0, 0.0, 1.0];
        assert_eq!(finish.apply(&map), [1.0, 2.0, 5.0, 6.0, 0.0, 64f32.exp2()]);
        assert!(!finish.keeps_order(3));
        let far = Finish::Scale {
            exponents: vec![-65, 0],
        };
        assert_eq!(far.shape(&[2]), None);
    }

    #[test]
    fn shares_add_up_to_one() {
        let finish = Finish::along(Along::Shares, 0, &[4]).unwrap();
        assert_eq!(finish.apply(&[1.0, 0.0, -2.0, 1.0]), [0.25, 0.0, 0.5, 0.25]);
        assert_eq!(finish.apply(&[0.0; 4]), [0.25; 4]);
        // The client's sigmoids are small, and none is lost.
        let small = Finish::Sigmoid.apply(&[-20.0, -21.0, -30.0, -40.0]);
        let found = finish.apply(&small);
        assert!((found[0] - 1.0 / (1.0 + (-1f32).exp())).abs() < 1e-4);
        assert!(finish.makes_shares() && finish.is_softmax());
    }

    /// A class of several rows is not that of the largest value.
    #[test]
    fn an_operation_on_a_part_changes_the_order() {
        let along = |of, axis, shape: &[usize]| Finish::along(of, axis, shape).unwrap();
        let class = Finish::ArgMax;
        assert!(ends_in_class(&[Finish::Softmax, class.clone()], 6));
        let whole = along(Along::LogSoftmax, 0, &[6]);
        assert!(ends_in_class(&[whole, Finish::Exp, class.clone()], 6));
        let part = along(Along::Softmax, 1, &[2, 3]);
        for before in [part, class.clone(), along(Along::ArgMax, 0, &[6])] {
            assert!(!ends_in_class(&[before, class.clone()], 6));
        }
        assert!(!ends_in_class(&[class, Finish::Exp], 6));
        assert!(!ends_in_class(&[], 6));
    }

    /// Fixed point may make a small value negative.
    #[test]
    fn roots_and_logarithms_of_negative_values_are_numbers() {
        assert_eq!(Finish::Sqrt.apply(&[-1e-3, 4.0]), [0.0, 2.0]);
        assert!(Finish::Log.apply(&[-1e-3, 0.0]).iter().all(|x| *x < -87.0));
        assert_eq!(Finish::Log.apply(&[1.0]), [0.0]);
        assert_eq!(Finish::Exp.apply(&[0.0]), [1.0]);
        assert_eq!(Finish::ExpM1.apply(&[0.0, 1e-9]), [0.0, 1e-9]);
    }

    /// What a plan from outside may say makes no panic.
    #[test]
    fn operations_take_values_of_any_size() {
        for (count, inner) in [(0, 0), (3, 0), (0, 3), (u32::MAX, 1), (5, 5), (1, 1)] {
            for of in [
                Along::Softmax,
                Along::LogSoftmax,
                Along::ArgMax,
                Along::Shares,
            ] {
                let finish = Finish::Along { of, count, inner };
                finish.apply(&[1.0; 7]);
                finish.shape(&[7]);
            }
        }
    }
}
