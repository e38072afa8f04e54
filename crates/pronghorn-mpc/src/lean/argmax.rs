//! The index of the largest of several values, the smallest of equal ones.
//!
//! Pairs of neighbours are compared in rounds, as in a knock-out tournament, and the larger value
//! of each goes on. Of the last few each is compared with each. Of a pair the second wins where it
//! is larger, so of equal values the one with the smaller index wins.
//!
//! * **No rounding.** Values `v` are shared as `2^g v + d` with `0 <= d <= W` and `2 W < 2^g`. Then
//!   `v_2 > v_1` where the difference is at least `W + 1`, and no bit is dropped for it.
//! * **Indices are bits.** The winner of a round's pair is known by its place within the values
//!   that came to the pair, a bit for each round so far. A product takes the bits of the winner,
//!   and the comparison itself is the next bit. Only at the end they become a number.
//! * **All at once.** Of `n` values, value `i` is the result where it beats all others. These are
//!   `n (n - 1) / 2` comparisons side by side, then products of `n - 1` bits.

use super::{
    activation::{Input, in_range},
    cascade::{Cascade, Source},
    gadgets::modulus_of_wraps,
    program::{Builder, Plane, Program, Word},
};
use crate::circuit::{CircuitError, Modulus, signed_width};

/// Most values.
pub const MOST_CLASSES: usize = 1 << 16;

/// Most values that are compared each with each.
pub const MOST_AT_ONCE: usize = 64;

/// Bits of a difference at least: with a carry into its sign, each comparison has a level.
const LEAST_BITS: u32 = 2;

impl Cascade {
    /// The index of the largest of `classes` values, shared modulo a power of two; the smallest
    /// index of equal values. Rounds of pairs leave at most `at_once` values, and of these each is
    /// compared with each.
    ///
    /// A comparison of `k` bits takes some `7 k` bits and `1.7 k` OTs, and `1 + log2(k / 3)`
    /// levels; a pair's selection `2 k + 2` bits more, and a level. Rounds of pairs have one
    /// comparison less than values. `n` values at once have `n (n - 1) / 2` of them, and `2 +
    /// log2(n)` levels.
    ///
    /// # Errors
    /// [`CircuitError::Range`] where a modulus does not hold the values' differences or the
    /// indices, and [`CircuitError::Parameter`] for numbers of values out of range, and for guard
    /// bits that do not hold twice the error.
    pub fn argmax(
        classes: usize,
        at_once: usize,
        input: Input,
        output: Modulus,
    ) -> Result<Self, CircuitError> {
        in_range(
            "the number of classes",
            classes as i64,
            2,
            MOST_CLASSES as i64,
        )?;
        in_range(
            "the values compared at once",
            at_once as i64,
            2,
            MOST_AT_ONCE as i64,
        )?;
        let most = classes as i64 - 1;
        if !output.holds(0, most) {
            return Err(output.range_error(0, most));
        }
        let values = Values::of(&input)?;
        let mut cascade = Self::new(classes);
        let words = (0..classes).map(Source::word).collect();
        let narrowed = cascade.push(values.narrowed(&input)?, words);
        let mut players: Vec<Player> = narrowed.map(Player::new).collect();
        while players.len() > at_once {
            players = values.round(&mut cascade, players);
        }
        let bits = values.each_with_each(&mut cascade, players);
        let number = number(cascade.levels(), bits.len(), output);
        cascade.push(number, bits);
        Ok(cascade)
    }
}

/// Bits that shares of values in `low..=high` need for [`Cascade::argmax`], guard bits not counted.
pub fn argmax_width(low: i64, high: i64) -> u32 {
    let most = high.saturating_sub(low);
    signed_width(-most.saturating_add(1), most).max(LEAST_BITS)
}

/// A value that is still in, by the numbers of its words.
struct Player {
    value: usize,
    /// Its place within the values that came to it, lowest bit first; a bit that is always 0 has no
    /// word.
    place: Vec<Option<usize>>,
}

impl Player {
    fn new(value: usize) -> Self {
        Self {
            value,
            place: Vec::new(),
        }
    }

    fn place(&self) -> impl Iterator<Item = Source> {
        self.place
            .iter()
            .map(|bit| Source::sum(bit.iter().copied().collect()))
    }
}

