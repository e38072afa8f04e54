//! Small networks and their plans, for tests here and in `pronghorn-engine`.
#![allow(dead_code, reason = "a crate's tests use a part")]

use std::collections::BTreeMap;

use pronghorn_graph::graph::{Graph, Tensor};
use pronghorn_plan::{
    BuildOptions, Built, CheckedPlan, Engine, Opening, Rounding, Step, StepKind, TrustLevel,
    WordSize, build,
    objective::Objective,
    steps::{
        activation::{
            garbled::Garbled,
            lean::{Lean, Transfers},
        },
        argmax::ArgMax,
    },
};

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
        ((*name).to_owned(), Tensor::new(*shape, data))
    };
    shapes.iter().enumerate().map(make).collect()
}

/// A node of the graph's JSON; `op` is what stands in its braces.
fn node(name: &str, op: &str, inputs: &str, shape: &str) -> String {
    format!(r#"{{"name":"{name}","op":{{{op}}},"inputs":[{inputs}],"shape":[{shape}]}}"#)
}

/// A square window in the graph's JSON.
fn window(kernel: usize, stride: usize, padding: usize) -> String {
    let (k, s, p) = (kernel, stride, padding);
    format!(
        r#""window":{{"kernel":[{k},{k}],"stride":[{s},{s}],"dilation":[1,1],"padding":[{p},{p},{p},{p}]}}"#
    )
}

/// A network with every kind of step: convolutions (strided, grouped, padded), ReLU, max-pooling, a
/// residual addition, average pooling, leaky ReLU, a square, a dense layer.
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

/// What stands between the layers of [`around`].
#[derive(Clone, Copy)]
pub enum Middle {
    Square,
    Relu,
    LeakyRelu,
    /// A ReLU and a bump, by a table.
    Silu,
    /// Windows of four values.
    MaxPool,
    /// Windows of several sizes, after a ReLU.
    PaddedMaxPool,
    AveragePool,
    /// A ReLU, a second convolution, and the sum of both.
    Residual,
    /// A ReLU and constants, the sum of that with the layer's value, and constants again.
    Bias,
    /// The layer's value beside its square.
    Concat,
    /// The mean of each channel of the layer, and that of its ReLU.
    Means,
    /// A ReLU, a gate for each channel from its mean, and the product of both; and the product of
    /// that with the gate's row of its first place.
    Gate,
    /// Rows times the columns of their ReLU, and the ReLU of that times half of the columns, for each
    /// of three heads.
    Attention,
    /// A ReLU cut in two along the channels, a convolution of one part, both parts beside each
    /// other, enlarged along the width, cropped and reversed along the height.
    Takes,
}

impl Middle {
    /// The nodes after node 1, and the shape of the last.
    fn nodes(self) -> (Vec<String>, [usize; 3]) {
        let (whole, half) = ([3, 4, 4], [3, 2, 2]);
        let one =
            |op: &str, shape: [usize; 3]| (vec![node("middle", op, "1", &text(shape))], shape);
        let pool = |kind: &str, padding: usize| {
            let (kernel, stride) = if padding > 0 { (3, 2) } else { (2, 2) };
            format!(r#""kind":"{kind}",{}"#, window(kernel, stride, padding))
        };
        let relu = node("relu", r#""kind":"relu""#, "1", &text(whole));
        match self {
            Self::Square => one(r#""kind":"square""#, whole),
            Self::Relu => one(r#""kind":"relu""#, whole),
            Self::LeakyRelu => one(r#""kind":"leaky_relu","alpha":0.1"#, whole),
            Self::Silu => one(
                r#""kind":"function","function":{"name":"swish","beta":1.0}"#,
                whole,
            ),
            Self::MaxPool => one(&pool("max_pool", 0), half),
            Self::PaddedMaxPool => {
                let pool = node("pool", &pool("max_pool", 1), "2", &text(half));
                (vec![relu, pool], half)
            }
            Self::AveragePool => {
                let op = format!(r#"{},"count_include_pad":true"#, pool("average_pool", 0));
                one(&op, half)
            }
            Self::Residual => {
                let op = conv("second");
                let second = node("second", &op, "2", &text(whole));
                let sum = node("sum", r#""kind":"add""#, "3,2", &text(whole));
                (vec![relu, second, sum], whole)
            }
            Self::Bias => {
                let add = |name: &str| format!(r#""kind":"affine","mul":null,"add":"{name}""#);
                let shifted = node("shifted", &add("shift"), "2", &text(whole));
                let sum = node("sum", r#""kind":"add""#, "3,1", &text(whole));
                let again = node("again", &add("again"), "4", &text(whole));
                let last = node("last", r#""kind":"relu""#, "5", &text(whole));
                (vec![relu, shifted, sum, again, last], whole)
            }
            Self::Concat => {
                let square = node("square", r#""kind":"square""#, "1", &text(whole));
                let both = [6, 4, 4];
                let op = r#""kind":"concat","axis":0"#;
                (vec![square, node("both", op, "1,2", &text(both))], both)
            }
            Self::Means => {
                let mean = |name: &str, input: &str| {
                    let op = r#""kind":"global_average_pool""#;
                    node(name, op, input, &text([3, 1, 1]))
                };
                let both = node("both", r#""kind":"concat","axis":0"#, "3,4", "6,1,1");
                let nodes = vec![relu, mean("of_layer", "1"), mean("of_relu", "2"), both];
                (nodes, [6, 1, 1])
            }
            Self::Gate => {
                let gate = [3, 1, 1];
                let mean = node("mean", r#""kind":"global_average_pool""#, "2", &text(gate));
                let point = window(1, 1, 0);
                let op = format!(
                    r#""kind":"conv",{point},"groups":1,"weight":"gate.w","bias":"gate.b""#
                );
                let excited = node("excited", &op, "3", &text(gate));
                let op = r#""kind":"clip","min":0.0,"max":1.0"#;
                let gate = node("gate", op, "4", &text(gate));
                let gated = node("gated", r#""kind":"multiply""#, "2,5", &text(whole));
                let op = r#""kind":"take","axis":1,"indices":[0]"#;
                let row = node("row", op, "6", "3,1,4");
                let op = r#""kind":"multiply""#;
                let both = node("both", op, "5,7", "3,1,4");
                let product = node("product", op, "6,8", &text(whole));
                (
                    vec![relu, mean, excited, gate, gated, row, both, product],
                    whole,
                )
            }
            Self::Attention => {
                let op = r#""kind":"transpose","permutation":[0,2,1]"#;
                let keys = node("keys", op, "2", &text(whole));
                let matmul = r#""kind":"mat_mul""#;
                let scores = node("scores", matmul, "1,3", &text(whole));
                let shares = node("shares", r#""kind":"relu""#, "4", &text(whole));
                let op = r#""kind":"take","axis":2,"indices":[0,2]"#;
                let values = node("values", op, "1", "3,4,2");
                let mixed = node("mixed", matmul, "5,6", "3,4,2");
                (vec![relu, keys, scores, shares, values, mixed], [3, 4, 2])
            }
            Self::Takes => {
                let take = |name: &str, axis: usize, indices: &str, input: &str, shape| {
                    let op = format!(r#""kind":"take","axis":{axis},"indices":[{indices}]"#);
                    node(name, &op, input, &text(shape))
                };
                let both = node("both", r#""kind":"concat","axis":0"#, "3,5", "4,4,4");
                let nodes = vec![
                    relu,
                    take("left", 0, "1", "2", [1, 4, 4]),
                    take("right", 0, "2,0,2", "2", whole),
                    node("second", &conv("second"), "4", &text(whole)),
                    both,
                    take("enlarged", 2, "0,0,1,1,2,2,3,3", "6", [4, 4, 8]),
                    take("cropped", 1, "3,1", "7", [4, 2, 8]),
                ];
                (nodes, [4, 2, 8])
            }
        }
    }
}

/// The attributes of a convolution that keeps a shape.
fn conv(name: &str) -> String {
    let window = window(3, 1, 1);
    format!(r#""kind":"conv",{window},"groups":1,"weight":"{name}.w","bias":"{name}.b""#)
}

fn text(shape: [usize; 3]) -> String {
    shape.map(|size| size.to_string()).join(",")
}

/// A convolution, what stands in the middle, and a dense layer.
pub fn around(middle: Middle) -> Graph {
    let (between, shape) = middle.nodes();
    let mut nodes = vec![
        node("x", r#""kind":"input""#, "", "2,4,4"),
        node("first", &conv("first"), "0", "3,4,4"),
    ];
    nodes.extend(between);
    let (last, elements) = (nodes.len() - 1, shape.iter().product::<usize>());
    nodes.push(node(
        "flat",
        r#""kind":"reshape""#,
        &last.to_string(),
        &elements.to_string(),
    ));
    let dense = r#""kind":"dense","weight":"dense.w","bias":"dense.b""#;
    nodes.push(node("dense", dense, &(last + 1).to_string(), "4"));
    graph(
        &nodes,
        &[
            ("first.w", &[3, 2, 3, 3]),
            ("first.b", &[3]),
            ("second.w", &[3, 3, 3, 3]),
            ("second.b", &[3]),
            ("dense.w", &[4, elements]),
            ("dense.b", &[4]),
            ("gate.w", &[3, 3, 1, 1]),
            ("gate.b", &[3]),
            ("shift", &[48]),
            ("again", &[48]),
        ],
    )
}

/// Rows of the input times each other, and the ReLU of that times these rows, for two heads: enough
/// products for encryption to pay. A dense layer behind them.
pub fn attention() -> Graph {
    let op = r#""kind":"transpose","permutation":[0,2,1]"#;
    let matmul = r#""kind":"mat_mul""#;
    let dense = r#""kind":"dense","weight":"dense.w","bias":"dense.b""#;
    let nodes = [
        node("x", r#""kind":"input""#, "", "2,40,16"),
        node("keys", op, "0", "2,16,40"),
        node("scores", matmul, "0,1", "2,40,40"),
        node("shares", r#""kind":"relu""#, "2", "2,40,40"),
        node("mixed", matmul, "3,0", "2,40,16"),
        node("flat", r#""kind":"reshape""#, "4", "1280"),
        node("dense", dense, "5", "4"),
    ];
    graph(&nodes, &[("dense.w", &[4, 1280]), ("dense.b", &[4])])
}

/// A dense layer of 6 values to 4, and its `activation` if one is named.
pub fn dense(activation: Option<&str>) -> Graph {
    let layer = r#""kind":"dense","weight":"dense.w","bias":"dense.b""#;
    let mut nodes = vec![
        node("x", r#""kind":"input""#, "", "6"),
        node("dense", layer, "0", "4"),
    ];
    nodes.extend(activation.map(|kind| node("last", &format!(r#""kind":"{kind}""#), "1", "4")));
    graph(&nodes, &[("dense.w", &[4, 6]), ("dense.b", &[4])])
}

/// The same with weights `factor` times as large, a clip to -1..1, and a layer behind it.
pub fn clipped(factor: f32) -> Graph {
    let layer = |name: &str| format!(r#""kind":"dense","weight":"{name}.w","bias":"{name}.b""#);
    let nodes = [
        node("x", r#""kind":"input""#, "", "6"),
        node("dense", &layer("dense"), "0", "4"),
        node("clip", r#""kind":"clip","min":-1.0,"max":1.0"#, "1", "4"),
        node("last", &layer("last"), "2", "4"),
    ];
    let tensors: [(&str, &[usize]); 4] = [
        ("dense.w", &[4, 6]),
        ("dense.b", &[4]),
        ("last.w", &[4, 4]),
        ("last.b", &[4]),
    ];
    let mut graph = graph(&nodes, &tensors);
    let weights = graph.tensors.get_mut("dense.w").expect("it has weights");
    weights
        .data_mut()
        .iter_mut()
        .for_each(|weight| *weight *= factor);
    graph
}

/// Features of [`table`].
pub const FEATURES: usize = 6;

/// Magnitudes of the features, and their middles.
const MAGNITUDES: [f32; FEATURES] = [2500.0, 0.01, 1.0, 15.0, 300.0, 1e-4];
const MIDDLES: [f32; FEATURES] = [0.0, 0.0, 0.0, 2005.0, 9000.0, 0.0];

/// Rows of features, each with a magnitude of its own.
pub fn table(rows: usize, seed: u64) -> Vec<f32> {
    let raw =
        |(at, value): (usize, &f32)| MIDDLES[at % FEATURES] + MAGNITUDES[at % FEATURES] * value;
    numbers(rows * FEATURES, seed)
        .iter()
        .enumerate()
        .map(raw)
        .collect()
}

/// A dense layer to which all features matter alike, as if it standardised them.
pub fn table_layer() -> Graph {
    let mut graph = dense(None);
    let weights = graph.tensors.get_mut("dense.w").expect("weights");
    let weights = weights.data_mut();
    for (at, weight) in weights.iter_mut().enumerate() {
        *weight = weight.signum().mul_add(0.5, *weight) / MAGNITUDES[at % FEATURES];
    }
    let weights = weights.to_vec();
    let bias = graph.tensors.get_mut("dense.b").expect("a bias");
    for (bias, row) in bias.data_mut().iter_mut().zip(weights.chunks(FEATURES)) {
        *bias -= row.iter().zip(MIDDLES).map(|(w, m)| w * m).sum::<f32>();
    }
    graph
}

/// A max-pool of the input itself, and a dense layer.
pub fn pooled_input() -> Graph {
    let pool = format!(r#""kind":"max_pool",{}"#, window(2, 2, 0));
    let dense = r#""kind":"dense","weight":"dense.w","bias":"dense.b""#;
    let nodes = [
        node("x", r#""kind":"input""#, "", "2,4,4"),
        node("pool", &pool, "0", "2,2,2"),
        node("flat", r#""kind":"reshape""#, "1", "8"),
        node("dense", dense, "2", "3"),
    ];
    graph(&nodes, &[("dense.w", &[3, 8]), ("dense.b", &[3])])
}

/// The graph of these nodes, the last of which is the result.
fn graph(nodes: &[String], weights: &[(&str, &[usize])]) -> Graph {
    let json = format!(
        r#"{{"name":"small","nodes":[{}],"output":{}}}"#,
        nodes.join(","),
        nodes.len() - 1
    );
    Graph::from_json(&json, tensors(weights, 21)).expect("the test network is valid")
}

/// Four convolutions with ReLU between, of images of 12 rows.
pub fn convolutions() -> Graph {
    let relu = r#""kind":"relu""#;
    let nodes = [
        node("x", r#""kind":"input""#, "", "2,12,12"),
        node("a", &conv("a"), "0", "3,12,12"),
        node("ra", relu, "1", "3,12,12"),
        node("b", &conv("b"), "2", "3,12,12"),
        node("rb", relu, "3", "3,12,12"),
        node("c", &conv("c"), "4", "3,12,12"),
        node("rc", relu, "5", "3,12,12"),
        node("d", &conv("d"), "6", "1,12,12"),
    ];
    graph(
        &nodes,
        &[
            ("a.w", &[3, 2, 3, 3]),
            ("a.b", &[3]),
            ("b.w", &[3, 3, 3, 3]),
            ("b.b", &[3]),
            ("c.w", &[3, 3, 3, 3]),
            ("c.b", &[3]),
            ("d.w", &[1, 3, 3, 3]),
            ("d.b", &[1]),
        ],
    )
}

/// A chain of squares: too deep to do without relinearisation.
pub fn deep(squares: usize) -> Graph {
    let mut nodes =
        vec![r#"{"name":"x","op":{"kind":"input"},"inputs":[],"shape":[4]}"#.to_owned()];
    let mut shapes: Vec<(String, [usize; 2])> = Vec::new();
    for layer in 0..=squares {
        nodes.push(format!(
            r#"{{"name":"fc{layer}","op":{{"kind":"dense","weight":"w{layer}","bias":null}},"inputs":[{}],"shape":[4]}}"#,
            nodes.len() - 1
        ));
        shapes.push((format!("w{layer}"), [4, 4]));
        if layer < squares {
            nodes.push(format!(
                r#"{{"name":"square{layer}","op":{{"kind":"square"}},"inputs":[{}],"shape":[4]}}"#,
                nodes.len() - 1
            ));
        }
    }
    let shapes: Vec<(&str, &[usize])> = shapes
        .iter()
        .map(|(name, shape)| (name.as_str(), shape.as_slice()))
        .collect();
    let json = format!(
        r#"{{"name":"deep","nodes":[{}],"output":{}}}"#,
        nodes.join(","),
        nodes.len() - 1
    );
    Graph::from_json(&json, tensors(&shapes, 3)).expect("the test network is valid")
}

/// What a plan of this trust level is built with.
pub fn options(trust: TrustLevel) -> BuildOptions {
    BuildOptions {
        trust: Some(trust),
        ..BuildOptions::default()
    }
}

/// The plan of a network, with made-up samples.
pub fn plan(graph: &Graph, options: BuildOptions) -> Built {
    let elements: usize = graph.nodes[0].shape.iter().product();
    let options = BuildOptions {
        samples: Some(numbers(elements * 20, 77)),
        ..options
    };
    build(graph, &options).expect("the network has a plan")
}

/// A network on shares in this engine, with bits of weights and inputs.
pub fn shared(graph: &Graph, engine: Engine, bits: Option<(u32, u32)>) -> Built {
    plan(graph, in_engine(engine, bits))
}

/// The same with dithered rounding, where that saves bytes.
pub fn dithered(graph: &Graph, engine: Engine, bits: Option<(u32, u32)>) -> Built {
    with_least_traffic(graph, engine, bits, Rounding::Dithered)
}

/// The same with a rounding and the fewest bytes, of OTs that cost little to set up.
pub fn with_least_traffic(
    graph: &Graph,
    engine: Engine,
    bits: Option<(u32, u32)>,
    rounding: Rounding,
) -> Built {
    let options = BuildOptions {
        rounding,
        objective: Some(Objective::Traffic),
        lpn: false,
        ..in_engine(engine, bits)
    };
    plan(graph, options)
}

fn in_engine(engine: Engine, bits: Option<(u32, u32)>) -> BuildOptions {
    BuildOptions {
        engine: Some(engine),
        weight_bits: bits.map(|bits| bits.0),
        input_bits: bits.map(|bits| bits.1),
        // Few bits make large errors, which is what is asked for here.
        error: bits.map(|_| 10.0),
        ..options(TrustLevel::TwoParty)
    }
}

/// The same with a lean step in the place of each garbled one that can be, by the extension.
pub fn lean(graph: &Graph, engine: Engine, bits: Option<(u32, u32)>) -> Built {
    lean_with(graph, engine, bits, Transfers::Extension)
}

/// The same with OTs from anywhere.
pub fn lean_with(
    graph: &Graph,
    engine: Engine,
    bits: Option<(u32, u32)>,
    transfers: Transfers,
) -> Built {
    made_lean(shared(graph, engine, bits), transfers)
}

/// A network with lean steps wherever that is possible.
pub fn made_lean(mut built: Built, transfers: Transfers) -> Built {
    let mut lean = 0;
    for index in 0..built.plan.steps.len() {
        let mut plan = built.plan.plan().clone();
        if let StepKind::Garbled(Garbled { ops }) = &plan.steps[index].kind {
            plan.steps[index].kind = StepKind::Lean(Lean {
                ops: ops.clone(),
                transfers,
            });
            if let Ok(plan) = CheckedPlan::new(plan) {
                built.plan = plan;
                lean += 1;
            }
        }
    }
    assert!(lean > 0, "no step is lean");
    built
}

/// A network on shares whose client learns the class alone, of values compared in rounds of pairs
/// until these many are left.
pub fn class(graph: &Graph, engine: Engine, at_once: u32, transfers: Transfers) -> Built {
    let options = BuildOptions {
        engine: Some(engine),
        opening: Some(Opening::Class),
        ..options(TrustLevel::TwoParty)
    };
    let mut built = plan(graph, options);
    let mut plan = built.plan.plan().clone();
    let step = plan.output - 1;
    assert!(matches!(plan.steps[step].kind, StepKind::ArgMax(_)));
    plan.steps[step].kind = StepKind::ArgMax(ArgMax { at_once, transfers });
    built.plan = CheckedPlan::new(plan).expect("any number is compared at once");
    built
}

/// A dense layer of 6 values to 4, of which each comes several times: `classes` in all.
pub fn ties(classes: usize) -> Graph {
    let layer = r#""kind":"dense","weight":"dense.w","bias":"dense.b""#;
    let places: Vec<String> = (0..classes)
        .map(|class| (class * 7 % 4).to_string())
        .collect();
    let take = format!(r#""kind":"take","axis":0,"indices":[{}]"#, places.join(","));
    let nodes = [
        node("x", r#""kind":"input""#, "", "6"),
        node("dense", layer, "0", "4"),
        node("take", &take, "1", &classes.to_string()),
    ];
    graph(&nodes, &[("dense.w", &[4, 6]), ("dense.b", &[4])])
}

/// A dense layer of 6 values to one, and a sigmoid: yes or no.
pub fn yes_or_no() -> Graph {
    let layer = r#""kind":"dense","weight":"dense.w","bias":"dense.b""#;
    let nodes = [
        node("x", r#""kind":"input""#, "", "6"),
        node("dense", layer, "0", "1"),
        node("p", r#""kind":"sigmoid""#, "1", "1"),
    ];
    graph(&nodes, &[("dense.w", &[1, 6]), ("dense.b", &[1])])
}

/// All kinds of steps at once, client-aided.
pub fn aided(seed: u64, bits: Option<(u32, u32)>) -> Built {
    let options = BuildOptions {
        weight_bits: bits.map(|bits| bits.0),
        input_bits: bits.map(|bits| bits.1),
        // Few bits make large errors, which is what is asked for here.
        error: bits.map(|_| 10.0),
        ..options(TrustLevel::ClientAided)
    };
    plan(&network(seed), options)
}

/// The network with so many bytes in a band of a batch.
pub fn in_bands(built: Built, band_bytes: u64) -> Built {
    let mut plan = built.plan.plan().clone();
    plan.band_bytes = band_bytes;
    let plan = CheckedPlan::new(plan).expect("bands of any size are valid");
    Built { plan, ..built }
}

/// All kinds of steps at once, client-aided in the coefficient engine.
pub fn aided_coefficient(seed: u64, bits: Option<(u32, u32)>) -> Built {
    let options = BuildOptions {
        engine: Some(Engine::Coefficient),
        weight_bits: bits.map(|bits| bits.0),
        input_bits: bits.map(|bits| bits.1),
        error: bits.map(|_| 10.0),
        ..options(TrustLevel::ClientAided)
    };
    plan(&network(seed), options)
}

/// Whether some linear step has words of this size.
pub fn has_words(built: &Built, word: WordSize) -> bool {
    let mut steps = built.plan.linear_steps();
    steps.any(|(_, _, rlwe)| rlwe.word == word)
}

/// Answers of an element of a linear step in the clear; 0 of another step.
pub fn parts(step: &Step) -> usize {
    match &step.kind {
        StepKind::ClearLinear(linear) => linear.parts.len(),
        _ => 0,
    }
}

/// Layers on shares in words of 64 bits.
pub fn wide(engine: Engine) -> Built {
    let built = shared(&around(Middle::Relu), engine, Some((11, 11)));
    assert!(has_words(&built, WordSize::U64));
    built
}
