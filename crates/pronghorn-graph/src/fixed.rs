//! The fixed-point graph: the same network over the integers, with proven ranges.
//!
//! A value `v` with `fraction_bits = f` stands for the real number `v / 2^f`. Scales are powers
//! of two so that every activation protocol can truncate by dropping bits.

mod argmax;
mod bounds;
mod display;
pub mod dither;
mod product;
pub mod scalar;
mod table;
mod validate;

use rayon::prelude::*;
use serde::{Deserialize, Serialize};

pub use argmax::bounds as argmax_bounds;
pub use bounds::Interval;
pub use display::least_and_most;
pub use product::{bounds as product_bounds, matrix_bounds as matrix_product_bounds};
pub use table::{MAX_ENTRIES, MAX_FINE, Table};
pub use validate::FixedError;

use crate::{
    finish::{Finish, ends_in_class},
    geometry::{ConvGeometry, Window},
    matrices::Matrices,
};

/// A network over the integers. Node `i` makes value `i`; inputs of a node come before it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct FixedGraph {
    /// The model's name, for messages.
    pub name: String,
    /// Nodes in topological order; the first is the only [`FixedOp::Input`].
    pub nodes: Vec<FixedNode>,
    /// The value that is the result, before `finish`.
    pub output: usize,
    /// The client's operations on the result, in floating point.
    pub finish: Vec<Finish>,
}

impl FixedGraph {
    /// Shape, scale and range of the input.
    pub fn input(&self) -> &ValueSpec {
        &self.nodes[0].value
    }

    /// Shape, scale and range of the result, before `finish`.
    pub fn result(&self) -> &ValueSpec {
        &self.nodes[self.output].value
    }

    /// Whether the client's last operation is the index of the largest value.
    pub fn ends_in_argmax(&self) -> bool {
        ends_in_class(&self.finish, self.result().len())
    }

    /// The network that computes this index itself, from the result's integers. The operations
    /// before it leave the order of values.
    #[must_use]
    pub fn with_class(mut self) -> Self {
        let classes = self.result().len();
        self.nodes.push(FixedNode {
            name: "class".into(),
            op: FixedOp::ArgMax,
            inputs: vec![self.output],
            value: ValueSpec {
                shape: vec![1],
                fraction_bits: 0,
                low: 0,
                high: i32::try_from(classes).unwrap_or(i32::MAX) - 1,
            },
        });
        self.output = self.nodes.len() - 1;
        self.finish = vec![Finish::Class];
        self
    }

    /// Multiplications by weights and of matrices that one image takes.
    pub fn multiply_adds(&self) -> u64 {
        let of = |node: &FixedNode| match &node.op {
            FixedOp::Linear(linear) | FixedOp::Constants(linear) => linear.geometry.multiply_adds(),
            FixedOp::MatMul => {
                let [left, right] = [0, 1].map(|at| &self.nodes[node.inputs[at]].value.shape);
                Matrices::of(left, right).map_or(0, |matrices| matrices.products() as u64)
            }
            _ => 0,
        };
        self.nodes.iter().map(of).sum()
    }
}

/// One integer operator with the range it is proven to stay in.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct FixedNode {
    /// The node of the model it comes from, for messages.
    pub name: String,
    /// The operator.
    pub op: FixedOp,
    /// Values it reads.
    pub inputs: Vec<usize>,
    /// Shape and range of the value it makes.
    pub value: ValueSpec,
}

/// Shape, scale and proven range of a value.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ValueSpec {
    /// Shape without the batch dimension.
    pub shape: Vec<usize>,
    /// The integer `v` stands for `v / 2^fraction_bits`.
    pub fraction_bits: i32,
    /// Smallest integer it can be, for any input.
    pub low: i32,
    /// Largest integer it can be, for any input.
    pub high: i32,
}

impl ValueSpec {
    /// Elements of one image's value.
    pub fn len(&self) -> usize {
        self.shape.iter().product()
    }

    /// True if it has no elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes of the distance of an integer to the smallest: 1, 2 or 4.
    pub fn distance_bytes(&self) -> usize {
        match self.high.abs_diff(self.low) {
            0..=0xff => 1,
            0x100..=0xffff => 2,
            _ => 4,
        }
    }
}

/// Integer operators. All values fit in 32 bits; the passes refuse a graph where one would not.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum FixedOp {
    /// The input, quantised by its owner: `round_half_up(x * 2^f)`, then clamped to its range.
    Input,
    /// Secret weights: the work of a linear engine.
    Linear(Linear),
    /// Done by each party on its own share.
    Local(LocalOp),
    /// Done by an activation protocol.
    Activation(ActivationOp),
    /// `inputs[0] * inputs[1]`, either broadcast along dimensions where it has size 1. Fraction
    /// bits add up.
    Product,
    /// `inputs[0] (P, M, K)` times `inputs[1] (P, K, N)`, for each of `P` parts. Fraction bits add
    /// up.
    MatMul,
    /// The index of the largest of all values, the smallest of equal ones: a value of shape `[1]`
    /// without fraction bits.
    ArgMax,
    /// A layer whose network adds constants and does nothing else ([`Linear::shifts_alone`]), so that
    /// no weight of its own shows in that.
    Constants(Linear),
}

