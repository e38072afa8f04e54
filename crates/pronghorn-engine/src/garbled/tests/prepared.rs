//! Steps in two phases.

use super::*;
use crate::garbled::{
    GarbledServer, OnlineClient, OnlineProductClient, OnlineProductServer, OnlineServer,
    PrepareClient, PrepareProductClient, PrepareProductServer, PrepareServer, PreparedClient,
    PreparedProductClient, PreparedProductServer, PreparedServer, Products,
};

type Prepared = (PreparedClient, PreparedServer);

pub fn prepare(
    layout: &Arc<Layout>,
    share: &Share,
    ots: &(ReceiverOts, SenderOts),
    limits: &Limits,
) -> (Prepared, Traffic) {
    let mut client = PrepareClient::with_limits(layout.clone(), ots.0.clone(), limits).unwrap();
    let mut server =
        PrepareServer::with_limits(layout.clone(), share.clone(), ots.1.clone(), limits).unwrap();
    let traffic = run(&mut client, &mut server).unwrap();
    let prepared = (
        client.into_prepared().unwrap(),
        server.into_prepared().unwrap(),
    );
    (prepared, traffic)
}

fn online((client, server): Prepared, share: Share, limits: &Limits) -> ([Share; 2], Traffic) {
    let client = OnlineClient::with_limits(client, share, limits).unwrap();
    step(client, OnlineServer::with_limits(server, limits)).unwrap()
}

fn words(share: &Share) -> &[i32] {
    match share {
        Share::Words(words) => words.words(),
        Share::Zero => &[],
    }
}

/// By both machines, and once more with what was prepared stored in between.
fn check(function: &Function, windows: &[Vec<usize>], inputs: usize, images: usize) {
    let ots = connection();
    let layout = Arc::new(function.layout(windows, inputs, images));
    for (seed, limits) in [(1, SMALL), (2, SMALL), (3, Limits::DEFAULT)] {
        let random = &mut Random(seed);
        let values = random.values(inputs * images, function.low, function.high);
        let [client, server] = random.shares(&values, images, function.bits);
        let (mut prepared, _) = prepare(&layout, &server, &ots, &limits);
        assert_eq!(prepared.0.name(), prepared.1.name());
        if seed == 2 {
            let bytes = (prepared.0.to_bytes(), prepared.1.to_bytes());
            assert_eq!(bytes.0.len(), prepared.0.len_bytes());
            prepared = (
                PreparedClient::with_limits(layout.clone(), &bytes.0, &limits).unwrap(),
                PreparedServer::with_limits(layout.clone(), &bytes.1, &limits).unwrap(),
            );
        }
        let ahead = words(prepared.1.share()).to_vec();
        let ([client, server], traffic) = online(prepared, client, &limits);
        assert_eq!(ahead, words(&server));
        assert!(traffic.turns <= 1);
        let expected = ideal::garbled(&layout, &values, |window| function.activation.apply(window));
        assert_eq!(opened(&client, &server, function.output_bits), expected);
    }
}

#[test]
fn relus_in_two_phases() {
    for (elements, images) in [(0, 1), (1, 1), (9, 37), (300, 1)] {
        check(&Function::RELU, &single(elements), elements, images);
    }
}

#[test]
fn pools_in_two_phases() {
    let function = Function {
        bits: 9,
        low: -200,
        high: 255,
        output_bits: 9,
        ..Function::RELU
    };
    for images in [1, 37] {
        check(&function, &pooled(5, 3), 25, images);
    }
}

/// Prepared on one connection, used on another; several at a time, in any order.
#[test]
fn garblings_outlive_the_connection() {
    let layout = Arc::new(Function::RELU.layout(&single(40), 40, 1));
    let random = &mut Random(8);
    let mut made = Vec::new();
    for _ in 0..3 {
        let ots = connection();
        let values = random.values(40, -100, 100);
        let [client, server] = random.shares(&values, 1, 20);
        let (prepared, _) = prepare(&layout, &server, &ots, &SMALL);
        made.push((prepared, values, client));
    }
    for (prepared, values, client) in made.into_iter().rev() {
        let ([client, server], _) = online(prepared, client, &SMALL);
        let expected: Vec<i64> = values.iter().map(|&x| x.max(0)).collect();
        assert_eq!(opened(&client, &server, 20), expected);
    }
}

