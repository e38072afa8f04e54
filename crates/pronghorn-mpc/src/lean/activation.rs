//! Activations as programs, as the fixed-point oracle defines them.
//!
//! Dropping `c` bits of `x = x_0 + x_1` takes one carry, that of the low bits: `floor(x / 2^c)` is
//! `floor(x_0 / 2^c) + floor(x_1 / 2^c)` plus it. The sign takes the carry into the top bit. What
//! the sign selects is multiplied as shares. Rounding is an offset of the server's share.

use super::{
    gadgets::modulus_of_wraps,
    program::{Builder, Party, Plane, Program, Word},
    table::tabled,
};
use crate::circuit::{Activation, CircuitError, Modulus, Rectifier, Requantisation, signed_width};

/// How the values of an activation are shared: `2^guard v + d` modulo `2^bits` with `|d| <= error`,
/// or `v` modulo a prime.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Input {
    /// Bits of the modulus; 1 to 32.
    pub bits: u32,
    /// The modulus, where it is a prime. Values are exact then.
    pub prime: Option<u64>,
    /// Bits below the unit. `2 error` times the factor of a leaky ReLU is below `2^guard`.
    pub guard: u32,
    /// Bound on the error.
    pub error: u64,
    /// The least value.
    pub low: i64,
    /// The largest value.
    pub high: i64,
}

/// Most bits of a share that comes in or goes out.
const MOST_BITS: u32 = 32;

/// Most bits of a word in between.
const MOST_WIDE: u32 = 62;

/// A word, and the integers that it stands for in two's complement.
#[derive(Clone, Copy)]
pub(super) struct Value {
    pub word: Word,
    pub low: i64,
    pub high: i64,
}

impl Program {
    /// The program of an activation. It equals [`Activation::apply`] on the values.
    ///
    /// With `k` bits of which `c` are dropped, `n = k - c` and `m` bits of the result, a ReLU takes
    /// some `7 k + 2 n + m` bits and `1.7 k` OTs of an element, and `4 + log2(max(c, n) / 3)`
    /// levels. Shares modulo a prime of `k` bits come to a power of two first, for some `8 k` bits
    /// and `1.7 k` OTs.
    ///
    /// The largest of a window may be found before bits are dropped or after, with one result: the
    /// program is the one of the two that takes less.
    ///
    /// # Errors
    /// [`CircuitError::Range`] where a modulus does not hold the values, and
    /// [`CircuitError::Parameter`] for a window without values, guard bits that do not hold the
    /// error, or bounds that cut a table's entries into too many.
    pub fn activation(
        activation: &Activation<'_>,
        input: Input,
        output: Modulus,
    ) -> Result<Self, CircuitError> {
        check(activation, &input, output)?;
        let late = Self::pooled_first(activation, input, output)?;
        let early = Self::cut_first(activation, input, output)?;
        let weight = |program: &Self| {
            let ots = [Party::Server, Party::Client].map(|sender| program.ots(sender));
            program.all_bits() + BITS_OF_OT * (ots[0] + ots[1])
        };
        Ok(match early {
            Some(early) if weight(&early) < weight(&late) => early,
            _ => late,
        })
    }

    /// The program of an activation whose values are rounded by a dither: each party drops the bits
    /// of its own share, without a message. The addend of a value is `2^d - 1 - l` for `d` dropped
    /// bits, guard bits included, and `l` those of the server's share with
    /// [`Input::dither_offset`]; an error of the shares is added to it. The maximum of a window is
    /// that of rounded values.
    ///
    /// With `n` bits left and `m` of the result, a ReLU takes some `7 n + 2 n + m` bits and `1.7 n`
    /// OTs of an element.
    ///
    /// # Errors
    /// As [`Program::activation`], for shares modulo a prime, for a leaky ReLU, and where no bits
    /// are dropped.
    pub fn dithered(
        activation: &Activation<'_>,
        input: Input,
        output: Modulus,
    ) -> Result<Self, CircuitError> {
        check(activation, &input, output)?;
        let (drop, rest) = rounded_before(activation)?;
        in_range("primes of shares", input.prime.is_some().into(), 0, 0)?;
        let mut builder = Builder::default();
        let values = (0..activation.pool).map(|_| input.dithered(&mut builder, drop));
        let values = values.collect::<Result<Vec<_>, _>>()?;
        let largest = pooled(&mut builder, &values)?;
        let word = finished(&mut builder, largest, 0, &rest, output)?;
        Ok(builder.finish(word))
    }

