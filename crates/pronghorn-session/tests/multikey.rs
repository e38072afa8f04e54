//! Model owner, cloud and clients over sockets.

use std::{fs, thread};

use crate::roles::*;
use pronghorn_graph::polynomial::PolyOp;
use pronghorn_he::multikey::Party;
use pronghorn_multikey::Aim;
use pronghorn_session::{
    SessionError,
    multikey::{CloudClient, CloudError, CloudLimits, CloudOptions, OwnerKeys, Refusal},
};

#[test]
fn clients_learn_results_and_all_go_on_after_restarts() {
    let scratch = Scratch::new();
    let cloud = Cloud::start(&scratch, CloudOptions::default());
    let mut owner = Attending::start(&scratch, &cloud, 8, 1);
    let mut first = client(&scratch, &cloud, owner.party, "first");
    assert!(first.keys_sent().is_some());
    check(first.predict(&IMAGE), &IMAGE);
    let mut second = client(&scratch, &cloud, owner.party, "second");
    check(second.predict(&[0.0; 6]), &[0.0; 6]);
    check(first.predict(&IMAGE.map(|x| -x)), &IMAGE.map(|x| -x));
    // An image out of range is the client's own matter.
    assert!(first.predict(&[9.0; 6]).is_err());
    check(first.predict(&IMAGE), &IMAGE);
    // The owner goes away: the client hears so, and goes on once it is back.
    assert!(matches!(
        owner.stop(),
        Some(Err(CloudError::Session(SessionError::Cancelled)))
    ));
    assert_eq!(refusal(first.predict(&IMAGE).err()), Some(Refusal::Away));
    let mut owner = Attending::start(&scratch, &cloud, 8, 2);
    check(first.predict(&IMAGE), &IMAGE);
    // The cloud starts anew: it has the model and the keys, and the owner publishes nothing.
    owner.stop();
    drop((first, second, cloud));
    let cloud = Cloud::start(&scratch, CloudOptions::default());
    let owner = Attending::start(&scratch, &cloud, 8, 1);
    let mut first = client(&scratch, &cloud, owner.party, "first");
    assert_eq!(first.keys_sent(), None);
    check(first.predict(&IMAGE), &IMAGE);
    let published = |event: &&&str| **event == "published";
    let seen = cloud.events.seen.lock().expect("no panic");
    assert_eq!(seen.iter().filter(published).count(), 0);
}

#[test]
fn the_ledger_outlives_the_owners_process() {
    let scratch = Scratch::new();
    let cloud = Cloud::start(&scratch, CloudOptions::default());
    let mut owner = Attending::start(&scratch, &cloud, 2, 1);
    let mut asking = client(&scratch, &cloud, owner.party, "client");
    check(asking.predict(&IMAGE), &IMAGE);
    owner.stop();
    let mut owner = Attending::start(&scratch, &cloud, 2, 2);
    check(asking.predict(&IMAGE), &IMAGE);
    owner.stop();
    let owner = Attending::start(&scratch, &cloud, 2, 3);
    // Its key has decrypted as many results as it may.
    let mut asking = client(&scratch, &cloud, owner.party, "client");
    assert_eq!(refusal(asking.predict(&IMAGE).err()), Some(Refusal::Owner));
}

#[test]
fn keys_are_one_networks_and_one_processs() {
    let scratch = Scratch::new();
    let first = owner(&scratch, 8).expect("new keys");
    let (party, left) = (first.party(), first.results_left());
    assert!(matches!(
        owner(&scratch, 8).err(),
        Some(CloudError::InUse { .. })
    ));
    drop(first);
    // What was agreed on stays.
    let again = owner(&scratch, 99).expect("the keys that are there");
    assert_eq!((again.party(), again.results_left()), (party, left));
    drop(again);
    let mut other = graph(1);
    other.nodes[3].op = PolyOp::Square;
    other.nodes[3].shape = vec![4];
    let aim = Aim {
        error: 0.01,
        results: 8,
    };
    let refused = OwnerKeys::open(&scratch.at("owner"), &other, aim).err();
    assert!(matches!(refused, Some(CloudError::OtherKeys { .. })));
    fs::remove_file(scratch.at("owner").join("ledger")).expect("it is there");
    assert!(matches!(
        owner(&scratch, 8).err(),
        Some(CloudError::NoLedger { .. })
    ));
}

