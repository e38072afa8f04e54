//! Activations on shares, in garbled circuits: the server garbles, the client evaluates.
//!
//! A chain of functions becomes one [`Stage`], and that a circuit for each size of window. The
//! client's share goes in by oblivious transfer, a label a bit. Neither party learns anything.

use std::{collections::BTreeSet, sync::Arc};

use pronghorn_graph::{
    fixed::{ActivationOp, Interval, Table, ValueSpec, least_and_most},
    geometry::Window,
    shape::OperatorError,
};
use pronghorn_mpc::{
    circuit::{self, Activation, Circuit, CircuitError, Rectifier, Requantisation},
    ot::{OtParameters, extension},
};
use serde::{Deserialize, Serialize};

pub use super::circuits::{Circuits, Group, Indices, MAX_WINDOW, Output};
use super::{circuits::window_sizes, names, pooled, range};
use crate::{
    cost::{Cost, Memory, Seconds, StepCost, rate},
    description::Description,
    share_form::{Node, Readers, ShareForm, ShareRules, Tolerates},
    step::{Compiled, Derived, Place, StepPlan},
    trust::TrustLevel,
};

/// Functions in a garbled circuit. Without functions: the same value, in exact shares modulo the
/// number that its readers take.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Garbled {
    /// Applied in order, each to the result of the one before.
    pub ops: Vec<ActivationOp>,
}

/// A chain of functions as one circuit has it: the largest of a window, a rectifier, a change of
/// precision, a table.
#[derive(Clone, Debug, PartialEq)]
pub struct Stage {
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
            window: None,
            rectifier: Rectifier::None,
            requantisation: None,
            channels: None,
            table: None,
        };
        ops.iter().try_fold(nothing, Self::then)
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

    /// The circuit for windows of `pool` values, on channels that drop `shift` bits.
    ///
    /// # Errors
    /// Ranges, forms and functions do not go together.
    pub fn circuit(
        &self,
        (pool, shift): (usize, u32),
        input: (&ValueSpec, &ShareForm),
        output: &ShareForm,
    ) -> Result<Circuit, CircuitError> {
        let (value, form) = input;
        let requantisation = match self.requantisation {
            None if form.guard == 0 => None,
            None => Some(Requantisation {
                shift: form.guard,
                low: i32::MIN,
                high: i32::MAX,
            }),
            Some(last) => Some(Requantisation {
                shift: shift + form.guard,
                ..last
            }),
        };
        let activation = Activation {
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
        };
        let (low, high) = form.lifted(value, self.offset(form));
        activation.circuit(form.modulus()?, low, high, output.modulus()?)
    }

    /// Units that a value's range needs above it so that the circuit rounds in one addition.
    fn rounding(&self) -> i32 {
        match (self.rectifier, self.requantisation) {
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

/// Bytes of so many correlated OTs.
pub(crate) fn ot_bytes(count: usize) -> u64 {
    extension::message_bytes(count, OtParameters::default().width()) as u64
}

/// A garbled step all at once: choices up, tables and labels down.
pub(crate) fn at_once(circuits: &Circuits, batch: usize) -> StepCost {
    let (tables, bits) = circuits.sizes(batch);
    let cost = StepCost {
        bytes_up: ot_bytes(bits),
        bytes_down: tables,
        rounds: 1,
        seconds: Seconds::garbling(tables as f64 * rate::TABLE_BYTE)
            + Seconds::transfers(bits as f64 * rate::TRANSFER),
        ..StepCost::default()
    };
    cost.with_waits()
}

impl ShareRules for Garbled {
    fn makes_residues(&self, inputs: bool, readers: Readers) -> bool {
        if self.ops.is_empty() {
            return !inputs;
        }
        readers.others > 0 || readers.powers_of_two == 0
    }

    fn tolerates(&self) -> Tolerates {
        Tolerates::Factor(factor(&self.ops))
    }

    fn input_bits(&self, _bits: u32, _place: usize, input: &Node<'_>) -> u32 {
        input.width(self.rounding())
    }
}

impl Garbled {
    /// Units that the input's range needs above it so that the circuit rounds in one addition.
    pub(crate) fn rounding(&self) -> i32 {
        Stage::of(&self.ops).map_or(0, |stage| stage.rounding())
    }

    fn stage(&self) -> Result<Stage, String> {
        Stage::of(&self.ops).ok_or_else(|| "its functions do not fit one circuit".into())
    }
}

impl StepPlan for Garbled {
    fn trust(&self) -> &'static [TrustLevel] {
        &[TrustLevel::TwoParty]
    }

    fn range(&self, inputs: &[&ValueSpec], value: &ValueSpec) -> Result<Interval, OperatorError> {
        range(&self.ops, inputs, value)
    }

    fn pooled(&self, outputs: usize) -> usize {
        pooled(&self.ops, outputs)
    }

    fn circuit_values(&self, place: &Place<'_>) -> Result<[usize; 2], String> {
        let (input, stage) = (place.input(), self.stage()?);
        let shifts = stage.distinct_shifts();
        let extra = stage.table_values();
        match stage.window {
            None => Ok([shifts * (1 + extra), input.len()]),
            Some(window) => window_sizes(&window, input)
                .map(|(values, sizes)| {
                    let each = sizes.saturating_mul(1 + extra);
                    [each.saturating_mul(shifts), values]
                })
                .ok_or_else(|| "its window is empty somewhere".into()),
        }
    }

    fn compile(&self, place: &Place<'_>) -> Result<Derived, String> {
        let stage = self.stage()?;
        let (input, form) = (place.input(), place.input_form());
        let offset = stage.offset(form);
        let circuit = |kind| stage.circuit(kind, (input, form), place.form());
        let same = [stage.shift()];
        let shifts = stage.channels.as_deref().unwrap_or(&same);
        let kinds = (stage.window.as_ref(), shifts);
        Circuits::new(kinds, input, offset, Output::Shares, circuit).map(Derived::from)
    }

    fn cost(&self, step: &Compiled<'_>, batch: usize) -> Cost {
        let Derived::Circuits(circuits) = step.derived else {
            return Cost::default();
        };
        let (tables, bits) = circuits.sizes(batch);
        let at_once = at_once(circuits, batch);
        let seconds = at_once.seconds;
        // The extension sends `128 / width` bits for an OT, which is a block at either party.
        let blocks = at_once
            .bytes_up
            .saturating_mul(OtParameters::default().width() as u64);
        let offline = StepCost {
            seconds: seconds * rate::OFFLINE,
            memory: Memory {
                server: blocks,
                client: blocks + tables,
            },
            ..at_once
        };
        let online = StepCost {
            bytes_up: bits.div_ceil(8) as u64,
            bytes_down: 16 * bits as u64,
            rounds: 1,
            seconds: seconds * rate::ONLINE,
            ..StepCost::default()
        };
        Cost {
            at_once,
            offline,
            online,
        }
    }

    fn describe(&self, _step: &Compiled<'_>) -> Description {
        Description::of(format!("{} by garbled circuit", names(&self.ops)))
    }
}