    /// The largest of a window, then the function of it.
    fn pooled_first(
        activation: &Activation<'_>,
        input: Input,
        output: Modulus,
    ) -> Result<Self, CircuitError> {
        let mut builder = Builder::default();
        let values = (0..activation.pool).map(|_| input.value(&mut builder, activation));
        let values = values.collect::<Result<Vec<_>, _>>()?;
        let (largest, drop) = (pooled(&mut builder, &values)?, input.dropped(activation));
        let shift = activation.requantisation.map_or(0, |last| last.shift);
        let value = match activation.rectifier {
            Rectifier::None | Rectifier::Relu => largest,
            Rectifier::Leaky { slope, shift: gain } => {
                let scales = [1i64 << gain, slope.into()];
                let half = rounding(shift) << input.guard;
                leaky(&mut builder, largest, scales, half)?
            }
        };
        let word = finished(&mut builder, value, drop, activation, output)?;
        Ok(builder.finish(word))
    }

    /// Each value of a window without the bits that are dropped, then the largest, then the bounds;
    /// `None` where that is no gain, or shares have not the bits for it.
    fn cut_first(
        activation: &Activation<'_>,
        input: Input,
        output: Modulus,
    ) -> Result<Option<Self>, CircuitError> {
        let drop = input.dropped(activation);
        let leaky = matches!(activation.rectifier, Rectifier::Leaky { .. });
        if activation.pool == 1 || drop == 0 || leaky {
            return Ok(None);
        }
        let mut builder = Builder::default();
        let mut values = Vec::with_capacity(activation.pool);
        for _ in 0..activation.pool {
            let value = input.value(&mut builder, activation)?;
            let (low, high) = (value.low >> drop, value.high >> drop);
            let differences = signed_width(low - high, high - low + 1);
            // A table takes the value's own sign.
            let bits = match activation.table {
                Some(_) => differences.max(signed_width(low, high)),
                None => differences,
            };
            if bits + drop > value.bits(&builder) {
                return Ok(None);
            }
            let carry = low_carry(&mut builder, value.word, drop);
            let word = floor(&mut builder, value.word, drop, carry, bits)?;
            values.push(Value { word, low, high });
        }
        let largest = pooled(&mut builder, &values)?;
        let word = finished(&mut builder, largest, 0, activation, output)?;
        Ok(Some(builder.finish(word)))
    }
}

/// What an OT counts beside a bit of a message, where programs are compared.
const BITS_OF_OT: usize = 2;

