//! Steps of a plan whose values the client sees (`client-aided`), from fixed-point nodes.
//!
//! The batch engine spreads its work over thousands of images and takes as much for one. The
//! coefficient engine costs the same for each image.

use pronghorn_graph::{
    fixed::{ActivationOp, FixedGraph, FixedNode, FixedOp, Linear, ValueSpec},
    names::printable,
};

use super::{
    BuildError,
    method::{Lowered, consumers},
};
use crate::{
    plan::Step,
    steps::{StepKind, activation::reveal::Reveal},
};

/// Finds the step of a linear layer.
pub(super) type Choose = fn(&FixedNode, &Linear, &ValueSpec) -> Result<StepKind, BuildError>;

/// The steps of a fixed-point graph. A chain of activations becomes one step.
pub(super) fn lower(fixed: &FixedGraph, choose: Choose) -> Result<Lowered, BuildError> {
    let consumers = consumers(fixed);
    let (mut steps, mut names, mut weights) = (Vec::new(), Vec::new(), Vec::new());
    let mut step_of = vec![0usize; fixed.nodes.len()];
    for (index, node) in fixed.nodes.iter().enumerate() {
        let inputs: Vec<usize> = node.inputs.iter().map(|&input| step_of[input]).collect();
        if let FixedOp::Activation(op) = &node.op
            && consumers[node.inputs[0]] == 1
            && join(&mut steps[inputs[0]], op, &node.value)
        {
            step_of[index] = inputs[0];
            continue;
        }
        step_of[index] = steps.len();
        let input = inputs.first().map(|&input| &steps[input].value);
        let kind = kind(node, input, choose)?;
        weights.push(node.op.linear().cloned());
        names.push(printable(&node.name));
        steps.push(Step {
            kind,
            inputs,
            value: node.value.clone(),
        });
    }
    Ok(Lowered {
        steps,
        names,
        output: step_of[fixed.output],
        weights,
    })
}

/// Adds a function to a step that is a chain of functions.
fn join(step: &mut Step, op: &ActivationOp, value: &ValueSpec) -> bool {
    let StepKind::Reveal(chain) = &mut step.kind else {
        return false;
    };
    chain.ops.push(op.clone());
    step.value = value.clone();
    true
}

fn kind(
    node: &FixedNode,
    input: Option<&ValueSpec>,
    choose: Choose,
) -> Result<StepKind, BuildError> {
    Ok(match &node.op {
        FixedOp::Input => StepKind::Input,
        FixedOp::Linear(linear) | FixedOp::Constants(linear) => {
            choose(node, linear, input.unwrap_or(&node.value))?
        }
        FixedOp::Local(op) => StepKind::Local(op.clone()),
        FixedOp::Activation(op) => StepKind::Reveal(Reveal {
            ops: vec![op.clone()],
        }),
        FixedOp::Product => StepKind::ClearProduct,
        FixedOp::MatMul => StepKind::ClearMatrixProduct,
        FixedOp::ArgMax => {
            return Err(BuildError::Layer {
                layer: node.name.clone(),
                reason: "the client takes the index of the largest value itself".into(),
            });
        }
    })
}
