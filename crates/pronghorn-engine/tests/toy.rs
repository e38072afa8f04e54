//! The toy protocols of `docs/adding-a-protocol.md`: a plan by hand, run in process.

use std::sync::Arc;

use crate::common::{
    check, exchange_with, numbers,
    transcript::{
        self,
        Act::{Batch, Online, Prepare},
        Message, Party,
    },
};
use pronghorn_engine::{ClientRun, EngineError, ServerModel, ServerRun};
use pronghorn_graph::{
    fixed::{ActivationOp, FixedGraph, FixedNode, FixedOp, Linear, ValueSpec},
    geometry::{ConvGeometry, Window},
};
use pronghorn_plan::{
    Built, CheckedPlan, Names, Plan, PlanError, Step, StepKind, TrustLevel, Weights, cost,
    plan::FORMAT,
    steps::toy::{Toy, insecure_linear::InsecureLinear, insecure_relu::InsecureRelu},
};

/// Names of the steps.
const NAMES: [&str; 5] = ["input", "first", "relu", "second", "open"];

/// Messages of one image without a set-up, in order: sender, step.
const ORDER: [(Party, usize); 6] = [
    (Party::Client, 1),
    (Party::Server, 1),
    (Party::Server, 2),
    (Party::Client, 3),
    (Party::Server, 3),
    (Party::Server, 4),
];

/// Messages of the set-up of oblivious transfers, which every plan on shares has.
const SET_UP: usize = 5;

/// A value of so many elements with 4 bits below the unit.
fn value(elements: usize, [low, high]: [i32; 2]) -> ValueSpec {
    ValueSpec {
        shape: vec![elements],
        fraction_bits: 4,
        low,
        high,
    }
}

/// Four values in, three in between, two out.
fn values() -> [ValueSpec; 5] {
    [
        value(4, [-8, 7]),
        value(3, [-99, 100]),
        value(3, [0, 100]),
        value(2, [-1_000, 1_000]),
        value(2, [-1_000, 1_000]),
    ]
}

fn first() -> Linear {
    Linear {
        geometry: ConvGeometry::dense(4, 3),
        weights: vec![1, -2, 3, -4, 0, 5, 0, -1, 2, 2, 2, 2],
        bias: vec![10, -20, 0],
    }
}

fn second() -> Linear {
    Linear {
        geometry: ConvGeometry::dense(3, 2),
        weights: vec![1, -3, 2, -1, 4, 0],
        bias: vec![0, 7],
    }
}

fn insecure_linear(linear: &Linear) -> StepKind {
    StepKind::Toy(Toy::InsecureLinear(InsecureLinear {
        geometry: linear.geometry.clone(),
    }))
}

fn plan() -> Plan {
    let kinds = [
        StepKind::Input,
        insecure_linear(&first()),
        StepKind::Toy(Toy::InsecureRelu(InsecureRelu {})),
        insecure_linear(&second()),
        StepKind::Open,
    ];
    let parts = kinds.into_iter().zip(values()).enumerate();
    let step = |(index, (kind, value)): (usize, (StepKind, ValueSpec))| Step {
        kind,
        inputs: index.checked_sub(1).into_iter().collect(),
        value,
    };
    Plan {
        band_bytes: pronghorn_plan::plan::BAND_BYTES,
        key_checks: 1,
        sampled: None,
        deviations: None,
        categories: vec![],
        class_names: vec![],
        columns: vec![],
        outputs: vec![],
        format: FORMAT,
        model: "toy".to_owned(),
        trust: TrustLevel::TwoParty,
        steps: parts.map(step).collect(),
        output: 4,
        finish: Vec::new(),
        max_batch: 8,
    }
}

/// The network in integers, for the oracle.
fn graph() -> FixedGraph {
    let ops = [
        FixedOp::Input,
        FixedOp::Linear(first()),
        FixedOp::Activation(ActivationOp::Relu),
        FixedOp::Linear(second()),
    ];
    let nodes = ops.into_iter().zip(values()).enumerate();
    let node = |(index, (op, value)): (usize, (FixedOp, ValueSpec))| FixedNode {
        name: NAMES[index].to_owned(),
        op,
        inputs: index.checked_sub(1).into_iter().collect(),
        value,
    };
    FixedGraph {
        name: "toy".to_owned(),
        nodes: nodes.map(node).collect(),
        output: 3,
        finish: Vec::new(),
    }
}

fn built() -> Built {
    Built {
        plan: CheckedPlan::new(plan()).expect("the plan is complete"),
        names: Names {
            model: "toy".to_owned(),
            steps: NAMES.map(str::to_owned).into(),
        },
        weights: vec![
            Weights::None,
            Weights::Layer(first()),
            Weights::None,
            Weights::Layer(second()),
            Weights::None,
        ],
        computation: Arc::new(graph()),
        fidelity: Default::default(),
    }
}

/// A run of one image, with `on_the_way` given the index and the bytes of each message.
fn run(
    inputs: &[f32],
    on_the_way: impl FnMut(usize, &mut Vec<u8>),
) -> Result<Vec<i32>, EngineError> {
    let built = built();
    let model = ServerModel::new(&built).expect("the weights fit");
    let mut client = ClientRun::new(built.plan, inputs, 1).expect("the input fits");
    let mut server = ServerRun::new(&model, 1).expect("the batch fits");
    exchange_with(&mut client, &mut server, on_the_way)?;
    client.finish_integers()
}

