//! Share forms: guard bits, errors, moduli.

use crate::common::{
    batch, find,
    networks::{
        Middle, around, attention, dense, network, options, plan, pooled_input, shared, wide,
    },
    plan_of, step, value, window,
};
use pronghorn_graph::{
    fixed::{ActivationOp, LocalOp, ValueSpec},
    graph::{Graph, Tensor},
};
use pronghorn_mpc::circuit::Modulus;
use pronghorn_plan::{
    BuildOptions, Built, CheckedPlan, Engine, Plan, ShareBits, Step, StepKind, TrustLevel,
    share_form::{
        self, Fault, LEAST_GUARD, MAX_BITS, Node, Readers, ShareForm, ShareRules, Takes, Tolerates,
        guard_for, share_forms,
    },
    steps::{
        activation::{garbled::Garbled, lean::Lean},
        local::{left_shift, with_guards},
    },
};

/// The steps of a plan that need not be valid.
fn nodes(plan: &Plan) -> Vec<Node<'_>> {
    plan.steps.iter().map(Step::node).collect()
}

/// The share forms of a plan that need not be valid.
fn forms(plan: &Plan) -> Vec<ShareForm> {
    share_forms(&nodes(plan))
}

/// A linear step whose shares have so many guard bits.
fn layer(shape: &[usize], guard_bits: u32) -> Step {
    let built = shared(&dense(None), Engine::Batch, None);
    let mut linear = batch(&mut built.plan.plan().clone()).clone();
    linear.shares = ShareBits {
        value_bits: 8,
        guard_bits,
    };
    step(
        StepKind::SharedLinear(linear),
        &[0],
        value(shape, -100, 100),
    )
}

/// The share form of a local step on two layers with 2 and 4 guard bits.
fn of_local(op: &LocalOp, inputs: &[usize], shape: &[usize]) -> ShareForm {
    let input = step(StepKind::Input, &[], value(&[1, 2, 2], -8, 7));
    let (first, second) = (layer(&[1, 2, 2], 2), layer(&[1, 2, 2], 4));
    let local = step(
        StepKind::Local(op.clone()),
        inputs,
        value(shape, -2000, 2000),
    );
    let plan = plan_of(TrustLevel::TwoParty, vec![input, first, second, local]);
    forms(&plan)[3]
}

#[test]
fn forms_have_a_modulus() {
    let exact = ShareForm::exact(9);
    let wanted = ShareForm {
        bits: 9,
        prime: None,
        guard: 0,
        error: 0,
    };
    assert_eq!(exact, wanted);
    assert_eq!(exact.modulus(), Modulus::power_of_two(9));
    assert_eq!(ShareForm::guarded(9, 0, 0), exact);
    let guarded = ShareForm::guarded(9, 3, 2);
    assert_eq!((guarded.bits, guarded.value_bits()), (12, 9));
    assert_eq!((guarded.guard, guarded.error, guarded.prime), (3, 2, None));
    assert_eq!(guarded.modulus(), Modulus::power_of_two(12));
    let residues = ShareForm {
        prime: Some(12_289),
        ..ShareForm::exact(14)
    };
    assert_eq!(residues.modulus(), Modulus::prime(12_289));
    // Of a plan that is not valid: no panic, and no modulus.
    assert_eq!(ShareForm::guarded(9, u32::MAX, 1).bits, u32::MAX);
    for bits in [0, 65] {
        assert!(ShareForm::exact(bits).modulus().is_err());
    }
    let composite = ShareForm {
        prime: Some(12_288),
        ..exact
    };
    assert!(composite.modulus().is_err());
}

/// A protocol that says nothing of shares.
struct Plain;

impl ShareRules for Plain {}

/// A protocol whose value is shared modulo a prime.
struct Residues;

impl ShareRules for Residues {
    fn prime(&self) -> Option<u64> {
        Some(12_289)
    }

    fn makes_residues(&self, _inputs: bool, _readers: Readers) -> bool {
        true
    }
}

