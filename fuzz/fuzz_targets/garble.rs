//! Garbled tables and corrections from a hostile garbler, flips from a hostile evaluator.
#![no_main]

use std::sync::{Arc, LazyLock};

use libfuzzer_sys::{
    arbitrary::{self, Arbitrary},
    fuzz_target,
};
use pronghorn_fuzz::{Patch, Splice, edited, patched};
use pronghorn_mpc::{
    Block,
    circuit::{Activation, Circuit, Modulus, Opening, Rectifier, Requantisation, argmax, sign},
    garble::{Delta, Evaluator, GarbleError, Garbler, apply_corrections, correct, encode},
    machine::{Machine, Want},
};
use zeroize::Zeroizing;

/// Instances: a whole tile and a part of one.
const INSTANCES: usize = 35;

struct Good {
    circuit: Arc<Circuit>,
    evaluator: Vec<u64>,
    zero_labels: Vec<Block>,
    labels: Vec<Block>,
    tables: Vec<u8>,
    /// The garbler's words of the outputs.
    outputs: Vec<u64>,
    plain: Vec<Vec<u64>>,
}

fn delta() -> Delta {
    Delta::new(block(1))
}

/// A block as good as random.
fn block(index: u64) -> Block {
    let word = |x: u64| {
        let x = x.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (x ^ x >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9)
    };
    Block::from_u128(u128::from(word(index)) << 64 | u128::from(word(!index)))
}

fn good(circuit: Circuit, modulus: Modulus) -> Good {
    let circuit = Arc::new(circuit);
    let words = circuit.garbler_words().len() * INSTANCES;
    let value = |i: usize| modulus.from_i64(i as i64 * 37 % 199 - 99);
    let garbler: Vec<u64> = (0..words)
        .map(|i| modulus.from_i64((block(i as u64).to_u128() >> 70) as i64))
        .collect();
    let evaluator: Vec<u64> = (0..words)
        .map(|i| modulus.sub(value(i), garbler[i]))
        .collect();
    let bits = circuit.labelled_bits() * INSTANCES;
    let zero_labels: Vec<_> = (0..bits as u64).map(|i| block(i + 1000)).collect();
    let mut labels = zero_labels.clone();
    encode(&circuit, &delta(), &evaluator, INSTANCES, &mut labels).expect("the lengths fit");
    let mut machine = Garbler::new(
        circuit.clone(),
        INSTANCES,
        &delta(),
        block(2),
        Zeroizing::new(garbler.clone()),
        Zeroizing::new(zero_labels.clone()),
    )
    .expect("the lengths fit");
    let mut tables = Vec::new();
    while machine.want() == Want::Send {
        machine.send(&mut tables).expect("it is its turn");
    }
    let words = |values: &[u64], i: usize| -> Vec<u64> {
        values.iter().skip(i).step_by(INSTANCES).copied().collect()
    };
    let plain = (0..INSTANCES)
        .map(|i| circuit.evaluate_plain(&words(&garbler, i), &words(&evaluator, i)))
        .collect();
    Good {
        outputs: machine.into_outputs().expect("it is done").to_vec(),
        circuit,
        evaluator,
        zero_labels,
        labels,
        tables,
        plain,
    }
}

static GOOD: LazyLock<Vec<Good>> = LazyLock::new(|| {
    let two = Modulus::power_of_two(20).expect("1 to 64 bits");
    let prime = Modulus::prime(1_032_193).expect("a prime");
    let pooled = Activation {
        pool: 2,
        rectifier: Rectifier::Leaky { slope: 3, shift: 4 },
        requantisation: Some(Requantisation {
            shift: 3,
            low: -20,
            high: 100,
        }),
        table: None,
    };
    let (low, high) = (-100, 100);
    let narrow = two.narrowed(low, high);
    let relu = Activation::RELU.circuit(two, low, high, two);
    vec![
        good(relu.expect("it fits"), two),
        good(
            pooled.circuit(prime, low, high, prime).expect("it fits"),
            prime,
        ),
        good(
            pooled.circuit(prime, low, high, two).expect("it fits"),
            prime,
        ),
        good(sign(two, low, high).expect("it fits"), narrow),
        good(argmax(prime, low, high, 3).expect("it fits"), prime),
    ]
});

#[derive(Arbitrary, Debug)]
struct Input {
    which: u8,
    patches: Vec<Patch>,
    splices: Vec<Splice>,
    labels: Vec<Patch>,
    /// Lengths of messages, in turn.
    lengths: Vec<u16>,
    flips: Vec<u8>,
}

fuzz_target!(|input: Input| {
    let good = &GOOD[usize::from(input.which) % GOOD.len()];
    corrections(good, &input);
    let tables = edited(patched(good.tables.clone(), &input.patches), &input.splices);
    let labels: Vec<u8> = good
        .labels
        .iter()
        .flat_map(|label| label.to_bytes())
        .collect();
    let labels = patched(labels, &input.labels);
    let labels = labels
        .as_chunks()
        .0
        .iter()
        .map(|&label| Block::from_bytes(label));
    let labels = Zeroizing::new(labels.collect::<Vec<_>>());
    let honest = tables == good.tables && *labels == good.labels;
    let values = Zeroizing::new(good.evaluator.clone());
    let mut machine =
        Evaluator::new(good.circuit.clone(), INSTANCES, values, labels).expect("the lengths fit");
    let (mut rest, mut lengths) = (&tables[..], input.lengths.iter().cycle());
    while machine.want() == Want::Receive {
        let wanted = lengths.next().map_or(usize::MAX, |&length| length.into());
        let (message, later) = rest.split_at(wanted.min(rest.len()));
        let result = machine.receive(message);
        if message.is_empty() || message.len() > good.tables.len() {
            assert!(matches!(result, Err(GarbleError::MessageLength { .. })));
        }
        if result.is_err() {
            assert!(machine.into_outputs().is_err());
            return;
        }
        rest = later;
    }
    assert_eq!(machine.max_incoming(), 0);
    assert!(machine.receive(&[0]).is_err());
    let outputs = machine.into_outputs().expect("it is done");
    for (output, opening) in good.circuit.openings().enumerate() {
        for i in 0..INSTANCES {
            let at = output * INSTANCES + i;
            if let Opening::Sum(modulus) = opening {
                assert_eq!(modulus.add(outputs[at], 0), outputs[at], "reduced");
            }
            if honest {
                let value = opening.open(good.outputs[at], outputs[at]);
                assert_eq!(value, good.plain[i][output]);
            }
        }
    }
});

/// Labels for inputs that come late.
fn corrections(good: &Good, input: &Input) {
    let count = good.zero_labels.len();
    let mut q = vec![block(3); count];
    let result = correct(&delta(), &good.zero_labels, &input.flips, &mut q);
    assert_eq!(result.is_ok(), input.flips.len() == count.div_ceil(8));
    let mut flips = input.flips.clone();
    flips.resize(count.div_ceil(8), 0);
    let mut q = vec![block(3); count];
    correct(&delta(), &good.zero_labels, &flips, &mut q).expect("the lengths fit");
    let sent = count.min(usize::from(input.which));
    let mut t = vec![Block::ZERO; count];
    assert_eq!(apply_corrections(&q[sent..], &mut t).is_ok(), sent == 0);
}
