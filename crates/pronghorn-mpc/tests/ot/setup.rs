//! Set-ups: making, storing, connecting again and again.

use std::collections::HashSet;

use pronghorn_mpc::Block;
use pronghorn_mpc::machine::{Machine, Want};
use pronghorn_mpc::ot::{
    BaseOt, CotReceiver, CotSender, OtError, OtParameters, ReceiverSetup, SenderSetup,
    SetupReceiver, SetupSender,
};
use pronghorn_ring::random::Seed;
use zeroize::ZeroizeOnDrop;

use super::{connect, exchange, parameters, random_bytes, set_up};

const SESSION: [u8; 32] = [7; 32];

fn machines(parameters: OtParameters) -> (SetupSender, SetupReceiver) {
    (
        SetupSender::new(parameters, SESSION, &Seed::from_bytes([1; 32])),
        SetupReceiver::new(parameters, SESSION, &Seed::from_bytes([2; 32])),
    )
}

/// Makes some OTs and checks them; the sender's blocks.
fn some_ots(sender: &mut CotSender, receiver: &mut CotReceiver) -> Vec<[u8; 16]> {
    let (mut q, mut t) = ([Block::ZERO; 20], [Block::ZERO; 20]);
    let (choices, mut message) = ([0x3c, 0xa5, 0x0f], Vec::new());
    receiver.extend(&choices, &mut t, &mut message).unwrap();
    sender.extend(&message, &mut q).unwrap();
    let delta = sender.delta();
    for j in 0..20 {
        let choice = choices[j / 8] >> (j % 8) & 1 == 1;
        assert!(q[j] == t[j] ^ delta.masked(choice));
    }
    q.map(Block::to_bytes).to_vec()
}

#[test]
fn every_base_and_width_makes_ots() {
    for base in [BaseOt::MlKem, BaseOt::Ristretto] {
        for width in [1, 3, 8] {
            let parameters = OtParameters::new(base, width).unwrap();
            let (mut sender, mut receiver) = machines(parameters);
            assert_eq!(
                (sender.want(), receiver.want()),
                (Want::Send, Want::Receive)
            );
            exchange(&mut sender, &mut receiver);
            assert_eq!((sender.want(), receiver.want()), (Want::Done, Want::Done));
            let (sender, receiver) = (sender.into_setup().unwrap(), receiver.into_setup().unwrap());
            assert!(sender.delta().lsb());
            let (mut sender, mut receiver) = connect(&sender, &receiver);
            some_ots(&mut sender, &mut receiver);
        }
    }
}

#[test]
fn widths_are_bounded() {
    for width in [0, 9, 255] {
        let result = OtParameters::new(BaseOt::MlKem, width);
        assert!(matches!(result, Err(OtError::Range { .. })));
    }
    assert_eq!(OtParameters::default().base(), BaseOt::MlKem);
}

#[test]
fn connections_never_repeat_an_ot() {
    let (sender, receiver) = set_up(parameters(4));
    let stored = (sender.to_bytes(), receiver.to_bytes());
    let mut seen = HashSet::new();
    for _ in 0..5 {
        // As after a crash: every time from the same stored bytes.
        let sender = SenderSetup::from_bytes(&stored.0).unwrap();
        let receiver = ReceiverSetup::from_bytes(&stored.1).unwrap();
        let (mut sender, mut receiver) = connect(&sender, &receiver);
        for _ in 0..3 {
            let before = sender.made();
            for q in some_ots(&mut sender, &mut receiver) {
                assert!(seen.insert(q));
            }
            assert_eq!((sender.made(), receiver.made()), (before + 20, before + 20));
        }
    }
}

#[test]
fn a_peer_that_replays_its_nonce_gets_no_old_ots() {
    let (sender, receiver) = set_up(parameters(2));
    let mut old = receiver.connect().unwrap();
    let mut greeting = Vec::new();
    sender.connect().unwrap().send(&mut greeting).unwrap();
    old.receive(&greeting).unwrap();
    let mut replayed = Vec::new();
    old.send(&mut replayed).unwrap();

    let count = 64;
    let connection = || {
        let mut machine = sender.connect().unwrap();
        machine.send(&mut Vec::new()).unwrap();
        machine.receive(&replayed).unwrap();
        machine.into_sender().unwrap()
    };
    // Messages for one connection fail the check of another.
    let mut message = Vec::new();
    let mut receiver = old.into_receiver().unwrap();
    let mut blocks = vec![Block::ZERO; count];
    receiver.extend(&[0; 8], &mut blocks, &mut message).unwrap();
    let result = connection().extend(&message, &mut blocks);
    assert!(matches!(result, Err(OtError::Inconsistent)));
}

