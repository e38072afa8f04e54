//! Features of a table, each with a power of two and an offset of its own.
//!
//! Raw features of one row may differ by many powers of two (a ratio of 0.01 beside a price), and
//! may be far from zero (years). On one scale the small ones vanish. So the owner of the inputs
//! sends `(x - offset) * 2^exponent` of each, and the layers that read the input get weights and
//! biases to match: [`FeatureScales::undo`] puts the inverse into the float graph, and
//! [`crate::passes::run`] folds it into these layers.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::{
    fixed::ValueSpec,
    graph::{Graph, Node, Op, Tensor},
    layout::{self, Source},
    oracle::{self, OracleError},
    passes,
};

/// Fewest rows that tell the ranges of features.
pub const LEAST_ROWS: usize = 16;

/// Largest magnitude of an exponent.
pub const MAX_EXPONENT: u32 = 64;

/// A feature gets an offset where the middle of its range is so many times half the range away
/// from zero, or more.
const FAR: f64 = 4.0;

/// From one step to the next a series goes by less than this part of its range.
const JUMP: f64 = 0.25;

/// Offsets are multiples of a power of two of at most this part of half the range: they tell no
/// more of the samples than they have to.
const OFFSET_GRAIN: f64 = 0.25;

/// Bits above the range on samples that a feature keeps, where another's range is as much larger:
/// new inputs may go beyond the samples.
const HEADROOM: i32 = 1;

/// Ranges that differ by fewer bits share one scale.
const LEAST_DIFFERENCE: f64 = 3.0;

/// The range that a feature of one value alone gets to both sides of that value.
const CONSTANT_REACH: f64 = 1.0;

/// The scale of one feature: its owner sends `(x - offset) * 2^exponent`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FeatureScale {
    /// Of the power of two, -64 to 64.
    pub exponent: i8,
    /// Finite.
    pub offset: f32,
}

/// The scales of a row of features, one each.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct FeatureScales(pub Vec<FeatureScale>);

/// The middle that is subtracted, and the largest magnitude then.
#[derive(Clone, Copy)]
struct Reach {
    offset: f64,
    reach: f64,
    is_constant: bool,
}

/// The smallest and the largest value.
#[derive(Clone, Copy)]
struct Ends {
    low: f64,
    high: f64,
}

impl Ends {
    fn of<'a>(values: impl Iterator<Item = &'a f32>) -> Self {
        let none = Self {
            low: f64::INFINITY,
            high: f64::NEG_INFINITY,
        };
        values.fold(none, |Self { low, high }, &value| Self {
            low: low.min(value.into()),
            high: high.max(value.into()),
        })
    }

    /// Whether two neighbours lie apart by many times the width of any and by much of the whole
    /// range, or positive ones by a large factor. Steps of a series do not, and columns of a table
    /// may.
    fn are_far(all: &[Self]) -> bool {
        let most = |end: fn(&Self) -> f64| all.iter().map(end).fold(f64::NEG_INFINITY, f64::max);
        let is_positive = -most(|ends| -ends.low) > 0.0;
        let width = most(|ends| (ends.high - ends.low) / 2.0);
        let range = most(|ends| ends.high) + most(|ends| -ends.low);
        let are_far = |(low, high): (&Self, &Self)| {
            let gap = high.low - low.high;
            gap > (FAR * width).max(JUMP * range)
                || is_positive && (high.low / low.high).log2() >= LEAST_DIFFERENCE
        };
        let mut pairs = all.iter().zip(all.iter().skip(1));
        pairs.any(|(one, other)| are_far((one, other)) || are_far((other, one)))
    }
}

impl FeatureScales {
    /// The scales for `samples`, rows of `features` values: ranges become alike but for a factor
    /// of four. Features of a group share a scale. `None` where they are alike and no constant is
    /// far beyond them, or with fewer than [`LEAST_ROWS`] rows.
    pub fn of_samples(samples: &[f32], features: usize, groups: &[Vec<usize>]) -> Option<Self> {
        let reaches = Reach::of_all(samples, features, groups)?;
        // Next to what layers make of pictures, features are best of the size of these.
        let of_groups = groups.iter().flatten().map(|&at| reaches[at].reach);
        let to = of_groups.fold(None, |most: Option<f64>, reach| {
            Some(most.map_or(reach, |m| m.max(reach)))
        });
        let fit = Reach::are_alike(&reaches) && !Reach::has_far_constant(&reaches);
        (!fit).then(|| Self::of_reaches(&reaches, to, &[]))
    }

    /// The scales with which features are about 1 in size: indicators and what layers make of others
    /// may stand beside them, and these stay as they are. `None` as for [`Self::of_samples`].
    pub fn near_one(samples: &[f32], features: usize) -> Option<Self> {
        let reaches = Reach::of_all(samples, features, &[])?;
        let one = f64::from(HEADROOM).exp2();
        (!Reach::are_alike(&reaches)).then(|| Self::of_reaches(&reaches, Some(one), &[]))
    }

