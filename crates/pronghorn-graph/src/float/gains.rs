//! How errors of a network's values grow on their way to the result.

use super::{FloatError, Roles, Run, ops, survey};
use crate::{
    graph::{Graph, Op},
    signs::Signs,
};

/// Size of the errors tried, relative to the value: small enough for the result to be linear in
/// them, and large enough for single precision.
const STEP: f32 = 1e-4;

/// By how much a relative squared error of the argument of an [`Op::Step`] counts as one of its
/// value. A jump is as likely as its argument is near zero, so there is no such factor: this one
/// is right for an error of some 2^-11, of which as large a part of values jumps.
const OF_STEPS: f64 = (1u32 << 10) as f64;

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
    let roles = Roles {
        results: &(0..batch).collect::<Vec<_>>(),
        gains: true,
        ..Roles::default()
    };
    Ok(survey(graph, inputs, batch, roles)?.gains)
}

/// Sums of squares of one value.
#[derive(Clone, Copy, Default)]
pub(super) struct Squares {
    value: f64,
    /// Of the error that the operator makes of those it reads.
    passed: f64,
    /// Of that and its own.
    error: f64,
}

impl Squares {
    pub fn add(&mut self, other: &Self) {
        self.value += other.value;
        self.passed += other.passed;
        self.error += other.error;
    }
}

/// From the result to the input.
pub(super) fn backwards(graph: &Graph, squares: &[Squares]) -> Vec<f64> {
    let (result, _) = graph.tail();
    let mut gains = vec![0.0; squares.len()];
    gains[result] = 1.0;
    for index in (1..=result).rev() {
        let node = &graph.nodes[index];
        // Of a product errors count by what they are of their factors.
        let weight = |input: usize| match (&node.op, squares[input].value) {
            (op, value) if op.is_product() && value > 0.0 => 1.0 / value,
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

/// A run with errors, beside a clean one of the same image.
pub(super) struct Disturbed<'a> {
    run: &'a Run<'a>,
    signs: Signs,
    values: Vec<Vec<f32>>,
    squares: Vec<Squares>,
}

impl<'a> Disturbed<'a> {
    pub fn new(run: &'a Run<'a>) -> Self {
        let nodes = run.graph.nodes.len();
        Self {
            run,
            signs: Signs::default(),
            values: vec![Vec::new(); nodes],
            squares: vec![Squares::default(); nodes],
        }
    }

    /// Takes the next value of the clean run.
    pub fn add(&mut self, index: usize, value: &[f32]) {
        let graph = self.run.graph;
        let node = &graph.nodes[index];
        let mut moved = match node.op {
            Op::Input => value.to_vec(),
            Op::Step => {
                let Squares {
                    value: all, error, ..
                } = self.squares[node.inputs[0]];
                let step = (OF_STEPS * error / all.max(f64::MIN_POSITIVE)).sqrt() as f32;
                let signs = value.iter().map(|x| x + self.signs.next() as f32 * step);
                signs.collect()
            }
            _ => ops::apply(self.run, index, &mut self.values),
        };
        let squares = &mut self.squares[index];
        squares.value = value.iter().map(|&x| square(x)).sum();
        squares.passed = difference(&moved, value);
        if node.op.is_linear() || node.op.is_product() || node.op == Op::Input {
            let rms = (squares.value / value.len().max(1) as f64).sqrt() as f32;
            let step = STEP * rms;
            moved
                .iter_mut()
                .for_each(|x| *x += self.signs.next() as f32 * step);
        }
        squares.error = difference(&moved, value);
        self.values[index] = moved;
        for &read in &node.inputs {
            if self.run.last_reader[read] == index {
                self.values[read] = Vec::new();
            }
        }
    }

    /// The squares of each value.
    pub fn squares(self) -> Vec<Squares> {
        self.squares
    }
}

fn difference(found: &[f32], wanted: &[f32]) -> f64 {
    found.iter().zip(wanted).map(|(f, w)| square(f - w)).sum()
}

fn square(x: f32) -> f64 {
    f64::from(x) * f64::from(x)
}
