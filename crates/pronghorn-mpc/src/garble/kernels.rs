//! The gates of a tile, over vectors of any width. [`reference`](super::reference) is the plain reading.

use bytemuck::{Pod, Zeroable};
use zeroize::DefaultIsZeroes;

use super::residues::{self, Words};
use super::simd::Lanes;
use crate::Block;
use crate::circuit::{NO_SLOT, Op, Operand, Program, Projection, TILE};

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
    /// Labels of the tile's inputs, by bit: zero-labels at the garbler, active ones at the evaluator.
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

/// What garbling needs at hand.
struct Garbling<L: Lanes> {
    lanes: L,
    keys: KeyStream<L>,
    delta: L::Vector,
    sigma_delta: L::Vector,
    tweaks: [L::Vector; TWEAKS],
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

/// Garbles `ops`.
#[inline(always)]
pub(super) fn garble<L: Lanes>(
    lanes: L,
    garbler: &mut GarblerTile<'_>,
    ops: &[Op],
    out: &mut Vec<u8>,
) {
    let delta = lanes.splat(garbler.delta);
    let mut garbling = Garbling {
        lanes,
        keys: KeyStream::new(lanes, &garbler.tile),
        delta,
        sigma_delta: lanes.sigma(delta),
        tweaks: splat(lanes, garbler.tile.tweaks),
    };
    let mut rows = [Labels::ZERO; 2];
    for &op in ops {
        match op {
            Op::Load { to, input } => garbler.tile.load(to, input),
            Op::Xor { to, a, b } => garbler.tile.xor(lanes, to, a, b),
            Op::And { to, a, b } => garbling.and(garbler, to, a, b, &mut rows, out),
            Op::Half { to, a, known } => garbling.half(garbler, to, a, known, out),
            Op::Project(index) => {
                let projection = garbler.tile.program.projections[index as usize];
                garbling.project(garbler, &projection, out);
            }
            Op::AddKnown { known, projection } => {
                let projection = &garbler.tile.program.projections[projection as usize];
                let bits = garbler.knowns[known as usize];
                for each in projection.uses.iter().flatten() {
                    residues::add_known(garbler.tile.registers, garbler.tile.program, each, bits);
                }
            }
            Op::AddEvaluator { .. } => {}
            Op::Multiply { out, u, l } => {
                residues::multiply(
                    garbler.tile.registers,
                    garbler.tile.program,
                    [out, u, l],
                    true,
                );
            }
            Op::Bit {
                output,
                bit,
                revealed,
                from,
            } => {
                let flips = garbler.knowns[from.flip as usize];
                let bits = garbler.tile.colours(lanes, from.slot) ^ flips;
                if revealed {
                    let count = garbler.tile.count;
                    let bits = bits & (u32::MAX >> (32 - count));
                    out.extend_from_slice(&bits.to_le_bytes()[..count.div_ceil(8)]);
                } else {
                    garbler.tile.add_to_output(output, bit, bits);
                }
            }
            Op::Register { output, register } => garbler.tile.copy_register(output, register),
        }
    }
    garbler.tile.key = garbling.keys.number;
}

/// Appends the rows of the instances that there are.
#[inline(always)]
fn emit(rows: &[Labels], count: usize, out: &mut Vec<u8>) {
    for row in rows {
        let bytes: &[u8; 16 * TILE] = bytemuck::cast_ref(&row.0);
        if count == TILE {
            out.extend_from_slice(bytes);
        } else {
            out.extend_from_slice(&bytes[..16 * count]);
        }
    }
}

/// A slot, and [`doubled`] bits of where to add delta to its labels.
struct Flipped {
    slot: usize,
    flips: u64,
}

impl<L: Lanes> Garbling<L> {
    /// An operand with its flips at hand.
    #[inline(always)]
    fn operand(garbler: &GarblerTile<'_>, operand: Operand) -> Flipped {
        Flipped {
            slot: operand.slot as usize,
            flips: doubled(garbler.knowns[operand.flip as usize]),
        }
    }