    /// The scales for samples of which the features `kept` have one value alone, which they keep.
    /// What is left of another value is nothing beside those of others. Features of a group share a
    /// scale. `None` with too few rows, or where no feature varies.
    pub fn with_kept(
        samples: &[f32],
        features: usize,
        groups: &[Vec<usize>],
        kept: &[usize],
    ) -> Option<Self> {
        let reaches = Reach::of_all(samples, features, groups)?;
        let varies = reaches.iter().any(|reach| !reach.is_constant);
        varies.then(|| Self::of_reaches(&reaches, None, kept))
    }

    /// Whether a feature keeps its one value.
    pub fn keeps(&self, feature: usize) -> bool {
        self.0[feature].exponent == MAX_EXPONENT as i8
    }

    /// Exponents that bring each feature near a size, that of the largest by default. Those of
    /// features that are alike are 0.
    fn of_reaches(reaches: &[Reach], to: Option<f64>, kept: &[usize]) -> Self {
        let (alike, largest) = (Reach::are_alike(reaches), Reach::ends(reaches)[1]);
        let most = MAX_EXPONENT as i32;
        let (size, least) = match to {
            Some(size) => (size, -most),
            None => (largest, 0),
        };
        let exponent = |at: usize, reach: &Reach| {
            if kept.contains(&at) {
                return most;
            }
            if alike && !reach.is_constant {
                return 0;
            }
            let bits = (size / reach.reach).log2().floor() as i32 - HEADROOM;
            // The most is for those that keep their value.
            bits.clamp(least, most - 1)
        };
        let scale = |(at, reach): (usize, &Reach)| FeatureScale {
            exponent: exponent(at, reach) as i8,
            offset: reach.offset as f32,
        };
        Self(reaches.iter().enumerate().map(scale).collect())
    }

    /// The reason why these are no scales of values of this shape.
    ///
    /// # Errors
    /// Another shape than a row of as many features, or a number out of bounds.
    pub fn check(&self, shape: &[usize]) -> Result<(), String> {
        if shape != [self.0.len()] {
            return Err(format!(
                "there are scales of {} features for an input of shape {shape:?}",
                self.0.len()
            ));
        }
        let is_valid = |scale: &FeatureScale| {
            u32::from(scale.exponent.unsigned_abs()) <= MAX_EXPONENT && scale.offset.is_finite()
        };
        match self.0.iter().position(|scale| !is_valid(scale)) {
            None => Ok(()),
            Some(at) => Err(format!(
                "feature {at} has exponent {} and offset {}: exponents are -{MAX_EXPONENT} to \
                 {MAX_EXPONENT}, offsets finite",
                self.0[at].exponent, self.0[at].offset
            )),
        }
    }

    /// `(x - offset) * 2^exponent` of each value of rows of features, rounded to `f32`. Exact for
    /// values near the samples that offsets come from.
    pub fn apply(&self, values: &[f32]) -> Vec<f32> {
        let scales = self.0.iter().cycle();
        let scaled = |(&value, scale): (&f32, &FeatureScale)| scale.apply(value) as f32;
        values.iter().zip(scales).map(scaled).collect()
    }

    /// As [`oracle::quantise_input`], after [`Self::apply`] without its rounding: the integers of
    /// rows of features, and how many had to be clamped.
    ///
    /// # Errors
    /// When a value is infinite or NaN.
    pub fn quantise(
        &self,
        spec: &ValueSpec,
        values: &[f32],
    ) -> Result<(Vec<i32>, usize), OracleError> {
        oracle::check_finite(spec, values)?;
        let mut integers = vec![0; values.len()];
        let clamped = self.quantise_into(spec, 0, values, &mut integers);
        Ok((integers, clamped))
    }

    /// The same of finite values from feature `first` on, into as many integers; how many were
    /// clamped.
    pub fn quantise_into(
        &self,
        spec: &ValueSpec,
        first: usize,
        values: &[f32],
        integers: &mut [i32],
    ) -> usize {
        let unit = f64::from(spec.fraction_bits).exp2();
        let scales = self.0.iter().cycle().skip(first);
        let mut clamped = 0;
        for ((integer, &value), scale) in integers.iter_mut().zip(values).zip(scales) {
            let (nearest, moved) = oracle::nearest_integer(spec, scale.apply(value) * unit);
            clamped += usize::from(moved);
            *integer = nearest;
        }
        clamped
    }

    /// The graph that computes from scaled features what `graph` computes from raw ones: with
    /// `x' * 2^-exponent + offset` after the input.
    pub fn undo(&self, graph: &Graph) -> Graph {
        let mut graph = graph.clone();
        let factor = |scale: &FeatureScale| f32::exp2(-f32::from(scale.exponent));
        let mul = self.0.iter().map(factor).collect();
        let add = self.0.iter().map(|scale| scale.offset).collect();
        let [mul, add] = [("mul", mul), ("add", add)].map(|(what, data): (_, Vec<f32>)| {
            let tensor = Tensor::new([data.len()], data);
            Some(passes::insert(&mut graph, "features", what, tensor))
        });
        let node = Node {
            name: graph.nodes[0].name.clone(),
            op: Op::Affine { mul, add },
            inputs: vec![0],
            shape: graph.nodes[0].shape.clone(),
        };
        passes::insert_behind(&mut graph, 0, node);
        graph
    }
}

