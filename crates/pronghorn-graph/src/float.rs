//! The network in floating point: what it was trained to compute, and the ranges its values
//! take on samples.
//!
//! Images run in parallel, one a thread, and a value is dropped after the last node that reads
//! it, so memory is bounded by the widest cut of the graph times the threads, whatever the batch.

mod gains;
mod ops;
mod quotients;
mod survey;

use rayon::prelude::*;
use thiserror::Error;

use crate::{
    convolution::{Convolution, Floats},
    graph::{Graph, Op},
    quantise::Rows,
    shape,
};

pub use gains::gains;
pub use survey::{Roles, Survey, survey};

/// Standard deviations of images' largest magnitudes that ranges are to hold: of pictures, and of
/// rows and series, whose few values vary more.
const DEVIATIONS: [f64; 2] = [3.0, 4.0];

/// Fewer images say nothing of that.
const LEAST_PEAKS: f64 = 8.0;

/// Ranges grow by this factor at most.
const MOST_REACH: f64 = 8.0;

/// So many of the largest magnitudes tell the tail.
const MOST_TAIL: usize = 16;

/// Ranges are to hold all images but one of so many, and of so many times the samples.
const RARE: f64 = 1000.0;
const RARE_OF_SAMPLES: f64 = 16.0;

/// Why the float network does not run.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum FloatError {
    /// The inputs are not a whole batch.
    #[error(
        "{found} input values given; {images} images of shape {shape:?} need {}",
        images.saturating_mul(shape.iter().product())
    )]
    Inputs {
        /// Values given.
        found: usize,
        /// Images.
        images: usize,
        /// Shape of one image.
        shape: Vec<usize>,
    },
    /// Ranges were asked for, but there are no samples.
    #[error("ranges need at least one sample image")]
    NoSamples,
    /// A value that is no number.
    #[error(
        "node {node} ({operator}, shape {shape:?}) computes infinity or NaN for sample {image}: \
         check the sample and the model's weights"
    )]
    NotFinite {
        /// Name of the node.
        node: String,
        /// Its operator.
        operator: &'static str,
        /// Its shape.
        shape: Vec<usize>,
        /// The sample.
        image: usize,
    },
    /// A divisor that is not above zero on all samples.
    #[error(
        "node {node} divides by values down to {least}, and only positive ones are supported: keep \
         them above zero in the model (max(x, 1e-3)), divide by their negation, or end the model \
         before it"
    )]
    Divisor {
        /// Name of the node.
        node: String,
        /// The least divisor on samples.
        least: String,
    },
}

impl FloatError {
    /// The same error of images that are at these places among others.
    pub fn at(mut self, places: &[usize]) -> Self {
        if let Self::NotFinite { image, .. } = &mut self {
            *image = places.get(*image).copied().unwrap_or(*image);
        }
        self
    }
}

/// Statistics of one value over all samples and elements.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ValueProfile {
    /// Smallest.
    pub min: f32,
    /// Largest.
    pub max: f32,
    /// Mean of the squares.
    pub mean_square: f64,
    /// How far beyond these samples others like them may reach: a factor from 1 to 8. A few samples
    /// whose largest magnitudes differ much tell little of the next.
    pub reach: f64,
}

/// Statistics of every value of a graph on samples.
#[derive(Clone, Debug, PartialEq)]
pub struct Profile {
    /// One a node.
    pub values: Vec<ValueProfile>,
    /// Those of the graph's weights, as quantisers have asked for them.
    pub rows: Rows,
}

/// The result for `batch` images, one after the other in `inputs`; results likewise.
///
/// Includes `Softmax`, `Sigmoid` and `ArgMax` (whose result is the index, as a float).
///
/// # Errors
/// When `inputs` does not hold `batch` images.
pub fn evaluate(graph: &Graph, inputs: &[f32], batch: usize) -> Result<Vec<f32>, FloatError> {
    check_inputs(graph, inputs, batch)?;
    let run = Run::new(graph);
    let images = inputs.par_chunks(graph.input_len());
    let results: Vec<Vec<f32>> = images.map(|image| run.image(image, |_, _| ())).collect();
    Ok(results.concat())
}

/// The range and the mean square of every value over `batch` sample images.
///
/// # Errors
/// When `samples` does not hold `batch` images, there are none, or a value is infinite or NaN.
pub fn profile(graph: &Graph, samples: &[f32], batch: usize) -> Result<Profile, FloatError> {
    let roles = Roles {
        profile: true,
        ..Roles::default()
    };
    Ok(survey(graph, samples, batch, roles)?.profile)
}

