//! How values are held as shares under `two-party`: modulo which power of two, with how many guard bits.
//!
//! A linear step leaves shares of `2^guard y + delta` with `|delta| <= 1` ([`pronghorn_he::shares`]); local steps add such values up,
//! guard bits and errors with them; an activation drops the guard bits inside its protocol and leaves exact shares again. Nothing of
//! this is in the plan but the guard bits of linear steps: both parties derive the rest.

use pronghorn_graph::fixed::{ActivationOp, LocalOp, ValueSpec};

use pronghorn_mpc::circuit::{Modulus, Rectifier, signed_width};
use pronghorn_ring::ModulusError;

use crate::{
    garbled::Stage,
    plan::{Plan, Protocol, Step, StepKind},
};

/// How both parties hold a value `v`: as shares of `2^guard v + delta` modulo `2^bits`, where `|delta| <= error`; or as shares of `v` modulo a prime.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Held {
    /// The modulus is `2^bits`, and what words hold above that is not said; or it is a prime of so many bits, and words are residues.
    pub bits: u32,
    /// That prime.
    pub prime: Option<u64>,
    /// Bits below the unit.
    pub guard: u32,
    /// Bound on the error.
    pub error: u64,
}

impl Held {
    fn exact(bits: u32) -> Self {
        Self {
            bits,
            prime: None,
            guard: 0,
            error: 0,
        }
    }

    fn modulo(prime: u64) -> Self {
        Self {
            prime: Some(prime),
            ..Self::exact(u64::BITS - prime.leading_zeros())
        }
    }

    /// The modulus of the shares.
    ///
    /// # Errors
    /// When it is none: of a plan that is not validated.
    pub fn modulus(&self) -> Result<Modulus, ModulusError> {
        match self.prime {
            Some(prime) => Modulus::prime(prime),
            None => Modulus::power_of_two(self.bits),
        }
    }

    /// Bits without the guard bits.
    pub fn value_bits(&self) -> u32 {
        self.bits - self.guard
    }
}

/// Shares are held in words of 32 bits.
pub const MAX_BITS: u32 = 32;

/// Guard bits of a linear step where its answer goes straight to an activation.
pub const LEAST_GUARD: u32 = 2;

