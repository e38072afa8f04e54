//! Trees of seeds of which one party misses one leaf: `(2^w - 1)`-out-of-`2^w` OT from `w` base
//! OTs, by the puncturable PRF of Goldreich, Goldwasser and Micali, as in SoftSpokenOT (L. Roy,
//! CRYPTO 2022).
//!
//! A tree of `w` levels has `2^w` leaves `x`, the bit of weight `2^(w-1)` of `x` chosen first. The
//! one party has the root. The other has all leaves but `alpha`: for each level it took, by a base
//! OT, the sum of those nodes of the level that branch the other way than `alpha`, and takes off
//! the ones it knows.
//!
//! The second party numbers nodes by `y = x + alpha` (bitwise), so that what it misses is always
//! `y = 0` and no address depends on `alpha`.

use subtle::{Choice, ConditionallySelectable};
use zeroize::{Zeroize, Zeroizing};

use super::base::Key;

/// The two children of `node`: BLAKE3, keyed with the node.
fn children(node: &Key) -> Zeroizing<[Key; 2]> {
    let mut hasher = blake3::Hasher::new_keyed(node);
    hasher.update(b"children");
    let mut children = Zeroizing::new([[0; 32]; 2]);
    let mut output = hasher.finalize_xof();
    output.fill(children.as_flattened_mut());
    output.zeroize();
    hasher.zeroize();
    children
}

fn add(x: &mut Key, y: &Key) {
    for (x, y) in x.iter_mut().zip(y) {
        *x ^= y;
    }
}

/// The next level below `nodes`.
fn grow(nodes: &[Key]) -> Zeroizing<Vec<Key>> {
    let mut next = Zeroizing::new(vec![[0; 32]; 2 * nodes.len()]);
    for (node, next) in nodes.iter().zip(next.as_chunks_mut::<2>().0) {
        *next = *children(node);
    }
    next
}

/// All `2^width` leaves below `root`, in order.
pub(crate) fn leaves(root: &Key, width: usize) -> Zeroizing<Vec<Key>> {
    (0..width).fold(Zeroizing::new(vec![*root]), |nodes, _| grow(&nodes))
}

/// For each bit of the leaves' numbers, lowest first: the sums of the nodes that branch to 0 and to
/// 1 there. `base` masks them: the party that must learn the one sum has the one key.
pub(crate) fn masked_sums(root: &Key, base: &[[Key; 2]]) -> Vec<[Key; 2]> {
    let mut nodes = Zeroizing::new(vec![*root]);
    let mut sums: Vec<[Key; 2]> = base
        .iter()
        .rev()
        .map(|keys| {
            nodes = grow(&nodes);
            let mut sums = *keys;
            for pair in nodes.as_chunks::<2>().0 {
                add(&mut sums[0], &pair[0]);
                add(&mut sums[1], &pair[1]);
            }
            sums
        })
        .collect();
    sums.reverse();
    sums
}

/// One level of the punctured tree: `nodes[y]` for `y > 0` known, the children ordered by `y`,
/// `branch` being `alpha`'s bit. Children 0 and 1 are left zero.
fn grow_punctured(nodes: &[Key], branch: Choice) -> Zeroizing<Vec<Key>> {
    let mut next = Zeroizing::new(vec![[0; 32]; 2 * nodes.len()]);
    for (node, next) in nodes.iter().zip(next.as_chunks_mut::<2>().0).skip(1) {
        let children = children(node);
        next[0] = Key::conditional_select(&children[0], &children[1], branch);
        next[1] = Key::conditional_select(&children[1], &children[0], branch);
    }
    next
}

/// The siblings of the path to leaf `alpha`, by bits of the leaves' numbers, lowest first: what the
/// punctured tree grows from. `base` are the keys for the bits that `alpha` does not have.
///
/// `alpha(level)` is bit `level` of `alpha`.
pub(crate) fn siblings(
    alpha: impl Fn(usize) -> Choice,
    base: &[Key],
    masked: &[[Key; 2]],
    siblings: &mut [Key],
) {
    let mut nodes = Zeroizing::new(vec![[0; 32]]);
    for (level, sibling) in siblings.iter_mut().enumerate().rev() {
        nodes = grow_punctured(&nodes, alpha(level));
        *sibling = Key::conditional_select(&masked[level][1], &masked[level][0], alpha(level));
        add(sibling, &base[level]);
        for pair in nodes.as_chunks::<2>().0 {
            add(sibling, &pair[1]);
        }
        nodes[1] = *sibling;
    }
}

/// The leaves by `y`; leaf 0 is missing (zero).
pub(crate) fn punctured_leaves(
    alpha: impl Fn(usize) -> Choice,
    siblings: &[Key],
) -> Zeroizing<Vec<Key>> {
    let mut nodes = Zeroizing::new(vec![[0; 32]]);
    for (level, sibling) in siblings.iter().enumerate().rev() {
        nodes = grow_punctured(&nodes, alpha(level));
        nodes[1] = *sibling;
    }
    nodes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_leaf_but_one() {
        for width in 1..=5 {
            let root = [width as u8; 32];
            let base: Vec<[Key; 2]> = (0..width as u8).map(|i| [[i; 32], [100 + i; 32]]).collect();
            let masked = masked_sums(&root, &base);
            let leaves = leaves(&root, width);
            for alpha in 0..1 << width {
                let bits: Vec<usize> = (0..width).map(|i| alpha >> i & 1).collect();
                let keys: Vec<Key> = base.iter().zip(&bits).map(|(k, &b)| k[1 - b]).collect();
                let bit = |level: usize| Choice::from(bits[level] as u8);
                let mut path = vec![[0; 32]; width];
                siblings(bit, &keys, &masked, &mut path);
                let punctured = punctured_leaves(bit, &path);
                assert_eq!(punctured[0], [0; 32]);
                assert!((1..1 << width).all(|y| punctured[y] == leaves[y ^ alpha]));
            }
        }
    }
}
