//! Each reason to refuse a plan: one field of an honest plan is changed, and reading it fails with
//! that reason. The word that names the reason is in each case's last argument.

mod class;
mod linear;

use std::sync::LazyLock;

use crate::common::{
    batch, clear, clear_coefficient, coefficient, encrypted, find, in_a_circuit, is_activation,
    is_reshape,
    networks::{Middle, aided_coefficient, around, deep, dense, options, plan as planned, shared},
    ops, plan_of, refusal, slots, step, value, window,
};
use pronghorn_graph::{
    features::{FeatureScale, FeatureScales},
    finish::Finish,
    fixed::{ActivationOp, LocalOp},
};
use pronghorn_plan::{
    Built, CheckedPlan, Engine, NamedOutput, Plan, PlanError, StepKind, TrustLevel, WordSize,
    categories::{Categories, Known, Others},
    cost::MAX_BATCH,
    plan::{FORMAT, MAX_BYTES},
    steps::{
        activation::{
            garbled::{Garbled, MAX_WINDOW},
            reveal::Reveal,
        },
        bias::Bias,
        linear::{
            clear::{ClearLinear, Part},
            coefficient::CoefficientLinear,
            shared::SharedLinear,
            slots::SlotScheme,
        },
    },
};
use pronghorn_ring::modulus::largest_ntt_prime;

/// A plan to change.
fn of(built: Built) -> Plan {
    built.plan.plan().clone()
}

/// A layer and a ReLU, client-aided.
static AIDED: LazyLock<Plan> = LazyLock::new(|| {
    of(planned(
        &dense(Some("relu")),
        options(TrustLevel::ClientAided),
    ))
});

/// All kinds of steps, client-aided, in the coefficient engine.
static AIDED_COEFFICIENT: LazyLock<Plan> = LazyLock::new(|| of(aided_coefficient(1, None)));

/// A convolution, a ReLU and a layer on shares, in the coefficient engine.
static SHARES: LazyLock<Plan> =
    LazyLock::new(|| of(shared(&around(Middle::Relu), Engine::Coefficient, None)));

/// The same with a square.
static SQUARE: LazyLock<Plan> = LazyLock::new(|| {
    of(shared(
        &around(Middle::Square),
        Engine::Coefficient,
        Some((5, 5)),
    ))
});

/// The same with a gate.
static GATE: LazyLock<Plan> =
    LazyLock::new(|| of(shared(&around(Middle::Gate), Engine::Coefficient, None)));

/// The same with a max-pool.
static POOL: LazyLock<Plan> =
    LazyLock::new(|| of(shared(&around(Middle::MaxPool), Engine::Coefficient, None)));

/// The same with a residual addition.
static RESIDUAL: LazyLock<Plan> =
    LazyLock::new(|| of(shared(&around(Middle::Residual), Engine::Coefficient, None)));

/// The same with parts of a value.
static TAKES: LazyLock<Plan> =
    LazyLock::new(|| of(shared(&around(Middle::Takes), Engine::Coefficient, None)));

/// Two layers on slots.
static SLOTS: LazyLock<Plan> =
    LazyLock::new(|| of(shared(&around(Middle::Relu), Engine::Slot, None)));

/// A network on ciphertexts.
static ENCRYPTED: LazyLock<Plan> =
    LazyLock::new(|| of(planned(&deep(2), options(TrustLevel::Encrypted))));

/// The plan is valid, is another one after the change, and is then refused with a reason that has
/// this word.
#[track_caller]
fn refuses(plan: &Plan, word: &str, change: impl FnOnce(&mut Plan)) {
    assert_eq!(refusal(plan), None, "the plan is honest");
    let mut changed = plan.clone();
    change(&mut changed);
    assert_ne!(&changed, plan, "the change changes something");
    let reason = refusal(&changed).expect("the changed plan is refused");
    assert!(reason.contains(word), "{word:?} is not in: {reason}");
}

