//! Sizes of two-dimensional windows: convolutions and poolings.

use serde::{Deserialize, Serialize};

/// A window sliding over a `(channels, height, width)` tensor.
///
/// Output height is `(height + top + bottom - (dilation_h*(kernel_h-1)+1)) / stride_h + 1`,
/// width likewise (floor division, ONNX `ceil_mode = 0`; the importer turns `ceil_mode = 1` into
/// explicit padding).
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Window {
    /// Kernel height and width.
    pub kernel: [usize; 2],
    /// Stride down and right.
    pub stride: [usize; 2],
    /// Dilation down and right.
    pub dilation: [usize; 2],
    /// Padding: top, left, bottom, right.
    pub padding: [usize; 4],
}

/// A grouped convolution from `(in_channels, height, width)` to
/// `(out_channels, out_height, out_width)`, without weights. A dense layer is one with
/// `height = width = 1`; a multiplication by a constant a channel is one with a 1x1 kernel and
/// `groups = in_channels`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ConvGeometry {
    /// Input channels.
    pub in_channels: usize,
    /// Output channels.
    pub out_channels: usize,
    /// Input height and width.
    pub input: [usize; 2],
    /// The sliding window.
    pub window: Window,
    /// Groups; divides both channel counts.
    pub groups: usize,
}
