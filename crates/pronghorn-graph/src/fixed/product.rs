//! Products of two values: shape and range.

use super::{Interval, ValueSpec};
use crate::{
    matrices::Matrices,
    shape::{self, OperatorError},
};

/// The range of a product of two values, whose shape is `shape`: either is broadcast along
/// dimensions where it has size 1.
///
/// # Errors
/// When there are not two inputs, or their shapes do not make this one.
pub fn bounds(inputs: &[&ValueSpec], shape: &[usize]) -> Result<Interval, OperatorError> {
    let [left, right] = shape::two(inputs)?;
    for input in [left, right] {
        shape::elements(&input.shape)?;
    }
    shape::same(shape::broadcast(&left.shape, &right.shape)?, shape)?;
    Ok(of_pairs(left, right))
}

/// The range of a product of two matrices, part by part, whose shape is `shape`.
///
/// # Errors
/// When there are not two inputs, or their shapes do not make this one.
pub fn matrix_bounds(inputs: &[&ValueSpec], shape: &[usize]) -> Result<Interval, OperatorError> {
    let [left, right] = shape::two(inputs)?;
    let matrices = Matrices::of(&left.shape, &right.shape)?;
    shape::same(matrices.shape().to_vec(), shape)?;
    let count = matrices.inner as i64;
    let Interval { low, high } = of_pairs(left, right);
    Ok(Interval {
        low: low.saturating_mul(count),
        high: high.saturating_mul(count),
    })
}

/// The range of products of a value of each.
fn of_pairs(left: &ValueSpec, right: &ValueSpec) -> Interval {
    let [left, right] = [left, right].map(Interval::of);
    left.times(right.low).join(left.times(right.high))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(shape: &[usize], low: i32, high: i32) -> ValueSpec {
        ValueSpec {
            shape: shape.to_vec(),
            fraction_bits: 0,
            low,
            high,
        }
    }

    #[test]
    fn ranges_of_products() {
        for (left, right, low, high) in [
            ((-3, 5), (-7, 2), -35, 21),
            ((-3, 5), (2, 4), -12, 20),
            ((-3, -1), (-4, -2), 2, 12),
            ((0, 0), (i32::MIN, i32::MAX), 0, 0),
            (
                (i32::MIN, i32::MAX),
                (i32::MIN, i32::MAX),
                i64::from(i32::MIN) * i64::from(i32::MAX),
                1 << 62,
            ),
        ] {
            let inputs = [
                &value(&[2, 3], left.0, left.1),
                &value(&[2, 1], right.0, right.1),
            ];
            assert_eq!(bounds(&inputs, &[2, 3]), Ok(Interval { low, high }));
        }
    }

    #[test]
    fn shapes_of_products() {
        let found = |left: &[usize], right: &[usize], shape: &[usize]| {
            bounds(&[&value(left, 0, 1), &value(right, 0, 1)], shape)
        };
        assert!(found(&[4, 2, 2], &[4, 1, 1], &[4, 2, 2]).is_ok());
        assert!(found(&[4, 1, 1], &[1, 2, 3], &[4, 2, 3]).is_ok());
        assert!(found(&[], &[], &[]).is_ok());
        for (left, right, shape) in [
            (&[4, 2][..], &[4, 3][..], &[4, 3][..]),
            (&[4], &[4, 1], &[4, 1]),
            (&[4], &[1], &[1]),
            (&[0], &[1], &[0]),
            (&[1 << 40, 1], &[1, 1 << 40], &[1 << 40, 1 << 40]),
        ] {
            assert!(found(left, right, shape).is_err(), "{left:?} {right:?}");
        }
        let one = value(&[4], 0, 1);
        assert!(bounds(&[&one], &[4]).is_err());
        assert!(bounds(&[&one; 3], &[4]).is_err());
    }
}
