//! `two-party`: the run on shares equals the fixed-point oracle bit for bit, whatever the network.

use std::{
    convert::Infallible,
    sync::{Arc, Mutex},
};

use crate::common::{
    check, exchange, exchange_with, network,
    networks::{Middle, around, attention, class, dithered, lean, lean_with, shared, ties},
    numbers, run, tensors,
};
use pronghorn_engine::{
    ClientModel, ClientPreparation, ClientPrepared, ClientRun, Connection, EngineError, Machine,
    ServerModel, ServerPreparation, ServerPrepared, ServerRun, dither::Addends,
};
use pronghorn_graph::{
    fixed::{
        ActivationOp, LocalOp, ValueSpec,
        dither::{Dither, Place},
    },
    geometry::Window,
    graph::Graph,
    oracle::{self, OracleError},
};
use pronghorn_plan::{
    BuildOptions, Built, CheckedPlan, Engine, Plan, Step, StepKind, TrustLevel, build, cost,
    plan::FORMAT,
    steps::{
        activation::{garbled::Garbled, lean::Transfers, reveal::Reveal},
        linear::coefficient::CoefficientLinear,
    },
};
use proptest::prelude::*;

fn built(seed: u64, bits: Option<(u32, u32)>) -> Built {
    built_in(None, seed, bits)
}

fn built_in(engine: Option<Engine>, seed: u64, bits: Option<(u32, u32)>) -> Built {
    let options = BuildOptions {
        trust: Some(TrustLevel::TwoParty),
        samples: Some(numbers(162 * 20, 77)),
        weight_bits: bits.map(|bits| bits.0),
        input_bits: bits.map(|bits| bits.1),
        // Few bits make large errors, which is what these tests are about.
        error: bits.map(|_| 10.0),
        engine,
        ..BuildOptions::default()
    };
    build(&network(seed), &options).expect("the test network has a plan")
}

#[test]
fn equals_the_oracle() {
    for engine in [Engine::Batch, Engine::Coefficient, Engine::Slot] {
        let built = built_in(Some(engine), 1, None);
        assert_eq!(built.plan.tolerance(), 0);
        for batch in [1, 7] {
            check(&built, &numbers(162 * batch, 5), batch);
        }
    }
}

/// Circuits on the input itself, which may be negative.
#[test]
fn inputs_that_circuits_read_equal_the_oracle() {
    let json = r#"{"name":"pool","output":3,"nodes":[
        {"name":"x","op":{"kind":"input"},"inputs":[],"shape":[2,4,4]},
        {"name":"mp","op":{"kind":"max_pool","window":{"kernel":[2,2],"stride":[2,2],"dilation":[1,1],"padding":[0,0,0,0]}},"inputs":[0],"shape":[2,2,2]},
        {"name":"fl","op":{"kind":"reshape"},"inputs":[1],"shape":[8]},
        {"name":"fc","op":{"kind":"dense","weight":"w","bias":"b"},"inputs":[2],"shape":[3]}]}"#;
    let weights = tensors(&[("w", &[3, 8][..]), ("b", &[3])], 4);
    let graph = Graph::from_json(json, weights).expect("the network is valid");
    for engine in [Engine::Batch, Engine::Coefficient, Engine::Slot] {
        let options = BuildOptions {
            trust: Some(TrustLevel::TwoParty),
            samples: Some(numbers(32 * 20, 77)),
            engine: Some(engine),
            ..BuildOptions::default()
        };
        let built = build(&graph, &options).expect("the network has a plan");
        check(&built, &numbers(32 * 3, 5), 3);
    }
}

