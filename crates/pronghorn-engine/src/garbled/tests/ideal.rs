//! The functionality of each protocol, in clear: a third party would compute this from what both
//! hand in.

use super::Layout;

/// A garbled step: `values` are `[element][image]`, and so is the result.
pub fn garbled(layout: &Layout, values: &[i64], function: impl Fn(&[i64]) -> i64) -> Vec<i64> {
    let images = layout.images;
    let mut result = vec![0; layout.outputs * images];
    for group in &layout.circuits.groups {
        let words = group.sources.len() / group.elements.len();
        for (place, element) in group.elements.iter().enumerate() {
            for image in 0..images {
                let sources = (place * words..).take(words);
                let window: Vec<i64> = sources
                    .map(|source| group.sources.get(source) * images + image)
                    .map(|value| values[value] + layout.circuits.offset)
                    .collect();
                result[element * images + image] = function(&window);
            }
        }
    }
    result
}

/// Squares, modulo `2^bits` and centred.
pub fn squares(values: &[i64], bits: u32) -> Vec<i64> {
    let centred = |x: i64| x << (64 - bits) >> (64 - bits);
    values.iter().map(|&x| centred(x.wrapping_mul(x))).collect()
}

/// Products of these elements of two values, modulo `2^bits` and centred; values and products are
/// `[element][image]`.
pub fn products(
    [left, right]: [&[i64]; 2],
    pairs: &[[usize; 2]],
    images: usize,
    bits: u32,
) -> Vec<i64> {
    let centred = |x: i64| x << (64 - bits) >> (64 - bits);
    let image = |&[l, r]: &[usize; 2]| {
        (0..images).map(move |image| {
            centred(left[l * images + image].wrapping_mul(right[r * images + image]))
        })
    };
    pairs.iter().flat_map(image).collect()
}

/// Products of matrices, part by part, modulo `2^bits` and centred; values are `[element][image]`.
pub fn matrices(
    [left, right]: [&[i64]; 2],
    [parts, rows, inner, columns]: [usize; 4],
    images: usize,
    bits: u32,
) -> Vec<i64> {
    let mut result = Vec::new();
    for part in 0..parts {
        for (row, column) in (0..rows).flat_map(|row| (0..columns).map(move |column| (row, column)))
        {
            for image in 0..images {
                let term = |step: usize| {
                    let left = left[((part * rows + row) * inner + step) * images + image];
                    let right = right[((part * inner + step) * columns + column) * images + image];
                    left.wrapping_mul(right)
                };
                let sum = (0..inner).map(term).fold(0, i64::wrapping_add);
                result.push(sum << (64 - bits) >> (64 - bits));
            }
        }
    }
    result
}
