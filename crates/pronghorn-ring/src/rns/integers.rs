//! Integers of any size, on their way into residues.

use zeroize::{ZeroizeOnDrop, optimization_barrier};

use super::{RnsBasis, simd};
use crate::random::Stream;
use crate::{Prime, SimdLevel, Word, sample, vector};

/// Signed integers cut into digits that are small against every prime of a basis:
/// `sum_i 2^(bits i) digit_i`, with digits in two's complement, plane after plane. Wiped on drop.
/// Everything is constant time but for the number of planes.
pub struct Integers<W: Word> {
    bits: u32,
    /// `[plane][n]`.
    digits: Vec<W>,
    n: usize,
}

impl<W: Word> Drop for Integers<W> {
    fn drop(&mut self) {
        wipe(&mut self.digits);
    }
}

impl<W: Word> ZeroizeOnDrop for Integers<W> {}

/// Uniform integers in one of [`Integers::sums_of_uniforms`].
const SUMMANDS: u32 = 4;

impl<W: Word> Integers<W> {
    /// Numbers rounded to the nearest integer, ties to even. `None` when one is not finite or not
    /// below `2^log_limit` in absolute value. The number of planes shows how many digits the
    /// largest takes.
    pub fn from_f64(basis: &RnsBasis<W>, values: &[f64], log_limit: f64) -> Option<Self> {
        let mut integers = vec![0.0; values.len()];
        let largest = simd::round_f64(SimdLevel::detect(), values, &mut integers);
        let fits = largest < log_limit.exp2();
        let cut = fits.then(|| {
            let bits = digit_bits(basis);
            let mut planes = 1;
            while largest >= 2f64.powi((bits * planes) as i32 - 1) {
                planes += 1;
            }
            let mut digits = vec![W::default(); planes as usize * values.len()];
            simd::cut_f64(SimdLevel::detect(), bits, &mut integers, &mut digits);
            Self::of_digits(basis, digits, values.len())
        });
        wipe(&mut integers);
        cut
    }

    /// Small integers; every prime of the basis must exceed 128.
    pub fn from_i8(basis: &RnsBasis<W>, values: &[i8]) -> Self {
        let mut digits = vec![W::default(); values.len()];
        simd::widen_i8(SimdLevel::detect(), values, &mut digits);
        Self::of_digits(basis, digits, values.len())
    }

    /// Any integers of 128 bits.
    pub fn from_i128(basis: &RnsBasis<W>, values: &[i128]) -> Self {
        let (bits, n) = (digit_bits(basis), values.len());
        let planes = (128 / bits + 1) as usize;
        let mut digits = vec![W::default(); planes * n];
        for (i, &value) in values.iter().enumerate() {
            let mut rest = value;
            for plane in 0..planes {
                // The last plane takes what is left, sign and all; the others are not negative.
                let last = plane + 1 == planes;
                let digit = if last { rest } else { rest & ((1 << bits) - 1) };
                digits[plane * n + i] = W::from_u64(digit as u64 & (u64::MAX >> (64 - W::BITS)));
                rest >>= bits;
            }
        }
        Self::of_digits(basis, digits, n)
    }

    /// Integers of 192 bits, in two's complement, least significant word first. The number of planes
    /// shows how many digits the largest takes.
    pub fn from_wide(basis: &RnsBasis<W>, values: &[[u64; 3]]) -> Self {
        let (bits, n) = (digit_bits(basis), values.len());
        // Bits of all absolute values, or one less.
        let used = values.iter().fold([0; 3], |used, value| {
            let sign = 0u64.wrapping_sub(value[2] >> 63);
            std::array::from_fn(|i| used[i] | value[i] ^ sign)
        });
        let used = (0..3).rev().find(|&i| used[i] != 0);
        let width = used.map_or(0, |i| 64 * i as u32 + 64);
        let planes = width / bits + 1;
        let mut digits = vec![W::default(); planes as usize * n];
        for (i, value) in values.iter().enumerate() {
            for plane in 0..planes {
                let digit = bits_of(value, plane * bits);
                // The last plane takes what is left, sign and all; the others are not negative.
                let mask = if plane + 1 == planes {
                    u64::MAX
                } else {
                    (1 << bits) - 1
                };
                let word = digit & mask & (u64::MAX >> (64 - W::BITS));
                digits[plane as usize * n + i] = W::from_u64(word);
            }
        }
        Self::of_digits(basis, digits, n)
    }

