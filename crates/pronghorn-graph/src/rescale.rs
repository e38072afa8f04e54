//! Values multiplied by factors that the layers around them take in.
//!
//! The layer that makes a value multiplies it, and the layers that read it divide by the same.
//! Between the two stand operators only that commute with it: ReLU, pools, sums and moves, and a
//! clip, whose bounds follow. So weights alone change, and the network computes the same.

mod equalise;
mod fill;

use std::{borrow::Cow, ops::Range};

use rayon::prelude::*;

pub use self::{equalise::equalise, fill::fill};
use crate::{
    graph::{Graph, Node, Op, Tensor},
    quantise::nearly_power,
    shape::channels,
};

/// The network with the channels of its values multiplied, and whether that changes it.
fn rescaled<'a>(graph: Cow<'a, Graph>, factors: &[Vec<f32>]) -> (Cow<'a, Graph>, bool) {
    let nodes = 0..graph.nodes.len();
    let changed: Vec<usize> = nodes
        .filter(|&node| changes(&graph, node, factors))
        .collect();
    if changed.is_empty() {
        return (graph, false);
    }
    let mut graph = graph.into_owned();
    changed
        .into_iter()
        .for_each(|node| rescale(&mut graph, node, factors));
    (Cow::Owned(graph), true)
}

/// What has a factor of its own, where the operators allow it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Unit {
    Channel,
    /// All channels of a value have one. Then a clip may follow, bounds and all.
    Value,
}

/// The channels of all values, in groups that have one factor.
struct Groups {
    /// The first channel of each value among all channels.
    first: Vec<usize>,
    /// A channel of the same group, nearer to its root; the root itself has its own place.
    parent: Vec<usize>,
    /// Whether the group of this root has the factor 1.
    is_fixed: Vec<bool>,
}

impl Groups {
    /// Groups by the operators between layers.
    fn of(graph: &Graph, unit: Unit) -> Self {
        let mut first = vec![0];
        for node in &graph.nodes {
            first.push(first[first.len() - 1] + channels(&node.shape).0);
        }
        let count = first[graph.nodes.len()];
        let mut groups = Self {
            first,
            parent: (0..count).collect(),
            is_fixed: vec![false; count],
        };
        for (index, node) in graph.nodes.iter().enumerate() {
            groups.add(graph, index, node, unit);
        }
        if unit == Unit::Value {
            (0..graph.nodes.len()).for_each(|value| groups.unite(value));
        }
        groups.fix([graph.output, graph.tail().0]);
        groups
    }

    /// What one operator asks of the channels that it reads and makes.
    fn add(&mut self, graph: &Graph, index: usize, node: &Node, unit: Unit) {
        let inputs = node.inputs.as_slice();
        let is_shared = node.op.tensors().any(|name| uses(graph, name) > 1);
        match &node.op {
            Op::Conv { .. } | Op::Dense { .. } if !is_shared => {}
            Op::Affine { mul: Some(mul), .. } if !is_shared && graph.data(mul).len() > 1 => {}
            // The summand follows the channel.
            Op::Affine { mul: None, .. } if !is_shared => self.tie(inputs[0], index, 0),
            Op::Relu
            | Op::Clip {
                min: Some(0.0),
                max: None,
            }
            | Op::LeakyRelu { .. }
            | Op::MaxPool { .. }
            | Op::AveragePool { .. }
            | Op::GlobalAveragePool
            | Op::Add => inputs.iter().for_each(|&input| self.tie(input, index, 0)),
            Op::Clip { .. } if unit == Unit::Value => self.tie(inputs[0], index, 0),
            Op::Pad { before, .. } => self.tie(inputs[0], index, before[0]),
            Op::Concat { axis: 0 } => {
                let mut at = 0;
                for &input in inputs {
                    self.tie(input, index, at);
                    at += self.channels(input).len();
                }
            }
            Op::Concat { .. } => inputs.iter().for_each(|&input| self.tie(input, index, 0)),
            Op::Transpose { permutation } if permutation.first() == Some(&0) => {
                self.tie(inputs[0], index, 0);
            }
            Op::Take { axis: 0, indices } => {
                let [from, to] = [inputs[0], index].map(|value| self.first[value]);
                let pairs = indices.iter().enumerate();
                pairs.for_each(|(at, &taken)| self.join(from + taken, to + at));
            }
            Op::Take { .. } => self.tie(inputs[0], index, 0),
            Op::Reshape => self.reshape(graph, inputs[0], index),
            _ => self.fix(inputs.iter().copied().chain([index])),
        }
    }

    /// The channels of a value.
    fn channels(&self, value: usize) -> Range<usize> {
        self.first[value]..self.first[value + 1]
    }

    /// Channels of `input` are those of `output` from its channel `at` on.
    fn tie(&mut self, input: usize, output: usize, at: usize) {
        let outputs = self.channels(output).skip(at);
        let pairs: Vec<_> = self.channels(input).zip(outputs).collect();
        pairs.into_iter().for_each(|(a, b)| self.join(a, b));
    }

    /// Channels of both shapes that hold an element in common are one group.
    fn reshape(&mut self, graph: &Graph, input: usize, output: usize) {
        let [from, to] = [input, output].map(|value| channels(&graph.nodes[value].shape));
        let mut element = 0;
        while element < from.0 * from.1 {
            let places = [(input, from.1), (output, to.1)];
            let [a, b] = places.map(|(value, length)| self.first[value] + element / length);
            self.join(a, b);
            let [x, y] = [from.1, to.1].map(|length| (element / length + 1) * length);
            element = x.min(y);
        }
    }