#[test]
fn bytes_that_are_no_plan() {
    let bytes = SHARES.to_bytes();
    let refused = |bytes: &[u8], word: &str| {
        let error = Plan::from_bytes(bytes).expect_err("these bytes are refused");
        let reason = error.to_string();
        assert!(reason.contains(word), "{word:?} is not in: {reason}");
    };
    refused(&vec![0; MAX_BYTES + 1], "at most");
    refused(&[], "damaged");
    refused(&[FORMAT as u8 + 1], "format");
    refused(&bytes[..bytes.len() - 1], "damaged");
    refused(&[&bytes[..], &[0]].concat(), "1 bytes follow");
    for cut in 1..bytes.len() {
        assert!(Plan::from_bytes(&bytes[..cut]).is_err(), "cut at {cut}");
    }
}

/// A plan in memory is refused for the same reasons as its bytes.
#[test]
fn plans_in_memory_are_checked_alike() {
    let mut changed: Vec<Plan> = vec![SHARES.clone(); 4];
    changed[0].output = usize::MAX;
    changed[1].trust = TrustLevel::Encrypted;
    coefficient(&mut changed[2]).rlwe.modulus += 2;
    changed[3].format += 1;
    for plan in changed {
        let refused = CheckedPlan::new(plan.clone()).err();
        let refused = refused.map(|error: PlanError| error.to_string());
        assert!(refused.is_some());
        assert_eq!(refused, refusal(&plan));
    }
}

#[test]
fn fields_of_the_whole_plan() {
    refuses(&SHARES, "steps", |plan| plan.steps.clear());
    refuses(&SHARES, "steps", |plan| {
        plan.steps = vec![plan.steps[0].clone(); (1 << 14) + 1];
    });
    refuses(&SHARES, "output", |plan| plan.output = plan.steps.len());
    refuses(&SHARES, "max_batch", |plan| plan.max_batch = 0);
    refuses(&SHARES, "max_batch", |plan| plan.max_batch = MAX_BATCH + 1);
    for sets in [0, 3, 512] {
        refuses(&SHARES, "key_checks", |plan| plan.key_checks = sets);
    }
    refuses(&SHARES, "model", |plan| plan.model = "two\nlines".into());
    refuses(&SHARES, "model", |plan| plan.model = "x".repeat(257));
    let named = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect();
    let output = |name: &str, shape: &[usize]| NamedOutput {
        name: name.into(),
        shape: shape.to_vec(),
    };
    let all = |outputs: &[NamedOutput]| {
        let outputs = outputs.to_vec();
        move |plan: &mut Plan| plan.outputs = outputs
    };
    let many: Vec<_> = (0..1025)
        .map(|at: usize| output(&at.to_string(), &[1]))
        .collect();
    for outputs in [
        &[output("a", &[10])][..],
        &[output("a", &[5]), output("a", &[5])],
        &many,
    ] {
        refuses(&AIDED, "outputs: they are not 2 to 1024", all(outputs));
    }
    for shape in [&[usize::MAX, 2][..], &[0], &[usize::MAX, 0], &[1; 70]] {
        let outputs = [output("a", shape), output("b", &[10])];
        refuses(&AIDED, "outputs: ", all(&outputs));
    }
    let outputs = [output("a", &[5]), output("b", &[6])];
    refuses(&AIDED, "outputs: they have 11 values", all(&outputs));
    let outputs = [output("", &[5]), output("b", &[5])];
    refuses(&AIDED, "outputs: a name is empty", all(&outputs));
    refuses(&AIDED, "outputs: a name has", |plan| {
        plan.outputs = vec![output("a\n", &[5]), output("b", &[5])]
    });
    refuses(&AIDED, "columns: there are 1", |plan| {
        plan.columns = named(&["a"])
    });
    refuses(&AIDED, "columns: two have one name", |plan| {
        plan.columns = vec!["a".into(); plan.input_len()];
    });
    refuses(&AIDED, "columns", |plan| {
        plan.columns = named(&["two\nlines"])
    });
    refuses(&AIDED, "categories: there are 9999", |plan| {
        plan.categories = vec![Categories {
            place: 0,
            known: Known::Indices(9999),
            others: Others::Zeros,
        }];
    });
    refuses(&SHARES, "finish", |plan| {
        plan.finish = vec![Finish::Softmax; 17]
    });
    refuses(&SHARES, "elements", |plan| {
        plan.steps[0].value.shape = vec![1 << 20, 1 << 20];
    });
    refuses(&SHARES, "elements", |plan| {
        plan.steps[0].value.shape = vec![usize::MAX, usize::MAX];
    });
    refuses(&POOL, "pools", |plan| {
        for op in ops(plan) {
            if let ActivationOp::MaxPool { window } = op {
                window.kernel = [1 << 20, 1 << 20];
            }
        }
    });
}

