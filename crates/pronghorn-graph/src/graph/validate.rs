//! Reading a graph, and checking it: nothing after this meets a shape that does not fit.

use std::collections::BTreeMap;

use thiserror::Error;

use super::{Graph, Op, Tensor};
use crate::shape::{self, OperatorError};

/// Why a graph is not one Pronghorn can run.
#[derive(Debug, Error)]
pub enum GraphError {
    /// Not the JSON of a graph.
    #[error("the model's graph is not readable: {0}; export the model again with this version")]
    Json(#[from] serde_json::Error),
    /// No nodes.
    #[error("the model {model} has no nodes")]
    Empty {
        /// Name of the model.
        model: String,
    },
    /// The result is no value of the graph.
    #[error("the model's output is value {output}, but it has only {nodes} nodes")]
    Output {
        /// The value named.
        output: usize,
        /// Number of nodes.
        nodes: usize,
    },
    /// Not exactly one input, or not first.
    #[error(
        "node {index} ({node}, {operator}): a model has exactly one input, its first node; \
         cut the model so that one input is left"
    )]
    Input {
        /// Index of the node.
        index: usize,
        /// Its name.
        node: String,
        /// Its operator.
        operator: &'static str,
    },
    /// A node that reads a value not made before it.
    #[error(
        "node {index} ({node}, {operator}) reads value {input}; nodes must come in topological order"
    )]
    Order {
        /// Index of the node.
        index: usize,
        /// Its name.
        node: String,
        /// Its operator.
        operator: &'static str,
        /// The value it reads.
        input: usize,
    },
    /// An operator that does not go with its inputs, its weights or its declared shape.
    #[error("node {index} ({node}, {operator}, shape {shape:?}): {source}")]
    Operator {
        /// Index of the node.
        index: usize,
        /// Its name.
        node: String,
        /// Its operator.
        operator: &'static str,
        /// Its declared shape.
        shape: Vec<usize>,
        /// The reason.
        source: Box<OperatorError>,
    },
    /// An operator that only the client can compute, in the middle.
    #[error(
        "node {index} ({node}, {operator}, shape {shape:?}) is supported only at the end of a model, \
         where the client computes it: cut the model after its input, or replace it"
    )]
    NotLast {
        /// Index of the node.
        index: usize,
        /// Its name.
        node: String,
        /// Its operator.
        operator: &'static str,
        /// Its shape.
        shape: Vec<usize>,
    },
    /// A tensor with the wrong number of values.
    #[error("tensor {tensor} of shape {shape:?} has {found} values")]
    TensorLength {
        /// Name of the tensor.
        tensor: String,
        /// Its shape.
        shape: Vec<usize>,
        /// Values it has.
        found: usize,
    },
    /// A weight that is no number.
    #[error("tensor {tensor} holds {value} at position {position}: weights must be finite")]
    NotFinite {
        /// Name of the tensor.
        tensor: String,
        /// The value.
        position: usize,
        /// The value.
        value: f32,
    },
}

impl Graph {
    /// Reads the importer's JSON and validates the graph with its weights.
    ///
    /// # Errors
    /// When the JSON is not a graph, or [`Graph::validate`] says so.
    pub fn from_json(json: &str, tensors: BTreeMap<String, Tensor>) -> Result<Self, GraphError> {
        let graph = Self {
            tensors,
            ..serde_json::from_str(json)?
        };
        graph.validate()?;
        Ok(graph)
    }

    /// Checks everything the types' documentation says: order, one input, arity, tensors and their
    /// shapes, every node's shape against what its operator computes, sizes, and that
    /// `Softmax`, `ArgMax` and `Sigmoid` come last.
    ///
    /// # Errors
    /// Names the node, its operator and shape, and what to do.
    pub fn validate(&self) -> Result<(), GraphError> {
        self.validate_tensors()?;
        if self.nodes.is_empty() {
            return Err(GraphError::Empty {
                model: self.name.clone(),
            });
        }
        if self.output >= self.nodes.len() {
            return Err(GraphError::Output {
                output: self.output,
                nodes: self.nodes.len(),
            });
        }
        (0..self.nodes.len()).try_for_each(|index| self.validate_node(index))?;
        self.validate_tail()
    }

