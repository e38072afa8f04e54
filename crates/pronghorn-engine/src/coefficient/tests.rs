//! Products at every SIMD level, hostile messages, and what publications have in common.

mod published;

use std::sync::Arc;

use pronghorn_graph::{
    fixed::{Linear, ValueSpec},
    geometry::{ConvGeometry, Window},
};
use pronghorn_he::rlwe;
use pronghorn_plan::{
    CheckedPlan, Plan, Rlwe, ShareBits, Step, StepKind, TrustLevel, WordSize,
    cost::PUBLICATION_GRANT,
    plan::FORMAT,
    steps::linear::coefficient::{CoefficientLinear, Layout},
};
use pronghorn_ring::{
    Prime, SimdLevel, Word, bits,
    modulus::largest_ntt_prime,
    random::{Prg, Seed},
    vector,
};
use proptest::prelude::*;

use super::{
    Answer, Shape,
    client::CoefficientClient,
    product::{Weights, multiply_reference},
    publication::{
        self, Bound, ClientPublication, Offered, Polynomials, PublicationClient, ServerPublication,
    },
    server::{CoefficientServer, PreparedLayer},
};
use crate::{
    connection::{Connection, Kept, Shelf},
    error::EngineError,
    exchange::tests::{assert_table, names},
    machine::{Exchanging, Machine, StepMachine, Want},
    protocol::Prelude,
    share::{Batch, Share},
};

fn geometries() -> impl Strategy<Value = ConvGeometry> {
    let window = (
        [1usize..4, 1..4],
        [1usize..4, 1..4],
        [1usize..3, 1..3],
        [0usize..3, 0..3, 0..3, 0..3],
    );
    // Beyond four, eight and sixteen output channels, in which they are taken together.
    let channels = (1usize..3, 1usize..4, 1usize..21);
    (window, channels, [1usize..13, 1..13])
        .prop_map(
            |((kernel, stride, dilation, padding), (groups, ins, outs), input)| ConvGeometry {
                in_channels: groups * ins,
                out_channels: groups * outs,
                input,
                window: Window {
                    kernel,
                    stride,
                    dilation,
                    padding,
                },
                groups,
            },
        )
        .prop_filter("the kernel fits", |geometry| geometry.output().is_ok())
}

fn words(seed: u64, count: usize) -> Vec<u64> {
    let mut bytes = vec![0; 8 * count];
    let mut seeds = [0; 32];
    seeds[..8].copy_from_slice(&seed.to_le_bytes());
    let prg = Prg::new(
        &Seed::from_bytes(seeds),
        "pronghorn test: coefficient engine",
    );
    prg.stream(0).fill(&mut bytes);
    let words = bytes.as_chunks::<8>().0.iter();
    words.map(|bytes| u64::from_le_bytes(*bytes)).collect()
}

/// The largest weights that are allowed, or small ones.
fn layer(geometry: &ConvGeometry, seed: u64, largest: bool) -> Linear {
    let most = match largest {
        true => i16::MAX,
        false => 127,
    };
    let weight = |word: u64| match (word % 4, largest) {
        (0 | 1, true) => most,
        (2 | 3, true) => -most,
        _ => (word >> 8) as i16 % most,
    };
    let random = words(seed, geometry.weights_len());
    Linear {
        geometry: geometry.clone(),
        weights: random.into_iter().map(weight).collect(),
        bias: vec![0; geometry.out_channels],
    }
}

fn products<W: Word>(
    geometry: &ConvGeometry,
    (degree, prime): (usize, u32),
    seed: u64,
    largest: bool,
) {
    let Some(layout) = Layout::new(geometry, degree) else {
        return;
    };
    let q = Prime::<W>::new(largest_ntt_prime(prime, 1 << 4).unwrap()).unwrap();
    let linear = layer(geometry, seed, largest);
    let weights = Weights::new(&linear, &layout).unwrap();
    let input: Vec<W> = words(seed ^ 1, weights.tile_words())
        .into_iter()
        .map(|word| match word % 3 {
            0 => q.value() - 1,
            _ => (word >> 2) % q.value(),
        })
        .map(W::from_u64)
        .collect();
    let columns: Vec<usize> = layout.outputs(0).map(|(_, at)| at as usize).collect();
    for columns in [&columns[..], &columns[..1]] {
        for level in SimdLevel::available() {
            let found = weights.multiply_at(level, &q, &input, columns);
            for (output, row) in found.chunks_exact(columns.len()).enumerate() {
                for (&found, &column) in row.iter().zip(columns) {
                    let word = |polynomial, at| input[polynomial * weights.extent() + at];
                    let wanted = multiply_reference(&linear, &layout, &q, word, column, output);
                    assert_eq!(found.to_u64(), wanted.to_u64(), "{level:?}");
                }
            }
        }
    }
}

