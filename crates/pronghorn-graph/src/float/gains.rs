//! How errors of a network's values grow on their way to the result.

use rayon::prelude::*;

use super::{FloatError, Run, check_inputs, ops};
use crate::{
    graph::{Graph, Op},
    signs::Signs,
};

/// Size of the errors tried, relative to the value: small enough for the result to be linear in
/// them, and large enough for single precision.
const STEP: f32 = 1e-4;

/// For each node the squared error of the result, summed over elements and images, that a relative
/// squared error of 1 of the node's value brings to it.
///
/// One run of each image beside a clean one measures them all. Layers and products add small
/// random errors, which stand for those of rounding, to all that came before. An operator's gain is
/// the factor by which it changes the errors that it reads. A value's gain is the product of these
/// on the way to the result, summed over ways. This takes errors on different ways as independent.
///
/// # Errors
/// When `inputs` does not hold `batch` images.
pub fn gains(graph: &Graph, inputs: &[f32], batch: usize) -> Result<Vec<f64>, FloatError> {
    check_inputs(graph, inputs, batch)?;
    let images = inputs.par_chunks(graph.input_len());
    let images: Vec<Vec<Squares>> = images.map(|image| of_image(graph, image)).collect();
    let mut all = vec![Squares::default(); graph.nodes.len()];
    for image in images {
        for (sum, squares) in all.iter_mut().zip(&image) {
            sum.add(squares);
        }
    }
    Ok(backwards(graph, &all))
}

/// Sums of squares of one value.
#[derive(Clone, Copy, Default)]
struct Squares {
    value: f64,
    /// Of the error that the operator makes of those it reads.
    passed: f64,
    /// Of that and its own.
    error: f64,
}

impl Squares {
    fn add(&mut self, other: &Self) {
        self.value += other.value;
        self.passed += other.passed;
        self.error += other.error;
    }
}

/// From the result to the input.
fn backwards(graph: &Graph, squares: &[Squares]) -> Vec<f64> {
    let (result, _) = graph.tail();
    let mut gains = vec![0.0; squares.len()];
    gains[result] = 1.0;
    for index in (1..=result).rev() {
        let node = &graph.nodes[index];
        // Of a product errors count by what they are of their factors.
        let weight = |input: usize| match (&node.op, squares[input].value) {
            (Op::Multiply, value) if value > 0.0 => 1.0 / value,
            _ => 1.0,
        };
        let inputs = node.inputs.iter();
        let read: f64 = inputs
            .map(|&input| weight(input) * squares[input].error)
            .sum();
        if read > 0.0 {
            for &input in &node.inputs {
                gains[input] += gains[index] * squares[index].passed * weight(input) / read;
            }
        }
    }
    let scaled = gains.iter().zip(squares);
    scaled.map(|(gain, squares)| gain * squares.value).collect()
}

/// The squares of each value of an image.
fn of_image(graph: &Graph, input: &[f32]) -> Vec<Squares> {
    let run = Run::new(graph);
    let mut signs = Signs::default();
    let mut disturbed: Vec<Vec<f32>> = vec![Vec::new(); graph.nodes.len()];
    let mut all = vec![Squares::default(); graph.nodes.len()];
    run.image(input, |index, value| {
        let node = &graph.nodes[index];
        let mut moved = match node.op {
            Op::Input => value.to_vec(),
            _ => ops::apply(graph, node, &disturbed),
        };
        let squares = &mut all[index];
        squares.value = value.iter().map(|&x| square(x)).sum();
        squares.passed = difference(&moved, value);
        if node.op.is_linear() || matches!(node.op, Op::Input | Op::Multiply) {
            let rms = (squares.value / value.len().max(1) as f64).sqrt() as f32;
            moved
                .iter_mut()
                .for_each(|x| *x += signs.next() as f32 * STEP * rms);
        }
        squares.error = difference(&moved, value);
        disturbed[index] = moved;
        for &read in &node.inputs {
            if run.last_reader[read] == index {
                disturbed[read] = Vec::new();
            }
        }
    });
    all
}

fn difference(found: &[f32], wanted: &[f32]) -> f64 {
    found.iter().zip(wanted).map(|(f, w)| square(f - w)).sum()
}

fn square(x: f32) -> f64 {
    f64::from(x) * f64::from(x)
}
