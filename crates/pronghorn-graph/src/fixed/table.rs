//! Functions by a table: a rectifier, or nothing, and a summand that is looked up.
//!
//! Most smooth functions of networks are a ReLU and a small bump near zero. The bump takes few
//! entries of few bits, or linear pieces. Tables depend on the function and on public scales, never
//! on weights.

mod cost;
mod encoding;

use pronghorn_ring::SimdLevel;
use serde::{Deserialize, Serialize};
use zeroize::Zeroize;

use super::Interval;
use crate::{shape::OperatorError, simd};

/// Most entries of a table.
pub const MAX_ENTRIES: usize = 1 << 9;

/// Most bits below the index that have a step.
pub const MAX_FINE: u32 = 12;

/// Values whose steps are added together.
const BLOCK: usize = 64;

/// `base(x) + entries[i]` with `i = (x >> drop) - first`, and `base(x)` alone where there is no
/// such entry. The shift is arithmetic.
///
/// With linear pieces, the `fine` bits of `x` right below the index add a step each where they are
/// set: bit `j` of them adds `round(rises[i] 2^j / 2^fine)`, halves rounded up. So each bit has a
/// constant of its own, which circuits multiply cheaply.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(into = "encoding::Encoded", try_from = "encoding::Encoded")]
pub struct Table {
    /// Whether the base is `max(x, 0)`; else it is 0.
    pub rectified: bool,
    /// Bits dropped for the index.
    pub drop: u32,
    /// The index of the first entry.
    pub first: i32,
    /// Summands: a power of two of them, at most [`MAX_ENTRIES`].
    pub entries: Vec<i32>,
    /// Bits below the index that have a step: 0 for constants, at most [`MAX_FINE`] and `drop`.
    pub fine: u32,
    /// The rise from each entry to the next argument without it, `2^drop` on; none where `fine` is
    /// 0.
    pub rises: Vec<i32>,
}

impl Table {
    /// The value at `x`; wraps instead of overflowing.
    #[inline]
    pub fn at(&self, x: i32) -> i32 {
        self.value(x.into()) as i32
    }

    /// [`Table::at`] on every word. Which bits of a word are set decides no branch.
    pub fn apply(&self, words: &mut [i32]) {
        self.apply_at(SimdLevel::detect(), words);
    }

    fn apply_at(&self, level: SimdLevel, words: &mut [i32]) {
        let fine = self.fine.min(MAX_FINE);
        let below = self.drop.min(31).saturating_sub(fine);
        let (mut rises, mut rests) = ([0i32; BLOCK], [0i32; BLOCK]);
        for words in words.chunks_mut(BLOCK) {
            for (word, (rise, rest)) in words.iter_mut().zip(rises.iter_mut().zip(&mut rests)) {
                let x = *word;
                let place = self.place(x.into());
                let at = |list: &[i32]| place.and_then(|place| list.get(place)).map_or(0, |&at| at);
                (*rise, *rest) = (at(&self.rises), x >> below);
                let base = if self.rectified { x.max(0) } else { 0 };
                *word = base.wrapping_add(at(&self.entries));
            }
            simd::add_steps(level, words, &rises, &rests, fine);
        }
        // They tell words.
        rises.zeroize();
        rests.zeroize();
    }

    /// The value at `x`, in 64 bits.
    #[inline]
    fn value(&self, x: i64) -> i64 {
        let base = if self.rectified { x.max(0) } else { 0 };
        base + self.summand(x)
    }

    /// What is added to the base.
    #[inline]
    pub(crate) fn summand(&self, x: i64) -> i64 {
        let Some(place) = self.place(x) else {
            return 0;
        };
        let entry = i64::from(self.entries[place]);
        if self.fine == 0 {
            return entry;
        }
        entry + self.steps(place, x)
    }

    /// The entry of an argument.
    #[inline]
    fn place(&self, x: i64) -> Option<usize> {
        let place = usize::try_from((x >> self.drop.min(31)) - i64::from(self.first));
        place.ok().filter(|&place| place < self.entries.len())
    }

    /// The steps of the argument's fine bits.
    fn steps(&self, place: usize, x: i64) -> i64 {
        let fine = self.fine.min(MAX_FINE);
        let rest = x >> self.drop.min(31).saturating_sub(fine);
        let set = (0..fine).filter(|bit| rest >> bit & 1 == 1);
        set.map(|bit| self.step(place, bit)).sum()
    }

    /// The summand of an entry's fine bit, where the bit is set.
    #[inline]
    fn step(&self, place: usize, bit: u32) -> i64 {
        let rise = self.rises.get(place).copied().unwrap_or(0);
        Self::step_of(rise, bit, self.fine.min(MAX_FINE))
    }

    /// `round(rise 2^bit / 2^fine)`, halves rounded up.
    #[inline]
    pub(crate) fn step_of(rise: i32, bit: u32, fine: u32) -> i64 {
        ((i64::from(rise) << bit) + ((1i64 << fine) >> 1)) >> fine
    }