proptest! {
    #[test]
    fn products_are_the_reference(geometry in geometries(), log in 4u32..9, seed: u64, largest: bool, narrow in 20u32..32, wide in 32u32..61) {
        products::<u32>(&geometry, (1 << log, narrow), seed, largest);
        products::<u64>(&geometry, (1 << log, wide.min(60)), seed, largest);
    }
}

#[test]
fn weights_that_may_overflow_are_refused() {
    let geometry = ConvGeometry::dense(3, 2);
    let layout = Layout::new(&geometry, 16).unwrap();
    let refused = |weights: [i16; 6]| {
        let linear = Linear {
            weights: weights.to_vec(),
            ..layer(&geometry, 1, false)
        };
        Weights::new(&linear, &layout).is_none()
    };
    assert!(!refused([0, 0, 0, 0x7fff, -0x7fff, 1]));
    assert!(refused([0, 0, 0, 0x7fff, -0x8000, 1]));
    let other = ConvGeometry::dense(2, 3);
    assert!(Weights::new(&layer(&other, 1, false), &layout).is_none());
}

const VALUE_BITS: u32 = 20;
const GUARD_BITS: u32 = 2;

/// A plan of linear steps that all read the input, with two guard bits; the last one is opened.
fn plan(geometry: &ConvGeometry, word: WordSize, steps: usize) -> CheckedPlan {
    CheckedPlan::new(unchecked(geometry, word, steps)).expect("the plan is valid")
}

fn unchecked(geometry: &ConvGeometry, word: WordSize, steps: usize) -> Plan {
    let value_bits = match word {
        WordSize::U32 => 8,
        WordSize::U64 => VALUE_BITS,
    };
    // With room for the errors of guard bits.
    let value = |shape: Vec<usize>| ValueSpec {
        shape,
        fraction_bits: 0,
        low: -(1 << (value_bits - 1)) + 2,
        high: (1 << (value_bits - 1)) - 3,
    };
    let [height, width] = geometry.output().unwrap();
    let (input, output) = (
        value(vec![
            geometry.in_channels,
            geometry.input[0],
            geometry.input[1],
        ]),
        value(vec![geometry.out_channels, height, width]),
    );
    let (prime, degree) = match word {
        WordSize::U32 => (30, 2048),
        WordSize::U64 => (44, 2048),
    };
    let linear = CoefficientLinear {
        geometry: geometry.clone(),
        rlwe: Rlwe {
            word,
            degree,
            modulus: largest_ntt_prime(prime, degree).unwrap(),
            dropped_bits: 1,
            dropped_bits_a: 0,
        },
        shares: ShareBits {
            value_bits,
            guard_bits: GUARD_BITS,
        },
    };
    let first = Step {
        kind: StepKind::Input,
        inputs: Vec::new(),
        value: input,
    };
    let step = |_| Step {
        kind: StepKind::CoefficientLinear(linear.clone()),
        inputs: vec![0],
        value: output.clone(),
    };
    let open = Step {
        kind: StepKind::Open,
        inputs: vec![steps],
        value: output.clone(),
    };
    Plan {
        format: FORMAT,
        model: "test".into(),
        trust: TrustLevel::TwoParty,
        steps: std::iter::once(first)
            .chain((1..=steps).map(step))
            .chain([open])
            .collect(),
        output: steps + 1,
        finish: Vec::new(),
        max_batch: 16,
        band_bytes: pronghorn_plan::plan::BAND_BYTES,
        key_checks: 1,
        sampled: None,
        deviations: None,
        categories: vec![],
        class_names: vec![],
        columns: vec![],
        outputs: vec![],
    }
}

/// A plan of a small layer in words of this size.
pub(super) fn small_plan(word: WordSize) -> CheckedPlan {
    plan(&small_geometry(), word, 1)
}

fn small_geometry() -> ConvGeometry {
    ConvGeometry {
        in_channels: 2,
        out_channels: 3,
        input: [5; 2],
        window: Window {
            padding: [1; 4],
            ..Window::plain([3; 2])
        },
        groups: 1,
    }
}

fn shape_of(plan: &CheckedPlan, index: usize) -> Shape {
    match &plan.steps[index].kind {
        StepKind::CoefficientLinear(linear) => {
            Shape::new(linear, Answer::Share, &plan.compiled(index)).unwrap()
        }
        _ => panic!("step {index} is linear"),
    }
}

