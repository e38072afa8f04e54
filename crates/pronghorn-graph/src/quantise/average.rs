//! Means over windows: sums, with integer factors where a count is not a power of two.

use super::{QuantiseError, builder::Builder};
use crate::{
    fixed::{FixedOp, LocalOp},
    geometry::Window,
};

/// Bits of the factors of an average, at worst and at best: a factor is off by up to half a unit,
/// the same way everywhere.
const AVERAGE_BITS: std::ops::RangeInclusive<u32> = 8..=10;

impl Builder<'_> {
    /// A mean over windows: a sum, with factors where a count is no power of two. The input is
    /// rounded as far as it must be.
    pub(super) fn average(
        &mut self,
        window: &Window,
        count_padding: bool,
        input: usize,
    ) -> Result<usize, QuantiseError> {
        let counts = self.counts(window, count_padding, input);
        let scale = self.mean_factor().unwrap_or(1.0);
        let wide = self.options.wide_bits;
        let mut first_error = None;
        let narrowest = wide / 4;
        for bits in [
            None,
            Some(wide),
            Some(wide * 3 / 4),
            Some(wide / 2),
            Some(narrowest),
        ] {
            let value = match bits {
                None => self.place[input],
                Some(bits) => self.rounded(input, bits.max(2))?,
            };
            for factor_bits in AVERAGE_BITS.rev() {
                let (multipliers, shift) = multipliers(&counts, scale, factor_bits);
                let op = FixedOp::Local(LocalOp::SumPool {
                    window: window.clone(),
                    multipliers,
                });
                let fraction = self.nodes[value].value.fraction_bits + shift;
                let last = bits == Some(narrowest) && factor_bits == *AVERAGE_BITS.start();
                let bounds = self.bounds(&op, &[value])?;
                let exact = self.is_exact(value) && bounds.fit().is_some();
                if !(last || exact || self.has_room(bounds)) {
                    continue;
                }
                match self.push(op, vec![value], fraction) {
                    Err(error @ QuantiseError::Overflow { .. }) => {
                        first_error.get_or_insert(error);
                    }
                    done => return done,
                }
            }
        }
        Err(first_error.unwrap_or_else(|| unreachable!("there is at least one attempt")))
    }

    /// What a pooling divides by at each position; one number where it is the same everywhere.
    fn counts(&self, window: &Window, count_padding: bool, input: usize) -> Vec<usize> {
        if count_padding || window.padding == [0; 4] {
            return vec![window.kernel[0] * window.kernel[1]];
        }
        let (shape, output) = (
            &self.graph.nodes[input].shape,
            &self.graph.nodes[self.current].shape,
        );
        let taps = |axis: usize, at: usize| window.taps(axis, at, shape[axis + 1]).len();
        let row = |y: usize| (0..output[2]).map(move |x| taps(0, y) * taps(1, x));
        let counts: Vec<usize> = (0..output[1]).flat_map(row).collect();
        if counts.iter().all(|&count| count == counts[0]) {
            vec![counts[0]]
        } else {
            counts
        }
    }
}

/// Integer factors that stand for `scale / count`, and the fraction bits they add. One power of two
/// and a sign need no factor; otherwise the factor of the largest count has about `bits` bits.
fn multipliers(counts: &[usize], scale: f64, bits: u32) -> (Vec<i32>, i32) {
    let largest = counts.iter().copied().max().unwrap_or(1);
    if counts.len() == 1 && largest.is_power_of_two() && scale.abs() == 1.0 {
        return (vec![scale as i32], largest.ilog2() as i32);
    }
    let shift = largest.ilog2() + bits;
    let factor = |&count: &usize| (f64::from(shift).exp2() * scale / count as f64).round() as i32;
    (counts.iter().map(factor).collect(), shift as i32)
}
