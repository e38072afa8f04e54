//! The canonical embedding in double precision: real polynomials of degree `N` against `N/2`
//! complex slots.

pub(crate) mod exact;
mod simd;

use std::{f64::consts::PI, sync::OnceLock};

use pronghorn_ring::SimdLevel;

/// Evaluates a real polynomial `m` of `N` coefficients at `zeta^(5^j)`, `zeta = exp(i pi / N)`, for
/// slots `j < N/2` (the other half of the primitive `2N`-th roots are the conjugates), and back.
///
/// The powers of 5 are the exponents that are 1 modulo 4, and there `X^(N/2)` is `i`: so `m` is the
/// complex polynomial with coefficients `m_k + i m_(k + N/2)` modulo `X^(N/2) - i`. That splits
/// like the NTT: `X^(2l) - exp(i a)` into `X^l - exp(i a / 2)` and `X^l + exp(i a / 2)`, down to
/// linear factors, two levels at a time. No twist and no bit reversal is left over: the order of
/// the slots is one table.
///
/// Rounding errors are about `log2 N` units in the last place of the largest slot, and the same at
/// every SIMD level: nothing is fused or reordered. The time depends on `N` alone.
pub(crate) struct Embedding {
    /// `exp(i a / 2)` of node `t` of the tree, the root being node 1 and `2t`, `2t + 1` the
    /// children of `t`.
    roots: Complex,
    /// For each group of 8 slots, what its three last levels multiply by; see [`Tail`].
    tails: Tail,
    /// Place of slot `j` in the order of the tree's leaves.
    places: Vec<u32>,
    /// The roots in fixed point, made where they are needed.
    exact: OnceLock<exact::Roots>,
}

/// Real and imaginary parts.
struct Complex {
    re: Vec<f64>,
    im: Vec<f64>,
}

/// The factors of the three last levels in the order the loops over eight groups read them: those
/// of a node's second child are `i` times those of its first.
struct Tail {
    /// Of node `t`, for the `n/8` nodes of eight leaves.
    first: Complex,
    /// Of node `2t`.
    second: Complex,
    /// Of node `4t`.
    third: Complex,
    /// Of node `4t + 2`.
    fourth: Complex,
}

impl Embedding {
    /// Tables for polynomials of `n` coefficients, a power of two and at least 8.
    pub fn new(n: usize) -> Self {
        let slots = n / 2;
        let angles = angles(slots);
        let roots = |nodes: &mut dyn Iterator<Item = usize>| {
            let angles = nodes.map(|node| f64::from(angles[node]) / 2.0 * PI / n as f64);
            let (im, re) = angles.map(f64::sin_cos).unzip();
            Complex { re, im }
        };
        let groups = slots / 8;
        let tail = |factor: usize, offset: usize| {
            roots(&mut (groups..2 * groups).map(|t| factor * t + offset))
        };
        let mut leaf_of = vec![0; 2 * n];
        for leaf in 0..slots {
            leaf_of[angles[slots + leaf] as usize] = leaf as u32;
        }
        let mut power = 1;
        let mut places = Vec::with_capacity(slots);
        for _ in 0..slots {
            places.push(leaf_of[power]);
            power = power * 5 % (2 * n);
        }
        Self {
            roots: roots(&mut (0..slots)),
            tails: Tail {
                first: tail(1, 0),
                second: tail(2, 0),
                third: tail(4, 0),
                fourth: tail(4, 2),
            },
            places,
            exact: OnceLock::new(),
        }
    }

    /// The roots of [`exact`].
    fn exact_roots(&self) -> &exact::Roots {
        self.exact.get_or_init(|| {
            let slots = self.slots();
            let halves = angles(slots).into_iter().take(slots);
            exact::Roots::new(2 * slots, halves.map(|angle| angle as usize / 2))
        })
    }

    /// The number of slots.
    pub fn slots(&self) -> usize {
        self.places.len()
    }

    /// The coefficients of the polynomial with these slots times `scale`; slots beyond the ends of
    /// `re` and `im` are zero.
    ///
    /// # Panics
    /// Unless `re` and `im` are no longer than the slots and `coefficients` twice as long as they.
    pub fn to_coefficients(&self, re: &[f64], im: &[f64], scale: f64, coefficients: &mut [f64]) {
        let (x, y) = self.halves(coefficients);
        let factor = scale / self.slots() as f64;
        for (values, out) in [(re, &mut *x), (im, &mut *y)] {
            assert!(values.len() <= out.len(), "no more values than slots");
            out.fill(0.0);
            for (value, &place) in values.iter().zip(&self.places) {
                out[place as usize] = value * factor;
            }
        }
        simd::inverse(SimdLevel::detect(), &self.roots, &self.tails, x, y);
    }

    /// The slots of a polynomial, times `factor`; `coefficients` is scratch space afterwards.
    ///
    /// # Panics
    /// Unless `coefficients` is as long as all slots' parts, and `re` and `im` as long as the
    /// slots.
    pub fn to_slots(&self, coefficients: &mut [f64], factor: f64, re: &mut [f64], im: &mut [f64]) {
        let (x, y) = self.halves(coefficients);
        simd::forward(SimdLevel::detect(), &self.roots, &self.tails, x, y);
        for (values, out) in [(x, re), (y, im)] {
            assert_eq!(out.len(), values.len(), "a value for each slot");
            for (out, &place) in out.iter_mut().zip(&self.places) {
                *out = values[place as usize] * factor;
            }
        }
    }

