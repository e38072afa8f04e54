//! Squares.

use proptest::prelude::*;

use super::*;
use crate::garbled::{SquareClient, SquareServer, Squares};

pub fn layout(elements: usize, images: usize, bits: u32) -> Squares {
    Squares {
        step: "square".to_owned(),
        elements,
        images,
        bits,
    }
}

fn both(
    squares: &Squares,
    [client, server]: [Share; 2],
    (client_ots, server_ots): &(ClientOts, ServerOts),
    limits: &Limits,
) -> Result<([Share; 2], Traffic), EngineError> {
    step(
        SquareClient::with_limits(squares.clone(), client, client_ots.clone(), limits)?,
        SquareServer::with_limits(squares.clone(), server, server_ots.clone(), limits)?,
    )
}

fn check(elements: usize, images: usize, bits: u32, limits: &Limits) {
    let random = &mut Random((elements * images) as u64);
    let (low, high) = (-1 << (bits - 1), (1 << (bits - 1)) - 1);
    let values = random.values(elements * images, low, high);
    let shares = random.shares(&values, images, bits);
    let squares = layout(elements, images, bits);
    let ([client, server], _) = both(&squares, shares, &connection(), limits).unwrap();
    let expected = ideal::squares(&values, bits);
    assert_eq!(opened(&client, &server, bits), expected);
}

#[test]
fn squares_of_every_width() {
    for bits in 1..=32 {
        check(7, 3, bits, &Limits::DEFAULT);
    }
}

#[test]
fn squares_over_chunks_and_windows() {
    for (elements, images) in [(1, 1), (1, 37), (100, 37), (0, 1)] {
        check(elements, images, 20, &SMALL);
    }
    for labels in [1, 1 << 10, 1 << 14] {
        let limits = Limits { labels, ..SMALL };
        check(100, 1, 20, &limits);
    }
}

#[test]
fn zero_shares() {
    let (squares, ots) = (layout(3, 1, 12), connection());
    let mut words = Batch::zeros(3, 1);
    words.words_mut().copy_from_slice(&[-9, 0, 40]);
    for shares in [
        [Share::Words(words.clone()), Share::Zero],
        [Share::Zero, Share::Words(words)],
    ] {
        let ([client, server], _) = both(&squares, shares, &ots, &SMALL).unwrap();
        assert_eq!(opened(&client, &server, 12), [81, 0, 1600]);
    }
}

/// Bytes of the documentation.
#[test]
fn a_square_has_its_bytes() {
    let shares = [Share::Zero, Share::Zero];
    let squares = layout(2048, 1, 20);
    let (_, traffic) = both(&squares, shares, &connection(), &Limits::DEFAULT).unwrap();
    assert_eq!(traffic.turns, 1);
    let (up, down) = (traffic.up as f64 / 2048.0, traffic.down as f64 / 2048.0);
    assert!((62.0..66.0).contains(&up), "{up}");
    assert!((23.75..23.76).contains(&down), "{down}");
}

#[test]
fn hostile_peers() {
    let squares = layout(20, 3, 16);
    let ots = connection();
    let machines = || {
        (
            SquareClient::new(squares.clone(), Share::Zero, ots.0.clone()).unwrap(),
            SquareServer::new(squares.clone(), Share::Zero, ots.1.clone()).unwrap(),
        )
    };
    let (mut client, mut server) = machines();
    let mut message = Vec::new();
    assert!(server.send(&mut message).is_err());
    assert!(client.receive(&message).is_err());
    client.send(&mut message).unwrap();
    for length in [0, 1, message.len() - 1] {
        assert!(matches!(
            server.receive(&message[..length]),
            Err(EngineError::Ot { .. })
        ));
    }
    server.receive(&message).unwrap();
    let mut answer = Vec::new();
    server.send(&mut answer).unwrap();
    for length in [0, 1, answer.len() - 1] {
        assert!(matches!(
            client.receive(&answer[..length]),
            Err(EngineError::Length { .. })
        ));
    }
    // Garbage is wrong values for the one who gets it, nothing else.
    answer.fill(0xa5);
    client.receive(&answer).unwrap();

    let (mut client, mut server) = machines();
    message.clear();
    client.send(&mut message).unwrap();
    message[200] ^= 1;
    assert!(matches!(
        server.receive(&message),
        Err(EngineError::Ot { .. })
    ));
    assert!(!ots.1.is_ready(), "the OTs are destroyed");
}

#[test]
fn shapes_are_checked() {
    let ots = connection();
    for (squares, share) in [
        (layout(3, 1, 0), Share::Zero),
        (layout(3, 1, 33), Share::Zero),
        (layout(3, 0, 8), Share::Zero),
        (layout(usize::MAX, 9, 8), Share::Zero),
        (layout(3, 1, 8), Share::Words(Batch::zeros(2, 1))),
    ] {
        let refused = SquareClient::new(squares.clone(), share.clone(), ots.0.clone());
        assert!(matches!(refused.err(), Some(EngineError::Layout { .. })));
        let refused = SquareServer::new(squares, share, ots.1.clone());
        assert!(matches!(refused.err(), Some(EngineError::Layout { .. })));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    #[test]
    fn any_squares(elements in 1usize..60, images in 1usize..40, bits in 1u32..=32) {
        check(elements, images, bits, &SMALL);
    }
}
