//! Labels outside of the garbled circuit: the offset, the labels of late inputs, labels for inputs
//! that come after garbling.

use zeroize::{Zeroize, ZeroizeOnDrop};

use super::error::{GarbleError, check_count};
use crate::Block;
use crate::circuit::Circuit;

/// The offset between the labels of 0 and 1 of every wire, its lowest bit set. One for a direction,
/// shared with correlated OT, and so with all connections of a set-up of OTs. Wiped on drop; no
/// `Debug`.
///
/// Whoever sees both labels of any wire has it, and with it everything garbled under it. So no
/// label of 0 serves two inputs: [`encode`] and [`correct`] run once for each of them, and
/// [`Garbler`](super::Garbler) twice only on copies.
#[derive(Clone, Zeroize, ZeroizeOnDrop)]
pub struct Delta(Block);

impl Delta {
    /// The offset of these 127 random bits; the lowest one is set.
    ///
    /// [`CotSender::delta`](crate::ot::CotSender::delta) is zero after a failed check, which a
    /// [`Garbler`](super::Garbler) refuses.
    pub fn new(random: Block) -> Self {
        Self(random.with_lsb())
    }

    /// # Errors
    /// [`GarbleError::Offset`] where there were no random bits.
    pub(super) fn check(&self) -> Result<(), GarbleError> {
        match self.0 == Block::ZERO.with_lsb() {
            true => Err(GarbleError::Offset),
            false => Ok(()),
        }
    }

    /// The block; whoever has it and one label of a wire has both.
    pub fn block(&self) -> Block {
        self.0
    }
}

/// Turns zero-labels into the active labels of words that the garbler knows: what it sends where
/// all labelled inputs are late ones. `values` are by word, then by instance; the labels in the
/// order of [`Circuit::choices`].
///
/// # Errors
/// When the lengths do not go together, and [`GarbleError::Offset`] for no secret offset.
pub fn encode(
    circuit: &Circuit,
    delta: &Delta,
    values: &[u64],
    instances: usize,
    labels: &mut [Block],
) -> Result<(), GarbleError> {
    delta.check()?;
    let words = circuit.labelled_words();
    check_count("values", values.len(), words.saturating_mul(instances))?;
    let bits = circuit.labelled_bits();
    check_count("zero-labels", labels.len(), bits.saturating_mul(instances))?;
    circuit.for_each_label(instances, |label, (word, bit), instance| {
        let value = values[word * instances + instance];
        labels[label] ^= delta.block().masked(value >> bit & 1 == 1);
    });
    Ok(())
}

/// Labels for an input that comes after garbling, garbler's side. Offline the parties made
/// correlated OTs, `q` here and `q + c delta` at the evaluator for random choices `c`; online the
/// evaluator sends `flips = input + c`, packed bits. The answer takes it from its OT to its active
/// label: `zero_label + q + flip delta`, 16 bytes a bit. Overwrites `q`.
///
/// Once for the labels of a garbling: two answers to different flips hold both labels, and delta is
/// their sum.
///
/// # Errors
/// When the lengths do not go together, and [`GarbleError::Offset`] for no secret offset.
pub fn correct(
    delta: &Delta,
    zero_labels: &[Block],
    flips: &[u8],
    q: &mut [Block],
) -> Result<(), GarbleError> {
    delta.check()?;
    check_count("correlated OTs", q.len(), zero_labels.len())?;
    check_count("flips (bytes)", flips.len(), q.len().div_ceil(8))?;
    for (i, (q, zero)) in q.iter_mut().zip(zero_labels).enumerate() {
        let flip = flips[i / 8] >> (i % 8) & 1 == 1;
        *q ^= *zero ^ delta.block().masked(flip);
    }
    Ok(())
}

/// The evaluator's side of [`correct`]: turns the blocks of its OTs into active labels.
///
/// # Errors
/// When the lengths differ.
pub fn apply_corrections(corrections: &[Block], t: &mut [Block]) -> Result<(), GarbleError> {
    check_count("corrections", corrections.len(), t.len())?;
    for (t, correction) in t.iter_mut().zip(corrections) {
        *t ^= *correction;
    }
    Ok(())
}
