//! Both machines in one process, against what they should compute.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use pronghorn_graph::matrices::Matrices;
use pronghorn_he::matrix::{Setting, Sizes};
use pronghorn_plan::steps::matrices::Product;

use super::{Shape, client::EncryptedMatricesClient, server::EncryptedMatricesServer};
use crate::{
    error::EngineError,
    exchange::{Exchange, tests::assert_table},
    garbled::{Factors, Products},
    machine::{Machine, Made, StepMachine, Want},
    share::{Batch, Share},
};

const GUARD: u32 = 3;

fn shape([parts, rows, inner, columns]: [usize; 4], images: usize, bits: u32) -> Shape {
    let matrices = Matrices::of(&[parts, rows, inner], &[parts, inner, columns]).unwrap();
    let sizes = Sizes {
        rows,
        inner,
        columns,
    };
    Shape {
        product: Arc::new(Product {
            matrices,
            setting: Setting::new(sizes, bits, GUARD).unwrap(),
        }),
        guard: GUARD,
        own: Products {
            step: "product".into(),
            elements: parts * rows * columns,
            images,
            bits: bits + GUARD,
            factors: Factors::Matrices(matrices),
        },
    }
}

/// Words that look random.
fn words(elements: usize, images: usize, seed: u32) -> Batch {
    let mut batch = Batch::zeros(elements, images);
    let mut state = seed;
    for word in batch.words_mut() {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        *word = (state ^ state >> 15) as i32;
    }
    batch
}

/// What a trusted third party would compute of both shares, in units of the last guard bit.
fn ideal(shape: &Shape, client: &Batch, server: Option<&Batch>) -> Vec<i32> {
    let mut sum = client.clone();
    if let Some(server) = server {
        let pairs = sum.words_mut().iter_mut().zip(server.words());
        pairs.for_each(|(sum, &word)| *sum = sum.wrapping_add(word));
    }
    let product = shape.own.own(&sum);
    product.words().iter().map(|word| word << GUARD).collect()
}

/// Errors of the shares of both, in units of the last guard bit.
fn errors(shape: &Shape, bits: u32, server: Option<Batch>) -> Vec<i32> {
    let client = words(shape.own.inputs(), shape.images(), 7);
    let wanted = ideal(shape, &client, server.as_ref());
    let server = server.map_or(Share::Zero, Share::Words);
    let mut client = EncryptedMatricesClient::new(shape.clone(), client).unwrap();
    let mut server = EncryptedMatricesServer::new(shape.clone(), server, None).unwrap();
    let sent = [AtomicUsize::new(0), AtomicUsize::new(0)];
    run(&mut client, &mut server, |up, _, message| {
        sent[usize::from(!up)].fetch_add(message.len(), Ordering::Relaxed);
    })
    .unwrap();
    // What the plan says that they send.
    assert_eq!(
        sent.map(AtomicUsize::into_inner),
        shape.product.bytes(shape.images())
    );
    let words = |made: Made| made.share.into_words("product").unwrap();
    let [client, server] = [
        words(Box::new(client).into_made().unwrap()),
        words(Box::new(server).into_made().unwrap()),
    ];
    let sums = client.words().iter().zip(server.words()).zip(&wanted);
    let shift = 32 - bits - GUARD;
    sums.map(|((client, server), wanted)| {
        client.wrapping_add(*server).wrapping_sub(*wanted) << shift >> shift
    })
    .collect()
}

#[test]
fn products_equal_those_of_the_ideal() {
    for (sizes, images, bits) in [
        ([1, 1, 1, 1], 1, 4),
        ([2, 3, 4, 5], 3, 17),
        ([3, 20, 9, 31], 2, 22),
        ([1, 90, 40, 70], 1, 27),
    ] {
        let shape = shape(sizes, images, bits);
        let server = words(shape.own.inputs(), images, 11);
        for server in [None, Some(server)] {
            let errors = errors(&shape, bits, server);
            assert!(
                errors.iter().all(|error| error.abs() <= 1),
                "{sizes:?} {errors:?}"
            );
        }
    }
}

/// Runs both to the end; `alter` sees each message with its number, and whether the client sent it.
fn run(
    client: &mut Exchange<EncryptedMatricesClient>,
    server: &mut Exchange<EncryptedMatricesServer>,
    alter: impl Fn(bool, usize, &mut Vec<u8>),
) -> Result<(), EngineError> {
    let mut sent = 0;
    while client.want() != Want::Done || server.want() != Want::Done {
        let mut message = Vec::new();
        let up = client.want() == Want::Send;
        match up {
            true => client.send(&mut message)?,
            false => server.send(&mut message)?,
        }
        alter(up, sent, &mut message);
        sent += 1;
        match up {
            true => server.receive(&message)?,
            false => client.receive(&message)?,
        }
    }
    Ok(())
}

/// What the reader makes of a message that is not as it was.
fn altered(shape: &Shape, number: usize, alter: impl Fn(&mut Vec<u8>)) -> EngineError {
    let client = words(shape.own.inputs(), 1, 7);
    let mut client = EncryptedMatricesClient::new(shape.clone(), client).unwrap();
    let mut server = EncryptedMatricesServer::new(shape.clone(), Share::Zero, None).unwrap();
    let found = run(&mut client, &mut server, |_, at, message| {
        if at == number {
            alter(message);
        }
    });
    found.expect_err("it is refused")
}

#[test]
fn other_messages_are_refused() {
    let shape = shape([1, 3, 4, 5], 1, 17);
    let factors: usize = shape.layouts().iter().map(|layout| layout.factors()).sum();
    // The key, a factor and an answer: too short, and words that are no residues.
    for number in [0, 1, 1 + factors] {
        let short = altered(&shape, number, |message| _ = message.pop());
        assert!(matches!(short, EngineError::Length { .. }), "{short}");
        let large = altered(&shape, number, |message| {
            let half = message.len() / 2;
            message[half..half + 32].fill(0xff);
        });
        assert!(
            matches!(large, EngineError::Wire { .. }),
            "{number}: {large}"
        );
    }
}

#[test]
fn the_table_lists_the_messages() {
    let names = [super::KEY, super::FACTOR, super::ANSWER];
    assert_table(include_str!("mod.rs"), names);
}
