//! The promise of floods: a statistical distance, and the answers under one key that it holds for.

use std::fmt;

pub use pronghorn_he::flood::LEAST_BITS;
use serde::Serialize;

/// Most bits that an owner may ask for.
pub const MOST_BITS: u32 = 128;

/// What a key serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Unit {
    /// Images, each with answers of its own.
    Images,
    /// Batches, whose images share answers.
    Batches,
}

impl Unit {
    /// What one set of keys lasts for: seeds of keys for batches stay in no store.
    pub(crate) fn keys_last(self) -> &'static str {
        match self {
            Self::Images => "client and server",
            Self::Batches => "connection",
        }
    }
}

/// What one step takes of the promise.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Part {
    /// Bits of the distance.
    pub bits: u32,
    /// The part of the squared distance that one unit takes.
    pub part: f64,
    /// The unit.
    pub unit: Unit,
}

/// All answers under one key are within statistical distance `2^-bits` of what their values say,
/// for so many images or batches. Both parties draw and take new keys then.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Lifetime {
    /// Bits of the distance.
    pub bits: u32,
    /// Most images or batches under one key.
    pub count: u64,
    /// Images or batches.
    pub unit: Unit,
}

impl Lifetime {
    /// Of all steps: squared distances add. None without floods.
    pub fn of(parts: impl IntoIterator<Item = Part>) -> Option<Self> {
        let mut parts = parts.into_iter();
        let first = parts.next()?;
        let all = parts.fold(first, |all, other| Part {
            bits: all.bits.min(other.bits),
            part: all.part + other.part,
            unit: all.unit,
        });
        Some(Self {
            bits: all.bits,
            // Parts of a whole number come back as it, whatever doubles round.
            count: (1.0 / all.part * (1.0 + 1e-12)) as u64,
            unit: all.unit,
        })
    }
}

impl fmt::Display for Lifetime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let unit = match self.unit {
            Unit::Images => "images",
            Unit::Batches => "batches",
        };
        write!(f, "2^-{} over {} {unit} of a key", self.bits, self.count)
    }
}

/// Refuses a distance that protects too little or that no parameters carry.
///
/// # Errors
/// The reason.
pub fn check_bits(bits: u32) -> Result<(), String> {
    match (LEAST_BITS..=MOST_BITS).contains(&bits) {
        true => Ok(()),
        false => Err(format!(
            "a flood of {bits} bits is not one of {LEAST_BITS} to {MOST_BITS} bits"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn squared_distances_add() {
        let part = |bits, part| Part {
            bits,
            part,
            unit: Unit::Images,
        };
        assert_eq!(Lifetime::of([]), None);
        let one = Lifetime::of([part(40, 0.125)]).unwrap();
        assert_eq!(one.to_string(), "2^-40 over 8 images of a key");
        let both = Lifetime::of([part(50, 0.125), part(40, 0.25)]).unwrap();
        assert_eq!((both.bits, both.count), (40, 2));
    }

    #[test]
    fn bits_are_bounded() {
        assert!(check_bits(39).is_err() && check_bits(129).is_err());
        assert!(check_bits(40).is_ok() && check_bits(128).is_ok());
    }
}
