//! Channels of a value brought to ranges alike, by powers of two.
//!
//! One scale serves all channels of a value, and one range bounds the sums of the layer that reads
//! it. A channel that is ten times as large as the others takes three bits from each of them. So
//! small channels are multiplied by powers of two. The network computes the same, bit for bit in
//! floating point but for subnormal numbers.
//!
//! Source: Nagel et al., "Data-Free Quantization Through Weight Equalization and Bias Correction",
//! ICCV 2019, section 4.1, here with powers of two and the ranges of activations, not of weights.

use std::borrow::Cow;

use super::{Groups, Unit, rescaled};
use crate::graph::Graph;

/// A small channel stays this many bits below the largest, so that unseen inputs may move it.
const HEADROOM: i32 = 1;

/// A channel is multiplied by `2^MOST` at most.
const MOST: i32 = 6;

/// The network with channels multiplied, and `None` where none gains.
///
/// `peaks` has the largest magnitudes of the channels of each value ([`crate::float::peaks`]).
pub fn equalise(graph: &Graph, peaks: &[Vec<f32>]) -> Option<Graph> {
    let mut groups = Groups::of(graph, Unit::Channel);
    let exponents = exponents(&mut groups, peaks);
    let factors = groups.of_channels(|root| power(exponents[root]));
    let (equal, changed) = rescaled(Cow::Borrowed(graph), &factors);
    changed.then(|| equal.into_owned())
}

/// The exponent of each group, by its root: the most that keeps all of it below the largest
/// channels of their values. Where a group is always zero, nothing is known of it.
fn exponents(groups: &mut Groups, peaks: &[Vec<f32>]) -> Vec<i32> {
    const UNKNOWN: i32 = i32::MAX;
    let mut most = vec![UNKNOWN; groups.parent.len()];
    for (value, peaks) in peaks.iter().enumerate() {
        let largest = peaks.iter().copied().fold(0.0, f32::max);
        for (channel, &peak) in groups.channels(value).zip(peaks) {
            let root = groups.root(channel);
            if peak > 0.0 {
                let room = (f64::from(largest) / f64::from(peak)).log2().floor() as i32;
                most[root] = most[root].min((room - HEADROOM).clamp(0, MOST));
            }
        }
    }
    let known = |exponent: i32| if exponent == UNKNOWN { 0 } else { exponent };
    most.into_iter().map(known).collect()
}

/// `2^exponent`.
fn power(exponent: i32) -> f32 {
    f32::from_bits(((127 + exponent) as u32) << 23)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::{
        float,
        graph::{Node, Op, Tensor},
    };

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
        let tensor = |shape: &[usize], data: &[f32]| Tensor::new(shape, data.to_vec());
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
            let tensor = graph.tensors.get_mut(name).expect("it is there");
            tensor.data_mut().iter_mut().for_each(|x| *x = x.min(0.0));
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
