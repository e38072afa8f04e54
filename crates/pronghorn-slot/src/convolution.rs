//! Gazelle's convolutions by name (section VI, Tables III and IV).
//!
//! Channels are packed tightly into blocks of a power of two, and weights have zeros where taps
//! leave the image (packed SISO, punctured plaintexts); padded SISO is the same with the padding
//! among the positions, which costs slots and saves nothing here. Channels go with one another by
//! diagonal grouping. Rotation of a diagonal and of a tap are one.

use pronghorn_graph::geometry::ConvGeometry;

use super::{Rows, SlotError, Taps, Variant};

/// All rotations of inputs: taps and diagonals.
///
/// # Errors
/// When the geometry is not valid.
pub fn input_rotations(geometry: &ConvGeometry, degree: usize) -> Result<Variant, SlotError> {
    let variant = output_rotations(geometry, degree)?;
    let blocks = degree / 2 / variant.block;
    let baby = (variant.inputs * variant.outputs / blocks).max(1);
    Ok(Variant { baby, ..variant })
}

/// Taps are rotations of inputs, diagonals of sums.
///
/// # Errors
/// When the geometry is not valid.
pub fn output_rotations(geometry: &ConvGeometry, degree: usize) -> Result<Variant, SlotError> {
    let output = geometry.output()?;
    let taps = [0, 1].map(|axis| {
        let rotates = super::axis::Axis::new(geometry, output[axis], axis, Taps::RotateInputs);
        match rotates {
            Some(_) => Taps::RotateInputs,
            None => Taps::RotateOutputs,
        }
    });
    let sizes = [0, 1].map(|axis| {
        let plane = geometry.input[axis].div_ceil(geometry.window.stride[axis]);
        let phases = geometry.window.stride[axis].min(geometry.window.kernel[axis]);
        (plane.max(output[axis]), phases)
    });
    let row = degree / 2;
    let block = (sizes[0].0 * sizes[1].0).next_power_of_two().min(row);
    let blocks = row / block;
    let most = |channels: usize| channels.next_power_of_two().min(blocks);
    let channels = geometry.in_channels * sizes[0].1 * sizes[1].1;
    let (halves_in, halves_out) = (channels.div_ceil(2), geometry.out_channels.div_ceil(2));
    let swap = channels > blocks && geometry.out_channels > blocks;
    Ok(Variant {
        block,
        taps,
        inputs: most(if swap { halves_in } else { channels }),
        outputs: most(halves_out),
        rows: if swap { Rows::Swap } else { Rows::Outputs },
        baby: 1,
        fold: false,
    })
}
