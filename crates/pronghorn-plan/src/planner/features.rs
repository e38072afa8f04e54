//! Scales of a table's features, where they make a better plan.

use pronghorn_graph::{
    features::FeatureScales,
    graph::{Graph, Node},
    passes,
};

use super::{BuildError, BuildOptions, Built};
use crate::objective::Goal;

/// Between two plans that reach the aim, scales of features must leave at most this part of the
/// cost: they tell the client of the samples, and clamp each feature to a range of its own.
const WORTHWHILE: f64 = 0.8;

/// A factor on the range of scaled samples. Inputs beyond a feature's range are clamped, and more
/// features than the largest are near its end.
pub(super) const HEADROOM: f32 = 1.25;

/// A network on scaled features.
pub(super) struct Scaled {
    scales: FeatureScales,
    /// After the passes.
    pub graph: Graph,
    /// Scaled.
    pub samples: Vec<f32>,
}

impl Scaled {
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
    scaled_by(FeatureScales::of_samples, graph, folded, options)
}

/// The network on scaled features, of which those with one value on all samples keep it.
pub(super) fn with_constants(
    graph: &Graph,
    folded: &Graph,
    options: &BuildOptions,
) -> Option<Scaled> {
    scaled_by(FeatureScales::with_constants, graph, folded, options)
}

/// The network on features of these scales, if there are any.
fn scaled_by(
    scales: fn(&[f32], usize) -> Option<FeatureScales>,
    graph: &Graph,
    folded: &Graph,
    options: &BuildOptions,
) -> Option<Scaled> {
    let (&[features], Some(samples)) = (graph.nodes[0].shape.as_slice(), &options.samples) else {
        return None;
    };
    let scales = scales(samples, features)?;
    // Undone before the passes: an offset and the mean that the model subtracts cancel exactly.
    let graph = passes::run(&scales.undo(graph));
    (layers(&graph) <= layers(folded)).then(|| Scaled {
        samples: scales.apply(samples),
        scales,
        graph,
    })
}

fn layers(graph: &Graph) -> usize {
    let is_layer = |node: &&Node| node.op.is_linear();
    graph.nodes.iter().filter(is_layer).count()
}

/// Whether there is a plan that reaches the aim.
pub(super) fn is_reached(built: &Result<Built, BuildError>) -> bool {
    built
        .as_ref()
        .is_ok_and(|built| built.fidelity.is_reached())
}

/// The plan that reaches the aim, or comes closest. Where both reach it: that on one scale, unless
/// it costs much more.
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
        _ => closest(scaled, on_one_scale),
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
