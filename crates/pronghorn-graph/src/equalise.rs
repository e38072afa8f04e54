//! Channels of a value brought to ranges alike, by powers of two.
//!
//! One scale serves all channels of a value, and one range bounds the sums of the layer that reads
//! it. A channel that is ten times as large as the others takes three bits from each of them. So
//! the layer that makes a value multiplies a small channel by a power of two, and the layers that
//! read it divide by the same. Between the two stand operators only that commute with it: ReLU,
//! pools, sums and moves. The network computes the same, bit for bit in floating point but for
//! subnormal numbers.
//!
//! Source: Nagel et al., "Data-Free Quantization Through Weight Equalization and Bias Correction",
//! ICCV 2019, section 4.1, here with powers of two and the ranges of activations, not of weights.

use std::ops::Range;

use rayon::prelude::*;

use crate::{
    graph::{Graph, Node, Op, Tensor},
    shape::channels,
};

/// A small channel stays this many bits below the largest, so that unseen inputs may move it.
const HEADROOM: i32 = 1;

/// A channel is multiplied by `2^MOST` at most.
const MOST: i32 = 6;

/// The network with channels multiplied, and `None` where none gains.
///
/// `peaks` has the largest magnitudes of the channels of each value ([`crate::float::peaks`]).
pub fn equalise(graph: &Graph, peaks: &[Vec<f32>]) -> Option<Graph> {
    let exponents = Groups::of(graph).exponents(peaks);
    let mut equal = graph.clone();
    let changed = (0..graph.nodes.len()).filter(|&index| scale(&mut equal, index, &exponents));
    (changed.count() > 0).then_some(equal)
}

/// The channels of all values, in groups that have one exponent.
struct Groups {
    /// The first channel of each value among all channels.
    first: Vec<usize>,
    /// A channel of the same group, nearer to its root; the root itself has its own place.
    parent: Vec<usize>,
    /// Whether the group of this root has the exponent 0.
    is_fixed: Vec<bool>,
}

