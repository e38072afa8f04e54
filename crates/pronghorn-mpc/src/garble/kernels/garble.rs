//! Garbling the gates of a tile.

use super::{GarblerTile, KEYS, KeyStream, Labels, TWEAKS, doubled, splat};
use crate::{
    circuit::{Op, Operand, Projection, TILE},
    garble::{residues, simd::Lanes},
};

/// What garbling needs at hand.
struct Garbling<L: Lanes> {
    lanes: L,
    keys: KeyStream<L>,
    delta: L::Vector,
    sigma_delta: L::Vector,
    tweaks: [L::Vector; TWEAKS],
}

/// Garbles `ops`.
#[inline(always)]
pub(in crate::garble) fn garble<L: Lanes>(
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
            // H(A) + H(A + delta) + colour(B) delta, and sigma(A) + sigma(A + delta) =
            // sigma(delta).
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
