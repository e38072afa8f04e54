//! Programs against the oracle: all values of small widths, random ones of large widths.

use pronghorn_mpc::{
    circuit::{Activation, Modulus, Rectifier, signed_width},
    lean::{Input, Program, dithered_width, input_width},
};

use super::common::{Random, activation, check, check_dithered};

const RELU: Rectifier = Rectifier::Relu;

/// Each value with each error that it may have.
fn all(input: &Input) -> Vec<Vec<(i64, i64)>> {
    let error = input.error as i64;
    let values = input.low..=input.high;
    values
        .flat_map(|value| (-error..=error).map(move |error| vec![(value, error)]))
        .collect()
}

/// Shares of the fewest bits that the program takes, and as many more.
fn input(
    activation: &Activation<'_>,
    (low, high): (i64, i64),
    (guard, error): (u32, u64),
    more: u32,
) -> Input {
    let margin = i64::from(error > 0);
    Input {
        bits: input_width(activation, low - margin, high + margin) + guard + more,
        prime: None,
        guard,
        error,
        low,
        high,
    }
}

/// The narrowest modulus of the results.
fn output(activation: &Activation<'_>, input: &Input, more: u32) -> Modulus {
    let ends = [input.low, input.high].map(|end| activation.apply(&vec![end; activation.pool]));
    Modulus::power_of_two(signed_width(ends[0], ends[1]) + more).unwrap()
}

const GUARDS: [(u32, u64); 5] = [(0, 0), (2, 1), (3, 1), (3, 3), (4, 2)];

#[test]
fn small_activations_equal_the_oracle() {
    let mut random = Random(1);
    let bounds = [
        (-3, 2),
        (0, 3),
        (-4, 3),
        (1, 6),
        (-9, -2),
        (-1, 30),
        (-40, 1),
        (0, 0),
        (0, 1),
        (-1, 0),
        (3, 4),
    ];
    for guard in GUARDS {
        for (low, high) in [(-8, 7), (-5, 12), (0, 15), (-31, 3), (-1, 0), (-7, 1)] {
            for more in [0, 2] {
                for shift in [0, 1, 2] {
                    let requantisations = bounds.iter().map(|&(low, high)| (shift, low, high));
                    for requantisation in requantisations.map(Some).chain([None]) {
                        for rectifier in [Rectifier::None, RELU] {
                            let activation = activation(1, rectifier, requantisation);
                            let input = input(&activation, (low, high), guard, more);
                            for wider in [0, 1, 5] {
                                let output = output(&activation, &input, wider);
                                check(&activation, input, output, &all(&input), &mut random);
                            }
                        }
                    }
                }
            }
        }
    }
}

/// All values and errors of small widths, with shares that round each up, down, and in between.
#[test]
fn small_dithered_activations_follow_their_shares() {
    let mut random = Random(11);
    let bounds = [
        (-3, 2),
        (0, 3),
        (-4, 3),
        (1, 6),
        (-1, 30),
        (-40, 1),
        (0, 1),
        (-99, 99),
    ];
    for (guard, error) in GUARDS {
        for (low, high) in [(-8, 7), (-5, 12), (0, 15), (-31, 3), (-1, 0)] {
            for (more, shift) in [(0, 1), (0, 2), (2, 2), (0, 3), (1, 4)] {
                for (least, most) in bounds {
                    for (rectifier, pool) in [(Rectifier::None, 1), (RELU, 1), (RELU, 3)] {
                        let last = Some((shift, least, most));
                        let activation = activation(pool, rectifier, last);
                        let input = Input {
                            bits: dithered_width(&activation, low, high) + guard + more,
                            prime: None,
                            guard,
                            error,
                            low,
                            high,
                        };
                        let windows: Vec<Vec<(i64, i64)>> = all(&input)
                            .iter()
                            .map(|of| [of[0], (high, 0), of[0]][..pool].to_vec())
                            .collect();
                        let bits = 2 + signed_width(least.into(), most.into());
                        let output = Modulus::power_of_two(bits).unwrap();
                        check_dithered(&activation, input, output, &windows, &mut random);
                        check_dithered(&activation, input, output, &windows, &mut random);
                    }
                }
            }
        }
    }
}