impl FeatureScale {
    fn apply(self, value: f32) -> f64 {
        let factor = f64::from(self.exponent).exp2();
        (f64::from(value) - f64::from(self.offset)) * factor
    }
}

impl Reach {
    /// Of each feature, or of its group. `None` with fewer than [`LEAST_ROWS`] rows.
    fn of_all(samples: &[f32], features: usize, groups: &[Vec<usize>]) -> Option<Vec<Self>> {
        if features == 0 || samples.len() / features < LEAST_ROWS {
            return None;
        }
        let values = |feature: usize| samples[feature..].iter().step_by(features);
        let mut reaches: Vec<Self> = (0..features).map(|at| Self::of(values(at))).collect();
        for group in groups {
            let shared = Self::of(group.iter().flat_map(|&at| values(at)));
            group.iter().for_each(|&at| reaches[at] = shared);
        }
        Some(reaches)
    }

    fn of<'a>(values: impl Iterator<Item = &'a f32>) -> Self {
        let Ends { low, high } = Ends::of(values);
        let (middle, half) = ((low + high) / 2.0, (high - low) / 2.0);
        let is_constant = half <= 0.0;
        let offset = match middle.abs() >= FAR * half {
            _ if is_constant => low,
            true => {
                let grain = (OFFSET_GRAIN * half).log2().floor().exp2();
                ((middle / grain).round() * grain).clamp(f32::MIN.into(), f32::MAX.into())
            }
            false => 0.0,
        };
        let reach = match is_constant {
            true => CONSTANT_REACH,
            false => (high - offset).abs().max((low - offset).abs()),
        };
        Self {
            offset,
            reach,
            is_constant,
        }
    }

    /// The least and the largest of those that vary.
    fn ends(reaches: &[Self]) -> [f64; 2] {
        let varied = reaches.iter().filter(|reach| !reach.is_constant);
        varied.fold([f64::INFINITY, 0.0], |[least, most], reach| {
            [least.min(reach.reach), most.max(reach.reach)]
        })
    }

    /// Whether a feature of one value alone would leave those that vary few bits.
    fn has_far_constant(reaches: &[Self]) -> bool {
        let most = Self::ends(reaches)[1];
        let is_far = |reach: &Self| (reach.offset.abs() / most).log2() >= LEAST_DIFFERENCE;
        most > 0.0
            && reaches
                .iter()
                .any(|reach| reach.is_constant && is_far(reach))
    }

    /// Whether one scale serves all that vary.
    fn are_alike(reaches: &[Self]) -> bool {
        let [least, most] = Self::ends(reaches);
        let differ = most > 0.0 && (most / least).log2() >= LEAST_DIFFERENCE;
        let mut varied = reaches.iter().filter(|reach| !reach.is_constant);
        !differ && varied.all(|reach| reach.offset == 0.0)
    }
}

/// The features that share a scale: those of each part of the row that is an image or a series, as
/// its graph and samples say. Parts of which two features are far apart are columns of a table.
pub fn groups(graph: &Graph, samples: &[f32]) -> Vec<Vec<usize>> {
    let ends = |&at: &usize| Ends::of(samples[at..].iter().step_by(graph.input_len()));
    let is_near = |part: &Vec<usize>| {
        !samples.is_empty() && !Ends::are_far(&part.iter().map(ends).collect::<Vec<_>>())
    };
    let mut groups = parts(graph);
    groups.retain(is_near);
    groups
}

/// The parts of the row that the model reads as images or series, by the same weights. Those with a
/// feature in common are one.
fn parts(graph: &Graph) -> Vec<Vec<usize>> {
    let slid = slid_over(graph);
    let of_images = graph.readers(0).filter_map(|(index, node)| {
        let is_image = slid[index] || graph.readers(index).any(|(_, reader)| is_map(reader));
        match &node.op {
            Op::Take { axis: 0, indices } => is_image.then(|| indices.clone()),
            op => {
                (slid[index] && leaves_alike(graph, op)).then(|| (0..graph.input_len()).collect())
            }
        }
    });
    let mut parts: Vec<BTreeSet<usize>> = Vec::new();
    for indices in of_images {
        let mut joined = BTreeSet::from_iter(indices);
        parts.retain(|part| {
            let is_apart = joined.is_disjoint(part);
            if !is_apart {
                joined.extend(part);
            }
            is_apart
        });
        parts.push(joined);
    }
    parts.sort();
    let sorted = parts.into_iter().map(Vec::from_iter);
    sorted.collect()
}