    /// The first argument of an entry.
    fn start(&self, place: usize) -> i64 {
        (i64::from(self.first) + place as i64) << self.drop.min(31)
    }

    /// The integers whose values have an entry, in 64 bits.
    pub fn window(&self) -> Interval {
        Interval {
            low: self.start(0),
            high: self.start(self.entries.len()) - 1,
        }
    }

    /// The range of the value for `x` in a range: exact.
    ///
    /// # Errors
    /// The number of entries or rises, the shift or the fine bits are not allowed.
    pub fn bounds(&self, x: Interval) -> Result<Interval, OperatorError> {
        self.check()?;
        Ok(self.bounds_within(x))
    }

    /// The range of the value of a table that is allowed.
    pub(crate) fn bounds_within(&self, x: Interval) -> Interval {
        // The base rises, so that its ends in each part with one summand are enough, and with
        // steps those arguments of whole blocks that take all bits that rise, or all that fall.
        let starts = (0..=self.entries.len()).map(|place| self.start(place));
        let ends = starts.flat_map(|start| [start - 1, start]);
        let steps = self.blocks_within(x);
        let steps = steps.flat_map(|(start, bits)| self.extremes(start, bits));
        let arguments = ends.chain(steps);
        let inside = arguments.filter(|at| (x.low..=x.high).contains(at));
        let values = inside.chain([x.low, x.high]).map(|at| self.value(at));
        let none = Interval {
            low: i64::MAX,
            high: i64::MIN,
        };
        values.fold(none, |range, value| Interval {
            low: range.low.min(value),
            high: range.high.max(value),
        })
    }

