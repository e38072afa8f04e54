//! Secrets that follow from others.

use pronghorn_ring::random::Seed;
use zeroize::Zeroize;

/// BLAKE3 of `parts`, one after the other, keyed with a secret. Nothing is left of it but the
/// result.
pub(crate) fn keyed(secret: &Seed, parts: &[&[u8]]) -> Seed {
    let mut hasher = blake3::Hasher::new_keyed(secret.as_bytes());
    parts.iter().for_each(|part| {
        hasher.update(part);
    });
    let mut hash = hasher.finalize();
    let seed = Seed::from_bytes(*hash.as_bytes());
    hash.zeroize();
    hasher.zeroize();
    seed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_the_keyed_hash() {
        let (secret, bytes) = (Seed::from_bytes([3; 32]), [1, 2, 3, 4, 5]);
        let expected = blake3::keyed_hash(secret.as_bytes(), &bytes);
        let parts: [&[u8]; 2] = [&bytes[..2], &bytes[2..]];
        assert_eq!(keyed(&secret, &parts).as_bytes(), expected.as_bytes());
    }
}
