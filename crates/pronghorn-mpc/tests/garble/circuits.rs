//! Garbled circuits of every kind equal plain ones.

use super::*;

#[test]
fn relu_at_all_batch_sizes() {
    for modulus in [two(20), two(32), two(64), prime(1_032_193), prime(13)] {
        let largest = modulus.largest().min(i32::MAX.into());
        let circuit = Activation::RELU
            .circuit(modulus, -largest, largest, modulus)
            .unwrap();
        for instances in [1, 3, 4, 5, 8, 9, 16, TILE - 1, TILE, TILE + 1, 100] {
            activation(circuit.clone(), modulus, -largest, largest, instances).check();
        }
    }
}

#[test]
fn every_activation() {
    let requantisation = Some(Requantisation {
        shift: 5,
        low: -8,
        high: 63,
    });
    let leaky = Rectifier::Leaky { slope: 5, shift: 4 };
    let table = Table {
        rectified: true,
        drop: 1,
        first: -4,
        entries: &[0, -1, -2, -5, 3, 2, 7, 1],
        fine: 0,
        rises: &[],
    };
    let pieces = Table {
        drop: 3,
        fine: 2,
        rises: &[0, 7, -5, 3, 3, 3, 12, -1],
        ..table
    };
    for (input, low, high, output) in [
        (two(20), -(1 << 19), (1 << 19) - 1, two(25)),
        (two(32), -5000, 9000, two(20)),
        (prime(1_032_193), -300_000, 500_000, two(25)),
        (two(20), -5000, 9000, prime(4_611_686_018_427_387_847)),
        (prime(8191), -1000, 1000, prime(65_537)),
    ] {
        for pool in [1, 4] {
            for rectifier in [Rectifier::None, Rectifier::Relu, leaky] {
                for (requantisation, table) in [
                    (None, None),
                    (requantisation, None),
                    (requantisation, Some(table)),
                    (requantisation, Some(pieces)),
                    (None, Some(pieces)),
                ] {
                    let each = Activation {
                        pool,
                        rectifier,
                        requantisation,
                        table,
                    };
                    let Ok(circuit) = each.circuit(input, low, high, output) else {
                        continue; // the output does not fit
                    };
                    activation(circuit, input, low, high, TILE + 5).check();
                }
            }
        }
        let circuit = sign(input, low, high).unwrap();
        activation(circuit, input, low, high, TILE + 5).check();
        let circuit = argmax(input, low, high, 7).unwrap();
        activation(circuit, input, low, high, 9).check();
    }
}

#[test]
fn all_kinds_of_inputs_and_outputs() {
    for modulus in [two(9), two(64), prime(31), prime(4_611_686_018_427_387_847)] {
        let mut builder = Builder::new();
        let known = builder.garbler_input(3);
        let late = builder.late_input(3);
        let x = builder.evaluator_input(3);
        let masked: Vec<_> = (0..3).map(|i| builder.xor(x[i], known[i])).collect();
        let select = builder.and(x[2], late[0]);
        let half = builder.and(masked[0], known[1]);
        let known_and = builder.and(known[0], known[2]);
        let mut sum = Sum::new(modulus);
        sum.add_terms(Term::unsigned(modulus, &known, 5));
        sum.add_terms(Term::signed(modulus, &x, -3));
        sum.add_terms(Term::unsigned(modulus, &masked, 8));
        sum.add_terms(Term::unsigned(
            modulus,
            &[Bit::ONE, select, half, known_and],
            1,
        ));
        sum.add_product(select, Term::signed(modulus, &masked, 1));
        let not_late = builder.not(late[1]);
        sum.add_product(not_late, Term::unsigned(modulus, &x, 7));
        sum.add_product(known[0], Term::unsigned(modulus, &late, 2));
        let not_x: Vec<_> = x.iter().map(|&bit| builder.not(bit)).collect();
        sum.add_product(masked[1], Term::unsigned(modulus, &not_x, 12));
        builder.output_sum(sum.clone());
        let bits = [
            Bit::ZERO,
            Bit::ONE,
            known[0],
            x[1],
            masked[2],
            select,
            half,
            known_and,
            late[2],
        ];
        builder.output_revealed(&bits);
        builder.output_shared(&bits);
        builder.output_sum(sum);
        let circuit = builder.finish();
        let instances = 512;
        let word = |shift: u32| (0..instances).map(move |i| i >> shift & 7);
        let late_then_x: Vec<u64> = word(3).chain(word(6)).collect();
        let mut batch = Batch::new(circuit, word(0).collect(), late_then_x, instances as usize);
        check_with_late_word(&mut batch);
    }
}

