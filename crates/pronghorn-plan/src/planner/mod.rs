//! The planner: from a floating-point graph to a checked plan and the server's half.
//!
//! Passes, ranges and precisions come first, then the steps of the trust level (`Method`), then
//! their parameters.

mod built;
mod clear;
mod draft;
pub mod encrypted;
mod engines;
mod error;
mod features;
mod fidelity;
mod fixed_point;
mod guards;
mod hint;
mod method;
mod multikey;
mod options;
mod outputs;
mod parameters;
mod pools;
pub mod precision;
mod protocols;
mod ranges;
mod samples;
pub mod schedule;
mod shares;
mod tolerance;

use std::{borrow::Cow, sync::Arc};

use pronghorn_graph::{
    finish::Finish,
    float::{self, Profile, Roles},
    graph::{Graph, Op, Tensor},
    passes::{self, Joins},
    rescale::{equalise, fill},
};

pub use built::{Built, Computation, Encrypted, Weights};
pub use error::BuildError;
pub use fidelity::{Fidelity, OutputError, REFUSE, WARN};
pub use hint::Hint;
pub use multikey::polynomial;
pub use options::{
    BuildOptions, Engine, KEY_CHECKS, Opening, RESULT_ERROR, Rounding, SHARES_ERROR, TABLE_ERROR,
};
pub use samples::{SYNTHETIC_IMAGES, SYNTHETIC_MARGIN};

use self::{
    features::Scaled,
    fidelity::Target,
    method::{Method, Methods, Source, multiply_adds},
};
use crate::{
    cost, flood,
    objective::Objective,
    trust::{self, TrustLevel},
};

/// Samples on which the planner measures the error, at most.
const FIDELITY_IMAGES: usize = 64;

/// Up to so many where they cost a [`CHEAP`]th, as rows do: few of them are near the border of two
/// classes, where errors are largest.
const MOST_FIDELITY: usize = 256;
const CHEAP: u64 = 40;

/// Multiply-adds of those samples, at most.
const FIDELITY_WORK: u64 = 2_000_000_000;

/// And at least.
const LEAST_FIDELITY: usize = 6;

/// Ranges come from as many samples as take this many multiply-adds, and at least
/// [`LEAST_SAMPLES`]; of networks as large as VGG from those that take `MOST_PROFILE_WORK`, at
/// least [`FEWEST_SAMPLES`]. On 24 other photos VGG11's error was no larger with 20 than with 34.
const PROFILE_WORK: u64 = 20_000_000_000;
const LEAST_SAMPLES: usize = 32;
const MOST_PROFILE_WORK: u64 = 150_000_000_000;
const FEWEST_SAMPLES: usize = 16;

/// Numbers of all these samples, at most: a text's indicators are millions.
const MOST_NUMBERS: usize = 1 << 26;

/// The same for the ranges of channels, which may be off by a factor of two.
const PEAKS_WORK: u64 = 4_000_000_000;
const LEAST_PEAKS: usize = 8;

/// Bytes of one image alone up to which the batch engine is the default under `client-aided`.
const MOST_ALONE: u64 = 256 << 20;

fn bytes_alone(built: &Built) -> u64 {
    let one = cost::total(&built.plan, 1);
    one.bytes_up.saturating_add(one.bytes_down)
}

/// Builds the plan of `graph`: passes, ranges, precisions, parameters. The features of a table get
/// scales of their own where that makes a better plan.
///
/// # Errors
/// The trust level is not in this version, the model leaves its ranges, or it does not fit in
/// memory.
pub fn build(graph: &Graph, options: &BuildOptions) -> Result<Built, BuildError> {
    let built = chosen(graph, options).map_err(|error| match &options.samples {
        Some(samples) => error.with_hint(|| hint::of(samples, &graph.nodes[0].shape)),
        None => error,
    })?;
    let plan = built.plan.with_key_checks(options.key_checks);
    let plan = plan.and_then(|plan| plan.with_class_names(&options.class_names));
    let plan = plan.and_then(|plan| plan.with_categories(&options.categories));
    let plan = plan.and_then(|plan| plan.with_columns(&options.columns));
    let plan = plan.and_then(|plan| plan.with_outputs(&options.outputs));
    let plan = plan.map_err(|source| BuildError::refused(source, &built.names))?;
    Ok(Built { plan, ..built })
}

