//! Samplers over a [`Stream`]. What each draws, and how it reads the stream, is fixed by the module
//! [`mod@reference`]: the same on every machine and at every SIMD level.

use zeroize::optimization_barrier;

use crate::random::Stream;
use crate::simd::{self, GROUP, PLANES};
use crate::{Prime, SimdLevel, Word};

/// Errors are sums of `2 ERROR_ETA` fair coins less `ERROR_ETA`: centred binomial, within `+-21`,
/// variance 10.5. That is no less than the 3.2^2 = 10.24 of the Gaussian that the
/// [security table](crate::security) assumes.
pub const ERROR_ETA: u32 = (PLANES / 2) as u32;

/// Residues modulo `q`, uniform, for public values: the time shows which draws were rejected. See
/// [`uniform_secret`].
///
/// Little-endian words are masked to `q.bits()` bits, and those below `q` are taken in order.
pub fn uniform_public<W: Word>(stream: &mut Stream, q: &Prime<W>, out: &mut [W]) {
    uniform_public_at(SimdLevel::detect(), stream, q, out);
}

/// [`uniform_public`] at `level`, or the best below it that the CPU has.
pub fn uniform_public_at<W: Word>(
    level: SimdLevel,
    stream: &mut Stream,
    q: &Prime<W>,
    out: &mut [W],
) {
    let mask = W::from_u64(u64::MAX >> (64 - q.bits()));
    let mut accepted = 0;
    // Every draw fills at most one place, so drawing what is missing never reads too far.
    while accepted < out.len() {
        let drawn = &mut out[accepted..];
        stream.fill(bytemuck::cast_slice_mut(drawn));
        let largest = simd::mask_and_largest(level, drawn, mask);
        accepted += if largest < q.word() {
            drawn.len()
        } else {
            keep_below(q.word(), drawn)
        };
    }
}

/// [`uniform_public`] for secrets. The time shows which draws were rejected: those are thrown away,
/// and the ones taken do not depend on them.
pub fn uniform_secret<W: Word>(stream: &mut Stream, q: &Prime<W>, out: &mut [W]) {
    uniform_public(stream, q, out);
}

/// Moves the words below `q` to the front, in order; how many there are.
fn keep_below<W: Word>(q: W, words: &mut [W]) -> usize {
    let mut kept = 0;
    for i in 0..words.len() {
        let word = words[i];
        words[kept] = word;
        kept += usize::from(word < q);
    }
    kept
}

/// Residues modulo `2^bits`, uniform: little-endian words masked to `bits`. Constant time.
///
/// # Panics
/// Unless `1 <= bits <= W::BITS`.
pub fn uniform_power_of_two<W: Word>(stream: &mut Stream, bits: u32, out: &mut [W]) {
    assert!(
        (1..=W::BITS).contains(&bits),
        "words of {bits} bits do not fit {}",
        W::BITS
    );
    stream.fill(bytemuck::cast_slice_mut(out));
    simd::mask_and_largest(
        SimdLevel::detect(),
        out,
        W::from_u64(u64::MAX >> (64 - bits)),
    );
}

/// Uniform over -1, 0 and 1, for secrets.
///
/// A byte below `243 = 3^5` is five base-3 digits, lowest first, each less one; other bytes are
/// skipped, and digits left over at the end are dropped. The time shows which bytes were
/// skipped, and whether a byte is below 243 says nothing about its digits once it is: they
/// are uniform whatever was skipped. Digits are taken by multiplication, not division or look-up.
pub fn ternary(stream: &mut Stream, out: &mut [i8]) {
    let mut bytes = [0; 64];
    let mut unread = bytes.len();
    for trits in out.chunks_mut(5) {
        let mut byte = loop {
            if unread == bytes.len() {
                stream.fill(&mut bytes);
                unread = 0;
            }
            unread += 1;
            if bytes[unread - 1] < 243 {
                break u32::from(bytes[unread - 1]);
            }
        };
        for trit in trits {
            let third = (byte * 171) >> 9; // byte / 3, exact below 256
            *trit = (byte - 3 * third) as i8 - 1;
            byte = third;
        }
    }
    bytes.fill(0);
    optimization_barrier(&bytes);
}

/// Centred binomial errors of variance 10.5 (see [`ERROR_ETA`]), for secrets: constant time.
///
/// Samples go in groups of 512, the last one possibly shorter. A group of `g` draws 42 planes of
/// `ceil(g / 64)` little-endian `u64`; sample `j` is the number of planes with bit `j` set,
/// less 21. 42 bits of stream a sample (a group's length rounded up to 64); 1.5 ns each with
/// AVX-512.
pub fn centred_binomial(stream: &mut Stream, out: &mut [i8]) {
    centred_binomial_at(SimdLevel::detect(), stream, out);
}

