//! Both machines in one process, against the ideal functionality and hostile peers.

use std::sync::{Arc, LazyLock};

use pronghorn_mpc::{
    circuit::{Activation, Modulus, Rectifier, Requantisation, Table},
    lean::{Input, LeanError, Party, Program},
    ot::{OtError, silent::Chain},
};
use pronghorn_plan::steps::activation::garbled::Group;

use super::{
    Layout, LeanClient, LeanServer, PrepareLeanClient, PrepareLeanServer, PreparedLean, ots::Ots,
    work::Programs,
};
use crate::{
    error::EngineError,
    exchange::tests::{assert_table, crossed, names},
    garbled::tests::{Random, connection, opened, pooled, run, single, step},
    machine::{Machine, PreparedStep, StepMachine},
    ots::{
        Lean, LeanSetupClient, LeanSetupServer, ReceiverOts, SenderOts, SilentReceives,
        SilentSends, SilentSetupClient, SilentSetupServer,
    },
    share::Share,
};

const INPUT: Input = Input {
    bits: 18,
    prime: None,
    guard: 2,
    error: 1,
    low: -4000,
    high: 4000,
};

const OUTPUT_BITS: u32 = 11;

const ACTIVATION: Activation<'static> = Activation {
    pool: 1,
    rectifier: Rectifier::Relu,
    requantisation: Some(Requantisation {
        shift: 4,
        low: 0,
        high: 127,
    }),
    table: None,
};

/// Linear pieces in the window, beside a ReLU.
const PIECES: Activation<'static> = Activation {
    rectifier: Rectifier::None,
    requantisation: Some(Requantisation {
        shift: 4,
        low: -129,
        high: 127,
    }),
    table: Some(Table {
        rectified: true,
        drop: 4,
        first: -4,
        entries: &[0, -3, -9, -20, -31, -14, -5, 2],
        fine: 3,
        rises: &[-3, -6, -11, -10, 15, 9, 6, 0],
    }),
    ..ACTIVATION
};

/// The layout of windows, of one size for each program.
fn layout(windows: &[Vec<usize>], inputs: usize, images: usize) -> Layout {
    layout_of(ACTIVATION, windows, inputs, images)
}

fn layout_of(
    activation: Activation<'static>,
    windows: &[Vec<usize>],
    inputs: usize,
    images: usize,
) -> Layout {
    let mut sizes: Vec<usize> = windows.iter().map(Vec::len).collect();
    sizes.sort_unstable();
    sizes.dedup();
    let output = Modulus::power_of_two(OUTPUT_BITS).unwrap();
    let group = |size: usize| {
        let elements: Vec<usize> = (0..windows.len())
            .filter(|&element| windows[element].len() == size)
            .collect();
        let activation = Activation {
            pool: size,
            ..activation
        };
        Group {
            circuit: Arc::new(
                Program::activation(&activation, INPUT, output)
                    .unwrap()
                    .into(),
            ),
            sources: elements
                .iter()
                .flat_map(|&each| windows[each].clone())
                .collect(),
            elements: elements.into_iter().collect(),
        }
    };
    Layout {
        step: "activation".into(),
        inputs,
        outputs: windows.len(),
        images,
        programs: Arc::new(Programs::new(sizes.into_iter().map(group).collect())),
    }
}

/// A trusted party's computation; `values` are `[element][image]`.
fn ideal(windows: &[Vec<usize>], values: &[i64], images: usize) -> Vec<i64> {
    ideal_of(&ACTIVATION, windows, values, images)
}

fn ideal_of(
    activation: &Activation<'_>,
    windows: &[Vec<usize>],
    values: &[i64],
    images: usize,
) -> Vec<i64> {
    let mut result = Vec::new();
    for window in windows {
        for image in 0..images {
            let sources = window.iter().map(|source| values[source * images + image]);
            result.push(activation.apply(&sources.collect::<Vec<i64>>()));
        }
    }
    result
}

