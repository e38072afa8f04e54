//! Activations on additive shares, as the fixed-point oracle defines them.

use super::piece::{Piece, add_multiple, at_least_constant};
use super::share::signed_width;
use super::{Bit, Builder, Circuit, CircuitError, Modulus, Shared, Sum, Table};

/// An activation: the largest of `pool` values, rectified, brought to another precision, looked up
/// in a table.
///
/// All of these but tables are monotone, so networks that rectify or requantise before they pool
/// get the same result.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Activation<'t> {
    /// Values in a window, 1 where nothing is pooled.
    pub pool: usize,
    /// The treatment of values below zero.
    pub rectifier: Rectifier,
    /// The change of precision, if any.
    pub requantisation: Option<Requantisation>,
    /// The function of the result, if any.
    pub table: Option<Table<'t>>,
}

/// The treatment of values below zero.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Rectifier {
    /// Nothing.
    None,
    /// They become 0.
    Relu,
    /// `x << shift` where `x >= 0`, else `x * slope`.
    Leaky {
        /// The slope below zero, not negative, times `2^shift`.
        slope: i32,
        /// Bits gained by the scale.
        shift: u32,
    },
}

/// `clip((x + 2^(shift-1)) >> shift, low, high)`: arithmetic shift, halves round up, and a shift of
/// 0 only clips.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Requantisation {
    /// Bits dropped.
    pub shift: u32,
    /// Lower bound of the result.
    pub low: i32,
    /// Upper bound of the result.
    pub high: i32,
}