fn prepared<W: Word>(plan: &CheckedPlan, index: usize, seed: u64) -> Arc<PreparedLayer<W>> {
    let shape = shape_of(plan, index);
    let weights = layer(&shape.linear.geometry, seed, false);
    Arc::new(PreparedLayer::new(&weights, &shape).unwrap())
}

/// The layers of a plan, with weights of a seed.
fn layers(plan: &CheckedPlan, seed: u64) -> Shelf {
    let shelf = Shelf::default();
    let layers: publication::Layers = shelf.at(0);
    for (index, _, rlwe) in plan.linear_steps() {
        match rlwe.word {
            WordSize::U32 => layers.add(index, prepared::<u32>(plan, index, seed)),
            WordSize::U64 => layers.add(index, prepared::<u64>(plan, index, seed)),
        }
    }
    shelf
}

/// The machine of a prelude before a batch of so many images.
fn started(prelude: Option<Box<dyn Prelude>>, connection: &Connection, batch: usize) -> Exchanging {
    let prelude = prelude.expect("the plan publishes");
    let machine = prelude.start(connection, batch).unwrap();
    machine.expect("nothing was published yet")
}

fn server(
    plan: &CheckedPlan,
    weights: u64,
    secret: [u8; 32],
    connection: &Connection,
    batch: usize,
) -> Exchanging {
    let secret = Arc::new(Seed::from_bytes(secret));
    let prelude = publication::server_prelude(plan, &layers(plan, weights), &secret);
    started(prelude, connection, batch)
}

fn client(plan: &CheckedPlan, connection: &Connection) -> Exchanging {
    started(publication::client_prelude(plan), connection, 2)
}

struct Parties {
    client: Exchanging,
    server: Exchanging,
    slots: (Kept<ClientPublication>, Kept<ServerPublication>),
}

fn parties(plan: &CheckedPlan, weights: u64, secret: [u8; 32]) -> Parties {
    offering(plan, weights, secret, None)
}

/// Parties whose client has a publication of an earlier connection for so many images.
fn offering(
    plan: &CheckedPlan,
    weights: u64,
    secret: [u8; 32],
    offered: Option<(ClientPublication, usize)>,
) -> Parties {
    let connections = [Connection::default(), Connection::default()];
    if let Some((publication, images)) = offered {
        let kept: Kept<Offered> = connections[0].kept();
        kept.put_for(Offered(publication), images);
    }
    Parties {
        client: client(plan, &connections[0]),
        server: server(plan, weights, secret, &connections[1], 2),
        slots: (connections[0].kept(), connections[1].kept()),
    }
}

fn exchange(
    client: &mut dyn Machine<Error = EngineError>,
    server: &mut dyn Machine<Error = EngineError>,
) -> Result<(), EngineError> {
    exchange_with(client, server, &mut |_, _| false).1
}

/// The same over a line that changes messages, given by their number; whether it changed one, and
/// what came of it.
fn exchange_with(
    client: &mut dyn Machine<Error = EngineError>,
    server: &mut dyn Machine<Error = EngineError>,
    change: &mut dyn FnMut(usize, &mut Vec<u8>) -> bool,
) -> (bool, Result<(), EngineError>) {
    let mut changed = false;
    let mut number = 0;
    let mut pass = |from: &mut dyn Machine<Error = EngineError>,
                    to: &mut dyn Machine<Error = EngineError>| {
        let mut message = Vec::new();
        from.send(&mut message)?;
        assert!(message.len() <= to.max_incoming());
        changed |= change(number, &mut message);
        number += 1;
        to.receive(&message)
    };
    let result = loop {
        let passed = match (client.want(), server.want()) {
            (Want::Send, Want::Receive) => pass(client, server),
            (Want::Receive, Want::Send) => pass(server, client),
            (Want::Done, Want::Done) => break Ok(()),
            wants => panic!("stuck: {wants:?}"),
        };
        if passed.is_err() {
            break passed;
        }
    };
    (changed, result)
}

fn published(
    plan: &CheckedPlan,
    weights: u64,
    secret: [u8; 32],
) -> (ClientPublication, ServerPublication) {
    let mut parties = parties(plan, weights, secret);
    exchange(parties.client.as_mut(), parties.server.as_mut()).unwrap();
    let (client, server) = parties.slots;
    (client.get().unwrap(), server.get().unwrap())
}

fn words_of(publication: &ClientPublication, step: usize) -> Vec<u64> {
    match publication.polynomials(step).unwrap() {
        Some(Polynomials::U32(words)) => words.iter().map(|&word| word.into()).collect(),
        Some(Polynomials::U64(words)) => words.to_vec(),
        None => Vec::new(),
    }
}

