//! Functions by a table: equal to their definition, and cheaper than multiplexers.

use super::{activations::check_activation, *};

fn two(bits: u32) -> Modulus {
    Modulus::power_of_two(bits).unwrap()
}

fn tabled(requantisation: Option<(u32, i32, i32)>, table: Table<'_>) -> Activation<'_> {
    Activation {
        rectifier: Rectifier::None,
        requantisation: requantisation.map(|(shift, low, high)| Requantisation {
            shift,
            low,
            high,
        }),
        table: Some(table),
        ..Activation::RELU
    }
}

/// The bump of a SiLU in eighths, for arguments in `-8..8`.
fn silu(entries: &mut [i32], drop: u32) -> Table<'_> {
    let first = -(entries.len() as i32) / 2;
    for (place, entry) in entries.iter_mut().enumerate() {
        let middle = (f64::from(first + place as i32) + 0.5) * f64::from(1 << drop) - 0.5;
        let x = -(middle / 8.0).abs();
        *entry = (8.0 * x / (1.0 + (-x).exp())).round() as i32;
    }
    Table {
        rectified: true,
        drop,
        first,
        entries,
        fine: 0,
        rises: &[],
    }
}

/// A table alone, after a maximum of `pool` values, and after a ReLU.
fn check_with_others(
    activation: Activation<'_>,
    pool: usize,
    input: Modulus,
    (low, high): (i64, i64),
    output: Modulus,
) {
    check_activation(activation, input, low, high, output);
    let pooled = Activation { pool, ..activation };
    check_activation(pooled, input, low, high, output);
    let relu = Activation {
        rectifier: Rectifier::Relu,
        ..activation
    };
    check_activation(relu, input, low, high, output);
}

/// All values of small ranges, in all places of the window, with and without rounding before.
#[test]
fn tables_equal_their_definition() {
    let entries = [-9, 4, 0, 7, 7, -1, 3, 30, 2, 2, 2, 2, 0, 0, 0, -5];
    let inputs = [
        (two(6), -16, 15),
        (two(7), -32, 31),
        (Modulus::prime(61).unwrap(), -15, 15),
        (two(20), -100_000, 90_000),
    ];
    for (input, low, high) in inputs {
        for output in [two(20), Modulus::prime(1_032_193).unwrap()] {
            for count in [1, 2, 4, 16] {
                for (drop, first) in [(0, -8), (0, -3), (1, -4), (2, 1), (0, 40), (1, -30)] {
                    for rectified in [false, true] {
                        let table = Table {
                            rectified,
                            drop,
                            first,
                            entries: &entries[..count],
                            fine: 0,
                            rises: &[],
                        };
                        for requantisation in
                            [None, Some((0, -6, 9)), Some((2, -9, 7)), Some((1, -3, 30))]
                        {
                            let activation = tabled(requantisation, table);
                            check_with_others(activation, 3, input, (low, high), output);
                        }
                    }
                }
            }
        }
    }
}

/// Linear pieces: all places of the window, wide and narrow segments, all numbers of fine bits.
#[test]
fn pieces_equal_their_definition() {
    let entries = [-9, 4, 0, 7, 7, 9, 11, 13, 2, 2, 2, 2, 0, 0, 0, -5];
    let rises = [9, -4, 31, 2, 2, 2, 2, 2, 0, 0, 0, 0, 5, -13, 2, 100];
    let inputs = [
        (two(6), -16, 15),
        (two(8), -64, 63),
        (Modulus::prime(127).unwrap(), -40, 50),
        (two(20), -100_000, 90_000),
    ];
    for (input, low, high) in inputs {
        for output in [two(20), Modulus::prime(1_032_193).unwrap()] {
            for count in [1, 4, 16] {
                for (drop, fine, first) in [
                    (1, 1, -8),
                    (2, 2, -3),
                    (3, 2, -2),
                    (3, 3, 0),
                    (2, 1, -16),
                    (5, 4, -8),
                    (13, 12, -9),
                    (3, 1, 40),
                ] {
                    for rectified in [false, true] {
                        let table = Table {
                            rectified,
                            drop,
                            first,
                            entries: &entries[..count],
                            fine,
                            rises: &rises[..count],
                        };
                        for requantisation in [None, Some((1, -9, 17)), Some((2, -64, 63))] {
                            let activation = tabled(requantisation, table);
                            check_with_others(activation, 2, input, (low, high), output);
                        }
                    }
                }
            }
        }
    }
}

