//! The floating-point graph: what the importer hands over.
//!
//! Serialised as JSON by `python/pronghorn/onnx`; weights travel beside it, by name.
//! Shapes never hold the batch dimension: a `(N, 1, 28, 28)` ONNX input is `[1, 28, 28]` here.

mod class;
mod infer;
mod validate;

use std::{collections::BTreeMap, sync::Arc};

use rayon::prelude::*;
use serde::{Deserialize, Serialize};

pub use class::ClassError;
pub use validate::GraphError;

use crate::{
    finish::{Along, Finish},
    function::{Function, Span},
    geometry::Window,
};

/// A dense row-major tensor of weights.
#[derive(Clone, Debug, PartialEq)]
pub struct Tensor {
    /// Dimensions; empty for a scalar.
    pub shape: Vec<usize>,
    /// `shape.iter().product()` values, row-major. Graphs that differ elsewhere share them.
    pub data: Arc<Vec<f32>>,
}

impl Tensor {
    /// Of `shape.iter().product()` values, row-major.
    pub fn new(shape: impl Into<Vec<usize>>, data: Vec<f32>) -> Self {
        Self {
            shape: shape.into(),
            data: data.into(),
        }
    }

    /// The values of this tensor alone: copied first where others share them.
    pub fn data_mut(&mut self) -> &mut [f32] {
        if Arc::get_mut(&mut self.data).is_none() {
            // New memory takes longer than the copy: all threads ask for it.
            self.data = Arc::new(self.data.par_iter().copied().collect());
        }
        Arc::make_mut(&mut self.data).as_mut_slice()
    }
}

/// A network in floating point. Node `i` makes value `i`; inputs of a node come before it.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Graph {
    /// The model's name, for messages.
    pub name: String,
    /// Nodes in topological order; the first is the only [`Op::Input`].
    pub nodes: Vec<Node>,
    /// The value that is the result.
    pub output: usize,
    /// The weights, by name; not part of the JSON.
    #[serde(skip)]
    pub tensors: BTreeMap<String, Tensor>,
}

/// One operator.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Node {
    /// The ONNX node's name (or its output's), for messages.
    pub name: String,
    /// The operator.
    pub op: Op,
    /// Values it reads.
    pub inputs: Vec<usize>,
    /// Shape of the value it makes, without the batch dimension.
    pub shape: Vec<usize>,
}