impl Groups {
    /// Groups by the operators between layers.
    fn of(graph: &Graph) -> Self {
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
            groups.add(graph, index, node);
        }
        groups.fix([graph.output, graph.tail().0]);
        groups
    }

    /// What one operator asks of the channels that it reads and makes.
    fn add(&mut self, graph: &Graph, index: usize, node: &Node) {
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

    /// The exponent of each channel of each value: the most that keeps all of its group below the
    /// largest channels of their values. Where a group is always zero, nothing is known of it.
    fn exponents(mut self, peaks: &[Vec<f32>]) -> Vec<Vec<i32>> {
        const UNKNOWN: i32 = i32::MAX;
        let mut most = vec![UNKNOWN; self.parent.len()];
        for (value, peaks) in peaks.iter().enumerate() {
            let largest = peaks.iter().copied().fold(0.0, f32::max);
            for (channel, &peak) in self.channels(value).zip(peaks) {
                let root = self.root(channel);
                if peak > 0.0 {
                    let room = (f64::from(largest) / f64::from(peak)).log2().floor() as i32;
                    most[root] = most[root].min((room - HEADROOM).clamp(0, MOST));
                }
            }
        }
        let values = 0..peaks.len();
        let of_channel = |groups: &mut Self, channel: usize| {
            let root = groups.root(channel);
            match most[root] {
                UNKNOWN => 0,
                _ if groups.is_fixed[root] => 0,
                exponent => exponent,
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

/// Multiplies the rows and columns of a layer; says whether that changed it.
fn scale(graph: &mut Graph, index: usize, exponents: &[Vec<i32>]) -> bool {
    let Node { op, inputs, .. } = &graph.nodes[index];
    let (op, Some(&input)) = (op.clone(), inputs.first()) else {
        return false;
    };
    let (columns, rows) = (&exponents[input], &exponents[index]);
    if !op.is_linear() || columns.iter().chain(rows).all(|&exponent| exponent == 0) {
        return false;
    }
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
            let both = |at: usize, length: usize| of_row(at, length) - columns[channel(at, length)];
            scale_tensor(graph, mul, both);
            scale_tensor(graph, add, of_row);
        }
        _ => {}
    }
    true
}

/// Makes one constant of all channels one of each.
fn repeat(graph: &mut Graph, name: &Option<String>, channels: usize) {
    if let Some(name) = name
        && let Some(tensor) = graph.tensors.get_mut(name)
        && let &[constant] = tensor.data.as_slice()
    {
        *tensor = Tensor {
            shape: vec![channels],
            data: vec![constant; channels],
        };
    }
}

/// `2^exponent`, of at least -126 and at most 127: layers may have a factor for each weight.
fn power(exponent: i32) -> f32 {
    f32::from_bits(((127 + exponent) as u32) << 23)
}

/// Multiplies a tensor: `exponent` gets a place and the number of all.
fn scale_tensor(graph: &mut Graph, name: Option<String>, exponent: impl Fn(usize, usize) -> i32) {
    if let Some(tensor) = name.and_then(|name| graph.tensors.get_mut(&name)) {
        let length = tensor.data.len();
        let places = tensor.data.iter_mut().enumerate();
        places.for_each(|(at, x)| *x *= power(exponent(at, length)));
    }
}

/// Multiplies rows of weights, and divides their columns.
fn scale_weights<'a>(
    graph: &mut Graph,
    name: &str,
    rows: &[i32],
    columns_of: impl Fn(usize) -> &'a [i32] + Sync,
) {
    let Some(tensor) = graph.tensors.get_mut(name) else {
        return;
    };
    let row_len = (tensor.data.len() / rows.len()).max(1);
    let weights = tensor.data.par_chunks_mut(row_len).enumerate();
    weights.zip(rows).for_each(|((at, row), &exponent)| {
        let columns = columns_of(at);
        let each = (row_len / columns.len()).max(1);
        for (weights, &column) in row.chunks_mut(each).zip(columns) {
            let factor = power(exponent - column);
            weights.iter_mut().for_each(|weight| *weight *= factor);
        }
    });
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::float;

    /// Two dense layers of two channels with a ReLU between, whose channels are 1 and `small`.
    fn pair(small: f32, between: Op) -> Graph {
        let node = |name: &str, op, inputs: &[usize]| Node {
            name: name.to_owned(),
            op,
            inputs: inputs.to_vec(),
            shape: vec![2],
        };
        let dense = |weight: &str| Op::Dense {
            weight: weight.to_owned(),
            bias: Some("bias".to_owned() + weight),
        };
        let tensor = |shape: &[usize], data: &[f32]| Tensor {
            shape: shape.to_vec(),
            data: data.to_vec(),
        };
        Graph {
            name: "pair".to_owned(),
            nodes: vec![
                node("input", Op::Input, &[]),
                node("first", dense("a"), &[0]),
                node("between", between, &[1]),
                node("last", dense("b"), &[2]),
            ],
            output: 3,
            tensors: BTreeMap::from([
                ("a".to_owned(), tensor(&[2, 2], &[1.0, 0.0, 0.0, small])),
                ("biasa".to_owned(), tensor(&[2], &[0.0, small / 8.0])),
                ("b".to_owned(), tensor(&[2, 2], &[1.0, 3.0, -1.0, 5.0])),
                ("biasb".to_owned(), tensor(&[2], &[0.5, 0.25])),
            ]),
        }
    }

    fn equalised(graph: &Graph) -> Option<Graph> {
        let inputs = [1.0, 1.0, 0.5, 0.5];
        let peaks = float::peaks(graph, &inputs, 2).expect("two images");
        equalise(graph, &peaks)
    }

    #[test]
    fn small_channels_grow_and_their_readers_shrink() {
        // 1 beside 9/8 of 1/64: five bits, of which one stays free.
        let graph = pair(1.0 / 64.0, Op::Relu);
        let equal = equalised(&graph).expect("channels differ");
        assert_eq!(equal.data("a"), [1.0, 0.0, 0.0, 0.25]);
        assert_eq!(equal.data("biasa"), [0.0, 1.0 / 32.0]);
        assert_eq!(equal.data("b"), [1.0, 3.0 / 16.0, -1.0, 5.0 / 16.0]);
        assert_eq!(equal.data("biasb"), graph.data("biasb"));
        // The most is 6 bits, and channels within two bits stay.
        let far = equalised(&pair(1e-6, Op::Relu)).expect("channels differ");
        assert_eq!(far.data("b")[1], 3.0 / 64.0);
        assert!(equalised(&pair(0.3, Op::Relu)).is_none());
    }

    #[test]
    fn operators_with_a_scale_of_their_own_keep_it() {
        let six = Op::Clip {
            min: Some(0.0),
            max: Some(6.0),
        };
        assert!(equalised(&pair(1.0 / 64.0, six)).is_none());
        assert!(equalised(&pair(1.0 / 64.0, Op::Square)).is_none());
    }

    #[test]
    fn channels_that_are_always_zero_keep_their_scale() {
        let mut graph = pair(1.0 / 64.0, Op::Relu);
        for name in ["a", "biasa"] {
            let data = &mut graph.tensors.get_mut(name).expect("it is there").data;
            data.iter_mut().for_each(|x| *x = x.min(0.0));
        }
        assert!(equalised(&graph).is_none());
    }

    #[test]
    fn weights_of_several_layers_stay() {
        let mut graph = pair(1.0 / 64.0, Op::Relu);
        graph.nodes[3].op = graph.nodes[1].op.clone();
        assert!(equalised(&graph).is_none());
    }
}
