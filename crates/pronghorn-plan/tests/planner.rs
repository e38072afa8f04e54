//! From networks to plans: engines, words, precision, memory, and reasons for no plan.

use crate::common::{
    networks::{
        Middle, aided, aided_coefficient, around, clipped, deep, dense, dithered, has_words,
        network, numbers, options, parts, plan as planned, shared, with_least_traffic,
    },
    refusal,
};
use pronghorn_graph::{
    fixed::{Linear, dither::LEAST_DROPPED},
    graph::Graph,
};
use pronghorn_plan::{
    BuildError, BuildOptions, Built, CheckedPlan, Engine, Plan, Rounding, Step, StepKind,
    TrustLevel, Weights, WordSize, build, cost,
    objective::{Goal, Objective},
    trust::{self, TrustError},
};

fn engines(plan: &CheckedPlan) -> Vec<Engine> {
    let engine = |kind: &StepKind| match kind {
        StepKind::ClearLinear(_) | StepKind::SharedLinear(_) => Some(Engine::Batch),
        StepKind::CoefficientLinear(_) | StepKind::ClearCoefficient(_) => Some(Engine::Coefficient),
        StepKind::SlotLinear(_) => Some(Engine::Slot),
        _ => None,
    };
    plan.steps
        .iter()
        .filter_map(|step| engine(&step.kind))
        .collect()
}

fn layers(built: &Built) -> Vec<&Linear> {
    fn layer(weights: &Weights) -> Option<&Linear> {
        match weights {
            Weights::Layer(linear) => Some(linear),
            _ => None,
        }
    }
    let layers: Vec<_> = built.weights.iter().filter_map(layer).collect();
    assert_eq!(layers.len(), engines(&built.plan).len());
    layers
}

#[test]
fn the_default_is_on_shares() {
    let built = build(&dense(None), &BuildOptions::default()).expect("there is a plan");
    assert_eq!(built.plan.trust, TrustLevel::TwoParty);
    assert_eq!(built.plan.tolerance(), 0);
}

#[test]
fn plans_are_reproducible_and_valid() {
    for engine in [Engine::Batch, Engine::Coefficient, Engine::Slot] {
        let plan = || shared(&around(Middle::Residual), engine, None).plan;
        let first = plan();
        assert_eq!(first.hash(), plan().hash());
        assert_eq!(refusal(&first), None);
    }
}

/// Bytes give the same plan, and all that is derived of it.
#[test]
fn plans_are_equal_after_a_round_trip() {
    let shares = |engine| shared(&around(Middle::Residual), engine, None);
    let plans = [
        shares(Engine::Batch),
        shares(Engine::Coefficient),
        shares(Engine::Slot),
        aided(1, None),
        aided_coefficient(1, None),
        planned(&deep(2), options(TrustLevel::Encrypted)),
    ];
    for Built { plan, .. } in &plans {
        let bytes = plan.to_bytes();
        let read = Plan::from_bytes(&bytes).expect("it is valid");
        assert_eq!(&read, plan);
        assert_eq!(read.plan(), plan.plan());
        assert_eq!(read.to_bytes(), bytes);
        assert_eq!(
            (read.hash(), read.hash_hex()),
            (plan.hash(), plan.hash_hex())
        );
        // The hash that is kept is that of the plan, also of one whose batch was settled last.
        assert_eq!(plan.hash(), plan.plan().hash());
        assert_eq!(read.forms(), plan.forms());
        assert_eq!(read.once(), plan.once());
        let key_bytes = [&read, plan].map(CheckedPlan::slot_key_bytes);
        assert_eq!(key_bytes[0], key_bytes[1]);
        assert_eq!(cost::total(&read, 3), cost::total(plan, 3));
        assert_eq!(cost::prepared(&read, 3), cost::prepared(plan, 3));
        assert_eq!(format!("{read:#}"), format!("{plan:#}"));
        let mut other = plan.plan().clone();
        other.model.push('x');
        let other = CheckedPlan::new(other).expect("it is valid");
        assert!(&other != plan && other.hash() != plan.hash());
    }
}

