//! A circuit in the order in which it is garbled, its wires in few slots.

use super::builder::{Known, Wire};
use super::{Bit, Builder, Cost, Modulus, Output, sum};

/// What garbler and evaluator do, in order, for every tile of instances.
#[derive(Clone, Debug)]
pub(crate) struct Program {
    /// The bits the garbler computes in plain: an index in [`Operand::flip`] is one in here.
    pub knowns: Vec<Known>,
    pub ops: Vec<Op>,
    /// Bytes that the steps before each one, and all of them, send for a whole tile.
    pub offsets: Vec<usize>,
    /// What [`Op::Project`] refers to.
    pub projections: Vec<Projection>,
    /// The modulus of each register; a register accumulates shares.
    pub registers: Vec<Modulus>,
    /// Wires alive at a time.
    pub slots: usize,
}

/// One step. Those that hash take four keys of a tile each.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Op {
    /// Labels of an input bit.
    Load { to: u32, input: u32 },
    /// Of two wires.
    Xor { to: u32, a: u32, b: u32 },
    /// Of two bits with wires. Hashes.
    And { to: u32, a: Operand, b: Operand },
    /// Of a bit with a wire and a known bit. Hashes.
    Half { to: u32, a: Operand, known: u32 },
    /// Of a bit with a wire onto registers. Hashes.
    Project(u32),
    /// Adds a known bit to a register: the garbler's work alone.
    AddKnown { known: u32, projection: u32 },
    /// Adds `bit + flip` of a word of the evaluator's to a register: its work alone.
    AddEvaluator {
        word: u32,
        bit: u32,
        flip: bool,
        projection: u32,
    },
    /// Adds the product of the evaluator's shares to its share of `out`, and takes that of the
    /// garbler's from its own.
    Multiply { out: u32, u: u32, l: u32 },
    /// A bit of an output word; `from.slot` is [`NO_SLOT`] for a known bit.
    Bit {
        output: u32,
        bit: u8,
        revealed: bool,
        from: Operand,
    },
    /// An output word that is a register.
    Register { output: u32, register: u32 },
}

/// The slot of a bit without a wire.
pub(crate) const NO_SLOT: u32 = u32::MAX;

/// `slot + flip`: a wire and a known bit.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Operand {
    pub slot: u32,
    pub flip: u32,
}

/// A bit and the registers that a weight times it is added to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Projection {
    pub from: Operand,
    pub uses: [Option<Use>; 2],
}

/// `register += 2^shift * weight * bit`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Use {
    pub register: u32,
    pub weight: Weight,
    pub shift: u32,
    /// What `weight` is reduced by: the register's modulus, or that over `2^shift` for a power of
    /// two.
    pub modulus: Modulus,
}

impl Use {
    fn new(modulus: Modulus, register: u32, weight: u64, by: Option<u32>) -> Self {
        let (shift, factor, modulus) = modulus.without_twos(weight);
        Self {
            register,
            weight: match by {
                Some(register) => Weight::Share { factor, register },
                None => Weight::Public(factor),
            },
            shift,
            modulus,
        }
    }

    /// Bytes of the corrections for `n` instances.
    pub fn bytes(&self, n: usize) -> usize {
        (self.modulus.bits() as usize * n).div_ceil(8)
    }
}

/// A factor of a bit.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Weight {
    /// Known to both.
    Public(u64),
    /// This factor times the garbler's share in a register.
    Share { factor: u64, register: u32 },
}

impl Projection {
    /// Bytes for `n` instances.
    pub fn bytes(&self, n: usize) -> usize {
        let uses = self.uses.iter().flatten();
        uses.map(|each| each.bytes(n)).sum()
    }
}

impl Program {
    /// Bytes that a step sends for `n` instances of a tile.
    pub fn op_bytes(&self, op: Op, n: usize) -> usize {
        match op {
            Op::And { .. } => 32 * n,
            Op::Half { .. } => 16 * n,
            Op::Project(index) => self.projections[index as usize].bytes(n),
            Op::Bit { revealed: true, .. } => n.div_ceil(8),
            _ => 0,
        }
    }

    /// Bytes for this many instances; saturates.
    pub fn bytes(&self, instances: usize) -> usize {
        let (tiles, rest) = (instances / TILE, instances % TILE);
        let tile = self.offsets.last().copied().unwrap_or(0);
        let rest = self.ops.iter().map(|&op| self.op_bytes(op, rest)).sum();
        tiles.saturating_mul(tile).saturating_add(rest)
    }

