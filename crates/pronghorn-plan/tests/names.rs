//! A plan has no name of the model's file: neither its bytes nor what a client prints of it.

use crate::common::networks::{deep, network, options, plan as planned};
use pronghorn_graph::graph::Graph;
use pronghorn_plan::{BuildOptions, CheckedPlan, Engine, Plan, TrustLevel, summary::Summary};

/// In the name of the model and of every node.
const TELLING: &str = "patient_hiv_head";

/// Networks for each trust level and engine, whose names tell what they are for.
fn models() -> Vec<(Graph, BuildOptions)> {
    let aided =
        [Engine::Batch, Engine::Coefficient].map(|engine| (TrustLevel::ClientAided, engine));
    let shared = [Engine::Batch, Engine::Coefficient, Engine::Slot];
    let shared = shared.map(|engine| (TrustLevel::TwoParty, engine));
    let engines = aided.into_iter().chain(shared).map(|(trust, engine)| {
        let options = BuildOptions {
            engine: Some(engine),
            ..options(trust)
        };
        (network(1), options)
    });
    let encrypted = (deep(2), options(TrustLevel::Encrypted));
    let mut models: Vec<_> = engines.chain([encrypted]).collect();
    for (graph, _) in &mut models {
        graph.name = TELLING.to_owned();
        for node in &mut graph.nodes {
            node.name = format!("{TELLING}/{}", node.name);
        }
    }
    models
}

#[test]
fn names_of_the_file_stay_with_the_owner() {
    for (graph, options) in models() {
        let case = (options.trust, options.engine);
        let built = planned(&graph, options);
        let bytes = built.plan.to_bytes();
        let found = bytes.windows(TELLING.len());
        assert!(
            !found.into_iter().any(|part| part == TELLING.as_bytes()),
            "{case:?}"
        );
        let plan = Plan::from_bytes(&bytes).expect("it is a plan");
        for text in [plan.to_json(), plan.to_string(), format!("{plan:#}")] {
            assert!(
                !text.contains("hiv") && text.contains("model"),
                "{case:?}: {text}"
            );
        }
        // The owner's prints have them.
        assert_eq!(built.names.steps.len(), plan.steps.len());
        let first = format!("0 {TELLING}/");
        for text in [built.text(false), built.text(true)] {
            assert!(
                text.starts_with(&format!("plan of {TELLING}")),
                "{case:?}: {text}"
            );
            assert!(text.contains(&first), "{case:?}: {text}");
        }
        let summary = Summary::of(&built);
        assert_eq!(summary.names.model, TELLING);
        assert!(summary.cost.steps.each[0].name.starts_with(TELLING));
    }
}

/// One network under other names has one plan, and its owner may give it a name.
#[test]
fn the_hash_is_of_what_is_sent() {
    let hash = |name: Option<&str>, telling: bool| {
        let mut graph = network(1);
        if telling {
            graph.name = TELLING.to_owned();
            graph.nodes[1].name = TELLING.to_owned();
        }
        let options = BuildOptions {
            name: name.map(str::to_owned),
            engine: Some(Engine::Coefficient),
            ..options(TrustLevel::TwoParty)
        };
        let plan = planned(&graph, options).plan;
        assert_eq!(plan.model, name.unwrap_or("model"));
        let read: CheckedPlan = Plan::from_bytes(&plan.to_bytes()).expect("it is a plan");
        assert_eq!(read.hash(), plan.hash());
        plan.hash()
    };
    assert_eq!(hash(None, false), hash(None, true));
    assert_ne!(hash(None, false), hash(Some("triage"), false));
}

/// A refusal at the client names a step by its number and kind.
#[test]
fn refusals_name_number_and_kind() {
    let options = BuildOptions {
        engine: Some(Engine::Coefficient),
        ..options(TrustLevel::TwoParty)
    };
    let mut plan = planned(&network(1), options).plan.plan().clone();
    plan.steps[1].inputs = vec![9];
    let error = CheckedPlan::new(plan).expect_err("it reads what comes later");
    let text = error.to_string();
    assert!(text.starts_with("the plan's step 1 (conv): "), "{text}");
}
