//! AES-128 on batches of blocks.

#[cfg(target_arch = "x86_64")]
pub(crate) mod simd;

use aes::Aes128Enc;
use aes::cipher::{Array, BlockCipherEncrypt, KeyInit, array::typenum::U16};
use pronghorn_ring::SimdLevel;
use zeroize::{Zeroize, ZeroizeOnDrop};

use crate::Block;
#[cfg(target_arch = "x86_64")]
use crate::ot::simd::WIDEST;

/// Blocks that go through the rounds at a time with VAES. Multiples of it run at full speed.
pub const BATCH: usize = 64;

/// AES-128 under one key. The key schedule is wiped on drop.
///
/// With VAES, on AVX2 or AVX-512, the code is this crate's. Elsewhere it is the `aes` crate's, which chooses
/// at run time between VAES, AES-NI, the ARMv8 instructions and constant-time software, and does
/// not look at `PRONGHORN_SIMD`.
pub struct Aes128(Cipher);

enum Cipher {
    #[cfg(target_arch = "x86_64")]
    Vaes(simd::Vaes),
    Other(Aes128Enc),
}

impl Aes128 {
    /// The cipher under `key`.
    pub fn new(key: Block) -> Self {
        Self::new_at(SimdLevel::detect(), key)
    }

    /// [`Aes128::new`] at `level`, or the best below it that the CPU has.
    pub fn new_at(level: SimdLevel, key: Block) -> Self {
        #[cfg(target_arch = "x86_64")]
        if let Some(cipher) = simd::Vaes::new(level, key) {
            return Self(Cipher::Vaes(cipher));
        }
        let _ = level;
        Self(Cipher::Other(Aes128Enc::new(&Array(key.to_bytes()))))
    }

    /// Replaces every block by its encryption.
    #[inline]
    pub fn encrypt(&self, blocks: &mut [Block]) {
        match &self.0 {
            #[cfg(target_arch = "x86_64")]
            Cipher::Vaes(cipher) => cipher.encrypt(blocks),
            Cipher::Other(cipher) => {
                let blocks = bytemuck::cast_slice_mut(blocks);
                cipher.encrypt_blocks(Array::cast_slice_from_core_mut(blocks));
            }
        }
    }

    /// `out` = the encryptions of `first`, `first + 1` and so on, modulo 2^64.
    #[inline]
    pub fn encrypt_counters(&self, first: u64, out: &mut [Block]) {
        match &self.0 {
            #[cfg(target_arch = "x86_64")]
            Cipher::Vaes(cipher) => cipher.encrypt_counters(first, out),
            Cipher::Other(_) => {
                for (i, out) in (0..).zip(&mut *out) {
                    *out = Block::from_u128(first.wrapping_add(i).into());
                }
                self.encrypt(out);
            }
        }
    }

    /// Replaces block `j` by `E(E(x) + first + j) + E(x)`. Sums are bitwise, tweaks modulo 2^64.
    pub(crate) fn hash(&self, first: u64, blocks: &mut [Block]) {
        match &self.0 {
            #[cfg(target_arch = "x86_64")]
            Cipher::Vaes(cipher) => {
                let (vectors, rest) = blocks.split_at_mut(blocks.len() / WIDEST * WIDEST);
                simd::hash(cipher, first, vectors);
                if !rest.is_empty() {
                    self.hash_in_steps(first.wrapping_add(vectors.len() as u64), rest);
                }
            }
            Cipher::Other(_) => self.hash_in_steps(first, blocks),
        }
    }

    /// [`Aes128::hash`] in batches: what is encrypted, then its encryption.
    fn hash_in_steps(&self, first: u64, blocks: &mut [Block]) {
        let mut inner = [Block::ZERO; BATCH];
        let mut tweak = first;
        for batch in blocks.chunks_mut(BATCH) {
            let inner = &mut inner[..batch.len()];
            self.encrypt_to(batch, inner);
            for (batch, inner) in batch.iter_mut().zip(&*inner) {
                *batch = *inner ^ Block::from_u128(tweak.into());
                tweak = tweak.wrapping_add(1);
            }
            self.encrypt(batch);
            for (batch, inner) in batch.iter_mut().zip(inner) {
                *batch ^= *inner;
            }
        }
        inner.zeroize();
    }

