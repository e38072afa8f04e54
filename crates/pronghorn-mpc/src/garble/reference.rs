//! Garbling and evaluating one instance and one gate at a time: to read, and to test against.

use super::hash::{hash, tweaks};
use super::kernels::KEYS;
use super::labels::Delta;
use crate::Block;
use crate::circuit::{Circuit, Known, Modulus, NO_SLOT, Op, Operand, Program, TILE, Use, Weight};

/// One instance of a tile at one of the parties.
struct Instance {
    /// The labels of the wires that are alive: zero-labels at the garbler, active ones at the evaluator.
    slots: Vec<Block>,
    registers: Vec<u64>,
    /// The known bits, at the garbler.
    knowns: Vec<bool>,
}

impl Instance {
    fn new(program: &Program) -> Self {
        Self {
            slots: vec![Block::ZERO; program.slots],
            registers: vec![0; program.registers.len()],
            knowns: Vec::new(),
        }
    }

    /// The label of a bit without the flip; zero for a bit without a wire.
    fn label(&self, operand: Operand) -> Block {
        match operand.slot {
            NO_SLOT => Block::ZERO,
            slot => self.slots[slot as usize],
        }
    }

    /// The weight of a use: the garbler's, since a secret one is made of its shares.
    fn weight(&self, each: &Use) -> u64 {
        match each.weight {
            Weight::Public(factor) => factor,
            Weight::Share { factor, register } => {
                each.modulus.mul(factor, self.registers[register as usize])
            }
        }
    }

    fn accumulate(&mut self, program: &Program, each: &Use, share: u64) {
        let modulus = program.registers[each.register as usize];
        let register = &mut self.registers[each.register as usize];
        *register = modulus.add(*register, share << each.shift);
    }
}

/// The hashes of a gate: `which` is 0 for its first operand and 1 for its second.
struct Hashes {
    start: Block,
    tweaks: [Block; 2 * TILE / KEYS],
    /// Number of the first key of the gate.
    key: u64,
}

impl Hashes {
    fn of(&self, instance: usize, which: usize, label: Block) -> Block {
        let key = self.key + (instance % KEYS) as u64;
        hash(
            self.start,
            key,
            self.tweaks[2 * (instance / KEYS) + which],
            label,
        )
    }
}