/// The largest magnitude of each channel (first dimension) of every value over `batch` images.
///
/// # Errors
/// When `inputs` does not hold `batch` images.
pub fn peaks(graph: &Graph, inputs: &[f32], batch: usize) -> Result<Vec<Vec<f32>>, FloatError> {
    check_inputs(graph, inputs, batch)?;
    let run = Run::new(graph);
    let of_image = |mut peaks: Vec<Vec<f32>>, image: &[f32]| {
        run.image(image, |index, value| {
            let (_, length) = shape::channels(&graph.nodes[index].shape);
            let channels = peaks[index].iter_mut().zip(value.chunks(length));
            channels.for_each(|(peak, values)| {
                *peak = values.iter().fold(*peak, |most, x| most.max(x.abs()));
            });
        });
        peaks
    };
    let none = || {
        let channels = graph.nodes.iter().map(|node| shape::channels(&node.shape));
        let peaks = channels.map(|(channels, _)| vec![0f32; channels]);
        peaks.collect::<Vec<_>>()
    };
    let larger = |mut one: Vec<Vec<f32>>, other: Vec<Vec<f32>>| {
        let pairs = one.iter_mut().flatten().zip(other.into_iter().flatten());
        pairs.for_each(|(most, peak)| *most = most.max(peak));
        one
    };
    let images = inputs.par_chunks(graph.input_len());
    Ok(images.fold(none, of_image).reduce(none, larger))
}

/// The values of all nodes, image after image; `observe` sees them with their node's index.
pub(crate) fn observe(graph: &Graph, inputs: &[f32], mut observe: impl FnMut(usize, &[f32])) {
    let run = Run::new(graph);
    for image in inputs.chunks(graph.input_len()) {
        run.image(image, &mut observe);
    }
}

fn check_inputs(graph: &Graph, inputs: &[f32], batch: usize) -> Result<(), FloatError> {
    if graph.input_len().checked_mul(batch) == Some(inputs.len()) {
        return Ok(());
    }
    let shape = graph.nodes[0].shape.clone();
    Err(FloatError::Inputs {
        found: inputs.len(),
        images: batch,
        shape,
    })
}

/// A graph with what is needed to run it image by image.
struct Run<'a> {
    graph: &'a Graph,
    /// The last node that reads each value; the result is kept.
    last_reader: Vec<usize>,
    /// Products of layers of weights, by node.
    convolutions: Vec<Option<Convolution<'a, Floats>>>,
}

impl<'a> Run<'a> {
    fn new(graph: &'a Graph) -> Self {
        let mut last_reader: Vec<usize> = (0..graph.nodes.len()).collect();
        for (index, node) in graph.nodes.iter().enumerate() {
            node.inputs
                .iter()
                .for_each(|&input| last_reader[input] = index);
        }
        last_reader[graph.output] = usize::MAX;
        let nodes = graph.nodes.par_iter();
        Self {
            graph,
            last_reader,
            convolutions: nodes.map(|node| ops::convolution(graph, node)).collect(),
        }
    }

    /// The result for one image; `observe` sees every value with its node's index.
    fn image(&self, input: &[f32], mut observe: impl FnMut(usize, &[f32])) -> Vec<f32> {
        let mut values: Vec<Vec<f32>> = vec![Vec::new(); self.graph.nodes.len()];
        for (index, node) in self.graph.nodes.iter().enumerate() {
            let value = match node.op {
                Op::Input => input.to_vec(),
                _ => ops::apply(self, index, &mut values),
            };
            observe(index, &value);
            values[index] = value;
            for &read in &node.inputs {
                if self.last_reader[read] == index {
                    values[read] = Vec::new();
                }
            }
        }
        std::mem::take(&mut values[self.graph.output])
    }
}

/// Running statistics of one value.
#[derive(Clone)]
struct Statistics {
    min: f32,
    max: f32,
    square_sum: f64,
    count: usize,
    peaks: Peaks,
}

impl Default for Statistics {
    fn default() -> Self {
        Self {
            min: f32::INFINITY,
            max: f32::NEG_INFINITY,
            square_sum: 0.0,
            count: 0,
            peaks: Peaks::default(),
        }
    }
}