impl FixedOp {
    /// The layer, if it is one.
    pub fn linear(&self) -> Option<&Linear> {
        match self {
            Self::Linear(linear) | Self::Constants(linear) => Some(linear),
            _ => None,
        }
    }
}

/// A convolution with integer weights and bias (the bias at the output's scale).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Linear {
    /// Sizes.
    pub geometry: ConvGeometry,
    /// `(out_channels, in_channels/groups, kernel_h, kernel_w)`, row-major, `|w| < 2^15`.
    pub weights: Vec<i16>,
    /// One an output channel.
    pub bias: Vec<i32>,
}

impl Linear {
    /// Bits by which the layer shifts its input up, where it does nothing else but add its bias: all
    /// weights are one power of two, and each output has its own input.
    pub fn shifts_alone(&self) -> Option<u32> {
        let ConvGeometry {
            in_channels,
            out_channels,
            window,
            groups,
            ..
        } = &self.geometry;
        let is_apart = groups == in_channels && in_channels == out_channels && window.is_point();
        let &first = self.weights.first()?;
        let are_alike = first > 0 && first.count_ones() == 1;
        let is_first = |&weight: &i16| weight == first;
        (is_apart && are_alike && self.weights.iter().all(is_first)).then(|| first.trailing_zeros())
    }
}

/// A part of an integer, by which a layer can be cut into two with smaller weights:
/// `weight = high * 2^bits + low`, `-2^(bits-1) <= low < 2^(bits-1)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Digit {
    /// All of it.
    Whole,
    /// `high`, for a low digit of so many bits.
    High(u32),
    /// `low`, of so many bits.
    Low(u32),
    /// A digit above the lowest ones.
    Middle {
        /// Digits below it.
        below: u32,
        /// Bits of each, and of it.
        bits: u32,
    },
    /// All above the lowest digits.
    Top {
        /// Digits below it.
        below: u32,
        /// Bits of each.
        bits: u32,
    },
}

impl Digit {
    /// This part of an integer. A call for each weight would take longer than the rest.
    #[inline(always)]
    pub fn of(self, integer: i32) -> i32 {
        match self {
            Self::Whole => integer,
            // Rounded to the nearest, the upper of two.
            Self::High(bits) => (integer >> bits) + (integer >> (bits - 1) & 1),
            // The sign is the highest of its bits.
            Self::Low(bits) => integer << (i32::BITS - bits) >> (i32::BITS - bits),
            Self::Middle { below, bits } => {
                Self::Low(bits).of(Self::Top { below, bits }.of(integer))
            }
            Self::Top { below, bits } => {
                (0..below).fold(integer, |integer, _| Self::High(bits).of(integer))
            }
        }
    }

    /// This part of a weight. Parts of `|w| < 2^15` are no larger.
    #[inline(always)]
    fn of_short(self, weight: i16) -> i16 {
        self.of(weight.into()) as i16
    }

    /// Bits by which results of this part are shifted up before parts are added.
    pub fn left_shift(self) -> u32 {
        match self {
            Self::Whole | Self::Low(_) => 0,
            Self::High(bits) => bits,
            Self::Middle { below, bits } | Self::Top { below, bits } => below * bits,
        }
    }

    /// An integer cut into `count` digits, the highest first, all but that of so many bits.
    pub fn cut(count: usize, bits: u32) -> impl Iterator<Item = Self> {
        (0..count as u32).rev().map(move |place| match place {
            _ if count == 1 => Self::Whole,
            0 => Self::Low(bits),
            1 if count == 2 => Self::High(bits),
            below if below as usize + 1 == count => Self::Top { below, bits },
            below => Self::Middle { below, bits },
        })
    }
}

/// Integers that a thread cuts at a time.
const ROW: usize = 1 << 12;

impl Linear {
    /// The layer with this part of every weight and bias. Results of the parts, shifted up by their
    /// [`Digit::left_shift`], add up to the layer's result.
    pub fn digit(&self, digit: Digit) -> Self {
        let mut weights = vec![0; self.weights.len()];
        let pairs = weights.par_chunks_mut(ROW);
        // In plain loops, which the compiler keeps in vectors.
        pairs
            .zip(self.weights.par_chunks(ROW))
            .for_each(|(parts, weights)| {
                let pairs = parts.iter_mut().zip(weights);
                pairs.for_each(|(part, &weight)| *part = digit.of_short(weight));
            });
        Self {
            geometry: self.geometry.clone(),
            weights,
            bias: self.bias.iter().map(|&bias| digit.of(bias)).collect(),
        }
    }