/// The tables of a batch, header included, and the garbler's words of the outputs. The arguments are those of
/// [`Garbler::new`](super::Garbler::new).
pub fn garble(
    circuit: &Circuit,
    instances: usize,
    delta: &Delta,
    start: Block,
    values: &[u64],
    zero_labels: &[Block],
) -> (Vec<u8>, Vec<u64>) {
    let (program, delta) = (circuit.program(), delta.block());
    let mut out = start.to_bytes().to_vec();
    let mut outputs = vec![0; circuit.openings().len() * instances];
    let mut hashes = Hashes {
        start,
        tweaks: tweaks(start),
        key: 0,
    };
    for first in (0..instances).step_by(TILE) {
        let count = TILE.min(instances - first);
        let labels = &zero_labels[first * circuit.labelled_bits()..];
        let mut tile: Vec<_> = (0..count)
            .map(|i| {
                let mut instance = Instance::new(program);
                instance.knowns = knowns(program, values, instances, first + i);
                instance
            })
            .collect();
        for &op in &program.ops {
            let mut rows = [vec![], vec![]];
            let mut bits = vec![];
            for (i, instance) in tile.iter_mut().enumerate() {
                let zero_label = |operand: Operand| {
                    instance.label(operand) ^ delta.masked(instance.knowns[operand.flip as usize])
                };
                match op {
                    Op::Load { to, input } => {
                        instance.slots[to as usize] = labels[input as usize * count + i];
                    }
                    Op::Xor { to, a, b } => {
                        let label = instance.slots[a as usize] ^ instance.slots[b as usize];
                        instance.slots[to as usize] = label;
                    }
                    Op::And { to, a, b } => {
                        let (a, b) = (zero_label(a), zero_label(b));
                        let [a0, a1] = [a, a ^ delta].map(|label| hashes.of(i, 0, label));
                        let [b0, b1] = [b, b ^ delta].map(|label| hashes.of(i, 1, label));
                        let generator = a0 ^ a1 ^ delta.masked(b.lsb());
                        let evaluator = b0 ^ b1 ^ a;
                        let generator_zero = a0 ^ generator.masked(a.lsb());
                        let evaluator_zero = b0 ^ (evaluator ^ a).masked(b.lsb());
                        instance.slots[to as usize] = generator_zero ^ evaluator_zero;
                        rows[0].push(generator);
                        rows[1].push(evaluator);
                    }
                    Op::Half { to, a, known } => {
                        let a = zero_label(a);
                        let [a0, a1] = [a, a ^ delta].map(|label| hashes.of(i, 0, label));
                        let generator = a0 ^ a1 ^ delta.masked(instance.knowns[known as usize]);
                        instance.slots[to as usize] = a0 ^ generator.masked(a.lsb());
                        rows[0].push(generator);
                    }
                    Op::Project(_) | Op::AddEvaluator { .. } => {}
                    Op::AddKnown { known, projection } => {
                        let uses = program.projections[projection as usize].uses;
                        for each in uses.iter().flatten() {
                            let bit = u64::from(instance.knowns[known as usize]);
                            let share = instance.weight(each) * bit;
                            instance.accumulate(program, each, share);
                        }
                    }
                    Op::Multiply { out, u, l } => multiply(program, instance, [out, u, l], true),
                    Op::Bit {
                        output,
                        bit,
                        revealed,
                        from,
                    } => {
                        let share = zero_label(from).lsb();
                        if revealed {
                            bits.push((u64::from(share), 1));
                        } else {
                            outputs[output as usize * instances + first + i] |=
                                u64::from(share) << bit;
                        }
                    }
                    Op::Register { output, register } => {
                        outputs[output as usize * instances + first + i] =
                            std::mem::take(&mut instance.registers[register as usize]);
                    }
                }
            }
            for row in &rows {
                out.extend(row.iter().flat_map(|block| block.to_bytes()));
            }
            pack(&bits, &mut out);
            if let Op::Project(index) = op {
                let projection = program.projections[index as usize];
                for (word, each) in projection.uses.iter().flatten().enumerate() {
                    let mut corrections = vec![];
                    for (i, instance) in tile.iter_mut().enumerate() {
                        let flip = instance.knowns[projection.from.flip as usize];
                        let zero = instance.label(projection.from) ^ delta.masked(flip);
                        let pad = |label| uniform(each.modulus, hashes.of(i, 0, label), word);
                        let (pad0, pad1) = (pad(zero), pad(zero ^ delta));
                        // The evaluator has the bit times the weight, less the garbler's share. Where its colour is 0 that
                        // is its pad; else the correction is added.
                        let (modulus, weight) = (each.modulus, instance.weight(each));
                        let (share, other) = if zero.lsb() {
                            let share = modulus.sub(weight, pad1);
                            (share, modulus.sub(modulus.neg(share), pad0))
                        } else {
                            let share = modulus.neg(pad0);
                            (share, modulus.sub(modulus.sub(weight, share), pad1))
                        };
                        instance.accumulate(program, each, share);
                        corrections.push((other, modulus.bits()));
                    }
                    pack(&corrections, &mut out);
                }
            }
            if matches!(op, Op::And { .. } | Op::Half { .. } | Op::Project(_)) {
                hashes.key += KEYS as u64;
            }
        }
    }
    (out, outputs)
}

