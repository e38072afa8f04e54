//! What tests of whole runs share.

// Each test file uses some of these.
#![allow(dead_code)]

pub mod networks;
pub mod transcript;

use std::{collections::BTreeMap, sync::Arc};

use pronghorn_engine::{ClientRun, EngineError, Machine, ServerModel, ServerRun, Want};
use pronghorn_graph::{
    graph::{Graph, Tensor},
    oracle,
};
use pronghorn_plan::Built;

/// Small deterministic numbers in (-1, 1).
pub fn numbers(count: usize, seed: u64) -> Vec<f32> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 40) as f32 / (1u64 << 23) as f32 - 1.0
    };
    (0..count).map(|_| next()).collect()
}

/// Such numbers as tensors.
pub fn tensors(shapes: &[(&str, &[usize])], seed: u64) -> BTreeMap<String, Tensor> {
    let make = |(index, (name, shape)): (usize, &(&str, &[usize]))| {
        let data = numbers(shape.iter().product(), seed + index as u64);
        (
            (*name).to_owned(),
            Tensor {
                shape: shape.to_vec(),
                data,
            },
        )
    };
    shapes.iter().enumerate().map(make).collect()
}

/// Drives both machines against each other until both are done; how many messages that took.
pub fn exchange(
    client: &mut dyn Machine<Error = EngineError>,
    server: &mut dyn Machine<Error = EngineError>,
) -> Result<usize, EngineError> {
    exchange_with(client, server, |_, _| {})
}

/// The same, with `on_the_way` given the number of each message and the message, which it may change.
pub fn exchange_with(
    client: &mut dyn Machine<Error = EngineError>,
    server: &mut dyn Machine<Error = EngineError>,
    mut on_the_way: impl FnMut(usize, &mut Vec<u8>),
) -> Result<usize, EngineError> {
    let mut message = Vec::new();
    for count in 0.. {
        message.clear();
        let (from, to): (
            &mut dyn Machine<Error = EngineError>,
            &mut dyn Machine<Error = EngineError>,
        ) = match (client.want(), server.want()) {
            (Want::Send, Want::Receive) => (client, server),
            (Want::Receive, Want::Send) => (server, client),
            (Want::Done, Want::Done) => return Ok(count),
            (client, server) => panic!("stuck: client wants {client:?}, server wants {server:?}"),
        };
        from.send(&mut message)?;
        assert!(message.len() <= to.max_incoming());
        on_the_way(count, &mut message);
        to.receive(&message)?;
    }
    unreachable!("messages do not run out")
}

/// A network with every kind of step: convolutions (strided, grouped, padded), ReLU, max-pooling, a residual
/// addition, average pooling, leaky ReLU, a square, a dense layer.
pub fn network(seed: u64) -> Graph {
    let window = |k: usize, s: usize, p: usize| {
        format!(
            r#""window":{{"kernel":[{k},{k}],"stride":[{s},{s}],"dilation":[1,1],"padding":[{p},{p},{p},{p}]}}"#
        )
    };
    let node = |name: &str, op: String, inputs: &str, shape: &str| {
        format!(r#"{{"name":"{name}","op":{{{op}}},"inputs":[{inputs}],"shape":[{shape}]}}"#)
    };
    let conv = |name: &str, window: String, groups: usize| {
        format!(r#""kind":"conv",{window},"groups":{groups},"weight":"{name}.w","bias":"{name}.b""#)
    };
    let nodes = [
        node("x", r#""kind":"input""#.into(), "", "2,9,9"),
        node("c1", conv("c1", window(3, 2, 1), 1), "0", "6,5,5"),
        node("r1", r#""kind":"relu""#.into(), "1", "6,5,5"),
        node("c2", conv("c2", window(3, 1, 1), 3), "2", "6,5,5"),
        node("add", r#""kind":"add""#.into(), "3,2", "6,5,5"),
        node(
            "l",
            r#""kind":"leaky_relu","alpha":0.1"#.into(),
            "4",
            "6,5,5",
        ),
        node(
            "mp",
            format!(r#""kind":"max_pool",{}"#, window(2, 2, 1)),
            "5",
            "6,3,3",
        ),
        node("c3", conv("c3", window(1, 1, 0), 1), "6", "4,3,3"),
        node("sq", r#""kind":"square""#.into(), "7", "4,3,3"),
        node(
            "ap",
            format!(
                r#""kind":"average_pool",{},"count_include_pad":false"#,
                window(3, 2, 1)
            ),
            "8",
            "4,2,2",
        ),
        node("fl", r#""kind":"reshape""#.into(), "9", "16"),
        node(
            "fc",
            r#""kind":"dense","weight":"fc.w","bias":"fc.b""#.into(),
            "10",
            "5",
        ),
    ];
    let json = format!(
        r#"{{"name":"test","nodes":[{}],"output":11}}"#,
        nodes.join(",")
    );
    let weights = tensors(
        &[
            ("c1.w", &[6, 2, 3, 3]),
            ("c1.b", &[6]),
            ("c2.w", &[6, 2, 3, 3]),
            ("c2.b", &[6]),
            ("c3.w", &[4, 6, 1, 1]),
            ("c3.b", &[4]),
            ("fc.w", &[5, 16]),
            ("fc.b", &[5]),
        ],
        seed,
    );
    Graph::from_json(&json, weights).expect("the test network is valid")
}

/// A whole run in process equals the oracle, bit for bit.
pub fn check(built: &Built, inputs: &[f32], batch: usize) {
    let model = Arc::new(ServerModel::new(built).expect("weights fit the plan"));
    let mut client =
        ClientRun::new(model.plan().clone(), inputs, batch).expect("inputs fit the plan");
    let mut server = ServerRun::new(model.clone(), batch).expect("the batch fits");
    exchange(&mut client, &mut server).expect("an honest run succeeds");
    let progress = client.progress();
    assert_eq!(progress.done, progress.total);
    let (integers, _) =
        oracle::quantise_input(built.plan.input(), inputs).expect("inputs are numbers");
    let wanted = built
        .oracle(&integers, batch)
        .expect("values stay in their ranges");
    assert_eq!(client.finish_integers().expect("the run is over"), wanted);
}
