//! Chains of functions that one protocol computes in one go, and what all such protocols share.

use std::{collections::BTreeSet, fmt::Display, sync::Arc};

use pronghorn_graph::{
    fixed::{ActivationOp, Interval, Table, ValueSpec, least_and_most},
    geometry::Window,
    shape::OperatorError,
};
use pronghorn_mpc::{
    circuit::{self, Activation, Circuit, CircuitError, Rectifier, Requantisation},
    lean,
};

use super::{
    circuits::{Group, Kind, groups, window_sizes},
    names,
};
use crate::{
    share_form::{LEAST_GUARD, MAX_BITS, Node, Readers, ShareForm, Takes, Tolerates},
    step::Place,
};

/// A chain of functions as one circuit has it: the largest of a window, a rectifier, a change of
/// precision, a table.
#[derive(Clone, Debug, PartialEq)]
pub struct Stage {
    /// Whether the change of precision comes first, by a dither. Circuits have none.
    pub dithered: bool,
    /// The pool, if any.
    pub window: Option<Window>,
    /// What happens below zero.
    pub rectifier: Rectifier,
    /// The change of precision, if any; with the largest of the shifts where channels have their
    /// own.
    pub requantisation: Option<Requantisation>,
    /// Bits that each channel drops, where they differ.
    pub channels: Option<Arc<[u32]>>,
    /// The function of the result, if any.
    pub table: Option<Arc<Table>>,
}

impl Stage {
    /// The chain, where it fits one circuit. All of these functions but squares and tables are
    /// monotone, so that a maximum may be taken first. A table comes last.
    pub fn of(ops: &[ActivationOp]) -> Option<Self> {
        let nothing = Self {
            dithered: false,
            window: None,
            rectifier: Rectifier::None,
            requantisation: None,
            channels: None,
            table: None,
        };
        let (first, others) = match ops {
            [ActivationOp::Dither { shifts }, others @ ..] => (nothing.dithered(shifts)?, others),
            ops => (nothing, ops),
        };
        others.iter().try_fold(first, Self::then)
    }

    /// The change of precision of a dither.
    fn dithered(self, shifts: &[u32]) -> Option<Self> {
        let (_, most) = least_and_most(shifts);
        let channels = (shifts.len() > 1).then(|| shifts.into());
        let rounded = self.requantised(most, i32::MIN, i32::MAX)?;
        Some(Self {
            dithered: true,
            channels,
            ..rounded
        })
    }

    fn then(mut self, op: &ActivationOp) -> Option<Self> {
        if self.table.is_some() {
            return None;
        }
        match *op {
            ActivationOp::Table(ref table) => self.table = Some(Arc::new(table.clone())),
            ActivationOp::MaxPool { ref window } if self.window.is_none() => {
                self.window = Some(window.clone());
            }
            ActivationOp::Relu => match (&mut self.requantisation, self.rectifier) {
                (Some(last), _) => {
                    last.low = last.low.max(0);
                    last.high = last.high.max(0);
                }
                (None, Rectifier::None | Rectifier::Relu) => self.rectifier = Rectifier::Relu,
                (None, Rectifier::Leaky { .. }) => return None,
            },
            ActivationOp::Clip { low, high } => return self.requantised(0, low, high),
            ActivationOp::Requantise { shift, low, high } => {
                return self.requantised(shift, low, high);
            }
            ActivationOp::RequantiseChannels {
                ref shifts,
                low,
                high,
            } => {
                let (least, most) = least_and_most(shifts);
                // A channel that drops no bits would round its guard bits in another way.
                if self.requantisation.is_some() || least == 0 {
                    return None;
                }
                self.channels = Some(shifts.as_slice().into());
                return self.requantised(most, low, high);
            }
            ActivationOp::LeakyRelu { slope, shift }
                if slope >= 0
                    && self.requantisation.is_none()
                    && self.rectifier == Rectifier::None =>
            {
                self.rectifier = Rectifier::Leaky { slope, shift };
            }
            ActivationOp::LeakyRelu { .. }
            | ActivationOp::MaxPool { .. }
            | ActivationOp::Dither { .. }
            | ActivationOp::Square => {
                return None;
            }
        }
        Some(self)
    }

