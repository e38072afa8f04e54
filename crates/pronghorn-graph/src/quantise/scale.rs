//! Scales: how many fraction bits a range allows.

use crate::float::ValueProfile;

/// Most fraction bits of values and weights, for ranges that are next to zero.
pub(super) const MAX_FRACTION: i32 = 60;

/// Most fraction bits that a value of a plan may have, as products of others do.
pub(super) const MOST_FRACTION: i32 = 64;

/// Fraction bits of values that are always zero, which others are added to.
const ZERO_FRACTION: i32 = 30;

/// Words of at least so many bits saturate: a unit is a small part of their largest integer.
pub(super) const SATURATED_BITS: u32 = 8;

/// A range that saturates may end so far above the largest integer, which then stands for its end.
const ABOVE: f64 = 1.0 - 1.0 / 1024.0;

/// One that ends at a power of two ends this part of it below: it is that near to the largest
/// integer of [`SATURATED_BITS`] bits and more.
const BELOW: f64 = (1.0 - ABOVE) / (1u32 << SATURATED_BITS) as f64;

/// What was multiplied in single precision is so close to a power of two that it was to be.
const NEARLY: f64 = 1e-6;

/// A range of real numbers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Range {
    pub low: f64,
    pub high: f64,
    /// Whether the largest integer of some bits also stands for what lies less than a unit above
    /// it. So a range that ends at a power of two fits, as that of a clip does that was multiplied
    /// ([`crate::rescale::fill`]).
    pub saturates: bool,
}

/// The largest margin at the end that is nearer to zero: that of few samples. Rows of features have a larger one.
const MOST_ACROSS: f32 = 1.375;

impl Range {
    /// All numbers.
    pub(super) const ALL: Self = Self::new(f64::NEG_INFINITY, f64::INFINITY);

    /// The range with these ends.
    pub(super) const fn new(low: f64, high: f64) -> Self {
        Self {
            low,
            high,
            saturates: false,
        }
    }

    /// The integers next to its ends at a scale.
    pub(super) fn nearest(self) -> impl Fn(i32) -> (i32, i32) {
        move |fraction| {
            let scale = f64::from(fraction).exp2();
            let [low, high] = [self.low, self.high].map(|end| (end * scale).round() as i32);
            (low.min(high), high)
        }
    }

    /// The range of samples and of others like them, widened by a margin but never beyond zero
    /// where no sample was.
    pub(super) fn of(profile: &ValueProfile, margin: f32) -> Self {
        let (low, high) = (f64::from(profile.min), f64::from(profile.max));
        let away = f64::from(margin).max(profile.reach);
        let room = (away - 1.0) * low.abs().max(high.abs());
        Self {
            low: if low < 0.0 {
                low * away
            } else {
                (low - room).max(0.0)
            },
            high: if high > 0.0 {
                high * away
            } else {
                (high + room).min(0.0)
            },
            saturates: false,
        }
    }

    /// The range of a value that may have both signs: at the end nearer to zero as much room as at the
    /// other, since one small value of a sign tells little of others. Zero is an end of its own.
    pub(super) fn across(self, profile: &ValueProfile, margin: f32) -> Self {
        let (low, high) = (f64::from(profile.min), f64::from(profile.max));
        let size = (high - low).min(low.abs().max(high.abs()));
        let room = (f64::from(margin.min(MOST_ACROSS)) - 1.0) * size;
        Self {
            low: if low == 0.0 {
                self.low
            } else {
                self.low.min(low - room)
            },
            high: if high == 0.0 {
                self.high
            } else {
                self.high.max(high + room)
            },
            ..self
        }
    }

    /// The range, and zero.
    pub(super) fn with_zero(self) -> Self {
        Self {
            low: self.low.min(0.0),
            high: self.high.max(0.0),
            ..self
        }
    }

    /// The range, and one.
    pub(super) fn with_one(self) -> Self {
        Self {
            high: self.high.max(1.0),
            ..self
        }
    }

    /// The range, and what samples have.
    pub(super) fn and(self, profile: &ValueProfile) -> Self {
        Self {
            low: self.low.min(profile.min.into()),
            high: self.high.max(profile.max.into()),
            ..self
        }
    }

    /// The range, and another.
    pub(super) fn and_range(self, other: Self) -> Self {
        Self {
            low: self.low.min(other.low),
            high: self.high.max(other.high),
            ..self
        }
    }