    /// The cipher on vectors, where the CPU and the level of this value have it.
    #[cfg(target_arch = "x86_64")]
    pub(crate) fn vaes(&self) -> Option<&simd::Vaes> {
        match &self.0 {
            Cipher::Vaes(cipher) => Some(cipher),
            Cipher::Other(_) => None,
        }
    }

    /// `out` = the encryptions of `blocks`.
    ///
    /// # Panics
    /// Unless the slices are of one length.
    #[inline]
    pub fn encrypt_to(&self, blocks: &[Block], out: &mut [Block]) {
        match &self.0 {
            #[cfg(target_arch = "x86_64")]
            Cipher::Vaes(cipher) => cipher.encrypt_to(blocks, out),
            Cipher::Other(cipher) => {
                let blocks = Array::cast_slice_from_core(bytemuck::cast_slice(blocks));
                let out: &mut [Array<u8, U16>] =
                    Array::cast_slice_from_core_mut(bytemuck::cast_slice_mut(out));
                cipher
                    .encrypt_blocks_b2b(blocks, out)
                    .expect("the slices are of one length");
            }
        }
    }
}

/// Both kinds of cipher wipe themselves.
impl ZeroizeOnDrop for Aes128 {}

const _: () = {
    const fn wiped_on_drop<T: ZeroizeOnDrop>() {}
    wiped_on_drop::<Aes128Enc>();
    #[cfg(target_arch = "x86_64")]
    wiped_on_drop::<simd::Vaes>();
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fips_197_appendix_b() {
        let hex = |value: u128| Block::from_bytes(value.to_be_bytes());
        let key = hex(0x2b7e151628aed2a6abf7158809cf4f3c);
        let (plain, expected) = (
            hex(0x3243f6a8885a308d313198a2e0370734),
            hex(0x3925841d02dc09fbdc118597196a0b32),
        );
        for level in SimdLevel::available() {
            let cipher = Aes128::new_at(level, key);
            // Every way through the cipher: alone, in a batch, and what a batch leaves over.
            for count in [0, 1, 3, 4, BATCH, 2 * BATCH + 21] {
                let mut blocks = vec![plain; count];
                cipher.encrypt(&mut blocks);
                assert!(blocks.iter().all(|&block| block == expected));
            }
        }
    }

    #[test]
    fn every_level_and_count_is_one_block_at_a_time() {
        for seed in 0..5u128 {
            let key =
                Block::from_u128(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c834));
            let single = Aes128::new_at(SimdLevel::Portable, key);
            for count in (0..40).chain([63, 64, 65, 200]) {
                let input: Vec<Block> = (0..count).map(|i| Block::from_u128(i << 40 | i)).collect();
                let mut expected = input.clone();
                expected
                    .iter_mut()
                    .for_each(|block| single.encrypt(std::slice::from_mut(block)));
                for level in SimdLevel::available() {
                    let cipher = Aes128::new_at(level, key);
                    // What lies around the blocks stays.
                    let mut out = vec![Block::ONES; input.len() + 2];
                    let (inner, _) = out[1..].split_at_mut(input.len());
                    cipher.encrypt_to(&input, inner);
                    assert!(*inner == *expected, "{level:?} {count}");
                    assert!(out[0] == Block::ONES && out[input.len() + 1] == Block::ONES);
                    for first in [0, 7, u64::MAX - 20] {
                        let counters = (0..count as u64).map(|i| first.wrapping_add(i));
                        let mut expected: Vec<Block> =
                            counters.map(|i| Block::from_u128(i.into())).collect();
                        single.encrypt(&mut expected);
                        let mut found = vec![Block::ONES; expected.len()];
                        cipher.encrypt_counters(first, &mut found);
                        assert!(found == expected, "{level:?} {first} {count}");
                    }
                    let mut in_place = input.clone();
                    cipher.encrypt(&mut in_place);
                    assert!(in_place == expected);
                    for first in [0, 7, u64::MAX - 20] {
                        let tweaks = (0..).map(|i| Block::from_u128(first.wrapping_add(i).into()));
                        let mut outer: Vec<Block> =
                            expected.iter().zip(tweaks).map(|(x, i)| *x ^ i).collect();
                        single.encrypt(&mut outer);
                        let hashed = outer.iter().zip(&expected).map(|(y, x)| *y ^ *x);
                        let mut found = input.clone();
                        cipher.hash(first, &mut found);
                        assert!(
                            found == hashed.collect::<Vec<_>>(),
                            "{level:?} {first} {count}"
                        );
                    }
                }
            }
        }
    }
}
