//! Garbling and evaluating in memory, one core: AND gates a second, and bytes a ReLU.
//!
//! `cargo run --release -p pronghorn-bench --example garble_bench [rounds [level]]`
//!
//! Figures are of the message that went fastest. The ceiling they are compared with is AES alone,
//! with one key and nothing else to do, in the same process: an AND takes four blocks to garble and
//! two to evaluate.

use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;

use pronghorn_mpc::Block;
use pronghorn_mpc::aes::Aes128;
use pronghorn_mpc::circuit::{Activation, Builder, Circuit, Modulus};
use pronghorn_mpc::garble::{Delta, Evaluator, Garbler};
use pronghorn_mpc::machine::{Machine, Want};
use pronghorn_ring::SimdLevel;
use zeroize::Zeroizing;

/// A circuit with all inputs of a batch.
struct Batch {
    name: &'static str,
    circuit: Arc<Circuit>,
    instances: usize,
    garbler: Zeroizing<Vec<u64>>,
    evaluator: Zeroizing<Vec<u64>>,
    zero_labels: Zeroizing<Vec<Block>>,
    labels: Zeroizing<Vec<Block>>,
}

impl Batch {
    fn new(name: &'static str, circuit: Circuit, instances: usize, delta: &Delta) -> Self {
        let mut state = 1u128;
        let mut random = || {
            state = state.wrapping_mul(0x2360_ED05_1FC6_5DA4_4385_DF64_9FCC_F645) + 1;
            state ^ state >> 64
        };
        let garbler: Vec<u64> = (0..circuit.garbler_words().len() * instances)
            .map(|_| random() as u64)
            .collect();
        let evaluator: Vec<u64> = (0..circuit.evaluator_words().count() * instances)
            .map(|_| random() as u64)
            .collect();
        let bits = circuit.labelled_bits() * instances;
        let zero_labels: Vec<_> = (0..bits).map(|_| Block::from_u128(random())).collect();
        let choices = circuit.choices(&evaluator, instances);
        let label = |(i, &zero): (usize, &Block)| {
            zero ^ delta.block().masked(choices[i / 8] >> (i % 8) & 1 == 1)
        };
        Self {
            name,
            labels: Zeroizing::new(zero_labels.iter().enumerate().map(label).collect()),
            circuit: Arc::new(circuit),
            instances,
            garbler: Zeroizing::new(garbler),
            evaluator: Zeroizing::new(evaluator),
            zero_labels: Zeroizing::new(zero_labels),
        }
    }

    /// Bytes of tables a second, garbling and evaluating, of the message that went fastest: on a
    /// machine that others use as well, what the code takes when it is left alone.
    fn run(&self, level: SimdLevel, delta: &Delta) -> [f64; 2] {
        let (circuit, instances) = (&self.circuit, self.instances);
        let mut garbler = Garbler::new(
            circuit.clone(),
            instances,
            delta,
            Block::from_u128(7),
            self.garbler.clone(),
            self.zero_labels.clone(),
        )
        .expect("the batch fits the circuit")
        .at_level(level);
        let mut evaluator = Evaluator::new(
            circuit.clone(),
            instances,
            self.evaluator.clone(),
            self.labels.clone(),
        )
        .expect("the batch fits the circuit")
        .at_level(level);
        let (mut rates, mut message) = ([0f64; 2], Vec::new());
        while garbler.want() == Want::Send {
            message.clear();
            let start = Instant::now();
            garbler.send(&mut message).expect("its turn");
            let garbling = start.elapsed();
            let start = Instant::now();
            evaluator.receive(&message).expect("honest tables");
            for (rate, time) in rates.iter_mut().zip([garbling, start.elapsed()]) {
                *rate = rate.max(message.len() as f64 / time.as_secs_f64());
            }
        }
        black_box((
            garbler.into_outputs().is_ok(),
            evaluator.into_outputs().is_ok(),
        ));
        rates
    }
}

