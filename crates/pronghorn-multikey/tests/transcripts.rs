//! The messages of the three roles equal a golden file: order, sender, length and hash.
//!
//! After a change of the wire format, `PRONGHORN_BLESS=1 cargo test -p pronghorn-multikey --test
//! transcripts` writes the file anew; the commit says why.

use std::{env, fmt::Write as _, fs, path::PathBuf};

use pronghorn_graph::{
    geometry::ConvGeometry,
    polynomial::{Layer, PolyGraph, PolyNode, PolyOp},
};
use pronghorn_multikey::{
    Aim,
    roles::{Client, Owner, Service, Terms},
};
use pronghorn_ring::{random::Seed, test_seed::TestSeeds};

/// A dense layer of 4 inputs, and its square.
fn graph() -> PolyGraph {
    let node = |op: PolyOp, inputs: Vec<usize>, elements: usize| PolyNode {
        name: String::new(),
        op,
        inputs,
        shape: vec![elements],
        reach: 1.0,
        rms: 1.0,
    };
    let layer = Layer {
        geometry: ConvGeometry::dense(4, 2),
        weights: vec![5.0, -3.0, 2.0, 7.0, -1.0, 4.0, 6.0, -8.0],
        divisor: 16.0,
        bias: vec![0.25, -0.5],
    };
    PolyGraph {
        low: -1.0,
        name: String::new(),
        nodes: vec![
            node(PolyOp::Input, vec![], 4),
            node(PolyOp::Linear(layer), vec![0], 2),
            node(PolyOp::Square, vec![1], 2),
        ],
        output: 2,
        finish: vec![],
        class_names: Vec::new(),
    }
}

#[test]
fn messages_are_those_of_the_golden_file() {
    let aim = Aim {
        error: 2f64.powi(-6),
        results: 4,
    };
    let seed = |number| Seed::from_bytes([number; 32]);
    let mut random = TestSeeds::new("roles");
    let found = random.during(|| {
        let mut tape = String::new();
        let mut add = |sender: &str, what: &str, bytes: &[u8]| {
            let hash = blake3::hash(bytes).to_hex();
            // A `String` takes every write.
            let _ = writeln!(tape, "{sender} {what} {} {}", bytes.len(), &hash[..16]);
        };
        let terms = Terms::<u32>::choose(&graph(), aim, [3; 32]).expect("a shallow network");
        let mut owner = Owner::new(&terms, &seed(1)).expect("one reference");
        let published = owner.publish(&graph()).expect("its network");
        add("owner", "publication", &published);
        let mut service = Service::<u32>::new(&published).expect("published");
        let offer = service.offer().expect("the owner's key");
        add("cloud", "offer", &offer);
        let mut client = Client::<u32>::new(&offer, owner.party(), &seed(2)).expect("an offer");
        let introduction = client.introduction();
        add("client", "introduction", &introduction);
        owner.admit([client.party()]);
        let party = owner.introduce(&introduction).expect("admitted");
        let pair = owner.pair(party).expect("introduced");
        add("owner", "key of the pair", &pair);
        let keys = client.join().expect("randomness");
        add("client", "keys", &keys);
        service.join(&keys, &pair).expect("public keys");
        let request = client.request(&[0.5, -0.25, 1.0, 0.0]).expect("in range");
        add("client", "request", &request);
        let outcome = service.evaluate(party, &request).expect("joined");
        add("cloud", "outcome", &outcome);
        let mut ledger = Vec::new();
        let answer = owner.answer(&outcome, |bytes| {
            ledger = bytes.to_vec();
            Ok(())
        });
        let answer = answer.expect("once");
        add("owner", "ledger", &ledger);
        add("owner", "answer", &answer);
        client.finish(&outcome, &answer).expect("complete");
        tape
    });
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden/roles.txt");
    if env::var_os("PRONGHORN_BLESS").is_some() {
        fs::create_dir_all(path.parent().expect("a folder")).expect("it can be made");
        fs::write(&path, &found).expect("it can be written");
    }
    let wanted = fs::read_to_string(&path).expect("a golden file");
    assert_eq!(found, wanted);
}
