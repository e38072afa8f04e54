//! Each reason to refuse a plan: one field of an honest plan is changed, and reading it fails with
//! that reason. The word that names the reason is in each case's last argument.

mod common;

use std::sync::LazyLock;

use common::{
    activation, encrypted, find, linear,
    networks::{Middle, around, deep, dense, options, plan as planned, shared},
    plan_of, refusal, slots, step, value, window,
};
use pronghorn_graph::fixed::{ActivationOp, Finish, LocalOp};
use pronghorn_plan::{
    ActivationPlan, Engine, Part, Plan, Protocol, StepKind, TrustLevel, WordSize,
    cost::MAX_BATCH,
    garbled,
    plan::{FORMAT, MAX_BYTES},
};
use pronghorn_ring::modulus::largest_ntt_prime;

/// A layer and a ReLU, client-aided.
static AIDED: LazyLock<Plan> =
    LazyLock::new(|| planned(&dense(Some("relu")), options(TrustLevel::ClientAided)).plan);

/// A convolution, a ReLU and a layer on shares, in the coefficient engine.
static SHARES: LazyLock<Plan> =
    LazyLock::new(|| shared(&around(Middle::Relu), Engine::Coefficient, None).plan);

/// The same with a square.
static SQUARE: LazyLock<Plan> =
    LazyLock::new(|| shared(&around(Middle::Square), Engine::Coefficient, None).plan);

/// The same with a max-pool.
static POOL: LazyLock<Plan> =
    LazyLock::new(|| shared(&around(Middle::MaxPool), Engine::Coefficient, None).plan);

/// The same with a residual addition.
static RESIDUAL: LazyLock<Plan> =
    LazyLock::new(|| shared(&around(Middle::Residual), Engine::Coefficient, None).plan);

/// Two layers on slots.
static SLOTS: LazyLock<Plan> =
    LazyLock::new(|| shared(&around(Middle::Relu), Engine::Slot, None).plan);

/// A network on ciphertexts.
static ENCRYPTED: LazyLock<Plan> =
    LazyLock::new(|| planned(&deep(2), options(TrustLevel::Encrypted)).plan);

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

#[test]
fn fields_of_the_whole_plan() {
    refuses(&SHARES, "steps", |plan| plan.steps.clear());
    refuses(&SHARES, "steps", |plan| {
        plan.steps = vec![plan.steps[0].clone(); (1 << 14) + 1];
    });
    refuses(&SHARES, "output", |plan| plan.output = plan.steps.len());
    refuses(&SHARES, "max_batch", |plan| plan.max_batch = 0);
    refuses(&SHARES, "max_batch", |plan| plan.max_batch = MAX_BATCH + 1);
    refuses(&SHARES, "model", |plan| plan.model = "two\nlines".into());
    refuses(&SHARES, "model", |plan| plan.model = "x".repeat(257));
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
        for op in &mut activation(plan).ops {
            if let ActivationOp::MaxPool { window } = op {
                window.kernel = [1 << 20, 1 << 20];
            }
        }
    });
}

