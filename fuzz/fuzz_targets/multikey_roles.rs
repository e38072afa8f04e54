//! Messages between model owner, cloud and client from a hostile peer: refused, or computed with.
#![no_main]

use std::sync::{LazyLock, Mutex};

use libfuzzer_sys::{
    arbitrary::{self, Arbitrary},
    fuzz_target,
};
use pronghorn_fuzz::Damaged;
use pronghorn_graph::{
    geometry::ConvGeometry,
    polynomial::{Layer, PolyGraph, PolyNode, PolyOp},
};
use pronghorn_multikey::{
    Aim,
    roles::{Client, Owner, Service, Terms},
};
use pronghorn_ring::random::Seed;

/// One dense layer of two inputs.
fn graph() -> PolyGraph {
    let node = |op: PolyOp, inputs: Vec<usize>, elements: usize| PolyNode {
        name: op.name().into(),
        op,
        inputs,
        shape: vec![elements],
        reach: 1.0,
        rms: 1.0,
    };
    let layer = Layer {
        geometry: ConvGeometry::dense(2, 1),
        weights: vec![3.0, -2.0],
        divisor: 4.0,
        bias: vec![0.5],
    };
    PolyGraph {
        low: -1.0,
        name: "fuzz".into(),
        nodes: vec![
            node(PolyOp::Input, vec![], 2),
            node(PolyOp::Linear(layer), vec![0], 1),
        ],
        output: 1,
        finish: vec![],
        class_names: Vec::new(),
    }
}

struct Good {
    owner: Mutex<Owner<u32>>,
    service: Mutex<Service<u32>>,
    client: Mutex<Client<u32>>,
    published: Vec<u8>,
    offer: Vec<u8>,
    keys: Vec<u8>,
    pair: Vec<u8>,
    introduction: Vec<u8>,
    request: Vec<u8>,
    outcome: Vec<u8>,
    answer: Vec<u8>,
}

static GOOD: LazyLock<Good> = LazyLock::new(|| {
    let aim = Aim {
        error: 0.25,
        results: 1 << 20,
    };
    let seed = |number| Seed::from_bytes([number; 32]);
    let terms = Terms::<u32>::choose(&graph(), aim, [3; 32]).expect("a shallow network");
    let mut owner = Owner::new(&terms, &seed(1)).expect("one reference");
    let published = owner.publish(&graph()).expect("its network");
    let mut service = Service::new(&published).expect("published");
    let offer = service.offer().expect("a key");
    let mut client = Client::new(&offer, owner.party(), &seed(2)).expect("an offer");
    let introduction = client.introduction();
    owner.admit([client.party()]);
    let party = owner.introduce(&introduction).expect("admitted");
    let pair = owner.pair(party).expect("introduced");
    let keys = client.join().expect("randomness");
    service.join(&keys, &pair).expect("public keys");
    let request = client.request(&[0.5, -0.5]).expect("in range");
    let outcome = service.evaluate(party, &request).expect("joined");
    let answer = owner.answer(&outcome, |_| Ok(())).expect("a client's");
    Good {
        owner: Mutex::new(owner),
        service: Mutex::new(service),
        client: Mutex::new(client),
        published,
        offer,
        keys,
        pair,
        introduction,
        request,
        outcome,
        answer,
    }
});

#[derive(Arbitrary, Debug)]
enum Kind {
    Publication,
    Offer,
    Keys,
    Pair,
    Introduction,
    Request,
    Outcome,
    Answer,
}

fuzz_target!(|input: Damaged<Kind>| {
    let good = &*GOOD;
    let mut owner = good.owner.lock().expect("no panic before");
    let mut service = good.service.lock().expect("no panic before");
    let mut client = good.client.lock().expect("no panic before");
    let party = client.party();
    match input.kind {
        Kind::Publication => {
            let _ = Service::<u32>::new(&input.bytes(&good.published));
        }
        Kind::Offer => {
            let seed = Seed::from_bytes([3; 32]);
            let _ = Client::<u32>::new(&input.bytes(&good.offer), owner.party(), &seed);
        }
        Kind::Keys => {
            let _ = service.join(&input.bytes(&good.keys), &good.pair);
        }
        Kind::Pair => {
            let _ = service.join(&good.keys, &input.bytes(&good.pair));
        }
        Kind::Introduction => {
            let _ = owner.introduce(&input.bytes(&good.introduction));
        }
        Kind::Request => {
            let _ = service.evaluate(party, &input.bytes(&good.request));
        }
        Kind::Outcome => {
            let bytes = input.bytes(&good.outcome);
            let _ = client.request(&[0.5, -0.5]);
            let _ = client.finish(&bytes, &good.answer);
            // Results come to their end after a million.
            let _ = owner.answer(&bytes, |_| Ok(()));
        }
        Kind::Answer => {
            let _ = client.request(&[0.5, -0.5]);
            let bytes = input.bytes(&good.answer);
            // The same result is completed once.
            let _ = client.finish(&good.outcome, &bytes);
        }
    }
});