/// Bits that shares of values in `low..=high` need for [`Program::activation`], guard bits not
/// counted: differences from the bounds of a clip and within a window must fit, too.
pub fn input_width(activation: &Activation<'_>, low: i64, high: i64) -> u32 {
    let shift = activation.requantisation.map_or(0, |last| last.shift);
    let (factors, round) = match activation.rectifier {
        Rectifier::Leaky { .. } => (true, 0),
        _ => (false, rounding(shift)),
    };
    let (low, high) = (low.saturating_add(round), high.saturating_add(round));
    let width = |ends: [i64; 2]| signed_width(ends[0].min(ends[1]), ends[0].max(ends[1]));
    let pooled = match activation.pool {
        0 | 1 => 1,
        _ => width([low.saturating_sub(high), high.saturating_sub(low)]),
    };
    // A leaky ReLU brings its results to the width that the clip needs.
    let clipped = match (factors, activation.bounds()) {
        (true, _) => signed_width(low.saturating_sub(1), high),
        // A table's bounds are compared by bits.
        (false, _) if activation.table.is_some() => 1,
        (false, (least, most)) => {
            let differences = |bound: i64| {
                let bound = bound.saturating_mul(1 << shift);
                width([low.saturating_sub(bound), high.saturating_sub(bound)])
            };
            let held = [low, high].map(|end| (end >> shift).clamp(least, most));
            match (low >> shift < least, high >> shift > most) {
                (false, false) => 1,
                _ if held[1] - held[0] == 1 => differences(held[1]),
                (true, false) => differences(least),
                (false, true) => differences(most).max(differences(most + 1)),
                // Bits above the lowest ones tell what is inside.
                (true, true) if is_power(least, most) => differences(least),
                (true, true) => differences(least).max(differences(most + 1)),
            }
        }
    };
    width([low, high]).max(pooled).max(clipped)
}

/// The same for [`Program::dithered`].
pub fn dithered_width(activation: &Activation<'_>, low: i64, high: i64) -> u32 {
    match rounded_before(activation) {
        Ok((drop, rest)) => drop + input_width(&rest, low >> drop, (high >> drop) + 1),
        Err(_) => MOST_BITS,
    }
}

/// The bits that an activation drops, and what is left of it where they are dropped before.
///
/// # Errors
/// [`CircuitError::Parameter`] where it drops none, or slopes come before.
fn rounded_before<'t>(activation: &Activation<'t>) -> Result<(u32, Activation<'t>), CircuitError> {
    let last = activation.requantisation;
    let drop = last.map_or(0, |last| last.shift);
    in_range("bits that a dither drops", drop.into(), 1, 31)?;
    if let Rectifier::Leaky { slope, .. } = activation.rectifier {
        in_range("the slope before a dither", slope.into(), 0, -1)?;
    }
    let requantisation = last.map(|last| Requantisation { shift: 0, ..last });
    Ok((
        drop,
        Activation {
            requantisation,
            ..*activation
        },
    ))
}

/// What is added so that dropping `shift` bits rounds.
fn rounding(shift: u32) -> i64 {
    (1i64 << shift) >> 1
}

pub(super) fn in_range(
    name: &'static str,
    value: i64,
    low: i64,
    high: i64,
) -> Result<(), CircuitError> {
    match (low..=high).contains(&value) {
        true => Ok(()),
        false => Err(CircuitError::Parameter {
            name,
            value,
            low,
            high,
        }),
    }
}

fn check(activation: &Activation<'_>, input: &Input, output: Modulus) -> Result<(), CircuitError> {
    in_range("values in a window", activation.pool as i64, 1, 1 << 10)?;
    input.check()?;
    in_range(
        "bits of the result",
        output.bits().into(),
        1,
        MOST_BITS.into(),
    )?;
    if let Some(table) = &activation.table {
        table.check()?;
    }
    if let Some(last) = activation.requantisation {
        in_range("shift", last.shift.into(), 0, 31)?;
        in_range(
            "lower bound",
            last.low.into(),
            i32::MIN.into(),
            last.high.into(),
        )?;
    }
    let factor = match activation.rectifier {
        Rectifier::Leaky { slope, shift } => {
            in_range("slope", slope.into(), 0, i32::MAX.into())?;
            in_range("shift of the slope", shift.into(), 0, 30)?;
            i64::from(slope).max(1 << shift)
        }
        _ => 1,
    };
    let reach = i64::try_from(input.error).unwrap_or(i64::MAX);
    let reach = reach.saturating_mul(2).saturating_mul(factor);
    in_range("the reach of errors", reach, 0, (1i64 << input.guard) - 1)
}

