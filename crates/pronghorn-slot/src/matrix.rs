//! Gazelle's matrix-vector products by name (section V, Table II), as variants of a dense layer.
//!
//! | method | inputs in a row | outputs in a row | rotations |
//! |---|---|---|---|
//! | naive | all | one | of the product, and added |
//! | input packing | copies of all | one a copy | of the product, and added |
//! | diagonal | all | all | of the input |
//! | hybrid | copies of all | all | of the input; of the sum, and added |
//! | baby steps, giant steps | as hybrid | as hybrid | `b` of the input, `d / b` of sums |
//!
//! Sizes that are no powers of two are padded with zeros; matrices larger than the slots are split
//! into several input and output ciphertexts.

use super::{Rows, Taps, Variant};

/// What a row of `slots` holds of `channels`: all, if they fit.
fn most(channels: usize, slots: usize) -> usize {
    channels.next_power_of_two().min(slots)
}

fn dense(inputs: usize, outputs: usize, rows: Rows, baby: usize, fold: bool) -> Variant {
    Variant {
        block: 1,
        taps: [Taps::RotateOutputs; 2],
        inputs,
        outputs,
        rows,
        baby,
        fold,
    }
}

/// One output ciphertext an output, half of the input in each row: section V-A.
pub fn naive(inputs: usize, degree: usize) -> Variant {
    dense(
        most(inputs.div_ceil(2), degree / 2),
        1,
        Rows::Inputs,
        1,
        true,
    )
}

/// As many outputs an output ciphertext as copies of the input fit: section V-C.
pub fn input_packing(inputs: usize, outputs: usize, degree: usize) -> Variant {
    let row = degree / 2;
    let wide = most(inputs, row);
    dense(wide, most(outputs, row / wide), Rows::Outputs, 1, true)
}

/// All rotations of the input: section V-D.
pub fn diagonal(degree: usize) -> Variant {
    let row = degree / 2;
    dense(row, row, Rows::Swap, row, false)
}

/// Extended diagonals: rotations of an input that is there in copies, and of the sum: section V-F.
pub fn hybrid(inputs: usize, outputs: usize, degree: usize) -> Variant {
    let row = degree / 2;
    let (inputs, outputs) = (most(inputs, row), most(outputs.div_ceil(2), row));
    dense(
        inputs,
        outputs,
        Rows::Outputs,
        (inputs * outputs / row).max(1),
        true,
    )
}

/// Hybrid with `baby` rotations of the input and giant steps by Horner's rule, and partial sums
/// left to the shares.
pub fn baby_step_giant_step(inputs: usize, outputs: usize, degree: usize, baby: usize) -> Variant {
    Variant {
        baby,
        fold: false,
        ..hybrid(inputs, outputs, degree)
    }
}