    /// The label of 0 of `wire + flip`.
    #[inline(always)]
    fn zero_label(&self, garbler: &GarblerTile<'_>, operand: &Flipped, at: usize) -> L::Vector {
        let label = self.lanes.load(&garbler.tile.slots[operand.slot].0, at);
        let flips = self.lanes.mask((operand.flips >> (2 * at)) as u32);
        self.lanes.xor_where(flips, label, self.delta)
    }

    /// A half gate: the generator half goes to row 0, the evaluator half to row 1.
    #[inline(always)]
    fn and(
        &mut self,
        garbler: &mut GarblerTile<'_>,
        to: u32,
        a: Operand,
        b: Operand,
        rows: &mut [Labels; 2],
        out: &mut Vec<u8>,
    ) {
        let steps = garbler.tile.steps();
        let operands = [Self::operand(garbler, a), Self::operand(garbler, b)];
        for lane in (0..KEYS).step_by(L::COUNT) {
            for step in (0..steps).step_by(2) {
                self.and_steps::<2>(
                    garbler,
                    [lane, step],
                    step + 2 >= steps,
                    to,
                    &operands,
                    rows,
                );
            }
        }
        emit(rows, garbler.tile.count, out);
    }

    /// `M` steps from `step` on; `last` if no others take these keys.
    #[inline(always)]
    fn and_steps<const M: usize>(
        &mut self,
        garbler: &mut GarblerTile<'_>,
        [lane, step]: [usize; 2],
        last: bool,
        to: u32,
        operands: &[Flipped; 2],
        rows: &mut [Labels; 2],
    ) {
        let (lanes, delta) = (self.lanes, self.delta);
        let at = |m: usize| KEYS * (step + m) + lane;
        let mut zeros = [[delta; 2]; M];
        let mut sigmas = [[delta; 2]; M];
        let mut blocks = [[delta; 4]; M];
        for m in 0..M {
            for (i, operand) in operands.iter().enumerate() {
                let zero = self.zero_label(garbler, operand, at(m));
                let sigma = lanes.sigma(zero);
                let tweaked = lanes.xor(sigma, self.tweaks[2 * (step + m) + i]);
                (zeros[m][i], sigmas[m][i]) = (zero, sigma);
                blocks[m][2 * i] = tweaked;
                blocks[m][2 * i + 1] = lanes.xor(tweaked, self.sigma_delta);
            }
        }
        let blocks = self.keys.encrypt(blocks, last);
        for m in 0..M {
            let ([a, b], [a0, a1, b0, b1]) = (zeros[m], blocks[m]);
            let (colour_a, colour_b) = (lanes.colours(a), lanes.colours(b));
            // H(A) + H(A + delta) + colour(B) delta, and sigma(A) + sigma(A + delta) = sigma(delta).
            let generator = lanes.xor3(a0, a1, self.sigma_delta);
            let generator = lanes.xor_where(colour_b, generator, delta);
            // H(B) + H(B + delta) + A; what the evaluator adds to its half is this plus A.
            let selected = lanes.xor3(b0, b1, self.sigma_delta);
            let evaluator = lanes.xor(selected, a);
            let zero = lanes.xor3(a0, b0, lanes.xor(sigmas[m][0], sigmas[m][1]));
            let zero = lanes.xor_where(colour_a, zero, generator);
            let zero = lanes.xor_where(colour_b, zero, selected);
            lanes.store(&mut garbler.tile.slots[to as usize].0, at(m), zero);
            lanes.store(&mut rows[0].0, at(m), generator);
            lanes.store(&mut rows[1].0, at(m), evaluator);
        }
    }

