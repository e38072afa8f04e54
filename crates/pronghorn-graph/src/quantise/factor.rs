//! Products of two values: how precise their factors are.

use super::{
    QuantiseError,
    builder::Builder,
    function::is_moved,
    scale::{MOST_FRACTION, Range, rounding_error},
};
use crate::{
    fixed::{ActivationOp, FixedOp},
    float::Profile,
    graph::{Graph, Op},
};

/// Factors of matrices have so many bits at least.
const FEWEST_BITS: u32 = 2;

/// What a [`super::PrecisionChooser`] is told about a factor of a product: its values on samples.
pub struct FactorProfile {
    /// The product's place in the graph.
    pub node: usize,
    /// With the margin.
    range: Range,
    /// Of the factor; of one of a normalisation the product's over that of the other factor.
    mean_square: f64,
}

impl FactorProfile {
    /// Of factor `input` of node `product`, whose other factor is `other`.
    ///
    /// An error of one factor is multiplied by the other. Small inverse roots stand beside large
    /// values, so their errors count over the product, and not over roots of a usual size.
    pub(super) fn new(
        (graph, profile): (&Graph, &Profile),
        (product, input, other): (usize, usize, usize),
        range: Range,
    ) -> Self {
        let mean_square = |value: usize| profile.values[value].mean_square;
        let is_root = |&value: &usize| {
            let op = &graph.nodes[value].op;
            matches!(op, Op::Function { function } if function.divides())
        };
        let is_scaled = graph.nodes[product].op == Op::Multiply;
        let normalises =
            is_scaled && [input, other].iter().any(is_root) && mean_square(other) > 0.0;
        Self {
            node: product,
            range,
            mean_square: match normalises {
                true => mean_square(product) / mean_square(other),
                false => mean_square(input),
            },
        }
    }

    /// Of value `node` where others than layers and products read it.
    pub(super) fn beside(profile: &Profile, node: usize, range: Range) -> Self {
        Self {
            node,
            range,
            mean_square: profile.values[node].mean_square,
        }
    }

    /// Estimated rms error of the factor in so many bits (2 to 24; clamped to that), over its rms,
    /// or in a normalisation over the product's. Errors of both factors add up like noise.
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
    /// A product of two values or matrices, each rounded before it.
    pub(super) fn product(
        &mut self,
        op: FixedOp,
        inputs: [usize; 2],
    ) -> Result<usize, QuantiseError> {
        let wanted = self.factors[self.current];
        let [left, right] = [0, 1].map(|place| (inputs[place], wanted[place]));
        let mut factors = vec![self.factor(left.0, left.1)?, self.factor(right.0, right.1)?];
        if !self.has_room(self.bounds(&op, &factors)?) {
            let most = self.options.most_bits - self.summed_bits(self.current);
            let bits = self.options.wide_bits.min(most / 2);
            factors = vec![
                self.rounded(inputs[0], bits)?,
                self.rounded(inputs[1], bits)?,
            ];
        }
        // The finer one first, by no more than it has to be.
        for _ in 0..2 {
            let fractions = [0, 1].map(|place| self.nodes[factors[place]].value.fraction_bits);
            let finer = usize::from(fractions[1] > fractions[0]);
            let most = (MOST_FRACTION - fractions[1 - finer]).max(MOST_FRACTION / 2);
            let range = self.ranges[inputs[finer]];
            if fractions[0] + fractions[1] > MOST_FRACTION {
                factors[finer] = self.no_finer(factors[finer], most, range)?;
            }
        }
        let fraction = |&factor: &usize| self.nodes[factor].value.fraction_bits;
        let fraction = factors.iter().map(fraction).sum();
        self.push(op, factors, fraction)
    }

    /// Bits that sums of a product of matrices have beyond its products, and 0 for other products.
    fn summed_bits(&self, product: usize) -> u32 {
        let node = &self.graph.nodes[product];
        match (&node.op, self.graph.nodes[node.inputs[0]].shape.last()) {
            (Op::MatMul, Some(inner)) => inner.next_power_of_two().ilog2(),
            _ => 0,
        }
    }

    /// The fraction bits of the factors of a product: of one of matrices from fewer bits than
    /// wanted where sums would not have room, or the values that they are added to. Each bit goes
    /// where the error is smaller, as errors of both factors add up like noise. So a factor of
    /// large and many small values, such as shares of a softmax, has more bits than the other.
    pub(super) fn with_room(
        &self,
        product: usize,
        factors: &[FactorProfile; 2],
        mut bits: [u32; 2],
    ) -> [i32; 2] {
        let fractions = |bits: [u32; 2]| [0, 1].map(|place| factors[place].fraction(bits[place]));
        if self.graph.nodes[product].op != Op::MatMul {
            return fractions(bits);
        }
        let most = self.options.most_bits - self.summed_bits(product);
        let finest = self.finest_beside(product);
        let has_room = |bits: [u32; 2]| {
            bits[0] + bits[1] <= most && fractions(bits).iter().sum::<i32>() <= finest
        };
        while !has_room(bits) {
            let errors = [0, 1].map(|place| factors[place].error(bits[place]));
            let least = usize::from(errors[1] < errors[0]);
            let Some(cut) = [least, 1 - least]
                .into_iter()
                .find(|&at| bits[at] > FEWEST_BITS)
            else {
                break;
            };
            bits[cut] -= 1;
        }
        fractions(bits)
    }

    /// The most fraction bits with which a value, and all that it is added to, fit in the bits that
    /// values have.
    pub(super) fn finest_beside(&self, index: usize) -> i32 {
        let adds = |op: &Op| {
            matches!(
                op,
                Op::Add | Op::Affine { mul: None, .. } | Op::MaxPool { .. }
            )
        };
        let sums = self.carriers(index, |op| is_moved(op) || adds(op));
        let ranges = sums.iter().zip(&self.ranges).filter(|(same, _)| **same);
        let fractions = ranges.map(|(_, range)| range.signed_fraction(self.options.most_bits));
        fractions.min().unwrap_or(MOST_FRACTION)
    }

    /// A square. Beside a product with that value it takes the product's factor: one rounding
    /// serves both.
    pub(super) fn square(&mut self, input: usize) -> Result<usize, QuantiseError> {
        let square = FixedOp::Activation(ActivationOp::Square);
        if let Some(wanted) = self.finest_factor(input) {
            let value = self.factor(input, wanted.min(MOST_FRACTION / 2))?;
            let value = self.no_finer(value, MOST_FRACTION / 2, self.ranges[input])?;
            if self.bounds(&square, &[value])?.fit().is_some() {
                let fraction = self.nodes[value].value.fraction_bits;
                return self.push(square, vec![value], 2 * fraction);
            }
        }
        self.widening(ActivationOp::Square, input)
    }

    /// A value at the precision of a factor. One that has been settled stays as it is, and so does
    /// one less its means, which were rounded.
    fn factor(&mut self, input: usize, wanted: i32) -> Result<usize, QuantiseError> {
        let place = self.place[input];
        if self.is_centred(input) && self.nodes[place].value.fraction_bits <= wanted {
            return Ok(place);
        }
        let wanted = match self.options.costly_requantisation && !self.is_wide(input) {
            true => wanted.max(self.nodes[place].value.fraction_bits),
            false => wanted,
        };
        self.requantise(place, wanted, self.ranges[input])
    }
}
