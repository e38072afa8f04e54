//! Circuits on plain integers: exhaustively at small widths, at random and at the edges at large ones, and what
//! each of them costs.

use pronghorn_mpc::circuit::{
    Activation, Bit, Builder, Circuit, CircuitError, Cost, Modulus, Opening, Rectifier,
    Requantisation, Sum, Term, argmax, sign,
};
use proptest::prelude::*;

/// The oracle's definitions, as `pronghorn_graph::fixed::scalar` has them.
mod scalar {
    pub fn clip(x: i32, low: i32, high: i32) -> i32 {
        x.max(low).min(high)
    }

    pub fn leaky_relu(x: i32, slope: i32, shift: u32) -> i32 {
        let (above, below) = (x.wrapping_shl(shift), x.wrapping_mul(slope));
        if x >= 0 { above } else { below }
    }

    pub fn requantise(x: i32, shift: u32, low: i32, high: i32) -> i32 {
        let half = match shift {
            0 => 0,
            _ => x.wrapping_shr(shift - 1) & 1,
        };
        clip(x.wrapping_shr(shift).wrapping_add(half), low, high)
    }
}

/// A circuit of two evaluator's words of `width` bits.
fn of_two(width: u32, f: impl FnOnce(&mut Builder, &[Bit], &[Bit]) -> Vec<Bit>) -> Circuit {
    let mut builder = Builder::new();
    let (x, y) = (
        builder.evaluator_input(width),
        builder.evaluator_input(width),
    );
    let out = f(&mut builder, &x, &y);
    builder.output_revealed(&out);
    builder.finish()
}

/// The same with the second word known to the garbler.
fn of_known(width: u32, f: impl FnOnce(&mut Builder, &[Bit], &[Bit]) -> Vec<Bit>) -> Circuit {
    let mut builder = Builder::new();
    let (x, y) = (builder.evaluator_input(width), builder.garbler_input(width));
    let out = f(&mut builder, &x, &y);
    builder.output_revealed(&out);
    builder.finish()
}

fn of_one(width: u32, f: impl FnOnce(&mut Builder, &[Bit]) -> Vec<Bit>) -> Circuit {
    let mut builder = Builder::new();
    let x = builder.evaluator_input(width);
    let out = f(&mut builder, &x);
    builder.output_revealed(&out);
    builder.finish()
}

fn signed(x: u64, width: u32) -> i64 {
    (x << (64 - width)) as i64 >> (64 - width)
}

fn cut(x: i64, width: u32) -> u64 {
    x as u64 & (u64::MAX >> (64 - width))
}

/// Widths checked on all inputs, and a few large ones on edges and strides.
fn words(width: u32) -> Vec<u64> {
    let all = u64::MAX >> (64 - width);
    if width <= 5 {
        return (0..=all).collect();
    }
    let top = 1 << (width - 1);
    let mut words = vec![0, 1, 2, top - 1, top, top + 1, all - 1, all];
    words.extend((1..40u64).map(|i| i.wrapping_mul(0x9e37_79b9_7f4a_7c15) & all));
    words
}

type TwoWords = fn(&mut Builder, &[Bit], &[Bit]) -> Vec<Bit>;