impl Activation<'_> {
    /// `max(x, 0)`.
    pub const RELU: Self = Self {
        pool: 1,
        rectifier: Rectifier::Relu,
        requantisation: None,
        table: None,
    };

    /// The value for these, the definition of the circuit.
    ///
    /// # Panics
    /// Where there are no values.
    pub fn apply(&self, values: &[i64]) -> i64 {
        let largest = *values.iter().max().expect("a window holds a value");
        let argument = self.argument(largest);
        self.table.map_or(argument, |table| table.apply(argument))
    }

    /// The value for the largest of a window, before the table.
    fn argument(&self, largest: i64) -> i64 {
        let rectified = self.rectifier.apply(largest);
        self.requantisation
            .map_or(rectified, |requantisation| requantisation.apply(rectified))
    }

    /// The circuit: `pool` inputs as shares in `input` of values in `low..=high`, the output as
    /// shares in `output`, all else hidden.
    ///
    /// Only the sign and the bits that are compared cost gates; what they select is multiplied as
    /// shares ([`Sum::add_product`]). Truncation drops wires, and its rounding is an offset that
    /// the garbler adds to its share.
    ///
    /// # Errors
    /// [`CircuitError::Range`] where a modulus does not hold the values, and
    /// [`CircuitError::Parameter`] for a window without values, an unordered range, or a shift or
    /// slope out of range.
    pub fn circuit(
        &self,
        input: Modulus,
        low: i64,
        high: i64,
        output: Modulus,
    ) -> Result<Circuit, CircuitError> {
        self.check(input, low, high, output)?;
        let offset = self.offset(input, low, high);
        let input = input.narrowed(low, high + offset);
        let mut builder = Builder::new();
        let inputs = (0..self.pool)
            .map(|_| builder.shared_input(input, low, high))
            .collect::<Result<Vec<_>, _>>()?;
        let mut sum = Sum::new(output);
        // What 0 becomes: every selected piece takes it off.
        let rest = self.apply(&[0]);
        add_multiple(&mut sum, Bit::ONE, rest);
        let shares = input.reduces_to(output);
        // Rounding by an offset is a floor, which is monotone: bits are dropped before values are
        // compared.
        let cut = match self.requantisation {
            Some(Requantisation { shift, .. }) if offset != 0 => shift,
            _ => 0,
        };
        let requantisation = self.requantisation.map(|each| Requantisation {
            shift: each.shift - cut,
            ..each
        });
        for piece in self.pooled(&mut builder, &inputs, offset, cut, shares) {
            let linear = self.requantisation.is_none() && self.table.is_none();
            for mut piece in self.rectifier.pieces(&mut builder, piece, linear) {
                // Where nothing is selected the value is 0, and `rest` stays.
                add_multiple(&mut sum, piece.select, -rest);
                if let Some(requantisation) = requantisation {
                    let value = |bound| self.table.map_or(bound, |table| table.apply(bound));
                    piece = requantisation.piece(&mut builder, piece, value, &mut sum);
                }
                match self.table {
                    Some(table) => table.add_to(&mut builder, &piece, &mut sum),
                    None => piece.add_to(&mut sum, &inputs[0]),
                }
            }
        }
        builder.output_sum(sum);
        Ok(builder.finish())
    }

    fn check(
        &self,
        input: Modulus,
        low: i64,
        high: i64,
        output: Modulus,
    ) -> Result<(), CircuitError> {
        let within = |name, value, low, high| {
            if (low..=high).contains(&value) {
                return Ok(());
            }
            Err(CircuitError::Parameter {
                name,
                value,
                low,
                high,
            })
        };
        within("values in a window", self.pool as i64, 1, 1 << 20)?;
        if let Rectifier::Leaky { slope, shift } = self.rectifier {
            within("slope", slope.into(), 0, i32::MAX.into())?;
            within("shift of the slope", shift.into(), 0, 30)?;
        }
        if let Some(Requantisation { shift, low, high }) = self.requantisation {
            within("shift", shift.into(), 0, 31)?;
            within("lower bound", low.into(), i32::MIN.into(), high.into())?;
        }
        if !input.holds(low, high) {
            return Err(input.range_error(low, high));
        }
        // The oracle's values have 32 bits.
        within("least value", low, i32::MIN.into(), i32::MAX.into())?;
        within("largest value", high, i32::MIN.into(), i32::MAX.into())?;
        // All but the table is monotone in the values, so its range is that of the ends.
        let (mut low, mut high) = (self.argument(low), self.argument(high));
        if let Some(table) = self.table {
            table.check()?;
            (low, high) = table.range(low, high);
        }
        if !output.holds(low, high) {
            return Err(output.range_error(low, high));
        }
        Ok(())
    }

    /// What is added before everything so that truncation rounds; 0 where that is not possible.
    fn offset(&self, input: Modulus, low: i64, high: i64) -> i64 {
        let half = match (self.rectifier, self.requantisation) {
            (Rectifier::Leaky { .. }, _) | (_, None) => 0,
            (_, Some(requantisation)) => (1i64 << requantisation.shift) >> 1,
        };
        // max(x, 0) rounds as max(x + half, 0) >> shift: what rounds from below zero rounds to 0.
        if input.holds(low, high + half) {
            half
        } else {
            0
        }
    }

    /// The largest input plus the offset, without its low `cut` bits: one word, or two of which one
    /// is selected. `shares`: the input's are shares in the modulus of the output, too.
    fn pooled(
        &self,
        builder: &mut Builder,
        inputs: &[Shared],
        offset: i64,
        cut: u32,
        shares: bool,
    ) -> Vec<Piece> {
        let words: Vec<_> = inputs
            .iter()
            .map(|input| {
                let word = builder.reconstruct(input, offset);
                let kept = (cut as usize).min(word.len() - 1);
                word[kept..].to_vec()
            })
            .collect();
        let (low, high) = inputs[0].range();
        let piece = |select, word: Vec<Bit>| Piece {
            select,
            sign: word.last().copied().unwrap_or(Bit::ZERO),
            word,
            low: (low + offset) >> cut,
            high: (high + offset) >> cut,
            scale: 1,
            whole: shares && inputs.len() == 1 && offset == 0,
        };
        let [word] = &words[..] else {
            // The last multiplexer of the tree is left to the product of shares.
            let (left, right) = words.split_at(words.len() / 2);
            let (left, right) = (builder.max_of(left), builder.max_of(right));
            let less = builder.less_than_signed(&left, &right);
            let not_less = builder.not(less);
            return vec![piece(not_less, left), piece(less, right)];
        };
        let mut piece = piece(Bit::ONE, word.clone());
        if piece.whole && self.requantisation.is_none() && self.table.is_none() {
            // Modulo a prime the sign is cheaper than the word, which then is not needed.
            piece.sign = builder.is_negative(&inputs[0]);
        }
        vec![piece]
    }
}

impl Rectifier {
    fn apply(self, x: i64) -> i64 {
        match self {
            Self::None => x,
            Self::Relu => x.max(0),
            Self::Leaky { shift, .. } if x >= 0 => x << shift,
            Self::Leaky { slope, .. } => x * i64::from(slope),
        }
    }