    /// The layers of the high digits and of the low ones, of so many bits: [`Linear::digit`] of
    /// both in one pass, the low ones in the memory of the whole.
    pub fn in_two(mut self, bits: u32) -> [Self; 2] {
        let [upper, lower] = [Digit::High(bits), Digit::Low(bits)];
        let mut high = vec![0; self.weights.len()];
        let pairs = high.par_chunks_mut(ROW);
        pairs
            .zip(self.weights.par_chunks_mut(ROW))
            .for_each(|(high, low)| {
                for (high, low) in high.iter_mut().zip(low) {
                    (*high, *low) = (upper.of_short(*low), lower.of_short(*low));
                }
            });
        let of = |digit: Digit| self.bias.iter().map(|&bias| digit.of(bias)).collect();
        let high = Self {
            geometry: self.geometry.clone(),
            weights: high,
            bias: of(upper),
        };
        self.bias = of(lower);
        [high, self]
    }
}

/// Linear operators with public constants: additive shares go through them without a message.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LocalOp {
    /// `(inputs[0] << left_shift[0]) + (inputs[1] << left_shift[1])`: scales made equal.
    Add {
        /// Bits by which each input is shifted up.
        left_shift: [u32; 2],
    },
    /// Sum over the window of each channel (padding is zero), times `multipliers[position]`,
    /// `position` running over the output's `(height, width)`; one entry stands for all.
    SumPool {
        /// The window.
        window: Window,
        /// Integer factors, one or more, none of them 0.
        multipliers: Vec<i32>,
    },
    /// The same values in another shape.
    Reshape,
    /// Zeros around.
    Pad {
        /// Zeros before, a dimension.
        before: Vec<usize>,
        /// Zeros after, a dimension.
        after: Vec<usize>,
    },
    /// Concatenation along `axis`, each input shifted up to the common scale.
    Concat {
        /// The dimension.
        axis: usize,
        /// Bits by which each input is shifted up.
        left_shift: Vec<u32>,
    },
    /// Output dimension `d` is input dimension `permutation[d]`.
    Transpose {
        /// The permutation.
        permutation: Vec<usize>,
    },
    /// Place `i` along `axis` is the input's place `indices[i]`.
    Take {
        /// The dimension.
        axis: usize,
        /// Places of the input, in any order, each any number of times.
        indices: Vec<usize>,
    },
}

/// Non-linear operators.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ActivationOp {
    /// `max(x, 0)`.
    Relu,
    /// `min(max(x, low), high)` at the input's scale.
    Clip {
        /// Lower bound.
        low: i32,
        /// Upper bound.
        high: i32,
    },
    /// `x << shift` where `x >= 0`, else `x * slope`: the slope is `slope / 2^shift`.
    LeakyRelu {
        /// Integer slope below zero.
        slope: i32,
        /// Bits gained by the scale.
        shift: u32,
    },
    /// `x * x`.
    Square,
    /// Maximum over the window of each channel; padding never wins.
    MaxPool {
        /// The window.
        window: Window,
    },
    /// `clamp((x + 2^(shift-1)) >> shift, low, high)` (arithmetic shift, so halves round up;
    /// `shift = 0` only clamps): brings a value to the precision of the next linear step.
    Requantise {
        /// Bits dropped.
        shift: u32,
        /// Lower bound of the result.
        low: i32,
        /// Upper bound of the result.
        high: i32,
    },
    /// The same with a shift for each channel, the first dimension: rows of weights have scales of
    /// their own, and this brings their results to one scale.
    RequantiseChannels {
        /// Bits dropped, a channel.
        shifts: Vec<u32>,
        /// Lower bound of the result.
        low: i32,
        /// Upper bound of the result.
        high: i32,
    },
    /// A smooth function, at a precision that stands before it.
    Table(Table),
    /// `(x + a) >> shift` with an addend `a` in `0..=2^shift`, new for each value of each run
    /// ([`dither`]); the largest only where shares have errors. Without addends as
    /// [`ActivationOp::Requantise`], unclamped.
    Dither {
        /// Bits dropped, 1 or more: one number for all channels, or one for each.
        shifts: Vec<u32>,
    },
}

#[cfg(test)]
mod tests {
    use super::Digit;

    #[test]
    fn all_digits_add_up() {
        for (count, bits) in [(1, 7), (2, 5), (3, 4), (4, 3), (4, 7)] {
            for integer in [-32_767, -129, -1, 0, 1, 7, 128, 12_345, 32_767] {
                let digits: Vec<Digit> = Digit::cut(count, bits).collect();
                assert_eq!(digits.len(), count);
                let sum: i64 = digits
                    .iter()
                    .map(|digit| i64::from(digit.of(integer)) << digit.left_shift())
                    .sum();
                assert_eq!(sum, i64::from(integer), "{count} digits of {bits} bits");
                let low = digits[1..].iter().map(|digit| digit.of(integer));
                let half = 1 << (bits - 1);
                assert!(low.into_iter().all(|low| (-half..half).contains(&low)));
            }
        }
    }

    #[test]
    fn digits_add_up() {
        for bits in 1..16 {
            for integer in [i32::MIN, -32_767, -129, -1, 0, 1, 7, 128, 12_345, i32::MAX] {
                let [high, low] =
                    [Digit::High(bits), Digit::Low(bits)].map(|digit| digit.of(integer));
                assert_eq!(
                    (i64::from(high) << bits) + i64::from(low),
                    i64::from(integer)
                );
                assert!((-(1 << (bits - 1))..1 << (bits - 1)).contains(&low));
            }
        }
    }
}