    /// The part of the range that is in another.
    pub(super) fn within(self, other: Self) -> Self {
        let high = self.high.min(other.high).max(other.low);
        Self {
            low: self.low.max(other.low).min(high),
            high,
            ..self
        }
    }

    /// The range of samples that are not negative, wider by the same factor at both ends: by
    /// `room`, or by what [`of`](Self::of) has if that is more.
    pub(super) fn around(profile: &ValueProfile, margin: f32, room: f64) -> Self {
        let factor = f64::from(margin).max(profile.reach).max(room);
        Self {
            low: f64::from(profile.min).max(0.0) / factor,
            high: f64::from(profile.max).max(0.0) * factor,
            saturates: false,
        }
    }

    /// The part of the range between the bounds of a clip.
    pub(super) fn clipped(self, [min, max]: [Option<f32>; 2]) -> Self {
        let high = max.map_or(self.high, |max| self.high.min(max.into()));
        let low = min.map_or(self.low, |min| self.low.max(min.into()));
        Self {
            low: low.min(high),
            high,
            ..self
        }
    }

    /// The range of words that saturate. An end at a power of two is the end of words.
    pub(super) fn saturating(self) -> Self {
        let end = |end: f64| match nearly_power(end.abs()) {
            Some(power) => power.copysign(end) * (1.0 - BELOW),
            None => end,
        };
        Self {
            low: end(self.low),
            high: end(self.high),
            saturates: true,
        }
    }

    /// How far the range may end above the largest integer.
    fn above(self) -> f64 {
        if self.saturates { ABOVE } else { 0.0 }
    }

    /// The range of so many times the numbers.
    pub(super) fn times(self, factor: f64) -> Self {
        Self {
            low: self.low * factor,
            high: self.high * factor,
            ..self
        }
    }

    /// The largest magnitude.
    pub(super) fn reach(self) -> f64 {
        self.low.abs().max(self.high.abs())
    }

    /// Fraction bits with which it fits in `bits` bits, one of them for the sign if there is one.
    pub(super) fn fraction(self, bits: u32) -> i32 {
        let magnitude = if self.low >= 0.0 { bits } else { bits - 1 };
        fraction(
            self.reach(),
            f64::from((1u32 << magnitude) - 1) + self.above(),
        )
    }

    /// Fraction bits with which it fits in `bits` bits, one of them always for the sign.
    pub(super) fn signed_fraction(self, bits: u32) -> i32 {
        fraction(
            self.reach(),
            f64::from((1u32 << (bits - 1)) - 1) + self.above(),
        )
    }

    /// Its integers at a scale, rounded outwards.
    pub(super) fn integers(self, fraction: i32) -> (i32, i32) {
        let scale = f64::from(fraction).exp2();
        // Casts from float saturate, which is what a clamp beyond 32 bits means.
        (
            (self.low * scale).floor() as i32,
            (self.high * scale).ceil() as i32,
        )
    }

    /// Its integers at a scale, or powers of two around them where these cost less.
    pub(super) fn clamps(self, fraction: i32, costly: bool) -> (i32, i32) {
        let (low, high) = self.integers(fraction);
        if !costly {
            return (low, high);
        }
        let above = (self.high * f64::from(fraction).exp2() - self.above()).ceil() as i32;
        powers_of_two(low, if high > 0 { above.max(1) } else { high })
    }
}

/// The narrowest range around this one whose ends are `-2^i` or 0, and `2^j - 1` or `-2^j`.
pub(super) fn powers_of_two(low: i32, high: i32) -> (i32, i32) {
    let ones = |x: i32| u32::MAX.checked_shr(x.leading_zeros()).unwrap_or(0) as i32;
    let low = if low < 0 { !ones(!low) } else { 0 };
    let high = match high {
        1.. => ones(high),
        0 => 0,
        _ => -1 << high.unsigned_abs().ilog2(),
    };
    (low, high.max(low))
}

/// The same, where it has both signs of a whole word, `-2^i` and `2^i - 1`. A plan shows other ends
/// of the value than these are made from, and beyond a word's ends nothing has to be compared.
pub(super) fn word(low: i32, high: i32) -> (i32, i32) {
    match powers_of_two(low, high) {
        (low @ ..0, high @ 1..) => (low.min(!high), high.max(!low)),
        ends => ends,
    }
}

