//! The inverse embedding in fixed point, for slots that must be zero to the last bit.
//!
//! In doubles the transform leaves `2^-50` of the largest slot in all others. Where these meet
//! values that nobody may learn, that is too much. Here a number has 256 bits in two's complement,
//! 64 of them after the point, and a root has 192 bits after the point.
//!
//! # Error
//!
//! Let `M` be the sum of the absolute values of all slots' parts over their number, scale included:
//! no value of any level is larger. A level adds two products to a number. Each is cut at `2^-64`,
//! and its root is wrong by less than `2^-191` (the table's own arithmetic is below `2^-238`). All
//! later levels, `L` in all, double what came before. With the slots cut at `2^-64`, too, a
//! coefficient is wrong by less than
//!
//! ```text
//! 2^(L+2) 2^-64 + 2 L M 2^-191  <=  2^-46 + 2^-6.9,   M < 2^179, L <= 15.
//! ```
//!
//! So with the rounding to integers it is within [`ERROR`] of the exact one. Below `M = 2^160` the
//! rounding is all there is.
//!
//! No branch and no address depends on a slot.

use super::Embedding;
use crate::wipe::wipe;

/// Most that a coefficient differs from the exact one.
pub(crate) const ERROR: f64 = 0.51;
/// `log2` of the limit on the sum of the absolute values of all parts of slots.
pub(crate) const LOG_LIMIT: f64 = 179.0;

/// Bits after the point.
const FRACTION: i32 = 64;

/// Two's complement, least significant word first.
pub(crate) type Wide = [u64; 4];

/// A part of a root of unity: 192 bits after the point, and the sign. Public.
#[derive(Clone, Copy)]
struct Part {
    magnitude: [u64; 3],
    is_negative: bool,
}

/// `exp(i pi k / N)`.
#[derive(Clone, Copy)]
struct Root {
    re: Part,
    im: Part,
}

/// By node of the tree of [`Embedding`]; node 0 is nobody's.
pub(super) struct Roots(Vec<Root>);

impl Roots {
    /// Of nodes with these angles in units of `pi / N`. None is a multiple of `pi / 2`.
    pub fn new(n: usize, angles: impl Iterator<Item = usize>) -> Self {
        let quadrant = quadrant(n);
        let part = |magnitude: Wide, is_negative| Part {
            magnitude: [magnitude[1], magnitude[2], magnitude[3]],
            is_negative,
        };
        let root = |angle: usize| {
            let is_second = angle >= n / 2;
            let place = if is_second { n - angle } else { angle };
            // The angle of node 0, which no level reads, has no place.
            let (cos, sin) = quadrant[place % (n / 2)];
            Root {
                re: part(cos, is_second),
                im: part(sin, false),
            }
        };
        Self(angles.map(root).collect())
    }
}

/// Cosine and sine of `pi k / N` below a right angle, as 256 bits after the point. Place 0 has the
/// sine alone right.
fn quadrant(n: usize) -> Vec<(Wide, Wide)> {
    let (cos, sin) = first(n);
    let mut all = vec![([u64::MAX; 4], [0; 4]), (cos, sin)];
    for k in 2..n / 2 {
        let (x, y) = all[k - 1];
        let re = subtract(high(x, cos), high(y, sin));
        all.push((re, add(high(x, sin), high(y, cos))));
    }
    all
}

/// `pi / 4`, as 256 bits after the point.
const QUARTER_PI: Wide = [
    0x020b_bea6_3b13_9b22,
    0x2902_4e08_8a67_cc74,
    0xc4c6_628b_80dc_1cd1,
    0xc90f_daa2_2168_c234,
];

