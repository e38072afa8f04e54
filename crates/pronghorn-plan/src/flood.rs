//! The promise of floods: a statistical distance, and the answers under one key that it holds for.

use std::fmt;

pub use pronghorn_he::flood::LEAST_BITS;
use serde::Serialize;

/// Most bits that an owner may ask for.
pub const MOST_BITS: u32 = 128;

/// All answers under one key are within statistical distance `2^-bits` of what their values say, for
/// so many batches. Both parties count, and take new keys then.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Lifetime {
    /// Bits of the distance.
    pub bits: u32,
    /// Most batches under one key.
    pub count: u64,
}

impl fmt::Display for Lifetime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "2^-{} over {} batches of a key", self.bits, self.count)
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
    fn bits_are_bounded() {
        assert!(check_bits(39).is_err() && check_bits(129).is_err());
        assert!(check_bits(40).is_ok() && check_bits(128).is_ok());
    }
}