/// The power of two that a positive number nearly is.
pub(crate) fn nearly_power(number: f64) -> Option<f64> {
    let nearest = number.log2().round().exp2();
    ((number / nearest - 1.0).abs() < NEARLY).then_some(nearest)
}

/// The largest `f` with `reach * 2^f <= most`, up to [`MAX_FRACTION`]; 30 where all is zero.
pub(super) fn fraction(reach: f64, most: f64) -> i32 {
    match reach == 0.0 {
        true => ZERO_FRACTION,
        false => weight_fraction(reach, most),
    }
}

/// The same of weights, of which a row of zeros binds nothing.
pub(super) fn weight_fraction(reach: f64, most: f64) -> i32 {
    let guess = (most / reach).log2().floor();
    if guess >= f64::from(MAX_FRACTION) || reach == 0.0 {
        return MAX_FRACTION;
    }
    // The logarithm may be off by its last bit.
    let guess = guess as i32 + 1;
    let fits = |f: &i32| reach * f64::from(*f).exp2() <= most;
    (guess - 2..=guess).rev().find(fits).unwrap_or(guess - 2)
}

/// Mean square of what rounding to so many fraction bits does.
pub(super) fn rounding_error(fraction: i32) -> f64 {
    power(-2 * fraction) / 12.0
}

/// `2^exponent`, without a call of the library: a search for precisions has many.
pub(super) fn power(exponent: i32) -> f64 {
    let biased = exponent.clamp(-1022, 1023) + 1023;
    f64::from_bits((biased as u64) << 52)
}

/// `round(x * 2^fraction)`, halves away from zero, saturating.
pub(super) fn round(x: f32, fraction: i32) -> i32 {
    scaled(x, power(fraction))
}

/// `round(x * scale)` for a power of two, as [`round`] has it.
pub(super) fn scaled(x: f32, scale: f64) -> i32 {
    // The sum is exact where its fraction matters, as an `f32` has 24 bits.
    let scaled = f64::from(x) * scale;
    (scaled + 0.5f64.copysign(scaled)) as i32
}

#[cfg(test)]
mod tests {
    use super::*;

    fn saturating(low: f64, high: f64) -> Range {
        Range::new(low, high).saturating()
    }

    #[test]
    fn ranges_that_end_at_a_power_of_two_saturate() {
        for bits in 2..16 {
            for below in [1e-7, 0.0, -1e-7] {
                let end = saturating(0.0, 8.0 * (1.0 - below));
                // With few bits a unit would be much of it.
                let saturates = bits >= SATURATED_BITS;
                let fraction = bits as i32 - if saturates { 3 } else { 4 };
                assert_eq!(end.fraction(bits), fraction, "{bits} bits");
                let ones = (1 << bits) - 1;
                assert_eq!(end.clamps(fraction, true), (0, ones), "{bits} bits");
                let signed = saturating(-8.0 * (1.0 - below), 1.0);
                let saturates = bits > SATURATED_BITS;
                let fraction = bits as i32 - if saturates { 4 } else { 5 };
                assert_eq!(signed.fraction(bits), fraction, "{bits} bits");
            }
            // Above the power, and where nothing saturates, there is a bit more.
            assert_eq!(saturating(0.0, 8.001).fraction(bits), bits as i32 - 4);
            assert_eq!(Range::new(0.0, 8.0).fraction(bits), bits as i32 - 4);
        }
        assert_eq!(saturating(0.0, 2.0).clamps(0, true), (0, 3));
        let none = saturating(0.0, 0.0);
        assert_eq!(
            (none.low, none.high, none.fraction(8)),
            (0.0, 0.0, ZERO_FRACTION)
        );
    }

    #[test]
    fn bounds_of_clips_end_ranges() {
        let clipped = |low, high, min, max| Range::new(low, high).clipped([Some(min), Some(max)]);
        assert_eq!(clipped(-1.0, 7.5, 0.0, 6.0), Range::new(0.0, 6.0));
        assert_eq!(clipped(0.0, 3.0, 0.0, 6.0), Range::new(0.0, 3.0));
        let eight = clipped(-9.0, 9.0, -8.0, 8.0);
        assert_eq!(eight, Range::new(-8.0, 8.0));
        assert_eq!(eight.saturating().fraction(9), 5);
        assert_eq!(eight.saturating().clamps(5, true), (-256, 255));
    }

