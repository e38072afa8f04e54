//! The consistency check of a round: the receiver checks the sender.

use pronghorn_ring::SimdLevel;
use subtle::{Choice, ConditionallySelectable};
use zeroize::Zeroize;

use super::parameters::LpnParameters;
use crate::{Block, ot::check::linear_hash};

/// OTs of the base whose choices mask the receiver's sum.
pub const MASKS: usize = Block::BITS;
/// Bytes of the seed of the coefficients.
const SEED: usize = 32;
/// Bytes of the receiver's message.
pub const CHALLENGE_BYTES: usize = SEED + Block::BYTES;
/// Bytes of the sender's answer.
pub const ANSWER_BYTES: usize = blake3::OUT_LEN;

/// What the receiver sends: the seed of the coefficients, and its masked sum of those of the
/// missing leaves.
#[derive(Clone, Copy)]
pub struct Challenge {
    pub seed: [u8; SEED],
    pub sum: Block,
}

impl Challenge {
    pub fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.seed);
        out.extend_from_slice(&self.sum.to_bytes());
    }

    /// Of exactly [`CHALLENGE_BYTES`] bytes.
    pub fn read(bytes: &[u8]) -> Self {
        let (seed, sum) = bytes.split_at(SEED);
        Self {
            seed: seed.try_into().expect("32 bytes"),
            sum: Block::from_bytes(sum.try_into().expect("16 bytes")),
        }
    }
}

/// Coefficients in GF(2^128): `b_i a_x` for leaf `x` of tree `i`, `a_x` being the product of those
/// `a_l` where `x` has bit `l`. All public.
///
/// So `sum_x a_x v_x` is a polynomial in the `a_l`, of degree one in each. Two vectors have one sum
/// with probability at most `depth / 2^128`, and the coefficient of a secret leaf takes `depth`
/// products and no look-up.
pub struct Coefficients {
    level: SimdLevel,
    bits: Vec<Block>,
    leaves: Vec<Block>,
    trees: Vec<Block>,
}

impl Coefficients {
    /// The coefficients of a round of one run.
    pub fn new(
        level: SimdLevel,
        context: &[u8; 32],
        round: u64,
        seed: &[u8; SEED],
        set: &LpnParameters,
    ) -> Self {
        let mut hasher = blake3::Hasher::new_derive_key("pronghorn silent ot coefficients");
        hasher.update(context);
        hasher.update(&round.to_le_bytes());
        hasher.update(seed);
        let mut stream = hasher.finalize_xof();
        let mut draw = |count| {
            let mut blocks = vec![Block::ZERO; count];
            stream.fill(bytemuck::cast_slice_mut(&mut blocks));
            blocks
        };
        let (bits, trees) = (draw(set.depth()), draw(set.trees()));
        let mut leaves = vec![Block::from_u128(1)];
        for bit in &bits {
            let with_bit = leaves.iter().map(|&leaf| product(level, leaf, *bit));
            let with_bit: Vec<Block> = with_bit.collect();
            leaves.extend(with_bit);
        }
        Self {
            level,
            bits,
            leaves,
            trees,
        }
    }

    /// `sum_x a_x v_x` over the leaves of a tree.
    pub fn of_tree(&self, leaves: &[Block]) -> Block {
        linear_hash(self.level, leaves, &self.leaves)
    }

    /// `a_alpha`, in constant time.
    pub fn of_leaf(&self, alpha: u32) -> Block {
        let one = Block::from_u128(1);
        self.bits.iter().enumerate().fold(one, |found, (l, &bit)| {
            let choice = Choice::from((alpha >> l & 1) as u8);
            Block::conditional_select(&found, &product(self.level, found, bit), choice)
        })
    }

    /// `sum_i b_i sums_i + sum_j masks_j X^j`.
    pub fn total(&self, sums: &[Block], masks: &[Block]) -> Block {
        let powers: [Block; MASKS] = std::array::from_fn(|j| Block::from_u128(1 << j));
        linear_hash(self.level, sums, &self.trees) ^ linear_hash(self.level, masks, &powers)
    }

    /// The part of a tree's sum in the total.
    #[cfg(test)]
    pub fn of_tree_in_total(&self, tree: usize, sum: Block) -> Block {
        product(self.level, sum, self.trees[tree])
    }

    /// `x * y`, `y` public.
    pub fn product(&self, x: Block, y: Block) -> Block {
        product(self.level, x, y)
    }
}

fn product(level: SimdLevel, x: Block, y: Block) -> Block {
    linear_hash(level, &[x], &[y])
}

/// The sender's answer for its total. A receiver that sent a false sum learns a hash of something
/// that contains a multiple of `Delta`.
pub fn answer(context: &[u8; 32], round: u64, total: Block) -> blake3::Hash {
    let mut hasher = blake3::Hasher::new_derive_key("pronghorn silent ot answer");
    hasher.update(context);
    hasher.update(&round.to_le_bytes());
    hasher.update(&total.to_bytes());
    let answer = hasher.finalize();
    hasher.zeroize();
    answer
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn coefficients_are_products_of_those_of_the_bits() {
        let set = LpnParameters::SMALL;
        for level in SimdLevel::available() {
            let coefficients = Coefficients::new(level, &[1; 32], 2, &[3; 32], &set);
            assert_eq!(coefficients.leaves.len(), set.leaves());
            for x in [0u32, 1, 2, 3, 0x155, 0x1ff] {
                let expected = (0..set.depth()).filter(|l| x >> l & 1 == 1);
                let expected = expected.fold(Block::from_u128(1), |found, l| {
                    coefficients.product(coefficients.bits[l], found)
                });
                assert!(coefficients.of_leaf(x) == expected);
                assert!(coefficients.leaves[x as usize] == expected);
            }
        }
    }

    #[test]
    fn another_round_seed_or_run_has_other_coefficients() {
        let set = LpnParameters::SMALL;
        let first = |context, round, seed| {
            let level = SimdLevel::detect();
            Coefficients::new(level, &[context; 32], round, &[seed; 32], &set).bits[0].to_u128()
        };
        let all = [
            first(0, 0, 0),
            first(1, 0, 0),
            first(0, 1, 0),
            first(0, 0, 1),
        ];
        assert!((1..4).all(|i| !all[..i].contains(&all[i])));
    }
}
