//! Files of a kept plan whose hash somebody made anew, tokens, names of models, networks of load
//! balancers and tickets: refused, or what is accepted can be used.
#![no_main]

use std::{net::Ipv4Addr, sync::LazyLock};

use libfuzzer_sys::{
    arbitrary::{self, Arbitrary},
    fuzz_target,
};
use pronghorn_engine::ServerModel;
use pronghorn_fuzz::{Splice, edited, polynomial, shared};
use pronghorn_plan::Built;
use pronghorn_session::{
    ModelRef, Token,
    proxy::Network,
    ticket::{Signer, Tickets},
};

/// Magic and version, and the hash of what follows.
const HEAD: usize = 10;
const HASH: usize = 32;

static PLANS: LazyLock<[Vec<u8>; 2]> =
    LazyLock::new(|| [shared(), polynomial()].map(|built| built.to_bytes()));

static NODE: LazyLock<(Tickets, Vec<u8>)> = LazyLock::new(|| {
    let key = Signer::generate().expect("there is randomness");
    let signer = Signer::new(&key).expect("it is a key");
    let node = Tickets::new(signer.public(), "node:1".into()).expect("there is randomness");
    let time = std::time::Duration::from_secs(60);
    let ticket = signer.issue("node:1", [0; 16], Some("bob"), time);
    (node, ticket.expect("the names are short"))
});

#[derive(Arbitrary, Debug)]
enum Input {
    Plan {
        which: bool,
        splices: Vec<Splice>,
        is_damaged: bool,
    },
    Text(String),
    Ticket(Vec<Splice>),
}

fuzz_target!(|input: Input| match input {
    Input::Plan {
        which,
        splices,
        is_damaged,
    } => plan(which, &splices, is_damaged),
    Input::Text(text) => {
        if let Some(token) = Token::parse(&text) {
            assert!(!token.name().is_empty());
        }
        if let Ok(model) = text.parse::<ModelRef>() {
            assert_eq!(model.to_string().parse::<ModelRef>().ok(), Some(model));
        }
        let _ = text.parse::<Network>();
    }
    Input::Ticket(splices) => {
        let (node, good) = &*NODE;
        let bytes = edited(good.clone(), &splices);
        // The good one is for another run of the node.
        assert!(node.take(&bytes, Ipv4Addr::LOCALHOST.into()).is_err());
    }
});

/// A file is read only where its hash is good. What is read is a model, or says why it is none.
fn plan(which: bool, splices: &[Splice], is_damaged: bool) {
    let good = &PLANS[usize::from(which)];
    let body = edited(good[HEAD + HASH..].to_vec(), splices);
    let mut bytes = good[..HEAD].to_vec();
    bytes.extend_from_slice(blake3::hash(&body).as_bytes());
    bytes.extend_from_slice(&body);
    if is_damaged && bytes != *good {
        bytes[HEAD] ^= 1;
        assert!(Built::from_bytes(&bytes).is_err());
        return;
    }
    if let Ok(built) = Built::from_bytes(&bytes) {
        let _ = ServerModel::new(&built);
    }
}
