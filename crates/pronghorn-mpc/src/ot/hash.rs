//! The hash that makes random strings of correlated ones.

use crate::{Block, aes::Aes128};

/// OTs of two strings hashed under one AES key; of `2^w` strings `2^w` times fewer.
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
/// # OTs of several strings
/// The `2^w` strings of an OT with `w` bits of choice are `H(q + c Delta, i)`, `c` all polynomials
/// of `w` bits in GF(2^128): the form of SoftSpokenOT (Roy, CRYPTO 2022, section 5). Their keys are
/// `K + w 2^120 + floor(i 2^w / 512)`. The receiver lacks `2^w - 1` strings an OT, fewer than 512
/// under a key, so the bound holds with `n` counting strings: each `c Delta` has the probabilities
/// of `Delta`, and for one `i` the `x + c Delta` differ.
///
/// Proof, by H-coefficients: show the adversary `Delta` and all `a_j = E(x_j + Delta)` at the end
/// (in the random world, `a_j` drawn without replacement). Unless one of the following happens, the
/// real world explains what it saw with at least the probability that the random one does. Under
/// one key with `m <= 512` OTs and `p'` of the evaluations: an `x_j + Delta` is an input evaluated
/// (`m p' / 2^127`); an `a_j`, an `a_j + i_j` or an `h_j + a_j` is an evaluated output, input or
/// output (`3 m p' / 2^128`); `a_j + i_j` is some `x_k + Delta`, `h_j + a_j` is some `a_k`, two
/// `a_j + i_j` or two `h_j + a_j` are equal (`3 m^2 / 2^128`; where `x_j = x_k` the tweaks differ,
/// so the former two are not equal). Sum over the keys.
///
/// With several strings an OT, `m` counts strings, and `x_j + c_j Delta` stands for `x_j + Delta`.
/// Those of one `i` differ, and those of different `i` have different tweaks.
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
    pub fn hash(&self, first: u64, blocks: &mut [Block]) {
        let count = blocks.len();
        self.hash_strings(1, first, count, blocks);
    }

    /// The same for OTs of `2^width` strings: `blocks` has those of `count` OTs, for one choice
    /// after the other.
    pub(crate) fn hash_strings(&self, width: u32, first: u64, count: usize, blocks: &mut [Block]) {
        let (period, domain) = match width {
            0 | 1 => (REKEY, 0),
            _ => (REKEY >> width, u128::from(width) << 120),
        };
        let mut done = 0;
        while done < count {
            let tweak = first + done as u64;
            let under_key = (period - tweak % period).min((count - done) as u64) as usize;
            let key = self.key ^ domain ^ u128::from(tweak / period);
            let cipher = Aes128::new(Block::from_u128(key));
            for row in blocks.chunks_mut(count) {
                cipher.hash(tweak, &mut row[done..][..under_key]);
            }
            done += under_key;
        }
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
    fn several_strings_have_keys_of_their_own() {
        let key = Block::from_u128(0x0f1e_2d3c << 90);
        let input = |row: u64, j: u64| Block::from_u128(u128::from(row) << 80 | u128::from(j));
        for (width, first, count) in [(2, 100, 70), (3, 63, 64), (4, 1000, 33)] {
            let rows = 1 << width;
            let mut blocks: Vec<Block> = (0..rows)
                .flat_map(|row| (0..count).map(move |j| input(row, j)))
                .collect();
            OtHash::new(key).hash_strings(width, first, count as usize, &mut blocks);
            let mut found = blocks.iter();
            for row in 0..rows {
                for j in 0..count {
                    let tweak = first + j;
                    let under = (tweak << width) / 512;
                    let under = key.to_u128() ^ u128::from(width) << 120 ^ u128::from(under);
                    let encrypt = |x: Block| {
                        let mut x = [x];
                        Aes128::new(Block::from_u128(under)).encrypt(&mut x);
                        x[0]
                    };
                    let inner = encrypt(input(row, j));
                    let expected = encrypt(inner ^ Block::from_u128(tweak.into())) ^ inner;
                    assert!(*found.next().unwrap() == expected, "{width} {row} {j}");
                }
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