#[test]
fn the_engine_that_is_asked_for_is_taken() {
    for engine in [Engine::Batch, Engine::Coefficient, Engine::Slot] {
        let plan = shared(&network(1), engine, None).plan;
        assert_eq!(engines(&plan), [engine; 4]);
    }
    assert_eq!(engines(&aided(1, None).plan), [Engine::Batch; 4]);
    let coefficient = aided_coefficient(1, None).plan;
    assert_eq!(engines(&coefficient), [Engine::Coefficient; 4]);
}

/// Under `client-aided` a network runs in the batch engine, if an image fits in memory there.
#[test]
fn images_that_do_not_fit_in_the_batch_engine_take_the_other() {
    let with = |memory, objective| {
        let options = BuildOptions {
            memory,
            objective,
            ..options(TrustLevel::ClientAided)
        };
        engines(&planned(&network(1), options).plan)
    };
    let (much, little) = (1 << 30, 1 << 19);
    assert_eq!(with(much, None), [Engine::Batch; 4]);
    assert_eq!(with(little, None), [Engine::Coefficient; 4]);
    assert_eq!(
        with(much, Some(Objective::Latency)),
        [Engine::Coefficient; 4]
    );
    assert_eq!(with(much, Some(Objective::Throughput)), [Engine::Batch; 4]);
}

#[test]
fn slots_are_not_for_values_in_the_clear() {
    let options = BuildOptions {
        engine: Some(Engine::Slot),
        ..options(TrustLevel::ClientAided)
    };
    let refused = build(&network(1), &options).err();
    assert!(matches!(refused, Some(BuildError::NoEngine { .. })));
}

#[test]
fn only_shares_are_rounded_by_a_dither() {
    for trust in [TrustLevel::ClientAided, TrustLevel::Encrypted] {
        let options = BuildOptions {
            rounding: Rounding::Dithered,
            ..options(trust)
        };
        let refused = build(&deep(2), &options).err();
        assert!(
            matches!(refused, Some(BuildError::NoDither { .. })),
            "{trust}"
        );
    }
}

/// A dither comes right behind layers, in lean steps alone, and takes fewer bytes. What shares do
/// not hide is rounded to the nearest.
#[test]
fn a_dither_makes_comparisons_short() {
    for engine in [Engine::Coefficient, Engine::Batch] {
        let graph = network(3);
        let built = dithered(&graph, engine, None);
        let nearest = with_least_traffic(&graph, engine, None, Rounding::Nearest);
        let bytes = |built: &Built| {
            let all = cost::total(&built.plan, 1);
            all.bytes_up + all.bytes_down
        };
        assert!(bytes(&built) < bytes(&nearest));
        for (step, shifts) in built.plan.dithered_steps() {
            let step = &built.plan.steps[step];
            assert!(matches!(step.kind, StepKind::Lean(_)));
            assert!(shifts.iter().all(|&shift| shift >= LEAST_DROPPED));
        }
        assert!(!nearest.plan.is_dithered());
        let text = built.text(false);
        assert!(
            text.contains("rounding by a dither: results differ"),
            "{text}"
        );
        assert!(!nearest.text(false).contains("dither"));
    }
}

/// Without an engine, no engine does better by the objective; and other engines cost more than
/// predictions are wrong by.
#[test]
fn the_engine_suits_the_objective() {
    let graph = around(Middle::Relu);
    for objective in [
        Objective::Throughput,
        Objective::Latency,
        Objective::Traffic,
    ] {
        let best = planned(
            &graph,
            BuildOptions {
                objective: Some(objective),
                ..options(TrustLevel::TwoParty)
            },
        );
        for engine in [Engine::Batch, Engine::Coefficient, Engine::Slot] {
            let other = shared(&graph, engine, None).plan;
            let goal = Goal::from(objective);
            let ratio = goal.of(&other) / goal.of(&best.plan);
            // Throughput never asks for slots.
            let is_asked = engine != Engine::Slot || objective != Objective::Throughput;
            assert!(
                ratio > 0.89 || !is_asked,
                "{objective:?} {engine:?} {ratio}"
            );
        }
    }
    let fast = planned(
        &graph,
        BuildOptions {
            objective: Some(Objective::Throughput),
            ..options(TrustLevel::TwoParty)
        },
    );
    assert_eq!(engines(&fast.plan), [Engine::Batch; 2]);
    let quick = planned(&graph, options(TrustLevel::TwoParty));
    assert_eq!(engines(&quick.plan), [Engine::Coefficient; 2]);
}

