//! The gates of a tile, over vectors of any width. [`reference`](super::reference) is the plain
//! reading.

mod evaluate;
mod garble;

use bytemuck::{Pod, Zeroable};
use zeroize::DefaultIsZeroes;

pub(super) use evaluate::evaluate;
pub(super) use garble::garble;

use super::residues::Words;
use super::simd::Lanes;
use crate::Block;
use crate::circuit::{NO_SLOT, Program, TILE};

/// AES keys of a gate: instance `i` has key `i mod 4`, so that each lane of a vector has its own.
pub(super) const KEYS: usize = 4;
/// Instances that share a key in a gate.
pub(super) const STEPS: usize = TILE / KEYS;
/// Labels that a key hashes in a gate: of two wires in each step.
pub(super) const TWEAKS: usize = 2 * STEPS;

/// The labels of a wire for a tile of instances.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C, align(64))]
pub(super) struct Labels(pub [Block; TILE]);

impl Labels {
    pub const ZERO: Self = Self([Block::ZERO; TILE]);
}

impl Default for Labels {
    fn default() -> Self {
        Self::ZERO
    }
}

impl DefaultIsZeroes for Labels {}

/// What both parties know of a tile, and where its labels are.
pub(super) struct Tile<'a> {
    pub program: &'a Program,
    /// The start of the AES keys.
    pub start: Block,
    pub tweaks: &'a [Block; TWEAKS],
    /// Number of the next AES key.
    pub key: u64,
    /// Instances of the tile.
    pub count: usize,
    /// Its first instance, and the instances of all tiles.
    pub first: usize,
    pub instances: usize,
    /// Labels of the tile's inputs, by bit: zero-labels at the garbler, active ones at the
    /// evaluator.
    pub inputs: &'a [Block],
    pub slots: &'a mut [Labels],
    pub registers: &'a mut [Words],
    /// This party's words of the outputs. By output, then by instance.
    pub outputs: &'a mut [u64],
}

pub(super) struct GarblerTile<'a> {
    pub tile: Tile<'a>,
    pub delta: Block,
    /// The known bits, of instance `i` in bit `i`.
    pub knowns: &'a [u32],
}

pub(super) struct EvaluatorTile<'a> {
    pub tile: Tile<'a>,
    /// The words of the evaluator. By word, then by instance.
    pub values: &'a [u64],
}

/// The AES keys of a run of gates, one vector of them after the other.
struct KeyStream<L: Lanes> {
    lanes: L,
    start: Block,
    /// Number of the first key of `keys`.
    number: u64,
    keys: L::Keys,
}

impl<L: Lanes> KeyStream<L> {
    #[inline(always)]
    fn new(lanes: L, tile: &Tile<'_>) -> Self {
        Self {
            lanes,
            start: tile.start,
            number: tile.key,
            keys: lanes.expand(tile.start, tile.key),
        }
    }

    /// Encrypts blocks, and goes to the next keys if these are the `last` ones of the keys.
    #[inline(always)]
    fn encrypt<const N: usize, const M: usize>(
        &mut self,
        blocks: [[L::Vector; N]; M],
        last: bool,
    ) -> [[L::Vector; N]; M] {
        if !last {
            return self.lanes.encrypt(&self.keys, blocks);
        }
        self.number += L::COUNT as u64;
        self.lanes
            .encrypt_expand(&mut self.keys, blocks, self.start, self.number)
    }
}

impl Tile<'_> {
    #[inline(always)]
    fn load(&mut self, to: u32, input: u32) {
        let from = &self.inputs[input as usize * self.count..][..self.count];
        let to = &mut self.slots[to as usize].0;
        match <&[Block; TILE]>::try_from(from) {
            Ok(from) => *to = *from,
            Err(_) => to[..from.len()].copy_from_slice(from),
        }
    }

    #[inline(always)]
    fn xor<L: Lanes>(&mut self, lanes: L, to: u32, a: u32, b: u32) {
        for at in (0..TILE).step_by(L::COUNT) {
            let a = lanes.load(&self.slots[a as usize].0, at);
            let b = lanes.load(&self.slots[b as usize].0, at);
            lanes.store(&mut self.slots[to as usize].0, at, lanes.xor(a, b));
        }
    }

    /// The lowest bits of a slot's labels, of instance `i` in bit `i`.
    #[inline(always)]
    fn colours<L: Lanes>(&self, lanes: L, slot: u32) -> u32 {
        let mut bits = 0;
        if slot != NO_SLOT {
            for at in (0..TILE).step_by(L::COUNT) {
                let labels = lanes.load(&self.slots[slot as usize].0, at);
                bits |= lanes.bits(lanes.colours(labels)) << at;
            }
        }
        bits
    }

    /// Adds bits to a word of the outputs.
    #[inline(always)]
    fn add_to_output(&mut self, output: u32, bit: u8, bits: u32) {
        let words = self.output(output).iter_mut().enumerate();
        words.for_each(|(i, word)| *word |= u64::from(bits >> i & 1) << bit);
    }

    #[inline(always)]
    fn output(&mut self, output: u32) -> &mut [u64] {
        let at = output as usize * self.instances + self.first;
        &mut self.outputs[at..at + self.count]
    }

    #[inline(always)]
    fn copy_register(&mut self, output: u32, register: u32) {
        let (words, count) = (self.registers[register as usize], self.count);
        self.output(output).copy_from_slice(&words[..count]);
        self.registers[register as usize] = [0; TILE];
    }

    /// Steps that have instances.
    #[inline(always)]
    fn steps(&self) -> usize {
        self.count.div_ceil(KEYS)
    }
}

/// Each bit twice: bit `i` in bits `2i` and `2i + 1`, as [`Lanes::mask`] takes them.
#[inline(always)]
fn doubled(bits: u32) -> u64 {
    let mut spread = u64::from(bits);
    for (shift, mask) in [
        (16, 0x0000_ffff_0000_ffff),
        (8, 0x00ff_00ff_00ff_00ff),
        (4, 0x0f0f_0f0f_0f0f_0f0f),
        (2, 0x3333_3333_3333_3333),
        (1, 0x5555_5555_5555_5555),
    ] {
        spread = (spread | spread << shift) & mask;
    }
    3 * spread
}

/// `tweaks` in every lane.
#[inline(always)]
fn splat<L: Lanes>(lanes: L, tweaks: &[Block; TWEAKS]) -> [L::Vector; TWEAKS] {
    let mut vectors = [lanes.splat(Block::ZERO); TWEAKS];
    for (vector, &tweak) in vectors.iter_mut().zip(tweaks) {
        *vector = lanes.splat(tweak);
    }
    vectors
}
