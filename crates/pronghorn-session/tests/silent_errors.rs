//! Errors tell nothing: whoever can change bytes on the line, with a forged transcript, sees a client
//! whose checks of decrypted values fail do what it does where they hold.
//!
//! The attack: additive shares can be shifted without a key. Shifted by `high - T`, an opened value
//! leaves its range exactly where it exceeds `T`. A client that says so tells a bit of its result for
//! each spoiled prediction.

use std::{
    sync::{Arc, Mutex},
    thread,
    time::Duration,
};

use crate::common::{
    relay::{Passing, Relay, Way},
    *,
};
use pronghorn_engine::{EngineError, ServerModel};
use pronghorn_graph::graph::{Graph, Tensor};
use pronghorn_plan::{BuildOptions, Built, Engine, TrustLevel, build};
use pronghorn_ring::bits;
use pronghorn_session::{
    Client, ConnectOptions, Limits, Server, SessionError, frame::Kind, in_process,
    store::file::Party, transcript::Transcript,
};

/// 6 -> 5, ReLU: the shares of the result are exact, and its range leaves a gap.
fn ends_in_relu(engine: Option<Engine>) -> Built {
    let json = r#"{"name":"tiny","output":2,"nodes":[
        {"name":"x","op":{"kind":"input"},"inputs":[],"shape":[6]},
        {"name":"fc","op":{"kind":"dense","weight":"w","bias":"b"},"inputs":[0],"shape":[5]},
        {"name":"relu","op":{"kind":"relu"},"inputs":[1],"shape":[5]}]}"#;
    let tensor = |shape: &[usize]| {
        let data = numbers(shape.iter().product());
        let data = data.iter().map(|value| value - 0.3);
        Tensor::new(shape, data.collect())
    };
    let tensors = [("w", tensor(&[5, 6])), ("b", tensor(&[5]))];
    let tensors = tensors.map(|(name, tensor)| (name.to_owned(), tensor));
    let graph = Graph::from_json(json, tensors.into()).expect("it is valid");
    let options = BuildOptions {
        trust: Some(TrustLevel::TwoParty),
        samples: Some(numbers(INPUTS * 50)),
        engine,
        ..BuildOptions::default()
    };
    build(&graph, &options).expect("it has a plan")
}

/// The last frame of a session that ends well.
const BYE: u8 = Kind::Bye as u8;

fn kind(byte: u8) -> Kind {
    let kinds = [
        Kind::ClientHello,
        Kind::ServerHello,
        Kind::PlanRequest,
        Kind::PlanBytes,
        Kind::Begin,
        Kind::Data,
        Kind::Done,
        Kind::Error,
        Kind::Bye,
    ];
    let found = kinds.into_iter().find(|&kind| kind as u8 == byte);
    found.expect("only these are sent")
}

/// What each party believes went over the line.
#[derive(Default)]
struct Views {
    client: Transcript,
    server: Transcript,
    /// Data of the server's so far.
    data: usize,
}

/// Changes the payload of data of the server's, by its number.
type Change = dyn Fn(usize, &mut Vec<u8>) + Send + Sync;

impl Views {
    /// Changes a frame as `change` says, and makes both transcripts fit.
    fn pass(&mut self, passing: &mut Passing, change: &Change) {
        let kind = kind(passing.kind());
        if kind == Kind::Error {
            return;
        }
        let mut payload = passing.bytes.split_off(5);
        let sender = match passing.way {
            Way::Up => Party::Client,
            Way::Down => Party::Server,
        };
        if kind == Kind::Done {
            payload.truncate(payload.len() - 32);
            self.server.absorb(sender, kind, &payload);
            self.client.seal(sender, kind, &mut payload);
        } else {
            self.server.absorb(sender, kind, &payload);
            if sender == Party::Server && kind == Kind::Data {
                change(self.data, &mut payload);
                self.data += 1;
            }
            self.client.absorb(sender, kind, &payload);
        }
        passing.bytes.extend(payload);
    }
}

