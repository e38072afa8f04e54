//! Guard bits of layers, and the prime of layers on slots.

use pronghorn_slot::common_modulus;

use super::{
    BuildError,
    draft::{Draft, Op},
};
use crate::share_form::{LayerShares, Takes, reach};

/// Gives all layers whose values reach draft `value` through local steps so many guard bits.
pub(super) fn raise(drafts: &mut [Draft<'_>], value: usize, guard: u32) {
    let mut reached = vec![value];
    while let Some(index) = reached.pop() {
        let draft = &mut drafts[index];
        let passes_on = draft.rules().takes() == Takes::Same;
        match &mut draft.op {
            Op::Layer(layer) => {
                if let LayerShares::Guarded(own) = &mut layer.shares {
                    *own = guard.max(*own);
                }
            }
            Op::Matrices(matrices) => matrices.guard = guard.max(matrices.guard),
            _ if passes_on => reached.extend(&draft.inputs),
            _ => {}
        }
    }
}

/// The prime of all values that layers on slots read and make.
pub(super) fn settle_prime(drafts: &mut [Draft<'_>]) -> Result<(), BuildError> {
    let on_slots = |draft: &&Draft<'_>| {
        let layer = draft.layer();
        layer.is_some_and(|layer| matches!(layer.shares, LayerShares::Residues(_)))
    };
    let largest = drafts.iter().filter(on_slots).map(|draft| {
        let read = draft.inputs.iter().map(|&input| &drafts[input].value);
        let largest = read.chain([&draft.value]).map(reach).max();
        (u64::from(largest.unwrap_or(0)), &draft.name)
    });
    let Some((largest, name)) = largest.max() else {
        return Ok(());
    };
    let t = common_modulus(largest).map_err(|error| BuildError::Bits {
        layer: name.clone(),
        reason: format!("{error} (--weight-bits, --input-bits, --error)"),
    })?;
    for draft in drafts {
        if let Op::Layer(layer) = &mut draft.op
            && let LayerShares::Residues(prime) = &mut layer.shares
        {
            *prime = Some(t);
        }
    }
    Ok(())
}
