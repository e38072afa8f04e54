//! Ranges of values on shares: powers of two, so that a plan tells a number of bits of a layer's
//! weights and no more.

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

/// Replaces the ranges of layers by the powers of two around them, and derives the others anew.
/// Where a later range would not fit 32 bits (squares of wide values), the proven range stays.
pub(super) fn widen(drafts: &mut [Draft<'_>]) -> Result<(), BuildError> {
    let proven: Vec<ValueSpec> = drafts.iter().map(|draft| draft.value.clone()).collect();
    let mut kept = vec![false; proven.len()];
    // The input's range is the samples'.
    let mut index = 1;
    while index < proven.len() {
        let value = match &drafts[index].op {
            Op::Layer(_) if kept[index] => Some(proven[index].clone()),
            Op::Layer(_) => {
                let rounding = rounding_after(drafts, index);
                Some(power_of_two_range(&proven[index], rounding))
            }
            Op::Chain(_) | Op::Ready(_) => derived(drafts, index)?,
        };
        match value {
            Some(value) => {
                drafts[index].value = value;
                index += 1;
            }
            None => {
                let layers = layers_before(drafts, index).filter(|&layer| !kept[layer]);
                let first = layers.min().ok_or_else(|| BuildError::Bits {
                    layer: drafts[index].name.clone(),
                    reason: "its values may exceed 32 bits".into(),
                })?;
                kept[first] = true;
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
        Op::Layer(_) | Op::Ready(_) => 0,
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

/// The layers whose values reach draft `index` without another layer between.
pub(super) fn layers_before(
    drafts: &[Draft<'_>],
    index: usize,
) -> impl Iterator<Item = usize> + use<> {
    let (mut reached, mut layers) = (drafts[index].inputs.clone(), Vec::new());
    while let Some(index) = reached.pop() {
        match drafts[index].layer() {
            Some(_) => layers.push(index),
            None => reached.extend(&drafts[index].inputs),
        }
    }
    layers.into_iter()
}