#[test]
fn strangers_are_refused_before_their_keys_are_taken() {
    let scratch = Scratch::new();
    let cloud = Cloud::start(&scratch, CloudOptions::default());
    let nobody = Party([7; 32]);
    let seed = seed(&scratch, "client");
    let early = CloudClient::meet(&cloud.address(), nobody, &seed, options());
    assert_eq!(refusal(early.err()), Some(Refusal::NoModel));
    let owner = Attending::start(&scratch, &cloud, 8, 1);
    let mut stranger = meet(&scratch, &cloud, owner.party, "client");
    let refused = stranger.join(|_| panic!("no keys are wanted"));
    assert_eq!(refusal(refused.err()), Some(Refusal::NotAdmitted));
    let other = CloudClient::meet(&cloud.address(), nobody, &seed, options());
    assert_eq!(refusal(other.err()), Some(Refusal::OtherOwner));
    // Another owner does not take the place of the first.
    let thief = Scratch::new();
    let mut thief = Attending::without_waiting(&thief, &cloud, 8);
    let refused = thief.thread.take().expect("it runs").join();
    let refused = refused.expect("no panic").err();
    assert_eq!(refusal(refused), Some(Refusal::OtherOwner));
    let mut admitted = client(&scratch, &cloud, owner.party, "client");
    check(admitted.predict(&IMAGE), &IMAGE);
}

#[test]
fn few_keys_in_memory_serve_many_clients() {
    let scratch = Scratch::new();
    let limits = CloudLimits {
        clients: 1,
        ..CloudLimits::default()
    };
    let options = CloudOptions {
        limits,
        ..CloudOptions::default()
    };
    let cloud = Cloud::start(&scratch, options);
    let owner = Attending::start(&scratch, &cloud, 8, 1);
    let names = ["first", "second"];
    let mut clients = names.map(|name| client(&scratch, &cloud, owner.party, name));
    for _ in 0..2 {
        for client in &mut clients {
            check(client.predict(&IMAGE), &IMAGE);
        }
    }
}

/// A key moves to a delegate, who has no weights, and back. One of both has it, with one ledger.
#[test]
fn a_delegate_attends_in_the_owners_place() {
    let scratch = Scratch::new();
    let cloud = Cloud::start(&scratch, CloudOptions::default());
    let mut attending = Attending::start(&scratch, &cloud, 8, 1);
    let mut alice = client(&scratch, &cloud, attending.party, "alice");
    check(alice.predict(&IMAGE), &IMAGE);
    let [from, to] = ["owner", "delegate"].map(|name| scratch.at(name));
    let busy = OwnerKeys::hand_over(&from, &to);
    assert!(matches!(busy, Err(CloudError::InUse { .. })));
    attending.stop();
    OwnerKeys::hand_over(&from, &to).expect("nobody uses it");
    let gone = owner(&scratch, 8).err();
    assert!(matches!(gone, Some(CloudError::HandedOver { .. })));
    let again = OwnerKeys::hand_over(&from, &scratch.at("another"));
    assert!(matches!(again, Err(CloudError::HandedOver { .. })));
    let refused = alice.predict(&IMAGE).err();
    assert_eq!(refusal(refused), Some(Refusal::Away));

    let delegate = |address: String| {
        let mut keys = OwnerKeys::delegate(&to).expect("the owner's key");
        assert_eq!(keys.results_left(), 7);
        let (party, options) = (keys.party(), options());
        let cancel = options.cancel.clone();
        let attend = move || keys.attend_published(&address, &options, &|_| ());
        Attending {
            cancel,
            thread: Some(thread::spawn(attend)),
            party,
        }
    };
    // At a cloud that has not got the model there is nothing to attend for.
    let empty = Scratch::new();
    let other = Cloud::start(&empty, CloudOptions::default());
    let mut early = delegate(other.address());
    let ended = early.thread.take().expect("it runs").join();
    assert!(matches!(
        ended.expect("no panic"),
        Err(CloudError::NotPublished)
    ));
    let mut attending = delegate(cloud.address());
    cloud.events.wait("attended", 2);
    check(alice.predict(&IMAGE), &IMAGE);
    // The list of clients went with the key.
    admit_at(&to, meet(&scratch, &cloud, attending.party, "bob").party());
    let mut bob = meet(&scratch, &cloud, attending.party, "bob");
    bob.join(|_| ()).expect("admitted");
    check(bob.predict(&IMAGE), &IMAGE);
    attending.stop();
    let own = fs::read_to_string(from.join("clients")).expect("its list");
    OwnerKeys::hand_over(&to, &from).expect("nobody uses it");
    let none = OwnerKeys::delegate(&to).err();
    assert!(matches!(none, Some(CloudError::HandedOver { .. })));
    assert_eq!(owner(&scratch, 8).expect("it is back").results_left(), 5);
    // The delegate's clients are not the owner's.
    let read = |name: &str| fs::read_to_string(from.join(name)).expect("a list");
    assert!(read("clients") == own && read("clients.delegate") != own);
    assert!(read("clients.delegate").starts_with(&own));
    // A delegate that was one before gets the owner's list again.
    admit(&scratch, Party([7; 32]));
    OwnerKeys::hand_over(&from, &to).expect("nobody uses it");
    let there = fs::read_to_string(to.join("clients")).expect("the list went with the key");
    assert!(there == read("clients") && !to.join("clients.delegate").exists());
}