/// A pool of 25 places in six parts, and results that are made exact by a lean step for the opening,
/// where there are many.
#[test]
fn pools_in_parts_and_many_results_equal_the_oracle() {
    for (results, is_lean) in [(5, false), (900, true)] {
        let json = r#"{"name":"pool","output":4,"nodes":[
            {"name":"x","op":{"kind":"input"},"inputs":[],"shape":[2,9,9]},
            {"name":"mp","op":{"kind":"max_pool","window":{"kernel":[5,5],"stride":[1,1],"dilation":[1,1],"padding":[2,2,2,2]}},"inputs":[0],"shape":[2,9,9]},
            {"name":"fl","op":{"kind":"reshape"},"inputs":[1],"shape":[162]},
            {"name":"fc","op":{"kind":"dense","weight":"w","bias":"b"},"inputs":[2],"shape":[RESULTS]},
            {"name":"r","op":{"kind":"reshape"},"inputs":[3],"shape":[RESULTS]}]}"#;
        let json = json.replace("RESULTS", &results.to_string());
        let weights = tensors(&[("w", &[results, 162][..]), ("b", &[results])], 4);
        let graph = Graph::from_json(&json, weights).expect("the network is valid");
        let built = shared(&graph, Engine::Coefficient, None);
        let ops = |step: &Step| match &step.kind {
            StepKind::Garbled(of) => Some(of.ops.clone()),
            StepKind::Lean(of) => Some(of.ops.clone()),
            _ => None,
        };
        let is_pool =
            |ops: &Vec<ActivationOp>| matches!(ops[..], [ActivationOp::MaxPool { .. }, ..]);
        let chains: Vec<_> = built.plan.steps.iter().filter_map(ops).collect();
        assert_eq!(chains.iter().filter(|ops| is_pool(ops)).count(), 6);
        assert_eq!(chains.last().is_some_and(Vec::is_empty), is_lean);
        for batch in [1, 3] {
            check(&built, &numbers(162 * batch, 6), batch);
        }
    }
}

/// Constants that the server adds to a ReLU's exact shares, and to a sum with guard bits.
#[test]
fn constants_equal_the_oracle() {
    for engine in [Engine::Batch, Engine::Coefficient, Engine::Slot] {
        let built = shared(&around(Middle::Bias), engine, None);
        let is_bias = |step: &&Step| matches!(step.kind, StepKind::Bias(_));
        let count = built.plan.steps.iter().filter(is_bias).count();
        // Layers on slots stay layers.
        assert_eq!(count, if engine == Engine::Slot { 0 } else { 2 });
        for batch in [1, 3] {
            check(&built, &numbers(32 * batch, 6), batch);
        }
    }
    let built = lean(&around(Middle::Bias), Engine::Coefficient, None);
    check(&built, &numbers(32 * 2, 6), 2);
}

/// Constants on the client's input, of which the server has no share before.
#[test]
fn constants_on_the_input_equal_the_oracle() {
    let json = r#"{"name":"bias","output":3,"nodes":[
        {"name":"x","op":{"kind":"input"},"inputs":[],"shape":[8]},
        {"name":"first","op":{"kind":"affine","mul":null,"add":"a"},"inputs":[0],"shape":[8]},
        {"name":"relu","op":{"kind":"relu"},"inputs":[1],"shape":[8]},
        {"name":"last","op":{"kind":"affine","mul":null,"add":"b"},"inputs":[2],"shape":[8]}]}"#;
    let weights = tensors(&[("a", &[8][..]), ("b", &[8])], 4);
    let graph = Graph::from_json(json, weights).expect("the network is valid");
    for engine in [Engine::Batch, Engine::Coefficient] {
        let options = BuildOptions {
            trust: Some(TrustLevel::TwoParty),
            samples: Some(numbers(8 * 20, 77)),
            engine: Some(engine),
            ..BuildOptions::default()
        };
        let built = build(&graph, &options).expect("the network has a plan");
        assert!(matches!(built.plan.steps[1].kind, StepKind::Bias(_)));
        check(&built, &numbers(8 * 3, 5), 3);
    }
}

/// No addend follows from the server's constants: a value whose share they shift up has no dither.
#[test]
fn constants_have_no_dither() {
    for (engine, bits) in [
        (Engine::Coefficient, (8, 4)),
        (Engine::Batch, (8, 8)),
        (Engine::Coefficient, (5, 5)),
    ] {
        let plan = dithered(&around(Middle::Bias), engine, Some(bits)).plan;
        for (index, _) in plan.dithered_steps() {
            let read = plan.steps[index].inputs[0];
            let shifts = match &plan.steps[read].kind {
                StepKind::Bias(bias) => bias.left_shift,
                _ => 0,
            };
            assert_eq!(shifts, 0, "step {index}");
        }
    }
}

