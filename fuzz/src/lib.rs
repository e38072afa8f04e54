//! What the fuzz targets share: a small network, and edits that turn good bytes into nearly good
//! ones.

use std::collections::BTreeMap;

use libfuzzer_sys::arbitrary::{self, Arbitrary};
use pronghorn_engine::{ClientRun, EngineError};
use pronghorn_graph::graph::{Graph, Tensor};
use pronghorn_plan::{
    BuildOptions, Built, CheckedPlan, Engine, Opening, Step, StepKind, TrustLevel, build,
    steps::activation::{
        garbled::Garbled,
        lean::{Lean, Transfers},
    },
};

/// A network with most kinds of steps, as JSON.
pub const NETWORK: &str = r#"{"name":"tiny","output":12,"nodes":[
{"name":"x","op":{"kind":"input"},"inputs":[],"shape":[2,4,4]},
{"name":"c","op":{"kind":"conv","window":{"kernel":[3,3],"stride":[1,1],"dilation":[1,1],"padding":[1,1,1,1]},"groups":2,"weight":"c.w","bias":"c.b"},"inputs":[0],"shape":[2,4,4]},
{"name":"r","op":{"kind":"relu"},"inputs":[1],"shape":[2,4,4]},
{"name":"add","op":{"kind":"add"},"inputs":[2,0],"shape":[2,4,4]},
{"name":"cl","op":{"kind":"clip","min":-1.0,"max":6.0},"inputs":[3],"shape":[2,4,4]},
{"name":"mp","op":{"kind":"max_pool","window":{"kernel":[2,2],"stride":[2,2],"dilation":[1,1],"padding":[0,0,0,0]}},"inputs":[4],"shape":[2,2,2]},
{"name":"pad","op":{"kind":"pad","before":[0,1,0],"after":[0,0,1]},"inputs":[5],"shape":[2,3,3]},
{"name":"cat","op":{"kind":"concat","axis":0},"inputs":[6,6],"shape":[4,3,3]},
{"name":"ap","op":{"kind":"average_pool","window":{"kernel":[2,2],"stride":[1,1],"dilation":[1,1],"padding":[0,0,0,0]},"count_include_pad":true},"inputs":[7],"shape":[4,2,2]},
{"name":"fl","op":{"kind":"reshape"},"inputs":[8],"shape":[16]},
{"name":"f","op":{"kind":"function","function":{"name":"swish","beta":1.0}},"inputs":[9],"shape":[16]},
{"name":"fc","op":{"kind":"dense","weight":"fc.w","bias":"fc.b"},"inputs":[10],"shape":[3]},
{"name":"sm","op":{"kind":"softmax"},"inputs":[11],"shape":[3]}]}"#;

/// Its weights.
pub fn tensors() -> BTreeMap<String, Tensor> {
    let tensor = |name: &str, shape: &[usize]| {
        let value = |index: usize| (index * 37 % 101) as f32 / 101.0 - 0.45;
        let data = (0..shape.iter().product()).map(value).collect();
        (name.to_owned(), Tensor::new(shape, data))
    };
    [
        tensor("c.w", &[2, 1, 3, 3]),
        tensor("c.b", &[2]),
        tensor("fc.w", &[3, 16]),
        tensor("fc.b", &[3]),
    ]
    .into()
}

/// A network of few ciphertext rows, for targets that run it.
pub const SMALL_NETWORK: &str = r#"{"name":"small","output":3,"nodes":[
{"name":"x","op":{"kind":"input"},"inputs":[],"shape":[2]},
{"name":"fc1","op":{"kind":"dense","weight":"fc1.w","bias":null},"inputs":[0],"shape":[3]},
{"name":"r","op":{"kind":"relu"},"inputs":[1],"shape":[3]},
{"name":"fc2","op":{"kind":"dense","weight":"fc2.w","bias":null},"inputs":[2],"shape":[1]}]}"#;

/// The small network with its plan.
pub fn small() -> Built {
    small_with(&options())
}

/// The small network on shares, in an engine.
pub fn small_in(engine: Engine) -> Built {
    small_with(&BuildOptions {
        trust: Some(TrustLevel::TwoParty),
        engine: Some(engine),
        ..BuildOptions::default()
    })
}

