//! Scales of a table's features, where they make a better plan.

use std::collections::BTreeMap;

use pronghorn_graph::{
    features::{self, FeatureScales, LEAST_ROWS},
    float,
    graph::{Graph, Node, Op},
    passes::{
        self, Joins,
        columns::{Group, MOST_SIZE},
    },
};

use super::{BuildError, BuildOptions, Built, method::multiply_adds, samples};
use crate::objective::Goal;

/// Between two plans that reach the aim, scales of features must leave at most this part of the
/// cost, and between two that do not, of the error. They tell the client of the samples, and clamp
/// each feature to a range of its own.
const WORTHWHILE: f64 = 0.8;

/// A constant feature that moves a first layer by so many times the range of the samples leaves
/// others too few bits.
const OVERWHELMING: f64 = 64.0;

/// Most columns of a row that is cut into groups of them.
const MOST_COLUMNS: usize = 64;

/// Multiply-adds of the rows that tell the sizes of columns, at most.
const MOST_SIZED: u64 = 1_000_000_000;

/// Bits by which the sizes of a group's columns differ at most.
const ALIKE: f32 = 3.0;

/// Rows that tell that range, about, and rows with a moved feature at a time.
const MOVED_ROWS: usize = 64;

/// A network on scaled features.
pub(super) struct Scaled {
    scales: FeatureScales,
    /// After the passes.
    pub graph: Graph,
    /// Scaled.
    pub samples: Vec<f32>,
}

impl Scaled {
    /// The constant features of which a unit moves the results of a first layer far: the range of
    /// all samples is nothing beside it.
    fn overwhelming(&self, constants: &[usize]) -> Vec<usize> {
        let features = self.scales.0.len();
        let rows = self.samples.len() / features;
        let step = rows.div_ceil(MOVED_ROWS);
        let rows: Vec<f32> = self
            .samples
            .chunks(features)
            .step_by(step)
            .flatten()
            .copied()
            .collect();
        let moved = |some: &[usize]| -> Vec<f32> {
            let each = some.iter().flat_map(|&at| {
                let mut row = rows[..features].to_vec();
                row[at] += f32::from(self.scales.0[at].exponent).exp2();
                row
            });
            each.collect()
        };
        let overwhelming = |layer: usize| -> Vec<bool> {
            let graph = up_to(&self.graph, layer);
            let run = |rows: &[f32]| float::evaluate(&graph, rows, rows.len() / features).ok();
            let outputs = graph.nodes[layer].shape.iter().product();
            let clean = run(&rows).unwrap_or_default();
            let range = largest_range(&clean, outputs);
            let is_far = |moved: &[f32]| {
                let pairs = moved.iter().zip(&clean[..outputs]);
                let farthest = pairs
                    .map(|(a, b)| f64::from(a - b).abs())
                    .fold(0.0, f64::max);
                farthest > OVERWHELMING * range
            };
            let of_some = |some: &[usize]| match run(&moved(some)) {
                Some(moved) if range > 0.0 => moved.chunks(outputs).map(is_far).collect(),
                _ => vec![false; some.len()],
            };
            constants.chunks(MOVED_ROWS).flat_map(of_some).collect()
        };
        let found: Vec<Vec<bool>> = first_layers(&self.graph).map(overwhelming).collect();
        let places = constants.iter().enumerate();
        let kept = places.filter(|&(at, _)| found.iter().any(|of_layer| of_layer[at]));
        kept.map(|(_, &feature)| feature).collect()
    }

    /// The plan on raw features, from that on scaled ones.
    pub fn complete(&self, built: Built) -> Result<Built, BuildError> {
        let plan = built.plan.with_features(self.scales.clone());
        Ok(Built {
            plan: plan.map_err(BuildError::TooLong)?,
            ..built
        })
    }
}

/// The network on scaled features: where the input is a row of them, samples show that they differ,
/// and the layers after the input take up the scales. `folded` is the graph after the passes.
pub(super) fn scaled(graph: &Graph, folded: &Graph, options: &BuildOptions) -> Option<Scaled> {
    let (samples, features) = table(graph, options)?;
    let groups = features::groups(graph, samples);
    let scales = FeatureScales::of_samples(samples, features, &groups)?;
    scaled_by(scales, samples, graph, folded)
}

/// The network on features that are about 1 in size. Layers of their own bring them back to what
/// they were, column by column: products and functions read them, and no layer.
pub(super) fn in_layers(graph: &Graph, joins: Joins, options: &BuildOptions) -> Option<Scaled> {
    let (samples, features) = table(graph, options)?;
    let groups = features::groups(graph, samples);
    let scales = match groups.is_empty() {
        true => FeatureScales::near_one(samples, features)?,
        false => FeatureScales::of_samples(samples, features, &groups)?,
    };
    Some(Scaled {
        graph: passes::with_columns_apart(&scales.undo(graph), joins),
        samples: scales.apply(samples),
        scales,
    })
}