/// The evaluator does not know the late word, the first of two labelled ones.
fn check_with_late_word(batch: &mut Batch) {
    let all = batch.evaluator.clone();
    let own = batch.evaluator.split_off(batch.instances);
    batch.evaluator = own;
    let (tables, garbler) = batch.garble(SimdLevel::detect());
    for level in SimdLevel::available() {
        assert!(batch.garble(level).0 == tables);
        let evaluator = batch.evaluate(level, &tables, 1);
        for i in 0..batch.instances {
            let labelled = [all[i], all[batch.instances + i]];
            let plain = batch.circuit.evaluate_plain(&[batch.garbler[i]], &labelled);
            for (output, opening) in batch.circuit.openings().enumerate() {
                let at = output * batch.instances + i;
                let opened = opening.open(garbler[at], evaluator[at]);
                assert_eq!(opened, plain[output], "output {output}, instance {i}");
            }
        }
    }
}

/// Classical circuits on words: all of `x op y` for wires and for a known word.
#[test]
fn words() {
    type Function = fn(&mut Builder, &[Bit], &[Bit]) -> Vec<Bit>;
    let functions: [Function; 8] = [
        |b, x, y| b.add(x, y),
        |b, x, y| b.sub(x, y),
        |b, x, y| vec![b.less_than(x, y)],
        |b, x, y| vec![b.equal(x, y)],
        |b, x, y| b.max(x, y),
        |b, x, y| b.multiplex(x[0], x, y),
        |b, x, y| b.sub_mod_prime(x, y, 13),
        |b, x, y| b.add_mod_prime(x, y, 13),
    ];
    for function in functions {
        for known in [false, true] {
            let mut builder = Builder::new();
            let x = builder.evaluator_input(4);
            let y = if known {
                builder.garbler_input(4)
            } else {
                builder.evaluator_input(4)
            };
            let out = function(&mut builder, &x, &y);
            builder.output_revealed(&out);
            let (x, y): (Vec<u64>, Vec<u64>) = (0..256).map(|i| (i & 15, i >> 4)).unzip();
            let (garbler, evaluator) = if known {
                (y, x)
            } else {
                (vec![], [x, y].concat())
            };
            Batch::new(builder.finish(), garbler, evaluator, 256).check();
        }
    }
}

#[test]
fn long_chains_go_in_messages() {
    let mut builder = Builder::new();
    let mut word = builder.evaluator_input(8);
    for i in 0..3000 {
        let next = builder.not(word[(i + 1) % 8]);
        let both = builder.and(word[i % 8], next);
        word[i % 8] = builder.xor(both, word[(i + 3) % 8]);
    }
    builder.output_revealed(&word);
    let circuit = builder.finish();
    let values: Vec<u64> = (0..50).map(|i| i * 5).collect();
    let batch = Batch::new(circuit, vec![], values, 50);
    assert!(batch.circuit.table_bytes(50) > 10 * MESSAGE_BYTES);
    batch.check();
}

