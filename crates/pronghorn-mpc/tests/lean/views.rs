//! What a party sees is uniform, whatever the values are: all coins of its peer, one by one.

use std::{collections::BTreeMap, sync::Arc};

use pronghorn_mpc::{
    Block,
    circuit::{Activation, Modulus, Rectifier, Table},
    lean::{Dealer, Evaluation, Input, Party, Program, Received, Sent},
};

use super::common::{Random, activation, dithered, level};

/// The coins of each OT of an element.
#[derive(Clone, Default)]
struct Coins {
    ots: Vec<Coin>,
}

/// The strings of all choices, and the choice.
#[derive(Clone)]
struct Coin {
    strings: Vec<u64>,
    choice: usize,
}

impl Coins {
    /// What both parties get of them; only the first element of the lane is used.
    fn dealt(&self, program: &Program, sender: Party) -> (Sent, Received) {
        let dealer = Dealer {
            program,
            sender,
            elements: 1,
        };
        dealer.deal(
            |ot, choice, _| Block::from_u128(self.ots[ot].strings[choice].into()),
            |ot, _| self.ots[ot].choice,
        )
    }
}

fn evaluation(
    program: &Arc<Program>,
    party: Party,
    inputs: &[u32],
    coins: &[Coins; 2],
) -> Evaluation {
    let (own, _) = coins[party as usize].dealt(program, party);
    let peer = party.peer();
    let (_, received) = coins[peer as usize].dealt(program, peer);
    let inputs: Vec<&[u32]> = inputs.iter().map(std::slice::from_ref).collect();
    let mut evaluation = Evaluation::new(program.clone(), party, &inputs, received);
    evaluation.provide(own);
    evaluation
}

/// What a party sees, and both outputs.
fn view(
    program: &Arc<Program>,
    party: Party,
    inputs: [&[u32]; 2],
    coins: &[Coins; 2],
) -> (Vec<u8>, [u64; 2]) {
    let mut parties = [Party::Server, Party::Client]
        .map(|party| evaluation(program, party, inputs[party as usize], coins));
    let mut view = Vec::new();
    for _ in 0..program.levels() {
        let messages = level(&mut parties);
        view.extend_from_slice(&messages[party.peer() as usize]);
    }
    (
        view,
        parties.each_mut().map(|party| party.output().unwrap()[0]),
    )
}

/// Most bits of coins that are enumerated.
const MOST_UNKNOWN: u32 = 18;

/// Exact shares modulo `2^bits` of values in a range.
fn range(bits: u32, low: i64, high: i64) -> Input {
    Input {
        bits,
        prime: None,
        guard: 0,
        error: 0,
        low,
        high,
    }
}

/// How a result is rounded.
#[derive(Clone, Copy, PartialEq)]
enum Rounding {
    Nearest,
    Dithered,
}

/// Counts how often each view comes, over all coins that the party does not know; `None` where
/// these are too many.
fn check_uniform(
    activation: &Activation<'_>,
    shape: (Input, u32),
    party: Party,
    random: &mut Random,
) -> Option<()> {
    check_rounded(activation, Rounding::Nearest, shape, party, random)
}