#[test]
fn fields_of_any_step() {
    refuses(&SHARES, "name", |plan| plan.steps[1].name = "\u{7}".into());
    refuses(&SHARES, "name", |plan| plan.steps[1].name = "x".repeat(257));
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
    for bits in [65, -65, i32::MIN] {
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
    let activation = find(&SHARES, |kind| matches!(kind, StepKind::Activation(_)));
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
    let activation = find(&SHARES, |kind| matches!(kind, StepKind::Activation(_)));
    refuses(&SHARES, "shape", |plan| {
        plan.steps[activation].value.shape = vec![3, 16];
    });
    let reshape = find(&SHARES, |kind| {
        matches!(kind, StepKind::Local(LocalOp::Reshape))
    });
    refuses(&SHARES, "elements", |plan| {
        plan.steps[reshape].value.shape = vec![47];
    });
    refuses(&SHARES, "shape", |plan| {
        let opened = plan.output;
        plan.steps[opened].value.shape = vec![2, 2];
    });
    refuses(&SHARES, "geometry", |plan| {
        linear(plan).geometry.in_channels = 1
    });
    refuses(&SHARES, "groups", |plan| linear(plan).geometry.groups = 2);
    refuses(&SHARES, "kernel", |plan| {
        linear(plan).geometry.window.kernel = [9, 9];
    });
}

/// Kinds of steps and protocols of another trust level.
#[test]
fn steps_of_another_trust_level() {
    let none = "none of trust level";
    refuses(&SHARES, none, |plan| plan.trust = TrustLevel::ClientAided);
    refuses(&SHARES, none, |plan| plan.trust = TrustLevel::MultiKey);
    refuses(&SLOTS, none, |plan| plan.trust = TrustLevel::ClientAided);
    refuses(&AIDED, none, |plan| plan.trust = TrustLevel::TwoParty);
    refuses(&ENCRYPTED, none, |plan| plan.trust = TrustLevel::TwoParty);
    refuses(&SHARES, none, |plan| linear(plan).shares = None);
    refuses(&AIDED, none, |plan| {
        linear(plan).shares = linear(&mut SHARES.clone()).shares
    });
    refuses(&SHARES, none, |plan| {
        activation(plan).protocol = Protocol::Reveal
    });
    refuses(&SHARES, none, |plan| {
        activation(plan).protocol = Protocol::Product
    });
    refuses(&AIDED, none, |plan| {
        activation(plan).protocol = Protocol::Garbled
    });
    refuses(&AIDED, none, |plan| {
        activation(plan).protocol = Protocol::Product
    });
}

#[test]
fn chains_of_functions() {
    refuses(&SHARES, "number of functions", |plan| {
        activation(plan).ops = vec![ActivationOp::Relu; 17];
    });
    refuses(&AIDED, "32 bits", |plan| {
        activation(plan).ops = vec![ActivationOp::Square; 16];
    });
    refuses(&SHARES, "one circuit", |plan| {
        let ActivationPlan { ops, .. } = activation(plan);
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
fn linear_parameters() {
    refuses(&AIDED, "degree", |plan| linear(plan).degree = 1024);
    refuses(&AIDED, "degree", |plan| linear(plan).degree = 0);
    // No prime, one without roots of unity, one for other words, one too wide for its degree.
    refuses(&AIDED, "odd prime", |plan| linear(plan).modulus += 1);
    refuses(&AIDED, "odd prime", |plan| {
        linear(plan).modulus = 12_289 * 4096 + 1
    });
    refuses(&AIDED, "NTT", |plan| linear(plan).modulus = 1_000_003);
    refuses(&AIDED, "wider words", |plan| {
        linear(plan).modulus = largest_ntt_prime(40, 2048).expect("there is one");
    });
    refuses(&AIDED, "60 bits", |plan| {
        let linear = linear(plan);
        (linear.word, linear.modulus) = (WordSize::U64, u64::MAX);
    });
    refuses(&AIDED, "security", |plan| {
        let linear = linear(plan);
        linear.word = WordSize::U64;
        linear.degree = 2048;
        linear.modulus = largest_ntt_prime(58, 2048).expect("there is one");
    });
    refuses(&AIDED, "dropped bits", |plan| linear(plan).scale_log = 0);
    refuses(&AIDED, "dropped bits", |plan| {
        linear(plan).scale_log = linear(plan).modulus_bits();
    });
    refuses(&AIDED, "dropped bits", |plan| {
        linear(plan).dropped_bits = linear(plan).scale_log;
    });
    refuses(&AIDED, "dropped bits", |plan| {
        linear(plan).dropped_bits_a = linear(plan).scale_log;
    });
    refuses(&AIDED, "inputs", |plan| {
        linear(plan).scale_log = linear(plan).modulus_bits() - 2;
    });
    refuses(&AIDED, "coefficient engine", |plan| {
        linear(plan).engine = Engine::Coefficient;
    });
}

/// Answers come in one part that is the value, or in two digits of it.
#[test]
fn parts_of_answers() {
    let part = |left_shift, low, high| Part {
        left_shift,
        low,
        high,
    };
    refuses(&AIDED, "parts", |plan| linear(plan).parts.clear());
    refuses(&AIDED, "parts", |plan| {
        linear(plan).parts = vec![part(0, 0, 1); 3];
    });
    refuses(&AIDED, "a part has range", |plan| {
        linear(plan).parts = vec![part(0, 1, 0)];
    });
    refuses(&AIDED, "a part has range", |plan| {
        linear(plan).parts = vec![part(32, 0, 1)];
    });
    refuses(&AIDED, "answers", |plan| {
        linear(plan).parts = vec![part(0, i32::MIN, i32::MAX)];
    });
    let neither = "neither its value nor";
    refuses(&AIDED, neither, |plan| linear(plan).parts[0].high -= 1);
    refuses(&AIDED, neither, |plan| linear(plan).parts[0].left_shift = 1);
    for shifts in [[0, 0], [8, 0], [1, 1], [0, 1]] {
        refuses(&AIDED, neither, |plan| {
            linear(plan).parts = shifts.map(|shift| part(shift, 0, 1)).to_vec();
        });
    }
}

#[test]
fn parameters_of_shares() {
    refuses(&SHARES, "does not hold its shares", |plan| {
        linear(plan).shares.as_mut().expect("shares").value_bits = 60;
    });
    refuses(&SHARES, "one part", |plan| linear(plan).parts[0].low += 1);
    refuses(&SHARES, "one part", |plan| linear(plan).parts.clear());
    refuses(&SHARES, "secrets with one", |plan| {
        let linear = linear(plan);
        linear.word = WordSize::U64;
        linear.degree = 2048;
        linear.modulus = largest_ntt_prime(53, 2048).expect("there is one");
    });
    refuses(&SHARES, "answers lose", |plan| {
        linear(plan).dropped_bits = linear(plan).modulus_bits() - 1;
    });
    refuses(&SHARES, "answers lose", |plan| {
        linear(plan).dropped_bits_a = linear(plan).modulus_bits();
    });
    refuses(&SHARES, "another kind", |plan| {
        linear(plan).engine = Engine::Slot
    });
    let first = find(&SHARES, |kind| matches!(kind, StepKind::Linear(_)));
    refuses(&SHARES, "bits", |plan| {
        let StepKind::Linear(linear) = &mut plan.steps[first].kind else {
            unreachable!("the step is linear")
        };
        linear.shares.as_mut().expect("shares").value_bits += 1;
    });
    // Too few guard bits for the error, and too many for a word.
    refuses(&SHARES, "Error", |plan| {
        linear(plan).shares.as_mut().expect("shares").guard_bits = 1;
    });
    refuses(&RESIDUAL, "Error", |plan| {
        for step in &mut plan.steps {
            if let StepKind::Linear(linear) = &mut step.kind {
                linear.shares.as_mut().expect("shares").guard_bits = 1;
            }
        }
    });
    // A local step's value takes a bit more than its range, for errors of guard bits.
    let whole = value(&[4], i32::MIN, i32::MAX);
    let wide = plan_of(
        TrustLevel::TwoParty,
        vec![
            step(StepKind::Input, &[], whole.clone()),
            step(StepKind::Local(LocalOp::Reshape), &[0], whole.clone()),
            step(StepKind::Open, &[1], whole),
        ],
    );
    assert!(refusal(&wide).is_some_and(|reason| reason.contains("Width { bits: 33 }")));
}

/// Layers take exact shares: circuits before them drop the guard bits.
#[test]
fn inexact_shares() {
    let reshape = find(&SHARES, |kind| {
        matches!(kind, StepKind::Local(LocalOp::Reshape))
    });
    refuses(&SHARES, "Inexact", |plan| {
        let layer = plan.steps[1].value.clone();
        let step = &mut plan.steps[reshape];
        step.inputs = vec![1];
        (step.value.low, step.value.high) = (layer.low, layer.high);
        step.value.fraction_bits = layer.fraction_bits;
    });
    // A square before its circuit.
    let product = find(
        &SQUARE,
        |kind| matches!(kind, StepKind::Activation(activation) if activation.protocol == Protocol::Product),
    );
    refuses(&SQUARE, "shares do not work out", |plan| {
        plan.steps[product].inputs = vec![1];
    });
}

#[test]
fn layers_that_fit_no_polynomial() {
    // One output reads 61 rows and columns.
    let mut wide = shared(&dense(None), Engine::Batch, None).plan;
    let geometry = &mut linear(&mut wide).geometry;
    geometry.input = [64, 64];
    (geometry.in_channels, geometry.out_channels) = (1, 1);
    geometry.window = window(3, 1, 0);
    geometry.window.dilation = [30, 30];
    wide.steps[0].value.shape = vec![1, 64, 64];
    wide.steps[1].value.shape = vec![1, 4, 4];
    wide.steps[2].value.shape = vec![1, 4, 4];
    assert_eq!(linear(&mut wide).degree, 2048);
    refuses(&wide, "does not fit a polynomial", |plan| {
        linear(plan).engine = Engine::Coefficient;
    });
    let narrow = shared(&dense(None), Engine::Coefficient, None).plan;
    refuses(&narrow, "coefficients, more than", |plan| {
        linear(plan).geometry.out_channels = 1 << 18;
        plan.steps[1].value.shape = vec![1 << 18];
        plan.steps[2].value.shape = vec![1 << 18];
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
fn windows_of_pools() {
    let pool = |input: &[usize], output: &[usize], window| {
        let ops = vec![ActivationOp::MaxPool { window }];
        let kind = StepKind::Activation(ActivationPlan {
            protocol: Protocol::Garbled,
            ops,
        });
        plan_of(
            TrustLevel::TwoParty,
            vec![
                step(StepKind::Input, &[], value(input, -8, 7)),
                step(kind, &[0], value(output, -8, 7)),
                step(StepKind::Open, &[1], value(output, -8, 7)),
            ],
        )
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
    let most = 1 + garbled::MAX_WINDOW.isqrt();
    refused(
        pool(&[1, most, most], &[1, 1, 1], window(most, 1, 0)),
        "more than 1024 values",
    );
    // One window of each of many sizes.
    refused(
        pool(&[1, 29, 29], &[1, 31, 31], window(29, 1, 15)),
        "circuits of their own",
    );
}

#[test]
fn slots_parameters() {
    refuses(&SLOTS, "residues", |plan| slots(plan).t = 1 << 31);
    refuses(&SLOTS, "residues", |plan| slots(plan).t = 3);
    // No prime, none with slots, and another than that of the other step.
    refuses(&SLOTS, "not a prime", |plan| slots(plan).t -= 1);
    refuses(&SLOTS, "prime", |plan| {
        let (t, degree) = (slots(plan).t, slots(plan).scheme.degree);
        let bits = u64::BITS - t.leading_zeros() + 1;
        slots(plan).t = largest_ntt_prime(bits, degree).expect("there is one");
    });
    refuses(&SLOTS, "no variant", |plan| {
        slots(plan).scheme.degree = 1024
    });
    refuses(&SLOTS, "no variant", |plan| slots(plan).scheme.chain = 255);
    refuses(&SLOTS, "elements", |plan| {
        slots(plan).geometry.in_channels = 1
    });
}

#[test]
fn networks_on_ciphertexts() {
    refuses(&ENCRYPTED, "only step", |plan| {
        plan.trust = TrustLevel::ClientAided;
    });
    refuses(&ENCRYPTED, "only step", |plan| plan.output = 0);
    refuses(&ENCRYPTED, "only step", |plan| {
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
    refuses(&ENCRYPTED, "flood", |plan| encrypted(plan).flood_log = 201);
    refuses(&ENCRYPTED, "inputs", |plan| encrypted(plan).scale_log = 121);
    refuses(&ENCRYPTED, "results", |plan| {
        encrypted(plan).answer_scale = 1e300
    });
}