#[test]
fn functions_of_two_words() {
    // Name, circuit, meaning for (x, y, width), ANDs for two wires, (ANDs, halves) for a known word.
    type Meaning = fn(u64, u64, u32) -> u64;
    type Case = (
        &'static str,
        TwoWords,
        Meaning,
        fn(usize) -> usize,
        fn(usize) -> (usize, usize),
    );
    let cases: &[Case] = &[
        (
            "add",
            |b, x, y| b.add(x, y),
            |x, y, w| cut(x.wrapping_add(y) as i64, w),
            |k| k - 1,
            |k| (k.saturating_sub(2), usize::from(k > 1)),
        ),
        (
            "add with carry",
            |b, x, y| {
                let (mut sum, carry) = b.add_carry(x, y, Bit::ONE);
                sum.truncate(63);
                sum.push(carry);
                sum
            },
            |x, y, w| {
                let sum = u128::from(x) + u128::from(y) + 1;
                let shown = w.min(63);
                cut(sum as i64, shown) | ((sum >> w) as u64 & 1) << shown
            },
            |k| k,
            |k| (k - 1, 1),
        ),
        (
            "sub",
            |b, x, y| b.sub(x, y),
            |x, y, w| cut(x.wrapping_sub(y) as i64, w),
            |k| k - 1,
            |k| (k.saturating_sub(2), usize::from(k > 1)),
        ),
        (
            "less than",
            |b, x, y| vec![b.less_than(x, y)],
            |x, y, _| u64::from(x < y),
            |k| k,
            |k| (k - 1, 1),
        ),
        (
            "at least",
            |b, x, y| vec![b.at_least(x, y)],
            |x, y, _| u64::from(x >= y),
            |k| k,
            |k| (k - 1, 1),
        ),
        (
            "less than, signed",
            |b, x, y| vec![b.less_than_signed(x, y)],
            |x, y, w| u64::from(signed(x, w) < signed(y, w)),
            |k| k,
            |k| (k - 1, 1),
        ),
        (
            "equal",
            |b, x, y| vec![b.equal(x, y)],
            |x, y, _| u64::from(x == y),
            |k| k - 1,
            |k| (k - 1, 0),
        ),
        (
            "max",
            |b, x, y| b.max(x, y),
            |x, y, w| if signed(x, w) < signed(y, w) { y } else { x },
            |k| 2 * k,
            |k| (2 * k - 1, 1),
        ),
        (
            "multiplex by the lowest bit",
            |b, x, y| {
                let select = x[0];
                b.multiplex(select, x, y)
            },
            |x, y, _| if x & 1 == 1 { x } else { y },
            |k| k,
            |k| (k - 1, 1),
        ),
    ];
    for &(name, f, meaning, two, known) in cases {
        for width in [1, 2, 3, 5, 20, 33, 64] {
            let circuit = of_two(width, f);
            let with_known = of_known(width, f);
            let k = width as usize;
            assert_eq!(circuit.cost().and, two(k), "{name}, {width} bits");
            assert_eq!(circuit.cost().half, 0, "{name}, {width} bits");
            let cost = with_known.cost();
            assert_eq!(
                (cost.and, cost.half),
                known(k),
                "{name}, {width} bits, known"
            );
            for &x in &words(width) {
                for &y in &words(width) {
                    let expected = [meaning(x, y, width)];
                    assert_eq!(
                        circuit.evaluate_plain(&[], &[x, y]),
                        expected,
                        "{name}({x}, {y}), {width} bits"
                    );
                    assert_eq!(
                        with_known.evaluate_plain(&[y], &[x]),
                        expected,
                        "{name}({x}, {y}), {width} bits, known"
                    );
                }
            }
        }
    }
}