    /// The generator half alone: `known` in the place of the colour of the other wire.
    #[inline(always)]
    fn half(
        &mut self,
        garbler: &mut GarblerTile<'_>,
        to: u32,
        a: Operand,
        known: u32,
        out: &mut Vec<u8>,
    ) {
        let mut row = [Labels::ZERO];
        let (known, delta) = (doubled(garbler.knowns[known as usize]), self.delta);
        self.hash_both(garbler, a, |lanes, garbler, at, zero, [hash0, hash1]| {
            let generator = lanes.xor(hash0, hash1);
            let bits = lanes.mask((known >> (2 * at)) as u32);
            let generator = lanes.xor_where(bits, generator, delta);
            let label = lanes.xor_where(lanes.colours(zero), hash0, generator);
            lanes.store(&mut garbler.tile.slots[to as usize].0, at, label);
            lanes.store(&mut row[0].0, at, generator);
        });
        emit(&row, garbler.tile.count, out);
    }

    /// Hashes both labels of `a` and gives `then` each vector's position, zero-label and hashes.
    #[inline(always)]
    fn hash_both(
        &mut self,
        garbler: &mut GarblerTile<'_>,
        a: Operand,
        mut then: impl FnMut(L, &mut GarblerTile<'_>, usize, L::Vector, [L::Vector; 2]),
    ) {
        const M: usize = 4;
        let (lanes, steps) = (self.lanes, garbler.tile.steps());
        let a = &Self::operand(garbler, a);
        for lane in (0..KEYS).step_by(L::COUNT) {
            for step in (0..steps).step_by(M) {
                let at = |m: usize| KEYS * (step + m) + lane;
                let mut zeros = [self.delta; M];
                let mut blocks = [[self.delta; 2]; M];
                for m in 0..M {
                    zeros[m] = self.zero_label(garbler, a, at(m));
                    let sigma = lanes.sigma(zeros[m]);
                    let tweaked = lanes.xor(sigma, self.tweaks[2 * (step + m)]);
                    blocks[m] = [tweaked, lanes.xor(tweaked, self.sigma_delta)];
                }
                let blocks = self.keys.encrypt(blocks, step + M >= steps);
                for m in 0..M {
                    let sigma = lanes.sigma(zeros[m]);
                    let hash0 = lanes.xor(blocks[m][0], sigma);
                    let hash1 = lanes.xor3(blocks[m][1], sigma, self.sigma_delta);
                    then(lanes, garbler, at(m), zeros[m], [hash0, hash1]);
                }
            }
        }
    }

    /// The pads of the two colours, and a correction that makes them differ by the weight.
    #[inline(always)]
    fn project(
        &mut self,
        garbler: &mut GarblerTile<'_>,
        projection: &Projection,
        out: &mut Vec<u8>,
    ) {
        let mut hashes = [Labels::ZERO; 2];
        let mut bits = 0;
        self.hash_both(
            garbler,
            projection.from,
            |lanes, _, at, zero, [hash0, hash1]| {
                // The pads by colour, not by value.
                let difference = lanes.xor(hash0, hash1);
                let colours = lanes.colours(zero);
                bits |= lanes.bits(colours) << at;
                lanes.store(
                    &mut hashes[0].0,
                    at,
                    lanes.xor_where(colours, hash0, difference),
                );
                lanes.store(
                    &mut hashes[1].0,
                    at,
                    lanes.xor_where(colours, hash1, difference),
                );
            },
        );
        let tile = &mut garbler.tile;
        for (word, each) in projection.uses.iter().flatten().enumerate() {
            let pads = [&hashes[0].0, &hashes[1].0];
            let corrections =
                residues::garble(tile.registers, tile.program, each, pads, word, bits);
            residues::pack(&corrections[..tile.count], each.modulus.bits(), out);
        }
    }
}

/// What evaluating needs at hand.
struct Evaluation<L: Lanes> {
    lanes: L,
    keys: KeyStream<L>,
    zero: L::Vector,
    tweaks: [L::Vector; TWEAKS],
}

/// Evaluates `ops`; `tables` has exactly the bytes they take.
#[inline(always)]
pub(super) fn evaluate<L: Lanes>(
    lanes: L,
    evaluator: &mut EvaluatorTile<'_>,
    ops: &[Op],
    mut tables: &[u8],
) {
    let mut evaluation = Evaluation {
        lanes,
        keys: KeyStream::new(lanes, &evaluator.tile),
        zero: lanes.splat(Block::ZERO),
        tweaks: splat(lanes, evaluator.tile.tweaks),
    };
    for &op in ops {
        let tile = &mut evaluator.tile;
        let mut rows = |bytes: usize| tables.split_off(..bytes).unwrap_or_default();
        match op {
            Op::Load { to, input } => tile.load(to, input),
            Op::Xor { to, a, b } => tile.xor(lanes, to, a, b),
            Op::And { to, a, b } => evaluation.and(tile, to, a.slot, b.slot, rows(32 * tile.count)),
            Op::Half { to, a, .. } => evaluation.half(tile, to, a.slot, rows(16 * tile.count)),
            Op::Project(index) => {
                let projection = tile.program.projections[index as usize];
                let corrections = rows(projection.bytes(tile.count));
                evaluation.project(tile, &projection, corrections);
            }
            Op::AddKnown { .. } => {}
            Op::AddEvaluator {
                word,
                bit,
                flip,
                projection,
            } => {
                let at = word as usize * tile.instances + tile.first;
                let values = &evaluator.values[at..at + tile.count];
                let bits = values.iter().enumerate().fold(0, |bits, (i, value)| {
                    bits | ((value >> bit) as u32 & 1 ^ u32::from(flip)) << i
                });
                let projection = &tile.program.projections[projection as usize];
                for each in projection.uses.iter().flatten() {
                    residues::add_known(tile.registers, tile.program, each, bits);
                }
            }
            Op::Multiply { out, u, l } => {
                residues::multiply(tile.registers, tile.program, [out, u, l], false);
            }
            Op::Bit {
                output,
                bit,
                revealed,
                from,
            } => {
                let mut bits = tile.colours(lanes, from.slot);
                if revealed {
                    let mut decoding = [0; 4];
                    let bytes = rows(tile.count.div_ceil(8));
                    decoding[..bytes.len()].copy_from_slice(bytes);
                    bits ^= u32::from_le_bytes(decoding);
                }
                tile.add_to_output(output, bit, bits);
            }
            Op::Register { output, register } => tile.copy_register(output, register),
        }
    }
    evaluator.tile.key = evaluation.keys.number;
}

/// `rows` rows of tables, each of a whole tile: `tables` itself, or in `space` with zeros behind the instances that there are.
#[inline(always)]
fn whole_rows<'a>(
    tables: &'a [u8],
    rows: usize,
    count: usize,
    space: &'a mut [Labels; 2],
) -> &'a [u8] {
    if count == TILE {
        return tables;
    }
    let space: &mut [u8] = bytemuck::cast_slice_mut(space);
    for row in 0..rows {
        let from = &tables[16 * count * row..][..16 * count];
        space[ROW * row..][..from.len()].copy_from_slice(from);
    }
    &space[..ROW * rows]
}

