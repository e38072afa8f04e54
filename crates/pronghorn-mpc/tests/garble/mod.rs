//! Garbled circuits equal plain ones and the reference, at every level of SIMD; hostile tables do
//! no harm.

mod circuits;
mod hostile;
mod secrets;

use std::sync::Arc;

use pronghorn_mpc::Block;
use pronghorn_mpc::circuit::{
    Activation, Bit, Builder, Circuit, Modulus, Rectifier, Requantisation, Sum, TILE, Table, Term,
    argmax, sign,
};
use pronghorn_mpc::garble::{
    Delta, Evaluator, GarbleError, Garbler, MESSAGE_BYTES, apply_corrections, correct, encode,
    reference,
};
use pronghorn_mpc::machine::{Machine, Want};
use pronghorn_ring::SimdLevel;
use proptest::prelude::*;
use zeroize::{Zeroize, ZeroizeOnDrop, Zeroizing};

/// A generator for tests (SplitMix64).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    fn block(&mut self) -> Block {
        Block::from_u128(u128::from(self.next()) << 64 | u128::from(self.next()))
    }
}

/// A batch with all its inputs. `evaluator` has all labelled words, the late ones included.
struct Batch {
    circuit: Arc<Circuit>,
    instances: usize,
    delta: Delta,
    start: Block,
    garbler: Vec<u64>,
    evaluator: Vec<u64>,
    zero_labels: Vec<Block>,
    labels: Vec<Block>,
}

impl Batch {
    fn new(circuit: Circuit, garbler: Vec<u64>, evaluator: Vec<u64>, instances: usize) -> Self {
        let random = &mut Random(instances as u64);
        let delta = Delta::new(random.block());
        let bits = circuit.labelled_bits() * instances;
        let zero_labels: Vec<_> = (0..bits).map(|_| random.block()).collect();
        let mut labels = zero_labels.clone();
        encode(&circuit, &delta, &evaluator, instances, &mut labels).unwrap();
        Self {
            labels,
            circuit: Arc::new(circuit),
            instances,
            delta,
            start: random.block(),
            garbler,
            evaluator,
            zero_labels,
        }
    }

    fn garbler(&self) -> Garbler {
        Garbler::new(
            self.circuit.clone(),
            self.instances,
            &self.delta,
            self.start,
            Zeroizing::new(self.garbler.clone()),
            Zeroizing::new(self.zero_labels.clone()),
        )
        .unwrap()
    }

    fn evaluator(&self) -> Evaluator {
        Evaluator::new(
            self.circuit.clone(),
            self.instances,
            Zeroizing::new(self.evaluator.clone()),
            Zeroizing::new(self.labels.clone()),
        )
        .unwrap()
    }

    fn garble(&self, level: SimdLevel) -> (Vec<u8>, Vec<u64>) {
        let mut garbler = self.garbler().at_level(level);
        let mut tables = Vec::new();
        while garbler.want() == Want::Send {
            let before = tables.len();
            garbler.send(&mut tables).unwrap();
            assert!((1..=MESSAGE_BYTES).contains(&(tables.len() - before)));
        }
        assert_eq!(tables.len(), 16 + self.circuit.table_bytes(self.instances));
        (tables, garbler.into_outputs().unwrap().to_vec())
    }

    fn evaluate(&self, level: SimdLevel, tables: &[u8], chunk: usize) -> Vec<u64> {
        let mut evaluator = self.evaluator().at_level(level);
        for chunk in tables.chunks(chunk) {
            assert_eq!(evaluator.want(), Want::Receive);
            evaluator.receive(chunk).unwrap();
        }
        evaluator.into_outputs().unwrap().to_vec()
    }

    /// Checks that what both parties have opens to what the circuit computes in plain.
    fn check(&self) {
        let (tables, garbler) = self.garble(SimdLevel::detect());
        let evaluator = self.evaluate(SimdLevel::detect(), &tables, 1 << 18);
        let words = |values: &[u64], i: usize| {
            let words = values.iter().skip(i).step_by(self.instances);
            words.copied().collect::<Vec<_>>()
        };
        for i in 0..self.instances {
            let (g, e) = (words(&self.garbler, i), words(&self.evaluator, i));
            let plain = self.circuit.evaluate_plain(&g, &e);
            for (output, opening) in self.circuit.openings().enumerate() {
                let at = output * self.instances + i;
                assert_eq!(
                    opening.open(garbler[at], evaluator[at]),
                    plain[output],
                    "output {output}, instance {i}, {g:?} {e:?}"
                );
            }
        }
        let delta = &self.delta;
        let (values, zeros) = (&self.garbler, &self.zero_labels);
        let plain = reference::garble(
            &self.circuit,
            self.instances,
            delta,
            self.start,
            values,
            zeros,
        );
        assert!(plain == (tables.clone(), garbler.clone()), "the reference");
        let (values, labels) = (&self.evaluator, &self.labels);
        let plain = reference::evaluate(&self.circuit, self.instances, values, labels, &tables);
        assert!(plain == evaluator, "the reference");
        for level in SimdLevel::available() {
            let garbled = self.garble(level);
            assert!(garbled == (tables.clone(), garbler.clone()), "{level:?}");
            assert!(self.evaluate(level, &tables, 997) == evaluator, "{level:?}");
        }
    }
}

fn two(bits: u32) -> Modulus {
    Modulus::power_of_two(bits).unwrap()
}

fn prime(p: u64) -> Modulus {
    Modulus::prime(p).unwrap()
}

/// A batch of an activation on values at the edges of `low..=high` and at random, under masks of
/// all kinds.
fn activation(circuit: Circuit, input: Modulus, low: i64, high: i64, instances: usize) -> Batch {
    let random = &mut Random(instances as u64);
    let words = circuit.garbler_words().len();
    let edges = [0, 1, -1, low, high, low + 1, high - 1, low / 2, high / 2];
    let (mut garbler, mut evaluator) = (Vec::new(), Vec::new());
    for i in 0..words * instances {
        let inside = |value: &&i64| (low..=high).contains(*value);
        let value = match edges.get(i).filter(inside) {
            Some(&edge) => edge,
            None => low + (random.next() % (high - low + 1) as u64) as i64,
        };
        let mask = match i % 4 {
            0 => 0,
            1 => input.from_i64(-1),
            _ => input.from_i64((random.next() >> 1) as i64),
        };
        garbler.push(mask);
        evaluator.push(input.sub(input.from_i64(value), mask));
    }
    Batch::new(circuit, garbler, evaluator, instances)
}