/// [`centred_binomial`] at `level`, or the best below it that the CPU has.
pub fn centred_binomial_at(level: SimdLevel, stream: &mut Stream, out: &mut [i8]) {
    /// Groups drawn together: long runs of keystream are cheaper.
    const GROUPS: usize = 4;
    let mut planes = [0u64; GROUPS * PLANES * GROUP / 64];
    for samples in out.chunks_mut(GROUPS * GROUP) {
        let words: usize = samples
            .chunks(GROUP)
            .map(|group| PLANES * group.len().div_ceil(64))
            .sum();
        let planes = &mut planes[..words];
        stream.fill(bytemuck::cast_slice_mut(planes));
        for word in &mut *planes {
            *word = word.swap_little_endian();
        }
        for (group, planes) in samples
            .chunks_mut(GROUP)
            .zip(planes.chunks(PLANES * GROUP / 64))
        {
            simd::centred_sums(level, planes, group);
        }
        planes.fill(0);
        optimization_barrier(planes);
    }
}

/// The samplers by their definitions, a value at a time: to read and to test against.
pub mod reference {
    use crate::random::Stream;
    use crate::{Prime, Word};

    fn byte(stream: &mut Stream) -> u8 {
        let mut byte = [0];
        stream.fill(&mut byte);
        byte[0]
    }

    fn little_endian(stream: &mut Stream, bytes: u32) -> u64 {
        (0..bytes).fold(0, |word, i| word | u64::from(byte(stream)) << (8 * i))
    }

    /// What [`uniform_public`](super::uniform_public) draws.
    pub fn uniform_public<W: Word>(stream: &mut Stream, q: &Prime<W>, out: &mut [W]) {
        for word in out {
            *word = loop {
                let draw = little_endian(stream, W::BITS / 8) & (u64::MAX >> (64 - q.bits()));
                if draw < q.value() {
                    break W::from_u64(draw);
                }
            };
        }
    }

    /// What [`ternary`](super::ternary) draws.
    pub fn ternary(stream: &mut Stream, out: &mut [i8]) {
        for trits in out.chunks_mut(5) {
            let accepted = std::iter::repeat_with(|| byte(stream))
                .find(|&byte| byte < 243)
                .unwrap_or(0);
            for (place, trit) in trits.iter_mut().enumerate() {
                *trit = (accepted / 3u8.pow(place as u32) % 3) as i8 - 1;
            }
        }
    }

