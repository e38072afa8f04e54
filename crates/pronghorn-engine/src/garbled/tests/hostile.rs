//! A peer that sends anything ends its own step, with an error, or has wrong values.

use super::*;
use crate::garbled::{GarbledClient, GarbledServer};

struct Parties {
    client: Exchange<GarbledClient>,
    server: Exchange<GarbledServer>,
    ots: (ReceiverOts, SenderOts),
}

fn parties() -> Parties {
    let ots = connection();
    let layout = Arc::new(Function::RELU.layout(&single(100), 100, 3));
    let (client, server) = (Share::Zero, Share::Zero);
    Parties {
        client: GarbledClient::with_limits(layout.clone(), client, ots.0.clone(), &SMALL).unwrap(),
        server: GarbledServer::with_limits(layout, server, ots.1.clone(), &SMALL).unwrap(),
        ots,
    }
}

fn sent(machine: &mut dyn Machine<Error = EngineError>) -> Vec<u8> {
    let mut message = Vec::new();
    machine.send(&mut message).unwrap();
    message
}

#[test]
fn messages_out_of_turn() {
    let Parties {
        mut client,
        mut server,
        ..
    } = parties();
    assert!(matches!(
        client.receive(&[0; 10]),
        Err(EngineError::OutOfTurn { .. })
    ));
    let early = server.send(&mut Vec::new());
    assert!(matches!(early, Err(EngineError::OutOfTurn { .. })));
    while client.want() == Want::Send {
        server.receive(&sent(&mut client)).unwrap();
    }
    assert!(matches!(
        server.receive(&[0; 10]),
        Err(EngineError::OutOfTurn { .. })
    ));
    let early = client.send(&mut Vec::new());
    assert!(matches!(early, Err(EngineError::OutOfTurn { .. })));
}

#[test]
fn transfers_of_a_wrong_length_change_nothing() {
    let Parties {
        mut client,
        mut server,
        ots,
    } = parties();
    let message = sent(&mut client);
    for length in [0, 1, 8, message.len() - 1] {
        let error = server.receive(&message[..length]).unwrap_err();
        assert!(matches!(error, EngineError::Ot { .. }), "{error}");
        assert!(error.to_string().contains("step activation"), "{error}");
    }
    let longer = [&message[..], &[0]].concat();
    assert!(server.receive(&longer).is_err());
    assert!(ots.1.is_ready());
    server.receive(&message).unwrap();
    // The next one again in place of the one after it.
    assert!(server.receive(&message).is_err());
}

#[test]
fn false_transfers_destroy_the_set_up() {
    for (at, mask) in [(8, 1), (1000, 0x80), (3000, 0xff)] {
        let Parties {
            mut client,
            mut server,
            ots,
        } = parties();
        let setup = ots.1.setup().unwrap();
        let mut message = sent(&mut client);
        message[at] ^= mask;
        let error = server.receive(&message).unwrap_err();
        assert!(error.to_string().contains("consistency"), "{error}");
        assert!(!ots.1.is_ready() && ots.1.setup().is_none());
        // Nor can another connection be made of it.
        let mut again = SetupServer::resume(setup, ots.1.clone());
        assert!(again.send(&mut Vec::new()).is_err());
        assert!(server.receive(&message).is_err());
        let again = GarbledServer::new(
            Function::RELU.layout(&single(1), 1, 1),
            Share::Zero,
            ots.1.clone(),
        );
        assert!(again.unwrap().receive(&message).is_err());
    }
}

#[test]
fn false_tables_are_errors_or_wrong_values() {
    let Parties {
        mut client,
        mut server,
        ..
    } = parties();
    while client.want() == Want::Send {
        server.receive(&sent(&mut client)).unwrap();
    }
    let tables = sent(&mut server);
    for length in [0, 1, 15, tables.len() - 1] {
        let error = client.receive(&tables[..length]).unwrap_err();
        assert!(matches!(error, EngineError::Length { .. }), "{error}");
    }
    let longer = [&tables[..], &[0]].concat();
    assert!(client.receive(&longer).is_err());
    client.receive(&vec![0x5a; tables.len()]).unwrap();
    let (mut client, mut server): (
        Box<dyn Machine<Error = EngineError>>,
        Box<dyn Machine<Error = EngineError>>,
    ) = (Box::new(client), Box::new(server));
    run(&mut *client, &mut *server).unwrap();
}