/// The evaluator's words of the outputs. The arguments are those of [`Evaluator::new`](super::Evaluator::new), and the whole
/// of the tables.
///
/// # Panics
/// Where bytes of tables are missing.
pub fn evaluate(
    circuit: &Circuit,
    instances: usize,
    values: &[u64],
    labels: &[Block],
    tables: &[u8],
) -> Vec<u64> {
    let program = circuit.program();
    let (start, mut tables) = tables.split_first_chunk().expect("a header");
    let start = Block::from_bytes(*start);
    let mut outputs = vec![0; circuit.openings().len() * instances];
    let mut hashes = Hashes {
        start,
        tweaks: tweaks(start),
        key: 0,
    };
    for first in (0..instances).step_by(TILE) {
        let count = TILE.min(instances - first);
        let labels = &labels[first * circuit.labelled_bits()..];
        let mut tile: Vec<_> = (0..count).map(|_| Instance::new(program)).collect();
        for &op in &program.ops {
            let bytes = tables.split_off(..program.op_bytes(op, count));
            let bytes = bytes.expect("tables of the right length");
            let row = |row: usize, i: usize| -> Block {
                bytemuck::pod_read_unaligned(&bytes[16 * (row * count + i)..][..16])
            };
            for (i, instance) in tile.iter_mut().enumerate() {
                match op {
                    Op::Load { to, input } => {
                        instance.slots[to as usize] = labels[input as usize * count + i];
                    }
                    Op::Xor { to, a, b } => {
                        let label = instance.slots[a as usize] ^ instance.slots[b as usize];
                        instance.slots[to as usize] = label;
                    }
                    Op::And { to, a, b } => {
                        let (a, b) = (instance.label(a), instance.label(b));
                        let generator = hashes.of(i, 0, a) ^ row(0, i).masked(a.lsb());
                        let evaluator = hashes.of(i, 1, b) ^ (row(1, i) ^ a).masked(b.lsb());
                        instance.slots[to as usize] = generator ^ evaluator;
                    }
                    Op::Half { to, a, .. } => {
                        let a = instance.label(a);
                        instance.slots[to as usize] =
                            hashes.of(i, 0, a) ^ row(0, i).masked(a.lsb());
                    }
                    Op::Project(index) => {
                        let projection = program.projections[index as usize];
                        let label = instance.label(projection.from);
                        let mut from = 0;
                        for (word, each) in projection.uses.iter().flatten().enumerate() {
                            let corrections = &bytes[from..];
                            let correction = unpack(corrections, i, each.modulus.bits())
                                * u64::from(label.lsb());
                            let pad = uniform(each.modulus, hashes.of(i, 0, label), word);
                            let share = each.modulus.add(pad, each.modulus.add(correction, 0));
                            instance.accumulate(program, each, share);
                            from += each.bytes(count);
                        }
                    }
                    Op::AddKnown { .. } => {}
                    Op::AddEvaluator {
                        word,
                        bit,
                        flip,
                        projection,
                    } => {
                        let value = values[word as usize * instances + first + i];
                        let bit = (value >> bit & 1 == 1) ^ flip;
                        for each in program.projections[projection as usize]
                            .uses
                            .iter()
                            .flatten()
                        {
                            let share = instance.weight(each) * u64::from(bit);
                            instance.accumulate(program, each, share);
                        }
                    }
                    Op::Multiply { out, u, l } => multiply(program, instance, [out, u, l], false),
                    Op::Bit {
                        output,
                        bit,
                        revealed,
                        from,
                    } => {
                        let decoding = revealed && unpack(bytes, i, 1) == 1;
                        outputs[output as usize * instances + first + i] |=
                            u64::from(instance.label(from).lsb() ^ decoding) << bit;
                    }
                    Op::Register { output, register } => {
                        outputs[output as usize * instances + first + i] =
                            std::mem::take(&mut instance.registers[register as usize]);
                    }
                }
            }
            if matches!(op, Op::And { .. } | Op::Half { .. } | Op::Project(_)) {
                hashes.key += KEYS as u64;
            }
        }
    }
    outputs
}

fn knowns(program: &Program, values: &[u64], instances: usize, instance: usize) -> Vec<bool> {
    let mut knowns: Vec<bool> = Vec::with_capacity(program.knowns.len());
    for known in &program.knowns {
        knowns.push(match *known {
            Known::Constant(bit) => bit,
            Known::Input(word, bit) => values[word as usize * instances + instance] >> bit & 1 == 1,
            Known::Xor(a, b) => knowns[a as usize] ^ knowns[b as usize],
            Known::And(a, b) => knowns[a as usize] & knowns[b as usize],
        });
    }
    knowns
}

fn multiply(program: &Program, instance: &mut Instance, [out, u, l]: [u32; 3], garbler: bool) {
    let modulus = program.registers[out as usize];
    let [u, l] = [u, l].map(|at| std::mem::take(&mut instance.registers[at as usize]));
    let product = modulus.mul(u, l);
    let out = &mut instance.registers[out as usize];
    *out = if garbler {
        modulus.sub(*out, product)
    } else {
        modulus.add(*out, product)
    };
}

/// The residue of a hash: of its `word`-th 64 bits modulo a power of two, of all 128 modulo a prime.
fn uniform(modulus: Modulus, hash: Block, word: usize) -> u64 {
    match modulus {
        Modulus::PowerOfTwo(modulus) => modulus.reduce((hash.to_u128() >> (64 * word)) as u64),
        Modulus::Prime(prime) => (hash.to_u128() % u128::from(prime.value())) as u64,
    }
}

/// Appends words of some bits as one little-endian bit stream, padded with zeros to a whole byte.
fn pack(words: &[(u64, u32)], out: &mut Vec<u8>) {
    let bits: Vec<bool> = words
        .iter()
        .flat_map(|&(word, width)| (0..width).map(move |i| word >> i & 1 == 1))
        .collect();
    let byte = |bits: &[bool]| {
        bits.iter()
            .rev()
            .fold(0, |byte, &bit| byte << 1 | u8::from(bit))
    };
    out.extend(bits.chunks(8).map(byte));
}

/// The `index`-th word of `width` bits.
fn unpack(bytes: &[u8], index: usize, width: u32) -> u64 {
    let bit = |at: usize| u64::from(bytes[at / 8] >> (at % 8) & 1);
    let first = index * width as usize;
    (0..width as usize).map(|i| bit(first + i) << i).sum()
}
