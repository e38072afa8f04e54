//! Half-trees: `2^d` leaves of which the receiver misses one, from one block a level.
//!
//! The correlated tree of X. Guo, K. Yang, X. Wang, W. Zhang, X. Xie, J. Zhang and Z. Liu
//! ("Half-Tree: Halving the cost of tree expansion in COT and DPF", EUROCRYPT 2023, section 4).
//! Below the root stand `s` and `s + Delta`, and below each node `H(node)` and `node + H(node)`. So
//! the nodes of a level add up to `Delta`, and one sum a level tells both.
//!
//! `H(x) = E(sigma(x)) + sigma(x)`, `E` being AES-128 under a key of this tree alone. The path to
//! the missing leaf consists of `Delta` plus what the receiver knows, and each sibling shows a
//! value of `H` on it. One evaluation of AES thus tests a guess at `Delta` against the nodes under
//! one key. A key a tree leaves `d` of those.
//!
//! Leaf `x` has bit `l` where the path branches to the right at level `l`, so bit 0 is the first.
//! Nodes stand in this order for both parties, with no regard to `alpha`. The receiver expands the
//! missing node as zero and puts the sibling in its place by masks over all nodes of a level: no
//! address and no branch depends on `alpha`.

use pronghorn_ring::SimdLevel;
use subtle::{Choice, ConditionallySelectable};
use zeroize::{Zeroize, ZeroizeOnDrop};

use super::simd::{self, Level};
use crate::{
    Block,
    aes::{Aes128, BATCH},
};

/// A block that is added to one node of a level, by a mask over all of them.
#[derive(Clone, Copy, Zeroize)]
pub struct Patch {
    pub index: u32,
    pub block: Block,
}

impl Patch {
    /// No node has this index.
    pub const NOWHERE: u32 = u32::MAX;
    /// Changes nothing.
    pub const NONE: Self = Self {
        index: Self::NOWHERE,
        block: Block::ZERO,
    };
}

/// The nodes below a root: `first`, and `first` and `delta`.
#[derive(Clone, Copy)]
pub struct Root {
    pub first: Block,
    pub delta: Block,
}

/// Parents of a batch, before and after encryption. Wiped on drop.
#[derive(Zeroize, ZeroizeOnDrop)]
pub struct Scratch {
    pub inputs: [Block; BATCH],
    pub outputs: [Block; BATCH],
}

impl Scratch {
    pub fn new() -> Self {
        Self {
            inputs: [Block::ZERO; BATCH],
            outputs: [Block::ZERO; BATCH],
        }
    }

    /// One on the heap: it stays in its place when its owner moves, so that no copy is left behind.
    pub fn boxed() -> Box<Self> {
        Box::new(Self::new())
    }
}

/// The hash of one tree.
pub struct Tree {
    level: SimdLevel,
    cipher: Aes128,
}

impl Tree {
    /// A tree under an AES key that no other tree has.
    pub fn new(level: SimdLevel, key: Block) -> Self {
        Self {
            level,
            cipher: Aes128::new_at(level, key),
        }
    }

    /// Grows the sender's tree in `nodes`, and calls `left(l, sum)` with the sum of the left nodes
    /// of each level. Bit 0 of the leaves is left as it comes.
    pub fn left_sums(
        &self,
        root: Root,
        nodes: &mut [Block],
        scratch: &mut Scratch,
        mut left: impl FnMut(usize, Block),
    ) {
        (nodes[0], nodes[1]) = (root.first, root.first ^ root.delta);
        left(0, root.first);
        for l in 1..depth(nodes) {
            let [sum, _] = self.grow(Level::WHOLE, &mut nodes[..2 << l], scratch);
            left(l, sum);
        }
    }

    /// The sender's leaves, bit 0 cleared.
    pub fn leaves(&self, root: Root, leaves: &mut [Block], scratch: &mut Scratch) {
        self.left_sums(root, leaves, scratch, |_, _| {});
        simd::finish(self.level, leaves, Patch::NONE, Patch::NONE);
    }