    /// Values whose channels keep their scale.
    fn fix(&mut self, values: impl IntoIterator<Item = usize>) {
        for value in values {
            for channel in self.channels(value) {
                let root = self.root(channel);
                self.is_fixed[root] = true;
            }
        }
    }

    /// All channels of a value are one group.
    fn unite(&mut self, value: usize) {
        let channels = self.channels(value);
        let first = channels.start;
        channels
            .skip(1)
            .for_each(|channel| self.join(first, channel));
    }

    fn join(&mut self, a: usize, b: usize) {
        let [a, b] = [self.root(a), self.root(b)];
        self.parent[b] = a;
        self.is_fixed[a] |= self.is_fixed[b];
    }

    fn root(&mut self, mut channel: usize) -> usize {
        while self.parent[channel] != channel {
            self.parent[channel] = self.parent[self.parent[channel]];
            channel = self.parent[channel];
        }
        channel
    }

    /// What `factor` has for the roots of the groups of all values' channels; 1 where these are
    /// fixed.
    fn of_channels(mut self, factor: impl Fn(usize) -> f32) -> Vec<Vec<f32>> {
        let values = 0..self.first.len() - 1;
        let of_channel = |groups: &mut Self, channel: usize| {
            let root = groups.root(channel);
            match groups.is_fixed[root] {
                true => 1.0,
                false => factor(root),
            }
        };
        let of_value = |value: usize| {
            let channels = self.channels(value);
            channels
                .map(|channel| of_channel(&mut self, channel))
                .collect()
        };
        values.map(of_value).collect()
    }
}

/// Nodes that read a tensor.
fn uses(graph: &Graph, name: &str) -> usize {
    let names = graph.nodes.iter().flat_map(|node| node.op.tensors());
    names.filter(|&other| other == name).count()
}

/// Whether factors of what an operator reads and makes change it.
fn changes(graph: &Graph, index: usize, factors: &[Vec<f32>]) -> bool {
    let Node { op, inputs, .. } = &graph.nodes[index];
    let values = inputs.first().into_iter().chain([&index]);
    let mut factors = values.flat_map(|&value| &factors[value]);
    (op.is_linear() || matches!(op, Op::Clip { .. })) && factors.any(|&factor| factor != 1.0)
}

/// Multiplies what an operator makes by the factors of its channels, and divides what it reads.
fn rescale(graph: &mut Graph, index: usize, factors: &[Vec<f32>]) {
    let Node { op, inputs, .. } = &graph.nodes[index];
    let (op, Some(&input)) = (op.clone(), inputs.first()) else {
        return;
    };
    let (columns, rows) = (&factors[input], &factors[index]);
    let channel = |at: usize, length: usize| at * rows.len() / length;
    let of_row = |at: usize, length: usize| rows[channel(at, length)];
    match op {
        Op::Conv {
            groups,
            weight,
            bias,
            ..
        } => {
            let columns_of = |row: usize| {
                let each = columns.len() / groups;
                &columns[row / (rows.len() / groups) * each..][..each]
            };
            scale_weights(graph, &weight, rows, columns_of);
            scale_tensor(graph, bias, of_row);
        }
        Op::Dense { weight, bias } => {
            scale_weights(graph, &weight, rows, |_| columns);
            scale_tensor(graph, bias, of_row);
        }
        Op::Affine { mul, add } => {
            repeat(graph, &add, rows.len());
            let both = |at: usize, length: usize| of_row(at, length) / columns[channel(at, length)];
            scale_tensor(graph, mul, both);
            scale_tensor(graph, add, of_row);
        }
        // All channels have one factor.
        Op::Clip { min, max } => {
            let [min, max] = [min, max].map(|bound| bound.map(|bound| scaled(bound, rows[0])));
            graph.nodes[index].op = Op::Clip { min, max };
        }
        _ => {}
    }
}

/// The product of a bound and a factor: a power of two, if it nearly is.
fn scaled(bound: f32, factor: f32) -> f32 {
    let scaled = bound * factor;
    match nearly_power(scaled.abs().into()) {
        Some(power) if factor != 1.0 => (power as f32).copysign(scaled),
        _ => scaled,
    }
}

/// Makes one constant of all channels one of each.
fn repeat(graph: &mut Graph, name: &Option<String>, channels: usize) {
    if let Some(name) = name
        && let Some(tensor) = graph.tensors.get_mut(name)
        && let &[constant] = tensor.data.as_slice()
    {
        *tensor = Tensor::new([channels], vec![constant; channels]);
    }
}

/// Multiplies a tensor: `factor` gets a place and the number of all.
fn scale_tensor(graph: &mut Graph, name: Option<String>, factor: impl Fn(usize, usize) -> f32) {
    if let Some(tensor) = name.and_then(|name| graph.tensors.get_mut(&name)) {
        let length = tensor.data.len();
        let places = tensor.data_mut().iter_mut().enumerate();
        places.for_each(|(at, x)| *x *= factor(at, length));
    }
}

/// Multiplies rows of weights, and divides their columns.
fn scale_weights<'a>(
    graph: &mut Graph,
    name: &str,
    rows: &[f32],
    columns_of: impl Fn(usize) -> &'a [f32] + Sync,
) {
    let Some(tensor) = graph.tensors.get_mut(name) else {
        return;
    };
    let row_len = (tensor.data.len() / rows.len()).max(1);
    let weights = tensor.data_mut().par_chunks_mut(row_len).enumerate();
    weights.zip(rows).for_each(|((at, row), &factor)| {
        let columns = columns_of(at);
        let each = (row_len / columns.len()).max(1);
        for (weights, &column) in row.chunks_mut(each).zip(columns) {
            let factor = factor / column;
            weights.iter_mut().for_each(|weight| *weight *= factor);
        }
    });
}