/// Parts of values, repeated ones too, in each engine; and no circuit is made for a part.
#[test]
fn taken_parts_equal_the_oracle() {
    for engine in [Engine::Batch, Engine::Coefficient, Engine::Slot] {
        let built = shared(&around(Middle::Takes), engine, None);
        check(&built, &numbers(32 * 3, 5), 3);
        let circuits = |step: &&Step| matches!(step.kind, StepKind::Garbled(_));
        assert!(built.plan.steps.iter().filter(circuits).count() <= 2);
    }
}

/// With the addends of the run, at any precision, and the steps that do not round so.
#[test]
fn dithered_runs_equal_the_oracle_with_their_addends() {
    for engine in [Engine::Batch, Engine::Coefficient, Engine::Slot] {
        let mut found = 0;
        for middle in [
            Middle::Relu,
            Middle::LeakyRelu,
            Middle::Silu,
            Middle::PaddedMaxPool,
            Middle::Residual,
            Middle::Gate,
            Middle::Concat,
            Middle::Takes,
            Middle::Bias,
        ] {
            for bits in [None, Some((5, 4)), Some((8, 4)), Some((8, 8))] {
                let built = dithered(&around(middle), engine, bits);
                found += built.plan.dithered_steps().count();
                check(&built, &numbers(32 * 3, 5), 3);
            }
        }
        assert!(found >= 4, "{engine:?}: {found}");
        let built = dithered(&network(3), engine, None);
        assert!(built.plan.is_dithered());
        for batch in [1, 7] {
            check(&built, &numbers(162 * batch, 5), batch);
        }
    }
}

/// All bits of addends are fair: of 7 images, each within five standard deviations.
#[test]
fn addends_are_uniform() {
    for engine in [Engine::Batch, Engine::Coefficient] {
        let built = dithered(&network(3), engine, None);
        let model = Arc::new(ServerModel::new(&built).expect("weights fit the plan"));
        let inputs = numbers(162 * 7, 5);
        let (found, addends) = run(&model, &inputs, 7);
        let counted = Counted(addends, Mutex::default());
        let (integers, _) = built.plan.quantise(&inputs).expect("inputs are numbers");
        assert_eq!(built.oracle_of_run(&integers, 7, &counted), Ok(found));
        let counts = counted.1.into_inner().expect("no thread has failed");
        for (bit, [ones, all]) in counts.into_iter().enumerate() {
            let deviation = (2.0 * ones as f64 - all as f64) / (all as f64).sqrt();
            assert!(
                all > 1000 && deviation.abs() < 5.0,
                "bit {bit}: {ones} of {all}"
            );
        }
    }
}

/// Addends, and how many of each of their lowest bits are 1.
struct Counted(Addends, Mutex<[[u32; 2]; 5]>);

impl Dither for Counted {
    fn addend(&self, place: Place, value: i32, shift: u32) -> Option<u32> {
        let addend = self.0.addend(place, value, shift)?;
        let mut counts = self.1.lock().expect("no thread has failed");
        for (bit, [ones, all]) in counts.iter_mut().enumerate() {
            *ones += addend >> bit & 1;
            *all += 1;
        }
        Some(addend)
    }
}

/// The oracle takes no other run's addends, and two runs differ.
#[test]
fn addends_are_those_of_one_run() {
    let built = dithered(&network(3), Engine::Coefficient, None);
    let inputs = numbers(162 * 4, 5);
    let model = Arc::new(ServerModel::new(&built).expect("weights fit the plan"));
    let run = |inputs: &[f32]| run(&model, inputs, 4);
    let (first, addends) = run(&inputs);
    let (again, others) = run(&inputs);
    assert_ne!(first, again);
    let (integers, _) = built.plan.quantise(&inputs).expect("inputs are numbers");
    let with = |addends: &Addends| built.oracle_of_run(&integers, 4, addends);
    assert_eq!(with(&addends), Ok(first));
    assert_eq!(with(&others), Ok(again));
    let (_, strange) = run(&numbers(162 * 4, 6));
    assert!(matches!(with(&strange), Err(OracleError::Shares { .. })));
}

fn lean_steps(built: &Built) -> usize {
    let is_lean = |step: &&Step| matches!(step.kind, StepKind::Lean(_));
    built.plan.steps.iter().filter(is_lean).count()
}

