//! Encrypted runs equal the polynomial oracle within the error that the plan states, and hostile
//! messages end a run.

use std::sync::Arc;

use crate::common::{exchange, exchange_with, networks::deep, numbers, tensors};
use pronghorn_engine::{
    ClientModel, ClientRun, Connection, EngineError, Machine, ServerModel, ServerRun, Want,
};
use pronghorn_graph::{graph::Graph, oracle};
use pronghorn_plan::{
    BuildError, BuildOptions, Built, CheckedPlan, Plan, StepKind, TrustLevel, build,
    planner::schedule::Passes,
};

/// Values of one image of [`network`].
const INPUTS: usize = 2 * 6 * 6;

/// Two products in a row, a residual addition of different depths, a product of two values, uneven
/// average pooling, a concatenation, per-channel factors.
fn network(scale: f32) -> Graph {
    let window = |k: usize, s: usize, p: usize| {
        format!(
            r#""window":{{"kernel":[{k},{k}],"stride":[{s},{s}],"dilation":[1,1],"padding":[{p},{p},{p},{p}]}}"#
        )
    };
    let node = |name: &str, op: String, inputs: &str, shape: &str| {
        format!(r#"{{"name":"{name}","op":{{{op}}},"inputs":[{inputs}],"shape":[{shape}]}}"#)
    };
    let nodes = [
        node("x", r#""kind":"input""#.into(), "", "2,6,6"),
        node(
            "conv",
            format!(
                r#""kind":"conv",{},"groups":1,"weight":"conv.w","bias":"conv.b""#,
                window(3, 2, 1)
            ),
            "0",
            "4,3,3",
        ),
        node("square", r#""kind":"square""#.into(), "1", "4,3,3"),
        node(
            "factors",
            r#""kind":"affine","mul":"f.m","add":"f.a""#.into(),
            "1",
            "4,3,3",
        ),
        node("add", r#""kind":"add""#.into(), "2,3", "4,3,3"),
        node(
            "mean",
            format!(
                r#""kind":"average_pool",{},"count_include_pad":false"#,
                window(2, 2, 1)
            ),
            "4",
            "4,2,2",
        ),
        node("flat", r#""kind":"reshape""#.into(), "5", "16"),
        node(
            "fc",
            r#""kind":"dense","weight":"fc.w","bias":"fc.b""#.into(),
            "6",
            "6",
        ),
        node(
            "fc2",
            r#""kind":"dense","weight":"fc2.w","bias":null"#.into(),
            "6",
            "6",
        ),
        node("product", r#""kind":"multiply""#.into(), "7,8", "6"),
        node("cat", r#""kind":"concat","axis":0"#.into(), "9,9", "12"),
        node(
            "out",
            r#""kind":"dense","weight":"out.w","bias":"out.b""#.into(),
            "10",
            "3",
        ),
        node("softmax", r#""kind":"softmax""#.into(), "11", "3"),
    ];
    let json = format!(
        r#"{{"name":"test","nodes":[{}],"output":12}}"#,
        nodes.join(",")
    );
    let mut weights = tensors(
        &[
            ("conv.w", &[4, 2, 3, 3]),
            ("conv.b", &[4]),
            ("f.m", &[4]),
            ("f.a", &[4]),
            ("fc.w", &[6, 16]),
            ("fc.b", &[6]),
            ("fc2.w", &[6, 16]),
            ("out.w", &[3, 12]),
            ("out.b", &[3]),
        ],
        5,
    );
    for tensor in weights.values_mut() {
        tensor.data_mut().iter_mut().for_each(|x| *x *= scale);
    }
    Graph::from_json(&json, weights).expect("the test network is valid")
}

fn options() -> BuildOptions {
    BuildOptions {
        trust: Some(TrustLevel::Encrypted),
        samples: Some(numbers(INPUTS * 20, 77)),
        ..BuildOptions::default()
    }
}

fn built(passes: Passes) -> Built {
    let options = BuildOptions {
        passes,
        ..options()
    };
    build(&network(0.4), &options).expect("the test network has a plan")
}

/// The largest difference from the oracle, in units of the result, and what the plan states.
fn difference(built: &Built, inputs: &[f32], images: usize) -> (i32, i32) {
    let model = Arc::new(ServerModel::new(built).expect("weights fit the plan"));
    let mut client = ClientRun::new(model.plan().clone(), inputs, images).expect("inputs fit");
    let mut server = ServerRun::new(&model, images).expect("the batch fits");
    exchange(&mut client, &mut server).expect("an honest run succeeds");
    let progress = client.progress();
    assert_eq!(progress.done, progress.total);
    let (integers, _) = oracle::quantise_input(built.plan.input(), inputs).expect("numbers");
    let wanted = built.oracle(&integers, images).expect("whole images");
    let found = client.finish_integers().expect("the run is over");
    let differences = found.iter().zip(&wanted).map(|(f, w)| (f - w).abs());
    (differences.max().unwrap_or(0), built.tolerance())
}

#[test]
fn equals_the_oracle_within_the_stated_error() {
    let built = built(Passes::default());
    let slots = built.plan.max_batch;
    for images in [1, 100, slots] {
        let (found, stated) = difference(&built, &numbers(INPUTS * images, 3), images);
        assert!(found <= stated, "{found} of {stated}");
        // The flood is most of the error: the bound is no more than 2^4 too large.
        assert!(images < 100 || found > stated >> 4, "{found} of {stated}");
    }
}

/// Parts of a value, an element of which is taken twice.
#[test]
fn taken_parts_equal_the_oracle_within_the_stated_error() {
    let json = r#"{"name":"parts","output":5,"nodes":[
        {"name":"x","op":{"kind":"input"},"inputs":[],"shape":[4]},
        {"name":"fc","op":{"kind":"dense","weight":"v","bias":null},"inputs":[0],"shape":[4]},
        {"name":"square","op":{"kind":"square"},"inputs":[1],"shape":[4]},
        {"name":"left","op":{"kind":"take","axis":0,"indices":[3,1,3]},"inputs":[2],"shape":[3]},
        {"name":"cat","op":{"kind":"concat","axis":0},"inputs":[3,2],"shape":[7]},
        {"name":"out","op":{"kind":"dense","weight":"w","bias":null},"inputs":[4],"shape":[3]}]}"#;
    let weights = tensors(&[("v", &[4, 4]), ("w", &[3, 7])], 4);
    let graph = Graph::from_json(json, weights).expect("a valid graph");
    let options = BuildOptions {
        samples: Some(numbers(4 * 50, 7)),
        ..options()
    };
    let built = build(&graph, &options).expect("it has a plan");
    let (found, stated) = difference(&built, &numbers(4 * 9, 3), 9);
    assert!(found <= stated, "{found} of {stated}");
}

#[test]
fn passes_change_the_program_and_not_the_result() {
    let eager = built(Passes {
        lazy_rescaling: false,
        ..Passes::default()
    });
    let (found, stated) = difference(&eager, &numbers(INPUTS * 9, 4), 9);
    assert!(found <= stated, "{found} of {stated}");
    assert_ne!(eager.text(true), built(Passes::default()).text(true));
}

fn built_deep(squares: usize, passes: Passes) -> Built {
    let options = BuildOptions {
        samples: Some(numbers(4 * 200, 7)),
        passes,
        ..options()
    };
    build(&deep(squares), &options).expect("it has a plan")
}

fn encrypted(built: &Built) -> &pronghorn_plan::EncryptedPlan {
    match &built.plan.steps[1].kind {
        StepKind::Encrypted(encrypted) => encrypted,
        _ => panic!("the step is encrypted"),
    }
}

#[test]
fn deep_networks_are_relinearised() {
    let eager = Passes {
        lazy_relinearisation: false,
        ..Passes::default()
    };
    for (squares, passes) in [(3, eager), (5, Passes::default())] {
        let built = built_deep(squares, passes);
        assert!(encrypted(&built).key_power > 1);
        let (found, stated) = difference(&built, &numbers(4 * 200, 7), 200);
        assert!(found <= stated, "{squares} squares: {found} of {stated}");
    }
}

#[test]
fn relinearisation_can_be_forced_and_changes_no_result() {
    let always = Passes {
        lazy_relinearisation: false,
        ..Passes::default()
    };
    let (lazy, eager) = (built_deep(2, Passes::default()), built_deep(2, always));
    assert_eq!(encrypted(&lazy).key_power, 1);
    assert!(encrypted(&eager).key_power > 1);
    let (found, stated) = difference(&eager, &numbers(4 * 30, 3), 30);
    assert!(found <= stated, "{found} of {stated}");
}

/// Keys are sent with the first batch of a connection only, and no randomness is used twice.
#[test]
fn keys_serve_a_connection() {
    let built = built_deep(3, Passes::default());
    let client_model = ClientModel::new(built.plan.clone()).expect("the plan can be followed");
    let client_model = Arc::new(client_model);
    let model = Arc::new(ServerModel::new(&built).expect("weights fit the plan"));
    let (client_keys, server_keys) = (Connection::default(), Connection::default());
    let inputs = numbers(4 * 3, 8);
    let mut sent = Vec::new();
    for _ in 0..3 {
        let of_client = client_model.clone();
        let mut client = ClientRun::with_prepared(of_client, &inputs, 3, &client_keys, None)
            .expect("inputs fit");
        let mut server =
            ServerRun::with_prepared(&model, 3, &server_keys, None).expect("the batch fits");
        let mut all = Vec::new();
        exchange_with(&mut client, &mut server, |_, message| {
            all.extend_from_slice(message)
        })
        .expect("an honest run succeeds");
        sent.push(all);
        let (integers, _) = oracle::quantise_input(built.plan.input(), &inputs).expect("numbers");
        let wanted = built.oracle(&integers, 3).expect("whole images");
        for (f, w) in client.finish_integers().expect("over").iter().zip(&wanted) {
            assert!((f - w).abs() <= built.tolerance());
        }
    }
    assert!(sent[0].len() > sent[1].len());
    assert_eq!(sent[1].len(), sent[2].len());
    assert_ne!(sent[1], sent[2]);
}

/// A plan whose keys serve so many batches.
fn with_key_batches(plan: &Plan, batches: u64) -> CheckedPlan {
    let mut plan = plan.clone();
    let StepKind::Encrypted(encrypted) = &mut plan.steps[1].kind else {
        panic!("the step is encrypted")
    };
    encrypted.key_batches = batches;
    CheckedPlan::new(plan).expect("a valid plan")
}

/// Keys are exchanged anew after as many batches as the plan says.
#[test]
fn keys_serve_as_many_batches_as_the_plan_says() {
    let mut built = built_deep(2, Passes::default());
    built.plan = with_key_batches(&built.plan, 2);
    let promise = built.plan.flood().map(|lifetime| lifetime.to_string());
    assert_eq!(promise.as_deref(), Some("2^-40 over 2 batches of a key"));
    let model = ServerModel::new(&built).expect("weights fit the plan");
    let client_model = ClientModel::new(built.plan.clone()).expect("the plan can be followed");
    let (client, server) = (Connection::default(), Connection::default());
    let exchanged = (0..5).map(|_| {
        let ours = client_model.preludes(&client, 3).expect("the batch fits");
        let theirs = model.preludes(&server, 3).expect("the batch fits");
        let count = [ours.len(), theirs.len()];
        for ((_, mut ours), (_, mut theirs)) in ours.into_iter().zip(theirs) {
            exchange(ours.as_mut(), theirs.as_mut()).expect("honest keys");
        }
        count
    });
    let exchanged: Vec<_> = exchanged.collect();
    assert_eq!(exchanged, [[1, 1], [0, 0], [1, 1], [0, 0], [1, 1]]);
}

/// More bits of the flood, larger numbers.
#[test]
fn floods_have_the_bits_that_are_asked_for() {
    let with_bits = |flood_bits| {
        let options = BuildOptions {
            flood_bits,
            ..options()
        };
        build(&network(0.4), &options)
    };
    let (least, more) = (with_bits(40), with_bits(50));
    let log = |built: &Result<Built, _>| {
        let built = built.as_ref().expect("it has a plan");
        (
            encrypted(built).flood_log,
            built.plan.flood().expect("it floods").bits,
        )
    };
    let ((small, 40), (large, 50)) = (log(&least), log(&more)) else {
        panic!("plans have the bits")
    };
    assert!(large >= small + 10, "{small} {large}");
    for bits in [0, 39, 129] {
        assert!(matches!(with_bits(bits), Err(BuildError::Flood(_))));
    }
}

/// Inputs outside the calibrated range are brought to its border, so that nothing wraps around the
/// modulus.
#[test]
fn extreme_inputs_are_clamped() {
    let built = built(Passes::default());
    let (found, stated) = difference(&built, &[1e30; INPUTS * 2], 2);
    assert!(found <= stated, "{found} of {stated}");
}

#[test]
fn plans_survive_the_wire_and_name_their_security() {
    let built = built(Passes::default());
    let read = Plan::from_bytes(&built.plan.to_bytes()).expect("a valid plan");
    assert_eq!(read, built.plan);
    let details = format!("{read:#}");
    assert!(details.contains("bit security"), "{details}");
}

#[test]
fn plans_out_of_bounds_are_refused() {
    type Change = fn(&mut pronghorn_plan::EncryptedPlan);
    let changes: [Change; 11] = [
        |plan| plan.degree = 4096,
        |plan| plan.degree = 1 << 20,
        |plan| plan.primes.extend(plan.primes.clone()),
        |plan| plan.primes[0] = 12_289,
        |plan| plan.primes[0] = 0,
        |plan| plan.special_primes = vec![0],
        |plan| plan.answer_limbs = 0,
        |plan| plan.flood_limbs = 60,
        |plan| plan.answer_polys = 100,
        |plan| plan.answer_scale = f64::NAN,
        |plan| plan.scale_log = 10_000,
    ];
    for (index, change) in changes.iter().enumerate() {
        let mut plan = built(Passes::default()).plan.plan().clone();
        let StepKind::Encrypted(encrypted) = &mut plan.steps[1].kind else {
            panic!("the step is encrypted")
        };
        change(encrypted);
        assert!(
            Plan::from_bytes(&plan.to_bytes()).is_err(),
            "change {index}"
        );
    }
}

#[test]
fn activations_that_are_no_polynomials_are_refused_by_name() {
    let json = r#"{"name":"relu","nodes":[
        {"name":"x","op":{"kind":"input"},"inputs":[],"shape":[3]},
        {"name":"act7","op":{"kind":"relu"},"inputs":[0],"shape":[3]}],"output":1}"#;
    let graph = Graph::from_json(json, tensors(&[], 0)).expect("a valid graph");
    let options = BuildOptions {
        samples: None,
        ..options()
    };
    let Err(error @ BuildError::Polynomial(_)) = build(&graph, &options) else {
        panic!("a ReLU is no polynomial")
    };
    let message = error.to_string();
    assert!(
        message.contains("act7") && message.contains("Relu"),
        "{message}"
    );
}

#[test]
fn too_little_memory_is_refused() {
    let options = BuildOptions {
        memory: 1 << 20,
        ..options()
    };
    assert!(matches!(
        build(&network(0.4), &options),
        Err(BuildError::Memory { .. })
    ));
}

/// Messages of a client before its input, with one set of keys: the opening, a commitment, the
/// keys, the seed of every `a`.
const BEFORE_INPUT: usize = 4;
/// Of these the keys.
const THE_KEYS: usize = 2;

/// A model whose clients make one set of keys.
fn unchecked() -> Arc<ServerModel> {
    let options = BuildOptions {
        key_checks: 2,
        ..options()
    };
    let built = build(&network(0.4), &options).expect("the test network has a plan");
    Arc::new(ServerModel::new(&built).expect("weights fit"))
}

/// A server in the middle of receiving, with the client's next message.
fn halfway(messages: usize) -> (ServerRun, Vec<u8>) {
    let model = unchecked();
    let mut client =
        ClientRun::new(model.plan().clone(), &numbers(INPUTS, 1), 1).expect("inputs fit");
    let mut server = ServerRun::new(&model, 1).expect("the batch fits");
    let (mut message, mut sent) = (Vec::new(), 0);
    loop {
        message.clear();
        if client.want() == Want::Receive {
            server.send(&mut message).expect("the server's turn");
            client.receive(&message).expect("an honest message");
            continue;
        }
        client.send(&mut message).expect("the client's turn");
        if sent == messages {
            return (server, message);
        }
        sent += 1;
        server.receive(&message).expect("an honest message");
    }
}

#[test]
fn wrong_lengths_and_turns_are_refused() {
    for messages in [0, 1, THE_KEYS, BEFORE_INPUT] {
        let (mut server, mut message) = halfway(messages);
        message.push(0);
        assert!(matches!(
            server.receive(&message),
            Err(EngineError::Length { .. })
        ));
        assert!(matches!(
            server.receive(&[]),
            Err(EngineError::Length { found: 0, .. })
        ));
        assert!(matches!(
            server.send(&mut Vec::new()),
            Err(EngineError::OutOfTurn { .. })
        ));
    }
}

#[test]
fn words_out_of_range_are_refused() {
    let (mut server, mut message) = halfway(THE_KEYS);
    message.fill(0xff);
    let refused = server.receive(&message);
    assert!(matches!(refused, Err(EngineError::FalseKeys)));
    // Rows are checked where they are used: at the last message.
    let (mut server, mut message) = halfway(BEFORE_INPUT);
    message.fill(0xff);
    let error = loop {
        match server.receive(&message) {
            Ok(()) => message.resize(server.max_incoming(), 0xff),
            Err(error) => break error,
        }
    };
    assert!(matches!(error, EngineError::Word { .. }), "{error}");
}

/// A server that answers with noise is caught by the range of the result.
#[test]
fn a_random_answer_is_noticed() {
    let model = unchecked();
    let mut client =
        ClientRun::new(model.plan().clone(), &numbers(INPUTS * 50, 1), 50).expect("inputs fit");
    let mut server = ServerRun::new(&model, 50).expect("the batch fits");
    let mut message = Vec::new();
    while client.want() != Want::Done {
        message.clear();
        if client.want() == Want::Send {
            client.send(&mut message).expect("the client's turn");
            server.receive(&message).expect("an honest message");
            continue;
        }
        server.send(&mut message).expect("the server's turn");
        if client.progress().done > 0 {
            message.fill(0x55);
        }
        client.receive(&message).expect("its words are residues");
    }
    let noticed = client.finish_integers();
    assert!(matches!(noticed, Err(EngineError::Decryption { .. })));
}