#[test]
fn fields_of_any_step() {
    refuses(&SHARES, "first step", |plan| {
        plan.steps[0].kind = plan.steps[3].kind.clone();
    });
    refuses(&SHARES, "first step", |plan| {
        plan.steps[1].kind = StepKind::Input;
    });
    refuses(&SHARES, "before it", |plan| plan.steps[1].inputs = vec![1]);
    refuses(&SHARES, "before it", |plan| plan.steps[1].inputs = vec![4]);
    refuses(&SHARES, "range", |plan| {
        let value = &mut plan.steps[0].value;
        (value.low, value.high) = (value.high, value.low - 1);
    });
    for bits in [129, -65, i32::MIN] {
        refuses(&SHARES, "fraction bits", |plan| {
            plan.steps[0].value.fraction_bits = bits;
        });
    }
    refuses(&SHARES, "input", |plan| plan.steps[1].inputs.clear());
    refuses(&SHARES, "input", |plan| plan.steps[1].inputs = vec![0, 0]);
    refuses(&SHARES, "input", |plan| plan.steps[2].inputs = vec![0, 0]);
}

/// What a step's kind and inputs give must be within the range that it declares.
#[test]
fn ranges_that_do_not_hold() {
    let activation = find(&SHARES, is_activation);
    refuses(&SHARES, "outside its range", |plan| {
        plan.steps[activation].value.high -= 1;
    });
    let sum = find(&RESIDUAL, |kind| {
        matches!(kind, StepKind::Local(LocalOp::Add { .. }))
    });
    refuses(&RESIDUAL, "outside its range", |plan| {
        plan.steps[sum].value.low += 1;
    });
    refuses(&SHARES, "outside its range", |plan| {
        let opened = plan.output;
        plan.steps[opened].value.high -= 1;
    });
}

#[test]
fn shapes_that_do_not_follow() {
    refuses(&SHARES, "elements of the input", |plan| {
        plan.steps[0].value.shape = vec![2, 4, 5];
    });
    refuses(&SHARES, "elements of the result", |plan| {
        plan.steps[1].value.shape = vec![3, 4, 5];
    });
    let activation = find(&SHARES, is_activation);
    refuses(&SHARES, "shape", |plan| {
        plan.steps[activation].value.shape = vec![3, 16];
    });
    let reshape = find(&SHARES, is_reshape);
    refuses(&SHARES, "elements", |plan| {
        plan.steps[reshape].value.shape = vec![47];
    });
    let taken = find(&TAKES, |kind| {
        matches!(kind, StepKind::Local(LocalOp::Take { .. }))
    });
    for (word, wrong_axis, wrong_indices) in [
        ("below the number of dimensions, 3", 3, vec![1]),
        ("below the number of dimensions, 3", usize::MAX, vec![1]),
        ("below the size of dimension 0, 3", 0, vec![3]),
        ("below the size of dimension 0, 3", 0, vec![usize::MAX]),
        ("shape", 0, vec![]),
        ("shape", 0, vec![1, 1]),
        ("shape", 1, vec![1]),
        ("at most", 0, vec![1; MAX_BYTES]),
    ] {
        refuses(&TAKES, word, |plan| {
            let StepKind::Local(LocalOp::Take { axis, indices }) = &mut plan.steps[taken].kind
            else {
                unreachable!("the step takes parts")
            };
            (*axis, *indices) = (wrong_axis, wrong_indices);
        });
    }
    refuses(&TAKES, "elements", |plan| {
        plan.steps[taken].value.shape = vec![1 << 20, 4, 1 << 20];
    });
    refuses(&SHARES, "shape", |plan| {
        let opened = plan.output;
        plan.steps[opened].value.shape = vec![2, 2];
    });
    refuses(&SHARES, "geometry", |plan| {
        coefficient(plan).geometry.in_channels = 1
    });
    refuses(&SHARES, "groups", |plan| {
        coefficient(plan).geometry.groups = 2
    });
    refuses(&SHARES, "kernel", |plan| {
        coefficient(plan).geometry.window.kernel = [9, 9];
    });
}