#[test]
fn functions_of_one_word() {
    for width in [2, 3, 5, 8, 20, 32] {
        let k = width as usize;
        let negate = of_one(width, |b, x| b.negate(x));
        assert_eq!(negate.cost().and, k.saturating_sub(2));
        let relu = of_one(width, |b, x| b.relu(x));
        assert_eq!(relu.cost().and, k - 1);
        for &x in &words(width) {
            let value = signed(x, width);
            assert_eq!(negate.evaluate_plain(&[], &[x]), [cut(-value, width)]);
            assert_eq!(
                relu.evaluate_plain(&[], &[x]),
                [cut(value.max(0), width)],
                "relu({value})"
            );
        }
        for shift in [0, 1, 2, 7, 19, 31] {
            let out = if shift == 0 {
                width
            } else {
                width.saturating_sub(shift).max(1) + 1
            };
            let rounded = of_one(width, |b, x| b.round_shift(x, shift));
            let ands = if shift == 0 { 0 } else { out as usize - 1 };
            assert!(rounded.cost().and <= ands);
            for &x in &words(width) {
                let value = signed(x, width) as i32;
                let expected = scalar::requantise(value, shift, i32::MIN, i32::MAX);
                assert_eq!(
                    rounded.evaluate_plain(&[], &[x]),
                    [cut(expected.into(), out)],
                    "{value} >> {shift}"
                );
            }
        }
        for (low, high) in [(0, 1), (-1, 1), (0, (1 << (width - 1)) - 1)] {
            let clip = of_one(width, |b, x| b.clip(x, low, high));
            for &x in &words(width) {
                let expected = scalar::clip(signed(x, width) as i32, low as i32, high as i32);
                assert_eq!(
                    clip.evaluate_plain(&[], &[x]),
                    [cut(expected.into(), width)]
                );
            }
        }
        for (slope, shift) in [(0, 0), (1, 2), (26, 8), (3, 1), (-3, 0)] {
            let out = width + 9;
            let leaky = of_one(width, |b, x| b.leaky_relu(x, slope, shift, out as usize));
            for &x in &words(width) {
                let value = signed(x, width);
                let expected = if value >= 0 {
                    value << shift
                } else {
                    value * slope
                };
                assert_eq!(
                    leaky.evaluate_plain(&[], &[x]),
                    [cut(expected, out)],
                    "{value}, slope {slope}, shift {shift}"
                );
            }
        }
    }
    for factor in [-129, -128, -7, -1, 0, 1, 2, 7, 85, 1023, i64::MIN, i64::MAX] {
        let circuit = of_one(6, |b, x| b.multiply_constant(x, factor, 20));
        for x in 0..64 {
            assert_eq!(
                circuit.evaluate_plain(&[], &[x]),
                [cut(signed(x, 6).wrapping_mul(factor), 20)],
                "{} * {factor}",
                signed(x, 6)
            );
        }
    }
}

#[test]
fn arithmetic_modulo_primes() {
    for p in [
        3u64,
        5,
        7,
        13,
        17,
        31,
        8191,
        1_032_193,
        4_611_686_018_427_387_847,
    ] {
        let width = u64::BITS - p.leading_zeros();
        let k = width as usize;
        let residues: Vec<u64> = if p < 32 {
            (0..p).collect()
        } else {
            let mut residues: Vec<_> = words(width).iter().map(|x| x % p).collect();
            residues.extend([p - 1, p - 2, p / 2, p / 2 + 1]);
            residues
        };
        let [sub, add] = [true, false].map(|sub| {
            move |b: &mut Builder, x: &[Bit], y: &[Bit]| {
                if sub {
                    b.sub_mod_prime(x, y, p)
                } else {
                    b.add_mod_prime(x, y, p)
                }
            }
        });
        let circuits = [of_two(width, sub), of_two(width, add)];
        let known = [of_known(width, sub), of_known(width, add)];
        assert!(circuits[0].cost().and < 2 * k);
        assert!(circuits[1].cost().and <= 3 * k - 2);
        for circuit in &known {
            assert!(circuit.cost().and <= 2 * k - 2 && circuit.cost().half == 1);
        }
        for &x in &residues {
            for &y in &residues {
                let difference = if x < y { x + (p - y) } else { x - y };
                let sum = ((u128::from(x) + u128::from(y)) % u128::from(p)) as u64;
                for (i, expected) in [difference, sum].into_iter().enumerate() {
                    assert_eq!(circuits[i].evaluate_plain(&[], &[x, y]), [expected]);
                    assert_eq!(known[i].evaluate_plain(&[y], &[x]), [expected]);
                }
            }
        }
    }
    for p in [3u64, 13, 17, 251] {
        let circuit = of_one(10, |b, x| b.reduce_mod_prime(x, p));
        let k = (u64::BITS - p.leading_zeros()) as usize;
        assert!(circuit.cost().and <= 2 * k * (10 - k + 1));
        for x in 0..1024 {
            assert_eq!(circuit.evaluate_plain(&[], &[x]), [x % p]);
        }
    }
}

