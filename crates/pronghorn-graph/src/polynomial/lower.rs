//! From a floating-point graph to a polynomial one.

use super::{Factor, Layer, PolyGraph, PolyNode, PolyOp, PolynomialError};
use crate::{
    float::Profile,
    geometry::{ConvGeometry, Window},
    graph::{Graph, Node, Op},
    layout::{self, Source},
    matrices::Matrices,
    shape::OperatorError,
};

/// Most products of two values on ciphertexts that a product of matrices takes: each is a value.
const MOST_PRODUCTS: usize = 1 << 20;

/// The polynomial form of `graph`, whose values look like `profile` on samples; weights of node `i`
/// are integers of `weight_bits[i]` bits, sign included (2 to 15); all ranges but the input's are
/// widened by `margin`.
///
/// Run [`crate::passes::run`] before, and profile its result.
///
/// # Errors
/// When the graph is broken, or a node is no polynomial.
pub fn lower(
    graph: &Graph,
    profile: &Profile,
    weight_bits: &[u32],
    margin: f32,
) -> Result<PolyGraph, PolynomialError> {
    if let Some(&weight_bits) = weight_bits.iter().find(|bits| !(2..=15).contains(*bits)) {
        return Err(PolynomialError::WeightBits { weight_bits });
    }
    lowered(graph, profile, weight_bits, margin)
}

/// As [`lower`], with weights of [`FINE_WEIGHT_BITS`] bits, for networks whose weights are
/// encrypted too: there large integers cost nothing.
///
/// # Errors
/// When the graph is broken, or a node is no polynomial.
pub fn lower_finely(
    graph: &Graph,
    profile: &Profile,
    margin: f32,
) -> Result<PolyGraph, PolynomialError> {
    let weight_bits = vec![FINE_WEIGHT_BITS; graph.nodes.len()];
    lowered(graph, profile, &weight_bits, margin)
}

/// Bits of weights, sign included, that lose nothing of a layer's `f32` but where the largest is
/// 2^29 times as large: of raw features, some weights are a million times others.
pub const FINE_WEIGHT_BITS: u32 = 54;

fn lowered(
    graph: &Graph,
    profile: &Profile,
    weight_bits: &[u32],
    margin: f32,
) -> Result<PolyGraph, PolynomialError> {
    graph.validate()?;
    let (result, tail) = graph.tail();
    let mut lowering = Lowering {
        graph,
        weight_bits: 0,
        nodes: Vec::with_capacity(graph.nodes.len()),
    };
    let mut value_of = vec![0; graph.nodes.len()];
    for (index, node) in graph.nodes.iter().enumerate() {
        if tail.contains(&index) {
            continue;
        }
        let seen = &profile.values[index];
        let most = f64::from(seen.min).abs().max(f64::from(seen.max).abs());
        let wider = match node.op {
            Op::Input => 1.0,
            _ => f64::from(margin),
        };
        let look = Look {
            reach: most * wider,
            rms: seen.mean_square.sqrt(),
        };
        let inputs: Vec<usize> = node.inputs.iter().map(|&input| value_of[input]).collect();
        lowering.weight_bits = weight_bits[index];
        value_of[index] = lowering.node(node, inputs, look)?;
    }
    let reach = lowering.nodes.first().map_or(0.0, |input| input.reach);
    Ok(PolyGraph {
        low: if profile.values[0].min >= 0.0 {
            0.0
        } else {
            -reach
        },
        name: graph.name.clone(),
        nodes: lowering.nodes,
        output: value_of[result],
        finish: graph.finish(),
        class_names: Vec::new(),
    })
}

/// Statistics of a value on samples.
#[derive(Clone, Copy)]
struct Look {
    reach: f64,
    rms: f64,
}

struct Lowering<'a> {
    graph: &'a Graph,
    /// Of the node that is being lowered.
    weight_bits: u32,
    nodes: Vec<PolyNode>,
}

