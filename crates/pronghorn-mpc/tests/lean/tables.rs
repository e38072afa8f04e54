//! Functions by a table: all arguments of small ranges, random ones of large ranges.

use pronghorn_mpc::{
    circuit::{Activation, Modulus, Rectifier, Requantisation, Table, signed_width},
    lean::{Input, Program, input_width},
};

use super::common::{Random, check, silu};

const ENTRIES: [i32; 16] = [-9, 4, 0, 7, 7, 9, 11, 13, 2, 2, 2, 2, 0, 0, 0, -5];
const RISES: [i32; 16] = [9, -4, 31, 2, 2, 2, 2, 2, 0, 0, 0, 0, 5, -13, 2, 100];

fn tabled(table: Table<'_>, requantisation: Option<(u32, i32, i32)>) -> Activation<'_> {
    Activation {
        pool: 1,
        rectifier: Rectifier::None,
        requantisation: requantisation.map(|(shift, low, high)| Requantisation {
            shift,
            low,
            high,
        }),
        table: Some(table),
    }
}

fn constants(entries: &[i32], drop: u32, first: i32) -> Table<'_> {
    Table {
        rectified: false,
        drop,
        first,
        entries,
        fine: 0,
        rises: &[],
    }
}

/// The narrowest modulus of the results, and some bits more.
fn output(activation: &Activation<'_>, (low, high): (i64, i64), more: u32) -> Modulus {
    let values = (low..=high).map(|x| activation.apply(&vec![x; activation.pool]));
    let ends = values.fold((0, 0), |ends, y| (y.min(ends.0), y.max(ends.1)));
    Modulus::power_of_two(signed_width(ends.0, ends.1) + more).unwrap()
}

fn input(activation: &Activation<'_>, (low, high): (i64, i64), guard: u32, error: u64) -> Input {
    let margin = i64::from(error > 0);
    Input {
        bits: input_width(activation, low - margin, high + margin) + guard,
        prime: None,
        guard,
        error,
        low,
        high,
    }
}

/// Each argument with each error, in windows that end with it.
fn all(activation: &Activation<'_>, input: &Input) -> Vec<Vec<(i64, i64)>> {
    let error = input.error as i64;
    let pool = activation.pool as i64;
    let window = |value: i64, error: i64| -> Vec<(i64, i64)> {
        let places = (0..pool).map(|place| (value - 3 * place).max(input.low));
        places.map(|value| (value, error)).collect()
    };
    let values = input.low..=input.high;
    values
        .flat_map(|value| (-error..=error).map(move |error| (value, error)))
        .map(|(value, error)| window(value, error))
        .collect()
}

/// The activation alone, after a ReLU, and after the largest of three, by exact shares and by
/// shares with errors.
fn check_all(activation: Activation<'_>, range: (i64, i64), random: &mut Random) {
    let relu = Activation {
        rectifier: Rectifier::Relu,
        ..activation
    };
    let pooled = Activation {
        pool: 3,
        ..activation
    };
    for (activation, guards) in [
        (activation, &[(0, 0), (2, 1)][..]),
        (relu, &[(3, 3)]),
        (pooled, &[(2, 1)]),
    ] {
        for &(guard, error) in guards {
            let input = input(&activation, range, guard, error);
            let output = output(&activation, range, random.below(3) as u32 * 5);
            check(
                &activation,
                input,
                output,
                &all(&activation, &input),
                random,
            );
        }
    }
}

const REQUANTISATIONS: [Option<(u32, i32, i32)>; 6] = [
    None,
    Some((0, -6, 9)),
    Some((2, -9, 7)),
    Some((1, -3, 30)),
    Some((1, -17, 15)),
    Some((0, 3, 5)),
];

#[test]
fn tables_equal_the_oracle() {
    let mut random = Random(1);
    for range in [(-16, 15), (-33, 40), (0, 12), (-20, -3)] {
        for count in [1, 2, 4, 16] {
            for (drop, first) in [
                (0, -8),
                (0, -3),
                (1, -4),
                (2, 1),
                (0, 40),
                (1, -30),
                (31, -1),
            ] {
                let rectified = random.below(2) == 1;
                let table = Table {
                    rectified,
                    ..constants(&ENTRIES[..count], drop, first)
                };
                for requantisation in REQUANTISATIONS {
                    check_all(tabled(table, requantisation), range, &mut random);
                }
            }
        }
    }
}