/// The next `x[i]` is `x[i] and x[i + 1]`, over and over: nothing but ANDs, each needing the last.
fn chain(gates: usize) -> Circuit {
    let mut builder = Builder::new();
    let mut word = builder.evaluator_input(64);
    for i in 0..gates {
        let (at, next) = (i % 64, (i + 1) % 64);
        let flipped = builder.not(word[next]);
        word[at] = builder.and(word[at], flipped);
    }
    builder.output_revealed(&word);
    builder.finish()
}

/// Gazelle's circuit modulo `2^k`: sum, ReLU, and a fresh share by subtraction of a mask.
fn classical_relu(bits: u32) -> Circuit {
    let mut builder = Builder::new();
    let (x, y) = (builder.evaluator_input(bits), builder.evaluator_input(bits));
    let mask = builder.evaluator_input(bits);
    let sum = builder.add(&x, &y);
    let relu = builder.relu(&sum);
    let share = builder.sub(&relu, &mask);
    builder.output_revealed(&share);
    builder.finish()
}

/// Blocks a second of AES-128 under one key, in the first-level cache.
fn aes_rate(rounds: usize) -> f64 {
    let cipher = Aes128::new(Block::from_u128(1));
    let mut blocks = vec![Block::ZERO; 1024];
    let mut best = 0f64;
    for _ in 0..100 * rounds {
        let start = Instant::now();
        for _ in 0..20 {
            cipher.encrypt(black_box(&mut blocks));
        }
        best = best.max(20.0 * blocks.len() as f64 / start.elapsed().as_secs_f64());
    }
    best
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let rounds = arguments.next().and_then(|n| n.parse().ok()).unwrap_or(5);
    let wanted = arguments.next();
    let delta = Delta::new(Block::from_u128(0x1234_5678_9abc_def0_0fed_cba9_8765_4321));
    let modulus = Modulus::power_of_two(20).expect("a modulus");
    let largest = modulus.largest();
    let relu = Activation::RELU
        .circuit(modulus, -largest, largest, modulus)
        .expect("a circuit");
    let batches = [
        Batch::new("AND chain", chain(10_000), 1024, &delta),
        Batch::new(
            "ReLU as Gazelle has it, 20 bits",
            classical_relu(20),
            10_000,
            &delta,
        ),
        Batch::new("ReLU, 20 bits", relu, 10_000, &delta),
    ];
    let aes = aes_rate(rounds) / 1e6;
    println!(
        "AES alone: {aes:.0} M blocks/s, a ceiling of {:.0} M AND/s garbled and {:.0} M evaluated",
        aes / 4.0,
        aes / 2.0
    );
    for batch in &batches {
        let cost = batch.circuit.cost();
        let bytes = batch.circuit.table_bytes(batch.instances);
        println!(
            "{}: {} instances, {cost:?}, {:.2} bytes an instance",
            batch.name,
            batch.instances,
            bytes as f64 / batch.instances as f64
        );
        let gates = ((cost.and + cost.half) * batch.instances) as f64;
        for level in SimdLevel::available() {
            if wanted
                .as_ref()
                .is_some_and(|wanted| !format!("{level:?}").eq_ignore_ascii_case(wanted))
            {
                continue;
            }
            let mut best = [0f64; 2];
            for _ in 0..rounds {
                let rates = batch.run(level, &delta);
                best = [0, 1].map(|i| best[i].max(rates[i]));
            }
            let [garbling, evaluating] = best.map(|rate| rate * gates / bytes as f64 / 1e6);
            let [garble, evaluate] =
                best.map(|rate| bytes as f64 / batch.instances as f64 / rate * 1e9);
            println!(
                "  {level:?}: garbling {garbling:.0} M AND/s ({garble:.0} ns an instance), \
                 evaluating {evaluating:.0} M AND/s ({evaluate:.0} ns)"
            );
        }
    }
}