impl Lowering<'_> {
    /// Adds the form of `node`; the index of its value.
    fn node(
        &mut self,
        node: &Node,
        inputs: Vec<usize>,
        look: Look,
    ) -> Result<usize, PolynomialError> {
        let op = match &node.op {
            Op::Input => PolyOp::Input,
            Op::Conv {
                window,
                groups,
                weight,
                bias,
            } => {
                let (in_channels, input) = self.image(inputs[0]);
                let geometry = ConvGeometry {
                    in_channels,
                    out_channels: node.shape[0],
                    input,
                    window: window.clone(),
                    groups: *groups,
                };
                PolyOp::Linear(self.layer(geometry, weight, bias.as_ref()))
            }
            Op::Dense { weight, bias } => {
                let geometry = ConvGeometry::dense(self.nodes[inputs[0]].len(), node.shape[0]);
                PolyOp::Linear(self.layer(geometry, weight, bias.as_ref()))
            }
            Op::Affine { mul, add } => {
                let constants = |name: &Option<String>, absent: f32| {
                    let data = name.as_ref().map_or(&[][..], |name| self.graph.data(name));
                    spread(data, absent, node.shape.iter().product())
                };
                PolyOp::Factor(self.factor(&constants(mul, 1.0), &constants(add, 0.0)))
            }
            Op::Square => PolyOp::Square,
            Op::Multiply if inputs[0] == inputs[1] => {
                return Ok(self.push(node, PolyOp::Square, vec![inputs[0]], look));
            }
            Op::Multiply => {
                let inputs = inputs.into_iter();
                let inputs = inputs.map(|input| self.broadcast(node, input)).collect();
                return Ok(self.push(node, PolyOp::Multiply, inputs, look));
            }
            Op::MatMul => return self.matrices(node, [inputs[0], inputs[1]], look),
            Op::Add => PolyOp::Add,
            Op::AveragePool {
                window,
                count_include_pad,
            } => return Ok(self.average(node, window, *count_include_pad, inputs, look)),
            Op::GlobalAveragePool => {
                let (_, size) = self.image(inputs[0]);
                return Ok(self.average(node, &Window::plain(size), true, inputs, look));
            }
            Op::Reshape
            | Op::Pad { .. }
            | Op::Concat { .. }
            | Op::Transpose { .. }
            | Op::Take { .. } => PolyOp::Rearrange(self.sources(node, &inputs)),
            Op::Relu
            | Op::Clip { .. }
            | Op::LeakyRelu { .. }
            | Op::Step
            | Op::Function { .. }
            | Op::MaxPool { .. }
            | Op::Softmax
            | Op::ArgMax
            | Op::Sigmoid
            | Op::Along { .. }
            | Op::Exp
            | Op::ExpM1
            | Op::Probabilities
            | Op::Log
            | Op::Sqrt
            | Op::Scale { .. } => {
                return Err(PolynomialError::NotPolynomial {
                    node: node.name.clone(),
                    operator: node.op.name(),
                    shape: node.shape.clone(),
                });
            }
        };
        Ok(self.push(node, op, inputs, look))
    }

    /// The element of its inputs that each element of a rearrangement copies; `None` is zero.
    fn sources(&self, node: &Node, inputs: &[usize]) -> Vec<Option<Source>> {
        let shape = |input: usize| self.nodes[inputs[input]].shape.as_slice();
        match &node.op {
            Op::Pad { before, after } => {
                let sources = layout::pad(shape(0), before, after).into_iter();
                let copy = |index: Option<usize>| index.map(|index| Source { input: 0, index });
                sources.map(copy).collect()
            }
            Op::Concat { axis } => {
                let shapes: Vec<&[usize]> = (0..inputs.len()).map(shape).collect();
                let sources = layout::concat(&shapes, *axis).into_iter();
                sources.map(Some).collect()
            }
            Op::Transpose { permutation } => copies(layout::transpose(shape(0), permutation)),
            Op::Take { axis, indices } => copies(layout::take(shape(0), *axis, indices)),
            _ => copies(0..node.shape.iter().product()),
        }
    }

    /// A value in the shape of `node`, repeated where it has size 1.
    fn broadcast(&mut self, node: &Node, input: usize) -> usize {
        let value = &self.nodes[input];
        if value.shape == node.shape {
            return input;
        }
        let look = Look {
            reach: value.reach,
            rms: value.rms,
        };
        let sources = copies(layout::broadcast(&value.shape, &node.shape));
        self.push(node, PolyOp::Rearrange(sources), vec![input], look)
    }

    /// A product of matrices: all products of two values, and a layer of ones that adds them up.
    fn matrices(
        &mut self,
        node: &Node,
        inputs: [usize; 2],
        look: Look,
    ) -> Result<usize, PolynomialError> {
        let [left, right] = inputs.map(|input| &self.nodes[input]);
        let refuse = |source| PolynomialError::Operator {
            node: node.name.clone(),
            operator: node.op.name(),
            shape: node.shape.clone(),
            source: Box::new(source),
        };
        let matrices = Matrices::of(&left.shape, &right.shape).map_err(refuse)?;
        let Matrices {
            parts,
            rows,
            inner,
            columns,
        } = matrices;
        if matrices.products() > MOST_PRODUCTS {
            let most = format!("at most {MOST_PRODUCTS} on ciphertexts");
            let products = matrices.products();
            return Err(refuse(OperatorError::parameter(
                "the number of products",
                products,
                most,
            )));
        }
        let pair = Look {
            reach: left.reach * right.reach,
            rms: left.rms * right.rms,
        };
        let places = (0..parts * rows).flat_map(|row| (0..columns).map(move |at| (row, at)));
        let places = places.flat_map(|(row, at)| (0..inner).map(move |step| (row, at, step)));
        let first = places.clone().map(|(row, _, step)| row * inner + step);
        let second = places.map(|(row, at, step)| (row / rows * inner + step) * columns + at);
        let factors = [copies(first), copies(second)];
        let expanded = Node {
            shape: vec![parts * rows, columns, inner],
            ..node.clone()
        };
        let mut products = Vec::new();
        for (input, sources) in inputs.into_iter().zip(factors) {
            let value = &self.nodes[input];
            let look = Look {
                reach: value.reach,
                rms: value.rms,
            };
            products.push(self.push(&expanded, PolyOp::Rearrange(sources), vec![input], look));
        }
        let products = self.push(&expanded, PolyOp::Multiply, products, pair);
        let ones = Layer {
            geometry: ConvGeometry {
                in_channels: parts * rows,
                out_channels: parts * rows,
                input: [columns, inner],
                window: Window::plain([1, inner]),
                groups: parts * rows,
            },
            weights: vec![1.0; parts * rows * inner],
            divisor: 1.0,
            bias: vec![0.0; parts * rows],
        };
        Ok(self.push(node, PolyOp::Linear(ones), vec![products], look))
    }

    fn push(&mut self, node: &Node, op: PolyOp, inputs: Vec<usize>, look: Look) -> usize {
        self.nodes.push(PolyNode {
            name: node.name.clone(),
            op,
            inputs,
            shape: node.shape.clone(),
            reach: look.reach,
            rms: look.rms,
        });
        self.nodes.len() - 1
    }

    /// Channels, height and width of a value that is an image.
    fn image(&self, value: usize) -> (usize, [usize; 2]) {
        let shape = &self.nodes[value].shape;
        (shape[0], [shape[1], shape[2]])
    }

    fn layer(&self, geometry: ConvGeometry, weight: &str, bias: Option<&String>) -> Layer {
        let (weights, divisor) = integers(self.graph.data(weight), self.weight_bits);
        let data = bias.map_or(&[][..], |bias| self.graph.data(bias));
        let bias = spread(data, 0.0, geometry.out_channels);
        Layer {
            geometry,
            weights,
            divisor,
            bias: bias.into_iter().map(f64::from).collect(),
        }
    }

    fn factor(&self, factors: &[f32], addends: &[f32]) -> Factor {
        let (factors, divisor) = integers(factors, self.weight_bits);
        Factor {
            factors,
            divisor,
            addends: addends.iter().map(|&addend| addend.into()).collect(),
        }
    }

    /// A mean over windows: a layer of ones, and factors where windows at the border count fewer
    /// elements.
    fn average(
        &mut self,
        node: &Node,
        window: &Window,
        count_include_pad: bool,
        inputs: Vec<usize>,
        look: Look,
    ) -> usize {
        let (channels, size) = self.image(inputs[0]);
        let area = window.kernel[0] * window.kernel[1];
        let geometry = ConvGeometry {
            in_channels: channels,
            out_channels: channels,
            input: size,
            window: window.clone(),
            groups: channels,
        };
        let ones = Layer {
            geometry,
            weights: vec![1.0; channels * area],
            divisor: area as f64,
            bias: vec![0.0; channels],
        };
        let (_, [height, width]) = (node.shape[0], [node.shape[1], node.shape[2]]);
        let taps = |axis: usize, at: usize| window.taps(axis, at, size[axis]).len();
        let counts: Vec<f32> = (0..height * width)
            .map(|at| (taps(0, at / width) * taps(1, at % width)) as f32)
            .collect();
        let sum = self.push(node, PolyOp::Linear(ones), inputs, look);
        if count_include_pad || counts.iter().all(|&count| count as usize == area) {
            return sum;
        }
        let factors: Vec<f32> = (0..channels)
            .flat_map(|_| counts.iter().map(|count| area as f32 / count))
            .collect();
        let factor = self.factor(&factors, &vec![0.0; factors.len()]);
        self.push(node, PolyOp::Factor(factor), vec![sum], look)
    }
}

