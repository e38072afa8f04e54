//! Names over TLS under `multi-key`: the owner's place and a client's name are whose they were
//! first.

use std::thread;

use crate::roles::*;
use pronghorn_session::{
    ClientChannel, ClientTls, ConnectOptions, KeyRequest, ServerChannel, ServerTls, make_keys,
    multikey::{CloudClient, CloudOptions, Refusal},
};

/// A cloud over TLS, and the certificates of some parties.
struct Scene {
    scratch: Scratch,
    cloud: Cloud,
}

impl Scene {
    fn new() -> Self {
        let scratch = Scratch::new();
        let request = KeyRequest {
            hosts: vec![],
            clients: ["owner", "alice", "mallory"].map(String::from).to_vec(),
            tokens: vec![],
            days: 30,
        };
        make_keys(&scratch.at("tls"), &request).expect("keys are made");
        let server = ServerTls::directory(&scratch.at("tls").join("server"));
        let options = CloudOptions {
            channel: ServerChannel::Tls(server.expect("it is whole")),
            ..CloudOptions::default()
        };
        let cloud = Cloud::start(&scratch, options);
        Self { scratch, cloud }
    }

    fn options(&self, name: &str) -> ConnectOptions {
        let tls = ClientTls::directory(&self.scratch.at("tls").join("clients").join(name));
        ConnectOptions {
            channel: ClientChannel::Tls(tls.expect("it is whole")),
            ..options()
        }
    }

    /// The owner's keys at the cloud, by whoever has this certificate, for a network.
    fn attend(&self, name: &str, sign: i32) -> Attending {
        let mut keys = owner(&self.scratch, 8).expect("keys of this network");
        let (party, options) = (keys.party(), self.options(name));
        let (cancel, address) = (options.cancel.clone(), self.cloud.address());
        let attend = move || keys.attend(&graph(sign), &address, &options, &|_| ());
        Attending {
            cancel,
            thread: Some(thread::spawn(attend)),
            party,
        }
    }
}

#[test]
fn names_are_whose_they_were_first() {
    let scene = Scene::new();
    let mut attending = scene.attend("owner", 1);
    scene.cloud.events.wait("attended", 1);
    let owner = attending.party;
    let seed = seed(&scene.scratch, "client");
    let join = |name: &str| {
        let options = scene.options(name);
        let mut client = CloudClient::meet(&scene.cloud.address(), owner, &seed, options)?;
        admit(&scene.scratch, client.party());
        client.join(|_| ())?;
        client.predict(&IMAGE)
    };
    check(join("alice"), &IMAGE);
    // The client's seed would not help another: and who has its introduction alone, as the cloud's
    // listeners may, gets no further.
    assert_eq!(refusal(join("mallory").err()), Some(Refusal::OtherOwner));
    check(join("alice"), &IMAGE);
    attending.stop();
    // The owner's own key with another's certificate: to publish another network.
    let mut thief = scene.attend("mallory", -1);
    let ended = thief.thread.take().expect("it runs").join();
    let refused = ended.expect("no panic").err();
    assert_eq!(refusal(refused), Some(Refusal::OtherOwner));
    // Who knows the name of the publication, as a delegate does, attends with any certificate.
    let mut attending = scene.attend("owner", 1);
    scene.cloud.events.wait("attended", 2);
    check(join("alice"), &IMAGE);
    attending.stop();
    let _delegate = scene.attend("mallory", 1);
    scene.cloud.events.wait("attended", 3);
    check(join("alice"), &IMAGE);
}
