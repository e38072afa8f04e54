//! A plan with the server's half.

use std::sync::Arc;

use pronghorn_graph::{
    finish::Finish,
    fixed::{FixedGraph, Linear, ValueSpec, dither::Dither},
    oracle::{self, OracleError},
    polynomial::PolyGraph,
};

use serde::{Deserialize, Serialize};

use super::fidelity::Fidelity;
use crate::{
    checked::CheckedPlan,
    cost::Speed,
    names::Names,
    step::Place,
    steps::encrypted::{EncryptedPlan, Program},
    text::Text,
};

/// A plan and the server's secrets; no Debug, it holds the weights.
#[derive(Clone)]
pub struct Built {
    /// For both parties.
    pub plan: CheckedPlan,
    /// Of the model's file: the owner's, and not in the plan.
    pub names: Names,
    /// The server's half of each step.
    pub weights: Vec<Weights>,
    /// The whole network, for the oracle. The server's secret.
    pub computation: Arc<dyn Computation>,
    /// How close results come to those of the float network.
    pub fidelity: Fidelity,
}

/// The server's half of a step; no Debug.
#[derive(Clone, Serialize, Deserialize)]
pub enum Weights {
    /// A step without weights.
    None,
    /// Those of a linear layer.
    Layer(Linear),
    /// A network on ciphertexts.
    Network(Encrypted),
}

impl From<Option<Linear>> for Weights {
    fn from(weights: Option<Linear>) -> Self {
        weights.map_or(Self::None, Self::Layer)
    }
}

/// A polynomial network and the server's program for it; no Debug, it holds the weights.
#[derive(Clone, Serialize, Deserialize)]
pub struct Encrypted {
    /// The network, and the oracle.
    pub graph: PolyGraph,
    /// The server's program.
    pub program: Program,
}

impl Encrypted {
    /// Whether one from a file computes a step's value from its input, with its primes.
    pub fn is_sound(&self, place: &Place<'_>, plan: &EncryptedPlan) -> bool {
        let Self { graph, program } = self;
        let lengths = [place.input().len(), place.value().len()];
        graph.is_sound()
            && [graph.input_len(), graph.result().len()] == lengths
            && program.is_sound(graph, plan)
            && program.nodes[program.output].elements == lengths[1]
    }
}

/// A whole network in integers: the oracle.
pub trait Computation: Send + Sync {
    /// The result's integers for integers of `images` images, one after the other.
    ///
    /// # Errors
    /// `integers` does not hold so many images, or a value leaves its proven range.
    fn evaluate(
        &self,
        plan: &CheckedPlan,
        integers: &[i32],
        images: usize,
    ) -> Result<Vec<i32>, OracleError>;

    /// Multiplications by weights that one image takes.
    fn multiply_adds(&self) -> u64;

    /// The network, where it is of whole numbers alone.
    fn fixed(&self) -> Option<&FixedGraph> {
        None
    }

    /// What only the server knows of the plan's steps, as text.
    fn secret_text(&self) -> Option<String> {
        None
    }
}

impl Computation for FixedGraph {
    fn evaluate(
        &self,
        _plan: &CheckedPlan,
        integers: &[i32],
        images: usize,
    ) -> Result<Vec<i32>, OracleError> {
        oracle::evaluate(self, integers, images)
    }

    fn multiply_adds(&self) -> u64 {
        FixedGraph::multiply_adds(self)
    }

    fn fixed(&self) -> Option<&FixedGraph> {
        Some(self)
    }
}

impl Computation for Encrypted {
    fn evaluate(
        &self,
        plan: &CheckedPlan,
        integers: &[i32],
        images: usize,
    ) -> Result<Vec<i32>, OracleError> {
        let (input, result) = (plan.input(), plan.result());
        if input.len().checked_mul(images) != Some(integers.len()) {
            return Err(OracleError::Inputs {
                found: integers.len(),
                images,
                shape: input.shape.clone(),
            });
        }
        Ok(evaluate(&self.graph, input, result, integers))
    }

    fn multiply_adds(&self) -> u64 {
        self.graph.multiply_adds()
    }

    fn secret_text(&self) -> Option<String> {
        Some(self.program.display(&self.graph).to_string())
    }
}

