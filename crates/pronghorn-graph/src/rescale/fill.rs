//! Ranges brought to powers of two, by real factors.
//!
//! Where changes of precision are costly, values are clamped at powers of two. A range of 5 then
//! takes as many bits as one of 8. So a value is multiplied until its range ends near a power of
//! two: a third of a bit is gained on average, of each value and of each sum of a layer that reads
//! it. A ReLU6 whose 6 is a power of two needs no comparison of its own: its words saturate.
//!
//! Weights alone see the factors. A plan would show one where a clip keeps a bound of its own, so
//! the bounds of a value that is multiplied become ends of words, or lie beyond them.
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

/// Ranges end at this part of a power of two: inputs unlike the samples have an eighth more.
const BELOW: f64 = 8.0 / 9.0;

/// Factors of ranges are multiples of one over this.
const FINE: f64 = 4096.0;

/// A clip at a power of two saves as much as so many bits of its values.
const CLIP_BITS: f64 = 8.0;

/// Factors that save less of a bit a value are left out.
const LEAST: f64 = 0.03;

/// A value whose range bounds its words.
struct Bounded {
    /// The largest magnitude of the range.
    reach: f64,
    /// The magnitudes of a clip's bounds other than zero.
    bounds: Vec<f64>,
    /// Whether words end at the range. Else the clip's bounds show.
    is_clamped: bool,
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
        let bounds = match node.op {
            Op::Clip { min, max } => [min, max],
            _ => [None; 2],
        };
        let bounds = bounds.into_iter().flatten().map(|bound| bound.abs().into());
        let bounded = Bounded {
            reach,
            bounds: bounds.filter(|&bound| bound > 0.0).collect(),
            is_clamped: quantise::is_clamped(graph, value),
            elements: node.shape.iter().product::<usize>() as f64,
        };
        (matters[value] && reach > 0.0).then_some((value, bounded))
    };
    ranges.iter().enumerate().filter_map(bounded).collect()
}

/// The factor of values that have one, from 8/9 to 2: the one with which they take the fewest bits
/// beyond their ranges.
fn factor(values: &[Bounded]) -> f32 {
    let spare = |factor: f64| -> f64 { values.iter().map(|value| value.spare(factor)).sum() };
    let all: f64 = values.iter().map(|value| value.elements).sum();
    let factors = values.iter().flat_map(Bounded::factors);
    let factors = factors.filter(|&factor| values.iter().all(|value| value.hides(factor)));
    let best = factors
        .map(|factor| (spare(factor), factor))
        .min_by(|a, b| a.0.total_cmp(&b.0));
    match best {
        Some((least, best)) if spare(1.0) - least > LEAST * all => best as f32,
        _ => 1.0,
    }
}

impl Bounded {
    /// The factors that bring the range, or a bound, to the next power of two. The first is rounded
    /// down: machines whose logarithms differ in the last bit agree.
    fn factors(&self) -> impl Iterator<Item = f64> {
        let next = |end: f64| end.log2().ceil().exp2() / end;
        let rounded = (next(self.reach) * BELOW * FINE).floor() / FINE;
        let bounds = self.bounds.iter().map(move |&bound| next(bound));
        std::iter::once(rounded).chain(bounds)
    }

    /// The power of two that ends the words of the multiplied value.
    fn end(&self, factor: f64) -> f64 {
        power_above(self.reach * factor)
    }

    /// Whether no bound shows beside words of the multiplied value.
    fn hides(&self, factor: f64) -> bool {
        let is_beyond = |bound: f64| self.is_clamped && bound > self.end(factor);
        let bounds = self.bounds.iter().map(|bound| bound * factor);
        let is_hidden = |bound: f64| is_beyond(bound) || quantise::nearly_power(bound).is_some();
        bounds.into_iter().all(is_hidden)
    }

    /// Bits of all elements beyond those that the range takes, if it is multiplied.
    fn spare(&self, factor: f64) -> f64 {
        let spare = (self.end(factor) / (self.reach * factor)).log2();
        let compared = if self.hides(factor) { 0.0 } else { CLIP_BITS };
        self.elements * (spare + compared)
    }
}

/// The least power of two that is not below.
fn power_above(end: f64) -> f64 {
    quantise::nearly_power(end).unwrap_or_else(|| end.log2().ceil().exp2())
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

    fn value(reach: f64, bounds: &[f64], elements: f64) -> Bounded {
        Bounded {
            reach,
            bounds: bounds.to_vec(),
            is_clamped: true,
            elements,
        }
    }

    fn rounded(factor: f64) -> f32 {
        ((factor * BELOW * FINE).floor() / FINE) as f32
    }

    #[test]
    fn ranges_end_at_powers_of_two() {
        for reach in [0.01, 0.6, 1.0, 1.1, 5.0, 6.0, 7.3, 100.0] {
            let end = reach * f64::from(factor(&[value(reach, &[], 10.0)]));
            let part = end / end.log2().ceil().exp2();
            // What has less room stays.
            let is_filled = (0.88..=BELOW).contains(&part);
            assert!(
                is_filled || (end == reach && part > BELOW),
                "{reach}: {part}"
            );
            let clip = f64::from(factor(&[value(reach, &[reach], 10.0)])) * reach;
            assert!(quantise::nearly_power(clip).is_some(), "{reach}");
        }
    }

    #[test]
    fn the_value_with_most_elements_decides_and_clips_count_more() {
        let many = || value(5.0, &[], 1000.0);
        assert_eq!(factor(&[value(3.0, &[], 10.0), many()]), rounded(1.6));
        assert_eq!(factor(&[value(6.0, &[6.0], 500.0), many()]), 4.0 / 3.0);
        assert_eq!(factor(&[]), 1.0);
    }

    #[test]
    fn bounds_show_no_factor() {
        // A range below the bound of its clip ends words, and the bound lies beyond them.
        let inner = factor(&[value(3.1, &[6.0], 10.0)]);
        assert_eq!(inner, rounded(4.0 / 3.1));
        // Where nothing clamps to the range, a bound becomes a power of two itself.
        let unread = Bounded {
            is_clamped: false,
            ..value(3.1, &[6.0], 10.0)
        };
        assert!(!unread.hides(4.0 / 3.1) && unread.hides(4.0 / 3.0));
        // Two clips that no factor brings to powers of two keep theirs.
        let clips = || [value(6.0, &[6.0], 10.0), value(5.0, &[5.0], 10.0)];
        assert_eq!(factor(&clips()), 1.0);
        for reach in [0.3, 1.0, 2.5, 4.4, 5.9, 6.0] {
            for other in [0.7, 3.0, 5.5] {
                let values = [value(reach, &[6.0], 10.0), value(other, &[], 90.0)];
                let chosen = f64::from(factor(&values));
                assert!(chosen == 1.0 || values[0].hides(chosen), "{reach} {other}");
            }
        }
    }
}
