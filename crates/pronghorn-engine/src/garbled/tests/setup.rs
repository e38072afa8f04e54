//! Set-ups.

use super::*;
use crate::garbled::{GarbledClient, GarbledServer};

fn parameters(base: BaseOt) -> OtParameters {
    OtParameters::new(base, 4).unwrap()
}

fn machines(
    base: BaseOt,
) -> (
    Exchange<SetupClient>,
    Exchange<SetupServer>,
    ReceiverOts,
    SenderOts,
) {
    let (client, server) = (ReceiverOts::default(), SenderOts::default());
    (
        SetupClient::new(parameters(base), client.clone()),
        SetupServer::new(parameters(base), server.clone()),
        client,
        server,
    )
}

/// A step runs on these OTs.
fn usable(client: &ReceiverOts, server: &SenderOts) {
    let layout = Function::RELU.layout(&single(5), 5, 1);
    let shares = Random(1).shares(&[3, -3, 0, 7, -9], 1, 20);
    let [client_share, server_share] = shares;
    let ([client, server], _) = step(
        GarbledClient::new(layout.clone(), client_share, client.clone()).unwrap(),
        GarbledServer::new(layout, server_share, server.clone()).unwrap(),
    )
    .unwrap();
    assert_eq!(opened(&client, &server, 20), [3, 0, 0, 7, 0]);
}

#[test]
fn sets_up_and_resumes() {
    for base in [BaseOt::MlKem, BaseOt::Ristretto] {
        let (mut client, mut server, client_ots, server_ots) = machines(base);
        assert!(!client_ots.is_ready() && client_ots.setup().is_none());
        let traffic = run(&mut client, &mut server).unwrap();
        assert_eq!(traffic.messages, 5);
        usable(&client_ots, &server_ots);

        let setups = (client_ots.setup().unwrap(), server_ots.setup().unwrap());
        let (client_ots, server_ots) = (ReceiverOts::default(), SenderOts::default());
        let mut client = SetupClient::resume(setups.0, client_ots.clone());
        let mut server = SetupServer::resume(setups.1, server_ots.clone());
        let traffic = run(&mut client, &mut server).unwrap();
        assert_eq!((traffic.up, traffic.down), (64, 64));
        usable(&client_ots, &server_ots);
    }
}

#[test]
fn another_set_up_cannot_be_resumed() {
    let mut stored = Vec::new();
    for _ in 0..2 {
        let (mut client, mut server, client_ots, server_ots) = machines(BaseOt::Ristretto);
        run(&mut client, &mut server).unwrap();
        stored.push((client_ots.setup().unwrap(), server_ots.setup().unwrap()));
    }
    let (client_ots, server_ots) = (ReceiverOts::default(), SenderOts::default());
    let mut client = SetupClient::resume(stored[0].0.clone(), client_ots.clone());
    let mut server = SetupServer::resume(stored[1].1.clone(), server_ots);
    let error = run(&mut client, &mut server).unwrap_err();
    assert!(error.to_string().contains("another set-up"), "{error}");
    assert!(!client_ots.is_ready());
}

#[test]
fn parameters_must_agree() {
    let (mut client, ..) = machines(BaseOt::Ristretto);
    let other = OtParameters::new(BaseOt::Ristretto, 3).unwrap();
    let mut server = SetupServer::new(other, SenderOts::default());
    let error = run(&mut client, &mut server).unwrap_err();
    assert!(error.to_string().contains("width"), "{error}");
}

#[test]
fn a_step_without_a_set_up_is_refused() {
    let layout = Function::RELU.layout(&single(5), 5, 1);
    let mut client =
        GarbledClient::new(layout.clone(), Share::Zero, ReceiverOts::default()).unwrap();
    let mut server = GarbledServer::new(layout, Share::Zero, SenderOts::default()).unwrap();
    assert_eq!(server.max_incoming(), 0);
    for error in [
        client.send(&mut Vec::new()).unwrap_err(),
        server.receive(&[]).unwrap_err(),
    ] {
        assert!(error.to_string().contains("set them up"), "{error}");
    }
}

/// Every message, too short, too long, or garbage, ends the machine that gets it with an error of
/// that step.
#[test]
fn hostile_messages() {
    for spoilt in 0..5 {
        for way in 0..3 {
            let (mut client, mut server, client_ots, server_ots) = machines(BaseOt::Ristretto);
            let mut message = Vec::new();
            let mut failed = None;
            for index in 0..=spoilt {
                let up = index % 2 == 0 && index < 4;
                let up = up || index == 4;
                let (from, to): (
                    &mut dyn Machine<Error = EngineError>,
                    &mut dyn Machine<Error = EngineError>,
                ) = match up {
                    true => (&mut client, &mut server),
                    false => (&mut server, &mut client),
                };
                let early = to.send(&mut Vec::new());
                assert!(matches!(early, Err(EngineError::OutOfTurn { .. })));
                assert!(from.receive(&[0; 64]).is_err());
                message.clear();
                from.send(&mut message).unwrap();
                if index == spoilt {
                    match way {
                        0 => message.truncate(message.len() - 1),
                        1 => message.push(0),
                        _ => message.fill(0xff),
                    }
                }
                failed = to.receive(&message).err();
            }
            match failed {
                Some(error) => {
                    let text = error.to_string();
                    assert!(text.contains("oblivious transfers"), "{text}");
                    let (client, server) = (&client_ots, &server_ots);
                    assert!(!client.is_ready() || !server.is_ready());
                }
                // A nonce of ones is a nonce.
                None => assert!(spoilt == 0 && way == 2),
            }
        }
    }
}