#[test]
fn words_and_digits_follow_the_bits() {
    let narrow = aided(1, None);
    assert!(!has_words(&narrow, WordSize::U64));
    let wide = aided(2, Some((11, 16)));
    assert!(has_words(&wide, WordSize::U64));
    // Wider than two digits carry, and narrow enough for more.
    let digits = |built: &Built| built.plan.steps.iter().map(parts).max();
    assert!(digits(&aided(4, Some((10, 14)))) > Some(2));
    let split = aided(4, Some((11, 9)));
    assert_eq!(digits(&split), Some(2));
    for (index, step) in split.plan.steps.iter().enumerate() {
        let StepKind::ClearLinear(linear) = &step.kind else {
            continue;
        };
        let [high, low] = linear.parts.as_slice() else {
            continue;
        };
        assert_eq!((linear.rlwe.word, low.left_shift), (WordSize::U32, 0));
        // Together the digits reach what the value does.
        let top = (i64::from(high.high) << high.left_shift) + i64::from(low.high);
        assert!(top >= i64::from(step.value.high), "step {index}");
    }
    assert!(split.plan.steps.iter().any(|step| parts(step) == 2));
}

#[test]
fn bits_that_are_asked_for_are_taken() {
    for (weight_bits, input_bits) in [(3, 4), (5, 6), (8, 5)] {
        let bits = Some((weight_bits, input_bits));
        for built in [
            aided(1, bits),
            shared(&around(Middle::Relu), Engine::Coefficient, bits),
        ] {
            let half = 1 << (weight_bits - 1);
            for layer in layers(&built) {
                let largest = layer.weights.iter().map(|w| w.abs()).max();
                assert!(
                    largest.is_some_and(|w| w <= half && w > half / 4),
                    "{largest:?}"
                );
            }
            let input = built.plan.input();
            let reach = i64::from(input.high) - i64::from(input.low);
            assert!(reach < 1 << (input_bits + 1), "{reach}");
        }
    }
}

/// Batches are as large as the memory allows, and no larger.
#[test]
fn memory_bounds_batches() {
    let graph = around(Middle::Relu);
    for engine in [Engine::Batch, Engine::Coefficient, Engine::Slot] {
        for memory in [1 << 22, 1 << 24, 1 << 26] {
            let options = BuildOptions {
                engine: Some(engine),
                memory,
                ..options(TrustLevel::TwoParty)
            };
            let plan = planned(&graph, options).plan;
            let batch = plan.max_batch;
            assert!(cost::memory(&plan, batch).server <= memory);
            let block = match engine {
                Engine::Batch => plan.linear_steps().map(|(_, _, rlwe)| rlwe.degree).max(),
                _ => None,
            };
            let next = match block {
                Some(block) if batch >= block => batch + block,
                _ => batch + 1,
            };
            assert!(next > cost::MAX_BATCH || cost::memory(&plan, next).server > memory);
        }
    }
    let refused = build(
        &graph,
        &BuildOptions {
            memory: 1 << 10,
            ..BuildOptions::default()
        },
    );
    let Err(BuildError::Memory {
        needed,
        allowed,
        step,
    }) = refused
    else {
        panic!("one image does not fit 1 KiB")
    };
    assert!(needed > allowed && allowed == 1 << 10 && !step.is_empty());
}

/// Lean steps hold all values of a step, circuits a part of them.
#[test]
fn lean_steps_that_do_not_fit_memory_are_circuits() {
    let traffic = |memory| {
        planned(
            &around(Middle::Silu),
            BuildOptions {
                objective: Some(Objective::Traffic),
                memory,
                ..options(TrustLevel::TwoParty)
            },
        )
    };
    let lean = |built: &Built| {
        let is_lean = |step: &&Step| matches!(step.kind, StepKind::Lean(_));
        built.plan.steps.iter().filter(is_lean).count()
    };
    // The activation, and exact shares of the result.
    let roomy = traffic(4 << 30);
    assert_eq!(lean(&roomy), 2);
    let needed = cost::memory(&roomy.plan, 1).server;
    let tight = traffic(needed - 1);
    assert_eq!(lean(&tight), 0);
    assert!(cost::memory(&tight.plan, tight.plan.max_batch).server < needed);
}

