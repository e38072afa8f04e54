//! The index of the largest value: all values of small widths, ties, ends of ranges, uniform views.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use pronghorn_mpc::{
    Block,
    circuit::{Modulus, signed_width},
    lean::{
        Cascade, CascadeReceived, CascadeRun, CascadeSent, Input, LeanError, Party, argmax_width,
        deal_cascade,
    },
};
use zeroize::Zeroizing;

use crate::common::Random;

/// Shares of the fewest bits.
fn input((low, high): (i64, i64), (guard, error): (u32, u64)) -> Input {
    Input {
        bits: argmax_width(low, high) + guard,
        guard,
        error,
        low,
        high,
    }
}

/// The narrowest modulus of an index.
fn output(classes: usize) -> Modulus {
    Modulus::power_of_two(signed_width(0, classes as i64 - 1)).unwrap()
}

fn cascade(classes: usize, at_once: usize, input: Input) -> Arc<Cascade> {
    let cascade = Cascade::argmax(classes, at_once, input, output(classes));
    Arc::new(cascade.unwrap_or_else(|error| panic!("{classes} {at_once} {input:?}: {error}")))
}

/// As ONNX defines it: the first of equal values.
fn argmax(values: &[(i64, i64)]) -> u64 {
    let largest = values.iter().map(|(value, _)| value).max();
    let place = values.iter().position(|(value, _)| Some(value) == largest);
    place.unwrap() as u64
}

/// Runs rows of values, each with an error, and compares the indices.
fn check(at_once: usize, input: Input, rows: &[Vec<(i64, i64)>], random: &mut Random) {
    let classes = rows[0].len();
    let (cascade, modulus) = (cascade(classes, at_once, input), output(classes));
    let mask = u32::MAX >> (32 - input.bits);
    let words = |class: usize| {
        let mut shares = [Vec::new(), Vec::new()].map(Zeroizing::new);
        for row in rows {
            let (value, error) = row[class];
            let share = random.next() as u32 & mask;
            shares[0].push(share);
            shares[1].push((((value << input.guard) + error) as u32).wrapping_sub(share) & mask);
        }
        shares
    };
    let mut sides = [Vec::new(), Vec::new()];
    for [server, client] in (0..classes).map(words) {
        sides[0].push(server);
        sides[1].push(client);
    }
    let [server, client] = sides;
    let [(sent, received_by_client), (sent_by_client, received)] =
        deal_cascade(&cascade, rows.len(), || random.block());
    let mut server = CascadeRun::new(cascade.clone(), Party::Server, server, received).unwrap();
    let mut client =
        CascadeRun::new(cascade.clone(), Party::Client, client, received_by_client).unwrap();
    client.provide(sent_by_client);
    let mut sent = Some(sent);
    for level in 0..cascade.levels() {
        let (mut down, mut up) = (Vec::new(), Vec::new());
        server.make(&mut down).unwrap();
        client.make(&mut up).unwrap();
        assert_eq!(down.len(), cascade.bytes(level, Party::Server, rows.len()));
        assert_eq!(up.len(), cascade.bytes(level, Party::Client, rows.len()));
        // As in a run: the client's OTs come with its first message.
        sent.take()
            .into_iter()
            .for_each(|sent| server.provide(sent));
        server.take(&up).unwrap();
        client.take(&down).unwrap();
    }
    assert!(server.is_done() && client.is_done());
    let (server, client) = (server.output().unwrap(), client.output().unwrap());
    for ((row, &x), &y) in rows.iter().zip(server).zip(client) {
        let found = modulus.add(x.into(), y.into());
        assert_eq!(found, argmax(row), "{at_once} {input:?} {row:?}");
    }
}

/// All rows of so many values, each with each error.
fn all(classes: usize, input: &Input) -> Vec<Vec<(i64, i64)>> {
    let error = input.error as i64;
    let values = input.low..=input.high;
    let each: Vec<(i64, i64)> = values
        .flat_map(|value| (-error..=error).map(move |error| (value, error)))
        .collect();
    let count = each.len().pow(classes as u32);
    let row = |mut number: usize| {
        let mut value = |_| {
            let value = each[number % each.len()];
            number /= each.len();
            value
        };
        (0..classes).map(&mut value).collect()
    };
    (0..count).map(row).collect()
}

const GUARDS: [(u32, u64); 6] = [(0, 0), (2, 0), (3, 1), (4, 1), (4, 3), (6, 1)];

#[test]
fn all_small_rows_equal_the_oracle() {
    let mut random = Random(1);
    for guard in GUARDS {
        for (classes, range) in [
            (2, (-4, 3)),
            (3, (-1, 1)),
            (3, (-2, 0)),
            (4, (0, 1)),
            (5, (7, 7)),
        ] {
            let input = input(range, guard);
            let each = (range.1 - range.0 + 1) as usize * (2 * guard.1 as usize + 1);
            if each.pow(classes as u32) > 1 << 16 {
                continue;
            }
            for at_once in 2..=classes {
                check(at_once, input, &all(classes, &input), &mut random);
            }
        }
    }
}

