//! From a floating-point graph to a plan and the server's half.

use pronghorn_graph::{
    fixed::{Finish, FixedGraph, FixedOp, Linear},
    float::{self, FloatError},
    graph::{Graph, Node, Op},
    oracle::{self, OracleError},
    passes,
    polynomial::PolynomialError,
    quantise::{self, QuantiseError, QuantiseOptions},
};
use thiserror::Error;

use crate::{
    cost::Objective,
    encrypted::{self, Encrypted, build::evaluate, schedule::Passes},
    lower::lower,
    plan::{Engine, Plan, PlanError},
    precision::ModulusBudget,
    trust::{self, TrustError, TrustLevel},
};

/// What the model's owner decides; no Debug, samples may be secret.
#[derive(Clone)]
pub struct BuildOptions {
    /// None: [`TrustLevel::TwoParty`].
    pub trust: Option<TrustLevel>,
    /// Inputs to choose ranges from, `images * elements` values; none: see [`SYNTHETIC_IMAGES`].
    pub samples: Option<Vec<f32>>,
    /// Smallest and largest input where there are no samples.
    pub input_range: (f32, f32),
    /// What the server may use for one batch, in bytes.
    pub memory: u64,
    /// Bits of every layer's weights; none: chosen layer by layer.
    pub weight_bits: Option<u32>,
    /// Bits of every layer's input; none: chosen layer by layer.
    pub input_bits: Option<u32>,
    /// Relative rms error of the result, against the float model on the samples, that the planner aims at; none: [`RESULT_ERROR`], or under
    /// `two-party` [`SHARES_ERROR`].
    pub error: Option<f64>,
    /// Passes over an encrypted network.
    pub passes: Passes,
    /// The engine of linear steps under `two-party`; none: what `objective` makes best.
    pub engine: Option<Engine>,
    /// What is to be least where there is a choice.
    pub objective: Objective,
}

impl Default for BuildOptions {
    fn default() -> Self {
        Self {
            trust: None,
            samples: None,
            input_range: (0.0, 1.0),
            memory: 4 << 30,
            weight_bits: None,
            input_bits: None,
            error: None,
            passes: Passes::default(),
            engine: None,
            objective: Objective::default(),
        }
    }
}

impl BuildOptions {
    /// The error to aim at.
    pub(crate) fn aim(&self, trust: TrustLevel) -> f64 {
        self.error.unwrap_or(match trust {
            TrustLevel::TwoParty => SHARES_ERROR,
            _ => RESULT_ERROR,
        })
    }
}

/// Without samples, ranges come from this many made-up images (noise, ramps, constants) over
/// the input range, with [`SYNTHETIC_MARGIN`] on every range.
pub const SYNTHETIC_IMAGES: usize = 48;

/// The margin on ranges that come from made-up images.
pub const SYNTHETIC_MARGIN: f32 = 2.0;

/// [`BuildOptions::error`] where none is named.
pub const RESULT_ERROR: f64 = 0.05;

/// The same on shares, where precision costs a few percent of the bytes: with 0.05 one image in 300 of Gazelle's network A changes its class.
pub const SHARES_ERROR: f64 = 0.02;

/// Above this error there is no plan: its answers would be wrong without a word.
pub const WORST_RESULT: f64 = 0.5;

/// The tolerance of a layer is divided by this until the measured error is small enough, so many times at most.
const TIGHTENING: f64 = std::f64::consts::SQRT_2;
const TIGHTENINGS: u32 = 12;
/// Errors of layers mostly add up to less than that rule says. On shares, where a bit costs more, tolerances begin at so many times what it gives.
const LOOSENESS: f64 = 4.0;
/// After so many times without a smaller error it is not tried again.
const PATIENCE: u32 = 2;

/// Samples on which the planner measures that error, at most, and as many as take this many multiply-adds.
const FIDELITY_IMAGES: usize = 64;
const FIDELITY_WORK: u64 = 2_000_000_000;

/// Ranges come from as many samples as take this many multiply-adds, and at least [`LEAST_SAMPLES`].
const PROFILE_WORK: u64 = 20_000_000_000;
const LEAST_SAMPLES: usize = 32;

/// A plan and what the server keeps to itself; no Debug, it holds the weights.
#[derive(Clone)]
pub struct Built {
    /// For both parties.
    pub plan: Plan,
    /// What the plan computes. The server's secret.
    pub computation: Computation,
    /// Relative rms error of the fixed-point result on the samples.
    pub result_error: f64,
}