    fn validate_tensors(&self) -> Result<(), GraphError> {
        for (name, Tensor { shape, data }) in &self.tensors {
            // Zero-sized tensors are no weights, and an empty shape is a scalar.
            if shape::elements(shape).ok() != Some(data.len()) {
                let (tensor, shape, found) = (name.clone(), shape.clone(), data.len());
                return Err(GraphError::TensorLength {
                    tensor,
                    shape,
                    found,
                });
            }
            if let Some(position) = data.iter().position(|value| !value.is_finite()) {
                let (tensor, value) = (name.clone(), data[position]);
                return Err(GraphError::NotFinite {
                    tensor,
                    position,
                    value,
                });
            }
        }
        Ok(())
    }

    fn validate_node(&self, index: usize) -> Result<(), GraphError> {
        let node = &self.nodes[index];
        let (name, operator) = (|| node.name.clone(), node.op.name());
        if (index == 0) != (node.op == Op::Input) {
            return Err(GraphError::Input {
                index,
                node: name(),
                operator,
            });
        }
        if let Some(&input) = node.inputs.iter().find(|&&input| input >= index) {
            return Err(GraphError::Order {
                index,
                node: name(),
                operator,
                input,
            });
        }
        let wrong = |source| GraphError::Operator {
            index,
            node: name(),
            operator,
            shape: node.shape.clone(),
            source: Box::new(source),
        };
        shape::elements(&node.shape).map_err(wrong)?;
        let inputs: Vec<&[usize]> = node
            .inputs
            .iter()
            .map(|&input| self.nodes[input].shape.as_slice())
            .collect();
        let expected = node
            .op
            .infer(&inputs, &node.shape, &self.tensors)
            .map_err(wrong)?;
        if expected != node.shape {
            return Err(wrong(OperatorError::OutputShape {
                expected,
                found: node.shape.clone(),
            }));
        }
        Ok(())
    }

