//! Costs add up. What they say of bytes is compared with runs in `pronghorn-engine`.

use crate::common::{
    circuits, in_a_circuit, is_activation,
    networks::{Middle, aided, around, deep, dense, network, options, plan as planned, shared},
    value,
};
use pronghorn_graph::fixed::ActivationOp;
use pronghorn_mpc::ot::{OtParameters, extension};
use pronghorn_plan::{
    CheckedPlan, Engine, StepKind, TrustLevel,
    cost::{self, MAX_BATCH, StepCost, WORDS_PER_MESSAGE},
    objective::{Network, piece},
    rlwe::stream_bytes,
    slot_form::slot_form,
};
use pronghorn_ring::bits::packed_len;

/// A plan of each engine and trust level.
fn plans() -> Vec<CheckedPlan> {
    let mut plans: Vec<CheckedPlan> = [Engine::Batch, Engine::Coefficient, Engine::Slot]
        .map(|engine| shared(&network(1), engine, None).plan)
        .into();
    plans.push(aided(1, None).plan);
    plans.push(planned(&deep(2), options(TrustLevel::Encrypted)).plan);
    plans
}

/// Whether some step is so.
fn has(plan: &CheckedPlan, is: impl Fn(&StepKind) -> bool) -> bool {
    plan.steps.iter().any(|step| is(&step.kind))
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
            let seconds: f64 = steps.iter().map(|step| step.seconds.total()).sum();
            assert!((total.seconds.total() - seconds).abs() <= 1e-9 * seconds);
            let most = |of: fn(&StepCost) -> u64| steps.iter().map(of).max();
            assert_eq!(Some(total.memory.server), most(|step| step.memory.server));
            assert_eq!(Some(total.memory.client), most(|step| step.memory.client));
            let memory = cost::memory(&plan, batch);
            let inputs = (plan.input_len() * plan.input().distance_bytes() * batch) as u64;
            assert!(memory.server >= total.memory.server);
            assert_eq!(memory.client, total.memory.client + inputs);
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
        assert!(
            ten.seconds.total() <= 10.0 * one.seconds.total()
                && ten.seconds.total() >= one.seconds.total()
        );
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
                StepKind::Input | StepKind::Features(_) | StepKind::Local(_) => true,
                kind if is_activation(kind) => plan.trust != TrustLevel::TwoParty,
                _ => false,
            };
            let name = plan.step_name(index);
            assert_eq!(cost.bytes_up + cost.bytes_down == 0, is_free, "{name}");
            assert_eq!(cost.rounds == 0, is_free, "{name}");
        }
    }
}

/// What is sent once is counted for its engine alone.
#[test]
fn each_engine_sends_its_own_once() {
    for plan in plans() {
        let in_batches = has(&plan, |kind| matches!(kind, StepKind::SharedLinear(_)));
        assert_eq!(cost::published(&plan) > 0, in_batches);
        let publishes = has(&plan, |kind| matches!(kind, StepKind::CoefficientLinear(_)));
        assert_eq!(cost::publication(&plan) > 0, publishes);
        let on_slots = has(&plan, |kind| matches!(kind, StepKind::SlotLinear(_)));
        assert_eq!(plan.slot_key_bytes() > 0, on_slots);
        assert_eq!(!plan.slot_keys().is_empty(), on_slots);
        let engines = [in_batches, publishes, on_slots];
        let shares = plan.trust == TrustLevel::TwoParty;
        let used = engines.into_iter().filter(|&used| used).count();
        assert_eq!(used, usize::from(shares));
        let aided = plan.trust == TrustLevel::ClientAided;
        let form = slot_form(&plan, 100);
        assert_eq!(form.is_some(), aided);
        assert!(form.is_none_or(|form| form.bytes > 1.0 && form.seconds > 1.0));
    }
}