/// By default, a step takes any shares and makes exact ones modulo a power of two.
#[test]
fn default_rules() {
    assert_eq!(Plain.prime(), None);
    assert!(!Plain.makes_residues(true, Readers::default()));
    assert_eq!(
        (Plain.takes(), Plain.tolerates(), Plain.margin()),
        (Takes::Any, Tolerates::Everything, 0)
    );
    let nothing: [usize; 0] = [];
    let node = |rules, inputs, value| Node {
        rules,
        inputs,
        value,
    };
    let (narrow, wide): (ValueSpec, _) = (value(&[4], -8, 7), value(&[4], -100, 100));
    let of_narrow = node(&Residues, &nothing, &narrow);
    assert_eq!(Plain.input_bits(20, 0, &of_narrow), 0);
    let guarded = ShareForm::guarded(9, 3, 2);
    assert_eq!(Plain.form(17, &[guarded]), ShareForm::exact(17));
    // Inputs modulo a prime change nothing: the word of the range, without a margin.
    let nodes = [of_narrow, node(&Plain, &[0], &wide)];
    let forms = share_forms(&nodes);
    assert_eq!(forms[0].prime, Some(12_289));
    assert_eq!(forms[1], ShareForm::exact(8));
    assert_eq!(share_form::fault(&nodes, &forms), None);
}

/// A prime that does not hold a value leaves its shares modulo a power of two.
#[test]
fn primes_hold_their_values() {
    for (reach, prime) in [(6144, Some(12_289)), (6145, None)] {
        let value = value(&[4], -reach, reach);
        let node = Node {
            rules: &Residues,
            inputs: &[],
            value: &value,
        };
        assert_eq!(share_forms(&[node])[0].prime, prime, "{reach}");
    }
}

#[test]
fn layers_leave_an_error_of_one() {
    let plan = plan_of(
        TrustLevel::TwoParty,
        vec![
            step(StepKind::Input, &[], value(&[4], -8, 7)),
            layer(&[4], 3),
            step(StepKind::Open, &[1], value(&[4], -100, 100)),
        ],
    );
    // -101..=101 takes 8 bits. The input takes as many, since the layer is modulo 2^8.
    let exact = ShareForm::exact;
    let layer = ShareForm {
        bits: 11,
        prime: None,
        guard: 3,
        error: 1,
    };
    assert_eq!(forms(&plan), [exact(8), layer, exact(8)]);
    assert_eq!(layer.value_bits(), 8);
}

#[test]
fn errors_add_up_in_sums() {
    let op = LocalOp::Add { left_shift: [0, 1] };
    let of = of_local(&op, &[1, 2], &[1, 2, 2]);
    // The first is shifted up by the 2 guard bits that it lacks, the second by 1.
    assert_eq!((of.guard, of.error, of.value_bits()), (4, 4 + 2, 12));
    assert_eq!(
        [left_shift(&op, 0), left_shift(&op, 1), left_shift(&op, 2)],
        [0, 1, 0]
    );
}

#[test]
fn errors_are_the_largest_in_concatenations() {
    let op = LocalOp::Concat {
        axis: 0,
        left_shift: vec![0, 3],
    };
    let of = of_local(&op, &[1, 2], &[2, 2, 2]);
    assert_eq!((of.guard, of.error), (4, 8));
    assert_eq!(
        [left_shift(&op, 0), left_shift(&op, 1), left_shift(&op, 2)],
        [0, 3, 0]
    );
}

#[test]
fn errors_add_up_in_pools() {
    let op = LocalOp::SumPool {
        window: window(2, 2, 0),
        multipliers: vec![3],
    };
    let of = of_local(&op, &[1], &[1, 1, 1]);
    assert_eq!((of.guard, of.error), (2, 4 * 3));
    // The largest of several multipliers counts.
    let op = LocalOp::SumPool {
        window: window(1, 1, 0),
        multipliers: vec![1, 5, 2, 1],
    };
    assert_eq!(of_local(&op, &[2], &[1, 2, 2]).error, 5);
    // A bound that does not fit is the largest there is.
    let op = LocalOp::SumPool {
        window: window(1 << 31, 1, 0),
        multipliers: vec![i32::MAX],
    };
    assert_eq!(of_local(&op, &[2], &[1, 1, 1]).error, u64::MAX);
}