/// The range of a value whose limits tell no more than how many bits it takes, with errors of guard bits and with what is added to round it.
pub(crate) fn power_of_two_range(value: &ValueSpec, rounding: i32) -> ValueSpec {
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

/// Bits of a two's complement word for a step's value; with room for guard bits' errors where it may have some.
fn width(kind: &StepKind, value: &ValueSpec) -> u32 {
    let room = i64::from(matches!(kind, StepKind::Linear(_) | StepKind::Local(_)));
    signed_width(i64::from(value.low) - room, i64::from(value.high) + room)
}

/// Which values are shared modulo the prime of layers on slots, by step: of those that the prime holds, what such layers read and make, what local steps make
/// of it, and what circuits make for anything but squares, which are taken modulo powers of two. A circuit of no function goes from one to the other.
fn primes(plan: &Plan) -> Vec<Option<u64>> {
    let mut primes: Vec<Option<u64>> = vec![None; plan.steps.len()];
    let Some(t) = plan.slot_modulus() else {
        return primes;
    };
    let mut readers = vec![[0usize; 2]; plan.steps.len()];
    for step in &plan.steps {
        let kind = usize::from(is_product(step));
        step.inputs
            .iter()
            .for_each(|&input| readers[input][kind] += 1);
    }
    for (index, step) in plan.steps.iter().enumerate() {
        let of_prime = |&input: &usize| primes[input].is_some();
        let [others, products] = readers[index];
        let is_prime = match &step.kind {
            StepKind::Slots(_) => true,
            StepKind::Local(_) => step.inputs.iter().all(of_prime),
            StepKind::Linear(_) | StepKind::Encrypted(_) | StepKind::Open => false,
            StepKind::Activation(_) if is_product(step) => false,
            StepKind::Activation(activation) if activation.ops.is_empty() => {
                !step.inputs.iter().all(of_prime)
            }
            StepKind::Input | StepKind::Activation(_) => others > 0 || products == 0,
        };
        let fits = u64::from(reach(&step.value)) <= t / 2;
        primes[index] = (is_prime && fits).then_some(t);
    }
    primes
}

fn is_product(step: &Step) -> bool {
    matches!(&step.kind, StepKind::Activation(activation) if activation.protocol == Protocol::Product)
}

/// The largest absolute value.
pub(crate) fn reach(value: &ValueSpec) -> u32 {
    value.low.unsigned_abs().max(value.high.unsigned_abs())
}

/// Every step's value, by step.
pub fn held(plan: &Plan) -> Vec<Held> {
    let (bits, primes) = (value_bits(plan), primes(plan));
    let mut held: Vec<Held> = Vec::with_capacity(plan.steps.len());
    for ((step, &bits), prime) in plan.steps.iter().zip(&bits).zip(primes) {
        let exact = Held::exact(bits);
        let of = match &step.kind {
            StepKind::Linear(linear) => linear.shares.map_or(exact, |shares| Held {
                bits: bits.saturating_add(shares.guard_bits),
                guard: shares.guard_bits,
                error: 1,
                ..exact
            }),
            StepKind::Local(op) => {
                let inputs: Vec<Held> = step.inputs.iter().map(|&input| held[input]).collect();
                let guard = inputs.iter().map(|input| input.guard).max().unwrap_or(0);
                Held {
                    bits: bits.saturating_add(guard),
                    prime: None,
                    guard,
                    error: local_error(op, &inputs, guard),
                }
            }
            _ => exact,
        };
        held.push(prime.map_or(of, Held::modulo));
    }
    held
}

/// What each value needs without guard bits: its own range, and the modulus of the steps that read it.
fn value_bits(plan: &Plan) -> Vec<u32> {
    let mut bits: Vec<u32> = plan
        .steps
        .iter()
        .map(|step| width(&step.kind, &step.value))
        .collect();
    for (index, step) in plan.steps.iter().enumerate().rev() {
        let wanted = |place: usize| match &step.kind {
            StepKind::Linear(_) | StepKind::Slots(_) => bits[index],
            StepKind::Local(op) => bits[index].saturating_sub(left_shift(op, place)),
            StepKind::Activation(activation) if activation.protocol == Protocol::Product => {
                bits[index]
            }
            StepKind::Activation(activation) => {
                let input = &plan.steps[step.inputs[place]];
                let high = input.value.high.saturating_add(rounding(&activation.ops));
                width(
                    &input.kind,
                    &ValueSpec {
                        high,
                        ..input.value.clone()
                    },
                )
            }
            _ => 0,
        };
        let wanted: Vec<u32> = (0..step.inputs.len()).map(wanted).collect();
        for (&input, wanted) in step.inputs.iter().zip(wanted) {
            bits[input] = bits[input].max(wanted);
        }
    }
    bits
}

/// What a chain of functions is to add before it drops bits so that it rounds: a value that has room for it takes one addition in a circuit, not two.
pub(crate) fn rounding(ops: &[ActivationOp]) -> i32 {
    match Stage::of(ops) {
        Some(Stage {
            rectifier: Rectifier::None | Rectifier::Relu,
            requantisation: Some(last),
            ..
        }) => ((1i64 << last.shift) >> 1) as i32,
        _ => 0,
    }
}

/// Bits by which a local step shifts input number `place` up.
pub fn left_shift(op: &LocalOp, place: usize) -> u32 {
    match op {
        LocalOp::Add { left_shift } => left_shift.get(place).copied().unwrap_or(0),
        LocalOp::Concat { left_shift, .. } => left_shift.get(place).copied().unwrap_or(0),
        _ => 0,
    }
}

/// The same step on values with guard bits: shifts each input up to the common guard bits, too.
pub fn with_guards(op: &LocalOp, inputs: &[Held], guard: u32) -> LocalOp {
    let shift =
        |(place, input): (usize, &Held)| left_shift(op, place).saturating_add(guard - input.guard);
    match op {
        LocalOp::Add { .. } => LocalOp::Add {
            left_shift: std::array::from_fn(|place| shift((place, &inputs[place]))),
        },
        LocalOp::Concat { axis, .. } => LocalOp::Concat {
            axis: *axis,
            left_shift: inputs.iter().enumerate().map(shift).collect(),
        },
        other => other.clone(),
    }
}

fn local_error(op: &LocalOp, inputs: &[Held], guard: u32) -> u64 {
    let lifted = |(place, input): (usize, &Held)| {
        let shift = left_shift(op, place).saturating_add(guard - input.guard);
        input
            .error
            .saturating_mul(1u64.checked_shl(shift).unwrap_or(u64::MAX))
    };
    let errors = inputs.iter().enumerate().map(lifted);
    match op {
        LocalOp::Add { .. } => errors.fold(0, u64::saturating_add),
        LocalOp::SumPool {
            window,
            multipliers,
        } => {
            let values = window.kernel.iter().product::<usize>() as u64;
            let largest = multipliers
                .iter()
                .map(|m| u64::from(m.unsigned_abs()))
                .max();
            let factor = values.saturating_mul(largest.unwrap_or(1));
            errors.fold(0, u64::max).saturating_mul(factor)
        }
        _ => errors.fold(0, u64::max),
    }
}

/// Guard bits that an error takes where the next step multiplies by up to `factor` before it drops them: errors in
/// `0..=2 error factor` must not reach the unit.
pub fn guard_for(error: u64, factor: u64) -> u32 {
    let reach = u128::from(error) * u128::from(factor) * 2;
    if reach == 0 {
        0
    } else {
        u128::BITS - reach.leading_zeros()
    }
}

/// What is wrong with a step's way to hold its inputs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The step takes exact shares, and input `input` has guard bits.
    Inexact {
        /// The step that makes the input.
        input: usize,
    },
    /// The error of input `input` reaches the unit: `guard` guard bits are needed.
    Error {
        /// The step that makes the input.
        input: usize,
        /// Guard bits that would do.
        guard: u32,
    },
    /// Its input is shared modulo another number than it takes: a prime or a power of two.
    Modulus {
        /// The step that makes the input.
        input: usize,
    },
    /// Its value takes more than 32 bits.
    Width {
        /// Bits that it takes.
        bits: u32,
    },
}

