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

use super::common::Random;

/// Shares of the fewest bits.
fn input((low, high): (i64, i64), (guard, error): (u32, u64)) -> Input {
    Input {
        bits: argmax_width(low, high) + guard,
        prime: None,
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
    let mut server = CascadeRun::new(cascade.clone(), Party::Server, server, received);
    let mut client = CascadeRun::new(cascade.clone(), Party::Client, client, received_by_client);
    client.provide(sent_by_client);
    let mut sent = Some(sent);
    for at in 0..cascade.levels() {
        level(&cascade, &mut server, &mut client, at, |server| {
            // As in a run: the client's OTs come with its first message.
            let sent = sent.take().into_iter();
            sent.for_each(|sent| server.provide(sent));
        });
    }
    assert!(server.is_done() && client.is_done());
    let (server, client) = (server.output().unwrap(), client.output().unwrap());
    for ((row, &x), &y) in rows.iter().zip(server).zip(client) {
        let found = modulus.add(x, y);
        assert_eq!(found, argmax(row), "{at_once} {input:?} {row:?}");
    }
}

/// Runs a level, and something between the two messages; the messages of server and client.
fn level(
    cascade: &Cascade,
    server: &mut CascadeRun,
    client: &mut CascadeRun,
    level: usize,
    between: impl FnOnce(&mut CascadeRun),
) -> [Vec<u8>; 2] {
    let (mut down, mut up) = (Vec::new(), Vec::new());
    if Party::first_of(level) == Party::Server {
        server.make(&mut down).unwrap();
        client.take(&down).unwrap();
        client.make(&mut up).unwrap();
        between(server);
        server.take(&up).unwrap();
    } else {
        client.make(&mut up).unwrap();
        server.take(&up).unwrap();
        server.make(&mut down).unwrap();
        client.take(&down).unwrap();
    }
    let instances = server.instances();
    assert_eq!(down.len(), cascade.bytes(level, Party::Server, instances));
    assert_eq!(up.len(), cascade.bytes(level, Party::Client, instances));
    [down, up]
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
    assert_eq!((pairs, at_once), ((1690, 327, 21), (6724, 1649, 9)));
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
    let mut server = CascadeRun::new(cascade.clone(), Party::Server, inputs, received);
    server.provide(sent);
    assert_eq!(server.take(&[]), Err(LeanError::OutOfTurn { level: 0 }));
    for level in 0..cascade.levels() {
        assert!(server.output().is_err());
        let first = Party::first_of(level) == Party::Server;
        if first {
            server.make(&mut Vec::new()).unwrap();
        }
        let again = server.make(&mut Vec::new());
        let next = level + usize::from(first);
        assert_eq!(again, Err(LeanError::OutOfTurn { level: next }));
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
        if !first {
            server.make(&mut Vec::new()).unwrap();
        }
    }
    assert!(server.output().is_ok());
}

/// The OTs of a sender: the strings of all choices, and the choice.
type Coins = Vec<(Vec<u64>, usize)>;

fn dealt(cascade: &Cascade, sender: Party, coins: &Coins) -> (CascadeSent, CascadeReceived) {
    cascade.deal(
        sender,
        1,
        |ot, choice| Block::from_u128(coins[ot].0[choice].into()),
        |ot| coins[ot].1,
    )
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
        let (_, received) = dealt(cascade, peer, &coins[peer as usize]);
        let mut run = CascadeRun::new(cascade.clone(), party, words, received);
        run.provide(dealt(cascade, party, &coins[party as usize]).0);
        run
    });
    let mut view = Vec::new();
    for at in 0..cascade.levels() {
        let [server, client] = &mut parties;
        let messages = level(cascade, server, client, at, |_| ());
        view.extend_from_slice(&messages[party.peer() as usize]);
    }
    let [x, y] = parties.each_mut().map(|party| party.output().unwrap()[0]);
    (view, cascade.output_modulus().add(x, y))
}

/// Counts the views of a party over all coins that it does not know, for each row of values behind
/// its own shares: they must be the same, and each view must come as often as each other.
fn check_views(classes: usize, at_once: usize, input: Input, party: Party, random: &mut Random) {
    let cascade = cascade(classes, at_once, input);
    let widths = [Party::Server, Party::Client].map(|sender| cascade.ot_widths(sender, 1));
    let (own, peer) = (party as usize, party.peer() as usize);
    let mask = u32::MAX >> (32 - input.bits);
    let shares: Vec<u32> = (0..classes).map(|_| random.next() as u32 & mask).collect();
    let mut coins = widths.each_ref().map(|widths| {
        let ot = |&(width, bits): &(u32, u32)| {
            let strings = (0..1 << width).map(|_| random.below(1 << bits));
            (strings.collect(), random.below(1 << width) as usize)
        };
        widths.iter().map(ot).collect::<Coins>()
    });
    // Unknown: the strings not chosen of each OT received, the choice of each OT sent.
    let strings = widths[peer].iter();
    let strings = strings.map(|(width, bits)| ((1 << width) - 1) * bits);
    let unknown = strings.sum::<u32>() + widths[own].iter().map(|(width, _)| width).sum::<u32>();
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
            for ((strings, chosen), &(_, bits)) in coins[peer].iter_mut().zip(&widths[peer]) {
                let others = strings.iter_mut().enumerate();
                for (_, string) in others.filter(|(choice, _)| choice != chosen) {
                    *string = take(bits);
                }
            }
            for ((_, choice), &(width, _)) in coins[own].iter_mut().zip(&widths[own]) {
                *choice = take(width) as usize;
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