    /// `n` integers, each the sum of four independent ones that are uniform in
    /// `-2^(k - 2) .. 2^(k - 2)`, with `k = log_reach` (at least 2): almost normal with variance
    /// `2^2k / 12`, and within `-2^k .. 2^k`. One uniform after the other, reads
    /// `ceil((k - 1) / (b - 2))` planes of `n` words from the stream, least significant first, as
    /// [`sample::uniform_power_of_two`] does; `b` is one less than the bits of the smallest prime.
    pub fn sums_of_uniforms(
        basis: &RnsBasis<W>,
        log_reach: u32,
        n: usize,
        stream: &mut Stream,
    ) -> Self {
        // Digits of a summand are two bits shorter, so that those of the sum need no carry.
        let bits = digit_bits(basis) - SUMMANDS.ilog2();
        let width = log_reach.max(SUMMANDS.ilog2()) - SUMMANDS.ilog2() + 1;
        let planes = width.div_ceil(bits);
        let mut digits = vec![W::default(); planes as usize * n];
        let mut summand = vec![W::default(); n];
        for _ in 0..SUMMANDS {
            for (plane, digits) in (0..planes).zip(digits.chunks_exact_mut(n)) {
                let width = bits.min(width - plane * bits);
                sample::uniform_power_of_two(stream, width, &mut summand);
                if plane + 1 == planes {
                    simd::centre_power_of_two(SimdLevel::detect(), width, &mut summand);
                }
                let digits = digits.iter_mut().zip(&summand);
                digits.for_each(|(sum, &digit)| *sum = sum.wrapping_add(digit));
            }
        }
        wipe(&mut summand);
        Self { bits, digits, n }
    }

    fn of_digits(basis: &RnsBasis<W>, digits: Vec<W>, n: usize) -> Self {
        let bits = digit_bits(basis);
        Self { bits, digits, n }
    }

    /// The number there is.
    pub fn len(&self) -> usize {
        self.n
    }

    /// True if there are none.
    pub fn is_empty(&self) -> bool {
        self.n == 0
    }

    /// `out` = the integers modulo a prime of the basis they were made for; `room` is scratch
    /// space, to be wiped by the caller where the integers are secret.
    ///
    /// # Panics
    /// Unless `out` and `room` have as many words as there are integers.
    pub fn residues(&self, q: &Prime<W>, out: &mut [W], room: &mut [W]) {
        assert!(
            out.len() == self.n && room.len() == self.n,
            "a limb has a word for each integer"
        );
        let level = SimdLevel::detect();
        let radix = q.pow(W::from_u64(2), self.bits.into());
        let mut weight = radix;
        for (plane, digits) in self.digits.chunks_exact(self.n.max(1)).enumerate() {
            if plane == 0 {
                simd::residues(level, q, digits, out);
                continue;
            }
            simd::residues(level, q, digits, room);
            vector::mul_scalar_add_assign(q, out, room, weight);
            weight = q.mul(weight, radix);
        }
    }
}

/// 64 bits of a number in two's complement, from one on.
fn bits_of(value: &[u64; 3], from: u32) -> u64 {
    let sign = 0u64.wrapping_sub(value[2] >> 63);
    let word = |i: usize| value.get(i).copied().unwrap_or(sign);
    let (at, shift) = ((from / 64) as usize, from % 64);
    let all = u128::from(word(at + 1)) << 64 | u128::from(word(at));
    (all >> shift) as u64
}

fn wipe<T: Copy + Default>(values: &mut [T]) {
    values.fill(T::default());
    optimization_barrier(values);
}

