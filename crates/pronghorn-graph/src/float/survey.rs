//! The float network run once on each image, for all that is asked of it.

use rayon::prelude::*;

use super::{
    DEVIATIONS, FloatError, Profile, Run, Statistics, ValueProfile, check_inputs,
    gains::{self, Disturbed},
    quotients::{self, Quotients},
};
use crate::{
    function::Function,
    graph::{Graph, Op},
    quantise::Rows,
    shape,
};

/// Images are taken in so many blocks: that bounds the memory for their statistics.
const BLOCKS: usize = 256;

/// What each image is for.
#[derive(Clone, Copy, Debug, Default)]
pub struct Roles<'a> {
    /// Whether the profile is asked for, over all images.
    pub profile: bool,
    /// Places of the images whose results are asked for, ascending.
    pub results: &'a [usize],
    /// Places of the images over which the means of layers' channels are asked for, ascending.
    pub means: &'a [usize],
    /// Whether [`gains`](super::gains()) are asked for, over the images of the results.
    pub gains: bool,
}

/// What the float network does on some images.
#[derive(Clone, Debug, PartialEq)]
pub struct Survey {
    /// Of all images; empty where it was not asked for.
    pub profile: Profile,
    /// The results before those operators that the client computes, `[image][element]`.
    pub results: Vec<f32>,
    /// The means of the channels (first dimension) of every layer of weights, by node; empty for
    /// other nodes.
    pub means: Vec<Vec<f64>>,
    /// The [`gains`](super::gains()) of all nodes; empty where they were not asked for.
    pub gains: Vec<f64>,
}

/// A run of each image, and with gains a second one beside it.
///
/// Sums are taken in an order that does not depend on the threads, so that the same samples always
/// give the same plan.
///
/// # Errors
/// When `inputs` does not hold `images` images, or a profile is asked for and there are none, or a
/// value is infinite or NaN.
pub fn survey(
    graph: &Graph,
    inputs: &[f32],
    images: usize,
    roles: Roles<'_>,
) -> Result<Survey, FloatError> {
    check_inputs(graph, inputs, images)?;
    if roles.profile && images == 0 {
        return Err(FloatError::NoSamples);
    }
    let run = Run::new(graph);
    let length = images.div_ceil(BLOCKS).max(1);
    let blocks: Vec<Block> = inputs
        .par_chunks(length * graph.input_len())
        .enumerate()
        .map(|(number, inputs)| Block::of(&run, inputs, number * length, roles))
        .collect();
    let mut gained = vec![gains::Squares::default(); graph.nodes.len()];
    let mut total = vec![Statistics::default(); graph.nodes.len()];
    let mut quotients = Quotients::default();
    let (mut results, mut means) = (Vec::new(), vec![Vec::new(); graph.nodes.len()]);
    for (number, block) in blocks.into_iter().enumerate() {
        for (index, statistics) in block.statistics.iter().enumerate() {
            if !statistics.square_sum.is_finite() {
                let node = &graph.nodes[index];
                return Err(FloatError::NotFinite {
                    node: node.name.clone(),
                    operator: node.op.name(),
                    shape: node.shape.clone(),
                    image: number * length,
                });
            }
            total[index].merge(statistics);
        }
        quotients.merge(&block.quotients);
        results.extend(block.results);
        for of_image in block.means {
            add_means(&mut means, &of_image, roles.means.len());
        }
        for squares in block.squares {
            let sums = gained.iter_mut().zip(&squares);
            sums.for_each(|(sum, squares)| sum.add(squares));
        }
    }
    let mut values = Vec::new();
    if roles.profile {
        let deviations = DEVIATIONS[usize::from(graph.nodes[0].shape.len() <= 2)];
        values.extend(total.iter().map(|value| value.profile(deviations)));
        // Inputs often have bounds. One beyond them is clamped, and counted.
        values[0].reach = 1.0;
        refuse_divisors(graph, &values)?;
        quotients.bound(&mut values);
    }
    let rows = Rows::default();
    Ok(Survey {
        profile: Profile { values, rows },
        results,
        means,
        gains: match roles.gains {
            true => gains::backwards(graph, &gained),
            false => Vec::new(),
        },
    })
}

/// Refuses divisors that are not above zero on samples: near zero results have any size.
fn refuse_divisors(graph: &Graph, values: &[ValueProfile]) -> Result<(), FloatError> {
    for node in &graph.nodes {
        let divides = matches!(
            node.op,
            Op::Function {
                function: Function::Reciprocal { .. }
            }
        );
        let least = values[node.inputs.first().copied().unwrap_or_default()].min;
        if divides && least <= 0.0 {
            return Err(FloatError::Divisor {
                node: node.name.clone(),
                least: least.to_string(),
            });
        }
    }
    Ok(())
}

/// What some images tell.
#[derive(Default)]
struct Block {
    /// Of all images, by node.
    statistics: Vec<Statistics>,
    /// Of all images.
    quotients: Quotients,
    results: Vec<f32>,
    /// Of each image, by node.
    means: Vec<Vec<Vec<f64>>>,
    /// Of each image, by node.
    squares: Vec<Vec<gains::Squares>>,
}

impl Block {
    /// Of images whose first has the place `first`.
    fn of(run: &Run<'_>, inputs: &[f32], first: usize, roles: Roles<'_>) -> Self {
        let nodes = run.graph.nodes.len();
        let mut block = Self::default();
        if roles.profile {
            block.statistics = vec![Statistics::default(); nodes];
            block.quotients = Quotients::new(run.graph);
        }
        for (at, image) in inputs.chunks(run.graph.input_len()).enumerate() {
            block.add(run, image, first + at, roles);
        }
        block
    }

    fn add(&mut self, run: &Run<'_>, image: &[f32], place: usize, roles: Roles<'_>) {
        let has = |places: &[usize]| places.binary_search(&place).is_ok();
        let (is_tested, has_means) = (has(roles.results), has(roles.means));
        if !(roles.profile || is_tested || has_means) {
            return;
        }
        let (result, _) = run.graph.tail();
        let mut means = vec![Vec::new(); run.graph.nodes.len()];
        let mut quotients = quotients::Image::new(run.graph, &mut self.quotients);
        let mut disturbed = (is_tested && roles.gains).then(|| Disturbed::new(run));
        run.image(image, |index, value| {
            let node = &run.graph.nodes[index];
            if let Some(statistics) = self.statistics.get_mut(index) {
                statistics.add(value);
            }
            quotients.add(index, value);
            if is_tested && index == result {
                self.results.extend(value);
            }
            if has_means && node.op.is_linear() {
                let (_, length) = shape::channels(&node.shape);
                means[index] = value.chunks(length).map(mean).collect();
            }
            if let Some(disturbed) = &mut disturbed {
                disturbed.add(index, value);
            }
        });
        if has_means {
            self.means.push(means);
        }
        self.squares.extend(disturbed.map(Disturbed::squares));
    }
}

fn mean(values: &[f32]) -> f64 {
    values.iter().map(|&x| f64::from(x)).sum::<f64>() / values.len() as f64
}

/// Adds the means of one image of `images`.
fn add_means(means: &mut [Vec<f64>], of_image: &[Vec<f64>], images: usize) {
    for (mean, of_image) in means.iter_mut().zip(of_image) {
        mean.resize(of_image.len(), 0.0);
        let pairs = mean.iter_mut().zip(of_image);
        pairs.for_each(|(mean, of_image)| *mean += of_image / images as f64);
    }
}