#[test]
fn machines_refuse_hostile_messages_and_then_go_on() {
    let plan = plan(&small_geometry(), WordSize::U64, 1);
    let images = 2;
    let (of_client, of_server) = published(&plan, 1, [7; 32]);
    let Ok(Some(Polynomials::U64(polynomials))) = of_client.polynomials(1) else {
        panic!("words have 64 bits");
    };
    let shape = shape_of(&plan, 1).for_batch(images);
    let share = |seed: u64| {
        let mut share = Batch::zeros(50, images);
        let words = words(seed, 50 * images);
        let cells = share.words_mut().iter_mut().zip(words);
        cells.for_each(|(cell, word)| *cell = word as i32);
        share
    };
    let client = |polynomials| {
        CoefficientClient::new(shape.clone(), 1, &of_client.seed, polynomials, share(1))
    };
    let shorter = Arc::new(polynomials[1..].to_vec());
    assert!(matches!(
        client(shorter),
        Err(EngineError::Unsupported { .. })
    ));
    let mut client = client(polynomials).unwrap();
    assert_table(include_str!("mod.rs"), names(client.messages()));
    let prepared = prepared::<u64>(&plan, 1, 1);
    let input = Share::Words(share(2));
    let mut server =
        CoefficientServer::new(shape.clone(), 1, prepared, of_server, input, None).unwrap();

    let out_of_turn = |result: Result<(), EngineError>| {
        assert!(
            matches!(result, Err(EngineError::OutOfTurn { .. })),
            "{result:?}"
        );
    };
    out_of_turn(server.send(&mut Vec::new()));
    out_of_turn(client.receive(&[]));
    let hostile = |machine: &mut dyn Machine<Error = EngineError>, width: u32, largest: u64| {
        let length = machine.max_incoming();
        for length in [0, length - 1, length + 1] {
            let error = machine.receive(&vec![0; length]);
            assert!(
                matches!(error, Err(EngineError::Length { .. })),
                "{error:?}"
            );
        }
        let mut message = Vec::new();
        bits::pack(
            &vec![largest + 1; length * 8 / width as usize],
            width,
            &mut message,
        );
        message.resize(length, 0);
        let error = machine.receive(&message);
        assert!(matches!(error, Err(EngineError::Word { .. })), "{error:?}");
    };
    let linear = &shape.linear;
    hostile(
        &mut server,
        linear.rlwe.modulus_bits(),
        linear.rlwe.modulus - 1,
    );
    let mut message = Vec::new();
    while client.want() == Want::Send {
        message.clear();
        client.send(&mut message).unwrap();
        server.receive(&message).unwrap();
    }
    out_of_turn(client.send(&mut Vec::new()));
    out_of_turn(server.receive(&message));
    hostile(
        &mut client,
        linear.rlwe.answer_bits(),
        (linear.rlwe.modulus - 1) >> linear.rlwe.dropped_bits,
    );
    exchange(&mut client, &mut server).unwrap();
    out_of_turn(client.send(&mut Vec::new()));

    // And the answer is the layer's.
    let inputs: Vec<i32> = {
        let (x, y) = (share(1), share(2));
        x.words()
            .iter()
            .zip(y.words())
            .map(|(x, y)| x.wrapping_add(*y))
            .collect()
    };
    let (Share::Words(x), Share::Words(y)) = (
        Box::new(client).into_made().unwrap().share,
        Box::new(server).into_made().unwrap().share,
    ) else {
        panic!("both parties have words");
    };
    let weights = layer(&small_geometry(), 1, false).weights;
    let unused = 32 - VALUE_BITS - GUARD_BITS;
    for output in 0..75 {
        for image in 0..images {
            let (channel, row, column) = (output / 25, output / 5 % 5, output % 5);
            let mut wanted = 0i32;
            for (tap, weight) in weights[channel * 18..][..18].iter().enumerate() {
                let (y, x) = (
                    (row + tap / 3 % 3).wrapping_sub(1),
                    (column + tap % 3).wrapping_sub(1),
                );
                if y < 5 && x < 5 {
                    let element = tap / 9 * 25 + y * 5 + x;
                    let input = inputs[element * images + image];
                    wanted = wanted.wrapping_add(i32::from(*weight).wrapping_mul(input));
                }
            }
            let found = x.row(output)[image].wrapping_add(y.row(output)[image]);
            let error = found.wrapping_sub(wanted << GUARD_BITS) << unused >> unused;
            assert!(error.abs() <= 1, "{output} {image}: {error}");
        }
    }
}
