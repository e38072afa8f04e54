//! Costs add up. What they say of bytes is compared with runs in `pronghorn-engine`.

mod common;

use common::networks::{
    Middle, aided, around, deep, dense, network, options, plan as planned, shared,
};
use pronghorn_plan::{
    Engine, Plan, StepKind, TrustLevel,
    cost::{self, MAX_BATCH, StepCost, WORDS_PER_MESSAGE, stream_bytes},
    slots,
};
use pronghorn_ring::bits::packed_len;

/// A plan of each engine and trust level.
fn plans() -> Vec<Plan> {
    let mut plans: Vec<Plan> = [Engine::Batch, Engine::Coefficient, Engine::Slot]
        .map(|engine| shared(&network(1), engine, None).plan)
        .into();
    plans.push(aided(1, None).plan);
    plans.push(planned(&deep(2), options(TrustLevel::Encrypted)).plan);
    plans
}

#[test]
fn totals_are_sums() {
    for plan in plans() {
        for batch in [1, 5] {
            let steps = (0..plan.steps.len()).map(|index| cost::step(&plan, index, batch));
            let steps: Vec<_> = steps.collect();
            let total = cost::total(&plan, batch);
            let sum = |of: fn(&StepCost) -> u64| steps.iter().map(of).sum::<u64>();
            assert_eq!(total.bytes_up, sum(|step| step.bytes_up));
            assert_eq!(total.bytes_down, sum(|step| step.bytes_down));
            assert_eq!(total.multiply_adds, sum(|step| step.multiply_adds));
            assert_eq!(u64::from(total.rounds), sum(|step| step.rounds.into()));
            let seconds: f64 = steps.iter().map(|step| step.seconds).sum();
            assert!((total.seconds - seconds).abs() <= 1e-9 * seconds);
            let most = |of: fn(&StepCost) -> u64| steps.iter().map(of).max();
            assert_eq!(Some(total.memory.server), most(|step| step.memory.server));
            assert_eq!(Some(total.memory.client), most(|step| step.memory.client));
            let memory = cost::memory(&plan, batch);
            assert!(memory.server >= total.memory.server && memory.client == total.memory.client);
        }
    }
}

/// More images cost more, but less each.
#[test]
fn costs_grow_with_the_batch() {
    for plan in plans() {
        let (one, ten) = (cost::total(&plan, 1), cost::total(&plan, 10));
        let encrypted = plan.trust == TrustLevel::Encrypted;
        for (one, ten) in [
            (one.bytes_up, ten.bytes_up),
            (one.bytes_down, ten.bytes_down),
            (one.memory.client, ten.memory.client),
        ] {
            assert!(ten <= 10 * one, "{}: {one} {ten}", plan.model);
            assert!(ten >= one);
        }
        // All slots of a ciphertext are sent, whoever put something there.
        assert_eq!(ten.bytes_up > one.bytes_up, !encrypted);
        assert!(ten.seconds <= 10.0 * one.seconds && ten.seconds >= one.seconds);
        assert_eq!(one.rounds, ten.rounds);
    }
}

/// Input and local steps send nothing; activations cost only where the client has no values.
#[test]
fn steps_without_messages_are_free() {
    for plan in plans() {
        for (index, step) in plan.steps.iter().enumerate() {
            let cost = cost::step(&plan, index, 3);
            let is_free = match &step.kind {
                StepKind::Input | StepKind::Local(_) => true,
                StepKind::Activation(_) => plan.trust != TrustLevel::TwoParty,
                _ => false,
            };
            assert_eq!(
                cost.bytes_up + cost.bytes_down == 0,
                is_free,
                "{}",
                step.name
            );
            assert_eq!(cost.rounds == 0, is_free, "{}", step.name);
        }
    }
}

/// What is sent once is counted for its engine alone.
#[test]
fn each_engine_sends_its_own_once() {
    for plan in plans() {
        let engine = plan
            .linear_steps()
            .map(|(_, _, linear)| linear.engine)
            .next();
        let shares = plan.trust == TrustLevel::TwoParty;
        assert_eq!(
            cost::published(&plan) > 0,
            shares && engine == Some(Engine::Batch)
        );
        assert_eq!(
            cost::publication(&plan) > 0,
            engine == Some(Engine::Coefficient)
        );
        assert_eq!(slots::key_bytes(&plan) > 0, plan.slot_modulus().is_some());
        let aided = plan.trust == TrustLevel::ClientAided;
        let form = cost::slot_form(&plan, 100);
        assert_eq!(form.is_some(), aided);
        assert!(form.is_none_or(|form| form.bytes > 1.0 && form.seconds > 1.0));
    }
}

