//! Dithered rounding: a value drops bits after an addend from `0..2^bits`, new for each value of
//! each run, and not after half a unit.
//!
//! `floor((x + a) / 2^bits)` with a uniform `a` is `x / 2^bits` on average (stochastic rounding). On shares this needs no message: each party drops the bits of its own share, and the
//! addend follows from the server's. Errors are larger: 0.41 units root mean square at all values
//! alike, where rounding to the nearest has 0.29.
//!
//! Shares of a layer's answer have small errors that depend on its weights. They are a part of what
//! is rounded here, where other protocols remove them. So only values that drop [`LEAST_DROPPED`]
//! bits or more are rounded so. Errors are below half a unit, so they move less than one value in
//! 64: one in 128 with the two guard bits of a single answer. The average is off by as much of the
//! new unit at most. The client is shown no such value: a layer that adds it to others comes before
//! the opening.

use super::{ActivationOp, FixedGraph, FixedNode, FixedOp, Interval, LocalOp, ValueSpec, scalar};

/// Bits that a value drops at least where it is rounded by a dither.
pub const LEAST_DROPPED: u32 = 5;

/// Where an addend is added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Number of the node among those that dither.
    pub node: usize,
    /// Number of the image.
    pub image: usize,
    /// Number of the element.
    pub element: usize,
}

/// The addends of a run.
pub trait Dither: Sync {
    /// The addend of a value that drops `shift` bits, in `0..=2^shift`; `None` where the run has
    /// another value there.
    fn addend(&self, place: Place, value: i32, shift: u32) -> Option<u32>;
}

/// Addends as random as any, and the same each time: for errors on samples.
#[derive(Clone, Copy, Debug)]
pub struct Alike;

impl Dither for Alike {
    fn addend(&self, place: Place, _value: i32, shift: u32) -> Option<u32> {
        let numbers = [place.node, place.image, place.element];
        let mixed = numbers
            .into_iter()
            .fold(0, |mixed, number| mix(mixed ^ number as u64));
        Some((mixed >> 33) as u32 & ((1 << shift) - 1))
    }
}