    #[test]
    fn fractions_are_the_largest_that_fit() {
        assert_eq!(Range::new(0.0, 1.0).fraction(8), 7);
        assert_eq!(Range::new(0.0, 255.0).fraction(8), 0);
        assert_eq!(Range::new(0.0, 255.5).fraction(8), -1);
        assert_eq!(Range::new(-1.0, 0.5).fraction(8), 6);
        assert_eq!(Range::new(-127.0, 3.0).fraction(8), 0);
        assert_eq!(Range::new(0.0, 3e9).fraction(2), -30);
        assert_eq!(Range::new(0.0, 0.0).fraction(8), ZERO_FRACTION);
        assert_eq!(Range::new(0.0, 1e-12).fraction(8), 47);
        assert_eq!(Range::new(0.0, 1e-30).fraction(8), MAX_FRACTION);
    }

    #[test]
    fn halves_round_away_from_zero() {
        let mut number = 0x9e37_79b9u32;
        for _ in 0..200_000 {
            number = number.wrapping_mul(0x85eb_ca6b).wrapping_add(0xc2b2_ae35);
            // Halves, their neighbours, and numbers of any exponent.
            let half = ((number >> 8) as i32 - (1 << 23)) as f32 / 2.0;
            for x in [
                half,
                half.next_up(),
                half.next_down(),
                f32::from_bits(number),
            ] {
                for fraction in [-40, -3, 0, 1, 14, 40] {
                    let wanted = (f64::from(x) * f64::from(fraction).exp2()).round() as i32;
                    assert_eq!(round(x, fraction), wanted, "{x} {fraction}");
                }
            }
        }
    }

    #[test]
    fn powers_of_two_enclose() {
        for (given, wanted) in [
            ((0, 376), (0, 511)),
            ((0, 511), (0, 511)),
            ((-1, 512), (-1, 1023)),
            ((-128, 1), (-128, 1)),
            ((-129, 0), (-256, 0)),
            ((3, 5), (0, 7)),
            ((-5, -3), (-8, -2)),
            ((-5, -4), (-8, -4)),
            ((i32::MIN, i32::MIN), (i32::MIN, i32::MIN)),
            ((i32::MIN, i32::MAX), (i32::MIN, i32::MAX)),
        ] {
            assert_eq!(powers_of_two(given.0, given.1), wanted);
        }
        for (given, wanted) in [
            ((-5, 3), (-8, 7)),
            ((-3, 9), (-16, 15)),
            ((0, 9), (0, 15)),
            ((-9, 0), (-16, 0)),
            ((i32::MIN, 1), (i32::MIN, i32::MAX)),
        ] {
            assert_eq!(word(given.0, given.1), wanted);
        }
    }

    #[test]
    fn margins_widen_and_keep_signs() {
        let profile = |min: f32, max: f32| ValueProfile {
            min,
            max,
            mean_square: 1.0,
            reach: 1.0,
        };
        assert_eq!(Range::of(&profile(-1.0, 2.0), 1.5), Range::new(-1.5, 3.0));
        assert_eq!(Range::of(&profile(1.0, 2.0), 1.0), Range::new(1.0, 2.0));
        assert_eq!(Range::of(&profile(1.0, 2.0), 1.25), Range::new(0.5, 2.5));
        assert_eq!(Range::of(&profile(-2.0, -1.0), 3.0), Range::new(-6.0, 0.0));
        assert_eq!(Range::of(&profile(0.0, 0.0), 3.0), Range::new(0.0, 0.0));
        let across = |min: f32, max: f32, margin: f32| {
            let profile = profile(min, max);
            Range::of(&profile, margin).across(&profile, margin)
        };
        assert_eq!(across(0.5, 4.5, 1.25), Range::new(-0.5, 5.625));
        assert_eq!(across(-4.5, -0.5, 1.25), Range::new(-5.625, 0.5));
        // Rows have a larger margin, and many samples next to none.
        assert_eq!(across(0.5, 4.5, 2.0), Range::new(-1.0, 9.0));
        assert_eq!(across(0.5, 4.5, 1.0), Range::new(0.5, 4.5));
        assert_eq!(across(0.0, 4.0, 1.25), Range::new(0.0, 5.0));
        assert_eq!(across(-1.0, 4.0, 1.25), Range::new(-2.0, 5.0));
        assert_eq!(across(-4.0, 0.5, 1.25), Range::new(-5.0, 1.5));
        assert_eq!(across(-4.0, 4.0, 1.25), Range::new(-5.0, 5.0));
    }
}