fn lean_ots() -> [Ots; 2] {
    let (client, server) = connection();
    let ots = || {
        let (sends, receives) = (Lean::<SenderOts>::default(), Lean::<ReceiverOts>::default());
        (sends, receives)
    };
    let (ours, theirs) = (ots(), ots());
    run(
        &mut LeanSetupClient::new(client, ours.0.clone(), ours.1.clone()),
        &mut LeanSetupServer::new(server, theirs.0.clone(), theirs.1.clone()),
    )
    .unwrap();
    [ours, theirs].map(|(sends, receives)| Ots::Extension(sends.0, receives.0))
}

/// Silent OTs by the smallest sets.
fn silent_ots() -> [Ots; 2] {
    let chain = Chain::cheapest(1000, 8);
    let [client, server] = lean_ots().map(|ots| match ots {
        Ots::Extension(sends, receives) => (Lean(sends), Lean(receives)),
        Ots::Silent(..) => panic!("they are of the extension"),
    });
    let handles = || (SilentSends::default(), SilentReceives::default());
    let (ours, theirs) = (handles(), handles());
    run(
        &mut SilentSetupClient::new(chain, client, ours.0.clone(), ours.1.clone()),
        &mut SilentSetupServer::new(chain, server, theirs.0.clone(), theirs.1.clone()),
    )
    .unwrap();
    [ours, theirs].map(|(sends, receives)| Ots::Silent(sends, receives))
}

/// Values with errors, and shares of them.
fn shared(random: &mut Random, count: usize, images: usize) -> (Vec<i64>, [Share; 2]) {
    let values = random.values(count * images, INPUT.low, INPUT.high);
    let lifted: Vec<i64> = values
        .iter()
        .map(|value| (value << INPUT.guard) + (random.next() % 3) as i64 - 1)
        .collect();
    let shares = random.shares(&lifted, images, INPUT.bits);
    (values, shares)
}

/// Pools at borders have programs of several sizes and depths; images fill tiles and leave some.
#[test]
fn steps_equal_the_ideal_functionality() {
    check_steps(&lean_ots(), true);
}

/// Steps that take what is left of a round, several rounds, and none.
#[test]
fn steps_on_silent_ots_equal_the_ideal_functionality() {
    let ots = silent_ots();
    check_steps(&ots, false);
    check_steps(&ots, false);
}

fn check_steps(ots: &[Ots; 2], alternates: bool) {
    let mut random = Random(1);
    for (windows, inputs) in [
        (single(5), 5),
        (single(70), 70),
        (pooled(6, 3), 36),
        (pooled(4, 2), 16),
    ] {
        for images in [1, 3, 900] {
            let layout = layout(&windows, inputs, images);
            let (values, [client, server]) = shared(&mut random, inputs, images);
            let expected = ideal(&windows, &values, images);
            let (shares, traffic) = step(
                LeanClient::new(layout.clone(), client, ots[0].clone()).unwrap(),
                LeanServer::new(layout.clone(), server, ots[1].clone()).unwrap(),
            )
            .unwrap();
            assert_eq!(opened(&shares[0], &shares[1], OUTPUT_BITS), expected);
            // Turns alternate: levels and one more, the first of the server.
            assert!(!alternates || traffic.turns + 1 == layout.programs.turns());
        }
    }
}

