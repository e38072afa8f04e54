//! The graph as text, one line a node.

use std::fmt;

use super::{ActivationOp, FixedGraph, FixedNode, FixedOp, Linear, LocalOp};

impl fmt::Display for FixedGraph {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{}: {} multiply-adds an image",
            self.name,
            self.multiply_adds()
        )?;
        for (index, node) in self.nodes.iter().enumerate() {
            writeln!(f, "{index:>4} {node}")?;
        }
        write!(f, "result {}", self.output)?;
        self.finish
            .iter()
            .try_for_each(|finish| write!(f, ", {finish:?}"))
    }
}

impl fmt::Display for FixedNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let value = &self.value;
        write!(
            f,
            "{:<40} {:?} {:?}",
            self.op.to_string(),
            self.inputs,
            value.shape
        )?;
        write!(
            f,
            " in {}..={} / 2^{}",
            value.low, value.high, value.fraction_bits
        )?;
        write!(f, "  {}", self.name)
    }
}

impl fmt::Display for FixedOp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Input => f.write_str("input"),
            Self::Linear(linear) => linear.fmt(f),
            Self::Local(op) => op.fmt(f),
            Self::Activation(op) => op.fmt(f),
            Self::Product => f.write_str("product"),
            Self::MatMul => f.write_str("product of matrices"),
            Self::ArgMax => f.write_str("argmax"),
            Self::Constants(_) => f.write_str("add constants"),
        }
    }
}

impl fmt::Display for Linear {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let geometry = &self.geometry;
        let ([height, width], window) = (geometry.window.kernel, &geometry.window);
        if geometry.input == [1, 1] && window.is_point() {
            f.write_str("dense")?;
        } else {
            write!(f, "conv {height}x{width}")?;
        }
        write!(f, " {} to {}", geometry.in_channels, geometry.out_channels)?;
        if window.stride != [1, 1] {
            write!(f, ", stride {}x{}", window.stride[0], window.stride[1])?;
        }
        if geometry.groups > 1 {
            write!(f, ", {} groups", geometry.groups)?;
        }
        Ok(())
    }
}

impl fmt::Display for LocalOp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Add { left_shift } => write!(f, "add << {left_shift:?}"),
            Self::SumPool { window, .. } => {
                write!(f, "sum-pool {}x{}", window.kernel[0], window.kernel[1])
            }
            Self::Reshape => f.write_str("reshape"),
            Self::Pad { before, after } => write!(f, "pad {before:?} {after:?}"),
            Self::Concat { axis, left_shift } => write!(f, "concat {axis} << {left_shift:?}"),
            Self::Transpose { permutation } => write!(f, "transpose {permutation:?}"),
            Self::Take { axis, indices } => write!(f, "take {} along {axis}", indices.len()),
        }
    }
}

/// The smallest and the largest shift.
pub fn least_and_most(shifts: &[u32]) -> (u32, u32) {
    let least = shifts.iter().min().copied().unwrap_or(0);
    (least, shifts.iter().max().copied().unwrap_or(0))
}

impl fmt::Display for ActivationOp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Relu => f.write_str("relu"),
            Self::Clip { low, high } => write!(f, "clip {low}..={high}"),
            Self::LeakyRelu { slope, shift } => write!(f, "leaky relu {slope} / 2^{shift}"),
            Self::Square => f.write_str("square"),
            Self::MaxPool { window } => {
                write!(f, "max-pool {}x{}", window.kernel[0], window.kernel[1])
            }
            Self::Requantise { shift, low, high } => {
                write!(f, "requantise >> {shift} into {low}..={high}")
            }
            Self::RequantiseChannels { shifts, low, high } => {
                let (least, most) = least_and_most(shifts);
                write!(
                    f,
                    "requantise >> {least} to {most} by channel into {low}..={high}"
                )
            }
            Self::Table(table) => {
                let base = if table.rectified { "relu and " } else { "" };
                let pieces = if table.fine > 0 { " pieces" } else { "" };
                write!(f, "{base}table of {}{pieces}", table.entries.len())
            }
            Self::Dither { shifts } => {
                let (least, most) = least_and_most(shifts);
                write!(f, "dither >> {least} to {most}")
            }
        }
    }
}
