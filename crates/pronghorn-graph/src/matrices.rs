//! Products of two computed matrices, as in attention: `(parts, rows, inner)` times
//! `(parts, inner, columns)`.

use crate::{
    geometry::{ConvGeometry, Window},
    shape::{self, OperatorError},
};

/// Most products of two values of one image.
pub const MAX_PRODUCTS: usize = 1 << 26;

/// Sizes of the factors, which go part by part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Matrices {
    /// Pairs of matrices, such as heads.
    pub parts: usize,
    /// Of a first factor and of a result.
    pub rows: usize,
    /// Columns of a first factor and rows of a second: products that are added up.
    pub inner: usize,
    /// Of a second factor and of a result.
    pub columns: usize,
}

impl Matrices {
    /// Factors of these shapes.
    ///
    /// # Errors
    /// When they have other than three dimensions, do not go together, are empty, or make more than
    /// [`MAX_PRODUCTS`].
    pub fn of(left: &[usize], right: &[usize]) -> Result<Self, OperatorError> {
        let &[parts, rows, inner] = left else {
            return Err(OperatorError::InputShape {
                expected: "(parts, rows, inner)".into(),
                found: left.to_vec(),
            });
        };
        let columns = match *right {
            [also, under, columns] if [also, under] == [parts, inner] => columns,
            _ => {
                return Err(OperatorError::InputShape {
                    expected: format!("({parts}, {inner}, columns) as the other input"),
                    found: right.to_vec(),
                });
            }
        };
        let matrices = Self {
            parts,
            rows,
            inner,
            columns,
        };
        for shape in [left, right, &matrices.shape()] {
            shape::elements(shape)?;
        }
        match matrices.products() {
            products if products <= MAX_PRODUCTS => Ok(matrices),
            products => Err(OperatorError::parameter(
                "the number of products of two values",
                products,
                format!("at most {MAX_PRODUCTS}"),
            )),
        }
    }

    /// Shape of the result.
    pub fn shape(&self) -> [usize; 3] {
        [self.parts, self.rows, self.columns]
    }

    /// Elements of each factor of a part.
    pub fn factors(&self) -> [usize; 2] {
        [self.rows * self.inner, self.inner * self.columns]
    }

    /// Products of two values.
    pub fn products(&self) -> usize {
        let Self {
            parts,
            rows,
            inner,
            columns,
        } = *self;
        [rows, inner, columns]
            .into_iter()
            .fold(parts, usize::saturating_mul)
    }

    /// The layer that has the first factor as weights, a group for each part, and the columns of
    /// the second as positions.
    pub(crate) fn layer(&self) -> ConvGeometry {
        ConvGeometry {
            in_channels: self.parts * self.inner,
            out_channels: self.parts * self.rows,
            input: [1, self.columns],
            window: Window::plain([1, 1]),
            groups: self.parts,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes_go_together() {
        let matrices = Matrices::of(&[3, 4, 5], &[3, 5, 2]).expect("they do");
        assert_eq!(matrices.shape(), [3, 4, 2]);
        assert_eq!(matrices.products(), 120);
        for (left, right) in [
            (&[4, 5][..], &[5, 2][..]),
            (&[3, 4, 5], &[3, 2, 5]),
            (&[3, 4, 5], &[2, 5, 2]),
            (&[3, 4, 5], &[3, 5]),
            (&[0, 4, 5], &[0, 5, 2]),
            (&[1, 1 << 13, 1 << 14], &[1, 1 << 14, 1]),
            (&[1, 1, usize::MAX], &[1, usize::MAX, 1]),
        ] {
            assert!(Matrices::of(left, right).is_err(), "{left:?} {right:?}");
        }
    }
}