/// Steps of several parts, whose messages cross, on OTs of several rounds. Later steps take what is
/// left of a round, also ahead of their inputs.
#[test]
fn crossing_messages_equal_the_ideal_functionality() {
    let mut random = Random(7);
    let (windows, inputs, images) = (single(70), 70, 3000);
    let layout = layout(&windows, inputs, images);
    let parts = layout.programs.parts(&layout.programs.tiles(images)).len();
    assert!(parts > 2, "{parts}");
    for ots in [lean_ots(), silent_ots()] {
        for ahead in [false, true, false] {
            let mut choices = Random(random.next());
            let mut choose = |count| choices.next() as usize % count;
            let (values, [client, server]) = shared(&mut random, inputs, images);
            let expected = ideal(&windows, &values, images);
            let [ours, theirs] = ots.clone();
            let (layout, of_server) = (layout.clone(), layout.clone());
            let (mut client, mut server) = match ahead {
                true => {
                    let mut ours = PrepareLeanClient::new(layout, ours).unwrap();
                    let mut theirs = PrepareLeanServer::new(of_server, theirs).unwrap();
                    crossed(&mut ours, &mut theirs, &mut choose).unwrap();
                    let ours = ours.into_prepared().unwrap();
                    let theirs = theirs.into_prepared().unwrap();
                    (
                        LeanClient::online(ours, client).unwrap(),
                        LeanServer::online(theirs, server).unwrap(),
                    )
                }
                false => (
                    LeanClient::new(layout, client, ours).unwrap(),
                    LeanServer::new(of_server, server, theirs).unwrap(),
                ),
            };
            let rounds = client.messages().to_string();
            let rounds = rounds.matches("the client's corrections").count();
            assert!(ahead || rounds > 1 || !matches!(ots[0], Ots::Silent(..)));
            crossed(&mut client, &mut server, choose).unwrap();
            let shares = [Box::new(client).into_made(), Box::new(server).into_made()];
            let [client, server] = shares.map(|made| made.unwrap().share);
            assert_eq!(opened(&client, &server, OUTPUT_BITS), expected);
        }
    }
}

#[test]
fn tables_equal_the_ideal_functionality() {
    let mut random = Random(4);
    for ots in [lean_ots(), silent_ots()] {
        for (windows, inputs) in [(single(70), 70), (pooled(6, 3), 36)] {
            let images = 30;
            let layout = layout_of(PIECES, &windows, inputs, images);
            let (values, [client, server]) = shared(&mut random, inputs, images);
            let expected = ideal_of(&PIECES, &windows, &values, images);
            let (shares, _) = step(
                LeanClient::new(layout.clone(), client, ots[0].clone()).unwrap(),
                LeanServer::new(layout, server, ots[1].clone()).unwrap(),
            )
            .unwrap();
            assert_eq!(opened(&shares[0], &shares[1], OUTPUT_BITS), expected);
        }
    }
}

/// A ReLU of values that have no sign, and a clip to one value: no message at all.
#[test]
fn steps_without_levels_send_nothing() {
    let clip = Requantisation {
        shift: 0,
        low: 5,
        high: 5,
    };
    for (requantisation, expected) in [(None, [1, 6, 7]), (Some(clip), [5; 3])] {
        let activation = Activation {
            requantisation,
            ..Activation::RELU
        };
        let input = Input {
            bits: 4,
            prime: None,
            guard: 0,
            error: 0,
            low: 0,
            high: 7,
        };
        let output = Modulus::power_of_two(4).unwrap();
        let program = Program::activation(&activation, input, output).unwrap();
        assert_eq!(program.levels(), 0);
        let mut layout = layout(&single(3), 3, 1);
        layout.programs = Arc::new(Programs::new(vec![Group {
            circuit: Arc::new(program.into()),
            elements: (0..3).collect(),
            sources: (0..3).collect(),
        }]));
        for ots in [lean_ots(), silent_ots()] {
            let [client, server] = Random(3).shares(&[1, 6, 7], 1, 4);
            let (shares, traffic) = step(
                LeanClient::new(layout.clone(), client, ots[0].clone()).unwrap(),
                LeanServer::new(layout.clone(), server, ots[1].clone()).unwrap(),
            )
            .unwrap();
            assert_eq!(opened(&shares[0], &shares[1], 4), expected);
            assert_eq!(traffic.messages, 0);
        }
    }
}

#[test]
fn zero_shares_are_shares_too() {
    let ots = lean_ots();
    let layout = layout(&single(3), 3, 2);
    let (shares, _) = step(
        LeanClient::new(layout.clone(), Share::Zero, ots[0].clone()).unwrap(),
        LeanServer::new(layout, Share::Zero, ots[1].clone()).unwrap(),
    )
    .unwrap();
    assert_eq!(opened(&shares[0], &shares[1], OUTPUT_BITS), [0; 6]);
}