impl Activation<'_> {
    /// The bounds of the result, with a ReLU's as a clip.
    fn bounds(&self) -> (i64, i64) {
        let (low, high) = match self.requantisation {
            None => (i64::MIN, i64::MAX),
            Some(last) => (last.low.into(), last.high.into()),
        };
        match self.rectifier {
            Rectifier::Relu => (0.clamp(low, high), high),
            Rectifier::None | Rectifier::Leaky { .. } => (low, high),
        }
    }
}

impl Input {
    /// Checks the fields, so that values with their guard bits fit an `i64` by far.
    ///
    /// # Errors
    /// [`CircuitError::Parameter`] for the first that is out of range.
    pub(super) fn check(&self) -> Result<(), CircuitError> {
        let bits = i64::from(self.bits);
        in_range("bits of a share", bits, 1, MOST_BITS.into())?;
        in_range("guard bits", self.guard.into(), 0, bits - 1)?;
        in_range("least value", self.low, i32::MIN.into(), self.high)?;
        in_range("largest value", self.high, self.low, i32::MAX.into())?;
        let error = i64::try_from(self.error).unwrap_or(i64::MAX);
        in_range("the error", error, 0, (1 << self.guard) - 1)?;
        if let Some(prime) = self.prime {
            let prime = i64::try_from(prime).unwrap_or(i64::MAX);
            in_range("the prime of shares", prime, 3, u32::MAX.into())?;
            in_range("guard bits modulo a prime", self.guard.into(), 0, 0)?;
        }
        Ok(())
    }

    /// Bits that are dropped in the end, without those that the parties drop alone.
    fn dropped(&self, activation: &Activation<'_>) -> u32 {
        let shift = activation.requantisation.map_or(0, |last| last.shift);
        shift + self.guard - self.floored(activation)
    }

    /// The modulus of the shares.
    fn modulus(&self) -> Result<Modulus, CircuitError> {
        Ok(match self.prime {
            Some(prime) => Modulus::prime(prime)?,
            None => Modulus::power_of_two(self.bits)?,
        })
    }

    /// Guard bits that the parties drop alone: with `j` of them the sum of the floors is off by at
    /// most one unit of the lowest bit left, so that `2 error + 2^j <= 2^guard` is enough. A leaky
    /// ReLU multiplies errors, and keeps all.
    fn floored(&self, activation: &Activation<'_>) -> u32 {
        if let Rectifier::Leaky { .. } = activation.rectifier {
            return 0;
        }
        let fits = |j: &u32| 2 * self.error + (1 << j) <= 1 << self.guard;
        (1..self.guard).rev().find(fits).unwrap_or(0)
    }

    /// One input: without the guard bits that need no message, and with what makes the floor of the
    /// rest the rounded value.
    fn value(
        &self,
        builder: &mut Builder,
        activation: &Activation<'_>,
    ) -> Result<Value, CircuitError> {
        let floored = self.floored(activation);
        let shift = activation.requantisation.map_or(0, |last| last.shift);
        let round = match activation.rectifier {
            Rectifier::Leaky { .. } => 0,
            _ => rounding(shift) << self.guard,
        };
        let offset = round + (1i64 << floored) - 1 + self.error as i64;
        let word = builder.input(self.modulus()?);
        let (word, modulus) = match self.prime {
            None => (word, self.modulus()?),
            Some(_) => {
                let bits = input_width(activation, self.low, self.high);
                let modulus = Modulus::power_of_two(bits)?;
                (builder.lift(word, (self.low, self.high), modulus)?, modulus)
            }
        };
        // With the offset, errors are within the unit.
        let low = (self.low << self.guard) + round;
        let high = ((self.high + 1) << self.guard) + round - 1;
        if !modulus.holds(low, high) {
            return Err(modulus.range_error(low, high));
        }
        let word = builder.sum(&[(word, 1)], offset, modulus);
        let word = match floored {
            0 => word,
            _ => own_floor(builder, word, floored)?,
        };
        Ok(Value {
            word,
            low: low >> floored,
            high: high >> floored,
        })
    }

