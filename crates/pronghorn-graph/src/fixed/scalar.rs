//! The non-linear operators on one integer: the definitions every evaluator shares.
//! All wrap instead of overflowing; proven ranges are what keeps them from it.

/// `max(x, 0)`.
#[inline(always)]
pub fn relu(x: i32) -> i32 {
    x.max(0)
}

/// `min(max(x, low), high)`.
#[inline(always)]
pub fn clip(x: i32, low: i32, high: i32) -> i32 {
    x.max(low).min(high)
}

/// `x << shift` where `x >= 0`, else `x * slope`.
#[inline(always)]
pub fn leaky_relu(x: i32, slope: i32, shift: u32) -> i32 {
    let (above, below) = (x.wrapping_shl(shift), x.wrapping_mul(slope));
    if x >= 0 { above } else { below }
}

/// `x * x`.
#[inline(always)]
pub fn square(x: i32) -> i32 {
    x.wrapping_mul(x)
}

/// `clip((x + 2^(shift-1)) >> shift, low, high)`; `shift` is at most 31, and 0 only clips.
///
/// Computed as `(x >> shift) + bit (shift-1) of x`, which is the same and cannot overflow.
#[inline(always)]
pub fn requantise(x: i32, shift: u32, low: i32, high: i32) -> i32 {
    let half = if shift == 0 {
        0
    } else {
        x.wrapping_shr(shift - 1) & 1
    };
    clip(x.wrapping_shr(shift).wrapping_add(half), low, high)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn hand_values() {
        assert_eq!([-3, 0, 4].map(relu), [0, 0, 4]);
        assert_eq!([-3, 0, 4].map(|x| clip(x, -1, 2)), [-1, 0, 2]);
        assert_eq!([-3, 0, 4].map(|x| leaky_relu(x, 26, 8)), [-78, 0, 1024]);
        assert_eq!([-3, 46_340].map(square), [9, 2_147_395_600]);
        // Halves round up: 1.5 to 2, -1.5 to -1, -0.5 to 0, 0.5 to 1.
        assert_eq!(
            [3, -3, -1, 1].map(|x| requantise(x, 1, -9, 9)),
            [2, -1, 0, 1]
        );
        assert_eq!(
            [300, -300].map(|x| requantise(x, 0, -128, 127)),
            [127, -128]
        );
    }

    proptest! {
        #[test]
        fn requantise_is_its_definition(x: i32, shift in 0..=31u32, low in -300..0, high in 0..300) {
            let half = (1i64 << shift) >> 1;
            let wanted = ((i64::from(x) + half) >> shift).clamp(i64::from(low), i64::from(high));
            prop_assert_eq!(i64::from(requantise(x, shift, low, high)), wanted);
        }
    }
}