    /// The receiver's leaves: those of the sender but for leaf `alpha`, to which `Delta` is added.
    /// Bit 0 is cleared, and set in leaf `alpha`. `sums[l]` is the sum of the nodes of a level that
    /// branch the other way than `alpha`.
    pub fn punctured_leaves(
        &self,
        alpha: u32,
        sums: &[Block],
        leaves: &mut [Block],
        scratch: &mut Scratch,
    ) {
        leaves[..2].fill(Block::ZERO);
        let mut total = sums[0];
        let mut sibling = Patch {
            index: !alpha & 1,
            block: sums[0],
        };
        for l in 1..depth(leaves) {
            let missing = alpha & ((1 << l) - 1);
            let punctured = Level {
                patch: sibling,
                missing,
            };
            let [left, right] = self.grow(punctured, &mut leaves[..2 << l], scratch);
            let branch = Choice::from((alpha >> l & 1) as u8);
            let known = Block::conditional_select(&right, &left, branch);
            sibling = Patch {
                index: missing | (!alpha & 1 << l),
                block: sums[l] ^ known,
            };
            total = left ^ right ^ sibling.block;
        }
        // All raw leaves add up to Delta, so the others' sum is the missing leaf and Delta.
        let mut missing = Patch {
            index: alpha,
            block: total.with_lsb(),
        };
        simd::finish(self.level, leaves, sibling, missing);
        sibling.zeroize();
        missing.zeroize();
    }

    fn grow(&self, level: Level, nodes: &mut [Block], scratch: &mut Scratch) -> [Block; 2] {
        simd::grow(self.level, &self.cipher, level, nodes, scratch)
    }
}

fn depth(leaves: &[Block]) -> usize {
    leaves.len().ilog2() as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    const DELTA: Block = Block::from_u128(0xfeed << 100 | 0x77);

    /// All leaves, and the sums of the left nodes of each level.
    fn whole(tree: &Tree, depth: usize) -> (Vec<Block>, Vec<Block>) {
        let root = Root {
            first: Block::from_u128(0x1234 << 64 | depth as u128),
            delta: DELTA,
        };
        let (mut nodes, mut sums) = (vec![Block::ONES; 1 << depth], Vec::new());
        let scratch = &mut Scratch::new();
        tree.left_sums(root, &mut nodes, scratch, |l, sum| {
            assert_eq!(l, sums.len());
            sums.push(sum);
        });
        let mut leaves = vec![Block::ONES; 1 << depth];
        tree.leaves(root, &mut leaves, scratch);
        let cleared = nodes
            .iter()
            .map(|node| Block::from_u128(node.to_u128() & !1));
        assert!(cleared.eq(leaves.iter().copied()));
        (leaves, sums)
    }

    #[test]
    fn every_leaf_is_known_but_one() {
        for level in SimdLevel::available() {
            let tree = Tree::new(level, Block::from_u128(9));
            for depth in 1..=8 {
                let (leaves, lefts) = whole(&tree, depth);
                for alpha in (0..1 << depth).step_by(if depth > 6 { 7 } else { 1 }) {
                    // The receiver knows the sum of the side that alpha does not take.
                    let sums: Vec<Block> = (0..depth)
                        .map(|l| lefts[l] ^ DELTA.masked(alpha >> l & 1 == 0))
                        .collect();
                    let mut nodes = vec![Block::ONES; 1 << depth];
                    tree.punctured_leaves(alpha, &sums, &mut nodes, &mut Scratch::new());
                    for (x, (node, leaf)) in (0..).zip(nodes.iter().zip(&leaves)) {
                        let expected = *leaf ^ DELTA.masked(x == alpha);
                        assert!(*node == expected, "{depth} {alpha} {x}");
                    }
                }
            }
        }
    }

    #[test]
    fn levels_of_simd_give_the_same_leaves() {
        for depth in [3, 7, 10] {
            let levels = SimdLevel::available().into_iter();
            let found = levels.map(|level| whole(&Tree::new(level, Block::from_u128(7)), depth));
            let found: Vec<_> = found.collect();
            assert!(found.iter().all(|one| *one == found[0]));
        }
    }

    #[test]
    fn another_key_gives_another_tree() {
        let level = SimdLevel::detect();
        let leaves = |key| whole(&Tree::new(level, Block::from_u128(key)), 6).0;
        let (one, other) = (leaves(1), leaves(2));
        assert!(one.iter().zip(&other).all(|(one, other)| one != other));
    }
}