#[test]
fn other_local_steps_keep_errors() {
    let pad = LocalOp::Pad {
        before: vec![0, 1, 1],
        after: vec![0, 1, 1],
    };
    for (op, shape) in [(LocalOp::Reshape, &[4][..]), (pad, &[1, 4, 4])] {
        let of = of_local(&op, &[2], shape);
        assert_eq!((of.guard, of.error), (4, 1), "{op:?}");
    }
}

#[test]
fn inputs_are_shifted_to_common_guard_bits() {
    let guard = |guard| ShareForm {
        bits: 12,
        prime: None,
        guard,
        error: 1,
    };
    let inputs = [guard(2), guard(5)];
    let add = LocalOp::Add { left_shift: [1, 0] };
    assert_eq!(
        with_guards(&add, &inputs, 5),
        LocalOp::Add { left_shift: [4, 0] }
    );
    let concat = LocalOp::Concat {
        axis: 1,
        left_shift: vec![0, 7],
    };
    let shifted = LocalOp::Concat {
        axis: 1,
        left_shift: vec![3, 7],
    };
    assert_eq!(with_guards(&concat, &inputs, 5), shifted);
    assert_eq!(
        with_guards(&LocalOp::Reshape, &inputs[..1], 2),
        LocalOp::Reshape
    );
}

/// Errors of `0..=2 error factor` stay below the unit, and one bit less would not do.
#[test]
fn guard_bits_hold_errors() {
    assert_eq!(guard_for(0, 7), 0);
    assert_eq!(
        [
            guard_for(1, 1),
            guard_for(2, 1),
            guard_for(1, 4),
            guard_for(3, 5)
        ],
        [2, 3, 4, 5]
    );
    for error in 1..200 {
        for factor in [1, 2, 3, 10, 1 << 20] {
            let (guard, reach) = (guard_for(error, factor), 2 * error * factor);
            assert!(
                reach < 1 << guard && reach >= 1 << (guard - 1),
                "{error} {factor}"
            );
        }
    }
    assert_eq!(guard_for(u64::MAX, 1), 65);
}

#[test]
fn faults_are_found() {
    let input = || step(StepKind::Input, &[], value(&[4], -8, 7));
    let open = |of| step(StepKind::Open, &[of], value(&[4], -100, 100));
    let find_in = |steps: Vec<Step>| {
        let plan = plan_of(TrustLevel::TwoParty, steps);
        share_form::fault(&nodes(&plan), &forms(&plan))
    };
    assert_eq!(find_in(vec![input(), layer(&[4], 2), open(1)]), None);
    let too_few = Fault::Error { input: 1, guard: 2 };
    assert_eq!(
        find_in(vec![input(), layer(&[4], 1), open(1)]),
        Some((2, too_few))
    );
    let mut second = layer(&[4], 2);
    second.inputs = vec![1];
    let inexact = Fault::Inexact { input: 1 };
    assert_eq!(
        find_in(vec![input(), layer(&[4], 2), second, open(2)]),
        Some((2, inexact.clone()))
    );
    let product = step(StepKind::Product, &[1, 1], value(&[4], -100, 100));
    assert_eq!(
        find_in(vec![input(), layer(&[4], 2), product, open(2)]),
        Some((2, inexact))
    );
    let wide = Fault::Width { bits: 8 + 25 };
    assert_eq!(
        find_in(vec![input(), layer(&[4], 25), open(1)]),
        Some((1, wide))
    );
    // A slope multiplies errors.
    let leaky = Garbled {
        ops: vec![ActivationOp::LeakyRelu { slope: 3, shift: 4 }],
    };
    let leaky = step(StepKind::Garbled(leaky), &[1], value(&[4], -300, 1600));
    let too_few = Fault::Error { input: 1, guard: 6 };
    assert_eq!(
        find_in(vec![input(), layer(&[4], 5), leaky, open(2)]),
        Some((2, too_few))
    );
}

