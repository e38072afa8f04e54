//! A client-aided plan on slots instead of coefficients, for comparison. No protocol runs it.

use crate::{checked::CheckedPlan, cost::rate, rlwe::WordSize, steps::StepKind};

/// A client-aided plan with values in the slots of CKKS, two in each by complex packing
/// (nGraph-HE2, section 4.3), beside the coefficients that it takes. Both hold `N` values in a
/// polynomial.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SlotForm {
    /// Bits of the largest modulus.
    pub modulus_bits: u32,
    /// Bytes both ways, as a multiple of those of coefficients.
    pub bytes: f64,
    /// Predicted seconds on one core, both parties added, as a multiple of those of coefficients.
    pub seconds: f64,
}

/// The slot form of a client-aided plan, for a batch. A slot is a sum of `N` coefficients with
/// factors of absolute value 1, so its noise is `sqrt(N)` times theirs, and the modulus half of
/// `log2 N` bits wider. Each row takes an FFT at the client, in and out. `None` without linear
/// steps whose values the client sees.
pub fn slot_form(plan: &CheckedPlan, batch: usize) -> Option<SlotForm> {
    let (mut bits, mut bytes, mut seconds) = (0, [0f64; 2], [0f64; 2]);
    for index in 0..plan.steps.len() {
        let StepKind::ClearLinear(linear) = &plan.steps[index].kind else {
            continue;
        };
        let cost = plan.cost(index, batch).at_once;
        let rlwe = &linear.rlwe;
        let now = rlwe.modulus_bits();
        let wide = now + rlwe.degree.ilog2().div_ceil(2) + 1;
        bits = bits.max(wide);
        let both = (cost.bytes_up + cost.bytes_down) as f64;
        bytes[0] += both;
        bytes[1] += both * f64::from(wide) / f64::from(now);
        let rows = linear.sizes(&plan.place(index));
        let blocks = (rows.inputs as u64 + rows.answers())
            * rows.columns(batch).div_ceil(rlwe.degree) as u64;
        let fft = rlwe.degree as f64 * f64::from(rlwe.degree.ilog2()) * rate::BUTTERFLY;
        // Beyond 31 bits words have 64.
        let words = if now <= 31 && wide > 31 {
            WordSize::U32.rates().product / WordSize::U64.rates().product
        } else {
            1.0
        };
        let total = cost.seconds.total();
        seconds[0] += total;
        seconds[1] += total * words + blocks as f64 * fft;
    }
    (bits > 0).then(|| SlotForm {
        modulus_bits: bits,
        bytes: bytes[1] / bytes[0],
        seconds: seconds[1] / seconds[0],
    })
}