/// Lean steps of all kinds of functions, at any precision, with garbled ones between them.
#[test]
fn lean_steps_equal_the_oracle() {
    for engine in [Engine::Batch, Engine::Coefficient] {
        for middle in [
            Middle::LeakyRelu,
            Middle::Silu,
            Middle::PaddedMaxPool,
            Middle::Residual,
            Middle::MaxPool,
            Middle::Gate,
        ] {
            let mut found = 0;
            for bits in [None, Some((5, 4)), Some((8, 8))] {
                let built = lean(&around(middle), engine, bits);
                found += lean_steps(&built);
                check(&built, &numbers(32 * 3, 5), 3);
            }
            assert!(found > 0, "{engine:?}");
        }
        let built = lean(&network(1), engine, None);
        assert!(lean_steps(&built) > 1);
        for batch in [1, 7] {
            check(&built, &numbers(162 * batch, 5), batch);
        }
    }
}

/// With silent OTs, too, in one batch, in later ones and prepared.
#[test]
fn lean_steps_on_silent_ots_equal_the_oracle() {
    let built = lean_with(&network(1), Engine::Coefficient, None, Transfers::Silent);
    check(&built, &numbers(162 * 7, 5), 7);
    let around = |middle| lean_with(&around(middle), Engine::Batch, None, Transfers::Silent);
    for middle in [Middle::Residual, Middle::PaddedMaxPool, Middle::Silu] {
        check_prepared(&around(middle));
    }
}

/// Prepared ones, too; steps whose shares depend on them are not prepared.
#[test]
fn prepared_lean_steps_equal_the_oracle() {
    for engine in [Engine::Batch, Engine::Coefficient] {
        for middle in [
            Middle::Residual,
            Middle::Gate,
            Middle::PaddedMaxPool,
            Middle::Silu,
        ] {
            check_prepared(&lean(&around(middle), engine, None));
        }
    }
}

#[test]
fn prepared_classes_equal_the_oracle() {
    for transfers in Transfers::ALL {
        check_prepared(&class(&ties(5), Engine::Coefficient, 3, transfers));
    }
}

/// Products of values of several shapes, in each engine; at any precision.
#[test]
fn products_equal_the_oracle() {
    for engine in [Engine::Batch, Engine::Coefficient, Engine::Slot] {
        for bits in [None, Some((5, 4)), Some((8, 8))] {
            let built = shared(&around(Middle::Gate), engine, bits);
            let products = |step: &&Step| step.kind == StepKind::Product;
            assert_eq!(built.plan.steps.iter().filter(products).count(), 3);
            check(&built, &numbers(32 * 3, 5), 3);
        }
    }
}

/// Prepared products equal the oracle, too, in each engine.
#[test]
fn prepared_products_equal_the_oracle() {
    for engine in [Engine::Batch, Engine::Coefficient, Engine::Slot] {
        check_prepared(&shared(&around(Middle::Gate), engine, None));
        check_prepared(&shared(&around(Middle::Attention), engine, None));
    }
}

/// Products of matrices under encryption, one of the client's input alone, at any precision; and
/// with lean steps around them.
#[test]
fn encrypted_products_of_matrices_equal_the_oracle() {
    let count = |built: &Built| {
        let products = |step: &&Step| matches!(step.kind, StepKind::EncryptedMatrices(_));
        built.plan.steps.iter().filter(products).count()
    };
    for engine in [Engine::Batch, Engine::Coefficient] {
        for bits in [None, Some((5, 4)), Some((8, 8))] {
            let built = shared(&attention(), engine, bits);
            assert_eq!(count(&built), 2);
            check(&built, &numbers(1280 * 2, 5), 2);
        }
        let built = shared(&attention(), engine, None);
        assert!(lean_steps(&built) > 0, "so large activations are lean");
        check_prepared(&built);
    }
}

/// Products of matrices, in each engine, at any precision.
#[test]
fn products_of_matrices_equal_the_oracle() {
    for engine in [Engine::Batch, Engine::Coefficient, Engine::Slot] {
        for bits in [None, Some((5, 4)), Some((8, 8))] {
            let built = shared(&around(Middle::Attention), engine, bits);
            let products = |step: &&Step| step.kind == StepKind::MatrixProduct;
            assert_eq!(built.plan.steps.iter().filter(products).count(), 2);
            check(&built, &numbers(32 * 3, 5), 3);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(6))]

    #[test]
    fn equals_the_oracle_at_any_precision(seed: u64, weight_bits in 3u32..8, input_bits in 3u32..7, batch in 1usize..4) {
        let built = built(seed, Some((weight_bits, input_bits)));
        check(&built, &numbers(162 * batch, seed ^ 1), batch);
    }
}