/// The mean of a value's roundings is the value, exactly: over all shares of the server. An error of
/// the shares, which are raised by its bound, comes on top.
#[test]
fn dithered_values_are_right_on_average() {
    use super::common::dithered;
    let activation = activation(1, Rectifier::None, Some((3, -99, 99)));
    for (bound, error) in [(0, 0), (1, -1), (1, 0), (1, 1)] {
        let input = Input {
            bits: 9,
            prime: None,
            guard: 2,
            error: bound,
            low: -40,
            high: 40,
        };
        for value in input.low..=input.high {
            let rounded = |share| dithered(&activation, &input, &[(value, error)], &[share]);
            let sum: i64 = (0..1 << input.bits).map(rounded).sum();
            let raised = (value << input.guard) + error + bound as i64;
            assert_eq!(sum << (3 + input.guard), raised << input.bits, "{value}");
        }
    }
}

#[test]
fn dithers_need_bits_to_drop_and_no_slope() {
    let output = Modulus::power_of_two(8).unwrap();
    let leaky = Rectifier::Leaky { slope: 1, shift: 2 };
    let of = |rectifier, last, prime: Option<u64>| {
        let input = Input {
            bits: 10,
            prime,
            guard: 0,
            error: 0,
            low: -9,
            high: 9,
        };
        Program::dithered(&activation(1, rectifier, last), input, output).map(drop)
    };
    assert!(of(RELU, Some((2, 0, 9)), None).is_ok());
    assert!(of(RELU, None, None).is_err());
    assert!(of(RELU, Some((0, 0, 9)), None).is_err());
    assert!(of(leaky, Some((2, 0, 9)), None).is_err());
    assert!(of(RELU, Some((2, 0, 9)), Some(1009)).is_err());
    // No bit is left.
    assert!(of(RELU, Some((10, 0, 9)), None).is_err());
}

#[test]
fn residues_modulo_a_prime_come_out() {
    let mut random = Random(2);
    let prime = Modulus::prime(257).unwrap();
    for guard in GUARDS {
        for requantisation in [None, Some((1, -4, 3)), Some((2, -3, 5)), Some((1, -90, 90))] {
            for rectifier in [Rectifier::None, RELU] {
                let activation = activation(1, rectifier, requantisation);
                let input = input(&activation, (-40, 33), guard, 0);
                check(&activation, input, prime, &all(&input), &mut random);
            }
        }
    }
}

#[test]
fn shares_modulo_a_prime_equal_the_oracle() {
    let mut random = Random(6);
    // The least and the largest prime that hold the values, and one of the slot engine.
    for (prime, (low, high)) in [(73, (-40, 32)), (257, (-40, 33)), (65_537, (-900, 1100))] {
        let bits = u64::BITS - u64::leading_zeros(prime);
        for requantisation in [
            None,
            Some((1, -4, 3)),
            Some((2, -3, 5)),
            Some((1, -2000, 9)),
        ] {
            for (rectifier, pool) in [(Rectifier::None, 1), (RELU, 1), (RELU, 4)] {
                let activation = activation(pool, rectifier, requantisation);
                let input = Input {
                    bits,
                    prime: Some(prime),
                    guard: 0,
                    error: 0,
                    low,
                    high,
                };
                let windows: Vec<Vec<(i64, i64)>> = (low..=high)
                    .map(|value| {
                        let place = |place: i64| ((value + 7 * place).min(high), 0);
                        (0..pool as i64).map(place).collect()
                    })
                    .collect();
                for output in [
                    output(&activation, &input, 0),
                    output(&activation, &input, 4),
                    Modulus::prime(4_294_967_291).unwrap(),
                ] {
                    check(&activation, input, output, &windows, &mut random);
                }
            }
        }
    }
}

