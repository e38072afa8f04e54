//! The secure run equals the fixed-point oracle bit for bit, and hostile messages end a run with an
//! error.

use std::sync::Arc;

use crate::common::{
    check, exchange, network,
    networks::{self, Middle, aided_coefficient, around, options, plan},
    numbers, tensors,
};
use pronghorn_engine::{ClientRun, EngineError, Machine, ServerModel, ServerRun, Want};
use pronghorn_graph::graph::Graph;
use pronghorn_plan::{
    BuildOptions, Built, CheckedPlan, Step, StepKind, TrustLevel, WordSize, build,
};
use proptest::prelude::*;

fn built(seed: u64, bits: Option<(u32, u32)>) -> Built {
    let options = BuildOptions {
        trust: Some(TrustLevel::ClientAided),
        samples: Some(numbers(162 * 20, 77)),
        weight_bits: bits.map(|bits| bits.0),
        input_bits: bits.map(|bits| bits.1),
        // Few bits make large errors, which is what these tests are about.
        error: bits.map(|_| 10.0),
        ..BuildOptions::default()
    };
    build(&network(seed), &options).expect("the test network has a plan")
}

#[test]
fn equals_the_oracle_in_32_bit_words() {
    let built = built(1, None);
    assert!(
        built
            .plan
            .linear_steps()
            .all(|(_, _, linear)| linear.word == WordSize::U32)
    );
    // One image, part of a block, a whole block, several blocks and a part.
    for batch in [1, 3, 100, 2048, 5000] {
        check(&built, &numbers(162 * batch, batch as u64), batch);
    }
}

/// Few bits and many, so that words have 32 bits and 64.
#[test]
fn equals_the_oracle_in_the_coefficient_engine() {
    for (bits, word) in [(Some((3, 3)), WordSize::U32), (None, WordSize::U64)] {
        let built = aided_coefficient(1, bits);
        assert!(networks::has_words(&built, word), "{bits:?}");
        for batch in [1, 3] {
            check(&built, &numbers(162 * batch, batch as u64), batch);
        }
    }
}

#[test]
fn equals_the_oracle_in_64_bit_words() {
    let built = built(2, Some((11, 16)));
    assert!(
        built
            .plan
            .linear_steps()
            .any(|(_, _, linear)| linear.word == WordSize::U64)
    );
    check(&built, &numbers(162 * 2100, 5), 2100);
}

/// Whether a layer's weights are cut into two digits, in words of 32 bits.
fn is_narrow_split(step: &Step) -> bool {
    matches!(
        &step.kind,
        StepKind::ClearLinear(linear) if linear.parts.len() == 2 && linear.rlwe.word == WordSize::U32
    )
}

#[test]
fn equals_the_oracle_in_two_digits() {
    let built = built(4, Some((11, 9)));
    assert!(built.plan.steps.iter().any(is_narrow_split));
    check(&built, &numbers(162 * 2100, 6), 2100);
}

/// Weights of more bits are cut into more digits.
#[test]
fn equals_the_oracle_in_more_digits() {
    let built = built(4, Some((10, 14)));
    let digits = built.plan.steps.iter().map(networks::parts);
    assert!(digits.max() > Some(2));
    check(&built, &numbers(162 * 2100, 6), 2100);
}

/// A value may be read twice by one step.
#[test]
fn a_value_with_itself_equals_the_oracle() {
    let json = r#"{"name":"twice","nodes":[
        {"name":"x","op":{"kind":"input"},"inputs":[],"shape":[3]},
        {"name":"fc","op":{"kind":"dense","weight":"w","bias":null},"inputs":[0],"shape":[4]},
        {"name":"add","op":{"kind":"add"},"inputs":[1,1],"shape":[4]},
        {"name":"cat","op":{"kind":"concat","axis":0},"inputs":[2,2,1],"shape":[12]}],"output":3}"#;
    let graph = Graph::from_json(json, tensors(&[("w", &[4, 3])], 9)).expect("a valid graph");
    let options = BuildOptions {
        trust: Some(TrustLevel::ClientAided),
        ..BuildOptions::default()
    };
    let built = build(&graph, &options).expect("it has a plan");
    check(&built, &numbers(3 * 10, 4), 10);
}

/// Parts of values, repeated ones too.
#[test]
fn taken_parts_equal_the_oracle() {
    let built = plan(&around(Middle::Takes), options(TrustLevel::ClientAided));
    check(&built, &numbers(32 * 10, 4), 10);
}

/// Parts are checked as a sum against the value's range, on which the next step's ciphertexts rely:
/// a plan whose parts reach further does not make the client encrypt what the modulus cannot carry.
#[test]
fn parts_beyond_the_value_are_noticed() {
    let built = built(4, Some((11, 9)));
    let model = Arc::new(ServerModel::new(&built).expect("weights fit the plan"));
    let mut plan = built.plan.plan().clone();
    let step = plan
        .steps
        .iter_mut()
        .find(|step| is_narrow_split(step))
        .expect("a step is in two digits");
    (step.value.low, step.value.high) = (0, 0);
    let plan = CheckedPlan::new(plan).expect("the parts alone are valid");
    let mut client = ClientRun::new(plan, &numbers(162 * 4, 1), 4).expect("inputs fit");
    let mut server = ServerRun::new(&model, 4).expect("the batch fits");
    // The server sees nothing of it.
    exchange(&mut client, &mut server).expect("the messages are as always");
    let refused = client.finish_integers().expect_err("the sums leave 0..=0");
    assert!(
        matches!(refused, EngineError::Decryption { .. }),
        "{refused}"
    );
}