/// Sources that copy these elements of the only input.
fn copies(indices: impl IntoIterator<Item = usize>) -> Vec<Option<Source>> {
    let from = |index| Some(Source { input: 0, index });
    indices.into_iter().map(from).collect()
}

/// One constant an element, from none (`absent`), one, one a channel, or one an element.
fn spread(constants: &[f32], absent: f32, elements: usize) -> Vec<f32> {
    if constants.is_empty() {
        return vec![absent; elements];
    }
    let run = elements / constants.len();
    constants
        .iter()
        .flat_map(|&constant| std::iter::repeat_n(constant, run))
        .collect()
}

/// Integers of `bits` bits and the power of two that they are multiples of the inverse of. Divided
/// by their greatest common divisor: constants that are few small integers cost no scale.
fn integers(constants: &[f32], bits: u32) -> (Vec<f64>, f64) {
    let most = constants
        .iter()
        .fold(0.0, |most: f64, &x| most.max(f64::from(x).abs()));
    if most == 0.0 {
        return (vec![0.0; constants.len()], 1.0);
    }
    let limit = ((1i64 << (bits - 1)) - 1) as f64;
    let mut fraction = (limit / most).log2().floor() as i32;
    // Where the largest rounds up to one more bit than the limit has.
    while (most * f64::from(fraction).exp2()).round() > limit {
        fraction -= 1;
    }
    let scale = f64::from(fraction).exp2();
    let integers: Vec<i64> = constants
        .iter()
        .map(|&x| (f64::from(x) * scale).round() as i64)
        .collect();
    let shift = integers
        .iter()
        .filter(|&&x| x != 0)
        .map(|x| x.trailing_zeros())
        .min()
        .unwrap_or(0);
    let integers = integers.iter().map(|x| (x >> shift) as f64).collect();
    (integers, scale / f64::from(shift).exp2())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_are_exact_where_they_can_be() {
        assert_eq!(integers(&[1.0, -1.0, 0.0], 8), (vec![1.0, -1.0, 0.0], 1.0));
        assert_eq!(integers(&[0.5, 0.25], 8), (vec![2.0, 1.0], 4.0));
        assert_eq!(integers(&[0.0], 8), (vec![0.0], 1.0));
        let (found, divisor) = integers(&[0.3, -0.7], 8);
        assert_eq!((found, divisor), (vec![19.0, -45.0], 64.0));
        // Weights of single precision are exact beside much larger ones.
        let (found, divisor) = integers(&[1e6, 1.0 / 3.0], FINE_WEIGHT_BITS);
        assert_eq!(found[1] / divisor, f64::from(1.0f32 / 3.0));
        // 127.6 would round to 128: one bit less.
        assert_eq!(integers(&[127.6], 8), (vec![1.0], 1.0 / 128.0));
    }
}