#[test]
fn any_number_of_classes_is_taken() {
    let mut random = Random(2);
    for classes in [2, 3, 4, 5, 6, 7, 8, 9, 10, 13, 16, 17, 31, 100, 1000] {
        let rows = if classes > 100 { 3 } else { 70 };
        for (range, guard) in [((-3, 3), (3, 1)), ((-(1 << 20), (1 << 20) - 2), (4, 1))] {
            let input = input(range, guard);
            let value = |random: &mut Random| {
                let value = random.below((range.1 - range.0 + 1) as u64) as i64 + range.0;
                (value, random.below(3) as i64 - 1)
            };
            let mut rows: Vec<Vec<(i64, i64)>> = (0..rows)
                .map(|_| (0..classes).map(|_| value(&mut random)).collect())
                .collect();
            // Ties of all, and both ends of the range.
            rows.push(vec![(range.0, 1); classes]);
            rows.push(
                (0..classes as i64)
                    .map(|class| (range.1, class % 3 - 1))
                    .collect(),
            );
            let mut ends = vec![(range.0, 1); classes];
            ends[classes - 1] = (range.1, -1);
            rows.push(ends);
            for at_once in [2, 3, 10, 64] {
                check(at_once, input, &rows, &mut random);
            }
        }
    }
}

#[test]
fn costs_are_those_of_the_design() {
    // 10 values of 22 bits, one guard bit in them: rounds of pairs, and all at once.
    let input = input((-(1 << 18), (1 << 18) - 1), (2, 0));
    let counts = |at_once: usize| {
        let cascade = cascade(10, at_once, input);
        let ots = cascade.ots(Party::Server) + cascade.ots(Party::Client);
        (cascade.all_bits(), ots, cascade.levels())
    };
    let (pairs, at_once) = (counts(2), counts(10));
    // Bits, OTs, levels.
    assert_eq!((pairs, at_once), ((1600, 489, 25), (6274, 2459, 10)));
}

#[test]
fn what_does_not_fit_is_refused() {
    let whole = input((-8, 7), (3, 1));
    let refused = |classes, at_once, input, output: u32| {
        let output = Modulus::power_of_two(output).unwrap();
        Cascade::argmax(classes, at_once, input, output)
            .map(|_| ())
            .unwrap_err()
            .to_string()
    };
    assert!(refused(1, 2, whole, 8).contains("the number of classes"));
    assert!(refused((1 << 16) + 1, 2, whole, 32).contains("the number of classes"));
    assert!(refused(4, 1, whole, 8).contains("compared at once"));
    assert!(refused(4, 65, whole, 8).contains("compared at once"));
    assert!(refused(5, 2, whole, 3).contains("do not fit 2^3"));
    let narrow = Input {
        bits: whole.bits - 1,
        ..whole
    };
    assert!(refused(4, 2, narrow, 8).contains("do not fit"));
    // One guard bit less than ties need, though enough to round.
    let noisy = Input { guard: 2, ..whole };
    assert!(refused(4, 2, noisy, 8).contains("twice the reach of errors is 4"));
}

#[test]
fn wrong_messages_are_refused() {
    let mut random = Random(3);
    let cascade = cascade(5, 2, input((-8, 7), (3, 1)));
    let [(sent, _), (_, received)] = deal_cascade(&cascade, 7, || random.block());
    let inputs = (0..5).map(|_| Zeroizing::new(vec![1; 7])).collect();
    let mut server = CascadeRun::new(cascade.clone(), Party::Server, inputs, received).unwrap();
    server.provide(sent);
    assert_eq!(server.take(&[]), Err(LeanError::OutOfTurn { level: 0 }));
    for level in 0..cascade.levels() {
        assert!(server.output().is_err());
        server.make(&mut Vec::new()).unwrap();
        let again = server.make(&mut Vec::new());
        assert_eq!(again, Err(LeanError::OutOfTurn { level: level + 1 }));
        let expected = cascade.bytes(level, Party::Client, 7);
        for found in [expected - 1, expected + 1] {
            let length = LeanError::Length {
                level,
                found,
                expected,
            };
            assert_eq!(server.take(&vec![0; found]), Err(length));
        }
        server.take(&vec![0; expected]).unwrap();
    }
    assert!(server.output().is_ok());
}

/// The OTs of a sender: the strings of both choices, and the choice.
type Coins = Vec<[u64; 3]>;

fn sent(cascade: &Cascade, sender: Party, coins: &Coins) -> CascadeSent {
    let blocks = |choice: usize| -> Vec<Block> {
        let blocks = coins.iter().map(|ot| Block::from_u128(ot[choice].into()));
        blocks.collect()
    };
    CascadeSent::from_blocks(cascade, sender, 1, [&blocks(0), &blocks(1)])
}

