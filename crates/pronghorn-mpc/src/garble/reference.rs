//! Garbling and evaluating one instance and one gate at a time: to read, and to test against.

use super::hash::{hash, tweaks};
use super::kernels::KEYS;
use super::labels::Delta;
use crate::Block;
use crate::circuit::{Circuit, Known, Modulus, NO_SLOT, Op, Operand, Program, TILE, Use, Weight};

/// One instance of a tile at one of the parties.
struct Instance {
    /// The labels of the wires that are alive: zero-labels at the garbler, active ones at the
    /// evaluator.
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

    fn xor(&mut self, to: u32, a: u32, b: u32) {
        self.slots[to as usize] = self.slots[a as usize] ^ self.slots[b as usize];
    }

    /// Adds a bit that the party knows to the registers of a projection's uses.
    fn add_known(&mut self, program: &Program, projection: u32, bit: bool) {
        let uses = program.projections[projection as usize].uses;
        for each in uses.iter().flatten() {
            let share = self.weight(each) * u64::from(bit);
            self.accumulate(program, each, share);
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
    fn new(start: Block) -> Self {
        Self {
            start,
            tweaks: tweaks(start),
            key: 0,
        }
    }

    /// Goes on to the keys of the gate after `op`.
    fn advance(&mut self, op: Op) {
        if matches!(op, Op::And { .. } | Op::Half { .. } | Op::Project(_)) {
            self.key += KEYS as u64;
        }
    }

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

/// The tables of a batch, header included, and the garbler's words of the outputs. The arguments
/// are those of [`Garbler::new`](super::Garbler::new).
pub fn garble(
    circuit: &Circuit,
    instances: usize,
    delta: &Delta,
    start: Block,
    values: &[u64],
    zero_labels: &[Block],
) -> (Vec<u8>, Vec<u64>) {
    let program = circuit.program();
    let mut garbling = Garbling {
        program,
        delta: delta.block(),
        hashes: Hashes::new(start),
        instances,
        outputs: vec![0; circuit.openings().len() * instances],
    };
    let mut out = start.to_bytes().to_vec();
    for first in (0..instances).step_by(TILE) {
        let count = TILE.min(instances - first);
        let labels = &zero_labels[first * circuit.labelled_bits()..];
        let instance = |i| Instance {
            knowns: knowns(program, values, instances, first + i),
            ..Instance::new(program)
        };
        let mut tile: Vec<_> = (0..count).map(instance).collect();
        for &op in &program.ops {
            let mut rows = Rows::default();
            for (i, instance) in tile.iter_mut().enumerate() {
                let label = |input: u32| labels[input as usize * count + i];
                garbling.gate(op, i, first, instance, label, &mut rows);
            }
            rows.append(&mut out);
            if let Op::Project(index) = op {
                let projection = program.projections[index as usize];
                for (word, each) in projection.uses.iter().flatten().enumerate() {
                    let correct = |(i, instance): (usize, &mut Instance)| {
                        let from = projection.from;
                        garbling.correction(i, instance, from, word, each)
                    };
                    let corrections = tile.iter_mut().enumerate().map(correct);
                    pack(&corrections.collect::<Vec<_>>(), &mut out);
                }
            }
            garbling.hashes.advance(op);
        }
    }
    (out, garbling.outputs)
}

/// The bytes of a gate, but for the corrections of projections.
#[derive(Default)]
struct Rows {
    /// Rows of blocks, one of each an instance.
    blocks: [Vec<Block>; 2],
    /// Bits that tell the evaluator what a revealed output is, as [`pack`] takes them.
    decoding: Vec<(u64, u32)>,
}

impl Rows {
    fn append(&self, out: &mut Vec<u8>) {
        let blocks = self.blocks.iter().flatten();
        out.extend(blocks.flat_map(|block| block.to_bytes()));
        pack(&self.decoding, out);
    }
}

struct Garbling<'a> {
    program: &'a Program,
    delta: Block,
    hashes: Hashes,
    instances: usize,
    /// By output, then by instance.
    outputs: Vec<u64>,
}

impl Garbling<'_> {
    fn zero_label(&self, instance: &Instance, operand: Operand) -> Block {
        let flip = instance.knowns[operand.flip as usize];
        instance.label(operand) ^ self.delta.masked(flip)
    }

    /// One gate of instance `i` of the tile that starts with instance `first`.
    fn gate(
        &mut self,
        op: Op,
        i: usize,
        first: usize,
        instance: &mut Instance,
        label: impl Fn(u32) -> Block,
        rows: &mut Rows,
    ) {
        match op {
            Op::Load { to, input } => instance.slots[to as usize] = label(input),
            Op::Xor { to, a, b } => instance.xor(to, a, b),
            Op::And { to, a, b } => {
                let (a, b) = (self.zero_label(instance, a), self.zero_label(instance, b));
                instance.slots[to as usize] = self.and(i, a, b, rows);
            }
            Op::Half { to, a, known } => {
                let a = self.zero_label(instance, a);
                let known = instance.knowns[known as usize];
                instance.slots[to as usize] = self.half(i, a, known, rows);
            }
            Op::Project(_) | Op::AddEvaluator { .. } => {}
            Op::AddKnown { known, projection } => {
                let bit = instance.knowns[known as usize];
                instance.add_known(self.program, projection, bit);
            }
            Op::Multiply { out, u, l } => multiply(self.program, instance, [out, u, l], true),
            Op::Bit {
                output,
                bit,
                revealed,
                from,
            } => {
                let share = u64::from(self.zero_label(instance, from).lsb());
                if revealed {
                    rows.decoding.push((share, 1));
                } else {
                    self.outputs[output as usize * self.instances + first + i] |= share << bit;
                }
            }
            Op::Register { output, register } => {
                self.outputs[output as usize * self.instances + first + i] =
                    std::mem::take(&mut instance.registers[register as usize]);
            }
        }
    }

    /// Two half-gates (Zahur, Rosulek, Evans): the zero-label of the result.
    fn and(&self, i: usize, a: Block, b: Block, rows: &mut Rows) -> Block {
        let delta = self.delta;
        let [a0, a1] = [a, a ^ delta].map(|label| self.hashes.of(i, 0, label));
        let [b0, b1] = [b, b ^ delta].map(|label| self.hashes.of(i, 1, label));
        let generator = a0 ^ a1 ^ delta.masked(b.lsb());
        let evaluator = b0 ^ b1 ^ a;
        rows.blocks[0].push(generator);
        rows.blocks[1].push(evaluator);
        let generator_zero = a0 ^ generator.masked(a.lsb());
        let evaluator_zero = b0 ^ (evaluator ^ a).masked(b.lsb());
        generator_zero ^ evaluator_zero
    }

    /// The half-gate of a bit that the garbler knows.
    fn half(&self, i: usize, a: Block, known: bool, rows: &mut Rows) -> Block {
        let [a0, a1] = [a, a ^ self.delta].map(|label| self.hashes.of(i, 0, label));
        let generator = a0 ^ a1 ^ self.delta.masked(known);
        rows.blocks[0].push(generator);
        a0 ^ generator.masked(a.lsb())
    }

    /// The correction of one use of a projected bit, with its bits; the garbler's share goes to its
    /// register.
    ///
    /// The evaluator has the bit times the weight, less the garbler's share. Where its colour is 0
    /// that is its pad; else the correction is added.
    fn correction(
        &self,
        i: usize,
        instance: &mut Instance,
        from: Operand,
        word: usize,
        each: &Use,
    ) -> (u64, u32) {
        let zero = self.zero_label(instance, from);
        let pad = |label| uniform(each.modulus, self.hashes.of(i, 0, label), word);
        let (pad0, pad1) = (pad(zero), pad(zero ^ self.delta));
        let (modulus, weight) = (each.modulus, instance.weight(each));
        let (share, correction) = if zero.lsb() {
            let share = modulus.sub(weight, pad1);
            (share, modulus.sub(modulus.neg(share), pad0))
        } else {
            let share = modulus.neg(pad0);
            (share, modulus.sub(modulus.sub(weight, share), pad1))
        };
        instance.accumulate(self.program, each, share);
        (correction, modulus.bits())
    }
}

/// The evaluator's words of the outputs. The arguments are those of
/// [`Evaluator::new`](super::Evaluator::new), and the whole of the tables.
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
    let mut evaluation = Evaluation {
        program,
        hashes: Hashes::new(Block::from_bytes(*start)),
        instances,
        values,
        outputs: vec![0; circuit.openings().len() * instances],
    };
    for first in (0..instances).step_by(TILE) {
        let count = TILE.min(instances - first);
        let labels = &labels[first * circuit.labelled_bits()..];
        let mut tile: Vec<_> = (0..count).map(|_| Instance::new(program)).collect();
        for &op in &program.ops {
            let bytes = tables.split_off(..program.op_bytes(op, count));
            let table = Table {
                bytes: bytes.expect("tables of the right length"),
                count,
            };
            for (i, instance) in tile.iter_mut().enumerate() {
                let label = |input: u32| labels[input as usize * count + i];
                evaluation.gate(op, i, first, instance, label, &table);
            }
            evaluation.hashes.advance(op);
        }
    }
    evaluation.outputs
}