fn check_rounded(
    activation: &Activation<'_>,
    rounding: Rounding,
    (input, output): (Input, u32),
    party: Party,
    random: &mut Random,
) -> Option<()> {
    let modulus = Modulus::power_of_two(output).unwrap();
    let program = match rounding {
        Rounding::Nearest => Program::activation(activation, input, modulus),
        Rounding::Dithered => Program::dithered(activation, input, modulus),
    };
    let program = Arc::new(program.unwrap());
    let widths: [Vec<(u32, u32)>; 2] =
        [Party::Server, Party::Client].map(|sender| program.ot_widths(sender).collect());
    let peer = party.peer();
    // Unknown: the strings not chosen of each OT received, the choice of each OT sent.
    let strings = widths[peer as usize].iter();
    let choices = widths[party as usize].iter().map(|(width, _)| width);
    let unknown: u32 = strings
        .map(|(width, bits)| ((1 << width) - 1) * bits)
        .chain(choices.copied())
        .sum();
    if unknown > MOST_UNKNOWN {
        return None;
    }
    for value in [input.low, -1, 0, input.high] {
        let values: Vec<i64> = (0..activation.pool as i64)
            .map(|place| (value + place).min(input.high))
            .collect();
        let own: Vec<u32> = (values.iter())
            .map(|_| random.below(1 << input.bits) as u32)
            .collect();
        let mask = u32::MAX >> (32 - input.bits);
        let others: Vec<u32> = (values.iter().zip(&own))
            .map(|(&value, own)| (value as u32).wrapping_sub(*own) & mask)
            .collect();
        let inputs = match party {
            Party::Server => [&own[..], &others[..]],
            Party::Client => [&others[..], &own[..]],
        };
        let mut coins = [Coins::default(), Coins::default()];
        for (coins, widths) in coins.iter_mut().zip(&widths) {
            let ots = widths.iter().map(|&(width, bits)| Coin {
                strings: (0..1 << width).map(|_| random.below(1 << bits)).collect(),
                choice: random.below(1 << width) as usize,
            });
            coins.ots = ots.collect();
        }
        let mut seen: BTreeMap<Vec<u8>, u64> = BTreeMap::new();
        for mut guess in 0..1u64 << unknown {
            let mut take = |width: u32| {
                let taken = guess & ((1 << width) - 1);
                guess >>= width;
                taken
            };
            let received = coins[peer as usize].ots.iter_mut();
            for (ot, &(_, bits)) in received.zip(&widths[peer as usize]) {
                let strings = ot.strings.iter_mut().enumerate();
                for (_, string) in strings.filter(|(choice, _)| *choice != ot.choice) {
                    *string = take(bits);
                }
            }
            let sent = coins[party as usize].ots.iter_mut();
            for (ot, &(width, _)) in sent.zip(&widths[party as usize]) {
                ot.choice = take(width) as usize;
            }
            let (view, outputs) = view(&program, party, inputs, &coins);
            let sum = modulus.centre(modulus.add(outputs[0], outputs[1]));
            let expected = match rounding {
                Rounding::Nearest => activation.apply(&values),
                Rounding::Dithered => {
                    let window: Vec<_> = values.iter().map(|&value| (value, 0)).collect();
                    dithered(activation, &input, &window, inputs[0])
                }
            };
            assert_eq!(sum, expected);
            *seen.entry(view).or_default() += 1;
        }
        let counts: Vec<u64> = seen.values().copied().collect();
        assert!(
            counts.iter().all(|count| *count == counts[0]),
            "{activation:?} {party:?} {value}"
        );
        // As many views as the messages have bits: none is impossible.
        let message: usize = (0..program.levels())
            .map(|level| program.bits(level, peer))
            .sum();
        assert_eq!(counts.len(), 1 << message);
    }
    Some(())
}

/// Signs by leaves of one to three bits, and joined ones; dropped bits; clips; a maximum. Some are
/// too large for one of the parties.
#[test]
fn views_are_uniform() {
    let whole = |bits: u32| Input {
        bits,
        prime: None,
        guard: 0,
        error: 0,
        low: -(1 << (bits - 1)),
        high: (1 << (bits - 1)) - 1,
    };
    let narrow = |bits: u32, low, high| Input {
        low,
        high,
        ..whole(bits)
    };
    let relu = Rectifier::Relu;
    let cases = [
        (activation(1, relu, None), (whole(2), 2)),
        (activation(1, relu, None), (whole(2), 3)),
        (activation(1, relu, None), (whole(3), 3)),
        (activation(1, relu, None), (whole(4), 4)),
        (activation(1, relu, Some((0, 0, 1))), (whole(4), 2)),
        (activation(1, relu, Some((1, 0, 1))), (narrow(3, -4, 2), 2)),
        (
            activation(1, Rectifier::None, Some((1, -2, 1))),
            (narrow(3, -4, 2), 2),
        ),
        (
            activation(1, Rectifier::None, Some((0, -1, 0))),
            (narrow(3, -2, 2), 2),
        ),
        (activation(1, relu, Some((0, 0, 1))), (whole(3), 2)),
        (activation(2, Rectifier::None, None), (narrow(2, -1, 0), 2)),
        (activation(2, Rectifier::None, None), (narrow(3, -2, 1), 2)),
    ];
    let mut random = Random(7);
    let mut checked = 0;
    for (activation, shape) in cases {
        for party in [Party::Server, Party::Client] {
            checked += check_uniform(&activation, shape, party, &mut random).map_or(0, |()| 1);
        }
    }
    assert_eq!(checked, 21);
}

