//! `X -> X^g` in the NTT domain, which moves slots around.

use pronghorn_ring::Word;

/// The automorphism `X -> X^g` of degree `n` in the NTT domain: value `i` of the result is value
/// `table[i]`, as it only permutes the roots.
pub(crate) struct Automorphism {
    table: Vec<u32>,
}

impl Automorphism {
    /// For an odd `element` below `2n`.
    pub fn new(n: usize, element: u32) -> Self {
        let shift = u32::BITS - n.trailing_zeros();
        let reversed = |i: u32| i.reverse_bits() >> shift;
        // Value i stands for the root to the power of 2 r + 1, r being i with its bits reversed.
        let power = |i: u32| (2 * u64::from(reversed(i)) + 1) * u64::from(element) % (2 * n as u64);
        let table = (0..n as u32)
            .map(|i| reversed((power(i) / 2) as u32))
            .collect();
        Self { table }
    }

    /// `out` = the image of `x`, one limb.
    pub fn apply<W: Word>(&self, x: &[W], out: &mut [W]) {
        assert!(
            x.len() == self.table.len() && out.len() == x.len(),
            "a limb has as many words as the degree"
        );
        for (out, &from) in out.iter_mut().zip(&self.table) {
            *out = x[from as usize];
        }
    }
}

/// The element that rotates slots to the left by `steps` (to the right for negative ones):
/// `5^steps mod 2n`.
pub(crate) fn rotation_element(n: usize, steps: i64) -> u32 {
    let turns = steps.rem_euclid(n as i64 / 2);
    (0..turns).fold(1, |power, _| power * 5 % (2 * n as u64)) as u32
}

/// The element that conjugates every slot: `-1 mod 2n`.
pub(crate) fn conjugation_element(n: usize) -> u32 {
    2 * n as u32 - 1
}

/// The inverse of an odd element modulo `2n`.
pub(crate) fn inverse_element(n: usize, element: u32) -> u32 {
    // The odd residues modulo 2n have exponent n / 2 at most: x^(n/2 - 1) inverts, for n >= 8.
    let modulus = 2 * n as u64;
    let (mut power, mut square, mut exponent) = (1, u64::from(element), n / 2 - 1);
    while exponent > 0 {
        if exponent & 1 == 1 {
            power = power * square % modulus;
        }
        square = square * square % modulus;
        exponent >>= 1;
    }
    power as u32
}

#[cfg(test)]
mod tests {
    use pronghorn_ring::{Ntt, Prime, modulus::largest_ntt_prime};

    use super::*;

    #[test]
    fn permutes_as_coefficients_do() {
        let n = 64;
        let q = Prime::<u32>::new(largest_ntt_prime(20, n).unwrap()).unwrap();
        let ntt = Ntt::new(n, q).unwrap();
        let x: Vec<u32> = (0..n as u32).map(|i| i * i * 37 + 5).collect();
        for element in [1, 3, 5, 25, 127, 77] {
            let mut expected = vec![0; n];
            for (i, &coefficient) in x.iter().enumerate() {
                let place = i * element as usize % (2 * n);
                expected[place % n] = if place < n {
                    coefficient
                } else {
                    q.neg(coefficient)
                };
            }
            ntt.forward(&mut expected);
            let (mut values, mut found) = (x.clone(), vec![0; n]);
            ntt.forward(&mut values);
            Automorphism::new(n, element).apply(&values, &mut found);
            assert_eq!(found, expected, "{element}");
        }
    }

    #[test]
    fn elements_are_what_they_are() {
        assert_eq!(rotation_element(8, 0), 1);
        assert_eq!(rotation_element(8, 1), 5);
        assert_eq!(rotation_element(8, -1), 13);
        assert_eq!(rotation_element(8, 6), 9);
        assert_eq!(conjugation_element(8), 15);
        for n in [8, 1024, 65_536] {
            for element in [1, 5, 2 * n as u32 - 1, 77 % (2 * n as u32)] {
                let inverse = inverse_element(n, element);
                assert_eq!(u64::from(element) * u64::from(inverse) % (2 * n as u64), 1);
            }
        }
    }
}
