//! Plans that are kept as bytes are the same when they are read again.

use crate::common::networks::{deep, network, options, plan as planned};
use pronghorn_graph::polynomial::PolyOp;
use pronghorn_plan::{
    Built, Encrypted, Engine, KeptError, StepKind, TrustLevel, Weights, steps::encrypted::ProgramOp,
};

fn cases() -> Vec<Built> {
    let shared = [Engine::Batch, Engine::Coefficient, Engine::Slot].map(|engine| {
        let mut options = options(TrustLevel::TwoParty);
        options.engine = Some(engine);
        planned(&network(1), options)
    });
    let aided = planned(&network(2), options(TrustLevel::ClientAided));
    let encrypted = planned(&deep(2), options(TrustLevel::Encrypted));
    shared.into_iter().chain([aided, encrypted]).collect()
}

#[test]
fn kept_plans_are_the_same() {
    for built in cases() {
        let read = Built::from_bytes(&built.to_bytes()).expect("it was kept");
        assert_eq!(read.plan, built.plan);
        assert_eq!(read.names, built.names);
        assert_eq!(read.fidelity, built.fidelity);
        assert_eq!(read.text(true), built.text(true));
        assert_eq!(read.multiply_adds(), built.multiply_adds());
        let values: Vec<f32> = (0..2 * built.plan.input_len())
            .map(|index| (index % 7) as f32 / 7.0)
            .collect();
        let (integers, _) = built.plan.quantise(&values).expect("they are finite");
        let run = |built: &Built| built.oracle(&integers, 2).expect("they are in range");
        assert_eq!(run(&read), run(&built));
        // The weights themselves.
        assert_eq!(read.to_bytes(), built.to_bytes());
    }
}

/// Networks on ciphertexts from a file whose hash somebody made anew.
#[test]
fn networks_that_are_none_are_refused() {
    let built = planned(&deep(2), options(TrustLevel::Encrypted));
    let network = || match &built.weights[..] {
        [_, Weights::Network(network)] => network.clone(),
        _ => panic!("it has a network"),
    };
    let StepKind::Encrypted(plan) = &built.plan.steps[1].kind else {
        panic!("it is on ciphertexts");
    };
    let is_sound = |network: &Encrypted| network.is_sound(&built.plan.place(1), plan);
    assert!(is_sound(&network()));
    let last = network().graph.nodes.len() - 1;
    let changes: [fn(&mut Encrypted, usize); 24] = [
        |network, _| network.program.output = 0,
        |network, _| network.program.nodes[0].polys = 3,
        |network, _| network.program.nodes[1].polys += 1,
        |network, _| {
            let output = network.program.output;
            network.program.nodes[output].limbs -= 1;
        },
        |network, _| network.program.nodes[1].op = ProgramOp::Rescale { limbs: 0 },
        |network, _| network.graph.nodes[0].inputs = vec![1000],
        |network, _| network.graph.nodes[0].shape = vec![0],
        |network, _| network.program.nodes.clear(),
        |network, _| network.program.output += 100,
        |network, _| network.program.nodes[1].inputs = vec![1],
        |network, _| network.program.nodes[1].inputs.clear(),
        |network, _| network.program.nodes[1].elements += 1,
        |network, _| network.program.nodes[1].limbs = 0,
        |network, _| network.program.nodes[0].limbs = 60,
        |network, _| network.program.nodes[1].polys = 1,
        |network, _| network.program.nodes[1].scale = f64::NAN,
        |network, _| network.program.nodes[1].op = ProgramOp::Node(1000),
        |network, _| network.program.nodes[1].op = ProgramOp::Rescale { limbs: usize::MAX },
        |network, _| network.graph.nodes.clear(),
        |network, last| network.graph.output = last + 1,
        |network, last| network.graph.nodes[last].inputs = vec![last],
        |network, last| network.graph.nodes[last].shape = vec![usize::MAX, 2],
        |network, _| network.graph.nodes[0].op = PolyOp::Square,
        |network, _| {
            for node in &mut network.graph.nodes {
                if let PolyOp::Linear(layer) = &mut node.op {
                    layer.bias.pop();
                }
            }
        },
    ];
    for (number, change) in changes.into_iter().enumerate() {
        let mut network = network();
        change(&mut network, last);
        assert!(!is_sound(&network), "change {number}");
    }
}

#[test]
fn damage_is_found() {
    let bytes = planned(&network(1), options(TrustLevel::TwoParty)).to_bytes();
    let found = |bytes: &[u8]| Built::from_bytes(bytes).err().expect("it is refused");
    for cut in [0, 7, 9, 41] {
        assert!(matches!(found(&bytes[..cut]), KeptError::Format), "{cut}");
    }
    assert!(matches!(
        found(&bytes[..bytes.len() - 1]),
        KeptError::Damaged
    ));
    for place in [0, 8, 10, 42, bytes.len() / 2, bytes.len() - 1] {
        let mut other = bytes.clone();
        other[place] ^= 1;
        match found(&other) {
            KeptError::Format => assert!(place < 10, "{place}"),
            KeptError::Damaged => assert!(place >= 10, "{place}"),
            KeptError::Plan(error) => panic!("{error}"),
        }
    }
}