/// Kinds of steps of another trust level.
#[test]
fn steps_of_another_trust_level() {
    let other = "does not belong to trust level";
    refuses(&SHARES, other, |plan| plan.trust = TrustLevel::ClientAided);
    refuses(&SHARES, other, |plan| plan.trust = TrustLevel::Encrypted);
    refuses(&SHARES, other, |plan| plan.trust = TrustLevel::MultiKey);
    refuses(&SLOTS, other, |plan| plan.trust = TrustLevel::ClientAided);
    refuses(&SLOTS, other, |plan| plan.trust = TrustLevel::Encrypted);
    refuses(&AIDED, other, |plan| plan.trust = TrustLevel::TwoParty);
    refuses(&AIDED, other, |plan| plan.trust = TrustLevel::Encrypted);
    refuses(&AIDED, other, |plan| plan.trust = TrustLevel::MultiKey);
    refuses(&ENCRYPTED, other, |plan| plan.trust = TrustLevel::TwoParty);
    refuses(&ENCRYPTED, other, |plan| {
        plan.trust = TrustLevel::ClientAided
    });
    refuses(&ENCRYPTED, other, |plan| plan.trust = TrustLevel::MultiKey);
}

/// Protocols of another trust level, with the parameters of the step that they replace.
#[test]
fn protocols_of_another_trust_level() {
    let other = "does not belong to trust level";
    let layer = find(&SHARES, |kind| {
        matches!(kind, StepKind::CoefficientLinear(_))
    });
    refuses(&SHARES, other, |plan| {
        let parts = vec![Part::whole(&plan.steps[layer].value)];
        let CoefficientLinear { geometry, rlwe, .. } = coefficient(plan).clone();
        plan.steps[layer].kind = StepKind::ClearLinear(ClearLinear {
            geometry,
            rlwe,
            scale_log: 14,
            parts,
        });
    });
    let shares = coefficient(&mut SHARES.clone()).shares;
    let layer = find(&AIDED, |kind| matches!(kind, StepKind::ClearLinear(_)));
    refuses(&AIDED, other, |plan| {
        let ClearLinear { geometry, rlwe, .. } = clear(plan).clone();
        plan.steps[layer].kind = StepKind::SharedLinear(SharedLinear {
            geometry,
            rlwe,
            shares,
        });
    });
    refuses(&AIDED, other, |plan| {
        let ClearLinear { geometry, rlwe, .. } = clear(plan).clone();
        plan.steps[layer].kind = StepKind::CoefficientLinear(CoefficientLinear {
            geometry,
            rlwe,
            shares,
        });
    });
    for (plan, revealed) in [(&SHARES, true), (&AIDED, false)] {
        let activation = find(plan, is_activation);
        refuses(plan, other, |plan| {
            let ops = ops(plan).clone();
            plan.steps[activation].kind = match revealed {
                true => StepKind::Reveal(Reveal { ops }),
                false => StepKind::Garbled(Garbled { ops }),
            };
        });
    }
    let activation = find(&AIDED, is_activation);
    refuses(&AIDED, other, |plan| {
        plan.steps[activation].kind = StepKind::Square
    });
    refuses(&AIDED, other, |plan| {
        plan.steps[activation].kind = StepKind::Open
    });
}

