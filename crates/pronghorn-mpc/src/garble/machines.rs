//! Garbler and evaluator as state machines.

use std::sync::Arc;

use pronghorn_ring::SimdLevel;
use zeroize::{ZeroizeOnDrop, Zeroizing};

use super::error::{GarbleError, check_count};
use super::kernels::{EvaluatorTile, GarblerTile, Labels, TWEAKS, Tile};
use super::labels::Delta;
use super::residues::Words;
use super::{hash, simd};
use crate::Block;
use crate::circuit::{Circuit, Known, Op, TILE};
use crate::machine::{Machine, Want};

/// The most bytes of a message of tables.
pub const MESSAGE_BYTES: usize = 1 << 18;

/// The garbler of one batch: sends tables, and has its words of the outputs in the end.
///
/// Holds the labels of the inputs, those of one tile of instances and one message; tables are not
/// kept.
pub struct Garbler {
    batch: Batch,
    delta: Delta,
    knowns: Zeroizing<Vec<u32>>,
    /// Bytes still to be sent.
    remaining: usize,
    started: bool,
}

/// The evaluator of one batch: takes tables, and has its words of the outputs in the end.
pub struct Evaluator {
    batch: Batch,
    /// Bytes still to come.
    remaining: usize,
    /// The start of a step whose other bytes are still to come.
    pending: Vec<u8>,
    started: bool,
}

/// A batch in the works.
struct Batch {
    circuit: Arc<Circuit>,
    level: SimdLevel,
    instances: usize,
    start: Block,
    tweaks: [Block; TWEAKS],
    /// This party's input words, by word, then by instance.
    values: Zeroizing<Vec<u64>>,
    /// The labels of the input, by bit, then by instance.
    inputs: Zeroizing<Vec<Block>>,
    /// This party's words of the outputs, by output, then by instance.
    outputs: Zeroizing<Vec<u64>>,
    /// The labels of the wires of a tile.
    slots: Zeroizing<Vec<Labels>>,
    registers: Zeroizing<Vec<Words>>,
    position: Position,
}

/// The next step.
#[derive(Clone, Copy, Default)]
struct Position {
    /// First instance of the tile.
    first: usize,
    /// Number of the step in the program.
    op: usize,
    /// Number of the next AES key.
    key: u64,
}

impl Batch {
    fn new(
        circuit: Arc<Circuit>,
        instances: usize,
        values: Zeroizing<Vec<u64>>,
        inputs: Zeroizing<Vec<Block>>,
    ) -> Result<Self, GarbleError> {
        let product = |count: usize| {
            let most = isize::MAX as usize / Block::BYTES;
            count
                .checked_mul(instances)
                .filter(|&product| product <= most && instances > 0)
                .ok_or(GarbleError::Instances { instances })
        };
        check_count(
            "input labels",
            inputs.len(),
            product(circuit.labelled_bits())?,
        )?;
        let outputs = product(circuit.openings().len())?;
        if circuit.table_bytes(instances) > isize::MAX as usize {
            return Err(GarbleError::Instances { instances });
        }
        let program = circuit.program();
        Ok(Self {
            level: SimdLevel::detect(),
            instances,
            start: Block::ZERO,
            tweaks: [Block::ZERO; TWEAKS],
            values,
            inputs,
            outputs: Zeroizing::new(vec![0; outputs]),
            slots: Zeroizing::new(vec![Labels::ZERO; program.slots]),
            registers: Zeroizing::new(vec![[0; TILE]; program.registers.len()]),
            position: Position::default(),
            circuit,
        })
    }

    fn begin(&mut self, start: Block) {
        self.start = start;
        self.tweaks = hash::tweaks(start);
    }

    fn done(&self) -> bool {
        self.position.first >= self.instances
    }

    /// Instances of the tile.
    fn count(&self) -> usize {
        TILE.min(self.instances - self.position.first)
    }

    /// The steps from here on that send at most `room` bytes in all, and the bytes.
    fn steps_within(&self, room: usize) -> (usize, usize) {
        let program = self.circuit.program();
        program.steps_within(self.position.op, room, self.count())
    }