fn client_model(built: &Built) -> Arc<ClientModel> {
    Arc::new(ClientModel::new(built.plan.clone()).expect("the plan can be followed"))
}

/// What is published comes with the first batch of a connection alone, and serves batches of any
/// size exactly.
#[test]
fn later_batches_exchange_b_alone() {
    for (engine, published) in [
        (Engine::Batch, cost::published as fn(&CheckedPlan) -> u64),
        (Engine::Coefficient, cost::publication),
    ] {
        let built = built_in(Some(engine), 3, None);
        check_later_batches(&built, published(&built.plan));
    }
}

fn check_later_batches(built: &Built, published: u64) {
    let client_model = client_model(built);
    let model = Arc::new(ServerModel::new(built).expect("weights fit the plan"));
    let (client_keys, server_keys) = (Connection::default(), Connection::default());
    let mut sizes = Vec::new();
    for (batch, seed) in [(2, 9), (2, 10), (5, 11), (1, 12), (2, 13)] {
        let inputs = numbers(162 * batch, seed);
        let of_client = client_model.clone();
        let mut client = ClientRun::with_prepared(of_client, &inputs, batch, &client_keys, None)
            .expect("inputs fit");
        let mut server =
            ServerRun::with_prepared(&model, batch, &server_keys, None).expect("the batch fits");
        let mut bytes = 0;
        exchange_with(&mut client, &mut server, |_, message| {
            bytes += message.len() as u64;
        })
        .expect("an honest run succeeds");
        sizes.push(bytes);
        let (integers, _) = oracle::quantise_input(built.plan.input(), &inputs).expect("numbers");
        let wanted = built.oracle(&integers, batch).expect("whole images");
        assert_eq!(client.finish_integers().expect("the run is over"), wanted);
    }
    assert!(
        published > 0 && sizes[0] > sizes[1] + published,
        "{sizes:?}"
    );
    assert!(
        sizes[4] == sizes[1] && sizes[3] < sizes[1] && sizes[1] < sizes[2],
        "{sizes:?}"
    );
}

/// Several batches of a connection share one set-up of oblivious transfer.
#[test]
fn batches_share_a_set_up() {
    let built = built(3, None);
    let client_model = client_model(&built);
    let model = Arc::new(ServerModel::new(&built).expect("weights fit the plan"));
    let (client_keys, server_keys) = (Connection::default(), Connection::default());
    let inputs = numbers(162 * 2, 9);
    let mut outputs = Vec::new();
    let mut messages = Vec::new();
    for _ in 0..2 {
        let of_client = client_model.clone();
        let mut client = ClientRun::with_prepared(of_client, &inputs, 2, &client_keys, None)
            .expect("inputs fit");
        let mut server =
            ServerRun::with_prepared(&model, 2, &server_keys, None).expect("the batch fits");
        messages.push(exchange(&mut client, &mut server).expect("an honest run succeeds"));
        outputs.push(client.finish_integers().expect("the run is over"));
    }
    assert_eq!(outputs[0], outputs[1]);
    assert!(
        messages[1] < messages[0],
        "{messages:?}: the second batch sets nothing up"
    );
}

/// Both parties' connections.
type Keys = (Connection, Connection);

/// Both halves of a prepared batch of 3 images.
fn prepared(model: &ServerModel, keys: &Keys) -> (ClientPrepared, ServerPrepared) {
    let client = Arc::new(ClientModel::new(model.plan().clone()).expect("it can be followed"));
    let mut client = ClientPreparation::new(&client, 3, &keys.0).expect("the batch fits");
    let mut server = ServerPreparation::new(model, 3, &keys.1).expect("the batch fits");
    exchange(&mut client, &mut server).expect("an honest preparation succeeds");
    let progress = client.progress();
    assert_eq!(progress.done, progress.total);
    let client = client.into_prepared().expect("it is over");
    (client, server.into_prepared().expect("it is over"))
}

/// What `write` hands to its sink.
fn bytes_of(write: impl FnOnce(&mut dyn FnMut(&[u8]) -> Result<(), Infallible>)) -> Vec<u8> {
    let mut bytes = Vec::new();
    write(&mut |part| {
        bytes.extend_from_slice(part);
        Ok(())
    });
    bytes
}