/// Steps of `client-aided` have no place under `encrypted`, not even after an honest one.
#[test]
fn client_aided_steps_on_ciphertexts() {
    let aided = |step: usize| {
        move |plan: &mut Plan| {
            plan.steps.push(AIDED.steps[step].clone());
        }
    };
    for index in 1..AIDED.steps.len() {
        refuses(
            &ENCRYPTED,
            "does not belong to trust level encrypted",
            aided(index),
        );
    }
    refuses(
        &ENCRYPTED,
        "does not belong to trust level encrypted",
        |plan| {
            plan.steps[1].kind = StepKind::Reveal(Reveal { ops: Vec::new() });
        },
    );
}

/// Constants come with a shape, a shift and shares modulo a power of two.
#[test]
fn constants_that_do_not_fit() {
    let plan = of(shared(&around(Middle::Bias), Engine::Coefficient, None));
    let step = find(&plan, |kind| matches!(kind, StepKind::Bias(_)));
    refuses(&plan, "it shifts by 32 bits", |plan| {
        plan.steps[step].kind = StepKind::Bias(Bias { left_shift: 32 });
    });
    refuses(&plan, "shape", |plan| {
        plan.steps[step].value.shape = vec![3, 4, 3]
    });
    refuses(&plan, "", |plan| {
        // More bits than a word has.
        plan.steps[step].kind = StepKind::Bias(Bias { left_shift: 31 });
        plan.steps[step].value.low = i32::MIN;
    });
    let activation = find(&AIDED, is_activation);
    refuses(
        &AIDED,
        "does not belong to trust level client-aided",
        |plan| {
            plan.steps[activation].kind = StepKind::Bias(Bias { left_shift: 0 });
        },
    );
}

/// A square in place of a circuit gives another range.
#[test]
fn squares_are_not_other_functions() {
    let activation = find(&SHARES, is_activation);
    refuses(&SHARES, "range", |plan| {
        plan.steps[activation].kind = StepKind::Square
    });
}

#[test]
fn chains_of_functions() {
    refuses(&SHARES, "number of functions", |plan| {
        *ops(plan) = vec![ActivationOp::Relu; 17];
    });
    refuses(&AIDED, "32 bits", |plan| {
        *ops(plan) = vec![ActivationOp::Square; 16];
    });
    // One shift for each channel, and none of 32 bits.
    for shifts in [vec![], vec![1; 1000], vec![32]] {
        let word = if shifts.len() == 1 {
            ""
        } else {
            "one a channel"
        };
        refuses(&SHARES, word, |plan| {
            *ops(plan) = vec![ActivationOp::RequantiseChannels {
                shifts,
                low: -1,
                high: 1,
            }];
        });
    }
    // Circuits and clients round to the nearest.
    let dither = |shifts: &[u32]| ActivationOp::Dither {
        shifts: shifts.to_vec(),
    };
    refuses(&SHARES, "circuits round to the nearest", |plan| {
        let (low, high) = (0, 511);
        *ops(plan) = vec![dither(&[4]), ActivationOp::Clip { low, high }];
    });
    refuses(&AIDED, "the client sees the value", |plan| {
        ops(plan).insert(0, dither(&[1]));
    });
    for (shifts, word) in [
        (&[0][..], "at least 1"),
        (&[32], "at most 31"),
        (&[1, 2], "one a channel"),
    ] {
        refuses(&SHARES, word, |plan| ops(plan).insert(0, dither(shifts)));
    }
    // After another function.
    refuses(&SHARES, "one circuit", |plan| ops(plan).push(dither(&[1])));
    refuses(&SHARES, "one circuit", |plan| {
        let ops = ops(plan);
        let last = ops.last().expect("there is one").clone();
        let again = ActivationOp::Requantise {
            shift: 1,
            low: i32::MIN,
            high: i32::MAX,
        };
        *ops = vec![last, again.clone(), again];
    });
}