    /// How many steps from `first` on send at most `room` bytes in all for `n` instances, and the
    /// bytes.
    pub fn steps_within(&self, first: usize, room: usize, n: usize) -> (usize, usize) {
        if n == TILE {
            let start = self.offsets[first];
            let end = self
                .offsets
                .partition_point(|&at| at - start.min(at) <= room)
                - 1;
            return (end - first, self.offsets[end] - start);
        }
        let (mut bytes, mut steps) = (0, 0);
        for &op in &self.ops[first..] {
            let more = self.op_bytes(op, n);
            if bytes + more > room {
                break;
            }
            bytes += more;
            steps += 1;
        }
        (steps, bytes)
    }

    pub fn cost(&self, labels: usize) -> Cost {
        let mut cost = Cost {
            labels,
            ..Cost::default()
        };
        for op in &self.ops {
            match *op {
                Op::And { .. } => cost.and += 1,
                Op::Half { .. } => cost.half += 1,
                Op::Xor { .. } => cost.xor += 1,
                Op::Project(index) => {
                    let uses = self.projections[index as usize].uses.iter().flatten();
                    cost.projected += uses.map(|each| each.modulus.bits() as usize).sum::<usize>();
                }
                _ => {}
            }
        }
        cost
    }

    /// The program of everything that the outputs need.
    pub fn compile(builder: &Builder) -> Self {
        let outputs = compile_outputs(builder);
        let needed = needed(builder, &outputs);
        let (knowns, known_at) = compact(builder, &needed.knowns);
        let mut order = Vec::new();
        let mut loaded = vec![false; builder.wires.len()];
        for (index, wire) in builder.wires.iter().enumerate() {
            if needed.wires[index] && !matches!(wire, Wire::Zero | Wire::Input(_)) {
                load(builder, &operands(*wire), &mut loaded, &mut order);
                order.push(index as u32);
            }
        }
        load(builder, &outputs.wires(), &mut loaded, &mut order);
        let mut slots = Slots::new(builder, &order, &outputs);
        let mut ops = Vec::with_capacity(order.len() + outputs.ops.len());
        for &index in &order {
            ops.push(slots.step(builder, index, &known_at));
        }
        let place = |bit: Bit| Operand {
            slot: if bit.wire == 0 {
                NO_SLOT
            } else {
                slots.of[bit.wire as usize]
            },
            flip: known_at[bit.known as usize],
        };
        let projections = outputs.projections.iter().map(|(bit, uses)| Projection {
            from: place(*bit),
            uses: *uses,
        });
        ops.extend(outputs.ops.iter().map(|op| match *op {
            OutputOp::Op(op) => op,
            OutputOp::AddKnown { bit, projection } => Op::AddKnown {
                known: known_at[bit.known as usize],
                projection,
            },
            OutputOp::Bit {
                output,
                bit,
                revealed,
                from,
            } => Op::Bit {
                output,
                bit,
                revealed,
                from: place(from),
            },
        }));
        Self {
            knowns,
            offsets: Vec::new(),
            projections: projections.collect(),
            registers: outputs.registers,
            slots: slots.count as usize,
            ops,
        }
        .with_offsets()
    }

    fn with_offsets(mut self) -> Self {
        let mut offset = 0;
        let mut behind = |op: &Op| {
            offset += self.op_bytes(*op, TILE);
            offset
        };
        self.offsets = std::iter::once(0)
            .chain(self.ops.iter().map(&mut behind))
            .collect();
        self
    }
}

/// Instances that are garbled side by side.
pub const TILE: usize = 32;

/// The steps behind the gates, their bits not placed yet.
#[derive(Default)]
struct Outputs {
    ops: Vec<OutputOp>,
    projections: Vec<(Bit, [Option<Use>; 2])>,
    registers: Vec<Modulus>,
}

enum OutputOp {
    Op(Op),
    AddKnown {
        bit: Bit,
        projection: u32,
    },
    Bit {
        output: u32,
        bit: u8,
        revealed: bool,
        from: Bit,
    },
}