    /// Runs `f` on the next steps and moves behind them.
    fn run(&mut self, steps: usize, f: impl FnOnce(Tile<'_>, &[u64], &[Op]) -> u64) {
        let count = self.count();
        let program = self.circuit.program();
        let end = self.position.op + steps;
        let tile = Tile {
            program,
            start: self.start,
            tweaks: &self.tweaks,
            key: self.position.key,
            count,
            first: self.position.first,
            instances: self.instances,
            inputs: &self.inputs[self.position.first * self.circuit.labelled_bits()..],
            slots: &mut self.slots,
            registers: &mut self.registers,
            outputs: &mut self.outputs,
        };
        self.position.key = f(tile, &self.values, &program.ops[self.position.op..end]);
        self.position.op = end;
        if end == program.ops.len() {
            self.position.op = 0;
            self.position.first += count;
        }
    }
}

impl Garbler {
    /// A garbler of `instances` of a circuit.
    ///
    /// * `start`: a fresh random block, drawn after the labels of the inputs are fixed; it becomes
    ///   public. A garbling that is done again with the same start and labels but another value
    ///   gives `delta` away.
    /// * `values`: its input words, by word, then by instance; bits above a word's width are
    ///   ignored.
    /// * `zero_labels`: the labels of 0 of the labelled inputs, by bit, then by instance: fresh and
    ///   random, as a rule the blocks that the sender of correlated OT with the same delta has.
    ///
    /// # Errors
    /// When a length is wrong, nothing or too much is asked for, or there is no secret offset
    /// ([`GarbleError::Offset`]).
    pub fn new(
        circuit: Arc<Circuit>,
        instances: usize,
        delta: &Delta,
        start: Block,
        values: Zeroizing<Vec<u64>>,
        zero_labels: Zeroizing<Vec<Block>>,
    ) -> Result<Self, GarbleError> {
        delta.check()?;
        let words = circuit.garbler_words().len();
        check_count(
            "the garbler's values",
            values.len(),
            words.saturating_mul(instances),
        )?;
        let knowns = vec![0; circuit.program().knowns.len()];
        let remaining = circuit.table_bytes(instances).saturating_add(Block::BYTES);
        let mut batch = Batch::new(circuit, instances, values, zero_labels)?;
        batch.begin(start);
        Ok(Self {
            batch,
            delta: delta.clone(),
            knowns: Zeroizing::new(knowns),
            remaining,
            started: false,
        })
    }

    /// The same at another level of SIMD, for tests and benchmarks.
    pub fn at_level(mut self, level: SimdLevel) -> Self {
        self.batch.level = level;
        self
    }

    /// Its words of the outputs, by output, then by instance: what to open them with is
    /// [`Circuit::openings`]'s to say.
    ///
    /// # Errors
    /// When not everything is sent.
    pub fn into_outputs(mut self) -> Result<Zeroizing<Vec<u64>>, GarbleError> {
        if self.want() != Want::Done {
            let state = "has tables to send before it has outputs";
            return Err(GarbleError::OutOfTurn { state });
        }
        Ok(std::mem::take(&mut self.batch.outputs))
    }

    /// Garbles what fits `room` bytes of `out`.
    fn fill(&mut self, mut room: usize, out: &mut Vec<u8>) {
        while !self.batch.done() {
            if self.batch.position.op == 0 {
                self.compute_knowns();
            }
            let (steps, bytes) = self.batch.steps_within(room);
            if steps == 0 && !self.batch.circuit.program().ops.is_empty() {
                return;
            }
            room -= bytes;
            let (level, delta, knowns) = (self.batch.level, self.delta.block(), &self.knowns);
            self.batch.run(steps, |tile, _, ops| {
                let mut garbler = GarblerTile {
                    tile,
                    delta,
                    knowns,
                };
                simd::garble(level, &mut garbler, ops, out);
                garbler.tile.key
            });
        }
    }

    /// The known bits of the tile, of instance `i` in bit `i`.
    fn compute_knowns(&mut self) {
        let (first, count) = (self.batch.position.first, self.batch.count());
        for (index, known) in self.batch.circuit.program().knowns.iter().enumerate() {
            self.knowns[index] = match *known {
                Known::Constant(bit) => u32::from(bit).wrapping_neg(),
                Known::Input(word, bit) => {
                    let at = word as usize * self.batch.instances + first;
                    let values = self.batch.values[at..at + count].iter().enumerate();
                    values.fold(0, |bits, (i, value)| {
                        bits | ((value >> bit & 1) as u32) << i
                    })
                }
                Known::Xor(a, b) => self.knowns[a as usize] ^ self.knowns[b as usize],
                Known::And(a, b) => self.knowns[a as usize] & self.knowns[b as usize],
            };
        }
    }
}

/// What is secret is in [`Zeroizing`] or in [`Delta`].
impl ZeroizeOnDrop for Garbler {}

impl Machine for Garbler {
    type Error = GarbleError;

    fn want(&self) -> Want {
        if self.started && self.batch.done() {
            Want::Done
        } else {
            Want::Send
        }
    }