#[test]
fn a_circuit_without_outputs_or_gates() {
    Batch::new(Builder::new().finish(), vec![], vec![], 3).check();
    let mut builder = Builder::new();
    let x = builder.evaluator_input(64);
    builder.output_revealed(&x);
    Batch::new(builder.finish(), vec![], vec![1, u64::MAX, 3], 3).check();
}

#[test]
fn garblings_with_other_starts_are_unrelated() {
    let circuit = Activation::RELU.circuit(two(20), -9, 9, two(20)).unwrap();
    let mut batch = activation(circuit, two(20), -9, 9, 40);
    let (tables, shares) = batch.garble(SimdLevel::detect());
    batch.start = Block::from_u128(99);
    let (others, other_shares) = batch.garble(SimdLevel::detect());
    let equal = tables.iter().zip(&others).filter(|(x, y)| x == y).count();
    assert!(equal < tables.len() / 64);
    assert!(shares.iter().zip(&other_shares).all(|(x, y)| x != y));
}

/// Inputs that come after garbling, in the way of Beaver: random OTs offline, flips and corrections
/// online.
#[test]
fn inputs_after_garbling() {
    let circuit = Activation::RELU.circuit(two(20), -99, 99, two(20)).unwrap();
    let batch = activation(circuit, two(20), -99, 99, TILE + 3);
    let (delta, count) = (&batch.delta, batch.zero_labels.len());
    let random = &mut Random(5);
    let mut q: Vec<_> = (0..count).map(|_| random.block()).collect();
    let offline: Vec<u8> = (0..count.div_ceil(8))
        .map(|_| random.next() as u8)
        .collect();
    let bit = |bits: &[u8], i: usize| bits[i / 8] >> (i % 8) & 1 == 1;
    let mut t: Vec<_> = (0..count)
        .map(|i| q[i] ^ delta.block().masked(bit(&offline, i)))
        .collect();
    let choices = batch.circuit.choices(&batch.evaluator, batch.instances);
    let flips: Vec<u8> = choices.iter().zip(&offline).map(|(x, y)| x ^ y).collect();
    correct(delta, &batch.zero_labels, &flips, &mut q).unwrap();
    apply_corrections(&q, &mut t).unwrap();
    assert!(t == batch.labels);
    assert!(correct(delta, &batch.zero_labels, &flips[1..], &mut q).is_err());
    assert!(correct(delta, &batch.zero_labels[1..], &flips, &mut q).is_err());
    assert!(apply_corrections(&q[1..], &mut t).is_err());
    let values = &batch.evaluator;
    assert!(encode(&batch.circuit, delta, &values[1..], batch.instances, &mut t).is_err());
    assert!(encode(&batch.circuit, delta, values, batch.instances, &mut t[1..]).is_err());
}