/// Cosine and sine of `pi / N` by their series.
fn first(n: usize) -> (Wide, Wide) {
    let shift = (n / 4).trailing_zeros();
    let mut angle = [0; 4];
    for (i, word) in angle.iter_mut().enumerate() {
        let above = QUARTER_PI.get(i + 1).copied().unwrap_or(0);
        let carried = above.checked_shl(64 - shift).unwrap_or(0);
        *word = QUARTER_PI[i] >> shift | carried;
    }
    // 1 is not below 1: the cosine begins with its complement.
    let (mut sums, mut term) = ([[0; 4], angle], angle);
    for k in 2..60u64 {
        term = quotient(high(term, angle), k);
        let sum = &mut sums[k as usize % 2];
        // 1 - cos = x^2/2 - x^4/24 + ..., sin = x - x^3/6 + ...
        let grows = matches!(k % 4, 1 | 2);
        *sum = if grows {
            add(*sum, term)
        } else {
            subtract(*sum, term)
        };
    }
    (subtract([0; 4], sums[0]), sums[1])
}

fn quotient(x: Wide, divisor: u64) -> Wide {
    let (mut out, mut rest) = ([0; 4], 0u128);
    for i in (0..4).rev() {
        let value = rest << 64 | u128::from(x[i]);
        out[i] = (value / u128::from(divisor)) as u64;
        rest = value % u128::from(divisor);
    }
    out
}

/// The upper half of a product of numbers without signs.
fn high(x: Wide, y: Wide) -> Wide {
    let product = product::<4, 8>(x, y);
    [product[4], product[5], product[6], product[7]]
}

#[inline(always)]
fn product<const N: usize, const ALL: usize>(x: Wide, y: [u64; N]) -> [u64; ALL] {
    let mut out = [0; ALL];
    for (j, &y) in y.iter().enumerate() {
        let mut carry = 0u64;
        for (i, &x) in x.iter().enumerate() {
            let sum = u128::from(x) * u128::from(y) + u128::from(out[i + j]) + u128::from(carry);
            out[i + j] = sum as u64;
            carry = (sum >> 64) as u64;
        }
        out[j + 4] = carry;
    }
    out
}

#[inline(always)]
fn add(x: Wide, y: Wide) -> Wide {
    let (mut out, mut carry) = ([0; 4], false);
    for i in 0..4 {
        (out[i], carry) = carrying(x[i], y[i], carry);
    }
    out
}

#[inline(always)]
fn subtract(x: Wide, y: Wide) -> Wide {
    let (mut out, mut carry) = ([0; 4], true);
    for i in 0..4 {
        (out[i], carry) = carrying(x[i], !y[i], carry);
    }
    out
}

#[inline(always)]
fn carrying(x: u64, y: u64, carry: bool) -> (u64, bool) {
    let (sum, first) = x.overflowing_add(y);
    let (sum, second) = sum.overflowing_add(carry.into());
    (sum, first | second)
}

/// `x` times a magnitude, cut to the bits that `x` has.
#[inline(always)]
fn times(x: Wide, magnitude: [u64; 3]) -> Wide {
    let product: [u64; 7] = product(x, magnitude);
    let found = [product[3], product[4], product[5], product[6]];
    // A negative number was taken for 2^256 more.
    let sign = ((x[3] as i64) >> 63) as u64;
    let [low, middle, upper] = magnitude.map(|word| word & sign);
    subtract(found, [0, low, middle, upper])
}

/// `x a + y b`, for public signs.
#[inline(always)]
fn combine(x: Wide, a: &Part, y: Wide, b: &Part, minus: bool) -> Wide {
    let (first, second) = (times(x, a.magnitude), times(y, b.magnitude));
    match (a.is_negative, b.is_negative ^ minus) {
        (false, false) => add(first, second),
        (false, true) => subtract(first, second),
        (true, false) => subtract(second, first),
        (true, true) => subtract([0; 4], add(first, second)),
    }
}

/// A double cut at `2^-64`, below `2^190` in absolute value.
fn of_f64(x: f64) -> Wide {
    let bits = x.to_bits();
    let exponent = (bits >> 52 & 0x7ff) as i32;
    let implicit = u64::from(exponent != 0) << 52;
    let mantissa = bits & ((1 << 52) - 1) | implicit;
    let shift = exponent.max(1) - 1075 + FRACTION;
    let mut out = [0; 4];
    for (i, out) in out.iter_mut().enumerate() {
        let shift = shift - 64 * i as i32;
        let mask = |is: bool| 0u64.wrapping_sub(is.into());
        let left = mantissa.wrapping_shl(shift as u32) & mask((0..64).contains(&shift));
        let right = mantissa.wrapping_shr(shift.wrapping_neg() as u32);
        *out = left | right & mask((-63..0).contains(&shift));
    }
    let sign = 0u64.wrapping_sub(bits >> 63);
    // The complement and one, where it is negative.
    let flipped = out.map(|word| word ^ sign);
    add(flipped, [sign & 1, 0, 0, 0])
}