/// What the attacker sees of a client: kinds and lengths of its frames.
type Seen = Vec<(u8, usize)>;

/// A client's prediction of `images` images over a line that is changed so, what it does on the same
/// connection afterwards, and what is seen of it.
fn attacked(
    running: &Running,
    trust: TrustLevel,
    images: usize,
    change: impl Fn(usize, &mut Vec<u8>) + Send + Sync + 'static,
) -> (Result<Vec<f32>, SessionError>, Seen, usize) {
    let views = Arc::new(Mutex::new(Views::default()));
    let relay = Relay::new(running.address(), {
        let views = views.clone();
        move |passing| {
            views.lock().unwrap().pass(passing, &change);
            true
        }
    });
    let options = ConnectOptions {
        trust: Some(trust),
        ..options()
    };
    let mut client = Client::connect(&relay.address(), options).expect("the hellos pass");
    let outcome = client.predict(&numbers(INPUTS * images), images, &mut |_| {});
    let data = views.lock().unwrap().data;
    let public = matches!(
        outcome,
        Err(SessionError::Engine(
            EngineError::Word { .. }
                | EngineError::Packing { .. }
                | EngineError::Wire { .. }
                | EngineError::Damaged { .. }
        ))
    );
    if !public {
        let more = client.predict(&numbers(INPUTS), 1, &mut |_| {});
        more.unwrap_or_else(|error| panic!("{error} after {outcome:?}"));
    }
    drop(client);
    // The goodbye is on its way.
    for _ in 0..500 {
        if relay.seen().iter().any(|passing| passing.kind() == BYE) {
            break;
        }
        thread::sleep(Duration::from_millis(10));
    }
    let up = |passing: &&Passing| passing.way == Way::Up;
    let seen = relay.seen();
    let seen = seen.iter().filter(up);
    let seen = seen.map(|passing| (passing.kind(), passing.bytes.len()));
    (outcome.map(|found| found.outputs), seen.collect(), data)
}

/// The review's script: shifts of an opened share, at thresholds below and above the value.
#[test]
fn a_shifted_opening_tells_nothing() {
    let built = ends_in_relu(None);
    let model = Arc::new(ServerModel::new(&built).expect("weights fit the plan"));
    let limits = Limits {
        max_images_per_batch: Some(2),
        ..patient()
    };
    let server = Server::bind("127.0.0.1:0", model.clone(), limits).expect("a port is free");
    let running = Running::start(server);
    // Two batches: the attack is on the first.
    let images = 3;
    let honest = in_process(&model, &numbers(INPUTS * images), images).expect("it runs");
    let plan = model.plan();
    let (outputs, high) = (plan.output_len(), plan.result().high);
    let width = plan.forms()[plan.output].bits;
    let (clean, wanted, all) = attacked(&running, TrustLevel::TwoParty, images, |_, _| {});
    assert_eq!(clean.expect("nothing was changed"), honest.outputs(plan));
    let words = outputs * 2;
    let length = bits::packed_len(words, width);
    let lengths = Arc::new(Mutex::new(Vec::new()));
    let record = lengths.clone();
    let _ = attacked(&running, TrustLevel::TwoParty, images, move |_, payload| {
        record.lock().unwrap().push(payload.len());
    });
    let lengths = lengths.lock().unwrap()[..all].to_vec();
    let opening = lengths.iter().position(|&found| found == length);
    let opening = opening.expect("the first batch is opened in one message");
    let (mut read, mut kept) = (0, 0);
    for element in 0..outputs {
        let value = honest.integers[element];
        for threshold in [value - 2, value - 1, value, value + 1] {
            if !(plan.result().low..high).contains(&threshold) {
                continue;
            }
            let shift = (high - threshold) as u32;
            // Values of the message are by element, then by image.
            let place = element * 2;
            let change = move |data: usize, payload: &mut Vec<u8>| {
                if data == opening {
                    let mut shares = vec![0u32; words];
                    bits::unpack(payload, width, &mut shares).expect("it is a share");
                    let mask = u32::MAX >> (32 - width);
                    shares[place] = shares[place].wrapping_add(shift) & mask;
                    payload.clear();
                    bits::pack(&shares, width, payload);
                }
            };
            let (outcome, seen, _) = attacked(&running, TrustLevel::TwoParty, images, change);
            match outcome {
                Err(error @ SessionError::Engine(EngineError::Opened { .. })) => {
                    // To try again at once would tell of it.
                    assert_eq!(
                        (error.reason(), error.is_retryable()),
                        ("failed-check", false)
                    );
                    assert!(value > threshold, "{value} {threshold}");
                    read += 1;
                }
                Ok(_) => {
                    assert!(value <= threshold, "{value} {threshold}");
                    kept += 1;
                }
                other => panic!("{other:?}"),
            }
            assert_eq!(seen, wanted, "what is seen tells {value} from {threshold}");
        }
    }
    assert!(
        read > 0 && kept > 0,
        "the attack would have read {read} and {kept}"
    );
    assert!(
        running
            .log()
            .iter()
            .all(|line| !line.contains("ended by an error"))
    );
}