/// Bytes of a row of a whole tile.
const ROW: usize = Block::BYTES * TILE;

impl<L: Lanes> Evaluation<L> {
    /// A half gate.
    #[inline(always)]
    fn and(&mut self, tile: &mut Tile<'_>, to: u32, a: u32, b: u32, tables: &[u8]) {
        const M: usize = 4;
        let mut space = [Labels::ZERO; 2];
        let rows = whole_rows(tables, 2, tile.count, &mut space);
        let (lanes, steps) = (self.lanes, tile.steps());
        for lane in (0..KEYS).step_by(L::COUNT) {
            for step in (0..steps).step_by(M) {
                let at = |m: usize| KEYS * (step + m) + lane;
                let mut sigmas = [[self.zero; 2]; M];
                let mut blocks = [[self.zero; 2]; M];
                for m in 0..M {
                    for (i, slot) in [a, b].into_iter().enumerate() {
                        let label = lanes.load(&tile.slots[slot as usize].0, at(m));
                        sigmas[m][i] = lanes.sigma(label);
                        blocks[m][i] = lanes.xor(sigmas[m][i], self.tweaks[2 * (step + m) + i]);
                    }
                }
                let blocks = self.keys.encrypt(blocks, step + M >= steps);
                for m in 0..M {
                    let a = lanes.load(&tile.slots[a as usize].0, at(m));
                    let b = lanes.load(&tile.slots[b as usize].0, at(m));
                    let generator = lanes.load_row(rows, at(m));
                    let evaluator = lanes.load_row(rows, TILE + at(m));
                    let label = lanes.xor3(blocks[m][0], blocks[m][1], sigmas[m][0]);
                    let label = lanes.xor(label, sigmas[m][1]);
                    let label = lanes.xor_where(lanes.colours(a), label, generator);
                    let label = lanes.xor_where(lanes.colours(b), label, lanes.xor(evaluator, a));
                    lanes.store(&mut tile.slots[to as usize].0, at(m), label);
                }
            }
        }
    }