/// The small network whose client learns a class alone.
pub fn class() -> Built {
    small_with(&BuildOptions {
        trust: Some(TrustLevel::TwoParty),
        engine: Some(Engine::Coefficient),
        opening: Some(Opening::Class),
        lpn: false,
        ..BuildOptions::default()
    })
}

/// The small network with a lean step in the place of each garbled one that can be.
pub fn lean(transfers: Transfers) -> Built {
    let mut built = small_in(Engine::Coefficient);
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

fn small_with(options: &BuildOptions) -> Built {
    let graph = Graph::from_json(SMALL_NETWORK, small_tensors()).expect("the network is valid");
    build(&graph, options).expect("the network has a plan")
}

fn small_tensors() -> BTreeMap<String, Tensor> {
    let tensor = |name: &str, shape: [usize; 2], data: &[f32]| {
        (name.to_owned(), Tensor::new(shape, data.to_vec()))
    };
    [
        tensor("fc1.w", [3, 2], &[0.5, -0.25, 0.1, 0.9, -0.7, 0.3]),
        tensor("fc2.w", [1, 3], &[0.4, -0.6, 0.2]),
    ]
    .into()
}

/// The network with its plan.
pub fn built() -> Built {
    let graph = Graph::from_json(NETWORK, tensors()).expect("the network is valid");
    build(&graph, &options()).expect("the network has a plan")
}

/// The network with a plan on shares.
pub fn shared() -> Built {
    let graph = Graph::from_json(NETWORK, tensors()).expect("the network is valid");
    let options = BuildOptions {
        trust: Some(TrustLevel::TwoParty),
        ..options()
    };
    build(&graph, &options).expect("the network has a plan")
}

/// A polynomial network of few ciphertext rows, deep enough to be relinearised.
pub const POLYNOMIAL: &str = r#"{"name":"polynomial","output":7,"nodes":[
{"name":"x","op":{"kind":"input"},"inputs":[],"shape":[2]},
{"name":"fc1","op":{"kind":"dense","weight":"fc1.w","bias":null},"inputs":[0],"shape":[3]},
{"name":"s1","op":{"kind":"square"},"inputs":[1],"shape":[3]},
{"name":"s2","op":{"kind":"square"},"inputs":[2],"shape":[3]},
{"name":"add","op":{"kind":"add"},"inputs":[3,1],"shape":[3]},
{"name":"s3","op":{"kind":"square"},"inputs":[4],"shape":[3]},
{"name":"s4","op":{"kind":"square"},"inputs":[5],"shape":[3]},
{"name":"fc2","op":{"kind":"dense","weight":"fc2.w","bias":null},"inputs":[6],"shape":[1]}]}"#;

/// The polynomial network with its plan.
pub fn polynomial() -> Built {
    let graph = Graph::from_json(POLYNOMIAL, small_tensors()).expect("the network is valid");
    let options = BuildOptions {
        trust: Some(TrustLevel::Encrypted),
        ..BuildOptions::default()
    };
    build(&graph, &options).expect("the network has a plan")
}

/// A network whose values a gate scales.
pub const GATED: &str = r#"{"name":"gated","output":6,"nodes":[
{"name":"x","op":{"kind":"input"},"inputs":[],"shape":[2]},
{"name":"fc1","op":{"kind":"dense","weight":"fc1.w","bias":null},"inputs":[0],"shape":[3]},
{"name":"r","op":{"kind":"relu"},"inputs":[1],"shape":[3]},
{"name":"t","op":{"kind":"take","axis":0,"indices":[1]},"inputs":[2],"shape":[1]},
{"name":"cl","op":{"kind":"clip","min":0.0,"max":1.0},"inputs":[3],"shape":[1]},
{"name":"m","op":{"kind":"multiply"},"inputs":[2,4],"shape":[3]},
{"name":"fc2","op":{"kind":"dense","weight":"fc2.w","bias":null},"inputs":[5],"shape":[1]}]}"#;

/// The gated network on shares.
pub fn gated() -> Built {
    let graph = Graph::from_json(GATED, small_tensors()).expect("the network is valid");
    let options = BuildOptions {
        trust: Some(TrustLevel::TwoParty),
        engine: Some(Engine::Coefficient),
        ..BuildOptions::default()
    };
    build(&graph, &options).expect("the network has a plan")
}

