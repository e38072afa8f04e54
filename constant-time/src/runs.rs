//! Whole predictions in one process: every random byte and every input is secret, every message
//! public.

use std::collections::BTreeMap;

use pronghorn_engine::{ClientRun, EngineError, Machine, ServerModel, ServerRun, Want};
use pronghorn_graph::graph::{Graph, Tensor};
use pronghorn_plan::{
    BuildOptions, Built, CheckedPlan, Engine, Opening, StepKind, TrustLevel, build,
    steps::activation::{
        garbled::Garbled,
        lean::{Lean, Transfers},
    },
};

use crate::{memcheck, randomness};

/// A layer, a ReLU, a product and a layer.
const SHARES: &str = r#"{"name":"gated","output":6,"nodes":[
{"name":"x","op":{"kind":"input"},"inputs":[],"shape":[2]},
{"name":"fc1","op":{"kind":"dense","weight":"fc1.w","bias":null},"inputs":[0],"shape":[3]},
{"name":"r","op":{"kind":"relu"},"inputs":[1],"shape":[3]},
{"name":"t","op":{"kind":"take","axis":0,"indices":[1]},"inputs":[2],"shape":[1]},
{"name":"cl","op":{"kind":"clip","min":0.0,"max":1.0},"inputs":[3],"shape":[1]},
{"name":"m","op":{"kind":"multiply"},"inputs":[2,4],"shape":[3]},
{"name":"fc2","op":{"kind":"dense","weight":"fc2.w","bias":null},"inputs":[5],"shape":[2]}]}"#;

/// A layer, a ReLU and a layer.
const PLAIN: &str = r#"{"name":"plain","output":3,"nodes":[
{"name":"x","op":{"kind":"input"},"inputs":[],"shape":[2]},
{"name":"fc1","op":{"kind":"dense","weight":"fc1.w","bias":null},"inputs":[0],"shape":[3]},
{"name":"r","op":{"kind":"relu"},"inputs":[1],"shape":[3]},
{"name":"fc2","op":{"kind":"dense","weight":"fc2.w","bias":null},"inputs":[2],"shape":[2]}]}"#;

/// A layer, a square and a layer.
const POLYNOMIAL: &str = r#"{"name":"polynomial","output":3,"nodes":[
{"name":"x","op":{"kind":"input"},"inputs":[],"shape":[2]},
{"name":"fc1","op":{"kind":"dense","weight":"fc1.w","bias":null},"inputs":[0],"shape":[3]},
{"name":"s","op":{"kind":"square"},"inputs":[1],"shape":[3]},
{"name":"fc2","op":{"kind":"dense","weight":"fc2.w","bias":null},"inputs":[2],"shape":[2]}]}"#;

fn planned(network: &str, options: &BuildOptions) -> Built {
    let tensor = |name: &str, shape: [usize; 2]| {
        let value = |index: usize| (index * 37 % 101) as f32 / 101.0 - 0.45;
        let data = (0..shape.iter().product()).map(value).collect();
        let shape = shape.to_vec();
        (name.to_owned(), Tensor::new(shape, data))
    };
    let tensors = BTreeMap::from([tensor("fc1.w", [3, 2]), tensor("fc2.w", [2, 3])]);
    let graph = Graph::from_json(network, tensors).expect("the network is valid");
    build(&graph, options).expect("the network has a plan")
}

fn shares(engine: Engine) -> BuildOptions {
    BuildOptions {
        trust: Some(TrustLevel::TwoParty),
        engine: Some(engine),
        ..BuildOptions::default()
    }
}

/// `two-party`, coefficients, garbled circuits.
pub fn coefficients() {
    predict(&planned(SHARES, &shares(Engine::Coefficient)));
}

/// `two-party`, one coefficient an image.
pub fn batches() {
    predict(&planned(PLAIN, &shares(Engine::Batch)));
}

/// `two-party`, slots.
pub fn slots() {
    predict(&planned(PLAIN, &shares(Engine::Slot)));
}

/// `two-party`, the class alone.
pub fn class() {
    let options = BuildOptions {
        opening: Some(Opening::Class),
        lpn: false,
        ..shares(Engine::Coefficient)
    };
    predict(&planned(PLAIN, &options));
}

/// `two-party`, lean steps with OTs by extension.
pub fn lean() {
    predict(&with_lean_steps(Transfers::Extension));
}

/// `two-party`, lean steps with silent OTs.
pub fn silent() {
    predict(&with_lean_steps(Transfers::Silent));
}

/// A lean step in the place of each garbled one that can be.
fn with_lean_steps(transfers: Transfers) -> Built {
    let mut built = planned(PLAIN, &shares(Engine::Coefficient));
    for index in 0..built.plan.steps.len() {
        let mut plan = built.plan.plan().clone();
        if let StepKind::Garbled(Garbled { ops }) = &plan.steps[index].kind {
            let ops = ops.clone();
            plan.steps[index].kind = StepKind::Lean(Lean { ops, transfers });
            built.plan = CheckedPlan::new(plan).unwrap_or(built.plan);
        }
    }
    built
}

/// `encrypted`.
pub fn encrypted() {
    let options = BuildOptions {
        trust: Some(TrustLevel::Encrypted),
        ..BuildOptions::default()
    };
    predict(&planned(POLYNOMIAL, &options));
}

/// `client-aided` in an engine.
fn client_aided(engine: Engine) {
    let options = BuildOptions {
        trust: Some(TrustLevel::ClientAided),
        ..shares(engine)
    };
    predict(&planned(PLAIN, &options));
}

/// `client-aided`, one coefficient an image.
pub fn client_aided_batches() {
    client_aided(Engine::Batch);
}

/// `client-aided`, coefficients.
pub fn client_aided_coefficients() {
    client_aided(Engine::Coefficient);
}

/// One image through both parties.
fn predict(built: &Built) {
    let model = ServerModel::new(built).expect("weights fit the plan");
    let input: Vec<f32> = (0..model.plan().input_len() as u64)
        .map(|index| (randomness::word(index) >> 40) as f32 / (1 << 24) as f32)
        .collect();
    memcheck::secret(&input);
    let mut client = ClientRun::new(model.plan().clone(), &input, 1).expect("an image");
    let mut server = ServerRun::new(&model, 1).expect("a batch");
    let mut message = Vec::new();
    loop {
        message.clear();
        let (from, to): (
            &mut dyn Machine<Error = EngineError>,
            &mut dyn Machine<Error = EngineError>,
        ) = match (client.want(), server.want()) {
            (Want::Send, Want::Receive) => (&mut client, &mut server),
            (Want::Receive, Want::Send) => (&mut server, &mut client),
            (Want::Done, Want::Done) => return,
            _ => panic!("the parties are out of step"),
        };
        from.send(&mut message).expect("a message");
        memcheck::public(&message);
        to.receive(&message).expect("a sound message");
    }
}