    #[inline(always)]
    fn half(&mut self, tile: &mut Tile<'_>, to: u32, a: u32, tables: &[u8]) {
        let mut space = [Labels::ZERO; 2];
        let row = whole_rows(tables, 1, tile.count, &mut space);
        self.hash(tile, a, |lanes, tile, at, label, hash| {
            let generator = lanes.load_row(row, at);
            let label = lanes.xor_where(lanes.colours(label), hash, generator);
            lanes.store(&mut tile.slots[to as usize].0, at, label);
        });
    }

    /// Hashes the label of `a` and gives `then` each vector's position, label and hash.
    #[inline(always)]
    fn hash(
        &mut self,
        tile: &mut Tile<'_>,
        a: u32,
        mut then: impl FnMut(L, &mut Tile<'_>, usize, L::Vector, L::Vector),
    ) {
        const M: usize = 8;
        let (lanes, steps) = (self.lanes, tile.steps());
        for lane in (0..KEYS).step_by(L::COUNT) {
            for step in (0..steps).step_by(M) {
                let at = |m: usize| KEYS * (step + m) + lane;
                let mut labels = [self.zero; M];
                let mut blocks = [[self.zero]; M];
                for m in 0..M {
                    labels[m] = lanes.load(&tile.slots[a as usize].0, at(m));
                    let sigma = lanes.sigma(labels[m]);
                    blocks[m] = [lanes.xor(sigma, self.tweaks[2 * (step + m)])];
                }
                let blocks = self.keys.encrypt(blocks, step + M >= steps);
                for m in 0..M {
                    let hash = lanes.xor(blocks[m][0], lanes.sigma(labels[m]));
                    then(lanes, tile, at(m), labels[m], hash);
                }
            }
        }
    }

    #[inline(always)]
    fn project(&mut self, tile: &mut Tile<'_>, projection: &Projection, mut corrections: &[u8]) {
        let mut pads = Labels::ZERO;
        let slot = projection.from.slot;
        let colours = tile.colours(self.lanes, slot);
        self.hash(tile, slot, |lanes, _, at, _, hash| {
            lanes.store(&mut pads.0, at, hash);
        });
        for (word, each) in projection.uses.iter().flatten().enumerate() {
            let bytes = each.bytes(tile.count);
            let packed = corrections.split_off(..bytes).unwrap_or_default();
            let corrections = residues::unpack(packed, tile.count, each.modulus.bits());
            residues::evaluate(
                tile.registers,
                tile.program,
                each,
                &pads.0,
                word,
                colours,
                &corrections,
            );
        }
    }
}
