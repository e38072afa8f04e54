//! The hash that makes random strings of correlated ones.

use zeroize::Zeroize;

use crate::{
    Block,
    aes::{Aes128, BATCH},
};

/// OTs hashed under one AES key.
const REKEY: u64 = 512;

/// A tweakable correlation-robust hash of blocks: `H(x, i) = E(E(x) + i) + E(x)`, `i` the number of
/// the OT and `E` AES-128 under the key `K + floor(i / 512)`, `K` being public and of one
/// connection. All sums are bitwise.
///
/// The form is TMMO (Guo, Katz, Wang and Yu, "Efficient and secure multiparty computation from
/// fixed-key block ciphers", IEEE S&P 2020, section 7.4), which unlike a tweaked MMO withstands a
/// receiver who makes the inputs of two OTs collide. The change of keys is that of Guo, Katz, Wang,
/// Weng and Yu ("Better concrete security for half-gates garbling", CRYPTO 2020): with it a bound
/// counts the OTs under one key where it would otherwise count all of them.
///
/// # Bound
/// Take AES as an ideal cipher. Whoever makes `p` evaluations of it and sees, for `n` pairs
/// `(x_j, i_j)` of its choice with distinct `i_j`, `H(x_j + Delta, i_j)` or else random blocks,
/// where each value of `Delta` has probability at most `2^-127`, tells the two apart with advantage
/// at most
///
/// > `512 (5 p + 3 n) / 2^128`, that is `(5 p + 3 n) / 2^119`,
///
/// whatever the number of connections, `n` counting the OTs of all of them. That is `2^116`
/// evaluations for `Delta`. (Keys of two connections overlap by chance alone; then `512` is the sum
/// of what both hash under one key.)
///
/// Proof, by H-coefficients: show the adversary `Delta` and all `a_j = E(x_j + Delta)` at the end
/// (in the random world, `a_j` drawn without replacement). Unless one of the following happens, the
/// real world explains what it saw with at least the probability that the random one does. Under
/// one key with `m <= 512` OTs and `p'` of the evaluations: an `x_j + Delta` is an input evaluated
/// (`m p' / 2^127`); an `a_j`, an `a_j + i_j` or an `h_j + a_j` is an evaluated output, input or
/// output (`3 m p' / 2^128`); `a_j + i_j` is some `x_k + Delta`, `h_j + a_j` is some `a_k`, two
/// `a_j + i_j` or two `h_j + a_j` are equal (`3 m^2 / 2^128`; where `x_j = x_k` the tweaks differ,
/// so the former two are not equal). Sum over the keys.
pub struct OtHash {
    key: u128,
}

impl OtHash {
    /// The hash of the connection with this public key `K`.
    pub(crate) fn new(key: Block) -> Self {
        let key = key.to_u128();
        Self { key }
    }

    /// Replaces `blocks[j]` by `H(blocks[j], first + j)`, `first` being the number of the first OT.
    /// Two AES calls a block.
    pub fn hash(&self, first: u64, mut blocks: &mut [Block]) {
        let mut inner = [Block::ZERO; BATCH];
        let mut tweak = first;
        while !blocks.is_empty() {
            let under_key = (REKEY - tweak % REKEY).min(blocks.len() as u64);
            let (now, later) = blocks.split_at_mut(under_key as usize);
            let cipher = Aes128::new(Block::from_u128(self.key ^ u128::from(tweak / REKEY)));
            for batch in now.chunks_mut(BATCH) {
                let inner = &mut inner[..batch.len()];
                cipher.encrypt_to(batch, inner);
                for (batch, inner) in batch.iter_mut().zip(&*inner) {
                    *batch = *inner ^ Block::from_u128(u128::from(tweak));
                    tweak += 1;
                }
                cipher.encrypt(batch);
                for (batch, inner) in batch.iter_mut().zip(inner) {
                    *batch ^= *inner;
                }
            }
            blocks = later;
        }
        inner.zeroize();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The formula, one block at a time.
    fn reference(key: Block, index: u64, x: Block) -> Block {
        let key = Block::from_u128(key.to_u128() ^ u128::from(index / 512));
        let encrypt = |x: Block| {
            let mut x = [x];
            Aes128::new(key).encrypt(&mut x);
            x[0]
        };
        let inner = encrypt(x);
        encrypt(inner ^ Block::from_u128(u128::from(index))) ^ inner
    }

    #[test]
    fn hash_is_the_formula_wherever_it_starts() {
        let key = Block::from_u128(0x0f1e_2d3c << 90);
        let input = |j: u64| Block::from_u128(u128::from(j) << 70 | 5);
        for (first, count) in [(0, 1), (3, 64), (500, 700), (u64::from(u32::MAX), 65)] {
            let mut blocks: Vec<Block> = (0..count).map(input).collect();
            OtHash::new(key).hash(first, &mut blocks);
            for (j, &block) in (0..).zip(&blocks) {
                assert!(block == reference(key, first + j, input(j)));
            }
        }
    }

    #[test]
    fn known_answer() {
        // H(0, 0) under K = 0 is E(E(0)) + E(0), both of which OpenSSL was asked for.
        let mut block = [Block::ZERO];
        OtHash::new(Block::ZERO).hash(0, &mut block);
        let expected = 0x66e94bd4ef8a2c3b884cfa59ca342b2eu128 ^ 0xf795bd4a52e29ed713d313fa20e98dbc;
        assert_eq!(block[0].to_bytes(), expected.to_be_bytes());
    }
}
