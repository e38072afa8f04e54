//! Seeds, and the streams of pseudorandom bytes that samplers read.

use chacha20::ChaCha20;
use cipher::{KeyIvInit, StreamCipher};
use thiserror::Error;
use zeroize::{Zeroize, ZeroizeOnDrop};

/// The operating system gave no randomness.
#[derive(Debug, Error)]
#[error(
    "the operating system gave no randomness ({0}); nothing can be encrypted safely without it"
)]
pub struct RandomError(#[from] getrandom::Error);

/// 32 bytes from which everything random follows; wiped on drop, never printed.
#[derive(Zeroize, ZeroizeOnDrop)]
pub struct Seed([u8; 32]);

impl Seed {
    /// A fresh seed from the operating system.
    ///
    /// # Errors
    /// [`RandomError`] when the system cannot give any.
    pub fn from_os() -> Result<Self, RandomError> {
        #[cfg(feature = "test-seed")]
        if let Some(seed) = crate::test_seed::next() {
            return Ok(seed);
        }
        let mut seed = Self([0; 32]);
        getrandom::fill(&mut seed.0)?;
        Ok(seed)
    }

    /// The seed of these bytes, for a public seed off the wire or a reproducible test.
    pub fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// The bytes; whoever has them has everything drawn from the seed.
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

/// A generator for one purpose: any number of independent [`Stream`]s. Wiped on drop.
#[derive(Zeroize, ZeroizeOnDrop)]
pub struct Prg {
    key: [u8; 32],
}

impl Prg {
    /// The generator of `domain`. Generators of different domains are independent even where
    /// they share a seed: the ChaCha20 key is `blake3::derive_key(domain, seed)`.
    pub fn new(seed: &Seed, domain: &'static str) -> Self {
        let mut hasher = blake3::Hasher::new_derive_key(domain);
        hasher.update(&seed.0);
        let mut hash = hasher.finalize();
        let prg = Self {
            key: *hash.as_bytes(),
        };
        hash.zeroize();
        hasher.zeroize();
        prg
    }

    /// Stream `index`: the same bytes every time, independent of other indices. ChaCha20 (RFC 8439)
    /// with block counter 0 and the nonce `index` in 8 little-endian bytes, then 4 zeros.
    pub fn stream(&self, index: u64) -> Stream {
        let mut nonce = [0; 12];
        nonce[..8].copy_from_slice(&index.to_le_bytes());
        Stream {
            cipher: ChaCha20::new((&self.key).into(), (&nonce).into()),
        }
    }
}

/// Pseudorandom bytes, in order; wiped on drop.
pub struct Stream {
    cipher: ChaCha20,
}

impl Stream {
    /// The next `bytes.len()` bytes. Costs 0.25 ns a byte with AVX-512, in runs of 1 KiB or more.
    ///
    /// # Panics
    /// After 256 GiB, where the block counter of ChaCha20 ends.
    pub fn fill(&mut self, bytes: &mut [u8]) {
        self.cipher.write_keystream(bytes);
    }
}

/// The cipher wipes its state and its buffer (features `zeroize` of `chacha20` and `cipher`).
impl ZeroizeOnDrop for Stream {}

const _: () = {
    const fn wiped_on_drop<T: ZeroizeOnDrop>() {}
    wiped_on_drop::<ChaCha20>();
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keystream_of_rfc_8439() {
        // Appendix A.1, test vectors 1 and 2: zero key, zero nonce, blocks 0 and 1.
        let prg = Prg { key: [0; 32] };
        let mut bytes = [0; 128];
        prg.stream(0).fill(&mut bytes);
        assert_eq!(bytes[..8], [0x76, 0xb8, 0xe0, 0xad, 0xa0, 0xf1, 0x3d, 0x90]);
        assert_eq!(
            bytes[64..72],
            [0x9f, 0x07, 0xe7, 0xbe, 0x55, 0x51, 0x38, 0x7a]
        );
    }

    #[test]
    fn key_is_the_derived_key() {
        let seed = Seed::from_bytes([7; 32]);
        let prg = Prg::new(&seed, "pronghorn test");
        assert_eq!(
            prg.key,
            blake3::derive_key("pronghorn test", seed.as_bytes())
        );
    }

    #[test]
    fn pieces_make_the_same_stream() {
        let prg = Prg::new(&Seed::from_bytes([1; 32]), "pronghorn test");
        let mut whole = [0; 5000];
        prg.stream(9).fill(&mut whole);
        let (mut pieces, mut stream, mut start) = ([0; 5000], prg.stream(9), 0);
        for length in [1, 63, 64, 65, 0, 1024, 1025, 2758] {
            stream.fill(&mut pieces[start..start + length]);
            start += length;
        }
        assert_eq!(start, 5000);
        assert_eq!(whole, pieces);
    }

    #[test]
    fn seeds_domains_and_indices_separate() {
        let draw = |seed: u8, domain, index| {
            let mut bytes = [0; 16];
            Prg::new(&Seed::from_bytes([seed; 32]), domain)
                .stream(index)
                .fill(&mut bytes);
            bytes
        };
        let all = [
            draw(0, "a", 0),
            draw(1, "a", 0),
            draw(0, "b", 0),
            draw(0, "a", 1),
            draw(0, "a", 1 << 32),
        ];
        for (i, x) in all.iter().enumerate() {
            assert!(all[..i].iter().all(|y| x != y));
        }
    }

    #[test]
    fn seeds_from_the_system_differ() {
        assert_ne!(
            Seed::from_os().unwrap().as_bytes(),
            Seed::from_os().unwrap().as_bytes()
        );
    }
}