/// A step of SplitMix64 (Steele, Lea and Flood, OOPSLA 2014).
fn mix(x: u64) -> u64 {
    let x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

impl ActivationOp {
    /// Bits that values of a channel drop after an addend, if it is dithered rounding.
    pub fn dithered(&self) -> Option<&[u32]> {
        match self {
            Self::Dither { shifts } => Some(shifts),
            _ => None,
        }
    }
}

impl FixedGraph {
    /// The same network with dithered rounding, wherever the server's shares are uniform by
    /// themselves: right behind layers, and before others. `None` where a value would leave 32 bits.
    ///
    /// A chain of maxima, ReLUs and clips that ends in a change of precision begins with it then,
    /// and ends in a clip.
    #[must_use]
    pub fn with_dither(&self) -> Option<Self> {
        let ends = self.chain_ends();
        let mut made = Self {
            name: self.name.clone(),
            nodes: Vec::with_capacity(self.nodes.len()),
            output: 0,
            finish: self.finish.clone(),
        };
        // Where each node's value is, and the end of the chain that it is in.
        let mut places: Vec<usize> = Vec::with_capacity(self.nodes.len());
        let mut within: Vec<Option<usize>> = vec![None; self.nodes.len()];
        for (index, node) in self.nodes.iter().enumerate() {
            let mut next = node.clone();
            next.inputs
                .iter_mut()
                .for_each(|input| *input = places[*input]);
            within[index] = ends[index].or_else(|| {
                let before = within[*node.inputs.first()?];
                before.filter(|&end| end >= index)
            });
            if let Some(end) = ends[index] {
                next.inputs = vec![made.push_dither(next.inputs[0], &self.nodes[end])?];
            }
            if let Some(end) = within[index] {
                next.value.fraction_bits = self.nodes[end].value.fraction_bits;
            }
            match within[index] {
                Some(end) if end == index => next.op = FixedOp::Activation(clip(&node.op)?),
                Some(end) => round_bounds(&mut next.op, &shifts(&self.nodes[end].op)?),
                None => {}
            }
            places.push(made.push(next)?);
        }
        made.output = places[self.output];
        Some(made)
    }

    /// The change of precision that ends the chain which begins at a node, by node; where the chain
    /// reads values that shares hide.
    fn chain_ends(&self) -> Vec<Option<usize>> {
        let mut readers = vec![Vec::new(); self.nodes.len()];
        for (index, node) in self.nodes.iter().enumerate() {
            node.inputs
                .iter()
                .for_each(|&input| readers[input].push(index));
        }
        let (hidden, shown) = (self.hidden(), self.shown());
        let end = |index: usize| {
            let (mut at, mut clips) = (index, false);
            if !node_reads(&self.nodes[at], &hidden) {
                return None;
            }
            while let FixedOp::Activation(
                op
                @ (ActivationOp::Relu | ActivationOp::MaxPool { .. } | ActivationOp::Clip { .. }),
            ) = &self.nodes[at].op
            {
                clips |= matches!(op, ActivationOp::Clip { .. });
                at = match readers[at].as_slice() {
                    &[reader] if at != self.output => reader,
                    _ => return None,
                };
            }
            let shifts = shifts(&self.nodes[at].op)?;
            // Bounds of channels would differ.
            let is_one = shifts.len() == 1 || !clips;
            let are_large = shifts.iter().all(|&shift| shift >= LEAST_DROPPED);
            (is_one && are_large && !shown[at]).then_some(at)
        };
        (0..self.nodes.len()).map(end).collect()
    }

    /// Whether a value reaches the result without a layer that adds it to others, by node.
    fn shown(&self) -> Vec<bool> {
        let mut shown = vec![false; self.nodes.len()];
        shown[self.output] = true;
        for (index, node) in self.nodes.iter().enumerate().rev() {
            // A layer of one weight a value, as a scale, shows it.
            let layer = node.op.linear();
            let mixes = layer.is_some_and(|layer| layer.geometry.row_len() > 1);
            if shown[index] && !mixes {
                node.inputs.iter().for_each(|&input| shown[input] = true);
            }
        }
        shown
    }

    /// Whether the server's share of a value is uniform and new, by node: that of a layer's answer
    /// is its mask.
    fn hidden(&self) -> Vec<bool> {
        let mut hidden: Vec<bool> = Vec::with_capacity(self.nodes.len());
        for node in &self.nodes {
            let of = |place: usize| hidden[node.inputs[place]];
            hidden.push(match &node.op {
                FixedOp::Linear(_) => true,
                // Shares that are shifted up end in the server's constant.
                FixedOp::Constants(layer) => layer.shifts_alone() == Some(0) && of(0),
                FixedOp::Local(LocalOp::Add { left_shift }) => {
                    // Twice the same mask is even.
                    let differ = node.inputs[0] != node.inputs[1];
                    differ && (0..2).any(|place| left_shift[place] == 0 && of(place))
                }
                FixedOp::Local(LocalOp::Concat { left_shift, .. }) => {
                    let mut places = 0..left_shift.len();
                    places.all(|place| left_shift[place] == 0 && of(place))
                }
                FixedOp::Local(
                    LocalOp::Reshape | LocalOp::Transpose { .. } | LocalOp::Take { .. },
                ) => of(0),
                _ => false,
            });
        }
        hidden
    }

    /// Drops bits of value `input` as the change of precision `end` does.
    fn push_dither(&mut self, input: usize, end: &FixedNode) -> Option<usize> {
        let shifts = shifts(&end.op)?;
        self.push(FixedNode {
            name: end.name.clone(),
            op: FixedOp::Activation(ActivationOp::Dither { shifts }),
            inputs: vec![input],
            value: ValueSpec {
                shape: self.nodes[input].value.shape.clone(),
                ..end.value.clone()
            },
        })
    }

    /// Adds a node, with its range; its number.
    fn push(&mut self, mut node: FixedNode) -> Option<usize> {
        if node.op != FixedOp::Input {
            let range = self.bounds(&node).ok().and_then(Interval::fit)?;
            (node.value.low, node.value.high) = range;
        }
        self.nodes.push(node);
        Some(self.nodes.len() - 1)
    }
}

fn node_reads(node: &FixedNode, hidden: &[bool]) -> bool {
    node.inputs.first().is_some_and(|&input| hidden[input])
}

/// Bits that a change of precision drops, of all channels or of each; `None` for other operators.
fn shifts(op: &FixedOp) -> Option<Vec<u32>> {
    match op {
        FixedOp::Activation(ActivationOp::Requantise { shift, .. }) => Some(vec![*shift]),
        FixedOp::Activation(ActivationOp::RequantiseChannels { shifts, .. }) => {
            Some(shifts.clone())
        }
        _ => None,
    }
}

/// Brings the bounds of a clip to where they are after the first of these shifts.
fn round_bounds(op: &mut FixedOp, shifts: &[u32]) {
    if let (FixedOp::Activation(ActivationOp::Clip { low, high }), [shift, ..]) = (op, shifts) {
        for bound in [low, high] {
            *bound = scalar::requantise(*bound, *shift, i32::MIN, i32::MAX);
        }
    }
}

/// The bounds of a change of precision.
fn clip(op: &FixedOp) -> Option<ActivationOp> {
    match *op {
        FixedOp::Activation(
            ActivationOp::Requantise { low, high, .. }
            | ActivationOp::RequantiseChannels { low, high, .. },
        ) => Some(ActivationOp::Clip { low, high }),
        _ => None,
    }
}
