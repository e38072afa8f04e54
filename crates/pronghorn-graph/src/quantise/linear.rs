//! Layers of weights: as one layer of integers, or as two or three whose sums have fewer bits.
//!
//! A weight of `w` bits is `high 2^b + low` ([`Digit`](crate::fixed::Digit)), and `high` may be cut
//! again. The sums of the lowest digits are rounded before they are added to those above. So a layer
//! has the precision of its weights and inputs in words that one sum would exceed, for the cost of
//! another layer and another rounding each.

use super::{LowDigits, QuantiseError, builder::Builder};
use crate::{
    fixed::{FixedOp, Linear, LocalOp, ValueSpec},
    geometry::Window,
    graph::Op,
};

/// Bits below the unit of a layer's high digits that its low digits keep, at most.
const MOST_KEPT: u32 = 4;

/// Bits of the sums of high digits that leave room in 32 bits for one kept bit, for the carry of
/// the low digits, and for the guard bits that errors of shares then take.
pub const MOST_HIGH: u32 = 27;

/// The same for the sums of low digits, which are rounded at once.
pub const MOST_LOW: u32 = 30;

/// The same for the sums of digits between them, to which those of low ones are added before.
pub const MOST_MIDDLE: u32 = 29;

/// The scale of a layer's result.
pub(super) struct LayerScale {
    /// The node of the float graph.
    pub node: usize,
    /// Fraction bits, by channel.
    pub fractions: Vec<i32>,
    /// Bits by which its results are above those of the lowest digits, which come after it: 0 for
    /// these, and for whole weights.
    pub left_shift: u32,
    /// Whether its biases are thresholds or counts, which a correction would move.
    pub keeps_biases: bool,
}

/// Constants so many times as large as what they are added to leave it few digits.
const FAR: f64 = 256.0;

