//! Interval arithmetic: the range of an operator's result, proven from the ranges of its inputs.
//!
//! Also checks shapes and parameters, and stays exact or saturates, so that it may be fed with a
//! peer's numbers.

use rayon::prelude::*;

use super::{ActivationOp, Linear, LocalOp, ValueSpec};
use crate::{
    geometry::Window,
    shape::{self, OperatorError},
};

/// All integers from `low` to `high`; wider than 32 bits so that an overflow can be seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interval {
    /// Smallest.
    pub low: i64,
    /// Largest.
    pub high: i64,
}

impl Interval {
    /// The range of a value.
    pub fn of(value: &ValueSpec) -> Self {
        Self {
            low: value.low.into(),
            high: value.high.into(),
        }
    }

    /// The bounds if both fit in 32 bits.
    pub fn fit(self) -> Option<(i32, i32)> {
        Some((self.low.try_into().ok()?, self.high.try_into().ok()?))
    }

    /// True if all of `other` is inside.
    pub fn contains(self, other: Self) -> bool {
        self.low <= other.low && other.high <= self.high
    }

    /// The smallest interval that holds both.
    pub fn join(self, other: Self) -> Self {
        Self {
            low: self.low.min(other.low),
            high: self.high.max(other.high),
        }
    }

    /// With zero.
    pub fn with_zero(self) -> Self {
        self.join(Self { low: 0, high: 0 })
    }

    /// All sums.
    pub fn plus(self, other: Self) -> Self {
        Self {
            low: self.low.saturating_add(other.low),
            high: self.high.saturating_add(other.high),
        }
    }

    /// All products with `factor`.
    pub fn times(self, factor: i64) -> Self {
        let (a, b) = (
            self.low.saturating_mul(factor),
            self.high.saturating_mul(factor),
        );
        Self {
            low: a.min(b),
            high: a.max(b),
        }
    }

    /// Both ends through a function that never falls.
    pub fn map(self, rising: impl Fn(i64) -> i64) -> Self {
        Self {
            low: rising(self.low),
            high: rising(self.high),
        }
    }
}

impl Linear {
    /// The range of the result over all output channels, with the actual weights.
    ///
    /// # Errors
    /// When sizes do not go together or a weight has 16 bits or more.
    pub fn bounds(&self, input: &ValueSpec, shape: &[usize]) -> Result<Interval, OperatorError> {
        self.check(&input.shape, shape)?;
        let padded = self.geometry.window.padding != [0; 4];
        let x = if padded {
            Interval::of(input).with_zero()
        } else {
            Interval::of(input)
        };
        let rows = self
            .weights
            .par_chunks_exact(self.geometry.row_len())
            .zip(&self.bias);
        let ranges = rows.map(|(row, &bias)| {
            let [up, down] = sums(row);
            // At most 2^28 products below 2^46: no overflow.
            let low = up
                .saturating_mul(x.low)
                .saturating_sub(down.saturating_mul(x.high));
            let high = up
                .saturating_mul(x.high)
                .saturating_sub(down.saturating_mul(x.low));
            Interval { low, high }.plus(Interval { low: 0, high: 0 }.map(|_| bias.into()))
        });
        // A valid geometry has at least one output channel.
        Ok(ranges
            .reduce_with(Interval::join)
            .unwrap_or(Interval { low: 0, high: 0 }))
    }