/// The nearest integer, in 192 bits.
fn rounded(x: Wide) -> [u64; 3] {
    let x = add(x, [1 << 63, 0, 0, 0]);
    [x[1], x[2], x[3]]
}

impl Embedding {
    /// The integers nearest to the coefficients of the polynomial with these slots times `scale`,
    /// within [`ERROR`] of the exact ones: two's complement of 192 bits, least significant word
    /// first. Slots beyond the end of `values` are zero. `None` where the sum of all slots is not
    /// below `2^`[`LOG_LIMIT`], or one is not finite.
    ///
    /// `values[j] * scale` is rounded to a double, and exact from there on.
    ///
    /// # Panics
    /// When there are more values than slots.
    pub fn to_exact_coefficients(&self, values: &[f64], scale: f64) -> Option<Vec<[u64; 3]>> {
        let slots = self.slots();
        assert!(values.len() <= slots, "no more values than slots");
        let factor = scale / slots as f64;
        let sum: f64 = values.iter().map(|value| (value * factor).abs()).sum();
        // Not so for values that are no numbers.
        let fits = sum < LOG_LIMIT.exp2();
        if !fits {
            return None;
        }
        let (mut re, mut im) = (vec![[0; 4]; slots], vec![[0; 4]; slots]);
        for (value, &place) in values.iter().zip(&self.places) {
            re[place as usize] = of_f64(value * factor);
        }
        self.exact_inverse(&mut re, &mut im);
        let out = re.iter().chain(&im).map(|&x| rounded(x)).collect();
        wipe(&mut re);
        wipe(&mut im);
        Some(out)
    }