    fn halves<'a>(&self, coefficients: &'a mut [f64]) -> (&'a mut [f64], &'a mut [f64]) {
        assert_eq!(
            coefficients.len(),
            2 * self.slots(),
            "a coefficient for each part of a slot"
        );
        coefficients.split_at_mut(self.slots())
    }
}

/// The angle of each node of the tree in units of pi / N; at a leaf it is the exponent of its root.
fn angles(slots: usize) -> Vec<u32> {
    let mut angles = vec![0; 2 * slots];
    angles[1] = slots as u32;
    for node in 1..slots {
        angles[2 * node] = angles[node] / 2;
        angles[2 * node + 1] = angles[node] / 2 + 2 * slots as u32;
    }
    angles
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `m` at `zeta^(5^j)`, term by term.
    fn evaluate(coefficients: &[f64], slot: usize) -> (f64, f64) {
        let n = coefficients.len();
        let exponent = (0..slot).fold(1, |power, _| power * 5 % (2 * n));
        let terms = coefficients.iter().enumerate().map(|(k, coefficient)| {
            let angle = PI * (k * exponent % (2 * n)) as f64 / n as f64;
            (coefficient * angle.cos(), coefficient * angle.sin())
        });
        terms.fold((0.0, 0.0), |sum, term| (sum.0 + term.0, sum.1 + term.1))
    }

    fn numbers(count: usize, mut state: u64) -> Vec<f64> {
        let mut next = || {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (state >> 40) as f64 / (1 << 23) as f64 - 1.0
        };
        (0..count).map(|_| next()).collect()
    }

    #[test]
    fn slots_are_values_at_the_powers_of_five() {
        for log_n in 3..=11 {
            let n = 1 << log_n;
            let embedding = Embedding::new(n);
            let coefficients = numbers(n, log_n);
            let (mut re, mut im) = (vec![0.0; n / 2], vec![0.0; n / 2]);
            embedding.to_slots(&mut coefficients.clone(), 1.0, &mut re, &mut im);
            for slot in (0..n / 2).step_by((n / 64).max(1)) {
                let (expected_re, expected_im) = evaluate(&coefficients, slot);
                assert!(
                    (re[slot] - expected_re).abs() < 1e-11,
                    "{n} {slot} {} {expected_re}",
                    re[slot]
                );
                assert!((im[slot] - expected_im).abs() < 1e-11, "{n} {slot}");
            }
        }
    }

    #[test]
    fn coefficients_come_back() {
        for log_n in 3..=16 {
            let n = 1usize << log_n;
            let embedding = Embedding::new(n);
            let coefficients = numbers(n, log_n as u64);
            let (mut re, mut im, mut back) = (vec![0.0; n / 2], vec![0.0; n / 2], vec![0.0; n]);
            embedding.to_slots(&mut coefficients.clone(), 2.0, &mut re, &mut im);
            embedding.to_coefficients(&re, &im, 0.5, &mut back);
            let worst = coefficients
                .iter()
                .zip(&back)
                .map(|(x, y)| (x - y).abs())
                .fold(0.0, f64::max);
            assert!(worst < 1e-14, "{n} {worst}");
        }
    }

    #[test]
    fn levels_agree_to_the_last_bit() {
        for log_n in 3..=13 {
            let n = 1usize << log_n;
            let embedding = Embedding::new(n);
            let numbers = numbers(n, log_n as u64);
            let run = |level, inverse: bool| {
                let mut x = numbers.clone();
                let (re, im) = x.split_at_mut(n / 2);
                let transform = if inverse {
                    simd::inverse
                } else {
                    simd::forward
                };
                transform(level, &embedding.roots, &embedding.tails, re, im);
                x
            };
            for level in SimdLevel::available() {
                for inverse in [false, true] {
                    assert!(
                        run(level, inverse) == run(SimdLevel::Portable, inverse),
                        "{n}, {level:?}"
                    );
                }
            }
        }
    }

    #[test]
    fn short_inputs_are_zero_filled() {
        let embedding = Embedding::new(64);
        let mut coefficients = vec![7.0; 64];
        embedding.to_coefficients(&[], &[], 1.0, &mut coefficients);
        assert_eq!(coefficients, [0.0; 64]);
        let (mut re, mut im) = (vec![0.0; 32], vec![0.0; 32]);
        embedding.to_coefficients(&[1.0, 2.0], &[0.0, 3.0, 4.0], 8.0, &mut coefficients);
        embedding.to_slots(&mut coefficients, 0.125, &mut re, &mut im);
        let rounded =
            |values: &[f64]| -> Vec<f64> { values.iter().map(|value| value.round()).collect() };
        assert_eq!(rounded(&re[..4]), [1.0, 2.0, 0.0, 0.0]);
        assert_eq!(rounded(&im[..4]), [0.0, 3.0, 4.0, 0.0]);
        assert!(
            re[2..]
                .iter()
                .chain(&im[3..])
                .all(|value| value.abs() < 1e-14)
        );
    }
}