/// The network on features that are about 1 in size, as those of no group: beside what layers make
/// of other features, or indicators, large ones would hide these.
pub(super) fn near_one(graph: &Graph, folded: &Graph, options: &BuildOptions) -> Option<Scaled> {
    let (samples, features) = table(graph, options)?;
    if !features::groups(graph, samples).is_empty() {
        return None;
    }
    let scales = FeatureScales::near_one(samples, features)?;
    scaled_by(scales, samples, graph, folded)
}

/// The network on scaled features, of which some keep the one value that they have on samples:
/// those beside whose weights others are nothing. A model has such weights that divides by the
/// deviation and a little more. `None` where there is no such feature.
pub(super) fn with_constants(
    graph: &Graph,
    folded: &Graph,
    options: &BuildOptions,
) -> Option<Scaled> {
    let (samples, features) = table(graph, options)?;
    let groups = features::groups(graph, samples);
    let constants = features::constants(samples, features, &groups);
    if constants.is_empty() {
        return None;
    }
    let with = |kept: &[usize]| {
        let scales = FeatureScales::with_kept(samples, features, &groups, kept)?;
        scaled_by(scales, samples, graph, folded)
    };
    let kept = with(&[])?.overwhelming(&constants);
    match kept.is_empty() {
        true => None,
        false => with(&kept),
    }
}

/// The samples of a table, and its number of features. `None` where too few rows are the owner's:
/// made ones tell no ranges of features.
fn table<'a>(graph: &Graph, options: &'a BuildOptions) -> Option<(&'a [f32], usize)> {
    match (graph.nodes[0].shape.as_slice(), &options.samples) {
        (&[features], Some(samples)) if features > 0 => {
            let rows = options.real(samples, features).len() / features;
            (rows >= LEAST_ROWS).then_some((samples, features))
        }
        _ => None,
    }
}

/// The network with functions, squares and products of rows cut where their columns have unlike
/// ranges on samples, and with products of unlike sizes brought to one where they stand together.
/// `None` where there are none.
pub(super) fn columns_apart(graph: &Graph, options: &BuildOptions) -> Option<Graph> {
    let (samples, features) = table(graph, options)?;
    let rows = samples.len() / features;
    let most = (MOST_SIZED / multiply_adds(graph).max(1)) as usize;
    let sized = samples::spread(rows, most.max(LEAST_ROWS));
    let rows = samples::gathered(samples, features, &sized);
    let sizes = |graph: &Graph| float::peaks(graph, &rows, sized.len()).ok();
    let series = features::groups(graph, samples);
    let slid = match series.is_empty() {
        true => vec![false; graph.nodes.len()],
        false => features::slid_over(graph),
    };
    let groups = groups_of(graph, &sizes(graph)?, &slid);
    let apart = passes::columns::apart(graph, &groups);
    let sizes = sizes_of(&apart, &sizes(&apart)?);
    (!groups.is_empty() || !sizes.is_empty()).then(|| passes::columns::alike(&apart, &sizes))
}

/// The groups of columns of each function, square and product of rows whose columns are unlike:
/// steps of a series are not. `peaks`: the largest magnitudes of each value's columns. `slid`: the
/// values that convolutions slide over.
fn groups_of(graph: &Graph, peaks: &[Vec<f32>], slid: &[bool]) -> BTreeMap<usize, Vec<Group>> {
    let groups = |(index, node): (usize, &Node)| {
        let &[columns] = node.shape.as_slice() else {
            return None;
        };
        let goes_by_columns = matches!(node.op, Op::Function { .. } | Op::Square | Op::Multiply);
        let are_rows = |&input: &usize| graph.nodes[input].shape == node.shape;
        let is_table = columns <= MOST_COLUMNS && !slid[index];
        if !goes_by_columns || !is_table || !node.inputs.iter().all(are_rows) {
            return None;
        }
        let mut found = BTreeMap::<Vec<i32>, Vec<usize>>::new();
        let size = |column: usize, input: usize| size_of(peaks[input][column]).unwrap_or(0);
        for column in 0..columns {
            let sizes = node.inputs.iter().map(|&input| size(column, input));
            found.entry(sizes.collect()).or_default().push(column);
        }
        let group = |(sizes, columns): (Vec<i32>, Vec<usize>)| Group { columns, sizes };
        (found.len() > 1).then(|| (index, found.into_iter().map(group).collect()))
    };
    graph.nodes.iter().enumerate().filter_map(groups).collect()
}