/// How values are compared: `2^g v + d`, `0 <= d <= spread`, modulo a power of two that holds their
/// differences.
struct Values {
    /// Guard bits that each party drops alone, before.
    floored: u32,
    spread: i64,
    modulus: Modulus,
}

impl Values {
    /// # Errors
    /// The guard bits do not hold the errors, or the modulus not the differences.
    fn of(input: &Input) -> Result<Self, CircuitError> {
        input.check()?;
        in_range("shares modulo a prime", input.prime.is_some().into(), 0, 0)?;
        let error = input.error as i64;
        in_range(
            "twice the reach of errors",
            4 * error,
            0,
            (1 << input.guard) - 1,
        )?;
        // A sum of floors is off by at most one unit.
        let spread = |dropped: u32| match dropped {
            0 => 2 * error,
            _ => ((2 * error) >> dropped) + 1,
        };
        let fits = |dropped: &u32| 2 * spread(*dropped) < 1 << (input.guard - dropped);
        let floored = (0..=input.guard).rev().find(fits).unwrap_or(0);
        let spread = spread(floored);
        let most = (input.high - input.low) << (input.guard - floored);
        let (low, high) = (-most - 2 * spread - 1, most + spread);
        let bits = signed_width(low, high).max(LEAST_BITS);
        let modulus = Modulus::power_of_two(input.bits)?;
        if bits + floored > input.bits {
            return Err(modulus.range_error(low << floored, high << floored));
        }
        Ok(Self {
            floored,
            spread,
            modulus: Modulus::power_of_two(bits)?,
        })
    }

    /// An input as it is compared. No message.
    fn narrowed(&self, input: &Input) -> Result<Program, CircuitError> {
        let mut builder = Builder::default();
        let modulus = Modulus::power_of_two(input.bits)?;
        let word = builder.input(modulus);
        let word = builder.sum(&[(word, 1)], input.error as i64, modulus);
        let word = match self.floored {
            0 => word,
            by => builder.shift(word, by, Modulus::power_of_two(input.bits - by)?),
        };
        let word = builder.sum(&[(word, 1)], 0, self.modulus);
        Ok(builder.finish(word))
    }

    /// Whether the second value is larger, and the difference.
    fn compare(&self, builder: &mut Builder, [first, second]: [Word; 2]) -> (Plane, Word) {
        let terms = [(second, 1), (first, -1)];
        let beyond = builder.sum(&terms, -self.spread - 1, self.modulus);
        let larger = builder.is_positive_above(beyond, 0, None);
        (larger, builder.sum(&terms, 0, self.modulus))
    }

    /// The winners of pairs. A value without a partner goes on.
    fn round(&self, cascade: &mut Cascade, players: Vec<Player>) -> Vec<Player> {
        let bits = players[0].place.len();
        let program = self.pair(cascade.levels(), bits);
        let mut pairs = players.chunks_exact(2);
        let inputs = |pair: &[Player]| {
            let values = pair.iter().map(|player| Source::word(player.value));
            let places = pair.iter().flat_map(Player::place);
            values.chain(places).collect::<Vec<_>>()
        };
        let results = cascade.push(program, pairs.by_ref().flat_map(inputs).collect());
        let results: Vec<usize> = results.collect();
        let winner = |results: &[usize]| Player {
            value: results[0],
            place: results[1..].iter().copied().map(Some).collect(),
        };
        let mut winners: Vec<Player> = results.chunks(2 + bits).map(winner).collect();
        winners.extend(pairs.remainder().iter().map(|player| Player {
            value: player.value,
            place: player.place.iter().copied().chain([None]).collect(),
        }));
        winners
    }

