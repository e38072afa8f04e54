//! Several models on one server: names, versions, for whom each is, and other ones while it runs.

use std::sync::Arc;

use crate::common::{
    tls::{Keys, connect, with_tls},
    *,
};
use pronghorn_engine::ServerModel;
use pronghorn_plan::{BuildOptions, TrustLevel};
use pronghorn_session::{
    Client, ConnectOptions, ErrorCode, Limits, Offer, Server, ServerChannel, SessionError,
    in_process, list_models,
};

/// A model whose plan has this name, and whose activation and so results are its own.
fn named(name: &str, trust: TrustLevel, activation: &str) -> Arc<ServerModel> {
    let options = BuildOptions {
        trust: Some(trust),
        name: Some(name.to_owned()),
        ..BuildOptions::default()
    };
    let built = built_with(activation, options);
    Arc::new(ServerModel::new(&built).expect("weights fit the plan"))
}

fn aided(name: &str, activation: &str) -> Arc<ServerModel> {
    named(name, TrustLevel::ClientAided, activation)
}

fn server(offers: Vec<Offer>, limits: Limits) -> Result<Server, SessionError> {
    Server::bind_over("127.0.0.1:0", offers, limits, ServerChannel::default())
}

fn asking(model: &str) -> ConnectOptions {
    ConnectOptions {
        model: Some(model.parse().expect("it is a name")),
        ..options()
    }
}

fn ask(running: &Running, model: &str) -> Result<Client, SessionError> {
    Client::connect(&running.address().to_string(), asking(model))
}

/// The client gets what a run without sockets gives.
fn gets(mut client: Client, model: &Arc<ServerModel>) {
    let inputs = numbers(INPUTS * 3);
    let found = client.predict(&inputs, 3, &mut |_| {});
    let wanted = in_process(model, &inputs, 3).expect("the run succeeds");
    let found = found.expect("it is served");
    assert_eq!(found.outputs, wanted.outputs(client.plan()));
}

fn listed(running: &Running, options: &ConnectOptions) -> Vec<String> {
    let listed = list_models(&running.address().to_string(), options);
    let name = |listed: &pronghorn_session::message::Listed| listed.model.to_string();
    listed.expect("it is told").iter().map(name).collect()
}

fn refused(outcome: Result<Client, SessionError>) -> (ErrorCode, String) {
    match outcome.err().expect("it is refused") {
        SessionError::Peer { code, text } => (code, text),
        other => panic!("{other}"),
    }
}

#[test]
fn each_client_gets_the_model_that_it_names() {
    let models = [
        aided("a", "relu"),
        aided("b@1", "square"),
        aided("b@2", "relu"),
        named("c", TrustLevel::TwoParty, "relu"),
    ];
    let offers = models.iter().cloned().map(Offer::from).collect();
    let running = Running::start(server(offers, patient()).expect("a free port"));
    assert_eq!(listed(&running, &options()), ["a@1", "b@1", "b@2", "c@1"]);
    for (name, index) in [("a", 0), ("a@1", 0), ("b@1", 1), ("b@2", 2), ("b", 2)] {
        let client = ask(&running, name).expect(name);
        assert_eq!(client.plan().hash(), models[index].plan().hash(), "{name}");
        gets(client, &models[index]);
    }
    let two_party = ConnectOptions {
        trust: Some(TrustLevel::TwoParty),
        ..asking("c")
    };
    let client = Client::connect(&running.address().to_string(), two_party);
    gets(client.expect("it is served"), &models[3]);
    // Trust levels are of models.
    assert_eq!(refused(ask(&running, "c")).0, ErrorCode::Trust);
    for name in ["d", "a@2", "b@3"] {
        let (code, text) = refused(ask(&running, name));
        assert_eq!(code, ErrorCode::Model);
        assert!(text.contains(&format!("no model {name}")), "{text}");
        assert!(!text.contains("b@1"), "{text}");
    }
    let (code, text) = refused(running.connect());
    assert!(
        code == ErrorCode::Model && text.contains("--model NAME"),
        "{text}"
    );
}