/// What a plan computes, with the weights; no Debug.
#[derive(Clone)]
pub enum Computation {
    /// Step by step on shares.
    Shares {
        /// Weights of each step that is linear, by step.
        weights: Vec<Option<Linear>>,
        /// The whole network, for the oracle.
        fixed: FixedGraph,
    },
    /// In one step on ciphertexts.
    Encrypted(Encrypted),
}

impl Built {
    /// The oracle: the result's integers for integers of the input, `images` images one after the other. A secure run
    /// gives exactly these, or under [`TrustLevel::Encrypted`] these within [`Built::tolerance`].
    ///
    /// # Errors
    /// When `integers` does not hold so many images, or a value leaves its proven range.
    pub fn oracle(&self, integers: &[i32], images: usize) -> Result<Vec<i32>, OracleError> {
        match &self.computation {
            Computation::Shares { fixed, .. } => oracle::evaluate(fixed, integers, images),
            Computation::Encrypted(encrypted) => {
                let (input, result) = (self.plan.input(), self.plan.result());
                if input.len().checked_mul(images) != Some(integers.len()) {
                    return Err(OracleError::Inputs {
                        found: integers.len(),
                        images,
                        shape: input.shape.clone(),
                    });
                }
                Ok(evaluate(&encrypted.graph, input, result, integers))
            }
        }
    }

    /// The plan as text, and what only the server knows of its steps.
    pub fn text(&self) -> String {
        match &self.computation {
            Computation::Shares { .. } => self.plan.to_string(),
            Computation::Encrypted(Encrypted { graph, program }) => format!(
                "{}\nwhat the server does, which clients do not see:\n{}",
                self.plan,
                program.display(graph)
            ),
        }
    }

    /// By how many units a result's integer may differ from the oracle's.
    pub fn tolerance(&self) -> i32 {
        self.plan.tolerance()
    }

    /// Multiplications by weights that one image takes.
    pub fn multiply_adds(&self) -> u64 {
        match &self.computation {
            Computation::Shares { fixed, .. } => fixed.multiply_adds(),
            Computation::Encrypted(encrypted) => encrypted.graph.multiply_adds(),
        }
    }
}

/// Why there is no plan.
#[derive(Debug, Error)]
pub enum BuildError {
    /// See there.
    #[error(transparent)]
    Trust(#[from] TrustError),
    /// The float model does not run.
    #[error(transparent)]
    Float(#[from] FloatError),
    /// Some range, scale or modulus does not work out.
    #[error(transparent)]
    Quantise(#[from] QuantiseError),
    /// The fixed-point model does not run on the samples.
    #[error(transparent)]
    Oracle(#[from] OracleError),
    /// The samples are not images of this model.
    #[error(
        "the samples have {found} values, which is no positive multiple of the {expected} that an input of shape {shape:?} has"
    )]
    Samples {
        /// Values given.
        found: usize,
        /// Elements of one input.
        expected: usize,
        /// Shape of one input.
        shape: Vec<usize>,
    },
    /// Not even one image fits.
    #[error(
        "one image needs {needed} bytes on the server at step {step}, and {allowed} are allowed: raise --memory, or use a smaller input"
    )]
    Memory {
        /// The step that needs most.
        step: String,
        /// Bytes needed.
        needed: u64,
        /// Bytes allowed.
        allowed: u64,
    },
    /// The plan is one that clients would refuse.
    #[error(
        "{0}: the model's numbers are out of proportion (weights or ranges that are too large or too small by many powers of two)"
    )]
    Refused(#[source] PlanError),
    /// The fixed-point model does not compute what the float model does.
    #[error(
        "the fixed-point model is off by {:.0} % of the result on the samples: give samples that represent the inputs, \
         more --weight-bits and --input-bits, or rescale weights that are tiny or huge", 100.0 * error
    )]
    Imprecise {
        /// Relative rms error of the result.
        error: f64,
    },
    /// Not a polynomial network.
    #[error(transparent)]
    Polynomial(#[from] PolynomialError),
    /// No parameters carry so many products in a row.
    #[error(
        "no parameters of this version carry this network on ciphertexts at 128 bits of security: it multiplies values \
         by values {products} times. Use fewer or wider layers, fewer --weight-bits, or another trust level"
    )]
    TooDeep {
        /// Squares and products of the network.
        products: u32,
    },
    /// A layer whose numbers do not go together.
    #[error("{layer}: {reason}")]
    Layer {
        /// The node.
        layer: String,
        /// What is wrong.
        reason: String,
    },
    /// The layer's answer is too wide for any modulus.
    #[error(
        "{layer}: its integer result spans {width} values with noise below {noise}, which no modulus of this version carries at 128 bits of security: lower --weight-bits or --input-bits"
    )]
    Modulus {
        /// The node.
        layer: String,
        /// Largest minus smallest result.
        width: f64,
        /// Noise bound.
        noise: u64,
    },
}