/// Plans with all kinds of steps.
fn planned() -> Vec<Built> {
    use Middle::*;
    let mut plans = vec![wide(Engine::Batch), wide(Engine::Coefficient)];
    for engine in [Engine::Batch, Engine::Coefficient, Engine::Slot] {
        plans.push(shared(&network(1), engine, None));
        plans.push(shared(&pooled_input(), engine, None));
        plans.push(shared(&attention(), engine, None));
        for middle in [
            Square,
            LeakyRelu,
            PaddedMaxPool,
            AveragePool,
            Residual,
            Concat,
            Takes,
            Gate,
            Attention,
        ] {
            plans.push(shared(&around(middle), engine, None));
        }
    }
    plans
}

/// Words hold what they must: values with guard bits and errors, or residues.
#[test]
fn words_hold_values() {
    for built in planned() {
        let plan = &built.plan;
        assert_eq!(plan.forms(), forms(plan));
        assert_eq!(share_form::fault(&nodes(plan), plan.forms()), None);
        for (index, (step, of)) in plan.steps.iter().zip(plan.forms()).enumerate() {
            let (low, high) = (i128::from(step.value.low), i128::from(step.value.high));
            if let Some(prime) = of.prime {
                assert!(high.max(-low) <= i128::from(prime / 2), "step {index}");
                assert_eq!((of.guard, of.error), (0, 0), "step {index}");
                continue;
            }
            assert!(of.bits <= MAX_BITS);
            let (half, error) = (1i128 << (of.bits - 1), i128::from(of.error));
            let fits = (high << of.guard) + error < half && (low << of.guard) - error >= -half;
            assert!(fits, "step {index}: {low}..={high}, {of:?}");
        }
    }
}

/// Steps read shares modulo a number that their own divides, exact where they must be.
#[test]
fn steps_read_shares_that_they_take() {
    for built in planned() {
        let plan = &built.plan;
        let forms = plan.forms();
        for (index, step) in plan.steps.iter().enumerate() {
            for (place, input) in step.inputs.iter().map(|&input| forms[input]).enumerate() {
                let of = forms[index];
                match &step.kind {
                    StepKind::SharedLinear(_) | StepKind::CoefficientLinear(_) => {
                        assert_eq!((input.prime, input.guard), (None, 0));
                        assert!(input.bits >= of.value_bits());
                    }
                    StepKind::Square | StepKind::Product => {
                        assert_eq!((input.prime, input.guard), (None, 0));
                        assert!(input.bits >= of.bits);
                    }
                    StepKind::SlotLinear(slots) => {
                        assert_eq!(input.prime, Some(slots.t));
                        assert_eq!(of.prime, Some(slots.t));
                    }
                    StepKind::Local(op) => {
                        assert_eq!(input.prime, of.prime);
                        let shifted = input.value_bits() + left_shift(op, place);
                        assert!(of.prime.is_some() || shifted >= of.value_bits());
                    }
                    _ => assert!(input.guard == 0 || input.guard >= guard_for(input.error, 1)),
                }
            }
        }
    }
}

/// Differences of the values that a maximum or a leaky ReLU compares fit a lean step, however
/// precise the layer.
#[test]
fn comparisons_of_precise_layers_are_lean() {
    let mut widest = 0;
    for middle in [Middle::MaxPool, Middle::PaddedMaxPool, Middle::LeakyRelu] {
        for error in [1e-2, 1e-3, 3e-4, 2e-4] {
            let graph = around(middle);
            let options = BuildOptions {
                engine: Some(Engine::Coefficient),
                error: Some(error),
                ..options(TrustLevel::TwoParty)
            };
            let plan = plan(&graph, options).plan;
            let ops = |step: &Step| match &step.kind {
                StepKind::Garbled(Garbled { ops }) | StepKind::Lean(Lean { ops, .. }) => {
                    ops.clone()
                }
                _ => Vec::new(),
            };
            let compares = |op: &ActivationOp| {
                matches!(
                    op,
                    ActivationOp::MaxPool { .. } | ActivationOp::LeakyRelu { .. }
                )
            };
            let compared = plan
                .steps
                .iter()
                .find(|step| ops(step).iter().any(compares));
            let mut input = &plan.steps[compared.expect("values are compared").inputs[0]];
            // A wide value is rounded before its slope.
            if !ops(input).is_empty() {
                input = &plan.steps[input.inputs[0]];
            }
            let input = &input.value;
            let difference = i64::from(input.high) - i64::from(input.low);
            // One for the sign.
            let bits = 64 - difference.leading_zeros() + 1;
            assert!(bits + LEAST_GUARD < MAX_BITS, "{error}: {bits} bits");
            widest = widest.max(bits);
        }
    }
    // The layers are precise enough to matter.
    assert!(widest >= 28, "{widest}");
}