#[test]
fn leaky_relus_equal_the_oracle() {
    let mut random = Random(3);
    for (slope, gain) in [(1, 3), (0, 0), (3, 2), (5, 1)] {
        let rectifier = Rectifier::Leaky { slope, shift: gain };
        let factor = u64::from(slope as u32).max(1 << gain);
        for error in [0, 1] {
            let guard = if error == 0 {
                0
            } else {
                u64::BITS - (2 * factor).leading_zeros()
            };
            for requantisation in [
                None,
                Some((2, -9, 20)),
                Some((3, -128, 127)),
                Some((0, -8, 7)),
            ] {
                for more in [0, 3] {
                    let activation = activation(1, rectifier, requantisation);
                    let input = input(&activation, (-17, 21), (guard, error), more);
                    for wider in [0, 4] {
                        let output = output(&activation, &input, wider);
                        check(&activation, input, output, &all(&input), &mut random);
                    }
                }
            }
        }
    }
}

#[test]
fn slopes_of_many_bits_take_wide_words() {
    let mut random = Random(8);
    let (low, high) = (-(1i64 << 25), (1i64 << 25) - 1);
    let rectifier = Rectifier::Leaky {
        slope: 205,
        shift: 11,
    };
    let activation = activation(1, rectifier, Some((14, -2048, 2047)));
    let input = input(&activation, (low, high), (0, 0), 0);
    let values = (0..3000).map(|_| low + random.below(1 << 26) as i64);
    let ends = [low, low + 1, -1, 0, 1, high];
    let windows: Vec<Vec<(i64, i64)>> = values.chain(ends).map(|x| vec![(x, 0)]).collect();
    let output = output(&activation, &input, 0);
    check(&activation, input, output, &windows, &mut random);
}

#[test]
fn pools_equal_the_oracle() {
    let mut random = Random(4);
    for guard in GUARDS {
        for pool in [2, 3, 4, 9] {
            for (rectifier, requantisation) in [
                (Rectifier::None, None),
                (RELU, None),
                (RELU, Some((2, 0, 7))),
                (Rectifier::None, Some((1, -16, 15))),
                (Rectifier::Leaky { slope: 1, shift: 0 }, Some((1, -9, 5))),
            ] {
                let activation = activation(pool, rectifier, requantisation);
                let input = input(&activation, (-50, 63), guard, 0);
                let error = input.error as i64;
                let value = |random: &mut Random| {
                    let value = random.below(114) as i64 - 50;
                    (value, random.below(2 * error as u64 + 1) as i64 - error)
                };
                let windows: Vec<Vec<(i64, i64)>> = (0..300)
                    .map(|_| (0..pool).map(|_| value(&mut random)).collect())
                    .collect();
                let output = output(&activation, &input, 3);
                check(&activation, input, output, &windows, &mut random);
            }
        }
    }
}

/// Windows of values on one side of 0, which take more bits than their differences, and ranges of
/// all kinds.
#[test]
fn windows_off_centre_equal_the_oracle() {
    let mut random = Random(9);
    let mut accepted = 0;
    for _ in 0..3000 {
        let low = random.below(300) as i64 - 150;
        let most = 1 << random.below(9);
        let high = low + random.below(most) as i64;
        let pool = [1, 2, 3, 4, 9][random.below(5) as usize];
        let shift = random.below(7) as u32;
        let requantisation = match random.below(4) {
            0 => None,
            1 => Some((shift, i32::MIN, i32::MAX)),
            2 => Some((shift, 0, i32::MAX)),
            _ => Some((shift, -(random.below(40) as i32), random.below(40) as i32)),
        };
        let rectifier = [Rectifier::None, RELU][random.below(2) as usize];
        let activation = activation(pool, rectifier, requantisation);
        let guard = GUARDS[random.below(5) as usize];
        let mut input = input(&activation, (low, high), guard, random.below(2) as u32);
        if guard == (0, 0) && random.below(2) == 1 {
            (input.bits, input.prime) = (17, Some(65_537));
        }
        let wider = random.below(4) as u32;
        let output = output(&activation, &input, wider);
        if Program::activation(&activation, input, output).is_err() {
            continue;
        }
        accepted += 1;
        let error = input.error;
        let value = |random: &mut Random| {
            let inside = random.below((high - low + 1) as u64) as i64;
            let value = [low, high, low + inside, low + inside][random.below(4) as usize];
            (value, random.below(2 * error + 1) as i64 - error as i64)
        };
        let windows: Vec<Vec<(i64, i64)>> = (0..40)
            .map(|_| (0..pool).map(|_| value(&mut random)).collect())
            .collect();
        check(&activation, input, output, &windows, &mut random);
    }
    assert!(accepted > 2000, "{accepted}");
}