/// The first step that takes shares modulo another number than its input `(step, input)` is shared modulo.
pub(crate) fn other_modulus(plan: &Plan, held: &[Held]) -> Option<(usize, usize)> {
    (0..plan.steps.len())
        .find_map(|index| Some((index, input_of_other_modulus(plan, held, index)?)))
}

fn input_of_other_modulus(plan: &Plan, held: &[Held], index: usize) -> Option<usize> {
    let step = &plan.steps[index];
    let is_prime = match &step.kind {
        StepKind::Slots(_) => true,
        StepKind::Linear(_) => false,
        StepKind::Local(_) => held[index].prime.is_some(),
        StepKind::Activation(activation) if activation.protocol == Protocol::Product => false,
        _ => return None,
    };
    let mut inputs = step.inputs.iter().copied();
    inputs.find(|&input| held[input].prime.is_some() != is_prime)
}

/// The first step, if any, whose shares do not work out.
pub fn fault(plan: &Plan, held: &[Held]) -> Option<(usize, Fault)> {
    let of = |index: usize| {
        let step = &plan.steps[index];
        if held[index].bits > MAX_BITS {
            let bits = held[index].bits;
            return Some(Fault::Width { bits });
        }
        if let Some(input) = input_of_other_modulus(plan, held, index) {
            return Some(Fault::Modulus { input });
        }
        let factor = match &step.kind {
            StepKind::Linear(_) => None,
            StepKind::Activation(activation) if activation.protocol == Protocol::Product => None,
            StepKind::Activation(activation) => Some(crate::garbled::factor(&activation.ops)),
            StepKind::Open => Some(1),
            _ => return None,
        };
        step.inputs.iter().find_map(|&input| {
            let Held { guard, error, .. } = held[input];
            match factor {
                None if guard > 0 => Some(Fault::Inexact { input }),
                Some(factor) if guard > 0 && guard < guard_for(error, factor) => {
                    Some(Fault::Error {
                        input,
                        guard: guard_for(error, factor),
                    })
                }
                _ => None,
            }
        })
    };
    (0..plan.steps.len()).find_map(|index| of(index).map(|fault| (index, fault)))
}