    /// The larger of two values, with the bits of its place and one more.
    fn pair(&self, start: usize, bits: usize) -> Program {
        let mut builder = Builder::behind(start);
        let values = [(); 2].map(|()| builder.input(self.modulus));
        let places = [(); 2].map(|()| inputs(&mut builder, bits));
        let (larger, difference) = self.compare(&mut builder, values);
        let above = builder.multiplex(larger, difference);
        let value = builder.sum(&[(values[0], 1), (above, 1)], 0, self.modulus);
        let [first, second] = &places;
        let changes: Vec<Plane> = (first.iter().zip(second))
            .map(|(&first, &second)| builder.xor(&[first, second]))
            .collect();
        let changes = builder.products(larger, &changes);
        let place: Vec<Plane> = (first.iter().zip(changes))
            .map(|(&first, change)| builder.xor(&[first, change]))
            .collect();
        let place = place.into_iter().chain([larger]);
        let place: Vec<Word> = place.map(|bit| word_of(&mut builder, bit)).collect();
        builder.finish_all([value].into_iter().chain(place).collect())
    }

    /// The bits of the largest value's index, of values compared each with each.
    fn each_with_each(&self, cascade: &mut Cascade, players: Vec<Player>) -> Vec<Source> {
        let (count, low) = (players.len(), players[0].place.len());
        let pairs: Vec<[usize; 2]> = (0..count)
            .flat_map(|second| (0..second).map(move |first| [first, second]))
            .collect();
        let values = pairs.iter().flatten();
        let values = values.map(|&player| Source::word(players[player].value));
        let larger = cascade
            .push(self.comparison(cascade.levels()), values.collect())
            .start;
        // Pairs are listed by the second, then by the first.
        let beats = |player: usize, other: usize| match other < player {
            true => Source::word(larger + player * (player - 1) / 2 + other),
            false => Source::not(larger + other * (other - 1) / 2 + player),
        };
        let inputs = |player: usize| {
            let others = (0..count).filter(move |&other| other != player);
            let beats = others.map(move |other| beats(player, other));
            beats.chain(players[player].place()).collect::<Vec<_>>()
        };
        let program = winner(cascade.levels(), count - 1, low);
        let results = cascade.push(program, (0..count).flat_map(inputs).collect());
        // By player: the bits of its place if it wins, and whether it does.
        let result = |player: usize, bit: usize| results.start + player * (low + 1) + bit;
        let places = (0..low).map(|bit| (0..count).map(|player| result(player, bit)).collect());
        let high = usize::BITS - (count - 1).leading_zeros();
        let numbers = (0..high).map(|bit| {
            let players = (0..count).filter(|player| player >> bit & 1 == 1);
            players.map(|player| result(player, low)).collect()
        });
        places.chain(numbers).map(Source::sum).collect()
    }

    /// Whether the second of two values is larger.
    fn comparison(&self, start: usize) -> Program {
        let mut builder = Builder::behind(start);
        let values = [(); 2].map(|()| builder.input(self.modulus));
        let (larger, _) = self.compare(&mut builder, values);
        let larger = word_of(&mut builder, larger);
        builder.finish(larger)
    }
}

/// Whether all of some bits are 1; and if so other bits, else 0, in front.
fn winner(start: usize, all: usize, others: usize) -> Program {
    let mut builder = Builder::behind(start);
    let all = inputs(&mut builder, all);
    let others = inputs(&mut builder, others);
    let wins = builder.all(&all);
    let kept = builder.products(wins, &others);
    let kept: Vec<Word> = (kept.into_iter().chain([wins]))
        .map(|bit| word_of(&mut builder, bit))
        .collect();
    builder.finish_all(kept)
}

/// The number of so many bits, lowest first.
fn number(start: usize, bits: usize, output: Modulus) -> Program {
    let mut builder = Builder::behind(start);
    let bits = inputs(&mut builder, bits);
    let terms: Vec<(Word, i64)> = (bits.into_iter().zip(0u32..))
        .map(|(bit, place)| {
            let modulus = modulus_of_wraps(output, place);
            (builder.number_of(bit, modulus), 1i64 << place)
        })
        .collect();
    let number = builder.sum(&terms, 0, output);
    builder.finish(number)
}

/// Bits that come as words modulo 2.
fn inputs(builder: &mut Builder, count: usize) -> Vec<Plane> {
    let bit = |_| {
        let word = builder.input(bit());
        builder.bit(word, 0)
    };
    (0..count).map(bit).collect()
}

/// A bit as a word modulo 2.
fn word_of(builder: &mut Builder, plane: Plane) -> Word {
    builder.number(plane, None, bit())
}

fn bit() -> Modulus {
    Modulus::power_of_two(1).expect("2 is a power of two")
}
