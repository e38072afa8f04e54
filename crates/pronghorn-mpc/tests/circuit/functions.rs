//! Functions of words: sums, products, comparisons, residues.

use super::*;

#[test]
fn functions_of_two_words() {
    // Name, circuit, meaning for (x, y, width), ANDs for two wires, (ANDs, halves) for a known
    // word.
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
