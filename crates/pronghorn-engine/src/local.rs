//! Steps each party does on its own share: sums, pools and rearrangements with public constants.
//!
//! Shares live modulo 2^32 and these functions are linear, so applying one to both shares gives shares of
//! the result; all arithmetic wraps.

use pronghorn_graph::{
    fixed::{LocalOp, ValueSpec},
    geometry::Window,
};
use pronghorn_ring::SimdLevel;
use rayon::prelude::*;

use crate::{share::Batch, simd};

/// Applies `op` to the inputs, whose values are described by `specs`; `output` describes the result.
pub(crate) fn apply(
    op: &LocalOp,
    specs: &[&ValueSpec],
    inputs: &[Batch],
    output: &ValueSpec,
) -> Batch {
    match op {
        LocalOp::Add { left_shift } => add(left_shift, inputs),
        LocalOp::SumPool {
            window,
            multipliers,
        } => sum_pool(window, multipliers, &specs[0].shape, &inputs[0]),
        LocalOp::Concat { left_shift, .. } => rearrange(op, left_shift, specs, inputs, output),
        LocalOp::Reshape => inputs[0].clone(),
        LocalOp::Pad { .. } | LocalOp::Transpose { .. } => {
            rearrange(op, &[0], specs, inputs, output)
        }
    }
}

/// Rows of a new value, each filled by its index, in parallel; rows start as zeros.
fn rows(elements: usize, images: usize, fill: impl Fn(usize, &mut [i32]) + Sync) -> Batch {
    let mut batch = Batch::zeros(elements, images);
    batch
        .words_mut()
        .par_chunks_mut(images)
        .enumerate()
        .for_each(|(element, row)| fill(element, row));
    batch
}

fn add(left_shift: &[u32; 2], inputs: &[Batch]) -> Batch {
    rows(inputs[0].elements(), inputs[0].images(), |element, row| {
        for (input, &shift) in inputs.iter().zip(left_shift) {
            simd::add_shifted(SimdLevel::detect(), row, input.row(element), shift);
        }
    })
}

fn rearrange(
    op: &LocalOp,
    left_shift: &[u32],
    specs: &[&ValueSpec],
    inputs: &[Batch],
    output: &ValueSpec,
) -> Batch {
    let shapes: Vec<&[usize]> = specs.iter().map(|spec| spec.shape.as_slice()).collect();
    let sources = op.sources(&shapes).unwrap_or_default();
    rows(output.len(), inputs[0].images(), |element, row| {
        if let Some(source) = sources[element] {
            simd::add_shifted(
                SimdLevel::detect(),
                row,
                inputs[source.input].row(source.index),
                left_shift[source.input],
            );
        }
    })
}

fn sum_pool(window: &Window, multipliers: &[i32], shape: &[usize], input: &Batch) -> Batch {
    let (pool, [height, width]) = Pool::new(window, shape);
    let positions = height * width;
    rows(pool.channels * positions, input.images(), |element, row| {
        for source in pool.sources(element) {
            simd::add_shifted(SimdLevel::detect(), row, input.row(source), 0);
        }
        let multiplier = multipliers[if multipliers.len() == 1 {
            0
        } else {
            element % positions
        }];
        simd::scale(SimdLevel::detect(), row, multiplier);
    })
}

/// Maximum over each window; not linear, so for values in the clear only. Also the shape of the result.
pub(crate) fn max_pool(window: &Window, shape: &[usize], input: &Batch) -> (Batch, Vec<usize>) {
    let (pool, [height, width]) = Pool::new(window, shape);
    let pooled = rows(
        pool.channels * height * width,
        input.images(),
        |element, row| {
            row.fill(i32::MIN);
            for source in pool.sources(element) {
                simd::maximum(SimdLevel::detect(), row, input.row(source));
            }
        },
    );
    (pooled, vec![pool.channels, height, width])
}

/// A pooling over an image, for plans that are validated.
struct Pool<'a> {
    window: &'a Window,
    channels: usize,
    input: [usize; 2],
    output: [usize; 2],
}

impl<'a> Pool<'a> {
    fn new(window: &'a Window, shape: &[usize]) -> (Self, [usize; 2]) {
        let input = [shape[1], shape[2]];
        let output = window.pool_output(input).expect("plans are validated");
        (
            Self {
                window,
                channels: shape[0],
                input,
                output,
            },
            output,
        )
    }

    /// The input elements in the window of an output element.
    fn sources(&self, element: usize) -> impl Iterator<Item = usize> {
        self.window.pooled(self.input, self.output, element)
    }
}
