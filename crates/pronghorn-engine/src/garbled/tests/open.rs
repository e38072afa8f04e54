//! Opening.

use super::*;
use crate::garbled::{OpenClient, OpenServer, Opened};

pub fn result(elements: usize, images: usize, bits: u32) -> Opened {
    let largest = i32::MAX >> (32 - bits);
    Opened {
        step: "result".to_owned(),
        elements,
        images,
        bits,
        low: -largest - 1,
        high: largest,
    }
}

fn open(result: &Opened, [client, server]: [Share; 2]) -> Result<[Share; 2], EngineError> {
    let client = OpenClient::new(result.clone(), client)?;
    let server = OpenServer::new(result.clone(), server)?;
    Ok(step(client, server)?.0)
}

#[test]
fn the_client_learns_the_value() {
    let random = &mut Random(3);
    for bits in [1, 2, 13, 31, 32] {
        for (elements, images) in [(1, 1), (10, 37), (0, 3), (513, 1)] {
            let result = result(elements, images, bits);
            let (low, high) = (result.low.into(), result.high.into());
            let values = random.values(elements * images, low, high);
            let shares = random.shares(&values, images, bits);
            let [client, server] = open(&result, shares).unwrap();
            assert!(matches!(server, Share::Zero));
            assert_eq!(opened(&client, &Share::Zero, 32), values);
        }
    }
}

#[test]
fn messages_are_bounded() {
    let result = result((1 << 20) + 5, 1, 3);
    let shares = Random(1).shares(&vec![-2; (1 << 20) + 5], 1, 3);
    let [client, _] = open(&result, shares).unwrap();
    assert!(opened(&client, &Share::Zero, 32).iter().all(|&x| x == -2));
}

#[test]
fn zero_shares() {
    let result = result(4, 2, 9);
    let mut words = Batch::zeros(4, 2);
    words.words_mut().fill(-7);
    for shares in [
        [Share::Words(words.clone()), Share::Zero],
        [Share::Zero, Share::Words(words)],
    ] {
        let [client, _] = open(&result, shares).unwrap();
        assert_eq!(opened(&client, &Share::Zero, 32), [-7; 8]);
    }
}

#[test]
fn values_outside_are_refused() {
    let mut result = result(4, 2, 9);
    (result.low, result.high) = (-3, 5);
    for (value, fine) in [(-3, true), (5, true), (-4, false), (6, false), (255, false)] {
        let shares = Random(2).shares(&[0, 0, 0, 0, 0, value, 0, 0], 2, 9);
        match open(&result, shares) {
            Ok(_) => assert!(fine),
            Err(EngineError::Opened { index, .. }) => assert!(!fine && index == 5),
            Err(error) => panic!("{error}"),
        }
    }
}

#[test]
fn hostile_shares() {
    let result = result(4, 3, 9);
    for message in [vec![], vec![0; 13], vec![0; 15], vec![0xff; 14]] {
        let mut client = OpenClient::new(result.clone(), Share::Zero).unwrap();
        let error = client.receive(&message).unwrap_err();
        assert!(error.to_string().contains("the server's shares"), "{error}");
        let early = client.send(&mut Vec::new());
        assert!(matches!(early, Err(EngineError::OutOfTurn { .. })));
    }
    let mut server = OpenServer::new(result, Share::Zero).unwrap();
    let early = server.receive(&[0; 14]);
    assert!(matches!(early, Err(EngineError::OutOfTurn { .. })));
}

#[test]
fn shapes_are_checked() {
    for bits in [0, 33] {
        let refused = OpenClient::new(
            Opened {
                bits,
                ..result(4, 3, 9)
            },
            Share::Zero,
        );
        assert!(matches!(refused.err(), Some(EngineError::Layout { .. })));
    }
    let share = Share::Words(Batch::zeros(3, 4));
    let refused = OpenServer::new(result(4, 3, 9), share);
    assert!(matches!(refused.err(), Some(EngineError::Layout { .. })));
    let huge = Opened {
        elements: usize::MAX,
        ..result(4, 3, 9)
    };
    let refused = OpenServer::new(huge, Share::Zero);
    assert!(matches!(refused.err(), Some(EngineError::Layout { .. })));
}
