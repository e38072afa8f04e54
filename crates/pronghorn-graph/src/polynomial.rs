//! Polynomial networks: what can be computed on ciphertexts alone.
//!
//! Weights are integers over a common divisor. Under trust level `encrypted` they are small, so that
//! a product with a ciphertext is one with a small integer (nGraph-HE2, section 3.2, multiplies by
//! residues; small integers cost a fraction of that). Values are real numbers, rounded nowhere but where encryption itself is
//! inexact. [`PolyGraph::evaluate`] is the oracle of every encrypted run: the run's result differs
//! from it by no more than the noise that the plan states.

mod check;
mod gains;
mod lower;

use rayon::prelude::*;
use serde::{Deserialize, Serialize};
use thiserror::Error;

pub use lower::{FINE_WEIGHT_BITS, lower, lower_finely};

use crate::{
    finish::Finish,
    geometry::ConvGeometry,
    graph::GraphError,
    layout::{self, Source},
    shape::OperatorError,
};

/// A network of additions and multiplications. Node `i` makes value `i`; inputs of a node come
/// before it.
#[derive(Clone, Serialize, Deserialize)]
pub struct PolyGraph {
    /// The model's name, for messages.
    pub name: String,
    /// Nodes in topological order; the first is the only [`PolyOp::Input`].
    pub nodes: Vec<PolyNode>,
    /// The value that is the result, before `finish`.
    pub output: usize,
    /// The least element of the input: zero where no sample has a negative one, else minus its
    /// reach.
    pub low: f64,
    /// The client's operations on the result, in floating point.
    pub finish: Vec<Finish>,
    /// The model's names of its classes, for the client; none where they are their indices.
    pub class_names: Vec<String>,
}

/// One operator and what its value looks like. Holds weights: no Debug.
#[derive(Clone, Serialize, Deserialize)]
pub struct PolyNode {
    /// The node of the model it comes from, for messages.
    pub name: String,
    /// The operator.
    pub op: PolyOp,
    /// Values it reads.
    pub inputs: Vec<usize>,
    /// Shape of its value, without the batch dimension.
    pub shape: Vec<usize>,
    /// Largest magnitude of its value, as seen on samples, with the margin.
    pub reach: f64,
    /// Root mean square of its value on samples.
    pub rms: f64,
}

impl PolyNode {
    /// Elements of one image's value.
    pub fn len(&self) -> usize {
        self.shape.iter().product()
    }

    /// True if it has no elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// The operators.
#[derive(Clone, Serialize, Deserialize)]
pub enum PolyOp {
    /// The input.
    Input,
    /// Weights that meet a window of each channel; poolings are layers of ones.
    Linear(Layer),
    /// A factor and a summand for each element.
    Factor(Factor),
    /// `x * x`.
    Square,
    /// `inputs[0] * inputs[1]`.
    Multiply,
    /// `inputs[0] + inputs[1]`.
    Add,
    /// Each element copies one of an input, or is zero.
    Rearrange(Vec<Option<Source>>),
}

impl PolyOp {
    /// The operator's name in messages.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Input => "input",
            Self::Linear(_) => "linear",
            Self::Factor(_) => "factors",
            Self::Square => "square",
            Self::Multiply => "multiply",
            Self::Add => "add",
            Self::Rearrange(_) => "rearrange",
        }
    }
}

/// A convolution or dense layer.
#[derive(Clone, Serialize, Deserialize)]
pub struct Layer {
    /// Sizes.
    pub geometry: ConvGeometry,
    /// `(out_channels, in_channels/groups, kernel_h, kernel_w)`, row-major; a weight is `w / divisor`.
    /// Integers, `|w| < 2^15`, or `|w| < 2^53` from [`lower_finely`].
    pub weights: Vec<f64>,
    /// The divisor: integers stand for multiples of its inverse. Positive.
    pub divisor: f64,
    /// One an output channel.
    pub bias: Vec<f64>,
}

impl Layer {
    /// Largest sum of absolute integer weights of an output channel, and largest Euclidean norm.
    pub fn norms(&self) -> (f64, f64) {
        let norms = self.weights.chunks(self.geometry.row_len()).map(|row| {
            let sum = |f: fn(f64) -> f64| row.iter().map(|&w| f(w)).sum::<f64>();
            (sum(f64::abs), sum(|w| w * w).sqrt())
        });
        norms.fold((0.0, 0.0), |most: (f64, f64), row| {
            (most.0.max(row.0), most.1.max(row.1))
        })
    }
}

/// Elementwise `x * factor / divisor + addend`.
#[derive(Clone, Serialize, Deserialize)]
pub struct Factor {
    /// One an element, bounded as the weights of a [`Layer`].
    pub factors: Vec<f64>,
    /// The divisor: integers stand for multiples of its inverse. Positive.
    pub divisor: f64,
    /// One an element.
    pub addends: Vec<f64>,
}