/// Builds the plan of `graph`: passes, ranges, precisions, parameters.
///
/// The tolerance a layer is allowed is [`BuildOptions::error`] over the square root of the number of layers
/// (errors of layers add up like noise), lowered until the measured error of the result is small enough or
/// stops falling.
///
/// # Errors
/// When no trust level of this version is named, the model leaves its ranges, or does not fit in memory.
pub fn build(graph: &Graph, options: &BuildOptions) -> Result<Built, BuildError> {
    let trust = trust::require(options.trust)?;
    let graph = passes::run(graph);
    let elements: usize = graph.nodes[0].shape.iter().product();
    let (samples, margin) = samples(options, elements, &graph.nodes[0].shape)?;
    let work = multiply_adds(&graph).max(1);
    let affordable = |budget: u64| usize::try_from(budget / work).unwrap_or(usize::MAX);
    let images = (samples.len() / elements).min(affordable(PROFILE_WORK).max(LEAST_SAMPLES));
    let profile = float::profile(&graph, &samples[..images * elements], images)?;
    let fidelity_work = match trust {
        // Judged once for each size of weights that is tried, in double precision.
        TrustLevel::Encrypted => FIDELITY_WORK / 10,
        _ => FIDELITY_WORK,
    };
    let tests = images.min(affordable(fidelity_work).clamp(4, FIDELITY_IMAGES));
    let tested = &samples[..tests * elements];
    let wanted = float::evaluate(&graph, tested, tests)?;
    let quantise_options = QuantiseOptions {
        margin,
        costly_requantisation: trust == TrustLevel::TwoParty,
        ..QuantiseOptions::default()
    };

    if trust == TrustLevel::Encrypted {
        let source = encrypted::build::Source {
            graph: &graph,
            profile: &profile,
            margin,
            tested,
            wanted: &wanted,
        };
        let (plan, network, result_error) = encrypted::build::build(&source, options)?;
        judge(&plan.finish, options, result_error)?;
        return Ok(Built {
            plan,
            computation: Computation::Encrypted(network),
            result_error,
        });
    }
    let layers = graph
        .nodes
        .iter()
        .filter(|node| matches!(node.op, Op::Conv { .. } | Op::Dense { .. }))
        .count();
    let aim = options.aim(trust);
    let mut tolerance = aim / (layers.max(1) as f64).sqrt();
    if trust == TrustLevel::TwoParty {
        tolerance *= LOOSENESS;
    }
    let mut best: Option<(FixedGraph, f64)> = None;
    let mut stalled = 0;
    for _ in 0..TIGHTENINGS {
        let budget = ModulusBudget {
            tolerance,
            weight_bits: options.weight_bits,
            input_bits: options.input_bits,
            circuits: quantise_options.costly_requantisation,
        };
        let fixed = quantise::quantise(&graph, &profile, &budget, &quantise_options)?;
        let error = result_error(&fixed, tested, &wanted)?;
        let better = best.as_ref().is_none_or(|(_, least)| error < *least);
        if better {
            best = Some((fixed, error));
        }
        stalled = if better { 0 } else { stalled + 1 };
        if stalled == PATIENCE || error <= aim {
            break;
        }
        tolerance /= TIGHTENING;
    }
    let (fixed, result_error) = best.expect("the loop runs at least once");
    judge(&fixed.finish, options, result_error)?;
    let (plan, weights) = cheapest(&fixed, trust, options)?;
    Ok(Built {
        plan,
        computation: Computation::Shares { weights, fixed },
        result_error,
    })
}

/// Another engine than the coefficient engine is taken where it costs at most this part of it: predictions are no better than that.
const WORTHWHILE: f64 = 0.9;

