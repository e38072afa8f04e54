//! The definition, one block at a time, from the state that the parties draw.

use super::*;
use crate::aes::Aes128;
use pronghorn_ring::random::Prg;

/// Public values of a run.
pub struct Public {
    context: [u8; 32],
}

impl Public {
    pub fn new(connection: &[u8; 32], first: u64) -> Self {
        let mut hasher = blake3::Hasher::new_derive_key("pronghorn silent ot run");
        hasher.update(connection);
        hasher.update(&first.to_le_bytes());
        Self {
            context: *hasher.finalize().as_bytes(),
        }
    }

    fn block(&self, domain: &'static str) -> u128 {
        let hash = blake3::derive_key(domain, &self.context);
        u128::from_le_bytes(*hash.first_chunk().unwrap())
    }

    /// `E(sigma(x)) + sigma(x)` under the key of a tree.
    pub fn hash(&self, round: usize, tree: usize, x: Block) -> Block {
        let key = self.block("pronghorn silent ot keys of the trees");
        let key = key ^ (round as u128) << 32 ^ tree as u128;
        encrypt(key, x.sigma()) ^ x.sigma()
    }

    /// Leaf `x` below a root, bit 0 cleared.
    fn leaf(&self, round: usize, tree: usize, root: Block, depth: usize, x: usize) -> Block {
        let mut node = root ^ DELTA.masked(x & 1 == 1);
        for level in 1..depth {
            let left = self.hash(round, tree, node);
            node = left ^ node.masked(x >> level & 1 == 1);
        }
        Block::from_u128(node.to_u128() & !1)
    }

    /// The sum of the secrets of a row.
    fn row(&self, row: usize, secrets: &[Block]) -> Block {
        let key = self.block("pronghorn silent ot key of the indices");
        (10 * row..10 * row + 10).fold(Block::ZERO, |sum, word| {
            let block = encrypt(key, Block::from_u128(word as u128 / 4)).to_u128();
            let index = (block >> (32 * (word % 4))) as u32 as usize;
            sum ^ secrets[index % secrets.len()]
        })
    }
}

fn encrypt(key: u128, x: Block) -> Block {
    let mut x = [x];
    Aes128::new_at(SimdLevel::Portable, Block::from_u128(key)).encrypt(&mut x);
    x[0]
}

/// All OTs of two rounds, those of the refill included, from the base OTs and the sender's seed.
#[test]
fn blocks_are_those_of_the_definition() {
    let mut connection = pair(DELTA, WIDTH);
    let name = *connection.0.connection();
    let mut run = Run::begin_with(TOYS, [SimdLevel::detect(); 2], &mut connection);
    let public = Public::new(&name, 0);
    let roots = Prg::new(&seeds()[1], "pronghorn silent ot roots of the trees");
    let mut base = run.sender.stream.base.to_vec();
    for round in 0..2 {
        run.round();
        let mut drawn = vec![Block::ZERO; TOY.trees()];
        roots
            .stream(round as u64)
            .fill(bytemuck::cast_slice_mut(&mut drawn));
        let all: Vec<Block> = (0..TOY.outputs())
            .map(|j| {
                let (tree, x) = (j / TOY.leaves(), j % TOY.leaves());
                let leaf = public.leaf(round, tree, drawn[tree], TOY.depth(), x);
                leaf ^ public.row(round * TOY.outputs() + j, &base[..TOY.secrets()])
            })
            .collect();
        let [q, _] = run.take_all();
        let reserved = TOY.outputs() - q.len();
        assert!(q == all[reserved..]);
        base = all[..TOY.base()].to_vec();
    }
}

/// A trusted party's OTs: what the receiver has determines what the sender has, and the choices are
/// those that the receiver's base OTs and trees say.
#[test]
fn choices_are_the_code_on_the_secrets_and_the_noise() {
    let mut connection = pair(DELTA, WIDTH);
    let name = *connection.0.connection();
    let mut run = Run::begin_with(TOYS, [SimdLevel::detect(); 2], &mut connection);
    let public = Public::new(&name, 0);
    let base = run.receiver.stream.base.to_vec();
    run.round();
    let alphas = run.receiver.trees.alphas.to_vec();
    for (tree, alpha) in alphas.iter().enumerate() {
        let levels = &base[TOY.secrets() + tree * TOY.depth()..][..TOY.depth()];
        let bits = levels
            .iter()
            .rev()
            .fold(0, |bits, t| bits << 1 | u32::from(!t.lsb()));
        assert_eq!(*alpha, bits);
    }
    let [_, t] = run.take_all();
    let reserved = TOY.outputs() - t.len();
    for (j, t) in (reserved..).zip(t) {
        let noise = alphas[j / TOY.leaves()] as usize == j % TOY.leaves();
        let secrets = &base[..TOY.secrets()];
        assert_eq!(t.lsb(), public.row(j, secrets).lsb() ^ noise);
    }
}
