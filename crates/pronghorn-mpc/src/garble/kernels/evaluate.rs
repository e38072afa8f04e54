//! Evaluating the gates of a tile.

use super::{EvaluatorTile, KEYS, KeyStream, Labels, TWEAKS, Tile, splat};
use crate::{
    Block,
    circuit::{Op, Projection, TILE},
    garble::{residues, simd::Lanes},
};

/// What evaluating needs at hand.
struct Evaluation<L: Lanes> {
    lanes: L,
    keys: KeyStream<L>,
    zero: L::Vector,
    tweaks: [L::Vector; TWEAKS],
}

/// Evaluates `ops`; `tables` has exactly the bytes they take.
#[inline(always)]
pub(in crate::garble) fn evaluate<L: Lanes>(
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

/// `rows` rows of tables, each of a whole tile: `tables` itself, or in `space` with zeros behind
/// the instances that there are.
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
