//! Ranges of values on shares: powers of two where 32 bits allow, so that a plan tells a number of
//! bits of a layer's weights and no more.

use pronghorn_graph::{fixed::ValueSpec, shape::OperatorError};
use pronghorn_mpc::circuit::signed_width;

use super::{
    BuildError,
    draft::{Draft, Op},
};
use crate::steps::activation::chain;

/// The range of a value whose limits tell no more than its number of bits, with errors of guard
/// bits and with `rounding` added.
fn power_of_two_range(value: &ValueSpec, rounding: i32) -> ValueSpec {
    let room = i64::from(rounding) + 2;
    let bits = signed_width(i64::from(value.low) - 2, i64::from(value.high) + room);
    // Two less than a word's range, for errors at either end.
    let (low, high) = (2 - (1i64 << (bits - 1)), (1i64 << (bits - 1)) - room);
    let fit = |x: i64| x.clamp(i32::MIN.into(), i32::MAX.into()) as i32;
    ValueSpec {
        low: fit(low).min(value.low),
        high: fit(high).max(value.high),
        ..value.clone()
    }
}

/// How far the range of a layer is rounded outwards.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Rounding {
    /// To the powers of two around it.
    PowerOfTwo,
    /// To sixteenths of these.
    Sixteenth,
    /// Not at all: it is the proven range.
    Proven,
}

impl Rounding {
    /// The next finer one.
    fn finer(self) -> Option<Self> {
        match self {
            Self::PowerOfTwo => Some(Self::Sixteenth),
            Self::Sixteenth => Some(Self::Proven),
            Self::Proven => None,
        }
    }

    /// The range of a value with `rounding` added to it later.
    fn range(self, value: &ValueSpec, rounding: i32) -> ValueSpec {
        match self {
            Self::PowerOfTwo => power_of_two_range(value, rounding),
            Self::Sixteenth => sixteenth_range(value),
            Self::Proven => value.clone(),
        }
    }
}

/// The range with ends at sixteenths of the power of two above the larger one, as far as they are
/// within 32 bits.
fn sixteenth_range(value: &ValueSpec) -> ValueSpec {
    let (low, high) = (i64::from(value.low), i64::from(value.high));
    let grain = (1i64 << (signed_width(low, high) - 1)) / 16;
    let outwards = |end: i64| match grain {
        0 | 1 => end,
        _ => end.signum() * end.unsigned_abs().next_multiple_of(grain as u64) as i64,
    };
    let fit = |x: i64| x.clamp((-i32::MAX).into(), i32::MAX.into()) as i32;
    ValueSpec {
        low: fit(outwards(low.min(0))).min(value.low),
        high: fit(outwards(high.max(0))).max(value.high),
        ..value.clone()
    }
}

