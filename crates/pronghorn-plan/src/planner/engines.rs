//! The plan on shares in the engine that is best for the objective.

use pronghorn_graph::{fixed::FixedGraph, geometry::ConvGeometry};

use super::{BuildError, BuildOptions, Engine, method::Planned, protocols, shares};
use crate::{objective::Objective, trust::TrustLevel};

/// Another engine than the coefficient engine is taken where it costs at most this part of it:
/// predictions are no better than that.
const WORTHWHILE: f64 = 0.9;

/// The plan in the engine that was asked for, or in the one that is best for the objective.
pub(super) fn cheapest(fixed: &FixedGraph, options: &BuildOptions) -> Result<Planned, BuildError> {
    let plan = |engine| {
        let lowered = shares::lower(fixed, engine)?;
        let planned = lowered.plan(fixed, TrustLevel::TwoParty, options)?;
        protocols::choose(planned, options)
    };
    if options.engine.is_some() {
        return plan(options.engine);
    }
    let goal = options.goal();
    let mut best = plan(None)?;
    for &engine in alternatives(goal.objective) {
        if engine == Engine::Slot
            && (!is_small(fixed)
                || goal.bound_on_slots(&best.plan, &best.weights) >= goal.of(&best.plan))
        {
            continue;
        }
        // An engine that does not take the network is no choice.
        let Ok(other) = plan(Some(engine)) else {
            continue;
        };
        if goal.of(&other.plan) < WORTHWHILE * goal.of(&best.plan) {
            best = other;
        }
    }
    Ok(best)
}

/// Engines that may be better than the coefficient engine.
fn alternatives(objective: Objective) -> &'static [Engine] {
    match objective {
        Objective::Throughput => &[Engine::Batch],
        Objective::Latency | Objective::Traffic => &[Engine::Slot],
    }
}

/// Whether a network is small enough to be planned on slots unasked, which takes a second or so for
/// each kind of layer. On larger ones the coefficient engine wins by the most.
fn is_small(fixed: &FixedGraph) -> bool {
    const LAYERS: usize = 5;
    const MULTIPLY_ADDS: u64 = 10_000_000;
    // Each pair of channels is looked for at many shifts, whether or not a weight is there: 37,000
    // took 4 to 12 seconds. One dense layer of rows has a diagonal for each shift.
    const PAIRS: usize = 10_000;
    let layers = fixed.nodes.iter().filter_map(|node| node.op.linear());
    let layers = layers.map(|linear| &linear.geometry);
    let pairs = |geometry: &ConvGeometry| match (geometry.input, geometry.groups) {
        ([1, 1], 1) => 0,
        _ => {
            let taps: usize = geometry.window.kernel.iter().product();
            let pairs = geometry.in_channels.saturating_mul(geometry.out_channels);
            pairs.saturating_mul(taps)
        }
    };
    layers.clone().count() <= LAYERS
        && fixed.multiply_adds() <= MULTIPLY_ADDS
        && layers.map(pairs).all(|pairs| pairs <= PAIRS)
}
