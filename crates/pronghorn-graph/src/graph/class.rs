//! Classifiers whose result is the class alone.

use thiserror::Error;

use super::{Graph, Node, Op, Tensor};
use crate::{
    finish::{Finish, ends_in_class},
    passes,
};

/// Why the result of a network is no class.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ClassError {
    /// Several labels, each with a probability of its own.
    #[error(
        "the model ends in {labels} labels that each hold or not, of which no class is one: open its values \
         (--opening values, opening='values')"
    )]
    Labels {
        /// How many.
        labels: usize,
    },
    /// Values that are no row.
    #[error(
        "the model's output has shape {shape:?}, and a class is one of a row of values: open its values \
         (--opening values, opening='values'), or cut the model at a row (--output NAME, output=NAME)"
    )]
    Shape {
        /// The output's shape.
        shape: Vec<usize>,
    },
    /// More follows the class.
    #[error("the model goes on after its ArgMax: cut it there (--output NAME, output=NAME)")]
    GoesOn,
}

impl Graph {
    /// Whether the result is the index of the largest value.
    pub fn ends_in_class(&self) -> bool {
        let (value, _) = self.tail();
        let count = self.nodes[value].shape.iter().product();
        ends_in_class(&self.finish(), count)
    }

    /// The network whose result is the class: the index of the largest of a row of values, the
    /// smallest of equal ones. One value, or one probability, is class 1 where it is above 0, or
    /// 0.5, and else class 0.
    ///
    /// # Errors
    /// [`ClassError`] for labels and maps.
    pub fn with_class(&self) -> Result<Self, ClassError> {
        self.check_class(&self.finish())?;
        if self.ends_in_class() {
            return Ok(self.clone());
        }
        let (value, tail) = self.tail();
        let (finish, shape) = (self.finish(), &self.nodes[value].shape);
        let count: usize = shape.iter().product();
        let mut graph = self.clone();
        if count == 1 && !finish.iter().any(|op| op.is_softmax()) {
            // Its sign is that of its difference from 0, whatever a sigmoid makes of it; a
            // probability that the network made itself is compared with a half.
            let is_share = !finish.contains(&Finish::Sigmoid);
            for &index in &tail {
                let is_half = is_share && graph.nodes[index].op == Op::Probabilities;
                graph.nodes[index].op = match is_half {
                    true => graph.less_half(index),
                    false => Op::Reshape,
                };
            }
            let (before, after) = (vec![1], vec![0]);
            graph.append(Op::Reshape, vec![1]);
            graph.append(Op::Pad { before, after }, vec![2]);
        }
        graph.append(Op::ArgMax, vec![1]);
        Ok(graph)
    }

    /// Whether the values that the result is made of are scores of classes, two or more.
    pub fn has_scores(&self) -> bool {
        let (value, _) = self.tail();
        let mut finish = self.finish();
        finish.retain(|op| !matches!(op, Finish::Scale { .. }));
        self.nodes[value].shape.iter().product::<usize>() > 1
            && !finish.iter().any(|op| op.is_unbounded())
            && self.check_class(&finish).is_ok()
    }

    /// # Errors
    /// [`ClassError`] where no class is one of the result after these operations.
    fn check_class(&self, finish: &[Finish]) -> Result<(), ClassError> {
        let (value, _) = self.tail();
        let shape = &self.nodes[value].shape;
        let count: usize = shape.iter().product();
        if ends_in_class(finish, count) {
            return Ok(());
        }
        if finish.contains(&Finish::ArgMax) {
            return Err(ClassError::GoesOn);
        }
        let is_row = shape.iter().max().is_none_or(|&most| most == count);
        let is_value = count == 1 && finish.iter().any(|op| op.is_unbounded());
        if !is_row || is_value || !finish.iter().all(|op| op.keeps_order(count)) {
            let shape = shape.clone();
            return Err(ClassError::Shape { shape });
        }
        // Shares of sigmoids are of classes.
        let from_sigmoid = finish.iter().skip_while(|op| **op != Finish::Sigmoid);
        let are_shares = from_sigmoid.clone().any(Finish::is_softmax);
        if from_sigmoid.count() > 0 && count > 1 && !are_shares {
            return Err(ClassError::Labels { labels: count });
        }
        Ok(())
    }

