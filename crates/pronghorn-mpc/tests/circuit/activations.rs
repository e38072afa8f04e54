//! Activations on shares equal their definition.

use super::*;

fn split(modulus: Modulus, value: i64, random: u64) -> (u64, u64) {
    let garbler = modulus.from_i64((random >> 1) as i64);
    (garbler, modulus.sub(modulus.from_i64(value), garbler))
}

/// Checks an activation on all shares of all values, or on edges and random shares where they are
/// many.
pub fn check_activation(
    activation: Activation,
    input: Modulus,
    low: i64,
    high: i64,
    output: Modulus,
) {
    let circuit = activation.circuit(input, low, high, output).unwrap();
    let values: Vec<i64> = if high - low < 40 {
        (low..=high).collect()
    } else {
        let step = ((high - low) / 37).max(1) as usize;
        let edges = [low, low + 1, -1, 0, 1, high - 1, high];
        let edges = edges.into_iter().filter(|x| (low..=high).contains(x));
        (low..=high).step_by(step).chain(edges).collect()
    };
    let mut random = 1u64;
    for (at, _) in values.iter().enumerate() {
        for round in 0..8 {
            let mut window = Vec::new();
            let (mut garbler, mut evaluator) = (Vec::new(), Vec::new());
            for i in 0..activation.pool {
                random = random
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(99);
                let at = if i == 0 { at } else { random as usize >> 7 };
                let value = values[at % values.len()];
                window.push(value);
                let mask = match round {
                    0 => 0,
                    1 => 2,
                    _ => random,
                };
                let shares = split(input, value, mask);
                garbler.push(shares.0);
                evaluator.push(shares.1);
            }
            assert_eq!(
                circuit.evaluate_plain(&garbler, &evaluator),
                [output.from_i64(activation.apply(&window))],
                "{activation:?} of {window:?} as {garbler:?} + {evaluator:?}, {input:?} to {output:?}"
            );
        }
    }
}

const LEAKY: Rectifier = Rectifier::Leaky { slope: 3, shift: 2 };

#[test]
fn activations_equal_their_definition() {
    let two = |bits| Modulus::power_of_two(bits).unwrap();
    let prime = |p| Modulus::prime(p).unwrap();
    // Moduli with no value to spare, and with some; prime and not; out of a narrower range than the
    // modulus.
    let inputs = [
        (two(6), -32, 31),
        (two(7), -32, 31),
        (two(20), -100_000, 500_000),
        (two(32), -70_000, 3_000),
        (two(20), 5, 1000),
        (two(20), -900, -3),
        (prime(61), -30, 30),
        (prime(61), -16, 15),
        (prime(61), -3, 15),
        (prime(1_032_193), -500_000, 516_096),
        (prime(1_032_193), -200_000, 200_000),
    ];
    for (input, low, high) in inputs {
        for output in [two(24), two(40), prime(4_611_686_018_427_387_847)] {
            let plain = Activation {
                rectifier: Rectifier::None,
                ..Activation::RELU
            };
            let leaky = Activation {
                rectifier: LEAKY,
                ..Activation::RELU
            };
            let mut activations = vec![
                plain,
                Activation::RELU,
                Activation { pool: 2, ..plain },
                Activation {
                    pool: 4,
                    ..Activation::RELU
                },
                Activation { pool: 3, ..leaky },
                leaky,
            ];
            for rectifier in [Rectifier::None, Rectifier::Relu, LEAKY] {
                activations.extend([
                    requantised(rectifier, 0, 0, 6),
                    requantised(rectifier, 2, -4, 3),
                    requantised(rectifier, 3, -128, 127),
                    requantised(rectifier, 5, 1, 2),
                    Activation {
                        pool: 4,
                        ..requantised(rectifier, 4, 0, 15)
                    },
                ]);
            }
            for activation in activations {
                check_activation(activation, input, low, high, output);
            }
        }
        // Into the same modulus, where the shares themselves are multiplied.
        check_activation(Activation::RELU, input, low, high, input);
    }
}

