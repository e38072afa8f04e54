//! What the ways to plan have in common: where they begin, and what they leave.

use pronghorn_graph::{
    fixed::{FixedGraph, Linear},
    float::Profile,
    graph::{Graph, Node, Op},
    names::printable,
};

use super::{BuildError, BuildOptions, Built, fidelity::Target};
use crate::{
    checked::CheckedPlan,
    cost,
    names::Names,
    plan::{BAND_BYTES, FORMAT, LEAST_BAND_BYTES, MAX_BYTES, Plan, PlanError, Step},
    trust::TrustLevel,
};

/// How a trust level is planned.
#[derive(Clone, Copy)]
pub(super) struct Method {
    /// The error to aim at, where none is named.
    pub aim: f64,
    /// Errors of layers begin at so many times those that reach the aim.
    pub looseness: f64,
    /// Multiply-adds of the samples on which the error is measured.
    pub fidelity_work: u64,
    /// Whether answers go to circuits.
    pub circuits: bool,
    /// Whether the bits of answers are what costs most.
    pub narrow: bool,
    /// Whether layers' bits follow from what their errors become in the result.
    pub gains: bool,
    /// Whether values between layers are clamped to ranges.
    pub clamps: bool,
    /// Whether channels get ranges alike before bits are chosen.
    pub equalised: bool,
    /// Whether a party can compare values: both on shares, or the client by itself.
    pub comparisons: bool,
    /// Whether a class is computed before the opening.
    pub class: bool,
    /// The plan, from the network and samples.
    pub build: fn(&Source<'_>, &Self, &BuildOptions) -> Result<Built, BuildError>,
    /// Steps and parameters, from a fixed-point network.
    pub lower: fn(&FixedGraph, &BuildOptions) -> Result<Planned, BuildError>,
}

/// The methods of a trust level.
#[derive(Clone, Copy)]
pub(super) struct Methods {
    pub first: Method,
    /// For a network of which an image does not fit in memory by the first.
    pub otherwise: Option<Method>,
}

impl Method {
    /// The method and no other.
    pub const fn alone(self) -> Methods {
        Methods {
            first: self,
            otherwise: None,
        }
    }
}

impl Methods {
    /// The same with another aim.
    pub fn with_aim(self, aim: f64) -> Self {
        let with = |method| Method { aim, ..method };
        Self {
            first: with(self.first),
            otherwise: self.otherwise.map(with),
        }
    }
}

/// A plan, and what its owner keeps of it.
pub(super) struct Planned {
    pub plan: CheckedPlan,
    pub weights: Vec<Option<Linear>>,
    pub names: Names,
}

/// What a plan is built from.
pub(super) struct Source<'a> {
    /// After the passes.
    pub graph: &'a Graph,
    /// Of that graph.
    pub profile: &'a Profile,
    /// Factor on the ranges of the profile.
    pub margin: f32,
    /// Inputs to measure the error on.
    pub tested: &'a [f32],
    /// The float network's results on them.
    pub target: Target<'a>,
    /// What errors of the graph's values become in the result, on the inputs tested
    /// ([`float::gains`](pronghorn_graph::float::gains())); empty where the method needs none.
    pub gains: &'a [f64],
    /// Inputs to correct biases on, and the means of layers' channels on them: others than those
    /// tested, where there are enough.
    pub corrected: (&'a [f32], &'a [Vec<f64>]),
}

/// Steps with their parameters, and the weights of each.
pub(super) struct Lowered {
    pub steps: Vec<Step>,
    /// The node of each.
    pub names: Vec<String>,
    pub output: usize,
    pub weights: Vec<Option<Linear>>,
}

impl Lowered {
    /// The checked plan, with the most images that memory allows.
    pub fn plan(
        self,
        fixed: &FixedGraph,
        trust: TrustLevel,
        options: &BuildOptions,
    ) -> Result<Planned, BuildError> {
        let names = Names {
            model: printable(&fixed.name),
            steps: self.names,
        };
        let plan = Plan {
            format: FORMAT,
            model: options.model_name(),
            trust,
            steps: self.steps,
            output: self.output,
            finish: fixed.finish.clone(),
            max_batch: 1,
            band_bytes: (options.memory / 32).clamp(LEAST_BAND_BYTES, BAND_BYTES),
            key_checks: 1,
            sampled: None,
            deviations: None,
            categories: vec![],
            class_names: vec![],
            columns: vec![],
            outputs: vec![],
        };
        Ok(Planned {
            plan: batched(plan, &names, options.memory)?,
            weights: self.weights,
            names,
        })
    }
}

/// The checked plan, with the most images that memory allows.
pub(super) fn batched(plan: Plan, names: &Names, memory: u64) -> Result<CheckedPlan, BuildError> {
    let length = plan.to_bytes().len();
    if length > MAX_BYTES {
        return Err(BuildError::TooLong(PlanError::TooLong { length }));
    }
    let plan = CheckedPlan::new(plan).map_err(|error| BuildError::refused(error, names))?;
    let most = cost::max_batch(&plan, memory).map_err(|(step, needed)| BuildError::Memory {
        step: names.steps[step].clone(),
        needed,
        allowed: memory,
    })?;
    Ok(plan.with_batch(most))
}

/// Readers of each node, the result counted as one.
pub(super) fn consumers(fixed: &FixedGraph) -> Vec<usize> {
    let mut consumers = vec![0usize; fixed.nodes.len()];
    let read = fixed.nodes.iter().flat_map(|node| &node.inputs);
    read.for_each(|&input| consumers[input] += 1);
    consumers[fixed.output] += 1;
    consumers
}

/// Multiply-adds of one image, roughly: what bounds the planner's own time.
pub(super) fn multiply_adds(graph: &Graph) -> u64 {
    let of = |node: &Node| match &node.op {
        Op::Conv { weight, .. } | Op::Dense { weight, .. } => {
            let outputs: usize = node.shape.iter().product();
            let weights = graph
                .tensors
                .get(weight)
                .map_or(0, |tensor| tensor.data.len());
            (outputs as u64).saturating_mul(
                weights as u64
                    / node
                        .shape
                        .first()
                        .map_or(1, |&channels| channels.max(1) as u64),
            )
        }
        _ => 0,
    };
    graph.nodes.iter().map(of).fold(0, u64::saturating_add)
}
