//! Products of two values: how precise their factors are.

use super::{
    QuantiseError,
    builder::Builder,
    scale::{Range, rounding_error},
};
use crate::fixed::{ActivationOp, FixedOp};

/// What a [`super::PrecisionChooser`] is told about a factor of a product: its values on samples.
pub struct FactorProfile {
    /// The product's place in the graph.
    pub node: usize,
    /// With the margin.
    pub(super) range: Range,
    pub(super) mean_square: f64,
}

impl FactorProfile {
    /// Estimated rms error of the factor in so many bits (2 to 24; clamped to that), over its rms.
    /// Errors of both factors add up like noise.
    pub fn error(&self, bits: u32) -> f64 {
        match self.mean_square {
            0.0 => 0.0,
            _ => (rounding_error(self.fraction(bits)) / self.mean_square).sqrt(),
        }
    }

    pub(super) fn fraction(&self, bits: u32) -> i32 {
        self.range.fraction(bits.clamp(2, 24))
    }
}

impl Builder<'_> {
    /// A product of two values, each rounded before it. One of equal factors is a square.
    pub(super) fn product(&mut self, inputs: [usize; 2]) -> Result<usize, QuantiseError> {
        if inputs[0] == inputs[1] {
            return self.widening(ActivationOp::Square, inputs[0]);
        }
        let wanted = self.factors[self.current];
        let [left, right] = [0, 1].map(|place| (inputs[place], wanted[place]));
        let mut factors = vec![self.factor(left.0, left.1)?, self.factor(right.0, right.1)?];
        if !self.has_room(self.bounds(&FixedOp::Product, &factors)?) {
            let bits = self.options.wide_bits.min(self.options.most_bits / 2);
            factors = vec![
                self.rounded(inputs[0], bits)?,
                self.rounded(inputs[1], bits)?,
            ];
        }
        let fraction = |&factor: &usize| self.nodes[factor].value.fraction_bits;
        let fraction = factors.iter().map(fraction).sum();
        self.push(FixedOp::Product, factors, fraction)
    }

    /// A value at the precision of a factor. One that has been settled stays as it is.
    fn factor(&mut self, input: usize, wanted: i32) -> Result<usize, QuantiseError> {
        let place = self.place[input];
        let wanted = match self.options.costly_requantisation && !self.is_wide(input) {
            true => wanted.max(self.nodes[place].value.fraction_bits),
            false => wanted,
        };
        self.requantise(place, wanted, self.ranges[input])
    }
}
