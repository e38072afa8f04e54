//! Garbled steps equal their functionality.

use pronghorn_mpc::circuit::{
    Activation, Builder, Circuit, Modulus, Rectifier, Requantisation, argmax,
};
use proptest::prelude::*;

use super::*;
use crate::garbled::{GarbledClient, GarbledServer};

fn both(
    layout: &Layout,
    shares: [Share; 2],
    ots: &(ReceiverOts, SenderOts),
    limits: &Limits,
) -> Result<([Share; 2], Traffic), EngineError> {
    let [client, server] = shares;
    let layout = Arc::new(layout.clone());
    step(
        GarbledClient::with_limits(layout.clone(), client, ots.0.clone(), limits)?,
        GarbledServer::with_limits(layout, server, ots.1.clone(), limits)?,
    )
}

/// Runs a function of windows on random values, and compares.
fn check(
    function: &Function,
    windows: &[Vec<usize>],
    inputs: usize,
    images: usize,
    limits: &Limits,
    ots: &(ReceiverOts, SenderOts),
) {
    let layout = function.layout(windows, inputs, images);
    let random = &mut Random((inputs * 1000 + images) as u64);
    let (low, high) = (
        function.low - function.offset,
        function.high - function.offset,
    );
    let values = random.values(inputs * images, low, high);
    let shares = random.shares(&values, images, function.bits);
    let ([client, server], traffic) = both(&layout, shares, ots, limits).unwrap();
    let expected = ideal::garbled(&layout, &values, |window| function.activation.apply(window));
    assert_eq!(opened(&client, &server, function.output_bits), expected);
    assert!(traffic.messages > 0);
}

#[test]
fn relu_over_chunks_and_windows() {
    let ots = connection();
    for (elements, images) in [(1, 1), (1, 37), (33, 1), (129, 37), (1, 4000)] {
        for limits in [SMALL, Limits::DEFAULT] {
            let windows = single(elements);
            check(&Function::RELU, &windows, elements, images, &limits, &ots);
        }
    }
}

#[test]
fn pools_of_several_sizes() {
    let ots = connection();
    let requantisation = Requantisation {
        shift: 3,
        low: 0,
        high: 255,
    };
    let function = Function {
        activation: Activation {
            pool: 1,
            rectifier: Rectifier::Relu,
            requantisation: Some(requantisation),
            ..Activation::RELU
        },
        bits: 14,
        low: -3000,
        high: 5000,
        output_bits: 9,
        offset: 0,
    };
    for (size, side) in [(1, 2), (5, 3), (8, 3)] {
        for images in [1, 37] {
            let windows = pooled(size, side);
            check(&function, &windows, size * size, images, &SMALL, &ots);
        }
    }
}

#[test]
fn the_offset_is_added() {
    let function = Function {
        bits: 13,
        low: -4000,
        high: 4000,
        output_bits: 32,
        offset: 17,
        ..Function::RELU
    };
    check(&function, &single(50), 50, 3, &SMALL, &connection());
}

#[test]
fn shares_of_thirty_two_bits() {
    let function = Function {
        activation: Activation {
            pool: 1,
            rectifier: Rectifier::Leaky { slope: 3, shift: 5 },
            requantisation: Some(Requantisation {
                shift: 7,
                low: i32::MIN,
                high: i32::MAX,
            }),
            ..Activation::RELU
        },
        bits: 32,
        low: i32::MIN.into(),
        high: i32::MAX.into(),
        output_bits: 32,
        offset: 0,
    };
    check(&function, &single(9), 9, 37, &SMALL, &connection());
}

#[test]
fn chunks_have_every_length() {
    let ots = connection();
    for tables in [700, 2_000, 21_000, 42_000, 100_000] {
        for window in [1, 1 << 14, 1 << 20] {
            let limits = Limits {
                piece: 1 << 10,
                tables,
                window,
                ..SMALL
            };
            check(&Function::RELU, &single(97), 97, 3, &limits, &ots);
        }
    }
}

/// With one of the shares zero.
#[test]
fn shares_may_be_zero() {
    let ots = connection();
    let layout = Function::RELU.layout(&single(40), 40, 3);
    let values = Random(5).values(120, -1000, 1000);
    let mut words = Batch::zeros(40, 3);
    let cells = words.words_mut().iter_mut().zip(&values);
    cells.for_each(|(word, &value)| *word = value as i32);
    let expected = ideal::garbled(&layout, &values, |x| x[0].max(0));
    for shares in [
        [Share::Zero, Share::Words(words.clone())],
        [Share::Words(words.clone()), Share::Zero],
    ] {
        let ([client, server], _) = both(&layout, shares, &ots, &SMALL).unwrap();
        assert_eq!(opened(&client, &server, 20), expected);
    }
    let ([client, server], _) = both(&layout, [Share::Zero, Share::Zero], &ots, &SMALL).unwrap();
    assert_eq!(opened(&client, &server, 20), [0; 120]);
}

