//! Functions by a table: a rectifier, or nothing, and a summand that is looked up.
//!
//! Most smooth functions of networks are a ReLU and a small bump near zero. The bump takes few
//! entries of few bits. Tables depend on the function and on public scales, never on weights.

use serde::{Deserialize, Serialize};

use super::Interval;
use crate::shape::OperatorError;

/// Most entries of a table.
pub const MAX_ENTRIES: usize = 1 << 9;

/// `base(x) + entries[(x >> drop) - first]`, and `base(x)` alone where there is no such entry. The
/// shift is arithmetic.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Table {
    /// Whether the base is `max(x, 0)`; else it is 0.
    pub rectified: bool,
    /// Bits dropped for the index.
    pub drop: u32,
    /// The index of the first entry.
    pub first: i32,
    /// Summands: a power of two of them, at most [`MAX_ENTRIES`].
    pub entries: Vec<i32>,
}

impl Table {
    /// The value at `x`; wraps instead of overflowing.
    #[inline]
    pub fn at(&self, x: i32) -> i32 {
        let place = i64::from(x >> self.drop.min(31)) - i64::from(self.first);
        let entry = usize::try_from(place)
            .ok()
            .and_then(|place| self.entries.get(place));
        let base = if self.rectified { x.max(0) } else { 0 };
        base.wrapping_add(entry.copied().unwrap_or(0))
    }

    /// The integers whose values have an entry, in 64 bits.
    pub fn window(&self) -> Interval {
        let start = i64::from(self.first) << self.drop.min(31);
        let length = (self.entries.len() as i64) << self.drop.min(31);
        Interval {
            low: start,
            high: start + length - 1,
        }
    }

    /// The range of the value for `x` in a range: exact.
    ///
    /// # Errors
    /// The number of entries or the shift is not allowed.
    pub fn bounds(&self, x: Interval) -> Result<Interval, OperatorError> {
        self.check()?;
        let base = |x: i64| if self.rectified { x.max(0) } else { 0 };
        let window = self.window();
        let width = 1i64 << self.drop;
        let buckets = self.entries.iter().enumerate().map(|(place, &entry)| {
            let low = window.low + place as i64 * width;
            let high = low + width - 1;
            (Interval { low, high }, i64::from(entry))
        });
        let below = Interval {
            low: i64::MIN,
            high: window.low - 1,
        };
        let above = Interval {
            low: window.high + 1,
            high: i64::MAX,
        };
        let ranges = buckets.chain([(below, 0), (above, 0)]);
        let found = ranges.filter_map(|(part, entry)| {
            let part = Interval {
                low: part.low.max(x.low),
                high: part.high.min(x.high),
            };
            (part.low <= part.high).then(|| part.map(|x| base(x) + entry))
        });
        Ok(found.reduce(Interval::join).unwrap_or(x))
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
    fn bounds_are_exact() {
        for (rectified, drop, first) in [(true, 0, -2), (true, 2, -3), (false, 1, 1), (true, 1, -9)]
        {
            let table = table(rectified, drop, first, &[-7, 3, 1, -20]);
            for low in -14..14 {
                for high in low..14 {
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
        for first in [i32::MIN, i32::MAX] {
            let far = table(true, 31, first, &[i32::MAX; MAX_ENTRIES]);
            assert!(far.bounds(x).is_ok() && far.at(i32::MAX) == i32::MAX);
        }
        // Values beyond 32 bits are seen.
        assert_eq!(table(true, 31, 0, &[1]).bounds(x).unwrap().fit(), None);
    }
}
