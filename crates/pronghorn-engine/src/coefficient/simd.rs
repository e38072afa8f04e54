//! Sums of small weights times words in two halves, compiled at every SIMD level from one definition.
#![allow(unsafe_code)] // calls of #[target_feature] functions after run-time detection

use pronghorn_ring::vectorised;

/// Columns, or outputs, that are computed side by side.
pub const LANES: usize = 16;

/// Outputs that share what is loaded of a column.
const OUTPUTS: usize = 4;

/// Sums of low and of high halves.
type Sums<'a> = (&'a mut [i64], &'a mut [i64]);

vectorised! {
    /// `sums[o][x] = sum_t weights[t][o] columns[t][x]` for both halves: `columns` are `[tap][width]`, `width` a multiple of [`LANES`], `weights`
    /// `[tap][outputs]`, the sums `[output][width]`. Sums of absolute values stay below 2^63.
    pub fn columns(low: &[i32], high: &[i32], width: usize, weights: &[i32], outputs: usize, sum_low: &mut [i64], sum_high: &mut [i64]) {
        let whole = outputs / OUTPUTS * OUTPUTS;
        for x in (0..width).step_by(LANES) {
            for first in (0..whole).step_by(OUTPUTS) {
                block::<OUTPUTS>((low, high), (width, x), weights, (outputs, first), (sum_low, sum_high));
            }
            for first in whole..outputs {
                block::<1>((low, high), (width, x), weights, (outputs, first), (sum_low, sum_high));
            }
        }
    }
}

/// Some outputs at [`LANES`] columns.
#[inline(always)]
fn block<const OUTPUTS: usize>(
    (low, high): (&[i32], &[i32]),
    (width, x): (usize, usize),
    weights: &[i32],
    (outputs, first): (usize, usize),
    (sum_low, sum_high): Sums<'_>,
) {
    let mut sums = [[[0i64; LANES]; 2]; OUTPUTS];
    let rows = low.chunks_exact(width).zip(high.chunks_exact(width));
    for ((low, high), weights) in rows.zip(weights.chunks_exact(outputs)) {
        let (low, high) = (&low[x..x + LANES], &high[x..x + LANES]);
        for (sum, &weight) in sums.iter_mut().zip(&weights[first..first + OUTPUTS]) {
            for lane in 0..LANES {
                sum[0][lane] += i64::from(low[lane]) * i64::from(weight);
            }
            for lane in 0..LANES {
                sum[1][lane] += i64::from(high[lane]) * i64::from(weight);
            }
        }
    }
    for (output, sum) in sums.iter().enumerate() {
        let at = (first + output) * width + x;
        sum_low[at..at + LANES].copy_from_slice(&sum[0]);
        sum_high[at..at + LANES].copy_from_slice(&sum[1]);
    }
}

vectorised! {
    /// The same for one column, `[tap]`: outputs `first..first + sum_low.len()`, at most [`LANES`] at a time side by side.
    pub fn column(low: &[i32], high: &[i32], weights: &[i32], outputs: usize, first: usize, sum_low: &mut [i64], sum_high: &mut [i64]) {
        let count = sum_low.len();
        let whole = count / LANES * LANES;
        for at in (0..whole).step_by(LANES) {
            let mut sums = [[0i64; LANES]; 2];
            for ((&low, &high), weights) in low.iter().zip(high).zip(weights.chunks_exact(outputs)) {
                let weights = &weights[first + at..first + at + LANES];
                for lane in 0..LANES {
                    sums[0][lane] += i64::from(low) * i64::from(weights[lane]);
                    sums[1][lane] += i64::from(high) * i64::from(weights[lane]);
                }
            }
            sum_low[at..at + LANES].copy_from_slice(&sums[0]);
            sum_high[at..at + LANES].copy_from_slice(&sums[1]);
        }
        for at in whole..count {
            let taps = low.iter().zip(high).zip(weights.chunks_exact(outputs));
            let sum = taps.fold([0i64; 2], |sum, ((&low, &high), weights)| {
                let weight = i64::from(weights[first + at]);
                [sum[0] + i64::from(low) * weight, sum[1] + i64::from(high) * weight]
            });
            [sum_low[at], sum_high[at]] = sum;
        }
    }
}