/// Whether it makes a picture, or a series of rows, of a row.
fn is_map(node: &Node) -> bool {
    node.op == Op::Reshape && node.shape.iter().filter(|&&size| size > 1).count() > 1
}

/// Of each value, whether convolutions slide over it, as it is or after operators that leave its
/// places alike: the same weights meet all of them.
pub fn slid_over(graph: &Graph) -> Vec<bool> {
    let mut slid = vec![false; graph.nodes.len()];
    for (index, node) in graph.nodes.iter().enumerate().rev() {
        let slides = match &node.op {
            // No pool: the mean or the largest of a table's columns is none, either.
            Op::Conv { .. } => graph.nodes[node.inputs[0]].shape[1..] != [1, 1],
            op => slid[index] && leaves_alike(graph, op),
        };
        for &input in &node.inputs {
            slid[input] |= slides;
        }
    }
    slid
}

/// Whether values that are alike stay so.
fn leaves_alike(graph: &Graph, op: &Op) -> bool {
    match op {
        // Factors of columns that are unlike are a table's.
        Op::Affine { mul: Some(mul), .. } => {
            let factors = graph.tensors[mul].data.iter().map(|mul| mul.abs());
            let ends = factors.fold([f32::INFINITY, 0.0], |[least, most], mul| {
                [least.min(mul), most.max(mul)]
            });
            f64::from(ends[1] / ends[0]).log2() < LEAST_DIFFERENCE
        }
        Op::Affine { mul: None, .. } => true,
        op => !op.is_linear(),
    }
}

/// The features of a row that products, squares and functions read with no layer of several
/// features between, but those that convolutions slide over. Where samples have none of such a
/// feature, they tell nothing of these.
pub fn in_products(graph: &Graph) -> Vec<usize> {
    if graph.nodes[0].shape.len() != 1 {
        return Vec::new();
    }
    let mut features: Vec<Elements> = Vec::with_capacity(graph.nodes.len());
    let mut found = BTreeSet::new();
    for node in &graph.nodes {
        if node.op.is_product() || matches!(node.op, Op::Square | Op::Function { .. }) {
            let read = node
                .inputs
                .iter()
                .filter_map(|&input| features[input].as_ref());
            found.extend(read.flatten().flat_map(|few| few.iter()));
        }
        features.push(match node.op {
            Op::Input => Some((0..graph.input_len()).map(Few::of).collect()),
            _ => moved(graph, node, &features),
        });
    }
    let slid = parts(graph).into_iter().flatten();
    slid.for_each(|feature| _ = found.remove(&feature));
    found.into_iter().collect()
}

/// The features that an element of a value is a sum of, unless these are more: then the first.
#[derive(Clone, Copy, PartialEq)]
struct Few([u32; Self::MOST]);

impl Few {
    const MOST: usize = 4;

    /// The place of no feature.
    const NONE: u32 = u32::MAX;

    const EMPTY: Self = Self([Self::NONE; Self::MOST]);

    fn of(feature: usize) -> Self {
        let mut few = Self::EMPTY;
        few.0[0] = u32::try_from(feature).unwrap_or(Self::NONE);
        few
    }

    fn iter(&self) -> impl Iterator<Item = usize> {
        let known = self.0.iter().filter(|&&feature| feature != Self::NONE);
        known.map(|&feature| feature as usize)
    }

    /// The features of a sum of two elements.
    fn with(mut self, other: Self) -> Self {
        for feature in other.0 {
            let is_new = feature != Self::NONE && !self.0.contains(&feature);
            if is_new && let Some(free) = self.0.iter_mut().find(|free| **free == Self::NONE) {
                *free = feature;
            }
        }
        self
    }
}

/// The features of each element of a value; `None` where no element has any.
type Elements = Option<Vec<Few>>;

/// The features of a value's elements, where these are its inputs', or functions of one alone.
fn moved(graph: &Graph, node: &Node, features: &[Elements]) -> Elements {
    let first = *node.inputs.first()?;
    let shape = &graph.nodes[first].shape;
    let of_first = |at: usize| features[first].as_ref().map_or(Few::EMPTY, |all| all[at]);
    let all = |sources: Vec<usize>| Some(sources.into_iter().map(of_first).collect());
    match &node.op {
        Op::Affine { .. }
        | Op::Relu
        | Op::Clip { .. }
        | Op::LeakyRelu { .. }
        | Op::Step
        | Op::Reshape => features[first].clone(),
        Op::Take { axis, indices } if features[first].is_some() => {
            all(layout::take(shape, *axis, indices))
        }
        Op::Transpose { permutation } if features[first].is_some() => {
            all(layout::transpose(shape, permutation))
        }
        Op::Pad { before, after } if features[first].is_some() => {
            let sources = layout::pad(shape, before, after).into_iter();
            Some(sources.map(|at| at.map_or(Few::EMPTY, of_first)).collect())
        }
        Op::Concat { axis } if node.inputs.iter().any(|&input| features[input].is_some()) => {
            let shapes = node
                .inputs
                .iter()
                .map(|&input| &graph.nodes[input].shape[..]);
            let sources = layout::concat(&shapes.collect::<Vec<_>>(), *axis);
            let of_source = |Source { input, index }: Source| {
                let of_input = features[node.inputs[input]].as_ref();
                of_input.map_or(Few::EMPTY, |all| all[index])
            };
            Some(sources.into_iter().map(of_source).collect())
        }
        Op::Add => {
            let second = features[node.inputs[1]].as_ref()?;
            let pairs = features[first].as_ref()?.iter().zip(second);
            Some(pairs.map(|(first, second)| first.with(*second)).collect())
        }
        _ => None,
    }
}