    /// What the server adds to its share of a value that is rounded by a dither and drops so many
    /// bits: what errors need, and what makes the sum of the parties' floors a floor.
    pub fn dither_offset(&self, drop: u32) -> i64 {
        (1i64 << (drop + self.guard)) - 1 + self.error as i64
    }

    /// One input that is rounded by a dither.
    fn dithered(&self, builder: &mut Builder, drop: u32) -> Result<Value, CircuitError> {
        let modulus = self.modulus()?;
        let (floored, offset) = (drop + self.guard, self.dither_offset(drop));
        let (low, high) = (self.low >> drop, (self.high >> drop) + 1);
        let rounded = [low << floored, ((high + 1) << floored) - 1];
        if floored >= modulus.bits() || !modulus.holds(rounded[0], rounded[1]) {
            return Err(modulus.range_error(rounded[0], rounded[1]));
        }
        let word = builder.input(modulus);
        let word = builder.sum(&[(word, 1)], offset, modulus);
        let word = own_floor(builder, word, floored)?;
        Ok(Value { word, low, high })
    }
}

/// The word without bits that each party drops of its own residue.
fn own_floor(builder: &mut Builder, word: Word, bits: u32) -> Result<Word, CircuitError> {
    let left = Modulus::power_of_two(builder.modulus(word).bits() - bits)?;
    Ok(builder.shift(word, bits, left))
}

impl Value {
    /// Whether the value plus a constant fits its word.
    fn has_room(&self, builder: &Builder, constant: i64) -> bool {
        let (low, high) = (self.low + constant, self.high + constant);
        signed_width(low, high) <= builder.modulus(self.word).bits()
    }

    /// The value plus a constant, in the fewest bits that hold it.
    fn plus(self, builder: &mut Builder, constant: i64) -> Result<Self, CircuitError> {
        self.linear(builder, 1, constant)
    }

    /// `sign * value + constant`, in the fewest bits that hold it.
    fn linear(self, builder: &mut Builder, sign: i64, constant: i64) -> Result<Self, CircuitError> {
        let ends = [self.low, self.high].map(|end| sign * end + constant);
        let (low, high) = (ends[0].min(ends[1]), ends[0].max(ends[1]));
        let modulus = builder.modulus(self.word);
        let width = signed_width(low, high);
        if width > modulus.bits() {
            return Err(modulus.range_error(low, high));
        }
        let narrow = Modulus::power_of_two(width)?;
        let word = builder.sum(&[(self.word, sign)], constant, narrow);
        Ok(Self { word, low, high })
    }

    fn bits(&self, builder: &Builder) -> u32 {
        builder.modulus(self.word).bits()
    }
}

/// The largest of a window, by rounds of pairs.
fn pooled(builder: &mut Builder, values: &[Value]) -> Result<Value, CircuitError> {
    let (low, high) = (values[0].low, values[0].high);
    let modulus = builder.modulus(values[0].word);
    // Differences take a bit more than values.
    if values.len() > 1 && !modulus.holds(low - high, high - low) {
        return Err(modulus.range_error(low - high, high - low));
    }
    // Values must fit, too: those on one side of 0 may take more than their differences.
    let width = signed_width(low - high, high - low).max(signed_width(low, high));
    let narrow = Modulus::power_of_two(width.min(modulus.bits()))?;
    let mut words: Vec<Word> = values.iter().map(|value| value.word).collect();
    if words.len() > 1 {
        let narrowed = words
            .iter()
            .map(|&word| builder.sum(&[(word, 1)], 0, narrow));
        words = narrowed.collect();
    }
    while words.len() > 1 {
        let pairs = words.chunks(2);
        words = pairs
            .map(|pair| match *pair {
                [x, y] => builder.maximum(x, y),
                _ => pair[0],
            })
            .collect();
    }
    Ok(Value {
        word: words[0],
        low,
        high,
    })
}

