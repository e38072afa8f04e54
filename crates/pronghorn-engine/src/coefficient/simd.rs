//! Sums of small weights times words in two halves, compiled at every SIMD level from one
//! definition.
#![allow(unsafe_code)] // calls of #[target_feature] functions after run-time detection

use pronghorn_ring::vectorised;

/// Outputs that are computed side by side.
const LANES: usize = 16;

vectorised! {
    /// `sums[o] = sum_t weights[t][first + o] column[t]` for both halves of a column: `weights` are
    /// `[tap][outputs]`. Sums of absolute values stay below 2^63.
    pub fn column(low: &[i32], high: &[i32], weights: &[i32], outputs: usize, first: usize, sum_low: &mut [i64], sum_high: &mut [i64]) {
        let count = sum_low.len();
        let whole = count / LANES * LANES;
        for at in (0..whole).step_by(LANES) {
            let (mut sums_low, mut sums_high) = ([0i64; LANES], [0i64; LANES]);
            for ((&low, &high), weights) in low.iter().zip(high).zip(weights.chunks_exact(outputs)) {
                let weights = &weights[first + at..first + at + LANES];
                for (sum, &weight) in sums_low.iter_mut().zip(weights) {
                    *sum += i64::from(low) * i64::from(weight);
                }
                for (sum, &weight) in sums_high.iter_mut().zip(weights) {
                    *sum += i64::from(high) * i64::from(weight);
                }
            }
            sum_low[at..at + LANES].copy_from_slice(&sums_low);
            sum_high[at..at + LANES].copy_from_slice(&sums_high);
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