/// The sizes of the parts of each concatenation of few values whose parts are unlike.
fn sizes_of(graph: &Graph, peaks: &[Vec<f32>]) -> BTreeMap<usize, Vec<i32>> {
    let sizes = |(index, node): (usize, &Node)| {
        let is_row = node.op == (Op::Concat { axis: 0 }) && node.shape.len() == 1;
        if !is_row || node.shape[0] > MOST_COLUMNS {
            return None;
        }
        let of_part = |&part: &usize| {
            let sizes = peaks[part].iter().filter_map(|&peak| size_of(peak));
            sizes.max().unwrap_or(0)
        };
        let found: Vec<i32> = node.inputs.iter().map(of_part).collect();
        let is_alike = found.iter().all(|&size| size == found[0]);
        (!is_alike).then_some((index, found))
    };
    graph.nodes.iter().enumerate().filter_map(sizes).collect()
}

/// The binary logarithm of the size of values of at most this magnitude, in steps of [`ALIKE`].
/// `None` where all are zero.
fn size_of(peak: f32) -> Option<i32> {
    let most = MOST_SIZE / ALIKE as i32;
    let size = || ((peak.log2() / ALIKE).ceil() as i32).clamp(-most, most) * ALIKE as i32;
    (peak > 0.0).then(size)
}

/// `None` where that takes more layers than the network has.
fn scaled_by(
    scales: FeatureScales,
    samples: &[f32],
    graph: &Graph,
    folded: &Graph,
) -> Option<Scaled> {
    // Undone before the passes: an offset and the mean that the model subtracts cancel exactly.
    let graph = passes::run(&scales.undo(graph));
    (passes::layers(&graph) <= passes::layers(folded)).then(|| Scaled {
        samples: scales.apply(samples),
        scales,
        graph,
    })
}

/// The layers behind no other layer.
fn first_layers(graph: &Graph) -> impl Iterator<Item = usize> {
    let mut behind = vec![false; graph.nodes.len()];
    let mut first = Vec::new();
    for (index, node) in graph.nodes.iter().enumerate() {
        let is_behind = node.inputs.iter().any(|&input| behind[input]);
        if node.op.is_linear() && !is_behind {
            first.push(index);
        }
        behind[index] = is_behind || node.op.is_linear();
    }
    first.into_iter()
}

/// The graph whose result is the value of a node.
fn up_to(graph: &Graph, node: usize) -> Graph {
    let mut graph = graph.clone();
    graph.nodes.truncate(node + 1);
    graph.output = node;
    graph
}

/// The largest range of an output, `[row][output]`.
fn largest_range(results: &[f32], outputs: usize) -> f64 {
    let range = |output: usize| {
        let values = results.iter().skip(output).step_by(outputs);
        let ends = values.fold([f32::INFINITY, f32::NEG_INFINITY], |[low, high], &value| {
            [low.min(value), high.max(value)]
        });
        f64::from(ends[1]) - f64::from(ends[0])
    };
    match results.is_empty() {
        true => 0.0,
        false => (0..outputs).map(range).fold(0.0, f64::max),
    }
}

/// Whether there is a plan of whose error users are not warned.
pub(super) fn is_near(built: &Result<Built, BuildError>) -> bool {
    built.as_ref().is_ok_and(|built| built.fidelity.is_near())
}

/// Whether there is a plan that reaches the aim.
pub(super) fn is_reached(built: &Result<Built, BuildError>) -> bool {
    built
        .as_ref()
        .is_ok_and(|built| built.fidelity.is_reached())
}

/// The plan that reaches the aim. Where both do: that on one scale, unless it costs much more; and
/// where neither does, unless it errs much more.
pub(super) fn better(
    on_one_scale: Result<Built, BuildError>,
    scaled: Result<Built, BuildError>,
    goal: Goal,
) -> Result<Built, BuildError> {
    match (&on_one_scale, &scaled) {
        (Ok(plain), Ok(other)) if is_reached(&on_one_scale) && is_reached(&scaled) => {
            let limit = WORTHWHILE * goal.of(&plain.plan);
            match goal.of(&other.plan) < limit {
                true => scaled,
                false => on_one_scale,
            }
        }
        (Ok(_), Ok(_)) if !is_reached(&on_one_scale) && !is_reached(&scaled) => {
            much_closer(on_one_scale, scaled)
        }
        _ => closest(scaled, on_one_scale),
    }
}

/// The second plan where it reaches the aim or errs much less than the first, which does not reach
/// it: the second tells clients of the samples, or leaves features out.
pub(super) fn much_closer(
    first: Result<Built, BuildError>,
    second: Result<Built, BuildError>,
) -> Result<Built, BuildError> {
    match (&first, &second) {
        (Ok(one), Ok(other))
            if !is_reached(&second) && other.fidelity.error >= WORTHWHILE * one.fidelity.error =>
        {
            first
        }
        _ => closest(first, second),
    }
}

/// The plan with the smaller expected error; the first where there is none.
pub(super) fn closest(
    first: Result<Built, BuildError>,
    second: Result<Built, BuildError>,
) -> Result<Built, BuildError> {
    match (&first, &second) {
        (Ok(one), Ok(other)) if other.fidelity.error < one.fidelity.error => second,
        (Err(_), Ok(_)) => second,
        _ => first,
    }
}