/// `above max(x, 0) - below max(-x, 0) + offset`.
fn leaky(
    builder: &mut Builder,
    value: Value,
    [above, below]: [i64; 2],
    offset: i64,
) -> Result<Value, CircuitError> {
    // One more below, so that -x fits, too.
    let value = Value {
        low: value.low - 1,
        ..value
    }
    .plus(builder, 0)?;
    let scaled = |x: i64| {
        let factor = if x > 0 { above } else { below };
        x.saturating_mul(factor).saturating_add(offset)
    };
    let (low, high) = (scaled(value.low), scaled(value.high));
    // A bit more, for the differences from the bounds of a clip.
    let width = signed_width(low, high).max(value.bits(builder)) + 1;
    if width > MOST_WIDE {
        let modulus = Modulus::power_of_two(MOST_WIDE)?;
        return Err(modulus.range_error(low, high));
    }
    let wide = Modulus::power_of_two(width)?;
    let bit = builder.is_positive_above(value.word, 0, None);
    let positive = builder.multiplex(bit, value.word);
    let modulus = builder.modulus(value.word);
    let negative = builder.sum(&[(positive, 1), (value.word, -1)], 0, modulus);
    let [positive, negative] = [positive, negative].map(|word| builder.extend(word, wide));
    let word = builder.sum(&[(positive, above), (negative, -below)], offset, wide);
    Ok(Value { word, low, high })
}

/// What follows the rectifier: the change of precision, and the table if any.
fn finished(
    builder: &mut Builder,
    value: Value,
    drop: u32,
    activation: &Activation<'_>,
    output: Modulus,
) -> Result<Word, CircuitError> {
    let bounds = activation.bounds();
    match &activation.table {
        Some(table) => tabled(builder, value, drop, (table, bounds), output),
        None => clipped(builder, value, drop, bounds, output),
    }
}

/// `clamp(floor(x / 2^drop), bounds)` in the output's modulus.
fn clipped(
    builder: &mut Builder,
    value: Value,
    drop: u32,
    (least, most): (i64, i64),
    output: Modulus,
) -> Result<Word, CircuitError> {
    let (low, high) = (value.low >> drop, value.high >> drop);
    let held = (low.clamp(least, most), high.clamp(least, most));
    if !output.holds(held.0, held.1) {
        return Err(output.range_error(held.0, held.1));
    }
    if held.0 == held.1 {
        return Ok(builder.sum(&[], held.0, output));
    }
    match (low < least, high > most) {
        (false, false) => unclipped(builder, value, drop, output),
        _ if held.1 - held.0 == 1 && value.has_room(builder, -(held.1 << drop)) => {
            flag(builder, value, drop, held.1, output)
        }
        (true, false) => {
            let above = value.plus(builder, -(least << drop))?;
            from_below(builder, above, drop, (1, least), output)
        }
        (false, true) => {
            // most - max(most - floor(x / 2^c), 0), and minus a floor is the floor of a ceiling.
            let below = value.linear(builder, -1, (most << drop) + (1i64 << drop) - 1)?;
            from_below(builder, below, drop, (-1, most), output)
        }
        (true, true) if is_power(least, most) => {
            within_power(builder, value, drop, (least, most), output)
        }
        (true, true) => within(builder, value, drop, (least, most), output),
    }
}

/// A clip to two neighbours, as of a comparison: `most` where the value is at least that, else the
/// one below. The bit of one comparison is all there is.
fn flag(
    builder: &mut Builder,
    value: Value,
    drop: u32,
    most: i64,
    output: Modulus,
) -> Result<Word, CircuitError> {
    let above = value.plus(builder, -(most << drop))?;
    let carry = low_carry(builder, above.word, drop);
    let is_above = builder.is_positive_above(above.word, drop, carry);
    let number = builder.number_of(is_above, output);
    Ok(builder.sum(&[(number, 1)], most - 1, output))
}

/// Whether bounds hold a power of two of integers.
fn is_power(least: i64, most: i64) -> bool {
    (most - least + 1).count_ones() == 1
}