/// The plan before its number of key sets is set.
fn chosen(graph: &Graph, options: &BuildOptions) -> Result<Built, BuildError> {
    let trust = trust::require(options.trust)?;
    flood::check_bits(options.flood_bits).map_err(BuildError::Flood)?;
    if options.rounding == Rounding::Dithered && !trust.shares() {
        return Err(BuildError::NoDither { trust });
    }
    let methods = method_of(trust, options)?;
    let class = match (options.opening, methods.first.comparisons) {
        (Some(Opening::Class), true) => Some(graph.with_class()?),
        (Some(Opening::Class), false) => return Err(BuildError::NoClass { trust }),
        _ => None,
    };
    let graph = class.as_ref().unwrap_or(graph);
    let scaled = match methods.first.clamps {
        true => outputs::scaled(graph, options),
        false => None,
    };
    let on_one_scale = || best(graph, methods, options);
    match scaled.map(|scaled| best(&scaled, methods, options)) {
        None | Some(Err(_)) => on_one_scale(),
        Some(Ok(built)) if built.fidelity.is_reached() && built.hides_none() => Ok(built),
        Some(Ok(built)) => match on_one_scale() {
            Ok(plain) if plain.fidelity.is_no_worse(&built.fidelity) => Ok(plain),
            _ => Ok(built),
        },
    }
}

/// The plan of a network with features on one scale or on scales of their own.
fn best(graph: &Graph, methods: Methods, options: &BuildOptions) -> Result<Built, BuildError> {
    let samples = samples::samples(options, graph.input_len(), &graph.nodes[0].shape)?;
    let folded = passes::run(graph);
    let model = Model {
        graph,
        samples: &samples,
    };
    let plan = |graph: &Graph, samples: (&[f32], bool), methods: Methods| {
        planned(graph, samples, &model, methods, options)
    };
    let on_one_scale = |methods: Methods| plan(&folded, (&samples, false), methods);
    let on_scales = |scaled: &Scaled, methods: Methods| {
        let built = plan(&scaled.graph, (&scaled.samples, true), methods);
        built.and_then(|built| scaled.complete(built))
    };
    let precise_first = |best: &dyn Fn(Methods) -> Result<Built, BuildError>| {
        let precise = best(methods.with_aim(TABLE_ERROR));
        match features::is_reached(&precise) || options.error.is_some() {
            true => precise,
            // A search for less may end far from where one for more does.
            false => features::closest(precise, best(methods)),
        }
    };
    let first = match features::scaled(graph, &folded, options) {
        None => on_one_scale(methods),
        Some(scaled) => precise_first(&|methods| {
            let built = on_scales(&scaled, methods);
            features::better(on_one_scale(methods), built, options.goal())
        }),
    };
    let closer = |first, scaled: Option<Scaled>| match scaled {
        Some(scaled) => {
            let other = precise_first(&|methods| on_scales(&scaled, methods));
            features::much_closer(first, other)
        }
        None => first,
    };
    let ways: [&dyn Fn() -> Option<Scaled>; 3] = [
        &|| features::near_one(graph, &folded, options),
        &|| features::in_layers(graph, Joins::Yes, options),
        &|| {
            let apart = features::columns_apart(&folded, options)?;
            features::in_layers(&apart, Joins::No, options)
        },
    ];
    let first = ways
        .iter()
        .fold(first, |first, way| match features::is_near(&first) {
            true => first,
            false => closer(first, way()),
        });
    match features::is_reached(&first) {
        true => first,
        false => closer(first, features::with_constants(graph, &folded, options)),
    }
}

/// The model as it is, which plans are compared with.
struct Model<'a> {
    /// Before the passes.
    graph: &'a Graph,
    /// Raw.
    samples: &'a [f32],
}

impl Model<'_> {
    /// The results on some samples, where a graph after the passes may have others: what is folded
    /// together may cancel no more. `None` where it has the same weights, and so the same results,
    /// or where the model's own are no numbers.
    fn results(&self, graph: &Graph, tested: &[usize]) -> Result<Option<Vec<f32>>, BuildError> {
        let is_same = |(name, tensor): (&String, &Tensor)| {
            let own = self.graph.tensors.get(name);
            own.is_some_and(|own| Arc::ptr_eq(&own.data, &tensor.data))
        };
        if graph.tensors.iter().all(is_same) {
            return Ok(None);
        }
        let images = self.samples.len() / self.graph.input_len();
        let roles = Roles {
            results: tested,
            ..Roles::default()
        };
        let survey = float::survey(self.graph, self.samples, images, roles)?;
        let is_finite = survey.results.iter().all(|value| value.is_finite());
        Ok(is_finite.then_some(survey.results))
    }
}