/// The operators Pronghorn knows. Tensor-valued fields are names in [`Graph::tensors`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum Op {
    /// The model's input.
    Input,
    /// Convolution of `(C, H, W)`; `weight` is `(O, C/groups, kh, kw)`, `bias` is `(O)`.
    Conv {
        /// Kernel size, stride, dilation, padding.
        window: Window,
        /// Groups.
        groups: usize,
        /// Name of the weights.
        weight: String,
        /// Name of the bias.
        bias: Option<String>,
    },
    /// `W x + b` on a flat value `(I)`; `weight` is `(O, I)`, `bias` is `(O)`.
    Dense {
        /// Name of the weights.
        weight: String,
        /// Name of the bias.
        bias: Option<String>,
    },
    /// `x * mul + add`. Both tensors have one value, one a channel (`shape[0]`), or one an element.
    Affine {
        /// Name of the factor; absent for 1.
        mul: Option<String>,
        /// Name of the summand; absent for 0.
        add: Option<String>,
    },
    /// `max(x, 0)`.
    Relu,
    /// `min(max(x, min), max)`; either bound may be absent.
    Clip {
        /// Lower bound.
        min: Option<f32>,
        /// Upper bound.
        max: Option<f32>,
    },
    /// `x` where `x >= 0`, else `alpha * x`.
    LeakyRelu {
        /// Slope below zero.
        alpha: f32,
    },
    /// 1 where `x > 0`, else 0: a comparison that jumps. Its value has no fraction.
    Step,
    /// A smooth function of each value.
    Function {
        /// The function.
        function: Function,
    },
    /// `x * x`.
    Square,
    /// `inputs[0] * inputs[1]`, both computed. Either is broadcast along dimensions where it has
    /// size 1; both have the same number of dimensions.
    Multiply,
    /// `inputs[0] (P, M, K)` times `inputs[1] (P, K, N)`, both computed, for each of `P` parts.
    MatMul,
    /// Maximum over a window of each channel; padding never wins.
    MaxPool {
        /// The window.
        window: Window,
    },
    /// Mean over a window of each channel.
    AveragePool {
        /// The window.
        window: Window,
        /// True if padding counts in the divisor.
        count_include_pad: bool,
    },
    /// Mean over `(H, W)` of each channel; `(C, H, W)` to `(C, 1, 1)`.
    GlobalAveragePool,
    /// `inputs[0] + inputs[1]`, equal shapes.
    Add,
    /// The same values in another shape.
    Reshape,
    /// Zeros around: `before[d]` and `after[d]` for each dimension.
    Pad {
        /// Zeros before, a dimension.
        before: Vec<usize>,
        /// Zeros after, a dimension.
        after: Vec<usize>,
    },
    /// Concatenation of all inputs along `axis` (batch not counted).
    Concat {
        /// The dimension.
        axis: usize,
    },
    /// Output dimension `d` is input dimension `permutation[d]` (batch not counted).
    Transpose {
        /// The permutation.
        permutation: Vec<usize>,
    },
    /// Place `i` along `axis` is the input's place `indices[i]` (batch not counted).
    Take {
        /// The dimension.
        axis: usize,
        /// Places of the input, in any order, each any number of times.
        indices: Vec<usize>,
    },
    /// Only as the result, computed by the client in floating point, over the whole value.
    Softmax,
    /// Only as the result, computed by the client: index of the largest, over the whole value.
    ArgMax,
    /// Only as the result, computed by the client in floating point.
    Sigmoid,
    /// Only as the result, computed by the client in floating point, over one dimension at each
    /// place of the others.
    Along {
        /// The operation.
        of: Along,
        /// The dimension (batch not counted).
        axis: usize,
    },
    /// `exp(x)`, only as the result, computed by the client in floating point.
    Exp,
    /// `exp(x) - 1`, only as the result, computed by the client in floating point.
    ExpM1,
    /// Nothing: the values are probabilities, each from 0 to 1, and clients read them as such.
    Probabilities,
    /// The natural logarithm, only as the result, computed by the client in floating point.
    Log,
    /// The square root, only as the result, computed by the client in floating point.
    Sqrt,
    /// `x 2^e` with an exponent for each channel, only as the result, computed by the client.
    Scale {
        /// The exponents.
        exponents: Vec<i8>,
    },
}

impl Op {
    /// The operator's name in messages.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Input => "Input",
            Self::Conv { .. } => "Conv",
            Self::Dense { .. } => "Dense",
            Self::Affine { .. } => "Affine",
            Self::Relu => "Relu",
            Self::Clip { .. } => "Clip",
            Self::LeakyRelu { .. } => "LeakyRelu",
            Self::Step => "Step",
            Self::Function { function } => function.name(),
            Self::Square => "Square",
            Self::Multiply => "Multiply",
            Self::MatMul => "MatMul",
            Self::MaxPool { .. } => "MaxPool",
            Self::AveragePool { .. } => "AveragePool",
            Self::GlobalAveragePool => "GlobalAveragePool",
            Self::Add => "Add",
            Self::Reshape => "Reshape",
            Self::Pad { .. } => "Pad",
            Self::Concat { .. } => "Concat",
            Self::Transpose { .. } => "Transpose",
            Self::Take { .. } => "Take",
            Self::Softmax => "Softmax",
            Self::ArgMax => "ArgMax",
            Self::Sigmoid => "Sigmoid",
            Self::Along { of, .. } => match of {
                Along::Softmax => "Softmax",
                Along::LogSoftmax => "LogSoftmax",
                Along::ArgMax => "ArgMax",
                Along::Shares => "Normalizer",
            },
            Self::Exp => "Exp",
            Self::ExpM1 => "ExpM1",
            Self::Probabilities => "Probabilities",
            Self::Log => "Log",
            Self::Sqrt => "Sqrt",
            Self::Scale { .. } => "Scale",
        }
    }

    /// True if the client computes it on the result, in floating point.
    pub fn is_finish(&self) -> bool {
        matches!(
            self,
            Self::Softmax
                | Self::ArgMax
                | Self::Sigmoid
                | Self::Along { .. }
                | Self::Exp
                | Self::ExpM1
                | Self::Probabilities
                | Self::Log
                | Self::Sqrt
                | Self::Scale { .. }
        )
    }

    /// What the client computes of a value of this shape; `None` for an operator of the network, and
    /// for a dimension that the value has not.
    pub fn finish(&self, input: &[usize]) -> Option<Finish> {
        match self {
            Self::Softmax => Some(Finish::Softmax),
            Self::ArgMax => Some(Finish::ArgMax),
            Self::Sigmoid => Some(Finish::Sigmoid),
            Self::Along { of, axis } => Finish::along(*of, *axis, input),
            Self::Exp => Some(Finish::Exp),
            Self::ExpM1 => Some(Finish::ExpM1),
            Self::Probabilities => Some(Finish::Probabilities),
            Self::Log => Some(Finish::Log),
            Self::Sqrt => Some(Finish::Sqrt),
            Self::Scale { exponents } => Some(Finish::Scale {
                exponents: exponents.clone(),
            }),
            _ => None,
        }
    }

    /// True if it is a function of the shares that parties compute together.
    pub fn is_activation(&self) -> bool {
        matches!(
            self,
            Self::Relu
                | Self::Clip { .. }
                | Self::LeakyRelu { .. }
                | Self::Step
                | Self::Function { .. }
                | Self::Square
                | Self::MaxPool { .. }
        )
    }

    /// True if it multiplies two computed values.
    pub fn is_product(&self) -> bool {
        matches!(self, Self::Multiply | Self::MatMul)
    }

    /// True if it is a layer of secret weights.
    pub fn is_linear(&self) -> bool {
        matches!(
            self,
            Self::Conv { .. } | Self::Dense { .. } | Self::Affine { .. }
        )
    }

    /// Names of its tensors.
    pub fn tensors(&self) -> impl Iterator<Item = &str> {
        let names = match self {
            Self::Conv { weight, bias, .. } | Self::Dense { weight, bias } => {
                [Some(weight), bias.as_ref()]
            }
            Self::Affine { mul, add } => [mul.as_ref(), add.as_ref()],
            _ => [None, None],
        };
        names.into_iter().flatten().map(String::as_str)
    }
}