/// Words of one bit and of all 64, moduli that small and that large.
#[test]
fn the_narrowest_and_the_widest() {
    let most = prime(4_611_686_018_427_387_847);
    let moduli = [two(1), two(2), two(63), two(64), prime(3), prime(5), most];
    for modulus in moduli {
        let bits = modulus.bits();
        let mut builder = Builder::new();
        let known = builder.garbler_input(bits);
        let late = builder.late_input(1);
        let word = builder.evaluator_input(bits);
        let select = builder.and(word[0], late[0]);
        let masked = builder.xor(word[0], known[0]);
        let mut sum = Sum::new(modulus);
        sum.add_terms(Term::signed(modulus, &word, i64::MIN));
        sum.add_terms(Term::unsigned(modulus, &known, -1));
        sum.add_product(select, Term::signed(modulus, &word, -1));
        sum.add_product(masked, Term::unsigned(modulus, &known, i64::MAX));
        sum.add_product(late[0], Term::unsigned(modulus, &[masked, Bit::ONE], 1));
        builder.output_sum(sum);
        let both = builder.add(&word, &known);
        let less = builder.less_than_signed(&word, &known);
        let same = builder.equal(&word, &known);
        builder.output_revealed(&both);
        builder.output_shared(&[less, same, select]);
        let circuit = builder.finish();
        let random = &mut Random(bits.into());
        let top = modulus.neg(1);
        for instances in [1, TILE + 1] {
            let mut words = || -> Vec<_> {
                let word = |i| match i % 5 {
                    0 => 0,
                    1 => top,
                    2 => 1,
                    _ => modulus.from_i64(random.next() as i64),
                };
                (0..instances).map(word).collect()
            };
            let (garbler, mut evaluator) = (words(), words());
            evaluator.rotate_left(instances / 2);
            let late = (0..instances).map(|i| (i as u64 / 2) & 1);
            let labelled = late.chain(evaluator).collect();
            let mut batch = Batch::new(circuit.clone(), garbler, labelled, instances);
            check_with_late_word(&mut batch);
        }
    }
    for (modulus, low, high) in [
        (two(1), -1, 0),
        (two(2), -2, 1),
        (two(64), i32::MIN.into(), i32::MAX.into()),
        (prime(3), -1, 1),
        (prime(5), -2, 2),
        (most, i32::MIN.into(), i32::MAX.into()),
    ] {
        let circuit = Activation::RELU
            .circuit(modulus, low, high, modulus)
            .unwrap();
        activation(circuit, modulus, low, high, TILE + 1).check();
        let circuit = sign(modulus, low, high).unwrap();
        activation(circuit, modulus.narrowed(low, high), low, high, 3).check();
    }
    for modulus in [two(64), most] {
        let (low, high) = (-modulus.largest(), modulus.largest());
        let circuit = sign(modulus, low, high).unwrap();
        for value in [low, low + 1, -1, 0, 1, high - 1, high] {
            for garbler in [
                0,
                1,
                modulus.neg(1),
                modulus.from_i64(high),
                0x1234_5678_9abc,
            ] {
                let evaluator = modulus.sub(modulus.from_i64(value), garbler);
                let sign = circuit.evaluate_plain(&[garbler], &[evaluator]);
                assert_eq!(sign, [u64::from(value >= 0)], "{value} {garbler}");
            }
        }
    }
}

/// A random circuit over all kinds of bits.
fn random_circuit(seed: u64) -> Circuit {
    let random = &mut Random(seed);
    let mut builder = Builder::new();
    let mut bits = vec![Bit::ZERO, Bit::ONE];
    bits.extend(builder.garbler_input(4));
    bits.extend(builder.evaluator_input(5));
    bits.extend(builder.evaluator_input(1));
    for _ in 0..random.next() % 120 {
        let [x, y, z] = [0; 3].map(|_| bits[random.next() as usize % bits.len()]);
        bits.push(match random.next() % 5 {
            0 => builder.xor(x, y),
            1 => builder.not(x),
            2 => builder.select(x, y, z),
            _ => builder.and(x, y),
        });
    }
    for _ in 0..3 {
        let word: Vec<_> = (0..1 + random.next() % 6)
            .map(|_| bits[random.next() as usize % bits.len()])
            .collect();
        let modulus = if random.next().is_multiple_of(2) {
            two(7)
        } else {
            prime(97)
        };
        let mut sum = Sum::new(modulus);
        sum.add_terms(Term::signed(modulus, &word, random.next() as i64));
        sum.add_product(bits[bits.len() - 1], Term::unsigned(modulus, &word, 3));
        sum.add_product(word[0], Term::signed(modulus, &word, 4));
        builder.output_sum(sum);
        builder.output_revealed(&word);
        builder.output_shared(&word);
    }
    builder.finish()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn random_circuits(seed: u64, instances in 1..80usize) {
        let random = &mut Random(!seed);
        let mut words = |count: usize| (0..count).map(|_| random.next()).collect::<Vec<_>>();
        let (garbler, evaluator) = (words(instances), words(2 * instances));
        Batch::new(random_circuit(seed), garbler, evaluator, instances).check();
    }
}
