//! Smooth functions as tables: the window that needs entries, their number, their values.
//!
//! The argument is rounded first, to the precision of the result where the function is a rectifier
//! and a bump. So a table's error is that of rounding twice: about 0.4 units of the result, where a
//! ReLU's is 0.3. Tables are as coarse as [`TOLERANCE`] allows, since circuits pay for entries.

use super::{
    QuantiseError,
    builder::Builder,
    scale::{self, Range},
};
use crate::{
    fixed::{ActivationOp, FixedOp, LocalOp, MAX_ENTRIES, Table},
    function::Function,
    graph::Op,
};

/// Mean square error over a window, in units of the result, up to which tables are made smaller: a
/// ReLU that rounds has 0.08, and the finest table about 0.16.
const TOLERANCE: f64 = 0.25;

/// Fraction bits of a function's value beyond what layers read, where tables cost nothing.
const SPARE: i32 = 2;

/// Arguments tried in each part of a window that has one entry.
const PROBES: u32 = 16;

/// Arguments of one table without limits are from the largest to this part of it.
const SPREAD: f64 = 64.0;

/// Else a table of the least arguments has steps that are finer by so many bits.
const FINER: i32 = 4;

/// A window spans at most `2^(MOST_DOUBLINGS + 1)` integers.
const MOST_DOUBLINGS: u32 = 28;

impl Builder<'_> {
    /// A function of the value `input`: its argument rounded and clamped, then a table.
    pub(super) fn function(
        &mut self,
        function: Function,
        input: usize,
    ) -> Result<usize, QuantiseError> {
        let costly = self.options.costly_requantisation;
        // A table over all arguments of the samples is as large as it may be.
        let smaller = costly && function.has_limits();
        let (argument, result) = (self.ranges[input], self.ranges[self.current]);
        let fraction = self.function_fraction();
        let shape = move |at: i32| {
            let fractions = [
                at,
                if function.is_rectifier() {
                    at
                } else {
                    fraction
                },
            ];
            Shape::new(function, fractions, argument, result, costly)
        };
        let wanted = match function.is_rectifier() {
            true => fraction,
            false => {
                let slope = function.steepest(argument.low).log2().ceil().max(0.0);
                let finer = if is_spread(function, argument) {
                    FINER
                } else {
                    0
                };
                argument_fraction(shape, fraction + slope as i32, smaller) + finer
            }
        };
        let clamp = |at: i32| shape(at).clamp;
        let place = self.place[input];
        let value = self.requantise_into(place, wanted, clamp)?;
        let shape = shape(self.nodes[value].value.fraction_bits);
        if is_spread(function, argument) && shape.least_drop() > 0 {
            return self.two_tables(shape, value);
        }
        let table = match smaller {
            true => shape.coarsest(),
            false => shape.table(shape.least_drop()).0,
        };
        let op = FixedOp::Activation(ActivationOp::Table(table));
        self.before_moves(op, value, shape.fractions[1])
    }

    /// The sum of two tables: a fine one of the least arguments, and a coarse one of all others.
    fn two_tables(&mut self, shape: Shape, value: usize) -> Result<usize, QuantiseError> {
        let drop = shape.least_drop();
        let (mut fine, mut coarse) = (shape.table(0).0, shape.table(drop).0);
        fine.entries.truncate(MAX_ENTRIES);
        coarse.entries[..MAX_ENTRIES >> drop].fill(0);
        let [fine, coarse] = [fine, coarse].map(|table| {
            let op = FixedOp::Activation(ActivationOp::Table(table));
            self.before_moves(op, value, shape.fractions[1])
        });
        let left_shift = [0, 0];
        let sum = FixedOp::Local(LocalOp::Add { left_shift });
        self.push(sum, vec![fine?, coarse?], shape.fractions[1])
    }

    /// Puts an operator that works element by element before the moves that made `value`, next to
    /// the change of precision there: one circuit computes both.
    fn before_moves(
        &mut self,
        op: FixedOp,
        value: usize,
        fraction: i32,
    ) -> Result<usize, QuantiseError> {
        let node = self.nodes[value].clone();
        let (op, input) = match node.op {
            FixedOp::Local(LocalOp::Reshape | LocalOp::Transpose { .. }) => {
                let input = self.before_moves(op, node.inputs[0], fraction)?;
                (node.op, input)
            }
            _ => (op, value),
        };
        self.push_as(node.name, op, vec![input], node.value.shape, fraction)
    }

    /// The fraction bits of the current function's value: those that the next layers read.
    fn function_fraction(&self) -> i32 {
        let spare = if self.options.costly_requantisation {
            0
        } else {
            SPARE
        };
        if let Some(finest) = self.finest_reader_past(self.current, is_rearranged) {
            return finest + spare;
        }
        let layers = self.readers(self.current, |op| !op.is_linear());
        let bits = layers.into_iter().filter_map(|layer| {
            let (_, precision) = self.layers[layer].as_ref()?;
            Some(precision.input_bits + 1)
        });
        let bits = bits.max().unwrap_or(self.options.plain_input_bits);
        self.ranges[self.current].fraction(bits) + spare
    }
}