#[test]
fn only_the_result_is_opened() {
    let opened = "the result must be opened";
    refuses(&SHARES, opened, |plan| plan.output -= 1);
    refuses(&SHARES, opened, |plan| {
        let last = plan.steps[plan.output].clone();
        plan.steps.push(last);
    });
    refuses(&SHARES, opened, |plan| {
        plan.steps.pop();
        plan.output -= 1;
    });
}

#[test]
fn scales_of_features() {
    let features = |count: usize, exponent, offset| {
        StepKind::Features(FeatureScales(vec![
            FeatureScale { exponent, offset };
            count
        ]))
    };
    let input = |shape: &[usize], kind| {
        let output = value(shape, 0, 7);
        let mut plan = in_a_circuit(value(shape, -8, 7), vec![ActivationOp::Relu], output);
        plan.steps[0].kind = kind;
        plan
    };
    assert_eq!(refusal(&input(&[4], features(4, -64, 1.5))), None);
    let refused = |plan: Plan, word: &str| {
        let reason = refusal(&plan).expect("it is refused");
        assert!(reason.contains(word), "{word:?} is not in: {reason}");
    };
    refused(input(&[4], features(3, 1, 0.0)), "scales of 3 features");
    refused(input(&[2, 2], features(4, 1, 0.0)), "shape [2, 2]");
    refused(input(&[4], features(4, 65, 0.0)), "exponent 65");
    refused(input(&[4], features(4, i8::MIN, 0.0)), "exponent -128");
    refused(input(&[4], features(4, 1, f32::INFINITY)), "offset inf");
    refused(input(&[4], features(4, 1, f32::NAN)), "offset NaN");
    refuses(&input(&[4], StepKind::Input), "first step", |plan| {
        plan.steps[1].kind = features(4, 1, 0.0);
    });
}

#[test]
fn windows_of_pools() {
    let pool = |input: &[usize], output: &[usize], window| {
        let ops = vec![ActivationOp::MaxPool { window }];
        in_a_circuit(value(input, -8, 7), ops, value(output, -8, 7))
    };
    assert_eq!(
        refusal(&pool(&[1, 8, 8], &[1, 4, 4], window(2, 2, 0))),
        None
    );
    let refused = |plan: Plan, word: &str| {
        let reason = refusal(&plan).expect("it is refused");
        assert!(reason.contains(word), "{word:?} is not in: {reason}");
    };
    refused(pool(&[1, 8, 8], &[1, 6, 6], window(2, 2, 2)), "padding");
    refused(pool(&[64], &[16], window(2, 2, 0)), "shape");
    let most = 1 + MAX_WINDOW.isqrt();
    refused(
        pool(&[1, most, most], &[1, 1, 1], window(most, 1, 0)),
        "more than 1024 values",
    );
    // One window of each of many sizes.
    refused(
        pool(&[1, 31, 31], &[1, 33, 33], window(31, 1, 16)),
        "circuits of their own",
    );
}