/// The plan of a graph after the passes, and whether features have scales of their own.
fn planned(
    graph: &Graph,
    (samples, is_scaled): (&[f32], bool),
    model: &Model<'_>,
    methods: Methods,
    options: &BuildOptions,
) -> Result<Built, BuildError> {
    let elements = graph.input_len();
    let (method, work) = (methods.first, multiply_adds(graph).max(1));
    let affordable = |budget: u64| {
        let rows = usize::try_from(budget / work).unwrap_or(usize::MAX);
        rows.min(MOST_NUMBERS / elements.max(1))
    };
    let least = affordable(MOST_PROFILE_WORK).clamp(FEWEST_SAMPLES, LEAST_SAMPLES);
    let (all, count) = (samples, samples.len() / elements);
    let most = affordable(PROFILE_WORK).max(least);
    let real = options.real(all, elements);
    let given = real.len() / elements;
    let mut kept = samples::spread(given, most);
    let images = kept.len();
    let made = samples::spread(count - given, most);
    kept.extend(made.into_iter().map(|at| given + at));
    let samples = match kept.len() == count {
        true => Cow::Borrowed(all),
        false => Cow::Owned(samples::gathered(all, elements, &kept)),
    };
    let tests = affordable(method.fidelity_work).clamp(LEAST_FIDELITY, FIDELITY_IMAGES);
    let tests = affordable(method.fidelity_work / CHEAP).clamp(tests, MOST_FIDELITY);
    let is_row = graph.nodes[0].shape.len() == 1;
    let mut halves = samples::split(images, tests.min(images.div_ceil(2)), is_row);
    let gathered = |chosen: &[usize]| samples::gathered(&samples, elements, chosen);
    let before = graph;
    let equalised = match method.equalised && options.samples.is_some() {
        true => {
            let count = images.min(affordable(PEAKS_WORK).max(LEAST_PEAKS));
            let [chosen, _] = samples::split(images, count, is_row);
            let peaks = float::peaks(graph, &gathered(&chosen), count);
            equalise(graph, &peaks.map_err(|error| error.at(&chosen).at(&kept))?)
        }
        false => None,
    };
    let graph = equalised.map_or(Cow::Borrowed(graph), Cow::Owned);
    let surveyed = |[tested, corrected]: &[Vec<usize>; 2]| {
        let roles = Roles {
            profile: true,
            results: tested,
            means: corrected,
            gains: method.gains,
        };
        let survey = float::survey(&graph, &samples, kept.len(), roles);
        survey.map_err(|error| error.at(&kept))
    };
    let mut survey = surveyed(&halves)?;
    let are_alike = |results: &[f32], [tested, _]: &[Vec<usize>; 2]| {
        fidelity::carriers(results, results.len() / tested.len()) == 0.0
    };
    if options.samples.is_some() && are_alike(&survey.results, &halves) {
        // What is rare may be in the other half.
        halves.reverse();
        survey = surveyed(&halves)?;
    }
    let [tested, corrected] = halves;
    let places: Vec<usize> = tested.iter().map(|&test| kept[test]).collect();
    let results = model.results(before, &places)?;
    let input = &mut survey.profile.values[0];
    let (shape, range) = (&graph.nodes[0].shape, samples::range(real));
    let of_input = match method.clamps {
        true => samples::margin(images, is_row),
        false => samples::margin_of_ciphertexts(shape),
    };
    let told = match options.samples {
        // More features than the largest are near its end.
        Some(_) if is_scaled => samples::rounded(samples::widened(range, of_input)),
        Some(_) => samples::told(range, of_input, real, elements),
        None => samples::made_up([input.min, input.max]),
    };
    [input.min, input.max] = samples::around(told, &all[real.len()..]);
    keep_range_of_means(
        &graph,
        &mut survey.profile,
        options.are_indicators(elements),
    );
    let margin = match options.samples {
        Some(_) if method.clamps => of_input,
        Some(_) => 1.0,
        None => SYNTHETIC_MARGIN,
    };
    let graph = match method.circuits && options.samples.is_some() {
        true => fill(graph, &mut survey, margin),
        false => graph,
    };
    let wanted = results.as_ref().unwrap_or(&survey.results);
    let source = Source {
        graph: &graph,
        profile: &survey.profile,
        margin,
        tested: &gathered(&tested),
        target: Target {
            wanted,
            outputs: wanted.len() / tested.len(),
            distinct: samples::distinct(&gathered(&tested), elements),
            carriers: options
                .samples
                .as_ref()
                .map(|_| fidelity::carriers(wanted, wanted.len() / tested.len())),
            real: options.samples.is_some(),
            may_hide: graph.nodes[0].shape.len() == 1
                && !matches!(graph.nodes[graph.tail().0].op, Op::Function { .. }),
            has_scores: options.outputs.is_empty() && graph.has_scores(),
            exponents: match &graph.nodes[graph.output].op {
                Op::Scale { exponents } => exponents,
                _ => &[],
            },
            named: &options.outputs,
        },
        gains: &survey.gains,
        corrected: (&gathered(&corrected), &survey.means),
    };
    let built = match ((method.build)(&source, &method, options), methods.otherwise) {
        (Err(BuildError::Memory { .. }), Some(other)) => (other.build)(&source, &other, options),
        (Ok(built), Some(other)) if bytes_alone(&built) > MOST_ALONE => {
            (other.build)(&source, &other, options).or(Ok(built))
        }
        (built, _) => built,
    };
    let sampled = &survey.profile.values[graph.tail().0];
    Ok(match options.samples.is_some() {
        true => {
            let divides = method.gains && !is_scaled && graph.has_positive_functions();
            let deviations = divides.then(|| samples::deviations(real, elements));
            with_sampled(built?, [sampled.min, sampled.max], deviations)
        }
        false => built?,
    })
}