/// A batch that was prepared has little left to exchange and gives the same: on the same connection
/// and another, from memory and from bytes.
#[test]
fn prepared_batches_equal_the_oracle() {
    check_prepared(&built(7, None));
}

/// A failed check of any OTs ends all of the connection, so that its prepared batches go, too.
#[test]
fn a_failed_check_ends_all_ots_of_a_connection() {
    let built = lean(&network(1), Engine::Coefficient, None);
    let model = Arc::new(ServerModel::new(&built).expect("weights fit the plan"));
    let inputs = numbers(built.plan.input_len(), 9);
    let keys = Keys::default();
    let _ = prepared(&model, &keys);
    assert!(keys.0.setup().is_some() && keys.1.setup().is_some());
    let of_client = client_model(&built);
    let mut client = ClientRun::with_prepared(of_client, &inputs, 1, &keys.0, None)
        .expect("inputs fit the plan");
    let mut server = ServerRun::with_prepared(&model, 1, &keys.1, None).expect("it fits");
    // The longest message of a lean step is one of the server's OTs: the client finds the error.
    let mut changed = false;
    let error = exchange_with(&mut client, &mut server, |_, message| {
        if !changed && message.len() > 2200 && message[..8].iter().skip(4).all(|byte| *byte == 0) {
            message[30] ^= 1;
            changed = true;
        }
    });
    assert!(matches!(error, Err(EngineError::Ot { .. })), "{error:?}");
    assert!(keys.0.setup().is_none() || keys.1.setup().is_none());
}

fn check_prepared(built: &Built) {
    let model = Arc::new(ServerModel::new(built).expect("weights fit the plan"));
    let inputs = numbers(built.plan.input_len() * 3, 9);
    let (integers, _) =
        oracle::quantise_input(built.plan.input(), &inputs).expect("inputs are numbers");
    let wanted = built
        .oracle(&integers, 3)
        .expect("values stay in their ranges");
    let client_model = client_model(built);
    let run = |keys: &Keys, halves: Option<(ClientPrepared, ServerPrepared)>| {
        let (ours, theirs) = halves.unzip();
        let of_client = client_model.clone();
        let mut client = ClientRun::with_prepared(of_client, &inputs, 3, &keys.0, ours)
            .expect("inputs and preparation fit");
        let mut server = ServerRun::with_prepared(&model, 3, &keys.1, theirs)
            .expect("batch and preparation fit");
        let mut bytes = 0;
        exchange_with(&mut client, &mut server, |_, message| {
            bytes += message.len()
        })
        .expect("an honest run succeeds");
        assert_eq!(client.finish_integers().expect("the run is over"), wanted);
        bytes
    };
    let (keys, others) = (Default::default(), Default::default());
    let halves = [prepared(&model, &keys), prepared(&model, &keys)];
    assert!(keys.0.setup().is_some() && keys.0.setup() == keys.1.setup());
    assert_eq!(halves[0].0.setup(), halves[0].1.setup());
    let [first, second] = halves;
    let setup = second.0.setup();
    let ours = bytes_of(|sink| second.0.write(sink).expect("it is taken"));
    let theirs = bytes_of(|sink| second.1.write(sink).expect("it is taken"));
    let read = (
        ClientPrepared::from_bytes(&client_model, 3, setup, &ours).expect("it was written"),
        ServerPrepared::from_bytes(&model, 3, setup, &theirs).expect("it was written"),
    );
    let plain = run(&keys, None);
    assert!(run(&keys, Some(first)) < plain);
    run(&others, None);
    assert!(run(&others, Some(read)) < plain);
}