    /// Checks sizes and weights against the shapes around.
    fn check(&self, input: &[usize], output: &[usize]) -> Result<(), OperatorError> {
        let geometry = &self.geometry;
        let [height, width] = geometry.output()?;
        let expected = geometry.in_channels * geometry.input[0] * geometry.input[1];
        if shape::elements(input)? != expected {
            let expected = format!("{expected} elements, by the layer's geometry");
            return Err(OperatorError::InputShape {
                expected,
                found: input.to_vec(),
            });
        }
        if shape::elements(output)? != geometry.out_channels * height * width {
            let expected = vec![geometry.out_channels, height, width];
            return Err(OperatorError::OutputShape {
                expected,
                found: output.to_vec(),
            });
        }
        for (field, found, expected) in [
            (
                "number of weights",
                self.weights.len(),
                geometry.weights_len(),
            ),
            ("number of biases", self.bias.len(), geometry.out_channels),
        ] {
            if found != expected {
                return Err(OperatorError::parameter(field, found, expected.to_string()));
            }
        }
        // A search item by item asks after each whether another thread has found one, and one that
        // ends early takes no vectors.
        let rows = self.weights.par_chunks(geometry.row_len());
        let is_wide = |row: &[i16]| row.iter().fold(false, |any, &w| any | (w == i16::MIN));
        match rows.any(is_wide) {
            true => Err(OperatorError::parameter(
                "a weight",
                i16::MIN,
                "above -2^15",
            )),
            false => Ok(()),
        }
    }
}

/// The sums of the positive weights and of minus the negative ones, all below 2^15.
fn sums(row: &[i16]) -> [i64; 2] {
    // Sums of so many have 31 bits: vectors of 32-bit words hold them.
    row.chunks(1 << 16).fold([0, 0], |[up, down], weights| {
        let sum: i32 = weights.iter().map(|&weight| i32::from(weight)).sum();
        let positive = weights.iter().map(|&weight| i32::from(weight.max(0)));
        let positive: i32 = positive.sum();
        [
            up + i64::from(positive),
            down + i64::from(positive) - i64::from(sum),
        ]
    })
}

impl LocalOp {
    /// The range of the result, whose shape is `shape`.
    ///
    /// # Errors
    /// When inputs, parameters and shape do not go together.
    pub fn bounds(
        &self,
        inputs: &[&ValueSpec],
        shape: &[usize],
    ) -> Result<Interval, OperatorError> {
        let shapes: Vec<&[usize]> = inputs.iter().map(|input| input.shape.as_slice()).collect();
        shapes
            .iter()
            .try_for_each(|shape| shape::elements(shape).map(drop))?;
        let expected = match self {
            Self::Add { .. } => {
                let [left, right] = shape::two(&shapes)?;
                if left != right {
                    let expected = format!("{left:?} as the other input");
                    return Err(OperatorError::InputShape {
                        expected,
                        found: right.to_vec(),
                    });
                }
                left.to_vec()
            }
            Self::SumPool { window, .. } => shape::pool(shape::one(&shapes)?, window)?,
            Self::Reshape => shape::reshape(shape::one(&shapes)?, shape)?,
            Self::Pad { before, after } => shape::pad(shape::one(&shapes)?, before, after)?,
            Self::Concat { axis, .. } => shape::concat(&shapes, *axis)?,
            Self::Transpose { permutation } => shape::transpose(shape::one(&shapes)?, permutation)?,
            Self::Take { axis, indices } => shape::take(shape::one(&shapes)?, *axis, indices)?,
        };
        shape::same(expected, shape)?;
        let ranges = inputs.iter().map(|input| Interval::of(input));
        match self {
            Self::Add { left_shift } => {
                let shifted = shifted(ranges, left_shift)?;
                Ok(shifted
                    .into_iter()
                    .reduce(Interval::plus)
                    .expect("two inputs"))
            }
            Self::Concat { left_shift, .. } => {
                let shifted = shifted(ranges, left_shift)?;
                Ok(shifted
                    .into_iter()
                    .reduce(Interval::join)
                    .expect("one input or more"))
            }
            Self::SumPool {
                window,
                multipliers,
            } => {
                let (_, size) = shape::image(shapes[0])?;
                pool_bounds(window, multipliers, Interval::of(inputs[0]), size, shape)
            }
            Self::Pad { .. } => Ok(Interval::of(inputs[0]).with_zero()),
            Self::Reshape | Self::Transpose { .. } | Self::Take { .. } => {
                Ok(Interval::of(inputs[0]))
            }
        }
    }
}