/// Gives means of inputs, moved or not, the range of inputs: others may be even where samples are
/// not, as a text that repeats a word. `are_whole`: no bit is saved where whole numbers are summed.
fn keep_range_of_means(graph: &Graph, profile: &mut Profile, are_whole: bool) {
    let [input, others @ ..] = profile.values.as_mut_slice() else {
        return;
    };
    // A clamp to `2^i` would be one to `2^i - 1`.
    let most = if are_whole {
        2.0 * input.max
    } else {
        input.max
    };
    // Of each value whether it is the input, and whether it is a mean of it.
    let mut is_input = vec![true];
    for (node, value) in graph.nodes[1..].iter().zip(others) {
        let is_mean = matches!(node.op, Op::GlobalAveragePool | Op::AveragePool { .. });
        let moves = matches!(
            node.op,
            Op::Reshape | Op::Transpose { .. } | Op::Take { .. }
        );
        let is_of_input = (is_mean || moves) && node.inputs.iter().all(|&input| is_input[input]);
        is_input.push(is_of_input);
        if is_of_input && (is_mean || are_whole) {
            (value.min, value.max, value.reach) = (input.min.min(value.min), most, 1.0);
        }
    }
}

/// The plan with the range that results have on samples, but that of a class, and with the
/// deviations of these.
fn with_sampled(built: Built, range: [f32; 2], deviations: Option<[f32; 2]>) -> Built {
    let has_range = !built.plan.finish.contains(&Finish::Class);
    let mut finish = built.plan.finish.iter();
    // Of what a softmax or a sigmoid makes the result is no argument.
    let is_log = finish.find(|op| !matches!(op, Finish::Scale { .. })) == Some(&Finish::Log);
    let typical = || samples::typical(range, built.plan.result(), is_log);
    let sampled = has_range.then(typical);
    Built {
        plan: built.plan.with_sampled(sampled, deviations),
        ..built
    }
}

/// `client-aided` in the batch engine.
const CLEAR: Method = Method {
    aim: RESULT_ERROR,
    // Errors of layers mostly add up to less than the rule says, and a bit costs more.
    looseness: 2.0,
    fidelity_work: FIDELITY_WORK,
    circuits: false,
    narrow: false,
    gains: true,
    clamps: true,
    equalised: true,
    comparisons: true,
    class: false,
    build: fixed_point::build,
    lower: |fixed, options| {
        let lowered = clear::lower(fixed, parameters::clear)?;
        lowered.plan(fixed, TrustLevel::ClientAided, options)
    },
};

/// `client-aided` in the coefficient engine.
const CLEAR_COEFFICIENT: Method = Method {
    aim: SHARES_ERROR,
    narrow: true,
    lower: |fixed, options| {
        let lowered = clear::lower(fixed, parameters::clear_coefficient)?;
        lowered.plan(fixed, TrustLevel::ClientAided, options)
    },
    ..CLEAR
};

const TWO_PARTY: Method = Method {
    aim: SHARES_ERROR,
    circuits: true,
    narrow: true,
    class: true,
    lower: engines::cheapest,
    ..CLEAR
};

const ENCRYPTED: Method = Method {
    // Judged once for each size of weights that is tried, in double precision.
    fidelity_work: FIDELITY_WORK / 10,
    gains: false,
    clamps: false,
    equalised: false,
    comparisons: false,
    build: encrypted::build,
    ..CLEAR
};

/// How plans of a trust level are made: the one match on trust levels.
fn method_of(trust: TrustLevel, options: &BuildOptions) -> Result<Methods, BuildError> {
    let aided = match (options.engine, options.objective) {
        (Some(Engine::Slot), _) => Err(BuildError::NoEngine { trust }),
        (Some(Engine::Batch), _) | (None, Some(Objective::Throughput)) => Ok(CLEAR.alone()),
        (Some(Engine::Coefficient), _) | (None, Some(_)) => Ok(CLEAR_COEFFICIENT.alone()),
        (None, None) => Ok(Methods {
            first: CLEAR,
            otherwise: Some(CLEAR_COEFFICIENT),
        }),
    };
    match trust {
        TrustLevel::ClientAided => aided,
        TrustLevel::TwoParty => Ok(TWO_PARTY.alone()),
        TrustLevel::Encrypted | TrustLevel::MultiKey => Ok(ENCRYPTED.alone()),
    }
}