    /// The operator that takes 0.5 off the input of node `index`.
    fn less_half(&mut self, index: usize) -> Op {
        let (name, half) = (self.nodes[index].name.clone(), Tensor::new([1], vec![-0.5]));
        let add = Some(passes::insert(self, &name, "half", half));
        Op::Affine { mul: None, add }
    }

    /// Adds an operator on the result.
    fn append(&mut self, op: Op, shape: Vec<usize>) {
        self.nodes.push(Node {
            name: "class".into(),
            op,
            inputs: vec![self.output],
            shape,
        });
        self.output = self.nodes.len() - 1;
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::float;

    /// A chain of operators on a row, each with its shape.
    fn graph(input: &[usize], ops: &[(Op, &[usize])]) -> Graph {
        let nodes = [(Op::Input, input)].into_iter().chain(ops.iter().cloned());
        let nodes = nodes.enumerate().map(|(index, (op, shape))| Node {
            name: format!("n{index}"),
            op,
            inputs: (0..index).rev().take(1).collect(),
            shape: shape.to_vec(),
        });
        let graph = Graph {
            name: "m".into(),
            nodes: nodes.collect(),
            output: ops.len(),
            tensors: BTreeMap::new(),
        };
        graph.validate().unwrap();
        graph
    }

    fn classes(graph: &Graph, inputs: &[f32]) -> Vec<f32> {
        let class = graph.with_class().unwrap();
        class.validate().unwrap();
        assert!(class.ends_in_class());
        let images = inputs.len() / graph.input_len();
        float::evaluate(&class, inputs, images).unwrap()
    }

    #[test]
    fn rows_have_the_first_of_the_largest() {
        for ops in [&[][..], &[(Op::Softmax, &[3][..])]] {
            let graph = graph(&[3], ops);
            assert!(!graph.ends_in_class());
            let rows = [1., 2., 3., 5., 5., 4., 0., 0., 0.];
            assert_eq!(classes(&graph, &rows), [2., 0., 0.]);
        }
        let ended = graph(&[3], &[(Op::Softmax, &[3]), (Op::ArgMax, &[])]);
        assert!(ended.ends_in_class());
        assert_eq!(ended.with_class().unwrap().nodes.len(), 3);
    }

    #[test]
    fn one_value_is_above_zero_or_not() {
        for shape in [&[1][..], &[1, 1, 1], &[]] {
            for ops in [&[][..], &[(Op::Sigmoid, shape)]] {
                let graph = graph(shape, ops);
                assert_eq!(classes(&graph, &[-0.1, 0.0, 0.1, 9.0]), [0., 0., 1., 1.]);
            }
        }
    }

    /// Probabilities that a network made itself, and those of a Sigmoid that says so twice.
    #[test]
    fn one_probability_is_above_a_half_or_not() {
        for shape in [&[1][..], &[1, 1, 1], &[]] {
            let made = graph(shape, &[(Op::Probabilities, shape)]);
            assert_eq!(classes(&made, &[0.0, 0.1, 0.5, 0.6]), [0., 0., 0., 1.]);
            let both = [(Op::Sigmoid, shape), (Op::Probabilities, shape)];
            let both = graph(shape, &both);
            assert_eq!(classes(&both, &[-0.1, 0.0, 0.1, 0.6]), [0., 0., 1., 1.]);
        }
    }

    #[test]
    fn labels_and_maps_are_refused() {
        let refused = |graph: Graph| graph.with_class().unwrap_err();
        let labels = graph(&[3], &[(Op::Sigmoid, &[3])]);
        assert_eq!(refused(labels), ClassError::Labels { labels: 3 });
        let shape = vec![2, 3];
        assert_eq!(refused(graph(&[2, 3], &[])), ClassError::Shape { shape });
        let on = graph(&[3], &[(Op::ArgMax, &[1]), (Op::Sigmoid, &[1])]);
        assert_eq!(refused(on), ClassError::GoesOn);
    }
}
