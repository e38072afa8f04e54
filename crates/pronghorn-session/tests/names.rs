//! No name of the model's file goes to a client, in a good session or an ended one.

use std::sync::Arc;

use crate::common::{
    relay::{Passing, Relay, Way},
    *,
};
use pronghorn_engine::ServerModel;
use pronghorn_plan::{BuildOptions, Built, Engine, Opening, TrustLevel};
use pronghorn_session::{Client, ConnectOptions, Server, frame::Kind};

/// In the names of the model and of its nodes.
const TELLING: &str = "patient_hiv_head";

/// A model for each trust level and engine, and with each kind of opening.
fn models() -> Vec<Built> {
    let of = |trust, engine, opening, activation| {
        let options = BuildOptions {
            trust: Some(trust),
            engine,
            opening,
            ..BuildOptions::default()
        };
        built_named(TELLING, activation, options)
    };
    let (aided, shared) = (TrustLevel::ClientAided, TrustLevel::TwoParty);
    let mut models = vec![of(TrustLevel::Encrypted, None, None, "square")];
    for engine in [Engine::Batch, Engine::Coefficient] {
        models.push(of(aided, Some(engine), None, "relu"));
    }
    for engine in [Engine::Batch, Engine::Coefficient, Engine::Slot] {
        for opening in [Opening::Class, Opening::Values] {
            models.push(of(shared, Some(engine), Some(opening), "relu"));
        }
    }
    models
}

/// The frames of a session that predicts and prepares, as far as it gets; `change` may alter them.
fn session(
    built: &Built,
    change: impl Fn(&mut Passing) -> bool + Send + Sync + 'static,
) -> (Vec<Passing>, Vec<String>) {
    let model = Arc::new(ServerModel::new(built).expect("weights fit the plan"));
    let server = Server::bind("127.0.0.1:0", model, patient()).expect("a port is free");
    let mut running = Running::start(server);
    let relay = Relay::new(running.address(), change);
    let options = ConnectOptions {
        trust: Some(built.plan.trust),
        ..options()
    };
    let mut client = Client::connect(&relay.address(), options).expect("it is served");
    // Neither what the client has nor what it prints has a name.
    for text in [client.plan().to_json(), format!("{:#}", client.plan())] {
        assert!(!text.contains(TELLING), "{text}");
    }
    if client.predict(&numbers(INPUTS), 1, &mut |_| {}).is_ok() && built.plan.trust.shares() {
        client.prepare(1, |_| {}).expect("it can be prepared");
        let again = client.predict(&numbers(INPUTS), 1, &mut |_| {});
        again.expect("it is served");
    }
    drop(client);
    running.wait_for_log(" left: ");
    running.stop();
    (relay.seen(), running.log())
}

fn tells(frame: &Passing) -> bool {
    let mut parts = frame.bytes.windows(TELLING.len());
    parts.any(|part| part == TELLING.as_bytes())
}

#[test]
fn no_frame_has_a_name() {
    for built in models() {
        let case = format!("{} {:#}", built.plan.trust, built.plan);
        let (frames, _) = session(&built, |_| true);
        let sent = |kind: Kind| frames.iter().any(|frame| frame.kind() == kind as u8);
        assert!(sent(Kind::PlanBytes) && sent(Kind::Done), "{case}");
        assert!(!frames.iter().any(tells), "{case}");
    }
}

/// The server's error has the step's number and kind for the client, and for its log the name, too.
#[test]
fn errors_name_steps_by_number_and_the_log_has_the_node() {
    for built in models() {
        let case = format!("{} {:#}", built.plan.trust, built.plan);
        // The client's last message of the first batch gets a byte more.
        let (frames, _) = session(&built, |_| true);
        let is_data = |frame: &&Passing| frame.way == Way::Up && frame.kind() == Kind::Data as u8;
        let done = frames
            .iter()
            .position(|frame| frame.kind() == Kind::Done as u8);
        let before = &frames[..done.expect("a batch ends")];
        let last = before.iter().rfind(is_data).expect("it sends").index;
        let (frames, log) = session(&built, move |frame| {
            if frame.way == Way::Up && frame.index == last {
                frame.bytes.push(0);
                let length = frame.bytes.len() as u32 - 5;
                frame.bytes[..4].copy_from_slice(&length.to_le_bytes());
            }
            true
        });
        assert!(!frames.iter().any(tells), "{case}");
        let told = frames
            .iter()
            .rfind(|frame| frame.kind() == Kind::Error as u8);
        let told = told.map(|frame| String::from_utf8_lossy(&frame.bytes[7..]).into_owned());
        let told = told.expect("the server says why");
        assert!(
            log.iter().any(|line| line.contains("ended by an error")),
            "{log:?}"
        );
        if told.contains("step ") {
            assert!(
                log.iter().any(|line| line.contains(TELLING)),
                "{told}: {log:?}"
            );
        }
    }
}
