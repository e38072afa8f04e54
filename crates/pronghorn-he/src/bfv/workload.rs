//! Parameters with room for a workload.
//!
//! Answers are [masked](super::Hider) modulo `Q`, and shares add up only where the noise is 2^52 or
//! more times below `Q / 2t`. At `N = 4096` ePrint 2024/463 leaves 106 bits for `Q` and special
//! primes together. A special prime of `p` bits makes the noise of a key switch `2^p` times smaller
//! than digits without one, and the room `2^p` times smaller too. After a product with a plaintext a
//! key switch may be as noisy as the product, `2^24` to `2^27`, which digits of 17 to 25 bits are:
//! so special primes, which cost the room and would buy nothing, are left out at 106 bits, and all
//! of them are `Q`. Before a product the noise of a switch is multiplied as the fresh one is, and
//! digits must be small: there the transforms of many small digits at `N = 4096` cost more than a
//! special prime at `N = 8192`.
//!
//! Chains that [`Parameters::for_workload`] picks for one answer (primes, then special primes or
//! bits of a digit), and the bits of the modulus that are left over; products have coefficients up
//! to `t / 2`, and their sums are of `2^10`. `tests/bfv.rs` keeps this table true:
//!
//! | workload | bits of `t` | N = 4096 | N = 8192 |
//! |---|---|---|---|
//! | products, no rotations | 17 | 50+50, digits of 25, 1.7 left | 50+50, special 50, 0.2 left |
//! | products, no rotations | 18 | 50+50, digits of 25, 0.2 left | 36+36+36, special 36, 7.1 left |
//! | products, no rotations | 20 | 53+53, digits of 27, 1.3 left | 36+36+36, special 36, 1.8 left |
//! | outputs rotated: 16 rotations summed | 17 | 50+50, digits of 17, 1.7 left | 50+50, special 50, 0.2 left |
//! | outputs rotated: 16 rotations summed | 18 | 50+50, digits of 17, 0.2 left | 36+36+36, special 36, 7.1 left |
//! | outputs rotated: 16 rotations summed | 20 | 53+53, digits of 18, 1.3 left | 36+36+36, special 36, 1.8 left |
//! | outputs rotated and summed 6 times | 17 | 53+53, digits of 18, 1.7 left | 36+36+36, special 36, 2.2 left |
//! | outputs rotated and summed 6 times | 18 | 53+53, digits of 18, 0.2 left | 36+36+36, special 36, 1.1 left |
//! | outputs rotated and summed 6 times | 20 | no | 40+40+40, special 40, 7.8 left |
//! | inputs rotated | 17 | no | 36+36+36, special 36, 2.7 left |
//! | inputs rotated | 18 | no | 36+36+36, special 36, 1.7 left |
//! | inputs rotated | 20 | no | 40+40+40, special 40, 8.3 left |
//! | inputs rotated, then 16 outputs | 17 | no | 36+36+36, special 36, 2.7 left |
//! | inputs rotated, then 16 outputs | 18 | no | 36+36+36, special 36, 1.7 left |
//! | inputs rotated, then 16 outputs | 20 | no | 40+40+40, special 40, 8.3 left |

use pronghorn_ring::Word;

use super::{Noise, ParameterError, Parameters};

/// The operations on a ciphertext between fresh encryption and the answer: products with
/// plaintexts, rotations before them (of the inputs) and after them (of the outputs), as matrix
/// products and convolutions do it (Gazelle, Tables II and IV).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Workload {
    /// Bits of the plaintext modulus.
    pub t_bits: u32,
    /// Products with different plaintexts that are summed up in an answer, over all rotations.
    pub products: usize,
    /// True if rotations of ciphertexts are multiplied, all of them from one hoisting.
    pub input_rotations: bool,
    /// Rotations of sums of products that are summed up: giant steps, or output rotations of a
    /// convolution.
    pub output_rotations: usize,
    /// Steps of rotate-and-sum at the end, each of which doubles the noise.
    pub doublings: u32,
}

/// Sizes of primes, of special primes, bits of digits: what is tried, the fastest first.
type Chain = (&'static [u32], &'static [u32], u32);