/// Ranges shifted up, one shift each.
fn shifted(
    ranges: impl ExactSizeIterator<Item = Interval>,
    left_shift: &[u32],
) -> Result<Vec<Interval>, OperatorError> {
    if left_shift.len() != ranges.len() || left_shift.iter().any(|&shift| shift > 31) {
        let expected = format!("{} numbers of at most 31", ranges.len());
        return Err(OperatorError::parameter("left_shift", left_shift, expected));
    }
    Ok(ranges
        .zip(left_shift)
        .map(|(range, &shift)| range.times(1 << shift))
        .collect())
}

/// The range of a weighted sum over windows, from how many elements each window holds.
fn pool_bounds(
    window: &Window,
    multipliers: &[i32],
    input: Interval,
    size: [usize; 2],
    shape: &[usize],
) -> Result<Interval, OperatorError> {
    let (_, output) = shape::image(shape)?;
    let positions = output[0] * output[1];
    if ![1, positions].contains(&multipliers.len()) || multipliers.contains(&0) {
        let expected = format!("1 or {positions} numbers, none of them 0");
        let found = multipliers.len();
        return Err(OperatorError::parameter("multipliers", found, expected));
    }
    let taps = |axis: usize, at: usize| window.taps(axis, at, size[axis]).len() as i64;
    let sum = |down: i64, right: i64, multiplier: i32| {
        input
            .times(down.saturating_mul(right))
            .times(multiplier.into())
    };
    let sums: Vec<Interval> = if let [multiplier] = *multipliers {
        // A sum grows with its window: the ones with most and fewest elements bound all.
        let [rows, columns] = [0, 1].map(|axis| {
            let counts = (0..output[axis]).map(|at| taps(axis, at));
            counts.fold((i64::MAX, 0), |(least, most), count| {
                (count.min(least), count.max(most))
            })
        });
        vec![
            sum(rows.0, columns.0, multiplier),
            sum(rows.1, columns.1, multiplier),
        ]
    } else {
        let place = |position: usize| (position / output[1], position % output[1]);
        let at = |(position, &multiplier): (usize, &i32)| {
            let (y, x) = place(position);
            sum(taps(0, y), taps(1, x), multiplier)
        };
        multipliers.iter().enumerate().map(at).collect()
    };
    let bounds = sums.into_iter().reduce(Interval::join);
    bounds.ok_or_else(|| OperatorError::Bounds {
        shape: shape.to_vec(),
    })
}

impl ActivationOp {
    /// The range of the result, whose shape is `shape`.
    ///
    /// # Errors
    /// When input, parameters and shape do not go together.
    pub fn bounds(&self, input: &ValueSpec, shape: &[usize]) -> Result<Interval, OperatorError> {
        shape::elements(&input.shape)?;
        let expected = match self {
            Self::MaxPool { window } => shape::pool(&input.shape, window)?,
            _ => input.shape.clone(),
        };
        shape::same(expected, shape)?;
        let x = Interval::of(input);
        Ok(match *self {
            Self::MaxPool { .. } => x,
            Self::Relu => x.map(|x| x.max(0)),
            Self::Clip { low, high } => {
                ordered(low, high)?;
                x.map(|x| x.clamp(low.into(), high.into()))
            }
            Self::LeakyRelu { slope, shift } => {
                small(shift)?;
                let above = x.map(|x| x.max(0)).times(1 << shift);
                let below = x.map(|x| x.min(0)).times(slope.into());
                match (x.low < 0, x.high >= 0) {
                    (true, true) => above.join(below),
                    (true, false) => below,
                    _ => above,
                }
            }
            Self::Square => {
                let (a, b) = (x.low * x.low, x.high * x.high);
                let low = if x.low <= 0 && x.high >= 0 {
                    0
                } else {
                    a.min(b)
                };
                Interval {
                    low,
                    high: a.max(b),
                }
            }
            Self::Requantise { shift, low, high } => {
                ordered(low, high)?;
                small(shift)?;
                requantised(x, shift, low, high)
            }
            Self::RequantiseChannels {
                ref shifts,
                low,
                high,
            } => {
                ordered(low, high)?;
                each_channel(shifts, input)?;
                let ranges = shifts.iter().map(|&shift| requantised(x, shift, low, high));
                ranges.reduce(Interval::join).unwrap_or(x)
            }
            Self::Table(ref table) => table.bounds(x)?,
            Self::Dither { ref shifts } => {
                if shifts.len() != 1 {
                    each_channel(shifts, input)?;
                }
                shifts.iter().try_for_each(|&shift| small(shift))?;
                if shifts.contains(&0) {
                    return Err(OperatorError::parameter("shift", 0, "at least 1"));
                }
                let ranges = shifts.iter().map(|&shift| dithered(x, shift));
                ranges.reduce(Interval::join).unwrap_or(x)
            }
        })
    }
}