/// Whether a network is small enough to be planned on slots unasked, which takes a second or so for each kind of layer: larger ones are where the coefficient engine
/// wins by the most.
fn is_small(fixed: &FixedGraph) -> bool {
    const LAYERS: usize = 5;
    const MULTIPLY_ADDS: u64 = 10_000_000;
    let layers = fixed
        .nodes
        .iter()
        .filter(|node| matches!(node.op, FixedOp::Linear(_)));
    layers.count() <= LAYERS && fixed.multiply_adds() <= MULTIPLY_ADDS
}

/// The plan in the engine that was asked for, or in the one that is best for the objective.
fn cheapest(
    fixed: &FixedGraph,
    trust: TrustLevel,
    options: &BuildOptions,
) -> Result<(Plan, Vec<Option<Linear>>), BuildError> {
    let plan = |engine| lower(fixed, trust, engine, options.memory);
    if trust != TrustLevel::TwoParty || options.engine.is_some() {
        return plan(options.engine);
    }
    let mut best = plan(None)?;
    for &engine in options.objective.engines() {
        if engine == Engine::Slot && !is_small(fixed) {
            continue;
        }
        if options.objective.bound(&best.0, engine) >= options.objective.of(&best.0) {
            continue;
        }
        // An engine that does not take the network is no choice.
        let Ok(other) = plan(Some(engine)) else {
            continue;
        };
        if options.objective.of(&other.0) < WORTHWHILE * options.objective.of(&best.0) {
            best = other;
        }
    }
    Ok(best)
}

/// Refuses a result that is too far off. Bits the user named are the user's choice, and an index has no relative error.
fn judge(finish: &[Finish], options: &BuildOptions, error: f64) -> Result<(), BuildError> {
    let judged =
        options.weight_bits.or(options.input_bits).is_none() && !finish.contains(&Finish::ArgMax);
    if judged && (error.is_nan() || error > WORST_RESULT) {
        return Err(BuildError::Imprecise { error });
    }
    Ok(())
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

/// The user's samples, or made-up ones, and the margin that goes with them.
fn samples(
    options: &BuildOptions,
    elements: usize,
    shape: &[usize],
) -> Result<(Vec<f32>, f32), BuildError> {
    match &options.samples {
        Some(samples) if samples.is_empty() || samples.len() % elements.max(1) != 0 => {
            Err(BuildError::Samples {
                found: samples.len(),
                expected: elements,
                shape: shape.to_vec(),
            })
        }
        Some(samples) => Ok((samples.clone(), 1.0)),
        None => Ok((synthetic(elements, options.input_range), SYNTHETIC_MARGIN)),
    }
}

/// Made-up images: a third noise, a third ramps, a third noise around a constant.
fn synthetic(elements: usize, (low, high): (f32, f32)) -> Vec<f32> {
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    let mut noise = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 40) as f32 / (1u64 << 24) as f32
    };
    let mut images = Vec::with_capacity(SYNTHETIC_IMAGES * elements);
    for image in 0..SYNTHETIC_IMAGES {
        let level = image as f32 / (SYNTHETIC_IMAGES - 1) as f32;
        for element in 0..elements {
            let place = element as f32 / elements as f32;
            let value = match image % 3 {
                0 => noise(),
                1 => (place + level).fract(),
                _ => (0.8 * level + 0.2 * noise()).min(1.0),
            };
            images.push(low + (high - low) * value);
        }
    }
    images
}

/// Relative rms difference between the fixed-point and the float result, before softmax and the like.
fn result_error(fixed: &FixedGraph, inputs: &[f32], wanted: &[f32]) -> Result<f64, BuildError> {
    let input = &fixed.nodes[0].value;
    let images = inputs.len() / input.len();
    let (integers, _) = oracle::quantise_input(input, inputs)?;
    let result = oracle::evaluate(fixed, &integers, images)?;
    let found = oracle::finish(
        &fixed.finish,
        &fixed.nodes[fixed.output].value,
        &result,
        images,
    );
    Ok(relative_error(&found, wanted))
}

/// Root mean square of the difference over that of what is wanted.
pub(crate) fn relative_error(found: &[f32], wanted: &[f32]) -> f64 {
    let square = |value: f64| value * value;
    let error: f64 = found
        .iter()
        .zip(wanted)
        .map(|(&f, &w)| square(f64::from(f) - f64::from(w)))
        .sum();
    let signal: f64 = wanted.iter().map(|&w| square(f64::from(w))).sum();
    if error == 0.0 {
        0.0
    } else {
        (error / signal).sqrt()
    }
}