/// Digits of this many bits are below every prime of the basis, and their negatives too.
fn digit_bits<W: Word>(basis: &RnsBasis<W>) -> u32 {
    let bits = basis.primes().map(Prime::bits);
    bits.min().map_or(1, |bits| bits - 1)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::random::{Prg, Seed};
    use crate::rns::primes;

    fn check<W: Word>(basis: &RnsBasis<W>, integers: &Integers<W>, expected: &[i128]) {
        let mut room = vec![W::default(); expected.len()];
        let mut out = room.clone();
        for q in basis.primes() {
            integers.residues(q, &mut out, &mut room);
            let modulus = i128::from(q.value());
            for (out, expected) in out.iter().zip(expected) {
                assert_eq!(
                    i128::from(out.to_u64()),
                    expected.rem_euclid(modulus),
                    "{expected} modulo {modulus}"
                );
            }
        }
    }

    fn bases() -> (RnsBasis<u32>, RnsBasis<u64>) {
        (
            RnsBasis::new(8, &primes(8, &[31, 18, 30]).unwrap()).unwrap(),
            RnsBasis::new(8, &primes(8, &[60, 45, 60]).unwrap()).unwrap(),
        )
    }

    proptest! {
        #[test]
        fn integers_have_their_residues(values in prop::collection::vec((any::<i128>(), 0u32..128), 1..20)) {
            let mut values: Vec<i128> = values.into_iter().map(|(value, shift)| value >> shift).collect();
            values.extend([0, -1, 1, i128::MIN, i128::MAX]);
            let (narrow, wide) = bases();
            check(&narrow, &Integers::from_i128(&narrow, &values), &values);
            check(&wide, &Integers::from_i128(&wide, &values), &values);
            let words: Vec<[u64; 3]> = values
                .iter()
                .map(|&x| [x as u64, (x >> 64) as u64, (x >> 127) as u64])
                .collect();
            check(&narrow, &Integers::from_wide(&narrow, &words), &values);
            check(&wide, &Integers::from_wide(&wide, &words), &values);
            let halves: Vec<f64> = values.iter().map(|&value| (value / 2) as f64).collect();
            let exact: Vec<i128> = halves.iter().map(|&value| value as i128).collect();
            check(&narrow, &Integers::from_f64(&narrow, &halves, 127.0).unwrap(), &exact);
            check(&wide, &Integers::from_f64(&wide, &halves, 127.0).unwrap(), &exact);
            let small: Vec<i8> = values.iter().map(|&value| value as i8).collect();
            let exact: Vec<i128> = small.iter().map(|&value| value.into()).collect();
            check(&narrow, &Integers::from_i8(&narrow, &small), &exact);
            check(&wide, &Integers::from_i8(&wide, &small), &exact);
        }
    }

    #[test]
    fn numbers_are_rounded_to_even_and_checked() {
        let (narrow, wide) = bases();
        let values = [0.5, 1.5, -2.5, 0.49, -1e30, 2f64.powi(100) * 1.25];
        let exact = [0, 2, -2, 0, -1e30 as i128, 5 << 98];
        check(
            &narrow,
            &Integers::from_f64(&narrow, &values, 110.0).unwrap(),
            &exact,
        );
        check(
            &wide,
            &Integers::from_f64(&wide, &values, 110.0).unwrap(),
            &exact,
        );
        assert!(Integers::from_f64(&wide, &values, 100.0).is_none());
        for bad in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
            for values in [[bad, 1.0], [1.0, bad]] {
                assert!(Integers::from_f64(&wide, &values, 1e9).is_none());
            }
        }
        assert!(Integers::from_f64(&wide, &[], 1.0).unwrap().is_empty());
    }

    /// The sums, in units of their reach.
    fn drawn<W: Word>(basis: &RnsBasis<W>, log_reach: u32, n: usize) -> Vec<f64> {
        let mut stream = Prg::new(&Seed::from_bytes([3; 32]), "pronghorn test integers")
            .stream(log_reach.into());
        let drawn = Integers::sums_of_uniforms(basis, log_reach, n, &mut stream);
        let radix = 2f64.powi(drawn.bits as i32);
        let value = |i: usize| {
            let digits = drawn.digits[i..].iter().step_by(n).rev();
            digits.fold(0.0, |value, digit| {
                let unused = 64 - W::BITS;
                value * radix + ((digit.to_u64() << unused) as i64 >> unused) as f64
            })
        };
        (0..n)
            .map(|i| value(i) / 2f64.powi(log_reach as i32))
            .collect()
    }

    /// The variance of four uniforms, and the distribution function of their sum at a quarter, a
    /// half and three quarters of the reach: 1/2 + 1/2 of Irwin and Hall's.
    fn sums_have_their_distribution<W: Word>(basis: &RnsBasis<W>, log_reach: u32) {
        let n = 4000;
        let values = drawn(basis, log_reach, n);
        assert!(values.iter().all(|value| (-1.0..1.0).contains(value)));
        let mean = values.iter().sum::<f64>() / n as f64;
        let square = values.iter().map(|value| value * value).sum::<f64>() / n as f64;
        // Five standard errors; the mean is two units below zero.
        assert!(
            (mean + 2.0 / 2f64.powi(log_reach as i32)).abs() < 0.023,
            "{log_reach}: {mean}"
        );
        assert!((square - 1.0 / 12.0).abs() < 0.009, "{log_reach}: {square}");
        for (border, expected) in [
            (0.25, 307.0 / 384.0),
            (0.5, 23.0 / 24.0),
            (0.75, 383.0 / 384.0),
        ] {
            let below = values.iter().filter(|&&value| value < border).count();
            let error = 5.0 * (expected * (1.0 - expected) / n as f64).sqrt();
            let found = below as f64 / n as f64;
            assert!(
                (found - expected).abs() < error,
                "{log_reach}: {border} {found}"
            );
        }
    }

    #[test]
    fn sums_of_uniforms_are_what_they_say() {
        let (narrow, wide) = bases();
        for log_reach in [8, 16, 17, 18, 30, 58, 59, 60, 100, 120] {
            sums_have_their_distribution(&narrow, log_reach);
            sums_have_their_distribution(&wide, log_reach);
        }
    }

    /// Every sum of four bits less two occurs as often as it should, and nothing else does.
    #[test]
    fn the_smallest_sums_are_binomial() {
        let (narrow, wide) = bases();
        let n = 16_000;
        for values in [drawn(&narrow, 2, n), drawn(&wide, 0, n)] {
            let unit = values.iter().map(|value| value.abs()).fold(0.0, f64::max) / 4.0;
            for (sum, ways) in [(-4, 1), (-3, 4), (-2, 6), (-1, 4), (0, 1)] {
                let count = values
                    .iter()
                    .filter(|&&value| value == f64::from(sum) * unit)
                    .count();
                assert!(count.abs_diff(1000 * ways) < 350, "{sum}: {count}");
            }
        }
    }

    /// Sums are those of their uniforms, integer by integer: residues are those of the sum.
    #[test]
    fn digits_of_sums_need_no_carry() {
        let (narrow, _) = bases();
        let (n, log_reach) = (100, 60);
        let stream = || Prg::new(&Seed::from_bytes([3; 32]), "pronghorn test sums").stream(0);
        let sums = Integers::sums_of_uniforms(&narrow, log_reach, n, &mut stream());
        let (mut stream, mut expected) = (stream(), vec![0i128; n]);
        // Primes of 18 bits leave digits of 15; a summand has 59 bits.
        for _ in 0..4 {
            let mut words = vec![0u32; n];
            for plane in 0..4 {
                let width = 15.min(59 - 15 * plane);
                sample::uniform_power_of_two(&mut stream, width, &mut words);
                for (sum, &word) in expected.iter_mut().zip(&words) {
                    let below = i128::from(plane == 3) << (width - 1);
                    *sum += (i128::from(word) - below) << (15 * plane);
                }
            }
        }
        check(&narrow, &sums, &expected);
    }
}