/// One polynomial an output channel and tile, one row an element.
#[test]
fn published_bytes_by_hand() {
    let plan = shared(&around(Middle::Relu), Engine::Coefficient, None).plan;
    let polynomials = plan.linear_steps().map(|(_, _, linear)| {
        let width = linear.modulus_bits() - linear.dropped_bits_a;
        let bytes = linear.degree * width as usize / 8;
        (linear.geometry.out_channels * bytes) as u64
    });
    assert_eq!(cost::publication(&plan), polynomials.sum::<u64>());
    let plan = shared(&around(Middle::Relu), Engine::Batch, None).plan;
    let rows = plan.linear_steps().map(|(_, step, linear)| {
        let width = linear.modulus_bits() - linear.dropped_bits_a;
        (step.value.len() * linear.degree * width as usize / 8) as u64
    });
    assert_eq!(cost::published(&plan), rows.sum::<u64>());
}

/// A dense layer of 6 to 4, client-aided, with 10 images.
#[test]
fn bytes_of_a_layer_by_hand() {
    let plan = planned(&dense(None), options(TrustLevel::ClientAided)).plan;
    let (_, _, linear) = plan.linear_steps().next().expect("there is a layer");
    let bits = linear.modulus_bits() as usize;
    let cost = cost::step(&plan, 1, 10);
    let up = cost::SEED_BYTES + 6 * (10 * bits).div_ceil(8);
    assert_eq!(cost.bytes_up, up as u64);
    let (a, b) = (
        bits - linear.dropped_bits_a as usize,
        bits - linear.dropped_bits as usize,
    );
    let down = 4 * (linear.degree * a / 8 + (10 * b).div_ceil(8));
    assert_eq!(cost.bytes_down, down as u64);
    assert_eq!(cost.multiply_adds, 6 * 4 * (linear.degree as u64 + 10));
    assert_eq!(cost.rounds, 1);
}

#[test]
fn streams_are_cut_into_messages() {
    for width in [1, 13, 31, 60] {
        let whole = packed_len(WORDS_PER_MESSAGE, width) as u64;
        assert_eq!(stream_bytes(0, width), 0);
        assert_eq!(stream_bytes(5, width), packed_len(5, width) as u64);
        assert_eq!(stream_bytes(WORDS_PER_MESSAGE, width), whole);
        assert_eq!(
            stream_bytes(WORDS_PER_MESSAGE + 1, width),
            whole + packed_len(1, width) as u64
        );
        assert_eq!(stream_bytes(3 * WORDS_PER_MESSAGE, width), 3 * whole);
    }
}

#[test]
fn batches_fit_their_memory() {
    for plan in plans() {
        for allowed in [1u64 << 21, 1 << 24, 1 << 28] {
            match cost::max_batch(&plan, allowed) {
                Ok(batch) => {
                    assert!((1..=MAX_BATCH).contains(&batch));
                    assert!(cost::memory(&plan, batch).server <= allowed);
                }
                Err((step, needed)) => {
                    assert!(needed > allowed && step < plan.steps.len());
                    assert_eq!(needed, cost::memory(&plan, 1).server);
                }
            }
            let fits = cost::client_batch(&plan, allowed);
            let smaller = cost::client_batch(&plan, allowed / 2);
            assert!(fits >= smaller);
        }
        assert_eq!(cost::client_batch(&plan, 0), None);
        assert!(cost::client_batch(&plan, 1 << 40).is_some());
    }
}

/// What is prepared are activations, the opening and layers are not.
#[test]
fn preparations_are_activations() {
    for plan in plans() {
        let prepared = cost::prepared(&plan, 4);
        let is_activation =
            |&index: &usize| matches!(plan.steps[index].kind, StepKind::Activation(_));
        let steps = (0..plan.steps.len()).filter(is_activation);
        let steps: Vec<_> = steps.map(|index| cost::step(&plan, index, 4)).collect();
        let sum = |of: fn(&StepCost) -> u64| steps.iter().map(of).sum::<u64>();
        assert_eq!(prepared.bytes_up, sum(|step| step.bytes_up));
        assert_eq!(prepared.bytes_down, sum(|step| step.bytes_down));
        let keeps = prepared.memory.client >= prepared.bytes_down;
        assert!(keeps && (prepared.bytes_up > 0) == (plan.trust == TrustLevel::TwoParty));
    }
}
