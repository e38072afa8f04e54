//! Values less their means, `x - mean(x)`, as normalisations take them before squares and products.
//!
//! The value is rounded first, to what the products want, and so is its mean. The difference is
//! then exact and as precise as a factor: no second change of precision of all elements. The sign
//! goes into the mean's factor, so that no layer multiplies it.

use super::{QuantiseError, builder::Builder};
use crate::{
    fixed::{ActivationOp, FixedOp, LocalOp},
    graph::{Graph, Op},
};

/// A value less its means.
pub(super) struct Centring {
    /// The value.
    value: usize,
    /// The first node on the way to the mean, which reads the value.
    first: usize,
    /// The mean.
    pool: usize,
    /// The mean with its sign.
    negated: usize,
    /// The factor, -1 where this is a difference.
    factor: f64,
    /// The node that reads the mean with its sign.
    broadcast: usize,
    /// The difference.
    difference: usize,
}

/// All centrings of a graph.
pub(super) fn all(graph: &Graph) -> Vec<Centring> {
    let uses = graph.uses();
    let differences = (1..graph.nodes.len()).filter_map(|index| Centring::of(graph, &uses, index));
    differences.collect()
}

impl Centring {
    fn of(graph: &Graph, uses: &[usize], difference: usize) -> Option<Self> {
        let node = &graph.nodes[difference];
        let factors = |&reader: &usize| match &graph.nodes[reader].op {
            Op::Square | Op::Multiply | Op::MatMul => true,
            _ => !graph.nodes[reader].inputs.contains(&difference),
        };
        if node.op != Op::Add || !(difference + 1..graph.nodes.len()).all(|at| factors(&at)) {
            return None;
        }
        let &[left, right] = node.inputs.as_slice() else {
            return None;
        };
        [(left, right), (right, left)]
            .into_iter()
            .find_map(|(value, mean)| Self::with(graph, uses, difference, value, mean))
    }

    /// The centring of `value` by adding `mean`, if that is one.
    fn with(
        graph: &Graph,
        uses: &[usize],
        difference: usize,
        value: usize,
        mean: usize,
    ) -> Option<Self> {
        // Back to the value: its mean, with a sign, repeated; each read once.
        let mut back = vec![difference, mean];
        // Of a flat value the mean may be that of the image before it.
        let before = match graph.nodes[value].op {
            Op::Reshape => graph.nodes[value].inputs[0],
            _ => value,
        };
        while let Some(&at) = back.last()
            && ![value, before].contains(&at)
        {
            let node = &graph.nodes[at];
            let passes = matches!(
                node.op,
                Op::Take { .. }
                    | Op::Affine { .. }
                    | Op::Reshape
                    | Op::Transpose { .. }
                    | Op::GlobalAveragePool
            );
            if !passes || uses[at] != 1 {
                return None;
            }
            back.push(node.inputs[0]);
        }
        let place = |is: fn(&Op) -> bool| {
            let mut found = (0..back.len()).filter(|&at| is(&graph.nodes[back[at]].op));
            let first = found.next()?;
            found.next().is_none().then_some(first)
        };
        let way = &back[1..back.len() - 1];
        let repeats = way
            .iter()
            .take_while(|&&at| matches!(graph.nodes[at].op, Op::Take { .. } | Op::Reshape));
        let negated = 1 + repeats.count();
        let pool = place(|op| *op == Op::GlobalAveragePool)?;
        let is_take = |&at: &usize| matches!(graph.nodes[at].op, Op::Take { .. });
        if back[negated..back.len() - 1].iter().any(is_take) || pool <= negated {
            return None;
        }
        Some(Self {
            value,
            first: back[back.len() - 2],
            pool: back[pool],
            negated: back[negated],
            factor: scalar(graph, back[negated])?,
            broadcast: back[negated - 1],
            difference,
        })
    }
}

/// The factor of an affine map that is 1 or -1 for all elements, without a summand. Another one
/// may be trained, and a plan tells the factors of its sums.
fn scalar(graph: &Graph, affine: usize) -> Option<f64> {
    match &graph.nodes[affine].op {
        Op::Affine {
            mul: Some(mul),
            add: None,
        } => match graph.data(mul) {
            &[factor] if factor.abs() == 1.0 => Some(factor.into()),
            _ => None,
        },
        _ => None,
    }
}

impl Builder<'_> {
    /// Rounds what the current node reads of a centring. The value that it reads, and the
    /// fixed-point value that stands for it elsewhere.
    pub(super) fn round_for_centring(&mut self) -> Result<Option<(usize, usize)>, QuantiseError> {
        let reads = self.centrings.iter().find_map(|centring| {
            let value = match self.current {
                at if at == centring.first => self.graph.nodes[at].inputs[0],
                at if at == centring.difference => centring.value,
                at if at == centring.broadcast => centring.negated,
                _ => return None,
            };
            Some((value, self.finest_factor(centring.difference)?))
        });
        let Some((value, fraction)) = reads else {
            return Ok(None);
        };
        let place = self.place[value];
        self.place[value] = self.requantise(place, fraction, self.ranges[value])?;
        Ok(Some((value, place)))
    }

    /// The factor of the current node, a mean, if it is that of a centring.
    pub(super) fn mean_factor(&self) -> Option<f64> {
        let means = self.centrings.iter().filter(|c| c.pool == self.current);
        means.map(|centring| centring.factor).next()
    }

    /// Whether the current node is a mean with its sign, which the mean has already.
    pub(super) fn is_negated_mean(&self) -> bool {
        self.centrings.iter().any(|c| c.negated == self.current)
    }

    /// Whether a value of the float graph is one less its means.
    pub(super) fn is_centred(&self, value: usize) -> bool {
        self.centrings.iter().any(|c| c.difference == value)
    }

    /// Whether sums of `value` may take all 32 bits: shares of a rounded value and of its square
    /// are exact.
    pub(super) fn is_exact(&self, value: usize) -> bool {
        let node = &self.nodes[value];
        match &node.op {
            FixedOp::Local(LocalOp::Reshape | LocalOp::Transpose { .. } | LocalOp::Pad { .. }) => {
                self.is_exact(node.inputs[0])
            }
            FixedOp::Activation(ActivationOp::Square) => true,
            FixedOp::Activation(ActivationOp::Requantise { .. }) => self.mean_factor().is_some(),
            _ => false,
        }
    }
}