    /// Blocks of `2^bits` arguments from a multiple of that: those of all entries, and at least
    /// those that a range has of cut ones, its ends aside. None without steps.
    fn blocks_within(&self, x: Interval) -> impl Iterator<Item = (i64, u32)> + '_ {
        let whole = (0..self.rises.len()).map(|place| (self.start(place), self.drop));
        let cut = if self.fine == 0 { 0 } else { self.drop };
        let beside = move |end: i64| (0..cut).map(move |bits| ((end >> bits ^ 1) << bits, bits));
        whole.chain([x.low, x.high].into_iter().flat_map(beside))
    }

    /// The arguments of a block with the least and the largest value.
    fn extremes(&self, start: i64, bits: u32) -> [i64; 2] {
        let place = self.place(start);
        let mut ends = [start; 2];
        for bit in 0..bits {
            let step = match (place, (bit + self.fine).checked_sub(self.drop)) {
                (Some(place), Some(fine)) => self.step(place, fine),
                _ => 0,
            };
            let base = i64::from(self.rectified && start >= 0) << bit;
            ends[usize::from(base + step > 0)] |= 1 << bit;
        }
        ends
    }

    fn check(&self) -> Result<(), OperatorError> {
        let count = self.entries.len();
        if !count.is_power_of_two() || count > MAX_ENTRIES {
            let expected = format!("a power of two, at most {MAX_ENTRIES}");
            return Err(OperatorError::parameter(
                "the number of entries",
                count,
                expected,
            ));
        }
        if self.drop > 31 {
            return Err(OperatorError::parameter("drop", self.drop, "at most 31"));
        }
        let most = self.drop.min(MAX_FINE);
        if self.fine > most {
            let expected = format!("at most {most}");
            return Err(OperatorError::parameter("fine bits", self.fine, expected));
        }
        let rises = if self.fine == 0 { 0 } else { count };
        if self.rises.len() != rises {
            let name = "the number of rises";
            return Err(OperatorError::parameter(
                name,
                self.rises.len(),
                rises.to_string(),
            ));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(rectified: bool, drop: u32, first: i32, entries: &[i32]) -> Table {
        Table {
            rectified,
            drop,
            first,
            entries: entries.into(),
            fine: 0,
            rises: Vec::new(),
        }
    }

    #[test]
    fn hand_values() {
        let bump = table(true, 1, -1, &[-3, 2]);
        let values = [-3, -2, -1, 0, 1, 2, 9].map(|x| bump.at(x));
        assert_eq!(values, [0, -3, -3, 2, 3, 2, 9]);
        let plain = table(false, 0, -2, &[5, 6, 7, 8]);
        assert_eq!(
            [-3, -2, -1, 0, 1, 2].map(|x| plain.at(x)),
            [0, 5, 6, 7, 8, 0]
        );
        assert_eq!(table(true, 0, i32::MAX, &[1]).at(i32::MAX), i32::MIN);
        assert_eq!(table(false, 31, -1, &[4]).at(i32::MIN), 4);
    }

    #[test]
    fn hand_values_of_pieces() {
        let pieces = Table {
            fine: 2,
            rises: vec![7, -6],
            ..table(false, 3, -1, &[10, 20])
        };
        // Steps of 7 are 2 and 4, those of -6 are -1 (from -1.5) and -3.
        let values = [-9, -8, -7, -6, -4, -2, -1, 0, 2, 4, 6, 7, 8].map(|x| pieces.at(x));
        assert_eq!(values, [0, 10, 10, 12, 14, 16, 16, 20, 19, 17, 16, 16, 0]);
        let far = Table {
            fine: 1,
            rises: vec![i32::MAX],
            ..table(true, 31, 0, &[i32::MAX])
        };
        assert_eq!(far.at(i32::MAX), (1 << 30) - 2);
    }

    /// At every level, on parts of blocks, too.
    #[test]
    fn all_words_at_once() {
        let far = Table {
            fine: 12,
            rises: vec![i32::MIN, i32::MAX, -5, 1000],
            ..table(true, 13, -2, &[7, i32::MIN, i32::MAX, -1])
        };
        let steep = Table {
            fine: 3,
            rises: vec![-77],
            ..table(false, 31, 0, &[3])
        };
        let words = [i32::MIN, -16_385, -16_384, -1, 0, 1, 8191, 8192, i32::MAX];
        let more = (0..200).map(|at: i32| at.wrapping_mul(0x9E37_79B9u32 as i32) >> (at % 19));
        let words: Vec<i32> = words.into_iter().chain(more).collect();
        for table in [far, steep, table(true, 4, -1, &[-3, 2])] {
            let expected: Vec<i32> = words.iter().map(|&x| table.at(x)).collect();
            for level in SimdLevel::available() {
                let mut found = words.clone();
                table.apply_at(level, &mut found);
                assert_eq!(found, expected, "{level:?}");
            }
        }
    }

    #[test]
    fn encodings_are_canonical() {
        let constants = table(true, 1, -1, &[-3, 2]);
        let pieces = Table {
            fine: 1,
            rises: vec![3, -4],
            ..constants.clone()
        };
        for table in [constants, pieces] {
            let text = serde_json::to_string(&table).unwrap();
            assert_eq!(serde_json::from_str::<Table>(&text).unwrap(), table);
            let constant = text.replace("\"fine\":1", "\"fine\":0");
            let refused = serde_json::from_str::<Table>(&constant).is_err();
            assert_eq!(refused, table.fine > 0, "{constant}");
        }
    }

    #[test]
    fn bounds_are_exact() {
        for (rectified, drop, first, fine, rises) in [
            (true, 0, -2, 0, [0; 4]),
            (true, 2, -3, 0, [0; 4]),
            (false, 1, 1, 0, [0; 4]),
            (true, 1, -9, 0, [0; 4]),
            (true, 1, -2, 1, [9, -8, 3, -5]),
            (true, 2, -2, 2, [9, -8, 3, -5]),
            (false, 2, -1, 2, [-6, 5, 20, -17]),
            (false, 3, -2, 2, [-6, 5, 20, -17]),
            (true, 3, -1, 3, [-9, -12, 7, -31]),
        ] {
            let table = Table {
                fine,
                rises: rises[..if fine == 0 { 0 } else { 4 }].into(),
                ..table(rectified, drop, first, &[-7, 3, 1, -20])
            };
            for low in -20..30 {
                for high in low..30 {
                    let found = table.bounds(Interval { low, high }).unwrap();
                    let values = (low..=high).map(|x| i64::from(table.at(x as i32)));
                    let wanted = Interval {
                        low: values.clone().min().unwrap(),
                        high: values.max().unwrap(),
                    };
                    assert_eq!(found, wanted, "{table:?} {low}..={high}");
                }
            }
        }
    }

    #[test]
    fn hostile_tables_are_refused() {
        let x = Interval {
            low: i32::MIN.into(),
            high: i32::MAX.into(),
        };
        for entries in [&[][..], &[1, 2, 3], &[0; 2 * MAX_ENTRIES]] {
            assert!(table(true, 0, 0, entries).bounds(x).is_err());
        }
        assert!(table(true, 32, 0, &[1]).bounds(x).is_err());
        let pieces = |drop, fine, rises: &[i32]| Table {
            fine,
            rises: rises.into(),
            ..table(true, drop, 0, &[1, 2])
        };
        assert!(pieces(2, 2, &[i32::MIN, i32::MAX]).bounds(x).is_ok());
        for (drop, fine, rises) in [
            (2, 3, &[1, 2][..]),
            (31, MAX_FINE + 1, &[1, 2]),
            (2, u32::MAX, &[1, 2]),
            (u32::MAX, 1, &[1, 2]),
            (2, 1, &[]),
            (2, 1, &[1]),
            (2, 1, &[1, 2, 3]),
            (2, 0, &[1, 2]),
        ] {
            let refused = pieces(drop, fine, rises);
            assert!(refused.bounds(x).is_err());
            // No panic before the check either.
            refused.at(i32::MAX);
        }
        for first in [i32::MIN, i32::MAX] {
            let far = table(true, 31, first, &[i32::MAX; MAX_ENTRIES]);
            assert!(far.bounds(x).is_ok() && far.at(i32::MAX) == i32::MAX);
        }
        // Values beyond 32 bits are seen.
        assert_eq!(table(true, 31, 0, &[1]).bounds(x).unwrap().fit(), None);
    }
}