    /// `clamp(round(x / 2^shift), low, high)` after it.
    fn requantised(mut self, shift: u32, low: i32, high: i32) -> Option<Self> {
        let next = |x: i32| {
            let rounded = (i64::from(x) + ((1i64 << shift) >> 1)) >> shift;
            rounded.max(low.into()).min(high.into()) as i32
        };
        self.requantisation = Some(match self.requantisation {
            None => Requantisation { shift, low, high },
            // Clamps before a monotone function are clamps after it.
            Some(first) if first.shift == 0 || shift == 0 => Requantisation {
                shift: first.shift + shift,
                low: next(first.low),
                high: next(first.high),
            },
            Some(_) => return None,
        });
        Some(self)
    }

    /// Bits dropped in the end, guard bits not counted; the most of all channels.
    pub fn shift(&self) -> u32 {
        self.requantisation.map_or(0, |last| last.shift)
    }

    /// How many shifts there are.
    fn distinct_shifts(&self) -> usize {
        let channels = self.channels.as_deref().unwrap_or_default();
        channels.iter().collect::<BTreeSet<_>>().len().max(1)
    }

    /// Values whose circuits are as large as the table, about.
    fn table_values(&self) -> usize {
        let entries = self.table.as_ref().map_or(0, |table| table.entries.len());
        entries.div_ceil(32)
    }

    /// What the server adds to its share of each input so that errors do not change what is
    /// rounded.
    pub fn offset(&self, input: &ShareForm) -> i64 {
        // Without a shift, dropping the guard bits rounds to nearest.
        if self.shift() > 0 {
            input.error as i64
        } else {
            0
        }
    }

    /// The function of windows of `pool` values, on channels that drop `shift` bits.
    pub(crate) fn activation(&self, (pool, shift): Kind) -> Activation<'_> {
        let requantisation = self
            .requantisation
            .map(|last| Requantisation { shift, ..last });
        Activation {
            pool,
            rectifier: self.rectifier,
            requantisation,
            table: self.table.as_deref().map(|table| circuit::Table {
                rectified: table.rectified,
                drop: table.drop,
                first: table.first,
                entries: &table.entries,
                fine: table.fine,
                rises: &table.rises,
            }),
        }
    }

    /// The circuit for windows of `pool` values, on channels that drop `shift` bits.
    ///
    /// # Errors
    /// Ranges, forms and functions do not go together.
    pub fn circuit(
        &self,
        kind: Kind,
        input: (&ValueSpec, &ShareForm),
        output: &ShareForm,
    ) -> Result<Circuit, CircuitError> {
        let (value, form) = input;
        let mut activation = self.activation(kind);
        activation.requantisation = match activation.requantisation {
            None if form.guard == 0 => None,
            None => Some(Requantisation {
                shift: form.guard,
                low: i32::MIN,
                high: i32::MAX,
            }),
            Some(last) => Some(Requantisation {
                shift: last.shift + form.guard,
                ..last
            }),
        };
        let (low, high) = form.lifted(value, self.offset(form));
        activation.circuit(form.modulus()?, low, high, output.modulus()?)
    }

    /// The elements of the value by what computes them.
    ///
    /// # Errors
    /// A window is empty or too large, or nothing computes one.
    pub(crate) fn groups<C, E: Display>(
        &self,
        input: &ValueSpec,
        make: impl Fn(Kind) -> Result<C, E>,
    ) -> Result<Vec<Group<C>>, String> {
        let same = [self.shift()];
        let shifts = self.channels.as_deref().unwrap_or(&same);
        groups((self.window.as_ref(), shifts), input, make)
    }

    /// Bits that a lean protocol needs.
    fn lean_width(&self, low: i64, high: i64) -> u32 {
        let pool = self.window.as_ref().map_or(1, |_| 2);
        let (least, most) = match self.channels.as_deref() {
            Some(shifts) => least_and_most(shifts),
            None => (self.shift(), self.shift()),
        };
        let width = |shift| {
            let activation = self.activation((pool, shift));
            match self.dithered {
                true => lean::dithered_width(&activation, low, high),
                false => lean::input_width(&activation, low, high),
            }
        };
        (least..=most).map(width).max().unwrap_or(0)
    }

    /// Units that a value's range needs above it so that the circuit rounds in one addition.
    fn rounding(&self) -> i32 {
        match (self.rectifier, self.requantisation) {
            (_, Some(last)) if self.dithered => ((1i64 << last.shift) - 1) as i32,
            (Rectifier::None | Rectifier::Relu, Some(last)) => ((1i64 << last.shift) >> 1) as i32,
            _ => 0,
        }
    }
}