/// Guard bits of a network's first layer.
fn guard_of(middle: Middle) -> u32 {
    let plan = shared(&around(middle), Engine::Coefficient, None).plan;
    let is_layer = |kind: &StepKind| matches!(kind, StepKind::CoefficientLinear(_));
    plan.forms()[find(&plan, is_layer)].guard
}

/// The planner takes the fewest guard bits that do.
#[test]
fn planned_guard_bits() {
    assert_eq!(guard_of(Middle::Relu), LEAST_GUARD);
    assert_eq!(guard_of(Middle::MaxPool), LEAST_GUARD);
    // Four errors of one.
    assert_eq!(guard_of(Middle::AveragePool), guard_for(4, 1));
    let plan = shared(&around(Middle::LeakyRelu), Engine::Coefficient, None).plan;
    let factor = plan.steps.iter().find_map(|step| match &step.kind {
        StepKind::Garbled(garbled) => garbled.ops.iter().find_map(|op| match op {
            ActivationOp::LeakyRelu { slope, shift } => Some((*slope as u64).max(1 << shift)),
            _ => None,
        }),
        _ => None,
    });
    let factor = factor.expect("there is a leaky ReLU");
    assert_eq!(guard_of(Middle::LeakyRelu), guard_for(1, factor));
    assert!(guard_of(Middle::LeakyRelu) > LEAST_GUARD);
}

/// Trained weights that happen to be one power of two stay a layer: a plan tells no weights.
#[test]
fn trained_weights_that_are_alike_are_no_constants() {
    let nodes = |mul: &str| {
        format!(
            r#"{{"name":"alike","output":2,"nodes":[
            {{"name":"x","op":{{"kind":"input"}},"inputs":[],"shape":[4]}},
            {{"name":"scale","op":{{"kind":"affine","mul":{mul},"add":"add"}},"inputs":[0],"shape":[4]}},
            {{"name":"relu","op":{{"kind":"relu"}},"inputs":[1],"shape":[4]}}]}}"#
        )
    };
    for (mul, is_bias) in [("null", true), ("\"mul\"", false)] {
        let tensor = |data: [f32; 4]| Tensor::new([4], data.to_vec());
        let tensors = [
            ("mul".to_string(), tensor([0.5; 4])),
            ("add".to_string(), tensor([0.25, -1.0, 3.0, 0.0])),
        ];
        let graph = Graph::from_json(&nodes(mul), tensors.into()).expect("it is valid");
        let plan = shared(&graph, Engine::Coefficient, None).plan;
        let found = plan
            .steps
            .iter()
            .any(|step| matches!(step.kind, StepKind::Bias(_)));
        assert_eq!(found, is_bias, "{mul}");
    }
}

/// `(x + a mean(x))^2`: a plan tells the factors of its sums, so that `a` is none of them unless it
/// is a sign.
#[test]
fn factors_of_means_are_no_part_of_a_plan() {
    let nodes = r#"{"name":"means","output":7,"nodes":[
        {"name":"x","op":{"kind":"input"},"inputs":[],"shape":[2,4,4]},
        {"name":"relu","op":{"kind":"relu"},"inputs":[0],"shape":[2,4,4]},
        {"name":"mean","op":{"kind":"global_average_pool"},"inputs":[1],"shape":[2,1,1]},
        {"name":"factor","op":{"kind":"affine","mul":"mul","add":null},"inputs":[2],"shape":[2,1,1]},
        {"name":"rows","op":{"kind":"take","axis":1,"indices":[0,0,0,0]},"inputs":[3],"shape":[2,4,1]},
        {"name":"all","op":{"kind":"take","axis":2,"indices":[0,0,0,0]},"inputs":[4],"shape":[2,4,4]},
        {"name":"sum","op":{"kind":"add"},"inputs":[1,5],"shape":[2,4,4]},
        {"name":"square","op":{"kind":"square"},"inputs":[6],"shape":[2,4,4]}]}"#;
    for (factor, layers) in [(-1.0, 0), (-0.71, 1), (1.3, 1)] {
        let mul = ("mul".to_string(), Tensor::new([1], vec![factor]));
        let graph = Graph::from_json(nodes, [mul].into()).expect("it is valid");
        let plan = shared(&graph, Engine::Coefficient, None).plan;
        let found = kinds(&plan).into_iter().filter(|&kind| kind == "layer");
        assert_eq!(found.count(), layers, "{factor}");
    }
}