fn revealed(circuit: Circuit, words: usize, elements: usize, output: Output) -> Layout {
    Layout {
        step: "revealed".to_owned(),
        inputs: words * elements,
        outputs: elements,
        images: 5,
        circuits: Arc::new(Circuits {
            groups: vec![Group {
                circuit: Arc::new(circuit),
                elements: (0..elements).rev().collect(),
                sources: (0..words * elements).rev().collect(),
            }],
            offset: 0,
            output,
        }),
    }
}

#[test]
fn the_client_learns_the_index_of_the_largest() {
    let modulus = Modulus::power_of_two(12).unwrap();
    let circuit = argmax(modulus, -2000, 2000, 10).unwrap();
    let layout = revealed(circuit, 10, 3, Output::Unsigned);
    let random = &mut Random(9);
    let values = random.values(10 * 3 * 5, -2000, 2000);
    let shares = random.shares(&values, 5, 12);
    let ([client, server], _) = both(&layout, shares, &connection(), &SMALL).unwrap();
    assert!(matches!(server, Share::Zero));
    let first_largest = |window: &[i64]| {
        let largest = window.iter().max().unwrap();
        window.iter().position(|value| value == largest).unwrap() as i64
    };
    let expected = ideal::garbled(&layout, &values, first_largest);
    assert_eq!(opened(&client, &server, 32), expected);
}

#[test]
fn the_client_learns_signed_words() {
    let modulus = Modulus::power_of_two(10).unwrap();
    let mut builder = Builder::new();
    let shared = builder.shared_input(modulus, -500, 500).unwrap();
    let word = builder.reconstruct(&shared, 0);
    builder.output_revealed(&word);
    let bits = word.len() as u32;
    let layout = revealed(builder.finish(), 1, 20, signed(bits));
    let random = &mut Random(9);
    let values = random.values(100, -500, 500);
    let shares = random.shares(&values, 5, 10);
    let ([client, server], _) = both(&layout, shares, &connection(), &SMALL).unwrap();
    let expected = ideal::garbled(&layout, &values, |x| x[0]);
    assert_eq!(opened(&client, &server, 32), expected);
}

/// A garbler who sends other tables chooses the value. The client notices one outside the range,
/// after its last message.
#[test]
fn opened_words_outside_their_range_are_in_doubt() {
    let modulus = Modulus::power_of_two(10).unwrap();
    let mut builder = Builder::new();
    let shared = builder.shared_input(modulus, -500, 500).unwrap();
    let word = builder.reconstruct(&shared, 0);
    builder.output_revealed(&word);
    let bits = word.len() as u32;
    let (low, high) = (-3, 5);
    let layout = revealed(builder.finish(), 1, 20, Output::Signed { bits, low, high });
    for (value, fine) in [(-3, true), (5, true), (-4, false), (6, false), (499, false)] {
        let mut values = vec![0; 100];
        values[7] = value;
        let shares = Random(3).shares(&values, 5, 10);
        match both(&layout, shares, &connection(), &SMALL) {
            Ok(_) => assert!(fine, "{value}"),
            Err(EngineError::Opened { index, .. }) => assert!(!fine && index == 7, "{value}"),
            Err(error) => panic!("{error}"),
        }
    }
}

/// No two ReLUs in a row get the same shares, whatever their inputs.
#[test]
fn steps_of_a_connection_have_fresh_shares() {
    let ots = connection();
    let layout = Function::RELU.layout(&single(64), 64, 1);
    let mut seen = Vec::new();
    for _ in 0..3 {
        let shares = Random(1).shares(&[5; 64], 1, 20);
        let ([client, server], _) = both(&layout, shares, &ots, &SMALL).unwrap();
        assert_eq!(opened(&client, &server, 20), [5; 64]);
        let Share::Words(words) = client else {
            panic!("shares");
        };
        seen.push(words.words().to_vec());
    }
    assert!(seen[0] != seen[1] && seen[1] != seen[2]);
}

/// Bytes of a ReLU on 20 bits: OTs of width 5 and tables, as the documentation of
/// `pronghorn_mpc::garble` has them.
#[test]
fn a_relu_has_its_bytes() {
    let layout = Function::RELU.layout(&single(10_000), 10_000, 1);
    let shares = [Share::Zero, Share::Zero];
    let (_, traffic) = both(&layout, shares, &connection(), &Limits::DEFAULT).unwrap();
    let (up, down) = (traffic.up as f64 / 1e4, traffic.down as f64 / 1e4);
    assert!((66.0..69.0).contains(&up), "{up}");
    assert!((623.0..624.0).contains(&down), "{down}");
    assert_eq!(traffic.turns, 1, "one round trip");
}