/// The oracle's integers for integers of the input.
pub(super) fn evaluate(
    graph: &PolyGraph,
    input: &ValueSpec,
    result: &ValueSpec,
    integers: &[i32],
) -> Vec<i32> {
    let unit = f64::from(-input.fraction_bits).exp2();
    let inputs: Vec<f64> = integers.iter().map(|&x| f64::from(x) * unit).collect();
    let scale = f64::from(result.fraction_bits).exp2();
    let values = graph.evaluate(&inputs).into_iter();
    let (low, high) = (f64::from(result.low), f64::from(result.high));
    // As the client does with results beyond the range.
    let integer = |y: f64| (y * scale).round().clamp(low, high) as i32;
    values.map(integer).collect()
}

impl Built {
    /// The oracle: the result's integers for integers of `images` images, one after the other. A
    /// secure run gives exactly these, or on ciphertexts these within [`Built::tolerance`]. Where
    /// rounding is dithered, each run has addends of its own ([`Built::oracle_of_run`]).
    ///
    /// # Errors
    /// `integers` does not hold so many images, or a value leaves its proven range.
    pub fn oracle(&self, integers: &[i32], images: usize) -> Result<Vec<i32>, OracleError> {
        self.computation.evaluate(&self.plan, integers, images)
    }

    /// The oracle with the addends of a run, where values are rounded by a dither.
    ///
    /// # Errors
    /// As [`Built::oracle`], or that the run has other values.
    pub fn oracle_of_run(
        &self,
        integers: &[i32],
        images: usize,
        dither: &dyn Dither,
    ) -> Result<Vec<i32>, OracleError> {
        match self.computation.fixed() {
            Some(fixed) => oracle::evaluate_with(fixed, integers, images, dither),
            None => self.oracle(integers, images),
        }
    }

    /// What users are told of the plan before it is used, a text each: an error far above the aim,
    /// or measured on few samples, or hidden by larger outputs, and features that keep one value.
    pub fn warnings(&self) -> Vec<String> {
        let kept = self.plan.features().into_iter().flat_map(|scales| {
            let all = (0..scales.0.len()).filter(|&feature| scales.keeps(feature));
            all.map(|feature| feature.to_string())
        });
        let kept: Vec<String> = kept.collect();
        let kept = (!kept.is_empty()).then(|| {
            format!(
                "of feature {} the samples have one value alone, and the model's weights for it are \
                 so large that others vanish beside them: it keeps that value, whatever clients \
                 send. Give samples in which it varies, or train without it",
                kept.join(", ")
            )
        });
        let hidden = self.hidden();
        let all = self.fidelity.warnings(&self.plan.finish).into_iter();
        all.chain(hidden).chain(kept).collect()
    }

    /// What is to be said of outputs whose errors larger ones hide. Ends in one function have none.
    fn hidden(&self) -> Option<String> {
        let is_scale = |end: &Finish| matches!(end, Finish::Scale { .. });
        let are_values = self.plan.finish.iter().all(is_scale);
        are_values
            .then(|| self.fidelity.hidden(&self.plan.outputs))
            .flatten()
    }

    /// Whether the expected error hides that of no output.
    pub(super) fn hides_none(&self) -> bool {
        self.hidden().is_none()
    }

    /// The plan as text with the names of the model's file, and what only the server knows of its
    /// steps. `details`: with all
    /// parameters. Seconds are those of the nominal CPU.
    pub fn text(&self, details: bool) -> String {
        self.text_at(details, &Speed::default())
    }

    /// The text with the seconds of a machine.
    pub fn text_at(&self, details: bool, speed: &Speed) -> String {
        let plan = Text {
            plan: &self.plan,
            names: Some(&self.names),
            speed,
        };
        let plan = match details {
            true => format!("{plan:#}"),
            false => plan.to_string(),
        };
        match self.computation.secret_text().filter(|_| details) {
            Some(secret) => {
                format!(
                    "{plan}\nthe server's program, ciphertexts of each node, which clients do not see:\n{secret}"
                )
            }
            None => plan,
        }
    }

    /// By how many units a result's integer may differ from the oracle's.
    pub fn tolerance(&self) -> i32 {
        self.plan.tolerance()
    }

    /// Multiplications by weights that one image takes.
    pub fn multiply_adds(&self) -> u64 {
        self.computation.multiply_adds()
    }
}
