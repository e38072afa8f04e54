//! Loops over words, compiled at every SIMD level from one plain body.
#![allow(unsafe_code)] // calls of #[target_feature] functions after run-time detection

use pronghorn_ring::{Prime, Word, vectorised};

vectorised! {
    /// `x[i] += w mod q`.
    pub fn add_word<W: Word>(q: &Prime<W>, x: &mut [W], w: W) {
        for x in x {
            *x = q.add(*x, w);
        }
    }
}

vectorised! {
    /// `x[i] += x[i] mod q`.
    pub fn double<W: Word>(q: &Prime<W>, x: &mut [W]) {
        for x in x {
            *x = q.add(*x, *x);
        }
    }
}

vectorised! {
    /// The largest word; zero for none.
    pub fn largest<W: Word>(x: &[W]) -> W {
        x.iter().fold(W::default(), |largest, &x| largest.max(x))
    }
}

vectorised! {
    /// `x[i]` centred, plus `offset`, which makes it positive: what [`digit`] reads. `offset + q`
    /// fits a word.
    pub fn lift<W: Word>(q: &Prime<W>, offset: W, x: &mut [W]) {
        let (q, half) = (q.word(), q.word() >> 1);
        for x in x {
            let above = if *x > half { q } else { W::default() };
            *x = x.wrapping_add(offset).wrapping_sub(above);
        }
    }
}

vectorised! {
    /// `out[i] = ((x[i] >> shift) & mask) - half mod q`, for `half` and the masked digits up to
    /// `q / 2` and `q`.
    pub fn digit<W: Word>(q: &Prime<W>, shift: u32, mask: W, half: W, x: &[W], out: &mut [W]) {
        let minus_half = q.neg(half);
        for (out, &x) in out.iter_mut().zip(x) {
            *out = q.add((x >> shift) & mask, minus_half);
        }
    }
}

#[cfg(test)]
mod tests {
    use pronghorn_ring::SimdLevel;

    use super::*;

    fn every_loop<W: Word>(prime: u64) {
        let q = Prime::<W>::new(prime).unwrap();
        for count in [0, 1, 7, 100] {
            let x: Vec<W> = (0..count)
                .map(|i: u64| W::from_u64(i.wrapping_mul(0x9e37_79b9_7f4a_7c15) % prime))
                .collect();
            let w = W::from_u64(prime - 2);
            let sums: Vec<W> = x.iter().map(|&x| q.add(x, w)).collect();
            let doubles: Vec<W> = x.iter().map(|&x| q.add(x, x)).collect();
            for level in SimdLevel::available() {
                let mut out = x.clone();
                add_word(level, &q, &mut out, w);
                assert_eq!(out, sums, "{level:?}");
                out.copy_from_slice(&x);
                double(level, &q, &mut out);
                assert_eq!(out, doubles, "{level:?}");
                assert_eq!(
                    largest(level, &x),
                    x.iter().copied().max().unwrap_or_default()
                );
            }
        }
    }

    #[test]
    fn every_level_agrees_with_scalars() {
        every_loop::<u32>(2_147_483_647);
        every_loop::<u64>((1 << 61) - 1);
    }

    fn digits_add_up<W: Word>(prime: u64, other: u64, bits: u32) {
        let (q, p) = (
            Prime::<W>::new(prime).unwrap(),
            Prime::<W>::new(other).unwrap(),
        );
        let mut x: Vec<W> = (0..100u64)
            .map(|i| W::from_u64(i.wrapping_mul(0x9e37_79b9_7f4a_7c15) % prime))
            .collect();
        x.extend([0, 1, prime / 2, prime / 2 + 1, prime - 1].map(W::from_u64));
        let shifts: Vec<u32> = (0..q.bits()).step_by(bits as usize).collect();
        let widths: Vec<u32> = shifts
            .iter()
            .map(|shift| bits.min(q.bits() - shift))
            .collect();
        let offset = shifts
            .iter()
            .zip(&widths)
            .map(|(shift, width)| 1u64 << (shift + width - 1))
            .sum();
        for level in SimdLevel::available() {
            let mut lifted = x.clone();
            lift(level, &q, W::from_u64(offset), &mut lifted);
            let mut sums = vec![0i128; x.len()];
            for (place, (&shift, &width)) in shifts.iter().zip(&widths).enumerate() {
                let mask = if place + 1 == shifts.len() {
                    u64::MAX >> (64 - W::BITS)
                } else {
                    (1 << width) - 1
                };
                let mut out = vec![W::default(); x.len()];
                let half = W::from_u64(1 << (width - 1));
                digit(level, &p, shift, W::from_u64(mask), half, &lifted, &mut out);
                for (sum, &digit) in sums.iter_mut().zip(&out) {
                    let digit = p.centre(digit);
                    assert!(digit.unsigned_abs() <= 1 << (width - 1));
                    *sum += i128::from(digit) << shift;
                }
            }
            let expected: Vec<i128> = x.iter().map(|&x| q.centre(x).into()).collect();
            assert_eq!(sums, expected, "{prime} by {bits}, {level:?}");
        }
    }

    #[test]
    fn every_level_cuts_into_digits_that_add_up() {
        for bits in [1, 4, 15, 16, 17] {
            digits_add_up::<u32>(2_147_483_647, 1_073_741_827, bits);
            digits_add_up::<u32>(65_537, 2_147_483_647, bits.min(12));
        }
        for bits in [1, 9, 17, 25, 31] {
            digits_add_up::<u64>((1 << 61) - 1, (1 << 50) - 27, bits);
            digits_add_up::<u64>((1 << 50) - 27, (1 << 62) - 57, bits);
        }
    }
}
