//! What the check of branches and addresses runs, by name.

use pronghorn_mpc::machine::Machine;
use pronghorn_mpc::ot::{BaseOt, OtError, OtParameters, SetupReceiver, SetupSender};
use pronghorn_ring::{
    Prime, SimdLevel,
    random::{Prg, Seed},
    sample,
};

use crate::{
    kernels::{self, Kernel, SECRET_BYTES},
    memcheck, randomness, runs,
};

/// A routine and its name.
type Routine = (&'static str, fn());

/// What must be found.
const CONTROLS: [Kernel; 2] = [
    Kernel {
        name: "control: branch",
        at: kernels::control,
    },
    Kernel {
        name: "control: address",
        at: kernels::control_address,
    },
];

/// All routines but the kernels.
const ROUTINES: [Routine; 11] = [
    ("ternary and uniform secrets", samplers),
    ("base OTs on Ristretto", ristretto),
    ("two-party: coefficients, garbled", runs::coefficients),
    ("two-party: batches, garbled", runs::batches),
    ("two-party: slots, garbled", runs::slots),
    ("two-party: the class alone", runs::class),
    ("two-party: lean, OT extension", runs::lean),
    ("two-party: lean, silent OT", runs::silent),
    ("encrypted", runs::encrypted),
    ("client-aided: batches", runs::client_aided_batches),
    (
        "client-aided: coefficients",
        runs::client_aided_coefficients,
    ),
];

/// The names, controls first.
pub fn names() -> impl Iterator<Item = &'static str> {
    let kernels = CONTROLS
        .iter()
        .chain(kernels::ALL)
        .map(|kernel| kernel.name);
    kernels.chain(ROUTINES.iter().map(|(name, _)| *name))
}

/// Runs a routine; whether there is one of the name.
pub fn run(name: &str) -> bool {
    if let Some(kernel) = CONTROLS
        .iter()
        .chain(kernels::ALL)
        .find(|kernel| kernel.name == name)
    {
        let mut run = (kernel.at)(SimdLevel::detect());
        let secret = secret_bytes();
        run(&secret);
        return true;
    }
    let found = ROUTINES.iter().find(|(known, _)| *known == name);
    found.map(|(_, routine)| routine()).is_some()
}

fn secret_bytes() -> Vec<u8> {
    let words = (0..SECRET_BYTES as u64 / 8).map(randomness::word);
    let bytes: Vec<u8> = words.flat_map(u64::to_le_bytes).collect();
    memcheck::secret(&bytes);
    bytes
}

/// The samplers that reject: the time shows which draws, and nothing of those they keep.
fn samplers() {
    let seed = *secret_bytes().first_chunk().expect("32 bytes");
    let random = Prg::new(&Seed::from_bytes(seed), "pronghorn check of constant time");
    let mut ternary = [0i8; 1000];
    sample::ternary(&mut random.stream(0), &mut ternary);
    let q = Prime::new((1 << 40) + 15).expect("it fits the word");
    let mut words = [0u64; 1000];
    sample::uniform_secret(&mut random.stream(1), &q, &mut words);
    std::hint::black_box((&ternary, &words));
}

/// A set-up of OTs with base OTs on Ristretto.
fn ristretto() {
    let seed = || Seed::from_bytes(*secret_bytes().first_chunk().expect("32 bytes"));
    let parameters = OtParameters::new(BaseOt::Ristretto, 2).expect("a width there is");
    let mut sender = SetupSender::new(parameters, [7; 32], &seed());
    let mut receiver = SetupReceiver::new(parameters, [7; 32], &seed());
    let hand_over = |from: &mut dyn Machine<Error = OtError>,
                     to: &mut dyn Machine<Error = OtError>| {
        let mut message = Vec::new();
        from.send(&mut message).expect("a message");
        memcheck::public(&message);
        to.receive(&message).expect("a sound message");
    };
    hand_over(&mut sender, &mut receiver);
    hand_over(&mut receiver, &mut sender);
}