/// Else a receiver would guess at a bit of delta with each connection, and have it after some 250.
#[test]
fn a_failed_check_ends_every_connection_of_the_set_up() {
    let (sender, receiver) = set_up(parameters(4));
    let (mut cheated, mut cheat) = connect(&sender, &receiver);
    let (mut other, mut honest) = connect(&sender, &receiver);
    let mut late = sender.connect().unwrap();
    late.send(&mut Vec::new()).unwrap();
    let mut greeting = Vec::new();
    let mut answering = receiver.connect().unwrap();
    let mut first = Vec::new();
    sender.connect().unwrap().send(&mut first).unwrap();
    answering.receive(&first).unwrap();
    answering.send(&mut greeting).unwrap();
    some_ots(&mut other, &mut honest);

    let (mut blocks, mut message) = ([Block::ZERO; 8], Vec::new());
    cheat.extend(&[0], &mut blocks, &mut message).unwrap();
    message[8] ^= 1;
    let result = cheated.extend(&message, &mut blocks);
    assert!(matches!(result, Err(OtError::Inconsistent)));
    assert!(cheated.delta() == Block::ZERO);

    message.clear();
    honest.extend(&[0], &mut blocks, &mut message).unwrap();
    let result = other.extend(&message, &mut blocks);
    assert!(matches!(result, Err(OtError::Burnt)));
    assert!(matches!(late.receive(&greeting), Err(OtError::Burnt)));
    assert!(matches!(sender.connect().map(|_| ()), Err(OtError::Burnt)));
    assert!(matches!(sender.check_usable(), Err(OtError::Burnt)));
    let stored = SenderSetup::from_bytes(&sender.to_bytes()).map(|_| ());
    assert!(matches!(stored, Err(OtError::Stored { .. })));
}

#[test]
fn set_ups_of_others_are_noticed() {
    let (sender, _) = set_up(parameters(4));
    let (mut other, mut answering) = (
        SetupSender::new(parameters(4), SESSION, &Seed::from_bytes([3; 32])),
        SetupReceiver::new(parameters(4), SESSION, &Seed::from_bytes([4; 32])),
    );
    exchange(&mut other, &mut answering);
    let receiver = answering.into_setup().unwrap();
    let (mut sender, mut receiver) = (sender.connect().unwrap(), receiver.connect().unwrap());
    let mut message = Vec::new();
    sender.send(&mut message).unwrap();
    let result = receiver.receive(&message);
    assert!(matches!(result, Err(OtError::OtherSetup)));
    for wrong in [&message[1..], &[&message[..], &[1]].concat(), &[]] {
        let result = sender.receive(wrong);
        assert!(matches!(result, Err(OtError::Length { .. })));
    }
}

#[test]
fn stored_bytes_come_back_and_damaged_ones_do_not() {
    for width in 1..=8 {
        let (sender, receiver) = set_up(parameters(width));
        let (sender, receiver) = (sender.to_bytes(), receiver.to_bytes());
        let again = SenderSetup::from_bytes(&sender).unwrap().to_bytes();
        assert!(*again == *sender && sender.len() == SenderSetup::BYTES);
        let again = ReceiverSetup::from_bytes(&receiver).unwrap().to_bytes();
        assert!(*again == *receiver);

        let damaged = |bytes: &[u8], at: usize, value: u8| {
            let mut bytes = bytes.to_vec();
            bytes[at] = value;
            bytes
        };
        for (at, value) in [(0, 0), (0, 2), (1, 0), (1, 9)] {
            let sender = SenderSetup::from_bytes(&damaged(&sender, at, value));
            assert!(matches!(sender, Err(OtError::Stored { .. })));
            let receiver = ReceiverSetup::from_bytes(&damaged(&receiver, at, value));
            assert!(matches!(receiver, Err(OtError::Stored { .. })));
        }
        let even = SenderSetup::from_bytes(&damaged(&sender, 34, sender[34] & 0xfe));
        assert!(matches!(even, Err(OtError::Stored { field: "delta" })));
        for length in [0, 1, 2, 33, 50, receiver.len() - 1] {
            let sender = SenderSetup::from_bytes(&sender[..length]);
            assert!(matches!(sender, Err(OtError::Stored { .. })));
            let receiver = ReceiverSetup::from_bytes(&receiver[..length]);
            assert!(matches!(receiver, Err(OtError::Stored { .. })));
        }
    }
}

