//! Smooth functions as tables: the window that needs entries, their number, their values.
//!
//! The argument is rounded first, to the precision of the result where the function is a rectifier
//! and a bump. So a table's error is that of rounding twice: about 0.4 units of the result, where a
//! ReLU's is 0.3. Circuits pay for entries and for pieces, so that a table is the cheapest that
//! [`TOLERANCE`] allows: of constants as coarse as possible, or of [`pieces`](super::pieces).

use super::{QuantiseError, builder::Builder, pieces::Pieces, scale::Range};
use crate::{
    fixed::{ActivationOp, FixedOp, LocalOp, MAX_ENTRIES, Table},
    float::Profile,
    function::{Function, Span},
    graph::{Graph, Op},
};

/// Mean square error over a window, in units of the result, up to which tables are made smaller: a
/// ReLU that rounds has 0.08, and the finest table about 0.16.
pub(super) const TOLERANCE: f64 = 0.25;

/// The factor by which [`TOLERANCE`], or the least error where it is larger, may be missed for
/// fewer pieces: steps are rounded each, and 0.1 to 0.2 are due to that.
pub(super) const SLACK: f64 = 1.5;

/// Bits of a share, for the cost of tables: planners choose them later, 20 to 32 as a rule.
const SHARE_BITS: u32 = 28;

/// Fraction bits of a function's value beyond what layers read, where tables cost nothing.
const SPARE: i32 = 2;

/// Arguments tried in each part of a window that has one entry.
const PROBES: u32 = 16;

/// Arguments of one table without limits are from the largest to this part of it.
const SPREAD: f64 = 64.0;

/// Else a table of the least arguments has steps that are finer by so many bits.
const FINER: i32 = 4;

/// Bits by which the variance of a LayerNorm of raw features may be above the square of its root's
/// inverse.
const MOST_COARSER: i32 = 120;

/// How far below the largest exponent a power of `e` counts no more: it is below `2e-7` of the
/// largest. A table of a Softmax, whose largest exponent is next to 0, ends at a power of two.
const DECAYED: f32 = 15.5;

/// Largest exponents are below zero by some times as much, so that a table ends there.
const LEAST_DECAYED: f32 = 1.0 / 32.0;

/// Fraction bits of exponentials beyond what products want. Errors of a table are alike in all rows,
/// and the products may have no room for more bits.
const FINER_POWERS: i32 = 3;

/// Errors of shares that matter are those of places near the largest, however far others are below.
const USUAL: f32 = 3.0;

/// Beyond the samples, functions of positive numbers go on by this factor.
const ROOM: f64 = 1.25;

