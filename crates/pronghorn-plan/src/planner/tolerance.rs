//! How large the errors of each value may be, so that all of them together reach the aim.
//!
//! A relative squared error `e` of a value adds `gain * e` to the error's square. By Lagrange's
//! rule the least cost has errors whose parts of the result's are as what a bit costs: `e = aim^2 *
//! cost / (all costs * gain)`. Values that errors grow from get more bits. Where bits of answers
//! cost, a bit of a value costs as much as the value has elements. Elsewhere all layers count
//! alike.

use pronghorn_graph::graph::{Node, Op};

use super::method::Source;

/// What layers cost by their number, over what they cost by their elements.
const LAYERS: f64 = 0.25;

/// No value is rounded to less than this.
const MOST: f64 = 0.25;

/// No value needs more than that.
const LEAST: f64 = 1e-6;

/// Relative errors of all values that together reach an aim of 1, by node.
pub(super) struct Tolerances(Vec<f64>);

impl Tolerances {
    /// By the gains of the source. `narrow`: whether bits of answers cost.
    pub fn new(source: &Source<'_>, narrow: bool) -> Self {
        let nodes = &source.graph.nodes;
        let elements = |node: &Node| match narrow {
            true => node.shape.iter().product::<usize>() as f64,
            false => 0.0,
        };
        let is_rounded = |node: &&Node| node.op.is_linear() || node.op.is_product();
        let rounded: Vec<&Node> = nodes.iter().filter(is_rounded).collect();
        let all: f64 = rounded.iter().map(|node| elements(node)).sum();
        // A layer costs something whatever its size.
        let layers = rounded.len().max(1) as f64;
        let each = LAYERS * all.max(1.0) / layers;
        let cost = |node: &Node| elements(node) + each;
        let all = all + each * layers;
        let size = source.target.size();
        let tolerance = |(index, (node, gain)): (usize, (&Node, &f64))| {
            let by_gain = match *gain > 0.0 {
                true => (cost(node) / all * size / gain).sqrt(),
                false => f64::INFINITY,
            };
            by_gain.min(within_clip(source, index))
        };
        let gains = nodes.iter().zip(source.gains).enumerate();
        Self(gains.map(tolerance).collect())
    }

    /// Those for an error of the result.
    pub fn reaching(&self, error: f64) -> Vec<f64> {
        // Without a gain a value does not matter.
        let scaled = self.0.iter().map(|tolerance| tolerance * error);
        scaled
            .map(|tolerance| tolerance.clamp(LEAST, MOST))
            .collect()
    }
}

/// The relative error of a value that is half the range of a clip that reads it. Where samples lie
/// far outside that range, no gain tells of the others. Infinite without such a clip.
fn within_clip(source: &Source<'_>, value: usize) -> f64 {
    let half = |(_, reader): (usize, &Node)| match reader.op {
        Op::Clip {
            min: Some(min),
            max: Some(max),
        } => f64::from(max - min) / 2.0,
        _ => f64::INFINITY,
    };
    let narrowest = source.graph.readers(value).map(half);
    narrowest.fold(f64::INFINITY, f64::min) / source.profile.values[value].mean_square.sqrt()
}