/// Replaces the ranges of layers by the powers of two around them, and derives the others anew.
/// Where a later range would not fit 32 bits (squares of wide values), layers before it get ends at
/// sixteenths, and if that is too wide the proven range.
pub(super) fn widen(drafts: &mut [Draft<'_>]) -> Result<(), BuildError> {
    let proven: Vec<ValueSpec> = drafts.iter().map(|draft| draft.value.clone()).collect();
    let mut roundings = vec![Rounding::PowerOfTwo; proven.len()];
    // The input's range is the samples'.
    let mut index = 1;
    while index < proven.len() {
        let value = match &drafts[index].op {
            Op::Layer(_) => {
                let after = rounding_after(drafts, index);
                Some(roundings[index].range(&proven[index], after))
            }
            Op::Bias(_) => {
                // Errors of guard bits take a unit at either end.
                let exact = ValueSpec {
                    low: proven[index].low.saturating_sub(1),
                    high: proven[index].high.saturating_add(1),
                    ..proven[index].clone()
                };
                Some(roundings[index].range(&exact, rounding_after(drafts, index)))
            }
            Op::Chain(_) | Op::Ready(_) | Op::Matrices(_) => derived(drafts, index)?,
        };
        match value {
            Some(value) => {
                drafts[index].value = value;
                index += 1;
            }
            None => {
                let layers = layers_before(drafts, index);
                let layers = layers.filter_map(|layer| {
                    let finer = roundings[layer].finer()?;
                    Some((finer, layer))
                });
                let (finer, first) = layers.min().ok_or_else(|| BuildError::Bits {
                    layer: drafts[index].name.clone(),
                    reason: "its values may exceed 32 bits".into(),
                })?;
                roundings[first] = finer;
                index = first;
            }
        }
    }
    Ok(())
}

/// The most that a step right after draft `index` adds to its value to round it.
fn rounding_after(drafts: &[Draft<'_>], index: usize) -> i32 {
    let readers = drafts.iter().filter(|draft| draft.inputs.contains(&index));
    let rounding = readers.map(|draft| match &draft.op {
        Op::Chain(chain) => chain::rounding(&chain.ops),
        Op::Layer(_) | Op::Ready(_) | Op::Matrices(_) | Op::Bias(_) => 0,
    });
    rounding.max().unwrap_or(0)
}

/// The value of a draft with the range that its inputs' ranges give; `None` where that takes more
/// than 32 bits.
fn derived(drafts: &[Draft<'_>], index: usize) -> Result<Option<ValueSpec>, BuildError> {
    let draft = &drafts[index];
    let inputs: Vec<&ValueSpec> = draft
        .inputs
        .iter()
        .map(|&input| &drafts[input].value)
        .collect();
    let range = draft
        .protocol()
        .map(|step| step.range(&inputs, &draft.value));
    let bounds = match range.transpose() {
        Ok(range) => range.and_then(|range| range.fit()),
        // Within a chain of functions.
        Err(OperatorError::Parameter { .. }) => None,
        Err(error) => {
            return Err(BuildError::Layer {
                layer: draft.name.clone(),
                reason: error.to_string(),
            });
        }
    };
    Ok(bounds.map(|(low, high)| ValueSpec {
        low,
        high,
        ..draft.value.clone()
    }))
}

/// The layers whose values reach draft `index` without another layer between, those that add
/// constants among them.
fn layers_before(drafts: &[Draft<'_>], index: usize) -> std::vec::IntoIter<usize> {
    before(drafts, index, |draft| draft.weights().is_some())
}

/// The drafts of a kind whose values reach draft `index` without another of them between.
pub(super) fn before(
    drafts: &[Draft<'_>],
    index: usize,
    is: impl Fn(&Draft<'_>) -> bool,
) -> std::vec::IntoIter<usize> {
    let (mut reached, mut found) = (drafts[index].inputs.clone(), Vec::new());
    while let Some(index) = reached.pop() {
        match is(&drafts[index]) {
            true => found.push(index),
            false => reached.extend(&drafts[index].inputs),
        }
    }
    found.into_iter()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(low: i32, high: i32) -> ValueSpec {
        ValueSpec {
            shape: vec![1],
            fraction_bits: 0,
            low,
            high,
        }
    }

    #[test]
    fn ends_are_sixteenths_of_a_power_of_two() {
        for (low, high, wanted) in [
            (-5000, 3000, (-5120, 3072)),
            (-5120, 3072, (-5120, 3072)),
            (-8192, 8191, (-8192, 8192)),
            (100, 7000, (0, 7168)),
            (-7000, -100, (-7168, 0)),
            (-9, 12, (-9, 12)),
            (i32::MIN, i32::MAX, (i32::MIN, i32::MAX)),
            (-1_500_000_000, 1, (-1_610_612_736, 134_217_728)),
        ] {
            let found = sixteenth_range(&value(low, high));
            assert_eq!((found.low, found.high), wanted, "{low}..={high}");
        }
    }

    #[test]
    fn roundings_get_finer_and_hold_the_value() {
        let proven = value(-5000, 3000);
        let mut rounding = Some(Rounding::PowerOfTwo);
        let mut widths = Vec::new();
        while let Some(now) = rounding {
            let ValueSpec { low, high, .. } = now.range(&proven, 0);
            assert!(low <= proven.low && high >= proven.high);
            widths.push(high - low);
            rounding = now.finer();
        }
        assert!(
            widths.is_sorted_by(|a, b| a > b) && widths.len() == 3,
            "{widths:?}"
        );
    }
}