/// Under `client-aided` the client decrypts every layer. What it does next must not depend on that.
#[test]
fn changed_answers_of_inner_layers_tell_nothing() {
    // Enough images that hardly any change keeps all values of a row within their range.
    changes_tell_nothing(&Running::real(patient()), TrustLevel::ClientAided, 24, 0);
}

/// Under `encrypted` it decrypts the result, with keys that serve several predictions.
#[test]
fn changed_answers_of_encrypted_networks_tell_nothing() {
    let options = BuildOptions {
        trust: Some(TrustLevel::Encrypted),
        key_checks: 2,
        ..BuildOptions::default()
    };
    let model = ServerModel::new(&built_with("square", options)).expect("weights fit the plan");
    let server = Server::bind("127.0.0.1:0", Arc::new(model), patient());
    let running = Running::start(server.expect("a port is free"));
    // The challenge and the choice come before the answers.
    changes_tell_nothing(&running, TrustLevel::Encrypted, 24, 2);
}

/// On slots circuits open the result, and the client's keys serve several predictions.
#[test]
fn changed_circuits_on_slots_tell_nothing() {
    let model = ServerModel::new(&ends_in_relu(Some(Engine::Slot))).expect("weights fit the plan");
    let server = Server::bind("127.0.0.1:0", Arc::new(model), patient());
    let running = Running::start(server.expect("a port is free"));
    // Oblivious transfers and the wish come before the answers and circuits.
    changes_tell_nothing(&running, TrustLevel::TwoParty, 1, 3);
}

/// Changes of the server's data from message `first` on.
fn changes_tell_nothing(running: &Running, trust: TrustLevel, images: usize, first: usize) {
    let (clean, wanted, data) = attacked(running, trust, images, |_, _| {});
    clean.expect("nothing was changed");
    let mut noticed = 0;
    for message in first..data {
        for place in 0..12 {
            let change = move |found: usize, payload: &mut Vec<u8>| {
                if found == message && !payload.is_empty() {
                    // A whole word: one bit rarely takes a value out of its range.
                    let at = place * payload.len() / 12;
                    payload
                        .iter_mut()
                        .skip(at)
                        .take(8)
                        .for_each(|byte| *byte ^= 0x55);
                }
            };
            let (outcome, seen, _) = attacked(running, trust, images, change);
            match outcome {
                Ok(_) => {}
                Err(SessionError::Engine(
                    EngineError::Decryption { .. } | EngineError::Opened { .. },
                )) => noticed += 1,
                // Words that are no residues: anybody on the line can tell.
                Err(SessionError::Engine(
                    EngineError::Word { .. }
                    | EngineError::Packing { .. }
                    | EngineError::Wire { .. }
                    | EngineError::Damaged { .. },
                )) => continue,
                Err(other) => panic!("{other:?}"),
            }
            assert_eq!(seen, wanted, "message {message}, place {place}");
        }
    }
    assert!(noticed > 0, "no change was noticed: the test shows nothing");
}
