//! `two-party`: the run on shares equals the fixed-point oracle bit for bit, whatever the network.

mod common;

use std::sync::Arc;

use common::{check, exchange, network, numbers};
use pronghorn_engine::{
    ClientKeys, ClientRun, EngineError, Machine, ServerKeys, ServerModel, ServerRun, Want,
};
use pronghorn_plan::{BuildOptions, Built, Plan, Protocol, StepKind, TrustLevel, build};
use proptest::prelude::*;

fn built(seed: u64, bits: Option<(u32, u32)>) -> Built {
    let options = BuildOptions {
        trust: Some(TrustLevel::TwoParty),
        samples: Some(numbers(162 * 20, 77)),
        weight_bits: bits.map(|bits| bits.0),
        input_bits: bits.map(|bits| bits.1),
        ..BuildOptions::default()
    };
    build(&network(seed), &options).expect("the test network has a plan")
}

#[test]
fn equals_the_oracle() {
    let built = built(1, None);
    assert_eq!(built.plan.tolerance(), 0);
    for batch in [1, 7] {
        check(&built, &numbers(162 * batch, 5), batch);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(6))]

    #[test]
    fn equals_the_oracle_at_any_precision(seed: u64, weight_bits in 3u32..8, input_bits in 3u32..7, batch in 1usize..4) {
        let built = built(seed, Some((weight_bits, input_bits)));
        check(&built, &numbers(162 * batch, seed ^ 1), batch);
    }
}

/// Several batches of a connection share one set-up of oblivious transfer.
#[test]
fn batches_share_a_set_up() {
    let built = built(3, None);
    let model = Arc::new(ServerModel::new(&built).expect("weights fit the plan"));
    let (client_keys, server_keys) = (ClientKeys::default(), ServerKeys::default());
    let inputs = numbers(162 * 2, 9);
    let mut outputs = Vec::new();
    let mut messages = Vec::new();
    for _ in 0..2 {
        let mut client = ClientRun::with_keys(model.plan().clone(), &inputs, 2, &client_keys)
            .expect("inputs fit");
        let mut server =
            ServerRun::with_keys(model.clone(), 2, &server_keys).expect("the batch fits");
        messages.push(exchange(&mut client, &mut server).expect("an honest run succeeds"));
        outputs.push(client.finish_integers().expect("the run is over"));
    }
    assert_eq!(outputs[0], outputs[1]);
    assert!(
        messages[1] < messages[0],
        "{messages:?}: the second batch sets nothing up"
    );
}

/// Nothing in the plan tells a range that is no power of two: of weights it says how many bits their sums take.
#[test]
fn plans_do_not_tell_sums_of_weights() {
    let plan = built(4, None).plan;
    for (_, step, linear) in plan.linear_steps() {
        let (low, high) = (i64::from(step.value.low), i64::from(step.value.high));
        assert!(
            (high + 2).count_ones() == 1 && low == -high,
            "{}: {low}..={high}",
            step.name
        );
        assert!(linear.shares.is_some());
    }
}

/// What a hostile or damaged plan may say, and must be refused.
#[test]
fn hostile_plans_are_refused() {
    let plan = built(5, None).plan;
    assert!(Plan::from_bytes(&plan.to_bytes()).is_ok());
    let refused = |change: fn(&mut Plan)| {
        let mut changed = plan.clone();
        change(&mut changed);
        assert_ne!(changed, plan, "the change changes something");
        Plan::from_bytes(&changed.to_bytes()).expect_err("a damaged plan is refused")
    };
    fn linear(plan: &mut Plan) -> &mut pronghorn_plan::LinearPlan {
        let step = plan.steps.iter_mut().find_map(|step| match &mut step.kind {
            StepKind::Linear(linear) => Some(linear),
            _ => None,
        });
        step.expect("the network has a layer")
    }
    refused(|plan| linear(plan).shares = None);
    refused(|plan| linear(plan).shares.as_mut().expect("shares").guard_bits = 1);
    refused(|plan| linear(plan).shares.as_mut().expect("shares").guard_bits = u32::MAX);
    refused(|plan| linear(plan).shares.as_mut().expect("shares").value_bits += 1);
    refused(|plan| linear(plan).dropped_bits_a = 70);
    refused(|plan| plan.trust = TrustLevel::ClientAided);
    refused(|plan| plan.output -= 1);
    refused(|plan| {
        let activation = plan.steps.iter_mut().find_map(|step| match &mut step.kind {
            StepKind::Activation(activation) => Some(activation),
            _ => None,
        });
        activation.expect("the network has activations").protocol = Protocol::Reveal;
    });
}

/// A peer that sends garbage, too much or too little ends the run with an error, at every message.
#[test]
fn hostile_messages_are_errors() {
    let built = built(6, Some((4, 4)));
    let model = Arc::new(ServerModel::new(&built).expect("weights fit the plan"));
    let inputs = numbers(162, 9);
    let start = || {
        let client = ClientRun::new(model.plan().clone(), &inputs, 1).expect("inputs fit");
        (
            client,
            ServerRun::new(model.clone(), 1).expect("the batch fits"),
        )
    };
    let (mut client, mut server) = start();
    let count = exchange(&mut client, &mut server).expect("an honest run succeeds");
    for at in 0..count {
        for length in [0, 1, usize::MAX] {
            let (mut client, mut server) = start();
            let error = exchange_changed(&mut client, &mut server, at, |message| match length {
                usize::MAX => message.push(0),
                length => message.truncate(message.len() - 1 - length * (message.len() / 2)),
            });
            assert!(error.is_err(), "message {at} of another length is refused");
        }
        let (mut client, mut server) = start();
        let garbled = exchange_changed(&mut client, &mut server, at, |message| {
            message
                .iter_mut()
                .enumerate()
                .for_each(|(i, byte)| *byte ^= (i * 89 + 31) as u8);
        });
        // An error or, where every string of bytes is a message, a wrong result.
        let _ = garbled;
    }
}

/// As [`exchange`], but message number `at` is changed on its way.
fn exchange_changed(
    client: &mut ClientRun,
    server: &mut ServerRun,
    at: usize,
    change: impl Fn(&mut Vec<u8>),
) -> Result<(), EngineError> {
    let mut count = 0;
    loop {
        let mut message = Vec::new();
        let (from, to): (&mut dyn Machine, &mut dyn Machine) = match (client.want(), server.want())
        {
            (Want::Send, Want::Receive) => (client, server),
            (Want::Receive, Want::Send) => (server, client),
            (Want::Done, Want::Done) => return Ok(()),
            wants => panic!("stuck: {wants:?}"),
        };
        from.send(&mut message)?;
        if count == at {
            change(&mut message);
        }
        count += 1;
        to.receive(&message)?;
    }
}
