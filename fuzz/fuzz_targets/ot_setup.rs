//! Set-ups of oblivious transfer: both messages of either base OT, those that connect, and stored
//! bytes.
#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::{
    arbitrary::{self, Arbitrary},
    fuzz_target,
};
use pronghorn_fuzz::{Patch, Splice, edited, patched};
use pronghorn_mpc::{
    machine::{Machine, Want},
    ot::{BaseOt, OtError, OtParameters, ReceiverSetup, SenderSetup, SetupReceiver, SetupSender},
};
use pronghorn_ring::random::Seed;

const WIDTH: u8 = 5;

struct Good {
    /// The messages of both parties.
    messages: [Vec<u8>; 2],
    sender: Vec<u8>,
    receiver: Vec<u8>,
    /// A message that connects.
    greeting: Vec<u8>,
}

fn machines(base: BaseOt) -> (SetupSender, SetupReceiver) {
    let parameters = OtParameters::new(base, WIDTH).expect("a width");
    let seed = |byte| Seed::from_bytes([byte; 32]);
    (
        SetupSender::new(parameters, [7; 32], &seed(1)),
        SetupReceiver::new(parameters, [7; 32], &seed(2)),
    )
}

fn good(base: BaseOt) -> Good {
    let (mut sender, mut receiver) = machines(base);
    let mut messages = [Vec::new(), Vec::new()];
    sender.send(&mut messages[0]).expect("it starts");
    receiver.receive(&messages[0]).expect("it is honest");
    receiver.send(&mut messages[1]).expect("it has an answer");
    sender.receive(&messages[1]).expect("it is honest");
    let sender = sender.into_setup().expect("it is done");
    let receiver = receiver.into_setup().expect("it is done");
    let mut greeting = Vec::new();
    let mut connecting = sender.connect().expect("there is randomness");
    connecting.send(&mut greeting).expect("it starts");
    Good {
        messages,
        sender: sender.to_bytes().to_vec(),
        receiver: receiver.to_bytes().to_vec(),
        greeting,
    }
}

static ML_KEM: LazyLock<Good> = LazyLock::new(|| good(BaseOt::MlKem));
static RISTRETTO: LazyLock<Good> = LazyLock::new(|| good(BaseOt::Ristretto));

#[derive(Arbitrary, Debug)]
enum Kind {
    ToReceiver,
    ToSender,
    StoredSender,
    StoredReceiver,
    ConnectsSender,
    ConnectsReceiver,
}

#[derive(Arbitrary, Debug)]
struct Input {
    kind: Kind,
    /// ML-KEM one time in 8: it is slow.
    base: u8,
    patches: Vec<Patch>,
    splices: Vec<Splice>,
}

fuzz_target!(|input: Input| {
    let (base, good) = match input.base % 8 {
        0 => (BaseOt::MlKem, &*ML_KEM),
        _ => (BaseOt::Ristretto, &*RISTRETTO),
    };
    let of = |bytes: &Vec<u8>| edited(patched(bytes.clone(), &input.patches), &input.splices);
    let (mut sender, mut receiver) = machines(base);
    match input.kind {
        Kind::ToReceiver => {
            if receiver.receive(&of(&good.messages[0])).is_ok() {
                let mut answer = Vec::new();
                receiver.send(&mut answer).expect("it has an answer");
                assert_eq!(answer.len(), good.messages[1].len());
                receiver.into_setup().expect("it is done");
            } else {
                assert!(receiver.want() == Want::Done && receiver.into_setup().is_err());
            }
        }
        Kind::ToSender => {
            sender.send(&mut Vec::new()).expect("it starts");
            if sender.receive(&of(&good.messages[1])).is_ok() {
                assert!(sender.into_setup().expect("it is done").delta().lsb());
            } else {
                assert!(sender.want() == Want::Done && sender.into_setup().is_err());
            }
        }
        Kind::StoredSender => {
            let bytes = of(&good.sender);
            if let Ok(found) = SenderSetup::from_bytes(&bytes) {
                assert_eq!(*found.to_bytes(), bytes);
                connects(&mut found.connect().expect("there is randomness"));
            }
        }
        Kind::StoredReceiver => {
            let bytes = of(&good.receiver);
            if let Ok(found) = ReceiverSetup::from_bytes(&bytes) {
                assert_eq!(*found.to_bytes(), bytes);
            }
        }
        Kind::ConnectsSender => {
            let setup = SenderSetup::from_bytes(&good.sender).expect("it is whole");
            let mut machine = setup.connect().expect("there is randomness");
            connects(&mut machine);
            let result = machine.receive(&of(&good.greeting));
            assert_eq!(result.is_ok(), machine.into_sender().is_ok());
        }
        Kind::ConnectsReceiver => {
            let setup = ReceiverSetup::from_bytes(&good.receiver).expect("it is whole");
            let mut machine = setup.connect().expect("there is randomness");
            if machine.receive(&of(&good.greeting)).is_ok() {
                connects(&mut machine);
            }
            assert_eq!(
                machine.want() == Want::Done,
                machine.into_receiver().is_ok()
            );
        }
    }
});

fn connects(machine: &mut impl Machine<Error = OtError>) {
    let mut greeting = Vec::new();
    machine.send(&mut greeting).expect("it is its turn");
    assert_eq!(greeting.len(), 64);
}