    /// What [`centred_binomial`](super::centred_binomial) draws.
    pub fn centred_binomial(stream: &mut Stream, out: &mut [i8]) {
        for samples in out.chunks_mut(512) {
            samples.fill(-21);
            for _plane in 0..42 {
                for samples in samples.chunks_mut(64) {
                    let bits = little_endian(stream, 8);
                    for (j, sample) in samples.iter_mut().enumerate() {
                        *sample += (bits >> j & 1) as i8;
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::modulus::largest_ntt_prime;
    use crate::random::{Prg, Seed};

    fn stream(seed: u8, index: u64) -> Stream {
        Prg::new(&Seed::from_bytes([seed; 32]), "pronghorn test samplers").stream(index)
    }

    /// The next byte tells whether two streams were read equally far.
    fn next(mut stream: Stream) -> [u8; 16] {
        let mut bytes = [0; 16];
        stream.fill(&mut bytes);
        bytes
    }

    fn uniform_agrees<W: Word>(prime: u64, count: usize, seed: u8) {
        let q = Prime::<W>::new(prime).unwrap();
        let mut expected = vec![W::default(); count];
        let mut plain = stream(seed, prime);
        reference::uniform_public(&mut plain, &q, &mut expected);
        let after = next(plain);
        for level in SimdLevel::available() {
            let mut out = vec![W::from_u64(1); count];
            let mut fast = stream(seed, prime);
            uniform_public_at(level, &mut fast, &q, &mut out);
            assert!(out == expected, "{count} modulo {prime}, {level:?}");
            assert_eq!(next(fast), after);
        }
    }

    #[test]
    fn uniform_is_its_reference() {
        // The last prime of each word is just above a power of two: half of the draws are rejected.
        for count in [0, 1, 15, 1000, 2048] {
            for prime in [
                3,
                17,
                1_073_741_827,
                2_147_483_647,
                largest_ntt_prime(31, 2048).unwrap(),
            ] {
                uniform_agrees::<u32>(prime, count, 5);
            }
            for prime in [3, 65_537, (1 << 61) - 1, (1 << 62) - 57, (1 << 61) + 15] {
                uniform_agrees::<u64>(prime, count, 6);
            }
        }
    }

    #[test]
    fn uniform_is_uniform() {
        // 17 cells of 17,000 draws: chi-squared with 16 degrees of freedom, 45 is beyond 1 in
        // 7,000.
        let q = Prime::<u32>::new(17).unwrap();
        let mut draws = vec![0; 17_000];
        uniform_public(&mut stream(1, 0), &q, &mut draws);
        let mut cells = [0f64; 17];
        draws.iter().for_each(|&draw| cells[draw as usize] += 1.0);
        assert!(
            cells
                .iter()
                .map(|cell| (cell - 1000.0).powi(2) / 1000.0)
                .sum::<f64>()
                < 45.0
        );
        // And the mean of wide residues, to five standard errors.
        let q = Prime::<u64>::new((1 << 61) - 1).unwrap();
        let mut draws = vec![0; 10_000];
        uniform_public(&mut stream(1, 1), &q, &mut draws);
        let mean = draws
            .iter()
            .map(|&draw| draw as f64 / q.value() as f64)
            .sum::<f64>()
            / 1e4;
        assert!((mean - 0.5).abs() < 5.0 / (12.0f64 * 1e4).sqrt());
    }

    #[test]
    fn powers_of_two_are_masked_words() {
        let (mut words, mut plain) = ([0u32; 100], [0u8; 400]);
        stream(2, 0).fill(&mut plain);
        for bits in [1, 7, 31, 32] {
            uniform_power_of_two(&mut stream(2, 0), bits, &mut words);
            for (word, bytes) in words.iter().zip(plain.chunks_exact(4)) {
                let whole = u32::from_le_bytes(bytes.try_into().unwrap());
                assert_eq!(*word, whole & (u32::MAX >> (32 - bits)));
            }
        }
        let mut wide = [0u64; 50];
        uniform_power_of_two(&mut stream(2, 0), 64, &mut wide);
        assert_eq!(
            bytemuck::cast_slice::<u64, u8>(&wide.map(u64::to_le)),
            plain
        );
    }

    #[test]
    fn ternary_is_its_reference_and_uniform() {
        for count in [0, 1, 4, 5, 6, 2048] {
            let (mut out, mut expected) = (vec![9; count], vec![9; count]);
            ternary(&mut stream(3, 0), &mut out);
            reference::ternary(&mut stream(3, 0), &mut expected);
            assert_eq!(out, expected);
        }
        let mut out = vec![9; 30_000];
        ternary(&mut stream(3, 1), &mut out);
        // Each count has mean 10,000 and standard deviation 81.6.
        for trit in [-1, 0, 1] {
            let count = out.iter().filter(|&&drawn| drawn == trit).count();
            assert!(count.abs_diff(10_000) < 400, "{trit}: {count}");
        }
    }

    #[test]
    fn thirds_by_multiplication_are_exact() {
        assert!((0..256u32).all(|byte| (byte * 171) >> 9 == byte / 3));
    }

    fn binomial_agrees(count: usize, seed: u8) {
        let mut expected = vec![99; count];
        let mut plain = stream(seed, 7);
        reference::centred_binomial(&mut plain, &mut expected);
        let after = next(plain);
        for level in SimdLevel::available() {
            let mut out = vec![77; count];
            let mut fast = stream(seed, 7);
            centred_binomial_at(level, &mut fast, &mut out);
            assert!(out == expected, "{count} samples, {level:?}");
            assert_eq!(next(fast), after);
        }
    }

    #[test]
    fn errors_are_their_reference() {
        for count in [0, 1, 63, 64, 65, 511, 512, 513, 2047, 2048, 2049, 5000] {
            binomial_agrees(count, 4);
        }
    }

    #[test]
    fn errors_have_the_variance_and_bound_they_claim() {
        let mut out = vec![0; 200_000];
        centred_binomial(&mut stream(8, 0), &mut out);
        let count = out.len() as f64;
        let moment = |power| out.iter().map(|&x| f64::from(x).powi(power)).sum::<f64>() / count;
        let variance = f64::from(ERROR_ETA) / 2.0;
        assert!(variance >= 3.2 * 3.2);
        // Five standard errors; the fourth moment of a sum of 42 coins is (3 - 2/42) variance^2.
        assert!(moment(1).abs() < 5.0 * (variance / count).sqrt());
        assert!(
            (moment(2) - variance).abs() < 5.0 * variance * ((2.0 - 2.0 / 42.0) / count).sqrt()
        );
        assert!((moment(4) / variance.powi(2) - (3.0 - 2.0 / 42.0)).abs() < 0.15);
        assert!(out.iter().all(|x| x.unsigned_abs() <= ERROR_ETA as u8));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]

        #[test]
        fn any_length_agrees(count in 0usize..3000, seed: u8) {
            binomial_agrees(count, seed);
            uniform_agrees::<u32>(1_073_741_827, count, seed);
        }
    }
}
