//! Scales of a network's outputs, where their spreads differ.
//!
//! On one scale the small ones vanish, such as scores of classes beside a price. So the network
//! computes `y 2^e` of each, with like spreads, and its client takes the powers of two back
//! ([`Finish::Scale`](pronghorn_graph::finish::Finish::Scale)). Errors count as parts of each
//! output's own spread then.

use pronghorn_graph::{float, graph::Graph, outputs, passes};

use super::{BuildOptions, fidelity::ROUNDING, method::multiply_adds, samples::spread};

/// Most outputs, or channels of a map, that get scales. More are scores of one kind.
const MOST: usize = 64;

/// Fewest samples that tell the spreads.
const LEAST_ROWS: usize = 16;

/// More samples tell of rare events. Most multiply-adds that the network takes on them.
const WORK: u64 = 5_000_000_000;

/// Spreads that differ by fewer bits share one scale, as those of features do.
const LEAST_DIFFERENCE: u8 = 3;

/// Scores of classes of one kind are alike, mostly: with more multiply-adds on the fewest samples
/// nobody looks.
const MOST_WORK: u64 = 50_000_000_000;

/// Outputs are not scaled by more bits.
const MOST_BITS: f64 = 40.0;

/// Scaled values of an output are at most so many bits above the largest spread: values far from
/// zero would leave all others few bits.
const MOST_ABOVE: f64 = 10.0;

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
    let samples = options.real(options.samples.as_ref()?, graph.input_len());
    let exponents = exponents(graph, samples, channels)?;
    let sizes: Vec<usize> = match options.outputs.is_empty() {
        true => vec![1; channels],
        false => options
            .outputs
            .iter()
            .map(|output| output.shape.iter().product())
            .collect(),
    };
    let layers = |graph: &Graph| passes::layers(&passes::run(graph));
    let most = layers(graph);
    let down = downwards(&exponents, &sizes);
    [exponents, down]
        .into_iter()
        .filter(|exponents| exponents.iter().any(|&exponent| exponent != 0))
        .map(|exponents| outputs::with_scales(graph, &exponents))
        .find(|scaled| layers(scaled) <= most)
}

/// The same scales from the other end: the outputs of least spread stay as they are, and the wide
/// ones come down to them. Results of a softmax have no layer that takes a factor up, but values
/// beside them may. An output of several channels, `sizes` of which each has, gets one scale.
fn downwards(exponents: &[i8], sizes: &[usize]) -> Vec<i8> {
    let mut rest = exponents;
    let mut shared = Vec::with_capacity(exponents.len());
    for &size in sizes {
        let (of_output, others) = rest.split_at(size.min(rest.len()));
        let least = of_output.iter().copied().min().unwrap_or(0);
        shared.extend(of_output.iter().map(|_| least));
        rest = others;
    }
    shared.extend_from_slice(rest);
    let most = shared.iter().copied().max().unwrap_or(0);
    let down = |exponent: i8| exponent.saturating_sub(most).max(-MOST_BITS as i8);
    let is_near = |exponent: i8| exponent.unsigned_abs() < LEAST_DIFFERENCE;
    let all = shared.into_iter().map(down);
    all.map(|exponent| if is_near(exponent) { 0 } else { exponent })
        .collect()
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
    let sizes: Vec<[f64; 2]> = (0..channels)
        .map(|channel| sizes(&results, count, channel, channels))
        .collect();
    let most = sizes.iter().fold(0.0, |most: f64, size| most.max(size[0]));
    if most == 0.0 {
        return None;
    }
    let exponents: Vec<i8> = sizes.iter().map(|&size| exponent(size, most)).collect();
    exponents
        .iter()
        .any(|exponent| exponent.unsigned_abs() >= LEAST_DIFFERENCE)
        .then_some(exponents)
}

/// The power of two that brings a channel's spread near `most`, its values not beyond
/// [`MOST_ABOVE`]. Constants come up to `most`, or down to what is not beyond.
fn exponent([spread, size]: [f64; 2], most: f64) -> i8 {
    let room = MOST_ABOVE.exp2() * most / size;
    let factor = match spread > 0.0 {
        true => room.max(1.0).min(most / spread),
        false if size == 0.0 => 1.0,
        false => room.min(1.0).max(most / size),
    };
    factor.log2().floor().clamp(-MOST_BITS, MOST_BITS) as i8
}

/// Root mean squares of a channel's values: about their mean over images, where they differ by more
/// than rounding, else 0; and of the values.
fn sizes(results: &[f32], images: usize, channel: usize, channels: usize) -> [f64; 2] {
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
    if all[0] <= ROUNDING * all[1] {
        all[0] = 0.0;
    }
    all.map(|sum| (sum / (images * plane) as f64).sqrt())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outputs_come_down_to_the_least() {
        // A softmax of three classes, one of them rare, beside a value.
        assert_eq!(downwards(&[6, 12, 5, 0], &[3, 1]), [0, 0, 0, -5]);
        // Two that are nearly alike.
        assert_eq!(downwards(&[9, 7, 0], &[1, 1, 1]), [0, 0, -9]);
        assert_eq!(downwards(&[-40, 40], &[1, 1]), [-40, 0]);
    }

    #[test]
    fn spreads_come_near_the_largest() {
        let of = |spread, size| exponent([spread, size], 8.0);
        assert_eq!([of(8.0, 8.0), of(1.0, 2.0), of(0.9, 0.9)], [0, 3, 3]);
        assert_eq!(of(1e-30, 1e-30), 40);
        // Values far from zero are not brought further away than 2^10 of the largest spread.
        assert_eq!([of(1.0, 4096.0), of(1.0, 1e6)], [1, 0]);
        // Constants come down to that, and up to the largest spread.
        assert_eq!([of(0.0, 0.0), of(0.0, 100.0), of(0.0, 16384.0)], [0, 0, -1]);
        assert_eq!([of(0.0, 1e30), of(0.0, 1.0), of(0.0, 1e-30)], [-40, 3, 40]);
    }
}