impl Outputs {
    /// Every bit that must be there in the end.
    fn bits(&self) -> impl Iterator<Item = Bit> + '_ {
        let single = self.ops.iter().filter_map(|op| match op {
            OutputOp::Bit { from, .. } => Some(*from),
            _ => None,
        });
        single.chain(self.projections.iter().map(|(bit, _)| *bit))
    }

    fn wires(&self) -> Vec<u32> {
        self.bits().map(|bit| bit.wire).collect()
    }

    fn register(&mut self, modulus: Modulus) -> u32 {
        self.registers.push(modulus);
        self.registers.len() as u32 - 1
    }

    /// `register += weight * bit` for each use.
    fn add(&mut self, builder: &Builder, bit: Bit, uses: &[Use]) {
        let (public, secret): (Vec<_>, Vec<_>) = uses
            .iter()
            .partition(|each| matches!(each.weight, Weight::Public(_)));
        if bit.is_known() {
            for &each in uses {
                let projection = self.project(bit, &[each]);
                self.ops.push(OutputOp::AddKnown { bit, projection });
            }
            return;
        }
        // What the evaluator knows it adds up by itself, unless the garbler hides the sign of the
        // bit.
        let known_to_evaluator = builder.evaluator_bit(bit.wire).filter(|_| bit.known <= 1);
        let Some((word, index)) = known_to_evaluator else {
            return self.add_hashed(bit, uses);
        };
        for each in public {
            let projection = self.project(Bit::ZERO, &[each]);
            self.ops.push(OutputOp::Op(Op::AddEvaluator {
                word,
                bit: index,
                flip: bit.known == 1,
                projection,
            }));
        }
        self.add_hashed(bit, &secret);
    }

    /// A hash has 128 bits: two words, or one modulo a prime, where a word would be too biased.
    fn add_hashed(&mut self, bit: Bit, uses: &[Use]) {
        let Some(first) = uses.first() else { return };
        let per_hash = match self.registers[first.register as usize] {
            Modulus::PowerOfTwo(_) => 2,
            Modulus::Prime(_) => 1,
        };
        for uses in uses.chunks(per_hash) {
            let projection = self.project(bit, uses);
            self.ops.push(OutputOp::Op(Op::Project(projection)));
        }
    }

    fn project(&mut self, bit: Bit, uses: &[Use]) -> u32 {
        let uses = [uses.first().copied(), uses.get(1).copied()];
        self.projections.push((bit, uses));
        self.projections.len() as u32 - 1
    }

    fn sum(&mut self, builder: &Builder, sum: &sum::Sum) -> u32 {
        let modulus = sum.modulus;
        let out = self.register(modulus);
        for term in &sum.terms {
            self.add(builder, term.bit, &[public(modulus, out, term.weight)]);
        }
        for product in &sum.products {
            let (u, l) = (self.register(modulus), self.register(modulus));
            self.add_hashed(product.select, &[public(modulus, u, 1)]);
            for term in &product.terms {
                let uses = [
                    public(modulus, l, term.weight),
                    share(modulus, out, term.weight, u),
                ];
                self.add(builder, term.bit, &uses);
            }
            self.add_hashed(product.select, &[share(modulus, out, 1, l)]);
            self.ops.push(OutputOp::Op(Op::Multiply { out, u, l }));
        }
        out
    }
}

fn public(modulus: Modulus, register: u32, weight: u64) -> Use {
    Use::new(modulus, register, weight, None)
}

fn share(modulus: Modulus, register: u32, weight: u64, by: u32) -> Use {
    Use::new(modulus, register, weight, Some(by))
}

fn compile_outputs(builder: &Builder) -> Outputs {
    let mut outputs = Outputs::default();
    for (index, output) in builder.outputs.iter().enumerate() {
        let index = index as u32;
        let (word, revealed) = match output {
            Output::Revealed(word) => (word, true),
            Output::Shared(word) => (word, false),
            Output::Sum(sum) => {
                let register = outputs.sum(builder, sum);
                outputs.ops.push(OutputOp::Op(Op::Register {
                    output: index,
                    register,
                }));
                continue;
            }
        };
        for (bit, &from) in word.iter().enumerate() {
            outputs.ops.push(OutputOp::Bit {
                output: index,
                bit: bit as u8,
                revealed,
                from,
            });
        }
    }
    outputs
}

/// Marks of what the outputs need.
struct Needed {
    wires: Vec<bool>,
    knowns: Vec<bool>,
}

