//! Ranges brought to powers of two, by real factors.
//!
//! Where changes of precision are costly, values are clamped at powers of two. A range of 5 then
//! takes as many bits as one of 8. So a value is multiplied until its range ends at a power of two:
//! half a bit is gained on average, of each value and of each sum of a layer that reads it. A ReLU6
//! whose 6 is a power of two needs no comparison of its own: its words saturate. Weights alone see
//! the factors, and no plan shows them.
//!
//! Source: Jacob et al., "Quantization and Training of Neural Networks for Efficient
//! Integer-Arithmetic-Only Inference", CVPR 2018, section 2.1 (real scales), here taken in by
//! weights, so that scales stay powers of two.

use std::{borrow::Cow, collections::BTreeMap};

use super::{Groups, Unit, rescaled};
use crate::{
    float::Survey,
    graph::{Graph, Op},
    quantise,
};

/// Ranges end below a power of two by this part of it: factors are rounded.
const BELOW: f64 = 1.0 - 1.0 / 1024.0;

/// A clip at a power of two saves as much as so many bits of its values.
const CLIP_BITS: f64 = 8.0;

/// Factors that save less of a bit a value are left out.
const LEAST: f64 = 0.03;

/// A value whose range bounds its words.
struct Bounded {
    /// The largest magnitude of the range.
    reach: f64,
    /// Whether that is the bound of a clip.
    is_clip: bool,
    elements: f64,
}

/// The network with values multiplied so that their ranges end at powers of two. The survey is of
/// the network as it was, and then of the result. `margin` is the factor on ranges that quantising
/// will have ([`crate::quantise::QuantiseOptions`]).
pub fn fill<'a>(graph: Cow<'a, Graph>, survey: &mut Survey, margin: f32) -> Cow<'a, Graph> {
    let mut groups = Groups::of(&graph, Unit::Value);
    let mut bounded: BTreeMap<usize, Vec<Bounded>> = BTreeMap::new();
    for (value, range) in values(&graph, survey, margin) {
        let root = groups
            .channels(value)
            .next()
            .map(|first| groups.root(first));
        bounded.entry(root.unwrap_or(0)).or_default().push(range);
    }
    let factors: BTreeMap<usize, f32> = bounded
        .iter()
        .map(|(&root, values)| (root, factor(values)))
        .collect();
    let factors = groups.of_channels(|root| factors.get(&root).copied().unwrap_or(1.0));
    for (value, factors) in factors.iter().enumerate() {
        multiply(survey, value, factors.first().copied().unwrap_or(1.0));
    }
    rescaled(graph, &factors).0
}

/// The values whose ranges matter: those that layers read, and those of clips.
fn values(graph: &Graph, survey: &Survey, margin: f32) -> Vec<(usize, Bounded)> {
    let ranges = quantise::reaches(graph, &survey.profile, margin);
    let mut matters = vec![false; graph.nodes.len()];
    for (index, node) in graph.nodes.iter().enumerate() {
        match node.op {
            Op::Clip { .. } => matters[index] = true,
            ref op if op.is_linear() => matters[node.inputs[0]] = true,
            _ => {}
        }
    }
    let bounded = |(value, &reach): (usize, &f64)| {
        let node = &graph.nodes[value];
        let is_clip = match node.op {
            Op::Clip { min, max } => [min, max].into_iter().flatten().any(|bound| {
                let bound = f64::from(bound.abs());
                bound * BELOW <= reach && reach <= bound
            }),
            _ => false,
        };
        let elements = node.shape.iter().product::<usize>() as f64;
        let bounded = Bounded {
            reach,
            is_clip,
            elements,
        };
        (matters[value] && reach > 0.0).then_some((value, bounded))
    };
    ranges.iter().enumerate().filter_map(bounded).collect()
}

/// The factor of values that have one, from 1 to 2: the one with which they take the fewest bits
/// beyond their ranges.
fn factor(values: &[Bounded]) -> f32 {
    let spare = |factor: f64| -> f64 { values.iter().map(|value| value.spare(factor)).sum() };
    let all: f64 = values.iter().map(|value| value.elements).sum();
    let factors = values
        .iter()
        .map(|value| (spare(value.factor()), value.factor()));
    let best = factors.min_by(|a, b| a.0.total_cmp(&b.0));
    match best {
        Some((least, best)) if spare(1.0) - least > LEAST * all => best as f32,
        _ => 1.0,
    }
}

impl Bounded {
    /// The factor that brings the range to the next power of two.
    fn factor(&self) -> f64 {
        let next = self.reach.log2().ceil().exp2() / self.reach;
        if self.is_clip { next } else { next * BELOW }
    }

    /// Bits of all elements beyond those that the range takes, if it is multiplied.
    fn spare(&self, factor: f64) -> f64 {
        // A range that is rounded up to a power of two ends at it.
        const ROUNDING: f64 = 1e-6;
        let bits = (self.reach * factor).log2();
        let spare = (bits - ROUNDING).ceil() - bits;
        let compared = match self.is_clip && spare > 2.0 * ROUNDING {
            true => CLIP_BITS,
            false => 0.0,
        };
        self.elements * (spare + compared)
    }
}

/// Multiplies what a survey says of a value.
fn multiply(survey: &mut Survey, value: usize, factor: f32) {
    if factor == 1.0 {
        return;
    }
    let profile = &mut survey.profile.values[value];
    (profile.min, profile.max) = (profile.min * factor, profile.max * factor);
    let factor = f64::from(factor);
    profile.mean_square *= factor * factor;
    let means = survey.means[value].iter_mut();
    means.for_each(|mean| *mean *= factor);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(reach: f64, is_clip: bool, elements: f64) -> Bounded {
        Bounded {
            reach,
            is_clip,
            elements,
        }
    }

    #[test]
    fn ranges_end_at_powers_of_two() {
        for reach in [0.01, 0.6, 1.0, 1.1, 5.0, 6.0, 7.3, 100.0] {
            let end = reach * f64::from(factor(&[value(reach, false, 10.0)]));
            let part = end / end.log2().ceil().exp2();
            // What is nearly a power of two stays.
            assert!(
                (0.97..1.0).contains(&part) || end == reach,
                "{reach}: {part}"
            );
            let clip = f64::from(factor(&[value(reach, true, 10.0)])) * reach;
            assert!((clip.log2() - clip.log2().round()).abs() < 1e-6, "{reach}");
        }
    }

    #[test]
    fn the_value_with_most_elements_decides_and_clips_count_more() {
        let many = value(5.0, false, 1000.0);
        assert_eq!(
            factor(&[value(3.0, false, 10.0), many]),
            (1.6 * BELOW) as f32
        );
        let clip = value(6.0, true, 500.0);
        assert_eq!(factor(&[clip, value(5.0, false, 1000.0)]), 4.0 / 3.0);
        assert_eq!(factor(&[]), 1.0);
    }
}