/// Why a network is no polynomial one.
#[derive(Debug, Error)]
pub enum PolynomialError {
    /// The graph itself is broken.
    #[error(transparent)]
    Graph(#[from] GraphError),
    /// An activation that is no polynomial.
    #[error(
        "node {node} ({operator}, shape {shape:?}) is no polynomial: trust levels encrypted and multi-key compute additions \
         and multiplications only. Retrain with x^2 or another polynomial in its place, or use a level whose activations \
         are exact"
    )]
    NotPolynomial {
        /// Name of the node.
        node: String,
        /// Its operator.
        operator: &'static str,
        /// Its shape.
        shape: Vec<usize>,
    },
    /// An operator with parameters that have no integer form.
    #[error("node {node} ({operator}, shape {shape:?}): {source}")]
    Operator {
        /// Name of the node.
        node: String,
        /// Its operator.
        operator: &'static str,
        /// Its shape.
        shape: Vec<usize>,
        /// The reason.
        source: Box<OperatorError>,
    },
    /// An option out of its bounds.
    #[error("{weight_bits} bits for weights were asked for; take 2 to 15")]
    WeightBits {
        /// What was asked for.
        weight_bits: u32,
    },
}

impl PolyGraph {
    /// Elements of one input.
    pub fn input_len(&self) -> usize {
        self.nodes[0].len()
    }

    /// The node whose value is the result.
    pub fn result(&self) -> &PolyNode {
        &self.nodes[self.output]
    }

    /// Multiplications by weights that one image takes.
    pub fn multiply_adds(&self) -> u64 {
        let of = |node: &PolyNode| match &node.op {
            PolyOp::Linear(layer) => layer.geometry.multiply_adds(),
            PolyOp::Factor(_) => node.len() as u64,
            _ => 0,
        };
        self.nodes.iter().map(of).sum()
    }

    /// The number of reads of each value; being the result counts as one.
    pub fn uses(&self) -> Vec<usize> {
        let mut uses = vec![0; self.nodes.len()];
        uses[self.output] = 1;
        self.nodes
            .iter()
            .flat_map(|node| &node.inputs)
            .for_each(|&input| uses[input] += 1);
        uses
    }

    /// The result for each image of `inputs`, one after the other; results likewise.
    ///
    /// # Panics
    /// Unless `inputs` holds whole images.
    pub fn evaluate(&self, inputs: &[f64]) -> Vec<f64> {
        assert!(
            inputs.len().is_multiple_of(self.input_len()),
            "whole images"
        );
        let images = inputs.par_chunks(self.input_len());
        let results: Vec<Vec<f64>> = images.map(|image| self.image(image)).collect();
        results.concat()
    }

    fn image(&self, input: &[f64]) -> Vec<f64> {
        std::mem::take(&mut self.values(input)[self.output])
    }

    /// The values of all nodes for one image.
    fn values(&self, input: &[f64]) -> Vec<Vec<f64>> {
        let mut values: Vec<Vec<f64>> = Vec::with_capacity(self.nodes.len());
        for node in &self.nodes {
            let value = node.op.apply(input, |place| &values[node.inputs[place]]);
            values.push(value);
        }
        values
    }
}

impl PolyOp {
    /// The operator on one image; `input` is the whole network's, `read` gives the operator's own.
    fn apply<'a>(&self, input: &[f64], read: impl Fn(usize) -> &'a Vec<f64>) -> Vec<f64> {
        match self {
            Self::Input => input.to_vec(),
            Self::Linear(layer) => layer.apply(read(0)),
            Self::Factor(factor) => {
                let constants = factor.factors.iter().zip(&factor.addends);
                let elements = read(0).iter().zip(constants);
                elements
                    .map(|(x, (&w, addend))| x * w / factor.divisor + addend)
                    .collect()
            }
            Self::Square => read(0).iter().map(|x| x * x).collect(),
            Self::Multiply => read(0).iter().zip(read(1)).map(|(x, y)| x * y).collect(),
            Self::Add => read(0).iter().zip(read(1)).map(|(x, y)| x + y).collect(),
            Self::Rearrange(sources) => sources
                .iter()
                .map(|source| source.map_or(0.0, |source| read(source.input)[source.index]))
                .collect(),
        }
    }
}

impl Layer {
    /// `out[o][y][x] = bias[o] + weights[o] . patch / divisor`, the patch being what the window at
    /// `(y, x)` holds.
    fn apply(&self, x: &[f64]) -> Vec<f64> {
        let geometry = &self.geometry;
        let Ok([height, width]) = geometry.output() else {
            unreachable!("the graph was validated")
        };
        let (positions, row) = (height * width, geometry.row_len());
        let rows_of_group = geometry.out_channels / geometry.groups;
        let mut out = vec![0.0; geometry.out_channels * positions];
        let mut patch = vec![0.0; row];
        for group in 0..geometry.groups {
            for position in 0..positions {
                let at = [position / width, position % width];
                layout::patch(geometry, group, at, x, &mut patch);
                for o in group * rows_of_group..(group + 1) * rows_of_group {
                    let products = self.weights[o * row..][..row].iter().zip(&patch);
                    let sum: f64 = products.map(|(&w, &x)| w * x).sum();
                    out[o * positions + position] = self.bias[o] + sum / self.divisor;
                }
            }
        }
        out
    }
}
