//! Whether a polynomial network from a file is one.

use super::{Factor, Layer, PolyGraph, PolyNode, PolyOp};
use crate::geometry::count;

impl PolyGraph {
    /// Whether inputs come before their nodes, and operators, constants and shapes go together: then
    /// the network can be evaluated.
    pub fn is_sound(&self) -> bool {
        let is_input = |node: &PolyNode| matches!(node.op, PolyOp::Input);
        let mut nodes = self.nodes.iter().enumerate();
        let first = nodes.next();
        let first = first.is_some_and(|(_, node)| is_input(node) && node.inputs.is_empty());
        let in_order = |(index, node): (usize, &PolyNode)| {
            !is_input(node) && node.inputs.iter().all(|&input| input < index)
        };
        first
            && self.output < self.nodes.len()
            && nodes.all(in_order)
            && self.nodes.iter().all(|node| self.fits(node))
    }

    /// Whether a node goes with its inputs, which come before it.
    fn fits(&self, node: &PolyNode) -> bool {
        let length = match count("value", &node.shape) {
            Ok(length) if length > 0 => length,
            _ => return false,
        };
        let inputs: Vec<usize> = node
            .inputs
            .iter()
            .map(|&input| self.nodes[input].len())
            .collect();
        match (&node.op, &inputs[..]) {
            (PolyOp::Input, []) => true,
            (PolyOp::Linear(layer), &[input]) => layer.fits(input, length),
            (PolyOp::Factor(factor), &[input]) => factor.fits(input, length),
            (PolyOp::Square, &[input]) => input == length,
            (PolyOp::Multiply | PolyOp::Add, inputs @ [_, _]) => {
                inputs.iter().all(|&input| input == length)
            }
            (PolyOp::Rearrange(sources), inputs) => {
                let within = sources.iter().flatten().all(|source| {
                    inputs
                        .get(source.input)
                        .is_some_and(|&input| source.index < input)
                });
                sources.len() == length && within
            }
            _ => false,
        }
    }
}

impl Layer {
    fn fits(&self, input: usize, output: usize) -> bool {
        let geometry = &self.geometry;
        let Ok([height, width]) = geometry.output() else {
            return false;
        };
        let [rows, columns] = geometry.input;
        let lengths = [
            count("input", &[geometry.in_channels, rows, columns]),
            count("value", &[geometry.out_channels, height, width]),
        ];
        lengths == [Ok(input), Ok(output)]
            && self.weights.len() == geometry.weights_len()
            && self.bias.len() == geometry.out_channels
            && self.weights.iter().copied().all(is_weight)
            && is_divisor(self.divisor)
    }
}

impl Factor {
    fn fits(&self, input: usize, output: usize) -> bool {
        let lengths = [input, self.factors.len(), self.addends.len()];
        lengths.iter().all(|&length| length == output)
            && self.factors.iter().copied().all(is_weight)
            && is_divisor(self.divisor)
    }
}

/// Whether a weight is an integer, of those that doubles hold exactly.
fn is_weight(weight: f64) -> bool {
    weight.fract() == 0.0 && weight.abs() < f64::from(f64::MANTISSA_DIGITS).exp2()
}

fn is_divisor(divisor: f64) -> bool {
    divisor.is_normal() && divisor > 0.0
}
