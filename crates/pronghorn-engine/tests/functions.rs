//! Smooth functions between layers: runs equal the fixed-point oracle bit for bit, and the oracle
//! the float network as closely as the plan says.

use crate::common::{check, networks::made_lean, numbers, tensors};
use pronghorn_graph::graph::Graph;
use pronghorn_plan::{
    BuildError, BuildOptions, Engine, Step, StepKind, TrustLevel, build,
    steps::activation::lean::Transfers,
};

const FUNCTIONS: [&str; 10] = [
    r#"{"name":"hard_swish"}"#,
    r#"{"name":"swish","beta":1.0}"#,
    r#"{"name":"gelu"}"#,
    r#"{"name":"gelu_tanh"}"#,
    r#"{"name":"mish"}"#,
    r#"{"name":"softplus"}"#,
    r#"{"name":"elu","scale":1.0,"width":1.0}"#,
    r#"{"name":"sigmoid"}"#,
    r#"{"name":"tanh"}"#,
    r#"{"name":"softsign"}"#,
];

/// Values of one image of [`network`].
const INPUTS: usize = 72;

/// A convolution, the function, one convolution for each channel, the function, a dense layer.
fn network(function: &str) -> Graph {
    let window = |kernel: usize| {
        format!(
            r#"{{"kernel":[{kernel},{kernel}],"stride":[1,1],"dilation":[1,1],"padding":[0,0,0,0]}}"#
        )
    };
    let function = |name: &str, input: usize, shape: &str| {
        format!(
            r#"{{"name":"{name}","op":{{"kind":"function","function":{function}}},"inputs":[{input}],"shape":{shape}}}"#
        )
    };
    let json = format!(
        r#"{{"name":"smooth","output":6,"nodes":[
        {{"name":"x","op":{{"kind":"input"}},"inputs":[],"shape":[2,6,6]}},
        {{"name":"c1","op":{{"kind":"conv","window":{},"groups":1,"weight":"w1","bias":"b1"}},"inputs":[0],"shape":[4,4,4]}},
        {},
        {{"name":"c2","op":{{"kind":"conv","window":{},"groups":4,"weight":"w2","bias":"b1"}},"inputs":[2],"shape":[4,3,3]}},
        {},
        {{"name":"fl","op":{{"kind":"reshape"}},"inputs":[4],"shape":[36]}},
        {{"name":"fc","op":{{"kind":"dense","weight":"w3","bias":"b3"}},"inputs":[5],"shape":[5]}}]}}"#,
        window(3),
        function("f1", 1, "[4,4,4]"),
        window(2),
        function("f2", 3, "[4,3,3]"),
    );
    let shapes: [(&str, &[usize]); 5] = [
        ("w1", &[4, 2, 3, 3]),
        ("b1", &[4]),
        ("w2", &[4, 1, 2, 2]),
        ("w3", &[5, 36]),
        ("b3", &[5]),
    ];
    Graph::from_json(&json, tensors(&shapes, 4)).expect("the network is valid")
}

fn options(trust: TrustLevel, engine: Option<Engine>) -> BuildOptions {
    BuildOptions {
        trust: Some(trust),
        samples: Some(numbers(INPUTS * 40, 77)),
        engine,
        ..BuildOptions::default()
    }
}

#[test]
fn functions_on_shares_equal_the_oracle() {
    for function in FUNCTIONS {
        let built = build(&network(function), &options(TrustLevel::TwoParty, None));
        let built = built.expect("the network has a plan");
        assert!(
            built.fidelity.error < 0.1,
            "{function}: {:?}",
            built.fidelity
        );
        // One circuit rounds and looks up.
        let circuits = built
            .plan
            .steps
            .iter()
            .filter(|step| matches!(step.kind, StepKind::Garbled(_)));
        assert_eq!(circuits.count(), 2, "{function}: {}", built.plan);
        for batch in [1, 3] {
            check(&built, &numbers(INPUTS * batch, 5), batch);
        }
        let built = made_lean(built, Transfers::Extension);
        let lean = |step: &&Step| matches!(step.kind, StepKind::Lean(_));
        assert_eq!(built.plan.steps.iter().filter(lean).count(), 2);
        check(&built, &numbers(INPUTS * 3, 5), 3);
    }
}

/// Modulo a prime, and on batches.
#[test]
fn functions_in_other_engines_equal_the_oracle() {
    for engine in [Engine::Slot, Engine::Batch] {
        for function in [FUNCTIONS[1], FUNCTIONS[7]] {
            let built = build(
                &network(function),
                &options(TrustLevel::TwoParty, Some(engine)),
            );
            let built = built.expect("the network has a plan");
            check(&built, &numbers(INPUTS * 2, 6), 2);
            let built = made_lean(built, Transfers::Silent);
            check(&built, &numbers(INPUTS * 2, 6), 2);
        }
    }
}

#[test]
fn functions_by_the_client_equal_the_oracle() {
    for function in FUNCTIONS {
        let built = build(&network(function), &options(TrustLevel::ClientAided, None));
        let built = built.expect("the network has a plan");
        assert!(
            built.fidelity.error < 0.05,
            "{function}: {:?}",
            built.fidelity
        );
        check(&built, &numbers(INPUTS * 3, 5), 3);
    }
}

#[test]
fn encrypted_networks_have_no_functions() {
    let refused = build(
        &network(FUNCTIONS[1]),
        &options(TrustLevel::Encrypted, None),
    );
    let error: BuildError = refused.err().expect("no polynomial is a SiLU");
    assert!(error.to_string().contains("f1 (Swish"), "{error}");
}
