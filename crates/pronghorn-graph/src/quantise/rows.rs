//! Where rows of weights may have scales of their own.
//!
//! Their results are then at different scales, channel by channel. The next change of precision
//! brings them to one: it drops another number of bits of each channel, at no cost. So a layer may
//! have such rows where all who read its result change the precision, or come before who does.
//!
//! Source: Krishnamoorthi, "Quantizing deep convolutional networks for efficient inference", 2018,
//! section 3 (weights quantised by channel); here with powers of two.

use crate::{
    graph::{Graph, Op},
    shape,
};

/// Values of a window of channels at different scales, at most.
const MOST_POOLED: usize = 16;

/// Whether the rows of layer `index` may have scales of their own.
pub(super) fn allowed(graph: &Graph, index: usize, result: usize) -> bool {
    let node = &graph.nodes[index];
    let (channels, _) = shape::channels(&node.shape);
    channels > 1 && !matches!(node.op, Op::Affine { .. }) && kept(graph, index, result)
}

/// Whether value `index` may go on with channels at different scales, where its input does.
pub(super) fn kept(graph: &Graph, index: usize, result: usize) -> bool {
    let moved = is_move(&graph.nodes[index].op);
    index != result
        && graph.readers(index).all(|(reader, node)| match &node.op {
            // They work at any scale, or change it, channel by channel.
            Op::Relu | Op::Clip { .. } | Op::Function { .. } => !moved,
            // A sign is that at any scale.
            Op::Step => true,
            // Each shift takes a circuit of its own for each size of window.
            Op::MaxPool { window } => !moved && window.kernel[0] * window.kernel[1] <= MOST_POOLED,
            // The precision changes before these.
            op if is_move(op) => kept(graph, reader, result),
            Op::Multiply => node.inputs[0] != node.inputs[1],
            Op::MatMul => true,
            op => op.is_linear(),
        })
}

fn is_move(op: &Op) -> bool {
    matches!(op, Op::Reshape | Op::Transpose { .. })
}
