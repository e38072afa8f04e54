//! Graphs as an importer hands them over: any JSON, tensors of any shape. What is accepted can be
//! evaluated, simplified and planned without a panic.
#![no_main]

use libfuzzer_sys::{
    arbitrary::{self, Arbitrary},
    fuzz_target,
};
use pronghorn_fuzz::{NETWORK, Splice, edited, options, tensors};
use pronghorn_graph::{float, graph::Graph, passes};
use pronghorn_plan::{BuildOptions, Plan, build};

/// Values of all nodes together up to which a graph is evaluated and planned.
const SMALL: usize = 2_000;

#[derive(Arbitrary, Debug)]
struct Input {
    json: Json,
    /// Which tensor, which value of it becomes which.
    values: Vec<(u8, u16, f32)>,
    /// Which tensor gets which shape; its data stays or is cut to fit.
    shapes: Vec<(u8, Vec<usize>, bool)>,
}

#[derive(Arbitrary, Debug)]
enum Json {
    Text(String),
    Edited(Vec<Splice>),
}

fuzz_target!(|input: Input| {
    let json = match input.json {
        Json::Text(text) => text,
        Json::Edited(splices) => {
            String::from_utf8_lossy(&edited(NETWORK.as_bytes().to_vec(), &splices)).into_owned()
        }
    };
    let mut tensors = tensors();
    let names: Vec<String> = tensors.keys().cloned().collect();
    for (name, shape, fit) in input.shapes {
        let tensor = tensors
            .get_mut(&names[usize::from(name) % names.len()])
            .expect("the name is one of its");
        let elements = shape
            .iter()
            .try_fold(1usize, |product, &size| product.checked_mul(size));
        if let Some(elements) = elements.filter(|&elements| fit && elements <= SMALL) {
            let mut data = tensor.data.to_vec();
            data.resize(elements, 0.25);
            tensor.data = data.into();
        }
        tensor.shape = shape;
    }
    for (name, at, value) in input.values {
        let tensor = tensors
            .get_mut(&names[usize::from(name) % names.len()])
            .expect("the name is one of its");
        if let Some(slot) = tensor.data_mut().get_mut(usize::from(at) % 64) {
            *slot = value;
        }
    }
    let Ok(graph) = Graph::from_json(&json, tensors) else {
        return;
    };
    if graph
        .nodes
        .iter()
        .map(|node| node.shape.iter().product::<usize>())
        .sum::<usize>()
        <= SMALL
    {
        use_it(&graph);
    }
});

fn use_it(graph: &Graph) {
    let inputs = vec![0.5; graph.input_len()];
    // Infinite weights and the like are an error, not a panic.
    let _ = float::evaluate(graph, &inputs, 1);
    let _ = float::evaluate(&passes::run(graph), &inputs, 1);
    if let Ok(built) = build(
        graph,
        &BuildOptions {
            samples: Some(inputs),
            ..options()
        },
    ) {
        let bytes = built.plan.to_bytes();
        assert_eq!(
            Plan::from_bytes(&bytes).expect("a plan that was built is valid"),
            built.plan
        );
    }
}
