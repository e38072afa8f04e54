//! Scales of a network's outputs, where their spreads differ.
//!
//! On one scale the small ones vanish, such as scores of classes beside a price. So the network
//! computes `y 2^e` of each, with like spreads, and its client takes the powers of two back
//! ([`Finish::Scale`](pronghorn_graph::finish::Finish::Scale)). Errors count as parts of each
//! output's own spread then.

use pronghorn_graph::{float, graph::Graph, outputs, passes};

use super::{BuildOptions, method::multiply_adds, samples::spread};

/// Most outputs, or channels of a map, that get scales. More are scores of one kind.
const MOST: usize = 64;

/// Fewest samples that tell the spreads.
const LEAST_ROWS: usize = 16;

/// More samples tell of rare events. Most multiply-adds that the network takes on them.
const WORK: u64 = 5_000_000_000;

/// Spreads that differ by fewer bits share one scale, as those of features do.
const LEAST_DIFFERENCE: i8 = 3;

/// Scores of classes of one kind are alike, mostly: with more multiply-adds on the fewest samples
/// nobody looks.
const MOST_WORK: u64 = 50_000_000_000;

/// Outputs are not scaled by more bits.
const MOST_BITS: f64 = 40.0;

/// An output that differs by less than this part of itself is constant but for rounding.
const ROUNDING: f64 = 1e-6;

/// The network with scaled outputs, where samples show that their spreads differ, and the layers
/// before the outputs take the scales up.
pub(super) fn scaled(graph: &Graph, options: &BuildOptions) -> Option<Graph> {
    let shape = &graph.nodes[graph.output].shape;
    let channels = *shape.first()?;
    if !graph.finish().is_empty() || !(2..=MOST).contains(&channels) {
        return None;
    }
    let are_scores = options.outputs.is_empty() && graph.has_scores();
    if are_scores && multiply_adds(graph).saturating_mul(LEAST_ROWS as u64) > MOST_WORK {
        return None;
    }
    let exponents = exponents(graph, options.samples.as_ref()?, channels)?;
    let scaled = outputs::with_scales(graph, &exponents);
    let is_taken_up = passes::layers(&passes::run(&scaled)) <= passes::layers(&passes::run(graph));
    is_taken_up.then_some(scaled)
}

/// The exponents that bring each channel near the one that differs most; `None` where all are alike.
fn exponents(graph: &Graph, samples: &[f32], channels: usize) -> Option<Vec<i8>> {
    let elements = graph.input_len();
    let images = samples.len() / elements.max(1);
    if images < LEAST_ROWS {
        return None;
    }
    let affordable = WORK / multiply_adds(graph).max(1);
    let most = usize::try_from(affordable).unwrap_or(usize::MAX);
    let rows = spread(images, most.max(LEAST_ROWS));
    let count = rows.len();
    let rows = rows
        .iter()
        .flat_map(|row| &samples[row * elements..][..elements]);
    let rows: Vec<f32> = rows.copied().collect();
    let results = float::evaluate(graph, &rows, count).ok()?;
    let spreads: Vec<f64> = (0..channels)
        .map(|channel| deviation(&results, count, channel, channels))
        .collect();
    let most = spreads.iter().copied().fold(0.0, f64::max);
    let exponent = |&spread: &f64| match spread > 0.0 {
        true => (most / spread).log2().floor().min(MOST_BITS) as i8,
        false => 0,
    };
    let exponents: Vec<i8> = spreads.iter().map(exponent).collect();
    exponents
        .iter()
        .any(|&exponent| exponent >= LEAST_DIFFERENCE)
        .then_some(exponents)
}

/// The root mean square of a channel's values about their mean over images, where they differ by
/// more than rounding; else 0.
fn deviation(results: &[f32], images: usize, channel: usize, channels: usize) -> f64 {
    let image = results.len() / images;
    let plane = image / channels;
    let mut all = [0.0; 2];
    for place in channel * plane..(channel + 1) * plane {
        let values = || {
            results[place..]
                .iter()
                .step_by(image)
                .map(|&x| f64::from(x))
        };
        let mean = values().sum::<f64>() / images as f64;
        all[0] += values().map(|x| (x - mean).powi(2)).sum::<f64>();
        all[1] += values().map(|x| x * x).sum::<f64>();
    }
    let [spread, size] = all.map(|sum| (sum / (images * plane) as f64).sqrt());
    match spread > ROUNDING * size {
        true => spread,
        false => 0.0,
    }
}