#[test]
fn large_activations_equal_the_oracle() {
    let mut random = Random(5);
    for (bits, shift, most) in [(20, 11, 255), (26, 13, 4095), (28, 20, 127), (14, 7, 255)] {
        for rectifier in [Rectifier::None, RELU] {
            let (low, high) = (-(1i64 << (bits - 1)), (1i64 << (bits - 1)) - 1);
            let requantisation = Some((shift, -most - 1, most));
            let activation = activation(1, rectifier, requantisation);
            let input = Input {
                bits: bits + 3,
                prime: None,
                guard: 2,
                error: 1,
                low,
                high,
            };
            let mut values = vec![low, low + 1, -1, 0, 1, high - 1, high];
            let edges = [
                -(1i64 << shift),
                -(1 << shift) / 2,
                (1 << shift) / 2,
                1 << shift,
            ];
            values.extend(edges.iter().flat_map(|edge| [edge - 1, *edge, edge + 1]));
            values.extend((0..3000).map(|_| low + random.below(1 << bits) as i64));
            let windows: Vec<Vec<(i64, i64)>> = values
                .iter()
                .map(|&value| vec![(value, random.below(3) as i64 - 1)])
                .collect();
            for output in [16, 24, 31].map(|bits| Modulus::power_of_two(bits).unwrap()) {
                check(&activation, input, output, &windows, &mut random);
            }
        }
    }
}

#[test]
fn what_does_not_fit_is_refused() {
    let output = Modulus::power_of_two(8).unwrap();
    let input = Input {
        bits: 8,
        prime: None,
        guard: 0,
        error: 0,
        low: -128,
        high: 127,
    };
    let refused = |activation: &Activation<'_>, input: Input, output| {
        Program::activation(activation, input, output)
            .unwrap_err()
            .to_string()
    };
    let relu = activation(1, RELU, None);
    assert!(Program::activation(&relu, input, output).is_ok());
    let wide = Input { high: 128, ..input };
    assert!(refused(&relu, wide, output).contains("do not fit 2^8"));
    let small = Modulus::power_of_two(7).unwrap();
    assert!(refused(&relu, input, small).contains("do not fit 2^7"));
    // Differences of these take 9 bits.
    assert!(refused(&activation(2, RELU, None), input, output).contains("do not fit 2^8"));
    assert!(refused(&activation(0, RELU, None), input, output).contains("window"));
    let noisy = Input {
        error: 1,
        guard: 1,
        ..input
    };
    assert!(refused(&relu, noisy, output).contains("the reach of errors is 2"));
    let leaky = Rectifier::Leaky { slope: 1, shift: 2 };
    let noisy = Input {
        error: 1,
        guard: 3,
        prime: None,
        low: -1,
        high: 1,
        bits: 8,
    };
    assert!(
        refused(&activation(1, leaky, None), noisy, output).contains("the reach of errors is 8")
    );
    // All bits of the shares are dropped, and the sign cannot be told.
    let dropped = activation(1, Rectifier::None, Some((9, -5, 5)));
    let input = Input {
        bits: 10,
        prime: None,
        low: -1,
        high: 0,
        ..input
    };
    assert!(Program::activation(&dropped, input, output).is_ok());
}