/// Halves of another batch, plan or party, cut or longer, are refused.
#[test]
fn damaged_preparations_are_refused() {
    let built = built(7, None);
    let model = ServerModel::new(&built).expect("weights fit the plan");
    let client_model = client_model(&built);
    let (client, server) = prepared(&model, &Default::default());
    let setup = client.setup();
    let ours = bytes_of(|sink| client.write(sink).expect("it is taken"));
    let theirs = bytes_of(|sink| server.write(sink).expect("it is taken"));
    let is_refused = |batch: usize, client: &[u8], server: &[u8]| {
        assert!(ClientPrepared::from_bytes(&client_model, batch, setup, client).is_err());
        assert!(ServerPrepared::from_bytes(&model, batch, setup, server).is_err());
    };
    is_refused(2, &ours, &theirs);
    is_refused(0, &ours, &theirs);
    is_refused(usize::MAX, &ours, &theirs);
    is_refused(3, &theirs, &ours);
    is_refused(
        3,
        &[&ours[..], &[0]].concat(),
        &[&theirs[..], &[0]].concat(),
    );
    for cut in (0..100).chain([ours.len() / 2, ours.len() - 1]) {
        is_refused(3, &ours[..cut], &theirs[..cut.min(theirs.len() - 1)]);
    }
    let mut long = ours.clone();
    long[..8].fill(0xff);
    is_refused(3, &long, &long);
    let inputs = numbers(162 * 2, 9);
    let (connection, of_client) = (Connection::default(), client_model.clone());
    let run = ClientRun::with_prepared(of_client, &inputs, 2, &connection, Some(client));
    assert!(matches!(run, Err(EngineError::Prepared { .. })));
    let run = ServerRun::with_prepared(&model, 2, &connection, Some(server));
    assert!(matches!(run, Err(EngineError::Prepared { .. })));
}

#[test]
fn what_cannot_be_prepared_is_refused() {
    let built = built(8, None);
    let (model, keys) = (client_model(&built), Connection::default());
    assert!(matches!(
        ClientPreparation::new(&model, 0, &keys),
        Err(EngineError::Batch { .. })
    ));
    assert!(matches!(
        ClientPreparation::new(&model, built.plan.max_batch + 1, &keys),
        Err(EngineError::Batch { .. })
    ));
    let options = BuildOptions {
        trust: Some(TrustLevel::ClientAided),
        ..BuildOptions::default()
    };
    let other = build(&network(8), &options).expect("the test network has a plan");
    assert!(matches!(
        ClientPreparation::new(&client_model(&other), 1, &keys),
        Err(EngineError::Unsupported { .. })
    ));
}

/// Nothing in the plan tells a range that is no power of two, but for what rounding adds: of
/// weights it says how many bits their sums take.
#[test]
fn plans_do_not_tell_sums_of_weights() {
    // With more bits the sum over squares would not fit 32 that way.
    let plan = built(4, Some((5, 5))).plan;
    for (index, step, _) in plan.linear_steps() {
        let (low, high) = (i64::from(step.value.low), i64::from(step.value.high));
        let rounding = -low - high;
        assert!(
            (2 - low).count_ones() == 1 && (rounding == 0 || rounding.count_ones() == 1),
            "step {index}: {low}..={high}"
        );
        assert!(matches!(step.kind, StepKind::CoefficientLinear(_)));
    }
}

/// What a hostile or damaged plan may say, and must be refused.
#[test]
fn hostile_plans_are_refused() {
    let plan = built(5, None).plan;
    assert!(Plan::from_bytes(&plan.to_bytes()).is_ok());
    let refused = |change: fn(&mut Plan)| {
        let mut changed = plan.plan().clone();
        change(&mut changed);
        assert_ne!(&changed, plan.plan(), "the change changes something");
        Plan::from_bytes(&changed.to_bytes()).expect_err("a damaged plan is refused")
    };
    fn linear(plan: &mut Plan) -> &mut CoefficientLinear {
        let step = plan.steps.iter_mut().find_map(|step| match &mut step.kind {
            StepKind::CoefficientLinear(linear) => Some(linear),
            _ => None,
        });
        step.expect("the network has a layer")
    }
    refused(|plan| linear(plan).shares.guard_bits = 0);
    refused(|plan| linear(plan).shares.guard_bits = 1);
    refused(|plan| linear(plan).shares.guard_bits = u32::MAX);
    refused(|plan| linear(plan).shares.value_bits += 1);
    refused(|plan| linear(plan).rlwe.dropped_bits_a = 70);
    refused(|plan| plan.trust = TrustLevel::ClientAided);
    refused(|plan| plan.output -= 1);
    refused(|plan| {
        let kinds = plan.steps.iter_mut().map(|step| &mut step.kind);
        let ops = kinds.filter_map(|kind| match kind {
            StepKind::Garbled(garbled) => Some((garbled.ops.clone(), kind)),
            _ => None,
        });
        let (ops, kind) = { ops }.next().expect("the network has activations");
        *kind = StepKind::Reveal(Reveal { ops });
    });
}