fn received(cascade: &Cascade, sender: Party, coins: &Coins) -> CascadeReceived {
    let chosen = |ot: &[u64; 3]| Block::from_u128(ot[ot[2] as usize].into());
    let blocks: Vec<Block> = coins.iter().map(chosen).collect();
    let choices = coins.chunks(8).map(|ots| {
        let bits = ots.iter().rev();
        bits.fold(0, |byte, ot| byte << 1 | ot[2] as u8)
    });
    CascadeReceived::from_blocks(cascade, sender, 1, &choices.collect::<Vec<u8>>(), &blocks)
}

/// The messages that a party sees, and the sum of both outputs.
fn view(
    cascade: &Arc<Cascade>,
    party: Party,
    inputs: [&[u32]; 2],
    coins: &[Coins; 2],
) -> (Vec<u8>, u64) {
    let mut parties = [Party::Server, Party::Client].map(|party| {
        let words = inputs[party as usize].iter();
        let words = words.map(|&word| Zeroizing::new(vec![word])).collect();
        let peer = party.peer();
        let received = received(cascade, peer, &coins[peer as usize]);
        let mut run = CascadeRun::new(cascade.clone(), party, words, received).unwrap();
        run.provide(sent(cascade, party, &coins[party as usize]));
        run
    });
    let mut view = Vec::new();
    for _ in 0..cascade.levels() {
        let messages = parties.each_mut().map(|party| {
            let mut message = Vec::new();
            party.make(&mut message).unwrap();
            message
        });
        view.extend_from_slice(&messages[party.peer() as usize]);
        parties[0].take(&messages[1]).unwrap();
        parties[1].take(&messages[0]).unwrap();
    }
    let [x, y] = parties
        .each_mut()
        .map(|party| u64::from(party.output().unwrap()[0]));
    (view, cascade.output_modulus().add(x, y))
}

/// Counts the views of a party over all coins that it does not know, for each row of values behind
/// its own shares: they must be the same, and each view must come as often as each other.
fn check_views(classes: usize, at_once: usize, input: Input, party: Party, random: &mut Random) {
    let cascade = cascade(classes, at_once, input);
    let widths = [Party::Server, Party::Client].map(|sender| cascade.string_bits(sender, 1));
    let (own, peer) = (party as usize, party.peer() as usize);
    let mask = u32::MAX >> (32 - input.bits);
    let shares: Vec<u32> = (0..classes).map(|_| random.next() as u32 & mask).collect();
    let mut coins = widths.each_ref().map(|widths| {
        let ot = |&width: &u32| match width {
            0 => [0; 3],
            _ => [
                random.below(1 << width),
                random.below(1 << width),
                random.below(2),
            ],
        };
        widths.iter().map(ot).collect::<Coins>()
    });
    // Unknown: the string not chosen of each OT received, the choice of each OT sent.
    let choices = widths[own].iter().filter(|width| **width > 0).count() as u32;
    let unknown = widths[peer].iter().sum::<u32>() + choices;
    assert!(unknown <= 18, "{unknown} coins are too many to list");
    let mut first: Option<BTreeMap<Vec<u8>, u64>> = None;
    for row in all(classes, &input) {
        let others = row.iter().zip(&shares).map(|((value, error), share)| {
            (((value << input.guard) + error) as u32).wrapping_sub(*share) & mask
        });
        let others: Vec<u32> = others.collect();
        let inputs = match party {
            Party::Server => [&shares[..], &others[..]],
            Party::Client => [&others[..], &shares[..]],
        };
        let mut seen: BTreeMap<Vec<u8>, u64> = BTreeMap::new();
        for mut guess in 0..1u64 << unknown {
            let mut take = |width: u32| {
                let taken = guess & ((1 << width) - 1);
                guess >>= width;
                taken
            };
            for (ot, &width) in coins[peer].iter_mut().zip(&widths[peer]) {
                ot[1 - ot[2] as usize] = take(width);
            }
            for (ot, &width) in coins[own].iter_mut().zip(&widths[own]) {
                ot[2] = take(width.min(1));
            }
            let (view, index) = view(&cascade, party, inputs, &coins);
            assert_eq!(index, argmax(&row));
            *seen.entry(view).or_default() += 1;
        }
        let often: BTreeSet<u64> = seen.values().copied().collect();
        assert_eq!(
            often.len(),
            1,
            "{classes} {at_once} {input:?} {party:?} {row:?}"
        );
        assert_eq!(first.get_or_insert_with(|| seen.clone()), &seen, "{row:?}");
    }
}

#[test]
fn views_are_uniform_and_independent_of_values() {
    let mut random = Random(7);
    for (classes, at_once, range) in [
        (2, 2, (0, 1)),
        (2, 2, (-1, 2)),
        (3, 2, (0, 0)),
        (3, 2, (0, 1)),
        (3, 3, (0, 1)),
    ] {
        for party in [Party::Server, Party::Client] {
            check_views(classes, at_once, input(range, (0, 0)), party, &mut random);
        }
    }
}