    fn send(&mut self, out: &mut Vec<u8>) -> Result<(), GarbleError> {
        if self.want() == Want::Done {
            let state = "has sent all tables";
            return Err(GarbleError::OutOfTurn { state });
        }
        let (mut room, before) = (MESSAGE_BYTES, out.len());
        out.reserve(room.min(self.remaining));
        if !self.started {
            self.started = true;
            out.extend_from_slice(&self.batch.start.to_bytes());
            room -= Block::BYTES;
        }
        self.fill(room, out);
        self.remaining -= out.len() - before;
        Ok(())
    }

    fn receive(&mut self, _message: &[u8]) -> Result<(), GarbleError> {
        let state = "only sends";
        Err(GarbleError::OutOfTurn { state })
    }

    fn max_incoming(&self) -> usize {
        0
    }
}

impl Evaluator {
    /// An evaluator of `instances` of a circuit.
    ///
    /// * `values`: its input words, by word, then by instance, reduced; bits above a word's width
    ///   are ignored.
    /// * `labels`: the active labels of the labelled inputs, by bit, then by instance: from
    ///   correlated OT those of [`Circuit::choices`], or sent by the garbler.
    ///
    /// # Errors
    /// When a length is wrong, or nothing or too much is asked for.
    pub fn new(
        circuit: Arc<Circuit>,
        instances: usize,
        values: Zeroizing<Vec<u64>>,
        labels: Zeroizing<Vec<Block>>,
    ) -> Result<Self, GarbleError> {
        let words = circuit.evaluator_words().count();
        check_count(
            "the evaluator's values",
            values.len(),
            words.saturating_mul(instances),
        )?;
        let remaining = circuit.table_bytes(instances).saturating_add(Block::BYTES);
        Ok(Self {
            batch: Batch::new(circuit, instances, values, labels)?,
            remaining,
            pending: Vec::new(),
            started: false,
        })
    }

    /// The same at another level of SIMD, for tests and benchmarks.
    pub fn at_level(mut self, level: SimdLevel) -> Self {
        self.batch.level = level;
        self
    }

    /// Its words of the outputs, by output, then by instance.
    ///
    /// # Errors
    /// When tables are missing.
    pub fn into_outputs(mut self) -> Result<Zeroizing<Vec<u64>>, GarbleError> {
        if self.want() != Want::Done {
            let state = "waits for tables before it has outputs";
            return Err(GarbleError::OutOfTurn { state });
        }
        Ok(std::mem::take(&mut self.batch.outputs))
    }

    /// Evaluates all steps whose bytes are there; the bytes they took.
    fn drain(&mut self, tables: &[u8]) -> usize {
        let mut taken = 0;
        while !self.batch.done() {
            let (steps, bytes) = self.batch.steps_within(tables.len() - taken);
            if steps == 0 && !self.batch.circuit.program().ops.is_empty() {
                break;
            }
            let now = &tables[taken..taken + bytes];
            let level = self.batch.level;
            self.batch.run(steps, |tile, values, ops| {
                let mut evaluator = EvaluatorTile { tile, values };
                simd::evaluate(level, &mut evaluator, ops, now);
                evaluator.tile.key
            });
            taken += bytes;
        }
        taken
    }
}

/// What is secret is in [`Zeroizing`].
impl ZeroizeOnDrop for Evaluator {}

impl Machine for Evaluator {
    type Error = GarbleError;

    fn want(&self) -> Want {
        if self.remaining == 0 {
            Want::Done
        } else {
            Want::Receive
        }
    }

    fn send(&mut self, _out: &mut Vec<u8>) -> Result<(), GarbleError> {
        let state = "only receives";
        Err(GarbleError::OutOfTurn { state })
    }

    fn receive(&mut self, message: &[u8]) -> Result<(), GarbleError> {
        let most = self.max_incoming();
        if message.is_empty() || message.len() > most {
            return Err(GarbleError::MessageLength {
                found: message.len(),
                most,
            });
        }
        self.remaining -= message.len();
        if !self.pending.is_empty() || !self.started {
            self.pending.extend_from_slice(message);
            let mut tables = std::mem::take(&mut self.pending);
            let mut taken = 0;
            if !self.started {
                let Some((start, _)) = tables.split_first_chunk() else {
                    self.pending = tables;
                    return Ok(());
                };
                self.batch.begin(Block::from_bytes(*start));
                self.started = true;
                taken = Block::BYTES;
            }
            taken += self.drain(&tables[taken..]);
            tables.drain(..taken);
            self.pending = tables;
        } else {
            let taken = self.drain(message);
            self.pending.extend_from_slice(&message[taken..]);
        }
        Ok(())
    }

    fn max_incoming(&self) -> usize {
        self.remaining.min(MESSAGE_BYTES)
    }
}