/// The largest factor by which a chain multiplies its input's error.
fn factor(ops: &[ActivationOp]) -> u64 {
    let of = |op: &ActivationOp| match *op {
        ActivationOp::LeakyRelu { slope, shift } => {
            u64::from(slope.unsigned_abs()).max(1u64.checked_shl(shift).unwrap_or(u64::MAX))
        }
        _ => 1,
    };
    ops.iter().map(of).fold(1, u64::saturating_mul)
}

/// The chain as one stage.
///
/// # Errors
/// Its functions do not fit one.
pub(crate) fn stage(ops: &[ActivationOp]) -> Result<Stage, String> {
    Stage::of(ops).ok_or_else(|| "its functions do not fit one circuit".into())
}

/// The range of the value, of a chain that is one stage.
pub(super) fn range(
    ops: &[ActivationOp],
    inputs: &[&ValueSpec],
    value: &ValueSpec,
) -> Result<Interval, OperatorError> {
    let range = super::range(ops, inputs, value)?;
    match Stage::of(ops) {
        Some(_) => Ok(range),
        None => Err(OperatorError::Parameter {
            field: "the chain of functions",
            found: names(ops),
            expected: "functions that fit one circuit".into(),
        }),
    }
}

/// Units that the input's range needs above it so that rounding is one addition.
pub(crate) fn rounding(ops: &[ActivationOp]) -> i32 {
    Stage::of(ops).map_or(0, |stage| stage.rounding())
}

/// Whether the value is shared modulo the prime of the plan.
pub(super) fn makes_residues(ops: &[ActivationOp], inputs: bool, readers: Readers) -> bool {
    if ops.is_empty() {
        return !inputs;
    }
    readers.others > 0 || readers.powers_of_two == 0
}

/// The errors that inputs may have.
pub(super) fn tolerates(ops: &[ActivationOp]) -> Tolerates {
    Tolerates::Factor(factor(ops))
}

/// Bits that the input needs, by any protocol: a bit more than its own width where a lean one
/// compares it with bounds.
pub(super) fn input_bits(ops: &[ActivationOp], input: &Node<'_>) -> u32 {
    let width = input.width(rounding(ops));
    let (low, high) = input.range();
    match Stage::of(ops) {
        // What is dropped holds errors.
        Some(stage) if stage.dithered => {
            let (low, high) = (input.value.low.into(), input.value.high.into());
            width.max(stage.lean_width(low, high))
        }
        Some(stage) => match stage.lean_width(low, high) {
            lean if lean + LEAST_GUARD < MAX_BITS => width.max(lean),
            // Wider shares than a word's with guard bits are not worth it.
            _ => width,
        },
        None => width,
    }
}

/// Whether the chain begins with a dither, which takes shares modulo a power of two.
pub(crate) fn is_dithered(ops: &[ActivationOp]) -> bool {
    dithers(ops).is_some()
}

/// Bits that the chain drops after an addend, if it begins so: of all channels, or of each.
pub(super) fn dithers(ops: &[ActivationOp]) -> Option<&[u32]> {
    ops.first().and_then(ActivationOp::dithered)
}

/// The modulus of inputs.
pub(super) fn takes(ops: &[ActivationOp]) -> Takes {
    match is_dithered(ops) {
        true => Takes::PowerOfTwo,
        false => Takes::Any,
    }
}

/// So many values of a window take less memory than one of a table: a pool of 16,384 values took
/// 3.5 kB a value to compile, and 320 tables of 512 entries took 91.
const COMPARED: usize = 8;

/// Values in the circuits of a step, windows of one size counted once; and in all its windows.
pub(super) fn circuit_values(
    ops: &[ActivationOp],
    place: &Place<'_>,
) -> Result<[usize; 2], String> {
    let (input, stage) = (place.input(), stage(ops)?);
    let shifts = stage.distinct_shifts();
    let extra = stage.table_values();
    match stage.window {
        None => Ok([shifts * (1 + extra), input.len()]),
        Some(window) => window_sizes(&window, input)
            .map(|(values, sizes)| {
                let each = sizes.div_ceil(COMPARED).saturating_mul(1 + extra);
                [each.saturating_mul(shifts), values]
            })
            .ok_or_else(|| "its window is empty somewhere".into()),
    }
}