/// The bytes of a gate, for `count` instances.
struct Table<'a> {
    bytes: &'a [u8],
    count: usize,
}

impl Table<'_> {
    fn row(&self, row: usize, i: usize) -> Block {
        bytemuck::pod_read_unaligned(&self.bytes[16 * (row * self.count + i)..][..16])
    }
}

struct Evaluation<'a> {
    program: &'a Program,
    hashes: Hashes,
    instances: usize,
    /// The words of the evaluator. By word, then by instance.
    values: &'a [u64],
    /// By output, then by instance.
    outputs: Vec<u64>,
}

impl Evaluation<'_> {
    /// One gate of instance `i` of the tile that starts with instance `first`.
    fn gate(
        &mut self,
        op: Op,
        i: usize,
        first: usize,
        instance: &mut Instance,
        label: impl Fn(u32) -> Block,
        table: &Table<'_>,
    ) {
        match op {
            Op::Load { to, input } => instance.slots[to as usize] = label(input),
            Op::Xor { to, a, b } => instance.xor(to, a, b),
            Op::And { to, a, b } => {
                let (a, b) = (instance.label(a), instance.label(b));
                let generator = self.hashes.of(i, 0, a) ^ table.row(0, i).masked(a.lsb());
                let evaluator = self.hashes.of(i, 1, b) ^ (table.row(1, i) ^ a).masked(b.lsb());
                instance.slots[to as usize] = generator ^ evaluator;
            }
            Op::Half { to, a, .. } => {
                let a = instance.label(a);
                instance.slots[to as usize] =
                    self.hashes.of(i, 0, a) ^ table.row(0, i).masked(a.lsb());
            }
            Op::Project(index) => self.project(i, instance, index, table),
            Op::AddKnown { .. } => {}
            Op::AddEvaluator {
                word,
                bit,
                flip,
                projection,
            } => {
                let value = self.values[word as usize * self.instances + first + i];
                instance.add_known(self.program, projection, (value >> bit & 1 == 1) ^ flip);
            }
            Op::Multiply { out, u, l } => multiply(self.program, instance, [out, u, l], false),
            Op::Bit {
                output,
                bit,
                revealed,
                from,
            } => {
                let decoding = revealed && unpack(table.bytes, i, 1) == 1;
                self.outputs[output as usize * self.instances + first + i] |=
                    u64::from(instance.label(from).lsb() ^ decoding) << bit;
            }
            Op::Register { output, register } => {
                self.outputs[output as usize * self.instances + first + i] =
                    std::mem::take(&mut instance.registers[register as usize]);
            }
        }
    }

    /// The evaluator's shares of all uses of a projected bit.
    fn project(&self, i: usize, instance: &mut Instance, index: u32, table: &Table<'_>) {
        let projection = self.program.projections[index as usize];
        let label = instance.label(projection.from);
        let mut from = 0;
        for (word, each) in projection.uses.iter().flatten().enumerate() {
            let corrections = &table.bytes[from..];
            let correction = unpack(corrections, i, each.modulus.bits()) * u64::from(label.lsb());
            let pad = uniform(each.modulus, self.hashes.of(i, 0, label), word);
            let share = each.modulus.add(pad, each.modulus.add(correction, 0));
            instance.accumulate(self.program, each, share);
            from += each.bytes(table.count);
        }
    }
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

/// The residue of a hash: of its `word`-th 64 bits modulo a power of two, of all 128 modulo a
/// prime.
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