    /// From leaves to coefficients, level by level: `u + v`, `(u - v) / w`.
    fn exact_inverse(&self, re: &mut [Wide], im: &mut [Wide]) {
        let roots = self.exact_roots();
        let mut nodes = re.len();
        while nodes > 1 {
            nodes /= 2;
            let block = re.len() / nodes;
            let halves = re.chunks_exact_mut(block).zip(im.chunks_exact_mut(block));
            for (node, (re, im)) in halves.enumerate() {
                let root = roots.0[nodes + node];
                let (u_re, v_re) = re.split_at_mut(block / 2);
                let (u_im, v_im) = im.split_at_mut(block / 2);
                for (((u_re, u_im), v_re), v_im) in u_re.iter_mut().zip(u_im).zip(v_re).zip(v_im) {
                    let (x, y) = (subtract(*u_re, *v_re), subtract(*u_im, *v_im));
                    *u_re = add(*u_re, *v_re);
                    *u_im = add(*u_im, *v_im);
                    *v_re = combine(x, &root.re, y, &root.im, false);
                    *v_im = combine(y, &root.re, x, &root.im, true);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of a number below `2^127`.
    fn small(x: [u64; 3]) -> i128 {
        (u128::from(x[1]) << 64 | u128::from(x[0])) as i128
    }

    #[test]
    fn roots_are_known() {
        let quadrant = quadrant(16);
        // Cosine and sine of pi / 16 and 3 pi / 16, by arithmetic of 600 bits (mpmath).
        let known = [
            (
                1,
                [
                    0xc5f4_0e3f_d8f1_8ae1,
                    0x2172_a361_fd2a_722e,
                    0xfb14_be7f_bae5_8156,
                ],
                [
                    0xf394_e58d_1297_2f1d,
                    0x9732_3003_93f3_3613,
                    0x31f1_7078_d34c_156c,
                ],
            ),
            (
                3,
                [
                    0xb469_1d2f_99ec_9eaa,
                    0xf630_e8b6_dac8_3e68,
                    0xd4db_3148_750d_1819,
                ],
                [
                    0x7ca7_d749_adfb_a33e,
                    0xbba4_cfec_bff5_4867,
                    0x8e39_d9cd_7346_4364,
                ],
            ),
        ];
        for (k, cos, sin) in known {
            let (x, y) = quadrant[k];
            assert_eq!([x[1], x[2], x[3]], cos, "{k}");
            assert_eq!([y[1], y[2], y[3]], sin, "{k}");
        }
        // The longest table: its end is the complement of its beginning.
        let n = 1 << 16;
        let long = super::quadrant(n);
        for k in [1, 2, 77, n / 4 - 1] {
            let (found, wanted) = (long[n / 2 - k].0, long[k].1);
            let gap = subtract(found, wanted);
            let gap = if gap[3] >> 63 == 1 {
                subtract([0; 4], gap)
            } else {
                gap
            };
            assert!(gap[1..] == [0; 3] && gap[0] < 1 << 20, "{k}: {gap:x?}");
        }
    }

    #[test]
    fn doubles_are_taken_exactly() {
        let wide = |x: f64| of_f64(x);
        assert_eq!(wide(1.0), [0, 1, 0, 0]);
        assert_eq!(wide(-0.5), [1 << 63, u64::MAX, u64::MAX, u64::MAX]);
        assert_eq!(wide(2f64.powi(-64)), [1, 0, 0, 0]);
        assert_eq!(wide(2f64.powi(-65)), [0; 4]);
        assert_eq!(wide(0.0), [0; 4]);
        assert_eq!(wide(f64::from_bits(1)), [0; 4]);
        assert_eq!(wide(1.5 * 2f64.powi(127)), [0, 0, 0xc000_0000_0000_0000, 0]);
        assert_eq!(wide(1.5 * 2f64.powi(128)), [0, 0, 1 << 63, 1]);
        assert_eq!(wide(-(2f64.powi(150) + 2f64.powi(100))), {
            let plus = [0, 0, 1 << 36, 1 << 22];
            subtract([0; 4], plus)
        });
        for x in [0.1, -0.1, 1e-3, 123456.789, -3e10] {
            let back = wide(x);
            let signed = (u128::from(back[1]) << 64 | u128::from(back[0])) as i128;
            assert_eq!(signed as f64 / 2f64.powi(64), x);
        }
    }

    #[test]
    fn signed_products() {
        let half = [0, 0, 1 << 63];
        for x in [0.0, 3.0, -3.0, 1e30, -1e30, -0.25] {
            assert_eq!(times(of_f64(x), half), of_f64(x / 2.0), "{x}");
        }
    }

    /// By arithmetic of 600 bits (mpmath): slots at `2^112`, of which two are zero.
    #[test]
    fn coefficients_are_known() {
        let values = [0.5, -1.25, 0.0, 3.0, 0.1, 0.0, -7.625, 1e-3];
        let half: [i128; 9] = [
            -3_423_021_703_989_085_110_492_339_204_259_840,
            2_387_802_580_953_709_385_100_258_361_439_575,
            5_987_819_321_242_644_545_319_549_367_039_855,
            -2_117_632_488_777_951_694_742_812_207_435_802,
            -4_027_644_625_508_132_156_350_208_793_629_624,
            2_191_763_217_041_447_866_769_662_072_165_464,
            -506_145_527_109_719_774_521_946_298_715_639,
            -6_559_132_516_686_315_970_786_475_009_599_254,
            0,
        ];
        let embedding = Embedding::new(16);
        let found = embedding.to_exact_coefficients(&values, 2f64.powi(112));
        let found: Vec<i128> = found.expect("small").into_iter().map(small).collect();
        assert_eq!(found[..9], half);
        // Real slots: the other half are the negatives, backwards.
        let others: Vec<i128> = half[1..8].iter().rev().map(|x| -x).collect();
        assert_eq!(found[9..], others);
    }

    /// Integers at a slot, with the roots of the table, in 256 bits: `log2` of the absolute value.
    fn log_at(coefficients: &[[u64; 3]], slot: usize) -> f64 {
        let n = coefficients.len();
        let exponent = (0..slot).fold(1, |power, _| power * 5 % (2 * n));
        let quadrant = quadrant(n);
        let parts = [0, n / 2].map(|quarter| {
            let mut sum = [0; 4];
            for (k, &[low, middle, upper]) in coefficients.iter().enumerate() {
                // cos of (angle - quarter), which for a quarter turn is the sine.
                let angle = (k * exponent + 2 * n - quarter) % (2 * n);
                let angle = angle.min(2 * n - angle);
                let (place, minus) = (angle.min(n - angle), angle > n / 2);
                let x = [0, low, middle, upper];
                let term = match place {
                    0 => x,
                    place if 2 * place == n => continue,
                    place => {
                        let [_, cos @ ..] = quadrant[place].0;
                        times(x, cos)
                    }
                };
                sum = if minus {
                    subtract(sum, term)
                } else {
                    add(sum, term)
                };
            }
            let sum = if sum[3] >> 63 == 1 {
                subtract([0; 4], sum)
            } else {
                sum
            };
            sum.iter()
                .rev()
                .fold(0.0, |all, &word| all * 2f64.powi(64) + word as f64)
                / 2f64.powi(64)
        });
        parts[0].hypot(parts[1]).log2()
    }

    /// Slots that should be zero are, but for the rounding to integers. In doubles they hold what is
    /// left of the others.
    #[test]
    fn zeros_stay_zero() {
        let (n, scale) = (1 << 12, 2f64.powi(118));
        let embedding = Embedding::new(n);
        let value = |j: usize| {
            if j % 4 == 1 {
                (j as f64 * 0.618).sin() * 100.0
            } else {
                0.0
            }
        };
        let values: Vec<f64> = (0..n / 2).map(value).collect();
        let found = embedding
            .to_exact_coefficients(&values, scale)
            .expect("small");
        let mut doubles = vec![0.0; n];
        embedding.to_coefficients(&values, &[], scale, &mut doubles);
        let doubles: Vec<[u64; 3]> = doubles.iter().map(|&x| rounded(of_f64(x))).collect();
        // N roundings of half a unit, at worst all in one direction.
        let most = (n as f64 * ERROR).log2();
        let mut worst = f64::NEG_INFINITY;
        for slot in [0, 2, 3, 500, n / 2 - 1] {
            let (exact, rough) = (log_at(&found, slot), log_at(&doubles, slot));
            worst = worst.max(exact);
            assert!(exact < most, "{slot}: 2^{exact} of 2^{most}");
            assert!(rough > most + 40.0, "{slot}: 2^{rough}");
        }
        // About sqrt(N / 12): the bound is not for nothing.
        assert!(worst > 3.0, "{worst}");
        let kept = log_at(&found, 5);
        assert!((kept - (value(5).abs() * scale).log2()).abs() < 1e-12);
    }

    #[test]
    fn doubles_agree() {
        for log_n in 3..=15 {
            let n = 1usize << log_n;
            let embedding = Embedding::new(n);
            let values: Vec<f64> = (0..n / 2).map(|j| (j as f64 * 1.7).cos()).collect();
            let mut doubles = vec![0.0; n];
            embedding.to_coefficients(&values, &[], 2f64.powi(30), &mut doubles);
            let found = embedding.to_exact_coefficients(&values, 2f64.powi(30));
            for (found, double) in found.expect("small").into_iter().zip(doubles) {
                assert!((small(found) as f64 - double).abs() < 0.501, "{n}");
            }
        }
    }

    #[test]
    fn large_values_are_refused() {
        let embedding = Embedding::new(64);
        let refused =
            |values: &[f64], scale| embedding.to_exact_coefficients(values, scale).is_none();
        assert!(refused(&[f64::NAN], 1.0));
        assert!(refused(&[f64::INFINITY], 1.0));
        assert!(refused(&[1.0; 32], 2f64.powi(179)));
        assert!(!refused(&[0.9; 32], 2f64.powi(179)));
    }
}