/// The features that have one value on all samples, but those of a group that has several. None
/// with too few rows.
pub fn constants(samples: &[f32], features: usize, groups: &[Vec<usize>]) -> Vec<usize> {
    let reaches = Reach::of_all(samples, features, groups).unwrap_or_default();
    let constant = reaches.iter().enumerate();
    let constant = constant.filter_map(|(at, reach)| reach.is_constant.then_some(at));
    constant.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::geometry::Window;

    /// Rows of a price, a ratio, a year and a constant.
    fn rows() -> Vec<f32> {
        let row = |i: usize| {
            [
                2500.0 - 100.0 * i as f32,
                0.01 * i as f32,
                1990.0 + i as f32,
                7.0,
            ]
        };
        (0..31).flat_map(row).collect()
    }

    #[test]
    fn ranges_become_alike() {
        let scales = FeatureScales::of_samples(&rows(), 4, &[]).expect("they differ");
        let exponents: Vec<i8> = scales.0.iter().map(|scale| scale.exponent).collect();
        assert_eq!(exponents, [0, 12, 6, 10]);
        let offsets: Vec<f32> = scales.0.iter().map(|scale| scale.offset).collect();
        assert_eq!(offsets, [0.0, 0.0, 2006.0, 7.0]);
        assert_eq!(scales.check(&[4]), Ok(()));
        let scaled = scales.apply(&rows());
        let most = |feature: usize| {
            let values = scaled[feature..].iter().step_by(4);
            values.fold(0.0, |most: f32, value| most.max(value.abs()))
        };
        assert_eq!(most(3), 0.0);
        assert!((0..3).all(|feature| (625.0..=2500.0).contains(&most(feature))));
    }

    #[test]
    fn alike_ranges_share_one_scale() {
        let row = |i: usize| [i as f32, -(i as f32) / 5.0, 0.0];
        let rows: Vec<f32> = (0..20).flat_map(row).collect();
        assert_eq!(FeatureScales::of_samples(&rows, 3, &[]), None);
        // Too few rows to tell.
        assert_eq!(
            FeatureScales::of_samples(&super::tests::rows()[..60], 4, &[]),
            None
        );
        assert_eq!(FeatureScales::of_samples(&[], 0, &[]), None);
        let constant = [3.0; 40];
        assert_eq!(FeatureScales::of_samples(&constant, 2, &[]), None);
    }

    #[test]
    fn a_constant_far_beyond_the_others_is_taken_off() {
        let rows = |constant: f32| -> Vec<f32> {
            let row = |i: usize| [i as f32, -(i as f32) / 5.0, constant];
            (0..20).flat_map(row).collect()
        };
        assert_eq!(FeatureScales::of_samples(&rows(100.0), 3, &[]), None);
        let scales = FeatureScales::of_samples(&rows(-90_210.0), 3, &[]).expect("it is far");
        let found: Vec<_> = scales.0.iter().map(|s| (s.exponent, s.offset)).collect();
        assert_eq!(found, [(0, 0.0), (0, 0.0), (3, -90_210.0)]);
    }

    #[test]
    fn kept_constants_count_for_nothing() {
        assert_eq!(constants(&rows(), 4, &[]), [3]);
        let with = |kept| FeatureScales::with_kept(&rows(), 4, &[], kept).expect("enough rows");
        let plain = FeatureScales::of_samples(&rows(), 4, &[]).expect("they differ");
        assert_eq!(with(&[]), plain);
        let scales = with(&[3]);
        assert_eq!((scales.0[3].exponent, scales.0[3].offset), (64, 7.0));
        assert!(scales.keeps(3) && !scales.keeps(1));
        assert_eq!(scales.0[..3], plain.0[..3]);
        assert_eq!(constants(&rows()[..60], 4, &[]), [] as [usize; 0]);
        assert_eq!(FeatureScales::with_kept(&rows()[..60], 4, &[], &[3]), None);
        assert_eq!(FeatureScales::with_kept(&[3.0; 40], 2, &[], &[]), None);
    }

    /// Scales tell nothing of features that need none.
    #[test]
    fn features_that_are_alike_have_no_scale_beside_a_constant() {
        let row = |i: usize| [i as f32, -(i as f32) / 5.0, 2024.0];
        let rows: Vec<f32> = (0..20).flat_map(row).collect();
        let scales = FeatureScales::with_kept(&rows, 3, &[], &[2]).expect("enough rows");
        let none = FeatureScale {
            exponent: 0,
            offset: 0.0,
        };
        assert_eq!(scales.0[..2], [none; 2]);
        assert_eq!((scales.0[2].exponent, scales.0[2].offset), (64, 2024.0));
    }

    #[test]
    fn integers_are_of_scaled_features() {
        let spec = ValueSpec {
            shape: vec![4],
            fraction_bits: -2,
            low: -1000,
            high: 1000,
        };
        let scales = FeatureScales::of_samples(&rows(), 4, &[]).expect("they differ");
        let (integers, clamped) = scales.quantise(&spec, &rows()).expect("numbers");
        let (expected, none) = oracle::quantise_input(&spec, &scales.apply(&rows())).unwrap();
        assert_eq!((integers, clamped, none), (expected, 0, 0));
        let (integers, clamped) = scales.quantise(&spec, &[9e9, 0.3, 0.0, 7.5]).unwrap();
        assert_eq!((integers, clamped), (vec![1000, 307, -1000, 128], 2));
        assert!(scales.quantise(&spec, &[0.0, f32::NAN, 0.0, 0.0]).is_err());
    }

    #[test]
    fn scales_that_are_none_are_refused() {
        let scale = |exponent, offset| FeatureScale { exponent, offset };
        let check = |scales: &[FeatureScale], shape: &[usize]| {
            FeatureScales(scales.to_vec()).check(shape).unwrap_err()
        };
        let good = scale(-64, 1.0);
        assert!(check(&[good], &[2]).contains("scales of 1 features"));
        assert!(check(&[good; 4], &[2, 2]).contains("shape [2, 2]"));
        assert!(check(&[good, scale(65, 0.0)], &[2]).contains("feature 1"));
        assert!(check(&[scale(i8::MIN, 0.0)], &[1]).contains("feature 0"));
        assert!(check(&[scale(0, f32::NAN)], &[1]).contains("feature 0"));
    }

    /// A picture of two by two beside a table of two, in one row.
    fn picture_beside_table() -> Graph {
        let node = |name: &str, op, inputs: &[usize], shape: &[usize]| Node {
            name: name.into(),
            op,
            inputs: inputs.to_vec(),
            shape: shape.to_vec(),
        };
        let take = |indices: &[usize]| Op::Take {
            axis: 0,
            indices: indices.to_vec(),
        };
        let conv = Op::Conv {
            weight: "conv.w".into(),
            bias: None,
            window: Window {
                kernel: [2, 2],
                stride: [1, 1],
                padding: [0; 4],
                dilation: [1, 1],
            },
            groups: 1,
        };
        let dense = Op::Dense {
            weight: "dense.w".into(),
            bias: None,
        };
        let tensor = |name: &str, shape: &[usize]| {
            let count = shape.iter().product::<usize>();
            let data = (0..count).map(|i| (i as f32 + 1.0).sin());
            (
                name.to_string(),
                Tensor::new(shape.to_vec(), data.collect()),
            )
        };
        let graph = Graph {
            name: "m".into(),
            nodes: vec![
                node("x", Op::Input, &[], &[6]),
                node("picture", take(&[0, 1, 2, 3]), &[0], &[4]),
                node("map", Op::Reshape, &[1], &[1, 2, 2]),
                node("conv", conv, &[2], &[3, 1, 1]),
                node("flat", Op::Reshape, &[3], &[3]),
                node("table", take(&[4, 5]), &[0], &[2]),
                node("joined", Op::Concat { axis: 0 }, &[4, 5], &[5]),
                node("dense", dense, &[6], &[2]),
            ],
            output: 7,
            tensors: std::collections::BTreeMap::from([
                tensor("conv.w", &[3, 1, 2, 2]),
                tensor("dense.w", &[2, 5]),
            ]),
        };
        graph.validate().unwrap();
        graph
    }

    /// A series of six beside a table of two, in one row: the series after `front`, which makes six
    /// values of it, is slid over.
    fn series_beside_table(front: Vec<Node>) -> Graph {
        let mut graph = picture_beside_table();
        let take = |from: usize, to: usize| Op::Take {
            axis: 0,
            indices: (from..to).collect(),
        };
        let node = |name: &str, op, inputs: &[usize], shape: &[usize]| Node {
            name: name.into(),
            op,
            inputs: inputs.to_vec(),
            shape: shape.to_vec(),
        };
        let [mut conv, flat, joined, dense] = [3, 4, 6, 7].map(|at| graph.nodes[at].clone());
        let Op::Conv { window, .. } = &mut conv.op else {
            unreachable!()
        };
        window.kernel = [1, 4];
        let mut nodes = vec![
            node("x", Op::Input, &[], &[8]),
            node("series", take(0, 6), &[0], &[6]),
        ];
        nodes.extend(front);
        let last = nodes.len() - 1;
        nodes.push(node("map", Op::Reshape, &[last], &[1, 1, 6]));
        nodes.push(Node {
            inputs: vec![last + 1],
            shape: vec![3, 1, 3],
            ..conv
        });
        nodes.push(node("mean", Op::GlobalAveragePool, &[last + 2], &[3, 1, 1]));
        nodes.push(Node {
            inputs: vec![last + 3],
            ..flat
        });
        nodes.push(node("table", take(6, 8), &[0], &[2]));
        nodes.push(Node {
            inputs: vec![last + 4, last + 5],
            ..joined
        });
        nodes.push(Node {
            inputs: vec![last + 6],
            ..dense
        });
        graph.output = nodes.len() - 1;
        graph.nodes = nodes;
        let tensors = [
            ("conv.w", vec![3, 1, 1, 4], 12),
            ("alike", vec![6], 6),
            ("unlike", vec![6], 6),
        ];
        for (name, shape, count) in tensors {
            let data = (0..count).map(|i| match name {
                "unlike" => 0.1f32.powi(i),
                _ => 1.5 + (i as f32).sin(),
            });
            let data = data.collect();
            graph.tensors.insert(name.into(), Tensor::new(shape, data));
        }
        graph.validate().unwrap();
        graph
    }

    /// Operators that work value by value, and moves, leave the steps of a series alike.
    #[test]
    fn a_series_has_one_scale_whatever_comes_before_its_windows() {
        let node = |op, inputs: &[usize], size: usize| Node {
            name: "front".into(),
            op,
            inputs: inputs.to_vec(),
            shape: vec![size],
        };
        let take = |indices: &[usize]| Op::Take {
            axis: 0,
            indices: indices.to_vec(),
        };
        let affine = |mul: &str| Op::Affine {
            mul: Some(mul.into()),
            add: None,
        };
        let series = vec![(0..6).collect::<Vec<usize>>()];
        let fronts = [
            vec![],
            vec![node(affine("alike"), &[1], 6)],
            vec![node(Op::Relu, &[1], 6)],
            vec![node(Op::LeakyRelu { alpha: 0.1 }, &[1], 6)],
            vec![node(Op::Square, &[1], 6)],
            // Repeated ends, and differences of neighbours.
            vec![node(take(&[0, 1, 2, 3, 4, 4]), &[1], 6)],
            vec![
                node(take(&[0, 0, 1, 2, 3, 4]), &[1], 6),
                node(Op::Add, &[1, 2], 6),
            ],
        ];
        for front in fronts {
            let graph = series_beside_table(front);
            assert_eq!(parts(&graph), series, "{:?}", graph.nodes[2]);
        }
        // Factors that are far apart say that the columns are no steps.
        let graph = series_beside_table(vec![node(affine("unlike"), &[1], 6)]);
        assert_eq!(parts(&graph), [[0; 0]; 0]);
        // Two parts of a row that overlap are one.
        let mut graph = series_beside_table(vec![node(take(&[4, 5, 6, 7, 0, 1]), &[0], 6)]);
        graph.nodes[1].op = take(&[5, 4, 3, 2, 1, 0]);
        graph.nodes[2].inputs = vec![0];
        assert_eq!(parts(&graph), [[0, 1, 4, 5, 6, 7]]);
        graph.nodes.insert(3, node(Op::Add, &[1, 2], 6));
        for node in &mut graph.nodes[4..] {
            node.inputs
                .iter_mut()
                .filter(|at| **at > 1)
                .for_each(|at| *at += 1);
        }
        graph.output += 1;
        graph.validate().unwrap();
        assert_eq!(parts(&graph), [(0..8).collect::<Vec<usize>>()]);
        // And a row that is one series.
        let mut graph = series_beside_table(vec![]);
        graph.nodes[1].op = Op::Affine {
            mul: None,
            add: Some("alike".into()),
        };
        graph.nodes[0].shape = vec![6];
        let table = graph.nodes.iter_mut().find(|node| node.name == "table");
        table.expect("a table").op = take(&[4, 5]);
        graph.validate().unwrap();
        assert_eq!(parts(&graph), series);
    }

    /// A step that happens to have one value is no constant.
    #[test]
    fn steps_of_a_series_are_no_constants() {
        let row = |i: usize| [0.0, i as f32, 30.0 - i as f32, 2024.0];
        let rows: Vec<f32> = (0..20).flat_map(row).collect();
        assert_eq!(constants(&rows, 4, &[]), [0, 3]);
        assert_eq!(constants(&rows, 4, &[vec![0, 1, 2]]), [3]);
        let scales = FeatureScales::with_kept(&rows, 4, &[vec![0, 1, 2]], &[3]).expect("varies");
        assert!(scales.0[..3].iter().all(|scale| *scale == scales.0[0]));
    }

    #[test]
    fn products_tell_which_features_they_read() {
        let node = |op, inputs: &[usize], shape: &[usize]| Node {
            name: "n".into(),
            op,
            inputs: inputs.to_vec(),
            shape: shape.to_vec(),
        };
        let take = |axis, index| Op::Take {
            axis,
            indices: vec![index],
        };
        let mut graph = series_beside_table(vec![]);
        assert_eq!(in_products(&graph), [0; 0]);
        // As exporters write a product of columns: behind views, functions of each and zeros.
        let pad = Op::Pad {
            before: vec![1],
            after: vec![0],
        };
        let transpose = Op::Transpose {
            permutation: vec![1, 0],
        };
        graph.nodes = vec![
            node(Op::Input, &[], &[8]),
            node(pad, &[0], &[9]),
            node(Op::Reshape, &[1], &[3, 3]),
            node(transpose, &[2], &[3, 3]),
            node(take(1, 2), &[3], &[3, 1]),
            node(Op::Relu, &[4], &[3, 1]),
            node(take(0, 1), &[5], &[1, 1]),
            node(take(0, 0), &[4], &[1, 1]),
            node(Op::Multiply, &[6, 7], &[1, 1]),
        ];
        graph.output = 8;
        graph.validate().unwrap();
        assert_eq!(in_products(&graph), [5, 6]);
        // Those of a sum are all read.
        graph.nodes = vec![
            node(Op::Input, &[], &[8]),
            node(take(0, 3), &[0], &[1]),
            node(take(0, 5), &[0], &[1]),
            node(Op::Add, &[1, 2], &[1]),
            node(Op::Add, &[3, 1], &[1]),
            node(take(0, 0), &[0], &[1]),
            node(Op::Multiply, &[4, 5], &[1]),
        ];
        graph.output = 6;
        graph.validate().unwrap();
        assert_eq!(in_products(&graph), [0, 3, 5]);
        // Steps of a series are many of a kind.
        let square = node(Op::Square, &[1], &[6]);
        let graph = series_beside_table(vec![square]);
        assert_eq!(in_products(&graph), [0; 0]);
    }

    /// Means and maxima of a table's columns, and columns that lie apart by far, make no series.
    #[test]
    fn tables_that_are_pooled_or_standardised_are_no_series() {
        let mut graph = series_beside_table(vec![]);
        graph.nodes.retain(|node| node.name != "conv");
        for node in &mut graph.nodes[3..] {
            node.inputs
                .iter_mut()
                .filter(|at| **at > 2)
                .for_each(|at| *at -= 1);
        }
        assert_eq!(graph.nodes[3].op, Op::GlobalAveragePool);
        assert!(!slid_over(&graph).contains(&true));
        let graph = series_beside_table(vec![]);
        let found = |step: fn(usize, usize) -> f32| {
            let rows = (0..20).flat_map(|row| (0..8).map(move |at| step(row, at)));
            groups(&graph, &rows.collect::<Vec<f32>>())
        };
        let far = |row: usize, at: usize| [1013.0, 15.0, 420.0, 0.0][at % 4] + row as f32;
        assert_eq!(found(far), [[0; 0]; 0]);
        let unlike = |row: usize, at: usize| [1.0, 200.0][at % 2] * (1 + row) as f32;
        assert_eq!(found(unlike), [[0; 0]; 0]);
        // A trend is one.
        let trend = |row: usize, at: usize| (10 * at + row % 3) as f32;
        assert_eq!(found(trend), [[0, 1, 2, 3, 4, 5]]);
        assert_eq!(groups(&graph, &[]), [[0; 0]; 0]);
    }

    #[test]
    fn a_picture_beside_a_table_has_one_scale() {
        let graph = picture_beside_table();
        let groups = parts(&graph);
        assert_eq!(groups, [[0, 1, 2, 3]]);
        let pixel = |i: usize| (i * 37 % 11) as f32 / 11.0;
        let row = |i: usize| {
            let pixels = [0, 1, 2, 3].map(|at| pixel(i * 4 + at) / (at + 1) as f32);
            pixels
                .into_iter()
                .chain([2e4 + 1e3 * pixel(i), 0.01 * pixel(i + 5)])
        };
        let rows: Vec<f32> = (0..20).flat_map(row).collect();
        let scales = FeatureScales::of_samples(&rows, 6, &groups).expect("they differ");
        assert!(scales.0[..4].iter().all(|scale| *scale == scales.0[0]));
        assert!(scales.0[4].exponent < scales.0[0].exponent);
        assert!(scales.0[0].exponent < scales.0[5].exponent);
        let folded = passes::run(&scales.undo(&graph));
        assert_eq!(passes::layers(&folded), 2, "{:?}", folded.nodes);
        let wanted = crate::float::evaluate(&graph, &rows, 20).unwrap();
        let found = crate::float::evaluate(&folded, &scales.apply(&rows), 20).unwrap();
        let near = |(f, w): (&f32, &f32)| (f - w).abs() < 1e-2;
        assert!(found.iter().zip(&wanted).all(near), "{found:?} {wanted:?}");
    }
}
