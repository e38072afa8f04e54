//! The transform and the product by their definitions: quadratic, to read and to test against.

use crate::{Prime, Word};

/// The polynomial at `root^(2 r + 1)` for `r = 0, 1, ...` with bits reversed, by Horner's rule.
pub fn evaluate<W: Word>(q: &Prime<W>, root: W, coefficients: &[W]) -> Vec<W> {
    let n = coefficients.len();
    let log_n = n.trailing_zeros();
    (0..n)
        .map(|i| {
            let reversed = (i.reverse_bits() >> (usize::BITS - log_n)) as u64;
            let point = q.pow(root, 2 * reversed + 1);
            let quotient = q.shoup(point);
            let horner = |sum, &coefficient| q.add(q.mul_shoup(sum, point, quotient), coefficient);
            coefficients.iter().rev().fold(W::default(), horner)
        })
        .collect()
}

/// `x * y` modulo `X^n + 1`: `X^(i + j)` is `-X^(i + j - n)` from `n` on.
pub fn negacyclic_product<W: Word>(q: &Prime<W>, x: &[W], y: &[W]) -> Vec<W> {
    let n = x.len();
    let mut product = vec![W::default(); n];
    for (i, &x) in x.iter().enumerate() {
        for (j, &y) in y.iter().enumerate() {
            let term = q.mul(x, y);
            let place = (i + j) % n;
            product[place] = if i + j < n {
                q.add(product[place], term)
            } else {
                q.sub(product[place], term)
            };
        }
    }
    product
}