/// A few bytes of plan must not cost the client minutes or gigabytes.
#[test]
fn plans_with_huge_windows_are_refused() {
    let value = |shape: &[usize]| ValueSpec {
        shape: shape.to_vec(),
        fraction_bits: 0,
        low: 0,
        high: 255,
    };
    let step = |kind, inputs: &[usize], shape: &[usize]| Step {
        kind,
        inputs: inputs.to_vec(),
        value: value(shape),
    };
    let window = |side: usize, padding: usize| Window {
        kernel: [side; 2],
        stride: [1; 2],
        dilation: [1; 2],
        padding: [padding; 4],
    };
    let max_pool = |window| {
        StepKind::Garbled(Garbled {
            ops: vec![ActivationOp::MaxPool { window }],
        })
    };
    let plan = |input: &[usize], steps: Vec<Step>| {
        let mut all = vec![step(StepKind::Input, &[], input)];
        all.extend(steps);
        let (last, shape) = (all.len() - 1, all[all.len() - 1].value.shape.clone());
        all.push(step(StepKind::Open, &[last], &shape));
        let output = all.len() - 1;
        let plan = Plan {
            band_bytes: pronghorn_plan::plan::BAND_BYTES,
            key_checks: 1,
            sampled: None,
            deviations: None,
            categories: vec![],
            class_names: vec![],
            columns: vec![],
            outputs: vec![],
            format: FORMAT,
            model: "hostile".into(),
            trust: TrustLevel::TwoParty,
            steps: all,
            output,
            finish: Vec::new(),
            max_batch: 1,
        };
        Plan::from_bytes(&plan.to_bytes())
    };
    let pooled = |side: usize, window: Window| {
        let out = side + 2 * window.padding[0] - window.kernel[0] + 1;
        plan(
            &[1, side, side],
            vec![step(max_pool(window), &[0], &[1, out, out])],
        )
    };
    assert!(pooled(9, window(3, 1)).is_ok());
    // Gigabytes of sources; a circuit for each of a thousand sizes of window.
    assert!(pooled(4096, window(32, 0)).is_err());
    assert!(pooled(61, window(31, 15)).is_err());
    // Hours of additions on shares.
    let pad = StepKind::Local(LocalOp::Pad {
        before: vec![0, 4082, 4082],
        after: vec![0, 4082, 4082],
    });
    let sum = StepKind::Local(LocalOp::SumPool {
        window: window(4096, 0),
        multipliers: vec![1],
    });
    let mut pooled = step(sum, &[1], &[1, 4097, 4097]);
    pooled.value.high = i32::MAX;
    let refused = plan(
        &[1, 28, 28],
        vec![step(pad, &[0], &[1, 8192, 8192]), pooled],
    );
    assert!(refused.is_err_and(|error| error.to_string().contains("pools")));
}

/// A peer that sends garbage, too much or too little ends the run with an error, at every message.
#[test]
fn hostile_messages_are_errors() {
    let built = built(6, Some((4, 4)));
    let model = Arc::new(ServerModel::new(&built).expect("weights fit the plan"));
    let inputs = numbers(162, 9);
    let start = || {
        let client = ClientRun::new(model.plan().clone(), &inputs, 1).expect("inputs fit");
        (client, ServerRun::new(&model, 1).expect("the batch fits"))
    };
    let (mut client, mut server) = start();
    let count = exchange(&mut client, &mut server).expect("an honest run succeeds");
    for at in 0..count {
        for length in [0, 1, usize::MAX] {
            let (mut client, mut server) = start();
            let error = exchange_with(&mut client, &mut server, |count, message| match length {
                _ if count != at => {}
                usize::MAX => message.push(0),
                length => message.truncate(message.len() - 1 - length * (message.len() / 2)),
            });
            assert!(error.is_err(), "message {at} of another length is refused");
        }
        let (mut client, mut server) = start();
        let garbled = exchange_with(&mut client, &mut server, |count, message| {
            if count == at {
                let bytes = message.iter_mut().enumerate();
                bytes.for_each(|(i, byte)| *byte ^= (i * 89 + 31) as u8);
            }
        });
        // An error or, where every string of bytes is a message, a wrong result.
        let _ = garbled;
    }
}