/// Whether a function without limits changes too much over its arguments for one table.
fn is_spread(function: Function, argument: Range) -> bool {
    !function.has_limits() && argument.low * SPREAD < argument.high
}

/// The fewest fraction bits of an argument with which the table is good enough, where the argument
/// has a scale of its own: of a result with slopes of at most 1 at `fraction` fraction bits.
fn argument_fraction(shape: impl Fn(i32) -> Shape, fraction: i32, costly: bool) -> i32 {
    // So two bits more than the result's are enough.
    let (mut best, finest) = (fraction + 2, fraction + 2);
    for at in (finest - 12..=finest).rev() {
        let shape = shape(at);
        if shape.least_drop() > 0 {
            best = at - 1;
        } else if costly && shape.table(0).1 <= TOLERANCE {
            best = at;
        } else {
            break;
        }
    }
    best
}

/// The same values, all or some, elsewhere.
fn is_rearranged(op: &Op) -> bool {
    matches!(op, Op::Take { .. } | Op::Reshape | Op::Transpose { .. })
}

/// A function at the scales of its argument and its value, clamped to what samples have.
#[derive(Clone, Copy)]
struct Shape {
    function: Function,
    /// Fraction bits of the argument and of the value: one number for a rectifier.
    fractions: [i32; 2],
    /// The argument's least and largest integer.
    clamp: (i32, i32),
    /// The least argument at which the function counts, in steps: the least of the samples where
    /// it has no limits.
    least: f64,
    /// The value's least and largest integer.
    value: (i32, i32),
    /// The integers that need entries: from the first up to, without it, the second. Each is 0 or
    /// a power of two in size, and so is the difference.
    window: (i64, i64),
}

impl Shape {
    fn new(
        function: Function,
        fractions: [i32; 2],
        argument: Range,
        result: Range,
        costly: bool,
    ) -> Self {
        let integers = |range: Range, fraction| {
            let (low, high) = range.integers(fraction);
            match costly {
                true => scale::powers_of_two(low, high),
                false => (low, high),
            }
        };
        let (low, high) = integers(argument, fractions[0]);
        let value = integers(result, fractions[1]);
        let half = f64::from(-fractions[1]).exp2() / 2.0;
        let step = f64::from(-fractions[0]).exp2();
        let below = |x: f64| (function.at(-x) - function.limit_below()).abs() < half;
        let above = |x: f64| (function.at(x) - function.limit_above(x)).abs() < half;
        let mut window = match function.has_limits() {
            true => (
                -reach(below, step, -i64::from(low)),
                reach(above, step, i64::from(high) + 1),
            ),
            false => (
                0,
                (i64::from(high) + 1)
                    .max(1)
                    .unsigned_abs()
                    .next_power_of_two() as i64,
            ),
        };
        match window {
            (0, 0) => window = (-1, 0),
            (0, _) | (_, 0) => {}
            (first, end) => window = (first.min(-end), end.max(-first)),
        }
        // Below the window the limit is 0, as it is without an entry, or that of the first entry.
        let least =
            window.0 as i32 - i32::from(function.is_rectifier() && function.limit_below() == 0.0);
        let most = match function.is_rectifier() {
            true => i64::from(high).min((window.1 - 1).max(value.1.into())),
            false => window.1 - 1,
        };
        Self {
            function,
            fractions,
            clamp: (least, (most as i32).max(least)),
            least: match function.has_limits() {
                true => f64::NEG_INFINITY,
                false => argument.low / step,
            },
            value,
            window,
        }
    }

    /// The fewest bits to drop so that entries are not too many.
    fn least_drop(&self) -> u32 {
        let length = (self.window.1 - self.window.0) as u64;
        length.ilog2().saturating_sub(MAX_ENTRIES.ilog2())
    }