    /// The pieces of a rectified piece. If `linear`, any of them may be selected and have a scale;
    /// else at most one is selected, and its scale is 1.
    fn pieces(self, builder: &mut Builder, piece: Piece, linear: bool) -> Vec<Piece> {
        if self == Self::None {
            return vec![piece];
        }
        let positive = builder.not(piece.sign);
        let positive = builder.and(piece.select, positive);
        let mut above = Piece {
            select: positive,
            word: piece.word.clone(),
            low: piece.low.max(0),
            high: piece.high.max(0),
            ..piece
        };
        above.fit(builder);
        let Self::Leaky { slope, shift } = self else {
            return vec![above];
        };
        let slope = i64::from(slope);
        if linear {
            // slope x + (2^shift - slope) max(x, 0).
            above.scale = (1 << shift) - slope;
            return vec![
                above,
                Piece {
                    scale: slope,
                    ..piece
                },
            ];
        }
        let (low, high) = (above.low << shift, above.high << shift);
        let width = signed_width(low, high) as usize;
        let above = Piece {
            word: builder.shift_left(&above.word, shift, width),
            low,
            high,
            whole: false,
            ..above
        };
        let (low, high) = (piece.low.min(0) * slope, piece.high.min(0) * slope);
        let width = signed_width(low, high) as usize;
        let below = Piece {
            select: builder.xor(piece.select, positive),
            word: builder.multiply_constant(&piece.word, slope, width),
            low,
            high,
            whole: false,
            ..piece
        };
        vec![above, below]
    }
}

impl Requantisation {
    fn apply(self, x: i64) -> i64 {
        let rounded = (x + ((1i64 << self.shift) >> 1)) >> self.shift;
        rounded.max(self.low.into()).min(self.high.into())
    }

    /// The piece at the new precision where it is inside the bounds; the values of the bounds are
    /// added to `sum` where it is not.
    fn piece(
        self,
        builder: &mut Builder,
        piece: Piece,
        value: impl Fn(i64) -> i64,
        sum: &mut Sum,
    ) -> Piece {
        let half = (1i64 << self.shift) >> 1;
        let word = builder.round_shift(&piece.word, self.shift);
        let (low, high) = (
            (piece.low + half) >> self.shift,
            (piece.high + half) >> self.shift,
        );
        let (least, most) = (i64::from(self.low), i64::from(self.high));
        let mut select = piece.select;
        let mut bound = |builder: &mut Builder, outside, bound| {
            let outside = builder.and(piece.select, outside);
            select = builder.xor(select, outside);
            add_multiple(sum, outside, value(bound));
        };
        // At a bound itself either side has the value, so the comparison is with the rounder of two
        // numbers.
        let (mut low, mut high) = (low, high);
        if high > most {
            let end = rounder(most, most + 1);
            let above = at_least_constant(builder, &word, end);
            bound(builder, above, most);
            high = end - 1;
        }
        if low < least {
            let start = rounder(least, least + 1);
            let not_below = at_least_constant(builder, &word, start);
            let below = builder.not(not_below);
            bound(builder, below, least);
            low = start;
        }
        let (low, high) = (low.clamp(least, most), high.clamp(least, most));
        let mut piece = Piece {
            select,
            word,
            low,
            high,
            whole: piece.whole && self.shift == 0,
            ..piece
        };
        piece.fit(builder);
        piece
    }
}

/// The one with more zeros at the end.
pub(crate) fn rounder(x: i64, y: i64) -> i64 {
    if x.trailing_zeros() > y.trailing_zeros() {
        x
    } else {
        y
    }
}

/// True if a shared value in `low..=high` is at least 0, as XOR shares of one bit: for protocols
/// that multiplex by oblivious transfer outside.
///
/// # Errors
/// [`CircuitError::Range`] where the modulus does not hold the values.
pub fn sign(input: Modulus, low: i64, high: i64) -> Result<Circuit, CircuitError> {
    let mut builder = Builder::new();
    let shared = builder.shared_input(input.narrowed(low, high), low, high)?;
    let negative = builder.is_negative(&shared);
    let positive = builder.not(negative);
    builder.output_shared(&[positive]);
    Ok(builder.finish())
}

/// The index of the first largest of `count` shared values in `low..=high`; the evaluator learns
/// it, and nothing else.
///
/// # Errors
/// [`CircuitError::Range`] where the modulus does not hold the values, [`CircuitError::Parameter`]
/// for no values.
pub fn argmax(input: Modulus, low: i64, high: i64, count: usize) -> Result<Circuit, CircuitError> {
    if !(1..=1 << 20).contains(&count) {
        return Err(CircuitError::Parameter {
            name: "values to choose from",
            value: count as i64,
            low: 1,
            high: 1 << 20,
        });
    }
    let mut builder = Builder::new();
    let mut words = Vec::with_capacity(count);
    for _ in 0..count {
        let shared = builder.shared_input(input.narrowed(low, high), low, high)?;
        words.push(builder.reconstruct(&shared, 0));
    }
    let (index, _) = builder.argmax_of(&words);
    builder.output_revealed(&index);
    Ok(builder.finish())
}