/// Rows that are multiplied with each other: enough for encryption to pay.
pub const ATTENTION: &str = r#"{"name":"attention","output":6,"nodes":[
{"name":"x","op":{"kind":"input"},"inputs":[],"shape":[2]},
{"name":"fc1","op":{"kind":"dense","weight":"rows.w","bias":null},"inputs":[0],"shape":[640]},
{"name":"rows","op":{"kind":"reshape"},"inputs":[1],"shape":[1,40,16]},
{"name":"turned","op":{"kind":"transpose","permutation":[0,2,1]},"inputs":[2],"shape":[1,16,40]},
{"name":"scores","op":{"kind":"mat_mul"},"inputs":[2,3],"shape":[1,40,40]},
{"name":"flat","op":{"kind":"reshape"},"inputs":[4],"shape":[1600]},
{"name":"fc2","op":{"kind":"dense","weight":"last.w","bias":null},"inputs":[5],"shape":[1]}]}"#;

/// The network with a product of matrices on shares.
pub fn attention() -> Built {
    let tensor = |name: &str, shape: [usize; 2]| {
        let numbers = (0..shape[0] * shape[1]).map(|at| (at as f32 * 0.7).sin());
        (name.to_owned(), Tensor::new(shape, numbers.collect()))
    };
    let tensors = [tensor("rows.w", [640, 2]), tensor("last.w", [1, 1600])].into();
    let graph = Graph::from_json(ATTENTION, tensors).expect("the network is valid");
    let options = BuildOptions {
        trust: Some(TrustLevel::TwoParty),
        engine: Some(Engine::Coefficient),
        ..BuildOptions::default()
    };
    let built = build(&graph, &options).expect("the network has a plan");
    let is_encrypted = |step: &Step| matches!(step.kind, StepKind::EncryptedMatrices(_));
    assert!(built.plan.steps.iter().any(is_encrypted));
    built
}

/// How it is planned.
pub fn options() -> BuildOptions {
    BuildOptions {
        trust: Some(TrustLevel::ClientAided),
        ..BuildOptions::default()
    }
}

/// Replaces `removed` bytes at `at` by `inserted`.
#[derive(Arbitrary, Debug)]
pub struct Splice {
    at: u16,
    removed: u8,
    inserted: Vec<u8>,
}

/// Applies edits to good bytes.
pub fn edited(mut bytes: Vec<u8>, splices: &[Splice]) -> Vec<u8> {
    for splice in splices {
        let start = usize::from(splice.at) % (bytes.len() + 1);
        let end = (start + usize::from(splice.removed)).min(bytes.len());
        bytes.splice(start..end, splice.inserted.iter().copied());
    }
    bytes
}

/// An object of a kind: edits of good bytes, and a cut behind them.
#[derive(Arbitrary, Debug)]
pub struct Damaged<Kind> {
    /// The kind.
    pub kind: Kind,
    splices: Vec<Splice>,
    cut: Option<u16>,
}

impl<Kind> Damaged<Kind> {
    /// The bytes from good ones.
    pub fn bytes(&self, good: &[u8]) -> Vec<u8> {
        let mut bytes = edited(good.to_vec(), &self.splices);
        bytes.truncate(self.cut.map_or(usize::MAX, usize::from));
        bytes
    }
}

/// What an encoder appends.
pub fn encoded(encode: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode(&mut bytes);
    bytes
}

/// Takes the result of a run. Where the peer was not honest it may be a failed check of decrypted
/// values, which the client keeps to itself until then.
pub fn finish(client: ClientRun, is_honest: bool) {
    match client.finish() {
        Ok(_) => {}
        Err(EngineError::Decryption { .. } | EngineError::Opened { .. }) if !is_honest => {}
        Err(error) => panic!("the batch is over: {error}"),
    }
}

/// Writes `bytes` over those at `at`: the length stays.
#[derive(Arbitrary, Debug)]
pub struct Patch {
    at: u32,
    bytes: Vec<u8>,
}

/// Applies patches to good bytes.
pub fn patched(mut bytes: Vec<u8>, patches: &[Patch]) -> Vec<u8> {
    for patch in patches {
        let start = patch.at as usize % bytes.len().max(1);
        let places = bytes.iter_mut().skip(start);
        places
            .zip(&patch.bytes)
            .for_each(|(place, &byte)| *place = byte);
    }
    bytes
}