/// A client hears the same of a model for others and of none.
#[test]
fn a_model_is_for_the_clients_that_its_owner_names() {
    let keys = Keys::new();
    let (first, second) = (aided("a", "relu"), aided("b", "square"));
    let offers = vec![
        Offer::from(first.clone()),
        Offer::from(second.clone()).for_clients(["alice".to_owned()]),
    ];
    let channel = ServerChannel::Tls(keys.server());
    let server = Server::bind_over("127.0.0.1:0", offers, patient(), channel);
    let running = Running::start(server.expect("a free port"));
    let as_client = |name: &str, model: &str| ConnectOptions {
        model: Some(model.parse().expect("it is a name")),
        ..with_tls(keys.client(name))
    };
    let ask = |name: &str, model: &str| {
        Client::connect(&running.address().to_string(), as_client(name, model))
    };
    gets(ask("alice", "b").expect("it is for her"), &second);
    let (code, text) = refused(ask("bob", "b"));
    assert_eq!(code, ErrorCode::Model);
    let (_, none) = refused(ask("bob", "nothing"));
    assert_eq!(text, none.replace("nothing", "b"));
    let told = |name: &str| listed(&running, &with_tls(keys.client(name)));
    assert_eq!(
        (told("alice"), told("bob")),
        (vec!["a@1".into(), "b@1".into()], vec!["a@1".into()])
    );
    // For her it is the only one, so she need not name it.
    let only = connect(running.address(), keys.client("bob"));
    gets(only.expect("she is served"), &first);
    let stranger = list_models(&running.address().to_string(), &with_tls(keys.stranger()));
    assert_eq!(
        stranger.expect_err("nobody knows it").code(),
        ErrorCode::Unauthorised
    );
}

#[test]
fn models_are_exchanged_while_clients_are_served() {
    let (first, second, third) = (
        aided("a@1", "relu"),
        aided("a@2", "square"),
        aided("b", "relu"),
    );
    let offers = |models: &[&Arc<ServerModel>]| -> Vec<Offer> {
        models.iter().map(|&model| model.clone().into()).collect()
    };
    let running = Running::start(server(offers(&[&first]), patient()).expect("a free port"));
    let before = running.connect().expect("it is served");
    let hello = Raw::greeted(running.address()).1;
    running
        .server()
        .offer(offers(&[&first, &second]))
        .expect("they go together");
    gets(ask(&running, "a").expect("it is served"), &second);
    // What was served before goes on, with the store of its prepared batches.
    gets(ask(&running, "a@1").expect("it is served"), &first);
    let mut raw = Raw::connect(running.address());
    let again = pronghorn_session::message::ClientHello {
        model: Some("a@1".parse().expect("it is a name")),
        ..crate::common::hello()
    };
    use pronghorn_session::{
        frame::{Kind, MAX_HANDSHAKE},
        message::{Hello, ServerHello},
    };
    raw.send(Kind::ClientHello, &again.encode());
    let (_, payload) = raw
        .receive(&[(Kind::ServerHello, MAX_HANDSHAKE)])
        .expect("it is served");
    let now = ServerHello::decode(&payload).expect("it is one");
    assert_eq!(now.store, hello.store);
    running
        .server()
        .offer(offers(&[&third]))
        .expect("it is one");
    assert_eq!(listed(&running, &options()), ["b@1"]);
    assert_eq!(refused(ask(&running, "a")).0, ErrorCode::Model);
    // A connection goes on to its end.
    gets(before, &first);
    gets(running.connect().expect("it is the only one"), &third);
    // What is refused changes nothing.
    let none = running.server().offer(vec![]).expect_err("there are none");
    assert!(none.to_string().contains("there are 0"), "{none}");
    assert_eq!(listed(&running, &options()), ["b@1"]);
}

#[test]
fn models_that_cannot_be_told_apart_are_refused() {
    let alike = aided("a", "relu");
    let reason = |offers| {
        let error = server(offers, patient()).err().expect("they are refused");
        assert!(matches!(error, SessionError::Models { .. }), "{error}");
        error.to_string()
    };
    let id = |text: &str| {
        text.parse::<pronghorn_session::ModelRef>()
            .expect("a name")
            .into()
    };
    let twice = vec![alike.clone().into(), aided("a@1", "square").into()];
    assert!(reason(twice).contains("a@1 is there twice"));
    let one_plan = vec![
        Offer::new(id("a"), alike.clone()),
        Offer::new(id("b"), alike),
    ];
    assert!(reason(one_plan).contains("a@1 and b@1 have one plan"));
}

/// A client that rested connects again to the version that it had.
#[test]
fn a_client_that_comes_back_gets_the_same_version() {
    let (first, second) = (aided("a@1", "relu"), aided("a@2", "square"));
    let limits = Limits {
        keep_alive: Some(std::time::Duration::from_millis(50)),
        ..patient()
    };
    let running = Running::start(server(vec![first.clone().into()], limits).expect("a free port"));
    let client = running.connect().expect("it is served");
    let both = vec![first.clone().into(), second.into()];
    running.server().offer(both).expect("they go together");
    running.wait_for_log("rested for longer");
    gets(client, &first);
}