impl Graph {
    /// Whether it has functions of positive values, such as a root or an inverse: deviations and
    /// norms, most of them, whose tables end where samples do.
    pub fn has_positive_functions(&self) -> bool {
        self.nodes.iter().any(|node| {
            matches!(&node.op, Op::Function { function } if function.span() == Span::Positive)
        })
    }

    /// What the client computes at the end, in order.
    pub fn finish(&self) -> Vec<Finish> {
        let (_, tail) = self.tail();
        let node = |index: usize| &self.nodes[index];
        let of = |&index: &usize| node(index).op.finish(&node(node(index).inputs[0]).shape);
        tail.iter().filter_map(of).collect()
    }

    /// Where the part begins that the client computes in floating point: the value before the first
    /// of its operators ([`Op::is_finish`]) on the way to the output, or the output itself; and
    /// those operators' nodes in order, with any `Reshape` between or after them.
    pub fn tail(&self) -> (usize, Vec<usize>) {
        let (mut value, mut nodes) = (self.output, Vec::new());
        while let Node { op, inputs, .. } = &self.nodes[value]
            && let ([input], true) = (inputs.as_slice(), op.is_finish() || *op == Op::Reshape)
        {
            nodes.push(value);
            value = *input;
        }
        // Reshapes before the first of them belong to the network.
        while let Some(&last) = nodes.last()
            && !self.nodes[last].op.is_finish()
        {
            value = last;
            nodes.pop();
        }
        nodes.reverse();
        (value, nodes)
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

    /// The nodes that read value `index`, with their places.
    pub fn readers(&self, index: usize) -> impl Iterator<Item = (usize, &Node)> {
        let nodes = self.nodes.iter().enumerate();
        nodes.filter(move |(_, node)| node.inputs.contains(&index))
    }

    /// Whether none but steps read value `index`.
    pub(crate) fn feeds_steps_alone(&self, index: usize) -> bool {
        let mut readers = self.readers(index);
        self.output != index && readers.all(|(_, reader)| reader.op == Op::Step)
    }

    /// Elements of one input.
    pub fn input_len(&self) -> usize {
        self.nodes[0].shape.iter().product()
    }

    /// The data of the tensor `name`, which must exist.
    pub(crate) fn data(&self, name: &str) -> &[f32] {
        &self.tensors[name].data
    }
}