/// `x = (1, 2, 3, 4)`: the first layer gives `(0, -14, 20)`, the ReLU `(0, 0, 20)`.
#[test]
fn known_answers() {
    let inputs = [1, 2, 3, 4].map(|x| x as f32 / 16.0);
    let found = run(&inputs, |_, _| {}).expect("an honest run succeeds");
    assert_eq!(found, [40, 7]);
}

#[test]
fn batches_equal_the_oracle() {
    for batch in [1, 3, 8] {
        check(&built(), &numbers(4 * batch, batch as u64), batch);
    }
}

/// The messages of a batch without a set-up, each with the bytes that the plan counts.
fn assert_costs(plan: &CheckedPlan, messages: &[Message], images: usize) {
    assert_eq!(messages.len(), ORDER.len());
    for (message, (party, index)) in messages.iter().zip(ORDER) {
        let cost = cost::step(plan, index, images);
        let bytes = match party {
            Party::Client => cost.bytes_up,
            Party::Server => cost.bytes_down,
        };
        assert_eq!(message.party, party, "{}", NAMES[index]);
        assert_eq!(message.length as u64, bytes, "{}", NAMES[index]);
    }
}

/// Each record is of a run that equalled the oracle, at once or with masks of the offline part.
#[test]
fn messages_have_the_bytes_that_the_plan_counts() {
    let built = built();
    let script = [Batch(3), Batch(3), Prepare(5), Online(5)];
    let records = transcript::record("toy", &built, &script);
    assert_costs(&built.plan, &records[0].messages[SET_UP..], 3);
    assert_costs(&built.plan, &records[1].messages, 3);
    assert_eq!(records[2].messages.len(), 0);
    assert_costs(&built.plan, &records[3].messages, 5);
    let stored = [0, 1].map(|party| records[2].stored[party].length);
    assert!(stored[1] >= stored[0] + 2 * 32, "{stored:?}: two seeds");
}

#[test]
fn messages_of_another_length_are_refused() {
    for (index, (_, step)) in ORDER.into_iter().enumerate() {
        let longer = run(&[0.0; 4], |count, message| {
            if count == SET_UP + index {
                message.push(0);
            }
        });
        let step = plan().step_name(step);
        assert!(
            matches!(longer, Err(EngineError::Length { step: ref found, .. }) if *found == step),
            "message {index}"
        );
    }
}

/// Half the modulus more brings the value 2 to -126, which is outside its range.
#[test]
fn shares_outside_their_range_are_refused() {
    for (index, step) in [
        (1, "2 (activation)"),
        (2, "2 (activation)"),
        (3, "3 (dense)"),
    ] {
        let wrong = run(&[0.25; 4], |count, message| {
            if count == SET_UP + index {
                message[0] ^= 0x80;
            }
        });
        assert!(
            matches!(wrong, Err(EngineError::Opened { step: ref found, .. }) if found == step),
            "message {index}"
        );
    }
}

#[test]
fn a_plan_with_toys_prints_itself_and_parses() {
    let built = built();
    let (plan, text) = (&built.plan, built.text(false));
    for line in [
        "1 first   INSECURE toy, dense 4 to 3     3            0.002 kB  0.003 kB",
        "2 relu    INSECURE toy, relu by the client  3               0.003 kB",
    ] {
        let squeezed = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(squeezed(&text).contains(&squeezed(line)), "{text}");
    }
    let parsed = Plan::from_bytes(&plan.to_bytes()).expect("its own bytes");
    assert_eq!(parsed, *plan);
}

fn reason(change: impl FnOnce(&mut Plan)) -> String {
    let mut plan = plan();
    change(&mut plan);
    match CheckedPlan::new(plan) {
        Err(PlanError::Step { reason, .. }) => reason,
        other => panic!("{other:?}"),
    }
}

#[test]
fn plans_that_do_not_fit_are_refused() {
    let convolution = reason(|plan| {
        let geometry = ConvGeometry {
            in_channels: 1,
            input: [1, 4],
            window: Window::plain([1, 4]),
            ..ConvGeometry::dense(4, 3)
        };
        plan.steps[1].kind = StepKind::Toy(Toy::InsecureLinear(InsecureLinear { geometry }));
    });
    assert!(convolution.contains("dense layers alone"), "{convolution}");
    let narrow = reason(|plan| plan.steps[2].value.high = 99);
    assert!(narrow.contains("outside its range"), "{narrow}");
    let sizes = reason(|plan| plan.steps[1].value.shape = vec![5]);
    assert!(sizes.contains("elements of the result"), "{sizes}");
    let trust = reason(|plan| plan.trust = TrustLevel::ClientAided);
    assert!(trust.contains("trust level"), "{trust}");
}

#[test]
fn weights_that_are_missing_are_refused() {
    let mut built = built();
    built.weights[3] = Weights::None;
    assert!(matches!(
        ServerModel::new(&built),
        Err(EngineError::Unsupported { .. })
    ));
}
