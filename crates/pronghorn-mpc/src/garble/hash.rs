//! The hash, to read. The fast one is in the [kernels](super::kernels).

use crate::Block;
use crate::aes::Aes128;

use super::kernels::TWEAKS;

/// `E_(start + key)(sigma(label) + T_tweak) + sigma(label)`, see [`garble`](crate::garble).
pub(super) fn hash(start: Block, key: u64, tweak: Block, label: Block) -> Block {
    let cipher = Aes128::new(start ^ Block::from_u128(key.into()));
    let mut block = [label.sigma() ^ tweak];
    cipher.encrypt(&mut block);
    block[0] ^ label.sigma()
}

/// The tweaks `T_j`: encryptions of `j` under a key that no gate has.
pub(super) fn tweaks(start: Block) -> [Block; TWEAKS] {
    let mut tweaks = std::array::from_fn(|j| Block::from_u128(j as u128));
    Aes128::new(start ^ Block::from_u128(1 << 127)).encrypt(&mut tweaks);
    tweaks
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_answers() {
        // Computed with OpenSSL's AES-128 from the definitions above.
        let start = Block::from_bytes(std::array::from_fn(|i| i as u8));
        let label = Block::from_bytes(std::array::from_fn(|i| 16 + i as u8));
        let tweak = tweaks(start)[3];
        assert!(tweak.to_bytes() == 0x91030bec02ea8f59966a3ff0b7c0f619u128.to_be_bytes());
        let hash = hash(start, 0x0102_0304_0506_0708, tweak, label);
        assert!(hash.to_bytes() == 0xaef9d6dabc47bfd1e76648742062e279u128.to_be_bytes());
    }
}