/// A straight line is one segment, whatever its table's entries; each other piece takes a gate.
#[test]
fn straight_pieces_cost_little() {
    let cost = |entries: &[i32], rises: &[i32]| {
        let table = Table {
            rectified: false,
            drop: 4,
            first: -8,
            entries,
            fine: 2,
            rises,
        };
        let circuit = tabled(None, table).circuit(two(8), -128, 127, two(20));
        circuit.unwrap().cost()
    };
    let mut entries: Vec<i32> = (-8..8).map(|i| 6 * i).collect();
    let mut rises = [6; 16];
    let line = cost(&entries, &rises);
    let constant = cost(&[0; 16], &[0; 16]);
    assert_eq!(line.and, constant.and + 6, "the carries of an adder");
    // One entry apart: a gate for each bit of its index but the sign.
    (entries[3], rises[3]) = (70, -5);
    let broken = cost(&entries, &rises);
    assert_eq!(broken.and, line.and + 3);
    assert!(broken.projected < 3 * line.projected);
}

/// Gates, and bytes of 32 instances, beside those of a ReLU: 19 bits of a value, 8 of the result.
#[test]
fn tables_are_cheap() {
    let largest = (1 << 18) - 1;
    let cost = |activation: Activation<'_>| {
        let circuit = activation.circuit(two(20), -largest, largest, two(20));
        let circuit = circuit.unwrap();
        let Cost {
            and,
            half,
            projected,
            ..
        } = circuit.cost();
        ([and, half, projected], circuit.table_bytes(32))
    };
    let relu = requantised(Rectifier::Relu, 8, 0, 127);
    assert_eq!(cost(relu), ([22, 1, 298], 24_232));
    for (entries, drop, expected) in [
        (4, 5, ([31, 1, 454], 34_072)),
        (8, 4, ([32, 1, 576], 35_584)),
        (16, 3, ([34, 1, 536], 37_472)),
        (32, 2, ([37, 1, 1090], 42_760)),
        (128, 0, ([46, 1, 1532], 53_744)),
        (512, 0, ([61, 1, 1992], 70_944)),
    ] {
        let mut bump = vec![0; entries];
        let least = -(1 << (drop + entries.ilog2() - 1)) - 1;
        let activation = tabled(Some((8, least, 127)), silu(&mut bump, drop));
        assert_eq!(cost(activation), expected, "{entries} entries of a SiLU");
    }
    for (count, expected) in [
        (64, ([41, 1, 1178], 47_208)),
        (256, ([52, 1, 3621], 68_244)),
    ] {
        let half = count / 2;
        let sigmoid = |x: i32| {
            let x = f64::from(x) * 16.0 / f64::from(count);
            (f64::from(half) / (1.0 + (-x).exp())).round() as i32
        };
        let entries: Vec<i32> = (-half..half).map(sigmoid).collect();
        let table = Table {
            rectified: false,
            drop: 0,
            first: -half,
            entries: &entries,
            fine: 0,
            rises: &[],
        };
        let activation = tabled(Some((8, -half, half - 1)), table);
        assert_eq!(cost(activation), expected, "{count} entries of a sigmoid");
    }
}

#[test]
fn hostile_tables_are_refused() {
    let refused = |drop, entries: &[i32], low, high, bits| {
        let table = Table {
            rectified: true,
            drop,
            first: 0,
            entries,
            fine: 0,
            rises: &[],
        };
        tabled(None, table)
            .circuit(two(16), low, high, two(bits))
            .is_err()
    };
    assert!(!refused(0, &[1, 2], -100, 100, 16));
    for entries in [&[][..], &[1, 2, 3], &[0; 1024]] {
        assert!(refused(0, entries, -100, 100, 16));
    }
    assert!(refused(32, &[1], -100, 100, 16));
    // A value that the output does not hold, in the middle of the range.
    assert!(refused(0, &[1 << 10], -100, 100, 9));
    assert!(!refused(0, &[1 << 10], 1, 100, 9));
    let pieces = |drop, fine, rises: &[i32]| {
        let table = Table {
            rectified: true,
            drop,
            first: 0,
            entries: &[1, 2],
            fine,
            rises,
        };
        let circuit = tabled(None, table).circuit(two(16), -100, 100, two(16));
        circuit.is_err()
    };
    assert!(!pieces(2, 2, &[100, -100]));
    for (drop, fine, rises) in [
        (2, 3, &[1, 2][..]),
        (31, 13, &[1, 2]),
        (2, u32::MAX, &[1, 2]),
        (2, 1, &[]),
        (2, 1, &[1, 2, 3]),
        (2, 0, &[1, 2]),
        // Values that the output does not hold.
        (2, 2, &[1 << 17, 0]),
        (2, 2, &[0, i32::MIN]),
    ] {
        assert!(pieces(drop, fine, rises), "{drop} {fine} {rises:?}");
    }
    for first in [i32::MIN, i32::MAX] {
        let table = Table {
            rectified: false,
            drop: 31,
            first,
            entries: &[5, 6],
            fine: 0,
            rises: &[],
        };
        let circuit =
            tabled(None, table).circuit(two(32), i32::MIN.into(), i32::MAX.into(), two(32));
        assert_eq!(circuit.unwrap().cost().and, 0);
    }
}