    /// The smallest table that is good enough, or the largest where none is.
    fn coarsest(&self) -> Table {
        let least = self.least_drop();
        let (mut table, _) = self.table(least);
        let most = ((self.window.1 - self.window.0) as u64).ilog2();
        for drop in least + 1..=most {
            let (smaller, error) = self.table(drop);
            if error > TOLERANCE {
                break;
            }
            table = smaller;
        }
        table
    }

    /// The table with an entry for each `2^drop` integers of the window, and its mean square error
    /// over the arguments that occur, in units of the value.
    fn table(&self, drop: u32) -> (Table, f64) {
        let (mut squares, mut count) = (0.0, 0u32);
        let first = self.window.0 >> drop;
        let mut entry = |bucket: i64| {
            let (start, end) = (bucket << drop, (bucket + 1) << drop);
            let wanted: Vec<f64> = self.summands(start, end).collect();
            let mean = wanted.iter().sum::<f64>() / f64::from(PROBES);
            let wanted_entry = self.limit(start, end).unwrap_or(mean);
            let entry = self.bounded(wanted_entry.round() as i64, start, end - 1);
            if start <= self.clamp.1.into() && end > self.clamp.0.into() {
                let errors = wanted.iter().map(|x| (x - entry as f64).powi(2));
                squares += errors.sum::<f64>();
                count += PROBES;
            }
            entry as i32
        };
        let table = Table {
            rectified: self.function.is_rectifier(),
            drop,
            first: first as i32,
            entries: (first..self.window.1 >> drop).map(&mut entry).collect(),
        };
        (table, squares / f64::from(count.max(1)))
    }

    /// The entry that stands for all arguments beyond an end of the window, too.
    fn limit(&self, start: i64, end: i64) -> Option<f64> {
        if !self.function.has_limits() {
            return None;
        }
        let step = f64::from(-self.fractions[0]).exp2();
        let scale = f64::from(self.fractions[1]).exp2();
        let near =
            |x: i64, limit: f64| (self.function.at(x as f64 * step) - limit).abs() * scale < 0.5;
        let below = self.function.limit_below();
        if start == self.window.0 && i64::from(self.clamp.0) == start && near(start, below) {
            return Some(below * scale);
        }
        let last = end == self.window.1 && !self.function.is_rectifier();
        (last && near(end, 1.0)).then_some(scale)
    }

    /// The best summands for arguments that round to integers from `start` to before `end`.
    fn summands(&self, start: i64, end: i64) -> impl Iterator<Item = f64> {
        let width = (end - start) as f64;
        let [argument, value] = self.fractions.map(|fraction| f64::from(fraction).exp2());
        let (function, least) = (self.function, self.least);
        (0..PROBES).map(move |probe| {
            // By the golden ratio, so that arguments lie anywhere between two integers.
            let place = (f64::from(probe) + 0.5) * 0.618_033_988_749_895;
            let x = (start as f64 - 0.5 + place.fract() * width).max(least);
            let base = match function.is_rectifier() {
                true => (x + 0.5).floor().max(0.0),
                false => 0.0,
            };
            function.at(x / argument) * value - base
        })
    }

    /// An entry with which values of arguments in `start..=end` stay in their range.
    fn bounded(&self, entry: i64, start: i64, end: i64) -> i64 {
        let base = |x: i64| match self.function.is_rectifier() {
            true => x.clamp(0, i64::from(self.clamp.1).max(0)),
            false => 0,
        };
        let (low, high) = (i64::from(self.value.0), i64::from(self.value.1));
        entry.max(low - base(start)).min(high - base(end))
    }
}

/// The smallest 0 or power of two from which on, in steps of `step`, all is `near`; at most the one
/// that holds `most` integers.
fn reach(near: impl Fn(f64) -> bool, step: f64, most: i64) -> i64 {
    // Four probes an octave, up to where every function is next to its limit.
    let far = |from: f64| {
        let probes = (0..).map(|i| from * (f64::from(i) / 4.0).exp2());
        let mut probes = probes.take_while(|&x| x < 1e4);
        probes.all(&near)
    };
    if most <= 0 || far(step / 2.0) {
        return 0;
    }
    let powers = (0..=MOST_DOUBLINGS).map(|i| 1i64 << i);
    let mut enough = powers.filter(|&power| power >= most || far(power as f64 * step));
    enough.next().unwrap_or(1 << MOST_DOUBLINGS)
}