/// A delegate that gives back another key, other terms, a longer list of clients or a ledger with
/// fewer results: the owner's own files count.
#[test]
fn what_a_delegate_gives_back_is_not_believed() {
    let scratch = Scratch::new();
    let [from, to] = ["owner", "delegate"].map(|name| scratch.at(name));
    let party = owner(&scratch, 8).expect("new keys").party();
    let description = fs::read(from.join("terms")).expect("its own");
    OwnerKeys::hand_over(&from, &to).expect("nobody uses it");
    assert!(OwnerKeys::delegate(&to).expect("the owner's key").party() == party);
    // Its file with the seed goes back and forth.
    let seed = fs::read(to.join("owner.seed")).expect("it has the key");
    fs::write(to.join("owner.seed"), [9; 32]).expect("it is ours");
    let refused = OwnerKeys::hand_over(&to, &from).err();
    assert!(matches!(refused, Some(CloudError::Role(_))), "{refused:?}");
    fs::write(to.join("leaving.seed"), seed).expect("it is ours");
    fs::write(to.join("terms"), "other terms").expect("it is ours");
    fs::write(to.join("clients"), "a client of its own").expect("it is ours");
    let ledger = fs::read(to.join("ledger")).expect("its own");
    fs::write(to.join("ledger"), &ledger[1..]).expect("it is ours");
    assert!(OwnerKeys::hand_over(&to, &from).is_err());
    assert!(!from.join("owner.seed").exists());
    fs::write(to.join("ledger"), &ledger).expect("it is ours");
    OwnerKeys::hand_over(&to, &from).expect("the key, and a ledger of it");
    assert!(owner(&scratch, 8).expect("it is back").party() == party);
    assert!(fs::read(from.join("terms")).expect("its own") == description);
    assert!(!from.join("clients").exists());
}

/// The copy is complete, the old directory did not notice, and the new one was moved: there is no
/// second copy.
#[test]
fn a_copy_that_was_moved_is_not_made_again() {
    let scratch = Scratch::new();
    let [from, to, elsewhere] = ["owner", "delegate", "elsewhere"].map(|name| scratch.at(name));
    drop(owner(&scratch, 8).expect("new keys"));
    let seed = fs::read(from.join("owner.seed")).expect("its own");
    // A file in the way of the last step but one.
    assert!(OwnerKeys::delegate(&to).is_err());
    fs::create_dir_all(to.join("owner.seed.part")).expect("it is ours");
    assert!(OwnerKeys::hand_over(&from, &to).is_err());
    assert!(from.join("leaving.seed").exists() && !to.join("owner.seed").exists());
    // The same call goes on.
    fs::remove_dir(to.join("owner.seed.part")).expect("it is ours");
    let number = fs::read(from.join("transfer")).expect("a number");
    OwnerKeys::hand_over(&from, &to).expect("nobody uses it");
    // As it was before the seed was removed.
    fs::write(from.join("leaving.seed"), seed).expect("it is ours");
    fs::write(from.join("transfer"), &number).expect("it is ours");
    fs::write(to.join("transfer"), number).expect("it is ours");
    fs::rename(&to, &elsewhere).expect("it is ours");
    let refused = OwnerKeys::hand_over(&from, &to).err();
    assert!(
        matches!(refused, Some(CloudError::Moved { .. })),
        "{refused:?}"
    );
    assert!(!to.join("owner.seed").exists());
    assert!(OwnerKeys::delegate(&elsewhere).is_ok());
}