/// The kinds of a plan's steps, a word each.
fn kinds(plan: &CheckedPlan) -> Vec<&'static str> {
    let kind = |step: &Step| match &step.kind {
        StepKind::Input => "input",
        StepKind::ClearLinear(_) => "clear",
        StepKind::SharedLinear(_) | StepKind::CoefficientLinear(_) => "layer",
        StepKind::SlotLinear(_) => "slots",
        StepKind::Local(_) => "local",
        StepKind::Garbled(garbled) if garbled.ops.is_empty() => "exact",
        StepKind::Garbled(_) => "circuit",
        StepKind::Square => "square",
        StepKind::Product | StepKind::ClearProduct => "product",
        StepKind::Reveal(_) => "revealed",
        StepKind::Open => "open",
        StepKind::Encrypted(_) => "encrypted",
        StepKind::Features(_) => "features",
        // Toys, where the engine's tests are built with these.
        #[allow(unreachable_patterns)]
        _ => "toy",
    };
    plan.steps.iter().map(kind).collect()
}

/// One circuit rounds a factor for the mean and for the product, and no more is converted.
#[test]
fn products_take_what_circuits_make() {
    let plan = shared(&around(Middle::Gate), Engine::Coefficient, None).plan;
    let kinds = kinds(&plan);
    let products = kinds.iter().filter(|&&kind| kind == "product").count();
    assert_eq!(products, 3, "{kinds:?}");
    assert!(!kinds.contains(&"exact"), "{kinds:?}");
    assert_eq!(kinds[..4], ["input", "layer", "circuit", "local"]);
    let first = find(&plan, |kind| *kind == StepKind::Product);
    assert!(plan.steps[first].inputs.contains(&2), "{kinds:?}");
    // On slots, circuits change from the prime.
    let plan = shared(&around(Middle::Gate), Engine::Slot, None).plan;
    let product = find(&plan, |kind| *kind == StepKind::Product);
    let inputs = &plan.steps[product].inputs;
    assert!(
        inputs
            .iter()
            .all(|&input| plan.forms()[input].prime.is_none())
    );
}

/// Circuits change from guard bits to exact shares, and between a prime and a power of two.
#[test]
fn circuits_convert_shares() {
    // With more bits a circuit would round before the square.
    let square = |engine| shared(&around(Middle::Square), engine, Some((5, 5))).plan;
    let plan = square(Engine::Coefficient);
    let wanted = [
        "input", "layer", "exact", "square", "circuit", "local", "layer", "open",
    ];
    assert_eq!(kinds(&plan), wanted);
    let plan = square(Engine::Slot);
    let wanted = [
        "input", "slots", "exact", "square", "circuit", "local", "slots", "open",
    ];
    assert_eq!(kinds(&plan), wanted);
    let t = plan
        .steps
        .iter()
        .find_map(|step| step.kind.as_step().prime());
    assert!(t.is_some());
    let primes: Vec<Option<u64>> = plan.forms().iter().map(|form| form.prime).collect();
    assert_eq!(primes, [t, t, None, None, t, t, t, None]);
    // Nothing is converted where no step asks for it.
    for engine in [Engine::Batch, Engine::Coefficient, Engine::Slot] {
        let plan = shared(&around(Middle::Relu), engine, None).plan;
        assert!(!kinds(&plan).contains(&"exact"), "{engine:?}");
    }
}
