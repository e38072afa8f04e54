//! Plans that are kept as bytes are the same when they are read again.

mod common;

use common::networks::{deep, network, options, plan as planned};
use pronghorn_plan::{Built, Engine, KeptError, TrustLevel};

fn cases() -> Vec<Built> {
    let shared = [Engine::Batch, Engine::Coefficient, Engine::Slot].map(|engine| {
        let mut options = options(TrustLevel::TwoParty);
        options.engine = Some(engine);
        planned(&network(1), options)
    });
    let aided = planned(&network(2), options(TrustLevel::ClientAided));
    let encrypted = planned(&deep(2), options(TrustLevel::Encrypted));
    shared.into_iter().chain([aided, encrypted]).collect()
}

#[test]
fn kept_plans_are_the_same() {
    for built in cases() {
        let read = Built::from_bytes(&built.to_bytes()).expect("it was kept");
        assert_eq!(read.plan, built.plan);
        assert_eq!(read.names, built.names);
        assert_eq!(read.fidelity, built.fidelity);
        assert_eq!(read.text(true), built.text(true));
        assert_eq!(read.multiply_adds(), built.multiply_adds());
        let values: Vec<f32> = (0..2 * built.plan.input_len())
            .map(|index| (index % 7) as f32 / 7.0)
            .collect();
        let (integers, _) = built.plan.quantise(&values).expect("they are finite");
        let run = |built: &Built| built.oracle(&integers, 2).expect("they are in range");
        assert_eq!(run(&read), run(&built));
        // The weights themselves.
        assert_eq!(read.to_bytes(), built.to_bytes());
    }
}

#[test]
fn damage_is_found() {
    let bytes = planned(&network(1), options(TrustLevel::TwoParty)).to_bytes();
    let found = |bytes: &[u8]| Built::from_bytes(bytes).err().expect("it is refused");
    for cut in [0, 7, 9, 41] {
        assert!(matches!(found(&bytes[..cut]), KeptError::Format), "{cut}");
    }
    assert!(matches!(
        found(&bytes[..bytes.len() - 1]),
        KeptError::Damaged
    ));
    for place in [0, 8, 10, 42, bytes.len() / 2, bytes.len() - 1] {
        let mut other = bytes.clone();
        other[place] ^= 1;
        match found(&other) {
            KeptError::Format => assert!(place < 10, "{place}"),
            KeptError::Damaged => assert!(place >= 10, "{place}"),
            KeptError::Plan(error) => panic!("{error}"),
        }
    }
}