#[test]
fn a_relu_has_its_bytes() {
    let layout = Arc::new(Function::RELU.layout(&single(10_000), 10_000, 1));
    let (prepared, offline) = prepare(&layout, &Share::Zero, &connection(), &Limits::DEFAULT);
    let (_, online) = online(prepared, Share::Zero, &Limits::DEFAULT);
    let bytes = |traffic: &Traffic| (traffic.up as f64 / 1e4, traffic.down as f64 / 1e4);
    let (up, down) = bytes(&offline);
    assert!((66.0..69.0).contains(&up), "{up}");
    assert!((623.0..624.0).contains(&down), "{down}");
    let (up, down) = bytes(&online);
    assert!((2.5..2.51).contains(&up), "{up}");
    assert!((320.0..320.1).contains(&down), "{down}");
}

#[test]
fn halves_of_different_garblings_are_refused() {
    let layout = Arc::new(Function::RELU.layout(&single(40), 40, 1));
    let ots = connection();
    let (first, _) = prepare(&layout, &Share::Zero, &ots, &SMALL);
    let (second, _) = prepare(&layout, &Share::Zero, &ots, &SMALL);
    let mut client = OnlineClient::new(first.0, Share::Zero).unwrap();
    let mut server = OnlineServer::new(second.1);
    let error = run(&mut client, &mut server).unwrap_err();
    assert!(matches!(error, EngineError::Prepared { .. }), "{error}");
    let share = Share::Words(Batch::zeros(39, 1));
    let refused = OnlineClient::new(second.0, share);
    assert!(matches!(refused.err(), Some(EngineError::Layout { .. })));
}

#[test]
fn stored_garblings_are_checked() {
    let layout = Arc::new(Function::RELU.layout(&single(40), 40, 1));
    let (prepared, _) = prepare(&layout, &Share::Zero, &connection(), &SMALL);
    let (client, server) = (prepared.0.to_bytes(), prepared.1.to_bytes());
    let load = |kind: u8, bytes: &[u8], layout: &Arc<Layout>| match kind {
        1 => PreparedClient::with_limits(layout.clone(), bytes, &SMALL).err(),
        _ => PreparedServer::with_limits(layout.clone(), bytes, &SMALL).err(),
    };
    let other = Arc::new(Function::RELU.layout(&single(41), 41, 1));
    for (kind, bytes) in [(1, &client), (2, &server)] {
        assert!(load(kind, bytes, &layout).is_none());
        let spoilt = |at: usize, to: u8| {
            let mut bytes = bytes.to_vec();
            bytes[at] = to;
            load(kind, &bytes, &layout)
        };
        let longer = [&bytes[..], &[0]].concat();
        let errors = [
            load(kind, &[], &layout),
            load(kind, &bytes[..20], &layout),
            load(kind, &bytes[..bytes.len() - 1], &layout),
            load(kind, &longer, &layout),
            load(3 - kind, bytes, &layout),
            load(kind, bytes, &other),
            spoilt(0, 2),
            spoilt(1, 7),
            spoilt(25, 0xff),
            spoilt(33, 0xff),
        ];
        for (index, error) in errors.into_iter().enumerate() {
            let error = error.unwrap_or_else(|| panic!("case {index} is refused"));
            assert!(matches!(error, EngineError::Prepared { .. }), "{error}");
        }
    }
    let mut bytes = server.to_vec();
    bytes[34] &= 0xfe;
    assert!(load(2, &bytes, &layout).is_some(), "delta");
    let mut bytes = client.to_vec();
    bytes[5] ^= 1;
    assert!(load(1, &bytes, &layout).is_some(), "name");
}

#[test]
fn what_is_not_finished_is_not_prepared() {
    let layout = Arc::new(Function::RELU.layout(&single(4), 4, 1));
    let ots = connection();
    let client = PrepareClient::new(layout.clone(), ots.0.clone()).unwrap();
    assert!(client.into_prepared().is_err());
    let server = PrepareServer::new(layout, Share::Zero, ots.1.clone()).unwrap();
    assert!(server.into_prepared().is_err());
    let squares = squares(4, 1, 8);
    let client = PrepareProductClient::new(squares.clone(), ots.0).unwrap();
    assert!(client.into_prepared().is_err());
    let server = PrepareProductServer::new(squares, Share::Zero, ots.1).unwrap();
    assert!(server.into_prepared().is_err());
}