/// A function that is steeper by more bits is as good as a jump. An inverse root of the smallest
/// epsilon has so many.
const MOST_SLOPE: f64 = 160.0;

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
        let (argument, result) = (self.ranges[input], self.ranges[self.current]);
        let argument = match function {
            Function::Decay { rate } => match rate > 0.0 {
                true => argument.clipped([-DECAYED, -LEAST_DECAYED].map(|end| Some(end / rate))),
                false => argument.clipped([None, Some(-DECAYED / rate)]),
            },
            // On samples: the argument's own range may have both signs for one.
            Function::Exp if result.high > 0.0 => {
                argument.clipped([Some(result.high.ln() as f32 - DECAYED), None])
            }
            _ => argument,
        };
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
                // Two bits more than the result's where slopes are at most 1.
                let slope = function.steepest([argument.low, argument.high]);
                let least = match function {
                    Function::Decay { rate } if rate > 0.0 => -MOST_SLOPE,
                    _ => 0.0,
                };
                let slope = slope.log2().ceil().clamp(least, MOST_SLOPE);
                let finest = fraction + slope as i32 + 2;
                match is_spread(function, argument) {
                    true => fraction_of_entries(shape, finest) + FINER,
                    false => argument_fraction(shape, finest, costly),
                }
            }
        };
        let clamp = |at: i32| shape(at).clamp;
        let place = self.place[input];
        let value = self.requantise_into(place, wanted, clamp)?;
        let shape = shape(self.nodes[value].value.fraction_bits);
        if is_spread(function, argument) && shape.least_drop() > 0 {
            return self.two_tables(shape, value);
        }
        let (table, _) = shape.best(costly);
        let op = FixedOp::Activation(ActivationOp::Table(table));
        self.before_moves(op, value, shape.fractions[1])
    }

    /// The sum of two tables: a fine one of the least arguments, and a coarse one of all others.
    fn two_tables(&mut self, shape: Shape, value: usize) -> Result<usize, QuantiseError> {
        let drop = shape.least_drop();
        let end = (MAX_ENTRIES as i64).min(shape.window.1);
        let (fine, mut coarse) = (shape.table_to(end, 0).0, shape.table(drop).0);
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
        if let Op::Function {
            function: Function::Decay { .. },
        } = self.graph.nodes[self.current].op
            && let Some(finest) = self.finest_product_past_moves()
        {
            return finest + FINER_POWERS;
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

/// Widens the ranges of functions of positive numbers and of their arguments, which are clamped to
/// them: an input may have a less usual scale than all samples.
pub(super) fn leave_room(graph: &Graph, profile: &Profile, margin: f32, ranges: &mut [Range]) {
    for (index, node) in graph.nodes.iter().enumerate() {
        if let Op::Function { function } = &node.op
            && function.span() == Span::Positive
        {
            let argument = node.inputs[0];
            let wider = |value: usize, room| Range::around(&profile.values[value], margin, room);
            // Logarithms have both signs.
            if profile.values[index].min >= 0.0 {
                ranges[index] = wider(index, ROOM);
            }
            ranges[argument] = wider(argument, ROOM * ROOM);
            // Smaller arguments count in no product.
            let counts = function.inverse(profile.values[index].max.into());
            let is_bounded = counts > 2.0 * f64::from(profile.values[argument].min);
            if is_bounded && graph.readers(argument).count() == 1 {
                let low = &mut ranges[argument].low;
                *low = low.max(counts / (ROOM * ROOM));
            }
            if matches!(function, Function::InverseRoot { .. }) {
                reach_below(*function, ranges, argument, index);
            }
        }
    }
}

/// Lets a deviation be as small as one table holds: images of little contrast are usual, and
/// samples need not have any.
fn reach_below(function: Function, ranges: &mut [Range], argument: usize, result: usize) {
    let Range { low, high, .. } = ranges[argument];
    let least = low.min(high / SPREAD);
    if least > 0.0 {
        ranges[argument].low = least;
        ranges[result].high = ranges[result].high.max(function.at(least));
    }
}

/// Whether a function that others are divided by changes too much over its arguments for one table.
fn is_spread(function: Function, argument: Range) -> bool {
    function.divides() && argument.low * SPREAD < argument.high
}

/// The most fraction bits of an argument, up to `finest`, with which every integer has an entry.
fn fraction_of_entries(shape: impl Fn(i32) -> Shape, finest: i32) -> i32 {
    let mut all = (finest - MOST_COARSER..=finest).rev();
    all.find(|&at| shape(at).least_drop() == 0)
        .unwrap_or(finest - MOST_COARSER)
}

/// Fraction bits of an argument that has a scale of its own: those of the cheapest table that is
/// good enough, or of the most precise: `finest` and fewer.
fn argument_fraction(shape: impl Fn(i32) -> Shape, finest: i32, costly: bool) -> i32 {
    if !costly {
        return finest;
    }
    let mut best = (finest, rank(&shape(finest).best(true)));
    for at in (finest - 12..finest).rev() {
        let next = rank(&shape(at).best(true));
        // Coarser arguments are never more precise.
        if next.0 > best.1.0 {
            break;
        }
        if next <= best.1 {
            best = (at, next);
        }
    }
    best.0
}

/// The order of preference: the mean square error where it is not tolerated, then bytes.
fn rank((table, error): &(Table, f64)) -> (f64, usize) {
    let tolerated = *error <= SLACK * TOLERANCE;
    let bytes = table.circuit_bytes(SHARE_BITS);
    (if tolerated { 0.0 } else { *error }, bytes)
}

/// The same values, all or some, elsewhere.
fn is_rearranged(op: &Op) -> bool {
    matches!(op, Op::Take { .. } | Op::Reshape | Op::Transpose { .. })
}

/// The same values, all or some, elsewhere, with zeros or other values beside them.
pub(super) fn is_moved(op: &Op) -> bool {
    is_rearranged(op) || matches!(op, Op::Pad { .. } | Op::Concat { .. })
}

/// A function at the scales of its argument and its value, clamped to what samples have.
#[derive(Clone, Copy)]
pub(super) struct Shape {
    pub(super) function: Function,
    /// Fraction bits of the argument and of the value: one number for a rectifier.
    pub(super) fractions: [i32; 2],
    /// The argument's integers on samples, with a margin.
    seen: (i32, i32),
    /// The argument's least and largest integer.
    pub(super) clamp: (i32, i32),
    /// The least argument at which the function counts, in steps: the least of the samples where
    /// these are positive.
    least: f64,
    /// The value's least and largest integer.
    pub(super) value: (i32, i32),
    /// The integers that need entries: from the first up to, without it, the second. Each is 0 or
    /// a power of two in size, and so is the difference.
    pub(super) window: (i64, i64),
}

impl Shape {
    fn new(
        function: Function,
        fractions: [i32; 2],
        argument: Range,
        result: Range,
        costly: bool,
    ) -> Self {
        let seen = match function {
            Function::Decay { rate } if rate > 0.0 => argument.clipped([Some(-USUAL / rate), None]),
            _ => argument,
        };
        let seen = seen.integers(fractions[0]);
        let (low, high) = argument.clamps(fractions[0], costly);
        let value = result.clamps(fractions[1], costly);
        let half = f64::from(-fractions[1]).exp2() / 2.0;
        let step = f64::from(-fractions[0]).exp2();
        let below = |x: f64| (function.at(-x) - function.limit_below()).abs() < half;
        let above = |x: f64| (function.at(x) - function.limit_above(x)).abs() < half;
        let (before, end) = (-i64::from(low), i64::from(high) + 1);
        let around = |most: i64| match most > 0 {
            true => most.unsigned_abs().next_power_of_two() as i64,
            false => 0,
        };
        let mut window = match function.span() {
            Span::Limits => (-reach(below, step, before), reach(above, step, end)),
            Span::Positive => (0, around(end.max(1))),
            Span::Samples => (-around(before), around(end)),
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
            seen,
            clamp: (least, (most as i32).max(least)),
            least: match function.span() {
                Span::Positive => argument.low / step,
                _ => f64::NEG_INFINITY,
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

    /// The cheapest table that is good enough, or the most precise where none is; where tables cost
    /// nothing, the most precise. With its mean square error.
    fn best(&self, costly: bool) -> (Table, f64) {
        let pieces = Pieces::new(self, self.least_drop());
        if !costly {
            let (pieces, constants) = (pieces.finest(), self.table(self.least_drop()));
            return if pieces.1 < constants.1 {
                pieces
            } else {
                constants
            };
        }
        let (pieces, constants) = (pieces.cheapest(), self.coarsest());
        if rank(&pieces) < rank(&constants) {
            pieces
        } else {
            constants
        }
    }

    /// The smallest table of constants that is good enough, or the largest where none is.
    fn coarsest(&self) -> (Table, f64) {
        let least = self.least_drop();
        let mut table = self.table(least);
        let most = ((self.window.1 - self.window.0) as u64).ilog2();
        for drop in least + 1..=most {
            let smaller = self.table(drop);
            if smaller.1 > TOLERANCE {
                break;
            }
            table = smaller;
        }
        table
    }

    /// The table with an entry for each `2^drop` integers of the window, and its mean square error
    /// over the arguments that occur, in units of the value.
    fn table(&self, drop: u32) -> (Table, f64) {
        self.table_to(self.window.1, drop)
    }

    /// The same up to an integer of the window.
    fn table_to(&self, end: i64, drop: u32) -> (Table, f64) {
        let (mut squares, mut count) = (0.0, 0u32);
        let first = self.window.0 >> drop;
        let mut entry = |bucket: i64| {
            let (start, end) = (bucket << drop, (bucket + 1) << drop);
            let wanted: Vec<(f64, f64)> = self.summands(start, end).collect();
            let mean = wanted.iter().map(|(_, y)| y).sum::<f64>() / f64::from(PROBES);
            let wanted_entry = self.limit(start, end).unwrap_or(mean);
            let entry = self.bounded(wanted_entry.round() as i64, start, end - 1);
            let errors = wanted.iter().filter(|(x, _)| self.occurs(*x));
            for (_, y) in errors {
                squares += (y - entry as f64).powi(2);
                count += 1;
            }
            entry as i32
        };
        let table = Table {
            rectified: self.function.is_rectifier(),
            drop,
            first: first as i32,
            entries: (first..end >> drop).map(&mut entry).collect(),
            fine: 0,
            rises: Vec::new(),
        };
        (table, squares / f64::from(count.max(1)))
    }

    /// The entry that stands for all arguments beyond an end of the window, too.
    pub(super) fn limit(&self, start: i64, end: i64) -> Option<f64> {
        if self.function.span() != Span::Limits {
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

    /// Arguments that round to integers from `start` to before `end`, and their best summands.
    fn summands(&self, start: i64, end: i64) -> impl Iterator<Item = (f64, f64)> {
        let width = (end - start) as f64;
        (0..PROBES).map(move |probe| {
            // By the golden ratio, so that arguments lie anywhere between two integers.
            let place = (f64::from(probe) + 0.5) * 0.618_033_988_749_895;
            let x = start as f64 - 0.5 + place.fract() * width;
            (x, self.summand(x))
        })
    }

    /// Whether an argument is like those of samples, and its value in its range.
    pub(super) fn occurs(&self, x: f64) -> bool {
        let [argument, value] = self.fractions.map(|fraction| f64::from(fraction).exp2());
        let found = self.function.at(x / argument) * value;
        let within = |(low, high): (i32, i32), x: f64| {
            (f64::from(low) - 0.5..=f64::from(high) + 0.5).contains(&x)
        };
        within(self.seen, x) && within(self.value, found)
    }

    /// The best summand for an argument, in units, that is rounded first. Values stay in their
    /// range: beyond it are arguments that do not occur, up to the next power of two.
    pub(super) fn summand(&self, x: f64) -> f64 {
        let [argument, value] = self.fractions.map(|fraction| f64::from(fraction).exp2());
        let x = x.max(self.least);
        let base = match self.function.is_rectifier() {
            true => (x + 0.5).floor().max(0.0),
            false => 0.0,
        };
        let (low, high) = (f64::from(self.value.0), f64::from(self.value.1));
        (self.function.at(x / argument) * value).clamp(low, high) - base
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