fn prepare(layout: &Layout, ots: &[Ots; 2]) -> [PreparedLean; 2] {
    let mut client = PrepareLeanClient::new(layout.clone(), ots[0].clone()).unwrap();
    let mut server = PrepareLeanServer::new(layout.clone(), ots[1].clone()).unwrap();
    run(&mut client, &mut server).unwrap();
    [
        client.into_prepared().unwrap(),
        server.into_prepared().unwrap(),
    ]
}

#[test]
fn prepared_steps_equal_the_ideal_functionality() {
    let mut random = Random(2);
    for ots in [lean_ots(), silent_ots()] {
        check_prepared(&mut random, &ots);
        check_prepared(&mut random, &ots);
    }
}

fn check_prepared(random: &mut Random, ots: &[Ots; 2]) {
    let (windows, images) = (pooled(6, 3), 40);
    let layout = layout(&windows, 36, images);
    let prepared = prepare(&layout, ots);
    // By way of a store.
    let [client, server] =
        [(Party::Client, &prepared[0]), (Party::Server, &prepared[1])].map(|(party, prepared)| {
            PreparedLean::from_bytes(layout.clone(), party, &prepared.to_bytes()).unwrap()
        });
    let (values, shares) = shared(random, 36, images);
    let [ours, theirs] = shares;
    let (shares, _) = step(
        LeanClient::online(client, ours).unwrap(),
        LeanServer::online(server, theirs).unwrap(),
    )
    .unwrap();
    let expected = ideal(&windows, &values, images);
    assert_eq!(opened(&shares[0], &shares[1], OUTPUT_BITS), expected);
}

#[test]
fn stored_halves_are_checked() {
    let (ots, layout) = (lean_ots(), layout(&single(9), 9, 1));
    let [client, _] = prepare(&layout, &ots);
    let bytes = client.to_bytes();
    let refused = |layout: Layout, party, bytes: &[u8]| {
        let read = PreparedLean::from_bytes(layout, party, bytes);
        assert!(matches!(read.err(), Some(EngineError::Prepared { .. })));
    };
    for cut in (0..bytes.len()).step_by(7) {
        refused(layout.clone(), Party::Client, &bytes[..cut]);
    }
    refused(layout.clone(), Party::Server, &bytes);
    refused(self::layout(&single(8), 9, 1), Party::Client, &bytes);
    let mut longer = bytes.to_vec();
    longer.push(0);
    refused(layout, Party::Client, &longer);
}

#[test]
fn halves_of_two_preparations_do_not_go_together() {
    let (ots, layout) = (lean_ots(), layout(&single(9), 9, 1));
    let ([client, _], [_, server]) = (prepare(&layout, &ots), prepare(&layout, &ots));
    let mut client = LeanClient::online(client, Share::Zero).unwrap();
    let mut server = LeanServer::online(server, Share::Zero).unwrap();
    let error = run(&mut client, &mut server).unwrap_err();
    assert!(
        error
            .to_string()
            .contains("is not the one that the server uses")
    );
}

/// False corrections of silent OT are found.
#[test]
fn false_corrections_are_found() {
    for number in [0, 1] {
        let ots = silent_ots();
        let error = tamper(&ots, |index, message| {
            if index == number {
                // Of the last tree, behind its first level.
                let end = message.len();
                message[end - 5] ^= 1;
            }
        });
        let Some(EngineError::Ot { source, .. }) = error else {
            continue;
        };
        assert!(matches!(source, OtError::FalseCorrections));
        let victim = &ots[number];
        let Ots::Silent(sends, receives) = victim else {
            panic!("they are silent");
        };
        assert!(!sends.is_ready() || !receives.is_ready());
    }
}