/// The range of `x` after `shift` bits were dropped and the rest was clamped.
fn requantised(x: Interval, shift: u32, low: i32, high: i32) -> Interval {
    let half = (1i64 << shift) >> 1;
    x.map(|x| ((x + half) >> shift).clamp(low.into(), high.into()))
}

/// The range of `x` after `shift` bits were dropped behind any addend.
fn dithered(x: Interval, shift: u32) -> Interval {
    Interval {
        low: x.low >> shift,
        high: (x.high >> shift) + 1,
    }
}

/// Checks shifts of channels.
fn each_channel(shifts: &[u32], input: &ValueSpec) -> Result<(), OperatorError> {
    let (channels, _) = shape::channels(&input.shape);
    if shifts.len() != channels {
        let expected = format!("{channels} numbers, one a channel");
        return Err(OperatorError::parameter("shifts", shifts.len(), expected));
    }
    shifts.iter().try_for_each(|&shift| small(shift))
}

fn ordered(low: i32, high: i32) -> Result<(), OperatorError> {
    if low <= high {
        return Ok(());
    }
    Err(OperatorError::parameter(
        "low",
        low,
        format!("at most high, {high}"),
    ))
}

fn small(shift: u32) -> Result<(), OperatorError> {
    if shift <= 31 {
        return Ok(());
    }
    Err(OperatorError::parameter("shift", shift, "at most 31"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::geometry::ConvGeometry;

    fn value(shape: &[usize], low: i32, high: i32) -> ValueSpec {
        ValueSpec {
            shape: shape.to_vec(),
            fraction_bits: 0,
            low,
            high,
        }
    }

    fn interval(low: i64, high: i64) -> Interval {
        Interval { low, high }
    }

    #[test]
    fn linear_by_rows() {
        let linear = Linear {
            geometry: ConvGeometry::dense(2, 2),
            weights: vec![2, -3, 1, 1],
            bias: vec![10, -1],
        };
        let found = linear.bounds(&value(&[2], 1, 4), &[2]).unwrap();
        // 2x - 3y + 10 is in 0..15, x + y - 1 in 1..7.
        assert_eq!(found, interval(0, 15));
        let wrong = linear.bounds(&value(&[3], 1, 4), &[2]).unwrap_err();
        assert!(matches!(wrong, OperatorError::InputShape { .. }));
    }

    #[test]
    fn padding_puts_zeros_into_a_linear_range() {
        let window = Window {
            padding: [1; 4],
            ..Window::plain([1, 1])
        };
        let geometry = ConvGeometry {
            window,
            input: [2, 2],
            ..ConvGeometry::dense(1, 1)
        };
        let linear = Linear {
            geometry,
            weights: vec![5],
            bias: vec![1],
        };
        let found = linear.bounds(&value(&[1, 2, 2], 2, 3), &[1, 4, 4]).unwrap();
        assert_eq!(found, interval(1, 16));
    }

    #[test]
    fn activations() {
        let x = value(&[4], -6, 5);
        let bounds = |op: ActivationOp| op.bounds(&x, &[4]).unwrap();
        assert_eq!(bounds(ActivationOp::Relu), interval(0, 5));
        assert_eq!(bounds(ActivationOp::Square), interval(0, 36));
        assert_eq!(
            bounds(ActivationOp::LeakyRelu { slope: 1, shift: 2 }),
            interval(-6, 20)
        );
        assert_eq!(
            bounds(ActivationOp::LeakyRelu {
                slope: -1,
                shift: 2
            }),
            interval(0, 20)
        );
        let op = ActivationOp::Requantise {
            shift: 1,
            low: -2,
            high: 9,
        };
        assert_eq!(bounds(op), interval(-2, 3));
        let below = value(&[4], -6, -2);
        assert_eq!(
            ActivationOp::Square.bounds(&below, &[4]),
            Ok(interval(4, 36))
        );
    }

    #[test]
    fn pools_count_what_is_inside() {
        let window = Window {
            padding: [1, 0, 0, 0],
            ..Window::plain([2, 1])
        };
        let op = LocalOp::SumPool {
            window,
            multipliers: vec![4, 2],
        };
        // Row 0 holds one element times 4, row 1 two times 2.
        let found = op.bounds(&[&value(&[1, 2, 1], -1, 3)], &[1, 2, 1]);
        assert_eq!(found, Ok(interval(-4, 12)));
        // A mean with its sign.
        let op = LocalOp::SumPool {
            window: Window::plain([2, 1]),
            multipliers: vec![-3],
        };
        let found = op.bounds(&[&value(&[1, 2, 1], -1, 3)], &[1, 1, 1]);
        assert_eq!(found, Ok(interval(-18, 6)));
    }

    #[test]
    fn hostile_parameters_are_errors() {
        let x = value(&[1, 4, 4], i32::MIN, i32::MAX);
        let window = Window::plain([2, 2]);
        for multipliers in [vec![], vec![0], vec![1; 5]] {
            let op = LocalOp::SumPool {
                window: window.clone(),
                multipliers,
            };
            assert!(op.bounds(&[&x], &[1, 3, 3]).is_err());
        }
        assert!(
            LocalOp::Add {
                left_shift: [32, 0]
            }
            .bounds(&[&x, &x], &x.shape)
            .is_err()
        );
        assert!(
            LocalOp::Add { left_shift: [0, 0] }
                .bounds(&[&x], &x.shape)
                .is_err()
        );
        assert!(LocalOp::Reshape.bounds(&[&x], &[usize::MAX, 2]).is_err());
        assert!(
            LocalOp::Concat {
                axis: 9,
                left_shift: vec![0]
            }
            .bounds(&[&x], &[1])
            .is_err()
        );
        assert!(
            LocalOp::Transpose {
                permutation: vec![0, 0, 1]
            }
            .bounds(&[&x], &[1])
            .is_err()
        );
        for (axis, indices) in [
            (3, vec![0]),
            (usize::MAX, vec![0]),
            (1, vec![]),
            (1, vec![0, 4]),
            (1, vec![usize::MAX]),
        ] {
            let shape = [1, indices.len(), 4];
            let op = LocalOp::Take { axis, indices };
            assert!(op.bounds(&[&x], &shape).is_err(), "{op:?}");
        }
        let pad = LocalOp::Pad {
            before: vec![usize::MAX; 3],
            after: vec![1; 3],
        };
        assert!(pad.bounds(&[&x], &[1]).is_err());
        let leaky = ActivationOp::LeakyRelu {
            slope: 1,
            shift: 40,
        };
        assert!(leaky.bounds(&x, &x.shape).is_err());
        let clip = ActivationOp::Clip { low: 2, high: 1 };
        assert!(clip.bounds(&x, &x.shape).is_err());
        // The widest value squared is seen, not wrapped.
        let square = ActivationOp::Square.bounds(&x, &x.shape).unwrap();
        assert_eq!(square.fit(), None);
    }
}
