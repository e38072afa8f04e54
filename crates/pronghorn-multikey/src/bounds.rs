//! What a network's owner proves of it, for any input in range: how large values become, and what
//! becomes of errors. Public, in steps of a quarter of a bit.
//!
//! The noise of a result is a sum over the places where noise comes in. Each enters with a known
//! power, which follows from the primes alone ([`Bound`](crate::Bound)), and leaves multiplied by
//! the network's derivative there. The derivative depends on the input, so a bound on it over all
//! inputs is needed. By whoever has the weights it can be far tighter than from a layer's norms.
//!
//! # Values
//!
//! Slots are evaluated with intervals: exact for a layer, and for a square of each slot. Partial
//! sums beside the elements are among them.
//!
//! # Errors
//!
//! Let `J` be the derivative of the result by the elements of a value, and let these have errors
//! that are uncorrelated and of variance 1. The mean power of the result's errors is `|J|_F^2 / K`
//! for `K` elements of the result. Where some share a slot, they have one error and count once.
//! Where a ciphertext has elements in more of its slots than others have, they count as often as
//! there.
//! Backwards through the network:
//!
//! * Through a layer with matrix `L`: `|J L|_F <= |J|_F |L|_2`. The last layer's own norm is
//!   `|L|_F`, and its columns are kept, so that a square before it counts each element by itself.
//! * Through a square: `2 |x|` at its largest.
//! * Two ways from a value to the result: their norms add.
//!
//! The triangle inequality over elements, which takes the sum of a row's absolute weights for
//! `|L|_2`, is larger by a factor of 10 and more for a dense layer.
//!
//! Ciphertexts hold an element in several copies. Errors of copies are alike where folds have made
//! the copies, and apart where noise came in later. A layer reads one copy for each output, so apart
//! errors take the norm of the layer's matrix from slots to outputs.
//!
//! Where folds make sums that overlap in part (a period that is neither the ciphertext nor a
//! layout's), errors are in between, and the bound is by slots alone, and loose.
//!
//! Products of two errors are counted by taking every value [`SLACK`] larger than it is.
//! [`Bounds::sensitivity`] says how small noise must be for that.
//!
//! # Norms
//!
//! `|L|_2` is found by 184 steps of the power method from a random start. It is then at least
//! `sqrt(1 - 1/4)` of the true one but for a probability of `2^-64` over the start (J. Kuczyński, H.
//! Woźniakowski, SIAM J. Matrix Anal. Appl. 13, 1992, Theorem 4.1 (a)), and is taken larger by that.

mod gain;
mod norm;
mod walk;

use pronghorn_graph::polynomial::PolyGraph;
use serde::{Deserialize, Serialize};

use crate::{NetworkError, Program};
use gain::Gain;
use walk::Walk;

/// Most that an error may be, in units of values, for products of two errors to be covered.
pub const SLACK: f64 = 1.0 / 64.0;

/// Of a network in a program's places.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Bounds {
    /// One for each node.
    pub nodes: Vec<NodeBounds>,
    /// The largest error of any slot of any value, if no noise that enters exceeds 1: all must
    /// then be small enough that `sensitivity` times the largest is below [`SLACK`].
    pub sensitivity: f64,
}

/// Of the value of a node. Gains take the root of a power of noise, in units of values, to that of
/// the result: on average over its slots.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct NodeBounds {
    /// The largest magnitude of a slot, partial sums included.
    pub reach: f64,
    /// The gain of noise of the value, apart in each slot.
    pub slots: f64,
    /// Of a layer: the gain of noise that enters before the folds, of one slot.
    pub folded: f64,
    /// Of a layer: the gain of noise of the rotations of its input, each by itself.
    pub rotated: f64,
    /// Of a layer: the gain of the noise of its weights, each ciphertext by itself.
    pub weights: f64,
}

impl NodeBounds {
    fn fields(&self) -> [f64; 5] {
        [
            self.reach,
            self.slots,
            self.folded,
            self.rotated,
            self.weights,
        ]
    }
}

impl Bounds {
    /// Of a network with weights, at these places.
    ///
    /// # Errors
    /// When `graph` is not the program's network.
    pub fn of(program: &Program, graph: &PolyGraph) -> Result<Self, NetworkError> {
        let walk = Walk::new(program, graph)?;
        let gains = walk.gains();
        let node = |(index, gain): (usize, &Gain)| {
            let step = walk.steps[index].as_ref();
            NodeBounds {
                reach: rounded_up(walk.values[index].reach()),
                slots: rounded_up(gain.apart.total().sqrt()),
                folded: step.map_or(0.0, |step| rounded_up(step.folded(gain).sqrt())),
                rotated: step.map_or(0.0, |step| rounded_up(step.rotated(gain).sqrt())),
                weights: step.map_or(0.0, |step| rounded_up(step.weights(gain).sqrt())),
            }
        };
        Ok(Self {
            nodes: gains.iter().enumerate().map(node).collect(),
            sensitivity: rounded_up(walk.sensitivity),
        })
    }

    /// Refuses numbers that are no bounds, and another count of nodes.
    pub(crate) fn check(&self, nodes: usize) -> Result<(), NetworkError> {
        let all = self.nodes.iter().flat_map(NodeBounds::fields);
        let is_bound = |x: f64| x.is_finite() && x >= 0.0;
        if self.nodes.len() != nodes {
            return Err(NetworkError::Count {
                what: "bounds of nodes",
                found: self.nodes.len(),
                expected: nodes,
            });
        }
        if !all.chain([self.sensitivity]).all(is_bound) {
            return Err(NetworkError::Bounds);
        }
        Ok(())
    }

    /// Whether every number is at most another's.
    pub fn within(&self, other: &Self) -> bool {
        let pairs = self.nodes.iter().zip(&other.nodes);
        self.nodes.len() == other.nodes.len()
            && self.sensitivity <= other.sensitivity
            && pairs.into_iter().all(|(x, y)| {
                let fields = x.fields().into_iter().zip(y.fields());
                fields.into_iter().all(|(x, y)| x <= y)
            })
    }
}

/// To the next power of `2^(1/4)`, with room for the rounding of doubles.
fn rounded_up(x: f64) -> f64 {
    if x > 0.0 {
        ((4.0 * (x * (1.0 + 1e-9)).log2()).ceil() / 4.0).exp2()
    } else {
        0.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_rounded_up_to_quarters_of_a_bit() {
        for x in [1e-9, 0.3, 1.0, 1.5, 7e20] {
            let up = rounded_up(x);
            assert!(up >= x && up <= 1.2 * x, "{x} {up}");
            let quarters = 4.0 * up.log2();
            assert!((quarters - quarters.round()).abs() < 1e-9, "{x} {up}");
        }
        assert_eq!(rounded_up(0.0), 0.0);
    }
}