    fn validate_tail(&self) -> Result<(), GraphError> {
        let (_, tail) = self.tail();
        let uses = self.uses();
        for (index, node) in self.nodes.iter().enumerate() {
            if node.op.is_finish() && (!tail.contains(&index) || uses[index] != 1) {
                return Err(GraphError::NotLast {
                    index,
                    node: node.name.clone(),
                    operator: node.op.name(),
                    shape: node.shape.clone(),
                });
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tensor(shape: &[usize]) -> Tensor {
        Tensor::new(shape, vec![0.5; shape.iter().product()])
    }

    fn tensors() -> BTreeMap<String, Tensor> {
        [
            ("w", tensor(&[3, 1, 2, 2])),
            ("b", tensor(&[3])),
            ("d", tensor(&[2, 12])),
        ]
        .map(|(name, tensor)| (name.to_owned(), tensor))
        .into()
    }

    fn json(nodes: &[&str], output: usize) -> String {
        format!(
            r#"{{"name":"m","output":{output},"nodes":[{}]}}"#,
            nodes.join(",")
        )
    }

    const INPUT: &str = r#"{"name":"x","op":{"kind":"input"},"inputs":[],"shape":[1,5,5]}"#;
    const CONV: &str = r#"{"name":"c","op":{"kind":"conv","window":{"kernel":[2,2],
        "stride":[2,2],"dilation":[1,1],"padding":[0,0,0,0]},"groups":1,"weight":"w","bias":"b"},
        "inputs":[0],"shape":[3,2,2]}"#;
    const FLAT: &str = r#"{"name":"f","op":{"kind":"reshape"},"inputs":[1],"shape":[12]}"#;
    const DENSE: &str = r#"{"name":"d","op":{"kind":"dense","weight":"d","bias":null},
        "inputs":[2],"shape":[2]}"#;
    const SOFTMAX: &str = r#"{"name":"s","op":{"kind":"softmax"},"inputs":[3],"shape":[2]}"#;
    const ARG_MAX: &str = r#"{"name":"a","op":{"kind":"arg_max"},"inputs":[4],"shape":[]}"#;

    fn error(nodes: &[&str], output: usize) -> String {
        Graph::from_json(&json(nodes, output), tensors())
            .unwrap_err()
            .to_string()
    }

    #[test]
    fn a_good_graph() {
        let nodes = [INPUT, CONV, FLAT, DENSE, SOFTMAX, ARG_MAX];
        let graph = Graph::from_json(&json(&nodes, 5), tensors()).unwrap();
        assert_eq!(graph.tail(), (3, vec![4, 5]));
        // The reshape belongs to the network.
        let graph = Graph::from_json(&json(&nodes[..3], 2), tensors()).unwrap();
        assert_eq!(graph.tail(), (2, vec![]));
    }

    #[test]
    fn errors_name_the_node_and_what_is_wrong() {
        let shape = CONV.replace("[3,2,2]", "[3,3,2]");
        let message = error(&[INPUT, &shape], 1);
        assert!(message.contains("(c, Conv, shape [3, 3, 2])"), "{message}");
        assert!(message.contains("computes [3, 2, 2]"), "{message}");
        let missing = CONV.replace("\"w\"", "\"absent\"");
        assert!(error(&[INPUT, &missing], 1).contains("absent"));
        let kernel = CONV.replace("\"kernel\":[2,2]", "\"kernel\":[9,2]");
        assert!(error(&[INPUT, &kernel], 1).contains("the kernel spans 9 of height"));
        let zero = CONV.replace("\"stride\":[2,2]", "\"stride\":[0,2]");
        assert!(error(&[INPUT, &zero], 1).contains("stride is 0"));
        let groups = CONV.replace("\"groups\":1", "\"groups\":0");
        assert!(error(&[INPUT, &groups], 1).contains("groups is 0"));
    }

    #[test]
    fn order_and_input() {
        let ahead = CONV.replace("\"inputs\":[0]", "\"inputs\":[1]");
        assert!(error(&[INPUT, &ahead], 1).contains("reads value 1"));
        assert!(error(&[CONV], 0).contains("exactly one input"));
        assert!(error(&[INPUT, INPUT], 1).contains("exactly one input"));
        assert!(error(&[INPUT], 7).contains("output is value 7"));
        assert!(error(&[], 0).contains("no nodes"));
        let two = CONV.replace("\"inputs\":[0]", "\"inputs\":[0,0]");
        assert!(error(&[INPUT, &two], 1).contains("it has 2 inputs, but takes 1"));
        assert!(error(&["{}"], 0).contains("not readable"));
    }

    #[test]
    fn softmax_only_at_the_end() {
        let early = r#"{"name":"s","op":{"kind":"softmax"},"inputs":[0],"shape":[1,5,5]}"#;
        let relu = r#"{"name":"r","op":{"kind":"relu"},"inputs":[1],"shape":[1,5,5]}"#;
        assert!(error(&[INPUT, early, relu], 2).contains("(s, Softmax, shape [1, 5, 5])"));
        assert!(error(&[INPUT, early], 0).contains("only at the end"));
    }

    #[test]
    fn tensors_are_whole_and_finite() {
        let mut wrong = tensors();
        wrong.insert("w".into(), Tensor::new([usize::MAX, 2], vec![]));
        let message = Graph::from_json(&json(&[INPUT], 0), wrong)
            .unwrap_err()
            .to_string();
        assert!(message.contains("tensor w"), "{message}");
        let mut wrong = tensors();
        wrong.get_mut("b").unwrap().data_mut()[1] = f32::NAN;
        let message = Graph::from_json(&json(&[INPUT], 0), wrong)
            .unwrap_err()
            .to_string();
        assert!(
            message.contains("tensor b holds NaN at position 1"),
            "{message}"
        );
    }
}
