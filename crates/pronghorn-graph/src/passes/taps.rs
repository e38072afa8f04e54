//! Rows and columns of kernels that meet nothing but padding.

use std::ops::Range;

use super::insert;
use crate::{
    geometry::Window,
    graph::{Graph, Op, Tensor},
};

/// Cuts kernels down to what meets the image somewhere. Says whether there was more.
///
/// Far dilated kernels reach beyond small images: of one with a dilation of 36 on 14 rows the
/// middle is left (DeepLab's pyramids). Padding that nobody meets is then none.
pub(super) fn trim(graph: &mut Graph) -> bool {
    (1..graph.nodes.len()).any(|layer| trim_at(graph, layer).is_some())
}

fn trim_at(graph: &mut Graph, layer: usize) -> Option<()> {
    let node = &graph.nodes[layer];
    let Op::Conv { window, weight, .. } = &node.op else {
        return None;
    };
    // All of a kernel is within the image then. Most layers are so, and each rewrite looks at all.
    if window.padding == [0; 4] {
        return None;
    }
    let &[_, height, width] = graph.nodes[node.inputs[0]].shape.as_slice() else {
        return None;
    };
    let &[_, rows, columns] = node.shape.as_slice() else {
        return None;
    };
    let (size, output) = ([height, width], [rows, columns]);
    let mut trimmed = window.clone();
    let kept = [0, 1].map(|axis| kept(window, axis, size[axis], output[axis]));
    for (axis, kept) in kept.iter().enumerate() {
        cut(&mut trimmed, axis, kept, (size[axis], output[axis]))?;
    }
    if trimmed.kernel == window.kernel || trimmed.output(size).ok()? != output {
        return None;
    }
    let Tensor { shape, data } = &graph.tensors[weight];
    let plane = window.kernel[0] * window.kernel[1];
    let [down, right] = kept;
    let of_plane = |plane: &[f32]| {
        let rows = plane.chunks(window.kernel[1]).skip(down.start);
        let rows = rows.take(down.len());
        rows.flat_map(|row| row[right.clone()].to_vec())
            .collect::<Vec<_>>()
    };
    let data = data.chunks(plane).flat_map(of_plane).collect();
    let shape = [shape[0], shape[1], down.len(), right.len()];
    let name = node.name.clone();
    let new_weight = insert(graph, &name, "weight", Tensor::new(shape, data));
    if let Op::Conv { window, weight, .. } = &mut graph.nodes[layer].op {
        (*window, *weight) = (trimmed, new_weight);
    }
    Some(())
}

/// The kernel's indices along an axis from the first to the last that meets the image somewhere.
fn kept(window: &Window, axis: usize, size: usize, output: usize) -> Range<usize> {
    let met = (0..output).map(|at| window.taps(axis, at, size));
    let met = met.filter(|taps| !taps.is_empty());
    let both = |a: Range<usize>, b: Range<usize>| a.start.min(b.start)..a.end.max(b.end);
    met.reduce(both).unwrap_or(0..window.kernel[axis])
}

/// Leaves these indices of a kernel along an axis, with the padding that makes the same output;
/// `None` where that would be less than none.
fn cut(
    window: &mut Window,
    axis: usize,
    kept: &Range<usize>,
    (size, output): (usize, usize),
) -> Option<()> {
    if kept.len() == window.kernel[axis] {
        return Some(());
    }
    let before = window.padding[axis].checked_sub(kept.start * window.dilation[axis])?;
    window.kernel[axis] = kept.len();
    if kept.len() == 1 {
        window.dilation[axis] = 1;
    }
    let reach = (output - 1) * window.stride[axis] + (kept.len() - 1) * window.dilation[axis] + 1;
    window.padding[axis] = before;
    window.padding[axis + 2] = reach.saturating_sub(size + before);
    Some(())
}