fn needed(builder: &Builder, outputs: &Outputs) -> Needed {
    let mut needed = Needed {
        wires: vec![false; builder.wires.len()],
        knowns: vec![false; builder.knowns.len()],
    };
    needed.knowns[..2].fill(true);
    let known_terms = outputs.ops.iter().filter_map(|op| match op {
        OutputOp::AddKnown { bit, .. } => Some(*bit),
        _ => None,
    });
    for bit in outputs.bits().chain(known_terms) {
        needed.wires[bit.wire as usize] = true;
        needed.knowns[bit.known as usize] = true;
    }
    // Operands come before what is made of them.
    for index in (1..builder.wires.len()).rev() {
        if !needed.wires[index] {
            continue;
        }
        let wire = builder.wires[index];
        for operand in operands(wire) {
            needed.wires[operand as usize] = true;
        }
        match wire {
            Wire::And(a, b) => {
                needed.knowns[a.known as usize] = true;
                needed.knowns[b.known as usize] = true;
            }
            Wire::Half(a, known) => {
                needed.knowns[a.known as usize] = true;
                needed.knowns[known as usize] = true;
            }
            _ => {}
        }
    }
    for index in (2..builder.knowns.len()).rev() {
        if let (true, Known::Xor(a, b) | Known::And(a, b)) =
            (needed.knowns[index], builder.knowns[index])
        {
            needed.knowns[a as usize] = true;
            needed.knowns[b as usize] = true;
        }
    }
    needed
}

fn operands(wire: Wire) -> Vec<u32> {
    match wire {
        Wire::Zero | Wire::Input(_) => Vec::new(),
        Wire::Xor(a, b) => vec![a, b],
        Wire::And(a, b) => vec![a.wire, b.wire],
        Wire::Half(a, _) => vec![a.wire],
    }
}

/// The known bits that are needed, and where each one went.
fn compact(builder: &Builder, needed: &[bool]) -> (Vec<Known>, Vec<u32>) {
    let (mut knowns, mut at) = (Vec::new(), vec![0; builder.knowns.len()]);
    for (index, known) in builder.knowns.iter().enumerate() {
        if needed[index] {
            at[index] = knowns.len() as u32;
            knowns.push(match *known {
                Known::Xor(a, b) => Known::Xor(at[a as usize], at[b as usize]),
                Known::And(a, b) => Known::And(at[a as usize], at[b as usize]),
                other => other,
            });
        }
    }
    (knowns, at)
}

/// Puts the inputs among `wires` into the order where they are first used.
fn load(builder: &Builder, wires: &[u32], loaded: &mut [bool], order: &mut Vec<u32>) {
    for &wire in wires {
        let input = matches!(builder.wires[wire as usize], Wire::Input(_));
        if input && !std::mem::replace(&mut loaded[wire as usize], true) {
            order.push(wire);
        }
    }
}

/// Slots handed to wires and taken back behind their last use.
struct Slots {
    /// The slot of each wire that has had one.
    of: Vec<u32>,
    /// Uses of each wire still to come.
    uses: Vec<u32>,
    free: Vec<u32>,
    count: u32,
}

impl Slots {
    fn new(builder: &Builder, order: &[u32], outputs: &Outputs) -> Self {
        let mut uses = vec![0; builder.wires.len()];
        let gates = order
            .iter()
            .flat_map(|&at| operands(builder.wires[at as usize]));
        for wire in gates.chain(outputs.wires()) {
            uses[wire as usize] += 1;
        }
        Self {
            of: vec![NO_SLOT; builder.wires.len()],
            uses,
            free: Vec::new(),
            count: 0,
        }
    }

    fn step(&mut self, builder: &Builder, index: u32, known_at: &[u32]) -> Op {
        let wire = builder.wires[index as usize];
        let read = |bit: Bit| Operand {
            slot: self.of[bit.wire as usize],
            flip: known_at[bit.known as usize],
        };
        let op = match wire {
            Wire::Zero => unreachable!("the constant is no step"),
            Wire::Input(input) => Op::Load { to: 0, input },
            Wire::Xor(a, b) => Op::Xor {
                to: 0,
                a: self.of[a as usize],
                b: self.of[b as usize],
            },
            Wire::And(a, b) => Op::And {
                to: 0,
                a: read(a),
                b: read(b),
            },
            Wire::Half(a, known) => Op::Half {
                to: 0,
                a: read(a),
                known: known_at[known as usize],
            },
        };
        // A step reads its operands before it writes, so the result may take their place.
        for operand in operands(wire) {
            self.uses[operand as usize] -= 1;
            if self.uses[operand as usize] == 0 {
                self.free.push(self.of[operand as usize]);
            }
        }
        let slot = self.free.pop().unwrap_or_else(|| {
            self.count += 1;
            self.count - 1
        });
        self.of[index as usize] = slot;
        op.into_slot(slot)
    }
}

impl Op {
    fn into_slot(self, slot: u32) -> Self {
        let mut op = self;
        match &mut op {
            Self::Load { to, .. }
            | Self::Xor { to, .. }
            | Self::And { to, .. }
            | Self::Half { to, .. } => *to = slot,
            _ => {}
        }
        op
    }
}