#[test]
fn slots_parameters() {
    refuses(&SLOTS, "residues", |plan| slots(plan).t = 1 << 31);
    refuses(&SLOTS, "residues", |plan| slots(plan).t = 3);
    // No prime; and another than that of the other step.
    refuses(&SLOTS, "prime", |plan| {
        for step in &mut plan.steps {
            if let StepKind::SlotLinear(linear) = &mut step.kind {
                linear.t -= 1;
            }
        }
    });
    refuses(&SLOTS, "not that of the other", |plan| {
        let (t, degree) = (slots(plan).t, slots(plan).scheme.degree);
        let bits = u64::BITS - t.leading_zeros() + 1;
        slots(plan).t = largest_ntt_prime(bits, degree).expect("there is one");
    });
    refuses(&SLOTS, "no variant", |plan| {
        slots(plan).scheme.degree = 1024
    });
    refuses(&SLOTS, "no variant", |plan| slots(plan).scheme.chain = 255);
    refuses(&SLOTS, "does not fit", |plan| {
        slots(plan).scheme = SlotScheme {
            degree: 8192,
            chain: 0,
        }
    });
    refuses(&SLOTS, "elements", |plan| {
        slots(plan).geometry.in_channels = 1
    });
}

/// An error of any size, which a peer may claim, is a tolerance.
#[test]
fn tolerances_of_large_errors() {
    let mut plan = ENCRYPTED.clone();
    assert!((1..i32::MAX).contains(&plan.tolerance()));
    encrypted(&mut plan).error = 1e300;
    assert_eq!(refusal(&plan), None);
    assert_eq!(plan.tolerance(), i32::MAX);
}

#[test]
fn networks_on_ciphertexts() {
    refuses(&ENCRYPTED, "only step", |plan| plan.output = 0);
    refuses(&ENCRYPTED, "only step", |plan| {
        plan.steps.push(plan.steps[1].clone());
    });
    refuses(&ENCRYPTED, "does not belong", |plan| {
        let again = step(
            StepKind::Local(LocalOp::Reshape),
            &[1],
            plan.steps[1].value.clone(),
        );
        plan.steps.push(again);
    });
    refuses(&ENCRYPTED, "degree", |plan| encrypted(plan).degree = 2048);
    refuses(&ENCRYPTED, "32 bits", |plan| {
        encrypted(plan).word = WordSize::U64
    });
    refuses(&ENCRYPTED, "slots", |plan| {
        plan.max_batch = encrypted(plan).degree / 2 + 1;
    });
    refuses(&ENCRYPTED, "primes", |plan| encrypted(plan).primes.clear());
    refuses(&ENCRYPTED, "NTT", |plan| encrypted(plan).primes[0] = 12_289);
    refuses(&ENCRYPTED, "twice", |plan| {
        encrypted(plan).primes[1] = encrypted(plan).primes[0];
    });
    refuses(&ENCRYPTED, "evaluation keys", |plan| {
        encrypted(plan).key_power = 2
    });
    refuses(&ENCRYPTED, "flooded", |plan| {
        encrypted(plan).answer_limbs = 0
    });
    refuses(&ENCRYPTED, "flooded", |plan| {
        encrypted(plan).flood_limbs = encrypted(plan).primes.len() + 1;
    });
    refuses(&ENCRYPTED, "polynomials", |plan| {
        encrypted(plan).answer_polys = 1
    });
    for number in [f64::NAN, f64::INFINITY, 0.0, -1.0] {
        refuses(&ENCRYPTED, "no positive number", |plan| {
            encrypted(plan).answer_scale = number;
        });
        refuses(&ENCRYPTED, "no positive number", |plan| {
            encrypted(plan).error = number;
        });
    }
    refuses(&ENCRYPTED, "seconds", |plan| {
        encrypted(plan).server_seconds = f64::INFINITY;
    });
    refuses(&ENCRYPTED, "flood", |plan| encrypted(plan).flood_log = 501);
    refuses(&ENCRYPTED, "flood of 39 bits", |plan| {
        encrypted(plan).flood_bits = 39
    });
    refuses(&ENCRYPTED, "serve 0 batches", |plan| {
        encrypted(plan).key_batches = 0
    });
    refuses(&ENCRYPTED, "inputs", |plan| encrypted(plan).scale_log = 161);
    refuses(&ENCRYPTED, "results", |plan| {
        encrypted(plan).answer_scale = 1e300
    });
}