#[test]
fn the_definition_is_the_oracles() {
    for x in [
        i32::MIN,
        -65_537,
        -129,
        -1,
        0,
        1,
        127,
        128,
        40_000,
        i32::MAX,
    ] {
        let apply = |activation: Activation| activation.apply(&[x.into()]);
        assert_eq!(apply(Activation::RELU), i64::from(x.max(0)));
        for (shift, low, high) in [(0, -128, 127), (8, 0, 255), (31, -1, 0), (1, -9, 9)] {
            assert_eq!(
                apply(requantised(Rectifier::None, shift, low, high)),
                scalar::requantise(x, shift, low, high).into()
            );
        }
        if x.abs_diff(0) < 1 << 20 {
            let leaky = Activation {
                rectifier: Rectifier::Leaky {
                    slope: 26,
                    shift: 8,
                },
                ..Activation::RELU
            };
            assert_eq!(apply(leaky), scalar::leaky_relu(x, 26, 8).into());
        }
    }
}

#[test]
fn signs_of_all_shares() {
    for (modulus, low, high, size) in [
        (Modulus::power_of_two(5).unwrap(), -16, 15, 32),
        (Modulus::power_of_two(6).unwrap(), -16, 15, 64),
        (Modulus::prime(31).unwrap(), -15, 15, 31),
        (Modulus::prime(31).unwrap(), -7, 7, 31),
        (Modulus::prime(37).unwrap(), -15, 15, 37),
        (Modulus::prime(17).unwrap(), -8, 8, 17),
        (Modulus::prime(3).unwrap(), -1, 1, 3),
        (Modulus::prime(5).unwrap(), -1, 1, 5),
    ] {
        let circuit = sign(modulus, low, high).unwrap();
        assert_eq!(circuit.openings().collect::<Vec<_>>(), [Opening::Xor]);
        for value in low..=high {
            for garbler in 0..size {
                let evaluator = modulus.sub(modulus.from_i64(value), garbler);
                assert_eq!(
                    circuit.evaluate_plain(&[garbler], &[evaluator]),
                    [u64::from(value >= 0)],
                    "{value} as {garbler} + {evaluator}"
                );
            }
        }
    }
}

#[test]
fn argmax_of_shares() {
    let modulus = Modulus::power_of_two(16).unwrap();
    let circuit = argmax(modulus, -100, 100, 5).unwrap();
    for (values, expected) in [
        ([1, 2, 3, 2, 1], 2),
        ([7, 7, 7, 7, 7], 0),
        ([-100, -100, -100, -100, -99], 4),
        ([100, -100, 100, 0, 0], 0),
    ] {
        let shares = values.map(|value| split(modulus, value, 0x1234_5678_9abc));
        let (garbler, evaluator): (Vec<_>, Vec<_>) = shares.into_iter().unzip();
        assert_eq!(circuit.evaluate_plain(&garbler, &evaluator), [expected]);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn random_words_of_64_bits(x: u64, y: u64) {
        let circuit = of_two(64, |b, x, y| b.add(x, y));
        prop_assert_eq!(circuit.evaluate_plain(&[], &[x, y]), [x.wrapping_add(y)]);
        let circuit = of_known(64, |b, x, y| vec![b.less_than_signed(x, y)]);
        prop_assert_eq!(circuit.evaluate_plain(&[y], &[x]), [u64::from((x as i64) < y as i64)]);
    }

    #[test]
    fn random_values_of_the_oracles_range(
        x in i32::MIN / 2..i32::MAX / 2, mask: u64, shift in 0..=31u32, low in -300..=0, high in 0..300
    ) {
        let modulus = Modulus::power_of_two(32).unwrap();
        let activation = requantised(Rectifier::None, shift, low, high);
        let circuit = activation
            .circuit(modulus, (i32::MIN / 2).into(), (i32::MAX / 2).into(), modulus)
            .unwrap();
        let (garbler, evaluator) = split(modulus, x.into(), mask);
        let expected = scalar::requantise(x, shift, low, high);
        prop_assert_eq!(
            circuit.evaluate_plain(&[garbler], &[evaluator]),
            [modulus.from_i64(expected.into())]
        );
    }
}
