//! Batches that go through their layers in bands of rows give what whole ones give: the oracle's
//! results, bit for bit, in as many bytes.

mod common;

use common::{
    check, exchange_with,
    networks::{Middle, aided, around, in_bands, options, plan},
    numbers,
};
use pronghorn_engine::{ClientRun, EngineError, ServerModel, ServerRun};
use pronghorn_plan::{TrustLevel, bands, cost};

/// In words of 32 bits, in two digits and more, and in words of 64 bits; one row a band, and several.
#[test]
fn all_steps_equal_the_oracle() {
    for bits in [None, Some((11, 9)), Some((10, 14)), Some((11, 16))] {
        for (batch, band_bytes) in [(1, 1 << 10), (3, 3 << 10), (100, 100 << 10)] {
            let built = in_bands(aided(4, bits), band_bytes);
            let bands = bands::bands(&built.plan, batch).expect("the plan goes by bands");
            assert!(bands.len() > built.plan.steps.len());
            check(&built, &numbers(162 * batch, batch as u64), batch);
        }
    }
    // Several blocks and a part.
    let built = in_bands(aided(4, None), 1 << 20);
    assert!(bands::bands(&built.plan, 5000).is_some());
    check(&built, &numbers(162 * 5000, 9), 5000);
}

/// Steps that go by rows beside others that do not.
#[test]
fn every_middle_equals_the_oracle() {
    use Middle::*;
    let middles = [
        Square,
        Relu,
        LeakyRelu,
        Silu,
        MaxPool,
        PaddedMaxPool,
        AveragePool,
        Residual,
        Concat,
        Gate,
        Takes,
    ];
    for middle in middles {
        let built = in_bands(
            plan(&around(middle), options(TrustLevel::ClientAided)),
            1 << 10,
        );
        let bands = bands::bands(&built.plan, 50).expect("the plan goes by bands");
        assert!(bands.len() > built.plan.steps.len(), "{}", bands.len());
        check(&built, &numbers(32 * 50, 3), 50);
    }
}

/// Bands change neither bytes nor the oracle's values; a row is sent once.
#[test]
fn bytes_are_those_of_the_plan() {
    let built = in_bands(aided(4, None), 1 << 10);
    let (batch, model) = (3, ServerModel::new(&built).expect("weights fit the plan"));
    let inputs = numbers(162 * batch, 5);
    let mut client = ClientRun::new(built.plan.clone(), &inputs, batch).expect("inputs fit");
    let mut server = ServerRun::new(&model, batch).expect("the batch fits");
    let mut bytes = 0;
    exchange_with(&mut client, &mut server, |_, message| {
        bytes += message.len() as u64
    })
    .expect("an honest run succeeds");
    let total = cost::total(&built.plan, batch);
    assert_eq!(bytes, total.bytes_up + total.bytes_down);
}

/// A damaged message of any band ends the run with an error or with another result, never with a
/// panic.
#[test]
fn damage_in_a_band_is_an_error_or_another_result() {
    let built = in_bands(aided(4, None), 1 << 10);
    let (batch, model) = (2, ServerModel::new(&built).expect("weights fit the plan"));
    let inputs = numbers(162 * batch, 6);
    let (mut refused, mut count) = (0, usize::MAX);
    for damaged in 0.. {
        if damaged >= count {
            break;
        }
        let mut client = ClientRun::new(built.plan.clone(), &inputs, batch).expect("inputs fit");
        let mut server = ServerRun::new(&model, batch).expect("the batch fits");
        let found = exchange_with(&mut client, &mut server, |at, message| {
            if at == damaged {
                message.iter_mut().for_each(|byte| *byte = 0xff);
            }
        });
        match found {
            Ok(messages) => count = messages,
            Err(EngineError::Word { .. } | EngineError::Packing { .. }) => refused += 1,
            Err(other) => panic!("{other}"),
        }
    }
    assert!(refused > count / 2, "{refused} of {count}");
}