#[test]
fn reshared_words_add_up() {
    for (modulus, ands) in [
        (Modulus::power_of_two(4).unwrap(), 2),
        (Modulus::prime(13).unwrap(), 6),
    ] {
        let size = if ands == 2 { 16 } else { 13 };
        let circuit = of_known(4, |b, y, mask| b.reshare(y, mask, modulus));
        assert_eq!((circuit.cost().and, circuit.cost().half), (ands, 1));
        for y in 0..size {
            for mask in 0..size {
                let [share] = circuit.evaluate_plain(&[mask], &[y])[..] else {
                    panic!("one output")
                };
                assert_eq!(modulus.add(share, mask), y);
            }
        }
    }
}

#[test]
fn the_largest_and_its_index() {
    let build = |count, index: bool| {
        let mut builder = Builder::new();
        let words: Vec<_> = (0..count).map(|_| builder.evaluator_input(3)).collect();
        let out = if index {
            builder.argmax_of(&words).0
        } else {
            builder.max_of(&words)
        };
        builder.output_revealed(&out);
        builder.finish()
    };
    for count in 1..=4 {
        let (largest, index) = (build(count, false), build(count, true));
        assert_eq!(largest.cost().and, 2 * 3 * (count - 1));
        for packed in 0..1u64 << (3 * count) {
            let words: Vec<_> = (0..count).map(|i| packed >> (3 * i) & 7).collect();
            let values: Vec<_> = words.iter().map(|&x| signed(x, 3)).collect();
            let most = *values.iter().max().unwrap();
            let first = values.iter().position(|&x| x == most).unwrap();
            assert_eq!(largest.evaluate_plain(&[], &words), [cut(most, 3)]);
            assert_eq!(index.evaluate_plain(&[], &words), [first as u64]);
        }
    }
}

fn split(modulus: Modulus, value: i64, random: u64) -> (u64, u64) {
    let garbler = modulus.from_i64((random >> 1) as i64);
    (garbler, modulus.sub(modulus.from_i64(value), garbler))
}