#[test]
fn pieces_equal_the_oracle() {
    let mut random = Random(2);
    for range in [(-16, 15), (-64, 63), (-40, 90), (0, 25), (-70, -9)] {
        for count in [1, 4, 16] {
            for (drop, fine, first) in [
                (1, 1, -8),
                (2, 2, -3),
                (3, 2, -2),
                (3, 3, 0),
                (2, 1, -16),
                (5, 4, -1),
                (12, 12, -1),
                (3, 1, 40),
                (4, 3, -8),
            ] {
                let table = Table {
                    rectified: random.below(2) == 1,
                    fine,
                    rises: &RISES[..count],
                    ..constants(&ENTRIES[..count], drop, first)
                };
                let requantisation = REQUANTISATIONS[random.below(6) as usize];
                check_all(tabled(table, requantisation), range, &mut random);
            }
        }
    }
}

#[test]
fn random_tables_equal_the_oracle() {
    let mut random = Random(3);
    let mut accepted = 0;
    for _ in 0..600 {
        let count = 1usize << random.below(6);
        let drop = random.below(5) as u32;
        let fine = random.below(u64::from(drop) + 1) as u32;
        let most = 1 << (1 + random.below(12));
        let mut numbers = |_| random.below(2 * most + 1) as i32 - most as i32;
        let entries: Vec<i32> = (0..count).map(&mut numbers).collect();
        let rises: Vec<i32> = (0..count).map(&mut numbers).collect();
        let first = random.below(40) as i32 - 20;
        let table = Table {
            rectified: random.below(2) == 1,
            fine,
            rises: if fine > 0 { &rises } else { &[] },
            ..constants(&entries, drop, first)
        };
        let low = random.below(400) as i64 - 300;
        let range = (low, low + random.below(400) as i64);
        let requantisation = match random.below(3) {
            0 => None,
            1 => Some((random.below(4) as u32, i32::MIN, random.below(90) as i32)),
            _ => {
                let low = random.below(200) as i32 - 100;
                Some((random.below(4) as u32, low, low + random.below(150) as i32))
            }
        };
        let activation = tabled(table, requantisation);
        let [guard, error] = [[0, 0], [2, 1], [4, 2]][random.below(3) as usize];
        let mut input = input(&activation, range, guard as u32, error);
        if guard == 0 && random.below(2) == 1 {
            (input.bits, input.prime) = (17, Some(65_537));
        }
        let output = match random.below(3) {
            0 => Modulus::prime(1_032_193).unwrap(),
            wider => output(&activation, range, 3 * wider as u32),
        };
        if Program::activation(&activation, input, output).is_err() {
            continue;
        }
        accepted += 1;
        check(
            &activation,
            input,
            output,
            &all(&activation, &input),
            &mut random,
        );
    }
    assert!(accepted > 550, "{accepted}");
}

#[test]
fn tables_after_leaky_relus_equal_the_oracle() {
    let mut random = Random(4);
    for (slope, gain) in [(1, 3), (3, 2)] {
        let table = Table {
            rectified: true,
            fine: 2,
            rises: &RISES,
            ..constants(&ENTRIES, 2, -8)
        };
        let activation = Activation {
            rectifier: Rectifier::Leaky { slope, shift: gain },
            ..tabled(table, Some((2, -33, 31)))
        };
        let input = input(&activation, (-40, 50), 5, 1);
        let output = output(&activation, (-40, 50), 4);
        check(
            &activation,
            input,
            output,
            &all(&activation, &input),
            &mut random,
        );
    }
}

#[test]
fn large_tables_equal_the_oracle() {
    let mut random = Random(5);
    for (count, drop, fine, shift) in [
        (256, 8, 7, 11),
        (64, 6, 5, 9),
        (512, 5, 5, 12),
        (64, 5, 0, 9),
    ] {
        let (entries, rises) = silu(count, drop);
        let half = (count << drop) / 2;
        let table = Table {
            rectified: true,
            fine,
            rises: if fine > 0 { &rises } else { &[] },
            ..constants(&entries, drop, -count / 2)
        };
        let activation = tabled(table, Some((shift, -half - 1, half - 1)));
        let reach = i64::from(half) << (shift + 2);
        let range = (-reach, reach - 1);
        let input = input(&activation, range, 2, 1);
        let near = (0..2000).map(|_| random.below(8 * half as u64) as i64 - 4 * i64::from(half));
        let near: Vec<i64> = near.map(|x| x << (shift - 2)).collect();
        let far = (0..1000).map(|_| random.below(2 * reach as u64) as i64 - reach);
        let ends = [-half - 1, -half, -1, 0, 1, half - 1, half].map(|x| i64::from(x) << shift);
        let ends = ends.iter().flat_map(|x| [x - 1, *x, x + 1]);
        let values = far.chain(ends).chain([range.0, range.1]).chain(near);
        let windows: Vec<Vec<(i64, i64)>> = values.map(|x| vec![(x, x & 1)]).collect();
        for bits in [18, 24, 31] {
            let output = Modulus::power_of_two(bits).unwrap();
            check(&activation, input, output, &windows, &mut random);
        }
    }
}