/// A circuit of which not even a tile fits a message.
#[test]
fn large_circuits_are_cut_within_a_tile() {
    let modulus = Modulus::power_of_two(12).unwrap();
    let circuit = argmax(modulus, -2000, 2000, 10).unwrap();
    let layout = revealed(circuit, 10, 7, Output::Unsigned);
    let limits = Limits {
        tables: 40_000,
        ..SMALL
    };
    let shares = [Share::Zero, Share::Zero];
    let (_, traffic) = both(&layout, shares, &connection(), &limits).unwrap();
    assert!(traffic.messages > 8);
    let one = Limits { tables: 1, ..SMALL };
    let shares = [Share::Zero, Share::Zero];
    let (_, traffic) = both(&layout, shares, &connection(), &one).unwrap();
    assert_eq!(traffic.messages, 2 * 35);
}

#[test]
fn an_empty_step_is_over() {
    let layout = Function::RELU.layout(&[], 3, 2);
    let shares = [Share::Zero, Share::Zero];
    let (_, traffic) = both(&layout, shares, &connection(), &SMALL).unwrap();
    assert_eq!(traffic, Traffic::default());
}

/// The circuits of a layout, to be changed.
fn spoiled(layout: &mut Layout) -> &mut Circuits {
    Arc::make_mut(&mut layout.circuits)
}

/// Puts another index at a place.
fn put(indices: &mut Indices, place: usize, index: usize) {
    let mut all: Vec<usize> = indices.iter().collect();
    all[place] = index;
    *indices = all.into_iter().collect();
}

/// Signed words of so many bits.
fn signed(bits: u32) -> Output {
    let (low, high) = (-500, 500);
    Output::Signed { bits, low, high }
}

/// Makes a layout invalid.
type Spoil = fn(&mut Layout);

#[test]
fn layouts_that_are_none_are_refused() {
    let spoils: [Spoil; 12] = [
        |layout| layout.images = 0,
        |layout| layout.images = usize::MAX,
        |layout| layout.outputs += 1,
        |layout| put(&mut spoiled(layout).groups[0].elements, 0, 1),
        |layout| put(&mut spoiled(layout).groups[0].elements, 0, 99),
        |layout| put(&mut spoiled(layout).groups[0].sources, 3, 4),
        |layout| spoiled(layout).groups[0].sources = (0..3).collect(),
        |layout| spoiled(layout).groups.clear(),
        |layout| spoiled(layout).output = Output::Unsigned,
        |layout| spoiled(layout).output = signed(0),
        |layout| spoiled(layout).output = signed(33),
        |layout| {
            let modulus = Modulus::power_of_two(40).unwrap();
            let circuit = Activation::RELU.circuit(modulus, -9, 9, modulus);
            spoiled(layout).groups[0].circuit = Arc::new(circuit.unwrap());
        },
    ];
    let ots = connection();
    for (index, spoil) in spoils.into_iter().enumerate() {
        let mut layout = Function::RELU.layout(&single(4), 4, 2);
        spoil(&mut layout);
        for error in [
            GarbledClient::new(layout.clone(), Share::Zero, ots.0.clone()).err(),
            GarbledServer::new(layout.clone(), Share::Zero, ots.1.clone()).err(),
        ] {
            let error = error.unwrap_or_else(|| panic!("layout {index} is refused"));
            assert!(error.to_string().contains("activation"), "{error}");
        }
    }
    let mut layout = Function::RELU.layout(&[vec![0], vec![1, 2]], 4, 2);
    let narrow = Function {
        output_bits: 21,
        ..Function::RELU
    };
    let other = narrow.layout(&[vec![1, 2]], 4, 2);
    spoiled(&mut layout).groups[1].circuit = other.circuits.groups[0].circuit.clone();
    let refused = GarbledClient::new(layout, Share::Zero, ots.0.clone());
    assert!(matches!(
        refused.err(),
        Some(EngineError::Unsupported { .. })
    ));
    let layout = Function::RELU.layout(&single(4), 4, 2);
    for (elements, images) in [(3, 2), (4, 3), (8, 1)] {
        let share = || Share::Words(Batch::zeros(elements, images));
        let refused = GarbledClient::new(layout.clone(), share(), ots.0.clone());
        assert!(matches!(refused.err(), Some(EngineError::Layout { .. })));
        let refused = GarbledServer::new(layout.clone(), share(), ots.1.clone());
        assert!(matches!(refused.err(), Some(EngineError::Layout { .. })));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    /// Any function of any shape.
    #[test]
    fn any_layout(
        (bits, output_bits) in (4u32..=24, 24u32..=32),
        (size, side, images) in (1usize..6, 2usize..4, 1usize..40),
        (shift, relu, offset) in (0u32..4, any::<bool>(), 0i64..3),
        (piece, tables) in (10usize..16, 12usize..20),
    ) {
        let largest = (1i64 << (bits - 1)) - 1;
        let function = Function {
            activation: Activation {
                pool: 1,
                rectifier: if relu { Rectifier::Relu } else { Rectifier::None },
                requantisation: Some(Requantisation { shift, low: -100, high: 1000 }),
                ..Activation::RELU
            },
            bits,
            low: -largest - 1,
            high: largest,
            output_bits,
            offset,
        };
        let limits = Limits { piece: 1 << piece, tables: 1 << tables, ..SMALL };
        check(&function, &pooled(size, side), size * size, images, &limits, &connection());
    }
}