impl Builder<'_> {
    /// A layer of weights on the value `input`, brought to the layer's precision.
    pub(super) fn layer(&mut self, input: usize) -> Result<usize, QuantiseError> {
        let Some((layer, precision)) = self.layers[self.current].take() else {
            unreachable!("every layer that is needed has a precision")
        };
        let mut wanted = layer.input_fraction(precision);
        let reads_all = !self.is_wide(input) && !self.coarser.contains(&self.current);
        if self.options.costly_requantisation && reads_all {
            wanted = wanted.max(self.value(input).fraction_bits);
        }
        if self.is_far_smaller(input) {
            let finest = self.finest_beside(self.current);
            wanted = wanted.min(finest - precision.weight_bits as i32);
        }
        let value = self.requantise(self.place[input], wanted, layer.range())?;
        let fraction = self.nodes[value].value.fraction_bits;
        let (mut linear, results) = layer.integers(precision.weight_bits, fraction);
        let value = match self.is_negation() && precision.low.is_none() {
            true => {
                let weights = linear.weights.iter_mut();
                weights.for_each(|weight| *weight = weight.saturating_neg());
                self.negated(value)?
            }
            false => value,
        };
        let coarsest = results.iter().min().copied().unwrap_or(0);
        let place = match precision.low {
            None => {
                let keeps_biases = layer.keeps_biases();
                self.scales.push(LayerScale {
                    node: self.current,
                    fractions: results.clone(),
                    left_shift: 0,
                    keeps_biases,
                });
                let op = self.operator(linear, value);
                self.push(op, vec![value], coarsest)?
            }
            Some(low) => {
                let keeps_biases = layer.keeps_biases();
                self.in_digits(linear, value, (&results, coarsest, keeps_biases), low)?
            }
        };
        if results.iter().any(|&result| result > coarsest) {
            let finer = results.iter().map(|&result| (result - coarsest) as u32);
            self.finer.insert(place, finer.collect());
        }
        Ok(place)
    }

    /// A layer, or the addition of constants where the network has that alone. Trained weights that
    /// happen to be alike are none: a plan would tell it.
    fn operator(&self, linear: Linear, value: usize) -> FixedOp {
        let shape = &self.graph.nodes[self.current].shape;
        let is_alike = *shape == self.nodes[value].value.shape;
        let is_public = self.adds_constants() || self.is_negation();
        match is_public && is_alike && linear.shifts_alone().is_some() {
            true => FixedOp::Constants(linear),
            false => FixedOp::Linear(linear),
        }
    }

    /// Whether the current node adds constants that are far larger than what it makes of a value.
    fn is_far_smaller(&self, input: usize) -> bool {
        let Op::Affine { mul, add: Some(_) } = &self.graph.nodes[self.current].op else {
            return false;
        };
        let size = |name: &String| {
            let data = self.graph.tensors[name].data.iter();
            f64::from(data.fold(0f32, |most, x| most.max(x.abs())))
        };
        let by = mul.as_ref().map_or(1.0, size) * self.ranges[input].reach();
        self.ranges[self.current].reach() > FAR * by
    }

    fn adds_constants(&self) -> bool {
        let op = &self.graph.nodes[self.current].op;
        matches!(op, Op::Affine { mul: None, .. })
    }

    /// Whether the current node changes the sign of all values, and may add constants. Networks
    /// write this so for `1 - x`. Trained factors that are all -1 come as several.
    fn is_negation(&self) -> bool {
        match &self.graph.nodes[self.current].op {
            Op::Affine { mul: Some(mul), .. } => *self.graph.data(mul) == [-1.0],
            _ => false,
        }
    }

    /// A fixed-point value with the other sign: a sum of one place each, times -1.
    fn negated(&mut self, value: usize) -> Result<usize, QuantiseError> {
        let name = self.graph.nodes[self.current].name.clone();
        let ValueSpec {
            shape,
            fraction_bits,
            ..
        } = self.nodes[value].value.clone();
        let channels = shape.first().copied().unwrap_or(1);
        let image = vec![channels, shape.iter().skip(1).product(), 1];
        let sign = LocalOp::SumPool {
            window: Window::plain([1, 1]),
            multipliers: vec![-1],
        };
        let steps = [
            (LocalOp::Reshape, &image),
            (sign, &image),
            (LocalOp::Reshape, &shape),
        ];
        steps.into_iter().try_fold(value, |value, (op, shape)| {
            let op = FixedOp::Local(op);
            self.push_as(name.clone(), op, vec![value], shape.clone(), fraction_bits)
        })
    }

    /// A layer as several, of the digits of its weights.
    fn in_digits(
        &mut self,
        linear: Linear,
        value: usize,
        (results, coarsest, keeps_biases): (&[i32], i32, bool),
        LowDigits { count, bits }: LowDigits,
    ) -> Result<usize, QuantiseError> {
        let mut digits = Vec::new();
        let mut above = linear;
        for _ in 0..count {
            let [high, low] = above.in_two(bits);
            digits.push(low);
            above = high;
        }
        digits.push(above);
        let mut sums = Vec::new();
        for (below, digit) in (0..=count).rev().zip(digits.into_iter().rev()) {
            let left_shift = below * bits;
            self.scales.push(LayerScale {
                node: self.current,
                fractions: results.to_vec(),
                left_shift,
                keeps_biases,
            });
            let fraction = coarsest - left_shift as i32;
            sums.push(self.push(FixedOp::Linear(digit), vec![value], fraction)?);
        }
        let highest = sums[0];
        let mut upwards = sums.into_iter().rev();
        let lowest = upwards.next().unwrap_or(highest);
        upwards.try_fold(lowest, |below, digit| {
            let kept = match digit == highest {
                true => self.kept(digit, bits),
                // The sum is rounded next.
                false => 0,
            };
            self.above(digit, below, bits, kept)
        })
    }

    /// Sums of digits and of those below them, of `bits` bits each, which are rounded but for `kept`
    /// bits below the unit of the former.
    fn above(
        &mut self,
        digit: usize,
        below: usize,
        bits: u32,
        kept: u32,
    ) -> Result<usize, QuantiseError> {
        let rounded = self.dropped(below, bits - kept)?;
        let left_shift = [kept, 0];
        let fraction = self.nodes[digit].value.fraction_bits + kept as i32;
        let add = FixedOp::Local(LocalOp::Add { left_shift });
        self.push(add, vec![digit, rounded], fraction)
    }

    /// Bits below the unit of high digits that low ones, of `bits` bits, keep. Errors of shares
    /// grow with each, so that another one takes room for two.
    fn kept(&self, high: usize, bits: u32) -> u32 {
        let ValueSpec { low, high, .. } = self.nodes[high].value;
        let high_bits = 1 + low.unsigned_abs().max(high.unsigned_abs()).max(1).ilog2() + 1;
        let fits = |kept: &u32| high_bits + 2 * kept <= MOST_HIGH + 2;
        let all = (1..=bits.min(MOST_KEPT)).rev();
        all.into_iter().find(fits).unwrap_or(1)
    }
}
