//! Steps on shares before their parameters are known.

use pronghorn_graph::fixed::{FixedNode, Linear, ValueSpec};

use super::BuildError;
use crate::{
    rlwe::ShareBits,
    share_form::{LEAST_GUARD, LayerRules, LayerShares, Node, ShareRules},
    step::StepPlan,
    steps::{StepKind, activation::garbled::Garbled, bias::Bias, matrices::EncryptedMatrices},
};

/// Knows the ranges of products of matrices, which do not depend on shares.
const UNSETTLED: EncryptedMatrices = EncryptedMatrices {
    shares: ShareBits {
        value_bits: 1,
        guard_bits: LEAST_GUARD,
    },
};

/// A step before its parameters are known.
#[derive(Clone)]
pub(super) struct Draft<'a> {
    pub name: String,
    pub op: Op<'a>,
    pub inputs: Vec<usize>,
    pub value: ValueSpec,
}

/// What a draft does.
#[derive(Clone)]
pub(super) enum Op<'a> {
    /// A linear layer.
    Layer(Layer<'a>),
    /// A product of matrices under encryption.
    Matrices(Matrices),
    /// A linear layer that adds constants and does nothing else.
    Bias(Constants<'a>),
    /// A chain of functions in a garbled circuit.
    Chain(Garbled),
    /// A step that has no parameters.
    Ready(StepKind),
}

/// A linear layer before its parameters are known.
#[derive(Clone)]
pub(super) struct Layer<'a> {
    /// Number of the node.
    pub index: usize,
    pub node: &'a FixedNode,
    pub linear: &'a Linear,
    /// How its answer is shared: modulo a prime on slots, else with guard bits.
    pub shares: LayerShares,
}

/// The addition of constants.
#[derive(Clone)]
pub(super) struct Constants<'a> {
    pub linear: &'a Linear,
    pub step: Bias,
}

/// A product of matrices under encryption before its parameters are known.
#[derive(Clone)]
pub(super) struct Matrices {
    /// Number of the node.
    pub index: usize,
    /// Guard bits of its answer.
    pub guard: u32,
}

impl LayerRules for Matrices {
    fn layer_shares(&self) -> LayerShares {
        LayerShares::Guarded(self.guard)
    }
}

impl Matrices {
    /// The step, whose values need so many bits.
    pub fn step(&self, value_bits: u32) -> EncryptedMatrices {
        EncryptedMatrices {
            shares: ShareBits {
                value_bits,
                guard_bits: self.guard,
            },
        }
    }
}

impl LayerRules for Layer<'_> {
    fn layer_shares(&self) -> LayerShares {
        self.shares
    }
}

impl<'a> Draft<'a> {
    /// Its protocol's rules for shares.
    pub fn rules(&self) -> &(dyn ShareRules + '_) {
        match &self.op {
            Op::Layer(layer) => layer,
            Op::Matrices(matrices) => matrices,
            Op::Bias(bias) => &bias.step,
            Op::Chain(chain) => chain,
            Op::Ready(kind) => kind.as_step(),
        }
    }

    /// Its protocol, unless it is a layer.
    pub fn protocol(&self) -> Option<&dyn StepPlan> {
        match &self.op {
            Op::Layer(_) => None,
            Op::Matrices(_) => Some(&UNSETTLED),
            Op::Bias(bias) => Some(&bias.step),
            Op::Chain(chain) => Some(chain),
            Op::Ready(kind) => Some(kind.as_step()),
        }
    }

    /// The layer, if it is one.
    pub fn layer(&self) -> Option<&Layer<'a>> {
        match &self.op {
            Op::Layer(layer) => Some(layer),
            _ => None,
        }
    }

    /// The server's half, if it has one.
    pub fn weights(&self) -> Option<&Linear> {
        match &self.op {
            Op::Layer(layer) => Some(layer.linear),
            Op::Bias(constants) => Some(constants.linear),
            _ => None,
        }
    }

    /// Number of the node whose answer has guard bits, if it is one.
    pub fn guarded(&self) -> Option<usize> {
        match &self.op {
            Op::Matrices(matrices) => Some(matrices.index),
            Op::Layer(layer) => {
                matches!(layer.shares, LayerShares::Guarded(_)).then_some(layer.index)
            }
            _ => None,
        }
    }

    pub fn error(&self, reason: impl Into<String>) -> BuildError {
        BuildError::Layer {
            layer: self.name.clone(),
            reason: reason.into(),
        }
    }
}

/// Puts a draft of one input before draft `reader`, which then reads it in the place of that input.
pub(super) fn insert_before<'a>(
    drafts: &mut Vec<Draft<'a>>,
    output: &mut usize,
    reader: usize,
    draft: Draft<'a>,
) {
    let read = draft.inputs[0];
    let moved = |index: usize| index + usize::from(index >= reader);
    for input in drafts[reader..]
        .iter_mut()
        .flat_map(|draft| &mut draft.inputs)
    {
        *input = moved(*input);
    }
    for input in &mut drafts[reader].inputs {
        if *input == read {
            *input = reader;
        }
    }
    *output = moved(*output);
    drafts.insert(reader, draft);
}

/// The drafts as the rules of shares see them.
pub(super) fn nodes<'d>(drafts: &'d [Draft<'_>]) -> Vec<Node<'d>> {
    let node = |draft: &'d Draft<'_>| Node {
        rules: draft.rules(),
        inputs: &draft.inputs,
        value: &draft.value,
    };
    drafts.iter().map(node).collect()
}