/// `floor(x / 2^drop)`, a word modulo `2^bits` at most that of `x` without these bits.
pub(super) fn floor(
    builder: &mut Builder,
    word: Word,
    drop: u32,
    carry: Option<Plane>,
    bits: u32,
) -> Result<Word, CircuitError> {
    let modulus = Modulus::power_of_two(bits)?;
    let shifted = builder.shift(word, drop, modulus);
    Ok(match carry {
        None => shifted,
        Some(carry) => {
            let carry = builder.number_of(carry, modulus);
            builder.sum(&[(shifted, 1), (carry, 1)], 0, modulus)
        }
    })
}

/// The carry into bit `drop`.
pub(super) fn low_carry(builder: &mut Builder, word: Word, drop: u32) -> Option<Plane> {
    let carry = builder.carry(word, 0..drop, false);
    carry.map(|carry| carry.generate)
}

/// `floor(x / 2^drop)`, which needs no clip.
fn unclipped(
    builder: &mut Builder,
    value: Value,
    drop: u32,
    output: Modulus,
) -> Result<Word, CircuitError> {
    let low = value.low >> drop;
    // From 0 on, so that the value has no sign.
    let span = (value.high >> drop) - low;
    let bits = value.bits(builder);
    if bits <= drop {
        let modulus = builder.modulus(value.word);
        return Err(modulus.range_error(-1i64 << drop, (1i64 << drop) - 1));
    }
    if let (Modulus::PowerOfTwo(_), true) = (output, output.bits() <= bits - drop) {
        let carry = low_carry(builder, value.word, drop);
        return floor(builder, value.word, drop, carry, output.bits());
    }
    // A spare bit makes the wrap visible in the top bits.
    let spare = signed_width(0, span);
    if spare <= bits - drop {
        let raised = builder.sum(
            &[(value.word, 1)],
            -(low << drop),
            builder.modulus(value.word),
        );
        let carry = low_carry(builder, raised, drop);
        let word = floor(builder, raised, drop, carry, spare)?;
        let word = builder.extend(word, output);
        return Ok(builder.sum(&[(word, 1)], low, output));
    }
    // Else the carry out of the word says whether the sum of shares wraps.
    let bits = signed_width(value.low, value.high).max(drop + 1);
    if bits > value.bits(builder) {
        return Err(builder
            .modulus(value.word)
            .range_error(value.low, value.high));
    }
    let modulus = Modulus::power_of_two(bits)?;
    let raised = builder.sum(&[(value.word, 1)], 1i64 << (bits - 1), modulus);
    let carry = low_carry(builder, raised, drop);
    let upper = builder.carry(raised, drop..bits, carry.is_some());
    let wraps = upper.map(|upper| upper.out(builder, carry));
    let kept = bits - drop;
    let shifted = builder.shift(raised, drop, output);
    let mut terms = vec![(shifted, 1)];
    if let Some(carry) = carry {
        terms.push((builder.number_of(carry, output), 1));
    }
    if let Some(wraps) = wraps {
        let counted = modulus_of_wraps(output, kept);
        terms.push((builder.number_of(wraps, counted), -(1i64 << kept)));
    }
    Ok(builder.sum(&terms, -(1i64 << (kept - 1)), output))
}

/// `sign * max(floor(x / 2^drop), 0) + offset`.
fn from_below(
    builder: &mut Builder,
    value: Value,
    drop: u32,
    (sign, offset): (i64, i64),
    output: Modulus,
) -> Result<Word, CircuitError> {
    let carry = low_carry(builder, value.word, drop);
    let positive = builder.is_positive_above(value.word, drop, carry);
    // The result has no sign: one bit more makes wraps visible.
    let bits = signed_width(0, value.high >> drop);
    let word = floor(builder, value.word, drop, carry, bits)?;
    let word = builder.multiplex(positive, word);
    let word = builder.extend(word, output);
    Ok(builder.sum(&[(word, sign)], offset, output))
}