impl Statistics {
    fn add(&mut self, value: &[f32]) {
        // In running sums, which the compiler keeps in vectors.
        const LANES: usize = 8;
        let mut low = [f32::INFINITY; LANES];
        let mut high = [f32::NEG_INFINITY; LANES];
        let mut squares = [0f64; LANES];
        let (chunks, rest) = value.as_chunks::<LANES>();
        for chunk in chunks {
            let lanes = low.iter_mut().zip(&mut high).zip(&mut squares);
            for (&x, ((low, high), squares)) in chunk.iter().zip(lanes) {
                *low = if x < *low { x } else { *low };
                *high = if x > *high { x } else { *high };
                // NaN and infinity stay in the sum, and are seen there.
                *squares += f64::from(x) * f64::from(x);
            }
        }
        let [mut least, mut most] = [f32::INFINITY, f32::NEG_INFINITY];
        for &x in low
            .iter()
            .chain(&high)
            .chain(rest)
            .filter(|x| x.is_finite())
        {
            (least, most) = (least.min(x), most.max(x));
        }
        let rest = rest.iter().map(|&x| f64::from(x) * f64::from(x));
        self.square_sum += squares.iter().sum::<f64>() + rest.sum::<f64>();
        (self.min, self.max) = (self.min.min(least), self.max.max(most));
        self.count += value.len();
        let peak = least.abs().max(most.abs());
        self.peaks.add(if value.is_empty() { 0.0 } else { peak });
    }

    fn merge(&mut self, other: &Self) {
        self.min = self.min.min(other.min);
        self.max = self.max.max(other.max);
        self.square_sum += other.square_sum;
        self.count += other.count;
        self.peaks.merge(&other.peaks);
    }

    fn profile(&self, deviations: f64) -> ValueProfile {
        let mean_square = self.square_sum / self.count as f64;
        ValueProfile {
            min: self.min,
            max: self.max,
            mean_square,
            reach: self.peaks.reach(deviations),
        }
    }
}

/// The largest magnitudes of each image: their logarithms, summed, their squares, and the largest,
/// in falling order.
#[derive(Clone, Copy, Default)]
struct Peaks {
    count: f64,
    sum: f64,
    squares: f64,
    largest: [f64; MOST_TAIL],
}

impl Peaks {
    fn add(&mut self, peak: f32) {
        if peak > 0.0 {
            let logarithm = f64::from(peak).ln();
            self.count += 1.0;
            self.sum += logarithm;
            self.squares += logarithm * logarithm;
            self.keep(peak.into());
        }
    }

    /// One more of the largest, if it is one.
    fn keep(&mut self, peak: f64) {
        let at = self.largest.partition_point(|&larger| larger >= peak);
        if let Some(later) = self.largest.get_mut(at..).filter(|later| !later.is_empty()) {
            later.rotate_right(1);
            later[0] = peak;
        }
    }

    fn merge(&mut self, other: &Self) {
        self.count += other.count;
        self.sum += other.sum;
        self.squares += other.squares;
        other.largest.iter().for_each(|&peak| self.keep(peak));
    }

    /// [`ValueProfile::reach`]: where there are enough to tell, to so many standard deviations of
    /// the logarithms, but not beyond what the largest tell.
    fn reach(&self, deviations: f64) -> f64 {
        if self.count < LEAST_PEAKS {
            return 1.0;
        }
        let mean = self.sum / self.count;
        let variance = (self.squares - self.sum * mean).max(0.0) / (self.count - 1.0);
        // Rounding is no deviation.
        let far = (mean + deviations * variance.sqrt() - 1e-9).exp();
        (far.min(self.tail()) / self.largest[0]).clamp(1.0, MOST_REACH)
    }

    /// The magnitude that one image in [`RARE`], or fewer, exceeds, by the largest of these (Weissman's
    /// estimate with Hill's tail index; de Haan and Ferreira, Extreme Value Theory, section 4.3).
    fn tail(&self) -> f64 {
        let count = (self.count / 4.0).clamp(4.0, MOST_TAIL as f64) as usize;
        let (above, least) = (&self.largest[..count - 1], self.largest[count - 1]);
        let logarithms = above.iter().map(|peak| (peak / least).ln());
        let index = logarithms.sum::<f64>() / above.len() as f64;
        let rare = RARE.min(RARE_OF_SAMPLES * self.count);
        least * (count as f64 * rare / self.count).max(1.0).powf(index)
    }
}