#[test]
fn other_trust_levels_are_refused() {
    let level = TrustLevel::MultiKey;
    let refused = build(&dense(None), &options(level)).err();
    assert!(matches!(
        refused,
        Some(BuildError::Trust(TrustError::Unavailable {
            level: TrustLevel::MultiKey
        }))
    ));
    assert_eq!(trust::require(None), Ok(TrustLevel::TwoParty));
    for level in TrustLevel::ALL {
        assert_eq!(level.name().parse(), Ok(level));
        assert_eq!(trust::require(Some(level)).is_ok(), level.is_available());
    }
    let unknown: Result<TrustLevel, TrustError> = "none".parse();
    assert!(unknown.is_err_and(|error| error.to_string().contains("two-party")));
}

#[test]
fn samples_must_be_images() {
    for count in [0, 1, 5, 7] {
        let options = BuildOptions {
            samples: Some(vec![0.5; count]),
            ..BuildOptions::default()
        };
        let refused = build(&dense(None), &options).err();
        assert!(
            matches!(refused, Some(BuildError::Samples { expected: 6, found, .. }) if found == count)
        );
    }
}

/// A slope below zero has no circuit; the client computes it where it has the values.
#[test]
fn negative_slopes_have_no_circuit() {
    let json = r#"{"name":"slope","nodes":[
        {"name":"x","op":{"kind":"input"},"inputs":[],"shape":[4]},
        {"name":"act7","op":{"kind":"leaky_relu","alpha":-0.5},"inputs":[0],"shape":[4]}],"output":1}"#;
    let graph = Graph::from_json(json, Default::default()).expect("the network is valid");
    let refused = build(&graph, &options(TrustLevel::TwoParty)).err();
    let Some(BuildError::Layer { layer, reason }) = refused else {
        panic!("it has no circuit")
    };
    assert!(
        layer == "act7" && reason.contains("client-aided"),
        "{layer}: {reason}"
    );
    assert!(build(&graph, &options(TrustLevel::ClientAided)).is_ok());
}

/// Ten squares one after the other, whose values stay small.
#[test]
fn networks_that_are_too_deep_are_refused() {
    let mut graph = deep(10);
    let weights = graph
        .tensors
        .values_mut()
        .flat_map(|tensor| tensor.data_mut());
    weights.for_each(|weight| *weight = if *weight < 0.0 { 0.15 } else { 0.35 });
    let refused = build(&graph, &options(TrustLevel::Encrypted)).err();
    assert!(
        matches!(refused, Some(BuildError::TooDeep { products: 10, .. })),
        "{refused:?}"
    );
    // Values that grow with every square leave nothing of the result, or no room for its flood.
    let refused = build(&deep(7), &options(TrustLevel::Encrypted)).err();
    assert!(
        matches!(
            refused,
            Some(BuildError::Imprecise { .. } | BuildError::TooDeep { products: 7, .. })
        ),
        "{refused:?}"
    );
}

/// Samples that lie far outside of a clip's range show no gain of what lies within.
#[test]
fn clips_of_much_larger_values_keep_their_range() {
    for trust in [TrustLevel::TwoParty, TrustLevel::ClientAided] {
        for factor in [1.0, 100.0, 1000.0] {
            let built = planned(&clipped(factor), options(trust));
            assert!(
                built.fidelity.is_reached(),
                "{trust} {factor} {:?}",
                built.fidelity
            );
        }
    }
}

/// A number like 1e30 among the samples leaves no plan: the refusal says where it is.
#[test]
fn an_absurd_sample_is_named() {
    let mut samples = numbers(6 * 20, 77);
    samples[6 * 3 + 1] = 1e30;
    let options = BuildOptions {
        samples: Some(samples),
        ..options(TrustLevel::TwoParty)
    };
    let refused = build(&dense(Some("relu")), &options)
        .err()
        .expect("no plan");
    assert!(
        refused
            .to_string()
            .contains("Value 1 of sample 3 is more than"),
        "{refused}"
    );
}