/// Sends the messages of one party changed by `change`; the error of the other, if any.
fn tamper(ots: &[Ots; 2], change: impl Fn(usize, &mut Vec<u8>)) -> Option<EngineError> {
    let layout = layout(&single(9), 9, 1);
    let mut client = LeanClient::new(layout.clone(), Share::Zero, ots[0].clone()).unwrap();
    let mut server = LeanServer::new(layout, Share::Zero, ots[1].clone()).unwrap();
    let (mut message, mut number) = (Vec::new(), 0);
    loop {
        use crate::machine::Want;
        let (from, to): (
            &mut dyn Machine<Error = EngineError>,
            &mut dyn Machine<Error = EngineError>,
        ) = match (client.want(), server.want()) {
            (Want::Send, _) => (&mut client, &mut server),
            (_, Want::Send) => (&mut server, &mut client),
            _ => break,
        };
        message.clear();
        from.send(&mut message).unwrap();
        change(number, &mut message);
        if let Err(error) = to.receive(&message) {
            return Some(error);
        }
        number += 1;
    }
    let shares = [Box::new(client).into_made(), Box::new(server).into_made()];
    assert!(shares.iter().all(Result::is_ok));
    None
}

/// Changed bits of products are errors in shared bits and words: nobody sees them, and results may
/// change. Changed OTs are found.
#[test]
fn flipped_bits_of_ots_are_found() {
    let ots = lean_ots();
    assert!(tamper(&ots, |_, _| ()).is_none());
    for number in [1, 3, 4, 5] {
        let flipped = tamper(&ots, |index, message| {
            if index == number {
                message[0] ^= 1;
            }
        });
        assert!(flipped.is_none());
    }
    for (number, victim) in [(0, 0), (2, 1)] {
        let ots = lean_ots();
        let error = tamper(&ots, |index, message| {
            if index == number {
                // Behind the position: a correction.
                message[20] ^= 1;
            }
        });
        assert!(matches!(error, Some(EngineError::Ot { .. })));
        let Ots::Extension(sends, receives) = &ots[victim] else {
            panic!("they are of the extension");
        };
        assert!(!sends.is_ready() && receives.is_ready());
    }
}

#[test]
fn other_lengths_are_refused() {
    let ots = lean_ots();
    for number in 1..6 {
        for longer in [false, true] {
            let error = tamper(&ots, |index, message| {
                if index == number {
                    match longer {
                        true => message.push(0),
                        false => drop(message.pop()),
                    }
                }
            });
            assert!(matches!(
                error,
                Some(EngineError::Length { .. } | EngineError::Ot { .. })
            ));
        }
    }
}

/// A set-up that fails at the check leaves no OTs.
#[test]
fn a_spoilt_set_up_is_refused() {
    static CHANGED: LazyLock<usize> = LazyLock::new(|| 30);
    for number in [0, 4] {
        let (client, server) = connection();
        let (ours, theirs) = (
            (Lean::default(), Lean::default()),
            (Lean::<SenderOts>::default(), Lean::<ReceiverOts>::default()),
        );
        let mut client = LeanSetupClient::new(client, ours.0, ours.1);
        let mut server = LeanSetupServer::new(server, theirs.0.clone(), theirs.1.clone());
        let mut failed = false;
        for index in 0.. {
            use crate::machine::Want;
            let mut message = Vec::new();
            let sent = match (client.want(), server.want()) {
                (Want::Send, _) => client.send(&mut message).map(|()| true),
                (_, Want::Send) => server.send(&mut message).map(|()| false),
                _ => break,
            };
            let up = sent.unwrap();
            if index == number {
                message[*CHANGED] ^= 1;
            }
            let taken = match up {
                true => server.receive(&message),
                false => client.receive(&message),
            };
            if taken.is_err() {
                failed = true;
                break;
            }
        }
        assert!(failed);
    }
}

#[test]
fn errors_name_the_step() {
    let source = LeanError::OutOfTurn { level: 3 };
    let step = "relu".to_owned();
    let error = EngineError::Lean { step, source }.to_string();
    assert_eq!(error, "step relu: level 3 came out of turn");
}

#[test]
fn tables_list_the_messages() {
    let ots = lean_ots();
    let client = LeanClient::new(layout(&single(9), 9, 1), Share::Zero, ots[0].clone()).unwrap();
    assert_table(include_str!("mod.rs"), names(client.messages()));
    let setup = LeanSetupClient::new(ReceiverOts::default(), Lean::default(), Lean::default());
    assert_table(include_str!("../ots/reverse.rs"), names(setup.messages()));
}