/// Checks an activation on all shares of all values, or on edges and random shares where they are many.
fn check_activation(activation: Activation, input: Modulus, low: i64, high: i64, output: Modulus) {
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

fn requantised(rectifier: Rectifier, shift: u32, low: i32, high: i32) -> Activation {
    Activation {
        pool: 1,
        rectifier,
        requantisation: Some(Requantisation { shift, low, high }),
    }
}

const LEAKY: Rectifier = Rectifier::Leaky { slope: 3, shift: 2 };

#[test]
fn activations_equal_their_definition() {
    let two = |bits| Modulus::power_of_two(bits).unwrap();
    let prime = |p| Modulus::prime(p).unwrap();
    // Moduli with no value to spare, and with some; prime and not; out of a narrower range than the modulus.
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

/// Gates, and bytes of 32 instances, of the circuits that networks use: a larger figure is a loss, a smaller one worth
/// recording.
#[test]
fn costs_stay_what_they_are() {
    let two = |bits| Modulus::power_of_two(bits).unwrap();
    let (full, half) = ((1 << 19) - 1, (1 << 18) - 1);
    let gazelle = Modulus::prime(1_032_193).unwrap(); // 20 bits, 1 mod 4096
    let circuit = |activation: Activation, input: Modulus, largest: i64, output| {
        activation
            .circuit(input, -largest, largest, output)
            .unwrap()
    };
    let (relu, truncated) = (Activation::RELU, requantised(Rectifier::Relu, 8, -128, 127));
    let pool = Activation { pool: 4, ..relu };
    let leaky = Activation {
        rectifier: Rectifier::Leaky {
            slope: 26,
            shift: 8,
        },
        ..relu
    };
    let cases = [
        (
            "sign",
            sign(two(20), -full, full).unwrap(),
            [18, 1, 37, 0, 20],
            18_944,
        ),
        (
            "relu",
            circuit(relu, two(20), full, two(20)),
            [18, 1, 37, 250, 20],
            19_944,
        ),
        (
            "relu, 16 bits",
            circuit(relu, two(16), 32_767, two(16)),
            [14, 1, 29, 168, 16],
            15_520,
        ),
        (
            "relu, 2^32 of 20 bits",
            circuit(relu, two(32), full, two(32)),
            [18, 1, 37, 938, 20],
            22_696,
        ),
        (
            "relu, prime",
            circuit(relu, gazelle, gazelle.largest(), gazelle),
            [38, 2, 77, 440, 20],
            41_696,
        ),
        (
            "relu, prime of 19 bits",
            circuit(relu, gazelle, half, gazelle),
            [20, 1, 41, 440, 20],
            22_752,
        ),
        (
            "relu, prime to 2^20",
            circuit(relu, gazelle, half, two(20)),
            [37, 1, 87, 454, 20],
            40_216,
        ),
        (
            "clip 0..=6 * 2^8",
            circuit(
                requantised(Rectifier::None, 0, 0, 1536),
                two(20),
                full,
                two(20),
            ),
            [28, 1, 58, 261, 20],
            30_228,
        ),
        (
            "relu >> 8, 8 bits",
            circuit(truncated, two(20), half, two(20)),
            [22, 1, 44, 298, 20],
            24_232,
        ),
        (
            "leaky relu",
            circuit(leaky, two(20), full, two(32)),
            [18, 1, 37, 1330, 20],
            24_264,
        ),
        (
            "max-pool, relu",
            circuit(pool, two(20), full, two(20)),
            [174, 4, 399, 916, 80],
            183_888,
        ),
        (
            "argmax of 10",
            argmax(two(20), -full, full, 10).unwrap(),
            [533, 10, 1215, 0, 200],
            550_928,
        ),
    ];
    for (name, circuit, [and, half, xor, projected, labels], bytes) in cases {
        let cost = Cost {
            and,
            half,
            xor,
            projected,
            labels,
        };
        assert_eq!(circuit.cost(), cost, "{name}");
        assert_eq!(circuit.table_bytes(32), bytes, "{name}");
    }
}

#[test]
fn constants_fold_and_gates_are_made_once() {
    let mut builder = Builder::new();
    let x = builder.evaluator_input(1)[0];
    let y = builder.evaluator_input(1)[0];
    let g = builder.garbler_input(1)[0];
    assert_eq!(builder.and(x, Bit::ZERO), Bit::ZERO);
    assert_eq!(builder.and(x, Bit::ONE), x);
    assert_eq!(builder.and(x, x), x);
    let not_x = builder.not(x);
    assert_eq!(builder.and(x, not_x), Bit::ZERO);
    assert_eq!(builder.not(not_x), x);
    assert_eq!(builder.xor(x, x), Bit::ZERO);
    let sum = builder.xor(x, y);
    assert_eq!(builder.xor(sum, y), x);
    assert_eq!(builder.xor(x, sum), y);
    assert_eq!(builder.and(x, y), builder.and(y, x));
    assert!(builder.and(g, g).is_known() && !builder.and(g, x).is_known());
    let masked = builder.xor(x, g);
    assert_eq!(builder.xor(masked, g), x);
    // A wire against itself under a mask: one half gate.
    let both = builder.and(x, masked);
    builder.output_revealed(&[both]);
    let circuit = builder.finish();
    assert_eq!((circuit.cost().and, circuit.cost().half), (0, 1));
    for bits in 0..8 {
        let (x, g) = (bits & 1, bits >> 2);
        assert_eq!(circuit.evaluate_plain(&[g], &[x, 0]), [x & (x ^ g)]);
    }
}

#[test]
fn sums_of_every_kind_of_bit() {
    for modulus in [
        Modulus::power_of_two(9).unwrap(),
        Modulus::prime(31).unwrap(),
    ] {
        let mut builder = Builder::new();
        let known = builder.garbler_input(2);
        let x = builder.evaluator_input(3);
        let late = builder.late_input(2);
        let masked: Vec<_> = (0..2).map(|i| builder.xor(x[i], known[i])).collect();
        let select = builder.and(x[2], late[0]);
        let mut sum = Sum::new(modulus);
        sum.add_terms(Term::unsigned(modulus, &known, 5));
        sum.add_terms(Term::signed(modulus, &x, -3));
        sum.add_terms(Term::unsigned(modulus, &masked, 8));
        sum.add_terms(Term::unsigned(modulus, &[Bit::ONE, select], 1));
        sum.add_product(select, Term::signed(modulus, &masked, 1));
        sum.add_product(late[1], Term::unsigned(modulus, &x, 7));
        sum.add_product(known[0], Term::unsigned(modulus, &late, 2));
        sum.add_product(Bit::ONE, Term::unsigned(modulus, &late, 1));
        builder.output_sum(sum);
        let circuit = builder.finish();
        for bits in 0..128u64 {
            let (known, x, late) = (bits & 3, bits >> 2 & 7, bits >> 5);
            let masked = (x ^ known) & 3;
            let select = x >> 2 & late & 1;
            let expected = 5 * known as i64 - 3 * signed(x, 3)
                + 8 * masked as i64
                + 1
                + 2 * select as i64
                + select as i64 * signed(masked, 2)
                + (late >> 1) as i64 * 7 * x as i64
                + (known & 1) as i64 * 2 * late as i64
                + late as i64;
            assert_eq!(
                circuit.evaluate_plain(&[known], &[x, late]),
                [modulus.from_i64(expected)]
            );
        }
    }
}

#[test]
fn impossible_activations_are_refused() {
    let two = |bits| Modulus::power_of_two(bits).unwrap();
    let range = |result: Result<Circuit, CircuitError>| {
        matches!(result.unwrap_err(), CircuitError::Range { .. })
    };
    let parameter = |result: Result<Circuit, CircuitError>| {
        matches!(result.unwrap_err(), CircuitError::Parameter { .. })
    };
    let relu = Activation::RELU;
    assert!(range(relu.circuit(two(8), -129, 0, two(8))));
    assert!(range(relu.circuit(two(8), 3, 2, two(8))));
    assert!(range(relu.circuit(two(16), 0, 1000, two(8))));
    assert!(range(relu.circuit(
        Modulus::prime(31).unwrap(),
        -16,
        0,
        two(8)
    )));
    assert!(parameter(relu.circuit(two(64), i64::MIN, 0, two(64))));
    let pool = |pool| Activation { pool, ..relu };
    assert!(parameter(pool(0).circuit(two(8), 0, 1, two(8))));
    assert!(parameter(requantised(Rectifier::None, 32, 0, 1).circuit(
        two(8),
        0,
        1,
        two(8)
    )));
    assert!(parameter(requantised(Rectifier::None, 1, 2, 1).circuit(
        two(8),
        0,
        1,
        two(8)
    )));
    let leaky = |slope, shift| Activation {
        rectifier: Rectifier::Leaky { slope, shift },
        ..relu
    };
    assert!(parameter(leaky(-1, 0).circuit(two(8), 0, 1, two(8))));
    assert!(parameter(leaky(1, 31).circuit(two(8), 0, 1, two(8))));
    assert!(parameter(argmax(two(8), 0, 1, 0)));
    assert!(range(sign(two(8), 0, 128)));
    assert!(Modulus::power_of_two(65).is_err() && Modulus::prime(15).is_err());
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
