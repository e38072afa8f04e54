//! Moves zeros around an image into the window of the layer that reads it.

use super::readers;
use crate::{
    geometry::Window,
    graph::{Graph, Op},
    shape,
};

/// Fuses `Pad` into the `Conv` and `AveragePool` nodes that read it, where its zeros are all around
/// height and width. Says whether there were any.
///
/// Not into `MaxPool`: explicit zeros can be the maximum, its own padding never is. Not into an
/// `AveragePool` with padding of its own that does not count, since explicit zeros do, or whose
/// windows would come to hold nothing but padding.
pub(super) fn fuse(graph: &mut Graph) -> bool {
    let mut changed = false;
    for index in 1..graph.nodes.len() {
        let Some(zeros) = spatial(&graph.nodes[index].op) else {
            continue;
        };
        let input = graph.nodes[index].inputs[0];
        let shape = graph.nodes[input].shape.clone();
        for reader in readers(graph, index).unwrap_or_default() {
            let node = &mut graph.nodes[reader];
            let padded = |window: &Window| {
                let mut padding = window.padding;
                padding
                    .iter_mut()
                    .zip(zeros)
                    .for_each(|(padding, zeros)| *padding += zeros);
                Window {
                    padding,
                    ..window.clone()
                }
            };
            match &mut node.op {
                Op::Conv { window, .. } => *window = padded(window),
                Op::AveragePool {
                    window,
                    count_include_pad,
                } if (*count_include_pad || window.padding == [0; 4])
                    && shape::pool(&shape, &padded(window)).is_ok() =>
                {
                    *window = padded(window);
                    *count_include_pad = true;
                }
                _ => continue,
            }
            node.inputs = vec![input];
            changed = true;
        }
    }
    changed
}

/// Zeros top, left, bottom, right of a `Pad` that leaves the channels alone.
fn spatial(op: &Op) -> Option<[usize; 4]> {
    match op {
        Op::Pad { before, after } => match (before.as_slice(), after.as_slice()) {
            (&[0, top, left], &[0, bottom, right]) => Some([top, left, bottom, right]),
            _ => None,
        },
        _ => None,
    }
}