const CHAINS_4096: [Chain; 10] = [
    (&[50, 50], &[], 25),
    (&[50, 50], &[], 17),
    (&[53, 53], &[], 27),
    (&[53, 53], &[], 18),
    (&[53, 53], &[], 14),
    (&[53, 53], &[], 11),
    (&[53, 53], &[], 9),
    (&[53, 53], &[], 7),
    (&[53, 53], &[], 5),
    (&[53, 53], &[], 3),
];

const CHAINS_8192: [Chain; 5] = [
    (&[50, 50], &[50], 0),
    // Four primes of up to 50 bits are faster than three of 54 where there is AVX-512 IFMA.
    (&[36, 36, 36], &[36], 0),
    (&[40, 40, 40], &[40], 0),
    (&[50, 50, 50], &[50], 0),
    (&[54, 54, 53], &[53], 0),
];

impl Workload {
    /// The noise of its answers before they are hidden.
    pub fn noise<W: Word>(&self, parameters: &Parameters<W>) -> Noise {
        // The server may add a plaintext of its own, its share, to what is fresh.
        let fresh = Noise::of_secret_encryption() + Noise::of_plaintext();
        let products = if self.input_rotations {
            parameters.rotated_products_noise(fresh, self.products)
        } else {
            fresh.times(parameters.largest_norm()).sum(self.products)
        };
        let mut noise = products + parameters.rotation_noise().sum(self.output_rotations);
        for _ in 0..self.doublings {
            noise = noise.sum_dependent(2) + parameters.rotation_noise();
        }
        noise
    }

    /// Bits of the modulus that are left over by so many answers; negative where they do not fit.
    pub fn spare<W: Word>(&self, parameters: &Parameters<W>, answers: usize) -> f64 {
        let hidden = parameters.hidden(self.noise(parameters));
        parameters.log_fitting(parameters.limbs(), answers) - hidden.deviation().log2()
    }

    /// True if so many answers can be hidden.
    pub fn fits<W: Word>(&self, parameters: &Parameters<W>, answers: usize) -> bool {
        let noise = self.noise(parameters);
        parameters.answer_format(noise, answers).is_ok()
    }
}

/// The candidates at a degree.
fn chains(n: usize) -> &'static [Chain] {
    match n {
        4096 => &CHAINS_4096,
        8192 => &CHAINS_8192,
        _ => &[],
    }
}

/// Limbs of a ciphertext under one of [`Parameters::candidates_modulo`], from the table alone.
pub fn candidate_limbs(n: usize, index: usize) -> Option<usize> {
    chains(n).get(index).map(|(primes, ..)| primes.len())
}

impl<W: Word> Parameters<W> {
    /// The fastest of the chains that have room for a workload and its answers at degree 4096 or
    /// 8192, and a plaintext modulus of its size. At least 128 bits of security.
    ///
    /// # Errors
    /// When none has, there is no such plaintext modulus, or the primes do not fit the words, which
    /// are `u64`.
    pub fn for_workload(
        n: usize,
        workload: &Workload,
        answers: usize,
    ) -> Result<Self, ParameterError> {
        for parameters in Self::candidates(n, workload.t_bits) {
            let parameters = parameters?;
            if workload.fits(&parameters, answers) {
                return Ok(parameters);
            }
        }
        Err(ParameterError::Workload { n })
    }

    /// What [`for_workload`](Self::for_workload) tries, the fastest first, each made when it is
    /// asked for. None at other degrees.
    pub fn candidates(n: usize, t_bits: u32) -> impl Iterator<Item = Result<Self, ParameterError>> {
        chains(n).iter().map(move |&(primes, special, digit_bits)| {
            Self::with_bits(n, primes, special, digit_bits, t_bits)
        })
    }

    /// [`candidates`](Self::candidates) for a plaintext modulus that is known.
    pub fn candidates_modulo(
        n: usize,
        t: u64,
    ) -> impl Iterator<Item = Result<Self, ParameterError>> {
        (0..chains(n).len()).filter_map(move |index| Self::candidate_modulo(n, index, t))
    }

    /// One of [`candidates_modulo`](Self::candidates_modulo), without those before it.
    pub fn candidate_modulo(
        n: usize,
        index: usize,
        t: u64,
    ) -> Option<Result<Self, ParameterError>> {
        let &(primes, special, digit_bits) = chains(n).get(index)?;
        Some(Self::with_bits_modulo(n, primes, special, digit_bits, t))
    }
}