#[test]
fn hostile_preparation() {
    let layout = Arc::new(Function::RELU.layout(&single(40), 40, 1));
    let ots = connection();
    let mut client = PrepareClient::new(layout.clone(), ots.0.clone()).unwrap();
    let mut server = PrepareServer::new(layout.clone(), Share::Zero, ots.1.clone()).unwrap();
    let mut message = Vec::new();
    assert!(client.receive(&[0; 4]).is_err());
    assert!(server.send(&mut message).is_err());
    client.send(&mut message).unwrap();
    assert!(server.receive(&message[1..]).is_err());
    server.receive(&message).unwrap();
    let mut tables = Vec::new();
    server.send(&mut tables).unwrap();
    assert!(client.receive(&tables[1..]).is_err());
    client.receive(&tables).unwrap();
    // The client deviates: the set-up is destroyed.
    let mut client = PrepareClient::new(layout.clone(), ots.0).unwrap();
    let mut server = PrepareServer::new(layout.clone(), Share::Zero, ots.1.clone()).unwrap();
    message.clear();
    client.send(&mut message).unwrap();
    message[77] ^= 4;
    assert!(server.receive(&message).is_err());
    assert!(!ots.1.is_ready());
    let again = GarbledServer::new(layout, Share::Zero, ots.1).unwrap();
    assert_eq!(again.max_incoming(), 0);
}

#[test]
fn hostile_use() {
    let layout = Arc::new(Function::RELU.layout(&single(40), 40, 1));
    let ((client, server), _) = prepare(&layout, &Share::Zero, &connection(), &SMALL);
    let mut client = OnlineClient::new(client, Share::Zero).unwrap();
    let mut server = OnlineServer::new(server);
    assert!(matches!(
        client.receive(&[0; 4]),
        Err(EngineError::OutOfTurn { .. })
    ));
    let early = server.send(&mut Vec::new());
    assert!(matches!(early, Err(EngineError::OutOfTurn { .. })));
    let mut message = Vec::new();
    client.send(&mut message).unwrap();
    for length in [0, 15, 16, message.len() - 1] {
        assert!(matches!(
            server.receive(&message[..length]),
            Err(EngineError::Length { .. })
        ));
    }
    assert!(server.receive(&vec![0; message.len()]).is_err());
    server.receive(&message).unwrap();
    assert!(server.receive(&message).is_err());
    message.clear();
    server.send(&mut message).unwrap();
    for length in [0, 15, message.len() - 1] {
        assert!(matches!(
            client.receive(&message[..length]),
            Err(EngineError::Length { .. })
        ));
    }
    message.fill(0xff);
    client.receive(&message).unwrap();
}

fn squares(elements: usize, images: usize, bits: u32) -> Products {
    Products::squares("square".to_owned(), elements, images, bits)
}

#[test]
fn squares_in_two_phases() {
    let ots = connection();
    for (elements, images, bits) in [
        (0, 1, 20),
        (1, 1, 1),
        (9, 37, 2),
        (9, 37, 20),
        (2048, 1, 32),
    ] {
        let random = &mut Random(u64::from(bits));
        let (low, high) = (-1 << (bits - 1), (1 << (bits - 1)) - 1);
        let values = random.values(elements * images, low, high);
        let squares = squares(elements, images, bits);
        for zero in [false, true] {
            let [mut client_share, mut server_share] = random.shares(&values, images, bits);
            let mut expected = ideal::squares(&values, bits);
            if zero {
                (client_share, server_share) = (Share::Zero, Share::Zero);
                expected.fill(0);
            }
            let mut client = PrepareProductClient::new(squares.clone(), ots.0.clone()).unwrap();
            let mut server =
                PrepareProductServer::new(squares.clone(), server_share, ots.1.clone()).unwrap();
            run(&mut client, &mut server).unwrap();
            let (client, server) = (
                client.into_prepared().unwrap(),
                server.into_prepared().unwrap(),
            );
            assert_eq!(client.name(), server.name());
            let ahead = words(&server.share()).to_vec();
            let (client, server) = (client.to_bytes(), server.to_bytes());
            let client = PreparedProductClient::from_bytes(squares.clone(), &client).unwrap();
            let server = PreparedProductServer::from_bytes(squares.clone(), &server).unwrap();
            let client = OnlineProductClient::with_limits(client, client_share, &SMALL).unwrap();
            let server = OnlineProductServer::with_limits(server, &SMALL);
            let ([client, server], traffic) = step(client, server).unwrap();
            assert_eq!(opened(&client, &server, bits), expected);
            assert_eq!(words(&server), ahead);
            assert!(traffic.turns <= 1);
        }
    }
}

