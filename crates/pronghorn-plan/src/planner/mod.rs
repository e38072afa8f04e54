//! The planner: from a floating-point graph to a checked plan and the server's half.
//!
//! Passes, ranges and precisions come first, then the steps of the trust level (`Method`), then
//! their parameters.

mod built;
mod clear;
pub mod encrypted;
mod engines;
mod error;
mod fidelity;
mod fixed_point;
mod guards;
mod options;
mod parameters;
pub mod precision;
mod ranges;
mod samples;
pub mod schedule;
mod shares;

use pronghorn_graph::{
    fixed::{FixedGraph, Linear},
    float::{self, Profile},
    graph::{Graph, Node, Op},
    passes,
};

pub use built::{Built, Computation, Encrypted, Weights};
pub use error::BuildError;
use fidelity::Target;
pub use fidelity::{Fidelity, REFUSE, WARN};
pub use options::{BuildOptions, Engine, RESULT_ERROR, SHARES_ERROR};
pub use samples::{SYNTHETIC_IMAGES, SYNTHETIC_MARGIN};

use crate::{
    checked::{CheckedPlan, printable},
    cost,
    plan::{FORMAT, MAX_BYTES, Plan, PlanError, Step},
    trust::{self, TrustLevel},
};

/// Samples on which the planner measures the error, at most.
const FIDELITY_IMAGES: usize = 64;

/// Multiply-adds of those samples, at most.
const FIDELITY_WORK: u64 = 2_000_000_000;

/// And at least.
const LEAST_FIDELITY: usize = 6;

/// Ranges come from as many samples as take this many multiply-adds, and at least
/// [`LEAST_SAMPLES`].
const PROFILE_WORK: u64 = 20_000_000_000;
const LEAST_SAMPLES: usize = 32;

/// A plan, and the weights of its steps.
type Planned = (CheckedPlan, Vec<Option<Linear>>);

/// How a trust level is planned.
struct Method {
    /// The error to aim at, where none is named.
    aim: f64,
    /// Tolerances of layers begin at so many times the rule of [`fixed_point::build`].
    looseness: f64,
    /// Multiply-adds of the samples on which the error is measured.
    fidelity_work: u64,
    /// Whether answers go to circuits, where a bit of each costs more than anything else.
    circuits: bool,
    /// The plan, from the network and samples.
    build: fn(&Source<'_>, &Self, &BuildOptions) -> Result<Built, BuildError>,
    /// Steps and parameters, from a fixed-point network.
    lower: fn(&FixedGraph, &BuildOptions) -> Result<Planned, BuildError>,
}

impl Method {
    fn of(trust: TrustLevel) -> Self {
        let clear = Self {
            aim: RESULT_ERROR,
            looseness: 1.0,
            fidelity_work: FIDELITY_WORK,
            circuits: false,
            build: fixed_point::build,
            lower: |fixed, options| {
                clear::lower(fixed)?.plan(fixed, TrustLevel::ClientAided, options.memory)
            },
        };
        match trust {
            TrustLevel::ClientAided => clear,
            TrustLevel::TwoParty => Self {
                aim: SHARES_ERROR,
                // Errors of layers mostly add up to less than the rule says, and a bit costs more.
                looseness: 4.0,
                circuits: true,
                lower: engines::cheapest,
                ..clear
            },
            TrustLevel::Encrypted | TrustLevel::MultiKey => Self {
                // Judged once for each size of weights that is tried, in double precision.
                fidelity_work: FIDELITY_WORK / 10,
                build: encrypted::build,
                ..clear
            },
        }
    }
}

/// What a plan is built from.
pub(crate) struct Source<'a> {
    /// After the passes.
    graph: &'a Graph,
    /// Of that graph.
    profile: &'a Profile,
    /// Factor on the ranges of the profile.
    margin: f32,
    /// Inputs to measure the error on.
    tested: &'a [f32],
    /// The float network's results on them.
    target: Target<'a>,
    /// Inputs to correct biases on, and the means of layers' channels on them: others than those
    /// tested, where there are enough.
    corrected: (&'a [f32], &'a [Vec<f64>]),
}

/// Steps with their parameters, and the weights of each.
struct Lowered {
    steps: Vec<Step>,
    output: usize,
    weights: Vec<Option<Linear>>,
}

impl Lowered {
    /// The checked plan, with the most images that memory allows.
    fn plan(
        self,
        fixed: &FixedGraph,
        trust: TrustLevel,
        memory: u64,
    ) -> Result<Planned, BuildError> {
        let plan = Plan {
            format: FORMAT,
            model: printable(&fixed.name),
            trust,
            steps: self.steps,
            output: self.output,
            finish: fixed.finish.clone(),
            max_batch: 1,
        };
        let length = plan.to_bytes().len();
        if length > MAX_BYTES {
            return Err(BuildError::TooLong(PlanError::TooLong { length }));
        }
        let plan = CheckedPlan::new(plan).map_err(BuildError::Refused)?;
        let most = cost::max_batch(&plan, memory).map_err(|(step, needed)| BuildError::Memory {
            step: plan.steps[step].name.clone(),
            needed,
            allowed: memory,
        })?;
        Ok((plan.with_batch(most), self.weights))
    }
}

/// Readers of each node, the result counted as one.
fn consumers(fixed: &FixedGraph) -> Vec<usize> {
    let mut consumers = vec![0usize; fixed.nodes.len()];
    let read = fixed.nodes.iter().flat_map(|node| &node.inputs);
    read.for_each(|&input| consumers[input] += 1);
    consumers[fixed.output] += 1;
    consumers
}

/// Builds the plan of `graph`: passes, ranges, precisions, parameters.
///
/// # Errors
/// The trust level is not in this version, the model leaves its ranges, or it does not fit in
/// memory.
pub fn build(graph: &Graph, options: &BuildOptions) -> Result<Built, BuildError> {
    let method = Method::of(trust::require(options.trust)?);
    let graph = passes::run(graph);
    let elements: usize = graph.nodes[0].shape.iter().product();
    let (samples, margin) = samples::samples(options, elements, &graph.nodes[0].shape)?;
    let work = multiply_adds(&graph).max(1);
    let affordable = |budget: u64| usize::try_from(budget / work).unwrap_or(usize::MAX);
    let images = (samples.len() / elements).min(affordable(PROFILE_WORK).max(LEAST_SAMPLES));
    let profile = float::profile(&graph, &samples[..images * elements], images)?;
    let tests = affordable(method.fidelity_work).clamp(LEAST_FIDELITY, FIDELITY_IMAGES);
    let [tested, corrected] = samples::split(images, tests.min(images.div_ceil(2)));
    let [tested, corrected] = [tested, corrected].map(|chosen| {
        let image = |index: &usize| &samples[index * elements..][..elements];
        chosen.iter().flat_map(image).copied().collect::<Vec<f32>>()
    });
    let tests = tested.len() / elements;
    let reference = float::reference(&graph, &tested, tests)?;
    let means = float::reference(&graph, &corrected, corrected.len() / elements)?.means;
    let source = Source {
        graph: &graph,
        profile: &profile,
        margin,
        tested: &tested,
        target: Target {
            wanted: &reference.results,
            outputs: reference.results.len() / tests,
            real: options.samples.is_some(),
        },
        corrected: (&corrected, &means),
    };
    (method.build)(&source, &method, options)
}

/// Multiply-adds of one image, roughly: what bounds the planner's own time.
fn multiply_adds(graph: &Graph) -> u64 {
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
