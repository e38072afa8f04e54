//! Public uniform polynomials from a seed.

use pronghorn_ring::{
    Word,
    random::{Prg, Seed},
    sample,
};

use super::Parameters;

/// The generator of all `a` of a public seed.
pub fn uniform_generator(seed: &[u8; 32]) -> Prg {
    Prg::new(
        &Seed::from_bytes(*seed),
        "pronghorn 2026 CKKS public uniform",
    )
}

/// The `a` of a number, `[limb][N]` in the NTT domain, as many limbs as `a` has. Variable time: `a`
/// is public.
///
/// # Panics
/// Unless `a` is whole limbs, no more than there are, and `number < 2^48`.
pub fn expand_uniform<W: Word>(
    parameters: &Parameters<W>,
    generator: &Prg,
    number: u64,
    a: &mut [W],
) {
    let n = parameters.n();
    assert!(a.len().is_multiple_of(n), "a has whole limbs");
    for (limb, a) in a.chunks_exact_mut(n).enumerate() {
        expand_limb(parameters, generator, number, limb, a);
    }
}

/// Words of [`expand_uniform`] that come from one stream: any such chunk can be expanded alone.
pub const UNIFORM_CHUNK: usize = 512;

/// Limb `limb` of [`expand_uniform`].
pub(super) fn expand_limb<W: Word>(
    parameters: &Parameters<W>,
    generator: &Prg,
    number: u64,
    limb: usize,
    a: &mut [W],
) {
    for (chunk, a) in a.chunks_mut(UNIFORM_CHUNK).enumerate() {
        expand_chunk(parameters, generator, number, limb, chunk, a);
    }
}

/// Chunk `chunk` of limb `limb` of [`expand_uniform`]: stream `2^16 number + 2^8 limb + chunk` of
/// the generator.
///
/// # Panics
/// Unless `number < 2^48`, and limb and chunk are below 256.
pub fn expand_chunk<W: Word>(
    parameters: &Parameters<W>,
    generator: &Prg,
    number: u64,
    limb: usize,
    chunk: usize,
    a: &mut [W],
) {
    assert!(
        number < 1 << 48 && limb < 256 && chunk < 256,
        "numbers have 48 bits, limbs and chunks 8"
    );
    let stream = number << 16 | (limb as u64) << 8 | chunk as u64;
    sample::uniform_public(
        &mut generator.stream(stream),
        parameters.basis().prime(limb),
        a,
    );
}

#[cfg(test)]
mod tests {
    use pronghorn_ring::rns;

    use super::*;

    #[test]
    fn chunks_are_parts_of_the_whole() {
        let n = 2048;
        let primes = rns::primes(n, &[20, 31]).unwrap();
        let parameters = Parameters::<u32>::insecure_paper_parameters(n, &primes, &[]).unwrap();
        let generator = uniform_generator(&[7; 32]);
        let mut whole = vec![0; 2 * n];
        expand_uniform(&parameters, &generator, 5, &mut whole);
        let mut chunk = vec![0; UNIFORM_CHUNK];
        for (place, expected) in whole.chunks(UNIFORM_CHUNK).enumerate() {
            let (limb, place) = (place / 4, place % 4);
            expand_chunk(&parameters, &generator, 5, limb, place, &mut chunk);
            assert_eq!(chunk, expected);
        }
    }
}