/// The client multiplies its own shares.
#[test]
fn products_equal_the_oracle() {
    let built = plan(&around(Middle::Gate), options(TrustLevel::ClientAided));
    let products = |step: &&Step| step.kind == StepKind::ClearProduct;
    assert_eq!(built.plan.steps.iter().filter(products).count(), 3);
    check(&built, &numbers(32 * 2100, 5), 2100);
    check(&built, &numbers(32, 9), 1);
}

#[test]
fn products_of_matrices_equal_the_oracle() {
    let built = plan(&around(Middle::Attention), options(TrustLevel::ClientAided));
    let products = |step: &&Step| step.kind == StepKind::ClearMatrixProduct;
    assert_eq!(built.plan.steps.iter().filter(products).count(), 2);
    for batch in [1, 7, 2100] {
        check(&built, &numbers(32 * batch, 5), batch);
    }
}

/// Inputs are quantised some images at a time, and an error names the value among all.
#[test]
fn an_invalid_input_is_named_by_its_image() {
    let built = built(1, None);
    let mut inputs = numbers(162 * 200, 3);
    inputs[162 * 150 + 7] = f32::NAN;
    let refused = ClientRun::new(built.plan.clone(), &inputs, 200).err();
    let text = refused.expect("it is no number").to_string();
    assert!(text.contains("input value 24307 (image 150)"), "{text}");
}

#[test]
fn extreme_inputs_equal_the_oracle() {
    let built = built(3, None);
    for value in [-1e30f32, -1.0, 0.0, 1.0, 1e30] {
        check(&built, &vec![value; 162 * 2], 2);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(8))]
    #[test]
    fn random_networks_equal_the_oracle(seed in 0u64..1 << 40, batch in 1usize..40, bits in prop::option::of((3u32..12, 3u32..13))) {
        check(&built(seed, bits), &numbers(162 * batch, seed ^ 1), batch);
    }
}

/// A model and a server run in the middle of receiving, with the client's next message.
fn halfway(messages: usize) -> (ServerRun, Vec<u8>) {
    let model = Arc::new(ServerModel::new(&built(1, None)).expect("weights fit the plan"));
    let mut client =
        ClientRun::new(model.plan().clone(), &numbers(162 * 4, 1), 4).expect("inputs fit");
    let mut server = ServerRun::new(&model, 4).expect("the batch fits");
    let mut message = Vec::new();
    for _ in 0..messages {
        client.send(&mut message).expect("the client's turn");
        server.receive(&message).expect("an honest message");
        message.clear();
    }
    client.send(&mut message).expect("the client's turn");
    (server, message)
}

#[test]
fn wrong_lengths_are_refused() {
    for messages in [0, 1] {
        for change in [-1isize, 1] {
            let (mut server, mut message) = halfway(messages);
            message.resize(
                message
                    .len()
                    .checked_add_signed(change)
                    .expect("a message is not empty"),
                0,
            );
            assert!(matches!(
                server.receive(&message),
                Err(EngineError::Length { .. })
            ));
        }
        let (mut server, _) = halfway(messages);
        assert!(matches!(
            server.receive(&[]),
            Err(EngineError::Length { found: 0, .. })
        ));
    }
}

#[test]
fn words_out_of_range_are_refused() {
    let (mut server, mut message) = halfway(1);
    message.fill(0xff);
    let error = server
        .receive(&message)
        .expect_err("all ones are no residues");
    assert!(
        matches!(
            error,
            EngineError::Word { .. } | EngineError::Packing { .. }
        ),
        "{error}"
    );
}

#[test]
fn out_of_turn_is_refused() {
    let (mut server, _) = halfway(1);
    assert!(matches!(
        server.send(&mut Vec::new()),
        Err(EngineError::OutOfTurn { .. })
    ));
    let model = Arc::new(ServerModel::new(&built(1, None)).expect("weights fit the plan"));
    let mut client = ClientRun::new(model.plan().clone(), &numbers(162, 1), 1).expect("inputs fit");
    assert!(matches!(
        client.receive(&[0; 32]),
        Err(EngineError::OutOfTurn { .. })
    ));
    assert!(matches!(
        client.finish(),
        Err(EngineError::OutOfTurn { .. })
    ));
}

#[test]
fn bad_batches_and_inputs_are_refused() {
    let model = Arc::new(ServerModel::new(&built(1, None)).expect("weights fit the plan"));
    let plan = model.plan().clone();
    assert!(matches!(
        ServerRun::new(&model, 0),
        Err(EngineError::Batch { .. })
    ));
    assert!(matches!(
        ServerRun::new(&model, plan.max_batch + 1),
        Err(EngineError::Batch { .. })
    ));
    assert!(matches!(
        ClientRun::new(plan.clone(), &[0.0; 161], 1),
        Err(EngineError::Inputs { .. })
    ));
    assert!(matches!(
        ClientRun::new(plan, &[f32::NAN; 162], 1),
        Err(EngineError::Input(_))
    ));
}

/// A server that answers with noise is caught by the proven ranges, almost surely.
#[test]
fn a_random_answer_is_noticed() {
    let model = Arc::new(ServerModel::new(&built(1, None)).expect("weights fit the plan"));
    let mut client =
        ClientRun::new(model.plan().clone(), &numbers(162 * 50, 1), 50).expect("inputs fit");
    let mut message = Vec::new();
    while client.want() == Want::Send {
        message.clear();
        client.send(&mut message).expect("the client's turn");
    }
    assert!(client.receive(&vec![0x55; client.max_incoming()]).is_err());
}