/// A clip to `2^b` values: inside where the bits above are 0.
fn within_power(
    builder: &mut Builder,
    value: Value,
    drop: u32,
    (least, most): (i64, i64),
    output: Modulus,
) -> Result<Word, CircuitError> {
    let value = value.plus(builder, -(least << drop))?;
    let (word, bits) = (value.word, value.bits(builder));
    let b = (most - least + 1).trailing_zeros();
    let (first, top) = (drop + b, bits - 1);
    let carry = low_carry(builder, word, drop);
    let into = match builder.carry(word, drop..first, carry.is_some()) {
        Some(middle) => Some(middle.out(builder, carry)),
        None => carry,
    };
    // The bits from `first` on are 0 where, without a carry into them, one party's are minus the
    // other's, and with one where all pass it on.
    let upper = Modulus::power_of_two(bits - first)?;
    let shifted = builder.shift(word, first, upper);
    let opposite = builder.opposite(shifted);
    let equal: Vec<Plane> = (0..bits - first)
        .map(|bit| {
            let differs = builder.bit(opposite, bit);
            builder.not(differs)
        })
        .collect();
    let without = builder.all(&equal);
    let sign = builder.bit(word, top);
    let (inside, positive) = match (builder.carry(word, first..top, true), into) {
        (Some(carry), into) => {
            let (generate, propagate) = (carry.generate, carry.propagate.unwrap_or(sign));
            let passed = builder.and(propagate, &[sign])[0];
            let change = builder.xor(&[without, passed]);
            let (mut inside, mut negative) = (vec![without], vec![sign, generate]);
            if let Some(into) = into {
                let products = builder.and(into, &[change, propagate]);
                inside.push(products[0]);
                negative.push(products[1]);
            }
            let negative = builder.xor(&negative);
            (builder.xor(&inside), builder.not(negative))
        }
        // One bit above, the sign: nothing is above the bounds.
        (None, into) => {
            let terms: Vec<Plane> = [sign].into_iter().chain(into).collect();
            let negative = builder.xor(&terms);
            let positive = builder.not(negative);
            (positive, positive)
        }
    };
    let above = builder.xor(&[positive, inside]);
    let kept = floor(builder, word, drop, carry, b + 1)?;
    Ok(select(
        builder,
        (inside, kept),
        above,
        (least, most),
        output,
    ))
}

/// A clip to any bounds: two signs, with one carry of the low bits.
fn within(
    builder: &mut Builder,
    value: Value,
    drop: u32,
    (least, most): (i64, i64),
    output: Modulus,
) -> Result<Word, CircuitError> {
    let bounds = [least, most + 1];
    let shifted = bounds.map(|bound| value.plus(builder, -(bound << drop)));
    let [from, beyond] = shifted;
    let (from, beyond) = (from?, beyond?);
    let carry = low_carry(builder, from.word, drop);
    let not_below = builder.is_positive_above(from.word, drop, carry);
    let above = builder.is_positive_above(beyond.word, drop, carry);
    let inside = builder.xor(&[not_below, above]);
    let bits = signed_width(0, most - least);
    let kept = floor(builder, from.word, drop, carry, bits)?;
    Ok(select(
        builder,
        (inside, kept),
        above,
        (least, most),
        output,
    ))
}

/// The word above `least` where the one bit is 1, `most` where the other is, else `least`.
fn select(
    builder: &mut Builder,
    (inside, word): (Plane, Word),
    above: Plane,
    (least, most): (i64, i64),
    output: Modulus,
) -> Word {
    let modulus = builder.modulus(word);
    let inside = builder.multiplex(inside, word);
    let above = builder.number_of(above, modulus);
    let selected = builder.sum(&[(inside, 1), (above, most - least)], 0, modulus);
    let word = builder.extend(selected, output);
    builder.sum(&[(word, 1)], least, output)
}