/// The result is a function of both shares, and the view is uniform given one of them.
#[test]
fn views_of_dithered_values_are_uniform() {
    let relu = Rectifier::Relu;
    let cases = [
        (activation(1, relu, Some((2, 0, 9))), (range(4, -8, 3), 2)),
        (activation(1, relu, Some((2, 0, 9))), (range(5, -16, 11), 4)),
        (activation(1, relu, Some((3, 0, 9))), (range(6, -32, 23), 4)),
        (
            activation(1, Rectifier::None, Some((1, -2, 1))),
            (range(4, -4, 4), 2),
        ),
        (
            activation(2, Rectifier::None, Some((2, -9, 9))),
            (range(5, -4, 0), 2),
        ),
    ];
    let mut random = Random(9);
    let mut checked = 0;
    for (activation, shape) in cases {
        for party in [Party::Server, Party::Client] {
            let uniform = check_rounded(&activation, Rounding::Dithered, shape, party, &mut random);
            checked += uniform.map_or(0, |()| 1);
        }
    }
    assert_eq!(checked, 10);
}

/// Rows by a tree and by factors, entries as numbers, products of rises with fine bits, bases,
/// carries out of each bit of a leaf.
#[test]
fn views_of_tables_are_uniform() {
    let table = |drop, first, entries, fine, rises| Table {
        rectified: false,
        drop,
        first,
        entries,
        fine,
        rises,
    };
    let rectified = |table| Table {
        rectified: true,
        ..table
    };
    let input = |bits: u32, low| range(bits, low, (1 << (bits - 1)) - 1);
    let tabled = |requantisation, table| Activation {
        table: Some(table),
        ..activation(1, Rectifier::None, requantisation)
    };
    let cases = [
        (
            tabled(None, table(0, -1, &[1, 0], 0, &[])),
            (input(1, -1), 2),
        ),
        (
            tabled(None, table(0, -2, &[1, 0, 0, 1], 0, &[])),
            (input(2, -2), 2),
        ),
        (
            tabled(None, table(0, -2, &[1, 0, 3, 2], 0, &[])),
            (input(2, -2), 3),
        ),
        (
            tabled(None, table(1, -1, &[0, 1], 1, &[2, 0])),
            (input(2, -2), 3),
        ),
        (
            tabled(None, rectified(table(0, -1, &[1, 0], 0, &[]))),
            (input(2, -2), 2),
        ),
        (
            tabled(Some((1, -1, 0)), table(0, -1, &[1, 0], 0, &[])),
            (range(3, -4, 2), 2),
        ),
        (
            tabled(None, table(2, -1, &[1, 0], 0, &[])),
            (input(4, -8), 2),
        ),
        (tabled(None, table(0, -1, &[1], 0, &[])), (input(3, -4), 2)),
        (tabled(None, table(0, -1, &[1], 0, &[])), (input(4, -8), 2)),
    ];
    let mut random = Random(8);
    let checked = cases.map(|(activation, shape)| {
        [Party::Server, Party::Client]
            .map(|party| check_uniform(&activation, shape, party, &mut random).is_some())
    });
    let mut expected = [[true; 2]; 9];
    // The server's view of the last has too many coins.
    expected[8][0] = false;
    assert_eq!(checked, expected);
}