#[test]
fn messages_out_of_turn_are_refused() {
    let out_of_turn = |result: Result<(), OtError>| {
        assert!(matches!(result, Err(OtError::OutOfTurn { .. })));
    };
    let (mut sender, mut receiver) = machines(parameters(4));
    assert_eq!((sender.max_incoming(), receiver.max_incoming()), (0, 8195));
    out_of_turn(sender.receive(&[0; 100]));
    out_of_turn(receiver.send(&mut Vec::new()));
    let mut first = Vec::new();
    sender.send(&mut first).unwrap();
    out_of_turn(sender.send(&mut Vec::new()));
    receiver.receive(&first).unwrap();
    out_of_turn(receiver.receive(&first));
    let mut answer = Vec::new();
    receiver.send(&mut answer).unwrap();
    out_of_turn(receiver.send(&mut Vec::new()));
    sender.receive(&answer).unwrap();
    out_of_turn(sender.receive(&answer));

    let (sender, receiver) = (sender.into_setup().unwrap(), receiver.into_setup().unwrap());
    let (mut sender, mut receiver) = (sender.connect().unwrap(), receiver.connect().unwrap());
    out_of_turn(sender.receive(&[0; 64]));
    out_of_turn(receiver.send(&mut Vec::new()));
    exchange(&mut sender, &mut receiver);
    out_of_turn(sender.send(&mut Vec::new()));
    out_of_turn(receiver.receive(&[0; 64]));
    assert_eq!((sender.max_incoming(), receiver.max_incoming()), (0, 0));

    let (sender, receiver) = machines(parameters(4));
    assert!(sender.into_setup().is_err() && receiver.into_setup().is_err());
}

#[test]
fn different_parameters_are_refused() {
    let start = |parameters| {
        let mut message = Vec::new();
        machines(parameters).0.send(&mut message).unwrap();
        message
    };
    let result = machines(parameters(3)).1.receive(&start(parameters(4)));
    let field = "the width of OT extension";
    assert!(matches!(
        result,
        Err(OtError::Parameters { field: found, found: 4, expected: 3 }) if found == field
    ));
    let mut message = start(parameters(4));
    message[0] = 99;
    let mut receiver = machines(parameters(4)).1;
    let result = receiver.receive(&message);
    assert!(matches!(result, Err(OtError::Parameters { found: 99, .. })));
    // It is of no further use.
    assert_eq!(receiver.want(), Want::Done);
    assert!(receiver.into_setup().is_err());
    let ml_kem = start(OtParameters::default());
    let result = machines(parameters(4)).1.receive(&ml_kem);
    assert!(matches!(result, Err(OtError::Length { .. })));
}

#[test]
fn garbage_never_panics() {
    for base in [BaseOt::MlKem, BaseOt::Ristretto] {
        let parameters = OtParameters::new(base, 4).unwrap();
        let (mut sender, mut receiver) = machines(parameters);
        let mut message = Vec::new();
        sender.send(&mut message).unwrap();
        let mut garbage = random_bytes(3, message.len());
        garbage[..3].copy_from_slice(&message[..3]);
        assert!(receiver.receive(&garbage).is_err());

        let garbage = random_bytes(4, sender.max_incoming());
        // For ML-KEM every byte string is a ciphertext: a set-up that fails the first check.
        assert_eq!(sender.receive(&garbage).is_ok(), base == BaseOt::MlKem);
    }
}

/// Has `some` only where `T` has no `Debug`; ambiguous where it has.
trait NoDebug<Marker> {
    fn some() {}
}
impl<T> NoDebug<()> for T {}
struct HasDebug;
impl<T: std::fmt::Debug> NoDebug<HasDebug> for T {}

#[test]
fn secrets_are_wiped_on_drop_and_never_printed() {
    fn wiped<T: ZeroizeOnDrop + NoDebug<()>>() {}
    wiped::<SenderSetup>();
    wiped::<ReceiverSetup>();
    wiped::<CotSender>();
    wiped::<CotReceiver>();
    <Block as NoDebug<_>>::some();
    <SenderSetup as NoDebug<_>>::some();
    <ReceiverSetup as NoDebug<_>>::some();
    <CotSender as NoDebug<_>>::some();
    <CotReceiver as NoDebug<_>>::some();
    <SetupSender as NoDebug<_>>::some();
    <SetupReceiver as NoDebug<_>>::some();
}