/// One polynomial an output channel and tile, one row an element.
#[test]
fn published_bytes_by_hand() {
    let plan = shared(&around(Middle::Relu), Engine::Coefficient, None).plan;
    let polynomials = plan.steps.iter().filter_map(|step| match &step.kind {
        StepKind::CoefficientLinear(linear) => {
            let width = linear.rlwe.modulus_bits() - linear.rlwe.dropped_bits_a;
            let bytes = linear.rlwe.degree * width as usize / 8;
            Some((linear.geometry.out_channels * bytes) as u64)
        }
        _ => None,
    });
    let bytes = polynomials.sum::<u64>();
    assert_eq!(
        (cost::publication(&plan), cost::published(&plan)),
        (bytes, 0)
    );
    let plan = shared(&around(Middle::Relu), Engine::Batch, None).plan;
    let rows = plan.linear_steps().map(|(_, step, rlwe)| {
        let width = rlwe.modulus_bits() - rlwe.dropped_bits_a;
        (step.value.len() * rlwe.degree * width as usize / 8) as u64
    });
    let bytes = rows.sum::<u64>();
    assert_eq!(
        (cost::publication(&plan), cost::published(&plan)),
        (0, bytes)
    );
}

/// A dense layer of 6 to 4, client-aided, with 10 images.
#[test]
fn bytes_of_a_layer_by_hand() {
    let plan = planned(&dense(None), options(TrustLevel::ClientAided)).plan;
    let (_, _, rlwe) = plan.linear_steps().next().expect("there is a layer");
    let bits = rlwe.modulus_bits() as usize;
    let cost = cost::step(&plan, 1, 10);
    let up = cost::SEED_BYTES + 6 * (10 * bits).div_ceil(8);
    assert_eq!(cost.bytes_up, up as u64);
    let (a, b) = (
        bits - rlwe.dropped_bits_a as usize,
        bits - rlwe.dropped_bits as usize,
    );
    let down = 4 * (rlwe.degree * a / 8 + (10 * b).div_ceil(8));
    assert_eq!(cost.bytes_down, down as u64);
    assert_eq!(cost.multiply_adds, 6 * 4 * (rlwe.degree as u64 + 10));
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

/// An image of a piece costs at most a tenth more than in the best batch, and of a smaller piece
/// more than that.
#[test]
fn pieces_are_small_and_cheap() {
    let network = Network::default();
    for plan in plans() {
        let cost = |batch: usize| {
            let all = cost::total(&plan, batch);
            (all.seconds.total() + network.seconds(&all)) / batch as f64
        };
        for most in [1, 7, 300, usize::MAX] {
            let (piece, most) = (piece(&plan, most, &network), most.min(plan.max_batch));
            let powers = (0..usize::BITS).map(|power| 1usize << power);
            let sizes: Vec<usize> = powers
                .take_while(|&size| size < most)
                .chain([most])
                .collect();
            let best = sizes
                .iter()
                .map(|&size| cost(size))
                .fold(f64::INFINITY, f64::min);
            for size in sizes {
                assert_eq!(cost(size) <= 1.1 * best && size <= piece, size == piece);
            }
        }
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
        let steps = (0..plan.steps.len()).filter(|&index| is_activation(&plan.steps[index].kind));
        let steps: Vec<_> = steps.map(|index| cost::step(&plan, index, 4)).collect();
        let sum = |of: fn(&StepCost) -> u64| steps.iter().map(of).sum::<u64>();
        assert_eq!(prepared.bytes_up, sum(|step| step.bytes_up));
        assert_eq!(prepared.bytes_down, sum(|step| step.bytes_down));
        let keeps = prepared.memory.client >= prepared.bytes_down;
        assert!(keeps && (prepared.bytes_up > 0) == (plan.trust == TrustLevel::TwoParty));
    }
}

/// A ReLU of six values, whose circuit takes so many bits of the client's shares of a value.
fn relu() -> (CheckedPlan, usize) {
    let plan = in_a_circuit(
        value(&[6], -100, 100),
        vec![ActivationOp::Relu],
        value(&[6], 0, 100),
    );
    let plan = CheckedPlan::new(plan).expect("the plan is valid");
    let circuits = circuits(&plan, 1).expect("it has circuits");
    let bits = circuits.groups[0].circuit.labelled_bits();
    // -100..=100 is a word of 8 bits.
    assert!((8..=9).contains(&bits), "{bits}");
    (plan, bits)
}

/// Offline, tables and random OTs are exchanged. Online, a bit goes up and 16 bytes come down for
/// each bit of the client's shares.
#[test]
fn bytes_of_a_prepared_circuit_by_hand() {
    let (plan, bits) = relu();
    for batch in [1, 3, 100] {
        let cost = plan.cost(1, batch);
        let circuits = circuits(&plan, 1).expect("it has circuits");
        let tables = circuits.groups[0].circuit.table_bytes(6 * batch) as u64;
        let ots = 6 * batch * bits;
        let width = OtParameters::default().width();
        let extended = extension::message_bytes(ots, width) as u64;
        assert_eq!(
            [cost.at_once.bytes_up, cost.at_once.bytes_down],
            [extended, tables]
        );
        assert_eq!(
            [cost.offline.bytes_up, cost.offline.bytes_down],
            [extended, tables]
        );
        assert_eq!(
            [cost.online.bytes_up, cost.online.bytes_down],
            [ots.div_ceil(8) as u64, 16 * ots as u64]
        );
        let rounds = [cost.at_once, cost.offline, cost.online].map(|part| part.rounds);
        assert_eq!(rounds, [1; 3]);
        // Either party keeps a block of 16 bytes an OT, and the client the tables.
        let kept = cost.offline.memory;
        assert_eq!(kept.server, extended * width as u64);
        assert_eq!(kept.client, kept.server + tables);
        assert!(kept.server >= 16 * ots as u64);
    }
}

/// What is prepared and what is left come to the same steps as a run at once.
#[test]
fn prepared_and_online_parts() {
    let (plan, _) = relu();
    let batch = 50;
    let [circuit, opening] = [1, 2].map(|index| plan.cost(index, batch));
    let (prepared, online) = (cost::prepared(&plan, batch), cost::online(&plan, batch));
    let total = cost::total(&plan, batch);
    assert_eq!(
        (prepared.bytes_up, prepared.bytes_down, prepared.rounds),
        (circuit.offline.bytes_up, circuit.offline.bytes_down, 1)
    );
    assert_eq!(prepared.seconds, circuit.offline.seconds);
    // The opening is all online, as at once.
    assert_eq!(opening.online, opening.at_once);
    assert_eq!(opening.offline, StepCost::default());
    assert_eq!(
        (online.bytes_up, online.bytes_down, online.rounds),
        (
            circuit.online.bytes_up + opening.online.bytes_up,
            circuit.online.bytes_down + opening.online.bytes_down,
            2
        )
    );
    // There is less to wait for, and more to do.
    assert!(online.seconds.total() < total.seconds.total());
    let both = prepared.seconds + online.seconds;
    assert!(both.total() > total.seconds.total());
    // The server keeps shares of all values, the client nothing beyond the circuit's.
    let shares = 4 * 3 * 6 * batch as u64;
    let kept = circuit.offline.memory;
    assert_eq!(prepared.memory.server, kept.server + shares);
    assert_eq!(prepared.memory.client, kept.client);
    assert_eq!(online.memory, total.memory);
}

/// Parts of plans are sums of parts of their steps.
#[test]
fn parts_are_sums() {
    for plan in plans() {
        for batch in [1, 5] {
            let parts: Vec<_> = (0..plan.steps.len())
                .map(|index| plan.cost(index, batch))
                .collect();
            let (prepared, online) = (cost::prepared(&plan, batch), cost::online(&plan, batch));
            let sums: [fn(&StepCost) -> u64; 4] = [
                |cost| cost.bytes_up,
                |cost| cost.bytes_down,
                |cost| cost.multiply_adds,
                |cost| cost.rounds.into(),
            ];
            for of in sums {
                let offline = parts.iter().map(|cost| of(&cost.offline));
                assert_eq!(of(&prepared), offline.sum::<u64>());
                let left = parts.iter().map(|cost| of(&cost.online));
                assert_eq!(of(&online), left.sum::<u64>());
            }
            // Without activations on shares, nothing is prepared and all is online.
            if !plan.trust.shares() {
                assert_eq!(online, cost::total(&plan, batch));
                assert_eq!((prepared.rounds, prepared.memory.client), (0, 0));
            } else {
                assert!(online.bytes_down < cost::total(&plan, batch).bytes_down);
            }
        }
    }
}
