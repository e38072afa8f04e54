//! The product as its formula says it: slow, plain, what the fast forms are tested against.

use pronghorn_graph::geometry::ConvGeometry;
use pronghorn_ring::{Prime, Word};

/// `out[o][x] = addend[o] + sum_i w[o][i] * in[i][x] mod q`, row-major, for a valid `geometry`,
/// weights in ONNX order `[out_channels][in_channels / groups][kernel_h][kernel_w]` and the
/// layouts of [`multiply`](crate::multiply).
///
/// # Panics
///
/// If the geometry is not valid or a slice is too short.
pub fn multiply_reference<W: Word>(
    geometry: &ConvGeometry,
    weights: &[i16],
    q: &Prime<W>,
    input: &[W],
    columns: usize,
    addend: Option<&[W]>,
) -> Vec<W> {
    let [height, width] = geometry.input;
    let [kernel_h, kernel_w] = geometry.window.kernel;
    let [stride_h, stride_w] = geometry.window.stride;
    let [dilation_h, dilation_w] = geometry.window.dilation;
    let [top, left, bottom, right] = geometry.window.padding;
    let out_h = (height + top + bottom - (dilation_h * (kernel_h - 1) + 1)) / stride_h + 1;
    let out_w = (width + left + right - (dilation_w * (kernel_w - 1) + 1)) / stride_w + 1;
    let group_in = geometry.in_channels / geometry.groups;
    let group_out = geometry.out_channels / geometry.groups;
    let modulus = i128::from(q.value());

    let mut output = Vec::new();
    for out in 0..geometry.out_channels {
        let first_in = out / group_out * group_in;
        for (out_y, out_x) in (0..out_h).flat_map(|y| (0..out_w).map(move |x| (y, x))) {
            for column in 0..columns {
                let row = (out * out_h + out_y) * out_w + out_x;
                let mut sum = addend.map_or(0, |addend| i128::from(addend[row].to_u64()));
                for channel in 0..group_in {
                    for (k, l) in (0..kernel_h).flat_map(|k| (0..kernel_w).map(move |l| (k, l))) {
                        let y = (out_y * stride_h + k * dilation_h).wrapping_sub(top);
                        let x = (out_x * stride_w + l * dilation_w).wrapping_sub(left);
                        if y < height && x < width {
                            let row = ((first_in + channel) * height + y) * width + x;
                            let tap = ((out * group_in + channel) * kernel_h + k) * kernel_w + l;
                            sum += i128::from(weights[tap])
                                * i128::from(input[row * columns + column].to_u64());
                        }
                    }
                }
                output.push(W::from_u64(sum.rem_euclid(modulus) as u64));
            }
        }
    }
    output
}