pub fn squares_ahead(
    squares: &Products,
    ots: &(ReceiverOts, SenderOts),
) -> (PreparedProductClient, PreparedProductServer) {
    let mut client = PrepareProductClient::new(squares.clone(), ots.0.clone()).unwrap();
    let mut server =
        PrepareProductServer::new(squares.clone(), Share::Zero, ots.1.clone()).unwrap();
    run(&mut client, &mut server).unwrap();
    (
        client.into_prepared().unwrap(),
        server.into_prepared().unwrap(),
    )
}

#[test]
fn hostile_differences() {
    let (ots, squares) = (connection(), squares(40, 1, 20));
    let (client, server) = squares_ahead(&squares, &ots);
    let (other, _) = squares_ahead(&squares, &ots);
    let name = server.name();
    assert_ne!(name, other.name());
    let mut server = OnlineProductServer::new(server);
    assert!(server.send(&mut Vec::new()).is_err());
    for length in [0, 100, 115, 117] {
        assert!(matches!(
            server.receive(&vec![0; length]),
            Err(EngineError::Length { .. })
        ));
    }
    let share = Share::Words(Batch::zeros(1, 40));
    let refused = OnlineProductClient::new(client, share);
    assert!(matches!(refused.err(), Some(EngineError::Layout { .. })));
    // The client uses another one.
    let mut message = Vec::new();
    let mut other = OnlineProductClient::new(other, Share::Zero).unwrap();
    other.send(&mut message).unwrap();
    assert!(matches!(
        server.receive(&message),
        Err(EngineError::Prepared { .. })
    ));
    message.fill(0xff);
    message[..16].copy_from_slice(&name);
    server.receive(&message).unwrap();
    assert!(server.receive(&message).is_err());
    // Padding that is not zero.
    let (client, server) = squares_ahead(&self::squares(3, 1, 20), &ots);
    let message = [&server.name()[..], &[0xff; 8]].concat();
    assert!(matches!(
        OnlineProductServer::new(server).receive(&message),
        Err(EngineError::Packing { .. })
    ));
    let mut client = OnlineProductClient::new(client, Share::Zero).unwrap();
    assert!(client.receive(&[0; 8]).is_err());
    client.send(&mut Vec::new()).unwrap();
    assert!(client.send(&mut Vec::new()).is_err());
    for length in [0, 7, 9] {
        assert!(matches!(
            client.receive(&vec![0; length]),
            Err(EngineError::Length { .. })
        ));
    }
    assert!(matches!(
        client.receive(&[0xff; 8]),
        Err(EngineError::Packing { .. })
    ));
    client.receive(&[0; 8]).unwrap();
}

#[test]
fn stored_squares_are_checked() {
    let squares = squares(5, 2, 20);
    let (client, server) = squares_ahead(&squares, &connection());
    let (client, server) = (client.to_bytes(), server.to_bytes());
    let load = |client: bool, bytes: &[u8], squares: Products| match client {
        true => PreparedProductClient::from_bytes(squares, bytes).err(),
        false => PreparedProductServer::from_bytes(squares, bytes).err(),
    };
    for (kind, bytes) in [(true, client), (false, server)] {
        assert!(load(kind, &bytes, squares.clone()).is_none());
        let longer = [&bytes[..], &[0]].concat();
        for bytes in [&[][..], &bytes[..33], &bytes[..bytes.len() - 1], &longer] {
            let error = load(kind, bytes, squares.clone()).unwrap();
            assert!(matches!(error, EngineError::Prepared { .. }), "{error}");
        }
        assert!(load(!kind, &bytes, squares.clone()).is_some());
        for other in [self::squares(6, 2, 20), self::squares(5, 2, 21)] {
            assert!(load(kind, &bytes, other).is_some());
        }
        for none in [self::squares(5, 2, 0), self::squares(usize::MAX, 2, 20)] {
            let error = load(kind, &bytes, none).unwrap();
            assert!(matches!(error, EngineError::Layout { .. }), "{error}");
        }
    }
}
