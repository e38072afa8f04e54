//! Checks of a whole fixed-point graph.

use thiserror::Error;

use super::{FixedGraph, FixedNode, FixedOp, Interval, ValueSpec};
use crate::shape::{self, OperatorError};

/// Why a fixed-point graph is not one.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum FixedError {
    /// No nodes, an input that is not the first node, or a result that does not exist.
    #[error("the fixed-point graph {model}: {reason}")]
    Graph {
        /// Name of the model.
        model: String,
        /// The reason.
        reason: &'static str,
    },
    /// A node reads a value that does not exist yet.
    #[error("node {index} ({name}) reads value {input}, but only values before it exist")]
    Order {
        /// Index of the node.
        index: usize,
        /// Its name.
        name: String,
        /// What it reads.
        input: usize,
    },
    /// An operator does not go with its inputs.
    #[error("node {index} ({name}): {source}")]
    Operator {
        /// Index of the node.
        index: usize,
        /// Its name.
        name: String,
        /// The reason.
        source: Box<OperatorError>,
    },
    /// A value can leave its range.
    #[error("node {index} ({name}) has values in {low}..={high}, outside its range {value:?}")]
    Range {
        /// Index of the node.
        index: usize,
        /// Its name.
        name: String,
        /// Smallest.
        low: i64,
        /// Largest.
        high: i64,
        /// What is declared.
        value: Box<ValueSpec>,
    },
}

impl FixedGraph {
    /// Checks order, shapes and ranges, all derived anew.
    ///
    /// # Errors
    /// When something is not as the types' documentation says.
    pub fn validate(&self) -> Result<(), FixedError> {
        let graph = |reason| FixedError::Graph {
            model: self.name.clone(),
            reason,
        };
        if self.output >= self.nodes.len() {
            return Err(graph("its result does not exist"));
        }
        for (index, node) in self.nodes.iter().enumerate() {
            if (index == 0) != (node.op == FixedOp::Input) {
                return Err(graph("its first node must be the input, and no other"));
            }
            if let Some(&input) = node.inputs.iter().find(|&&input| input >= index) {
                return Err(FixedError::Order {
                    index,
                    name: node.name.clone(),
                    input,
                });
            }
            let found = self.bounds(node).map_err(|source| FixedError::Operator {
                index,
                name: node.name.clone(),
                source: Box::new(source),
            })?;
            if !Interval::of(&node.value).contains(found) {
                let (name, value) = (node.name.clone(), Box::new(node.value.clone()));
                let Interval { low, high } = found;
                return Err(FixedError::Range {
                    index,
                    name,
                    low,
                    high,
                    value,
                });
            }
        }
        Ok(())
    }

    /// The range of a node's value from the ranges of its inputs.
    pub(crate) fn bounds(&self, node: &FixedNode) -> Result<Interval, OperatorError> {
        let inputs: Vec<&ValueSpec> = node.inputs.iter().map(|&i| &self.nodes[i].value).collect();
        let shape = &node.value.shape;
        match &node.op {
            FixedOp::Input => {
                shape::elements(shape)?;
                if !inputs.is_empty() {
                    return Err(OperatorError::Inputs {
                        expected: "0",
                        found: inputs.len(),
                    });
                }
                Ok(Interval::of(&node.value))
            }
            FixedOp::Linear(linear) | FixedOp::Constants(linear) => {
                linear.bounds(shape::one(&inputs)?, shape)
            }
            FixedOp::Local(op) => op.bounds(&inputs, shape),
            FixedOp::Activation(op) => op.bounds(shape::one(&inputs)?, shape),
            FixedOp::Product => super::product_bounds(&inputs, shape),
            FixedOp::MatMul => super::matrix_product_bounds(&inputs, shape),
            FixedOp::ArgMax => super::argmax_bounds(&inputs, shape),
        }
    }
}
